"""How the score of a hit came about, drawn: a bar of all that spoke for it, and the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from reverie.cli.output import (
    console,
    format_minute,
    pluralize,
    print_line,
    supports_unicode,
    to_line,
)
from reverie.model import Hit
from reverie.recall import query_hints
from reverie.text.messages import speaker_of

if TYPE_CHECKING:
    from reverie.recall.query_hints import Period, QueryHints


class ScoreStage(NamedTuple):
    """A part of a score that is added to the others, and how it looks with and without Unicode."""

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
# What comes after the sum, one by one, each with a number of its own.
POST_SUM_STAGES = ("rerank", "spread", "recency")
FINAL_SCORE = ScoreStage("score", "", "━", ">", "bold")
BAR_WIDTH = 18
GAP = 2
FULL_SCORE = 1.0
MAX_ID_WIDTH = 24
# A score of less has its first digits further behind.
SMALL_SCORE = 0.1
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def print_explained(hits: Sequence[Hit], query: str) -> None:
    """Every hit with its bar below it, then what the signs stand for. There is a hit at least."""
    drawing = _ScoreChart(hits)
    shown = console()
    for hit in hits:
        for line in drawing.lines(hit, shown.width):
            shown.print(line, no_wrap=True, overflow="ellipsis")
    shown.print()
    for line in drawing.legend(shown.width):
        shown.print(line, no_wrap=True, overflow="ellipsis")
    _print_query_hints(hits, query)
    _print_degraded(hits[0].parts.get("degraded"))


class _ScoreChart:
    """All hits to one scale, with those stages that gave something to any of them."""

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
        id, text = to_line(hit.id), to_line(hit.text)
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
        """A bar, and to the right of it as many cells as there is room for; the rest below."""
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
        """A number without the zero in front of it."""
        text = f"{_number(hit, part):.{self._decimals}f}"
        return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _labelled(stage: ScoreStage, text: str) -> Text:
    return Text.assemble((stage.mark, stage.style), f" {text}")


def _number(hit: Hit, part: str) -> float:
    value = hit.parts.get(part)
    return float(value) if isinstance(value, float | int) else 0.0


def _about(hit: Hit) -> str:
    """Who said it and when, and how many others say the same."""
    told = []
    if hit.event is not None:
        told += [to_line(hit.event.role), format_minute(hit.event.at)]
    if others := round(_number(hit, "collapsed")):
        told.append(pluralize(others, "more says the same", "more say the same"))
    return ", ".join(told)


def _bar(parts: Iterable[tuple[float, ScoreStage]], full: float) -> Text:
    """Segments one behind the other: together as long as their sum, to the nearest cell."""
    made, reached, drawn = Text(), 0.0, 0
    for value, stage in parts:
        reached += max(value, 0.0)
        end = round(min(reached / full, 1.0) * BAR_WIDTH) if full else 0
        made.append(stage.mark * (end - drawn), stage.style)
        drawn = end
    made.append(" " * (BAR_WIDTH - drawn))
    return made


def _wrap_cells(cells: Sequence[Text], width: int) -> Iterator[Text]:
    """Lines of as many cells as fit, at least one."""
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


# -- what the query was read as -------------------------------------------------------------------


def _print_query_hints(hits: Sequence[Hit], query: str) -> None:
    question = query_hints.parse_query(query)
    read = []
    if speakers := list(
        dict.fromkeys(filter(None, (_matched_speaker(hit, question) for hit in hits)))
    ):
        read.append(f"speaker {', '.join(speakers)}")
    if question.period is not None and any(_number(hit, "period") for hit in hits):
        read.append(f"date {_date(question.period)}")
    if read:
        print_line(f"Read from the query: {', '.join(read)}")


def _matched_speaker(hit: Hit, question: QueryHints) -> str:
    """As whom the query names the speaker of a hit; empty when it does not."""
    if hit.event is None or not _number(hit, "speaker"):
        return ""
    role = hit.event.role
    if (role == "user" and question.about_user) or (
        role == "assistant" and question.about_assistant
    ):
        return role
    return to_line(speaker_of(hit.event.message))


def _date(period: Period) -> str:
    month = None if period.month is None else MONTHS[period.month - 1]
    return " ".join(str(part) for part in (period.day, month, period.year) if part is not None)


def _print_degraded(degraded: object) -> None:
    """What took no part, and why."""
    from reverie.recall.recall import NO_RERANKER

    if not isinstance(degraded, str):
        return
    vectors = degraded.removesuffix(NO_RERANKER).removesuffix("; ")
    if vectors:
        print_line(f"Vectors took no part: {vectors}")
    if degraded.endswith(NO_RERANKER):
        print_line(f"The reranker took no part: {NO_RERANKER}")
