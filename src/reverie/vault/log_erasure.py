"""Remove erased content from the vault's own log, and from copies that were set aside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from reverie.engine import log
from reverie.engine.log import LogEntry
from reverie.model import Scope
from reverie.protocols import Owner
from reverie.vault import log_file
from reverie.vault.git import purge
from reverie.vault.vault import Vault
from reverie.write.runtime import Runtime


def erase(
    vault: Vault,
    runtime: Runtime,
    owner: Owner,
    scope: Scope,
    ended: Sequence[LogEntry],
    memories: Collection[str],
    sessions: Collection[str],
) -> None:
    """Rewrite the lines about these memories and sessions to what the store's log says now.

    Lines of commit messages that are to be written quote them no more. ``ended`` are the entries of
    the erasures.
    """
    blanked = {at for entry in ended for at in (entry.body or {}).get("entries", ())}

    def is_about(line: log_file.LogLine) -> bool:
        origin = line.get("origin") or [None]
        return (line["space"], line["user"]) == (scope.space, scope.user) and (
            line.get("memory") in memories
            or line.get("session") in sessions
            or origin[0] in sessions
            or line["position"] in blanked
        )

    positions = sorted({line["position"] for line in vault.log.lines() if is_about(line)})
    with runtime.engine.read() as tx:
        tx.enter(owner)
        now = log.find_at_positions(tx, owner, positions, strict=True)

    def alter(line: log_file.LogLine) -> log_file.LogLine | None:
        entry = now.get(line["position"])
        return None if entry is None or not is_about(line) else log_file.build_line(scope, entry)

    altered = [(line, alter(line)) for line in vault.log.lines()]
    lines = (log_file.build_line(scope, entry) for entry in ended)
    gone = purge.collect_erasures(chain((new or line for line, new in altered), lines))
    eraser = purge.Eraser(vault.folders.parse_history, gone)
    for file in vault.files.list_type(scope, "memory"):
        eraser.see(scope, file.path, file.name)
    for line, new in altered:
        if new is not None:
            eraser.learn(scope, line, new)
    # Clean the copies before the log: only the log names the erased texts, and after a kill they
    # are needed again.
    purge.clean_copies(vault, eraser, scope.space)
    for path in vault.log.change(alter):
        vault.files.add_pending(scope.space, path.relative_to(vault.root).as_posix())
    for id in memories:
        vault.files.silence(scope.space, id)
    for entry in ended:
        vault.files.add_pending(scope.space, vault.folders.index(scope), _commit_line(entry))


def _commit_line(entry: LogEntry) -> str:
    """Return the line of the commit message for an erasure, which quotes nothing."""
    if entry.memory:
        return f"(erase {entry.memory})"
    turn = "" if entry.sequence is None else f"turn {entry.sequence} "
    return f"{entry.session}: {turn}erased"
