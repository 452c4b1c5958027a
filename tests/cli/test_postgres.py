"""``reverie postgres``: partition and distribute print their statements; --yes runs them."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine
from tests.conftest import rows
from tests.servers import Server, running
from tests.sharded_stores import STAND_IN, opened


@pytest.fixture
def address(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with something in it, which is where every command looks."""
    url = postgres.database(template="made")
    monkeypatch.setenv("REVERIE_URL", url)
    return url


def partitions(address: str) -> int:
    with opened(address) as store:
        return int(rows(store, "SELECT COUNT(*) FROM pg_inherits")[0][0])


def test_partition_without_yes_only_prints_its_statements(
    reverie: CommandLine, address: str
) -> None:
    reverie.remember("The boat is blue")
    result = reverie.run("postgres", "partition", "--parts", "3", "--url", address)
    lines = result.stdout.splitlines()
    assert lines[0] == "BEGIN;" and lines[-1] == "COMMIT;"
    assert "INSERT INTO reverie.log_new SELECT * FROM reverie.log;" in lines
    assert all(line.startswith("-- ") or line.endswith(";") for line in lines)
    assert "Nothing was changed: 20 tables would be partitioned by the space" in result.stderr
    assert partitions(address) == 0


def test_partition_with_yes_runs_once(
    reverie: CommandLine, postgres: Server, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("REVERIE_URL", address)
    kept = reverie.remember("The boat is blue")
    shown = reverie.json("postgres", "partition", "--parts", "3")
    assert shown["done"] is False and len(shown["tables"]) == 20
    done = reverie.json("postgres", "partition", "--parts", "3", "--yes")
    assert done == {**shown, "done": True}
    assert partitions(address) > 0
    assert reverie.json("recall", "what colour is the boat")["hits"][0]["id"] == kept
    assert reverie.json("postgres", "partition", "--yes") == {
        "done": True,
        "tables": [],
        "statements": [],
    }
    assert reverie.text("postgres", "partition") == (
        "Nothing to do: every table is partitioned by the space.\n"
    )
    assert "3 partitions already" in reverie.error(
        "postgres", "partition", "--parts", "4", "--yes", code=2
    )


def test_partition_is_refused_while_another_process_has_the_store_open(
    reverie: CommandLine, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(address) as store:
        store.space("ana").remember("The boat is blue")
        output = reverie.error("postgres", "partition", "--yes", "--url", address, code=5)
    assert "Stop its servers and workers" in output
    assert partitions(address) == 0


@pytest.mark.parametrize("command", ["partition", "distribute"])
def test_postgres_commands_refuse_a_sqlite_store(reverie: CommandLine, command: str) -> None:
    output = reverie.error("postgres", command, "--yes", code=2)
    assert "give --url postgresql://" in output
    assert not reverie.store.exists()


def test_distribute_without_citus_is_refused(reverie: CommandLine, address: str) -> None:
    for arguments in ((), ("--yes",)):
        output = reverie.error("postgres", "distribute", *arguments, "--url", address, code=2)
        assert "this PostgreSQL has no Citus: install it" in output


def test_distribute_with_citus_shows_each_call_with_its_reason(reverie: CommandLine) -> None:
    """Functions with the names of Citus's functions replace it, and record their calls."""
    with running() as server:
        address = server.database()
        opened(address).close()
        with server.connect(address.split("/")[3].split("?")[0]) as connection:
            connection.execute(STAND_IN.encode())
            result = reverie.run("postgres", "distribute", "--shards", "8", "--url", address)
            lines = result.stdout.splitlines()
            first = (
                "SELECT create_distributed_table('reverie.owners', 'space', "
                "colocate_with => 'none', shard_count => 8);"
            )
            assert lines[lines.index(first) - 1] == "-- split by the space"
            assert 'ALTER ROLE "reverie_app" LOGIN;' in lines
            assert any("citus.propagate_set_commands = 'local'" in line for line in lines)
            assert "Nothing was changed" in result.stderr
            assert connection.execute("SELECT COUNT(*) FROM calls").fetchall() == [(0,)]
            output = reverie.text("postgres", "distribute", "--yes", "--url", address)
            assert "22 tables distributed by the space." in output
            assert connection.execute("SELECT COUNT(*) FROM calls").fetchall() == [(23,)]
