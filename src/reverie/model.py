"""The values that Reverie returns and accepts: frozen classes without I/O.

Every time (a field named ``at``, ``valid_from`` or ``valid_to``, or ending in ``_at``) is an
integer of milliseconds UTC. Beside it is a property with the same time as a ``datetime``:
``created_time`` beside ``created_at``, ``time`` beside ``at``, ``valid_from_time`` beside
``valid_from``. A ``position`` is a place in the log of a space, a ``sequence`` is a place in one
session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from math import log
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
)

Kind = Literal["fact", "note"]
HitKind = Literal["fact", "note", "event"]
Mode = Literal["hybrid", "keyword", "vector"]
Fusion = Literal["evidence", "plain", "min_max", "rrf"]
Order = Literal["newest", "category"]
RankingName = Literal["default", "reranked", "similarity", "weighted", "rrf", "diverse"]
Right = Literal["read", "write", "admin"]
Trust = Literal["person", "agent", "model", "tool", "document", "import"]
Op = Literal[
    "remember",
    "revise",
    "forget",
    "restore",
    "erase",
    "promote",
    "append",
    "hide",
    "propose",
    "accept",
    "reject",
]

KINDS: tuple[Kind, ...] = ("fact", "note")
HIT_KINDS: tuple[HitKind, ...] = ("fact", "note", "event")
MODES: tuple[Mode, ...] = ("hybrid", "keyword", "vector")
FUSIONS: tuple[Fusion, ...] = ("evidence", "plain", "min_max", "rrf")
ORDERS: tuple[Order, ...] = ("newest", "category")
# From the least to the most powerful: each right includes those before it.
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
# From the most to the least trusted. Memories with one of the last two never reach the profile.
TRUSTS: tuple[Trust, ...] = ("person", "agent", "model", "import", "tool", "document")
# Text that comes from tools and documents never becomes part of a prompt's instructions.
UNTRUSTED = frozenset[Trust]({"tool", "document"})
# The note on a recall whose ranking asks for a reranker where none is configured.
NO_RERANKER = "no reranker is configured"


class PydanticMessage(Protocol):
    """A message that is a Pydantic model, as the clients of OpenAI and Anthropic return it."""

    def model_dump(self, *args: Any, **options: Any) -> dict[str, Any]: ...


class DataclassMessage(Protocol):
    """A message that is a dataclass: a ModelRequest or ModelResponse of PydanticAI."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Message: TypeAlias = Mapping[str, Any] | PydanticMessage | DataclassMessage
"""A message to store: a dict in its provider's format, or an object of the provider's client."""
if TYPE_CHECKING:
    # Every client has a type of its own for such a dict, and only Any can be passed to each.
    StoredMessage: TypeAlias = Any
else:
    StoredMessage = Mapping[str, Any]
"""A message that was stored: a dict in its original format."""

Where: TypeAlias = Mapping[str, Any]
"""Conditions on memories, such as ``{"metadata.team": {"in": ["a", "b"]}}``."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def is_time_field(name: str) -> bool:
    """Whether the field of a value is a time, by its name."""
    return name in {"at", "valid_from", "valid_to"} or name.endswith("_at")


def to_datetime(ms: int) -> datetime:
    """A time of a value as a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def optional_datetime(ms: int | None) -> datetime | None:
    return None if ms is None else to_datetime(ms)


class Origin(NamedTuple):
    """The event (session and sequence) that a memory or a proposal was learned from.

    A sequence of 0 names the session as a whole: it had no event yet.
    """

    session: str
    sequence: int


