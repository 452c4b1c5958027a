"""The context that every part of a server shares: store, settings, tokens, what is under way."""

from __future__ import annotations

import asyncio
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reverie.aio import AsyncStore
from reverie.config import Settings
from reverie.server.change_watcher import ChangeWatcher
from reverie.server.connections import ConnectionRegistry, resolve_limits
from reverie.server.guard import LOOPBACK_HOSTS, Limits, Quotas

if TYPE_CHECKING:
    from starlette.requests import Request

GRACE_SECONDS = 10
MAX_IMPORTS = 4


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One server: its store, its settings, its tokens and what is under way."""

    store: AsyncStore
    settings: Settings
    token: str = field(repr=False)
    """The operator's token, which may do everything."""
    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    """The values of Host that are accepted."""
    port: int | None = None
    trust_local: bool = False
    """Whether the proxy accepts any API key from this machine."""
    limits: Limits = field(default_factory=Limits)
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the server is about to end, so that open feeds end."""
    import_slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_IMPORTS), repr=False
    )
    """Limits the imports that write at the same time, so that other requests get their turn."""
    pending_replies: set[asyncio.Task[None]] = field(default_factory=set, repr=False)
    """Replies that are being stored; a server that stops waits for them."""
    codes: set[str] = field(default_factory=set, repr=False)
    """Login codes for the page, each good once."""
    connections: ConnectionRegistry = field(init=False, repr=False)
    """The open connections."""
    quotas: Quotas = field(init=False, repr=False)
    """The feeds, imports and uploads under way."""
    watcher: ChangeWatcher = field(init=False, repr=False)
    """Wakes the feeds when there is something to read."""

    def __post_init__(self) -> None:
        limits = resolve_limits(self.limits, upstream=bool(self.settings.upstream))
        object.__setattr__(self, "limits", limits)
        registry = ConnectionRegistry(limits.connections, limits.address_connections)
        object.__setattr__(self, "connections", registry)
        object.__setattr__(self, "quotas", Quotas(limits))
        object.__setattr__(self, "watcher", ChangeWatcher(self.store, self.stopping))

    async def wait_until_stored(self) -> None:
        """Wait until every reply is stored, at most ``GRACE_SECONDS``."""
        # Requests that were just cancelled start to store their replies in the next loop rounds.
        for _ in range(5):
            await asyncio.sleep(0)
        if self.pending_replies:
            await asyncio.wait(set(self.pending_replies), timeout=GRACE_SECONDS)

    def new_login_code(self) -> str:
        code = secrets.token_urlsafe(16)
        self.codes.add(code)
        return code


def get_server_context(request: Request) -> ServerContext:
    """Return the context of the server that a request came to."""
    context: ServerContext = request.app.state.server_context
    return context
