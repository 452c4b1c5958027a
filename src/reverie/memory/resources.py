"""What every verb works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reverie.config import Settings
from reverie.memory.notes import RecallNotes
from reverie.memory.profile import Profiles
from reverie.memory.redaction import Redaction
from reverie.memory.seen_positions import SeenPositions
from reverie.protocols import Clock, Embedder, Engine, Ids, Owner, Reranker


@dataclass(frozen=True, slots=True)
class Resources:
    engine: Engine
    clock: Clock
    ids: Ids
    settings: Settings
    embedder: Embedder | None
    reranker: Callable[[], Reranker | None]
    notes: RecallNotes
    redaction: Redaction = field(default_factory=Redaction)
    profiles: Profiles = field(default_factory=Profiles)
    seen_positions: SeenPositions = field(default_factory=SeenPositions)
    agreed: set[str] = field(default_factory=set)
    """Embedders whose vectors the store was seen to hold."""
    changed: set[Owner] = field(default_factory=set)
    """Owners whose changes the vault is to show, as far as this process made them."""
