"""Slash commands such as ``/memory list``, which the proxy answers itself, without a model.

Neither the command nor its answer is stored: a list of memories would be learned again, and a
deleted memory would live on in the message that confirms it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from reverie.errors import NotFound, ReverieError
from reverie.memory.space import Space
from reverie.model import Memory, Mode, Proposal
from reverie.prompt import consent
from reverie.prompt.escape import escape_line, escape_text, subject_prefix
from reverie.server.errors import public_detail
from reverie.text.messages import role_of, user_text
from reverie.text.normalize import one_line

COMMAND = "/memory"
VERBS = frozenset({"list", "search", "delete", "undo", "proposals", "keep", "drop", "help"})
WRITING_VERBS = frozenset({"delete", "undo", "keep", "drop"})
MAX_LISTED = 100
MAX_RESULTS = 10
MAX_NEAR = 3
NO_MEMORIES = "No memories stored yet."
USAGE = (
    "Usage: /memory list, /memory search <words>, /memory delete <id>, /memory undo, "
    "/memory proposals, /memory keep <id>, /memory drop <id>"
)
NO_PROPOSALS = "Nothing waits for your answer."
PROPOSALS_FOOTER = "Use /memory keep <id> or /memory drop <id>; several at once are fine."
ANSWER_HINT = 'They answer with "/memory keep ID" or "/memory drop ID".'
FOOTER = "Use /memory delete <id> to remove a memory."


def parse_command(message: Mapping[str, Any]) -> str | None:
    """Return what follows ``/memory`` in a message; None when it is not a command.

    A sentence may begin with ``/memory`` too: without a known verb it is for the model.
    """
    if role_of(message) != "user":
        return None
    word, *arguments = user_text(message).split(maxsplit=2) or [""]
    if word.lower() != COMMAND or (arguments and arguments[0].lower() not in VERBS):
        return None
    return " ".join(arguments).strip()


def strip_commands(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages without commands and the answers to them."""
    kept: list[Mapping[str, Any]] = []
    after_command = False
    for message in messages:
        is_command = parse_command(message) is not None
        if not is_command and not (after_command and role_of(message) == "assistant"):
            kept.append(message)
        after_command = is_command
    return kept


def run_command(space: Space, command: str, *, may_write: bool) -> str:
    """Run a command and return its answer, escaped: the client sends it to its model later."""
    return escape_text(_run_command(space, command, may_write=may_write))


def _run_command(space: Space, command: str, *, may_write: bool) -> str:
    verb, _, rest = command.partition(" ")
    rest = rest.strip()
    try:
        match verb.lower():
            case "search":
                return _search(space, rest)
            case verb if verb in WRITING_VERBS and not may_write:
                return "Error: this needs a token that may write, and X-Reverie-Mode: write."
            case "delete":
                return _delete(space, rest)
            case "undo":
                return _undo(space)
            case "proposals":
                return _proposals(space)
            case "keep" | "drop" as answer:
                return _answer(space, answer, rest)
            case "help":
                return USAGE
            case _:
                return _list(space)
    except ReverieError as error:
        return f"Error: {public_detail(error)}"


def _list(space: Space) -> str:
    memories = space.memories(order="category")
    if not memories:
        return NO_MEMORIES
    more = len(memories) - MAX_LISTED
    lines = ["📝 Your memories:"]
    for category, group in groupby(memories[:MAX_LISTED], key=lambda memory: memory.category):
        lines += ["", f"**{category.replace('_', ' ').title()}**", *map(_line, group)]
    if more > 0:
        lines += ["", f"… and {more} more: /memory search <words> finds them."]
    return "\n".join([*lines, "", FOOTER])


def _find_memories(space: Space, query: str, mode: Mode, limit: int) -> list[Memory]:
    hits = space.recall(query, limit=limit, kinds=("fact", "note"), mode=mode)
    return [hit.memory for hit in hits if hit.memory is not None]


