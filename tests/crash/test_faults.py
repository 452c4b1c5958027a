"""A failing disk loses no acknowledged write and causes no wrong answer."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import reverie
from reverie.errors import ReverieError, StoreError, StoreFailed, StoreFull
from reverie.model import Mode
from tests.crash.failing_vfs import FailingVFS, Fault
from tests.crash.workload import Intent, Ledger, open_store, perform, position_of, text_of
from tests.figures import figure

SPACE = "faults"
STEPS = 70
MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")
QUERIES = ("amber birch", "river velvet willow", "saffron")


@pytest.fixture
def vfs() -> Iterator[FailingVFS]:
    made = FailingVFS()
    yield made
    if made.fault is not None:
        figure(f"failed {made.fault.operation}s", made.fired)
    made.disarm()
    made.unregister()


def through(path: Path, vfs: FailingVFS) -> reverie.Store:
    return open_store(f"sqlite://{path}?vfs={vfs.vfs_name}")


def fill(path: Path, count: int, seed: int = 1) -> Ledger:
    """A store with some history, made on a healthy disk."""
    chance, ledger = random.Random(seed), Ledger()
    with open_store(path) as store:
        write_until(store, ledger, chance, count, lambda: False)
        ledger.check(store.space(SPACE))
    return ledger


def write_until(
    store: reverie.Store,
    ledger: Ledger,
    chance: random.Random,
    steps: int,
    stop: Callable[[], bool],
) -> tuple[Intent, ReverieError] | None:
    """Mixed writes; the first that fails, with its error."""
    space = store.space(SPACE)
    for _ in range(steps):
        intent = ledger.plan(chance, f"k{ledger.entries}")
        try:
            ack = perform(space, intent)
        except ReverieError as error:
            return intent, error
        ledger.record(intent, ack)
        if stop():
            break
    return None


def answers(store: reverie.Store) -> dict[tuple[str, Mode], list[tuple[str, float]]]:
    space = store.space(SPACE)
    return {
        (query, mode): [(hit.id, hit.score) for hit in space.recall(query, mode=mode, limit=20)]
        for query in QUERIES
        for mode in MODES
    }


def check_after_reopening(path: Path, ledger: Ledger, pending: Intent | None) -> None:
    with open_store(path) as store:
        assert store.verify().problems == ()
        ledger.check_unknown(store.space(SPACE), pending)
        if pending is not None:
            ledger.settle(store, SPACE, pending)
        assert position_of(store, SPACE) == ledger.entries
        ledger.check(store.space(SPACE))
        ledger.check_recall(store.space(SPACE), random.Random(0))
        assert store.verify().problems == ()


def refuses_every_write(store: reverie.Store, ledger: Ledger, pending: Intent) -> None:
    space, at = store.space(SPACE), ledger.entries
    sure = {id: state for id, state in ledger.states.items() if id != pending.target}
    live = [id for id, state in sure.items() if state.status == "live"]
    forgotten = [id for id, state in sure.items() if state.status == "forgotten"]
    calls: list[Callable[[], object]] = [
        lambda: space.remember("must not be acknowledged", key=f"late{at}"),
        lambda: space.remember("nor this " * 200, kind="note"),
        lambda: store.space("another").remember("nor elsewhere"),
        lambda: space.import_records([{"content": "nor an import"}]),
        store.rebuild,
        store.reembed,
        store.vacuum,
        lambda: store.retry_job(SPACE, 1),
    ]
    if live:
        calls += [
            lambda: space.revise(live[0], "nor a revision"),
            lambda: space.revise(live[0], pinned=True),
            lambda: space.forget(live[0]),
            lambda: space.erase(live[0]),
        ]
    if forgotten:
        calls.append(lambda: space.restore(forgotten[0]))
    for call in calls:
        with pytest.raises(StoreFailed):
            call()


def reads_are_right_or_refused(
    store: reverie.Store, ledger: Ledger, pending: Intent | None
) -> None:
    with contextlib.suppress(StoreFailed):
        ledger.check_unknown(store.space(SPACE), pending)
    unsure = pending.target if pending is not None else ""
    sure = Ledger({id: state for id, state in ledger.states.items() if id != unsure})
    with contextlib.suppress(StoreFailed):
        sure.check_recall(store.space(SPACE), random.Random(1))


# -- a failed sync --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 61))
@pytest.mark.sample(9)
def test_write_is_not_acknowledged_after_a_failed_sync(
    tmp_path: Path, vfs: FailingVFS, at: int
) -> None:
    path = tmp_path / "store.db"
    ledger = fill(path, 5, seed=at)
    store = through(path, vfs)
    vfs.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, at))
    failure = write_until(store, ledger, random.Random(at), STEPS, lambda: bool(vfs.fired))
    assert vfs.fired == 1, "the fault lies beyond the writes"
    assert failure is not None, "a write was acknowledged although its sync failed"
    pending, error = failure
    assert isinstance(error, StoreFailed)
    # The disk is healthy again and still nothing may be written.
    refuses_every_write(store, ledger, pending)
    reads_are_right_or_refused(store, ledger, pending)
    store.close()
    check_after_reopening(path, ledger, pending)


@pytest.mark.parametrize("at", [1, 2, 3, 7, 20])
def test_disk_that_never_syncs_again_acknowledges_nothing(
    tmp_path: Path, vfs: FailingVFS, at: int
) -> None:
    path = tmp_path / "store.db"
    ledger = fill(path, 5, seed=at)
    store = through(path, vfs)
    vfs.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, at, lasting=True))
    failure = write_until(store, ledger, random.Random(at), STEPS, lambda: bool(vfs.fired))
    assert failure is not None
    pending, error = failure
    assert isinstance(error, StoreFailed)
    refuses_every_write(store, ledger, pending)
    reads_are_right_or_refused(store, ledger, pending)
    store.close()
    check_after_reopening(path, ledger, pending)


# -- failed writes, truncations and reads ---------------------------------------------------------

WRITES = [*range(1, 26), *range(30, 400, 17)]


@pytest.mark.parametrize("at", WRITES)
@pytest.mark.sample(9)
def test_failed_disk_write_loses_nothing_acknowledged(
    tmp_path: Path, vfs: FailingVFS, at: int
) -> None:
    path = tmp_path / "store.db"
    ledger = fill(path, 5, seed=at)
    store = through(path, vfs)
    vfs.arm(Fault("write", apsw.SQLITE_IOERR_WRITE, at))
    failure = write_until(store, ledger, random.Random(at), STEPS, lambda: bool(vfs.fired))
    assert vfs.fired == 1, "the fault lies beyond the writes"
    assert failure is not None
    pending, error = failure
    assert isinstance(error, StoreFailed)
    refuses_every_write(store, ledger, pending)
    reads_are_right_or_refused(store, ledger, pending)
    store.close()
    check_after_reopening(path, ledger, pending)


@pytest.mark.parametrize("at", range(1, 7))
def test_failed_truncation_loses_nothing_acknowledged(
    tmp_path: Path, vfs: FailingVFS, at: int
) -> None:
    path = tmp_path / "store.db"
    ledger = fill(path, 5, seed=at)
    store = through(path, vfs)
    vfs.arm(Fault("truncate", apsw.SQLITE_IOERR_TRUNCATE, at))
    failure = write_until(store, ledger, random.Random(at), 4 * STEPS, lambda: bool(vfs.fired))
    assert vfs.fired == 1, "the fault lies beyond the writes"
    pending = None
    if failure is not None:
        pending, error = failure
        assert isinstance(error, StoreFailed)
        refuses_every_write(store, ledger, pending)
    reads_are_right_or_refused(store, ledger, pending)
    store.close()
    check_after_reopening(path, ledger, pending)


READS = [*range(1, 26), *range(27, 60, 3)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    path = tmp_path_factory.mktemp("template") / "store.db"
    return path, fill(path, 120, seed=4)


@pytest.mark.parametrize("at", READS)
@pytest.mark.sample(9)
def test_failed_read_gives_an_error_or_the_right_answer(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger], at: int
) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(template[0], path)
    with open_store(path) as store:
        right = answers(store)
    ledger = template[1]
    store = through(path, vfs)
    vfs.arm(Fault("read", apsw.SQLITE_IOERR_READ, at))
    refused = 0
    for _ in range(3):
        for query in QUERIES:
            for mode in MODES:
                try:
                    hits = store.space(SPACE).recall(query, mode=mode, limit=20)
                except StoreFailed:
                    refused += 1
                    continue
                assert [(hit.id, hit.score) for hit in hits] == right[query, mode]
    with contextlib.suppress(StoreFailed):
        ledger.check(store.space(SPACE))
    with contextlib.suppress(StoreFailed):
        assert store.verify().problems == ()
    assert vfs.fired == 1, "the fault lies beyond the reads"
    assert refused <= 1
    # The disk reads again: so does the store, without being opened again.
    assert answers(store) == right
    store.close()
    with open_store(path) as again:
        assert again.verify().problems == ()
        assert answers(again) == right


@pytest.mark.parametrize("at", [*range(1, 20), *range(21, 60, 5)])
@pytest.mark.sample(9)
def test_failed_read_during_writes_loses_nothing_acknowledged(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger], at: int
) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(template[0], path)
    ledger = Ledger(dict(template[1].states), template[1].entries)
    store = through(path, vfs)
    vfs.arm(Fault("read", apsw.SQLITE_IOERR_READ, at))
    failure = write_until(store, ledger, random.Random(at), STEPS, lambda: bool(vfs.fired))
    assert vfs.fired == 1, "the fault lies beyond the writes"
    pending = None
    if failure is not None:
        pending, error = failure
        assert isinstance(error, StoreFailed)
        # It met a read, and the store goes on; or it met a write, and the store refuses them all.
        try:
            store.space("probe").remember("is writing possible?")
        except StoreFailed:
            refuses_every_write(store, ledger, pending)
    reads_are_right_or_refused(store, ledger, pending)
    store.close()
    check_after_reopening(path, ledger, pending)


# -- faults while opening -------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    ("operation", "code", "ats"),
    [
        ("sync", apsw.SQLITE_IOERR_FSYNC, range(1, 9)),
        ("write", apsw.SQLITE_IOERR_WRITE, range(1, 30)),
        ("write", apsw.SQLITE_FULL, range(1, 30)),
        ("read", apsw.SQLITE_IOERR_READ, range(1, 12)),
    ],
)
@pytest.mark.sample(4)
def test_fault_while_opening_is_a_typed_error_and_harmless(
    tmp_path: Path, vfs: FailingVFS, operation: str, code: int, ats: range, fresh: bool
) -> None:
    for at in ats:
        path = tmp_path / f"{operation}{at}.db"
        ledger = Ledger() if fresh else fill(path, 3)
        vfs.arm(Fault(operation, code, at))  # type: ignore[arg-type]
        try:
            store = through(path, vfs)
        except StoreError as error:
            expected = StoreFull if code == apsw.SQLITE_FULL else StoreFailed
            assert isinstance(error, expected), (at, error)
        else:
            store.close()
        vfs.disarm()
        with open_store(path) as store:
            ledger.check(store.space(SPACE))
            write_until(store, ledger, random.Random(at), 3, lambda: False)
            assert store.verify().problems == ()
            assert position_of(store, SPACE) == ledger.entries


# -- no space left --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wal", None])
@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
def test_full_disk_fails_one_write_and_the_store_continues(
    tmp_path: Path, vfs: FailingVFS, at: int, kind: str | None
) -> None:
    path = tmp_path / "store.db"
    ledger = fill(path, 5, seed=at)
    store = through(path, vfs)
    vfs.arm(Fault("write", apsw.SQLITE_FULL, at, kind, lasting=True))  # type: ignore[arg-type]
    failure = write_until(store, ledger, random.Random(at), STEPS, lambda: bool(vfs.fired))
    if failure is None:
        # The write was an erase: it is done, and only rewriting the file waits for room.
        assert [job.kind for job in store.jobs() if job.kind == "scrub"] == ["scrub"]
        vfs.disarm()
        store.run_pending_jobs()
        assert not [job for job in store.jobs() if job.kind == "scrub"]
        store.close()
        return
    pending, error = failure
    assert isinstance(error, StoreFull)
    for _ in range(3):
        with pytest.raises(StoreFull):
            store.space(SPACE).remember("there is still no room")
    ledger.check_unknown(store.space(SPACE), pending)
    # Space returns: the same handle goes on.
    vfs.disarm()
    ledger.settle(store, SPACE, pending)
    assert write_until(store, ledger, random.Random(at + 1), 20, lambda: False) is None
    ledger.check(store.space(SPACE))
    assert store.verify().problems == ()
    store.close()
    check_after_reopening(path, ledger, None)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int = 3) -> Iterator[Path]:
    """A real file system of a few megabytes. Only root can mount one."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a real full disk needs a mounted tmpfs, which needs root")
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_up(path: Path) -> None:
    """Leave no byte."""
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def test_real_full_disk_fails_writes_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(1 << 20))
        path, ledger, chance = disk / "store.db", Ledger(), random.Random(11)
        store = open_store(path)
        try:
            failure = write_until(store, ledger, chance, 5_000, lambda: False)
            assert failure is not None, "the disk never became full"
            assert isinstance(failure[1], StoreFull)
            acknowledged = ledger.entries
            for _ in range(3):
                with pytest.raises(StoreFull):
                    store.space(SPACE).remember(text_of(chance, "too-much", 4_000), kind="note")
            ledger.check_unknown(store.space(SPACE), failure[0])
            filler.unlink()
            ledger.settle(store, SPACE, failure[0])
            assert write_until(store, ledger, chance, 20, lambda: False) is None
            assert ledger.entries == acknowledged + 21
            assert store.verify().problems == ()
        finally:
            store.close()
        check_after_reopening(path, ledger, None)


