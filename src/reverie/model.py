"""The values of Reverie: frozen, without I/O. Times are integer milliseconds UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

Kind = Literal["fact", "note"]
HitKind = Literal["fact", "note", "event"]
Mode = Literal["hybrid", "keyword", "vector"]
Fusion = Literal["evidence", "plain", "min_max", "rrf"]
Order = Literal["newest", "category"]
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
# Each includes those before it.
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
# From the most to the least trusted; the last two never reach the profile.
TRUSTS: tuple[Trust, ...] = ("person", "agent", "model", "import", "tool", "document")
# Text that tools and documents wrote never becomes part of a prompt's instructions.
UNTRUSTED = frozenset[Trust]({"tool", "document"})


class Origin(NamedTuple):
    """The event something came from."""

    session: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What a handle can see. Equality decides, never a prefix."""

    space: str
    user: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered thing, as it is at one version."""

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

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a memory, never changed once written. An erased one has no content."""

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


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the log, as those hear of it who follow: what happened, not what it says."""

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


@dataclass(frozen=True, slots=True)
class Event:
    """One message of a session, verbatim."""

    session: str
    sequence: int
    role: str
    text: str
    message: Mapping[str, Any]
    at: int
    interrupted: bool = False
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session, as a list shows it. ``preview`` is how the user began."""

    id: str
    events: int
    preview: str
    opened_at: int
    updated_at: int
    hidden_at: int | None
    forked_from: Origin | None


@dataclass(frozen=True, slots=True)
class RecallNote:
    """What was recalled for an event of a session, best first."""

    sequence: int | None
    at: int
    hits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The rolling summary of a session: it covers the events up to ``upper``."""

    text: str = ""
    epoch: int = 0
    upper: int = 0
    applied: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """What a model needs to answer the next turn, each part by itself, in the order of a prompt.

    ``notices`` is what the agent should tell or ask the user: what was just learned, or proposed.
    """

    profile: str
    summary: str
    recalled: str
    notices: str
    history: tuple[Mapping[str, Any], ...]
    tokens: int

    @property
    def system(self) -> str:
        """Everything but the history, as one text; the part that stays the same comes first."""
        parts = (self.profile, self.summary, self.recalled, self.notices)
        return "\n\n".join(part.strip("\n") for part in parts if part)


@dataclass(frozen=True, slots=True)
class PromptAdditions:
    """What a prompt lacks whose history the client sends by itself.

    ``hits`` are those that stand in either part, best first.
    """

    profile: str = ""
    recalled: str = ""
    hits: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """Something a model would remember if it may."""

    id: str
    content: str
    category: str
    subject: str | None
    origin: Origin
    source: str
    proposed_at: int
    answer: Literal["accept", "reject"] | None = None
    memory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a recall. ``parts`` holds each stage's number when explain was asked for."""

    kind: HitKind
    id: str
    text: str
    score: float
    memory: Memory | None = None
    event: Event | None = None
    parts: Mapping[str, float | str | None] = field(default_factory=dict)


# The length that counts against a text is less than this. A posting is read as one number, that of
# its passage times this and the length of the text.
POSTING_LENGTH_BASE = 256


class Candidate(NamedTuple):
    """A memory or an event that may be a hit, as far as ranking must know it.

    ``position`` is where its entry stands, ``terms`` how long it is. Only an event has a session,
    a sequence and a role; ``origin`` is the event that a memory came from. Of a memory,
    ``memory`` and ``version`` say what must stand at its position.
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
    origin: Origin | None = None
    memory: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """How candidates become hits: every weight there is. ``RANKINGS`` has names for some.

    The default is what measures best. Weights of evidence count in proportion to one another.
    """

    vector_weight: float = 0.44
    keyword_weight: float = 0.56
    fusion: Fusion = "evidence"
    """How both become one score; only ``evidence`` looks at what stands around a turn."""
    neighbours: float = 1.0
    """How much a short turn borrows from those beside it."""
    speaker: float = 0.15
    """What it is worth that the speaker whom the query names said it."""
    period: float = 0.2
    """What it is worth that it was at a date that the query names."""
    session: float = 0.05
    """How much the best of a session counts for all of it."""
    origin: float = 0.5
    """How much of its lead a memory lends to the event it came from."""
    candidates: int = 20
    """How many of each kind are looked at, at least; ``multiplier`` times the limit if more."""
    multiplier: int = 4
    rerank: bool = False
    """Whether the reranker of the store has the last word."""
    spread: bool = False
    """Whether scores are spread over [0, 1] before recency counts; ``equal`` when all are equal."""
    equal: float = 1.0
    recency_weight: float = 0.0
    half_life_days: float = 30.0
    collapse: bool = True
    """Whether hits that say the same are one hit."""
    mmr_lambda: float | None = None
    """Below 1, hits unlike those before them come first (maximal marginal relevance)."""
    score_threshold: float | None = None
    """What scores less is left out; with a reranker its own, absolute score."""


RANKINGS: Mapping[str, Ranking] = MappingProxyType(
    {
        "default": Ranking(),
        "reranked": Ranking(rerank=True),
        "similarity": Ranking(1.0, 0.0, "plain", candidates=0, multiplier=1, collapse=False),
        "weighted": Ranking(0.7, 0.3, "min_max", candidates=0, collapse=False),
        "rrf": Ranking(1.0, 1.0, "rrf", candidates=0, multiplier=2, collapse=False),
        "diverse": Ranking(
            1.0,
            0.0,
            "plain",
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
"""Rankings by name. From ``similarity`` on they are arithmetic that other memories made known."""


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erase destroyed. ``pending``: another process may still read old pages."""

    memory_id: str
    entries: tuple[int, ...]
    passages: int
    sources: tuple[Origin, ...]
    position: int
    pending: bool


@dataclass(frozen=True, slots=True)
class SessionErasure:
    """What the erase of a session destroyed: its events, and the memories that came from it."""

    session: str
    events: int
    memories: tuple[str, ...]
    entries: tuple[int, ...]
    position: int
    pending: bool


@dataclass(frozen=True, slots=True)
class SpaceInfo:
    """One space, as the operator sees it."""

    name: str
    users: tuple[str, ...]
    facts: int
    notes: int
    position: int


@dataclass(frozen=True, slots=True)
class Token:
    """Who comes with it may do this much, in these spaces (None: all), as this user (None: any)."""

    id: str
    name: str
    right: Right
    spaces: tuple[str, ...] | None
    user: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be done later."""

    space: str
    id: int
    kind: str
    state: Literal["ready", "running", "parked"]
    due_at: int
    attempts: int
    error: str | None
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, line by line where it did nothing."""

    added: int
    unchanged: int
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification looked at, and every problem it found."""

    spaces: int
    memories: int
    versions: int
    events: int
    passages: int
    digest: str
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class SalvagedSpace(NamedTuple):
    """A space of a damaged store: how many entries came out of it, and what did not.

    ``lost`` are first and last positions of stretches that could not be read; ``affected`` says
    what the index knew of them. ``renamed`` are names that stand for ones that were lost. Where
    ``end_known`` is false, entries behind the last one may be lost too.
    """

    space: str
    entries: int
    lost: tuple[tuple[int, int], ...]
    affected: tuple[str, ...]
    renamed: tuple[str, ...] = ()
    end_known: bool = True


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was saved of a damaged store. ``problems`` are those of the new store: none."""

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
