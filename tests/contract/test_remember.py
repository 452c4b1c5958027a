"""remember, get, memories and the rules for what a memory is."""

from __future__ import annotations

import contextlib
import string
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from reverie import InvalidInput, Memory, NotFound, Origin, Space, Store, SubjectExists
from reverie.model import Order
from tests.conftest import DAY, START, FakeClock, SeededIds, Stores

ALPHABET = set(string.ascii_letters + string.digits)


def test_remember_returns_a_memory_with_the_given_fields(space: Space) -> None:
    memory = space.remember(
        "Alec is my boss",
        category="person",
        subject="Alec",
        tags=["work"],
        source="chat",
        origin=Origin("s1", 3),
        happened_at="2025-12-24",
        pinned=True,
    )
    assert (memory.kind, memory.content, memory.category) == ("fact", "Alec is my boss", "person")
    assert (memory.subject, memory.tags, memory.source) == ("Alec", ("work",), "chat")
    assert (memory.version, memory.user, memory.session) == (1, None, None)
    assert (memory.trust, memory.pinned) == ("person", True)
    assert memory.created_at == memory.updated_at == START
    assert memory.happened_at == START - 8 * DAY
    assert memory.forgotten_at is None and memory.expires_at is None
    assert space.get(memory.id) == memory
    assert space.memories() == [memory]
    (version,) = space.history(memory.id)
    assert (version.op, version.version, version.content) == ("remember", 1, memory.content)
    assert version.origin == Origin("s1", 3)


def test_remembered_memory_is_there_after_reopening(stores: Stores) -> None:
    first = stores.open()
    memory = first.space("ana").remember("kept")
    first.close()
    assert stores.open().space("ana").memories() == [memory]


def test_memory_ids_have_eight_alphanumeric_characters(space: Space) -> None:
    made = [space.remember(f"fact {number}").id for number in range(20)]
    assert len(set(made)) == 20
    assert all(len(id) == 8 and set(id) <= ALPHABET for id in made)


def test_remember_draws_another_id_when_one_is_taken(space: Space, ids: SeededIds) -> None:
    ids.coming = ["AAAAaaaa", "AAAAaaaa", "AAAAaaaa", "BBBBbbbb"]
    assert [space.remember("one").id, space.remember("two").id] == ["AAAAaaaa", "BBBBbbbb"]


def test_memory_id_is_unique_across_owners_of_a_space(store: Store, ids: SeededIds) -> None:
    ids.coming = ["AAAAaaaa", "AAAAaaaa", "BBBBbbbb"]
    assert store.space("ana").remember("shared").id == "AAAAaaaa"
    assert store.space("ana", user="bo").remember("own").id == "BBBBbbbb"


def test_erased_memory_id_is_not_reused(space: Space, ids: SeededIds) -> None:
    ids.coming = ["AAAAaaaa", "AAAAaaaa", "BBBBbbbb"]
    space.erase(space.remember("one").id)
    assert space.remember("two").id == "BBBBbbbb"


def test_two_spaces_may_use_the_same_memory_id(store: Store, ids: SeededIds) -> None:
    ids.coming = ["AAAAaaaa", "AAAAaaaa"]
    one, two = store.space("one"), store.space("two")
    assert one.remember("of one").id == two.remember("of two").id
    assert one.get("AAAAaaaa").content == "of one"
    assert two.get("AAAAaaaa").content == "of two"
    two.forget("AAAAaaaa")
    assert one.get("AAAAaaaa").forgotten_at is None


@pytest.mark.parametrize(
    ("given", "slug"),
    [
        ("My Notes", "my_notes"),
        ("  A--B  ", "a_b"),
        ("", "general"),
        ("日本", "general"),
        ("X", "x"),
    ],
)
def test_category_is_a_slug_when_stored_and_when_filtered(
    space: Space, given: str, slug: str
) -> None:
    memory = space.remember("zebra", category=given)
    space.remember("zebra elsewhere", category="other thing")
    assert memory.category == slug
    assert space.memories(category=given) == space.memories(category=slug) == [memory]
    for mode in ("keyword", "hybrid"):
        hits = space.recall("zebra", category=given, mode=mode)
        assert [hit.id for hit in hits] == [memory.id]
    position = 2
    assert space.memories(category=given, as_of=position) == [memory]
    assert space.revise(memory.id, category=given).category == slug


