"""What the vault costs: the first mirror, and one change in a small and in a large vault.

    python bench/vault.py [--quick] [--json FILE] [--markdown]

CPU time of this process and of every git that it starts, in alternating rounds. It is a
measurement, no test: the exit code is always 0.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import reverie
from reverie import Settings, Store
from reverie.model import Scope
from reverie.vault import service
from reverie.vault.git.commit import commit_pending
from reverie.vault.sync import Sync

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import running
from bench.measuring import Sample, short
from bench.texts import SEED, Writer

if TYPE_CHECKING:
    from rich.progress import Progress

SPACE = "ana"


@dataclass(frozen=True)
class Plan:
    small: int = 1_000
    large: int = 10_000
    rounds: int = 15


QUICK = Plan(small=50, large=500, rounds=3)


class Vaults(running.Bench):
    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self._plan = plan
        git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True)
        self.about["git"] = git.stdout.split()[2]

    def run(self) -> None:
        plan = self._plan
        made = {size: self._made(size) for size in (plan.small, plan.large)}
        self._plain_files(made[plan.large])
        changes = {
            "edit": self._edit,
            "new file": self._create,
            "delete": self._delete,
            "revise": self._revise,
            "append": self._append,
        }
        for number in self.steps("one change", plan.rounds):
            for size, store in made.items():
                for name, change in changes.items():
                    path = change(store, number)
                    self.meter.take(f"{name} {size}", spent(partial(take_in, store, path)))
                    self.meter.take(f"commit {name} {size}", spent(partial(commit, store)))
                self.meter.take(f"nothing {size}", spent(partial(service.sync, store)))
        self._summarise()

    def _made(self, size: int) -> Store:
        store = reverie.open(
            f"sqlite://{self.folder / f'{size}.db'}",
            settings=Settings(learn="off"),
            embedder="none",
        )
        self.closing.callback(store.close)
        space = store.space(SPACE)
        space.import_records({"content": text} for text in Writer(SEED).sentences(size))
        space.session("chat").append({"role": "user", "content": "hello"})
        root = self.folder / f"vault-{size}"
        self.meter.take(f"first {size}", spent(lambda: service.init(store, root)) * (1 / size))
        service.sync(store)
        store.run_pending_jobs()
        return store

    def _plain_files(self, store: Store) -> None:
        """The same files written by hand, and a commit of them."""
        with service.open_vault(store) as vault:
            root = vault.root
        files = [
            (path.relative_to(root), path.read_bytes())
            for path in root.rglob("*.md")
            if ".git" not in path.parts
        ]
        there = self.folder / "plain"

        def write() -> None:
            for relative, raw in files:
                path = there / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(raw)
            git = ["git", "-C", str(there), "-c", "user.name=x", "-c", "user.email=x@example.org"]
            for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
                subprocess.run([*git, *arguments], check=True)

        self.meter.take("plain files", spent(write) * (1 / self._plan.large))

    # -- one change ---------------------------------------------------------------------------

    def _edit(self, store: Store, number: int) -> str:
        path = self._file(store, number)
        full = self._root(store) / path
        full.write_bytes(full.read_bytes().rstrip() + f" edited {number}\n".encode())
        return path

    def _create(self, store: Store, number: int) -> str:
        path = f"{SPACE}/facts/new-{number}.md"
        (self._root(store) / path).write_bytes(f"a new thing {number}\n".encode())
        return path

    def _delete(self, store: Store, number: int) -> str:
        path = self._file(store, number + 100)
        (self._root(store) / path).unlink()
        return path

    def _revise(self, store: Store, number: int) -> None:
        space = store.space(SPACE)
        space.revise(space.memories(limit=1)[0].id, f"revised {number}")

    def _append(self, store: Store, number: int) -> None:
        store.space(SPACE).session("chat").append({"role": "user", "content": f"said {number}"})

    def _file(self, store: Store, number: int) -> str:
        with service.open_vault(store) as vault:
            files = vault.files.list_type(Scope(SPACE), "memory")
        alive = [file.path for file in files if "/deleted/" not in file.path]
        return alive[number * 7 % len(alive)]

    def _root(self, store: Store) -> Path:
        with service.open_vault(store) as vault:
            return vault.root

    def _summarise(self) -> None:
        small, large, row = self._plan.small, self._plan.large, self.meter.row
        what = f"{short(large)} memories, one commit, each"
        row("first mirror", what, f"first {large}", "plain files", "files by hand, git add, commit")
        against = f"the same at {short(small)}"
        for name, what in (
            ("edit", "one file edited"),
            ("new file", "one file made"),
            ("delete", "one file deleted"),
            ("revise", "one memory revised in the store"),
            ("append", "one message appended"),
        ):
            shown = f"{what}, at {short(large)}"
            row("one change", shown, f"{name} {large}", f"{name} {small}", against, 1.5)
        # A folder is one object of git, as long as the folder has files: so folders fan out.
        for name, what in (("edit", "of one file edited"), ("append", "of one message")):
            ours, theirs = f"commit {name} {large}", f"commit {name} {small}"
            row("its commit", f"{what}, at {short(large)}", ours, theirs, against, 1.3)
        what = f"looking at all {short(large)} files"
        row("full sync", what, f"nothing {large}", f"nothing {small}", f"at {short(small)}")


def take_in(store: Store, path: str | None) -> None:
    """What a watcher or a worker does, but for git."""
    with service.open_vault(store) as vault, vault.locked():
        work = Sync(vault, store)
        if path is not None:
            work.files([path])
        work.store()


def commit(store: Store) -> None:
    with service.open_vault(store) as vault, vault.locked():
        commit_pending(vault, store.runtime.redaction)


def spent(work: Callable[[], object]) -> Sample:
    """CPU of this process and of those it waited for."""
    before = [resource.getrusage(who) for who in _WHO]
    work()
    after = [resource.getrusage(who) for who in _WHO]
    pairs = list(zip(before, after, strict=True))
    user = sum(late.ru_utime - early.ru_utime for early, late in pairs)
    system = sum(late.ru_stime - early.ru_stime for early, late in pairs)
    return Sample(user + system, user, system)


_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main() -> None:
    asked = running.options(__doc__).parse_args()
    plan = QUICK if asked.quick else Plan()
    title = "What the vault costs: CPU, git's included, medians of rounds"
    running.run(title, asked, lambda folder, progress: Vaults(plan, folder, progress))


if __name__ == "__main__":
    main()
