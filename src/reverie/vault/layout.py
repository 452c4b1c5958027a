"""The folders of a vault: where each file belongs, and what a path means."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal, NamedTuple

from reverie.model import UNNAMED, Memory, Scope
from reverie.vault import names

STATE_FOLDER = ".reverie"
INDEX = "MEMORY.md"
USERS, DELETED, SESSIONS = "users", "deleted", "sessions"
TURNS, SUMMARIES, SUMMARY = "turns", "summaries", "summary.md"
FOLDERS = {"fact": "facts", "note": "notes"}
_CONFLICT = ".conflict-v"
Turns = Literal["together", "apart"]
# The greatest size of one file of turns.
PART_BYTES = 256 * 1024
_PART = re.compile(rf"{TURNS}(-[1-9]\d*)?\.md", re.ASCII)
# A folder that holds the sessions of a month.
_MONTH = re.compile(r"\d{4}-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class VaultConfig:
    """The configuration of a vault, stored in ``vault.json``.

    ``spaces`` are the spaces that it shows, None for all. ``turns`` says whether the turns of a
    session are written together or each to a file of its own.
    """

    spaces: tuple[str, ...] | None = None
    turns: Turns = "together"

    def shows(self, space: str) -> bool:
        """Whether the vault shows a space."""
        return self.spaces is None or space in self.spaces


class ParsedPath(NamedTuple):
    """The meaning of a path: the owner of the file, and what it is in their folder.

    ``what``: memory, turns, summary, index or conflict.
    """

    scope: Scope
    what: str
    deleted: bool = False
    session: str | None = None
    kind: str | None = None


class Folders:
    """Which folder each space, user and session has.

    A folder is called like what it is for. ``recorded`` has the exact names, by the path of the
    folder, where that is not possible: two names that a disk does not distinguish, or characters
    that no file may have. ``former`` has the folders of earlier versions, which git's history
    still shows; nobody else ever gets one of them.
    """

    def __init__(
        self, recorded: Mapping[str, str] | None = None, former: Mapping[str, str] | None = None
    ) -> None:
        self._recorded: dict[str, str] = {}
        self._former = dict(former or {})
        self._paths: dict[tuple[str, str], str] = {}
        for path, name in (recorded or {}).items():
            self.record(path, name)

    def record(self, path: str, name: str) -> None:
        """Record whose a folder is."""
        self._recorded[path] = name
        self._paths[path.rpartition("/")[0], name] = path

    def record_former(self, path: str, name: str) -> None:
        """Record whose a folder was in an earlier version."""
        self._former[path] = name

    def as_json(self) -> dict[str, dict[str, str]]:
        return {
            "folders": dict(sorted(self._recorded.items())),
            "former": dict(sorted(self._former.items())),
        }

    # -- from names to paths ------------------------------------------------------------------

    def owner(self, scope: Scope) -> str:
        """Return the folder of an owner: that of the space, or of a user in it."""
        space = self.below("", scope.space)
        return space if scope.user is None else self.below(f"{space}/{USERS}", scope.user)

    def index(self, scope: Scope) -> str:
        """Return the path of an owner's index."""
        return f"{self.owner(scope)}/{INDEX}"

    def session(self, scope: Scope, session: str, at: int) -> str:
        """Return the folder of a session that began at this time."""
        return self.below(self.sessions(scope, at), session)

    def sessions(self, scope: Scope, at: int) -> str:
        """Return the folder of all sessions of an owner that began in one month."""
        return f"{self.owner(scope)}/{SESSIONS}/{month(at)}"

    def new_file(self, scope: Scope, memory: Memory, first: Memory) -> str:
        """Return the path for a new file of a memory: named after its first version."""
        session = memory.session
        above = self.owner(scope)
        if session is not None:
            above = self.session(scope, session, memory.created_at)
        path = f"{above}/{FOLDERS[memory.kind]}/{names.file_stem(first.subject, first.content)}.md"
        return relocate(path, deleted=memory.forgotten_at is not None)

    def below(self, above: str, name: str) -> str:
        """Return the folder of a name below another folder, or at the top of the vault.

        One that was not assigned yet and may be somebody else's gets a path that nobody has.
        """
        if (recorded := self._paths.get((above, name))) is not None:
            return recorded
        plain = names.folder_name(name)
        path = f"{above}/{plain}" if above else plain
        if plain == name and path not in self._recorded and path not in self._former:
            return path
        return f"{path}-{sha256(name.encode()).hexdigest()[:8]}"

    def is_recorded(self, above: str, name: str) -> bool:
        return (above, name) in self._paths

    def taken_below(self, above: str) -> set[str]:
        """Return the names of all recorded and former folders below another one."""
        every = (path.rpartition("/") for path in (*self._recorded, *self._former))
        return {component for folder, _, component in every if folder == above}

    def former_of(self, scope: Scope) -> list[str]:
        """Return the folders that an owner had in earlier versions."""
        return [path for path in self._former if self.owner_of(f"{path}/x") == scope]

    # -- from paths to names ------------------------------------------------------------------

    def parse(self, path: str) -> ParsedPath | None:
        """Parse a path below the root; None when it belongs to no space or is not Markdown."""
        return self._parse(path, history=False)

    def parse_history(self, path: str) -> ParsedPath | None:
        """Parse a path in git's history, where folders of earlier versions are."""
        return self._parse(path, history=True)

    def owner_of(self, path: str) -> Scope | None:
        """Return whose a file of any kind in git's history is; None when that is not certain."""
        above, _, rest = split_path(unicodedata.normalize("NFC", path).split("/"))
        is_users = len(above) == 1 and bool(rest) and rest[0].lower() == USERS
        if is_users or is_misplaced(path):
            return None
        return self._owner_at(above, history=True)

    def is_former(self, path: str) -> bool:
        """Whether a file lies in a folder that somebody had in an earlier version."""
        parts = unicodedata.normalize("NFC", path).split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return any(folder in self._former and folder not in self._recorded for folder in above)

    def space_at(self, folder: str) -> str:
        """Return the space of a folder at the top of the vault."""
        return self._recorded.get(folder, folder)

    def _parse(self, path: str, *, history: bool) -> ParsedPath | None:
        # macOS may list a name in another normal form than it was given.
        parts = unicodedata.normalize("NFC", path).split("/")
        if len(parts) < 2 or not parts[-1].lower().endswith(".md") or is_misplaced(path):
            return None
        above, deleted, rest = split_path(parts)
        scope, session = self._owner_at(above, history=history), None
        if scope is None:
            return None
        if (inner := _session_depth(rest)) is not None:
            session = self._name_of("/".join([*above, *rest[:inner]]), history=history)
            rest = rest[inner:]
            if not session:
                return None
        kind = next((kind for kind, folder in FOLDERS.items() if rest[0] == folder), None)
        return ParsedPath(scope, _what(rest, session), deleted, session, kind)

    def _owner_at(self, above: list[str], *, history: bool) -> Scope | None:
        """Return the owner of a folder; None when it is that of no space or user."""
        space = self._name_of(above[0], history=history)
        if not space or len(above) == 1:
            return Scope(space) if space else None
        if len(above) != 3 or above[1] != USERS:
            return None
        user = self._name_of("/".join(above), history=history)
        return Scope(space, user) if user else None

    def _name_of(self, path: str, *, history: bool) -> str | None:
        """Return the exact name of what a folder is for; None for one that is no longer used."""
        if path in self._recorded:
            return self._recorded[path]
        if path in self._former:
            return self._former[path] if history else None
        return path.rpartition("/")[2] or None


