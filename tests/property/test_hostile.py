"""Every text is stored byte for byte or refused with InvalidInput; no query is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reverie import InvalidInput, Space
from tests.conftest import Stores
from tests.figures import figure
from tests.property import EXAMPLES

HOSTILE: dict[str, str] = {
    "nul": "a\0b",
    "only nul": "\0",
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "\udfff",
    "surrogates the wrong way round": "\udc00\ud800",
    "right to left": "\u202eעברית عربي\u202c",
    "bidi isolates": "\u2066\u2067\u2068a\u2069",
    "emoji family": "👨‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪",
    "tag characters": "a\U000e0041\U000e0042",
    "combining pile": "z" + "\u0301" * 500,
    "nfd": "Cafe\u0301 A\u030a",
    "nfc": "Café Å",
    "ligature": "ﬁﬂﬀ",
    "quotes": "'\"`''\"\"\\'",
    "sql": "'); DROP TABLE log; --",
    "sql parameters": "? ?1 :name @name $name",
    "fts operators": 'NEAR(a b) AND OR NOT "phrase" a* ^b col:c {a b}:c -d +e (f)',
    "unbalanced": '"(((((*',
    "wildcards": "% _ [a-z] * ? ..",
    "control characters": "".join(map(chr, range(1, 32))) + "x\x7f\x80\x9f",
    "line ends": "a\r\nb\rc\nd\u2028e\u2029f\x0bg\x0ch\x85i",
    "white space": "\u00a0\u2003\u3000x\ufeff",
    "byte order mark": "\ufefftext",
    "non characters": "\ufffe\uffff\U0010ffff x",
    "json": '{"a": [1, null, "\\u0000"]}',
    "escape": "\\u0041 \\x41 \\n",
    "html": "<script>alert(1)</script><!--",
    "percent": "%s %d %(x)s {} {0} {x!r}",
    "long word": "x" * 5000,
    "long words": "supercalifragilistic " * 400,
    "one megabyte": "zebra 日本 🦓 " * 60_000,
    "unspaced megabyte": "日本語" * 120_000,
    "no letters": "!!! ??? ... --- ___",
    "digits": "00000000000000000000000001234567890",
    "mathematical": "𝒵ℯ𝒷𝓇𝒶 ½ ² ⑨",
    "turkish": "İstanbul ıI",
    "sharp s": "Straße STRASSE ẞ",
    "hangul jamo": "\u1112\u1161\u11ab",
    "zalgo": "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "unassigned": "\u0378\U0003fffd x",
    "private use": "\ue000\U00100000 x",
    "interlinear": "\ufff9a\ufffab\ufffb",
}
QUERIES: dict[str, str] = {
    **HOSTILE,
    "nothing": "",
    "blank": " \n\t ",
    "ten thousand words": " ".join(f"word{number}" for number in range(10_000)),
    "the same word ten thousand times": "zebra " * 10_000,
    "ten thousand quotes": "'" * 10_000,
}


def quietly(**more: Any) -> settings:
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=EXAMPLES,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        **more,
    )


def keep_or_refuse(keep: Callable[[], Any], read: Callable[[Any], str | None], text: str) -> bool:
    """Whether it was kept; anything but a faithful copy or InvalidInput fails."""
    try:
        kept = keep()
    except InvalidInput as error:
        assert "\n" not in str(error)
        str(error).encode()
        return False
    assert read(kept) == text
    return True


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.sample(4)
def test_hostile_content_is_stored_verbatim_or_refused(stores: Stores, name: str) -> None:
    text = HOSTILE[name]
    # The hashing embedder is for tests and slow where there is very much text.
    embedder = "none" if "megabyte" in name else "hashing"
    store = stores.open(embedder=embedder)
    space = store.space("ana")
    if keep_or_refuse(
        lambda: space.remember(text, kind="note"), lambda m: space.get(m.id).content, text
    ):
        (memory,) = space.memories()
        assert space.history(memory.id)[0].content == text
        (record,) = space.export()
        assert record["body"]["content"] == text
        store.close()
        store = stores.open(embedder=embedder)
        space = store.space("ana")
        assert space.memories() == [memory]
        assert space.memories(as_of=1) == [memory]
        copy = store.space("copy")
        copy.import_records([record])
        assert copy.memories()[0].content == text
        space.revise(memory.id, "x" + text)
        assert space.get(memory.id).content == "x" + text
        assert len(space.profile().splitlines()) in {0, 7}
        space.forget(memory.id)
        space.restore(memory.id)
        space.erase(memory.id)
        assert store.verify().ok
    else:
        assert space.memories() == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_labels_are_stored_verbatim_or_refused(stores: Stores, name: str) -> None:
    text = HOSTILE[name]
    space = stores.open().space("ana")
    fields: list[tuple[dict[str, Any], Callable[[Any], str | None]]] = [
        ({"subject": text}, lambda m: m.subject),
        ({"source": text}, lambda m: m.source),
    ]
    for field, read in fields:
        try:
            memory = space.remember("x", **field)
        except InvalidInput:
            continue
        assert read(memory) in {text, None} and space.get(memory.id) == memory
    for more in ({"category": text}, {"tags": [text]}, {"key": text}, {"origin": (text, 1)}):
        try:
            memory = space.remember("x", **more)
        except InvalidInput:
            continue
        assert space.get(memory.id) == memory
    memory = space.remember("y")
    try:
        space.forget(memory.id, reason=text)
    except InvalidInput:
        pass
    else:
        assert space.history(memory.id)[-1].reason == text
    for ask in (
        lambda: space.memories(category=text),
        lambda: space.memories(subject=text),
        lambda: space.memories(tags=[text]),
        lambda: space.memories(as_of=text),
        lambda: space.recall("x", since=text),
    ):
        try:
            ask()
        except InvalidInput:
            continue


@pytest.fixture
def filled(stores: Stores) -> Space:
    space = stores.open(embedder="local").space("ana")
    space.import_records(
        {"content": text}
        for name, text in HOSTILE.items()
        if "megabyte" not in name and "surrogate" not in name
    )
    return space


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.sample(4)
def test_hostile_query_raises_no_error(filled: Space, name: str) -> None:
    for mode in ("keyword", "vector", "hybrid"):
        hits = filled.recall(QUERIES[name], mode=mode, limit=20)
        assert len(hits) <= 20
    filled.recall(QUERIES[name], as_of=3)
    assert filled.remember("and the notes of it can be written").version == 1


def test_query_operators_are_treated_as_text(stores: Stores) -> None:
    space = stores.open().space("ana")
    zebra = space.remember("zebra")
    horse = space.remember("horse")
    both = {zebra.id, horse.id}
    for query in (
        "zebra AND horse",
        "zebra NOT horse",
        "zebra -horse",
        '"zebra horse"',
        "zebra^ horse",
    ):
        assert {hit.id for hit in space.recall(query, mode="keyword")} == both
    for query in ("zebr*", "z%", "_ebra", "ze?ra"):
        assert space.recall(query, mode="keyword") == []


@quietly()
@given(text=st.text(max_size=300))
def test_any_text_is_stored_verbatim_or_refused(shared: Space, text: str) -> None:
    keep_or_refuse(lambda: shared.remember(text), lambda m: shared.get(m.id).content, text)


@quietly()
@given(text=st.text(st.characters(codec=None, exclude_categories=()), max_size=100))
def test_any_query_returns_hits_without_an_error(shared: Space, text: str) -> None:
    for mode in ("keyword", "vector", "hybrid"):
        assert isinstance(shared.recall(text, mode=mode), list)
    figure("strings", 1)


@quietly()
@given(text=st.text(min_size=1, max_size=60), word=st.sampled_from(["zebra", "東京駅"]))
def test_word_is_found_whatever_surrounds_it(shared: Space, text: str, word: str) -> None:
    try:
        memory = shared.remember(f"{text} {word} {text}", kind="note")
    except InvalidInput:
        return
    hits = shared.recall(word, mode="keyword", limit=1000)
    assert memory.id in {hit.id for hit in hits}
    shared.erase(memory.id)


@quietly()
@given(tags=st.lists(st.text(max_size=70), max_size=18))
def test_any_tags_are_cleaned_or_refused(shared: Space, tags: list[str]) -> None:
    try:
        memory = shared.remember("x", tags=tags)
    except InvalidInput:
        return
    assert len(memory.tags) == len(set(memory.tags)) <= 16
    for tag in memory.tags:
        assert tag == tag.strip() and 0 < len(tag) <= 64
        assert memory in shared.memories(tags=[tag])
    if memory.tags:
        assert memory in shared.memories(tags=tags)
    shared.erase(memory.id)


@pytest.fixture
def shared(stores: Stores) -> Space:
    return stores.open().space("ana")


@quietly()
@given(
    text=st.text(min_size=1, max_size=200),
    tags=st.lists(st.text(min_size=1, max_size=64), max_size=5),
    subject=st.none() | st.text(max_size=50),
)
def test_any_exported_memory_can_be_imported(
    pair: tuple[Space, Space], text: str, tags: list[str], subject: str | None
) -> None:
    source, target = pair
    try:
        memory = source.remember(text, tags=tags, subject=subject)
    except InvalidInput:
        return
    # The whole history: the same text again, of another example, is a version of the same memory.
    records = [record for record in source.export() if record["memory"] == memory.id]
    report = target.import_records(records)
    assert (report.added, report.skipped) == (1, ())
    assert target.get(memory.id) == memory


@pytest.fixture
def pair(stores: Stores) -> tuple[Space, Space]:
    return stores.open(embedder="none").space("one"), stores.open(embedder="none").space("two")
