"""Many processes write one PostgreSQL database: no error reaches a caller, nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import PROVE, rows
from tests.crash.peer import peers
from tests.crash.workload import open_store
from tests.servers import Server

WRITES = 500 if PROVE else 100
# Half of the writers wait for each other, half for nobody.
SPACES = ("shared", "shared", "shared", "shared", "ana", "ben", "cleo", "dan")


@pytest.mark.prove
def test_eight_processes_write_one_database_without_losing_a_write(postgres: Server) -> None:
    address = postgres.database(template="made")
    with peers(len(SPACES)) as writers:
        for seed, (space, writer) in enumerate(zip(SPACES, writers, strict=True)):
            writer.ask("load", path=address, space=space, seed=seed, count=WRITES)
        answers = [writer.answer() for writer in writers]
    assert [one["errors"] for one in answers] == [[]] * len(SPACES)
    with open_store(address) as store:
        for space, count in Counter(SPACES).items():
            acks = [
                id
                for name, one in zip(SPACES, answers, strict=True)
                if name == space
                for id in one["acks"]
            ]
            assert len(acks) == len(set(acks)) == count * WRITES
            assert {memory.id for memory in store.space(space).memories()} == set(acks)
            logged = rows(
                store,
                "SELECT l.position, l.memory, l.version FROM log l JOIN spaces s "
                "ON s.space = l.space WHERE s.name = ? ORDER BY l.position",
                space,
            )
            assert [row[0] for row in logged] == list(range(1, count * WRITES + 1))
            assert sorted(row[1] for row in logged) == sorted(acks)
            assert {row[2] for row in logged} == {1}
        assert store.verify().problems == ()