# In place of a user: the owner of what was said without a name, and of what was learned from it.
# No user can have this name, because names have no control characters.
UNNAMED = "\tunnamed"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a handle can see: a space, and in it the memories of one user or session.

    Names are compared for equality, never by prefix. Without a ``user`` the scope is the shared
    memories of the space. The user ``UNNAMED`` has what was said without a user's name.
    """

    space: str
    user: str | None = None
    session: str | None = None

    @property
    def shown_user(self) -> str | None:
        """The user as people are shown it: None instead of ``UNNAMED``."""
        return None if self.user == UNNAMED else self.user


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered thing, as one of its versions states it.

    ``user`` is None for a memory shared by the whole space. ``session`` is set when only that
    session can see the memory. ``source`` names the program or document that wrote it,
    ``trust`` says what kind of author that was. ``happened_at`` is when the content took place,
    ``created_at`` is when the memory was first remembered, ``updated_at`` when this version was
    written. The content is true from ``valid_from`` until ``valid_to``, if these are set.
    ``metadata`` is a JSON object of the caller's own, by which memories can be filtered.
    ``related`` are the other memories of its subject, the newest first; only results of
    ``remember`` have them.
    """

    id: str
    kind: Kind
    content: str
    category: str
    subject: str | None
    tags: tuple[str, ...]
    concept_tags: tuple[str, ...]
    version: int
    user: str | None
    session: str | None
    source: str | None
    trust: Trust
    pinned: bool
    created_at: int
    updated_at: int
    happened_at: int | None
    forgotten_at: int | None
    expires_at: int | None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    valid_from: int | None = None
    valid_to: int | None = None
    related: tuple[Memory, ...] = field(
        default=(), repr=False, compare=False, metadata={"serialize": False}
    )

    def has_ended(self, at: int) -> bool:
        """Whether ``valid_to`` had passed at a time, in milliseconds UTC."""
        return self.valid_to is not None and self.valid_to <= at

    def is_valid(self, at: int) -> bool:
        """Whether the memory is true at a time, in milliseconds UTC."""
        return (self.valid_from is None or self.valid_from <= at) and (
            self.valid_to is None or at < self.valid_to
        )

    def is_expired(self, now: int) -> bool:
        """Whether the memory had expired at the time ``now``, in milliseconds UTC."""
        return self.expires_at is not None and self.expires_at <= now

    @property
    def created_time(self) -> datetime:
        return to_datetime(self.created_at)

    @property
    def updated_time(self) -> datetime:
        return to_datetime(self.updated_at)

    @property
    def happened_time(self) -> datetime | None:
        return optional_datetime(self.happened_at)

    @property
    def forgotten_time(self) -> datetime | None:
        return optional_datetime(self.forgotten_at)

    @property
    def expires_time(self) -> datetime | None:
        return optional_datetime(self.expires_at)

    @property
    def valid_from_time(self) -> datetime | None:
        return optional_datetime(self.valid_from)

    @property
    def valid_to_time(self) -> datetime | None:
        return optional_datetime(self.valid_to)


