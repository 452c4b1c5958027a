"""spaces, doctor, jobs, worker, reembed, rebuild, vacuum, and the tour."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reverie import __version__
from reverie.cli import maintenance
from reverie.cli.runtime import StopSignal, stop_on_signals
from reverie.memory import open as open_store
from reverie.model import Job
from tests.cli.conftest import CommandLine
from tests.crash.stopped_writer import stopped_writer

# The same text again would be the same memory, which has its job.
NUMBERS = itertools.count()


def remember_what_expires(reverie: CommandLine) -> None:
    """Remember something that expires at once, which leaves a job that is due."""
    with open_store(reverie.store, embedder="hashing") as store:
        store.space("default").remember("over", expires_at="2020-01-01")


def job_of(reverie: CommandLine) -> int:
    """A job that waits for a far-away day."""
    reverie.remember(f"one of {next(NUMBERS)}", "--expires-at", "2099-01-01")
    (job,) = reverie.json("jobs", "list")["jobs"]
    assert (job["kind"], job["due_at"]) == ("expire", "2099-01-01T00:00:00+00:00")
    return int(job["id"])


def test_spaces_lists_each_space_with_its_counts(reverie: CommandLine) -> None:
    reverie.remember("one", "--space", "work", "--user", "alice")
    reverie.remember("two", "--space", "home", "--note")
    assert reverie.json("spaces")["spaces"] == [
        {"name": "home", "users": [], "facts": 0, "notes": 1, "position": 1},
        {"name": "work", "users": ["alice"], "facts": 1, "notes": 0, "position": 1},
    ]
    shown = reverie.text("spaces")
    assert "home" in shown and "alice" in shown


def test_spaces_of_an_empty_store_says_that_there_are_none(reverie: CommandLine) -> None:
    reverie.store.touch()
    result = reverie.run("spaces")
    assert result.stdout == "" and "no spaces yet" in result.stderr


def test_doctor_of_a_healthy_store_reports_versions_and_no_problem(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    found = reverie.json("doctor")
    assert found["reverie"] == __version__ and found["ok"] and found["problems"] == []
    assert isinstance(found["bytes"], int) and isinstance(found["schema"], int)
    shown = reverie.text("doctor")
    # A long path is folded within its column of the table.
    assert "SQLite" in shown and str(reverie.store) in "".join(shown.split())
    assert "0 ready" in shown
    assert "No problems found." in shown
    monkeypatch.setenv("REVERIE_EMBEDDER", "local")
    assert "reverie reembed" in reverie.text("doctor", code=1)
    assert not reverie.json("doctor", code=1)["ok"]


def test_doctor_of_a_damaged_store_names_the_damage(reverie: CommandLine) -> None:
    reverie.store.write_text("no database " * 100, encoding="utf-8")
    assert "1 problem found" in reverie.text("doctor", code=1)
    assert reverie.json("doctor", code=1)["ok"] is False


def test_doctor_checks_the_configured_model(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("REVERIE_MODEL", "openai:gpt-5-mini")
    (problem,) = reverie.json("doctor", code=1)["problems"]
    assert "openai:gpt-5-mini cannot be used" in problem and "model_api_key" in problem
    assert "1 problem found" in reverie.text("doctor", code=1)
    monkeypatch.setenv("REVERIE_MODEL_API_KEY", "secret-key")
    result = reverie.run("doctor")
    assert "No problems found." in result.stdout and "secret-key" not in result.output


def test_doctor_without_a_model_imports_no_model_library(reverie: CommandLine) -> None:
    reverie.remember("one")
    script = (
        "import sys\n"
        "from reverie.cli import app\n"
        "app.main(['doctor', '--json'], standalone_mode=False)\n"
        "print(sorted({'pydantic_ai', 'pydantic'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def failing(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learn job in each of two spaces that no model will ever do."""
    for space in ("home", "work"):
        reverie.run("sessions", "append", "chat", "My boss is Bob.", "--space", space)
    monkeypatch.setenv("REVERIE_MODEL", "nobody:nothing")
    monkeypatch.setenv("REVERIE_MODEL_API_KEY", "key")
    monkeypatch.setattr("reverie.agenda.jobs._MIN_BACKOFF_MS", 600_000)


