"""A reranker: a cross-encoder in ONNX format that scores how well each text answers a query.

tokenizers and onnxruntime raise errors that share no class but Exception; all are caught, and mean
that a file is not what it should be.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import file_digest, sha256
from importlib.util import find_spec
from math import exp, nextafter
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reverie.errors import ConfigError, MissingExtra, RerankFailed
from reverie.text.normalize import replace_surrogates

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

MODEL_FILES = ("model.onnx", "model_quantized.onnx", "model_int8.onnx")
# On one thread larger batches are slower, because their padding is computed too.
BATCH_SIZE = 4
MAX_TOKENS = 512
"""The limit of a model whose files do not name one."""
CHARS_PER_TOKEN = 40

_SANE_TOKENS = range(8, 100_000)  # "no limit" is written as 10^30, or as -1
# These number positions from after the padding token, so that the first ones are never used.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet"}
_INTEGER_TYPES: dict[str, type[np.integer[Any]]] = {
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
_FLOATS = {"tensor(float)", "tensor(float16)", "tensor(double)"}
_MIN_SCORE, _MAX_SCORE = sys.float_info.min, nextafter(1.0, 0.0)


class CrossEncoder:
    """Scores texts with an ONNX model that is given a query and a text together.

    The constructor finds the files by a folder or an ``.onnx`` file; the first score loads them.
    It runs on the CPU, can be shared by threads, and the score of a text does not depend on the
    texts it is scored with.
    """

    def __init__(self, path: str | Path, *, threads: int = 1) -> None:
        if not str(path).strip():
            raise ConfigError("a cross-encoder needs the folder it was saved to: give its path")
        if threads < 1:
            raise ConfigError(f"threads must be 1 or more, not {threads}")
        if find_spec("onnxruntime") is None:
            raise MissingExtra("a cross-encoder", "rerank")
        try:
            self._file, self._folder = _find_files(Path(path).expanduser().absolute())
        except (OSError, RuntimeError) as error:
            raise RerankFailed(
                f"{path} cannot be accessed ({type(error).__name__}): check the path and rights"
            ) from error
        self._threads = threads
        self._lock = Lock()
        self._model: _Model | None = None

    def __repr__(self) -> str:
        return f"CrossEncoder({str(self._file)!r})"

    @cached_property
    def identity(self) -> str:
        """``onnx:folder:hash8``, with a hash of the model's bytes."""
        digest = sha256()
        try:
            for file in (self._file, *_find_external_weights(self._file)):
                with file.open("rb") as opened:
                    file_digest(opened, lambda: digest)
        except OSError as error:
            raise _unreadable_file(self._file, error) from error
        return f"onnx:{self._folder.resolve().name}:{digest.hexdigest()[:8]}"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """The score of each text for the query, in (0, 1), comparable between queries."""
        if not texts:
            return []
        model = self._load_once()
        pairs = [model.encode(query, text) for text in texts]
        order = sorted(range(len(pairs)), key=lambda at: len(pairs[at]))
        scores = [0.0] * len(pairs)
        for start in range(0, len(order), model.batch):
            batch = order[start : start + model.batch]
            logits = model.logits([pairs[at] for at in batch])
            for at, logit in zip(batch, logits, strict=True):
                scores[at] = _sigmoid(logit)
        return scores

    def _load_once(self) -> _Model:
        with self._lock:
            if self._model is None:
                self._model = _load(self._file, self._folder, self._threads)
            return self._model


