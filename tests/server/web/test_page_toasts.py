"""Toasts: one line that says what was done, each with its own undo."""

from __future__ import annotations

import pytest

from tests.server.conftest import Running
from tests.server.web.browser import (
    Open,
    has,
    is_gone,
    shows,
)
from tests.server.web.page_data import SPACE, Story


def test_each_toast_undoes_its_own_change(opened: Open, page_server: tuple[Running, Story]) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    seen = opened()
    toasts = seen.page.locator(".toast")
    for id in (story.dentist, story.boss):
        seen.page.locator(f"[data-row='{id}']").focus()
        seen.press("x")
        is_gone(seen.page.locator(f"[data-row='{id}']"))
    shows(toasts.first, "Forgotten: Priya")
    shows(toasts.last, "Forgotten: Dentist")
    toasts.last.get_by_role("button", name="Undo").click()
    shows(seen.page.locator(f"[data-row='{story.dentist}']"))
    assert space.get(story.boss).forgotten_at is not None
    seen.press("u")
    shows(seen.page.locator(f"[data-row='{story.boss}']"))
    is_gone(toasts)
    seen.press("u")
    shows(toasts, "Nothing to undo")


def test_undo_of_a_memory_changed_since_is_refused(
    opened: Open, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    seen = opened(f"#/memories/{story.dentist}")
    undo = seen.page.locator(".toast").get_by_role("button", name="Undo")
    for hour in ("10:00", "11:00", "12:00"):
        seen.page.get_by_role("button", name="Edit").click()
        seen.page.get_by_label("What is known").fill(f"Dentist at {hour}")
        seen.press("Control+Enter")
        shows(seen.page.locator(".toast").first, f"Saved: Dentist at {hour}")
    assert (seen.page.locator(".toast").count(), undo.count()) == (2, 1)
    seen.press("u")
    shows(seen.page.locator(".content"), "11:00")
    is_gone(undo)
    seen.page.get_by_role("button", name="Pin").click()
    shows(undo)
    running.store.space(SPACE).revise(story.dentist, "Dentist in April")
    is_gone(undo)
    assert seen.page.locator(".toast.wrong").count() == 0


@pytest.mark.parametrize(("width", "most"), [(360, 1), (800, 2), (1280, 2)])
@pytest.mark.sample(3)
def test_toasts_are_few_and_cover_no_content(
    opened: Open, page_server: tuple[Running, Story], width: int, most: int
) -> None:
    running, _ = page_server
    for at in range(60):
        running.store.space(SPACE).remember(f"This is number {at}")
    seen = opened(viewport={"width": width, "height": 740})
    more = seen.page.get_by_role("button", name="More")
    shows(more)
    toasts = seen.page.locator(".toast")
    for at in range(3):
        first = seen.rows().first.get_attribute("data-row")
        seen.rows().first.focus()
        seen.press("x")
        is_gone(seen.page.locator(f"[data-row='{first}']"))
        has(toasts, min(at + 1, most))
    more.scroll_into_view_if_needed()
    seen.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    below = more.bounding_box()
    over = seen.page.locator("#toasts").bounding_box()
    assert below and over
    beside = over["x"] >= below["x"] + below["width"]
    assert beside or over["y"] >= below["y"] + below["height"]
