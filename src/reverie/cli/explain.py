"""Draws how the score of each hit is made up: a bar of its parts, and the numbers."""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from reverie.cli.output import (
    console,
    format_minute,
    pluralize,
    print_line,
    supports_unicode,
    to_line,
    with_subject,
)
from reverie.model import NO_RERANKER, Hit
from reverie.recall import query_hints
from reverie.recall.query_hints import Period, QueryHints
from reverie.text.messages import speaker_of


class ScoreStage(NamedTuple):
    """One part of the sum that makes a score, and how it is drawn with and without Unicode."""

    name: str
    part: str
    block: str
    sign: str
    style: str

    @property
    def mark(self) -> str:
        return self.block if supports_unicode() else self.sign


STAGES = (
    ScoreStage("keyword", "keyword_part", "█", "#", "cyan"),
    ScoreStage("vector", "vector_part", "▓", "=", "magenta"),
    ScoreStage("neighbours", "neighbours", "▒", "+", "yellow"),
    ScoreStage("speaker", "speaker", "▄", "@", "green"),
    ScoreStage("period", "period", "▀", "%", "blue"),
    ScoreStage("session", "session", "░", "-", ""),
    ScoreStage("origin", "origin", "▐", "*", "red"),
)
# The stages that change the score after the sum, in their order.
POST_SUM_STAGES = ("evidence", "rerank", "spread", "recency")
FINAL_SCORE = ScoreStage("score", "", "━", ">", "bold")
BAR_WIDTH = 18
GAP = 2
FULL_SCORE = 1.0
MAX_ID_WIDTH = 24
# Smaller scores are printed with more decimals.
SMALL_SCORE = 0.1


def print_explained(hits: Sequence[Hit], query: str) -> None:
    """Print each hit with its bar, then a legend. ``hits`` must not be empty."""
    chart = _ScoreChart(hits)
    shown = console()
    for hit in hits:
        for line in chart.lines(hit, shown.width):
            shown.print(line, no_wrap=True, overflow="ellipsis")
    shown.print()
    for line in chart.legend(shown.width):
        shown.print(line, no_wrap=True, overflow="ellipsis")
    _print_query_hints(hits, query)
    _print_degraded(hits[0].parts.get("degraded"))


