from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.text.passages import OVERLAP_CHARS, PASSAGE_CHARS, split

check = settings(deadline=None, max_examples=200, derandomize=True)
TEXTS = st.text(st.sampled_from("ab. \n\r!?。東👍\u200d\u0301"), max_size=400)
SIZES = st.integers(1, 60).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size // 3)))

SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank. "


@pytest.mark.parametrize("text", ["", "  ", "short", "x" * PASSAGE_CHARS])
def test_text_that_fits_is_one_passage(text: str) -> None:
    assert split(text) == [(0, len(text))]


def test_long_blank_text_is_one_passage() -> None:
    assert split(" " * 5_000) == [(0, PASSAGE_CHARS)]


def test_passages_end_with_a_sentence_and_start_with_a_word() -> None:
    text = SENTENCE * 40
    spans = split(text)
    assert all(text[end - 1] == "." for _, end in spans)
    assert all(start == 0 or text[start - 1] == " " for start, _ in spans)
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert OVERLAP_CHARS - 10 <= end - start <= OVERLAP_CHARS


def test_passage_ends_at_a_paragraph_rather_than_a_sentence() -> None:
    first = SENTENCE * 6
    text = f"{first.strip()}\n\n{SENTENCE * 6}"
    assert split(text)[0] == (0, len(first.strip()))


def test_text_without_sentences_is_cut_between_words() -> None:
    text = "alpha beta gamma delta " * 100
    for start, end in split(text):
        assert start == 0 or text[start - 1] == " "
        assert text[end] == " " or end == len(text.rstrip())


def test_text_without_spaces_is_cut_evenly() -> None:
    lengths = [end - start for start, end in split("東" * 700)]
    assert len(lengths) == 2
    assert max(lengths) - min(lengths) < 120


@pytest.mark.parametrize("length", range(PASSAGE_CHARS + 1, 4 * PASSAGE_CHARS, 61))
def test_split_makes_no_tiny_passage(length: int) -> None:
    text = (SENTENCE * 60)[:length].rstrip()
    lengths = [end - start for start, end in split(text)]
    assert min(lengths) >= PASSAGE_CHARS // 3


@pytest.mark.parametrize("text", ["a" * 10**6, "👩\u200d👧" * 333_333, "hello. " * 150_000])
def test_megabyte_of_text_is_cut_into_few_passages(text: str) -> None:
    spans = split(text)
    assert len(spans) < 1.6 * len(text) / (PASSAGE_CHARS - OVERLAP_CHARS)


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (10, 4), (10, -1)])
def test_invalid_passage_sizes_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        split("text", size, overlap)


@check
@given(TEXTS, SIZES)
def test_every_visible_character_is_in_a_passage(text: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    spans = split(text, size, overlap)
    covered = set[int]()
    for start, end in spans:
        assert 0 <= start <= end <= len(text)
        assert end - start <= size
        covered.update(range(start, end))
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


@check
@given(TEXTS, SIZES)
def test_passages_advance_and_overlap_no_more_than_asked(text: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    for (start, end), (next_start, next_end) in itertools.pairwise(split(text, size, overlap)):
        assert start < next_start and end < next_end
        assert end - next_start <= overlap
