"""The operator's commands: spaces, doctor, jobs, worker, reembed, rebuild, vacuum."""

from __future__ import annotations

import contextlib
import logging
import platform
import time
from pathlib import Path
from typing import Any

import click

from reverie import __version__
from reverie.cli.exit_codes import exit_on_problems
from reverie.cli.options import (
    POSITIVE_INT,
    CommonOptions,
    examples,
    open_showing_upgrade,
    require_store,
    space_options,
    store_file,
    store_options,
)
from reverie.cli.output import (
    format_bytes,
    format_minute,
    pluralize,
    print_json,
    print_line,
    print_pairs,
    print_problems,
    print_stderr,
    progress,
    to_line,
)
from reverie.cli.runtime import log_to_stderr, stop_on_signals, watch_vault
from reverie.config import Settings
from reverie.embed import open_reranker
from reverie.errors import NotFound, ReverieError, StoreDamaged
from reverie.memory import Store
from reverie.model import Job

DAY_MS = 24 * 60 * 60_000


@click.command("spaces", epilog=examples("reverie spaces", "reverie spaces --json"))
@store_options
def spaces_command(options: CommonOptions) -> None:
    """List the spaces of a store."""
    with options.open_store() as store:
        spaces = store.spaces()
    options.print_list(
        {"spaces": spaces},
        ("space", "facts", "notes", "position", "users"),
        [
            (
                to_line(each.name),
                each.facts,
                each.notes,
                each.position,
                to_line(", ".join(each.users)),
            )
            for each in spaces
        ],
        content="users",
        empty="The store has no spaces yet.",
    )


@click.command("doctor", epilog=examples("reverie doctor", "reverie doctor --json"))
@store_options
def doctor_command(options: CommonOptions) -> None:
    """Show versions, paths, pending jobs and problems."""
    found: dict[str, Any] = {"reverie": __version__, "python": platform.python_version()}
    settings = options.settings()
    require_store(settings)
    problems: list[str] = []
    try:
        with open_showing_upgrade(settings) as store:
            found |= store.doctor()
            problems += found.pop("problems")
    except StoreDamaged as error:
        problems.append(str(error))
    else:
        problems += _model_problems(settings)
    if settings.reranker:
        found["reranker"], reranker_problems = _try_reranker(settings.reranker)
        problems += reranker_problems
    if options.as_json:
        print_json({**found, "problems": problems, "ok": not problems})
    else:
        # The problems say by how much each space is ahead.
        found.pop("ahead of the clock", None)
        print_pairs({name: _as_text(value) for name, value in found.items()})
        print_problems(problems)
    exit_on_problems(problems)


def _model_problems(settings: Settings) -> list[str]:
    """Return what is wrong with the chat model's settings; the model itself is not called."""
    if not settings.model:
        return []
    # It loads asyncio, and no other command here needs a model.
    from reverie.learn.llm import open_model

    try:
        open_model(settings)
    except ReverieError as error:
        return [f"the model {settings.model} cannot be used: {error}"]
    return []


def _try_reranker(folder: str) -> tuple[str, list[str]]:
    """Score one text with the reranker; return its identity and what is wrong with it."""
    try:
        reranker = open_reranker(folder)
        assert reranker is not None
        reranker.score("Does it work?", ["It does."])
        return reranker.identity, []
    except ReverieError as error:
        return folder, [f"the reranker cannot be used: {error}"]


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{number} {name}" for name, number in value.items())
    return str(value)


# -- jobs -----------------------------------------------------------------------------------------


@click.group(
    "jobs",
    epilog=examples(
        "reverie jobs list", "reverie jobs retry --all", "reverie jobs drop 12 --space work"
    ),
)
def jobs_command() -> None:
    """List, retry and drop background jobs."""


@jobs_command.command("list", epilog=examples("reverie jobs list", "reverie jobs list --json"))
@store_options
def list_jobs_command(options: CommonOptions) -> None:
    """List the jobs of every space.

    A job in the state "retry" has failed and will be tried again. A job in the state "parked" has
    failed too often, and waits for 'reverie jobs retry'.
    """
    with options.open_store() as store:
        jobs = store.jobs()
    now = time.time_ns() // 1_000_000
    rows = []
    for job in jobs:
        state, due = "retry" if _will_retry(job) else job.state, _due(job, now)
        rows.append((job.id, to_line(job.space), job.kind, state, due, job.attempts, _about(job)))
    options.print_list(
        {"jobs": jobs},
        ("job", "space", "kind", "state", "due", "tries", "about"),
        rows,
        content="about",
        fold=True,
        empty="There are no jobs.",
    )


def _will_retry(job: Job) -> bool:
    return job.state == "ready" and job.error is not None


def _due(job: Job, now: int) -> str:
    """Return how long until the job runs, or the day if that is more than a day away."""
    if job.state != "ready":
        return ""
    wait = job.due_at - now
    if wait <= 0:
        return "now"
    if wait >= DAY_MS:
        return format_minute(job.due_at)
    for unit, ms in (("h", 3_600_000), ("min", 60_000)):
        if wait >= ms:
            return f"in {wait // ms} {unit}"
    return f"in {wait // 1000 + 1} s"


def _about(job: Job) -> str:
    """Return the event, session or memory of a job, and on the next line why it failed."""
    parts = (job.payload.get(name) for name in ("session", "sequence", "memory"))
    what = to_line(":".join(str(part) for part in parts if part is not None))
    return what if job.error is None else f"{what}\n{to_line(job.error)}".lstrip("\n")


