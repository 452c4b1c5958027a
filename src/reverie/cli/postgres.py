"""The operator's commands for a store on PostgreSQL: partition, distribute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast

import click

from reverie.cli.options import CommonOptions, examples, store_options
from reverie.cli.output import pluralize, print_json, print_line, print_stderr
from reverie.config import default_url
from reverie.engine import open_engine
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import ConfigError

if TYPE_CHECKING:
    from reverie.engine.postgres.engine import PostgresEngine
    from reverie.engine.postgres.sharding import ShardingPlan

_YES = click.option(
    "--yes", is_flag=True, help="Run the statements. Without this they are only shown."
)


@click.group(
    "postgres",
    epilog=examples("reverie postgres partition", "reverie postgres distribute --shards 64 --yes"),
)
def postgres_command() -> None:
    """Partition or distribute a PostgreSQL store.

    Every table is split by space, so that all rows of a space stay together. Both commands print
    the SQL statements they would run; with --yes they run them. First stop every other process that
    has the store open.
    """


@postgres_command.command(
    "partition",
    epilog=examples(
        "reverie postgres partition",
        "reverie postgres partition --parts 64 > plan.sql",
        "reverie postgres partition --yes",
    ),
)
@click.option(
    "--parts",
    type=click.IntRange(2, 1024),
    help="How many partitions each table has.  [default: 16]",
)
@_YES
@store_options
def partition_command(options: CommonOptions, parts: int | None, yes: bool) -> None:
    """Turn the tables into hash partitions, on one server.

    It is one transaction: if it is interrupted, nothing has changed. It needs as much free disk
    space as the store uses. A table that is partitioned already is left alone.
    """
    plan = _make_plan(options, "partition", parts, run=yes)
    _print_plan(options, plan, done=yes, how="partitioned by the space")


@postgres_command.command(
    "distribute",
    epilog=examples(
        "reverie postgres distribute",
        "reverie postgres distribute --shards 128 --yes",
        "reverie postgres distribute --json",
    ),
)
@click.option(
    "--shards",
    type=click.IntRange(1, 64_000),
    help="How many shards each table has.  [default: Citus's citus.shard_count]",
)
@_YES
@store_options
def distribute_command(options: CommonOptions, shards: int | None, yes: bool) -> None:
    """Distribute the tables over many machines, with Citus.

    Run it on the coordinator after the other machines were added. The tables meta and spaces are
    copied to every machine; all other tables are split by space, with all shards of a space on one
    machine. A table that is distributed already is left alone. Run it again after an upgrade.
    """
    plan = _make_plan(options, "distribute", shards, run=yes)
    _print_plan(options, plan, done=yes, how="distributed by the space")


def _make_plan(
    options: CommonOptions,
    verb: Literal["partition", "distribute"],
    count: int | None,
    *,
    run: bool,
) -> ShardingPlan:
    """Plan the statements that split every table into ``count`` parts, and run them if asked to."""
    with _open_postgres(options) as engine:
        # psycopg is an optional library.
        from reverie.engine.postgres import sharding

        if verb == "partition":
            split = sharding.partition if run else sharding.plan_partitions
            return split(engine, count)
        distribute = sharding.distribute if run else sharding.plan_distribution
        return distribute(engine, count)


@contextlib.contextmanager
def _open_postgres(options: CommonOptions) -> Iterator[PostgresEngine]:
    settings = options.settings()
    address = settings.url or default_url()
    if not address.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "this is for a store on PostgreSQL: give --url postgresql://user@host/database"
        )
    upgrade = UpgradeOptions(settings.keeps_upgrade_backup)
    with contextlib.closing(open_engine(address, upgrade_options=upgrade)) as engine:
        yield cast("PostgresEngine", engine)


def _print_plan(options: CommonOptions, plan: ShardingPlan, *, done: bool, how: str) -> None:
    """Print the statements with the purpose of each; if they were run, only their number."""
    steps = plan.steps
    if options.as_json:
        print_json({"done": done, "tables": plan.tables, "statements": steps})
        return
    if not steps:
        print_line(f"Nothing to do: every table is {how}.")
        return
    if done:
        print_line(
            f"Ran {pluralize(len(steps), 'statement')}: "
            f"{pluralize(len(plan.tables), 'table')} {how}."
        )
        return
    for transaction in plan.transactions:
        print_line("BEGIN;")
        for step in transaction:
            print_line(f"-- {step.why}\n{step.sql};")
        print_line("COMMIT;")
    print_stderr(
        f"Nothing was changed: {pluralize(len(plan.tables), 'table')} would be {how}. Do it: --yes"
    )