def test_tags_are_trimmed_lowercased_and_unique(space: Space) -> None:
    memory = space.remember("x", tags=["  Work ", "WORK", "home", "", "home "])
    assert set(memory.tags) == {"work", "home"} and len(memory.tags) == 2
    most = [f"tag{number}" for number in range(16)]
    assert set(space.remember("y", tags=most).tags) == set(most)
    for wrong in ([f"tag{number}" for number in range(17)], ["x" * 65], "work", [7]):
        with pytest.raises(InvalidInput):
            space.remember("z", tags=wrong)  # type: ignore[arg-type]


def test_tag_filter_requires_every_tag(space: Space) -> None:
    both = space.remember("apple pie", tags=["a", "b"])
    one = space.remember("apple cake", tags=["a"])
    assert [m.id for m in space.memories(tags=["A "])] == [one.id, both.id]
    assert [m.id for m in space.memories(tags=["b", "a"])] == [both.id]
    assert space.memories(tags=["a", "c"]) == []
    assert [h.id for h in space.recall("apple", tags=["a", "b"])] == [both.id]
    assert [h.id for h in space.recall("apple", tags=["a", "b"], mode="vector")] == [both.id]
    assert [h.id for h in space.recall("apple", tags=["a", "b"], as_of=2)] == [both.id]
    assert space.memories(tags=["%"]) == []


@pytest.mark.parametrize("mode", ["keyword", "vector", "hybrid"])
def test_recall_applies_filters_before_ranking(space: Space, mode: Any) -> None:
    """The one that matches the filter is the worst match of very many."""
    wanted = space.remember(
        "among the many animals that live on wide grass plains stands one zebra", tags=["rare"]
    )
    records = [{"content": f"zebra {number}"} for number in range(300)]
    space.import_records(records)
    assert wanted.id not in [hit.id for hit in space.recall("zebra", mode=mode, limit=5)]
    assert [hit.id for hit in space.recall("zebra", tags=["rare"], mode=mode)] == [wanted.id]


def test_remember_returns_what_else_is_known_of_the_subject(space: Space) -> None:
    first = space.remember("Alec is my boss", category="person", subject="Alec  Smith")
    assert first.related == ()
    second = space.remember("Alec likes tea", category="Person", subject=" ALEC smith ")
    assert (second.id != first.id, second.related) == (True, (first,))
    third = space.remember("leads the launch", category="project", subject="Alec Smith")
    assert [each.id for each in third.related] == [second.id, first.id]
    space.remember("Mina likes tea", subject="Mina")
    assert len(space.memories(subject="ALEC SMITH")) == 3
    assert len(space.memories(subject="ALEC SMITH", category="person")) == 2
    # Only what remember returned has them, and they are no part of what a memory is.
    assert space.get(third.id) == third and space.get(third.id).related == ()


def test_related_memories_are_limited_and_leave_out_what_is_gone(space: Space) -> None:
    kept = [space.remember(f"fact {number}", subject="Alec") for number in range(14)]
    space.forget(kept[12].id)
    last = space.remember("one more", subject="Alec")
    assert [each.id for each in last.related] == [
        each.id for each in reversed(kept) if each.id != kept[12].id
    ][:10]


def test_related_memories_are_those_that_the_handle_sees(store: Store) -> None:
    shared = store.space("s").remember("Alec is on leave", subject="Alec")
    alice = store.space("s", user="alice").remember("Alec is my boss", subject="Alec")
    assert alice.related == (shared,)
    bob = store.space("s", user="bob").remember("Alec owes me tea", subject="Alec")
    assert bob.related == (shared,)
    assert store.space("s").remember("Alec is back", subject="Alec").related == (shared,)
    other = store.space("t").remember("Alec is a cat", subject="Alec")
    assert other.related == ()


def test_related_memories_of_a_session_are_its_own_and_those_of_all(space: Space) -> None:
    everywhere = space.remember("Alec is my boss", subject="Alec")
    chat = space.session("chat").remember("Alec is angry", subject="Alec", private=True)
    assert [each.id for each in chat.related] == [everywhere.id]
    other = space.session("other").remember("Alec is tired", subject="Alec", private=True)
    assert [each.id for each in other.related] == [everywhere.id]
    again = space.session("chat").remember("Alec is calm", subject="Alec", private=True)
    assert [each.id for each in again.related] == [chat.id, everywhere.id]
    assert [each.id for each in space.remember("Alec left", subject="Alec").related] == [
        everywhere.id
    ]