class _Model(NamedTuple):
    file: Path
    tokenizer: Tokenizer
    padding: Mapping[str, Any]
    max_chars: int
    session: Any
    inputs: Mapping[str, type[np.integer[Any]]]
    output: str
    batch: int

    def encode(self, query: str, text: str) -> Encoding:
        first, second = (replace_surrogates(part[: self.max_chars]) for part in (query, text))
        try:
            return self.tokenizer.encode(first, second)
        except Exception as error:
            raise RerankFailed(
                f"the tokenizer.json of {self.file} failed on a text ({type(error).__name__}): "
                "download it again"
            ) from error

    def logits(self, pairs: Sequence[Encoding]) -> list[float]:
        length = max(1, *(len(pair) for pair in pairs))
        for pair in pairs:
            pair.pad(length, **self.padding)
        columns = {
            "input_ids": [pair.ids for pair in pairs],
            "attention_mask": [pair.attention_mask for pair in pairs],
            "token_type_ids": [pair.type_ids for pair in pairs],
        }
        feed = {name: np.array(columns[name], kind) for name, kind in self.inputs.items()}
        try:
            (answer,) = self.session.run([self.output], feed)
        except Exception as error:
            raise RerankFailed(
                f"{self.file} failed on {len(pairs)} texts of up to {length} tokens "
                f"({type(error).__name__}): export it with a free batch and sequence length"
            ) from error
        return _to_logits(np.asarray(answer, np.float64), len(pairs), self.file)


def _find_files(path: Path) -> tuple[Path, Path]:
    """The model file, and the folder with its tokenizer."""
    if path.is_dir():
        places = [folder / name for name in MODEL_FILES for folder in (path, path / "onnx")]
        file = next((place for place in places if place.is_file()), None)
        if file is None:
            raise RerankFailed(
                f"{path} holds no cross-encoder: it needs model.onnx or onnx/model.onnx; "
                "give a file of another name by its own path"
            )
    elif path.is_file():
        file = path
    else:
        raise RerankFailed(
            f"there is no cross-encoder at {path}: "
            "give the folder that holds model.onnx and tokenizer.json"
        )
    folders = (file.parent, file.parent.parent) if file.parent.name == "onnx" else (file.parent,)
    for folder in folders:
        if (folder / "tokenizer.json").is_file():
            return file, folder
    raise RerankFailed(
        f"there is no tokenizer.json in {folders[-1]}: put the one beside it that {file.name} "
        "was published with"
    )


def _find_external_weights(file: Path) -> list[Path]:
    """The files with the weights of a large model that are not in the model file."""
    candidates = (file.with_name(file.name + ending) for ending in ("_data", ".data"))
    return [path for path in candidates if path.is_file()]


def _load(file: Path, folder: Path, threads: int) -> _Model:
    from tokenizers import Tokenizer

    config = _read_json(folder / "config.json")
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        raise _unreadable_file(folder / "tokenizer.json", error) from error
    padding = _padding(tokenizer, config)
    tokens = _max_tokens(tokenizer, config, _read_json(folder / "tokenizer_config.json"), padding)
    tokenizer.no_padding()
    # Truncates the longer of the two: the text, unless the query takes more than half.
    tokenizer.enable_truncation(tokens, strategy="longest_first")
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    batch = 1 if _scales_by_batch(file) else BATCH_SIZE
    session = _session(file, threads)
    return _Model(
        file,
        tokenizer,
        padding,
        tokens * CHARS_PER_TOKEN,
        session,
        _inputs(session.get_inputs(), file),
        _output(session.get_outputs(), file),
        batch,
    )


