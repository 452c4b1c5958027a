"""Embedders and rerankers, and the functions that open the one that a setting names."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from reverie.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from reverie.config import Settings
    from reverie.protocols import Embedder, Reranker

__all__ = ["PROVIDERS", "identity", "open_embedder", "open_reranker"]

PROVIDERS = ("openai", "anthropic", "google", "ollama")


def identity(provider: str, model: str, base_url: str) -> str:
    """Return ``provider:model[:hash8(base_url)]``; a model with a colon is not prefixed."""
    name = model if ":" in model else f"{provider}:{model}"
    return f"{name}:{sha256(base_url.encode()).hexdigest()[:8]}" if base_url else name


def open_embedder(settings: Settings) -> Embedder | None:
    """Open the embedder that the settings name; None for a store without vectors."""
    spec = settings.embedder.strip()
    provider, _, model = spec.partition(":")
    provider = provider.lower()
    if spec.lower() in {"", "none"}:
        return None
    if spec.lower() in {"local", "hashing"}:
        # numpy takes time to load.
        from reverie.embed import hashing, local

        return local.LocalEmbedder() if spec.lower() == "local" else hashing.HashingEmbedder()
    if provider == "model2vec":
        # model2vec is an optional library.
        from reverie.embed.model2vec import Model2VecEmbedder

        return Model2VecEmbedder(model)
    reserved = {"", "none", "local", "hashing"}
    if provider in PROVIDERS or (settings.embedder_base_url and provider not in reserved):
        # httpx2 is an optional library.
        from reverie.embed.openai import OpenAIEmbedder

        return OpenAIEmbedder(
            provider,
            model,
            base_url=settings.embedder_base_url,
            api_key_env=settings.embedder_api_key_env,
            outbound=settings.outbound,
        )
    raise ConfigError(
        f"unknown embedder {spec!r}: use local, none, hashing, model2vec:PATH or PROVIDER[:MODEL] "
        f"with a provider of {', '.join(PROVIDERS)}; any other needs embedder_base_url"
    )


def open_reranker(given: str | Path | Reranker | None) -> Reranker | None:
    """Return a given reranker, or open the cross-encoder in a folder; None if none is given."""
    if given is None or not isinstance(given, str | os.PathLike):
        return given
    # onnxruntime is an optional library.
    from reverie.embed.cross_encoder import CrossEncoder

    return CrossEncoder(given)
