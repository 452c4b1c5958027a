"""Accepts connections, and closes those that keep the server waiting.

uvicorn has no deadline for a header and no limit on connections (``limit_concurrency`` counts
requests, and half a header is not a request yet). It leaves accepting to asyncio, which at the
descriptor limit logs and schedules one retry for each place in the backlog. So uvicorn is given no
socket: a ``Listener`` accepts, and uvicorn's own HTTP/1.1 protocol, on h11, does the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from reverie.server import connections
from reverie.server.connections import ConnectionRegistry, RepeatLogFilter
from reverie.server.context import GRACE_SECONDS, ServerContext
from reverie.server.errors import HttpProblem
from reverie.server.guard import SECURITY_HEADERS, Limits, client_network

# How many connections are accepted or closed before the event loop does other work: few enough that
# nobody waits long, and that no new connection is closed for an even newer one before it was read
# from, which takes the loop some rounds.
BATCH_SIZE, ACCEPT_ROUNDS = 16, 8
YIELD_SECONDS = 0.01
RETRY_SECONDS = 1.0
SWEEP_SECONDS = 1.0
HEADER_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_log = logging.getLogger("reverie.server")


def render_response(refused: HttpProblem) -> bytes:
    """Render an answer as bytes, for a connection that is closed without a readable request."""
    response = refused.response()
    own_headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in response.raw_headers
    }
    headers = {
        **own_headers,
        **SECURITY_HEADERS,
        "Cache-Control": "no-store",
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {refused.status} {refused.title}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(response.body)


FULL_RESPONSE = render_response(
    HttpProblem(
        503,
        "Too many connections",
        "all connections are in use: wait and repeat; the operator can raise max_connections or "
        "max_address_connections",
        headers={"Retry-After": "5"},
    )
)
TIMEOUT_RESPONSE = render_response(
    HttpProblem(408, "Too slow", "the header did not arrive in time: repeat the request")
)
BAD_REQUEST_RESPONSE = render_response(
    HttpProblem(400, "Malformed", "this is no HTTP request: look at what was sent")
)


class _CountingTransport:
    """A transport that counts the bytes it was given to send."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.written = 0

    @property
    def sent(self) -> int:
        """The number of bytes that the operating system has accepted."""
        return self.written - self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ClientConnection(H11Protocol):
    """uvicorn's connection, registered, and closed when its client keeps the server waiting.

    ``since`` is when the connection began to wait for a whole header, or for its answer.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: Any,
        app_state: dict[str, Any],
        address: str,
        registry: ConnectionRegistry,
    ) -> None:
        super().__init__(config, state, app_state)
        self.address, self._registry = address, registry
        self.since = time.monotonic()
        self._authenticated = self._connected = self._dropped = False
        self._sent, self._progress_at = 0, self.since

    @property
    def waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def rank(self) -> int:
        if self.waiting:
            return connections.IDLE_AUTHENTICATED if self._authenticated else connections.NEW
        return connections.BUSY_AUTHENTICATED if self._has_caller() else connections.BUSY_ANONYMOUS

    def _has_caller(self) -> bool:
        return self.scope["state"].get("caller") is not None

    # -- called by asyncio and uvicorn --------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._counting = _CountingTransport(transport)
        super().connection_made(self._counting)  # type: ignore[arg-type]
        self._connected = True
        if self._dropped:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.remove(self)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._changed()

    def on_response_complete(self) -> None:
        self._authenticated = self._authenticated or self._has_caller()
        self._changed()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless an answer has started; close the connection."""
        started = self.cycle is not None and self.cycle.response_started
        if self.cycle is not None and not self.cycle.response_complete:
            # Tell the application that its client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not started or (self.waiting and self.conn.our_state is h11.IDLE):
            self.transport.write(BAD_REQUEST_RESPONSE)
        self.transport.close()

    def _changed(self) -> None:
        self.since = time.monotonic()
        self._registry.changed(self)

    # -- closing ------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection now, even if part of an answer is not sent yet."""
        self._dropped = True
        if self._connected:
            self.transport.abort()

    def expire(self, now: float, limits: Limits) -> bool:
        """Close the connection if its client sends no header or does not read, for too long.

        Return whether it was closed.
        """
        if not self._connected:
            return False
        sent = self._counting.sent
        if sent > self._sent or sent == self._counting.written:
            self._progress_at = now
        self._sent = sent
        if sent < self._counting.written:
            if now - self._progress_at < limits.stall_seconds:
                return False
            self.drop()
            return True
        if not self.waiting or now - self.since < limits.header_seconds:
            return False
        half_sent = bool(self.conn.trailing_data[0]) and self.conn.our_state is h11.IDLE
        if half_sent and not self.transport.is_closing():
            self.transport.write(TIMEOUT_RESPONSE)
        self.transport.close()
        return True


