"""One frozen Settings. The environment wins over ``reverie.toml``, an explicit value over both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from reverie.errors import ConfigError

FILE_NAME = "reverie.toml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, each also an environment variable ``REVERIE_<NAME>`` and a key of the file."""

    url: str = ""
    """Where the store is: a path, or ``sqlite:///path``. Empty: the user's own."""
    space: str = "default"
    """The space the command line uses when none is named."""
    user: str = ""
    """The user the command line acts for. Empty: the shared memories of the space."""
    embedder: str = "local"
    """``local``, ``none``, ``hashing``, ``model2vec:PATH`` or ``PROVIDER[:MODEL]``."""
    embedder_base_url: str = ""
    """An OpenAI-compatible address for embeddings."""
    embedder_api_key_env: str = ""
    """The environment variable that holds the key for embeddings."""
    max_facts: int = 0
    """Facts kept for each owner; the oldest beyond it is forgotten. 0: no cap."""
    max_notes: int = 0
    """Notes kept for each owner; the oldest beyond it is forgotten. 0: no cap."""
    fact_chars: int = 500
    """The longest fact. Longer text is a note."""
    recall_days: int = 30
    """How long recalls are noted for dreaming."""
    log_level: str = "warning"
    """What the worker reports on standard error: debug, info, warning or error."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, expected = getattr(self, field.name), int if field.type == "int" else str
            if not isinstance(value, expected) or isinstance(value, bool):
                raise ConfigError(
                    f"{field.name} must be of type {expected.__name__}, not {value!r}"
                )
        for name in ("max_facts", "max_notes", "recall_days"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.fact_chars < 1:
            raise ConfigError(f"fact_chars must be 1 or more, not {self.fact_chars}")
        if self.log_level.lower() not in {"debug", "info", "warning", "error"}:
            raise ConfigError(
                f"log_level must be debug, info, warning or error, not {self.log_level!r}"
            )


def default_url() -> str:
    """The user's own store, where the platform keeps such files."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return str(Path(base).expanduser() / "reverie" / "reverie.db")


def load(
    environ: Mapping[str, str] | None = None, *, folder: Path | None = None, **explicit: Any
) -> Settings:
    """Settings from ``reverie.toml``, then the environment, then what was given explicitly."""
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    values.update(_from_file(_find_file(env, folder)))
    values.update(_from_environment(env))
    values.update({name: value for name, value in explicit.items() if value is not None})
    return Settings(**values)


def _find_file(env: Mapping[str, str], folder: Path | None) -> Path | None:
    home = Path(env.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    for candidate in ((folder or Path.cwd()) / FILE_NAME, home / "reverie" / FILE_NAME):
        if candidate.is_file():
            return candidate
    return None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    known = {field.name: field for field in fields(Settings)}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{path} has an unknown key {name!r}: known are {', '.join(known)}")
        expected = int if known[name].type == "int" else str
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ConfigError(f"{path}: {name} must be of type {expected.__name__}")
    return table


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields(Settings):
        text = env.get(f"REVERIE_{field.name.upper()}")
        if text is None:
            continue
        if field.type != "int":
            values[field.name] = text
            continue
        try:
            values[field.name] = int(text)
        except ValueError as error:
            raise ConfigError(
                f"REVERIE_{field.name.upper()} must be a whole number, not {text!r}"
            ) from error
    return values
