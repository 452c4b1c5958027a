"""A program that calls every verb: what mypy and pyright know of each is asserted in it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_type

import reverie
from reverie import Hit, HitKind, Kind, Message, Ranking, Settings, Space, Store
from reverie.config import WritePolicy

TRIP: list[Message] = [
    {"role": "user", "content": "Plan a weekend"},
    {"role": "assistant", "content": "Porto or Ghent?"},
]


def main(folder: Path) -> None:
    settings = Settings(embedder="hashing", write_policy="ask", secrets="redact")
    with reverie.open(folder / "sync.db", settings=settings) as store:
        ana = store.space("ana", actor="test", trust="agent", ranking="weighted")
        write(ana, folder)
        read(ana)
        converse(store, ana)
        move(store, ana, folder)
        operate(store, folder)
    store.close()


def write(ana: Space, folder: Path) -> None:
    kind: Kind = "fact"
    boss = ana.remember(
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
    assert_type(ana.remember_many(items, key="many"), list[reverie.Memory])
    assert_type(boss.related, tuple[reverie.Memory, ...])
    assert_type(boss.valid_from_time, datetime | None)
    where: reverie.Where = {"metadata.team": {"in": ["platform"]}}
    assert_type(ana.count(where=where, valid_at="2026-02-01"), int)
    assert_type(boss.kind, Kind)
    assert_type(boss.created_time, datetime)
    assert_type(boss.happened_time, datetime | None)
    assert_type(boss.created_at, int)
    (folder / "plan.md").write_text("# Plan\n\nThe launch is in May.\n", "utf-8")
    plan = ana.remember_file(folder / "plan.md", category="plans")
    assert_type(ana.revise(boss.id, pinned=True, expected_version=1).version, int)
    assert_type(ana.history(boss.id)[0].recorded_time, datetime)
    assert_type(ana.history(boss.id)[0].op, reverie.Op)
    ana.forget(boss.id, reason="changed jobs")
    assert_type(ana.restore(boss.id), reverie.Memory)
    assert_type(ana.erase(plan.id, with_source=True), reverie.ErasureReport)
    assert_type(ana.memories_from_source("web"), list[reverie.Memory])
    assert_type(ana.forget_source("web", reason="wrong"), list[reverie.Memory])
    ana.restore(boss.id)


def read(ana: Space) -> None:
    kinds: list[HitKind] = ["fact", "note"]
    hits = ana.recall(
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
    for memory in ana.memories(kind="fact", order="category", as_of=ana.position()):
        assert_type(ana.get(memory.id), reverie.Memory)
    assert_type(ana.count(kind="note"), int)
    assert_type(ana.categories(), dict[str, int])
    assert_type(ana.changes(after=0)[0].trust, reverie.Trust)
    assert_type(ana.profile(tokens=500), str)
    assert_type(ana.context("boss").system, str)


def converse(store: Store, ana: Space) -> None:
    chat = ana.session("chat")
    assert_type(chat.id, str)
    event = chat.append(
        {"role": "user", "content": "Alec is my boss. My sister is called Eva."},
        at=datetime.now(UTC),
    )
    assert_type(event.time, datetime)
    assert_type(event.message, Mapping[str, Any])
    chat.append_many([{"role": "assistant", "content": "Noted."}], key="two")
    chat.remember("The draft is called blue-falcon", kind="note", private=True)
    chat.remember_many([{"content": "The draft is due in May"}])
    assert_type(chat.memories(), list[reverie.Memory])
    assert_type(chat.recall("draft", mode="keyword", kinds=["note"]), list[Hit])
    assert_type(chat.events(10), list[reverie.Event])
    assert_type(chat.info().updated_time, datetime)
    assert_type(ana.sessions(limit=5), list[reverie.SessionInfo])
    assert_type(ana.neighbours(event, after=1), list[reverie.Event])
    summary = chat.write_summary("They met.", upper=1, expected_epoch=chat.summary().epoch)
    assert_type(summary, reverie.Summary)
    chat.refresh_profile()
    context = chat.context(tokens=2000)
    assert_type(context, reverie.Context)
    messages: list[dict[str, Any]] = [*context.history, *chat.resume(2)]
    assert messages[0]["role"] == "user"
    assert_type(chat.prompt_additions("boss", ranking="rrf").hits, tuple[Hit, ...])
    assert_type(chat.recalls(), list[reverie.RecallNote])
    chat.scratchpad.write(["ask about the lease"])
    assert_type(chat.scratchpad.read().items, tuple[str, ...])
    assert_type(chat.scratchpad.clear(), bool)
    for record in chat.export():
        assert_type(record, dict[str, Any])
    trip = ana.follow(TRIP, session="trip")
    assert_type(trip.matched_sequence, int | None)
    assert_type(trip.forked_from, reverie.Origin | None)
    trip.hide("planned")
    trip.restore()
    assert_type(trip.erase_event(1), reverie.SessionErasure)
    assert_type(trip.erase(), reverie.SessionErasure)
    assert_type(store.run_pending_jobs(), int)
    for number, proposal in enumerate(ana.proposals(include_answered=True)):
        assert_type(proposal.proposed_time, datetime)
        if number:
            assert_type(ana.reject(proposal.id, reason="no"), reverie.Proposal)
        else:
            assert_type(ana.accept(proposal.id), reverie.Memory)


def move(store: Store, ana: Space, folder: Path) -> None:
    records = list(ana.export(skip_damaged=True))
    report = store.space("copy").import_records(records)
    assert_type(report, reverie.ImportReport)
    (folder / "entries").mkdir(exist_ok=True)
    assert_type(ana.import_agent_cli(folder), reverie.ImportReport)


def operate(store: Store, folder: Path) -> None:
    assert_type(store.url, str)
    assert_type(store.settings.write_policy, WritePolicy)
    assert_type(store.write_failed, bool)
    assert_type(store.damaged, int)
    assert_type(store.vault, Path | None)
    assert_type(store.spaces()[0].users, tuple[str, ...])
    assert_type(store.positions(["ana"]), dict[str, int])
    token, secret = store.create_token("eva", "read", spaces=["ana"])
    assert_type(token.right, reverie.Right)
    assert_type(token.created_time, datetime)
    assert_type(store.authenticate(secret), reverie.Token | None)
    assert_type(store.tokens(), list[reverie.Token])
    store.revoke_token(token.id)
    stop = threading.Event()
    stop.set()
    store.run_worker(stop)
    store.start_worker()
    store.stop_worker()
    for job in store.jobs():
        assert_type(job.due_time, datetime)
        store.retry_job(job.space, job.id)
        store.drop_job(job.space, job.id)
    assert_type(store.flush_to_vault(), str | None)
    assert_type(store.rebuild(lambda done, total: print(done / total)), int)
    assert_type(store.reembed(), int)
    assert_type(store.backup(folder / "copy.db"), reverie.VerifyReport)
    store.verify_backup(folder / "copy.db")
    store.restore_backup(folder / "copy.db")
    assert_type(store.verify().ok, bool)
    assert_type(store.doctor(), Mapping[str, Any])
    store.vacuum()
