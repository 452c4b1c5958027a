"""Polls the store for changes on behalf of all feeds, and wakes those whose space has changed.

If each feed polled for itself, it would cost a read four times a second for as long as it is open.
Instead one statement reads the last position of every space that a feed waits for, so that writes
by this server, another server or a command are all seen. Each feed then reads what changed through
its own handle: the watcher knows positions only, and gives them to nobody.
"""

from __future__ import annotations

import asyncio
import threading

from reverie.aio import AsyncStore
from reverie.errors import ReverieError

# The longest time before a change is noticed.
POLL_SECONDS = 0.25


class ChangeWatcher:
    """Polls only while a feed waits. Used from one event loop."""

    def __init__(self, store: AsyncStore, stopping: threading.Event) -> None:
        self._store, self._stopping = store, stopping
        self._positions: dict[str, int] = {}
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._watch_task: asyncio.Task[None] | None = None

    def position(self, space: str) -> int | None:
        """Return a space's position at the last poll.

        A feed takes it before it reads the changes, so that none is missed in between.
        """
        return self._positions.get(space)

    async def changed(self, space: str, since: int | None, seconds: float) -> bool:
        """Wait until a space's position differs from ``since``, or the server stops.

        Return False when neither has happened after ``seconds``.
        """
        if self._stopping.is_set() or self.position(space) != since:
            return True
        woken = asyncio.get_running_loop().create_future()
        waiting = self._waiters.setdefault(space, set())
        waiting.add(woken)
        if self._watch_task is None or self._watch_task.done():
            self._watch_task = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(seconds):
                await woken
        except TimeoutError:
            return False
        finally:
            waiting.discard(woken)
            if not waiting and self._waiters.get(space) is waiting:
                del self._waiters[space]
        return True

    async def _watch(self) -> None:
        while self._waiters and not self._stopping.is_set():
            names = list(self._waiters)
            try:
                found = await self._store.positions(names)
            except ReverieError:
                # -1 wakes every feed: each reads for itself, meets the error and ends.
                found = dict.fromkeys(names, -1)
            before, self._positions = self._positions, {name: found.get(name, 0) for name in names}
            for name, position in self._positions.items():
                if position != before.get(name):
                    self._wake(name)
            await asyncio.sleep(POLL_SECONDS)
        for name in list(self._waiters):
            self._wake(name)

    def _wake(self, space: str) -> None:
        for woken in self._waiters.get(space, ()):
            if not woken.done():
                woken.set_result(None)
