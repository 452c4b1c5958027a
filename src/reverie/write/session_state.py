"""The state of a session besides its events: summary, scratchpad and frozen profile.

The summary is written by compare-and-swap on its epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from reverie.engine import log, log_rows, seals, sessions
from reverie.engine.sessions import EventRange
from reverie.errors import InvalidInput, StoreDamaged
from reverie.model import Summary, optional_datetime
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import require_utf8

MAX_SUMMARY_CHARS = 16_000
MAX_ITEMS = 32
# How many items a caller may give, blank ones included.
MAX_GIVEN_ITEMS = 1_000
MAX_ITEM_CHARS = 240
MAX_BYTES = 8 * 1024


class ScratchpadState(NamedTuple):
    """The working list of a session. ``updated_at`` is None when nothing was written."""

    items: tuple[str, ...] = ()
    updated_at: int | None = None

    @property
    def updated_time(self) -> datetime | None:
        return optional_datetime(self.updated_at)


class _State(NamedTuple):
    """The columns of a row of ``session_state``."""

    frozen: int | None = None
    epoch: int = 0
    upper: int = 0
    summary: str = ""
    scratchpad: str | None = None
    scratched_at: int | None = None
    often: str | None = None


def _read(tx: Transaction, owner: Owner, session: str, *, skip: bool = False) -> _State:
    """Read the state of a session. A damaged row raises StoreDamaged, or with ``skip`` is empty."""
    try:
        row = tx.one(
            f"SELECT {seals.STATE_COLUMNS}, seal FROM session_state "
            "WHERE space = ? AND owner = ? AND session = ?",
            (*owner, session),
        )
    except UnicodeDecodeError:
        row = (None,)
    if row is None:
        return _State()
    if row[-1] == seals.state_seal(row[:-1]):
        return _State(*row[3:-1])
    damage = StoreDamaged(
        f"the summary and the scratchpad of session {session!r} are damaged: run 'reverie verify' "
        "to see all damage, and 'reverie salvage' to save the rest",
        space=owner.space,
    )
    if not skip:
        raise damage
    log_rows.record_damage(tx, damage)
    return _State()


def _update(tx: Transaction, owner: Owner, session: str, **values: object) -> None:
    """Write some columns; raise StoreDamaged rather than overwrite a damaged row."""
    _read(tx, owner, session)
    ensure_row(tx, owner, session)
    changed = ", ".join(f"{name} = ?" for name in values)
    tx.run(
        f"UPDATE session_state SET {changed} WHERE space = ? AND owner = ? AND session = ?",
        (*values.values(), *owner, session),
    )
    seals.seal_state(tx, owner, session)


def ensure_row(tx: Transaction, owner: Owner, session: str) -> None:
    """Insert the row of a session unless there is one."""
    tx.run(
        f"INSERT INTO session_state ({seals.STATE_COLUMNS}, seal) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (space, owner, session) DO NOTHING",
        (*owner, session, *_State(), seals.state_seal((*owner, session, *_State()))),
    )


def exists(tx: Transaction, owner: Owner, session: str) -> bool:
    """Tell whether a session has a summary or a scratchpad."""
    row = tx.one(
        "SELECT 1 FROM session_state WHERE space = ? AND owner = ? AND session = ? "
        "AND (summary <> '' OR scratchpad IS NOT NULL)",
        (*owner, session),
    )
    return row is not None


def wipe(tx: Transaction, owner: Owner, session: str) -> None:
    """Clear the state, and advance the epoch so that a summary being written is refused."""
    epoch = _read(tx, owner, session).epoch + 1
    _update(tx, owner, session, **_State(epoch=epoch)._asdict())


# -- the summary ----------------------------------------------------------------------------------


def read_summary(tx: Transaction, owner: Owner, session: str, *, skip: bool = False) -> Summary:
    """Read the summary that a session itself has. ``skip``: a damaged one is empty."""
    kept = _read(tx, owner, session, skip=skip)
    return Summary(kept.summary, kept.epoch, kept.upper)


def find_summary(
    tx: Transaction, owner: Owner, ranges: Sequence[EventRange], *, skip: bool = False
) -> Summary:
    """Read the summary of a session; until it has one, that of the session it was forked from.

    A summary that covers events after the fork is not used. ``skip``: a damaged one is empty.
    """
    if not ranges:
        return Summary()
    own = read_summary(tx, owner, ranges[-1].session, skip=skip)
    for range_ in reversed(ranges[:-1]):
        if own.text:
            break
        earlier = read_summary(tx, owner, range_.session, skip=skip)
        if (
            earlier.text
            and range_.end_sequence is not None
            and earlier.upper <= range_.end_sequence
        ):
            return Summary(earlier.text, own.epoch, earlier.upper)
    return own


def write_summary(
    tx: Transaction, owner: Owner, session: str, text: str, upper: int, expected_epoch: int
) -> Summary:
    """Write the next epoch, or return the current one with ``applied=False`` if that is newer."""
    current = read_summary(tx, owner, session)
    if current.epoch != expected_epoch:
        return Summary(current.text, current.epoch, current.upper, applied=False)
    if upper < current.upper:
        raise InvalidInput(
            f"the summary covers events up to {current.upper}: a new one must reach at least "
            f"as far, not {upper}"
        )
    _update(tx, owner, session, summary=text, upper=upper, epoch=expected_epoch + 1)
    sessions.count_unsummed(tx, owner, session)
    return Summary(text, expected_epoch + 1, upper)


def put_summary(tx: Transaction, owner: Owner, session: str, summary: Summary) -> None:
    """Write a summary from another store or a vault, with the epoch it had there."""
    _update(tx, owner, session, summary=summary.text, upper=summary.upper, epoch=summary.epoch)
    sessions.count_unsummed(tx, owner, session)


def check_summary(text: str, upper: int) -> str:
    """Check a summary and the last sequence it covers; return its text as it can be stored."""
    if isinstance(upper, bool) or not isinstance(upper, int) or upper < 0:
        raise InvalidInput(f"upper must be the sequence of an event, not {upper!r}")
    if len(require_utf8(text, "the summary")) > MAX_SUMMARY_CHARS:
        raise InvalidInput(f"a summary has at most {MAX_SUMMARY_CHARS} characters: shorten it")
    return text.replace("\0", " ")


# -- the scratchpad -------------------------------------------------------------------------------


def check_item_count(items: Iterable[str]) -> list[str]:
    """Return the items as a list; raise InvalidInput for a text or far too many items."""
    if isinstance(items, str):
        raise InvalidInput("the scratchpad takes a list of items, not one text")
    given = list(islice(items, MAX_GIVEN_ITEMS + 1))
    if len(given) > MAX_GIVEN_ITEMS:
        raise InvalidInput(f"the scratchpad has at most {MAX_ITEMS} items")
    return given


def check_items(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items trimmed and without blank ones; raise InvalidInput if they are too many."""
    kept = [item for item in (require_utf8(each, "an item").strip() for each in items) if item]
    if not kept:
        raise InvalidInput("the scratchpad needs an item that is not blank: 'clear' empties it")
    if len(kept) > MAX_ITEMS:
        raise InvalidInput(
            f"the scratchpad holds at most {MAX_ITEMS} items, these are {len(kept)}: leave some out"
        )
    for item in kept:
        if len(item) > MAX_ITEM_CHARS:
            raise InvalidInput(
                f"an item has at most {MAX_ITEM_CHARS} characters, this has {len(item)}: shorten it"
            )
    size = sum(len(item.encode()) for item in kept)
    if size > MAX_BYTES:
        raise InvalidInput(
            f"the scratchpad holds at most {MAX_BYTES} bytes, these are {size}: leave some out"
        )
    return tuple(kept)


