"""How many keys are redacted, how much else, and what it costs.

Keys are made from shapes that the rules were not written from (``bench/secret_shapes.py``), and,
where a command ``kingfisher`` of version 1 is installed, taken from the examples of its own rules.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import reverie
from bench import lookalikes, secret_shapes
from bench.secret_shapes import Case
from reverie.text.secrets.detect import find_secrets

PROSE = (
    "I moved to the Design team last week and my new boss is Seabrook, who likes short meetings.",
    "My sister Anna keeps bees near Ghent; remind me to ask her about the honey in September.",
)
TECHNICAL = (
    "See https://github.com/acme/widgets/pull/1234/files and src/acme/memory/space.py for details",
    "The token count of the secret meeting was 4096, and the password policy is strict, says Anna",
)
_POSIX = {"alnum": "A-Za-z0-9", "alpha": "A-Za-z", "digit": "0-9", "xdigit": "0-9A-Fa-f"}
_POSIX |= {"upper": "A-Z", "lower": "a-z", "space": r"\s", "word": r"\w", "blank": r" \t"}
_POSIX |= {"punct": r"!-/:-@\[-`{-~"}
# Rules about what is no secret: names of accounts, addresses, public halves of keys.
_NO_SECRET = re.compile(
    r"\b(id|ids|url|uri|username|host|domain|name|email|sid|endpoint|tenant|region|public|site|"
    r"publishable|instance|hash|encrypted|guid|subdomain|bucket|project)\b",
    re.IGNORECASE,
)


def leaked(text: str, secret: str) -> bool:
    """Whether what is left of a secret still looks like one."""
    start, found = text.find(secret), find_secrets(text)
    left = "".join(
        "\0" if any(each.start <= start + at < each.end for each in found) else letter
        for at, letter in enumerate(secret)
    )
    pieces = re.split(r"[^\w-]", left)
    return "\0" not in left or any(len(piece) >= 16 and looks_like_key(piece) for piece in pieces)


def looks_like_key(text: str) -> bool:
    counts = Counter(text).values()
    entropy = -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
    return entropy >= 3 and any(map(str.isdigit, text))


def missed(cases: Iterable[Case]) -> list[Case]:
    return [case for case in cases if leaked(case.text, case.secret)]


def falsely(texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The look-alikes that are redacted."""
    return [(kind, text) for kind, text in texts if find_secrets(text)]


def examples() -> list[Case]:
    """What comes with the rules of Kingfisher, if it is here; where the secret is, they say."""
    command = shutil.which("kingfisher")
    if command is None:
        return []
    listed = subprocess.run(
        [command, "--no-update-check", "rules", "list", "--format", "json"],
        capture_output=True,
        check=True,
    )
    cases: list[Case] = []
    for rule in json.loads(listed.stdout):
        if rule["visible"] and not _NO_SECRET.search(rule["name"]):
            cases += _of_rule(rule)
    return cases


def _of_rule(rule: dict[str, Any]) -> Iterable[Case]:
    source = re.sub(r"\[:(\w+):\]", lambda name: _POSIX[name[1]], rule["pattern"])
    source = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        pattern = re.compile(source)
    for text in rule["examples"]:
        hit = pattern.search(text)
        secret = None if hit is None else hit[1] if hit.lastindex else hit[0]
        if secret and len(secret) >= 16 and looks_like_key(secret) and "://" not in secret:
            yield Case(rule["id"], text, secret)


# -- what it costs --------------------------------------------------------------------------------


def seconds(work: Callable[[], object], times: int) -> float:
    """CPU of one call, the least of five rounds."""
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - begun) / times)
    return min(rounds)


def per_hundred(texts: Sequence[str]) -> float:
    """Microseconds for a hundred characters."""
    spent = seconds(lambda: [find_secrets(text) for text in texts], 2_000)
    return spent * 1e6 * 100 / sum(map(len, texts))


def share_of_remember() -> float:
    """What part of the CPU of a ``remember`` goes into looking for secrets."""
    numbers = iter(range(1_000_000))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        with reverie.open(path, settings=reverie.Settings(), embedder="local") as store:
            space = store.space("bench")
            whole = seconds(lambda: space.remember(f"{PROSE[0]} {next(numbers)}"), 200)
    looked = seconds(lambda: find_secrets(f"{PROSE[0]} {next(numbers)}"), 2_000)
    return looked / whole


def main() -> None:
    made, known, alike = secret_shapes.cases(), examples(), lookalikes.texts()
    named = [case for case in made if case.service in case.text.replace(case.secret, "").lower()]
    bare = [case for case in made if case not in named]
    rows = [
        ("keys that their text names", len(named), len(missed(named)), "missed"),
        ("keys that stand alone", len(bare), len(missed(bare)), "missed"),
        ("examples of Kingfisher's rules", len(known), len(missed(known)), "missed"),
        ("look-alikes", len(alike), len(falsely(alike)), "redacted"),
    ]
    for name, count, wrong, how in rows:
        share = f"{wrong / count:7.2%}" if count else "not run"
        print(f"{name:<34}{count:>6}  {wrong:>4} {how:<9}{share}")
    print(f"{'prose':<34}{per_hundred(PROSE):6.1f} µs for 100 characters")
    print(
        f"{'addresses, talk of passwords':<34}{per_hundred(TECHNICAL):6.1f} µs for 100 characters"
    )
    print(f"{'share of a remember':<34}{share_of_remember():7.2%} of its CPU")


if __name__ == "__main__":
    main()
