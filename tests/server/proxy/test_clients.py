"""The clients people have, as they are: OpenAI's own, curl, PydanticAI, Open WebUI, the AI SDK."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest

from reverie.testing import completion
from tests.server.conftest import CHAT, Proxied, Proxy
from tests.server.proxy.upstream import (
    Pieces,
    Received,
    Reply,
    Whole,
    event,
    says,
)

REPLY = "All is well"
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def calling(received: Received) -> Reply:
    """Calls the tool first, then says what it answered."""
    messages = received.messages
    stream = received.json.get("stream")
    if messages[-1]["role"] == "tool":
        return says(f"It is {messages[-1]['content']}")(received)
    function = {"name": "weather", "arguments": '{"city": "Naxos"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    if stream:
        begin = {**call, "index": 0, "function": {**function, "arguments": '{"city"'}}
        rest = {"index": 0, "function": {"arguments": ': "Naxos"}'}}
        return Pieces(
            [
                event({"role": "assistant", "content": None, "tool_calls": [begin]}),
                event({"tool_calls": [rest]}),
                event({}, "tool_calls"),
                b"data: [DONE]\n\n",
            ]
        )
    whole = json.loads(completion("x"))
    whole["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    whole["choices"][0]["finish_reason"] = "tool_calls"
    return Whole(json.dumps(whole).encode())


def remembering(it: Proxied) -> None:
    it.space.remember("The user is going to Naxos", subject="travel")


def texts(it: Proxied) -> list[str]:
    return [text for events in it.stored_events().values() for _, text, _ in events]


# -- OpenAI's own ---------------------------------------------------------------------------------


def official(it: Proxied, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{it.running.url}/v1",
        api_key=it.running.server_context.token,
        max_retries=0,
        **options,
    )


def test_openai_client_gets_memory_through_the_proxy(proxy: Proxy) -> None:
    it = proxy()
    remembering(it)
    with official(it) as client:
        answer = client.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "Where am I going?"}]
        )
        whole = answer.parse()
        assert whole.choices[0].message.content == REPLY
        assert whole.model_extra is not None and len(whole.model_extra["memory_hits"]) == 1
        assert answer.headers["x-reverie-hits"]
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "And when, roughly?"}], stream=True
        )
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert streamed == REPLY and "Naxos" in it.upstream.last.body.decode()
    assert texts(it).count(REPLY) == 2


def test_openai_async_client_works_through_the_proxy(proxy: Proxy) -> None:
    it = proxy()

    async def chat() -> str:
        async with openai.AsyncOpenAI(
            base_url=f"{it.running.url}/v1", api_key=it.running.server_context.token
        ) as client:
            whole = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "Where am I going?"}],
                user="ana",
                extra_body={"memory_id": "trip", "memory_top_k": 3},
            )
            assert whole.choices[0].message.content == REPLY
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "And when?"}], stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(chat()) == REPLY
    assert [info.id for info in it.running.store.space("default", user="ana").sessions()] == [
        "trip"
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_client_with_tools_works_through_the_proxy(proxy: Proxy, stream: bool) -> None:
    it = proxy(calling)
    messages: list[Any] = [{"role": "user", "content": "How is the weather on Naxos?"}]
    with official(it) as client:
        if stream:
            with client.chat.completions.stream(model="m", messages=messages, tools=[TOOL]) as got:
                message: Any = got.get_final_completion().choices[0].message
        else:
            got_whole = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
            message = got_whole.choices[0].message
        assert message.tool_calls is not None
        called = message.tool_calls[0]
        assert called.type == "function" and json.loads(called.function.arguments) == {
            "city": "Naxos"
        }
        messages += [
            message.model_dump(exclude_unset=True),
            {"role": "tool", "tool_call_id": called.id, "content": "sunny"},
        ]
        last = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    assert last.choices[0].message.content == "It is sunny"
    (events,) = it.stored_events().values()
    assert [role for role, _, _ in events] == ["user", "assistant", "tool", "assistant"]


def test_openai_client_reads_errors_of_proxy_and_upstream(proxy: Proxy) -> None:
    refused = b'{"error": {"message": "slow down", "type": "rate_limit", "code": "rate"}}'
    it = proxy(lambda _: Whole(refused, 429, [("Content-Type", "application/json"),
                                              ("Retry-After", "3")]))  # fmt: skip
    messages: Any = [{"role": "user", "content": "Are you there at all?"}]
    with official(it) as client:
        with pytest.raises(openai.RateLimitError, match="slow down") as limited:
            client.chat.completions.create(model="m", messages=messages)
        assert limited.value.response.headers["retry-after"] == "3"
        with pytest.raises(openai.BadRequestError, match="memory_top_k"):
            client.chat.completions.create(
                model="m", messages=messages, extra_body={"memory_top_k": -1}
            )
    with (
        official(it).with_options(api_key="wrong") as unknown,
        pytest.raises(openai.AuthenticationError, match="token"),
    ):
        unknown.chat.completions.create(model="m", messages=messages)


def test_openai_client_lists_models_and_embeds_through_the_proxy(proxy: Proxy) -> None:
    def script(received: Received) -> Reply:
        if received.target == "/v1/models":
            return Whole(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        return Whole(json.dumps({"object": "list", "data": [vector], "model": "e"}).encode())

    it = proxy(script)
    with official(it) as client:
        assert [model.id for model in client.models.list()] == ["m"]
        made = client.embeddings.create(model="e", input="x", encoding_format="float")
    assert made.data[0].embedding == [0.5] and it.stored_events() == {}


# -- others ---------------------------------------------------------------------------------------


def test_pydantic_ai_agent_works_through_the_proxy(proxy: Proxy) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    it = proxy(calling)
    remembering(it)

    def weather(city: str) -> str:
        return f"sunny in {city}"

    async def chat() -> tuple[str, str]:
        async with openai.AsyncOpenAI(
            base_url=f"{it.running.url}/v1", api_key=it.running.server_context.token
        ) as client:
            model = OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, instructions="Be brief.", tools=[weather])
            whole = await agent.run("How is the weather where I am going?")
            async with agent.run_stream("And how was the weather there yesterday?") as streamed:
                return whole.output, await streamed.get_output()

    assert asyncio.run(chat()) == ("It is sunny in Naxos",) * 2
    assert all("going to Naxos" in str(received.messages[0]) for received in it.upstream.requests)
    roles = [[role for role, _, _ in events] for events in it.stored_events().values()]
    assert roles == [["user", "assistant", "tool", "assistant"]] * 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("stream", [False, True])
def test_curl_works_through_the_proxy(proxy: Proxy, stream: bool) -> None:
    it = proxy()
    body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "Say a word"}]}
    done = subprocess.run(
        ["curl", "-sS", "-N", "-i", it.running.url + CHAT,
         "-H", "Content-Type: application/json",
         "-H", f"Authorization: Bearer {it.running.server_context.token}",
         "-d", json.dumps(body)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("HTTP/1.1 200") and "x-reverie-session:" in done.stdout
    assert ("data: [DONE]" in done.stdout) == stream
    assert texts(it) == ["Say a word", REPLY]


OPEN_WEBUI = {
    "X-OpenWebUI-User-Name": "Ana",
    "X-OpenWebUI-User-Id": "5c7bf72a-fe8c-42f8-979e-02a0ae1917b3",
    "X-OpenWebUI-User-Email": "ana@example.org",
    "X-OpenWebUI-User-Role": "user",
    "X-OpenWebUI-Chat-Id": "0b6a2f6e-2f0d-4b4e-9b0c-8f3f9a2f7b11",
}
TASKS = [
    "Generate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "Generate 1-3 broad tags categorizing the main themes of the chat history.",
    "Suggest 3-5 relevant follow-up questions that the user might naturally ask next.",
]


def test_open_webui_requests_work_through_the_proxy(proxy: Proxy) -> None:
    """A chat with files and switches of its own, then what it asks for by itself."""
    it = proxy()
    store = it.running.store
    ana = store.space("default", user=OPEN_WEBUI["X-OpenWebUI-User-Id"])
    ana.remember("Ana is going to Naxos", subject="travel")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    parts = [{"type": "text", "text": "What is on this picture?"}, image]
    body = {
        "stream": True,
        "model": "gpt-x",
        "messages": [{"role": "user", "content": parts}],
        "stream_options": {"include_usage": True},
        "params": {},
        "features": {"web_search": False},
        "chat_id": "0b6a", "id": "m1", "session_id": "xyz", "files": [{"type": "file", "id": "f"}],
        "background_tasks": {"title_generation": True},
    }  # fmt: skip
    with it.running.client(headers=OPEN_WEBUI) as client:
        assert client.post(CHAT, json=body).status_code == 200
    got = it.upstream.last.json
    assert {**got, "messages": 0} == {**body, "messages": 0}
    assert "Naxos" in got["messages"][0]["content"] and got["messages"][1]["content"] == parts
    for task in TASKS:
        prompt = (
            f"### Task:\n{task}\n### Output:\nJSON\n### Chat History:\n<chat_history>\n"
            "USER: What is on this picture?\nASSISTANT: All is well\n</chat_history>"
        )
        asked = {
            "model": "gpt-x",
            "stream": False,
            "messages": [{"role": "user", "content": prompt}],
        }
        with it.running.client(headers=OPEN_WEBUI) as client:
            answer = client.post(CHAT, json=asked)
        assert "memory_hits" not in answer.json() and it.upstream.last.json == asked
    (info,) = ana.sessions()
    assert info.id == OPEN_WEBUI["X-OpenWebUI-Chat-Id"] and info.events == 2


AI_SDK = """
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText, tool, jsonSchema, stepCountIs } from 'ai';

