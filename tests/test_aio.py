"""The async handles: every verb of the library is there, and does what it does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reverie import InvalidInput, NotFound, Settings, aio
from reverie.memory.session import ScratchpadHandle, Session
from reverie.memory.space import Space
from reverie.memory.store import Store

HANDLES = {"store": Store, "space": Space, "session": Session, "scratchpad": ScratchpadHandle}
AT_ONCE = {
    "space",
    "session",
    "scratchpad",
    "name",
    "user",
    "id",
    "matched_sequence",
    "url",
    "settings",
}


def opened(tmp_path: Path) -> Any:
    return aio.open(tmp_path / "aio.db", settings=Settings(embedder="hashing"))


def run(call: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await call()

    asyncio.run(main())


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_every_public_name_is_there(tmp_path: Path, name: str) -> None:
    async def look() -> None:
        async with opened(tmp_path) as store:
            space = store.space("ana")
            session = space.session("chat")
            handle = {
                "store": store,
                "space": space,
                "session": session,
                "scratchpad": session.scratchpad,
            }[name]
            for public in (each for each in dir(HANDLES[name]) if not each.startswith("_")):
                found = getattr(handle, public)
                if inspect.iscoroutine(found):
                    await found
                assert (
                    (not callable(found) and public in AT_ONCE)
                    or callable(found)
                    or (inspect.iscoroutine(found))
                ), public

    run(look)


def test_the_verbs_work_and_give_what_the_library_gives(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            ana = store.space("ana", actor="test")
            memory = await ana.remember("Alec is my boss", category="person", subject="Alec")
            assert (await ana.recall("boss"))[0].memory == memory
            assert ana.name == "ana" and ana.user is None
            session = await ana.follow([{"role": "user", "content": "tell me of zebras"}])
            assert isinstance(session, aio.AsyncHandle) and await session.forked_from is None
            assert [event.text for event in await session.events()] == ["tell me of zebras"]
            await session.scratchpad.write(["one"])
            assert (await session.scratchpad.read()).items == ("one",)
            exported = [record async for record in await ana.export()]
            assert [record["op"] for record in exported] == ["remember", "append"]
            with pytest.raises(NotFound):
                await ana.get("absent00")
            with pytest.raises(AttributeError):
                _ = ana.no_such_verb

    run(use)


def test_long_exports_come_in_pieces(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            space = store.space("ana")
            records = ({"content": f"thing {number}"} for number in range(250))
            assert (await space.import_records(records)).added == 250
            assert len([record async for record in await space.export()]) == 250

    run(use)


def test_calls_of_many_tasks_run_side_by_side(tmp_path: Path) -> None:
    async def use() -> None:
        store = await opened(tmp_path)
        space = store.space("ana")
        await asyncio.gather(*(space.remember(f"thing {number}") for number in range(40)))
        assert await space.count() == 40
        await store.close()

    run(use)


def test_what_cannot_be_is_said_at_once(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            with pytest.raises(InvalidInput):
                store.space("")

    run(use)
