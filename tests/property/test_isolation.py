"""No owner sees anything of another: not in results, counts, scores, errors or exports."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import InvalidInput, NotFound, ReverieError, SharedReadOnly, Space, Store
from reverie.model import KINDS
from tests.conftest import DAY, PROVE, Stores
from tests.figures import figure
from tests.property import EXAMPLES

# Names that a careless comparison would take for each other.
NAMES = (
    "a",
    "ab",
    "a.b",
    "A",
    "aB",
    "a%",
    "a_",
    "%",
    "_",
    "*",
    "..",
    "../a",
    "a/b",
    "a/",
    "/",
    "a b",
    " a",
    "a ",
    "caf\u00e9",
    "cafe\u0301",
    "\u212b",
    "\u00c5",
    "ﬁ",
    "fi",
    "ß",
    "ss",
    "\U0001f993",
    "\U0001f993\u200d",
    "a\u200b",
    "а",
    "0",
    "None",
    "null",
    "shared",
    "'; DROP TABLE log; --",
    '"',
    "\\",
    "ı",
    "i",
    "İ",
)
Who = tuple[str, str | None]


def canary(who: Who, number: int) -> str:
    """A word that names the owner it belongs to."""
    return f"canary{OWNERS.index(who)}x{number}q"


OWNERS: list[Who] = [(space, user) for space in NAMES for user in (None, *NAMES)]
CANARY_WORD = re.compile(r"canary\d+x\d+q")
CANARY = re.compile(r"canary(\d+)x\d+q")


def named_in(value: object) -> set[Who]:
    """Every owner whose canary is somewhere in this."""
    return {OWNERS[int(found)] for found in CANARY.findall(repr(value))}


def visible(who: Who) -> set[Who]:
    return {who, (who[0], None)}


class World:
    """A store with a few owners that are easily mistaken for each other."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        spaces = self.chance.sample(NAMES, 3)
        users = self.chance.sample(NAMES, 3)
        self.owners: list[Who] = [(space, user) for space in spaces for user in (None, *users)]
        self.made: dict[Who, list[str]] = {who: [] for who in self.owners}
        self.number = itertools.count()

    def handle(self, who: Who) -> Space:
        return self.store.space(who[0], user=who[1])

    def write(self, who: Who) -> None:
        word = canary(who, next(self.number))
        handle = self.handle(who)
        kind = self.chance.choice(KINDS)
        memory = handle.remember(
            f"zebra {word}",
            kind=kind,
            category=self.chance.choice(["alpha", "beta"]),
            subject=word if self.chance.random() < 0.5 else None,
            tags=[word[:64], "common"],
            source=word,
            key=self.chance.choice([None, f"key{next(self.number)}"]),
        )
        self.made[who].append(memory.id)
        figure("operations", 1)
        if self.chance.random() < 0.3:
            handle.revise(memory.id, f"zebra again {word}", reason=word)
        if self.chance.random() < 0.2:
            handle.forget(memory.id, reason=word)

    def everything(self, who: Who) -> list[object]:
        """All that this handle can be made to say."""
        handle = self.handle(who)
        answers: list[object] = [
            handle.memories(),
            handle.memories(include_forgotten=True),
            handle.memories(category="alpha"),
            handle.memories(tags=["common"]),
            handle.memories(order="category"),
            handle.profile(),
            handle.profile(tokens=150),
            repr(handle),
        ]
        for mode in ("keyword", "vector", "hybrid"):
            answers.append(handle.recall("zebra canary", mode=mode, limit=100, explain=True))
        for position in range(0, 40, 7):
            answers.append(handle.memories(as_of=position, include_forgotten=True))
            answers.append(handle.recall("zebra", as_of=position, limit=100))
        answers.append(handle.recall("zebra", as_of="2026-06-01", limit=100))
        own_and_shared = [*self.made[who], *(self.made[who[0], None])]
        for id in dict.fromkeys(own_and_shared):
            answers.append(handle.get(id))
            answers.append(handle.history(id))
        return answers


