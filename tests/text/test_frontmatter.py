from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import InvalidInput, VaultError
from reverie.text import frontmatter
from reverie.text.frontmatter import (
    KEYS,
    MAX_BYTES,
    Value,
    dump,
    equal_ignoring_crlf,
    load,
    update,
)
from tests.tables import cases_in_one_test
from tests.tiers import PROVE

LOADERS = [yaml.CBaseLoader, yaml.BaseLoader]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# What YAML, Markdown and line ends are made of.
PIECES = st.sampled_from(
    ["---", "...", "\n", "\r\n", "\r", "\ufeff", "\0", "\u2028", "\x85", "\t", " ", "", "# x", "a"]
)
CONTENT = TEXT | st.lists(PIECES, max_size=12).map("".join)
VALUES = TEXT | st.sampled_from(
    ["true", "No", "~", "null", "12", "1e3", "0x1f", "1_000", "1:30", "2026-01-01", ".inf", "a#b"]
    + [
        "-",
        "-a",
        "?",
        ":",
        "#a",
        "a: b",
        "a #b",
        " a",
        "a ",
        "a  b",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
        "[a]",
        "{a}",
        "a,b",
    ]
)
FIELDS = st.dictionaries(
    st.sampled_from([*KEYS, "conflict_of", "y", "on", "Title"]),
    VALUES | st.integers() | st.booleans() | st.lists(VALUES, max_size=5),
    max_size=6,
)
check = settings(deadline=None, max_examples=200, derandomize=True)


@pytest.fixture(autouse=True, scope="module", params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontmatter, "_LOADER", request.param)
        yield request.param


def as_text(fields: Mapping[str, Value]) -> dict[str, str | list[str]]:
    return {
        key: str(value).lower()
        if isinstance(value, int)
        else value
        if isinstance(value, str)
        else list(value)
        for key, value in fields.items()
    }


def test_dump_writes_the_documented_format() -> None:
    fields: dict[str, Value] = {
        "title": "of a person",
        "tags": ["work", "big team", "no", "a, b"],
        "subject": "Sarah",
        "version": 2,
        "pinned": True,
        "created_at": "2026-01-01T00:00:00.123+00:00",
        "id": "a1B2c3D4",
        "role": "memory",
    }
    assert dump(fields, "Sarah moved.\n\nMore") == (
        b"---\n"
        b"id: a1B2c3D4\n"
        b"role: memory\n"
        b'created_at: "2026-01-01T00:00:00.123+00:00"\n'
        b"version: 2\n"
        b"subject: Sarah\n"
        b'tags: [work, big team, "no", "a, b"]\n'
        b"pinned: true\n"
        b"title: of a person\n"
        b"---\n"
        b"\n"
        b"Sarah moved.\n\nMore\n"
    )
    assert dump({}, "") == b"---\n---\n\n\n"
    assert dump({}, "x\r") == b"---\n---\n\nx\r\r\n"


@cases_in_one_test(
    "text, written",
    [
        ("Sarah", "Sarah"),
        ("Sarah O Brien-Smith", "Sarah O Brien-Smith"),
        ("Größe", "Größe"),
        ("東京", "東京"),
        ("ana@example.com", "ana@example.com"),
        ("notes/a.md", "notes/a.md"),
        ("", '""'),
        ("12345678", '"12345678"'),
        ("1e234567", '"1e234567"'),
        ("7abc1234", '"7abc1234"'),
        ("YES", '"YES"'),
        ("Null", '"Null"'),
        ("n", '"n"'),
        ("nothing", "nothing"),
        ("a: b", '"a: b"'),
        ("a:b", '"a:b"'),
        ("a #b", '"a #b"'),
        ("it's", '"it\'s"'),
        ('say "x"\\', '"say \\"x\\"\\\\"'),
        ("-a", '"-a"'),
        ("a  b", '"a  b"'),
        ("a ", '"a "'),
        ("a\nb\tc\rd", '"a\\nb\\tc\\rd"'),
        ("a\0b\x85c\u2028d\ufeffe", '"a\\u0000b\\u0085c\\u2028d\\ufeffe"'),
        ("\U000e0041", '"\\U000e0041"'),
        ("١٢", '"١٢"'),
        ("👩\u200d👧", '"👩\u200d👧"'),
    ],
)
def test_dump_quotes_text_that_yaml_would_read_as_another_type(text: str, written: str) -> None:
    raw = dump({"subject": text}, "x")
    assert raw == f"---\nsubject: {written}\n---\n\nx\n".encode()
    assert load(raw).fields == {"subject": text}
    # Also for a parser that makes numbers, dates and truths of what looks like them.
    front = raw.decode().split("---\n")[1]
    assert yaml.safe_load(front) == {"subject": text}


