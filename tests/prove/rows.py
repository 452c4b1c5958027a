"""The table of proofs: what is tested, which figure is asked, and which command reaches it.

A row is one entry of ``ROWS``. Its tests report figures by ``tests.figures.figure``; a figure that
is asked for and not reported fails the row. ``full`` and ``quick`` are counts given through the
environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Limits of time and memory say nothing about a run that is short and shares the machine.
ONLY_FULL = (" s", " ms", " MB")


@dataclass(frozen=True)
class Asked:
    """A figure that a row must reach: at least, or at most."""

    figure: str
    least: float | None = None
    most: float | None = None
    unit: str = ""

    def met(self, value: float, *, quick: bool = False) -> bool:
        """Say whether a value is enough.

        A quick run reaches no counts and shares the machine: it is asked for limits alone.
        """
        if quick and self.unit in ONLY_FULL:
            return True
        enough = self.least is None or value >= self.least or (quick and self.least > 1)
        return enough and (self.most is None or value <= self.most)

    def show(self, value: float) -> str:
        return f"{self.figure} {value:,.6g}{self.unit}"

    def __str__(self) -> str:
        if self.most == 0:
            return f"0 {self.figure}"
        sign, limit = ("≥", self.least) if self.least is not None else ("≤", self.most)
        return f"{self.figure} {sign} {limit:,.6g}{self.unit}"


def least(figure: str, count: float, unit: str = "") -> Asked:
    return Asked(figure, least=count, unit=unit)


def most(figure: str, limit: float, unit: str = "") -> Asked:
    return Asked(figure, most=limit, unit=unit)


def none(figure: str) -> Asked:
    return Asked(figure, most=0)


@dataclass(frozen=True)
class Row:
    """One promise, the command that tests it, and the figure it must reach."""

    id: str
    what: str
    asked: tuple[Asked, ...]
    tests: tuple[str, ...] = ()
    only: str = ""
    full: Mapping[str, str] = field(default_factory=dict)
    quick: Mapping[str, str] = field(default_factory=dict)
    minutes: float = 1.0
    # Whether files must lie on a disk: what survives a crash, and how long a sync takes.
    durable: bool = True
    # Whether the cases of a full run may be shared between processes: those that measure no time.
    parallel: bool = False
    # Whether the tests that other rows name whole are left to those rows.
    rest: bool = False

    @property
    def figures(self) -> set[str]:
        return {asked.figure for asked in self.asked}

    @property
    def asked_text(self) -> str:
        return "; ".join([*map(str, self.asked), "every case passes"])


ROWS: list[Row] = [
    Row(
        "R1",
        "kill -9 of a process that writes through the library",
        (
            least("kills", 10_000),
            none("acknowledged writes missing"),
            none("problems found by verify"),
            most("slowest reopening", 1, " s"),
        ),
        ("tests/crash/test_kill.py::test_acknowledged_writes_survive_kill",),
        full={"REVERIE_CRASH_ROUNDS": "10000"},
        quick={"REVERIE_CRASH_ROUNDS": "80"},
        minutes=60,
        parallel=True,
    ),
    Row(
        "R2",
        "kill -9 of the server during REST, proxy and MCP requests, which clients repeat",
        (
            least("kills", 300),
            none("acknowledged writes missing"),
            none("writes made twice"),
        ),
        (
            "tests/crash/test_rest_kill.py",
            "tests/crash/test_server_kill.py",
            "tests/crash/test_mcp_kill.py",
        ),
        full={"REVERIE_CRASH_ROUNDS": "4000"},
        quick={"REVERIE_CRASH_ROUNDS": "80"},
        minutes=20,
        parallel=True,
    ),
    Row(
        "R3",
        "the k-th sync fails, in SQLite's file layer and in the kernel's calls",
        (
            least("failed syncs", 200),
            none("acknowledged writes missing"),
            none("acknowledgements after a failed sync"),
        ),
        (
            "tests/crash/test_failing_calls.py::test_write_is_not_acknowledged_after_a_failed_sync",
            "tests/crash/test_failing_calls.py::test_write_is_not_acknowledged_after_a_failed_checkpoint",
            "tests/crash/test_faults.py::test_write_is_not_acknowledged_after_a_failed_sync",
            "tests/crash/test_faults.py::test_disk_that_never_syncs_again_acknowledges_nothing",
        ),
        minutes=4,
        parallel=True,
    ),
    Row(
        "R4",
        "the k-th write fails or is short, the k-th read fails",
        (
            least("failed writes", 200),
            least("short writes", 200),
            least("failed reads", 200),
            none("wrong answers"),
        ),
        (
            "tests/crash/test_failing_calls.py::test_write_refused_by_the_kernel_is_not_acknowledged",
            "tests/crash/test_failing_calls.py::test_short_writes_of_the_kernel_lose_nothing",
            "tests/crash/test_failing_calls.py::test_failed_reads_give_an_error_or_the_right_answer",
            "tests/crash/test_faults.py::test_failed_disk_write_loses_nothing_acknowledged",
            "tests/crash/test_faults.py::test_failed_truncation_loses_nothing_acknowledged",
            "tests/crash/test_faults.py::test_failed_read_gives_an_error_or_the_right_answer",
            "tests/crash/test_faults.py::test_failed_read_during_writes_loses_nothing_acknowledged",
            "tests/crash/test_faults.py::test_fault_while_opening_is_a_typed_error_and_harmless",
        ),
        minutes=10,
        parallel=True,
    ),
    Row(
        "R5",
        "a full disk, during writes, checkpoints, opening, rebuilding, backups and erasing",
        (),
        ("tests/crash/test_faults.py",),
        only="full_disk",
        minutes=2,
    ),
    Row(
        "R6",
        "a SQLite that can corrupt a shared file is refused",
        (),
        ("tests/engine/sqlite/test_engine.py::test_old_sqlite_version_is_refused",),
        minutes=0.1,
    ),
    Row(
        "R7",
        "writers, a server and commands on one file in memory, checkpointing all the time",
        (
            least("rounds", 100),
            least("shortest round", 12, " s"),
            none("acknowledged writes missing"),
            none("corrupt files"),
        ),
        ("tests/crash/test_wal_reset.py",),
        full={"REVERIE_CRASH_WAL_ROUNDS": "100", "REVERIE_CRASH_WAL_SECONDS": "12"},
        quick={"REVERIE_CRASH_WAL_ROUNDS": "2", "REVERIE_CRASH_WAL_SECONDS": "3"},
        minutes=30,
    ),
    Row(
        "R8",
        "eight processes write one file",
        (
            least("acknowledged writes", 16_000),
            none("acknowledged writes missing"),
            none("errors seen by a caller"),
            most("wait of a write, p99", 2, " s"),
        ),
        (
            "tests/crash/test_many_processes.py::test_eight_processes_write_one_file_without_losing_a_write",
        ),
        minutes=4,
    ),
    Row(
        "R9",
        "a handle used after fork raises a typed error",
        (least("verbs refused after a fork", 1),),
        ("tests/engine/sqlite/test_engine.py", "tests/engine/postgres/test_engine.py"),
        only="fork or child",
        minutes=0.5,
    ),
    Row(
        "R10",
        "two writers change one memory that both have read",
        (least("pairs", 1_000), none("silent overwrites")),
        ("tests/contract/test_lost_updates.py", "tests/contract/test_changes.py"),
        minutes=1,
    ),
    Row(
        "R11",
        "writes arrive while a model thinks",
        (least("writes during a model call", 50), none("of these writes lost")),
        ("tests/learn/test_concurrent_learning.py",),
        minutes=2,
    ),
    Row(
        "R12",
        "PostgreSQL stops at once, or a process of it is killed, during writes",
        (
            least("stops of the server", 200),
            none("acknowledged writes missing or doubled"),
            most("slowest reconnection", 5, " s"),
        ),
        ("tests/crash/test_postgres_stop.py",),
        full={"REVERIE_CRASH_SERVER_ROUNDS": "200"},
        quick={"REVERIE_CRASH_SERVER_ROUNDS": "5"},
        minutes=25,
        parallel=True,
    ),
    Row(
        "R13",
        "one suite of behaviour on SQLite and PostgreSQL",
        (),
        ("tests/contract", "tests/engine/test_engine_parity.py"),
        minutes=15,
        parallel=True,
    ),
    Row(
        "R14",
        "random verbs, reopenings and clock steps: the store equals a model",
        (least("sequences of verbs", 5_000), least("longest sequence", 100)),
        ("tests/property/test_model.py",),
        full={
            "REVERIE_PROPERTY_EXAMPLES": "2500",
            "REVERIE_PROPERTY_STEPS": "100",
            "REVERIE_PROPERTY_PARTS": "10",
        },
        quick={"REVERIE_PROPERTY_EXAMPLES": "20"},
        minutes=30,
        durable=False,
        parallel=True,
    ),
    Row(
        "R15",
        "clocks that step by an hour or ten years, repeat, or differ between writers",
        (none("orders or expiries that follow the clock"),),
        (
            "tests/contract/test_clock.py",
            "tests/contract/test_changes.py::test_recorded_at_never_decreases_when_the_clock_steps_back",
            "tests/contract/test_limits.py::test_expiry_never_fires_early_when_the_clock_steps",
        ),
        minutes=0.5,
    ),
    Row(
        "R16",
        "a model service misbehaves: no turn is lost, what fails is parked and seen",
        (least("kinds of misbehaviour", 40), none("turns lost")),
        ("tests/learn/test_faulty_models.py",),
        minutes=4,
        parallel=True,
    ),
    Row(
        "R17",
        "a stream is cut by the upstream or the client after each of its first pieces",
        (least("cuts", 50),),
        ("tests/server/proxy/test_stream.py",),
        minutes=2,
    ),
    Row(
        "R18",
        "requests and replies pass the proxy byte for byte",
        (least("pairs", 200), none("bytes changed"), most("added latency, p95", 15, " ms")),
        ("tests/server/proxy/test_transparency.py", "tests/server/proxy/test_routes.py"),
        minutes=2,
    ),
    Row(
        "R19",
        "requests made from the OpenAPI description, with and without a token",
        (
            least("requests", 10_000),
            none("answers of 5xx"),
            none("answers of 2xx without a token"),
        ),
        ("tests/server/rest/test_openapi.py",),
        full={"REVERIE_SCHEMA_EXAMPLES": "130"},
        quick={"REVERIE_SCHEMA_EXAMPLES": "2"},
        minutes=12,
    ),
    Row(
        "R20",
        "malformed MCP messages over HTTP and stdio",
        (
            least("messages", 10_000),
            none("answers of 5xx"),
            most("growth of memory", 20, " MB"),
        ),
        ("tests/server/mcp/test_malformed.py",),
        minutes=5,
    ),
    Row(
        "R21",
        "coverage-guided fuzzing of every parser",
        (least("inputs", 100_000), least("parsers", 8), none("untyped errors or broken promises")),
        ("tests/fuzz",),
        full={"REVERIE_FUZZ_INPUTS": "12000"},
        quick={"REVERIE_FUZZ_INPUTS": "500"},
        minutes=20,
        parallel=True,
    ),
    Row(
        "R22",
        "any text is a query, and no operator is honoured",
        (least("strings", 10_000),),
        (
            "tests/property/test_hostile.py::test_any_query_returns_hits_without_an_error",
            "tests/property/test_hostile.py::test_hostile_query_raises_no_error",
            "tests/property/test_hostile.py::test_query_operators_are_treated_as_text",
        ),
        full={"REVERIE_PROPERTY_EXAMPLES": "5000"},
        quick={"REVERIE_PROPERTY_EXAMPLES": "100"},
        minutes=6,
    ),
    Row(
        "R23",
        "owners that are easily mistaken for each other: no canary is seen elsewhere",
        (least("operations", 20_000), none("canaries seen elsewhere")),
        ("tests/property/test_isolation.py", "tests/server/test_isolation.py"),
        full={"REVERIE_PROPERTY_EXAMPLES": "240"},
        quick={"REVERIE_PROPERTY_EXAMPLES": "30"},
        minutes=15,
        parallel=True,
    ),
    Row(
        "R24",
        "no store call without a scope; row-level security alone hides other owners",
        (),
        ("tests/test_architecture.py", "tests/engine/postgres/test_row_security.py"),
        minutes=3,
        parallel=True,
    ),
    Row(
        "R25",
        "every route and MCP tool for every kind of caller",
        (least("cells", 300),),
        ("tests/server/test_rights.py",),
        minutes=1,
        parallel=True,
    ),
    Row(
        "R26",
        "a server started without settings is closed to all but its user",
        (),
        ("tests/server/test_guard.py", "tests/cli/test_serve.py"),
        minutes=2,
    ),
    Row(
        "R27",
        "addresses that lead into the network around the machine are refused",
        (least("hostile addresses", 60), none("connections made")),
        ("tests/test_http_guard.py",),
        minutes=1,
    ),
    Row(
        "R28",
        "hostile names, paths, links, repositories and settings of git",
        (least("hostile names and files", 500), none("files changed outside the vault")),
        ("tests/vault/test_hostile.py", "tests/vault/git/test_hostile_repository.py"),
        minutes=12,
        parallel=True,
    ),
    Row(
        "R29",
        "secrets on every way in",
        (
            least("shapes of keys", 200),
            least("look-alikes", 2_000),
            least("keys redacted, share", 0.99),
            most("look-alikes redacted, share", 0.01),
        ),
        ("tests/text/secrets/test_detect.py", "tests/contract/test_secrets.py"),
        minutes=3,
        parallel=True,
    ),
    Row(
        "R30",
        "planted records never become instructions, and one command removes them",
        (least("planted records", 100), none("planted records among instructions")),
        ("tests/learn/test_poisoning.py",),
        minutes=1,
    ),
    Row(
        "R31",
        "backups made under load are whole; cut ones are refused",
        (
            least("backups equal to their moment", 100),
            least("cut backups refused", 50),
            none("cut backups accepted"),
        ),
        ("tests/contract/test_backups_under_load.py", "tests/contract/test_backups.py"),
        minutes=4,
    ),
    Row(
        "R32",
        "index and files deleted and rebuilt give the same answers, also after a kill",
        (least("queries", 500), none("queries answered differently")),
        (
            "tests/vault/test_rebuild.py::test_rebuild_from_the_vault_restores_the_whole_store",
            "tests/contract/test_maintenance.py::test_rebuild_changes_no_answer",
            "tests/crash/test_kill.py::test_kill_during_rebuild_keeps_the_old_index_or_the_new",
        ),
        minutes=4,
    ),
    Row(
        "R33",
        "stores of every earlier schema are upgraded, also after kill -9 in any step",
        (least("schemas upgraded", 3), least("kills", 3), none("rows lost")),
        (
            "tests/engine/test_upgrades.py",
            "tests/engine/sqlite/test_upgrade_backup.py",
            "tests/engine/postgres/test_upgrades.py",
            "tests/contract/test_upgrades.py",
            "tests/engine/sqlite/test_engine.py::test_store_of_an_earlier_schema_is_upgraded",
            "tests/engine/sqlite/test_engine.py::test_newer_schema_version_is_refused_and_unchanged",
            "tests/engine/postgres/test_engine.py::test_older_schema_is_upgraded",
            "tests/engine/postgres/test_engine.py::test_newer_schema_version_is_refused_and_unchanged",
        ),
        minutes=2,
        parallel=True,
    ),
    Row(
        "R34",
        "mixed load with kills and stops for half an hour",
        (
            least("minutes", 30),
            none("invariants broken"),
            most("growth of memory, share", 0.10),
            most("growth of memory at rest, share", 0.05),
            most("growth of open files", 0),
            most("largest write-ahead log", 64, " MB"),
        ),
        ("tests/simulation/test_soak.py",),
        full={"REVERIE_CRASH_SOAK_SECONDS": "1800"},
        quick={"REVERIE_CRASH_SOAK_SECONDS": "20"},
        minutes=35,
    ),
    Row(
        "R35",
        "what was erased is in no file of the store, the vault or its history",
        (none("files that still hold it"),),
        (
            "tests/engine/sqlite/test_engine.py::test_erased_content_is_in_no_file_of_the_store",
            "tests/engine/sqlite/test_engine.py::test_erase_waits_for_a_reader_in_another_process",
            "tests/engine/sqlite/test_upgrade_backup.py::test_erase_deletes_the_upgrade_backup_that_holds_the_text",
            "tests/engine/sqlite/test_upgrade_backup.py::test_session_erase_deletes_the_upgrade_backup_that_holds_it",
            "tests/vault/git/test_purge.py",
        ),
        minutes=6,
    ),
    Row(
        "R36",
        "two servers, workers and a vault under kills, pauses and partitions, from one seed",
        (
            least("seeds", 40),
            none("acknowledged writes missing"),
            none("writes made twice"),
            none("canaries seen elsewhere"),
        ),
        ("tests/simulation/test_simulation.py",),
        full={"REVERIE_CRASH_SIMULATIONS": "20"},
        quick={"REVERIE_CRASH_SIMULATIONS": "1"},
        minutes=20,
        parallel=True,
    ),
    Row(
        "R37",
        "power loss: every prefix and reordering of unsynced writes of a recorded workload",
        (least("points in time", 1_000), least("states opened", 3_000), none("states with a loss")),
        ("tests/crash/test_power_loss.py",),
        minutes=10,
        parallel=True,
    ),
    Row(
        "R38",
        "memory runs out, in SQLite's allocator and in Python's",
        (least("calls with too little memory", 400),),
        ("tests/crash/test_out_of_memory.py",),
        minutes=10,
        parallel=True,
    ),
    Row(
        "R39",
        "flipped bits, changed runs, zeroed pages and cut files: told of, never served, salvaged",
        (least("flipped bits", 1_000), least("otherwise damaged files", 300)),
        ("tests/maintenance/test_damage.py", "tests/contract/test_damage.py"),
        quick={"REVERIE_DAMAGE_FLIPS": "24", "REVERIE_DAMAGE_OTHERS": "3"},
        minutes=30,
        parallel=True,
    ),
    Row(
        "R40",
        "clients that never finish their header",
        (
            least("slow clients", 1_000),
            most("p99 beside slow clients, times the quiet one", 3),
        ),
        ("tests/crash/test_slow_clients.py", "tests/crash/test_idle_feeds.py"),
        minutes=5,
    ),
    Row(
        "R41",
        "every regular expression and every function that reads outside text takes linear time",
        (least("patterns attacked", 500), none("patterns that grow faster than the text")),
        ("tests/test_regexes.py", "tests/test_linear_functions.py"),
        minutes=10,
    ),
    Row(
        "R42",
        "hostile texts that learning must not believe",
        (least("unseen hostile texts without a wrong memory, share", 0.97),),
        ("tests/learn/test_corpus.py",),
        minutes=5,
    ),
    Row(
        "R43",
        "store and vault edited at random, with kills between any two actions of a plan",
        (least("sequences of edits", 5_000), least("kills between actions", 500)),
        ("tests/property/test_vault_plan.py",),
        full={"REVERIE_PROPERTY_EXAMPLES": "5000"},
        quick={"REVERIE_PROPERTY_EXAMPLES": "30"},
        minutes=5,
    ),
    Row(
        "R44",
        "every case of every test that no other row runs",
        (),
        ("tests",),
        minutes=40,
        durable=False,
        parallel=True,
        rest=True,
    ),
]