def read_scratchpad(tx: Transaction, owner: Owner, session: str) -> ScratchpadState:
    """Read the scratchpad of a session."""
    kept = _read(tx, owner, session)
    if kept.scratchpad is None:
        return ScratchpadState()
    return ScratchpadState(tuple(json.loads(kept.scratchpad)), kept.scratched_at)


def write_scratchpad(tx: Transaction, owner: Owner, session: str, pad: ScratchpadState) -> None:
    """Replace the scratchpad of a session."""
    items = log.encode(pad.items) if pad.items else None
    _update(tx, owner, session, scratchpad=items, scratched_at=pad.updated_at)


# -- the frozen profile ---------------------------------------------------------------------------


class FrozenProfile(NamedTuple):
    """At which position of the log a session sees the profile, and what was recalled often then.

    ``often`` has the ids of memories, the most frequent first.
    """

    position: int
    often: tuple[str, ...] = ()


def frozen_profile(tx: Transaction, owner: Owner, session: str) -> FrozenProfile | None:
    """Return how a session sees the profile, if it has seen it."""
    state = _read(tx, owner, session, skip=True)
    if state.frozen is None:
        return None
    return FrozenProfile(state.frozen, tuple(json.loads(state.often or "[]")))


def inherited_profile(
    tx: Transaction, owner: Owner, ranges: Sequence[EventRange]
) -> FrozenProfile | None:
    """Return that of the nearest session in a fork's lineage that has seen the profile."""
    for range_ in reversed(ranges):
        frozen = frozen_profile(tx, owner, range_.session)
        if frozen is not None:
            return frozen
    return None


def freeze_profile(
    tx: Transaction, owner: Owner, session: str, frozen: FrozenProfile, *, again: bool = False
) -> None:
    """Set how a session sees the profile, once unless ``again``."""
    if again or _read(tx, owner, session).frozen is None:
        often = log.encode(frozen.often) if frozen.often else None
        _update(tx, owner, session, frozen=frozen.position, often=often)