class NewMemory(TypedDict, total=False):
    """One memory for ``Space.remember_many``: a content, and other arguments of ``remember``."""

    content: Required[str]
    kind: Kind
    category: str
    subject: str | None
    tags: Iterable[str]
    source: str | None
    origin: Origin | None
    happened_at: datetime | date | str | int | None
    expires_at: datetime | date | str | int | None
    valid_from: datetime | date | str | int | None
    valid_to: datetime | date | str | int | None
    pinned: bool
    metadata: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a memory, as the log keeps it. Nothing changes it except an erase.

    ``op`` is the operation that wrote it, at ``position`` in the log. ``content`` is None once
    the memory was erased.
    """

    memory_id: str
    version: int
    uuid: str
    position: int
    op: Op
    content: str | None
    category: str | None
    subject: str | None
    tags: tuple[str, ...]
    trust: Trust
    recorded_at: int
    actor: str | None
    reason: str | None
    origin: Origin | None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    valid_from: int | None = None
    valid_to: int | None = None
    source: str | None = None

    @property
    def recorded_time(self) -> datetime:
        return to_datetime(self.recorded_at)


@dataclass(frozen=True, slots=True)
class Change:
    """One log entry, as the feed of changes reports it: what happened, without any content."""

    position: int
    op: Op
    memory: str | None
    version: int | None
    session: str | None
    sequence: int | None
    user: str | None
    actor: str | None
    trust: Trust
    recorded_at: int

    @property
    def recorded_time(self) -> datetime:
        return to_datetime(self.recorded_at)


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a session, verbatim.

    ``message`` is the message as the client sent it, ``text`` is its readable text.
    ``interrupted`` is true when the message was cut off before its end.
    """

    session: str
    sequence: int
    role: str
    text: str
    message: Mapping[str, Any]
    at: int
    interrupted: bool = False
    user: str | None = None

    @property
    def time(self) -> datetime:
        return to_datetime(self.at)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session, as a list of sessions shows it.

    ``preview`` is the beginning of the user's first message, ``events`` the number of messages.
    ``hidden_at`` is None while the session is visible.
    """

    id: str
    events: int
    preview: str
    opened_at: int
    updated_at: int
    hidden_at: int | None
    forked_from: Origin | None

    @property
    def opened_time(self) -> datetime:
        return to_datetime(self.opened_at)

    @property
    def updated_time(self) -> datetime:
        return to_datetime(self.updated_at)

    @property
    def hidden_time(self) -> datetime | None:
        return optional_datetime(self.hidden_at)


@dataclass(frozen=True, slots=True)
class RecallNote:
    """The record of one recall: the ids of its hits, best first.

    ``sequence`` is the event of the session that the recall was made for.
    """

    sequence: int | None
    at: int
    hits: tuple[str, ...]

    @property
    def time(self) -> datetime:
        return to_datetime(self.at)


@dataclass(frozen=True, slots=True)
class Summary:
    """The rolling summary of a session: it covers the events up to the sequence ``upper``.

    ``epoch`` counts how often the summary was rewritten. ``applied`` is false in the answer to a
    write that was refused because another writer had replaced the summary first.
    """

    text: str = ""
    epoch: int = 0
    upper: int = 0
    applied: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of the prompt for a session's next turn, in the order in which a prompt has them.

    ``notices`` are lines to pass on to the user: facts just learned, and proposals to ask about.
    ``history`` has the latest messages, ``tokens`` is the length of everything.
    """

    profile: str
    summary: str
    recalled: str
    notices: str
    history: tuple[StoredMessage, ...]
    tokens: int

    @property
    def system(self) -> str:
        """Everything but the history as one system prompt.

        The part that changes least comes first, so that a provider can cache it.
        """
        parts = (self.profile, self.summary, self.recalled, self.notices)
        return "\n\n".join(part.strip("\n") for part in parts if part)


@dataclass(frozen=True, slots=True)
class PromptAdditions:
    """What to add to a prompt whose history the client sends itself: profile and recalled text.

    ``summary`` is that of the session if the client has dropped turns that it covers. ``hits`` are
    the results that profile or recalled text show, best first.
    """

    profile: str = ""
    recalled: str = ""
    hits: tuple[Hit, ...] = ()
    summary: str = ""

    @property
    def per_turn(self) -> str:
        """What belongs before the user's latest message: the summary and the recalled text."""
        parts = (self.summary, self.recalled)
        return "\n\n".join(part.strip("\n") for part in parts if part)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new fact that waits for somebody to accept or reject it.

    ``source`` names the model or the rules that proposed it. ``answer`` is None while it waits;
    ``memory_id`` is the memory that an accepted proposal became. The fact is true from
    ``valid_from`` until ``valid_to``, if these are set.
    """

    id: str
    content: str
    category: str
    subject: str | None
    origin: Origin
    source: str
    proposed_at: int
    answer: Literal["accept", "reject"] | None = None
    memory_id: str | None = None
    valid_from: int | None = None
    valid_to: int | None = None

    @property
    def valid_from_time(self) -> datetime | None:
        return optional_datetime(self.valid_from)

    @property
    def valid_to_time(self) -> datetime | None:
        return optional_datetime(self.valid_to)

    @property
    def proposed_time(self) -> datetime:
        return to_datetime(self.proposed_at)


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a recall: a memory, or an event of a session (``memory`` or ``event`` is set).

    ``parts`` holds what each stage of the ranking contributed to the score, when the recall was
    made with ``explain``. ``duplicates`` are the ids of near-duplicates that were left out.
    """

    kind: HitKind
    id: str
    text: str
    score: float
    memory: Memory | None = None
    event: Event | None = None
    parts: Mapping[str, float | str | None] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()


