"""Sessions and proposals as the log tells them: one entry after the other, or all of them anew."""

from __future__ import annotations

from collections.abc import Callable

from reverie.engine import log, sessions
from reverie.engine.log import Entry
from reverie.protocols import Owner, Transaction
from reverie.write import events, proposals, writer
from reverie.write.runtime import Resources


def show(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, *, indexed: bool = True
) -> None:
    """Let the views show one entry about a session. Not ``indexed``: no recall finds it."""
    assert entry.session is not None
    if entry.op == "append":
        _show_event(tx, resources, owner, entry, indexed)
    elif entry.op in {"hide", "restore"}:
        events.show(tx, resources, owner, entry)
    elif entry.op == "erase":
        if sessions.ends(entry):
            sessions.end(tx, owner, entry.session)
    else:
        proposals.put(tx, owner, entry)


def _show_event(
    tx: Transaction, resources: Resources, owner: Owner, entry: Entry, indexed: bool
) -> None:
    if entry.body is None or not indexed:
        sessions.add_event(tx, owner, entry, [])
        return
    text = events.text_of_event(tx, resources, entry.body["message"])
    first = sessions.add_event(tx, owner, entry, text.passages)
    if text.passages:
        writer.put_vectors(tx, resources, owner, first, text)


def rebuild(
    tx: Transaction, resources: Resources, owner: Owner, advance: Callable[[], None]
) -> None:
    """All sessions and proposals of an owner, whose views are empty."""
    hidden = hidden_in(tx, owner)
    names = set()
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        names.add(entry.session)
        if entry.op in {"hide", "restore"}:
            continue
        show(tx, resources, owner, entry, indexed=entry.session not in hidden)
        if entry.op == "append" and entry.body is not None:
            advance()
    sessions.rechain_late(tx, owner)
    for name in names:
        sessions.set_hidden(tx, owner, name, hidden.get(name))
        sessions.count_unsummed(tx, owner, name)


def hidden_in(tx: Transaction, owner: Owner) -> dict[str, int]:
    """The sessions that are hidden in the end, and since when."""
    hidden: dict[str, int] = {}
    for entry in log.all_entries(tx, owner):
        if entry.session is None:
            continue
        if entry.op == "hide":
            hidden.setdefault(entry.session, entry.recorded_at)
        elif entry.op == "restore" or sessions.ends(entry):
            hidden.pop(entry.session, None)
    return hidden
