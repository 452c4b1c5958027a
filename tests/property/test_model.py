"""The engine against a simple model: every answer must be the same."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reverie import (
    KeyConflict,
    NotFound,
    Ranking,
    SharedReadOnly,
    Space,
    VersionConflict,
)
from tests.conftest import DAY, ENGINES, HOUR, Stores
from tests.figures import SEED, figure
from tests.property import examples
from tests.servers import Databases

STEPS = int(os.environ.get("REVERIE_PROPERTY_STEPS", "30"))
# Each part draws its sequences from a seed of its own, so that processes can share the work.
PARTS = int(os.environ.get("REVERIE_PROPERTY_PARTS", "1"))

SPACES = ("one", "two")
USERS = (None, "bo", "cy")
WORDS = ("zebra", "horse", "river", "piano")
EACH = Ranking(collapse=False)

OWNERS = st.tuples(st.sampled_from(SPACES), st.sampled_from(USERS))
Who = tuple[str, str | None]


@dataclass(frozen=True)
class State:
    """One version in the model."""

    id: str
    version: int
    content: str
    category: str
    subject: str | None
    tags: tuple[str, ...]
    created_at: int
    forgotten: bool = False


@dataclass
class Line:
    """One position of a space."""

    owner: str | None
    op: str
    id: str
    version: int
    state: State | None
    recorded_at: int


@dataclass
class Log:
    """One space: nothing but a list."""

    lines: list[Line] = field(default_factory=list)

    def time(self, now: int) -> int:
        return max(now, self.lines[-1].recorded_at) if self.lines else now

    def versions(self, owner: str | None, id: str) -> list[Line]:
        return [line for line in self.lines if (line.owner, line.id) == (owner, id)]

    def at(self, owner: str | None, position: int) -> list[State]:
        """The living, in order of birth."""
        states: dict[str, State | None] = {}
        for line in self.lines[:position]:
            if line.owner == owner:
                states[line.id] = line.state if line.op != "erase" else None
        return [state for state in states.values() if state is not None]

    def first_position(self, id: str) -> int:
        return next(i for i, line in enumerate(self.lines) if line.id == id)

    def seen(self, user: str | None, position: int, *, forgotten: bool = False) -> list[State]:
        """The newest first, as a handle lists them."""
        states = self.at(user, position) + ([] if user is None else self.at(None, position))
        alive = [state for state in states if forgotten or not state.forgotten]
        return sorted(alive, key=lambda state: -self.first_position(state.id))


def shape(memory: Any) -> State:
    return State(
        memory.id,
        memory.version,
        memory.content,
        memory.category,
        memory.subject,
        memory.tags,
        memory.created_at,
        memory.forgotten_at is not None,
    )


Statement = tuple[str | None, tuple[str, ...]]


def statement(state: State) -> Statement:
    """The subject of a memory and its words, each once, in the order in which they come."""
    return state.subject, tuple(dict.fromkeys(state.content.split()))


class Model(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model."""

    places: Places
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.address = self.places.take()
        self.stores = Stores(lambda name: self.address)
        self.store = self.stores.open()
        self.logs = {name: Log() for name in SPACES}
        self.keys: dict[tuple[Who, str], tuple[Callable[[], Any], Any]] = {}
        # Invariants are looked at before the first step that is drawn, too.
        self.steps = -1
        # The spaces whose memories the step may have changed.
        self.to_compare = set(SPACES)
        # Writes since then: without any, doing it again shows nothing new.
        self.since_opened = 0
        self.since_rebuilt = 0

    @invariant()
    def step_is_counted(self) -> None:
        self.steps += 1

    def teardown(self) -> None:
        try:
            self.compare_memories(SPACES)
            report = self.store.verify()
        finally:
            self.stores.close()
            self.places.give_back(self.address)
        figure("sequences of verbs", 1)
        figure("longest sequence", self.steps, "max")
        figure("verbs that changed the store", sum(len(log.lines) for log in self.logs.values()))
        assert report.problems == ()
        assert report.versions == sum(len(log.lines) for log in self.logs.values())

    def handle(self, who: Who) -> Space:
        return self.store.space(who[0], user=who[1])

    def expected(self, who: Who, id: str) -> type[Exception] | None:
        """What a write of this handle to this id raises."""
        log, user = self.logs[who[0]], who[1]
        end = len(log.lines)
        if id in {state.id for state in log.at(user, end)}:
            return None
        if user is not None and id in {state.id for state in log.at(None, end)}:
            return SharedReadOnly
        return NotFound

    def current(self, who: Who, id: str) -> State:
        log = self.logs[who[0]]
        return next(s for s in log.at(who[1], len(log.lines)) if s.id == id)

    def writes(self, *spaces: str) -> None:
        """Note that this step tries to write, also in vain: then nothing may have changed."""
        self.to_compare.update(spaces)
        self.since_opened += 1
        self.since_rebuilt += 1

    def append(self, who: Who, op: str, state: State) -> None:
        log = self.logs[who[0]]
        at = log.time(self.stores.clock.now())
        log.lines.append(Line(who[1], op, state.id, state.version, state, at))

    # -- writing --------------------------------------------------------------------------------

    @initialize(target=ids, owners=st.lists(OWNERS, min_size=2, max_size=4))
    def first_memories(self, owners: list[Who]) -> Any:
        """Hypothesis leaves rules out of a sequence: half of them would never remember anything."""
        # The invariants are first looked at after this step.
        self.steps += 1
        made = [self.remember(who, [WORDS[0]], "a", None, [], None) for who in owners]
        return multiple(*made)

    @rule(
        target=ids,
        who=OWNERS,
        words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
        category=st.sampled_from(["a", "B c", "general"]),
        subject=st.sampled_from([None, None, "Alec", "Mina"]),
        tags=st.lists(st.sampled_from(["x", "y"]), unique=True),
        key=st.sampled_from([None, "k1", "k2"]),
    )
    def remember(
        self,
        who: Who,
        words: list[str],
        category: str,
        subject: str | None,
        tags: list[str],
        key: str | None,
    ) -> Any:
        self.writes(who[0])
        content = " ".join(words)
        slug = category.lower().replace(" ", "_")
        log = self.logs[who[0]]
        now = log.time(self.stores.clock.now())

        def call() -> Any:
            return self.handle(who).remember(
                content, category=category, subject=subject, tags=tags, key=key
            )

        if key is not None and (who, key) in self.keys:
            with pytest.raises((KeyConflict, NotFound)):
                call_changed = self.handle(who).remember(content + " other", key=key)
                assert call_changed is None
            return multiple()
        alive = [state for state in log.at(who[1], len(log.lines)) if not state.forgotten]
        alive.sort(key=lambda state: -log.first_position(state.id))
        same = [
            state
            for state in alive
            if state.content == content
            and (None in (subject, state.subject) or subject == state.subject)
        ]
        same.sort(key=lambda state: (state.subject != subject, state.category != slug))
        memory = call()
        if same:
            # The same text is the same memory, with the labels of both.
            expected_state = replace(
                same[0],
                version=same[0].version + 1,
                category=slug if same[0].category == "general" else same[0].category,
                subject=same[0].subject or subject,
                tags=tuple(dict.fromkeys((*same[0].tags, *memory.tags))),
            )
            assert shape(memory) == expected_state
            assert set(memory.tags) == {*same[0].tags, *tags}
            self.append(who, "revise", shape(memory))
        else:
            state = State(memory.id, 1, content, slug, subject, tuple(tags), now)
            assert set(memory.tags) == set(tags)
            assert shape(memory) == replace(state, tags=memory.tags)
            self.append(who, "remember", shape(memory))
        own = [each.id for each in memory.related if each.user == memory.user]
        others = [
            state.id
            for state in alive
            if state.subject == memory.subject is not None and state.id != memory.id
        ]
        assert own == others[: len(own)]
        if key is not None:
            self.keys[who, key] = (call, memory)
        return memory.id

    @rule(
        who=OWNERS,
        id=ids,
        words=st.none() | st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
        subject=st.sampled_from([..., None, "Alec"]),
        expected=st.sampled_from([None, None, 1, 2]),
    )
    def revise(
        self, who: Who, id: str, words: list[str] | None, subject: Any, expected: int | None
    ) -> None:
        self.writes(who[0])
        content = None if words is None else " ".join(words)
        if content is None and subject is ...:
            subject = None

        def call() -> Any:
            return self.handle(who).revise(id, content, subject=subject, expected_version=expected)

        error = self.expected(who, id)
        if error is not None:
            with pytest.raises(error):
                call()
            return
        old = self.current(who, id)
        if old.forgotten:
            with pytest.raises(NotFound):
                call()
            return
        if expected not in {None, old.version}:
            with pytest.raises(VersionConflict):
                call()
            return
        new = replace(
            old,
            version=old.version + 1,
            content=old.content if content is None else content,
            subject=old.subject if subject is ... else subject,
        )
        assert shape(call()) == new
        self.append(who, "revise", new)

    @rule(who=OWNERS, id=ids, gone=st.booleans())
    def forget_or_restore(self, who: Who, id: str, gone: bool) -> None:
        self.writes(who[0])
        handle = self.handle(who)
        call = handle.forget if gone else handle.restore
        error = self.expected(who, id)
        if error is not None:
            with pytest.raises(error):
                call(id)
            return
        old = self.current(who, id)
        made = shape(call(id))
        if old.forgotten == gone:
            assert made == old
            return
        new = replace(old, version=old.version + 1, forgotten=gone)
        assert made == new
        self.append(who, "forget" if gone else "restore", new)

    @rule(who=OWNERS, id=consumes(ids))
    def erase(self, who: Who, id: str) -> None:
        self.writes(who[0])
        error = self.expected(who, id)
        if error is not None:
            with pytest.raises(error):
                self.handle(who).erase(id)
            return
        log = self.logs[who[0]]
        old = self.current(who, id)
        lines = log.versions(who[1], id)
        report = self.handle(who).erase(id)
        assert report.entries == tuple(log.lines.index(line) + 1 for line in lines)
        for line in lines:
            line.state = None
        self.append(who, "erase", replace(old, version=old.version + 1))
        log.lines[-1].state = None

    @precondition(lambda self: self.keys)
    @rule()
    def repeat_with_the_same_key(self) -> None:
        self.writes(*SPACES)
        for call, result in self.keys.values():
            try:
                assert call() == result
            except NotFound:
                assert result.id not in {
                    state.id
                    for log in self.logs.values()
                    for user in USERS
                    for state in log.at(user, len(log.lines))
                }

    # -- the world ------------------------------------------------------------------------------

    @rule(step=st.sampled_from([0, 1, 1000, HOUR, -HOUR, 3650 * DAY, -3650 * DAY]))
    def clock_steps(self, step: int) -> None:
        self.stores.clock.step(step)

    # Rules without arguments are drawn most often: a quarter of all steps rebuilt what was rebuilt.
    @precondition(lambda self: self.since_opened)
    @rule()
    def reopen(self) -> None:
        self.compare_memories(SPACES)
        self.store.close()
        self.store = self.stores.open()
        self.to_compare.update(SPACES)
        self.since_opened = 0

    @precondition(lambda self: self.since_rebuilt)
    @rule()
    def rebuild(self) -> None:
        self.compare_memories(SPACES)
        self.store.rebuild()
        self.to_compare.update(SPACES)
        self.since_rebuilt = 0

    # -- reading --------------------------------------------------------------------------------

    @invariant()
    def the_same_memories_in_the_same_order(self) -> None:
        """Compare what the step may have changed.

        What it spoiled besides is still there when everything is compared: before the store is
        opened again or rebuilt, which might mend it, and at the end.
        """
        self.compare_memories(self.to_compare)
        self.to_compare.clear()

    def compare_memories(self, spaces: Iterable[str]) -> None:
        for space, user in itertools.product(spaces, USERS):
            log = self.logs[space]
            seen = [shape(memory) for memory in self.handle((space, user)).memories()]
            assert seen == log.seen(user, len(log.lines))

    @rule(who=OWNERS, back=st.integers(0, 12))
    def as_of(self, who: Who, back: int) -> None:
        log = self.logs[who[0]]
        position = max(len(log.lines) - back, 0)
        handle = self.handle(who)
        wanted = log.seen(who[1], position)
        assert [shape(memory) for memory in handle.memories(as_of=position)] == wanted
        everything = handle.memories(as_of=position, include_forgotten=True)
        assert [shape(memory) for memory in everything] == log.seen(
            who[1], position, forgotten=True
        )
        hits = handle.recall("zebra", mode="keyword", as_of=position, limit=100, ranking=EACH)
        assert {hit.id for hit in hits} == {s.id for s in wanted if "zebra" in s.content}

    @rule(who=OWNERS, word=st.sampled_from(WORDS), mode=st.sampled_from(["keyword", "hybrid"]))
    def recall(self, who: Who, word: str, mode: Any) -> None:
        log = self.logs[who[0]]
        alive = log.seen(who[1], len(log.lines))
        hits = self.handle(who).recall(word, mode=mode, limit=100, ranking=EACH)
        found = {hit.id for hit in hits}
        assert len(found) == len(hits)
        having = {state.id for state in alive if word in state.content}
        assert having == found if mode == "keyword" else having <= found
        assert found <= {state.id for state in alive}
        for hit in hits:
            assert hit.memory is not None and shape(hit.memory) in alive

    @rule(who=OWNERS, word=st.sampled_from(WORDS))
    def recall_what_says_the_same_once(self, who: Who, word: str) -> None:
        """So short a text says the same as another only if it has its words in the same order.

        Equal texts of one subject are always shown as one, others only if they are of similar
        length as well. Texts of two subjects are two hits.
        """
        log = self.logs[who[0]]
        alive = {state.id: state for state in log.seen(who[1], len(log.lines))}
        wanted: dict[Statement, list[str]] = {}
        for state in alive.values():
            if word in state.content:
                wanted.setdefault(statement(state), []).append(state.content)
        hits = self.handle(who).recall(word, mode="keyword", limit=100, explain=True)
        found: dict[Statement, list[int]] = {}
        for hit in hits:
            shown = 1 + int(hit.parts.get("collapsed") or 0)
            found.setdefault(statement(alive[hit.id]), []).append(shown)
        assert {said: sum(groups) for said, groups in found.items()} == {
            said: len(contents) for said, contents in wanted.items()
        }
        for said, groups in found.items():
            assert len(groups) <= len(set(wanted[said]))

    @rule(who=OWNERS, category=st.sampled_from(["a", "b c"]), tag=st.sampled_from(["x", "y"]))
    def filters(self, who: Who, category: str, tag: str) -> None:
        log = self.logs[who[0]]
        slug = category.replace(" ", "_")
        wanted = [
            state
            for state in log.seen(who[1], len(log.lines))
            if state.category == slug and tag in state.tags
        ]
        found = self.handle(who).memories(category=category, tags=[tag])
        assert [shape(memory) for memory in found] == wanted
        hits = self.handle(who).recall(
            " ".join(WORDS),
            category=category,
            tags=[tag],
            mode="keyword",
            limit=100,
            ranking=EACH,
        )
        assert {hit.id for hit in hits} == {state.id for state in wanted}

    @rule(who=OWNERS, id=ids)
    def get_and_history(self, who: Who, id: str) -> None:
        log, user = self.logs[who[0]], who[1]
        handle = self.handle(who)
        visible = {s.id: s for s in log.seen(user, len(log.lines), forgotten=True)}
        if id in visible:
            assert shape(handle.get(id)) == visible[id]
        else:
            with pytest.raises(NotFound):
                handle.get(id)
        owners = [user] if user is None else [user, None]
        lines = next((found for owner in owners if (found := log.versions(owner, id))), [])
        if not lines:
            with pytest.raises(NotFound):
                handle.history(id)
            return
        history = handle.history(id)
        assert [(v.position, v.op, v.version, v.content, v.recorded_at) for v in history] == [
            (
                log.lines.index(line) + 1,
                line.op,
                line.version,
                None if line.state is None else line.state.content,
                line.recorded_at,
            )
            for line in lines
        ]


class Places:
    """An empty store for each sequence, taken back after it: thousands would fill the memory."""

    def __init__(self, take: Callable[[], str], give_back: Callable[[str], None]) -> None:
        self.take, self.give_back = take, give_back


@pytest.fixture(params=ENGINES)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    if request.param == "postgres":
        databases: Databases = request.getfixturevalue("databases")
        yield Places(databases.take, databases.give_back)
        return
    folders = (tmp_path / str(number) for number in itertools.count())
    yield Places(
        lambda: f"sqlite://{next(folders)}/store.db",
        lambda address: shutil.rmtree(Path(address.removeprefix("sqlite://")).parent),
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_store_behaves_like_its_reference_model(
    places: Places, request: pytest.FixtureRequest, part: int
) -> None:
    machine = seed(SEED * PARTS + part)(type("Machine", (Model,), {"places": places}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=-(-examples(request.node.callspec.params["places"]) // PARTS),
            stateful_step_count=STEPS,
            derandomize=True,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
