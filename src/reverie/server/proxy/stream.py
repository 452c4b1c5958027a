"""An upstream's answer on its way to the client: each piece at once, and noticed on the way."""

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
    """Whoever reads along. ``keep`` is called once, when all was said or the answer broke off.

    ``done``: the answer has said that nothing follows. ``large``: keeping it takes so long that
    the client is not made to wait for it.
    """

    done: bool

    @property
    def is_large(self) -> bool: ...

    def feed(self, chunk: bytes) -> None: ...

    async def keep(self, *, interrupted: bool) -> None: ...


class RelayResponse(Response):
    """Passes an answer on. When the client goes away, the upstream is told to stop.

    An answer that breaks off breaks off for the client as well: it must not look whole.
    """

    def __init__(
        self, answer: httpx2.Response, headers: HeaderList, reader: ReplyCollector | None = None
    ) -> None:
        super().__init__(status_code=answer.status_code)
        self.raw_headers = headers
        self._answer, self._reader = answer, reader
        self._store_task: asyncio.Task[None] | None = None
        self._completed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        passing = asyncio.create_task(self._relay(send))
        try:
            await asyncio.wait({gone, passing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            passing.cancel()
            # Begun before anything is waited for: a server that stops cancels this a second time.
            self._start_storing(scope, interrupted=not self._completed)
            await asyncio.gather(gone, passing, return_exceptions=True)
            await self._answer.aclose()
            await self._wait_until_stored(interrupted=not self._completed)
        if not passing.cancelled() and (error := passing.exception()) is not None:
            raise error

    async def _relay(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        try:
            # Whoever reads along needs the text itself, not what it was packed into.
            pieces = self._answer.aiter_bytes() if self._reader else self._answer.aiter_raw()
            async for piece in pieces:
                if self._reader is not None:
                    self._reader.feed(piece)
                    if self._reader.done and not self._reader.is_large:
                        # Whoever is told that this was all may rely on it.
                        await self._wait_until_stored(interrupted=False)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx2.HTTPError:
            return
        self._completed = True
        if self._reader is not None and not self._reader.is_large:
            await self._wait_until_stored(interrupted=False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _start_storing(self, scope: Scope, *, interrupted: bool) -> None:
        if self._reader is not None and self._store_task is None:
            self._store_task = asyncio.create_task(self._reader.keep(interrupted=interrupted))
            keeping: set[asyncio.Task[None]] = scope["app"].state.server_context.pending_replies
            keeping.add(self._store_task)
            self._store_task.add_done_callback(keeping.discard)

    async def _wait_until_stored(self, *, interrupted: bool) -> None:
        """Once, and to the end, even when nobody waits for it any more."""
        if self._reader is None:
            return
        if self._store_task is None:
            self._store_task = asyncio.create_task(self._reader.keep(interrupted=interrupted))
        await asyncio.shield(self._store_task)


class DownstreamClient:
    """The client of one request. What is done for it ends when it leaves.

    ``content`` is what goes to the upstream: as long as a streamed body is still being read, its
    reader notices by itself that the client left.
    """

    def __init__(self, receive: Receive, content: bytes | AsyncIterator[bytes] | None) -> None:
        self._receive, self._body_read = receive, asyncio.Event()
        self.content = content
        if isinstance(content, AsyncIterator):
            self.content = self._watch_body(content)
        else:
            self._body_read.set()

    async def run_while_connected(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of some work; raises ClientDisconnect and cancels it if the client leaves."""
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
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
