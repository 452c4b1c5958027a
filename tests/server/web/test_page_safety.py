"""What the page must never do, and that it is accessible."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from reverie import Origin
from reverie.server.web import pages
from tests.messages import propose, reply, user
from tests.server.conftest import Running
from tests.server.web.browser import PATIENCE_MS, Window, window
from tests.server.web.page_data import CHAT, SPACE, Story

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = (
    "<script>window.hurt = 'script'</script>",
    "<img src=x onerror=\"window.hurt = 'image'\">",
    "javascript:window.hurt='link'",
    "<a href=\"javascript:window.hurt='anchor'\">click me</a>",
    "<svg onload=\"window.hurt='svg'\"></svg>",
    "</p></article><iframe srcdoc=\"<script>parent.hurt='frame'</script>\"></iframe>",
    "<style>body { display: none }</style>",
    '"><link rel=stylesheet href=https://evil.example/x.css>',
    "${window.hurt='template'} {{constructor.constructor('window.hurt=1')()}}",
    "\u202eright to left \u0007 bell",
)
VIEWS = ("memories", "sessions", "proposals", "jobs")
AXE = "axe-core@4.10.2"


def settled(seen: Window) -> None:
    """The view is drawn, and nothing it shows is still on its way."""
    from playwright.sync_api import expect

    expect(seen.page.locator("main > * > *:visible").first).to_be_visible(timeout=PATIENCE_MS)
    expect(seen.page.locator("[aria-busy]")).to_have_count(0, timeout=PATIENCE_MS)
    seen.page.wait_for_load_state("domcontentloaded")


def test_hostile_texts_are_shown_as_text_in_every_view(browser: Browser, running: Running) -> None:
    space = running.store.space("main")
    session = space.session('<b onclick="hurt()">session & ?#%')
    ids = []
    for at, text in enumerate(HOSTILE, start=1):
        session.append(user(text))
        session.append(reply(text))
        subject = None if "\u0007" in text else text[:60]
        memory = space.remember(
            text,
            subject=subject,
            category=f"<i>{at}</i>",
            tags=["<u>tag</u>"],
            source="<b>source</b>",
            origin=Origin(session.id, 2 * at),
        )
        space.revise(memory.id, text + " again", reason="<script>window.hurt='reason'</script>")
        propose(space, text, Origin(session.id, 1))
        ids.append(memory.id)
    with window(browser, running.url) as seen:
        seen.open("#/memories?space=main", running.server_context.token)
        for id in ids:
            seen.open(f"#/memories/{id}?space=main")
            seen.page.locator(".life").nth(1).wait_for()
        for text in HOSTILE:
            seen.page.get_by_label("Search memories and turns").fill(text)
            seen.page.locator(".score-bar, .rows .empty").first.wait_for()
        for view in VIEWS:
            seen.open(f"#/{view}?space=main")
            settled(seen)
        seen.page.locator("nav a", has_text="Sessions").click()
        seen.page.locator("[data-row]").first.click()
        seen.page.locator(".turn").nth(19).wait_for()
        shown = seen.page.locator(".said-text").all_inner_texts()
        assert HOSTILE[0] in shown and HOSTILE[5] in shown
        seen.open('#/memories/"><script>window.hurt=1</script>?category=<script>')
        seen.open("#/sessions/%E0%A4%A?q=%")
        assert seen.page.evaluate("window.hurt") is None
        scripts = seen.page.evaluate("[...document.scripts].map((each) => each.src)")
        assert all(each.startswith(f"{running.url}/page/") for each in scripts)
        assert seen.page.locator("iframe, img, svg, a[href^=java]").count() == 0


def test_every_view_obeys_the_csp_and_loads_from_this_host_only(
    browser: Browser, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    with window(browser, running.url) as seen:
        seen.open("#/memories", running.server_context.token)
        for where in (*VIEWS, f"memories/{story.boss}", f"sessions/{CHAT}/3", "memories?q=boss"):
            seen.open(f"#/{where}")
            settled(seen)
        answers = {each.split("?")[0].removeprefix(running.url) for each in seen.asked}
        assert {"/", "/api/changes", "/api/recall"} <= answers
    # A window that is closed was looked through: no violation, no error, no other host.


def test_csp_violation_is_detected_by_these_tests(browser: Browser, running: Running) -> None:
    """The listener works: otherwise the tests above would prove nothing."""
    seen: Window
    with pytest.raises(AssertionError), window(browser, running.url) as seen:
        seen.open()
        settled(seen)
        seen.page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=https://evil.example/x.png>')"
        )
        seen.page.wait_for_timeout(0)


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.sample(3)
def test_no_view_scrolls_horizontally(
    browser: Browser, page_server: tuple[Running, Story], width: int
) -> None:
    running, story = page_server
    space = running.store.space(SPACE)
    long = space.remember(
        "W" * 3_000, kind="note", category="x" * 60, subject="y" * 150, tags=["z" * 60]
    )
    with window(browser, running.url, viewport={"width": width, "height": 740}) as seen:
        seen.open("#/memories", running.server_context.token)
        places = (*VIEWS, f"memories/{story.boss}", f"memories/{long.id}", f"sessions/{CHAT}/3")
        for where in (*places, "memories?q=boss", "memories?category=person&forgotten=1"):
            seen.open(f"#/{where}")
            settled(seen)
            assert seen.width_needed() <= width, where


def test_narrow_screen_shows_one_pane_at_a_time(
    browser: Browser, page_server: tuple[Running, Story]
) -> None:
    running, story = page_server
    options: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
    with window(browser, running.url, **options) as seen:
        seen.open("#/memories", running.server_context.token)
        settled(seen)
        assert not seen.page.locator(".pane").is_visible()
        seen.page.locator(f"[data-row='{story.boss}']").tap()
        seen.page.locator(".life").first.wait_for()
        assert not seen.page.locator(".list").is_visible()
        seen.page.get_by_label("Back to the list").tap()
        seen.page.locator(f"[data-row='{story.boss}']").wait_for()


def test_page_follows_dark_and_light_colour_scheme(browser: Browser, running: Running) -> None:
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    with window(browser, running.url, color_scheme="dark") as seen:
        seen.open("", running.server_context.token)
        settled(seen)
        dark = seen.page.evaluate(paper)
        seen.page.get_by_label("Dark or light").click()
        light = seen.page.evaluate(paper)
        assert sum(_numbers(dark)) < 150 < 600 < sum(_numbers(light))
        seen.page.reload()
        settled(seen)
        assert seen.page.evaluate(paper) == light


def _numbers(colour: str) -> list[int]:
    return [int(each) for each in colour.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """axe-core, which finds accessibility problems."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("accessibility is not checked: there is no npm")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", AXE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"accessibility is not checked: npm could not fetch {AXE}")
    return (folder / "node_modules/axe-core/axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.sample(2)
def test_page_passes_accessibility_checks(
    browser: Browser, page_server: tuple[Running, Story], axe: str, scheme: Any
) -> None:
    running, story = page_server
    places = (
        *VIEWS,
        f"memories/{story.boss}",
        f"sessions/{CHAT}/3",
        "memories?q=boss",
        "memories?category=person&forgotten=1",
        f"memories/{story.dentist}#edit",
    )
    found = []
    with window(browser, running.url, color_scheme=scheme, reduced_motion="reduce") as seen:
        seen.open()
        settled(seen)
        found += _barriers(seen, axe, "the door")
        seen.open("#/memories", running.server_context.token)
        for where in places:
            place, _, then = where.partition("#")
            seen.open(f"#/{place}")
            settled(seen)
            if then:
                seen.page.get_by_role("button", name="Edit").click()
            found += _barriers(seen, axe, where)
        seen.press("Escape", "?")
        found += _barriers(seen, axe, "keys")
    assert found == []


def _barriers(seen: Window, axe: str, where: str) -> list[str]:
    seen.page.evaluate(axe + "; undefined")
    report = seen.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{where}: {each['id']} ({each['impact']}): {json.dumps(node['html'])[:200]}"
        for each in report["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


@pytest.mark.prove
def test_ten_thousand_memories_are_loaded_in_pages(browser: Browser, running: Running) -> None:
    from playwright.sync_api import expect

    space = running.store.space("main")
    lines = [
        {"content": f"Fact {at}: the parcel {at % 97} lies on shelf {at}", "category": f"c{at % 7}"}
        for at in range(10_000)
    ]
    space.import_records(lines)
    assert space.count() == 10_000
    with window(browser, running.url) as seen:
        seen.open("#/memories?space=main", running.server_context.token)
        seen.page.get_by_text("50 of 10,000 memories").wait_for()
        assert seen.rows().count() == 50
        seen.page.get_by_role("button", name="More").click()
        seen.page.get_by_text("100 of 10,000 memories").wait_for()
        seen.press("/")
        seen.page.keyboard.type("shelf 4711")
        seen.page.locator(".score-bar").first.wait_for()
        expect(seen.rows().first).to_contain_text("shelf 4711", timeout=PATIENCE_MS)
        assert seen.rows().count() <= 50


# -- the files ------------------------------------------------------------------------------------


def test_static_files_have_content_types_and_are_cached_until_changed(running: Running) -> None:
    with running.client("") as client:
        page = client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.head("/").status_code == 200
        types = {
            ".css": "text/css; charset=utf-8",
            ".js": "text/javascript; charset=utf-8",
            ".svg": "image/svg+xml",
        }
        parts = re.findall(r'"(/page/[^"]+)"', page.text)
        assert len(parts) == 5
        for part in parts:
            found = client.get(part)
            assert found.headers["content-type"] == types[part[part.rindex(".") :]]
            assert "immutable" in found.headers["cache-control"]
        version = parts[0].split("/")[2]
        for name in ("none.js", "../pages.py", "%2e%2e/pages.py", "/etc/passwd", "main.js/"):
            assert client.get(f"/page/{version}/{name}").status_code in {401, 404}, name
        assert client.get("/page/of-another-version/main.js").status_code == 404
        icon = client.get("/favicon.ico")
        assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")


def test_reopened_page_loads_at_most_two_files(browser: Browser, running: Running) -> None:
    with window(browser, running.url) as seen:
        seen.open("", running.server_context.token)
        settled(seen)
        first = len(seen.fetched)
        for _ in range(10):
            seen.page.reload()
            settled(seen)
        assert len(seen.fetched) <= first + 10 * 2


def test_page_scripts_never_parse_html() -> None:
    readers = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc")
    for path in sorted(pages.PAGE_DIR.iterdir()):
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= 300, path.name
        assert not [word for word in readers if word in text], path.name
        # The name of SVG's own language is the only address there is.
        assert re.findall(r"https?://[^ \"]+", text) in ([], ["http://www.w3.org/2000/svg"])
    markup = (pages.PAGE_DIR / pages.INDEX).read_text("utf-8")
    assert not re.search(r"\s(style|on\w+)=", markup) and not re.search(r"<script>", markup)
