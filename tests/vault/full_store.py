"""A store with every kind of entry, for tests that rebuild all of it."""

from __future__ import annotations

import random
from typing import Any

from reverie import Origin, Session, Space, Store
from tests.conftest import HOUR, SECOND, FakeClock
from tests.messages import propose, user

WORDS = [
    "harbour", "winter", "piano", "garden", "bridge", "coffee", "lantern", "mountain",
    "river", "library", "bicycle", "window", "market", "forest", "kitchen", "station",
    "letter", "island", "pepper", "violin", "copper", "meadow", "rocket", "saffron",
    "tunnel", "velvet", "walnut", "zebra", "anchor", "basket", "candle", "desert", "engine",
    "feather", "glacier", "hammer",
]  # fmt: skip
UNICODE = ["Zoë trinkt Tee in Köln", "東京で会いました", "мой кот спит", "🧑‍🚀 flies ✨", "ça va"]

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"at":"x"}'}}


def sentence(chance: random.Random, words: int = 8) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def live(store: Store, clock: FakeClock, memories: int = 300, seed: int = 7) -> None:
    """Owners write in turn, so that their entries interleave."""
    chance = random.Random(seed)
    handles = [
        store.space("ana", actor="ana"),
        store.space("ana", user="bob"),
        store.space("ana", user="Ünal / x", trust="agent"),
        store.space("work and play", actor="cli"),
    ]
    append_events(handles[0], clock, chance)
    kept: list[tuple[Space, str]] = []
    for number in range(memories):
        space = chance.choice(handles)
        clock.step(SECOND)
        kept.append((space, remembered(space, chance, number)))
        if chance.random() < 0.5:
            change(*chance.choice(kept), chance, clock)
        if chance.random() < 0.15:
            message = user(f"{sentence(chance)} {number}")
            space.session(f"talk {number % 5}").append(message)
    append_events(handles[1], clock, chance)
    for space, id in kept[::40]:
        space.erase(id)


def remembered(space: Space, chance: random.Random, number: int) -> str:
    content = chance.choice([sentence(chance), chance.choice(UNICODE), f"{sentence(chance)}\n\nb"])
    more: dict[str, Any] = {}
    if chance.random() < 0.2:
        more["happened_at"] = number * HOUR
    if chance.random() < 0.1:
        more["expires_at"] = "2099-01-01"
    if chance.random() < 0.2:
        more |= {"kind": "note", "pinned": True, "source": f"file-{number}.md"}
    if chance.random() < 0.1:
        return space.session("private").remember(f"{content} {number}", private=True).id
    return space.remember(
        f"{content} {number}",
        category=chance.choice(["person", "general", "plan"]),
        subject=f"{chance.choice(WORDS)} {number}",
        tags=chance.sample(WORDS, chance.randrange(3)),
        key=f"key {number}" if chance.random() < 0.2 else None,
        **more,
    ).id


def change(space: Space, id: str, chance: random.Random, clock: FakeClock) -> None:
    clock.step(SECOND)
    own = space.session("private").space
    match 3 if space.get(id).forgotten_at is not None else chance.randrange(3):
        case 0:
            own.revise(id, sentence(chance), reason="better")
        case 1:
            own.revise(id, tags=["again"], pinned=True)
        case 2:
            own.forget(id, reason="wrong")
        case 3:
            own.restore(id)


def append_events(space: Space, clock: FakeClock, chance: random.Random) -> None:
    """Tool calls, pictures, half characters, forks, hidden and erased sessions, proposals."""
    chat = space.session("chat")
    chat.append({"role": "system", "content": "Be kind."})
    chat.append(user("What is the weather? <!-- event 9 user x 3 bytes -->\n\n## user\n\n---\n"))
    chat.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
    chat.append({"role": "tool", "tool_call_id": "c1", "content": "rain\r\n"})
    chat.append({"role": "assistant", "content": "It rai"}, interrupted=True)
    chat.append(user("half \ud83d of a character"), at="2020-02-02")
    chat.append({"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]})
    clock.step(HOUR)
    chat.write_summary("They talk about the weather.", upper=4, expected_epoch=0)
    fork = Session(space, "fork", Origin("chat", 4))
    fork.append_many([user(sentence(chance)) for _ in range(3)])
    propose(space, "The user likes rain", Origin("chat", 2))
    space.accept(propose(space, "The user has a window", Origin("chat", 2)))
    space.reject(propose(space, "The user is rain", Origin("chat", 2)))
    for name in ("hidden", "back again", "erased"):
        space.session(name).append_many([user(f"{name}: {sentence(chance)}") for _ in range(4)])
    learnt = space.remember("from a talk", origin=Origin("erased", 1))
    space.session("chat").erase_event(7)
    space.session("hidden").hide(reason="old")
    space.session("back again").hide()
    space.session("back again").restore()
    space.session("erased").erase()
    assert learnt.id not in {memory.id for memory in space.memories()}
    long = space.session("long")
    long.append_many([user(sentence(chance, 40)) for _ in range(40)])
    long.write_summary("Many words.", upper=30, expected_epoch=0)


def exported(store: Store) -> list[dict[str, Any]]:
    """Every record of everybody, as ``reverie export --all`` writes them."""
    return [
        {**record, "space": info.name, "user": user}
        for info in store.spaces()
        for user in (None, *info.users)
        for record in store.space(info.name, user=user).export()
    ]


def asked(seed: int, many: int) -> list[str]:
    chance = random.Random(seed)
    return [sentence(chance, chance.randrange(1, 6)) for _ in range(many)]
