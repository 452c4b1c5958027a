"""Files of others, and our own, as records for an import."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, TextIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie import Space
from reverie.transfer.export import UnreadableRecord
from reverie.transfer.file_formats import parse


def parsed(text: str) -> list[dict[str, Any] | UnreadableRecord]:
    return list(parse(io.StringIO(text)))


def contents(text: str) -> list[Any]:
    return [
        item if isinstance(item, UnreadableRecord) else item["content"] for item in parsed(text)
    ]


# -- our own --------------------------------------------------------------------------------------


def test_own_export_lines_are_passed_unchanged(space: Space) -> None:
    memory = space.remember("one", subject="s", tags=["t"])
    space.revise(memory.id, "two")
    records = json.loads(json.dumps(list(space.export())))
    assert parsed("".join(json.dumps(record) + "\n" for record in records)) == records


def test_lines_are_parsed_one_at_a_time() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield '{"content": "again"}\n'

    records = parse(cast(TextIO, endless()))
    assert [next(records) for _ in range(3)] == [{"content": "again"}] * 3


def test_broken_line_is_reported_and_the_rest_parsed() -> None:
    broken, second = UnreadableRecord("line 2", ""), {"content": "b"}
    found = parsed('{"content": "a"}\n{"content": \n\n{"content": "b"}\n')
    assert found[0] == {"content": "a"} and found[2] == second
    assert isinstance(found[1], UnreadableRecord) and found[1].place == broken.place
    assert found[1].why.startswith("not valid JSON")


def test_broken_first_line_does_not_hide_the_others() -> None:
    first, *rest = parsed('{"content": "a\n{"content": "b"}\n{"content": "c"}\n')
    assert isinstance(first, UnreadableRecord) and first.place == "line 1"
    assert rest == [{"content": "b"}, {"content": "c"}]


def test_remark_before_json_lines_does_not_hide_them() -> None:
    assert contents('an export of today\n{"content": "b"}\n') == ["an export of today", "b"]


# -- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_array_of_simple_records_is_parsed(indent: int | None) -> None:
    memory = {"id": "1", "content": "a", "category": "fact", "created_at": "2025-01-02T03:04:05Z"}
    assert parsed(json.dumps([memory], indent=indent)) == [
        {"content": "a", "category": "fact", "created_at": "2025-01-02T03:04:05Z"}
    ]


def test_arrays_of_texts_and_objects_are_parsed() -> None:
    found = parsed('["a", {"text": "b", "tags": "x, y", "pinned": true}, {"content": "c"}, 7, ""]')
    assert found == [
        {"content": "a"},
        {"content": "b", "tags": ["x", "y"], "pinned": True},
        {"content": "c"},
        UnreadableRecord("line 1, item 4", "neither text nor an object but 7"),
        UnreadableRecord("line 1, item 5", "it is blank"),
    ]


def test_object_without_content_is_reported() -> None:
    (found,) = parsed('{"name": "x"}')
    assert found == UnreadableRecord("line 1", "content: field required")
    (found,) = parsed('{"content": 7}')
    assert isinstance(found, UnreadableRecord) and "valid string" in found.why


def test_numeric_times_are_parsed_as_seconds_or_milliseconds() -> None:
    found = parsed('[{"content": "a", "created_at": 1735787045}]')
    assert found == [{"content": "a", "created_at": "2025-01-02T03:04:05+00:00"}]
    found = parsed('[{"content": "a", "created_at": 1735787045000}]')
    assert found == [{"content": "a", "created_at": "2025-01-02T03:04:05+00:00"}]
    (found_wrong,) = parsed('[{"content": "a", "created_at": 1e300}]')
    assert isinstance(found_wrong, UnreadableRecord) and "is no time" in found_wrong.why


# -- mem0 -----------------------------------------------------------------------------------------

MEM0 = {
    "id": "0f4d",
    "memory": "Likes green tea",
    "hash": "abc",
    "metadata": {"category": "taste", "tags": ["drink"], "channel": "chat", "deep": {"x": 1}},
    "categories": ["food", "hobbies"],
    "created_at": "2025-07-01T12:00:00.123-07:00",
    "updated_at": None,
    "user_id": "alice",
}


@pytest.mark.parametrize("around", ["results", "memories", ""])
@pytest.mark.parametrize("indent", [None, 2])
def test_mem0_export_is_parsed(around: str, indent: int | None) -> None:
    document: Any = {around: [MEM0]} if around else [MEM0]
    assert parsed(json.dumps(document, indent=indent)) == [
        {
            "content": "Likes green tea",
            "category": "taste",
            "tags": ["drink", "food", "hobbies"],
            "source": "mem0",
            "metadata": {"channel": "chat", "deep": {"x": 1}, "user_id": "alice"},
            "created_at": "2025-07-01T12:00:00.123-07:00",
        }
    ]


def test_mem0_record_without_optional_fields_is_parsed() -> None:
    found = parsed('{"results": [{"memory": "a", "metadata": null, "categories": ["b"]}]}')
    assert found == [{"content": "a", "category": "b", "source": "mem0"}]
    found = parsed('{"results": [{"memory": "a", "metadata": {"source": "app", "tags": "x,y"}}]}')
    assert found == [{"content": "a", "source": "app", "tags": ["x", "y"]}]


def test_mem0_tags_are_limited_to_the_maximum_of_a_memory(space: Space) -> None:
    metadata = {f"key{number}": "v" * number for number in range(1, 80)}
    given = {"memory": "a", "metadata": metadata, "categories": [f"c{n}" for n in range(30)]}
    (record,) = parsed(json.dumps({"results": [given]}))
    assert isinstance(record, dict)
    assert space.import_records([record]).added == 1
    assert space.memories()[0].metadata == metadata


# -- MCP's reference server -----------------------------------------------------------------------

ENTITY = {
    "type": "entity",
    "name": "Ana",
    "entityType": "Team Member",
    "observations": ["is tall", "speaks Czech"],
}
RELATION = {"type": "relation", "from": "Ana", "to": "Acme", "relationType": "works_at"}
GRAPH = [
    {"content": "is tall", "subject": "Ana", "category": "team_member"},
    {"content": "speaks Czech", "subject": "Ana", "category": "team_member"},
    {"content": "Ana works_at Acme", "subject": "Ana", "category": "relation"},
]


def test_memory_json_graph_as_lines_is_parsed() -> None:
    assert parsed(f"{json.dumps(ENTITY)}\n{json.dumps(RELATION)}\n") == GRAPH


@pytest.mark.parametrize("indent", [None, 2])
def test_memory_json_graph_as_one_object_is_parsed(indent: int | None) -> None:
    entity = {name: value for name, value in ENTITY.items() if name != "type"}
    relation = {name: value for name, value in RELATION.items() if name != "type"}
    document = {"entities": [entity], "relations": [relation]}
    assert parsed(json.dumps(document, indent=indent)) == GRAPH


def test_entity_without_observations_is_kept() -> None:
    found = parsed('{"type":"entity","name":"Acme","entityType":"company","observations":[]}')
    assert found == [
        {"content": "Acme is of type company", "subject": "Acme", "category": "company"}
    ]


def test_broken_graph_is_reported() -> None:
    assert parsed('{"entities": 7, "relations": ["x", {"from": "a"}]}') == [
        UnreadableRecord("line 1, entities", "it must be an array"),
        {"content": "x"},
        UnreadableRecord("line 1, item 2 of relations", "content: field required"),
    ]


def test_several_facts_of_one_subject_are_imported(space: Space) -> None:
    records = [record for record in parsed(json.dumps(ENTITY)) if isinstance(record, dict)]
    assert space.import_records(records).added == 2
    assert space.import_records(records).unchanged == 2
    assert len(space.memories(subject="ana")) == 2


# -- plain lines ----------------------------------------------------------------------------------


def test_plain_text_lines_are_parsed_without_list_markers() -> None:
    text = "- a\n* b\n+ c\n1. d\n  12) e  \n\n   \n-\nf - g\n1.5 h\n[x] done\n"
    assert contents(text) == ["a", "b", "c", "d", "e", "f - g", "1.5 h", "[x] done"]


def test_lines_that_only_resemble_json_are_plain_text() -> None:
    assert contents("[x] done\n[ ] open\n") == ["[x] done", "[ ] open"]
    assert contents("[note] a\n- b\n") == ["[note] a", "b"]


def test_broken_json_document_is_reported_and_not_read_as_text() -> None:
    for text in ('{"content": "a"', '[{"content": "a"},\n', '["a",\n"b"\n', "[\n1,\n", "{\n"):
        (found,) = parsed(text)
        assert isinstance(found, UnreadableRecord) and found.place == "the file"
        assert found.why.startswith("not valid JSON")


def test_deep_nesting_and_long_numbers_are_reported() -> None:
    (found,) = parsed("[" * 100_000)
    assert isinstance(found, UnreadableRecord) and "nested too deeply" in found.why
    (_, found) = parsed('{"content": "a"}\n{"content": ' + "9" * 5000 + "}\n")
    assert isinstance(found, UnreadableRecord) and found.place == "line 2"


# -- bytes ----------------------------------------------------------------------------------------


def opened(data: bytes, errors: str = "surrogateescape") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors, newline="")


def test_byte_order_marks_and_foreign_line_ends_are_accepted() -> None:
    data = '\ufeff{"content": "a"}\r\n\r\n{"content": "b"}\r\n'.encode()
    assert list(parse(opened(data))) == [{"content": "a"}, {"content": "b"}]
    assert list(parse(opened("\ufeff- a\r\n".encode()))) == [{"content": "a"}]


def test_bytes_that_are_no_text_are_reported() -> None:
    message = "not UTF-8 text: convert it first"
    data = b'\xff\n{"content": "a"}\n\xfe\n{"content": "b"}\n'
    assert list(parse(opened(data))) == [
        UnreadableRecord("line 1", message),
        {"content": "a"},
        UnreadableRecord("line 3", message),
        {"content": "b"},
    ]
    assert list(parse(opened(b"a\n\xff\n", errors="strict")))[-1:] == [
        UnreadableRecord("after line 0", message)
    ]
    assert list(parse(opened("a\nb".encode("utf-16")))) == [
        UnreadableRecord("the file", "it is UTF-16 text: convert it to UTF-8 first")
    ]
    assert list(parse(opened(b'[\n"a",\n"\xff",\n"b"]'))) == [
        UnreadableRecord("line 3", message),
        {"content": "a"},
        {"content": "b"},
    ]


def test_empty_input_gives_no_record() -> None:
    assert parsed("") == parsed("\n \n") == parsed("\ufeff") == []


# -- anything at all ------------------------------------------------------------------------------

NAMES = (
    *("content", "memory", "text", "results", "memories", "entities", "relations", "type", "name"),
    *("entityType", "observations", "from", "to", "relationType", "metadata", "categories"),
    *("tags", "created_at", "kind"),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(NAMES) | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


def check(text: str) -> None:
    for item in parsed(text):
        if isinstance(item, UnreadableRecord):
            assert item.place and item.why
        else:
            assert isinstance(item, dict)
            assert "reverie" in item or isinstance(item["content"], str)


@given(st.text() | st.text(alphabet='{}[]",:-*1. \n\ufeff\\u'))
def test_any_text_can_be_parsed(text: str) -> None:
    check(text)


@given(st.lists(json_values, max_size=4), st.sampled_from([None, 1]))
def test_any_json_can_be_parsed(values: list[Any], indent: int | None) -> None:
    check("\n".join(json.dumps(value, indent=indent) for value in values))


@given(st.binary())
def test_any_bytes_can_be_parsed(data: bytes) -> None:
    list(parse(opened(data)))


@pytest.mark.parametrize(
    "extra", [{"relations": []}, {"relations": [{"source": "a", "target": "b"}]}]
)
def test_relations_beside_mem0_results_hide_no_record(extra: dict[str, object]) -> None:
    text = json.dumps({"results": [{"memory": "Ana likes tea"}], **extra})
    found = list(parse(io.StringIO(text)))
    assert {"content": "Ana likes tea"}.items() <= dict(found[0]).items()  # type: ignore[arg-type]
