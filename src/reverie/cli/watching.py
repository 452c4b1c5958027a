"""A vault that is watched while another command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reverie.cli.output import remark
from reverie.errors import MissingExtra

if TYPE_CHECKING:
    from reverie.memory import Store


@contextlib.contextmanager
def watching(store: Store) -> Iterator[None]:
    """Watch the files of the store's vault, if it has one, until the block ends."""
    if store.vault is None:
        yield
        return
    from reverie.vault.watching import Watch

    try:
        watch = Watch(store)
    except MissingExtra as error:
        remark(f"What people edit in the vault waits for 'reverie vault sync': {error}")
        yield
        return
    with watch:
        yield
