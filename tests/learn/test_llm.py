"""Asking a model over a real connection, also one that misbehaves."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from reverie.config import Settings
from reverie.errors import ConfigError, MissingExtra, ModelFailed
from reverie.learn import llm
from reverie.learn.llm import PydanticAIModel, open_model
from reverie.learn.prompts import extract_facts
from reverie.testing import (
    Answer,
    Closed,
    Drip,
    Huge,
    Raw,
    ScriptedModel,
    Status,
    Truncated,
    completion,
)

KEY = "sk-very-secret"
PRIVATE = "What about the garden?"
GOOD = {"name": "green", "warm": False}


class Colour(BaseModel):
    """What a colour is called."""

    model_config = ConfigDict(strict=True)

    name: str
    warm: bool


def model_at(model: ScriptedModel, deadline: float = llm.DEADLINE) -> PydanticAIModel:
    return PydanticAIModel(
        "openai:scripted", base_url=model.base_url, api_key=KEY, deadline=deadline
    )


def ask(model: PydanticAIModel, question: str = "Which colour is grass?") -> Colour:
    return model.ask("Name the colour.", question, Colour)


def failure(answer: Answer, deadline: float = llm.DEADLINE) -> tuple[str, int]:
    """The message that this answer, repeated, leads to, and how often the model was asked."""
    with ScriptedModel(lambda _: answer) as scripted:
        with pytest.raises(ModelFailed) as caught:
            ask(model_at(scripted, deadline), PRIVATE)
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert KEY not in shown
        assert "garden" not in shown
        message = str(caught.value)
        assert "\n" not in message
        assert message.startswith(f"openai:scripted at {scripted.base_url} ")
        return message, len(scripted.requests)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "OLLAMA_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda _: GOOD) as running:
        yield running


def test_open_model_without_a_model_is_none() -> None:
    assert open_model(Settings()) is None


def test_open_model_uses_the_settings(scripted: ScriptedModel) -> None:
    model = open_model(scripted.settings(model_api_key=f" {KEY}\n"))
    assert isinstance(model, PydanticAIModel)
    assert model.name == "openai:scripted"
    assert KEY not in repr(model)
    assert ask(model) == Colour(name="green", warm=False)
    assert scripted.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("configured", "name", "sent"),
    [
        ("gpt", "openai:gpt", "gpt"),
        ("openai:gpt", "openai:gpt", "gpt"),
        ("mistral:7b", "openai:mistral:7b", "mistral:7b"),
        ("ollama:llama3.2:1b", "ollama:llama3.2:1b", "llama3.2:1b"),
    ],
)
def test_base_url_allows_any_model_name(
    scripted: ScriptedModel, configured: str, name: str, sent: str
) -> None:
    model = open_model(scripted.settings(model=configured))
    assert model is not None
    assert model.name == name
    model.ask("Name the colour.", "Which?", Colour)
    assert scripted.requests[0]["model"] == sent


def test_request_holds_instructions_schema_and_no_foreign_credentials(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "for-somebody-else")
    model = open_model(scripted.settings())
    assert model is not None
    model.ask("Name {the} colour.", "Which\ud800 one?", Colour)
    request, headers = scripted.requests[0], scripted.headers[0]
    sent = request["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["required"] == ["name", "warm"]
    assert (request["temperature"], request["max_tokens"], request["stream"]) == (0, 1024, False)
    system, user = request["messages"]
    assert system["content"].startswith("Name {the} colour.")
    assert '"warm": {"type": "boolean"}' in system["content"]
    assert (system["role"], user) == ("system", {"role": "user", "content": "Which? one?"})
    assert headers["authorization"] == "Bearer no-key"
    assert headers["user-agent"] == "reverie"
    assert "for-somebody-else" not in str(headers)
    assert not [name for name in headers if name.startswith(("x-", "traceparent"))]


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD, indent=2),
        f"```json\n{json.dumps(GOOD)}\n```",
        f"Sure! It is {json.dumps(GOOD)}, as {{everybody}} [and their dog] knows [1].",
        f'You asked {{"colour": "of grass"}}, which is {json.dumps(GOOD)}',
        f'<think>Maybe {{"name": "blue", "warm": true}}?</think>{json.dumps(GOOD)}',
    ],
)
def test_reply_with_one_object_of_the_schema_is_parsed(reply: str) -> None:
    with ScriptedModel([reply]) as scripted:
        assert ask(model_at(scripted)) == Colour(name="green", warm=False)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("It is green.", "no JSON object"),
        (f"{json.dumps(GOOD)} or {json.dumps(GOOD)}", "more than one JSON object"),
        (f'{{"answer": {json.dumps(GOOD)},}}', "the JSON is broken"),
        (f"[{json.dumps(GOOD)}", "the JSON is broken"),
        ([GOOD], "no JSON object"),
        (json.dumps(json.dumps(GOOD)), "no JSON object"),
        ('{"name": "green", "name": "red", "warm": false}', "the JSON is broken"),
        ('{"name": "green", "warm": Infinity}', "the JSON is broken"),
        ('{"name": "green", "warm": 1' + "0" * 5_000 + "}", "the JSON is broken"),
        ({"name": "green", "warm": "no"}, "does not fit the schema"),
        ({"name": "green"}, "does not fit the schema"),
        ({"name": "a\x00b", "warm": False}, "NUL or a lone surrogate"),
        ({"name": "a\udfffb", "warm": False}, "NUL or a lone surrogate"),
        ({"name": "a", "warm": False, "more": {"\ud800": 1}}, "NUL or a lone surrogate"),
        ({**GOOD, "name": "x" * llm.MAX_CHARS}, "the answer is too long"),
        ("", "the answer is empty"),
        (Raw(completion(GOOD, finish_reason="length")), "cut off"),
        (Raw(completion("", finish_reason="content_filter")), "content filter"),
    ],
)
@pytest.mark.sample(4)
def test_invalid_reply_is_explained_to_the_model_and_asked_again(
    reply: Answer, problem: str
) -> None:
    with ScriptedModel([reply, reply, GOOD]) as scripted:
        assert ask(model_at(scripted)) == Colour(name="green", warm=False)
        first, second, third = scripted.requests
        assert len(first["messages"]) < len(second["messages"]) < len(third["messages"])
        assert second["messages"][: len(first["messages"])] == first["messages"]
        assert second["messages"][-1]["role"] == "user"
        assert problem in second["messages"][-1]["content"]
    message, asked = failure(reply)
    assert "gave no usable answer in 3 tries: " in message
    assert problem in message
    assert asked == llm.MAX_TRIES


def test_validation_error_is_shown_to_the_model_and_not_in_our_errors() -> None:
    wrong = {"name": 42, "warm": False}
    with ScriptedModel([wrong, GOOD]) as scripted:
        ask(model_at(scripted))
        assert "name: Input should be a valid string" in str(scripted.requests[1]["messages"][-1])
    assert failure(wrong)[0].endswith(": the JSON does not fit the schema")


def test_check_function_can_reject_a_valid_reply() -> None:
    def check(answer: Colour) -> str | None:
        return None if answer.name == "green" else "the name must be green"

    red = {"name": "red", "warm": True}
    with ScriptedModel([red, GOOD]) as scripted:
        answer = model_at(scripted).ask("Name it.", "Which?", Colour, check)
        assert answer.name == "green"
        assert "the name must be green" in scripted.requests[1]["messages"][-1]["content"]
    with ScriptedModel([red] * 9) as scripted:
        with pytest.raises(ModelFailed, match=r"in 3 tries: the name must be green$"):
            model_at(scripted).ask("Name it.", "Which?", Colour, check)
        assert len(scripted.requests) == llm.MAX_TRIES


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Status(401, KEY), "refused the key (HTTP 401): check model_api_key"),
        (Status(404, "garden"), "refused (HTTP 404): check model and model_base_url"),
        (Status(429, "garden", {"Retry-After": "1"}), "busy or failing (HTTP 429)"),
        (Status(503, "garden"), "busy or failing (HTTP 503)"),
        (Status(302, headers={"Location": "http://127.0.0.1:9/"}), "not followed"),
        (Status(200, "{}", {"Content-Encoding": "gzip"}), "encoding that was not asked for"),
        (Raw(completion(GOOD), "text/plain"), "did not answer with JSON"),
        (Raw(completion(GOOD).replace(b"green", b"gr\xffn")), "JSON object in UTF-8"),
        (Raw(b'{"garden": 1, "garden": 2}'), "JSON object in UTF-8"),
        (Raw(b'{"object": "list", "data": []}'), "check that it is a chat model"),
        (Truncated(GOOD, 50), "broke off"),
        (Closed(), "broke off"),
    ],
)
def test_failing_service_is_asked_once_and_named(answer: Answer, says: str) -> None:
    message, asked = failure(answer)
    assert says in message
    assert asked == 1


def test_oversized_reply_is_cut_off() -> None:
    assert "more than 1 MB" in failure(Huge(10**15))[0]
    most = completion(GOOD).ljust(llm.MAX_BYTES)
    with ScriptedModel([Raw(most)]) as scripted:
        assert ask(model_at(scripted)).name == "green"
    assert "more than 1 MB" in failure(Raw(most + b" "))[0]


def test_deadline_ends_a_dripping_reply() -> None:
    assert "did not answer within 0.3 s" in failure(Drip(GOOD, 0.05), deadline=0.3)[0]


def test_deadline_covers_all_tries_together() -> None:
    pause = 0.5 / len(completion("nonsense"))
    message, asked = failure(Drip("nonsense", pause), deadline=0.8)
    assert "did not answer within 0.8 s" in message
    assert asked <= 2


def test_unreachable_model_server_is_a_typed_error() -> None:
    with ScriptedModel([]) as gone:
        address = gone.base_url
    with pytest.raises(ModelFailed, match="cannot be reached"):
        ask(PydanticAIModel("m", base_url=address))


def test_model_on_this_machine_is_reached_without_a_proxy(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask(model_at(scripted)).name == "green"


def test_pydantic_ai_provider_is_used(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = open_model(Settings(model="openai-chat:gpt-4o"))
    assert model is not None
    assert model.name == "openai-chat:gpt-4o"
    assert model.ask("Name it.", "Which?", Colour).name == "green"
    assert scripted.headers[0]["authorization"] == f"Bearer {KEY}"
    assert scripted.requests[0]["response_format"]["type"] == "json_schema"


def test_provider_without_schemas_gets_the_schema_in_the_prompt(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai.models.openai import OpenAIChatModel

    plain = property(lambda _: {"supports_json_schema_output": False})
    monkeypatch.setattr(OpenAIChatModel, "profile", plain)
    assert ask(model_at(scripted)).name == "green"
    request = scripted.requests[0]
    assert "response_format" not in request
    assert '"warm": {"type": "boolean"}' in str(request["messages"]).replace("\\", "")


def test_a_status_that_a_provider_reports_is_described_without_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models.openai import OpenAIChatModel

    async def refuse(*_: object) -> None:
        raise ModelHTTPError(401, "m", {"error": KEY})

    monkeypatch.setattr(OpenAIChatModel, "request", refuse)
    with pytest.raises(ModelFailed) as caught:
        ask(PydanticAIModel("m", base_url="http://127.0.0.1:9/v1"))
    assert str(caught.value).endswith("refused the key (HTTP 401): check model_api_key")


def test_openai_request_asks_not_to_store_it(
    scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = PydanticAIModel("openai:o3")
    made = model._model(model._client())
    assert isinstance(made, OpenAIResponsesModel)
    # A model that always reasons refuses a temperature.
    assert dict(llm._model_settings(made)) == {
        "max_tokens": 1024,
        "thinking": False,
        "openai_store": False,
        "max_retries": 0,
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "gpt-5"}, "model must be PROVIDER:MODEL, not 'gpt-5'"),
        ({"model": "openai:"}, "model must be PROVIDER:MODEL"),
        ({"model": ":x"}, "model must be PROVIDER:MODEL"),
        ({"model": "nobody:x"}, "'nobody' is not a provider that PydanticAI can use"),
        ({"model": "openai:x"}, "openai:x is not configured: set OPENAI_API_KEY, or model_api_key"),
        ({"model": "ollama:x"}, "set OLLAMA_BASE_URL, or model_base_url"),
        ({"model": "x", "model_base_url": "ftp://x/v1"}, "model_base_url cannot be used"),
        ({"model": "x", "model_base_url": "http://[x/v1"}, "model_base_url cannot be used"),
        ({"model": "x", "model_base_url": "http://x:0/"}, "model_base_url cannot be used"),
        ({"model": "openai:x", "model_api_key": "k\u00e9y"}, "a key that cannot be sent"),
        ({"model": "openai:x", "model_api_key": "k\ney"}, "a key that cannot be sent"),
    ],
)
def test_unusable_model_settings_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model(Settings(**settings))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_provider_with_a_missing_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "pydantic_ai.providers.anthropic", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'pydantic-ai-slim\[anthropic\]'"):
        open_model(Settings(model="anthropic:claude", model_api_key="k"))


def test_missing_llm_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    with pytest.raises(MissingExtra) as caught:
        open_model(Settings(model="openai:x", model_api_key="k"))
    assert caught.value.extra == "llm"


def test_credentials_in_a_base_url_are_not_shown() -> None:
    with ScriptedModel([Status(500)]) as scripted:
        address = scripted.base_url.replace("http://", f"http://me:{KEY}@")
        with pytest.raises(ModelFailed) as caught:
            ask(PydanticAIModel("m", base_url=address))
        assert str(caught.value).startswith(f"openai:m at {scripted.base_url} is busy")


def test_ask_works_inside_a_running_event_loop(scripted: ScriptedModel) -> None:
    model = model_at(scripted)

    async def inside() -> list[Colour]:
        return [ask(model), await asyncio.to_thread(ask, model), ask(model)]

    assert [each.name for each in asyncio.run(inside())] == ["green"] * 3


def test_ask_works_from_many_threads_repeatedly() -> None:
    def echo(request: dict[str, Any]) -> Answer:
        return {"name": request["messages"][-1]["content"], "warm": True}

    with ScriptedModel(echo) as scripted:
        model = model_at(scripted)
        ask(model)
        names = [str(number) for number in range(24)]
        threads, files = set(threading.enumerate()), open_files()
        with ThreadPoolExecutor(4) as pool:
            found = [answer.name for answer in pool.map(lambda name: ask(model, name), names)]
        gc.collect()
        assert found == names
        left = {each.name for each in set(threading.enumerate()) - threads}
        assert not {name for name in left if name.startswith("reverie")}
        assert open_files() <= files


PRELUDE = """
import os, sys
from pydantic import BaseModel
from reverie.errors import ModelFailed
from reverie.learn.llm import PydanticAIModel
from reverie.testing import ScriptedModel

