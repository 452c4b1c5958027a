"""Recognise messages whose first person is not the user.

These are role play, fiction, examples, templates, verse, homework, irony, and prompt injections:
"I" in them says nothing about the person who sent them.
"""

from __future__ import annotations

import re

from reverie.learn.rules.sentences import ignoring_case

# What may come before the verb of a request: "please", "could you", "help me to".
REQUEST_PREFIX = (
    r"(?:please,? |pls |kindly |now |then |and |hey,? |hi,? |ok(?:ay)?,? )?(?:(?:can|could|would|"
    r"will) "
    r"(?:you|u)(?: please| pls)? |i(?:'d like| want| need) you to |help me (?:to )?|help,? |go )?"
)
_ROLE_PLAY = ignoring_case(
    r"\brole-?play(?:ing)?\b|^(?:now |just |please |let's )?(?:pretend|imagine|"
    r"picture (?:this|that|a|me))\b|\blet's (?:play (?!it\b)|act out|assume|say|imagine|pretend|"
    r"do an? (?:\w{1,20} )?(?:simulation|role|game|scene|drill))|"
    r"\b(?:please |you to |can you |^)act (?:as|like) (?:an?|my|the|if)\b|\bgame ?master\b|"
    r"\bplay(?:ing)? (?:d&d|dnd|dungeons|make[- ]believe|pretend)(?!\w)|"
    r"^(?:for )?(?:our |the |my )?(?:improv|larp|d&d|dnd)\b.{0,30}[:,]|"
    r"^in (?:this|our|the|my|a) (?:[\w&]{1,20} )?(?:adventure|campaign|game|story|novel|simulation|"
    r"scene|sketch|universe|roleplay),? (?:i|i'm|my|we|you|there)\b|^in (?:our|my) (?:d&d|dnd)\b|"
    r"\bfor (?:our|the|my) (?:improv|larp|skit)\b|"
    r"^(?:screenplay|short story|fan ?fic\w{0,5}|monologue|scene|fiction|"
    r"draft of a \w{1,20})\b(?=\W|$)(?! is| was)|"
    r"^you(?:'re| are) (?:now |playing )?(?:an?|the|my) (?!(?:best|greatest|star|genius|legend|"
    r"life ?saver|angel|hero|treasure|gem|one|man|real|true|great|good|big|inspiration|"
    r"pro)\b)\w{1,20}(?: \w{1,20})?(?: and i(?:'m| am)\b|\W{0,20}$)|"
    r"\bi(?:'m| am) (?:an?|the|your) \w{1,20}(?: \w{1,20})?,? (?:and )?you(?:'re| are) "
    r"(?:an?|the|my)\b|^you (?:be|play|'ll be|will be) (?:the|my|an?) \w|^you are now\b|"
    r"^from now on,? you(?:'re| are)\b|^be (?:an?|my) \w|\bmy character(?:'s| is| in)\b|"
    r"\bcharacter (?:is )?(?:called|named)\b|\bspeaking as (?:my|the|an?)\b|\bonce upon a time\b|"
    r"^(?:suppose|assume|say)(?: that)?,? (?:i|i'm|my|we|a|an|the|you|someone|somebody)\b|"
    r"^hypothetically\b|\b(?:the|my) (?:narrator|protagonist|hero|villain) (?:says?|is|goes)\b|"
    r"\bbreak character\b|\bi want you to (?:act|be|play)\b|^(?:please )?continue:|"
    rf"\bsimulate an? \w|\bstory so far\b|^{REQUEST_PREFIX}(?:write|compose|create|generate|invent|"
    r"make up|finish|continue)(?: \S{1,30}){0,6} (?:stor(?:y|ies)|poem|song|monologue|diary|haiku|"
    r"rap|sketch|joke|scene|play|limerick|sonnet|fable|tale|dialogue|conversation)\b"
)
_EXAMPLE = ignoring_case(
    r"\bthis is (?:just |only )?(?:a|my) test\b|^(?:just )?testing\b|\b(?:aita|tifu|tldr)\b|"
    r"(?<!\w)\(?\d\d ?[mf]\)(?!\w)|^test\W{1,3}test|\blorem ipsum\b|\b(?:john|jane) doe\b|"
    r"\bfoo ?bar\b|\bfor (?:example|instance): |\be\.g\. ?[\"'“]|"
    r"\bexample (?:sentence|would be|input|text)\b|^examples? ?[\d:]|\bsuch as [\"'“‘]|"
    r"\bsomething like: |\b(?:sample|dummy|placeholder|mock|test) (?:question|answer|data|input|"
    r"user|profile|sentence)\b|^test: |\bexpected(?: output)?:|"
    r"\b(?:someone|somebody|(?:a|the|one) (?:user|customer|person|client|patient)) "
    r"(?:types|writes|says|asks|tells you|enters)\b"
)
_PLACEHOLDER = re.compile(
    r"\{\{?[\w .-]{1,40}\}?\}|\$\{\w|\[(?:[A-Z]{2,20}|[A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20}){1,3}|"
    r"(?:[Yy]our|[Ff]irst|[Ll]ast|[Ii]nsert) [\w ]{1,30}|[Nn]ame|[Cc]ity|[Cc]ompany)\](?!\()|"
    r"<(?!/)[a-z][a-z_ -]{1,30}>|%[A-Z_]{2,30}%|_{3,}|\b(?:X{3,9}|Y{3,9}|Z{3,9})\b"
)
_VERSE = ignoring_case(
    r"^(?:captain's )?log entry\b|^dear diary\b|"
    r"^(?:a |the |my )?(?:poem|song|story|haiku|rap) (?:by|from|of)\b|"
    r"\bnext (?:verse|stanza|chorus|chapter|scene|line)\b|"
    r"\b(?:stitched|engraved|carved|printed|painted|tattooed) on (?:it|the|a|my|his|her)\b|"
    r"\blyrics?\b|\bwho (?:sings|sang|wrote) this\b|\b(?:what|which) (?:song|poem)\b|\b(?:finish|"
    r"name) "
    r"(?:the|this) (?:song|poem|line)\b|\bsong (?:that )?goes\b|\bhaiku\b|\bthe met(?:re|er) here\b"
)
_HOMEWORK = ignoring_case(
    r"^(?:(?:my|his|her|our|english|german|french|maths?|school) ){0,2}homework[:,]|"
    r"\b(?:son|daughter|kid|child|brother|sister|student)'?s homework\b|"
    r"\b(?:exercise|task|question|problem) \d{1,3}[.:)]|\besl\b|"
    r"\bfill (?:in )?the (?:gaps|blanks?)\b|^fill in\b|\b(?:word|math|maths) problem\b|"
    r"\bdictation\b|\b(?:past|present|future|right|correct) tense\b|\bcorrect the mistakes\b|"
    r"\bfind the (?:verbs?|nouns?|mistakes?|errors?)\b|\bessay\b.{0,30}[:,]|"
    r"\b(?:please )?grade (?:it|this|my)\b|\bgrammatical\b"
)
# A sign of irony anywhere makes the whole message unreliable.
_IRONY = ignoring_case(
    r"🙄|(?:^|\s)/s\b|^(?:oh,? (?:sure|great|joy)[,.!]|yeah,? right\b|wow,? great\.)|, clearly\.|"
    r"\b(?:lmao|rofl|jk|just kidding|just joking)\W{0,20}$|\bknock,? knock\b|^why did the "
    r"\w{1,20} cross\b|^here's a joke\b|"
    r"\btwo (?:men|guys|friends) in a bar\b|\bi just (?-i:LOVE)\b"
)

