"""What the outside things must do: the clock, the id source, the models and the engine."""

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
    def now(self) -> int:
        """Milliseconds UTC. May repeat and may step backwards; nothing orders by it."""
        ...


class Ids(Protocol):
    def memory(self) -> str:
        """Eight characters of A-Z, a-z, 0-9."""
        ...

    def uuid(self) -> str:
        """A fresh UUID."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns text into vectors: unit length, or zero for text that says nothing."""

    @property
    def identity(self) -> str:
        """``provider:model[:hash8(base_url)]``. Equal identities give interchangeable vectors."""
        ...

    @property
    def remote(self) -> bool:
        """True when a call may wait on a network: then vectors are filled in by a job."""
        ...

    def embed(self, texts: Sequence[str]) -> Matrix:
        """One float32 row for each text."""
        ...

    def embed_query(self, text: str, weights: Mapping[str, float] | None = None) -> Vector:
        """One float32 vector for a query; ``weights`` say how much each of its words counts."""
        ...


class Reranker(Protocol):
    """Reads a query and a text together and says how well the one answers the other."""

    @property
    def identity(self) -> str:
        """What model it is."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """One number in (0, 1) for each text, on a scale that is the same for every query."""
        ...


class ChatModel(Protocol):
    """A model that answers in a given shape. Its answers are proposals, never facts."""

    @property
    def name(self) -> str:
        """``provider:model``, as memories learned with it say."""
        ...

    def ask(
        self,
        instructions: str,
        question: str,
        shape: type[Answer],
        check: Callable[[Answer], str | None] | None = None,
    ) -> Answer:
        """One answer of this shape, a pydantic model.

        ``check`` says what is wrong with an answer; the model is told, a bounded number of times.
        ModelFailed when no answer passes, the service fails, or it takes too long.
        """
        ...


class Owner(NamedTuple):
    """The wall, as the engine knows it: every row of an owner starts with these two numbers."""

    space: int
    number: int


class Transaction(Protocol):
    """One snapshot of the store; inside ``Engine.write`` also the one writer."""

    writing: bool
    kept: dict[object, Any]
    """What was read in this transaction and stays as it is until its end."""
    skip_locked: str
    """Behind a SELECT of rows ``j``: take them, and leave out those that others have taken."""
    full_scan_hint: str
    """Behind the name of a table: look through all of its rows. Empty where that shows no more."""
    damaged: set[tuple[int, int]]
    """Space and position of every damaged entry that was left out of an answer."""

    def restrict_to_names(self, space: str, user: str) -> None:
        """Only these names can be looked up from here on, and no rows of any owner be seen."""
        ...

    def enter(self, owner: Owner, *, alone: bool = True) -> None:
        """Only rows of this owner, and those its space shares, are there from here on.

        A writer waits here until it is the only one in the space, unless it need not be alone.
        """
        ...

    def across_owners(self) -> AbstractContextManager[None]:
        """Meanwhile the log of the whole space is there: for what is unique or ordered in it."""
        ...

    def enter_all_owners(self) -> None:
        """The operator's: rows of every owner are there. A writer becomes the only one of all."""
        ...

    def new_space_number(self) -> int:
        """A number that no space has."""
        ...

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row | None: ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run one statement; how many rows it changed."""
        ...

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def put_vectors(self, owner: Owner, generation: int, first: int, rows: Matrix) -> None:
        """Store the vectors of consecutive passages, the first of which is ``first``."""
        ...

    def clear_vectors(self, owner: Owner, first: int, count: int) -> None:
        """Destroy the vectors of these passages in every generation."""
        ...

    def drop_vectors(self, keep: int) -> None:
        """Destroy every generation of every owner but one: the operator's call."""
        ...

    def vector_numbers(self, owner: Owner, generation: int) -> list[int]:
        """The passages that have a vector."""
        ...

    def nearest(
        self,
        owner: Owner,
        generation: int,
        query: Vector,
        limit: int,
        allowed: Sequence[int] | None = None,
        without: Sequence[int] = (),
    ) -> list[tuple[int, float]]:
        """The passages most like the query, best first: among ``allowed``, or all but some."""
        ...

    def similar(
        self, owner: Owner, generation: int, query: Vector, numbers: Numbers
    ) -> NDArray[np.float64]:
        """How like the query each of these passages is; -inf for one without a vector."""
        ...

    def vectors(self, owner: Owner, generation: int, numbers: Numbers) -> Matrix:
        """The vectors of these passages, a row of zeros for one that has none."""
        ...


class Engine(Protocol):
    """A database that keeps the log, the index and the agenda."""

    url: str
    read_only: bool
    supports_vector_search: bool
    """Whether a recall can compare vectors here; if not, they are kept until it can."""
    damaged: set[tuple[int, int]]
    """Space and position of every damaged entry that was left out of an answer since it opened."""
    damage_check: Callable[[], str | None] | None
    """Called when a transaction fails in a way that only damage explains: what is damaged."""

    @property
    def write_failed(self) -> bool:
        """Whether a write or sync failed: nothing more is written until the store is reopened."""
        ...

    def read(self, *, allow_replica: bool = False) -> AbstractContextManager[Transaction]:
        """A consistent snapshot. Nests inside read and write alike.

        With ``allow_replica`` it may come from a replica, with all that this process wrote.
        """
        ...

    def write(self, *, wait: bool = True) -> AbstractContextManager[Transaction]:
        """The one writer: committed and synced when the block ends, undone when it raises.

        Without ``wait`` it is StoreBusy while anybody else writes.
        """
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody else writes until this ends."""
        ...

    def scrub(self, erased: Sequence[str] = ()) -> bool:
        """Make deleted bytes unreadable on disk, and look that these texts are gone from it.

        False while another reader still holds them.
        """
        ...

    def backup(self, target: Path) -> None:
        """An online copy of the whole store."""
        ...

    def restore(self, source: Path) -> None:
        """Put a copy made by backup in the place of everything here, in one step."""
        ...

    def check(self) -> list[str]:
        """What the database itself finds wrong with its files."""
        ...

    def drop_caches(self) -> None:
        """Read everything from the disk again: a read that failed may have left wrong pages."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Versions and places, for people."""
        ...

    def vacuum(self) -> None:
        """Give unused pages back to the file system."""
        ...

    def close(self) -> None: ...


Progress = Callable[[int, int], None]
