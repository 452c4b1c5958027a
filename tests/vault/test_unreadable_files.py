"""Files that cannot be read: reported and left unchanged, and no memory is forgotten."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from reverie.vault import disk, render
from tests.vault.vaults import Kept, assert_equal

TEN_MB = 10 * 1024 * 1024


def test_empty_file_changes_nothing(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.write(path, "")
    kept.write("ana/facts/new.md", " \n")
    report = kept.sync()
    assert sum("it is empty" in line for line in report.problems) == 2
    assert kept.ana.get(memory.id).version == 1
    kept.write(path, f"---\nid: {memory.id}\nversion: 1\n---\n")
    assert any("must not be empty" in line for line in kept.sync().problems)


def test_too_long_fact_is_reported_and_left(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.edit(path, "one", "x" * 5000)
    assert any("a fact has at most" in line for line in kept.sync().problems)
    assert "x" * 5000 in kept.read(path)
    kept.ana.revise(memory.id, "two")
    kept.mirror()
    assert "x" * 5000 in kept.read(path)
    kept.write("ana/facts/long.md", "y" * 5000)
    assert kept.sync().remembered == ["ana/facts/long.md"]
    (note,) = kept.ana.memories(kind="note")
    assert note.content == "y" * 5000


@pytest.mark.prove
def test_file_of_ten_megabytes_is_stored_whole(kept: Kept) -> None:
    text = ("0123456789 " * (TEN_MB // 11 + 1))[:TEN_MB]
    kept.write("ana/notes/large.md", text)
    assert kept.sync().remembered == ["ana/notes/large.md"]
    (note,) = kept.ana.memories()
    assert note.content == text
    kept.write("ana/notes/larger.md", b"x" * (disk.MAX_BYTES + 1))
    assert any("larger than" in line for line in kept.sync().problems)


def test_secrets_in_files_are_redacted(kept: Kept) -> None:
    memory = kept.ana.remember("my key")
    kept.mirror()
    path = kept.of(memory)
    secret = "sk-proj-" + "a1B2c3D4e5" * 5
    kept.edit(path, "my key", f"my key is {secret}")
    kept.sync()
    assert secret not in kept.ana.get(memory.id).content
    assert secret not in kept.read(path)
    assert_equal(kept)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"---\nid: x\nno end", "never closed"),
        (b"---\na: [b\n---\n\ntext", "no YAML"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"caf\xe9", "not UTF-8"),
        (b"---\n&a b: *a\n---\n\ntext", "alias"),
    ],
)
def test_unparsable_file_is_reported_and_left_unchanged(kept: Kept, raw: bytes, why: str) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    path = kept.of(memory)
    kept.write(path, raw)
    kept.write("ana/facts/new.md", raw)
    report = kept.sync()
    assert sum(why in line for line in report.problems) == 2
    assert kept.path(path).read_bytes() == raw
    assert kept.ana.get(memory.id).version == 1


def test_folder_pipe_socket_or_link_in_place_of_a_file_is_reported_and_forgets_nothing(
    kept: Kept, tmp_path: Path
) -> None:
    ids = {name: kept.ana.remember(name).id for name in ("folder", "fifo", "socket", "link")}
    kept.mirror()
    paths = {name: kept.of(id) for name, id in ids.items()}
    for path in paths.values():
        kept.path(path).unlink()
    kept.path(paths["folder"]).mkdir()
    os.mkfifo(kept.path(paths["fifo"]))
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(kept.path(paths["socket"]).parent)
    listening.bind(Path(paths["socket"]).name)
    os.chdir(here)
    (tmp_path / "outside.md").write_text("outside")
    kept.path(paths["link"]).symlink_to(tmp_path / "outside.md")
    report = kept.sync()
    listening.close()
    assert not report.forgotten and not report.revised
    for path in paths.values():
        assert any(line.startswith(f"{path}: ") for line in report.problems), path
    assert all(kept.ana.get(id).version == 1 for id in ids.values())


def test_links_are_reported_and_never_followed(kept: Kept, tmp_path: Path) -> None:
    memory = kept.ana.remember("one")
    kept.mirror()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    kept.path("ana/facts").rename(outside / "facts")
    kept.path("ana/facts").symlink_to(outside / "facts")
    kept.path("ana/loop").symlink_to(kept.root)
    kept.path("ana/file.md").symlink_to(outside / "secret.md")
    report = kept.sync()
    assert {line.split(":")[0] for line in report.problems} >= {
        "ana/facts",
        "ana/loop",
        "ana/file.md",
    }
    assert not report.forgotten and not report.remembered
    before = {path.name: path.read_bytes() for path in outside.rglob("*.md")}
    kept.ana.revise(memory.id, "two")
    other = kept.ana.remember("three")
    report = kept.sync()
    assert any(other.id in line for line in report.problems)
    assert {path.name: path.read_bytes() for path in outside.rglob("*.md")} == before
    kept.path("ana/facts").unlink()
    (outside / "facts").rename(kept.path("ana/facts"))
    for link in ("loop", "file.md"):
        kept.path(f"ana/{link}").unlink()
    kept.sync()
    assert_equal(kept)


def test_an_unreadable_folder_forgets_nothing(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = kept.ana.remember("one")
    kept.sync()
    scan = os.scandir

    def refusing(path: str | Path) -> object:
        if str(path).endswith("facts"):
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    report = kept.sync()
    assert report.problems == ["ana/facts: cannot be read: Permission denied"]
    assert kept.ana.get(memory.id).forgotten_at is None


def test_file_name_that_is_no_text_is_reported(kept: Kept) -> None:
    folder = os.fsencode(kept.root) + b"/ana/facts"
    Path(os.fsdecode(folder)).mkdir(parents=True)
    Path(os.fsdecode(folder + b"/caf\xe9.md")).write_bytes(b"text")
    assert any("not UTF-8" in line for line in kept.sync().problems)


def test_unusual_file_names_are_accepted(kept: Kept) -> None:
    names = ["What? Why: a*b.md", 'say "hi".md', "tab\tand\nline.md", "%41.md", "-rf.md", "a\\b.md"]
    for number, name in enumerate(names):
        kept.write(f"ana/facts/{name}", f"text {number}\n")
    report = kept.sync()
    assert not report.problems
    assert len(report.remembered) == len(names)
    assert_equal(kept)


def test_front_matter_number_with_too_many_digits_is_handled(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "hi"})
    session.write_summary("they greeted", upper=1, expected_epoch=0)
    kept.sync()
    digits = "1" * 5000
    kept.edit(kept.of(memory), "version: 1", f"version: {digits}")
    for name, old in (("turns.md", "event 1 "), ("summaries/summary.md", "version: 1")):
        path = f"ana/users/unnamed/sessions/2026-01/chat/{name}"
        plain = render.strip_seal(kept.path(path).read_bytes())
        assert plain is not None
        changed = plain.replace(old.encode(), old.replace("1", digits).encode())
        kept.write(path, render.add_seal(changed))
    kept.write("ana/facts/other.md", "of another file\n")
    assert kept.sync().remembered == ["ana/facts/other.md"]
    for path in [path for path in kept.files() if ".conflict-v" in path]:
        kept.path(path).unlink()
    kept.sync()
    assert_equal(kept)
