"""A handle on one session: its events, its own memories, its summary and its context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from reverie.dates import Time
from reverie.engine import (
    index_check,
    log,
    log_rows,
    sessions,
)
from reverie.errors import InvalidInput, StoreDamaged
from reverie.model import (
    Context,
    Event,
    Hit,
    Memory,
    Mode,
    Origin,
    Ranking,
    RecallNote,
    SessionErasure,
    SessionInfo,
    Summary,
    Supplement,
)
from reverie.prompt import context
from reverie.protocols import Ids, Owner, Transaction
from reverie.text.messages import resumed, starts_turn, without_system
from reverie.text.normalize import one_line
from reverie.transfer import export as transfer_export
from reverie.write import (
    events,
    recall_log,
    session_state,
    validate,
    vault_link,
    writer,
)
from reverie.write.runtime import Resources
from reverie.write.validate import request_hash
from reverie.write.writer import Author, Stamp

if TYPE_CHECKING:
    from reverie.memory.space import Space

PREVIEW_CHARS = 80
UNTITLED = "Untitled"
MOST_EVENTS = 1_000_000_000
MOST_HITS = 1_000


class RecallOptions(TypedDict, total=False):
    """What ``recall`` takes besides the query; see ``Space.recall``."""

    limit: int
    mode: Mode
    kinds: Iterable[str] | None
    category: str | None
    tags: Iterable[str] | None
    since: Time | None
    until: Time | None
    as_of: Time | None
    ranking: Ranking | str | None
    query_embedding: Sequence[float] | None
    explain: bool
    note: bool


class RememberOptions(TypedDict, total=False):
    """What ``remember`` takes besides the content; see ``Space.remember``."""

    kind: str
    category: str
    subject: str | None
    tags: Iterable[str]
    source: str | None
    origin: Origin | None
    happened_at: Time | None
    expires_at: Time | None
    pinned: bool
    key: str | None
    force: bool


class Session:
    """One conversation. Made by ``Space.session``; threads may share it."""

    def __init__(
        self,
        space: Space,
        id: str,
        fork: Origin | None = None,
        reached: int | None = None,
        begins: Origin | None = None,
    ) -> None:
        self._space = space
        self._id = id
        self._fork = fork
        self._reached = reached
        self._begins = begins

    def __repr__(self) -> str:
        return f"Session({self._id!r} in {self._space!r})"

    @property
    def id(self) -> str:
        return self._id

    @property
    def reached(self) -> int | None:
        """The event that the history ended with which ``Space.follow`` led here by."""
        return self._reached

    @property
    def forked_from(self) -> Origin | None:
        """The event of another session that this one goes on from."""
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            known = None if owner is None else sessions.find(tx, owner, self._id)
        return self._fork if known is None else known.forked_from

    @property
    def scratchpad(self) -> Scratchpad:
        """The working list of this session."""
        return Scratchpad(self)

    # -- writing ------------------------------------------------------------------------------

    def append(
        self,
        message: Mapping[str, Any] | object,
        *,
        sequence: int | None = None,
        at: Time | None = None,
        key: str | None = None,
        interrupted: bool = False,
    ) -> Event:
        """Keep one message as it is, whatever its provider. Returns once it is on disk.

        ``interrupted`` marks a reply that was cut off. A ``sequence`` must be greater than the
        last one; left out, it is the next. Nothing here waits for a model.
        """
        said = events.prepare(
            self._resources, [message], sequence=sequence, at=at, interrupted=interrupted
        )
        return self._append(said, key)[0]

    def append_many(
        self, messages: Iterable[Mapping[str, Any] | object], *, key: str | None = None
    ) -> list[Event]:
        """Keep messages in order, all of them or none."""
        said = events.prepare(self._resources, list(messages))
        return self._append(said, key) if said else []

    def _append(self, said: list[events.Said], key: str | None) -> list[Event]:
        stamp = self._stamp(key, "append", [each.asked for each in said])
        return events.append(self._resources, self._author, self._id, said, stamp, self._fork)

    def remember(self, content: str, **options: Unpack[RememberOptions]) -> Memory:
        """Keep one thing that only this session recalls."""
        return self._own_space.remember(content, **options)

    def hide(self, reason: str | None = None, *, key: str | None = None) -> None:
        """Take the session out of lists and every recall; ``restore`` brings it back."""
        stamp = self._stamp(key, "hide", reason=reason)
        events.turn(self._resources, self._author, "hide", self._id, stamp)

    def restore(self, *, key: str | None = None) -> None:
        """Bring a hidden session back."""
        events.turn(self._resources, self._author, "restore", self._id, self._stamp(key, "restore"))

    def erase(self, *, key: str | None = None) -> SessionErasure:
        """Destroy every event, and the memories that came from nowhere else. No way back."""
        stamp = self._stamp(key, "erase")
        return events.erase(self._resources, self._author, self._id, stamp)

    def erase_event(self, sequence: int, *, key: str | None = None) -> SessionErasure:
        """Destroy what one event said, such as a password. The events around it stay."""
        stamp = self._stamp(key, "erase_event", sequence)
        return events.erase_one(self._resources, self._author, Origin(self._id, sequence), stamp)

    def write_summary(self, text: str, *, upper: int, expected_epoch: int) -> Summary:
        """Put a summary of the events up to ``upper`` in the place of the one that was read.

        When another was written meanwhile nothing changes, and ``applied`` is False.
        """
        redacted = self._resources.redaction.text(
            text, "the summary", session_state.MOST_SUMMARY_CHARS
        )
        checked = session_state.check_summary(redacted, upper)
        with writer.writing(self._resources, self._author.scope) as (tx, owner):
            known = sessions.find(tx, owner, self._id)
            if upper > (0 if known is None else known.last_sequence):
                raise InvalidInput(f"session {self._id!r} has no event {upper} yet")
            vault_link.await_summary(tx, self._resources, owner, self._id)
            return session_state.write_summary(tx, owner, self._id, checked, upper, expected_epoch)

    def refresh(self) -> None:
        """See the profile as it is now, from the next context on.

        For sessions that never end: a provider's prompt cache has to be filled anew once.
        """
        with writer.writing(self._resources, self._author.scope) as (tx, owner):
            session_state.freeze(tx, owner, self._id, log.last_position(tx, owner), again=True)

    # -- reading ------------------------------------------------------------------------------

    def events(self, limit: int | None = None, *, until: int | None = None) -> list[Event]:
        """The events in order, or the last so many; those before a fork included.

        ``until`` is the last sequence that is wanted.
        """
        most = None if limit is None else validate.check_limit(limit, MOST_EVENTS)
        if until is not None:
            until = validate.check_limit(until, events.LAST_SEQUENCE, "until")
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            return [] if owner is None else self._events(tx, owner, most, until)

    def resume(self, limit: int = 20) -> list[dict[str, Any]]:
        """The last messages in the shape they came in, ready to be sent to a model again.

        They begin with what the user said, without system prompts, and no tool call is parted
        from its results.
        """
        most = validate.check_limit(limit, MOST_EVENTS)
        many = most
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            while owner is not None:
                found = self._events(tx, owner, many)
                plain = [event.message for event in found if without_system(event.message)]
                begun = any(map(starts_turn, plain))
                if (len(plain) >= most and begun) or len(found) < many:
                    return resumed(plain, most)
                many *= 2
        return []

    def recall(self, query: str, **options: Unpack[RecallOptions]) -> list[Hit]:
        """What the space recalls, and what belongs to this session alone."""
        return self._own_space.recall(query, **options)

    def memories(self) -> list[Memory]:
        """The memories that belong to this session alone, the newest first."""
        return [memory for memory in self._own_space.memories() if memory.session is not None]

    def info(self) -> SessionInfo:
        """How many events, how it began, when it was last used."""
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            if owner is None:
                raise events.missing(self._id)
            return info_of(tx, owner, events.require(tx, owner, self._id))

    def summary(self) -> Summary:
        """The rolling summary."""
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            return (
                Summary()
                if owner is None
                else session_state.summary_of(tx, owner, self._stretches(tx, owner))
            )

    def recalls(self) -> list[RecallNote]:
        """What was recalled within this session, in order: for which event, when, and what."""
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            found = [] if owner is None else recall_log.written(tx, owner, self._id)
        waiting = self._resources.notes.waiting(sessions.scoped(self._author.scope, self._id))
        return [*found, *(RecallNote(note.sequence, note.at, note.hits) for note in waiting)]

    def export(self) -> Iterator[dict[str, Any]]:
        """Every entry of this session as plain values, as ``Space.import_records`` takes them."""
        return transfer_export.export(self._resources, self._author, self._id)

    def context(
        self, query: str | None = None, *, tokens: int | None = None, freeze: bool = True
    ) -> Context:
        """What a model needs for the next turn: profile, summary, recalled memories, history.

        ``query`` is what to recall for; left out, the latest thing the user said. ``tokens`` is
        how much it may be, by default the setting ``context_tokens`` (4000). The profile is the
        same bytes in every context of this session, until ``refresh``; with ``freeze=False``
        nothing is written, and a session that has not seen the profile yet sees the current one.
        """
        from reverie.embed.tokens import count_tokens
        from reverie.recall.recall import Query

        if query is not None and not isinstance(query, str):
            raise InvalidInput("query must be text")
        wanted = self._resources.settings.context_tokens if tokens is None else tokens
        budget = validate.check_limit(wanted, MOST_EVENTS, "tokens")
        if freeze:
            self._freeze()
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            owners = self._space._owners(tx)
            stretches = [] if owner is None else self._stretches(tx, owner)
            known = context.read(
                tx, self._resources, owners, owner, stretches, budget, count_tokens
            )
        latest = known.latest
        asked = query if query is not None else sessions.readable(latest.message) if latest else ""
        sequence = latest.sequence if latest else None
        sought = Query(asked, context.MOST_RECALLED, ranking=self._space._ranking)
        hits = self._own_space._recalled(sought, sequence) if asked.strip() else []
        return context.assemble(known, hits, budget, count_tokens)

    def supplement(
        self,
        query: str,
        *,
        limit: int | None = None,
        ranking: Ranking | str | None = None,
        freeze: bool = True,
    ) -> Supplement:
        """What a prompt lacks that a client makes of the whole history itself.

        Nothing is recalled that stands in this session, for the client sends it, but for what a
        history that led here by ``Space.follow`` has dropped; of the ``limit`` best, what the
        profile shows is not said again. The profile is that of every context of this session.
        With ``freeze=False`` nothing is written: a session that has not seen the profile yet sees
        the current one.
        """
        from reverie.embed.tokens import count_tokens
        from reverie.prompt import injection
        from reverie.recall.recall import Query
        from reverie.text.greetings import only_greets

        if not isinstance(query, str):
            raise InvalidInput("query must be text")
        most = validate.check_limit(context.MOST_RECALLED if limit is None else limit, MOST_HITS)
        chosen = self._space._ranking if ranking is None else validate.check_ranking(ranking)
        if freeze:
            self._freeze()
        tokens = self._resources.settings.context_tokens
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            owners = self._space._owners(tx)
            stretches = [] if owner is None else self._stretches(tx, owner)
            known = injection.read(
                tx, self._resources, owners, owner, stretches, tokens, count_tokens
            )
        held = known.holds(self._space.user, self._begins)
        sought = Query(query, most, ranking=chosen, leaves_out=held)
        asks = query.strip() and not only_greets(query)
        hits = self._own_space._recalled(sought, known.latest) if asks else []
        return injection.assemble(known, hits, tokens, count_tokens)

    # -- parts --------------------------------------------------------------------------------

    @property
    def _resources(self) -> Resources:
        return self._space._resources

    @property
    def _author(self) -> Author:
        return self._space._author

    @property
    def _own_space(self) -> Space:
        """The space as this session sees it."""
        author = self._author
        scoped = author._replace(scope=sessions.scoped(author.scope, self._id))
        return type(self._space)(self._resources, scoped, self._space._ranking, self._fork)

    def _owner(self, tx: Transaction) -> Owner | None:
        return log.find(tx, self._author.scope)

    def _stretches(self, tx: Transaction, owner: Owner) -> list[sessions.Stretch]:
        return sessions.lineage(tx, owner, self._id, self._fork)

    def _events(
        self, tx: Transaction, owner: Owner, most: int | None, until: int | None = None
    ) -> list[Event]:
        stretches = sessions.cut(self._stretches(tx, owner), until)
        spots = sessions.spots(tx, owner, stretches, newest=most)
        found = index_check.events(tx, owner, spots)
        return [sessions.event_of(entry, self._space.user) for entry in found]

    def _freeze(self) -> None:
        """Keep the position from which this session sees the profile, the first time."""
        with self._resources.engine.read() as tx:
            owner = self._owner(tx)
            if owner is not None and session_state.frozen_at(tx, owner, self._id) is not None:
                return
        if self._resources.engine.read_only:
            return
        with writer.writing(self._resources, self._author.scope) as (tx, owner):
            position = session_state.inherited(tx, owner, self._stretches(tx, owner))
            session_state.freeze(
                tx,
                owner,
                self._id,
                log.last_position(tx, owner) if position is None else position,
            )

    def _stamp(
        self, key: str | None, verb: str, *arguments: object, reason: str | None = None
    ) -> Stamp:
        return Stamp(
            key=validate.check_key(key),
            request=request_hash(key, verb, self._id, *arguments),
            reason=validate.check_reason(self._resources, reason),
        )


class Scratchpad:
    """A session's working list: each write replaces all of it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self) -> session_state.Pad:
        """The items, and when they were written."""
        session = self._session
        with session._resources.engine.read() as tx:
            owner = session._owner(tx)
            return (
                session_state.Pad()
                if owner is None
                else session_state.read_pad(tx, owner, session.id)
            )

    def write(self, items: Iterable[str]) -> session_state.Pad:
        """Replace the items: at most 32 of 240 characters, together 8 KiB."""
        session = self._session
        redact = session._resources.redaction.text
        given = session_state.counted_items(items)
        kept = [redact(each, "an item", session_state.MOST_BYTES) for each in given]
        pad = session_state.Pad(session_state.check_items(kept), session._resources.clock.now())
        with writer.writing(session._resources, session._author.scope) as (tx, owner):
            session_state.write_pad(tx, owner, session.id, pad)
        return pad

    def clear(self) -> bool:
        """Empty it; False when it was empty."""
        session = self._session
        if not self.read().items:
            return False
        with writer.writing(session._resources, session._author.scope) as (tx, owner):
            was = session_state.read_pad(tx, owner, session.id)
            session_state.write_pad(tx, owner, session.id, session_state.Pad())
        return bool(was.items)


