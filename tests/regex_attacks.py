"""Attack strings for regular expressions, and a measure of how their cost grows.

The strings come from the pattern's own parse tree: a prefix that leads to a repeat, a pump that
the repeat takes again and again, and a suffix that makes the whole fail. What is judged is how CPU
time grows with the length, never how long anything takes.
"""

from __future__ import annotations

import importlib
import itertools
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from tests.conftest import PROVE

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

Text = str | bytes
Run = Callable[[Any], object]

METHODS = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
# Nothing that repeats less often can be pumped far.
PUMPED_FROM = 24
MANY_PUMPS, MANY_ATTACKS = (50, 900) if PROVE else (10, 48)
MANY_PUMPED = 3 if PROVE else 1
SUFFIXES = ("", "!", "\x00", "\n", "\n\n!", ">", "x\x00")
ORDINARY = "aA0_-. \n\t!<>[]\"'`/\\:=,@é你ñ\u0301\u200d\u3042"

# From fewer pumps to more so slowly that even an exponential match is stopped in time.
COUNTS = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 50, 64, 80, 100, 128, 160, 200)
# CPU seconds under which a measurement says nothing.
FLOOR = 0.004
# What any call may cost without having grown.
BASE = 0.000_05
# Linear is 1 and quadratic 2; n log n over this range stays under 1.3.
MAX_EXPONENT = 1.6
RANGE = 8
# Both the exponent and the ratio of an exponential cost between two of the COUNTS.
STEEP = 4


class Attack(NamedTuple):
    """A text of any length: the prefix, the pump as often as needed, the suffix."""

    prefix: str
    pump: str
    suffix: str

    def text(self, chars: int) -> str:
        many = max(1, (chars - len(self.prefix) - len(self.suffix)) // len(self.pump))
        return self.pumped(many)

    def pumped(self, many: int) -> str:
        return self.prefix + self.pump * many + self.suffix

    def __str__(self) -> str:
        return f"{self.prefix!r} + {self.pump!r} * n + {self.suffix!r}"


# -- from a parse tree ----------------------------------------------------------------------------


class _Site(NamedTuple):
    """A repeat inside a pattern: what leads to it, what it repeats, what follows."""

    prefix: str
    body: Sequence[Any]
    after: Sequence[Any]


@dataclass
class _Tree:
    """The parse tree of one pattern, with the characters that its atoms tell apart."""

    parsed: Any
    byte: bool
    alphabet: list[str] = field(default_factory=list)
    _known: dict[int, str] = field(default_factory=dict)
    _chars: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, pattern: re.Pattern[Any]) -> _Tree:
        inline = pattern.flags & ~(re.UNICODE if isinstance(pattern.pattern, bytes) else 0)
        tree = cls(_parser.parse(pattern.pattern, inline), isinstance(pattern.pattern, bytes))
        tree._learn_alphabet()
        return tree

    def _learn_alphabet(self) -> None:
        """One character for each set of atoms that match it: overlaps have one of their own."""
        # A pattern names most of its atoms many times; the first of each is enough.
        nodes = list({str(node): node for node in _atoms_in(self.parsed)}.values())
        matches = [self._compiled(node).match for node in nodes]
        named = [chr(code) for node in nodes for code in _codes_in(node)]
        seen: dict[tuple[bool, ...], str] = {}
        for char in dict.fromkeys([*ORDINARY, *named]):
            if not self.byte or ord(char) < 256:
                seen.setdefault(tuple(bool(match(char)) for match in matches), char)
        self.alphabet = list(seen.values())

    def _compiled(self, node: Any) -> re.Pattern[str]:
        made: re.Pattern[str] = _compiler.compile(_parser.SubPattern(self.parsed.state, [node]), 0)
        return made

    def chars(self, node: Any) -> list[str]:
        """Characters of the alphabet that an atom matches."""
        name = str(node)
        if name not in self._chars:
            atom = self._compiled(node)
            found = [char for char in self.alphabet if atom.match(char)]
            self._chars[name] = found or [chr(code) for code in _codes_in(node)][:1] or ["a"]
        return self._chars[name]

    def sample(self, nodes: Sequence[Any], pick: Callable[[list[str]], str]) -> str:
        """A text that the nodes match, as far as one can tell without looking around."""
        return "".join(self._sampled(op.name, av, (op, av), pick) for op, av in nodes)

    def _sampled(self, name: str, av: Any, node: Any, pick: Callable[[list[str]], str]) -> str:
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return pick(self.chars(node))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, body = av
                return "".join(self.sample(body, pick) for _ in range(max(low, min(1, high))))
            case "SUBPATTERN":
                matched = self.sample(av[3], pick)
                if av[0] is not None:
                    self._known[av[0]] = matched
                return matched
            case "BRANCH":
                chosen = pick([str(place) for place in range(len(av[1]))])
                return self.sample(av[1][int(chosen)], pick)
            case "ATOMIC_GROUP":
                return self.sample(av, pick)
            case "ASSERT":
                return self.sample(av[1], pick) if av[0] < 0 else ""
            case "GROUPREF":
                return self._known.get(av, "")
            case _:
                return ""

    def sites(self, nodes: Sequence[Any], before: str = "") -> Iterator[_Site]:
        """Every repeat that can be pumped, however deep it lies."""
        for place, (op, av) in enumerate(nodes):
            prefix = before + self.sample(nodes[:place], _first)
            match op.name:
                case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                    if av[1] >= PUMPED_FROM:
                        yield _Site(prefix, av[2], nodes[place + 1 :])
                    yield from self.sites(av[2], prefix)
                case "SUBPATTERN":
                    yield from self.sites(av[3], prefix)
                case "ATOMIC_GROUP":
                    yield from self.sites(av, prefix)
                case "ASSERT" | "ASSERT_NOT":
                    yield from self.sites(av[1], prefix)
                case "BRANCH":
                    for way in av[1]:
                        yield from self.sites(way, prefix)


