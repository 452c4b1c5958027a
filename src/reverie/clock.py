"""Where time and ids come from. Both are injected, so that tests own them."""

from __future__ import annotations

import os
import string
import time

ID_ALPHABET = string.ascii_letters + string.digits
ID_LENGTH = 8
# Bytes from here on would make some letters likelier than others.
_FAIR = 256 - 256 % len(ID_ALPHABET)


class SystemClock:
    """The machine's clock, in milliseconds UTC."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000


class RandomIds:
    """Ids from the operating system's random source."""

    def memory(self) -> str:
        letters = ""
        while len(letters) < ID_LENGTH:
            fair = (byte for byte in os.urandom(ID_LENGTH) if byte < _FAIR)
            letters += "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in fair)
        return letters[:ID_LENGTH]

    def uuid(self) -> str:
        # The uuid module takes longer to import than Reverie may.
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
