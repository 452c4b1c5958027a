"""The commands of sessions: conversations, and the context a model needs to continue them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from reverie.cli.memories import PENDING_NOTE, confirm_erase
from reverie.cli.options import (
    KEY_OPTION,
    LIMIT_OPTION,
    OUTPUT_OPTION,
    POSITIVE_INT,
    CommonOptions,
    examples,
    read_text_argument,
    scope_options,
    time_option,
)
from reverie.cli.output import (
    format_minute,
    pluralize,
    print_block,
    print_heading,
    print_json,
    print_line,
    print_stderr,
    to_line,
)
from reverie.cli.purge import REWRITE_OPTION, add_purge_report, purge_history, report_purge
from reverie.cli.transfer import as_lines, write_output
from reverie.errors import InvalidInput, NotFound
from reverie.memory import Session, Space
from reverie.model import Context, Event, SessionInfo
from reverie.serialize import to_json_value
from reverie.text.messages import role_of, text_of

ROLES = ("user", "assistant", "system", "tool")
NOTHING = "(nothing)"


@click.group(
    "sessions",
    epilog=examples(
        "reverie sessions list",
        'reverie sessions append chat "I moved to the Design team"',
        "reverie sessions show chat",
        'reverie sessions context chat "which team am I on?"',
    ),
)
def sessions_command() -> None:
    """Store conversations, and continue them.

    A session is one conversation; it exists from its first event on. Its id is any name you choose.
    """


# -- reading --------------------------------------------------------------------------------------


@sessions_command.command(
    "list",
    epilog=examples(
        "reverie sessions list",
        "reverie sessions list --since yesterday",
        "reverie sessions list --hidden --json",
    ),
)
@LIMIT_OPTION
@click.option("--hidden", is_flag=True, help="Include hidden sessions.")
@time_option("--since", "Only those with an event at or after this time.")
@time_option("--until", "Only those without an event at or after this time.")
@scope_options
def list_command(options: CommonOptions, limit: int, hidden: bool, **given: Any) -> None:
    """List the sessions of a space.

    The session with the newest event comes first.
    """
    with options.open_space() as space:
        # One more than the limit shows whether there are more.
        found = space.sessions(limit=limit + 1, include_hidden=hidden, **given)
        name = space.name
    sessions, more = found[:limit], len(found) > limit
    rows = []
    for info in sessions:
        state = ["" if info.hidden_at is None else "hidden"] if hidden else []
        updated = format_minute(info.updated_at)
        rows.append((to_line(info.id), updated, info.events, *state, to_line(info.preview)))
    options.print_list(
        {"sessions": sessions, "more": more},
        ("id", "updated", "events", *(("state",) if hidden else ()), "began with"),
        rows,
        content="began with",
        empty=f"No sessions found in space {name!r}.",
    )
    if more and not options.as_json:
        print_stderr(f"There are more than {limit}: --limit shows them.")


@sessions_command.command(
    "show",
    epilog=examples("reverie sessions show chat", "reverie sessions show chat --limit 10 --json"),
)
@click.argument("id")
@click.option("--limit", type=POSITIVE_INT, help="Show only this many of the last events.")
@scope_options
def show_command(options: CommonOptions, id: str, limit: int | None) -> None:
    """Show what was said in a session.

    Hidden sessions are shown too. For a fork, the events before it are shown as well.
    """
    with options.open_space() as space:
        session = space.session(id)
        info, events = session.info(), session.events(limit)
    if options.as_json:
        print_json({"session": info, "events": events})
        return
    for event in events:
        print_heading(_heading(event))
        print_block(event.text or NOTHING)
    if info.forked_from is not None:
        print_stderr(f"Forked from {info.forked_from.session}:{info.forked_from.sequence}.")
    if info.hidden_at is not None:
        print_stderr("The session is hidden: 'reverie sessions restore' brings it back.")


def _heading(event: Event) -> str:
    cut = ", interrupted" if event.interrupted else ""
    return f"{event.sequence}  {to_line(event.role)}  {format_minute(event.at)}{cut}"


# -- writing --------------------------------------------------------------------------------------


@sessions_command.command(
    "append",
    epilog=examples(
        'reverie sessions append chat "I moved to the Design team"',
        'reverie sessions append chat "Congratulations on" --role assistant --interrupted',
        "make test 2>&1 | reverie sessions append chat - --role tool",
        """reverie sessions append chat --message '{"role": "user", "content": "Hello"}'""",
    ),
)
@click.argument("id")
@click.argument("text", required=False)
@click.option("--role", type=click.Choice(ROLES), help="Who said it. [default: user]")
@click.option(
    "--message",
    metavar="JSON",
    help="A message in the format of its provider, or - for standard input.",
)
@click.option("--interrupted", is_flag=True, help="The message is a reply that was cut off.")
@click.option(
    "--sequence",
    type=POSITIVE_INT,
    metavar="N",
    help="Its sequence number, which must follow the last one.",
)
@KEY_OPTION
@scope_options
def append_command(
    options: CommonOptions,
    id: str,
    text: str | None,
    role: str | None,
    message: str | None,
    **given: Any,
) -> None:
    """Store one message of a session.

    TEXT is what was said, or - for standard input. It is stored on disk when the command returns.
    """
    if (text is None) == (message is None):
        raise click.UsageError("give a TEXT, - for standard input, or --message JSON")
    if message is not None and role is not None:
        raise click.UsageError("give --role or --message, which has its own, not both")
    parsed: Any
    if message is not None:
        parsed = _parse_json(read_text_argument(message), "--message")
    else:
        parsed = {"role": role or "user", "content": read_text_argument(text or "")}
    with options.open_space(create=True) as space:
        event = space.session(id).append(parsed, **given)
    options.print_result(event, _event_line("Appended", event), cut=True)


def _event_line(verb: str, event: Event) -> str:
    where = f"{event.session}:{event.sequence}"
    return f"{verb} {where} ({to_line(event.role)}): {to_line(event.text)}"


@sessions_command.command(
    "follow",
    epilog=examples(
        "reverie sessions follow history.json",
        "reverie sessions follow history.json --session chat",
        "reverie sessions resume chat | reverie sessions follow - --space copy",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--session", metavar="ID", help="The session that the history belongs to, if it is known."
)
@KEY_OPTION
@scope_options
def follow_command(options: CommonOptions, file: str, **given: Any) -> None:
    """Store the new messages of a whole history.

    FILE, or - for standard input, is a JSON array of all messages so far, as chat programs send
    it with each turn. Where the history differs from what is stored, a new session continues from
    there, a fork. System prompts are left out.
    """
    history = _parse_json(_read_file(file), "the file")
    if not isinstance(history, list):
        raise InvalidInput("the file must be a JSON array of messages")
    with options.open_space(create=True) as space:
        session = space.follow(history, **given)
        if not session.events(1):
            raise InvalidInput("the file holds nothing that a user or an assistant said")
        info = session.info()
    _print_info(options, "Followed", info)
    if info.forked_from is not None and not options.as_json:
        print_line(f"It is a fork of {info.forked_from.session}:{info.forked_from.sequence}.")


def _read_file(file: str) -> str:
    if file == "-":
        return read_text_argument(file)
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not UTF-8 text: convert it first") from error


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InvalidInput(f"{what} is nested too deeply") from error
    except ValueError as error:
        raise InvalidInput(f"{what} is not JSON: {error}") from error


@sessions_command.command(
    "hide", epilog=examples('reverie sessions hide chat --reason "it was only a test"')
)
@click.argument("id")
@click.option("--reason", metavar="TEXT", help="Why, for the log.")
@KEY_OPTION
@scope_options
def hide_command(options: CommonOptions, id: str, **given: Any) -> None:
    """Hide a session from lists and recalls.

    'reverie sessions restore' brings it back, and so does its next event.
    """
    with options.open_space() as space:
        session = space.session(id)
        session.hide(**given)
        info = session.info()
    _print_info(options, "Hid", info)


@sessions_command.command("restore", epilog=examples("reverie sessions restore chat"))
@click.argument("id")
@KEY_OPTION
@scope_options
def restore_command(options: CommonOptions, id: str, **given: Any) -> None:
    """Bring a hidden session back."""
    with options.open_space() as space:
        session = space.session(id)
        session.restore(**given)
        info = session.info()
    _print_info(options, "Restored", info)


@sessions_command.command(
    "erase",
    epilog=examples(
        "reverie sessions erase chat",
        "reverie sessions erase chat --yes",
        "reverie sessions erase chat --event 3",
    ),
)
@click.argument("id")
@click.option("--event", type=POSITIVE_INT, metavar="SEQUENCE", help="Destroy only this event.")
@REWRITE_OPTION
@click.option("--yes", is_flag=True, help="Do not ask.")
@KEY_OPTION
@scope_options
def erase_command(
    options: CommonOptions,
    id: str,
    event: int | None,
    rewrite_history: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Destroy every event of a session, or one event.

    Erasing a whole session also destroys the memories that came only from it; erasing one event
    destroys no memory. This cannot be undone; 'reverie sessions hide' only hides a session from
    lists and recalls.
    """
    with options.open_space() as space:
        session = space.session(id)
        if not yes:
            confirm_erase(_describe_erase(session, event), options)
        report = session.erase(**given) if event is None else session.erase_event(event, **given)
        history = purge_history(space, rewrite=rewrite_history)
    if options.as_json:
        print_json(add_purge_report(report, history))
        return
    what = f"session {report.session}" if event is None else f"{report.session}:{event}"
    print_line(
        f"Erased {what}: {pluralize(report.events, 'event')} and "
        f"{pluralize(len(report.memories), 'memory', 'memories')} destroyed."
    )
    if report.pending:
        print_line(PENDING_NOTE)
    report_purge(history)


