"""Run the command line on a store in a fresh folder, with the hashing embedder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reverie.cli import app


@dataclass(frozen=True)
class CommandLine:
    """Runs commands inside this process, and for real."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "reverie.db"

    def run(self, *arguments: str, code: int = 0, given: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, arguments, input=given, catch_exceptions=False)
        assert result.exit_code == code, (arguments, result.stdout, result.stderr)
        return result

    def text(self, *arguments: str, code: int = 0, given: str | bytes | None = None) -> str:
        return self.run(*arguments, code=code, given=given).stdout

    def json(self, *arguments: str, code: int = 0, given: str | bytes | None = None) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code, given=given).stdout)

    def error(self, *arguments: str, code: int) -> str:
        """What a command that fails says: one line, and nothing on standard output."""
        result = self.run(*arguments, code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("reverie: ")
        assert result.stderr.count("\n") == 1
        return result.stderr

    def remember(self, content: str, *arguments: str) -> str:
        """The id of a new memory."""
        memory: Mapping[str, str] = self.json("remember", content, *arguments)
        return memory["id"]

    def real(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "reverie", *arguments],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=120,
            env=dict(os.environ),
            **more,
        )


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("REVERIE_URL", str(tmp_path / "reverie.db"))
    monkeypatch.setenv("REVERIE_EMBEDDER", "hashing")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path)
