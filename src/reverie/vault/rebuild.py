"""Rebuild a store from its vault, or a vault from its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

from reverie.engine import index, log, sessions
from reverie.engine.schema import REPLAY_KEY
from reverie.errors import ReverieError, VaultError
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.protocols import Progress, Transaction
from reverie.text import frontmatter
from reverie.text.normalize import one_line
from reverie.transfer import log_replay
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import disk, layout, log_file, markdown_log
from reverie.vault.actions import ACTOR, MOVED, SyncReport
from reverie.vault.folder_names import ensure_names
from reverie.vault.git.commit import commit_pending
from reverie.vault.log_position import scope_of_line
from reverie.vault.log_reader import LogReader
from reverie.vault.markdown_log import MarkdownFile, MarkdownSession
from reverie.vault.session_files import MAX_EVENTS, SessionFiles
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from reverie.write import session_state, vault_link
from reverie.write.runtime import Runtime

# The key in the table meta that names the vault of an unfinished rebuild.
_MARK = "rebuilding"


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The number of entries of a rebuilt store, and how many were imported from Markdown."""

    entries: int
    from_files: int
    summaries: int
    synced: SyncReport
    problems: tuple[str, ...]


def from_vault(store: Store, root: str | Path, progress: Progress | None = None) -> RebuildReport:
    """Fill an empty store from a vault, which becomes the vault of the store.

    The vault's log is replayed. What it does not have is imported from the Markdown files, as a
    person's files are. If it is stopped, the next call continues.
    """
    path = Path(root).expanduser().absolute()
    with _opened(path) as vault, vault.locked():
        _begin(store.runtime, path)
        work = _Rebuild(vault, store, progress)
        try:
            work.replay_log()
        except BaseException:
            _unmark(store.runtime, _MARK, REPLAY_KEY, filled=False)
            raise
        work.import_files()
        summaries = work.restore_summaries()
        _unmark(store.runtime, REPLAY_KEY)
        report = work.settle(path)
        _unmark(store.runtime, _MARK)
        return RebuildReport(work.entries, work.from_files, summaries, report, tuple(work.problems))


