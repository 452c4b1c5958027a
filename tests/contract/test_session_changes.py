"""Erasing in sessions removes the erased text and nothing else, also in imports and forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reverie import NotFound, Origin, Space, Store
from reverie.engine import seals
from reverie.engine.schema import TABLES
from reverie.learn import summaries
from tests.conftest import Stores, engine_of, rows
from tests.messages import reply, texts, user


def bytes_of(store: Store) -> bytes:
    """All that is in the files of a store, or in the tables of a server."""
    file = engine_of(store).describe().get("file")
    if file is None:
        return repr([rows(store, f"SELECT * FROM {table.name}") for table in TABLES]).encode()
    found = Path(file).parent.glob(f"{Path(file).name}*")
    return b"".join(path.read_bytes() for path in found)


def test_erase_of_one_event_keeps_those_around_it(store: Store, space: Space) -> None:
    session = space.session("s")
    session.append_many([user("hello"), user("my password is canarybird"), reply("noted")])
    learned = space.remember("The password is canarybird", origin=Origin("s", 2))
    session.write_summary("a password, canarybird", upper=2, expected_epoch=0)
    report = session.erase_event(2, key="k")
    assert (report.events, report.memories, report.pending) == (1, (learned.id,), False)
    assert session.erase_event(2, key="k") == report
    assert texts(session) == ["hello", "noted"]
    assert session.summary().text == "" and b"canarybird" not in bytes_of(store)
    assert session.append(user("on")).sequence == 4
    with pytest.raises(NotFound):
        session.erase_event(2)
    assert store.verify().ok
    copy = store.space("copy")
    assert copy.import_records(list(space.export())).skipped == ()
    assert texts(copy.session("s")) == ["hello", "noted", "on"]
    store.rebuild()
    assert store.verify().ok


def test_erase_of_a_session_removes_its_words_from_memories_it_revised(
    store: Store, space: Space
) -> None:
    space.session("a").append(user("Sarah is on Platform"))
    space.session("b").append(user("Sarah is a canarybird"))
    memory = space.remember("Sarah is on Platform", subject="Sarah", origin=Origin("a", 1))
    changed = store.space("ana", trust="model")
    changed.revise(memory.id, "Sarah is a canarybird")
    with engine_of(store).write() as tx:
        tx.enter_all_owners()
        tx.run("UPDATE log SET origin_session = 'b', origin_sequence = 1 WHERE version = 2")
        seals.seal_store(tx)
    space.forget(memory.id)
    space.restore(memory.id)
    space.session("b").erase()
    assert space.get(memory.id).content == "Sarah is on Platform"
    assert [hit.id for hit in space.recall("Platform", kinds=["fact"])] == [memory.id]
    assert {version.content for version in space.history(memory.id)} == {"Sarah is on Platform"}
    assert b"canarybird" not in bytes_of(store) and store.verify().ok
    store.rebuild()
    assert store.verify().ok


def test_summary_job_does_not_restore_events_erased_meanwhile(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(context_tokens=200, learn="off")
    session = store.space("ana").session("s")
    session.append_many([user(f"canarybird {'and so on ' * 20}") for _ in range(8)])
    made = summaries._build_summary

    def erase_first(*arguments: Any) -> Any:
        condensed = made(*arguments)
        session.erase_event(1)
        monkeypatch.setattr(summaries, "_build_summary", made)
        return condensed

    monkeypatch.setattr(summaries, "_build_summary", erase_first)
    assert store.run_pending_jobs() and "[1]" not in session.summary().text
    assert not any(job.error for job in store.jobs())


def test_refresh_moves_a_frozen_profile_forward(space: Space) -> None:
    session = space.session("s")
    session.append(user("hello"))
    assert session.context().profile == ""
    space.remember("I am allergic to peanuts")
    assert session.context().profile == ""
    session.refresh_profile()
    fresh = session.context().profile
    assert "peanuts" in fresh
    space.remember("I live in Lisbon")
    assert session.context().profile == fresh


def test_context_does_not_count_image_bytes(space: Space) -> None:
    session = space.session("s")
    photo = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 50_000}}
    session.append(user([{"type": "text", "text": "what is this?"}, photo]))
    context = session.context()
    assert context.history[0]["content"][1] == photo and context.tokens < 2000


def test_context_truncates_the_latest_tool_result_instead_of_dropping_it(space: Space) -> None:
    session = space.session("s")
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    session.append_many(
        [
            user("read the file"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "line of the file " * 2000},
        ]
    )
    context = session.context(tokens=1500)
    assert [message["role"] for message in context.history] == ["user", "assistant", "tool"]
    assert "characters left out]" in context.history[2]["content"] and context.tokens <= 1500


def test_import_of_a_fork_cycle_is_refused(space: Space) -> None:
    space.session("s").append(user("one"))
    (record,) = space.session("s").export()
    record |= {"sequence": 2, "uuid": record["uuid"][:-1] + "0", "origin": ["s", 1], "key": None}
    assert len(space.import_records([record]).skipped) == 1
    space.session("s").erase_event(1)


def test_idempotency_key_survives_an_import(stores: Stores) -> None:
    here, there = stores.open("here").space("ana"), stores.open("there").space("ana")
    here.session("s").append_many([user("one"), user("two")], key="k")
    first, second = here.export()
    there.import_records([first])
    there.remember("between")
    there.import_records([first, second])
    again = there.session("s").append_many([user("one"), user("two")], key="k")
    assert [event.text for event in again] == ["one", "two"]


def test_recall_log_holds_nothing_of_an_erased_session(store: Store, space: Space) -> None:
    session = space.session("s")
    session.append(user("the zebra"))
    session.context()
    session.recall("zebra")
    session.erase()
    assert rows(store, "SELECT session FROM recalls") == []


def test_imported_proposal_is_complete(store: Store, space: Space) -> None:
    space.session("s").append(user("I live in Paris"))
    (event,) = space.session("s").export()
    record = {
        **event,
        "op": "propose",
        "uuid": event["uuid"][:-1] + "0",
        "body": {"proposal": "P1", "content": "x", "category": "My Notes", "source": "rules"},
    }
    assert space.import_records([event, record]).added == 1
    (proposal,) = space.proposals()
    assert (proposal.subject, proposal.category) == (None, "my_notes")
    assert space.accept(proposal.id).content == "x" and store.verify().ok
