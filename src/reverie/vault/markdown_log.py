"""Make log records from a vault's Markdown files, where the vault's own log has lost entries."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import Any, NamedTuple

from reverie.clock import ID_LENGTH
from reverie.dates import to_ms
from reverie.errors import InvalidInput, ReverieError
from reverie.model import KINDS, Scope, Summary
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import clean_tags, concept_tags
from reverie.transfer import export
from reverie.transfer.import_ import derived_uuid
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import (
    disk,
    edits,
    layout,
    names,
    render,
)
from reverie.vault.layout import ParsedPath
from reverie.vault.vault import Vault
from reverie.write import session_state

ACTOR = "vault"
LOST = "the log of the vault was lost: its file told it"
LOST_VERSION = "what this version said was lost"
_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")
_TURN_ID = re.compile(r"(?P<session>.*):(?P<sequence>[1-9][0-9]{0,14})", re.DOTALL)

Report = Callable[[str], None]
Record = dict[str, Any]


class MarkdownFile(NamedTuple):
    """A Markdown file of the vault, parsed."""

    path: str
    place: ParsedPath
    raw: bytes


@dataclass
class MarkdownSession:
    """The turns of one session by sequence, as its files show them."""

    scope: Scope
    session: str
    path: str
    hidden: bool = False
    forked_from: tuple[str, int] | None = None
    turns: dict[int, render.EventBlock] = field(default_factory=dict)


def load_names(vault: Vault) -> None:
    """Record the full names of shortened folders, from the front matter of files below them."""
    for path in _markdown(vault):
        if not any(names.is_truncated(part) for part in path.split("/")[:-1]):
            continue
        document = _document(vault, path)
        if path.endswith(f"/{layout.INDEX}") and (space := document.text("space")):
            vault.record_names(Scope(space, document.text("user")))
        if f"/{layout.SESSIONS}/" in path and (session := document.text("conversation_id")):
            vault.record_names(Scope(session))


def read_files(vault: Vault, *what: str) -> Iterator[MarkdownFile]:
    """Yield the files of one type, or all without ``what``, of the spaces that the vault shows.

    Files that cannot be read are skipped; a sync reports them.
    """
    for path in sorted(_markdown(vault)):
        place = vault.parse_path(path)
        if place is None or not vault.config.shows(place.scope.space):
            continue
        if not what or place.what in what:
            with contextlib.suppress(ReverieError):
                yield MarkdownFile(path, place, _with_our_line_ends(disk.read(vault.path(path))))


def _with_our_line_ends(raw: bytes) -> bytes:
    """Convert CRLF to LF in a file that git converted as a whole on Windows."""
    return raw.replace(b"\r\n", b"\n") if raw.startswith(b"---\r\n") else raw


def _markdown(vault: Vault) -> list[str]:
    return [path for path, _ in disk.walk(vault.root, vault.root) if path.lower().endswith(".md")]


def _document(vault: Vault, path: str) -> Document:
    try:
        return frontmatter.load(disk.read(vault.root / path))
    except disk.UnreadableFile:
        return Document({}, "", broken=True)


# -- memories -------------------------------------------------------------------------------------


def memory_id(document: Document) -> str | None:
    """Return the id in a file's front matter; a person's new file has none."""
    id = document.text("id") or ""
    return id if not document.broken and _ID.fullmatch(id) else None


def memory_records(
    seen: MarkdownFile, document: Document, now: int, report: Report
) -> list[ReplayRecord]:
    """Return records for the memory of a file: its current state, and a forget if need be."""
    id = memory_id(document)
    if id is None or not one_line(document.content):
        return []
    times = {
        name: _time(document, name, lambda why: report(f"{seen.path}: {why}"))
        for name in ("created_at", "happened_at", "expires_at", "forgotten_at")
    }
    created = now if times["created_at"] is None else times["created_at"]
    forgotten = times["forgotten_at"]
    body = _body(seen, document) | times | {"created_at": created, "updated_at": created}
    living = _record(seen, id, "remember", 1, created, body)
    living["body"] = body | {"forgotten_at": None}
    records = [living]
    if forgotten is not None:
        records.append(_record(seen, id, "forget", 2, forgotten, body))
    return [ReplayRecord(seen.place.scope, record, seen.path) for record in records]


def lost_version_record(beside: Mapping[str, Any], version: int, at: int) -> Record:
    """Return a record that replaces a lost version, with the content of a neighbouring one."""
    body = beside["body"]
    if body is not None and version < beside["version"]:
        body = {**body, "forgotten_at": None}
    return {
        **beside,
        "op": "remember" if version == 1 else "revise",
        "version": version,
        "uuid": derived_uuid(f"{beside['uuid']}\0{version}"),
        "recorded_at": at,
        "reason": LOST_VERSION,
        "origin": None,
        "key": None,
        "request": None,
        "body": body,
    }


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
    }


def _tags(asked: list[str]) -> tuple[str, ...]:
    try:
        return clean_tags(asked)
    except InvalidInput:
        return ()


def _record(
    seen: MarkdownFile, id: str, op: str, version: int, recorded_at: int, body: Record
) -> Record:
    said = f"{seen.place.scope.space}\0{seen.place.scope.user}\0{id}\0{version}\0{body['content']}"
    return {
        "reverie": export.FORMAT,
        "op": op,
        "memory": id,
        "version": version,
        "uuid": derived_uuid(said),
        "recorded_at": recorded_at,
        "actor": ACTOR,
        "trust": body["trust"],
        "reason": LOST,
        "body": body,
    }


def _time(document: Document, name: str, report: Report) -> int | None:
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
        if seen.place.what != "turns" or seen.place.session is None:
            continue
        name = (seen.place.scope, seen.place.session)
        one = found.setdefault(name, MarkdownSession(*name, seen.path))
        one.hidden = seen.place.deleted
        document = frontmatter.load(seen.raw)
        if f"/{layout.TURNS}/" in seen.path:
            turns = _turn_apart(seen, document)
        else:
            turns = list(render.parse_events(seen.raw))
            one.forked_from = one.forked_from or _forked_from(document)
        for turn in turns:
            one.turns.setdefault(turn.sequence, turn)
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


def event_record(one: MarkdownSession, turn: render.EventBlock, now: int) -> ReplayRecord:
    """Return the record of an event for a turn in a file."""
    try:
        at = to_ms(turn.at, "at")
    except InvalidInput:
        at = now
    body: Record = {"message": {"role": turn.role, "content": turn.text}, "at": at}
    if turn.interrupted:
        body["interrupted"] = True
    begins = turn.sequence == min(one.turns)
    record = _about(one, "append", at, body, turn.sequence)
    record["origin"] = one.forked_from if begins else None
    return ReplayRecord(one.scope, record, one.path)


def visibility_record(one: MarkdownSession, op: str, at: int) -> ReplayRecord:
    """Return a record that hides or restores a session."""
    return ReplayRecord(one.scope, _about(one, op, at, {}), one.path)


def _about(
    one: MarkdownSession, op: str, at: int, body: Record, sequence: int | None = None
) -> Record:
    whose = f"{one.scope.space}\0{one.scope.user}\0{one.session}\0{sequence}"
    return {
        "reverie": export.FORMAT,
        "op": op,
        "session": one.session,
        "sequence": sequence,
        "uuid": derived_uuid(f"{whose}\0{op}\0{at}\0{body}"),
        "recorded_at": at,
        "actor": ACTOR,
        "trust": "person",
        "reason": LOST,
        "origin": None,
        "body": body,
    }


def session_records(one: MarkdownSession, now: int) -> list[ReplayRecord]:
    """Return the records of a session from its files, ordered by sequence and not by time."""
    told = [event_record(one, one.turns[sequence], now) for sequence in sorted(one.turns)]
    if one.hidden and told:
        told.append(visibility_record(one, "hide", max(each.recorded_at for each in told)))
    return told


def merge_by_time(told: Iterable[Iterable[ReplayRecord]]) -> list[ReplayRecord]:
    """Merge the records of several files by time; those of each file stay in their order."""
    return list(merge(*told, key=lambda each: each.recorded_at))


def parse_summary(seen: MarkdownFile) -> Summary | None:
    """Parse the file of a summary: text, epoch and last sequence covered; else InvalidInput."""
    document = frontmatter.load(seen.raw)
    if document.broken or not document.content.strip():
        return None
    epoch, upper = (render.parse_number(document.text(name)) for name in ("version", "covers_to"))
    return Summary(session_state.check_summary(document.content, upper), max(epoch, 1), upper)
