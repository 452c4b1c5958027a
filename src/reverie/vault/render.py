"""Render the vault's files: memories, sessions, summaries, and the index of an owner."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from typing import NamedTuple

from reverie.model import UNNAMED, Event, Memory, Scope, Summary
from reverie.prompt.profile import PEOPLE
from reverie.text import frontmatter
from reverie.text.normalize import one_line

Fields = dict[str, frontmatter.Value]
LINE_CHARS = 100
PROJECTS = ("project", "projects")
# Characters that mean something in a link between notes.
_NO_LINK = re.compile(r"[\[\]|#^]")
_WIKI_LINK = re.compile(r"\[\[([^\[\]|#^]+)(?:[|#^][^\[\]]*)?\]\]")
_NUMBER = re.compile(r"[0-9]{1,15}")


def format_time(ms: int) -> str:
    """Format milliseconds UTC as ISO 8601 with +00:00, to the millisecond."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def parse_number(text: str | None) -> int:
    """Parse a number in front matter; 0 for anything else, also for too many digits."""
    return int(text) if text and _NUMBER.fullmatch(text) else 0


def subject_link(subject: str, category: str) -> str:
    """Return a subject as a link between notes if it names a person or a project.

    Others are the names of attributes, such as "home", also of people: "birth year". One with a
    character that would end the link is returned as it is.
    """
    is_name = category in PROJECTS or (category in PEOPLE and not subject.islower())
    return f"[[{subject}]]" if is_name and not _NO_LINK.search(subject) else subject


def parse_subject(text: str) -> str:
    """Return the subject that a link, or a plain text, names."""
    found = _WIKI_LINK.fullmatch(text.strip())
    return found[1].strip() if found else text


def wiki_link(path: str, heading: str | None = None) -> str:
    """Return a link between notes to a file of the vault, or to a heading in it."""
    target = path.removesuffix(".md")
    return f"[[{target}]]" if heading is None else f"[[{target}#{heading}]]"


def memory_fields(memory: Memory, origin: str | None = None) -> Fields:
    """Return the front matter of a memory: the fields with a value, in a fixed order.

    ``origin`` is a link to the turn that it came from.
    """
    every: Mapping[str, object] = {
        "id": memory.id,
        "role": "memory",
        "conversation_id": memory.session,
        "created_at": format_time(memory.created_at),
        "version": memory.version,
        "kind": memory.kind,
        "category": memory.category,
        "subject": (
            None if memory.subject is None else subject_link(memory.subject, memory.category)
        ),
        "aliases": None if memory.subject is None else [memory.subject],
        "tags": list(memory.tags) or None,
        "source": memory.source,
        "origin": origin,
        "pinned": memory.pinned or None,
        "metadata": memory.metadata or None,
        "happened_at": None if memory.happened_at is None else format_time(memory.happened_at),
        "valid_from": None if memory.valid_from is None else format_time(memory.valid_from),
        "valid_to": None if memory.valid_to is None else format_time(memory.valid_to),
        "expires_at": None if memory.expires_at is None else format_time(memory.expires_at),
        "forgotten_at": None if memory.forgotten_at is None else format_time(memory.forgotten_at),
        "trust": memory.trust,
    }
    return {key: value for key, value in every.items() if value is not None}  # type: ignore[misc]


OURS = (
    "id", "role", "conversation_id", "created_at", "version", "kind", "category", "subject",
    "aliases", "tags", "source", "origin", "pinned", "metadata", "happened_at", "valid_from",
    "valid_to", "expires_at", "forgotten_at", "trust",
)  # fmt: skip


def memory_file(
    memory: Memory,
    before: bytes | None = None,
    origin: str | None = None,
    subjects: Container[str] = (),
) -> bytes:
    """Render the file of a memory, keeping keys that a person added to the file ``before``.

    ``subjects`` are those that the memory had: as aliases they are ours and not the person's.
    """
    fields = memory_fields(memory, origin)
    if before is None:
        return frontmatter.dump(fields, memory.content)
    document = frontmatter.load(before)
    own = [each for each in document.items("aliases") if each not in subjects]
    if own:
        fields["aliases"] = [*([memory.subject] if memory.subject else []), *own]
    written = {key: fields.get(key) for key in OURS if not _is_own(key, document)}
    return frontmatter.update(before, written, memory.content)


