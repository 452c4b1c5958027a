"""kill -9 at any moment loses no acknowledged event, splits no batch and loses no job."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.conversations import (
    MANY,
    SPACE,
    ExpectedSessions,
    Message,
    Step,
    Verb,
    ack_from,
    as_plain,
    fact_of,
    open_store,
    perform,
    step_from,
)
from tests.crash.test_kill import LONGEST_DELAY, Launcher, Launchers
from tests.tiers import PROVE

WRITER = "tests.crash.session_writer"
CASES = 4
# A fifth of the long run is for sessions.
ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80" if PROVE else "40")) // 4 // CASES, 1)
# A file serves this many rounds, then a new one: a full comparison must stay cheap.
ROUNDS_A_FILE = 20
ROUNDS_A_DRAIN = 4


@pytest.fixture(scope="module")
def launchers() -> Iterator[Launchers]:
    made = Launchers(WRITER)
    yield made
    made.close()


@pytest.fixture
def launcher(launchers: Launchers) -> Iterator[Launcher]:
    with launchers.lend() as lent:
        yield lent


def take_in(
    diary: ExpectedSessions, lines: list[dict[str, Any]], seen: Counter[Verb]
) -> Step | None:
    """Fold what a writer said into the diary; the step it had begun when it died."""
    pending = None
    for line in lines:
        if "step" in line:
            pending = step_from(line["step"])
        elif "ack" in line:
            assert pending is not None
            diary.record(pending, ack_from(line["ack"]))
            seen[pending.verb] += 1
            pending = None
    return pending


@pytest.mark.parametrize("case", range(CASES))
def test_acknowledged_events_survive_kill(tmp_path: Path, launcher: Launcher, case: int) -> None:
    chance = random.Random(case)
    acknowledged: Counter[Verb] = Counter()
    unknown: Counter[Verb] = Counter()
    for number in range(ROUNDS):
        if number % ROUNDS_A_FILE == 0:
            path, diary = tmp_path / f"{number}.db", ExpectedSessions()
        launcher.start("converse", path, seed=case * 1_000_000 + number)
        lines = launcher.until("ack")
        time.sleep(chance.uniform(0, LONGEST_DELAY))
        lines += launcher.kill()
        pending = take_in(diary, lines, acknowledged)
        with open_store(path) as store:
            diary.check_unknown(store.space(SPACE), pending)
            if pending is not None:
                unknown[pending.verb] += 1
                diary.settle(store, pending)
            diary.check(store)
            if number % ROUNDS_A_DRAIN == ROUNDS_A_DRAIN - 1:
                drained = Step("drain", "")
                diary.record(drained, perform(store, drained))
                diary.check(store)
                assert [job for job in store.jobs() if job.kind != "prune"] == []
    print(f"{ROUNDS} kills, acknowledged {dict(acknowledged)}, unknown {dict(unknown)}")


# -- killed at one place --------------------------------------------------------------------------


def taught(name: str, count: int) -> tuple[Message, ...]:
    """Turns of which each teaches something."""
    texts = [f"Remember that the kettle {name}x{at} is amber." for at in range(count)]
    return tuple({"role": "user", "content": text} for text in texts)


def begun(path: Path) -> ExpectedSessions:
    """A store with a session of some turns, none of them learned from yet."""
    diary = ExpectedSessions()
    with open_store(path) as store:
        for number in range(3):
            step = Step("append_many", f"t{number}", "chat", taught(f"t{number}", 2))
            diary.record(step, perform(store, step))
    return diary


def killed(launcher: Launcher, path: Path, step: Step, where: str, at: int) -> None:
    launcher.start("die_at", path, alone=True, step=as_plain(step), where=where, at=at)
    lines = launcher.until("ended")
    assert not [line for line in lines if "ack" in line]
    assert os.WTERMSIG(lines[-1]["ended"]) == signal.SIGKILL


@pytest.mark.parametrize("at", range(MANY))
def test_kill_within_append_many_leaves_all_messages_or_none(
    tmp_path: Path, launcher: Launcher, at: int
) -> None:
    path = tmp_path / "store.db"
    diary = begun(path)
    step = Step("append_many", "many", "chat", taught("many", MANY))
    killed(launcher, path, step, "append", at)
    with open_store(path) as store:
        diary.check(store)
        diary.settle(store, step)
        diary.check(store)


@pytest.mark.parametrize("at", range(4))
def test_kill_between_learned_changes_and_job_end_applies_them_once(
    tmp_path: Path, launcher: Launcher, at: int
) -> None:
    path = tmp_path / "store.db"
    diary = begun(path)
    drain = Step("drain", "")
    killed(launcher, path, drain, "finish", at)
    with open_store(path) as store:
        diary.check(store)
        diary.record(drain, perform(store, drain))
        diary.check(store)
        assert store.jobs() == []
        facts = {fact_of(message) for message in diary.turns().values()}
        assert {memory.content for memory in store.space(SPACE).memories()} == facts
        assert len(facts) == 6


def test_kill_between_session_erase_and_file_cleanup_is_completed_later(
    tmp_path: Path, launcher: Launcher
) -> None:
    """The job that finishes an erase finishes all of it, what was learned included."""
    path = tmp_path / "store.db"
    diary = begun(path)
    steps = [
        Step("append", "secret", "vault", taught("zqzqzqzqzq", 1)),
        Step("remember", "own", "vault", content="private vxvxvxvxvx"),
    ]
    with open_store(path) as store:
        for step in [*steps, Step("drain", "")]:
            diary.record(step, perform(store, step))
        diary.check(store)
    erase = Step("erase", "erase", "vault")
    killed(launcher, path, erase, "scrub", 0)
    with open_store(path) as store:
        diary = diary.after(erase, "vault")
        diary.check(store)
        assert [job.kind for job in store.jobs()] == ["scrub"]
        store.run_pending_jobs()
        assert store.jobs() == []
        for file in tmp_path.glob("store.db*"):
            held = file.read_bytes()
            assert b"zqzqzqzqzq" not in held and b"vxvxvxvxvx" not in held, file.name
        diary.check(store)
