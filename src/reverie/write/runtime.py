"""What the functions of an open store share: engine, clock, settings, models and caches."""

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
    """The parts of one open store. Handles pass it to the functions that do the work."""

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
    """Identities of embedders that were checked to be the store's current one."""
    changed: set[Owner] = field(default_factory=set)
    """Owners with changes by this process that are not mirrored to the vault yet."""
    on_vault_conflict: list[Callable[[str], None]] = field(default_factory=list)
    """Called with each conflict between a change and an edited file, instead of logging it."""
