"""Ask a chat model through PydanticAI: one answer of a given shape in time, or ModelFailed.

PydanticAI builds the providers, models and requests, validates the answers and asks again. This
module adds what it leaves open: which answers and HTTP responses are refused, a deadline for the
whole call, and errors that say what to do next. Each call has its own thread, event loop and
connections, so that it works from any thread, inside a running loop and after a fork.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import import_module
from inspect import signature
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from reverie.errors import ConfigError, MissingExtra, ModelFailed, ReverieError
from reverie.http_guard import is_loopback, split_service_url, without_credentials
from reverie.protocols import Answer, ChatModel
from reverie.text.normalize import SURROGATE, replace_surrogates

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai import Agent, ModelResponse, RunContext
    from pydantic_ai.models import Model, ModelRequestContext
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

    from reverie.config import Settings

MAX_TRIES = 3
DEADLINE = 60.0
CONNECT_TIMEOUT = 20.0
MAX_TOKENS = 1024
MAX_BYTES = 1024 * 1024
MAX_CHARS = 64 * 1024
# How long a call may take after its deadline to close its connections.
CANCEL_TIMEOUT = 2.0

DUMMY_KEY = "no-key"
# The providers that may be named together with model_base_url: they speak OpenAI's protocol. Any
# other first part belongs to the model's own name, such as "mistral:7b".
_OPENAI_COMPATIBLE = ("openai", "openai-chat", "ollama", "vllm", "litellm")
# These providers need an HTTP client of another library, and make their own.
_OWN_CLIENT = ("groq", "cohere", "huggingface", "github")

_TEMPLATE = "Answer with one JSON object of this schema and with nothing else:\n{schema}"
_OBJECT_OR_ARRAY = re.compile(r'\{\s*["}]|\[\s*[\[\]{"\d-]')
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")
# Headers that the client libraries add and no service needs: the first describe this machine, the
# others hold OpenAI account names from the environment and are removed for other services.
_MACHINE_HEADERS = "x-stainless-"
_ACCOUNT_HEADERS = ("openai-organization", "openai-project")

# With these statuses a service refuses what it is asked, and not who asks, where or how often.
_REFUSALS = frozenset((400, 413, 422))
_FILTERED = "the service's content filter stopped the answer"

Result = TypeVar("Result")


def open_model(settings: Settings) -> ChatModel | None:
    """The configured chat model, or None. Imports PydanticAI, which takes a second."""
    if not settings.model:
        return None
    return PydanticAIModel(
        settings.model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key,
        outbound=settings.outbound,
    )


class PydanticAIModel:
    """Any model PydanticAI knows, or with ``base_url`` any OpenAI-compatible service."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str = "",
        deadline: float = DEADLINE,
        outbound: str = "any",
    ) -> None:
        try:
            import_module("pydantic_ai.models.openai")
        except ImportError as error:
            raise MissingExtra("a chat model", "llm") from error
        provider, _, rest = model.strip().partition(":")
        if base_url and provider not in _OPENAI_COMPATIBLE:
            provider, rest = "openai", model.strip()
        if not provider or not rest:
            raise ConfigError(
                f"model must be PROVIDER:MODEL, not {model!r}: for example openai:gpt-5-mini, "
                "or set model_base_url to an OpenAI-compatible address"
            )
        self.name = f"{provider}:{rest}"
        self._provider, self._model_name = provider, rest
        self._base_url, self._label = base_url, self.name
        self._is_loopback = self._without_schema = False
        if base_url:
            address = split_service_url(base_url)
            if address is None:
                raise ConfigError("model_base_url cannot be used: set it to http(s)://HOST/v1")
            self._is_loopback = is_loopback(address.hostname or "")
            self._label = f"{self.name} at {without_credentials(address)}"
        self._key = api_key.strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError("model_api_key holds a key that cannot be sent: check it")
        self._deadline = deadline
        self._public_only = outbound.lower() == "public"
        self._tls = _tls_context(not self._is_loopback)
        self._model(self._client())

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.name!r})"

    def ask(
        self,
        instructions: str,
        question: str,
        shape: type[Answer],
        check: Callable[[Answer], str | None] | None = None,
        before_call: Callable[[], None] | None = None,
    ) -> Answer:
        """Return one answer of this shape, after at most three tries within the deadline.

        ``check`` says what is wrong with an answer. The model reads it, and it may end up in the
        message of ModelFailed. ``before_call`` may raise CallLimit, or an error of Reverie's, which
        is raised here again.
        """
        hooks: dict[str, Any] = {"after_model_request": _answer_hook(shape, check)}
        if before_call is not None:
            hooks["before_model_request"] = _call_hook(before_call)
        while True:
            texts = (replace_surrogates(instructions), replace_surrogates(question))
            run = self._run_agent(*texts, shape, hooks)
            task = _run_in_thread(run, self._deadline + CANCEL_TIMEOUT)
            error = TimeoutError() if task is None or task.cancelled() else task.exception()
            if task is not None and error is None:
                return task.result()
            for cause in _exception_chain(error):
                if isinstance(cause, ReverieError):
                    raise cause
            if self._without_schema or _http_status(error) not in {400, 422}:
                break
            # Some services refuse a schema: from now on only the instructions hold it.
            self._without_schema = True
        # Without a cause: the service's own words may hold the key or the question.
        problem = f"{self._label} {self._describe_failure(error)}"
        raise ModelFailed(problem, refused=_is_refusal(error))

    async def _run_agent(
        self, instructions: str, question: str, shape: type[Answer], hooks: dict[str, Any]
    ) -> Answer:
        async with asyncio.timeout(self._deadline), self._client() as client:
            agent = self._agent(self._model(client), instructions, shape, hooks)
            async with agent:
                return (await agent.run(question)).output

    def _agent(
        self, model: Model[Any], instructions: str, shape: type[Answer], hooks: dict[str, Any]
    ) -> Agent[object, Answer]:
        from pydantic_ai import Agent, NativeOutput, PromptedOutput
        from pydantic_ai.capabilities import Hooks

        # The instructions always hold the schema: not every service that takes one enforces it.
        output: NativeOutput[Answer] | PromptedOutput[Answer]
        if model.profile.get("supports_json_schema_output") and not self._without_schema:
            output = NativeOutput(shape, strict=True, template=_TEMPLATE)
        else:
            output = PromptedOutput(shape, template=_TEMPLATE)
        agent = Agent(
            model,
            output_type=output,
            instructions=instructions,
            name="reverie",
            retries={"output": MAX_TRIES - 1, "tools": 0},
            model_settings=_model_settings(model),
            capabilities=[Hooks(**hooks)],
        )
        agent.instrument = False
        return agent

    def _model(self, client: httpx2.AsyncClient) -> Model[Any]:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model

        if self._base_url:
            return self._compatible_model(client)
        try:
            return infer_model(self.name, lambda provider: self._make_provider(provider, client))
        except ImportError as error:
            raise ConfigError(
                f"models of {self._provider} need a package that is not installed: "
                f"pip install 'pydantic-ai-slim[{self._provider}]'"
            ) from error
        except UserError as error:
            variables = " or ".join(dict.fromkeys(_VARIABLE.findall(str(error))))
            setting = (
                "model_base_url" if re.search("_(URL|ENDPOINT)", variables) else "model_api_key"
            )
            wanted = f"{variables}, or {setting}" if variables else setting
            raise ConfigError(f"{self.name} is not configured: set {wanted}") from error
        except (ValueError, TypeError, LookupError) as error:
            raise ConfigError(
                f"{self._provider!r} is not a provider that PydanticAI can use: "
                "set model to PROVIDER:MODEL, or model_base_url to an OpenAI-compatible address"
            ) from error

    def _compatible_model(self, client: httpx2.AsyncClient) -> Model[Any]:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        known = OpenAICompatibleProvider.model_profile(self._model_name) or {}
        provider = OpenAICompatibleProvider(
            "openai",
            base_url=self._base_url,
            api_key=self._key or DUMMY_KEY,
            http_client=client,
            # What every OpenAI-compatible server understands.
            profile=OpenAIModelProfile(
                supports_json_schema_output=True,
                supports_json_object_output=False,  # a server without schemas gets no format at all
                openai_chat_supports_multiple_system_messages=False,
                # Few servers know the new name; OpenAI's reasoning models refuse the old one.
                openai_chat_supports_max_completion_tokens=bool(
                    known.get("openai_supports_reasoning")
                ),
            ),
        )
        return OpenAIChatModel(self._model_name, provider=provider)

    def _make_provider(self, name: str, client: httpx2.AsyncClient) -> Provider[Any]:
        from pydantic_ai.providers import infer_provider_class
        from pydantic_ai.providers.gateway import gateway_provider

        upstream = name.removeprefix("gateway/")
        made: Callable[..., Provider[Any]] = infer_provider_class(name)
        accepted = signature(made).parameters
        arguments: dict[str, Any] = {}
        if "http_client" in accepted and upstream not in _OWN_CLIENT:
            arguments["http_client"] = client
        if self._key and "api_key" in accepted:
            arguments["api_key"] = self._key
        return gateway_provider(upstream, **arguments) if upstream != name else made(**arguments)

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        # It imports httpx2, which is optional.
        from reverie.http_transports import PublicAsyncTransport

        unneeded = (_MACHINE_HEADERS, *(_ACCOUNT_HEADERS if self._base_url else ()))

        async def send_less(request: httpx2.Request) -> None:
            for name in [name for name in request.headers if name.lower().startswith(unneeded)]:
                del request.headers[name]
            request.headers["User-Agent"] = "reverie"

        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(self._deadline, connect=CONNECT_TIMEOUT),
            follow_redirects=False,
            # A compressed megabyte could be a gigabyte.
            headers={"Accept-Encoding": "identity"},
            event_hooks={"request": [send_less], "response": [_read_response]},
            verify=self._tls,
            transport=PublicAsyncTransport(self._tls) if self._public_only else None,
            # No proxy lies between a program and its own machine.
            trust_env=not self._is_loopback,
        )

    def _describe_failure(self, error: BaseException | None) -> str:
        import httpx2

        if status := _status_problem(_http_status(error)):
            return status
        for cause in _exception_chain(error):
            if isinstance(cause, _BadResponse | CallLimit):
                return str(cause)
            if isinstance(cause, _InvalidAnswer):
                return f"gave no usable answer in {MAX_TRIES} tries: {cause.problem}"
            if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
                return "cannot be reached: check the network and the address"
            if isinstance(cause, TimeoutError | httpx2.TimeoutException):
                return f"did not answer within {self._deadline:g} s: try again later"
            if isinstance(cause, httpx2.TransportError):
                kind = type(cause).__name__
                return f"cannot be reached or broke off ({kind}): check the network and the address"
        return f"gave no usable answer ({type(error).__name__}): check that it is a chat model"


