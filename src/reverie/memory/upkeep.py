"""The operator's work: what jobs do, and making views anew from the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reverie.agenda import jobs
from reverie.agenda.jobs import Claim
from reverie.engine import index, log
from reverie.engine.schema import DERIVED, UNFINISHED
from reverie.errors import ConfigError, StoreBusy, StoreDamaged, StoreError
from reverie.memory import damage, generations, replay, verification, writes
from reverie.memory.notes import DAY_MS
from reverie.memory.resources import Resources
from reverie.memory.writes import Author, Stamp
from reverie.model import Memory, SpaceInfo, VerifyReport
from reverie.protocols import Owner, Transaction

EMBED_BATCH = 256
# Names in one statement.
MAX_NAMES = 500
CLOCK_TOLERANCE_MS = 60_000
Progress = Callable[[int, int], None]


# -- what jobs do ---------------------------------------------------------------------------------


def fill_vectors(resources: Resources, claim: Claim) -> None:
    """Make vectors that are still missing, a batch at a time. The texts wait outside the lock."""
    embedder, owner = resources.embedder, claim.owner
    if embedder is None:
        raise ConfigError("vectors are waiting but no embedder is configured: set REVERIE_EMBEDDER")
    with resources.engine.read() as tx:
        tx.enter(owner)
        generations.require(tx, embedder)
        waiting = [
            row[0]
            for row in tx.all(
                "SELECT passage FROM unembedded WHERE space = ? AND owner = ? "
                f"ORDER BY passage LIMIT {EMBED_BATCH}",
                owner,
            )
        ]
        texts = passage_texts(tx, owner, waiting)
        epoch = index.statistics(tx, owner).epoch
    rows = embedder.embed(list(texts.values())) if texts else None
    with resources.engine.write() as tx:
        tx.enter(owner)
        now = resources.clock.now()
        if index.statistics(tx, owner).epoch != epoch:
            # The passages were numbered anew meanwhile: these texts belong to other numbers.
            claim.again(tx, now)
            return
        for i, passage in enumerate(texts):
            assert rows is not None
            still = tx.run(
                "DELETE FROM unembedded WHERE space = ? AND owner = ? AND passage = ?",
                (*owner, passage),
            )
            if still:
                generation = generations.ensure(tx, embedder, rows.shape[1])
                tx.put_vectors(owner, generation.number, passage, rows[i : i + 1])
                index.touch(tx, owner, [passage])
        if tx.one("SELECT 1 FROM unembedded WHERE space = ? AND owner = ? LIMIT 1", owner):
            claim.again(tx, now)
        else:
            claim.finish(tx)


def forget_expired(resources: Resources, claim: Claim) -> None:
    """A memory's time has come, unless it was given another one since."""
    owner, now = claim.owner, resources.clock.now()
    with resources.engine.write() as tx:
        tx.enter(owner)
        place = index.find(tx, owner, claim.payload["memory"])
        if place is not None and (place.expires_at or 0) > now:
            claim.again(tx, place.expires_at or 0)
            return
        if place is not None:
            author = Author(log.scope_of(tx, owner), "reverie", "agent")
            writes.change_in(
                tx,
                resources,
                owner,
                author,
                place,
                "forget",
                Stamp(reason="it expired"),
                lambda old, at: replace(old, forgotten_at=at) if _is_over(old, now) else None,
            )
        claim.finish(tx)


def _is_over(memory: Memory, now: int) -> bool:
    return memory.forgotten_at is None and memory.expired(now)


def prune_recalls(resources: Resources, claim: Claim) -> None:
    """Old recall notes go; the job comes back while there are any."""
    owner, now = claim.owner, resources.clock.now()
    with resources.engine.write() as tx:
        tx.enter(owner)
        tx.run(
            "DELETE FROM recalls WHERE space = ? AND owner = ? AND at < ?",
            (*owner, now - resources.settings.recall_days * DAY_MS),
        )
        if tx.one("SELECT 1 FROM recalls WHERE space = ? AND owner = ? LIMIT 1", owner):
            claim.again(tx, now + DAY_MS)
        else:
            claim.finish(tx)


def finish_erasure(resources: Resources, claim: Claim) -> None:
    """Another process was still reading when something was erased: empty the files now."""
    if not resources.engine.scrub():
        raise StoreBusy("another process is still reading old pages, or the disk is full")
    with resources.engine.write() as tx:
        tx.enter(claim.owner)
        claim.finish(tx)


# -- making anew ----------------------------------------------------------------------------------


