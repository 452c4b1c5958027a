"""A handle on one session: its events, its own memories, its summary and its context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from reverie.dates import Time
from reverie.embed.tokens import count_tokens
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
    HitKind,
    Kind,
    Memory,
    Message,
    Mode,
    NewMemory,
    Origin,
    PromptAdditions,
    Ranking,
    RankingName,
    RecallNote,
    SessionErasure,
    SessionInfo,
    StoredMessage,
    Summary,
    Where,
)
from reverie.prompt import additions, context, profile
from reverie.protocols import Ids, Owner, Transaction
from reverie.recall.query import Query
from reverie.text.greetings import is_only_greeting
from reverie.text.messages import starts_turn, trim_history, without_system
from reverie.text.normalize import one_line
from reverie.transfer import export as transfer_export
from reverie.write import events, recall_log, session_state, validate
from reverie.write.owners import Target, find_target, session_target, visible_owners
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
    """The options of ``recall``; see ``Space.recall``."""

    limit: int
    mode: Mode
    kinds: Iterable[HitKind] | None
    category: str | None
    tags: Iterable[str] | None
    since: Time | None
    until: Time | None
    where: Where | None
    valid_at: Time | None
    as_of: Time | None
    ranking: Ranking | RankingName | None
    min_score: float | None
    query_embedding: Sequence[float] | None
    explain: bool
    note: bool


class RememberOptions(TypedDict, total=False):
    """The options of ``remember``; see ``Space.remember``."""

    kind: Kind
    category: str
    subject: str | None
    tags: Iterable[str]
    source: str | None
    origin: Origin | None
    happened_at: Time | None
    expires_at: Time | None
    valid_from: Time | None
    valid_to: Time | None
    pinned: bool
    metadata: Mapping[str, Any] | None
    private: bool
    key: str | None
    unless_known: bool


class Session:
    """One conversation. Made by ``Space.session``; threads may share it."""

    def __init__(
        self,
        space: Space,
        id: str,
        fork: Origin | None = None,
        matched_sequence: int | None = None,
        window_start: Origin | None = None,
    ) -> None:
        self._space = space
        self._id = id
        self._forked_from = fork
        self._matched_sequence = matched_sequence
        self._window_start = window_start
        self._target = session_target(id, fork)

    def __repr__(self) -> str:
        return f"Session({self._id!r} in {self._space!r})"

    @property
    def id(self) -> str:
        return self._id

    @property
    def space(self) -> Space:
        """A handle on the space that also recalls the memories private to this session.

        Memories written through it have the latest event of this session as their origin.
        """
        author = self._author
        scoped = author._replace(scope=sessions.session_scope(author.scope, self._id))
        return type(self._space)(self._runtime, scoped, self._space.ranking, self._forked_from)

    @property
    def matched_sequence(self) -> int | None:
        """The sequence of the last message that ``Space.follow`` matched or stored here.

        None for a handle made in another way, and when that message is not in this session.
        """
        return self._matched_sequence

    @property
    def forked_from(self) -> Origin | None:
        """The event of another session that this session continues; None if it is no fork."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            known = None if owner is None else sessions.find(tx, owner, self._id)
        return self._forked_from if known is None else known.forked_from

    @property
    def scratchpad(self) -> ScratchpadHandle:
        """The working list of this session."""
        return ScratchpadHandle(self._space, self._id, self._target)

    # -- writing ------------------------------------------------------------------------------

    def append(
        self,
        message: Message,
        *,
        sequence: int | None = None,
        at: Time | None = None,
        key: str | None = None,
        interrupted: bool = False,
    ) -> Event:
        """Append one message, unchanged, in the format of any provider. Returns once it is on disk.

        ``interrupted`` marks a reply that was cut off. A ``sequence`` must be greater than the last
        one of the session; by default it is the next. No model is called.
        """
        prepared = events.prepare_messages(
            self._runtime, [message], sequence=sequence, at=at, interrupted=interrupted
        )
        return self._append(prepared, key)[0]

    def append_many(self, messages: Iterable[Message], *, key: str | None = None) -> list[Event]:
        """Append messages in order, all of them or none."""
        prepared = events.prepare_messages(self._runtime, list(messages))
        return self._append(prepared, key) if prepared else []

    def _append(self, prepared: list[events.PreparedMessage], key: str | None) -> list[Event]:
        stamp = self._stamp(key, "append", [each.asked for each in prepared])
        with self._space.writer(self._target) as w:
            return events.append(w, self._id, prepared, stamp, self._forked_from)

    def remember(self, content: str, **options: Unpack[RememberOptions]) -> Memory:
        """Remember something said in this session; see ``Space.remember``.

        Its origin is the latest event of this session, or the session as a whole if it has no
        event yet. With ``private=True`` only this session recalls it.
        """
        return self.space.remember(content, **options)

    def remember_many(
        self, items: Iterable[NewMemory | str], *, key: str | None = None
    ) -> list[Memory]:
        """Remember many things said in this session; see ``Space.remember_many``."""
        return self.space.remember_many(items, key=key)

    def hide(self, reason: str | None = None, *, key: str | None = None) -> None:
        """Remove the session from lists and every recall, until ``restore`` or its next event."""
        stamp = self._stamp(key, "hide", reason=reason)
        with self._space.writer(self._target) as w:
            events.hide_or_restore(w, "hide", self._id, stamp)

    def restore(self, *, key: str | None = None) -> None:
        """Undo ``hide``."""
        stamp = self._stamp(key, "restore")
        with self._space.writer(self._target) as w:
            events.hide_or_restore(w, "restore", self._id, stamp)

    def erase(self, *, key: str | None = None) -> SessionErasure:
        """Destroy every event, and the memories that come from them alone. Cannot be undone."""
        stamp = self._stamp(key, "erase")
        return events.erase(self._runtime, self._author, self._id, stamp)

    def erase_event(self, sequence: int, *, key: str | None = None) -> SessionErasure:
        """Destroy the text of one event, such as a password. Other events stay."""
        stamp = self._stamp(key, "erase_event", sequence)
        return events.erase_event(self._runtime, self._author, Origin(self._id, sequence), stamp)

    def write_summary(self, text: str, *, upper: int, expected_epoch: int) -> Summary:
        """Write a summary of the events up to ``upper`` if the stored one has ``expected_epoch``.

        Otherwise nothing changes, and ``applied`` is False.
        """
        redacted = self._runtime.redaction.text(
            text, "the summary", session_state.MAX_SUMMARY_CHARS
        )
        checked = session_state.check_summary(redacted, upper)
        with self._space.writer(self._target) as w:
            known = sessions.find(w.tx, w.owner, self._id)
            if upper > (0 if known is None else known.last_sequence):
                raise InvalidInput(f"session {self._id!r} has no event {upper} yet")
            w.queue_summary_mirror(self._id)
            return session_state.write_summary(
                w.tx, w.owner, self._id, checked, upper, expected_epoch
            )

    def refresh_profile(self) -> None:
        """Use the current profile from the next context on.

        For sessions that last very long. The provider's prompt cache misses once.
        """
        with self._space.writer(self._target) as w:
            current = profile.current_profile(w.tx, visible_owners(w.tx, self._author.scope))
            session_state.freeze_profile(w.tx, w.owner, self._id, current, again=True)

    # -- reading ------------------------------------------------------------------------------

    def events(self, limit: int | None = None, *, until: int | None = None) -> list[Event]:
        """Return the last ``limit`` events in order, or all; those before a fork included.

        ``until`` is the last sequence to return.
        """
        most = None if limit is None else validate.check_limit(limit, MAX_EVENTS)
        if until is not None:
            until = validate.check_limit(until, events.MAX_SEQUENCE, "until")
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            return [] if owner is None else self._events(tx, owner, most, until)

    def resume(self, limit: int = 20) -> list[StoredMessage]:
        """Return the last messages in their original format, ready to be sent to a model again.

        They begin with a user's message, leave out system prompts, and never separate a tool call
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
        """Recall from the space and from the memories of this session; see ``Space.recall``."""
        return self.space.recall(query, **options)

    def memories(self) -> list[Memory]:
        """List the memories that only this session recalls, the newest first."""
        return [memory for memory in self.space.memories() if memory.session is not None]

    def info(self) -> SessionInfo:
        """Return the number of events, a preview, and when the session began and was last used."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            if owner is None:
                raise events.session_not_found(self._id)
            return session_info(tx, owner, events.require_session(tx, owner, self._id))

    def summary(self) -> Summary:
        """Return the rolling summary."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            return (
                Summary()
                if owner is None
                else session_state.find_summary(tx, owner, self._lineage(tx, owner))
            )

    def recalls(self) -> list[RecallNote]:
        """List the recalls of this session, in order: for which event, when, and what was found."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            found = [] if owner is None else recall_log.read_notes(tx, owner, self._id)
        waiting = self._runtime.notes.waiting(sessions.session_scope(self._author.scope, self._id))
        return [*found, *(RecallNote(note.sequence, note.at, note.hits) for note in waiting)]

    def export(self) -> Iterator[dict[str, Any]]:
        """Yield every entry of this session as JSON values for ``Space.import_records``."""
        return transfer_export.export(self._runtime, self._author, self._id)

    def context(
        self,
        query: str | None = None,
        *,
        tokens: int | None = None,
        freeze: bool = True,
        update_tool: str | None = None,
    ) -> Context:
        """Assemble what a model needs for the next turn: profile, summary, memories, history.

        ``query`` is what to recall for, by default the user's last message. ``tokens`` is the
        budget, by default the setting ``context_tokens`` (4000). Hits below ``Space.floor`` are
        left out. ``update_tool`` is the name of the model's tool to change a memory, if it has one:
        the profile mentions it.

        The first context of a session stores which profile it shows. Every later context shows the
        same profile, byte for byte, until ``refresh_profile``. Only if a growing history needs the
        room is the profile shortened, in a few steps. With ``freeze=False`` nothing is stored:
        a session without a stored profile shows the current one.
        """
        if query is not None and not isinstance(query, str):
            raise InvalidInput("query must be text")
        wanted = self._runtime.settings.context_tokens if tokens is None else tokens
        budget = validate.check_limit(wanted, MAX_EVENTS, "tokens")
        if freeze:
            self._freeze_profile()
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            ranges = [] if owner is None else self._lineage(tx, owner)
            scope = self._author.scope
            known = context.read_inputs(
                tx, self._runtime, scope, owner, ranges, budget, count_tokens, update_tool
            )
        latest = known.latest
        asked = (
            query if query is not None else sessions.message_text(latest.message) if latest else ""
        )
        sequence = latest.sequence if latest else None
        # The message that is asked for would be its own best hit.
        own = None if latest is None else (latest.session, latest.sequence)
        sought = Query(
            asked,
            context.MAX_RECALLED,
            ranking=self._space.ranking,
            min_score=self._space.floor,
            exclude=lambda user, candidate: (
                user == self._space.user and (candidate.session, candidate.sequence) == own
            ),
        )
        hits = self.space.run_query(sought, sequence) if asked.strip() else []
        return context.assemble(known, hits, budget, count_tokens, update_tool)

    def prompt_additions(
        self,
        query: str,
        *,
        limit: int | None = None,
        ranking: Ranking | RankingName | None = None,
        freeze: bool = True,
    ) -> PromptAdditions:
        """Return profile and recalled text for a prompt whose history the client sends itself.

        Events of this session are recalled only if the client no longer sends them: those that
        were missing at the start of the history given to ``Space.follow``. If the summary covers
        some of them, it is included. Of the ``limit`` best hits, those that the profile shows are
        left out, and those below the setting ``recall_floor`` if scores are calibrated. The profile
        is the same in every prompt of this session: the first call stores which one it shows. With
        ``freeze=False`` nothing is stored, as in ``context``.
        """
        if not isinstance(query, str):
            raise InvalidInput("query must be text")
        most = validate.check_limit(context.MAX_RECALLED if limit is None else limit, MAX_HITS)
        chosen = self._space.ranking if ranking is None else validate.check_ranking(ranking)
        if freeze:
            self._freeze_profile()
        tokens = self._runtime.settings.context_tokens
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            owners = visible_owners(tx, self._author.scope)
            ranges = [] if owner is None else self._lineage(tx, owner)
            known = additions.read_inputs(
                tx, self._runtime, owners, owner, ranges, tokens, count_tokens
            )
        held = known.holds(self._space.user, self._window_start)
        floor = self._runtime.settings.recall_floor if chosen.is_calibrated else None
        sought = Query(query, most, ranking=chosen, min_score=floor, exclude=held)
        asks = query.strip() and not is_only_greeting(query)
        hits = self.space.run_query(sought, known.latest) if asks else []
        return additions.assemble(known, hits, self._window_start, tokens, count_tokens)

    # -- parts --------------------------------------------------------------------------------

    @property
    def _runtime(self) -> Runtime:
        return self._space.runtime

    @property
    def _author(self) -> Author:
        return self._space.author

    def _owner(self, tx: Transaction) -> Owner | None:
        return find_target(tx, self._author.scope, self._target)

    def _lineage(self, tx: Transaction, owner: Owner) -> list[sessions.EventRange]:
        return sessions.lineage(tx, owner, self._id, self._forked_from)

    def _events(
        self, tx: Transaction, owner: Owner, most: int | None, until: int | None = None
    ) -> list[Event]:
        ranges = sessions.limit_ranges(self._lineage(tx, owner), until)
        rows = sessions.list_events(tx, owner, ranges, newest=most)
        found = index_check.read_event_entries(tx, owner, rows)
        return [sessions.event_from_entry(entry, self._space.user) for entry in found]

    def _freeze_profile(self) -> None:
        """Store how this session sees the profile, the first time."""
        with self._runtime.engine.read() as tx:
            owner = self._owner(tx)
            if owner is not None and session_state.frozen_profile(tx, owner, self._id) is not None:
                return
        if self._runtime.engine.read_only:
            return
        with self._space.writer(self._target) as w:
            frozen = session_state.inherited_profile(
                w.tx, w.owner, self._lineage(w.tx, w.owner)
            ) or profile.current_profile(w.tx, visible_owners(w.tx, self._author.scope))
            session_state.freeze_profile(w.tx, w.owner, self._id, frozen)

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

    def __init__(self, space: Space, session: str, target: Target) -> None:
        self._space = space
        self._session = session
        self._target = target

    def read(self) -> session_state.ScratchpadState:
        """Return the items, and when they were written."""
        with self._space.runtime.engine.read() as tx:
            owner = find_target(tx, self._space.author.scope, self._target)
            return (
                session_state.ScratchpadState()
                if owner is None
                else session_state.read_scratchpad(tx, owner, self._session)
            )

    def write(self, items: Iterable[str]) -> session_state.ScratchpadState:
        """Replace the items: at most 32 of 240 characters, together 8 KiB."""
        runtime = self._space.runtime
        given = session_state.check_item_count(items)
        kept = [runtime.redaction.text(each, "an item", session_state.MAX_BYTES) for each in given]
        pad = session_state.ScratchpadState(session_state.check_items(kept), runtime.clock.now())
        with self._space.writer(self._target) as w:
            session_state.write_scratchpad(w.tx, w.owner, self._session, pad)
        return pad

    def clear(self) -> bool:
        """Empty the scratchpad; return False when it was empty."""
        if not self.read().items:
            return False
        empty = session_state.ScratchpadState()
        with self._space.writer(self._target) as w:
            was = session_state.read_scratchpad(w.tx, w.owner, self._session)
            session_state.write_scratchpad(w.tx, w.owner, self._session, empty)
        return bool(was.items)


