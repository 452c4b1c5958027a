"""Matching a history whose oldest messages the client has dropped: a window of a session.

No chain digest covers a window without its beginning, but the digests of two consecutive events
determine the message of the second. So a window is searched for among the newest events of the
sessions it may belong to; messages are read only to find interrupted replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reverie.engine import log, sessions
from reverie.engine.sessions import EMPTY_CHAIN, EventRow, SessionEnd, chain_digest
from reverie.protocols import Owner, Transaction
from reverie.text.greetings import is_only_greeting
from reverie.text.messages import role_of, user_text, without_thinking
from reverie.text.normalize import one_line

# How many events are searched beyond the length of the window: some may have come after it.
LOOKBACK_EVENTS = 100
# How many sessions of a fork tree are searched, the newest first.
MAX_SESSIONS = 20


class Window(NamedTuple):
    """How many messages match, the events of the first and the last of them, and whether the last
    one is the end of a session."""

    matched: int
    first: EventRow
    last: EventRow
    is_session_end: bool


class _RecentEvents(NamedTuple):
    """The newest events of a session without system prompts, each with the chain before it."""

    rows: Sequence[EventRow]
    before: Sequence[str]


def find_window(
    tx: Transaction,
    owner: Owner,
    messages: Sequence[Mapping[str, Any]],
    digests: Sequence[str],
    tree: Mapping[str, SessionEnd],
    beyond: int,
) -> Window | None:
    """Find the window in these sessions that matches more than ``beyond`` of the messages.

    A window at the end of a session is best: the same messages may occur twice in it, and most
    clients continue at the end. Then the longest one, then the newest. Only if there is none may a
    window begin with a part of an interrupted reply.
    """
    if len(_speakers(messages)) < 2:
        return None
    newest = sorted(tree, key=lambda name: -tree[name].position)[:MAX_SESSIONS]
    most = len(messages) + LOOKBACK_EVENTS
    searched = [_recent_events(tx, owner, name, most) for name in newest]
    search = _WindowSearch(tx, owner, messages, digests, tree)
    for cut_off in (False, True):
        seen = [
            window
            for recent in searched
            for window in search.windows(recent, cut_off=cut_off)
            if window.matched > beyond and _is_certain(messages[: window.matched], window)
        ]
        if seen:
            return max(seen, key=_window_rank)
    return None


def _window_rank(window: Window) -> tuple[bool, int, int]:
    return window.is_session_end, window.matched, window.last.position


def _is_certain(known: Sequence[Mapping[str, Any]], window: Window) -> bool:
    """Tell whether a match is more than a coincidence, as one message or a greeting would be."""
    if len(_speakers(known)) < 2:
        return False
    return window.is_session_end or not is_only_greeting(" ".join(map(user_text, known)))


def _speakers(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the roles of the messages, without that of an empty reply at the beginning."""
    roles = [role_of(message) for message in messages]
    empty = roles[:1] == ["assistant"] and not comparable_text(messages[0])
    return set(roles[1:] if empty else roles)


def _recent_events(tx: Transaction, owner: Owner, session: str, most: int) -> _RecentEvents:
    found = sessions.list_events(tx, owner, sessions.lineage(tx, owner, session), newest=most + 1)
    chain, rows, before = EMPTY_CHAIN, list[EventRow](), list[str]()
    if len(found) > most:
        chain = found.pop(0).chain
    for row in found:
        if row.role != "system":
            rows.append(row)
            before.append(chain)
            chain = row.chain
    return _RecentEvents(rows, before)


@dataclass
class _WindowSearch:
    """One search, with a cache of messages read and digests known: forks share their events, and
    one event may be compared for many windows.
    """

    tx: Transaction
    owner: Owner
    messages: Sequence[Mapping[str, Any]]
    digests: Sequence[str]
    tree: Mapping[str, SessionEnd]
    replies_read: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)
    known_digests: dict[int, str] = field(default_factory=dict)

    def windows(self, recent: _RecentEvents, *, cut_off: bool) -> Iterator[Window]:
        """Yield a window for each event that matches the first message."""
        for begin in range(len(recent.rows)):
            if self._starts_window(recent, begin, cut_off):
                known, at = self._match_length(recent, begin + 1)
                last = recent.rows[at - 1]
                ends = self.tree[last.session].chain == last.chain
                yield Window(known, recent.rows[begin], last, ends)

    def _starts_window(self, recent: _RecentEvents, at: int, cut_off: bool) -> bool:
        if not cut_off:
            return self._has_digest(recent, at, self.digests[0])
        if role_of(self.messages[0]) != "assistant":
            return False
        kept = self._interrupted_reply(recent, at)
        return kept is not None and comparable_text(kept).startswith(
            comparable_text(self.messages[0])
        )

    def _match_length(self, recent: _RecentEvents, at: int) -> tuple[int, int]:
        """Return how many messages match, given the first does, and the index after the last."""
        known = 1
        while known < len(self.digests) and at < len(recent.rows):
            if not self._has_digest(recent, at, self.digests[known]):
                kept = self._interrupted_reply(recent, at)
                if kept is None:
                    break
                if role_of(self.messages[known]) != "assistant":
                    # The client has seen nothing of this reply, so it sends no part of it.
                    at += 1
                    continue
                if not comparable_text(kept).startswith(comparable_text(self.messages[known])):
                    break
            known, at = known + 1, at + 1
        return known, at

    def _has_digest(self, recent: _RecentEvents, at: int, digest: str) -> bool:
        row = recent.rows[at]
        if (
            row.position not in self.known_digests
            and chain_digest(recent.before[at], digest) == row.chain
        ):
            self.known_digests[row.position] = digest
        return self.known_digests.get(row.position) == digest

    def _interrupted_reply(self, recent: _RecentEvents, at: int) -> Mapping[str, Any] | None:
        """Return the message of this event if it is a reply that was interrupted."""
        if recent.rows[at].role != "assistant":
            return None
        if recent.rows[at].position not in self.replies_read:
            replies = [row.position for row in recent.rows if row.role == "assistant"]
            unread = [position for position in replies if position not in self.replies_read]
            entries = log.find_at_positions(self.tx, self.owner, unread)
            for position in unread:
                entry = entries.get(position)
                body = (entry.body or {}) if entry is not None else {}
                self.replies_read[position] = body["message"] if body.get("interrupted") else None
        return self.replies_read[recent.rows[at].position]


def comparable_text(reply: Mapping[str, Any]) -> str:
    """Return the text of a reply, to compare with what a client has seen of it."""
    return one_line(without_thinking(sessions.message_text(reply)))
