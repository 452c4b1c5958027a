"""A short live tour on a temporary store: every printed call is really made."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from reverie.cli.options import CommonOptions, examples, json_option
from reverie.cli.output import bar, console, pluralize, print_json, to_line
from reverie.config import Settings
from reverie.memory import Store
from reverie.memory import open as open_store
from reverie.model import Context, Event, Hit, Memory, VerifyReport, Version
from reverie.serialize import format_time

FACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Alec is my boss at TechCorp", {"category": "person", "subject": "Alec", "tags": ["work"]}),
    ("I am allergic to peanuts", {"category": "health", "pinned": True}),
    ("We chose PostgreSQL over MySQL for the billing service", {"category": "decision"}),
    ("Mia, my daughter, turns seven on 3 March", {"category": "person", "subject": "Mia"}),
    ("The deploy runs every Friday at 17:00 from the main branch", {"category": "procedure"}),
    ("I prefer short answers with code first", {"category": "preference"}),
)
PARAPHRASE = "which SQL server holds our invoices?"
# Long enough that the times before and after it differ by a few milliseconds.
PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class TourStep:
    """One call and its result."""

    title: str
    call: str
    result: Any


@click.command("tour", epilog=examples("reverie tour", "reverie tour --json"))
@json_option
def tour_command(options: CommonOptions) -> None:
    """Show what Reverie does, on a temporary store.

    It runs in a temporary folder, needs no API key and no network, and leaves nothing behind.
    """
    with tempfile.TemporaryDirectory(prefix="reverie-tour-") as folder:
        path = Path(folder) / "tour.db"
        with open_store(path, settings=Settings(embedder="local")) as store:
            if options.as_json:
                print_json({"steps": list(_steps(store))})
                return
            _print_title()
            for step in _steps(store):
                _print_step(step)
    _print_end()


# -- the steps ------------------------------------------------------------------------------------


class _StepRunner:
    """Makes the calls of the tour, and writes each down as code."""

    def __init__(self, store: Store) -> None:
        ana = store.space("ana", actor="cli")
        self.handles = {
            "store": store,
            "ana": ana,
            "chat": ana.session("monday"),
            "later": ana.session("friday"),
        }

    def step(
        self,
        title: str,
        verb: str,
        *values: Any,
        on: str = "ana",
        transform: Callable[[Any], Any] | None = None,
        **named: Any,
    ) -> TourStep:
        result = getattr(self.handles[on], verb)(*values, **named)
        written = [repr(value) for value in values]
        written += [f"{name}={value!r}" for name, value in named.items()]
        call = f"{on}.{verb}({', '.join(written)})"
        if transform is not None:
            result, call = transform(result), f"{transform.__name__}({call})"
        return TourStep(title, call, result)


def _steps(store: Store) -> Iterator[TourStep]:
    step = _StepRunner(store).step
    titles = ("Remember a few things: each is on disk when the call returns", *[""] * len(FACTS))
    remembered = []
    for title, (content, named) in zip(titles, FACTS, strict=False):
        remembered.append(step(title, "remember", content, **named))
        yield remembered[-1]
    boss = remembered[0].result.id
    title = "Recall by meaning: not one word of the question is in the answer"
    yield step(title, "recall", PARAPHRASE, limit=3, explain=True)
    time.sleep(PAUSE_SECONDS)
    before = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(PAUSE_SECONDS)
    title = "Revise: a new version under the same id"
    yield step(title, "revise", boss, "Seabrook is my boss now", subject="Seabrook", reason="news")
    history = step("History: no version is ever lost", "history", boss)
    yield history
    yield step("Recall what is so now …", "recall", "who is my boss?", limit=1)
    title = "… what was so at a position of the log …"
    position = len(FACTS)
    yield step(title, "recall", "who is my boss?", limit=1, as_of=position)
    yield step("… and at a time", "recall", "who is my boss?", limit=1, as_of=before)
    yield step("Forget: out of every recall, with a reason", "forget", boss, reason="a secret")
    title = "The boss is not found any more"
    yield step(title, "recall", "Seabrook boss", mode="keyword")
    yield step("Restore: forgetting can be undone", "restore", boss)
    yield step("", "recall", "Seabrook boss", mode="keyword")
    yield from _conversation(store)
    title = "Export: every version, one JSON line each"
    yield step(title, "export", transform=_count_records)
    yield step("Verify: the index says what the log says", "verify", on="store")


def _conversation(store: Store) -> Iterator[TourStep]:
    step = _StepRunner(store).step
    title = "A conversation is kept word for word …"
    question = {"role": "user", "content": "By the way, I moved to Lisbon. Any good bakery there?"}
    yield step(title, "append", question, on="chat")
    reply = {"role": "assistant", "content": "Try the one at Largo do Carmo."}
    yield step("", "append", reply, on="chat")
    yield step(
        "… and learned from, here by rules, with a model if there is one",
        "run_pending_jobs",
        on="store",
    )
    title = "A later conversation knows it"
    again = {"role": "user", "content": "Where do I live, and which bakery was it?"}
    yield step(title, "append", again, on="later")
    yield step("All a model needs for its answer", "context", tokens=1000, on="later")


def _count_records(records: Iterator[dict[str, Any]]) -> int:
    return sum(1 for _ in records)


_count_records.__name__ = "count"


# -- printing -------------------------------------------------------------------------------------


def _print_title() -> None:
    shown = console()
    shown.print("A tour of Reverie", style="bold")
    shown.print("No key, no network, no model: a throw-away store in a temporary folder.")
    shown.print()
    shown.print(">>> store = reverie.open('tour.db')", style="cyan")
    shown.print(">>> ana = store.space('ana')", style="cyan")
    shown.print(">>> chat, later = ana.session('monday'), ana.session('friday')", style="cyan")


def _print_step(step: TourStep) -> None:
    from rich.text import Text

    shown = console()
    if step.title:
        shown.print()
        shown.print(f"# {step.title}", style="bold")
    shown.print(Text(f">>> {step.call}", style="cyan"))
    for line in _result_lines(step.result):
        shown.print(Text(f"    {line}"), no_wrap=True, overflow="ellipsis")


def _print_end() -> None:
    shown = console()
    shown.print()
    shown.print("The store is gone again. Now your own:", style="bold")
    shown.print('  reverie remember "…"      reverie recall "…"      reverie --help')


def _result_lines(result: Any) -> list[str]:
    match result:
        case Memory():
            return [_memory_line(result)]
        case []:
            return ["nothing found"]
        case [Hit(), *_]:
            return [_hit(hit) for hit in result]
        case [Version(), *_]:
            return [_version(version) for version in result]
        case Event():
            return [f"{result.session}:{result.sequence} {result.role}: {to_line(result.text)}"]
        case Context():
            return [*result.system.splitlines(), *(str(message) for message in result.history)]
        case VerifyReport():
            looked_at = pluralize(result.memories, "memory", "memories")
            problems = pluralize(len(result.problems), "problem")
            events = pluralize(result.events, "event")
            return [f"{looked_at}, {pluralize(result.versions, 'version')}, {events}, {problems}"]
        case _:
            return [str(result)]


def _memory_line(memory: Memory) -> str:
    gone = ", forgotten" if memory.forgotten_at is not None else ""
    return f"{memory.id} (version {memory.version}{gone}) {memory.category}: {memory.content}"


def _hit(hit: Hit) -> str:
    return f"{hit.score:.2f} {bar(hit.score)} {hit.id}  {to_line(hit.text)}"


def _version(version: Version) -> str:
    reason = f" [{version.reason}]" if version.reason else ""
    return (
        f"version {version.version}, position {version.position}, "
        f"{format_time(version.recorded_at)}, "
        f"{version.op}: {to_line(version.content)}{reason}"
    )