def test_worker_once_reports_failed_jobs(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(reverie, monkeypatch)
    remember_what_expires(reverie)
    output = reverie.text("worker", "--once", code=1)
    assert output == "Ran 3 jobs, 2 failed: 'reverie jobs list' shows why.\n"
    assert reverie.json("worker", "--once") == {"jobs": 0, "failed": 0}
    reverie.run("jobs", "retry", "--all")
    assert reverie.json("worker", "--once", code=1) == {"jobs": 2, "failed": 2}


def test_jobs_list_shows_failed_jobs_with_attempts_and_next_try(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(reverie, monkeypatch)
    reverie.run("worker", "--once", code=1)
    monkeypatch.setenv("COLUMNS", "80")
    shown = reverie.text("jobs", "list")
    assert len(re.findall(r"(?:home|work) +learn +retry +in \d+ min +1 +chat:1", shown)) == 2
    assert "ConfigError" in shown and "…" not in shown
    first = reverie.json("jobs", "list")["jobs"][0]
    assert (first["state"], first["attempts"]) == ("ready", 1)
    assert reverie.json("jobs", "retry", "--all", "--space", "work") == {
        "jobs": [{"space": "work", "job": 1, "state": "due"}]
    }
    shown = reverie.text("jobs", "list")
    assert re.search(r"home +learn +retry", shown)
    assert re.search(r"work +learn +ready +now", shown)
    assert reverie.text("jobs", "retry", "--all") == "Made 1 job due now.\n"
    result = reverie.run("jobs", "retry", "--all")
    assert (result.stdout, result.stderr) == ("", "No job has failed.\n")
    assert reverie.json("jobs", "retry", "--all") == {"jobs": []}
    for wrong in ((), ("1", "--all")):
        assert "give a JOB or --all" in reverie.error("jobs", "retry", *wrong, code=2)


def test_jobs_retry_without_ids_retries_every_parked_job(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(reverie, monkeypatch)
    monkeypatch.setattr("reverie.agenda.jobs.MAX_ATTEMPTS", 1)
    reverie.run("worker", "--once", code=1)
    assert len(re.findall(r"learn +parked +1 +chat:1", reverie.text("jobs", "list"))) == 2
    assert reverie.text("jobs", "retry", "--all") == "Made 2 jobs due now.\n"
    assert reverie.text("jobs", "list").count(" ready ") == 2


@pytest.mark.parametrize(
    ("wait", "shown"),
    [
        (-5, "now"),
        (0, "now"),
        (1, "in 1 s"),
        (59_999, "in 60 s"),
        (60_000, "in 1 min"),
        (7_200_000, "in 2 h"),
        (86_400_000, "1970-01-02 00:00 UTC"),
    ],
)
def test_jobs_list_shows_when_a_job_is_due(wait: int, shown: str) -> None:
    job = Job("work", 1, "learn", "ready", wait, 0, None, {})
    assert maintenance._due(job, 0) == shown


def test_jobs_list_retry_and_drop_one_job(reverie: CommandLine) -> None:
    job = str(job_of(reverie))
    shown = reverie.text("jobs", "list")
    assert re.search(r"expire +ready +2099-01-01 00:00 UTC +0 +\w{8}\b", shown)
    assert "due now" in reverie.text("jobs", "retry", job)
    assert reverie.json("jobs", "retry", job)["state"] == "due"
    assert "dropped" in reverie.text("jobs", "drop", job)
    assert "There are no jobs." in reverie.run("jobs", "list").stderr
    assert reverie.json("jobs", "list") == {"jobs": []}
    reverie.error("jobs", "drop", job, code=3)
    reverie.error("jobs", "retry", job, code=3)
    again = str(job_of(reverie))
    assert reverie.json("jobs", "drop", again) == {
        "space": "default",
        "job": int(again),
        "state": "dropped",
    }
    reverie.error("jobs", "drop", "first", code=2)


def test_worker_once_runs_the_jobs_that_are_due(reverie: CommandLine) -> None:
    remember_what_expires(reverie)
    assert reverie.text("worker", "--once") == "Ran 1 job.\n"
    assert reverie.json("worker", "--once") == {"jobs": 0, "failed": 0}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_runs_until_a_signal(
    reverie: CommandLine, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_what_expires(reverie)
    monkeypatch.setenv("REVERIE_LOG_LEVEL", "info")
    flags = ["--json"] if number == signal.SIGINT else []
    with subprocess.Popen(
        [sys.executable, "-m", "reverie", "worker", "--poll", "0.05", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        assert "working on" in process.stderr.readline()
        while reverie.json("jobs", "list")["jobs"]:
            pass
        process.send_signal(number)
        output = process.stdout.read()
        assert process.wait(60) == 0
    if flags:
        assert json.loads(output) == {"stopped": "SIGINT"}
    else:
        assert output == "Stopped by SIGTERM.\n"


def test_stop_signal_wait_ends_at_its_timeout_or_the_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = StopSignal()
    assert stop.wait(0.01) is False
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60) is True
    assert signal.getsignal(signal.SIGINT) is before


def test_reembed_fills_vectors_of_the_new_embedder(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    monkeypatch.setenv("REVERIE_EMBEDDER", "local")
    assert reverie.text("reembed") == "Computed 1 vector again.\n"
    assert reverie.json("recall", "one")["hits"]
    assert reverie.json("reembed") == {"passages": 1}
    monkeypatch.setenv("REVERIE_EMBEDDER", "none")
    reverie.error("reembed", code=2)


def test_rebuild_reports_how_many_memories_it_indexed(reverie: CommandLine) -> None:
    reverie.remember("one")
    assert reverie.text("rebuild") == "Indexed 1 memory again.\n"
    assert reverie.json("rebuild") == {"memories": 1}


def test_vacuum_reports_bytes_before_and_after(reverie: CommandLine) -> None:
    reverie.remember("one")
    answer = reverie.json("vacuum")
    assert answer["bytes_before"] >= answer["bytes_after"] > 0
    assert "kB" in reverie.text("vacuum")


def test_progress_bar_is_shown_only_on_a_terminal(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys as real

    reverie.remember("one")
    assert reverie.run("rebuild").stderr == ""

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        @property
        def stderr(self) -> object:
            class Screen:
                def isatty(self) -> bool:
                    return True

            return Screen()

    from reverie.cli import output

    monkeypatch.setattr(output, "sys", Watched())
    assert reverie.text("rebuild") == "Indexed 1 memory again.\n"
    assert reverie.text("import", "-", given="two\n").startswith("Added 1")


def test_tour_json_lists_every_step_with_its_result(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    steps = reverie.json("tour")["steps"]
    by_call = {step["call"].partition("(")[0]: step for step in steps}
    recalls = [step for step in steps if step["call"].startswith("ana.recall")]
    meaning, now, position, moment, gone, back = recalls
    first = meaning["result"][0]
    assert first["text"].startswith("We chose PostgreSQL") and first["parts"]["keyword"] == 0
    assert now["result"][0]["text"] == "Seabrook is my boss now"
    for then in (position, moment):
        assert then["result"][0]["text"] == "Alec is my boss at TechCorp"
    assert gone["result"] == [] and len(back["result"]) == 1
    assert by_call["count"]["result"] == 13
    assert "The user lives in Lisbon" in by_call["later.context"]["result"]["profile"]
    assert by_call["store.verify"]["result"]["problems"] == []
    assert list(tmp_path.iterdir()) == []


def test_tour_prints_every_step_for_people(reverie: CommandLine, tmp_path: Path) -> None:
    shown = reverie.text("tour")
    for word in ("remember", "recall", "revise", "history", "as_of", "forget", "restore"):
        assert word in shown
    assert "nothing found" in shown and "0 problems" in shown
    assert list(tmp_path.iterdir()) == []


def test_write_blocked_by_a_stopped_process_fails_on_one_line_that_names_it(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverie.remember("one")
    monkeypatch.setenv("REVERIE_BUSY_TIMEOUT", "1")
    with stopped_writer(str(reverie.store), "default") as writer:
        output = reverie.error("remember", "two", code=5)
        assert f"process {writer.pid}" in output and f"kill -CONT {writer.pid}" in output
        assert len(output.strip().splitlines()) == 1
        assert "one" in reverie.text("list")
        writer.go_on()
    reverie.run("remember", "two")
