"""The settings of a store, and where they are read from.

A value given in code wins over the environment, which wins over ``reverie.toml``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from reverie.errors import ConfigError
from reverie.model import DEFAULT_FLOOR, RankingName

FILE_NAME = "reverie.toml"
MAX_BUSY_TIMEOUT = 86_400
LearnMode = Literal["auto", "off", "rules", "llm"]
WritePolicy = Literal["ask", "notify", "silent"]
SummaryMode = Literal["auto", "off", "condense", "llm"]
SecretPolicy = Literal["redact", "block", "warn", "off"]
Outbound = Literal["any", "public"]
UpgradeBackup = Literal["on", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
UpstreamKey = Literal["operator", "client"]
# Settings that are one of a few words, in any case of letters.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "ranking": get_args(RankingName),
    "learn": get_args(LearnMode),
    "write_policy": get_args(WritePolicy),
    "summary": get_args(SummaryMode),
    "secrets": get_args(SecretPolicy),
    "outbound": get_args(Outbound),
    "upgrade_backup": get_args(UpgradeBackup),
    "log_level": get_args(LogLevel),
    "upstream_key": get_args(UpstreamKey),
}

# A whole number is accepted where a number is expected.
_TYPES: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float)}
_TYPE_NAMES: Mapping[type | tuple[type, ...], str] = {
    int: "int",
    str: "str",
    (int, float): "float",
}
_MINIMUMS = {
    **dict.fromkeys(("max_facts", "max_notes", "max_sessions", "recall_days"), 0),
    **dict.fromkeys(("max_connections", "max_address_connections"), 0),
    **dict.fromkeys(("fact_chars", "max_feeds", "max_uploads"), 1),
    "context_tokens": 100,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Each is also an environment variable ``REVERIE_<NAME>`` and a key of
    ``reverie.toml``."""

    url: str = field(default="", repr=False)
    """The store: a path, ``sqlite:///path`` or ``postgresql://user@host/database``. Empty: a file
    in the user's data folder."""
    read_url: str = field(default="", repr=False)
    """A standby of the PostgreSQL database, which then answers recalls. Empty: none."""
    space: str = "default"
    """The space the command line uses when none is named."""
    user: str = ""
    """The user the command line acts for. Empty: the shared memories of the space."""
    embedder: str = "local"
    """The embedder, which makes the vectors: ``local``, ``none``, ``hashing``, ``model2vec:PATH``
    or ``PROVIDER[:MODEL]``."""
    embedder_base_url: str = ""
    """The address of an OpenAI-compatible embedding service. Empty: the provider's own."""
    embedder_api_key_env: str = ""
    """The name of the environment variable that holds the key of the embedding service."""
    reranker: str = ""
    """The folder of an ONNX cross-encoder, for rankings that use a reranker. Empty: none."""
    ranking: RankingName = "default"
    """How recalls rank: default, reranked, similarity, weighted, rrf or diverse."""
    recall_floor: float = DEFAULT_FLOOR
    """Hits with a lower score get no place in a prompt. 0: every hit does."""
    max_facts: int = 0
    """How many facts each owner may have before the oldest is forgotten. 0: no limit."""
    max_notes: int = 0
    """How many notes each owner may have before the oldest is forgotten. 0: no limit."""
    fact_chars: int = 500
    """The greatest length of a fact in characters. A longer text is stored as a note."""
    recall_days: int = 30
    """For how many days the record of each recall is kept."""
    max_sessions: int = 0
    """How many sessions each owner may have before the least recently used is hidden. 0: no
    limit."""
    model: str = ""
    """The chat model, as ``PROVIDER:MODEL``. Empty: no model."""
    model_base_url: str = ""
    """The address of an OpenAI-compatible chat model. Empty: the provider's own."""
    model_api_key: str = field(default="", repr=False)
    """The key for the chat model. Empty: what its provider reads from the environment."""
    learn: LearnMode = "auto"
    """How facts are learned from turns: ``off``, ``rules`` or ``llm``. ``auto`` is ``llm`` when a
    model is configured, otherwise ``rules``."""
    write_policy: WritePolicy = "silent"
    """What happens to facts learned from a turn: ``ask`` stores proposals, ``notify`` stores the
    facts and tells the agent, ``silent`` stores them."""
    summary: SummaryMode = "auto"
    """How sessions are summarised: ``off``, ``condense`` or ``llm``. ``auto`` is ``llm`` when a
    model is configured, otherwise ``condense``."""
    context_tokens: int = 4000
    """The size of a context in tokens; a history that outgrows its part is summarised."""
    secrets: SecretPolicy = "redact"
    """What happens to keys and passwords in text to be stored: ``redact``, ``block``, ``warn`` or
    ``off``."""
    outbound: Outbound = "any"
    """Which addresses of models and other services may be used: ``any``, or only ``public``."""
    host: str = "127.0.0.1"
    """The address the server listens on. Anything but loopback requires ``token``."""
    port: int = 7424
    """The port the server listens on. 0: any free port."""
    token: str = field(default="", repr=False)
    """The operator's token for the server. Empty: one is made, and kept beside the user's store."""
    max_connections: int = 0
    """The most open connections of the server. 0: what the limit of open files allows."""
    max_address_connections: int = 0
    """The most open connections from one address; all clients of a reverse proxy share its
    address. 0: half of ``max_connections``."""
    max_feeds: int = 100
    """How many feeds of changes the bearers of one token may have open."""
    max_uploads: int = 16
    """How many long request bodies, not counting imports, one token may send at once."""
    upstream: str = ""
    """The address of the OpenAI-compatible service behind the proxy. Empty: no proxy."""
    upstream_api_key: str = field(default="", repr=False)
    """The key for ``upstream``. Empty: none is sent."""
    upstream_key: UpstreamKey = "operator"
    """Whose key ``upstream`` gets: the ``operator``'s, or the one that the ``client`` sends."""
    vault: str = ""
    """The folder of the vault, with a Markdown file for every memory. Empty: the folder that the
    store remembers, if it has one."""
    busy_timeout: int = 30
    """Seconds to wait for another writer before StoreBusy is raised. 0: do not wait."""
    upgrade_backup: UpgradeBackup = "on"
    """Whether a SQLite store of an earlier version is copied beside itself before it is upgraded:
    ``on`` or ``off``. Of a PostgreSQL database: whether Reverie says how to back it up."""
    log_level: LogLevel = "warning"
    """What the worker reports on standard error: debug, info, warning or error."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value, expected = getattr(self, each.name), _TYPES.get(str(each.type), str)
            if not isinstance(value, expected) or isinstance(value, bool):
                name = _TYPE_NAMES[expected]
                raise ConfigError(f"{each.name} must be of type {name}, not {value!r}")
        for name, minimum in _MINIMUMS.items():
            if getattr(self, name) < minimum:
                raise ConfigError(f"{name} must be {minimum} or more, not {getattr(self, name)}")
        if not 0 <= self.recall_floor <= 1:
            raise ConfigError(f"recall_floor must be 0 to 1, not {self.recall_floor}")
        if not 0 <= self.busy_timeout <= MAX_BUSY_TIMEOUT:
            raise ConfigError(
                f"busy_timeout must be 0 to {MAX_BUSY_TIMEOUT} seconds, not {self.busy_timeout}"
            )

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
        """How facts are learned, with ``auto`` resolved: off, rules or llm."""
        asked = self.learn.lower()
        return ("llm" if self.model else "rules") if asked == "auto" else asked

    @property
    def history_tokens(self) -> int:
        """How many tokens of a context are reserved for the history."""
        return self.context_tokens // 2

    @property
    def keeps_upgrade_backup(self) -> bool:
        """Whether a store of an earlier version is backed up before it is upgraded."""
        return self.upgrade_backup.lower() == "on"

    @property
    def summary_mode(self) -> str:
        """How sessions are summarised, with ``auto`` resolved: off, condense or llm."""
        asked = self.summary.lower()
        return ("llm" if self.model else "condense") if asked == "auto" else asked


def _is_address(text: str) -> bool:
    """Whether a text is a plain http or https URL: no user, query or fragment."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and not set(text) & set(" \\@?#")
    return plain and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0


