"""Make a new store from everything that can be read of a damaged one.

Entries keep their positions, times and ids; the hash chain is computed again over what is left, and
index and vectors are made from the log. A lost version that others follow is replaced by an entry
that says so, so that the versions of a memory stay numbered without gaps. Undamaged tokens, jobs
and recall notes are copied; the link to a vault is not, since somebody should look at the vault
first. What was lost is recorded under ``salvaged`` in the new store, and in the report.

Entries that cannot be read are taken from the log of the store's vault if it still has them.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from reverie.engine import (
    index,
    log,
    log_rows,
    open_engine,
    salvage_reader,
    seals,
)
from reverie.engine.log_rows import LogEntry, LogRow
from reverie.engine.salvage_reader import JOB_COLUMNS, SalvagedRows
from reverie.engine.seals import Erasable, Seal
from reverie.engine.sqlite.store_file import new_file
from reverie.errors import ConfigError, ReverieError, StoreDamaged, StoreError
from reverie.maintenance import damage, reindex, verify
from reverie.model import SalvagedSpace, SalvageReport, Scope
from reverie.protocols import Engine, Ids, Owner, Progress, Row, Transaction
from reverie.write import embeddings, vault_link
from reverie.write.runtime import Runtime
from reverie.write.vault_link import VaultEntries

META_KEY = "salvaged"
LOST_VERSION = "what this version said was lost to damage"
ACTOR = "salvage"
# Jobs for a vault; the new store is not linked to one.
_VAULT_JOBS = {"mirror", "commit"}
# Keys of the table meta that are not copied, because the new store sets its own.
_REBUILT_KEYS = {"schema", "index", "lineage", embeddings.CURRENT, embeddings.NEXT, META_KEY}
# The most positions of a lost range for which the report says what was there.
MAX_NAMED = 1_000
MAX_POSITION = 1 << 53


def salvage(
    runtime: Callable[[Engine], Runtime],
    source: str,
    target: Path,
    progress: Progress | None = None,
    *,
    require_all: bool = False,
    vault_entries: VaultEntries | None = None,
) -> SalvageReport:
    """Make a new store at ``target``, which must not exist, of what can be read of ``source``.

    ``runtime`` makes the runtime for the new store's engine. With ``require_all``, raise
    StoreDamaged unless everything can be read, and copy the settings too. With ``vault_entries``,
    entries that cannot be read are taken from the vault's log.
    """
    if target.exists():
        raise ConfigError(f"{target} exists already: give another name")
    salvaged = salvage_reader.read_store(source, open_engine)
    if not salvaged.lines and not salvaged.spaces:
        raise StoreError(f"nothing of a store could be read from {source}: use a backup")
    if require_all and not salvaged.is_complete():
        raise StoreDamaged(
            f"not all of {source} can be read any more: run 'reverie salvage' to make a new store "
            "of the rest"
        )
    if vault_entries is not None:
        _take_from_vault(salvaged, vault_entries)
    return make_store(runtime, salvaged, target, progress, keep_settings=require_all)


def make_store(
    runtime: Callable[[Engine], Runtime],
    salvaged: SalvagedRows,
    target: Path,
    progress: Progress | None = None,
    *,
    keep_settings: bool = False,
) -> SalvageReport:
    """Write the rows that were found to a new file, make its index, and verify it."""
    part = target.with_name(target.name + ".part")
    with new_file(part, target), contextlib.closing(open_engine(str(part))) as engine:
        made = runtime(engine)
        with engine.write() as tx:
            report = _write(tx, salvaged, made.ids)
            if keep_settings:
                _keep_settings(tx, salvaged, made.clock.now())
        reindex.set_index_version(made, index.INDEX_VERSION)
        damage.require_undamaged(made, "a rebuild")
        reindex.reindex(made, progress)
        problems = verify.verify(made).problems
        engine.vacuum()
    for beside in ("-wal", "-shm", "-lock"):
        part.with_name(part.name + beside).unlink(missing_ok=True)
    part.rename(target)
    return replace(report, problems=tuple(problems))


def rebuild_file(runtime: Runtime, progress: Progress | None) -> int:
    """Replace a store file that has broken pages by a new file with the same log.

    The usual rebuild would fail, since rows on an unreadable page cannot be deleted.
    """
    engine = runtime.engine
    file = Path(engine.describe()["file"])
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder, engine.exclusive():
        made = Path(folder) / "made.db"
        report = salvage(
            lambda new: replace(runtime, engine=new), str(file), made, progress, require_all=True
        )
        engine.restore(made)
    return report.entries


# -- finding what was lost ------------------------------------------------------------------------


class _SpaceLog(NamedTuple):
    """The log of one space, with replacement entries for versions that were lost.

    ``lost`` has the first and last position of each lost range, ``reached`` is the last position
    that the log ever had.
    """

    name: str
    lines: list[LogRow]
    lost: list[tuple[int, int]]
    reached: int


def _recover_space(salvaged: SalvagedRows, space: int, ids: Ids) -> _SpaceLog:
    lines, lost = salvaged.of_space(space), _lost_ranges(salvaged, space)
    last = lines[-1].log_key[1] if lines else 0
    reached = max(salvaged.heads.get(space, (0, ""))[0], last)
    name = salvaged.spaces.get(space) or f"recovered-space-{space}"
    return _SpaceLog(name, _fill_versions(lines, lost, ids), lost, reached)


def _lost_ranges(salvaged: SalvagedRows, space: int) -> list[tuple[int, int]]:
    """Return the first and last position of each range that is missing from a space's log."""
    lost = list[tuple[int, int]]()
    before: LogRow | None = None
    for line in salvaged.of_space(space):
        if not salvaged.is_successor(before, line):
            lost.append(((before.log_key[1] if before else 0) + 1, line.log_key[1] - 1))
        before = line
    last, chain = (before.log_key[1], before.seal.chain) if before else (0, seals.NO_CHAIN)
    head = salvaged.heads.get(space)
    if head is not None and (space, last) in salvaged.unchained:
        lost.append((last + 1, head[0]))
    elif head is not None and head[1] != chain:
        lost.append((last + 1, max(head[0], last + 1)))
    return [(first, end) for first, end in lost if first <= end]