def test_unless_known_refuses_a_second_statement_about_the_same(space: Space) -> None:
    first = space.remember("Alec is my boss", category="person", subject="Alec  Smith")
    with pytest.raises(SubjectExists) as caught:
        space.remember(
            "Alec Smith is my former boss",
            category="Person",
            subject=" ALEC smith ",
            unless_known=True,
        )
    assert caught.value.existing == first
    assert first.id in str(caught.value)
    assert len(space.memories()) == 1
    for content, category in (("Alec likes tea", "person"), ("Alec was my boss", "project")):
        space.remember(content, category=category, subject="Alec Smith", unless_known=True)
    assert len(space.memories()) == 3


def test_unless_known_looks_only_at_the_owner_that_is_written(store: Store) -> None:
    store.space("s").remember("Alec is my boss", subject="Alec")
    store.space("s", user="bob").remember("Alec is my boss", subject="Alec")
    alice = store.space("s", user="alice")
    assert alice.remember("Alec is my boss", subject="Alec", unless_known=True).version == 1


def test_same_text_remembered_again_is_the_same_memory(space: Space) -> None:
    first = space.remember("Alec is my boss", subject="Alec", tags=["work"])
    again = space.remember("Alec is my boss", subject=" ALEC", tags=["people"], pinned=True)
    assert (again.id, again.version) == (first.id, 2)
    assert (again.tags, again.pinned) == (("work", "people"), True)
    assert again.updated_at >= first.updated_at and again.related == ()
    assert len(space.memories()) == 1
    last = space.history(first.id)[-1]
    assert (last.op, last.reason) == ("revise", "the same text was remembered again")
    assert [hit.id for hit in space.recall("boss")] == [first.id]


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "note"},
        {"subject": "Eva"},
        {"happened_at": "2026-01-02"},
        {"valid_from": "2025-06-01"},
        {"valid_from": None, "valid_to": "2025-01-01"},
        {"metadata": {"run": 2}},
    ],
)
def test_same_text_about_something_else_is_another_memory(
    space: Space, other: dict[str, Any]
) -> None:
    given: dict[str, Any] = {
        "subject": "Bob",
        "happened_at": "2026-01-01",
        "valid_from": "2025-05-01",
        "metadata": {"run": 1},
    }
    first = space.remember("likes jazz", **given)
    assert space.remember("likes jazz", **(given | other)).id != first.id


@pytest.mark.parametrize(
    "again",
    [
        {"content": "Alec is my boss"},
        {"content": "Alec is my boss", "category": "work"},
        {"content": "Alec is my boss", "category": "person"},
        {"content": "Alec  is my\tboss "},
        {"content": "alec is my boss."},
        {"content": "ALEC IS MY BOSS", "subject": " ALEC  smith", "happened_at": "2025-01-01"},
    ],
)
def test_same_text_in_other_letters_or_with_other_labels_is_the_same_memory(
    space: Space, again: dict[str, Any]
) -> None:
    first = space.remember(
        "Alec is my boss", category="person", subject="Alec Smith", tags=["work"]
    )
    touched = space.remember(**again)
    assert (touched.id, touched.version, space.count()) == (first.id, 2, 1)
    kept = (touched.content, touched.category, touched.subject, touched.tags)
    assert kept == ("Alec is my boss", "person", "Alec Smith", ("work",))
    assert space.memories() == [touched] == [space.get(first.id)]
    assert space.profile().count("boss") == 1


def test_repeated_text_adds_what_the_memory_lacked(store: Store) -> None:
    space = store.space("s")
    first = space.remember("Alec is my boss")
    touched = space.remember(
        "alec is my boss.",
        category="person",
        subject="Alec",
        happened_at="2025-02-01",
        valid_from="2025-02-01",
        valid_to="2099-01-01",
    )
    assert (touched.id, touched.content) == (first.id, "Alec is my boss")
    assert (touched.category, touched.subject) == ("person", "Alec")
    assert touched.happened_at == touched.valid_from != touched.valid_to is not None
    assert space.memories(subject="Alec", category="person") == [touched]
    assert space.memories(as_of=1) == [first]
    again = space.remember("Alec is my boss")
    assert again == replace(touched, version=3, updated_at=again.updated_at)
    assert store.verify().ok


