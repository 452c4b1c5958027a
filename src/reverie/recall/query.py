"""What a recall asks for. This module loads nothing heavy, so that every handle can import it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from reverie.engine.index import Filter
from reverie.model import Candidate, Mode, Ranking
from reverie.text.analyzer import MAX_QUERY_CHARS
from reverie.write.runtime import Runtime

# Longer than any secret that is recognised, such as a key in PEM format.
MAX_SECRET_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class Query:
    """The validated parameters of a recall."""

    text: str
    limit: int
    mode: Mode = "hybrid"
    filter: Filter = Filter()
    ranking: Ranking = Ranking()
    embedding: Sequence[float] | None = None
    explain: bool = False
    min_score: float | None = None
    """Hits with a lower score are left out."""
    exclude: Callable[[str | None, Candidate], bool] | None = None
    """Given the user that a candidate belongs to and the candidate: whether to leave it out."""


def redact_query(runtime: Runtime, query: Query) -> Query:
    """The query without secrets: it is recorded, and may be sent to a remote embedder."""
    # Only MAX_QUERY_CHARS are used; a secret that begins within them is still recognised whole.
    text = query.text[: MAX_QUERY_CHARS + MAX_SECRET_CHARS]
    return replace(query, text=runtime.redaction.quiet(text, "the query"))
