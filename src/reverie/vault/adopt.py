"""Make a folder of agent-cli's memory the vault of a store.

The content of its files is remembered, and each file becomes the file of the same memory or turn in
the vault's layout. If it is stopped, the next call continues. A file is moved or removed only once
the store has its content.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reverie.engine import index, log, sessions
from reverie.errors import InvalidInput, ReverieError, VaultError
from reverie.memory.store import Store
from reverie.model import Event, Memory, Origin, Scope, Summary
from reverie.protocols import Owner, Transaction
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import concept_tags
from reverie.transfer import export, log_replay
from reverie.transfer.log_replay import ReplayRecord
from reverie.vault import (
    agent_cli,
    disk,
    layout,
    names,
    render,
    session_files,
)
from reverie.vault.agent_cli import AgentCliFile
from reverie.vault.file_cache import VaultFile
from reverie.vault.git.commit import commit_pending, open_repository
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.git.repo import Repository
from reverie.vault.git.worktree import add_missing_lines
from reverie.vault.markdown_log import derived_uuid
from reverie.vault.reader import EDITED, Sync
from reverie.vault.rebuild import require_same_log
from reverie.vault.session_edits import ACTOR as PERSON
from reverie.vault.vault import Vault
from reverie.write import session_state, vault_link
from reverie.write.secret_policy import Redaction

ACTOR = "agent-cli"
BEFORE_ADOPTION = "agent-cli's memory as it was"
DELETED = "it was deleted in agent-cli"
MOVED = "agent-cli's files in their places"
SUMMED_SINCE = "the session has a summary of its own"

Progress = Callable[[int, int], None]


@dataclass
class AdoptionReport:
    """What an adoption added to the store, and which files it left as they are."""

    memories: int = 0
    forgotten: int = 0
    events: int = 0
    summaries: int = 0
    problems: list[str] = field(default_factory=list)


def adopt(
    store: Store, path: str | Path, *, space: str | None = None, progress: Progress | None = None
) -> AdoptionReport:
    """Make agent-cli's folder the vault of a store, and import its memories into a space."""
    root = Path(path).expanduser().absolute()
    name = store.space(space or store.settings.space).name
    if names.encode_folder(name) == agent_cli.ENTRIES:
        raise VaultError(f"a space in this folder cannot be called {name!r}: give another --space")
    attached = vault_link.find_path(store.runtime)
    if attached not in {None, str(root)}:
        raise VaultError(f"the vault of this store is {attached}: adopt into a store without one")
    if not Vault.exists(root):
        if not (root / agent_cli.ENTRIES).is_dir():
            raise VaultError(f"{root} has no folder {agent_cli.ENTRIES}: it is not agent-cli's")
        Vault.init(root, None, "apart").close()
    with Vault.open(root) as vault, vault.locked():
        require_same_log(store.runtime, vault)
        _commit_original(root, name, store.runtime.redaction)
        work = _Adoption(vault, store, Scope(name), progress)
        work.import_files()
        work.place_files()
        vault_link.mark_created(store.runtime, str(root))
        vault_link.attach(store.runtime, str(root))
        work.sync.mirror.write_all()
        commit_pending(vault, store.runtime.redaction)
        return work.report


def _commit_original(root: Path, space: str, redaction: Redaction) -> None:
    """Commit every file as agent-cli left it, except secrets, before any is changed."""
    add_missing_lines(root / ".gitignore", agent_cli.DERIVED)
    repository = Repository.at(root, policy=CommitPolicy(redaction))
    if repository is not None:
        repository.init()
        repository.checkpoint(BEFORE_ADOPTION, space)


