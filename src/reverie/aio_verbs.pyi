"""The verbs of async handles, for type checkers and editors: nothing can import this.

Made by ``python docs/aio_verbs.py`` from Store, Space, Session and ScratchpadHandle.
"""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, Unpack

from reverie.aio import AsyncScratchpad, AsyncSession, AsyncSpace
from reverie.config import Settings
from reverie.dates import Time
from reverie.memory.session import RecallOptions, RememberOptions
from reverie.model import (
    Change,
    Context,
    ErasureReport,
    Event,
    Hit,
    HitKind,
    ImportReport,
    Job,
    Kind,
    Memory,
    Message,
    Mode,
    NewMemory,
    Order,
    Origin,
    PromptAdditions,
    Proposal,
    Ranking,
    RankingName,
    RecallNote,
    Right,
    SessionErasure,
    SessionInfo,
    SpaceInfo,
    StoredMessage,
    Summary,
    Token,
    Trust,
    VerifyReport,
    Version,
    Where,
)
from reverie.protocols import Progress
from reverie.transfer import export as transfer_export
from reverie.write import session_state

class StoreVerbs:
    @property
    def url(self) -> str:
        """The path or URL of the database."""
    @property
    def settings(self) -> Settings:
        """The settings this store was opened with."""
    @property
    def write_failed(self) -> Coroutine[Any, Any, bool]:
        """Whether a write or sync failed, or a newer Reverie upgraded the store: nothing can be
        written until the store is reopened.
        """
    @property
    def damaged(self) -> Coroutine[Any, Any, int]:
        """How many damaged entries were left out of answers since the store was opened."""
    @property
    def vault(self) -> Coroutine[Any, Any, Path | None]:
        """The folder that this store is mirrored to as Markdown files, if there is one."""
    def space(
        self,
        name: str,
        *,
        user: str | None = None,
        actor: str | None = None,
        trust: Trust = "person",
        ranking: Ranking | RankingName | None = None,
    ) -> AsyncSpace:
        """Return a handle on a space: its shared memories, and with ``user`` that user's as well.

        ``ranking`` is the ranking of recalls that name none.
        """
    async def spaces(self) -> list[SpaceInfo]:
        """List every space, by name."""
    async def positions(self, names: Sequence[str]) -> dict[str, int]:
        """Return the last log position of each of these spaces that exists."""
    async def run_pending_jobs(self) -> int:
        """Run every job that is due; return how many ran."""
    async def run_worker(self, stop: threading.Event, poll_seconds: float = 1.0) -> None:
        """Run jobs as they become due, until ``stop`` is set.

        Raises NewerSchema when a newer Reverie upgraded the store.
        """
    async def flush_to_vault(self) -> str | None:
        """Write this process's changes to the vault now; return the reason if that fails.

        For programs that end before a worker would do so. Without a vault, nothing is done.
        """
    async def start_worker(self, poll_seconds: float = 1.0) -> None:
        """Run jobs in a thread of this process until the store is closed."""
    async def stop_worker(self) -> None:
        """Stop the worker thread, after the job that it is running."""
    async def jobs(self) -> list[Job]:
        """List every job, parked ones included."""
    async def retry_job(self, space: str, job: int) -> None:
        """Make a job due now."""
    async def drop_job(self, space: str, job: int) -> None:
        """Delete a job without running it."""
    async def create_token(
        self,
        name: str,
        right: Right = "write",
        *,
        spaces: Iterable[str] | None = None,
        user: str | None = None,
    ) -> tuple[Token, str]:
        """Create an access token for a server; its text is returned only here."""
    async def tokens(self) -> list[Token]:
        """List every token, the oldest first."""
    async def revoke_token(self, id: str) -> None:
        """Delete a token: nobody can use it from now on."""
    async def authenticate(self, secret: str) -> Token | None:
        """Return the token with this text; None when there is none."""
    async def rebuild(self, progress: Progress | None = None) -> int:
        """Rebuild the index and the vectors from the log; return how many items were indexed."""
    async def reembed(self, progress: Progress | None = None) -> int:
        """Embed every passage with the configured embedder, then switch to the new vectors."""
    async def verify(self) -> VerifyReport:
        """Check the files, the log, and that the index agrees with the log."""
    async def backup(self, target: str | Path) -> VerifyReport:
        """Write an online copy to a file, and verify it."""
    async def verify_backup(self, source: str | Path) -> VerifyReport:
        """Check a backup without changing anything."""
    async def restore_backup(self, source: str | Path) -> VerifyReport:
        """Replace this store with a backup. Memories and events erased since then stay erased."""
    async def doctor(self) -> Mapping[str, Any]:
        """Report versions, paths, pending work and problems."""
    async def vacuum(self) -> None:
        """Return unused pages to the file system."""

