"""After a purge nothing erased is left: not in files, git objects, names or commit messages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import reverie
from reverie import Space, Store
from reverie.vault import service
from reverie.vault.git.repo import Repository
from reverie.vault.git.search import find_bytes, find_in_other_trees
from tests.vault.repositories import by_hand, files, made, status, write
from tests.vault.vaults import Kept, holding

SECRET = "the combination of the blue suitcase is seven nine three"
KEPT = "the green suitcase has no lock whatsoever"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return reverie.open(tmp_path / "s.db", settings=reverie.Settings(learn="off"))


@pytest.fixture
def ana(store: Store, tmp_path: Path) -> Space:
    service.init(store, tmp_path / "vault")
    return store.space("ana")


def places(root: Path, text: str) -> list[str]:
    """Everywhere below a folder, git's objects included."""
    needle = text.encode()
    files = [path for path in root.rglob("*") if path.is_file()]
    found = [str(path.relative_to(root)) for path in files if needle in path.read_bytes()]
    repository = Repository.at(root)
    assert repository is not None
    return found + find_bytes(repository, needle)


def words(root: Path, word: str) -> list[str]:
    """Paths and messages of all commits that hold a word."""
    repository = Repository.at(root)
    assert repository is not None
    commits = repository.log(limit=1000)
    return [
        text
        for commit in commits
        for text in (commit.subject, commit.body, *commit.paths)
        if word in text
    ]


