"""A chat model reached through PydanticAI: one answer of a given shape in time, or ModelFailed.

Each ask has its own thread, event loop and connections, so that it works from any thread, inside a
running loop and after a fork, and leaves nothing open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from importlib import import_module
from inspect import signature
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from reverie.errors import ConfigError, MissingExtra, ModelFailed
from reverie.http_guard import guarded_async
from reverie.protocols import Answer, ChatModel
from reverie.text.normalize import SURROGATE

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai import Agent, ModelResponse, RunContext
    from pydantic_ai.models import Model, ModelRequestContext
    from pydantic_ai.profiles import ModelProfile
    from pydantic_ai.providers import Provider
    from pydantic_ai.settings import ModelSettings

    from reverie.config import Settings

MAX_TRIES = 3
DEADLINE = 60.0
CONNECT_TIMEOUT = 20.0
MAX_TOKENS = 1024
MAX_BYTES = 1024 * 1024
MAX_CHARS = 64 * 1024
# What a cancelled ask may take to let go of its connections before it is left to itself.
CANCEL_TIMEOUT = 2.0

DUMMY_KEY = "no-key"
# These speak OpenAI's protocol, so that model_base_url may go with them. Any other first part
# belongs to the model's own name, such as "mistral:7b".
_OPENAI_COMPATIBLE = ("openai", "openai-chat", "ollama", "vllm", "litellm")
# These want a client of another library, and bring their own.
_OWN_CLIENT = ("groq", "cohere", "huggingface", "github")

_TEMPLATE = "Answer with one JSON object of this schema and with nothing else:\n{schema}"
_OBJECT_OR_ARRAY = re.compile(r'\{\s*["}]|\[\s*[\[\]{"\d-]')
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`")
# What a client tells about this machine is nobody's business, and what it reads about an account
# from the environment is for OpenAI only.
_MACHINE_HEADERS = "x-stainless-"
_ACCOUNT_HEADERS = ("openai-organization", "openai-project")

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
            place, self._is_loopback = _parse_base_url(base_url)
            self._label = f"{self.name} at {place}"
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
    ) -> Answer:
        """One answer of this shape; what ``check`` says may end up in the message of ModelFailed.

        The model is asked at most three times, all within the deadline.
        """
        while True:
            reader = _AnswerParser(shape, check)
            asked = self._run_agent(_sendable(instructions), _sendable(question), reader)
            outcome = _run_in_thread(asked, self._deadline + CANCEL_TIMEOUT)
            error = TimeoutError() if outcome.cancelled() else outcome.exception()
            if error is None:
                return outcome.result()
            if self._without_schema or not _is_bad_request(error):
                break
            # Some services know no schemas and say so at once: the instructions hold it too.
            self._without_schema = True
        # Without a cause: the service's own words may hold the key or the question.
        raise ModelFailed(f"{self._label} {self._describe_failure(error, reader)}")

    async def _run_agent(
        self, instructions: str, question: str, reader: _AnswerParser[Answer]
    ) -> Answer:
        async with asyncio.timeout(self._deadline), self._client() as client:
            agent = self._agent(self._model(client), instructions, reader)
            async with agent:
                return (await agent.run(question)).output

    def _agent(
        self, model: Model[Any], instructions: str, reader: _AnswerParser[Answer]
    ) -> Agent[object, Answer]:
        from pydantic_ai import Agent, NativeOutput, PromptedOutput
        from pydantic_ai.capabilities import Hooks

        # The schema goes into the request where the service can enforce it, and always into the
        # instructions, for those that do not.
        output: NativeOutput[Answer] | PromptedOutput[Answer]
        if model.profile.get("supports_json_schema_output") and not self._without_schema:
            output = NativeOutput(reader.shape, strict=True, template=_TEMPLATE)
        else:
            output = PromptedOutput(reader.shape, template=_TEMPLATE)
        agent = Agent(
            model,
            output_type=output,
            instructions=instructions,
            name="reverie",
            retries={"output": MAX_TRIES - 1, "tools": 0},
            model_settings=_model_settings(model),
            capabilities=[Hooks(after_model_request=reader.parse_response)],
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
                f"{self._provider!r} is no provider that PydanticAI can use: "
                "set model to PROVIDER:MODEL, or model_base_url to an OpenAI-compatible address"
            ) from error

    def _compatible_model(self, client: httpx2.AsyncClient) -> Model[Any]:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        # A key in the environment is for OpenAI, never for whoever is at this address.
        service = AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._key or DUMMY_KEY,
            http_client=client,
            max_retries=0,
        )
        provider = OpenAICompatibleProvider("openai", openai_client=service, profile=_profile)
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

        unneeded = (_MACHINE_HEADERS, *(_ACCOUNT_HEADERS if self._base_url else ()))

        async def send_less(request: httpx2.Request) -> None:
            for name in [name for name in request.headers if name.lower().startswith(unneeded)]:
                del request.headers[name]
            request.headers["User-Agent"] = "reverie"

        async def receive(response: httpx2.Response) -> None:
            _require_json_response(response)
            response.stream = _limit_stream(response.stream)
            _require_json_object(await response.aread())

        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(self._deadline, connect=CONNECT_TIMEOUT),
            follow_redirects=False,
            # A compressed megabyte could be a gigabyte.
            headers={"Accept-Encoding": "identity"},
            event_hooks={"request": [send_less], "response": [receive]},
            verify=self._tls,
            transport=guarded_async(self._tls) if self._public_only else None,
            # No proxy lies between a program and its own machine.
            trust_env=not self._is_loopback,
        )

    def _describe_failure(self, error: BaseException, reader: _AnswerParser[Any]) -> str:
        import httpx2
        from pydantic_ai.exceptions import ModelHTTPError

        causes = list(_exception_chain(error))
        for cause in causes:
            if isinstance(cause, _BadResponse):
                return str(cause)
            if isinstance(cause, ModelHTTPError) and (said := _status_problem(cause.status_code)):
                return said
        for cause in causes:
            if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
                return "cannot be reached: check the network and the address"
            if isinstance(cause, TimeoutError | httpx2.TimeoutException):
                return f"did not answer within {self._deadline:g} s: try again later"
            if isinstance(cause, httpx2.TransportError):
                kind = type(cause).__name__
                return f"cannot be reached or broke off ({kind}): check the network and the address"
        if reader.tries >= MAX_TRIES and reader.problem:
            return f"gave no usable answer in {MAX_TRIES} tries: {reader.problem}"
        return f"gave no usable answer ({type(error).__name__}): check that it is a chat model"


class _BadResponse(Exception):
    """What came over the wire cannot be used; the text completes a sentence about the model."""

    def __init__(self, said: str, status: int = 200) -> None:
        super().__init__(said)
        self.status = status


class _InvalidAnswer(Exception):
    """An answer that is told to the model. ``hint`` is for its eyes only: it may quote it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(f"{problem} ({hint})" if hint else problem)
        self.problem = problem