@pytest.mark.parametrize("seed", range(max(EXAMPLES // 30, 1)))
def test_canary_of_one_scope_is_visible_in_no_other(stores: Stores, seed: int) -> None:
    world = World(stores.open(), seed)
    for _ in range((100 if not seed else 50) if PROVE else 15):
        world.write(world.chance.choice(world.owners))
    for who in world.owners:
        handle = world.handle(who)
        seen, exported = world.everything(who), list(handle.export())
        crossed = (named_in(seen) - visible(who)) | (named_in(exported) - {who})
        figure("operations", len(seen) + 1)
        figure("canaries seen elsewhere", len(crossed))
        assert not crossed
        for other in world.owners:
            if other in visible(who):
                continue
            for id in world.made[other][:2]:
                if id not in world.made[who] and id not in world.made[who[0], None]:
                    assert_absent(handle, id)
            for word in CANARY_WORD.findall(repr(world.handle(other).memories()))[:1]:
                if named_in(word) <= visible(who):
                    continue
                for mode in ("keyword", "hybrid"):
                    hits = handle.recall(word, mode=mode, limit=100)
                    assert named_in(hits) <= visible(who)
                assert handle.recall(word, mode="keyword") == []
                assert handle.memories(subject=word) == handle.memories(tags=[word]) == []
    users = {info.name: set(info.users) for info in world.store.spaces()}
    for space, user in world.owners:
        if world.made[space, user] and user is not None:
            assert user in users[space]
    counted = sum(info.facts + info.notes for info in world.store.spaces())
    alive = {(who[0], memory.id) for who in world.owners for memory in world.handle(who).memories()}
    assert counted == len(alive)
    assert world.store.verify().ok


def message(verb: Callable[[str], object], id: str) -> tuple[type[BaseException], str]:
    with pytest.raises(ReverieError) as caught:
        verb(id)
    return type(caught.value), str(caught.value).replace(id, "<id>")


def assert_absent(handle: Space, id: str) -> None:
    """An id of another owner is answered as one that was never given."""
    verbs: list[Callable[[str], Any]] = [
        handle.get,
        handle.history,
        handle.forget,
        handle.restore,
        handle.erase,
        lambda id: handle.revise(id, "x"),
        lambda id: handle.revise(id, pinned=True),
        lambda id: handle.revise(id, "x", expected_version=99),
        lambda id: handle.forget(id, key="some key"),
    ]
    figure("operations", 2 * len(verbs))
    for verb in verbs:
        kind, text = message(verb, id)
        assert (kind, text) == message(verb, "00000000")
        assert kind is NotFound and not CANARY.search(text)


def test_shared_memories_are_read_only_for_users(store: Store) -> None:
    shared = store.space("a").remember("x")
    for change in ("forget", "restore", "erase"):
        with pytest.raises(SharedReadOnly):
            getattr(store.space("a", user="bo"), change)(shared.id)
    for handle in (store.space("ab"), store.space("ab", user="bo"), store.space("A", user="a")):
        assert_absent(handle, shared.id)


def test_erased_memory_of_another_owner_looks_like_an_unknown_one(store: Store) -> None:
    bo = store.space("a", user="bo")
    memory = bo.remember("x")
    bo.erase(memory.id)
    assert_absent(store.space("a", user="cy"), memory.id)
    assert_absent(store.space("a"), memory.id)


@pytest.mark.parametrize("seed", range(4))
def test_writes_of_one_owner_change_no_score_of_another(stores: Stores, seed: int) -> None:
    chance = random.Random(seed)
    store = stores.open()
    space, near = chance.sample(NAMES, 2)
    mine = store.space(space, user="bo")
    words = [f"word{number}" for number in range(12)]
    for number in range(25):
        target = mine if number % 2 else store.space(space)
        target.remember(" ".join(chance.choices(words, k=5)))

    def scores() -> list[Any]:
        return [
            [
                (hit.id, hit.score, dict(hit.parts))
                for hit in mine.recall(
                    query,
                    mode=mode,
                    limit=50,
                    explain=True,
                )
            ]
            for query in ("word1 word2", "word3", "word4 word5 word6 word7")
            for mode in ("keyword", "vector", "hybrid")
        ]

    before, profile = scores(), mine.profile()
    others = [
        store.space(space, user="cy"),
        store.space(space, user="BO"),
        store.space(near),
        store.space(near, user="bo"),
    ]
    for _ in range(40):
        chance.choice(others).remember(" ".join(chance.choices([*words, "new"], k=6)))
    others[0].remember("word1 " * 2000, kind="note")
    assert scores() == before and mine.profile() == profile
    store.close()
    again = stores.open()
    mine = again.space(space, user="bo")
    assert scores() == before
    assert again.verify().ok


@pytest.mark.parametrize("seed", range(3))
def test_import_writes_to_its_owner_only(stores: Stores, seed: int) -> None:
    world = World(stores.open(), seed)
    for _ in range(24):
        world.write(world.chance.choice(world.owners))
    source, target = world.chance.sample(world.owners, 2)
    for _ in range(3):
        world.write(source)
    records = list(world.handle(source).export())
    untouched = [who for who in world.owners if who != target and target not in visible(who)]
    before = {who: world.everything(who) for who in untouched}
    report = world.handle(target).import_records(records)
    assert report.added == len(records) and report.skipped == ()
    assert {who: world.everything(who) for who in untouched} == before
    again = world.handle(target).import_records(records)
    assert (again.added, again.unchanged) == (0, len(records))
    for who in untouched:
        assert named_in(world.everything(who)) <= visible(who)
    assert world.store.verify().ok


def test_documents_keys_and_jobs_are_separate_for_each_owner(
    stores: Stores, tmp_path: Path
) -> None:
    store = stores.open()
    (tmp_path / "doc.txt").write_text("zebra", encoding="utf-8")
    handles = [store.space(name, user=user) for name in ("a", "A") for user in (None, "u", "U")]
    notes = [handle.remember_file(tmp_path / "doc.txt") for handle in handles]
    assert len({(handle.name, note.id) for handle, note in zip(handles, notes, strict=True)}) == 6
    facts = [handle.remember("one", key="same key", subject="same") for handle in handles]
    assert [handle.remember("one", key="same key", subject="same") for handle in handles] == facts
    for handle, fact in zip(handles, facts, strict=True):
        handle.forget(fact.id)
    assert all(not [m for m in handle.memories() if m.kind == "fact"] for handle in handles)


def test_caps_and_expiry_apply_to_one_owner(stores: Stores) -> None:
    store = stores.open(max_facts=2)
    kept = store.space("a", user="ab").remember("kept", expires_at=stores.clock.now() + 50 * DAY)
    for number in range(5):
        store.space("a", user="a").remember(f"x {number}", expires_at=stores.clock.now() + DAY)
        store.space("ab").remember(f"x {number}")
    stores.clock.step(2 * DAY)
    store.run_pending_jobs()
    assert store.space("a", user="ab").memories() == [kept]
    assert store.space("a", user="a").memories() == []
    assert len(store.space("ab").memories()) == 2


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\t",
        "\n",
        "a\nb",
        "a\0",
        "\x1b[0m",
        "\x7f",
        "\x85",
        "\u2028",
        "\ud83e",
        None,
        5,
        b"a",
    ],
)
def test_names_with_invisible_characters_are_refused(store: Store, name: Any) -> None:
    with pytest.raises(InvalidInput):
        store.space(name)
    if name is not None:
        with pytest.raises(InvalidInput):
            store.space("a", user=name)
    assert store.spaces() == []
