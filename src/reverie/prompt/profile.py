"""The profile: the block of memories in a prompt, byte-identical for the same memories.

Content is data. It is on one line after its id, so that no newline, heading or bracket in it can
look like structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby

from reverie.engine import index, index_check, log
from reverie.model import UNTRUSTED, Memory
from reverie.prompt.escape import escape_line, escape_name
from reverie.protocols import Owner, Transaction
from reverie.write.profile_cache import CachedProfile, ProfileCache

CHUNK = 25
MAX_MISSES = 5
MAX_POSITION = 1 << 62

INTRO = (
    "## Your Memory\n"
    "\n"
    "The following is information you've learned about the user from previous conversations.\n"
    "Use this context naturally."
)
UPDATE_HINT = " To update a memory, use the update_memory tool with the memory ID."
HEADING = f"{INTRO}{UPDATE_HINT}\n"


def choose_cached(
    cache: ProfileCache,
    tx: Transaction,
    owners: Mapping[Owner, str | None],
    now: int,
    position: int | None,
    tokens: int,
    count_tokens: Callable[[str], int],
) -> list[tuple[int, Memory]]:
    """The memories of the profile that fit, as of a position or now; cached between turns.

    Without the cache, choosing them would take as long as a recall on every turn.
    """
    key = (*owners.items(), position, tokens)
    state_versions = [index.state_version(tx, owner) for owner in owners]
    cached = cache.get(key, state_versions, now)
    if cached is not None:
        return cached
    expiry_times = [float("inf")]

    def noting_expiry() -> Iterator[tuple[int, Memory]]:
        for first_position, memory in eligible_memories(tx, owners, now, position):
            if memory.expires_at is not None:
                expiry_times.append(memory.expires_at)
            yield first_position, memory

    chosen = choose(noting_expiry(), tokens, count_tokens)
    if not tx.writing:  # what a writer sees may be rolled back
        cache.put(key, CachedProfile(state_versions, now, min(expiry_times), chosen))
    return chosen


def eligible_memories(
    tx: Transaction, owners: Mapping[Owner, str | None], now: int, position: int | None = None
) -> Iterator[tuple[int, Memory]]:
    """The memories that a profile may show: pinned ones, then facts, the newest first.

    Each is after the position of its first version, in the state it had at ``position`` or has now.
    Memories are read as they are needed; those that changed since ``position`` are all read first.
    """
    changed: list[tuple[int, Memory]] = []
    if position is not None:
        for owner, user in owners.items():
            changed += _changed_since(tx, owner, user, now, position)
        changed.sort(key=_newest_key)
    for pinned in (True, False):
        yield from merge(
            [pair for pair in changed if pair[1].pinned == pinned],
            *(
                _unchanged_since(tx, owner, user, now, position, pinned)
                for owner, user in owners.items()
            ),
            key=_newest_key,
        )


def _newest_key(pair: tuple[int, Memory]) -> int:
    return -pair[0]


def _unchanged_since(
    tx: Transaction, owner: Owner, user: str | None, now: int, position: int | None, pinned: bool
) -> Iterator[tuple[int, Memory]]:
    """The eligible memories that have not changed since a position."""
    before = MAX_POSITION if position is None else position + 1
    while True:
        rows = index.profile_memories(tx, owner, before, now, pinned=pinned, limit=CHUNK)
        unchanged = [row for row in rows if position is None or row.position <= position]
        for row, entry in index_check.read_current_entries(tx, owner, unchanged):
            memory = entry.state(user)
            visible = memory.session is None and memory.forgotten_at is None
            if visible and memory.trust not in UNTRUSTED:
                yield row.first_position, memory
        if len(rows) < CHUNK:
            return
        before = rows[-1].first_position


def _changed_since(
    tx: Transaction, owner: Owner, user: str | None, now: int, position: int
) -> Iterator[tuple[int, Memory]]:
    """The memories eligible at a position that have changed since, in their state of then."""
    changed = index.changed_since(tx, owner, position, now)
    entries = log.find_at_positions(tx, owner, [at for _, at in changed])
    time = log.recorded_time_at(tx, owner, position) if changed else 0
    for first_position, at in changed:
        entry = entries.get(at)
        if entry is None or entry.body is None:
            continue
        memory = entry.state(user)
        was_alive = memory.forgotten_at is None and not memory.is_expired(time)
        if was_alive and (memory.pinned or memory.kind == "fact") and memory.trust not in UNTRUSTED:
            yield first_position, memory


def choose(
    eligible: Iterable[tuple[int, Memory]], tokens: int, count_tokens: Callable[[str], int]
) -> list[tuple[int, Memory]]:
    """The memories that fit, in the order of display; stops after ``MAX_MISSES`` that do not."""
    left = tokens - count_tokens(HEADING)
    chosen: list[tuple[int, Memory]] = []
    categories: set[str] = set()
    misses = 0
    for first_position, memory in eligible:
        cost = count_tokens(_line(memory))
        if memory.category not in categories:
            cost += count_tokens(_title(memory.category))
        if cost <= left:
            left -= cost
            categories.add(memory.category)
            chosen.append((first_position, memory))
            continue
        misses += 1
        if misses == MAX_MISSES:
            break
    chosen.sort(key=lambda pair: (pair[1].category, pair[1].created_at, pair[0], pair[1].id))
    return chosen


def render(chosen: Iterable[tuple[int, Memory]], *, with_tool: bool = True) -> str:
    """Render the profile; empty without memories. ``with_tool``: the model has update_memory."""
    blocks = [
        _title(category) + "".join(_line(memory) for _, memory in group)
        for category, group in groupby(chosen, key=lambda pair: pair[1].category)
    ]
    heading = HEADING if with_tool else f"{INTRO}\n"
    return heading + "".join(blocks) if blocks else ""


def _title(category: str) -> str:
    return f"\n### {escape_name(category).replace('_', ' ').title()}\n"


def _line(memory: Memory) -> str:
    subject = f"[{escape_name(memory.subject)}] " if memory.subject else ""
    return f"- [id:{memory.id}] {subject}{escape_line(memory.content)}\n"
