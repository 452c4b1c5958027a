"""What is said without a user's name is nobody's in particular, and no named user is told it."""

from __future__ import annotations

import pytest

from reverie import Event, InvalidInput, Memory, NotFound, Origin, Space, Store
from reverie.model import UNNAMED
from reverie.transfer import import_
from reverie.write import proposals
from reverie.write.owners import session_target
from tests.conftest import Stores, rows
from tests.messages import append_as_shared, reply, user

SAID = "My name is Alice and I live in Oslo"


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open(learn="rules")


@pytest.fixture
def ana(store: Store) -> Space:
    """A handle without a user, whose chat was learned from."""
    space = store.space("ana")
    space.session("chat").append({"role": "user", "content": SAID})
    space.remember("The office is in Bergen", subject="office")
    store.run_pending_jobs()
    return space


def contents(space: Space) -> set[str]:
    return {memory.content for memory in space.memories()}


def find(space: Space, word: str) -> Memory:
    (found,) = [memory for memory in space.memories() if word in memory.content]
    return found


def test_named_user_is_not_told_what_was_said_without_a_name(store: Store, ana: Space) -> None:
    carol = store.space("ana", user="carol")
    carol.remember("I like tea")
    assert contents(carol) == {"I like tea", "The office is in Bergen"}
    assert {hit.text for hit in carol.recall("who lives in Oslo? Alice", limit=50)} == {
        "I like tea",
        "The office is in Bergen",
    }
    assert "Alice" not in carol.profile() + carol.context("Alice in Oslo").recalled
    assert carol.count() == 2 and sum(carol.categories().values()) == 2
    assert carol.sessions() == [] and carol.session("chat").events() == []
    told = str([*carol.export(), *carol.changes(), *carol.memories(as_of=carol.position())])
    assert "Alice" not in told and "Oslo" not in told


def test_handle_without_a_user_sees_what_is_shared_and_what_was_said(
    store: Store, ana: Space
) -> None:
    again = store.space("ana")
    assert contents(again) == {
        "The office is in Bergen",
        "The user lives in Oslo",
        "The user's name is Alice",
    }
    assert all(memory.user is None for memory in again.memories())
    hits = again.recall("Oslo", limit=50)
    assert {SAID, "The user lives in Oslo", "The office is in Bergen"} <= {h.text for h in hits}
    assert [each.id for each in again.sessions()] == ["chat"]
    assert [event.text for event in again.session("chat").events()] == [SAID]
    assert "Alice" in again.profile() and "Bergen" in again.profile()
    (event,) = [hit for hit in hits if isinstance(hit.event, Event)]
    assert [each.text for each in again.neighbours(event)] == [SAID]


def test_recall_as_of_now_finds_both_parts(store: Store, ana: Space) -> None:
    now = [(hit.id, hit.score) for hit in ana.recall("Oslo office", limit=50)]
    then = [
        (hit.id, hit.score) for hit in ana.recall("Oslo office", limit=50, as_of=ana.position())
    ]
    assert now == then


def test_learned_memory_is_changed_by_its_id(store: Store, ana: Space) -> None:
    learned = find(ana, "Oslo")
    assert ana.revise(learned.id, "The user lives in Bergen", key="r").version == 2
    assert ana.revise(learned.id, "The user lives in Bergen", key="r").version == 2
    assert ana.forget(learned.id).forgotten_at is not None
    assert ana.restore(learned.id).content == "The user lives in Bergen"
    assert [version.version for version in ana.history(learned.id)] == [1, 2, 3, 4]
    carol = store.space("ana", user="carol")
    assert contents(carol) == {"The office is in Bergen"}
    with pytest.raises(NotFound):
        carol.revise(learned.id, "no")
    erased = ana.erase(learned.id, key="e")
    assert ana.erase(learned.id, key="e") == erased
    with pytest.raises(NotFound):
        ana.get(learned.id)
    assert store.verify().problems == ()


def test_related_memories_are_found_in_both_parts(stores: Stores) -> None:
    store = stores.open(learn="rules")
    ana = store.space("ana")
    ana.session("chat").append({"role": "user", "content": "Remember that Bob likes jazz."})
    store.run_pending_jobs()
    learned = find(ana, "jazz")
    ana.revise(learned.id, subject="Bob")
    made = ana.remember("Bob plays chess", subject="Bob")
    assert [memory.id for memory in made.related] == [learned.id]
    carol = store.space("ana", user="carol")
    assert carol.remember("Bob is tall", subject="Bob").related == (ana.get(made.id),)


def test_private_memory_of_an_unnamed_session_is_seen_there_alone(store: Store, ana: Space) -> None:
    chat = ana.session("chat")
    secret = chat.remember("only this chat knows", private=True)
    assert [memory.id for memory in chat.memories()] == [secret.id]
    assert secret.id not in {memory.id for memory in ana.memories()}
    assert secret.id not in {memory.id for memory in store.space("ana", user="cy").memories()}


