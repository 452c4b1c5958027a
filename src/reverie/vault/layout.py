"""The folders of a vault: where each file belongs, and what a path means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from reverie.model import Memory, Scope
from reverie.vault import names

STATE_FOLDER = ".reverie"
INDEX = "MEMORY.md"
USERS, DELETED, SESSIONS = "users", "deleted", "sessions"
TURNS, SUMMARIES, SUMMARY = "turns", "summaries", "summary.md"
FOLDERS = {"fact": "facts", "note": "notes"}
_CONFLICT = ".conflict-v"
# The greatest size of one file of turns.
PART_BYTES = 256 * 1024
_PART = re.compile(rf"{TURNS}(-[1-9]\d*)?\.md", re.ASCII)


class ParsedPath(NamedTuple):
    """The meaning of a path: the owner of the file, and what it is in their folder.

    ``what``: memory, turns, summary, index or conflict.
    """

    scope: Scope
    what: str
    deleted: bool = False
    session: str | None = None
    kind: str | None = None


def owner_folder(scope: Scope) -> str:
    """Return the folder of an owner: that of the space, or of a user in it."""
    space = names.encode_folder(scope.space)
    return space if scope.user is None else f"{space}/{USERS}/{names.encode_folder(scope.user)}"


def session_folder(scope: Scope, session: str) -> str:
    return f"{owner_folder(scope)}/{SESSIONS}/{names.encode_folder(session)}"


def memory_folder(scope: Scope, memory: Memory) -> str:
    """Return the folder in which a new file of a memory is written."""
    session = memory.session
    above = owner_folder(scope) if session is None else session_folder(scope, session)
    return f"{above}/{FOLDERS[memory.kind]}"


def new_path(scope: Scope, memory: Memory, first: Memory) -> str:
    """Return the path that a new file of a memory gets: named after its first version."""
    name = names.file_name(memory.id, first.subject, first.content)
    path = f"{memory_folder(scope, memory)}/{name}"
    return path if memory.forgotten_at is None else to_deleted_path(scope, path)


def turns_path(scope: Scope, session: str, part: int) -> str:
    name = f"{TURNS}.md" if part == 1 else f"{TURNS}-{part}.md"
    return f"{session_folder(scope, session)}/{name}"


def summary_path(scope: Scope, session: str) -> str:
    return f"{session_folder(scope, session)}/{SUMMARIES}/{SUMMARY}"


def to_deleted_path(scope: Scope, path: str) -> str:
    """Return the path of a file in its owner's ``deleted/`` folder."""
    above, rest = _split_owner(scope, path)
    return f"{above}/{rest}" if rest.startswith(f"{DELETED}/") else f"{above}/{DELETED}/{rest}"


def from_deleted_path(scope: Scope, path: str) -> str:
    """Return the path of a file outside of its owner's ``deleted/`` folder."""
    above, rest = _split_owner(scope, path)
    return f"{above}/{rest.removeprefix(f'{DELETED}/')}"


def is_deleted(scope: Scope, path: str) -> bool:
    """Whether a file is in its owner's ``deleted/`` folder."""
    return _split_owner(scope, path)[1].startswith(f"{DELETED}/")


def _split_owner(scope: Scope, path: str) -> tuple[str, str]:
    """Split a path into the folder of its owner and the path in that folder.

    A person may have written ``Ana/`` instead of ``Ana=1/``, so the folder is taken from the path.
    """
    parts, many, own = path.split("/"), 1 if scope.user is None else 3, owner_folder(scope)
    above = "/".join(parts[:many])
    same = names.casefold_key(above) == names.casefold_key(own)
    return above if same else own, "/".join(parts[many:])


def conflict_path(path: str, version: int) -> str:
    """Return the path of the conflict copy beside a file."""
    return f"{path.removesuffix('.md')}{_CONFLICT}{version}.md"


def is_conflict(name: str) -> bool:
    """Whether a file name is that of a conflict copy."""
    stem, found, version = name.removesuffix(".md").rpartition(_CONFLICT)
    return bool(stem and found) and version.isdecimal()


def parse_path(path: str, cut: Mapping[str, str]) -> ParsedPath | None:
    """Parse a path below the root; None when it belongs to no space or is not Markdown.

    ``cut`` are the names of folders that are too long to be written whole.
    """
    parts = path.split("/")
    if len(parts) < 2 or not parts[-1].lower().endswith(".md") or is_misplaced(path):
        return None
    user: str | None = None
    space, rest = _name(parts[0], cut), parts[1:]
    if rest[0] == USERS and len(rest) > 2:
        user, rest = _name(rest[1], cut), rest[2:]
    if not space or user == "":
        return None
    scope = Scope(space, user)
    deleted = rest[0] == DELETED and len(rest) > 1
    rest = rest[1:] if deleted else rest
    session = None
    if rest[0] == SESSIONS and len(rest) > 2:
        session, rest = _name(rest[1], cut), rest[2:]
        if not session:
            return None
    kind = next((kind for kind, folder in FOLDERS.items() if rest[0] == folder), None)
    return ParsedPath(scope, _what(rest, session), deleted, session, kind)


def is_misplaced(path: str) -> bool:
    """Whether a user's file is outside of ``users/``, where it is neither theirs nor shared.

    That is the case below the space's ``deleted/``, and below ``Users/``, which some disks do not
    distinguish from ``users/``.
    """
    rest = path.split("/")[1:]
    deleted = bool(rest) and rest[0].lower() == DELETED
    rest = rest[1:] if deleted else rest
    return len(rest) > 2 and rest[0].lower() == USERS and (deleted or rest[0] != USERS)


def _what(rest: list[str], session: str | None) -> str:
    name = rest[-1]
    if is_conflict(name):
        return "conflict"
    if session is None:
        return "index" if rest == [INDEX] else "memory"
    if rest[0] == TURNS or (len(rest) == 1 and _PART.fullmatch(name)):
        return "turns"
    return "summary" if rest == [SUMMARIES, SUMMARY] else "memory"


def _name(folder: str, cut: Mapping[str, str]) -> str:
    return cut.get(folder, "") if names.is_truncated(folder) else names.decode_folder(folder)
