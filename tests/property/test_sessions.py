"""Sessions against a model made of lists: after any calls, both give the same answers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from reverie import Hit, NotFound, Origin, Ranking, SequenceConflict, Session, Space
from reverie.history.truncated import MAX_SESSIONS
from reverie.recall.ranking import NEIGHBOR_DISTANCE
from tests.conftest import HOUR, Stores
from tests.property import examples

STEPS = 25

USERS = (None, "bo")
NAMES = ("a", "b", "c")
WORDS = ("zebra", "horse", "river")
ROLES = ("user", "assistant", "system")
EACH = Ranking(collapse=False)

WHO = st.sampled_from(USERS)
MESSAGE = st.tuples(st.sampled_from(ROLES), st.sampled_from(WORDS))
TURN = st.tuples(st.sampled_from(ROLES[:2]), st.sampled_from(WORDS))
PICK = st.integers(0, 1_000)

RoleAndText = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """One event. ``order`` is when it was written."""

    sequence: int
    message: RoleAndText
    order: int


@dataclass(frozen=True)
class Window:
    """Where a history without its beginning stands: what goes before it, how much of it is known,
    the last event of that, and whether the session of this event ends there."""

    before: list[RoleAndText]
    known: int
    last: Origin
    order: int
    ends: bool


@dataclass
class ModelSession:
    """One session: its own events, and the events it was forked from, the oldest first."""

    lines: list[Line] = field(default_factory=list)
    before: tuple[Origin, ...] = ()
    last: int = 0
    order: int = 0
    hidden: bool = False
    private: dict[str, str] = field(default_factory=dict)


@dataclass
class Owner:
    """What one owner has. ``loose``: a backup was restored, so the next sequences are unknown."""

    sessions: dict[str, ModelSession] = field(default_factory=dict)
    learned: dict[str, tuple[str, Origin]] = field(default_factory=dict)
    loose: bool = False

    def session_model(self, name: str) -> ModelSession:
        return self.sessions.setdefault(name, ModelSession())

    def end(self, name: str) -> None:
        """A session was erased: its forks go on from where it had been forked itself."""
        model = self.session_model(name)
        self.sessions[name] = ModelSession(last=model.last, order=model.order)
        for other in self.sessions.values():
            other.before = tuple(origin for origin in other.before if origin.session != name)

    def erase_event(self, origin: Origin) -> None:
        """One event was erased."""
        model = self.session_model(origin.session)
        model.lines = [line for line in model.lines if line.sequence != origin.sequence]

    def events(self, name: str, before: Iterable[Origin] | None = None) -> list[tuple[str, Line]]:
        """The events of a session, each with the session that holds it."""
        model = self.sessions.get(name, ModelSession())
        found, after = [], 0
        for origin in model.before if before is None else before:
            lines = self.sessions[origin.session].lines
            found += [(origin.session, x) for x in lines if after < x.sequence <= origin.sequence]
            after = origin.sequence
        own = model.lines if before is None else []
        return found + [(name, line) for line in own if line.sequence > after]

    def messages(self, name: str) -> list[RoleAndText]:
        return [line.message for _, line in self.events(name) if line.message[0] != "system"]

    def upto(self, origin: Origin) -> tuple[Origin, ...]:
        """The events that a fork at this event continues. At 0 it only belongs to that session."""
        return (*self.sessions[origin.session].before, origin) if origin.sequence else (origin,)

    def living(self) -> list[str]:
        return [name for name, model in self.sessions.items() if model.lines]

    def listed(self) -> list[str]:
        return sorted(self.living(), key=lambda name: -self.sessions[name].order)

    def preview(self, name: str) -> str:
        lines = self.sessions[name].lines
        return next((line.message[1] for line in lines if line.message[0] == "user"), "Untitled")

    def shown(self) -> dict[Origin, str]:
        """The events that a recall may find."""
        return {
            Origin(name, line.sequence): line.message[1]
            for name, model in self.sessions.items()
            for line in model.lines
            if not model.hidden and line.message[0] != "system"
        }

    def found(self, word: str) -> dict[str, str]:
        """By id: events with the word, their neighbours, and the origins of memories with it."""
        shown = self.shown()
        beside = {
            Origin(having.session, having.sequence + step)
            for having, text in shown.items()
            if text == word
            for step in range(-NEIGHBOR_DISTANCE, NEIGHBOR_DISTANCE + 1)
        }
        learned = {id: made for id, made in self.learned.items() if word in made[0]}
        origins = {origin for _, origin in learned.values()}
        return {
            **{f"{at.session}:{at.sequence}": shown[at] for at in (beside | origins) & {*shown}},
            **{id: content for id, (content, _) in learned.items()},
        }

    def related_sessions(self, name: str) -> set[str]:
        related = {name, *(origin.session for origin in self.session_model(name).before)}
        grown = True
        while grown:
            more = {
                other
                for other, model in self.sessions.items()
                if model.before and model.before[-1].session in related
            }
            grown = not more <= related
            related |= more
        return related

    def known(self, history: list[RoleAndText], among: Iterable[str]) -> int:
        """How much of a history was said already, from its beginning."""
        most = 0
        for name in among:
            shared = 0
            for one, other in zip(history, self.messages(name), strict=False):
                if one != other:
                    break
                shared += 1
            most = max(most, shared)
        return most

    def windows(self, history: list[RoleAndText], among: Iterable[str]) -> list[Window]:
        """Every place where one of the newest sessions says what the history begins with.

        It must have been said by two: one message alone, or twice the same, is said by accident.
        """
        found = []
        for name in sorted(among, key=lambda name: -self.sessions[name].order)[:MAX_SESSIONS]:
            line = [(of, line) for of, line in self.events(name) if line.message[0] != "system"]
            for begin in range(len(line)):
                known = 0
                for one, (_, other) in zip(history, line[begin:], strict=False):
                    if one != other.message:
                        break
                    known += 1
                if len({role for role, _ in history[:known]}) < 2:
                    continue
                of, last = line[begin + known - 1]
                own = [each for each in self.sessions[of].lines if each.message[0] != "system"]
                before = [each.message for _, each in line[:begin]]
                at = Origin(of, last.sequence)
                found.append(Window(before, known, at, last.order, own[-1] == last))
        return found

    def window(self, history: list[RoleAndText], among: Iterable[str], beyond: int) -> list[Window]:
        """The best place where more than ``beyond`` is known, or several that are the same event.

        An end of a session is better than any other place, then the longest, then the newest.
        """
        found = [each for each in self.windows(history, among) if each.known > beyond]
        best = max(((each.ends, each.known) for each in found), default=None)
        found = [each for each in found if (each.ends, each.known) == best]
        newest = max((each.order for each in found), default=0)
        return [each for each in found if self.loose or each.order == newest]


def message(turn: RoleAndText) -> dict[str, Any]:
    return {"role": turn[0], "content": turn[1]}


def by_id(hits: Iterable[Hit]) -> list[tuple[str | None, str, str]]:
    """What was found, whose it is, and what it says."""
    found = []
    for hit in hits:
        thing = hit.event or hit.memory
        assert thing is not None
        found.append((thing.user, hit.id, hit.text))
    return found


def plain(session: Session) -> list[RoleAndText]:
    events = session.events()
    return [(event.role, event.text) for event in events if event.role != "system"]


class Sessions(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model."""

    address: Callable[[str], str]
    folder: Path
    count = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.name = f"sessions{next(self.count)}"
        self.stores = Stores(self.address)
        self.store = self.stores.open(self.name)
        self.owners = {user: Owner() for user in USERS}
        self.orders = itertools.count(1)
        self.calls: list[tuple[str | None, str, RoleAndText, str, int]] = []
        self.saved: tuple[Path, dict[str | None, Owner], int] | None = None
        self.backups = itertools.count()
        # Since the last backup: whose, which session or event, and which memories.
        self.erased: list[tuple[str | None, str | Origin | None, set[str]]] = []

    def teardown(self) -> None:
        try:
            self.all_is_as_in_the_model()
            exported = {user: list(self.space(user).export()) for user in USERS}
            self.store = self.stores.open(f"{self.name}-copy")
            for user in USERS:
                assert self.space(user).import_records(exported[user]).skipped == ()
            self.all_is_as_in_the_model()
        finally:
            self.stores.close()

    def all_is_as_in_the_model(self) -> None:
        self.the_same_sessions_in_the_same_order()
        for user in USERS:
            self.everything_is_readable(user)
        assert self.store.verify().problems == ()

    def space(self, who: str | None) -> Space:
        return self.store.space("one", user=who)

    def write(
        self, who: str | None, name: str, turns: Iterable[RoleAndText], sequences: Iterable[int]
    ) -> None:
        """The model's part of an append that gave these sequences."""
        owner = self.owners[who]
        model = owner.session_model(name)
        for each, sequence in zip(turns, sequences, strict=True):
            assert sequence > model.last and (owner.loose or sequence == model.last + 1)
            model.last, model.order = sequence, next(self.orders)
            model.lines.append(Line(sequence, each, model.order))
            model.hidden = False

    def some(self, who: str | None, pick: int) -> str | None:
        living = self.owners[who].living()
        return living[pick % len(living)] if living else None

    # -- writing ----------------------------------------------------------------------------------

    @rule(who=WHO, name=st.sampled_from(NAMES), turn=MESSAGE, ahead=st.sampled_from([None, -1, 3]))
    def append(self, who: str | None, name: str, turn: RoleAndText, ahead: int | None) -> None:
        model, session = self.owners[who].session_model(name), self.space(who).session(name)
        sequence = None if ahead is None or self.owners[who].loose else model.last + ahead
        if sequence is not None and sequence < model.last:
            if sequence > 0:
                with pytest.raises(SequenceConflict):
                    session.append(message(turn), sequence=sequence)
            return
        event = session.append(message(turn), sequence=sequence)
        model.last = model.last if sequence is None else sequence - 1
        self.write(who, name, [turn], [event.sequence])
        assert event.message == message(turn)

    @rule(who=WHO, name=st.sampled_from(NAMES), turns=st.lists(MESSAGE, max_size=4))
    def append_many(self, who: str | None, name: str, turns: list[RoleAndText]) -> None:
        events = self.space(who).session(name).append_many([message(each) for each in turns])
        self.write(who, name, turns, [event.sequence for event in events])

    @rule(who=WHO, name=st.sampled_from(NAMES), turn=MESSAGE)
    def append_with_a_key(self, who: str | None, name: str, turn: RoleAndText) -> None:
        key = f"key {next(self.orders)}"
        event = self.space(who).session(name).append(message(turn), key=key)
        self.write(who, name, [turn], [event.sequence])
        self.calls.append((who, name, turn, key, event.sequence))

    @rule(pick=PICK)
    def repeat_with_the_same_key(self, pick: int) -> None:
        if not self.calls:
            return
        who, name, turn, key, sequence = self.calls[pick % len(self.calls)]
        there = {line.sequence for line in self.owners[who].session_model(name).lines}
        session = self.space(who).session(name)
        if sequence in there:
            assert session.append(message(turn), key=key).sequence == sequence
        else:
            with pytest.raises(NotFound):
                session.append(message(turn), key=key)

    @rule(
        who=WHO,
        pick=PICK,
        drop=st.integers(0, 6),
        cut=st.integers(0, 8),
        more=st.lists(TURN, max_size=3),
        named=st.booleans(),
        hint=st.booleans(),
    )
    def follow(
        self,
        who: str | None,
        pick: int,
        drop: int,
        cut: int,
        more: list[RoleAndText],
        named: bool,
        hint: bool,
    ) -> None:
        owner = self.owners[who]
        base = self.some(who, pick)
        stored = [] if base is None else owner.messages(base)
        history = stored[drop : max(len(stored) - cut, 0)] + more
        self.sent(who, history, base if named else None, hint)

    @rule(
        who=WHO,
        pick=PICK,
        width=st.integers(2, 6),
        more=st.lists(TURN, min_size=2, max_size=8),
        again=st.lists(st.booleans(), max_size=1),
    )
    def follow_with_a_window(
        self, who: str | None, pick: int, width: int, more: list[RoleAndText], again: list[bool]
    ) -> None:
        """A client that names its session and sends its last messages only; it may try again."""
        name = self.some(who, pick) or NAMES[0]
        stored = self.owners[who].messages(name)
        for each in more:
            stored = [*stored, each]
            for hint in [False, *again]:
                session = self.sent(who, stored[-width:], name, hint)
            stored = plain(session)

    def sent(
        self, who: str | None, history: list[RoleAndText], name: str | None, hint: bool = False
    ) -> Session:
        """Send a history to the store and to the model."""
        owner = self.owners[who]
        candidates = (
            owner.living()
            if name is None
            else sorted(owner.related_sessions(name) & {*owner.living()})
        )
        sent = [message(each) for each in history]
        sent[:0] = [message(("system", "be kind"))] if hint else []
        session = self.space(who).follow(sent, session=name)
        self.followed(who, session, history, candidates, name)
        return session

    def followed(
        self,
        who: str | None,
        session: Session,
        history: list[RoleAndText],
        candidates: list[str],
        name: str | None,
    ) -> None:
        """What must hold after a history was followed; the model then follows it too."""
        owner = self.owners[who]
        known = owner.known(history, candidates)
        ends = [each for each in candidates if owner.messages(each) == history[:known]]
        if not history:
            return
        windows: list[Window] = []
        if name is not None and known < len(history) and not (known and ends):
            windows = owner.window(history, candidates, known)
        if windows:
            known = windows[0].known
            ends = [each.last.session for each in windows if each.ends]
            assert plain(session) in [each.before + history for each in windows]
        else:
            assert plain(session) == history
        fork = session.forked_from
        if session.id in owner.living():
            assert session.id in ends, "it goes on where its session ended"
        else:
            assert not (known and ends), "a session ended there, and it begins another"
            behind = () if fork is None else owner.upto(fork)
            shared = [
                line.message for _, line in owner.events("", behind) if line.message[0] != "system"
            ]
            assert shared == plain(session)[: len(shared)]
            assert shared[len(shared) - known :] == history[:known]
            assert not windows or fork in [each.last for each in windows]
            assert windows or len(shared) == known
            assert fork is not None or not known
            if known < len(history):
                model = owner.session_model(session.id)
                model.before = behind
                model.last = max(model.last, 0 if fork is None else fork.sequence)
        new = history[known:]
        sequences = [event.sequence for event in session.events()]
        self.write(who, session.id, new, sequences[len(sequences) - len(new) :])

    @rule(who=WHO, pick=PICK, hide=st.booleans())
    def hide_or_restore(self, who: str | None, pick: int, hide: bool) -> None:
        name = self.some(who, pick)
        if name is None:
            with pytest.raises(NotFound):
                self.space(who).session("a").hide()
            return
        session = self.space(who).session(name)
        session.hide("property") if hide else session.restore()
        self.owners[who].session_model(name).hidden = hide

    @rule(who=WHO, pick=PICK)
    def erase(self, who: str | None, pick: int) -> None:
        owner, name = self.owners[who], self.some(who, pick)
        if name is None:
            with pytest.raises(NotFound):
                self.space(who).session("a").erase()
            return
        report = self.space(who).session(name).erase()
        model = owner.session_model(name)
        gone = [id for id, (_, origin) in owner.learned.items() if origin.session == name]
        assert report.events == len(model.lines)
        assert len(report.memories) == len(model.private) + len(gone)
        owner.learned = {id: made for id, made in owner.learned.items() if id not in gone}
        owner.end(name)
        self.erased.append((who, name, {*gone, *model.private}))

    @rule(who=WHO, name=st.sampled_from(NAMES), word=st.sampled_from(WORDS))
    def remember_privately(self, who: str | None, name: str, word: str) -> None:
        if self.owners[who].session_model(name).lines:
            memory = self.space(who).session(name).remember(f"{word} private", private=True)
            assert memory.session == name
            self.owners[who].session_model(name).private[memory.id] = memory.content

    @rule(who=WHO, pick=PICK, word=st.sampled_from(WORDS))
    def learn(self, who: str | None, pick: int, word: str) -> None:
        owner, name = self.owners[who], self.some(who, pick)
        if name is not None:
            lines = owner.session_model(name).lines
            origin = Origin(name, lines[pick % len(lines)].sequence)
            memory = self.space(who).remember(f"{word} learned", origin=origin)
            owner.learned[memory.id] = (f"{word} learned", origin)

    @rule(who=WHO, pick=PICK, source=st.booleans())
    def erase_with_source(self, who: str | None, pick: int, source: bool) -> None:
        owner = self.owners[who]
        if not owner.learned:
            return
        id = sorted(owner.learned)[pick % len(owner.learned)]
        _, origin = owner.learned.pop(id)
        report = self.space(who).erase(id, with_source=source)
        assert report.sources == ((origin,) if source else ())
        self.erased.append((who, origin if source else None, {id}))
        if source:
            owner.erase_event(origin)

    # -- the world --------------------------------------------------------------------------------

    @rule(step=st.sampled_from([1, HOUR, -HOUR]))
    def clock_steps(self, step: int) -> None:
        self.stores.clock.step(step)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.stores.open(self.name)

    @rule()
    def rebuild(self) -> None:
        self.store.rebuild()

    @rule()
    def back_up(self) -> None:
        target = self.folder / f"{self.name}-{next(self.backups)}.backup"
        assert self.store.backup(target).ok
        self.saved = (target, copy.deepcopy(self.owners), len(self.calls))
        self.erased.clear()

    @rule()
    def restore_backup(self) -> None:
        """What was erased since stays erased, the rest is as it was."""
        if self.saved is None:
            return
        target, owners, calls = self.saved
        assert self.store.restore_backup(target).ok
        self.owners, self.calls = copy.deepcopy(owners), self.calls[:calls]
        for who, what, memories in self.erased:
            owner = self.owners[who]
            if isinstance(what, Origin):
                owner.erase_event(what)
            elif what is not None:
                owner.end(what)
            for id in memories:
                owner.learned.pop(id, None)
                for model in owner.sessions.values():
                    model.private.pop(id, None)
        for owner in self.owners.values():
            owner.loose = True

    # -- reading ----------------------------------------------------------------------------------

    @invariant()
    def the_same_sessions_in_the_same_order(self) -> None:
        for user, owner in self.owners.items():
            infos = self.space(user).sessions(include_hidden=True)
            listed = [info.id for info in infos]
            assert (sorted if owner.loose else list)(listed) == (
                sorted(owner.listed()) if owner.loose else owner.listed()
            )
            for info in infos:
                model = owner.sessions[info.id]
                assert info.events == len(model.lines)
                assert (info.hidden_at is not None) == model.hidden
                assert info.preview == owner.preview(info.id)

    @rule(who=WHO)
    def everything_is_readable(self, who: str | None) -> None:
        owner, space = self.owners[who], self.space(who)
        shown = [name for name in owner.listed() if not owner.sessions[name].hidden]
        assert {info.id for info in space.sessions()} == {*shown}
        for name in owner.sessions:
            session = space.session(name)
            events = [(e.session, e.sequence, (e.role, e.text)) for e in session.events()]
            wanted = [(of, line.sequence, line.message) for of, line in owner.events(name)]
            assert events == wanted
            assert session.events(2) == session.events()[-2:]
            own = [memory.id for memory in session.memories() if memory.session == name]
            assert own == [*owner.sessions[name].private][::-1]
            related = {name, *(origin.session for origin in owner.sessions[name].before)}
            assert {memory.session for memory in session.memories()} <= related

    @rule(who=WHO, word=st.sampled_from(WORDS), name=st.sampled_from(NAMES))
    def recall(self, who: str | None, word: str, name: str) -> None:
        """Every event with the word is found; anything else that is found is next to one."""
        options: dict[str, Any] = {"mode": "keyword", "limit": 500, "ranking": EACH}
        wanted = {(who, id, text) for id, text in self.owners[who].found(word).items()}
        # What is remembered without a user is shared; what is said without one is not.
        shared = {id: text for id, (text, _) in self.owners[None].learned.items() if word in text}
        wanted |= {(None, id, text) for id, text in shared.items()}
        hits = self.space(who).recall(word, explain=True, **options)
        found = by_id(hits)
        assert {*found} == wanted and len(found) == len(wanted)
        for hit in hits:
            assert bool(hit.parts["keyword"]) == (word in hit.text)
        related = [
            name,
            *(origin.session for origin in self.owners[who].session_model(name).before),
        ]
        private = {
            (who, id, text)
            for each in related
            for id, text in self.owners[who].session_model(each).private.items()
            if word in text
        }
        found = by_id(self.space(who).session(name).recall(word, **options))
        assert {*found} == wanted | private and len(found) == len(wanted | private)


def test_sessions_behave_like_their_reference_model(
    engine_url: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    parts = {"address": staticmethod(engine_url), "folder": tmp_path}
    machine = type("Machine", (Sessions,), parts)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(request.node.callspec.params["engine_url"]),
            stateful_step_count=STEPS,
            derandomize=True,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
