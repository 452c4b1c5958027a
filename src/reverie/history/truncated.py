"""Clients that drop their oldest messages: what they send is a window on a session.

A window has no beginning that a chain could stand for, but the chains of two events that follow
each other tell what the second one says. So it is found among the newest events of the sessions
it may belong to, and only to know which replies were cut off are messages read.
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

# How many events may have come after a window's last, beside as many as the window is long.
LOOKBACK_EVENTS = 100
# Of a session and all its forks, the newest.
MAX_SESSIONS = 20


class Window(NamedTuple):
    """How many messages are known, the events of the first and the last of them, and whether a
    session ends with the last."""

    matched: int
    first: EventRow
    last: EventRow
    is_session_end: bool


class _RecentEvents(NamedTuple):
    """The newest events of a session but for system prompts, each with the chain before it."""

    spots: Sequence[EventRow]
    before: Sequence[str]


def find_window(
    tx: Transaction,
    owner: Owner,
    messages: Sequence[Mapping[str, Any]],
    marks: Sequence[str],
    family: Mapping[str, SessionEnd],
    beyond: int,
) -> Window | None:
    """Where these sessions say what the messages begin with, more than ``beyond`` of them.

    Of the family the newest are looked at. Best is where a session ends: the same words may stand
    in it twice, and most clients go on. Then where most is known, then what was said last. That a
    window begins with a part of a reply that was cut off is assumed only where nothing else is
    found.
    """
    if len(_speakers(messages)) < 2:
        return None
    newest = sorted(family, key=lambda name: -family[name].position)[:MAX_SESSIONS]
    most = len(messages) + LOOKBACK_EVENTS
    lines = [_recent_events(tx, owner, name, most) for name in newest]
    search = _WindowSearch(tx, owner, messages, marks, family)
    for cut_off in (False, True):
        seen = [
            window
            for line in lines
            for window in search.windows(line, cut_off=cut_off)
            if window.matched > beyond and _is_certain(messages[: window.matched], window)
        ]
        if seen:
            return max(seen, key=_window_rank)
    return None


def _window_rank(window: Window) -> tuple[bool, int, int]:
    return window.is_session_end, window.matched, window.last.position


def _is_certain(known: Sequence[Mapping[str, Any]], window: Window) -> bool:
    """One message alone, or the same speaker's "ok" and "ok", may well be said twice."""
    if len(_speakers(known)) < 2:
        return False
    return window.is_session_end or not is_only_greeting(" ".join(map(user_text, known)))


def _speakers(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Whose messages these are. An empty reply to something that is not there says nothing."""
    roles = [role_of(message) for message in messages]
    empty = roles[:1] == ["assistant"] and not comparable_text(messages[0])
    return set(roles[1:] if empty else roles)


def _recent_events(tx: Transaction, owner: Owner, session: str, most: int) -> _RecentEvents:
    found = sessions.list_events(tx, owner, sessions.lineage(tx, owner, session), newest=most + 1)
    chain, spots, before = EMPTY_CHAIN, list[EventRow](), list[str]()
    if len(found) > most:
        chain = found.pop(0).chain
    for spot in found:
        if spot.role != "system":
            spots.append(spot)
            before.append(chain)
            chain = spot.chain
    return _RecentEvents(spots, before)


@dataclass
class _WindowSearch:
    """What was read and what an event says is kept: forks share it, and the same words may be met
    at the beginning of many windows.
    """

    tx: Transaction
    owner: Owner
    messages: Sequence[Mapping[str, Any]]
    marks: Sequence[str]
    family: Mapping[str, SessionEnd]
    read: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)
    said: dict[int, str] = field(default_factory=dict)

    def windows(self, line: _RecentEvents, *, cut_off: bool) -> Iterator[Window]:
        """From each event that says what the messages begin with, as far as they go together."""
        for begin in range(len(line.spots)):
            if self._starts_window(line, begin, cut_off):
                known, at = self._match_length(line, begin + 1)
                last = line.spots[at - 1]
                ends = self.family[last.session].chain == last.chain
                yield Window(known, line.spots[begin], last, ends)

    def _starts_window(self, line: _RecentEvents, at: int, cut_off: bool) -> bool:
        if not cut_off:
            return self._has_digest(line, at, self.marks[0])
        if role_of(self.messages[0]) != "assistant":
            return False
        kept = self._interrupted_reply(line, at)
        return kept is not None and comparable_text(kept).startswith(
            comparable_text(self.messages[0])
        )

    def _match_length(self, line: _RecentEvents, at: int) -> tuple[int, int]:
        """How many messages are known when the first one is, and where in the line they end."""
        known = 1
        while known < len(self.marks) and at < len(line.spots):
            if not self._has_digest(line, at, self.marks[known]):
                kept = self._interrupted_reply(line, at)
                if kept is None:
                    break
                if role_of(self.messages[known]) != "assistant":
                    # The client has seen nothing of the reply.
                    at += 1
                    continue
                if not comparable_text(kept).startswith(comparable_text(self.messages[known])):
                    break
            known, at = known + 1, at + 1
        return known, at

    def _has_digest(self, line: _RecentEvents, at: int, mark: str) -> bool:
        spot = line.spots[at]
        if spot.position not in self.said and chain_digest(line.before[at], mark) == spot.chain:
            self.said[spot.position] = mark
        return self.said.get(spot.position) == mark

    def _interrupted_reply(self, line: _RecentEvents, at: int) -> Mapping[str, Any] | None:
        """The reply that stands here, if it was cut off."""
        if line.spots[at].role != "assistant":
            return None
        if line.spots[at].position not in self.read:
            replies = [spot.position for spot in line.spots if spot.role == "assistant"]
            unread = [position for position in replies if position not in self.read]
            entries = log.find_at_positions(self.tx, self.owner, unread)
            for position in unread:
                entry = entries.get(position)
                body = (entry.body or {}) if entry is not None else {}
                self.read[position] = body["message"] if body.get("interrupted") else None
        return self.read[line.spots[at].position]


def comparable_text(reply: Mapping[str, Any]) -> str:
    """What a reply says, to be compared with what a client has seen of it."""
    return one_line(without_thinking(sessions.message_text(reply)))
