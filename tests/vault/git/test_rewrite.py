"""History without what was erased: everything else as it was, and nothing left to be found."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import VaultError
from reverie.vault.git import rewrite as git_rewrite
from reverie.vault.git.objects import CommitOrTag, object_id, person
from reverie.vault.git.process import STALE_LOCK_SECONDS, Git
from reverie.vault.git.repo import Repository
from reverie.vault.git.rewrite import RewriteReport, rewrite
from reverie.vault.git.search import find_bytes, find_files_with
from tests.conftest import PROVE
from tests.vault.repositories import by_hand, files, made, status, write

SECRET = b"the-launch-code-is-0451"
BLANK = b"[erased]"
# Of the calls of git between which it is killed.
EACH_CALL = 1 if PROVE else 3
WHO = "--format=%an %ae %at %cn %ce %ct %ai %ci"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def repo(root: Path) -> Repository:
    return made(root)


def without(path: str, content: bytes) -> bytes | None:
    if SECRET in os.fsencode(path):
        return None
    return content.replace(SECRET, BLANK)


def without_secret(text: str) -> str:
    return text.replace(SECRET.decode(), BLANK.decode())


def erase(repo: Repository) -> RewriteReport:
    return rewrite(repo, change_blob=without, change_message=without_secret)


def commit(root: Path, message: str, *, day: int = 1) -> str:
    """By a person, as the work tree is."""
    by_hand(root, "add", "-A")
    when = f"2026-01-{day:02}T12:00:00 +0130"
    by_hand(
        root,
        *(
            "commit",
            "-q",
            "--allow-empty",
            "--allow-empty-message",
            "--cleanup=verbatim",
            "-F",
            "-",
        ),
        given=message.encode(),
        GIT_AUTHOR_DATE=when,
        GIT_COMMITTER_DATE=when,
    )
    return by_hand(root, "rev-parse", "HEAD").decode().strip()


def everything(root: Path, *refs: str) -> list[object]:
    """Of each commit: who, when, its message and all files, as they should be afterwards."""
    found: list[object] = []
    for one in by_hand(root, "rev-list", "--topo-order", *refs).decode().split():
        kept = {
            name: (mode, new)
            for name, (mode, content) in files(root, one).items()
            if (new := without(name, content)) is not None
        }
        message = by_hand(root, "log", "-1", "--format=%B", one).replace(SECRET, BLANK)
        found.append((by_hand(root, "log", "-1", WHO, one), message, kept))
    return found


def disk(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }


def rich(root: Path) -> None:
    """A history with all that a history can have."""
    for name in ("plain.md", "-dash.md", 'qu"ote.md', "new\nline.md", "ünï/日本.md", "tab\t/x"):
        write(root, name, f"content of {name!r}\n")
    commit(root, "names\n\nSigned-off-by: Pat <pat@example.org>\n", day=1)
    write(root, "notes/a.md", b"before " + SECRET + b" behind\n")
    write(root, "binary", bytes(range(256)) + SECRET + bytes(range(256)))
    write(root, "run.sh", b"#!/bin/sh\n# " + SECRET + b"\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("plain.md")
    (root / "bad link").symlink_to(os.fsdecode(SECRET))
    commit(root, f"holds {SECRET.decode()}\n\nbody {SECRET.decode()}\n# kept\n\n\n", day=2)
    by_hand(root, "tag", "light")
    by_hand(root, "tag", "-a", "-m", f"tagged {SECRET.decode()}", "heavy")
    by_hand(root, "tag", "-a", "-m", "a tag of a tag", "heavier", "heavy")
    by_hand(root, "tag", "a-tree", "HEAD^{tree}")
    by_hand(root, "tag", "-a", "-m", "of a file", "a-file", "HEAD:notes/a.md")
    by_hand(root, "checkout", "-qb", "side")
    (root / "notes/a.md").rename(root / "notes/renamed.md")
    write(root, f"only/{SECRET.decode()}.md", "its path tells\n")
    commit(root, "renamed\n", day=3)
    by_hand(root, "checkout", "-q", "main")
    write(root, "notes/b.md", "b\n")
    commit(root, "", day=4)
    by_hand(root, "merge", "-q", "--no-edit", "side", GIT_COMMITTER_DATE="@1 +0000")
    by_hand(root, "notes", "add", "-m", f"a note {SECRET.decode()}", "HEAD")
    by_hand(root, "notes", "add", "-m", "harmless", "HEAD~1")
    for number in range(3):
        write(root, "plain.md", SECRET + b" stashed %d" % number)
        by_hand(root, "stash", "push", "-q", "-m", f"stash {number} {SECRET.decode()}")
    (root / "bad link").unlink()
    write(root, "notes/renamed.md", "clean now\n")
    (root / "only" / f"{SECRET.decode()}.md").unlink()
    write(root, "binary", "clean\n")
    write(root, "run.sh", "clean\n")
    commit(root, "cleaned\n", day=5)
    commit(root, "an empty one\n", day=6)


def test_rewrite_of_a_history_with_branches_tags_and_stashes_keeps_the_rest(
    root: Path, repo: Repository
) -> None:
    rich(root)
    refs = ("--branches", "--tags=light")
    before, on_disk = everything(root, *refs), disk(root)
    stashes = [everything(root, f"stash@{{{number}}}") for number in range(3)]
    names = by_hand(root, "for-each-ref", "--format=%(refname) %(objecttype) %(*objecttype)")
    first = by_hand(root, "rev-parse", ":/names").strip()
    assert find_bytes(repo, SECRET)

    done = erase(repo)

    assert find_bytes(repo, SECRET) == []
    assert everything(root, *refs) == before
    assert disk(root) == on_disk and status(root) == []
    assert (
        by_hand(root, "for-each-ref", "--format=%(refname) %(objecttype) %(*objecttype)") == names
    )
    assert by_hand(root, "rev-parse", ":/names").strip() == first, "what holds nothing keeps its id"
    assert [everything(root, f"stash@{{{number}}}") for number in range(3)] == stashes
    assert by_hand(root, "stash", "list", "--format=%gs").decode().splitlines() == [
        f"On main: stash {number} [erased]" for number in (2, 1, 0)
    ]
    assert by_hand(root, "notes", "show", "HEAD~2") == b"a note [erased]\n"
    assert by_hand(root, "notes", "show", "HEAD~3") == b"harmless\n"
    assert by_hand(root, "cat-file", "-p", "a-file^{}") == b"before [erased] behind\n"
    assert b"tagged [erased]" in by_hand(root, "cat-file", "-p", "heavy")
    assert done.commits and done.files and done.messages and done.refs
    by_hand(root, "fsck", "--strict", "--no-dangling")
    by_hand(root, "stash", "pop", "-q")
    assert (root / "plain.md").read_bytes() == b"[erased] stashed 2"
    by_hand(root, "reset", "-q", "--hard")
    assert repo.commit([write(root, "after")], "m", author="ana") is not None


def test_rewrite_removes_folders_that_hold_only_erased_files(root: Path, repo: Repository) -> None:
    for name in (".gitignore", ".gitattributes"):
        (root / name).unlink(missing_ok=True)
    for number in range(50):
        write(root, f"{number:02}.md", "kept\n")
    write(root, f"{SECRET.decode()}.md", "its name tells\n")
    commit(root, "first")
    for number in range(50):
        (root / f"{number:02}.md").unlink()
    commit(root, "only the erased")
    erase(repo)
    assert by_hand(root, "ls-tree", "--name-only", "HEAD") == b""
    assert len(by_hand(root, "ls-tree", "--name-only", "HEAD~1").split()) == 50
    assert find_bytes(repo, SECRET) == []
    by_hand(root, "fsck", "--strict")


def test_repeated_rewrite_changes_nothing(root: Path, repo: Repository) -> None:
    rich(root)
    erase(repo)
    before = by_hand(root, "for-each-ref")
    assert erase(repo) == RewriteReport(0, 0, 0, 0)
    assert by_hand(root, "for-each-ref") == before
    assert len(by_hand(root, "stash", "list").splitlines()) == 3


def test_rewrite_reads_each_blob_once_for_each_path(root: Path, repo: Repository) -> None:
    rich(root)
    write(root, "twice/one.md", "same\n")
    write(root, "twice/two.md", "same\n")
    commit(root, "twice")
    write(root, "twice/one.md", "other\n")
    commit(root, "other")
    write(root, "twice/one.md", "same\n")
    commit(root, "same again")
    asked: Counter[tuple[str, bytes]] = Counter()

    def noted(path: str, content: bytes) -> bytes:
        asked[path, content] += 1
        return content

    before = by_hand(root, "for-each-ref")
    done = rewrite(repo, change_blob=noted, change_message=lambda text: text)
    assert done == RewriteReport(0, 0, 0, 0)
    assert by_hand(root, "for-each-ref") == before
    assert set(asked.values()) == {1}
    assert {("twice/one.md", b"same\n"), ("twice/two.md", b"same\n")} <= set(asked)
    assert {path for path, _ in asked} >= {"-dash.md", "new\nline.md", "tab\t/x", "link"}


def test_rewrite_cleans_staged_files_and_keeps_them_staged(root: Path, repo: Repository) -> None:
    write(root, "a.md", b"old " + SECRET)
    commit(root, "a")
    write(root, "a.md", b"staged " + SECRET)
    write(root, f"{SECRET.decode()}.md", "x")
    write(root, "other.md", "x")
    by_hand(root, "add", "-A")
    write(root, "a.md", b"on disk")
    (root / f"{SECRET.decode()}.md").unlink()
    erase(repo)
    assert by_hand(root, "show", ":a.md") == b"staged [erased]"
    assert status(root) == ["MM a.md", "A  other.md"]
    assert find_bytes(repo, SECRET) == []


def test_rewrite_keeps_a_sparse_checkout(root: Path, repo: Repository) -> None:
    write(root, "here.md", "x")
    write(root, "away/a.md", SECRET)
    write(root, f"away/{SECRET.decode()}.md", "its name tells")
    commit(root, "a")
    by_hand(root, "sparse-checkout", "set", "--no-cone", "/here.md", "/.git*")
    erase(repo)
    assert status(root) == [] and files(root)["away/a.md"][1] == BLANK
    assert repo.checkpoint("nothing is new", "ana") is None
    assert find_bytes(repo, SECRET) == []


def test_search_reads_an_index_with_compressed_names(root: Path, repo: Repository) -> None:
    write(root, f"{SECRET.decode()[:-1]}a", "x")
    write(root, SECRET.decode(), "x")
    by_hand(root, "update-index", "--index-version", "4")
    by_hand(root, "add", "-A")
    assert "index: the name of a file" in find_bytes(repo, SECRET)


def test_rewrite_removes_unreachable_objects(root: Path, repo: Repository) -> None:
    write(root, "a.md", b"lost " + SECRET)
    commit(root, "lost")
    by_hand(root, "reset", "-q", "--hard", "HEAD~1")
    by_hand(root, "hash-object", "-w", "--stdin", given=b"dangling " + SECRET)
    by_hand(root, "gc", "-q", "--prune=never")
    for path in (root / ".git/objects/pack").glob("*.pack"):
        path.with_suffix(".keep").touch()
    by_hand(root, "commit-graph", "write", "--reachable")
    by_hand(root, "multi-pack-index", "write")
    for name in ("ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "SQUASH_MSG", "rr-cache/1/preimage"):
        write(root / ".git", name, SECRET)
    write(root / ".git", "lost-found/other/x", SECRET)
    write(root / ".git", "fast_import_crash_1", SECRET)
    write(root / ".git", "objects/ab/tmp_obj_x", zlib.compress(b"blob 5\0" + SECRET))
    write(root / ".git", "objects/pack/tmp_pack_x", SECRET)
    assert len(find_bytes(repo, SECRET)) >= 10
    erase(repo)
    assert find_bytes(repo, SECRET) == []
    by_hand(root, "fsck", "--strict")


def test_rewrite_handles_detached_heads_and_linked_work_trees(
    root: Path, repo: Repository, tmp_path: Path
) -> None:
    write(root, "a.md", SECRET)
    commit(root, "a")
    by_hand(root, "worktree", "add", "-q", "--detach", str(tmp_path / "second"))
    write(tmp_path / "second", "a.md", b"second " + SECRET)
    commit(tmp_path / "second", "only here")
    write(tmp_path / "second", "b.md", b"staged " + SECRET)
    by_hand(tmp_path / "second", "add", "-A")
    by_hand(root, "checkout", "-q", "--detach")
    write(root, "c.md", SECRET)
    commit(root, "on no branch")
    erase(repo)
    assert find_bytes(repo, SECRET) == []
    assert files(root)["c.md"][1] == BLANK
    assert files(tmp_path / "second")["a.md"][1] == b"second " + BLANK
    assert by_hand(tmp_path / "second", "show", ":b.md") == b"staged " + BLANK
    by_hand(root, "fsck", "--strict")

    write(root, "d.md", SECRET)
    commit(root, "once more")
    linked = Repository.at(tmp_path / "second")
    assert linked is not None
    erase(linked)
    assert find_bytes(linked, SECRET) == [] and find_bytes(repo, SECRET) == []
    assert files(root)["d.md"][1] == BLANK


def test_rewrite_keeps_replace_refs(root: Path, repo: Repository) -> None:
    write(root, "a.md", SECRET)
    old = commit(root, "old")
    new = by_hand(root, "commit-tree", "-m", "instead", f"{old}^{{tree}}").decode().strip()
    by_hand(root, "replace", old, new)
    erase(repo)
    head = by_hand(root, "rev-parse", "HEAD").decode().strip()
    assert head != old
    assert by_hand(root, "log", "-1", "--format=%s").strip() == b"instead"
    assert by_hand(root, "for-each-ref", "--format=%(refname)", "refs/replace").decode() == (
        f"refs/replace/{head}\n"
    )
    assert find_bytes(repo, SECRET) == []


def test_rewrite_keeps_odd_headers_and_drops_signatures(root: Path, repo: Repository) -> None:
    """Encodings and headers that git would not write today stay; modes and signatures do not."""
    blob = by_hand(root, "hash-object", "-w", "--stdin", given=SECRET).decode().strip()
    raw_tree = b"100664 odd\0" + bytes.fromhex(blob)
    store = ("hash-object", "--literally", "-w", "--stdin", "-t")
    tree = by_hand(root, *store, "tree", given=raw_tree).decode().strip()
    raw = (
        (
            f"tree {tree}\nauthor nobody\ncommitter A <a> 5 -0730\nencoding ISO-8859-1\n"
            "HG:extra some\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END\n"
            f"mergetag object {tree}\n tag x\n \n {SECRET.decode()}\n"
        ).encode()
        + b"\ncaf\xe9 "
        + SECRET
    )
    name = by_hand(root, *store, "commit", given=raw).decode().strip()
    by_hand(root, "update-ref", "refs/heads/odd", name)
    erase(repo)
    found = by_hand(root, "cat-file", "commit", "odd")
    assert b"author nobody\ncommitter A <a> 5 -0730\nencoding ISO-8859-1\nHG:extra some\n" in found
    assert found.endswith(b"\n\ncaf\xe9 [erased]")
    assert b"gpgsig" not in found and b"mergetag" not in found
    assert b"100644 odd" in by_hand(root, "cat-file", "tree", "odd^{tree}")
    assert find_bytes(repo, SECRET) == []


def test_rewrite_keeps_commits_apart_that_differ_in_an_odd_header(
    root: Path, repo: Repository
) -> None:
    write(root, "a.md", SECRET)
    tree = by_hand(root, "rev-parse", f"{commit(root, 'a')}^{{tree}}").decode().strip()
    for name in ("one", "two"):
        raw = f"tree {tree}\nauthor A <a> 5 +0000\ncommitter A <a> 5 +0000\nx {name}\n\nsame\n"
        odd = by_hand(root, "hash-object", "-w", "--stdin", "-t", "commit", given=raw.encode())
        after = by_hand(root, "commit-tree", "-m", "after", "-p", odd.decode().strip(), tree)
        by_hand(root, "update-ref", f"refs/heads/{name}", after.decode().strip())
    erase(repo)
    for name in ("one", "two"):
        assert f"x {name}\n".encode() in by_hand(root, "cat-file", "commit", f"{name}~1")
        assert files(root, name)["a.md"][1] == BLANK
    assert find_bytes(repo, SECRET) == []


def test_rewrite_of_a_file_that_becomes_a_folder_and_back(root: Path, repo: Repository) -> None:
    write(root, "a", SECRET)
    commit(root, "a file")
    (root / "a").unlink()
    write(root, "a/b", b"inside " + SECRET)
    commit(root, "a folder")
    shutil.rmtree(root / "a")
    write(root, "a", "a file again")
    commit(root, "back")
    before = everything(root, "HEAD")
    erase(repo)
    assert everything(root, "HEAD") == before and find_bytes(repo, SECRET) == []


def test_rewrite_removes_empty_folders_and_keeps_empty_commits(
    root: Path, repo: Repository
) -> None:
    write(root, f"deep/er/{SECRET.decode()}", "x")
    commit(root, "only that")
    by_hand(root, "checkout", "-q", "--orphan", "alone")
    by_hand(root, "rm", "-rqf", ".")
    write(root, SECRET.decode(), "x")
    commit(root, "nothing else")
    (root / SECRET.decode()).unlink()
    erase(repo)
    assert files(root) == {} and by_hand(root, "log", "-1", "--format=%s") == b"nothing else\n"
    assert b"deep" not in by_hand(root, "ls-tree", "-rt", "main")
    assert len(by_hand(root, "rev-list", "main").split()) == 2
    by_hand(root, "fsck", "--strict")


@pytest.mark.parametrize("seed", range(40 if PROVE else 4))
def test_rewrite_of_a_random_history_keeps_the_rest(seed: int, root: Path) -> None:
    chance = random.Random(seed)
    root.mkdir()
    kind = "sha256" if seed % 4 == 0 else "sha1"
    by_hand(root, "init", "-q", "-b", "b0", f"--object-format={kind}")
    by_hand(root, "fast-import", "--quiet", "--force", given=b"".join(random_stream(chance)))
    repo = Repository.at(root)
    assert repo is not None
    before = everything(root, "--branches")
    erase(repo)
    assert everything(root, "--branches") == before
    assert find_bytes(repo, SECRET) == []
    by_hand(root, "fsck", "--no-dangling")


def random_stream(chance: random.Random) -> Iterator[bytes]:
    """Commits with any parents: files that become folders, odd names, merges, encodings."""
    paths = (b"a", b"a/b", b"a/b/c", b'q\\"x', b"n\\nl", b"\xff", SECRET, b"x/" + SECRET, b"f")
    contents = (b"same", b"other", SECRET, b"before " + SECRET, bytes(range(256)))
    for number in range(1, chance.randrange(3, 16)):
        branch = b"refs/heads/b%d" % chance.randrange(3)
        message = chance.choice([b"", b"plain", SECRET + b"\n\nbody", b"caf\xe9", b"\n\nlate\n"])
        yield b"reset %s\ncommit %s\nmark :%d\n" % (branch, branch, number)
        yield b"committer C <c> %d +0130\n" % chance.randrange(10**9)
        yield chance.choice([b"", b"encoding ISO-8859-1\n"])
        yield b"data %d\n%s\n" % (len(message), message)
        parents = chance.sample(
            range(1, number), min(number - 1, chance.choice([0, 1, 1, 1, 2, 3]))
        )
        for at, parent in enumerate(parents):
            yield b"%s :%d\n" % (b"merge" if at else b"from", parent)
        for _ in range(chance.randrange(5)):
            path, content = chance.choice(paths), chance.choice(contents)
            mode = chance.choice([b"100644", b"100755", b"120000"])
            change = b'M %s inline "%s"\ndata %d\n%s\n' % (mode, path, len(content), content)
            yield b'D "%s"\n' % path if chance.random() < 0.25 else change
        yield b"\n"


def test_rewrite_works_with_sha256(root: Path) -> None:
    root.mkdir()
    by_hand(root, "init", "-q", "-b", "main", "--object-format=sha256")
    repo = made(root)
    rich(root)
    before = everything(root, "--branches")
    erase(repo)
    assert everything(root, "--branches") == before
    assert find_bytes(repo, SECRET) == []


def test_rewrite_of_an_empty_repository_does_nothing(root: Path) -> None:
    root.mkdir()
    by_hand(root, "init", "-q")
    repo = Repository.at(root)
    assert repo is not None
    assert erase(repo) == RewriteReport(0, 0, 0, 0)


@pytest.mark.prove
def test_rewrite_handles_thousands_of_commits(root: Path, repo: Repository) -> None:
    stream = []
    for number in range(2000):
        text = b"fact %d\n" % number
        if number in {3, 900}:
            text += SECRET
        stream.append(
            b"commit refs/heads/main\ncommitter P <p@x> %d +0000\ndata 2\nm\n" % (number + 9)
            + (b"from refs/heads/main^0\n" if number == 0 else b"")
            + b"M 100644 inline facts/%d.md\ndata %d\n%s\n" % (number, len(text), text)
        )
    by_hand(root, "fast-import", "--quiet", given=b"".join(stream))
    by_hand(root, "reset", "-q", "--hard")
    done = erase(repo)
    assert done.commits == 1997 and done.files == 2
    assert find_bytes(repo, SECRET) == []
    found = files_named(root, "HEAD")
    assert len(found) == 2002
    assert len(files_named(root, "HEAD~1000")) == 1002
    assert by_hand(root, "show", "HEAD:facts/900.md") == b"fact 900\n[erased]"
    by_hand(root, "fsck", "--strict")


def files_named(root: Path, commit: str) -> list[bytes]:
    return by_hand(root, "ls-tree", "-r", "--name-only", commit).split()


# Refusals and failures


@pytest.mark.parametrize("what", ["merge", "shallow", "promisor", "reftable"])
def test_rewrite_refuses_merges_shallow_clones_and_promisors(
    what: str, root: Path, repo: Repository
) -> None:
    write(root, "a.md", SECRET)
    head = commit(root, "a")
    if what == "merge":
        write(root / ".git", "MERGE_HEAD", head)
    elif what == "shallow":
        write(root / ".git", "shallow", head + "\n")
    elif what == "promisor":
        by_hand(root, "config", "remote.x.promisor", "true")
    else:
        by_hand(root, "config", "extensions.refStorage", "reftable")
    with pytest.raises(VaultError):
        erase(repo)
    assert (root / ".git/refs/heads/main").read_text(encoding="utf-8").strip() == head


@pytest.mark.parametrize("name", ["logs", "logs/refs", "logs/refs/heads/main"])
def test_rewrite_refuses_logs_that_are_links(
    name: str, root: Path, repo: Repository, tmp_path: Path
) -> None:
    write(root, "a.md", SECRET)
    head = commit(root, "a")
    path = root / ".git" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    write(tmp_path, "elsewhere/mine" if path.is_dir() else "mine", "mine\n")
    with pytest.raises(VaultError, match="is a symbolic link"):
        erase(repo)
    assert by_hand(root, "rev-parse", "HEAD").decode().strip() == head
    assert all(path.stat().st_size for path in tmp_path.rglob("mine"))


def test_rewrite_with_a_failing_callback_changes_nothing(root: Path, repo: Repository) -> None:
    rich(root)
    before = by_hand(root, "for-each-ref")
    calls = []

    def failing(path: str, content: bytes) -> bytes:
        calls.append(path)
        if len(calls) == 9:
            raise KeyError(path)
        return b"other"

    with pytest.raises(KeyError):
        rewrite(repo, change_blob=failing, change_message=str)
    assert by_hand(root, "for-each-ref") == before
    assert status(root) == []


def test_rewrite_reports_a_missing_object(root: Path, repo: Repository) -> None:
    write(root, "a.md", SECRET)
    commit(root, "a")
    blob = by_hand(root, "rev-parse", "HEAD:a.md").decode().strip()
    path = root / ".git/objects" / blob[:2] / blob[2:]
    path.unlink()
    with pytest.raises(VaultError, match="git fsck"):
        erase(repo)
    write(root / ".git/objects", f"{blob[:2]}/{blob[2:]}", b"nonsense")
    with pytest.raises(VaultError):
        find_bytes(repo, SECRET)


def test_rewrite_stops_when_a_ref_moved_meanwhile(
    root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "a.md", SECRET)
    commit(root, "a")
    real = git_rewrite._restage

    def moved(*arguments: object) -> None:
        by_hand(root, "commit", "-q", "--allow-empty", "-m", "meanwhile")
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(git_rewrite, "_restage", moved)
    with pytest.raises(VaultError, match="git update-ref failed"):
        erase(repo)
    monkeypatch.undo()
    assert by_hand(root, "log", "-1", "--format=%s").strip() == b"meanwhile"
    erase(repo)
    assert find_bytes(repo, SECRET) == []


def test_killed_rewrite_can_be_repeated(root: Path, repo: Repository) -> None:
    chance = random.Random("rewriting")
    rich(root)
    before = everything(root, "--branches")
    code = (
        "import sys; from pathlib import Path; from tests.vault.git.test_rewrite import erase\n"
        "from reverie.vault.git.repo import Repository\n"
        "repo = Repository.at(Path(sys.argv[1])); print('go', flush=True); erase(repo)"
    )
    for _ in range(8 if PROVE else 2):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() * 0.6)
            process.send_signal(signal.SIGKILL)
        time.sleep(0.1)
        for lock in (root / ".git").rglob("*.lock"):
            os.utime(lock, (time.time() - 2 * STALE_LOCK_SECONDS,) * 2)
    erase(repo)
    assert everything(root, "--branches") == before
    assert find_bytes(repo, SECRET) == []
    assert len(by_hand(root, "stash", "list").splitlines()) == 3
    by_hand(root, "fsck", "--strict")


class Killed(BaseException):
    """What nothing handles, as nothing handles a kill."""


def test_rewrite_killed_between_git_calls_loses_no_stash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Git._start
    left = 0

    def counted(self: Git, *arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        return start(self, *arguments)

    made(tmp_path / "model")
    write(tmp_path / "model", "plain.md", "plain\n")
    commit(tmp_path / "model", "first\n")
    for number in range(3):
        write(tmp_path / "model", "plain.md", SECRET + b" stashed %d" % number)
        by_hand(tmp_path / "model", "stash", "push", "-q", "-m", f"stash {number}")
    monkeypatch.setattr(Git, "_start", counted)
    for call in range(1, 100, EACH_CALL):
        root = tmp_path / str(call)
        shutil.copytree(tmp_path / "model", root, symlinks=True)
        left = call
        repo = Repository.at(root)
        assert repo is not None
        try:
            erase(repo)
        except Killed:
            write(root, "plain.md", SECRET + b" since")
            by_hand(root, "stash", "push", "-q", "-m", "since")
        else:
            break
        finally:
            left = 0
        erase(repo)
        assert stashed(root) == [f"[erased] stashed {one}" for one in range(3)] + ["[erased] since"]
        assert find_bytes(repo, SECRET) == []
        assert by_hand(root, "for-each-ref", "refs/reverie") == b""
    assert call > 20, "it was killed in all its phases"
    assert stashed(root) == [f"[erased] stashed {one}" for one in range(3)]


def stashed(root: Path) -> list[str]:
    """What each stash holds, oldest first."""
    names = by_hand(root, "stash", "list", "--format=%gd").decode().split()
    return [by_hand(root, "show", f"{name}:plain.md").decode() for name in reversed(names)]


@pytest.mark.parametrize("step", ["_switch", "_restage", "_remove", "_write_stash_log"])
def test_interrupted_rewrite_is_completed_later(
    step: str, root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    rich(root)

    def stopped(*arguments: object) -> None:
        raise VaultError("stopped")

    monkeypatch.setattr(git_rewrite, step, stopped)
    with pytest.raises(VaultError, match="stopped"):
        erase(repo)
    monkeypatch.undo()
    erase(repo)
    assert find_bytes(repo, SECRET) == []
    assert len(by_hand(root, "stash", "list").splitlines()) == 3
    assert by_hand(root, "for-each-ref", "refs/reverie") == b""


# Looking


@pytest.mark.parametrize(
    "name",
    ["description", "hooks/x", "logs/refs/heads/gone", "index.backup", "modules/x/packed-refs"],
)
def test_search_reads_every_file(name: str, root: Path, repo: Repository) -> None:
    write(root / ".git", name, b"x" * ((1 << 20) - 7) + SECRET + b"y")
    assert find_bytes(repo, SECRET) == [f".git/{name}"]
    assert find_bytes(repo, SECRET + b"z") == []


def test_search_finds_names_links_and_object_kinds(root: Path, repo: Repository) -> None:
    write(root, f"{SECRET.decode()}.md", "x")
    commit(root, f"in a message {SECRET.decode()}")
    by_hand(root, "tag", "-a", "-m", SECRET.decode(), "t")
    by_hand(root, "branch", SECRET.decode())
    (root / ".git" / "linked").symlink_to(os.fsdecode(SECRET))
    by_hand(root, "gc", "-q")
    found = find_bytes(repo, SECRET)
    assert {one.split()[0] for one in found} >= {"commit", "tag", "tree", ".git/linked"}
    assert "index: the name of a file" in found
    assert any("packed-refs" in one for one in found)


def test_search_reads_packs_that_git_does_not_know(root: Path, repo: Repository) -> None:
    for number in range(5):
        write(root, "a.md", b"line\n" * 400 + b"%d" % number + (SECRET if number == 3 else b""))
        commit(root, "m")
    by_hand(root, "gc", "-q")
    (pack,) = (root / ".git/objects/pack").glob("*.pack")
    write(root / ".git", "modules/x/objects/pack/tmp_pack_y", pack.read_bytes())
    assert any("tmp_pack_y" in one for one in find_bytes(repo, SECRET))
    cut = pack.read_bytes()[:-40]
    write(root / ".git", "modules/x/objects/pack/tmp_pack_y", cut)
    assert find_bytes(repo, b"nothing like it") == []


def test_search_reads_packs_of_nested_repositories(root: Path, repo: Repository) -> None:
    write(root, "a.md", SECRET)
    commit(root, "m")
    by_hand(root, "gc", "-q")
    for path in [*(root / ".git/objects/pack").iterdir()]:
        write(root / ".git", f"modules/x/objects/pack/{path.name}", path.read_bytes())
        write(root, f"copy/.git/objects/pack/{path.name}", path.read_bytes())
    by_hand(root, "reset", "-q", "--hard", "HEAD~1")
    erase(repo)
    (found,) = find_bytes(repo, SECRET)
    assert found.startswith(".git/modules/x/objects/pack/pack-")
    (found,) = find_files_with(root, [SECRET])
    assert found.startswith("copy/.git/objects/pack/pack-")


def test_search_finds_many_texts_at_any_place(root: Path, repo: Repository) -> None:
    many = [b"needle number %05d of a stack" % number for number in range(500)] + [b"short"]
    for start in range(20):
        write(root / ".git", "description", b" " * start + many[start * 7] + b"\n")
        assert find_bytes(repo, *many) == [".git/description"]
    write(root / ".git", "description", b"x" * ((1 << 20) - 3) + many[400])
    assert find_bytes(repo, *many) == [".git/description"]
    write(root / ".git", "description", b"a short one")
    assert find_bytes(repo, *many) == [".git/description"]
    write(root / ".git", "description", b"needle number 00500 of a stack, needle number 0000")
    assert find_bytes(repo, *many) == []


def test_search_that_cannot_read_a_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a/b.txt", "hello")

    def refused(*arguments: object) -> None:
        raise PermissionError(13, "refused")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(VaultError, match="the search is incomplete"):
        find_files_with(tmp_path, [SECRET])


def test_search_for_an_empty_text_is_refused(repo: Repository) -> None:
    with pytest.raises(VaultError):
        find_bytes(repo, b"")


# The parts


@given(st.binary(max_size=60))
def test_malformed_headers_and_persons_are_parsed(raw: bytes) -> None:
    found = CommitOrTag.parse(b"tree x\nauthor y\n continued\n\n" + raw)
    assert found.raw() == b"tree x\nauthor y\n continued\n\n" + raw
    assert found.encoded(found.text()) == raw
    person(raw)
    CommitOrTag.parse(raw).text()


def test_object_ids_equal_those_of_git(root: Path, repo: Repository) -> None:
    expected = by_hand(root, "hash-object", "--stdin", given=b"some content").decode().strip()
    assert object_id(b"blob", b"some content", "sha1") == expected