def _describe_erase(session: Session, sequence: int | None) -> str:
    """Describe on one line what an erase is about to destroy."""
    if sequence is None:
        return _info_line("Erase", session.info())
    for event in _require_events(session).events():
        if (event.session, event.sequence) == (session.id, sequence):
            return _event_line("Erase", event)
    raise NotFound(f"session {session.id!r} has no event {sequence}")


def _print_info(options: CommonOptions, verb: str, info: SessionInfo) -> None:
    """Print the session that a verb acted on."""
    options.print_result(info, _info_line(verb, info), cut=True)


def _info_line(verb: str, info: SessionInfo) -> str:
    return f"{verb} session {info.id} ({pluralize(info.events, 'event')}): {to_line(info.preview)}"


# -- continuing -----------------------------------------------------------------------------------


@sessions_command.command(
    "resume",
    epilog=examples(
        "reverie sessions resume", "reverie sessions resume chat --limit 50 > history.json"
    ),
)
@click.argument("id", required=False)
@LIMIT_OPTION
@scope_options
def resume_command(options: CommonOptions, id: str | None, limit: int) -> None:
    """Print the last messages, ready to be sent again.

    Without an ID they are those of the session with the newest event. The output is a JSON array,
    with or without --json, with the messages as they were received. It begins with a message of the
    user, and never separates a tool call from its results.
    """
    with options.open_space() as space:
        session = _latest(space) if id is None else space.session(id)
        messages = _require_events(session).resume(limit)
    print_json(messages)
    if id is None:
        print_stderr(f"These are messages of session {session.id!r}.")