class _Adoption:
    def __init__(self, vault: Vault, store: Store, scope: Scope, progress: Progress | None) -> None:
        self._vault = vault
        self._store = store
        self._runtime = store.runtime
        self._scope = scope
        self._progress = progress
        self.report = AdoptionReport()
        self.sync = Sync(vault, store)
        found = list(agent_cli.read_files(vault.root, self.report.problems.append))
        self._old = sorted(found, key=lambda old: (old.created_at, _rank(old), old.path))
        self._by_uuid = {old.uuid: old for old in self._old}
        # The session and sequence of each turn, by its uuid.
        self._origins: dict[str, Origin] = {}
        # Summaries of sessions that have another one, and of those that have no turn.
        self._late = {old.uuid for old in self._old if self._is_late(old)}
        self._lone = {old.uuid for old in self._old if self._is_lone(old)}

    # -- into the store -----------------------------------------------------------------------

    def import_files(self) -> None:
        """Import all files that are new, in the order of their times."""
        self._find_places()
        before = {old.uuid for old in self._old if self._is_here(old)}
        told = [
            ReplayRecord(self._scope, record, old.path)
            for old in self._old
            if old.uuid not in before
            for record in self._records(old)
        ]
        told.sort(key=lambda each: each.recorded_at)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if self._progress is not None:
                self._progress(done, len(told))

        self.report.problems += log_replay.replay(self._runtime, told, advance).skipped
        for old in self._old:
            if old.uuid in before:
                self._follow(old)
            elif self._is_summary(old):
                self._summarise(old)
            elif self._is_here(old):
                self._count(old)

    def _count(self, old: AgentCliFile) -> None:
        if not self._is_memory(old):
            self.report.events += 1
        elif old.deleted:
            self.report.forgotten += 1
        else:
            self.report.memories += 1

    def _is_memory(self, old: AgentCliFile) -> bool:
        """Whether a file becomes a memory: a fact, or anything that was deleted."""
        return old.role == "memory" or old.deleted or old.uuid in self._late | self._lone

    def _is_summary(self, old: AgentCliFile) -> bool:
        return old.role == "summary" and not self._is_memory(old)

    def _is_late(self, old: AgentCliFile) -> bool:
        if old.role != "summary" or old.deleted:
            return False
        known = self._summary(old.conversation)
        return bool(known.epoch) and known.text != self._kept(old)

    def _is_lone(self, old: AgentCliFile) -> bool:
        if old.role != "summary" or old.deleted or old.uuid in self._late:
            return False
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            known = None if owner is None else sessions.find(tx, owner, old.conversation)
        turns = (
            each.conversation
            for each in self._old
            if each.role not in {"memory", "summary"} and not each.deleted
        )
        return known is None and old.conversation not in turns

    def _kept(self, old: AgentCliFile) -> str:
        """Return the content of a file with secrets redacted."""
        return self._runtime.redaction.quiet(old.content, "the file")

    def _find_places(self) -> None:
        """Assign sequences to turns by time, after the events that the session has."""
        last: dict[str, int] = {}
        for old in self._old:
            if self._is_memory(old) or self._is_summary(old):
                continue
            session = old.conversation
            if session not in last:
                last[session] = self._known_turns(session)
            if old.uuid not in self._origins:
                last[session] += 1
                self._origins[old.uuid] = Origin(session, last[session])

    def _known_turns(self, session: str) -> int:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            if owner is None:
                return 0
            for entry in log.session_entries(tx, owner, session):
                if entry.op == "append" and entry.sequence is not None:
                    self._origins[entry.uuid] = Origin(session, entry.sequence)
            known = sessions.find(tx, owner, session)
            return 0 if known is None else known.last_sequence

    def _records(self, old: AgentCliFile) -> Iterator[dict[str, Any]]:
        if self._is_memory(old):
            yield from self._as_memory(old)
        elif not self._is_summary(old):
            yield self._as_event(old)

    def _as_memory(self, old: AgentCliFile) -> Iterator[dict[str, Any]]:
        fact = old.role == "memory" and len(old.content) <= self._runtime.settings.fact_chars
        body: dict[str, Any] = {
            "kind": "fact" if fact else "note",
            "content": old.content,
            "category": "general" if old.role == "memory" else category_slug(old.role),
            "subject": None,
            "tags": [],
            "concept_tags": list(concept_tags(old.content)),
            "session": old.session,
            "source": f"agent-cli:{old.uuid}",
            "trust": "import",
            "pinned": False,
            "created_at": old.created_at,
            "updated_at": old.created_at,
            "happened_at": None,
            "forgotten_at": None,
            "expires_at": None,
        }
        record = _record("remember", old.uuid, old.created_at, body)
        about: dict[str, Any] = {"memory": _memory_id(old), "version": 1}
        yield record | about | {"origin": self._origins.get(old.source or "")}
        if old.deleted or old.uuid in self._late:
            at, why = self._ended(old)
            uuid = derived_uuid(f"forget\0{old.uuid}")
            gone = _record("forget", uuid, at, body | {"forgotten_at": at})
            yield gone | about | {"version": 2, "reason": why}

    def _ended(self, old: AgentCliFile) -> tuple[int, str]:
        """Return when and why the memory of a file is forgotten."""
        if not old.deleted:
            return old.created_at, SUMMED_SINCE
        if old.replaced_by is None:
            return old.created_at, DELETED
        found = self._by_uuid.get(old.replaced_by.lower())
        if found is None:
            return old.created_at, f"{DELETED}, replaced by {one_line(old.replaced_by)[:100]}"
        at = max(old.created_at, found.created_at)
        return at, f"{DELETED}, replaced by {_memory_id(found)}"

    def _as_event(self, old: AgentCliFile) -> dict[str, Any]:
        message: dict[str, Any] = {"role": old.role, "content": old.content}
        if old.more:
            message["metadata"] = old.more
        session, sequence = self._origins[old.uuid]
        record = _record("append", old.uuid, old.created_at, {"message": message})
        record["body"]["at"] = old.created_at
        return record | {"session": session, "sequence": sequence}

    def _is_here(self, old: AgentCliFile) -> bool:
        """Whether the store has the memory or turn of a file, with any content."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            if owner is None or self._is_summary(old):
                return False
            if self._is_memory(old):
                versions = log.versions(tx, owner, _memory_id(old))
                return any(each.uuid == old.uuid for each in versions)
            entry = sessions.find_event_entry(tx, owner, self._origins[old.uuid])
            return entry is not None and entry.uuid == old.uuid

    def _follow(self, old: AgentCliFile) -> None:
        """Revise a memory whose file was edited after an earlier adoption."""
        if not self._is_memory(old) or self._has_said(_memory_id(old), self._kept(old)):
            return
        id, handle = _memory_id(old), self._store.space(self._scope.space, actor=PERSON)
        space = handle if old.session is None else handle.session(old.session).space
        try:
            space.revise(id, old.content, reason=EDITED, key=f"vault:{id}:{disk.digest(old.raw)}")
        except ReverieError as error:
            self.report.problems.append(f"{old.path}: {one_line(str(error))}")

    def _summarise(self, old: AgentCliFile) -> None:
        """Use agent-cli's summary of a session unless the store has one."""
        session = old.conversation
        try:
            text = session_state.check_summary(self._kept(old), 0)
        except InvalidInput as error:
            self.report.problems.append(f"{old.path}: {one_line(str(error))}")
            return
        with self._runtime.engine.write() as tx:
            owner = log.ensure_owner(tx, self._scope.space, self._scope.user)
            if session_state.read_summary(tx, owner, session).epoch:
                return
            known = sessions.find(tx, owner, session)
            upper = 0 if known is None else known.last_sequence
            session_state.put_summary(tx, owner, session, Summary(text, 1, upper))
        self.report.summaries += 1

    # -- the files ----------------------------------------------------------------------------

    def place_files(self) -> None:
        """Move each file to its place in the vault's layout, if the store has its content.

        A file is moved unchanged and rewritten later, so that git shows it as renamed.
        """
        moved = [old for old in self._old if self._is_held(old) and self._move(old)]
        self._commit_moves()
        for old in moved:
            memory = self._memory(_memory_id(old)) if self._is_memory(old) else None
            if memory is not None:
                self.sync.mirror.write_memory(self._scope, memory.id, memory, "remember")
        self.sync.mirror.write_all()
        for old in self._old:
            if self._is_summary(old):
                self._write_summary(old.conversation)
            if disk.stamp(self._vault.root / old.path) is not None:
                self._let_go(old)
        _prune(self._vault.root / agent_cli.ENTRIES)

    def _is_held(self, old: AgentCliFile) -> bool:
        """Whether the store has the content of a file."""
        if self._is_memory(old):
            return self._has_said(_memory_id(old), self._kept(old))
        if self._is_summary(old):
            return self._summary(old.conversation).text == self._kept(old)
        event = self._event(self._origins[old.uuid])
        return event is not None and event.text == self._kept(old)

    def _move(self, old: AgentCliFile) -> bool:
        """Move a file to its new path unless there is one already; return whether it moved."""
        vault, path = self._vault, self._target(old)
        if path is None:
            return False
        stamp = disk.write(vault.path(path), old.raw)
        # Known as ours, at a version that none has: rewritten with the keys that a person added.
        what = "summary" if self._is_summary(old) else "turns"
        name = old.conversation
        if self._is_memory(old):
            what, name = "memory", _memory_id(old)
        vault.files.put(VaultFile(path, what, self._scope, name, 0, disk.digest(old.raw), stamp))
        vault.files.add_pending(self._scope.space, path)
        self._remove(old)
        return True

    def _target(self, old: AgentCliFile) -> str | None:
        vault, scope = self._vault, self._scope
        vault.record_names(scope, old.conversation)
        if self._is_memory(old):
            memory = self._memory(_memory_id(old))
            known = vault.files.of(scope, "memory", _memory_id(old))
            if memory is None or known or not _can_become(memory, old):
                return None
            name = names.file_name(memory.id, memory.subject, memory.content)
            path = f"{layout.memory_folder(scope, memory)}/{name}"
            path = layout.to_deleted_path(scope, path) if memory.forgotten_at is not None else path
        elif self._is_summary(old):
            path = layout.summary_path(scope, old.conversation)
        else:
            event = self._event(self._origins[old.uuid])
            if event is None or vault.config.turns != "apart":
                return None
            path = session_files.event_path(scope, event.session, event)
        there = vault.path(path)
        # What is there already may be this very file, copied before somebody stopped us.
        taken = disk.stamp(there) is not None and disk.read(there) != old.raw
        return None if taken or vault.files.get(path) is not None else path

    def _commit_moves(self) -> None:
        repository = open_repository(self._vault, self._runtime.redaction)
        paths = dict.fromkeys(each.path for each in self._vault.files.pending())
        if repository is not None and paths:
            space = self._scope.space
            repository.commit(paths, f"{one_line(space)}: {MOVED}", author=space)

    def _let_go(self, old: AgentCliFile) -> None:
        """Remove a file whose content is in a file of the vault."""
        if self._is_held(old) and self._is_shown(old):
            self._remove(old)
        else:
            why = "the store says something else: it is left as it is"
            self.report.problems.append(f"{old.path}: {why}")

    def _is_shown(self, old: AgentCliFile) -> bool:
        files, scope = self._vault.files, self._scope
        if self._is_memory(old):
            return bool(files.of(scope, "memory", _memory_id(old)))
        if self._is_summary(old):
            return bool(files.of(scope, "summary", old.conversation))
        place = self._origins[old.uuid]
        turns = files.of(scope, "turns", place.session)
        return any(file.version >= place.sequence for file in turns)

    def _remove(self, old: AgentCliFile) -> None:
        disk.remove(self._vault.root / old.path)
        self._vault.files.add_pending(self._scope.space, old.path)

    def _write_summary(self, session: str) -> None:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
        if owner is not None:
            self.sync.mirror.session_files.write_summary(owner, self._scope, session)

    # -- what the store says ------------------------------------------------------------------

    def _memory(self, id: str) -> Memory | None:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            return None if owner is None else _current(tx, owner, self._scope, id)

    def _summary(self, session: str) -> Summary:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            return Summary() if owner is None else session_state.read_summary(tx, owner, session)

    def _event(self, place: Origin) -> Event | None:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            entry = None if owner is None else sessions.find_event_entry(tx, owner, place)
        return (
            None if entry is None or entry.body is None else sessions.event_from_entry(entry, None)
        )

    def _has_said(self, id: str, content: str) -> bool:
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            versions = [] if owner is None else log.versions(tx, owner, id)
        return any(each.body and each.body.get("content") == content for each in versions)


