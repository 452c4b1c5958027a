"""The data that the tests and the pictures of the page show."""

from __future__ import annotations

from typing import NamedTuple

from reverie import Origin, Store
from reverie.agenda import jobs
from reverie.write.owners import session_target
from tests.conftest import DAY, HOUR, FakeClock
from tests.messages import propose, reply, user

SPACE = "ana"
CHAT = "monday-planning"


class Story(NamedTuple):
    """The ids in the data of the page."""

    boss: str
    dentist: str
    proposal: str


def fill(store: Store, clock: FakeClock) -> Story:
    """Memories with a past, two conversations, a proposal and a job that kept failing."""
    ana = store.space(SPACE, actor="cli", trust="person")
    agent = store.space(SPACE, actor="assistant", trust="agent")
    boss = ana.remember(
        "Alec is my boss at TechCorp", category="person", subject="Boss", tags=["work"]
    ).id
    clock.step(2 * DAY)
    ana.remember("I drink my coffee black, no sugar", category="preference", tags=["food"])
    ana.remember("Trains, not planes, for trips within Europe", category="preference")
    ana.remember("Theo is my brother; he lives in Lyon", category="person", subject="Theo")
    clock.step(5 * DAY)
    _append_chats(store, clock)
    clock.step(HOUR)
    agent.revise(
        boss,
        "Priya is my boss at TechCorp, since I moved to the Design team",
        tags=["work", "design"],
        reason="Ana said so on Monday",
    )
    dentist = agent.remember(
        "Dentist appointment on 12 March at 9:30",
        category="appointment",
        subject="Dentist",
        origin=Origin(CHAT, 3),
        source="chat",
    ).id
    clock.step(DAY)
    ana.revise(boss, pinned=True)
    store.space(SPACE, actor="importer", trust="document").remember(
        "TechCorp's expense policy: hotels up to 140 EUR a night, receipts within 30 days.",
        kind="note",
        category="document",
        source="policy.pdf",
    )
    old = ana.remember("The staging server is called heron", category="work", tags=["infra"])
    ana.forget(old.id, reason="it was switched off")
    proposal = propose(agent, "Ana runs on Saturdays along the river", Origin(CHAT, 5), "habit")
    store.space(SPACE, user="theo", actor="cli").remember(
        "Theo's own: the spare key is at the bakery"
    )
    _fail_a_job(store, clock)
    return Story(boss, dentist, proposal)


def _append_chats(store: Store, clock: FakeClock) -> None:
    ana = store.space(SPACE, actor="chat", trust="person")
    chat = ana.session(CHAT)
    turns = (
        ("Good news: I moved to the Design team, and Priya is my boss now.", "Congratulations!"),
        ("My dentist is on 12 March at 9:30. Who is my boss again?", "Priya, since your move."),
        ("I go running on Saturdays, by the river. How should I get to Theo?", "By train to Lyon."),
    )
    for question, answered in turns:
        clock.step(60_000)
        chat.append(user(question))
        chat.context()
        chat.append(reply(answered))
    chat.write_summary(
        "Ana moved to Design under Priya and plans her week.", upper=4, expected_epoch=0
    )
    chat.scratchpad.write(["book the train to Lyon", "move the dentist?"])
    clock.step(HOUR)
    ana.session("evening").append(user("What should I cook tonight? No mushrooms."))


def _fail_a_job(store: Store, clock: FakeClock) -> None:
    """A turn that a model could not be asked about, until nobody tried any more."""
    space = store.space("workshop", actor="chat")
    space.session("fitting").append(user("The lathe needs a new belt"))
    for attempt in range(jobs.MAX_ATTEMPTS):
        clock.step(2 * HOUR)
        with space.writer(session_target("fitting")) as w:
            claim = jobs.claim(w.tx, w.owner, clock.now(), f"token-{attempt}")
            assert claim is not None
            claim.fail(w.tx, clock.now(), "ModelFailed: the model at 127.0.0.1 does not answer")
