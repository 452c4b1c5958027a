"""An async program that calls every verb: what mypy and pyright know of each is asserted in it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_type

import reverie
from reverie import Hit, HitKind, Kind, Message, Ranking, Settings, aio
from reverie.config import WritePolicy

TRIP: list[Message] = [
    {"role": "user", "content": "Plan a weekend"},
    {"role": "assistant", "content": "Porto or Ghent?"},
]


async def main(folder: Path) -> None:
    settings = Settings(embedder="hashing", write_policy="ask", secrets="redact")
    async with aio.open(folder / "async.db", settings=settings) as store:
        ana = store.space("ana", actor="test", trust="agent", ranking="weighted")
        await write(ana, folder)
        await read(ana)
        await converse(store, ana)
        await move(store, ana, folder)
        await operate(store, folder)
    again = await aio.open(folder / "async.db", settings=settings)
    await again.close()


async def write(ana: aio.AsyncSpace, folder: Path) -> None:
    kind: Kind = "fact"
    boss = await ana.remember(
        "Alec is my boss",
        kind=kind,
        category="person",
        subject="Alec",
        tags=["work"],
        source="web",
        happened_at=datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
        expires_at="2036-01-31",
        valid_from="2026-01-31",
        metadata={"team": "platform"},
        key="one",
    )
    items: list[reverie.NewMemory | str] = ["Tea at four", {"content": "Tea", "tags": ["t"]}]
    assert_type(await ana.remember_many(items, key="many"), list[reverie.Memory])
    assert_type(boss.related, tuple[reverie.Memory, ...])
    assert_type(boss.valid_from_time, datetime | None)
    where: reverie.Where = {"metadata.team": {"in": ["platform"]}}
    assert_type(await ana.count(where=where, valid_at="2026-02-01"), int)
    assert_type(boss.kind, Kind)
    assert_type(boss.created_time, datetime)
    assert_type(boss.happened_time, datetime | None)
    assert_type(boss.created_at, int)
    (folder / "plan.md").write_text("# Plan\n\nThe launch is in May.\n", "utf-8")
    plan = await ana.remember_file(folder / "plan.md", category="plans")
    assert_type((await ana.revise(boss.id, pinned=True, expected_version=1)).version, int)
    assert_type((await ana.history(boss.id))[0].recorded_time, datetime)
    assert_type((await ana.history(boss.id))[0].op, reverie.Op)
    await ana.forget(boss.id, reason="changed jobs")
    assert_type(await ana.restore(boss.id), reverie.Memory)
    assert_type(await ana.erase(plan.id, with_source=True), reverie.ErasureReport)
    assert_type(await ana.memories_from_source("web"), list[reverie.Memory])
    assert_type(await ana.forget_source("web", reason="wrong"), list[reverie.Memory])
    await ana.restore(boss.id)


async def read(ana: aio.AsyncSpace) -> None:
    kinds: list[HitKind] = ["fact", "note"]
    hits = await ana.recall(
        "who is my boss?",
        limit=3,
        mode="keyword",
        kinds=kinds,
        since=datetime(2025, 1, 1, tzinfo=UTC),
        ranking="default",
        explain=True,
    )
    assert_type(hits, list[Hit])
    assert_type(hits[0].memory, reverie.Memory | None)
    assert_type(ana.name, str)
    assert_type(ana.user, str | None)
    assert_type(ana.ranking, Ranking)
    assert_type(ana.floor, float | None)
    for memory in await ana.memories(kind="fact", order="category", as_of=await ana.position()):
        assert_type(await ana.get(memory.id), reverie.Memory)
    assert_type(await ana.count(kind="note"), int)
    assert_type(await ana.categories(), dict[str, int])
    assert_type((await ana.changes(after=0))[0].trust, reverie.Trust)
    assert_type(await ana.profile(tokens=500), str)
    assert_type((await ana.context("boss")).system, str)


async def converse(store: aio.AsyncStore, ana: aio.AsyncSpace) -> None:
    chat = ana.session("chat")
    assert_type(chat.id, str)
    event = await chat.append(
        {"role": "user", "content": "Alec is my boss. My sister is called Eva."},
        at=datetime.now(UTC),
    )
    assert_type(event.time, datetime)
    assert_type(event.message, Mapping[str, Any])
    await chat.append_many([{"role": "assistant", "content": "Noted."}], key="two")
    await chat.remember("The draft is called blue-falcon", kind="note", private=True)
    await chat.remember_many([{"content": "The draft is due in May"}])
    assert_type(await chat.memories(), list[reverie.Memory])
    assert_type(await chat.recall("draft", mode="keyword", kinds=["note"]), list[Hit])
    assert_type(await chat.events(10), list[reverie.Event])
    assert_type((await chat.info()).updated_time, datetime)
    assert_type(await ana.sessions(limit=5), list[reverie.SessionInfo])
    assert_type(await ana.neighbours(event, after=1), list[reverie.Event])
    summary = await chat.write_summary(
        "They met.", upper=1, expected_epoch=(await chat.summary()).epoch
    )
    assert_type(summary, reverie.Summary)
    await chat.refresh_profile()
    context = await chat.context(tokens=2000)
    assert_type(context, reverie.Context)
    messages: list[dict[str, Any]] = [*context.history, *await chat.resume(2)]
    assert messages[0]["role"] == "user"
    assert_type((await chat.prompt_additions("boss", ranking="rrf")).hits, tuple[Hit, ...])
    assert_type(await chat.recalls(), list[reverie.RecallNote])
    await chat.scratchpad.write(["ask about the lease"])
    assert_type((await chat.scratchpad.read()).items, tuple[str, ...])
    assert_type(await chat.scratchpad.clear(), bool)
    async for record in await chat.export():
        assert_type(record, dict[str, Any])
    trip = await ana.follow(TRIP, session="trip")
    assert_type(trip.matched_sequence, int | None)
    assert_type(await trip.forked_from, reverie.Origin | None)
    await trip.hide("planned")
    await trip.restore()
    assert_type(await trip.erase_event(1), reverie.SessionErasure)
    assert_type(await trip.erase(), reverie.SessionErasure)
    assert_type(await store.run_pending_jobs(), int)
    for number, proposal in enumerate(await ana.proposals(include_answered=True)):
        assert_type(proposal.proposed_time, datetime)
        if number:
            assert_type(await ana.reject(proposal.id, reason="no"), reverie.Proposal)
        else:
            assert_type(await ana.accept(proposal.id), reverie.Memory)


async def move(store: aio.AsyncStore, ana: aio.AsyncSpace, folder: Path) -> None:
    records = [record async for record in await ana.export(skip_damaged=True)]
    report = await store.space("copy").import_records(records)
    assert_type(report, reverie.ImportReport)
    (folder / "entries").mkdir(exist_ok=True)
    assert_type(await ana.import_agent_cli(folder), reverie.ImportReport)


async def operate(store: aio.AsyncStore, folder: Path) -> None:
    assert_type(store.url, str)
    assert_type(store.settings.write_policy, WritePolicy)
    assert_type(await store.write_failed, bool)
    assert_type(await store.damaged, int)
    assert_type(await store.vault, Path | None)
    assert_type((await store.spaces())[0].users, tuple[str, ...])
    assert_type(await store.positions(["ana"]), dict[str, int])
    token, secret = await store.create_token("eva", "read", spaces=["ana"])
    assert_type(token.right, reverie.Right)
    assert_type(token.created_time, datetime)
    assert_type(await store.authenticate(secret), reverie.Token | None)
    assert_type(await store.tokens(), list[reverie.Token])
    await store.revoke_token(token.id)
    stop = threading.Event()
    stop.set()
    await store.run_worker(stop)
    await store.start_worker()
    await store.stop_worker()
    for job in await store.jobs():
        assert_type(job.due_time, datetime)
        await store.retry_job(job.space, job.id)
        await store.drop_job(job.space, job.id)
    assert_type(await store.flush_to_vault(), str | None)
    assert_type(await store.rebuild(lambda done, total: print(done / total)), int)
    assert_type(await store.reembed(), int)
    assert_type(await store.backup(folder / "copy.db"), reverie.VerifyReport)
    await store.verify_backup(folder / "copy.db")
    await store.restore_backup(folder / "copy.db")
    assert_type((await store.verify()).ok, bool)
    assert_type(await store.doctor(), Mapping[str, Any])
    await store.vacuum()
