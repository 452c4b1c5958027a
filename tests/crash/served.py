"""A server of its own process, always at the same address, that can be killed and started again."""

from __future__ import annotations

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

    def __init__(self, folder: Path, **environment: str) -> None:
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
        process = subprocess.Popen(
            [sys.executable, "-m", "reverie", "serve", "--json", "--port", str(self._port)],
            env={**os.environ, **self._environment},
            stdout=subprocess.PIPE,
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
