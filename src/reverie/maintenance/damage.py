"""Find damage: check the seal of every row and follow the hash chain of every space's log.

Nothing here raises because of what a row contains: what cannot be read becomes a line of the
report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from reverie.engine import log, log_rows, seals
from reverie.engine.log_rows import LogRow
from reverie.errors import StoreDamaged
from reverie.model import UNNAMED
from reverie.protocols import Owner, Row, Transaction
from reverie.write.runtime import Runtime

CHUNK = 1_000
# The most damaged entries of a space that are named; further ones are only counted.
MAX_NAMED = 100
SALVAGE_HINT = "'reverie salvage' saves the rest"


def find_damage(tx: Transaction, read: Callable[[int], None] | None = None) -> list[str]:
    """Return a line for everything in the store that is not as it was written.

    ``read`` is called with the number of log entries checked since its last call.
    """
    problems: list[str] = []
    problems += _guarded("the names of the spaces", lambda: _check_names(tx))
    spaces: list[int] = []
    problems += _guarded("the list of the spaces", lambda: _check_spaces(tx, spaces))
    for space in spaces:
        problems += _guarded(
            f"the log of space number {space}", partial(_check_log, tx, space, read)
        )
    problems += _guarded("summaries and scratchpads", lambda: _check_states(tx))
    problems += _guarded("recall notes", lambda: _check_recalls(tx))
    problems += _guarded("settings and tokens", lambda: _check_meta(tx))
    return problems


def find_store_damage(runtime: Runtime) -> list[str]:
    """Call ``find_damage`` in a transaction of its own, twice if need be.

    A problem that the second call does not find was only a failed read.
    """
    problems: list[str] = []
    for _ in range(2):
        with runtime.engine.read() as tx:
            tx.enter_all_owners()
            problems = find_damage(tx)
        if not problems:
            break
        runtime.engine.drop_caches()
    return problems


def require_undamaged(runtime: Runtime, what: str) -> None:
    """Raise StoreDamaged when the log is damaged, since ``what`` would be made from it."""
    problems = find_store_damage(runtime)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise StoreDamaged(
            f"{what} would hide damage: {problems[0]}{more}. "
            "Run 'reverie salvage' to make a new store of all that can be read"
        )


def _guarded(what: str, look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
        return [f"{what} cannot be read ({_error_line(error)}): {SALVAGE_HINT}"]


def _error_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:200]


# -- the log --------------------------------------------------------------------------------------


def _check_spaces(tx: Transaction, spaces: list[int]) -> list[str]:
    """Add the number of every space that any table mentions; report what is missing of them."""
    listed = {row[0] for row in tx.all("SELECT space FROM spaces")}
    counted = {row[0] for row in tx.all("SELECT space FROM counters")}
    logged = {row[0] for row in tx.all("SELECT DISTINCT space FROM log")}
    owned = {row[0] for row in tx.all("SELECT DISTINCT space FROM owners")}
    mentioned = listed | counted | logged | owned
    spaces += sorted(space for space in mentioned if isinstance(space, int))
    return [
        f"space number {space} has no {what}: {SALVAGE_HINT}"
        for what, present in (("name", listed), ("end of its log", counted), ("owner", owned))
        for space in sorted(mentioned - present, key=str)
    ]


def _check_log(tx: Transaction, space: int, read: Callable[[int], None] | None) -> list[str]:
    """Check every log entry of a space by itself, and that each follows the one before it."""
    name = log_rows.space_name(tx, space)
    problems, others = list[str](), 0
    chain, last, intact = seals.NO_CHAIN, 0, True

    def say(text: str) -> None:
        nonlocal others
        if len(problems) < MAX_NAMED:
            problems.append(f"space {name}: {text}")
        else:
            others += 1

    for position, row in raw_rows(tx, space):
        why, raw = _check_row(row)
        if why is not None:
            say(f"entry {position} is damaged ({why}): {SALVAGE_HINT}")
        if raw is None:
            intact = False
        else:
            header = seals.encode_header(raw.header)
            follows = raw.seal.chain == seals.chain_hash(chain, header, raw.seal.digest)
            if intact and why is None and not follows:
                say(
                    f"entries before position {position} are missing or were changed: "
                    f"{SALVAGE_HINT}"
                )
            # After a damaged entry it is not known whether the next one follows it.
            chain, intact = raw.seal.chain, why is None
        last = position
        if read is not None:
            read(1)
    if others:
        problems.append(f"space {name}: {others} more entries are damaged")
    return problems + _check_head(tx, space, name, chain if intact else None, last)


def _check_row(row: Row | None) -> tuple[str | None, LogRow | None]:
    if row is None:
        return "its text cannot be decoded", None
    number, *columns, space = row
    try:
        raw = LogRow.from_row(Owner(space, number), tuple(columns))
        if not raw.is_intact():
            return f"it is not as it was written{_about(raw)}", raw
        raw.entry()
        has_original = raw.seal.salt is not None and raw.content.reason != log.OVERWRITTEN_REASON
        if has_original and seals.content_digest(raw.seal.salt, raw.content) != raw.seal.digest:
            return f"it says something else than it first did{_about(raw)}", raw
    except Exception:  # noqa: BLE001 - whatever a broken row does, it is reported
        return "it cannot be decoded", None
    return None, raw


def _about(raw: LogRow) -> str:
    memory, version, _, session, sequence = raw.header[11:]
    if memory:
        return f", memory {memory!s:.40} version {version}"
    return f", session {session!s:.40} event {sequence}" if session else ""


def raw_rows(tx: Transaction, space: int) -> Iterator[tuple[int, Row | None]]:
    """Yield position and row of each log entry: owner, columns and space.

    The row is None when its text cannot be decoded.
    """
    after, columns = -1, f"owner, {log_rows.COLUMNS}, space"
    tail = f"FROM log WHERE space = ? AND position > ? ORDER BY position LIMIT {CHUNK}"
    while True:
        try:
            rows = tx.all(f"SELECT {columns} {tail}", (space, after))
        except UnicodeDecodeError:
            rows = []
            for (position,) in tx.all(f"SELECT position {tail}", (space, after)):
                yield position, _read_row(tx, columns, space, position)
                after = position
            continue
        for row in rows:
            yield row[1], row
            after = row[1]
        if not rows:
            return


def _read_row(tx: Transaction, columns: str, space: int, position: int) -> Row | None:
    try:
        return tx.one(
            f"SELECT {columns} FROM log WHERE space = ? AND position = ?", (space, position)
        )
    except UnicodeDecodeError:
        return None


def _check_head(tx: Transaction, space: int, name: str, chain: str | None, last: int) -> list[str]:
    row = tx.one(
        "SELECT position, recorded_at, chain, seal, owner, job, "
        "(SELECT MAX(o.owner) FROM owners o WHERE o.space = c.space), "
        "(SELECT MAX(j.job) FROM jobs j WHERE j.space = c.space) "
        "FROM counters c WHERE space = ?",
        (space,),
    )
    if row is None:
        return []
    if row[4] < (row[6] or 0) or row[5] < (row[7] or 0):
        return [f"space {name}: its counters are damaged: {SALVAGE_HINT}"]
    if row[3] != seals.head_seal(space, *row[:3]):
        return [f"space {name}: where its log ends is damaged: {SALVAGE_HINT}"]
    if chain is not None and chain != row[2] and row[0] > last:
        return [
            f"space {name}: the log ends at position {last}, and reached {row[0]}: {SALVAGE_HINT}"
        ]
    if row[0] < last or (chain is not None and chain != row[2]):
        return [f"space {name}: the log does not end as it was written: {SALVAGE_HINT}"]
    return []


# -- the other tables with sealed rows ------------------------------------------------------------


def _check_names(tx: Transaction) -> list[str]:
    problems = [
        f"the name of space number {space} is damaged: {SALVAGE_HINT}"
        for space, name, seal in tx.all("SELECT space, name, seal FROM spaces")
        if seal != seals.row_seal("space", space, name)
    ]
    return problems + [
        f"the name of user number {number} of space {log_rows.space_name(tx, space)} is damaged: "
        f"{SALVAGE_HINT}"
        for space, number, name, seal in tx.all("SELECT space, owner, name, seal FROM owners")
        if seal != seals.row_seal("owner", space, number, name)
    ]


def list_spaces(tx: Transaction) -> list[tuple[int, str]]:
    """Return number and name of the spaces, by name; damaged names are recorded as damage."""
    intact = []
    for space, name, seal in tx.all("SELECT space, name, seal FROM spaces"):
        if seal == seals.row_seal("space", space, name):
            intact.append((space, name))
        else:
            log_rows.record_damage(
                tx, StoreDamaged(f"the name of space {space} is damaged", space=space)
            )
    return sorted(intact, key=lambda pair: pair[1])


def list_users(tx: Transaction, space: int) -> list[str]:
    """Return the names of a space's users; damaged names are recorded as damage."""
    intact = []
    for number, name, seal in tx.all(
        "SELECT owner, name, seal FROM owners WHERE space = ? AND owner <> ?",
        (space, log.SHARED_OWNER),
    ):
        if seal == seals.row_seal("owner", space, number, name):
            intact += [name] if name != UNNAMED else []
        else:
            log_rows.record_damage(
                tx, StoreDamaged(f"the name of user {number} is damaged", space=space)
            )
    return intact


