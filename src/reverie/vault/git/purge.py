"""Remove erased content from the history of the vault's git repository, and check that it is gone.

The vault's own log names what was erased: entries without a body, or with an overwritten content.
Older commits still have the content of these entries; it is removed from files, commit messages and
file names.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from reverie.engine.log import OVERWRITTEN_REASON
from reverie.engine.sqlite.store_file import sample_substrings
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.frontmatter import Document
from reverie.text.messages import text_of
from reverie.text.normalize import SURROGATE, one_line
from reverie.vault import (
    disk,
    layout,
    log_file,
    names,
    render,
)
from reverie.vault.git.repo import Repository
from reverie.vault.git.rewrite import read_contents, rewrite
from reverie.vault.git.search import find_bytes, find_files_with, find_in_other_trees
from reverie.vault.layout import ParsedPath
from reverie.vault.state import Name
from reverie.vault.vault import Vault

ERASED = "(erased)"
# A shorter text is not searched for: it may be part of other words.
LONG = 16
_CHANGE = re.compile(
    r"^(?P<before>(?:- |[^:\n]{1,200}: )?)(?P<said>.*)\((?P<op>\w+) (?P<id>\w+)\)$", re.M
)
_CUT_END = re.compile(r"( \(\w*( \w*)?)?…\Z")
_LINK = re.compile(rb"^- \[(.*)\]\(([^()\s]+)\)")
_LOG = re.compile(rf"{re.escape(layout.STATE_FOLDER)}/log(-\d{{6,}})?\.jsonl")
_ASIDE = f"{layout.STATE_FOLDER}/{log_file.DAMAGED_FILE}"
# What may follow the words in the name of a file: the id of a memory in older vaults, a copy.
_FORMER_ID = re.compile(r"(?:--\w+)?(?:\.conflict-v[\d-]+)?\.md\Z")
_TURN = re.compile(r".*:([1-9]\d{0,14})", re.DOTALL)


@dataclass
class ErasedEntries:
    """The entries that the store erased, and those whose content was overwritten."""

    lines: dict[Name, log_file.LogLine] = field(default_factory=dict)
    """Entries by their uuid, as they are now."""
    memories: set[Name] = field(default_factory=set)
    reworded: set[Name] = field(default_factory=set)
    """Memories with versions whose content was overwritten."""
    sessions: set[Name] = field(default_factory=set)
    """Sessions that were erased and have no later events."""
    events: dict[Name, set[int]] = field(default_factory=dict)
    forks: dict[Name, list[tuple[str, int]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def affected_summaries(self) -> dict[Name, int]:
        """Return the sessions whose summaries may quote erased events, with the first such event.

        A summary that covers that sequence may; so may the summaries of forks made after it.
        """
        found = dict[Name, int]()
        waiting = [(name, min(events)) for name, events in self.events.items()]
        while waiting:
            name, first = waiting.pop()
            if first >= found.get(name, first + 1):
                continue
            found[name] = first
            forks = self.forks.get(name, ())
            waiting += [((name[0], fork), 0) for fork, at in forks if at >= first]
        return found


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """What a scrub did. ``found`` names the places where erased content can still be read."""

    commits: int
    files: int
    texts: int
    """The number of different erased texts that were searched for."""
    found: tuple[str, ...]
    short: int = 0
    """The number of erased texts that are too short to search for."""


def collect_erasures(lines: Iterable[log_file.LogLine]) -> ErasedEntries:
    """Collect the erased entries from the lines of a vault's log."""
    gone, ended, living = ErasedEntries(), set[Name](), set[Name]()
    for line in lines:
        scope, op, body = Scope(line["space"], line["user"]), line.get("op"), line.get("body")
        memory, session, sequence = line.get("memory"), line.get("session"), line.get("sequence")
        if op == "erase":
            if memory:
                gone.memories.add((scope, memory))
            elif session and sequence is None:
                ended.add((scope, session))
            continue
        if op == "append" and session is not None and sequence is not None:
            if origin := line.get("origin"):
                gone.forks.setdefault((scope, origin[0]), []).append((session, origin[1]))
            if body is None:
                gone.events.setdefault((scope, session), set()).add(sequence)
        overwritten = line.get("reason") == OVERWRITTEN_REASON
        if memory and overwritten:
            gone.reworded.add((scope, memory))
        if memory and body is None:
            # The log has no erase line if the space was no longer mirrored at that time.
            gone.memories.add((scope, memory))
        # Entries that hide or restore a session never have a body.
        if overwritten or (body is None and (memory or op not in {"hide", "restore"})):
            gone.lines[scope, str(line.get("uuid"))] = line
        if isinstance(body, dict):
            living.add((scope, session or body.get("session") or ""))
    gone.sessions = ended - living
    return gone


