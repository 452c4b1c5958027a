"""Real servers on this machine, each on a store of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

import reverie
from reverie import Settings, Store
from reverie.aio import AsyncStore
from reverie.memory import tokens
from reverie.server.serving import Serving, in_thread, listening
from tests.conftest import FakeClock, SeededIds
from tests.server.browsing import launched
from tests.server.story import SPACE, Story, tell

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs, and ways to talk to it."""

    store: Store
    serving: Serving
    url: str

    def client(self, token: str | None = None, **options: Any) -> httpx2.Client:
        """A client with the operator's token, or another; an empty one: none."""
        given = self.serving.token if token is None else token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        headers |= options.pop("headers", {})
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE, **options)

    def token(self, right: str = "write", **bound: Any) -> str:
        """A new token."""
        return self.store.create_token(f"a {right} token", right, **bound)[1]  # type: ignore[arg-type]


Serve = Callable[..., Running]


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[Serve]:
    """Starts servers, each in a thread; settings, and what ``Serving`` takes, can be given."""
    with contextlib.ExitStack() as stack:

        def start(store: Store | None = None, **given: Any) -> Running:
            own = {name: given.pop(name) for name in _OF_SERVING if name in given}
            if store is None:
                given.setdefault("embedder", "hashing")
                store = reverie.open(folder / "server.db", settings=Settings(**given))
                stack.callback(store.close)
            bound = listening("127.0.0.1", 0)
            port = bound.getsockname()[1]
            serving = Serving(
                AsyncStore(store), store.settings, tokens.new_secret("operator"), port=port
            )
            serving = replace(serving, **own)
            stack.enter_context(in_thread(serving, bound))
            return Running(store, serving, f"http://127.0.0.1:{port}")

        yield start


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with servers(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def serve_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """The same for a whole file of tests."""
    with servers(tmp_path_factory.mktemp("servers")) as start:
        yield start


@pytest.fixture
def running(serve: Serve) -> Running:
    """One server with the settings of nobody."""
    return serve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, closed with its module: while it runs, this thread has an event loop."""
    with launched() as found:
        yield found


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[tuple[Store, Story]]:
    """A store with a story in it; it outlives the server, which is asked for after it."""
    clock = FakeClock()
    settings = Settings(embedder="hashing", space=SPACE)
    made = reverie.open(tmp_path / "story.db", settings=settings, clock=clock, ids=SeededIds())
    with made as store:
        yield store, tell(store, clock)


@pytest.fixture
def told(kept: tuple[Store, Story], serve: Serve) -> tuple[Running, Story]:
    """A server with a story in its store."""
    store, story = kept
    return serve(store), story


_OF_SERVING = ("token", "hosts", "trust_local", "limits")
