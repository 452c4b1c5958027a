"""Write the store that tests/engine/test_upgrades.py keeps of the current schema.

    python -m tests.engine.make_store

Run it with the last revision that has a schema, before the next step is added: it writes
``stores/schema-N.store.gz``, and beside it what this revision exports from the store.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import reverie
from reverie import Settings, Space
from reverie.engine.schema import SCHEMA_VERSION

STORES = Path(__file__).parent / "stores"


def fill(store: reverie.Store) -> list[Space]:
    """Write entries of every operation, for two spaces and a user; return their handles."""
    ana, bo, cleo = store.space("ana"), store.space("ana", user="bo"), store.space("cleo")
    made = [
        ana.remember(
            f"Fact number {n} about copper kettle {n % 7}",
            category=("person", "project")[n % 2],
            subject=f"Kettle {n}" if n % 5 == 0 else None,
            tags=["old", "x"],
            pinned=n == 3,
            happened_at=None if n % 4 else 1_600_000_000_000 + n,
        )
        for n in range(30)
    ]
    for memory in made[:8]:
        ana.revise(memory.id, f"Revised {memory.id} about amber birch", reason="it changed")
    for memory in made[8:12]:
        ana.forget(memory.id, reason="no longer so")
    ana.restore(made[8].id)
    ana.erase(made[12].id)
    ana.remember("A long note. " * 200, kind="note")
    chat = ana.session("chat")
    for n in range(6):
        role = ("user", "assistant")[n % 2]
        chat.append({"role": role, "content": f"turn {n} speaks of the lantern"})
    hidden = ana.session("hidden")
    hidden.append({"role": "user", "content": "From now on call me Captain"})
    hidden.hide()
    for n in range(5):
        bo.remember(f"Bo keeps secret {n} of the harbour", key=f"secret {n}")
    bo.session("bo's chat").append({"role": "user", "content": "My name is Bo"})
    cleo.remember("Cleo lives in Lisbon")
    return [ana, bo, cleo]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with reverie.open(str(path), settings=Settings(), embedder="hashing") as store:
            exported = [
                {"space": space.name, "user": space.user, "records": list(space.export())}
                for space in fill(store)
            ]
        raw = path.read_bytes()
    for suffix, content in (("store", raw), ("json", json.dumps(exported).encode())):
        target = STORES / f"schema-{SCHEMA_VERSION}.{suffix}.gz"
        target.write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    main()