def scrub(vault: Vault) -> ScrubReport:
    """Remove what the store erased from the history, and check that it is gone.

    The caller must hold the lock, and must have written the vault's files and log.
    """
    gone = collect_erasures(vault.log.lines())
    repository = Repository.at(vault.root)
    if not gone or repository is None:
        return ScrubReport(0, 0, 0, ())

    def current(path: str) -> bytes | None:
        try:
            return disk.read(vault.path(path))
        except disk.UnusablePath:
            return None

    eraser = Eraser(vault.folders.parse_history, gone, current)
    # Read all of the history first: an index or a summary may quote a text that was erased later.
    read_contents(repository, eraser.clean_file)
    clean_copies(vault, eraser, next(iter(gone.lines))[0].space)
    done = rewrite(repository, change_blob=eraser.clean_file, change_message=eraser.clean_message)
    vault.files.scrub()
    needles = {text: _needles(text) for text in eraser.texts}
    looked_for = {*eraser.names, *(part for parts in needles.values() for part in parts)}
    found = set[str]()
    if looked_for:
        found = {*find_bytes(repository, *looked_for), *find_files_with(vault.root, looked_for)}
        found.update(find_in_other_trees(repository, looked_for))
    short = sum(not parts for parts in needles.values())
    looked = len(needles) - short
    return ScrubReport(done.commits, done.files, looked, tuple(sorted(found)), short)


@dataclass
class _ErasedTexts:
    """The erased texts of one owner, and the forms in which index files and subjects quote them."""

    texts: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    labels: set[bytes] = field(default_factory=set)

    def add(self, text: str) -> None:
        if text and text not in self.texts:
            self.texts.add(text)
            self.lines.add(render.first_line(text))
            self.labels.add(_encoded(render.link_label(text)))


def clean_copies(vault: Vault, eraser: Eraser, space: str) -> None:
    """Remove erased content from damaged log lines and from conflict copies.

    A person's edits in a copy stay. Changed log lines are committed with ``space``.
    """
    path = vault.own / log_file.DAMAGED_FILE
    if disk.stamp(path) is not None:
        raw = disk.read(path)
        left = eraser.clean_file(_ASIDE, raw)
        if left is not None and left != raw:
            disk.write(path, left)
            vault.files.add_pending(space, _ASIDE)
    for file in [each for each in vault.files.below("") if each.what == "conflict"]:
        try:
            raw, stamp = disk.read_stamped(vault.path(file.path))
        except disk.UnusablePath:
            continue
        left = eraser.clean_file(file.path, raw)
        if left is None:
            vault.remove(file)
        elif left != raw:
            vault.files.put(file._replace(digest=disk.digest(raw), stamp=stamp))
            vault.write(file, left)