@check
@given(FIELDS, CONTENT)
def test_load_returns_what_dump_wrote(fields: dict[str, Value], content: str) -> None:
    raw = dump(fields, content)
    found = load(raw)
    assert found.fields == as_text(fields)
    assert found.content == content
    assert not found.problems and not found.broken and not found.unreadable_keys


@check
@given(FIELDS)
def test_every_yaml_parser_reads_the_same_values(fields: dict[str, Value]) -> None:
    front = dump(fields, "").decode().removesuffix("---\n\n\n").removeprefix("---\n")
    wanted = {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}
    assert (yaml.safe_load(front) or {}) == wanted


CONTENTS = [
    "",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "x\r",
    "\rx",
    "x\n",
    "x\n\n",
    "\nx",
    "\r\nx\r\n",
    "---",
    "---\n",
    "---\nid: x\n---\n",
    "a\n---\nb",
    "...",
    "\ufeff",
    "\ufeff---\n",
    "\0",
    "a\0b",
    "\x85",
    "\u2028",
    " x ",
    "\tx",
    "x" * 100_000,
    "😀",
    "\U0010ffff",
]


@cases_in_one_test("content", CONTENTS)
def test_load_returns_content_byte_for_byte(content: str) -> None:
    for raw in (
        dump({"id": "x"}, content),
        dump({}, content),
        update(b"---\r\nmine: 1\r\n---\r\nold", {"id": "x"}, content),
        update(b"\xef\xbb\xbfold", {"id": "x"}, content),
    ):
        assert load(raw).content == content


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({}, "\ud800"),
        ({"subject": "a\udfff"}, ""),
        ({"tags": ["\ud800"]}, ""),
        ({"": "x"}, ""),
        ({"a b": "x"}, ""),
        ({"a: b": "x"}, ""),
        ({"a\n": "x"}, ""),
        ({"subject": "x" * MAX_BYTES}, ""),
    ],
)
def test_dump_refuses_values_that_cannot_be_written(fields: dict[str, Value], content: str) -> None:
    with pytest.raises(InvalidInput, match=r"^[^\n]+$"):
        dump(fields, content)