def await_vectors(resources: Resources) -> None:
    """See that passages which were written without an embedder get their vectors now."""
    if resources.embedder is None or resources.engine.read_only:
        return
    waiting = (
        "SELECT DISTINCT u.space, u.owner FROM unembedded u WHERE NOT EXISTS (SELECT 1 FROM jobs j "
        "WHERE j.space = u.space AND j.owner = u.owner AND j.kind = 'embed')"
    )
    with resources.engine.read() as tx:
        tx.oversee()
        owners = tx.all(waiting) if tx.one("SELECT 1 FROM unembedded LIMIT 1") else []
    for owner in (Owner(*row) for row in owners):
        with resources.engine.write() as tx:
            tx.enter(owner)
            if not jobs.has(tx, owner, "embed"):
                now = resources.clock.now()
                jobs.add(tx, owner, "embed", {}, due_at=now, now=now)


def refresh_index(resources: Resources) -> None:
    """Make the index anew when it was made by another analyser: no search could trust it."""
    with resources.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = 'index'")
    if row is not None and row[0] == index.MADE_BY:
        return
    if row is not None:
        # Until it is done no version of Reverie may write; killed meanwhile, it is done again.
        _set_rules(resources, "being made anew")
        rebuild(_without_foreign_embedder(resources))
    _set_rules(resources, index.MADE_BY)


def _set_rules(resources: Resources, rules: str) -> None:
    with resources.engine.write() as tx:
        # Who writes by other rules is waited for.
        tx.oversee()
        tx.run(
            "INSERT INTO meta (key, value) VALUES ('index', ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (rules,),
        )


def _without_foreign_embedder(resources: Resources) -> Resources:
    """Where another model made the vectors, they wait for a reembed instead of stopping it."""
    with resources.engine.read() as tx:
        generation = generations.read(tx)
    embedder = resources.embedder
    if embedder is None or generation is None or generation.identity == embedder.identity:
        return resources
    return replace(resources, embedder=None)


def require_whole(tx: Transaction, where: str) -> None:
    """A store that was only half copied is no store yet."""
    if tx.one("SELECT 1 FROM meta WHERE key = ?", (UNFINISHED,)) is not None:
        raise StoreError(
            f"a migration into {where} was not finished: run 'reverie migrate' again, to the end"
        )


def rebuild(resources: Resources, progress: Progress | None = None) -> int:
    """Index and vectors from the log, a space at a time, each in one transaction.

    Not from a damaged log: the index would fit the damage, and nothing would tell of it any more.
    """
    damage.require_none(resources, "a rebuild")
    if resources.engine.check() and isinstance(resources.engine.describe().get("file"), str):
        return _remake(resources, progress)
    with resources.engine.read() as tx:
        tx.oversee()
        owners = all_owners(tx)
        whole = sum(_count(tx, name, owner) for owner in owners for name in ("memories", "events"))
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, whole)

    _drop_ownerless(resources)
    for owner in owners:
        with resources.engine.write() as tx:
            tx.enter(owner)
            for name in (*DERIVED, "vectors"):
                tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", owner)
            tx.run(
                "INSERT INTO statistics (space, owner, epoch, next_passage, passages, touches, "
                "facts, notes, private) VALUES (?, ?, ?, 0, 0, 0, 0, 0, 0) "
                "ON CONFLICT (space, owner) DO UPDATE SET epoch = statistics.epoch + 1, "
                "next_passage = 0, passages = 0, touches = 0, facts = 0, notes = 0, private = 0",
                (*owner, resources.clock.now()),
            )
            for born, entry in log.states_at(tx, owner, log.last_position(tx, owner)):
                state = entry.state(None)
                text = writes.text_of(tx, resources, state)
                first = index.add(tx, owner, born, entry.position, state, text.passages)
                if state.forgotten_at is None:
                    writes.put_vectors(tx, resources, owner, first, text)
                document = (entry.body or {}).get("document")
                if document is not None and state.source is not None:
                    writes.keep_document(tx, owner, state.source, born, document)
                advance()
            replay.rebuild(tx, resources, owner, advance)
    return done


def _drop_ownerless(resources: Resources) -> None:
    """Take away rows of the index that belong to nobody there is."""
    with resources.engine.write() as tx:
        tx.oversee()
        known = set(all_owners(tx))
        for name in (*DERIVED, "statistics", "vectors"):
            for row in tx.all(f"SELECT DISTINCT space, owner FROM {name}"):
                if row not in known:
                    tx.run(f"DELETE FROM {name} WHERE space = ? AND owner = ?", row)


def _remake(resources: Resources, progress: Progress | None) -> int:
    """Put a store that is made anew of the same rows in the place of one with broken pages.

    Rows cannot be deleted from a page that cannot be read.
    """
    from reverie.memory import salvage

    engine = resources.engine
    file = Path(engine.describe()["file"])
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder, engine.exclusive():
        made = Path(folder) / "made.db"
        report = salvage.salvage(
            lambda new: replace(resources, engine=new), str(file), made, progress, whole=True
        )
        engine.restore(made)
    return report.entries


