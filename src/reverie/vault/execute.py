"""Execute the actions of a plan, one by one. Each may be repeated after a kill between any two."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from reverie.engine import log, sessions
from reverie.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    SharedReadOnly,
    StoreError,
    VaultError,
)
from reverie.memory.space import Space
from reverie.memory.store import Store
from reverie.model import KINDS, Memory, Origin, Scope, Trust
from reverie.protocols import Owner
from reverie.vault import actions as act
from reverie.vault import disk, edits, layout, log_erasure, render
from reverie.vault.actions import ACTOR, Action, SyncReport
from reverie.vault.file_cache import VaultFile
from reverie.vault.index_file import write_index
from reverie.vault.log_position import LogPosition
from reverie.vault.plan_edits import conflict_name
from reverie.vault.session_files import SessionFiles
from reverie.vault.state import MemoryHistory
from reverie.vault.vault import FileChanged, Vault

# With more files, all are synced at the end and not one by one.
SYNC_EACH_LIMIT = 16
# Errors that concern one file, memory or session. Others, such as a full disk, end the run, which
# is tried again.
ONE_FILE = (disk.UnusablePath, InvalidInput, Conflict, NotFound, SharedReadOnly)
# Actions that change the store from a file. One that failed is planned again from its file in the
# next run; a file that was not written because the store was busy would not be.
FROM_FILES = (act.Remember, act.Revise, act.Forget, act.Restore, act.SwitchSession)


class Executor:
    """Executes actions on a store and its vault. The caller must hold the lock of the vault."""

    def __init__(
        self,
        vault: Vault,
        store: Store,
        position: LogPosition,
        report: SyncReport,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self._position = position
        self._report = report
        self._progress = progress
        self._session_files = SessionFiles(vault, store.runtime)
        self._sync_each = True
        # The subjects (``Action.about``) of failed actions; their other actions are left out.
        self.failed: set[str] = set()
        # Whether something that was erased is still in a file, so that the run has to be repeated.
        self.incomplete = False

    def execute(self, actions: Sequence[Action], *, may_replan: bool = False) -> bool:
        """Execute actions in order; one that concerns a single file and fails is reported.

        Return False at the first file that was changed since the plan, if it may be planned again.
        """
        written = sum(isinstance(action, act.WriteMemory) for action in actions)
        self._sync_each = written <= SYNC_EACH_LIMIT
        for action in actions:
            if action.about in self.failed:
                continue
            try:
                self._do(action)
            except (*ONE_FILE, disk.FileVanished, StoreError) as error:
                if may_replan and isinstance(error, FileChanged | disk.FileVanished):
                    return False
                busy = isinstance(error, StoreError) and not isinstance(action, FROM_FILES)
                if busy or isinstance(error, disk.FileVanished):
                    raise
                self.fail(action, str(error))
        return True

    def fail(self, action: Action, why: str) -> None:
        """Report an action that had no effect, and leave out the others about the same."""
        self.failed.add(action.about)
        self._report.add_problem(action.about, why)
        if (scope := _erased_scope(action)) is not None:
            # The vault's log is not continued: its last line says that the files are up to date.
            self.failed.add(self._vault.folders.owner(scope))
            self.incomplete = True

    def _do(self, action: Action) -> None:
        _HANDLERS[type(action)](self, action)

    def _add_to_report(self, action: act.Report) -> None:
        if action.list == "problems":
            self._report.add_problem(action.about, action.text)
        else:
            getattr(self._report, action.list).append(action.text)

    # -- the store ----------------------------------------------------------------------------

    def _space(self, scope: Scope, session: str | None, trust: Trust = "person") -> Space:
        """Return the handle that writes for people's files, of a session if one is given."""
        space = self._store.scoped_space(scope, actor=ACTOR, trust=trust)
        return space if session is None else space.session(session).space

    def _owner(self, scope: Scope) -> Owner:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
        if owner is None:
            raise InvalidInput(f"this store has no space {scope.space}")
        return owner

    def _remember(self, action: act.Remember) -> None:
        file = action.file
        document, place = file.document, file.place
        kind = place.kind or document.text("kind")
        longer = len(document.content) > self._store.settings.fact_chars
        kind = kind if kind in KINDS and not (kind == "fact" and longer) else None
        handle = self._space(place.scope, place.session, edits.parse_trust(document))
        memory = handle.remember_separately(
            document.content,
            kind=kind or ("note" if longer else "fact"),
            # The stamp makes the key differ when the same file is written again later.
            key=f"vault:{disk.digest(repr((file.path, file.stamp, file.raw)).encode())}",
            source=document.text("source") or None,
            happened_at=document.text("happened_at") or None,
            expires_at=document.text("expires_at") or None,
            valid_from=document.text("valid_from") or None,
            valid_to=document.text("valid_to") or None,
            **edits.add_inline_tags(edits.parse_labels(document), document.content),
        )
        if action.unknown_id is not None:
            why = f"memory {action.unknown_id} is not known here: remembered as {memory.id}"
            self._report.add_problem(file.path, why)
        if place.deleted:
            handle.forget(memory.id, reason=act.MOVED)
        self._report.remembered.append(file.path)
        # A killed run may have led to another file for the memory.
        others = self._vault.files.of(place.scope, "memory", memory.id)
        self._put(file.as_known(memory.id))
        for other in others:
            if other.path != file.path and self._vault.unchanged_since_write(other):
                self._vault.remove(other)

    def _revise(self, action: act.Revise) -> None:
        file, current = action.file, action.memory
        handle = self._space(file.place.scope, current.session)
        if action.restore:
            current = handle.restore(current.id)
        text = file.document.content.encode("utf-8", "surrogatepass")
        digest = disk.digest(text + repr(sorted(action.labels.items())).encode())
        handle.revise(
            current.id,
            action.content,
            expected_version=current.version,
            key=f"vault:{current.id}:{current.version}:{digest}",
            reason=act.EDITED,
            **action.labels,
        )
        self._report.revised.append(file.path)
        if action.forget:
            handle.forget(current.id, reason=act.MOVED)

    def _forget(self, action: act.Forget) -> None:
        handle = self._space(action.scope, action.memory.session)
        handle.forget(action.memory.id, reason=action.reason, key=action.key)
        self._count_deletion(action.scope, action.reason)
        self._report.forgotten.append(action.about)

    def _restore(self, action: act.Restore) -> None:
        self._space(action.scope, action.memory.session).restore(action.memory.id)
        self._report.restored.append(action.about)

    def _switch_session(self, action: act.SwitchSession) -> None:
        session = self._space(action.scope, None).session(action.session)
        if action.reason is None:
            session.restore()
            self._report.restored.append(action.about)
        else:
            session.hide(reason=action.reason)
            self._count_deletion(action.scope, action.reason)
            self._report.forgotten.append(action.about)

    def _count_deletion(self, scope: Scope, reason: str) -> None:
        """Count what was forgotten because its file was deleted; many at once are asked about."""
        if reason == act.DELETED:
            self._vault.files.note_forgotten(scope, self._runtime.clock.now())

    # -- files --------------------------------------------------------------------------------

    def _write_memory(self, action: act.WriteMemory) -> None:
        vault, memory, file = self._vault, action.history.current, action.before
        path, before = action.path, None
        if file is not None:
            before = self._raw(file)
            if before is None and vault.is_missing(file.path):
                raise FileChanged(f"{file.path} was deleted just now")
        if file is None or path != file.path:
            path = self._own_or_free(path, memory, is_new=file is None)
        raw = self._render(action.history, before)
        said = render.first_line(memory.content)
        line = f"{said} ({action.op} {memory.id})" if action.op else ""
        new = VaultFile(path, "memory", action.history.scope, memory.id, memory.version)
        if file is not None and path == file.path and raw == before:
            vault.files.put(new._replace(digest=file.digest, stamp=file.stamp))
            if action.op == "import":
                vault.files.add_pending(new.scope.space, path, line)
            return
        vault.write(new, raw, line, sync=self._sync_each)
        # Removed last, so that the memory has a file at every moment. An edited file stays.
        if file is not None and file.path != path and vault.unchanged_since_write(file):
            vault.remove(file)

    def _render(self, history: MemoryHistory, before: bytes | None) -> bytes:
        origin = self._turn_link(history.scope, history.origin)
        try:
            return render.memory_file(history.current, before, origin, history.subjects)
        except VaultError as error:
            raise disk.UnusablePath(str(error)) from error

    def _turn_link(self, scope: Scope, origin: Origin | None) -> str | None:
        """Return a link to the turn that a memory came from, if the vault has it."""
        if origin is None:
            return None
        links = (self._link_in(each, origin) for each in layout.origin_scopes(scope))
        return next(filter(None, links), None)

    def _link_in(self, scope: Scope, origin: Origin) -> str | None:
        """Return a link to a turn, if this owner has it and the vault shows it."""
        files = self._vault.files.of(scope, "turns", origin.session)
        # The version of a file of turns is the last sequence in it.
        later = [file for file in files if file.version >= origin.sequence]
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
            entry = None if owner is None else sessions.find_event_entry(tx, owner, origin)
        if not later or entry is None or entry.body is None:
            return None
        path = min(later, key=lambda file: file.version).path
        if self._vault.config.turns == "apart":
            return render.wiki_link(path)
        role = str(entry.body["message"].get("role", ""))
        return render.wiki_link(path, render.turn_title(origin.sequence, role))

    def _raw(self, file: VaultFile) -> bytes | None:
        try:
            return disk.read(self._vault.path(file.path))
        except disk.UnreadableFile:
            return None

    def _own_or_free(self, path: str, memory: Memory, *, is_new: bool) -> str:
        """Return the path, or a free one if another file has it.

        After a kill the file at the path may be that of this memory; a deleted file is written
        again where it was.
        """
        vault, known = self._vault, self._vault.files.get(path)
        if (
            known is not None
            and known.name == memory.id
            and (vault.is_missing(path) or vault.unchanged_since_write(known))
        ):
            return path
        return vault.roomy_path(path, memory.created_at) if is_new else vault.free_path(path)

    def _remove_file(self, action: act.RemoveFile) -> None:
        if action.erased or self._vault.unchanged_since_write(action.file):
            self._vault.remove(action.file)

    def _put_back(self, action: act.PutBack) -> None:
        source, target = self._vault.path(action.about), self._vault.path(action.target)
        disk.move(source, target)
        disk.prune(source.parent, self._vault.root)

    def _keep_store_version(self, action: act.KeepStoreVersion) -> None:
        memory, vault = action.memory, self._vault
        copy = layout.conflict_path(action.about, memory.version)
        known = vault.files.get(copy)
        if vault.stamp(copy) is not None and (
            known is None or not vault.unchanged_since_write(known)
        ):
            copy = vault.free_path(copy)
        file = VaultFile(copy, "conflict", action.scope, memory.id, memory.version)
        vault.write(file, render.conflict_file(memory))
        self._report.conflicts.append(
            f"{action.about}: edited here and in the store; the file's text is used, and the "
            f"store's version {memory.version} is kept beside it as {copy.rpartition('/')[2]}"
        )

    def _keep_edit(self, action: act.KeepEdit) -> None:
        vault, file = self._vault, action.file
        copy = vault.free_path(layout.conflict_path(file.path, action.version))
        scope, own = file.place.scope, conflict_name(file.place.session or "")
        shown = "/".join(filter(None, (file.place.session, file.path.rpartition("/")[2])))
        vault.write(VaultFile(copy, "conflict", scope, own, 0), file.raw, act.COPY_KEPT + shown)
        self._report.conflicts.append(
            f"{file.path}: it is a record and was written again; what you wrote is in "
            f"{copy.rpartition('/')[2]}"
        )
        if disk.digest(disk.read(vault.path(file.path))) == file.digest:
            disk.remove(vault.path(file.path))
            vault.files.drop(file.path)
            vault.files.add_pending(scope.space, file.path)

    def _write_session(self, action: act.WriteSession) -> None:
        owner = self._owner(action.scope)
        self._session_files.write(owner, action.scope, action.session, action.how)

    def _write_index(self, action: act.WriteIndex) -> None:
        write_index(self._vault, self._runtime, self._owner(action.scope), action.scope)

    # -- the cache ----------------------------------------------------------------------------

    def _put(self, file: VaultFile, line: str = "") -> None:
        self._vault.files.put(file)
        self._vault.files.add_pending(file.scope.space, file.path, line)

    def _adopt(self, action: act.Adopt) -> None:
        self._put(action.file, action.line)

    def _drop(self, action: act.Drop) -> None:
        file, now = action.file, self._vault.files.get(action.file.path)
        # Another file may have been recorded at the path since.
        same = now is not None and now[1:4] == file[1:4]
        with self._vault.files.together():
            if same:
                self._vault.files.drop(file.path)
            self._vault.files.add_pending(file.scope.space, file.path)

    # -- the log ------------------------------------------------------------------------------

    def _erase_from_log(self, action: act.EraseFromLog) -> None:
        log_erasure.erase(
            *(self._vault, self._runtime, self._owner(action.scope), action.scope),
            *(action.entries, action.memories, action.sessions),
        )

    def _append_log(self, action: act.AppendLog) -> None:
        if not self._sync_each:
            os.sync()
        self._position.append(action.scope, action.entries)
        if self._progress is not None:
            self._progress(len(action.entries))


def _erased_scope(action: Action) -> Scope | None:
    """Return the owner of what an action was to erase from files."""
    if isinstance(action, act.RemoveFile) and action.erased:
        return action.file.scope
    if isinstance(action, act.WriteSession) and action.how == "erase":
        return action.scope
    return action.scope if isinstance(action, act.EraseFromLog) else None


_HANDLERS: dict[type[Action], Callable[[Executor, Any], None]] = {
    act.Report: Executor._add_to_report,
    act.Remember: Executor._remember,
    act.Revise: Executor._revise,
    act.Forget: Executor._forget,
    act.Restore: Executor._restore,
    act.SwitchSession: Executor._switch_session,
    act.WriteMemory: Executor._write_memory,
    act.RemoveFile: Executor._remove_file,
    act.PutBack: Executor._put_back,
    act.KeepStoreVersion: Executor._keep_store_version,
    act.KeepEdit: Executor._keep_edit,
    act.WriteSession: Executor._write_session,
    act.WriteIndex: Executor._write_index,
    act.Adopt: Executor._adopt,
    act.Drop: Executor._drop,
    act.EraseFromLog: Executor._erase_from_log,
    act.AppendLog: Executor._append_log,
}
