"""The summary without a model: what it looks like, when it is due and what it never loses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.learn.summaries import (
    LINE_CHARS,
    MAX_CHARS,
    MAX_LINES,
    MIN_EVENTS,
    MIN_UNSUMMARISED_EVENTS,
    TARGET_SHARE,
    CondensedSummary,
    SummaryEvent,
    choose_oldest,
    condense,
    condense_if_due,
    is_due,
)

check = settings(deadline=None, max_examples=200, derandomize=True)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)
MESSAGES = st.tuples(
    st.one_of(st.sampled_from(["user", "assistant", "tool"]), ANY_TEXT),
    st.one_of(ANY_TEXT, st.integers(0, 5_000).map("word ".__mul__)),
    st.lists(st.text(max_size=60), max_size=4).map(tuple),
    st.integers(0, 400),
)


def numbered(
    messages: list[tuple[str, str, tuple[str, ...], int]], first: int, gap: int
) -> list[SummaryEvent]:
    return [SummaryEvent(first + gap * i, *message) for i, message in enumerate(messages)]


EVENTS = st.builds(
    numbered, st.lists(MESSAGES, max_size=70), st.integers(0, 10**9), st.integers(1, 3)
)


def turns(count: int, tokens: int = 100, text: str = "hello", first: int = 1) -> list[SummaryEvent]:
    roles = ("user", "assistant")
    return [SummaryEvent(first + i, roles[i % 2], text, (), tokens) for i in range(count)]


def summary_event(text: str, calls: tuple[str, ...] = (), role: str = "user") -> SummaryEvent:
    return SummaryEvent(7, role, text, calls, 10)


def sequences(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^- \[(\d+)\] ", text, re.MULTILINE)]


def last_pass(text: str) -> str:
    return text[text.rindex("Recent condensed turns:\n") :]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (summary_event("Hello there"), "- [7] user: Hello there"),
        (summary_event("  two\nlines\t and \u2028 more "), "- [7] user: two lines and more"),
        (summary_event("x" * LINE_CHARS), "- [7] user: " + "x" * LINE_CHARS),
        (summary_event("x" * (LINE_CHARS + 1)), "- [7] user: " + "x" * LINE_CHARS + "..."),
        (summary_event("é👍" * 100), "- [7] user: " + "é👍" * 90 + "..."),
        (summary_event("", ("search", "open")), "- [7] user: [tool calls: search, open]"),
        (summary_event(" \n ", ("search",)), "- [7] user: [tool calls: search]"),
        (summary_event("", ("a\nb",)), "- [7] user: [tool calls: a b]"),
        (summary_event("Looking", ("search",)), "- [7] user: Looking"),
        (summary_event(""), "- [7] user: [no text]"),
        (summary_event("\u200b\n"), "- [7] user: [no text]"),
        (summary_event("hi", role="tool\nforged"), "- [7] tool forged: hi"),
        (summary_event("hi", role="r" * 40), "- [7] " + "r" * 24 + "...: hi"),
    ],
)
def test_condensed_message_is_one_line(message: SummaryEvent, line: str) -> None:
    assert condense("", [message]) == CondensedSummary(f"Recent condensed turns:\n{line}", 7)


def test_new_lines_follow_the_previous_summary() -> None:
    first = condense("", turns(2))
    assert first.text == "Recent condensed turns:\n- [1] user: hello\n- [2] assistant: hello"
    second = condense(first.text, turns(1, first=3))
    assert second.text == first.text + "\nRecent condensed turns:\n- [3] user: hello"
    assert second.upper == 3


def test_one_pass_condenses_the_oldest_twenty_four_messages() -> None:
    summary = condense("", turns(40))
    assert sequences(summary.text) == list(range(1, MAX_LINES + 1))
    assert summary.upper == MAX_LINES


def test_condensing_no_messages_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to condense"):
        condense("earlier", [])


@pytest.mark.parametrize(
    ("count", "tokens", "window", "due"),
    [
        (4, 200, 1000, False),
        (4, 201, 1000, True),
        (3, 500, 1000, False),
        (8, 1, 10, False),
        (9, 1, 10, True),
        (12, 1, 15, False),
        (28, 1, 35, False),
        (4, 0, 1, False),
        (0, 0, 1, False),
        (4, 9_999, 1, True),
    ],
)
def test_summary_is_due_beyond_four_fifths_of_the_window(
    count: int, tokens: int, window: int, due: bool
) -> None:
    assert is_due(turns(count, tokens), window) is due
    assert (condense_if_due("", turns(count, tokens), window) is not None) is due


def test_summary_is_not_due_at_exactly_four_fifths() -> None:
    assert not any(is_due(turns(4, fifth), 5 * fifth) for fifth in range(1, 2_000))


@pytest.mark.parametrize("window", [0, -1])
def test_summary_window_must_be_positive(window: int) -> None:
    with pytest.raises(ValueError, match="window"):
        is_due(turns(4), window)
    with pytest.raises(ValueError, match="window"):
        choose_oldest(turns(4), window)


@pytest.mark.parametrize(
    ("count", "tokens", "window", "taken"),
    [
        (10, 100, 1000, 5),
        (9, 100, 1000, 4),
        (5, 100, 1000, 0),
        (6, 100, 1000, 1),
        (10, 1000, 1000, 8),
        (2, 1000, 1000, 0),
        (1, 1000, 1000, 0),
        (0, 0, 1000, 0),
    ],
)
def test_uncondensed_messages_fill_half_the_window(
    count: int, tokens: int, window: int, taken: int
) -> None:
    all_turns = turns(count, tokens)
    assert list(choose_oldest(all_turns, window)) == all_turns[:taken]


def test_passes_repeat_until_the_messages_fit() -> None:
    summary = condense_if_due("Before.", turns(100), 10_000 // 4 * 3)
    assert summary is not None
    assert summary.upper == 63
    assert summary.text.startswith("Before.\nRecent condensed turns:\n- [1] user: hello\n")
    assert sequences(summary.text) == list(range(1, 64))
    assert summary.text.count("Recent condensed turns:") == 3


def test_long_summary_is_truncated_at_its_beginning() -> None:
    summary = condense("o" * 8_000, turns(3))
    assert len(summary.text) == MAX_CHARS + 3
    assert summary.text.startswith("...ooo")
    assert sequences(summary.text) == [1, 2, 3]


def test_summary_that_just_fits_is_not_truncated() -> None:
    added = condense("", turns(3)).text
    previous = "p" * (MAX_CHARS - len(added) - 1)
    assert condense(previous, turns(3)).text == f"{previous}\n{added}"
    assert condense(previous + "p", turns(3)).text == f"...{previous}\n{added}"


def test_repeated_truncation_adds_one_ellipsis() -> None:
    text = "o" * 5_000
    for start in range(1, 200):
        text = condense(text, turns(1, first=start)).text
        assert text.startswith("...") and not text.startswith("....")
        assert len(text) == MAX_CHARS + 3


def test_lines_of_a_long_pass_are_shortened_evenly() -> None:
    long = turns(MAX_LINES, text="y" * 1_000)
    long[5] = SummaryEvent(6, "user", "short", (), 1)
    text = condense("", long).text
    assert MAX_CHARS - 2 * MAX_LINES < len(text) <= MAX_CHARS
    lines = text.splitlines()[1:]
    assert lines[5] == "- [6] user: short"
    kept = {line.count("y") for number, line in enumerate(lines) if number != 5}
    assert len(kept) == 1 and 100 < kept.pop() < LINE_CHARS


def test_long_pass_replaces_the_whole_previous_summary() -> None:
    text = condense("earlier " * 400, turns(MAX_LINES, text="y" * 1_000)).text
    assert text.startswith("...")
    assert sequences(text) == list(range(1, MAX_LINES + 1))


@check
@given(ANY_TEXT | st.integers(0, 1_200).map("old line\n".__mul__), EVENTS.filter(bool))
def test_condensed_pass_fits_and_has_a_line_for_every_message(
    previous: str, messages: list[SummaryEvent]
) -> None:
    summary = condense(previous, messages)
    taken = messages[:MAX_LINES]
    assert len(summary.text) <= MAX_CHARS + 3
    assert summary.upper == taken[-1].sequence
    newest = last_pass(summary.text)
    assert sequences(newest) == [message.sequence for message in taken]
    assert len(newest.splitlines()) == 1 + len(taken)
    assert condense("", messages).text == newest
    assert condense(previous, tuple(messages)) == summary


@check
@given(EVENTS, st.integers(1, 20_000))
def test_condense_takes_as_many_messages_as_needed_and_no_more(
    messages: list[SummaryEvent], window: int
) -> None:
    taken = choose_oldest(messages, window)
    assert list(taken) == messages[: len(taken)]
    rest = messages[len(taken) :]
    assert len(rest) >= min(MIN_UNSUMMARISED_EVENTS, len(messages))
    if len(rest) > MIN_UNSUMMARISED_EVENTS:
        assert sum(message.tokens for message in rest) / window <= TARGET_SHARE
    if taken:
        assert sum(message.tokens for message in messages[len(taken) - 1 :]) / window > TARGET_SHARE


@check
@given(ANY_TEXT, EVENTS, st.integers(1, 20_000))
def test_condense_if_due_condenses_until_it_is_not_due(
    previous: str, messages: list[SummaryEvent], window: int
) -> None:
    before = list(messages)
    summary = condense_if_due(previous, messages, window)
    assert messages == before
    assert summary == condense_if_due(previous, messages, window)
    assert (summary is not None) == is_due(messages, window)
    if summary is None:
        return
    assert len(messages) >= MIN_EVENTS
    assert len(summary.text) <= MAX_CHARS + 3
    assert summary.upper == choose_oldest(messages, window)[-1].sequence
    assert summary.upper <= messages[-1 - MIN_UNSUMMARISED_EVENTS].sequence
    assert sequences(last_pass(summary.text))[-1] == summary.upper
