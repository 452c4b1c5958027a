"""Made texts: sentences of Zipfian words, turns of conversations, and queries taken from them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

SEED = 20260101
WORDS = 4_000

Message = dict[str, str]

COMMON = """
    meeting project customer report team budget email plan call review server database release
    invoice contract garden kitchen birthday dinner train flight hotel doctor school teacher music
    guitar piano novel coffee breakfast holiday weekend mountain river beach bicycle battery screen
    keyboard password account payment price market office manager engineer designer lawyer sister
    brother mother father daughter friend neighbour dog cat horse tomato bread cheese recipe camera
    picture painting museum theatre ticket concert football tennis swimming running yoga hospital
    medicine allergy peanut vegetarian language spanish french german berlin london madrid tokyo
    prefer remember finish deliver explain decide arrange visit travel cancel schedule borrow
    repair replace compare measure collect improve discuss suggest promise forget learn teach
    quiet early monthly yearly urgent cheap broken famous narrow bright gentle careful private
    public digital electric northern southern wooden green purple yellow seven twelve forty
    python rust docker kernel parser compiler network router firewall backup replica cluster
    deadline sprint ticketing roadmap milestone quarter revenue salary pension mortgage insurance
"""
FIRST = """
    rain sun moon star fire snow wind sand stone wood iron silver gold glass paper water sea river
    lake hill field farm barn mill bridge road rail foot hand head eye heart back side tooth hair
    book note black white blue red cross over under home house door key board play work school
    time day night birth life land ship air sky space sound light shadow
"""
SECOND = """
    fall flower light fish place ball storm castle land mark mill yard smith ware way works man
    shed town path bed house side shore bank top line stop hold gate post board mate print step
    shake band set word maker keeper bearer seller finder watcher cutter driver builder runner
    hanger binder holder worm bird craft screen proof tight born bound
"""
GLUE = """
    the a to of and in is that for it on with as was at by from we she he they my our her his
    not but or if when after before about this have has will would can should been are were
"""


class Question(NamedTuple):
    """A query, and the text whose words it is made of."""

    query: str
    text: str


class Writer:
    """Sentences of 8 to 25 words: two fifths are stop words, the rest Zipfian over 4,000 words."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        compounds = [
            first + second for first, second in itertools.product(FIRST.split(), SECOND.split())
        ]
        random.Random(0).shuffle(compounds)
        self._words = [*COMMON.split(), *compounds][:WORDS]
        self._glue_words = GLUE.split()
        # Mandelbrot's shift: once stop words are gone, no word is in half of all sentences.
        self._content = list(itertools.accumulate(1 / (rank + 10) for rank in range(WORDS)))
        self._glue = list(
            itertools.accumulate(1 / (rank + 2) for rank in range(len(self._glue_words)))
        )

    def sentence(self) -> str:
        count = self._random.randint(8, 25)
        glue = self._random.choices(self._glue_words, cum_weights=self._glue, k=count)
        content = self._random.choices(self._words, cum_weights=self._content, k=count)
        chosen = [
            stop if self._random.random() < 0.4 else word
            for stop, word in zip(glue, content, strict=True)
        ]
        return " ".join(chosen).capitalize() + "."

    def sentences(self, count: int) -> list[str]:
        return [self.sentence() for _ in range(count)]

    def questions(self, texts: Sequence[str], count: int) -> list[Question]:
        """Five to ten words in a row of a stored text."""
        made = []
        for _ in range(count):
            text = self._random.choice(texts)
            words = text.rstrip(".").split()
            length = min(self._random.randint(5, 10), len(words))
            start = self._random.randint(0, len(words) - length)
            made.append(Question(" ".join(words[start : start + length]), text))
        return made

    def queries(self, texts: Sequence[str], count: int) -> list[str]:
        return [question.query for question in self.questions(texts, count)]


class Talker:
    """Turns of 8 to 60 words, made of the sentences of a writer."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._writer = Writer(seed)

    def text(self) -> str:
        count, words = self._random.randint(8, 60), list[str]()
        while len(words) < count:
            words += self._writer.sentence().split()
        return " ".join(words[:count]).rstrip(".") + "."

    def turn(self) -> Message:
        return said("user", self.text())

    def turns(self, count: int) -> list[Message]:
        return [self.turn() for _ in range(count)]

    def telling_turns(self, count: int) -> list[Message]:
        """Turns that end with something the rules learn."""
        return [said("user", f"{self.text()} I prefer {self._two_words()}.") for _ in range(count)]

    def conversation(self, count: int) -> list[Message]:
        """The user and the assistant in turn."""
        return [said("assistant" if i % 2 else "user", self.text()) for i in range(count)]

    def facts(self, count: int) -> list[str]:
        return self._writer.sentences(count)

    def queries(self, conversation: Sequence[Message], count: int) -> list[str]:
        return self._writer.queries([message["content"] for message in conversation], count)

    def _two_words(self) -> str:
        return " ".join(self._random.sample(COMMON.split(), 2))


def said(role: str, text: str) -> Message:
    return {"role": role, "content": text}