class CallLimit(Exception):
    """No further request may be sent; the text completes a sentence about the model."""


class _BadResponse(Exception):
    """An HTTP response that cannot be used; the text completes a sentence about the model."""


class _InvalidAnswer(Exception):
    """An answer that the model has to give again.

    ``problem`` may be shown to people; ``hint`` is for the model alone, as it may quote the answer.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem} ({hint})" if hint else problem)
        self.problem = problem


def _call_hook(before_call: Callable[[], None]) -> Any:
    """Return a hook that calls a function before each request."""

    async def call_first(
        _: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        before_call()
        return request_context

    return call_first


def _answer_hook(shape: type[Answer], check: Callable[[Answer], str | None] | None) -> Any:
    """Return a hook that reduces a response to the JSON of its one answer, or asks again."""

    async def reduce_response(
        _: RunContext[Any], /, *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        from pydantic_ai import ModelRetry, TextPart

        try:
            response.parts = [TextPart(_find_answer(_response_text(response), shape, check))]
        except _InvalidAnswer as unusable:
            raise ModelRetry(
                f"{unusable}. Answer again with one JSON object of the schema, nothing else."
            ) from unusable
        return response

    return reduce_response


def _find_answer(
    text: str, shape: type[Answer], check: Callable[[Answer], str | None] | None
) -> str:
    """Return the one JSON object in the text that fits the shape and passes the check."""
    fitting: list[tuple[str, Answer]] = []
    misfits: list[_InvalidAnswer] = []
    for source, value in _find_json_objects(text):
        _require_storable(value)
        try:
            fitting.append((source, _validate(source, shape)))
        except _InvalidAnswer as misfit:
            misfits.append(misfit)
    if len(fitting) > 1:
        raise _InvalidAnswer("there is more than one JSON object of the schema")
    if not fitting:
        raise misfits[-1] if misfits else _InvalidAnswer("there is no JSON object")
    source, answer = fitting[0]
    if check and (wrong := check(answer)):
        raise _InvalidAnswer(wrong)
    return source


def _validate(source: str, shape: type[Answer]) -> Answer:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(shape).validate_json(source)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'the object'}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False)[:5]
        )
        raise _InvalidAnswer("the JSON does not fit the schema", wrong) from None


def _response_text(response: ModelResponse) -> str:
    if response.finish_reason == "length":
        raise _InvalidAnswer("the answer was cut off because it is too long")
    if response.finish_reason == "content_filter":
        raise _InvalidAnswer(_FILTERED)
    if response.tool_calls:
        raise _InvalidAnswer("there are no tools to call")
    text = response.text or ""
    if not text.strip():
        raise _InvalidAnswer("the answer is empty")
    if len(text) > MAX_CHARS:
        raise _InvalidAnswer("the answer is too long")
    return text


def _find_json_objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every JSON object that is not part of another value, and the text it was read from.

    What begins like JSON and is none ends the search: nothing is picked out of broken JSON.
    """
    at = 0
    while begins := _OBJECT_OR_ARRAY.search(text, at):
        try:
            value, at = _STRICT_JSON.raw_decode(text, begins.start())
        except (ValueError, RecursionError) as error:
            hint = str(error) if isinstance(error, json.JSONDecodeError) else ""
            raise _InvalidAnswer("the JSON is broken", hint) from None
        if isinstance(value, dict):
            yield text[begins.start() : at], value


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return found


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# Python's default lets the last of two equal keys win, and reads NaN and Infinity.
_STRICT_JSON = json.JSONDecoder(
    object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant
)


