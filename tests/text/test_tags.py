from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import InvalidInput
from reverie.text.tags import clean_tags, concept_tags

ANY_TEXT = st.text(st.characters(exclude_categories=()))
check = settings(deadline=None, max_examples=200, derandomize=True)


def test_clean_tags_trims_lowers_and_keeps_the_first_of_each() -> None:
    assert clean_tags(["  Work ", "HOME", "", "  ", "work", "ÉTÉ\n"]) == ("work", "home", "été")
    assert clean_tags(tag for tag in ("b", "a")) == ("b", "a")
    assert clean_tags([]) == ()


def test_clean_tags_allows_sixteen_of_sixty_four_characters() -> None:
    most = [f"{number:0>64}" for number in range(16)]
    assert clean_tags(most + most) == tuple(most)


@pytest.mark.parametrize(
    "tags",
    [
        "work",
        [str(number) for number in range(17)],
        ["x" * 65],
        ["a\x00b"],
        ["a\nb"],
        ["\ud800"],
        [None],
        b"work",
    ],
)
def test_clean_tags_refuses_invalid_tags(tags: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^[^\n]+$"):
        clean_tags(tags)


@check
@given(st.lists(st.text(max_size=20), max_size=16))
def test_clean_tags_is_stable(tags: list[str]) -> None:
    try:
        clean = clean_tags(tags)
    except InvalidInput:
        return
    assert clean_tags(clean) == clean
    assert len(set(clean)) == len(clean)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Move backups to S3 Glacier and sync QMD router notes.",
            ("backup", "backups", "glacier", "qmd", "router", "s3", "sync"),
        ),
        ("The kv store is full", ("kv", "store", "full")),
        ("plays mkv files", ("plays", "mkv")),
        ("user_id in deploy/prod.yaml", ("user-id", "deploy/prod.yaml", "deploy", "prod")),
        ("2024-05-01 2024-05-01.md 1234 42", ()),
        ("Sarah’s cat, don't they", ("sarah", "cat")),
        ("O'Brien likes Rust", ("o'brien", "likes", "rust")),
        ("para los usuarios", ("usuarios",)),
        ("东京 バックアップ ある ネコ 백업", ("バックアップ", "백업", "东京")),
        ("東京に住んでいます", ("東京",)),
        ("ＦＵＬＬＷＩＤＴＨ", ("fullwidth",)),
        ("किताबें पढ़ती", ("किताबें", "पढ़ती")),
        ("é" * 32, ("é" * 32,)),
        ("é" * 33, ()),
        ("", ()),
    ],
)
def test_concept_tags_returns_the_expected_tags(text: str, expected: tuple[str, ...]) -> None:
    assert concept_tags(text) == expected


def test_concept_tags_stop_at_the_limit() -> None:
    text = "apple banana cherry damson elder figs grape hazel iris"
    assert len(concept_tags(text)) == 8
    assert concept_tags(text, 2) == ("apple", "banana")
    assert concept_tags(text, 0) == concept_tags(text, -1) == ()


def test_concept_tags_look_at_the_first_4000_characters() -> None:
    assert concept_tags(" " * 3_995 + "apple banana") == ("apple",)


@check
@given(ANY_TEXT, st.integers(-1, 12))
def test_concept_tags_are_few_short_distinct_and_stable(text: str, limit: int) -> None:
    tags = concept_tags(text, limit)
    assert tags == concept_tags(text, limit)
    assert len(tags) <= max(limit, 0)
    assert len(set(tags)) == len(tags)
    for tag in tags:
        assert 2 <= len(tag) <= 32
        assert tag == tag.lower() and tag[0].isalnum()
        assert not any(character.isspace() for character in tag)
        tag.encode("utf-8")
