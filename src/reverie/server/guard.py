"""The middleware in front of every route: authentication, request limits and security headers.

Host and Origin are checked before anything is read, so that no web page reaches a server on this
machine through the browser of its user. The token then says who the caller is, and each caller has
a rate limit. A body has a largest size and a deadline. Without a token only ``PUBLIC_PATHS`` are
served; what a caller with a token may do is checked per route (``server/access.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reverie.aio import AsyncStore
from reverie.errors import ReverieError
from reverie.model import RIGHTS, Right
from reverie.server.errors import HttpProblem, problem_from_error, problem_from_unexpected
from reverie.server.quotas import Quota

# Served without a token: none of these shows a memory. The page asks for a token first.
PUBLIC_PATHS = (
    "/",
    "/healthz",
    "/login",
    "/page/",
    "/favicon.ico",
    "/docs",
    "/docs/",
    "/openapi.json",
)
PROXY_PREFIX = "/v1/"
AUTH_HEADER = "x-reverie-token"
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOGIN_PATH, IMPORT_PATH, FEED_PATH = "/login", "/api/import", "/api/changes"
# A body longer than this counts as an upload, whose number at a time is limited.
UPLOAD_BYTES = 256 * 1024
# The longest body that is read without a token, such as a login code.
ANONYMOUS_BODY_BYTES = 16 * 1024
CHUNK_BYTES = 64 * 1024
# An import that is slower than this on average, after its first minute, is refused.
MIN_BYTES_PER_SECOND = 1024
MAX_BUCKETS = 10_000
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. ``spaces`` None: may see all spaces; ``user`` None: may name any user."""

    id: str
    name: str
    right: Right
    spaces: tuple[str, ...] | None = None
    user: str | None = None

    def may(self, right: Right) -> bool:
        return RIGHTS.index(self.right) >= RIGHTS.index(right)

    def sees(self, space: str) -> bool:
        return self.spaces is None or space in self.spaces


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask of the server."""

    body_bytes: int = 8 * 1024 * 1024
    chat_bytes: int = 32 * 1024 * 1024
    import_bytes: int = 4 * 1024 * 1024 * 1024
    body_seconds: float = 60.0
    requests_per_second: float = 300.0
    burst: int = 3_000
    # Of one address whose requests have no valid token.
    anonymous_per_second: float = 10.0
    anonymous_burst: int = 100
    # How long a header may take to arrive, which is also how long an idle connection is kept, and
    # how long a client may leave an answer unread.
    header_seconds: float = 10.0
    stall_seconds: float = 30.0
    # Open connections, in total and of one address. 0: what the file descriptors allow, and half
    # of that.
    connections: int = 0
    address_connections: int = 0
    # At the same time, of one token and in total. total_feeds 0: half of the connections.
    feeds: int = 100
    total_feeds: int = 0
    imports: int = 2
    total_imports: int = 8
    uploads: int = 16
    total_uploads: int = 64


class Quotas:
    """How many feeds, imports and uploads may be under way at the same time."""

    def __init__(self, limits: Limits) -> None:
        self.feeds = Quota(
            "feeds", limits.feeds, limits.total_feeds, "close one, or share it among readers"
        )
        self.imports = Quota(
            "imports", limits.imports, limits.total_imports, "repeat when one of them has ended"
        )
        self.uploads = Quota(
            "uploads", limits.uploads, limits.total_uploads, "repeat when one was answered"
        )


class RateLimiter:
    """A token bucket per client: each request takes one, and time refills it."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float) -> float:
        """Count one request; return the seconds the client must wait, 0 if it may go on."""
        left, at = self._left.pop(client, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._left[client] = (left if wait else left - 1, now)
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
        return wait


class GuardMiddleware:
    """Wraps the whole application and checks every request before a route sees it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        store: AsyncStore,
        token: str,
        hosts: Iterable[str],
        port: int | None,
        limits: Limits,
        quotas: Quotas,
        trust_local: bool = False,
    ) -> None:
        self._app, self._store, self._token = app, store, token
        self._limits, self._quotas = limits, quotas
        self._hosts = _with_port(hosts, port)
        self._trust_local = trust_local
        self._token_rates = RateLimiter(self._limits.requests_per_second, self._limits.burst)
        self._anonymous_rates = RateLimiter(
            self._limits.anonymous_per_second, self._limits.anonymous_burst
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Only HTTP is served; a websocket is refused before it opens.
            await send({"type": "websocket.close", "code": 1008})
            return
        path = str(scope["path"])
        answer = _GuardedResponse(send, openai_errors=_is_under(path, PROXY_PREFIX))
        try:
            headers = Headers(scope=scope)
            _check_length(scope, headers)
            self._check_origin(headers, path)
            caller = await self._identify_caller(scope, headers)
            scope.setdefault("state", {})["caller"] = caller
            if _is_under(path, "/api/"):
                # Percent-encoded, as it was sent: a name may hold a slash that separates nothing.
                scope["path"] = scope["raw_path"].decode("latin-1")
            with contextlib.ExitStack() as until_finished, answer.until_started:
                if caller is not None and path == FEED_PATH:
                    until_finished.enter_context(self._quotas.feeds.hold(caller.id))
                if caller is not None and path == IMPORT_PATH:
                    answer.until_started.enter_context(self._quotas.imports.hold(caller.id))
                body = self._limit_body(str(scope["path"]), caller, headers, receive, answer)
                await self._app(scope, body, answer)
        except HttpProblem as refused:
            await answer.send_problem(refused)
        except Exception as error:  # noqa: BLE001 - the outermost handler: logged, and answered
            if not answer.finished:
                await answer.send_problem(problem_from_unexpected(error))

    def _check_origin(self, headers: Headers, path: str) -> None:
        """Refuse a Host that is not ours (DNS rebinding), and requests made by other web pages."""
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise HttpProblem(
                421, "Misdirected", "this server does not answer under that name: see --allow-host"
            )
        origin = headers.get("origin")
        foreign = origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}
        # A link on another site may lead to the page, which shows nothing without a token.
        cross_site = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if foreign or (cross_site and not _is_public(path)):
            raise HttpProblem(403, "Forbidden", "requests from other web pages are not served")

    def _check_rate(self, scope: Scope, caller: Caller | None) -> None:
        client = client_network(scope["client"][0]) if scope.get("client") else ""
        buckets, name = (
            (self._anonymous_rates, client) if caller is None else (self._token_rates, caller.id)
        )
        wait = buckets.take(name, time.monotonic())
        if wait:
            seconds = str(max(1, round(wait)))
            raise HttpProblem(
                429, "Too many requests", "wait and repeat", headers={"Retry-After": seconds}
            )

    async def _identify_caller(self, scope: Scope, headers: Headers) -> Caller | None:
        path = str(scope["path"])
        if any(len(headers.getlist(name)) > 1 for name in ("authorization", AUTH_HEADER)):
            # A proxy in front may look at the one that is not looked at here.
            raise HttpProblem(
                400, "Ambiguous", "send Authorization and X-Reverie-Token once at most"
            )
        kind, _, secret = headers.get("authorization", "").partition(" ")
        own = headers.get(AUTH_HEADER) if _is_under(path, PROXY_PREFIX) else None
        if own is not None:
            # Then Authorization holds the client's key for the upstream.
            kind, secret = "bearer", own
        caller = await self._authenticate(secret.strip()) if kind.lower() == "bearer" else None
        trusted = self._trust_local and _is_under(path, PROXY_PREFIX) and is_local(scope)
        if caller is None and trusted:
            caller = Caller("local", "local", "write")
        closed = not _is_public(path)
        # The page is many files, so public paths have no rate limit, except the login, where codes
        # could be guessed.
        if caller is not None or closed or path == LOGIN_PATH:
            self._check_rate(scope, caller)
        if caller is None and closed:
            unknown = "this token is not known here: it may have been revoked"
            raise HttpProblem(
                401,
                "Unauthorized",
                unknown if secret else "send a token as 'Authorization: Bearer rv_…'",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return caller

    async def _authenticate(self, secret: str) -> Caller | None:
        if not secret:
            return None
        if hmac.compare_digest(secret.encode(), self._token.encode()):
            return Caller("operator", "operator", "admin")
        try:
            token = await self._store.authenticate(secret)
        except ReverieError as error:
            # The caller is not known yet, so the reason is kept from them.
            why = problem_from_error(error)
            detail = "the store cannot tell whose token this is: repeat the request"
            raise HttpProblem(why.status, why.title, detail, headers=why.headers) from error
        if token is None:
            return None
        return Caller(token.id, token.name, token.right, token.spaces, token.user)

    def _limit_body(
        self,
        path: str,
        caller: Caller | None,
        headers: Headers,
        receive: Receive,
        answer: _GuardedResponse,
    ) -> Receive:
        """Wrap the body of a request to limit its size, its time and the number of uploads.

        An import may take long, so its pauses and its average speed are limited instead.
        """
        limits, streamed = self._limits, path == IMPORT_PATH
        max_bytes = limits.chat_bytes if _is_under(path, PROXY_PREFIX) else limits.body_bytes
        max_bytes = limits.import_bytes if streamed else max_bytes
        max_bytes = ANONYMOUS_BODY_BYTES if caller is None else max_bytes

        def on_size(size: int) -> None:
            """Count the body as an upload as soon as its size says that it is one."""
            if size > UPLOAD_BYTES and caller is not None and not (streamed or answer.counted):
                answer.until_started.enter_context(self._quotas.uploads.hold(caller.id))
                answer.counted = True

        body = _LimitedBody(
            receive, answer, max_bytes, limits.body_seconds, streamed=streamed, on_size=on_size
        )
        length = headers.get("content-length", "")
        if length.isdecimal():
            if int(length) > max_bytes:
                raise body.too_large
            on_size(int(length))
        return body


class _LimitedBody:
    """The body of a request as the application receives it, within its limits."""

    def __init__(
        self,
        receive: Receive,
        answer: _GuardedResponse,
        max_bytes: int,
        seconds: float,
        *,
        streamed: bool,
        on_size: Callable[[int], None],
    ) -> None:
        self._receive, self._answer, self._on_size = receive, answer, on_size
        self._max_bytes, self._seconds, self._streamed = max_bytes, seconds, streamed
        self._deadline = time.monotonic() + seconds
        self._received, self._complete = 0, False
        advice = "split the file" if streamed else "send less at once"
        detail = f"a body may have {max_bytes} bytes: {advice}"
        self.too_large = HttpProblem(413, "Too large", detail)

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._seconds_left()):
                message = await self._receive()
        except TimeoutError:
            detail = "the body did not come in time: repeat the request"
            self._answer.replacement = HttpProblem(408, "Too slow", detail)
            raise self._answer.replacement from None
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        try:
            if self._received > self._max_bytes:
                raise self.too_large
            self._on_size(self._received)
        except HttpProblem as refused:
            self._answer.replacement = refused
            raise
        if self._complete:
            self._answer.received()
        return message

    def _seconds_left(self) -> float:
        """Return how long the next part of the body may take."""
        left = self._deadline - time.monotonic()
        paced = left + self._received / MIN_BYTES_PER_SECOND
        return min(self._seconds, paced) if self._streamed else left


class _GuardedResponse:
    """Sends the answer, with the security headers that every answer has.

    ``replacement`` is sent in place of whatever the application answers to a body that was refused.
    ``openai_errors``: write errors in the form that OpenAI's clients read. ``until_started`` holds
    the places that an import or upload takes of its quotas until the answer starts: by then its
    body is processed, and a client that has the answer may send the next one. A chat frees its
    place as soon as its body has arrived.
    """

    def __init__(self, send: Send, *, openai_errors: bool) -> None:
        self._send, self._openai_errors = send, openai_errors
        self.started = self.finished = self.counted = False
        self.replacement: HttpProblem | None = None
        self.until_started = contextlib.ExitStack()

    def received(self) -> None:
        """Free a chat's place when its body has arrived: its model may take minutes to answer."""
        if self._openai_errors:
            self.until_started.close()

    async def __call__(self, message: Message) -> None:
        if self.replacement is not None and not self.started:
            await self.send_problem(self.replacement)
        elif not self.finished:
            await self._forward(message)

    async def send_problem(self, refused: HttpProblem) -> None:
        """Answer with a problem; if an answer has started already, cut the connection instead."""
        if self.started:
            raise ConnectionAbortedError("an answer that had begun cannot be finished")
        response = refused.to_openai_response() if self._openai_errors else refused.response()
        await self._forward(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": response.raw_headers,
            }
        )
        await self._forward({"type": "http.response.body", "body": response.body})

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.until_started.close()
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body", False)
            body = message.get("body", b"")
            # In chunks, so that little is buffered for a client that does not read.
            for start in range(0, len(body) - CHUNK_BYTES, CHUNK_BYTES):
                piece = body[start : start + CHUNK_BYTES]
                await self._send({**message, "body": piece, "more_body": True})
            rest = (len(body) - 1) // CHUNK_BYTES * CHUNK_BYTES if body else 0
            message = {**message, "body": body[rest:]}
        await self._send(message)