def _require_storable(value: Any) -> None:
    """Refuse a value with NUL or half a surrogate pair in a text: no store can hold it."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and ("\0" in each or SURROGATE.search(each)):
            raise _InvalidAnswer("the JSON has NUL or a lone surrogate")


def _status_problem(status: int) -> str | None:
    """Say what an HTTP status means for the caller and what to do; None when it is good."""
    if status in {408, 429} or status >= 500:
        return f"is busy or failing (HTTP {status}): try again later"
    if status in {401, 403}:
        return f"refused the key (HTTP {status}): check model_api_key"
    if 300 <= status < 400:
        return (
            f"redirects (HTTP {status}), which is not followed: set model_base_url to the "
            "final address"
        )
    if status >= 400:
        return f"refused (HTTP {status}): check model and model_base_url"
    return None


def _is_refusal(error: BaseException | None) -> bool:
    """Whether a service refused the text of a question, so that it may answer another one."""
    return _http_status(error) in _REFUSALS or any(
        isinstance(each, _InvalidAnswer) and each.problem == _FILTERED
        for each in _exception_chain(error)
    )


@cache
def _tls_context(trust_env: bool) -> Any:
    """Read the trusted certificates once: it takes longer than the rest of a request's setup."""
    return import_module("httpx2").create_ssl_context(trust_env=trust_env)


