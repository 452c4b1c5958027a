"""Does the index say what the log says?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from reverie.engine import index, log
from reverie.memory import generations
from reverie.memory.resources import Resources
from reverie.model import VerifyReport
from reverie.protocols import Owner, Transaction
from reverie.text.normalise import subject_key

_MODULUS = 1 << 64


def compare(
    tx: Transaction, resources: Resources, owners: Iterable[Owner], problems: list[str]
) -> VerifyReport:
    """Derive from the log what the index must hold, and compare."""
    found = list(problems)
    owners = list(owners)
    digest = hashlib.sha256()
    memories = versions = passages = 0
    for owner in owners:
        for entry in log.all_entries(tx, owner):
            versions += 1
            digest.update(log.encode([entry.uuid, entry.op, entry.body]).encode())
        counted = _compare_owner(tx, resources, owner, found)
        memories, passages = memories + counted[0], passages + counted[1]
    spaces = len({owner.space for owner in owners})
    return VerifyReport(spaces, memories, versions, passages, digest.hexdigest(), tuple(found))


def _compare_owner(
    tx: Transaction, resources: Resources, owner: Owner, problems: list[str]
) -> tuple[int, int]:
    where = f"space {owner.space}, owner {owner.number}"
    places = {
        place.memory: place
        for place in index.places(tx, owner, index.Filter(include_forgotten=True))
    }
    wanted_postings = wanted_passages = wanted_tags = terms = live = 0
    kinds = {"fact": 0, "note": 0}
    count = 0
    said: dict[int, str] = {}
    for _, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
        count += 1
        state = entry.state(None)
        place = places.pop(state.id, None)
        if place is None:
            problems.append(f"{where}: memory {state.id} is in the log but not in the index")
            continue
        problems.extend(_compare_place(where, entry, place))
        wanted_tags += sum(_hash(tag, place.born) for tag in state.tags)
        if state.forgotten_at is not None:
            continue
        kinds[state.kind] += 1
        for i, part in enumerate(index.passages_of(state.content)):
            number = place.first_passage + i
            live += 1
            terms += part.terms.length
            said[number] = part.text
            wanted_passages += _hash(number, place.born, part.start, len(part.text))
            for term, tf in part.terms.counts.items():
                wanted_postings += _hash(term, number, tf, part.terms.length)
    problems.extend(f"{where}: memory {id} is in the index but not in the log" for id in places)
    for name, columns, wanted in (
        ("passages", "passage, born, start, length", wanted_passages),
        ("postings", "term, passage, tf, len", wanted_postings),
        ("tags", "tag, born", wanted_tags),
    ):
        stored = sum(
            _hash(*row)
            for row in tx.all(f"SELECT {columns} FROM {name} WHERE space = ? AND owner = ?", owner)
        )
        if stored % _MODULUS != wanted % _MODULUS:
            problems.append(f"{where}: the {name} differ from the log: run 'reverie rebuild'")
    kept = index.statistics(tx, owner)
    if (kept.passages, kept.terms, kept.facts, kept.notes) != (
        live,
        terms,
        kinds["fact"],
        kinds["note"],
    ):
        problems.append(f"{where}: the statistics differ from the log: run 'reverie rebuild'")
    problems.extend(_compare_vectors(tx, resources, owner, where, said))
    return count, live


def _compare_place(where: str, entry: log.Entry, place: index.Place) -> list[str]:
    state = entry.state(None)
    same = (
        place.position == entry.position
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
    tx: Transaction, resources: Resources, owner: Owner, where: str, said: dict[int, str]
) -> list[str]:
    """Every living passage has its vector or waits for it, and no other passage has one."""
    generation = generations.read(tx)
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
    for number in sorted(set(said) - stored - waiting):
        embedder = resources.embedder
        if embedder is not None and not embedder.remote and embedder.embed([said[number]]).any():
            problems.append(f"{where}: passage {number} has no vector: run 'reverie rebuild'")
    return problems


def _hash(*values: object) -> int:
    text = "\0".join(map(str, values)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
