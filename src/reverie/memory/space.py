"""``Space``: a handle on one space, or on one user's part of it. The handle holds the scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import EllipsisType
from typing import Any

from reverie.dates import Time, last_moment, optional_ms
from reverie.embed.tokens import count_tokens
from reverie.engine import (
    index,
    index_check,
    log,
    sessions,
)
from reverie.engine.index import Filter
from reverie.errors import InvalidInput
from reverie.history import match
from reverie.memory.session import Session, build_context, new_session_id, session_infos
from reverie.model import (
    MODES,
    ORDERS,
    Change,
    Context,
    ErasureReport,
    Event,
    Hit,
    HitKind,
    ImportReport,
    Kind,
    Memory,
    Message,
    Mode,
    NewMemory,
    Order,
    Origin,
    Proposal,
    Ranking,
    RankingName,
    SessionInfo,
    Version,
    Where,
)
from reverie.prompt import profile
from reverie.protocols import Owner, Transaction
from reverie.recall import as_of as recall_as_of
from reverie.recall.as_of import VisibleSessions
from reverie.recall.query import Query, redact_query
from reverie.text.metadata import to_canonical
from reverie.text.normalize import require_name
from reverie.text.tags import clean_tags
from reverie.transfer import export as transfer_export
from reverie.transfer import import_
from reverie.write import documents, memories, proposals, validate
from reverie.write.owners import (
    NEW_MEMORY,
    Target,
    find_target,
    memory_target,
    session_target,
    visible_owners,
    writable_owners,
)
from reverie.write.runtime import Runtime
from reverie.write.validate import Draft, request_hash
from reverie.write.where import parse_where
from reverie.write.writer import Author, Writer, WriteStamp, open_writer

MAX_HITS = 1_000
MAX_LISTED = 1_000_000_000
MAX_ID_CHARS = 200


class Space:
    """Remember and recall within one scope. Made by ``Store.space``; threads may share it."""

    def __init__(
        self,
        runtime: Runtime,
        author: Author,
        ranking: Ranking,
        forked_from: Origin | None = None,
    ) -> None:
        self._runtime = runtime
        self._author = author
        self._ranking = ranking
        # The event that the session of this scope, if it has no event yet, will continue.
        self._forked_from = forked_from

    def __repr__(self) -> str:
        scope = self._author.scope
        user = "" if scope.user is None else f", user={scope.user!r}"
        return f"Space({scope.space!r}{user})"

    @property
    def name(self) -> str:
        """The name of the space."""
        return self._author.scope.space

    @property
    def user(self) -> str | None:
        """The user of this handle; None if it has none."""
        return self._author.scope.shown_user

    @property
    def ranking(self) -> Ranking:
        """How recalls of this handle rank unless they name another ranking."""
        return self._ranking

    @property
    def floor(self) -> float | None:
        """The score below which a hit gets no place in a prompt: the setting ``recall_floor``.

        None if the scores of this handle's ranking are not calibrated.
        """
        return self._runtime.settings.recall_floor if self._ranking.is_calibrated else None

    # -- for packages of Reverie itself -------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """The engine, clock, settings and models of the store. For packages of Reverie itself."""
        return self._runtime

    @property
    def author(self) -> Author:
        """The scope, actor and trust of this handle. For packages of Reverie itself."""
        return self._author

    def writer(self, target: Target = NEW_MEMORY) -> AbstractContextManager[Writer]:
        """Open a write transaction of this handle. For packages of Reverie itself."""
        return open_writer(self._runtime, self._author, target)

    def build_draft(self, content: str, *, private: bool, **given: Any) -> Draft:
        """Check and prepare a memory of this handle. For packages of Reverie itself."""
        session = self._author.scope.session if private else None
        given = {"kind": "fact", "category": "general", **given, "session": session}
        return validate.build_draft(self._runtime, content, **given)

    def remember_separately(self, content: str, *, key: str | None, **given: Any) -> Memory:
        """Remember a text as a memory of its own, even if another has the same text.

        Each file of a vault is a memory. Through the handle of a session it is private to that
        session. For packages of Reverie itself.
        """
        validate.check_key(key)
        draft = self.build_draft(content, private=True, **given)
        stamp = self._stamp(key, "remember", *_request_of(draft), origin=draft.origin)
        with self.writer() as w:
            return memories.add(w, draft, stamp)

    def run_query(
        self,
        query: Query,
        sequence: int | None = None,
        *,
        as_of: Time | None = None,
        valid_at: int | None = None,
        note: bool = True,
    ) -> list[Hit]:
        """Recall and, with ``note``, log the recall. For packages of Reverie itself.

        ``sequence`` is the event of this handle's session that the recall is made for. A recall of
        another moment (``as_of``, ``valid_at``) is never logged.
        """
        # numpy takes time to load, and importing Reverie does without it.
        from reverie.recall import recall

        query = redact_query(self._runtime, query)
        if as_of is not None or valid_at is not None:
            with self._runtime.engine.read(allow_replica=True) as tx:
                owners = self._owners(tx)
                position, moment = self._resolve_moment(tx, owners, as_of)
                seen = self._visible_sessions(tx)
                known = recall_as_of.items_at(tx, owners, seen, position, valid_at)
            chosen = replace(query.filter, alive_at=moment, memories_only=valid_at is not None)
            query = replace(query, filter=chosen)
            return recall.recall_as_of(self._runtime, known, query, valid_at)
        vector = recall.prepare_query_vector(self._runtime, query)
        with self._runtime.engine.read(allow_replica=True) as tx:
            owners = self._owners(tx)
            query = replace(
                query, filter=replace(query.filter, **self._visible_sessions(tx)._asdict())
            )
            hits = recall.recall(self._runtime, owners, query, vector)
        if hits and note:
            found = tuple(hit.id for hit in hits)
            now = self._runtime.clock.now()
            self._runtime.notes.add(self._author.scope, now, query.text, found, sequence)
        return hits

    # -- writing ------------------------------------------------------------------------------

    def remember(
        self,
        content: str,
        *,
        kind: Kind = "fact",
        category: str = "general",
        subject: str | None = None,
        tags: Iterable[str] = (),
        source: str | None = None,
        origin: Origin | None = None,
        happened_at: Time | None = None,
        expires_at: Time | None = None,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        private: bool = False,
        key: str | None = None,
        unless_known: bool = False,
    ) -> Memory:
        """Remember one thing. Returns once it is on disk.

        The result has the other memories of its subject in ``related``. ``metadata`` is any JSON
        object of up to 16 KiB. ``valid_from`` and ``valid_to`` (exclusive) say when it is true. The
        same ``key`` with the same arguments returns the first result.

        A text that is remembered again does not become a second memory, unless it contradicts the
        first in subject, times or metadata: the first gets a new version. Facts are compared
        without case, white space and a final full stop, notes exactly. The version keeps the text,
        the subject, and a category other than the default. It gets the labels that the memory
        lacked, and the new ``source``. If the author is less trusted than that of the memory, the
        version changes nothing, and only its reason names the new source. With ``unless_known``,
        SubjectExists is raised if a memory of this category and subject already says something
        similar.

        Through the handle of a session, ``origin`` is by default the session's latest event, or the
        session as a whole if it has no event yet. ``private`` needs such a handle: only that
        session recalls the memory.
        """
        validate.check_key(key)
        if private and self._author.scope.session is None:
            raise InvalidInput("a private memory needs a session: remember it through one")
        draft = self.build_draft(
            content,
            kind=kind,
            category=category,
            subject=subject,
            tags=tags,
            source=source,
            origin=origin,
            happened_at=happened_at,
            expires_at=expires_at,
            valid_from=valid_from,
            valid_to=valid_to,
            pinned=pinned,
            metadata=metadata,
            private=private,
        )
        named = ("private", self._author.scope.session) if private else ()
        stamp = self._stamp(key, "remember", *_request_of(draft), *named, origin=draft.origin)
        with self.writer(self._new_memory(draft.session)) as w:
            return memories.remember(
                w, draft, self._with_origin(w, stamp), unless_known=unless_known
            )

    def remember_many(
        self, items: Iterable[NewMemory | str], *, key: str | None = None
    ) -> list[Memory]:
        """Remember many things in one transaction, all of them or none: one memory for each item.

        An item is a content, or a mapping with a ``content`` and the other arguments of
        ``remember``, except ``private``; there are at most 1,000.
        """
        validate.check_key(key)
        drafts = validate.build_drafts(self._runtime, items)
        stamp = self._stamp(key, "remember_many", *map(_request_of, drafts))
        if not drafts:
            return []
        with self.writer() as w:
            return memories.remember_many(w, drafts, self._with_origin(w, stamp))

    def remember_file(self, path: str | Path, *, category: str = "document") -> Memory:
        """Remember a text document as a note. Unchanged content is not processed again."""
        return documents.remember(self._runtime, self._author, Path(path), category)

    def revise(
        self,
        id: str,
        content: str | None = None,
        *,
        category: str | EllipsisType = ...,
        subject: str | None | EllipsisType = ...,
        tags: Iterable[str] | EllipsisType = ...,
        pinned: bool | EllipsisType = ...,
        metadata: Mapping[str, Any] | None | EllipsisType = ...,
        valid_from: Time | None | EllipsisType = ...,
        valid_to: Time | None | EllipsisType = ...,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Write a new version of a memory. Fields that are not given stay as they are.

        ``metadata`` replaces the whole object; None removes it.
        """
        validate.check_key(key)
        given = {
            "category": category,
            "subject": subject,
            "tags": tags,
            "pinned": pinned,
            "metadata": metadata,
            "valid_from": valid_from,
            "valid_to": valid_to,
        }
        made = memories.prepare_revision(self._runtime, content, given, lambda: self.get(id))
        stamp = self._stamp(key, "revise", id, _request_of_changes(made.changes), reason=reason)
        alter = made.alter(self._author.trust, expected_version)
        checked = _check_id(id)
        with self.writer(memory_target(checked)) as w:
            stamp = self._with_origin(w, stamp)
            return memories.change(w, checked, "revise", stamp, alter, made.text)

    def forget(
        self,
        id: str,
        *,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Remove a memory from every recall, until ``restore``. Its history stays."""
        stamp = self._stamp(key, "forget", id, reason=reason)
        checked = _check_id(id)
        with self.writer(memory_target(checked)) as w:
            stamp = self._with_origin(w, stamp)
            return memories.change(
                w, checked, "forget", stamp, memories.forget_change(expected_version)
            )

    def forget_source(
        self, source: str, *, reason: str | None = None, key: str | None = None
    ) -> list[Memory]:
        """Forget every memory with exactly this source, all of them or none.

        ``restore`` undoes it for each of them. When there was nothing to forget, the key is not
        stored: repeated later, the call may forget something.
        """
        name = memories.normalize_source(self._runtime, source)
        stamp = self._stamp(key, "forget_source", name, reason=reason)
        with self.writer() as w:
            return memories.forget_source(w, name, self._with_origin(w, stamp))

    def memories_from_source(self, source: str) -> list[Memory]:
        """List the memories that ``forget_source`` would forget, the oldest first."""
        name = memories.normalize_source(self._runtime, source)
        return memories.memories_from_source(self._runtime, self._author, name)

    def restore(self, id: str, *, key: str | None = None) -> Memory:
        """Undo ``forget``."""
        stamp, checked = self._stamp(key, "restore", id), _check_id(id)
        alter = memories.restore_change(self._runtime.clock)
        with self.writer(memory_target(checked)) as w:
            return memories.change(w, checked, "restore", self._with_origin(w, stamp), alter)

    def erase(self, id: str, *, with_source: bool = False, key: str | None = None) -> ErasureReport:
        """Destroy every version of a memory. This cannot be undone."""
        stamp = self._stamp(key, "erase", id, with_source)
        return memories.erase(self._runtime, self._author, _check_id(id), with_source, stamp)

    # -- reading ------------------------------------------------------------------------------

    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        mode: Mode = "hybrid",
        kinds: Iterable[HitKind] | None = None,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        where: Where | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        ranking: Ranking | RankingName | None = None,
        min_score: float | None = None,
        query_embedding: Sequence[float] | None = None,
        explain: bool = False,
        note: bool = True,
    ) -> list[Hit]:
        """Return the memories and events that best answer a query, best first.

        Hits below ``min_score`` are left out; with the default ranking scores are from 0 to 1 and
        comparable between queries, and prompts leave out those below ``floor``. ``ranking`` is a
        Ranking or one of the names in ``RANKINGS``, by default the handle's. ``since`` and
        ``until`` (exclusive) limit when something happened; ``where`` are conditions on metadata,
        tags and other fields. With ``note=False`` the recall is not logged.

        ``valid_at`` asks for what was true at a time: only memories are found, each in the version
        that was true then. No event is, because its time is when it was said. A year or month
        ("2023", "2023-05") means its last moment, or now while it lasts. ``as_of`` asks for what
        the store knew at a position of the log (an int) or at a time: the recall finds what it
        would have found then.
        """
        if not isinstance(query, str):
            raise InvalidInput("query must be text")
        if mode not in MODES:
            raise InvalidInput(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        chosen = Filter(
            kinds=tuple(validate.check_hit_kind(kind) for kind in kinds or ()),
            category=None if category is None else validate.check_category(category),
            tags=clean_tags(tags or ()),
            since=optional_ms(since, "since"),
            until=optional_ms(until, "until"),
            condition=parse_where(where),
        )
        asked = Query(
            query,
            validate.check_limit(limit, MAX_HITS),
            mode,
            chosen,
            self._ranking if ranking is None else validate.check_ranking(ranking),
            query_embedding,
            explain,
            validate.check_min_score(min_score),
        )
        valid = self._valid_moment(valid_at)
        return self.run_query(asked, as_of=as_of, valid_at=valid, note=note)

    def get(self, id: str) -> Memory:
        """Return a memory by its id, even a forgotten one."""
        with self._runtime.engine.read() as tx:
            return self._find_memory(tx, id)[1]

    def history(self, id: str) -> list[Version]:
        """List every version of a memory, the oldest first; those of an erased one are blank."""
        with self._runtime.engine.read() as tx:
            for owner in self._owners(tx):
                entries = index_check.read_versions(tx, owner, _check_id(id))
                if entries:
                    return [entry.as_version() for entry in entries]
        raise memories.memory_not_found(id)

    def memories(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: Kind | None = None,
        where: Where | None = None,
        include_forgotten: bool = False,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        limit: int | None = None,
        after: str | None = None,
        order: Order = "newest",
    ) -> list[Memory]:
        """List the memories of this scope, the newest first or by category.

        ``where`` are conditions such as ``{"metadata.team": {"in": ["a", "b"]}}``. With
        ``valid_at`` each memory is in the version that was true at that time. ``after`` is the id
        of the last memory of the previous page.
        """
        if order not in ORDERS:
            raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        most = None if limit is None else validate.check_limit(limit, MAX_LISTED)
        chosen = self._build_filter(category, subject, tags, kind, include_forgotten, where)
        with self._runtime.engine.read() as tx:
            # Only a page of the current memories, the newest first, can be cut in SQL.
            part = most if order == "newest" and as_of is None and valid_at is None else None
            before = None
            if after is not None and part is not None:
                before = self._find_memory(tx, after)[0]
            valid = self._valid_moment(valid_at)
            found = self._find_memories(tx, chosen, as_of, valid, part, before)
            if after is not None and before is None:
                # The last listed memory may be gone from the list: its sort key still tells where.
                listed = (pair for pair in found if pair[1].id == after)
                first_position, state = next(listed, None) or self._find_memory(tx, after)
                state = replace(state, category=chosen.category or state.category)
                last = _SORT_KEYS[order]((first_position, state))
                found = [pair for pair in found if _SORT_KEYS[order](pair) > last]
        found.sort(key=_SORT_KEYS[order])
        return [memory for _, memory in found[:most]]

    def count(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: Kind | None = None,
        where: Where | None = None,
        include_forgotten: bool = False,
        valid_at: Time | None = None,
        as_of: Time | None = None,
    ) -> int:
        """Count the memories that ``memories`` would list."""
        chosen = self._build_filter(category, subject, tags, kind, include_forgotten, where)
        with self._runtime.engine.read() as tx:
            if as_of is not None or valid_at is not None:
                valid = self._valid_moment(valid_at)
                return len(self._find_memories(tx, chosen, as_of, valid))
            return sum(self._count_memories(tx, chosen).values())

    def categories(self) -> dict[str, int]:
        """Return every category, by name, with the number of its memories."""
        with self._runtime.engine.read() as tx:
            chosen = self._build_filter(None, None, None, None, False)
            counts = recall_as_of.count_categories(
                tx, self._owners(tx), self._visible_sessions(tx), chosen
            )
        return dict(sorted(counts.items()))

    def position(self) -> int:
        """Return the last position of the space's log."""
        with self._runtime.engine.read() as tx:
            return log.last_position(tx, list(owners)[-1]) if (owners := self._owners(tx)) else 0

    def changes(self, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """List the entries of the log after a position, in order, for programs that mirror it."""
        most = validate.check_limit(limit, MAX_LISTED)
        with self._runtime.engine.read() as tx:
            found = [
                entry.as_change(user)
                for owner, user in self._owners(tx).items()
                for entry in islice(log.all_entries(tx, owner, after=after, skip=True), most)
            ]
        return sorted(found, key=lambda change: change.position)[:most]

    def profile(self, *, tokens: int = 2000, update_tool: str | None = None) -> str:
        """Return the profile, a block of memories for a prompt: same memories, same bytes.

        If not all fit, pinned memories are shown first, then facts about people, health and
        preferences, then memories that are recalled often, then the newest. ``update_tool`` is the
        name of the model's tool to change a memory, if it has one: the profile mentions it.
        """
        most = validate.check_limit(tokens, MAX_LISTED, "tokens")
        with self._runtime.engine.read() as tx:
            chosen = profile.choose_cached(
                self._runtime.profiles,
                tx,
                self._owners(tx),
                self._runtime.clock.now(),
                None,
                most,
                count_tokens,
                update_tool,
            )
            return profile.render(chosen, update_tool)

    def context(
        self, query: str, *, tokens: int | None = None, update_tool: str | None = None
    ) -> Context:
        """Assemble profile and recalled memories for a query outside of any session.

        ``update_tool`` is the name of the model's tool to change a memory, if it has one.
        """
        return build_context(self, query, tokens, update_tool)

    # -- sessions -----------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session of this scope; without an id, on a new one."""
        name = new_session_id(self._runtime.ids) if id is None else id
        return Session(self, require_name(name, "the id of a session", MAX_ID_CHARS))

    def sessions(
        self,
        *,
        limit: int | None = None,
        include_hidden: bool = False,
        since: Time | None = None,
        until: Time | None = None,
    ) -> list[SessionInfo]:
        """List the sessions of this handle, the one with the newest event first.

        ``since`` and ``until`` (exclusive) limit when that event was stored.
        """
        most = None if limit is None else validate.check_limit(limit, MAX_LISTED)
        bounds = {"since": optional_ms(since, "since"), "until": optional_ms(until, "until")}
        with self._runtime.engine.read() as tx:
            found = [
                (owner, row)
                for owner in writable_owners(tx, self._author.scope)
                for row in sessions.list_sessions(
                    tx, owner, hidden=include_hidden, limit=most, **bounds
                )
            ]
            found.sort(key=lambda pair: -pair[1].position)
            return [info for owner, row in found[:most] for info in session_infos(tx, owner, [row])]

    def follow(
        self,
        history: Iterable[Message],
        *,
        session: str | None = None,
        key: str | None = None,
    ) -> Session:
        """Store the new messages of a history that a client resends as a whole each turn.

        All messages are matched, replies included. Where the history diverges from the stored one,
        the session returned is a new one, ``forked_from`` the last event they share. System prompts
        are left out. ``session`` is the session that the client names; then the history may lack
        its oldest messages.
        """
        validate.check_key(key)
        if session is not None:
            require_name(session, "the id of a session", MAX_ID_CHARS)
        resent = match.read_history(self._runtime, history)
        stamp = self._stamp(key, "follow", session, resent.redacted)
        followed = match.follow(
            self._runtime,
            self._author,
            resent,
            new_session_id(self._runtime.ids),
            session,
            stamp,
        )
        return Session(self, *followed)

    def neighbours(self, hit: Hit | Event, *, before: int = 2, after: int = 2) -> list[Event]:
        """Return an event with the events before and after it in its session, in order."""
        event = hit.event if isinstance(hit, Hit) else hit
        if event is None:
            raise InvalidInput("only an event has neighbours: this hit is a memory")
        with self._runtime.engine.read() as tx:
            for owner, user in self._owners(tx).items():
                if user == event.user and sessions.find(tx, owner, event.session) is not None:
                    return index_check.read_surrounding_events(
                        tx, owner, user, event, max(before, 0), max(after, 0)
                    )
        return []

    # -- proposals ----------------------------------------------------------------------------

    def proposals(self, *, include_answered: bool = False) -> list[Proposal]:
        """List the proposals that wait for an answer, or all of them, the oldest first."""
        with self._runtime.engine.read() as tx:
            return proposals.list_in_scope(tx, self._author.scope, answered=include_answered)

    def accept(self, proposal: str, *, key: str | None = None) -> Memory:
        """Remember a proposed fact; if it was accepted before, return the same memory.

        If a later proposal of another value for the same fact, such as a newer home, was accepted
        already, nothing is remembered: the memory it became is returned unchanged.
        """
        stamp = self._stamp(key, "accept", proposal)
        return proposals.accept(self._runtime, self._author, proposal, stamp)

    def reject(
        self, proposal: str, *, reason: str | None = None, key: str | None = None
    ) -> Proposal:
        """Reject a proposal: it is not remembered."""
        stamp = self._stamp(key, "reject", proposal, reason=reason)
        with self.writer(proposals.proposal_target(proposal)) as w:
            return proposals.reject(w, proposal, stamp)

    # -- in and out ---------------------------------------------------------------------------

    def export(self, *, skip_damaged: bool = False) -> Iterator[dict[str, Any]]:
        """Yield every log entry of this handle's owner as JSON values, the oldest first.

        Raises StoreDamaged at a damaged entry, or with ``skip_damaged`` leaves it out and counts it
        in ``Store.damaged``.
        """
        return transfer_export.export(self._runtime, self._author, skip_damaged=skip_damaged)

    def import_records(
        self, records: Iterable[transfer_export.Record | transfer_export.UnreadableRecord]
    ) -> ImportReport:
        """Import the records of ``export``, or plain records with a content. Repeating is safe."""
        return import_.import_records(self._runtime, self._author, records)

    def import_agent_cli(
        self, folder: str | Path, progress: Callable[[int, int], None] | None = None
    ) -> ImportReport:
        """Import the memory folder of agent-cli, which stays as it is. Repeating is safe."""
        # pydantic and YAML take time to load.
        from reverie.transfer import agent_cli

        return agent_cli.import_folder(self._runtime, self._author, folder, progress)

    # -- parts --------------------------------------------------------------------------------

    def _owners(self, tx: Transaction) -> dict[Owner, str | None]:
        return visible_owners(tx, self._author.scope)

    def _build_filter(
        self,
        category: str | None,
        subject: str | None,
        tags: Iterable[str] | None,
        kind: str | None,
        include_forgotten: bool,
        where: Where | None = None,
    ) -> Filter:
        key = None if subject is None else validate.subject_filter_key(subject)
        return Filter(
            kinds=() if kind is None else (validate.check_kind(kind),),
            category=None if category is None else validate.check_category(category),
            subject_key=key,
            tags=clean_tags(tags or ()),
            condition=parse_where(where),
            include_forgotten=include_forgotten,
            alive_at=None if include_forgotten else self._runtime.clock.now(),
        )

    def _find_memories(
        self,
        tx: Transaction,
        chosen: Filter,
        as_of: Time | None,
        valid_at: int | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """Find the memories that a listing shows, each with its first position."""
        owners, seen = self._owners(tx), self._visible_sessions(tx)
        if as_of is not None or valid_at is not None:
            forgotten = chosen.include_forgotten
            position, moment = self._resolve_moment(tx, owners, as_of)
            then = replace(chosen, alive_at=None if forgotten else moment)
            known = recall_as_of.memories_at(
                tx, owners, seen, position, valid_at, include_forgotten=forgotten
            )
            return [pair for pair in known if then.accepts(pair[1])]
        return recall_as_of.memories_now(tx, owners, seen, chosen, limit, before)

    def _resolve_moment(
        self, tx: Transaction, owners: Mapping[Owner, str | None], as_of: Time | None
    ) -> tuple[int, int]:
        """Return a position and its time: those of ``as_of``, or of now."""
        if as_of is not None:
            return recall_as_of.resolve_as_of(tx, owners, as_of)
        now = self._runtime.clock.now()
        return (log.last_position(tx, list(owners)[-1]) if owners else 0), now

    def _valid_moment(self, valid_at: Time | None) -> int | None:
        return last_moment(valid_at, "valid_at", self._runtime.clock.now())

    def _count_memories(self, tx: Transaction, chosen: Filter) -> Counter[str]:
        chosen, found = replace(chosen, **self._visible_sessions(tx)._asdict()), Counter[str]()
        for owner in self._owners(tx):
            found.update(index.count_by_category(tx, owner, chosen))
        return found

    def _find_memory(self, tx: Transaction, id: str) -> tuple[int, Memory]:
        """Find the current state of a memory, even a forgotten one, and its first position."""
        for owner, user in self._owners(tx).items():
            place = index.find(tx, owner, _check_id(id))
            if place is not None:
                return place.first_position, index_check.read_current(tx, owner, place, id).state(
                    user
                )
        raise memories.memory_not_found(id)

    def _visible_sessions(self, tx: Transaction) -> VisibleSessions:
        """Return the sessions whose own memories are visible: this one, and what it forks."""
        scope = self._author.scope
        if scope.session is None:
            return VisibleSessions()
        owner = find_target(tx, scope, session_target(scope.session, self._forked_from))
        if owner is None:
            return VisibleSessions()
        ranges = sessions.lineage(tx, owner, scope.session, self._forked_from)
        return VisibleSessions(tuple(range_.session for range_ in ranges), owner)

    def _with_origin(self, w: Writer, stamp: WriteStamp) -> WriteStamp:
        """Let a write through the handle of a session name that session's latest event.

        Before its first event, the origin is the session with sequence 0. The origin is no part of
        a repeated request: the session may have gone on since.
        """
        session = self._author.scope.session
        if session is None or stamp.origin is not None:
            return stamp
        origin = Origin(session, 0)
        owner = find_target(w.tx, w.author.scope, session_target(session, self._forked_from))
        if owner is not None:
            ranges = sessions.lineage(w.tx, owner, session, self._forked_from)
            last = sessions.last_event(w.tx, owner, ranges)
            origin = origin if last is None else Origin(last.session, last.sequence)
        return stamp._replace(origin=origin)

    def _new_memory(self, session: str | None) -> Target:
        """Return where a new memory belongs; a private one belongs where its session is."""
        return NEW_MEMORY if session is None else session_target(session, self._forked_from)

    def _stamp(
        self,
        key: str | None,
        verb: str,
        *arguments: object,
        reason: str | None = None,
        origin: Origin | None = None,
    ) -> WriteStamp:
        return WriteStamp(
            key=validate.check_key(key),
            request=request_hash(key, verb, *arguments),
            reason=validate.check_reason(self._runtime, reason),
            origin=origin,
        )


def _request_of(draft: Draft) -> tuple[object, ...]:
    """Return what tells the request of this draft from others with the same key."""
    asked = (draft.text.content, *(getattr(draft, name) for name in _DRAFT_FIELDS))
    later = {name: getattr(draft, name) for name in _LATER_DRAFT_FIELDS}
    # The keys of an object have no order.
    later["metadata"] = to_canonical(draft.metadata) if draft.metadata else None
    return (*asked, *((name, value) for name, value in later.items() if value is not None))


def _request_of_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells the request of a revision from others with the same key."""
    if not changes.get("metadata"):
        return dict(changes)
    return {**changes, "metadata": to_canonical(changes["metadata"])}


_SORT_KEYS: Mapping[Order, Callable[[tuple[int, Memory]], Any]] = {
    "newest": lambda pair: -pair[0],
    "category": lambda pair: (pair[1].category, pair[1].created_at, pair[0]),
}
_DRAFT_FIELDS = (
    "kind",
    "category",
    "subject",
    "tags",
    "source",
    "origin",
    "happened_at",
    "expires_at",
    "pinned",
)
# Fields of later versions are part of a request only where they are set, so that a key that was
# used before an upgrade is recognized after it.
_LATER_DRAFT_FIELDS = ("metadata", "valid_from", "valid_to")


def _check_id(value: str) -> str:
    """Return a memory id, or raise NotFound for what cannot be one."""
    if not isinstance(value, str) or not value.isascii() or not value.isalnum():
        raise memories.memory_not_found(str(value)[:40])
    return value
