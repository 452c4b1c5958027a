"""Looks for changes once for all feeds of a server, and wakes those whose space has changed.

A feed that looked for itself would cost a read four times a second for as long as it is open. One
statement tells how far the log of every space has grown that a feed waits for, whoever wrote: this
server, another one, or a command. What changed each feed reads through its own handle, so that the
watcher knows positions alone, and tells them to nobody.
"""

from __future__ import annotations

import asyncio
import threading

from reverie.aio import AsyncHandle
from reverie.errors import ReverieError

# How long a change may go unnoticed.
POLL_SECONDS = 0.25


class ChangeWatcher:
    """Used from one event loop. It looks only while somebody waits."""

    def __init__(self, store: AsyncHandle, stopping: threading.Event) -> None:
        self._store, self._stopping = store, stopping
        self._positions: dict[str, int] = {}
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._watch_task: asyncio.Task[None] | None = None

    def position(self, space: str) -> int | None:
        """Where a space was when last looked at: take it before reading what has changed."""
        return self._positions.get(space)

    async def changed(self, space: str, since: int | None, seconds: float) -> bool:
        """Wait until a space is elsewhere than ``since``, or the server stops.

        False when neither has happened in this time.
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
                # Each feed looks for itself and meets the error, which ends it.
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