def _session(file: Path, threads: int) -> Any:
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # it raises what it would log to stderr
    try:
        return runtime.InferenceSession(
            str(file), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise _unreadable_file(file, error) from error


def _runtime() -> Any:
    """Import onnxruntime with its telemetry disabled, which some builds send by default.

    The variable disables all of it, but only before the first import. The call is for processes
    that imported it before, and for builds that ignore the variable.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("a cross-encoder", "rerank") from error
    onnxruntime.disable_telemetry_events()
    return onnxruntime


def _read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file of the model; empty if the file is missing."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable_file(file, error) from error
    return content if isinstance(content, dict) else {}


def _padding(tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, Any]:
    own_padding = tokenizer.padding or {}
    candidates = (
        own_padding.get("pad_id"),
        config.get("pad_token_id"),
        tokenizer.token_to_id("[PAD]"),
        tokenizer.token_to_id("<pad>"),
    )
    return {
        "direction": own_padding.get("direction", "right"),
        "pad_id": next((n for n in candidates if isinstance(n, int) and n >= 0), 0),
        "pad_type_id": own_padding.get("pad_type_id", 0),
    }


def _max_tokens(
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    padding: Mapping[str, Any],
) -> int:
    """The smallest limit that the model's files name."""
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and str(config.get("model_type")) in _OFFSET_POSITIONS:
        positions -= padding["pad_id"] + 1
    limits = (
        (tokenizer.truncation or {}).get("max_length"),
        tokenizer_config.get("model_max_length"),
        positions,
    )
    sane = (value for value in limits if isinstance(value, int) and value in _SANE_TOKENS)
    return min(sane, default=MAX_TOKENS)


def _inputs(nodes: Iterable[Any], file: Path) -> dict[str, type[np.integer[Any]]]:
    types = {}
    for node in nodes:
        is_expected = node.name in {"input_ids", "attention_mask", "token_type_ids"}
        if not is_expected or node.type not in _INTEGER_TYPES:
            raise _not_cross_encoder(file, f"asks for {node.name} as {node.type}")
        types[node.name] = _INTEGER_TYPES[node.type]
    if "input_ids" not in types:
        raise _not_cross_encoder(file, "takes no input_ids")
    return types


def _output(nodes: Sequence[Any], file: Path) -> str:
    """The output with the scores: the one named logits, else the only one."""
    chosen = next((node for node in nodes if node.name == "logits"), None)
    if chosen is None and len(nodes) == 1:
        chosen = nodes[0]
    if chosen is None:
        raise _not_cross_encoder(file, f"gives {', '.join(node.name for node in nodes)}")
    shape = chosen.shape or ["?"]  # a graph may leave it out
    wide = len(shape) > 1 and isinstance(shape[-1], int) and shape[-1] not in {1, 2}
    if len(shape) > 2 or wide or chosen.type not in _FLOATS:
        raise _not_cross_encoder(file, f"gives {chosen.name} of shape {shape} as {chosen.type}")
    return str(chosen.name)


def _scales_by_batch(file: Path) -> bool:
    """Whether activations are quantised with one scale for a whole batch.

    Then the score of a text would depend much on the other texts of its batch.
    """
    try:
        with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(b"DynamicQuantize") >= 0
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise _unreadable_file(file, error) from error


def _to_logits(answer: NDArray[np.float64], count: int, file: Path) -> list[float]:
    """One logit for each text; with two classes, the difference of the second to the first."""
    if answer.ndim not in {1, 2} or (answer.ndim == 2 and answer.shape[1] not in {1, 2}):
        raise _not_cross_encoder(file, f"gave an answer of shape {list(answer.shape)}")
    if answer.shape[0] != count:
        raise RerankFailed(
            f"{file} gave {answer.shape[0]} scores for {count} texts: use another export of it"
        )
    if not np.isfinite(answer).all():
        raise RerankFailed(f"{file} gave a score that is not a number: use another export of it")
    if answer.ndim == 2:
        answer = answer[:, 1] - answer[:, 0] if answer.shape[1] == 2 else answer[:, 0]
    logits: list[float] = answer.tolist()
    return logits


def _sigmoid(logit: float) -> float:
    small = exp(-abs(logit))
    probability = 1.0 / (1.0 + small) if logit >= 0 else small / (1.0 + small)
    return min(max(probability, _MIN_SCORE), _MAX_SCORE)


def _not_cross_encoder(file: Path, what: str) -> RerankFailed:
    return RerankFailed(
        f"{file} is not a cross-encoder: it {what}: "
        "use a model exported for text classification with one or two logits"
    )


def _unreadable_file(file: Path, error: Exception) -> RerankFailed:
    return RerankFailed(f"{file} cannot be read ({type(error).__name__}): download it again")
