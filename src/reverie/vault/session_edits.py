"""Handle turns, summaries and indexes that people moved, edited or deleted.

They are records of what was said, so an edit changes nothing in the store. An edited text is kept
as a copy and the record is written again; a record that was moved is put back. Moving the folder of
a session to ``deleted/`` hides the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from reverie.engine import log, sessions
from reverie.memory.session import Session
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.text import frontmatter
from reverie.vault import disk, layout, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.index_file import write_index
from reverie.vault.layout import ParsedPath
from reverie.vault.session_files import conflict_name
from reverie.vault.vault import Vault
from reverie.vault.writer import Mirror

ACTOR = "vault"
DELETED = "its file was deleted"
MOVED = "its file was moved to deleted/"
_NEW = FileStamp(0, 0, 0)


class EditReport(Protocol):
    """The part of a sync's report that edits of session files are written to."""

    forgotten: list[str]
    restored: list[str]
    conflicts: list[str]


class SessionEdits:
    """Handles people's changes of session files. The caller must hold the lock of the vault."""

    def __init__(
        self,
        vault: Vault,
        store: Store,
        mirror: Mirror,
        report: EditReport,
        problem: Callable[[str, str], None],
    ) -> None:
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self._mirror = mirror
        self._report = report
        self._problem = problem
        self._touched: set[tuple[Scope, str]] = set()

    def touch(self, scope: Scope, session: str) -> None:
        """Mark a session, so that ``settle`` writes its missing files."""
        self._touched.add((scope, session))

    def settle(self) -> None:
        """Write the missing files of sessions whose files were moved or are out of date."""
        while self._touched:
            scope, session = self._touched.pop()
            owner = self._owner(scope)
            known = None if owner is None else self._find(owner, session)
            if owner is None or known is None:
                continue
            try:
                self._mirror.session_files.complete(owner, scope, known)
            except disk.UnusablePath as error:
                self._problem(layout.session_folder(scope, session), str(error))

    def changed(self, path: str, place: ParsedPath, raw: bytes, stamp: FileStamp) -> None:
        """Handle a session file that is new or differs from what was written."""
        known = self._vault.files.get(path)
        if known is not None and disk.digest(raw) == known.digest:
            self._vault.files.put(known._replace(stamp=stamp))
        elif (plain := render.strip_seal(raw)) is None or not self._own(
            path, place, raw, plain, stamp
        ):
            self._keep_beside(path, place, raw, known)

    def gone(self, file: VaultFile) -> None:
        """Hide a session whose files were deleted; write any other deleted file again."""
        vault = self._vault
        owner = self._owner(file.scope)
        known = None if owner is None else self._find(owner, file.name)
        if file.what != "turns" or known is None or known.hidden_at is not None:
            vault.files.drop(file.path)
            vault.files.add_pending(file.scope.space, file.path)
            return
        own = vault.files.of(file.scope, "turns", file.name)
        if known.position > vault.files.cursor(file.scope):
            # It went on since; the mirror writes it again.
            vault.files.drop(file.path)
        elif not all(vault.is_gone(each) for each in own):
            self._problem(file.path, "it was a part of a conversation: it is written again")
            vault.files.drop(file.path)
            self._write_anew(file)
        else:
            # What we knew of the files goes last, so that what is killed is done the next time.
            self._session(file.scope, file.name).hide(reason=DELETED)
            for each in own:
                vault.files.drop(each.path)
                vault.files.add_pending(file.scope.space, each.path)
            self._report.forgotten.append(file.path)

    # -- unchanged files that were moved ------------------------------------------------------

    def _own(
        self, path: str, place: ParsedPath, raw: bytes, plain: bytes, stamp: FileStamp
    ) -> bool:
        """Accept an unchanged file of ours; False when the store does not have its content."""
        if place.what == "index":
            whole = path == f"{layout.owner_folder(place.scope)}/{layout.INDEX}"
            if whole:
                self._put(VaultFile(path, "index", place.scope, "", 0, disk.digest(raw), stamp))
            else:
                self._problem(path, "a copy of an index: nothing was changed")
            return True
        document = frontmatter.load(raw)
        fields = document.fields
        session = str(fields.get("conversation_id", ""))
        owner = self._owner(place.scope)
        known = None if owner is None else self._find(owner, session)
        if session != place.session or owner is None or known is None:
            return self._put_back(path, place, raw)
        if place.what == "summary":
            number = render.parse_number(document.text("version"))
        else:
            version = str(fields.get("id", "")).rpartition(":")[2]
            apart = path.rpartition("/")[0].rpartition("/")[0].endswith(f"/{layout.TURNS}")
            told = [(turn.sequence, turn.text) for turn in render.parse_events(plain)]
            told = [(render.parse_number(version), document.content)] if apart else told
            if told and not self._mirror.session_files.holds(owner, place.scope, session, told):
                return False
            number = max(told)[0] if told else 0
        self._turned(path, place, known)
        self._put(
            VaultFile(path, place.what, place.scope, session, number, disk.digest(raw), stamp)
        )
        self._touched.add((place.scope, session))
        return True

    def _turned(self, path: str, place: ParsedPath, known: sessions.SessionRow) -> None:
        """Whether the files of a session were moved into or out of ``deleted/``."""
        turn = layout.from_deleted_path if place.deleted else layout.to_deleted_path
        was = self._vault.files.get(turn(place.scope, path))
        if was is None or not self._vault.is_gone(was):
            return
        self._vault.files.drop(was.path)
        self._vault.files.add_pending(place.scope.space, was.path)
        if place.what != "turns" or (known.hidden_at is not None) == place.deleted:
            return
        if self._lags(place.scope, known.session):
            return
        if place.deleted:
            self._session(place.scope, known.session).hide(reason=MOVED)
            self._report.forgotten.append(path)
        else:
            self._session(place.scope, known.session).restore()
            self._report.restored.append(path)

    def _lags(self, scope: Scope, session: str) -> bool:
        """Whether a session was hidden or restored since the last sync; then nobody moved its
        files: they are out of date."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
            entries = [] if owner is None else log.session_entries(tx, owner, session)
        turned = [entry.position for entry in entries if entry.op in {"hide", "restore"}]
        return max(turned, default=0) > self._vault.files.cursor(scope)

    def _put_back(self, path: str, place: ParsedPath, raw: bytes) -> bool:
        """Move a session file that was renamed, or moved to another owner, back to its path."""
        for file in self._vault.files.with_digest(place.what, disk.digest(raw)):
            if file.path != path and self._vault.is_gone(file):
                there = self._vault.path(file.path)
                disk.make_folder(there.parent)
                self._vault.path(path).rename(there)
                disk.prune(self._vault.path(path).parent, self._vault.root)
                self._problem(path, "records keep their names and owners: it was put back")
                return True
        self._problem(path, "the conversation is not known here: nothing was changed")
        return True

    # -- edited files -------------------------------------------------------------------------

    def _keep_beside(
        self, path: str, place: ParsedPath, raw: bytes, known: VaultFile | None
    ) -> None:
        """Keep a person's edit of a session file as a copy, and write the file again."""
        owner = self._owner(place.scope)
        if owner is None or (place.session and self._find(owner, place.session) is None):
            self._problem(path, "its name is kept for what Reverie writes: give it another")
            return
        wanted = layout.conflict_path(path, 0 if known is None else known.version)
        copy = self._vault.free_path(*_parted(wanted))
        name = conflict_name(place.session or "")
        stray = VaultFile(copy, "conflict", place.scope, name, 0, "", _NEW)
        self._vault.write(stray, raw)
        self._report.conflicts.append(
            f"{path}: it is a record and was written again; what you wrote is in "
            f"{copy.rpartition('/')[2]}"
        )
        if disk.digest(disk.read(self._vault.path(path))) == disk.digest(raw):
            disk.remove(self._vault.path(path))
            self._vault.files.drop(path)
            self._vault.files.add_pending(place.scope.space, path)
            self._write_anew(
                VaultFile(path, place.what, place.scope, place.session or "", 0, "", _NEW)
            )

    def _write_anew(self, file: VaultFile) -> None:
        owner = self._owner(file.scope)
        if owner is None:
            return
        conversations = self._mirror.session_files
        if file.what == "index":
            write_index(self._vault, self._runtime, owner, file.scope)
        elif file.what == "summary":
            conversations.write_summary(owner, file.scope, file.name)
        else:
            conversations.rewrite(owner, file.scope, file.name)

    # -- helpers ------------------------------------------------------------------------------

    def _put(self, file: VaultFile) -> None:
        self._vault.files.put(file)
        self._vault.files.add_pending(file.scope.space, file.path)

    def _owner(self, scope: Scope) -> Owner | None:
        with self._runtime.engine.read() as tx:
            return log.resolve_owner(tx, scope)

    def _find(self, owner: Owner, session: str) -> sessions.SessionRow | None:
        with self._runtime.engine.read() as tx:
            tx.enter(owner)
            return sessions.find(tx, owner, session)

    def _session(self, scope: Scope, session: str) -> Session:
        return self._store.space(scope.space, user=scope.user, actor=ACTOR).session(session)


def _parted(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name
