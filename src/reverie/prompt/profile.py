"""The profile: the block of memories in a prompt, byte-identical for the same memories.

Content is data. It is on one line after its id, so that no newline, heading or bracket in it can
look like structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby, zip_longest

from reverie.engine import index, index_check, log
from reverie.engine.index import MemoryRow, ProfileGroup
from reverie.model import UNTRUSTED, Memory
from reverie.prompt.escape import escape_line, escape_name, subject_prefix
from reverie.prompt.validity import newest_first, validity_note
from reverie.protocols import Owner, Transaction
from reverie.write import recall_log
from reverie.write.profile_cache import CachedProfile, ChosenProfile, ProfileCache
from reverie.write.session_state import FrozenProfile

CHUNK = 25
MAX_MISSES = 5
MAX_POSITION = 1 << 62

INTRO = (
    "## Your Memory\n"
    "\n"
    "The following is information you've learned about the user from previous conversations.\n"
    "Use this context naturally."
)
UPDATE_HINT = " To update a memory, use the {tool} tool with the memory ID."
# No category has parentheses, so that none looks like this one.
PINNED_TITLE = "\n### Pinned (important)\n"
LEFT_OUT = "\nMore is remembered than there is room for here.\n"

# Facts of these categories come before all others, because nearly every answer depends on them.
# The groups take turns, so that no group fills the profile alone.
PEOPLE = ("person", "people", "family", "friend", "friends", "relationship", "contact")
HEALTH = ("health", "medical", "medication", "allergy", "diet")
PREFERENCES = ("preference", "preferences", "likes", "dislikes")
FIRST_GROUPS = (PEOPLE, HEALTH, PREFERENCES)
FIRST_CATEGORIES = PEOPLE + HEALTH + PREFERENCES
PINNED = ProfileGroup(pinned=True)
OTHER_FACTS = ProfileGroup(categories=FIRST_CATEGORIES, other=True)

TokenCounter = Callable[[str], int]
PlacedMemory = tuple[int, Memory]
"""The position of a memory's first version, and the memory."""


def choose_cached(
    cache: ProfileCache,
    tx: Transaction,
    owners: Mapping[Owner, str | None],
    now: int,
    frozen: FrozenProfile | None,
    tokens: int,
    count_tokens: TokenCounter,
    update_tool: str | None = None,
) -> ChosenProfile:
    """Choose the memories of the profile that fit, as it was frozen or is now.

    The choice is cached between turns: it would take as long as a recall on every turn. Unless the
    profile is frozen, the recalls before the newest change of a memory count: what is recalled does
    not change the profile.
    """
    key = (*owners.items(), frozen, tokens, update_tool)
    state_versions = [index.state_version(tx, owner) for owner in owners]
    cached = cache.get(key, state_versions, now)
    if cached is not None:
        return cached
    expiry_times = [float("inf")]
    seen_as = current_profile(tx, owners) if frozen is None else frozen

    def noting_expiry() -> Iterator[PlacedMemory]:
        position = None if frozen is None else frozen.position
        for first_position, memory in eligible_memories(tx, owners, now, position, seen_as.often):
            if memory.expires_at is not None:
                expiry_times.append(memory.expires_at)
            yield first_position, memory

    chosen = choose(noting_expiry(), tokens, heading(update_tool), count_tokens)
    if not tx.writing:  # what a writer sees may be rolled back
        cache.put(key, CachedProfile(state_versions, now, min(expiry_times), chosen))
    return chosen


def current_profile(tx: Transaction, owners: Mapping[Owner, str | None]) -> FrozenProfile:
    """Return how a session would see the profile that is frozen now.

    The recalls of the first owner count, which is the handle's own; they find memories of both.
    Without a user, those of both count: the first owner may be younger than the other.
    """
    if not owners:
        return FrozenProfile(0)
    own = next(iter(owners))
    changed = max(index.last_change(tx, owner) for owner in owners)
    before = log.recorded_time_at(tx, own, changed)
    often = dict.fromkeys(
        id
        for owner, user in owners.items()
        if user == owners[own]
        for id in recall_log.often_recalled(tx, owner, before)
    )
    return FrozenProfile(log.last_position(tx, own), tuple(often)[: recall_log.MAX_OFTEN])


def eligible_memories(
    tx: Transaction,
    owners: Mapping[Owner, str | None],
    now: int,
    position: int | None = None,
    often: Sequence[str] = (),
) -> Iterator[PlacedMemory]:
    """Yield the memories that a profile may show, in the order of their priority.

    First come the pinned ones; then facts about people, health and preferences, in turn; facts that
    were recalled ``often``; all other facts. Of each the newest is first. Each is in the state it
    had at ``position`` or has now. Memories are read as they are needed; those that changed since
    ``position`` are all read first.
    """
    changed: list[PlacedMemory] = []
    if position is not None:
        for owner, user in owners.items():
            changed += _changed_since(tx, owner, user, now, position)
        changed.sort(key=_newest_key)

    def of_group(group: ProfileGroup) -> Iterator[PlacedMemory]:
        return merge(
            [pair for pair in changed if group.accepts(pair[1])],
            *(
                _unchanged_since(tx, owner, user, now, position, group)
                for owner, user in owners.items()
            ),
            key=_newest_key,
        )

    def of_categories(names: Sequence[str]) -> Iterator[PlacedMemory]:
        known = ProfileGroup(categories=tuple(name for name in names if name in existing))
        return of_group(known) if known.categories else iter(())

    yield from of_group(PINNED)
    existing = {memory.category for _, memory in changed}
    for owner in owners:
        existing |= index.fact_categories(tx, owner, FIRST_CATEGORIES)
    for turn in zip_longest(*map(of_categories, FIRST_GROUPS)):
        yield from filter(None, turn)
    shown = set[str]()
    often_shown = _often_recalled(tx, owners, now, position, changed, often)
    for pair in chain(often_shown, of_group(OTHER_FACTS)):
        if pair[1].id not in shown:
            shown.add(pair[1].id)
            yield pair


