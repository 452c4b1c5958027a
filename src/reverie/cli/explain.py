"""How the score of a hit came about, drawn: a bar of all that spoke for it, and the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from reverie.cli.output import brief, console, count, say, short_when, unicode_out
from reverie.model import Hit
from reverie.recall import query_hints
from reverie.text.messages import speaker_of

if TYPE_CHECKING:
    from reverie.recall.query_hints import Period, Question


class Stage(NamedTuple):
    """A part of a score that is added to the others, and how it looks with and without Unicode."""

    name: str
    part: str
    block: str
    sign: str
    style: str

    @property
    def mark(self) -> str:
        return self.block if unicode_out() else self.sign


STAGES = (
    Stage("keyword", "keyword_part", "█", "#", "cyan"),
    Stage("vector", "vector_part", "▓", "=", "magenta"),
    Stage("neighbours", "neighbours", "▒", "+", "yellow"),
    Stage("speaker", "speaker", "▄", "@", "green"),
    Stage("period", "period", "▀", "%", "blue"),
    Stage("session", "session", "░", "-", ""),
    Stage("origin", "origin", "▐", "*", "red"),
)
# What comes after the sum, one by one, each with a number of its own.
AFTERWARDS = ("rerank", "spread", "recency")
IN_THE_END = Stage("score", "", "━", ">", "bold")
WIDE = 18
GAP = 2
FULL = 1.0
LONGEST_ID = 24
# A score of less has its first digits further behind.
LITTLE = 0.1
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def print_explained(hits: Sequence[Hit], query: str) -> None:
    """Every hit with its bar below it, then what the signs stand for. There is a hit at least."""
    drawing = _Drawing(hits)
    shown = console()
    for hit in hits:
        for line in drawing.lines(hit, shown.width):
            shown.print(line, no_wrap=True, overflow="ellipsis")
    shown.print()
    for line in drawing.legend(shown.width):
        shown.print(line, no_wrap=True, overflow="ellipsis")
    _print_reading(hits, query)
    _print_missing(hits[0].parts.get("degraded"))


class _Drawing:
    """All hits to one scale, with those stages that gave something to any of them."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        self._full = max(
            sum(max(_number(hit, stage.part), 0.0) for stage in STAGES) for hit in hits
        )
        largest = max(self._full, *(abs(hit.score) for hit in hits))
        self._places = 3 if largest >= LITTLE else 5
        self._stages = [stage for stage in STAGES if any(self._says(hit, stage) for hit in hits)]
        self._afterwards = [name for name in AFTERWARDS if any(name in hit.parts for hit in hits)]
        self._id_width = min(max(cell_len(brief(hit.id)) for hit in hits), LONGEST_ID)
        self._score_width = max(len(self._score(hit)) for hit in hits)
        parts = [*(stage.part for stage in self._stages), *self._afterwards]
        self._width = max(
            (len(self._short(hit, part)) for hit in hits for part in parts), default=0
        )

    def lines(self, hit: Hit, width: int) -> Iterator[Text]:
        id, text = brief(hit.id), brief(hit.text)
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
        yield from self._row(self._stack(hit), cells, width)
        if self._afterwards:
            named = [Text(f"{name} {self._padded(hit, name)}") for name in self._afterwards]
            yield from self._row(_bar([(hit.score, IN_THE_END)], FULL), named, width)

    def legend(self, width: int) -> Iterator[Text]:
        cells = [_signed(stage, stage.name) for stage in self._stages]
        if cells:
            full = Text(f"(full: {self._full:.{self._places}f})", style="dim")
            yield from _filled([*cells, full], width)
        if self._afterwards:
            full = Text(f"(full: {FULL:g})", style="dim")
            yield from _filled([_signed(IN_THE_END, "score after that"), full], width)

    def _row(self, bar: Text, cells: Sequence[Text], width: int) -> Iterator[Text]:
        """A bar, and to the right of it as many cells as there is room for; the rest below."""
        before = self._score_width + 1 + WIDE + GAP
        for at, line in enumerate(_filled(cells, width - before)):
            left = bar if at == 0 else Text(" " * WIDE)
            row = Text.assemble(left, " " * GAP, line)
            row.rstrip()
            if row:
                yield self._indented(row)

    def _indented(self, line: Text) -> Text:
        return Text.assemble(" " * (self._score_width + 1), line)

    def _stack(self, hit: Hit) -> Text:
        return _bar([(_number(hit, stage.part), stage) for stage in self._stages], self._full)

    def _cell(self, hit: Hit, stage: Stage) -> Text:
        if self._says(hit, stage):
            return _signed(stage, self._padded(hit, stage.part))
        return Text(" " * (2 + self._width))

    def _says(self, hit: Hit, stage: Stage) -> bool:
        return round(_number(hit, stage.part), self._places) != 0

    def _score(self, hit: Hit) -> str:
        return f"{hit.score:.{self._places}f}"

    def _padded(self, hit: Hit, part: str) -> str:
        return self._short(hit, part).rjust(self._width)

    def _short(self, hit: Hit, part: str) -> str:
        """A number without the zero in front of it."""
        text = f"{_number(hit, part):.{self._places}f}"
        return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def _signed(stage: Stage, text: str) -> Text:
    return Text.assemble((stage.mark, stage.style), f" {text}")