# Hits with a lower calibrated score get no place in a prompt, unless the settings say otherwise.
DEFAULT_FLOOR = 0.39

# Text lengths in the keyword index are below this number. The engine reads a posting as one
# integer: the number of its passage times this, plus the length of the text.
POSTING_LENGTH_BASE = 256


class Candidate(NamedTuple):
    """A memory or an event that may become a hit: the fields that ranking needs.

    ``position`` is the position of its log entry, ``terms`` its length in terms. Only an event has
    a session, a sequence, a role and a speech act (``text/speech_acts.py``); ``origin`` is the
    event that a memory came from. For a memory, ``memory`` and ``version`` identify the entry
    expected at that position.
    """

    first_position: int
    position: int
    at: int
    first_passage: int
    passages: int
    terms: int
    session: str | None = None
    sequence: int = 0
    role: str = ""
    speaker: str | None = None
    act: int = 0
    origin: Origin | None = None
    memory: str = ""
    version: int = 0
    valid_from: int | None = None
    valid_to: int | None = None

    @property
    def age_order(self) -> tuple[int, int]:
        """The sort key by age: what happened last, then what was written last, is greatest."""
        return self.at, self.first_position


@dataclass(frozen=True, slots=True)
class Ranking:
    """The weights and switches of a ranking; ``RANKINGS`` has presets by name.

    The default is the preset with the best results in docs/benchmarks.md. With the fusion
    ``evidence`` only the ratio of the two weights matters.
    """

    vector_weight: float = 0.44
    keyword_weight: float = 0.56
    fusion: Fusion = "evidence"
    """How vector and keyword scores are combined; only ``evidence`` looks at turns nearby."""
    centred: bool = True
    """Whether vectors are compared after subtracting their mean, with the rare words of the query
    weighing more; else by the plain cosine of the text."""
    neighbours: float = 1.0
    """How much of the score of its neighbouring turns a short turn gets."""
    speaker: float = 0.15
    """The weight of being said by the speaker whom the query names."""
    period: float = 0.2
    """The weight of having happened at a date that the query names."""
    session: float = 0.05
    """How far every event of a session is raised towards the session's best score."""
    origin: float = 0.5
    """If a memory scores higher than its source event: the share of the difference that the event
    gets."""
    candidates: int = 20
    """The number of candidates of each kind, unless ``multiplier`` times the limit is more."""
    multiplier: int = 4
    """The number of candidates of each kind for every hit that was asked for."""
    rerank: bool = False
    """Whether the store's reranker scores the candidates at the end."""
    spread: bool = False
    """Whether scores are scaled to [0, 1] before recency is added."""
    equal: float = 1.0
    """The score that ``spread`` gives every candidate when all scores are equal."""
    recency_weight: float = 0.0
    """The share of the score that depends on age alone."""
    half_life_days: float = 30.0
    """The age in days at which the recency score is half of what it was."""
    collapse: bool = True
    """Whether near-duplicates are returned as one hit."""
    mmr_lambda: float | None = None
    """Below 1, hits unlike those above them move up (maximal marginal relevance)."""
    score_threshold: float | None = None
    """Hits with a lower score are left out; with a reranker, its score is compared."""

    @property
    def is_calibrated(self) -> bool:
        """Whether scores are comparable between queries, so that a floor can be applied."""
        return self.fusion == "evidence" and not (self.rerank or self.spread or self.recency_weight)


