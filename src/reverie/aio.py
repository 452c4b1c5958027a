"""The library for async code: the same handles and verbs, each call awaited.

    async with reverie.aio.open() as store:
        ana = store.space("ana")
        await ana.remember("Alec is my boss at TechCorp")
        hits = await ana.recall("who is my boss?")

No verb is written here. A call runs in a thread of the store's own; what it returns is what the
library returns, with handles wrapped again and iterators made async. Handles are made without
waiting: ``store.space(…)``, ``space.session(…)``, ``session.scratchpad``. A call that is cancelled
goes on in its thread: like an error it means "unknown", and repeating it with its key is safe.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from reverie import memory
from reverie.memory.session import ScratchpadHandle, Session
from reverie.memory.space import Space
from reverie.memory.store import Store

THREADS = 16
# How much of an iterator is fetched with one step into a thread.
CHUNK = 100

Result = TypeVar("Result")
Run = Callable[..., Any]

# What gives back at once, without a look at the database.
_NON_BLOCKING = frozenset(
    {"space", "session", "scratchpad", "name", "user", "id", "matched_sequence", "url", "settings"}
)


class AsyncHandle:
    """A handle whose calls are awaited. ``handle`` is the one that does the work."""

    def __init__(
        self, handle: Store | Space | Session | ScratchpadHandle, threads: ThreadPoolExecutor
    ):
        self.handle = handle
        self._threads = threads

    def __repr__(self) -> str:
        return f"Async({self.handle!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(getattr(type(self.handle), name), property):
            if name in _NON_BLOCKING:
                return self._wrap(getattr(self.handle, name))
            return self._run(partial(getattr, self.handle, name))
        verb = getattr(self.handle, name)
        if name in _NON_BLOCKING:
            return lambda *given, **options: self._wrap(verb(*given, **options))
        return lambda *given, **options: self._run(partial(verb, *given, **options))

    async def _run(self, call: Callable[[], Any]) -> Any:
        return self._wrap(await call_in_thread(self._threads, call))

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, Store | Space | Session | ScratchpadHandle):
            return AsyncHandle(value, self._threads)
        return self._iterate(value) if isinstance(value, Iterator) else value

    async def _iterate(self, values: Iterator[Any]) -> AsyncIterator[Any]:
        while chunk := await call_in_thread(self._threads, lambda: list(islice(values, CHUNK))):
            for value in chunk:
                yield value


class AsyncStore(AsyncHandle):
    """A store whose calls are awaited; it has the threads they run in."""

    def __init__(self, store: Store, threads: int = THREADS) -> None:
        super().__init__(store, ThreadPoolExecutor(threads, thread_name_prefix="reverie-aio"))
        self._close = store.close

    async def close(self) -> None:
        """Let the calls under way finish, then close the store."""
        await call_in_thread(self._threads, self._close)
        self._threads.shutdown(wait=False)


class _StoreOpener:
    """Opened by ``await`` or ``async with``, whichever is used."""

    def __init__(self, given: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._open = partial(memory.open, *given, **options)
        self._store: AsyncStore | None = None

    def __await__(self) -> Any:
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


def open(*given: Any, **options: Any) -> _StoreOpener:
    """Open a store as ``reverie.open`` does, with ``async with`` or ``await``."""
    return _StoreOpener(given, options)


async def run_with_handle(handle: AsyncHandle, work: Callable[[Any], Result]) -> Result:
    """Do some work with the handle itself in a thread of its store: many calls, one step."""
    return await call_in_thread(handle._threads, lambda: work(handle.handle))


async def call_in_thread(threads: ThreadPoolExecutor, call: Callable[[], Result]) -> Result:
    """Run a call in a thread, with the context variables of the caller."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, context.run, call)
