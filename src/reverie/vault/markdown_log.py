"""Make log records from a vault's Markdown files, for what the vault's own log does not have."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reverie.clock import ID_LENGTH
from reverie.dates import to_ms
from reverie.errors import InvalidInput, ReverieError
from reverie.model import KINDS, Scope, Summary
from reverie.protocols import ReportLine
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import clean_tags, concept_tags
from reverie.transfer import export
from reverie.transfer.import_ import derived_uuid
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import disk, edits, layout, render
from reverie.vault.actions import ACTOR, IMPORTED
from reverie.vault.layout import Folders, ParsedPath, origin_scopes
from reverie.vault.vault import Vault
from reverie.write import session_state

_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")
_TURN_ID = re.compile(r"(?P<session>.*):(?P<sequence>[1-9][0-9]{0,14})", re.DOTALL)

# The sequence of an event: at the start of its heading, and at the end of the name of its file.
_SEQUENCE = re.compile(r"([1-9][0-9]{0,14})\. ")
_SEQUENCE_NAME = re.compile(r"__0*([1-9][0-9]{0,14})\Z")

_VALIDITY = ("valid_from", "valid_to")

Record = dict[str, Any]


class MarkdownFile(NamedTuple):
    """A Markdown file of the vault, parsed."""

    path: str
    place: ParsedPath
    raw: bytes


@dataclass
class MarkdownSession:
    """The turns of one session by sequence, as its files show them, and the file of each.

    ``deleted`` says whether the files are in ``deleted/``; some may be and others not.
    """

    scope: Scope
    session: str
    deleted: set[bool] = field(default_factory=set)
    forked_from: tuple[str, int] | None = None
    turns: dict[int, tuple[str, render.EventBlock]] = field(default_factory=dict)


def read_files(vault: Vault, what: str) -> Iterator[MarkdownFile]:
    """Yield the files of one type, of the spaces that the vault shows.

    Files that cannot be read are skipped; a sync reports them.
    """
    for path in sorted(_markdown(vault)):
        place = vault.folders.parse(path)
        if place is not None and place.what == what and vault.config.shows(place.scope.space):
            with contextlib.suppress(ReverieError):
                yield MarkdownFile(path, place, _with_our_line_ends(disk.read(vault.path(path))))


def _with_our_line_ends(raw: bytes) -> bytes:
    """Convert CRLF to LF in a file that git converted as a whole on Windows."""
    return raw.replace(b"\r\n", b"\n") if raw.startswith(b"---\r\n") else raw


def _markdown(vault: Vault) -> list[str]:
    return [path for path, _ in disk.walk(vault.root, vault.root) if path.lower().endswith(".md")]


# -- memories -------------------------------------------------------------------------------------


def memory_id(document: Document) -> str | None:
    """Return the id in a file's front matter; a person's new file has none."""
    id = document.text("id") or ""
    return id if not document.broken and _ID.fullmatch(id) else None


def memory_record(
    seen: MarkdownFile, document: Document, id: str, now: int, folders: Folders, report: ReportLine
) -> ReplayRecord:
    """Return a record that remembers the memory of a file as it is, forgotten or not."""
    times = {
        name: _time(document, name, lambda why: report(f"{seen.path}: {why}"))
        for name in ("created_at", "happened_at", "expires_at", "forgotten_at", *_VALIDITY)
    }
    # Fields of later versions are in a log entry only where they are set.
    times = {name: at for name, at in times.items() if at is not None or name not in _VALIDITY}
    created = now if times["created_at"] is None else times["created_at"]
    body = _body(seen, document) | times | {"created_at": created, "updated_at": created}
    subject = {"op": "remember", "memory": id, "version": 1, "trust": body["trust"]}
    subject["origin"] = _origin(seen.place.scope, document, folders)
    return _record(seen.place.scope, seen.path, created, subject, body)


def _origin(scope: Scope, document: Document, folders: Folders) -> tuple[str, int] | None:
    """Return the event that the link in a memory's file leads to."""
    path, _, heading = (document.text("origin") or "").strip("[]").partition("#")
    place = folders.parse(f"{path}.md")
    found = _SEQUENCE.match(heading) or _SEQUENCE_NAME.search(path)
    if place is None or place.session is None or found is None:
        return None
    return (place.session, int(found[1])) if place.scope in origin_scopes(scope) else None


