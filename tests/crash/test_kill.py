"""kill -9 at any moment loses no acknowledged write and leaves nothing half done."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie.errors import NotFound
from reverie.model import Mode
from tests.crash.workload import (
    Ack,
    Intent,
    Ledger,
    intent_from,
    open_store,
    perform,
    position_of,
    text_of,
)
from tests.figures import figure
from tests.tiers import EACH_FAULT, PROVE

ROOT = Path(__file__).parents[2]
SPACE = "crash"
CASES = 8
ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80" if PROVE else "40")) // CASES, 1)
# A file serves this many rounds, then a new one: a full comparison must stay cheap.
ROUNDS_A_FILE = 40
ROUNDS_A_CHECK = 5
# Of the places for a kill within a rebuild, a reembed and an import.
EACH_PLACE = 1 if PROVE else EACH_FAULT
LONGEST_DELAY = 0.2
PIPE_BYTES = 1 << 20
MODES: tuple[Mode, ...] = ("keyword", "vector", "hybrid")


class Launcher:
    """The process that forks writers of a module, and what they say."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._said = self._process.stdin, self._process.stdout
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # A writer must never wait for us to read.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._said, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        assert "ready" in self._line()
        self.idle = True
        """Whether no writer runs and all that writers said is read."""

    def start(self, work: str, path: Path | str, *, alone: bool = False, **order: Any) -> None:
        self.idle = False
        order = {"work": work, "path": str(path), "alone": alone, "embedder": "hashing"} | order
        self._orders.write(json.dumps(order).encode() + b"\n")
        self._orders.flush()

    def until(self, name: str) -> list[dict[str, Any]]:
        """Everything said up to the first line that has this name."""
        lines: list[dict[str, Any]] = []
        while True:
            line = self._line()
            lines.append(line)
            assert "error" not in line, line["error"]
            assert name in line or "ended" not in line, lines
            if name in line:
                self.idle = "ended" in line
                return lines

    def kill(self) -> list[dict[str, Any]]:
        """Kill the writer; what it said since, a line it died within left out."""
        self._orders.write(b"kill\n")
        self._orders.flush()
        lines = self.until("ended")
        assert os.WTERMSIG(lines[-1]["ended"]) == signal.SIGKILL
        return lines

    def close(self) -> None:
        self._orders.close()
        self._process.wait()
        self._said.close()

    def _line(self) -> dict[str, Any]:
        while True:
            line = self._said.readline()
            assert line, "the launcher is gone"
            with contextlib.suppress(json.JSONDecodeError):
                found: dict[str, Any] = json.loads(line)
                return found


