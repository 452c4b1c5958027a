from __future__ import annotations

import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import InvalidInput
from reverie.text.normalize import (
    category_slug,
    one_line,
    require_name,
    require_utf8,
    subject_key,
    text_key,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))
check = settings(deadline=None, max_examples=200, derandomize=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a \t b\r\n\n## c ", "a b ## c"),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg", "a b c d e f g"),
        ("a\x00\x1b[31mb\x7f", "a [31mb"),
        ("a\u202eb\u200bc\ufeff", "a b c"),
        ("hidden\U000e0041\U000e0042", "hidden"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f", "👩\u200d👩\u200d👧 ❤\ufe0f"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_one_line_returns_the_expected_text(text: str, expected: str) -> None:
    assert one_line(text) == expected


@check
@given(ANY_TEXT)
def test_one_line_cannot_be_split_and_is_stable(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert "  " not in line
    assert line == line.strip() == one_line(line)


def test_one_line_replaces_every_control_and_format_character_but_the_joiners() -> None:
    invisible = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Zl", "Zp", "Zs"}
    ]
    assert [c for c in invisible if one_line(f"a{c}b") != "a b"] == ["\u200c", "\u200d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My Notes", "my_notes"),
        ("---", "general"),
        ("", "general"),
        ("  A--b__C  ", "a_b_c"),
        ("Café", "caf"),
        ("日本", "general"),
        ("a/../b", "a_b"),
    ],
)
def test_category_slug_returns_the_expected_slug(text: str, expected: str) -> None:
    assert category_slug(text) == expected


@check
@given(ANY_TEXT)
def test_category_slug_is_stable(text: str) -> None:
    slug = category_slug(text)
    assert slug and set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert category_slug(slug) == slug


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (None, None),
        ("", None),
        (" \n\u3000", None),
        ("  Sarah \t Lee ", "sarah lee"),
        ("STRASSE", "strasse"),
        ("straße", "strasse"),
        ("Ｃａｆe\u0301", "café"),
    ],
)
def test_subject_key_returns_the_expected_key(subject: str | None, expected: str | None) -> None:
    assert subject_key(subject) == expected


@check
@given(st.text())
def test_subject_key_ignores_case_and_is_stable(subject: str) -> None:
    key = subject_key(subject)
    assert key == subject_key(unicodedata.normalize("NFD", subject))
    assert subject_key(key) == key


def test_require_storable_returns_the_text_unchanged() -> None:
    text = "a\x00 é 👍 \n"
    assert require_utf8(text, "content") is text


@pytest.mark.parametrize("bad", ["a\ud800", "\udfff", None, b"bytes", 3])
def test_require_storable_refuses_text_that_cannot_be_stored(bad: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^content [^\n]+$"):
        require_utf8(bad, "content")


@check
@given(ANY_TEXT)
def test_require_storable_accepts_exactly_what_utf8_can_hold(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        with pytest.raises(InvalidInput):
            require_utf8(text, "content")
    else:
        assert require_utf8(text, "content") == text


@pytest.mark.parametrize("name", ["Sarah", " Sarah ", "sárah", "a/b%_*", "名前", "x" * 64])
def test_require_name_returns_the_name_unchanged(name: str) -> None:
    assert require_name(name, "the user", 64) == name


@pytest.mark.parametrize(
    "name", ["", "  ", "a\x00b", "a\nb", "a\x9fb", "a\u2028b", "x" * 65, "\ud800"]
)
def test_require_name_refuses_invalid_names(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^the user [^\n]+$"):
        require_name(name, "the user", 64)


def test_require_name_refuses_values_that_are_no_text() -> None:
    not_text: Any = 7
    with pytest.raises(InvalidInput, match="the space must be text, not int"):
        require_name(not_text, "the space", 64)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("Alec is my boss", " alec  IS\nmy boss. ", True),
        ("Café", "cafe\u0301.", True),
        ("wait", "wait..", False),
        ("is it", "is it?", False),
        ("in Maßen", "in Massen", False),
        ("10²", "102", False),
    ],
)
def test_text_key_ignores_case_white_space_and_the_final_full_stop(
    one: str, other: str, equal: bool
) -> None:
    assert (text_key(one) == text_key(other)) is equal