def _is_own(key: str, document: frontmatter.Document) -> bool:
    """Whether a person wrote something under one of our keys that cannot be read: it stays."""
    if key == frontmatter.METADATA_KEY:
        named = key in document.fields or key in document.unreadable_keys
        return named and key not in document.objects
    return key == "aliases" and key in document.unreadable_keys


def conflict_file(memory: Memory) -> bytes:
    """Render the conflict copy: the store's version of a memory edited on both sides."""
    fields = memory_fields(memory)
    own = fields.pop("id")
    return frontmatter.dump({"conflict_of": own, **fields}, memory.content)


# -- records --------------------------------------------------------------------------------------

# People are not meant to edit turns, summaries and indexes. A hash in the file shows whether
# somebody did, even without the file cache.
_CLOSING = b"---\n"
_SEAL = re.compile(rb"(?<![^\n])seal: s([0-9a-f]{16})\n\Z")


def add_seal(raw: bytes) -> bytes:
    """Add a hash to a file, by which a later edit is noticed."""
    front, rest = _parted(raw)
    return front + b"seal: s" + _mark(raw) + b"\n" + rest


def strip_seal(raw: bytes) -> bytes | None:
    """Return a sealed file without its seal; None when it was edited or has no seal."""
    front, rest = _parted(raw)
    found = _SEAL.search(front)
    if found is None:
        return None
    plain = front[: found.start()] + rest
    return plain if _mark(plain) == found[1] else None


def _parted(raw: bytes) -> tuple[bytes, bytes]:
    """Before and from the line that ends the front matter."""
    end = raw.find(b"\n" + _CLOSING, 0, frontmatter.MAX_BYTES) + 1
    return (raw[:end], raw[end:]) if raw.startswith(_CLOSING) and end else (b"", raw)


def _mark(raw: bytes) -> bytes:
    return sha256(raw).hexdigest()[:16].encode()


# -- conversations --------------------------------------------------------------------------------

_EVENT = re.compile(
    rb"<!-- event (\d{1,15}) (\S+) (\S+) (\d{1,15}) bytes(?: (interrupted))? -->\n\n?", re.ASCII
)


_TITLE = re.compile(rb"## (?:\d{1,15}\. )?\S+")


class EventBlock(NamedTuple):
    """An event, as a file of turns contains it."""

    sequence: int
    role: str
    at: str
    text: str
    interrupted: bool = False


def turns_head(session: str, forked_from: str | None, begun: int) -> bytes:
    """Render the front matter of a file of turns."""
    fields: Fields = {"id": session, "role": "turns", "conversation_id": session}
    fields["created_at"] = format_time(begun)
    if forked_from is not None:
        fields["forked_from"] = forked_from
    return frontmatter.dump(fields, "")[:-1]


def to_utf8_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode; the log keeps them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def event_block(event: Event) -> bytes:
    """Render an event: role, time and exact text, with its length, which says where it ends."""
    text = to_utf8_text(event.text).encode()
    role = _role(event.role)
    cut = " interrupted" if event.interrupted else ""
    mark = f"<!-- event {event.sequence} {role} {format_time(event.at)} {len(text)} bytes{cut} -->"
    title = turn_title(event.sequence, event.role)
    return f"## {title}\n\n{mark}\n\n".encode() + text + b"\n\n"


def turn_title(sequence: int, role: str) -> str:
    """Return the heading of an event, which no other event of its session has."""
    return f"{sequence}. {_role(role)}"


def _role(role: str) -> str:
    return re.sub(r"\W", "_", role) or "_"


def parse_events(raw: bytes) -> Iterator[EventBlock]:
    """Parse the events of a file of turns; with a wrong length, a text ends at the next mark."""
    for turn, _, _ in _blocks(raw):
        yield turn


def remove_events(raw: bytes, sequences: Container[int]) -> tuple[bytes, list[str]]:
    """Return a file of turns without these events, and their texts."""
    kept, said, at = b"", list[str](), 0
    for turn, start, end in _blocks(raw):
        if turn.sequence in sequences:
            kept, at = kept + raw[at:start], end
            said.append(turn.text)
    return kept + raw[at:], said


def _without_title(block: bytes) -> bytes:
    """The block without the title of the next event and the white space around it."""
    text = block.rstrip()
    before, _, last = text.rpartition(b"\n")
    return before.rstrip() if _TITLE.fullmatch(last) else text