class _Rebuild:
    """The steps that fill an empty store from a vault."""

    def __init__(self, vault: Vault, store: Store, progress: Progress | None) -> None:
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self._progress = progress
        self._now = store.runtime.clock.now()
        self.problems: list[str] = []
        self.entries = self.from_files = 0
        ensure_names(vault, store.runtime.redaction)
        self._sessions = markdown_log.read_sessions(markdown_log.read_files(vault, "turns"))

    def _replay(self, records: Iterable[ReplayRecord], whole: int) -> int:
        report = log_replay.replay(self._runtime, records, _counting(self._progress, whole))
        self.problems += report.skipped
        self.entries += report.added
        return report.added

    # -- the log ------------------------------------------------------------------------------

    def replay_log(self) -> None:
        """Replay the vault's own log, with events that only files have where the log lacks them."""
        reader = LogReader(self._vault.log.files(), self.problems.append)
        placed = reader.place(self._sessions, self._now)
        self._replay(reader.to_records(placed), len(reader) + len(placed))
        self.from_files += len(placed)
        if self.problems or placed:
            self._mend_log(placed)

    def _mend_log(self, placed: Iterable[ReplayRecord]) -> None:
        """Make the vault's log say what the store does; what was not replayed is set aside."""
        vault, changed = self._vault, list[Path]()
        with self._runtime.engine.read() as tx:
            for path in vault.log.files():
                raws = [raw.rstrip(b"\n") + b"\n" for raw in disk.lines(path) if raw.strip()]
                lines = [_as_replayed(tx, raw) for raw in raws]
                kept = b"".join(log_file.encode_line(line) for line in lines if line is not None)
                if kept != b"".join(raws):
                    others = b"".join(raw for raw, new in zip(raws, lines, strict=True) if not new)
                    disk.append(vault.own / log_file.DAMAGED_FILE, others)
                    disk.write(path, kept)
                    changed += [vault.own / log_file.DAMAGED_FILE, path]
            added = [line for each in placed if (line := _line_at(tx, each.scope, each.position))]
        _note(vault, self._store, *changed, *(vault.log.append(added) if added else ()))

    # -- files --------------------------------------------------------------------------------

    def import_files(self) -> None:
        """Import memories and events that files have and the log does not."""
        records = [*self._unknown_memories(), *map(self._later_events, self._sessions)]
        merged = list(merge(*records, key=lambda each: each.recorded_at))
        self.from_files += self._replay(merged, len(merged))
        for one in self._sessions:
            self._keep_unknown_events(one)

    def _unknown_memories(self) -> Iterator[list[ReplayRecord]]:
        """Yield a record for each file whose memory the store does not have."""
        seen_ids = set[tuple[str, str]]()
        for seen in markdown_log.read_files(self._vault, "memory"):
            document, scope = frontmatter.load(seen.raw), seen.place.scope
            id = markdown_log.memory_id(document)
            if id is None or (scope.space, id) in seen_ids or not one_line(document.content):
                continue
            with self._runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope) or log.resolve_owner(tx, Scope(scope.space))
                taken = owner is not None and log.id_taken(tx, owner, id)
            if not taken:
                seen_ids.add((scope.space, id))
                more = self._now, self._vault.folders, self.problems.append
                yield [markdown_log.memory_record(seen, document, id, *more)]

    def _known_events(self, one: MarkdownSession) -> set[int]:
        """Return the sequences that the log has of a session, erased ones included."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, one.scope)
            if owner is None:
                return set()
            entries = log.session_appends(tx, owner, one.session, 1, MAX_EVENTS)
        return {entry.sequence for entry in entries if entry.sequence is not None}

    def _find_session(self, one: MarkdownSession) -> sessions.SessionRow | None:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, one.scope)
            return None if owner is None else sessions.find(tx, owner, one.session)

    def _later_events(self, one: MarkdownSession) -> list[ReplayRecord]:
        """Return records for the events after the last one that the log has of a session."""
        known = self._find_session(one)
        last = 0 if known is None else known.last_sequence
        later = sorted(sequence for sequence in one.turns if sequence > last)
        return [markdown_log.event_record(one, sequence, self._now) for sequence in later]

    def _keep_unknown_events(self, one: MarkdownSession) -> None:
        """Make conflict copies of files whose events could not be imported, so that they stay."""
        vault = self._vault
        unknown = one.turns.keys() - self._known_events(one)
        for path in sorted({one.turns[sequence][0] for sequence in unknown}):
            copy = vault.free_path(layout.conflict_path(path, 0))
            vault.path(path).rename(vault.path(copy))
            vault.files.drop(path)
            _note(vault, self._store, vault.path(path), vault.path(copy))
            self.problems.append(
                f"{path}: the log has lost some of its events and has no place for them any more; "
                f"the file is kept as {copy.rpartition('/')[2]}"
            )

    def restore_summaries(self) -> int:
        """Read the summaries from their files; they are not in the log."""
        count = 0
        for seen in markdown_log.read_files(self._vault, "summary"):
            session = seen.place.session
            if session is None or not seen.path.endswith(f"/{layout.SUMMARY}"):
                continue
            try:
                count += self._restore_summary(seen, session)
            except ReverieError as error:
                self.problems.append(f"{seen.path}: {one_line(str(error))}")
        return count

    def _restore_summary(self, seen: MarkdownFile, session: str) -> bool:
        parsed = markdown_log.parse_summary(seen)
        with self._runtime.engine.write() as tx:
            owner = log.ensure_owner(tx, seen.place.scope.space, seen.place.scope.user)
            known = sessions.find(tx, owner, session)
            if parsed is None or session_state.read_summary(tx, owner, session).text:
                return False
            last = 0 if known is None else known.last_sequence
            text = self._runtime.redaction.text(
                parsed.text, "the summary", session_state.MAX_SUMMARY_CHARS
            )
            fitting = type(parsed)(text, parsed.epoch, min(parsed.upper, last))
            session_state.put_summary(tx, owner, session, fitting)
            return True

    def settle(self, path: Path) -> SyncReport:
        """Attach the vault to the store, fill the file cache, and read people's edits."""
        vault = self._vault
        vault.files.look_again()
        self._drop_outdated()
        vault_link.mark_created(self._runtime, str(path))
        vault_link.attach(self._runtime, str(path))
        self._apply_hidden()
        sync = Sync(vault, self._store)
        sync.everything()
        for scope, what, name in sync.completed:
            self.problems.append(f"{vault.folders.owner(scope)}: {what} {name} had no file")
        commit_pending(vault, self._runtime.redaction)
        return sync.report

    def _drop_outdated(self) -> None:
        """Drop files from the cache that show a version that the log has lost: they are read."""
        files, chosen = self._vault.files, index.Filter(include_forgotten=True, sessions=None)
        with self._runtime.engine.read() as tx:
            for scope in files.scopes():
                owner = log.resolve_owner(tx, scope)
                rows = [] if owner is None else index.list_memories(tx, owner, chosen)
                versions = {row.memory: row.version for row in rows}
                for file in files.list_type(scope, "memory"):
                    if file.version > versions.get(file.name, 0):
                        files.drop(file.path)

    def _apply_hidden(self) -> None:
        """Hide or restore sessions whose files were all moved into or out of ``deleted/``."""
        for one in self._sessions:
            known = self._find_session(one)
            if known is not None and one.deleted == {known.hidden_at is None}:
                space = self._store.scoped_space(one.scope, actor=ACTOR)
                handle = space.session(one.session)
                handle.restore() if known.hidden_at is not None else handle.hide(reason=MOVED)


def _line_at(tx: Transaction, scope: Scope, position: int) -> log_file.LogLine | None:
    """Return the line of the vault's log for an entry of the store, if there is one."""
    owner = log.resolve_owner(tx, scope)
    entry = None if owner is None else log.find_at_position(tx, owner, position)
    return None if entry is None else log_file.build_line(scope, entry)


