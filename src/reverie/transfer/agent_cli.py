"""Import the memory folder of agent-cli: facts, turns and summaries. The folder stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reverie.engine import log, sessions
from reverie.errors import InvalidInput, ReverieError
from reverie.model import UNNAMED, ImportReport, Origin, Scope, Summary
from reverie.protocols import Progress
from reverie.text.normalize import category_slug, one_line
from reverie.text.tags import concept_tags
from reverie.transfer import agent_cli_files, export, log_replay
from reverie.transfer.agent_cli_files import AgentCliFile
from reverie.transfer.import_ import derived_uuid
from reverie.write import memories, session_state
from reverie.write.runtime import Runtime
from reverie.write.writer import Author, WriteStamp, open_writer

ACTOR = "agent-cli"
DELETED = "it was deleted in agent-cli"
EDITED = "its file was edited in agent-cli"
SUMMARIZED_HERE = "the session has a summary of its own"


def import_folder(
    runtime: Runtime, author: Author, folder: str | Path, progress: Progress | None = None
) -> ImportReport:
    """Import everything that is new in a folder; importing it again changes nothing.

    A fact whose file was edited since the last time is revised.
    """
    root = Path(folder).expanduser()
    if not (root / agent_cli_files.ENTRIES).is_dir():
        raise InvalidInput(
            f"{root} has no folder {agent_cli_files.ENTRIES}: it is not agent-cli's memory"
        )
    work = _Import(runtime, author, root)
    added = work.add(progress)
    unchanged = len(work.files) - added - len(work.revised)
    return ImportReport(added + len(work.revised), max(unchanged, 0), tuple(work.problems))


class _Import:
    def __init__(self, runtime: Runtime, author: Author, root: Path) -> None:
        self._runtime = runtime
        self._author = author._replace(actor=ACTOR)
        # What was said to agent-cli, and what it learned, is not for other users to see.
        self._scope = Scope(author.scope.space, author.scope.user or UNNAMED)
        with runtime.engine.read() as tx:
            shared = None if author.scope.user else log.resolve_owner(tx, author.scope)
            # What an earlier version imported as shared stays so, and is not imported twice.
            if shared is not None and log.entries_by_actor(tx, shared, 0, ACTOR):
                self._scope = Scope(author.scope.space)
        self.problems: list[str] = []
        self.revised: list[str] = []
        found = agent_cli_files.read_files(root, self.problems.append)
        self.files = sorted(found, key=lambda file: (file.created_at, _rank(file), file.path))
        self._by_uuid = {file.uuid: file for file in self.files}
        with_turns = {
            file.conversation
            for file in self.files
            if file.role not in {"memory", "summary"} and not file.deleted
        }
        with runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            conversations = sorted({file.conversation for file in self.files})
            # The events that the store has, by uuid, and the last sequence of each session.
            self._origins: dict[str, Origin] = {}
            self._last = dict.fromkeys(conversations, 0)
            self._summaries: dict[str, str] = {}
            for session in conversations if owner is not None else ():
                assert owner is not None
                for entry in log.session_entries(tx, owner, session):
                    if entry.op == "append" and entry.sequence is not None:
                        self._origins[entry.uuid] = Origin(session, entry.sequence)
                if (row := sessions.find(tx, owner, session)) is not None:
                    self._last[session] = row.last_sequence
                self._summaries[session] = session_state.read_summary(tx, owner, session).text
        # A summary becomes that of its session, if the session has turns and no other summary.
        self._as_summary = {
            file.uuid
            for file in self.files
            if file.role == "summary"
            and not file.deleted
            and (file.conversation in with_turns or self._last[file.conversation])
            and self._summaries.get(file.conversation, "") in {"", self._redacted(file)}
        }

    def add(self, progress: Progress | None) -> int:
        """Import all files that are new, in the order of their times; return their number."""
        self._place_turns()
        here = {file.uuid for file in self.files if self._is_here(file)}
        new = [file for file in self.files if file.uuid not in here]
        records = [
            log_replay.ReplayRecord(self._scope, record, file.path)
            for file in new
            for record in self._records(file)
        ]
        records.sort(key=lambda each: int(each.record["recorded_at"]))
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, len(records))

        self.problems += log_replay.replay(self._runtime, records, advance).skipped
        for file in self.files:
            if file.uuid in here:
                self._revise(file)
        summaries = sum(self._add_summary(file) for file in new if file.uuid in self._as_summary)
        added = [file for file in new if file.uuid not in self._as_summary and self._is_here(file)]
        return len(added) + summaries

    def _is_memory(self, file: AgentCliFile) -> bool:
        """Whether a file becomes a memory: a fact, or anything that was deleted."""
        return file.role in {"memory", "summary"} or file.deleted

    def _redacted(self, file: AgentCliFile) -> str:
        """Return the content of a file with secrets redacted."""
        return self._runtime.redaction.quiet(file.content, "the file")

    def _place_turns(self) -> None:
        """Assign sequences to turns by time, after the events that the session has."""
        for file in self.files:
            if not self._is_memory(file) and file.uuid not in self._origins:
                self._last[file.conversation] += 1
                self._origins[file.uuid] = Origin(file.conversation, self._last[file.conversation])

    def _is_here(self, file: AgentCliFile) -> bool:
        """Whether the store has the memory, turn or summary of a file, with any content."""
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            if owner is None:
                return False
            if file.uuid in self._as_summary:
                return bool(self._summaries.get(file.conversation))
            if self._is_memory(file):
                versions = log.versions(tx, owner, agent_cli_files.memory_id(file.uuid))
                return any(each.uuid == file.uuid for each in versions)
            entry = sessions.find_event_entry(tx, owner, self._origins[file.uuid])
            return entry is not None and entry.uuid == file.uuid

    # -- records ------------------------------------------------------------------------------

    def _records(self, file: AgentCliFile) -> Iterator[dict[str, Any]]:
        if file.uuid in self._as_summary:
            return
        if self._is_memory(file):
            yield from self._memory_records(file)
        else:
            yield self._event_record(file)

    def _memory_records(self, file: AgentCliFile) -> Iterator[dict[str, Any]]:
        fact = file.role == "memory" and len(file.content) <= self._runtime.settings.fact_chars
        body: dict[str, Any] = {
            "kind": "fact" if fact else "note",
            "content": file.content,
            "category": "general" if file.role == "memory" else category_slug(file.role),
            "subject": None,
            "tags": [],
            "concept_tags": list(concept_tags(file.content)),
            "session": file.session,
            "source": f"agent-cli:{file.uuid}",
            "trust": "import",
            "pinned": False,
            "created_at": file.created_at,
            "updated_at": file.created_at,
            "happened_at": None,
            "forgotten_at": None,
            "expires_at": None,
        }
        about = {"memory": agent_cli_files.memory_id(file.uuid)}
        origin = self._origins.get(file.source or "")
        record = _record("remember", file.uuid, file.created_at, body)
        yield record | about | {"version": 1, "origin": origin}
        if file.deleted or file.role == "summary" and self._summaries.get(file.conversation):
            at, why = self._ended(file)
            uuid = derived_uuid(f"forget\0{file.uuid}")
            gone = _record("forget", uuid, at, body | {"forgotten_at": at})
            yield gone | about | {"version": 2, "reason": why}

    def _ended(self, file: AgentCliFile) -> tuple[int, str]:
        """Return when and why the memory of a file is forgotten."""
        if not file.deleted:
            return file.created_at, SUMMARIZED_HERE
        if file.replaced_by is None:
            return file.created_at, DELETED
        found = self._by_uuid.get(file.replaced_by.lower())
        if found is None:
            return file.created_at, f"{DELETED}, replaced by {one_line(file.replaced_by)[:100]}"
        at = max(file.created_at, found.created_at)
        return at, f"{DELETED}, replaced by {agent_cli_files.memory_id(found.uuid)}"

    def _event_record(self, file: AgentCliFile) -> dict[str, Any]:
        message: dict[str, Any] = {"role": file.role, "content": file.content}
        if file.more:
            message["metadata"] = file.more
        session, sequence = self._origins[file.uuid]
        body = {"message": message, "at": file.created_at}
        record = _record("append", file.uuid, file.created_at, body)
        return record | {"session": session, "sequence": sequence}

    # -- what is no record --------------------------------------------------------------------

    def _revise(self, file: AgentCliFile) -> None:
        """Revise a memory whose file was edited after an earlier import."""
        if file.uuid in self._as_summary or not self._is_memory(file):
            return
        id = agent_cli_files.memory_id(file.uuid)
        with self._runtime.engine.read() as tx:
            owner = log.resolve_owner(tx, self._scope)
            versions = [] if owner is None else log.versions(tx, owner, id)
        said = {(each.body or {}).get("content") for each in versions}
        if self._redacted(file) in said:
            return
        scope = self._scope
        if file.session is not None:
            scope = sessions.session_scope(scope, file.session)
        stamp = WriteStamp(key=f"agent-cli:{id}:{derived_uuid(file.content)}", reason=EDITED)
        try:
            current = versions[-1].state(scope.shown_user)
            made = memories.prepare_revision(self._runtime, file.content, {}, lambda: current)
            with open_writer(self._runtime, self._author._replace(scope=scope)) as w:
                alter = made.alter("import", None)
                memories.change(w, id, "revise", stamp, alter, made.text)
            self.revised.append(file.path)
        except ReverieError as error:
            self.problems.append(f"{file.path}: {one_line(str(error))}")

    def _add_summary(self, file: AgentCliFile) -> bool:
        session = file.conversation
        try:
            text = session_state.check_summary(self._redacted(file), 0)
        except InvalidInput as error:
            self.problems.append(f"{file.path}: {one_line(str(error))}")
            return False
        with self._runtime.engine.write() as tx:
            owner = log.ensure_owner(tx, self._scope.space, self._scope.user)
            row = sessions.find(tx, owner, session)
            if row is None or session_state.read_summary(tx, owner, session).epoch:
                return False
            summary = Summary(text, 1, row.last_sequence)
            session_state.put_summary(tx, owner, session, summary)
        return True


def _rank(file: AgentCliFile) -> int:
    """Return the order of files with the same time: a turn comes before facts learned from it."""
    return ["user", "assistant"].index(file.role) if file.role in {"user", "assistant"} else 2


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
