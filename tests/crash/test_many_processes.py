"""Many processes and threads share one file: no error reaches a caller, all see the same."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import reverie
from tests.conftest import PROVE
from tests.crash.peer import answers, peers
from tests.crash.workload import WORDS, open_store, position_of, text_of
from tests.figures import figure, percentile

SPACE = "shared"
WRITERS = 8
WRITES = 2_000 if PROVE else 100
CHANGES = 80 if PROVE else 15


def test_eight_processes_write_one_file_without_losing_a_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with peers(WRITERS) as writers:
        for seed, writer in enumerate(writers):
            writer.ask("load", path=str(path), space=SPACE, seed=seed, count=WRITES)
        results = [writer.answer() for writer in writers]
    acks = [id for one in results for id in one["acks"]]
    with open_store(path) as store:
        present = {memory.id for memory in store.space(SPACE).memories()}
    figure("acknowledged writes", len(acks))
    figure("acknowledged writes missing", len(set(acks) - present))
    figure("errors seen by a caller", sum(len(one["errors"]) for one in results))
    waits = [wait for one in results for wait in one["waits"]]
    figure("wait of a write, p99", percentile(waits, 0.99), "max")
    assert [one["errors"] for one in results] == [[]] * WRITERS
    assert len(acks) == len(set(acks)) == WRITERS * WRITES
    with open_store(path) as store:
        space = store.space(SPACE)
        assert {memory.id for memory in space.memories()} == set(acks)
        assert position_of(store, SPACE) == WRITERS * WRITES
        with store.runtime.engine.read() as tx:
            positions = [row[0] for row in tx.all("SELECT position FROM log ORDER BY position")]
        assert positions == list(range(1, WRITERS * WRITES + 1))
        assert store.verify().problems == ()


@pytest.mark.prove
def test_processes_that_open_and_close_repeatedly_lose_no_write(tmp_path: Path) -> None:
    """The last to close empties the write-ahead log while others are opening it."""
    path = tmp_path / "store.db"
    with peers(4) as writers:
        for seed, writer in enumerate(writers):
            writer.ask("load", path=str(path), space=SPACE, seed=seed, count=100, reopen=2)
        results = [writer.answer() for writer in writers]
    assert [one["errors"] for one in results] == [[]] * 4
    with open_store(path) as store:
        assert len(store.space(SPACE).memories()) == position_of(store, SPACE) == 400
        assert store.verify().problems == ()


def test_processes_that_create_the_same_file_at_once_share_it(tmp_path: Path) -> None:
    with peers(3) as makers:
        for number in range(8):
            path = tmp_path / f"{number}.db"
            for maker in makers:
                maker.ask("create", path=str(path))
            for maker in makers:
                maker.answer()
            with open_store(path) as store:
                assert len(store.space("made").memories()) == 3
                assert store.verify().problems == ()


def test_reader_in_another_process_sees_each_write_at_its_next_recall(tmp_path: Path) -> None:
    """A warm vector cache in another process gives exactly what a fresh store gives."""
    path = tmp_path / "store.db"
    chance = random.Random(9)
    queries = ["amber birch copper", "velvet willow", "the newest zephyr"]
    with open_store(path) as store, peers(1) as (reader,):
        space = store.space(SPACE)
        for number in range(30):
            space.remember(text_of(chance, f"first-{number}", 8))
        reader.call("open", path=str(path))
        live: list[str] = [memory.id for memory in space.memories()]
        forgotten: list[str] = []
        for number in range(CHANGES):
            verb = chance.choice(
                ["remember", "note", "revise", "relabel", "forget", "restore", "erase", "many"]
            )
            verb = {9: "reembed", 19: "rebuild"}.get(number % 20, verb)
            _change(store, space, chance, verb, number, live, forgotten)
            seen = reader.call("recall", space=SPACE, queries=queries)["answers"]
            with open_store(path) as fresh:
                assert seen == answers(fresh, SPACE, queries), (number, verb)
            assert seen == answers(store, SPACE, queries), (number, verb)
        assert store.verify().problems == ()


def _change(
    store: reverie.Store,
    space: reverie.Space,
    chance: random.Random,
    verb: str,
    number: int,
    live: list[str],
    forgotten: list[str],
) -> None:
    if verb == "note":
        content = text_of(chance, f"note-{number}", 300)
        live.append(space.remember(content, kind="note").id)
    elif verb == "many":
        live += [space.remember(text_of(chance, f"many-{number}", 6)).id for _ in range(40)]
    elif verb == "revise" and live:
        space.revise(chance.choice(live), text_of(chance, f"revised-{number}", 8))
    elif verb == "relabel" and live:
        space.revise(chance.choice(live), tags=[f"tag{number}"])
    elif verb == "forget" and live:
        forgotten.append(live.pop(chance.randrange(len(live))))
        space.forget(forgotten[-1])
    elif verb == "restore" and forgotten:
        live.append(forgotten.pop(chance.randrange(len(forgotten))))
        space.restore(live[-1])
    elif verb == "erase" and live:
        space.erase(live.pop(chance.randrange(len(live))))
    elif verb == "rebuild":
        store.rebuild()
    elif verb == "reembed":
        store.reembed()
    else:
        live.append(space.remember(text_of(chance, f"fact-{number}", 8)).id)


@pytest.mark.prove
def test_eight_threads_share_one_store_without_losing_a_write(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    errors: list[BaseException] = []
    kept: list[dict[str, str]] = [{} for _ in range(8)]
    entries = [0] * 8
    with open_store(path) as store:
        space = store.space(SPACE)
        begin = threading.Barrier(8)

        def work(thread: int) -> None:
            chance, mine = random.Random(thread), kept[thread]
            begin.wait()
            for number in range(80):
                name = f"thread-{thread}-{number}"
                verb = chance.choice(["remember", "remember", "revise", "forget", "erase", "read"])
                target = chance.choice(sorted(mine)) if mine else ""
                if verb == "remember" or not target:
                    content = text_of(chance, name, 8)
                    mine[space.remember(content, key=name).id] = content
                elif verb == "revise":
                    mine[target] = text_of(chance, name, 8)
                    assert space.revise(target, mine[target]).content == mine[target]
                elif verb == "forget":
                    space.forget(target)
                    del mine[target]
                elif verb == "erase":
                    space.erase(target)
                    del mine[target]
                else:
                    assert space.get(target).content == mine[target]
                    for mode in ("keyword", "vector", "hybrid"):
                        space.recall(" ".join(chance.choices(WORDS, k=3)), mode=mode)
                    own = mine[target]
                    assert target in {hit.id for hit in space.recall(own, limit=30)}
                    continue
                entries[thread] += 1

        def guarded(thread: int) -> None:
            try:
                work(thread)
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        expected: dict[str, Any] = {id: text for mine in kept for id, text in mine.items()}
        assert {memory.id: memory.content for memory in space.memories()} == expected
        assert position_of(store, SPACE) == sum(entries)
        assert store.verify().problems == ()