RANKINGS: Mapping[str, Ranking] = MappingProxyType(
    {
        "default": Ranking(),
        "reranked": Ranking(rerank=True),
        "similarity": Ranking(
            1.0, 0.0, "plain", centred=False, candidates=0, multiplier=1, collapse=False
        ),
        "weighted": Ranking(0.7, 0.3, "min_max", centred=False, candidates=0, collapse=False),
        "rrf": Ranking(1.0, 1.0, "rrf", centred=False, candidates=0, multiplier=2, collapse=False),
        "diverse": Ranking(
            1.0,
            0.0,
            "plain",
            centred=False,
            candidates=0,
            multiplier=3,
            rerank=True,
            spread=True,
            equal=0.5,
            recency_weight=0.2,
            half_life_days=30 * log(2),
            collapse=False,
            mmr_lambda=0.7,
        ),
    }
)
"""Rankings by name. ``similarity`` and those after it reproduce formulas that other memory
libraries made common."""


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erase destroyed.

    ``entries`` are the positions of the log entries that lost their content, ``sources`` the
    events that were erased with the memory. ``pending`` is true while another process may still
    read old database pages; a job finishes the erase later.
    """

    memory_id: str
    entries: tuple[int, ...]
    passages: int
    sources: tuple[Origin, ...]
    position: int
    pending: bool


@dataclass(frozen=True, slots=True)
class SessionErasure:
    """What the erase of a session destroyed: its events, and the memories learned only from it.

    ``entries``, ``position`` and ``pending`` are as in ``ErasureReport``.
    """

    session: str
    events: int
    memories: tuple[str, ...]
    entries: tuple[int, ...]
    position: int
    pending: bool


@dataclass(frozen=True, slots=True)
class SpaceInfo:
    """One space of the store, with its users, the number of memories and its last log position."""

    name: str
    users: tuple[str, ...]
    facts: int
    notes: int
    position: int


@dataclass(frozen=True, slots=True)
class Token:
    """What the bearer of an access token may do on the server.

    ``spaces`` is None when every space is allowed, ``user`` is None when the bearer may act for
    any user.
    """

    id: str
    name: str
    right: Right
    spaces: tuple[str, ...] | None
    user: str | None
    created_at: int

    @property
    def created_time(self) -> datetime:
        return to_datetime(self.created_at)


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of background work on the agenda.

    A ``parked`` job failed too often and waits for somebody to retry or drop it; ``error`` is its
    last failure. ``calls`` is the number of model calls that were made for it.
    """

    space: str
    id: int
    kind: str
    state: Literal["ready", "running", "parked"]
    due_at: int
    attempts: int
    error: str | None
    payload: Mapping[str, Any]
    calls: int = 0

    @property
    def due_time(self) -> datetime:
        return to_datetime(self.due_at)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. ``skipped`` has one line for each record that was not imported."""

    added: int
    unchanged: int
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The number of things that ``verify`` checked, and every problem it found.

    ``digest`` is equal for two stores with the same log.
    """

    spaces: int
    memories: int
    versions: int
    events: int
    passages: int
    digest: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


class SalvagedSpace(NamedTuple):
    """One space of a damaged store: the number of entries saved from it, and what was lost.

    ``lost`` has the first and last position of each range that could not be read; ``affected``
    says what the index knew about those entries. ``renamed`` are made-up names that replace
    unreadable ones. When ``end_known`` is false, entries after the last one may be lost too.
    ``from_vault`` is the number of entries that were taken from the vault's log.
    """

    space: str
    entries: int
    lost: tuple[tuple[int, int], ...]
    affected: tuple[str, ...]
    renamed: tuple[str, ...] = ()
    end_known: bool = True
    from_vault: int = 0


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What ``salvage`` saved from a damaged store.

    ``unread`` names what could not be read at all. ``problems`` is what ``verify`` found wrong
    with the new store, which should be nothing.
    """

    entries: int
    spaces: tuple[SalvagedSpace, ...]
    unread: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether no entry and no name was lost."""
        return all(
            space.end_known and not space.lost and not space.renamed for space in self.spaces
        )
