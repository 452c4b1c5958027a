"""Which memories a profile shows when there is no room for all, and in which order."""

from __future__ import annotations

import re

import pytest

from reverie import Memory, Session, Space, Store
from reverie.prompt.profile import LEFT_OUT, PINNED_TITLE
from tests.conftest import DAY, HOUR, FakeClock, SeededIds, Stores
from tests.messages import user

TRIVIA = "Trivia {}: the bus number {} goes to the harbour every morning"
# Room for about ten lines.
NARROW = 300


def trivia(space: Space, count: int = 60) -> list[Memory]:
    return [space.remember(TRIVIA.format(n, n), category="trivia") for n in range(count)]


def shown(profile: str) -> list[str]:
    """The ids of the memories, in order."""
    return re.findall(r"^- \[id:(\w{8})\]", profile, re.MULTILINE)


@pytest.mark.parametrize(
    ("category", "content"),
    [
        ("person", "The user's wife is Ingrid"),
        ("family", "The user's children are Jonas and Freya"),
        ("health", "The user's doctor is Dr. Lund"),
        ("preference", "The user prefers tea"),
    ],
)
def test_profile_shows_people_health_and_preferences_before_newer_facts(
    space: Space, category: str, content: str
) -> None:
    old = space.remember(content, category=category)
    newer = trivia(space)
    ids = shown(space.profile(tokens=NARROW))
    assert old.id in ids and newer[-1].id in ids and newer[0].id not in ids


def test_profile_shows_people_health_and_preferences_in_turn(space: Space) -> None:
    """None of them fills the profile alone."""
    doctor = space.remember("The user's doctor is Dr. Lund", category="health")
    wife = space.remember("The user's wife is Ingrid", category="person")
    for number in range(60):
        space.remember(f"The user prefers the number {number}", category="preference")
    ids = shown(space.profile(tokens=NARROW))
    assert doctor.id in ids and wife.id in ids and len(ids) > 5


def test_profile_shows_pinned_memories_first_under_their_heading(
    space: Space, ids: SeededIds
) -> None:
    ids.coming = ["aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"]
    space.remember("The user's wife is Ingrid", category="person", subject="Ingrid")
    space.remember("Answer in French", category="preference", pinned=True)
    space.remember("Tea is in the cupboard", category="home")
    space.remember("The alarm code is 4711", category="home", pinned=True)
    body = space.profile().partition("### ")
    assert body[1] + body[2] == (
        "### Pinned (important)\n"
        "- [id:dddddddd] The alarm code is 4711\n"
        "- [id:bbbbbbbb] Answer in French\n"
        "\n"
        "### Home\n"
        "- [id:cccccccc] Tea is in the cupboard\n"
        "\n"
        "### Person\n"
        "- [id:aaaaaaaa] [Ingrid] The user's wife is Ingrid\n"
    )


def test_category_called_pinned_does_not_look_pinned(space: Space) -> None:
    space.remember("one", category="pinned (important)")
    space.remember("two", pinned=True)
    assert space.profile().count(PINNED_TITLE) == 1


def test_profile_says_in_one_line_that_something_is_left_out(space: Space) -> None:
    trivia(space, 3)
    assert LEFT_OUT not in space.profile()
    trivia_profile = space.profile(tokens=130)
    assert 0 < len(shown(trivia_profile)) < 3
    assert trivia_profile.endswith(LEFT_OUT) and LEFT_OUT.count("\n") == 2


def test_profile_names_only_the_tool_that_the_caller_has(space: Space) -> None:
    space.remember("one")
    assert "tool" not in space.profile()
    assert "tool" not in space.context("one").profile
    assert "tool" not in space.session("s").context("one").profile
    hint = "To update a memory, use the edit_note tool with the memory ID."
    assert hint in space.profile(update_tool="edit_note")
    assert hint in space.context("one", update_tool="edit_note").profile
    assert hint in space.session("s").context("one", update_tool="edit_note").profile


# -- what is recalled often -----------------------------------------------------------------------


def recall_often(space: Space | Session, clock: FakeClock, query: str, times: int = 5) -> None:
    for _ in range(times):
        clock.step(HOUR)
        space.recall(query, limit=1)


def touch(space: Space, clock: FakeClock) -> None:
    """Change a memory: recalls count from then on."""
    clock.step(HOUR)
    space.remember("something else", category="trivia")


def test_profile_shows_what_is_recalled_often_before_newer_facts(
    space: Space, clock: FakeClock
) -> None:
    boat = space.remember("The boat is moored at pier seven", category="things")
    newer = trivia(space)
    before = space.profile(tokens=NARROW)
    assert boat.id not in shown(before)
    recall_often(space, clock, "where is the boat moored?")
    touch(space, clock)
    after = shown(space.profile(tokens=NARROW))
    assert boat.id in after and newer[-1].id in after


