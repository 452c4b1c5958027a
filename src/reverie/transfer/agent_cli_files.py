"""Read the files of agent-cli's memory: their layout, and their content.

``entries/<conversation>/facts/…``, ``turns/<role>/…`` and ``summaries/summary.md``; what was
deleted below ``entries/<conversation>/deleted/…``, or ``entries/deleted/<conversation>/…``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reverie.dates import to_ms
from reverie.errors import InvalidInput
from reverie.protocols import ReportLine
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalize import one_line, require_name
from reverie.transfer.import_ import derived_id, derived_uuid

ENTRIES = "entries"
MAX_BYTES = 64 * 1024 * 1024
# What is said in these is for all conversations.
GLOBAL_CONVERSATIONS = frozenset({"global", "default"})
_DELETED = "deleted"
_KINDS = {"facts": "memory", "turns": "user", "summaries": "summary"}
_SPEAKERS = frozenset({"user", "assistant", "system", "tool"})
_OWN_KEYS = frozenset(
    {"id", "role", "conversation_id", "created_at", "summary_kind", "replaced_by", "source_id"}
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)[-:](\d\d)[-:](\d\d)(\.\d{1,6})?")
MAX_NAME_CHARS = 200


class AgentCliFile(NamedTuple):
    """One file of agent-cli. ``role`` is memory, summary, or the role of who said it."""

    path: str
    raw: bytes
    role: str
    conversation: str
    deleted: bool
    uuid: str
    created_at: int
    content: str
    replaced_by: str | None
    source: str | None
    more: dict[str, str]

    @property
    def session(self) -> str | None:
        """The session that a fact belongs to; None: it is the space's own."""
        return None if self.conversation in GLOBAL_CONVERSATIONS else self.conversation


class _AgentCliPath(NamedTuple):
    conversation: str
    kind: str
    deleted: bool


def read_files(root: Path, report: ReportLine) -> Iterator[AgentCliFile]:
    """Yield every file that can be read, and report the others. Links are not followed."""
    for path in sorted((root / ENTRIES).rglob("*.[mM][dD]")):
        name = path.relative_to(root).as_posix()
        try:
            if path.is_symlink() or not path.is_file():
                raise InvalidInput("it is not a regular file")
            found = path.stat()
            if found.st_size > MAX_BYTES:
                raise InvalidInput(f"it is larger than {MAX_BYTES >> 20} MB")
            yield parse_file(name, path.read_bytes(), found.st_mtime_ns // 1_000_000)
        except (OSError, InvalidInput) as error:
            report(f"{name}: {one_line(str(error))}")


def memory_id(uuid: str) -> str:
    """Return the id that a memory of agent-cli gets in the store."""
    return derived_id(f"agent-cli:{uuid}")


def parse_file(path: str, raw: bytes, written_at: int = 0) -> AgentCliFile:
    """Parse a file; InvalidInput when it is not one of agent-cli's."""
    document = frontmatter.load(raw)
    if document.broken:
        raise InvalidInput("; ".join(document.problems))
    if not one_line(document.content):
        raise InvalidInput("it is empty")
    place = _place(path)
    conversation = require_name(
        document.text("conversation_id") or place.conversation,
        "the name of a conversation",
        MAX_NAME_CHARS,
    )
    role = document.text("role") or place.kind
    if role not in _SPEAKERS:
        role = "summary" if role == "summary" or place.kind == "summary" else "memory"
    id = (document.text("id") or "").lower()
    # A summary has the same id whatever it says, and a person's file may have none.
    other = f"agent-cli\0{conversation}\0{id}\0{document.content}"
    return AgentCliFile(
        path,
        raw,
        role,
        conversation,
        place.deleted,
        id if _UUID.fullmatch(id) else derived_uuid(other),
        _created(path, document, written_at),
        document.content,
        document.text("replaced_by") or None,
        (document.text("source_id") or "").lower() or None,
        {key: document.text(key) or "" for key in document.fields if key not in _OWN_KEYS},
    )


def _place(path: str) -> _AgentCliPath:
    """Parse a path below ``entries``; a conversation may itself be called ``deleted``."""
    rest = path.split("/")[1:]
    deleted = False
    if rest[0] == _DELETED and len(rest) > 2 and rest[1] not in _KINDS:
        deleted, rest = True, rest[1:]
    conversation, rest = (rest[0], rest[1:]) if len(rest) > 1 else ("default", rest)
    if rest[0] == _DELETED and len(rest) > 1:
        deleted, rest = True, rest[1:]
    kind = _KINDS.get(rest[0], "memory") if len(rest) > 1 else "memory"
    if rest[0] == "turns" and len(rest) > 2 and rest[1] in _SPEAKERS:
        kind = rest[1]
    return _AgentCliPath(conversation, kind, deleted)


def _created(path: str, document: Document, written_at: int) -> int:
    """Return when a file was created: by its front matter, its name, or its modification time."""
    named = _STAMP.match(path.rpartition("/")[2])
    spelled = document.text("created_at") or ""
    if named is not None:
        day, hour, minute, second, part = named.groups()
        spelled = spelled or f"{day}T{hour}:{minute}:{second}{part or ''}+00:00"
    try:
        return to_ms(spelled, "created_at")
    except InvalidInput:
        return written_at
