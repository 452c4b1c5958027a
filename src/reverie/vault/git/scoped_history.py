"""The history of a vault, restricted to what one handle may see.

A commit covers a whole space, and the folder of a space contains those of its users. What belongs
to others is removed here, for the command line, REST and tools alike.
"""

from __future__ import annotations

import re
from dataclasses import replace

from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import UNNAMED, Scope
from reverie.text.normalize import one_line
from reverie.vault import layout, service
from reverie.vault.git.repo import CommitInfo
from reverie.vault.layout import Folders
from reverie.write import vault_link

MAX_COMMITS = 100
CHECKPOINT = "checkpoint: "
# A name that is not closed ends with the line: to start again at every quote would be quadratic.
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)')
_OCTAL = re.compile(r"\\([0-7]{3}|.)")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def history(space: Space, id: str | None = None, limit: int = 10) -> list[CommitInfo]:
    """Return the commits that changed files of this handle, or one memory's file, newest first."""
    scope, many, folders = Scope(space.name, space.user), limit, service.folders(space)
    while True:
        found = service.history(space, id, many)
        redacted = (_redact_commit(commit, scope, folders) for commit in found)
        seen = [commit for commit in redacted if commit is not None]
        if len(seen) >= limit or len(found) < many:
            return seen[:limit]
        many *= 4


def diff(space: Space, id: str | None = None, *, since: str | None = None) -> str:
    """Return the changes since a commit, or since the last one, as a unified diff."""
    said = service.diff(space, id, since=since)
    if space.user is not None:
        return said
    # Every line of a file has a sign before it, so this begins a file and nothing else does.
    head, *files = re.split(r"^(?=diff --git )", said, flags=re.MULTILINE)
    shared = service.folders(space).owner(Scope(space.name)).lower()
    # In lower case, since a disk may ignore case.
    others = (f"/{shared}/{layout.USERS}/", f"/{shared}/{layout.DELETED}/{layout.USERS}/")
    unnamed = f"/{service.folders(space).owner(Scope(space.name, UNNAMED)).lower()}/"

    def is_foreign(file: str) -> bool:
        line = _diff_line(file).replace(unnamed, f"/{shared}/")
        return any(folder in line for folder in others)

    return head + "".join(file for file in files if not is_foreign(file))


def checkpoint(space: Space, note: str = "") -> str | None:
    """Commit everything in the vault, in the name of this handle; None when nothing changed."""
    return service.checkpoint(Store(space.runtime), one_line(note), author=_author(space))


def find_memory_file(space: Space, id: str) -> tuple[str, str] | None:
    """Return the file of a memory: its path in the vault and its full path; None if none exists."""
    path = service.find_memory_file(space, id)
    if path is None:
        return None
    root = vault_link.find_path(space.runtime)
    assert root is not None
    return path.relative_to(root).as_posix(), str(path)


def _redact_commit(commit: CommitInfo, scope: Scope, folders: Folders) -> CommitInfo | None:
    """Return a commit without what belongs to others; None when nothing is left."""
    about = [path for path in commit.paths if not path.startswith(".")]
    seen = {Scope(scope.space, scope.user or UNNAMED), Scope(scope.space)}
    own = tuple(path for path in about if folders.owner_of(path) in seen)
    if about and not own:
        return None
    checkpoint = commit.subject.startswith(CHECKPOINT) and commit.author == _author(scope)
    if len(own) == len(about) or checkpoint:
        return replace(commit, paths=own)
    said = f"{scope.space}: {len(own)} file{'' if len(own) == 1 else 's'}"
    return replace(commit, paths=own, subject=said, body="")


def _author(who: Space | Scope) -> str:
    name = who.name if isinstance(who, Space) else who.space
    return name if who.user is None else f"{name}/{who.user}"


def _diff_line(file: str) -> str:
    """Return the first line of a file's diff, which names its paths, in lower case."""
    line = file.partition("\n")[0]
    return _QUOTED.sub(lambda found: _plain(found[1]), line).lower()


def _plain(quoted: str) -> str:
    """Decode a name that git wrote in quotes, with bytes in octal."""

    def each(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code, 8)) if len(code) == 3 else _NAMED.get(code, code)

    once = _OCTAL.sub(each, quoted)
    try:
        return once.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return once
