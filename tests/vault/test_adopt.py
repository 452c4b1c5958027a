"""agent-cli's folder becomes the vault, in place, and nothing that was in it is lost."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reverie import Origin
from reverie.errors import VaultError
from reverie.vault import adopt, rebuild, service
from reverie.vault.adopt import AdoptionReport
from reverie.vault.git.repo import Repository
from reverie.vault.git.search import find_bytes
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


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in {".git", ".reverie"}
    }


def at(number: int) -> int:
    moment = datetime(2025, 11, 20, 10, 0, number, 250_000, tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def test_adopt_remembers_every_entry(stores: Stores, folder: Folder) -> None:
    store = stores.open()
    report = adopt.adopt(store, folder.root, space="ana")
    assert report == AdoptionReport(memories=4, forgotten=4, events=3, summaries=1, problems=[])
    space = store.space("ana")
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


def test_adopt_forgets_deleted_entries_with_their_reason(stores: Stores, folder: Folder) -> None:
    store = stores.open()
    adopt.adopt(store, folder.root, space="ana")
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


def test_adopt_turns_the_folder_into_the_vault(stores: Stores, folder: Folder) -> None:
    store, root = stores.open(), folder.root
    adopt.adopt(store, root, space="ana")
    assert not (root / "entries").exists()
    files = tree(root)
    assert files["chroma/chroma.sqlite3"] == b"\0vectors" and files["memory_index.json"] == b"[]"
    (hates,) = (m for m in store.space("ana").session("home").memories() if "hates" in m.content)
    (path,) = (name for name in files if hates.id in name)
    assert path.startswith("ana/sessions/home/facts/") and b"mine: a key of my own" in files[path]
    assert len([name for name in files if "/turns/user/" in name]) == 2
    assert b"They talk about food." in files["ana/sessions/home/summaries/summary.md"]
    assert not service.sync(store) and tree(root) == files
    # It comes back from the vault alone as any other.
    second = stores.open("second")
    report = rebuild.from_vault(second, root)
    assert report.problems == () and exported(second) == exported(store)


def test_adopt_commits_old_files_first_and_git_shows_renames(
    stores: Stores, folder: Folder
) -> None:
    store, root = stores.open(), folder.root
    adopt.adopt(store, root, space="ana")
    assert git(root, "status", "--porcelain", "-uno") == ""
    ignored = git(root, "ls-files")
    assert "chroma/" not in ignored and "memory_index.json" not in ignored
    newest, moves, before, _ = git(root, "log", "--format=%s").splitlines()
    assert before == f"checkpoint: {adopt.BEFORE_ADOPTION}" and moves == f"ana: {adopt.MOVED}"
    assert newest.startswith("ana: 8 remembered")
    changes = git(root, "show", "-M", "--name-status", "--format=", "HEAD~1").splitlines()
    assert len(changes) == 12 and all(line.startswith("R100") for line in changes)
    (path,) = root.glob("ana/facts/*köln*")
    followed = git(root, "log", "--follow", "--format=%s", "--", str(path)).splitlines()
    assert len(followed) == 3


def test_repeated_adopt_imports_only_new_files(stores: Stores, folder: Folder) -> None:
    store, root = stores.open(), folder.root
    adopt.adopt(store, root, space="ana")
    before, files = exported(store), tree(root)
    assert adopt.adopt(store, root, space="ana") == AdoptionReport()
    assert exported(store) == before and tree(root) == files
    folder.put(20, "user", "One more thing")
    folder.put(21, "memory", "The user has one more thing", source_id=uuid(20))
    folder.put(3, "memory", "The user's wife is Jane", source_id=uuid(1))
    report = adopt.adopt(store, root, space="ana")
    assert report == AdoptionReport(memories=1, events=1)
    assert not (root / "entries").exists()
    assert [event.sequence for event in store.space("ana").session("home").events()] == [1, 2, 3, 4]


def test_adopt_of_an_edited_file_is_a_revision(stores: Stores, folder: Folder) -> None:
    store, root = stores.open(), folder.root
    adopt.adopt(store, root, space="ana")
    folder.put(7, "memory", "The user lives in Bonn", "global")
    folder.put(1, "user", "My wife is Anne")
    report = adopt.adopt(store, root, space="ana")
    assert [line.partition(": ")[2] for line in report.problems] == [
        "the store says something else: it is left as it is"
    ]
    assert "The user lives in Bonn" in {m.content for m in store.space("ana").memories()}
    assert [path.name for path in (root / "entries").rglob("*.md")] == [
        f"{DAY}T10-00-01.250000-00-00__{uuid(1)}.md"
    ]


def test_adopt_reports_broken_files_and_leaves_them(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    facts = folder.root / "entries" / "home" / "facts"
    folder.put(1, "memory", "whole")
    (facts / "open.md").write_bytes(b"---\nid: x\nnever closed\n")
    (facts / "bytes.md").write_bytes(b"---\nid: x\n---\n\xff\xfe\xff\n")
    (facts / "empty.md").write_bytes(b"---\nid: x\n---\n\n")
    (facts / "link.md").symlink_to("/etc/passwd")
    bad = {path.name for path in facts.iterdir()} - {next(facts.glob("2025*")).name}
    store = stores.open()
    report = adopt.adopt(store, folder.root, space="ana")
    assert report.memories == 1 and len(report.problems) == 4
    assert {path.name for path in facts.iterdir()} == bad
    assert (facts / "link.md").is_symlink()


def test_adopt_reads_hand_written_files_leniently(stores: Stores, tmp_path: Path) -> None:
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
    report = adopt.adopt(store, folder.root, space="ana")
    assert report == AdoptionReport(memories=3)
    space = store.space("ana")
    (first,) = space.session("no front").memories()
    assert (first.content, first.created_at) == ("without any front matter", at(0) - 3_600_250)
    assert [m.content for m in space.session("deleted").memories()] == [
        "of a conversation called deleted"
    ]
    (deep,) = space.session("home").memories()
    assert (deep.content, deep.created_at) == ("deep down", at(0) - 250)
    assert not entries.exists() and not service.sync(store)


def test_adopt_continues_a_conversation_that_is_stored(stores: Stores, folder: Folder) -> None:
    store = stores.open()
    space = store.space("ana")
    space.session("home").append(user("said here"))
    space.session("home").write_summary("Ours.", upper=1, expected_epoch=0)
    report = adopt.adopt(store, folder.root, space="ana")
    assert report.events == 3 and report.summaries == 0 and report.problems == []
    assert [event.sequence for event in space.session("home").events()] == [1, 2, 3, 4]
    assert space.session("home").summary().text == "Ours."
    kept = space.session("home").space.memories(include_forgotten=True)
    assert "They talk about food." in {memory.content for memory in kept}


def test_adopt_makes_a_note_of_a_summary_without_conversation(
    stores: Stores, tmp_path: Path
) -> None:
    folder = Folder(tmp_path / "memory_db")
    folder.put(1, "summary", "All that is left of it.")
    store = stores.open()
    report = adopt.adopt(store, folder.root, space="ana")
    assert report == AdoptionReport(memories=1)
    (note,) = store.space("ana").session("home").memories()
    assert (note.kind, note.category, note.content) == (
        "note",
        "summary",
        "All that is left of it.",
    )
    assert not (folder.root / "entries").exists()


def test_adopt_redacts_secrets(stores: Stores, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "memory_db")
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    folder.put(1, "memory", f"The key is {key}")
    folder.put(2, "user", f"My key is {key}")
    store = stores.open()
    report = adopt.adopt(store, folder.root, space="ana")
    assert (report.memories, report.events, report.problems) == (1, 1, [])
    assert key not in str(exported(store))
    assert not any(key.encode() in raw for raw in tree(folder.root).values())


def test_adopt_of_an_unsuitable_folder_changes_nothing(stores: Stores, folder: Folder) -> None:
    store, before = stores.open(), tree(folder.root)
    with pytest.raises(VaultError, match="another --space"):
        adopt.adopt(store, folder.root, space="entries")
    with pytest.raises(VaultError, match="not agent-cli's"):
        adopt.adopt(store, folder.root / "chroma", space="ana")
    store.space("ana").remember("mine")
    service.init(store, folder.root.parent / "vault")
    with pytest.raises(VaultError, match="the vault of this store is"):
        adopt.adopt(store, folder.root, space="ana")
    assert tree(folder.root) == before


@pytest.mark.parametrize("steps", range(1, 24, 2))
def test_interrupted_adopt_continues(
    stores: Stores, folder: Folder, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reverie.vault import disk

    store = stores.open()
    left = steps

    def limited(real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("write", "remove", "make_folder", "sync_folder"):
            patch.setattr(disk, name, limited(getattr(disk, name)))
        with pytest.raises(KeyboardInterrupt):
            adopt.adopt(store, folder.root, space="ana")
    report = adopt.adopt(store, folder.root, space="ana")
    assert report.problems == [] and not (folder.root / "entries").exists()
    assert len(store.space("ana").memories()) == 2
    assert len(store.space("ana").session("home").memories()) == 2
    assert len(store.space("ana").session("home").events()) == 3
    settled = tree(folder.root)
    assert not service.sync(store) and tree(folder.root) == settled


def test_adopted_and_erased_entries_are_purged_from_history(stores: Stores, folder: Folder) -> None:
    store = stores.open()
    folder.put(20, "summary", "The wife of Jane's husband is her.", "other")
    folder.put(21, "user", "a word that nobody shall know", "other")
    folder.put(22, "memory", "a fact that nobody shall know", "global")
    adopt.adopt(store, folder.root, space="ana")
    space = store.space("ana")
    (secret,) = (each for each in space.memories() if "shall know" in each.content)
    space.erase(secret.id)
    space.session("other").erase_event(1)
    done = service.scrub(store)
    assert done.found == () and done.texts == 3
    repository = Repository.at(folder.root)
    assert repository is not None and find_bytes(repository, b"that nobody shall know") == []
    assert find_bytes(repository, b"Jane's husband") == []
    assert "The user lives in K" in git(folder.root, "log", "-p", "--reverse", "--", "entries")
    assert git(folder.root, "log", "-p", "--", "entries").count("hate pizza now")
