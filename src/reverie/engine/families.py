"""Sessions that are one conversation: what was forked from what, however often.

The same question may be asked anew for years, each time as a fork of the first: nothing here takes
a statement for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reverie.engine import sessions
from reverie.engine.sessions import Spot
from reverie.protocols import Owner, Transaction

# A reply that was cut off is soon sent again.
MOST_FORKS = 20
# So many names in one statement.
MOST_NAMES = 1_000
MAX_CHAINS = 500


class End(NamedTuple):
    """Where a session ends: the position of its last event, and its chain."""

    position: int
    chain: str


def family(tx: Transaction, owner: Owner, session: str) -> dict[str, End]:
    """A session, what it was forked from and all forks of these, each with its end."""
    waiting = [stretch.session for stretch in sessions.lineage(tx, owner, session)]
    known: dict[str, End] = {}
    for name in waiting:
        found = sessions.find(tx, owner, name)
        known[name] = End(0, "") if found is None else End(found.position, found.chain)
    while waiting:
        part, waiting = waiting[:MOST_NAMES], waiting[MOST_NAMES:]
        rows = tx.all(
            "SELECT session, position, chain FROM sessions WHERE space = ? AND owner = ? "
            f"AND forked_session IN ({', '.join('?' * len(part))})",
            (*owner, *part),
        )
        fresh = {name: End(*end) for name, *end in rows if name not in known}
        known |= fresh
        waiting += fresh
    return known


def replies_to(tx: Transaction, owner: Owner, spot: Spot) -> list[Spot]:
    """What came right after an event: in its session, and in the newest sessions forked there."""
    newest = sessions.forks(tx, owner, spot.session, at=spot.sequence, newest=MOST_FORKS)
    found = (
        sessions.first_behind(tx, owner, name, spot.sequence) for name in (spot.session, *newest)
    )
    return [reply for reply in found if reply is not None]


def known_chains(tx: Transaction, owner: Owner, chains: Sequence[str]) -> set[str]:
    """Those of these chains, ``MAX_CHAINS`` at most, that an event of the owner carries."""
    marks = ", ".join("?" * len(chains))
    rows = tx.all(
        f"SELECT DISTINCT chain FROM events WHERE space = ? AND owner = ? AND chain IN ({marks})",
        (*owner, *chains),
    )
    return {row[0] for row in rows}
