"""A server of its own process, always at the same address, that can be killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TOKEN = "t" * 40


class Served:
    """One server at a time on one store."""

    def __init__(
        self,
        folder: Path,
        *,
        descriptors: int | None = None,
        errors: Path | None = None,
        **environment: str,
    ) -> None:
        """``descriptors`` is its limit of open files; ``errors`` takes its standard error."""
        self._descriptors, self._errors = descriptors, errors
        self._environment = {
            "REVERIE_URL": str(folder / "store.db"),
            "REVERIE_TOKEN": TOKEN,
            "REVERIE_EMBEDDER": "hashing",
            **environment,
        }
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Where it listens."""
        command = [sys.executable, "-m", "reverie", "serve", "--json", "--port", str(self._port)]
        if self._descriptors is not None:
            limited = f'ulimit -n {self._descriptors}; exec "$@"'
            command = ["sh", "-c", limited, "sh", *command]
        with contextlib.ExitStack() as stack:
            errors = None if self._errors is None else stack.enter_context(self._errors.open("ab"))
            process = subprocess.Popen(
                command,
                env={**os.environ, **self._environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        places: dict[str, Any] = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
        self._process = process
        base: str = places["rest"].removesuffix("/docs")
        self._port = int(base.rpartition(":")[2])
        return base

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
