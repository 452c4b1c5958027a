"""Rebuild a store from its vault, or a vault from its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from reverie.engine import log, sessions
from reverie.engine.schema import REPLAY_KEY
from reverie.errors import ReverieError, VaultError
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.normalize import one_line
from reverie.transfer import log_replay
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import (
    disk,
    layout,
    log_file,
    markdown_log,
)
from reverie.vault.actions import MOVED, SyncReport
from reverie.vault.execute import ACTOR
from reverie.vault.git.commit import commit_pending
from reverie.vault.log_reader import LogReader, problem
from reverie.vault.markdown_log import MarkdownFile
from reverie.vault.session_files import SessionFiles
from reverie.vault.sync import Sync
from reverie.vault.vault import Vault
from reverie.write import session_state, vault_link
from reverie.write.runtime import Runtime

Progress = Callable[[int, int], None]
# The key in the table meta that names the vault of an unfinished rebuild.
_MARK = "rebuilding"
BATCH = 500


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The number of entries of a rebuilt store, and how many came from Markdown alone."""

    entries: int
    from_files: int
    summaries: int
    synced: SyncReport
    problems: tuple[str, ...]


def from_vault(store: Store, root: str | Path, progress: Progress | None = None) -> RebuildReport:
    """Fill an empty store from a vault, which becomes the vault of the store.

    The vault's log is replayed. What the log has lost, and edits that it does not have yet, are
    read from the Markdown files. If it is stopped, the next call continues.
    """
    path = Path(root).expanduser().absolute()
    with _opened(path) as vault, vault.locked():
        _begin(store.runtime, path)
        work = _Rebuild(vault, store, progress)
        try:
            work.replay_log()
        except BaseException:
            _abandon(store.runtime)
            raise
        work.replay_memories()
        summaries = work.restore_summaries()
        _end(store.runtime, REPLAY_KEY)
        report = work.settle(path)
        _end(store.runtime, _MARK)
        return RebuildReport(work.entries, work.from_files, summaries, report, tuple(work.problems))


class _Rebuild:
    """The steps that fill an empty store from a vault."""

    def __init__(self, vault: Vault, store: Store, progress: Progress | None) -> None:
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self._progress = progress
        self.problems: list[str] = []
        self.entries = self.from_files = 0
        markdown_log.load_names(vault)

    def _replay(self, told: Iterable[ReplayRecord], whole: int) -> int:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if self._progress is not None:
                self._progress(done, max(whole, done))

        report = log_replay.replay(self._runtime, told, advance)
        self.problems += report.skipped
        self.entries += report.added
        return report.added

    def replay_log(self) -> None:
        """Replay the vault's own log, and the events that it has lost and files still show."""
        book = LogReader(self._vault.journal.files(), self.problems.append)
        talks = markdown_log.read_sessions(markdown_log.read_files(self._vault, "turns"))
        now = self._runtime.clock.now()
        for line, _ in book.lines():
            self._vault.record_names(Scope(line["space"], line["user"]), line.get("session"))
        if len(book):
            filled = book.fill_gaps(talks, now)
        else:
            told = [markdown_log.session_records(one, now) for one in talks]
            filled = markdown_log.merge_by_time([*told, *self._unknown_memories()])
        self._replay(book.to_records(filled), len(book) + len(filled))
        self.from_files += len(filled)
        self._note_filled([each for each in filled if each.position])
        if self.problems:
            self._set_aside_damaged()

    def _note_filled(self, filled: Sequence[ReplayRecord]) -> None:
        """Add the entries that filled gaps to the vault's log, so that it is complete again."""
        lines = []
        known = self._vault.journal.cursors() if filled else {}
        for scope, _, _, position in filled:
            with self._runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope)
                entry = None if owner is None else log.find_at_position(tx, owner, position)
            if entry is not None and position <= known.get(scope, 0):
                lines.append(log_file.build_line(scope, entry))
        if lines:
            self._vault.journal.append(lines)

    def _set_aside_damaged(self) -> None:
        """Move lines that could not be replayed out of the log, which lists what is mirrored."""
        for path in self._vault.journal.files():
            with path.open("rb") as file:
                raws = [raw.rstrip(b"\n") + b"\n" for raw in file if raw.strip()]
            others = [raw for raw in raws if not self._is_replayed(raw)]
            if others:
                aside, left = self._vault.own / log_file.DAMAGED_FILE, set(others)
                disk.append(aside, b"".join(others))
                disk.write(path, b"".join(raw for raw in raws if raw not in left))
                _note(self._vault, self._store, path, aside)

    def _is_replayed(self, raw: bytes) -> bool:
        line = log_file.decode_line(raw)
        if line is None or problem(line) is not None:
            return False
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, Scope(line["space"], line["user"]))
            entry = None if owner is None else log.find_at_position(tx, owner, line["position"])
        return entry is not None and entry.uuid == line["uuid"]

    def replay_memories(self) -> None:
        """Add the memories of which the log has no version, from their files."""
        told = markdown_log.merge_by_time(self._unknown_memories())
        self.from_files += self._replay(told, len(told))

    def _unknown_memories(self) -> list[list[ReplayRecord]]:
        """Return the records of each file whose memory the store does not have."""
        told, seen_ids = list[list[ReplayRecord]](), set[tuple[str, str]]()
        now = self._runtime.clock.now()
        for seen in markdown_log.read_files(self._vault, "memory"):
            document = frontmatter.load(seen.raw)
            id = markdown_log.memory_id(document)
            name = (seen.place.scope.space, id or "")
            if id is None or name in seen_ids or self._is_taken(seen.place.scope, id):
                continue
            seen_ids.add(name)
            told.append(markdown_log.memory_records(seen, document, now, self.problems.append))
        return told

    def _is_taken(self, scope: Scope, id: str) -> bool:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope) or log.resolve_owner(tx, Scope(scope.space))
            return owner is not None and log.id_taken(tx, owner, id)

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
        told = markdown_log.parse_summary(seen)
        with self._runtime.engine.write() as tx:
            owner = log.ensure_owner(tx, seen.place.scope.space, seen.place.scope.user)
            known = sessions.find(tx, owner, session)
            if told is None or session_state.read_summary(tx, owner, session).text:
                return False
            last = 0 if known is None else known.last_sequence
            text = self._runtime.redaction.text(
                told.text, "the summary", session_state.MAX_SUMMARY_CHARS
            )
            fitting = type(told)(text, told.epoch, min(told.upper, last))
            session_state.put_summary(tx, owner, session, fitting)
            return True

    def settle(self, path: Path) -> SyncReport:
        """Attach the vault to the store, fill the file cache, and read people's edits."""
        vault = self._vault
        vault.files.look_again()
        vault_link.mark_created(self._runtime, str(path))
        vault_link.attach(self._runtime, str(path))
        self._apply_hidden()
        sync = Sync(vault, self._store)
        sync.everything()
        for scope, what, name in sync.completed:
            self.problems.append(f"{layout.owner_folder(scope)}: {what} {name} had no file")
        commit_pending(vault, self._runtime.redaction)
        return sync.report

    def _apply_hidden(self) -> None:
        """Hide or restore sessions whose files were all moved into or out of ``deleted/``."""
        deleted: dict[tuple[Scope, str], set[bool]] = {}
        for seen in markdown_log.read_files(self._vault):
            place = seen.place
            if place.what == "turns" and place.session is not None:
                deleted.setdefault((place.scope, place.session), set()).add(place.deleted)
        for (scope, session), places in deleted.items():
            with self._runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope)
                known = None if owner is None else sessions.find(tx, owner, session)
            if known is None or places != {known.hidden_at is None}:
                continue
            handle = self._store.space(scope.space, user=scope.user, actor=ACTOR).session(session)
            handle.restore() if known.hidden_at is not None else handle.hide(reason=MOVED)


