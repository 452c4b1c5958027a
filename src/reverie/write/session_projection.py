"""Update the tables of sessions, events and proposals from log entries.

``apply_entry`` does so for one entry, ``rebuild`` for all entries of an owner.
"""

from __future__ import annotations

from collections.abc import Callable

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.protocols import Owner, Transaction
from reverie.write import events, proposals
from reverie.write.writer import Writer


def apply_entry(w: Writer, entry: LogEntry, *, indexed: bool = True) -> None:
    """Apply a stored entry about a session. An event that is not ``indexed`` is not recalled."""
    assert entry.session is not None
    if entry.op == "append":
        _apply_event(w, entry, indexed)
    elif entry.op in {"hide", "restore"}:
        events.apply_visibility(w, entry)
    elif entry.op == "erase":
        if sessions.is_session_erasure(entry):
            sessions.mark_ended(w.tx, w.owner, entry.session)
    else:
        proposals.apply_entry(w.tx, w.owner, entry)


def _apply_event(w: Writer, entry: LogEntry, indexed: bool) -> None:
    if entry.body is None or not indexed:
        sessions.add_event(w.tx, w.owner, entry, [])
        return
    text = events.prepare_stored_message(w, entry.body["message"])
    first = sessions.add_event(w.tx, w.owner, entry, text.passages)
    if text.passages:
        w.put_vectors(first, text)


def rebuild(w: Writer, advance: Callable[[], None]) -> None:
    """Fill the empty tables of an owner from the log, calling ``advance`` for each event."""
    tx, owner = w.tx, w.owner
    hidden = find_hidden(tx, owner)
    names = set()
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        names.add(entry.session)
        if entry.op in {"hide", "restore"}:
            continue
        apply_entry(w, entry, indexed=entry.session not in hidden)
        if entry.op == "append" and entry.body is not None:
            advance()
    sessions.rechain_forks(tx, owner)
    for name in names:
        sessions.set_hidden(tx, owner, name, hidden.get(name))
        sessions.count_unsummed(tx, owner, name)


def find_hidden(tx: Transaction, owner: Owner) -> dict[str, int]:
    """Map each session that is hidden at the end of the log to the time it was hidden."""
    hidden: dict[str, int] = {}
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        if entry.op == "hide":
            hidden.setdefault(entry.session, entry.recorded_at)
        elif entry.op == "restore" or sessions.is_session_erasure(entry):
            hidden.pop(entry.session, None)
    return hidden