def _fill_versions(lines: list[LogRow], lost: list[tuple[int, int]], ids: Ids) -> list[LogRow]:
    """Add a replacement entry, at a lost position, for each missing version before another one."""
    free = [at for first, end in lost for at in range(first, min(end, first + 10_000) + 1)]
    taken = set[int]()
    by_memory: dict[str, dict[int, LogRow]] = {}
    for line in lines:
        if line.header[11]:
            by_memory.setdefault(line.header[11], {})[line.header[12]] = line
    added = []
    for versions in by_memory.values():
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
                added.append(_lost_version(later, at, version, ids.uuid()))
                after = at
    return sorted([*lines, *added], key=lambda line: line.log_key)


def _lost_version(later: LogRow, position: int, version: int, uuid: str) -> LogRow:
    header = list(later.header)
    header[1], header[3] = position, "remember" if version == 1 else "revise"
    header[6], header[8:11] = ACTOR, [None, None, None]
    header[12], header[13] = version, uuid
    content = Erasable(None, LOST_VERSION, None)
    salt = seals.new_salt()
    return LogRow(tuple(header), content, Seal(salt, seals.content_digest(salt, content), "", ""))


# -- the log of the vault -------------------------------------------------------------------------


def _take_from_vault(salvaged: SalvagedRows, vault_entries: VaultEntries) -> None:
    """Add the entries and names that cannot be read in the store and that the vault's log has."""
    uuids = {line.header[13]: line.header for line in salvaged.lines.values()}
    owners = dict[Owner, Scope]()
    # By the name of the space: the positions of the vault's log, and entries to take.
    seen, others = dict[str, set[int]](), dict[str, list[tuple[str, LogEntry]]]()
    try:
        for scope, entry in vault_entries(salvaged.settings.get(vault_link.KEY)):
            seen.setdefault(scope.space, set()).add(entry.position)
            header = uuids.get(entry.uuid)
            if header is not None and header[1] == entry.position:
                owners[Owner(header[0], header[2])] = scope
            else:
                others.setdefault(scope.space, []).append((scope.user or "", entry))
    except (ReverieError, OSError) as error:
        salvaged.problems.append(f"the vault's log: {type(error).__name__}")
    # Names that cannot be read either.
    for owner, scope in owners.items():
        salvaged.spaces.setdefault(owner.space, scope.space)
        salvaged.owners.setdefault(owner, scope.user or "")
    for space, name in salvaged.spaces.items():
        _take_entries(salvaged, space, others.get(name, []), seen.get(name, set()))


