"""What the log says of each session, worked out without the views: to compare them with."""

from __future__ import annotations

from dataclasses import dataclass, field

from reverie.engine.log import Entry
from reverie.engine.sessions import NOTHING_SAID, Session, chained, ends
from reverie.model import Origin
from reverie.text.messages import role_of


@dataclass(slots=True)
class History:
    """One session, as far as its entries were read."""

    fork: Origin | None
    opened: int
    start: str
    ended: bool = False
    position: int = 0
    last_sequence: int = 0
    updated_at: int = 0
    titled: int | None = None
    spots: list[tuple[int, str]] = field(default_factory=list)

    @property
    def chain(self) -> str:
        return self.spots[-1][1] if self.spots and not self.ended else self.start


class Histories:
    """Every session of an owner, from its entries in order."""

    def __init__(self) -> None:
        self.sessions: dict[str, History] = {}
        self.chains: dict[int, str] = {}

    def add(self, entry: Entry) -> None:
        if entry.session is None:
            return
        if ends(entry) and entry.session in self.sessions:
            self._end(entry.session)
        if entry.op != "append" or entry.sequence is None:
            return
        known = self.sessions.get(entry.session)
        if known is None:
            known = History(entry.origin, entry.position, self._start(entry.origin))
            self.sessions[entry.session] = known
        elif known.ended:
            known.fork, known.start, known.ended = entry.origin, self._start(entry.origin), False
            known.opened = entry.position
        known.position, known.last_sequence = entry.position, entry.sequence
        known.updated_at = entry.recorded_at
        if entry.body is None:
            return
        message = entry.body["message"]
        chain = chained(known.chain, message)
        known.spots.append((entry.sequence, chain))
        self.chains[entry.position] = chain
        if known.titled is None and role_of(message) == "user":
            known.titled = entry.position

    def _end(self, name: str) -> None:
        erased = self.sessions[name]
        erased.ended = True
        for other in self.sessions.values():
            if other.fork is not None and other.fork.session == name:
                other.fork = erased.fork

    def chain_of(self, entry: Entry) -> str:
        return self.chains[entry.position]

    def expected(self, name: str, hidden_at: int | None) -> Session | None:
        """The session as the index must show it, but for what its summary covers."""
        known = self.sessions.get(name)
        if known is None:
            return None
        return Session(
            session=name,
            opened=known.opened,
            position=known.position,
            last_sequence=known.last_sequence,
            events=len(known.spots),
            updated_at=known.updated_at,
            hidden_at=hidden_at,
            titled=known.titled,
            forked_session=None if known.fork is None else known.fork.session,
            forked_sequence=None if known.fork is None else known.fork.sequence,
            chain=known.chain,
            unsummed=0,
            ended=int(known.ended),
        )

    def _start(self, fork: Origin | None) -> str:
        """The chain up to the event that a fork goes on from."""
        seen: set[str] = set()
        while fork is not None and fork.session not in seen:
            seen.add(fork.session)
            known = self.sessions.get(fork.session)
            if known is None:
                break
            before = [chain for sequence, chain in known.spots if sequence <= fork.sequence]
            if before:
                return before[-1]
            fork = known.fork
        return NOTHING_SAID