def _body(seen: MarkdownFile, document: Document) -> Record:
    kind, asked = document.text("kind") or seen.place.kind, edits.parse_labels(document)
    return {
        "kind": kind if kind in KINDS else "note",
        "content": document.content,
        "category": category_slug(asked["category"]),
        "subject": one_line(asked["subject"] or "") or None,
        "tags": list(_tags(asked["tags"])),
        "concept_tags": list(concept_tags(document.content)),
        "session": seen.place.session,
        "source": document.text("source") or None,
        "trust": edits.parse_trust(document),
        "pinned": asked["pinned"],
        **({"metadata": asked["metadata"]} if asked["metadata"] else {}),
    }


def _tags(asked: list[str]) -> tuple[str, ...]:
    try:
        return clean_tags(asked)
    except InvalidInput:
        return ()


def _record(scope: Scope, where: str, at: int, subject: Record, body: Record) -> ReplayRecord:
    identity = f"{scope.space}\0{scope.user}\0{sorted(subject.items())}\0{body}"
    record = {
        "reverie": export.FORMAT,
        "uuid": derived_uuid(identity),
        "recorded_at": at,
        "actor": ACTOR,
        "reason": IMPORTED,
        "body": body,
        **subject,
    }
    return ReplayRecord(scope, record, where)


def _time(document: Document, name: str, report: ReportLine) -> int | None:
    value = document.text(name)
    if not value:
        return None
    try:
        return to_ms(value, name)
    except InvalidInput as error:
        report(str(error))
        return None


# -- conversations --------------------------------------------------------------------------------


def read_sessions(files: Iterable[MarkdownFile]) -> list[MarkdownSession]:
    """Read the sessions whose turns are in these files."""
    found: dict[tuple[Scope, str], MarkdownSession] = {}
    for seen in files:
        if seen.place.session is None:
            continue
        name = (seen.place.scope, seen.place.session)
        one = found.setdefault(name, MarkdownSession(*name))
        one.deleted.add(seen.place.deleted)
        document = frontmatter.load(seen.raw)
        if f"/{layout.TURNS}/" in seen.path:
            turns = _turn_apart(seen, document)
        else:
            turns = list(render.parse_events(seen.raw))
            one.forked_from = one.forked_from or _forked_from(document)
        for turn in turns:
            one.turns.setdefault(turn.sequence, (seen.path, turn))
    return list(found.values())


def _turn_apart(seen: MarkdownFile, document: Document) -> list[render.EventBlock]:
    named = _TURN_ID.fullmatch(document.text("id") or "")
    if document.broken or named is None or named["session"] != seen.place.session:
        return []
    role, at = document.text("role") or "user", document.text("created_at") or ""
    cut = (document.text("interrupted") or "") == "true"
    return [render.EventBlock(int(named["sequence"]), role, at, document.content, cut)]


def _forked_from(document: Document) -> tuple[str, int] | None:
    named = _TURN_ID.fullmatch(document.text("forked_from") or "")
    return None if named is None else (named["session"], int(named["sequence"]))


def event_record(one: MarkdownSession, sequence: int, now: int) -> ReplayRecord:
    """Return the record of an event for a turn in a file."""
    path, turn = one.turns[sequence]
    try:
        at = to_ms(turn.at, "at")
    except InvalidInput:
        at = now
    body: Record = {"message": {"role": turn.role, "content": turn.text}, "at": at}
    if turn.interrupted:
        body["interrupted"] = True
    subject: Record = {"op": "append", "session": one.session, "sequence": sequence}
    begins = sequence == min(one.turns)
    subject |= {"trust": "person", "origin": one.forked_from if begins else None}
    return _record(one.scope, path, at, subject, body)


def parse_summary(seen: MarkdownFile) -> Summary | None:
    """Parse the file of a summary: text, epoch and last sequence covered; else InvalidInput."""
    document = frontmatter.load(seen.raw)
    if document.broken or not document.content.strip():
        return None
    epoch, upper = (render.parse_number(document.text(name)) for name in ("version", "covers_to"))
    return Summary(session_state.check_summary(document.content, upper), max(epoch, 1), upper)
