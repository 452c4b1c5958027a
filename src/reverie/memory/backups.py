"""Backups: an online copy that is verified, and its way back."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reverie.engine import index, log, open_engine
from reverie.errors import ConfigError, StoreDamaged
from reverie.memory import upkeep, writes
from reverie.memory.resources import Resources
from reverie.memory.writes import Author, Stamp
from reverie.model import Scope, VerifyReport
from reverie.protocols import Transaction


class Tombstone(NamedTuple):
    """What remains of an erased memory."""

    scope: Scope
    memory: str
    first_uuid: str


def backup(resources: Resources, target: Path) -> VerifyReport:
    """Copy, then open the copy and verify it: a backup that cannot be read is none."""
    if target.exists():
        raise ConfigError(f"{target} exists already: give another name")
    resources.engine.backup(target)
    return check(resources, target)


def check(resources: Resources, source: Path) -> VerifyReport:
    """Verify a backup on a copy of it, so that looking changes nothing."""
    if not source.is_file():
        raise ConfigError(f"{source} does not exist: give the path of a backup")
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(source, copy)
        engine = open_engine(str(copy))
        try:
            report = upkeep.verify(replace(resources, engine=engine))
        finally:
            engine.close()
    if not report.ok:
        raise StoreDamaged(f"{source} is not sound ({report.problems[0]}): use another backup")
    return report


def restore(resources: Resources, source: Path) -> VerifyReport:
    check(resources, source)
    with resources.engine.read() as tx:
        erased = _tombstones(tx)
        newest = tx.one("SELECT COALESCE(MAX(epoch), 0) FROM statistics") or (0,)
    resources.engine.restore(source)
    with resources.engine.write() as tx:
        # Vectors that processes hold in memory belong to numbers that mean something else now.
        tx.run("UPDATE statistics SET epoch = epoch + ? + 1", newest)
        for tombstone in erased:
            _erase_again(tx, resources, tombstone)
    resources.engine.scrub()
    return upkeep.verify(resources)


def _tombstones(tx: Transaction) -> list[Tombstone]:
    return [
        Tombstone(log.scope_of(tx, owner), entry.memory, versions[0].uuid)
        for owner in upkeep.all_owners(tx)
        for entry in log.entries(tx, owner)
        if entry.op == "erase" and (versions := log.versions(tx, owner, entry.memory))
    ]


def _erase_again(tx: Transaction, resources: Resources, tombstone: Tombstone) -> None:
    scope = tombstone.scope
    space = log.find_space(tx, scope.space)
    owner = None if space is None else log.find_owner(tx, space, scope.user)
    if owner is None:
        return
    held = log.versions(tx, owner, tombstone.memory)
    place = index.find(tx, owner, tombstone.memory)
    if place is None or held[0].uuid != tombstone.first_uuid:
        return
    author = Author(scope, "reverie", "agent")
    stamp = Stamp(reason="it was erased after this backup was made")
    writes.erase_in(tx, resources, owner, author, place, held, False, stamp)
