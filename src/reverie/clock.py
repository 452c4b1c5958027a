"""Where time and ids come from. Both are injected, so that tests own them."""

from __future__ import annotations

import os
import string
import time

ID_ALPHABET = string.ascii_letters + string.digits
ID_LENGTH = 8
# Bytes from here on would make some letters likelier than others.
_UNBIASED_LIMIT = 256 - 256 % len(ID_ALPHABET)


class SystemClock:
    """The machine's clock, in milliseconds UTC."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class RandomIds:
    """Ids from the operating system's random source."""

    def memory(self) -> str:
        letters = ""
        while len(letters) < ID_LENGTH:
            fair = (byte for byte in os.urandom(ID_LENGTH) if byte < _UNBIASED_LIMIT)
            letters += "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in fair)
        return letters[:ID_LENGTH]

    def uuid(self) -> str:
        from uuid import uuid4  # importing it takes longer than importing Reverie may

        return str(uuid4())
