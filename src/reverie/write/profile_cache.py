"""A cache of the memories chosen for profiles, valid until one of an owner's memories changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from reverie.model import Memory

MAX_PROFILES = 256


class ChosenProfile(NamedTuple):
    """The memories of a profile in the order of display, each after its first position.

    ``left_out``: some that it could show have no room.
    """

    memories: list[tuple[int, Memory]]
    left_out: bool = False


class CachedProfile(NamedTuple):
    """The chosen memories, the state marks of the owners at the time, and when the choice holds.

    It holds from ``since`` until, exclusively, ``until``: memories expire.
    """

    marks: list[tuple[int, ...]]
    since: int
    until: float
    chosen: ChosenProfile


class ProfileCache:
    """The most recently chosen profiles of this process; threads may share it."""

    def __init__(self) -> None:
        self._profiles: OrderedDict[object, CachedProfile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object, marks: list[tuple[int, ...]], now: int) -> ChosenProfile | None:
        """Return the choice for a key, or None if a memory has changed or ``now`` is too late."""
        with self._lock:
            found = self._profiles.get(key)
        if found is None or found.marks != marks or not found.since <= now < found.until:
            return None
        return found.chosen

    def put(self, key: object, profile: CachedProfile) -> None:
        """Store a choice; the least recently stored one is dropped beyond ``MAX_PROFILES``."""
        with self._lock:
            self._profiles[key] = profile
            self._profiles.move_to_end(key)
            while len(self._profiles) > MAX_PROFILES:
                self._profiles.popitem(last=False)
