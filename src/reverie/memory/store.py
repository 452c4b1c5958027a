"""``Store``: one database. It makes the handles on spaces and has the operator's calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from reverie import config
from reverie.agenda import jobs, worker
from reverie.clock import RandomIds, SystemClock
from reverie.config import Settings
from reverie.embed import open_embedder, open_reranker
from reverie.engine import open_engine
from reverie.engine.upgrade import UpgradeOptions, log_progress
from reverie.errors import InvalidInput, NewerSchema, NotFound, ReverieError
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
    RankingName,
    Right,
    SalvageReport,
    Scope,
    SpaceInfo,
    Token,
    Trust,
    VerifyReport,
)
from reverie.protocols import Clock, Embedder, Engine, Ids, Progress, Reranker, UpgradeProgress
from reverie.text.normalize import require_name
from reverie.transfer import backup as transfer_backup
from reverie.write import tokens, validate, vault_link
from reverie.write.recall_log import RecallNotes
from reverie.write.runtime import Runtime
from reverie.write.secret_policy import redaction_from_settings
from reverie.write.vault_link import VaultEntries
from reverie.write.writer import Author

MAX_NAME_CHARS = 200


def open(
    url: str | Path | None = None,
    *,
    settings: Settings | None = None,
    embedder: str | Embedder | None = None,
    reranker: str | Path | Reranker | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    on_upgrade: UpgradeProgress | None = None,
) -> Store:
    """Open a store, creating it on its first use.

    Arguments that are not given come from ``settings``, else from the environment and
    ``reverie.toml``.
    ``embedder`` is an Embedder or a name such as ``"local"``; with ``"none"`` the store has no
    vectors. ``reranker`` is a Reranker or the folder of an ONNX cross-encoder.

    A store of an earlier version is upgraded, after it was backed up beside itself (see
    ``Settings.upgrade_backup``). ``on_upgrade`` is called with what is being done, how much of it
    is done and how much there is to do; without it, a long upgrade is logged.
    """
    found = config.load() if settings is None else settings
    if isinstance(embedder, str):
        found = replace(found, embedder=embedder)
    chosen = open_embedder(found) if embedder is None or isinstance(embedder, str) else embedder
    address = str(url) if url is not None else found.url or config.default_url()
    upgrade_options = UpgradeOptions(found.keeps_upgrade_backup, on_upgrade or log_progress())
    runtime = Runtime(
        engine=open_engine(address, found.read_url, found.busy_timeout, upgrade_options),
        clock=clock or SystemClock(),
        ids=ids or RandomIds(),
        settings=found,
        embedder=chosen,
        # Loaded by the first recall that reranks: nothing else needs its files.
        reranker=cache(lambda: open_reranker(reranker or found.reranker or None)),
        notes=RecallNotes(),
        redaction=redaction_from_settings(found),
    )
    store = Store(runtime, owns_embedder=chosen is not embedder)
    runtime.engine.damage_check = lambda: maintenance_verify.describe_damage(runtime)
    try:
        with runtime.engine.read() as tx:
            maintenance_rebuild.require_migrated(tx, runtime.engine.url)
        maintenance_rebuild.refresh_index(runtime, upgrade_options.report("indexing"))
        maintenance_reembed.queue_missing_vectors(runtime)
        if found.vault and not runtime.engine.read_only:
            vault_link.attach_if_none(runtime, str(Path(found.vault).expanduser().absolute()))
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
    vault_entries: VaultEntries | None = None,
) -> SalvageReport:
    """Create a new store from all that can be read of a damaged one, which is not changed.

    ``source`` is a path or a URL, ``target`` a file that does not exist yet. The report says which
    positions were lost. With ``vault_entries`` (``reverie.vault.log_reader.read_entries``), entries
    that cannot be read are taken from the log of the store's vault.
    """
    # It takes time to load, and few stores are damaged.
    from reverie.maintenance import salvage

    found = config.load() if settings is None else settings
    if isinstance(embedder, str):
        found = replace(found, embedder=embedder)
    chosen = open_embedder(found) if embedder is None or isinstance(embedder, str) else embedder

    def runtime(engine: Engine) -> Runtime:
        return Runtime(
            engine=engine,
            clock=SystemClock(),
            ids=RandomIds(),
            settings=found,
            embedder=chosen,
            reranker=lambda: None,
            notes=RecallNotes(),
            redaction=redaction_from_settings(found),
        )

    try:
        return salvage.salvage(
            runtime, str(source), Path(target), progress, vault_entries=vault_entries
        )
    finally:
        closer = getattr(chosen, "close", None)
        if closer is not None and chosen is not embedder:
            closer()


class Store:
    """One database. Close it, or use it as a context manager."""

    def __init__(self, runtime: Runtime, *, owns_embedder: bool = False) -> None:
        self._runtime = runtime
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
        """The path or URL of the database."""
        return self._runtime.engine.url

    @property
    def settings(self) -> Settings:
        """The settings this store was opened with."""
        return self._runtime.settings

    @property
    def runtime(self) -> Runtime:
        """The engine, clock, settings and models of this store. For packages of Reverie itself."""
        return self._runtime

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed, or a newer Reverie upgraded the store: nothing can be
        written until the store is reopened."""
        return self._runtime.engine.write_failed

    @property
    def damaged(self) -> int:
        """How many damaged entries were left out of answers since the store was opened."""
        return len(self._runtime.engine.damaged)

    @property
    def vault(self) -> Path | None:
        """The folder that this store is mirrored to as Markdown files, if there is one."""
        path = vault_link.find_path(self._runtime)
        return None if path is None else Path(path)

    def space(
        self,
        name: str,
        *,
        user: str | None = None,
        actor: str | None = None,
        trust: Trust = "person",
        ranking: Ranking | RankingName | None = None,
    ) -> Space:
        """Return a handle on a space: its shared memories, and with ``user`` that user's as well.

        ``ranking`` is the ranking of recalls that name none.
        """
        require_name(name, "the name of a space", MAX_NAME_CHARS)
        if user is not None:
            require_name(user, "the name of a user", MAX_NAME_CHARS)
        if actor is not None:
            require_name(actor, "the actor", MAX_NAME_CHARS)
        if trust not in TRUSTS:
            raise InvalidInput(f"trust must be one of {', '.join(TRUSTS)}, not {trust!r}")
        return self.scoped_space(Scope(name, user), actor=actor, trust=trust, ranking=ranking)

    def scoped_space(
        self,
        scope: Scope,
        *,
        actor: str | None = None,
        trust: Trust = "person",
        ranking: Ranking | RankingName | None = None,
    ) -> Space:
        """Return a handle on a scope, also that of ``UNNAMED``. For packages of Reverie itself."""
        chosen = validate.check_ranking(
            self.settings.ranking.lower() if ranking is None else ranking
        )
        return Space(self._runtime, Author(scope, actor, trust), chosen)

    def close(self) -> None:
        """Stop the worker, write what is buffered and close the database."""
        self.stop_worker()
        with contextlib.suppress(ReverieError):
            for space in self._runtime.notes.spaces():
                with self._runtime.engine.write(wait=False) as tx:
                    self._runtime.notes.write(tx, space)
        self._runtime.engine.close()
        closer = getattr(self._runtime.embedder, "close", None)
        if closer is not None and self._owns_embedder:
            closer()

    # -- the operator's calls, which read all spaces ------------------------------------------

    def spaces(self) -> list[SpaceInfo]:
        """List every space, by name."""
        return maintenance_doctor.spaces(self._runtime)

    def positions(self, names: Sequence[str]) -> dict[str, int]:
        """Return the last log position of each of these spaces that exists."""
        return maintenance_doctor.positions(self._runtime, names)

    def run_pending_jobs(self) -> int:
        """Run every job that is due; return how many ran."""
        return worker.run_pending_jobs(self._runtime)

    def run_worker(self, stop: threading.Event, poll_seconds: float = 1.0) -> None:
        """Run jobs as they become due, until ``stop`` is set.

        Raises NewerSchema when a newer Reverie upgraded the store.
        """
        worker.run_forever(self._runtime, stop, poll_seconds)

    def flush_to_vault(self) -> str | None:
        """Write this process's changes to the vault now; return the reason if that fails.

        For programs that end before a worker would do so. Without a vault, nothing is done.
        """
        return vault_link.flush(self._runtime)

    def start_worker(self, poll_seconds: float = 1.0) -> None:
        """Run jobs in a thread of this process until the store is closed."""
        with self._worker_lock, self._runtime.engine.read():
            # A closed store raises here, and not in a thread whose errors nobody sees.
            if self._worker is None or not self._worker.is_alive():
                self._stop.clear()
                self._worker = threading.Thread(
                    target=self._work,
                    args=(poll_seconds,),
                    name="reverie",
                    daemon=True,
                )
                self._worker.start()

    def _work(self, poll_seconds: float) -> None:
        # The engine has logged it, and a server says it in its answers and its health check.
        with contextlib.suppress(NewerSchema):
            self.run_worker(self._stop, poll_seconds)

    def stop_worker(self) -> None:
        """Stop the worker thread, after the job that it is running."""
        with self._worker_lock:
            self._stop.set()
            if self._worker is not None and self._worker is not threading.current_thread():
                self._worker.join()
            self._worker = None

    def jobs(self) -> list[Job]:
        """List every job, parked ones included."""
        with self._runtime.engine.read() as tx:
            tx.enter_all_owners()
            names = damage.list_spaces(tx)
            return [job for space, name in names for job in jobs.list_jobs(tx, space, name)]

    def retry_job(self, space: str, job: int) -> None:
        """Make a job due now."""
        with self._runtime.engine.write() as tx:
            tx.enter_all_owners()
            jobs.retry(tx, self._space_number(tx, space), job, self._runtime.clock.now())

    def drop_job(self, space: str, job: int) -> None:
        """Delete a job without running it."""
        with self._runtime.engine.write() as tx:
            tx.enter_all_owners()
            jobs.drop(tx, self._space_number(tx, space), job)

    def create_token(
        self,
        name: str,
        right: Right = "write",
        *,
        spaces: Iterable[str] | None = None,
        user: str | None = None,
    ) -> tuple[Token, str]:
        """Create an access token for a server; its text is returned only here."""
        return tokens.create(self._runtime, name, right, spaces, user)

    def tokens(self) -> list[Token]:
        """List every token, the oldest first."""
        return tokens.list_tokens(self._runtime)

    def revoke_token(self, id: str) -> None:
        """Delete a token: nobody can use it from now on."""
        tokens.revoke(self._runtime, id)

    def authenticate(self, secret: str) -> Token | None:
        """Return the token with this text; None when there is none."""
        return tokens.authenticate(self._runtime, secret)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Rebuild the index and the vectors from the log; return how many items were indexed."""
        return maintenance_rebuild.rebuild(self._runtime, progress)

    def reembed(self, progress: Progress | None = None) -> int:
        """Embed every passage with the configured embedder, then switch to the new vectors."""
        return maintenance_reembed.reembed(self._runtime, progress)

    def verify(self) -> VerifyReport:
        """Check the files, the log, and that the index agrees with the log."""
        return maintenance_verify.verify(self._runtime)

    def backup(self, target: str | Path) -> VerifyReport:
        """Write an online copy to a file, and verify it."""
        return transfer_backup.backup(self._runtime, Path(target))

    def verify_backup(self, source: str | Path) -> VerifyReport:
        """Check a backup without changing anything."""
        return transfer_backup.check(self._runtime, Path(source))

    def restore_backup(self, source: str | Path) -> VerifyReport:
        """Replace this store with a backup. Memories and events erased since then stay erased."""
        return transfer_backup.restore(self._runtime, Path(source))

    def doctor(self) -> Mapping[str, Any]:
        """Report versions, paths, pending work and problems."""
        return maintenance_doctor.doctor(self._runtime)

    def vacuum(self) -> None:
        """Return unused pages to the file system."""
        self._runtime.engine.vacuum()

    def _space_number(self, tx: Any, name: str) -> int:
        row = tx.one("SELECT space FROM spaces WHERE name = ?", (name,))
        if row is None:
            raise NotFound(f"there is no space {name!r}: 'reverie spaces' shows the ones there are")
        return int(row[0])
