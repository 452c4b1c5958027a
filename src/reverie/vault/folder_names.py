"""Give the files and folders of a vault of an earlier version the names they would get today.

Earlier versions encoded exact names in file names: ``Ana=1`` and ``my%20chat`` for folders, the id
of a memory in the name of its file. Exact names are in front matter and in ``names.json`` now.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

from reverie.dates import to_ms
from reverie.errors import InvalidInput
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.vault import disk, layout
from reverie.vault.git.commit import commit_pending, open_repository
from reverie.vault.git.process import GitBusy
from reverie.vault.vault import Vault
from reverie.write.secret_policy import Redaction

SUBJECT = "vault: name files and folders after what they hold"
_CAPITALS = re.compile(r"=([0-9a-f]{1,30})\Z")
_CUT = re.compile(r"~([0-9a-f]{16})\Z")
_FILE = re.compile(r"(?P<stem>.+)--(?P<id>[A-Za-z0-9]{8})(?:_[0-9a-f]{2})?(?:~\d+)?\.md", re.ASCII)


def ensure_names(vault: Vault, redaction: Redaction) -> bool:
    """Make sure that it is recorded whose each folder is, and that all have today's names.

    In a vault without a file of names, exact names are read from front matter and the log, and what
    an earlier version named is renamed, in one commit. The caller must hold the lock. After a kill
    the next call goes on, since the file of names is written last. Return whether there was
    something to do; the cache is empty then.
    """
    if disk.stamp(vault.names_file) is not None:
        return False
    # All files are read again afterwards, wherever they are then.
    vault.files.drop_owners(vault.files.scopes(), ())
    work = _Renaming(vault)
    moves = work.plan()
    if moves:
        with contextlib.suppress(GitBusy):
            commit_pending(vault, redaction)
    for old, new in moves:
        work.move(old, new)
    vault.write_names("")
    vault.files.look_again()
    if moves:
        _commit(vault, redaction)
    return True


def _commit(vault: Vault, redaction: Redaction) -> None:
    repository = open_repository(vault, redaction)
    if repository is None:
        return
    with contextlib.suppress(GitBusy):
        repository.init()
        pending = vault.files.pending()
        repository.commit({each.path for each in pending}, SUBJECT, author="")
        vault.files.committed(pending)


class _Renaming:
    """Finds out whose each folder is, and the new path of each file."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._known = {name for line in vault.log.lines() for name in _names_in(line)}
        # The exact name of what each folder is for, and when each session began.
        self._told: dict[str, str] = {}
        self._begun: dict[str, int] = {}

    def plan(self) -> list[tuple[str, str]]:
        """Return the files to move, with the new path of each."""
        paths = [path for path, _ in disk.walk(self._vault.root, self._vault.root) if "/" in path]
        for path in paths:
            if path.lower().endswith(".md"):
                self._read(path)
        for folder, name in self._told.items():
            if folder.rpartition("/")[2] != name and not _is_encoded(folder):
                self._vault.record_folder(folder, name)
        found = ((path, self._new_path(path)) for path in paths)
        return [(old, new) for old, new in found if old != new]

    def _read(self, path: str) -> None:
        """Read from front matter whose the folders of a file are."""
        session = layout.session_folder(path)
        is_index = path.endswith(f"/{layout.INDEX}")
        if session is None and not is_index:
            return
        document = self._document(path)
        above = path.split("/")[:-1]
        if is_index and (space := document.text("space")):
            self._told[above[0]] = space
            if user := document.text("user"):
                self._told["/".join(above)] = user
        if session is None or not (name := document.text("conversation_id")):
            return
        self._told[session] = name
        with contextlib.suppress(InvalidInput):
            at = to_ms(document.text("created_at") or "", "created_at")
            self._begun[session] = min(at, self._begun.get(session, at))

    def _new_path(self, path: str) -> str:
        above, deleted, rest = layout.split_path(path.split("/"))
        scope = Scope(self._exact(above[0]), self._exact("/".join(above)) if above[1:] else None)
        self._vault.assign_owner(scope)
        owner = self._vault.folders.owner(scope)
        if rest[0] == layout.SESSIONS and len(rest) > 2 and not layout.is_month(rest[1]):
            folder = "/".join([*above, *rest[:2]])
            session = self._exact(folder)
            # Git's history shows it below the former folder of the owner, and below the new one.
            self._vault.record_folder(f"{owner}/{'/'.join(rest[:2])}", session, former=True)
            month = self._vault.assign_session(scope, session, self._begun.get(folder, 0))
            rest = [*month.removeprefix(f"{owner}/").split("/"), *rest[2:]]
        new = "/".join([owner, *([layout.DELETED] if deleted else []), *rest])
        return self._new_name(path, new)

    def _exact(self, folder: str) -> str:
        """Return whose a folder is; one of an earlier version is recorded as a former one."""
        component = folder.rpartition("/")[2]
        name = self._told.get(folder) or self._decode(component)
        if name != component and _is_encoded(component):
            self._vault.record_folder(folder, name, former=True)
        return name

    def _decode(self, component: str) -> str:
        """Decode the name of a folder; one that gives no name that anybody has is the name."""
        if (cut := _CUT.search(component)) is not None:
            for name in self._known:
                if hashlib.sha256(name.encode()).hexdigest()[:16] == cut[1]:
                    return name
        decoded = _decode(component)
        return decoded if decoded in self._known else component

    def _new_name(self, old: str, new: str) -> str:
        """Return a path with the file's new name, without the id of its memory."""
        folder, _, name = new.rpartition("/")
        found = _FILE.fullmatch(name)
        if found is None or (self._document(old).text("id") or "").lower() != found["id"].lower():
            return new
        return f"{folder}/{found['stem']}.md"

    def _document(self, path: str) -> Document:
        try:
            return frontmatter.load(disk.read(self._vault.root / path))
        except disk.UnreadableFile:
            return Document({}, "", broken=True)

    def move(self, old: str, new: str) -> None:
        """Move a file to its new path, or to a free one beside it."""
        vault, source = self._vault, self._vault.root / old
        new = vault.free_path(new) if new.endswith(".md") else new
        if os.path.lexists(vault.root / new):
            return
        disk.move(source, vault.root / new)
        disk.prune(source.parent, vault.root)
        space = vault.folders.name_of(new.partition("/")[0])
        with vault.files.together():
            for path in (old, new):
                vault.files.add_pending(space, path)


def _is_encoded(folder: str) -> bool:
    """Whether a folder is named as an earlier version named some."""
    return _decode(folder) != folder or _CUT.search(folder) is not None


def _decode(component: str) -> str:
    """Decode the name of a folder of an earlier version."""
    capitals = _CAPITALS.search(component)
    if capitals is None:
        return unquote(component, errors="replace")
    letters, places = unquote(component[: capitals.start()], errors="replace"), int(capitals[1], 16)
    return "".join(
        letter.upper() if places >> place & 1 else letter for place, letter in enumerate(letters)
    )


def _names_in(line: dict[str, object]) -> Iterator[str]:
    """Yield the names of space, user and session in a line of the vault's log."""
    for key in ("space", "user", "session"):
        if isinstance(name := line.get(key), str):
            yield name
