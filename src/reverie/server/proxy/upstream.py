"""The way to the upstream: one address, chosen by the operator, that no request can leave.

Everything a client sends goes on but what is meant for this server, and what holds for one
connection only. The upstream's key is the operator's alone, or the client's own by setting; it is
never sent to another host, for redirects are passed on and not followed. A token of this server
never goes there.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import httpx2

from reverie import http_guard
from reverie.config import Settings
from reverie.server.errors import HttpProblem

if TYPE_CHECKING:
    from types import TracebackType

PATH_PREFIX = b"/v1/"
CONNECT_TIMEOUT_SECONDS = 10.0
# A model may think for a long time before it says anything.
READ_TIMEOUT_SECONDS = 600.0
MAX_CONNECTIONS = 1_000
IDLE_CONNECTIONS = 100

HeaderList = list[tuple[bytes, bytes]]

# What holds between two machines only, not from one end to the other.
_HOP_BY_HOP_HEADERS = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"trailers transfer-encoding upgrade http2-settings".split()
)
_DROPPED_REQUEST_HEADERS = frozenset(
    b"host content-length expect cookie authorization api-key x-api-key origin referer "
    # These would make another request of the one that was admitted.
    b"x-http-method-override x-http-method x-method-override x-original-url x-rewrite-url".split()
)
# An upstream sets no cookies here, and does not say what other web pages may read.
_DROPPED_RESPONSE_HEADERS = frozenset(b"content-length set-cookie set-cookie2 date alt-svc".split())
_DROPPED_RESPONSE_PREFIXES = (b"access-control-", b"x-reverie-", b"strict-transport-security")
_OWN_HEADER_PREFIX = b"x-reverie-"
_SEGMENT = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+")
# Wider than a token is: nobody else's key begins like this.
_TOKEN = re.compile(rb"(?<![A-Za-z0-9_-])rv_|rv_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}")
_DOT_SEGMENTS = frozenset({b"", b".", b".."})
# What every token may be used for at the upstream, by method and by the path under /v1/: calls that
# begin and end with the request. Files, batches, stored responses and the like are one account's,
# and the account is the operator's.
_SHARED_PATHS = frozenset(
    {"chat/completions", "completions", "responses", "messages", "embeddings"}
)
_MODELS = "models"
# A piece of a model's name, such as @cf or Llama-3.2:free. No ";", which some servers cut at.
_MODEL_SEGMENT = re.compile(r"[A-Za-z0-9@_][A-Za-z0-9._:@+~ -]*")
MAX_MODEL_PIECES = 4


def create_client(settings: Settings) -> httpx2.AsyncClient:
    """What connects to the upstream: no redirects, no proxies from the environment."""
    return http_guard.client(
        settings,
        trust_env=False,
        timeout=httpx2.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
        limits=httpx2.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=IDLE_CONNECTIONS
        ),
    )


class Upstream:
    """Where chats go. Used as a context: it holds connections."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._base = None if not settings.upstream else _base_url(settings.upstream)
        self._key, self._token = settings.upstream_api_key, token.encode()
        self.uses_client_key = settings.upstream_key.lower() == "client"
        self._client = create_client(settings)

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    def require(self) -> httpx2.URL:
        """The address, or what to do to have one."""
        if self._base is None:
            raise HttpProblem(
                503,
                "No upstream",
                "no upstream is configured: set REVERIE_UPSTREAM to an OpenAI-compatible address "
                "such as http://127.0.0.1:11434/v1, and start the server again",
            )
        return self._base

    def address(self, raw_path: bytes, query: bytes) -> httpx2.URL:
        """Where a path under /v1/ lies at the upstream; nothing but a plain path leads there."""
        base = self.require()
        path = base.raw_path.rstrip(b"/") + b"/" + _relative_path(raw_path)
        url = base.copy_with(raw_path=path + b"?" + query if query else path)
        inside = url.raw_path.startswith(base.raw_path.rstrip(b"/") + b"/")
        if (url.scheme, url.netloc, url.userinfo) != (base.scheme, base.netloc, b"") or not inside:
            raise _path_not_found()
        return url

    def headers(self, given: Iterable[tuple[bytes, bytes]], *, readable: bool) -> HeaderList:
        """What goes on to the upstream; ``readable``: its answer must not be compressed."""
        kept = _end_to_end_headers(given, _DROPPED_REQUEST_HEADERS)
        kept = [
            (name, value)
            for name, value in kept
            if not name.startswith(_OWN_HEADER_PREFIX) and not self._holds_token(value)
        ]
        if readable:
            kept = [pair for pair in kept if pair[0] != b"accept-encoding"]
            kept.append((b"accept-encoding", b"identity"))
        authorization = self.authorization(given)
        return [*kept, (b"authorization", authorization)] if authorization else kept

    def authorization(self, given: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The key that goes on; a client's own must not be a token of this server."""
        if not self.uses_client_key:
            return b"Bearer " + self._key.encode() if self._key else b""
        sent = {name.lower(): value for name, value in given}
        key = sent.get(b"authorization", b"")
        own = sent.get(b"x-reverie-token", b"").strip()
        if self._holds_token(key) or (own and own in key):
            raise HttpProblem(
                401,
                "Unauthorized",
                "this proxy sends your own key on: send it as 'Authorization: Bearer …', "
                "and the token of this server in X-Reverie-Token",
            )
        return key

    def _holds_token(self, value: bytes) -> bool:
        """Whether a header holds a token of this server, also packed as Basic packs it."""
        kind, _, packed = value.partition(b" ")
        seen = [value]
        if kind.lower() == b"basic":
            with contextlib.suppress(ValueError):
                seen.append(base64.b64decode(packed))
        return any(self._token in each or _TOKEN.search(each) for each in seen)

    async def send(
        self,
        method: str,
        url: httpx2.URL,
        headers: HeaderList,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx2.Response:
        """The answer, its body not read yet. Whoever takes it closes it."""
        request = httpx2.Request(method, url, headers=headers, content=content)
        try:
            answer = await self._client.send(request, stream=True)
        except httpx2.TimeoutException as error:
            raise HttpProblem(
                504, "Upstream timeout", f"the upstream did not answer: {type(error).__name__}"
            ) from error
        except httpx2.HTTPError as error:
            raise unreachable_problem(error) from error
        if not 200 <= answer.status_code < 600:
            await answer.aclose()
            raise HttpProblem(
                502,
                "Upstream answer unreadable",
                f"the upstream answered with status {answer.status_code}, which HTTP does not "
                "know: see that REVERIE_UPSTREAM is the address of an OpenAI-compatible server",
            )
        return answer


def unreachable_problem(error: httpx2.HTTPError) -> HttpProblem:
    return HttpProblem(
        502,
        "Upstream unreachable",
        f"the upstream cannot be reached or broke off: {type(error).__name__}. "
        "See that it runs, and that REVERIE_UPSTREAM is its address",
    )


def response_headers(answer: httpx2.Response) -> HeaderList:
    """The headers of an answer as the client gets them."""
    kept = _end_to_end_headers(answer.headers.raw, _DROPPED_RESPONSE_HEADERS)
    return [pair for pair in kept if not pair[0].startswith(_DROPPED_RESPONSE_PREFIXES)]


def is_shared_path(method: str, raw_path: bytes) -> bool:
    """Whether a request is one that every token may send on; all others are the operator's.

    The path is compared as it is, after one decoding: in another case, decoded twice or with more
    behind it, it is another path.
    """
    if not raw_path.startswith(PATH_PREFIX):
        return False
    try:
        path = (
            unquote_to_bytes(raw_path.removeprefix(PATH_PREFIX)).decode("ascii").removesuffix("/")
        )
    except UnicodeDecodeError:
        return False
    if method == "POST":
        return path in _SHARED_PATHS
    first, *pieces = path.split("/")
    if method not in {"GET", "HEAD"} or first != _MODELS or len(pieces) > MAX_MODEL_PIECES:
        return False
    return all(_MODEL_SEGMENT.fullmatch(piece) for piece in pieces)


def _end_to_end_headers(
    given: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> HeaderList:
    pairs = [(name.lower(), value) for name, value in given]
    named = {
        part.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for part in value.split(b",")
    }
    gone = _HOP_BY_HOP_HEADERS | dropped | named
    return [pair for pair in pairs if pair[0] not in gone]


def _base_url(address: str) -> httpx2.URL:
    """As OpenAI's clients take it; an address without a path means the usual one."""
    url = httpx2.URL(address)
    return url.copy_with(raw_path=b"/v1") if url.raw_path in {b"", b"/"} else url


def _relative_path(raw_path: bytes) -> bytes:
    """What stands behind /v1/: plain segments only, however they are spelled."""
    if not raw_path.startswith(PATH_PREFIX):
        raise _path_not_found()
    rest = raw_path.removeprefix(PATH_PREFIX)
    for segment in rest.removesuffix(b"/").split(b"/"):
        plain = segment
        while (decoded := unquote_to_bytes(plain)) != plain:
            plain = decoded
        # The name of a model may hold a slash, spelled %2F.
        leads_away = any(piece.strip() in _DOT_SEGMENTS for piece in plain.split(b"/"))
        hidden = any(byte < 32 or byte in b"\\\x7f" for byte in plain)
        if leads_away or hidden or not _SEGMENT.fullmatch(segment):
            raise _path_not_found()
    return rest


def _path_not_found() -> HttpProblem:
    return HttpProblem(404, "Not found", "there is no such path here")
