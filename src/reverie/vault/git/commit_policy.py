"""Apply the setting ``secrets`` to the bytes that are committed.

Texts pass that setting on their way into the store. But git commits files as they are on disk, and
a person's file may never have been read into the store: its front matter is broken, it is a copy
kept beside a record, it was saved a moment ago, or it has keys of its own. So every commit checks
the bytes again. A file with a secret stays in its folder and is not committed until the secret is
removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reverie.text import frontmatter
from reverie.vault import (
    disk,
    layout,
    log_file,
    render,
)
from reverie.vault.git.process import MetaStore
from reverie.write.secret_policy import Redaction

Kinds = tuple[str, ...]

_LOG = re.compile(rf"{re.escape(layout.STATE_FOLDER)}/log(-\d{{6,}})?\.jsonl")
_NAMES = f"{layout.STATE_FOLDER}/names.json"
_CHECKED = "clean:"
_CHANGE = re.compile(r" ?\(\w+ \w+\)\Z")
# Where a link of an index leads.
_TARGET = re.compile(r"\]\([^()\s]*\)")
# Kinds of secrets that are recognised by the word before them.
_CALLED = frozenset({"password", "secret"})
_GIVEN = re.compile(r"[=:\s]")
# Bytes that are no text; words may be between them.
_PRINTABLE = bytes(byte if 32 <= byte < 127 or byte in b"\t\n\r" else 32 for byte in range(256))


class CommitPolicy:
    """Finds secrets in files, names and commit messages that ``redaction`` does not allow."""

    def __init__(self, redaction: Redaction, facts: MetaStore | None = None) -> None:
        """``facts`` stores up to which byte a file that only grows was checked."""
        self._redaction = redaction
        self._meta = facts

    def message(self, text: str) -> str:
        """Return a commit message with secrets redacted, line by line.

        The end of a line, the id of its memory, stays: an erase finds the line by it.
        """
        parts = ((line, _CHANGE.search(line)) for line in text.split("\n"))
        return "\n".join(
            self._redaction.quiet(line[: end.start()] if end else line, "the commit")
            + (end[0] if end else "")
            for line, end in parts
        )

    def find_secrets(self, path: str, raw: bytes) -> Kinds:
        """Return the kinds of secrets that keep a file, or its name, out of git."""
        if named := self._in_names(path):
            return named
        if _LOG.fullmatch(path):
            return self._in_log(path, raw)
        if path == _NAMES:
            return tuple(kind for name in _names_in(raw) for kind in self._in_names(name))
        return self._kinds(_values(path, raw))

    def is_secret_name(self, name: str) -> bool:
        """Whether the name of a space, user or session holds a secret."""
        return bool(self._in_names(name))

    def shown(self, path: str) -> str:
        """Return a path as it may be printed: a name that holds a secret is redacted."""
        return "/".join(
            self._redaction.quiet(part, "a name") if self._in_names(part) else part
            for part in path.split("/")
        )

    def _kinds(self, values: Any) -> Kinds:
        found: dict[str, None] = {}
        for value in values:
            found.update(dict.fromkeys(self._redaction.refused_kinds(value)))
        return tuple(found)

    def _in_names(self, path: str) -> Kinds:
        """Return the kinds of secrets in the names of a file and its folders.

        Words joined by hyphens, as in our own names, do not make the next word a secret.
        """
        return tuple(
            kind
            for part in path.split("/")
            for kind in self._redaction.refused_kinds(part)
            if kind not in _CALLED or _GIVEN.search(part)
        )

    def _in_log(self, path: str, raw: bytes) -> Kinds:
        """Return the kinds of secrets in the lines added to a log since the last check."""
        done = self._done(path, raw)
        found = self._kinds(_entries(raw[done:]))
        if not found and self._meta is not None:
            seen = {"size": len(raw), "digest": disk.digest(raw), "policy": self._name()}
            self._meta.set_meta(_CHECKED + path, json.dumps(seen))
        return found

    def _done(self, path: str, raw: bytes) -> int:
        """Return how many bytes were checked before under the same policy."""
        stored = None if self._meta is None else self._meta.fact(_CHECKED + path)
        if stored is None:
            return 0
        seen = json.loads(stored)
        same = seen["policy"] == self._name() and seen["digest"] == disk.digest(raw[: seen["size"]])
        return int(seen["size"]) if same else 0

    def _name(self) -> str:
        return disk.digest(repr((self._redaction.policy, self._redaction.own)).encode())


def _entries(raw: bytes) -> Iterator[Any]:
    """Yield the texts in the lines of a log, split as when they were checked for the store."""
    for line in raw.splitlines():
        entry = log_file.decode_line(line)
        if entry is None:
            yield _text(line)
        else:
            yield [entry.get("body"), entry.get("reason")]


def _names_in(raw: bytes) -> Iterator[str]:
    """Yield the names in the file of names, each by itself."""
    try:
        names = json.loads(raw)
        yield from (*names["folders"].values(), *names["former"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        yield _text(raw)


def _values(path: str, raw: bytes) -> Iterator[Any]:
    """Yield the texts of a file one by one, since words of two texts do not make a secret."""
    if b"\0" in raw:
        # UTF-16 keeps a zero beside every plain letter.
        yield raw.replace(b"\0", b"").translate(_PRINTABLE).decode("ascii")
    if not path.lower().endswith(".md") or (document := frontmatter.load(raw)).broken:
        yield _text(raw)
    elif render.strip_seal(raw) is not None:
        # A record of ours, of texts that were looked at one by one; before them are only ids.
        text = document.content
        if path.endswith(f"/{layout.INDEX}"):
            text = _TARGET.sub("]", text)
        yield from text.splitlines()
    else:
        yield _plain(document.fields)
        # Also comments, and keys that were not understood.
        yield from _text(raw).removesuffix(document.content).splitlines()
        yield document.content


def _plain(value: Any) -> Any:
    """Convert parsed front matter to plain Python values."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.translate(_PRINTABLE).decode("ascii")