PATIENT: list[tuple[str, bytes, dict[str, str | list[str]], str]] = [
    ("mark", b"\xef\xbb\xbf---\nid: x\n---\n\nbody\n", {"id": "x"}, "body"),
    ("crlf", b"---\r\nid: x\r\n---\r\n\r\na\r\nb\r\n", {"id": "x"}, "a\r\nb"),
    ("crlf, body lf", b"---\r\nid: x\r\n---\r\n\na\nb\n", {"id": "x"}, "a\nb"),
    ("lf, body crlf", b"---\nid: x\n---\n\r\na\r\n", {"id": "x"}, "a"),
    (
        "time",
        b"---\ncreated_at: 2026-01-01T00:00:00Z\n---\n",
        {"created_at": "2026-01-01T00:00:00Z"},
        "",
    ),
    ("date", b"---\nhappened_at: 2026-01-01\n---\n", {"happened_at": "2026-01-01"}, ""),
    ("number", b"---\nid: 0123\n---\n", {"id": "0123"}, ""),
    ("float", b"---\nid: 1e10\n---\n", {"id": "1e10"}, ""),
    ("truth", b"---\npinned: Yes\n---\n", {"pinned": "Yes"}, ""),
    ("null", b"---\nsubject: null\n---\n", {"subject": "null"}, ""),
    ("nothing", b"---\nsubject:\ntags:\n---\n", {"subject": "", "tags": ""}, ""),
    ("block list", b"---\ntags:\n- a\n- b\n---\n", {"tags": ["a", "b"]}, ""),
    ("deep block list", b"---\ntags:\n  - a\n  -\n---\n", {"tags": ["a", ""]}, ""),
    ("flow over lines", b"---\ntags: [a,\n  b]\n---\n", {"tags": ["a", "b"]}, ""),
    ("quotes", b"---\nsubject: 'it''s: x'\n---\n", {"subject": "it's: x"}, ""),
    ("block text", b"---\nsubject: |\n  a\n  b\n---\n", {"subject": "a\nb\n"}, ""),
    ("folded text", b"---\nsubject: >-\n  a\n  b\n---\n", {"subject": "a b"}, ""),
    ("comments", b"---\n# c\nid: x # d\n\n---\n", {"id": "x"}, ""),
    ("only comments", b"---\n# c\n---\nb", {}, "b"),
    ("empty", b"---\n---\n", {}, ""),
    ("ends with front", b"---\nid: x\n---", {"id": "x"}, ""),
    ("spaces behind", b"--- \nid: x\n---\t \nbody", {"id": "x"}, "body"),
    ("no empty line", b"---\nid: x\n---\nbody\n", {"id": "x"}, "body"),
    ("no last newline", b"---\nid: x\n---\n\nbody", {"id": "x"}, "body"),
    ("indented", b"---\n  id: x\n  v: y\n---\n", {"id": "x", "v": "y"}, ""),
    ("unknown key", "---\nÄrger: größer\n---\n".encode(), {"Ärger": "größer"}, ""),
    ("rule in body", b"---\nid: x\n---\n\na\n\n---\n\nb\n", {"id": "x"}, "a\n\n---\n\nb"),
    ("none", b"body\n", {}, "body"),
    ("none, crlf", b"a\r\nb\r\n", {}, "a\r\nb"),
    ("none, mixed", b"a\nb\r\n", {}, "a\nb"),
    ("none, mark", b"\xef\xbb\xbfbody", {}, "body"),
    ("none, empty", b"", {}, ""),
    ("none, mark only", b"\xef\xbb\xbf", {}, ""),
    ("none, newline", b"\n", {}, ""),
    ("none, four dashes", b"----\nid: x\n----\n", {}, "----\nid: x\n----"),
    ("none, not first", b"\n---\nid: x\n---\n", {}, "\n---\nid: x\n---"),
    ("none, dashes only", b"---", {}, "---"),
    ("none, old mac", b"---\rid: x\r---\r", {}, "---\rid: x\r---\r"),
    ("none, zeros", b"a\0b", {}, "a\0b"),
]


@cases_in_one_test("raw, fields, content", [case[1:] for case in PATIENT])
def test_load_reads_hand_written_front_matter(
    raw: bytes, fields: dict[str, str | list[str]], content: str
) -> None:
    found = load(raw)
    assert (found.fields, found.content, found.problems) == (fields, content, ())
    assert not found.broken
    assert load(update(raw, {"kind": "fact"})).content == content


TROUBLED: list[tuple[bytes, dict[str, str | list[str]], tuple[str, ...]]] = [
    (b"id: x\nid: y", {"id": "y"}, ()),
    (b"id: x\nid: y\nid: z\nkind: fact", {"id": "z", "kind": "fact"}, ()),
    (b"id: &a x", {"id": "x"}, ()),
    (b"id: !!int 7", {"id": "7"}, ()),
    (b"id: !!python/object/apply:os.system ['true']", {"id": ["true"]}, ()),
    (b"id: !<tag:x> y", {"id": "y"}, ()),
    (b"tags: [&a x, !b y]", {"tags": ["x", "y"]}, ()),
    (b"&a id: x", {"id": "x"}, ()),
    (b"id: x\nmine: {a: b}", {"id": "x"}, ("mine",)),
    (b"id: x\nmine:\n  a: b\n  c:\n    d: e\nkind: fact", {"id": "x", "kind": "fact"}, ("mine",)),
    (b"id: x\ntags: [a, [b]]", {"id": "x"}, ("tags",)),
    (b"id: x\ntags:\n  - a: b", {"id": "x"}, ("tags",)),
    (b"id: {a: b}", {}, ("id",)),
    (b"id:\tx", {"id": "x"}, ()),
    (b"tags:\n\t- a\n\t- b", {"tags": ["a", "b"]}, ()),
    (b"id: x\t\nsubject: a\tb # c\t", {"id": "x", "subject": "a b"}, ()),
]


@cases_in_one_test("front, fields, unread", TROUBLED)
def test_load_reports_unusual_front_matter_and_reads_the_rest(
    front: bytes, fields: dict[str, str | list[str]], unread: tuple[str, ...]
) -> None:
    raw = b"---\n" + front + b"\n---\n\nbody\n"
    found = load(raw)
    assert (found.fields, found.unreadable_keys, found.content) == (fields, unread, "body")
    assert found.problems and not found.broken
    assert all("\n" not in problem for problem in found.problems)
    again = load(update(raw, {"version": 3}))
    assert (again.fields, again.unreadable_keys) == ({**fields, "version": "3"}, unread)


