from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from reverie.embed.model2vec import NAMES, Model2VecEmbedder
from reverie.errors import ConfigError, EmbeddingFailed, MissingExtra

NOT_INSTALLED = "model2vec is not installed: pip install 'reverie[model2vec]'"


def test_missing_model2vec_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(MissingExtra, match=r"reverie\[model2vec\]"):
        Model2VecEmbedder("potion_8m")


@pytest.mark.parametrize("name", ["", "  "])
def test_model2vec_requires_a_model_name(name: str) -> None:
    with pytest.raises(ConfigError, match="model2vec:PATH"):
        Model2VecEmbedder(name)


def test_model2vec_short_names_lead_to_their_models() -> None:
    assert NAMES["potion_32m"] == "minishlab/potion-base-32M"
    assert NAMES["potion_8m"] == "minishlab/potion-base-8M"


def save_tiny_model(folder: Path) -> None:
    library = pytest.importorskip("model2vec", reason=NOT_INSTALLED)
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = {"[UNK]": 0, "[PAD]": 1, "tea": 2, "milk": 3}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.array([[0, 0], [0, 0], [3, 0], [0, 4]], np.float32)
    library.StaticModel(vectors, tokenizer).save_pretrained(folder)


def test_saved_model2vec_model_is_loaded(tmp_path: Path) -> None:
    save_tiny_model(tmp_path / "tiny")
    embedder = Model2VecEmbedder(str(tmp_path / "tiny"))
    assert embedder.identity == f"model2vec:{(tmp_path / 'tiny').resolve()}"
    assert not embedder.remote
    assert embedder.dimensions == 2
    assert embedder.embed([]).shape == (0, 2)
    rows = embedder.embed(["tea", "milk tea", "", "\ud800"])
    assert rows.dtype == np.float32
    assert np.allclose(rows, [[1.0, 0.0], [0.6, 0.8], [0.0, 0.0], [0.0, 0.0]], atol=1e-6)
    assert np.allclose(embedder.embed_query("milk", {"milk": 0.0}), [0, 1])


@pytest.mark.parametrize("place", ["gone", "empty"])
def test_folder_without_a_model2vec_model_is_reported_on_one_line(
    tmp_path: Path, place: str
) -> None:
    pytest.importorskip("model2vec", reason=NOT_INSTALLED)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmbeddingFailed) as caught:
        Model2VecEmbedder(str(tmp_path / place))
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_failed_model2vec_download_is_reported_on_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("model2vec", reason=NOT_INSTALLED)
    constants = pytest.importorskip("huggingface_hub.constants", reason=NOT_INSTALLED)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(EmbeddingFailed) as caught:
        Model2VecEmbedder("reverie-tests/no-such-model")
    assert "model2vec:PATH" in str(caught.value)
    assert "\n" not in str(caught.value)
