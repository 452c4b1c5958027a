"""The verbs of a space: remember, recall, list, show, history, revise, forget, restore, erase."""

from __future__ import annotations

import json
from pathlib import Path
from time import time
from typing import Any, TextIO

import click

from reverie.cli.options import (
    KEY_OPTION,
    LIMIT_OPTION,
    POSITIVE_INT,
    CommonOptions,
    examples,
    parse_time,
    read_text_argument,
    scope_options,
    time_option,
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
    print_pairs,
    print_stderr,
    print_table,
    to_line,
    truncate_line,
    with_subject,
)
from reverie.cli.purge import REWRITE_OPTION, add_purge_report, purge_history, report_purge
from reverie.dates import parse_as_of, parse_period, to_ms
from reverie.errors import VaultError
from reverie.memory import Space
from reverie.model import HIT_KINDS, KINDS, MODES, ORDERS, RANKINGS, Hit, Origin
from reverie.serialize import to_json_value
from reverie.write.where import parse_where_text


def _parse_metadata(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any] | None:
    """Merge the values of --metadata: JSON objects, and KEY=VALUE with JSON or text as value."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not text.lstrip().startswith("{"):
            if not equals or not key.strip():
                raise click.BadParameter(f"{text!r} is neither KEY=VALUE nor a JSON object")
            found[key.strip()] = _json_or_text(value)
            continue
        held = _json_or_text(text)
        if not isinstance(held, dict):
            raise click.BadParameter(f"{text[:60]!r} is not a JSON object")
        found |= held
    return found if given else None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


METADATA_OPTION = click.option(
    "--metadata",
    multiple=True,
    callback=_parse_metadata,
    metavar="KEY=VALUE",
    help="Data of your own; repeatable, or one JSON object. A value is JSON, else text.",
)

TAG_OPTION = click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; repeatable.")
TAG_FILTER_OPTION = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Only with this tag; repeatable: with all of them.",
)


def _parse_as_of(text: str) -> int | str:
    found = parse_as_of(text)
    return found if isinstance(found, int) else parse_time(found)


def _parse_valid_at(text: str) -> str:
    return text if parse_period(text) else parse_time(text)


def _parse_expiry(text: str) -> str:
    expiry = parse_time(text)
    if to_ms(expiry, "--expires-at") <= int(time() * 1000):
        raise click.BadParameter(f"{expiry} is in the past")
    return expiry


AS_OF_OPTION = click.option(
    "--as-of",
    type=_parse_as_of,
    metavar="POSITION|TIME",
    help="Answer as of this log position or time.",
)
WHERE_OPTION = click.option(
    "--where",
    type=parse_where_text,
    metavar="JSON",
    help='Only what meets these conditions, such as {"metadata.team": {"in": ["a", "b"]}}.',
)
VALID_AT_OPTION = click.option(
    "--valid-at",
    type=_parse_valid_at,
    metavar="TIME",
    help="Only memories true at this time (or 2023, 2023-05), as they were then.",
)
PENDING_NOTE = (
    "Pending: another process still reads pages with the erased text; a job removes them later "
    "('reverie worker --once')."
)

ERASE_SOURCE_HINT = "'reverie erase --with-source'"
ERASE_EVENT_HINT = "'reverie sessions erase SESSION --event SEQUENCE'"


@click.command(
    "remember",
    epilog=examples(
        'reverie remember "Alec is my boss at TechCorp" --category person --subject Alec',
        'reverie remember "Dentist at 15:00" --happened-at 2026-12-01 --expires-at 2026-12-02',
        'reverie remember "Ship on Friday" --metadata team=platform --metadata priority=2',
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
    help="Store a text file as a note; repeatable.",
)
@click.option("--note", is_flag=True, help="Store it as a note, which may be long.")
@click.option("--category", metavar="NAME", help="The category it belongs to. [default: general]")
@click.option(
    "--subject",
    metavar="NAME",
    help="Who or what it is about. Other memories of this subject are printed.",
)
@TAG_OPTION
@click.option("--source", metavar="NAME", help="The program or document it comes from.")
@click.option("--pin", is_flag=True, help="Put it first in the profile, and exempt it from limits.")
@time_option("--happened-at", "When it happened.")
@click.option("--expires-at", type=_parse_expiry, metavar="TIME", help="When to forget it.")
@time_option("--valid-from", "When it becomes true.")
@time_option("--valid-to", "When it stops being true.")
@METADATA_OPTION
@click.option(
    "--session", metavar="ID", help="The session it comes from; its latest event is the origin."
)
@click.option("--private", is_flag=True, help="Let only that session recall it.")
@KEY_OPTION
@click.option(
    "--batch",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Remember one JSON object a line, all of them or none; - reads standard input.",
)
@scope_options
def remember_command(
    options: CommonOptions,
    content: str | None,
    files: tuple[str, ...],
    category: str | None,
    note: bool,
    pin: bool,
    batch: TextIO | None,
    session: str | None,
    **given: Any,
) -> None:
    """Remember one thing, or many.

    CONTENT is the text, or - for standard input. It is stored on disk when the command returns.
    Each line of a --batch is a JSON object with a content and, if wanted, kind, category, subject,
    tags, source, metadata and times.
    """
    if batch is not None:
        key = given.pop("key")
        if any((content is not None, files, note, pin, category, session, *given.values())):
            raise click.UsageError("only --key goes with --batch")
        _remember_batch(options, batch, key)
        return
    if files:
        if content is not None or note or pin or session or any(given.values()):
            raise click.UsageError("only --category goes with --file")
        _remember_files(options, files, category or "document")
        return
    if content is None:
        raise click.UsageError("give a CONTENT, - for standard input, or --file PATH")
    if given["private"] and session is None:
        raise click.UsageError("--private needs --session ID")
    text = read_text_argument(content)
    with options.open_space(create=True) as space:
        scope = space if session is None else space.session(session)
        memory = scope.remember(
            text,
            kind="note" if note else "fact",
            category=category or "general",
            pinned=pin,
            **given,
        )
    done = "Remembered" if memory.version == 1 else "Remembered already:"
    shown = {**to_json_value(memory), "related": to_json_value(memory.related)}
    options.print_result(shown if options.as_json else memory, memory_line(done, memory), cut=True)
    if memory.related and not options.as_json:
        print_stderr(f"Also known of {to_line(memory.subject or '')}:")
        for other in memory.related:
            print_stderr(truncate_line(f"  {other.id}  {to_line(other.content)}"))
        print_stderr("'reverie revise ID' changes one of them, 'reverie forget ID' forgets it.")


def _remember_batch(options: CommonOptions, batch: TextIO, key: str | None) -> None:
    items: list[Any] = []
    for number, line in enumerate(batch, 1):
        if line.strip():
            item = _json_or_text(line)
            if not isinstance(item, dict):
                raise click.UsageError(f"line {number} of the batch is not a JSON object")
            items.append(item)
    with options.open_space(create=True) as space:
        memories = space.remember_many(items, key=key)
    if options.as_json:
        shown = [
            {**to_json_value(memory), "related": to_json_value(memory.related)}
            for memory in memories
        ]
        print_json({"memories": shown})
        return
    for memory in memories:
        print_line(truncate_line(memory_line("Remembered", memory)))
    print_stderr(f"Remembered {pluralize(len(memories), 'memory', 'memories')}.")


def _remember_files(options: CommonOptions, files: tuple[str | Path, ...], category: str) -> None:
    memories = []
    with options.open_space(create=True) as space:
        for file in files:
            memory = space.remember_file(file, category=category)
            memories.append(memory)
            if not options.as_json:
                print_line(f"Remembered {memory.id} (version {memory.version}): {memory.source}")
    if options.as_json:
        print_json({"memories": memories})


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
        'reverie recall when does the ferry leave --since "last week"',
    ),
)
@click.argument("words", nargs=-1, required=True, metavar="QUERY")
@click.option("--limit", type=POSITIVE_INT, default=5, help="Show at most this many hits.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="hybrid",
    help="Search by keywords, by vectors, or by both.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(HIT_KINDS),
    multiple=True,
    help="Only this kind; repeatable.",
)
@click.option("--category", metavar="NAME", help="Only this category.")
@TAG_FILTER_OPTION
@time_option("--since", "Only what happened at or after this time.")
@time_option("--until", "Only what happened before this time.")
@WHERE_OPTION
@VALID_AT_OPTION
@AS_OF_OPTION
@click.option(
    "--session", metavar="ID", help="Include the memories that belong only to this session."
)
@click.option(
    "--ranking",
    type=click.Choice(list(RANKINGS)),
    help="How to rank the hits. [default: the setting ranking]",
)
@click.option("--min-score", type=float, metavar="SCORE", help="Leave out hits with a lower score.")
@click.option("--explain", is_flag=True, help="Show how each hit's score is made up.")
@scope_options
def recall_command(
    options: CommonOptions,
    words: tuple[str, ...],
    session: str | None,
    explain: bool,
    **given: Any,
) -> None:
    """Search memories and conversations for a query.

    A hit is a memory, or an event: one message of a conversation. The id of an event is its session
    and its sequence number.
    """
    query = read_text_argument(" ".join(words))
    with options.open_space() as space:
        scope = space if session is None else space.session(session)
        hits = scope.recall(query, explain=explain, **given)
        asked = given["ranking"]
        floor = space.floor if asked is None or RANKINGS[asked].is_calibrated else None
    if options.as_json:
        print_json({"query": query, "hits": hits})
    elif not hits:
        print_stderr("Nothing found.")
    elif explain:
        # rich and numpy take time to load, and only this option needs them here.
        from reverie.cli.explain import print_explained

        print_explained(hits, query)
    else:
        _print_hits(hits)
    if not options.as_json and floor is not None:
        _print_weak(hits, floor)


def _print_weak(hits: list[Hit], floor: float) -> None:
    """Print which hits are weak: below the floor, so that no prompt would get them."""
    weak = sum(hit.score < floor for hit in hits)
    if weak and weak == len(hits):
        print_stderr(f"No good match: every score is below {floor:g}, the minimum for prompts.")
    elif weak:
        which = "The last hit is" if weak == 1 else f"The last {weak} hits are"
        print_stderr(f"{which} weak: below {floor:g}, the minimum for prompts.")


def _print_hits(hits: list[Hit]) -> None:
    rows = []
    for hit in hits:
        category = hit.memory.category if hit.memory else ""
        text = with_subject(hit.memory.subject if hit.memory else None, hit.text)
        if hit.event is not None:
            text += f"\n{to_line(hit.event.role)}, {format_minute(hit.event.at)}"
        if hit.duplicates:
            said = pluralize(len(hit.duplicates), "more says the same", "more say the same")
            text += (", " if hit.event is not None else "\n") + said
        rows.append((f"{hit.score:.3f}", to_line(hit.id), category, text))
    print_table(("score", "id", "category", "content"), rows)


@click.command(
    "list",
    epilog=examples(
        "reverie list",
        "reverie list --category person --order category",
        "reverie list --tag work --limit 100 --json",
        "reverie list --as-of 2026-03-31 --forgotten",
        """reverie list --where '{"metadata.team": "platform", "at": {"gte": "2026-01-01"}}'""",
    ),
)
@click.option("--category", metavar="NAME", help="Only this category.")
@click.option("--subject", metavar="NAME", help="Only this subject.")
@TAG_FILTER_OPTION
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@WHERE_OPTION
@click.option("--forgotten", is_flag=True, help="Include forgotten memories.")
@VALID_AT_OPTION
@AS_OF_OPTION
@LIMIT_OPTION
@click.option(
    "--order", type=click.Choice(ORDERS), default="newest", help="Sort by time, or by category."
)
@scope_options
def list_command(options: CommonOptions, forgotten: bool, limit: int, **given: Any) -> None:
    """List the memories of a space."""
    with options.open_space() as space:
        # One more than the limit shows whether there are more.
        found = space.memories(include_forgotten=forgotten, limit=limit + 1, **given)
        name, user = space.name, space.user
    memories, more = found[:limit], len(found) > limit
    more_columns = (*(("user",) if user else ()), *(("state",) if forgotten else ()))
    rows = []
    for memory in memories:
        more_cells = [memory.user or "(shared)"] if user else []
        if forgotten:
            more_cells.append("" if memory.forgotten_at is None else "forgotten")
        content = ("* " if memory.pinned else "") + with_subject(memory.subject, memory.content)
        created = format_minute(memory.created_at)
        rows.append((memory.id, created, memory.category, *more_cells, content))
    options.print_list(
        {"memories": memories, "more": more},
        ("id", "created", "category", *more_columns, "content"),
        rows,
        empty=f"No memories found in space {name!r}.",
    )
    if more and not options.as_json:
        print_stderr(f"There are more than {limit}: --limit shows them.")


@click.command("show", epilog=examples("reverie show Ab3dE6gH", "reverie show Ab3dE6gH --json"))
@click.argument("id")
@scope_options
def show_command(options: CommonOptions, id: str) -> None:
    """Show one memory with all its details.

    Forgotten memories are shown too. The origins of a memory are the events it was learned from.
    Its file is the one in the vault, if the store has a vault.
    """
    with options.open_space() as space:
        memory, origins, file = space.get(id), _origins(space, id), _vault_file(space, id)
    if options.as_json:
        print_json({**to_json_value(memory), "origins": to_json_value(origins), "file": file})
        return
    pairs = memory_pairs(memory) | ({"origins": _event_ids(origins)} if origins else {})
    print_pairs(pairs | ({"file": file} if file else {}) | {"content": memory.content})


def _vault_file(space: Space, id: str) -> str | None:
    """Return the path of a memory's file; None if it has none or the vault cannot be read."""
    # The vault's modules take time to load, and no other command here needs them.
    from reverie.vault import service

    try:
        path = service.find_memory_file(space, id)
    except VaultError:
        return None
    return None if path is None else str(path)