class _AnswerParser(Generic[Answer]):
    """Finds the one answer of the shape in what a model said, or sends the model back."""

    def __init__(self, shape: type[Answer], check: Callable[[Answer], str | None] | None) -> None:
        self.shape = shape
        self.check = check
        self.tries = 0
        self.problem = ""

    async def parse_response(
        self,
        _: RunContext[Any],
        /,
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        """The response reduced to the JSON of its one answer."""
        from pydantic_ai import ModelRetry, TextPart

        self.tries += 1
        try:
            found = self.read(_response_text(response))
        except _InvalidAnswer as unusable:
            self.problem = unusable.problem
            raise ModelRetry(
                f"{unusable}. Answer again with one JSON object of the schema, nothing else."
            ) from None
        response.parts = [TextPart(found)]
        return response

    def read(self, text: str) -> str:
        fitting: list[tuple[str, Answer]] = []
        misfits: list[_InvalidAnswer] = []
        for source, value in _find_json_objects(text):
            _require_storable(value)
            try:
                fitting.append((source, self._validate(source)))
            except _InvalidAnswer as misfit:
                misfits.append(misfit)
        if len(fitting) > 1:
            raise _InvalidAnswer("there is more than one JSON object of the schema")
        if not fitting:
            raise misfits[-1] if misfits else _InvalidAnswer("there is no JSON object")
        source, answer = fitting[0]
        if self.check and (wrong := self.check(answer)):
            raise _InvalidAnswer(wrong)
        return source

    def _validate(self, source: str) -> Answer:
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(self.shape).validate_json(source)
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
        raise _InvalidAnswer("the service's content filter stopped the answer")
    if response.tool_calls:
        raise _InvalidAnswer("there are no tools to call")
    text = response.text or ""
    if not text.strip():
        raise _InvalidAnswer("the answer is empty")
    if len(text) > MAX_CHARS:
        raise _InvalidAnswer("the answer is too long")
    return text


def _find_json_objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every JSON object that is not part of another value, with the text it was read from.

    What begins like JSON and is none ends the search: nothing is picked out of broken JSON.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant
    )
    at = 0
    while begins := _OBJECT_OR_ARRAY.search(text, at):
        try:
            value, at = decoder.raw_decode(text, begins.start())
        except (ValueError, RecursionError) as error:
            hint = str(error) if isinstance(error, _InvalidAnswer | json.JSONDecodeError) else ""
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


