"""What a prompt lacks whose history the client sends by itself: the profile, what is recalled.

A client that resends its history shows all of a session to the model, but for what it has dropped
of the beginning; what it replaced by an edit, or a reply it asked for anew, it does not want to see
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from reverie.engine import sessions
from reverie.engine.sessions import Stretch
from reverie.model import Candidate, Hit, Memory, Origin, Supplement
from reverie.prompt import profile
from reverie.prompt.context import (
    Count,
    besides,
    lines_of,
    profile_in,
)
from reverie.protocols import Owner, Transaction
from reverie.write.runtime import Resources

# How far back the latest thing a user said is looked for, for the note of a recall.
LOOK_BACK = 64


class Known(NamedTuple):
    """What the store knows of the session: its profile, where its events stand, and the latest
    that a user said.
    """

    profile: list[tuple[int, Memory]]
    stretches: Sequence[Stretch]
    replaced: frozenset[tuple[str, int]]
    latest: int | None

    def holds(
        self, user: str | None, begins: Origin | None
    ) -> Callable[[str | None, Candidate], bool]:
        """Whether the client has an event of this user before it already.

        ``begins`` is the first one that it has, if that is not the first there is.
        """
        shown = {
            stretch.session: (stretch.after, float("inf") if stretch.upto is None else stretch.upto)
            for stretch in _from(self.stretches, begins)
        }

        def held(owner: str | None, candidate: Candidate) -> bool:
            if candidate.session is None or owner != user:
                return False
            spot = (candidate.session, candidate.sequence)
            after, upto = shown.get(candidate.session, (0, 0))
            return spot in self.replaced or after < candidate.sequence <= upto

        return held


def _from(stretches: Sequence[Stretch], begins: Origin | None) -> Sequence[Stretch]:
    """What is left of stretches that begin with this event."""
    names = [stretch.session for stretch in stretches]
    if begins is None or begins.session not in names:
        return stretches
    first = names.index(begins.session)
    return [stretches[first]._replace(after=begins.sequence - 1), *stretches[first + 1 :]]


def read(
    tx: Transaction,
    resources: Resources,
    owners: Mapping[Owner, str | None],
    owner: Owner | None,
    stretches: Sequence[Stretch],
    tokens: int,
    count: Count,
) -> Known:
    chosen = profile_in(tx, resources, owners, owner, stretches, tokens, count)
    if owner is None:
        return Known(chosen, stretches, frozenset(), None)
    spots = sessions.spots(tx, owner, stretches, newest=LOOK_BACK)
    said = [spot.sequence for spot in spots if spot.role == "user"]
    replaced = _replaced(tx, owner, stretches)
    return Known(chosen, stretches, replaced, said[-1] if said else None)


def _replaced(
    tx: Transaction, owner: Owner, stretches: Sequence[Stretch]
) -> frozenset[tuple[str, int]]:
    """What stood, here and in other forks, where this session went on in another way."""
    found: set[tuple[str, int]] = set()
    for stretch in stretches[:-1]:
        assert stretch.upto is not None
        if not stretch.upto:
            continue  # a conversation of its own: it replaced nothing
        others = sessions.forks(tx, owner, stretch.session, at=stretch.upto)
        found.update((name, stretch.upto + 1) for name in (stretch.session, *others))
    return frozenset(found - {(stretches[-1].session, stretches[-1].after + 1)})


def assemble(known: Known, hits: Sequence[Hit], tokens: int, count: Count) -> Supplement:
    """Both parts; a hit that stands in the profile is not said twice."""
    others = besides(hits, known.profile)
    recalled, _, shown = lines_of(others, tokens // 4, count)
    left_out = {hit.id for hit in others} - {hit.id for hit in shown}
    return Supplement(
        profile=profile.render(known.profile, with_tool=False),
        recalled=recalled,
        hits=tuple(hit for hit in hits if hit.id not in left_out),
    )
