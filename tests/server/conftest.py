"""Real servers on this machine, each on a store of its own."""

from __future__ import annotations

import asyncio
import contextlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn.server

import reverie
from reverie import Settings, Space, Store
from reverie.aio import AsyncStore
from reverie.server.context import ServerContext
from reverie.server.run import bind_socket, run_in_thread
from reverie.write import tokens
from tests.conftest import FakeClock, SeededIds
from tests.server.proxy import upstream
from tests.server.proxy.upstream import Upstream
from tests.server.web.browser import (
    Open,
    Window,
    launched,
    shows,
    window,
)
from tests.server.web.page_data import SPACE, Story, fill

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 30.0
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Running:
    """A running server, and clients for it."""

    store: Store
    server_context: ServerContext
    url: str

    def client(self, token: str | None = None, **options: Any) -> httpx2.Client:
        """A client with the operator's token, or another; an empty one: none."""
        given = self.server_context.token if token is None else token
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        headers |= options.pop("headers", {})
        # Nothing is encrypted here, and to read what would be trusted takes 50 ms each time.
        return httpx2.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE, verify=False, **options
        )

    def token(self, right: str = "write", **bound: Any) -> str:
        """A new token."""
        return self.store.create_token(f"a {right} token", right, **bound)[1]  # type: ignore[arg-type]


Serve = Callable[..., Running]
# uvicorn looks every 100 ms whether it shall stop. Servers in a process of their own (tests/crash,
# tests/cli, tests/docs) keep that pace.
LOOK_AGAIN = 0.005


@pytest.fixture(autouse=True, scope="session")
def stop_quickly() -> Iterator[None]:
    """Stop the servers of this process in 12 ms instead of 200."""
    names = {name: getattr(asyncio, name) for name in dir(asyncio) if not name.startswith("__")}
    quick = types.SimpleNamespace(**names)
    quick.sleep = lambda seconds, *more: asyncio.sleep(min(seconds, LOOK_AGAIN), *more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", quick)
        yield


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
            bound = bind_socket("127.0.0.1", 0)
            port = bound.getsockname()[1]
            serving = ServerContext(
                AsyncStore(store), store.settings, tokens.new_secret("operator"), port=port
            )
            serving = replace(serving, **own)
            stack.enter_context(run_in_thread(serving, bound))
            return Running(store, serving, f"http://127.0.0.1:{port}")

        yield start


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server before an upstream."""

    running: Running
    upstream: Upstream

    @property
    def space(self) -> Space:
        return self.running.store.space("default")

    def chat(self, *messages: Message | str, token: str | None = None, **more: Any) -> Any:
        """One request; text is what the user says. ``headers`` go with it."""
        sent = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
        headers = more.pop("headers", {})
        body = {"model": "scripted", "messages": sent, **more}
        with self.running.client(token, headers=headers) as client:
            return client.post(CHAT, json=body)

    def stored_events(self) -> dict[str, list[tuple[str, str, bool]]]:
        """Every session with what is kept in it: who, what, and whether it was cut off."""
        return {
            info.id: [
                (event.role, event.text, event.interrupted)
                for event in self.space.session(info.id).events()
            ]
            for info in self.space.sessions()
        }


Message = dict[str, Any]
Proxy = Callable[..., Proxied]


@pytest.fixture
def proxy(serve: Serve) -> Iterator[Proxy]:
    """Starts servers, each before an upstream that follows a script; see ``serve``."""
    with contextlib.ExitStack() as stack:

        def start(script: upstream.Script | None = None, **given: Any) -> Proxied:
            up = stack.enter_context(upstream.running(script or upstream.says("All is well")))
            given.setdefault("upstream", up.url)
            given.setdefault("upstream_api_key", "operators-key")
            return Proxied(serve(**given), up)

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
        yield store, fill(store, clock)


@pytest.fixture
def page_server(kept: tuple[Store, Story], serve: Serve) -> tuple[Running, Story]:
    """A server with a story in its store."""
    store, story = kept
    return serve(store), story


@pytest.fixture
def opened(browser: Browser, page_server: tuple[Running, Story]) -> Iterator[Open]:
    """Opens windows on the story, with the operator's token or another."""
    running, _ = page_server
    with contextlib.ExitStack() as stack:

        def start(where: str = "", token: str | None = None, **options: Any) -> Window:
            made = stack.enter_context(window(browser, running.url, **options))
            made.open(where, running.server_context.token if token is None else token or None)
            shows(made.page.locator("main > *").first)
            return made

        yield start


_OF_SERVING = ("token", "hosts", "trust_local", "limits")
