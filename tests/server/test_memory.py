"""The server's memory does not grow with the number of its threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Threads that allocate at the same time, then the arenas that malloc_info lists.
PROGRAM = """
import ctypes, threading
from reverie.server.run import limit_malloc_arenas

libc = ctypes.CDLL(None)
libc.open_memstream.restype = libc.malloc.restype = ctypes.c_void_p
limit_malloc_arenas()
together = threading.Barrier(8)

def work():
    together.wait()
    libc.malloc(5_000)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(text.value.count(b"<heap nr="))
"""


@pytest.mark.skipif(
    "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", {}), reason="needs glibc"
)
@pytest.mark.parametrize(("setting", "arenas"), [(None, 2), ("3", 3)])
def test_server_threads_share_the_arenas_of_malloc(setting: str | None, arenas: int) -> None:
    """Without a limit each of these threads would have an arena."""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    if setting is not None:
        environment["MALLOC_ARENA_MAX"] = setting
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == arenas
