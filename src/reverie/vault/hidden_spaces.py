"""Apply erasures to the files of spaces that the vault no longer shows.

Their files stay as they are, and no sync reads or writes them; what was erased must not stay in
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from reverie.engine import log
from reverie.engine.log import OVERWRITTEN_REASON, LogEntry
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.text import frontmatter
from reverie.vault import disk, log_erasure, render
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.log_position import BATCH, LogPosition, Mark, erasures_key
from reverie.vault.plan_edits import conflict_name
from reverie.vault.state import erased_sessions
from reverie.vault.vault import Vault
from reverie.write import session_state
from reverie.write.runtime import Runtime


def remove_erased(
    vault: Vault, runtime: Runtime, position: LogPosition, owner: Owner, scope: Scope
) -> None:
    """Apply the erasures of an owner whom the vault no longer shows to the files that are left."""
    files, key = vault.files, erasures_key(scope)
    mark, shown = _parse_mark(files.fact(key)), files.mark(scope)
    if not shown[0]:
        return
    if not position.has_entry(scope, mark):
        # The cache is new, or the store was restored from a backup.
        _refill_cache(vault, scope)
        mark = shown
        files.set_meta(key, json.dumps(mark))
    after = max(mark, shown)
    while True:
        with runtime.engine.read() as tx:
            tx.enter(owner)
            entries = log.entries(tx, owner, after[0], log.last_position(tx, owner), BATCH)
        if not entries:
            return
        _apply(vault, runtime, owner, scope, entries)
        after = (entries[-1].position, entries[-1].uuid)
        files.set_meta(key, json.dumps(after))


def _apply(
    vault: Vault, runtime: Runtime, owner: Owner, scope: Scope, entries: Sequence[LogEntry]
) -> None:
    ended = [entry for entry in entries if entry.op == "erase"]
    if not ended:
        return
    sessions = erased_sessions(ended)
    with runtime.engine.read() as tx:
        tx.enter(owner)
        ids = {entry.memory for entry in ended if entry.memory}
        ids.update(id for each in sessions for id in log.memories_from_session(tx, owner, each))
        versions = {id: log.versions(tx, owner, id) for id in sorted(ids)}
        # Also the summaries of forks.
        stale = [
            file
            for file in vault.files.list_type(scope, "summary")
            if session_state.read_summary(tx, owner, file.name).epoch != file.version
        ]
    for file in [*stale, *_files_about(vault, scope, versions, sessions)]:
        vault.remove(file)
    log_erasure.erase(vault, runtime, owner, scope, ended, ids, sessions)


def _files_about(
    vault: Vault, scope: Scope, versions: Mapping[str, Sequence[LogEntry]], sessions: Iterable[str]
) -> Iterator[VaultFile]:
    """Yield every file that may contain erased content; none is written again."""
    files = vault.files
    yield from files.list_type(scope, "index")
    for id, entries in versions.items():
        own = files.of(scope, "memory", id)
        if entries[-1].op == "erase":
            yield from (*own, *files.of(scope, "conflict", id))
        elif any(entry.reason == OVERWRITTEN_REASON for entry in entries):
            yield from (
                each for each in own if not each.digest or vault.unchanged_since_write(each)
            )
    for session in sessions:
        for what in ("turns", "summary"):
            yield from files.of(scope, what, session)
        yield from files.of(scope, "conflict", conflict_name(session))


def _refill_cache(vault: Vault, scope: Scope) -> None:
    """Add the files of an owner to a cache that was lost, with empty digests.

    It is not known how they were written, and no sync reads files that the vault no longer shows.
    """
    survey = disk.scan_folder(vault.root, vault.path(vault.folders.owner(scope)))
    for path in survey.files:
        place = vault.folders.parse(path)
        if place is None or place.scope != scope or vault.files.get(path) is not None:
            continue
        try:
            document = frontmatter.load(disk.read(vault.path(path)))
        except disk.UnreadableFile:
            continue
        name = place.session or ""
        if place.what in {"memory", "conflict"}:
            name = document.text("id") or document.text("conflict_of") or conflict_name(name)
        version = render.parse_number(document.text("version")) if place.what == "summary" else 0
        file = VaultFile(path, place.what, scope, name, version, "", FileStamp(0, 0, 0))
        vault.files.put(file)


def _parse_mark(fact: str | None) -> Mark:
    position, uuid = (0, "") if fact is None else json.loads(fact)
    return position, uuid