def _check_states(tx: Transaction) -> list[str]:
    return [
        f"space {log_rows.space_name(tx, row[0])}: summary and scratchpad of session "
        f"{row[2]!s:.40} are damaged: {SALVAGE_HINT}"
        for row in tx.all(f"SELECT {seals.STATE_COLUMNS}, seal FROM session_state")
        if row[-1] != seals.state_seal(row[:-1])
    ]


def _check_recalls(tx: Transaction) -> list[str]:
    return [
        f"space {log_rows.space_name(tx, row[0])}: recall note {row[2]} is damaged: {SALVAGE_HINT}"
        for row in tx.all(f"SELECT {seals.RECALL_COLUMNS}, seal FROM recalls")
        if row[-1] != seals.row_seal("recall", *row[:-1])
    ]


def _check_meta(tx: Transaction) -> list[str]:
    problems = []
    for key, value in tx.all("SELECT key, value FROM meta"):
        if str(key).startswith("token."):
            if seals.unseal_json(key, value) is None:
                problems.append(f"token {key.removeprefix('token.')} is damaged: revoke it")
        elif seals.is_sealed_json(value):
            problems.append(f"the key of a token is damaged ({key!s:.40}): {SALVAGE_HINT}")
        elif str(key).startswith("generation") and not _is_generation(value):
            problems.append(
                f"the record of the model that made the vectors is damaged: {SALVAGE_HINT}"
            )
    return problems


def _is_generation(value: Any) -> bool:
    try:
        number, identity, dimensions = json.loads(value)
    except (ValueError, TypeError):
        return False
    return (
        isinstance(number, int)
        and isinstance(identity, str)
        and (dimensions is None or isinstance(dimensions, int))
    )
