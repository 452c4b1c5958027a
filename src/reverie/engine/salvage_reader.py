"""Reads all that can still be read of a damaged store: by SQL, then from a SQLite file's pages.

Only rows that match their seals are taken. A store of an earlier schema has no seals: there, every
row that can be decoded is taken.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.engine import seals
from reverie.engine.log_rows import LogRow
from reverie.engine.schema import TABLES
from reverie.engine.seals import Erasable, Seal
from reverie.engine.sqlite import page_reader
from reverie.engine.sqlite.store_file import parse_url
from reverie.errors import ConfigError
from reverie.protocols import Engine, Row

# The columns of the log in the order in which a record of a SQLite file has them.
_LOG = next(table for table in TABLES if table.name == "log")
_AS_STORED = (*_LOG.key, *_LOG.others)
_ORDER = [_AS_STORED.index(name) for name in seals.ENTRY_COLUMNS]
# The index of the column seal in session_state; often, the last of STATE_COLUMNS, is after it.
_STATE_SEAL = len(seals.STATE_COLUMNS.split(", ")) - 1
JOB_COLUMNS = (
    "space, job, owner, kind, lane, state, due_at, attempts, token, payload, error, created_at"
)

Select = Callable[[str, Sequence[Any]], Iterable[Row]]


@dataclass
class SalvagedRows:
    """All that could be read of a store."""

    lines: dict[tuple[int, int], LogRow] = field(default_factory=dict)
    spaces: dict[int, str] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    states: dict[tuple[int, int, str], Row] = field(default_factory=dict)
    recalls: dict[tuple[int, int, int], Row] = field(default_factory=dict)
    heads: dict[int, tuple[int, str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    jobs: list[Row] = field(default_factory=list)
    # What the index says was at a position, to name lost entries in the report.
    descriptions: dict[tuple[int, int], str] = field(default_factory=dict)
    sealed: bool = True
    problems: list[str] = field(default_factory=list)
    # The keys of entries that were taken from elsewhere: their place in the chain is not known.
    unchained: set[tuple[int, int]] = field(default_factory=set)

    def add_entry(self, row: Sequence[Any]) -> None:
        """Keep an entry if its seal matches. Of two copies that match, an erased one is kept."""
        entry = LogRow(tuple(row[:-7]), Erasable(*row[-7:-4]), Seal(*row[-4:]))
        if not _is_valid_header(entry.header):
            return
        try:
            if self.sealed and not entry.is_intact():
                return
        except (TypeError, ValueError, AttributeError):
            return
        kept = self.lines.get(entry.log_key)
        if kept is None or (kept.seal.salt is not None and entry.seal.salt is None):
            self.lines[entry.log_key] = entry

    def is_successor(self, before: LogRow | None, line: LogRow) -> bool:
        """Whether an entry directly follows another in its space (None: is the first)."""
        ends = {each.log_key for each in (before, line) if each is not None}
        if not self.sealed or ends & self.unchained:
            return line.log_key[1] == (before.log_key[1] if before else 0) + 1
        chain = before.seal.chain if before else seals.NO_CHAIN
        return line.seal.chain == seals.chain_hash(
            chain, seals.encode_header(line.header), line.seal.digest
        )

    def is_chain_complete(self) -> bool:
        """Whether the log of every space is complete from its first entry to its last."""
        for space in {space for space, _ in self.lines} | set(self.heads):
            before: LogRow | None = None
            for line in self.of_space(space):
                if not self.is_successor(before, line):
                    return False
                before = line
            head = self.heads.get(space)
            if head is None or head[1] != (before.seal.chain if before else seals.NO_CHAIN):
                return False
        return True

    def is_complete(self) -> bool:
        """Whether all logs, all names and all tables beside the log were read without a problem."""
        return self.is_chain_complete() and self.has_all_names() and not self.problems

    def has_all_names(self) -> bool:
        """Whether the space and owner of every entry have a name."""
        owner_keys = {line.header[:3:2] for line in self.lines.values()}
        return all(place in self.owners and place[0] in self.spaces for place in owner_keys)

    def of_space(self, space: int) -> list[LogRow]:
        """The entries of a space in the order of their positions."""
        return [self.lines[place] for place in sorted(self.lines) if place[0] == space]


def _is_valid_header(header: Sequence[Any]) -> bool:
    return all(type(value) is int for value in (*header[:3], header[4], header[5]))


# -- reading by SQL -------------------------------------------------------------------------------


def read_by_sql(select: Select, found: SalvagedRows) -> None:
    """Add all rows that SQL still reaches. After a failure the other tables are still tried."""
    columns = ", ".join(seals.ENTRY_COLUMNS)
    if not found.sealed:
        columns = columns.removesuffix("salt, digest, chain, seal") + "NULL, '', '', ''"
    for row in _rows(select, found, "the log", f"SELECT {columns} FROM log"):
        found.add_entry(row)
    _read_names(select, found)
    for row in _rows(select, found, "counters", "SELECT * FROM counters"):
        space, position, recorded_at = row[:3]
        chain, seal = row[-2:] if found.sealed else ("", "")
        if not found.sealed or seal == seals.head_seal(space, position, recorded_at, chain):
            found.heads[space] = (position, chain)
    _read_session_states(select, found)
    for key, value in _rows(select, found, "settings", "SELECT key, value FROM meta"):
        if not str(key).startswith("token.") or seals.unseal_json(key, value) is not None:
            found.settings[key] = value
    found.jobs += _rows(select, found, "jobs", f"SELECT {JOB_COLUMNS} FROM jobs")
    # Read only to name lost entries in the report, so problems here do not count.
    index = SalvagedRows()
    for space, position, memory in _rows(
        select, index, "", "SELECT space, position, memory FROM memories"
    ):
        found.descriptions[space, position] = f"memory {memory!s:.40}"
    for space, position, session, sequence in _rows(
        select, index, "", "SELECT space, position, session, sequence FROM events"
    ):
        found.descriptions[space, position] = f"session {session!s:.40}, event {sequence}"


def _read_names(select: Select, found: SalvagedRows) -> None:
    seal = "seal" if found.sealed else "''"
    seals_read: dict[tuple[int, ...], str] = {}
    for space, name, row_seal in _rows(
        select, found, "spaces", f"SELECT space, name, {seal} FROM spaces"
    ):
        _add_space_name(found, (space, name, row_seal))
        seals_read[space,] = row_seal
    for space, number, name, row_seal in _rows(
        select, found, "owners", f"SELECT space, owner, name, {seal} FROM owners"
    ):
        _add_owner_name(found, (space, number, name, row_seal))
        seals_read[space, number] = row_seal
    # A name that was changed in its table may be intact in the index on it; the seal decides.
    with contextlib.suppress(Exception):
        for space, name in select("SELECT space, name FROM spaces ORDER BY name", ()):
            _add_space_name(found, (space, name, seals_read.get((space,))))
        for space, number, name in select(
            "SELECT space, owner, name FROM owners ORDER BY space, name", ()
        ):
            _add_owner_name(found, (space, number, name, seals_read.get((space, number))))


def _add_space_name(found: SalvagedRows, row: Row) -> None:
    space, name, seal = row
    if isinstance(name, str) and (not found.sealed or seal == seals.row_seal("space", space, name)):
        found.spaces.setdefault(space, name)


def _add_owner_name(found: SalvagedRows, row: Row) -> None:
    space, number, name, seal = row
    good = not found.sealed or seal == seals.row_seal("owner", space, number, name)
    if isinstance(name, str) and good:
        found.owners.setdefault((space, number), name)


def _read_session_states(select: Select, found: SalvagedRows) -> None:
    # Stores of earlier schemas lack the last columns, which are seal and often.
    for first in _rows(select, found, "summaries", "SELECT * FROM session_state"):
        seal, often = (*first[_STATE_SEAL:], None, None)[:2]
        state = (*first[:_STATE_SEAL], often)
        if not found.sealed or seal == seals.state_seal(state):
            found.states[first[0], first[1], first[2]] = state
    seal = "seal" if found.sealed else "''"
    for row in _rows(select, found, "notes", f"SELECT {seals.RECALL_COLUMNS}, {seal} FROM recalls"):
        if not found.sealed or row[-1] == seals.row_seal("recall", *row[:-1]):
            found.recalls[row[0], row[1], row[2]] = row[:-1]


def _rows(select: Select, found: SalvagedRows, what: str, sql: str) -> Iterator[Row]:
    """Yield rows up to the first that cannot be read, and record the problem."""
    try:
        yield from select(sql, ())
    except Exception as error:  # noqa: BLE001 - a broken page fails in any way there is
        found.problems.append(f"{what}: {type(error).__name__}")


# -- stores of each kind --------------------------------------------------------------------------


def read_store(url: str, open_engine: Callable[[str], Engine]) -> SalvagedRows:
    """Read all that can be read of a store, without changing it: a SQLite file is copied first."""
    if url.startswith(("postgresql://", "postgres://")):
        with contextlib.closing(open_engine(url)) as engine, engine.read() as tx:
            tx.enter_all_owners()
            found = SalvagedRows()
            read_by_sql(lambda sql, values: tx.all(sql, values), found)
            return found
    path, _ = parse_url(url)
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: give the path of a damaged store")
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        copy = Path(folder) / "damaged.db"
        for beside in ("", "-wal"):
            source = path.with_name(path.name + beside)
            if source.is_file():
                shutil.copyfile(source, copy.with_name(copy.name + beside))
        return read_file(copy)


def read_file(copy: Path) -> SalvagedRows:
    """Read all that can be read of a SQLite file, which may be changed by it."""
    pages = page_reader.PageReader(copy)
    found = SalvagedRows()
    with _open_select(copy, found) as select:
        if select is not None:
            read_by_sql(select, found)
    if found.sealed and not found.is_complete():
        _read_pages(pages, found)
    return found


@contextlib.contextmanager
def _open_select(path: Path, found: SalvagedRows) -> Iterator[Select | None]:
    """Open a SQLite file for SELECTs; None if SQLite cannot open it."""
    import apsw

    connection = select = None
    try:
        connection = apsw.Connection(str(path))
        select = _skip_undecodable(connection)
        # Lets SQLite open a file whose schema is partly broken.
        connection.execute("PRAGMA writable_schema = ON").fetchall()
        columns = {row[1] for row in select("PRAGMA table_info(log)", ())}
        found.sealed = not columns or "seal" in columns
    except apsw.Error as error:
        found.problems.append(f"the file: {type(error).__name__}")
    try:
        yield select
    finally:
        if connection is not None:
            connection.close()


def _skip_undecodable(connection: Any) -> Select:
    """A SELECT that skips rows whose text is not valid UTF-8."""

    def select(sql: str, values: Sequence[Any]) -> Iterator[Row]:
        cursor = connection.execute(sql, values)
        while True:
            try:
                row = cursor.fetchone()
            except UnicodeDecodeError:
                continue
            if row is None:
                return
            yield row

    return select


def _read_pages(pages: page_reader.PageReader, found: SalvagedRows) -> None:
    """Add the rows that are found by searching the pages of the file."""
    for row in pages.rows(page_reader.ENTRY_PATTERN, len(_ORDER)):
        found.add_entry([row[at] for at in _ORDER])
    heads: dict[int, tuple[int, str]] = {}
    for space, position, recorded_at, _, _, chain, seal in pages.rows(page_reader.HEAD_PATTERN, 7):
        if seal == seals.head_seal(space, position, recorded_at, chain):
            heads[space] = max(heads.get(space, (0, "")), (position, chain))
    found.heads = heads | found.heads
    for row in pages.rows(page_reader.SPACE_PATTERN, 3):
        _add_space_name(found, row)
    for row in pages.rows(page_reader.OWNER_PATTERN, 4):
        _add_owner_name(found, row)
    for row in pages.rows(page_reader.STATE_PATTERN, 10):
        if row[-1] == seals.state_seal(row[:-1]):
            found.states.setdefault((row[0], row[1], row[2]), row[:-1])
