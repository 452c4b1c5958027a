"""Every exception that Reverie raises on purpose.

    ReverieError
    ├── InvalidInput                     the caller's value cannot be used
    ├── ConfigError                      a setting cannot be used
    ├── MissingExtra                     an optional part is not installed
    ├── NotFound                         nothing with that name or id in this scope
    ├── Conflict
    │   ├── VersionConflict              the memory changed since it was read
    │   ├── KeyConflict                  an idempotency key was used for something else
    │   ├── SubjectExists                this subject is already remembered
    │   └── SequenceConflict             the session has gone past this sequence
    ├── ContextTooSmall                  the latest user message does not fit the context
    ├── ModelFailed                      a chat model gave no usable answer
    ├── RerankFailed                     a reranker cannot be loaded, or gave no usable scores
    ├── SharedReadOnly                   the handle of a user cannot change shared memories
    ├── VaultError                       the vault's files or its git repository cannot be used
    ├── StoreError
    │   ├── StoreFull                    no space left
    │   ├── StoreReadOnly                the file cannot be written
    │   ├── StoreBusy                    another writer held the store for too long
    │   ├── StoreDamaged                 not a store, or its contents differ from what was written
    │   ├── StoreFailed                  the disk failed: repeat a read, reopen before a write
    │   ├── StoreUnavailable             the database server cannot be reached
    │   ├── StoreClosed                  the handle was closed
    │   ├── ForkedHandle                 the handle came from a parent process
    │   └── NewerSchema                  written by a newer Reverie
    └── EmbeddingError
        ├── EmbedderMissing              a vector search was asked for without an embedder
        ├── EmbeddingModelChangedError   the store's vectors come from another model
        ├── DimensionMismatchError       a vector and the store's vectors differ in length
        └── EmbeddingFailed              the embedding service gave no usable vectors

Each message is one line that says what happened and what to do next. When a write raises, it may
or may not have been stored: repeat it with the same ``key``, which never stores it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reverie.model import Memory


class ReverieError(Exception):
    """The base class of every exception that Reverie raises on purpose."""


class InvalidInput(ReverieError, ValueError):
    """The caller passed a value that cannot be stored or searched for."""


class ConfigError(ReverieError, ValueError):
    """A setting has an unknown name or a value that cannot be used."""


class MissingExtra(ReverieError, ImportError):
    """An optional part is not installed; the message holds the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"for {what} an optional part is missing: pip install 'reverie[{extra}]'")
        self.extra = extra


class NotFound(ReverieError, LookupError):
    """Nothing with that name or id exists in the scope of the handle."""


class Conflict(ReverieError):
    """The write contradicts the current state of the store; the subclasses say how."""


class VersionConflict(Conflict):
    """The memory is not at the version the caller expected."""

    def __init__(self, memory_id: str, expected: int, current: int) -> None:
        super().__init__(
            f"memory {memory_id} is at version {current}, not {expected}: "
            "read it again and repeat the change"
        )
        self.memory_id = memory_id
        self.expected = expected
        self.current = current


class KeyConflict(Conflict):
    """The idempotency key was already used for a different write."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} was already used for another write: choose a new key")
        self.key = key


class SubjectExists(Conflict):
    """A memory of the same category and subject already says something similar: ``existing``."""

    def __init__(self, existing: Memory) -> None:
        super().__init__(
            f"{existing.category} {existing.subject!r} is already remembered as {existing.id}: "
            f"revise {existing.id}, or keep both by leaving out unless_known (REST: force)"
        )
        self.existing = existing


class SequenceConflict(Conflict):
    """The sequence given for an event is not greater than the session's last one."""

    def __init__(self, session: str, given: int, last: int) -> None:
        super().__init__(
            f"session {session!r} is at sequence {last}, so {given} cannot follow: "
            "leave the sequence out, or give a greater one"
        )
        self.session = session
        self.given = given
        self.last = last


class ContextTooSmall(ReverieError, ValueError):
    """The latest user message, which is never dropped, does not fit into the context."""

    def __init__(self, needed: int, tokens: int) -> None:
        super().__init__(
            f"the latest user message takes {needed} tokens and the context has {tokens}: "
            "ask for a larger context"
        )
        self.needed = needed
        self.tokens = tokens


class ModelFailed(ReverieError):
    """A chat model did not answer, or its answer could not be used.

    ``refused``: the service refused the text of the question, and may answer another one.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class RerankFailed(ReverieError):
    """A reranker cannot be loaded, or gave no usable scores."""


class SharedReadOnly(ReverieError, PermissionError):
    """The handle of a user tried to change a shared memory, which it may only read."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"memory {memory_id} is shared by the whole space: "
            "change it through a handle without a user"
        )
        self.memory_id = memory_id


class VaultError(ReverieError):
    """The vault's files, or its git repository, cannot be used."""


class StoreError(ReverieError):
    """The store cannot be read or written; the subclasses say why."""


class StoreFull(StoreError):
    """There is no disk space left. No write that returned before was lost."""


class StoreReadOnly(StoreError):
    """The store was opened read-only, or its file or folder cannot be written."""


class StoreBusy(StoreError):
    """Another writer held the store for longer than ``busy_timeout``; the message says who."""


class StoreDamaged(StoreError):
    """The file is not a store, its pages are broken, or a row is not as it was written.

    When a log entry is damaged, ``space`` and ``position`` say which one; otherwise they are None.
    """

    def __init__(
        self, message: str, *, space: int | None = None, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.space = space
        self.position = position


class StoreFailed(StoreError):
    """The disk failed. A read can be repeated; after a failed write or sync the store accepts no
    more writes until it is opened again."""


class StoreUnavailable(StoreError):
    """The database server cannot be reached. Repeat the call later (a write with the same key)."""


class StoreClosed(StoreError):
    """The store was closed before this call."""


class ForkedHandle(StoreError):
    """The store was opened before this process was forked. Open it again in this process."""


class NewerSchema(StoreError):
    """The store was written by a newer version of Reverie than this one."""


class EmbeddingError(ReverieError):
    """Vectors cannot be made or compared; the subclasses say why."""


class EmbedderMissing(EmbeddingError):
    """A vector search was asked for, and the store has no embedder."""


class EmbeddingModelChangedError(EmbeddingError):
    """The vectors in the store were made by another model than the configured one."""

    def __init__(self, stored: str, configured: str) -> None:
        super().__init__(
            f"the vectors in this store come from {stored}, the embedder is {configured}: "
            "run 'reverie reembed' to compute them again, or configure the former embedder"
        )
        self.stored = stored
        self.configured = configured


class DimensionMismatchError(EmbeddingError):
    """A vector differs in length from those in the store."""

    def __init__(self, stored: int, given: int) -> None:
        super().__init__(
            f"the vectors in this store have {stored} dimensions, this one has {given}: "
            "run 'reverie reembed', or use the embedder the store was made with"
        )
        self.stored = stored
        self.given = given


class EmbeddingFailed(EmbeddingError):
    """The embedding service did not answer, or its answer holds no usable vectors."""
