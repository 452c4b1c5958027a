"""Verify: check the files, every entry of the log, and that the index says what the log says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reverie.engine import index, log, sessions
from reverie.engine.log import LogEntry
from reverie.engine.schema import DERIVED_TABLES
from reverie.engine.sessions import EMPTY_CHAIN, SessionRow, chain_message, is_session_erasure
from reverie.errors import StoreDamaged
from reverie.maintenance import damage
from reverie.model import Origin, VerifyReport
from reverie.protocols import Embedder, Owner, Transaction
from reverie.text.messages import role_of, speaker_of
from reverie.text.normalize import subject_key
from reverie.write import embeddings, session_projection
from reverie.write.runtime import Runtime

_MODULUS = 1 << 64
CHUNK = 500
# How far sums of the same numbers in another order may be apart.
VECTOR_TOLERANCE = 1e-5


def verify(runtime: Runtime) -> VerifyReport:
    """Look at the files, at every entry, and at what the index makes of them."""
    report = _verify_once(runtime)
    # A read that failed once is not damage: what is damaged is so at a second look.
    return _verify_once(runtime) if report.problems else report


def _verify_once(runtime: Runtime) -> VerifyReport:
    problems = check_files(runtime)
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        found = damage.find_damage(tx)
        return compare_index(tx, runtime, [*problems, *found], damaged=bool(found))


def check_files(runtime: Runtime) -> list[str]:
    """What the database finds wrong with its files; that it cannot look is also an answer."""
    try:
        return runtime.engine.check()
    except StoreDamaged as error:
        return [str(error)]


def compare_index(
    tx: Transaction, runtime: Runtime, problems: list[str], *, damaged: bool
) -> VerifyReport:
    """Derive from the log what the index must hold, and compare.

    An index is not compared with a log that is damaged: it would be blamed for what is missing.
    """
    found = list(problems)
    digest = hashlib.sha256()
    memories = versions = events = passages = 0
    spaces = set()
    owners = _owners(tx, found)
    try:
        found += _find_orphans(tx, owners)
    except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
        found.append(f"the index cannot be read ({type(error).__name__}): run 'reverie rebuild'")
    for owner in owners:
        spaces.add(owner.space)
        try:
            for entry in log.all_entries(tx, owner, skip=True):
                versions += bool(entry.memory)
                events += entry.op == "append" and entry.body is not None
                digest.update(log.encode([entry.uuid, entry.op, entry.body]).encode())
            if not damaged:
                counted = _compare_owner(tx, runtime, owner, found)
                memories, passages = memories + counted[0], passages + counted[1]
        except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
            why = " ".join(f"{type(error).__name__} {error}".split())[:200]
            what = "be read" if damaged else "be compared with the log: run 'reverie rebuild'"
            found.append(f"space {owner.space}, owner {owner.number} cannot {what} ({why})")
    return VerifyReport(
        len(spaces), memories, versions, events, passages, digest.hexdigest(), tuple(found)
    )


def _find_orphans(tx: Transaction, owners: list[Owner]) -> list[str]:
    """Rows of the index that belong to nobody there is."""
    found = []
    for name in (*DERIVED_TABLES, "statistics", "vectors"):
        rows = tx.all(f"SELECT DISTINCT space, owner FROM {name}")
        if not {Owner(*row) for row in rows} <= set(owners):
            found.append(f"{name} has rows of nobody: run 'reverie rebuild'")
    return found


def _owners(tx: Transaction, problems: list[str]) -> list[Owner]:
    try:
        rows = tx.all("SELECT space, owner FROM owners ORDER BY space, owner")
        return [Owner(int(space), int(number)) for space, number in rows]
    except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
        problems.append(f"the owners cannot be read ({type(error).__name__})")
        return []


def _compare_owner(
    tx: Transaction, runtime: Runtime, owner: Owner, problems: list[str]
) -> tuple[int, int]:
    where = f"space {owner.space}, owner {owner.number}"
    wanted_documents: dict[str, tuple[int, str]] = {}
    places = {
        place.memory: place
        for place in index.list_memories(
            tx, owner, index.Filter(include_forgotten=True, sessions=None)
        )
    }
    wanted_tags = count = 0
    counts = {"fact": 0, "note": 0, "private": 0}
    wanted = ExpectedIndex()
    for first_position, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
        count += 1
        state = entry.state(None)
        document = (entry.body or {}).get("document")
        if document is not None and state.source is not None:
            wanted_documents[state.source] = (first_position, document)
        place = places.pop(state.id, None)
        if place is None:
            problems.append(f"{where}: memory {state.id} is in the log but not in the index")
            continue
        problems.extend(_compare_memory(where, entry, first_position, place))
        wanted_tags += sum(_hash(tag, place.first_position) for tag in state.tags)
        if state.forgotten_at is not None:
            continue
        counts[state.kind] += 1
        counts["private"] += state.session is not None
        wanted.add(place.first_position, place.first_passage, index.content_passages(state.content))
    problems.extend(_compare_sessions(tx, owner, where, wanted))
    problems.extend(_compare_proposals(tx, owner, where))
    problems.extend(_compare_documents(tx, owner, where, wanted_documents))
    problems.extend(f"{where}: memory {id} is in the index but not in the log" for id in places)
    for name, columns, sum_of in (
        ("passages", "passage, born, start, length, terms", wanted.passages),
        ("postings", "term, passage, len", wanted.postings),
        ("tags", "tag, born", wanted_tags),
    ):
        stored = sum(
            _hash(*row)
            for row in tx.all(f"SELECT {columns} FROM {name} WHERE space = ? AND owner = ?", owner)
        )
        if stored % _MODULUS != sum_of % _MODULUS:
            problems.append(f"{where}: the {name} differ from the log: run 'reverie rebuild'")
    kept = index.statistics(tx, owner)
    index.check_statistics(tx, owner, kept)
    if (kept.passages, kept.facts, kept.notes, kept.private) != (
        len(wanted.said),
        *counts.values(),
    ) or kept.touches != _last_touch(tx, owner):
        problems.append(f"{where}: the statistics differ from the log: run 'reverie rebuild'")
    problems.extend(_compare_vectors(tx, runtime, owner, where, wanted.said))
    return count, len(wanted.said)


class ExpectedIndex:
    """What the passages and postings of an owner must be, summed up as they are derived."""

    def __init__(self) -> None:
        self.passages = self.postings = 0
        self.said: dict[int, str] = {}

    def add(self, first_position: int, first: int, parts: list[index.Passage]) -> None:
        for number, part in enumerate(parts, first):
            self.said[number] = part.text
            self.passages += _hash(number, first_position, part.start, len(part.text), part.length)
            for term in part.terms:
                self.postings += _hash(term, number, part.length)


def _compare_sessions(
    tx: Transaction, owner: Owner, where: str, wanted: ExpectedIndex
) -> list[str]:
    """Every event and session of the log is listed as it was written, and nothing else is."""
    hidden = session_projection.find_hidden(tx, owner)
    history = SessionReplay(log.all_entries(tx, owner))
    problems = []
    for entry in log.all_entries(tx, owner):
        if entry.op != "append" or entry.body is None or entry.session is None:
            continue
        spot = sessions.find_event_at(tx, owner, entry.position)
        message = entry.body["message"]
        parts = sessions.passages_of_event(sessions.event_from_entry(entry, None))
        parts = [] if entry.session in hidden else parts
        size = len(log.encode(message).encode())
        written = (entry.session, entry.sequence, entry.body["at"], size)
        who = (role_of(message), speaker_of(message))
        if (
            spot is None
            or (spot.session, spot.sequence, spot.at, spot.size) != written
            or (spot.role, spot.speaker) != who
        ):
            problems.append(f"{where}: event {entry.session}:{entry.sequence} is not as written")
        elif (spot.passages, spot.terms) != (
            len(parts),
            parts[0].length if parts else 0,
        ) or spot.chain != history.chains[entry.position]:
            problems.append(f"{where}: event {entry.session}:{entry.sequence} is not indexed right")
        else:
            wanted.add(spot.position, spot.first_passage, parts)
    listed = {known.session: known for known in sessions.list_all_sessions(tx, owner)}
    for name in sorted({*history.sessions, *listed}):
        if history.expected(name, hidden.get(name)) != _without_summary_size(listed.get(name)):
            problems.append(f"{where}: session {name!r} is not listed as it was written")
    if len(history.chains) != sessions.count_events(tx, owner):
        problems.append(f"{where}: the events differ from the log: run 'reverie rebuild'")
    return problems


def _compare_proposals(tx: Transaction, owner: Owner, where: str) -> list[str]:
    wanted: dict[str, tuple[int, str | None, str | None]] = {}
    for entry in log.all_entries(tx, owner):
        body = entry.body or {}
        if entry.op == "propose" and entry.body is not None:
            wanted[body["proposal"]] = (entry.position, None, None)
        elif entry.op in {"accept", "reject"} and body.get("proposal") in wanted:
            position = wanted[body["proposal"]][0]
            wanted[body["proposal"]] = (position, entry.op, body.get("memory"))
    listed = {
        row[0]: row[1:]
        for row in tx.all(
            "SELECT proposal, position, answer, memory FROM proposals "
            "WHERE space = ? AND owner = ?",
            owner,
        )
    }
    if listed == wanted:
        return []
    return [f"{where}: the proposals differ from the log: run 'reverie rebuild'"]


def _without_summary_size(known: sessions.SessionRow | None) -> sessions.SessionRow | None:
    """What a summary covers is not in the log."""
    return None if known is None else known._replace(unsummed=0)


def _last_touch(tx: Transaction, owner: Owner) -> int:
    row = tx.one("SELECT MAX(touch) FROM touched WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else int(row[0] or 0)


def _compare_documents(
    tx: Transaction, owner: Owner, where: str, wanted: dict[str, tuple[int, str]]
) -> list[str]:
    listed = {
        row[0]: (row[1], row[2])
        for row in tx.all(
            "SELECT source, born, hash FROM documents WHERE space = ? AND owner = ?", owner
        )
    }
    if listed == wanted:
        return []
    return [f"{where}: the documents differ from the log: run 'reverie rebuild'"]


def _compare_memory(
    where: str, entry: log.LogEntry, first_position: int, place: index.MemoryRow
) -> list[str]:
    state = entry.state(None)
    same = (
        place.position == entry.position
        and place.first_position == first_position
        and place.version == entry.version
        and place.kind == state.kind
        and place.category == state.category
        and bool(place.pinned) == state.pinned
        and place.subject_key == subject_key(state.subject)
        and place.session == state.session
        and place.at == (state.created_at if state.happened_at is None else state.happened_at)
        and place.expires_at == state.expires_at
        and place.forgotten_at == state.forgotten_at
        and (place.passages > 0) == (state.forgotten_at is None)
    )
    return [] if same else [f"{where}: memory {state.id} is not indexed as it was written"]


def _compare_vectors(
    tx: Transaction, runtime: Runtime, owner: Owner, where: str, said: dict[int, str]
) -> list[str]:
    """Every living passage has its vector or waits for it, and no other passage has one."""
    generation = embeddings.read(tx)
    if generation is None:
        return []
    waiting = {
        row[0]
        for row in tx.all("SELECT passage FROM unembedded WHERE space = ? AND owner = ?", owner)
    }
    stored = set(tx.vector_numbers(owner, generation.number))
    problems = [
        f"{where}: passage {number} has a vector but is not there: run 'reverie rebuild'"
        for number in sorted(stored - set(said))[:3]
    ]
    if waiting - set(said):
        problems.append(f"{where}: what waits for vectors is not there: run 'reverie rebuild'")
    embedder = runtime.embedder
    local = embedder is not None and not embedder.remote
    if embedder is not None and local:
        for number in sorted(set(said) - stored - waiting):
            if embedder.embed([said[number]]).any():
                problems.append(f"{where}: passage {number} has no vector: run 'reverie rebuild'")
    remade = embedder if local and embedder and embedder.identity == generation.identity else None
    wrong = _wrong_vectors(tx, remade, owner, generation, sorted(stored & set(said)), said)
    if wrong:
        problems.append(
            f"{where}: the vectors of {len(wrong)} passages, the first {wrong[0]}, are not those "
            "of their texts: run 'reverie rebuild'"
        )
    return problems


def _wrong_vectors(
    tx: Transaction,
    embedder: Embedder | None,
    owner: Owner,
    generation: embeddings.Generation,
    numbers: list[int],
    said: dict[int, str],
) -> list[int]:
    """The passages whose vector a local embedder does not give again.

    Without one, those that are not of unit length.
    """
    import numpy as np

    wrong = []
    for i in range(0, len(numbers), CHUNK):
        part = numbers[i : i + CHUNK]
        rows = tx.vectors(owner, generation.number, np.array(part, np.int64))
        if embedder is None:
            far = np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1) > VECTOR_TOLERANCE
        else:
            made = embedder.embed([said[number] for number in part])
            far = ~np.isclose(rows, made, rtol=0, atol=VECTOR_TOLERANCE).all(axis=1)
        wrong += [part[int(at)] for at in np.flatnonzero(far)]
    return wrong


def _hash(*values: object) -> int:
    text = "\0".join(map(str, values)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class LoggedEvent(NamedTuple):
    """One living event."""

    sequence: int
    position: int
    message: Mapping[str, Any]


@dataclass(slots=True)
class LoggedSession:
    """One session, as far as its entries were read."""

    fork: Origin | None
    opened: int
    ended: bool = False
    position: int = 0
    last_sequence: int = 0
    updated_at: int = 0
    said: list[LoggedEvent] = field(default_factory=list)


class SessionReplay:
    """Every session of an owner, from all its entries in order."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self.sessions: dict[str, LoggedSession] = {}
        self.chains: dict[int, str] = {}
        for entry in entries:
            self._add(entry)
        for name in self.sessions:
            self._chain(name)

    def _add(self, entry: LogEntry) -> None:
        if entry.session is None:
            return
        if is_session_erasure(entry) and entry.session in self.sessions:
            self._end(entry.session)
        if entry.op != "append" or entry.sequence is None:
            return
        known = self.sessions.get(entry.session)
        if known is None:
            known = self.sessions[entry.session] = LoggedSession(entry.origin, entry.position)
        elif known.ended:
            known.fork, known.opened, known.ended = entry.origin, entry.position, False
        known.position, known.last_sequence = entry.position, entry.sequence
        known.updated_at = entry.recorded_at
        if entry.body is not None:
            known.said.append(LoggedEvent(entry.sequence, entry.position, entry.body["message"]))

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
            chain = self.chains[said.position] = chain_message(chain, said.message)

    def _chain_at(self, origin: Origin | None, seen: set[str]) -> str:
        """The chain up to the event that a fork goes on from."""
        if origin is None or origin.session in seen or origin.session not in self.sessions:
            return EMPTY_CHAIN
        known = self.sessions[origin.session]
        before = [said for said in known.said if said.sequence <= origin.sequence]
        if not before:
            return self._chain_at(known.fork, {*seen, origin.session})
        self._chain(origin.session)
        return self.chains[before[-1].position]

    def expected(self, name: str, hidden_at: int | None) -> SessionRow | None:
        """The session as the index must show it, but for what its summary covers."""
        known = self.sessions.get(name)
        if known is None:
            return None
        users = [said.position for said in known.said if role_of(said.message) == "user"]
        chain = EMPTY_CHAIN if known.ended else self._chain_at(known.fork, {name})
        if known.said:
            chain = self.chains[known.said[-1].position]
        return SessionRow(
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
