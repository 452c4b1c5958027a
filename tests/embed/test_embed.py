"""open_embedder: a setting gives an embedder, or an error of one line."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256

import pytest

from reverie.config import Settings
from reverie.embed import identity, open_embedder
from reverie.embed.hashing import HashingEmbedder
from reverie.embed.local import LocalEmbedder
from reverie.embed.openai import OpenAIEmbedder
from reverie.errors import ConfigError, MissingExtra
from reverie.protocols import Embedder


@pytest.mark.parametrize("spec", ["", "none", "None", "  "])
def test_open_embedder_none_opens_no_embedder(spec: str) -> None:
    assert open_embedder(Settings(embedder=spec)) is None


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("local", LocalEmbedder), (" LOCAL ", LocalEmbedder), ("hashing", HashingEmbedder)],
)
def test_open_embedder_opens_the_built_in_embedders(spec: str, kind: type) -> None:
    made = open_embedder(Settings(embedder=spec))
    assert isinstance(made, kind)
    assert isinstance(made, Embedder)
    assert not made.remote


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("openai", "openai:text-embedding-3-small"),
        ("openai:text-embedding-3-large", "openai:text-embedding-3-large"),
        ("anthropic", "openai:text-embedding-3-small"),
        ("google", "google:text-embedding-004"),
        ("ollama", "ollama:nomic-embed-text"),
        ("Ollama:mxbai-embed-large", "ollama:mxbai-embed-large"),
        ("ollama:nomic-embed-text:v1.5", "nomic-embed-text:v1.5"),
    ],
)
def test_open_embedder_opens_known_providers(
    monkeypatch: pytest.MonkeyPatch, spec: str, expected: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    made = open_embedder(Settings(embedder=spec))
    assert isinstance(made, OpenAIEmbedder)
    assert isinstance(made, Embedder)
    assert made.remote
    assert made.identity == expected
    made.close()


def test_open_embedder_accepts_any_provider_with_a_base_url() -> None:
    url = "http://127.0.0.1:9/v1"
    made = open_embedder(Settings(embedder="acme:embed-1", embedder_base_url=url))
    assert isinstance(made, OpenAIEmbedder)
    assert made.identity == f"acme:embed-1:{sha256(url.encode()).hexdigest()[:8]}"
    made.close()


@pytest.mark.parametrize("spec", ["acme", "acme:embed-1", "local:x", "none:x", ":x"])
def test_unknown_embedder_is_refused_on_one_line(spec: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_embedder(Settings(embedder=spec))
    assert "\n" not in str(caught.value)
    assert "embedder_base_url" in str(caught.value)


@pytest.mark.parametrize("spec", ["local:x", ":x"])
def test_base_url_does_not_make_a_word_without_a_model_a_provider(spec: str) -> None:
    with pytest.raises(ConfigError):
        open_embedder(Settings(embedder=spec, embedder_base_url="http://127.0.0.1:9/v1"))


def test_open_embedder_model2vec_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(MissingExtra, match=r"reverie\[model2vec\]"):
        open_embedder(Settings(embedder="model2vec:potion_8m"))


def test_identity_names_provider_model_and_address_digest() -> None:
    assert identity("openai", "m", "") == "openai:m"
    assert identity("openai", "google:m", "") == "google:m"
    digest = sha256(b"http://h/v1").hexdigest()[:8]
    assert identity("openai", "m", "http://h/v1") == f"openai:m:{digest}"
    assert identity("openai", "a:b", "http://h/v1") == f"a:b:{digest}"


def test_importing_reverie_embed_loads_nothing_heavy() -> None:
    code = (
        "import sys, reverie.embed, reverie.embed.tokens; "
        "print([m for m in ('numpy', 'httpx', 'tokenizers', 'wordllama') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
