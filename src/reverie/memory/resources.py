"""What every verb works with."""

from __future__ import annotations

from dataclasses import dataclass

from reverie.config import Settings
from reverie.memory.notes import RecallNotes
from reverie.protocols import Clock, Embedder, Engine, Ids


@dataclass(frozen=True, slots=True)
class Resources:
    engine: Engine
    clock: Clock
    ids: Ids
    settings: Settings
    embedder: Embedder | None
    notes: RecallNotes
