"""recall --ranking and --explain, and the reranker in doctor."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from reverie import RANKINGS
from reverie.cli import explain
from reverie.cli.explain import BAR_WIDTH, STAGES, print_explained
from reverie.model import Event, Hit
from tests.cli.conftest import CommandLine
from tests.embed.tiny_cross_encoder import save_model, save_tokenizer

EVERY = dict.fromkeys((stage.part for stage in STAGES), 0.1)
MAY = 1_778_234_400_000  # 2026-05-08 10:00


def fact(id: str = "Ab3dE6gH", text: str = "Alec is my boss", /, **parts: float | None) -> Hit:
    score = sum(value for value in parts.values() if isinstance(value, float))
    return Hit("fact", id, text, score, parts=parts)


def event_hit(text: str, role: str = "user", name: str | None = None, **parts: float) -> Hit:
    message: Mapping[str, object] = {"role": role} | ({"name": name} if name else {})
    event = Event("chat", 1, role, text, message, MAY)
    return Hit("event", "chat:1", text, sum(parts.values()), None, event, parts)


@pytest.fixture
def drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(capsys, monkeypatch)


class Drawn:
    """What is printed of hits in a terminal of some width."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._environment = monkeypatch

    def __call__(self, *hits: Hit, query: str = "boss", columns: int = 80) -> list[str]:
        self._environment.setenv("COLUMNS", str(columns))
        print_explained(hits, query)
        return self._capsys.readouterr().out.splitlines()


# -- the drawing ----------------------------------------------------------------------------------


def test_score_bars_of_all_hits_share_one_scale(drawn: Drawn) -> None:
    lines = drawn(
        fact(keyword_part=0.4, vector_part=0.2, speaker=0.0, session=0.0001, collapsed=None),
        event_hit("He is nice", "assistant", vector_part=0.1, neighbours=0.2),
    )
    assert lines == [
        "0.600 Ab3dE6gH Alec is my boss",
        "      ████████████▓▓▓▓▓▓  █ .400  ▓ .200",
        "0.300 chat:1   He is nice",
        "      assistant, 2026-05-08 10:00 UTC",
        "      ▓▓▓▒▒▒▒▒▒                   ▓ .100  ▒ .200",
        "",
        "█ keyword  ▓ vector  ▒ neighbours  (full: 0.600)",
    ]


@pytest.mark.parametrize("columns", [20, 60, 70, 80, 100])
def test_explained_hit_fits_every_terminal_width(columns: int, drawn: Drawn) -> None:
    lines = drawn(fact("Ab3dE6gH", "a long fact " * 20, **EVERY), columns=columns)
    assert max(map(len, lines)) <= max(columns, 60)
    assert lines[0].startswith("0.700 Ab3dE6gH a long fact") and lines[0].endswith("…")
    shown = "\n".join(lines)
    for stage in STAGES:
        assert f"{stage.block} .100" in shown and f"{stage.block} {stage.name}" in shown
    numbers = [line for line in lines if " .100" in line]
    assert len(numbers) == (1 if columns >= 80 else 2)
    assert all(line[6 + BAR_WIDTH + 2] in "█▓▒▄▀░▐" for line in numbers)


def test_score_bar_length_equals_the_sum_of_its_parts() -> None:
    parts = [(0.05, STAGES[0]), (0.0, STAGES[1]), (0.05, STAGES[2]), (-1.0, STAGES[3])]
    for full in (0.1, 0.13, 1.0, 7.0, 0.0):
        bar = explain._bar(parts, full).plain
        assert len(bar) == BAR_WIDTH
        assert len(bar.rstrip()) == (round(0.1 / full * BAR_WIDTH) if full else 0)
        assert re.fullmatch("█*▒* *", bar)


def test_small_scores_are_printed_with_more_digits(drawn: Drawn) -> None:
    lines = drawn(fact(keyword_part=1 / 61, vector_part=1 / 62), fact(vector_part=1 / 63))
    assert lines[0].startswith("0.03252 Ab3dE6gH")
    assert lines[1].endswith("█ .01639  ▓ .01613") and "(full: 0.03252)" in lines[-1]


def test_scores_below_zero_and_above_one_are_drawn(drawn: Drawn) -> None:
    lines = drawn(fact(vector_part=1.25), fact(vector_part=-0.013), fact(vector_part=0.0))
    assert lines == [
        " 1.250 Ab3dE6gH Alec is my boss",
        "       ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  ▓ 1.250",
        "-0.013 Ab3dE6gH Alec is my boss",
        "                           ▓ -.013",
        " 0.000 Ab3dE6gH Alec is my boss",
        "",
        "▓ vector  (full: 1.250)",
    ]


def test_hit_without_additive_parts_has_no_bar(drawn: Drawn) -> None:
    assert drawn(fact()) == ["0.00000 Ab3dE6gH Alec is my boss", ""]


