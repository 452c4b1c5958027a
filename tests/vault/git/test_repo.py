"""The vault's repository: exactly what changed is committed, whatever else is going on in it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reverie.vault.git.process as program
from reverie.errors import VaultError
from reverie.vault.git.objects import CommitOrTag
from reverie.vault.git.process import STALE_LOCK_SECONDS, GitBusy
from reverie.vault.git.repo import (
    ATTRIBUTES,
    IGNORED,
    Repository,
    _message,
    _person,
)
from reverie.vault.git.worktree import check_path, quote_path
from tests.tiers import PROVE
from tests.vault.repositories import by_hand, files, made, status, write

ODD_NAMES = [
    "-dash.md",
    "--amend",
    "a/new\nline.md",
    'a/quo"te.md',
    "a/back\\slash.md",
    "a/tab\t.md",
    "a/ space ",
    ":(top)magic",
    ":!exclude",
    "*.md",
    "[ab].md",
    "a/ünï/日本.md",
    "a/e\u0301.md",
    "a/\u202etxt.md",
    "#hash",
    "~tilde",
    "$(touch x)",
    "`touch x`",
    "a;b|c&d",
    "HEAD",
    "@",
    "a/not-utf8-\udcff.md",
    "deadbeef" * 5,
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "vault"


@pytest.fixture
def repo(root: Path) -> Repository:
    return made(root)


def commit(repo: Repository, *paths: str, message: str = "m") -> str:
    found = repo.commit(paths, message, author="ana")
    assert found is not None
    return found


# Making a repository


def test_init_creates_a_repository_with_its_settings(root: Path) -> None:
    repo = made(root)
    (first,) = repo.log()
    assert first.subject == "vault init"
    assert first.paths == (".gitattributes", ".gitignore")
    assert (root / ".gitignore").read_text(encoding="utf-8").splitlines() == list(IGNORED)
    assert (root / ".gitattributes").read_bytes() == "".join(
        f"{line}\n" for line in ATTRIBUTES
    ).encode()
    assert not (root / ".git" / "hooks").exists()
    assert b"worktree" not in (root / ".git" / "config").read_bytes()
    assert status(root) == []


def test_repeated_init_changes_nothing(root: Path, repo: Repository) -> None:
    repo.init()
    assert len(repo.log()) == 1


def test_vault_inside_another_repository_gets_its_own(tmp_path: Path) -> None:
    by_hand(tmp_path, "init", "-q")
    made(tmp_path / "vault")
    assert (tmp_path / "vault" / ".git").is_dir()
    assert by_hand(tmp_path, "for-each-ref") == b""


def test_init_leaves_existing_files_unchanged(root: Path) -> None:
    write(root, ".gitignore", b"mine\r\n*.tmp\r\nlast")
    write(root, ".gitattributes", "*.md text\n")
    made(root)
    lines = (root / ".gitignore").read_bytes().splitlines()
    assert lines[:3] == [b"mine", b"*.tmp", b"last"]
    assert sorted(line.decode() for line in lines[3:]) == sorted(set(IGNORED) - {"*.tmp"})
    assert (root / ".gitattributes").read_bytes() == b"*.md text\n"


def test_init_does_not_write_through_links(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    (root / ".gitignore").symlink_to(outside)
    (root / ".gitattributes").symlink_to(tmp_path / "nowhere")
    made(root)
    assert outside.read_bytes() == b""
    assert not (tmp_path / "nowhere").exists()


def test_init_continues_a_repository_with_history(root: Path) -> None:
    root.mkdir()
    by_hand(root, "init", "-q", "-b", "trunk")
    write(root, "mine.txt")
    by_hand(root, "add", ".")
    by_hand(root, "commit", "-qm", "mine")
    repo = made(root)
    assert [one.subject for one in repo.log()] == ["vault init", "mine"]
    assert by_hand(root, "branch", "--show-current") == b"trunk\n"


def test_killed_init_is_completed_by_the_next(root: Path) -> None:
    (root / ".git" / "objects").mkdir(parents=True)
    assert len(made(root).log()) == 1


def test_init_at_an_impossible_path_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "file")
    repo = Repository.at(tmp_path / "file" / "vault")
    assert repo is not None
    with pytest.raises(VaultError, match="cannot be made"):
        repo.init()


@pytest.mark.parametrize("version", ["git version 2.29.3", "git version 1.9", "something else", ""])
def test_missing_or_old_git_means_no_repository(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    write(folder, "git", f"#!/bin/sh\necho '{version}'\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert Repository.at(tmp_path / "vault") is None
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert Repository.at(tmp_path / "vault") is None


def test_git_program_inside_the_vault_is_not_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "git", "#!/bin/sh\necho git version 2.99\n")
    (root / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(root))
    assert Repository.at(root) is None


# Commits


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.sample(4)
def test_commit_accepts_any_file_name(name: str, root: Path, repo: Repository) -> None:
    write(root, name, "one")
    write(root, "other.md")
    first = commit(repo, name)
    assert files(root)[name] == (b"100644", b"one")
    assert status(root) == ["?? other.md"]
    write(root, name, "two")
    assert "+two" in repo.diff(name, since=first)
    second = commit(repo, name)
    (root / name).unlink()
    third = commit(repo, name)
    assert name not in files(root)
    log = repo.log(name)
    assert [one.id for one in log] == [third, second, first]
    assert {one.paths for one in log} == {(name,)}
    assert status(root) == ["?? other.md"]


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "/etc/passwd", "..", "../x", "a/../../x", "a//b", "./a", "a/.", "a/", "a\0b"),
        *(".git/config", ".GIT/config", "a/.git/x", ".git", "git~1/x", ".git./x", ".git /x"),
        *(".git::$INDEX_ALLOCATION/x", ".g\u200cit/config", "a/\ud800"),
    ],
)
def test_commit_refuses_paths_outside_the_vault(name: str, root: Path, repo: Repository) -> None:
    before = (root / ".git" / "config").read_bytes()
    for call in (
        lambda: repo.commit([name], "m", author="ana"),
        lambda: repo.log(name),
        lambda: repo.diff(name, since=None),
    ):
        with pytest.raises(VaultError):
            call()
    assert (root / ".git" / "config").read_bytes() == before
    assert len(repo.log()) == 1


def test_commit_takes_additions_changes_and_removals_together(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a", "1"), write(root, "b", "1"), write(root, "c", "1"))
    write(root, "a", "2")
    (root / "b").unlink()
    write(root, "d", "1")
    found = commit(repo, "a", "b", "c", "d", "never was")
    assert repo.log(limit=1)[0].paths == ("a", "b", "d")
    assert repo.log(limit=1)[0].id == found
    assert status(root) == []


def test_commit_without_changes_makes_none(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a"))
    assert repo.commit(["a", "gone"], "m", author="ana") is None
    assert repo.commit([], "m", author="ana") is None
    assert repo.checkpoint("x", "ana") is None
    assert by_hand(root, "fsck", "--no-dangling", "--unreachable") == b""


def test_commit_keeps_files_staged_by_a_person(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "theirs", "1"), write(root, "gone", "1"), write(root, "ours", "1"))
    write(root, "theirs", "staged")
    write(root, "added", "staged")
    by_hand(root, "add", "theirs", "added")
    write(root, "theirs", "on disk")
    by_hand(root, "rm", "-q", "--cached", "gone")
    commit(repo, write(root, "ours", "2"))
    assert sorted(status(root)) == ["?? gone", "A  added", "D  gone", "MM theirs"]
    assert by_hand(root, "show", ":theirs") == b"staged"
    assert set(files(root)) == {".gitattributes", ".gitignore", "theirs", "gone", "ours"}


def test_commit_of_a_staged_path_takes_its_content_on_disk(root: Path, repo: Repository) -> None:
    write(root, "a", "staged")
    by_hand(root, "add", "a")
    write(root, "a", "on disk")
    commit(repo, "a")
    assert files(root)["a"][1] == b"on disk"
    assert status(root) == []


def test_commit_keeps_file_modes_and_links(root: Path, repo: Repository, tmp_path: Path) -> None:
    write(tmp_path, "secret", "outside")
    write(root, "run.sh")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder link").symlink_to(tmp_path)
    commit(repo, "run.sh", "link", "folder link")
    found = files(root)
    assert found["run.sh"][0] == b"100755"
    assert found["link"] == (b"120000", os.fsencode(tmp_path / "secret"))
    assert found["folder link"][0] == b"120000"
    assert repo.commit(["folder link/secret"], "m", author="ana") is None
    assert status(root) == []


def test_commit_on_a_disk_without_modes_adds_no_executables(root: Path, repo: Repository) -> None:
    by_hand(root, "config", "core.fileMode", "false")
    (root / write(root, "a")).chmod(0o777)
    commit(repo, "a")
    assert files(root)["a"][0] == b"100644"


def test_commit_does_not_read_pipes(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a"))
    (root / "a").unlink()
    os.mkfifo(root / "a")
    os.mkfifo(root / "b")
    commit(repo, "a", "b")
    assert "a" not in files(root)


def test_commit_replaces_a_file_by_a_folder_and_back(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a", "file"))
    (root / "a").unlink()
    commit(repo, "a", write(root, "a/b/c", "below"))
    assert set(files(root)) == {".gitattributes", ".gitignore", "a/b/c"}
    shutil.rmtree(root / "a")
    commit(repo, write(root, "a", "file"), "a/b/c")
    assert files(root)["a"] == (b"100644", b"file")
    (root / "a").unlink()
    (root / "a").mkdir()
    commit(repo, "a")
    assert set(files(root)) == {".gitattributes", ".gitignore"}
    assert status(root) == []


def test_commit_of_a_folder_takes_what_is_below(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "s/a", "1"), write(root, "s/b/c", "1"), write(root, "t", "1"))
    write(root, "s/a", "2")
    (root / "s/b/c").unlink()
    write(root, "s/new", "1")
    write(root, "s/x.tmp", "ignored")
    write(root, "t", "2")
    commit(repo, "s")
    assert repo.log(limit=1)[0].paths == ("s/a", "s/b/c", "s/new")
    shutil.rmtree(root / "s")
    commit(repo, "s")
    assert repo.log(limit=1)[0].paths == ("s/a", "s/new")
    assert status(root) == [" M t"]


def test_commit_ignores_nested_repositories(root: Path, repo: Repository) -> None:
    write(root, "inner/file")
    by_hand(root / "inner", "init", "-q")
    by_hand(root / "inner", "add", ".")
    by_hand(root / "inner", "commit", "-qm", "x")
    assert repo.checkpoint("", "ana") is None
    by_hand(root, "add", "inner")
    by_hand(root, "commit", "-qm", "as a submodule")
    write(root, "inner/file", "changed")
    assert repo.checkpoint("", "ana") is None
    assert repo.diff(since=None) == ""


def test_commit_does_not_remove_files_outside_a_sparse_checkout(
    root: Path, repo: Repository
) -> None:
    commit(repo, write(root, "a"), write(root, "b"))
    by_hand(root, "update-index", "--skip-worktree", "a")
    (root / "a").unlink()
    assert repo.checkpoint("", "ana") is None
    assert repo.diff(since=None) == ""


def test_commit_takes_many_files_at_once(root: Path, repo: Repository) -> None:
    names = [write(root, f"facts/{number}.md", f"fact {number}\n") for number in range(1500)]
    commit(repo, *names)
    assert len(files_of(root)) == 1502
    assert list((root / ".git" / "objects" / "pack").glob("*.pack"))
    for name in names[:1200]:
        (root / name).unlink()
    commit(repo, *names)
    assert len(files_of(root)) == 302
    assert status(root) == []


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of git, a line each, by a program of that name that is found first."""
    said, real = tmp_path / "calls", shutil.which("git")
    write(tmp_path, "bin/git", f'#!/bin/sh\necho "$*" >> {said}\nexec {real} "$@"\n')
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return said


