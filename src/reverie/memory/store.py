"""A store: one database, and the handles on its spaces."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from reverie import config
from reverie.agenda import jobs
from reverie.clock import RandomIds, SystemClock
from reverie.config import Settings
from reverie.embed import open_embedder, open_reranker
from reverie.engine import open_engine
from reverie.errors import InvalidInput, NotFound, ReverieError
from reverie.maintenance import damage
from reverie.maintenance import doctor as maintenance_doctor
from reverie.maintenance import rebuild as maintenance_rebuild
from reverie.maintenance import reembed as maintenance_reembed
from reverie.maintenance import verify as maintenance_verify
from reverie.memory.space import Space
from reverie.model import (
    TRUSTS,
    Job,
    Ranking,
    Right,
    SalvageReport,
    Scope,
    SpaceInfo,
    Token,
    Trust,
    VerifyReport,
)
from reverie.protocols import Clock, Embedder, Engine, Ids, Reranker
from reverie.text.normalize import plain_name
from reverie.write import validate, vault_link
from reverie.write.recall_log import RecallNotes
from reverie.write.runtime import Resources
from reverie.write.secret_policy import redaction_of
from reverie.write.writer import Author

MOST_NAME_CHARS = 200
Progress = Callable[[int, int], None]


def open(
    url: str | Path | None = None,
    *,
    settings: Settings | None = None,
    embedder: str | Embedder | None = None,
    reranker: str | Path | Reranker | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Store:
    """Open a store, made on its first use.

    What is not given comes from ``settings``, else from the environment and ``reverie.toml``.
    ``embedder`` is an Embedder or a name such as ``"local"``; ``"none"``: a store without vectors.
    ``reranker`` is a Reranker or the folder of an ONNX cross-encoder.
    """
    found = config.load() if settings is None else settings
    if isinstance(embedder, str):
        found = replace(found, embedder=embedder)
    chosen = open_embedder(found) if embedder is None or isinstance(embedder, str) else embedder
    address = str(url) if url is not None else found.url or config.default_url()
    resources = Resources(
        engine=open_engine(address, found.read_url, found.busy_timeout),
        clock=clock or SystemClock(),
        ids=ids or RandomIds(),
        settings=found,
        embedder=chosen,
        # Loaded by the first recall that asks for it: nothing else needs it to be there.
        reranker=cache(lambda: open_reranker(reranker or found.reranker or None)),
        notes=RecallNotes(),
        redaction=redaction_of(found),
    )
    store = Store(resources, owns_embedder=chosen is not embedder)
    resources.engine.examine = lambda: damage.examine(resources)
    try:
        with resources.engine.read() as tx:
            maintenance_rebuild.require_whole(tx, resources.engine.url)
        maintenance_rebuild.refresh_index(resources)
        maintenance_reembed.await_vectors(resources)
        if found.vault and not resources.engine.read_only:
            vault_link.attach_first(resources, str(Path(found.vault).expanduser().absolute()))
    except BaseException:
        store.close()
        raise
    return store


def salvage_store(
    source: str | Path,
    target: str | Path,
    *,
    settings: Settings | None = None,
    embedder: str | Embedder | None = None,
    progress: Progress | None = None,
) -> SalvageReport:
    """Make a new store of all that can be read of a damaged one, which is not changed.

    ``source`` is a path or an address, ``target`` a file that does not exist. The report says which
    positions were lost.
    """
    from reverie.maintenance import salvage

    found = config.load() if settings is None else settings
    if isinstance(embedder, str):
        found = replace(found, embedder=embedder)
    chosen = open_embedder(found) if embedder is None or isinstance(embedder, str) else embedder

    def resources(engine: Engine) -> Resources:
        return Resources(
            engine=engine,
            clock=SystemClock(),
            ids=RandomIds(),
            settings=found,
            embedder=chosen,
            reranker=lambda: None,
            notes=RecallNotes(),
            redaction=redaction_of(found),
        )

    try:
        return salvage.salvage(resources, str(source), Path(target), progress)
    finally:
        closer = getattr(chosen, "close", None)
        if closer is not None and chosen is not embedder:
            closer()


class Store:
    """One database. Close it, or use it as a context manager."""

    def __init__(self, resources: Resources, *, owns_embedder: bool = False) -> None:
        self._resources = resources
        self._owns_embedder = owns_embedder
        self._worker: threading.Thread | None = None
        self._worker_lock = threading.Lock()
        self._stop = threading.Event()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def url(self) -> str:
        return self._resources.engine.url

    @property
    def settings(self) -> Settings:
        return self._resources.settings

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed here: nothing is stored until the store is reopened."""
        return self._resources.engine.write_failed

    @property
    def damaged(self) -> int:
        """How many damaged entries were left out of answers since the store was opened."""
        return len(self._resources.engine.damaged)

    @property
    def vault(self) -> Path | None:
        """The folder in which every memory is a file, if there is one."""
        path = vault_link.path_of(self._resources)
        return None if path is None else Path(path)

    def space(
        self,
        name: str,
        *,
        user: str | None = None,
        actor: str | None = None,
        trust: Trust = "person",
        ranking: Ranking | str | None = None,
    ) -> Space:
        """A handle on a space: its shared memories, and with ``user`` that user's as well.

        ``ranking`` is how its recalls rank where they are not told otherwise.
        """
        plain_name(name, "the name of a space", MOST_NAME_CHARS)
        if user is not None:
            plain_name(user, "the name of a user", MOST_NAME_CHARS)
        if actor is not None:
            plain_name(actor, "the actor", MOST_NAME_CHARS)
        if trust not in TRUSTS:
            raise InvalidInput(f"trust must be one of {', '.join(TRUSTS)}, not {trust!r}")
        chosen = validate.check_ranking(
            self.settings.ranking.lower() if ranking is None else ranking
        )
        return Space(self._resources, Author(Scope(name, user), actor, trust), chosen)

    def close(self) -> None:
        """Write what is buffered, stop the worker and let go of the files."""
        self.stop_worker()
        with contextlib.suppress(ReverieError):
            for space in self._resources.notes.spaces():
                with self._resources.engine.write(wait=False) as tx:
                    self._resources.notes.write(tx, space)
        self._resources.engine.close()
        closer = getattr(self._resources.embedder, "close", None)
        if closer is not None and self._owns_embedder:
            closer()

    # -- the operator's calls, which look across spaces ---------------------------------------

    def spaces(self) -> list[SpaceInfo]:
        """Every space, by name."""
        return maintenance_doctor.spaces(self._resources)

    def positions(self, names: Sequence[str]) -> dict[str, int]:
        """Where the log of each of these spaces is; those that do not exist are left out."""
        return maintenance_doctor.positions(self._resources, names)

    # What few calls need is imported by them: it would make up a fifth of the time of an import.

    def drain(self) -> int:
        """Run every job that is due; how many that were."""
        from reverie.agenda import worker

        return worker.drain(self._resources)

    def work(self, stop: threading.Event, poll_seconds: float = 1.0) -> None:
        """Serve the agenda until told to stop."""
        from reverie.agenda import worker

        worker.run_forever(self._resources, stop, poll_seconds)

    def show_in_vault(self) -> str | None:
        """Write what this process changed into the vault now; why that failed.

        For programs that end before a worker would come to it. Without a vault, nothing is done.
        """
        return vault_link.show(self._resources)

    def start_worker(self, poll_seconds: float = 1.0) -> None:
        """Serve the agenda in a thread of this process until the store is closed."""
        with self._worker_lock, self._resources.engine.read():
            # A store that was closed raises here, and not in a thread nobody hears.
            if self._worker is None or not self._worker.is_alive():
                self._stop.clear()
                self._worker = threading.Thread(
                    target=self.work, args=(self._stop, poll_seconds), name="reverie", daemon=True
                )
                self._worker.start()

    def stop_worker(self) -> None:
        """Let the worker of this process finish the job it has, and wait for it."""
        with self._worker_lock:
            self._stop.set()
            if self._worker is not None and self._worker is not threading.current_thread():
                self._worker.join()
            self._worker = None

    def jobs(self) -> list[Job]:
        """Everything on the agenda, parked jobs included."""
        with self._resources.engine.read() as tx:
            tx.oversee()
            names = damage.named_spaces(tx)
            return [job for space, name in names for job in jobs.listed(tx, space, name)]

    def retry_job(self, space: str, job: int) -> None:
        """Make a job due now."""
        with self._resources.engine.write() as tx:
            tx.oversee()
            jobs.retry(tx, self._space_number(tx, space), job, self._resources.clock.now())

    def drop_job(self, space: str, job: int) -> None:
        """Take a job off the agenda, undone."""
        with self._resources.engine.write() as tx:
            tx.oversee()
            jobs.drop(tx, self._space_number(tx, space), job)

    def create_token(
        self,
        name: str,
        right: Right = "write",
        *,
        spaces: Iterable[str] | None = None,
        user: str | None = None,
    ) -> tuple[Token, str]:
        """Let somebody in through a server; what they need is the text, shown only now."""
        from reverie.write import tokens

        return tokens.create(self._resources, name, right, spaces, user)

    def tokens(self) -> list[Token]:
        """Every token, the oldest first."""
        from reverie.write import tokens

        return tokens.listed(self._resources)

    def revoke_token(self, id: str) -> None:
        """From now on nobody gets in with it."""
        from reverie.write import tokens

        tokens.revoke(self._resources, id)

    def recognise(self, secret: str) -> Token | None:
        """Whose token this is; None: nobody's."""
        from reverie.write import tokens

        return tokens.recognise(self._resources, secret)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Make the index and the vectors anew from the log; how many memories that were."""
        return maintenance_rebuild.rebuild(self._resources, progress)

    def reembed(self, progress: Progress | None = None) -> int:
        """Make every vector anew with the configured embedder, then switch to them in one step."""
        return maintenance_reembed.reembed(self._resources, progress)

    def verify(self) -> VerifyReport:
        """Check the files, and that the index says what the log says."""
        return maintenance_verify.verify(self._resources)

    def backup(self, target: str | Path) -> VerifyReport:
        """An online copy, verified before this returns."""
        from reverie.transfer import backup as transfer_backup

        return transfer_backup.backup(self._resources, Path(target))

    def verify_backup(self, source: str | Path) -> VerifyReport:
        """Check a backup without changing anything."""
        from reverie.transfer import backup as transfer_backup

        return transfer_backup.check(self._resources, Path(source))

    def restore_backup(self, source: str | Path) -> VerifyReport:
        """Put a backup in the place of what is here. What was erased since stays erased."""
        from reverie.transfer import backup as transfer_backup

        return transfer_backup.restore(self._resources, Path(source))

    def doctor(self) -> Mapping[str, Any]:
        """Versions, places, pending work, and what is wrong."""
        return maintenance_doctor.doctor(self._resources)

    def vacuum(self) -> None:
        """Give unused pages back to the file system."""
        self._resources.engine.vacuum()

    def _space_number(self, tx: Any, name: str) -> int:
        row = tx.one("SELECT space FROM spaces WHERE name = ?", (name,))
        if row is None:
            raise NotFound(f"there is no space {name!r}: 'reverie spaces' shows the ones there are")
        return int(row[0])