def test_memory_of_a_session_names_its_event_and_is_shared(store: Store, ana: Space) -> None:
    made = ana.session("chat").remember("The printer is broken")
    assert ana.history(made.id)[0].origin == Origin("chat", 1)
    assert "The printer is broken" in contents(store.space("ana", user="carol"))


def test_erased_session_takes_what_was_remembered_of_it(store: Store, ana: Space) -> None:
    made = ana.session("chat").remember("The printer is broken")
    report = ana.session("chat").erase()
    assert made.id in report.memories and len(report.memories) == 3
    assert contents(ana) == {"The office is in Bergen"}
    assert ana.sessions() == [] and store.verify().problems == ()


def test_erasing_with_source_takes_the_unnamed_event(store: Store, ana: Space) -> None:
    made = ana.session("chat").remember("The printer is broken")
    assert ana.erase(made.id, with_source=True).sources == (Origin("chat", 1),)
    assert ana.session("chat").events() == []
    assert store.verify().problems == ()


def test_erased_event_is_taken_out_of_a_shared_memory_that_was_revised(
    store: Store, ana: Space
) -> None:
    made = ana.session("chat").remember("The plugh printer is broken")
    ana.revise(made.id, "The printer works")
    before = ana.position()
    ana.session("chat").erase_event(1)
    assert ana.get(made.id).content == "The printer works"
    assert "plugh" not in str([*ana.export(), *ana.history(made.id)])
    # Whoever mirrors what named users see learns of it in their own part of the log.
    told = store.space("ana", user="carol").changes(after=before)
    assert [(change.op, change.session) for change in told] == [("erase", "chat")]
    assert store.verify().problems == ()
    store.rebuild()
    assert store.verify().problems == () and ana.get(made.id).content == "The printer works"


def test_source_is_forgotten_in_both_parts(store: Store, ana: Space) -> None:
    ana.remember("The rules say so", source="rules")
    assert len(ana.memories_from_source("rules")) == 3
    forgotten = ana.forget_source("rules", key="f")
    assert len(forgotten) == 3 and ana.forget_source("rules", key="f") == forgotten
    assert contents(ana) == {"The office is in Bergen"}


def test_proposal_of_an_unnamed_chat_is_accepted_where_it_was_made(stores: Stores) -> None:
    store = stores.open(learn="rules", write_policy="ask")
    ana = store.space("ana")
    ana.session("chat").append({"role": "user", "content": SAID})
    store.run_pending_jobs()
    assert store.space("ana", user="carol").proposals() == []
    first, second = ana.proposals()
    made = ana.accept(first.id)
    assert ana.accept(first.id).id == made.id
    assert ana.reject(second.id).answer == "reject"
    assert contents(ana) == {made.content}
    assert contents(store.space("ana", user="carol")) == set()


def test_followed_history_goes_on_in_the_unnamed_session(store: Store) -> None:
    ana = store.space("ana")
    history = [{"role": "user", "content": "Which wood for the deck? We took oak."}]
    first = ana.follow(history)
    history += [
        {"role": "assistant", "content": "Oak it is."},
        {"role": "user", "content": "And the stairs?"},
    ]
    assert ana.follow(history).id == first.id
    assert len(first.events()) == 3
    assert store.space("ana", user="carol").recall("oak deck") == []


def test_session_that_was_stored_as_shared_stays_so(store: Store) -> None:
    ana = store.space("ana")
    append_as_shared(ana, "old", user("We picked oak for the deck in spring"))
    ana.session("new").append({"role": "user", "content": "The stairs are of pine"})
    old = ana.session("old")
    old.append({"role": "assistant", "content": "Noted."})
    old.scratchpad.write(["buy oak"])
    assert [event.sequence for event in old.events()] == [1, 2]
    assert [each.id for each in ana.sessions()] == ["old", "new"]
    carol = store.space("ana", user="carol")
    assert "old:1" in {hit.id for hit in carol.recall("oak deck")}
    assert carol.recall("stairs of pine", mode="keyword") == []
    resent = [
        {"role": "user", "content": "We picked oak for the deck in spring"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "And the roof?"},
    ]
    assert ana.follow(resent).id == "old"
    assert len(old.events()) == 3
    assert ana.sessions(limit=1)[0].id == "old"
    old.erase()
    assert [each.id for each in ana.sessions()] == ["new"]
    assert store.verify().problems == ()


def test_conversation_that_begins_like_a_shared_one_is_not_shared(store: Store) -> None:
    ana = store.space("ana")
    append_as_shared(ana, "old", user("Write a title for this chat"), reply("The deck"))
    asked = [user("Write a title for this chat"), reply("Money"), user("My salary is 90k")]
    other = ana.follow(asked)
    assert other.id != "old" and len(other.events()) == 3
    carol = store.space("ana", user="carol")
    assert carol.recall("salary", mode="keyword") == []
    # One that begins alike and is longer goes on where it is.
    ana.follow([user("Write a title for this chat")])
    whole = [user("Write a title for this chat"), reply("The deck"), user("Shorter, please")]
    assert ana.follow(whole).id == "old"