def test_repeated_text_touches_the_memory_with_the_same_labels(space: Space) -> None:
    about = [None, "Bob", "Eva"]
    made = {each: space.remember("likes jazz", subject=each).id for each in ("Bob", "Eva")}
    made[None] = space.remember_separately("likes jazz", key=None).id  # type: ignore[index]
    space.remember_separately("likes jazz", key=None, category="music")
    for each in about:
        assert space.remember("likes jazz", subject=each).id == made[each]  # type: ignore[index]


def test_same_text_said_of_now_is_another_memory_than_one_of_another_time(space: Space) -> None:
    ended = space.remember("lives in Oslo", valid_to="2020-01-01")
    again = space.remember("lives in Oslo")
    assert (again.id != ended.id, again.valid_to) == (True, None)
    coming = space.remember("lives in Rome", valid_from="2099-01-01")
    assert space.remember("lives in Rome").id != coming.id
    now = space.remember("lives in Bonn")
    assert space.remember("lives in Bonn", valid_from="2099-01-01").id != now.id
    assert space.memories(valid_at="2027-01-01")[0] == now
    left = space.remember("lives in Kyiv", valid_to="2025-01-01")
    assert space.remember("lives in Kyiv", valid_from="2025-02-01").id != left.id


def test_repeated_text_completes_the_time_in_which_it_held(space: Space) -> None:
    first = space.remember("lives in Oslo")
    space.remember("lives in Oslo", valid_from="2015-01-01")
    ended = space.remember("lives in Oslo", valid_to="2020-01-01")
    assert (ended.id, ended.version, space.count()) == (first.id, 3, 1)
    assert None not in (ended.valid_from, ended.valid_to)


def test_words_that_differ_in_more_than_case_are_another_memory(space: Space) -> None:
    texts = ["trinkt in Maßen", "trinkt in Massen", "has 10² hens", "has 102 hens", "is it late"]
    texts += ["is it late?", "likes C", "likes C#"]
    assert len({space.remember(text).id for text in texts}) == len(texts)


def test_notes_are_the_same_only_when_written_the_same(space: Space) -> None:
    first = space.remember("def Run():\n    pass", kind="note")
    assert space.remember("def run():\n    pass", kind="note").id != first.id
    assert space.remember("def Run():\n  pass", kind="note").id != first.id
    touched = space.remember("def Run():\n    pass", kind="note", category="code")
    assert (touched.id, touched.category) == (first.id, "code")


def test_same_text_is_another_memory_for_another_owner_or_session(store: Store) -> None:
    ids = [
        handle.remember("likes jazz").id
        for handle in (store.space("s"), store.space("s", user="alice"), store.space("t"))
    ]
    chat = store.space("s").session("chat")
    assert chat.remember("likes jazz").id == ids[0]
    assert len({*ids, chat.remember("likes jazz", private=True).id}) == 4


def test_same_text_after_it_was_forgotten_is_a_new_memory(space: Space) -> None:
    first = space.remember("likes jazz")
    space.forget(first.id)
    assert space.remember("likes jazz").id != first.id


def test_repeated_text_is_vouched_for_by_the_more_trusted_author(store: Store) -> None:
    tool = store.space("s", trust="tool")
    person = store.space("s", trust="person")
    first = tool.remember("likes jazz", tags=["heard"])
    assert person.remember("likes jazz").trust == "person"
    last = tool.remember("likes jazz", tags=["spam"], pinned=True)
    assert (last.id, last.version, last.trust) == (first.id, 3, "person")
    assert (last.tags, last.pinned) == (("heard",), False)


def test_time_that_a_less_trusted_author_gives_is_not_lost(store: Store) -> None:
    said = store.space("s", trust="person").remember("lives in Oslo")
    tool = store.space("s", trust="tool")
    ended = tool.remember("lives in Oslo", valid_from="2010-01-01", valid_to="2015-01-01")
    assert (ended.id != said.id, tool.get(said.id)) == (True, said)
    assert None not in (ended.valid_from, ended.valid_to)
    again = tool.remember("lives in Oslo", valid_from="2010-01-01", valid_to="2015-01-01")
    assert (again.id, again.version) == (ended.id, 2)


