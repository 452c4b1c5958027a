"""The verbs of a space: remember, recall, list, show, history, revise, forget, restore, erase."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from reverie.cli.exit_codes import PROBLEMS_FOUND
from reverie.cli.options import (
    POSITIVE_INT,
    CommonOptions,
    examples,
    read_text_argument,
    scope_options,
)
from reverie.cli.output import (
    escape_control,
    event_id,
    format_minute,
    memory_line,
    memory_pairs,
    pluralize,
    print_json,
    print_line,
    print_memory,
    print_pairs,
    print_stderr,
    print_table,
    table,
    to_line,
    truncate_line,
)
from reverie.cli.vault import (
    REWRITE_OPTION,
    add_purge_report,
    purge_history,
    report_purge,
)
from reverie.dates import parse_as_of
from reverie.errors import InvalidInput
from reverie.model import HIT_KINDS, KINDS, MODES, ORDERS, RANKINGS, Hit, Origin
from reverie.serialize import to_json_value

if TYPE_CHECKING:
    from pathlib import Path

    from reverie.memory import Space

TAG_OPTION = click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A tag; may be repeated."
)
KEY_OPTION = click.option(
    "--key", metavar="KEY", help="Repeating a write with the same key is safe."
)
AS_OF_OPTION = click.option(
    "--as-of",
    type=parse_as_of,
    metavar="POSITION|TIME",
    help="As it was then: a position or a time.",
)
PENDING_NOTE = (
    "Pending: another process still reads old pages; a job finishes it ('reverie worker --once')."
)

ERASE_SOURCE_HINT = "'reverie erase --with-source'"
ERASE_EVENT_HINT = "'reverie sessions erase SESSION --event SEQUENCE'"


@click.command(
    "remember",
    epilog=examples(
        'reverie remember "Alec is my boss at TechCorp" --category person --subject Alec',
        'reverie remember "Dentist at 15:00" --happened-at 2026-12-01 --expires-at 2026-12-02',
        "git log -5 | reverie remember - --note --tag git",
        "reverie remember --file README.md --file docs/guide.md",
    ),
)
@click.argument("content", required=False)
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=str),
    help="Keep a text document as a note; may be repeated.",
)
@click.option("--note", is_flag=True, help="Keep it as a note, which may be long.")
@click.option("--category", metavar="NAME", help="What sort of thing it is. [default: general]")
@click.option("--subject", metavar="NAME", help="Whom or what it is about, once in a category.")
@TAG_OPTION
@click.option("--source", metavar="NAME", help="The program or document it comes from.")
@click.option("--pin", is_flag=True, help="Put it first in the profile; caps never forget it.")
@click.option("--happened-at", metavar="TIME", help="When it happened.")
@click.option("--expires-at", metavar="TIME", help="When it is to be forgotten.")
@KEY_OPTION
@click.option("--force", is_flag=True, help="Keep it although its subject is remembered already.")
@scope_options
def remember_command(
    asked: CommonOptions,
    content: str | None,
    files: tuple[str, ...],
    category: str | None,
    note: bool,
    pin: bool,
    **given: Any,
) -> None:
    """Keep one thing.

    CONTENT is the text, or - for standard input. It is on disk when this returns.
    """
    if files:
        if content is not None or note or pin or any(given.values()):
            raise click.UsageError("only --category goes with --file")
        _remember_files(asked, files, category or "document")
        return
    if content is None:
        raise click.UsageError("give a CONTENT, - for standard input, or --file PATH")
    text = read_text_argument(content)
    with asked.open_space(create=True) as space:
        memory = space.remember(
            text,
            kind="note" if note else "fact",
            category=category or "general",
            pinned=pin,
            **given,
        )
    print_memory("Remembered", memory, as_json=asked.as_json)


def _remember_files(asked: CommonOptions, files: tuple[str | Path, ...], category: str) -> None:
    kept = []
    with asked.open_space(create=True) as space:
        for file in files:
            memory = space.remember_file(file, category=category)
            kept.append(memory)
            if not asked.as_json:
                print_line(f"Remembered {memory.id} (version {memory.version}): {memory.source}")
    if asked.as_json:
        print_json({"memories": kept})


@click.command(
    "recall",
    epilog=examples(
        'reverie recall "who is my boss?"',
        'reverie recall "what did we decide about billing" --limit 10 --explain',
        'reverie recall "deploy" --mode keyword --category decision --since 2026-01-01',
        'reverie recall "who is my boss?" --as-of 2026-03-31',
        'reverie recall "who is my boss?" --as-of 12',
        'reverie recall "ideas for the launch" --ranking diverse --explain',
        'reverie recall "what did I say about the move?" --kind event --session chat',
    ),
)
@click.argument("query")
@click.option(
    "--limit", type=POSITIVE_INT, default=5, show_default=True, help="How many hits at most."
)
@click.option("--mode", type=click.Choice(MODES), default="hybrid", show_default=True)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(HIT_KINDS),
    multiple=True,
    help="Only this kind; repeatable.",
)
@click.option("--category", metavar="NAME", help="Only this category.")
@TAG_OPTION
@click.option("--since", metavar="TIME", help="Only what happened at this time or later.")
@click.option("--until", metavar="TIME", help="Only what happened before this time.")
@AS_OF_OPTION
@click.option("--session", metavar="ID", help="Also what belongs to this session alone.")
@click.option(
    "--ranking",
    type=click.Choice(list(RANKINGS)),
    help="How to rank. [default: as the settings say]",
)
@click.option("--explain", is_flag=True, help="Draw what each hit's score is made of.")
@scope_options
def recall_command(
    asked: CommonOptions, query: str, session: str | None, explain: bool, **given: Any
) -> None:
    """Find what is most worth knowing for a query.

    Among what is remembered, and among what was said: the id of an event is its session and its
    sequence.
    """
    query = read_text_argument(query)
    with asked.open_space() as space:
        scope = space if session is None else space.session(session)
        hits = scope.recall(query, explain=explain, **given)
    if asked.as_json:
        print_json({"query": query, "hits": hits})
    elif not hits:
        print_stderr("Nothing found.")
    elif explain:
        from reverie.cli.explain import print_explained

        print_explained(hits, query)
    else:
        _print_hits(hits)


def _print_hits(hits: list[Hit]) -> None:
    shown = table("score", "id", "category", "content", content="content")
    for hit in hits:
        category = hit.memory.category if hit.memory else ""
        shown.add_row(f"{hit.score:.3f}", to_line(hit.id), category, _hit_text(hit))
    print_table(shown)


def _hit_text(hit: Hit) -> str:
    """The text of a hit; below that of an event, who said it and when."""
    if hit.event is None:
        return to_line(hit.text)
    return f"{to_line(hit.text)}\n{to_line(hit.event.role)}, {format_minute(hit.event.at)}"


@click.command(
    "list",
    epilog=examples(
        "reverie list",
        "reverie list --category person --order category",
        "reverie list --tag work --limit 100 --json",
        "reverie list --as-of 2026-03-31 --forgotten",
    ),
)
@click.option("--category", metavar="NAME", help="Only this category.")
@click.option("--subject", metavar="NAME", help="Only this subject.")
@TAG_OPTION
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option("--forgotten", is_flag=True, help="Include the forgotten ones.")
@AS_OF_OPTION
@click.option("--limit", type=POSITIVE_INT, default=20, show_default=True, help="How many at most.")
@click.option("--order", type=click.Choice(ORDERS), default="newest", show_default=True)
@scope_options
def list_command(asked: CommonOptions, forgotten: bool, limit: int, **given: Any) -> None:
    """List the memories of a space."""
    with asked.open_space() as space:
        # One more than asked for tells whether there are more.
        found = space.memories(include_forgotten=forgotten, limit=limit + 1, **given)
        name, user = space.name, space.user
    memories, more = found[:limit], len(found) > limit
    if asked.as_json:
        print_json({"memories": memories, "more": more})
        return
    if not memories:
        print_stderr(f"No memories found in space {name!r}.")
        return
    more_columns = (*(("user",) if user else ()), *(("state",) if forgotten else ()))
    shown = table("id", "created", "category", *more_columns, "content", content="content")
    for memory in memories:
        middle = [memory.user or "(shared)"] if user else []
        if forgotten:
            middle.append("" if memory.forgotten_at is None else "forgotten")
        mark = "* " if memory.pinned else ""
        line = f"{mark}{to_line(memory.content)}"
        shown.add_row(memory.id, format_minute(memory.created_at), memory.category, *middle, line)
    print_table(shown)
    if more:
        print_stderr(f"There are more than {limit}: --limit shows them.")


@click.command("show", epilog=examples("reverie show Ab3dE6gH", "reverie show Ab3dE6gH --json"))
@click.argument("id")
@scope_options
def show_command(asked: CommonOptions, id: str) -> None:
    """Show one memory whole.

    A forgotten one is shown as well. Its origins are the events it came from; its file is the one
    in the vault, if there is a vault.
    """
    with asked.open_space() as space:
        memory, origins, file = space.get(id), _origins(space, id), _vault_file(space, id)
    if asked.as_json:
        print_json({**to_json_value(memory), "origins": to_json_value(origins), "file": file})
        return
    pairs = memory_pairs(memory)
    content = {"content": pairs.pop("content")}
    pairs |= {"origins": _event_ids(origins)} if origins else {}
    print_pairs(pairs | ({"file": file} if file else {}) | content)


def _vault_file(space: Space, id: str) -> str | None:
    """Where the vault has it. A vault that cannot be read says nothing of the memory."""
    from reverie.errors import VaultError
    from reverie.vault import service

    try:
        path = service.find_memory_file(space, id)
    except VaultError:
        return None
    return None if path is None else str(path)


def _origins(space: Space, id: str) -> list[Origin]:
    """The events that the versions of a memory came from, each once."""
    return list(dict.fromkeys(v.origin for v in space.history(id) if v.origin is not None))


def _event_ids(origins: list[Origin]) -> str:
    return ", ".join(map(event_id, origins))


@click.command(
    "history", epilog=examples("reverie history Ab3dE6gH", "reverie history Ab3dE6gH --json")
)
@click.argument("id")
@scope_options
def history_command(asked: CommonOptions, id: str) -> None:
    """List every version of a memory.

    The oldest is first. Its position goes with --as-of.
    """
    with asked.open_space() as space:
        versions = space.history(id)
    if asked.as_json:
        print_json({"id": id, "versions": versions})
        return
    shown = table("version", "position", "recorded", "op", "by", "content", content="content")
    for version in versions:
        said = "(erased)" if version.content is None else to_line(version.content)
        reason = f"\nbecause: {to_line(version.reason)}" if version.reason else ""
        origin = f"\nfrom: {event_id(version.origin)}" if version.origin else ""
        shown.add_row(
            str(version.version),
            str(version.position),
            format_minute(version.recorded_at),
            version.op,
            version.actor or "",
            said + reason + origin,
        )
    print_table(shown)


@click.command(
    "revise",
    epilog=examples(
        'reverie revise Ab3dE6gH "Seabrook is my boss" --subject Seabrook',
        "reverie revise Ab3dE6gH --tag work --tag people",
        'reverie revise Ab3dE6gH "…" --expected-version 2 --reason "he left"',
        "reverie revise Ab3dE6gH --pin",
    ),
)
@click.argument("id")
@click.argument("content", required=False)
@click.option("--category", metavar="NAME", help="Another category.")
@click.option("--subject", metavar="NAME", help="Another subject.")
@click.option("--no-subject", is_flag=True, help="No subject any more.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="These tags; may be repeated.")
@click.option("--no-tags", is_flag=True, help="No tags any more.")
@click.option("--pin/--unpin", "pinned", default=None, help="Pin it, or no longer.")
@click.option("--expected-version", type=int, metavar="N", help="Only if it is at this version.")
@click.option("--reason", metavar="TEXT", help="Why, for its history.")
@KEY_OPTION
@scope_options
def revise_command(
    asked: CommonOptions,
    id: str,
    content: str | None,
    category: str | None,
    subject: str | None,
    no_subject: bool,
    tags: tuple[str, ...],
    no_tags: bool,
    pinned: bool | None,
    **given: Any,
) -> None:
    """Write a new version of a memory.

    CONTENT is the new text, or - for standard input. What is not given stays as it is, and the
    former version stays in its history.
    """
    if subject is not None and no_subject:
        raise click.UsageError("give --subject or --no-subject, not both")
    if tags and no_tags:
        raise click.UsageError("give --tag or --no-tags, not both")
    changes: dict[str, Any] = {}
    if category is not None:
        changes["category"] = category
    if subject is not None or no_subject:
        changes["subject"] = subject
    if tags or no_tags:
        changes["tags"] = tags
    if pinned is not None:
        changes["pinned"] = pinned
    text = None if content is None else read_text_argument(content)
    with asked.open_space() as space:
        memory = space.revise(id, text, **changes, **given)
    print_memory("Revised", memory, as_json=asked.as_json)


@click.command(
    "forget",
    epilog=examples(
        'reverie forget Ab3dE6gH --reason "no longer true"',
        "reverie forget --source web-search --dry-run",
        'reverie forget --source /home/ana/notes.md --reason "not ours"',
    ),
)
@click.argument("id", required=False)
@click.option("--source", metavar="NAME", help="Everything that exactly this source wrote.")
@click.option("--dry-run", is_flag=True, help="With --source: only show what it would be.")
@click.option("--reason", metavar="TEXT", help="Why, for its history.")
@KEY_OPTION
@scope_options
def forget_command(
    asked: CommonOptions, id: str | None, source: str | None, dry_run: bool, **given: Any
) -> None:
    """Take a memory, or all of a source, out of every recall.

    Its history stays, and 'reverie restore' brings it back.
    """
    if (id is None) == (source is None):
        raise click.UsageError("give an ID, or --source NAME")
    if source is not None:
        _forget_source(asked, source, dry_run, given)
        return
    assert id is not None
    if dry_run:
        raise click.UsageError("--dry-run goes with --source")
    with asked.open_space() as space:
        memory = space.forget(id, **given)
        stays = "" if asked.as_json else _remaining_sources(space, id, ERASE_SOURCE_HINT)
    print_memory("Forgot", memory, as_json=asked.as_json)
    if stays:
        print_stderr(stays)


def _forget_source(asked: CommonOptions, source: str, dry_run: bool, given: dict[str, Any]) -> None:
    with asked.open_space() as space:
        memories = (
            space.memories_from_source(source) if dry_run else space.forget_source(source, **given)
        )
    if asked.as_json:
        print_json({"source": source, "dry_run": dry_run, "memories": memories})
        return
    verb = "Would forget" if dry_run else "Forgot"
    for memory in memories:
        print_line(memory_line(verb, memory))
    done = pluralize(len(memories), "memory", "memories")
    print_stderr(f"{verb} {done} from {escape_control(truncate_line(source))}.")


def _remaining_sources(space: Space, id: str, how: str) -> str:
    """Where the words of a memory are still to be found, and how to destroy them there."""
    left = [origin for origin in _origins(space, id) if _event_exists(space, origin)]
    stay = "stays" if len(left) == 1 else "stay"
    return (
        f"It was said in {_event_ids(left)}, which {stay}: {how} destroys that too." if left else ""
    )


def _event_exists(space: Space, origin: Origin) -> bool:
    events = space.session(origin.session).events()
    return any((event.session, event.sequence) == origin for event in events)


@click.command("restore", epilog=examples("reverie restore Ab3dE6gH"))
@click.argument("id")
@KEY_OPTION
@scope_options
def restore_command(asked: CommonOptions, id: str, **given: Any) -> None:
    """Bring a forgotten memory back.

    To bring a whole store back from a copy, see 'reverie backup restore'.
    """
    with asked.open_space() as space:
        memory = space.restore(id, **given)
    print_memory("Restored", memory, as_json=asked.as_json)


@click.command(
    "erase", epilog=examples("reverie erase Ab3dE6gH", "reverie erase Ab3dE6gH --with-source --yes")
)
@click.argument("id")
@click.option("--with-source", is_flag=True, help="Destroy the events it came from as well.")
@REWRITE_OPTION
@click.option("--yes", is_flag=True, help="Do not ask.")
@KEY_OPTION
@scope_options
def erase_command(
    asked: CommonOptions, id: str, with_source: bool, rewrite_history: bool, yes: bool, **given: Any
) -> None:
    """Destroy every version of a memory.

    This cannot be undone. 'reverie forget' only takes it out of recalls. The events it came from
    stay, where recalls find them, unless --with-source is given.
    """
    with asked.open_space() as space:
        tell = not asked.as_json and not with_source
        if not yes:
            stays = _remaining_sources(space, id, "--with-source") if tell else ""
            if not confirm_erase(memory_line("Erase", space.get(id)), asked, stays):
                print_stderr("Aborted.")
                click.get_current_context().exit(PROBLEMS_FOUND)
        stays = _remaining_sources(space, id, ERASE_EVENT_HINT) if tell else ""
        report = space.erase(id, with_source=with_source, **given)
        history = purge_history(space, rewrite=rewrite_history)
    if asked.as_json:
        print_json(add_purge_report(report, history))
        return
    print_line(
        f"Erased {report.memory_id}: "
        f"{pluralize(len(report.entries), 'log entry', 'log entries')} and "
        f"{pluralize(report.passages, 'passage')} destroyed."
    )
    for source in report.sources:
        print_line(f"Its source went too: session {source.session}, sequence {source.sequence}.")
    if report.pending:
        print_line(PENDING_NOTE)
    if stays:
        print_stderr(stays)
    report_purge(history)


def confirm_erase(line: str, asked: CommonOptions, more: str = "") -> bool:
    """Whether a person at the terminal wants this destroyed, given what more there is to know."""
    if asked.as_json or not sys.stdin.isatty():
        raise InvalidInput("erase cannot be undone: repeat it with --yes")
    if more:
        print_stderr(more)
    return click.confirm(
        f"{escape_control(truncate_line(line))}\nThis cannot be undone. Go on?", err=True
    )


@click.command(
    "profile", epilog=examples("reverie profile", "reverie profile --user alice --tokens 500")
)
@click.option(
    "--tokens", type=POSITIVE_INT, default=2000, show_default=True, help="At most so many."
)
@scope_options
def profile_command(asked: CommonOptions, tokens: int) -> None:
    """Print the block for a prompt of what is known.

    What is pinned comes first, then facts; the same memories give the same bytes.
    """
    with asked.open_space() as space:
        block = space.profile(tokens=tokens)
    if asked.as_json:
        print_json({"profile": block})
    else:
        click.echo(block, nl=False)