const [baseURL, apiKey] = process.argv.slice(2);
const openai = createOpenAI({ baseURL, apiKey });
const model = openai.chat('gpt-4o-mini');
const weather = tool({
  description: 'The weather of a city',
  inputSchema: jsonSchema({
    type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
  }),
  execute: async ({ city }) => `sunny in ${city}`,
});
const tools = { weather };
const options = { model, tools, stopWhen: stepCountIs(3), maxRetries: 0, system: 'Be brief.' };
const whole = await generateText({ ...options, prompt: 'How is the weather where I am going?' });
const stream = streamText({ ...options, prompt: 'How was the weather there yesterday?' });
let text = '';
for await (const part of stream.textStream) text += part;
console.log(JSON.stringify([whole.text, text]));
"""


@pytest.fixture(scope="session")
def ai_sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the AI SDK installed in it."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("not run: node and npm are not installed")
    folder = tmp_path_factory.mktemp("ai-sdk")
    (folder / "talk.mjs").write_text(AI_SDK, encoding="utf-8")
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts",
         "ai@5", "@ai-sdk/openai@2"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "npm_config_cache": str(folder / "cache")},
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"not run: npm could not install the AI SDK: {done.stderr[-200:]}")
    return folder


def test_vercel_ai_sdk_works_through_the_proxy(proxy: Proxy, ai_sdk: Path) -> None:
    it = proxy(calling)
    remembering(it)
    done = subprocess.run(
        ["node", "talk.mjs", f"{it.running.url}/v1", it.running.server_context.token],
        cwd=ai_sdk, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["It is sunny in Naxos"] * 2
    assert all("going to Naxos" in str(received.messages[0]) for received in it.upstream.requests)
    roles = [[role for role, _, _ in events] for events in it.stored_events().values()]
    assert roles == [["user", "assistant", "tool", "assistant"]] * 2
