"""Entries about sessions taken in from an export, without doing anything twice."""

from __future__ import annotations

from dataclasses import replace

from reverie.engine import log, sessions
from reverie.engine.log import Entry
from reverie.errors import InvalidInput
from reverie.memory import proposals, replay, writes
from reverie.memory.resources import Resources
from reverie.model import Origin
from reverie.protocols import Owner, Transaction


def add_session_entry(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, names: dict[str, str]
) -> bool:
    """One entry of an export: what follows here, or nothing when it is here already.

    ``names`` says what things of the export are called here; a session keeps its name or stays out.
    """
    assert entry.session is not None
    same = log.in_session(tx, owner, entry.session, entry.sequence, entry.uuid)
    name = f"session {entry.session}"
    if entry.op == "append" and name not in names:
        begun = sessions.find(tx, owner, entry.session) is not None
        names[name] = "same" if same or not begun else "other"
    if same:
        return False
    if names.get(name) == "other":
        raise InvalidInput(f"session {entry.session} is another conversation here")
    entry = _with_parent(tx, owner, entry, names)
    _require_place(tx, owner, entry)
    entry = append(tx, resources, owner, _with_memory_here(tx, owner, entry, names))
    replay.show(tx, resources, owner, entry)
    return True


def append(tx: Transaction, resources: Resources, owner: Owner, entry: Entry) -> Entry:
    """The entry as it stands in the log here: where it says that it stood, else behind all.

    A key that is known here stays with whom it was.
    """
    if entry.key is not None and log.by_key(tx, owner, entry.key) is not None:
        entry = replace(entry, key=None, request=None)
    now = min(entry.recorded_at, resources.clock.now())
    if entry.position:
        position, recorded_at = log.advance_to(tx, owner, entry.position, now)
    else:
        position, recorded_at = log.advance(tx, owner.space, now)
    entry = replace(entry, position=position, recorded_at=recorded_at)
    writes.append(tx, resources, owner, entry)
    return entry


def _with_parent(tx: Transaction, owner: Owner, entry: Entry, names: dict[str, str]) -> Entry:
    """A fork goes on from a session of the export, never from another one of that name here."""
    if entry.origin is None:
        return entry
    if entry.op != "append" or entry.origin.session == entry.session:
        raise InvalidInput("only the first event of a fork has an origin, in another session")
    same = names.get(f"session {entry.origin.session}") == "same"
    if same or sessions.find(tx, owner, entry.origin.session) is None:
        return entry
    return replace(entry, origin=None)


def without_other_sessions(entry: Entry, names: dict[str, str]) -> Entry:
    """A memory does not come from a session that is another one here, nor belong to it."""
    if entry.body and names.get(f"session {entry.body.get('session')}") == "other":
        raise InvalidInput(f"session {entry.body['session']} is another conversation here")
    if entry.origin and names.get(f"session {entry.origin.session}") == "other":
        return replace(entry, origin=None)
    return entry


def _require_place(tx: Transaction, owner: Owner, entry: Entry) -> None:
    known = sessions.find(tx, owner, entry.session or "")
    if entry.op == "append":
        last = 0 if known is None else known.last_sequence
        if (entry.sequence or 0) <= last:
            erased = known is not None and known.ended
            raise InvalidInput(
                f"session {entry.session} was erased here and stays so"
                if erased
                else f"session {entry.session} has gone past sequence {entry.sequence} here"
            )
        if known is not None and known.hidden_at is not None and entry.body is not None:
            raise InvalidInput(f"session {entry.session} is hidden here: restore it first")
    elif known is None:
        raise InvalidInput(f"there is no session {entry.session} here")
    living = bool(known and known.events)
    if entry.op == "erase" and entry.sequence is not None and entry.session is not None:
        here = Origin(entry.session, entry.sequence)
        living = sessions.entry_of(tx, owner, here) is not None
    if entry.op == "erase" and living:
        what = "it" if entry.sequence is None else f"event {entry.sequence}"
        raise InvalidInput(
            f"{what} of session {entry.session} was erased where it comes from: erase it here too"
        )
    if entry.op in {"propose", "accept", "reject"}:
        _require_proposal(tx, owner, entry)


def _with_memory_here(tx: Transaction, owner: Owner, entry: Entry, names: dict[str, str]) -> Entry:
    """What was accepted names its memory as it is called here, if it came along."""
    memory = (entry.body or {}).get("memory")
    if entry.op != "accept" or entry.body is None or memory is None:
        return entry
    memory = names.get(memory, memory)
    first = log.versions(tx, owner, memory)[:1]
    if first and first[0].origin == (entry.session, entry.sequence):
        return replace(entry, body={**entry.body, "memory": memory})
    return replace(entry, body={k: v for k, v in entry.body.items() if k != "memory"})


def _require_proposal(tx: Transaction, owner: Owner, entry: Entry) -> None:
    name = (entry.body or {}).get("proposal")
    if entry.op == "propose" and name is not None and proposals.exists(tx, owner, name):
        raise InvalidInput(f"proposal {name} is another one here")
