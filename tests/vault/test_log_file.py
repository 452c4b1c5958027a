"""The vault's own log: append-only, cut, lost, rotated, of another time."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.model import Scope
from reverie.vault import disk, log_file
from reverie.vault.log_file import VaultLog
from tests.vault.vaults import Kept, assert_equal, assert_log


def line(position: int, space: str = "ana") -> log_file.LogLine:
    return {"space": space, "user": None, "position": position, "uuid": f"u{position}"}


def test_vault_log_only_grows_and_is_rotated_when_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "FULL_BYTES", 200)
    own = VaultLog(tmp_path)
    for position in range(1, 30):
        own.append([line(position)])
    assert [each["position"] for each in own.lines()] == list(range(1, 30))
    assert len(own.files()) > 4
    full = own.files()[:-1]
    before = [path.read_bytes() for path in full]
    own.append([line(30)])
    assert [path.read_bytes() for path in full] == before


def test_lost_log_file_is_a_gap_and_loses_no_other_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "FULL_BYTES", 100)
    own = VaultLog(tmp_path)
    for position in range(1, 9):
        own.append([line(position)])
    lost = own.files()[0]
    kept = len(list(own.lines()))
    gone = len(lost.read_bytes().splitlines())
    lost.unlink()
    for position in range(9, 20):
        own.append([line(position)])
    assert len(list(own.lines())) == kept - gone + 11


def test_append_of_many_entries_writes_several_log_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "FULL_BYTES", 200)
    own = VaultLog(tmp_path)
    own.append([line(1)])
    changed = own.append([line(position) for position in range(2, 30)])
    assert sorted(changed) == sorted(own.files())
    assert all(path.stat().st_size <= 200 for path in own.files())
    assert [each["position"] for each in own.lines()] == list(range(1, 30))


def test_vault_log_of_any_size_is_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_BYTES", 4096)
    notes = [kept.ana.remember(f"{number}{' word' * 400}", kind="note") for number in range(4)]
    kept.sync()
    (kept.root / ".reverie" / "files.db").unlink()
    kept.ana.erase(notes[0].id)
    kept.sync()
    assert_equal(kept)


def test_truncated_log_line_is_written_again(tmp_path: Path) -> None:
    own = VaultLog(tmp_path)
    own.append([line(1), line(2)])
    raw = own.newest.read_bytes()
    for cut in range(len(raw) - 1, len(raw) // 2 + 1, -1):
        own.newest.write_bytes(raw[:cut])
        reached = 2 if cut == len(raw) - 1 else 1
        assert own.cursors() == {Scope("ana"): reached}
        own.append([line(position) for position in range(reached + 1, 4)])
        assert [each["position"] for each in own.lines()] == [1, 2, 3]


def test_invalid_log_lines_are_reported(tmp_path: Path) -> None:
    own = VaultLog(tmp_path)
    own.append([line(1)])
    with own.newest.open("ab") as file:
        file.write(b'rubbish\n{"a": 1}\n[]\n\n\xff\xfe\n')
        for position, space in ((10**30, "ana"), (True, "ana"), (-1, "ana"), (3, "half \ud83d")):
            file.write(log_file.encode_line({**line(1, space), "position": position}))
    own.append([line(2)])
    reported: list[str] = []
    assert len(list(own.lines(reported.append))) == 2
    assert len(reported) == 8


@pytest.mark.parametrize("keep", [0, 1, 100, 350, -1])
def test_vault_log_truncated_anywhere_is_repaired(kept: Kept, keep: int) -> None:
    for number in range(5):
        kept.ana.remember(f"fact {number}")
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()
    path = kept.root / ".reverie" / "log.jsonl"
    raw = path.read_bytes()
    path.write_bytes(raw[:keep])
    kept.ana.remember("one more")
    kept.mirror()
    assert_log(kept)
    assert set(raw.splitlines()) < set(path.read_bytes().splitlines())
    assert_equal(kept)


def test_deleted_vault_log_is_written_again(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.store.space("ana", user="bob").remember("two")
    kept.sync()
    (kept.root / ".reverie" / "log.jsonl").unlink()
    kept.sync()
    assert_equal(kept)


def test_vault_log_keeps_surrogates_and_all_json_values(kept: Kept) -> None:
    message = {
        "role": "user",
        "content": "half \ud83d",
        "extra": {"a": [1.5, None, True, "\u2028"]},
    }
    kept.ana.session("chat").append(message)
    kept.sync()
    assert_log(kept)
    (entry,) = kept.log_lines()
    assert entry["body"]["message"] == message
