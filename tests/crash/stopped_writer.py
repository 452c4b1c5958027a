"""A writer that stops itself (SIGSTOP) in the middle of a write, and ends it when it goes on.

Arguments: the address of the store, the space, and ``write`` or ``exclusive``: what it holds. With
``vault`` the address is a vault's folder, whose lock it holds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTENT = "written by one who was stopped"


def main() -> None:
    address, name, what = sys.argv[1:]
    if what == "vault":
        from reverie.vault.vault import Vault

        with Vault.open(Path(address)) as vault, vault.locked():
            _stop()
        return
    from tests.crash.workload import open_store

    store = open_store(address)
    engine = store.runtime.engine
    if what == "exclusive":
        with engine.exclusive():
            _stop()
            store.space(name).remember(CONTENT)
    else:
        with engine.write():
            store.space(name).remember(CONTENT)
            _stop()
    store.close()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Stopped:
    """The other end: a process that is stopped now."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def go_on(self) -> None:
        """Let it end its write, and wait until it has."""
        os.kill(self.pid, signal.SIGCONT)
        assert self._process.wait() == 0


@contextlib.contextmanager
def stopped_writer(address: str, space: str, what: str = "write") -> Iterator[Stopped]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.stopped_writer", address, space, what],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )
    try:
        _await_stop(process)
        yield Stopped(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _await_stop(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            return
        assert not pid, f"the writer ended before it was stopped: {status}"
        time.sleep(0.02)
    raise AssertionError("the writer ended before it was stopped")


if __name__ == "__main__":
    main()