def test_repeated_text_expires_with_the_later_of_both(space: Space) -> None:
    space.remember("likes jazz", expires_at="2030-01-01")
    later = space.remember("likes jazz", expires_at="2031-01-01")
    assert later.expires_time == datetime(2031, 1, 1, tzinfo=UTC)
    assert space.remember("likes jazz").expires_at is None


def test_repeated_text_with_a_key_has_one_effect(space: Space) -> None:
    space.remember("likes jazz")
    again = space.remember("likes jazz", key="k")
    assert space.remember("likes jazz", key="k") == again
    assert space.get(again.id).version == 2


def test_subject_in_another_unicode_form_is_the_same_subject(space: Space) -> None:
    first = space.remember("x", subject="Café")
    assert space.remember("y", subject="Cafe\u0301").related == (first,)


def test_subject_of_a_forgotten_or_erased_memory_can_be_used_again(space: Space) -> None:
    first = space.remember("x", subject="Alec")
    space.forget(first.id)
    second = space.remember("y", subject="Alec")
    space.erase(second.id)
    assert space.remember("z", subject="Alec").version == 1


def test_subject_of_another_owner_is_no_conflict(store: Store) -> None:
    store.space("ana").remember("shared", subject="Alec")
    store.space("ana", user="bo").remember("of bo", subject="Alec")
    store.space("ana", user="cy").remember("of cy", subject="Alec")
    store.space("other").remember("elsewhere", subject="Alec")


