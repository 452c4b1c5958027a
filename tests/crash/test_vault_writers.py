"""16 writers, mirroring workers and an editor: nothing is lost, store and vault end equal."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import reverie
from reverie.errors import ReverieError
from reverie.vault import disk, layout, service
from reverie.vault.vault import VaultBusy
from tests.crash.vault_writer import open_store
from tests.property.test_vault import VaultActions, take_conflicts_away
from tests.vault.vaults import Kept, assert_equal

ROOT = Path(__file__).parents[2]
PROCESSES, THREADS = 4, 4
WRITES = 25


class Editor(threading.Thread):
    """A person's script: opens, edits, renames, deletes and makes files, and saves as vim does."""

    def __init__(self, kept: Kept, stop: threading.Event) -> None:
        super().__init__()
        self.kept, self.stop = kept, stop
        self.chance = random.Random(1)
        self.texts: list[str] = []
        self.replaced: set[str] = set()
        self.edits = 0

    def run(self) -> None:
        while not self.stop.wait(0.005):
            try:
                self.edit()
            except (OSError, disk.UnreadableFile):
                continue  # it was moved before it was opened

    def edit(self) -> None:
        files = [
            path
            for path in self.kept.files()
            if (place := layout.Folders().parse(path)) is not None and place.what == "memory"
        ]
        self.edits += 1
        text = f"text{self.edits}zx of a person"
        choice = self.chance.random()
        if choice < 0.3 or not files:
            self.kept.write(f"ana/facts/mine-{self.edits}.md", f"{text}\n")
            self.texts.append(text)
            return
        path = self.chance.choice(files)
        if choice < 0.8:
            raw = self.kept.path(path).read_bytes()
            head, mark, _ = raw.partition(b"\n---\n\n")
            if mark:
                self.replaces(raw)
                self.kept.write(path, head + mark + text.encode() + b"\n")
                self.texts.append(text)
        elif choice < 0.9:
            self.kept.path(path).rename(self.kept.path(path).with_name(f"named-{self.edits}.md"))
        else:
            place = layout.Folders().parse(path)
            assert place is not None
            moved = layout.relocate(path, deleted="/deleted/" not in path)
            target = self.kept.path(moved)
            if target.exists():
                self.replaces(target.read_bytes())
            self.kept.move(path, moved)

    def replaces(self, raw: bytes) -> None:
        """What nobody has seen yet is theirs to replace, by another text or another file."""
        self.replaced.add(raw.rpartition(b"\n---\n\n")[2].decode().strip())


def sync_often(path: str, stop: threading.Event, problems: list[str]) -> None:
    with open_store(path) as store:
        while not stop.wait(0.05):
            try:
                service.sync(store)
            except VaultBusy:
                continue
            except ReverieError as error:
                problems.append(str(error))


@pytest.mark.prove
def test_concurrent_writers_workers_and_an_editor_lose_no_vault_change(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    path = str(tmp_path / "store.db")
    stop, problems = threading.Event(), list[str]()
    editor = Editor(kept, stop)
    syncing = threading.Thread(target=sync_often, args=(path, stop, problems))
    with open_store(path) as worker:
        worker.start_worker(poll_seconds=0.02)
        editor.start()
        syncing.start()
        contents = written(path)
        stop.set()
        editor.join()
        syncing.join()
    assert not problems
    assert editor.edits > 10
    actions = VaultActions(kept, 0)
    kept.clock.at = reverie.clock.SystemClock().now()
    kept.sync()
    kept.sync()
    take_conflicts_away(actions)
    remove_copies(actions)
    assert_equal(kept)
    texts = [*actions.texts(), *actions.erased]
    own = [text for text in editor.texts if text not in editor.replaced]
    lost = [text for text in (*contents, *own) if not any(text in each for each in texts)]
    assert not lost and own
    kept.close()


def remove_copies(actions: VaultActions) -> None:
    """A file that was saved while the mirror moved it may be in both places: that is reported."""
    for line in actions.kept.sync().problems:
        path, _, why = line.partition(": ")
        assert why.startswith("a copy of"), line
        actions.kept.path(path).unlink()


def written(path: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash.vault_writer", path]
            + [str(each) for each in (seed, THREADS, WRITES)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        for seed in range(PROCESSES)
    ]
    texts: list[str] = []
    for process in running:
        output, _ = process.communicate()
        assert process.returncode == 0
        texts += json.loads(output)
    return texts