def _check_length(scope: Scope, headers: Headers) -> None:
    """Refuse a body whose end two programs could see at different places (request smuggling).

    h11 refuses lengths that differ, and any Transfer-Encoding but chunked.
    """
    if "transfer-encoding" in headers and (
        "content-length" in headers or scope.get("http_version") == "1.0"
    ):
        raise HttpProblem(
            400,
            "Ambiguous",
            "send Content-Length or, in HTTP/1.1, Transfer-Encoding, not both",
            headers={"Connection": "close"},
        )


def _is_under(path: str, root: str) -> bool:
    return path.startswith(root) if root.endswith("/") and root != "/" else path == root


def _is_public(path: str) -> bool:
    return any(_is_under(path, each) for each in PUBLIC_PATHS)


def _with_port(hosts: Iterable[str], port: int | None) -> frozenset[str]:
    """Return the values of Host that are accepted: browsers leave the default port out."""
    named = {host.lower() for host in hosts}
    return frozenset(named | {f"{host}:{port}" for host in named if port is not None})


def client_network(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the /64 network of an IPv6 address.

    A single machine can use every address of its /64.
    """
    if ":" not in address:
        return address
    try:
        whole = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(whole.ipv4_mapped or ipaddress.IPv6Address(int(whole) >> 64 << 64))


def is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and client[0] in {"127.0.0.1", "::1"}
