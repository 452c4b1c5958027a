"""A server of its own process, to be killed. Takes the store, the upstream and the token."""

from __future__ import annotations

import asyncio
import sys

import reverie
from reverie import Settings
from reverie.aio import AsyncStore
from reverie.server.serving import Serving, listening, server


def main(path: str, upstream: str, token: str) -> None:
    settings = Settings(embedder="hashing", upstream=upstream, token=token)
    bound = listening("127.0.0.1", 0)
    port = bound.getsockname()[1]
    with reverie.open(path, settings=settings) as store:
        serving = Serving(AsyncStore(store), settings, token, port=port)
        print(port, flush=True)
        asyncio.run(server(serving).serve(sockets=[bound]))


if __name__ == "__main__":
    main(*sys.argv[1:])
