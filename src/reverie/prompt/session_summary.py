"""The rolling summary of a session in a prompt, cut to the room it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reverie.prompt.escape import escape_lines

SUMMARY_HEADING = "Rolling session summary:\n"
# The lengths, in characters, that the lines of a summary are cut to, in turn. Fixed steps, so that
# the same text is shown from turn to turn although its room differs a little.
LINE_LENGTHS = (8_000, 4_000, 2_000, 1_000, 500, 250, 180, 120, 80, 50)
# The lengths of the last line alone, where there is room for no more.
LAST_LINE_LENGTHS = (50, 25, 12, 6, 3)
ELLIPSIS = "..."


def render_summary(
    text: str, tokens: int, count: Callable[[str], int], heading: str = SUMMARY_HEADING
) -> str:
    """Render a summary under a heading, escaped so that no line looks like another heading.

    A summary that takes more than ``tokens`` is condensed: all lines are cut to the same length,
    and if short lines do not fit either, the oldest ones are left out. Returns an empty text only
    where there is no summary, or no room for the heading and a few words.
    """
    lines = escape_lines(text).splitlines()
    longest = max(map(len, lines), default=0)
    if not longest:
        return ""
    for limit in (longest, *(each for each in LINE_LENGTHS if each < longest)):
        shown = _join(heading, [_cut(line, limit) for line in lines])
        if count(shown) <= tokens:
            return shown
    return _render_newest(lines, tokens, count, heading)


def _render_newest(
    lines: Sequence[str], tokens: int, count: Callable[[str], int], heading: str
) -> str:
    """Render as many of the newest lines as fit when cut, or the beginning of the last one."""
    short = [_cut(line, LINE_LENGTHS[-1]) for line in lines]
    left = tokens - count(f"{heading}{ELLIPSIS}\n")
    first = len(lines)
    while first > 0 and (left := left - count(f"{short[first - 1]}\n")) >= 0:
        first -= 1
    for start in range(first, len(lines)):
        shown = _join(heading, [ELLIPSIS, *short[start:]])
        if count(shown) <= tokens:
            return shown
    for limit in LAST_LINE_LENGTHS:
        shown = _join(heading, [_cut(lines[-1], limit)])
        if count(shown) <= tokens:
            return shown
    return ""


def _join(heading: str, lines: Sequence[str]) -> str:
    return heading + "\n".join(lines) + "\n"


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[:limit] + ELLIPSIS
