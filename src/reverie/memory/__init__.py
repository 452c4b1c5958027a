"""The verbs: open a store, take a handle on a space, remember and recall."""

from reverie.memory.space import Space
from reverie.memory.store import Store, open

__all__ = ["Space", "Store", "open"]