def _opened(path: Path) -> Vault:
    """Open the vault at a path, also a clone of it, or what Markdown files are left of it."""
    if Vault.exists(path):
        return Vault.open(path)
    parts = [found.relative_to(path).parts for found in sorted(path.glob("*/**/*.md"))]
    ours = {*layout.FOLDERS.values(), layout.SESSIONS}
    log_left = any((path / layout.STATE_FOLDER).glob("log*.jsonl"))
    if not log_left and not any(ours & {*each} for each in parts):
        raise VaultError(f"{path} is no vault: there is nothing to make a store of")
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


def _abandon(runtime: Runtime) -> None:
    """Remove the mark of an unfinished rebuild from a store that is still empty."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        if tx.one("SELECT 1 FROM log LIMIT 1") is None:
            tx.run("DELETE FROM meta WHERE key IN (?, ?)", (_MARK, REPLAY_KEY))


def _end(runtime: Runtime, mark: str) -> None:
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        tx.run("DELETE FROM meta WHERE key = ?", (mark,))


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
            raise VaultError(f"{path} is not empty and no vault: choose another folder")
        Vault.init(path).close()
    with Vault.open(path) as vault, vault.locked():
        require_same_log(runtime, vault)
        sync = Sync(vault, store)
        sync.everything()
        _write_anew(vault, store, progress)
        commit_pending(vault, runtime.redaction)
    vault_link.mark_created(runtime, str(path))
    vault_link.attach(runtime, str(path))
    return sync.report


def _write_anew(vault: Vault, store: Store, progress: Progress | None) -> None:
    files = vault.files.below("")
    with vault.files.together():
        for file in files:
            # A version that none has: the mirror writes the file again, in its place.
            if file.what == "memory" and vault.unchanged_since_write(file):
                vault.files.put(file._replace(version=0))
        _note(vault, store, *vault.journal.files())
        vault.files.forget_cursors()
    vault.journal.clear()
    for scope, session in dict.fromkeys((f.scope, f.name) for f in files if f.what == "turns"):
        with store.runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, scope)
        if owner is not None:
            SessionFiles(vault, store.runtime).write(owner, scope, session, "rewrite")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, 0)

    Sync(vault, store, progress=advance).everything()


def require_same_log(runtime: Runtime, vault: Vault) -> None:
    """Raise VaultError when the vault's log has entries that the store does not have."""
    lines = vault.journal.lines()
    while part := list(islice(lines, BATCH)):
        for scope in dict.fromkeys(Scope(line["space"], line["user"]) for line in part):
            own = {
                line["position"]: line.get("uuid")
                for line in part
                if (line["space"], line["user"]) == (scope.space, scope.user)
            }
            with runtime.engine.read() as tx:
                owner = log.resolve_owner(tx, scope)
                found = (
                    {}
                    if owner is None
                    else log.find_at_positions(tx, owner, list(own), strict=True)
                )
            known = {position: entry.uuid for position, entry in found.items()}
            if known != own:
                raise VaultError(
                    f"{vault.root} holds what this store does not know: it is another store's "
                    "vault, or make an empty store of it with 'reverie vault rebuild'"
                )
