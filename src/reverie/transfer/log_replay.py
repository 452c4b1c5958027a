"""Replay the log of a store, entry by entry, into another store.

Unlike an import, a replay keeps the positions of the entries and the order between the owners of a
space. Entries that the store has already are skipped, so that a replay can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import NamedTuple

from reverie.engine import index, log, sessions
from reverie.engine.log import LogEntry
from reverie.errors import ReverieError
from reverie.model import ImportReport, Scope
from reverie.protocols import Owner, Transaction
from reverie.transfer import import_, record_schema
from reverie.transfer.export import Record
from reverie.transfer.import_ import BATCH
from reverie.write.runtime import Runtime
from reverie.write.writer import Writer, system_author


class ReplayRecord(NamedTuple):
    """An exported record to replay, and the scope it belongs to.

    ``where`` names its place in the source, for messages. ``position`` is its log position; 0
    appends it at the end.
    """

    scope: Scope
    record: Record
    where: str
    position: int = 0

    @property
    def recorded_at(self) -> int:
        return int(self.record["recorded_at"])


def replay(
    runtime: Runtime, records: Iterable[ReplayRecord], progress: Callable[[int], None] | None = None
) -> ImportReport:
    """Write all records to the store, a batch of records of one space in each transaction."""
    added, unchanged, skipped = 0, 0, list[str]()
    # For each scope, what the ids and sessions of the source are called in this store.
    names: dict[Scope, dict[str, str]] = {}
    for batch in _batches(records):
        ready = [_to_entry(runtime, each) for each in batch]
        with runtime.engine.write() as tx:
            replayer = _Replayer(tx, runtime, names)
            for each, entry in zip(batch, ready, strict=True):
                try:
                    new = (
                        replayer.replay_entry(each.scope, entry)
                        if isinstance(entry, LogEntry)
                        else None
                    )
                except ReverieError as error:
                    entry, new = str(error), None
                if isinstance(entry, str):
                    skipped.append(f"{each.where}: {entry}")
                else:
                    added, unchanged = added + bool(new), unchanged + (not new)
            replayer.finish()
        if progress is not None:
            progress(len(batch))
    return ImportReport(added, unchanged, tuple(skipped))


def _batches(records: Iterable[ReplayRecord]) -> Iterator[list[ReplayRecord]]:
    for _, group in groupby(records, lambda each: each.scope.space):
        while batch := list(islice(group, BATCH)):
            yield batch


def _to_entry(runtime: Runtime, record: ReplayRecord) -> LogEntry | str:
    """Parse a record to a log entry, or return why it cannot be used."""
    try:
        entry = record_schema.parse_record(import_.redact_record(runtime, record.record))
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        return f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return replace(entry, position=record.position)


class _Replayer:
    """Writes entries of several owners of one space in one transaction."""

    def __init__(
        self, tx: Transaction, runtime: Runtime, names: dict[Scope, dict[str, str]]
    ) -> None:
        self._tx = tx
        self._runtime = runtime
        self._names = names
        self._writers: dict[Scope, Writer] = {}
        self._session_owners: set[Owner] = set()

    def replay_entry(self, scope: Scope, entry: LogEntry) -> bool:
        """Write one entry; False when the store has it already."""
        w = self._enter(scope)
        names = self._names.setdefault(scope, {})
        if entry.session is not None:
            # It is a replay of the same log, so a session with this name is the same session.
            names.setdefault(f"session {entry.session}", "same")
            self._session_owners.add(w.owner)
        return import_.add_entry(w, entry, names)

    def _enter(self, scope: Scope) -> Writer:
        w = self._writers.get(scope)
        if w is None:
            owner = log.ensure_owner(self._tx, scope.space, scope.user)
            if not self._writers:
                index.require_current_index(self._tx, replaying=True)
            w = self._writers[scope] = Writer(self._tx, self._runtime, owner, system_author(scope))
        self._tx.enter(w.owner)
        return w

    def finish(self) -> None:
        """Compute the hash chains of forked sessions again, once their parents are complete."""
        for owner in self._session_owners:
            self._tx.enter(owner)
            sessions.rechain_forks(self._tx, owner)
