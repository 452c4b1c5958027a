"""One store on both engines: the same hits in the same order with the same scores."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import reverie
from reverie import RANKINGS, Hit, Ranking, Settings, Store
from reverie.model import HitKind, Mode
from reverie.transfer.migrate import migrate
from tests.conftest import FakeClock, SeededIds
from tests.servers import Server

WORDS = [
    "river",
    "boat",
    "blue",
    "cold",
    "garden",
    "tomato",
    "kitchen",
    "recipe",
    "train",
    "Berlin",
    "Lisbon",
    "doctor",
    "allergy",
    "peanut",
    "guitar",
    "concert",
    "ticket",
    "server",
    "database",
    "release",
    "invoice",
    "budget",
    "meeting",
    "sister",
    "brother",
    "birthday",
    "coffee",
    "breakfast",
    "holiday",
    "mountain",
    "bicycle",
    "camera",
    "museum",
    "swimming",
    "yoga",
    "insurance",
    "mortgage",
]
RANKED = sorted(set(RANKINGS) - {"reranked"})


def sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(3, 40)))


def fill(store: Store) -> None:
    chance = random.Random(11)
    for user in (None, "bo"):
        space = store.space("ana", user=user)
        texts = [sentence(chance) for _ in range(150)]
        # What is said twice ties with itself.
        space.import_records({"content": text} for text in [*texts, *texts[:40]])
        for number in range(8):
            session = space.session(f"s{number}")
            session.append_many(
                {"role": role, "content": sentence(chance)}
                for role in ("user", "assistant") * chance.randint(2, 8)
            )
            session.remember(sentence(chance), private=True)
        for memory in space.memories(limit=30):
            space.forget(memory.id)
        space.remember(" ".join(sentence(chance) for _ in range(60)), kind="note")


def opened(url: str) -> Store:
    return reverie.open(
        url, settings=Settings(), embedder="local", clock=FakeClock(), ids=SeededIds()
    )


@pytest.fixture(scope="module")
def both(
    postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    file, database = str(tmp_path_factory.mktemp("same") / "store.db"), postgres.database()
    with opened(file) as store:
        fill(store)
    migrate(file, database)
    with opened(file) as one, opened(database) as other:
        yield one, other


def asked(store: Store, ranking: Ranking, mode: Mode) -> list[list[Hit]]:
    chance = random.Random(23)
    found = []
    for user in (None, "bo"):
        space = store.space("ana", user=user)
        for number in range(12):
            query = " ".join(chance.sample(WORDS, chance.randint(1, 6)))
            handle = space if number % 3 else space.session(f"s{number % 8}")
            found.append(handle.recall(query, limit=10, ranking=ranking, mode=mode, explain=True))
            kinds: list[HitKind] = ["event"] if number % 2 else ["note", "fact"]
            found.append(space.recall(query, limit=5, kinds=kinds, ranking=ranking, mode=mode))
    return found


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "vector"])
@pytest.mark.parametrize("ranking", RANKED)
@pytest.mark.sample(8)
def test_recall_gives_the_same_hits_on_sqlite_and_postgres(
    both: tuple[Store, Store], ranking: str, mode: Mode
) -> None:
    one, other = (asked(store, RANKINGS[ranking], mode) for store in both)
    assert sum(map(len, one)) > 200
    assert one == other
