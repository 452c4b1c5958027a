"""A handle on one space, or on one user's part of it. The scope is in the handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from reverie.dates import Time, optional_ms
from reverie.engine import (
    index,
    index_check,
    log,
    sessions,
)
from reverie.engine.index import Filter
from reverie.errors import InvalidInput
from reverie.model import (
    MODES,
    ORDERS,
    Change,
    Context,
    ErasureReport,
    Event,
    Hit,
    ImportReport,
    Memory,
    Mode,
    Order,
    Origin,
    Proposal,
    Ranking,
    SessionInfo,
    Version,
)
from reverie.prompt import profile
from reverie.protocols import Owner, Transaction
from reverie.recall import as_of as recall_as_of
from reverie.recall.as_of import Seen
from reverie.text.normalize import plain_name
from reverie.text.tags import clean_tags
from reverie.transfer import export as transfer_export
from reverie.transfer import import_
from reverie.write import (
    documents,
    proposals,
    revision,
    sources,
    validate,
    writer,
)
from reverie.write.runtime import Resources
from reverie.write.validate import request_hash
from reverie.write.writer import Author, Stamp

if TYPE_CHECKING:
    from reverie.memory.session import Session
    from reverie.recall.recall import Query

MOST_HITS = 1_000
MOST_LISTED = 1_000_000_000
MOST_ID_CHARS = 200


class Space:
    """Remember and recall within one scope. Made by ``Store.space``; threads may share it."""

    def __init__(
        self,
        resources: Resources,
        author: Author,
        ranking: Ranking,
        begun_from: Origin | None = None,
    ) -> None:
        self._resources = resources
        self._author = author
        self._ranking = ranking
        # Where the session of this scope, if it has no event yet, will go on from.
        self._begun_from = begun_from

    def __repr__(self) -> str:
        scope = self._author.scope
        user = "" if scope.user is None else f", user={scope.user!r}"
        return f"Space({scope.space!r}{user})"

    @property
    def name(self) -> str:
        return self._author.scope.space

    @property
    def user(self) -> str | None:
        return self._author.scope.user

    # -- writing ------------------------------------------------------------------------------

    def remember(
        self,
        content: str,
        *,
        kind: str = "fact",
        category: str = "general",
        subject: str | None = None,
        tags: Iterable[str] = (),
        source: str | None = None,
        origin: Origin | None = None,
        happened_at: Time | None = None,
        expires_at: Time | None = None,
        pinned: bool = False,
        key: str | None = None,
        force: bool = False,
    ) -> Memory:
        """Keep one thing. Returns once it is on disk.

        Raises SubjectExists when the same category and subject is remembered already, unless
        ``force``. The same ``key`` with the same arguments returns the first result.
        """
        validate.check_key(key)
        draft = validate.draft(
            self._resources,
            content,
            kind=kind,
            category=category,
            subject=subject,
            tags=tags,
            source=source,
            origin=origin,
            happened_at=happened_at,
            expires_at=expires_at,
            pinned=pinned,
            session=self._author.scope.session,
        )
        asked = (draft.text.content, *(getattr(draft, name) for name in _ASKED))
        stamp = self._stamp(key, "remember", *asked, origin=draft.origin)
        return writer.remember(self._resources, self._author, draft, stamp, force)

    def remember_file(self, path: str | Path, *, category: str = "document") -> Memory:
        """Keep a text document as a note. Unchanged content is not processed again."""
        return documents.remember(self._resources, self._author, Path(path), category)

    def revise(
        self,
        id: str,
        content: str | None = None,
        *,
        category: str | EllipsisType = ...,
        subject: str | None | EllipsisType = ...,
        tags: Iterable[str] | EllipsisType = ...,
        pinned: bool | EllipsisType = ...,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """A new version of the same memory. What is not given stays as it is."""
        validate.check_key(key)
        given = {"category": category, "subject": subject, "tags": tags, "pinned": pinned}
        made = revision.prepare(self._resources, content, given, lambda: self.get(id).kind)
        stamp = self._stamp(key, "revise", id, made.changes, reason=reason)
        alter = made.alter(self._author.trust, expected_version)
        return writer.change(
            self._resources, self._author, _id(id), "revise", stamp, alter, made.text
        )

    def forget(
        self,
        id: str,
        *,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Take a memory out of every recall. Its history stays, and ``restore`` brings it back."""
        stamp = self._stamp(key, "forget", id, reason=reason)
        alter = revision.forgotten(expected_version)
        return writer.change(self._resources, self._author, _id(id), "forget", stamp, alter)

    def forget_source(
        self, source: str, *, reason: str | None = None, key: str | None = None
    ) -> list[Memory]:
        """Take everything that exactly this source wrote out of every recall, all of it or none.

        ``restore`` brings each of them back. A key that found nothing to forget stands for nothing.
        """
        name = sources.as_kept(self._resources, source)
        stamp = self._stamp(key, "forget_source", name, reason=reason)
        return sources.forget(self._resources, self._author, name, stamp)

    def of_source(self, source: str) -> list[Memory]:
        """What ``forget_source`` would forget, the oldest first."""
        name = sources.as_kept(self._resources, source)
        return sources.listed(self._resources, self._author, name)

    def restore(self, id: str, *, key: str | None = None) -> Memory:
        """Bring a forgotten memory back."""
        stamp, alter = self._stamp(key, "restore", id), revision.restored(self._resources.clock)
        return writer.change(self._resources, self._author, _id(id), "restore", stamp, alter)

    def erase(self, id: str, *, with_source: bool = False, key: str | None = None) -> ErasureReport:
        """Destroy every version of a memory. This cannot be undone."""
        stamp = self._stamp(key, "erase", id, with_source)
        return writer.erase(self._resources, self._author, _id(id), with_source, stamp)

    # -- reading ------------------------------------------------------------------------------

    def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        mode: Mode = "hybrid",
        kinds: Iterable[str] | None = None,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        ranking: Ranking | str | None = None,
        query_embedding: Sequence[float] | None = None,
        explain: bool = False,
        note: bool = True,
    ) -> list[Hit]:
        """What is most worth knowing for a query, best first.

        ``ranking`` is a Ranking or one of the names in ``RANKINGS``; without it, the handle's.
        ``since`` and ``until`` (exclusive) look at when something happened. ``as_of`` is a position
        of the log (an int) or a time: what would have been found then. ``note``: whether it counts
        as a recall, or somebody only looks.
        """
        from reverie.recall import recall

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
        )
        asked = recall.Query(
            query,
            validate.check_limit(limit, MOST_HITS),
            mode,
            chosen,
            self._ranking if ranking is None else validate.check_ranking(ranking),
            query_embedding,
            explain,
        )
        if as_of is not None:
            with self._resources.engine.read(lagging=True) as tx:
                owners = self._owners(tx)
                position, moment = recall_as_of.moment(tx, owners, as_of)
                known = recall_as_of.known_at(tx, owners, self._seen(tx), position)
            then = replace(chosen, alive_at=moment)
            return recall.recall_as_of(self._resources, known, then, asked)
        return self._recalled(asked, note=note)

    def _recalled(
        self, asked: Query, sequence: int | None = None, *, note: bool = True
    ) -> list[Hit]:
        """Recall, and note it. ``sequence`` is the event of this session it is for."""
        from reverie.recall import recall

        asked = recall.without_secrets(self._resources, asked)
        eye = recall.open_eye(self._resources, asked)
        with self._resources.engine.read(lagging=True) as tx:
            owners = self._owners(tx)
            asked = replace(asked, chosen=replace(asked.chosen, **self._seen(tx)._asdict()))
            hits = recall.recall(self._resources, owners, asked, eye)
        if hits and note:
            found = tuple(hit.id for hit in hits)
            now = self._resources.clock.now()
            self._resources.notes.add(self._author.scope, now, asked.text, found, sequence)
        return hits

    def get(self, id: str) -> Memory:
        """A memory by its id, a forgotten one included."""
        with self._resources.engine.read() as tx:
            return self._placed(tx, id)[1]

    def history(self, id: str) -> list[Version]:
        """Every version, the oldest first. An erased memory's versions have no content."""
        with self._resources.engine.read() as tx:
            for owner in self._owners(tx):
                entries = index_check.history(tx, owner, _id(id))
                if entries:
                    return [entry.as_version() for entry in entries]
        raise writer.missing(id)

    def memories(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: str | None = None,
        include_forgotten: bool = False,
        as_of: Time | None = None,
        limit: int | None = None,
        after: str | None = None,
        order: Order = "newest",
    ) -> list[Memory]:
        """The memories of this scope, the newest first or by category.

        ``after`` is the last memory of the part before this one.
        """
        if order not in ORDERS:
            raise InvalidInput(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        most = None if limit is None else validate.check_limit(limit, MOST_LISTED)
        chosen = self._listing(category, subject, tags, kind, include_forgotten)
        with self._resources.engine.read() as tx:
            # Only the newest of all that is known now need not be read whole.
            part = most if order == "newest" and as_of is None else None
            before = None
            if after is not None and part is not None:
                before = self._placed(tx, after)[0]
            found = self._found(tx, chosen, as_of, part, before)
            if after is not None and before is None:
                # What was listed last may have left the list since: its place tells all the same.
                listed = (pair for pair in found if pair[1].id == after)
                born, state = next(listed, None) or self._placed(tx, after)
                state = replace(state, category=chosen.category or state.category)
                last = _PLACE[order]((born, state))
                found = [pair for pair in found if _PLACE[order](pair) > last]
        found.sort(key=_PLACE[order])
        return [memory for _, memory in found[:most]]

    def count(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: str | None = None,
        include_forgotten: bool = False,
        as_of: Time | None = None,
    ) -> int:
        """How many memories there are, by the rules of ``memories``."""
        chosen = self._listing(category, subject, tags, kind, include_forgotten)
        with self._resources.engine.read() as tx:
            if as_of is not None:
                return len(self._found(tx, chosen, as_of))
            return sum(self._counts(tx, chosen).values())

    def categories(self) -> dict[str, int]:
        """Every category by name, and how many memories it has."""
        with self._resources.engine.read() as tx:
            chosen = self._listing(None, None, None, None, False)
            counts = recall_as_of.categories_now(tx, self._owners(tx), self._seen(tx), chosen)
        return dict(sorted(counts.items()))

    def position(self) -> int:
        """Where the log of the space stands."""
        with self._resources.engine.read() as tx:
            return log.last_position(tx, list(owners)[-1]) if (owners := self._owners(tx)) else 0

    def changes(self, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """What happened behind a position of the log, in order: what a mirror has to follow."""
        most = validate.check_limit(limit, MOST_LISTED)
        with self._resources.engine.read() as tx:
            found = [
                entry.as_change(user)
                for owner, user in self._owners(tx).items()
                for entry in islice(log.all_entries(tx, owner, after=after, skip=True), most)
            ]
        return sorted(found, key=lambda change: change.position)[:most]

    def profile(self, *, tokens: int = 2000) -> str:
        """The prompt block of what is known, the same bytes for the same memories."""
        from reverie.embed.tokens import count_tokens

        most = validate.check_limit(tokens, MOST_LISTED, "tokens")
        with self._resources.engine.read() as tx:
            now = self._resources.clock.now()
            chosen = profile.choose_cached(
                self._resources.profiles, tx, self._owners(tx), now, None, most, count_tokens
            )
            return profile.render(chosen)

    def context(self, query: str, *, tokens: int | None = None) -> Context:
        """What a model should know for a query outside of any session: profile and recalled."""
        from reverie.memory.session import context_of

        return context_of(self, query, tokens)

    # -- sessions -----------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """A handle on a session of this scope; without an id, on a new one."""
        from reverie.memory import session

        name = session.fresh_id(self._resources.ids) if id is None else id
        return session.Session(self, plain_name(name, "the id of a session", MOST_ID_CHARS))

    def sessions(
        self, *, limit: int | None = None, include_hidden: bool = False
    ) -> list[SessionInfo]:
        """The sessions of this handle, the one with the newest event first."""
        from reverie.memory.session import infos_of

        most = None if limit is None else validate.check_limit(limit, MOST_LISTED)
        with self._resources.engine.read() as tx:
            owner = log.find(tx, self._author.scope)
            if owner is None:
                return []
            found = sessions.listed(tx, owner, hidden=include_hidden, limit=most)
            return infos_of(tx, owner, found)

    def follow(
        self,
        history: Iterable[Mapping[str, Any] | object],
        *,
        session: str | None = None,
        key: str | None = None,
    ) -> Session:
        """Take in a history that a client resends as a whole each turn: only what is new is kept.

        All of it is matched, replies included. Where it diverges from what is known, the session
        returned is a new one, ``forked_from`` the last event they share. System prompts are left
        out. ``session`` is the one the client speaks of; then its oldest messages may be missing.
        """
        from reverie.history import match
        from reverie.memory.session import Session, fresh_id

        validate.check_key(key)
        if session is not None:
            plain_name(session, "the id of a session", MOST_ID_CHARS)
        resent = match.read(self._resources, history)
        stamp = self._stamp(key, "follow", session, resent.said)
        followed = match.follow(
            self._resources, self._author, resent, fresh_id(self._resources.ids), session, stamp
        )
        return Session(self, *followed)

    def neighbours(self, hit: Hit | Event, *, before: int = 2, after: int = 2) -> list[Event]:
        """An event with those around it in its conversation, in order."""
        event = hit.event if isinstance(hit, Hit) else hit
        if event is None:
            raise InvalidInput("only an event has neighbours: this hit is a memory")
        with self._resources.engine.read() as tx:
            for owner, user in self._owners(tx).items():
                if user == event.user:
                    return sessions.around(tx, owner, user, event, max(before, 0), max(after, 0))
        return []

    # -- proposals ----------------------------------------------------------------------------

    def proposals(self, *, include_answered: bool = False) -> list[Proposal]:
        """What a model would remember if it may, the oldest first."""
        with self._resources.engine.read() as tx:
            owner = log.find(tx, self._author.scope)
            if owner is None:
                return []
            return proposals.listed(tx, owner, answered=include_answered)

    def accept(self, proposal: str, *, key: str | None = None) -> Memory:
        """Remember what was proposed. Accepted already, it is the same memory."""
        from reverie.write import proposals as write_proposals

        stamp = self._stamp(key, "accept", proposal)
        return write_proposals.accept(self._resources, self._author, proposal, stamp)

    def reject(
        self, proposal: str, *, reason: str | None = None, key: str | None = None
    ) -> Proposal:
        """Do not remember what was proposed."""
        from reverie.write import proposals as write_proposals

        stamp = self._stamp(key, "reject", proposal, reason=reason)
        return write_proposals.reject(self._resources, self._author, proposal, stamp)

    # -- in and out ---------------------------------------------------------------------------

    def export(self, *, skip_damaged: bool = False) -> Iterator[dict[str, Any]]:
        """Every version of every memory this handle owns, as plain values, the oldest first.

        Raises StoreDamaged at a damaged entry, or leaves it out and counts it in Store.damaged.
        """
        return transfer_export.export(self._resources, self._author, skip_damaged=skip_damaged)

    def import_records(
        self, records: Iterable[transfer_export.Record | transfer_export.Unreadable]
    ) -> ImportReport:
        """Take in what ``export`` gave, or plain records with a content. Repeating it is safe."""
        return import_.import_records(self._resources, self._author, records)

    # -- parts --------------------------------------------------------------------------------

    def _owners(self, tx: Transaction) -> dict[Owner, str | None]:
        """The one or two owners this handle reads, its own first, with their users."""
        scope = self._author.scope
        space = log.find_space(tx, scope.space, scope.user)
        if space is None:
            return {}
        own = log.find_owner(tx, space, scope.user)
        owners: dict[Owner, str | None] = {} if own is None else {own: scope.user}
        owners[Owner(space, log.SHARED)] = None
        return owners

    def _listing(
        self,
        category: str | None,
        subject: str | None,
        tags: Iterable[str] | None,
        kind: str | None,
        include_forgotten: bool,
    ) -> Filter:
        key = None if subject is None else validate.sought_subject(subject)
        return Filter(
            kinds=() if kind is None else (validate.check_kind(kind),),
            category=None if category is None else validate.check_category(category),
            subject_key=key,
            tags=clean_tags(tags or ()),
            include_forgotten=include_forgotten,
            alive_at=None if include_forgotten else self._resources.clock.now(),
        )

    def _found(
        self,
        tx: Transaction,
        chosen: Filter,
        as_of: Time | None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """What a listing admits, each with where it was born."""
        owners, seen = self._owners(tx), self._seen(tx)
        if as_of is not None:
            forgotten = chosen.include_forgotten
            position, moment = recall_as_of.moment(tx, owners, as_of)
            then = replace(chosen, alive_at=None if forgotten else moment)
            known = recall_as_of.memories_at(
                tx, owners, seen, position, include_forgotten=forgotten
            )
            return [pair for pair in known if then.admits(pair[1])]
        return recall_as_of.memories_now(tx, owners, seen, chosen, limit, before)

    def _counts(self, tx: Transaction, chosen: Filter) -> Counter[str]:
        chosen, found = replace(chosen, **self._seen(tx)._asdict()), Counter[str]()
        for owner in self._owners(tx):
            found.update(index.counts(tx, owner, chosen))
        return found

    def _placed(self, tx: Transaction, id: str) -> tuple[int, Memory]:
        """A memory as it is now, a forgotten one included, and where it was born."""
        for owner, user in self._owners(tx).items():
            place = index.find(tx, owner, _id(id))
            if place is not None:
                return place.born, index_check.current(tx, owner, place, id).state(user)
        raise writer.missing(id)

    def _seen(self, tx: Transaction) -> Seen:
        """The sessions whose own memories this handle sees: its session's, and what that forks."""
        scope = self._author.scope
        owner = None if scope.session is None else log.find(tx, scope)
        if scope.session is None or owner is None:
            return Seen()
        stretches = sessions.lineage(tx, owner, scope.session, self._begun_from)
        return Seen(tuple(stretch.session for stretch in stretches), owner)

    def _stamp(
        self,
        key: str | None,
        verb: str,
        *arguments: object,
        reason: str | None = None,
        origin: Origin | None = None,
    ) -> Stamp:
        return Stamp(
            key=validate.check_key(key),
            request=request_hash(key, verb, *arguments),
            reason=validate.check_reason(self._resources, reason),
            origin=origin,
        )


_PLACE: Mapping[Order, Callable[[tuple[int, Memory]], Any]] = {
    "newest": lambda pair: -pair[0],
    "category": lambda pair: (pair[1].category, pair[1].created_at, pair[0]),
}
_ASKED = (
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


def _id(value: str) -> str:
    """An id as given; what cannot be an id is simply not found."""
    if not isinstance(value, str) or not value.isascii() or not value.isalnum():
        raise writer.missing(str(value)[:40])
    return value
