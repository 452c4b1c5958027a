"""Run the git program so that nothing in a repository can make it run another program.

Every call names its repository, so that git does not search for one; it sees only the environment
and the settings given here; it has a time limit; and it fails only with a VaultError. Settings of a
repository that name programs are overridden here, or the commands that obey them are not used: git
never reads or writes files of the work tree, so no filter runs.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from reverie.errors import VaultError

MIN_GIT_VERSION = (2, 30)
TIMEOUT_SECONDS = 120.0
LONG_TIMEOUT_SECONDS = 3600.0
LOCK_WAIT_SECONDS = 5.0
# A person may think over a message for a while, and their git holds a lock meanwhile.
STALE_LOCK_SECONDS = 600.0
DEFAULT_AUTHOR = "Reverie"
DEFAULT_EMAIL = "reverie@reverie.invalid"
# What git writes is for the owner alone, whatever the umask of the process is.
PRIVATE_MODE = "0600"
_UMASK = 0o077 if os.name == "posix" else -1

_PASSED_VARIABLES = (
    "PATH",
    "TMPDIR",
    "TMP",
    "TEMP",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
)
_ENVIRONMENT = {
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_COMMITTER_NAME": DEFAULT_AUTHOR,
    "GIT_COMMITTER_EMAIL": DEFAULT_EMAIL,
    "GIT_AUTHOR_NAME": DEFAULT_AUTHOR,
    "GIT_AUTHOR_EMAIL": DEFAULT_EMAIL,
}
_SETTINGS = (
    f"core.hooksPath={os.devnull}",
    f"core.attributesFile={os.devnull}",
    f"core.sharedRepository={PRIVATE_MODE}",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.quotePath=false",
    "core.commitGraph=false",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.alternateRefsCommand=false",
    "credential.helper=",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.external=",
    "pack.packSizeLimit=0",
    # A pack for each commit: unpacking it would take another process, and each object a file.
    "fastimport.unpackLimit=0",
    "core.fsync=committed",
)
_CHECKED = "git"
_LOCKED = re.compile(r"Unable to create '((?:(?!Unable to create ')[^\n])+\.lock)': File exists")


@cache
def git_version(program: str) -> tuple[int, int] | None:
    """Return the version of a git program; None when it is not git, or gives none."""
    try:
        done = subprocess.run(  # noqa: S603
            [program, "--version"], capture_output=True, timeout=30, env=_environment(), check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(rb"git version (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


class MetaStore(Protocol):
    """Stores facts between processes."""

    def fact(self, name: str) -> str | None: ...

    def set_meta(self, name: str, value: str) -> None: ...


class GitBusy(VaultError):
    """Another git process holds a lock of the repository."""


def find_git(root: Path, facts: MetaStore | None = None) -> str | None:
    """Return the path of the git program, never one inside the vault.

    A program whose version was checked before, by ``facts``, is not asked again.
    """
    program = shutil.which("git")
    if program is None:
        return None
    path = Path(program).absolute()
    if path.is_relative_to(root.absolute()):
        return None
    about = path.stat()
    checked = f"{path} {about.st_size} {about.st_mtime_ns}"
    if facts is not None and facts.fact(_CHECKED) == checked:
        return str(path)
    if (git_version(str(path)) or (0, 0)) < MIN_GIT_VERSION:
        return None
    if facts is not None:
        facts.set_meta(_CHECKED, checked)
    return str(path)


def _environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**kept, **_ENVIRONMENT, **(more or {})}


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git for one repository: the vault's folder and its git folder."""

    program: str
    root: Path
    folder: Path

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        more: Mapping[str, str] | None = None,
        fine: tuple[int, ...] = (0,),
        seconds: float = TIMEOUT_SECONDS,
        wait: float | None = None,
        niced: bool = False,
    ) -> bytes:
        """Run git and return its output; wait for a held lock, and remove a forgotten one."""
        waited_until = time.monotonic() + (LOCK_WAIT_SECONDS if wait is None else wait)
        while True:
            code, said, complaint = self._once(arguments, given, more, seconds, niced=niced)
            if code in fine:
                return said
            held = _LOCKED.search(complaint)
            if held is None or not self._may_retry(Path(held[1]), waited_until):
                raise failure(complaint, arguments, self.root)

    def query_line(self, *arguments: str) -> str | None:
        """Run git and return the one line of its output; None when it has no answer (status 1)."""
        code, said, complaint = self._once(arguments, b"", None, TIMEOUT_SECONDS)
        if code not in {0, 1}:
            raise failure(complaint, arguments, self.root)
        line = said.decode("utf-8", "replace").strip()
        return line if code == 0 and line else None

    @contextmanager
    def open_pipe(
        self,
        *arguments: str,
        given: IO[bytes] | None = None,
        seconds: float = LONG_TIMEOUT_SECONDS,
    ) -> Iterator[GitPipe]:
        """Run git with pipes to write to and read from; it must exit with success.

        Input ``given`` as a file cannot block, however much git writes before it has read it.
        """
        with tempfile.TemporaryFile() as complaints:
            process = self._start(arguments, None, complaints, given)
            watch = threading.Timer(seconds, _end, (process,))
            watch.daemon = True
            watch.start()
            try:
                yield GitPipe(process)
                GitPipe(process).close()
                process.wait(seconds)
            except (BrokenPipeError, EOFError, subprocess.TimeoutExpired) as error:
                _end(process)
                raise failure(_read_all(complaints), arguments, self.root) from error
            finally:
                watch.cancel()
                _end(process)
            if process.returncode != 0:
                raise failure(_read_all(complaints), arguments, self.root)

    def _once(
        self,
        arguments: tuple[str, ...],
        given: bytes,
        more: Mapping[str, str] | None,
        seconds: float,
        *,
        niced: bool = False,
    ) -> tuple[int, bytes, str]:
        process = self._start(arguments, more, subprocess.PIPE)
        if niced and os.name == "posix":
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PGRP, process.pid, 10)
        try:
            said, complaint = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise VaultError(
                f"git {arguments[0]} took longer than {seconds:.0f} s in {self.root}: try again"
            ) from error
        except OSError as error:
            raise VaultError(f"git {arguments[0]} does not answer ({error})") from error
        finally:
            _end(process)
        return process.returncode, said, complaint.decode("utf-8", "replace")

    def _start(
        self,
        arguments: tuple[str, ...],
        more: Mapping[str, str] | None,
        complaints: int | IO[bytes],
        given: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        here = {"GIT_DIR": str(self.folder), "GIT_WORK_TREE": str(self.root)}
        command = [self.program, "--no-pager", *self._settings(), *arguments]
        try:
            return subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE if given is None else given,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=self.root,
                env=_environment(here | dict(more or {})),
                start_new_session=True,
                umask=_UMASK,
            )
        except (OSError, ValueError) as error:
            raise VaultError(
                f"git cannot be started in {self.root} ({error}): check the folder"
            ) from error

    def _settings(self) -> Iterator[str]:
        for setting in _SETTINGS:
            yield "-c"
            yield setting

    def require_no_lock(self, name: str) -> None:
        """Raise GitBusy when another process holds this lock; remove it if it was forgotten."""
        lock = self.folder / name
        if os.path.lexists(lock):
            self._may_retry(lock, 0.0)

    def _may_retry(self, lock: Path, until: float) -> bool:
        """Whether to try again after a lock; an old lock inside the repository is removed."""
        inside = any(lock.is_relative_to(place) for place in (self.folder, self.common()))
        if not inside:
            return False
        try:
            age = disk_time(lock.parent) - lock.lstat().st_mtime
        except OSError:
            return True
        if age > STALE_LOCK_SECONDS:
            with contextlib.suppress(OSError):
                lock.unlink()
            return True
        if time.monotonic() > until:
            raise GitBusy(f"another git process runs and holds {lock}: repeat when it is done")
        time.sleep(0.05)
        return True

    def common(self) -> Path:
        """The folder of refs and objects, which a linked work tree shares with its main one."""
        try:
            text = (self.folder / "commondir").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError):
            return self.folder
        return Path(os.path.normpath(self.folder / text))