def build_context(
    space: Space, query: str, tokens: int | None, update_tool: str | None = None
) -> Context:
    """Assemble the context for a query outside of any session: profile and recalled memories."""
    if not isinstance(query, str):
        raise InvalidInput("query must be text")
    runtime = space.runtime
    wanted = runtime.settings.context_tokens if tokens is None else tokens
    budget = validate.check_limit(wanted, MAX_EVENTS, "tokens")
    sought = Query(query, context.MAX_RECALLED, ranking=space.ranking, min_score=space.floor)
    hits = space.run_query(sought) if query.strip() else []
    with runtime.engine.read() as tx:
        known = context.read_inputs_alone(
            tx, runtime, space.author.scope, hits, budget, count_tokens, update_tool
        )
    return context.assemble(known, hits, budget, count_tokens, update_tool)


def session_info(tx: Transaction, owner: Owner, known: sessions.SessionRow) -> SessionInfo:
    """Build the entry of a session in a list."""
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
    """Build the entries of sessions in a list, without those whose index rows are damaged."""
    infos = []
    for known in found:
        try:
            infos.append(session_info(tx, owner, known))
        except StoreDamaged as damage:
            log_rows.record_damage(tx, damage)
    return infos


def new_session_id(ids: Ids) -> str:
    """Return a new session id: twelve hexadecimal digits."""
    return ids.uuid().replace("-", "")[:12]
