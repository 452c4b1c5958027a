"""The memory folder of agent-cli is imported whole, and stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reverie import Origin
from reverie.errors import InvalidInput
from tests.conftest import Stores
from tests.messages import user
from tests.vault.full_store import exported

DAY = "2025-11-20"


def uuid(number: int) -> str:
    return str(UUID(int=number, version=4))


class Folder:
    """Writes files as agent-cli does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "entries").mkdir(parents=True)
        (root / "chroma").mkdir()
        (root / "chroma" / "chroma.sqlite3").write_bytes(b"\0vectors")
        (root / "memory_index.json").write_text("[]")

    def put(
        self,
        number: int,
        role: str,
        content: str,
        conversation: str = "home",
        *,
        below: str | None = None,
        **more: Any,
    ) -> Path:
        at = f"{DAY}T10:{number // 60:02d}:{number % 60:02d}.250000+00:00"
        folder = {"memory": "facts", "summary": "summaries"}.get(role, f"turns/{role}")
        above = conversation if below is None else below
        name = f"{at.replace(':', '-').replace('+', '-')}__{uuid(number)}.md"
        name = "summary.md" if role == "summary" else name
        fields = {"id": uuid(number), "conversation_id": conversation, "role": role}
        if role == "summary":
            fields |= {"id": f"{conversation}::summary-summary", "summary_kind": "summary"}
        fields |= {"created_at": f"'{at}'", **more}
        path = self.root / "entries" / above / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        front = "".join(f"{key}: {value}\n" for key, value in fields.items())
        path.write_text(f"---\n{front}---\n{content}\n")
        return path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "memory_db")
    made.put(1, "user", "My wife is Jane and I love pizza")
    made.put(2, "assistant", "Noted!\n\n- Jane", model="qwen3:4b", total_tokens=31)
    made.put(3, "memory", "The user's wife is Jane", source_id=uuid(1))
    made.put(4, "memory", "The user loves pizza", below="home/deleted", replaced_by=uuid(6))
    made.put(5, "user", "I hate pizza now")
    made.put(6, "memory", "The user hates pizza", source_id=uuid(5), mine="a key of my own")
    made.put(7, "memory", "The user lives in Köln", "global")
    made.put(8, "memory", "Old and gone", below="deleted/home")
    made.put(9, "user", "evicted words", below="deleted/home")
    made.put(10, "summary", "They talk about food.")
    made.put(11, "summary", "What they said before.", below="home/deleted")
    made.put(12, "memory", "Said to nobody in particular", "default")
    return made


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def at(number: int) -> int:
    moment = datetime(2025, 11, 20, 10, 0, number, 250_000, tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def test_import_of_agent_cli_stores_every_entry_and_leaves_the_folder(
    stores: Stores, folder: Folder
) -> None:
    store, before = stores.open(), tree(folder.root)
    space = store.space("ana")
    report = space.import_agent_cli(folder.root)
    assert (report.added, report.unchanged, report.skipped) == (12, 0, ())
    assert tree(folder.root) == before
    own = {memory.content: memory for memory in space.memories()}
    assert set(own) == {"The user lives in Köln", "Said to nobody in particular"}
    koeln = own["The user lives in Köln"]
    assert (koeln.created_at, koeln.source) == (at(7), f"agent-cli:{uuid(7)}")
    session = space.session("home")
    assert [(e.role, e.text, e.at) for e in session.events()] == [
        ("user", "My wife is Jane and I love pizza", at(1)),
        ("assistant", "Noted!\n\n- Jane", at(2)),
        ("user", "I hate pizza now", at(5)),
    ]
    assert session.events()[1].message["metadata"] == {"model": "qwen3:4b", "total_tokens": "31"}
    private = {memory.content: memory for memory in session.memories()}
    assert set(private) == {"The user's wife is Jane", "The user hates pizza"}
    hates = private["The user hates pizza"]
    assert space.history(hates.id)[0].origin == Origin("home", 3)
    assert session.summary().text == "They talk about food." and session.summary().upper == 3
    assert store.verify().ok


def test_import_of_agent_cli_forgets_deleted_entries_with_their_reason(
    stores: Stores, folder: Folder
) -> None:
    store = stores.open()
    store.space("ana").import_agent_cli(folder.root)
    space = store.space("ana").session("home").space
    gone = {m.content: m for m in space.memories(include_forgotten=True) if m.forgotten_at}
    assert set(gone) == {
        "The user loves pizza",
        "Old and gone",
        "evicted words",
        "What they said before.",
    }
    (hates,) = (m for m in space.memories() if m.content == "The user hates pizza")
    loves = gone["The user loves pizza"]
    assert loves.forgotten_at == at(6)
    reason = f"it was deleted in agent-cli, replaced by {hates.id}"
    assert space.history(loves.id)[-1].reason == reason
    assert space.history(gone["Old and gone"].id)[-1].reason == "it was deleted in agent-cli"
    assert space.restore(loves.id).forgotten_at is None


def test_repeated_import_of_agent_cli_adds_only_new_files(stores: Stores, folder: Folder) -> None:
    store = stores.open()
    space = store.space("ana")
    space.import_agent_cli(folder.root)
    before = exported(store)
    assert space.import_agent_cli(folder.root).added == 0
    assert exported(store) == before
    folder.put(20, "user", "One more thing")
    folder.put(21, "memory", "The user has one more thing", source_id=uuid(20))
    report = space.import_agent_cli(folder.root)
    assert (report.added, report.unchanged, report.skipped) == (2, 12, ())
    assert [event.sequence for event in space.session("home").events()] == [1, 2, 3, 4]


def test_import_of_an_edited_agent_cli_fact_revises_it(stores: Stores, folder: Folder) -> None:
    space = stores.open().space("ana")
    space.import_agent_cli(folder.root)
    folder.put(7, "memory", "The user lives in Bonn", "global")
    assert space.import_agent_cli(folder.root).added == 1
    (memory,) = [m for m in space.memories() if "Bonn" in m.content]
    assert [v.content for v in space.history(memory.id)] == [
        "The user lives in Köln",
        "The user lives in Bonn",
    ]
    assert space.import_agent_cli(folder.root).added == 0


def test_import_of_agent_cli_reports_files_it_cannot_read(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    facts = folder.root / "entries" / "home" / "facts"
    folder.put(1, "memory", "whole")
    (facts / "open.md").write_bytes(b"---\nid: x\nnever closed\n")
    (facts / "bytes.md").write_bytes(b"---\nid: x\n---\n\xff\xfe\xff\n")
    (facts / "empty.md").write_bytes(b"---\nid: x\n---\n\n")
    (facts / "link.md").symlink_to("/etc/passwd")
    report = stores.open().space("ana").import_agent_cli(folder.root)
    assert report.added == 1 and len(report.skipped) == 4


def test_import_of_agent_cli_reads_hand_written_files(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    entries = folder.root / "entries"
    for name in ("no front", "deleted/facts", "home/facts/below"):
        (entries / name).mkdir(parents=True)
    (entries / "no front" / f"{DAY}T09-00-00__x.md").write_text("without any front matter\n")
    (entries / "deleted/facts/a.md").write_text(
        "---\nid: 17\n---\nof a conversation called deleted\n"
    )
    stamp = "2025-11-20 10:00:00"
    (entries / "home/facts/below/b.md").write_text(
        f"\ufeff---\r\ncreated_at: {stamp}\r\nrole: memory\r\n---\r\ndeep down\r\n"
    )
    store = stores.open()
    space = store.space("ana")
    assert space.import_agent_cli(folder.root).added == 3
    (first,) = space.session("no front").memories()
    assert (first.content, first.created_at) == ("without any front matter", at(0) - 3_600_250)
    assert [m.content for m in space.session("deleted").memories()] == [
        "of a conversation called deleted"
    ]
    (deep,) = space.session("home").memories()
    assert (deep.content, deep.created_at) == ("deep down", at(0) - 250)


def test_import_of_agent_cli_continues_a_session_of_the_store(
    stores: Stores, folder: Folder
) -> None:
    space = stores.open().space("ana")
    space.session("home").append(user("said here"))
    space.session("home").write_summary("Ours.", upper=1, expected_epoch=0)
    report = space.import_agent_cli(folder.root)
    assert report.skipped == ()
    assert [event.sequence for event in space.session("home").events()] == [1, 2, 3, 4]
    assert space.session("home").summary().text == "Ours."
    kept = space.session("home").space.memories(include_forgotten=True)
    assert "They talk about food." in {memory.content for memory in kept}


def test_agent_cli_summary_without_turns_becomes_a_note(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    folder.put(1, "summary", "All that is left of it.")
    space = stores.open().space("ana")
    assert space.import_agent_cli(folder.root).added == 1
    (note,) = space.session("home").memories()
    assert (note.kind, note.category, note.content) == (
        "note",
        "summary",
        "All that is left of it.",
    )


def test_import_of_agent_cli_redacts_secrets(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    folder.put(1, "memory", f"The key is {key}")
    folder.put(2, "user", f"My key is {key}")
    store = stores.open()
    report = store.space("ana").import_agent_cli(folder.root)
    assert (report.added, report.skipped) == (2, ())
    assert key not in str(exported(store))


def test_import_of_a_folder_that_is_not_agent_clis_is_refused(
    stores: Stores, folder: Folder
) -> None:
    with pytest.raises(InvalidInput, match="not agent-cli's"):
        stores.open().space("ana").import_agent_cli(folder.root / "chroma")
