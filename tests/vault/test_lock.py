"""The vault's lock: waiting for it has a deadline, and the error names who holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reverie.errors import VaultError
from reverie.vault.vault import Vault, VaultBusy
from tests.crash.stopped_writer import stopped_writer


def test_vault_held_by_a_stopped_process_is_busy_and_names_it(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    with Vault.init(root) as vault, stopped_writer(str(root), "-", "vault") as holder:
        expected = rf"process {holder.pid} .*stopped.*within 0.1 s"
        with pytest.raises(VaultBusy, match=expected) as caught, vault.locked(seconds=0.1):
            raise AssertionError("two are in the vault")
        assert isinstance(caught.value, VaultError)
        holder.go_on()
        with vault.locked(seconds=60):
            pass
