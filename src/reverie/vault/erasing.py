"""What the store erased, taken out of git as well, and looked for afterwards.

The vault's own log says what was erased: entries without a body. In the history the same entries
still have one: that is what must go, from files, messages and the names of files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.engine.files import pieces
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.messages import text_of
from reverie.vault import journal, layout, names, rendering
from reverie.vault.git import Repository
from reverie.vault.rewriting import rewrite
from reverie.vault.searching import holds
from reverie.vault.vault import Vault

ERASED = "(erased)"
_CHANGE = re.compile(r"^(?P<before>(?:- |[^:\n]{1,200}: )?).*\((?P<op>\w+) (?P<id>\w+)\)$", re.M)
_LINK = re.compile(rb"\]\((?:[^()\s]*/)?([^()/\s]+)\)\s*$")
_LOG = re.compile(rf"{re.escape(layout.OWN)}/log(-\d{{6}})?\.jsonl")


@dataclass
class Gone:
    """What the store erased: entries by their uuid, memories, sessions, and events of others."""

    entries: set[str] = field(default_factory=set)
    memories: set[tuple[Scope, str]] = field(default_factory=set)
    sessions: set[tuple[Scope, str]] = field(default_factory=set)
    events: set[tuple[Scope, str, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.entries)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What a scrub came to. ``found`` is where something erased can still be read."""

    commits: int
    files: int
    texts: int
    """How many different erased texts were looked for."""
    found: tuple[str, ...]


def gone_of(lines: Iterable[journal.Line]) -> Gone:
    """What a log says was erased."""
    gone = Gone()
    for line in lines:
        scope = Scope(line["space"], line["user"])
        memory, session, sequence = line.get("memory"), line.get("session"), line.get("sequence")
        if line["op"] == "erase":
            if memory:
                gone.memories.add((scope, memory))
            elif session and sequence is None:
                gone.sessions.add((scope, session))
        elif line["body"] is None:
            gone.entries.add(line["uuid"])
            if line["op"] == "append" and session is not None and sequence is not None:
                gone.events.add((scope, session, sequence))
    return gone


def scrub(vault: Vault) -> Scrubbed:
    """Take what the store erased out of the history, and look whether it is gone.

    The caller holds the lock; files and log of the vault are as the store is now.
    """
    gone = gone_of(vault.journal.lines())
    repository = Repository.at(vault.root)
    if not gone or repository is None:
        return Scrubbed(0, 0, 0, ())
    eraser = Eraser(vault.place_of, gone)
    # First a look at all of it: an index or a summary may quote what a later commit erases.
    rewrite(repository, change_blob=eraser.looked_at, change_message=str)
    done = rewrite(repository, change_blob=eraser.changed, change_message=eraser.changed_message)
    vault.files.scrub()
    needles = sorted({part.encode() for text in eraser.texts for part in pieces(text)})
    found = {place for needle in needles for place in holds(repository, needle)}
    found |= {place for needle in needles for place in _on_disk(vault.root, needle)}
    return Scrubbed(done.commits, done.files, len(eraser.texts), tuple(sorted(found)))


class Eraser:
    """Changes one file of the history at a time, and remembers the texts it took out."""

    def __init__(self, place_of: Callable[[str], layout.Place | None], gone: Gone) -> None:
        self._place_of = place_of
        self._gone = gone
        self.texts: set[str] = set()

    def looked_at(self, path: str, raw: bytes) -> bytes:
        """The file as it is, once its texts are known."""
        self.changed(path, raw)
        return raw

    def changed(self, path: str, raw: bytes) -> bytes | None:
        """The file without what was erased; None: nothing of it may stay."""
        if _LOG.fullmatch(path):
            return b"".join(self._line(line) for line in raw.splitlines(keepends=True))
        place = self._place_of(path)
        if place is None:
            return raw
        if place.session is not None and (place.scope, place.session) in self._gone.sessions:
            return None
        if place.what == "index":
            return self._index(place.scope, raw)
        if place.what == "turns":
            return self._turns(place.scope, place.session or "", raw)
        if place.what == "summary":
            for text in self.texts:
                raw = raw.replace(text.encode(), ERASED.encode()) if pieces(text) else raw
            return raw
        return self._memory(place.scope, path, raw)

    def changed_message(self, message: str) -> str:
        ids = {id for _, id in self._gone.memories}
        return _CHANGE.sub(
            lambda found: (
                f"{found['before']}{ERASED} ({found['op']} {found['id']})"
                if found["id"] in ids
                else found[0]
            ),
            message,
        )

    def _line(self, raw: bytes) -> bytes:
        line = journal.decoded(raw)
        if line is None or line.get("uuid") not in self._gone.entries:
            return raw
        if line.get("body") is None:
            return raw
        self.texts.update(_texts(line["body"]))
        return journal.encoded(journal.blanked(line))

    def _memory(self, scope: Scope, path: str, raw: bytes) -> bytes | None:
        document = frontmatter.load(raw)
        id = document.text("id") or document.text("conflict_of") or names.id_in(path)
        if (scope, id or "") not in self._gone.memories:
            return raw
        self.texts.add(document.content)
        return None

    def _turns(self, scope: Scope, session: str, raw: bytes) -> bytes | None:
        own = {(scope, session)}
        gone = {at for where, name, at in self._gone.events if (where, name) in own}
        if not gone:
            return raw
        kept, erased = rendering.without_turns(raw, gone)
        self.texts.update(erased)
        return kept

    def _index(self, scope: Scope, raw: bytes) -> bytes:
        """Without the lines that lead to what was erased, or quote it."""
        ids = {id for where, id in self._gone.memories if where == scope}
        said = [f"[{rendering.label(text)}]".encode() for text in self.texts]

        def stays(line: bytes) -> bool:
            link = _LINK.search(line)
            leads_to = names.id_in(link[1].decode(errors="replace")) if link else None
            return leads_to not in ids and not any(text in line for text in said)

        return b"".join(line for line in raw.splitlines(keepends=True) if stays(line))


def _texts(body: dict[str, Any]) -> list[str]:
    if isinstance(body.get("content"), str):
        return [body["content"]]
    message = body.get("message")
    return [text_of(message)] if isinstance(message, dict) else []


def _on_disk(root: Path, needle: bytes) -> list[str]:
    """The files below a folder, git's own aside, that hold these bytes."""
    found = []
    for path in sorted(root.rglob("*")):
        below = path.relative_to(root)
        if below.parts[0] == ".git" or path.is_symlink() or not path.is_file():
            continue
        if needle in path.read_bytes():
            found.append(below.as_posix())
    return found