def test_recalls_do_not_change_a_profile_before_a_memory_changes(
    stores: Stores, clock: FakeClock
) -> None:
    store = stores.open()
    space = store.space("ana", user="bo")
    store.space("ana").remember("The boat is moored at pier seven", category="things")
    trivia(space)
    before = space.profile(tokens=NARROW)
    for _ in range(3):
        recall_often(space, clock, "where is the boat moored?")
        space.session("s").append(user("hello"))  # writes the notes
        assert space.profile(tokens=NARROW) == before
        assert stores.open().space("ana", user="bo").profile(tokens=NARROW) == before
    touch(space, clock)
    assert space.profile(tokens=NARROW) != before


def test_frozen_profile_does_not_change_by_recalls(stores: Stores, clock: FakeClock) -> None:
    store = stores.open()
    space = store.space("ana")
    boat = space.remember("The boat is moored at pier seven", category="things")
    car = space.remember("The car is parked in Mill Lane", category="things")
    trivia(space)
    recall_often(space, clock, "where is the boat moored?")
    touch(space, clock)
    session = space.session("s")
    frozen = session.context("", tokens=4 * NARROW, freeze=True).profile
    narrow = session.context("", tokens=600).profile
    assert boat.id in shown(narrow) and car.id not in shown(narrow)
    recall_often(session, clock, "where is the car parked?", 20)
    touch(space, clock)
    clock.step(40 * DAY)
    store.run_pending_jobs()  # old notes are deleted
    touch(space, clock)
    assert session.context("", tokens=600).profile == narrow
    assert session.context("", tokens=4 * NARROW).profile == frozen
    store.rebuild()
    store.close()
    again = stores.open().space("ana").session("s")
    assert again.context("", tokens=600).profile == narrow


def test_refreshed_profile_shows_what_is_recalled_often_now(space: Space, clock: FakeClock) -> None:
    car = space.remember("The car is parked in Mill Lane", category="things")
    trivia(space)
    session = space.session("s")
    assert car.id not in shown(session.context("", tokens=600).profile)
    recall_often(session, clock, "where is the car parked?")
    touch(space, clock)
    assert car.id not in shown(session.context("", tokens=600).profile)
    session.refresh_profile()
    assert car.id in shown(session.context("", tokens=600).profile)


def test_fork_inherits_what_was_recalled_often(space: Space, clock: FakeClock) -> None:
    boat = space.remember("The boat is moored at pier seven", category="things")
    trivia(space)
    recall_often(space, clock, "where is the boat moored?")
    touch(space, clock)
    parent = space.follow([user("a plan"), {"role": "assistant", "content": "hi"}, user("go on")])
    profile = parent.context("", tokens=600).profile
    fork = space.follow([user("a plan"), {"role": "assistant", "content": "hi"}, user("else")])
    assert boat.id in shown(profile) and fork.context("", tokens=600).profile == profile


def test_recalls_of_one_user_do_not_change_the_profile_of_another(
    store: Store, clock: FakeClock
) -> None:
    shared = store.space("ana")
    boat = shared.remember("The boat is moored at pier seven", category="things")
    trivia(shared)
    bo, cy = (store.space("ana", user=name) for name in ("bo", "cy"))
    before = cy.profile(tokens=NARROW), shared.profile(tokens=NARROW)
    recall_often(bo, clock, "where is the boat moored?")
    clock.step(HOUR)
    bo.remember("of bo")
    assert boat.id in shown(bo.profile(tokens=NARROW))
    assert (cy.profile(tokens=NARROW), shared.profile(tokens=NARROW)) == before


def test_recall_repeated_for_one_event_counts_once(space: Space, clock: FakeClock) -> None:
    """A loop of tool calls asks for the same question again and again."""
    boat = space.remember("The boat is moored at pier seven", category="things")
    trivia(space)
    session = space.session("s")
    session.append(user("where is the boat moored?"))
    for _ in range(5):
        clock.step(HOUR)
        session.prompt_additions("where is the boat moored?")
    touch(space, clock)
    assert boat.id not in shown(space.profile(tokens=NARROW))


def test_profile_of_many_memories_reads_few_of_them(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.engine import log

    space.import_records({"content": f"fact {n}", "category": "trivia"} for n in range(2000))
    read = []
    find = log.find_at_positions

    def counted(tx: object, owner: object, positions: list[int]) -> object:
        read.extend(positions)
        return find(tx, owner, positions)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "find_at_positions", counted)
    lines = len(shown(space.profile(tokens=600)))
    assert 20 < lines <= len(read) < lines + 60


def test_profile_keeps_a_pinned_fact_first_when_a_newer_one_holds(space: Space) -> None:
    pinned = space.remember(
        "Lives in Oslo", category="person", subject="Ana", valid_to="2024-05-01", pinned=True
    )
    newer = space.remember("Lives in Bergen", category="person", subject="Ana")
    profile = space.profile()
    assert shown(profile) == [pinned.id, newer.id] and profile.count(PINNED_TITLE) == 1
