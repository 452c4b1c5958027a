"""The cross-encoder against real ONNX graphs and real tokenizers, both built here.

onnxruntime is never imported by a test itself: it reports to its maker unless told not to before.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto

from reverie.embed import cross_encoder
from reverie.embed.cross_encoder import CrossEncoder
from reverie.errors import ConfigError, MissingExtra, RerankFailed
from reverie.protocols import Reranker
from tests.embed.tiny_cross_encoder import (
    INPUTS,
    WORDS,
    expected,
    save_model,
    save_settings,
    save_tokenizer,
)

KEPT = ("PATH", "PYTHONPATH", "SYSTEMROOT")
QUERY = "who likes green tea"
TEXTS = ["ben is in lisbon", "anna likes green tea", "the tea", "anna and ben and the milk"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a model may be put; its tokenizer is there already."""
    save_tokenizer(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def encoder(folder: Path) -> CrossEncoder:
    save_model(folder / "model.onnx")
    return CrossEncoder(folder)


def by_hand(query: str, texts: Sequence[str]) -> list[float]:
    return [expected(query.split(), text.split()) for text in texts]


def failure(place: Path, texts: Sequence[str] = ("the tea",)) -> str:
    with pytest.raises(RerankFailed) as caught:
        CrossEncoder(place).score(QUERY, texts)
    message = str(caught.value)
    assert "\n" not in message
    assert ": " in message, "it does not say what to do next"
    return message


def random_texts(count: int) -> list[str]:
    chance = random.Random(5)
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, 40))) for _ in range(count)]


def test_scores_are_probabilities_in_the_order_of_the_texts(encoder: CrossEncoder) -> None:
    reranker: Reranker = encoder
    scores = reranker.score(QUERY, TEXTS)
    assert scores == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)
    assert [TEXTS[scores.index(score)] for score in sorted(scores, reverse=True)[:2]] == [
        "anna likes green tea",
        "the tea",
    ]
    assert all(0.0 < score < 1.0 for score in scores)
    assert all(type(score) is float for score in scores)


@pytest.mark.parametrize("shape", ["n", "n,1", "n,2", "undeclared"])
@pytest.mark.parametrize("inputs", [INPUTS, INPUTS[:2]], ids=["types", "no types"])
def test_cross_encoder_accepts_every_common_model_graph(
    folder: Path, shape: str, inputs: Sequence[str]
) -> None:
    save_model(folder / "model.onnx", shape, inputs=inputs)
    scores = CrossEncoder(folder).score(QUERY, TEXTS)
    assert scores == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
@pytest.mark.parametrize("number", [TensorProto.INT32, TensorProto.INT64])
def test_other_number_types_of_a_model_are_accepted(folder: Path, kind: int, number: int) -> None:
    save_model(folder / "model.onnx", kind=kind, number=number)
    scores = CrossEncoder(folder).score(QUERY, TEXTS)
    assert scores == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-3)


def test_output_of_any_name_is_used_and_logits_is_preferred(folder: Path) -> None:
    save_model(folder / "named.onnx", output="score")
    save_model(folder / "besides.onnx", "n,2", besides="pooled")
    for name in ("named.onnx", "besides.onnx"):
        scores = CrossEncoder(folder / name).score(QUERY, TEXTS)
        assert scores == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "model.onnx",
        "onnx/model.onnx",
        "model_quantized.onnx",
        "onnx/model_quantized.onnx",
        "onnx/model_int8.onnx",
    ],
)
def test_folder_layouts_of_common_downloads_are_found(folder: Path, name: str) -> None:
    save_model(folder / name)
    digest = sha256((folder / name).read_bytes()).hexdigest()[:8]
    for path in (folder, str(folder), folder / name):
        encoder = CrossEncoder(path)
        assert encoder.identity == f"onnx:tiny:{digest}"
        assert encoder.score(QUERY, TEXTS) == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)


def test_model_file_of_any_name_is_accepted_by_its_path(folder: Path) -> None:
    save_model(folder / "onnx" / "model_O4.onnx")
    assert "by its own path" in failure(folder)
    assert CrossEncoder(folder / "onnx" / "model_O4.onnx").score(QUERY, TEXTS)


