"""What the proxy costs: a chat through it beside the same chat with the upstream itself.

    python bench/proxy.py [--quick] [--json FILE] [--markdown]

The upstream answers at once, in a process of its own; so does the server, whose CPU time is read
from the kernel before and after each request. Chats of every kind alternate, their turns follow
each other without a pause. It is a measurement, no test: the exit code is always 0.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reverie
from bench import running
from bench.measuring import Row, Sample, short, timed
from bench.texts import SEED, Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

ROOT = Path(__file__).resolve().parents[1]
TOKEN = "a-token-for-this-measurement-alone"
SPACE, CHAT = "default", "/v1/chat/completions"
TURNS = 10
"""Turns of a chat, then a new one begins."""
WORDS = 20
GOAL = 0.015
REPLY = " ".join(f"word{number}" for number in range(WORDS))


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    memories: int = 10_000
    chats: int = 25
    """Of each kind."""
    parts: int = 60


QUICK = Plan(500, 3, 10)


@dataclass(frozen=True)
class Way:
    """One way to the model: where a chat goes, and with which mode. No mode: without the proxy."""

    name: str
    mode: str | None
    stream: bool


MODES = ("off", "read", "write")
WAYS = [
    Way(f"{name}{', streamed' if stream else ''}", mode, stream)
    for name, mode in (("upstream itself", None), *zip(MODES, MODES, strict=True))
    for stream in (False, True)
]


@dataclass
class Taken:
    """One request: CPU of the server, seconds to the first byte of the body and to the last."""

    cpu: float
    first: float
    last: float


class Proxy(running.Bench):
    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        self._taken: dict[str, list[Taken]] = {way.name: [] for way in WAYS}

    def run(self) -> None:
        path = self.folder / "proxy.db"
        _filled(path, self._plan.memories)
        parts = self.folder / "parts.db"
        parts.write_bytes(path.read_bytes())
        upstream = self.closing.enter_context(_process("upstream"))
        server = self.closing.enter_context(_process("server", str(path), str(upstream.port)))
        chats = {way.name: Chat(way, upstream, server) for way in WAYS}
        for chat in chats.values():
            chat.turn()  # what is loaded or connected first is loaded and connected here
        for _ in self.steps("chats", self._plan.chats):
            for name, chat in chats.items():
                self._taken[name] += [chat.turn() for _ in range(TURNS)]
        self._rows()
        _parts(self, self._plan, parts)

    def _rows(self) -> None:
        at = f"{short(self._plan.memories)} memories"
        for stream in (False, True):
            bare, *others = [way for way in WAYS if way.stream == stream]
            direct = statistics.median(each.first for each in self._taken[bare.name])
            for way in others:
                taken = self._taken[way.name]
                most = GOAL if way.mode == "write" else None
                group = f"CPU of the server for a chat, {at}"
                for name, share in (("median", 0.5), ("95 %", 0.95)):
                    value = _quantile([each.cpu for each in taken], share)
                    self.meter.rows.append(Row(group, f"{way.name}: {name}", "s", value, most=most))
                later = statistics.median(each.first for each in taken) - direct
                late = _quantile([each.first for each in taken], 0.95) - direct
                for name, value in (("median", later), ("95 %", late)):
                    what = f"first byte, {way.name}: {name} later than the upstream's own median"
                    self.meter.rows.append(Row("time, not CPU", what, "s", value, most=most))
        self.meter.rows.sort(key=lambda row: row.group)

    def more(self) -> dict[str, Any]:
        return {
            "requests": {
                name: [vars(each) for each in taken] for name, taken in self._taken.items()
            }
        }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _question(writer: Writer) -> str:
    return "What do you know of this? " + writer.sentences(1)[0]


# -- a chat ---------------------------------------------------------------------------------------


@dataclass
class Other:
    """Another process, and where it listens."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Seconds on a CPU so far, of all its threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Chat:
    """Chats by one way, a turn at a time."""

    def __init__(self, way: Way, upstream: Other, server: Other) -> None:
        self._way, self._server = way, server
        port = upstream.port if way.mode is None else server.port
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._writer = Writer(SEED + WAYS.index(way))
        self._messages: list[dict[str, str]] = []

    def turn(self) -> Taken:
        if len(self._messages) >= 2 * TURNS:
            self._messages.clear()
        self._messages.append({"role": "user", "content": _question(self._writer)})
        body = {"model": "m", "stream": self._way.stream, "messages": self._messages}
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "X-Reverie-Mode": self._way.mode or "off",
        }
        raw = json.dumps(body)
        before, start = self._server.cpu(), time.perf_counter()
        self._connection.request("POST", CHAT, raw, headers)
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read(1)
        first = time.perf_counter() - start
        answer.read()
        last = time.perf_counter() - start
        cpu = self._server.cpu() - before
        self._messages.append({"role": "assistant", "content": REPLY})
        return Taken(cpu, first, last)


