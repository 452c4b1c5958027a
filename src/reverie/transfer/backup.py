"""Back up a store to a verified copy, and restore it.

A restore erases again what was erased after the backup was made.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reverie.engine import index, log, open_engine, sessions
from reverie.engine.log import LogEntry
from reverie.engine.sqlite.store_file import (
    copy_store_file,
    move_into_place,
    remove_store,
    usable_path,
)
from reverie.engine.upgrade import NO_BACKUP
from reverie.errors import ConfigError, StoreDamaged, StoreError, StoreFull
from reverie.maintenance import rebuild, verify
from reverie.model import Scope, VerifyReport
from reverie.protocols import Transaction
from reverie.write import memories, proposals, session_projection, session_state, tokens
from reverie.write.runtime import Runtime
from reverie.write.writer import Writer, WriteStamp, system_author


class Tombstone(NamedTuple):
    """The log entries that remain of an erased memory or event, without their content."""

    scope: Scope
    entries: list[LogEntry]


def backup(runtime: Runtime, target: Path) -> VerifyReport:
    """Copy the store to ``target``, then open the copy and verify it.

    Until it is verified, the copy is named ``<target>.part``. A failure removes it; only a killed
    process can leave it behind, and the next backup of that name replaces it.
    """
    target = usable_path(target)
    if target.exists():
        raise ConfigError(f"{target} exists already: give another name")
    part = target.with_name(target.name + ".part")
    try:
        runtime.engine.backup(part)
        # A backup of a damaged store is better than none, and the report names the damage.
        with _verified_copy(runtime, part, sound=False) as (_, report):
            pass
        move_into_place(part, target)
    except (StoreError, OSError) as error:
        # The message names the target: the caller does not know the temporary name.
        raise _target_error(error, part, target) from error
    finally:
        remove_store(part)
    return report


def _target_error(error: StoreError | OSError, part: Path, target: Path) -> StoreError:
    if isinstance(error, OSError):
        where = target if error.filename in {None, str(part)} else error.filename
        return StoreError(f"{where} cannot be written: {error.strerror}")
    if isinstance(error, StoreFull) and str(part) in str(error):
        return StoreFull(f"no space left for {target}: free some, or give another place")
    return type(error)(str(error).replace(str(part), str(target)))


def check(runtime: Runtime, source: Path) -> VerifyReport:
    """Verify a backup on a copy of it, since opening a store can change its file."""
    with _verified_copy(runtime, source) as (_, report):
        return report


def restore(runtime: Runtime, source: Path) -> VerifyReport:
    """Replace the store by a backup in one step, after erasing in it what was erased since.

    Access tokens stay those of the store, so that a revoked token does not come back.
    """
    engine = runtime.engine
    source, here = usable_path(source), engine.describe().get("file")
    if here is not None and source.is_file() and source.samefile(here):
        raise ConfigError(f"{source} is this store itself: give the path of a backup")
    with _verified_copy(runtime, source) as (copy, _), engine.exclusive():
        erased, newest, unread = _read_erasures(runtime)
        admitted = _read_tokens(runtime)
        with copy.engine.write() as tx:
            # A new epoch makes other processes drop the vectors they cached: passage numbers have
            # changed their meaning.
            tx.run("UPDATE statistics SET epoch = ?", (newest + 1,))
            tx.run(
                "INSERT INTO meta (key, value) VALUES ('lineage', ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(newest + 1),),
            )
            tokens.replace_all(tx, admitted)
            for tombstone in erased.memories:
                _erase_memory_again(tx, copy, tombstone)
            for tombstone in erased.events:
                _erase_events_again(tx, copy, tombstone)
        copy.engine.scrub()
        engine.restore(Path(copy.engine.describe()["file"]))
    engine.scrub()
    report = verify.verify(runtime)
    return replace(report, problems=(*report.problems, *unread))


class Erasures(NamedTuple):
    """Everything that was erased: memories, and events and proposals grouped by session."""

    memories: list[Tombstone]
    events: list[Tombstone]


def _read_erasures(runtime: Runtime) -> tuple[Erasures, int, tuple[str, ...]]:
    """Return what was erased in the store, its newest epoch, and what could not be read of it."""
    try:
        with runtime.engine.read() as tx:
            tx.enter_all_owners()
            row = tx.one("SELECT COALESCE(MAX(epoch), 0) FROM statistics") or (0,)
            erased = Erasures(_memory_tombstones(tx), _session_tombstones(tx))
            return erased, max(row[0], log.restore_epoch(tx)), ()
    except StoreDamaged:
        # A damaged store must not prevent its own backup from being restored.
        unread = "the former store is damaged: what was erased in it may be back"
        return Erasures([], []), runtime.clock.now(), (unread,)


def _read_tokens(runtime: Runtime) -> list[tuple[str, str]]:
    """Return the access tokens of the store; none if it is damaged."""
    try:
        with runtime.engine.read() as tx:
            return tokens.read_rows(tx)
    except StoreDamaged:
        return []


@contextlib.contextmanager
def _verified_copy(
    runtime: Runtime, source: Path, *, sound: bool = True
) -> Iterator[tuple[Runtime, VerifyReport]]:
    """Copy a backup to a temporary file, open and verify it.

    With ``sound``, raise StoreDamaged when the verification finds a problem.
    """
    if not usable_path(source).is_file():
        raise ConfigError(f"{source} does not exist: give the path of a backup")
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        file = Path(folder) / "copy.db"
        copy_store_file(source, file)
        copy = replace(runtime, engine=open_engine(str(file), upgrade_options=NO_BACKUP))
        try:
            rebuild.refresh_index(copy)
            report = verify.verify(copy)
            if sound and not report.ok:
                raise StoreDamaged(
                    f"{source} is damaged ({report.problems[0]}): use another backup"
                )
            yield copy, report
        finally:
            copy.engine.close()


def _memory_tombstones(tx: Transaction) -> list[Tombstone]:
    return [
        Tombstone(log.scope_of(tx, owner), log.versions(tx, owner, entry.memory))
        for owner in log.list_owners(tx)
        for entry in log.all_entries(tx, owner)
        if entry.op == "erase" and entry.memory
    ]


def _session_tombstones(tx: Transaction) -> list[Tombstone]:
    """Collect the log entries that remain of erased events and proposals, by session."""
    found: dict[tuple[Scope, str], list[LogEntry]] = {}
    for owner in log.list_owners(tx):
        scope = log.scope_of(tx, owner)
        for entry in log.all_entries(tx, owner):
            blank = entry.body is None and entry.op in {"append", "propose"}
            if entry.session is not None and (blank or entry.op == "erase"):
                found.setdefault((scope, entry.session), []).append(entry)
    return [Tombstone(scope, entries) for (scope, _), entries in found.items()]


def _erase_memory_again(tx: Transaction, runtime: Runtime, tombstone: Tombstone) -> None:
    scope, entries = tombstone
    owner = log.ensure_owner(tx, scope.space, scope.user)
    w = Writer(tx, runtime, owner, system_author(scope))
    memory = entries[0].memory
    held = log.versions(tx, owner, memory)
    place = index.find(tx, owner, memory)
    if place is not None and held[0].uuid == entries[0].uuid:
        stamp = WriteStamp(reason="it was erased after this backup was made")
        with_source = bool((entries[-1].body or {}).get("sources"))
        memories.erase_memory(w, place, held, with_source, stamp)
    elif not log.id_taken(tx, owner, memory):
        # The memory is younger than the backup; its tombstone must still block an import of it.
        for entry in entries:
            position, recorded_at = log.advance(tx, owner.space, entry.recorded_at)
            body = None if entry.body is None else {**entry.body, "entries": []}
            left = replace(entry, position=position, recorded_at=recorded_at, key=None, body=body)
            w.append(left)


def _erase_events_again(tx: Transaction, runtime: Runtime, tombstone: Tombstone) -> None:
    scope, entries = tombstone
    owner = log.ensure_owner(tx, scope.space, scope.user)
    w = Writer(tx, runtime, owner, system_author(scope))
    session = entries[0].session or ""
    here = {entry.uuid: entry for entry in log.session_entries(tx, owner, session)}
    present = [
        here[entry.uuid]
        for entry in entries
        if entry.uuid in here and here[entry.uuid].body is not None
    ]
    events = [entry for entry in present if entry.op == "append"]
    for entry in events:
        sessions.drop_event(tx, owner, entry)
    log.erase_content(tx, owner, [entry.position for entry in events])
    if events:
        sessions.recompute_session(tx, owner, session, min(entry.sequence or 0 for entry in events))
    for entry in present:
        if entry.op == "propose":
            proposals.erase_proposal(tx, owner, entry.position)
    ended = max(
        (entry.position for entry in entries if sessions.is_session_erasure(entry)), default=0
    )
    for entry in entries:
        if entry.uuid in here:
            continue
        # The entry is younger than the backup; its tombstone must still block an import of it.
        position, recorded_at = log.advance(tx, owner.space, entry.recorded_at)
        left = replace(
            _tombstone_entry(entry, ended), position=position, recorded_at=recorded_at, key=None
        )
        w.append(left)
        session_projection.apply_entry(w, left)
    if any(sessions.is_session_erasure(entry) and entry.uuid not in here for entry in entries):
        session_state.wipe(tx, owner, session)


def _tombstone_entry(entry: LogEntry, ended: int) -> LogEntry:
    """Return the tombstone of an entry that is younger than the backup.

    An event of a session that was erased as a whole keeps its place, so that its sequence is never
    used again. Any other event leaves only its uuid: an import may still add the events around it.
    """
    if entry.op == "append" and entry.position < ended:
        return entry
    return replace(entry, op="erase", body={**entry.body, "entries": []} if entry.body else {})
