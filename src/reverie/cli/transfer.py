"""The commands export, import, backup, verify and migrate."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import click

from reverie import config
from reverie.cli.exit_codes import PROBLEMS_FOUND, exit_on_problems
from reverie.cli.lazy import DefaultGroup
from reverie.cli.options import (
    OUTPUT_OPTION,
    CommonOptions,
    examples,
    require_store,
    scope_options,
    store_file,
    store_options,
    upgrade_options,
)
from reverie.cli.output import (
    pluralize,
    print_first,
    print_json,
    print_line,
    print_pairs,
    print_problems,
    print_report,
    print_stderr,
    progress,
)
from reverie.engine.sqlite.store_file import copy_store_file
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import InvalidInput, StoreDamaged, StoreFull
from reverie.memory import Space, Store
from reverie.model import ImportReport, VerifyReport
from reverie.serialize import format_time

# The formats that are folders. Those of files are recognised by their content.
AGENT_CLI = "agent-cli"

# -- export ---------------------------------------------------------------------------------------


@click.command(
    "export",
    epilog=examples(
        "reverie export > memories.jsonl",
        "reverie export -o memories.jsonl --space work",
        "reverie export --format array -o memories.json",
        "reverie export --all -o everything.jsonl",
    ),
)
@OUTPUT_OPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "array"]),
    default="jsonl",
    help="jsonl: every version, one per line; array: the current memories.",
)
@click.option("--all", "everyone", is_flag=True, help="Export every user of every space.")
@click.option(
    "--skip-damaged", "skip", is_flag=True, help="Leave out damaged entries instead of stopping."
)
@scope_options
def export_command(
    options: CommonOptions, output: Path | None, form: str, everyone: bool, skip: bool
) -> None:
    """Export memories and sessions as JSON.

    Without --user, the memories that all users of a space share are exported; with --user, those
    of that user. --format jsonl writes the whole history, which 'reverie import' reads again.
    --format array writes the id, content, category and created_at of each current memory, the
    newest last. The output is JSON with or without --json; with --output, --json prints a JSON
    document about the written file.
    """
    if everyone and (form == "array" or options.space is not None or options.user is not None):
        raise InvalidInput(
            "--all writes lines of every space and user: leave the other options out"
        )
    with options.open_store() as store:
        settings = store.settings
        space = store.space(settings.space, user=settings.user or None)
        where = "" if everyone else f" in space {space.name!r}"
        if form == "array":
            chunks = _as_array(space)
        else:
            chunks = as_lines(
                _all_records(store, skip) if everyone else space.export(skip_damaged=skip)
            )
        written = write_output(output, chunks)
        damaged = {"damaged": store.damaged} if store.damaged else {}
    if not written:
        print_stderr(f"The store has no memories{where}: nothing to export.")
    if output is not None:
        one, many = ("record", "records") if form == "jsonl" else ("memory", "memories")
        options.print_result(
            {"file": str(output), "format": form, "written": written, **damaged},
            f"Exported {pluralize(written, one, many)} to {output}.",
        )


def _all_records(store: Store, skip: bool) -> Iterator[dict[str, Any]]:
    """Yield the records of every user of every space, with the names of both."""
    for info in store.spaces():
        for user in (None, *info.users):
            for record in store.space(info.name, user=user).export(skip_damaged=skip):
                yield {**record, "space": info.name, "user": user}


def as_lines(records: Iterable[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yield a line of JSON for each record, with the number of records that it holds: 1."""
    for record in records:
        yield 1, json.dumps(record, ensure_ascii=False) + "\n"


def _as_array(space: Space) -> Iterator[tuple[int, str]]:
    """Yield the current memories as one JSON array, element by element."""
    separator = "[\n  "
    for memory in reversed(space.memories()):
        element = {
            "id": memory.id,
            "content": memory.content,
            "category": memory.category,
            "created_at": format_time(memory.created_at),
        }
        yield 1, separator + json.dumps(element, ensure_ascii=False)
        separator = ",\n  "
    yield 0, "[]\n" if separator.startswith("[") else "\n]\n"


def write_output(path: Path | None, chunks: Iterable[tuple[int, str]]) -> int:
    """Write to a file, else to standard output; return how many records were written."""
    if path is None:
        return _write(chunks, sys.stdout.buffer)
    with atomic_write(path) as file:
        return _write(chunks, file)


