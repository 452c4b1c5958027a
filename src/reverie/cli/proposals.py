"""The commands that list, accept and reject proposed memories."""

from __future__ import annotations

import click

from reverie.cli.options import CommonOptions, examples, scope_options
from reverie.cli.output import (
    event_id,
    format_minute,
    memory_line,
    print_json,
    print_line,
    to_line,
    truncate_line,
    with_subject,
)


@click.group(
    "proposals",
    epilog=examples(
        "reverie proposals list",
        "reverie proposals accept Ab3dE6gH",
        'reverie proposals reject Ab3dE6gH --reason "it was a joke"',
    ),
)
def proposals_command() -> None:
    """Accept or reject proposed memories.

    With the setting write_policy = ask, a new fact learned from a session is proposed, and
    remembered only when it is accepted. Changes to memories, and facts the user asked to remember,
    are stored without asking.
    """


@proposals_command.command(
    "list", epilog=examples("reverie proposals list", "reverie proposals list --answered --json")
)
@click.option("--answered", is_flag=True, help="Include accepted and rejected proposals.")
@scope_options
def list_command(options: CommonOptions, answered: bool) -> None:
    """List proposals that wait for an answer.

    The oldest comes first.
    """
    with options.open_space() as space:
        proposals = space.proposals(include_answered=answered)
        name = space.name
    rows = []
    for each in proposals:
        answer = [each.answer or ""] if answered else []
        proposed, origin = format_minute(each.proposed_at), event_id(each.origin)
        content = with_subject(each.subject, each.content)
        rows.append((each.id, proposed, each.category, *answer, origin, content))
    options.print_list(
        {"proposals": proposals},
        ("id", "proposed", "category", *(("answer",) if answered else ()), "from", "content"),
        rows,
        empty=f"No proposals found in space {name!r}.",
    )


@proposals_command.command(
    "accept", epilog=examples("reverie proposals accept Ab3dE6gH", "reverie proposals accept A B C")
)
@click.argument("ids", nargs=-1, required=True)
@scope_options
def accept_command(options: CommonOptions, ids: tuple[str, ...]) -> None:
    """Accept proposals: they become memories.

    A proposal that was accepted before gives the same memory again.
    """
    memories = []
    with options.open_space() as space:
        for id in ids:
            memory = space.accept(id)
            memories.append(memory)
            if not options.as_json:
                print_line(truncate_line(memory_line("Remembered", memory)))
    if options.as_json:
        print_json({"memories": memories})


@proposals_command.command(
    "reject", epilog=examples('reverie proposals reject Ab3dE6gH --reason "it was a joke"')
)
@click.argument("ids", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", help="Why, for the log.")
@scope_options
def reject_command(options: CommonOptions, ids: tuple[str, ...], reason: str | None) -> None:
    """Reject a proposal: it is not remembered."""
    proposals = []
    with options.open_space() as space:
        for id in ids:
            proposal = space.reject(id, reason=reason)
            proposals.append(proposal)
            if not options.as_json:
                print_line(truncate_line(f"Rejected {proposal.id}: {to_line(proposal.content)}"))
    if options.as_json:
        print_json({"proposals": proposals})