BROKEN = [
    b"---\nid: x\n",
    b"---\n",
    b"--- \n\nA text that begins with a rule.\n",
    b"---\nid: x\n----\nbody\n",
    b"---\nid: x\n ---\nbody\n",
    b"---\njust text\n---\nbody\n",
    b"---\n- a\n- b\n---\nbody\n",
    b"---\n[a, b]\n---\n",
    b"---\n{}\n---\n",
    b"---\n{id: x}\n---\n",
    b"---\n{\nid: x}\n---\n",
    b"---\nnull\n---\n",
    b'---\n""\n---\n',
    b"---\n? id\n: x\n---\n",
    b"---\n?\n  id\n: x\n---\n",
    b"---\nid: x\n? [a, b]\n: c\n---\n",
    b"---\n[a]: b\n---\n",
    b"---\n{a: b}: c\n---\n",
    b"---\nsubject: Re: hello\n---\n",
    b'---\nsubject: "unclosed\n---\n',
    b"---\nsubject: 'unclosed\n---\n",
    b"---\nsubject: [a, b\n---\n",
    b"---\nsubject: a]\n  - b: c: d\n---\n",
    b"---\nid: x\n  kind: y\n---\n",
    b"---\n  id: x\nkind: y\n---\n",
    b"---\nid: @x\n---\n",
    b"---\nid: `x\n---\n",
    b"---\nid: %x\n---\n",
    b"---\n%YAML 1.1\n---\nid: x\n---\n",
    b"---\n%TAG ! x\nid: y\n---\n",
    b"---\nid: x\n...\n---\n",
    b"---\nid: x\n--- !x\nkind: y\n---\n",
    b"---\nid: x\n--- # again\n---\n",
    b"---\nid: !undefined!x y\n---\n",
    b"---\nid: *a\n---\n",
    b"---\nid: &a x\nkind: *a\n---\n",
    b"---\nmine: [&a x, *a]\n---\n",
    b"---\n<<: *a\n---\n",
    b"---\n*a : x\n---\n",
    b"---\n&a\nid: x\n---\n",
    b"---\n!!map\nid: x\n---\n",
    b"---\na: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n",
    b'---\nid: "\\ud800"\n---\n',
    b'---\nid: "\\UFFFFFFFF"\n---\n',
    b'---\nid: "\\U00110000"\n---\n',
    b'---\nid: "\\q"\n---\n',
    b"---\nid: a\0b\n---\n",
    b"---\nid: a\x1bb\n---\n",
    b"---\nid: x\rkind: y\n---\n",
    "---\nid: x\n\ufeffkind: y\n---\n".encode(),
    "---\nid: x\u2028kind: y\n---\n".encode(),
    "---\nid: x\x85kind: y\n---\n".encode(),
    b"---\nid: \xff\n---\n",
    b"---\nid: x\n---\n\n\xff\n",
    b"---\nid: x\n---\n\n\xed\xa0\x80\n",
    b"---\nid: x\n---\n\n\xc0\xaf\n",
    b"\xff",
    b"caf\xe9\n",
    "---\nid: x\n---\n".encode("utf-16"),
    "---\nid: x\n---\n".encode("utf-16-le"),
    "---\nid: x\n---\n".encode("utf-16-be"),
    "---\nid: x\n---\n".encode("utf-32"),
    "body".encode("utf-16"),
    "body".encode("utf-16-le"),
    b"\xff\xfe",
    b"---\n" + b"x" * (MAX_BYTES + 1) + b"\n---\n",
    b"---\nsubject: " + b"x" * MAX_BYTES + b"\n---\n",
    b"---\n" + b"k: v\n" * 20_000 + b"---\n",
    b"---\n" + b"[" * 60_000 + b"\n---\n",
    b"---\na: " + b"[" * 60_000 + b"\n---\n",
    b"---\na: " + b"{" * 60_000 + b"\n---\n",
    b"---\na: " + b"[{" * 30_000 + b"\n---\n",
    b"---\na:\n " + b"- " * 30_000 + b"\n---\n",
    b"---\n" + b"? " * 30_000 + b"\n---\n",
    b"---\n" + b"!" * 60_000 + b"\n---\n",
    b"---\n" + b"&a " * 20_000 + b"\n---\n",
    b"---\na: " + b'"' * 59_999 + b"\n---\n",
    b"---\n" + b"".join(b"%s%d:\n" % (b" " * n, n) for n in range(300)) + b"---\n",
    b"---\n" + b"a" * 2_000 + b": x\n---\n",
]


