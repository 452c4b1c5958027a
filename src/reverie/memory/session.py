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
    PromptAdditions,
    Ranking,
    RecallNote,
    SessionErasure,
    SessionInfo,
    Summary,
)
from reverie.prompt import context
from reverie.protocols import Ids, Owner, Transaction
from reverie.text.messages import starts_turn, trim_history, without_system
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
from reverie.write.runtime import Runtime
from reverie.write.validate import request_hash
from reverie.write.writer import Author, WriteStamp

if TYPE_CHECKING:
    from reverie.memory.space import Space

PREVIEW_CHARS = 80
UNTITLED = "Untitled"
MAX_EVENTS = 1_000_000_000
MAX_HITS = 1_000


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
        self._forked_from = fork
        self._matched_sequence = reached
        self._window_start = begins

    def __repr__(self) -> str:
        return f"Session({self._id!r} in {self._space!r})"

    @property
    def id(self) -> str:
        return self._id

    @property
    def matched_sequence(self) -> int | None:
        """The event that the history ended with which ``Space.follow`` led here by."""
        return self._matched_sequence

    @property
    def forked_from(self) -> Origin | None:
        """The event of another session that this one goes on from."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            known = None if owner is None else sessions.find(tx, owner, self._id)
        return self._forked_from if known is None else known.forked_from

    @property
    def scratchpad(self) -> ScratchpadHandle:
        """The working list of this session."""
        return ScratchpadHandle(self)

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
        said = events.prepare_messages(
            self._runtime, [message], sequence=sequence, at=at, interrupted=interrupted
        )
        return self._append(said, key)[0]

    def append_many(
        self, messages: Iterable[Mapping[str, Any] | object], *, key: str | None = None
    ) -> list[Event]:
        """Keep messages in order, all of them or none."""
        said = events.prepare_messages(self._runtime, list(messages))
        return self._append(said, key) if said else []

    def _append(self, said: list[events.PreparedMessage], key: str | None) -> list[Event]:
        stamp = self._stamp(key, "append", [each.asked for each in said])
        return events.append(self._runtime, self._author, self._id, said, stamp, self._forked_from)

    def remember(self, content: str, **options: Unpack[RememberOptions]) -> Memory:
        """Keep one thing that only this session recalls."""
        return self._own_space.remember(content, **options)

    def hide(self, reason: str | None = None, *, key: str | None = None) -> None:
        """Take the session out of lists and every recall; ``restore`` brings it back."""
        stamp = self._stamp(key, "hide", reason=reason)
        events.hide_or_restore(self._runtime, self._author, "hide", self._id, stamp)

    def restore(self, *, key: str | None = None) -> None:
        """Bring a hidden session back."""
        events.hide_or_restore(
            self._runtime, self._author, "restore", self._id, self._stamp(key, "restore")
        )

    def erase(self, *, key: str | None = None) -> SessionErasure:
        """Destroy every event, and the memories that came from nowhere else. No way back."""
        stamp = self._stamp(key, "erase")
        return events.erase(self._runtime, self._author, self._id, stamp)

    def erase_event(self, sequence: int, *, key: str | None = None) -> SessionErasure:
        """Destroy what one event said, such as a password. The events around it stay."""
        stamp = self._stamp(key, "erase_event", sequence)
        return events.erase_event(self._runtime, self._author, Origin(self._id, sequence), stamp)

    def write_summary(self, text: str, *, upper: int, expected_epoch: int) -> Summary:
        """Put a summary of the events up to ``upper`` in the place of the one that was read.

        When another was written meanwhile nothing changes, and ``applied`` is False.
        """
        redacted = self._runtime.redaction.text(
            text, "the summary", session_state.MAX_SUMMARY_CHARS
        )
        checked = session_state.check_summary(redacted, upper)
        with writer.write_transaction(self._runtime, self._author.scope) as (tx, owner):
            known = sessions.find(tx, owner, self._id)
            if upper > (0 if known is None else known.last_sequence):
                raise InvalidInput(f"session {self._id!r} has no event {upper} yet")
            vault_link.queue_summary_mirror(tx, self._runtime, owner, self._id)
            return session_state.write_summary(tx, owner, self._id, checked, upper, expected_epoch)

    def refresh_profile(self) -> None:
        """See the profile as it is now, from the next context on.

        For sessions that never end: a provider's prompt cache has to be filled anew once.
        """
        with writer.write_transaction(self._runtime, self._author.scope) as (tx, owner):
            session_state.freeze_profile(
                tx, owner, self._id, log.last_position(tx, owner), again=True
            )

    # -- reading ------------------------------------------------------------------------------

    def events(self, limit: int | None = None, *, until: int | None = None) -> list[Event]:
        """The events in order, or the last so many; those before a fork included.

        ``until`` is the last sequence that is wanted.
        """
        most = None if limit is None else validate.check_limit(limit, MAX_EVENTS)
        if until is not None:
            until = validate.check_limit(until, events.MAX_SEQUENCE, "until")
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            return [] if owner is None else self._events(tx, owner, most, until)

    def resume(self, limit: int = 20) -> list[dict[str, Any]]:
        """The last messages in the shape they came in, ready to be sent to a model again.

        They begin with what the user said, without system prompts, and no tool call is parted
        from its results.
        """
        most = validate.check_limit(limit, MAX_EVENTS)
        many = most
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            while owner is not None:
                found = self._events(tx, owner, many)
                plain = [event.message for event in found if without_system(event.message)]
                begun = any(map(starts_turn, plain))
                if (len(plain) >= most and begun) or len(found) < many:
                    return trim_history(plain, most)
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
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            if owner is None:
                raise events.session_not_found(self._id)
            return session_info(tx, owner, events.require_session(tx, owner, self._id))

    def summary(self) -> Summary:
        """The rolling summary."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            return (
                Summary()
                if owner is None
                else session_state.find_summary(tx, owner, self._lineage(tx, owner))
            )

    def recalls(self) -> list[RecallNote]:
        """What was recalled within this session, in order: for which event, when, and what."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            found = [] if owner is None else recall_log.read_notes(tx, owner, self._id)
        waiting = self._runtime.notes.waiting(sessions.session_scope(self._author.scope, self._id))
        return [*found, *(RecallNote(note.sequence, note.at, note.hits) for note in waiting)]

    def export(self) -> Iterator[dict[str, Any]]:
        """Every entry of this session as plain values, as ``Space.import_records`` takes them."""
        return transfer_export.export(self._runtime, self._author, self._id)

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
        wanted = self._runtime.settings.context_tokens if tokens is None else tokens
        budget = validate.check_limit(wanted, MAX_EVENTS, "tokens")
        if freeze:
            self._freeze_profile()
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            owners = self._space._owners(tx)
            stretches = [] if owner is None else self._lineage(tx, owner)
            known = context.read_inputs(
                tx, self._runtime, owners, owner, stretches, budget, count_tokens
            )
        latest = known.latest
        asked = (
            query if query is not None else sessions.message_text(latest.message) if latest else ""
        )
        sequence = latest.sequence if latest else None
        sought = Query(asked, context.MAX_RECALLED, ranking=self._space._ranking)
        hits = self._own_space._recall_and_log(sought, sequence) if asked.strip() else []
        return context.assemble(known, hits, budget, count_tokens)

    def prompt_additions(
        self,
        query: str,
        *,
        limit: int | None = None,
        ranking: Ranking | str | None = None,
        freeze: bool = True,
    ) -> PromptAdditions:
        """What a prompt lacks that a client makes of the whole history itself.

        Nothing is recalled that stands in this session, for the client sends it, but for what a
        history that led here by ``Space.follow`` has dropped; of the ``limit`` best, what the
        profile shows is not said again. The profile is that of every context of this session.
        With ``freeze=False`` nothing is written: a session that has not seen the profile yet sees
        the current one.
        """
        from reverie.embed.tokens import count_tokens
        from reverie.prompt import additions
        from reverie.recall.recall import Query
        from reverie.text.greetings import is_only_greeting

        if not isinstance(query, str):
            raise InvalidInput("query must be text")
        most = validate.check_limit(context.MAX_RECALLED if limit is None else limit, MAX_HITS)
        chosen = self._space._ranking if ranking is None else validate.check_ranking(ranking)
        if freeze:
            self._freeze_profile()
        tokens = self._runtime.settings.context_tokens
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            owners = self._space._owners(tx)
            stretches = [] if owner is None else self._lineage(tx, owner)
            known = additions.read_inputs(
                tx, self._runtime, owners, owner, stretches, tokens, count_tokens
            )
        held = known.holds(self._space.user, self._window_start)
        sought = Query(query, most, ranking=chosen, exclude=held)
        asks = query.strip() and not is_only_greeting(query)
        hits = self._own_space._recall_and_log(sought, known.latest) if asks else []
        return additions.assemble(known, hits, tokens, count_tokens)

    # -- parts --------------------------------------------------------------------------------

    @property
    def _runtime(self) -> Runtime:
        return self._space._runtime

    @property
    def _author(self) -> Author:
        return self._space._author

    @property
    def _own_space(self) -> Space:
        """The space as this session sees it."""
        author = self._author
        scoped = author._replace(scope=sessions.session_scope(author.scope, self._id))
        return type(self._space)(self._runtime, scoped, self._space._ranking, self._forked_from)

    def _owner(self, tx: Transaction) -> Owner | None:
        return log.resolve_owner(tx, self._author.scope)

    def _lineage(self, tx: Transaction, owner: Owner) -> list[sessions.EventRange]:
        return sessions.lineage(tx, owner, self._id, self._forked_from)

    def _events(
        self, tx: Transaction, owner: Owner, most: int | None, until: int | None = None
    ) -> list[Event]:
        stretches = sessions.limit_ranges(self._lineage(tx, owner), until)
        spots = sessions.list_events(tx, owner, stretches, newest=most)
        found = index_check.read_event_entries(tx, owner, spots)
        return [sessions.event_from_entry(entry, self._space.user) for entry in found]

    def _freeze_profile(self) -> None:
        """Keep the position from which this session sees the profile, the first time."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            if (
                owner is not None
                and session_state.profile_position(tx, owner, self._id) is not None
            ):
                return
        if self._runtime.engine.read_only:
            return
        with writer.write_transaction(self._runtime, self._author.scope) as (tx, owner):
            position = session_state.inherited_profile_position(tx, owner, self._lineage(tx, owner))
            session_state.freeze_profile(
                tx,
                owner,
                self._id,
                log.last_position(tx, owner) if position is None else position,
            )

    def _stamp(
        self, key: str | None, verb: str, *arguments: object, reason: str | None = None
    ) -> WriteStamp:
        return WriteStamp(
            key=validate.check_key(key),
            request=request_hash(key, verb, self._id, *arguments),
            reason=validate.check_reason(self._runtime, reason),
        )