def _origins(space: Space, id: str) -> list[Origin]:
    """Return the events that the versions of a memory came from, each once."""
    return list(dict.fromkeys(v.origin for v in space.history(id) if v.origin is not None))


def _event_ids(origins: list[Origin]) -> str:
    return ", ".join(map(event_id, origins))


@click.command(
    "history", epilog=examples("reverie history Ab3dE6gH", "reverie history Ab3dE6gH --json")
)
@click.argument("id")
@scope_options
def history_command(options: CommonOptions, id: str) -> None:
    """List every version of a memory.

    The oldest comes first. The position of a version can be given to --as-of.
    """
    with options.open_space() as space:
        versions = space.history(id)
    if options.as_json:
        print_json({"id": id, "versions": versions})
        return
    rows = []
    for v in versions:
        content = "(erased)" if v.content is None else with_subject(v.subject, v.content)
        content += f"\nbecause: {to_line(v.reason)}" if v.reason else ""
        content += f"\nfrom: {event_id(v.origin)}" if v.origin else ""
        content += f"\nsource: {to_line(v.source)}" if v.source else ""
        recorded = format_minute(v.recorded_at)
        rows.append((v.version, v.position, recorded, v.op, v.actor or "", content))
    print_table(("version", "position", "recorded", "op", "by", "content"), rows)


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
@click.option("--category", metavar="NAME", help="Change the category.")
@click.option("--subject", metavar="NAME", help="Change the subject.")
@click.option("--no-subject", is_flag=True, help="Remove the subject.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Replace the tags; repeatable.")
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option("--pin/--unpin", "pinned", default=None, help="Pin it, or unpin it.")
@click.option(
    "--metadata",
    multiple=True,
    callback=_parse_metadata,
    metavar="KEY=VALUE",
    help="Replace the metadata; repeatable, or one JSON object.",
)
@click.option("--no-metadata", is_flag=True, help="Remove all metadata.")
@time_option("--valid-from", "When it became true; empty: always was.")
@time_option("--valid-to", "When it stopped being true; empty: still is.")
@click.option(
    "--expected-version", type=int, metavar="N", help="Fail unless this is its current version."
)
@click.option("--reason", metavar="TEXT", help="Why, for its history.")
@KEY_OPTION
@scope_options
def revise_command(
    options: CommonOptions,
    id: str,
    content: str | None,
    category: str | None,
    subject: str | None,
    no_subject: bool,
    tags: tuple[str, ...],
    no_tags: bool,
    pinned: bool | None,
    metadata: dict[str, Any] | None,
    no_metadata: bool,
    valid_from: str | None,
    valid_to: str | None,
    **given: Any,
) -> None:
    """Write a new version of a memory.

    CONTENT is the new text, or - for standard input. Fields that are not given stay as they are.
    Earlier versions stay in the history.
    """
    if subject is not None and no_subject:
        raise click.UsageError("give --subject or --no-subject, not both")
    if tags and no_tags:
        raise click.UsageError("give --tag or --no-tags, not both")
    if metadata is not None and no_metadata:
        raise click.UsageError("give --metadata or --no-metadata, not both")
    named = {
        "category": category,
        "subject": subject,
        "pinned": pinned,
        "tags": tags or None,
        "metadata": {} if no_metadata else metadata,
    }
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    changes |= {"subject": None} if no_subject else {}
    changes |= {"tags": ()} if no_tags else {}
    for name, moment in (("valid_from", valid_from), ("valid_to", valid_to)):
        changes |= {} if moment is None else {name: moment or None}
    text = None if content is None else read_text_argument(content)
    with options.open_space() as space:
        memory = space.revise(id, text, **changes, **given)
    options.print_result(memory, memory_line("Revised", memory), cut=True)


