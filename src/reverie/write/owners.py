"""Which owners a scope reads: the user's own rows and those that the space shares."""

from __future__ import annotations

from reverie.engine import log
from reverie.model import Scope
from reverie.protocols import Owner, Transaction


def visible_owners(tx: Transaction, scope: Scope) -> dict[Owner, str | None]:
    """Map each of the one or two owners that a scope reads, its own first, to its user."""
    space = log.find_space(tx, scope.space, scope.user)
    if space is None:
        return {}
    own = log.find_owner(tx, space, scope.user)
    owners: dict[Owner, str | None] = {} if own is None else {own: scope.user}
    owners[Owner(space, log.SHARED_OWNER)] = None
    return owners
