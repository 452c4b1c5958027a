"""What a session keeps beside its events: its summary, its scratchpad, its view of the profile.

The summary is one state, written by compare-and-swap: who read an older one is told so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from reverie.engine import log, log_rows, seals, sessions
from reverie.engine.sessions import EventRange
from reverie.errors import InvalidInput, StoreDamaged
from reverie.model import Summary
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import require_utf8

MAX_SUMMARY_CHARS = 16_000
MAX_ITEMS = 32
# Of what is given, blank ones included.
MAX_GIVEN_ITEMS = 1_000
MAX_ITEM_CHARS = 240
MAX_BYTES = 8 * 1024


class ScratchpadState(NamedTuple):
    """The working list of a session. ``updated_at`` is None when nothing was written."""

    items: tuple[str, ...] = ()
    updated_at: int | None = None


class _State(NamedTuple):
    """All that a session keeps beside its events."""

    frozen: int | None = None
    epoch: int = 0
    upper: int = 0
    summary: str = ""
    scratchpad: str | None = None
    scratched_at: int | None = None


def _read(tx: Transaction, owner: Owner, session: str, *, skip: bool = False) -> _State:
    """What is kept, if it is as it was written. ``skip``: what is damaged is as if not there."""
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
    """Write some of it, over what is there and is as it was written."""
    _read(tx, owner, session)
    ensure_row(tx, owner, session)
    changed = ", ".join(f"{name} = ?" for name in values)
    tx.run(
        f"UPDATE session_state SET {changed} WHERE space = ? AND owner = ? AND session = ?",
        (*values.values(), *owner, session),
    )
    seals.seal_state(tx, owner, session)


def ensure_row(tx: Transaction, owner: Owner, session: str) -> None:
    tx.run(
        "INSERT INTO session_state (space, owner, session, frozen, epoch, upper, summary, "
        "scratchpad, scratched_at, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (space, owner, session) DO NOTHING",
        (*owner, session, *_State(), seals.state_seal((*owner, session, *_State()))),
    )


def exists(tx: Transaction, owner: Owner, session: str) -> bool:
    """Whether a session has anything beside its events."""
    row = tx.one(
        "SELECT 1 FROM session_state WHERE space = ? AND owner = ? AND session = ? "
        "AND (summary <> '' OR scratchpad IS NOT NULL)",
        (*owner, session),
    )
    return row is not None


def wipe(tx: Transaction, owner: Owner, session: str) -> None:
    """Leave nothing but an epoch: whoever is writing a summary has lost the race."""
    epoch = _read(tx, owner, session).epoch + 1
    _update(tx, owner, session, **_State(epoch=epoch)._asdict())


# -- the summary ----------------------------------------------------------------------------------


def read_summary(tx: Transaction, owner: Owner, session: str, *, skip: bool = False) -> Summary:
    kept = _read(tx, owner, session, skip=skip)
    return Summary(kept.summary, kept.epoch, kept.upper)


def find_summary(
    tx: Transaction, owner: Owner, stretches: Sequence[EventRange], *, skip: bool = False
) -> Summary:
    """The summary of a session; until it has its own, that of what it was forked from.

    Only where that covers nothing behind the fork. ``skip``: a damaged one is as if not there.
    """
    if not stretches:
        return Summary()
    own = read_summary(tx, owner, stretches[-1].session, skip=skip)
    for stretch in reversed(stretches[:-1]):
        if own.text:
            break
        earlier = read_summary(tx, owner, stretch.session, skip=skip)
        if (
            earlier.text
            and stretch.end_sequence is not None
            and earlier.upper <= stretch.end_sequence
        ):
            return Summary(earlier.text, own.epoch, earlier.upper)
    return own


def write_summary(
    tx: Transaction, owner: Owner, session: str, text: str, upper: int, expected_epoch: int
) -> Summary:
    """The next epoch, or the current state with ``applied=False`` when another came first."""
    current = read_summary(tx, owner, session)
    if current.epoch != expected_epoch:
        return Summary(current.text, current.epoch, current.upper, applied=False)
    if upper < current.upper:
        raise InvalidInput(
            f"the summary covers events up to {current.upper}: {upper} would leave some out"
        )
    _update(tx, owner, session, summary=text, upper=upper, epoch=expected_epoch + 1)
    sessions.count_unsummed(tx, owner, session)
    return Summary(text, expected_epoch + 1, upper)


def put_summary(tx: Transaction, owner: Owner, session: str, summary: Summary) -> None:
    """A summary as it was elsewhere, its epoch included."""
    _update(tx, owner, session, summary=summary.text, upper=summary.upper, epoch=summary.epoch)
    sessions.count_unsummed(tx, owner, session)


def check_summary(text: str, upper: int) -> str:
    if isinstance(upper, bool) or not isinstance(upper, int) or upper < 0:
        raise InvalidInput(f"upper must be the sequence of an event, not {upper!r}")
    if len(require_utf8(text, "the summary")) > MAX_SUMMARY_CHARS:
        raise InvalidInput(f"a summary has at most {MAX_SUMMARY_CHARS} characters: shorten it")
    return text.replace("\0", " ")


# -- the scratchpad -------------------------------------------------------------------------------


def check_item_count(items: Iterable[str]) -> list[str]:
    """The items as they are, if they are few enough to be worth looking at."""
    if isinstance(items, str):
        raise InvalidInput("the scratchpad takes a list of items, not one text")
    given = list(islice(items, MAX_GIVEN_ITEMS + 1))
    if len(given) > MAX_GIVEN_ITEMS:
        raise InvalidInput(f"the scratchpad has at most {MAX_ITEMS} items")
    return given


def check_items(items: Iterable[str]) -> tuple[str, ...]:
    """The items trimmed, blank ones left out. Too much is an error, never a cut."""
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
    kept = _read(tx, owner, session)
    if kept.scratchpad is None:
        return ScratchpadState()
    return ScratchpadState(tuple(json.loads(kept.scratchpad)), kept.scratched_at)


def write_scratchpad(tx: Transaction, owner: Owner, session: str, pad: ScratchpadState) -> None:
    items = log.encode(pad.items) if pad.items else None
    _update(tx, owner, session, scratchpad=items, scratched_at=pad.updated_at)


# -- where the profile stands ---------------------------------------------------------------------


def profile_position(tx: Transaction, owner: Owner, session: str) -> int | None:
    """The position a session first saw the profile at."""
    return _read(tx, owner, session, skip=True).frozen


def inherited_profile_position(
    tx: Transaction, owner: Owner, stretches: Sequence[EventRange]
) -> int | None:
    """The same, or where the nearest session it was forked from did."""
    for stretch in reversed(stretches):
        frozen = profile_position(tx, owner, stretch.session)
        if frozen is not None:
            return frozen
    return None


def freeze_profile(
    tx: Transaction, owner: Owner, session: str, position: int, *, again: bool = False
) -> None:
    if again or _read(tx, owner, session).frozen is None:
        _update(tx, owner, session, frozen=position)