class Launchers:
    """Lends a launcher to one test after the other, since to start one takes half a second."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._free: list[Launcher] = []

    @contextlib.contextmanager
    def lend(self) -> Iterator[Launcher]:
        launcher = self._free.pop() if self._free else Launcher(self._module)
        try:
            yield launcher
        finally:
            # A test that failed may have left a writer behind.
            if launcher.idle:
                self._free.append(launcher)
            else:
                launcher.close()

    def close(self) -> None:
        for launcher in self._free:
            launcher.close()


@pytest.fixture(scope="module")
def launchers() -> Iterator[Launchers]:
    made = Launchers("tests.crash.writer")
    yield made
    made.close()


@pytest.fixture
def launcher(launchers: Launchers) -> Iterator[Launcher]:
    with launchers.lend() as lent:
        yield lent


def take_in(ledger: Ledger, lines: list[dict[str, Any]]) -> Intent | None:
    """Fold what a writer said into the ledger; the write it had begun when it died."""
    pending = None
    for line in lines:
        if "intent" in line:
            pending = intent_from(line["intent"])
        elif "ack" in line:
            assert pending is not None
            ledger.record(pending, Ack(**line["ack"]))
            pending = None
    return pending


@pytest.mark.parametrize("case", range(CASES))
def test_acknowledged_writes_survive_kill(tmp_path: Path, launcher: Launcher, case: int) -> None:
    embedder = "local" if case % 4 == 3 else "hashing"
    chance = random.Random(case)
    acknowledged = unknown = applied = 0
    for number in range(ROUNDS):
        if number % ROUNDS_A_FILE == 0:
            path, ledger = tmp_path / f"{number}.db", Ledger()
        launcher.start("write", path, embedder=embedder, seed=case * 1_000_000 + number)
        lines = launcher.until("ack")
        time.sleep(chance.uniform(0, LONGEST_DELAY))
        lines += launcher.kill()
        before = ledger.entries
        pending = take_in(ledger, lines)
        acknowledged += ledger.entries - before
        figure("kills", 1)
        began = time.monotonic()
        with open_store(path, embedder) as store:
            space = store.space(SPACE)
            space.memories(limit=1)
            figure("slowest reopening", time.monotonic() - began, "max")
            figure("acknowledged writes missing", len(ledger.missing(space, pending)))
            there = ledger.check_unknown(space, pending)
            assert position_of(store, SPACE) == ledger.entries + there
            if pending is not None:
                unknown, applied = unknown + 1, applied + there
                ledger.settle(store, SPACE, pending)
            ledger.check_recall(space, chance, 2)
            if number % ROUNDS_A_CHECK == 0 or number == ROUNDS - 1:
                ledger.check(space)
                problems = store.verify().problems
                figure("problems found by verify", len(problems))
                assert problems == ()
    figure("acknowledged writes", acknowledged)
    print(f"{ROUNDS} kills, {acknowledged} acknowledged, {unknown} unknown, {applied} of them kept")


def test_kill_while_the_store_is_created_can_be_repeated(
    tmp_path: Path, launcher: Launcher
) -> None:
    chance = random.Random(1)
    early = 0
    for number in range(40):
        path = tmp_path / f"{number}.db"
        launcher.start("create", path)
        launcher.until("started")
        time.sleep(chance.uniform(0, 0.02))
        acks = [line for line in launcher.kill() if "ack" in line]
        early += not acks
        with open_store(path) as store:
            space = store.space(SPACE)
            found = [memory.content for memory in space.memories()]
            assert found in ([], ["the first memory"])
            assert not acks or found
            space.remember("the first memory", key="first")
            assert [memory.content for memory in space.memories()] == ["the first memory"]
            assert store.verify().problems == ()
    assert early, "every writer was quicker than its kill"


# -- upkeep ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of every sort of memory, by the hashing embedder."""
    path = tmp_path_factory.mktemp("template") / "store.db"
    chance, ledger = random.Random(5), Ledger()
    with open_store(path) as store:
        for number in range(150):
            intent = ledger.plan(chance, f"t{number}")
            ledger.record(intent, perform(store.space(SPACE), intent))
        for number in range(10):
            store.space(SPACE, user="ana").remember(f"ana keeps memory {number} to herself")
    return path


