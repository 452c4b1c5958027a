"""Jobs: claimed under a lease, in lanes, with backoff, and due where a worker looks."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from reverie import Space, Store
from reverie.agenda import jobs, worker
from reverie.agenda.jobs import LEASE_MS, MAX_ATTEMPTS, Claim, LeaseLost
from reverie.protocols import Owner, Transaction
from tests.conftest import HOUR, SECOND, START, FakeClock, Stores, engine_of, rows

DONE: list[Any] = []


def note_it(runtime: Any, claim: Claim) -> None:
    DONE.append(claim.payload.get("name"))
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        claim.finish(tx)


def fail_it(runtime: Any, claim: Claim) -> None:
    DONE.append(claim.payload.get("name"))
    raise RuntimeError("this one never works")


def fail_odd(runtime: Any, claim: Claim) -> None:
    raise KeyboardInterruptLike


class KeyboardInterruptLike(Exception):
    pass


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    DONE.clear()
    for kind in ("note_it", "fail_it", "fail_odd"):
        monkeypatch.setitem(worker.HANDLERS, kind, partial(globals().get, kind))


@pytest.fixture
def owner(store: Store) -> Owner:
    store.space("ana").remember("makes the space")
    return Owner(1, 0)


def add(store: Store, owner: Owner, kind: str = "note_it", *, due: int = START, **more: Any) -> int:
    lane, yields = more.pop("lane", None), more.pop("yields", False)
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        return jobs.add(tx, owner, kind, more, due_at=due, now=START, lane=lane, yields=yields)


def take(store: Store, owner: Owner, now: int, token: str) -> Claim | None:
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        return jobs.claim(tx, owner, now, token)


def due(store: Store) -> list[tuple[Any, ...]]:
    return rows(store, "SELECT space, at FROM due ORDER BY space, owner")


def marks(store: Store) -> int:
    return int(rows(store, "SELECT COUNT(*) FROM meta WHERE key = 'mark'")[0][0])


def mark(tx: Transaction) -> None:
    tx.run("INSERT INTO meta (key, value) VALUES ('mark', '1')")


def test_a_job_is_claimed_once(store: Store, owner: Owner) -> None:
    number = add(store, owner, name="x")
    claim = take(store, owner, START, "one")
    assert claim is not None
    assert (claim.job, claim.kind, claim.owner, claim.attempts) == (number, "note_it", owner, 1)
    assert claim.payload == {"name": "x"}
    assert take(store, owner, START, "two") is None
    (job,) = store.jobs()
    assert (job.state, job.due_at) == ("running", START + LEASE_MS)


def test_a_job_is_not_claimed_before_it_is_due(store: Store, owner: Owner) -> None:
    add(store, owner, due=START + 1)
    assert take(store, owner, START, "one") is None
    assert take(store, owner, START + 1, "one") is not None


def test_expired_lease_goes_to_another_worker_and_the_first_has_no_effect(
    store: Store, owner: Owner
) -> None:
    add(store, owner)
    first = take(store, owner, START, "one")
    assert take(store, owner, START + LEASE_MS - 1, "two") is None
    second = take(store, owner, START + LEASE_MS, "two")
    assert first is not None and second is not None and first.job == second.job
    for late in (
        first.finish,
        lambda tx: first.reschedule(tx, START),
        lambda tx: first.fail(tx, START, "late"),
    ):
        with pytest.raises(LeaseLost), engine_of(store).write() as tx:
            tx.enter_all_owners()
            mark(tx)
            late(tx)
        assert marks(store) == 0, "the effect is undone with the lease"
    assert store.jobs()[0].error is None
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        mark(tx)
        second.finish(tx)
    assert marks(store) == 1 and store.jobs() == []
    with pytest.raises(LeaseLost), engine_of(store).write() as tx:
        tx.enter_all_owners()
        second.finish(tx)


def test_handler_that_lost_its_lease_is_not_counted_as_a_failure(
    store: Store, owner: Owner, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, owner, name="slow")

    def slow(runtime: Any, claim: Claim) -> None:
        DONE.append("slow")
        if len(DONE) == 1:
            clock.step(LEASE_MS)
            assert worker.run_one(runtime), "another worker takes it meanwhile"
        with runtime.engine.write() as tx:
            tx.enter_all_owners()
            claim.finish(tx)

    monkeypatch.setattr(f"{__name__}.note_it", slow)
    assert store.run_pending_jobs() == 1
    assert DONE == ["slow", "slow"] and store.jobs() == []


def test_jobs_run_in_the_order_of_their_due_times(
    store: Store, owner: Owner, clock: FakeClock
) -> None:
    for name, at in (("c", 3), ("a", 1), ("b", 2), ("a2", 1), ("later", 99)):
        add(store, owner, due=START + at, name=name)
    clock.step(10)
    assert store.run_pending_jobs() == 4
    assert DONE == ["a", "a2", "b", "c"]
    clock.step(100)
    assert store.run_pending_jobs() == 1 and DONE[-1] == "later"


def test_lane_runs_its_jobs_in_the_order_they_were_added(store: Store, owner: Owner) -> None:
    add(store, owner, due=START, lane="s", name="first")
    add(store, owner, due=START - 50, lane="s", name="second")
    add(store, owner, due=START - 10, lane="other", name="free")
    add(store, owner, due=START - 5, name="no lane")
    assert store.run_pending_jobs() == 4
    assert DONE.index("first") < DONE.index("second")
    assert set(DONE) == {"first", "second", "free", "no lane"}


def test_lane_waits_for_a_running_or_failed_job(
    store: Store, owner: Owner, clock: FakeClock
) -> None:
    add(store, owner, "fail_it", lane="s", name="bad")
    add(store, owner, lane="s", name="good")
    assert store.run_pending_jobs() == 1 and DONE == ["bad"]
    assert store.run_pending_jobs() == 0
    for _ in range(MAX_ATTEMPTS - 1):
        assert "good" not in DONE
        clock.step(2 * HOUR)
        store.run_pending_jobs()
    assert DONE == ["bad"] * MAX_ATTEMPTS + ["good"], "a parked job holds nobody up"
    assert [job.state for job in store.jobs()] == ["parked"]


def test_yielding_job_lets_its_lane_go_on_only_while_it_waits_for_a_retry(
    store: Store, owner: Owner, clock: FakeClock
) -> None:
    add(store, owner, "fail_it", lane="s", yields=True, name="bad")
    add(store, owner, lane="s", yields=True, name="good")
    held = take(store, owner, START, "held")
    assert held is not None and held.payload["name"] == "bad"
    assert take(store, owner, START, "second") is None, "the earlier one is running"
    assert take(store, owner, START + LEASE_MS, "third") is not None, "it was claimed again"
    assert take(store, owner, START + LEASE_MS, "fourth") is None
    clock.step(2 * LEASE_MS)
    assert store.run_pending_jobs() == 2 and DONE == ["bad", "good"]
    assert [job.attempts for job in store.jobs()] == [3]


def test_retried_job_waits_for_a_later_one_of_its_lane_that_is_running(
    store: Store, owner: Owner, clock: FakeClock
) -> None:
    add(store, owner, "fail_it", lane="s", yields=True, name="bad")
    add(store, owner, lane="s", yields=True, name="good")
    assert worker.run_one(store.runtime) and DONE == ["bad"]
    later = take(store, owner, START, "held")
    assert later is not None and later.payload["name"] == "good"
    clock.step(10_000)
    assert store.run_pending_jobs() == 0 and DONE == ["bad"]
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        later.finish(tx)
    assert store.run_pending_jobs() == 1 and DONE == ["bad", "bad"]


def test_handler_that_gives_up_parks_its_job_with_the_cause(
    store: Store, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(runtime: Any, claim: Claim) -> None:
        raise jobs.ParkJob("of no use") from ValueError("why it is of no use")

    monkeypatch.setitem(worker.HANDLERS, "note_it", lambda: give_up)
    add(store, owner)
    assert store.run_pending_jobs() == 1
    (job,) = store.jobs()
    assert (job.state, job.attempts) == ("parked", 1)
    assert job.error == "ValueError: why it is of no use"


def test_finished_job_marks_the_earlier_ones_of_its_kind_as_overtaken(
    store: Store, owner: Owner
) -> None:
    for name in ("first", "second", "third"):
        add(store, owner, due=START + (name == "first"), name=name)
    add(store, owner, "fail_it", due=START + 1)
    later = take(store, owner, START, "held")
    assert later is not None and later.payload["name"] == "second"
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        later.mark_overtaken(tx)
        later.finish(tx)
    assert rows(store, "SELECT overtaken FROM jobs ORDER BY job") == [(1,), (0,), (0,)]


def test_job_that_waits_for_a_retry_remembers_that_it_was_overtaken_then(
    store: Store, owner: Owner
) -> None:
    add(store, owner, name="first")
    first = take(store, owner, START, "one")
    add(store, owner, name="second")
    second = take(store, owner, START, "two")
    add(store, owner, name="third")
    third = take(store, owner, START, "three")
    assert first and second and third
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        second.mark_overtaken(tx)
        assert first.overtaken(tx) == jobs.OVERTAKEN
        first.fail(tx, START, "it failed")
        third.mark_overtaken(tx)
        assert first.overtaken(tx) == jobs.OVERTAKEN_WAITING
        assert (second.overtaken(tx), third.overtaken(tx)) == (jobs.OVERTAKEN, 0)


def test_lanes_of_two_owners_run_independently(store: Store, owner: Owner) -> None:
    store.space("ana", user="bo").remember("x")
    add(store, owner, lane="s", name="shared")
    held = take(store, owner, START, "held")
    assert held is not None
    add(store, Owner(1, 1), lane="s", name="of bo")
    add(store, owner, lane="s", name="waits")
    assert store.run_pending_jobs() == 1 and DONE == ["of bo"]


def test_retry_delay_doubles_until_the_job_is_parked(
    store: Store, owner: Owner, clock: FakeClock
) -> None:
    number = add(store, owner, "fail_it")
    waits = []
    while (job := store.jobs()[0]).state != "parked":
        clock.at = max(clock.at, job.due_at)
        assert store.run_pending_jobs() == 1
        waits.append(store.jobs()[0].due_at - clock.now())
    assert len(waits) == job.attempts == MAX_ATTEMPTS
    assert waits == [min(SECOND * 2**n, HOUR) for n in range(MAX_ATTEMPTS)]
    assert job.error == "RuntimeError: this one never works"
    assert due(store) == []
    clock.step(1000 * HOUR)
    assert store.run_pending_jobs() == 0
    store.retry_job("ana", number)
    (job,) = store.jobs()
    assert (job.state, job.attempts, job.error) == ("ready", 0, None)
    assert store.run_pending_jobs() == 1


def test_job_of_an_unknown_kind_fails_and_is_listed(store: Store, owner: Owner) -> None:
    add(store, owner, "from_the_future")
    add(store, owner, name="known")
    assert store.run_pending_jobs() == 2
    (job,) = store.jobs()
    assert (job.kind, job.attempts) == ("from_the_future", 1)
    assert "from_the_future" in (job.error or "") and DONE == ["known"]


def test_handler_exceptions_are_recorded_and_not_raised(store: Store, owner: Owner) -> None:
    add(store, owner, "fail_odd")
    assert store.run_pending_jobs() == 1
    assert "KeyboardInterruptLike" in (store.jobs()[0].error or "")


def test_due_table_holds_the_earliest_due_time_of_each_space(store: Store, owner: Owner) -> None:
    store.space("ben").remember("x")
    other = Owner(2, 0)
    assert due(store) == []
    late = add(store, owner, due=START + 50)
    assert due(store) == [(1, START + 50)]
    early = add(store, owner, due=START + 10)
    add(store, owner, due=START + 90)
    add(store, other, due=START + 70)
    assert due(store) == [(1, START + 10), (2, START + 70)]
    claim = take(store, owner, START + 20, "t")
    assert claim is not None and claim.job == early
    assert due(store) == [(1, START + 50), (2, START + 70)]
    store.drop_job("ana", late)
    assert due(store) == [(1, START + 90), (2, START + 70)]
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        claim.reschedule(tx, START + 60)
    assert due(store) == [(1, START + 60), (2, START + 70)]
    with engine_of(store).read() as tx:
        tx.enter_all_owners()
        assert jobs.due_owners(tx, START + 59, 9) == []
        assert jobs.due_owners(tx, START + 100, 9) == [Owner(1, 0), Owner(2, 0)]
        assert jobs.due_owners(tx, START + 100, 1) == [Owner(1, 0)]


def test_jobs_due_before_1970_are_run(store: Store, owner: Owner) -> None:
    for name in ("one", "two", "three"):
        add(store, owner, due=-5, name=name)
    assert store.run_pending_jobs() == 3
    assert DONE == ["one", "two", "three"]


def test_worker_runs_jobs_of_every_space(store: Store, owner: Owner) -> None:
    for number, name in enumerate(("ben", "cy", "dee"), 2):
        store.space(name).remember("x")
        add(store, Owner(number, 0), name=name)
    add(store, owner, name="ana")
    assert store.run_pending_jobs() == 4 and set(DONE) == {"ana", "ben", "cy", "dee"}
    assert due(store) == []


def test_add_once_queues_one_job_until_it_is_claimed(store: Store, owner: Owner) -> None:
    def once() -> None:
        with engine_of(store).write() as tx:
            tx.enter_all_owners()
            jobs.add_once(tx, owner, "note_it", due_at=START, now=START)

    once()
    once()
    assert len(store.jobs()) == 1
    assert take(store, owner, START, "t") is not None
    once()
    once()
    assert len(store.jobs()) == 2, "what came after it began is not lost"


def test_job_is_rolled_back_with_the_transaction_that_added_it(store: Store, owner: Owner) -> None:
    with pytest.raises(RuntimeError), engine_of(store).write() as tx:
        tx.enter_all_owners()
        jobs.add(tx, owner, "note_it", {}, due_at=START, now=START)
        raise RuntimeError
    assert store.jobs() == [] and due(store) == []


def test_worker_thread_stops_on_request(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("x")
    add(store, Owner(1, 0), name="threaded")
    stop = threading.Event()
    thread = threading.Thread(target=store.run_worker, args=(stop, 0.01), daemon=True)
    thread.start()
    for _ in range(3000):
        if DONE:
            break
        stop.wait(0.01)
    stop.set()
    thread.join(30)
    assert not thread.is_alive() and DONE == ["threaded"] and store.jobs() == []


def test_run_pending_jobs_without_jobs_returns_zero(store: Store, space: Space) -> None:
    assert store.run_pending_jobs() == 0
    space.remember("x")
    assert store.run_pending_jobs() == 0


def test_run_owner_jobs_runs_only_the_given_kinds_including_those_due_soon(
    store: Store, owner: Owner
) -> None:
    """For a program that ends: its own jobs, and nobody else's."""
    runtime = store.runtime
    add(store, owner, "fail_it", name="another's")
    add(store, owner, name="first", lane="vault")
    add(store, owner, name="second", lane="vault", due=START + SECOND)
    add(store, owner, name="later", due=START + HOUR)
    assert worker.run_owner_jobs(runtime, owner, ("note_it",), ahead_ms=SECOND) is None
    assert DONE == ["first", "second"]
    # A worker still finds what is left.
    assert due(store) == [(owner.space, START)]
    assert store.run_pending_jobs() == 1
    assert DONE == ["first", "second", "another's"]


def test_run_owner_jobs_returns_and_records_why_a_job_failed(store: Store, owner: Owner) -> None:
    add(store, owner, "fail_it", name="mine")
    failure = worker.run_owner_jobs(store.runtime, owner, ("fail_it",), ahead_ms=0)
    assert failure == "RuntimeError: this one never works"
    (job,) = store.jobs()
    assert (job.error, job.attempts, job.state) == (failure, 1, "ready")


def test_run_owner_jobs_leaves_jobs_that_another_worker_has_claimed(
    store: Store, owner: Owner
) -> None:
    add(store, owner, name="taken", lane="vault")
    add(store, owner, name="behind it", lane="vault")
    assert take(store, owner, START, "another") is not None
    assert worker.run_owner_jobs(store.runtime, owner, ("note_it",)) is None
    assert DONE == []
