"""Properties: how many examples each is tried with."""

from __future__ import annotations

import os

from tests.tiers import PROVE

_ASKED = os.environ.get("REVERIE_PROPERTY_EXAMPLES")
EXAMPLES = int(_ASKED or (30 if PROVE else 8))


def examples(engine: object) -> int:
    """As many as were asked for; else fewer where each step is a way to a server and back."""
    return EXAMPLES if _ASKED or engine == "sqlite" else EXAMPLES // 3
