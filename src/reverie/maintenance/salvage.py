"""Salvage: a new store of all that can be read of a damaged one.

Entries keep their positions, times and ids; the chain is made anew over what is left. Index and
vectors are made from the log. A version that was lost and had others after it gets an entry that
says so, so that the versions of a memory stay countable. Tokens that are whole, jobs and recall
notes come along; the link to a vault does not: a vault is given to the new store when somebody has
looked at it. What was lost is kept under ``salvaged`` in the new store, and in the report.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from reverie.engine import (
    log,
    open_engine,
    salvage_reader,
    seals,
)
from reverie.engine.salvage_reader import JOB_COLUMNS, SalvagedRows, SealedRow
from reverie.engine.seals import Erasable, Seal
from reverie.errors import ConfigError, StoreDamaged, StoreError
from reverie.maintenance import rebuild, verify
from reverie.model import SalvagedSpace, SalvageReport
from reverie.protocols import Engine, Owner, Row, Transaction
from reverie.write import embeddings
from reverie.write.runtime import Runtime

META_KEY = "salvaged"
LOST_VERSION = "what this version said was lost to damage"
ACTOR = "salvage"
# Jobs that belong to a vault, which the new store does not have.
_VAULT_JOBS = {"mirror", "commit"}
# Settings that are another store's, or that follow from what is made anew.
_REBUILT_KEYS = {"schema", "index", "lineage", embeddings.CURRENT, embeddings.NEXT, META_KEY}
# So many positions of a stretch are looked up to say what was there.
MAX_NAMED = 1_000
Progress = Callable[[int, int], None]


def salvage(
    runtime: Callable[[Engine], Runtime],
    source: str,
    target: Path,
    progress: Progress | None = None,
    *,
    whole: bool = False,
) -> SalvageReport:
    """Make a new store at ``target``, which must not exist, of what can be read of ``source``.

    ``whole``: only if that is all of it, settings included.
    """
    if target.exists():
        raise ConfigError(f"{target} exists already: give another name")
    found = salvage_reader.read_store(source, open_engine)
    if not found.lines and not found.spaces:
        raise StoreError(f"nothing of a store could be read from {source}: use a backup")
    if whole and not found.is_complete():
        raise StoreDamaged(
            f"not all of {source} can be read any more: run 'reverie salvage' to make a new store "
            "of the rest"
        )
    return make_store(runtime, found, target, progress, whole=whole)


def make_store(
    runtime: Callable[[Engine], Runtime],
    found: SalvagedRows,
    target: Path,
    progress: Progress | None = None,
    *,
    whole: bool = False,
) -> SalvageReport:
    """Write what was found into a new file, make its index, and verify it."""
    part = target.with_name(target.name + ".part")
    _remove(part)
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with contextlib.closing(open_engine(str(part))) as engine:
            made = runtime(engine)
            with engine.write() as tx:
                report = _write(tx, found)
                if whole:
                    _keep_settings(tx, found, made.clock.now())
            rebuild.refresh_index(made)
            rebuild.rebuild(made, progress)
            problems = verify.verify(made).problems
            engine.vacuum()
    except BaseException:
        _remove(part)
        raise
    for beside in ("-wal", "-shm", "-lock"):
        part.with_name(part.name + beside).unlink(missing_ok=True)
    part.rename(target)
    return replace(report, problems=tuple(problems))


def _remove(part: Path) -> None:
    for beside in ("", "-wal", "-shm", "-lock"):
        part.with_name(part.name + beside).unlink(missing_ok=True)


# -- what is lost ---------------------------------------------------------------------------------


class _SpaceLog(NamedTuple):
    """The log of one space, with entries in the place of versions that are lost."""

    name: str
    lines: list[SealedRow]
    lost: list[tuple[int, int]]
    reached: int


def _recover_space(found: SalvagedRows, space: int) -> _SpaceLog:
    lines, lost = found.of_space(space), list[tuple[int, int]]()
    before: SealedRow | None = None
    for line in lines:
        if not found.is_successor(before, line):
            lost.append(((before.log_key[1] if before else 0) + 1, line.log_key[1] - 1))
        before = line
    last = lines[-1].log_key[1] if lines else 0
    head = found.heads.get(space)
    reached = last if head is None else max(head[0], last)
    if head is not None and head[1] != (before.seal.chain if before else seals.NO_CHAIN):
        lost.append((last + 1, max(reached, last + 1)))
    lost = [(first, end) for first, end in lost if first <= end]
    name = found.spaces.get(space) or f"recovered-space-{space}"
    return _SpaceLog(name, _fill_versions(lines, lost), lost, reached)


def _fill_versions(lines: list[SealedRow], lost: list[tuple[int, int]]) -> list[SealedRow]:
    """Put an entry at a lost position for each version that is missing before another."""
    free = [at for first, end in lost for at in range(first, min(end, first + 10_000) + 1)]
    taken = set[int]()
    known: dict[str, dict[int, SealedRow]] = {}
    for line in lines:
        if line.header[11]:
            known.setdefault(line.header[11], {})[line.header[12]] = line
    added = []
    for versions in known.values():
        after = 0
        for version in range(1, max(versions)):
            if version in versions:
                after = versions[version].log_key[1]
                continue
            later = versions[min(each for each in versions if each > version)]
            at = next(
                (at for at in free if after < at < later.log_key[1] and at not in taken), None
            )
            if at is not None:
                taken.add(at)
                added.append(_lost_version(later, at, version))
                after = at
    return sorted([*lines, *added], key=lambda line: line.log_key)


def _lost_version(later: SealedRow, position: int, version: int) -> SealedRow:
    header = list(later.header)
    header[1], header[3] = position, "remember" if version == 1 else "revise"
    header[6], header[8:11] = ACTOR, [None, None, None]
    header[12], header[13] = version, str(uuid.uuid4())
    said = Erasable(None, LOST_VERSION, None)
    salt = seals.new_salt()
    return SealedRow(tuple(header), said, Seal(salt, seals.content_digest(salt, said), "", ""))


# -- writing --------------------------------------------------------------------------------------


def _write(tx: Transaction, found: SalvagedRows) -> SalvageReport:
    tx.enter_all_owners()
    numbers = {space for space, _ in found.lines} | set(found.spaces) | set(found.heads)
    spaces, entries = list[SalvagedSpace](), 0
    for space in sorted(numbers):
        one = _recover_space(found, space)
        renamed = _write_names(tx, found, space, one)
        _write_log(tx, space, one)
        affected = dict.fromkeys(
            found.descriptions[space, at]
            for first, end in one.lost
            for at in range(first, min(end, first + MAX_NAMED) + 1)
            if (space, at) in found.descriptions
        )
        entries += len(one.lines)
        saved = (one.name, len(one.lines), tuple(one.lost), tuple(affected), tuple(renamed))
        spaces.append(SalvagedSpace(*saved, end_known=space in found.heads))
    _write_states(tx, found)
    _write_jobs(tx, found.jobs)
    report = SalvageReport(entries, tuple(spaces), tuple(sorted(found.problems)), ())
    lost = [space._asdict() for space in spaces if not report.complete]
    if lost:
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (META_KEY, json.dumps(lost)))
    return report


def _keep_settings(tx: Transaction, found: SalvagedRows, now: int) -> None:
    """For a store that takes the place of itself: what it was set to, and another epoch.

    Vectors that processes hold in memory belong to numbers that mean something else now.
    """
    tx.many(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [
            (key, value)
            for key, value in sorted(found.settings.items())
            if key not in _REBUILT_KEYS and not key.startswith("token.")
        ],
    )
    tx.run("UPDATE statistics SET epoch = ?", (now,))
    tx.run("INSERT INTO meta (key, value) VALUES ('lineage', ?)", (str(now),))


def _write_names(tx: Transaction, found: SalvagedRows, space: int, one: _SpaceLog) -> list[str]:
    """Write the names of a space and its users; those that had to be made up."""
    renamed = [] if space in found.spaces else [one.name]
    tx.run(
        "INSERT INTO spaces (space, name, seal) VALUES (?, ?, ?)",
        (space, one.name, seals.row_seal("space", space, one.name)),
    )
    numbers = {log.SHARED_OWNER} | {line.header[2] for line in one.lines}
    numbers |= {number for where, number in found.owners if where == space}
    for number in sorted(numbers):
        name = "" if number == log.SHARED_OWNER else found.owners.get((space, number))
        if name is None:
            name = f"recovered-user-{number}"
            renamed.append(name)
        tx.run(
            "INSERT INTO owners (space, owner, name, seal) VALUES (?, ?, ?, ?)",
            (space, number, name, seals.row_seal("owner", space, number, name)),
        )
        tx.run(
            "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, "
            "facts, notes, private) VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0)",
            (space, number),
        )
    tx.run(
        "INSERT INTO counters (space, position, recorded_at, job, owner) VALUES (?, 0, 0, 0, ?)",
        (space, max(numbers)),
    )
    return renamed


_INSERT = (
    f"INSERT INTO log ({seals.HEADER_COLUMNS}, body, reason, request, salt, digest, chain, seal) "
    f"VALUES ({', '.join('?' * 23)})"
)


def _write_log(tx: Transaction, space: int, one: _SpaceLog) -> None:
    tx.many(_INSERT, _rechain(one.lines))
    last = tx.one(
        "SELECT recorded_at, chain FROM log WHERE space = ? ORDER BY position DESC LIMIT 1",
        (space,),
    )
    recorded_at, chain = last or (0, seals.NO_CHAIN)
    tx.run(
        "UPDATE counters SET position = ?, recorded_at = ?, chain = ?, seal = ? WHERE space = ?",
        (
            one.reached,
            recorded_at,
            chain,
            seals.head_seal(space, one.reached, recorded_at, chain),
            space,
        ),
    )


def _rechain(lines: Iterable[SealedRow]) -> Iterator[Row]:
    """The rows of entries that follow each other, with a chain of their own."""
    chain = seals.NO_CHAIN
    for header, said, seal in lines:
        if not seal.seal and seal.salt is None:  # it came from a store without seals
            made = seals.seal_entry(chain, header, said)
        else:
            packed = seals.encode_header(header)
            link = seals.chain_hash(chain, packed, seal.digest)
            now = seals.content_digest(seal.salt, said)
            made = seal._replace(chain=link, seal=seals.entry_seal(packed, seal.digest, link, now))
        chain = made.chain
        yield (*header, *said, *made)


def _write_states(tx: Transaction, found: SalvagedRows) -> None:
    owners = {Owner(*row) for row in tx.all("SELECT space, owner FROM owners")}
    tx.many(
        f"INSERT INTO session_state ({seals.STATE_COLUMNS}, seal) VALUES (?, ?, ?, ?, "
        f"?, ?, ?, ?, ?, ?)",
        [
            (*row, seals.state_seal(row))
            for place, row in sorted(found.states.items())
            if place[:2] in owners
        ],
    )
    tx.many(
        f"INSERT INTO recalls ({seals.RECALL_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*row, seals.row_seal("recall", *row))
            for place, row in sorted(found.recalls.items())
            if place[:2] in owners
        ],
    )
    tokens = [(key, value) for key, value in found.settings.items() if key.startswith("token.")]
    tx.many("INSERT INTO meta (key, value) VALUES (?, ?)", sorted(tokens))


def _write_jobs(tx: Transaction, jobs: Iterable[Row]) -> None:
    """What was to be done is still to be done; who was at it has lost the lease."""
    owners = {Owner(*row) for row in tx.all("SELECT space, owner FROM owners")}
    names = JOB_COLUMNS.split(", ")
    kept = []
    for row in jobs:
        job = dict(zip(names, row, strict=True))
        if _is_job(job) and Owner(job["space"], job["owner"]) in owners:
            state = "parked" if job["state"] == "parked" else "ready"
            kept.append(tuple((job | {"state": state, "token": None}).values()))
    tx.many(f"INSERT INTO jobs ({JOB_COLUMNS}) VALUES ({', '.join('?' * len(names))})", kept)
    tx.run(
        "UPDATE counters SET job = COALESCE("
        "(SELECT MAX(j.job) FROM jobs j WHERE j.space = counters.space), 0)"
    )
    tx.run(
        "INSERT INTO due (space, owner, at) SELECT space, owner, MIN(due_at) FROM jobs "
        "WHERE state <> 'parked' GROUP BY space, owner"
    )


def _is_job(job: Mapping[str, Any]) -> bool:
    try:
        payload = json.loads(job["payload"])
    except (ValueError, TypeError):
        return False
    numbers = ("space", "job", "owner", "due_at", "attempts", "created_at")
    return (
        isinstance(payload, dict)
        and all(type(job[name]) is int for name in numbers)
        and isinstance(job["kind"], str)
        and job["kind"] not in _VAULT_JOBS
    )
