"""Another process that writes into a store: for each number it reads, so many memories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[1]


class Neighbour:
    """The other end: starts the process and waits for each of its writes."""

    def __init__(self, path: Path, space: str, seed: int) -> None:
        command = [sys.executable, "-m", "bench.neighbour", str(path), space, str(seed)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def write(self, count: int) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != str(count):
            raise RuntimeError("the neighbouring process failed")

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()


def main() -> None:
    from bench.subjects import open_store
    from bench.texts import Writer

    path, space, seed = sys.argv[1:]
    writer = Writer(int(seed))
    with open_store(Path(path)) as store:
        for line in sys.stdin:
            for text in writer.sentences(int(line)):
                store.space(space).remember(text)
            print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
