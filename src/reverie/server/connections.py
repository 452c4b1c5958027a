"""Limits the number of open connections, and chooses which one to close to make room.

A client takes a file descriptor before anything is known about it. So connections are counted, in
total and per address, and when a limit is reached the least important one is closed for the new
one: first those that have not sent a request, then those whose request has no token, then those
that are idle after a request with a token; among equals the one that has waited longest. A
connection on which a request with a token is being answered is never closed for another.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Protocol

from reverie.config import Settings
from reverie.errors import ConfigError
from reverie.server.guard import Limits

if sys.platform != "win32":
    import resource

# File descriptors kept for the store's files, git and imports on disk. A process with a low limit
# keeps half of its descriptors for them.
RESERVED_DESCRIPTORS = 256
MAX_CONNECTIONS = 2_000
LOG_INTERVAL_SECONDS = 60.0
# How many different messages RepeatLogFilter remembers.
MAX_MESSAGES = 256

# The states of a connection, the first one to be closed first.
NEW, BUSY_ANONYMOUS, IDLE_AUTHENTICATED, BUSY_AUTHENTICATED = range(4)


class Droppable(Protocol):
    """A connection as the registry sees it."""

    address: str

    @property
    def rank(self) -> int: ...

    def drop(self) -> None: ...

    def expire(self, now: float, limits: Limits) -> bool: ...


class ConnectionRegistry:
    """Every open connection of a server, in the order of their last change of state."""

    def __init__(self, max_open: int, max_per_address: int) -> None:
        self.max_open, self.max_per_address = max_open, max_per_address
        self.dropped = self.refused = 0
        self._all: OrderedDict[Droppable, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Droppable, None]] = {}

    @property
    def open(self) -> int:
        return len(self._all)

    def expire(self, now: float, limits: Limits, max_closed: int) -> bool:
        """Close the connections that keep the server waiting, at most ``max_closed`` of them.

        Return whether all were looked at.
        """
        for connection in list(self._all):
            if not max_closed:
                return False
            max_closed -= connection.expire(now, limits)
        return True

    def make_room(self, address: str) -> bool:
        """Return whether an address may open one more connection; close another one if needed."""
        of_address = self._by_address.get(address, OrderedDict())
        full = len(of_address) >= self.max_per_address
        if (full and not self._drop_one(of_address)) or (
            len(self._all) >= self.max_open and not self._drop_one(self._all)
        ):
            self.refused += 1
            return False
        return True

    def drop_one(self) -> bool:
        """Close the least important connection; return False if none may be closed."""
        return self._drop_one(self._all)

    def add(self, connection: Droppable) -> None:
        self._all[connection] = None
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None

    def changed(self, connection: Droppable) -> None:
        """Note that a connection changed its state: among equals it is now closed last."""
        if connection in self._all:
            self._all.move_to_end(connection)
            self._by_address[connection.address].move_to_end(connection)

    def remove(self, connection: Droppable) -> None:
        if connection not in self._all:
            return
        del self._all[connection]
        of_address = self._by_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self._by_address[connection.address]

    def _drop_one(self, among: OrderedDict[Droppable, None]) -> bool:
        lowest, found = BUSY_AUTHENTICATED, None
        for connection in among:
            if (rank := connection.rank) < lowest:
                lowest, found = rank, connection
            if lowest == NEW:
                break
        if found is None:
            return False
        self.dropped += 1
        self.remove(found)
        found.drop()
        return True


def max_descriptors() -> int:
    """Return how many files and connections this process may have open."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS + RESERVED_DESCRIPTORS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS * 4 if soft == resource.RLIM_INFINITY else soft


def limits_from_settings(settings: Settings) -> Limits:
    """Read the limits that an operator has set."""
    return Limits(
        connections=settings.max_connections,
        address_connections=settings.max_address_connections,
        feeds=settings.max_feeds,
        uploads=settings.max_uploads,
    )


def resolve_limits(limits: Limits, *, upstream: bool) -> Limits:
    """Replace each 0 with a number that the file descriptors of this process allow.

    With an upstream each connection may need a second one, to the upstream.
    """
    allowed = max_descriptors()
    free = (allowed - min(RESERVED_DESCRIPTORS, allowed // 2)) // (2 if upstream else 1)
    if limits.connections > free:
        raise ConfigError(
            f"max_connections is {limits.connections}, but this process may open {allowed} files, "
            f"enough for {free} connections: raise that with 'ulimit -n', or lower the setting"
        )
    max_open = limits.connections or max(min(free, MAX_CONNECTIONS), 2)
    half = max(max_open // 2, 1)
    return replace(
        limits,
        connections=max_open,
        address_connections=limits.address_connections or half,
        total_feeds=limits.total_feeds or half,
    )


class RepeatLogFilter(logging.Filter):
    """Lets each warning or error through once a minute, with the number of repeats left out.

    uvicorn and asyncio log a line for each malformed request: without this filter a client could
    fill the disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = record.exc_info[0] if record.exc_info else None
        key = (str(record.msg).partition("\n")[0], kind)
        now = time.monotonic()
        at, left_out = self._logged.get(key, (now - LOG_INTERVAL_SECONDS, 0))
        if now - at < LOG_INTERVAL_SECONDS:
            self._logged[key] = (at, left_out + 1)
            return False
        if len(self._logged) >= MAX_MESSAGES:
            self._logged.clear()
        self._logged[key] = (now, 0)
        if left_out:
            record.msg = f"{record.msg} (and {left_out} times since it was last logged)"
        return True
