"""Our log as people read it: without keys and passwords, whoever wrote them into a message."""

from __future__ import annotations

import logging

from reverie.text.secrets import redacted


class Discreet(logging.Formatter):
    """Redacts the whole line, so that arguments and tracebacks hold no secret either."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))[0]
