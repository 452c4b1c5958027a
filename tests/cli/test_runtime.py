"""The log on standard error: its format, and that it holds no secret."""

from __future__ import annotations

import io
import logging
import sys

from reverie.cli.runtime import RedactingFormatter


def test_log_lines_contain_no_secret() -> None:
    secret = "ghp_" + "Zq7Kx2Vb9Tn4" * 3
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("reverie.test")
    log.addHandler(handler)
    log.warning("sent %s to %r", secret, {"password": "hunter2!x"})
    try:
        raise ValueError(f"refused {secret}")
    except ValueError:
        log.error("failed", exc_info=sys.exc_info())
    logged = stream.getvalue()
    assert secret not in logged and "hunter2!x" not in logged
    assert logged.count("[redacted: github token]") == 2
    assert logged.startswith("WARNING sent [redacted: github token] to")
