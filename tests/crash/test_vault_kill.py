"""kill -9 during any work on a vault: store and vault end equal, and nothing is lost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_kill import Launcher
from tests.property.test_vault import VaultActions, take_conflicts_away
from tests.tiers import PROVE
from tests.vault.vaults import Kept, assert_equal

ROUNDS = max(int(os.environ.get("REVERIE_CRASH_ROUNDS", "80" if PROVE else "40")) // 10, 5)
# A vault serves this many rounds, then a new one: a full comparison must stay cheap.
ROUNDS_A_VAULT = 10
LONGEST_DELAY = 0.4


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = Launcher("tests.crash.vault_writer")
    yield made
    made.close()


def test_store_and_vault_are_equal_after_kills(tmp_path: Path, launcher: Launcher) -> None:
    chance = random.Random(0)
    for first in range(0, ROUNDS, ROUNDS_A_VAULT):
        folder = tmp_path / str(first)
        folder.mkdir()
        Kept(folder).close()
        written, erased = set[str](), set[str]()
        for number in range(first, min(first + ROUNDS_A_VAULT, ROUNDS)):
            launcher.start("live", folder, seed=number + 1)
            lines = launcher.until("act")
            time.sleep(chance.uniform(0, LONGEST_DELAY))
            lines += launcher.kill()
            take_in(lines, written, erased)
        settle(folder, written, erased)


def take_in(lines: list[dict[str, Any]], written: set[str], erased: set[str]) -> None:
    for line in lines:
        assert "error" not in line, line
        written.update([line["wrote"]] if "wrote" in line else [])
        erased.update(line.get("erased", []))


def settle(folder: Path, written: set[str], erased: set[str]) -> None:
    kept = Kept(folder, seed=-1)
    actions = VaultActions(kept, 0)
    kept.sync()
    kept.sync()
    take_conflicts_away(actions)
    assert_equal(kept)
    texts = [*actions.texts(), *actions.erased, *erased]
    lost = [text for text in sorted(written) if not any(text in each for each in texts)]
    assert not lost
    kept.close()