def test_cross_encoder_prefers_the_unquantized_model_file(folder: Path) -> None:
    save_model(folder / "model_quantized.onnx", "n")
    quantised = CrossEncoder(folder).identity
    save_model(folder / "onnx" / "model.onnx", "n,2")
    assert CrossEncoder(folder).identity != quantised
    assert "model.onnx" in repr(CrossEncoder(folder))


def test_relative_and_home_paths_are_resolved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(folder / "model.onnx")
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("USERPROFILE", str(folder.parent))
    monkeypatch.chdir(folder)
    made = [CrossEncoder(path) for path in (".", "model.onnx", "../tiny", "~/tiny")]
    monkeypatch.chdir("/")
    assert {encoder.identity for encoder in made} == {CrossEncoder(folder).identity}
    for encoder in made:
        assert encoder.score(QUERY, TEXTS) == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)


def test_identity_includes_external_weight_files(encoder: CrossEncoder) -> None:
    file = encoder._file
    alone = encoder.identity
    file.with_name("model.onnx_data").write_bytes(b"weights")
    assert CrossEncoder(file).identity != alone
    assert encoder.identity == alone
    file.with_name("model.onnx_data").unlink()
    assert CrossEncoder(file).identity == alone


@pytest.mark.parametrize("shape", ["n,1", "n,2", "quantised"])
def test_score_of_a_text_does_not_depend_on_its_batch(folder: Path, shape: str) -> None:
    save_model(folder / "model.onnx", shape)
    encoder, texts = CrossEncoder(folder), random_texts(30)
    together = encoder.score(QUERY, texts)
    assert together == [encoder.score(QUERY, [text])[0] for text in texts]
    assert together == encoder.score(QUERY, texts[::-1])[::-1]
    assert together == CrossEncoder(folder, threads=2).score(QUERY, texts)
    assert together == pytest.approx(by_hand(QUERY, texts), abs=1e-2)


