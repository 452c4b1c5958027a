"""Errors as ``application/problem+json`` (RFC 9457): one line that says what to do next."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from reverie.errors import (
    ConfigError,
    Conflict,
    ContextTooSmall,
    EmbedderMissing,
    EmbeddingError,
    InvalidInput,
    MissingExtra,
    ModelFailed,
    NotFound,
    RerankFailed,
    ReverieError,
    SharedReadOnly,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    SubjectExists,
    VersionConflict,
)
from reverie.text.normalise import one_line

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1

# The first that fits counts.
_STATUS: tuple[tuple[type[ReverieError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (SharedReadOnly, 403),
    (EmbedderMissing, 422),
    (InvalidInput, 422),
    (ContextTooSmall, 422),
    (MissingExtra, 501),
    (ConfigError, 500),
    (StoreBusy, 503),
    (StoreUnavailable, 503),
    (StoreFull, 507),
    (StoreError, 500),
    (EmbeddingError, 502),
    (ModelFailed, 502),
    (RerankFailed, 502),
)
_log = logging.getLogger("reverie.server")


class Refused(Exception):
    """A request that is not served: its status, why, and what its answer says besides."""

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

    def for_openai(self) -> JSONResponse:
        """The same as OpenAI's clients read it."""
        return for_openai(self.status, self.title, self.detail, self.headers)


def problem(
    status: int, title: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, dict(headers or {}), MEDIA_TYPE)


def for_openai(
    status: int, title: str, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error under /v1: OpenAI's clients show ``message`` and tell errors apart by the rest."""
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
        status, "invalid_request_error" if status < 500 else "server_error"
    )
    code = title.lower().replace(" ", "_")
    error = {"message": detail, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status, dict(headers or {}))


def of_error(error: ReverieError) -> Refused:
    """What a request comes to that ended in one of our own errors."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    more: dict[str, Any] = {}
    if isinstance(error, SubjectExists):
        existing = error.existing
        more = {"existing_id": existing.id, "existing_content": existing.content}
    elif isinstance(error, VersionConflict):
        more = {"current_version": error.current}
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else {}
    return Refused(status, type(error).__name__, one_line(str(error)), headers=headers, **more)


def of_accident(error: Exception) -> Refused:
    """What nobody foresaw: logged here, and nothing of it told to the client."""
    _log.error("a request failed: %s", type(error).__name__, exc_info=error)
    return Refused(
        500, "Error", "the server failed: repeat the request, a write with the same Idempotency-Key"
    )