def _http_status(error: BaseException | None) -> int:
    """Return the HTTP status that a client library reports in this error, or 200."""
    found = (getattr(each, "status_code", None) for each in _exception_chain(error))
    return next((status for status in found if isinstance(status, int)), 200)


async def _read_response(response: httpx2.Response) -> None:
    """Read and check a response before a client library does.

    The libraries guess encodings, accept repeated keys and read any number of bytes. The body of a
    refusal is dropped unread: it may be endless, and the status says enough.
    """
    import httpx2

    received, body = response.stream, bytearray()
    assert isinstance(received, httpx2.AsyncByteStream)
    try:
        if response.is_success:
            _require_json_headers(response.headers)
            async for chunk in received:
                body += chunk
                if len(body) > MAX_BYTES:
                    raise _BadResponse("answered with more than 1 MB")
            _require_json_object(body)
    finally:
        await received.aclose()
    response.stream = httpx2.ByteStream(bytes(body))


def _require_json_headers(headers: httpx2.Headers) -> None:
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _BadResponse("answered in an encoding that was not asked for")
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _BadResponse("did not answer with JSON: check model_base_url")


def _require_json_object(body: bytearray) -> None:
    try:
        value = _STRICT_JSON.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise _BadResponse("did not answer with a JSON object in UTF-8")


def _model_settings(model: Model[Any]) -> ModelSettings:
    from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings

    settings: OpenAIResponsesModelSettings = {"max_tokens": MAX_TOKENS, "thinking": False}
    if isinstance(model, OpenAIResponsesModel):
        settings["openai_store"] = False  # without it OpenAI keeps what it was asked
    if not model.profile.get("thinking_always_enabled"):
        settings["temperature"] = 0.0
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    return settings


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _run_in_thread(
    work: Coroutine[Any, Any, Result], longest: float
) -> asyncio.Task[Result] | None:
    """Run it on a new event loop in a new thread; return None when it takes longer."""
    ended: list[asyncio.Task[Result]] = []
    thread = Thread(
        target=lambda: ended.append(asyncio.run(_run_to_end(work))),
        name="reverie-model",
        daemon=True,
    )
    thread.start()
    thread.join(longest)
    return ended[0] if ended else None


async def _run_to_end(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    asyncio.get_running_loop().set_default_executor(_DaemonThreads())
    task = asyncio.create_task(work)
    await asyncio.wait([task])
    return task


class _DaemonThreads(ThreadPoolExecutor):
    """Looks up each host name in a new daemon thread, for which Python does not wait at its exit.

    It does wait for the threads of every other pool, and a lookup may take minutes.
    """

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        outcome: Future[Result] = Future()
        outcome.set_running_or_notify_cancel()

        def run() -> None:
            try:
                outcome.set_result(fn(*args, **kwargs))
            except (OSError, ValueError) as error:
                outcome.set_exception(error)

        Thread(target=run, name="reverie-lookup", daemon=True).start()
        return outcome
