"""Settings: the file, then the environment, then what was given."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import reverie
from reverie import ConfigError, Settings, config


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "reverie.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_settings_without_file_or_environment_are_the_defaults(tmp_path: Path) -> None:
    assert config.load({}, folder=tmp_path) == Settings()
    assert (Settings().embedder, Settings().max_facts, Settings().space) == ("local", 0, "default")


def test_environment_overrides_the_file_and_arguments_override_both(tmp_path: Path) -> None:
    write(tmp_path, 'space = "file"\nuser = "file"\nmax_facts = 1\nembedder = "none"\n')
    env = {"REVERIE_USER": "env", "REVERIE_MAX_FACTS": "2", "XDG_CONFIG_HOME": str(tmp_path)}
    found = config.load(env, folder=tmp_path, max_facts=3, user=None)
    assert (found.embedder, found.space, found.user, found.max_facts) == ("none", "file", "env", 3)


def test_settings_file_of_the_folder_overrides_that_of_the_user(tmp_path: Path) -> None:
    write(tmp_path / "config" / "reverie", 'space = "home"\nuser = "home"\n')
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert config.load(env, folder=tmp_path).space == "home"
    write(tmp_path, 'space = "here"\n')
    found = config.load(env, folder=tmp_path)
    assert (found.space, found.user) == ("here", "")


def test_every_setting_has_an_environment_variable(tmp_path: Path) -> None:
    env = {"REVERIE_FACT_CHARS": "700", "REVERIE_RECALL_DAYS": "7", "REVERIE_LOG_LEVEL": "DEBUG"}
    found = config.load({**env, "REVERIE_URL": "x.db", "REVERIE_OTHER": "?"}, folder=tmp_path)
    assert (found.fact_chars, found.recall_days, found.url) == (700, 7, "x.db")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("colour = 'red'", "colour"),
        ("max_facts = 'many'", "max_facts"),
        ("max_facts = true", "max_facts"),
        ("max_facts = 1.5", "max_facts"),
        ("space = 5", "space"),
        ("max_notes = -1", "max_notes"),
        ("fact_chars = 0", "fact_chars"),
        ("max_connections = -1", "max_connections"),
        ("max_feeds = 0", "max_feeds"),
        ("max_uploads = 0", "max_uploads"),
        ("log_level = 'loud'", "log_level"),
        ("this is no toml", "reverie.toml"),
    ],
)
def test_invalid_settings_file_is_a_typed_error(tmp_path: Path, text: str, word: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError, match=word) as caught:
        config.load({}, folder=tmp_path)
    assert "\n" not in str(caught.value)


def test_settings_file_that_is_not_utf8_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "reverie.toml").write_bytes(b"space = '\xff'")
    with pytest.raises(ConfigError):
        config.load({}, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_FACTS", "many"),
        ("MAX_FACTS", ""),
        ("MAX_FACTS", "-1"),
        ("FACT_CHARS", "0"),
        ("RECALL_DAYS", "1.5"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_invalid_environment_variable_is_a_typed_error(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"(?i){name}"):
        config.load({f"REVERIE_{name}": value}, folder=tmp_path)


def test_invalid_explicit_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, TypeError)):
        config.load({}, folder=tmp_path, colour="red")
    with pytest.raises(ConfigError):
        config.load({}, folder=tmp_path, max_facts=-1)


def test_settings_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().space = "x"  # type: ignore[misc]


def test_open_reads_the_environment_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_URL", str(tmp_path / "env.db"))
    monkeypatch.setenv("REVERIE_EMBEDDER", "none")
    with reverie.open() as store:
        assert store.url.endswith("env.db") and store.settings.embedder == "none"
    with reverie.open(tmp_path / "given.db", embedder="hashing") as store:
        assert store.url.endswith("given.db") and store.settings.embedder == "hashing"
    with reverie.open(settings=Settings(url=str(tmp_path / "set.db"), embedder="none")) as store:
        assert store.url.endswith("set.db")
    with pytest.raises(ConfigError):
        reverie.open(tmp_path / "x.db", embedder="nonsense")
    with pytest.raises(ConfigError):
        reverie.open("oracle://x", embedder="none")


def test_default_store_path_follows_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with reverie.open(embedder="none") as store:
        assert store.url.endswith("data/reverie/reverie.db")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert config.default_url().endswith(".local/share/reverie/reverie.db")
