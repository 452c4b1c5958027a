"""What statements of the rules change in the store: replace, add, retract, refine."""

from __future__ import annotations

import pytest

from reverie import Space
from tests.conftest import Stores
from tests.messages import user


class RuleLearner:
    """A space that learns by rules from the turns it is called with."""

    def __init__(self, stores: Stores) -> None:
        self.store = stores.open(learn="rules")
        self.space: Space = self.store.space("ana")

    def __call__(self, *turns: str) -> list[str]:
        for turn in turns:
            self.space.session("talk").append(user(turn))
            self.store.run_pending_jobs()
        return sorted(memory.content for memory in self.space.memories())


@pytest.fixture
def learn(stores: Stores) -> RuleLearner:
    return RuleLearner(stores)


def test_new_home_of_another_person_replaces_only_their_home(learn: RuleLearner) -> None:
    contents = learn(
        "My sister Mia lives in Rome.", "My sister Mia is vegan.", "My sister Mia moved to Bern."
    )
    assert contents == ["Mia is vegan", "Mia lives in Bern", "The user's sister is Mia"]


def test_fact_about_an_unnamed_person_stays_beside_their_name(learn: RuleLearner) -> None:
    contents = learn("My wife is pregnant.", "My wife is Ingrid.", "My wife is Astrid.")
    assert contents == ["The user's wife is Astrid", "The user's wife is pregnant"]


def test_diet_is_replaced_and_languages_are_added(learn: RuleLearner) -> None:
    contents = learn("I'm vegetarian.", "I'm vegan now.", "I speak Dutch.", "I speak Thai.")
    assert contents == ["The user is vegan", "The user speaks Dutch", "The user speaks Thai"]


def test_statement_that_says_more_replaces_the_shorter_one(learn: RuleLearner) -> None:
    assert learn("I speak Dutch.", "I speak Dutch and Thai.") == ["The user speaks Dutch and Thai"]


def test_quitting_forgets_the_job_that_was_remembered(learn: RuleLearner) -> None:
    assert learn("I work at Equinor.", "I quit my job at Equinor.") == []
    (memory,) = learn.space.memories(include_forgotten=True)
    assert memory.content == "The user works at Equinor"


def test_quitting_a_job_never_heard_of_is_remembered_once(learn: RuleLearner) -> None:
    quitting = "I quit my job at Equinor."
    assert learn(quitting, quitting) == ["The user no longer works at Equinor"]
    assert learn("I work at Bosch.") == ["The user works at Bosch"]


def test_quitting_another_employer_leaves_the_present_one(learn: RuleLearner) -> None:
    assert learn("I work at Bosch.", "I quit my job at Equinor.") == ["The user works at Bosch"]


def test_giving_up_an_instrument_forgets_it(learn: RuleLearner) -> None:
    assert learn("I play the cello.", "I gave up the cello.") == []


def test_plan_has_the_day_on_which_it_was_told(learn: RuleLearner) -> None:
    (content,) = learn("I'm moving to Berlin in May.")
    assert content.startswith("The user is moving to Berlin in May (said on 20")


def test_plan_with_a_year_is_left_as_it_was_told(learn: RuleLearner) -> None:
    assert learn("I'm moving to Berlin in May 2031.") == [
        "The user is moving to Berlin in May 2031"
    ]


def test_new_date_of_a_plan_replaces_the_old_one(learn: RuleLearner) -> None:
    (content,) = learn("My exam is on 12 December.", "My exam is on 14 December.")
    assert content.startswith("The user's exam is on 14 December (said on ")


def test_request_about_a_person_names_them(learn: RuleLearner) -> None:
    learn("My sister Mia visits on Friday. Remember that she eats no meat.")
    assert [memory.content for memory in learn.space.memories(subject="Mia")][0] == (
        "Mia does not eat meat"
    )
    assert not any(
        memory.content.startswith(("She", "He", "They")) for memory in learn.space.memories()
    )


def test_two_sons_told_apart_by_age_are_both_remembered(learn: RuleLearner) -> None:
    contents = learn("My older son is 7.", "My younger son is 4.", "My older son is 8.")
    assert contents == [
        "The user's older son is 8 years old",
        "The user's younger son is 4 years old",
    ]


def test_former_boss_does_not_replace_the_present_one(learn: RuleLearner) -> None:
    assert learn("My boss is Anna.", "My old boss is Peter.") == ["The user's boss is Anna"]


def test_opening_hours_of_a_favourite_do_not_replace_it(learn: RuleLearner) -> None:
    contents = learn(
        "My favourite restaurant is Noma.", "My favourite restaurant is closed on Mondays."
    )
    assert contents == ["The user's favourite restaurant is Noma"]


def test_opposite_preference_replaces_the_earlier_one(learn: RuleLearner) -> None:
    contents = learn("I prefer tea over coffee.", "I prefer coffee to tea.", "I prefer tabs.")
    assert contents == ["The user prefers coffee over tea", "The user prefers tabs"]


def test_diet_that_is_given_up_is_forgotten(learn: RuleLearner) -> None:
    assert learn("I'm vegan.", "I'm no longer vegan.") == []


def test_home_that_another_person_left_is_forgotten(learn: RuleLearner) -> None:
    contents = learn("My sister Mia lives in Rome.", "Mia is vegan.", "My sister no longer works.")
    assert "Mia lives in Rome" in contents
    assert "Mia lives in Rome" not in learn("My sister Mia no longer lives in Rome.")


def test_retirement_ends_the_job_at_an_employer(learn: RuleLearner) -> None:
    assert learn("I work at Equinor.", "I retired.") == ["The user is retired"]
    assert learn("I work at Bosch.") == ["The user works at Bosch"]


def test_new_employer_ends_unemployment_and_leaves_the_occupation(learn: RuleLearner) -> None:
    assert learn("I'm unemployed.", "I work at Bosch.") == ["The user works at Bosch"]
    contents = learn("I work as a nurse.", "I work at Equinor.")
    assert contents == ["The user works as a nurse", "The user works at Equinor"]


def test_divorce_ends_the_marriage_and_keeps_the_other_people(learn: RuleLearner) -> None:
    contents = learn("My wife is Ingrid.", "My sister is Mia.", "I'm divorced.")
    assert contents == ["The user is divorced", "The user's sister is Mia"]


def test_death_that_is_told_by_a_relative_date_has_the_day(learn: RuleLearner) -> None:
    contents = learn("My dog Rex died last week.")
    assert any(each.startswith("Rex died last week (said on 20") for each in contents)