def reembed(resources: Resources, progress: Progress | None = None) -> int:
    """Fill a new generation beside the current one, then switch when nothing is missing.

    Stopped half-way it goes on where it was: the vectors that exist are done.
    """
    embedder = resources.embedder
    if embedder is None:
        raise ConfigError("no embedder is configured: set REVERIE_EMBEDDER, for instance to local")
    with resources.engine.write() as tx:
        tx.oversee()
        current = generations.read(tx)
        begun = generations.read(tx, generations.NEXT)
        if begun is None or begun.identity != embedder.identity:
            number = max(current.number if current else 0, begun.number if begun else 0) + 1
            begun = generations.Generation(number, embedder.identity, None)
            generations.write(tx, begun, generations.NEXT)
    while True:
        with resources.engine.read() as tx:
            tx.oversee()
            ends = {owner: index.statistics(tx, owner) for owner in all_owners(tx)}
            for owner, end in ends.items():
                index.require_possible(tx, owner, end)
            kept = {owner: set(tx.vector_numbers(owner, begun.number)) for owner in ends}
        whole, done = sum(end.next_passage for end in ends.values()), 0
        for owner, end in ends.items():
            for first in range(0, end.next_passage, EMBED_BATCH):
                numbers = range(first, min(first + EMBED_BATCH, end.next_passage))
                missing = set(numbers) - kept[owner]
                begun = _embed_passages(resources, owner, end.epoch, begun, missing)
                done += len(numbers)
                if progress is not None:
                    progress(done, whole)
        if _switched(resources, begun, ends):
            return sum(end.passages for end in ends.values())


def _embed_passages(
    resources: Resources,
    owner: Owner,
    epoch: int,
    begun: generations.Generation,
    missing: set[int],
) -> generations.Generation:
    assert resources.embedder is not None
    with resources.engine.read() as tx:
        tx.enter(owner)
        texts = passage_texts(tx, owner, missing)
    if not texts:
        return begun
    rows = resources.embedder.embed(list(texts.values()))
    with resources.engine.write() as tx:
        tx.enter(owner)
        _require_mine(tx, begun)
        if index.statistics(tx, owner).epoch != epoch:
            return begun
        alive = index.located(tx, owner, list(texts))
        for i, passage in enumerate(texts):
            if passage in alive:
                tx.put_vectors(owner, begun.number, passage, rows[i : i + 1])
        if begun.dimensions is None:
            begun = begun._replace(dimensions=rows.shape[1])
            generations.write(tx, begun, generations.NEXT)
    return begun


def _require_mine(tx: Transaction, begun: generations.Generation) -> None:
    if generations.read(tx, generations.NEXT) != begun:
        raise StoreError("another reembed began meanwhile: let one of them run alone")


def _switched(
    resources: Resources, begun: generations.Generation, ends: Mapping[Owner, index.Statistics]
) -> bool:
    """Switch in one step. What was written meanwhile gets its vectors from a job.

    Where passages were numbered anew meanwhile it has to be done again.
    """
    with resources.engine.write() as tx:
        tx.oversee()
        _require_mine(tx, begun)
        now = {owner: index.statistics(tx, owner) for owner in all_owners(tx)}
        if any(now[owner].epoch != end.epoch for owner, end in ends.items()):
            return False
        tx.drop_vectors(begun.number)
        generations.write(tx, begun)
        tx.run("DELETE FROM meta WHERE key = ?", (generations.NEXT,))
        tx.run("DELETE FROM unembedded")
        for owner, statistics in now.items():
            seen = ends[owner].next_passage if owner in ends else 0
            late = index.located(tx, owner, range(seen, statistics.next_passage))
            if late:
                tx.many(
                    "INSERT INTO unembedded (space, owner, passage) VALUES (?, ?, ?)",
                    [(*owner, passage) for passage in late],
                )
                moment = resources.clock.now()
                jobs.add_once(tx, owner, "embed", due_at=moment, now=moment)
    return True


# -- looking --------------------------------------------------------------------------------------


def spaces(resources: Resources) -> list[SpaceInfo]:
    found = []
    with resources.engine.read() as tx:
        tx.oversee()
        for space, name in damage.named_spaces(tx):
            users = damage.named_users(tx, space)
            counts = tx.one(
                "SELECT SUM(facts), SUM(notes) FROM statistics WHERE space = ?", (space,)
            )
            position = log.last_position(tx, Owner(space, log.SHARED))
            facts, notes = counts or (0, 0)
            found.append(
                SpaceInfo(
                    name,
                    tuple(sorted(users)),
                    int(facts or 0),
                    int(notes or 0),
                    position,
                )
            )
    return found