def _often_recalled(
    tx: Transaction,
    owners: Mapping[Owner, str | None],
    now: int,
    position: int | None,
    changed: Sequence[PlacedMemory],
    often: Sequence[str],
) -> Iterator[PlacedMemory]:
    """Yield the other facts of these ids in the order of the ids; read when they are needed."""
    found = {memory.id: (first_position, memory) for first_position, memory in changed}
    for owner, user in owners.items():
        rows = index.profile_memories_by_id(tx, owner, often, now)
        for pair in _read_unchanged(tx, owner, user, rows, position):
            found[pair[1].id] = pair
    for id in often:
        if id in found and OTHER_FACTS.accepts(found[id][1]):
            yield found[id]


def _newest_key(pair: PlacedMemory) -> int:
    return -pair[0]


def _unchanged_since(
    tx: Transaction,
    owner: Owner,
    user: str | None,
    now: int,
    position: int | None,
    group: ProfileGroup,
) -> Iterator[PlacedMemory]:
    """Yield the eligible memories of a group that have not changed since a position."""
    before = MAX_POSITION if position is None else position + 1
    while True:
        rows = index.profile_memories(tx, owner, group, before, now, CHUNK)
        yield from _read_unchanged(tx, owner, user, rows, position)
        if len(rows) < CHUNK:
            return
        before = rows[-1].first_position


def _read_unchanged(
    tx: Transaction, owner: Owner, user: str | None, rows: list[MemoryRow], position: int | None
) -> Iterator[PlacedMemory]:
    """Read the memories of these rows, without those that changed since a position."""
    unchanged = [row for row in rows if position is None or row.position <= position]
    for row, entry in index_check.read_current_entries(tx, owner, unchanged):
        memory = entry.state(user)
        visible = memory.session is None and memory.forgotten_at is None
        if visible and memory.trust not in UNTRUSTED:
            yield row.first_position, memory


def _changed_since(
    tx: Transaction, owner: Owner, user: str | None, now: int, position: int
) -> Iterator[PlacedMemory]:
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
    eligible: Iterable[PlacedMemory], tokens: int, heading: str, count_tokens: TokenCounter
) -> ChosenProfile:
    """Choose the memories that fit below a heading, in the order of display.

    It stops after ``MAX_MISSES`` that do not fit.
    """
    left = tokens - count_tokens(heading) - count_tokens(LEFT_OUT)
    chosen: list[PlacedMemory] = []
    titles: set[str] = set()
    misses = 0
    for first_position, memory in eligible:
        title = _title(memory)
        cost = count_tokens(_line(memory)) + (0 if title in titles else count_tokens(title))
        if cost <= left:
            left -= cost
            titles.add(title)
            chosen.append((first_position, memory))
            continue
        misses += 1
        if misses == MAX_MISSES:
            break
    chosen.sort(key=category_order)
    # Pinned memories come first, below a title of their own.
    parts = ([pair for pair in chosen if pair[1].pinned == pinned] for pinned in (True, False))
    ordered = [pair for part in parts for pair in newest_first(part, lambda pair: pair[1])]
    return ChosenProfile(ordered, misses > 0)


def category_order(pair: PlacedMemory) -> tuple[str, int, int, str]:
    """The order of memories by category; within one by their age."""
    first_position, memory = pair
    return memory.category, memory.created_at, first_position, memory.id


def heading(update_tool: str | None) -> str:
    """The lines above the memories; ``update_tool`` names the model's tool to change one."""
    return INTRO + (UPDATE_HINT.format(tool=update_tool) if update_tool else "") + "\n"


def render(chosen: ChosenProfile, update_tool: str | None = None) -> str:
    """Render the profile; empty without memories."""
    blocks = [
        title + "".join(_line(memory) for _, memory in group)
        for title, group in groupby(chosen.memories, key=lambda pair: _title(pair[1]))
    ]
    if not blocks:
        return ""
    return heading(update_tool) + "".join(blocks) + (LEFT_OUT if chosen.left_out else "")


def _title(memory: Memory) -> str:
    if memory.pinned:
        return PINNED_TITLE
    return f"\n### {escape_name(memory.category).replace('_', ' ').title()}\n"


def _line(memory: Memory) -> str:
    about = f"- [id:{memory.id}] {subject_prefix(memory.subject)}"
    return f"{about}{escape_line(memory.content)}{validity_note(memory)}\n"
