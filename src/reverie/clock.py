"""The default clock and id source of a store. Both can be replaced, for instance in tests."""

from __future__ import annotations

import os
import string
import time

ID_ALPHABET = string.ascii_letters + string.digits
ID_LENGTH = 8
# Using bytes from this value on would make some characters more likely than others.
_UNBIASED_LIMIT = 256 - 256 % len(ID_ALPHABET)


class SystemClock:
    """The clock of the machine, in milliseconds UTC."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class RandomIds:
    """Ids from the operating system's random source."""

    def memory(self) -> str:
        letters = ""
        while len(letters) < ID_LENGTH:
            unbiased = (byte for byte in os.urandom(ID_LENGTH) if byte < _UNBIASED_LIMIT)
            letters += "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in unbiased)
        return letters[:ID_LENGTH]

    def uuid(self) -> str:
        from uuid import uuid4  # slow to import, and not needed to import Reverie

        return str(uuid4())