@click.command(
    "forget",
    epilog=examples(
        'reverie forget Ab3dE6gH --reason "no longer true"',
        "reverie forget --source web-search --dry-run",
        'reverie forget --source /home/ana/notes.md --reason "not ours"',
    ),
)
@click.argument("id", required=False)
@click.option(
    "--source", metavar="NAME", help="Forget everything that came from exactly this source."
)
@click.option("--dry-run", is_flag=True, help="With --source: only show what would be forgotten.")
@click.option("--reason", metavar="TEXT", help="Why, for its history.")
@KEY_OPTION
@scope_options
def forget_command(
    options: CommonOptions, id: str | None, source: str | None, dry_run: bool, **given: Any
) -> None:
    """Forget a memory, or everything from one source.

    Recall does not find a forgotten memory. Its history stays, and 'reverie restore' brings it
    back.
    """
    if (id is None) == (source is None):
        raise click.UsageError("give an ID, or --source NAME")
    if source is not None:
        _forget_source(options, source, dry_run, given)
        return
    assert id is not None
    if dry_run:
        raise click.UsageError("--dry-run goes with --source")
    with options.open_space() as space:
        memory = space.forget(id, **given)
        stays = "" if options.as_json else _remaining_sources(space, id, ERASE_SOURCE_HINT)
    options.print_result(memory, memory_line("Forgot", memory), cut=True)
    if stays:
        print_stderr(stays)