@cases_in_one_test("raw", BROKEN)
def test_load_marks_unparsable_front_matter_as_broken(raw: bytes) -> None:
    found = load(raw)
    assert found.broken and len(found.problems) == 1
    assert (found.fields, found.content, found.unreadable_keys) == ({}, "", ())
    assert found.problems[0].isprintable() and len(found.problems[0]) < 300
    for content in (None, "new"):
        with pytest.raises(VaultError, match=r"^[^\n]+$"):
            update(raw, {"id": "x"}, content)


def test_hostile_front_matter_tables_are_long_enough() -> None:
    assert len(CONTENTS) + len(PATIENT) + len(TROUBLED) + len(BROKEN) >= 150


def test_load_problem_names_the_line() -> None:
    assert "in line 3" in load(b"---\nid: x\nsubject: Re: hello\n---\n").problems[0]


def test_items_and_text_read_a_value_as_list_or_text() -> None:
    found = load(b"---\ntags: work, big team,\nsubject: [a, b]\nid: [x]\nkind:\n---\n")
    assert found.items("tags") == ["work", "big team"]
    assert found.items("subject") == ["a", "b"] and found.items("source") == []
    assert found.items("kind") == []
    assert found.text("subject") == "a, b" and found.text("id") == "x"
    assert found.text("tags") == "work, big team," and found.text("source") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a\r\nb", "a\nb", True),
        ("a\nb\r\n", "a\r\nb\n", True),
        ("a", "a", True),
        ("a\r", "a\n", False),
        ("a\r\r\n", "a\r\n", False),
        ("a\n", "a", False),
    ],
)
def test_equal_ignoring_crlf_ignores_line_end_style(one: str, other: str, same: bool) -> None:
    assert equal_ignoring_crlf(one, other) is equal_ignoring_crlf(other, one) is same


def test_update_changes_only_the_given_keys() -> None:
    raw = (
        b"---\n# mine\ntitle:   'x'\n\nversion: 2   # bumped\nsubject: |+\n  a\n\n"
        b"# of tags\ntags:\n  - a   # first\n  - b\n# end\ncover: {file: x.png}\n---\nbody"
    )
    assert update(raw, {"version": 3, "id": "a1b2c3d4", "kind": "fact", "source": "me"}) == (
        b"---\n# mine\nid: a1b2c3d4\ntitle:   'x'\n\nversion: 3   # bumped\nkind: fact\n"
        b"subject: |+\n  a\n\n# of tags\ntags:\n  - a   # first\n  - b\nsource: me\n# end\n"
        b"cover: {file: x.png}\n---\nbody"
    )
    assert update(raw, {"tags": ["c"], "subject": None, "version": None, "gone": None}) == (
        b"---\n# mine\ntitle:   'x'\n\n# of tags\ntags: [c]\n# end\ncover: {file: x.png}\n---\nbody"
    )
    assert update(raw, {}) == raw


def test_update_removes_a_duplicate_key() -> None:
    raw = b"---\nid: x\ntitle: t\nid: y\n---\n"
    assert update(raw, {"id": "z"}) == b"---\ntitle: t\nid: z\n---\n"
    assert update(raw, {"id": None}) == b"---\ntitle: t\n---\n"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", b"---\nid: x\n---\n\n"),
        (b"body", b"---\nid: x\n---\n\nbody"),
        (b"\nbody\n\n", b"---\nid: x\n---\n\n\nbody\n\n"),
        (b"a\r\nb\r\n", b"---\r\nid: x\r\n---\r\n\r\na\r\nb\r\n"),
        (b"\xef\xbb\xbfbody", b"\xef\xbb\xbf---\nid: x\n---\n\nbody"),
        (b"---\n---\nbody", b"---\nid: x\n---\nbody"),
        (b"---\n# c\n---\nbody", b"---\n# c\nid: x\n---\nbody"),
        (b"---\r\na: b\r\n---", b"---\r\nid: x\r\na: b\r\n---"),
        (b"---\n  a: b\n---\n", b"---\n  id: x\n  a: b\n---\n"),
        (b"---\nid: [a,\n  b]  # c\n---\n", b"---\nid: x  # c\n---\n"),
        (b"---\nid:\n---\n", b"---\nid: x\n---\n"),
    ],
)
def test_update_adds_an_id(raw: bytes, expected: bytes) -> None:
    assert update(raw, {"id": "x"}) == expected
    assert load(expected).content == load(raw).content


