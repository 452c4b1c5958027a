"""How a context divides its tokens: summary, newest exchange and profile in any language."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from reverie import ContextTooSmall, Session, Space
from reverie.embed.tokens import count_tokens
from reverie.prompt.context import message_tokens
from reverie.prompt.profile import LEFT_OUT
from reverie.prompt.session_summary import SUMMARY_HEADING
from tests.conftest import PROVE, Stores
from tests.messages import Message, reply, user

SENTENCES = {
    "japanese": "明日は東京駅で九時に会って、それから博物館まで歩きましょう。どう思いますか。",
    "chinese": "明天九点我们在东京站见面，然后一起走到博物馆去。你觉得怎么样？",
    "english": "Let us meet at the station at nine tomorrow and walk to the museum, all right? ",
    "korean": "내일 아홉 시에 역에서 만나서 박물관까지 걸어갑시다. 어떻게 생각하세요? ",
    "arabic": "دعنا نلتقي غدا في المحطة في الساعة التاسعة ثم نمشي إلى المتحف. ",
    "hindi": "कल नौ बजे स्टेशन पर मिलते हैं और फिर संग्रहालय तक चलते हैं। ",
    "amharic": "ነገ ዘጠኝ ሰዓት በጣቢያው እንገናኝ። ",
    "emoji": "🚉🕘🏛️🚶‍♀️🤔 ",
    "code": "def meet(at='09:00'):\n    return walk(station, museum)[at]\n",
}


def talk(session: Session, sentence: str, first: int, last: int) -> None:
    """Let two speakers say a numbered text in turn."""
    for number in range(first, last):
        text = f"{number} " + sentence * 4
        session.append(user(text) if number % 2 == 0 else reply(text))


@pytest.mark.parametrize("tokens", [300, 1000, None, 16_000])
@pytest.mark.parametrize("script", ["japanese", "chinese", "english", "amharic"])
def test_context_of_a_long_session_has_a_summary_and_the_newest_exchange(
    stores: Stores, script: str, tokens: int | None
) -> None:
    store = stores.open()
    session = store.space("ana").session("s")
    for first, last in ((0, 29), (29, 31), (31, 41)):
        talk(session, SENTENCES[script], first, last)
        store.run_pending_jobs()
        stored = session.summary()
        context = session.context("station", tokens=tokens)
        assert context.tokens <= (tokens or 4000)
        assert stored.text and context.summary.startswith(SUMMARY_HEADING)
        # The newest line is shown, in part at least.
        newest = context.summary.splitlines()[-1]
        assert newest.startswith(f"- [{stored.upper}] "[: len(newest) - 3])
        assert context.history[-1] == session.events(1)[0].message
        if tokens != 300:
            assert len(context.history) >= 3
        if tokens is None:
            assert context.tokens > 2000, "room is left although there is more to show"


def test_context_keeps_a_summary_that_fits_whole(space: Space) -> None:
    session = space.session("s")
    session.append_many([user("a"), reply("b"), user("c")])
    text = "\n".join(f"- [{n}] user: they spoke of the station" for n in range(40))
    session.write_summary(text, upper=2, expected_epoch=0)
    assert session.context("x").summary == f"{SUMMARY_HEADING}{text}\n"


def test_context_shortens_the_summary_in_few_steps_as_the_history_grows(space: Space) -> None:
    """Whatever is recalled meanwhile, so that a provider's cache of it stays valid for long."""
    for number in range(80):
        space.remember(f"fact {number} about the station and the museum")
    session = space.session("s")
    session.append_many([user("a"), reply("b"), user("c")])
    lines = "\n".join(f"- [{n}] user: {SENTENCES['english'] * 2}" for n in range(20))
    session.write_summary(lines, upper=2, expected_epoch=0)
    shown: list[str] = []
    for number in range(40):
        session.append_many([reply("well " * number), user(f"and the museum {number}?")])
        summary = session.context().summary
        if summary not in shown:
            shown.append(summary)
        assert summary == shown[-1], "it never grows again"
    assert shown[0] == f"{SUMMARY_HEADING}{lines}\n" and "..." in shown[-1]
    assert all("- [0] " in each and "- [19] " in each for each in shown)
    assert 1 < len(shown) < 5


TEXTS = st.one_of(
    st.builds(str.__mul__, st.sampled_from(sorted(SENTENCES.values())), st.integers(1, 40)),
    st.text(min_size=1, max_size=400).filter(str.strip),
)
NAMES = (f"s{number}" for number in itertools.count())
# What the latest message of the user must leave for a summary and an answer to be shown.
LEAST_LEFT = 200


