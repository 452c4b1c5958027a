"""Parsers keep their promises for any bytes: the seeds, mutations of them, and guided fuzzing.

``REVERIE_FUZZ_INPUTS`` is how many inputs coverage-guided fuzzing gives to each parser.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.figures import SEED, figure
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
INPUTS = int(os.environ.get("REVERIE_FUZZ_INPUTS", "0"))
MUTATIONS = 150
# Inputs that broke a promise once.
FOUND = Path(__file__).parent / "found"


def mutated(chance: random.Random, raw: bytes) -> bytes:
    """Change a few bytes: take out, put in, repeat, or replace."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at, size = chance.randrange(len(data) + 1), chance.choice([1, 1, 2, 8])
        match chance.randrange(4):
            case 0:
                del data[at : at + size]
            case 1:
                data[at:at] = chance.randbytes(size)
            case 2:
                data[at:at] = data[at : at + size] * chance.choice([1, 2, 40])
            case _:
                data[at : at + size] = bytes(
                    chance.choices(b"{}[]\"':,\\\n\r\t-0 \x00\xff", k=size)
                )
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_parser_keeps_its_promises_for_seeds_and_mutations(name: str) -> None:
    target, chance = TARGETS[name], random.Random(SEED)
    for raw in target.seeds:
        target.run(raw)
        for _ in range(MUTATIONS // len(target.seeds)):
            target.run(mutated(chance, raw))
            figure("mutated inputs", 1)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*/*")), ids=lambda path: path.name)
def test_parser_keeps_its_promises_for_inputs_found_earlier(path: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes())


@pytest.mark.skipif(not INPUTS, reason="runs with REVERIE_FUZZ_INPUTS")
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris")
@pytest.mark.parametrize("name", TARGETS)
def test_parser_keeps_its_promises_under_guided_fuzzing(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.guided"),
            *(name, str(INPUTS), str(SEED), str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    ran = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    figure("inputs", int(ran[1]) if ran else 0)
    figure("parsers", 1)
    broken = sorted(tmp_path.glob("crash-*")) + sorted(tmp_path.glob("timeout-*"))
    figure("untyped errors or broken promises", len(broken))
    inputs = {path.name: path.read_bytes() for path in broken}
    assert not done.returncode and not broken, f"{inputs}\n{done.stderr[-3000:]}"
