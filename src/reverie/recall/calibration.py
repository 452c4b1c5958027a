"""The calibrated score of a hit, comparable between queries and between owners of any size.

The score of the best hit is the probability that it answers the query, from a logistic model of the
evidence for it; the score of each other hit is lower in the ratio of its evidence to that of the
best. ``bench/floor.py`` fits the model, and measures it on questions that it was not fitted to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from reverie.text.analyzer import query_terms

# Words that are rare in a small memory and still say little about what a text is about.
_WEAK_WORDS = """
    ask bad be become begin best better big book bring buy call change come day did do done feel
    fill find fine fix fixed get give go good got great happen happened have help keep kind know
    large let like little live long look lot made make many mean mine move much name need new next
    now often old open pay people person place play put read really run said say see send set show
    small start stop take talk tell thing think time today tomorrow try turn type use used usual
    wait walk want way week well went work write year yesterday
"""
WEAK_TERMS = frozenset(query_terms(_WEAK_WORDS, 1_000))
# The weak verbs that also count for less when candidates are compared. More of them would cost
# recall: in many questions they are the word that matters.
WEAK_VERBS = frozenset(query_terms("fix go pay use"))
# A request to do something, which needs no memory of the person.
_REQUEST = re.compile(
    r"\W*(?:(?:hey|hi|ok|okay|please|now|just|so|and|then)\W+)*"
    r"(?:(?:can|could|would|will) you (?:please )?|let'?s |help me (?:to )?)?"
    r"(?:act as|add|brainstorm|calculate|code|compare|compose|compute|continue|convert|correct|"
    r"count|create|debug|define|describe|design|draft|draw|explain|find the|fix|flip|format|"
    r"generate|give me|go on|how do you say|imagine|implement|list|make|name|outline|paraphrase|"
    r"plan|play|pretend|prove|recommend|refactor|rephrase|reverse|rewrite|roleplay|roll|shorten|sing|solve|sort|spell|stop|"
    r"suggest|summari[sz]e|tell me (?:a|an|some|something)|translate|try again|use the|write)\b",
    re.IGNORECASE,
)
_PERSONAL = re.compile(r"\b(?:i|i'm|i've|me|my|mine|we|us|our|ours|you|your)\b", re.IGNORECASE)


MIN_SIZE, MAX_SIZE = 10, 20_000


class QueryTraits(NamedTuple):
    """Properties of a query that tell how likely it is that a memory answers it."""

    terms: int
    unknown: float
    """The share of its terms, by weight, that occur in no passage."""
    passages: int
    """The number of passages searched: with more of them, the best is better by chance."""
    request: bool
    personal: bool


class Evidence(NamedTuple):
    """The evidence for one hit; None for a kind that was not searched, or is unknown."""

    coverage: float | None
    """The share of the query's terms, by weight, that the hit's best passage has."""
    strong_terms: int
    """The number of these terms that are no weak words."""
    similarity: float | None
    speaker: bool | None
    """Whether the query names who said it; None if it names nobody, or the hit is a memory."""
    period: bool


def traits_of(query: str, terms: int, unknown: float, passages: int) -> QueryTraits:
    """Return the traits of a query with this number of terms and this share of unknown terms."""
    text = query[:500].replace("\u2019", "'")
    request, personal = _REQUEST.match(text), _PERSONAL.search(text)
    return QueryTraits(terms, unknown, passages, request is not None, personal is not None)


def features(traits: QueryTraits, evidence: Evidence) -> dict[str, float]:
    """Return the inputs of the logistic model by name."""
    # Limited to about the sizes that the model was fitted to. Below ten passages, a good match by
    # chance is no rarer.
    size = math.log10(min(max(traits.passages, MIN_SIZE), MAX_SIZE))
    known: dict[str, float] = {}
    if evidence.coverage is not None:
        known["coverage"] = evidence.coverage
        # Among many passages, one that has most of the terms is found by chance.
        known["coverage_by_size"] = evidence.coverage * size
        known["strong_terms"] = min(evidence.strong_terms, 4) / 4
    if evidence.similarity is not None:
        known["similarity"] = evidence.similarity
    return {
        **known,
        "speaker": float(evidence.speaker is True),
        "other_speaker": float(evidence.speaker is False),
        "period": float(evidence.period),
        "terms": math.log1p(traits.terms),
        "unknown": traits.unknown,
        "request": float(traits.request),
        "personal": float(traits.personal),
        "size": size,
        "constant": 1.0,
    }


def worth(traits: QueryTraits, evidence: Evidence) -> float:
    """Return the probability that the best hit of a query answers it."""
    inputs = features(traits, evidence)
    weights = WEIGHTS["coverage" in inputs, "similarity" in inputs]
    logit = sum(weights[name] * value for name, value in inputs.items())
    return 1.0 / (1.0 + math.exp(-max(min(logit, 50.0), -50.0)))


# Fitted by ``bench/floor.py --fit``: with words and vectors, with words alone, with vectors alone.
_BY_BOTH = {
    "coverage": 4.075,
    "coverage_by_size": -0.940,
    "strong_terms": 2.168,
    "similarity": 4.596,
    "speaker": 1.027,
    "other_speaker": -2.389,
    "period": 2.493,
    "terms": 0.686,
    "unknown": -1.865,
    "request": -2.412,
    "personal": 1.442,
    "size": -1.334,
    "constant": -0.446,
}
_BY_WORDS = {
    "coverage": 6.090,
    "coverage_by_size": -1.389,
    "strong_terms": 2.807,
    "speaker": 0.649,
    "other_speaker": -2.215,
    "period": 2.085,
    "terms": 0.943,
    "unknown": -2.053,
    "request": -2.617,
    "personal": 1.643,
    "size": -0.995,
    "constant": -0.579,
}
_BY_VECTORS = {
    "similarity": 5.928,
    "speaker": 1.346,
    "other_speaker": -2.025,
    "period": 2.776,
    "terms": 1.178,
    "unknown": -4.001,
    "request": -2.701,
    "personal": 1.189,
    "size": -1.983,
    "constant": 2.223,
}
WEIGHTS: Mapping[tuple[bool, bool], Mapping[str, float]] = {
    (True, True): _BY_BOTH,
    (True, False): _BY_WORDS,
    (False, True): _BY_VECTORS,
    # A hit found only through its neighbours.
    (False, False): {
        **{name: 0.0 for name in _BY_VECTORS if name != "similarity"},
        "constant": -4.0,
    },
}
