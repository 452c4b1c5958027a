"""What every part of the server is given, and how a server runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.aio import AsyncStore
from reverie.config import Settings, default_url
from reverie.errors import ConfigError, MissingExtra
from reverie.server.change_watcher import ChangeWatcher
from reverie.server.connections import ConnectionRegistry, resolve_limits
from reverie.server.guard import LOOPBACK_HOSTS, Limits, Quotas
from reverie.write import tokens

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request

GRACE_SECONDS = 10
MIN_TOKEN_CHARS = 20
MAX_IMPORTS = 4
# How many new objects the garbage collector waits for; Python's own 700 are one request's.
GC_THRESHOLD = 20_000


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One server: its store, its settings and who it answers to."""

    store: AsyncStore
    settings: Settings
    token: str = field(repr=False)
    """The operator's own, which may do everything."""
    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    """The names under which it answers."""
    port: int | None = None
    trust_local: bool = False
    """Whether the proxy takes any key that comes from this machine."""
    limits: Limits = field(default_factory=Limits)
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the server is about to end: what waits for changes goes home."""
    import_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_IMPORTS), repr=False
    )
    """So many imports at a time, so that others get a word in."""
    pending_replies: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    """Replies that are being stored: a server that stops waits for them."""
    codes: set[str] = field(default_factory=set, repr=False)
    """What the page can be opened with, once each."""
    connections: ConnectionRegistry = field(init=False, repr=False)
    """Those that are open."""
    quotas: Quotas = field(init=False, repr=False)
    """What is under way."""
    watcher: ChangeWatcher = field(init=False, repr=False)
    """Tells the feeds when there is something to read."""

    def __post_init__(self) -> None:
        limits = resolve_limits(self.limits, upstream=bool(self.settings.upstream))
        object.__setattr__(self, "limits", limits)
        made = ConnectionRegistry(limits.connections, limits.address_connections)
        object.__setattr__(self, "connections", made)
        object.__setattr__(self, "quotas", Quotas(limits))
        object.__setattr__(self, "watcher", ChangeWatcher(self.store, self.stopping))

    async def stored(self) -> None:
        """Wait until every reply is stored; requests that were just cancelled begin to, now."""
        for _ in range(5):
            await asyncio.sleep(0)
        if self.pending_replies:
            await asyncio.wait(set(self.pending_replies), timeout=GRACE_SECONDS)

    def new_login_code(self) -> str:
        code = secrets.token_urlsafe(16)
        self.codes.add(code)
        return code


def get_server_context(request: Request) -> ServerContext:
    """The server that a request came to."""
    serving: ServerContext = request.app.state.server_context
    return serving


def operator_token(settings: Settings) -> str:
    """The token of the settings, else the one of this machine's user, made the first time."""
    if settings.token:
        if len(settings.token) < MIN_TOKEN_CHARS:
            raise ConfigError(f"the token of the settings needs {MIN_TOKEN_CHARS} characters")
        return settings.token
    path = token_file()
    with contextlib.suppress(FileNotFoundError):
        return _read_token(path)
    for folder in reversed([path.parent, *path.parent.parents]):
        folder.mkdir(mode=0o700, exist_ok=True)
    fresh = tokens.new_secret("operator")
    # Whole before it has its name: another server may start at this moment.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(fresh + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return _read_token(path)
    finally:
        draft.unlink()
    return fresh


def token_file() -> Path:
    return Path(default_url()).with_name("token")


def _read_token(path: Path) -> str:
    if path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} can be read by others: run 'chmod 600 {path}'")
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if len(token) < MIN_TOKEN_CHARS:
        raise ConfigError(f"{path} holds no token: remove it, and the next start makes one")
    return token


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that is bound already: what is printed is true before the first request."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, for asyncio looks at it: what it takes for no TCP may wait 40 ms with half an answer.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        another = "--host" if isinstance(error, socket.gaierror) else "--host or --port"
        raise ConfigError(
            f"{host} port {port} cannot be used ({error.strerror}): choose another with {another}"
        ) from error
    bound.listen(1024)
    bound.setblocking(False)
    return bound


def create_server(serving: ServerContext) -> uvicorn.Server:
    """A server that is ready to run."""
    try:
        from reverie.server.app import create_app
        from reverie.server.listener import Server
    except ModuleNotFoundError as error:
        raise MissingExtra("the server", "server") from error

    return Server(serving, create_app(serving))


def run(made: uvicorn.Server, bound: socket.socket) -> None:
    """Run a server that has the process to itself, until it is told to stop."""
    # What is loaded stays: a collector that looks at it again and again takes a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    made.run(sockets=[bound])


@contextlib.contextmanager
def run_in_thread(serving: ServerContext, bound: socket.socket) -> Iterator[uvicorn.Server]:
    """A server beside other work of this process, until the block ends."""
    made = create_server(serving)
    thread = threading.Thread(
        target=lambda: asyncio.run(made.serve(sockets=[bound])), name="reverie-server", daemon=True
    )
    thread.start()
    try:
        while not made.started and thread.is_alive():
            thread.join(0.01)
        yield made
    finally:
        made.should_exit = True
        thread.join()
        bound.close()
