"""A proxy for OpenAI's clients: chats go to the upstream with what is remembered put in.

``POST /v1/chat/completions`` is stored, supplemented and sent on; every other path under ``/v1/``
is only sent on, most of them for the operator alone. Answers pass as they come, byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
from fastapi import APIRouter, FastAPI
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from reverie import aio
from reverie.aio import Async
from reverie.errors import ReverieError
from reverie.memory.space import Space
from reverie.model import Right
from reverie.server import access, errors
from reverie.server.errors import Refused
from reverie.server.json_response import Json
from reverie.server.proxy import (
    chat_turn,
    commands,
    json_edit,
    reply_parser,
    upstream,
)
from reverie.server.proxy.chat_turn import Turn
from reverie.server.proxy.json_edit import Body
from reverie.server.proxy.stream import Client, Relay
from reverie.server.proxy.upstream import Headers, Upstream
from reverie.text.normalize import one_line

CHAT = "/v1/chat/completions"
LARGE_BYTES = 256 * 1024
# A reply up to this size is stored before the client gets its end; a larger one right after.
STORED_FIRST_CHARS = 64 * 1024
HITS, SESSION = b"x-reverie-hits", b"x-reverie-session"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = sorted(_READS | {"POST", "PUT", "PATCH", "DELETE"})
_log = logging.getLogger("reverie.server")

Endpoint = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def _connected(app: FastAPI) -> AsyncIterator[None]:
    serving = app.state.serving
    async with Upstream(serving.settings, serving.token) as connected:
        app.state.upstream = connected
        yield


router = APIRouter(include_in_schema=False, lifespan=_connected)


def _answered(endpoint: Endpoint) -> Endpoint:
    """Errors of our own in the shape that OpenAI's clients show."""

    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as refused:
            return refused.for_openai()
        except ReverieError as error:
            return errors.of_error(error).for_openai()

    return answer


@_answered
async def chat(request: Request) -> Response:
    """One turn: stored, supplemented, sent on, its reply stored."""
    mode = chat_turn.mode_of(request.headers)
    right: Right = "write" if mode == "write" else "read"
    # Whoever asks the upstream with the operator's key spends what is not theirs.
    asking: Right = "read" if _upstream(request).takes_clients_key else "write"
    _admit(request, asking if mode == "off" else right)
    raw = await request.body()
    try:
        # A large body would keep others waiting.
        large = len(raw) > LARGE_BYTES
        body = await asyncio.to_thread(json_edit.read, raw) if large else json_edit.read(raw)
    except json_edit.Unreadable as error:
        if mode == "off":
            return await _relayed(request, raw)
        raise Refused(400, "Invalid JSON", str(error)) from error
    if mode == "off":
        return await _relayed(request, body.with_memory())
    command = commands.command_in(body.history[-1]) if body.messages else None
    if command is None:
        _admit(request, asking)
    if chat_turn.is_chore(body.history):
        return await _relayed(request, body.with_memory())
    given = access.named_in_headers(request.headers)
    named = chat_turn.named_by(body.fields, request.headers, given)
    visit = access.visit(request, right, named)
    space = visit.persons_space()
    if command is not None:
        return await _command(space, command, body, may_write=mode == "write")
    wish = chat_turn.wish_of(body.fields)
    _upstream(request).require()
    if not body.messages:
        return await _relayed(request, body.with_memory())
    ranking = visit.serving.settings.ranking.lower()

    def begin(handle: Space) -> tuple[Turn, bytes]:
        store = mode == "write"
        turn = chat_turn.begin(handle, body.history, named.session, wish, ranking, store=store)
        return turn, body.with_memory(turn.supplement.profile, turn.supplement.recalled)

    turn, content = await aio.within(space, begin)
    return await _relayed(request, content, space, turn)


@_answered
async def passing(request: Request) -> Response:
    """Any other path: to the upstream and back, nothing read and nothing kept."""
    _admit(request, "read" if request.method in _READS else "write")
    if not upstream.is_offered(request.method, request.scope["raw_path"]):
        _require_operator(request)
    sent = request.headers
    has_body = "content-length" in sent or "transfer-encoding" in sent
    return await _relayed(request, request.stream() if has_body else None)


for _path in (CHAT, CHAT + "/"):
    router.add_route(_path, chat, methods=["POST"])
router.add_route("/v1/{path:path}", passing, methods=_METHODS)


def _upstream(request: Request) -> Upstream:
    connected: Upstream = request.app.state.upstream
    return connected


def _admit(request: Request, right: Right) -> None:
    """Let in who has this right, with a key that the upstream may have."""
    access.caller_of(request, right)
    _upstream(request).authorization(request.headers.raw)


