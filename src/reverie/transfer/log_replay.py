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
from reverie.engine.log import Entry
from reverie.errors import ReverieError
from reverie.model import ImportReport, Scope
from reverie.protocols import Owner, Transaction
from reverie.transfer import import_, record_schema
from reverie.transfer.export import Record
from reverie.transfer.import_ import BATCH
from reverie.write.runtime import Resources


class Told(NamedTuple):
    """A record of an export, whose it is, and where it stands. Position 0: behind all others."""

    scope: Scope
    record: Record
    where: str
    position: int = 0


def retell(
    resources: Resources, told: Iterable[Told], progress: Callable[[int], None] | None = None
) -> ImportReport:
    """Take all of these in, a batch of one space in each transaction."""
    added, unchanged, skipped = 0, 0, list[str]()
    # What things are called here, for each owner.
    names: dict[Scope, dict[str, str]] = {}
    for batch in _batches(told):
        ready = [_prepared(resources, each) for each in batch]
        with resources.engine.write() as tx:
            teller = _Teller(tx, resources, names)
            for each, entry in zip(batch, ready, strict=True):
                try:
                    new = teller.tell(each.scope, entry) if isinstance(entry, Entry) else None
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


def _batches(told: Iterable[Told]) -> Iterator[list[Told]]:
    for _, group in groupby(told, lambda each: each.scope.space):
        while batch := list(islice(group, BATCH)):
            yield batch


def _prepared(resources: Resources, told: Told) -> Entry | str:
    """The entry of a record, or why it is none."""
    try:
        entry = record_schema.entry_of(import_.redacted(resources, told.record))
    except (ReverieError, KeyError, TypeError, ValueError) as error:
        return f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return replace(entry, position=told.position)


class _Teller:
    """One transaction in which several owners of a space speak in turn."""

    def __init__(
        self, tx: Transaction, resources: Resources, names: dict[Scope, dict[str, str]]
    ) -> None:
        self._tx = tx
        self._resources = resources
        self._names = names
        self._owners: dict[Scope, Owner] = {}
        self._spoke: set[Owner] = set()

    def tell(self, scope: Scope, entry: Entry) -> bool:
        owner = self._enter(scope)
        names = self._names.setdefault(scope, {})
        if entry.session is not None:
            # The same log, the same conversation: whatever of it is here came from there.
            names.setdefault(f"session {entry.session}", "same")
            self._spoke.add(owner)
        return import_.add_entry(self._tx, self._resources, owner, entry, names)

    def _enter(self, scope: Scope) -> Owner:
        owner = self._owners.get(scope)
        if owner is None:
            owner = log.ensure_owner(self._tx, scope.space, scope.user)
            if not self._owners:
                index.require_rules(self._tx, telling=True)
            self._owners[scope] = owner
        self._tx.enter(owner)
        return owner

    def finish(self) -> None:
        for owner in self._spoke:
            self._tx.enter(owner)
            sessions.rechain_late(self._tx, owner)