def origin_scopes(scope: Scope) -> tuple[Scope, ...]:
    """Return the owners whose turns a memory of this owner may come from.

    What is remembered without a user is shared; what is said without one is not.
    """
    return (scope,) if scope.user is not None else (Scope(scope.space, UNNAMED), scope)


def learning_scopes(scope: Scope) -> tuple[Scope, ...]:
    """Return the owners whose memories may come from turns of this owner."""
    return (scope, Scope(scope.space)) if scope.user == UNNAMED else (scope,)


def month(at: int) -> str:
    """Return the month of a time, as the folder of its sessions is called."""
    then = datetime.fromtimestamp(at / 1000, UTC)
    return f"{then.year:04d}-{then.month:02d}"


def is_month(component: str) -> bool:
    """Whether a folder may be that of the sessions of a month."""
    return _MONTH.fullmatch(component) is not None


def session_folder(path: str) -> str | None:
    """Return the folder of the session that a file belongs to, outside of ``deleted/``."""
    above, _, rest = split_path(path.split("/"))
    inner = _session_depth(rest)
    return None if inner is None else "/".join([*above, *rest[:inner]])


def split_path(parts: list[str]) -> tuple[list[str], bool, list[str]]:
    """Split a path into the folder of its owner, whether it is deleted, and the rest."""
    many = 3 if parts[1:2] == [USERS] and len(parts) > 3 else 1
    above, rest = parts[:many], parts[many:]
    deleted = rest[:1] == [DELETED] and len(rest) > 1
    return above, deleted, rest[1:] if deleted else rest


def _session_depth(rest: list[str]) -> int | None:
    """Return how many parts of a path in an owner's folder lead to a session; None without one."""
    if rest[0] != SESSIONS or len(rest) < 3:
        return None
    return 3 if is_month(rest[1]) and len(rest) > 3 else 2


def relocate(path: str, *, deleted: bool) -> str:
    """Return the path that a file has in its owner's ``deleted/`` folder, or outside of it."""
    above, _, rest = split_path(path.split("/"))
    return "/".join([*above, *([DELETED] if deleted else []), *rest])


def is_deleted(path: str) -> bool:
    """Whether a file is in its owner's ``deleted/`` folder."""
    return split_path(path.split("/"))[1]


def conflict_path(path: str, version: int) -> str:
    """Return the path of the conflict copy beside a file."""
    return f"{path.removesuffix('.md')}{_CONFLICT}{version}.md"


def is_conflict(name: str) -> bool:
    """Whether a file name is that of a conflict copy."""
    stem, found, version = name.removesuffix(".md").rpartition(_CONFLICT)
    return bool(stem and found) and version.partition("-")[0].isdecimal()


def is_index_copy(name: str) -> bool:
    """Whether a conflict copy is that of an index, and of no memory."""
    return name.startswith(f"{INDEX.removesuffix('.md')}{_CONFLICT}")


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
