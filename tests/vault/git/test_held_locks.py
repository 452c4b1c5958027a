"""A lock that a person's git holds does not hold up a write: the commit is made later."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.vault import service
from reverie.vault.git import process
from reverie.vault.jobs import RETRY_AFTER_MS
from tests.vault.repositories import by_hand, status
from tests.vault.vaults import Kept

WAIT = 60


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    monkeypatch.setattr(process, "LOCK_WAIT_SECONDS", WAIT)
    kept = Kept(tmp_path, git=True)
    kept.store.space("ana").remember("the first")
    assert kept.store.flush_to_vault() is None
    yield kept
    kept.store.close()


@pytest.fixture
def editing(kept: Kept) -> Iterator[subprocess.Popen[bytes]]:
    """A person's ``git commit -a`` that waits in its editor, and holds the lock of the index."""
    (kept.root / "mine.md").write_text("my own\n", encoding="utf-8")
    by_hand(kept.root, "add", "-N", "mine.md")
    person = subprocess.Popen(
        ["git", "-C", str(kept.root), "-c", "user.name=P", "-c", "user.email=p@example.org"]
        + ["-c", "core.editor=sleep 60; false", "commit", "-a"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not (kept.root / ".git" / "index.lock").exists():
        assert person.poll() is None
        time.sleep(0.01)
    yield person
    end(person)


def end(person: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(person.pid, signal.SIGTERM)
    person.wait()


def commits(kept: Kept) -> int:
    return len(by_hand(kept.root, "rev-list", "HEAD").split())


def commit_later(kept: Kept) -> None:
    assert not (kept.root / ".git" / "index.lock").exists()
    kept.clock.step(RETRY_AFTER_MS)
    kept.store.run_pending_jobs()


def test_write_does_not_wait_for_a_held_index(kept: Kept, editing: subprocess.Popen[bytes]) -> None:
    before, began = commits(kept), time.monotonic()
    kept.store.space("ana").remember("the second")
    assert kept.store.flush_to_vault() is None
    assert time.monotonic() - began < WAIT / 2
    assert service.status(kept.store).uncommitted > 0
    assert commits(kept) == before
    assert any("second" in path.read_text() for path in kept.root.glob("ana/facts/*.md"))
    end(editing)
    commit_later(kept)
    assert service.status(kept.store).uncommitted == 0
    assert commits(kept) == before + 1
    assert status(kept.root) == [" A mine.md"]


def test_sync_does_not_wait_for_a_held_index_and_reports_it(
    kept: Kept, editing: subprocess.Popen[bytes]
) -> None:
    before, began = commits(kept), time.monotonic()
    (kept.root / "ana" / "facts" / "new.md").write_text("written by hand\n", encoding="utf-8")
    report = service.sync(kept.store)
    assert time.monotonic() - began < WAIT / 2
    assert [line for line in report.problems if "another git process" in line]
    assert commits(kept) == before
    assert kept.store.space("ana").memories()[0].content == "written by hand"
    end(editing)
    commit_later(kept)
    assert commits(kept) == before + 1


def test_commit_that_waits_is_tried_again_until_the_lock_is_gone(kept: Kept) -> None:
    lock = kept.root / ".git" / "index.lock"
    lock.touch()
    kept.store.space("ana").remember("the second")
    assert kept.store.flush_to_vault() is None
    for _ in range(30):
        kept.clock.step(RETRY_AFTER_MS)
        kept.store.run_pending_jobs()
    assert service.status(kept.store).uncommitted > 0
    lock.unlink()
    commit_later(kept)
    assert service.status(kept.store).uncommitted == 0
    assert status(kept.root) == []
