"""Names that are easily mistaken for each other: nobody sees or gets what is another's."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.errors import InvalidInput
from reverie.model import Scope
from reverie.vault import actions, execute, service
from reverie.vault.git import scoped_history
from reverie.vault.git.repo import Repository
from reverie.vault.state import MissingAction
from tests.vault.vaults import Kept, assert_equal


class TooLong(BaseException):
    """A sync that does not end."""


@pytest.fixture(autouse=True)
def at_most_ten_seconds() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)


def texts(kept: Kept, space: str, user: str | None = None) -> list[str]:
    return sorted(
        m.content for m in kept.store.space(space, user=user).memories(include_forgotten=True)
    )


def forget_names(kept: Kept, *, cache: bool = True) -> None:
    gone = ["names.json"]
    if cache:
        gone += ["files.db", "files.db-wal", "files.db-shm"]
    for name in gone:
        (kept.root / ".reverie" / name).unlink(missing_ok=True)


def recorded(kept: Kept) -> dict[str, dict[str, str]]:
    raw = (kept.root / ".reverie" / "names.json").read_text()
    told: dict[str, dict[str, str]] = json.loads(raw)
    return told


# -- owners ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "other"), [("a:b", "a-b"), ("Bob ", "Bob")])
def test_folder_with_an_odd_name_made_by_a_person_is_a_space_of_its_own(
    tmp_path: Path, made: str, other: str
) -> None:
    """files.knows() is true before a folder was ever assigned."""
    kept = Kept(tmp_path)
    kept.store.space(other).remember("secret of the other")
    kept.sync()
    kept.write(f"{made}/facts/x.md", "mine\n")
    kept.sync()
    kept.store.space(made).remember("the second one of mine")
    kept.sync()
    folders = kept.folders()
    assert folders.owner(Scope(made)) != folders.owner(Scope(other))


def test_space_named_like_a_former_folder_is_not_mixed_with_its_owner(tmp_path: Path) -> None:
    """names.json's former folders count for today's paths, but are not taken."""
    kept = Kept(tmp_path, git=True)
    kept.store.space("Ana").remember("of Ana", subject="Alec")
    kept.sync()
    shutil.move(kept.root / "Ana", kept.root / "Ana=1")
    forget_names(kept)
    kept.sync()
    assert recorded(kept)["former"] == {"Ana=1": "Ana"}
    kept.store.space("Ana=1").remember("private to the other space", subject="Zed")
    kept.sync()
    for name in ("files.db", "files.db-wal", "files.db-shm"):
        (kept.root / ".reverie" / name).unlink(missing_ok=True)
    kept.sync()
    assert texts(kept, "Ana") == ["of Ana"]
    assert not any(
        "private" in c.subject for c in scoped_history.history(kept.store.space("Ana"), limit=50)
    )


def test_copied_index_gives_no_folder_to_another_space(tmp_path: Path) -> None:
    """ensure_names believes a MEMORY.md at any depth."""
    kept = Kept(tmp_path)
    kept.store.space("ana").remember("of ana")
    kept.store.space("bob").remember("of bob")
    kept.sync()
    shutil.copy(kept.root / "bob/MEMORY.md", kept.root / "ana/facts/MEMORY.md")
    forget_names(kept)
    kept.sync()
    assert texts(kept, "bob") == ["of bob"]


# -- the upgrade ----------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", ["together", "apart"])
def test_session_named_after_a_day_is_moved_into_its_month(tmp_path: Path, turns: str) -> None:
    kept = Kept(tmp_path, turns=turns)
    s = kept.ana.session("2026-11-18")
    s.append({"role": "user", "content": "hello there"})
    s.append({"role": "assistant", "content": "hello back"})
    s.space.remember("a fact of the session")
    kept.sync()
    month = "ana/users/unnamed/sessions/2026-01"
    shutil.move(
        kept.root / month / "2026-11-18", kept.root / "ana/users/unnamed/sessions/2026-11-18"
    )
    (kept.root / month).rmdir()
    forget_names(kept)
    report = kept.sync()
    assert not report.remembered
    assert_equal(kept)


def test_erased_text_of_a_hidden_space_is_removed_after_the_renaming(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    secret = "the combination of the blue suitcase is seven nine three"
    m = kept.store.space("Hid").remember(secret)
    kept.store.space("ana").remember("of ana")
    kept.sync()
    shutil.move(kept.root / "Hid", kept.root / "Hid=1")
    forget_names(kept)
    kept.init(kept.root, ["ana"])
    kept.sync()
    kept.store.space("Hid").erase(m.id)
    kept.sync()
    hits = [
        p
        for p in kept.root.rglob("*")
        if p.is_file() and ".git" not in p.parts and secret.encode() in p.read_bytes()
    ]
    assert not hits


# -- sessions, erasure ----------------------------------------------------------------------------


def test_forgotten_memory_of_a_session_with_an_odd_name_keeps_its_session(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    s = kept.ana.session("my/chat").space
    s.forget(s.remember("a fact of the session", private=True).id)
    kept.sync()
    (path,) = kept.files()
    place = kept.folders().parse(path)
    assert place is not None and place.session == "my/chat"


def test_erased_words_are_removed_from_the_link_of_an_index_copy(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("suitcase combination seven nine three")
    kept.ana.remember("other")
    kept.sync()
    kept.edit("ana/MEMORY.md", "[suitcase combination seven nine three]", "[my suitcase]")
    kept.sync()
    kept.ana.erase(m.id)
    kept.sync()
    assert not [p for p, b in kept.bytes().items() if b"seven-nine" in b]


# -- git ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Forgot password?", "password: hunter2hunter2", "secret?"])
def test_names_are_committed_beside_a_name_with_a_secret(tmp_path: Path, name: str) -> None:
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana").remember("of ana")
    kept.store.space("x/y").remember("of x/y")
    kept.sync()
    kept.ana.session(name).append({"role": "user", "content": "hello there"})
    kept.sync()
    kept.store.space("Ana").remember("of Ana")
    kept.sync()
    told = subprocess.run(
        ["git", "show", "HEAD:.reverie/names.json"], cwd=kept.root, capture_output=True, text=True
    ).stdout
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(kept.root), str(clone)], check=True)
    assert '"Ana-2": "Ana"' in told


def test_older_names_file_that_was_checked_out_is_written_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana").remember("of ana")
    kept.sync()
    older = (kept.root / ".reverie/names.json").read_bytes()
    kept.store.space("Ana").remember("of Ana")
    kept.sync()
    (kept.root / ".reverie/names.json").write_bytes(older)  # git checkout HEAD~1 -- .
    kept.sync()
    for name in ("files.db", "files.db-wal", "files.db-shm"):
        (kept.root / ".reverie" / name).unlink(missing_ok=True)
    kept.sync()
    assert {i.name for i in kept.store.spaces()} == {"ana", "Ana"}


# -- labels, tags ---------------------------------------------------------------------------------


def test_subject_link_without_quotes_is_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("Alec is my boss", category="person", subject="Alec")
    kept.sync()
    path = kept.of(m)
    kept.edit(path, 'subject: "[[Alec]]"', "subject: [[Alec Smith]]")
    kept.sync()
    assert kept.ana.get(m.id).subject == "Alec Smith"


def test_aliases_that_cannot_be_read_stay(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("Alec is my boss", subject="Alec")
    kept.sync()
    path = kept.of(m)
    kept.edit(path, "aliases: [Alec]", "aliases:\n  - Alec\n  - [[The Boss]]\n  - Al")
    kept.sync()
    kept.ana.revise(m.id, "Alec is the boss")
    kept.sync()
    assert "The Boss" in kept.read(path)


def test_inline_tag_stays_after_a_kill_during_the_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("Alec is my boss")
    kept.sync()
    path = kept.of(m)
    kept.edit(path, "Alec is my boss", "Alec is my boss #work")
    with monkeypatch.context() as patch:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setitem(execute._HANDLERS, actions.Adopt, killed)
        with pytest.raises(KeyboardInterrupt):
            kept.sync()
    assert kept.ana.get(m.id).tags == ("work",)
    report = kept.sync()
    assert kept.ana.get(m.id).tags == ("work",) and not report.conflicts


@pytest.mark.parametrize("tag", ["a\x08b", "a\x7fb", "İ" * 60, "a\x9fb"])
def test_word_that_cannot_be_a_tag_does_not_keep_a_file_out(tmp_path: Path, tag: str) -> None:
    kept = Kept(tmp_path)
    kept.write("ana/facts/x.md", f"a text with #{tag} in it\n")
    report = kept.sync()
    assert not report.problems


# -- names of files -------------------------------------------------------------------------------


def test_file_stays_when_only_the_case_of_its_subject_changes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.ana.remember("one", subject="Alec")
    m = kept.ana.remember("two", subject="Alec")
    kept.sync()
    assert kept.of(m) == "ana/facts/alec-2.md"
    kept.ana.revise(m.id, subject="ALEC")
    kept.sync()
    assert kept.of(m) == "ana/facts/alec-2.md"


def test_file_named_after_a_subject_with_a_number_is_renamed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("one", subject="Route 66")
    kept.sync()
    kept.ana.revise(m.id, subject="Highway")
    kept.sync()
    assert kept.of(m) == "ana/facts/highway.md"


def test_name_with_a_number_that_a_person_chose_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("one", subject="Area")
    kept.sync()
    kept.move("ana/facts/area.md", "ana/facts/area-51.md")
    kept.sync()
    kept.ana.revise(m.id, subject="Desert")
    kept.sync()
    assert kept.of(m) == "ana/facts/area-51.md"


# -- odd disks ------------------------------------------------------------------------------------


def test_folder_that_cannot_be_listed_keeps_nobody_else_from_syncing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.ana.remember("x")
    kept.sync()
    (kept.root / "ana/users").symlink_to("users")
    kept.store.space("ana", user="u").remember("of u")
    kept.store.space("bob").remember("of bob")
    kept.sync()
    assert (kept.root / "bob/facts/of-bob.md").exists()


def test_file_in_place_of_a_folder_keeps_nobody_else_from_syncing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    (kept.root / "bob").write_text("a file")
    kept.store.space("bob").remember("of bob")
    kept.store.space("cat").remember("of cat")
    kept.sync()
    assert (kept.root / "cat/facts/of-cat.md").exists()


def test_purge_keeps_a_file_named_after_a_subject_that_stays(tmp_path: Path) -> None:
    from reverie.model import Origin

    kept = Kept(tmp_path, git=True)
    event = kept.ana.session("chat").append(
        {"role": "user", "content": "plugh is the secret word of the day"}
    )
    seq = getattr(event, "sequence", 1)
    m = kept.ana.remember(
        "plugh is the secret word of the day", subject="Alec", origin=Origin("chat", seq)
    )
    kept.sync()
    kept.ana.revise(m.id, "Alec likes words of all kinds")
    kept.sync()
    kept.ana.session("chat").erase()
    kept.sync()
    service.scrub(kept.store)
    tracked = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"],
        cwd=kept.root,
        capture_output=True,
        text=True,
    ).stdout
    assert "ana/facts/alec.md" in tracked


def test_user_named_like_a_former_folder_is_not_mixed_with_its_owner(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana", user="Bob").remember("of Bob", subject="Alec")
    kept.sync()
    shutil.move(kept.root / "ana/users/Bob", kept.root / "ana/users/Bob=1")
    forget_names(kept)
    kept.sync()
    kept.store.space("ana", user="Bob=1").remember("private to the other user", subject="Zed")
    kept.sync()
    said = [
        c.subject for c in scoped_history.history(kept.store.space("ana", user="Bob"), limit=50)
    ]
    kept.edit("ana/users/Bob=1-2/facts/zed.md", "private to", "PRIVATE to")
    kept.sync()
    assert not any("private" in one for one in said)
    assert not any("PRIVATE" in one for one in texts(kept, "ana", "Bob"))


@pytest.mark.parametrize("exists", [True, False])
def test_user_folder_with_an_odd_name_made_by_a_person_is_that_users(
    tmp_path: Path, exists: bool
) -> None:
    kept = Kept(tmp_path)
    kept.ana.remember("shared")
    if exists:
        kept.store.space("ana", user="x-y").remember("of x-y")
    kept.sync()
    kept.write("ana/users/x:y/facts/x.md", "mine\n")
    kept.sync()
    kept.store.space("ana", user="x:y").remember("second of x:y", subject="Zed")
    kept.sync()
    zed = next(p for p in kept.files() if p.endswith("zed.md"))
    place = kept.folders().parse(zed)
    kept.edit(zed, "second of x:y", "SECOND of x:y")
    kept.sync()
    assert place is not None and place.scope == Scope("ana", "x:y")
    assert texts(kept, "ana", "x:y") == ["SECOND of x:y", "mine", "shared"]


def test_summary_of_a_session_named_after_a_day_is_moved(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    s = kept.ana.session("2026-11-18")
    s.append({"role": "user", "content": "hello there"})
    s.write_summary("they said hello", upper=1, expected_epoch=s.summary().epoch)
    kept.sync()
    shutil.move(
        kept.root / "ana/users/unnamed/sessions/2026-01/2026-11-18",
        kept.root / "ana/users/unnamed/sessions/2026-11-18",
    )
    (kept.root / "ana/users/unnamed/sessions/2026-01").rmdir()
    forget_names(kept)
    report = kept.sync()
    assert not report.remembered
    s.erase()
    kept.sync()


def test_history_of_a_user_has_the_checkpoint_before_the_renaming(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.store.space("Ana", user="bob").remember("of bob in Ana")
    kept.sync()
    shutil.move(kept.root / "Ana", kept.root / "Ana=1")
    forget_names(kept)
    shutil.rmtree(kept.root / ".git")
    repository = Repository.at(kept.root)
    assert repository is not None
    repository.init()
    repository.checkpoint("as it was", "me")
    kept.sync()
    said = [c.subject for c in service.history(kept.store.space("Ana", user="bob"), limit=50)]
    [c.subject for c in service.history(kept.store.space("Ana"), limit=50)]
    assert "checkpoint: as it was" in said


def test_edit_without_front_matter_is_kept_when_names_are_learned(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.ana.remember("Alec is my boss", subject="Alec")
    kept.ana.remember("other")
    kept.sync()
    kept.write("ana/facts/alec.md", "Alec is my former boss\n")
    forget_names(kept, cache=False)
    kept.sync()
    assert texts(kept, "ana") == ["Alec is my former boss", "other"]


def test_deletion_right_before_names_are_learned_is_noticed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("Alec is my boss", subject="Alec")
    kept.ana.remember("other")
    kept.sync()
    kept.path("ana/facts/alec.md").unlink()
    forget_names(kept, cache=False)
    kept.sync()
    assert kept.ana.get(m.id).forgotten_at is not None


def test_origin_of_a_session_with_a_hash_sign_is_read_back(tmp_path: Path) -> None:
    from reverie.model import Origin

    kept = Kept(tmp_path)
    kept.ana.session("chat #1").append({"role": "user", "content": "I live in Rome"})
    m = kept.ana.remember("lives in Rome", origin=Origin("chat #1", 1))
    kept.sync()
    from reverie.vault import markdown_log

    assert markdown_log._origin(Scope("ana"), kept.document(kept.of(m)), kept.folders()) == (
        "chat #1",
        1,
    )


def test_persons_folder_with_an_odd_name_is_not_renamed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.write("What next?/photo.txt", "x")
    kept.write("What next?/list.md", "a list of things\n")
    forget_names(kept)
    kept.sync()
    assert kept.path("What next?/photo.txt").exists()


@pytest.mark.parametrize(("other", "me"), [("x-y", "x:y"), ("bob", "bob."), ("bob", " bob")])
def test_user_without_a_folder_sees_no_diff_of_another(tmp_path: Path, other: str, me: str) -> None:
    kept = Kept(tmp_path, git=True)
    kept.ana.remember("shared")
    kept.sync()
    kept.store.space("ana", user=other).remember("private to the other user")
    kept.sync()
    mine = kept.store.space("ana", user=me)
    said = scoped_history.diff(mine, since="HEAD~1")
    assert "private" not in said


def test_space_without_a_folder_sees_no_diff_of_another(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana").remember("of ana")
    kept.sync()
    kept.store.space("bob").remember("private to the other space")
    kept.sync()
    assert "private" not in scoped_history.diff(kept.store.space("bob."), since="HEAD~1")
    assert not scoped_history.history(kept.store.space("bob."))


def test_scrub_finds_nothing_in_a_longer_name_of_another_memory(tmp_path: Path) -> None:
    kept = Kept(tmp_path, git=True)
    m = kept.ana.remember("pizza with friends")
    kept.ana.remember("Not: pizza, with: friends")
    kept.sync()
    kept.ana.erase(m.id)
    kept.sync()
    done = service.scrub(kept.store)
    assert done.found == ()


def test_later_summary_of_a_session_named_after_a_day_is_a_summary(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    s = kept.ana.session("2026-11-18")
    s.append({"role": "user", "content": "hello there"})
    kept.sync()
    shutil.move(
        kept.root / "ana/users/unnamed/sessions/2026-01/2026-11-18",
        kept.root / "ana/users/unnamed/sessions/2026-11-18",
    )
    (kept.root / "ana/users/unnamed/sessions/2026-01").rmdir()
    forget_names(kept)
    kept.sync()
    s.write_summary("they said hello", upper=1, expected_epoch=s.summary().epoch)
    kept.sync()
    kept.mirror()
    path = next((p for p in kept.files() if p.endswith("summary.md")), None)
    assert path is not None
    place = kept.folders().parse(path)
    assert place is not None and (place.what, place.session) == ("summary", "2026-11-18")


@pytest.mark.parametrize(
    "name",
    [
        "deleted",
        "users",
        "sessions",
        "facts",
        "2026-11",
        ".",
        "..",
        "a. ",
        "MEMORY.md",
        "con",
        ".git",
        "x" * 200,
        "ana\u200b",
        "e\u0301",
        "é",
        "É",
        "-",
        "Ⅸ",
        "ß",
        "ss",
        "turns",
        "summaries",
    ],
)
@pytest.mark.sample(4)
def test_odd_names_survive_a_lost_cache_and_lost_names(tmp_path: Path, name: str) -> None:
    kept = Kept(tmp_path)
    try:
        for space, user in ((name, None), ("ana", name), (name, name), ("ana", "u")):
            h = kept.store.space(space, user=user)
            h.remember(f"of {space[:9]} {user and user[:9]}", subject="Alec")
            h.forget(h.remember("gone").id)
            s = h.session(name)
            s.append({"role": "user", "content": "hi"})
            s.space.remember("in session")
            h.session("chat").append({"role": "user", "content": "hi"})
            h.session("chat").hide()
    except InvalidInput as error:
        pytest.skip(str(error))
    report = kept.sync()
    assert not report, report
    assert_equal(kept)
    for each in ("files.db", "files.db-wal", "files.db-shm"):
        (kept.root / ".reverie" / each).unlink(missing_ok=True)
    report = kept.sync()
    assert not report, report
    assert_equal(kept)
    forget_names(kept)
    report = kept.sync()
    assert not report, report
    assert_equal(kept)


def test_agent_tool_shows_no_diff_of_another_user(tmp_path: Path) -> None:
    from reverie.vault.tools import memory_history

    kept = Kept(tmp_path, git=True)
    kept.ana.remember("shared")
    kept.store.space("ana", user="bob").remember("first of bob")
    kept.sync()
    kept.store.space("ana", user="bob").remember("private to the other user")
    kept.sync()
    said = memory_history(kept.store.space("ana", user="bob."), diff=True)
    assert "private" not in said


def test_erasure_after_a_killed_renaming_leaves_no_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("plugh is the secret word")
    kept.ana.remember("other")
    kept.sync()
    forget_names(kept, cache=False)
    with monkeypatch.context() as patch:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("reverie.vault.collect.Collector.snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.sync()
    kept.ana.erase(m.id)
    kept.mirror()
    kept.sync()
    hits = [p for p, b in kept.bytes().items() if b"plugh" in b]
    assert not hits


def test_revision_after_a_killed_renaming_has_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    m = kept.ana.remember("Alec is my boss", subject="Alec")
    kept.sync()
    forget_names(kept, cache=False)
    with monkeypatch.context() as patch:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("reverie.vault.collect.Collector.snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.sync()
    kept.ana.revise(m.id, "Alec was my boss")
    kept.mirror()
    kept.sync()
    assert_equal(kept)


def test_erased_session_is_not_recorded_in_another_month(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    s = kept.ana.session("my/chat")
    s.append({"role": "user", "content": "hello there"})
    kept.sync()
    kept.clock.step(70 * 86_400_000)
    s.append({"role": "user", "content": "hello again"})
    kept.sync()
    s.erase()
    kept.sync()
    sessions = [path for path in recorded(kept)["folders"] if "/sessions/" in path]
    assert len(sessions) <= 1


def test_renaming_keeps_a_space_apart_from_one_named_like_its_former_folder(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for name in ("a b", "a%20b"):
        kept.store.space(name).remember(f"private to {name}")
    kept.sync()
    shutil.move(kept.root / "a%20b", kept.root / "a%2520b")
    shutil.move(kept.root / "a b", kept.root / "a%20b")
    forget_names(kept)
    kept.sync()
    assert texts(kept, "a b") == ["private to a b"]
    assert_equal(kept)


@pytest.mark.parametrize("answer", ["ask", "restore", "forget"])
def test_held_deletions_stay_held_during_the_renaming(
    tmp_path: Path, answer: MissingAction
) -> None:
    kept = Kept(tmp_path)
    for i in range(6):
        kept.ana.remember(f"fact number {i}")
    kept.sync()
    for i in range(5):
        kept.path(f"ana/facts/fact-number-{i}.md").unlink()
    kept.sync()
    forget_names(kept, cache=False)
    kept.sync(missing=answer)
    assert len(list(kept.ana.memories())) == (6 if answer != "forget" else 1)


def test_memories_fan_out_and_keep_their_folders(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for i in range(270):
        kept.ana.remember(f"fact number {i}", subject="S")
    kept.sync()
    was = next(path for path in kept.files() if "/2026-01/" in path)
    late = kept.ana.get(kept.document(was).text("id") or "")
    kept.ana.forget(late.id)
    kept.sync()
    assert kept.of(late) == was.replace("ana/", "ana/deleted/")
    kept.ana.restore(late.id)
    kept.sync()
    assert kept.of(late) == was
    kept.ana.revise(late.id, subject="Other")
    kept.sync()
    assert kept.of(late).startswith("ana/facts/2026-01/")
    assert_equal(kept)