def test_rerank_recency_and_diversity_are_drawn_after_the_sum(drawn: Drawn) -> None:
    hit = Hit(
        *("fact", "Ab3dE6gH", "Alec is my boss", 0.5),
        parts={"vector_part": 0.25, "rerank": 0.812, "spread": 1.0, "recency": 0.004},
    )
    assert drawn(hit)[1:] == [
        "      ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  ▓  .250",
        "      ━━━━━━━━━           rerank  .812  spread 1.000  recency  .004",
        "",
        "▓ vector  (full: 0.250)",
        "━ score after that  (full: 1)",
    ]
    assert max(map(len, drawn(hit, columns=60))) <= 60


def test_number_of_near_duplicates_of_a_hit_is_shown(drawn: Drawn) -> None:
    lines = drawn(
        Hit("fact", "Ab3dE6gH", "one", 0.5, parts={"keyword_part": 0.5}, duplicates=("a",)),
        replace(event_hit("two", keyword_part=0.4), duplicates=("a", "b")),
    )
    assert lines[1] == "      1 more says the same"
    assert lines[4] == "      user, 2026-05-08 10:00 UTC, 2 more say the same"


def test_wide_characters_and_long_ids_keep_the_columns_aligned(drawn: Drawn) -> None:
    hits = (fact("散歩:1", keyword_part=0.5), fact("x" * 90, keyword_part=0.5), fact(**EVERY))
    wide, _, long, below, _, usual, *_ = drawn(*hits)
    # A long one has a line of its own.
    assert long == f"0.500 {'x' * 73}…" and below == "      Alec is my boss"
    for line in (wide, usual):
        assert line.endswith(" Alec is my boss")
        assert cell_len(line.removesuffix("Alec is my boss")) == 31


def test_explained_hit_cannot_send_terminal_control_sequences(drawn: Drawn) -> None:
    shown = "\n".join(drawn(fact("[b]x\x1b[2J", "\x1b[31m[bold]red\u202e:smile:", **EVERY)))
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "[bold]red" in shown and ":smile:" in shown


