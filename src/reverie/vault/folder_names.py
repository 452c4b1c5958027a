"""Find out whose each folder of a vault is, and rename what an earlier version named.

Earlier versions encoded exact names in file names: ``Ana=1`` and ``my%20chat`` for folders, the id
of a memory in the name of its file. Exact names are in front matter and in ``names.json`` now.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

from reverie.dates import to_ms
from reverie.errors import InvalidInput
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.vault import disk, layout, names, render
from reverie.vault.git.commit import commit_pending, open_repository
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.git.process import GitBusy
from reverie.vault.log_position import SCANNED
from reverie.vault.vault import Vault
from reverie.write.secret_policy import Redaction

SUBJECT = "vault: name files and folders after what they hold"
EDITS_SUBJECT = "vault: what people changed before files were renamed"
# A fact of the file cache: front matter was compared with the recorded names.
_LEARNED = "learned"
_CAPITALS = re.compile(r"=([0-9a-f]{1,30})\Z")
_CUT = re.compile(r"~([0-9a-f]{16})\Z")
_FILE = re.compile(r"(?P<stem>.+)--(?P<id>[A-Za-z0-9]{8})(?:_[0-9a-f]{2})?(?:~\d+)?\.md", re.ASCII)


def ensure_names(vault: Vault, redaction: Redaction) -> None:
    """Make sure that it is recorded whose each folder is, and that all have today's names.

    With a new file cache, front matter is compared with the file of names, which may be lost or
    out of date. In a vault without that file, what an earlier version named is renamed, in one
    commit. The caller must hold the lock. After a kill the next call goes on, since the file of
    names is written last.
    """
    is_old = disk.stamp(vault.names_file) is None
    if not is_old and vault.files.fact(_LEARNED) is not None:
        return
    work = _FolderReader(vault)
    work.record()
    moves = work.plan_moves() if is_old else []
    if moves:
        with contextlib.suppress(GitBusy):
            commit_pending(vault, redaction)
            _commit_edits(vault, redaction, [old for old, _ in moves])
        # Done first: the indexes have to be written again, also after a kill.
        vault.files.drop_owners((), (SCANNED,))
    for old, new in moves:
        _move(vault, old, new)
    vault.files.set_meta(_LEARNED, "yes")
    vault.write_names(CommitPolicy(redaction).is_secret_name, check=True)
    if moves:
        _commit(vault, redaction)


def _commit_edits(vault: Vault, redaction: Redaction, paths: Iterable[str]) -> None:
    """Commit files as people left them, so that their edits are not part of the renaming."""
    repository = open_repository(vault, redaction)
    if repository is not None:
        repository.init()
        repository.commit(paths, EDITS_SUBJECT, author="")


def _commit(vault: Vault, redaction: Redaction) -> None:
    repository = open_repository(vault, redaction)
    if repository is None:
        return
    with contextlib.suppress(GitBusy):
        repository.init()
        pending = vault.files.pending()
        repository.commit({each.path for each in pending}, SUBJECT, author="")
        vault.files.committed(pending)


def _move(vault: Vault, old: str, new: str) -> None:
    """Move a file to its new path, or to a free one beside it."""
    new = vault.free_path(new) if new.endswith(".md") else new
    if os.path.lexists(vault.root / new):
        return
    if (known := vault.files.get(old)) is not None:
        vault.move(known, new)
        return
    disk.move(vault.root / old, vault.root / new)
    disk.prune((vault.root / old).parent, vault.root)
    with vault.files.together():
        for path in (old, new):
            vault.files.add_pending(vault.folders.space_at(new.partition("/")[0]), path)


class _FolderReader:
    """Reads from front matter and the vault's log whose each folder is."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        walked = disk.walk(vault.root, vault.root)
        self._paths = [path for path, _ in walked if "/" in path]
        self._known = {
            name
            for line in vault.log.lines()
            for key in ("space", "user", "session")
            if isinstance(name := line.get(key), str)
        }
        # The exact name of what each folder is for, and when each session began.
        self._told: dict[str, str] = {}
        self._begun: dict[str, int] = {}

    def record(self) -> None:
        """Record the folders whose names do not say whose they are."""
        for path in self._paths:
            if path.lower().endswith(".md"):
                self._read(path)
        folders = self._vault.folders
        for folder, name in self._told.items():
            above, _, component = folder.rpartition("/")
            is_new = component != name and not folders.is_recorded(above, name)
            if is_new and not _is_former(component, name):
                self._vault.record_folder(folder, name)

    def _read(self, path: str) -> None:
        """Read from a record of ours whose the folders above it are."""
        parts = path.split("/")
        above, _, rest = layout.split_path(parts)
        is_index, in_session = rest == [layout.INDEX], rest[0] == layout.SESSIONS and len(rest) > 2
        if not is_index and not in_session:
            return
        document = self._record_at(path)
        if document is None:
            return
        if is_index:
            self._note_owner(above[:1], document.text("space"))
            if len(above) > 1:
                self._note_owner(above, document.text("user"))
        elif (session := document.text("conversation_id")) is not None:
            at = _time(document)
            # Of an earlier version, which had no folders for months, or of this one.
            for depth in (2, 3):
                if len(rest) > depth and self._note_owner([*above, *rest[:depth]], session):
                    folder = "/".join([*above, *rest[:depth]])
                    self._begun[folder] = min(at, self._begun.get(folder, at))
                    return

    def _note_owner(self, folder: list[str], name: str | None) -> bool:
        """Note whose a folder is, if the folder may have been named so: a file may be a copy."""
        path, component = "/".join(folder), folder[-1]
        if not name:
            return False
        if not names.is_folder_of(component, name) and not _is_former(component, name):
            return False
        return self._told.setdefault(path, name) == name

    def _record_at(self, path: str) -> Document | None:
        """Read a file that Reverie wrote and nobody edited; None for others."""
        try:
            raw = disk.read(self._vault.root / path)
        except disk.UnreadableFile:
            return None
        return None if render.strip_seal(raw) is None else frontmatter.load(raw)

    # -- names of earlier versions ------------------------------------------------------------

    def plan_moves(self) -> list[tuple[str, str]]:
        """Return the files that have another path today, and that path."""
        # All former folders are recorded before any new one is chosen: nobody gets one of them.
        owners = {path: self._owner(path) for path in self._paths}
        found = [(path, self._new_path(path, *owner)) for path, owner in owners.items() if owner]
        return [(old, new) for old, new in found if old != new]

    def _owner(self, path: str) -> tuple[Scope, str | None] | None:
        """Return owner and session of a file; None when nobody that is known has its folder."""
        above, _, rest = layout.split_path(path.split("/"))
        space = self._exact(above[:1])
        user = self._exact(above) if len(above) > 1 else None
        if space is None or (len(above) > 1 and user is None):
            return None
        session = None
        if rest[0] == layout.SESSIONS and len(rest) > 2:
            folder = [*above, *rest[:2]]
            if "/".join(folder) in self._told or not layout.is_month(rest[1]):
                session = self._exact(folder)
        if _is_encoded(above[0]) and user is not None:
            # The folder of the space is renamed, and with it the path of each of its users.
            self._vault.record_folder("/".join(above), user, former=True)
        return Scope(space, user), session

    def _exact(self, folder: list[str]) -> str | None:
        """Return whose a folder is; one of an earlier version is recorded as a former one."""
        path, component = "/".join(folder), folder[-1]
        name = self._told.get(path) or self._decode(component)
        if name is not None and name != component and _is_encoded(component):
            self._vault.record_folder(path, name, former=True)
        return name

    def _new_path(self, path: str, scope: Scope, session: str | None) -> str:
        vault, (above, deleted, rest) = self._vault, layout.split_path(path.split("/"))
        vault.assign_owner(scope, again=True)
        owner = vault.folders.owner(scope)
        if session is not None:
            at = self._begun.get("/".join([*above, *rest[:2]]), 0)
            if _is_encoded(rest[1]):
                vault.record_folder(f"{owner}/{'/'.join(rest[:2])}", session, former=True)
            month = vault.assign_session(scope, session, at)
            rest = [*month.removeprefix(f"{owner}/").split("/"), *rest[2:]]
        return self._new_name(path, layout.relocate("/".join([owner, *rest]), deleted=deleted))

    def _new_name(self, old: str, new: str) -> str:
        """Return a path with the file's new name, without the id of its memory."""
        folder, _, name = new.rpartition("/")
        found = _FILE.fullmatch(name)
        if found is None:
            return new
        with contextlib.suppress(disk.UnreadableFile):
            document = frontmatter.load(disk.read(self._vault.root / old))
            if (document.text("id") or "").lower() == found["id"].lower():
                return f"{folder}/{found['stem']}.md"
        return new

    def _decode(self, component: str) -> str | None:
        """Return the known name that a folder was made from; None when there is none."""
        if component in self._known and not _is_encoded(component):
            return component
        return next((name for name in self._known if _is_former(component, name)), None)


def _time(document: Document) -> int:
    """Return when a record says that its session began."""
    try:
        return to_ms(document.text("created_at") or "", "created_at")
    except InvalidInput:
        return 0


def _is_former(component: str, name: str) -> bool:
    """Whether an earlier version named the folder of a name so."""
    if (cut := _CUT.search(component)) is not None:
        return hashlib.sha256(name.encode()).hexdigest()[:16] == cut[1]
    return _decode(component) == name


def _is_encoded(component: str) -> bool:
    """Whether a folder is named as an earlier version named some."""
    return _decode(component) != component or _CUT.search(component) is not None


def _decode(component: str) -> str:
    """Decode the name of a folder of an earlier version."""
    capitals = _CAPITALS.search(component)
    if capitals is None:
        return unquote(component, errors="replace")
    letters, places = unquote(component[: capitals.start()], errors="replace"), int(capitals[1], 16)
    return "".join(
        letter.upper() if places >> place & 1 else letter for place, letter in enumerate(letters)
    )
