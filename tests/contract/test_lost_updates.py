"""Two writers that have read the same version: one succeeds, the other gets VersionConflict."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from reverie import Store, VersionConflict
from tests.conftest import PROVE, Stores
from tests.figures import figure

PAIRS = 500 if PROVE else 25


def test_concurrent_revisions_of_one_version_have_exactly_one_winner(stores: Stores) -> None:
    writers: tuple[Store, Store] = (stores.open(embedder="none"), stores.open(embedder="none"))
    memory = writers[0].space("ana").remember("the first version")
    meeting = threading.Barrier(2)
    overwritten = 0

    def revise(who: int, number: int) -> str | None:
        space = writers[who].space("ana")
        seen = space.get(memory.id)
        text = f"writer {who} wrote {number}"
        # Both have read before either writes.
        meeting.wait()
        try:
            space.revise(memory.id, text, expected_version=seen.version)
        except VersionConflict:
            return None
        return text

    with ThreadPoolExecutor(2) as pool:
        for number in range(PAIRS):
            results = list(pool.map(revise, range(2), [number, number]))
            won = [text for text in results if text is not None]
            history = writers[0].space("ana").history(memory.id)
            figure("pairs", 1)
            overwritten += len(won) - 1
            assert len(won) == 1, results
            assert history[-1].content == won[0]
            assert history[-1].version == number + 2
    figure("silent overwrites", overwritten)
    assert writers[0].verify().problems == ()
