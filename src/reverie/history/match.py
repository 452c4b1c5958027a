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
from reverie.engine.sessions import NOTHING_SAID, Spot, linked
from reverie.errors import InvalidInput, KeyConflict
from reverie.history import truncated
from reverie.history.truncated import spoken
from reverie.model import Origin
from reverie.protocols import Owner, Transaction
from reverie.text.greetings import only_greets
from reverie.text.json_values import as_mapping
from reverie.text.messages import digest, role_of, said_by_user
from reverie.write import events, writer
from reverie.write.events import Said
from reverie.write.runtime import Resources
from reverie.write.writer import Author, Stamp

# How many messages are stored in one transaction, and how long others may take the lock after it.
BATCH = 100
PAUSE_SECONDS = 0.002
# Mostly all but the last few messages are known.
FIRST_LOOK = 8
# Each reply that was cut off means looking through the rest of the history again.
MOST_INTERRUPTED = 20


class Resent(NamedTuple):
    """A history as it came, and with what is secret redacted: only the latter can be known."""

    plain: Sequence[dict[str, Any]]
    said: Sequence[dict[str, Any]]


def read(resources: Resources, history: Iterable[Mapping[str, Any] | object]) -> Resent:
    """A history without system prompts, each message measured before it is scanned for secrets."""
    if isinstance(history, Mapping | str) or not isinstance(history, Iterable):
        raise InvalidInput("history must be a list of messages")
    plain = [each for each in map(as_mapping, history) if role_of(each) != "system"]
    for message in plain:
        events.measure_message(message)
    # What was redacted is known again only by what it was redacted to.
    return Resent(plain, resources.redaction.quiet_each(plain, "a message"))


class Match(NamedTuple):
    """How many of the resent messages are known, where the last of them stands, and where the
    first, if the client has dropped what was said before it."""

    known: int
    spot: Spot | None
    first: Spot | None = None


class Seen(NamedTuple):
    """A match before the lock, and the position up to which it is true."""

    match: Match
    position: int


class Followed(NamedTuple):
    """The session a history belongs to now, what it is forked from if it is new, its event that
    the history ends with, if that is its own, and the event that the history begins with, if the
    client has dropped what was said before it."""

    session: str
    fork: Origin | None = None
    reached: int | None = None
    begins: Origin | None = None


def follow(
    resources: Resources,
    author: Author,
    history: Resent,
    fresh: str,
    named: str | None,
    stamp: Stamp,
) -> Followed:
    """Keep what is new of a history where it belongs.

    ``named`` is the session the client speaks of; only it and its forks are looked at then.
    ``fresh`` is what a new session is called. Secrets are blocked only in what is new.

    A long history is stored in batches, each in a transaction of its own, so that other writers
    wait for one batch at most. What was stored when this is cut off between two of them is matched
    when the history comes again; only the last batch carries the idempotency key.
    """
    task = _Following(resources, author, history, fresh, named, stamp)
    task.prepare()
    while (followed := task.store_batch()) is None:
        pause()
    return followed


def pause() -> None:
    """Let others write: a thread that takes the lock again at once leaves them no chance."""
    time.sleep(PAUSE_SECONDS)


class _Following:
    """A history on its way into the store."""

    def __init__(
        self,
        resources: Resources,
        author: Author,
        history: Resent,
        fresh: str,
        named: str | None,
        stamp: Stamp,
    ) -> None:
        self._resources, self._author, self._history = resources, author, history
        self._fresh, self._named, self._stamp = fresh, named, stamp
        self._marks = [digest(message) for message in history.said]
        self._said: list[Said] = []
        self._first = 0
        """Which message of the history ``_said`` begins with."""
        self._seen = Seen(Match(0, None), 0)
        self._going_on: Followed | None = None
        """Where the batch before this one went."""

    def prepare(self) -> None:
        """Match the history and make ready what is new of it, before the lock."""
        self._said, self._seen = _prepared(
            self._resources, self._author, self._history, self._marks, self._named
        )
        self._first = self._seen.match.known

    def store_batch(self) -> Followed | None:
        """Store the next messages; where the history belongs once all are stored."""
        with writer.writing(self._resources, self._author.scope) as (tx, owner):
            done = writer.repeated(tx, owner, self._stamp, about_session=True)
            if done is not None:
                if done.op != "append" or done.session is None:
                    raise KeyConflict(self._stamp.key or "")
                return Followed(done.session)
            match = self._match(tx, owner)
            if match.known >= self._first:
                return self._store(tx, owner, match)
        # What was known a moment ago has been erased since.
        self.prepare()
        return None

    def _match(self, tx: Transaction, owner: Owner) -> Match:
        """The match that was made before, unless it may not be true any more."""
        match, position = self._seen
        if log.last_position(tx, owner) == position:
            return match
        if self._going_on is not None and _is_last(tx, owner, match.spot):
            return match
        return _match(tx, owner, self._history.said, self._marks, self._named)

    def _store(self, tx: Transaction, owner: Owner, match: Match) -> Followed | None:
        rest = self._said[match.known - self._first :]
        session, fork = _place(tx, owner, match, bool(rest), self._fresh, self._named)
        if self._going_on is not None and session == self._going_on.session:
            fork = self._going_on.fork
        begins = match.first and Origin(match.first.session, match.first.sequence)
        if not rest:
            own = match.spot is not None and match.spot.session == session
            reached = match.spot.sequence if own and match.spot else None
            return Followed(session, fork, reached, begins)
        batch, is_last = rest[:BATCH], len(rest) <= BATCH
        stamp = self._stamp if is_last else self._stamp._replace(key=None, request=None)
        kept = events.append_in(
            tx, self._resources, owner, self._author, session, batch, stamp, fork
        )
        followed = Followed(session, fork, kept[-1].sequence, begins)
        if is_last:
            return followed
        spot = sessions.last_spot(tx, owner, [sessions.Stretch(session, 0, None)])
        known = Match(match.known + len(batch), spot, match.first)
        self._going_on, self._seen = followed, Seen(known, log.last_position(tx, owner))
        return None