def _as_replayed(tx: Transaction, raw: bytes) -> log_file.LogLine | None:
    """Return a line of the vault's log as the store has it; None when the store does not."""
    line = log_file.decode_line(raw)
    known = None if line is None else _line_at(tx, scope_of_line(line), line["position"])
    return known if known and line and known["uuid"] == line.get("uuid") else None


def _opened(path: Path) -> Vault:
    """Open the vault at a path, also a clone of it, or what Markdown files are left of it."""
    if Vault.exists(path):
        return Vault.open(path)
    parts = [found.relative_to(path).parts for found in sorted(path.glob("*/**/*.md"))]
    ours = {*layout.FOLDERS.values(), layout.SESSIONS}
    log_left = any((path / layout.STATE_FOLDER).glob("log*.jsonl"))
    if not log_left and not any(ours & {*each} for each in parts):
        raise VaultError(f"{path} is not a vault: there is nothing to rebuild from")
    apart = any(layout.TURNS in each for each in parts)
    return Vault.init(path, None, "apart" if apart else "together")


def _begin(runtime: Runtime, path: Path) -> None:
    """Mark the store as being rebuilt from a vault.

    Raises VaultError unless it is empty or holds only what an earlier attempt replayed.
    """
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        row = tx.one("SELECT value FROM meta WHERE key = ?", (_MARK,))
        filled = tx.one("SELECT 1 FROM log LIMIT 1") is not None
        if filled and (row is None or row[0] != str(path)):
            if (half := vault_link.read_partial_replay(tx)) is not None:
                raise VaultError(f"the store is not empty, and {half}")
            raise VaultError(
                "the store is not empty: give an empty one (--url), or write the vault again "
                "from this one with 'reverie vault rebuild --from store'"
            )
        for mark in (_MARK, REPLAY_KEY):
            tx.run("DELETE FROM meta WHERE key = ?", (mark,))
            tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (mark, str(path)))


def _unmark(runtime: Runtime, *marks: str, filled: bool = True) -> None:
    """Remove marks of a rebuild; without ``filled``, only if the store is still empty."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        if filled or tx.one("SELECT 1 FROM log LIMIT 1") is None:
            tx.many("DELETE FROM meta WHERE key = ?", [(mark,) for mark in marks])


def _counting(progress: Progress | None, whole: int) -> Callable[[int], None]:
    """Return a callback that adds up counts and reports the sum; ``whole`` is 0 if unknown."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, max(whole, done) if whole else 0)

    return advance


def _note(vault: Vault, store: Store, *paths: Path) -> None:
    """Record these files as pending, to be committed with the first space."""
    for space in store.spaces()[:1]:
        for path in paths:
            vault.files.add_pending(space.name, path.relative_to(vault.root).as_posix())


# -- a vault from the store -----------------------------------------------------------------------


def to_vault(store: Store, root: str | Path, progress: Progress | None = None) -> SyncReport:
    """Write the vault of a store again, with its log, to an empty folder or where it is.

    People's changes since the last sync are read first. Files keep their names and the keys that
    people added.
    """
    path = Path(root).expanduser().absolute()
    runtime = store.runtime
    if not Vault.exists(path):
        if path.is_dir() and any(each.name != ".git" for each in path.iterdir()):
            raise VaultError(f"{path} is neither empty nor a vault: choose another folder")
        Vault.init(path).close()
    with Vault.open(path) as vault, vault.locked():
        require_same_log(runtime, vault)
        sync = Sync(vault, store)
        sync.everything()
        _rewrite_vault(vault, store, progress)
        commit_pending(vault, runtime.redaction)
    vault_link.mark_created(runtime, str(path))
    vault_link.attach(runtime, str(path))
    return sync.report


def _rewrite_vault(vault: Vault, store: Store, progress: Progress | None) -> None:
    files = vault.files.below("")
    with vault.files.together():
        for file in files:
            # A version that none has: the mirror writes the file again, in its place.
            if file.what == "memory" and vault.unchanged_since_write(file):
                vault.files.put(file._replace(version=0))
        _note(vault, store, *vault.log.files())
        vault.files.forget_cursors()
    vault.log.clear()
    for scope, session in dict.fromkeys((f.scope, f.name) for f in files if f.what == "turns"):
        with store.runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
        if owner is not None:
            SessionFiles(vault, store.runtime).write(owner, scope, session, "rewrite")
    Sync(vault, store, progress=_counting(progress, 0)).everything()


def require_same_log(runtime: Runtime, vault: Vault) -> None:
    """Raise VaultError when the vault's log has entries that the store does not have."""
    with runtime.engine.read() as tx:
        for line in vault.log.lines():
            known = _line_at(tx, scope_of_line(line), line["position"])
            if known is None or known["uuid"] != line.get("uuid"):
                raise VaultError(
                    f"{vault.root} has log entries that this store lacks: it belongs to another "
                    "store, or rebuild an empty store from it with 'reverie vault rebuild'"
                )
