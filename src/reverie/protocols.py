"""The protocols of pluggable parts: the clock, the id source, the models, the database engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    Matrix = NDArray[np.float32]
    Numbers = NDArray[np.int64]

Row = tuple[Any, ...]
Answer = TypeVar("Answer")


class Clock(Protocol):
    """Tells the time to a store."""

    def now(self) -> int:
        """Return milliseconds UTC. Nothing is ordered by them, so they may step backwards."""
        ...


class Ids(Protocol):
    """Makes the ids of new memories and versions."""

    def memory(self) -> str:
        """Return a new memory id: eight characters of A-Z, a-z, 0-9."""
        ...

    def uuid(self) -> str:
        """Return a new UUID."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors of unit length, or a zero vector for text without content."""

    @property
    def identity(self) -> str:
        """The name of the model: ``provider:model[:hash8(base_url)]``.

        Embedders with equal identities must make interchangeable vectors.
        """
        ...

    @property
    def remote(self) -> bool:
        """True when a call may wait on a network: a job then makes the vectors after the write."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return one float32 row for each text."""
        ...

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        """Return one float32 vector for a query; ``weights`` say how much each word counts."""
        ...


class Reranker(Protocol):
    """Reads a query and a text together and scores how well the text answers the query."""

    @property
    def identity(self) -> str:
        """The name of the model."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return a number in (0, 1) for each text, on a scale that is the same for every query."""
        ...


class ChatModel(Protocol):
    """A model that gives structured answers. Reverie treats them as proposals, never as facts."""

    @property
    def name(self) -> str:
        """``provider:model``, the source of facts learned with it."""
        ...

    def ask(
        self,
        instructions: str,
        question: str,
        shape: type[Answer],
        check: Callable[[Answer], str | None] | None = None,
        before_call: Callable[[], None] | None = None,
    ) -> Answer:
        """Ask one question and return the answer as an instance of ``shape``, a pydantic model.

        ``check`` returns what is wrong with an answer, or None. The model gets that text and may
        try again, a bounded number of times. ``before_call`` is called before each request to the
        service, in any thread; an exception it raises ends the question. Raises ModelFailed when no
        answer passes, the service fails, or it takes too long.
        """
        ...


class Owner(NamedTuple):
    """The owner of rows: a space, or a user in a space, as the engine numbers them.

    The key of every row that belongs to an owner starts with these two numbers.
    """

    space: int
    number: int


class Transaction(Protocol):
    """One consistent snapshot of the store; inside ``Engine.write`` it can also change it.

    ``restrict_to_names``, ``enter`` and ``enter_all_owners`` decide which rows it can see.
    """

    writing: bool
    """Whether the transaction may change rows."""
    kept: dict[object, Any]
    """A cache for values that cannot change before the transaction ends."""
    skip_locked: str
    """SQL to append to a SELECT from a table with the alias ``j``: lock the rows, and skip those
    that other transactions have locked."""
    full_scan_hint: str
    """SQL to append to the name of a table so that all of its rows are scanned, past a damaged
    index. Empty where that makes no difference."""
    damaged: set[tuple[int, int]]
    """Space and position of every damaged log entry that was left out of an answer."""

    def restrict_to_names(self, space: str, user: str) -> None:
        """Allow only looking up the numbers of this space and user; hide the rows of all owners."""
        ...

    def enter(self, owner: Owner, *, alone: bool = True) -> None:
        """Make the rows of this owner, and those that its space shares, the only visible ones.

        With ``alone`` a writing transaction waits until no other writes in the space.
        """
        ...

    def across_owners(self) -> AbstractContextManager[None]:
        """Make the log of the whole space visible, for checks of uniqueness and order."""
        ...

    def enter_all_owners(self) -> None:
        """Make the rows of every owner visible, for calls of the operator.

        A writing transaction waits until no other writes in the store.
        """
        ...

    def new_space_number(self) -> int:
        """Return a number that no space has."""
        ...

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a query and return all of its rows."""
        ...

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """Run a query and return its first row, or None."""
        ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement and return the number of rows it changed."""
        ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        ...

    def put_vectors(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        """Store the vectors of consecutive passages, the first of which is ``first``."""
        ...

    def clear_vectors(self, owner: Owner, first: int, count: int) -> None:
        """Destroy the vectors of these passages in every generation."""
        ...

    def drop_vectors(self, keep: int) -> None:
        """Destroy the vectors of all owners except those of the generation ``keep``."""
        ...

    def vector_numbers(self, owner: Owner, generation: int) -> list[int]:
        """Return the numbers of the passages that have a vector."""
        ...

    def nearest(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None = None,
        without: Sequence[int] = (),
        centred: bool = True,
    ) -> list[tuple[int, float]]:
        """Return number and similarity of the passages most similar to the query, best first.

        Only passages in ``allowed`` are considered when it is given, and none in ``without``.
        Similarity is the cosine, after subtracting the owner's mean vector if ``centred``.
        """
        ...

    def similar(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        numbers: Numbers,
        centred: bool = True,
    ) -> NDArray[np.float64]:
        """Return the similarity of each passage to the query; -inf for one without a vector."""
        ...

    def vectors(self, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        """Return the vectors of these passages, a row of zeros for one that has none."""
        ...


class Engine(Protocol):
    """A database that stores the log, the index and the agenda."""

    url: str
    read_only: bool
    supports_vector_search: bool
    """Whether the database can compare vectors; if not, they are stored and not searched."""
    damaged: set[tuple[int, int]]
    """Space and position of every damaged log entry left out of an answer since the store was
    opened."""
    damage_check: Callable[[], str | None] | None
    """Called when a transaction fails in a way that damage may explain; returns what is damaged."""

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed, or a newer Reverie upgraded the store; nothing more is
        then written until the store is reopened."""
        ...

    def read(self, *, allow_replica: bool = False) -> AbstractContextManager[Transaction]:
        """Open a consistent snapshot; inside another transaction of this thread it joins that one.

        With ``allow_replica`` a replica may answer, once it has everything this process wrote.
        """
        ...

    def write(self, *, wait: bool = True) -> AbstractContextManager[Transaction]:
        """Open a write transaction: committed and synced when the block ends, rolled back when it
        raises.

        Without ``wait`` it raises StoreBusy at once while another writer is active.
        """
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep every other writer out until the block ends."""
        ...

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Overwrite deleted bytes on disk, and check that the ``erased`` texts are gone from it.

        Returns False while another reader still holds old pages.
        """
        ...

    def backup(self, target: Path) -> None:
        """Write a copy of the whole store to ``target`` while the store stays in use."""
        ...

    def restore(self, source: Path) -> None:
        """Replace everything in the store by a copy that ``backup`` made, in one step."""
        ...

    def backup_before_rebuild(self) -> None:
        """Copy the store before its index is rebuilt by newer rules, or report how to copy it."""
        ...

    def check(self) -> list[str]:
        """Return what the database's own integrity check finds wrong with its files."""
        ...

    def drop_caches(self) -> None:
        """Drop cached pages, since a read that failed may have left wrong ones."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the versions and the paths or addresses in use, to show to a person."""
        ...

    def vacuum(self) -> None:
        """Give unused pages back to the file system."""
        ...

    def close(self) -> None:
        """Close every connection and file."""
        ...


Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is to do."""

ReportLine = Callable[[str], None]
"""Called with one line for a person, such as what could not be read."""

UpgradeProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is to do."""
