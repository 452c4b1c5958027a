"""Prints answers: one JSON document for programs, tables and lines for people."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from reverie.model import Memory, Origin, VerifyReport, is_time_field
from reverie.protocols import Progress, UpgradeProgress
from reverie.serialize import to_json_value
from reverie.text.normalize import one_line

if TYPE_CHECKING:
    from rich.console import Console

# Characters that could move the cursor, hide text or reverse it, and lone surrogates, which no
# terminal takes. Line breaks and tabs stay.
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MIN_WIDTH = 60
UNLIMITED_WIDTH = 1_000_000
BAR_WIDTH = 10
INDENT = 4
MAX_SHOWN = 20


# -- for programs ---------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    click.echo(json.dumps(to_json_value(value), ensure_ascii=not supports_unicode(), indent=2))


def supports_unicode() -> bool:
    """Return whether standard output can show any character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


# -- for people -----------------------------------------------------------------------------------


def console(*, err: bool = False) -> Console:
    """Create a console that takes nothing for markup, and is wide enough for an id."""
    from rich.console import Console

    plain = Console(stderr=err, markup=False, highlight=False, emoji=False)
    plain.width = max(plain.width, MIN_WIDTH) if _is_width_limited() else UNLIMITED_WIDTH
    return plain


def _is_width_limited() -> bool:
    """Return whether lines are cut to the terminal; in a pipe or file they are not."""
    return sys.stdout is not None and (sys.stdout.isatty() or "COLUMNS" in os.environ)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    content: str = "content",
    fold: bool = False,
) -> None:
    """Print a table whose column ``content`` takes the remaining width, shortened with …

    With ``fold`` that column is wrapped instead of shortened.
    """
    from rich import box
    from rich.table import Table

    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        expand=content in columns and _is_width_limited(),
    )
    for name in columns:
        if name == content:
            overflow: Literal["fold", "ellipsis"] = "fold" if fold else "ellipsis"
            made.add_column(name, no_wrap=not fold, overflow=overflow, ratio=1)
        elif name in {"id", "memory", "version", "position", "job"}:
            made.add_column(name, no_wrap=True, min_width=8 if name in {"id", "memory"} else None)
        else:
            made.add_column(name, no_wrap=True, overflow="ellipsis", max_width=24)
    for row in rows:
        made.add_row(*map(str, row))
    console().print(made)


def print_pairs(pairs: Mapping[str, Any]) -> None:
    """Print one name and value per line; long values are wrapped beside their name."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, Text(escape_control(str(value))))
    console().print(grid)


def print_heading(line: str) -> None:
    from rich.text import Text

    console().print(Text(escape_control(line), style="bold"), no_wrap=True, overflow="ellipsis")


def print_block(text: str, level: int = 1) -> None:
    """Print text indented, so that none of its lines can pass for a heading."""
    from rich.text import Text

    shown, indent = console(), INDENT * level
    for line in Text(escape_control(text)).wrap(shown, shown.width - indent):
        click.echo((" " * indent + line.plain).rstrip())


def print_line(line: str) -> None:
    click.echo(escape_control(line))


def print_stderr(line: str) -> None:
    """Print what is not part of the answer, such as hints, to standard error."""
    click.echo(escape_control(line), err=True)


def escape_control(text: str) -> str:
    """Escape control characters, so that a text cannot act on the terminal."""
    return _CONTROL_CHARS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def to_line(text: str | None) -> str:
    return "" if text is None else one_line(text)


def to_local(ms: int) -> datetime:
    """Return a time in milliseconds in the zone of this machine."""
    utc = datetime.fromtimestamp(ms / 1000, UTC)
    try:
        return utc.astimezone()
    except (OverflowError, ValueError):  # at the ends of the calendar
        return utc


def format_minute(ms: int) -> str:
    """Format a time in milliseconds to the minute, with its zone."""
    local = to_local(ms)
    return f"{local.isoformat(' ', 'minutes')[:16]} {local.tzname()}"


def with_subject(subject: str | None, content: str | None) -> str:
    """Return a content as one line, after the subject that it is about, in brackets."""
    return f"[{to_line(subject)}] {to_line(content)}" if subject else to_line(content)


def event_id(origin: Origin) -> str:
    """Return the id that recalls give an event: its session and sequence.

    An origin that is a session alone has no sequence.
    """
    session = to_line(origin.session)
    return f"{session}:{origin.sequence}" if origin.sequence else session


def bar(part: float) -> str:
    """Draw a number from 0 to 1 as a row of blocks."""
    full = round(min(max(part, 0.0), 1.0) * BAR_WIDTH)
    block, rest = "█░" if supports_unicode() else "#."
    return block * full + rest * (BAR_WIDTH - full)


def pluralize(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def format_bytes(number: int) -> str:
    """Format a number of bytes with a unit."""
    value = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{number} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def memory_pairs(memory: Memory) -> dict[str, str]:
    """Return the fields of a memory that are set, by name; all but its content."""
    pairs: dict[str, str] = {}
    for field in fields(memory):
        value = getattr(memory, field.name)
        if field.name in {"content", "related"} or value in (None, (), "", {}):
            continue
        if is_time_field(field.name):
            value = to_local(value).isoformat(timespec="seconds")
        elif isinstance(value, tuple):
            value = ", ".join(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, Mapping):
            value = json.dumps(value, ensure_ascii=False)
        pairs[field.name] = str(value)
    return pairs


def memory_line(verb: str, memory: Memory) -> str:
    """Return one line: what was done, the memory's id and version, and its content."""
    content = with_subject(memory.subject, memory.content)
    return f"{verb} {memory.id} (version {memory.version}): {content}"


def truncate_line(line: str) -> str:
    """Cut a line to the width of the terminal."""
    width = max(console().width, MIN_WIDTH)
    return line if len(line) <= width else line[: width - 1] + "…"


def print_report(report: VerifyReport, *, as_json: bool, heading: Mapping[str, Any]) -> None:
    """Print a verification: what was checked, then every problem."""
    if as_json:
        print_json({**heading, "ok": report.ok, **to_json_value(report)})
        return
    checked = {
        field.name: getattr(report, field.name)
        for field in fields(report)
        if field.name != "problems"
    }
    print_pairs({**heading, **checked})
    print_problems(report.problems)


def print_problems(problems: Sequence[str]) -> None:
    if not problems:
        print_line("No problems found.")
        return
    print_line(f"{pluralize(len(problems), 'problem')} found:")
    for problem in problems:
        print_line(f"  - {to_line(problem)}")


def print_first(lines: Sequence[str]) -> None:
    """Print the first lines of a long list, and how many more there are."""
    for line in lines[:MAX_SHOWN]:
        print_line(f"  - {line}")
    if len(lines) > MAX_SHOWN:
        print_line(f"  … and {len(lines) - MAX_SHOWN} more: --json lists them all.")


# -- progress -------------------------------------------------------------------------------------


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """Show a progress bar from the first call on, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with ExitStack() as stack:
        update: Progress | None = None

        def advance(done: int, total: int) -> None:
            nonlocal update
            if update is None:
                update = stack.enter_context(_progress_bar(what))
            update(done, total)

        yield advance


@contextmanager
def _progress_bar(what: str) -> Iterator[Progress]:
    # rich takes time to load, and most commands show no bar.
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console(err=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total or None)


@contextmanager
def upgrade_progress() -> Iterator[UpgradeProgress | None]:
    """Show a bar for each part of an upgrade if standard error is a terminal, else yield None."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as shown:
        bars: dict[str, Progress] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                shown.close()
                bars[what] = shown.enter_context(progress(what))
            bars[what](done, total)

        yield report
