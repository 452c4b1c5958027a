"""What every verb works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from reverie.config import Settings
from reverie.protocols import Clock, Embedder, Engine, Ids, Owner, Reranker
from reverie.write.profile_cache import ProfileCache
from reverie.write.recall_log import RecallNotes
from reverie.write.secret_policy import Redaction
from reverie.write.visible_positions import VisiblePositions


@dataclass(frozen=True, slots=True)
class Runtime:
    engine: Engine
    clock: Clock
    ids: Ids
    settings: Settings
    embedder: Embedder | None
    reranker: Callable[[], Reranker | None]
    notes: RecallNotes
    redaction: Redaction = field(default_factory=Redaction)
    profiles: ProfileCache = field(default_factory=ProfileCache)
    visible_positions: VisiblePositions = field(default_factory=VisiblePositions)
    verified_embedders: set[str] = field(default_factory=set)
    """Embedders whose vectors the store was seen to hold."""
    changed: set[Owner] = field(default_factory=set)
    """Owners whose changes the vault is to show, as far as this process made them."""
