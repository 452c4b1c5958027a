"""``where``: conditions on memories, the same in SQL, for earlier states, and in recalls."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reverie import InvalidInput, Memory, Space, Store
from reverie.engine import conditions
from reverie.write.where import parse_where
from tests.conftest import Stores
from tests.messages import user
from tests.property import examples

PEOPLE: list[dict[str, Any]] = [
    {
        "content": "Ana leads the platform",
        "category": "person",
        "subject": "Ana",
        "tags": ["work", "lead"],
        "happened_at": "2026-01-10",
        "metadata": {"team": "platform", "level": 3, "remote": True, "skills": ["go", "sql"]},
    },
    {
        "content": "Bo designs the page",
        "category": "person",
        "subject": "Bo",
        "tags": ["work"],
        "happened_at": "2026-02-10",
        "metadata": {"team": "web", "level": 2, "remote": False, "home": {"city": "Oslo"}},
    },
    {
        "content": "Deploy on Fridays",
        "category": "decision",
        "kind": "note",
        "tags": ["old"],
        "happened_at": "2026-03-10",
        "metadata": {"team": "platform", "level": 10.5},
    },
    {"content": "Tea at four", "happened_at": "2026-04-10"},
]

CASES: list[tuple[dict[str, Any], str]] = [
    ({"category": "person"}, "Ana Bo"),
    ({"category": {"eq": "Person"}}, "Ana Bo"),
    ({"category": {"ne": "person"}}, "Deploy Tea"),
    ({"category": {"in": ["person", "decision"]}}, "Ana Bo Deploy"),
    ({"category": {"nin": ["person", "decision"]}}, "Tea"),
    ({"category": {"contains": "cis"}}, "Deploy"),
    ({"kind": "note"}, "Deploy"),
    ({"kind": {"ne": "note"}}, "Ana Bo Tea"),
    ({"subject": "ANA"}, "Ana"),
    ({"subject": None}, "Deploy Tea"),
    ({"subject": {"ne": None}}, "Ana Bo"),
    ({"subject": {"ne": "ana"}}, "Bo Deploy Tea"),
    ({"subject": {"contains": "B"}}, "Bo"),
    ({"tags": "Work"}, "Ana Bo"),
    ({"tags": {"contains": "lead"}}, "Ana"),
    ({"tags": {"in": ["lead", "old"]}}, "Ana Deploy"),
    ({"tags": {"nin": ["lead", "old"]}}, "Bo Tea"),
    ({"at": {"gte": "2026-02-10", "lt": "2026-04-10"}}, "Bo Deploy"),
    ({"at": "2026-04-10"}, "Tea"),
    ({"metadata.team": "platform"}, "Ana Deploy"),
    ({"metadata.team": {"ne": "platform"}}, "Bo Tea"),
    ({"metadata.team": {"in": ["web", "x"]}}, "Bo"),
    ({"metadata.team": {"contains": "plat"}}, "Ana Deploy"),
    ({"metadata.team": {"gt": "platform"}}, "Bo"),
    ({"metadata.team": {"gt": 1}}, ""),
    ({"metadata.team": None}, "Tea"),
    ({"metadata.team": {"ne": None}}, "Ana Bo Deploy"),
    ({"metadata.level": 2.0}, "Bo"),
    ({"metadata.level": {"gte": 3}}, "Ana Deploy"),
    ({"metadata.level": {"gt": 2, "lt": 10}}, "Ana"),
    ({"metadata.level": {"lte": 2}}, "Bo"),
    ({"metadata.level": "2"}, ""),
    ({"metadata.remote": True}, "Ana"),
    ({"metadata.remote": 1}, ""),
    ({"metadata.skills": "go"}, "Ana"),
    ({"metadata.skills": {"contains": "sql"}}, "Ana"),
    ({"metadata.skills": {"contains": "sq"}}, ""),
    ({"metadata.home.city": "Oslo"}, "Bo"),
    ({"OR": [{"metadata.level": 3}, {"tags": "old"}]}, "Ana Deploy"),
    ({"NOT": {"tags": {"contains": "old"}}}, "Ana Bo Tea"),
    (
        {
            "AND": [
                {"category": "person"},
                {"metadata.team": {"in": ["platform", "web"]}},
                {"NOT": {"tags": "lead"}},
            ]
        },
        "Bo",
    ),
    ({"category": "person", "metadata.team": "web"}, "Bo"),
    ({}, "Ana Bo Deploy Tea"),
]


def first_words(memories: list[Memory]) -> str:
    return " ".join(memory.content.split()[0] for memory in reversed(memories))


@pytest.mark.parametrize(("where", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_where_selects_memories_now_and_as_of_a_position(
    space: Space, where: dict[str, Any], expected: str
) -> None:
    space.remember_many(PEOPLE)  # type: ignore[arg-type]
    before = space.position()
    assert first_words(space.memories(where=where)) == expected
    assert space.count(where=where) == len(expected.split())
    found = space.recall("Ana Bo deploy tea", where=where, limit=10)
    assert {hit.text.split()[0] for hit in found} == set(expected.split())
    for memory in space.memories():
        space.revise(memory.id, metadata=None, tags=[], category="general", subject=None)
    assert first_words(space.memories(where=where, as_of=before)) == expected
    earlier = space.recall("Ana Bo deploy tea", where=where, as_of=before, limit=10)
    assert {hit.text.split()[0] for hit in earlier} == set(expected.split())


def test_where_follows_revisions(space: Space) -> None:
    id = space.remember("x", metadata={"team": "web", "l": [1, 2]}).id
    space.revise(id, metadata={"team": "platform", "l": [2]})
    assert space.count(where={"metadata.team": "web"}) == 0
    assert space.count(where={"metadata.team": "platform", "metadata.l": 2}) == 1
    assert space.count(where={"metadata.l": 1}) == 0
    space.forget(id)
    assert space.count(where={"metadata.team": "platform"}) == 0
    assert space.count(where={"metadata.team": "platform"}, include_forgotten=True) == 1


def test_long_texts_are_compared_whole(space: Space) -> None:
    long = "x" * 5_000
    space.remember("one", metadata={"text": long + "a"})
    space.remember("two", metadata={"text": long + "b"})
    assert first_words(space.memories(where={"metadata.text": long + "a"})) == "one"
    assert first_words(space.memories(where={"metadata.text": {"contains": "xb"}})) == "two"
    assert space.count(where={"metadata.text": {"gt": "x"}}) == 2


def test_where_never_selects_memories_of_another_owner(store: Store) -> None:
    for handle in (
        store.space("s"),
        store.space("s", user="alice"),
        store.space("s", user="bob"),
        store.space("t"),
    ):
        handle.remember(f"of {handle!r}", metadata={"team": "web"}, tags=["t"])
    alice = store.space("s", user="alice")
    for where in ({"metadata.team": "web"}, {"tags": "t"}, {"metadata.team": {"ne": "x"}}):
        assert {memory.user for memory in alice.memories(where=where)} == {"alice", None}
        assert alice.count(where=where) == 2
        assert len(alice.recall("of", where=where, limit=10)) == 2


def test_where_looks_at_the_kind_and_time_of_events(space: Space) -> None:
    space.remember("the oars are red", tags=["boat"])
    space.session("chat").append(user("the oars are blue"))
    now = space.session("chat").events()[0].at

    def kinds(where: dict[str, Any]) -> list[str]:
        return sorted(hit.kind for hit in space.recall("oars", where=where))

    assert kinds({"kind": "event"}) == ["event"]
    assert kinds({"kind": {"ne": "event"}}) == ["fact"]
    assert kinds({"tags": "boat"}) == ["fact"]
    assert kinds({"NOT": {"tags": "boat"}}) == ["event"]
    assert kinds({"metadata.x": None}) == ["event", "fact"]
    assert kinds({"at": {"gt": now + 1}}) == []
    assert "event" in kinds({"at": {"lte": now}})
    assert "event" in kinds({"OR": [{"at": {"lte": now}}, {"tags": "boat"}]})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([], "where must be a JSON object"),
        ({"teem": 1}, "unknown key 'teem': use kind, category, subject, tags, at, metadata.NAME"),
        ({"metadata.": 1}, "unknown key"),
        ({"metadata": {"team": "x"}}, "unknown key 'metadata'"),
        ({"category": {"like": "x"}}, "category has no operator 'like': use eq, ne, in"),
        ({"category": {"gt": "x"}}, "category has no operator 'gt'"),
        ({"kind": "memo"}, "kind must be one of fact, note, event"),
        ({"AND": {}}, "AND must be a list"),
        ({"OR": []}, "OR must be a list"),
        ({"NOT": []}, "must be an object with a key"),
        ({"AND": [{}]}, "must be an object with a key"),
        ({"tags": {}}, "tags must have a value or an operator"),
        ({"tags": {"in": []}}, "tags in needs a list"),
        ({"tags": {"in": "x"}}, "tags in needs a list"),
        ({"tags": ["x"]}, "tags eq cannot be compared with list"),
        ({"tags": {"contains": ""}}, "tags contains must not be empty"),
        ({"category": None}, "category eq cannot be compared with NoneType"),
        ({"at": {"gt": "soon"}}, "at gt must be a time"),
        ({"metadata.a": {"gt": True}}, "metadata.a gt needs a number or a text"),
        ({"metadata.a": float("nan")}, "metadata.a eq must be a finite number"),
        ({"metadata.a": {"in": [{}]}}, "metadata.a in cannot be compared with dict"),
        ({"metadata.a": "\0"}, "U+0000"),
    ],
)
def test_wrong_where_is_refused_by_name(space: Space, where: Any, message: str) -> None:
    for call in (space.memories, space.count, lambda where: space.recall("x", where=where)):
        with pytest.raises(InvalidInput) as caught:
            call(where=where)
        assert message in str(caught.value)


def test_where_that_is_too_large_is_refused(space: Space) -> None:
    deep: dict[str, Any] = {"kind": "fact"}
    for _ in range(16):
        deep = {"NOT": deep}
    with pytest.raises(InvalidInput, match="nested deeper than 16"):
        space.memories(where=deep)
    with pytest.raises(InvalidInput, match="more than 100 comparisons"):
        space.memories(where={"OR": [{"metadata.a": n} for n in range(101)]})


NAMES = st.sampled_from(["a", "b", "a.b", "ä"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 0.5, -2.5, 1e300, 2**53, 2**53 + 1])
    | st.sampled_from(["", "a", "ab", "b", "B", "é", "𝔘", "\uffff", "%", "_", "a" * 201, "a" * 202])
)
METADATA = st.dictionaries(
    NAMES,
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    max_size=3,
)
TEXTS = st.sampled_from(["a", "ab", "b", "é", "%", "_", "a" * 201])
SOLID = SCALARS.filter(lambda value: value is not None)


def operators_on(values: st.SearchStrategy[Any], *operators: str) -> st.SearchStrategy[Any]:
    single = st.sampled_from(operators).flatmap(
        lambda operator: st.fixed_dictionaries({operator: values})
    )
    listed = st.sampled_from(["in", "nin"]).flatmap(
        lambda operator: st.fixed_dictionaries({operator: st.lists(values, min_size=1, max_size=3)})
    )
    return single | listed


COMPARISONS = st.one_of(
    NAMES.flatmap(
        lambda name: st.fixed_dictionaries(
            {
                f"metadata.{name}": st.one_of(
                    SCALARS,
                    operators_on(SOLID, "eq", "ne"),
                    operators_on(
                        SOLID.filter(lambda value: not isinstance(value, bool)),
                        *("gt", "gte", "lt", "lte"),
                    ),
                    operators_on(SOLID.filter(lambda value: value != ""), "contains"),
                )
            }
        )
    ),
    st.fixed_dictionaries({"tags": operators_on(TEXTS, "eq", "ne", "contains")}),
    st.fixed_dictionaries({"subject": operators_on(TEXTS, "eq", "ne", "contains") | st.none()}),
    st.fixed_dictionaries(
        {"category": operators_on(st.sampled_from(["a", "ab"]), "eq", "contains")}
    ),
    st.fixed_dictionaries({"kind": operators_on(st.sampled_from(["fact", "note"]), "eq", "ne")}),
    st.fixed_dictionaries({"at": operators_on(st.integers(0, 3), "eq", "gt", "gte", "lt", "lte")}),
)
WHERES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"AND": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"OR": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"NOT": inner}),
    ),
    max_leaves=6,
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["fact", "note"]),
            "category": st.sampled_from(["a", "ab", "general"]),
            "subject": st.none() | TEXTS.filter(lambda text: len(text) < 200),
            "tags": st.lists(TEXTS.filter(lambda text: len(text) < 60), max_size=2),
            "happened_at": st.integers(0, 3),
            "metadata": METADATA,
        }
    ),
    max_size=6,
)


def test_sql_and_python_agree_on_every_condition(stores: Stores) -> None:
    numbers = iter(range(10**9))
    store = stores.open(embedder="none")

    @settings(
        max_examples=4 * examples("sqlite"), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(items=ITEMS, wheres=st.lists(WHERES, min_size=1, max_size=5))
    def compare(items: list[dict[str, Any]], wheres: list[dict[str, Any]]) -> None:
        space = store.space(f"s{next(numbers)}")
        named: list[Any] = [{"content": f"item {n}", **item} for n, item in enumerate(items)]
        space.remember_many(named)
        memories = space.memories()
        for where in wheres:
            condition = parse_where(where)
            assert condition is not None
            expected = [m.id for m in memories if conditions.accepts_memory(condition, m)]
            assert [memory.id for memory in space.memories(where=where)] == expected, where
            assert space.count(where=where) == len(expected)

    compare()
