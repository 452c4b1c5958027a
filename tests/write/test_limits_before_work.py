"""Limits are checked first: what is too long or too many is refused before it is scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie import Space
from reverie.dates import parse_as_of
from reverie.errors import InvalidInput
from reverie.text.analyzer import MAX_QUERY_CHARS
from reverie.text.secrets import detect
from reverie.text.tags import MAX_GIVEN_TAG_CHARS, MAX_GIVEN_TAGS
from reverie.write import events, session_state, validate

LONG = "x" * 100_000
MANY = [f"tag{number}" for number in range(10_000)]


class Scanner:
    """Counts the texts that are scanned for secrets, and notes the longest of them."""

    def __init__(self, scan: Callable[..., Any]) -> None:
        self._scan, self.texts, self.longest = scan, 0, 0

    def __call__(self, value: Any, own: Any) -> Any:
        self._note(value)
        return self._scan(value, own)

    def _note(self, value: Any) -> None:
        if isinstance(value, str):
            self.texts, self.longest = self.texts + 1, max(self.longest, len(value))
        elif isinstance(value, dict):
            for held in value.values():
                self._note(held)
        elif isinstance(value, list | tuple):
            for held in value:
                self._note(held)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with reverie.open(tmp_path / "store.db", embedder="hashing") as store:
        yield store.space("ana")


@pytest.fixture
def scanner(space: Space, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    made = Scanner(detect.redact_values)
    monkeypatch.setattr(detect, "redact_values", made)
    return made


CALLS: dict[str, Callable[[Space, str], object]] = {
    "a fact": lambda space, _: space.remember(LONG),
    "category": lambda space, _: space.remember("a", category=LONG),
    "subject": lambda space, _: space.remember("a", subject=LONG),
    "source": lambda space, _: space.remember("a", source=LONG),
    "key": lambda space, _: space.remember("a", key=LONG),
    "a tag": lambda space, _: space.remember("a", tags=[LONG]),
    "tags": lambda space, _: space.remember("a", tags=MANY),
    "tags that repeat": lambda space, _: space.remember("a", tags=["same"] * 10_000),
    "tags that are blank": lambda space, _: space.remember("a", tags=[" "] * 10_000),
    "revised content": lambda space, id: space.revise(id, LONG),
    "revised category": lambda space, id: space.revise(id, category=LONG),
    "revised subject": lambda space, id: space.revise(id, subject=LONG),
    "revised tags": lambda space, id: space.revise(id, tags=MANY),
    "revision reason": lambda space, id: space.revise(id, pinned=True, reason=LONG),
    "revision key": lambda space, id: space.revise(id, "b", key=LONG),
    "reason to forget": lambda space, id: space.forget(id, reason=LONG),
    "reason to hide": lambda space, _: space.session("s").hide(LONG),
    "forgotten source": lambda space, _: space.forget_source(LONG),
    "summary": lambda space, _: space.session("s").write_summary(LONG, upper=1, expected_epoch=0),
    "an item": lambda space, _: space.session("s").scratchpad.write([LONG]),
    "items": lambda space, _: space.session("s").scratchpad.write(MANY),
    "session of follow": lambda space, _: space.follow([], session=LONG),
    "key of follow": lambda space, _: space.follow([{"role": "user", "content": "a"}], key=LONG),
    "category to list": lambda space, _: space.memories(category=LONG),
    "subject to list": lambda space, _: space.memories(subject=LONG),
    "tags to list": lambda space, _: space.memories(tags=MANY),
    "tags to recall": lambda space, _: space.recall("a", tags=MANY),
}


@pytest.mark.parametrize("call", CALLS)
def test_value_over_its_limit_is_refused_before_secret_detection(
    space: Space, scanner: Scanner, call: str
) -> None:
    id = space.remember("something short").id
    space.session("s").append({"role": "user", "content": "hi"})
    scanner.texts = scanner.longest = 0
    with pytest.raises(InvalidInput):
        CALLS[call](space, id)
    assert scanner.longest < len(LONG) and scanner.texts <= MAX_GIVEN_TAGS


@pytest.mark.parametrize("name", ["append", "follow"])
def test_message_over_its_limit_is_refused_before_secret_detection(
    space: Space, scanner: Scanner, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(events, "MAX_MESSAGE_CHARS", 1_000)
    message = {"role": "user", "content": LONG}
    with pytest.raises(InvalidInput, match="at most 1000 characters"):
        space.session("s").append(message) if name == "append" else space.follow([message])
    assert scanner.texts == 0


def test_note_over_its_limit_is_refused_before_secret_detection(
    space: Space, scanner: Scanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "MAX_CHARS", 1_000)
    with pytest.raises(InvalidInput, match="at most 1000 characters"):
        space.remember(LONG, kind="note")
    assert scanner.texts == 0


@pytest.mark.parametrize(
    "record",
    [
        {"content": "a", "tags": MANY},
        {"content": "a", "category": LONG},
        {"content": "a", "subject": LONG},
        {"content": "a", "source": LONG},
        {"reverie": 1, "reason": LONG, "body": {}},
        {"reverie": 1, "body": {"content": "a", "tags": MANY}},
        {"reverie": 1, "body": {"content": "a", "concept_tags": MANY}},
        {"reverie": 1, "body": {"content": "a", "category": LONG}},
    ],
)
def test_imported_record_over_a_limit_is_skipped_before_secret_detection(
    space: Space, scanner: Scanner, record: dict[str, Any]
) -> None:
    report = space.import_records([record])
    assert report.added == 0 and len(report.skipped) == 1
    assert scanner.texts == 0


def test_query_is_searched_for_secrets_only_as_far_as_it_is_used(
    space: Space, scanner: Scanner
) -> None:
    space.remember("the cat sleeps")
    scanner.texts = scanner.longest = 0
    assert space.recall("cat " + LONG * 10)
    assert scanner.longest < 2 * MAX_QUERY_CHARS


def test_values_at_their_limits_are_stored(space: Space) -> None:
    made = space.remember(
        "a",
        category="c" * validate.MAX_CATEGORY_CHARS,
        subject="s" * validate.MAX_SUBJECT_CHARS,
        source="o" * validate.MAX_SOURCE_CHARS,
        tags=[*(f"t{number}" for number in range(16)), *["t1", " "] * 42],
        key="k" * validate.MAX_KEY_CHARS,
    )
    assert len(made.category) == validate.MAX_CATEGORY_CHARS and len(made.tags) == 16
    space.session("s").scratchpad.write(["item", *[" "] * (session_state.MAX_GIVEN_ITEMS - 1)])


def test_key_longer_than_a_tag_is_redacted_in_a_tag(space: Space) -> None:
    token = "sk-ant-api03-" + "aB3dE5gH7j" * 9 + "AA"
    assert 64 < len(token) < MAX_GIVEN_TAG_CHARS
    assert "ab3de5" not in "".join(space.remember("a", tags=[token]).tags)


def test_as_of_position_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_as_of("9" * 5_000)
    assert parse_as_of("9" * 18) == int("9" * 18)
