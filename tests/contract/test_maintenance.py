"""rebuild, verify, doctor, spaces, jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import reverie
from reverie import NotFound, Space, Store
from tests.conftest import HOUR, START, FakeClock, FakeEmbedder, Stores, rows, tamper
from tests.tiers import PROVE

QUERIES = 30 if PROVE else 8

WORDS = [
    "zebra",
    "horse",
    "river",
    "mountain",
    "coffee",
    "hamburg",
    "dentist",
    "deploy",
    "folder",
    "whiskers",
    "garden",
    "piano",
    "violet",
    "engine",
    "market",
    "bridge",
    "window",
    "lantern",
    "ocean",
    "thunder",
    "上海自行车",
    "東京駅",
    "ข้าวผัด",
]


def fill(store: Store, seed: int = 1) -> None:
    """Facts and notes of several owners, some revised, forgotten, restored or erased."""
    chance = random.Random(seed)
    handles = [store.space("ana"), store.space("ana", user="bo"), store.space("ben")]
    for _ in range(60):
        handle = chance.choice(handles)
        text = " ".join(chance.choices(WORDS, k=chance.randint(2, 12)))
        if chance.random() < 0.1:
            handle.remember(f"{text}. " * 30, kind="note", tags=["long"])
        else:
            handle.remember(text, category=chance.choice("abc"), tags=[chance.choice("xyz")])
    for handle in handles:
        for memory in chance.sample(handle.memories(), 8):
            if memory.user != handle.user:
                continue
            match chance.randrange(4):
                case 0:
                    handle.revise(memory.id, memory.content[:400] + " more")
                case 1:
                    handle.forget(memory.id)
                case 2:
                    handle.forget(memory.id)
                    handle.restore(memory.id)
                case _:
                    handle.erase(memory.id)


def answers(store: Store) -> list[object]:
    chance = random.Random(2)
    found: list[object] = []
    for name, user in (("ana", None), ("ana", "bo"), ("ben", None)):
        handle = store.space(name, user=user)
        for _ in range(QUERIES):
            query = " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))
            for mode in ("keyword", "vector", "hybrid"):
                hits = handle.recall(query, mode=mode, limit=10)
                found.append([(hit.id, hit.score, hit.text) for hit in hits])
        found.append(handle.memories(include_forgotten=True))
        found.append(handle.memories(tags=["x"], category="a"))
    return found


def same(one: list[object], two: list[object]) -> bool:
    """Equal, but that sums made in another order may round the last digit of a score otherwise."""

    def coarse(value: object) -> object:
        if isinstance(value, float):
            return None
        return [coarse(part) for part in value] if isinstance(value, list | tuple) else value

    def scores(value: object) -> list[float]:
        if isinstance(value, list | tuple):
            return [score for part in value for score in scores(part)]
        return [value] if isinstance(value, float) else []

    near = zip(scores(one), scores(two), strict=True)
    return coarse(one) == coarse(two) and all(abs(a - b) <= 2e-6 for a, b in near)


def test_rebuild_changes_no_answer(stores: Stores) -> None:
    store, other = stores.open(), stores.open()
    fill(store)
    before = answers(store)
    assert answers(other) == before
    digest = store.verify()
    seen: list[tuple[int, int]] = []
    count = store.rebuild(lambda done, whole: seen.append((done, whole)))
    assert count == digest.memories and seen[-1] == (count, count)
    assert store.verify() == digest and digest.ok
    assert same(answers(store), before)
    assert same(answers(other), before), "a handle that was open before sees the same"
    store.space("ana").remember("zebra after the rebuild")
    assert (
        other.space("ana").recall("zebra after rebuild", mode="vector")[0].text.endswith("rebuild")
    )


def test_rebuild_with_a_remote_embedder_queues_the_vectors(stores: Stores) -> None:
    store = stores.open(embedder=FakeEmbedder(remote=True))
    store.space("ana").remember("zebra")
    store.run_pending_jobs()
    store.rebuild()
    assert store.space("ana").recall("zebra", mode="keyword")
    store.run_pending_jobs()
    assert store.space("ana").recall("zebra", mode="vector") and store.verify().ok


TAMPERING: dict[str, str] = {
    "a posting is gone": "DELETE FROM postings WHERE term = 'zebra'",
    "a posting is of another term": "UPDATE postings SET term = 'horses' WHERE term = 'zebra'",
    "a posting is of another passage": "UPDATE postings SET passage = 1 WHERE term = 'zebra'",
    "a posting has another length": "UPDATE postings SET len = len + 1 WHERE term = 'zebra'",
    "a posting too many": "INSERT INTO postings SELECT space, owner, 'extra', passage, 1 "
    "FROM passages WHERE passage = 0",
    "a passage moved": "UPDATE passages SET start = start + 1 WHERE passage = 0",
    "a passage is shorter": "UPDATE passages SET length = length - 1 WHERE passage = 0",
    "a passage counts its terms wrongly": "UPDATE passages SET terms = terms + 1 WHERE passage = 0",
    "a passage leads elsewhere": "UPDATE passages SET born = 2 WHERE passage = 0",
    "a passage is gone": "DELETE FROM passages WHERE passage = 0",
    "a memory is gone": "DELETE FROM memories WHERE born = 1",
    "a memory is of another category": "UPDATE memories SET category = 'other' WHERE born = 1",
    "a memory is forgotten": "UPDATE memories SET forgotten_at = 5 WHERE born = 1",
    "a memory is pinned": "UPDATE memories SET pinned = 1 WHERE born = 1",
    "a memory is at another version": "UPDATE memories SET version = 9 WHERE born = 1",
    "a memory has another subject": "UPDATE memories SET subject_key = 'other' WHERE born = 1",
    "a memory happened elsewhen": "UPDATE memories SET at = 5 WHERE born = 1",
    "a memory expires": "UPDATE memories SET expires_at = 5 WHERE born = 1",
    "a tag is gone": "DELETE FROM tags WHERE tag = 't'",
    "a tag too many": "INSERT INTO tags SELECT space, owner, 'extra', born FROM memories",
    "a vector is gone": "DELETE FROM vectors",
    "the statistics differ": "UPDATE statistics SET passages = passages + 1",
    "an event is of another speaker": "UPDATE events SET speaker = 'Mina' WHERE sequence = 1",
    "an event is of nobody": "UPDATE events SET speaker = NULL WHERE sequence = 1",
    "an event counts its terms wrongly": "UPDATE events SET terms = terms + 1 WHERE sequence = 1",
    "an event got a speaker": "UPDATE events SET speaker = 'Mina' WHERE sequence = 2",
}


@pytest.mark.parametrize("how", TAMPERING)
def test_verify_detects_and_rebuild_repairs_a_tampered_index(stores: Stores, how: str) -> None:
    store = stores.open()
    space = store.space("ana")
    space.remember("the zebra is striped", subject="zebra", tags=["t"])
    space.remember("a horse is not")
    space.session("s").append_many(
        [
            {"role": "user", "name": "Alec", "content": "which one has stripes?"},
            {"role": "assistant", "content": "not that one"},
        ]
    )
    whole = store.verify()
    assert whole.ok and whole.memories == 2 and whole.versions == 2 and whole.spaces == 1
    assert whole.events == 2
    assert tamper(store, TAMPERING[how]) > 0
    report = store.verify()
    assert not report.ok and report.problems
    assert all("\n" not in problem for problem in report.problems)
    store.rebuild()
    assert store.verify() == whole
    assert space.recall("zebra")[0].text == "the zebra is striped"
    assert len(space.memories(tags=["t"], subject="zebra")) == 1


def test_verify_detects_a_changed_log(store: Store, space: Space) -> None:
    space.remember("the zebra is striped")
    before = store.verify().digest
    tamper(store, "UPDATE log SET body = REPLACE(body, 'striped', 'spotted')")
    report = store.verify()
    assert not report.ok and report.digest != before


def test_verify_digest_depends_on_the_content_alone(stores: Stores) -> None:
    one, two = stores.open("one"), stores.open("two")
    one.space("ana").remember("zebra")
    two.space("ana").import_records(one.space("ana").export())
    assert one.verify().digest == two.verify().digest
    two.space("ana").remember("more")
    assert one.verify().digest != two.verify().digest


def test_spaces_are_listed_with_their_counts(store: Store) -> None:
    store.space("ben").remember("x")
    ana = store.space("ana")
    ana.remember("one")
    gone = ana.remember("two")
    ana.remember("three", kind="note")
    ana.forget(gone.id)
    store.space("ana", user="cy").remember("of cy")
    store.space("ana", user="bo").remember("of bo", kind="note")
    first, second = store.spaces()
    assert (first.name, first.users) == ("ana", ("bo", "cy"))
    assert (first.facts, first.notes, first.position) == (2, 2, 6)
    assert (second.name, second.users, second.facts, second.position) == ("ben", (), 1, 1)


def test_each_space_counts_its_own_positions(store: Store) -> None:
    for name in ("ana", "ben", "ana"):
        store.space(name).remember(name)
    positions = rows(store, "SELECT space, position FROM log ORDER BY space, position")
    assert positions == [(1, 1), (1, 2), (2, 1)]


def test_doctor_of_a_healthy_store_finds_no_problem(store: Store, space: Space) -> None:
    space.remember("x")
    found = store.doctor()
    assert found["problems"] == [] and found["spaces"] == 1
    assert found["embedder"] == found["vectors"] == "hashing:64"
    assert found["jobs"] == {"ready": 0, "running": 0, "parked": 0}


def test_doctor_names_spaces_whose_recorded_time_is_ahead_of_the_clock(
    stores: Stores, clock: FakeClock
) -> None:
    store = stores.open()
    store.space("right").remember("written in time")
    clock.step(400 * 24 * HOUR)
    store.space("pinned").remember("written by a clock that was wrong")
    clock.at = START
    report = store.doctor()
    assert report["ahead of the clock"] == {"pinned": 400 * 24 * HOUR}
    (problem,) = report["problems"]
    assert "'pinned' is 400 days ahead" in problem and "set the clock" in problem
    # Time has not run backwards, and it does not until the clock has caught up.
    memory = store.space("pinned").remember("written by a clock that is right")
    assert memory.created_at >= START + 400 * 24 * HOUR
    clock.step(400 * 24 * HOUR - 30_000)
    assert store.doctor()["problems"] == [] and store.doctor()["ahead of the clock"] == {}


def test_jobs_are_listed_retried_and_dropped(store: Store, space: Space, clock: FakeClock) -> None:
    space.remember("x", expires_at=START + HOUR)
    store.space("ben").remember("y", expires_at=START + HOUR)
    one, two = store.jobs()
    assert (one.space, one.kind, one.state, one.due_at) == ("ana", "expire", "ready", START + HOUR)
    assert (two.space, one.attempts, one.error) == ("ben", 0, None)
    store.retry_job("ana", one.id)
    assert store.run_pending_jobs() == 1
    assert space.memories(), "the job came early, the memory is not over"
    assert [job.due_at for job in store.jobs()] == [START + HOUR] * 2, "it waits for its time"
    store.drop_job("ana", one.id)
    store.drop_job("ben", two.id)
    assert store.jobs() == [] and store.run_pending_jobs() == 0
    verbs: list[Callable[[str, int], None]] = [store.retry_job, store.drop_job]
    for verb in verbs:
        with pytest.raises(NotFound):
            verb("ben", 99)
        with pytest.raises(NotFound):
            verb("nowhere", 1)


def test_expiry_survives_a_job_that_was_run_early_by_hand(
    store: Store, space: Space, clock: FakeClock
) -> None:
    memory = space.remember("x", expires_at=START + HOUR)
    store.retry_job("ana", store.jobs()[0].id)
    store.run_pending_jobs()
    clock.step(2 * HOUR)
    store.run_pending_jobs()
    assert space.get(memory.id).forgotten_at is not None


def test_vacuum_changes_no_answer(store: Store, space: Space) -> None:
    space.remember("zebra")
    before = store.verify()
    store.vacuum()
    assert store.verify() == before and space.recall("zebra")


def test_closed_store_raises_a_typed_error(stores: Stores) -> None:
    from reverie import StoreClosed

    store = stores.open()
    space = store.space("ana")
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: space.remember("x"),
        lambda: space.recall("x"),
        space.memories,
        store.verify,
        store.spaces,
        store.run_pending_jobs,
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_store_is_a_context_manager(stores: Stores) -> None:
    with stores.open() as store:
        store.space("ana").remember("x")
        assert repr(store).startswith("Store(") and store.url and store.settings
    assert len(stores.open().space("ana").memories()) == 1


@pytest.mark.parametrize("name", ["plain", "with space", "100%", "a?b=c", "a#b", "zébra", "%41"])
def test_store_url_opens_the_same_store(tmp_path: Path, name: str) -> None:
    store = reverie.open(tmp_path / f"{name}.db", embedder="hashing")
    store.space("ana").remember("x")
    with reverie.open(store.url, embedder="hashing") as again:
        assert again.url == store.url
        assert len(again.space("ana").memories()) == 1
    store.close()
    assert (tmp_path / f"{name}.db").exists()


def test_positions_returns_the_given_spaces_only(store: Store) -> None:
    store.space("ana").remember("one")
    store.space("ana", user="bo").remember("two")
    store.space("empty'; --").remember("three")
    asked = ["ana", "empty'; --", "absent", *(f"absent {number}" for number in range(1_200))]
    assert store.positions(asked) == {"ana": 2, "empty'; --": 1}
    assert store.positions([]) == {}
