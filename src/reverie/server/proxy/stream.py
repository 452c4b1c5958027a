"""Relays the upstream's answer to the client piece by piece, and collects it for storing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol, TypeVar

import httpx2
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from reverie.server.proxy.upstream import HeaderList

Result = TypeVar("Result")


class ReplyCollector(Protocol):
    """Collects a reply while it is relayed.

    ``store_reply`` is called once, when the answer has ended or broken off. ``done``: the upstream
    has said that nothing follows. ``is_large``: storing takes so long that the client does not
    wait for it.
    """

    done: bool

    @property
    def is_large(self) -> bool: ...

    def feed(self, chunk: bytes) -> None: ...

    async def store_reply(self, *, interrupted: bool) -> None: ...


class RelayResponse(Response):
    """Relays an answer. When the client disconnects, the upstream connection is closed.

    If the upstream breaks off, the client's connection does too: the answer must not look complete.
    """

    def __init__(
        self, answer: httpx2.Response, headers: HeaderList, collector: ReplyCollector | None = None
    ) -> None:
        super().__init__(status_code=answer.status_code)
        self.raw_headers = headers
        self._answer, self._collector = answer, collector
        self._store_task: asyncio.Task[None] | None = None
        self._completed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        relaying = asyncio.create_task(self._relay(send))
        try:
            await asyncio.wait({gone, relaying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            relaying.cancel()
            # Started before anything is awaited: a server that stops cancels this task again.
            self._start_storing(scope, interrupted=not self._completed)
            await asyncio.gather(gone, relaying, return_exceptions=True)
            await self._answer.aclose()
            await self._wait_until_stored(interrupted=not self._completed)
        if not relaying.cancelled() and (error := relaying.exception()) is not None:
            raise error

    async def _relay(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        try:
            # The collector needs the decoded text; otherwise compressed bytes pass unchanged.
            pieces = self._answer.aiter_bytes() if self._collector else self._answer.aiter_raw()
            async for piece in pieces:
                if self._collector is not None:
                    self._collector.feed(piece)
                    if self._collector.done and not self._collector.is_large:
                        # When the client sees the end of the reply, it is stored.
                        await self._wait_until_stored(interrupted=False)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx2.HTTPError:
            return
        self._completed = True
        if self._collector is not None and not self._collector.is_large:
            await self._wait_until_stored(interrupted=False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _start_storing(self, scope: Scope, *, interrupted: bool) -> None:
        if self._collector is not None and self._store_task is None:
            self._store_task = asyncio.create_task(
                self._collector.store_reply(interrupted=interrupted)
            )
            pending: set[asyncio.Task[None]] = scope["app"].state.server_context.pending_replies
            pending.add(self._store_task)
            self._store_task.add_done_callback(pending.discard)

    async def _wait_until_stored(self, *, interrupted: bool) -> None:
        """Store the reply once; storing goes on even if the task that waits for it is cancelled."""
        if self._collector is None:
            return
        if self._store_task is None:
            self._store_task = asyncio.create_task(
                self._collector.store_reply(interrupted=interrupted)
            )
        await asyncio.shield(self._store_task)


class DownstreamClient:
    """The client of one request; work for it is cancelled when it disconnects.

    ``content`` is the body for the upstream. While a streamed body is still being read, its reader
    notices a disconnect by itself, so this class starts to look for one only afterwards.
    """

    def __init__(self, receive: Receive, content: bytes | AsyncIterator[bytes] | None) -> None:
        self._receive, self._body_read = receive, asyncio.Event()
        self.content = content
        if isinstance(content, AsyncIterator):
            self.content = self._watch_body(content)
        else:
            self._body_read.set()

    async def run_while_connected(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of ``work``; if the client leaves, cancel it and raise."""
        gone = asyncio.create_task(self._wait_for_disconnect())
        working = asyncio.create_task(work)
        try:
            await asyncio.wait({gone, working}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            return working.result()
        finally:
            gone.cancel()
            working.cancel()
            await asyncio.gather(gone, working, return_exceptions=True)

    async def _watch_body(self, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in content:
            yield piece
        self._body_read.set()

    async def _wait_for_disconnect(self) -> None:
        await self._body_read.wait()
        await _wait_for_disconnect(self._receive)


async def _wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
