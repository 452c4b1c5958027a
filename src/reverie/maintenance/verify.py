"""Check the files of a store, every entry of its log, and that its index matches the log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reverie.engine import index, log, sessions
from reverie.engine.index_text import Labels, Passage, memory_passages
from reverie.engine.log import LogEntry
from reverie.engine.schema import DERIVED_TABLES
from reverie.engine.sessions import EMPTY_CHAIN, SessionRow, chain_message, is_session_erasure
from reverie.errors import ReverieError, StoreDamaged
from reverie.maintenance import damage
from reverie.model import Origin, VerifyReport
from reverie.protocols import Embedder, Owner, Transaction
from reverie.text.messages import role_of, speaker_of
from reverie.write import embeddings, session_projection
from reverie.write.runtime import Runtime

_MODULUS = 1 << 64
CHUNK = 500
# How far two vectors of the same text may differ: sums depend on the order of the numbers.
VECTOR_TOLERANCE = 1e-5


def verify(runtime: Runtime) -> VerifyReport:
    """Check the files, every log entry and the index; the report has every problem."""
    report = _verify_once(runtime)
    # A read can fail once without any damage, so problems count only when found a second time.
    return _verify_once(runtime) if report.problems else report


def describe_damage(runtime: Runtime) -> str | None:
    """Return what is damaged, in one line; called when code failed on rows it cannot understand."""
    try:
        problems = verify(runtime).problems
    except ReverieError as error:
        return str(error)
    if not problems:
        return None
    return f"the store is damaged ({problems[0]}): run 'reverie verify' to see all of it"


def _verify_once(runtime: Runtime) -> VerifyReport:
    problems = check_files(runtime)
    with runtime.engine.read() as tx:
        tx.enter_all_owners()
        damages = damage.find_damage(tx)
        return compare_index(tx, runtime, [*problems, *damages], damaged=bool(damages))


def check_files(runtime: Runtime) -> list[str]:
    """Return the problems that the database's own check finds in its files."""
    try:
        return runtime.engine.check()
    except StoreDamaged as error:
        return [str(error)]


def compare_index(
    tx: Transaction, runtime: Runtime, problems: list[str], *, damaged: bool
) -> VerifyReport:
    """Derive from the log what the index must contain, and compare.

    With ``damaged``, the index is not compared: entries missing from the log would be reported as
    errors of the index.
    """
    all_problems = list(problems)
    digest = hashlib.sha256()
    memories = versions = events = passages = 0
    spaces = set()
    owners = _owners(tx, all_problems)
    try:
        all_problems += _find_orphans(tx, owners)
    except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
        all_problems.append(
            f"the index cannot be read ({type(error).__name__}): run 'reverie rebuild'"
        )
    for owner in owners:
        spaces.add(owner.space)
        try:
            for entry in log.all_entries(tx, owner, skip=True):
                versions += bool(entry.memory)
                events += entry.op == "append" and entry.body is not None
                digest.update(log.encode([entry.uuid, entry.op, entry.body]).encode())
            if not damaged:
                counted = _compare_owner(tx, runtime, owner, all_problems)
                memories, passages = memories + counted[0], passages + counted[1]
        except Exception as error:  # noqa: BLE001 - whatever a broken row does, it is reported
            why = " ".join(f"{type(error).__name__} {error}".split())[:200]
            what = "be read" if damaged else "be compared with the log: run 'reverie rebuild'"
            all_problems.append(f"space {owner.space}, owner {owner.number} cannot {what} ({why})")
    return VerifyReport(
        len(spaces), memories, versions, events, passages, digest.hexdigest(), tuple(all_problems)
    )


