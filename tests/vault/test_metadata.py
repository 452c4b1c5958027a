"""Metadata and validity in the files of a vault."""

from __future__ import annotations

from tests.vault.vaults import Kept, assert_equal

GIVEN = {"team": "platform", "n": 2, "people": ["Ana: lead", "Bø"], "place": {"city": "Oslo"}}


def test_metadata_and_validity_are_written_to_the_file(kept: Kept) -> None:
    memory = kept.ana.remember("Ship it", metadata=GIVEN, valid_from="2020-03-01")
    kept.sync()
    raw = kept.read(kept.of(memory))
    assert '\nmetadata: {"team": "platform", "n": 2, "people": ["Ana: lead", "Bø"], ' in raw
    assert '\nvalid_from: "2020-03-01T00:00:00.000+00:00"\n' in raw
    kept.ana.revise(memory.id, metadata=None)
    kept.sync()
    assert "metadata" not in kept.read(kept.of(memory))
    assert_equal(kept)


def test_metadata_that_a_person_edits_is_revised(kept: Kept) -> None:
    memory = kept.ana.remember("Ship it", metadata={"team": "platform"})
    kept.sync()
    kept.edit(kept.of(memory), '{"team": "platform"}', '{"team": "web", "n": 2}')
    kept.sync()
    assert kept.ana.get(memory.id).metadata == {"team": "web", "n": 2}
    kept.edit(kept.of(memory), 'metadata: {"team": "web", "n": 2}\n', "metadata:\n  team: x\n")
    kept.sync()
    assert kept.ana.get(memory.id).metadata == {"team": "x"}
    kept.edit(kept.of(memory), "Ship it", "Ship it now")
    kept.sync()
    changed = kept.ana.get(memory.id)
    assert (changed.content, changed.metadata) == ("Ship it now", {"team": "x"})
    assert_equal(kept)


def test_a_persons_own_metadata_key_stays(kept: Kept) -> None:
    memory = kept.ana.remember("Ship it")
    kept.sync()
    kept.edit(kept.of(memory), "kind: fact\n", "kind: fact\nmetadata: see elsewhere\n")
    kept.sync()
    assert kept.ana.get(memory.id).metadata == {}
    kept.edit(kept.of(memory), "Ship it", "Ship it now")
    kept.sync()
    assert kept.ana.get(memory.id).content == "Ship it now"
    assert "metadata: see elsewhere\n" in kept.read(kept.of(memory))


def test_new_file_is_remembered_with_its_metadata_and_validity(kept: Kept) -> None:
    kept.sync()
    kept.write(
        "ana/facts/new.md",
        "---\nmetadata: {team: web}\nvalid_to: 2024-05-01\n---\n\nShip it\n",
    )
    kept.sync()
    (memory,) = kept.ana.memories()
    assert (memory.metadata, memory.valid_to) == ({"team": "web"}, 1_714_521_600_000)
    assert kept.ana.count(where={"metadata.team": "web"}) == 1


def test_two_files_with_the_same_text_are_two_memories(kept: Kept) -> None:
    first = kept.ana.remember("Ship it")
    kept.sync()
    kept.write("ana/facts/other.md", "Ship it\n")
    kept.sync()
    assert len(kept.ana.memories()) == 2 and kept.ana.get(first.id).version == 1
    assert_equal(kept)
