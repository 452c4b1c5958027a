"""What sessions cost, in CPU time beside a ``remember`` or a ``recall`` of the same run.

    python bench/sessions.py [--quick] [--json FILE] [--markdown]

It measures as ``bench/speed.py`` does: alternating rounds in one process, medians of the rounds'
ratios, one thread. It is a measurement, no test: the exit code is always 0.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import reverie

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import running
from bench.measuring import Sample, short, snippet, timed
from bench.texts import COMMON, SEED, Message, Talker, said

if TYPE_CHECKING:
    from rich.progress import Progress

SPACE, SESSION = "bench", "talk"
LIMIT = 12
"""Hits of a recall: as many as a context asks for."""
LAST = 20
"""Events of a ``resume``."""
CHUNK = 100
CATEGORIES = ("context", "event", "person", "preference", "project")

UNWATCHED = reverie.Settings(learn="off", summary="off")
NO_LEARNING = reverie.Settings(learn="off")
RULES = reverie.Settings(learn="rules")
ONLY_RULES = reverie.Settings(learn="rules", summary="off")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    small: int = 1_000
    large: int = 10_000
    memories: int = 100
    history: int = 200
    rounds: int = 9
    reads: int = 20
    """Queries in a round."""
    writes: int = 80
    """Appends in a round: enough for each to see a checkpoint."""
    turns: int = 20
    """Turns in a round where each is followed by more than an append."""
    starts: int = 9
    """Fresh processes of each kind."""


QUICK = Plan(200, 1_000, rounds=3, reads=10, writes=15, turns=5, starts=3)


# -- what is measured -----------------------------------------------------------------------------


@dataclass
class Subject:
    """A store with one long conversation."""

    name: str
    store: reverie.Store
    conversation: Sequence[Message]

    @property
    def space(self) -> reverie.Space:
        return self.store.space(SPACE)

    @property
    def session(self) -> reverie.Session:
        return self.space.session(SESSION)

    def recall(self, query: str) -> object:
        return self.session.recall(query, limit=LIMIT)


class Sessions(running.Bench):
    """The whole run. Each method measures one thing and leaves its samples in the meter."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        self._talker = Talker(SEED)
        self._conversations: dict[str, list[Message]] = {"0": []}
        self._copies = 0
        self._small, self._large = short(plan.small), short(plan.large)

    def run(self) -> None:
        self._build(self._small, self._plan.small)
        self._build(self._large, self._plan.large)
        self._first_contexts()
        self._contexts()
        self._contexts_of_turns()
        self._recalls()
        self._appends()
        self._follows()
        self._learning()
        self._summarise()

    def _take(self, took: dict[str, Sample], *, warm: bool) -> None:
        if warm:
            self.meter.take_all(took)

    # -- building -----------------------------------------------------------------------------

    def _build(self, name: str, size: int) -> None:
        """A file with the memories and one conversation, to be copied for each measurement."""
        conversation = self._conversations[name] = self._talker.conversation(size)
        with self._opened(self.folder / f"{name}.db", UNWATCHED) as store:
            self._remember_facts(store)
            session = store.space(SPACE).session(SESSION)
            for at in self.steps(f"filling {name}", -(-size // CHUNK)):
                session.append_many(conversation[at * CHUNK : (at + 1) * CHUNK])
            session.context("anything")  # from here on the profile stands still

    def _remember_facts(self, store: reverie.Store) -> None:
        facts = self._talker.facts(self._plan.memories)
        store.space(SPACE).import_records(
            {"content": fact, "category": CATEGORIES[i % len(CATEGORIES)]}
            for i, fact in enumerate(facts)
        )

    def _opened(self, path: Path, settings: reverie.Settings) -> reverie.Store:
        return reverie.open(path, settings=settings, embedder="local")

    def _subject(self, name: str, settings: reverie.Settings) -> Subject:
        """A copy of its own, warm: the embedder's files and the vectors are read."""
        self._copies += 1
        path = self.folder / f"copy{self._copies}.db"
        built = self.folder / f"{name}.db"
        if built.exists():
            shutil.copyfile(built, path)
        store = self._opened(path, settings)
        self.closing.callback(store.close)
        subject = Subject(name, store, self._conversations[name])
        subject.recall("anything at all")
        return subject

    def _summed_up(self) -> Subject:
        """The long conversation with a summary of most of it."""
        subject = self._subject(self._large, RULES)
        subject.session.append(self._talker.turn())
        subject.store.run_pending_jobs()
        assert subject.session.summary().upper > self._plan.large // 2
        return subject

    # -- reading ------------------------------------------------------------------------------

    def _contexts(self) -> None:
        subjects = {
            self._small: self._subject(self._small, UNWATCHED),
            self._large: self._subject(self._large, UNWATCHED),
            "summary": self._summed_up(),
        }
        for done in self.steps("context", self._plan.rounds + 1):
            for name, subject in subjects.items():
                queries = self._talker.queries(subject.conversation, self._plan.reads)
                took = {
                    f"recall {name}": timed(subject.recall, queries),
                    f"context {name}": timed(subject.session.context, queries),
                }
                if name == self._large:
                    took["resume"] = timed(subject.session.resume, [LAST] * len(queries))
                    took["events"] = timed(subject.session.events, [LAST] * len(queries))
                self._take(took, warm=done > 0)

    def _contexts_of_turns(self) -> None:
        """As an agent asks: after each turn, for what was said, beside a worker that keeps up."""
        subject = self._summed_up()

        def keep(turn: Message) -> None:
            subject.session.append(turn)
            subject.store.run_pending_jobs()

        for done in self.steps("context of each turn", self._plan.rounds + 1):
            turns = self._talker.turns(self._plan.turns)
            others = self._talker.turns(self._plan.turns)
            took = {
                "recall turn": timed(lambda turn: subject.recall(turn["content"]), others, keep),
                "context turn": timed(lambda _: subject.session.context(), turns, keep),
            }
            self._take(took, warm=done > 0)

    def _recalls(self) -> None:
        """The same texts as events and as memories."""
        events = self._subject(self._large, UNWATCHED)
        memories = self._subject("0", UNWATCHED)
        self._remember_facts(memories.store)
        memories.space.import_records(
            {"content": message["content"], "kind": "note"} for message in events.conversation
        )
        for done in self.steps("recall", self._plan.rounds + 1):
            queries = self._talker.queries(events.conversation, self._plan.reads)
            took = {
                "recall memories": timed(partial(memories.space.recall, limit=LIMIT), queries),
                "recall events": timed(partial(events.space.recall, limit=LIMIT), queries),
            }
            self._take(took, warm=done > 0)

    # -- writing ------------------------------------------------------------------------------

    def _appends(self) -> None:
        for name in ("0", self._large):
            remembering = self._subject(name, NO_LEARNING)
            plain, learning = self._subject(name, NO_LEARNING), self._subject(name, RULES)
            for done in self.steps(f"append at {name}", self._plan.rounds + 1):
                turns, many = self._talker.turns(self._plan.writes), self._talker.turns(CHUNK)
                took = {
                    f"remember {name}": timed(remembering_of(remembering), turns),
                    f"append off {name}": timed(plain.session.append, turns),
                    f"append {name}": timed(learning.session.append, turns),
                    f"append_many {name}": timed(learning.session.append_many, [many])
                    * (1 / CHUNK),
                }
                # What a worker beside it would have done by now.
                plain.store.run_pending_jobs()
                learning.store.run_pending_jobs()
                self._take(took, warm=done > 0)

    def _follows(self) -> None:
        subject = self._subject(self._large, RULES)
        for done in self.steps("follow", self._plan.rounds + 1):
            history = self._talker.conversation(self._plan.history)
            followed = subject.space.session()
            followed.append_many(history)
            took = {
                "append beside follow": timed(
                    subject.session.append, self._talker.turns(self._plan.turns)
                ),
                "follow": timed(
                    following(subject, history),
                    self._talker.turns(self._plan.turns),
                    self._replying(followed, history),
                ),
            }
            subject.store.run_pending_jobs()
            assert len(followed.events()) == len(history), "a resent history was kept twice"
            self._take(took, warm=done > 0)

    def _replying(
        self, session: reverie.Session, history: list[Message]
    ) -> Callable[[Message], None]:
        def reply(_: Message) -> None:
            history.append(said("assistant", self._talker.text()))
            session.append(history[-1])

        return reply

    def _learning(self) -> None:
        only, both = self._subject(self._large, ONLY_RULES), self._summed_up()
        for done in self.steps("learning", self._plan.rounds + 1):
            count = self._plan.turns
            took = {"append beside learning": timed(only.session.append, self._talker.turns(count))}
            only.store.run_pending_jobs()
            for name, subject, turns in (
                ("learn nothing", only, self._talker.turns(count)),
                ("learn a fact", only, self._talker.telling_turns(count)),
                ("background", both, self._talker.turns(count)),
            ):
                took[name] = timed(draining(subject), turns, subject.session.append)
            self._take(took, warm=done > 0)
        assert any(memory.category == "preference" for memory in only.space.memories(limit=1))

    # -- fresh processes ----------------------------------------------------------------------

    def _first_contexts(self) -> None:
        path = str(self.folder / f"{self._large}.db")
        query = " ".join(COMMON.split()[:6])
        opened = (
            "import reverie, sys; "
            "s = reverie.open(sys.argv[1], settings=reverie.Settings(), embedder='local'); "
            f"session = s.space({SPACE!r}).session({SESSION!r}); "
        )
        for _ in self.steps("fresh processes", self._plan.starts):
            empty, _ = snippet(opened, path)
            recalled, _ = snippet(opened + f"session.recall({query!r}, limit={LIMIT})", path)
            asked, _ = snippet(opened + f"session.context({query!r})", path)
            self.meter.take("first recall", Sample(max(recalled - empty, 1e-9), 0, 0))
            self.meter.take("first context", Sample(max(asked - empty, 0), 0, 0))

    # -- the result ---------------------------------------------------------------------------

    def _summarise(self) -> None:
        small, large, row = self._small, self._large, self.meter.row
        for name in ("0", large):
            remember = f"remember {name}"
            row("append", f"at {name}", f"append {name}", remember, "remember", 2.0)
            what = f"at {name}, nothing learned"
            row("append", what, f"append off {name}", remember, "remember", 2.0)
        for name in ("0", large):
            what = f"one of {CHUNK} together, at {name}"
            row("append", what, f"append_many {name}", f"append {name}", "append")
        row("append", f"at {large}, growth", f"append {large}", "append 0", "append at 0")
        for name, what in ((small, f"at {small}"), (large, f"at {large}")):
            target = 2.0 if name == large else None
            row("context", what, f"context {name}", f"recall {name}", "recall", target)
        what = f"at {large}, most of it summed up"
        row("context", what, "context summary", "recall summary", "recall", 2.0)
        what = f"at {large}, after each turn, of that turn"
        row("context", what, "context turn", "recall turn", "recall")
        what = f"at {large}, the first of a process"
        row("context", what, "first context", "first recall", "first recall")
        for name in ("resume", "events"):
            row("reading", f"{name}({LAST}) at {large}", name, f"recall {large}", "recall")
        what = f"recall at {large} events"
        row("reading", what, "recall events", "recall memories", f"recall at {large} memories")
        what = f"{self._plan.history} messages, one of them new"
        row("follow", what, "follow", "append beside follow", "append")
        for name, what in (
            ("learn nothing", "a turn that tells nothing"),
            ("learn a fact", "a turn that tells a preference"),
            ("background", "a turn, learned from and summed up"),
        ):
            row("after a turn, by rules", what, name, "append beside learning", "append")


def remembering_of(subject: Subject) -> Callable[[Message], object]:
    # Turns are longer than a fact may be.
    return lambda turn: subject.space.remember(turn["content"], kind="note")


def following(subject: Subject, history: list[Message]) -> Callable[[Message], None]:
    def follow(turn: Message) -> None:
        history.append(turn)
        subject.space.follow(history)

    return follow


def draining(subject: Subject) -> Callable[[Message], int]:
    return lambda _: subject.store.run_pending_jobs()


def main() -> None:
    asked = running.options(__doc__).parse_args()
    plan = QUICK if asked.quick else Plan()
    title = "What sessions cost: CPU for each call, medians of alternating rounds"
    running.run(title, asked, lambda folder, progress: Sessions(plan, folder, progress))


if __name__ == "__main__":
    main()
