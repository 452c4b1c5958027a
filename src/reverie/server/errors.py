"""Turns errors into ``application/problem+json`` (RFC 9457), with advice on what to do next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from reverie.errors import (
    ConfigError,
    Conflict,
    ContextTooSmall,
    EmbedderMissing,
    EmbeddingError,
    EmbeddingFailed,
    InvalidInput,
    MissingExtra,
    ModelFailed,
    NewerSchema,
    NotFound,
    RerankFailed,
    ReverieError,
    SharedReadOnly,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    SubjectExists,
    VaultError,
    VersionConflict,
)
from reverie.text.normalize import one_line

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1

_RETRY_ADVICE = "repeat the request, a write with the same Idempotency-Key"
_SEE_LOG = "the server's log says why"
_SERVER_FAILED = f"the server failed: {_RETRY_ADVICE}"
# The status of an error, and what a client is told instead of a message that names the server's
# files, addresses or models; that message goes to the log, for the operator. None: the message is
# about the caller's own input, so the client may read it. The first class that matches decides.
_STATUS: tuple[tuple[type[ReverieError], int, str | None], ...] = (
    (NotFound, 404, None),
    (Conflict, 409, None),
    (SharedReadOnly, 403, None),
    (EmbedderMissing, 422, None),
    (InvalidInput, 422, None),
    (ContextTooSmall, 422, None),
    (MissingExtra, 501, None),
    (StoreFull, 507, f"the server has no space left: free some, and {_RETRY_ADVICE}"),
    (StoreReadOnly, 500, f"the server's store cannot be written: {_SEE_LOG}"),
    (
        NewerSchema,
        503,
        "a newer Reverie upgraded the server's store, and nothing is stored until the server "
        f"starts again with that version: then {_RETRY_ADVICE}",
    ),
    (StoreBusy, 503, f"another writer held the store for too long: {_RETRY_ADVICE}"),
    (StoreDamaged, 500, f"the server's store is damaged here: {_SEE_LOG}"),
    (
        StoreFailed,
        500,
        "the server's disk failed, and nothing is stored until the server starts again: "
        f"then {_RETRY_ADVICE}",
    ),
    (StoreUnavailable, 503, f"the server's database cannot be reached: {_RETRY_ADVICE}"),
    (StoreError, 500, f"the server's store cannot do this now: {_SEE_LOG}"),
    (VaultError, 500, f"the vault cannot be used at the moment: {_SEE_LOG}"),
    (ConfigError, 500, f"a setting of the server cannot be used: {_SEE_LOG}"),
    (EmbeddingFailed, 502, f"the embedding service did not answer as it should: {_RETRY_ADVICE}"),
    (
        EmbeddingError,
        502,
        "the store's vectors come from another model than the server's: the operator "
        "runs 'reverie reembed', or configures the former embedder",
    ),
    (ModelFailed, 502, f"the chat model did not answer as it should: {_RETRY_ADVICE}"),
    (RerankFailed, 502, f"the reranker cannot be used: {_SEE_LOG}"),
    (ReverieError, 500, _SERVER_FAILED),
)
# The same failure is logged once in this time, because every request may meet it.
LOG_INTERVAL_SECONDS = 60.0
_MAX_LOGGED = 100
_logged: dict[str, float] = {}
_log = logging.getLogger("reverie.server")


class HttpProblem(Exception):
    """Raised to refuse a request: the status, the reason, and further fields of the answer."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail = status, title, detail
        self.headers, self.more = dict(headers or {}), more

    def response(self) -> JSONResponse:
        return problem(self.status, self.title, self.detail, headers=self.headers, **self.more)

    def to_openai_response(self) -> JSONResponse:
        """Return the same problem in the form that OpenAI's clients read."""
        return openai_error(self.status, self.title, self.detail, self.headers)


def problem(
    status: int, title: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, dict(headers or {}), MEDIA_TYPE)


def openai_error(
    status: int, title: str, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Build an error for /v1: OpenAI's clients show ``message`` and read the kind from the rest."""
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    code = title.lower().replace(" ", "_")
    error = {"message": detail, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status, dict(headers or {}))


def problem_from_error(error: ReverieError) -> HttpProblem:
    """Translate one of Reverie's own errors into a problem."""
    status, _ = _find_status(error)
    more: dict[str, Any] = {}
    if isinstance(error, SubjectExists):
        existing = error.existing
        more = {"existing_id": existing.id, "existing_content": existing.content}
    elif isinstance(error, VersionConflict):
        more = {"current_version": error.current}
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    return HttpProblem(status, type(error).__name__, public_detail(error), headers=headers, **more)


def public_detail(error: ReverieError) -> str:
    """Return what a client is told of an error: never a path, address or model of the server.

    The full message of an error that is not the caller's own is logged.
    """
    message = one_line(str(error))
    _, public = _find_status(error)
    if public is None:
        return message
    _log_once(f"{type(error).__name__}: {message}")
    return public


def _find_status(error: ReverieError) -> tuple[int, str | None]:
    return next((status, public) for kind, status, public in _STATUS if isinstance(error, kind))


def _log_once(line: str) -> None:
    now = time.monotonic()
    if now - _logged.get(line, -LOG_INTERVAL_SECONDS) < LOG_INTERVAL_SECONDS:
        return
    if len(_logged) >= _MAX_LOGGED:
        _logged.clear()
    _logged[line] = now
    _log.error("%s", line)


def problem_from_unexpected(error: Exception) -> HttpProblem:
    """Log an unexpected exception, and return a problem that says nothing of it to the client."""
    _log.error("a request failed: %s", type(error).__name__, exc_info=error)
    return HttpProblem(500, "Error", _SERVER_FAILED)