def _find_orphans(tx: Transaction, owners: list[Owner]) -> list[str]:
    """Report the tables of the index that have rows of owners that do not exist."""
    problems = []
    for name in (*DERIVED_TABLES, "statistics", "vectors"):
        rows = tx.all(f"SELECT DISTINCT space, owner FROM {name}")
        if not {Owner(*row) for row in rows} <= set(owners):
            problems.append(
                f"{name} has rows of an owner that does not exist: run 'reverie rebuild'"
            )
    return problems


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
    expected_documents: dict[str, tuple[int, str]] = {}
    places = {
        place.memory: place
        for place in index.list_memories(
            tx, owner, index.Filter(include_forgotten=True, sessions=None)
        )
    }
    expected_tags = expected_metadata = count = 0
    counts = {"fact": 0, "note": 0, "private": 0}
    expected = ExpectedIndex()
    for first_position, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
        count += 1
        state = entry.state(None)
        document = (entry.body or {}).get("document")
        if document is not None and state.source is not None:
            expected_documents[state.source] = (first_position, document)
        place = places.pop(state.id, None)
        if place is None:
            problems.append(f"{where}: memory {state.id} is in the log but not in the index")
            continue
        problems.extend(_compare_memory(where, entry, first_position, place))
        expected_tags += sum(_hash(tag, place.first_position) for tag in state.tags)
        expected_metadata += sum(
            _hash(*row) for row in index.metadata_rows(place.first_position, state)
        )
        if state.forgotten_at is not None:
            continue
        counts[state.kind] += 1
        counts["private"] += state.session is not None
        parts = memory_passages(state.content, Labels.of(state))
        expected.add(place.first_position, place.first_passage, parts)
    problems.extend(_compare_sessions(tx, owner, where, expected))
    problems.extend(_compare_proposals(tx, owner, where))
    problems.extend(_compare_documents(tx, owner, where, expected_documents))
    problems.extend(f"{where}: memory {id} is in the index but not in the log" for id in places)
    for name, columns, sum_of in (
        ("passages", "passage, born, start, length, terms", expected.passages),
        ("postings", "term, passage, len", expected.postings),
        ("tags", "tag, born", expected_tags),
        ("metadata", "name, value, born, in_list, text", expected_metadata),
    ):
        stored = sum(
            _hash(*row)
            for row in tx.all(f"SELECT {columns} FROM {name} WHERE space = ? AND owner = ?", owner)
        )
        if stored % _MODULUS != sum_of % _MODULUS:
            problems.append(f"{where}: the {name} differ from the log: run 'reverie rebuild'")
    statistics = index.statistics(tx, owner)
    index.check_statistics(tx, owner, statistics)
    if (statistics.passages, statistics.facts, statistics.notes, statistics.private) != (
        len(expected.texts),
        *counts.values(),
    ) or statistics.touches != _last_touch(tx, owner):
        problems.append(f"{where}: the statistics differ from the log: run 'reverie rebuild'")
    problems.extend(_compare_vectors(tx, runtime, owner, where, expected.texts))
    return count, len(expected.texts)


class ExpectedIndex:
    """The passages and postings that an owner's index must have, as sums of hashes.

    ``texts`` has the embedded text of each passage by its number.
    """

    def __init__(self) -> None:
        self.passages = self.postings = 0
        self.texts: dict[int, str] = {}

    def add(self, first_position: int, first: int, parts: list[Passage]) -> None:
        """Add the passages of one memory or event; ``first`` is the number of the first one."""
        for number, part in enumerate(parts, first):
            self.texts[number] = part.embedded
            self.passages += _hash(number, first_position, part.start, len(part.text), part.length)
            for term in part.terms:
                self.postings += _hash(term, number, part.length)