def _write(chunks: Iterable[tuple[int, str]], file: IO[bytes]) -> int:
    written = 0
    for number, text in chunks:
        # A lone surrogate is not valid UTF-8; backslashreplace writes it as JSON's \u escape.
        file.write(text.encode(errors="backslashreplace"))
        written += number
    file.flush()
    return written


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that only its owner can read; it appears complete or not at all."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreFull(f"no space left for {path}: free some and try again") from error
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# -- import ---------------------------------------------------------------------------------------


@click.command(
    "import",
    epilog=examples(
        "reverie import memories.jsonl",
        "reverie import mem0-export.json --space work",
        "reverie import ~/.mcp/memory.json --user alice",
        "cat notes.txt | reverie import -",
        "reverie import everything.jsonl --all",
        "reverie import agent-cli ~/memory_db --space home",
    ),
)
@click.argument("source", nargs=-1, required=True, metavar="[FORMAT] FILE")
@click.option(
    "--all", "everyone", is_flag=True, help="Import each record into the space and user it names."
)
@scope_options
def import_command(options: CommonOptions, source: tuple[str, ...], everyone: bool) -> None:
    """Import memories and sessions from a file or a folder.

    Everything is imported into the scope of --space and --user, unless --all is given.

    FILE, or - for standard input, is an export of Reverie, a JSON array of texts or of objects with
    a content, an export of mem0, the memory.json of MCP's reference server, or plain lines.
    Importing the same file again changes nothing.

    With FORMAT agent-cli, FILE is the memory folder of agent-cli, which stays as it is. Its facts
    become memories, its turns events, and its deleted facts forgotten memories.
    """
    *formats, file = source
    if formats and formats != [AGENT_CLI]:
        raise click.UsageError(f"Give one file, or the format {AGENT_CLI!r} and its folder.")
    place = click.Path(exists=True, dir_okay=bool(formats), file_okay=not formats, allow_dash=True)
    place.convert(file, None, click.get_current_context())
    if formats:
        report = _import_folder(options, file)
    else:
        report = _import_file(options, file, everyone=everyone)
    if options.as_json:
        print_json(report)
    else:
        print_line(
            f"Added {report.added}, unchanged {report.unchanged}, skipped {len(report.skipped)}."
        )
        print_first(report.skipped)
        if not (report.added or report.unchanged or report.skipped):
            print_stderr("The file holds nothing to import.")
    exit_on_problems(report.skipped)


def _import_folder(options: CommonOptions, folder: str) -> ImportReport:
    with options.open_store(create=True) as store, progress("importing") as shown:
        settings = store.settings
        space = store.space(settings.space, user=settings.user or None, actor="cli")
        return space.import_agent_cli(folder, shown)


def _import_file(options: CommonOptions, file: str, *, everyone: bool) -> ImportReport:
    # pydantic takes time to load, and only an import needs it.
    from reverie.transfer.file_formats import parse

    with (
        _open_input(file) as stream,
        options.open_store(create=True) as store,
        progress("importing") as shown,
    ):
        settings = store.settings
        scope = (settings.space, settings.user or None)
        records = _with_progress(parse(stream), shown)
        grouped = groupby(
            records, lambda record: _record_scope(record, scope) if everyone else scope
        )
        reports = [
            store.space(space, user=user, actor="cli").import_records(group)
            for (space, user), group in grouped
        ]
    return ImportReport(
        sum(part.added for part in reports),
        sum(part.unchanged for part in reports),
        tuple(line for part in reports for line in part.skipped),
    )


def _record_scope(record: Any, default: tuple[str, str | None]) -> tuple[str, str | None]:
    """Return the space and user that a record names."""
    if not isinstance(record, dict) or not isinstance(record.get("space"), str):
        return default
    return record["space"], record.get("user")


@contextlib.contextmanager
def _open_input(file: str) -> Iterator[io.TextIOWrapper]:
    """Open a file as UTF-8; invalid bytes become surrogates, so that their line is reported."""
    with contextlib.ExitStack() as opened:
        raw: Any = sys.stdin.buffer
        if file != "-":
            raw = opened.enter_context(Path(file).open("rb"))
        stream = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape")
        try:
            yield stream
        finally:
            stream.detach()


def _with_progress(records: Iterable[Any], shown: Any) -> Iterator[Any]:
    for number, record in enumerate(records, 1):
        shown(number, 0)
        yield record


# -- backup ---------------------------------------------------------------------------------------


@click.group(
    "backup",
    cls=DefaultGroup,
    default="create",
    epilog=examples(
        "reverie backup reverie-2026-11-15.db",
        "reverie backup restore reverie-2026-11-15.db",
        "reverie verify reverie-2026-11-15.db",
    ),
)
def backup_command() -> None:
    """Back up the whole store, or restore a backup.

    'reverie backup FILE' is short for 'reverie backup create FILE'.
    """


