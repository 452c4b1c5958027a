"""Which owners a scope reads and writes.

The scope of a user has two: the user's own, and the shared one, which it only reads. A scope
without a user has two as well: what was said without a name, and what was learned from it, belongs
to ``UNNAMED``, so that named users are not told it; what is remembered on purpose is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reverie.engine import index, log, sessions
from reverie.model import UNNAMED, Origin, Scope
from reverie.protocols import Owner, Transaction
from reverie.write import session_state


def visible_owners(tx: Transaction, scope: Scope) -> dict[Owner, str | None]:
    """Map each of the one or two owners that a scope reads, its own first, to its user."""
    own_name = scope.user or UNNAMED
    space = log.find_space(tx, scope.space, own_name)
    if space is None:
        return {}
    own = log.find_owner(tx, space, own_name)
    owners: dict[Owner, str | None] = {} if own is None else {own: scope.shown_user}
    owners[Owner(space, log.SHARED_OWNER)] = None
    return owners


def writable_owners(tx: Transaction, scope: Scope) -> list[Owner]:
    """List the owners that a scope may write: a user's is one, without a user they are two."""
    if scope.user is None:
        return list(reversed(visible_owners(tx, scope)))
    own = log.resolve_owner(tx, scope)
    return [] if own is None else [own]


def learning_owners(tx: Transaction, owner: Owner) -> tuple[Owner, ...]:
    """List the owners whose memories may change by what was said to one, that one first.

    That is the owner itself. In a space without named users, what is said without a name may also
    change what was remembered on purpose: there is nobody else who would be told it.
    """
    both = deciding_owners(tx, owner)
    if len(both) > 1 and owner.number == log.SHARED_OWNER + 1:
        row = tx.one("SELECT owner FROM counters WHERE space = ?", (owner.space,))
        if row == (owner.number,):
            return both
    return (owner,)


def deciding_owners(tx: Transaction, owner: Owner) -> tuple[Owner, ...]:
    """List the owners in which the speaker of a session decides what is remembered.

    Whoever speaks without a name changes shared memories too: learning respects both.
    """
    key = ("deciding", owner)
    if key not in tx.kept:
        row = tx.one("SELECT name FROM owners WHERE space = ? AND owner = ?", owner)
        tx.kept[key] = row == (UNNAMED,)
    return (owner, Owner(owner.space, log.SHARED_OWNER)) if tx.kept[key] else (owner,)


class Target(NamedTuple):
    """What is read or written. It tells which of its two owners a scope without a user means.

    That is the owner that ``holds`` it, else the one called ``default`` (None: the shared one).
    """

    default: str | None
    holds: Callable[[Transaction, Owner], bool] | None = None


NEW_MEMORY = Target(None)
NEW_SESSION = Target(UNNAMED)


def memory_target(id: str) -> Target:
    """Return the target of a change of a memory."""
    return Target(None, lambda tx, owner: log.has_versions(tx, owner, id))


def session_target(session: str, forked_from: Origin | None = None) -> Target:
    """Return the target of what is said in a session, and of what only that session sees.

    A session that an earlier version of Reverie stored as shared stays so, and so do its forks,
    until it is erased.
    """
    names = [session] if forked_from is None else [session, forked_from.session]

    def holds(tx: Transaction, owner: Owner) -> bool:
        known = (sessions.find(tx, owner, name) for name in names)
        return (
            any(row is not None and (row.events or not row.ended) for row in known)
            or session_state.exists(tx, owner, session)
            or index.has_private_memory(tx, owner, session)
        )

    return Target(UNNAMED, holds)


def find_target(tx: Transaction, scope: Scope, target: Target) -> Owner | None:
    """Find the owner of a target, or None if nothing was ever written to it."""
    if scope.user is not None:
        return log.resolve_owner(tx, scope)
    owners = list(visible_owners(tx, scope))
    if not owners:
        return None
    shared, own = owners[-1], owners[0] if len(owners) > 1 else None
    first, second = (shared, own) if target.default is None else (own, shared)
    holds = target.holds
    if holds is None or second is None or (first is not None and holds(tx, first)):
        return first
    return second if holds(tx, second) else first


def ensure_target(tx: Transaction, scope: Scope, target: Target) -> Owner:
    """Return the owner of a target; it is created if needed."""
    owner = None
    if scope.user is None and target.holds is not None:
        owner = find_target(tx, scope, target)
    if owner is None:
        owner = log.ensure_owner(tx, scope.space, scope.user or target.default)
    return owner
