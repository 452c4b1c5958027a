"""What a fresh process costs: importing, its first recall, the command line, and its memory."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measuring import Row, Sample, process, snippet, timed
from bench.running import Bench
from bench.subjects import SPACE, Plan, Subject, copied
from bench.texts import COMMON, Writer

WARM = 3
"""What the first recall of a command may cost: starting, the embedder, so many warm recalls."""
EMBEDDER = ("tokenizers", "safetensors")
"""What the embedder reads its files with."""

OPENED = (
    "import reverie, sys; "
    "s = reverie.open(sys.argv[1], settings=reverie.Settings(), embedder='local'); "
)
RESIDENT = (
    "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')][0])"
    if Path("/proc/self/status").exists()
    else "print(0)"
)
RECALLED = OPENED + f"s.space({SPACE!r}).recall({' '.join(COMMON.split()[:6])!r}); "
EMBEDDED = (
    "import reverie; from reverie.embed.local import LocalEmbedder; "
    "LocalEmbedder().embed_query('anything at all')"
)
HELP = (
    "import sys; sys.argv = ['reverie', '--help']; from reverie.cli import main; sys.exit(main())"
)
LOADED = """
import sys
from reverie.cli import app
try:
    app.main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print("loaded", *(name for name in ("numpy", "tokenizers", "safetensors") if name in sys.modules))
"""


def fresh_processes(bench: Bench, plan: Plan, writer: Writer, subjects: Sequence[Subject]) -> None:
    paths = {subject.name: copied(subject.path, "fresh") for subject in subjects}
    _starts(bench, plan)
    _first_recalls(bench, plan, paths)
    _commands(bench, plan, writer, subjects, paths)
    for path in paths.values():
        path.unlink()


def _starts(bench: Bench, plan: Plan) -> None:
    snippet(HELP)  # what is not compiled yet is compiled here
    for _ in bench.steps("starting", plan.starts):
        bare, imported = snippet("pass")[0], snippet("import reverie")[0]
        bench.meter.take("import", Sample(max(imported - bare, 0)))
        bench.meter.take("help", Sample(snippet(HELP)[0]))
    bench.meter.row("start", "import reverie", "import", most=0.15)
    bench.meter.row("start", "reverie --help", "help", most=0.4)


def _first_recalls(bench: Bench, plan: Plan, paths: Mapping[str, Path]) -> None:
    """The library's first recall, less a process that only opens; and what each then holds."""
    resident: dict[str, list[float]] = {}
    for _ in bench.steps("fresh processes", plan.starts):
        for name, path in paths.items():
            empty, small = snippet(OPENED + RESIDENT, str(path))
            full, large = snippet(RECALLED + RESIDENT, str(path))
            bench.meter.take(f"first {name}", Sample(max(full - empty, 0)))
            resident.setdefault("open", []).append(float(small))
            resident.setdefault(f"a recall at {name}", []).append(float(large))
    for name in paths:
        what = f"recall at {name}, less an open"
        bench.meter.row("first recall of a process", what, f"first {name}")
    for name, kilobytes in resident.items():
        value = statistics.median(kilobytes) * 1024
        bench.meter.rows.append(Row("memory (RSS)", f"after {name}", "B", value))


def _commands(
    bench: Bench,
    plan: Plan,
    writer: Writer,
    subjects: Sequence[Subject],
    paths: Mapping[str, Path],
) -> None:
    """``reverie recall`` as a command, beside what it cannot do without."""
    for subject in subjects:
        subject.space.recall("anything at all")
    for _ in bench.steps("commands", plan.starts):
        imported, embedded = snippet("import reverie")[0], snippet(EMBEDDED)[0]
        bench.meter.take("version", Sample(process("-m", "reverie", "--version")[0]))
        bench.meter.take("embedder", Sample(max(embedded - imported, 0)))
        for subject in subjects:
            queries, name = writer.queries(subject.texts, 3), subject.name
            took = {f"warm {name}": timed(subject.space.recall, queries)}
            for mode in ("hybrid", "keyword"):
                used, _ = process("-m", "reverie", *_recall(paths[name], queries[0], mode))
                took[f"command {mode} {name}"] = Sample(used)
            bench.meter.take_all(took)
    bench.meter.row("start", "reverie --version", "version")
    bench.meter.row("start", "loading the embedder", "embedder")
    for subject in subjects:
        name = subject.name
        parts = {"version": 1.0, "embedder": 1.0, f"warm {name}": WARM}
        limit = bench.meter.combine(f"command limit {name}", parts)
        most = 1.0 if subject is subjects[-1] else None
        against = f"start + embedder + {WARM} × warm recall"
        what, ours = f"reverie recall at {name}", f"command hybrid {name}"
        bench.meter.row("first recall of a process", what, ours, limit, against, most)
    for subject in subjects:
        what, ours = f"reverie recall --mode keyword at {subject.name}", "command keyword"
        bench.meter.row("first recall of a process", what, f"{ours} {subject.name}")
    bench.meter.rows.append(_loaded(paths[subjects[-1].name]))


def _recall(path: Path, query: str, mode: str) -> tuple[str, ...]:
    where = ("--url", str(path), "--space", SPACE)
    return ("recall", query, "--mode", mode, *where, "--json")


def _loaded(path: Path) -> Row:
    """That a keyword recall loads no embedder."""
    asked = _recall(path, COMMON.split()[0], "keyword")
    _, printed = snippet(LOADED, *asked)
    loaded = printed.splitlines()[-1].split()[1:]
    found = [name for name in loaded if name in EMBEDDER]
    what = "modules of the embedder in --mode keyword"
    note = f"loaded: {', '.join(loaded)}" if loaded else "nor numpy"
    return Row("first recall of a process", what, "", len(found), most=0, note=note)
