"""Sessions and proposals as the log tells them: one entry after the other, or all of them anew."""

from __future__ import annotations

from collections.abc import Callable

from reverie.engine import log, sessions
from reverie.engine.log import LogEntry
from reverie.protocols import Owner, Transaction
from reverie.write import events, proposals, writer
from reverie.write.runtime import Runtime


def apply_entry(
    tx: Transaction, runtime: Runtime, owner: Owner, entry: LogEntry, *, indexed: bool = True
) -> None:
    """Let the views show one entry about a session. Not ``indexed``: no recall finds it."""
    assert entry.session is not None
    if entry.op == "append":
        _apply_event(tx, runtime, owner, entry, indexed)
    elif entry.op in {"hide", "restore"}:
        events.apply_hidden(tx, runtime, owner, entry)
    elif entry.op == "erase":
        if sessions.is_session_erasure(entry):
            sessions.mark_ended(tx, owner, entry.session)
    else:
        proposals.apply_entry(tx, owner, entry)


def _apply_event(
    tx: Transaction, runtime: Runtime, owner: Owner, entry: LogEntry, indexed: bool
) -> None:
    if entry.body is None or not indexed:
        sessions.add_event(tx, owner, entry, [])
        return
    text = events.prepare_stored_message(tx, runtime, entry.body["message"])
    first = sessions.add_event(tx, owner, entry, text.passages)
    if text.passages:
        writer.put_vectors(tx, runtime, owner, first, text)


def rebuild(tx: Transaction, runtime: Runtime, owner: Owner, advance: Callable[[], None]) -> None:
    """All sessions and proposals of an owner, whose views are empty."""
    hidden = find_hidden(tx, owner)
    names = set()
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        names.add(entry.session)
        if entry.op in {"hide", "restore"}:
            continue
        apply_entry(tx, runtime, owner, entry, indexed=entry.session not in hidden)
        if entry.op == "append" and entry.body is not None:
            advance()
    sessions.rechain_forks(tx, owner)
    for name in names:
        sessions.set_hidden(tx, owner, name, hidden.get(name))
        sessions.count_unsummed(tx, owner, name)


def find_hidden(tx: Transaction, owner: Owner) -> dict[str, int]:
    """The sessions that are hidden in the end, and since when."""
    hidden: dict[str, int] = {}
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        if entry.op == "hide":
            hidden.setdefault(entry.session, entry.recorded_at)
        elif entry.op == "restore" or sessions.is_session_erasure(entry):
            hidden.pop(entry.session, None)
    return hidden