# Riddles and prompt injections: nobody says this about themselves.
_INJECTION = ignoring_case(
    r"\briddle\b|^quiz\b|\b(?:what|who) am i\?|"
    r"\b(?:ignore|disregard|forget|override) (?:all |any )?(?:of )?(?:the |your |my )?(?:previous|"
    r"prior|above|earlier) (?:instructions?|prompts?|rules|messages?)\b|"
    r"\b(?:dear|attention|note (?:to|for)|message (?:to|for)) (?:the |any |all )?(?:ai|llm|"
    r"language model|chatbot)s?\b|\b(?:ai|llm|language model)s? (?:assistant )?(?:reading|"
    r"processing) this\b"
)

# A quotation that ends with its author: "… (Larry Wall)", "… — Mark Twain".
_ATTRIBUTION = re.compile(
    r"(?:[—–] ?|\()[A-Z][\w.'-]{0,20}(?: (?:[a-z]{1,3} )?[A-Z][\w.'-]{1,20}){1,3}\)?\.?$"
)


def is_not_personal(message: str) -> bool:
    """Whether a message as a whole says nothing about the person who sent it."""
    return any(sign.search(message) for sign in (_PLACEHOLDER, _IRONY, _INJECTION, _ATTRIBUTION))


def starts_role_play(sentence: str, asked: bool) -> bool:
    """Whether role play, an example, verse or homework starts with a sentence.

    ``asked``: the sentence is a request to remember something, so only role play counts.
    """
    if _ROLE_PLAY.search(sentence):
        return True
    return not asked and any(sign.search(sentence) for sign in (_EXAMPLE, _VERSE, _HOMEWORK))