def test_empty_subject_is_stored_as_none(space: Space) -> None:
    assert space.remember("x", subject="  ").subject is None
    assert space.remember("y", subject="").subject is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": ""},
        {"content": " \n\t "},
        {"content": "\ud800"},
        {"content": 5},
        {"content": b"x"},
        {"content": "x" * 501},
        {"content": "x", "kind": "thought"},
        {"content": "x", "category": 1},
        {"content": "x", "subject": "s" * 201},
        {"content": "x", "subject": "a\nb"},
        {"content": "x", "subject": "\udfff"},
        {"content": "x", "source": ""},
        {"content": "x", "source": "a\0b"},
        {"content": "x", "origin": ("session",)},
        {"content": "x", "origin": "no"},
        {"content": "x", "origin": ("s", "1")},
        {"content": "x", "happened_at": "yesterday"},
        {"content": "x", "happened_at": True},
        {"content": "x", "happened_at": 1.5},
        {"content": "x", "expires_at": "soon"},
        {"content": "x", "key": ""},
        {"content": "x", "key": "k" * 201},
    ],
)
def test_remember_refuses_invalid_arguments(space: Space, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        space.remember(**wrong)
    assert space.memories() == []


@pytest.mark.parametrize("field", ["happened_at", "expires_at"])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_remember_refuses_a_time_beyond_the_database_range(
    space: Space, field: str, value: int
) -> None:
    with pytest.raises(InvalidInput):
        space.remember("x", **{field: value})  # type: ignore[arg-type]


def test_remember_refuses_an_origin_beyond_the_database_range(space: Space) -> None:
    with pytest.raises(InvalidInput):
        space.remember("x", origin=Origin("s", 2**63))


@pytest.mark.parametrize("name", ["since", "until", "as_of"])
def test_as_of_beyond_the_database_range_is_refused_or_harmless(space: Space, name: str) -> None:
    space.remember("zebra")
    for value in (2**63, -(2**63) - 1):
        with contextlib.suppress(InvalidInput):
            space.recall("zebra", **{name: value})  # type: ignore[arg-type]


def test_memories_and_recall_accept_a_huge_limit(space: Space) -> None:
    memory = space.remember("zebra")
    assert space.memories(limit=10**30) == [memory]
    assert [hit.id for hit in space.recall("zebra", limit=10**30)] == [memory.id]


def test_exhausted_id_source_is_a_typed_error(space: Space, ids: SeededIds) -> None:
    from reverie import ReverieError

    ids.coming = ["AAAAaaaa"] * 500
    space.remember("one")
    with pytest.raises(ReverieError):
        space.remember("two")


def test_fact_length_is_limited_and_note_length_is_not(space: Space) -> None:
    assert len(space.remember("x" * 500).content) == 500
    assert len(space.remember("x" * 501, kind="note").content) == 501
    with pytest.raises(InvalidInput, match="note"):
        space.revise(space.memories(kind="fact")[0].id, "x" * 501)


def test_memories_are_listed_newest_first_by_position(space: Space, clock: FakeClock) -> None:
    made: list[Memory] = []
    for step in (0, -DAY, 5 * DAY, -9 * DAY, 0):
        clock.step(step)
        made.append(space.remember(f"fact {len(made)}"))
    assert space.memories() == made[::-1]
    assert space.memories(limit=2) == made[:2:-1]
    times = [memory.created_at for memory in made]
    assert times == sorted(times)


def test_memories_are_listed_by_category(space: Space, clock: FakeClock) -> None:
    b1 = space.remember("b1", category="b")
    clock.step(DAY)
    a1 = space.remember("a1", category="a")
    b2 = space.remember("b2", category="b")
    assert space.memories(order="category") == [a1, b1, b2]
    assert space.memories(order="category", limit=2) == [a1, b1]
    with pytest.raises(InvalidInput):
        space.memories(order="oldest")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        space.memories(limit=0)


@pytest.mark.parametrize("order", ["newest", "category"])
def test_paging_continues_after_a_memory_that_has_left_the_list(space: Space, order: Order) -> None:
    made = [space.remember(f"thing {n}", category="ab"[n // 3], tags=["x"]) for n in range(6)]
    whole = space.memories(order=order, tags=["x"])
    assert {memory.id for memory in whole} == {memory.id for memory in made}
    for n, last in enumerate(whole[:4]):
        if n % 2:
            space.forget(last.id)
        else:
            space.revise(last.id, tags=[])
        rest = space.memories(order=order, tags=["x"], after=last.id, limit=10)
        assert rest == whole[n + 1 :]
    then = space.memories(order=order, as_of=6, after=whole[1].id)
    assert [memory.id for memory in then] == [memory.id for memory in whole[2:]]
    with pytest.raises(NotFound):
        space.memories(order=order, after="absent00", limit=1)


def test_paging_by_category_continues_after_a_memory_has_moved(space: Space) -> None:
    for n in range(4):
        space.remember(f"thing {n}", category="m")
    whole = space.memories(order="category", category="m")
    for n, category in enumerate(("a", "z")):
        space.revise(whole[n].id, category=category)
        rest = space.memories(order="category", category="m", after=whole[n].id, limit=10)
        assert rest == whole[n + 1 :]


def test_memories_are_filtered_by_kind(space: Space) -> None:
    fact, note = space.remember("f"), space.remember("n", kind="note")
    assert space.memories(kind="fact") == [fact]
    assert space.memories(kind="note") == [note]


def test_unknown_ids_are_not_found(space: Space) -> None:
    space.remember("x")
    for id in ("nothere1", "", "' OR 1=1", "%", "é", "x" * 1000, "\0"):
        for verb in (space.get, space.history, space.forget, space.restore, space.erase):
            with pytest.raises(NotFound):
                verb(id)
        with pytest.raises(NotFound):
            space.revise(id, "y")


def test_reading_an_unknown_space_returns_nothing(store: Store) -> None:
    nobody = store.space("nobody", user="x")
    assert not [*nobody.memories(), *nobody.recall("x"), *nobody.export()]
    assert not [*nobody.memories(as_of=5), *nobody.recall("x", as_of="2026-01-01")]
    assert nobody.profile() == ""
    with pytest.raises(NotFound):
        nobody.get("AAAAaaaa")
    assert store.spaces() == []


@pytest.mark.parametrize(
    ("text", "query"),
    [("我家的猫很喜欢鱼", "猫"), ("うちの猫は魚が好きです", "魚"), ("แมวของฉันชอบกินปลา", "ปลา")],
)
def test_recall_finds_a_word_of_one_character(space: Space, text: str, query: str) -> None:
    memory = space.remember(text)
    space.remember("something else")
    assert [hit.id for hit in space.recall(query, mode="keyword")] == [memory.id]
