"""Sends requests to the upstream, whose address the operator chose and no request can change.

A client's headers are sent on, except those for this server and those of one connection only. The
API key is the operator's or, by a setting, the client's own. It is never sent to another host:
redirects are passed back to the client, not followed. A token of this server is never sent on.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from urllib.parse import unquote_to_bytes

import httpx2

from reverie import http_transports
from reverie.config import Settings
from reverie.server.errors import HttpProblem

PATH_PREFIX = b"/v1/"
CONNECT_TIMEOUT_SECONDS = 10.0
# A model may take minutes before its first word.
READ_TIMEOUT_SECONDS = 600.0
MAX_CONNECTIONS = 1_000
IDLE_CONNECTIONS = 100

HeaderList = list[tuple[bytes, bytes]]

# Headers of one connection, which a proxy must not pass on (RFC 9110).
_HOP_BY_HOP_HEADERS = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"trailers transfer-encoding upgrade http2-settings".split()
)
_DROPPED_REQUEST_HEADERS = frozenset(
    b"host content-length expect cookie authorization api-key x-api-key origin referer "
    # These could turn the request that was authorized into another one.
    b"x-http-method-override x-http-method x-method-override x-original-url x-rewrite-url".split()
)
# An upstream sets no cookies here, and does not say what other web pages may read.
_DROPPED_RESPONSE_HEADERS = frozenset(b"content-length set-cookie set-cookie2 date alt-svc".split())
_DROPPED_RESPONSE_PREFIXES = (b"access-control-", b"x-reverie-", b"strict-transport-security")
_OWN_HEADER_PREFIX = b"x-reverie-"
_SEGMENT = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+")
# Matches more than a whole token: no other service has keys that begin like this.
_TOKEN = re.compile(rb"(?<![A-Za-z0-9_-])rv_|rv_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}")
_DOT_SEGMENTS = frozenset({b"", b".", b".."})
# Paths under /v1/ that every token may POST to: calls that leave nothing at the upstream. Files,
# batches and stored responses belong to the upstream account, which is the operator's.
_SHARED_PATHS = frozenset(
    {"chat/completions", "completions", "responses", "messages", "embeddings"}
)
_MODELS = "models"
# A segment of a model's name, such as @cf or Llama-3.2:free. No ";", where some servers cut.
_MODEL_SEGMENT = re.compile(r"[A-Za-z0-9@_][A-Za-z0-9._:@+~ -]*")
MAX_MODEL_PIECES = 4


def create_client(settings: Settings) -> httpx2.AsyncClient:
    """Create the HTTP client: no redirects, and no proxies from the environment."""
    return http_transports.client(
        settings,
        trust_env=False,
        timeout=httpx2.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS),
        limits=httpx2.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=IDLE_CONNECTIONS
        ),
    )


class Upstream:
    """The upstream and its connections; use it as an async context manager."""

    def __init__(self, settings: Settings, token: str) -> None:
        self._base = None if not settings.upstream else _base_url(settings.upstream)
        self._key, self._token = settings.upstream_api_key, token.encode()
        self.uses_client_key = settings.upstream_key.lower() == "client"
        self._client = create_client(settings)

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def require_base_url(self) -> httpx2.URL:
        """Return the upstream's address; raise with advice if none is configured."""
        if self._base is None:
            raise HttpProblem(
                503,
                "No upstream",
                "no upstream is configured: set REVERIE_UPSTREAM to an OpenAI-compatible address "
                "such as http://127.0.0.1:11434/v1, and start the server again",
            )
        return self._base

    def url_for(self, raw_path: bytes, query: bytes) -> httpx2.URL:
        """Return the upstream URL of a path under /v1/; raise if it could lead elsewhere."""
        base = self.require_base_url()
        path = base.raw_path.rstrip(b"/") + b"/" + _relative_path(raw_path)
        url = base.copy_with(raw_path=path + b"?" + query if query else path)
        inside = url.raw_path.startswith(base.raw_path.rstrip(b"/") + b"/")
        if (url.scheme, url.netloc, url.userinfo) != (base.scheme, base.netloc, b"") or not inside:
            raise _path_not_found()
        return url

    def headers(self, given: Iterable[tuple[bytes, bytes]], *, uncompressed: bool) -> HeaderList:
        """Return the headers for the upstream; ``uncompressed``: ask for a plain answer."""
        kept = [
            (name, value)
            for name, value in _end_to_end_headers(given, _DROPPED_REQUEST_HEADERS)
            if not name.startswith(_OWN_HEADER_PREFIX) and not self._holds_token(value)
        ]
        if uncompressed:
            kept = [pair for pair in kept if pair[0] != b"accept-encoding"]
            kept.append((b"accept-encoding", b"identity"))
        authorization = self.authorization(given)
        return [*kept, (b"authorization", authorization)] if authorization else kept

    def authorization(self, given: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the key for the upstream; raise if the client sent a token of this server."""
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
        """Return whether a header holds a token of this server, plain or in Basic credentials."""
        kind, _, credentials = value.partition(b" ")
        candidates = [value]
        if kind.lower() == b"basic":
            with contextlib.suppress(ValueError):
                candidates.append(base64.b64decode(credentials))
        return any(self._token in each or _TOKEN.search(each) for each in candidates)

    async def send(
        self,
        method: str,
        url: httpx2.URL,
        headers: HeaderList,
        content: bytes | AsyncIterator[bytes] | None,
    ) -> httpx2.Response:
        """Return the answer with its body unread; the caller closes it."""
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
    """Return the headers of an answer that the client gets."""
    kept = _end_to_end_headers(answer.headers.raw, _DROPPED_RESPONSE_HEADERS)
    return [pair for pair in kept if not pair[0].startswith(_DROPPED_RESPONSE_PREFIXES)]


def is_shared_path(method: str, raw_path: bytes) -> bool:
    """Return whether every token may send a request on; all others are the operator's.

    The path is decoded once and compared exactly: another case, a second encoding or a suffix makes
    it a different path.
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
    left_out = _HOP_BY_HOP_HEADERS | dropped | named
    return [pair for pair in pairs if pair[0] not in left_out]


def _base_url(address: str) -> httpx2.URL:
    """Parse the address as OpenAI's clients do; without a path, ``/v1`` is added."""
    url = httpx2.URL(address)
    return url.copy_with(raw_path=b"/v1") if url.raw_path in {b"", b"/"} else url


def _relative_path(raw_path: bytes) -> bytes:
    """Return the path after /v1/; raise if a segment, decoded fully, could lead elsewhere."""
    if not raw_path.startswith(PATH_PREFIX):
        raise _path_not_found()
    rest = raw_path.removeprefix(PATH_PREFIX)
    for segment in rest.removesuffix(b"/").split(b"/"):
        plain = segment
        while (decoded := unquote_to_bytes(plain)) != plain:
            plain = decoded
        # A model's name may hold a slash, encoded as %2F.
        leads_away = any(piece.strip() in _DOT_SEGMENTS for piece in plain.split(b"/"))
        hidden = any(byte < 32 or byte in b"\\\x7f" for byte in plain)
        if leads_away or hidden or not _SEGMENT.fullmatch(segment):
            raise _path_not_found()
    return rest


def _path_not_found() -> HttpProblem:
    return HttpProblem(404, "Not found", "there is no such path here")