@pytest.mark.parametrize("packed_refs", [False, True])
def test_commit_takes_three_processes(packed_refs: bool, root: Path, calls: Path) -> None:
    repo = made(root)
    commit(repo, write(root, "a"), write(root, "b/c"))
    if packed_refs:
        by_hand(root, "pack-refs", "--all")
    calls.unlink()
    repo.init()
    (root / "a").unlink()
    commit(repo, "a", write(root, "b/c", "changed"), write(root, "b/d"))
    made_calls = calls.read_text(encoding="utf-8").splitlines()
    assert len(made_calls) <= 3
    # Nor does git start a process that unpacks the objects.
    assert not list((root / ".git" / "objects").glob("??"))
    assert status(root) == []


def test_commit_without_changes_takes_one_process(root: Path, calls: Path) -> None:
    repo = made(root)
    commit(repo, write(root, "a"))
    calls.unlink()
    assert repo.commit(["a", "gone"], "m", author="ana") is None
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 1
    assert not list((root / ".git").glob("fast_import_crash_*"))


def test_git_version_is_asked_once_for_each_program(tmp_path: Path, calls: Path) -> None:
    facts = Facts()
    program.git_version.cache_clear()
    for _ in range(2):
        assert program.find_git(tmp_path / "vault", facts) == str(tmp_path / "bin" / "git")
        program.git_version.cache_clear()
    assert calls.read_text(encoding="utf-8") == "--version\n"
    write(tmp_path, "bin/git", "#!/bin/sh\necho git version 2.29.3\n")
    assert program.find_git(tmp_path / "vault", facts) is None