class Listener:
    """Accepts connections on one socket, as long as there is room."""

    def __init__(self, listening_socket: socket.socket, server: Server) -> None:
        self._socket, self._server = listening_socket, server
        self._registry, self._limits = (
            server.server_context.connections,
            server.server_context.limits,
        )
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._logged = -connections.LOG_INTERVAL_SECONDS
        smallest = min(self._limits.connections, self._limits.address_connections)
        self._accepts = max(1, min(BATCH_SIZE, smallest // ACCEPT_ROUNDS))
        self._pause = min(SWEEP_SECONDS, self._limits.header_seconds / 4)
        self._sweeping = self._loop.call_later(self._pause, self._sweep)

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        self._sweeping.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    def _accept(self) -> None:
        for _ in range(self._accepts):
            try:
                wire, address = self._socket.accept()
            except OSError as error:
                if error.errno in OUT_OF_RESOURCES:
                    self._wait_for_resources(error)
                # Any other error: nobody waits any more, or the client has gone again.
                return
            wire.setblocking(False)
            # A small buffer shows sooner that a slow client still reads.
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            if self._registry.make_room(network := client_network(address[0])):
                self._open(wire, network)
            else:
                _refuse(wire)

    def _open(self, wire: socket.socket, address: str) -> None:
        server = self._server
        connection = ClientConnection(
            server.config, server.server_state, server.lifespan.state, address, self._registry
        )
        self._registry.add(connection)
        task = self._loop.create_task(self._connect(wire, connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _connect(self, wire: socket.socket, connection: ClientConnection) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, wire)
        except OSError:
            self._registry.remove(connection)
            wire.close()

    def _wait_for_resources(self, error: OSError) -> None:
        """Close one connection to free a descriptor, and accept again a little later."""
        now = time.monotonic()
        if now - self._logged >= connections.LOG_INTERVAL_SECONDS:
            self._logged = now
            _log.error(
                "no connection can be accepted (%s): %d are open; raise the limit of open files "
                "with 'ulimit -n'",
                error.strerror,
                self._registry.open,
            )
        self._registry.drop_one()
        self._loop.remove_reader(self._socket.fileno())
        self._retry = self._loop.call_later(RETRY_SECONDS, self.start)

    def _sweep(self) -> None:
        done = self._registry.expire(time.monotonic(), self._limits, BATCH_SIZE)
        pause = self._pause if done else YIELD_SECONDS
        self._sweeping = self._loop.call_later(pause, self._sweep)


class Server(uvicorn.Server):
    """uvicorn's server, for connections that a ``Listener`` accepts."""

    def __init__(self, server_context: ServerContext, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                # Explicit, so that other installed packages change nothing.
                http="h11",
                loop="asyncio",
                ws="none",
                h11_max_incomplete_event_size=HEADER_BYTES,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="on",
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self.server_context = server_context
        self._listeners: list[Listener] = []
        self._log_filter = RepeatLogFilter()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(self._log_filter)
        await super().startup(sockets=[])
        for listening_socket in sockets or []:
            listener = Listener(listening_socket, self)
            self._listeners.append(listener)
            listener.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_context.stopping.set()
        for listener in self._listeners:
            listener.close()
        await super().shutdown(sockets)
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).removeFilter(self._log_filter)


def _refuse(wire: socket.socket) -> None:
    """Answer that there is no room, and close.

    What the client has sent is read first: closing with unread bytes would discard the answer.
    """
    with contextlib.closing(wire), contextlib.suppress(OSError):
        wire.send(FULL_RESPONSE)
        wire.shutdown(socket.SHUT_WR)
        wire.recv(HEADER_BYTES)
