"""Sessions are a view of the log: the same after a rebuild, an import or a restore."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reverie import NotFound, Origin, Session, Space, Store
from tests.conftest import DAY, HOUR, FakeClock, FakeEmbedder, Stores, rows, tamper
from tests.messages import conversation, propose, reply, system, texts, user

OWNERS = (("ana", None), ("ana", "bo"), ("ben", "bo"))


def live(space: Space, clock: FakeClock) -> None:
    """A bit of everything that can happen to sessions."""
    space.follow(conversation("zebra one", "two", "zebra three", "four"), session="long")
    clock.step(HOUR)
    fork = space.follow(conversation("zebra one", "two", "a horse", "five"), session="long")
    deep = space.follow(conversation("zebra one", "two", "a horse", "six zebras"), session="long")
    deep.append(reply("cut off in the"), interrupted=True)
    space.session("odd").append_many(
        [
            system("be kind"),
            user("half \ud83d zebra \0"),
            {"role": "user", "content": None, "numbers": [10**30, 0.5]},
        ]
    )
    space.session("odd").append(user("zebra of old"), sequence=40, at="2001-01-01")
    space.session("hidden").append_many(conversation("zebra hidden", "yes"))
    space.session("hidden").hide("done")
    space.session("back").append(user("zebra back"))
    space.session("back").hide()
    space.session("back").restore()
    clock.step(DAY)
    fork.remember("a private zebra", subject="zebra", private=True)
    memory = space.remember("learned from a zebra", origin=Origin("odd", 2))
    gone = space.remember("erased with its source", origin=Origin("long", 3))
    space.erase(gone.id, with_source=True)
    space.session("erased").append_many(conversation("erased zebra", "yes"), key="erased")
    space.session("erased").remember("erased private zebra", private=True)
    space.session("erased").erase()
    space.session("anew").append(user("before"))
    space.session("anew").erase()
    space.session("anew").append(user("zebra anew"))
    space.accept(propose(space, "accepted zebra", Origin("odd", 2)))
    space.reject(propose(space, "rejected zebra", Origin("odd", 2)))
    propose(space, "waiting zebra", Origin("odd", 2))
    space.forget(memory.id)


def lived(
    stores: Stores, owners: tuple[tuple[str, str | None], ...] = OWNERS, **options: Any
) -> Store:
    store = stores.open(**options)
    for space, of_user in owners:
        live(store.space(space, user=of_user), stores.clock)
    return store


def session_answers(space: Space) -> dict[str, Any]:
    """All that a handle answers about its sessions."""
    infos = space.sessions(include_hidden=True)
    known: dict[str, Any] = {
        "sessions": infos,
        "shown": [info.id for info in space.sessions()],
        "proposals": space.proposals(include_answered=True),
        "memories": space.memories(include_forgotten=True),
    }
    for mode in ("keyword", "vector", "hybrid"):
        known[mode] = space.recall("zebra horse", mode=mode, limit=99, explain=True)
    known["since"] = space.recall("zebra", until="2010-01-01", kinds=["event"])
    for info in infos:
        session = space.session(info.id)
        messages = [event.message for event in session.events()]
        known[info.id] = (
            session.events(),
            session.memories(),
            session.resume(),
            session.recall("zebra", mode="keyword", limit=99),
            space.follow(messages, session=info.id).id,
        )
    return known


def all_said(store: Store) -> list[dict[str, Any]]:
    return [session_answers(store.space(space, user=of_user)) for space, of_user in OWNERS]


# -- made anew ------------------------------------------------------------------------------------


def test_rebuild_of_sessions_changes_no_answer(stores: Stores) -> None:
    store = lived(stores)
    before, report = all_said(store), store.verify()
    assert report.problems == () and report.events == 3 * 15
    store.rebuild()
    assert all_said(store) == before and store.verify() == report
    store.close()
    store = stores.open()
    assert all_said(store) == before and store.verify() == report


def test_sessions_work_without_an_embedder(stores: Stores) -> None:
    store = lived(stores, OWNERS[:1], embedder="none")
    space = store.space("ana")
    hits, listed = space.recall("zebra", limit=99), space.sessions()
    assert len(hits) > 5 and store.verify().ok
    store.rebuild()
    assert space.recall("zebra", limit=99) == hits and space.sessions() == listed
    assert store.verify().ok


def test_rebuild_keeps_tables_that_are_not_in_the_log(stores: Stores) -> None:
    store = lived(stores)
    session = store.space("ana").session("long")
    session.write_summary("summed up", upper=2, expected_epoch=session.summary().epoch)
    session.scratchpad.write(["item"])
    profile = session.context().profile
    store.space("ana").remember("since")
    kept = [session.summary(), session.scratchpad.read()]
    unsummed = rows(store, "SELECT session, unsummed FROM sessions ORDER BY space, owner, session")
    store.rebuild()
    assert [session.summary(), session.scratchpad.read()] == kept
    assert session.context().profile == profile
    query = "SELECT session, unsummed FROM sessions ORDER BY space, owner, session"
    assert rows(store, query) == unsummed


def test_vectors_of_events_are_filled_by_a_job(stores: Stores) -> None:
    store = stores.open(embedder=FakeEmbedder(remote=True), learn="off", summary="off")
    space = store.space("ana")
    space.session("s").append_many(conversation("zebra one", "horse two"))
    space.session("t").append(user("zebra hidden"))
    space.session("t").hide()
    by_word = [hit.text for hit in space.recall("zebra", mode="keyword")]
    assert by_word == ["zebra one", "horse two"], "the word, and the turn beside it"
    assert store.verify().ok
    store.run_pending_jobs()
    assert space.recall("zebra one", mode="vector")[0].text == "zebra one"
    space.session("t").restore()
    store.run_pending_jobs()
    assert space.recall("zebra hidden", mode="vector")[0].text == "zebra hidden"
    store.rebuild()
    store.run_pending_jobs()
    assert space.recall("zebra hidden", mode="vector")[0].text == "zebra hidden"
    store.close()
    store = stores.open(embedder=FakeEmbedder("fake:two"), learn="off", summary="off")
    store.reembed()
    found = store.space("ana").recall("horse two", mode="vector")
    assert found[0].text == "horse two" and store.verify().ok


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE events SET chain = 'x' WHERE sequence = 1",
        "UPDATE events SET role = 'tool' WHERE session = 'back'",
        "UPDATE events SET at = at + 1 WHERE session = 'back'",
        "UPDATE events SET size = 0 WHERE session = 'back'",
        "DELETE FROM events WHERE session = 'back'",
        "DELETE FROM sessions WHERE session = 'back'",
        "UPDATE sessions SET hidden_at = NULL WHERE session = 'hidden'",
        "UPDATE sessions SET titled = NULL WHERE session = 'back'",
        "UPDATE sessions SET events = 9 WHERE session = 'back'",
        "UPDATE sessions SET last_sequence = 9 WHERE session = 'back'",
        "UPDATE sessions SET forked_session = 'odd' WHERE forked_session = 'long'",
        "UPDATE sessions SET ended = 0 WHERE session = 'erased'",
        "UPDATE memories SET session = NULL WHERE session IS NOT NULL",
        "UPDATE proposals SET answer = NULL WHERE answer = 'reject'",
        "DELETE FROM proposals WHERE answer IS NULL",
    ],
)
def test_verify_detects_and_rebuild_repairs_tampered_session_tables(
    stores: Stores, harm: str
) -> None:
    store = lived(stores, OWNERS[1:2])
    before = session_answers(store.space("ana", user="bo"))
    assert tamper(store, harm) > 0
    assert not store.verify().ok
    store.rebuild()
    assert store.verify().ok and session_answers(store.space("ana", user="bo")) == before


# -- as of an earlier moment ----------------------------------------------------------------------


def test_recall_of_events_as_of_an_earlier_position(
    space: Space, store: Store, clock: FakeClock
) -> None:
    session = space.session("s")
    session.append(user("zebra one"), at="2020-01-01")
    clock.step(DAY)
    session.append(user("zebra two"))
    moment = datetime.fromtimestamp(clock.now() / 1000, UTC)
    clock.step(DAY)
    session.hide()
    clock.step(DAY)
    session.restore()
    session.remember("zebra private", private=True)
    memory = space.remember("zebra learned", origin=Origin("s", 1))
    clock.step(DAY)
    space.session("t").append(user("zebra three"))

    def found(handle: Space | Session, as_of: Any, **options: Any) -> set[str]:
        hits = handle.recall("zebra", mode="keyword", as_of=as_of, limit=50, **options)
        assert {hit.id for hit in hits} == {
            hit.id for hit in handle.recall("zebra", as_of=as_of, limit=50, **options)
        }
        return {hit.text for hit in hits}

    seen = [found(space, position) for position in range(8)]
    one, two = {"zebra one"}, {"zebra one", "zebra two"}
    late = two | {"zebra learned"}
    assert seen == [set(), one, two, set(), two, two, late, late | {"zebra three"}]
    assert found(space, moment) == two and found(space, "2030-01-01") == seen[-1]
    assert found(session, 5) == two | {"zebra private"} and found(session, 4) == two
    assert found(space, 7, kinds=["event"]) == two | {"zebra three"}
    assert found(space, 7, until="2021-01-01") == one
    by_now = {hit.id: hit.score for hit in space.recall("zebra", limit=50)}
    then = {hit.id: hit.score for hit in space.recall("zebra", limit=50, as_of=7)}
    assert by_now.keys() == then.keys()
    space.erase(memory.id, with_source=True)
    assert found(space, 7) == {"zebra two", "zebra three"} and found(space, 1) == set()
    session.erase()
    assert found(space, 7) == {"zebra three"} == found(space, "2030-01-01")
    assert found(session, 7) == {"zebra three"}


# -- out and in -----------------------------------------------------------------------------------


def records(space: Space) -> list[dict[str, Any]]:
    """An export as a file holds it."""
    exported: list[dict[str, Any]] = json.loads(json.dumps(list(space.export())))
    return exported


def own(space: Space) -> dict[str, Any]:
    """What a handle owns, without what follows the others in its store: scores and positions."""
    known = session_answers(space)
    for mode in ("keyword", "vector", "hybrid", "since"):
        things = [hit.event or hit.memory for hit in known[mode]]
        known[mode] = sorted(repr(thing) for thing in things if thing and thing.user == space.user)
    known["memories"] = [each for each in known["memories"] if each.user == space.user]
    for info in known.pop("sessions"):
        events, memories, resumed, hits, followed = known[info.id]
        mine = {hit.id for hit in hits if (hit.event or hit.memory).user == space.user}
        hidden = info.hidden_at is not None
        known[info.id] = (events, memories, resumed, mine, followed, info.preview, hidden)
    return known


@pytest.mark.parametrize(("space", "of_user"), OWNERS)
@pytest.mark.sample(3)
def test_exported_sessions_are_imported_into_another_store(
    stores: Stores, space: str, of_user: str | None
) -> None:
    store, other = lived(stores), stores.open("other")
    from_here = store.space(space, user=of_user)
    there = other.space(space, user=of_user)
    exported = records(from_here)
    report = there.import_records(exported)
    assert report.skipped == () and report.added == len(exported)
    assert other.verify().problems == () and own(there) == own(from_here)
    if (space, of_user) == OWNERS[0]:
        assert there.sessions(include_hidden=True) == from_here.sessions(include_hidden=True)
    before = session_answers(there)
    again = there.import_records(exported)
    assert (again.added, again.unchanged, again.skipped) == (0, len(exported), ())
    assert session_answers(there) == before
    other.rebuild()
    assert session_answers(there) == before and other.verify().ok
    assert there.session("erased").append(user("anew")).sequence == 3


def test_repeated_import_continues_a_session(stores: Stores) -> None:
    here, there = stores.open("here").space("ana"), stores.open("there").space("ana")
    session = here.session("s")
    session.append_many(conversation("one", "two"), key="k")
    there.import_records(records(here))
    session.append(user("three"))
    session.hide("done")
    report = there.import_records(records(here))
    assert (report.added, report.skipped) == (2, ())
    assert texts(there.session("s")) == ["one", "two", "three"] and there.sessions() == []
    session.append(reply("four"))
    report = there.import_records(records(here))
    assert (report.added, report.skipped) == (2, ())
    assert there.session("s").events() == session.events()
    assert (
        there.session("s").append_many(conversation("one", "two"), key="k") == session.events()[:2]
    )


def test_session_export_holds_that_session_only(stores: Stores) -> None:
    store = lived(stores)
    space = store.space("ana")
    there = stores.open("there").space("ana")
    exported: list[dict[str, Any]] = json.loads(json.dumps(list(space.session("odd").export())))
    assert {record["session"] for record in exported} == {"odd"}
    there.import_records(exported)
    assert there.session("odd").events() == space.session("odd").events()
    assert [info.id for info in there.sessions()] == ["odd"]


def test_import_does_not_merge_different_sessions_of_one_name(stores: Stores) -> None:
    here, there = stores.open("here").space("ana"), stores.open("there").space("ana")
    here.session("s").append_many(conversation("one", "two", "three"))
    there.session("s").append_many(conversation("eins", "zwei"))
    report = there.import_records(records(here))
    assert texts(there.session("s")) == ["eins", "zwei"], "two conversations are not one"
    assert len(report.skipped) == 3


def test_import_keeps_data_of_a_different_session_of_one_name_separate(stores: Stores) -> None:
    here, there = stores.open("here").space("ana"), stores.open("there").space("ana")
    here.session("s").append_many(conversation("one", "two"))
    here.session("s").remember("private there", private=True)
    here.remember("learned there", origin=Origin("s", 1))
    there.session("s").append_many(conversation("eins", "zwei"))
    there.import_records(records(here))
    assert there.session("s").memories() == []
    for memory in there.memories():
        there.erase(memory.id, with_source=True)
    assert texts(there.session("s")) == ["eins", "zwei"], "it did not come from here"


def test_import_accepts_a_fork_before_its_parent(stores: Stores) -> None:
    here, there = stores.open("here").space("ana"), stores.open("there").space("ana")
    here.follow(conversation("one", "two", "three"), session="s")
    fork = here.follow(conversation("one", "two", "3", "four"), session="s")
    there.import_records(json.loads(json.dumps(list(fork.export()))))
    assert texts(there.session(fork.id)) == ["3", "four"]
    there.import_records(records(here))
    assert texts(there.session(fork.id)) == ["one", "two", "3", "four"]
    assert there.follow(conversation("one", "two", "3", "four", "five")).id == fork.id


def test_sessions_are_imported_under_another_user(stores: Stores) -> None:
    store = stores.open()
    space, bo = store.space("ana"), store.space("ana", user="bo")
    space.session("s").append_many(conversation("one", "two"))
    space.session("s").remember("private", private=True)
    space.accept(propose(space, "accepted", Origin("s", 1)))
    report = bo.import_records(records(space))
    assert report.skipped == () and store.verify().ok
    assert [m.content for m in bo.session("s").memories()] == ["private"]
    (proposal,) = bo.proposals(include_answered=True)
    assert proposal.answer == "accept"
    assert proposal.memory_id in {memory.id for memory in bo.memories()}


@pytest.mark.parametrize(
    "change",
    [
        {"session": "a\nb"},
        {"session": ""},
        {"sequence": 0},
        {"sequence": 1 << 60},
        {"sequence": None},
        {"op": "remember"},
        {"op": "explode"},
        {"body": {"message": "text", "at": 1}},
        {"body": {"message": {}, "at": 1}},
        {"body": {"message": {"role": "user"}, "at": "soon"}},
        {"body": {"message": {"role": "user"}, "at": 1, "more": 2}},
        {"body": []},
        {"uuid": "x"},
        {"trust": "god"},
        {"origin": ["s"]},
        {"recorded_at": 1 << 62},
        {"reverie": 99},
    ],
)
def test_import_skips_a_damaged_session_record_with_a_reason(
    stores: Stores, change: dict[str, Any]
) -> None:
    here = stores.open("here").space("ana")
    here.session("s").append(user("one"))
    (record,) = records(here)
    store = stores.open("there")
    report = store.space("ana").import_records([{**record, **change}, 7, record])  # type: ignore[list-item]
    assert len(report.skipped) == 2 and report.added == 1
    assert texts(store.space("ana").session("s")) == ["one"] and store.verify().ok


def test_import_does_not_bring_back_erased_events(stores: Stores) -> None:
    store = stores.open()
    space = store.space("ana")
    session = space.session("s")
    session.append_many(conversation("secret one", "two", "three"))
    session.remember("secret private", private=True)
    memory = space.remember("secret learned", origin=Origin("t", 1))
    space.session("t").append_many([user("secret source"), reply("kept")])
    exported = records(space)
    session.erase()
    space.erase(memory.id, with_source=True)
    report = space.import_records(exported)
    assert report.added == 0
    assert "secret" not in repr(list(space.export())) and session.events() == []
    assert texts(space.session("t")) == ["kept"] and store.verify().ok


# -- backups --------------------------------------------------------------------------------------


def test_restored_backup_has_every_session(
    stores: Stores, tmp_path: Path, clock: FakeClock
) -> None:
    store = lived(stores)
    space = store.space("ana")
    epoch = space.session("long").summary().epoch
    space.session("long").write_summary("summed up", upper=1, expected_epoch=epoch)
    space.session("long").scratchpad.write(["item"])
    before = all_said(store)
    store.backup(tmp_path / "copy")
    clock.step(DAY)
    space.session("long").append(user("later"))
    space.session("hidden").restore()
    space.session("later").append(user("later"))
    assert store.restore_backup(tmp_path / "copy").ok
    assert all_said(store) == before
    assert space.session("long").summary().text == "summed up"
    assert space.session("long").scratchpad.read().items == ("item",)


def erase_session(space: Space) -> None:
    space.session("s").erase()


def erase_source(space: Space) -> None:
    (memory,) = [memory for memory in space.memories() if memory.content == "canarybird learned"]
    space.erase(memory.id, with_source=True)


def erase_accepted(space: Space) -> None:
    (memory,) = [memory for memory in space.memories() if memory.content == "canarybird learned"]
    space.erase(memory.id)


@pytest.mark.parametrize("of_user", [None, "bo"])
@pytest.mark.parametrize("erase", [erase_session, erase_source, erase_accepted])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_session_erased_after_a_backup_stays_erased_when_it_is_restored(
    stores: Stores,
    tmp_path: Path,
    erase: Callable[[Space], None],
    known: bool,
    of_user: str | None,
) -> None:
    store = stores.open()
    space = store.space("ana", user=of_user)
    space.session("other").append_many(conversation("stays", "too"))
    if not known:
        store.backup(tmp_path / "copy")
    session = space.session("s")
    session.append_many(conversation("hello", "hi", "canarybird said", "noted"))
    session.remember("canarybird private", private=True) if erase is erase_session else None
    session.write_summary("about a canarybird", upper=3, expected_epoch=0)
    memory = space.accept(propose(space, "canarybird learned", Origin("s", 3)))
    if known:
        store.backup(tmp_path / "copy")
    exported = records(space)
    erase(space)
    kept = texts(session)
    assert store.restore_backup(tmp_path / "copy").ok
    space = store.space("ana", user=of_user)
    for _ in range(2):
        gone = "canarybird learned" if erase is erase_accepted else "canarybird"
        assert gone not in repr(list(space.export()))
        assert gone not in repr(space.proposals(include_answered=True))
        with pytest.raises(NotFound):
            space.get(memory.id)
        assert set(texts(space.session("s"))) <= set(kept)
        if known:
            assert texts(space.session("s")) == kept
        assert texts(space.session("other")) == ["stays", "too"]
        assert store.verify().problems == ()
        space.import_records(exported)
    store.rebuild()
    assert store.verify().ok
    if erase is erase_session:
        assert space.session("s").append(user("anew")).sequence == 5
        assert texts(space.session("s")) == ["anew"]
    store.close()
    for file in tmp_path.iterdir():
        if file.name != "copy" and erase is not erase_accepted:
            assert b"canarybird" not in file.read_bytes(), file


def test_import_adds_events_that_were_not_erased(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = store.space("ana")
    store.backup(tmp_path / "copy")
    space.session("s").append_many(conversation("hello", "hi", "canarybird", "noted"))
    memory = space.remember("canarybird learned", origin=Origin("s", 3))
    exported = records(space)
    space.erase(memory.id, with_source=True)
    store.restore_backup(tmp_path / "copy")
    space.import_records(exported)
    assert texts(space.session("s")) == ["hello", "hi", "noted"] and store.verify().ok


def test_session_used_again_survives_a_repeated_erase(stores: Stores, tmp_path: Path) -> None:
    store = stores.open()
    space = store.space("ana")
    session = space.session("s")
    session.append(user("canarybird"))
    session.erase()
    session.append(user("begun again"))
    store.backup(tmp_path / "copy")
    space.remember("later")
    assert store.restore_backup(tmp_path / "copy").ok
    assert texts(session) == ["begun again"] and session.append(user("x")).sequence == 3
    assert store.verify().ok
