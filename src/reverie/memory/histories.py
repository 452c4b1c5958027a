"""What the log says of each session, worked out without the views: to compare them with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reverie.engine.log import Entry
from reverie.engine.sessions import NOTHING_SAID, Session, chained, ends
from reverie.model import Origin
from reverie.text.messages import role_of


class Said(NamedTuple):
    """One living event."""

    sequence: int
    position: int
    message: Mapping[str, Any]


@dataclass(slots=True)
class History:
    """One session, as far as its entries were read."""

    fork: Origin | None
    opened: int
    ended: bool = False
    position: int = 0
    last_sequence: int = 0
    updated_at: int = 0
    said: list[Said] = field(default_factory=list)


class Histories:
    """Every session of an owner, from all its entries in order."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.sessions: dict[str, History] = {}
        self.chains: dict[int, str] = {}
        for entry in entries:
            self._add(entry)
        for name in self.sessions:
            self._chain(name)

    def _add(self, entry: Entry) -> None:
        if entry.session is None:
            return
        if ends(entry) and entry.session in self.sessions:
            self._end(entry.session)
        if entry.op != "append" or entry.sequence is None:
            return
        known = self.sessions.get(entry.session)
        if known is None:
            known = self.sessions[entry.session] = History(entry.origin, entry.position)
        elif known.ended:
            known.fork, known.opened, known.ended = entry.origin, entry.position, False
        known.position, known.last_sequence = entry.position, entry.sequence
        known.updated_at = entry.recorded_at
        if entry.body is not None:
            known.said.append(Said(entry.sequence, entry.position, entry.body["message"]))

    def _end(self, name: str) -> None:
        erased = self.sessions[name]
        erased.ended = True
        for other in self.sessions.values():
            if other.fork is not None and other.fork.session == name:
                other.fork = erased.fork

    def _chain(self, name: str) -> None:
        """Chain the events of a session, after those it goes on from."""
        known = self.sessions[name]
        if all(said.position in self.chains for said in known.said):
            return
        chain = self._chain_at(known.fork, {name})
        for said in known.said:
            chain = self.chains[said.position] = chained(chain, said.message)

    def _chain_at(self, origin: Origin | None, seen: set[str]) -> str:
        """The chain up to the event that a fork goes on from."""
        if origin is None or origin.session in seen or origin.session not in self.sessions:
            return NOTHING_SAID
        known = self.sessions[origin.session]
        before = [said for said in known.said if said.sequence <= origin.sequence]
        if not before:
            return self._chain_at(known.fork, {*seen, origin.session})
        self._chain(origin.session)
        return self.chains[before[-1].position]

    def expected(self, name: str, hidden_at: int | None) -> Session | None:
        """The session as the index must show it, but for what its summary covers."""
        known = self.sessions.get(name)
        if known is None:
            return None
        users = [said.position for said in known.said if role_of(said.message) == "user"]
        chain = NOTHING_SAID if known.ended else self._chain_at(known.fork, {name})
        if known.said:
            chain = self.chains[known.said[-1].position]
        return Session(
            session=name,
            opened=known.opened,
            position=known.position,
            last_sequence=known.last_sequence,
            events=len(known.said),
            updated_at=known.updated_at,
            hidden_at=hidden_at,
            titled=users[0] if users else None,
            forked_session=None if known.fork is None else known.fork.session,
            forked_sequence=None if known.fork is None else known.fork.sequence,
            chain=chain,
            unsummed=0,
            ended=int(known.ended),
        )
