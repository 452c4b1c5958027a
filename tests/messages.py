"""Messages for tests, and short ways to read what a store has of them."""

from __future__ import annotations

from typing import Any

from reverie import Origin, Session, Space
from reverie.write import events, proposals
from reverie.write.owners import NEW_MEMORY, session_target
from reverie.write.writer import WriteStamp, open_writer

Message = dict[str, Any]
HERE = Origin("s", 1)


def user(text: Any, **fields: Any) -> Message:
    return {"role": "user", "content": text, **fields}


def reply(text: Any, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def answer(id: str, text: str = "done") -> Message:
    """What a tool gave back."""
    return {"role": "tool", "tool_call_id": id, "content": text}


def conversation(*texts: str) -> list[Message]:
    """What the user said and what came back, in turn."""
    return [user(text) if at % 2 == 0 else reply(text) for at, text in enumerate(texts)]


def texts(session: Session) -> list[str]:
    return [event.text for event in session.events()]


def found(handle: Space | Session, query: str, **options: Any) -> set[str]:
    """What any mode finds."""
    hits = [handle.recall(query, limit=50, mode=m, **options) for m in ("keyword", "hybrid")]
    return {hit.text for part in hits for hit in part}


def propose(
    space: Space,
    content: str,
    origin: Origin = HERE,
    category: str = "general",
    subject: str | None = None,
) -> str:
    """The id of a new proposal, made as learning makes them."""
    with space.writer(session_target(origin.session)) as w:
        proposed = proposals.ProposedFact(content, category, subject, "rules")
        proposals.propose(w, origin, proposed, "heard it")
    return space.proposals()[-1].id


def append_as_shared(space: Space, session: str, *messages: dict[str, Any]) -> None:
    """Append messages as earlier versions did for a handle without a user: as the space's own."""
    prepared = events.prepare_messages(space.runtime, messages)
    with open_writer(space.runtime, space.author, NEW_MEMORY) as w:
        events.append(w, session, prepared, WriteStamp())
