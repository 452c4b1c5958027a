"""The page in a real browser: what people can do there, by hand and by key."""

from __future__ import annotations

import random
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reverie import Store
from reverie.aio import AsyncStore
from reverie.server.context import ServerContext
from reverie.server.run import bind_socket, run_in_thread
from reverie.vault import service
from tests.messages import propose, user
from tests.server.conftest import Running
from tests.server.web.browser import (
    PATIENCE_MS,
    Open,
    Window,
    is_gone,
    shows,
    window,
)
from tests.server.web.page_data import CHAT, SPACE, Story

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route


def has_title(seen: Window, title: str) -> None:
    from playwright.sync_api import expect

    expect(seen.page).to_have_title(re.compile(f"^{title}"), timeout=PATIENCE_MS)


# -- coming in ------------------------------------------------------------------------------------


def test_login_code_opens_the_page_once_and_is_removed_from_the_url(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, _ = page_server
    code = running.server_context.new_login_code()
    first = opened(f"#code={code}", token="")
    shows(first.page.locator(".rail"))
    assert code not in first.page.url
    assert first.page.evaluate("localStorage.getItem('reverie.token')") is None
    first.page.reload()
    shows(first.page.locator(".rail"))
    again = opened(f"#code={code}", token="")
    shows(again.page.locator(".wrong"), "used already")


def test_token_login_and_logout_work(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, _ = page_server
    seen = opened(token="")
    seen.page.get_by_label("Token").fill("rv_of_nobody")
    seen.page.get_by_role("button", name="Open").click()
    shows(seen.page.locator(".wrong"), "does not know this token")
    seen.page.get_by_label("Token").fill(running.token("read", spaces=(SPACE,)))
    seen.page.get_by_label("Stay signed in").check()
    seen.page.get_by_role("button", name="Open").click()
    shows(seen.page.locator(".who"), "read")
    assert seen.page.evaluate("localStorage.getItem('reverie.token')")
    seen.page.get_by_role("button", name="Sign out").click()
    shows(seen.page.get_by_label("Token"))
    assert seen.page.evaluate("localStorage.length + sessionStorage.length") <= 1
    seen.page.reload()
    shows(seen.page.get_by_label("Token"))


def test_revoked_token_returns_to_the_login(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, _ = page_server
    seen = opened(token=running.token("write"))
    shows(seen.rows().first)
    running.store.revoke_token(running.store.tokens()[0].id)
    seen.press("g", "s")
    shows(seen.page.locator(".signin .wrong"), "does not know this token any more")
    is_gone(seen.page.locator(".toast"))
    seen.page.reload()
    shows(seen.page.locator(".signin .wrong"), "does not know this token any more")
    shows(seen.page.locator("#token-help"), "prints as Token")


# -- memories -------------------------------------------------------------------------------------


def test_memories_are_grouped_by_category_and_filtered(opened: Open) -> None:
    seen = opened()
    shows(seen.page.locator(".group").first, "appointment")
    groups = seen.page.locator(".group").all_inner_texts()
    assert [each.lower() for each in groups] == sorted(each.lower() for each in groups)
    categories = seen.page.get_by_role("navigation", name="Categories")
    shows(categories, re.compile(r"person\s*2"))
    categories.get_by_role("link", name="person").click()
    shows(seen.page.locator(".list-foot"), "2 of 2 memories")
    seen.page.get_by_label("Tag").fill("design")
    seen.press("Enter")
    shows(seen.page.locator(".list-foot"), "1 of 1 memory")
    seen.page.get_by_role("button", name="Clear").click()
    shows(seen.page.locator(".list-foot"), "6 of 6 memories")
    seen.page.locator("summary").click()
    seen.page.get_by_label("forgotten too").check()
    shows(seen.page.locator(".row-link.forgotten"), "heron")


def test_search_as_you_type_shows_score_parts(opened: Open) -> None:
    seen = opened()
    seen.press("/")
    seen.page.keyboard.type("who is my boss")
    shows(seen.page.locator(".score-bar").first)
    shows(seen.page.locator(".row").first, "Priya")
    assert "q=who+is+my+boss" in seen.page.url
    bar = seen.page.locator(".score-bar").first
    assert re.match(r"Score 0\.\d{3}: keyword 0\.\d{3}", bar.get_attribute("aria-label") or "")
    parts = seen.page.locator(".score-parts").first
    assert not parts.is_visible()
    bar.focus()
    bar.press("Enter")
    shows(parts, "words in common")
    drawn = bar.locator(".stage").evaluate_all("all => all.map((each) => each.offsetWidth)")
    assert sum(drawn) > 50 and drawn[0] > 0
    score = float(bar.locator(".score-number").inner_text())
    assert sum(drawn[:-1]) / sum(drawn) == pytest.approx(score, abs=0.05)
    turn = seen.page.locator(".row-link.turn").first
    turn.click()
    shows(seen.page.locator(".turn.meant"))


def test_poor_hits_are_not_shown_as_matches(opened: Open) -> None:
    seen = opened("#/memories?q=quantum+chromodynamics+lattice")
    shows(seen.page.locator(".rows .note"), "No good match")
    drawn = seen.page.locator(".score-stack").first.locator(".stage")
    widths = drawn.evaluate_all("all => all.map((each) => each.offsetWidth)")
    assert sum(widths[:-1]) < sum(widths) / 4
    seen.page.get_by_label("Search memories and turns").fill("who is my boss")
    shows(seen.page.locator(".row").first, "Priya")
    shows(seen.page.locator(".rows .note"), "What follows is weak")


def test_list_shows_an_earlier_position(opened: Open, page_server: tuple[Running, Story]) -> None:
    _, story = page_server
    seen = opened(f"#/memories/{story.boss}")
    shows(seen.page.locator(".timeline .life").last, "remembered by cli")
    seen.page.locator(".life-links a", has_text="what was known then").last.click()
    shows(seen.page.locator(".then"), "at position 1")
    shows(seen.page.locator(".list-foot"), "1 of 1 memory")
    shows(seen.page.locator(".row"), "Alec is my boss")
    seen.page.get_by_role("button", name="Back to now").click()
    shows(seen.page.locator(".list-foot"), "6 of 6 memories")


def test_memory_view_shows_versions_with_differences(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    _, story = page_server
    seen = opened(f"#/memories/{story.boss}")
    history = seen.page.locator(".life")
    shows(history.nth(1), "revised by assistant")
    shows(history.nth(1), "Ana said so on Monday")
    assert history.nth(1).locator("del").first.inner_text() == "Alec"
    assert history.nth(1).locator("ins").first.inner_text() == "Priya"
    shows(history.nth(1), re.compile(r"tags\s+#design"))
    assert history.count() == 3


def test_memory_view_shows_the_event_it_came_from(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    _, story = page_server
    seen = opened(f"#/memories/{story.dentist}")
    seen.page.locator(".origin").click()
    meant = seen.page.locator(".turn.meant")
    shows(meant, "My dentist is on 12 March")
    assert CHAT in seen.page.url
    assert meant.evaluate("each => each === document.activeElement")


def test_edit_can_be_undone(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, story = page_server
    seen = opened(f"#/memories/{story.dentist}")
    shows(seen.page.locator(".content"), "9:30")
    seen.press("e")
    seen.page.get_by_label("What is known").fill("Dentist appointment on 12 March at 10:00")
    seen.page.get_by_label("Why").fill("they called")
    seen.press("Control+Enter")
    shows(seen.page.locator(".content"), "10:00")
    shows(seen.page.locator(".life").first, "they called")
    kept = running.store.space(SPACE).history(story.dentist)[-1]
    assert (kept.actor, kept.trust, kept.reason) == ("operator", "person", "they called")
    seen.press("u")
    shows(seen.page.locator(".content"), "9:30")
    assert running.store.space(SPACE).get(story.dentist).version == 3


def test_editor_opened_during_a_refresh_stays_open(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    """The page reads a memory again when it changed; its answer may come while somebody writes."""
    running, story = page_server
    seen = opened(f"#/memories/{story.dentist}")
    shows(seen.page.get_by_role("button", name="Edit"))
    held: list[Route] = []
    with seen.page.expect_request(re.compile(f"/api/memory/{story.dentist}")):
        seen.page.route(
            re.compile(f"/api/memory/{story.dentist}"), lambda route: held.append(route)
        )
        running.store.space(SPACE).revise(story.dentist, "Dentist in May")
    seen.page.get_by_role("button", name="Edit").click()
    field = seen.page.get_by_label("What is known")
    field.fill("Dentist in June")
    for route in held:
        with seen.page.expect_response(route.request.url):
            route.continue_()
    seen.page.wait_for_timeout(100)
    assert field.input_value() == "Dentist in June"


def test_edit_conflict_shows_both_versions(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened(f"#/memories/{story.dentist}")
    seen.page.get_by_role("button", name="Edit").click()
    seen.page.get_by_label("What is known").fill("Dentist on 13 March at 9:30")
    space.revise(story.dentist, "Dentist on 12 April at 9:30")
    seen.page.get_by_role("button", name="Save", exact=True).click()
    both = seen.page.locator(".both")
    shows(both, "Dentist on 12 April at 9:30")
    assert both.locator("ins").all_inner_texts() == ["13 March"]
    assert space.get(story.dentist).content == "Dentist on 12 April at 9:30"
    seen.page.get_by_role("button", name="Save yours over theirs").click()
    shows(seen.page.locator(".content"), "13 March")
    assert space.get(story.dentist).version == 3


def test_forget_can_be_undone_and_restored(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened()
    shows(seen.rows().first)
    seen.press("j")
    assert seen.page.evaluate("document.activeElement.dataset.row") == story.dentist
    seen.press("x")
    is_gone(seen.page.locator(f"[data-row='{story.dentist}']"))
    shows(seen.page.locator(".toast"), "Forgotten: Dentist appointment")
    assert space.get(story.dentist).forgotten_at is not None
    seen.press("u")
    shows(seen.page.locator(f"[data-row='{story.dentist}']"))
    assert space.get(story.dentist).forgotten_at is None
    seen.open(f"#/memories/{story.dentist}?forgotten=1")
    seen.page.get_by_role("button", name="Forget").click()
    seen.page.get_by_role("button", name="Restore").click()
    shows(seen.page.locator(".life").first, "restored by operator")
    assert space.get(story.dentist).forgotten_at is None


def test_memory_is_pinned_and_created(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened(f"#/memories/{story.dentist}")
    seen.page.get_by_role("button", name="Pin").click()
    shows(seen.page.get_by_role("button", name="Unpin"))
    assert space.get(story.dentist).pinned
    seen.press("n")
    seen.page.get_by_label("What is known").fill("Dentist appointment on 20 March with Dr Moreau")
    seen.page.get_by_label("Category").last.fill("appointment")
    seen.page.get_by_label("Subject").fill("dentist")
    seen.page.locator(".editor").get_by_role("button", name="Remember").click()
    shows(seen.page.locator(".conflict"), "remembered already")
    choices = seen.page.locator(".editor .primary:visible")
    assert choices.all_inner_texts() == ["Revise that one"]
    seen.page.get_by_role("button", name="Remember this too").click()
    shows(seen.page.locator(".content"), "Dr Moreau")
    shows(seen.page.locator(".toast").first, "Remembered: Dentist appointment on 20 March")
    assert space.count(category="appointment") == 2


def test_metadata_is_shown_and_edited(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    space.revise(story.dentist, metadata={"floor": 2}, valid_to="2030-05-01")
    seen = opened(f"#/memories/{story.dentist}")
    shows(seen.page.locator(".facts"), "floor 2")
    shows(seen.page.locator(".facts"), "Holds until")
    seen.press("e")
    field = seen.page.get_by_label("Metadata")
    assert field.input_value() == '{"floor":2}'
    field.fill("floor 3")
    seen.press("Control+Enter")
    shows(seen.page.locator(".conflict"), "Metadata is a JSON object")
    field.fill('{"floor": 3, "door": "left"}')
    seen.press("Control+Enter")
    shows(seen.page.locator(".facts"), "door left")
    assert space.get(story.dentist).metadata == {"floor": 3, "door": "left"}


def test_new_memory_of_a_known_subject_becomes_a_revision(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened()
    shows(seen.rows().first)
    seen.press("n")
    seen.page.get_by_label("What is known").fill("Theo, my brother, lives in Nantes")
    seen.page.locator(".editor").get_by_label("Category").fill("person")
    seen.page.get_by_label("Subject").fill("theo")
    seen.press("Control+Enter")
    seen.page.get_by_role("button", name="Revise that one").click()
    shows(seen.page.locator(".memory h2"), "Theo")
    shows(seen.page.get_by_role("button", name="Save", exact=True))
    assert (
        seen.page.get_by_label("What is known").input_value() == "Theo, my brother, lives in Nantes"
    )
    seen.page.get_by_role("button", name="Save", exact=True).click()
    shows(seen.page.locator(".content"), "Theo, my brother, lives in Nantes")
    shows(seen.page.locator(".life").first, "revised by operator")
    assert space.count(category="person") == 2


# -- the rest of the house ------------------------------------------------------------------------


def recalled(running: Running, sequence: int) -> list[str]:
    """Where the hits of a turn lead, the best first, without the turn itself."""
    notes = running.store.space(SPACE).session(CHAT).recalls()
    hits = dict.fromkeys(hit for note in notes if note.sequence == sequence for hit in note.hits)
    hits.pop(f"{CHAT}:{sequence}", None)
    parts = [hit.partition(":") for hit in hits]
    assert {bool(at) for _, at, _ in parts} == {True, False}
    return [f"#/sessions/{id}/{n}" if at else f"#/memories/{id}" for id, at, n in parts]


def test_fork_shows_its_number_of_events(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, _ = page_server
    space = running.store.space(SPACE)
    before = [event.message for event in space.session(CHAT).events()[:4]]
    fork = space.follow([*before, user("Let us begin again from here")], session=CHAT)
    seen = opened(f"#/sessions/{fork.id}")
    shows(seen.page.locator(".session header + .quiet"), "5 events")
    assert seen.page.locator(".turn").count() == 5
    shows(seen.page.locator(f"[data-row='{fork.id}']"), "5 events")


def test_session_view_shows_recalled_memories_beside_their_turn(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    seen = opened()
    seen.press("g", "s")
    shows(seen.page.locator(".row").first, "No mushrooms")
    seen.page.locator("[data-row]", has_text="Good news").click()
    shows(seen.page.locator(".kept").first, "Ana moved to Design under Priya")
    shows(seen.page.locator(".kept").last, "book the train to Lyon")
    turns = seen.page.locator(".turn")
    assert turns.count() == 6
    beside = turns.nth(2).locator(".recalled")
    beside.locator("summary").click()
    hits = beside.locator("a").evaluate_all("all => all.map((each) => each.hash.split('?')[0])")
    assert hits == recalled(page_server[0], 3)
    shows(beside, "Priya is my boss at TechCorp")
    beside.get_by_role("link", name=re.compile("^Priya is my boss")).click()
    shows(seen.page.locator(".content"), "Priya is my boss")


def test_long_session_opens_at_the_linked_event(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, _ = page_server
    session = running.store.space(SPACE).session("long")
    session.append_many([user(f"this is number {at}") for at in range(1, 401)])
    seen = opened("#/sessions/long/150")
    shows(seen.page.locator(".turn.meant"), "this is number 150")
    turns = seen.page.locator(".turn")
    shows(turns.first, "this is number 71")
    shows(turns.last, "this is number 170")
    seen.page.get_by_role("button", name="Earlier").click()
    shows(turns.first, re.compile(r"this is number 1$"))
    seen.page.get_by_role("button", name="Later").click()
    shows(turns.last, "this is number 270")
    session.append(user("one more"))
    seen.page.get_by_role("button", name="Later").click()
    shows(turns.last, "this is number 370")
    seen.page.get_by_role("button", name="Later").click()
    shows(turns.last, "one more")
    is_gone(seen.page.get_by_role("button", name="Later"))
    session.append(user("and the last"))
    shows(turns.last, "and the last")


def test_proposals_are_accepted_and_rejected(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, _ = page_server
    space = running.store.space(SPACE)
    seen = opened()
    seen.press("g", "p")
    shows(seen.page.locator(".card"), "Ana runs on Saturdays")
    propose(space, "Ana hates mushrooms")
    shows(seen.page.locator(".card").last, "mushrooms")
    seen.page.get_by_role("button", name="Reject").last.click()
    is_gone(seen.page.locator(".card", has_text="mushrooms"))
    seen.page.get_by_role("button", name="Accept").click()
    shows(seen.page.locator(".empty"), "Nothing waits for an answer")
    shows(seen.page.locator(".empty"), "write_policy = ask")
    assert space.count(category="habit") == 1
    seen.page.get_by_role("button", name="Answered too").click()
    shows(seen.page.locator(".card").last, "rejected")


def test_badge_shows_how_many_proposals_wait(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened()
    badge = seen.page.locator(".sections .badge:not([hidden])")
    shows(badge, re.compile("^1$"))
    propose(space, "Ana hates mushrooms")
    shows(badge, re.compile("^2$"))
    seen.press("g", "p")
    seen.page.get_by_role("button", name="Reject").last.click()
    shows(badge, re.compile("^1$"))
    space.accept(story.proposal)
    is_gone(badge)


def test_parked_jobs_are_retried_and_dropped(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, _ = page_server
    seen = opened()
    seen.press("g", "j")
    parked = seen.page.locator(".job.parked")
    shows(parked, "the model at 127.0.0.1 does not answer")
    shows(parked, re.compile("learn.*from a turn"))
    parked.get_by_role("button", name="Retry").click()
    is_gone(parked)
    assert not [job for job in running.store.jobs() if job.state == "parked"]
    ours = seen.page.locator(".job", has_text="space workshop")
    ours.get_by_role("button", name="Drop").click()
    ours.get_by_role("button", name="Drop it for good?").click()
    is_gone(ours)
    assert not [job for job in running.store.jobs() if job.space == "workshop"]


def test_space_and_user_can_be_switched(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, _ = page_server
    seen = opened()
    seen.page.get_by_label("User").select_option("theo")
    shows(seen.page.locator(".rows"), "spare key")
    shows(seen.page.locator(".list-foot"), "7 of 7 memories")
    seen.page.locator("[data-row]", has_text="Priya").click()
    shows(seen.page.locator(".content"), "Priya")
    assert seen.page.get_by_role("button", name="Edit").count() == 0
    seen.page.get_by_label("Space").select_option("workshop")
    shows(seen.page.locator(".empty").first, "Nothing is remembered here yet")
    own = opened(token=running.token("read", spaces=(SPACE,), user="theo"))
    shows(own.page.locator(".rows"), "spare key")
    assert own.page.get_by_label("Space").locator("option").all_inner_texts() == [SPACE]


def test_actions_without_the_right_are_not_offered(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    seen = opened(f"#/memories/{story.boss}", token=running.token("read"))
    shows(seen.page.locator(".content"), "Priya")
    for name in ("Edit", "Forget", "Pin", "Unpin", "Remember"):
        assert seen.page.get_by_role("button", name=name).count() == 0, name
    assert seen.page.get_by_role("link", name="Jobs").count() == 0
    seen.press("x", "e", "n", "g", "j")
    shows(seen.page.locator(".content"), "Priya")
    seen.press("g", "p")
    shows(seen.page.locator(".card"), "Ana runs on Saturdays")
    assert seen.page.get_by_role("button", name="Accept").count() == 0
    assert not [each for each in seen.asked if "/api/jobs" in each]


def test_list_updates_when_others_write(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened(f"#/memories/{story.dentist}")
    shows(seen.page.locator(".live"), "live")
    made = space.remember("The bakery closes at six", category="place")
    shows(seen.page.locator(f"[data-row='{made.id}']"), "bakery closes at six")
    shows(seen.page.get_by_role("navigation", name="Categories"), "place")
    space.revise(story.dentist, "Dentist appointment moved to April")
    shows(seen.page.locator(".content"), "moved to April")
    space.forget(made.id)
    is_gone(seen.page.locator(f"[data-row='{made.id}']"))


def test_keyboard_shortcuts_work(opened: Open) -> None:
    seen = opened()
    shows(seen.rows().first)
    seen.press("?")
    shows(seen.page.get_by_role("dialog"), "forget")
    seen.press("Escape")
    is_gone(seen.page.get_by_role("dialog"))
    seen.press("j", "j", "k", "j")
    focused = seen.page.evaluate("document.activeElement.dataset.row")
    assert focused == seen.rows().nth(1).get_attribute("data-row")
    outline = seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    seen.press("Enter")
    shows(seen.page.locator(".memory .content"))
    assert focused in seen.page.url
    seen.press("Escape")
    shows(seen.page.locator(".pane .empty"), "Open a memory")
    for key, title in (("s", "Sessions"), ("p", "Proposals"), ("j", "Jobs"), ("m", "Memories")):
        seen.press("g", key)
        has_title(seen, title)


def test_lost_server_connection_is_shown_and_recovers(
    browser: Browser, kept: tuple[Store, Story]
) -> None:
    store, story = kept
    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    serving = ServerContext(
        AsyncStore(store), store.settings, "rv_a_token_of_the_operator", port=port
    )
    with window(browser, f"http://127.0.0.1:{port}") as seen:
        with run_in_thread(serving, bound):
            seen.open("#/memories", serving.token)
            # The feed may answer before the list: without a row, no key would ask the server.
            shows(seen.rows().first)
            shows(seen.page.locator(".live"), "live")
        shows(seen.page.locator(".live"), "waits for the server")
        seen.press("j", "x")
        shows(seen.page.locator(".toast.wrong"), "the server does not answer")
        store.space(SPACE).forget(story.dentist)
        again = replace(serving, stopping=threading.Event())
        with run_in_thread(again, bind_socket("127.0.0.1", port)):
            is_gone(seen.page.locator(f"[data-row='{story.dentist}']"))
            shows(seen.page.locator(".live"), re.compile("^live$"))


DIFFERENCES: list[tuple[str, str, list[list[str]]]] = [
    ("same", "same", [["same", "same"]]),
    ("", "all new", [["in", "all new"]]),
    ("all gone", "", [["out", "all gone"]]),
    (
        "at 9:30 on Monday",
        "at 10:00 on Monday",
        [["same", "at "], ["out", "9:30"], ["in", "10:00"], ["same", " on Monday"]],
    ),
    (
        "I like green tea",
        "I love black tea",
        [["same", "I "], ["out", "like green"], ["in", "love black"], ["same", " tea"]],
    ),
    ("a b", "a c b", [["same", "a "], ["in", "c "], ["same", "b"]]),
    ("né à Köln", "né à Lyon", [["same", "né à "], ["out", "Köln"], ["in", "Lyon"]]),
]


def test_differences_are_shown_word_by_word(opened: Open) -> None:
    seen = opened()
    for before, after, steps in DIFFERENCES:
        assert differences(seen, before, after) == steps, (before, after)


def test_word_difference_of_any_two_texts_contains_both(opened: Open) -> None:
    seen, chance = opened(), random.Random(6)
    for size in (*[6] * 60, 400, 4_000, 40_000):
        texts = [" ".join(chance.choices("abcdef,.", k=size)) for _ in range(2)]
        steps = differences(seen, *texts)
        assert "".join(text for kind, text in steps if kind != "in") == texts[0]
        assert "".join(text for kind, text in steps if kind != "out") == texts[1]


def differences(seen: Window, before: str, after: str) -> list[list[str]]:
    address = seen.page.locator("script[type=module]").get_attribute("src") or ""
    found: list[list[str]] = seen.page.evaluate(
        "async ([address, before, after]) => (await import(address)).diff(before, after)",
        [address.replace("main.js", "diff.js"), before, after],
    )
    return found


@pytest.mark.parametrize("section", ["memories", "sessions"])
def test_unknown_id_is_reported_in_the_detail_pane(
    opened: Open, page_server: tuple[Running, Story], section: str
) -> None:
    _, story = page_server
    seen = opened(f"#/{section}/nosuchid")
    missing = seen.page.locator(".pane .empty")
    shows(missing, "nosuchid")
    shows(seen.rows().first)
    seen.open(f"#/{section}/{story.boss if section == 'memories' else CHAT}")
    shows(seen.page.locator(".pane article"), "Priya")
    seen.open(f"#/{section}/another")
    shows(missing, "another")
    is_gone(seen.page.locator(".pane article"))
    is_gone(seen.page.locator(".toast"))


# -- the vault ------------------------------------------------------------------------------------


def test_memory_view_links_to_its_vault_file(
    kept: tuple[Store, Story], opened: Open, page_server: tuple[Running, Story], tmp_path: Path
) -> None:
    store, story = kept
    running, _ = page_server
    without = opened(f"#memories/{story.boss}")
    shows(without.page.locator(".facts"), "Category")
    assert without.page.locator(".path").count() == 0
    service.init(store, tmp_path / "the vault")
    seen = opened(f"#memories/{story.boss}")
    shows(seen.page.locator(".path"), f"{SPACE}/facts/")
    link = seen.page.get_by_role("link", name="Open in Obsidian").get_attribute("href")
    assert link is not None and link.startswith("obsidian://open?path=%2F")
    assert "the%20vault" in link
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.get_by_role("button", name="Copy", exact=True).click()
    shows(seen.page.get_by_role("button", name="Copied"))
    copied = seen.page.evaluate("navigator.clipboard.readText()")
    assert Path(copied).is_file()
    # Who is not the operator learns where it is in the vault, not where the vault is.
    guest = opened(f"#memories/{story.boss}", token=running.token("read"))
    shows(guest.page.locator(".path"), f"{SPACE}/facts/")
    assert guest.page.get_by_role("link", name="Open in Obsidian").count() == 0
