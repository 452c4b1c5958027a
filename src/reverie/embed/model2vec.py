"""An embedder for static models of the model2vec family, from a folder or Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reverie.embed.pooling import normalize_rows
from reverie.errors import ConfigError, EmbeddingFailed, MissingExtra
from reverie.text.normalize import replace_surrogates

if TYPE_CHECKING:
    from reverie.protocols import Matrix, Vector

NAMES = {"potion_32m": "minishlab/potion-base-32M", "potion_8m": "minishlab/potion-base-8M"}


class Model2VecEmbedder:
    """Embeds with a model2vec model, which is loaded at once, so that a missing one fails early.

    The models have word weights of their own: the weights of a query are not used.
    """

    remote = False

    def __init__(self, path_or_name: str) -> None:
        name = NAMES.get(path_or_name.strip().lower(), path_or_name.strip())
        if not name:
            raise ConfigError("model2vec needs a model: model2vec:PATH, or model2vec:potion_32m")
        try:
            from model2vec import StaticModel
        except ImportError as error:
            raise MissingExtra("model2vec embeddings", "model2vec") from error
        folder = Path(name).expanduser()
        local = folder.exists()
        if not local and _is_path(name):
            raise EmbeddingFailed(
                f"there is no model2vec model at {folder}: give the folder it was saved to"
            )
        if local:
            name = str(folder.resolve())  # a relative name would mean another model elsewhere
        try:
            self._model = StaticModel.from_pretrained(name)
        except Exception as error:
            raise EmbeddingFailed(_load_error(name, local, error)) from error
        self.identity = f"model2vec:{name}"
        self.dimensions = int(self._model.dim)

    def __repr__(self) -> str:
        return f"Model2VecEmbedder({self.identity.removeprefix('model2vec:')!r})"

    def embed(self, texts: Sequence[str]) -> Matrix:
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        cleaned = list(map(replace_surrogates, texts))
        return normalize_rows(np.asarray(self._model.encode(cleaned, use_multiprocessing=False)))

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        row: Vector = self.embed([text])[0]
        return row


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1


def _load_error(name: str, local: bool, error: Exception) -> str:
    if local:
        return (
            f"{name} holds no readable model2vec model ({type(error).__name__}): "
            "give a folder written by StaticModel.save_pretrained"
        )
    return (
        f"the model2vec model {name!r} could not be loaded ({type(error).__name__}): check its "
        "name and the network, or download it elsewhere and set embedder to model2vec:PATH"
    )