def _require_storable(value: Any) -> None:
    """Text with half a character or a NUL can be stored nowhere."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and ("\0" in each or SURROGATE.search(each)):
            raise _InvalidAnswer("the JSON holds NUL or half a character")


def _status_problem(status: int) -> str | None:
    """What an HTTP status means for the one who asked; None when it is good."""
    if status in {408, 429} or status >= 500:
        return f"is busy or failing (HTTP {status}): try again later"
    if status in {401, 403}:
        return f"refused the key (HTTP {status}): check model_api_key"
    if 300 <= status < 400:
        return (
            f"redirects (HTTP {status}), which is not followed: set model_base_url to the "
            "final address"
        )
    if not 200 <= status < 300:
        return f"refused (HTTP {status}): check model and model_base_url"
    return None


@cache
def _tls_context(trust_env: bool) -> Any:
    """Read once: it takes longer than everything else before a request."""
    return import_module("httpx2").create_ssl_context(trust_env=trust_env)


def _is_bad_request(error: BaseException) -> bool:
    """Whether the service understood a request and would not have it."""
    return any(
        isinstance(each, _BadResponse) and each.status in {400, 422}
        for each in _exception_chain(error)
    )


def _require_json_response(response: httpx2.Response) -> None:
    """Everything but a plain JSON answer is refused by its head, and its body is not read."""
    if refusal := _status_problem(response.status_code):
        raise _BadResponse(refusal, response.status_code)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _BadResponse("answered in an encoding that was not asked for")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _BadResponse("did not answer with JSON: check model_base_url")


def _limit_stream(stream: Any) -> httpx2.AsyncByteStream:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            size = 0
            async for chunk in stream:
                size += len(chunk)
                if size > MAX_BYTES:
                    raise _BadResponse("answered with more than 1 MB")
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def _require_json_object(body: bytes) -> None:
    """The clients behind PydanticAI guess encodings and let the last of two equal keys win."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_reject_duplicate_keys,
            parse_constant=_reject_constant,
        )
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


def _profile(name: str) -> ModelProfile:
    """What every OpenAI-compatible server understands."""
    from pydantic_ai.profiles import merge_profile
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    known = OpenAICompatibleProvider.model_profile(name) or {}
    plain = OpenAIModelProfile(
        supports_json_schema_output=True,
        supports_json_object_output=False,  # where schemas are refused, nothing is asked for
        openai_chat_supports_multiple_system_messages=False,
        # Few servers know the new name; OpenAI's reasoning models refuse the old one.
        openai_chat_supports_max_completion_tokens=bool(known.get("openai_supports_reasoning")),
    )
    return merge_profile(known, plain)


def _parse_base_url(base_url: str) -> tuple[str, bool]:
    """The address without credentials, for messages, and whether it is this machine."""
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = None
    if not usable:
        raise ConfigError("model_base_url cannot be used: set it to http(s)://HOST/v1")
    host = parts.hostname or ""
    try:
        near = ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", near


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class _DaemonThreads(ThreadPoolExecutor):
    """Looks up host names. Python waits at its end for the threads of every other pool."""

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


def _run_in_thread(work: Coroutine[Any, Any, Result], longest: float) -> Future[Result]:
    """Run it on an event loop of its own in a thread of its own; cancelled when it takes longer."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_DaemonThreads())
    outcome = asyncio.run_coroutine_threadsafe(work, loop)
    thread = Thread(target=_run_loop, args=(loop,), name="reverie-model", daemon=True)
    thread.start()
    try:
        wait([outcome], longest)
    finally:
        outcome.cancel()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CANCEL_TIMEOUT)
    return outcome


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_tasks(loop))
    finally:
        loop.close()


async def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await loop.shutdown_asyncgens()