def context_of(space: Space, query: str, tokens: int | None) -> Context:
    """What a model should know for a query when there is no session to look into."""
    from reverie.embed.tokens import count_tokens
    from reverie.recall.recall import Query

    if not isinstance(query, str):
        raise InvalidInput("query must be text")
    resources = space._resources
    wanted = resources.settings.context_tokens if tokens is None else tokens
    budget = validate.check_limit(wanted, MOST_EVENTS, "tokens")
    with resources.engine.read() as tx:
        known = context.read(tx, resources, space._owners(tx), None, [], budget, count_tokens)
    sought = Query(query, context.MOST_RECALLED, ranking=space._ranking)
    hits = space._recalled(sought) if query.strip() else []
    return context.assemble(known, hits, budget, count_tokens)


def info_of(tx: Transaction, owner: Owner, known: sessions.Session) -> SessionInfo:
    """A session as a list shows it."""
    preview = UNTITLED
    wanted = [known.opened, known.titled or known.opened]
    found = log.at_positions(tx, owner, wanted)
    if any(entry.session != known.session for entry in found.values()):
        raise index_check.index_damage(tx, owner, f"session {known.session!s:.40}")
    titled = found.get(known.titled or 0)
    if titled is not None and titled.body is not None and titled.op == "append":
        preview = one_line(sessions.event_of(titled, None).text)[:PREVIEW_CHARS] or UNTITLED
    return SessionInfo(
        id=known.session,
        events=known.events,
        preview=preview,
        opened_at=log.time_of(tx, owner, known.opened),
        updated_at=known.updated_at,
        hidden_at=known.hidden_at,
        forked_from=known.forked_from,
    )


def infos_of(tx: Transaction, owner: Owner, found: Iterable[sessions.Session]) -> list[SessionInfo]:
    """Sessions as a list shows them, but for those that the index is damaged at."""
    infos = []
    for known in found:
        try:
            infos.append(info_of(tx, owner, known))
        except StoreDamaged as damage:
            log_rows.note(tx, damage)
    return infos


def fresh_id(ids: Ids) -> str:
    """Twelve characters of 0-9, a-f."""
    return ids.uuid().replace("-", "")[:12]
