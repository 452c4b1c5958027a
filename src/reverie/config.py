"""One frozen Settings. The environment wins over ``reverie.toml``, an explicit value over both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reverie.errors import ConfigError
from reverie.model import RANKINGS

FILE_NAME = "reverie.toml"
MAX_BUSY_TIMEOUT = 86_400
_CHOICES = {
    "ranking": tuple(RANKINGS),
    "learn": ("auto", "off", "rules", "llm"),
    "write_policy": ("ask", "notify", "silent"),
    "summary": ("auto", "off", "condense", "llm"),
    "secrets": ("redact", "block", "warn", "off"),
    "outbound": ("any", "public"),
    "log_level": ("debug", "info", "warning", "error"),
    "upstream_key": ("operator", "client"),
}

_NON_NEGATIVE = (
    "max_facts",
    "max_notes",
    "max_sessions",
    "recall_days",
    "max_connections",
    "max_address_connections",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, each also an environment variable ``REVERIE_<NAME>`` and a key of the file."""

    url: str = field(default="", repr=False)
    """A path, ``sqlite:///path`` or ``postgresql://user@host/database``. Empty: the user's own."""
    read_url: str = field(default="", repr=False)
    """A standby of the PostgreSQL database, which then serves recalls. Empty: none."""
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
    reranker: str = ""
    """The folder of an ONNX cross-encoder, for rankings that rerank. Empty: none."""
    ranking: str = "default"
    """How recalls rank: default, reranked, similarity, weighted, rrf or diverse."""
    max_facts: int = 0
    """Facts kept for each owner; the oldest beyond it is forgotten. 0: no cap."""
    max_notes: int = 0
    """Notes kept for each owner; the oldest beyond it is forgotten. 0: no cap."""
    fact_chars: int = 500
    """The longest fact. Longer text is a note."""
    recall_days: int = 30
    """How long recalls are noted for dreaming."""
    max_sessions: int = 0
    """Sessions kept for each owner; the one quiet for longest beyond it is hidden. 0: no cap."""
    model: str = ""
    """The chat model, as ``PROVIDER:MODEL``. Empty: no model."""
    model_base_url: str = ""
    """An OpenAI-compatible address of the chat model."""
    model_api_key: str = field(default="", repr=False)
    """The key for the chat model. Empty: what its provider reads from the environment."""
    learn: str = "auto"
    """What is learned from turns: ``off``, ``rules``, ``llm``; ``auto``: llm with a model."""
    write_policy: str = "silent"
    """New facts of a turn: ``ask`` makes proposals, ``notify`` tells the agent, ``silent``."""
    summary: str = "auto"
    """How sessions are summed up: ``off``, ``condense``, ``llm``; ``auto``: llm with a model."""
    context_tokens: int = 4000
    """How full a context may get before older turns are summed up."""
    secrets: str = "redact"
    """Keys and passwords in what is kept: ``redact``, ``block``, ``warn`` or ``off``."""
    outbound: str = "any"
    """Where models may be reached: ``any`` address, or only those that are ``public``."""
    host: str = "127.0.0.1"
    """Where the server listens. Anything but loopback needs a token of the settings."""
    port: int = 7424
    """The port the server listens on; 0: any that is free."""
    token: str = field(default="", repr=False)
    """The operator's token for the server. Empty: one is made, and kept beside the user's store."""
    max_connections: int = 0
    """Open connections of the server. 0: as many as the limit of open files allows."""
    max_address_connections: int = 0
    """Open connections of one address; behind a reverse proxy all have its. 0: half of all."""
    max_feeds: int = 100
    """Feeds of changes that one token may have open."""
    max_uploads: int = 16
    """Long bodies, imports apart, that one token may send at once."""
    upstream: str = ""
    """The OpenAI-compatible address the proxy sends chats on to. Empty: no proxy."""
    upstream_api_key: str = field(default="", repr=False)
    """The key for the upstream. Empty: none is sent."""
    upstream_key: str = "operator"
    """Whose key the upstream gets: the ``operator``'s, or the one that the ``client`` sends."""
    vault: str = ""
    """The folder in which every memory is a Markdown file. Empty: none, or the one of the store."""
    busy_timeout: int = 30
    """Seconds to wait for another writer before StoreBusy says who it is. 0: do not wait."""
    log_level: str = "warning"
    """What the worker reports on standard error: debug, info, warning or error."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, expected = getattr(self, each.name), int if each.type == "int" else str
            if not isinstance(value, expected) or isinstance(value, bool):
                raise ConfigError(f"{each.name} must be of type {expected.__name__}, not {value!r}")
        for name in _NON_NEGATIVE:
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("fact_chars", "max_feeds", "max_uploads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 <= self.busy_timeout <= MAX_BUSY_TIMEOUT:
            raise ConfigError(
                f"busy_timeout must be 0 to {MAX_BUSY_TIMEOUT} seconds, not {self.busy_timeout}"
            )
        if self.context_tokens < 100:
            raise ConfigError(f"context_tokens must be 100 or more, not {self.context_tokens}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name).lower() not in allowed:
                raise ConfigError(
                    f"{name} must be {', '.join(allowed[:-1])} or {allowed[-1]}, "
                    f"not {getattr(self, name)!r}"
                )
        for name in ("learn", "summary"):
            if getattr(self, name).lower() == "llm" and not self.model:
                raise ConfigError(f"{name} is llm but no model is configured: set model")
        if self.model_base_url and not self.model:
            raise ConfigError("model_base_url is set but model is not: say which model to ask for")
        if self.upstream and not _is_address(self.upstream):
            raise ConfigError(
                "upstream must be an address such as https://api.openai.com/v1, "
                "without a user, a query or a fragment"
            )

    @property
    def learn_mode(self) -> str:
        """What ``learn`` comes to: off, rules or llm."""
        asked = self.learn.lower()
        return ("llm" if self.model else "rules") if asked == "auto" else asked

    @property
    def history_tokens(self) -> int:
        """The part of a context that its history can count on."""
        return self.context_tokens // 2

    @property
    def summary_mode(self) -> str:
        """What ``summary`` comes to: off, condense or llm."""
        asked = self.summary.lower()
        return ("llm" if self.model else "condense") if asked == "auto" else asked


def _is_address(text: str) -> bool:
    """Whether this is where an HTTP server may be, and nothing besides."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and not set(text) & set(" \\@?#")
    return plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0


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
    known = {each.name: each for each in fields(Settings)}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"{path} has an unknown key {name!r}: known are {', '.join(known)}")
        expected = int if known[name].type == "int" else str
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ConfigError(f"{path}: {name} must be of type {expected.__name__}")
    return table


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in fields(Settings):
        text = env.get(f"REVERIE_{each.name.upper()}")
        if text is None:
            continue
        if each.type != "int":
            values[each.name] = text
            continue
        try:
            values[each.name] = int(text)
        except ValueError as error:
            raise ConfigError(
                f"REVERIE_{each.name.upper()} must be a whole number, not {text!r}"
            ) from error
    return values
