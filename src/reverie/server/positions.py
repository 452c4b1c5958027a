"""Converts between positions of the log and the positions that a caller is shown.

A position must not tell a token that is bound to one user how much others write: such a caller's
positions count only the entries that its user sees (``memory/positions.py``). Every other caller is
shown the log's own positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reverie.aio import AsyncSpace, run_with_handle
from reverie.dates import Time
from reverie.memory import positions as memory_positions


@dataclass(frozen=True, slots=True)
class CallerPositions:
    """The positions of a space as one caller is shown them.

    ``user_bound``: the caller's token is bound to a user, so only what that user sees is counted.
    """

    space: AsyncSpace
    user_bound: bool

    async def current(self) -> int:
        """Return the last position."""
        if self.user_bound:
            return await run_with_handle(self.space, memory_positions.last_visible_number)
        position: int = await self.space.position()
        return position

    async def shown(self, positions: Sequence[int]) -> list[int]:
        """Convert positions of the log to those the caller is shown."""
        if not self.user_bound:
            return list(positions)
        return await run_with_handle(
            self.space, lambda handle: memory_positions.visible_numbers(handle, positions)
        )

    async def to_log(self, position: int) -> int:
        """Convert a position that the caller was shown to the position of the log."""
        if not self.user_bound:
            return position
        return await run_with_handle(
            self.space, lambda handle: memory_positions.position_of_number(handle, position)
        )

    async def moment(self, as_of: Time | None) -> Time | None:
        """Convert ``as_of`` if it is a position; a time is the same for every caller."""
        return await self.to_log(as_of) if isinstance(as_of, int) else as_of