def _first(chars: list[str]) -> str:
    return chars[0]


def _atoms_in(nodes: Any) -> Iterator[Any]:
    for op, av in nodes:
        match op.name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                yield op, av
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from _atoms_in(av[2])
            case "SUBPATTERN":
                yield from _atoms_in(av[3])
            case "ATOMIC_GROUP":
                yield from _atoms_in(av)
            case "ASSERT" | "ASSERT_NOT":
                yield from _atoms_in(av[1])
            case "BRANCH":
                for way in av[1]:
                    yield from _atoms_in(way)


def _codes_in(node: Any) -> Iterator[int]:
    op, av = node
    if op.name == "LITERAL":
        yield av
    elif op.name == "IN":
        for inner, value in av:
            if inner.name == "LITERAL":
                yield value
            elif inner.name == "RANGE":
                yield from value


@cache
def attacks(pattern: re.Pattern[Any]) -> Sequence[Attack]:
    """What may make a pattern slow, without repetition and in the same order every time."""
    tree = _Tree.of(pattern)
    picks = random.Random(pattern.pattern if isinstance(pattern.pattern, str) else "bytes")
    sites = list(tree.sites(tree.parsed))
    whole = [tree.sample(tree.parsed, picks.choice) for _ in range(3)]
    made: dict[Attack, None] = {}
    for site in sites:
        pumps = {tree.sample(site.body, _first): None}
        for _ in range(MANY_PUMPS * 3):
            pumps[tree.sample(site.body, picks.choice)] = None
        repeated = [pump for pump in pumps if pump][:MANY_PUMPS]
        # A start that is found again and again, each time up to the end of the text.
        again = [site.prefix, *(site.prefix + pump for pump in repeated[:2]), *whole]
        endings = [*SUFFIXES, tree.sample(site.after, _first)[:-1] + "\x00"]
        for pump, suffix in itertools.product(repeated, endings):
            made[Attack(site.prefix, pump, suffix)] = None
        for pump, suffix in itertools.product(filter(None, again), SUFFIXES[:3]):
            made[Attack("", pump, suffix)] = None
    chars = tree.alphabet[:12]
    for pump in [*chars, *(text[:-1] for text in whole if len(text) > 1)]:
        made[Attack("", pump, "\x00")] = None
    found = list(made)
    if len(found) > MANY_ATTACKS:
        picks.shuffle(found)
    kept = found[:MANY_ATTACKS]
    return [each for each in kept if not tree.byte or each.pumped(1).isascii()]


