"""An embedder for any service with OpenAI's ``POST /embeddings``."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reverie.embed import identity
from reverie.embed.pooling import normalize_rows
from reverie.errors import ConfigError, EmbeddingFailed, MissingExtra
from reverie.http_guard import split_service_url, without_credentials
from reverie.text.normalize import replace_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable

    import tenacity

    from reverie.protocols import Matrix, Vector

TIMEOUT = 30.0
# A recall must not wait long: it tries once, and after a failure not again for a while.
QUERY_TIMEOUT = 3.0
QUERY_COOLDOWN = 30.0
BATCH_SIZE = 64
MAX_TRIES = 3
MAX_BYTES = 32 * 1024 * 1024
MAX_CHARS = 20_000
MAX_RETRY_AFTER = 10.0
MAX_CACHED_QUERIES = 64

# What parsing a malformed answer may raise.
_PARSE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


class _Provider(NamedTuple):
    name: str
    base_url: str
    model: str
    key_env: str
    dummy_key: str = ""


_OPENAI = _Provider(
    "openai", "https://api.openai.com/v1", "text-embedding-3-small", "OPENAI_API_KEY"
)
_PROVIDERS = {
    "openai": _OPENAI,
    "anthropic": _OPENAI,  # Anthropic offers no embeddings
    "google": _Provider(
        "google",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "text-embedding-004",
        "GOOGLE_API_KEY",
    ),
    "ollama": _Provider("ollama", "http://localhost:11434/v1", "nomic-embed-text", "", "ollama"),
}


class _Retryable(EmbeddingFailed):
    """A failure to be retried, after ``retry_after`` seconds if the service named them."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OpenAIEmbedder:
    """Gets vectors from a service. The constructor raises if its API key is missing."""

    remote = True

    def __init__(
        self,
        provider: str = "openai",
        model: str = "",
        *,
        base_url: str = "",
        api_key_env: str = "",
        timeout: float = TIMEOUT,
        backoff: float = 0.5,
        environ: Mapping[str, str] | None = None,
        outbound: str = "any",
    ) -> None:
        try:
            import httpx2
            import tenacity

            # It imports httpx2, which is optional.
            from reverie.http_transports import PublicTransport
        except ImportError as error:
            raise MissingExtra("remote embeddings", "remote") from error
        known = _PROVIDERS.get(provider, _Provider(provider, "", "", ""))
        self.model = model or known.model
        if not self.model:
            raise ConfigError(f"{provider} has no default model: set embedder to {provider}:MODEL")
        address = split_service_url(base_url or known.base_url)
        if address is None:
            raise ConfigError(
                f"the address for embeddings of {provider} cannot be used: "
                "set embedder_base_url to http(s)://HOST/v1"
            )
        self.identity = identity(known.name, self.model, base_url)
        # Only what is free of credentials may appear in a message.
        self._safe_url = without_credentials(address)
        self._key_env = api_key_env or ("" if base_url else known.key_env)
        self._timeout = timeout
        self._queries: OrderedDict[str, Vector] = OrderedDict()
        self._lock = Lock()
        self._cooldown_until = 0.0
        dummy = "custom-provider" if base_url else known.dummy_key
        key = (
            _read_api_key(provider, self._key_env, os.environ if environ is None else environ)
            or dummy
        )
        self._url = f"{(base_url or known.base_url).rstrip('/')}/embeddings"
        self._client = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"},
            timeout=timeout,
            follow_redirects=False,
            transport=PublicTransport() if outbound.lower() == "public" else None,
        )
        self._retrying: Callable[..., Matrix] = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(MAX_TRIES),
            wait=_retry_wait(backoff),
            retry=tenacity.retry_if_exception_type(_Retryable),
            reraise=True,
        )

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.identity!r})"

    def embed(self, texts: Sequence[str]) -> Matrix:
        batches = [texts[at : at + BATCH_SIZE] for at in range(0, len(texts), BATCH_SIZE)]
        parts = [self._retrying(self._embed_batch, batch) for batch in batches]
        if len({part.shape[1] for part in parts}) > 1:
            raise EmbeddingFailed(
                f"{self._safe_url} gave vectors of different lengths: {self._model_hint}"
            )
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        """The vector of a query; the last few are cached. ``weights`` are not used by services."""
        with self._lock:
            if text in self._queries:
                self._queries.move_to_end(text)
                return self._queries[text].copy()
        vector = self._fetch_query_vector(text)
        with self._lock:
            self._queries[text] = vector
            while len(self._queries) > MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)
        return vector.copy()

    def _fetch_query_vector(self, text: str) -> Vector:
        """Embed with one short try; after a failure, raise at once until the cooldown is over."""
        if monotonic() < self._cooldown_until:
            raise EmbeddingFailed(f"{self._safe_url} did not answer a moment ago")
        try:
            rows = self._embed_batch([text], min(self._timeout, QUERY_TIMEOUT))
        except EmbeddingFailed:
            self._cooldown_until = monotonic() + QUERY_COOLDOWN
            raise
        vector: Vector = rows[0]
        return vector

    def close(self) -> None:
        """Close the connections to the service."""
        self._client.close()

    @property
    def _model_hint(self) -> str:
        return f"check that {self.model!r} is an embedding model there"

    def _embed_batch(self, texts: Sequence[str], timeout: float | None = None) -> Matrix:
        # Many services refuse an empty text: a space is sent instead, and its vector zeroed.
        sent = [_sendable(text) or " " for text in texts]
        rows = self._parse(
            self._post({"model": self.model, "input": sent}, timeout or self._timeout), len(sent)
        )
        rows[[text == " " for text in sent]] = 0.0
        return normalize_rows(rows)

    def _post(self, body: Mapping[str, Any], timeout: float) -> bytes:
        import httpx2

        if self._client.is_closed:
            raise EmbeddingFailed("this embedder was closed: open the store again")
        deadline = monotonic() + timeout
        answer = bytearray()
        try:
            with self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
                self._raise_for_status(
                    response.status_code, response.headers.get("Retry-After", "")
                )
                for chunk in response.iter_bytes():
                    answer += chunk
                    if len(answer) > MAX_BYTES:
                        raise EmbeddingFailed(f"{self._safe_url} answered with more than 32 MB")
                    if monotonic() > deadline:  # httpx2 bounds each read, not their sum
                        raise httpx2.ReadTimeout("too slow", request=response.request)
        except httpx2.TimeoutException as error:
            raise _Retryable(
                f"{self._safe_url} did not answer within {self._timeout:g} s: try again later"
            ) from error
        except httpx2.TransportError as error:
            raise _Retryable(
                f"{self._safe_url} cannot be reached ({type(error).__name__}): "
                "check the network and the address"
            ) from error
        except httpx2.DecodingError as error:
            raise EmbeddingFailed(f"{self._safe_url} sent bytes that cannot be decoded") from error
        return bytes(answer)

    def _raise_for_status(self, status: int, retry_after: str) -> None:
        if status == 429 or status >= 500:
            wait = _parse_retry_after(retry_after)
            message = f"{self._safe_url} is busy or failing (HTTP {status}): try again later"
            if wait is not None and wait > MAX_RETRY_AFTER:
                raise EmbeddingFailed(f"{message}, it asks for {wait:.0f} s")
            raise _Retryable(message, wait)
        if status in {401, 403}:
            variable = self._key_env or "the variable that embedder_api_key_env names"
            raise EmbeddingFailed(
                f"{self._safe_url} refused the key (HTTP {status}): check {variable}"
            )
        if 300 <= status < 400:
            raise EmbeddingFailed(
                f"{self._safe_url} redirects (HTTP {status}), which is not followed: "
                "set embedder_base_url to the final address"
            )
        if status != 200:
            raise EmbeddingFailed(f"{self._safe_url} refused (HTTP {status}): {self._model_hint}")

    def _parse(self, answer: bytes, count: int) -> np.typing.NDArray[np.float64]:
        try:
            data = json.loads(answer)["data"]
            places = [entry.get("index", at) for at, entry in enumerate(data)]
            if sorted(places) != list(range(count)):
                raise EmbeddingFailed(
                    f"{self._safe_url} gave {len(places)} vectors for {count} texts, or "
                    f"numbered them wrongly: {self._model_hint}"
                )
            rows = np.zeros((0, 0))
            for place, entry in zip(places, data, strict=True):
                vector = np.asarray(entry["embedding"], np.float64)
                if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
                    raise ValueError("not a vector")
                if not rows.size:
                    rows = np.zeros((count, vector.size))
                if vector.size != rows.shape[1]:
                    raise ValueError("vectors of different lengths")
                rows[place] = vector
        except _PARSE_ERRORS as error:
            raise EmbeddingFailed(
                f"{self._safe_url} gave no usable vectors: {self._model_hint}"
            ) from error
        return rows


def _read_api_key(provider: str, variable: str, environ: Mapping[str, str]) -> str:
    if not variable:
        return ""
    key = environ.get(variable, "").strip()
    if key and key.isascii() and key.isprintable():
        return key
    problem = "holds a key that cannot be sent" if key else "is not set"
    hint = " (Anthropic has no embeddings, OpenAI's are used)" if provider == "anthropic" else ""
    raise ConfigError(
        f"{variable} {problem}: embeddings of {provider} need that key{hint}; "
        "set it, or set embedder to local"
    )


def _sendable(text: str) -> str:
    text = replace_surrogates(text[:MAX_CHARS])
    return text if text.strip() else ""


def _parse_retry_after(retry_after: str) -> float | None:
    """The seconds of a ``Retry-After`` header, which has seconds or a date; None if invalid."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(retry_after)
        return max(0.0, (at - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _retry_wait(backoff: float) -> Callable[[tenacity.RetryCallState], float]:
    import tenacity

    growing = tenacity.wait_random_exponential(multiplier=backoff, max=8.0)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome and state.outcome.exception()
        asked = error.retry_after if isinstance(error, _Retryable) else None
        return growing(state) if asked is None else asked

    return wait
