"""The summary in a prompt: whole where it fits, else its lines cut, then its oldest left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reverie.embed.tokens import count_tokens
from reverie.prompt.escape import escape_lines
from reverie.prompt.session_summary import ELLIPSIS, SUMMARY_HEADING, render_summary

LINES = [f"- [{number}] user: " + "meet me at the station " * 7 for number in range(1, 25)]
TEXT = "\n".join(["Recent condensed turns:", *LINES])


def body(shown: str) -> list[str]:
    assert shown.startswith(SUMMARY_HEADING) and shown.endswith("\n")
    return shown.removeprefix(SUMMARY_HEADING).splitlines()


def test_summary_that_fits_is_shown_whole() -> None:
    assert render_summary(TEXT, 10_000, count_tokens) == f"{SUMMARY_HEADING}{TEXT}\n"
    assert render_summary("", 10_000, count_tokens) == ""


def test_summary_that_is_too_long_keeps_the_beginning_of_every_line() -> None:
    shown = body(render_summary(TEXT, count_tokens(TEXT) // 2, count_tokens))
    assert len(shown) == 25 and shown[0] == "Recent condensed turns:"
    for line, whole in zip(shown[1:], LINES, strict=True):
        assert line.endswith(ELLIPSIS) and whole.startswith(line.removesuffix(ELLIPSIS))


def test_summary_without_room_for_every_line_keeps_the_newest() -> None:
    shown = body(render_summary(TEXT, 120, count_tokens))
    assert shown[0] == ELLIPSIS and 2 < len(shown) < 10
    assert [line[:6] for line in shown[1:]] == [line[:6] for line in LINES[-len(shown) + 1 :]]


def test_summary_in_one_paragraph_keeps_its_beginning() -> None:
    (line,) = body(render_summary("They spoke of the station. " * 500, 300, count_tokens))
    assert line.startswith("They spoke of the station. They") and line.endswith(ELLIPSIS)


def test_summary_without_room_for_a_line_shows_the_beginning_of_the_last() -> None:
    (line,) = body(render_summary(TEXT, 20, count_tokens))
    assert line.startswith("- [24]") and line.endswith(ELLIPSIS)
    assert render_summary(TEXT, count_tokens(SUMMARY_HEADING), count_tokens) == ""


@given(st.text(max_size=3000), st.integers(0, 400))
def test_summary_never_exceeds_its_tokens(text: str, tokens: int) -> None:
    shown = render_summary(text, tokens, count_tokens)
    assert count_tokens(shown) <= tokens or shown == ""
    if escape_lines(text).strip("\n") and tokens >= 40:
        assert shown.startswith(SUMMARY_HEADING)
