from __future__ import annotations

from reverie.recall.recall import _sort_by_score


def test_passages_with_equal_scores_are_sorted_by_position_across_owners() -> None:
    """The same similarity may differ in its last digits, and numbers are those of each owner."""
    scores = {(0, 9): 0.5, (1, 2): 0.5 + 1e-9, (1, 3): 0.7, (0, 1): 0.5 - 1e-9}
    positions = {(0, 9): (4, 0), (1, 2): (8, 0), (1, 3): (1, 0), (0, 1): (8, 1)}
    assert list(_sort_by_score(scores, positions)) == [(1, 3), (0, 1), (1, 2), (0, 9)]
