"""How many of a kind of request may be under way at once: of one token, and in all."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from reverie.server.errors import HttpProblem

RETRY_SECONDS = 5


class Quota:
    """Counts what is under way. Used from one event loop.

    ``advice`` says what somebody can do who already has as many as one token may have.
    """

    def __init__(self, what: str, of_one: int, in_all: int, advice: str) -> None:
        self._what, self._per_token, self._total, self._advice = what, of_one, in_all, advice
        self._held: Counter[str] = Counter()

    @property
    def held(self) -> int:
        return self._held.total()

    @contextlib.contextmanager
    def hold(self, holder: str) -> Iterator[None]:
        """One more of this token, until the block ends."""
        headers = {"Retry-After": str(RETRY_SECONDS)}
        if self._held[holder] >= self._per_token:
            detail = f"this token has {self._per_token} {self._what} open: {self._advice}"
            raise HttpProblem(429, f"Too many {self._what}", detail, headers=headers)
        if self.held >= self._total:
            detail = f"the server has {self._total} {self._what} open: wait and repeat"
            raise HttpProblem(503, f"Too many {self._what}", detail, headers=headers)
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
