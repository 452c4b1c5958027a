"""Vaults of earlier versions: their files and folders get the names of today, in one commit."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.model import Memory, Scope
from reverie.text import frontmatter
from reverie.vault import folder_names, service
from reverie.vault.git.repo import Repository
from reverie.vault.vault import Vault
from tests.messages import append_as_shared
from tests.vault.repositories import by_hand
from tests.vault.vaults import Kept, assert_equal

LONG = "x" * 150
# The folders of an earlier version: percent-encoded, with a number that says where capitals are.
FORMER = {
    "Ana": "Ana=1",
    "ana": "ana",
    "a/b c": "a%2fb%20c",
    LONG: f"{'x' * 103}~{hashlib.sha256(LONG.encode()).hexdigest()[:16]}",
    "Zoë K": "Zoë%20K=11",
    "My Chat/1": "My%20Chat%2f1=9",
    "chat": "chat",
}


def former_file(memory: Memory, stem: str) -> str:
    capitals = sum(1 << place for place, letter in enumerate(memory.id) if letter.isupper())
    return f"{stem}--{memory.id}{f'_{capitals:02x}' if capitals else ''}.md"


@pytest.fixture
def old(tmp_path: Path) -> Kept:
    """A vault as an earlier version left it, with everything committed."""
    kept = Kept(tmp_path, git=True)
    for space, user in (("Ana", None), ("ana", None), ("a/b c", "Zoë K"), (LONG, None)):
        handle = kept.store.space(space, user=user)
        handle.remember(f"of {space[:20]}", subject="Alec")
        handle.remember(f"more of {space[:20]}", subject="Alec")
        handle.forget(handle.remember("gone").id)
        for session in ("My Chat/1", "chat"):
            said = {"role": "user", "content": f"hi from {space[:20]}"}
            # Earlier versions stored as shared what was said without a name.
            append_as_shared(handle, session, said)
        handle.session("chat").hide()
    kept.sync()
    folders, moves = kept.folders(), dict[Path, Path]()
    for path in kept.files():
        place = folders.parse(path)
        assert place is not None
        parts = [FORMER[place.scope.space]]
        parts += ["users", FORMER[place.scope.user]] if place.scope.user else []
        parts += ["deleted"] if place.deleted else []
        if place.session is not None:
            parts += ["sessions", FORMER[place.session], "turns.md"]
        else:
            id = kept.document(path).text("id")
            memory = kept.store.space(place.scope.space, user=place.scope.user).get(id or "")
            parts += ["facts", former_file(memory, "gone" if place.deleted else "alec")]
        moves[kept.path(path)] = kept.root / "old" / "/".join(parts)
    for index in list(kept.root.glob("**/MEMORY.md")):
        document = kept.document(index.relative_to(kept.root).as_posix())
        user = document.text("user")
        above = FORMER[document.text("space") or ""] + (f"/users/{FORMER[user]}" if user else "")
        moves[index] = kept.root / "old" / above / "MEMORY.md"
    for source, target in moves.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    for folder in kept.root.iterdir():
        if not folder.name.startswith(".") and folder.name != "old":
            shutil.rmtree(folder)
    for folder in (kept.root / "old").iterdir():
        folder.rename(kept.root / folder.name)
    (kept.root / "old").rmdir()
    for name in ("names.json", "files.db", "files.db-wal", "files.db-shm"):
        (kept.root / ".reverie" / name).unlink(missing_ok=True)
    repository = Repository.at(kept.root)
    assert repository is not None
    repository.checkpoint("as it was", "me")
    return kept


EXPECTED = {
    ("Ana", None): "Ana-2",
    ("ana", None): "ana",
    ("a/b c", "Zoë K"): "a-b c/users/Zoë K",
    (LONG, None): "x" * 120,
}


def test_files_of_an_earlier_version_are_renamed_in_one_commit(old: Kept) -> None:
    before = {path: old.read(path) for path in old.files()}
    assert not old.sync()
    for (space, user), folder in EXPECTED.items():
        assert old.folders().owner(Scope(space, user)) == folder
        assert old.files(folder) == sorted(
            f"{folder}/{name}"
            for name in (
                "facts/alec.md",
                "facts/alec-2.md",
                "deleted/facts/gone.md",
                "sessions/2026-01/My Chat-1/turns.md",
                "deleted/sessions/2026-01/chat/turns.md",
            )
        )
    assert sorted(map(old.read, old.files())) == sorted(before.values())
    assert_equal(old)
    repository = Repository.at(old.root)
    assert repository is not None
    said = [one for one in repository.log(limit=50) if one.subject == folder_names.SUBJECT]
    assert len(said) == 1 and len(said[0].paths) > 2 * len(before)
    # Another sync changes nothing.
    head = repository.log(limit=1)[0].id
    assert not old.sync() and repository.log(limit=1)[0].id == head


def test_names_that_a_disk_confuses_are_kept_apart_by_the_renaming(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    former = {"Ana": "Ana=1", "ANA": "ANA=7", "ana": "ana"}
    for space in former:
        kept.store.space(space).remember(f"of {space}")
    kept.sync()
    # As an earlier version left it, with its cache.
    with Vault.open(kept.root) as vault, vault.locked():
        for ending in ("-x", ""):
            for file in vault.files.below(""):
                folder = former[file.scope.space] + ending
                vault.move(file, f"{folder}/{file.path.partition('/')[2]}")
        vault.files.drop_meta("folder:")
    (kept.root / ".reverie" / "names.json").unlink()
    assert not kept.sync()
    assert sorted(path.partition("/")[0] for path in kept.files()) == ["ANA-3", "Ana-2", "ana"]
    assert_equal(kept)


def test_file_in_a_former_folder_is_reported_and_not_read(old: Kept) -> None:
    old.sync()
    old.write("Ana=1/facts/mine.md", "whose am I?\n")
    assert old.sync().problems == [
        "Ana=1/facts/mine.md: its folder was another's in an earlier version: rename it"
    ]
    old.move("Ana=1", "Eve")
    assert old.sync().remembered == ["Eve/facts/mine.md"]


def test_renamed_vault_is_rebuilt_from_a_clone(old: Kept, tmp_path: Path) -> None:
    shutil.rmtree(old.root / ".git")
    second = old.open("second.db")
    from reverie.vault import rebuild

    report = rebuild.from_vault(second, old.root)
    assert not report.problems and not report.synced
    for space, user in EXPECTED:
        there, here = (
            each.space(space, user=user).memories(include_forgotten=True)
            for each in (second, old.store)
        )
        assert [memory.id for memory in there] == [memory.id for memory in here]
    assert sorted(info.name for info in second.spaces()) == sorted(space for space, _ in EXPECTED)
    second.close()


def test_history_and_purge_reach_commits_before_the_renaming(old: Kept) -> None:
    old.sync()
    ana = old.store.space("Ana")
    secret = "the combination of the blue suitcase is seven nine three"
    assert [one.subject for one in service.history(ana, limit=50)] == [
        folder_names.SUBJECT,
        "checkpoint: as it was",
    ]
    for memory in ana.memories(include_forgotten=True):
        ana.revise(memory.id, secret) if memory.forgotten_at is None else None
    old.sync()
    for memory in ana.memories():
        ana.erase(memory.id)
    assert service.scrub(old.store).found == ()
    repository = Repository.at(old.root)
    assert repository is not None
    former = [path for one in repository.log(limit=100) for path in one.paths if "=1" in path]
    assert former and not any("alec--" in path and path.startswith("Ana=1") for path in former)


def test_edits_of_a_person_are_committed_before_the_renaming(old: Kept) -> None:
    (path,) = (path for path in old.files("Ana=1/facts") if "\nof Ana\n" in old.read(path))
    old.edit(path, "of Ana", "of Ana and Zoë")
    old.write("Ana=1/facts/mine.md", "a new one\n")
    report = old.sync()
    assert len(report.revised) == 1
    assert report.remembered == ["Ana-2/facts/mine.md"]
    subjects = by_hand(old.root, "log", "--format=%s").decode().splitlines()
    renaming, edits = map(subjects.index, (folder_names.SUBJECT, folder_names.EDITS_SUBJECT))
    shown = ("show", "-M100%", "-l0", "--name-status", "--format=")
    changed = by_hand(old.root, *shown, f"HEAD~{edits}").decode().split("\n")[:-1]
    assert sorted(changed) == ["A\tAna=1/facts/mine.md", f"M\t{path}"] and edits == renaming + 1
    renamed = by_hand(old.root, *shown, f"HEAD~{renaming}").decode().split("\n")[:-1]
    others = [line for line in renamed if not line.startswith("R100\t")]
    assert others == ["A\t.reverie/names.json"]
    assert_equal(old)


def test_killed_renaming_goes_on_at_the_next_sync(
    old: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(map(old.read, old.files()))
    move: Callable[..., None] = folder_names._move
    for many in (1, 4, 9):
        done = 0

        def killed(vault: object, source: str, target: str) -> None:
            nonlocal done
            done += 1
            if done > many:  # noqa: B023
                raise KeyboardInterrupt
            move(vault, source, target)

        monkeypatch.setattr(folder_names, "_move", killed)
        with pytest.raises(KeyboardInterrupt):
            old.sync()
        assert sorted(map(old.read, old.files())) == before
    monkeypatch.setattr(folder_names, "_move", move)
    assert not old.sync()
    assert sorted(map(old.read, old.files())) == before
    assert_equal(old)


def test_persons_own_folders_and_files_are_not_renamed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    (kept.root / ".reverie" / "names.json").unlink(missing_ok=True)
    kept.write("50%25/facts/mine.md", "a note\n")
    kept.write("ana/facts/x--abcdefgh.md", "a note\n")
    kept.sync()
    assert {"50%25/facts/mine.md", "ana/facts/x--abcdefgh.md"} <= set(kept.files())
    assert frontmatter.load(kept.path("50%25/facts/mine.md").read_bytes()).text("id")
    assert {info.name for info in kept.store.spaces()} == {"50%25", "ana"}