def _require_operator(request: Request) -> None:
    """Let in whom the upstream's account belongs to."""
    if not access.caller_of(request, "read").may("admin"):
        raise Refused(
            403,
            "Forbidden",
            "this path of the upstream is the operator's and needs an admin token: models, chats, "
            "completions, responses, messages and embeddings are served to every token",
        )


async def _relayed(
    request: Request,
    content: bytes | AsyncIterator[bytes] | None,
    space: Async | None = None,
    turn: Turn | None = None,
) -> Response:
    """What the upstream answers to this."""
    connected = _upstream(request)
    scope = request.scope
    url = connected.address(scope["raw_path"], scope["query_string"])
    headers = connected.headers(request.headers.raw, readable=turn is not None)
    length = request.headers.get("content-length")
    if isinstance(content, AsyncIterator) and length is not None:
        headers.append((b"content-length", length.encode()))
    client = Client(request.receive, content)
    answer = await client.waits_for(connected.send(request.method, url, headers, client.content))
    if turn is None or space is None:
        return Relay(answer, _with_length(answer))
    return await _reply(client, answer, space, turn)


def _with_length(answer: httpx2.Response) -> Headers:
    """The headers of a body that passes unchanged."""
    length = [(b"content-length", value) for value in answer.headers.get_list("content-length")]
    return [*upstream.passed_back(answer), *[(name, text.encode()) for name, text in length]]


async def _reply(client: Client, answer: httpx2.Response, space: Async, turn: Turn) -> Response:
    """The upstream's answer to a turn. What it says is kept, unless it is an error."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    own = _own_headers(turn)
    if answer.status_code != 200 or kind not in {"application/json", "text/event-stream"}:
        return Relay(answer, [*_with_length(answer), *own])
    headers = [pair for pair in upstream.passed_back(answer) if pair[0] != b"content-encoding"]
    if kind == "text/event-stream":
        return Relay(answer, [*headers, *own], _Kept(space, turn))
    try:
        raw = await client.waits_for(answer.aread())
    except httpx2.HTTPError as error:
        raise upstream.broken(error) from error
    finally:
        await answer.aclose()
    # A large reply would keep others waiting.
    large = len(raw) > LARGE_BYTES
    read = await asyncio.to_thread(_read, raw, turn) if large else _read(raw, turn)
    keep = partial(_keep, space, turn, read.message, whole=read.whole)
    after = BackgroundTask(keep) if len(raw) > STORED_FIRST_CHARS else None
    if after is None:
        await keep()
    told = Response(read.body, background=after)
    told.raw_headers = [*headers, (b"content-length", str(len(told.body)).encode()), *own]
    return told


class _Completion(NamedTuple):
    """A reply that came as a whole: its body for the client, and what is kept of it."""

    body: bytes
    message: dict[str, Any] | None
    whole: bool


def _read(raw: bytes, turn: Turn) -> _Completion:
    hits = [chat_turn.plain_hit(hit) for hit in turn.supplement.hits]
    body = json_edit.with_member(raw, "memory_hits", hits)
    return _Completion(body, reply_parser.of_completion(raw), not reply_parser.is_partial(raw))


class _Kept(reply_parser.Stream):
    """A stream that is stored when it ends, however it ends."""

    def __init__(self, space: Async, turn: Turn) -> None:
        super().__init__()
        self._space, self._turn = space, turn

    @property
    def large(self) -> bool:
        return self.size > STORED_FIRST_CHARS

    async def keep(self, *, broke_off: bool) -> None:
        self.end()
        whole = self.whole(broke_off=broke_off)
        await _keep(self._space, self._turn, self.message, whole=whole)


async def _keep(space: Async, turn: Turn, message: dict[str, Any] | None, *, whole: bool) -> None:
    """A reply that cannot be stored is no reason to withhold it: it comes with the next turn."""
    if message is None:
        return
    try:
        await aio.within(space, lambda _: turn.keep(message, whole=whole))
    except ReverieError as error:
        _log.error("a reply could not be stored: %s", one_line(str(error)))


def _own_headers(turn: Turn) -> Headers:
    ids = ",".join(quote(hit.id, safe=":") for hit in turn.supplement.hits)
    own = [(HITS, ids.encode())]
    return own if turn.session is None else [*own, (SESSION, turn.session.id.encode())]


async def _command(space: Async, command: str, body: Body, *, may_write: bool) -> Response:
    text = await aio.within(
        space, lambda handle: commands.answer(handle, command, may_write=may_write)
    )
    made = body.fields.get("model"), int(time.time()), uuid.uuid4().hex[:24]
    if body.fields.get("stream") is True:
        return StreamingResponse(
            iter(list(commands.chunks(text, *made))), media_type="text/event-stream"
        )
    return Json(commands.completion(text, *made))
