"""What Reverie on PostgreSQL costs, beside the same statements sent in one go.

    python bench/postgres.py [--quick] [--json FILE] [--markdown]

CPU of this process and of the server together. The baseline is every statement that a call sends,
recorded and sent again in one pipelined transaction of psycopg: no search, no ranking, no embedding
and one round trip. Writes are sent to a copy of the database as it was before them. It is a
measurement, no test: the exit code is always 0.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from tests.conftest import FakeClock, SeededIds
from tests.servers import Server

import reverie
from bench import running
from bench.measuring import Sample, short, timed
from bench.texts import SEED, Writer
from reverie import Settings, Store
from reverie.engine.postgres.engine import PostgresEngine
from reverie.engine.postgres.pool import ConnectionPool

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_RATIO = 2.0
MAX_GROWN = 1.3
IN_EACH = 100
# What a server of a few gigabytes would be given.
SERVER = {"shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum": "off"}


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...] = (10_000, 100_000)
    many: int = 100
    grown: tuple[int, int] = (10, 1_000)
    rounds: int = 12
    calls: int = 25
    chunk: int = 1_000


QUICK = Plan(sizes=(400,), many=4, grown=(2, 8), rounds=2, calls=4, chunk=100)


@dataclass(frozen=True)
class Statement:
    """One statement as it was sent."""

    query: bytes
    values: tuple[Any, ...]
    binary: bool


@dataclass(frozen=True)
class Filled:
    """A database with so many memories in so many spaces, and what is asked of it and added."""

    name: str
    database: str
    spaces: int
    queries: list[tuple[str, str]]
    news: list[tuple[str, str]]


class Machine:
    """A server, and the CPU that it and this process have used."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._pid = int((server.data / "postmaster.pid").read_text().splitlines()[0])

    def used(self) -> float:
        """Seconds of the server and of all its processes."""
        total = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == self._pid or int(entry.name) == self._pid:
                    total += int((entry / "schedstat").read_text().split()[0])
        return total / 1e9

    def timed(self, work: Any, items: Sequence[Any]) -> Sample:
        """The cost of each call: ``user`` is that of this process, ``system`` the server's."""
        before = self.used()
        here = timed(work, items)
        there = (self.used() - before) / len(items)
        return Sample(here.cpu + there, here.cpu, there)


class Replay:
    """Sends again what was recorded."""

    def __init__(self, url: str) -> None:
        engine = PostgresEngine(url)
        self._pool: ConnectionPool = engine._pool
        self.connection = self._pool.connect()

    def send(self, statements: Sequence[Statement]) -> None:
        with self.connection.pipeline(), self.connection.cursor() as cursor:
            for statement in statements:
                prepared = None if statement.values else False
                cursor.execute(
                    statement.query, statement.values, prepare=prepared, binary=statement.binary
                )
            while True:
                if cursor.description is not None:
                    cursor.fetchall()
                if not cursor.nextset():
                    break

    def close(self) -> None:
        self.connection.close()


@contextlib.contextmanager
def recording() -> Iterator[list[Statement]]:
    """Every statement that is sent meanwhile, one by one as a pipeline takes them."""
    found: list[Statement] = []
    execute = psycopg.RawCursor.execute

    def noted(self: Any, query: Any, params: Any = None, **more: Any) -> Any:
        plain = query if isinstance(query, bytes) else str(query).encode()
        for part in plain.split(b"; ") if not params else [plain]:
            found.append(Statement(part, tuple(params or ()), bool(more.get("binary"))))
        return execute(self, query, params, **more)

    psycopg.RawCursor.execute = noted  # type: ignore[method-assign]
    try:
        yield found
    finally:
        psycopg.RawCursor.execute = execute  # type: ignore[method-assign]


def opened(url: str) -> Store:
    """The same calls make the same rows: ids and times are those of every other run."""
    return reverie.open(
        url, settings=Settings(), embedder="local", clock=FakeClock(), ids=SeededIds(7)
    )


