"""Matching a history that a client resends as a whole each turn: only new messages are stored.

Every event stores a chain digest of all messages up to it. The longest prefix of the resent history
whose digest is stored tells where the client continues: at the end of a session, or before its end,
where a fork begins. A client that names its session may have dropped the oldest messages; the rest
is then searched for as a window of the session (``history/truncated.py``).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reverie.engine import log, sessions
from reverie.engine.sessions import EMPTY_CHAIN, EventRow, chain_digest
from reverie.errors import InvalidInput, KeyConflict
from reverie.history import truncated
from reverie.history.truncated import comparable_text
from reverie.model import Origin
from reverie.protocols import Owner, Transaction
from reverie.text.greetings import is_only_greeting
from reverie.text.json_values import to_json_object
from reverie.text.messages import digest, role_of, user_text
from reverie.write import events, owners
from reverie.write.events import PreparedMessage
from reverie.write.owners import Target
from reverie.write.runtime import Runtime
from reverie.write.writer import Author, Writer, WriteStamp, open_writer

# How many messages one transaction stores, and how long the lock is left to others after it.
BATCH = 100
PAUSE_SECONDS = 0.002
# How many prefixes are looked up first, from the end: usually only the last messages are new.
FIRST_LOOKUP = 8
# How many interrupted replies are matched: the rest of the history is searched after each.
MAX_INTERRUPTED = 20


class ResentHistory(NamedTuple):
    """A history as it was sent, and redacted. Stored events can match only the redacted one."""

    original: Sequence[dict[str, Any]]
    redacted: Sequence[dict[str, Any]]


def read_history(runtime: Runtime, history: Iterable[Mapping[str, Any] | object]) -> ResentHistory:
    """Check and redact a history, without its system prompts."""
    if isinstance(history, Mapping | str) or not isinstance(history, Iterable):
        raise InvalidInput("history must be a list of messages")
    plain = [each for each in map(to_json_object, history) if role_of(each) != "system"]
    for message in plain:
        events.measure_message(message)
    return ResentHistory(plain, runtime.redaction.clean_values(plain, "a message"))


class Match(NamedTuple):
    """How many of the resent messages are stored, and the event of the last of them.

    ``first`` is the event of the first one if the client has dropped older messages.
    """

    matched: int
    last: EventRow | None
    first: EventRow | None = None


class MatchSnapshot(NamedTuple):
    """A match made before the write transaction, and the log position it was made at."""

    match: Match
    position: int


class FollowResult(NamedTuple):
    """The session that a resent history belongs to.

    ``fork`` is the event that a new session goes on from, ``matched_sequence`` the sequence of the
    last message if that is an event of this session, ``window_start`` the event of the first
    message if the client has dropped older ones.
    """

    session: str
    fork: Origin | None = None
    matched_sequence: int | None = None
    window_start: Origin | None = None


def follow(
    runtime: Runtime,
    author: Author,
    history: ResentHistory,
    new_session: str,
    client_session: str | None,
    stamp: WriteStamp,
) -> FollowResult:
    """Store the new messages of a history in the session that they continue.

    ``client_session`` is the session that the client names: only it and its forks are searched.
    ``new_session`` is the id of a new session. Secrets are blocked only in new messages.

    A long history is stored in batches, each in a transaction of its own, so that other writers
    wait for one batch at most. If the process stops between two of them, the stored messages are
    matched when the history is sent again: only the last batch carries the idempotency key.
    """
    task = _FollowTask(runtime, author, history, new_session, client_session, stamp)
    task.prepare()
    while (followed := task.store_batch()) is None:
        pause()
    return followed


def pause() -> None:
    """Let other writers take the lock, which this thread would else take again at once."""
    time.sleep(PAUSE_SECONDS)


class _FollowTask:
    """The state of one ``follow`` call between its batches."""

    def __init__(
        self,
        runtime: Runtime,
        author: Author,
        history: ResentHistory,
        new_session: str,
        client_session: str | None,
        stamp: WriteStamp,
    ) -> None:
        self._runtime, self._author, self._history = runtime, author, history
        self._new_session, self._client_session, self._stamp = new_session, client_session, stamp
        self._digests = [digest(message) for message in history.redacted]
        self._new_events: list[PreparedMessage] = []
        self._first = 0
        """The index in the history of the first of ``_new_events``."""
        self._snapshot = MatchSnapshot(Match(0, None), 0)
        self._target = owners.NEW_SESSION
        self._last_batch: FollowResult | None = None
        """The session of the previous batch."""

    def prepare(self) -> None:
        """Match the history and prepare its new messages, before the write transaction."""
        with self._runtime.engine.read() as tx:
            self._target, self._snapshot = self._find_match(tx)
        self._first = self._snapshot.match.matched
        new = self._history.original[self._first :]
        self._new_events = events.prepare_messages(self._runtime, new)

    def _find_match(self, tx: Transaction) -> tuple[Target, MatchSnapshot]:
        """Match the history in the owner that its session belongs to."""
        scope, named = self._author.scope, self._client_session
        targets = [owners.NEW_SESSION if named is None else owners.session_target(named)]
        if scope.user is None and named is None:
            # A session that an earlier version stored as shared goes on there, from its end.
            targets.append(owners.NEW_MEMORY)
        found, position = (targets[0], Match(0, None)), 0
        for target in targets:
            owner = owners.find_target(tx, scope, target)
            if owner is not None and sessions.list_sessions(tx, owner, hidden=True, limit=1):
                position = log.last_position(tx, owner)
                match = self._match_owner(tx, owner)
                # Another conversation that begins alike is not continued as a shared one.
                goes_on = target is targets[0] or _is_session_end(tx, owner, match.last)
                if goes_on and match.matched > found[1].matched:
                    found = target, match
        return found[0], MatchSnapshot(found[1], position)

    def _match_owner(self, tx: Transaction, owner: Owner) -> Match:
        return _match_history(
            tx, owner, self._history.redacted, self._digests, self._client_session
        )

    def store_batch(self) -> FollowResult | None:
        """Store the next batch; return the result once all messages are stored, else None."""
        with open_writer(self._runtime, self._author, self._target) as w:
            done = w.repeated(self._stamp, about_session=True)
            if done is not None:
                if done.op != "append" or done.session is None:
                    raise KeyConflict(self._stamp.key or "")
                return FollowResult(done.session)
            match = self._match(w.tx, w.owner)
            if match.matched >= self._first:
                return self._store(w, match)
        # Events that were matched before the transaction have been erased since.
        self.prepare()
        return None

    def _match(self, tx: Transaction, owner: Owner) -> Match:
        """Return the match made before, or a new one if the log has changed since."""
        match, position = self._snapshot
        if log.last_position(tx, owner) == position:
            return match
        if self._last_batch is not None and _is_session_end(tx, owner, match.last):
            return match
        return self._match_owner(tx, owner)

    def _store(self, w: Writer, match: Match) -> FollowResult | None:
        tx, owner = w.tx, w.owner
        rest = self._new_events[match.matched - self._first :]
        session, fork = _choose_session(
            tx, owner, match, bool(rest), self._new_session, self._client_session
        )
        if self._last_batch is not None and session == self._last_batch.session:
            fork = self._last_batch.fork
        window_start = match.first and Origin(match.first.session, match.first.sequence)
        if not rest:
            own = match.last is not None and match.last.session == session
            matched_sequence = match.last.sequence if own and match.last else None
            return FollowResult(session, fork, matched_sequence, window_start)
        batch, is_last = rest[:BATCH], len(rest) <= BATCH
        stamp = self._stamp if is_last else self._stamp._replace(key=None, request=None)
        kept = events.append_messages(w, session, batch, stamp, fork)
        followed = FollowResult(session, fork, kept[-1].sequence, window_start)
        if is_last:
            return followed
        row = sessions.last_event(tx, owner, [sessions.EventRange(session, 0, None)])
        known = Match(match.matched + len(batch), row, match.first)
        self._last_batch, self._snapshot = (
            followed,
            MatchSnapshot(known, log.last_position(tx, owner)),
        )
        return None


def _choose_session(
    tx: Transaction,
    owner: Owner,
    match: Match,
    new: bool,
    new_session: str,
    client_session: str | None,
) -> tuple[str, Origin | None]:
    """Choose the session for the new messages, and the event that it is forked from."""
    if match.last is None:
        if client_session is not None and not new:
            return client_session, None
        known = None if client_session is None else sessions.find(tx, owner, client_session)
        if client_session is None or known is None or not known.events:
            return client_session or new_session, None
        # The history shares no message with the named session or with what that forks.
        return new_session, Origin(sessions.lineage(tx, owner, client_session)[0].session, 0)
    session = match.last.session
    if _is_session_end(tx, owner, match.last):
        return session, None
    fork = Origin(session, match.last.sequence)
    return _fork_id(tx, owner, fork) or new_session, fork


def _fork_id(tx: Transaction, owner: Owner, fork: Origin) -> str | None:
    """Return the id of the next fork at an event, which is the same until the fork has events.

    None when a session has that id already.
    """
    number = len(sessions.list_forks(tx, owner, fork.session))
    # The owner's number is left out: a user could guess it from the id, and with it how many users
    # there are.
    text = f"{fork.session}:{fork.sequence}:{number}"
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    return name if sessions.find(tx, owner, name) is None else None


def _match_history(
    tx: Transaction,
    owner: Owner,
    messages: Sequence[Mapping[str, Any]],
    digests: Sequence[str],
    client_session: str | None,
) -> Match:
    """Match messages with these digests, none of them a system prompt."""
    tree = None if client_session is None else sessions.fork_tree(tx, owner, client_session)
    if tree is not None and not any(end.position for end in tree.values()):
        return Match(0, None)  # a new session: others may begin with the same words
    best, chain, begin, goes_on = Match(0, None), EMPTY_CHAIN, 0, True
    for _ in range(MAX_INTERRUPTED):
        found = _longest_prefix(tx, owner, digests, chain, begin, tree)
        if found.last is not None:
            best = found
        if best.last is None or best.matched == len(messages):
            break
        replies = sessions.replies_to(tx, owner, best.last)
        goes_on = any(reply.session == best.last.session for reply in replies)
        step = _match_interrupted(tx, owner, messages[best.matched], best.matched, replies)
        if step is None:
            break
        best, chain, begin = step, step.last.chain if step.last else chain, step.matched
    if tree is not None and best.matched < len(messages) and goes_on:
        window = truncated.find_window(tx, owner, messages, digests, tree, best.matched)
        return best if window is None else Match(window.matched, window.last, window.first)
    alone = client_session is None and not _is_session_end(tx, owner, best.last)
    known = " ".join(map(user_text, messages[: best.matched]))
    return Match(0, None) if alone and is_only_greeting(known) else best


def _is_session_end(tx: Transaction, owner: Owner, row: EventRow | None) -> bool:
    """Tell whether this event is the last of its session, not counting system prompts."""
    if row is None:
        return False
    last = sessions.last_event(tx, owner, [sessions.EventRange(row.session, 0, None)])
    return last is not None and last.chain == row.chain


def _longest_prefix(
    tx: Transaction,
    owner: Owner,
    digests: Sequence[str],
    chain: str,
    begin: int,
    tree: Container[str] | None,
) -> Match:
    """Find the longest stored prefix of the history, searching from its end."""
    chains = []
    for each in digests[begin:]:
        chain = chain_digest(chain, each)
        chains.append(chain)
    end, size = len(chains), FIRST_LOOKUP
    while end > 0:
        start = max(end - size, 0)
        known = sessions.find_known_chains(tx, owner, chains[start:end])
        for number in range(end, start, -1):
            if chains[number - 1] in known:
                row = sessions.find_by_chain(tx, owner, chains[number - 1], tree)
                if row is not None:
                    return Match(begin + number, row)
        end, size = start, sessions.MAX_CHAINS
    return Match(begin, None)


def _match_interrupted(
    tx: Transaction,
    owner: Owner,
    resent: Mapping[str, Any],
    known: int,
    replies: Sequence[EventRow],
) -> Match | None:
    """Match a resent message with a stored reply that was interrupted.

    The client may have seen only a part of such a reply, or nothing.
    """
    replied = role_of(resent) == "assistant"
    shown = comparable_text(resent) if replied else ""
    for row in replies:
        entry = log.find_at_position(tx, owner, row.position)
        if entry is None or entry.body is None or not entry.body.get("interrupted"):
            continue
        # A resent reply that is longer than the stored one is another reply.
        if not replied:
            return Match(known, row)
        if comparable_text(entry.body["message"]).startswith(shown):
            return Match(known + 1, row)
    return None