def _forget_source(
    options: CommonOptions, source: str, dry_run: bool, given: dict[str, Any]
) -> None:
    with options.open_space() as space:
        memories = (
            space.memories_from_source(source) if dry_run else space.forget_source(source, **given)
        )
    if options.as_json:
        print_json({"source": source, "dry_run": dry_run, "memories": memories})
        return
    verb = "Would forget" if dry_run else "Forgot"
    for memory in memories:
        print_line(memory_line(verb, memory))
    done = pluralize(len(memories), "memory", "memories")
    print_stderr(f"{verb} {done} from {escape_control(truncate_line(source))}.")


def _remaining_sources(space: Space, id: str, how: str) -> str:
    """Say which events still hold the words of a memory, and how to destroy those too."""
    left = [origin for origin in _origins(space, id) if _event_exists(space, origin)]
    if not left:
        return ""
    stay = "stays" if len(left) == 1 else "stay"
    return f"It was said in {_event_ids(left)}, which {stay}: {how} destroys that too."


def _event_exists(space: Space, origin: Origin) -> bool:
    events = space.session(origin.session).events()
    return any((event.session, event.sequence) == origin for event in events)


@click.command("restore", epilog=examples("reverie restore Ab3dE6gH"))
@click.argument("id")
@KEY_OPTION
@scope_options
def restore_command(options: CommonOptions, id: str, **given: Any) -> None:
    """Bring a forgotten memory back.

    To restore a whole store from a backup, see 'reverie backup restore'.
    """
    with options.open_space() as space:
        memory = space.restore(id, **given)
    options.print_result(memory, memory_line("Restored", memory), cut=True)


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
    options: CommonOptions,
    id: str,
    with_source: bool,
    rewrite_history: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Destroy every version of a memory.

    This cannot be undone; 'reverie forget' only hides a memory from recalls. The events that the
    memory was learned from stay, and recalls find them, unless --with-source is given.
    """
    with options.open_space() as space:
        warn = not options.as_json and not with_source
        if not yes:
            stays = _remaining_sources(space, id, "--with-source") if warn else ""
            confirm_erase(memory_line("Erase", space.get(id)), options, stays)
        stays = _remaining_sources(space, id, ERASE_EVENT_HINT) if warn else ""
        report = space.erase(id, with_source=with_source, **given)
        history = purge_history(space, rewrite=rewrite_history)
    if options.as_json:
        print_json(add_purge_report(report, history))
        return
    print_line(
        f"Erased {report.memory_id}: "
        f"{pluralize(len(report.entries), 'log entry', 'log entries')} and "
        f"{pluralize(report.passages, 'passage')} destroyed."
    )
    for source in report.sources:
        print_line(
            f"Its source was destroyed too: session {source.session}, sequence {source.sequence}."
        )
    if report.pending:
        print_line(PENDING_NOTE)
    if stays:
        print_stderr(stays)
    report_purge(history)


def confirm_erase(line: str, options: CommonOptions, more: str = "") -> None:
    """Ask the person at the terminal whether to destroy this, and exit if they do not want it."""
    shown = escape_control(f"{more}\n{truncate_line(line)}".lstrip())
    options.confirm(
        f"{shown}\nThis cannot be undone. Go on?", "erase cannot be undone: repeat it with --yes"
    )


@click.command(
    "profile", epilog=examples("reverie profile", "reverie profile --user alice --tokens 500")
)
@click.option("--tokens", type=POSITIVE_INT, default=2000, help="Use at most this many tokens.")
@scope_options
def profile_command(options: CommonOptions, tokens: int) -> None:
    """Print the profile: the main memories, as text for a prompt.

    Pinned memories come first, then facts. If there is no room for all, people, health and
    preferences are preferred, then memories that are recalled often, then the newest. The same
    memories always give the same text.
    """
    with options.open_space() as space:
        block = space.profile(tokens=tokens)
        is_empty = not block and not space.memories(limit=1)
        name = space.name
    if options.as_json:
        print_json({"profile": block})
    elif block:
        click.echo(block, nl=False)
    elif is_empty:
        print_stderr(f"No memories found in space {name!r}.")
    else:
        print_stderr(f"No memory fits into {tokens} tokens: --tokens takes more.")