class Eraser:
    """Removes erased content from one file of the history at a time, and collects what it removed.

    ``current`` returns a file as it is now; a text that is in it was not erased.
    """

    def __init__(
        self,
        place_of: Callable[[str], ParsedPath | None],
        gone: ErasedEntries,
        current: Callable[[str], bytes | None] = lambda path: None,
    ) -> None:
        self._place_of = place_of
        self._gone = gone
        self._current = current
        self._summed = gone.affected_summaries()
        self._texts_by_scope: defaultdict[Scope, _ErasedTexts] = defaultdict(_ErasedTexts)
        self._scopes = {scope for scope, _ in gone.lines}
        self._erased_ids = {id for _, id in gone.memories}
        self._reworded_ids: defaultdict[str, list[Scope]] = defaultdict(list)
        for scope, id in gone.reworded:
            self._reworded_ids[id].append(scope)
        # Versions by memory, as text, whose content was overwritten.
        self._versions: defaultdict[Name, set[str]] = defaultdict(set)
        # By path: the memories whose content it had, and whether that content was erased.
        self._memories_by_path: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        # The names of files that were made from erased words, for memories that still exist.
        self._named: defaultdict[Name, set[str]] = defaultdict(set)

    @property
    def texts(self) -> set[str]:
        return {text for said in self._texts_by_scope.values() for text in said.texts}

    @property
    def names(self) -> set[bytes]:
        """The file names made from the content of erased memories, and of no others."""
        by_name: defaultdict[str, set[bool]] = defaultdict(set)
        for path, memories in self._memories_by_path.items():
            by_name[path.rpartition("/")[2]].update(memories.values())
        living = [name for name, erased in by_name.items() if False in erased]
        return {
            name.encode()
            for name, erased in by_name.items()
            if erased == {True}
            and len(name.encode()) >= LONG
            and not any(name in other for other in living)
        }

    def clean_file(self, path: str, raw: bytes) -> bytes | None:
        """Return a file without erased content; None when the file has to be removed."""
        if _LOG.fullmatch(path):
            return b"".join(self._line(line) for line in raw.splitlines(keepends=True))
        if path == _ASIDE:
            kept = [line for line in raw.splitlines(keepends=True) if not self._is_about(line)]
            return b"".join(kept)
        place = self._place_of(path)
        if place is None:
            return raw
        if place.session is not None and (place.scope, place.session) in self._gone.sessions:
            return None
        if place.what == "memory" or (place.what == "conflict" and _is_of_memory(raw, path, place)):
            return self._memory(place.scope, path, raw)
        plain = render.strip_seal(raw)
        before = raw if plain is None else plain
        if place.what == "index" or (place.what == "conflict" and place.session is None):
            copy = place.what == "conflict"
            after: bytes | None = self._index(place.scope, path, before, copy=copy)
        else:
            after = self._record(place, path, raw, before)
        if after is None or after == before:
            return after if after is None else raw
        return after if plain is None else render.add_seal(after)

    def see(self, scope: Scope, path: str, id: str) -> None:
        """Record the path of a memory's file."""
        self._memories_by_path[path][id] = (scope, id) in self._gone.memories

    # -- messages -----------------------------------------------------------------------------

    def clean_message(self, message: str) -> str:
        """Replace the erased texts that a commit message quotes."""

        def clean_subject(found: re.Match[str]) -> str:
            id, said = found["id"], found["said"].strip().removesuffix("…")
            if not said:
                return found[0]
            if id not in self._erased_ids and not any(
                self._is_quoted(scope, said) for scope in self._reworded_ids.get(id, ())
            ):
                return found[0]
            return f"{found['before']}{ERASED} ({found['op']} {id})"

        return self._changed_subject(_CHANGE.sub(clean_subject, message))

    def _changed_subject(self, message: str) -> str:
        """Replace the erased text in a subject that was cut off before the id of its memory."""
        subject, end, body = message.partition("\n")
        if not subject.endswith("…"):
            return message
        for scope in self._texts_by_scope:
            start = f"{one_line(scope.space)}: "
            said = _CUT_END.sub("", subject.removeprefix(start)).rstrip()
            if subject.startswith(start) and self._is_quoted(scope, said):
                return f"{start}{ERASED}{end}{body}"
        return message

    def _is_quoted(self, scope: Scope, said: str) -> bool:
        """Whether an erased text begins with this quotation."""
        return bool(said) and any(
            line.startswith(said) for line in self._texts_by_scope[scope].lines
        )

    # -- the log ------------------------------------------------------------------------------

    def _line(self, raw: bytes) -> bytes:
        line = log_file.decode_line(raw)
        if line is None:
            return b"" if self._is_about(raw) else raw
        scope = Scope(line["space"], line["user"])
        now = self._gone.lines.get((scope, str(line.get("uuid"))))
        if now is None or line == now:
            return raw
        self.learn(scope, line, now)
        return log_file.encode_line(now)

    def learn(self, scope: Scope, line: log_file.LogLine, now: log_file.LogLine) -> None:
        """Collect the texts that an entry had before it was erased."""
        body, left = line.get("body"), now.get("body")
        if not isinstance(body, dict):
            return
        kept, id = _texts(left) if isinstance(left, dict) else [], line.get("memory")
        if id and _texts(body) != kept:
            self._versions[scope, id].add(str(line.get("version")))
        for text in _texts(body):
            if text not in kept:
                self._texts_by_scope[scope].add(text)
        content, subject = body.get("content"), body.get("subject")
        # A subject that was not erased may stay in the name of a file.
        stays = subject and isinstance(left, dict) and left.get("subject") == subject
        if id and isinstance(content, str) and not stays:
            self._named[scope, id].add(names.file_stem(subject, content))

    def _is_about(self, raw: bytes) -> bool:
        """Whether a damaged line, maybe only a part of one, belongs to an erased entry."""
        line = log_file.decode_line(raw) or log_file.decode_partial_line(raw)
        scope, memory = Scope(line.get("space", ""), line.get("user")), line.get("memory", "")
        if (scope, memory) in self._gone.memories:
            return True
        if "uuid" not in line:
            events = self._gone.events.get((scope, line.get("session", "")), ())
            return (scope, memory) in self._gone.reworded or line.get("sequence") in events
        return (scope, line["uuid"]) in self._gone.lines

    # -- files --------------------------------------------------------------------------------

    def _memory(self, scope: Scope, path: str, raw: bytes) -> bytes | None:
        document = frontmatter.load(raw)
        id = document.text("id") or document.text("conflict_of")
        if not id:
            return self._bare(scope, path, raw, document)
        gone = (scope, id) in self._gone.memories or self._is_reworded(scope, id, path, document)
        self._memories_by_path[path][id] = gone
        if not gone:
            return raw
        if (scope, id) in self._gone.memories:
            self._texts_by_scope[scope].add(document.content)
        return None

    def _is_reworded(self, scope: Scope, id: str, path: str, document: Document) -> bool:
        """Whether a file shows a version whose content was overwritten, or is named after it."""
        if (scope, id) not in self._gone.reworded:
            return False
        stems = names.possible_stems(_FORMER_ID.sub(".md", path.rpartition("/")[2]))
        is_named = bool(stems & self._named.get((scope, id), set()))
        return is_named or document.text("version") in self._versions.get((scope, id), ())

    def _bare(self, scope: Scope, path: str, raw: bytes, document: Document) -> bytes | None:
        """Clean the file of a memory without an id, such as one committed before it got its id."""
        stood = set(self._memories_by_path[path].values())
        said = any(
            frontmatter.equal_ignoring_crlf(document.content.strip("\r\n"), text.strip("\r\n"))
            for text in self._texts_by_scope[scope].texts
        )
        if stood == {True} or (said and stood != {False}):
            self._texts_by_scope[scope].add(document.content)
            return None
        return raw

    def _record(self, place: ParsedPath, path: str, raw: bytes, plain: bytes) -> bytes | None:
        """Clean a file with turns or a summary, which a person may have edited."""
        document = frontmatter.load(raw)
        name = (place.scope, place.session or "")
        gone, role = self._gone.events.get(name, set()), document.text("role")
        if role == "summary" or place.what == "summary":
            return plain if raw == self._current(path) else self._summary(name, document, plain)
        id = document.text("id") or ""
        named = _TURN.fullmatch(id)
        if role != "turns" and named is not None:
            if int(named[1]) not in gone:
                return plain
            self._texts_by_scope[place.scope].add(document.content)
            return None
        kept, erased = render.remove_events(plain, gone)
        for text in erased:
            self._texts_by_scope[place.scope].add(text)
        empty = role == "turns" and erased and next(render.parse_events(kept), None) is None
        return None if empty and place.what == "turns" else kept

    def _summary(self, name: Name, document: Document, plain: bytes) -> bytes | None:
        """Remove a summary that covers erased events; it may quote them in other words."""
        upper, first = document.text("covers_to") or "", self._summed.get(name)
        reached = int(upper) if upper.isascii() and upper.isdecimal() else first or 0
        if first is not None and reached >= first:
            return None
        for text in map(_encoded, self._texts_by_scope[name[0]].texts):
            plain = plain.replace(text, ERASED.encode()) if len(text) >= LONG else plain
        return plain

    def _index(self, scope: Scope, path: str, raw: bytes, *, copy: bool) -> bytes:
        """Remove the links of an index file that lead to erased memories or quote them."""
        labels, folder = self._texts_by_scope[scope].labels, path.rpartition("/")[0]

        def stays(link: re.Match[bytes]) -> bool:
            target = unquote(link[2].decode(errors="replace"))
            memories = self._memories_by_path.get(f"{folder}/{target}", {})
            if memories and all(memories.values()):
                return False
            stems = names.possible_stems(_FORMER_ID.sub(".md", target.rpartition("/")[2]))
            if not memories and stems & self._erased_stems(scope):
                return False
            reworded = any((scope, id) in self._gone.reworded for id in memories)
            if copy and reworded:
                return False
            # A living memory may have the same content.
            return link[1] not in labels or bool(
                memories and not reworded and not any(memories.values())
            )

        kept = []
        for line in raw.splitlines(keepends=True):
            link = _LINK.match(line)
            if link is None or stays(link):
                kept.append(line)
            elif added := line[link.end() :].strip():
                # Keep the text that a person added to the line.
                kept.append(b"- " + added + b"\n")
        return b"".join(kept)

    def _erased_stems(self, scope: Scope) -> set[str]:
        """Return the stems that files of erased memories were named by."""
        return {
            stem
            for (owner, id), stems in self._named.items()
            if owner == scope and (owner, id) in self._gone.memories
            for stem in stems
        }


def _is_of_memory(raw: bytes, path: str, place: ParsedPath) -> bool:
    """Whether a conflict copy is that of a memory, and not of a session or an index."""
    is_record = place.session is not None or layout.is_index_copy(path.rpartition("/")[2])
    return bool(frontmatter.load(raw).text("conflict_of")) or not is_record


def _texts(body: dict[str, Any]) -> list[str]:
    if isinstance(body.get("content"), str):
        return [body["content"]]
    message = body.get("message")
    return [text_of(message)] if isinstance(message, dict) else []


def _needles(text: str) -> list[bytes]:
    """Return substrings of a text, in every form in which files quote it."""
    return [part.encode() for form in _forms(text) for part in sample_substrings(form)]


def _forms(text: str) -> Iterator[str]:
    for part in SURROGATE.split(text):
        yield from dict.fromkeys(
            (
                part,
                json.dumps(part, ensure_ascii=False)[1:-1],
                render.first_line(part).removesuffix("…"),
                render.link_label(part).removesuffix("…"),
            )
        )


def _encoded(text: str) -> bytes:
    return render.to_utf8_text(text).encode()
