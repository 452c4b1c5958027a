"""A real ONNX cross-encoder, small enough to build in a test, whose scores can be worked out.

Its logit is the number of the text's tokens that occur in the query, less a bit for every token
that it attends to, so that padding that is attended to shows; padding of the wrong id ruins it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("who", "likes", "green", "tea", "milk", "anna", "ben", "the", "and", "is", "in", "lisbon")
SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]")
PAD = SPECIAL.index("[PAD]")
EACH = 0.03125  # what a token that is attended to costs
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def expected(query: Sequence[str], text: Sequence[str]) -> float:
    """The score by hand, for words of the vocabulary."""
    shared = sum(word in query for word in text)
    logit = shared - EACH * (len(query) + len(text) + 3)
    return 1.0 / (1.0 + exp(-logit))


def save_tokenizer(
    folder: Path, *, pair: bool = True, max_length: int | None = None, padding: str = "right"
) -> None:
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(list(SPECIAL))
    if pair:
        tokenizer.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
        )
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    if padding:  # as downloads often are: to a length that is not ours
        tokenizer.enable_padding(direction=padding, pad_id=PAD, pad_token="[PAD]", length=64)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def save_settings(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(settings), encoding="utf-8")


def save_model(
    file: Path,
    shape: str = "n,1",
    *,
    inputs: Sequence[str] = INPUTS,
    output: str = "logits",
    number: int = TensorProto.INT64,
    kind: int = TensorProto.FLOAT,
    besides: str = "",
) -> None:
    """Write the graph. ``shape`` names what it answers with, usable or not."""
    graph = _Graph()
    logit = graph.logit("token_type_ids" in inputs)
    answer, declared = graph.answers(shape, logit)
    graph.add("Cast", answer, to=kind, name=output)
    outputs = [helper.make_tensor_value_info(output, kind, declared)]
    if besides:
        graph.add("Identity", logit, name=besides)
        outputs.append(helper.make_tensor_value_info(besides, TensorProto.FLOAT, ["batch"]))
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "tiny",
            [helper.make_tensor_value_info(name, number, ["batch", "length"]) for name in inputs],
            outputs,
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(made, str(file))


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def whole(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def real(self, value: float) -> str:
        return self._constant(np.array([value], np.float32))

    def _constant(self, value: np.typing.NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def logit(self, typed: bool) -> str:
        """Of shape (n,)."""
        ids = self.add("Cast", "input_ids", to=TensorProto.INT64)
        attended = self.add("Cast", "attention_mask", to=TensorProto.BOOL)
        if typed:
            second = self.add("Cast", "token_type_ids", to=TensorProto.BOOL)
        else:
            ends = self.add("Cast", self.add("Equal", ids, self.whole(2)), to=TensorProto.INT64)
            before = self.add("CumSum", ends, self.whole(1), exclusive=1)
            second = self.add("Greater", before, self.whole(0))
        word = self.add("And", self.add("Greater", ids, self.whole(2)), attended)
        in_text = self.add("And", word, second)
        in_query = self.add("And", word, self.add("Not", second))
        equal = self.add(
            "Equal",
            self.add("Unsqueeze", ids, self.whole(2)),
            self.add("Unsqueeze", ids, self.whole(1)),
        )
        met = self.add("And", equal, self.add("Unsqueeze", in_query, self.whole(1)))
        shared = self.add("And", self._any(met, axis=2), in_text)
        wrong = self.add(
            "And",
            self.add("Not", attended),
            self.add("Not", self.add("Equal", ids, self.whole(PAD))),
        )
        costs = self.add("Mul", self._count(attended), self.real(EACH))
        ruin = self.add("Mul", self._count(wrong), self.real(1000.0))
        return self.add("Sub", self.add("Sub", self._count(shared), costs), ruin)

    def _any(self, value: str, axis: int) -> str:
        number = self.add("Cast", value, to=TensorProto.FLOAT)
        most = self.add("ReduceMax", number, axes=[axis], keepdims=0)
        return self.add("Cast", most, to=TensorProto.BOOL)

    def _count(self, value: str) -> str:
        number = self.add("Cast", value, to=TensorProto.FLOAT)
        return self.add("ReduceSum", number, self.whole(1), keepdims=0)

    def answers(self, shape: str, logit: str) -> tuple[str, list[str | int] | None]:
        column = self.add("Unsqueeze", logit, self.whole(1))
        zero = self.add("Mul", column, self.real(0.0))
        if shape == "n":
            return logit, ["batch"]
        if shape == "n,1":
            return column, ["batch", 1]
        if shape == "undeclared":
            return column, None
        if shape == "n,2":  # the same distance between the two, from another ground
            ground = self.real(5.0)
            both = (self.add("Add", value, ground) for value in (zero, column))
            return self.add("Concat", *both, axis=1), ["batch", 2]
        if shape == "quantised":  # one scale for the whole batch
            parts = [f"{column} {part}" for part in ("small", "scale", "zero")]
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [column], parts))
            return self.add("DequantizeLinear", *parts), ["batch", 1]
        return self._unusable(shape, column, zero)

    def _unusable(self, shape: str, column: str, zero: str) -> tuple[str, list[str | int] | None]:
        if shape == "n,3":
            return self.add("Concat", zero, zero, column, axis=1), ["batch", 3]
        if shape == "hidden":
            wide = self.add("Concat", self.add("Shape", "input_ids"), self.whole(4), axis=0)
            deep = self.add("Unsqueeze", column, self.whole(2))
            return self.add("Expand", deep, wide), ["batch", "length", 4]
        if shape == "each token":
            return self.add("Expand", column, self.add("Shape", "input_ids")), ["batch", "length"]
        if shape == "nan":
            return self.add("Log", self.add("Sub", zero, self.real(1.0))), ["batch", 1]
        if shape == "inf":
            return self.add("Add", column, self.real(float("inf"))), ["batch", 1]
        if shape == "one too many":
            first = self.add("Gather", column, self.whole(0), axis=0)
            return self.add("Concat", column, first, axis=0), ["many", 1]
        assert shape == "six tokens only", shape
        fixed = self.add("Reshape", "input_ids", self.whole(-1, 6))
        real = self.add("Mul", self.add("Cast", fixed, to=TensorProto.FLOAT), self.real(0.0))
        none = self.add("ReduceSum", real, self.whole(1), keepdims=1)
        return self.add("Add", column, none), ["batch", 1]
