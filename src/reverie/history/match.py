"""Clients that resend their whole history each turn: only what is new is kept.

Every event carries a chain, which stands for all that was said up to it. The longest beginning of
the resent history whose chain is known says where the client goes on: at the end of a session, or
in the middle of one, and then a fork begins there. A client that names its session may have dropped
the beginning: what it sends is then looked for as a window (``history/truncated.py``).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reverie.engine import log, sessions
from reverie.engine import sessions as engine_sessions
from reverie.engine.sessions import EMPTY_CHAIN, EventRow, chain_digest
from reverie.errors import InvalidInput, KeyConflict
from reverie.history import truncated
from reverie.history.truncated import comparable_text
from reverie.model import Origin
from reverie.protocols import Owner, Transaction
from reverie.text.greetings import is_only_greeting
from reverie.text.json_values import to_json_object
from reverie.text.messages import digest, role_of, user_text
from reverie.write import events, writer
from reverie.write.events import PreparedMessage
from reverie.write.runtime import Runtime
from reverie.write.writer import Author, WriteStamp

# How many messages are stored in one transaction, and how long others may take the lock after it.
BATCH = 100
PAUSE_SECONDS = 0.002
# Mostly all but the last few messages are known.
FIRST_LOOKUP = 8
# Each reply that was cut off means looking through the rest of the history again.
MAX_INTERRUPTED = 20


class ResentHistory(NamedTuple):
    """A history as it came, and with what is secret redacted: only the latter can be known."""

    original: Sequence[dict[str, Any]]
    said: Sequence[dict[str, Any]]


def read_history(runtime: Runtime, history: Iterable[Mapping[str, Any] | object]) -> ResentHistory:
    """A history without system prompts, each message measured before it is scanned for secrets."""
    if isinstance(history, Mapping | str) or not isinstance(history, Iterable):
        raise InvalidInput("history must be a list of messages")
    plain = [each for each in map(to_json_object, history) if role_of(each) != "system"]
    for message in plain:
        events.measure_message(message)
    # What was redacted is known again only by what it was redacted to.
    return ResentHistory(plain, runtime.redaction.clean_values(plain, "a message"))


class Match(NamedTuple):
    """How many of the resent messages are known, where the last of them stands, and where the
    first, if the client has dropped what was said before it."""

    matched: int
    last: EventRow | None
    first: EventRow | None = None


class MatchSnapshot(NamedTuple):
    """A match before the lock, and the position up to which it is true."""

    match: Match
    position: int


class FollowResult(NamedTuple):
    """The session a history belongs to now, what it is forked from if it is new, its event that
    the history ends with, if that is its own, and the event that the history begins with, if the
    client has dropped what was said before it."""

    session: str
    fork: Origin | None = None
    reached: int | None = None
    window_start: Origin | None = None


def follow(
    runtime: Runtime,
    author: Author,
    history: ResentHistory,
    fresh: str,
    named: str | None,
    stamp: WriteStamp,
) -> FollowResult:
    """Keep what is new of a history where it belongs.

    ``named`` is the session the client speaks of; only it and its forks are looked at then.
    ``fresh`` is what a new session is called. Secrets are blocked only in what is new.

    A long history is stored in batches, each in a transaction of its own, so that other writers
    wait for one batch at most. What was stored when this is cut off between two of them is matched
    when the history comes again; only the last batch carries the idempotency key.
    """
    task = _FollowTask(runtime, author, history, fresh, named, stamp)
    task.prepare()
    while (followed := task.store_batch()) is None:
        pause()
    return followed


def pause() -> None:
    """Let others write: a thread that takes the lock again at once leaves them no chance."""
    time.sleep(PAUSE_SECONDS)


class _FollowTask:
    """A history on its way into the store."""

    def __init__(
        self,
        runtime: Runtime,
        author: Author,
        history: ResentHistory,
        fresh: str,
        named: str | None,
        stamp: WriteStamp,
    ) -> None:
        self._runtime, self._author, self._history = runtime, author, history
        self._new_session, self._client_session, self._stamp = fresh, named, stamp
        self._digests = [digest(message) for message in history.said]
        self._new_events: list[PreparedMessage] = []
        self._first = 0
        """Which message of the history ``_said`` begins with."""
        self._snapshot = MatchSnapshot(Match(0, None), 0)
        self._last_batch: FollowResult | None = None
        """Where the batch before this one went."""

    def prepare(self) -> None:
        """Match the history and make ready what is new of it, before the lock."""
        self._new_events, self._snapshot = _prepare_new(
            self._runtime, self._author, self._history, self._digests, self._client_session
        )
        self._first = self._snapshot.match.matched

    def store_batch(self) -> FollowResult | None:
        """Store the next messages; where the history belongs once all are stored."""
        with writer.write_transaction(self._runtime, self._author.scope) as (tx, owner):
            done = writer.find_repeated(tx, owner, self._stamp, about_session=True)
            if done is not None:
                if done.op != "append" or done.session is None:
                    raise KeyConflict(self._stamp.key or "")
                return FollowResult(done.session)
            match = self._match(tx, owner)
            if match.matched >= self._first:
                return self._store(tx, owner, match)
        # What was known a moment ago has been erased since.
        self.prepare()
        return None

    def _match(self, tx: Transaction, owner: Owner) -> Match:
        """The match that was made before, unless it may not be true any more."""
        match, position = self._snapshot
        if log.last_position(tx, owner) == position:
            return match
        if self._last_batch is not None and _is_session_end(tx, owner, match.last):
            return match
        return _match_history(tx, owner, self._history.said, self._digests, self._client_session)

    def _store(self, tx: Transaction, owner: Owner, match: Match) -> FollowResult | None:
        rest = self._new_events[match.matched - self._first :]
        session, fork = _choose_session(
            tx, owner, match, bool(rest), self._new_session, self._client_session
        )
        if self._last_batch is not None and session == self._last_batch.session:
            fork = self._last_batch.fork
        begins = match.first and Origin(match.first.session, match.first.sequence)
        if not rest:
            own = match.last is not None and match.last.session == session
            reached = match.last.sequence if own and match.last else None
            return FollowResult(session, fork, reached, begins)
        batch, is_last = rest[:BATCH], len(rest) <= BATCH
        stamp = self._stamp if is_last else self._stamp._replace(key=None, request=None)
        kept = events.append_in(tx, self._runtime, owner, self._author, session, batch, stamp, fork)
        followed = FollowResult(session, fork, kept[-1].sequence, begins)
        if is_last:
            return followed
        spot = sessions.last_event(tx, owner, [sessions.EventRange(session, 0, None)])
        known = Match(match.matched + len(batch), spot, match.first)
        self._last_batch, self._snapshot = (
            followed,
            MatchSnapshot(known, log.last_position(tx, owner)),
        )
        return None


def _prepare_new(
    runtime: Runtime,
    author: Author,
    history: ResentHistory,
    marks: Sequence[str],
    named: str | None,
) -> tuple[list[PreparedMessage], MatchSnapshot]:
    """What is new of a history as far as one can tell before the lock."""
    with runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, author.scope)
        seen = MatchSnapshot(Match(0, None), 0)
        if owner is not None:
            match = _match_history(tx, owner, history.said, marks, named)
            seen = MatchSnapshot(match, log.last_position(tx, owner))
    return events.prepare_messages(runtime, history.original[seen.match.matched :]), seen


def _choose_session(
    tx: Transaction, owner: Owner, match: Match, new: bool, fresh: str, named: str | None
) -> tuple[str, Origin | None]:
    """Where what is new goes, and what it is forked from."""
    if match.last is None:
        if named is not None and not new:
            return named, None
        known = None if named is None else sessions.find(tx, owner, named)
        if named is None or known is None or not known.events:
            return named or fresh, None
        # Nothing is shared, not even what the named one itself goes on from.
        return fresh, Origin(sessions.lineage(tx, owner, named)[0].session, 0)
    session = match.last.session
    if _is_session_end(tx, owner, match.last):
        return session, None
    fork = Origin(session, match.last.sequence)
    return _fork_id(tx, owner, fork) or fresh, fork


def _fork_id(tx: Transaction, owner: Owner, fork: Origin) -> str | None:
    """The same id for a fork until it has an event, however often it is asked for."""
    number = len(sessions.list_forks(tx, owner, fork.session))
    # Not the owner's number: whoever knows the rest could find it out, and so how many users came
    # before.
    text = f"{fork.session}:{fork.sequence}:{number}"
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name if sessions.find(tx, owner, name) is None else None


def _match_history(
    tx: Transaction,
    owner: Owner,
    messages: Sequence[Mapping[str, Any]],
    marks: Sequence[str],
    named: str | None,
) -> Match:
    """Where messages with these digests, none of them a system prompt, lead to."""
    family = None if named is None else engine_sessions.fork_tree(tx, owner, named)
    if family is not None and not any(end.position for end in family.values()):
        return Match(0, None)  # a new name: many others may have begun with the same words
    best, chain, begin, goes_on = Match(0, None), EMPTY_CHAIN, 0, True
    for _ in range(MAX_INTERRUPTED):
        found = _longest_prefix(tx, owner, marks, chain, begin, family)
        if found.last is not None:
            best = found
        if best.last is None or best.matched == len(messages):
            break
        replies = engine_sessions.replies_to(tx, owner, best.last)
        goes_on = any(reply.session == best.last.session for reply in replies)
        step = _match_interrupted(tx, owner, messages[best.matched], best.matched, replies)
        if step is None:
            break
        best, chain, begin = step, step.last.chain if step.last else chain, step.matched
    if family is not None and best.matched < len(messages) and goes_on:
        window = truncated.find_window(tx, owner, messages, marks, family, best.matched)
        return best if window is None else Match(window.matched, window.last, window.first)
    alone = named is None and not _is_session_end(tx, owner, best.last)
    known = " ".join(map(user_text, messages[: best.matched]))
    return Match(0, None) if alone and is_only_greeting(known) else best


def _is_session_end(tx: Transaction, owner: Owner, spot: EventRow | None) -> bool:
    """Whether a session ends with this event, but for system prompts."""
    if spot is None:
        return False
    last = sessions.last_event(tx, owner, [sessions.EventRange(spot.session, 0, None)])
    return last is not None and last.chain == spot.chain


def _longest_prefix(
    tx: Transaction,
    owner: Owner,
    marks: Sequence[str],
    chain: str,
    begin: int,
    family: Container[str] | None,
) -> Match:
    """The longest beginning of the history that is known, looked for from its end."""
    chains = []
    for mark in marks[begin:]:
        chain = chain_digest(chain, mark)
        chains.append(chain)
    end, size = len(chains), FIRST_LOOKUP
    while end > 0:
        start = max(end - size, 0)
        known = engine_sessions.find_known_chains(tx, owner, chains[start:end])
        for number in range(end, start, -1):
            if chains[number - 1] in known:
                spot = sessions.find_by_chain(tx, owner, chains[number - 1], family)
                if spot is not None:
                    return Match(begin + number, spot)
        end, size = start, engine_sessions.MAX_CHAINS
    return Match(begin, None)


def _match_interrupted(
    tx: Transaction,
    owner: Owner,
    resent: Mapping[str, Any],
    known: int,
    replies: Sequence[EventRow],
) -> Match | None:
    """A reply that was cut off is the same reply, however little the client has seen of it."""
    replied = role_of(resent) == "assistant"
    shown = comparable_text(resent) if replied else ""
    for spot in replies:
        entry = log.find_at_position(tx, owner, spot.position)
        if entry is None or entry.body is None or not entry.body.get("interrupted"):
            continue
        # What the client has seen of it must be kept: a longer reply is another one.
        if not replied:
            return Match(known, spot)
        if comparable_text(entry.body["message"]).startswith(shown):
            return Match(known + 1, spot)
    return None