def _compare_sessions(
    tx: Transaction, owner: Owner, where: str, expected: ExpectedIndex
) -> list[str]:
    """Compare the events and sessions in the index with those in the log."""
    hidden = session_projection.find_hidden(tx, owner)
    history = SessionReplay(log.all_entries(tx, owner))
    problems = []
    for entry in log.all_entries(tx, owner):
        if entry.op != "append" or entry.body is None or entry.session is None:
            continue
        event = sessions.find_event_at(tx, owner, entry.position)
        message = entry.body["message"]
        parts = sessions.passages_of_event(sessions.event_from_entry(entry, None))
        parts = [] if entry.session in hidden else parts
        size = len(log.encode(message).encode())
        written = (entry.session, entry.sequence, entry.body["at"], size)
        act = sessions.act_of(message, sessions.message_text(message))
        who = (role_of(message), speaker_of(message), act)
        if (
            event is None
            or (event.session, event.sequence, event.at, event.size) != written
            or (event.role, event.speaker, event.act) != who
        ):
            problems.append(f"{where}: event {entry.session}:{entry.sequence} is not as written")
        elif (event.passages, event.terms) != (
            len(parts),
            parts[0].length if parts else 0,
        ) or event.chain != history.chains[entry.position]:
            problems.append(f"{where}: event {entry.session}:{entry.sequence} is indexed wrongly")
        else:
            expected.add(event.position, event.first_passage, parts)
    listed = {row.session: row for row in sessions.list_all_sessions(tx, owner)}
    for name in sorted({*history.sessions, *listed}):
        if history.expected(name, hidden.get(name)) != _without_summary_size(listed.get(name)):
            problems.append(f"{where}: session {name!r} is not listed as it was written")
    if len(history.chains) != sessions.count_events(tx, owner):
        problems.append(f"{where}: the events differ from the log: run 'reverie rebuild'")
    return problems


def _compare_proposals(tx: Transaction, owner: Owner, where: str) -> list[str]:
    expected: dict[str, tuple[int, str | None, str | None]] = {}
    for entry in log.all_entries(tx, owner):
        body = entry.body or {}
        if entry.op == "propose" and entry.body is not None:
            expected[body["proposal"]] = (entry.position, None, None)
        elif entry.op in {"accept", "reject"} and body.get("proposal") in expected:
            position = expected[body["proposal"]][0]
            expected[body["proposal"]] = (position, entry.op, body.get("memory"))
    listed = {
        row[0]: row[1:]
        for row in tx.all(
            "SELECT proposal, position, answer, memory FROM proposals "
            "WHERE space = ? AND owner = ?",
            owner,
        )
    }
    if listed == expected:
        return []
    return [f"{where}: the proposals differ from the log: run 'reverie rebuild'"]


def _without_summary_size(row: sessions.SessionRow | None) -> sessions.SessionRow | None:
    """Return a session without the field that depends on summaries, which are not in the log."""
    return None if row is None else row._replace(unsummed=0)


def _last_touch(tx: Transaction, owner: Owner) -> int:
    row = tx.one("SELECT MAX(touch) FROM touched WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else int(row[0] or 0)


def _compare_documents(
    tx: Transaction, owner: Owner, where: str, expected: dict[str, tuple[int, str]]
) -> list[str]:
    listed = {
        row[0]: (row[1], row[2])
        for row in tx.all(
            "SELECT source, born, hash FROM documents WHERE space = ? AND owner = ?", owner
        )
    }
    if listed == expected:
        return []
    return [f"{where}: the documents differ from the log: run 'reverie rebuild'"]


def _compare_memory(
    where: str, entry: log.LogEntry, first_position: int, place: index.MemoryRow
) -> list[str]:
    state = entry.state(None)
    passages = (place.first_passage, place.passages)
    expected = index.memory_row(first_position, entry.position, state, *passages)
    same = place == expected and (place.passages > 0) == (state.forgotten_at is None)
    return [] if same else [f"{where}: memory {state.id} is not indexed as it was written"]


def _compare_vectors(
    tx: Transaction, runtime: Runtime, owner: Owner, where: str, texts: dict[int, str]
) -> list[str]:
    """Check that every passage has its vector or waits for it, and that nothing else has one."""
    generation = embeddings.read(tx)
    if generation is None:
        return []
    waiting = {
        row[0]
        for row in tx.all("SELECT passage FROM unembedded WHERE space = ? AND owner = ?", owner)
    }
    stored = set(tx.vector_numbers(owner, generation.number))
    problems = [
        f"{where}: passage {number} has a vector but does not exist: run 'reverie rebuild'"
        for number in sorted(stored - set(texts))[:3]
    ]
    if waiting - set(texts):
        problems.append(
            f"{where}: a passage that waits for its vector does not exist: run 'reverie rebuild'"
        )
    embedder = runtime.embedder
    local = embedder is not None and not embedder.remote
    if embedder is not None and local:
        for number in sorted(set(texts) - stored - waiting):
            if embedder.embed([texts[number]]).any():
                problems.append(f"{where}: passage {number} has no vector: run 'reverie rebuild'")
    remade = embedder if local and embedder and embedder.identity == generation.identity else None
    wrong = _wrong_vectors(tx, remade, owner, generation, sorted(stored & set(texts)), texts)
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
    texts: dict[int, str],
) -> list[int]:
    """Return the passages whose stored vector differs from what the embedder makes of their text.

    Without an embedder, return those whose vector is not of unit length.
    """
    import numpy as np

    wrong = []
    for i in range(0, len(numbers), CHUNK):
        part = numbers[i : i + CHUNK]
        rows = tx.vectors(owner, generation.number, np.array(part, np.int64))
        if embedder is None:
            far = np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1) > VECTOR_TOLERANCE
        else:
            made = embedder.embed([texts[number] for number in part])
            far = ~np.isclose(rows, made, rtol=0, atol=VECTOR_TOLERANCE).all(axis=1)
        wrong += [part[int(at)] for at in np.flatnonzero(far)]
    return wrong


