"""Peers that are missing or fail are reported as such; their output is not taken as an answer."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench.peers import environments
from bench.peers.driver import Driver
from bench.peers.environments import Recipe, Unavailable


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    driver = Driver(Path(sys.executable), "tests.bench.fake_peer", tmp_path / "peer")
    texts, vectors = tmp_path / "texts.json", tmp_path / "vectors.npy"
    texts.write_text(json.dumps(["the first text", "another"]), encoding="utf-8")
    np.save(vectors, np.zeros((2, 256), np.float32))
    driver.fill("small", texts, vectors)
    yield driver
    driver.close()


def test_peer_process_answers_requests(driver: Driver) -> None:
    added = driver.add("small", ["a third text", "a fourth text"])
    searched, found = driver.search("small", ["text", "another"])
    assert found == [["the first text", "a third text", "a fourth text"], ["another"]]
    assert min(added.cpu, searched.cpu) > 0


def test_failing_peer_is_unavailable_with_its_own_reason(driver: Driver) -> None:
    for _ in range(2):
        with pytest.raises(Unavailable, match="it cannot be searched"):
            driver.search("small", ["fail"])


def test_missing_python_version_for_a_peer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_pythons", list)
    recipe = Recipe("a peer", "nowhere", ("nothing",), loads_extensions=True)
    with pytest.raises(Unavailable, match="whose sqlite3 loads extensions is on PATH"):
        environments.python_of(recipe)


def test_peer_package_that_cannot_be_installed_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failing = tmp_path / "python"
    failing.write_text(
        f'#!/bin/sh\ncase "$1" in -c) exec {sys.executable} "$@";; esac\n'
        "echo 'ERROR: nothing of that name' >&2; exit 1\n",
        encoding="utf-8",
    )
    failing.chmod(0o755)
    monkeypatch.setattr(environments, "_pythons", lambda: [str(failing)])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Unavailable, match="failed: ERROR: nothing of that name"):
        environments.python_of(Recipe("a peer", "bench.nowhere", ("nothing",)))