def test_colours_are_used_only_where_they_are_wanted(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[36m█" in "\n".join(drawn(fact(**EVERY)))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[3\d", "\n".join(drawn(fact(**EVERY))))


def test_explain_bars_use_ascii_on_a_terminal_without_unicode(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("Alec is my boss")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    done = reverie.real("recall", "boss", "--explain")
    assert done.stderr == "" and done.stdout.isascii()
    assert re.search(r"^ {6}#{5,}=+ +# \.\d{3}  = \.\d{3}$", done.stdout, re.MULTILINE)
    assert "# keyword  = vector" in done.stdout
    signs = [stage.sign for stage in STAGES]
    assert len(set(signs)) == len(signs) and "".join(signs).isascii()


# -- what the query was read as -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "hit", "line"),
    [
        ("what did I say?", event_hit("x", speaker=0.1), "speaker user"),
        ("what did you say?", event_hit("x", "assistant", speaker=0.1), "speaker assistant"),
        ("what did Caro say?", event_hit("x", name="Caro", speaker=0.1), "speaker Caro"),
        ("what did I tell Caro?", event_hit("x", "assistant", "Caro", speaker=0.1), "speaker Caro"),
        ("on 8 May 2026", event_hit("x", period=0.1), "date 8 May 2026"),
        ("in 2026-05", fact(period=0.1), "date May 2026"),
        ("in December", fact(period=0.1), "date December"),
        ("my plans in 2026", event_hit("x", speaker=0.1, period=0.2), "speaker user, date 2026"),
        ("what did I say?", event_hit("x", speaker=0.0), None),
        ("what did I say?", fact(speaker=0.1), None),
        ("in May", fact(period=0.0), None),
    ],
)
def test_explanation_shows_what_was_read_from_the_query(
    query: str, hit: Hit, line: str | None, drawn: Drawn
) -> None:
    read = [shown for shown in drawn(hit, query=query) if shown.startswith("Read from")]
    assert read == ([] if line is None else [f"Read from the query: {line}"])


def test_explanation_names_each_speaker_once(drawn: Drawn) -> None:
    hits = [event_hit("x", name=name, speaker=0.1) for name in ("Caro", "Mel", "Caro")]
    assert drawn(*hits, query="Caro and Mel")[-1] == "Read from the query: speaker Caro, Mel"


@pytest.mark.parametrize(
    ("degraded", "lines"),
    [
        ("no; embedder", ["Vectors took no part: no; embedder"]),
        (
            "no reranker is configured",
            ["The reranker took no part: no reranker is configured"],
        ),
        (
            "timed out; no reranker is configured",
            [
                "Vectors took no part: timed out",
                "The reranker took no part: no reranker is configured",
            ],
        ),
    ],
)
def test_explanation_names_the_evidence_that_was_unavailable(
    degraded: str, lines: list[str], drawn: Drawn
) -> None:
    hit = Hit("fact", "Ab3dE6gH", "x", 0.5, parts={"keyword_part": 0.5, "degraded": degraded})
    assert drawn(hit)[4:] == lines


# -- the command ----------------------------------------------------------------------------------


def test_recall_accepts_a_ranking_by_name(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("Alec is my boss")
    reverie.remember("Alec is my boss!")

    def parts(*arguments: str) -> list[dict[str, float]]:
        hits = reverie.json("recall", "Alec boss", "--explain", *arguments)["hits"]
        return [hit["parts"] for hit in hits]

    (usual,) = parts()
    assert usual["collapsed"] == 1
    assert parts("--ranking", "default") == [usual]
    for name, ranking in RANKINGS.items():
        found = parts("--ranking", name)
        assert len(found) == (1 if ranking.collapse else 2)
        assert ("neighbours" in found[0]) == (ranking.fusion == "evidence")
        assert ("no reranker" in str(found[0].get("degraded"))) == ranking.rerank
    monkeypatch.setenv("REVERIE_RANKING", "rrf")
    assert parts() == parts("--ranking", "rrf") != parts("--ranking", "weighted")
    assert "'weighted'" in reverie.error("recall", "x", "--ranking", "best", code=2)


def test_ranking_option_completes_ranking_names(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_REVERIE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "reverie recall x --ranking ")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert reverie.real().stdout.splitlines() == [f"plain,{name}" for name in RANKINGS]


def test_explanation_draws_neighbours_speakers_and_dates(reverie: CommandLine) -> None:
    turns = [
        {"role": "user", "name": "Caroline", "content": "Which city should we visit in May?"},
        {"role": "assistant", "content": "Lisbon: it is warm by then."},
    ]
    reverie.run("sessions", "follow", "-", "--session", "trip", given=json.dumps(turns))
    shown = reverie.text("recall", "Which city did Caroline want to visit?", "--explain")
    assert "▒ neighbours" in shown and "▄ speaker" in shown and "▀" not in shown
    assert "Read from the query: speaker Caroline" in shown


# -- the reranker ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "tiny"
    save_tokenizer(made)
    save_model(made / "model.onnx")
    monkeypatch.setenv("REVERIE_RERANKER", str(made))
    return made


def test_explanation_draws_the_score_of_the_reranker(reverie: CommandLine, folder: Path) -> None:
    milk = reverie.remember("anna likes milk")
    tea = reverie.remember("ben likes green tea")
    recall = ("recall", "who likes green tea", "--ranking", "diverse", "--explain")
    hits = reverie.json(*recall)["hits"]
    assert [hit["id"] for hit in hits] == [tea, milk]
    shown = reverie.text(*recall)
    assert re.search(r"━+ +rerank +\.\d{3}  spread 1\.000  recency 1\.000\n", shown)
    assert "took no part" not in shown


def test_explanation_says_that_there_is_no_reranker(reverie: CommandLine) -> None:
    reverie.remember("ben likes green tea")
    recall = ("recall", "tea", "--ranking", "diverse")
    assert "The reranker took no part" in reverie.text(*recall, "--explain")
    assert "took no part" not in reverie.text(*recall)


def test_doctor_names_the_reranker(reverie: CommandLine, folder: Path) -> None:
    reverie.remember("one")
    found = reverie.json("doctor")
    assert re.fullmatch(r"onnx:tiny:[0-9a-f]{8}", found["reranker"]) and found["ok"]
    assert re.search(r"^reranker +onnx:tiny:", reverie.text("doctor"), re.MULTILINE)


def test_doctor_reports_what_is_wrong_with_the_reranker(
    reverie: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    (folder / "model.onnx").write_bytes(b"no model")
    found = reverie.json("doctor", code=1)
    (problem,) = found["problems"]
    assert problem.startswith("the reranker cannot be used: ") and "model.onnx" in problem
    assert found["reranker"] == str(folder) and found["embedder"]
    (folder / "model.onnx").unlink()
    assert "holds no cross-encoder" in reverie.text("doctor", code=1).replace("\n", " ")
    monkeypatch.setattr("reverie.embed.cross_encoder.find_spec", lambda name: None)
    (problem,) = reverie.json("doctor", code=1)["problems"]
    assert "pip install 'reverie[rerank]'" in problem and "\n" not in problem


def test_doctor_of_a_damaged_store_still_checks_the_reranker(
    reverie: CommandLine, folder: Path
) -> None:
    reverie.store.write_text("no database " * 100, encoding="utf-8")
    found = reverie.json("doctor", code=1)
    assert len(found["problems"]) == 1 and found["reranker"].startswith("onnx:tiny:")


def test_doctor_without_a_reranker_names_none(reverie: CommandLine) -> None:
    reverie.remember("one")
    assert "reranker" not in reverie.json("doctor")