class Colour(BaseModel):
    name: str
"""

AFTER_FORK = """
with ScriptedModel(lambda _: {"name": "green"}) as scripted:
    model = PydanticAIModel("m", base_url=scripted.base_url)
    assert model.ask("Name it.", "Which?", Colour).name == "green"
    child = os.fork()
    if child == 0:
        answer = model.ask("Name it.", "Which?", Colour)
        os._exit(0 if answer.name == "green" else 1)
    assert model.ask("Name it.", "Which?", Colour).name == "green"
    assert os.waitpid(child, 0)[1] == 0
    assert len(scripted.requests) == 3
"""

LOST_IN_A_LOOKUP = """
import socket, time
socket.getaddrinfo = lambda *_, **__: time.sleep(3600)
try:
    PydanticAIModel("m", base_url="http://nowhere.test/v1", deadline=0.2).ask("", "?", Colour)
except ModelFailed as error:
    assert "did not answer within 0.2 s" in str(error), error
else:
    sys.exit("an answer from nowhere")
"""

NOBODY_ELSE = """
reached = []

def watch(event, arguments):
    if event == "socket.connect":
        reached.append(arguments[1])
    elif event in {"socket.getaddrinfo", "socket.sendto"}:
        reached.append(event)

sys.addaudithook(watch)
with ScriptedModel(lambda _: {"name": "green"}) as scripted:
    address = ("127.0.0.1", int(scripted.base_url.split(":")[2].split("/")[0]))
    PydanticAIModel("m", base_url=scripted.base_url).ask("Name it.", "Which?", Colour)
    assert reached and set(reached) == {address}, reached
assert not {"logfire", "opentelemetry.sdk", "tiktoken"} & set(sys.modules)
"""


@pytest.mark.parametrize(
    "script", [AFTER_FORK, LOST_IN_A_LOOKUP, NOBODY_ELSE], ids=["fork", "exit", "connections"]
)
@pytest.mark.sample(3)
def test_ask_works_in_a_process_of_its_own(script: str, tmp_path: Path) -> None:
    """After a fork; ending while a name is still being looked up; talking to nobody else."""
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_reverie_learn_loads_no_client() -> None:
    code = "import sys, reverie.learn.llm; print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("refused", [{"json_schema"}, {"json_schema", "json_object"}])
def test_service_that_rejects_schemas_is_asked_without_one(refused: set[str]) -> None:
    def answer(request: dict[str, Any]) -> Any:
        form = request.get("response_format", {}).get("type")
        return Status(400, '{"error": "response_format"}') if form in refused else {"facts": []}

    with ScriptedModel(answer) as scripted:
        model = PydanticAIModel("openai:plain", base_url=scripted.base_url)
        assert extract_facts(model, "I live in Rome") == []
        assert extract_facts(model, "I live in Bari") == []
        asked = ["response_format" in request for request in scripted.requests]
    assert asked == [True, False, False]