def _latest(space: Space) -> Session:
    for info in space.sessions(limit=1):
        return space.session(info.id)
    raise NotFound(f"space {space.name!r} has no sessions")


@sessions_command.command(
    "summary", epilog=examples("reverie sessions summary chat", "reverie sessions summary c --json")
)
@click.argument("id")
@scope_options
def summary_command(options: CommonOptions, id: str) -> None:
    """Print the rolling summary of a session.

    A background job ('reverie worker') writes it once the conversation is long.
    """
    with options.open_space() as space:
        summary = _require_events(space.session(id)).summary()
    if options.as_json:
        print_json({"session": id, **to_json_value(summary)})
    elif not summary.text:
        print_stderr(f"Session {id!r} has no summary yet.")
    else:
        print_heading(f"The events up to {summary.upper}")
        print_block(summary.text)


@sessions_command.command(
    "context",
    epilog=examples(
        "reverie sessions context chat",
        'reverie sessions context chat "which team am I on?" --tokens 2000 --json',
    ),
)
@click.argument("id")
@click.argument("query", required=False)
@click.option(
    "--tokens",
    type=POSITIVE_INT,
    help="Use at most this many tokens. [default: the setting context_tokens]",
)
@scope_options
def context_command(options: CommonOptions, id: str, query: str | None, tokens: int | None) -> None:
    """Print what a model needs for the next turn.

    The context consists of the profile, the summary, what is recalled and the history. QUERY is
    what to recall for, or - for standard input; by default, the last message of the user.
    """
    recall_query = None if query is None else read_text_argument(query)
    max_tokens = tokens or options.settings().context_tokens
    with options.open_space() as space:
        context = _require_events(space.session(id)).context(recall_query, tokens=max_tokens)
    if options.as_json:
        print_json({**to_json_value(context), "system": context.system})
        return
    _print_context(context)
    print_line(f"{context.tokens} of {pluralize(max_tokens, 'token')}.")