def _prepared(
    resources: Resources,
    author: Author,
    history: Resent,
    marks: Sequence[str],
    named: str | None,
) -> tuple[list[Said], Seen]:
    """What is new of a history as far as one can tell before the lock."""
    with resources.engine.read() as tx:
        owner = log.find(tx, author.scope)
        seen = Seen(Match(0, None), 0)
        if owner is not None:
            match = _match(tx, owner, history.said, marks, named)
            seen = Seen(match, log.last_position(tx, owner))
    return events.prepare(resources, history.plain[seen.match.known :]), seen


def _place(
    tx: Transaction, owner: Owner, match: Match, new: bool, fresh: str, named: str | None
) -> tuple[str, Origin | None]:
    """Where what is new goes, and what it is forked from."""
    if match.spot is None:
        if named is not None and not new:
            return named, None
        known = None if named is None else sessions.find(tx, owner, named)
        if named is None or known is None or not known.events:
            return named or fresh, None
        # Nothing is shared, not even what the named one itself goes on from.
        return fresh, Origin(sessions.lineage(tx, owner, named)[0].session, 0)
    session = match.spot.session
    if _is_last(tx, owner, match.spot):
        return session, None
    fork = Origin(session, match.spot.sequence)
    return _fork_id(tx, owner, fork) or fresh, fork


def _fork_id(tx: Transaction, owner: Owner, fork: Origin) -> str | None:
    """The same id for a fork until it has an event, however often it is asked for."""
    number = len(sessions.forks(tx, owner, fork.session))
    # Not the owner's number: whoever knows the rest could find it out, and so how many users came
    # before.
    text = f"{fork.session}:{fork.sequence}:{number}"
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name if sessions.find(tx, owner, name) is None else None


def _match(
    tx: Transaction,
    owner: Owner,
    messages: Sequence[Mapping[str, Any]],
    marks: Sequence[str],
    named: str | None,
) -> Match:
    """Where messages with these digests, none of them a system prompt, lead to."""
    family = None if named is None else engine_sessions.family(tx, owner, named)
    if family is not None and not any(end.position for end in family.values()):
        return Match(0, None)  # a new name: many others may have begun with the same words
    best, chain, begin, goes_on = Match(0, None), NOTHING_SAID, 0, True
    for _ in range(MOST_INTERRUPTED):
        found = _deepest(tx, owner, marks, chain, begin, family)
        if found.spot is not None:
            best = found
        if best.spot is None or best.known == len(messages):
            break
        replies = engine_sessions.replies_to(tx, owner, best.spot)
        goes_on = any(reply.session == best.spot.session for reply in replies)
        step = _past_interruption(tx, owner, messages[best.known], best.known, replies)
        if step is None:
            break
        best, chain, begin = step, step.spot.chain if step.spot else chain, step.known
    if family is not None and best.known < len(messages) and goes_on:
        window = truncated.find(tx, owner, messages, marks, family, best.known)
        return best if window is None else Match(window.known, window.last, window.first)
    alone = named is None and not _is_last(tx, owner, best.spot)
    known = " ".join(map(said_by_user, messages[: best.known]))
    return Match(0, None) if alone and only_greets(known) else best


def _is_last(tx: Transaction, owner: Owner, spot: Spot | None) -> bool:
    """Whether a session ends with this event, but for system prompts."""
    if spot is None:
        return False
    last = sessions.last_spot(tx, owner, [sessions.Stretch(spot.session, 0, None)])
    return last is not None and last.chain == spot.chain


def _deepest(
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
        chain = linked(chain, mark)
        chains.append(chain)
    end, size = len(chains), FIRST_LOOK
    while end > 0:
        start = max(end - size, 0)
        known = engine_sessions.known_chains(tx, owner, chains[start:end])
        for number in range(end, start, -1):
            if chains[number - 1] in known:
                spot = sessions.by_chain(tx, owner, chains[number - 1], family)
                if spot is not None:
                    return Match(begin + number, spot)
        end, size = start, engine_sessions.MAX_CHAINS
    return Match(begin, None)


def _past_interruption(
    tx: Transaction,
    owner: Owner,
    resent: Mapping[str, Any],
    known: int,
    replies: Sequence[Spot],
) -> Match | None:
    """A reply that was cut off is the same reply, however little the client has seen of it."""
    replied = role_of(resent) == "assistant"
    shown = spoken(resent) if replied else ""
    for spot in replies:
        entry = log.at_position(tx, owner, spot.position)
        if entry is None or entry.body is None or not entry.body.get("interrupted"):
            continue
        # What the client has seen of it must be kept: a longer reply is another one.
        if not replied:
            return Match(known, spot)
        if spoken(entry.body["message"]).startswith(shown):
            return Match(known + 1, spot)
    return None
