"""Positions of the log as a caller is told them, and as a caller means them.

A token that is bound to a user learns nothing of others from a position: its positions count the
entries that the user sees (``memory/positions.py``). Every other caller has the log's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reverie.aio import AsyncHandle, run_with_handle
from reverie.dates import Time
from reverie.memory import positions as memory_positions


@dataclass(frozen=True, slots=True)
class CallerPositions:
    """How one caller counts the log of a space. ``bound``: by what its user sees."""

    space: AsyncHandle
    bound: bool

    async def current(self) -> int:
        """Where the log stands."""
        if self.bound:
            return await run_with_handle(self.space, memory_positions.last_visible_number)
        position: int = await self.space.position()
        return position

    async def shown(self, positions: Sequence[int]) -> list[int]:
        """Positions of the log as the caller is told them."""
        if not self.bound:
            return list(positions)
        return await run_with_handle(
            self.space, lambda handle: memory_positions.visible_numbers(handle, positions)
        )

    async def meant(self, position: int) -> int:
        """A position that the caller was told, as the log has it."""
        if not self.bound:
            return position
        return await run_with_handle(
            self.space, lambda handle: memory_positions.position_of_number(handle, position)
        )

    async def moment(self, as_of: Time | None) -> Time | None:
        """A moment that the caller names: a position, or a time, which is the same for all."""
        return await self.meant(as_of) if isinstance(as_of, int) else as_of
