"""The latest profiles that were chosen, kept for as long as no memory of theirs changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from reverie.model import Memory

MAX_PROFILES = 256


class CachedProfile(NamedTuple):
    """The chosen memories, the state marks they were chosen at, and how long the choice holds."""

    marks: list[tuple[int, ...]]
    since: int
    until: float
    chosen: list[tuple[int, Memory]]


class ProfileCache:
    def __init__(self) -> None:
        self._profiles: OrderedDict[object, CachedProfile] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: object, marks: list[tuple[int, ...]], now: int
    ) -> list[tuple[int, Memory]] | None:
        """The choice for this key, unless a memory changed since or its time is over."""
        with self._lock:
            found = self._profiles.get(key)
        if found is None or found.marks != marks or not found.since <= now < found.until:
            return None
        return found.chosen

    def put(self, key: object, profile: CachedProfile) -> None:
        with self._lock:
            self._profiles[key] = profile
            self._profiles.move_to_end(key)
            while len(self._profiles) > MAX_PROFILES:
                self._profiles.popitem(last=False)