def default_url() -> str:
    """Return the path of the user's own store, in the data folder of the platform."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return str(Path(base).expanduser() / "reverie" / "reverie.db")


def load(
    environ: Mapping[str, str] | None = None, *, folder: Path | None = None, **explicit: Any
) -> Settings:
    """Read the settings: explicit values win over the environment, and that over the file.

    ``environ`` and ``folder`` default to this process's environment and working directory. An
    explicit value of None counts as not given.
    """
    env = os.environ if environ is None else environ
    given = {name: value for name, value in explicit.items() if value is not None}
    return Settings(**_from_file(_find_file(env, folder)) | _from_environment(env) | given)


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
    declared = {each.name: each for each in fields(Settings)}
    for name, value in table.items():
        if name not in declared:
            raise ConfigError(
                f"{path} has an unknown key {name!r}: known are {', '.join(declared)}"
            )
        expected = _TYPES.get(str(declared[name].type), str)
        if not isinstance(value, expected) or isinstance(value, bool):
            raise ConfigError(f"{path}: {name} must be of type {_TYPE_NAMES[expected]}")
    return table


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in fields(Settings):
        text = env.get(f"REVERIE_{each.name.upper()}")
        if text is None:
            continue
        if each.type not in {"int", "float"}:
            values[each.name] = text
            continue
        whole = each.type == "int"
        try:
            values[each.name] = int(text) if whole else float(text)
        except ValueError as error:
            kind = "a whole number" if whole else "a number"
            raise ConfigError(
                f"REVERIE_{each.name.upper()} must be {kind}, not {text!r}"
            ) from error
    return values
