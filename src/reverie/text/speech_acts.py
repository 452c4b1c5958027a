"""Tells what a message does: it states something, only asks, or is a filler such as "OK, thanks".

Questions and fillers are no knowledge. Whatever may state something counts as a statement: a long
question, or one with a clause of its own ("since I moved to Rome, where …?").
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from reverie.text.greetings import GREETINGS
from reverie.text.normalize import nfkc_casefold

# Stored with the index: with another number the acts of all events are determined again.
ACTS_VERSION = 1
# A longer message states something, whatever its punctuation says.
MAX_QUESTION_WORDS = 16
MAX_QUESTION_CHARS = 160
# Chinese and Japanese have no spaces between words.
MAX_UNSPACED_CHARS = 40

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？؟])[\"'”’)]*\s*|\n+")
_QUESTION_MARK = re.compile(r"[?？؟][\"'”’)\s!]*$")
_QUESTION_ENDING = re.compile(r"(?:か|かな|吗|嗎|呢)[。\s]*$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_AUXILIARY = (
    r"(?:is|are|was|were|do|does|did|can|could|should|would|will|may|might|must|has|had|have)"
)
# A question without its mark: "which wood did we pick", "what's the code".
_ASKING = re.compile(
    r"(?:so |and |but |ok |okay |hey |hi )*"
    rf"(?:(?:what|who|where|when|why|how)(?:'s\b| {_AUXILIARY}\b)|"
    rf"(?:which|whose|what|how)(?: (?!(?:i|you|we|they|he|she|it)\b)\w+){{1,3}} {_AUXILIARY}\b)"
)
# A question that has it wants more than a yes or no.
_QUESTION_WORD = re.compile(r"\b(?:what|who|whom|whose|which|where|when|why|how)\b", re.IGNORECASE)
# A clause in which the speaker states something of their own inside a question.
_OWN_CLAUSE = re.compile(
    r"(?:^|[,;:(–—]|\b(?:and|but|since|because|as|so|though|although|that|who|which|if|while)\b)"
    r"\s*(?:i|we|my|our|i'm|i've|i'd|we're|we've)\b"
)
# "Can you suggest a lens for my Sony A7?" says what the speaker has.
_OWN = re.compile(r"\b(?:my|our)\b")
# Words that alone are a whole message and say nothing.
_FILLERS = """
    ah aha alright amazing awesome bye continue cool done exactly excellent fine goodbye goodnight
    great haha hm hmm hooray indeed k lol lovely nah neat nice nope oh ok okay perfect please really
    sure thank thanks thx ty understood wait welcome well wonderful wow yeah yep yes no right
    bitte danke ja nein genau klar prima super tschüss merci oui non d'accord gracias sí vale
    obrigado obrigada sim não grazie bene tak nej takk да нет спасибо ок хорошо 好 好的 谢谢 はい
    いいえ ありがとう ありがとうございます
"""
# Words of a message that is only about the conversation: "parallel chat 3", "test 2".
_CHAT_WORDS = "chat conversation message parallel session test testing thread"
# Words that say nothing beside one of the others.
_LINKS = """
    a again all and another dear for get go got i is it it's later many much my new night of see so
    sounds start that that's thats the then there this to too very works you you're your
"""
CHAT_WORDS = frozenset(_CHAT_WORDS.split())
FILLERS = frozenset(_FILLERS.split()) | CHAT_WORDS | GREETINGS
LINKS = frozenset(_LINKS.split())
# What an assistant says that knows no answer.
_NON_ANSWER = re.compile(
    r"(?:(?:i'm |i am )?(?:sorry|afraid|unfortunately),? ?(?:but )?)?(?:that )?i "
    r"(?:do not|don't|cannot|can't|could not|couldn't|have no|did not|didn't|am not) ?"
    r"(?:(?:know|recall|remember)(?=\W*$| (?:that|it|this|yet|what|which|where|when|who|if)\b)|"
    r"(?:have |find |see )?(?:any |an? )?(?:information|records?|memory|memories|notes?|idea)\b)"
)
MAX_NON_ANSWER_WORDS = 14


class SpeechAct(IntEnum):
    """What a message does. The index stores the number."""

    STATEMENT = 0
    QUESTION = 1
    FILLER = 2


@lru_cache(maxsize=4_096)
def classify(text: str) -> SpeechAct:
    """What a message does; a statement, unless it plainly is a question or a filler."""
    if len(text) > MAX_QUESTION_CHARS:
        return SpeechAct.STATEMENT
    sentences = [part for part in map(str.strip, _SENTENCE_END.split(text)) if part]
    folded = [nfkc_casefold(part).replace("’", "'") for part in sentences]
    told = [part for part in folded if not _is_filler(part)]
    if not told:
        return SpeechAct.FILLER
    words = sum(len(_WORD.findall(part)) for part in told)
    if all(_NON_ANSWER.match(part) for part in told) and words <= MAX_NON_ANSWER_WORDS:
        return SpeechAct.FILLER
    if words <= MAX_QUESTION_WORDS and all(map(_is_question, told)):
        return SpeechAct.QUESTION
    return SpeechAct.STATEMENT


def asks_yes_or_no(text: str) -> bool:
    """Whether a message is a question without a question word."""
    return classify(text) == SpeechAct.QUESTION and _QUESTION_WORD.search(text) is None


def _is_filler(sentence: str) -> bool:
    """Whether a folded sentence has no words, or only such as say nothing; a number is said."""
    words = _WORD.findall(sentence)
    named = {word for word in words if not word.isdecimal()}
    if len(named) < len(set(words)) and not CHAT_WORDS & named:
        return False
    return not words or (bool(FILLERS & named) and (FILLERS | LINKS).issuperset(named))


def _is_question(sentence: str) -> bool:
    if _UNSPACED.search(sentence) and len(sentence) > MAX_UNSPACED_CHARS:
        return False
    if _OWN_CLAUSE.search(sentence) or _names_own_thing(sentence):
        return False
    if _QUESTION_MARK.search(sentence) or _QUESTION_ENDING.search(sentence):
        return True
    return not sentence.endswith((".", "!")) and _ASKING.match(sentence) is not None


def _names_own_thing(sentence: str) -> bool:
    """Whether a sentence says "my" or "our", and later a number: "my Sony A7"."""
    own = _OWN.search(sentence)
    return own is not None and any(sign.isdecimal() for sign in sentence[own.end() :])
