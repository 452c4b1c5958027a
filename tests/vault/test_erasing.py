"""What was erased is nowhere: not in the files, not in git, not in names or messages."""

from __future__ import annotations

from pathlib import Path

import pytest

import reverie
from reverie import Space, Store
from reverie.vault import operations
from reverie.vault.git import Repository
from reverie.vault.searching import holds

SECRET = "the combination of the blue suitcase is seven nine three"
KEPT = "the green suitcase has no lock whatsoever"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return reverie.open(tmp_path / "s.db", settings=reverie.Settings(learn="off"))


@pytest.fixture
def ana(store: Store, tmp_path: Path) -> Space:
    operations.init(store, tmp_path / "vault")
    return store.space("ana")


def places(root: Path, text: str) -> list[str]:
    """Everywhere below a folder, git's objects included."""
    needle = text.encode()
    files = [path for path in root.rglob("*") if path.is_file()]
    found = [str(path.relative_to(root)) for path in files if needle in path.read_bytes()]
    repository = Repository.at(root)
    assert repository is not None
    return found + holds(repository, needle)


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


def test_a_memory_is_nowhere_after_a_scrub(store: Store, ana: Space, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    other = ana.remember(KEPT)
    secret = ana.remember("soon to be revised")
    operations.sync(store)
    ana.revise(secret.id, SECRET)
    operations.sync(store)
    ana.revise(other.id, KEPT + " at all")
    operations.sync(store)
    assert places(root, SECRET) and words(root, "combination")
    ana.erase(secret.id)
    operations.sync(store)
    assert places(root, SECRET)  # git remembers
    done = operations.scrub(store)
    assert done.found == () and done.texts >= 1 and done.commits
    assert not places(root, SECRET) and not places(root, "soon to be revised")
    assert not words(root, "combination") and not words(root, "soon-to-be")
    assert words(root, secret.id)  # that there was something is still told
    assert places(root, KEPT)
    assert operations.scrub(store).commits == 0
    assert not operations.sync(store)


@pytest.mark.parametrize("space", ["ana", "a name as long as names of spaces may be " * 3])
def test_a_long_text_is_in_no_message(store: Store, ana: Space, tmp_path: Path, space: str) -> None:
    long = SECRET + ", as is known to nobody but my aunt who lives in the house by the sea"
    secret = store.space(space.strip()).remember(long, subject="blue")
    operations.sync(store)
    subject = words(tmp_path / "vault", "combination")[0]
    assert len(subject) <= 100 and subject.endswith(f"… (remember {secret.id})")
    store.space(space.strip()).erase(secret.id)
    assert operations.scrub(store).found == ()
    assert not words(tmp_path / "vault", "combination")


def test_a_renamed_file_is_found_as_well(store: Store, ana: Space, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    secret = ana.remember(SECRET)
    operations.sync(store)
    file = operations.file_of(ana, secret.id)
    assert file is not None
    (root / "ana" / "private").mkdir()
    file.rename(root / "ana" / "private" / "suitcase.md")
    operations.sync(store)
    assert operations.file_of(ana, secret.id) == root / "ana" / "private" / "suitcase.md"
    ana.erase(secret.id)
    assert operations.scrub(store).found == ()
    assert not places(root, SECRET)


def test_what_was_said_is_nowhere(store: Store, ana: Space, tmp_path: Path) -> None:
    root = tmp_path / "vault"
    session = ana.session("chat")
    session.append({"role": "user", "content": "hello there"})
    session.append({"role": "user", "content": SECRET})
    session.append({"role": "user", "content": KEPT})
    operations.sync(store)
    session.erase_event(2)
    assert operations.scrub(store).found == ()
    assert not places(root, SECRET) and places(root, KEPT) and places(root, "hello there")
    session.erase()
    assert operations.scrub(store).found == ()
    assert not places(root, KEPT) and not places(root, "hello there")


def test_without_anything_erased_nothing_is_rewritten(store: Store, ana: Space) -> None:
    ana.remember(KEPT)
    operations.sync(store)
    assert operations.scrub(store).commits == 0