def _blocks(raw: bytes) -> Iterator[tuple[EventBlock, int, int]]:
    """Yield each event with the offsets of its block."""
    at = 0
    while found := _EVENT.search(raw, at):
        sequence, role, time, length, cut = found.groups()
        end = found.end() + int(length)
        if raw[end : end + 2] not in {b"\n\n", b"\n", b""} or end > len(raw):
            following = _EVENT.search(raw, found.end())
            block = raw[found.end() : following.start() if following else len(raw)]
            end = found.end() + len(_without_title(block))
        text = raw[found.end() : end].decode("utf-8", "replace")
        turn = EventBlock(int(sequence), role.decode(), time.decode(), text, cut is not None)
        start = found.start()
        # Earlier versions wrote the role alone.
        for title in (b"## %s. %s\n\n" % (sequence, role), b"## %s\n\n" % role):
            if raw.endswith(title, 0, start):
                start -= len(title)
                break
        after = end + len(raw[end : end + 2]) if raw[end : end + 2] == b"\n\n" else end
        yield turn, start, after
        at = end


def turn_file(event: Event, session: str) -> bytes:
    """Render one event as a file of its own."""
    fields: Fields = {
        "id": f"{session}:{event.sequence}",
        "role": event.role,
        "conversation_id": session,
        "created_at": format_time(event.at),
    }
    if event.interrupted:
        fields["interrupted"] = True
    return add_seal(frontmatter.dump(fields, to_utf8_text(event.text)))


def summary_file(session: str, summary: Summary, at: int) -> bytes:
    """Render the file of a session's summary."""
    fields: Fields = {
        "id": f"{session}::summary",
        "role": "summary",
        "conversation_id": session,
        "created_at": format_time(at),
        "summary_kind": "summary",
        "version": summary.epoch,
        "covers_to": summary.upper,
    }
    return add_seal(frontmatter.dump(fields, summary.text))


# -- the index of an owner ------------------------------------------------------------------------


def index_file(
    scope: Scope,
    facts: int,
    notes: int,
    listed: Sequence[tuple[Memory, str]],
    *,
    has_sessions: bool,
) -> bytes:
    """Render the index of an owner: counts, and the profile with links to files."""
    who = "said without a name" if scope.user == UNNAMED else scope.user
    title = scope.space if who is None else f"{who} in {scope.space}"
    lines = [f"# What is remembered: {one_line(title)}", ""]
    places = ", ".join(
        f"{count} {name}{'' if count == 1 else 's'} in `{name}s/`"
        for name, count in (("fact", facts), ("note", notes))
    )
    if has_sessions:
        # Only an earlier version stored conversations as those of the space itself.
        earlier = "earlier " if scope.user is None else ""
        places += f", {earlier}conversations in `sessions/`"
    others = "what was forgotten is in `deleted/`."
    if scope.user is None:
        # Whether there are any is not said: the history of this file is shown to all users.
        others = f"conversations and what is known of each user are in `users/`, {others}"
    lines.append(f"{places}; {others}")
    lines += ["", "This file is written anew with every change; edit the memories themselves."]
    known, written = (
        [pair for pair in listed if (pair[0].kind == "note") is is_note]
        for is_note in (False, True)
    )
    for category, group in groupby(known, key=lambda pair: pair[0].category):
        lines += ["", f"## {category.replace('_', ' ').title()}", ""]
        lines += [f"- [{link_label(memory.content)}]({_link(path)})" for memory, path in group]
    if written:
        lines += ["", "## Notes", ""]
        lines += [f"- [{link_label(memory.content)}]({_link(path)})" for memory, path in written]
    if len(listed) < facts + notes:
        lines += ["", f"These are {len(listed)} of {facts + notes}."]
    fields: Fields = {"space": scope.space}
    if scope.user is not None:
        fields["user"] = scope.user
    return add_seal(frontmatter.dump(fields, "\n".join(lines)))


def first_line(content: str) -> str:
    """Shorten a content to the length of a commit's subject line."""
    text = one_line(content)
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 1].rstrip()}…"


def link_label(content: str) -> str:
    """Shorten a content to the label of a Markdown link, and escape it."""
    return re.sub(r"([\\\[\]<>`*_])", r"\\\1", first_line(content))


def _link(path: str) -> str:
    return re.sub(r"[ ()<>]", lambda found: f"%{ord(found[0]):02X}", path)