@jobs_command.command(
    "retry", epilog=examples("reverie jobs retry 12 --space work", "reverie jobs retry --all")
)
@click.argument("job", type=POSITIVE_INT, required=False)
@click.option(
    "--all", "every", is_flag=True, help="Retry every failed job of --space, or of all spaces."
)
@space_options
def retry_job_command(options: CommonOptions, job: int | None, every: bool) -> None:
    """Make a job due now, even if it is parked."""
    if (job is None) != every:
        raise click.UsageError("give a JOB or --all")
    with options.open_store() as store:
        if job is None:
            retried = _retry_all(store, options.space)
        else:
            store.retry_job(store.settings.space, job)
    if job is not None:
        _print_job(options, store.settings.space, job, "due")
    elif options.as_json:
        found = [{"space": each.space, "job": each.id, "state": "due"} for each in retried]
        print_json({"jobs": found})
    elif retried:
        print_line(f"Made {pluralize(len(retried), 'job')} due now.")
    else:
        print_stderr("No job has failed.")


def _retry_all(store: Store, space: str | None) -> list[Job]:
    """Make every failed job due now, except those that a worker is running."""
    retried = []
    for job in store.jobs():
        failed = job.state == "parked" or _will_retry(job)
        if failed and space in (None, job.space):
            # The job may have been done or dropped in the meantime.
            with contextlib.suppress(NotFound):
                store.retry_job(job.space, job.id)
                retried.append(job)
    return retried


@jobs_command.command("drop", epilog=examples("reverie jobs drop 12 --space work"))
@click.argument("job", type=POSITIVE_INT)
@space_options
def drop_job_command(options: CommonOptions, job: int) -> None:
    """Remove a job without running it."""
    with options.open_store() as store:
        space = store.settings.space
        store.drop_job(space, job)
    _print_job(options, space, job, "dropped")


def _print_job(options: CommonOptions, space: str, job: int, state: str) -> None:
    options.print_result(
        {"space": space, "job": job, "state": state},
        f"Job {job} of space {space!r} is {'due now' if state == 'due' else state}.",
    )


# -- worker ---------------------------------------------------------------------------------------


@click.command(
    "worker",
    epilog=examples(
        "reverie worker", "reverie worker --once", "REVERIE_LOG_LEVEL=info reverie worker"
    ),
)
@click.option("--once", is_flag=True, help="Run the jobs that are due now, then stop.")
@click.option(
    "--poll",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    metavar="SECONDS",
    help="How long to wait when no job is due.",
)
@store_options
def worker_command(options: CommonOptions, once: bool, poll: float) -> None:
    """Run background jobs until stopped.

    On SIGINT and SIGTERM, the current job is finished first. The store's vault, if it has one, is
    watched meanwhile. REVERIE_LOG_LEVEL sets what is logged on standard error. With --once, the
    exit code is 1 if a job failed.
    """
    with options.open_store() as store, log_to_stderr(store.settings.log_level):
        if once:
            _work_once(options, store)
            return
        with stop_on_signals() as stop, watch_vault(store):
            logging.getLogger("reverie.worker").info("working on %s", store.url)
            store.run_worker(stop, poll)
    options.print_result({"stopped": stop.name}, f"Stopped by {stop.name}.")


def _work_once(options: CommonOptions, store: Store) -> None:
    before = {(job.space, job.id): job for job in store.jobs()}
    done = store.run_pending_jobs()
    failed = sum(_failed_since(before.get((job.space, job.id)), job) for job in store.jobs())
    why = f", {failed} failed: 'reverie jobs list' shows why" if failed else ""
    options.print_result({"jobs": done, "failed": failed}, f"Ran {pluralize(done, 'job')}{why}.")
    exit_on_problems(failed)


def _failed_since(before: Job | None, now: Job) -> bool:
    tried = before is None or (now.attempts, now.state) != (before.attempts, before.state)
    return now.error is not None and now.state != "running" and tried


# -- rebuilding -----------------------------------------------------------------------------------


@click.command(
    "reembed", epilog=examples("reverie reembed", "REVERIE_EMBEDDER=local reverie reembed")
)
@store_options
def reembed_command(options: CommonOptions) -> None:
    """Compute every vector again.

    The configured embedder computes new vectors beside the current ones; then the store switches to
    them in one step. If it is interrupted, run it again and it continues.
    """
    with options.open_store() as store, progress("reembedding") as shown:
        done = store.reembed(shown)
    options.print_result({"passages": done}, f"Computed {pluralize(done, 'vector')} again.")


@click.command("rebuild", epilog=examples("reverie rebuild", "reverie rebuild --json"))
@store_options
def rebuild_command(options: CommonOptions) -> None:
    """Rebuild the search index from the log.

    Nothing is lost: the log holds everything that the index is made of.
    """
    with options.open_store() as store, progress("rebuilding") as shown:
        done = store.rebuild(shown)
    line = f"Indexed {pluralize(done, 'memory', 'memories')} again."
    options.print_result({"memories": done}, line)


@click.command("vacuum", epilog=examples("reverie vacuum", "reverie vacuum --json"))
@store_options
def vacuum_command(options: CommonOptions) -> None:
    """Return unused space to the file system."""
    with options.open_store() as store:
        path = store_file(store.settings)
        before = _store_bytes(path)
        store.vacuum()
        after = _store_bytes(path)
    options.print_result(
        {"bytes_before": before, "bytes_after": after},
        f"The store had {format_bytes(before)}, now it has {format_bytes(after)}.",
    )


def _store_bytes(path: Path | None) -> int:
    """Return the size of the store's file and its write-ahead log."""
    if path is None:
        return 0
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
