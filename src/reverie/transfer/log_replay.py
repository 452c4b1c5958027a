"""A log told again, entry by entry in its own order: what makes a store of it anew.

Unlike an import it keeps the positions, and the entries of several owners of a space keep their
order among each other. What is here already is passed over, so that it can be done again.
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


class ReplayRecord(NamedTuple):
    """A record of an export, whose it is, and where it stands. Position 0: behind all others."""

    scope: Scope
    record: Record
    where: str
    position: int = 0


def replay(
    runtime: Runtime, told: Iterable[ReplayRecord], progress: Callable[[int], None] | None = None
) -> ImportReport:
    """Take all of these in, a batch of one space in each transaction."""
    added, unchanged, skipped = 0, 0, list[str]()
    # What things are called here, for each owner.
    names: dict[Scope, dict[str, str]] = {}
    for batch in _batches(told):
        ready = [_to_entry(runtime, each) for each in batch]
        with runtime.engine.write() as tx:
            teller = _Replayer(tx, runtime, names)
            for each, entry in zip(batch, ready, strict=True):
                try:
                    new = (
                        teller.replay_entry(each.scope, entry)
                        if isinstance(entry, LogEntry)
                        else None
                    )
                except ReverieError as error:
                    entry, new = str(error), None
                if isinstance(entry, str):
                    skipped.append(f"{each.where}: {entry}")
                else:
                    added, unchanged = added + bool(new), unchanged + (not new)
            teller.finish()
        if progress is not None:
            progress(len(batch))
    return ImportReport(added, unchanged, tuple(skipped))


def _batches(told: Iterable[ReplayRecord]) -> Iterator[list[ReplayRecord]]:
    for _, group in groupby(told, lambda each: each.scope.space):
        while batch := list(islice(group, BATCH)):
            yield batch


def _to_entry(runtime: Runtime, told: ReplayRecord) -> LogEntry | str:
    """The entry of a record, or why it is none."""
    try:
        entry = record_schema.parse_record(import_.redact_record(runtime, told.record))
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        return f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return replace(entry, position=told.position)


class _Replayer:
    """One transaction in which several owners of a space speak in turn."""

    def __init__(
        self, tx: Transaction, runtime: Runtime, names: dict[Scope, dict[str, str]]
    ) -> None:
        self._tx = tx
        self._runtime = runtime
        self._names = names
        self._owners: dict[Scope, Owner] = {}
        self._session_owners: set[Owner] = set()

    def replay_entry(self, scope: Scope, entry: LogEntry) -> bool:
        owner = self._enter(scope)
        names = self._names.setdefault(scope, {})
        if entry.session is not None:
            # The same log, the same conversation: whatever of it is here came from there.
            names.setdefault(f"session {entry.session}", "same")
            self._session_owners.add(owner)
        return import_.add_entry(self._tx, self._runtime, owner, entry, names)

    def _enter(self, scope: Scope) -> Owner:
        owner = self._owners.get(scope)
        if owner is None:
            owner = log.ensure_owner(self._tx, scope.space, scope.user)
            if not self._owners:
                index.require_current_index(self._tx, replaying=True)
            self._owners[scope] = owner
        self._tx.enter(owner)
        return owner

    def finish(self) -> None:
        for owner in self._session_owners:
            self._tx.enter(owner)
            sessions.rechain_forks(self._tx, owner)
