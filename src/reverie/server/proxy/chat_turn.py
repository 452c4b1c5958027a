"""One chat turn through the proxy: its scope, what is stored of it, and what is recalled for it.

What the client sends is stored before any model sees it; the reply when it has ended, or as much as
arrived. Only what the client and the model said is stored, never what Reverie added to the prompt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from reverie.dates import to_iso
from reverie.errors import SequenceConflict
from reverie.memory.session import Session
from reverie.memory.space import Space
from reverie.model import RANKINGS, Hit, PromptAdditions, Ranking
from reverie.server.access import RequestedScope
from reverie.server.errors import HttpProblem
from reverie.server.proxy import commands
from reverie.text.messages import user_text

ProxyMode = Literal["off", "read", "write"]
MODE_HEADER = "x-reverie-mode"
# The headers of Open WebUI, if it is configured to forward chat and user ids.
OPEN_WEBUI_CHAT_HEADER, OPEN_WEBUI_USER_HEADER = "x-openwebui-chat-id", "x-openwebui-user-id"
MAX_HITS = 100


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The ``memory_…`` fields of a request. ``limit`` 0: recall nothing and add nothing."""

    limit: int | None = None
    recency_weight: float | None = None
    score_threshold: float | None = None

    def ranking(self, name: str) -> Ranking:
        """Return the ranking of this name, changed by what the request gives."""
        requested = {
            "recency_weight": self.recency_weight,
            "score_threshold": self.score_threshold,
        }
        given = {field: value for field, value in requested.items() if value is not None}
        return replace(RANKINGS[name], **cast(dict[str, Any], given))


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A turn whose messages are stored and whose reply is awaited.

    ``session`` None: nothing of the turn is stored.
    """

    space: Space
    history: Sequence[Mapping[str, Any]]
    session: Session | None
    prompt_additions: PromptAdditions

    def store_reply(self, reply: Mapping[str, Any], *, is_complete: bool) -> None:
        """Store what the assistant said; the same reply to the same history is stored once.

        If the session has grown meanwhile, because the client sent the next turn or the same one
        twice, the place of the reply is found again by its history.
        """
        if self.session is None:
            return
        matched = self.session.matched_sequence
        if matched is not None:
            with contextlib.suppress(SequenceConflict):
                self.session.append(reply, sequence=matched + 1, interrupted=not is_complete)
                return
        fork = self.session.forked_from
        session_id = self.session.id if fork is None else fork.session
        if is_complete:
            self.space.follow([*self.history, reply], session=session_id)
        else:
            session = self.space.follow(self.history, session=session_id)
            session.append(reply, interrupted=True)


def parse_mode(headers: Mapping[str, str]) -> ProxyMode:
    mode = headers.get(MODE_HEADER, "write").strip().lower()
    if mode not in get_args(ProxyMode):
        raise HttpProblem(
            400, "Invalid mode", f"{MODE_HEADER} must be off, read or write, not {mode!r}"
        )
    return cast(ProxyMode, mode)


def parse_memory_options(fields: Mapping[str, Any]) -> MemoryOptions:
    limit = fields.get("memory_top_k")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise HttpProblem(
            400, "Invalid value", f"memory_top_k must be a whole number from 0, not {limit!r}"
        )
    numbers = {}
    for name in ("recency_weight", "score_threshold"):
        value = fields.get(f"memory_{name}")
        if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
            raise HttpProblem(
                400, "Invalid value", f"memory_{name} must be a number, not {value!r}"
            )
        numbers[name] = value
    return MemoryOptions(None if limit is None else min(limit, MAX_HITS), **numbers)


def resolve_scope(
    fields: Mapping[str, Any], headers: Mapping[str, str], given: RequestedScope
) -> RequestedScope:
    """Find the scope of a chat: first in Reverie's own headers, then in the body.

    agent-cli names the session as ``memory_id``, OpenAI's clients the user as ``user``. A blank
    user in Reverie's own header is kept, and refused later: it must not come to mean everyone.
    """
    session = _text_field(fields, "memory_id") or headers.get(OPEN_WEBUI_CHAT_HEADER)
    user = fields.get("user")
    user = user if isinstance(user, str) else None
    client_user = user or headers.get(OPEN_WEBUI_USER_HEADER) or None
    return RequestedScope(
        given.space,
        client_user if given.user is None else given.user,
        given.session or session or None,
    )


def _text_field(fields: Mapping[str, Any], field: str) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise HttpProblem(400, "Invalid value", f"{field} must be text, not {value!r}")
    return value


def is_client_task(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a chat program asks for a title, tags or follow-up questions for itself.

    Such a request only quotes the conversation, so nothing of it is stored.
    """
    text = user_text(messages[-1]).lstrip() if messages else ""
    return text.startswith("### Task:") and "<chat_history>" in text


def begin_turn(
    space: Space,
    messages: Sequence[Mapping[str, Any]],
    session: str | None,
    options: MemoryOptions,
    ranking: str,
    *,
    store: bool,
) -> ChatTurn:
    """Store the new messages, then recall what the model should know."""
    history = commands.strip_commands(messages)
    handle = space.follow(history, session=session) if store else space.session(session)
    additions = PromptAdditions()
    if options.limit != 0:
        additions = handle.prompt_additions(
            last_user_text(messages),
            limit=options.limit,
            ranking=options.ranking(ranking),
            freeze=store,
        )
    return ChatTurn(space, history, handle if store else None, additions)


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last user message that has any."""
    texts = (user_text(message) for message in reversed(messages))
    return next((text for text in texts if text), "")


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """Return a hit with the fields that agent-cli's clients expect, and its id."""
    event, memory = hit.event, hit.memory
    if event is not None:
        role, at = event.role, event.at
    else:
        assert memory is not None
        role, at = "memory", memory.created_at
    return {
        "id": hit.id,
        "role": role,
        "content": hit.text,
        "created_at": to_iso(at),
        "score": hit.score,
    }
