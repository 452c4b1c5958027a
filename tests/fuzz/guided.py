"""Coverage-guided fuzzing of one target in its own process: ``guided TARGET RUNS SEED FOLDER``.

The folder holds the corpus; what breaks a promise is written beside it as ``crash-…``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["reverie"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS

MAX_LENGTH = 4_096
# An input on which a parser spends longer than this has found something.
MAX_SECONDS = 20


def main() -> None:
    name, runs, seed, folder = sys.argv[1:]
    corpus = Path(folder) / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, raw in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(raw)
    options = [
        f"-runs={runs}",
        # Zero would mean: any.
        f"-seed={int(seed) + 1}",
        f"-max_len={MAX_LENGTH}",
        f"-timeout={MAX_SECONDS}",
        f"-artifact_prefix={folder}/",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