def _prune(folder: Path) -> None:
    """Remove empty folders below a folder, and the folder itself if it is empty."""
    for each in sorted(folder.rglob("*"), reverse=True):
        if each.is_dir() and not each.is_symlink():
            with contextlib.suppress(OSError):
                each.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _can_become(memory: Memory, old: AgentCliFile) -> bool:
    """Whether a file can be rewritten as that of the memory."""
    try:
        return bool(render.memory_file(memory, old.raw))
    except ReverieError:
        return False


def _rank(old: AgentCliFile) -> int:
    """Return the order of files with the same time: a turn comes before facts learned from it."""
    return ["user", "assistant"].index(old.role) if old.role in {"user", "assistant"} else 2


def _memory_id(old: AgentCliFile) -> str:
    return agent_cli.memory_id(old.uuid)


def _record(op: str, uuid: str, at: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "reverie": export.FORMAT,
        "op": op,
        "uuid": uuid,
        "recorded_at": at,
        "actor": ACTOR,
        "trust": "import",
        "reason": None,
        "origin": None,
        "body": body,
    }


def _current(tx: Transaction, owner: Owner, scope: Scope, id: str) -> Memory | None:
    """Return the current state of a memory; None when it was erased or is another owner's."""
    place = index.find(tx, owner, id)
    entry = None if place is None else log.find_at_position(tx, owner, place.position)
    return None if entry is None or entry.body is None else entry.state(scope.user)
