"""All that can still be read of a store: by SQL, and past it from the pages of a SQLite file.

Only what proves itself by its seal is taken. A store of an earlier schema has no seals: there, what
can be decoded is taken.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reverie.engine import seals, table_copy
from reverie.engine.seals import Erasable, Seal
from reverie.errors import ConfigError
from reverie.protocols import Engine, Row

_CONTENT_COLUMNS = "body, reason, request"
_SEAL_COLUMNS = "salt, digest, chain, seal"
_HEADER_COUNT = seals.HEADER_COLUMNS.count(",") + 1
_COLUMN_COUNT = _HEADER_COUNT + 7
# The columns of the log in the order in which a row of a file has them.
_LOG = next(table for table in table_copy.TABLES if table.name == "log")
_AS_STORED = (*_LOG.key, *_LOG.others)
_COLUMNS = [
    *seals.HEADER_COLUMNS.split(", "),
    *_CONTENT_COLUMNS.split(", "),
    *_SEAL_COLUMNS.split(", "),
]
_ORDER = [_AS_STORED.index(name) for name in _COLUMNS]
JOB_COLUMNS = (
    "space, job, owner, kind, lane, state, due_at, attempts, token, payload, error, created_at"
)

Select = Callable[[str, Sequence[Any]], Iterable[Row]]


class SealedRow(NamedTuple):
    """One entry of the log, as it was found."""

    header: tuple[Any, ...]
    said: Erasable
    seal: Seal

    @property
    def log_key(self) -> tuple[int, int]:
        return self.header[0], self.header[1]


@dataclass
class SalvagedRows:
    """What of a store can be read."""

    lines: dict[tuple[int, int], SealedRow] = field(default_factory=dict)
    spaces: dict[int, str] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    states: dict[tuple[int, int, str], Row] = field(default_factory=dict)
    recalls: dict[tuple[int, int, int], Row] = field(default_factory=dict)
    heads: dict[int, tuple[int, str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    jobs: list[Row] = field(default_factory=list)
    # What the index says stood at a position, to name what was lost.
    descriptions: dict[tuple[int, int], str] = field(default_factory=dict)
    sealed: bool = True
    problems: list[str] = field(default_factory=list)

    def add_entry(self, row: Sequence[Any]) -> None:
        """Keep an entry if it proves itself; of two that do, the one that says less."""
        line = SealedRow(
            tuple(row[:_HEADER_COUNT]), Erasable(*row[_HEADER_COUNT:-4]), Seal(*row[-4:])
        )
        if not _is_valid_header(line.header):
            return
        try:
            if self.sealed and not seals.is_intact(line.header, line.seal, line.said):
                return
        except (TypeError, ValueError, AttributeError):
            return
        known = self.lines.get(line.log_key)
        if known is None or (known.seal.salt is not None and line.seal.salt is None):
            self.lines[line.log_key] = line

    def is_successor(self, before: SealedRow | None, line: SealedRow) -> bool:
        """Whether nothing stood between two entries of a space."""
        if not self.sealed:
            return line.log_key[1] == (before.log_key[1] if before else 0) + 1
        chain = before.seal.chain if before else seals.NO_CHAIN
        return line.seal.chain == seals.chain_hash(
            chain, seals.encode_header(line.header), line.seal.digest
        )

    def is_chain_complete(self) -> bool:
        """Whether every log is there from its beginning to its end."""
        for space in {space for space, _ in self.lines} | set(self.heads):
            before: SealedRow | None = None
            for line in self.of_space(space):
                if not self.is_successor(before, line):
                    return False
                before = line
            head = self.heads.get(space)
            if head is None or head[1] != (before.seal.chain if before else seals.NO_CHAIN):
                return False
        return True

    def is_complete(self) -> bool:
        """Whether the same, and all that is kept beside the logs, was read."""
        return self.is_chain_complete() and self.has_all_names() and not self.problems

    def has_all_names(self) -> bool:
        """Whether whoever wrote an entry still has a name."""
        places = {line.header[:3:2] for line in self.lines.values()}
        return all(place in self.owners and place[0] in self.spaces for place in places)

    def of_space(self, space: int) -> list[SealedRow]:
        return [self.lines[place] for place in sorted(self.lines) if place[0] == space]


def _is_valid_header(header: Sequence[Any]) -> bool:
    return all(type(value) is int for value in (*header[:3], header[4], header[5]))


# -- by SQL ---------------------------------------------------------------------------------------


def read_by_sql(select: Select, found: SalvagedRows) -> None:
    """Take what statements still reach. Whatever fails, the rest is tried."""
    columns = ", ".join(_COLUMNS)
    if not found.sealed:
        columns = f"{seals.HEADER_COLUMNS}, {_CONTENT_COLUMNS}, NULL, '', '', ''"
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
    # Only to name what was lost.
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
    marks: dict[tuple[int, ...], str] = {}
    for space, name, mark in _rows(
        select, found, "spaces", f"SELECT space, name, {seal} FROM spaces"
    ):
        _name_space(found, (space, name, mark))
        marks[space,] = mark
    for space, number, name, mark in _rows(
        select, found, "owners", f"SELECT space, owner, name, {seal} FROM owners"
    ):
        _name_owner(found, (space, number, name, mark))
        marks[space, number] = mark
    # A name that was changed in its table may still stand in the index of it, and the seal tells.
    with contextlib.suppress(Exception):
        for space, name in select("SELECT space, name FROM spaces ORDER BY name", ()):
            _name_space(found, (space, name, marks.get((space,))))
        for space, number, name in select(
            "SELECT space, owner, name FROM owners ORDER BY space, name", ()
        ):
            _name_owner(found, (space, number, name, marks.get((space, number))))


def _name_space(found: SalvagedRows, row: Row) -> None:
    space, name, seal = row
    if isinstance(name, str) and (not found.sealed or seal == seals.row_seal("space", space, name)):
        found.spaces.setdefault(space, name)


def _name_owner(found: SalvagedRows, row: Row) -> None:
    space, number, name, seal = row
    good = not found.sealed or seal == seals.row_seal("owner", space, number, name)
    if isinstance(name, str) and good:
        found.owners.setdefault((space, number), name)


def _read_session_states(select: Select, found: SalvagedRows) -> None:
    seal = "seal" if found.sealed else "''"
    for row in _rows(
        select, found, "summaries", f"SELECT {seals.STATE_COLUMNS}, {seal} FROM session_state"
    ):
        if not found.sealed or row[-1] == seals.state_seal(row[:-1]):
            found.states[row[0], row[1], row[2]] = row[:-1]
    for row in _rows(select, found, "notes", f"SELECT {seals.RECALL_COLUMNS}, {seal} FROM recalls"):
        if not found.sealed or row[-1] == seals.row_seal("recall", *row[:-1]):
            found.recalls[row[0], row[1], row[2]] = row[:-1]


def _rows(select: Select, found: SalvagedRows, what: str, sql: str) -> Iterator[Row]:
    """Rows up to the first that cannot be reached."""
    try:
        yield from select(sql, ())
    except Exception as error:  # noqa: BLE001 - a broken page fails in any way there is
        found.problems.append(f"{what}: {type(error).__name__}")


# -- stores of each kind --------------------------------------------------------------------------


def read_store(url: str, open_engine: Callable[[str], Engine]) -> SalvagedRows:
    """All that can be read of a store, which is not changed."""
    if url.startswith(("postgresql://", "postgres://")):
        with contextlib.closing(open_engine(url)) as engine, engine.read() as tx:
            tx.enter_all_owners()
            found = SalvagedRows()
            read_by_sql(lambda sql, values: tx.all(sql, values), found)
            return found
    from reverie.engine.sqlite.store_file import parse_url

    path, _ = parse_url(url)
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: give the path of a damaged store")
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        copy = Path(folder) / "damaged.db"
        for beside in ("", "-wal"):
            there = path.with_name(path.name + beside)
            if there.is_file():
                shutil.copyfile(there, copy.with_name(copy.name + beside))
        return read_file(copy)


def read_file(copy: Path) -> SalvagedRows:
    """The same for a SQLite file that may be written to."""
    from reverie.engine.sqlite.page_reader import PageReader

    pages = PageReader(copy)
    found = SalvagedRows()
    with _open_select(copy, found) as select:
        if select is not None:
            read_by_sql(select, found)
    if found.sealed and not found.is_complete():
        _read_pages(pages, found)
    return found


@contextlib.contextmanager
def _open_select(path: Path, found: SalvagedRows) -> Iterator[Select | None]:
    """Statements on a file, as far as SQLite opens it."""
    import apsw

    connection = None
    try:
        connection = apsw.Connection(str(path))
        # What of the schema is broken does not matter for what is whole.
        connection.execute("PRAGMA writable_schema = ON").fetchall()
        named = {row[1] for row in connection.execute("PRAGMA table_info(log)")}
        found.sealed = not named or "seal" in named
    except apsw.Error as error:
        found.problems.append(f"the file: {type(error).__name__}")
    try:
        yield None if connection is None else _skip_undecodable(connection)
    finally:
        if connection is not None:
            connection.close()


def _skip_undecodable(connection: Any) -> Select:
    """Rows one by one; one whose text is none is passed over."""

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


def _read_pages(pages: Any, found: SalvagedRows) -> None:
    from reverie.engine.sqlite import page_reader

    for row in pages.rows(page_reader.ENTRY_PATTERN, _COLUMN_COUNT):
        found.add_entry([row[at] for at in _ORDER])
    ends: dict[int, tuple[int, str]] = {}
    for space, position, recorded_at, _, _, chain, seal in pages.rows(page_reader.HEAD_PATTERN, 7):
        if seal == seals.head_seal(space, position, recorded_at, chain):
            ends[space] = max(ends.get(space, (0, "")), (position, chain))
    found.heads = ends | found.heads
    for row in pages.rows(page_reader.SPACE_PATTERN, 3):
        _name_space(found, row)
    for row in pages.rows(page_reader.OWNER_PATTERN, 4):
        _name_owner(found, row)
    for row in pages.rows(page_reader.STATE_PATTERN, 10):
        if row[-1] == seals.state_seal(row[:-1]):
            found.states.setdefault((row[0], row[1], row[2]), row[:-1])
