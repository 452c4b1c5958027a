"""Report the state of a store to its operator: spaces, pending work, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reverie.engine import log
from reverie.maintenance import damage
from reverie.maintenance.verify import check_files
from reverie.model import SpaceInfo
from reverie.protocols import Owner, Transaction
from reverie.write import embeddings
from reverie.write.recall_log import DAY_MS
from reverie.write.runtime import Runtime

# The most names in one SQL statement.
MAX_NAMES = 500
CLOCK_TOLERANCE_MS = 60_000


def spaces(runtime: Runtime) -> list[SpaceInfo]:
    """List the spaces of the store, by name."""
    result = []
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        for space, name in damage.list_spaces(tx):
            users = damage.list_users(tx, space)
            counts = tx.one(
                "SELECT SUM(facts), SUM(notes) FROM statistics WHERE space = ?", (space,)
            )
            position = log.last_position(tx, Owner(space, log.SHARED_OWNER))
            facts, notes = counts or (0, 0)
            result.append(
                SpaceInfo(name, tuple(sorted(users)), int(facts or 0), int(notes or 0), position)
            )
    return result


def positions(runtime: Runtime, names: Sequence[str]) -> dict[str, int]:
    """Return the last log position of each of these spaces that exists."""
    result: dict[str, int] = {}
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        for start in range(0, len(names), MAX_NAMES):
            part = names[start : start + MAX_NAMES]
            marks = ", ".join("?" for _ in part)
            result.update(
                tx.all(
                    "SELECT spaces.name, counters.position FROM spaces "
                    "JOIN counters ON counters.space = spaces.space "
                    f"WHERE spaces.name IN ({marks})",
                    tuple(part),
                )
            )
    return result


def doctor(runtime: Runtime) -> dict[str, Any]:
    """Return versions, settings, pending work and problems of the store, by their names."""
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        generation = embeddings.read(tx)
        waiting = tx.one("SELECT COUNT(*) FROM unembedded")
        (failing,) = tx.one(
            "SELECT COUNT(*) FROM jobs WHERE state <> 'parked' AND error IS NOT NULL"
        ) or (0,)
        states: dict[str, int] = dict(tx.all("SELECT state, COUNT(*) FROM jobs GROUP BY state"))
        ahead = _ahead_of_clock(tx, runtime.clock.now())
    embedder = runtime.embedder
    problems = [*check_files(runtime), *damage.find_store_damage(runtime)]
    if embedder and generation and generation.identity != embedder.identity:
        problems.append(
            f"the vectors come from {generation.identity}, the embedder is {embedder.identity}: "
            "run 'reverie reembed'"
        )
    problems += [
        f"the recorded time of space {name!r} is {_duration(ms)} ahead of this clock: set the "
        "clock if it is wrong; else it was wrong once, and what is written until then is recorded "
        "as of that time (order and positions are right)"
        for name, ms in ahead.items()
    ]
    if failing:
        problems.append(f"jobs that failed and will be tried again: {failing}")
    if states.get("parked"):
        problems.append(f"parked jobs: {states['parked']}; 'reverie jobs list' shows why")
    return {
        **runtime.engine.describe(),
        "embedder": embedder.identity if embedder else "none",
        "vectors": generation.identity if generation else "none yet",
        "vectors waiting": waiting[0] if waiting else 0,
        "model": runtime.settings.model or "none",
        "learning": runtime.settings.learn_mode,
        "summaries": runtime.settings.summary_mode,
        "jobs": {name: states.get(name, 0) for name in ("ready", "running", "parked")},
        "spaces": len(spaces(runtime)),
        "ahead of the clock": ahead,
        "problems": problems,
    }


def _ahead_of_clock(tx: Transaction, now: int) -> dict[str, int]:
    """Return how many milliseconds the recorded time of each space is ahead of the clock.

    Recorded times never run backwards, so they stay ahead when a clock was wrong once. Up to a
    minute is ignored, since the clocks of several servers always differ a little.
    """
    rows = tx.all(
        "SELECT s.name, c.recorded_at FROM counters c JOIN spaces s ON s.space = c.space "
        "WHERE c.recorded_at > ?",
        (now + CLOCK_TOLERANCE_MS,),
    )
    return {name: recorded_at - now for name, recorded_at in sorted(rows)}


def _duration(ms: int) -> str:
    for unit, size in (("days", DAY_MS), ("hours", DAY_MS // 24), ("minutes", DAY_MS // 1440)):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms // 1000} seconds"