def _hash(*values: object) -> int:
    text = "\0".join(map(str, values)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class LoggedEvent(NamedTuple):
    """An event of a session that was not erased."""

    sequence: int
    position: int
    message: Mapping[str, Any]


@dataclass(slots=True)
class LoggedSession:
    """The state of a session after some of its log entries were read.

    ``opened`` is the position of its first event, ``ended`` says whether it was erased.
    """

    fork: Origin | None
    opened: int
    ended: bool = False
    position: int = 0
    last_sequence: int = 0
    updated_at: int = 0
    events: list[LoggedEvent] = field(default_factory=list)


class SessionReplay:
    """Reconstructs every session of an owner from all of its log entries, in order."""

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
        session = self.sessions.get(entry.session)
        if session is None:
            session = self.sessions[entry.session] = LoggedSession(entry.origin, entry.position)
        elif session.ended:
            session.fork, session.opened, session.ended = entry.origin, entry.position, False
        session.position, session.last_sequence = entry.position, entry.sequence
        session.updated_at = entry.recorded_at
        if entry.body is not None:
            session.events.append(
                LoggedEvent(entry.sequence, entry.position, entry.body["message"])
            )

    def _end(self, name: str) -> None:
        erased = self.sessions[name]
        erased.ended = True
        for other in self.sessions.values():
            if other.fork is not None and other.fork.session == name:
                other.fork = erased.fork

    def _chain(self, name: str) -> None:
        """Compute the hash chain of a session's events; that of a fork starts with its parent's."""
        session = self.sessions[name]
        if all(event.position in self.chains for event in session.events):
            return
        chain = self._chain_at(session.fork, {name})
        for event in session.events:
            chain = self.chains[event.position] = chain_message(chain, event.message)

    def _chain_at(self, origin: Origin | None, visited: set[str]) -> str:
        """Return the hash chain up to the event that a fork starts from."""
        if origin is None or origin.session in visited or origin.session not in self.sessions:
            return EMPTY_CHAIN
        session = self.sessions[origin.session]
        before = [event for event in session.events if event.sequence <= origin.sequence]
        if not before:
            return self._chain_at(session.fork, {*visited, origin.session})
        self._chain(origin.session)
        return self.chains[before[-1].position]

    def expected(self, name: str, hidden_at: int | None) -> SessionRow | None:
        """Return the row that the index must have for a session, without its summary's part."""
        session = self.sessions.get(name)
        if session is None:
            return None
        users = [event.position for event in session.events if role_of(event.message) == "user"]
        chain = EMPTY_CHAIN if session.ended else self._chain_at(session.fork, {name})
        if session.events:
            chain = self.chains[session.events[-1].position]
        return SessionRow(
            session=name,
            opened=session.opened,
            position=session.position,
            last_sequence=session.last_sequence,
            events=len(session.events),
            updated_at=session.updated_at,
            hidden_at=hidden_at,
            titled=users[0] if users else None,
            forked_session=None if session.fork is None else session.fork.session,
            forked_sequence=None if session.fork is None else session.fork.sequence,
            chain=chain,
            unsummed=0,
            ended=int(session.ended),
        )