def _search(space: Space, query: str) -> str:
    if not query:
        return "Usage: /memory search <words>"
    found = _find_memories(space, query, "keyword", MAX_RESULTS)
    head = f"🔎 Memories for '{one_line(query)}':"
    if not found:
        found = _find_memories(space, query, "hybrid", MAX_NEAR)
        head = f"No memories found for '{one_line(query)}'."
        head += " The nearest:" if found else ""
    return "\n".join([head, "", *map(_line, found), "", FOOTER]) if found else head


def _delete(space: Space, id: str) -> str:
    if not id:
        return "Usage: /memory delete <id>"
    # The list shows ids in brackets, so people copy them along.
    forgotten = space.forget(id.strip("[]"), reason="the user said /memory delete")
    return f"Deleted: '{one_line(forgotten.content)}'"


def _undo(space: Space) -> str:
    """Restore the memory that was forgotten last, among those this handle may write."""
    gone = [
        memory
        for memory in space.memories(include_forgotten=True)
        if memory.forgotten_at is not None and memory.user == space.user
    ]
    if not gone:
        return "Nothing to undo."
    latest = max(memory.forgotten_at or 0 for memory in gone)
    last = max(
        (memory for memory in gone if memory.forgotten_at == latest),
        key=lambda memory: space.history(memory.id)[-1].position,
    )
    return f"Restored: '{one_line(space.restore(last.id).content)}'"


# -- consent --------------------------------------------------------------------------------------


def proposal_notice(space: Space) -> str:
    """Return what to tell the model about proposals that wait for the person; empty if nothing."""
    if not consent.asks_first(space.runtime.settings.write_policy):
        return ""
    return consent.render_questions(space.proposals(), ANSWER_HINT)


def _proposals(space: Space) -> str:
    waiting = space.proposals()
    if not waiting:
        return NO_PROPOSALS
    more = len(waiting) - MAX_LISTED
    lines = [*map(_line, waiting[:MAX_LISTED])]
    if more > 0:
        lines.append(f"… and {more} more.")
    return "\n".join(["❔ Not remembered yet:", "", *lines, "", PROPOSALS_FOOTER])


def _answer(space: Space, answer: str, named: str) -> str:
    """Accept or reject the proposals that are named by their ids.

    A number in the list would name another proposal once one before it is erased, while the person
    still reads the old list.
    """
    names = [name.strip("[],.") for name in named.replace(",", " ").split()]
    if not names:
        return f"Usage: /memory {answer} <id>"
    waiting = {each.id: each for each in space.proposals()}
    chosen = []
    for name in names:
        proposal = waiting.get(name.lstrip("#"))
        if proposal is None:
            raise NotFound(f"no proposal {name} waits: /memory proposals shows those that do")
        chosen.append(proposal)
    return "\n".join([_answer_one(space, answer, each) for each in chosen])


def _answer_one(space: Space, answer: str, proposal: Proposal) -> str:
    if answer == "keep":
        return f"Remembered: '{one_line(space.accept(proposal.id).content)}'"
    rejected = space.reject(proposal.id, reason="the user said /memory drop")
    return f"Dropped: '{one_line(rejected.content)}'"


def _line(shown: Memory | Proposal) -> str:
    return f"• [{shown.id}] {subject_prefix(shown.subject)}{escape_line(shown.content)}"


# -- the answer in OpenAI's formats ---------------------------------------------------------------


def completion(text: str, model: object, made_at: int, id: str) -> dict[str, Any]:
    """Build a chat completion that says ``text``."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": None,
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return _completion_head("chat.completion", model, made_at, id) | {
        "choices": [choice],
        "usage": usage,
    }


def completion_chunks(text: str, model: object, made_at: int, id: str) -> Iterator[bytes]:
    """Build the server-sent events of a streamed completion that says ``text``."""
    head = _completion_head("chat.completion.chunk", model, made_at, id)
    message = {"role": "assistant", "content": text}
    for delta, end in ((message, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}
        yield b"data: " + json.dumps(head | {"choices": [choice]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def _completion_head(kind: str, model: object, made_at: int, id: str) -> dict[str, Any]:
    name = model if isinstance(model, str) else "reverie"
    return {"id": f"chatcmpl-{id}", "object": kind, "created": made_at, "model": name}
