"""Commands where the libraries of extras are missing: one line says what to install."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import reverie
from reverie.vault import service
from tests.environments import EXTRAS, make_environment

Environment = Callable[[Iterable[str]], Path]
POSTGRES = "postgresql://127.0.0.1:1/none"
MODEL = {"REVERIE_MODEL": "openai:gpt-5-mini", "REVERIE_MODEL_API_KEY": "none"}
# A command, its settings, and the extra that it needs.
NEEDED: list[tuple[tuple[str, ...], Mapping[str, str], str]] = [
    (("serve",), {}, "server"),
    (("mcp",), {}, "mcp"),
    (("vault", "watch"), {}, "vault"),
    (("erase", "anything", "--yes", "--rewrite-history"), {}, "vault"),
    (("list",), {"REVERIE_URL": POSTGRES}, "postgres"),
    (("migrate", "--to", POSTGRES), {}, "postgres"),
    (("recall", "tea"), {"REVERIE_EMBEDDER": "openai:any", "OPENAI_API_KEY": "none"}, "remote"),
    (("recall", "tea"), {"REVERIE_EMBEDDER": "model2vec:."}, "model2vec"),
    (("recall", "tea"), {"REVERIE_RANKING": "reranked", "REVERIE_RERANKER": "."}, "rerank"),
    (("worker", "--once"), MODEL, "llm"),
]
# Runs each command without arguments in one process, and prints how each of them ended.
EACH_COMMAND = """
import json, sys
import click
from click.testing import CliRunner
from reverie.cli import app

def walk(group, context, path=()):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from walk(command, context, (*path, name))
        else:
            yield (*path, name)

more = {("worker",): ["--once"], ("serve",): ["--port", "none"], ("mcp",): ["--print-config"]}
ended = {}
for path in walk(app, click.Context(app, info_name="reverie")):
    result = CliRunner().invoke(app, [*path, *more.get(path, ())], input="")
    unexpected = [each for each in (result.exception,) if isinstance(each, ImportError)
                  and type(each).__name__ != "MissingExtra"]
    ended[" ".join(path)] = repr(unexpected[0]) if unexpected else ""
json.dump(ended, sys.stdout)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    made: dict[frozenset[str], Path] = {}

    def make(extras: Iterable[str]) -> Path:
        chosen = frozenset(extras)
        if chosen not in made:
            made[chosen] = make_environment(tmp_path_factory.mktemp("environment"), chosen)
        return made[chosen]

    yield make


def run(
    python: Path, folder: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("REVERIE_")}
    plain.pop("PYTHONPATH", None)
    return subprocess.run(
        [python, *arguments],
        env={**plain, "REVERIE_URL": str(folder / "reverie.db"), **settings},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("alone", [True, False], ids=["no extra", "all others"])
@pytest.mark.parametrize(
    ("command", "settings", "extra"), NEEDED, ids=[f"{c[0]}, {extra}" for c, _, extra in NEEDED]
)
def test_command_without_its_extra_says_what_to_install(
    environment: Environment,
    tmp_path: Path,
    command: tuple[str, ...],
    settings: Mapping[str, str],
    extra: str,
    alone: bool,
) -> None:
    python = environment(() if alone else set(EXTRAS) - {extra})
    with reverie.open(tmp_path / "reverie.db") as store:
        store.space("default").session("chat").append({"role": "user", "content": "I drink tea"})
        if "watch" in command:
            service.init(store, tmp_path / "vault")
    done = run(python, tmp_path, "-m", "reverie", *command, **settings)
    assert done.returncode == (1 if extra == "llm" else 2), done
    assert f"pip install 'reverie[{extra}]'" in done.stderr.splitlines()[0]
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "extras",
    [
        (),
        *(pytest.param((extra,), marks=pytest.mark.prove) for extra in EXTRAS),
        *(pytest.param((*{*EXTRAS} - {extra},), marks=pytest.mark.prove) for extra in EXTRAS),
    ],
    ids=["none", *EXTRAS, *(f"all but {extra}" for extra in EXTRAS)],
)
def test_no_command_fails_on_a_library_of_a_missing_extra(
    environment: Environment, tmp_path: Path, extras: tuple[str, ...]
) -> None:
    done = run(environment(extras), tmp_path, "-c", EACH_COMMAND)
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    assert len(ended) > 40 and not any(ended.values()), ended


def test_server_without_mcp_says_how_to_have_it(environment: Environment, tmp_path: Path) -> None:
    python = environment({"server"})
    command = [str(python), "-m", "reverie", "serve", "--port", "0"]
    own = {"REVERIE_URL": str(tmp_path / "reverie.db"), "REVERIE_TOKEN": "t" * 20}
    with subprocess.Popen(
        command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as server:
        try:
            assert server.stdout is not None
            printed = []
            for line in server.stdout:
                printed.append(line)
                if line.startswith("Stop with"):
                    break
        finally:
            server.terminate()
    (mcp,) = (line for line in printed if line.startswith("MCP"))
    assert "pip install 'reverie[mcp]'" in mcp
