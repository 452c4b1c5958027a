"""Stores with a remote, a changed, a failing or no embedder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reverie import (
    ConfigError,
    DimensionMismatchError,
    EmbeddingFailed,
    EmbeddingModelChangedError,
    Space,
)
from reverie.agenda.jobs import MAX_ATTEMPTS
from tests.conftest import HOUR, SECOND, FakeClock, FakeEmbedder, Stores, rows


def by_vector(space: Space, query: str) -> list[str]:
    return [hit.text for hit in space.recall(query, mode="vector", limit=50)]


def test_write_does_not_call_a_remote_embedder(stores: Stores) -> None:
    embedder = FakeEmbedder(remote=True)
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    memory = space.remember("the zebra is striped")
    space.revise(memory.id, "the zebra is very striped")
    assert embedder.asked == 0
    assert [hit.id for hit in space.recall("zebra", mode="keyword")] == [memory.id]
    assert by_vector(space, "zebra") == []
    assert [hit.id for hit in space.recall("zebra")] == [memory.id]
    assert store.doctor()["vectors waiting"] == 1
    assert [job.kind for job in store.jobs()] == ["embed"]
    embedder.forget_calls()
    assert store.run_pending_jobs() == 1
    assert embedder.texts == ["the zebra is very striped"]
    assert by_vector(space, "zebra") == ["the zebra is very striped"]
    assert store.doctor()["vectors waiting"] == 0
    assert store.jobs() == [] and store.verify().ok


def test_vectors_written_by_another_process_are_found(stores: Stores) -> None:
    writer = stores.open(embedder=FakeEmbedder(remote=True))
    reader = stores.open(embedder=FakeEmbedder(remote=True)).space("ana")
    for round_ in range(4):
        memory = writer.space("ana").remember(f"zebra {round_}")
        assert f"zebra {round_}" not in by_vector(reader, "zebra")
        writer.run_pending_jobs()
        assert f"zebra {round_}" in by_vector(reader, "zebra")
        if round_ % 2:
            writer.space("ana").forget(memory.id)
            assert f"zebra {round_}" not in by_vector(reader, "zebra")
    assert sorted(by_vector(reader, "zebra")) == ["zebra 0", "zebra 2"]


def test_embed_job_fills_many_vectors_in_batches(stores: Stores) -> None:
    embedder = FakeEmbedder(remote=True)
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    space.import_records({"content": f"zebra number {number}"} for number in range(300))
    assert store.run_pending_jobs() == 2
    assert len(embedder.texts) == 300 and store.jobs() == []
    assert store.verify().ok and store.doctor()["vectors waiting"] == 0


def test_failing_embedder_is_retried_and_then_parked(stores: Stores, clock: FakeClock) -> None:
    embedder = FakeEmbedder(remote=True)
    embedder.failing = True
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    memory = space.remember("zebra")
    waits = []
    for attempt in range(1, MAX_ATTEMPTS):
        assert store.run_pending_jobs() == 1
        (job,) = store.jobs()
        assert (job.kind, job.state, job.attempts) == ("embed", "ready", attempt)
        assert "away" in (job.error or "")
        waits.append(job.due_at - clock.now())
        clock.step(waits[-1] - 1)
        assert store.run_pending_jobs() == 0
        clock.step(1)
    assert waits == [min(SECOND * 2**n, HOUR) for n in range(MAX_ATTEMPTS - 1)]
    assert store.run_pending_jobs() == 1
    (job,) = store.jobs()
    assert (job.state, job.attempts) == ("parked", MAX_ATTEMPTS)
    clock.step(1000 * HOUR)
    assert store.run_pending_jobs() == 0
    assert any("parked" in problem for problem in store.doctor()["problems"])
    assert [hit.id for hit in space.recall("zebra", mode="keyword")] == [memory.id]
    (hit,) = space.recall("zebra", explain=True)
    assert "away" in str(hit.parts["degraded"])
    with pytest.raises(EmbeddingFailed):
        space.recall("zebra", mode="vector")

    embedder.failing = False
    store.retry_job("ana", job.id)
    assert store.run_pending_jobs() == 1
    assert store.jobs() == [] and by_vector(space, "zebra") == ["zebra"]


CALLS: dict[str, Callable[[Space], object]] = {
    "remember": lambda space: space.remember("horse"),
    "revise": lambda space: space.revise(space.memories()[0].id, "horse"),
    "recall": lambda space: space.recall("zebra"),
    "recall by vector": lambda space: space.recall("zebra", mode="vector"),
    "import": lambda space: space.import_records([{"content": "x"}]),
    "import of ours": lambda space: space.import_records(list(space.export())),
}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_changed_embedding_model_is_an_error_before_any_call_to_it(
    stores: Stores, call: str, remote: bool
) -> None:
    stores.open(embedder=FakeEmbedder("fake:one")).space("ana").remember("zebra")
    embedder = FakeEmbedder("fake:two", remote=remote)
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    with pytest.raises(EmbeddingModelChangedError) as caught:
        CALLS[call](space)
    assert (caught.value.stored, caught.value.configured) == ("fake:one", "fake:two")
    assert "reembed" in str(caught.value)
    assert embedder.asked == 0
    assert [hit.text for hit in space.recall("zebra", mode="keyword")] == ["zebra"]
    assert len(space.memories()) == 1
    assert any("reembed" in problem for problem in store.doctor()["problems"])


def test_restore_under_a_changed_model_calls_no_embedder(stores: Stores) -> None:
    space = stores.open(embedder=FakeEmbedder("fake:one")).space("ana")
    memory = space.remember("zebra")
    space.forget(memory.id)
    embedder = FakeEmbedder("fake:two")
    with pytest.raises(EmbeddingModelChangedError):
        stores.open(embedder=embedder).space("ana").restore(memory.id)
    assert embedder.asked == 0


def test_same_model_name_with_other_dimensions_is_an_error(stores: Stores) -> None:
    stores.open(embedder=FakeEmbedder()).space("ana").remember("zebra")
    space = stores.open(embedder=FakeEmbedder(dimensions=32)).space("ana")
    with pytest.raises(DimensionMismatchError):
        space.remember("horse")
    with pytest.raises(DimensionMismatchError):
        space.recall("zebra")
    assert len(space.memories()) == 1


@pytest.mark.parametrize("remote", [False, True])
def test_reembed_switches_every_owner_to_the_new_generation_at_once(
    stores: Stores, remote: bool
) -> None:
    old = stores.open(embedder=FakeEmbedder("fake:one"))
    old.space("ana").remember("zebra one")
    old.space("ana", user="bo").remember("zebra two")
    old.space("ben").remember("zebra " * 400, kind="note")
    gone = old.space("ana").remember("forgotten zebra")
    old.space("ana").forget(gone.id)
    assert by_vector(old.space("ana"), "zebra") == ["zebra one"]

    embedder = FakeEmbedder("fake:two", remote=remote, dimensions=32)
    store = stores.open(embedder=embedder)
    progress: list[tuple[int, int]] = []
    count = store.reembed(lambda done, whole: progress.append((done, whole)))
    assert count == len(embedder.texts) == store.verify().passages
    assert progress[-1][0] == progress[-1][1]
    assert sorted(by_vector(store.space("ana", user="bo"), "zebra")) == ["zebra one", "zebra two"]
    assert len(by_vector(store.space("ben"), "zebra")) == 1
    assert store.verify().ok and store.doctor()["problems"] == []
    with pytest.raises(EmbeddingModelChangedError):
        old.space("ana").recall("zebra")
    with pytest.raises(EmbeddingModelChangedError):
        old.space("ana").remember("horse")
    assert len(old.space("ana").recall("zebra", mode="keyword")) == 1
    store.space("ana").remember("zebra three")
    store.run_pending_jobs()
    assert sorted(by_vector(store.space("ana"), "zebra")) == ["zebra one", "zebra three"]


def test_reembed_continues_where_it_was_interrupted(stores: Stores) -> None:
    space = stores.open(embedder=FakeEmbedder("fake:one")).space("ana")
    space.import_records({"content": f"zebra number {number}"} for number in range(600))
    embedder = FakeEmbedder("fake:two")
    embedder.fail_after = 300
    store = stores.open(embedder=embedder)
    with pytest.raises(EmbeddingFailed):
        store.reembed()
    with pytest.raises(EmbeddingModelChangedError):
        store.space("ana").recall("zebra")
    assert len(space.recall("zebra number 7", mode="vector")) == 5
    done = len(embedder.texts)
    assert 0 < done < 600
    embedder.fail_after = None
    store.close()
    store = stores.open(embedder=embedder)
    store.reembed()
    assert len(embedder.texts) == 600, "what was done already was paid for again"
    assert store.verify().ok
    assert "zebra number 7" in by_vector(store.space("ana"), "zebra number 7")


def test_reembed_with_the_same_model_or_none(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana")
    space.remember("zebra")
    before = space.recall("zebra", explain=True)
    assert store.reembed() == 1
    assert space.recall("zebra", explain=True) == before and store.verify().ok
    with pytest.raises(ConfigError):
        stores.open(embedder="none").reembed()


def test_vectors_are_filled_for_memories_written_without_an_embedder(stores: Stores) -> None:
    without_embedder = stores.open(embedder="none")
    without_embedder.space("ana").remember("zebra one")
    without_embedder.space("ana", user="bo").remember("zebra two")
    without_embedder.close()
    store = stores.open()
    space = store.space("ana", user="bo")
    space.remember("zebra three")
    store.run_pending_jobs()
    assert sorted(by_vector(space, "zebra")) == ["zebra one", "zebra three", "zebra two"]
    assert store.jobs() == [] and store.verify().ok


def test_vectors_are_filled_for_gaps_between_embedded_memories(stores: Stores) -> None:
    """With vectors before and after: what was written in between must not stay without."""
    store = stores.open()
    store.space("ana").remember("zebra one")
    store.close()
    without_embedder = stores.open(embedder="none")
    without_embedder.space("ana").remember("zebra two")
    without_embedder.close()
    store = stores.open()
    store.space("ana").remember("zebra three")
    store.run_pending_jobs()
    found = sorted(by_vector(store.space("ana"), "zebra"))
    assert found == ["zebra one", "zebra three", "zebra two"]
    assert rows(store, "SELECT * FROM unembedded") == []


def test_rebuild_without_an_embedder_queues_the_vectors_it_drops(stores: Stores) -> None:
    store = stores.open()
    store.space("ana").remember("zebra one")
    store.close()
    without_embedder = stores.open(embedder="none")
    without_embedder.rebuild()
    without_embedder.close()
    store = stores.open()
    store.space("ana").remember("zebra two")
    store.run_pending_jobs()
    assert sorted(by_vector(store.space("ana"), "zebra")) == ["zebra one", "zebra two"]


def test_import_embeds_all_its_texts_in_one_call(stores: Stores) -> None:
    class Calls(FakeEmbedder):
        calls = 0

        def embed(self, texts):  # type: ignore[no-untyped-def]
            type(self).calls += 1
            return super().embed(texts)

    space = stores.open(embedder=Calls()).space("ana")
    space.import_records([{"content": f"fact {number}"} for number in range(100)])
    assert Calls.calls == 1


def test_read_only_open_works_while_vectors_are_pending(stores: Stores) -> None:
    """Looking needs no writing: what is missing is filled in by somebody who may write."""
    without_embedder = stores.open(embedder="none")
    without_embedder.space("ana").remember("zebra")
    without_embedder.close()
    reader = stores.open(embedder=FakeEmbedder(), read_only=True)
    assert [hit.text for hit in reader.space("ana").recall("zebra", mode="keyword")] == ["zebra"]