def _take_entries(
    salvaged: SalvagedRows, space: int, own: list[tuple[str, LogEntry]], seen: set[int]
) -> None:
    """Take entries of one space, unless the vault's log contradicts what can be read of it."""
    numbers = {name: number for (at, number), name in salvaged.owners.items() if at == space}
    numbers[""] = log.SHARED_OWNER
    lines, lost = salvaged.of_space(space), _lost_ranges(salvaged, space)
    if space not in salvaged.heads:
        lost.append(((lines[-1].log_key[1] if lines else 0) + 1, MAX_POSITION))
    for _, entry in own:
        at = bisect_right(lost, (entry.position, MAX_POSITION)) - 1
        if at < 0 or entry.position > lost[at][1]:
            name = salvaged.spaces[space]
            salvaged.problems.append(f"the vault's log of {name}, which contradicts the store")
            return
    # What was erased stays erased: a vault that has not seen an erasure may still have the text.
    outdated_owners = {
        line.header[2]
        for line in lines
        if line.header[3] == "erase" and line.log_key[1] not in seen
    }
    for user, entry in own:
        number = numbers.get(user)
        if number is not None and number not in outdated_owners:
            body = {} if entry.op == "erase" else entry.body
            content = Erasable(
                None if body is None else log.encode(body), entry.reason, entry.request
            )
            header = log.entry_header(Owner(space, number), entry)
            salvaged.lines[space, entry.position] = LogRow(header, content, Seal(None, "", "", ""))
            salvaged.unchained.add((space, entry.position))


# -- writing --------------------------------------------------------------------------------------


def _write(tx: Transaction, salvaged: SalvagedRows, ids: Ids) -> SalvageReport:
    tx.enter_all_owners()
    numbers = {space for space, _ in salvaged.lines} | set(salvaged.spaces) | set(salvaged.heads)
    spaces, entries = list[SalvagedSpace](), 0
    for space in sorted(numbers):
        space_log = _recover_space(salvaged, space, ids)
        renamed = _write_names(tx, salvaged, space, space_log)
        _write_log(tx, space, space_log)
        affected = dict.fromkeys(
            salvaged.descriptions[space, at]
            for first, end in space_log.lost
            for at in range(first, min(end, first + MAX_NAMED) + 1)
            if (space, at) in salvaged.descriptions
        )
        entries += len(space_log.lines)
        saved = (
            space_log.name,
            len(space_log.lines),
            tuple(space_log.lost),
            tuple(affected),
            tuple(renamed),
        )
        taken = sum(key[0] == space for key in salvaged.unchained)
        spaces.append(SalvagedSpace(*saved, end_known=space in salvaged.heads, from_vault=taken))
    _write_states(tx, salvaged)
    _write_jobs(tx, salvaged.jobs)
    report = SalvageReport(entries, tuple(spaces), tuple(sorted(salvaged.problems)), ())
    lost = [space._asdict() for space in spaces if not report.complete]
    if lost:
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (META_KEY, json.dumps(lost)))
    return report


def _keep_settings(tx: Transaction, salvaged: SalvagedRows, now: int) -> None:
    """Copy the settings of a store that its own rebuild replaces, and set a new epoch.

    The new epoch makes other processes drop the vectors they cached, since passage numbers have
    changed their meaning.
    """
    tx.many(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [
            (key, value)
            for key, value in sorted(salvaged.settings.items())
            if key not in _REBUILT_KEYS and not key.startswith("token.")
        ],
    )
    tx.run("UPDATE statistics SET epoch = ?", (now,))
    tx.run("INSERT INTO meta (key, value) VALUES ('lineage', ?)", (str(now),))