def test_purge_removes_an_erased_memory_from_history(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    other = ana.remember(KEPT)
    secret = ana.remember("soon to be revised")
    service.sync(store)
    ana.revise(secret.id, SECRET)
    service.sync(store)
    ana.revise(other.id, KEPT + " at all")
    service.sync(store)
    assert places(root, SECRET) and words(root, "combination")
    ana.erase(secret.id)
    service.sync(store)
    assert places(root, SECRET)  # git remembers
    done = service.scrub(store)
    assert done.found == () and done.texts >= 1 and done.commits
    assert not places(root, SECRET) and not places(root, "soon to be revised")
    assert not words(root, "combination") and not words(root, "soon-to-be")
    assert words(root, secret.id)  # that there was something is still told
    assert places(root, KEPT)
    assert service.scrub(store).commits == 0
    assert not service.sync(store)


@pytest.mark.parametrize("space", ["ana", "a name as long as names of spaces may be " * 3])
def test_purge_removes_a_long_text_from_commit_messages(
    store: Store, ana: Space, tmp_path: Path, space: str
) -> None:
    long = SECRET + ", as is known to nobody but my aunt who lives in the house by the sea"
    secret = store.space(space.strip()).remember(long, subject="blue")
    service.sync(store)
    subject = words(tmp_path / "vault", "combination")[0]
    assert len(subject) <= 100 and subject.endswith(f"… (remember {secret.id})")
    store.space(space.strip()).erase(secret.id)
    assert service.scrub(store).found == ()
    assert not words(tmp_path / "vault", "combination")


def test_purge_finds_an_erased_memory_in_a_renamed_file(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    secret = ana.remember(SECRET)
    service.sync(store)
    file = service.find_memory_file(ana, secret.id)
    assert file is not None
    (root / "ana" / "private").mkdir()
    file.rename(root / "ana" / "private" / "suitcase.md")
    service.sync(store)
    assert service.find_memory_file(ana, secret.id) == root / "ana" / "private" / "suitcase.md"
    ana.erase(secret.id)
    assert service.scrub(store).found == ()
    assert not places(root, SECRET)


def test_purge_removes_erased_events_from_history(store: Store, ana: Space, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    session = ana.session("chat")
    session.append({"role": "user", "content": "hello there"})
    session.append({"role": "user", "content": SECRET})
    session.append({"role": "user", "content": KEPT})
    service.sync(store)
    session.erase_event(2)
    assert service.scrub(store).found == ()
    assert not places(root, SECRET) and places(root, KEPT) and places(root, "hello there")
    session.erase()
    assert service.scrub(store).found == ()
    assert not places(root, KEPT) and not places(root, "hello there")


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def summarise(session: reverie.Session, text: str) -> None:
    session.write_summary(text, upper=3, expected_epoch=session.summary().epoch)


@pytest.mark.parametrize("turns", ["together", "apart"])
def test_purge_removes_an_erased_event_from_edited_files(
    store: Store, tmp_path: Path, turns: str
) -> None:
    root = tmp_path / "vault"
    service.init(store, root, turns=turns)
    session = store.space("ana").session("chat")
    for text in ("hello there, it is me", SECRET, KEPT):
        session.append(user_message(text))
    summarise(session, "the suitcase opens with 793")
    service.sync(store)
    for file in [*root.glob("ana/users/unnamed/sessions/*/chat/**/*.md")]:
        file.write_bytes(file.read_bytes() + b"my own words\n")
    assert service.sync(store).conflicts
    session.erase_event(2)
    service.sync(store)
    summarise(session, "they said hello")
    service.sync(store)
    done = service.scrub(store)
    assert done.found == () and done.texts
    assert not places(root, SECRET) and not places(root, "opens with 793")
    assert places(root, KEPT) and places(root, "hello there, it") and places(root, "said hello")
    assert status(root) == [] and service.scrub(store).commits == 0


def test_purge_keeps_a_session_that_was_used_again(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    ana.session("chat").append(user_message(SECRET))
    service.sync(store)
    ana.session("chat").erase()
    ana.session("chat").append(user_message(KEPT))
    service.sync(store)
    before = files(root)
    done = service.scrub(store)
    assert done.found == () and done.commits
    assert files(root) == before and status(root) == []
    assert not places(root, SECRET)


def test_purge_removes_words_of_an_erased_session_from_earlier_versions(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    ana.session("chat").append(user_message("the suitcase opens with 793"))
    memory = ana.remember(SECRET, origin=reverie.Origin("chat", 1))
    service.sync(store)
    ana.revise(memory.id, KEPT)
    service.sync(store)
    ana.session("chat").erase_event(1)
    done = service.scrub(store)
    assert done.found == () and done.texts == 2
    assert not places(root, SECRET) and not words(root, "combination")
    assert places(root, KEPT) and words(root, f"{KEPT} (revise {memory.id})")
    assert status(root) == [] and service.scrub(store).commits == 0


@pytest.mark.parametrize("path", ["ana/facts/mine.md", "ana/mine.md"])
def test_purge_finds_a_file_committed_before_it_had_an_id(
    store: Store, ana: Space, tmp_path: Path, path: str
) -> None:
    root = tmp_path / "vault"
    ana.remember(KEPT)
    service.sync(store)
    for text in (f"{SECRET}, as I said first\n", f"{SECRET}\n"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
        service.checkpoint(store, "mine")
    service.sync(store)
    (memory,) = (each for each in ana.memories() if SECRET in each.content)
    ana.erase(memory.id)
    assert service.scrub(store).found == ()
    assert not places(root, SECRET) and places(root, KEPT)


@pytest.mark.parametrize("half", [False, True])
def test_purge_removes_erased_text_from_damaged_log_lines(
    store: Store, ana: Space, tmp_path: Path, half: bool
) -> None:
    root = tmp_path / "vault"
    secret, kept = ana.remember(SECRET), ana.remember(KEPT)
    service.sync(store)
    lines = (root / ".reverie/log.jsonl").read_bytes().splitlines()
    aside = root / ".reverie/damaged.jsonl"
    aside.write_bytes(b"".join((line[:-20] if half else line) + b"\n" for line in lines))
    service.checkpoint(store, "aside")
    ana.erase(secret.id)
    service.sync(store)
    assert aside.read_bytes().count(b"\n") == 1 and kept.id.encode() in aside.read_bytes()
    assert service.scrub(store).found == ()
    assert not places(root, SECRET)


def test_purge_keeps_other_memories_with_the_same_text(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    secret, other = ana.remember(SECRET), ana.remember_separately(SECRET, key=None)
    own = store.space("bob").remember(SECRET)
    service.sync(store)
    paths = {id: service.find_memory_file(space, id) for space, id in (
        (ana, secret.id), (ana, other.id), (store.space("bob"), own.id)
    )}  # fmt: skip
    ana.erase(secret.id)
    done = service.scrub(store)
    assert {path for path in done.found if path.endswith(".md")} >= {"bob/MEMORY.md"}
    assert [id for id, path in paths.items() if path and path.exists()] == [other.id, own.id]
    index = by_hand(root, "show", "HEAD~1:ana/MEMORY.md").decode()
    linked = {id: path is not None and f"facts/{path.name})" in index for id, path in paths.items()}
    assert linked == {secret.id: False, other.id: True, own.id: False}


def test_purge_finds_json_escaped_copies_of_an_erased_text(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    text = '"a"\n"b"\n"c"\n"d"\n"e"\n"f"\n"g"\n"h"\n"i"\n"j"\n"k"\n"l"\n"m"\n'
    secret = ana.remember(text)
    service.sync(store)
    (root / "copy.txt").write_text(json.dumps(text))
    ana.erase(secret.id)
    assert service.scrub(store).found == ("copy.txt",)


def test_purge_names_the_files_of_other_work_trees(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root, second, gone = tmp_path / "vault", tmp_path / "second", tmp_path / "gone"
    secret = ana.remember(SECRET)
    service.sync(store)
    for tree in (second, gone):
        by_hand(root, "worktree", "add", "-q", "--detach", str(tree))
    shutil.rmtree(gone)
    every = [path for path in second.rglob("*") if path.is_file()]
    shown = {str(path) for path in every if SECRET in path.read_text("utf-8")}
    assert len(shown) == 3
    ana.erase(secret.id)
    assert {place.removesuffix(": its name") for place in service.scrub(store).found} == shown


def test_main_work_tree_of_a_linked_one_is_searched(tmp_path: Path) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    made(main)
    write(main, "a.md", SECRET)
    by_hand(main, "worktree", "add", "-q", "--detach", str(linked))
    repository = Repository.at(linked)
    assert repository is not None
    assert find_in_other_trees(repository, [SECRET.encode()]) == [str(main / "a.md")]


def test_purge_handles_lone_surrogates_and_short_texts(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    ana.session("chat").append(user_message(f"{SECRET} \ud83d and on"))
    ana.session("chat").append(user_message("a pin: 4711"))
    service.sync(store)
    ana.session("chat").erase()
    done = service.scrub(store)
    assert (done.texts, done.short, done.found) == (1, 1, ())
    assert not places(tmp_path / "vault", SECRET)


def test_purge_without_erasures_rewrites_nothing(store: Store, ana: Space) -> None:
    ana.remember(KEPT)
    service.sync(store)
    assert service.scrub(store).commits == 0


def test_purge_removes_erased_text_of_a_space_no_longer_mirrored(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    secret = ana.remember(SECRET)
    store.space("eve").remember(KEPT)
    service.sync(store)
    service.init(store, root, spaces=["eve"])
    ana.erase(secret.id)
    assert service.scrub(store).found == ()
    assert places(root, "blue suitcase") == []
    assert words(root, "suitcase-is") == words(root, "blue") == []


def test_purge_removes_a_memory_that_was_restored_and_erased(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    secret = ana.remember(SECRET)
    ana.forget(secret.id)
    ana.restore(secret.id)
    service.sync(store)
    ana.erase(secret.id)
    assert service.scrub(store).found == ()
    assert places(tmp_path / "vault", "blue suitcase") == []


@pytest.mark.parametrize("name", ["memory", "session", "uuid", "sequence", "origin"])
@pytest.mark.parametrize("file", ["damaged.jsonl", "log.jsonl"])
def test_erase_works_beside_log_lines_with_an_invalid_name(
    kept: Kept, name: str, file: str
) -> None:
    secret = kept.ana.remember(SECRET)
    kept.ana.remember(KEPT)
    kept.sync()
    path = kept.path(f".reverie/{file}")
    line = {"space": "ana", "user": None, "position": 1, "op": "append", "session": "s"}
    damaged = {**line, "sequence": 1, "uuid": "u", name: [["x"]], "body": None}
    before = path.read_bytes() if path.exists() else b""
    path.write_bytes(before + json.dumps(damaged).encode() + b"\n")
    kept.ana.erase(secret.id)
    kept.sync()
    assert not holding(kept, b"suitcase is seven")


def test_erase_cleans_a_copy_of_an_edited_index_on_disk(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    secret = ana.remember(SECRET)
    ana.remember(KEPT)
    service.sync(store)
    index, copy = root / "ana" / "MEMORY.md", root / "ana" / "MEMORY.conflict-v0.md"
    lines = index.read_text(encoding="utf-8").splitlines(keepends=True)
    edited = [
        line.replace("\n", " (ask my aunt)\n") if "combination" in line else line for line in lines
    ]
    index.write_text("".join(edited) + "Water the plants.\n", encoding="utf-8")
    service.sync(store)
    with copy.open("a", encoding="utf-8") as file:
        file.write("Added to the copy later.\n")
    ana.erase(secret.id)
    service.sync(store)
    left = copy.read_text(encoding="utf-8")
    assert SECRET not in left and KEPT in left
    for own in ("- (ask my aunt)\n", "Water the plants.\n", "Added to the copy later.\n"):
        assert own in left
    assert service.scrub(store).found == ()
    assert copy.read_text(encoding="utf-8") == left and not places(root, SECRET)
    assert status(root) == [] and not service.sync(store)


def test_erase_cleans_a_copy_of_edited_turns_and_keeps_the_rest(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    session = ana.session("chat")
    for text in ("hello there", SECRET, KEPT):
        session.append({"role": "user", "content": text})
    service.sync(store)
    turns = next(root.glob("ana/users/unnamed/sessions/*/chat/turns.md"))
    turns.write_bytes(turns.read_bytes() + b"\nWater the plants.\n")
    service.sync(store)
    copy = next(turns.parent.glob("turns.conflict-v*.md"))
    session.erase_event(2)
    service.sync(store)
    left = copy.read_text(encoding="utf-8")
    assert SECRET not in left and KEPT in left and "Water the plants." in left
    assert places(root, SECRET)
    assert service.scrub(store).found == ()
    assert copy.read_text(encoding="utf-8") == left and not places(root, SECRET)
    session.erase()
    assert service.scrub(store).found == ()
    assert not copy.exists() and not places(root, "Water the plants.")


def test_purge_cleans_copies_of_a_space_that_is_no_longer_shown(
    store: Store, ana: Space, tmp_path: Path
) -> None:
    root = tmp_path / "vault"
    secret = ana.remember(SECRET)
    ana.remember(KEPT)
    service.sync(store)
    index = root / "ana" / "MEMORY.md"
    index.write_bytes(index.read_bytes() + b"\nWater the plants.\n")
    service.sync(store)
    service.init(store, root, spaces=("other",))
    ana.erase(secret.id)
    assert service.scrub(store).found == ()
    left = (root / "ana" / "MEMORY.conflict-v0.md").read_text(encoding="utf-8")
    assert "Water the plants." in left and KEPT in left and not places(root, SECRET)
