"""Which texts are near duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.recall.hits import DUPLICATE_SHARE
from reverie.recall.near_duplicates import is_near_duplicate, prefix_filter_terms
from tests.tables import cases_in_one_test

quietly = settings(derandomize=True, deadline=None, max_examples=100)
LONG = "we walked through the old park beside the quiet river until late that evening, talking"

COPIES = (
    "Alec runs the Hamburg office of TechCorp",
    "The rent is 900 euros a month",
    "I do not eat meat",
    "Мы переехали в Новосибирск весной",
    "我昨天在上海买了一辆自行车",
    "明日の会議は東京駅の近くです",
    "ฉันชอบกินข้าวผัดกุ้งทุกวัน",
    "나는 부산에서 회사를 다닌다",
    "موعد الطبيب يوم الأحد",
    "Der Übergabetermin ist am Montag",
    "it was what it was",
    "42",
    "Tea",
)

DENIED = (
    ("I eat meat on most days of the week", "I do not eat meat on most days of the week"),
    ("she was at home in the evening", "she was never at home in the evening"),
    ("it works well on old machines", "it doesn't work well on old machines"),
    ("it works well on old machines", "it doesn\u2019t work well on old machines"),
    ("coffee with milk and sugar, please", "coffee without milk and sugar, please"),
    ("das ist am Montag möglich", "das ist am Montag nicht möglich"),
    ("ich habe am Montag Zeit", "ich habe am Montag keine Zeit"),
    ("elle mange de la viande le soir", "elle ne mange pas de la viande le soir"),
    ("elle mange de la viande le soir", "elle ne mange jamais de la viande le soir"),
    ("como carne por la noche en casa", "no como carne por la noche en casa"),
    ("como carne por la noche en casa", "nunca como carne por la noche en casa"),
    ("eu como carne em casa de noite", "eu não como carne em casa de noite"),
    ("mangio la carne a casa la sera", "non mangio la carne a casa la sera"),
    ("ik eet vlees in de avond thuis", "ik eet niet vlees in de avond thuis"),
    ("ik eet vlees in de avond thuis", "ik eet geen vlees in de avond thuis"),
    ("я ем мясо вечером дома", "я не ем мясо вечером дома"),
    ("我喜欢吃肉", "我不喜欢吃肉"),
    ("我昨天去了学校", "我昨天没去学校"),
    ("私は肉を食べる", "私は肉を食べない"),
)


@cases_in_one_test("text", COPIES)
def test_copy_is_a_near_duplicate(text: str) -> None:
    for share in (0.5, DUPLICATE_SHARE, 1.0):
        assert is_near_duplicate(text, text, share)
        assert is_near_duplicate(text, f"  {text} \n", share)


@cases_in_one_test("text", COPIES)
def test_copy_with_another_ending_is_a_near_duplicate(text: str) -> None:
    assert is_near_duplicate(text, f"{text}.", DUPLICATE_SHARE)
    assert is_near_duplicate(text, f"{text}!", DUPLICATE_SHARE)


def test_near_duplicates_ignore_letter_case() -> None:
    assert is_near_duplicate(
        "Alec runs the Hamburg office", "alec runs the hamburg office", DUPLICATE_SHARE
    )
    assert is_near_duplicate("Tea and toast at five", "tea, and toast: at five!", DUPLICATE_SHARE)


TURNED = (
    ("Anna owes Tom 50 euros", "Tom owes Anna 50 euros"),
    ("The heating is on", "The heating is off"),
    ("Take the pill before breakfast", "Take the pill after breakfast"),
    ("the train from Berlin to Paris", "the train from Paris to Berlin"),
    ("I like tea but not coffee", "I like coffee but not tea"),
    ("The price went up", "The price went down"),
    ("His allergy is peanuts", "Her allergy is peanuts"),
    ("Version 1.2.3", "Version 3.2.1"),
    ("What is a zebra crossing?", "zebra crossing"),
)


@cases_in_one_test(
    "one, other, share",
    [(one, other, share) for one, other in TURNED for share in [0.5, DUPLICATE_SHARE]],
)
def test_texts_with_another_word_order_are_no_near_duplicates(
    one: str, other: str, share: float
) -> None:
    assert not is_near_duplicate(one, other, share)
    assert not is_near_duplicate(other, one, share)


def test_near_duplicates_ignore_word_forms() -> None:
    assert is_near_duplicate("the zebra is striped", "zebras are striped", DUPLICATE_SHARE)


def test_one_added_word_is_still_a_near_duplicate() -> None:
    assert is_near_duplicate(LONG, f"{LONG} quietly", DUPLICATE_SHARE)
    assert not is_near_duplicate(
        LONG, f"{LONG} about the new school and its teachers", DUPLICATE_SHARE
    )
    assert not is_near_duplicate("Alec drinks tea", "Alec drinks coffee", DUPLICATE_SHARE)
    assert is_near_duplicate("Alec drinks black tea", "Alec drinks tea", 0.5)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (
            "вчера вечером дети долго гуляли по старому парку возле тихой реки и говорили",
            "вчера вечером дети долго гуляли по старому парку возле тихой широкой реки и говорили",
        ),
        (
            "gestern abend liefen alle lange durch große parks neben stillen flüssen und redeten",
            "gestern abend liefen alle lange durch öde große parks neben stillen flüssen und "
            "redeten",
        ),
    ],
    ids=["Russian", "German"],
)
def test_lower_case_word_is_no_name_in_any_language(text: str, more: str) -> None:
    assert is_near_duplicate(text, more, DUPLICATE_SHARE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The rent is 900 euros a month", "The rent is 950 euros a month"),
        ("We meet in room B12 on the second floor", "We meet in room B13 on the second floor"),
        ("The rent is a month behind", "The rent is 2 month behind"),
        (f"{LONG} to Alec", f"{LONG} to Mina"),
        (f"{LONG} to Alec", f"{LONG} to nobody"),
        (f"{LONG} to Анна", f"{LONG} to Вера"),
        (f"{LONG} until 2023", f"{LONG} until 2024"),
        (f"{LONG} until 2023", LONG),
    ],
)
def test_texts_with_another_number_or_name_are_no_near_duplicates(one: str, other: str) -> None:
    for share in (0.5, DUPLICATE_SHARE):
        assert not is_near_duplicate(one, other, share)
        assert not is_near_duplicate(other, one, share)


def test_lower_case_name_matches_the_same_name() -> None:
    assert is_near_duplicate(f"{LONG} to Alec", f"{LONG} to alec", DUPLICATE_SHARE)


@cases_in_one_test("stated, denied", DENIED)
def test_negated_text_is_no_near_duplicate_of_its_statement(stated: str, denied: str) -> None:
    assert not is_near_duplicate(stated, denied)
    assert not is_near_duplicate(denied, stated)
    assert is_near_duplicate(denied, denied)


def test_texts_with_the_same_negation_are_near_duplicates() -> None:
    assert is_near_duplicate(f"{LONG}, not sitting", f"{LONG}: not sitting", DUPLICATE_SHARE)


def test_texts_without_words_are_no_near_duplicates() -> None:
    for nothing in ("", " ", "\n", "...", "!?"):
        assert not is_near_duplicate(nothing, nothing)
        assert not is_near_duplicate(nothing, "tea")
        assert not is_near_duplicate("tea", nothing)


WORDS = st.lists(
    st.sampled_from(["tea", "Alec", "not", "42", "不", "zebra", "ist", "kein", "the", "über", "."]),
    max_size=8,
).map(" ".join)


@quietly
@given(WORDS | st.text(max_size=60), WORDS | st.text(max_size=60), st.floats(0, 1))
def test_is_near_duplicate_is_symmetric(one: str, other: str, share: float) -> None:
    assert is_near_duplicate(one, other, share) == is_near_duplicate(other, one, share)


@quietly
@given(WORDS, WORDS, st.floats(0, 1), st.floats(0, 1))
def test_higher_share_never_finds_more_near_duplicates(
    one: str, other: str, low: float, high: float
) -> None:
    if is_near_duplicate(one, other, max(low, high)):
        assert is_near_duplicate(one, other, min(low, high))


@st.composite
def variants(draw: st.DrawFn) -> tuple[str, str]:
    """A text of some words, and the same with a few of them left out."""
    words = draw(st.lists(st.sampled_from(sorted({*LONG.split(), *"abcdefghij"})), max_size=30))
    out = draw(st.sets(st.integers(0, 29), max_size=3))
    return " ".join(words), " ".join(word for at, word in enumerate(words) if at not in out)


@quietly
@given(variants() | st.tuples(WORDS, WORDS), st.floats(0, 1) | st.just(DUPLICATE_SHARE))
def test_prefix_filter_terms_of_near_duplicates_overlap(
    texts: tuple[str, str], share: float
) -> None:
    one, other = texts
    if is_near_duplicate(one, other, share):
        assert {*prefix_filter_terms(one, share)} & {*prefix_filter_terms(other, share)}


@pytest.mark.parametrize("unit", ["n", "1", "A", "n't ", "no ", "不", "a\u0301", "'"])
def test_long_texts_are_compared_without_an_error(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert is_near_duplicate(text, text + "x") in {True, False}
