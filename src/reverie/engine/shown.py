"""What a profile reads of the index."""

from __future__ import annotations

from reverie.engine import index
from reverie.engine.index import PLACE_COLUMNS, Place
from reverie.protocols import Owner, Row, Transaction


def for_profile(
    tx: Transaction, owner: Owner, before: int, now: int, *, pinned: bool, limit: int
) -> list[Place]:
    """Living memories everyone sees, born before a position, the newest first.

    Either what is pinned, or the facts that are not.
    """
    which = "pinned = 1" if pinned else "pinned = 0 AND kind = 'fact'"
    return [
        Place(*row)
        for row in tx.all(
            f"SELECT {PLACE_COLUMNS} FROM memories WHERE space = ? AND owner = ? AND born < ? "
            f"AND {which} AND forgotten_at IS NULL AND session IS NULL "
            f"AND (expires_at IS NULL OR expires_at > ?) ORDER BY born DESC LIMIT {int(limit)}",
            (*owner, before, now),
        )
    ]


def changed_since(tx: Transaction, owner: Owner, position: int, now: int) -> list[Row]:
    """Living memories everyone sees that were there at a position and changed behind it.

    Of each when it was born, and where its version of then stands in the log.
    """
    return tx.all(
        "SELECT m.born, (SELECT MAX(l.position) FROM log l WHERE l.space = ? "
        "AND l.owner = ? AND l.memory = m.memory AND l.position <= ?) FROM memories m "
        "WHERE m.space = ? AND m.owner = ? AND m.position > ? AND m.position > m.born "
        "AND m.born <= ? AND m.forgotten_at IS NULL AND m.session IS NULL "
        "AND (m.expires_at IS NULL OR m.expires_at > ?)",
        (*owner, position, *owner, position, position, now),
    )


def state_mark(tx: Transaction, owner: Owner) -> tuple[int, ...]:
    """What is another number when a memory of this owner was added, changed or erased.

    Whatever is added or changed stands behind all others; whatever is gone leaves fewer.
    """
    known = index.statistics(tx, owner)
    row = tx.one(
        "SELECT (SELECT MAX(born) FROM memories WHERE space = ? AND owner = ?), "
        "(SELECT MAX(position) FROM memories WHERE space = ? AND owner = ? AND position > born)",
        (*owner, *owner),
    )
    # An index that was made anew may have been another one before.
    return (known.epoch, known.facts, known.notes, *(number or 0 for number in row or ()))
