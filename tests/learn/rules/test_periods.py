"""Which dates the rules take for the time in which something holds."""

from __future__ import annotations

import pytest

from reverie.dates import to_iso
from reverie.learn.rules.periods import StatedPeriod, read_since, read_span
from reverie.learn.rules.statements import extract_statements


def shown(period: StatedPeriod | None) -> tuple[str | None, str | None] | None:
    return None if period is None else (_day(period.valid_from), _day(period.valid_to))


def _day(at: int | None) -> str | None:
    return None if at is None else to_iso(at).removesuffix("T00:00:00+00:00")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (" since 2023", "2023-01-01"),
        (" since March 2022.", "2022-03-01"),
        (" since Sept 2022, and", "2022-09-01"),
        (" since May of 2022", "2022-05-01"),
        (" since 2022-03", "2022-03-01"),
        (", Norway since 2022-03-15 with", "2022-03-15"),
    ],
)
def test_read_since_reads_years_months_and_days(text: str, start: str) -> None:
    assert shown(read_since(text)) == (start, None)


@pytest.mark.parametrize(
    "text",
    """ since last year| since May| since I was ten| since about 2022| since early 2022
     since the 2010s| since 2020s| since 2020/21| since 2020-ish| since 2022-13| since 2022-02-30
     since 5/6/2022| since 1789| since 20222| since 2022's| for 5 years""".replace(
        "\n    ", "|"
    ).split("|"),
)
def test_read_since_guesses_nothing(text: str) -> None:
    assert read_since(text) is None


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        (" from 2020 to 2023.", "2020-01-01", "2024-01-01"),
        (" from 2020-2023", "2020-01-01", "2024-01-01"),
        (" between May 2020 and 2022-02", "2020-05-01", "2022-03-01"),
        (", Norway from 2020-03-01 until 2020-03-31", "2020-03-01", "2020-04-01"),
        (" from 2020 through 2020", "2020-01-01", "2021-01-01"),
    ],
)
def test_read_span_reads_until_the_end_of_the_last_date(text: str, start: str, end: str) -> None:
    assert shown(read_span(text)) == (start, end)


@pytest.mark.parametrize(
    "text",
    [
        " from 2023 to 2020",
        " from May to June 2022",
        " until 2023",
        " from 2020 to now",
        " from 2020",
        " in 2020",
        " from 2020 to 2022-13",
    ],
)
def test_read_span_guesses_nothing(text: str) -> None:
    assert read_span(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "I lived in Oslo from 2020 to 2023.",
            [("The user lived in Oslo", "2020-01-01", "2024-01-01")],
        ),
        (
            "I worked at Telenor between March 2015 and 2020.",
            [("The user worked at Telenor", "2015-03-01", "2021-01-01")],
        ),
        (
            "I worked as a nurse from 2015 to 2020",
            [("The user worked as a nurse", "2015-01-01", "2021-01-01")],
        ),
        (
            "I studied at Oxford University from 2010 to 2013",
            [("The user studied at Oxford University", "2010-01-01", "2014-01-01")],
        ),
        (
            "My sister Mia lived in Rome from 2018 to 2020.",
            [
                ("The user's sister is Mia", None, None),
                ("Mia lived in Rome", "2018-01-01", "2021-01-01"),
            ],
        ),
        (
            "I've lived in Bergen since 2023.",
            [("The user lives in Bergen", "2023-01-01", None)],
        ),
        (
            "I have worked at Telenor since March 2022.",
            [("The user works at Telenor", "2022-03-01", None)],
        ),
        (
            "I've lived in Bergen since 2023. I live in Bergen.",
            [("The user lives in Bergen", "2023-01-01", None)],
        ),
        (
            "I lived in Oslo from 2010 to 2012. I lived in Oslo from 2020 to 2023.",
            [
                ("The user lived in Oslo", "2010-01-01", "2013-01-01"),
                ("The user lived in Oslo", "2020-01-01", "2024-01-01"),
            ],
        ),
        (
            "Remember that I've lived in Bergen since 2023.",
            [("The user lives in Bergen", "2023-01-01", None)],
        ),
        (
            "I've lived in Bergen since last year.",
            [("The user lives in Bergen", None, None)],
        ),
        ("I lived in Oslo from 2020 to 2023 or so", []),
        ("I lived in Oslo and Bergen from 2020 to 2023", []),
        ("If I lived in Oslo from 2020 to 2023, what do I pay?", []),
    ],
)
def test_statements_hold_in_the_period_that_they_name(
    text: str, expected: list[tuple[str, str | None, str | None]]
) -> None:
    said = extract_statements(text)
    assert [(each.content, _day(each.valid_from), _day(each.valid_to)) for each in said] == expected
