"""What people see in the files: links, aliases, tags, and an index that leads to everything."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from reverie.model import Origin
from reverie.text import frontmatter
from reverie.text.tags import inline_tags
from reverie.vault import render
from reverie.vault.git.repo import Repository
from tests.messages import append_as_shared, user
from tests.tables import cases_in_one_test
from tests.vault.vaults import Kept, assert_equal


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_subject_is_a_link_and_an_alias(kept: Kept) -> None:
    memory = kept.ana.remember("leads Project Atlas", category="person", subject="Bob Miller")
    kept.sync()
    path = kept.of(memory)
    assert path == "ana/facts/bob-miller.md"
    assert 'subject: "[[Bob Miller]]"\naliases: [Bob Miller]\n' in kept.read(path)
    kept.edit(path, "[[Bob Miller]]", "[[Eva Lind|Eva]]")
    assert kept.sync().revised == [path]
    assert kept.ana.get(memory.id).subject == "Eva Lind"
    assert 'subject: "[[Eva Lind]]"\naliases: [Eva Lind]\n' in kept.read(path)
    assert_equal(kept)


@pytest.mark.parametrize(
    ("category", "subject", "is_link"),
    [
        ("person", "Bob Miller", True),
        ("family", "Zoë", True),
        ("friend", "小明", True),
        ("project", "website relaunch", True),
        # What the user's own facts are told apart by names nobody.
        ("person", "name", False),
        ("person", "birth year", False),
        ("context", "home", False),
        ("context", "Job", False),
        ("preference", "pizza", False),
        ("health", "nut allergy", False),
        ("general", "Alarm", False),
    ],
)
def test_only_the_subject_of_a_person_or_project_is_a_link(
    kept: Kept, category: str, subject: str, is_link: bool
) -> None:
    memory = kept.ana.remember("a fact", category=category, subject=subject)
    kept.sync()
    path = kept.of(memory)
    written = f'subject: "[[{subject}]]"\n' if is_link else f"subject: {subject}\n"
    assert written in kept.read(path)
    other = f"subject: {subject}\n" if is_link else f'subject: "[[{subject}]]"\n'
    kept.edit(path, written, other)
    assert not kept.sync()
    kept.edit(path, "a fact", "another fact")
    assert kept.sync().revised == [path]
    assert kept.ana.get(memory.id).subject == subject and written in kept.read(path)
    assert_equal(kept)


def test_alias_of_a_person_stays_when_the_subject_changes(kept: Kept) -> None:
    memory = kept.ana.remember("leads Project Atlas", subject="Bob")
    kept.sync()
    path = kept.of(memory)
    kept.edit(path, "aliases: [Bob]", "aliases: [Bob, Bobby]")
    assert not kept.sync()
    kept.ana.revise(memory.id, subject="Robert")
    kept.sync()
    assert "aliases: [Robert, Bobby]" in kept.read(kept.of(memory))


@cases_in_one_test(
    "subject", ["a|b", "[x]", "[[x]]", "a#b", "x]]", "^up", "plain", "Zoë K.", "[[", "]]", "[[]]"]
)
def test_any_subject_is_read_back_as_it_is(subject: str) -> None:
    expected = "x" if subject == "[[x]]" else subject
    for category in ("project", "general"):
        assert render.parse_subject(render.subject_link(subject, category)) == expected


def test_subject_with_brackets_is_not_taken_for_an_edit(kept: Kept) -> None:
    kept.ana.remember("a thing", subject="[[x]]")
    kept.sync()
    before = kept.bytes()
    assert not kept.sync() and kept.bytes() == before


def test_learned_memory_links_to_the_heading_of_its_turn(kept: Kept) -> None:
    session = kept.ana.session("My Chat/1")
    session.append({"role": "assistant", "content": "Where do you live?"})
    event = session.append({"role": "user", "content": "In Rome"})
    memory = session.space.remember("lives in Rome", origin=Origin(session.id, event.sequence))
    kept.sync()
    link = kept.document(kept.of(memory)).text("origin")
    assert link == "[[ana/users/unnamed/sessions/2026-01/My Chat-1/turns#2. user]]"
    path, _, heading = link.strip("[]").partition("#")
    assert f"## {heading}\n" in kept.read(f"{path}.md")


def test_memory_links_to_the_file_of_its_turn_where_each_has_one(tmp_path: Path) -> None:
    kept = Kept(tmp_path, turns="apart")
    session = kept.ana.session("chat")
    event = session.append({"role": "user", "content": "In Rome"})
    memory = session.space.remember("lives in Rome", origin=Origin(session.id, event.sequence))
    kept.sync()
    link = kept.document(kept.of(memory)).text("origin") or ""
    assert "In Rome" in kept.read(f"{link.strip('[]')}.md")


def test_turns_of_an_earlier_version_are_read_and_continued(kept: Kept) -> None:
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "one"})
    kept.sync()
    path = kept.path("ana/users/unnamed/sessions/2026-01/chat/turns.md")
    plain = render.strip_seal(path.read_bytes())
    assert plain is not None
    path.write_bytes(render.add_seal(plain.replace(b"## 1. user", b"## user")))
    assert not kept.sync()
    session.append({"role": "assistant", "content": "two"})
    kept.sync()
    assert re.findall(rb"## .*", path.read_bytes()) == [b"## user", b"## 2. assistant"]
    left, said = render.remove_events(path.read_bytes(), {1})
    assert said == ["one"] and b"## user" not in left and b"## 2. assistant" in left
    assert_equal(kept)


def test_inline_tags_of_a_person_become_tags(kept: Kept) -> None:
    kept.write("ana/facts/bike.md", "Bought a bike #hobby\n")
    memory = kept.ana.remember("see issue #bug and #12", tags=["work"])
    kept.sync()
    (bike,) = (each for each in kept.ana.memories() if each.id != memory.id)
    assert bike.tags == ("hobby",)
    # What an agent wrote has the tags that the agent gave it.
    assert kept.ana.get(memory.id).tags == ("work",)
    kept.edit(kept.of(memory), "and #12", "and #12, #Lisbon/trip")
    kept.sync()
    assert kept.ana.get(memory.id).tags == ("work", "lisbon/trip")
    assert_equal(kept)


def test_inline_tags_never_exceed_the_limit_of_a_memory(kept: Kept) -> None:
    kept.write("ana/facts/many.md", " ".join(f"#tag{number}" for number in range(40)) + "\n")
    assert kept.sync().problems == []
    (memory,) = kept.ana.memories()
    assert len(memory.tags) == 16


@cases_in_one_test(
    "text, tags",
    [
        ("#a and #b-c_d/e", ("a", "b-c_d/e")),
        ("#1 #2026-11 #-", ()),
        ("a#b http://x/#y (#z)", ()),
        ("# heading\n## another", ()),
        ("`#no` #yes", ("yes",)),
        ("```\n#no\n```\n#yes", ("yes",)),
        ("#Ä #日本 #हिन्दी", ("ä", "日本", "हिन्दी")),
        ("#x #X", ("x",)),
        ("#" + "y" * 65, ()),
    ],
)
def test_inline_tags_are_those_of_note_taking_programs(text: str, tags: tuple[str, ...]) -> None:
    assert inline_tags(text) == tags


def test_file_named_after_a_subject_is_renamed_with_it(kept: Kept) -> None:
    first = kept.ana.remember("is my boss", subject="Alec")
    named = kept.ana.remember("likes tea", subject="Eva")
    same = kept.ana.remember("lives in Lisbon")
    kept.sync()
    kept.move("ana/facts/eva.md", "ana/facts/my tea.md")
    kept.sync()
    kept.ana.revise(first.id, "is my boss now", subject="Seabrook")
    kept.ana.revise(named.id, subject="Bob")
    kept.ana.revise(same.id, "moved to Porto")
    kept.sync()
    assert kept.files() == [
        "ana/facts/lives-in-lisbon.md",
        "ana/facts/my tea.md",
        "ana/facts/seabrook.md",
    ]
    kept.ana.forget(first.id)
    kept.sync()
    assert kept.of(first) == "ana/deleted/facts/seabrook.md"
    assert_equal(kept)


def test_index_lists_notes_and_facts(kept: Kept) -> None:
    kept.ana.remember("a fact", category="person")
    kept.ana.remember("a note", kind="note")
    kept.ana.remember("a pinned note", kind="note", pinned=True)
    gone = kept.ana.remember("a forgotten note", kind="note")
    kept.ana.forget(gone.id)
    kept.sync()
    index = kept.read("ana/MEMORY.md")
    assert "1 fact in `facts/`, 2 notes in `notes/`" in index and "These are" not in index
    assert re.findall(r"^- \[.*\]\((.*)\)$", index, re.MULTILINE) == [
        "facts/a-fact.md",
        "notes/a-pinned-note.md",
        "notes/a-note.md",
    ]
    assert "forgotten note" not in index


def _places(kept: Kept, folder: str) -> str:
    """Return the line of an index that says where everything is."""
    lines = kept.read(f"{folder}/MEMORY.md").splitlines()
    line = next(line for line in lines if "in `facts/`" in line)
    return line.removesuffix("what was forgotten is in `deleted/`.")


def test_index_of_a_space_says_where_the_conversations_of_users_are(kept: Kept) -> None:
    kept.ana.remember("a fact")
    kept.ana.session("chat").append(user("hi"))
    kept.mirror()
    in_users = "conversations and what is known of each user are in `users/`, "
    assert _places(kept, "ana") == f"1 fact in `facts/`, 0 notes in `notes/`; {in_users}"
    append_as_shared(kept.ana, "old", user("hi"))
    kept.mirror()
    assert _places(kept, "ana").endswith(f", earlier conversations in `sessions/`; {in_users}")
    assert_equal(kept)


@pytest.mark.parametrize("named", [None, "bob"])
def test_index_names_the_folder_of_sessions_while_there_is_one(
    kept: Kept, named: str | None
) -> None:
    space, folder = kept.store.space("ana", user=named), f"ana/users/{named or 'unnamed'}"
    chat = space.session("chat")
    chat.append(user("hi"))
    kept.mirror()
    assert _places(kept, folder).endswith("0 notes in `notes/`, conversations in `sessions/`; ")
    assert_equal(kept)
    chat.hide()
    kept.mirror()
    assert _places(kept, folder).endswith("0 notes in `notes/`; ")
    assert_equal(kept)


def test_index_of_a_space_does_not_change_with_its_first_user(kept: Kept) -> None:
    """Its history is shown to all users."""
    kept.ana.remember("a fact")
    kept.mirror()
    before = kept.read("ana/MEMORY.md")
    kept.store.space("ana", user="bob").session("chat").append(user("hi"))
    kept.sync()
    assert kept.read("ana/MEMORY.md") == before


def test_bookkeeping_files_are_not_shown_in_diffs(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("a fact")
    kept.sync()
    shown = (kept.root / ".gitattributes").read_text()
    assert shown == "* -text\n.reverie/** -diff\nMEMORY.md -diff\n"
    # Those of an earlier version are replaced, a person's are not.
    for before, after in (("* -text\n", shown), ("* text\n", "* text\n")):
        (kept.root / ".gitattributes").write_text(before)
        repository = Repository.at(kept.root)
        assert repository is not None
        repository.init()
        assert (kept.root / ".gitattributes").read_text() == after


def test_conflict_copy_keeps_the_subject_as_a_link(kept: Kept) -> None:
    memory = kept.ana.remember("one", category="person", subject="Bob")
    raw = render.conflict_file(kept.ana.get(memory.id))
    assert frontmatter.load(raw).text("subject") == "[[Bob]]"


def test_seal_is_a_line_of_its_own() -> None:
    plain = b"---\nrole: turns\nx"
    mark = sha256(plain + b"---\n").hexdigest()[:16].encode()
    assert render.strip_seal(plain + b"seal: s" + mark + b"\n---\n") is None
    sealed = render.add_seal(b"---\nrole: turns\n---\n\nhello\n")
    assert render.strip_seal(sealed) == b"---\nrole: turns\n---\n\nhello\n"