def _write_names(
    tx: Transaction, salvaged: SalvagedRows, space: int, space_log: _SpaceLog
) -> list[str]:
    """Write the names of a space and its users, and return those that had to be made up."""
    renamed = [] if space in salvaged.spaces else [space_log.name]
    tx.run(
        "INSERT INTO spaces (space, name, seal) VALUES (?, ?, ?)",
        (space, space_log.name, seals.row_seal("space", space, space_log.name)),
    )
    numbers = {log.SHARED_OWNER} | {line.header[2] for line in space_log.lines}
    numbers |= {number for where, number in salvaged.owners if where == space}
    for number in sorted(numbers):
        name = "" if number == log.SHARED_OWNER else salvaged.owners.get((space, number))
        if name is None:
            name = f"recovered-user-{number}"
            renamed.append(name)
        log.add_owner(tx, Owner(space, number), name)
    tx.run(
        "INSERT INTO counters (space, position, recorded_at, job, owner) VALUES (?, 0, 0, 0, ?)",
        (space, max(numbers)),
    )
    return renamed


def _write_log(tx: Transaction, space: int, space_log: _SpaceLog) -> None:
    tx.many(log_rows.INSERT, _rechain(space_log.lines))
    last = tx.one(
        "SELECT recorded_at, chain FROM log WHERE space = ? ORDER BY position DESC LIMIT 1",
        (space,),
    )
    recorded_at, chain = last or (0, seals.NO_CHAIN)
    tx.run(
        "UPDATE counters SET position = ?, recorded_at = ?, chain = ?, seal = ? WHERE space = ?",
        (
            space_log.reached,
            recorded_at,
            chain,
            seals.head_seal(space, space_log.reached, recorded_at, chain),
            space,
        ),
    )


def _rechain(lines: Iterable[LogRow]) -> Iterator[Row]:
    """Yield the rows of the entries with a new hash chain and new seals."""
    chain = seals.NO_CHAIN
    for header, content, seal in lines:
        if not seal.seal and seal.salt is None:  # it came from a store without seals
            made = seals.seal_entry(chain, header, content)
        else:
            packed = seals.encode_header(header)
            link = seals.chain_hash(chain, packed, seal.digest)
            now = seals.content_digest(seal.salt, content)
            made = seal._replace(chain=link, seal=seals.entry_seal(packed, seal.digest, link, now))
        chain = made.chain
        yield (*header, *content, *made)


def _write_states(tx: Transaction, salvaged: SalvagedRows) -> None:
    owners = {Owner(*row) for row in tx.all("SELECT space, owner FROM owners")}
    tx.many(
        f"INSERT INTO session_state ({seals.STATE_COLUMNS}, seal) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*row, seals.state_seal(row))
            for place, row in sorted(salvaged.states.items())
            if place[:2] in owners
        ],
    )
    tx.many(
        f"INSERT INTO recalls ({seals.RECALL_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (*row, seals.row_seal("recall", *row))
            for place, row in sorted(salvaged.recalls.items())
            if place[:2] in owners
        ],
    )
    tokens = [(key, value) for key, value in salvaged.settings.items() if key.startswith("token.")]
    tx.many("INSERT INTO meta (key, value) VALUES (?, ?)", sorted(tokens))


def _write_jobs(tx: Transaction, jobs: Iterable[Row]) -> None:
    """Write the jobs that belong to an owner; those that were running become ready again."""
    owners = {Owner(*row) for row in tx.all("SELECT space, owner FROM owners")}
    names = JOB_COLUMNS.split(", ")
    rows = []
    for row in jobs:
        job = dict(zip(names, row, strict=True))
        if _is_job(job) and Owner(job["space"], job["owner"]) in owners:
            state = "parked" if job["state"] == "parked" else "ready"
            rows.append(tuple((job | {"state": state, "token": None}).values()))
    tx.many(f"INSERT INTO jobs ({JOB_COLUMNS}) VALUES ({', '.join('?' * len(names))})", rows)
    # As the step of the schema does that adds these columns: older stores do not have them.
    tx.run("UPDATE jobs SET yields = 1, overtaken = 2 WHERE kind = 'learn'")
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
