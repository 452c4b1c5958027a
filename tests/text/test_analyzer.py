from __future__ import annotations

import sys
import threading
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.text import analyzer
from reverie.text.analyzer import Terms, analyse, query_terms
from reverie.text.normalize import nfkc_casefold

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SCRIPTS = st.text(
    st.sampled_from("aZ9 .'’_-éİßſςΣяЁ東ひカーกำี่ຂໍ້ក្រမြန်हिंदीعَـ\u200c\u200d\ufe0f\u0301\u00ad👍한")
)
check = settings(deadline=None, max_examples=200, derandomize=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sarah's running shoes", ["sarah", "run", "shoe"]),
        ("Sarah’s", ["sarah"]),
        ("James' O'Brien", ["jame", "obrien"]),
        ("I don't eat fish", ["eat", "fish"]),
        ("we'll they've shouldn't go", ["go"]),
        ("Ubuntu 20.04", ["ubuntu", "20", "04"]),
        ("multi-agent user_id", ["multi", "agent", "user", "id"]),
        ("Café naïve Zoë", ["cafe", "naiv", "zoe"]),
        ("ＦＵＬＬ ﬁsh ①", ["full", "fish", "1"]),
        ("İSTANBUL", ["istanbul"]),
        ("книгами чёрный", ["книг", "черн"]),
        ("ΆΝΘΡΩΠΟΣ άνθρωπος", ["ανθρωπ", "ανθρωπ"]),
        ("الكتاب كِتَاب", ["كتاب", "كتاب"]),
        ("लड़कियाँ", ["लड़क"]),
        ("東京都", ["東京", "京都", "東", "京", "都"]),
        ("本", ["本"]),
        ("iPhone手机", ["iphon", "手机", "手", "机"]),
        ("日本のカメラ", [*["日本", "本の", "のカ", "カメ", "メラ"], *"日本のカメラ"]),
        ("ที่นี่", ["ที่นี่", "ที่", "นี่"]),
        ("東ไทย", ["東", "ไท", "ทย", "ไ", "ท", "ย"]),
        ("한국어 공부", ["한국어", "공부"]),
        ("co\u00adoperate", ["cooper"]),
        ("می\u200cخواهم", ["میخو"]),
        ("1\ufe0f\u20e3 ❤\ufe0f 👩\u200d👧", ["1", "❤", "👩", "👧"]),
        ("👍🏽 done", ["👍", "done"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("a\ud800\x00b", ["b"]),
        ("", []),
        ("... \n", []),
    ],
)
def test_analyse_returns_the_expected_terms(text: str, expected: list[str]) -> None:
    terms = analyse(text)
    assert [term for term, count in terms.counts.items() for _ in range(count)] == expected
    assert terms.length == len(expected)


def test_stop_words_are_kept_only_when_there_is_nothing_else() -> None:
    assert analyse("Who are you?") == Terms({"who": 1, "are": 1, "you": 1}, 3)
    assert analyse("Who are you, Sarah?") == Terms({"sarah": 1}, 1)
    assert query_terms("who's that") == {"who": "who's", "that": "that"}


def test_analyse_counts_terms_and_length() -> None:
    assert analyse("Run, runs, running: a cat") == Terms({"run": 3, "cat": 1}, 4)


def test_terms_are_truncated_at_64_characters() -> None:
    assert analyse("z" * 1_000).counts == analyse("z" * 64).counts == {"z" * 64: 1}
    assert all(len(term) <= 64 for term in analyse("東" + "\u0301" * 500 + "京").counts)


def test_query_terms_keep_order_and_one_surface_form() -> None:
    assert query_terms("The Runner's cats ran; CAT Naïve") == {
        "runner": "runner's",
        "cat": "cats",
        "ran": "ran",
        "naiv": "naïve",
    }


def test_query_terms_are_limited() -> None:
    text = " ".join(f"word{number}" for number in range(10_000))
    assert list(query_terms(text)) == [f"word{number}" for number in range(64)]
    assert list(query_terms(text, 3)) == ["word0", "word1", "word2"]
    assert query_terms(text, 0) == {}
    assert query_terms(" " * 20_000 + "late") == {}


def test_combining_marks_are_part_of_words() -> None:
    letters = [
        chr(code)
        for code in range(0x300, sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in {"Mn", "Mc"}
    ]
    token = analyzer._patterns().token
    assert [mark for mark in letters if not token.fullmatch(f"a{mark}b")] == []


def test_fast_path_for_plain_text_equals_the_general_path() -> None:
    plain = [chr(c) for c in range(sys.maxunicode + 1) if analyzer._PLAIN.fullmatch(chr(c))]
    assert len(plain) > 5_000
    for character in plain:
        for text in (f"a{character}b", f"'{character}' x{character}", f"{character}{character}"):
            assert analyzer._split_words(text) == analyzer._split_unicode_words(text)


@check
@given(st.text(st.characters(max_codepoint=127)))
def test_fast_path_for_ascii_equals_the_general_path(text: str) -> None:
    assert analyzer._split_words(text) == analyzer._split_unicode_words(text)


@check
@given(st.text(st.sampled_from("aZ9 .'’_-éßſςΣяЁ—…👍")))
def test_fast_path_for_plain_text_equals_the_general_path_in_any_order(text: str) -> None:
    assert analyzer._split_words(text) == analyzer._split_unicode_words(text)


@check
@given(ANY_TEXT | SCRIPTS)
def test_analyse_returns_clean_terms_for_any_text(text: str) -> None:
    terms = analyse(text)
    assert terms.length == sum(terms.counts.values())
    for term in terms.counts:
        assert 1 <= len(term) <= 64
        term.encode("utf-8")
        assert not any(unicodedata.category(c)[0] in "ZC" for c in term), ascii(term)


@check
@given(ANY_TEXT | SCRIPTS)
def test_query_terms_of_a_text_are_its_index_terms(text: str) -> None:
    found = query_terms(text, 10_000)
    indexed = analyse(text).counts
    # A text without spaces is also indexed by single characters, which only short queries ask for.
    assert list(found) == [term for term in indexed if term in found]
    assert all(analyzer._IS_UNSPACED.match(term) for term in indexed if term not in found)
    query = nfkc_casefold(text)
    assert all(word in query for word in found.values())


@check
@given(st.text(st.sampled_from("abc xyz'’éя東ก1 ")), st.sampled_from(["upper", "NFD"]))
def test_unicode_form_does_not_change_the_terms(text: str, change: str) -> None:
    other = text.upper() if change == "upper" else unicodedata.normalize("NFD", text)
    assert analyse(text) == analyse(other)


def test_analyse_is_thread_safe() -> None:
    text = " ".join(f"running{number} книгами cats{number}" for number in range(400))
    expected = analyse(text)
    seen: list[Terms] = []

    def work() -> None:
        analyzer._term_unless_stop_word.cache_clear()
        seen.append(analyse(text))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 8
