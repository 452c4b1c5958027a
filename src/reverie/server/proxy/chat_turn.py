"""One turn of a chat through the proxy: whose it is, what is kept of it, what is recalled for it.

What the client sends is stored before any model sees it; the reply when it is whole, or what came
of it. Only what the client and the model said is stored, never what was put into the prompt.
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
# Open WebUI names its chats and users so when it is told to forward them.
OPEN_WEBUI_CHAT_HEADER, OPEN_WEBUI_USER_HEADER = "x-openwebui-chat-id", "x-openwebui-user-id"
MAX_HITS = 100


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What one request wants of memory. ``limit`` 0: nothing recalled, nothing put in."""

    limit: int | None = None
    recency_weight: float | None = None
    score_threshold: float | None = None

    def ranking(self, name: str) -> Ranking:
        """The ranking of this name, with what the request says otherwise."""
        asked = {
            "recency_weight": self.recency_weight,
            "score_threshold": self.score_threshold,
        }
        given = {field: value for field, value in asked.items() if value is not None}
        return replace(RANKINGS[name], **cast(dict[str, Any], given))


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A turn that has begun. ``session`` None: nothing of it is kept."""

    space: Space
    history: Sequence[Mapping[str, Any]]
    session: Session | None
    prompt_additions: PromptAdditions

    def keep(self, reply: Mapping[str, Any], *, is_complete: bool) -> None:
        """Store what the assistant said; the same reply to the same history is stored once.

        The client may be a turn further already, or have asked twice at once: where the reply
        belongs is found again.
        """
        if self.session is None:
            return
        reached = self.session.matched_sequence
        if reached is not None:
            with contextlib.suppress(SequenceConflict):
                self.session.append(reply, sequence=reached + 1, interrupted=not is_complete)
                return
        fork = self.session.forked_from
        known = self.session.id if fork is None else fork.session
        if is_complete:
            self.space.follow([*self.history, reply], session=known)
        else:
            self.space.follow(self.history, session=known).append(reply, interrupted=True)


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
    """Our own headers win; then the body, as agent-cli and OpenAI's clients fill it.

    A user of ours that was left blank is not everyone: it is no name, and refused as such.
    """
    session = _text_field(fields, "memory_id") or headers.get(OPEN_WEBUI_CHAT_HEADER)
    user = fields.get("user")
    user = user if isinstance(user, str) else None
    guessed = user or headers.get(OPEN_WEBUI_USER_HEADER) or None
    return RequestedScope(
        given.space,
        guessed if given.user is None else given.user,
        given.session or session or None,
    )


def _text_field(fields: Mapping[str, Any], field: str) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise HttpProblem(400, "Invalid value", f"{field} must be text, not {value!r}")
    return value


def is_client_task(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a chat program asks for something of its own: a title, tags, what to ask next.

    It quotes the conversation then; nobody says anything.
    """
    asked = user_text(messages[-1]).lstrip() if messages else ""
    return asked.startswith("### Task:") and "<chat_history>" in asked


def begin_turn(
    space: Space,
    messages: Sequence[Mapping[str, Any]],
    session: str | None,
    wish: MemoryOptions,
    ranking: str,
    *,
    store: bool,
) -> ChatTurn:
    """Store what is new, then look for what the model should know."""
    history = commands.strip_commands(messages)
    found = space.follow(history, session=session) if store else space.session(session)
    additions = PromptAdditions()
    if wish.limit != 0:
        additions = found.prompt_additions(
            last_user_text(messages), limit=wish.limit, ranking=wish.ranking(ranking), freeze=store
        )
    return ChatTurn(space, history, found if store else None, additions)


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the user said last."""
    said = (user_text(message) for message in reversed(messages))
    return next((text for text in said if text), "")


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """A hit as agent-cli's clients know it, with its id."""
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