# -- what it is made of ---------------------------------------------------------------------------


def _parts(bench: running.Bench, plan: Plan, path: Path) -> None:
    """The steps of one turn in this process, one after the other."""
    with _opened(path) as store:
        space, writer = store.space(SPACE), Writer(SEED + len(WAYS))
        messages: list[dict[str, str]] = []
        for number in bench.steps("parts", plan.parts):
            if number % TURNS == 0:
                messages = []
            messages.append({"role": "user", "content": _question(writer)})
            took = _steps(space, messages)
            messages.append({"role": "assistant", "content": REPLY})
            if number:  # what is loaded first was loaded then
                bench.meter.take_all(took)
    for name in bench.meter.samples:
        bench.meter.row("parts of a turn in write mode", name, name)


def _steps(space: reverie.Space, messages: Sequence[dict[str, str]]) -> dict[str, Sample]:
    from reverie.server.proxy import chat_turn, json_edit, reply_parser

    took: dict[str, Sample] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        made = []
        took[name] = timed(lambda _: made.append(work()), [0])
        return made[0]

    raw = json.dumps({"model": "m", "messages": messages}).encode()
    body = step("reading the body", lambda: json_edit.parse_request(raw))
    session = step("storing what is new (follow)", lambda: space.follow(body.history))
    said = messages[-1]["content"]
    found = step("profile and recall (supplement)", lambda: session.prompt_additions(said))
    step("of it, a recall of as many hits", lambda: space.recall(said, limit=12))
    step("of it, a profile", lambda: space.profile(tokens=1_000))
    step("putting it in", lambda: body.with_memory(found.profile, found.recalled))
    step("reading the stream", lambda: reply_parser.ReplyStream().feed(b"".join(_chunks())))
    turn = chat_turn.ChatTurn(space, body.history, session, found)
    reply = {"role": "assistant", "content": REPLY}
    step("storing the reply", lambda: turn.store_reply(reply, is_complete=True))
    return took


# -- the other processes --------------------------------------------------------------------------


@contextmanager
def _process(*arguments: str) -> Iterator[Other]:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), *arguments],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield Other(process.pid, int(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def _filled(path: Path, size: int) -> None:
    with _opened(path) as store:
        texts = Writer(SEED).sentences(size)
        store.space(SPACE).import_records([{"content": text} for text in texts])


def _opened(path: Path, **settings: Any) -> reverie.Store:
    watched = reverie.Settings(learn="off", summary="off", **settings)
    return reverie.open(path, settings=watched, embedder="local")


def _serve(path: str, upstream: str) -> None:
    from reverie.aio import AsyncStore
    from reverie.server.context import ServerContext
    from reverie.server.run import bind_socket, create_server, run

    bound = bind_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    with _opened(Path(path), upstream=f"http://127.0.0.1:{upstream}/v1") as store:
        serving = ServerContext(AsyncStore(store), store.settings, TOKEN, port=port)
        print(port, flush=True)
        run(create_server(serving), bound)


def _chunks() -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"content": f"{word} "} for word in REPLY.split(" ")]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [json.dumps({"id": "c", "choices": [choice]}).encode() for choice in choices]
    return [b"data: " + event + b"\n\n" for event in [*events, b"[DONE]"]]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As little as an upstream can do."""
    message = {"role": "assistant", "content": REPLY}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    whole = json.dumps({"id": "c", "object": "chat.completion", "choices": [choice]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s\r\n\r\n"
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in _chunks()) + b"0\r\n\r\n"
    as_json = head % (b"application/json", b"Content-Length: %d" % len(whole)) + whole
    as_stream = head % (b"text/event-stream", b"Transfer-Encoding: chunked") + pieces
    while True:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            break
        lengths = [
            int(line.partition(b":")[2])
            for line in request.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        ]
        body = await reader.readexactly(lengths[0] if lengths else 0)
        writer.write(as_stream if b'"stream": true' in body else as_json)
        await writer.drain()
    writer.close()


async def _upstream() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    match sys.argv[1:]:
        case ["upstream"]:
            asyncio.run(_upstream())
        case ["server", path, upstream]:
            _serve(path, upstream)
        case _:
            asked = running.options(__doc__).parse_args()
            plan = QUICK if asked.quick else Plan()
            title = "A chat through the proxy, beside the upstream itself"
            running.run(title, asked, lambda folder, progress: Proxy(plan, folder, progress))


if __name__ == "__main__":
    main()