def test_maintenance_on_a_full_disk_fails_and_loses_nothing(tmp_path: Path) -> None:
    """Everything that needs room says so, and works once there is some."""
    with small_disk(tmp_path / "small", 6) as disk:
        path = disk / "store.db"
        ledger = fill(path, 150, seed=3)
        store = open_store(path)
        try:
            right = answers(store)
            target = next(id for id, s in ledger.states.items() if s.status == "live")
            erase = Intent("erase", "erase-when-full", target)
            # Buffered notes of the recalls above must not be what fails.
            fill_up(disk / "filler")
            calls: list[Callable[[], object]] = [
                store.rebuild,
                store.reembed,
                store.vacuum,
                lambda: store.space(SPACE).import_records([{"content": "no room for this"}]),
                lambda: perform(store.space(SPACE), erase),
                lambda: store.backup(disk / "backup.db"),
            ]
            for call in calls:
                with pytest.raises(StoreFull):
                    call()
            assert answers(store) == right
            assert store.verify().problems == ()
            (disk / "filler").unlink()
            (disk / "backup.db").unlink(missing_ok=True)
            ledger.settle(store, SPACE, erase)
            store.rebuild()
            store.reembed()
            store.vacuum()
            assert store.backup(disk / "backup.db").ok
            assert store.verify().problems == ()
        finally:
            store.close()
        check_after_reopening(path, ledger, None)


def test_open_on_a_full_disk_fails_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        path = disk / "store.db"
        ledger = fill(path, 20)
        fill_up(disk / "filler")
        for name in ("store.db", "fresh.db"):
            with pytest.raises(StoreFull), open_store(disk / name) as store:
                store.space(SPACE).remember("no room for this")
        (disk / "filler").unlink()
        for name in ("store.db", "fresh.db"):
            with open_store(disk / name) as store:
                store.space("later").remember("there is room again")
                assert store.verify().problems == ()
        check_after_reopening(path, ledger, None)
