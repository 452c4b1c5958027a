"""A disk that fails to read once: an error that says to try again, never a store called damaged.

The system's EIO comes out of SQLite as "database disk image is malformed".
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import reverie
from reverie.errors import StoreDamaged, StoreFailed
from tests.crash.failing_vfs import FailingVFS, Fault
from tests.crash.test_faults import SPACE, answers, check_after_reopening, fill, through
from tests.crash.workload import Ledger, open_store, perform

CODES = {
    "EIO": apsw.SQLITE_IOERR_CORRUPTFS,
    "read": apsw.SQLITE_IOERR_READ,
}
READS = [*range(1, 31), *range(33, 80, 3)]


@pytest.fixture
def vfs() -> Iterator[FailingVFS]:
    made = FailingVFS()
    yield made
    made.disarm()
    made.unregister()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    path = tmp_path_factory.mktemp("template") / "store.db"
    return path, fill(path, 60, seed=5)


def assert_says_try_again(error: StoreFailed) -> None:
    message = str(error)
    assert "try again" in message and "failed to read" in message, message
    assert not any(word in message for word in ("damaged", "move it away", "salvage")), message


@pytest.mark.parametrize("at", READS)
@pytest.mark.parametrize("code", ["EIO", "read"])
@pytest.mark.sample(12)
def test_read_error_asks_for_a_retry_and_the_next_call_succeeds(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger], code: str, at: int
) -> None:
    path, ledger = tmp_path / "store.db", template[1]
    shutil.copyfile(template[0], path)
    with open_store(path) as healthy:
        right = answers(healthy)
    store = through(path, vfs)
    vfs.arm(Fault("read", CODES[code], at))
    refused = 0
    for _ in range(2):
        try:
            assert answers(store) == right
            ledger.check(store.space(SPACE))
            assert store.verify().problems == ()
        except StoreFailed as error:
            assert_says_try_again(error)
            refused += 1
    assert vfs.fired == 1, "the fault lies beyond the reads"
    assert refused <= 1
    assert answers(store) == right
    store.close()
    check_after_reopening(path, Ledger(dict(ledger.states), ledger.entries), None)


@pytest.mark.parametrize("at", READS)
@pytest.mark.parametrize("code", ["EIO", "read"])
@pytest.mark.sample(12)
def test_write_that_met_a_read_error_is_repeated_without_reopening(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger], code: str, at: int
) -> None:
    path, ledger = tmp_path / "store.db", Ledger(dict(template[1].states), template[1].entries)
    shutil.copyfile(template[0], path)
    store = through(path, vfs)
    chance = random.Random(at)
    vfs.arm(Fault("read", CODES[code], at))
    for number in range(40):
        intent = ledger.plan(chance, f"w{number}")
        try:
            ack = perform(store.space(SPACE), intent)
        except StoreFailed as error:
            assert_says_try_again(error)
            assert vfs.fired == 1
            ledger.settle(store, SPACE, intent)
            continue
        ledger.record(intent, ack)
        if vfs.fired and number > 10:
            break
    ledger.check(store.space(SPACE))
    assert store.verify().problems == ()
    store.close()
    check_after_reopening(path, ledger, None)


@pytest.mark.parametrize("code", ["EIO", "read"])
def test_read_error_while_opening_asks_to_try_again(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger], code: str
) -> None:
    path, refused = tmp_path / "store.db", 0
    shutil.copyfile(template[0], path)
    for at in range(1, 25):
        vfs.arm(Fault("read", CODES[code], at))
        try:
            through(path, vfs).close()
        except StoreFailed as error:
            assert_says_try_again(error)
            refused += 1
        vfs.disarm()
        through(path, vfs).close()
    assert refused > 3


def test_persistent_damage_is_reported_as_damage(
    tmp_path: Path, template: tuple[Path, Ledger]
) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(template[0], path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(200_000))
    with pytest.raises(StoreDamaged) as caught:
        store = open_store(path)
        answers(store)
    for command in ("reverie verify", "reverie salvage", "reverie backup restore"):
        assert command in str(caught.value)
    assert "\n" not in str(caught.value)


def test_disk_that_never_reads_again_is_reported_as_a_failed_disk(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger]
) -> None:
    path = tmp_path / "store.db"
    shutil.copyfile(template[0], path)
    store = through(path, vfs)
    vfs.arm(Fault("read", apsw.SQLITE_IOERR_READ, 1, lasting=True))
    for _ in range(3):
        with pytest.raises(StoreFailed, match="check the disk"):
            store.space(SPACE).recall("river")
    vfs.disarm()
    assert isinstance(answers(store), dict)
    store.close()


def test_handles_of_other_threads_keep_reading_after_a_read_error(
    tmp_path: Path, vfs: FailingVFS, template: tuple[Path, Ledger]
) -> None:
    """Each connection of the pool that may hold what a failing disk gave is replaced."""
    path = tmp_path / "store.db"
    shutil.copyfile(template[0], path)
    store: reverie.Store = through(path, vfs)
    right = answers(store)
    engine = store.runtime.engine
    with engine.read(), pytest.raises(StoreFailed):
        vfs.arm(Fault("read", CODES["EIO"], 1))
        store.space("unknown").memories()
        raise StoreFailed("nothing had to be read")
    vfs.disarm()
    assert answers(store) == right
    store.close()