@backup_command.command(
    "create",
    epilog=examples(
        "reverie backup reverie-2026-11-15.db", "reverie backup create reverie-2026-11-15.db"
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@store_options
def create_command(options: CommonOptions, file: Path) -> None:
    """Copy the store to FILE, even while in use, and verify the copy."""
    with options.open_store() as store:
        report = store.backup(file)
    print_report(report, as_json=options.as_json, heading={"file": str(file)})
    exit_on_problems(report.problems)


@backup_command.command(
    "restore", epilog=examples("reverie backup restore reverie-2026-11-15.db --yes")
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask before replacing an existing store.")
@store_options
def restore_backup_command(options: CommonOptions, file: Path, yes: bool) -> None:
    """Replace everything in the store with a backup.

    Memories and events erased after the backup stay erased.
    """
    path = store_file(options.settings())
    if not yes and (path is None or path.exists()):
        options.confirm(
            f"Replace everything in {path or 'the store'} with {file}?",
            "this replaces what is in the store now: repeat it with --yes",
        )
    with contextlib.ExitStack() as opened:
        try:
            store = opened.enter_context(options.open_store(create=True))
        except StoreDamaged as error:
            raise StoreDamaged(
                f"{path} cannot be opened as a store: move it away ('reverie salvage' makes a "
                "new store of what it holds), then repeat this"
            ) from error
        report = store.restore_backup(file)
    print_report(report, as_json=options.as_json, heading={"restored": str(file)})


# -- verify ---------------------------------------------------------------------------------------


@click.command(
    "verify", epilog=examples("reverie verify", "reverie verify reverie-2026-11-15.db --json")
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@store_options
def verify_command(options: CommonOptions, file: str | None) -> None:
    """Check a store or a backup for damage.

    Without FILE, the store is checked: its files, and whether the index agrees with the log. With
    FILE, that backup is checked; it is copied first, so that checking does not change it.
    """
    try:
        if file is None:
            with options.open_store() as store:
                heading, report = store.url, store.verify()
        else:
            heading, report = file, _verify_copy(file)
    except StoreDamaged as error:
        if options.as_json:
            print_json({"ok": False, "problems": [str(error)]})
        else:
            print_problems([str(error)])
        click.get_current_context().exit(PROBLEMS_FOUND)
    print_report(report, as_json=options.as_json, heading={"store": heading})
    exit_on_problems(report.problems)


def _verify_copy(file: str) -> VerifyReport:
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        copy = str(Path(folder) / Path(file).name)
        copy_store_file(Path(file), Path(copy))
        try:
            # The copy is temporary: an upgrade of it needs no backup.
            with CommonOptions(as_json=False, url=copy, no_backup=True).open_store() as store:
                return store.verify()
        except StoreDamaged as error:
            raise StoreDamaged(str(error).replace(copy, file)) from error


# -- migrate --------------------------------------------------------------------------------------


@click.command(
    "migrate",
    epilog=examples(
        "reverie migrate --to postgresql://reverie@db.example/reverie",
        "reverie migrate --from reverie.db --to postgresql://reverie@db.example/reverie",
        "reverie migrate --from postgresql://reverie@db.example/reverie --to copy.db",
    ),
)
@click.option(
    "--from", "source", metavar="URL", help="The store to copy.  [default: the setting url]"
)
@click.option(
    "--to", "target", required=True, metavar="URL", help="The target, which must be empty."
)
@upgrade_options
def migrate_command(options: CommonOptions, source: str | None, target: str) -> None:
    """Copy a whole store into another database.

    The whole history is copied. Nobody can write to either store meanwhile. If it is interrupted,
    run the command again and it continues. At the end every row is compared; until then the new
    store cannot be opened.
    """
    # numpy takes time to load, and help needs no store.
    from reverie.transfer.migrate import migrate

    settings = config.load(url=source, upgrade_backup=options.upgrade_backup)
    require_store(settings)
    with progress("migrating") as shown:
        report = migrate(
            settings.url or config.default_url(),
            target,
            shown,
            UpgradeOptions(settings.keeps_upgrade_backup),
        )
    if options.as_json:
        print_json(report)
        return
    print_pairs(
        {
            "spaces": report.spaces,
            "rows": report.rows,
            "copied now": report.copied,
            "sha256 of all rows": report.digest,
        }
    )
