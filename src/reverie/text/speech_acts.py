"""Classify messages: as a statement, a question, a request, or a filler such as "OK, thanks".

Of these, statements alone are knowledge. Whatever may state something counts as a statement: a long
question, one with a clause of its own ("since I moved to Rome, where …?"), and one that only wants
to be confirmed ("Bob's number is 555-1234, right?").
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from reverie.text.greetings import GREETINGS
from reverie.text.normalize import nfkc_casefold

# Stored with the index: with another number the acts of all events are determined again.
ACTS_VERSION = 4
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
# A question without its mark: "which wood did we pick", "what's the code". A colon, or a second
# verb ("what matters to Bob is …"), tells something.
_ASKING = re.compile(
    r"(?:so |and |but |ok |okay |hey |hi )*"
    rf"(?:(?:what|who|where|when|why|how)(?:'s\b| {_AUXILIARY}\b)(?![^?]*(?: is | are | was |: ))|"
    rf"(?:which|whose|what|how)(?: (?!(?:i|you|we|they|he|she|it)\b)\w+){{1,3}} {_AUXILIARY} "
    r"(?:i|you|we|they|he|she|it|the|an?|my|our|your|his|her|their|this|that|there)\b(?![^?]*: ))"
)
# "Remind me which wood we picked" asks, with or without a question mark. "When" and "why" may begin
# a reminder or state something: "remind me when I get home to call Bob".
_ASKS_TO_BE_TOLD = re.compile(
    r"(?:(?:hey|hi|ok|okay|please|and|but|now|so)\W+)*(?:tell|remind) me (?:again |please )?"
    r"(?:what|which|who|whose|whom|where|how)\b(?![^?]*[:;,])"
)
# How a question begins. A sentence that begins otherwise may state something before it asks.
_BEGINS_ASKING = re.compile(
    r"(?:(?:so|and|but|or|ok|okay|hey|hi|hello|well|then|now|also|please|sorry|btw|by the way)\b"
    r"[,:]? ?)*(?:¿|(?:what|who|whom|whose|which|where|when|why|how|whether|any|anything|anyone|"
    r"shall|am|isn't|aren't|don't|doesn't|didn't|won't|can't|"
    rf"in|on|at|for|from|with|about|after|before|during|to|of|by|{_AUXILIARY}|"
    r"was|wer|wen|wem|wo|wann|warum|wieso|wie|welche\w*|kannst|kann|hast|hat|habe|ist|sind|gibt|"
    r"que|quel\w*|qui|où|quand|comment|pourquoi|combien|est-ce|peux|peut|as-tu|"
    r"qué|quién|cuál\w*|dónde|cuándo|cómo|cuánt\w*|puedes|hay|quem|qual|onde|quando|como|"
    r"che|chi|dove|come|perché|wat|wie|waar|wanneer|hoe|что|кто|где|когда|почему|как)\b)"
)
# At least three words that end before the question begins.
_CLAUSE_BEFORE = re.compile(r"(?:[^\s,;:–—]+\s+){2,}[^\s,;:–—]+\s*(?:[,;:–—]|\s-\s)")
_UNSPACED_CLAUSE = re.compile(r"[^,，。、;；:：]{3,}[,，;；:：]")
# "…, right?" and "…, isn't she?" ask to confirm a statement.
_TAG = re.compile(
    r",? (?:right|ok|okay|correct|yes|no|remember|you know|"
    r"(?:is|are|was|were|do|does|did|has|have|can|could|will|would)n't "
    r"(?:i|you|he|she|it|we|they)|n'est-ce pas|nicht wahr|oder|verdad|no es así|vero|né)"
    r" ?[?？][\"'”’)\s!]*$"
)
# A wish that something be remembered, and news in the form of a question.
_TELLS = re.compile(
    r"\b(?:remember|note|remind me|write down|keep in mind|forget|merken|merk dir|retenir|"
    r"recordar) (?:that|to|dass|que|,)|\b(?:did|have|has) (?:i|we) (?:ever |already )?"
    r"(?:tell|told|mention|mentioned|say|said)\b|\bdid you (?:know|hear)\b|"
    r"\b(?:given|considering|now) that\b|\bmerken,? dass\b"
)
# A question with one of these words wants more than a yes or no.
_QUESTION_WORD = re.compile(r"\b(?:what|who|whom|whose|which|where|when|why|how)\b", re.IGNORECASE)
# A clause in which the speaker states something of their own inside a question.
_OWN_CLAUSE = re.compile(
    r"(?:^|[,;:(–—]|\b(?:and|but|since|because|as|so|though|although|that|who|which|if|while)\b)"
    r"\s*(?:i|we|my|our|i'm|i've|i'd|we're|we've)\b"
)
_ARTICLE = r"(?:an?|all|five|it|me|some|ten|the|these|this|three|up|\d+)\b"
# "Can you suggest a lens for my Sony A7?" says what the speaker has.
_OWN = re.compile(r"\b(?:my|our)\b")
# A request to do something. Unlike the hint in a query (recall/calibration.py), it hides a message
# from recall, so a word that is a noun as well needs an article: "Plan B worked" states something.
# So does what settles something: "let's use PostgreSQL", "use the side door", "name the cat Oslo".
_REQUEST = re.compile(
    r"(?:(?:hey|hi|ok|okay|please|now|just|so|and|then)\W+)*"
    r"(?:let'?s (?:begin|chat|continue|go (?:back|on)|keep|move on|play|start|talk|try)|"
    r"(?:(?:can|could|would|will) you (?:please )?|help me (?:to |with )?)?"
    r"(?:(?:act as|brainstorm|calculate|compose|continue|convert|define(?!.{,160} as )|describe|"
    r"explain|generate|give me|imagine|implement|paraphrase|pretend|proofread|recommend|refactor|"
    r"rephrase|rewrite|roleplay|shorten|show me|simplify|solve|suggest|summari[sz]e|tell me|"
    r"translate|try again|write)\b|"
    r"(?:compare|compute|correct|count|draft|draw|list|outline|reverse|sing|sort|spell) "
    rf"{_ARTICLE}|name (?:an?|all|five|some|ten|three|\d+)\b|"
    r"make (?:it|them|this|the \w+) (?:(?:a bit|a little|even|much) )?(?:more|less|\w+er)\b)|"
    r"(?P<arranges>(?:can|could|would|will) you |help me |(?:add|build|code|create|debug|design|"
    rf"find|fix|format|plan|prepare|turn) {_ARTICLE}|make (?:an?|all|five|me|some|ten|three)\b))"
)
# What a request to arrange something says of it: "plan a party for Mia on Friday".
_NAME_OR_TIME = re.compile(
    r"\d|(?<=[\w,;:] )(?!I\b)[A-Z]|\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|"
    r"february|march|april|may|june|july|august|september|october|november|december|tomorrow|"
    r"tonight|noon)\b"
)
# What is said besides the work that is asked for: "describe Anna: she is 34", "to Bob, who …".
_MORE_SAID = re.compile(
    r"[,:;–—(]\s*(?!(?:please|thanks|thank you|ok|okay|and|or|but|then|now)\b)\w|\bwho\b"
)
_QUOTED = re.compile(r"(?<!\w)(['\"]).{1,160}?\1(?!\w)|[“‘«„][^”’»“]{1,160}[”’»“]")
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
# Whole messages that say nothing, of words that do elsewhere.
_FILLER_PHRASES = frozenset(
    {
        "go on",
        "keep going",
        "carry on",
        "tell me more",
        "more please",
        "next",
        "next one",
        "got it",
        "i got it",
        "i see",
        "that works",
        "works for me",
        "never mind",
        "no worries",
        "no problem",
        "makes sense",
        "that makes sense",
        "sounds good",
        "sounds great",
        "let's continue",
        "thanks a lot",
        "thank you very much",
        "やあ",
    }
)
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
# What may follow if a person says it; more words are content: "I have no notes from Berlin".
_NO_MORE = re.compile(r"(?: (?:of|about|on))?(?: (?:that|it|this|yet|either))*\W*$")


class SpeechAct(IntEnum):
    """The class of a message. The index stores the number."""

    STATEMENT = 0
    QUESTION = 1
    FILLER = 2
    REQUEST = 3


@lru_cache(maxsize=4_096)
def classify(text: str, by_assistant: bool = False) -> SpeechAct:
    """Classify a message: a statement, unless it is clearly a question, a request or a filler.

    "I don't know that" is a filler if the assistant says it.
    """
    if len(text) > MAX_QUESTION_CHARS:
        return SpeechAct.STATEMENT
    sentences = [part for part in map(str.strip, _SENTENCE_END.split(text)) if part]
    folded = [nfkc_casefold(part).replace("’", "'") for part in sentences]
    sentences_left = [part for part in folded if not _is_filler(part)]
    if not sentences_left:
        return SpeechAct.FILLER
    words = sum(len(_WORD.findall(part)) for part in sentences_left)
    if words <= MAX_NON_ANSWER_WORDS and all(
        _is_non_answer(part, by_assistant) for part in sentences_left
    ):
        return SpeechAct.FILLER
    if words <= MAX_QUESTION_WORDS and all(map(_is_question, sentences_left)):
        return SpeechAct.QUESTION
    if not by_assistant and words <= MAX_QUESTION_WORDS and _only_requests(sentences):
        return SpeechAct.REQUEST
    return SpeechAct.STATEMENT


def asks_yes_or_no(text: str) -> bool:
    """Whether a message is a question without a question word."""
    asks = classify(text, by_assistant=True) == SpeechAct.QUESTION
    return asks and _QUESTION_WORD.search(text) is None


def _is_filler(sentence: str) -> bool:
    """Whether a folded sentence has no words, or only fillers; a number is content."""
    words = _WORD.findall(sentence)
    if " ".join(words) in _FILLER_PHRASES:
        return True
    named = {word for word in words if not word.isdecimal()}
    if len(named) < len(set(words)) and not CHAT_WORDS & named:
        return False
    return not words or (bool(FILLERS & named) and (FILLERS | LINKS).issuperset(named))


def _is_non_answer(sentence: str, by_assistant: bool) -> bool:
    """Whether a sentence only says that something is unknown; by a person, it may be news."""
    found = _NON_ANSWER.match(sentence)
    return found is not None and (by_assistant or bool(_NO_MORE.match(sentence, found.end())))


def _is_question(sentence: str) -> bool:
    if _UNSPACED.search(sentence) and len(sentence) > MAX_UNSPACED_CHARS:
        return False
    if _OWN_CLAUSE.search(sentence) or _names_own_thing(sentence):
        return False
    if _TAG.search(sentence) or _TELLS.search(sentence) or _has_clause_before(sentence):
        return False
    if _QUESTION_MARK.search(sentence) or _QUESTION_ENDING.search(sentence):
        return True
    if _ASKS_TO_BE_TOLD.match(sentence):
        return True
    return not sentence.endswith((".", "!")) and _ASKING.match(sentence) is not None


def _only_requests(sentences: list[str]) -> bool:
    """Whether a message asks to do something and says nothing besides; it is not folded."""
    folded = [nfkc_casefold(part).replace("’", "'") for part in sentences]
    return all(
        _is_filler(part) or _is_question(part) or _is_request(part, sentence)
        for part, sentence in zip(folded, sentences, strict=True)
    )


def _is_request(folded: str, sentence: str) -> bool:
    request = _REQUEST.match(folded)
    if request is None or _states_something(folded):
        return False
    if _MORE_SAID.search(_QUOTED.sub(" ", folded), request.end()):
        return False
    return not (request["arranges"] and _NAME_OR_TIME.search(sentence))


def _states_something(sentence: str) -> bool:
    told = _OWN_CLAUSE.search(sentence) or _TELLS.search(sentence)
    return told is not None or _names_own_thing(sentence)


def _has_clause_before(sentence: str) -> bool:
    """Whether something is stated before the question: "Mia eats no nuts, what can she have?"."""
    if _UNSPACED.search(sentence):
        return _UNSPACED_CLAUSE.match(sentence) is not None
    return _BEGINS_ASKING.match(sentence) is None and _CLAUSE_BEFORE.match(sentence) is not None


def _names_own_thing(sentence: str) -> bool:
    """Whether a sentence says "my" or "our", and later a number: "my Sony A7"."""
    own = _OWN.search(sentence)
    return own is not None and any(sign.isdecimal() for sign in sentence[own.end() :])