@settings(
    max_examples=400 if PROVE else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    said=st.lists(TEXTS, min_size=2, max_size=14),
    asked=TEXTS,
    summary=TEXTS,
    covered=st.integers(0, 13),
    tokens=st.one_of(st.integers(300, 1200), st.integers(300, 20_000)),
)
def test_context_keeps_summary_and_newest_exchange_within_any_budget(
    space: Space, said: list[str], asked: str, summary: str, covered: int, tokens: int
) -> None:
    if not space.memories(limit=1):
        for number in range(60):
            space.remember(f"fact {number}: {SENTENCES['english']}", category=f"c{number % 3}")
    messages: list[Message] = [user(t) if i % 2 == 0 else reply(t) for i, t in enumerate(said)]
    messages += [user(asked)] if len(said) % 2 == 0 else []
    session = space.session(next(NAMES))
    session.append_many(messages)
    # As the jobs do, it leaves at least two messages.
    upper = min(covered, len(messages) - 2)
    if upper:
        session.write_summary(summary, upper=upper, expected_epoch=0)
    latest = max(at for at, message in enumerate(messages) if message["role"] == "user")
    needed = message_tokens(messages[latest], count_tokens)
    try:
        context = session.context("", tokens=tokens)
    except ContextTooSmall:
        assert needed > tokens
        return
    assert needed <= tokens
    _check_budget(context.system, [*context.history], context.tokens, tokens)
    history = [*context.history]
    assert messages[latest] in history, "what the user asked is never cut"
    stored = [event.message for event in session.events()]
    _check_contiguous(history, stored)
    assume(tokens - needed >= LEAST_LEFT)
    if upper and summary.strip():
        assert context.summary.startswith(SUMMARY_HEADING)
        assert len(context.summary) > len(SUMMARY_HEADING) + 1
    uncovered = len(messages) - max(upper, 0)
    assert len(history) >= min(2, uncovered), "the newest exchange"


def _check_budget(system: str, history: list[Any], used: int, tokens: int) -> None:
    size = count_tokens(system) + sum(message_tokens(each, count_tokens) for each in history)
    assert size <= used <= tokens


def _check_contiguous(history: list[Any], stored: list[Any]) -> None:
    """Each message is one of the newest, in order, whole or the beginning of it."""
    for shown, message in zip(reversed(history), reversed(stored), strict=False):
        assert shown["role"] == message["role"]
        beginning = shown["content"].partition(" [… ")[0]
        assert message["content"].startswith(beginning)
    assert history[0]["role"] == "user"


def test_context_cuts_the_exchange_before_an_unanswered_message(space: Space) -> None:
    session = space.session("s")
    session.append_many(
        [user("Where is the museum?"), reply("Beside the station. " * 400), user("And when?")]
    )
    history = session.context("", tokens=500).history
    assert [message["role"] for message in history] == ["user", "assistant", "user"]
    assert history[0] == user("Where is the museum?") and history[2] == user("And when?")
    assert history[1]["content"].startswith("Beside the station.")
    assert "characters left out" in history[1]["content"]
    whole = session.context("", tokens=16_000).history
    assert whole[1] == reply("Beside the station. " * 400)


def test_context_recalls_what_was_cut_off_the_history(stores: Stores) -> None:
    session = stores.open(recall_floor=0.0).space("ana").session("s")
    long = "Of trains and tickets. " * 300 + "The locker has the number 4711."
    session.append_many([user("Tell me all"), reply(long), user("Which number has the locker?")])
    context = session.context(tokens=900)
    assert "4711" not in str(context.history) and "4711" in context.recalled


# -- the room of the profile ----------------------------------------------------------------------


def facts(space: Space, number: int) -> list[str]:
    return [
        space.remember(f"Fact {each}: {SENTENCES['english']}", category="trivia").id
        for each in range(number)
    ]


def test_profile_takes_the_room_that_nothing_else_needs(space: Space) -> None:
    """Facts of the default category have no priority: all of them are shown while they fit."""
    told = ["The user's wife is Ana", "Her children are Mia and Leo", "Leo is allergic to nuts"]
    important = [space.remember(content).id for content in told]
    for number in range(57):
        space.remember(f"Trivia {number}: {SENTENCES['english'] * 2}and so on")
    session = space.session("s")
    session.append(user("hello there"))
    for context in (session.context("…", tokens=4000), space.context("…", tokens=4000)):
        assert context.profile.count("- [id:") == 60 and LEFT_OUT not in context.profile
        assert all(id in context.profile for id in important)
        assert 3000 < context.tokens <= 4000


def test_profile_leaves_room_for_recalled_memories_that_it_leaves_out(space: Space) -> None:
    ids = facts(space, 200)
    session = space.session("s")
    session.append(user("Hello, which station is Fact 3?"))
    for context in (session.context(), space.context("Which station is Fact 3?")):
        assert ids[3] not in context.profile and ids[3] in context.recalled
        assert 3000 < context.tokens <= 4000
    alone = space.context("")
    assert alone.recalled == "" and 3600 < count_tokens(alone.profile) <= 4000


def test_profile_yields_its_room_in_few_steps_as_the_history_grows(space: Space) -> None:
    facts(space, 100)
    session = space.session("s")
    profiles = []
    for turn in range(30):
        session.append_many([user(f"{turn} {SENTENCES['english']}"), reply("indeed " * 40)])
        context = session.context("", tokens=4000)
        if context.profile not in profiles:
            profiles.append(context.profile)
        assert context.profile == profiles[-1], "it never grows again"
        assert context.tokens > 2700, "what nothing else needs"
    assert count_tokens(profiles[-1]) <= 1000 and count_tokens(profiles[0]) > 2800
    assert len(profiles) < 9
    assert len(context.history) > 20


def test_newest_exchange_is_not_cut_while_there_is_room(space: Space) -> None:
    session = space.session("s")
    talk(session, SENTENCES["japanese"], 0, 40)
    text = (SENTENCES["japanese"] * 40)[:1143]
    session.append_many([user("どう思いますか。"), reply(text)])
    lines = "\n".join(f"- [{n}] user: {SENTENCES['japanese']}" for n in range(40))
    session.write_summary(lines, upper=38, expected_epoch=0)
    assert session.context("", tokens=4000).history[-1] == reply(text)
    for tokens in (700, 900, 1200, 1500):
        context = session.context("", tokens=tokens)
        assert context.history[-1] == reply(text) or context.tokens > tokens - 40, tokens
