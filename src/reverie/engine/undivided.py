"""A database without walls of its own: its one writer, and the code's own conditions, will do."""

from __future__ import annotations

import contextlib
from typing import Any

from reverie.protocols import Owner

_NOTHING = contextlib.nullcontext()


class Undivided:
    """A transaction that is told whose rows it is about, and shows all of them."""

    skip_locked = ""
    unindexed = " NOT INDEXED"

    def __init__(self, *, writing: bool, damaged: set[tuple[int, int]]) -> None:
        self.writing = writing
        self.damaged = damaged
        self.kept: dict[object, Any] = {}

    def ask_for(self, space: str, user: str) -> None:
        pass

    def enter(self, owner: Owner, *, alone: bool = True) -> None:
        pass

    def across_owners(self) -> contextlib.AbstractContextManager[None]:
        return _NOTHING

    def oversee(self) -> None:
        pass