def _print_context(context: Context) -> None:
    """Print each part under its heading; notices, which are rare, only if there are any."""
    for part in ("profile", "summary", "recalled", "notices"):
        text = getattr(context, part).rstrip("\n")
        if text or part != "notices":
            print_heading(part.capitalize())
            print_block(text or NOTHING)
    print_heading("History")
    for message in context.history:
        print_block(to_line(role_of(message)))
        print_block(text_of(message) or NOTHING, level=2)
    if not context.history:
        print_block(NOTHING)


@sessions_command.command("refresh", epilog=examples("reverie sessions refresh chat"))
@click.argument("id")
@scope_options
def refresh_command(options: CommonOptions, id: str) -> None:
    """Update the profile that a session uses.

    A session keeps the profile of its first context, so that the provider's prompt cache keeps
    working. Refresh it in sessions that last very long.
    """
    with options.open_space() as space:
        session = _require_events(space.session(id))
        session.refresh_profile()
        info = session.info()
    _print_info(options, "Refreshed", info)


@sessions_command.command(
    "scratchpad",
    epilog=examples(
        "reverie sessions scratchpad chat",
        'reverie sessions scratchpad chat --write "read the log" --write "ask Ana"',
        "reverie sessions scratchpad chat --clear",
    ),
)
@click.argument("id")
@click.option(
    "--write",
    "items",
    multiple=True,
    metavar="ITEM",
    help="Replace the list by this item; repeatable.",
)
@click.option("--clear", is_flag=True, help="Empty the list.")
@scope_options
def scratchpad_command(
    options: CommonOptions, id: str, items: tuple[str, ...], clear: bool
) -> None:
    """Print or replace the working list of a session."""
    if items and clear:
        raise click.UsageError("give --write or --clear, not both")
    with options.open_space(create=bool(items)) as space:
        session = space.session(id)
        if items:
            session.scratchpad.write(items)
        elif not session.scratchpad.read().items:
            _require_events(session)
        elif clear:
            session.scratchpad.clear()
        pad = session.scratchpad.read()
    if options.as_json:
        print_json({"session": id, **to_json_value(pad)})
    elif not pad.items:
        print_stderr(f"The scratchpad of session {id!r} is empty.")
    else:
        for number, item in enumerate(pad.items, 1):
            print_line(f"{number}. {to_line(item)}")


def _require_events(session: Session) -> Session:
    """Return the session; raise NotFound if it has no events."""
    session.info()
    return session


# -- export ---------------------------------------------------------------------------------------


@sessions_command.command(
    "export",
    epilog=examples(
        "reverie sessions export chat > chat.jsonl",
        "reverie sessions export chat -o chat.jsonl",
    ),
)
@click.argument("id")
@OUTPUT_OPTION
@scope_options
def export_command(options: CommonOptions, id: str, output: Path | None) -> None:
    """Export a session as JSON lines.

    'reverie import' reads them again. The output is JSON with or without --json; with --output,
    --json prints a JSON document about the written file.
    """
    with options.open_space() as space:
        written = write_output(output, as_lines(_require_events(space.session(id)).export()))
    if output is not None:
        options.print_result(
            {"file": str(output), "session": id, "written": written},
            f"Exported {pluralize(written, 'record')} to {output}.",
        )