def positions(resources: Resources, names: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    with resources.engine.read() as tx:
        tx.oversee()
        for start in range(0, len(names), MAX_NAMES):
            part = names[start : start + MAX_NAMES]
            marks = ", ".join("?" for _ in part)
            found.update(
                tx.all(
                    "SELECT spaces.name, counters.position FROM spaces "
                    "JOIN counters ON counters.space = spaces.space "
                    f"WHERE spaces.name IN ({marks})",
                    tuple(part),
                )
            )
    return found


def verify(resources: Resources) -> VerifyReport:
    """Look at the files, at every entry, and at what the index makes of them."""
    report = _verified(resources)
    # A read that failed once is not damage: what is damaged is so at a second look.
    return _verified(resources) if report.problems else report


def _verified(resources: Resources) -> VerifyReport:
    problems = checked(resources)
    with resources.engine.read() as tx:
        tx.oversee()
        found = damage.problems(tx)
        return verification.compare(tx, resources, [*problems, *found], damaged=bool(found))


def checked(resources: Resources) -> list[str]:
    """What the database finds wrong with its files; that it cannot look is also an answer."""
    try:
        return resources.engine.check()
    except StoreDamaged as error:
        return [str(error)]


def doctor(resources: Resources) -> dict[str, Any]:
    with resources.engine.read() as tx:
        tx.oversee()
        generation = generations.read(tx)
        waiting = tx.one("SELECT COUNT(*) FROM unembedded")
        (failing,) = tx.one(
            "SELECT COUNT(*) FROM jobs WHERE state <> 'parked' AND error IS NOT NULL"
        ) or (0,)
        states: dict[str, int] = dict(tx.all("SELECT state, COUNT(*) FROM jobs GROUP BY state"))
        ahead = _ahead_of_clock(tx, resources.clock.now())
    embedder = resources.embedder
    problems = [*checked(resources), *damage.in_store(resources)]
    if embedder and generation and generation.identity != embedder.identity:
        problems.append(
            f"the vectors come from {generation.identity}, the embedder is {embedder.identity}: "
            "run 'reverie reembed'"
        )
    problems += [
        f"the recorded time of space {name!r} is {_duration(ms)} ahead of this clock: set the "
        "clock if it is wrong; else it was wrong once, and what is written until then is recorded "
        "as of that time (order and positions are right)"
        for name, ms in ahead.items()
    ]
    if failing:
        problems.append(f"jobs that failed and will be tried again: {failing}")
    if states.get("parked"):
        problems.append(f"parked jobs: {states['parked']}; 'reverie jobs list' shows why")
    return {
        **resources.engine.describe(),
        "embedder": embedder.identity if embedder else "none",
        "vectors": generation.identity if generation else "none yet",
        "vectors waiting": waiting[0] if waiting else 0,
        "model": resources.settings.model or "none",
        "learning": resources.settings.learning,
        "summaries": resources.settings.summarising,
        "jobs": {name: states.get(name, 0) for name in ("ready", "running", "parked")},
        "spaces": len(spaces(resources)),
        "ahead of the clock": ahead,
        "problems": problems,
    }


# -- parts ----------------------------------------------------------------------------------------


def _ahead_of_clock(tx: Transaction, now: int) -> dict[str, int]:
    """By how many milliseconds the recorded time of each space is ahead of the clock.

    It never runs backwards, so that one clock that was wrong once keeps it there. Clocks of several
    servers are never quite the same: a minute is not worth a word.
    """
    rows = tx.all(
        "SELECT s.name, c.recorded_at FROM counters c JOIN spaces s ON s.space = c.space "
        "WHERE c.recorded_at > ?",
        (now + CLOCK_TOLERANCE_MS,),
    )
    return {name: recorded_at - now for name, recorded_at in sorted(rows)}


def _duration(ms: int) -> str:
    for unit, size in (("days", DAY_MS), ("hours", DAY_MS // 24), ("minutes", DAY_MS // 1440)):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return f"{ms // 1000} seconds"


def all_owners(tx: Transaction) -> list[Owner]:
    return [Owner(*row) for row in tx.all("SELECT space, owner FROM owners ORDER BY space, owner")]


def passage_texts(tx: Transaction, owner: Owner, passages: Iterable[int]) -> dict[int, str]:
    """The text of each of these passages that is still there."""
    from reverie.memory import views

    texts: dict[int, str] = {}
    contents: dict[int, str] = {}
    for passage, (born, start, length) in sorted(index.located(tx, owner, list(passages)).items()):
        if born not in contents:
            entry = index.entry_of(tx, owner, born)
            contents[born] = views.text_of(views.known_from(entry, None))
        texts[passage] = contents[born][start : start + length]
    return texts


def _count(tx: Transaction, table: str, owner: Owner) -> int:
    row = tx.one(f"SELECT COUNT(*) FROM {table} WHERE space = ? AND owner = ?", owner)
    return 0 if row is None else row[0]
