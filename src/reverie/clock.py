"""Where time and ids come from. Both are injected, so that tests own them."""

from __future__ import annotations

import secrets
import string
import time
import uuid

ID_ALPHABET = string.ascii_letters + string.digits
ID_LENGTH = 8


class SystemClock:
    """The machine's clock, in milliseconds UTC."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class RandomIds:
    """Ids from the operating system's random source."""

    def memory(self) -> str:
        return "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_LENGTH))

    def uuid(self) -> str:
        return str(uuid.uuid4())
