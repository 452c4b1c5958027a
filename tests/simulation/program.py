"""The command line under a clock that is wrong by OFFSET ms: ``program OFFSET serve …``."""

from __future__ import annotations

import sys
import time

from reverie import clock
from reverie.cli import main


def skewed(offset: int) -> None:
    """Make the machine's clock wrong for everything in this process that asks Reverie's clock."""

    def now(self: clock.SystemClock) -> int:
        return time.time_ns() // 1_000_000 + offset

    clock.SystemClock.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    skewed(int(sys.argv.pop(1)))
    main()
