"""The routes under ``/v1/``: a proxy for OpenAI's clients that adds memories to chats.

``POST /v1/chat/completions`` is stored, extended with what is remembered, and sent on. Every other
path is only sent on, most of them for the operator alone. Streamed answers pass byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2
from fastapi import APIRouter, FastAPI
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from reverie import aio
from reverie.aio import AsyncSpace
from reverie.errors import ReverieError
from reverie.memory.space import Space
from reverie.model import Right
from reverie.server import access, errors
from reverie.server.errors import HttpProblem
from reverie.server.json_response import Json
from reverie.server.proxy import (
    chat_turn,
    commands,
    json_edit,
    reply_parser,
    upstream,
)
from reverie.server.proxy.chat_turn import ChatTurn
from reverie.server.proxy.json_edit import ChatRequest
from reverie.server.proxy.stream import DownstreamClient, RelayResponse
from reverie.server.proxy.upstream import HeaderList, Upstream
from reverie.text.normalize import one_line

CHAT_PATH = "/v1/chat/completions"
LARGE_BYTES = 256 * 1024
# A reply up to this size is stored before the client gets its end; a larger one right after.
STORED_FIRST_CHARS = 64 * 1024
HITS_HEADER, SESSION_HEADER = b"x-reverie-hits", b"x-reverie-session"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = sorted(_SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"})
_log = logging.getLogger("reverie.server")

ProxyEndpoint = Callable[[Request], Awaitable[Response]]
Parsed = TypeVar("Parsed")


@asynccontextmanager
async def _upstream_lifespan(app: FastAPI) -> AsyncIterator[None]:
    server_context = app.state.server_context
    async with Upstream(server_context.settings, server_context.token) as upstream_client:
        app.state.upstream = upstream_client
        yield


router = APIRouter(include_in_schema=False, lifespan=_upstream_lifespan)


def _with_openai_errors(endpoint: ProxyEndpoint) -> ProxyEndpoint:
    """Return Reverie's errors in the form that OpenAI's clients read."""

    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HttpProblem as refused:
            return refused.to_openai_response()
        except ReverieError as error:
            return errors.problem_from_error(error).to_openai_response()

    return answer


@_with_openai_errors
async def chat(request: Request) -> Response:
    """Handle one chat turn: store it, add memories, send it on, and store the reply."""
    mode = chat_turn.parse_mode(request.headers)
    right: Right = "write" if mode == "write" else "read"
    # A request that uses the operator's key costs the operator money, so it needs "write".
    upstream_right: Right = "read" if _upstream(request).uses_client_key else "write"
    _require_right(request, upstream_right if mode == "off" else right)
    raw = await request.body()
    try:
        body = await _parse(json_edit.parse_request, raw)
    except json_edit.MalformedBody as error:
        if mode == "off":
            return await _relay(request, raw)
        raise HttpProblem(400, "Invalid JSON", str(error)) from error
    if mode == "off":
        return await _relay(request, body.with_memory())
    command = commands.parse_command(body.history[-1]) if body.messages else None
    if command is None:
        _require_right(request, upstream_right)
    if chat_turn.is_client_task(body.history):
        return await _relay(request, body.with_memory())
    given = access.scope_from_headers(request.headers)
    named = chat_turn.resolve_scope(body.fields, request.headers, given)
    granted = access.authorize(request, right, named)
    space = granted.space_as_person()
    if command is not None:
        return await _command_response(space, command, body, may_write=mode == "write")
    options = chat_turn.parse_memory_options(body.fields)
    _upstream(request).require_base_url()
    if not body.messages:
        return await _relay(request, body.with_memory())
    ranking = granted.server_context.settings.ranking.lower()

    def begin(handle: Space) -> tuple[ChatTurn, bytes]:
        store = mode == "write"
        turn = chat_turn.begin_turn(
            handle, body.history, named.session, options, ranking, store=store
        )
        additions = turn.prompt_additions
        # Who may not write cannot answer either.
        notice = commands.proposal_notice(handle) if store and options.limit != 0 else ""
        per_turn = "\n".join(filter(None, (additions.per_turn, notice)))
        return turn, body.with_memory(additions.profile, per_turn)

    turn, content = await aio.run_with_handle(space, begin)
    return await _relay(request, content, space, turn)


@_with_openai_errors
async def pass_through(request: Request) -> Response:
    """Send any other path to the upstream and its answer back; nothing is stored."""
    _require_right(request, "read" if request.method in _SAFE_METHODS else "write")
    if not upstream.is_shared_path(request.method, request.scope["raw_path"]):
        _require_operator(request)
    sent = request.headers
    has_body = "content-length" in sent or "transfer-encoding" in sent
    return await _relay(request, request.stream() if has_body else None)


for _path in (CHAT_PATH, CHAT_PATH + "/"):
    router.add_route(_path, chat, methods=["POST"])
router.add_route("/v1/{path:path}", pass_through, methods=_METHODS)


def _upstream(request: Request) -> Upstream:
    upstream_client: Upstream = request.app.state.upstream
    return upstream_client


def _require_right(request: Request, right: Right) -> None:
    """Raise unless the caller has this right, and sent no token of this server as upstream key."""
    access.require_caller(request, right)
    _upstream(request).authorization(request.headers.raw)


def _require_operator(request: Request) -> None:
    """Raise unless the caller is the operator, whose account the upstream's key belongs to."""
    if not access.require_caller(request, "read").may("admin"):
        raise HttpProblem(
            403,
            "Forbidden",
            "this path of the upstream is the operator's and needs an admin token: models, chats, "
            "completions, responses, messages and embeddings are served to every token",
        )