# -- how cost grows -------------------------------------------------------------------------------


class Growth(NamedTuple):
    """A cost that grew faster than the text: the lengths, the CPU seconds, and the exponent."""

    small: int
    large: int
    seconds: float
    exponent: float

    def __str__(self) -> str:
        return (
            f"exponent {self.exponent:.1f} from {self.small} to {self.large} characters, "
            f"{self.seconds * 1000:.0f} ms"
        )


def spent(run: Run, text: Any, times: int = 1) -> float:
    """The CPU seconds of this thread for one call; the least of several."""
    least = float("inf")
    for _ in range(times):
        start = time.thread_time()
        run(text)
        least = min(least, time.thread_time() - start)
    return least


def growth(run: Run, attack: Attack, most: int, encode: bool = False) -> Growth | None:
    """The first place where cost grows faster than the text, up to ``most`` characters.

    Lengths grow slowly and nothing longer is tried once a violation is seen.
    """

    def text(pumps: int) -> Text:
        made = attack.pumped(pumps)
        return made.encode("latin-1") if encode else made

    counts = list(COUNTS)
    while len(attack.pumped(1)) + counts[-1] * len(attack.pump) < most:
        counts.append(counts[-1] * 2)
    taken: list[tuple[int, float]] = []
    for many in counts:
        seconds = spent(run, text(many))
        for earlier, before in taken:
            if seconds < FLOOR or not _grows(earlier, before, many, seconds):
                continue
            before = spent(run, text(earlier), 5)
            seconds = min(seconds, spent(run, text(many), 3 if seconds < 1 else 1))
            if seconds >= FLOOR and _grows(earlier, before, many, seconds):
                sizes = len(text(earlier)), len(text(many))
                return Growth(*sizes, seconds, _exponent(earlier, before, many, seconds))
        taken.append((many, seconds))
        if many * len(attack.pump) > most:
            break
    return None


def _exponent(few: int, before: float, many: int, after: float) -> float:
    return math.log(after / max(before, BASE)) / math.log(many / few)


def _grows(few: int, before: float, many: int, after: float) -> bool:
    """Whether this is beyond linear: over the whole range, or at once and steeply."""
    exponent = _exponent(few, before, many, after)
    if many >= RANGE * few:
        return exponent > MAX_EXPONENT
    return exponent > STEEP and after > STEEP * before


def worst(run: Run, tried: Sequence[Attack], chars: int, many: int, encode: bool) -> list[Attack]:
    """The attacks that cost most at this length, after each has shown that it may be tried."""
    costs: list[tuple[float, int]] = []
    for place, attack in enumerate(tried):
        if growth(run, attack, chars, encode) is not None:
            return [attack]
        made = attack.text(chars)
        costs.append((spent(run, made.encode("latin-1") if encode else made), place))
    costs.sort(reverse=True)
    return [tried[place] for _, place in costs[:many]]


def run_of(pattern: re.Pattern[Any], method: str) -> Run:
    """One use of a pattern, carried through to its end."""
    if method == "sub":
        return lambda text: pattern.sub(text[:0], text)
    if method == "finditer":
        return lambda text: list(pattern.finditer(text))
    called: Run = getattr(pattern, method)
    return called


def slow(
    pattern: re.Pattern[Any], method: str, most: int = 100_000
) -> tuple[Attack, Growth] | None:
    """An attack under which this use of a pattern is not linear, and how it grows."""
    run, encode = run_of(pattern, method), isinstance(pattern.pattern, bytes)
    for attack in worst(run, attacks(pattern), 1_000, MANY_PUMPED, encode):
        if (found := growth(run, attack, most, encode)) is not None:
            return attack, found
    return None
