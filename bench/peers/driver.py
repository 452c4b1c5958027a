"""The near end: starts a peer's process and asks it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.measuring import Sample
from bench.peers.environments import Unavailable

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    """One peer at work. Unavailable, with what it last said, when its process fails."""

    def __init__(self, python: Path, module: str, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._log = folder / "log.txt"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
            "HOME": str(folder),
        }
        with self._log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment,
            )

    def fill(self, store: str, texts: Path, vectors: Path) -> None:
        folder = self._folder / store
        folder.mkdir()
        paths = {"folder": str(folder), "texts": str(texts), "vectors": str(vectors)}
        self._ask(do="fill", store=store, **paths)

    def add(self, store: str, texts: Sequence[str]) -> Sample:
        return Sample(self._ask(do="add", store=store, texts=list(texts))["cpu"])

    def search(self, store: str, queries: Sequence[str]) -> tuple[Sample, list[list[str]]]:
        answer = self._ask(do="search", store=store, texts=list(queries))
        return Sample(answer["cpu"]), answer["found"]

    def _ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Unavailable(self._last_words()) from None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it ended")

    def close(self) -> None:
        """Let it end by itself: its input ends."""
        self._process.communicate()