class Postgres(running.Bench):
    """The whole run."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        self._writer = Writer(SEED)

    def run(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="rvb", dir=running.on_disk()))
        server = Server(place)
        self.closing.callback(server.remove)
        server.make(**SERVER).start()
        self._machine = Machine(server)
        with server.connect() as connection:
            (version,) = connection.execute("SHOW server_version").fetchall()[0]
        self.about["postgresql"] = str(version).split()[0]
        self.about["psycopg"] = psycopg.__version__
        for size in self._plan.sizes:
            for spaces in (1, self._plan.many):
                self._measure(self._filled(size, spaces))
        self._grow()

    # -- making -------------------------------------------------------------------------------

    def _filled(self, size: int, spaces: int) -> Filled:
        plan, writer = self._plan, self._writer
        name = f"{short(size)} in {spaces} {'space' if spaces == 1 else 'spaces'}"
        url = self._machine.server.database()
        texts = writer.sentences(size)
        with opened(url) as store:
            each = size // spaces
            for at in self.steps(f"filling {name}", spaces):
                space = store.space(f"space {at}")
                own = texts[at * each : (at + 1) * each]
                for first in range(0, each, plan.chunk):
                    space.import_records({"content": t} for t in own[first : first + plan.chunk])
        database = url.partition("?")[0].rpartition("/")[2]
        with self._machine.server.connect(database) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")
        calls = plan.rounds * plan.calls
        named = [f"space {number % spaces}" for number in range(calls)]
        asked = [
            (name, writer.queries(texts[(n % spaces) * each : (n % spaces + 1) * each], 1)[0])
            for n, name in enumerate(named)
        ]
        return Filled(
            name, database, spaces, asked, list(zip(named, writer.sentences(calls), strict=True))
        )

    def _copy(self, filled: Filled) -> str:
        return self._machine.server.database(template=filled.database)

    # -- measuring ----------------------------------------------------------------------------

    def _measure(self, filled: Filled) -> None:
        self._reads(filled)
        self._writes(filled)

    def _reads(self, filled: Filled) -> None:
        plan, meter, machine = self._plan, self.meter, self._machine
        url, name = machine.server.address(filled.database), f"recall {filled.name}"
        with opened(url) as store, contextlib.closing(Replay(url)) as replay:
            spaces = {space: store.space(space) for space, _ in filled.queries}
            for handle in spaces.values():
                handle.recall("anything at all")
            recorded = []
            for space, query in filled.queries:
                with recording() as statements:
                    spaces[space].recall(query)
                recorded.append(statements)
            for statements in recorded[: plan.calls]:
                replay.send(statements)
            for at in self.steps(name, plan.rounds):
                part = slice(at * plan.calls, (at + 1) * plan.calls)
                took = machine.timed(lambda q: spaces[q[0]].recall(q[1]), filled.queries[part])
                meter.take(name, took)
                meter.take(f"{name}, sent", machine.timed(replay.send, recorded[part]))
        self._row("recall", name, filled.name, len(recorded[-1]))

    def _writes(self, filled: Filled) -> None:
        plan, meter, machine = self._plan, self.meter, self._machine
        name = f"remember {filled.name}"
        recorded = []
        with opened(self._copy(filled)) as store:
            for space, text in filled.news:
                with recording() as statements:
                    store.space(space).remember(text)
                recorded.append(statements)
        with (
            opened(self._copy(filled)) as store,
            contextlib.closing(Replay(self._copy(filled))) as replay,
        ):
            for at in self.steps(name, plan.rounds):
                part = slice(at * plan.calls, (at + 1) * plan.calls)
                took = machine.timed(lambda n: store.space(n[0]).remember(n[1]), filled.news[part])
                meter.take(name, took)
                meter.take(f"{name}, sent", machine.timed(replay.send, recorded[part]))
        self._row("remember", name, filled.name, len(recorded[-1]))

    def _row(self, group: str, name: str, what: str, statements: int) -> None:
        against = "the same statements, pipelined"
        self._settled(name, f"{name}, sent")
        self.meter.row(group, what, name, f"{name}, sent", against, MAX_RATIO)
        self._shares(f"{statements} statements")

    def _settled(self, *names: str) -> None:
        """The first round prepares statements: it is left out."""
        for name in names:
            taken = self.meter.samples[name]
            self.meter.samples[name] = taken[1:] or taken

    def _shares(self, *notes: str) -> None:
        """Say how much of the last row is the server's; of either it is not known what is the
        kernel's.
        """
        row = self.meter.rows[-1]
        share = f"the server {(row.system or 0) / row.ours:.0%}"
        row.user, row.system, row.note = None, None, ", ".join([*notes, share])

    def _grow(self) -> None:
        """The same call in few and in many spaces of the same size."""
        few, many = (self._filled(spaces * IN_EACH, spaces) for spaces in self._plan.grown)
        for verb in ("recall", "remember"):
            with opened(self._copy(few)) as one, opened(self._copy(many)) as other:
                self._grown(verb, {one: few, other: many})
            names = [f"{verb} in {spaces}" for spaces in self._plan.grown]
            self._settled(*names)
            what = f"{verb} in {self._plan.grown[1]:,} spaces of {IN_EACH}"
            against = f"the same in {self._plan.grown[0]}"
            self.meter.row("many spaces", what, names[1], names[0], against, MAX_GROWN)
            self._shares()

    def _grown(self, verb: str, stores: Mapping[Store, Filled]) -> None:
        def call(asked: tuple[Store, str, str]) -> None:
            store, space, text = asked
            getattr(store.space(space), verb)(text)

        for store, filled in stores.items():
            for space in {space for space, _ in filled.queries} if verb == "recall" else ():
                store.space(space).recall("anything at all")
        plan = self._plan
        for at in self.steps(f"{verb} in more spaces", plan.rounds):
            for store, filled in stores.items():
                items = filled.queries if verb == "recall" else filled.news
                part = items[at * plan.calls : (at + 1) * plan.calls]
                took = self._machine.timed(call, [(store, *item) for item in part])
                self.meter.take(f"{verb} in {filled.spaces}", took)


def main() -> None:
    asked = running.options(__doc__).parse_args()
    plan = QUICK if asked.quick else Plan()
    title = "Reverie on PostgreSQL: CPU of client and server for each call, medians of rounds"
    running.run(title, asked, lambda folder, progress: Postgres(plan, folder, progress))


if __name__ == "__main__":
    main()
