"""Stores that have a vault, and helpers that wait for background work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reverie import Space, Store
from reverie.vault import service

PATIENCE = 60.0


def eventually(is_so: Callable[[], object]) -> None:
    """Wait until something is so; fail when it never is."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


@dataclass(frozen=True)
class Living:
    """A store on a real clock with a vault beside it."""

    store: Store
    root: Path

    @property
    def ana(self) -> Space:
        return self.store.space("ana")

    def file(self, id: str) -> Path:
        found = service.find_memory_file(self.ana, id)
        assert found is not None
        return found

    def says(self, id: str) -> str:
        return self.ana.get(id).content