def test_update_with_content_writes_lf_line_ends() -> None:
    raw = b"\xef\xbb\xbf---\r\nmine: 1\r\nid: x\r\n---\r\nold\r\n"
    assert update(raw, {"id": "z"}, "new\r\n") == b"---\nmine: 1\nid: z\n---\n\nnew\r\n\n"


def test_update_whose_result_cannot_be_read_is_refused() -> None:
    raw = b"---\nmine: " + b"x" * (MAX_BYTES - 10) + b"\n---\n"
    assert not load(raw).broken
    with pytest.raises(InvalidInput, match="shorten"):
        update(raw, {"id": "a1b2c3d4"})


YAML = st.lists(
    st.sampled_from(
        ["id", "tags", "mine", ": ", ":", "- ", "[", "]", "{", "}", ", ", "\n", "\n", "  ", "\t"]
        + [" # c", "|", "|+", ">-", "&a ", "*a", "!!str ", "'", '"', "\\", "? ", "---", "..."]
        + ["\u2028", "\x85", "\r", "\r\n", "\0", "\ufeff", "ä", "😀", "1", "~", "\\UFFFFFFFF"]
        + ["version: 2\n", "mine: x\n", "id: abc\n", "tags: [a]\n", "more: {a: b}\n", "l:\n- a\n"]
    ),
    max_size=12,
).map("".join)


@settings(check, max_examples=1_000 if PROVE else 250)
@given(YAML, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\ufeff"]), CONTENT, FIELDS)
def test_update_works_on_any_file_that_is_not_broken(
    front: str, newline: str, mark: str, body: str, fields: dict[str, Value]
) -> None:
    raw = f"{mark}---{newline}{front}{newline}---{newline}{body}".encode()
    found = load(raw)
    if found.broken:
        return
    again = load(update(raw, fields))
    assert again.fields == {**found.fields, **as_text(fields)}
    assert set(again.unreadable_keys) == {key for key in found.unreadable_keys if key not in fields}
    assert again.content == found.content
    assert update(raw, {}) == raw
    assert load(update(raw, fields, body)).content == body
    without = load(update(raw, dict.fromkeys(found.fields.keys() & KEYS)))
    assert without.fields == {k: v for k, v in found.fields.items() if k not in KEYS}


@settings(check, max_examples=500 if PROVE else 125)
@given(
    st.binary(max_size=60) | YAML.map(str.encode), st.sampled_from([b"", b"---\n", b"\xef\xbb\xbf"])
)
def test_load_of_any_bytes_raises_no_exception(some: bytes, before: bytes) -> None:
    raw = before + some
    found = load(raw)
    assert all("\n" not in problem for problem in found.problems)
    if not found.broken:
        assert load(update(raw, {"id": "x"})).content == found.content


def test_load_reads_large_files_whole() -> None:
    content = "line of text\r\n" * 750_000
    raw = dump({"id": "x"}, content)
    assert len(raw) > 10_000_000 and load(raw).content == content
    assert load(content.encode()).content == content.removesuffix("\r\n")
    assert load(b"---\n" + content.encode()).broken
    assert load(update(content.encode(), {"id": "x"})).content == content.removesuffix("\r\n")


METADATA = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda key: key.strip() and key.isprintable()),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)


@given(METADATA)
def test_metadata_is_read_back_as_written(metadata: dict[str, Any]) -> None:
    raw = dump({"id": "x", "metadata": metadata}, "body")
    found = load(raw)
    assert not found.broken and not found.problems
    assert found.objects == {"metadata": metadata}
    changed = update(b"---\nid: x\nmine: [a]\n---\n\nbody\n", {"metadata": metadata})
    assert load(changed).objects == {"metadata": metadata}
    assert load(update(raw, {"metadata": None})).objects == {}


def test_metadata_may_be_written_as_yaml() -> None:
    raw = b"---\nmetadata:\n  team: web\n  n: 2\n  l: [a, 1.5, true]\n  q: '2'\n---\n\nx\n"
    found = load(raw)
    assert not found.problems
    assert found.objects["metadata"] == {"team": "web", "n": 2, "l": ["a", 1.5, True], "q": "2"}