class Spy:
    """A session that keeps what it is fed."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.fed: list[dict[str, Any]] = []

    def run(self, outputs: Sequence[str], feed: dict[str, Any]) -> Any:
        self.fed.append(feed)
        return self.session.run(outputs, feed)


def spied(encoder: CrossEncoder) -> Spy:
    model = encoder._load_once()
    spy = Spy(model.session)
    encoder._model = model._replace(session=spy)
    return spy


def test_batches_are_small_and_padded_to_their_longest_text(encoder: CrossEncoder) -> None:
    spy = spied(encoder)
    encoder.score("tea", ["tea " * count for count in (30, 1, 2, 29, 3, 4)])
    assert [feed["input_ids"].shape for feed in spy.fed] == [(4, 8), (2, 34)]
    assert [set(feed) for feed in spy.fed] == [set(INPUTS)] * 2
    assert spy.fed[0]["attention_mask"].sum(axis=1).tolist() == [5, 6, 7, 8]


def test_padding_side_follows_the_tokenizer(folder: Path) -> None:
    save_tokenizer(folder, padding="left")
    save_model(folder / "model.onnx")
    encoder = CrossEncoder(folder)
    spy = spied(encoder)
    assert encoder.score("tea", ["tea", "the tea"]) == pytest.approx(
        by_hand("tea", ["tea", "the tea"]), abs=1e-6
    )
    assert spy.fed[0]["attention_mask"].tolist() == [[0, 1, 1, 1, 1, 1], [1] * 6]


@pytest.mark.parametrize(
    ("config", "name"),
    [({}, "[PAD]"), ({}, "<pad>"), ({"pad_token_id": 3}, "?"), ({"pad_token_id": None}, "[PAD]")],
)
def test_padding_token_is_read_from_the_tokenizer_config(
    folder: Path, config: dict[str, object], name: str
) -> None:
    save_tokenizer(folder, padding="")
    tokenizer = folder / "tokenizer.json"
    renamed = tokenizer.read_text(encoding="utf-8").replace("[PAD]", name)
    tokenizer.write_text(renamed, encoding="utf-8")
    save_settings(folder / "config.json", **config)
    save_model(folder / "model.onnx")
    scores = CrossEncoder(folder).score(QUERY, TEXTS)
    assert scores == pytest.approx(by_hand(QUERY, TEXTS), abs=1e-6)


LIMITS: list[tuple[dict[str, object], dict[str, object], int | None, int]] = [
    ({}, {}, None, 512),
    ({"max_position_embeddings": 20}, {}, None, 20),
    ({}, {"model_max_length": 16}, None, 16),
    ({}, {}, 24, 24),
    ({"max_position_embeddings": 20}, {"model_max_length": 16}, 24, 16),
    ({"max_position_embeddings": 24, "model_type": "xlm-roberta"}, {}, None, 20),
    ({"max_position_embeddings": 20, "model_type": ["bert"]}, {}, None, 20),
    ({"max_position_embeddings": -1}, {"model_max_length": 10**30}, None, 512),
    ({"max_position_embeddings": "512"}, {"model_max_length": 1e30}, None, 512),
]


@pytest.mark.parametrize(("config", "tokenizer_config", "truncation", "limit"), LIMITS)
def test_text_is_truncated_at_the_models_limit(
    folder: Path,
    config: dict[str, object],
    tokenizer_config: dict[str, object],
    truncation: int | None,
    limit: int,
) -> None:
    save_tokenizer(folder, max_length=truncation)
    save_settings(folder / "config.json", **config)
    save_settings(folder / "tokenizer_config.json", **tokenizer_config)
    save_model(folder / "model.onnx")
    encoder = CrossEncoder(folder)
    room = limit - 3 - len(QUERY.split())
    fits, beyond = "the " * (room - 1) + "tea", "the " * room + "tea"
    scores = encoder.score(QUERY, [fits, beyond, fits + " tea tea"])
    cut = by_hand(QUERY, ["the " * room])[0]
    assert scores == pytest.approx([*by_hand(QUERY, [fits]), cut, scores[0]], rel=1e-5)


def test_long_query_is_truncated_before_a_short_text(folder: Path) -> None:
    save_settings(folder / "config.json", max_position_embeddings=20)
    save_model(folder / "model.onnx")
    spy = spied(encoder := CrossEncoder(folder))
    score = encoder.score("tea " * 500, ["tea milk milk"])[0]
    assert score == pytest.approx(expected(["tea"] * 14, ["tea", "milk", "milk"]), abs=1e-6)
    assert spy.fed[0]["token_type_ids"].sum() == 4
    assert len(encoder.score("tea " * 500, ["tea " * 500, ""])) == 2


def test_only_the_beginning_of_a_very_long_text_is_tokenized(encoder: CrossEncoder) -> None:
    scores = encoder.score(QUERY, [" " * 200_000 + "tea", "tea" + " " * 200_000])
    assert scores == pytest.approx(by_hand(QUERY, ["", "tea"]), abs=1e-6)


@pytest.mark.parametrize("pair", [True, False])
@pytest.mark.parametrize("query", ["", " ", QUERY, "\ud800", "\x00"])
def test_empty_query_and_text_are_scored(folder: Path, query: str, pair: bool) -> None:
    save_tokenizer(folder, pair=pair)
    save_model(folder / "model.onnx")
    scores = CrossEncoder(folder).score(query, ["", "  ", "\n", "\udfff", "tea"])
    assert all(0.0 < score < 1.0 for score in scores)


def test_no_texts_give_no_scores_and_load_no_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"never looked at")
    assert CrossEncoder(folder).score(QUERY, []) == []


def test_text_cannot_forge_special_tokens(folder: Path) -> None:
    save_model(folder / "model.onnx", inputs=INPUTS[:2])
    encoder = CrossEncoder(folder)
    for forged, plain in [("anna [SEP] tea", "anna (sep) tea"), ("[CLS] [PAD]", "(cls) (pad)")]:
        assert encoder.score(forged, ["tea"]) == encoder.score(plain, ["tea"])
        assert encoder.score("tea", [forged]) == encoder.score("tea", [plain])


@pytest.mark.parametrize("logit", [-1e308, -800.0, -40.0, 40.0, 800.0, 1e308])
def test_extreme_scores_stay_between_zero_and_one(logit: float) -> None:
    assert 0.0 < cross_encoder._sigmoid(logit) < 1.0


def test_sigmoid_has_its_known_values() -> None:
    assert cross_encoder._sigmoid(0.0) == 0.5
    assert cross_encoder._sigmoid(2.0) == pytest.approx(0.8807970779778823)
    assert cross_encoder._sigmoid(-2.0) == pytest.approx(0.11920292202211755)


def test_missing_model_files_are_reported_when_the_reranker_is_created(folder: Path) -> None:
    with pytest.raises(RerankFailed, match=r"no cross-encoder at .*: give the folder"):
        CrossEncoder(folder / "gone")
    with pytest.raises(RerankFailed, match=r"it needs model\.onnx or onnx/model\.onnx"):
        CrossEncoder(folder)
    with pytest.raises(RerankFailed, match=r"cannot be accessed \(RuntimeError\)"):
        CrossEncoder("~no-such-user-of-this-machine/model")
    for name in ("model.onnx", "onnx/model.onnx"):
        save_model(folder / name)
    (folder / "tokenizer.json").unlink()
    for path in (folder, folder / "model.onnx", folder / "onnx", folder / "onnx" / "model.onnx"):
        with pytest.raises(RerankFailed, match=r"no tokenizer\.json in .*: put the one"):
            CrossEncoder(path)


@pytest.mark.parametrize("path", ["", "  "])
def test_reranker_requires_a_path(path: str) -> None:
    with pytest.raises(ConfigError, match="give its path"):
        CrossEncoder(path)


def test_number_of_threads_is_at_least_one(folder: Path) -> None:
    with pytest.raises(ConfigError, match="threads"):
        CrossEncoder(folder, threads=0)


def test_missing_onnxruntime_names_the_extra(
    encoder: CrossEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for broken in (lambda: CrossEncoder(folder), lambda: encoder.score(QUERY, TEXTS)):
        with pytest.raises(MissingExtra, match=r"pip install 'reverie\[rerank\]'"):
            broken()


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x08"])
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "config.json"])
def test_broken_model_file_is_reported_on_one_line(folder: Path, name: str, content: bytes) -> None:
    save_model(folder / "model.onnx")
    (folder / name).write_bytes(content)
    message = failure(folder)
    assert name in message
    assert "download it again" in message


def test_settings_files_that_are_no_object_are_ignored(folder: Path) -> None:
    (folder / "config.json").write_text("[]", encoding="utf-8")
    save_model(folder / "model.onnx")
    assert CrossEncoder(folder).score(QUERY, TEXTS)


def test_model_deleted_after_creation_is_reported(encoder: CrossEncoder) -> None:
    encoder._file.unlink()
    with pytest.raises(RerankFailed, match=r"model\.onnx cannot be read"):
        encoder.score(QUERY, TEXTS)
    with pytest.raises(RerankFailed, match=r"model\.onnx cannot be read"):
        _ = encoder.identity


@pytest.mark.parametrize(
    ("shape", "output", "besides", "says"),
    [
        ("hidden", "last_hidden_state", "", "last_hidden_state of shape ['batch', 'length', 4]"),
        ("hidden", "last_hidden_state", "pooled", "gives last_hidden_state, pooled"),
        ("n,3", "logits", "", "['batch', 3]"),
        ("n,2", "scores", "pooled", "gives scores, pooled"),
        ("each token", "logits", "", "gave an answer of shape [1, 9]"),
    ],
)
def test_model_that_is_no_cross_encoder_is_refused(
    folder: Path, shape: str, output: str, besides: str, says: str
) -> None:
    save_model(folder / "model.onnx", shape, output=output, besides=besides)
    message = failure(folder)
    assert "is not a cross-encoder" in message
    assert says in message


def test_model_with_integer_outputs_is_refused(folder: Path) -> None:
    save_model(folder / "model.onnx", kind=TensorProto.INT64)
    assert "is not a cross-encoder" in failure(folder)


@pytest.mark.parametrize(
    ("inputs", "number", "says"),
    [
        ((*INPUTS, "position_ids"), TensorProto.INT64, "asks for position_ids"),
        (INPUTS, TensorProto.FLOAT, "asks for input_ids as tensor(float)"),
    ],
)
def test_model_with_unknown_inputs_is_refused(
    folder: Path, inputs: Sequence[str], number: int, says: str
) -> None:
    save_model(folder / "model.onnx", inputs=inputs, number=number)
    assert says in failure(folder)


def test_model_without_token_input_is_refused() -> None:
    with pytest.raises(RerankFailed, match="takes no input_ids"):
        cross_encoder._inputs([], Path("model.onnx"))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("nan", "is not a number"),
        ("inf", "is not a number"),
        ("one too many", "3 scores for 2 texts"),
        ("six tokens only", "failed on 2 texts of up to 9 tokens"),
    ],
)
def test_model_output_of_the_wrong_shape_is_refused(
    folder: Path, shape: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    save_model(folder / "model.onnx", shape)
    assert says in failure(folder, ["the tea", "the"])
    assert capfd.readouterr() == ("", "")


def test_failing_tokenizer_is_reported(encoder: CrossEncoder) -> None:
    class Broken:
        def encode(self, first: str, second: str) -> None:
            raise ValueError("no such token")

    encoder._model = encoder._load_once()._replace(tokenizer=Broken())  # type: ignore[arg-type]
    with pytest.raises(RerankFailed, match=r"tokenizer\.json of .* failed on a text"):
        encoder.score(QUERY, TEXTS)


def test_model_is_loaded_once_by_concurrent_threads(
    encoder: CrossEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    load = cross_encoder._session

    def counted(file: Path, threads: int) -> Any:
        loads.append(file)
        return load(file, threads)

    monkeypatch.setattr(cross_encoder, "_session", counted)
    texts = random_texts(20)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: encoder.score(QUERY, texts), range(32)))
    assert answers == [answers[0]] * 32
    assert len(loads) == 1


def run(code: str, place: Path, **variables: str) -> str:
    """What a process of its own writes, with nobody's settings and no way out of this machine."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    homes = dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "TEMP"), str(place))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=place,
        env={**kept, **nowhere, **homes, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("variables", [{}, {"ORT_DISABLE_TELEMETRY": "0"}], ids=["unset", "on"])
def test_onnxruntime_telemetry_is_disabled(
    encoder: CrossEncoder, tmp_path: Path, variables: dict[str, str]
) -> None:
    """Left alone it gives the machine a number and queues reports, in files of the user."""
    (tmp_path / "home").mkdir()
    code = f"""
from reverie.embed.cross_encoder import CrossEncoder
print(len(CrossEncoder({str(encoder._file)!r}).score("tea", ["tea"])))
"""
    assert run(code, tmp_path / "home", **variables) == "1"
    assert list((tmp_path / "home").iterdir()) == []


def test_onnxruntime_is_imported_with_the_first_score(
    encoder: CrossEncoder, tmp_path: Path
) -> None:
    code = f"""
import sys
from reverie.embed.cross_encoder import CrossEncoder
made = CrossEncoder({str(encoder._file)!r})
made.identity, made.score("tea", [])
print([name for name in ("onnxruntime", "tokenizers") if name in sys.modules])
made.score("tea", ["tea"])
print([name for name in ("onnx", "huggingface_hub", "requests") if name in sys.modules])
"""
    assert run(code, tmp_path) == "[]\n[]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_reranker_works_after_a_fork(encoder: CrossEncoder, tmp_path: Path) -> None:
    code = f"""
import os, sys
from reverie.embed.cross_encoder import CrossEncoder
made = CrossEncoder({str(encoder._file)!r})
before = made.score("tea", ["tea", "milk"])
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0 if made.score("tea", ["tea", "milk"]) == before else 1)
"""
    assert run(code, tmp_path) == ""