def copied(template: Path, tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.db"
    shutil.copyfile(template, path)
    return path


Answers = dict[tuple[str, Mode], list[tuple[str, float]]]


def answers(store: reverie.Store) -> Answers:
    return {
        (query, mode): [(hit.id, hit.score) for hit in space.recall(query, mode=mode, limit=20)]
        for space in (store.space(SPACE), store.space(SPACE, user="ana"))
        for query in ("amber birch", "river velvet willow", "to herself")
        for mode in MODES
    }


def test_kill_during_rebuild_keeps_the_old_index_or_the_new(
    tmp_path: Path, template: Path, launcher: Launcher
) -> None:
    with open_store(copied(template, tmp_path, "fresh")) as store:
        right, whole = answers(store), store.verify().memories
    chance = random.Random(2)
    for number in range(0, 12, EACH_PLACE):
        path = copied(template, tmp_path, str(number))
        if number < 8:
            at = [0, 1, whole // 3, whole // 2, whole - 11, whole - 10, whole - 2, whole - 1]
            launcher.start("rebuild", path, alone=True, at=at[number])
            assert os.WTERMSIG(launcher.until("ended")[-1]["ended"]) == signal.SIGKILL
        else:
            launcher.start("rebuild", path, at=-1)
            launcher.until("started")
            time.sleep(chance.uniform(0, 0.1))
            launcher.kill()
        with open_store(path) as store:
            assert store.verify().problems == ()
            assert answers(store) == right
            assert store.rebuild() == whole
            assert store.verify().problems == ()
            assert answers(store) == right


@pytest.mark.prove
def test_kill_during_reembed_loses_no_vector(
    tmp_path: Path, template: Path, launcher: Launcher
) -> None:
    """The old vectors serve until the new ones are all there; then the new ones do."""
    fresh = copied(template, tmp_path, "fresh")
    with open_store(fresh) as store:
        old = answers(store)
    with open_store(fresh, "local") as store:
        store.reembed()
        new = answers(store)
    assert old != new
    chance = random.Random(3)
    switched = 0
    for number in range(0, 14, EACH_PLACE):
        path = copied(template, tmp_path, str(number))
        if number < 8:
            launcher.start("reembed", path, alone=True, at=number, embedder="local")
            launcher.until("ended")
        else:
            launcher.start("reembed", path, at=-1, embedder="local")
            launcher.until("progress" if number % 2 else "started")
            time.sleep(chance.uniform(0, 0.1))
            launcher.kill()
        try:
            with open_store(path) as store:
                assert answers(store) == old
                # What is written meanwhile belongs to both.
                store.space(SPACE).remember("written between two attempts", key="between")
                assert store.verify().problems == ()
                between = 1
        except reverie.EmbeddingModelChangedError:
            switched += 1
            between = 0
        with open_store(path, "local") as store:
            store.reembed()
            assert store.verify().problems == ()
            if between:
                found = store.space(SPACE).recall("written between two attempts", mode="vector")
                assert found[0].text == "written between two attempts"
                store.space(SPACE).erase(found[0].id)
            assert {key: [id for id, _ in hits] for key, hits in answers(store).items()} == {
                key: [id for id, _ in hits] for key, hits in new.items()
            }


def test_kill_during_import_leaves_whole_batches_that_can_be_completed(
    tmp_path: Path, template: Path, launcher: Launcher
) -> None:
    """Whole batches are there or not, and importing again adds exactly the rest."""
    chance = random.Random(4)
    with open_store(copied(template, tmp_path, "fresh")) as store:
        ours = list(store.space(SPACE).export())
        right = {(m.id, m.version, m.content) for m in store.space(SPACE).memories()}
    plain = [{"content": text_of(chance, f"record{i}", 12)} for i in range(130)]
    for name, records in (("ours", ours), ("plain", plain)):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        for number in range(0, 9, EACH_PLACE):
            path = tmp_path / f"{name}{number}.db"
            at = [0, 1, 20, 21, 77, len(records) - 1, -1, -1, -1][number]
            launcher.start("import_records", path, alone=at >= 0, at=at, records=str(file))
            launcher.until("started")
            if at < 0:
                time.sleep(chance.uniform(0, 0.1))
                launcher.kill()
            else:
                launcher.until("ended")
            with open_store(path) as store:
                space = store.space(SPACE)
                assert store.verify().problems == ()
                there = store.verify().versions
                if at >= 0:
                    assert there == at // 20 * 20
                report = space.import_records(records)
                assert (report.added, report.unchanged) == (len(records) - there, there)
                assert report.skipped == ()
                again = space.import_records(records)
                assert (again.added, again.unchanged) == (0, len(records))
                assert store.verify().problems == ()
                found = {(m.id, m.version, m.content) for m in space.memories()}
                assert name == "plain" or found == right
                assert len(found) == len(right) or name == "plain"


@pytest.mark.parametrize("at", range(9))
@pytest.mark.sample(3)
def test_kill_during_restore_leaves_the_old_store_or_the_new(
    tmp_path: Path, template: Path, launcher: Launcher, at: int
) -> None:
    """Before or after, nothing between: what was erased since the backup never comes back."""
    path = copied(template, tmp_path, "store")
    backup = tmp_path / "backup.db"
    with open_store(path) as store:
        space = store.space(SPACE)
        gone = space.memories()[3].id
        assert store.backup(backup).ok
        space.erase(gone)
        later = space.remember("written after the backup").id
    launcher.start("restore_backup", path, alone=True, at=at, backup=str(backup))
    launcher.until("ended")
    with open_store(path) as store:
        assert store.verify().problems == ()
        space = store.space(SPACE)
        with pytest.raises(NotFound):
            space.get(gone)
        ids = {memory.id for memory in space.memories()}
        store.restore_backup(backup)
        restored = {memory.id for memory in space.memories()}
        assert gone not in restored
        assert ids in ({*restored, later}, restored)
        assert store.verify().problems == ()


def test_kill_between_erase_and_file_cleanup_is_completed_later(
    tmp_path: Path, template: Path, launcher: Launcher
) -> None:
    """The job that finishes an erase finishes all of it."""
    path = copied(template, tmp_path, "store")
    with open_store(path) as store:
        target = store.space(SPACE).remember("confidential-" + "zq" * 100)
        for _ in range(20):
            store.space(SPACE).remember("something else")
    launcher.start("erase", path, alone=True, id=target.id)
    launcher.until("ended")
    with open_store(path) as store:
        with pytest.raises(NotFound):
            store.space(SPACE).get(target.id)
        store.run_pending_jobs()
        assert not [job for job in store.jobs() if job.kind == "scrub"]
        for file in tmp_path.glob("store.db*"):
            assert b"zqzqzqzq" not in file.read_bytes(), file.name
        assert store.verify().problems == ()