class Facts(dict[str, str]):
    def fact(self, name: str) -> str | None:
        return self.get(name)

    def set_meta(self, name: str, value: str) -> None:
        self[name] = value


def test_commit_of_a_removed_folder_removes_what_was_below(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "folder/a"), write(root, "folder/below/b"), write(root, "c"))
    shutil.rmtree(root / "folder")
    commit(repo, "folder")
    assert files_of(root) == [b".gitattributes", b".gitignore", b"c"]
    assert status(root) == []


@pytest.mark.parametrize(
    "setting",
    ["[include]\n\tpath = other", "[core]\n\tfilemode", "[core] FileMode=\n", "[extensions] x = 1"],
)
def test_settings_that_differ_from_new_ones_are_read_by_git(
    setting: str, root: Path, repo: Repository
) -> None:
    write(root / ".git", "other", "[core]\n\tfilemode = false\n")
    with (root / ".git" / "config").open("a", encoding="utf-8") as file:
        file.write(f"\n{setting}\n")
    write(root, "program")
    (root / "program").chmod(0o755)
    commit(repo, "program")
    expected = by_hand(root, "config", "--includes", "--type=bool", "core.filemode") == b"true\n"
    assert files(root)["program"][0] == (b"100755" if expected else b"100644")


def files_of(root: Path) -> list[bytes]:
    return by_hand(root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split(b"\0")[:-1]


def test_commit_of_one_file_does_not_read_the_others(
    root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [write(root, f"facts/{number}.md") for number in range(300)]
    commit(repo, *names)
    opened = []
    real = os.open

    def noted(path: object, *rest: object, **more: object) -> int:
        opened.append(str(path))
        return real(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", noted)
    commit(repo, write(root, "facts/7.md", "changed"))
    assert {name for name in opened if "facts" in name} == {str(root / "facts/7.md")}


# Messages and people


def test_commit_message_is_cleaned_of_control_characters(root: Path, repo: Repository) -> None:
    message = (
        "ana: Sarah moved\x1b[31m\x00 (revise a1)\r\n\r\n# kept\n- \u2028line\ud800 two\x7f\n\n"
    )
    commit(repo, write(root, "a"), message=message)
    found = repo.log(limit=1)[0]
    assert found.subject == "ana: Sarah moved[31m (revise a1)"
    assert found.body == "# kept\n- line two"
    assert found.author == "ana"


def test_commit_subject_is_truncated(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a"), message="wörter " * 40 + "\n\nbody")
    found = repo.log(limit=1)[0]
    assert len(found.subject) <= 100 and found.subject.endswith("…")
    assert found.body == "body"


@given(st.text())
def test_commit_message_is_never_empty_and_has_no_control_character(text: str) -> None:
    raw = _message(text).decode()
    assert raw.strip() and "\0" not in raw and "\x1b" not in raw and "\r" not in raw
    assert len(raw.split("\n")[0]) <= 100


@pytest.mark.parametrize(
    ("author", "person"),
    [
        ("ana", "ana <ana@reverie.invalid>"),
        ("", "reverie <reverie@reverie.invalid>"),
        ("<>", "reverie <reverie@reverie.invalid>"),
        ("Ana <ana@evil.example>", "Ana ana@evil.example <Ana-ana-evil.example@reverie.invalid>"),
        ("a\nauthor b <c> 1", "aauthor b c 1 <aauthor-b-c-1@reverie.invalid>"),
        ("Zoë", "Zoë <Zoë@reverie.invalid>"),
        ("日 本", "日 本 <日-本@reverie.invalid>"),
        ("...", "reverie <reverie@reverie.invalid>"),
        ("!?", "!? <reverie@reverie.invalid>"),
        ("\ud800", "reverie <reverie@reverie.invalid>"),
    ],
)
def test_commit_author_is_cleaned(author: str, person: str, root: Path, repo: Repository) -> None:
    assert _person(author).decode() == person
    repo.commit([write(root, "a", author.encode("utf-8", "replace"))], "m", author=author)
    shown = by_hand(root, "log", "-1", "--format=%an <%ae>|%cn <%ce>").decode().strip()
    assert shown == f"{person}|Reverie <reverie@reverie.invalid>"
    assert by_hand(root, "fsck", "--strict") == b""


@given(st.text())
def test_commit_author_is_always_valid_for_git(text: str) -> None:
    raw = _person(text)
    assert raw.count(b"<") == raw.count(b">") == 1
    assert not any(byte < 32 for byte in raw) and not raw.startswith((b"<", b" "))


@given(st.text())
@settings(max_examples=300)
def test_checked_path_stays_below_the_root(text: str) -> None:
    try:
        path = check_path(text)
    except VaultError:
        return
    assert os.path.normpath(f"/top/{path}") == f"/top/{path}"


@given(st.binary(min_size=1))
def test_quoted_path_contains_no_newline(raw: bytes) -> None:
    assert b"\n" not in quote_path(raw) and quote_path(raw)[1:-1].count(b'"') == 0


def test_commit_time_comes_from_the_injected_clock(root: Path) -> None:
    class Fixed:
        def now(self) -> int:
            return 1_700_000_000_123

    repo = Repository.at(root, clock=Fixed())
    assert repo is not None
    repo.init()
    assert repo.log()[0].at == 1_700_000_000_000


# Looking


def test_log_of_a_file_a_folder_and_everything(root: Path, repo: Repository) -> None:
    for number in range(4):
        commit(repo, write(root, f"s/{number % 2}", str(number)), message=f"m{number}")
    assert [one.subject for one in repo.log("s/1")] == ["m3", "m1"]
    assert [one.subject for one in repo.log("s", limit=3)] == ["m3", "m2", "m1"]
    assert [one.subject for one in repo.log()] == ["m3", "m2", "m1", "m0", "vault init"]
    assert repo.log(limit=0) == [] and repo.log("nothing") == []


def test_log_shows_what_a_merge_changed(root: Path, repo: Repository) -> None:
    by_hand(root, "checkout", "-qb", "side")
    commit(repo, write(root, "side"))
    by_hand(root, "checkout", "-q", "main")
    commit(repo, write(root, "main"))
    by_hand(root, "merge", "-q", "--no-edit", "side")
    assert repo.log(limit=1)[0].paths == ("side",)


def test_log_reads_malformed_commits(root: Path, repo: Repository) -> None:
    tree = by_hand(root, "rev-parse", "HEAD^{tree}").decode().strip()
    raw = f"tree {tree}\nauthor nobody\ncommitter <> 5 +0000\nencoding ISO-8859-1\n\n".encode()
    name = by_hand(
        root, "hash-object", "--literally", "-t", "commit", "-w", "--stdin", given=raw + b"caf\xe9"
    )
    by_hand(root, "update-ref", "HEAD", name.decode().strip())
    found = repo.log()[0]
    assert (found.author, found.at, found.subject) == ("nobody", 0, "café")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "iso-8859-11", "utf-16", "base64", "nonsense"])
def test_log_reads_messages_in_any_encoding(encoding: str, root: Path, repo: Repository) -> None:
    tree = by_hand(root, "rev-parse", "HEAD^{tree}").decode().strip()
    raw = (
        f"tree {tree}\nauthor A <> 5 +0000\ncommitter <> 5 +0000\nencoding {encoding}\n\n".encode()
    )
    raw += b"\xef\xbb\xbfodd \xfc\xff"
    store = ("hash-object", "--literally", "-t", "commit", "-w", "--stdin")
    by_hand(root, "update-ref", "HEAD", by_hand(root, *store, given=raw).decode().strip())
    assert "odd" in repo.log()[0].subject
    parsed = CommitOrTag.parse(raw)
    assert parsed.encoded(parsed.text()) == parsed.message


def test_diff_shows_uncommitted_changes(root: Path, repo: Repository) -> None:
    first = commit(repo, write(root, "a", "one\n"), write(root, "b", "one\n"))
    write(root, "a", "two\n")
    write(root, "new", "fresh\n")
    write(root, "x.tmp", "ignored")
    (root / "b").unlink()
    before = sorted((root / ".git").rglob("*"))
    text = repo.diff(since=None)
    assert sorted((root / ".git").rglob("*")) == before
    assert "-one\n+two" in text and "+fresh" in text and "deleted file" in text
    assert "ignored" not in text
    assert text == repo.diff(since=first)
    assert "+two" in repo.diff("a", since=None) and "fresh" not in repo.diff("a", since=None)
    repo.checkpoint("", "ana")
    assert repo.diff(since=None) == ""
    assert repo.diff(since=first) == text
    assert repo.diff("a", since="HEAD~1") != ""


@pytest.mark.parametrize(
    "since",
    [
        "",
        "-p",
        "--output=/tmp/x",
        "nothing",
        "HEAD:a",
        "HEAD..main",
        "HEAD\n",
        "a" * 40,
        "\0",
        "^HEAD",
    ],
)
def test_diff_since_an_unknown_commit_is_refused(since: str, repo: Repository) -> None:
    with pytest.raises(VaultError, match="is not a commit"):
        repo.diff(since=since)


def test_checkpoint_commits_every_change(root: Path, repo: Repository) -> None:
    commit(repo, write(root, "a", "1"), write(root, "b", "1"))
    write(root, "a", "2")
    (root / "b").unlink()
    write(root, "deep/er/c", "1")
    write(root, "staged", "1")
    by_hand(root, "add", "staged")
    assert repo.checkpoint("before the dream", "ana") is not None
    write(root, "a", "3")
    assert repo.checkpoint("  ", "ana") is not None
    assert [one.subject for one in repo.log(limit=2)] == [
        "checkpoint: manual",
        "checkpoint: before the dream",
    ]
    assert repo.log()[1].paths == ("a", "b", "deep/er/c", "staged")
    assert status(root) == []


# States a repository can be in


def test_commit_works_on_a_detached_head(root: Path, repo: Repository) -> None:
    by_hand(root, "checkout", "-q", "--detach")
    found = commit(repo, write(root, "a"))
    assert by_hand(root, "rev-parse", "HEAD").decode().strip() == found
    assert by_hand(root, "rev-parse", "main").decode().strip() != found
    assert status(root) == []


def test_commit_works_on_an_unborn_branch(root: Path, repo: Repository) -> None:
    by_hand(root, "checkout", "-q", "--orphan", "fresh/branch")
    by_hand(root, "rm", "-rq", "--cached", ".")
    assert repo.log() == [] and "a/.gitignore" in repo.diff(since=None)
    found = commit(repo, write(root, "a"))
    assert by_hand(root, "rev-parse", "refs/heads/fresh/branch").decode().strip() == found
    assert set(files(root)) == {"a"}


@pytest.mark.parametrize("bare", [False, True])
def test_commit_works_in_a_linked_work_tree(bare: bool, tmp_path: Path) -> None:
    main = tmp_path / "main"
    made(main)
    if bare:
        by_hand(tmp_path, "clone", "-q", "--bare", str(main), str(tmp_path / "bare"))
        main = tmp_path / "bare"
    by_hand(main, "worktree", "add", "-q", "-b", "vault", str(tmp_path / "vault"))
    repo = made(tmp_path / "vault")
    found = commit(repo, write(repo.root, "a"))
    assert (repo.root / ".git").is_file()
    assert by_hand(main, "rev-parse", "vault").decode().strip() == found
    assert by_hand(main, "rev-parse", "main").decode().strip() != found
    assert status(repo.root) == []
    assert repo.checkpoint("", "ana") is None
    assert repo.diff(since=None) == ""


def test_git_file_that_leads_nowhere_is_reported(root: Path) -> None:
    for text in ("gitdir: ../nowhere\n", "something\n", b"\xff\xfe"):
        write(root, ".git", text)
        repo = Repository.at(root)
        assert repo is not None
        for call in (repo.init, repo.log, lambda r=repo: r.diff(since=None)):
            with pytest.raises(VaultError):
                call()


def test_missing_repository_is_reported(tmp_path: Path) -> None:
    by_hand(tmp_path, "init", "-q")
    repo = Repository.at(tmp_path / "vault")
    assert repo is not None
    for folder in (False, True):
        if folder:
            repo.root.mkdir()
        for call in (repo.log, lambda: repo.commit(["a"], "m", author="a")):
            with pytest.raises(VaultError):
                call()
    assert by_hand(tmp_path, "for-each-ref") == b""


@pytest.mark.parametrize("what", ["merge", "rebase", "cherry-pick", "revert", "bisect"])
def test_commit_does_not_disturb_a_merge_or_rebase_in_progress(
    what: str, root: Path, repo: Repository
) -> None:
    commit(repo, write(root, "a", "base\n"))
    by_hand(root, "checkout", "-qb", "side")
    commit(repo, write(root, "a", "side\n"))
    by_hand(root, "checkout", "-q", "main")
    commit(repo, write(root, "a", "main\n"))
    target = {"revert": "HEAD~1", "bisect": "start"}.get(what, "side")
    by_hand(root, what, target, fine=(0, 1))
    head = by_hand(root, "rev-parse", "HEAD")
    with pytest.raises(VaultError, match=f"a {what} is in progress"):
        repo.commit([write(root, "b")], "m", author="ana")
    with pytest.raises(VaultError, match="finish or abort"):
        repo.checkpoint("", "ana")
    assert by_hand(root, "rev-parse", "HEAD") == head
    assert repo.log()
    by_hand(root, what, "reset" if what == "bisect" else "--abort")
    commit(repo, "b")


def test_commit_works_with_sha256(root: Path) -> None:
    root.mkdir()
    by_hand(root, "init", "-q", "--object-format=sha256")
    repo = made(root)
    assert len(commit(repo, write(root, "a"))) == 64
    assert repo.checkpoint("", "ana") is None
    write(root, "a", "changed")
    assert "+changed" in repo.diff(since=None)


def test_commit_follows_a_branch_moved_meanwhile(
    root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, "ours")
    moved: list[int] = []
    real = program.Git.run

    def slow(self: program.Git, *arguments: str, **more: object) -> bytes:
        if arguments[0] == "update-ref" and not moved:
            moved.append(1)
            by_hand(root, "commit", "-q", "--allow-empty", "-m", "theirs", "--only")
        return real(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(program.Git, "run", slow)
    commit(repo, "ours", message="ours")
    assert [one.subject for one in repo.log()] == ["ours", "theirs", "vault init"]
    assert status(root) == []


def test_broken_repository_is_reported(root: Path, repo: Repository) -> None:
    shutil.rmtree(root / ".git" / "objects" / "pack")
    with pytest.raises(VaultError, match="git"):
        repo.commit([write(root, "a")], "m", author="ana")
    (root / ".git" / "HEAD").write_text("nonsense", encoding="utf-8")
    with pytest.raises(VaultError, match="git"):
        repo.commit(["a"], "m", author="ana")


# Locks, time limits and kills


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_stale_lock_is_removed(name: str, root: Path, repo: Repository) -> None:
    lock = root / ".git" / name
    lock.touch()
    os.utime(lock, (time.time() - STALE_LOCK_SECONDS - 1,) * 2)
    commit(repo, write(root, "a"))
    assert not lock.exists()
    assert status(root) == []


@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_commit_leaves_a_fresh_lock_alone_and_does_not_wait(
    name: str, root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LOCK_WAIT_SECONDS", 60)
    lock, began = root / ".git" / name, time.monotonic()
    lock.touch()
    with pytest.raises(GitBusy, match="another git process runs"):
        repo.commit([write(root, "a")], "m", author="ana")
    assert lock.exists()
    assert time.monotonic() - began < 30
    lock.unlink()
    commit(repo, "a")


def test_commit_under_a_held_index_lock_writes_no_objects(root: Path, repo: Repository) -> None:
    (root / ".git" / "index.lock").touch()
    with pytest.raises(GitBusy):
        repo.commit([write(root, "a")], "m", author="ana")
    assert by_hand(root, "fsck", "--no-dangling", "--unreachable") == b""


def test_other_commands_wait_for_a_fresh_lock(
    root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = root / ".git" / "index.lock"
    lock.touch()
    monkeypatch.setattr(time, "sleep", lambda _: lock.unlink(missing_ok=True))
    repo.git.run("read-tree", "HEAD")


def test_hanging_git_is_killed(
    root: Path, repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "git", "#!/bin/sh\nsleep 600 & echo $! > " + f"'{tmp_path}/pid'" + "\nwait\n")
    (tmp_path / "git").chmod(0o755)
    git = program.Git(str(tmp_path / "git"), root, root / ".git")
    monkeypatch.setattr(program, "git_version", lambda _: (2, 30))
    with pytest.raises(VaultError, match="took longer"):
        git.run("status", seconds=0.5)
    assert is_gone(int((tmp_path / "pid").read_text(encoding="utf-8")))
    with pytest.raises(VaultError), git.open_pipe("status", seconds=0.5) as pipe:
        pipe.line()
    assert is_gone(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_git_killed_after_the_ref_moved_has_committed(
    root: Path, repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = program.Git.run

    def ended(self: program.Git, *arguments: str, **more: Any) -> bytes:
        result = run(self, *arguments, **more)
        if arguments[0] == "update-ref":
            raise VaultError("git was ended")
        return result

    name = write(root, "a.md", "one\n")
    monkeypatch.setattr(program.Git, "run", ended)
    made = repo.commit([name], "a", author="ana")
    monkeypatch.undo()
    assert made == by_hand(root, "rev-parse", "HEAD").decode().strip()


def is_gone(pid: int) -> bool:
    for _ in range(200):
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
            )
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def children(pid: int) -> list[int]:
    """All that a process started, and they."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except OSError:
        return []
    own = [int(word) for word in text.split()]
    return [*own, *(below for one in own for below in children(one))]


@pytest.mark.parametrize("whom", ["us", "git"])
def test_commit_works_after_a_kill_at_any_point(whom: str, root: Path, repo: Repository) -> None:
    chance = random.Random(f"kill {whom}")
    made_before = 0
    for number in range(12 if PROVE else 3):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.vault.committer", str(root), str(number * 1000)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        last_line = process.stdout.readline().decode().strip()
        time.sleep(chance.random() * 0.15)
        left = children(process.pid)
        while whom == "git" and not left:
            left = children(process.pid)
        victim = process.pid if whom == "us" else left[0]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        time.sleep(0.02)
        process.kill()
        last_line = (process.stdout.read().decode().splitlines() or [last_line])[-1]
        process.wait()
        process.stdout.close()
        assert all(is_gone(pid) for pid in left)
        # Told as done means done.
        by_hand(root, "merge-base", "--is-ancestor", last_line, "HEAD")
        for lock in (root / ".git").rglob("*.lock"):
            os.utime(lock, (time.time() - 2 * STALE_LOCK_SECONDS,) * 2)
        names = [str(path.relative_to(root)) for path in root.glob("new/*")]
        changed = [*names, *(f"file {one}.md" for one in range(7))]
        repo.commit([*changed, write(root, "after", str(number))], f"after {number}", author="ana")
        assert status(root) == []
        assert repo.log(limit=1)[0].subject == f"after {number}"
        count = len(repo.log(limit=10_000))
        assert count > made_before
        made_before = count
    by_hand(root, "fsck", "--strict")
