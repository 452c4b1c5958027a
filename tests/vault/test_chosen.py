"""A vault that shows some spaces and not others."""

from __future__ import annotations

from tests.vault.vaults import Kept


def test_the_summary_of_a_space_that_is_not_shown_is_not_written(kept: Kept) -> None:
    kept.init(kept.root, ["ana"])
    talk = kept.store.space("eve").session("chat")
    talk.append({"role": "user", "content": "hi"})
    talk.write_summary("what Eve said", upper=1, expected_epoch=0)
    kept.store.drain()
    assert not kept.path("eve").exists()
