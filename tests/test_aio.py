"""The async handles: every verb of the library is there, and does what it does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import reverie
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
    "ranking",
    "floor",
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
def test_aio_has_every_public_name_of_the_library(tmp_path: Path, name: str) -> None:
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


def test_aio_verbs_return_what_the_library_returns(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            ana = store.space("ana", actor="test")
            memory = await ana.remember("Alec is my boss", category="person", subject="Alec")
            assert (await ana.recall("boss"))[0].memory == memory
            assert ana.name == "ana" and ana.user is None
            session = await ana.follow([{"role": "user", "content": "tell me of zebras"}])
            assert isinstance(session, aio.AsyncSession) and await session.forked_from is None
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


def test_aio_export_is_read_in_pieces(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            space = store.space("ana")
            records = ({"content": f"thing {number}"} for number in range(250))
            assert (await space.import_records(records)).added == 250
            assert len([record async for record in await space.export()]) == 250

    run(use)


def test_aio_calls_of_many_tasks_run_concurrently(tmp_path: Path) -> None:
    async def use() -> None:
        store = await opened(tmp_path)
        space = store.space("ana")
        await asyncio.gather(*(space.remember(f"thing {number}") for number in range(40)))
        assert await space.count() == 40
        await store.close()

    run(use)


def test_aio_raises_invalid_input_at_the_call(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            with pytest.raises(InvalidInput):
                store.space("")

    run(use)


def test_async_handles_list_and_document_the_verbs_of_their_handles(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path) as store:
            ana = store.space("ana")
            for handle in (store, ana, ana.session("chat"), ana.session("chat").scratchpad):
                names = {name for name in dir(handle.handle) if not name.startswith("_")}
                assert names <= set(dir(handle))
            assert ana.recall.__doc__ == Space.recall.__doc__
            assert inspect.iscoroutinefunction(ana.recall)
            assert list(inspect.signature(ana.recall).parameters)[:2] == ["query", "limit"]
            assert inspect.signature(aio.open) == inspect.signature(reverie.open)

    run(use)
