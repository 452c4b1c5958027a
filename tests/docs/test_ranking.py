"""The reference lists every field of Ranking with its default, and every name of a ranking."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from reverie import RANKINGS, Ranking
from reverie.cli.explain import POST_SUM_STAGES, STAGES

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")
SECTION = REFERENCE.split("## Ranking\n", 1)[1].split("\n## ", 1)[0]


def test_every_field_of_ranking_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", SECTION, re.MULTILINE)
    assert rows == [(field.name, str(field.default)) for field in fields(Ranking)]


def test_every_name_of_a_ranking_is_documented() -> None:
    for name in RANKINGS:
        assert f"`{name}`" in SECTION
        row = re.search(r"^\| `ranking` .*$", REFERENCE, re.MULTILINE)
        assert row is not None and f"`{name}`" in row.group()


def test_every_part_of_a_score_is_documented() -> None:
    for part in (*(stage.part for stage in STAGES), *POST_SUM_STAGES, "collapsed", "degraded"):
        assert f"`{part}`" in SECTION