async def _relay(
    request: Request,
    content: bytes | AsyncIterator[bytes] | None,
    space: AsyncSpace | None = None,
    turn: ChatTurn | None = None,
) -> Response:
    """Send a request to the upstream, and return its answer; store the reply if a turn is given."""
    upstream_client = _upstream(request)
    scope = request.scope
    url = upstream_client.url_for(scope["raw_path"], scope["query_string"])
    headers = upstream_client.headers(request.headers.raw, uncompressed=turn is not None)
    length = request.headers.get("content-length")
    if isinstance(content, AsyncIterator) and length is not None:
        headers.append((b"content-length", length.encode()))
    client = DownstreamClient(request.receive, content)
    answer = await client.run_while_connected(
        upstream_client.send(request.method, url, headers, client.content)
    )
    if turn is None or space is None:
        return RelayResponse(answer, _relay_headers(answer))
    return await _reply(client, answer, space, turn)


def _relay_headers(answer: httpx2.Response) -> HeaderList:
    """Return the headers of an answer whose body passes unchanged, with its length."""
    length = [(b"content-length", value) for value in answer.headers.get_list("content-length")]
    return [*upstream.response_headers(answer), *[(name, text.encode()) for name, text in length]]


async def _reply(
    client: DownstreamClient, answer: httpx2.Response, space: AsyncSpace, turn: ChatTurn
) -> Response:
    """Return the upstream's answer to a turn, and store the reply unless it is an error."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    own = _own_headers(turn)
    if answer.status_code != 200 or kind not in {"application/json", "text/event-stream"}:
        return RelayResponse(answer, [*_relay_headers(answer), *own])
    headers = [pair for pair in upstream.response_headers(answer) if pair[0] != b"content-encoding"]
    if kind == "text/event-stream":
        return RelayResponse(answer, [*headers, *own], _StoredStream(space, turn))
    try:
        raw = await client.run_while_connected(answer.aread())
    except httpx2.HTTPError as error:
        raise upstream.unreachable_problem(error) from error
    finally:
        await answer.aclose()
    parsed = await _parse(partial(_parse_completion, turn), raw)
    store = partial(_store_reply, space, turn, parsed.message, is_complete=parsed.is_complete)
    after = BackgroundTask(store) if len(raw) > STORED_FIRST_CHARS else None
    if after is None:
        await store()
    response = Response(parsed.body, background=after)
    response.raw_headers = [
        *headers,
        (b"content-length", str(len(response.body)).encode()),
        *own,
    ]
    return response


class _Completion(NamedTuple):
    """A reply that was not streamed: its body for the client, and the message to store."""

    body: bytes
    message: dict[str, Any] | None
    is_complete: bool


async def _parse(parse: Callable[[bytes], Parsed], raw: bytes) -> Parsed:
    """Parse a body; a large one in a thread, because here it would block other requests."""
    return await asyncio.to_thread(parse, raw) if len(raw) > LARGE_BYTES else parse(raw)


def _parse_completion(turn: ChatTurn, raw: bytes) -> _Completion:
    hits = [chat_turn.hit_to_json(hit) for hit in turn.prompt_additions.hits]
    body = json_edit.add_member(raw, "memory_hits", hits)
    return _Completion(body, reply_parser.parse_completion(raw), not reply_parser.is_partial(raw))


class _StoredStream(reply_parser.ReplyStream):
    """Collects a streamed reply, and stores it when it ends or breaks off."""

    def __init__(self, space: AsyncSpace, turn: ChatTurn) -> None:
        super().__init__()
        self._space, self._turn = space, turn

    @property
    def is_large(self) -> bool:
        return self.size > STORED_FIRST_CHARS

    async def store_reply(self, *, interrupted: bool) -> None:
        self.end()
        is_complete = self.is_complete(interrupted=interrupted)
        await _store_reply(self._space, self._turn, self.message, is_complete=is_complete)


async def _store_reply(
    space: AsyncSpace, turn: ChatTurn, message: dict[str, Any] | None, *, is_complete: bool
) -> None:
    """Store a reply. A failure is only logged: the client resends the reply with the next turn."""
    if message is None:
        return
    try:
        await aio.run_with_handle(
            space, lambda _: turn.store_reply(message, is_complete=is_complete)
        )
    except ReverieError as error:
        _log.error("a reply could not be stored: %s", one_line(str(error)))


def _own_headers(turn: ChatTurn) -> HeaderList:
    ids = ",".join(quote(hit.id, safe=":") for hit in turn.prompt_additions.hits)
    own = [(HITS_HEADER, ids.encode())]
    return own if turn.session is None else [*own, (SESSION_HEADER, turn.session.id.encode())]


async def _command_response(
    space: AsyncSpace, command: str, body: ChatRequest, *, may_write: bool
) -> Response:
    text = await aio.run_with_handle(
        space, lambda handle: commands.run_command(handle, command, may_write=may_write)
    )
    fields = body.fields.get("model"), int(time.time()), uuid.uuid4().hex[:24]
    if body.fields.get("stream") is True:
        return StreamingResponse(
            iter(list(commands.completion_chunks(text, *fields))), media_type="text/event-stream"
        )
    return Json(commands.completion(text, *fields))
