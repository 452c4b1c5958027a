"""Whether two texts about one subject speak of the same thing."""

from __future__ import annotations

from reverie.write.memories import speak_of_same_thing
from tests.tables import cases_in_one_test


@cases_in_one_test(
    "one, other, expected",
    [
        ("Alec is my boss at TechCorp", "Alec is my boss", True),
        ("Alec is my boss at TechCorp", "Alec was my boss at TechCorp", True),
        ("Alec's birthday is on 3 May", "Alec's birthday: 4 May 1980", True),
        ("Dentist of Alec on 12 March at 9:30", "Alec: dentist on 20 March with Dr Moreau", True),
        ("Alec is 40", "Alec is 41", True),
        ("Alec is my boss at TechCorp", "Alec likes tea", False),
        ("Alec lives in Oslo", "Alec speaks Norwegian", False),
        ("Alec is 40", "Alec plays chess with 2 friends", False),
    ],
)
def test_texts_speak_of_the_same_thing_by_their_words(one: str, other: str, expected: bool) -> None:
    assert speak_of_same_thing(one, other, "Alec") is expected
    assert speak_of_same_thing(other, one, "Alec") is expected
