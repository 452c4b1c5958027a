"""Editing a JSON body: what is inserted and removed, and that no other byte changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.server.proxy import json_edit
from reverie.server.proxy.json_edit import MalformedBody

PROFILE, RECALLED = '## Known\n- likes "tea"\n', "Recalled:\n- é\n"


def sent(raw: str, profile: str = PROFILE, recalled: str = RECALLED) -> str:
    return json_edit.parse_request(raw.encode()).with_memory(profile, recalled).decode()


def test_edited_body_differs_only_by_what_was_inserted() -> None:
    raw = (
        '{ "model":"m",\n\t"temperature": 1.0e-0, "seed":-0, "x":1, "x" : 2,"big":12345678901234567'
        '89012, "messages" : [ {"content":"Be \\u00e9\\/x", "role":"system"} ,{"role":"user",'
        '"content":"hi \\ud83d\\ude00"} ] ,"tools":[], "response_format":{"type":"json_object"} }\n'
    )
    into_system = r"\n\n## Known\n- likes \"tea\""
    before_user = r"Recalled:\n- \u00e9\n\n"
    expected = raw.replace(r"\/x", r"\/x" + into_system).replace('"hi ', f'"{before_user}hi ')
    assert sent(raw) == expected
    assert sent(raw, "", "") == raw


def test_edit_adds_a_system_message_where_there_is_none() -> None:
    got = sent('{"messages":[ {"role":"user","content":"hi"}]}')
    assert json.loads(got)["messages"] == [
        {"role": "system", "content": PROFILE.strip()},
        {"role": "user", "content": RECALLED + "\nhi"},
    ]
    assert got.startswith('{"messages":[ {"role": "system"') and got.endswith("]}")


@pytest.mark.parametrize("content", ["null", "7", '{"a": 1}'])
def test_edit_leaves_a_system_prompt_without_text_unchanged(content: str) -> None:
    raw = (
        f'{{"messages":[{{"role":"system","content":{content}}},{{"role":"user","content":"x"}}]}}'
    )
    messages = json.loads(sent(raw))["messages"]
    assert messages[0] == {"role": "system", "content": PROFILE.strip()}
    assert messages[1]["content"] == json.loads(content)


def test_edit_never_adds_an_empty_system_message() -> None:
    raw = '{"messages":[{"role":"user","content":"hi"}]}'
    assert sent(raw, "", "") == raw


def test_edit_adds_a_part_to_a_list_of_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    raw = json.dumps(
        {
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "Be kind"}]},
                {"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]},
            ]
        }
    )
    system, user = json.loads(sent(raw))["messages"]
    assert [part["text"] for part in system["content"]] == ["Be kind", PROFILE.strip()]
    assert user["content"][0] == {"type": "text", "text": RECALLED.strip()}
    assert user["content"][1:] == [image, {"type": "text", "text": "what is it?"}]


def test_edit_of_an_empty_list_adds_no_comma() -> None:
    raw = '{"messages":[{"role":"system","content":[ ]},{"role":"user","content":[]}]}'
    system, user = json.loads(sent(raw))["messages"]
    assert len(system["content"]) == len(user["content"]) == 1


def test_edit_inserts_before_the_latest_user_message_despite_tool_results() -> None:
    raw = json.dumps(
        {
            "messages": [
                {"role": "user", "content": "first"},
                {"role": "user", "content": "what is the weather?"},
                {"role": "assistant", "content": None, "tool_calls": []},
                {"role": "tool", "tool_call_id": "c", "content": "rain"},
            ]
        }
    )
    messages = json.loads(sent(raw, ""))["messages"]
    assert messages[1]["content"] == RECALLED + "\nwhat is the weather?"
    assert [m["content"] for m in (messages[0], messages[3])] == ["first", "rain"]


def test_edit_ignores_a_later_system_message() -> None:
    raw = json.dumps(
        {"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}
    )
    messages = json.loads(sent(raw))["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "system"]
    assert messages[2]["content"] == "b"


def test_edit_uses_the_last_of_duplicate_json_keys() -> None:
    message = '{"role":"assistant","role":"user","content":"a","content":"b"}'
    raw = f'{{"messages":[],"messages":[{message}]}}'
    assert sent(raw, "") == raw.replace('"b"', r'"Recalled:\n- \u00e9\n\nb"')


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        ('{"memory_id":"x", "a":1}', '{"a":1}'),
        ('{"a":1 , "memory_top_k":0}', '{"a":1}'),
        ('{"a":1,"memory_id":"x", "memory_top_k": 3 , "b" : 2}', '{"a":1,"b" : 2}'),
        ('{"a":1,"memory_id":"x","memory_recency_weight":0.2 }', '{"a":1 }'),
        ('{ "memory_id":"x","memory_score_threshold":null }', "{  }"),
        ('{"memory_id":"x","a":1,"memory_id":"y"}', '{"a":1}'),
        (
            '{"memory":1,"my_memory_id":{"memory_id":1}}',
            '{"memory":1,"my_memory_id":{"memory_id":1}}',
        ),
    ],
)
def test_json_edit_removes_the_fields_for_reverie(raw: str, left: str) -> None:
    assert sent(raw) == left


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"[]", b"null", b'"x"', b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{'a':1}",
        b'{"a":1}x', b'{"a":1 "b":2}', b'{"a":"\xff"}', b"\xef\xbb\xbf{}", b'{"a":"\n"}',
        b'{"a":' + b"[" * 200_000, '{"a":1}'.encode("utf-16"), b'{"messages":[{]}',
        b'{"a":' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_parse_request_refuses_bodies_that_are_no_json_object(raw: bytes) -> None:
    with pytest.raises(MalformedBody):
        json_edit.parse_request(raw)


@pytest.mark.parametrize("messages", ["null", "[]", '"hi"', "[1]", '[{"role":"user"}, "x"]', "{}"])
def test_edit_leaves_invalid_messages_unchanged(messages: str) -> None:
    raw = f'{{"messages":{messages}, "memory_id": "x"}}'
    assert sent(raw) == f'{{"messages":{messages}}}'


def test_add_member_appends_to_a_json_object() -> None:
    assert json_edit.add_member(b'{"a": 1.0 }\n', "b", [1]) == b'{"a": 1.0 , "b": [1]}\n'
    assert json_edit.add_member(b"{}", "b", "}") == b'{"b": "}"}'
    for other in (b"[1]", b"oops", b"\xff"):
        assert json_edit.add_member(other, "b", 1) == other


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CONTENT = st.text() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()}))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={"content": CONTENT | JSON, "name": st.text(), "tool_calls": JSON},
)
OWN_FIELDS = (
    "memory_id",
    "memory_top_k",
    "memory_recency_weight",
    "memory_score_threshold",
    "memory_of_tomorrow",
)
REQUEST = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=6)},
    optional={
        "model": st.text(),
        "seed": st.integers(),
        "x": JSON,
        **dict.fromkeys(OWN_FIELDS, JSON),
    },
)


@given(REQUEST, st.text(min_size=1), st.text(min_size=1), st.booleans(), st.integers(0, 3))
def test_edited_body_parses_to_the_same_values(
    request: dict[str, Any], profile: str, recalled: str, ascii_only: bool, indent: int
) -> None:
    raw = json.dumps(request, ensure_ascii=ascii_only, indent=indent or None)
    try:
        raw.encode()
    except UnicodeEncodeError:
        return
    got = json.loads(sent(raw, profile, recalled))
    plain = {name: value for name, value in request.items() if name not in OWN_FIELDS}
    assert {**got, "messages": None} == {**plain, "messages": None}
    before = list(request["messages"])
    after = list(got["messages"])
    if len(after) > len(before):
        assert after.pop(0) == {"role": "system", "content": profile.strip("\n")}
    changed = [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
    users = [at for at, message in enumerate(before) if message["role"] == "user"]
    assert set(changed) <= {0, *users}
    for at in changed:
        assert {**after[at], "content": 0} == {**before[at], "content": 0}
        was, now = before[at]["content"], after[at]["content"]
        if isinstance(was, str):
            assert now.endswith(was) or now.startswith(was)
        else:
            assert was in (now[1:], now[:-1])
