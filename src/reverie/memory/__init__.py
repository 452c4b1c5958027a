"""The verbs: open a store, take a handle on a space or a session, remember and recall."""

from reverie.memory.session import Session
from reverie.memory.space import Space
from reverie.memory.store import Store, open, salvage_store

__all__ = ["Session", "Space", "Store", "open", "salvage_store"]
