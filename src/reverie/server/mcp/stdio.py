"""MCP on standard input and output, for one client of the operator, in one scope."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

from reverie.errors import MissingExtra

try:
    import mcp_types as types
    from anyio import EndOfStream
    from anyio.abc import ObjectReceiveStream, ObjectSendStream
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage
except ImportError as error:
    raise MissingExtra("MCP", "mcp") from error

from reverie import aio
from reverie.config import Settings
from reverie.server.guard import Caller
from reverie.server.mcp import server as mcp_server
from reverie.server.mcp.tools import ToolScope

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

GRACE_SECONDS = 10.0
POLL_SECONDS = 5.0
OPERATOR = Caller("operator", "mcp", "admin")


def run(settings: Settings, session: str | None = None) -> None:
    """Serve until standard input ends. Nothing but the protocol goes to standard output."""
    try:
        asyncio.run(_serve(settings, session))
    except* BrokenPipeError:
        # The client has gone; there is nobody to report this to.
        pass


async def _serve(settings: Settings, session: str | None) -> None:
    async with aio.open(settings=settings) as store:
        # This process may be the only one: without a worker no job, such as embedding, would run.
        await store.start_worker(POLL_SECONDS)
        space = store.space(
            settings.space, user=settings.user or None, actor=OPERATOR.name, trust="agent"
        )
        scoped = ToolScope.for_session(space, session)
        server = mcp_server.create_server(lambda request, right: (OPERATOR, scoped))
        async with stdio_server() as (incoming, outgoing):
            answers = ResponseStream(outgoing)
            _stop_on_signals(answers, store)
            options = server.create_initialization_options()
            await server.run(RequestStream(incoming, answers), answers, options)


def _stop_on_signals(answers: ResponseStream, store: aio.AsyncStore) -> None:
    """On Ctrl-C and SIGTERM, finish the requests under way, then end the process by that signal.

    The thread that reads standard input cannot be interrupted, so the process cannot just return.
    """
    loop, ending = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def end(number: signal.Signals) -> None:
        await answers.wait_until_answered()
        await store.close()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def begin(number: signal.Signals) -> None:
        ending.add(loop.create_task(end(number)))

    # On Windows the loop has no signal handlers, and Python's default stays.
    with contextlib.suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, begin, number)


class ResponseStream(ObjectSendStream[SessionMessage]):
    """The outgoing stream, which keeps track of requests that are not answered yet."""

    def __init__(self, outgoing: WriteStream[SessionMessage]) -> None:
        self._outgoing = outgoing
        self._pending: set[Any] = set()
        self._answered_event = asyncio.Event()

    def expect(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._pending.add(message.id)
        elif isinstance(message, types.JSONRPCNotification):
            # A cancelled request is not answered.
            cancelled = (message.params or {}).get("requestId")
            self._answered(cancelled if isinstance(cancelled, str | int) else None)

    def _answered(self, id: str | int | None) -> None:
        self._pending.discard(id)
        self._answered_event.set()

    async def wait_until_answered(self) -> None:
        """Wait until every request is answered, at most ``GRACE_SECONDS``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self._pending:
                    self._answered_event.clear()
                    await self._answered_event.wait()

    async def send(self, item: SessionMessage, /) -> None:
        await self._outgoing.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._answered(item.message.id)

    async def aclose(self) -> None:
        await self._outgoing.aclose()


class RequestStream(ObjectReceiveStream[SessionMessage | Exception]):
    """The incoming stream, which answers a message that cannot be parsed with an error.

    It ends when the input has ended and every request is answered: otherwise requests from a
    script, whose input ends at once, would be cancelled half done.
    """

    def __init__(
        self, incoming: ReadStream[SessionMessage | Exception], answers: ResponseStream
    ) -> None:
        self._incoming, self._answers = incoming, answers

    @property
    def last_context(self) -> Any:
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        async for item in self._incoming:
            if isinstance(item, SessionMessage):
                self._answers.expect(item.message)
                return item
            await self._answers.send(SessionMessage(PARSE_ERROR))
        await self._answers.wait_until_answered()
        raise EndOfStream

    async def aclose(self) -> None:
        await self._incoming.aclose()


PARSE_ERROR = types.JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=types.ErrorData(code=types.PARSE_ERROR, message="this is no message of JSON-RPC 2.0"),
)
