"""The library for async code: the same handles and verbs, each call awaited.

    async with reverie.aio.open() as store:
        ana = store.space("ana")
        await ana.remember("Alec is my boss at TechCorp")
        hits = await ana.recall("who is my boss?")

This module defines no verbs. A call runs in one of the store's threads and returns the library's
result, with handles wrapped and iterators made async. Handles are made without waiting:
``store.space(…)``, ``space.session(…)``, ``session.scratchpad``. A cancelled call still ends in its
thread, so it may or may not take effect: repeat it with the same key.

What type checkers and editors know of the verbs is in ``aio_verbs.pyi``, which
``docs/aio_verbs.py`` makes from the signatures of Store, Space and Session.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from reverie import memory
from reverie.memory.session import ScratchpadHandle, Session
from reverie.memory.space import Space
from reverie.memory.store import Store

if TYPE_CHECKING:
    from reverie.aio_verbs import ScratchpadVerbs, SessionVerbs, SpaceVerbs, StoreVerbs
else:
    ScratchpadVerbs = SessionVerbs = SpaceVerbs = StoreVerbs = object

THREADS = 16
# The number of items of an iterator that are fetched with one step into a thread.
CHUNK = 100

Handle = TypeVar("Handle", bound=Store | Space | Session | ScratchpadHandle)
Result = TypeVar("Result")
Given = ParamSpec("Given")

# Verbs and properties that answer at once: they do not read the database.
NON_BLOCKING = frozenset(
    {
        *("space", "session", "scratchpad", "name", "user", "id", "matched_sequence"),
        *("ranking", "floor", "url", "settings"),
    }
)


class AsyncHandle(Generic[Handle]):
    """A handle whose calls are awaited. ``handle`` is the one that does the work."""

    def __init__(self, handle: Handle, threads: ThreadPoolExecutor) -> None:
        self.handle: Handle = handle
        self._threads = threads

    def __repr__(self) -> str:
        return f"Async({self.handle!r})"

    def __dir__(self) -> list[str]:
        verbs = [name for name in dir(self.handle) if not name.startswith("_")]
        return [*super().__dir__(), *verbs]

    if not TYPE_CHECKING:  # a checker knows the verbs by name, and reports any other name

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return self._wrap_attribute(name)

    def _wrap_attribute(self, name: str) -> Any:
        """Wrap a verb or property of the handle, to be awaited unless it answers at once."""
        if isinstance(getattr(type(self.handle), name), property):
            if name in NON_BLOCKING:
                return self._wrap(getattr(self.handle, name))
            return self._run(partial(getattr, self.handle, name))
        verb = getattr(self.handle, name)
        if name in NON_BLOCKING:
            return lambda *given, **options: self._wrap(verb(*given, **options))

        @wraps(verb)
        async def awaited(*given: Any, **options: Any) -> Any:
            return await self._run(partial(verb, *given, **options))

        return awaited

    async def _run(self, call: Callable[[], Any]) -> Any:
        return self._wrap(await call_in_thread(self._threads, call))

    def _wrap(self, value: Any) -> Any:
        wrapper = _WRAPPERS.get(type(value))
        if wrapper is not None:
            return wrapper(value, self._threads)
        return self._iterate(value) if isinstance(value, Iterator) else value

    async def _iterate(self, values: Iterator[Any]) -> AsyncIterator[Any]:
        while chunk := await call_in_thread(self._threads, lambda: list(islice(values, CHUNK))):
            for value in chunk:
                yield value


class AsyncScratchpad(AsyncHandle[ScratchpadHandle], ScratchpadVerbs):
    """The working list of a session, its calls awaited."""


class AsyncSession(AsyncHandle[Session], SessionVerbs):
    """A session whose calls are awaited."""


class AsyncSpace(AsyncHandle[Space], SpaceVerbs):
    """A space whose calls are awaited."""


class AsyncStore(AsyncHandle[Store], StoreVerbs):
    """A store whose calls are awaited; it has the threads they run in."""

    def __init__(self, store: Store, threads: int = THREADS) -> None:
        super().__init__(store, ThreadPoolExecutor(threads, thread_name_prefix="reverie-aio"))
        self._close = store.close

    async def close(self) -> None:
        """Let the calls under way finish, then close the store."""
        await call_in_thread(self._threads, self._close)
        self._threads.shutdown(wait=False)


_WRAPPERS: dict[type, Callable[[Any, ThreadPoolExecutor], AsyncHandle[Any]]] = {
    Space: AsyncSpace,
    Session: AsyncSession,
    ScratchpadHandle: AsyncScratchpad,
}


class StoreOpener:
    """Opens a store when awaited or entered with ``async with``."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        self._store: AsyncStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open_store().__await__()

    async def _open_store(self) -> AsyncStore:
        return AsyncStore(await asyncio.to_thread(self._open))

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open_store()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._store is not None
        await self._store.close()


def _open_later(open_store: Callable[Given, Store]) -> Callable[Given, StoreOpener]:
    """Wrap ``memory.open``: it is called when the result is awaited or entered."""

    @wraps(open_store)
    def open(*given: Given.args, **options: Given.kwargs) -> StoreOpener:
        return StoreOpener(partial(open_store, *given, **options))

    return open


open = _open_later(memory.open)


async def run_with_handle(handle: AsyncHandle[Handle], work: Callable[[Handle], Result]) -> Result:
    """Do some work with the handle itself in a thread of its store: many calls, one step."""
    return await call_in_thread(handle._threads, lambda: work(handle.handle))


async def call_in_thread(threads: ThreadPoolExecutor, call: Callable[[], Result]) -> Result:
    """Run a call in a thread, with the context variables of the caller."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, call)