class GitPipe:
    """The input and output of a running git process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.process = process.pid
        self._in: IO[bytes] = process.stdin or io.BytesIO()
        self._out = process.stdout

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self._in.write(part)

    def ask(self, line: bytes) -> bytes:
        """Write a line and return the next line of the answer, without its line end."""
        self._in.write(line)
        self.flush()
        return self.line()

    def flush(self) -> None:
        self._in.flush()

    def line(self) -> bytes:
        found = self._out.readline()
        if not found.endswith(b"\n"):
            raise EOFError("git ended in the middle")
        return found[:-1]

    def maybe_line(self) -> bytes:
        """Return the next line of the output, empty at its end."""
        found = self._out.readline()
        return found[:-1]

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield a number of bytes of the output in pieces."""
        while size:
            piece = self.exactly(min(size, 1 << 20))
            size -= len(piece)
            yield piece

    def until_nul(self) -> Iterator[bytes]:
        """Yield the rest of the output, split at NUL bytes."""
        rest = b""
        while piece := self._out.read1(1 << 20):  # type: ignore[attr-defined]
            *whole, rest = (rest + piece).split(b"\0")
            yield from whole
        if rest:
            yield rest

    def exactly(self, size: int) -> bytes:
        found = self._out.read(size)
        if len(found) != size:
            raise EOFError("git ended in the middle")
        return found

    def object(self, name: bytes) -> tuple[bytes, bytes]:
        """Return type and content of an object, from ``cat-file --batch``."""
        head = self.ask(name + b"\n").split(b" ")
        if len(head) != 3:
            raise VaultError(f"object {name.decode()} is missing: run 'git fsck' in the vault")
        return head[1], self.exactly(int(head[2]) + 1)[:-1]

    def close_stdin(self) -> None:
        """End the input; output may still follow."""
        if not self._in.closed:
            self._in.close()

    def close(self) -> None:
        self.close_stdin()
        while self._out.read(1 << 20):
            pass


def failure(complaint: str, arguments: tuple[str, ...], root: Path) -> VaultError:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    serious = [line for line in lines if line.startswith(("fatal:", "error:"))]
    said = (serious or lines or ["it ended without a message"])[0]
    command = next(word for word in arguments if word != "-c" and "=" not in word)
    return VaultError(f"git {command} failed in {root} ({said}): look at 'git status' there")


def _read_all(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(1 << 16).decode("utf-8", "replace")


def disk_time(folder: Path) -> float:
    """Return the time by the clock of the file system, which may be another machine's."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="tmp_reverie_") as file:
        return os.fstat(file.fileno()).st_mtime


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and the helpers that git started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(OSError):
                pipe.close()