class ScratchpadHandle:
    """A session's working list: each write replaces all of it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self) -> session_state.ScratchpadState:
        """The items, and when they were written."""
        session = self._session
        with session._runtime.engine.read() as tx:
            owner = session._owner(tx)
            return (
                session_state.ScratchpadState()
                if owner is None
                else session_state.read_scratchpad(tx, owner, session.id)
            )

    def write(self, items: Iterable[str]) -> session_state.ScratchpadState:
        """Replace the items: at most 32 of 240 characters, together 8 KiB."""
        session = self._session
        redact = session._runtime.redaction.text
        given = session_state.check_item_count(items)
        kept = [redact(each, "an item", session_state.MAX_BYTES) for each in given]
        pad = session_state.ScratchpadState(
            session_state.check_items(kept), session._runtime.clock.now()
        )
        with writer.write_transaction(session._runtime, session._author.scope) as (tx, owner):
            session_state.write_scratchpad(tx, owner, session.id, pad)
        return pad

    def clear(self) -> bool:
        """Empty it; False when it was empty."""
        session = self._session
        if not self.read().items:
            return False
        with writer.write_transaction(session._runtime, session._author.scope) as (tx, owner):
            was = session_state.read_scratchpad(tx, owner, session.id)
            session_state.write_scratchpad(tx, owner, session.id, session_state.ScratchpadState())
        return bool(was.items)


def build_context(space: Space, query: str, tokens: int | None) -> Context:
    """What a model should know for a query when there is no session to look into."""
    from reverie.embed.tokens import count_tokens
    from reverie.recall.recall import Query

    if not isinstance(query, str):
        raise InvalidInput("query must be text")
    runtime = space._runtime
    wanted = runtime.settings.context_tokens if tokens is None else tokens
    budget = validate.check_limit(wanted, MAX_EVENTS, "tokens")
    with runtime.engine.read() as tx:
        known = context.read_inputs(tx, runtime, space._owners(tx), None, [], budget, count_tokens)
    sought = Query(query, context.MAX_RECALLED, ranking=space._ranking)
    hits = space._recall_and_log(sought) if query.strip() else []
    return context.assemble(known, hits, budget, count_tokens)


def session_info(tx: Transaction, owner: Owner, known: sessions.SessionRow) -> SessionInfo:
    """A session as a list shows it."""
    preview = UNTITLED
    wanted = [known.opened, known.titled or known.opened]
    found = log.find_at_positions(tx, owner, wanted)
    if any(entry.session != known.session for entry in found.values()):
        raise index_check.index_damage_error(tx, owner, f"session {known.session!s:.40}")
    titled = found.get(known.titled or 0)
    if titled is not None and titled.body is not None and titled.op == "append":
        preview = one_line(sessions.event_from_entry(titled, None).text)[:PREVIEW_CHARS] or UNTITLED
    return SessionInfo(
        id=known.session,
        events=known.events,
        preview=preview,
        opened_at=log.entry_time(tx, owner, known.opened),
        updated_at=known.updated_at,
        hidden_at=known.hidden_at,
        forked_from=known.forked_from,
    )


def session_infos(
    tx: Transaction, owner: Owner, found: Iterable[sessions.SessionRow]
) -> list[SessionInfo]:
    """Sessions as a list shows them, but for those that the index is damaged at."""
    infos = []
    for known in found:
        try:
            infos.append(session_info(tx, owner, known))
        except StoreDamaged as damage:
            log_rows.record_damage(tx, damage)
    return infos


def new_session_id(ids: Ids) -> str:
    """Twelve characters of 0-9, a-f."""
    return ids.uuid().replace("-", "")[:12]