class SpaceVerbs:
    @property
    def name(self) -> str:
        """The name of the space."""
    @property
    def user(self) -> str | None:
        """The user of this handle; None if it has none."""
    @property
    def ranking(self) -> Ranking:
        """How recalls of this handle rank unless they name another ranking."""
    @property
    def floor(self) -> float | None:
        """The score below which a hit gets no place in a prompt: the setting ``recall_floor``.

        None if the scores of this handle's ranking are not calibrated.
        """
    async def remember(
        self,
        content: str,
        *,
        kind: Kind = "fact",
        category: str = "general",
        subject: str | None = None,
        tags: Iterable[str] = (),
        source: str | None = None,
        origin: Origin | None = None,
        happened_at: Time | None = None,
        expires_at: Time | None = None,
        valid_from: Time | None = None,
        valid_to: Time | None = None,
        pinned: bool = False,
        metadata: Mapping[str, Any] | None = None,
        private: bool = False,
        key: str | None = None,
        unless_known: bool = False,
    ) -> Memory:
        """Remember one thing. Returns once it is on disk.

        The result has the other memories of its subject in ``related``. ``metadata`` is any JSON
        object of up to 16 KiB. ``valid_from`` and ``valid_to`` (exclusive) say when it is true. The
        same ``key`` with the same arguments returns the first result.

        A text that is remembered again does not become a second memory, unless it contradicts the
        first in subject, times or metadata: the first gets a new version. Facts are compared
        without case, white space and a final full stop, notes exactly. The version keeps the text,
        the subject, and a category other than the default. It gets the labels that the memory
        lacked, and the new ``source``. If the author is less trusted than that of the memory, the
        version changes nothing, and only its reason names the new source. With ``unless_known``,
        SubjectExists is raised if a memory of this category and subject already says something
        similar.

        Through the handle of a session, ``origin`` is by default the session's latest event, or the
        session as a whole if it has no event yet. ``private`` needs such a handle: only that
        session recalls the memory.
        """
    async def remember_many(
        self, items: Iterable[NewMemory | str], *, key: str | None = None
    ) -> list[Memory]:
        """Remember many things in one transaction, all of them or none: one memory for each item.

        An item is a content, or a mapping with a ``content`` and the other arguments of
        ``remember``, except ``private``; there are at most 1,000.
        """
    async def remember_file(self, path: str | Path, *, category: str = "document") -> Memory:
        """Remember a text document as a note. Unchanged content is not processed again."""
    async def revise(
        self,
        id: str,
        content: str | None = None,
        *,
        category: str | EllipsisType = ...,
        subject: str | None | EllipsisType = ...,
        tags: Iterable[str] | EllipsisType = ...,
        pinned: bool | EllipsisType = ...,
        metadata: Mapping[str, Any] | None | EllipsisType = ...,
        valid_from: Time | None | EllipsisType = ...,
        valid_to: Time | None | EllipsisType = ...,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Write a new version of a memory. Fields that are not given stay as they are.

        ``metadata`` replaces the whole object; None removes it.
        """
    async def forget(
        self,
        id: str,
        *,
        expected_version: int | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Memory:
        """Remove a memory from every recall, until ``restore``. Its history stays."""
    async def forget_source(
        self, source: str, *, reason: str | None = None, key: str | None = None
    ) -> list[Memory]:
        """Forget every memory with exactly this source, all of them or none.

        ``restore`` undoes it for each of them. When there was nothing to forget, the key is not
        stored: repeated later, the call may forget something.
        """
    async def memories_from_source(self, source: str) -> list[Memory]:
        """List the memories that ``forget_source`` would forget, the oldest first."""
    async def restore(self, id: str, *, key: str | None = None) -> Memory:
        """Undo ``forget``."""
    async def erase(
        self, id: str, *, with_source: bool = False, key: str | None = None
    ) -> ErasureReport:
        """Destroy every version of a memory. This cannot be undone."""
    async def recall(
        self,
        query: str,
        *,
        limit: int = 5,
        mode: Mode = "hybrid",
        kinds: Iterable[HitKind] | None = None,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        where: Where | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        ranking: Ranking | RankingName | None = None,
        min_score: float | None = None,
        query_embedding: Sequence[float] | None = None,
        explain: bool = False,
        note: bool = True,
    ) -> list[Hit]:
        """Return the memories and events that best answer a query, best first.

        Hits below ``min_score`` are left out; with the default ranking scores are from 0 to 1 and
        comparable between queries, and prompts leave out those below ``floor``. ``ranking`` is a
        Ranking or one of the names in ``RANKINGS``, by default the handle's. ``since`` and
        ``until`` (exclusive) limit when something happened; ``where`` are conditions on metadata,
        tags and other fields. With ``note=False`` the recall is not logged.

        ``valid_at`` asks for what was true at a time: only memories are found, each in the version
        that was true then. No event is, because its time is when it was said. A year or month
        ("2023", "2023-05") means its last moment, or now while it lasts. ``as_of`` asks for what
        the store knew at a position of the log (an int) or at a time: the recall finds what it
        would have found then.
        """
    async def get(self, id: str) -> Memory:
        """Return a memory by its id, even a forgotten one."""
    async def history(self, id: str) -> list[Version]:
        """List every version of a memory, the oldest first; those of an erased one are blank."""
    async def memories(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: Kind | None = None,
        where: Where | None = None,
        include_forgotten: bool = False,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        limit: int | None = None,
        after: str | None = None,
        order: Order = "newest",
    ) -> list[Memory]:
        """List the memories of this scope, the newest first or by category.

        ``where`` are conditions such as ``{"metadata.team": {"in": ["a", "b"]}}``. With
        ``valid_at`` each memory is in the version that was true at that time. ``after`` is the id
        of the last memory of the previous page.
        """
    async def count(
        self,
        *,
        category: str | None = None,
        subject: str | None = None,
        tags: Iterable[str] | None = None,
        kind: Kind | None = None,
        where: Where | None = None,
        include_forgotten: bool = False,
        valid_at: Time | None = None,
        as_of: Time | None = None,
    ) -> int:
        """Count the memories that ``memories`` would list."""
    async def categories(self) -> dict[str, int]:
        """Return every category, by name, with the number of its memories."""
    async def position(self) -> int:
        """Return the last position of the space's log."""
    async def changes(self, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """List the entries of the log after a position, in order, for programs that mirror it."""
    async def profile(self, *, tokens: int = 2000, update_tool: str | None = None) -> str:
        """Return the profile, a block of memories for a prompt: same memories, same bytes.

        If not all fit, pinned memories are shown first, then facts about people, health and
        preferences, then memories that are recalled often, then the newest. ``update_tool`` is the
        name of the model's tool to change a memory, if it has one: the profile mentions it.
        """
    async def context(
        self, query: str, *, tokens: int | None = None, update_tool: str | None = None
    ) -> Context:
        """Assemble profile and recalled memories for a query outside of any session.

        ``update_tool`` is the name of the model's tool to change a memory, if it has one.
        """
    def session(self, id: str | None = None) -> AsyncSession:
        """Return a handle on a session of this scope; without an id, on a new one."""
    async def sessions(
        self,
        *,
        limit: int | None = None,
        include_hidden: bool = False,
        since: Time | None = None,
        until: Time | None = None,
    ) -> list[SessionInfo]:
        """List the sessions of this handle, the one with the newest event first.

        ``since`` and ``until`` (exclusive) limit when that event was stored.
        """
    async def follow(
        self, history: Iterable[Message], *, session: str | None = None, key: str | None = None
    ) -> AsyncSession:
        """Store the new messages of a history that a client resends as a whole each turn.

        All messages are matched, replies included. Where the history diverges from the stored one,
        the session returned is a new one, ``forked_from`` the last event they share. System prompts
        are left out. ``session`` is the session that the client names; then the history may lack
        its oldest messages.
        """
    async def neighbours(self, hit: Hit | Event, *, before: int = 2, after: int = 2) -> list[Event]:
        """Return an event with the events before and after it in its session, in order."""
    async def proposals(self, *, include_answered: bool = False) -> list[Proposal]:
        """List the proposals that wait for an answer, or all of them, the oldest first."""
    async def accept(self, proposal: str, *, key: str | None = None) -> Memory:
        """Remember a proposed fact; if it was accepted before, return the same memory.

        If a later proposal of another value for the same fact, such as a newer home, was accepted
        already, nothing is remembered: the memory it became is returned unchanged.
        """
    async def reject(
        self, proposal: str, *, reason: str | None = None, key: str | None = None
    ) -> Proposal:
        """Reject a proposal: it is not remembered."""
    async def export(self, *, skip_damaged: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Yield every log entry of this handle's owner as JSON values, the oldest first.

        Raises StoreDamaged at a damaged entry, or with ``skip_damaged`` leaves it out and counts it
        in ``Store.damaged``.
        """
    async def import_records(
        self, records: Iterable[transfer_export.Record | transfer_export.UnreadableRecord]
    ) -> ImportReport:
        """Import the records of ``export``, or plain records with a content. Repeating is safe."""
    async def import_agent_cli(
        self, folder: str | Path, progress: Callable[[int, int], None] | None = None
    ) -> ImportReport:
        """Import the memory folder of agent-cli, which stays as it is. Repeating is safe."""

class SessionVerbs:
    @property
    def id(self) -> str: ...
    @property
    def space(self) -> AsyncSpace:
        """A handle on the space that also recalls the memories private to this session.

        Memories written through it have the latest event of this session as their origin.
        """
    @property
    def matched_sequence(self) -> int | None:
        """The sequence of the last message that ``Space.follow`` matched or stored here.

        None for a handle made in another way, and when that message is not in this session.
        """
    @property
    def forked_from(self) -> Coroutine[Any, Any, Origin | None]:
        """The event of another session that this session continues; None if it is no fork."""
    @property
    def scratchpad(self) -> AsyncScratchpad:
        """The working list of this session."""
    async def append(
        self,
        message: Message,
        *,
        sequence: int | None = None,
        at: Time | None = None,
        key: str | None = None,
        interrupted: bool = False,
    ) -> Event:
        """Append one message, unchanged, in the format of any provider. Returns once it is on disk.

        ``interrupted`` marks a reply that was cut off. A ``sequence`` must be greater than the last
        one of the session; by default it is the next. No model is called.
        """
    async def append_many(
        self, messages: Iterable[Message], *, key: str | None = None
    ) -> list[Event]:
        """Append messages in order, all of them or none."""
    async def remember(self, content: str, **options: Unpack[RememberOptions]) -> Memory:
        """Remember something said in this session; see ``Space.remember``.

        Its origin is the latest event of this session, or the session as a whole if it has no
        event yet. With ``private=True`` only this session recalls it.
        """
    async def remember_many(
        self, items: Iterable[NewMemory | str], *, key: str | None = None
    ) -> list[Memory]:
        """Remember many things said in this session; see ``Space.remember_many``."""
    async def hide(self, reason: str | None = None, *, key: str | None = None) -> None:
        """Remove the session from lists and every recall, until ``restore`` or its next event."""
    async def restore(self, *, key: str | None = None) -> None:
        """Undo ``hide``."""
    async def erase(self, *, key: str | None = None) -> SessionErasure:
        """Destroy every event, and the memories that come from them alone. Cannot be undone."""
    async def erase_event(self, sequence: int, *, key: str | None = None) -> SessionErasure:
        """Destroy the text of one event, such as a password. Other events stay."""
    async def write_summary(self, text: str, *, upper: int, expected_epoch: int) -> Summary:
        """Write a summary of the events up to ``upper`` if the stored one has ``expected_epoch``.

        Otherwise nothing changes, and ``applied`` is False.
        """
    async def refresh_profile(self) -> None:
        """Use the current profile from the next context on.

        For sessions that last very long. The provider's prompt cache misses once.
        """
    async def events(self, limit: int | None = None, *, until: int | None = None) -> list[Event]:
        """Return the last ``limit`` events in order, or all; those before a fork included.

        ``until`` is the last sequence to return.
        """
    async def resume(self, limit: int = 20) -> list[StoredMessage]:
        """Return the last messages in their original format, ready to be sent to a model again.

        They begin with a user's message, leave out system prompts, and never separate a tool call
        from its results.
        """
    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> list[Hit]:
        """Recall from the space and from the memories of this session; see ``Space.recall``."""
    async def memories(self) -> list[Memory]:
        """List the memories that only this session recalls, the newest first."""
    async def info(self) -> SessionInfo:
        """Return the number of events, a preview, and when the session began and was last used."""
    async def summary(self) -> Summary:
        """Return the rolling summary."""
    async def recalls(self) -> list[RecallNote]:
        """List the recalls of this session, in order: for which event, when, and what was found."""
    async def export(self) -> AsyncIterator[dict[str, Any]]:
        """Yield every entry of this session as JSON values for ``Space.import_records``."""
    async def context(
        self,
        query: str | None = None,
        *,
        tokens: int | None = None,
        freeze: bool = True,
        update_tool: str | None = None,
    ) -> Context:
        """Assemble what a model needs for the next turn: profile, summary, memories, history.

        ``query`` is what to recall for, by default the user's last message. ``tokens`` is the
        budget, by default the setting ``context_tokens`` (4000). Hits below ``Space.floor`` are
        left out. ``update_tool`` is the name of the model's tool to change a memory, if it has one:
        the profile mentions it.

        The first context of a session stores which profile it shows. Every later context shows the
        same profile, byte for byte, until ``refresh_profile``. Only if a growing history needs the
        room is the profile shortened, in a few steps. With ``freeze=False`` nothing is stored:
        a session without a stored profile shows the current one.
        """
    async def prompt_additions(
        self,
        query: str,
        *,
        limit: int | None = None,
        ranking: Ranking | RankingName | None = None,
        freeze: bool = True,
    ) -> PromptAdditions:
        """Return profile and recalled text for a prompt whose history the client sends itself.

        Events of this session are recalled only if the client no longer sends them: those that
        were missing at the start of the history given to ``Space.follow``. If the summary covers
        some of them, it is included. Of the ``limit`` best hits, those that the profile shows are
        left out, and those below the setting ``recall_floor`` if scores are calibrated. The profile
        is the same in every prompt of this session: the first call stores which one it shows. With
        ``freeze=False`` nothing is stored, as in ``context``.
        """

class ScratchpadVerbs:
    async def read(self) -> session_state.ScratchpadState:
        """Return the items, and when they were written."""
    async def write(self, items: Iterable[str]) -> session_state.ScratchpadState:
        """Replace the items: at most 32 of 240 characters, together 8 KiB."""
    async def clear(self) -> bool:
        """Empty the scratchpad; return False when it was empty."""
