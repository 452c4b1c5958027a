"""The files of one conversation after each step, compared with a reviewed tree.

``REVERIE_GOLDEN=write`` writes the tree again; git then shows what changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.vault import service
from tests.conftest import HOUR
from tests.vault.vaults import Kept, assert_equal

GOLDEN = Path(__file__).parent / "golden"
CHAPTERS = ("1-said", "2-learned", "3-changed", "4-forgotten", "5-restored")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path, git=True)
    made.ids.coming = ["JaneWife", "lovPizza"]
    yield made
    made.close()


def test_session_files_follow_every_change_of_a_session(kept: Kept) -> None:
    chat = kept.ana.session("2026-01-01-pizza")
    for text in ("My wife is Jane", "I love pizza"):
        kept.clock.step(HOUR)
        chat.append({"role": "user", "content": text})
        chat.append({"role": "assistant", "content": "I will remember that."})
    compare_tree(kept, "1-said")
    kept.ana.remember("The user's wife is Jane", category="person", subject="Jane", tags=["family"])
    pizza = kept.ana.remember("The user loves pizza", category="likes", subject="pizza")
    compare_tree(kept, "2-learned")
    kept.clock.step(24 * HOUR)
    chat.append({"role": "user", "content": "I hate pizza"})
    kept.ana.revise(pizza.id, "The user hates pizza", tags=["changed"])
    chat.write_summary(
        "The user spoke of Jane and changed their mind about pizza.", upper=5, expected_epoch=0
    )
    compare_tree(kept, "3-changed")
    kept.ana.forget(pizza.id, reason="they asked for it")
    compare_tree(kept, "4-forgotten")
    kept.ana.restore(pizza.id)
    compare_tree(kept, "5-restored")
    commits = service.history(kept.ana, limit=20)
    compare("log.txt", "".join(f"{commit.author}: {commit.subject}\n" for commit in commits))
    bodies = [commit.body.strip() for commit in commits if commit.body.strip()]
    compare("bodies.txt", "\n\n".join(bodies) + "\n")
    assert_equal(kept)


def compare_tree(kept: Kept, chapter: str) -> None:
    """The whole tree of a chapter, but for what only the program reads."""
    kept.clock.step(HOUR)
    kept.store.run_pending_jobs()
    kept.clock.step(HOUR)
    kept.store.run_pending_jobs()
    assert not kept.sync()
    shown = {path: raw for path, raw in kept.bytes().items() if path.startswith("ana/")}
    listed = "".join(f"{path}\n" for path in sorted(shown))
    compare(f"{chapter}/files.txt", listed)
    for path, raw in shown.items():
        compare(f"{chapter}/{path}", raw.decode())


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("REVERIE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, name


def test_golden_tree_has_only_the_listed_files() -> None:
    for chapter in CHAPTERS:
        listed = (GOLDEN / chapter / "files.txt").read_text(encoding="utf-8").split()
        found = [
            path.relative_to(GOLDEN / chapter).as_posix()
            for path in (GOLDEN / chapter / "ana").rglob("*")
            if path.is_file()
        ]
        assert sorted(found) == listed