class _ScoreChart:
    """Draws all hits to one scale, with the stages that add something to at least one of them."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self._full_scale = max(
            sum(max(_number(hit, stage.part), 0.0) for stage in STAGES) for hit in hits
        )
        largest = max(self._full_scale, *(abs(hit.score) for hit in hits))
        self._decimals = 3 if largest >= SMALL_SCORE else 5
        self._stages = [
            stage for stage in STAGES if any(self._is_nonzero(hit, stage) for hit in hits)
        ]
        self._post_stages = [
            name for name in POST_SUM_STAGES if any(name in hit.parts for hit in hits)
        ]
        self._id_width = min(max(cell_len(to_line(hit.id)) for hit in hits), MAX_ID_WIDTH)
        self._score_width = max(len(self._score(hit)) for hit in hits)
        parts = [*(stage.part for stage in self._stages), *self._post_stages]
        self._width = max(
            (len(self._short(hit, part)) for hit in hits for part in parts), default=0
        )

    def lines(self, hit: Hit, width: int) -> Iterator[Text]:
        id = to_line(hit.id)
        text = with_subject(hit.memory.subject if hit.memory else None, hit.text)
        score = Text(self._score(hit).rjust(self._score_width), style="bold")
        left = self._id_width - cell_len(id)
        if left >= 0:
            yield Text.assemble(score, f" {id}{' ' * left} {text}")
        else:
            yield Text.assemble(score, f" {id}")
            yield self._indented(Text(text))
        if about := _about(hit):
            yield self._indented(Text(about, style="dim"))
        cells = [self._cell(hit, stage) for stage in self._stages]
        yield from self._row(self._stacked_bar(hit), cells, width)
        if self._post_stages:
            named = [Text(f"{name} {self._padded(hit, name)}") for name in self._post_stages]
            yield from self._row(_bar([(hit.score, FINAL_SCORE)], FULL_SCORE), named, width)

    def legend(self, width: int) -> Iterator[Text]:
        cells = [_labelled(stage, stage.name) for stage in self._stages]
        if cells:
            full = Text(f"(full: {self._full_scale:.{self._decimals}f})", style="dim")
            yield from _wrap_cells([*cells, full], width)
        if self._post_stages:
            full = Text(f"(full: {FULL_SCORE:g})", style="dim")
            yield from _wrap_cells([_labelled(FINAL_SCORE, "score after that"), full], width)

    def _row(self, bar: Text, cells: Sequence[Text], width: int) -> Iterator[Text]:
        """Lay out a bar with as many cells to its right as fit; the others go below."""
        before = self._score_width + 1 + BAR_WIDTH + GAP
        for at, line in enumerate(_wrap_cells(cells, width - before)):
            left = bar if at == 0 else Text(" " * BAR_WIDTH)
            row = Text.assemble(left, " " * GAP, line)
            row.rstrip()
            if row:
                yield self._indented(row)

    def _indented(self, line: Text) -> Text:
        return Text.assemble(" " * (self._score_width + 1), line)

    def _stacked_bar(self, hit: Hit) -> Text:
        return _bar([(_number(hit, stage.part), stage) for stage in self._stages], self._full_scale)

    def _cell(self, hit: Hit, stage: ScoreStage) -> Text:
        if self._is_nonzero(hit, stage):
            return _labelled(stage, self._padded(hit, stage.part))
        return Text(" " * (2 + self._width))

    def _is_nonzero(self, hit: Hit, stage: ScoreStage) -> bool:
        return round(_number(hit, stage.part), self._decimals) != 0

    def _score(self, hit: Hit) -> str:
        return f"{hit.score:.{self._decimals}f}"

    def _padded(self, hit: Hit, part: str) -> str:
        return self._short(hit, part).rjust(self._width)

    def _short(self, hit: Hit, part: str) -> str:
        """Return a number without its leading zero."""
        text = f"{_number(hit, part):.{self._decimals}f}"
        return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _labelled(stage: ScoreStage, text: str) -> Text:
    return Text.assemble((stage.mark, stage.style), f" {text}")


def _number(hit: Hit, part: str) -> float:
    value = hit.parts.get(part)
    return float(value) if isinstance(value, float | int) else 0.0


def _about(hit: Hit) -> str:
    """Return who said it and when, and how many near-duplicates it stands for."""
    notes = []
    if hit.event is not None:
        notes += [to_line(hit.event.role), format_minute(hit.event.at)]
    if hit.duplicates:
        notes.append(pluralize(len(hit.duplicates), "more says the same", "more say the same"))
    return ", ".join(notes)


def _bar(parts: Iterable[tuple[float, ScoreStage]], full: float) -> Text:
    """Draw the segments one after another; rounding never makes the bar longer than the sum."""
    bar, total, drawn = Text(), 0.0, 0
    for value, stage in parts:
        total += max(value, 0.0)
        end = round(min(total / full, 1.0) * BAR_WIDTH) if full else 0
        bar.append(stage.mark * (end - drawn), stage.style)
        drawn = end
    bar.append(" " * (BAR_WIDTH - drawn))
    return bar


def _wrap_cells(cells: Sequence[Text], width: int) -> Iterator[Text]:
    """Put as many cells on each line as fit, at least one."""
    line = Text()
    for cell in cells:
        if len(line) and line.cell_len + GAP + cell.cell_len > width:
            yield line
            line = Text()
        if len(line):
            line.append(" " * GAP)
        line.append_text(cell)
    if len(line):
        yield line


# -- what the query asks for ----------------------------------------------------------------------


def _print_query_hints(hits: Sequence[Hit], query: str) -> None:
    hints = query_hints.parse_query(query)
    found = []
    if speakers := list(
        dict.fromkeys(filter(None, (_matched_speaker(hit, hints) for hit in hits)))
    ):
        found.append(f"speaker {', '.join(speakers)}")
    if hints.period is not None and any(_number(hit, "period") for hit in hits):
        found.append(f"date {_date(hints.period)}")
    if found:
        print_line(f"Read from the query: {', '.join(found)}")


def _matched_speaker(hit: Hit, hints: QueryHints) -> str:
    """Return how the query names the speaker of a hit; empty when it does not."""
    if hit.event is None or not _number(hit, "speaker"):
        return ""
    role = hit.event.role
    if (role == "user" and hints.about_user) or (role == "assistant" and hints.about_assistant):
        return role
    return to_line(speaker_of(hit.event.message))


def _date(period: Period) -> str:
    month = None if period.month is None else calendar.month_name[period.month]
    return " ".join(str(part) for part in (period.day, month, period.year) if part is not None)


def _print_degraded(degraded: object) -> None:
    """Print which stages were left out, and why."""
    if not isinstance(degraded, str):
        return
    vectors = degraded.removesuffix(NO_RERANKER).removesuffix("; ")
    if vectors:
        print_line(f"Vectors took no part: {vectors}")
    if degraded.endswith(NO_RERANKER):
        print_line(f"The reranker took no part: {NO_RERANKER}")
