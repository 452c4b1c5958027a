"""Start a server: its token, its socket, and the thread or process that it runs in."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reverie.config import Settings, default_url
from reverie.errors import ConfigError
from reverie.server import app, listener
from reverie.server.context import ServerContext
from reverie.write import tokens

if TYPE_CHECKING:
    import uvicorn

MIN_TOKEN_CHARS = 20
# New objects before the garbage collector runs: one request alone makes Python's default of 700.
GC_THRESHOLD = 20_000
M_ARENA_MAX = -8
MAX_MALLOC_ARENAS = 2


def operator_token(settings: Settings) -> str:
    """Return the token of the settings, else the one in this user's token file, made if missing."""
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
    # Written completely before it gets its name: another server may start at this moment.
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
    """Bind and listen before anything is printed, so that the printed address works at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # IPPROTO_TCP is explicit because asyncio sets TCP_NODELAY only where it sees it; otherwise half
    # an answer may wait 40 ms.
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


def limit_malloc_arenas() -> None:
    """Let all threads of this process share few arenas; call it before any thread starts.

    By default glibc gives each thread an arena of its own, and what one thread frees no other uses
    again: memory grows with the number of threads. Threads that hold Python's lock one at a time
    gain nothing from it. ``MALLOC_ARENA_MAX`` in the environment takes precedence.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        # Only glibc has the setting.
        with contextlib.suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, MAX_MALLOC_ARENAS)


def create_server(server_context: ServerContext) -> uvicorn.Server:
    """Create a server that is ready to run."""
    return listener.Server(server_context, app.create_app(server_context))


def run(server: uvicorn.Server, listening_socket: socket.socket) -> None:
    """Run a server that has the process to itself, until it is told to stop."""
    # The loaded modules never go: collecting them again and again took a tenth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    server.run(sockets=[listening_socket])


@contextlib.contextmanager
def run_in_thread(
    server_context: ServerContext, listening_socket: socket.socket
) -> Iterator[uvicorn.Server]:
    """Run a server in a thread of this process until the block ends."""
    server = create_server(server_context)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listening_socket])),
        name="reverie-server",
        daemon=True,
    )
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield server
    finally:
        server.should_exit = True
        thread.join()
        listening_socket.close()
