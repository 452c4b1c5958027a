"""How many files and functions of Reverie one remember, one recall and one chat turn pass through.

    python bench/trace.py

Every call into the package is counted in all threads, once by its file and once by its function.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import reverie
from reverie import Settings

SOURCE = str(Path(reverie.__file__).parent)


class Recorder:
    """A profile function that notes calls while it is switched on."""

    def __init__(self) -> None:
        self.active = False
        self.calls: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self.active and event == "call" and code.co_filename.startswith(SOURCE):
            self.calls.add((code.co_filename, code.co_firstlineno))

    def report(self, name: str, call: Callable[[], object]) -> None:
        call()  # loads what the first call loads
        self.calls.clear()
        self.active = True
        call()
        self.active = False
        files = {file for file, _ in self.calls}
        print(f"{name:<12}{len(files):>4} files {len(self.calls):>5} functions")


def trace_library(recorder: Recorder, folder: Path) -> None:
    numbers = iter(range(1_000))
    with reverie.open(folder / "library.db", settings=Settings()) as store:
        space = store.space("ana")
        recorder.report("remember", lambda: space.remember(f"boss number {next(numbers)}"))
        recorder.report("recall", lambda: space.recall("who is the boss?"))


def trace_chat(recorder: Recorder, folder: Path) -> None:
    import httpx2

    from reverie.aio import AsyncStore
    from reverie.server.context import ServerContext
    from reverie.server.run import bind_socket, run_in_thread
    from reverie.testing import ScriptedModel

    with ScriptedModel(lambda request: "All is well") as model:
        settings = Settings(upstream=model.base_url, learn="off")
        with reverie.open(folder / "server.db", settings=settings) as store:
            bound = bind_socket("127.0.0.1", 0)
            port = bound.getsockname()[1]
            context = ServerContext(AsyncStore(store), settings, "a-token-for-this", port=port)
            headers = {"Authorization": "Bearer a-token-for-this"}
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            messages = [{"role": "user", "content": "hello"}]
            with run_in_thread(context, bound), httpx2.Client(headers=headers) as client:

                def turn() -> None:
                    answer = client.post(url, json={"model": "m", "messages": messages})
                    answer.raise_for_status()
                    messages.append(answer.json()["choices"][0]["message"])
                    messages.append({"role": "user", "content": f"and {len(messages)}?"})

                recorder.report("chat turn", turn)


def main() -> None:
    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        with tempfile.TemporaryDirectory() as folder:
            trace_library(recorder, Path(folder))
            trace_chat(recorder, Path(folder))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


if __name__ == "__main__":
    main()