def test_name_of_an_erased_shared_session_is_not_shared_again(store: Store) -> None:
    ana = store.space("ana")
    append_as_shared(ana, "old", user("We picked oak for the deck"))
    ana.session("old").erase()
    ana.session("old").append(user("My salary is 90k"))
    assert store.space("ana", user="carol").recall("salary", mode="keyword") == []
    assert [event.text for event in ana.session("old").events()] == ["My salary is 90k"]
    assert store.verify().problems == ()


def test_forgotten_shared_memory_is_not_learned_again(store: Store) -> None:
    store.space("ana", user="carol").remember("I like tea")
    ana = store.space("ana")
    ana.session("chat").append(user("I live in Oslo."))
    made = ana.session("chat").remember("The user lives in Oslo")
    ana.forget(made.id)
    store.run_pending_jobs()
    assert contents(ana) == set()


def test_fact_is_not_learned_beside_the_same_shared_memory(store: Store) -> None:
    store.space("ana", user="carol").remember("I like tea")
    ana = store.space("ana")
    ana.session("chat").append(user("I live in Oslo."))
    ana.remember("The user lives in Oslo")
    store.run_pending_jobs()
    assert [memory.content for memory in ana.memories()] == ["The user lives in Oslo"]


def test_remembering_what_was_learned_replaces_it(store: Store, ana: Space) -> None:
    learned = find(ana, "Oslo")
    made = ana.remember(learned.content, category=learned.category, subject=learned.subject)
    assert made.id != learned.id and find(ana, "Oslo").id == made.id
    assert "The user lives in Oslo" in contents(store.space("ana", user="carol"))
    assert ana.restore(learned.id).content == learned.content


def test_erased_shared_memory_takes_the_unnamed_proposal_it_came_from(stores: Stores) -> None:
    store = stores.open(learn="off", write_policy="ask")
    ana = store.space("ana")
    made = ana.remember("The user lives in Rome", category="context", subject="home")
    ana.session("s").append(user("I live in plugh now"))
    shared = ana.history(made.id)[0]
    with ana.writer(session_target("s")) as w:
        fact = proposals.ProposedFact("The user lives in plugh", "context", "home", "rules")
        replaced = proposals.Replacement(proposals.VersionRef(made.id, shared.uuid))
        proposals.propose(w, Origin("s", 1), fact, "heard it", replaced)
    assert ana.accept(ana.proposals()[0].id).id == made.id
    ana.erase(made.id)
    assert "plugh" not in str(ana.proposals(include_answered=True))
    assert store.verify().problems == ()


def test_export_and_import_keep_what_is_unnamed(store: Store, ana: Space) -> None:
    records = list(ana.export())
    assert [record.get("unnamed", False) for record in records].count(False) == 1
    copy = store.space("copy")
    assert copy.import_records(records).skipped == ()
    assert contents(copy) == contents(ana)
    assert contents(store.space("copy", user="carol")) == {"The office is in Bergen"}
    assert [each.id for each in copy.sessions()] == ["chat"]
    again = copy.import_records(records)
    assert (again.added, again.skipped) == (0, ())
    alice = store.space("copy", user="alice")
    assert alice.import_records(records).skipped == ()
    assert contents(alice) >= contents(ana)


def test_unnamed_is_no_user_that_anybody_can_name(store: Store, ana: Space) -> None:
    assert [info.users for info in store.spaces()] == [()]
    with pytest.raises(InvalidInput):
        store.space("ana", user=UNNAMED)
    with pytest.raises(InvalidInput):
        store.create_token("t", user=UNNAMED)


def test_recall_alone_creates_no_owner(store: Store) -> None:
    ana = store.space("quiet")
    ana.remember("The office is in Bergen")
    assert ana.recall("office")
    ana.remember("The office has a lift")
    assert rows(store, "SELECT COUNT(*) FROM owners") == [(1,)]


def test_fact_of_an_unmarked_conversation_is_imported_beside_it(
    store: Store, ana: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export of an earlier version marks nothing as unnamed."""
    monkeypatch.setattr(import_, "BATCH", 1)
    records = [{k: v for k, v in each.items() if k != "unnamed"} for each in ana.export()]
    copy = store.space("copy")
    assert copy.import_records(records).skipped == ()
    assert contents(copy) == contents(ana)
    assert contents(store.space("copy", user="carol")) == {"The office is in Bergen"}


def test_remembering_what_was_learned_keeps_what_a_person_added_to_it(
    store: Store, ana: Space
) -> None:
    learned = find(ana, "Oslo")
    ana.revise(learned.id, tags=["mine"], pinned=True)
    ana.remember(learned.content, category=learned.category, subject=learned.subject)
    kept = ana.get(learned.id)
    assert (kept.forgotten_at, kept.tags, kept.pinned) == (None, ("mine",), True)
