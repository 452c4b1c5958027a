"""What type checkers must refuse. Each line is an error to mypy and to pyright: where it is none,
they report that its ignore is not needed. Nothing here is run.
"""

from __future__ import annotations

from reverie import Session, Settings, Space, Store, aio


def refused(store: Store, ana: Space, chat: Session) -> None:
    store.space("ana", trust="nobody")  # type: ignore[arg-type]
    store.space("ana", ranking="best")  # type: ignore[arg-type]
    store.create_token("eva", "root")  # type: ignore[arg-type]
    ana.remember("tea is hot", kind="idea")  # type: ignore[arg-type]
    ana.recall("tea", mode="fuzzy")  # type: ignore[arg-type]
    ana.recall("tea", kinds=["session"])  # type: ignore[list-item]
    ana.memories(order="oldest")  # type: ignore[arg-type]
    ana.follow(["hello"])  # type: ignore[list-item]
    chat.append("hello")  # type: ignore[arg-type]
    chat.remember("tea is hot", kind="idea")  # type: ignore[arg-type]
    Settings(write_policy="loud")  # type: ignore[arg-type]


async def refused_async(store: aio.AsyncStore, ana: aio.AsyncSpace, chat: aio.AsyncSession) -> None:
    aio.open(5)  # type: ignore[arg-type]
    store.space("ana", trust="nobody")  # type: ignore[arg-type]
    await ana.rememeber("tea is hot")  # type: ignore[attr-defined]
    await ana.remember("tea is hot", kind="idea")  # type: ignore[arg-type]
    await ana.remember("tea is hot", colour="red")  # type: ignore[call-arg]
    ana.recall("tea")[0]  # type: ignore[index]
    await chat.append("hello")  # type: ignore[arg-type]
    await chat.scratchpad.write([5])  # type: ignore[list-item]
