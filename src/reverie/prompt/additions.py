"""What a prompt lacks whose history the client sends by itself: the profile, what is recalled.

A client that resends its history shows all of a session to the model, but for what it has dropped
of the beginning; what it replaced by an edit, or a reply it asked for anew, it does not want to see
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from reverie.engine import sessions
from reverie.engine.sessions import EventRange
from reverie.model import Candidate, Hit, Memory, Origin, PromptAdditions
from reverie.prompt import profile
from reverie.prompt.context import (
    TokenCounter,
    exclude_memories,
    render_hits,
    session_profile,
)
from reverie.protocols import Owner, Transaction
from reverie.write.runtime import Runtime

# How far back the latest thing a user said is looked for, for the note of a recall.
LOOKBACK_EVENTS = 64


class InjectionInputs(NamedTuple):
    """What the store knows of the session: its profile, where its events stand, and the latest
    that a user said.
    """

    profile: list[tuple[int, Memory]]
    stretches: Sequence[EventRange]
    replaced: frozenset[tuple[str, int]]
    latest: int | None

    def holds(
        self, user: str | None, begins: Origin | None
    ) -> Callable[[str | None, Candidate], bool]:
        """Whether the client has an event of this user before it already.

        ``begins`` is the first one that it has, if that is not the first there is.
        """
        shown = {
            stretch.session: (
                stretch.after,
                float("inf") if stretch.end_sequence is None else stretch.end_sequence,
            )
            for stretch in _from_window_start(self.stretches, begins)
        }

        def held(owner: str | None, candidate: Candidate) -> bool:
            if candidate.session is None or owner != user:
                return False
            spot = (candidate.session, candidate.sequence)
            after, upto = shown.get(candidate.session, (0, 0))
            return spot in self.replaced or after < candidate.sequence <= upto

        return held


def _from_window_start(
    stretches: Sequence[EventRange], begins: Origin | None
) -> Sequence[EventRange]:
    """What is left of stretches that begin with this event."""
    names = [stretch.session for stretch in stretches]
    if begins is None or begins.session not in names:
        return stretches
    first = names.index(begins.session)
    return [stretches[first]._replace(after=begins.sequence - 1), *stretches[first + 1 :]]


def read_inputs(
    tx: Transaction,
    runtime: Runtime,
    owners: Mapping[Owner, str | None],
    owner: Owner | None,
    stretches: Sequence[EventRange],
    tokens: int,
    count: TokenCounter,
) -> InjectionInputs:
    chosen = session_profile(tx, runtime, owners, owner, stretches, tokens, count)
    if owner is None:
        return InjectionInputs(chosen, stretches, frozenset(), None)
    spots = sessions.list_events(tx, owner, stretches, newest=LOOKBACK_EVENTS)
    said = [spot.sequence for spot in spots if spot.role == "user"]
    replaced = _replaced_events(tx, owner, stretches)
    return InjectionInputs(chosen, stretches, replaced, said[-1] if said else None)


def _replaced_events(
    tx: Transaction, owner: Owner, stretches: Sequence[EventRange]
) -> frozenset[tuple[str, int]]:
    """What stood, here and in other forks, where this session went on in another way."""
    found: set[tuple[str, int]] = set()
    for stretch in stretches[:-1]:
        assert stretch.end_sequence is not None
        if not stretch.end_sequence:
            continue  # a conversation of its own: it replaced nothing
        others = sessions.list_forks(tx, owner, stretch.session, at=stretch.end_sequence)
        found.update((name, stretch.end_sequence + 1) for name in (stretch.session, *others))
    return frozenset(found - {(stretches[-1].session, stretches[-1].after + 1)})


def assemble(
    known: InjectionInputs, hits: Sequence[Hit], tokens: int, count: TokenCounter
) -> PromptAdditions:
    """Both parts; a hit that stands in the profile is not said twice."""
    others = exclude_memories(hits, known.profile)
    recalled, _, shown = render_hits(others, tokens // 4, count)
    left_out = {hit.id for hit in others} - {hit.id for hit in shown}
    return PromptAdditions(
        profile=profile.render(known.profile, with_tool=False),
        recalled=recalled,
        hits=tuple(hit for hit in hits if hit.id not in left_out),
    )
