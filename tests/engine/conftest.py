"""Databases that several tests of partitioning and sharding start from."""

from __future__ import annotations

import pytest

from tests.servers import Server
from tests.sharded_stores import (
    fill,
    name_of,
    opened,
    split,
)


@pytest.fixture(scope="module")
def filled(postgres: Server) -> str:
    """The name of a database of plain tables with something in them: a template for others."""
    address = postgres.database(template="made")
    with opened(address) as store:
        fill(store)
    return name_of(address)


@pytest.fixture(scope="module")
def parted(postgres: Server, filled: str) -> str:
    """The same in partitions."""
    address = postgres.database(template=filled)
    split(address)
    return name_of(address)