def _number(hit: Hit, part: str) -> float:
    value = hit.parts.get(part)
    return float(value) if isinstance(value, float | int) else 0.0


def _about(hit: Hit) -> str:
    """Who said it and when, and how many others say the same."""
    told = []
    if hit.event is not None:
        told += [brief(hit.event.role), short_when(hit.event.at)]
    if others := round(_number(hit, "collapsed")):
        told.append(count(others, "more says the same", "more say the same"))
    return ", ".join(told)


def _bar(parts: Iterable[tuple[float, Stage]], full: float) -> Text:
    """Segments one behind the other: together as long as their sum, to the nearest cell."""
    made, reached, drawn = Text(), 0.0, 0
    for value, stage in parts:
        reached += max(value, 0.0)
        end = round(min(reached / full, 1.0) * WIDE) if full else 0
        made.append(stage.mark * (end - drawn), stage.style)
        drawn = end
    made.append(" " * (WIDE - drawn))
    return made


def _filled(cells: Sequence[Text], width: int) -> Iterator[Text]:
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


def _print_reading(hits: Sequence[Hit], query: str) -> None:
    question = query_hints.read(query)
    read = []
    if speakers := list(dict.fromkeys(filter(None, (_named(hit, question) for hit in hits)))):
        read.append(f"speaker {', '.join(speakers)}")
    if question.period is not None and any(_number(hit, "period") for hit in hits):
        read.append(f"date {_date(question.period)}")
    if read:
        say(f"Read from the query: {', '.join(read)}")


def _named(hit: Hit, question: Question) -> str:
    """As whom the query names the speaker of a hit; empty when it does not."""
    if hit.event is None or not _number(hit, "speaker"):
        return ""
    role = hit.event.role
    if (role == "user" and question.of_user) or (role == "assistant" and question.of_assistant):
        return role
    return brief(speaker_of(hit.event.message))


def _date(period: Period) -> str:
    month = None if period.month is None else MONTHS[period.month - 1]
    return " ".join(str(part) for part in (period.day, month, period.year) if part is not None)


def _print_missing(degraded: object) -> None:
    """What took no part, and why."""
    from reverie.recall.recall import NO_RERANKER

    if not isinstance(degraded, str):
        return
    vectors = degraded.removesuffix(NO_RERANKER).removesuffix("; ")
    if vectors:
        say(f"Vectors took no part: {vectors}")
    if degraded.endswith(NO_RERANKER):
        say(f"The reranker took no part: {NO_RERANKER}")
