"""Two servers, a worker, clients and a person with a vault, on one store, under a schedule."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

import reverie
from reverie import Settings
from reverie.vault import service
from tests.crash.served import TOKEN
from tests.simulation.history import (
    Entry,
    History,
    Observed,
    Operation,
    Outcome,
    Who,
    token_of,
)
from tests.simulation.network import Link
from tests.simulation.schedule import CLIENTS, SERVERS, Fault, Schedule, Step
from tests.vault.vaults import Kept, assert_equal

ROOT = Path(__file__).parents[2]
# Easily mistaken for each other: a space, a user of it, a space whose name begins the same.
OWNERS: tuple[Who, ...] = (("ana", None), ("ana", "bo"), ("ana b", None))
VISIBLE = {0: {0}, 1: {0, 1}, 2: {2}}
PERSON = 0
# A client gives up on one try long before a paused server goes on.
TRY_SECONDS = 1.0
PATIENCE = 60.0
AHEAD = 2 * 3_600_000
WORDS = ["amber", "birch", "copper", "delta", "ember", "fjord", "garnet", "harbour"]


class Program:
    """One process of ours, with a clock of its own, that can be killed and started again."""

    def __init__(self, environment: dict[str, str], *command: str) -> None:
        self._environment, self._command = environment, command
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self, skew: int = 0) -> None:
        command = [sys.executable, "-m", "tests.simulation.program", str(skew), *self._command]
        if self._command[0] == "serve":
            command += ["--port", str(self.port)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                **self._environment,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if self._command[0] == "serve":
            assert self._process.stdout is not None
            output = "".join(iter(self._process.stdout.readline, "}\n"))
            assert output, "the server did not start"
            places: dict[str, Any] = json.loads(output + "}")
            self.port = int(places["rest"].removesuffix("/docs").rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class World:
    """One simulation: its processes, its clients, and every answer they got."""

    def __init__(self, folder: Path, address: str, socket: Path | None = None) -> None:
        self.folder, self.address = folder, address
        self.vault = folder / "vault"
        self.links = [Link(socket) for _ in range(SERVERS)] if socket is not None else []
        self.history = History()
        self.done = 0
        self.faults = 0
        # Seconds that a client rests after each of its operations.
        self.pace = 0.0
        self._moved = threading.Condition()
        self._failures: list[BaseException] = []
        with reverie.open(address, settings=self.settings()) as store:
            for space, user in OWNERS:
                # Known before the vault is made, so that a person finds its folder.
                store.space(space, user=user).remember("this was here before")
            service.init(store, self.vault)
        self.servers = [Program(self._environment(n), "serve", "--json") for n in range(SERVERS)]
        self.worker = Program(self._environment(0), "worker", "--poll", "0.1")

    @staticmethod
    def settings() -> Settings:
        return Settings(embedder="hashing")

    def _environment(self, server: int) -> dict[str, str]:
        address = self.address
        if self.links:
            # The same database, by way of a link that can be cut.
            name = address.partition("?")[0].rpartition("/")[2]
            address = f"postgresql://postgres@127.0.0.1:{self.links[server].port}/{name}"
            address += "?sslmode=disable"
        return {"REVERIE_URL": address, "REVERIE_TOKEN": TOKEN, "REVERIE_EMBEDDER": "hashing"}

    # -- the run --------------------------------------------------------------------------------

    def run(
        self,
        schedule: Schedule,
        during: Callable[[], None] = lambda: None,
        afterwards: Callable[[], None] = lambda: None,
    ) -> None:
        """Do everything that the schedule says, then let everything heal.

        ``during`` is called before each fault and once at the end, ``afterwards`` when nobody
        writes any more, both while everything runs.
        """
        try:
            for server in self.servers:
                server.start()
            self.worker.start()
            work = [
                threading.Thread(target=self._guarded, args=(self._client, number, steps))
                for number, steps in enumerate(schedule.steps)
            ]
            work.append(threading.Thread(target=self._guarded, args=(self._person, schedule)))
            for thread in work:
                thread.start()
            for fault in schedule.faults:
                if self._wait_for(fault.after):
                    during()
                    self._break(fault)
                    self.faults += 1
            for thread in work:
                thread.join()
            if self._failures:
                raise self._failures[0]
            self._servers_agree()
            during()
            afterwards()
        finally:
            for program in (*self.servers, self.worker):
                program.kill()
            for link in self.links:
                link.close()

    def _guarded(self, work: Any, *given: Any) -> None:
        try:
            work(*given)
        except BaseException as error:  # noqa: BLE001
            self._failures.append(error)
            with self._moved:
                self._moved.notify_all()

    def _wait_for(self, many: int) -> bool:
        with self._moved:
            self._moved.wait_for(lambda: self.done >= many or bool(self._failures))
        return not self._failures

    def _break(self, fault: Fault) -> None:
        server = self.servers[fault.server]
        link = self.links[fault.server] if self.links else None
        if fault.kind == "kill server":
            server.kill()
            server.start(fault.skew)
        elif fault.kind == "kill worker":
            self.worker.kill()
            self.worker.start(fault.skew)
        elif fault.kind == "pause server":
            server.signal(signal.SIGSTOP)
            time.sleep(fault.seconds)
            server.signal(signal.SIGCONT)
        elif fault.kind == "partition" and link is not None:
            link.open.clear()
            time.sleep(fault.seconds)
            link.open.set()
        elif fault.kind == "reset" and link is not None:
            link.reset()
        elif fault.kind == "delay" and link is not None:
            link.delay = 0.02
            time.sleep(fault.seconds)
            link.delay = 0.0

    # -- clients --------------------------------------------------------------------------------

    def _client(self, owner: int, steps: tuple[Step, ...]) -> None:
        chance = random.Random(owner)
        kept: list[str] = []
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(headers=headers, timeout=TRY_SECONDS, verify=False) as client:
            for number, step in enumerate(steps):
                token = token_of(owner, number)
                self._do(client, owner, step, token, kept, chance)
                if step.recall:
                    self._look(client, owner, step.server)
                with self._moved:
                    self.done += 1
                    self._moved.notify_all()
                time.sleep(self.pace)

    def _do(
        self,
        client: httpx2.Client,
        owner: int,
        step: Step,
        token: str,
        kept: list[str],
        chance: random.Random,
    ) -> None:
        """Try one write as often as the schedule allows, each time at the other server."""
        verb = step.verb if kept or step.verb not in {"revise", "forget"} else "remember"
        target = kept[int(step.pick * len(kept))] if kept else ""
        text = f"{token} {' '.join(chance.choices(WORDS, k=6))}"
        method, path, more = "POST", "/api/memory/", dict[str, str]()
        body: dict[str, Any] | None = {"content": text}
        if verb == "revise":
            method, path = "PUT", f"/api/memory/{target}"
        elif verb == "forget":
            # Never again: what is forgotten takes no revision.
            kept.remove(target)
            method, path, body, more = "DELETE", f"/api/memory/{target}", None, {"reason": token}
        elif verb in {"append", "teach"}:
            sentence = f"Remember that the kettle {token} is violet." if verb == "teach" else text
            path = f"/api/sessions/chat{owner}/events"
            body = {"messages": [{"role": "user", "content": sentence}]}
        outcome: Outcome = "unknown"
        for attempt in range(step.tries):
            answer = self._ask(
                client, owner, step.server + attempt, method, path, body, more, key=f"k{token}"
            )
            if answer is not None:
                outcome = "acknowledged"
                if verb == "remember":
                    kept.append(answer.json()["id"])
                break
            time.sleep(0.05 * attempt)
        self.history.add(Operation(owner, verb, token, outcome))

    def _ask(
        self,
        client: httpx2.Client,
        owner: int,
        server: int,
        method: str,
        path: str,
        body: Any = None,
        more: dict[str, str] | None = None,
        key: str | None = None,
    ) -> httpx2.Response | None:
        """Ask once; None when nobody can say what became of it."""
        space, user = OWNERS[owner]
        scope = {"space": space, **({"user": user} if user else {}), **(more or {})}
        url = f"http://127.0.0.1:{self.servers[server % SERVERS].port}{path}"
        headers = {"Idempotency-Key": key} if key else {}
        try:
            answer = client.request(method, url, params=scope, json=body, headers=headers)
        except httpx2.HTTPError:
            return None
        if answer.status_code >= 500 or answer.status_code == 429:
            return None
        self.history.saw(owner, answer.text)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
        return answer

    def _look(self, client: httpx2.Client, owner: int, server: int) -> None:
        """Ask for what others wrote: whatever is shown is noted."""
        other = (owner + 1) % CLIENTS
        query = f"{token_of(other, 0)} {token_of(other, 1)} amber birch"
        self._ask(client, owner, server, "POST", "/api/recall", {"query": query, "limit": 50})
        self._ask(client, owner, server, "GET", "/api/memory/")

    # -- the person -----------------------------------------------------------------------------

    def _person(self, schedule: Schedule) -> None:
        """Save files in the vault now and then, as an editor does."""
        space = OWNERS[PERSON][0]
        for number, share in enumerate(sorted(schedule.files)):
            if not self._wait_for(int(share * schedule.operations)):
                return
            token = token_of(PERSON, 10_000 + number)
            path = self.vault / space / "facts" / f"written-by-hand-{number}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.swp")
            draft.write_text(f"A person wrote {token} by hand\n", encoding="utf-8")
            draft.replace(path)
            self.history.add(Operation(PERSON, "file", token, "acknowledged"))

    # -- afterwards -----------------------------------------------------------------------------

    def _servers_agree(self) -> None:
        """Wait until both servers give every owner the same answers."""
        deadline = time.monotonic() + PATIENCE
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(headers=headers, timeout=PATIENCE, verify=False) as client:
            while True:
                answers = [self._everything(client, server) for server in range(SERVERS)]
                if None not in answers[0] and answers[0] == answers[1]:
                    return
                assert time.monotonic() < deadline, _first_difference(*answers)
                time.sleep(0.2)

    def read_everything(self, server: int) -> None:
        """Ask one server for all that every owner sees."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(headers=headers, timeout=PATIENCE, verify=False) as client:
            assert None not in self._everything(client, server)

    def _everything(self, client: httpx2.Client, server: int) -> list[str | None]:
        answers: list[str | None] = []
        for owner in range(len(OWNERS)):
            for method, path, body in (
                ("GET", "/api/memory/", None),
                ("POST", "/api/recall", {"query": "amber birch copper", "limit": 50}),
                ("GET", f"/api/sessions/chat{owner}/events", None),
            ):
                answer = self._ask(client, owner, server, method, path, body)
                answers.append(None if answer is None else answer.text)
        return answers

    def observe(self) -> Observed:
        """Open the store, do what is due, let the vault settle, and read every owner's log.

        The store must verify, and files and store must say the same.
        """
        clock = type("Ahead", (), {"now": lambda _: time.time_ns() // 1_000_000 + AHEAD})()
        with reverie.open(self.address, settings=self.settings(), clock=clock) as store:
            service.sync(store)
            store.run_pending_jobs()
            service.sync(store)
            conflicts = self._take_conflicts_away()
            service.sync(store)
            assert not [job for job in store.jobs() if job.state == "parked"]
            report = store.verify()
            assert report.problems == (), report.problems
            with contextlib.closing(_Settled(self.folder, store)) as kept:
                assert_equal(kept)
            return Observed(
                {number: list(_entries(store, who)) for number, who in enumerate(OWNERS)},
                conflicts,
            )

    def _take_conflicts_away(self) -> str:
        """What the vault put beside a file, as a person does who has read it."""
        text = ""
        for path in self.vault.rglob("*.conflict-*.md"):
            text += path.read_text(encoding="utf-8")
            path.unlink()
        return text


def _first_difference(one: list[str | None], two: list[str | None]) -> str:
    for number, (left, right) in enumerate(zip(one, two, strict=True)):
        if left is None or left != right:
            return f"the servers never answered alike: answer {number} is {left} and {right}"
    return "a server never answered"


class _Settled(Kept):
    """A vault that is there already, for comparing it with its store."""

    def __init__(self, folder: Path, store: reverie.Store) -> None:
        self.folder, self.root, self.store, self._git = folder, folder / "vault", store, True

    def close(self) -> None:
        """The store is somebody else's to close."""


def _entries(store: reverie.Store, who: Who) -> list[Entry]:
    """Read an owner's own log: what each entry did, and the text that it added."""
    found = []
    for record in store.space(who[0], user=who[1]).export():
        body = record["body"] or {}
        op = record["op"]
        text = f"{record.get('reason') or ''}"
        if op in {"remember", "revise"}:
            text = str(body.get("content", ""))
        elif op == "append":
            text = json.dumps(body)
        found.append(Entry(op, text, learned=record["actor"] == "learn"))
    return found
