"""follow: a long history is stored in batches, so that other writers wait for one at most."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from reverie import KeyConflict, Scope, Store
from reverie.engine import log
from reverie.errors import StoreBusy
from reverie.history import match
from reverie.model import UNNAMED
from reverie.protocols import Transaction
from reverie.text.messages import digest
from reverie.write import events
from tests.conftest import Stores
from tests.messages import Message, conversation, texts, user

SIZE = 3
WORDS = [f"word {number}" for number in range(11)]
BATCHES = 4
HISTORY = conversation(*WORDS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "BATCH", SIZE)


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> list[int]:
    """Call something in another thread between two batches; the list grows with each."""
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(len(pauses))
        thread = threading.Thread(target=act, args=(pauses[-1],))
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "the writer between two batches waits for ever"

    monkeypatch.setattr(match, "pause", pause)
    return pauses


def failing_at(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the ``at``-th batch fail after it was written and before it is committed."""
    sound, count = events.append_messages, [0]

    def append_messages(*given: Any, **options: Any) -> Any:
        kept = sound(*given, **options)
        count[0] += 1
        if count[0] == at + 1:
            raise StoreBusy("cut off")
        return kept

    monkeypatch.setattr(events, "append_messages", append_messages)


def kept(store: Store) -> int:
    return store.verify().events


def test_long_history_is_stored_in_batches_of_limited_size(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    sizes: list[int] = []
    sound = events.append_messages

    def append_messages(*given: Any, **options: Any) -> Any:
        sizes.append(len(given[2]))
        return sound(*given, **options)

    monkeypatch.setattr(events, "append_messages", append_messages)
    session = store.space("ana").follow(HISTORY)
    assert sizes == [3, 3, 3, 2]
    assert texts(session) == WORDS and session.matched_sequence == len(WORDS)
    assert store.space("ana").follow(HISTORY).id == session.id
    assert sizes == [3, 3, 3, 2] and store.verify().ok


def test_writes_of_another_space_run_between_two_batches(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    other = stores.open().space("bob")
    pauses = between(monkeypatch, lambda number: other.remember(f"fact {number}"))
    session = store.space("ana").follow(HISTORY)
    assert len(pauses) == BATCHES - 1 == other.count()
    assert texts(session) == WORDS and store.verify().ok


def test_follow_embeds_nothing_while_the_store_is_locked(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    locked: list[bool] = []
    engine, sound = store.runtime.engine, events.prepare_messages

    def prepare(*given: Any, **options: Any) -> Any:
        with engine.read() as tx:
            locked.append(tx.writing)
        return sound(*given, **options)

    monkeypatch.setattr(events, "prepare_messages", prepare)
    store.space("ana").follow(HISTORY)
    assert locked == [False]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("at", range(BATCHES))
def test_interrupted_history_is_completed_when_it_is_sent_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, at: int, key: str | None
) -> None:
    store = stores.open()
    with monkeypatch.context() as patch:
        failing_at(patch, at)
        with pytest.raises(StoreBusy):
            store.space("ana").follow(HISTORY, session="s", key=key)
    assert kept(store) == at * SIZE
    store.close()
    store = stores.open()
    space = store.space("ana")
    session = space.follow(HISTORY, session="s", key=key)
    assert (session.id, texts(session)) == ("s", WORDS)
    assert space.follow(HISTORY, session="s", key=key).id == "s"
    assert kept(store) == len(WORDS) and store.verify().ok
    assert [info.id for info in space.sessions()] == ["s"]
    if key is not None:
        with pytest.raises(KeyConflict):
            space.follow(conversation("another"), session="s", key=key)


def test_interrupted_fork_is_completed_as_one_fork(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = stores.open().space("ana")
    space.follow(conversation("word 0", "zwei"), session="s")
    with monkeypatch.context() as patch:
        failing_at(patch, 2)
        with pytest.raises(StoreBusy):
            space.follow(HISTORY, session="s")
    session = space.follow(HISTORY, session="s")
    assert texts(session) == WORDS
    fork = session.forked_from
    assert fork is not None and fork == ("s", 1) and len(space.sessions()) == 2


def test_fork_stored_in_batches_keeps_its_origin(stores: Stores) -> None:
    space = stores.open().space("ana")
    space.follow(conversation("word 0", "zwei"), session="s")
    session = space.follow(HISTORY, session="s")
    assert session.forked_from == ("s", 1) and session.matched_sequence == len(WORDS)


@pytest.mark.parametrize("what", ["append", "same", "longer", "erase"])
def test_follow_handles_writes_made_between_two_batches(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = stores.open()
    other = stores.open().space("ana")

    def act(number: int) -> None:
        if number:
            return
        with monkeypatch.context() as patch:
            patch.setattr(match, "pause", lambda: None)
            longer: list[Message] = conversation(*WORDS, "one more")
            meanwhile: dict[str, Callable[[], object]] = {
                "append": lambda: other.session("s").append(user("meanwhile")),
                "same": lambda: other.follow(HISTORY, session="s"),
                "longer": lambda: other.follow(longer, session="s"),
                "erase": lambda: other.session("s").erase(),
            }
            meanwhile[what]()

    between(monkeypatch, act)
    session = store.space("ana").follow(HISTORY, session="s")
    assert texts(session)[: len(WORDS)] == WORDS and store.verify().ok
    expected = {"append": 2, "same": 1, "longer": 1, "erase": 1}[what]
    assert len(store.space("ana").sessions()) == expected


def test_matching_a_long_history_takes_few_sql_statements(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times the messages, and fewer than two statements more for each five hundred."""
    space = stores.open().space("ana")
    space.follow(conversation("a known beginning", "and its reply"), session="s")
    counted: list[int] = []

    def statements(length: int) -> int:
        history = conversation("a known beginning", "and its reply", *map(str, range(length)))
        resent = match.read_history(space.runtime, history)
        with space.runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, Scope(space.name, UNNAMED))
            assert owner is not None
            kind = type(tx)
            sound = kind.all

            def noted(own: Transaction, *given: Any) -> Any:
                counted.append(1)
                return sound(own, *given)

            counted.clear()
            with monkeypatch.context() as patch:
                patch.setattr(kind, "all", noted)
                marks = [digest(message) for message in resent.redacted]
                found = match._match_history(tx, owner, resent.redacted, marks, None)
        assert found.matched == 2
        return len(counted)

    assert statements(2_000) - statements(100) <= 8
