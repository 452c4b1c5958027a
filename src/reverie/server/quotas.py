"""Limits how many requests of a kind may be under way at once, per token and in total."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from reverie.server.errors import HttpProblem

RETRY_SECONDS = 5


class Quota:
    """Counts the requests of one kind that are under way. Used from one event loop.

    ``plural`` names the kind. ``advice`` tells a caller who has reached ``per_token`` what to do.
    """

    def __init__(self, plural: str, per_token: int, total: int, advice: str) -> None:
        self._plural, self._per_token, self._total, self._advice = plural, per_token, total, advice
        self._held: Counter[str] = Counter()

    @property
    def held(self) -> int:
        return self._held.total()

    @contextlib.contextmanager
    def hold(self, holder: str) -> Iterator[None]:
        """Count one more request of this token until the block ends; raise if that is too many."""
        headers = {"Retry-After": str(RETRY_SECONDS)}
        if self._held[holder] >= self._per_token:
            detail = f"this token has {self._per_token} {self._plural} open: {self._advice}"
            raise HttpProblem(429, f"Too many {self._plural}", detail, headers=headers)
        if self.held >= self._total:
            detail = f"the server has {self._total} {self._plural} open: wait and repeat"
            raise HttpProblem(503, f"Too many {self._plural}", detail, headers=headers)
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
