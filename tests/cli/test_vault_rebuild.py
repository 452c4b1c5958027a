"""``reverie vault rebuild``."""

from __future__ import annotations

from pathlib import Path

from reverie.memory import open as open_store
from reverie.vault import service
from tests.cli.conftest import CommandLine


def mirrored(reverie: CommandLine) -> Path:
    reverie.remember("Alec is my boss", "--subject", "Alec")
    root = reverie.folder / "vault"
    with open_store(reverie.store) as store:
        service.init(store, root)
    return root


def test_vault_rebuild_creates_a_store_from_a_vault(reverie: CommandLine) -> None:
    root = mirrored(reverie)
    before = reverie.text("export", "--all")
    other = ("--url", str(reverie.folder / "other.db"))
    output = reverie.text("vault", "rebuild", str(root), *other)
    assert output == f"Made the store of {root}: 1 entry and 0 summaries.\n"
    assert reverie.text("export", "--all", *other) == before
    assert "not empty" in reverie.error("vault", "rebuild", str(root), *other, code=5)
    report = reverie.json("vault", "rebuild", str(root), "--url", str(reverie.folder / "third.db"))
    assert (report["entries"], report["from_files"], report["problems"]) == (1, 0, [])


def test_vault_rebuild_reports_damaged_log_lines(reverie: CommandLine) -> None:
    root = mirrored(reverie)
    with (root / ".reverie/log.jsonl").open("a") as file:
        file.write("broken\n")
    reverie.store.unlink()
    output = reverie.text("vault", "rebuild", str(root), code=1)
    assert output.splitlines()[1] == "  - log.jsonl, line 2: no entry of a log"
    assert "Alec is my boss" in reverie.text("list")


def test_vault_rebuild_writes_a_vault_from_its_store(reverie: CommandLine) -> None:
    root = mirrored(reverie)
    (path,) = root.glob("default/facts/*.md")
    path.write_text(path.read_text().replace("is my boss", "is my friend"))
    (root / ".reverie/log.jsonl").write_text("")
    assert reverie.text("vault", "rebuild", "--from", "store") == (
        f"Wrote the vault {root} again from the store.\n"
    )
    assert "Alec is my friend" in reverie.text("list") and "friend" in path.read_text()
    assert len((root / ".reverie/log.jsonl").read_text().splitlines()) == 2
    report = reverie.json("vault", "rebuild", str(reverie.folder / "new"), "--from", "store")
    assert report["vault"] == str(reverie.folder / "new") and report["synced"]["problems"] == []
    assert (reverie.folder / "new" / "default" / "MEMORY.md").exists()


def test_vault_rebuild_without_a_vault_says_what_to_do(reverie: CommandLine) -> None:
    reverie.remember("one")
    assert "give its path" in reverie.error("vault", "rebuild", "--from", "store", code=5)
    assert "is not a vault" in reverie.error("vault", "rebuild", "--url", "x.db", "nowhere", code=5)
