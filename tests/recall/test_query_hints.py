"""Hints in a query: the speaker and the period it names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reverie.dates import to_ms
from reverie.recall.query_hints import AskedKind, Definition, Period, QueryHints, parse_query
from reverie.text.analyzer import MAX_QUERY_CHARS, query_terms
from tests.tables import cases_in_one_test

quietly = settings(derandomize=True, deadline=None, max_examples=200)
HOUR = 3_600_000
DAY = 24 * HOUR


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return int(moment.timestamp() * 1000)


# -- who ------------------------------------------------------------------------------------------


def test_terms_are_those_of_the_query() -> None:
    query = "Where did Caroline buy the accordion?"
    assert parse_query(query).terms == query_terms(query)
    assert parse_query("").terms == {} and parse_query("").period is None


def test_verb_may_is_no_term_of_a_query() -> None:
    assert list(parse_query("What may I not eat?").terms) == ["eat"]
    assert list(parse_query("May we eat nuts?").terms) == ["eat", "nut"]
    assert "may" in parse_query("What did I read in May?").terms
    assert list(parse_query("may").terms) == ["may"]


def test_name_in_the_query_selects_its_speaker() -> None:
    question = parse_query("Where did Caroline buy the accordion?")
    assert question.asks_about("user", "Caroline") and question.asks_about("assistant", "caroline")
    assert not question.asks_about("user", "Melanie")
    assert not question.asks_about("user", None) and not question.asks_about("user", "")


def test_speaker_with_a_name_of_two_words_matches_both_words_only() -> None:
    assert parse_query("What did Mary Ann say?").asks_about("user", "Mary Ann")
    assert parse_query("What did Ann, Mary's aunt, say?").asks_about("user", "Mary Ann")
    assert not parse_query("What did Mary say?").asks_about("user", "Mary Ann")


@pytest.mark.parametrize(
    ("query", "speaker"),
    [
        ("Was hat Jürgen gekauft?", "Jürgen"),
        ("Что купила Анна?", "Анна"),
        ("小红买了什么？", "小红"),
        ("Caroline's accordion", "Caroline"),
        ("CAROLINE", "Caroline"),
        ("Qu\u2019a dit Zoé\u202f?", "Zoé"),
    ],
)
def test_speaker_name_is_found_in_any_language(query: str, speaker: str) -> None:
    assert parse_query(query).asks_about("user", speaker)


@pytest.mark.parametrize("speaker", [" ", "...", "\u200b"])
def test_speaker_without_a_name_is_never_selected(speaker: str) -> None:
    assert not parse_query("what did ... 🦓 say?").asks_about("tool", speaker)


FIRST = (
    "Where did I park?",
    "what's my name",
    "I'm looking for the keys",
    "I\u2019ve a question",
    "Where do we meet?",
    "Wo habe ich geparkt?",
    "Wann ist mein Termin?",
    "Où est mon vélo ?",
    "Qu'est-ce que j'ai acheté ?",
    "J\u2019ai acheté quoi ?",
    "¿Dónde está mi coche?",
    "Onde está meu carro?",
    "Dov'è la mia bicicletta?",
    "Waar is mijn fiets?",
    "Где моя машина?",
    "Что я купил?",
    "我的自行车在哪里",
    "私の自転車はどこですか",
    "僕の自転車",
    "나는 어디에 살아요",
    "내 자전거",
)
SECOND = (
    "What did you recommend?",
    "your advice",
    "What did you tell me?",
    "Was hast du mir empfohlen?",
    "deine Antwort",
    "Qu'avez-vous dit ?",
    "¿Qué me recomendó usted?",
    "O que você disse?",
    "Cosa hai detto nel tuo consiglio?",
    "Wat was jouw advies?",
    "Что ты мне посоветовал?",
    "你推荐了什么",
    "你给我推荐了什么",
    "あなたは何を勧めましたか",
    "너는 뭐라고 했어",
)
NOBODY = (
    "Where did Caroline park?",
    "the accordion",
    "",
    "Wer kommt am Montag?",
    "Quel est le nom de la ville ?",
    "Кто пришёл?",
    "自行车在哪里",
    "自転車はどこですか",
    "자전거는 어디에",
    "Wie heißt die Stadt?",
    "¿Quién vino ayer?",
)


@cases_in_one_test("query", FIRST)
def test_query_in_first_person_is_about_the_user(query: str) -> None:
    question = parse_query(query)
    assert (question.about_user, question.about_assistant) == (True, False)
    assert question.asks_about("user", None) and not question.asks_about("assistant", None)


@cases_in_one_test("query", SECOND)
def test_query_in_second_person_is_about_the_assistant(query: str) -> None:
    question = parse_query(query)
    assert (question.about_user, question.about_assistant) == (False, True)
    assert question.asks_about("assistant", None) and not question.asks_about("user", None)


@cases_in_one_test("query", NOBODY)
def test_query_without_person_is_about_nobody(query: str) -> None:
    question = parse_query(query)
    assert (question.about_user, question.about_assistant) == (False, False)
    assert not question.asks_about("user", None) and not question.asks_about("tool", None)


@pytest.mark.parametrize(
    "query",
    [
        "When did Caroline visit the US?",
        "What did Mia buy?",
        "Quel est le nom du chat ?",
        "¿Quién vino el mes pasado?",
    ],
    ids=["a country", "a name", "of the, in French", "month, in Spanish"],
)
def test_ambiguous_words_are_about_nobody(query: str) -> None:
    question = parse_query(query)
    assert (question.about_user, question.about_assistant) == (False, False)


def test_request_for_something_new_is_not_about_the_assistant() -> None:
    for query in ("Can you suggest a book?", "What WOULD you recommend?", "will you come?"):
        question = parse_query(query)
        assert (question.about_user, question.about_assistant) == (False, False)
    for query in ("Could you tell me the address?", "Can you look up my address?"):
        question = parse_query(query)
        assert (question.about_user, question.about_assistant) == (True, False)
    for query in (
        "Can you remind me of the book?",
        "could you please repeat that?",
        "Do you remember the book?",
        "Can you say again what you suggested?",
        "What did you suggest?",
    ):
        assert parse_query(query).about_assistant


def test_tool_is_neither_user_nor_assistant() -> None:
    assert not parse_query("What did I say and you answer?").asks_about("tool", None)


# -- when -----------------------------------------------------------------------------------------

DATES = {
    "What happened on 2023-05-07?": Period(2023, 5, 7),
    "since 2023-05": Period(2023, 5, None),
    "What did I do on 7 May 2023?": Period(2023, 5, 7),
    "on 7 May, 2023": Period(2023, 5, 7),
    "on the 7th of May 2023": Period(2023, 5, 7),
    "on the 21st of MAY": Period(None, 5, 21),
    "on May 7, 2023": Period(2023, 5, 7),
    "on May 7th 2023": Period(2023, 5, 7),
    "on may 7": Period(None, 5, 7),
    "December 31": Period(None, 12, 31),
    "in May 2023": Period(2023, 5, None),
    "May, 2023": Period(2023, 5, None),
    "in May": Period(None, 5, None),
    "last March": Period(None, 3, None),
    "in 2023": Period(2023, None, None),
    "where did I live in summer 2023?": Period(2023, None, None),
    "where did I live in the year 2023?": Period(2023, None, None),
    "my car in fall 2023": Period(2023, None, None),
    "before 1999": Period(1999, None, None),
    "am 7. Mai 2023": Period(2023, 5, 7),
    "im März": Period(None, 3, None),
    "seit 2021": Period(2021, None, None),
    "le 1er août 2023": Period(2023, 8, 1),
    "en février": Period(None, 2, None),
    "el 7 de mayo de 2023": Period(2023, 5, 7),
    "1º de janeiro de 2024": Period(2024, 1, 1),
    "em março": Period(None, 3, None),
    "il 3 giugno 2022": Period(2022, 6, 3),
    "nel 2022": Period(2022, None, None),
    "12 May 2023 or 13 June 2024": Period(2023, 5, 12),
}

NO_DATES = (
    "What may I eat?",
    "It may rain, may it not?",
    "Where did they march to?",
    "Who will march beside Alec?",
    "They march in rows of 2, and may stop",
    "the march through the city",
    "It costs 2023 dollars",
    "the flat has 2001 windows",
    "call 2023-99-99",
    "32 May",
    "0 June",
    "version 1.2.3 of 12",
    "mayor and marching and marsh",
    "Decembers",
    "",
)


@cases_in_one_test("query, period", DATES.items())
def test_explicit_date_is_parsed(query: str, period: Period) -> None:
    assert parse_query(query).period == period


@cases_in_one_test("query", NO_DATES)
def test_text_that_is_no_date_gives_no_period(query: str) -> None:
    assert parse_query(query).period is None


@pytest.mark.parametrize("query", ["Do you think this may help?", "this may be wrong"])
def test_verb_like_may_is_no_month(query: str) -> None:
    assert parse_query(query).period is None


@pytest.mark.parametrize("query", ["a photo of Marco", "after Marco left", "painted by Marco"])
def test_name_like_april_is_no_month(query: str) -> None:
    assert parse_query(query).period is None


def test_iso_timestamp_is_read_as_its_day() -> None:
    assert parse_query("what was said at 2023-05-07T10:30:00Z?").period == Period(2023, 5, 7)
    assert parse_query("what was said at 2023-05-07 10:30?").period == Period(2023, 5, 7)


@pytest.mark.parametrize(
    "query", ["3 auguſt", "3 APRİL 2023", "in aprıl", "\u212aMay 3", "ſeptember 3", "JUNİ 2023-05"]
)
def test_letters_with_odd_case_mappings_are_parsed(query: str) -> None:
    """To a pattern that ignores case they are the letter they look like."""
    assert isinstance(parse_query(query), QueryHints)


# -- whether a time lies in it --------------------------------------------------------------------


def test_period_of_a_day_covers_every_time_zone() -> None:
    day = Period(2023, 5, 7)
    first, last = ms(2023, 5, 6, 12), ms(2023, 5, 8, 12)
    assert day.holds(ms(2023, 5, 7)) and day.holds(ms(2023, 5, 7, 23, 59, 59))
    assert day.holds(first) and not day.holds(first - 1)
    assert day.holds(last - 1) and not day.holds(last)
    assert not day.holds(ms(2022, 5, 7)) and not day.holds(ms(2023, 6, 7))


def test_period_of_a_year_or_month_covers_its_last_day_in_every_time_zone() -> None:
    for period in (Period(2023, None, None), Period(2023, 12, None), Period(None, 12, None)):
        assert period.holds(ms(2024, 1, 1, 12) - 1)
        assert not period.holds(ms(2024, 1, 1, 12))
    assert Period(2024, None, None).holds(ms(2023, 12, 31, 12))
    assert not Period(2024, None, None).holds(ms(2023, 12, 31, 12) - 1)
    assert Period(2023, 12, None).holds(ms(2023, 11, 30, 12))
    assert not Period(2023, 12, None).holds(ms(2023, 11, 30, 12) - 1)


def test_period_without_a_year_or_day_matches_any() -> None:
    may = Period(None, 5, None)
    assert all(may.holds(ms(year, 5, 15)) for year in (1970, 1999, 2023, 2040))
    assert not may.holds(ms(2023, 7, 15))
    assert Period(None, 2, 29).holds(ms(2024, 2, 29, 5))
    assert not Period(None, 2, 30).holds(ms(2024, 2, 29, 5))
    assert Period(None, None, None).holds(0)


def test_period_before_1970_works() -> None:
    assert Period(1969, 12, 31).holds(-1) and Period(1969, 7, 20).holds(ms(1969, 7, 20, 20))
    assert Period(1970, 1, 1).holds(0)


@pytest.mark.parametrize("at", [1 << 62, -(1 << 62), 10**30, -(10**30), ms(9999, 12, 31, 23)])
def test_time_beyond_the_calendar_is_in_no_period(at: int) -> None:
    assert not Period(2023, 5, 7).holds(at)


@quietly
@given(st.integers(-(1 << 63), 1 << 63), st.integers(1900, 2099), st.integers(1, 12))
def test_time_within_a_day_is_in_its_month_and_year(at: int, year: int, month: int) -> None:
    day = Period(year, month, at % 31 + 1)
    if day.holds(at):
        assert Period(year, month, None).holds(at) and Period(year, None, None).holds(at)
        assert Period(None, month, None).holds(at)


# -- any text -------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("in", "of", "May", "march", "7", "7th", "31.", "2023", "2023-05", "-07", ",", " de "),
        *("I", "you", "ich", "我", "君", "나는", "'", "\u2019", "ſ", "İ", "ı", "août", "1er", " "),
    ]
)


@quietly
@given(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
    | st.lists(PIECES, max_size=12).map("".join)
    | st.lists(PIECES, max_size=12).map(" ".join)
)
@example("\ud800 \udfff")
@example("\x00")
def test_parse_query_is_deterministic_for_any_text(text: str) -> None:
    question = parse_query(text)
    assert question == parse_query(text)
    assert question.asks_about("user", text) in {True, False}
    if question.period is not None:
        year, month, day = question.period
        assert year is None or 1900 <= year <= 2099
        assert month is None or 1 <= month <= 12
        assert day is None or 1 <= day <= 31
        assert question.period != (None, None, None)


@pytest.mark.parametrize(
    "unit",
    [
        "1",
        "1 ",
        " ",
        "2023-",
        "2023-0",
        "in ",
        "in",
        "7 of ",
        "May ",
        "may 1",
        "I'",
        "我",
        "\u3000",
    ],
)
def test_long_query_is_parsed_as_its_first_characters(unit: str) -> None:
    text = unit * (2 * MAX_QUERY_CHARS // len(unit))
    assert parse_query(text) == parse_query(text[:MAX_QUERY_CHARS])


@pytest.mark.parametrize("tail", ["", "x", "2023", "May"])
def test_query_with_many_spaces_is_parsed(tail: str) -> None:
    for head in ("7", "in", "May", "7 of", "May 7,", "1 in May 7 of"):
        text = head + " " * (MAX_QUERY_CHARS - 20) + tail
        assert isinstance(parse_query(text), QueryHints)


def test_text_beyond_the_maximum_query_length_is_ignored() -> None:
    assert parse_query(" " * MAX_QUERY_CHARS + "in 2023").period is None


@cases_in_one_test(
    "query, start, end, expected",
    [
        ("in 2023", "2020-01-01", "2024-05-01", True),
        ("in 2023", "2023-12-31", None, True),
        ("in 2023", "2024-01-01", None, False),
        ("in 2023", None, "2023-01-01", False),
        ("in 2023", None, "2023-01-02", True),
        ("in december 2023", "2024-01-01", None, False),
        ("in december 2023", "2023-12-31", None, True),
        ("in may 2024", None, "2024-05-01", False),
        ("on 2024-05-17", "2024-05-18", None, False),
        ("on 2024-05-17", None, "2024-05-18", True),
        ("on 2023-02-31", "2020-01-01", None, False),
    ],
)
def test_period_overlaps_what_held_in_it(
    query: str, start: str | None, end: str | None, expected: bool
) -> None:
    period = parse_query(query).period
    assert period is not None
    times = [None if at is None else to_ms(at, "at") for at in (start, end)]
    assert period.overlaps(times[0], times[1], 0) is expected


@pytest.mark.parametrize(
    ("query", "name", "definite"),
    [
        ("What is Kestrel?", "kestrel", False),
        ("what's a kestrel", "kestrel", False),
        ("Who is Bob Miller?", "bob miller", False),
        ("what does SLA mean?", "sla", False),
        ("What does SLA stand for?", "sla", False),
        ("what’s my name?", "name", True),
        ("what is the wifi password?", "wifi password", True),
        ("Was ist Kestrel?", "kestrel", False),
        ("¿Qué es Kestrel?", "kestrel", False),
        ("which phone do I have?", "phone", True),
        ("What kind of car do we drive now?", "car", True),
        ("tell me what Kestrel is", "kestrel", False),
        ("Do you know who Bob Miller is?", "bob miller", False),
        ("can you remind me what my phone is?", "phone", True),
        ("Please tell me what SLA stands for.", "sla", False),
    ],
)
def test_query_that_asks_for_a_definition_names_the_thing(
    query: str, name: str, definite: bool
) -> None:
    assert parse_query(query).definition == Definition(name, definite)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "Kestrel",
        "What is it?",
        "who are you?",
        "what is this about",
        "when is Kestrel deployed?",
        "what is the name of the place where we had dinner in May?",
        "what is Kestrel, and who runs it?",
        "do you know what it is?",
        "tell me what you think is best",
        "tell me what is new",
    ],
)
def test_other_queries_ask_for_no_definition(query: str) -> None:
    assert parse_query(query).definition is None


@pytest.mark.parametrize(
    ("name", "definite", "text", "says"),
    [
        ("kestrel", False, "Kestrel is our billing service", True),
        ("kestrel", False, "We decided: Kestrel is the new cache.", True),
        ("kestrel", False, "Kestrel (the new one), is a service", True),
        ("kestrel", False, "Kestrel: billing, in Go", True),
        ("kestrel", False, "Ask Ana, Kestrel is late", False),
        ("kestrel", False, "Kestrel is late again", False),
        ("kestrel", False, "I deployed Kestrel", False),
        ("kestrel", False, "Kestrels are the birds here", False),
        ("kestrel", False, "Kestrel deploys on Fridays. Kestrel is a billing service", True),
        ("sla", False, "SLA stands for service level agreement", True),
        ("bob miller", False, "Bob Miller is my brother", True),
        ("name", True, "The user's name is Alice", True),
        ("name", True, "He asked for a name tag", False),
        ("wifi password", True, "The wifi password is hunter2", True),
    ],
)
def test_definition_is_found_in_the_text_that_says_what_a_thing_is(
    name: str, definite: bool, text: str, says: bool
) -> None:
    assert Definition(name, definite).is_in(text) is says


@pytest.mark.parametrize(
    ("query", "text", "missed"),
    [
        ("which phone do I have?", "I hate phone calls", True),
        ("which phone do I have?", "My phone is a Pixel 8", False),
        ("which phone do I have?", "The phone broke yesterday", False),
        ("which phones do we own?", "our phone: a Pixel", False),
        ("what book am I reading?", "Hotel booking code for Porto is QX7T2P", True),
        ("what book am I reading?", "I read books by the sea", False),
        ("which book did Kari give me?", "I booked a table at Bare", True),
        ("which book did Kari give me?", "Kari booked a table at Bare", False),
        ("which dentist do I have?", "Dentist appointment with Dr Berg", False),
        ("what kind of dog does Bob have?", "The dog food is in the cellar", True),
        ("what kind of dog does Bob have?", "Bob keeps dog food in the cellar", False),
        ("which phone do I have?", "We met at noon", False),
        # The verb says what the noun says.
        ("what investments do I have?", "I invested in Equinor", False),
        ("which medication do I take?", "I am medicated against asthma", False),
        ("what order did I place?", "I ordered a MacBook", False),
        ("what paint did I use?", "I painted the hall in Jotun white", False),
        ("what rent do I pay?", "I am renting for 900 a month", False),
        (
            "which phone do I have?",
            "I hate phone calls, long mails, loud rooms, crowded trains, early mornings, wet socks",
            False,
        ),
    ],
)
def test_kind_of_thing_is_missed_by_a_short_text_with_the_word_in_another_sense(
    query: str, text: str, missed: bool
) -> None:
    kind = parse_query(query).kind
    assert kind is not None
    assert kind.is_missed_by(text) is missed


@pytest.mark.parametrize(
    "query",
    [
        *("phone", "where is my phone?", "what is my phone?", "which?", "what do I like?"),
        # The verb says what the noun says: "I am working as a nurse".
        *("what work do I do?", "what studies did I do?"),
    ],
)
def test_other_queries_ask_for_no_kind_of_thing(query: str) -> None:
    assert parse_query(query).kind is None


def test_other_terms_of_an_asked_kind_leave_out_weak_words() -> None:
    kind = parse_query("which book did Kari give me?").kind
    assert kind == AskedKind("book", "book", frozenset({"kari"}))
