"""The plan of a vault, driven without a disk: both sides are edited at random, with kills between.

Store, disk and cache are dictionaries. Every action of a plan is applied to them, and a kill stops
between any two. In the end nothing that somebody wrote is lost, both sides say the same, and a
second plan does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from reverie.engine.log import LogEntry
from reverie.model import Memory, Op, Scope
from reverie.text import frontmatter
from reverie.vault import actions as act
from reverie.vault import disk, edits, layout, render
from reverie.vault.actions import Action
from reverie.vault.disk import FileStamp
from reverie.vault.file_cache import VaultFile
from reverie.vault.plan import plan
from reverie.vault.state import (
    CacheState,
    DiskFile,
    DiskState,
    MemoryHistory,
    MissingAction,
    Name,
    Snapshot,
    StoreState,
)
from tests.figures import figure
from tests.property import EXAMPLES

ANA, BOB = Scope("ana"), Scope("ana", "bob")
SCOPES = st.sampled_from([ANA, BOB])
# A plan that does not come to an end is a defect.
MAX_ROUNDS = 50
STEPS = 40


class World:
    """A store, a disk and a cache in memory."""

    def __init__(self) -> None:
        self.log: dict[Scope, list[LogEntry]] = {ANA: [], BOB: []}
        self.files: dict[str, tuple[bytes, FileStamp]] = {}
        self.cache: dict[str, VaultFile] = {}
        self.cursors: dict[Scope, int] = {}
        self.deletions: dict[Scope, int] = {}
        self.position = 0
        self.ticks = 0
        self.keys: dict[str, str] = {}
        self.actions = 0

    # -- the store ----------------------------------------------------------------------------

    def histories(self) -> dict[Name, MemoryHistory]:
        found: dict[Name, list[LogEntry]] = {}
        for scope, entries in self.log.items():
            for entry in entries:
                found.setdefault((scope, entry.memory), []).append(entry)
        return {name: MemoryHistory(name[0], tuple(own)) for name, own in found.items()}

    def append(self, scope: Scope, op: Op, id: str, body: dict[str, Any] | None) -> None:
        self.position += 1
        versions = sum(entry.memory == id for entry in self.log[scope])
        entry = LogEntry(
            self.position, op, self.position, None, "person", None, None, None, None, id,
            versions + 1, f"uuid-{self.position}", body,
        )  # fmt: skip
        self.log[scope].append(entry)

    def change(self, scope: Scope, op: Op, id: str, **changes: Any) -> None:
        body = dict(self.histories()[scope, id].entries[-1].body or {})
        self.append(scope, op, id, body | changes)

    def remember(self, scope: Scope, content: str, key: str | None = None) -> str:
        if key is not None and key in self.keys:
            return self.keys[key]
        id = f"id{self.position + 1:06d}"
        body: dict[str, Any] = {
            "kind": "fact", "content": content, "category": "general", "subject": None,
            "tags": [], "concept_tags": [], "session": None, "source": None, "trust": "person",
            "pinned": False, "created_at": 0, "updated_at": 0, "happened_at": None,
            "forgotten_at": None, "expires_at": None,
        }  # fmt: skip
        self.append(scope, "remember", id, body)
        if key is not None:
            self.keys[key] = id
        return id

    def erase(self, scope: Scope, id: str) -> None:
        self.log[scope] = [
            replace(entry, body=None) if entry.memory == id else entry for entry in self.log[scope]
        ]
        self.append(scope, "erase", id, {})

    # -- the disk -----------------------------------------------------------------------------

    def write(self, path: str, raw: bytes) -> FileStamp:
        self.ticks += 1
        self.files[path] = (raw, FileStamp(len(raw), self.ticks, self.ticks))
        return self.files[path][1]

    def is_ours(self, file: VaultFile) -> bool:
        return file.path in self.files and disk.digest(self.files[file.path][0]) == file.digest

    def free_path(self, path: str, id: str) -> str:
        known = self.cache.get(path)
        if known is not None and known.name == id and self.is_ours(known):
            return path
        number, stem = 1, path.removesuffix(".md")
        while path in self.files:
            number += 1
            path = f"{stem}-{number}.md"
        return path

    # -- a run --------------------------------------------------------------------------------

    def snapshot(self, missing: MissingAction) -> Snapshot:
        changed = dict[str, DiskFile]()
        for path, (raw, stamp) in self.files.items():
            known, place = self.cache.get(path), layout.Folders().parse(path)
            if place is not None and (known is None or known.digest != disk.digest(raw)):
                document = frontmatter.load(raw)
                changed[path] = DiskFile(path, place, raw, disk.digest(raw), stamp, document)
        gone = {path: file for path, file in self.cache.items() if path not in self.files}
        totals: dict[Scope, int] = {}
        for file in self.cache.values():
            if file.what == "memory" and not layout.is_deleted(file.path):
                totals[file.scope] = totals.get(file.scope, 0) + 1
        entries: dict[Scope, Sequence[LogEntry]] = {
            scope: new
            for scope, own in self.log.items()
            if (new := [entry for entry in own if entry.position > self.cursors.get(scope, 0)])
        }
        return Snapshot(
            StoreState(memories=self.histories(), entries=entries),
            DiskState(changed=changed, gone=gone),
            CacheState(
                files=tuple(self.cache.values()),
                cursors=dict(self.cursors),
                deletions=dict(self.deletions),
                totals=totals,
            ),
            missing=missing,
        )

    def plan(self, missing: MissingAction) -> list[Action]:
        actions = plan(self.snapshot(missing))
        return [each for each in actions if not isinstance(each, act.Report)]

    def sync(self, missing: MissingAction = "ask", kill_after: int | None = None) -> bool:
        """Plan and execute until nothing is left; False when it was killed before."""
        for _ in range(MAX_ROUNDS):
            todo = [
                each for each in plan(self.snapshot(missing)) if not isinstance(each, act.Report)
            ]
            if not todo:
                if missing != "ask":
                    self.deletions.clear()
                return True
            for action in todo:
                if kill_after == 0:
                    return False
                kill_after = None if kill_after is None else kill_after - 1
                _HANDLERS[type(action)](self, action)
                self.actions += 1
        raise AssertionError(f"the plan does not come to an end: {todo}")

    def put(self, file: VaultFile) -> None:
        self.cache[file.path] = file

    def drop(self, path: str) -> None:
        self.cache.pop(path, None)


# -- the actions ----------------------------------------------------------------------------------


def _remember(world: World, action: act.Remember) -> None:
    file = action.file
    scope = file.place.scope
    id = world.remember(scope, file.document.content, f"{file.path}{file.stamp}")
    if file.place.deleted and world.histories()[scope, id].current.forgotten_at is None:
        world.change(scope, "forget", id, forgotten_at=1)
    others = [each for each in world.cache.values() if each.name == id and each.path != file.path]
    world.put(VaultFile(file.path, "memory", scope, id, 0, file.digest, file.stamp))
    for other in others:
        if world.is_ours(other):
            del world.files[other.path]
            world.drop(other.path)


def _revise(world: World, action: act.Revise) -> None:
    scope, id = action.file.place.scope, action.memory.id
    if action.restore:
        world.change(scope, "restore", id, forgotten_at=None)
    changes: dict[str, Any] = dict(action.labels)
    if action.content is not None:
        changes["content"] = action.content
    world.change(scope, "revise", id, **changes)
    if action.forget:
        world.change(scope, "forget", id, forgotten_at=1)


def _forget(world: World, action: act.Forget) -> None:
    if world.histories()[action.scope, action.memory.id].current.forgotten_at is None:
        world.change(action.scope, "forget", action.memory.id, forgotten_at=1)
    if action.reason == act.DELETED:
        world.deletions[action.scope] = world.deletions.get(action.scope, 0) + 1


def _restore(world: World, action: act.Restore) -> None:
    world.change(action.scope, "restore", action.memory.id, forgotten_at=None)


def _write_memory(world: World, action: act.WriteMemory) -> None:
    file, memory, path = action.before, action.history.current, action.path
    before = None if file is None or file.path not in world.files else world.files[file.path][0]
    if file is None or file.path != path:
        path = world.free_path(path, memory.id)
    raw = render.memory_file(memory, before, subjects=action.history.subjects)
    new = VaultFile(
        path,
        "memory",
        action.history.scope,
        memory.id,
        memory.version,
        disk.digest(raw),
    )
    world.put(new)
    world.put(new._replace(stamp=world.write(path, raw)))
    if file is not None and file.path != path and world.is_ours(file):
        del world.files[file.path]
        world.drop(file.path)


def _remove(world: World, action: act.RemoveFile) -> None:
    world.files.pop(action.file.path, None)
    world.drop(action.file.path)


def _keep_store_version(world: World, action: act.KeepStoreVersion) -> None:
    memory = action.memory
    path = world.free_path(layout.conflict_path(action.about, memory.version), memory.id)
    raw = render.conflict_file(memory)
    file = VaultFile(path, "conflict", action.scope, memory.id, 0, disk.digest(raw))
    world.put(file._replace(stamp=world.write(path, raw)))


def _append_log(world: World, action: act.AppendLog) -> None:
    world.cursors[action.scope] = action.entries[-1].position


def _nothing(world: World, action: Action) -> None:
    """The world has no index, no vault log and no commit messages."""


_HANDLERS: dict[type[Action], Callable[[World, Any], object]] = {
    act.Remember: _remember,
    act.Revise: _revise,
    act.Forget: _forget,
    act.Restore: _restore,
    act.WriteMemory: _write_memory,
    act.RemoveFile: _remove,
    act.KeepStoreVersion: _keep_store_version,
    act.Adopt: lambda world, action: world.put(action.file),
    act.Drop: lambda world, action: world.drop(action.file.path),
    act.AppendLog: _append_log,
    act.EraseFromLog: _nothing,
    act.WriteIndex: _nothing,
}


# -- the machine ----------------------------------------------------------------------------------


class VaultPlanMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.count = 0
        self.kills = 0
        # Every text that somebody wrote, and those that somebody destroyed.
        self.written: set[str] = set()
        self.destroyed: set[str] = set()

    def text(self) -> str:
        self.count += 1
        self.written.add(f"text{self.count}x")
        return f"text{self.count}x"

    def pick(self, values: Sequence[Any], number: int) -> Any:
        return values[number % len(values)] if values else None

    def memory(self, number: int) -> MemoryHistory | None:
        living = [each for each in self.world.histories().values() if not each.erased]
        found: MemoryHistory | None = self.pick(living, number)
        return found

    def path(self, number: int) -> str | None:
        found: str | None = self.pick(sorted(self.world.files), number)
        return found

    # -- programs -----------------------------------------------------------------------------

    @rule(scope=SCOPES)
    def remember(self, scope: Scope) -> None:
        self.world.remember(scope, self.text())

    @rule(number=st.integers(0, 50))
    def revise(self, number: int) -> None:
        if (found := self.memory(number)) and found.current.forgotten_at is None:
            self.world.change(found.scope, "revise", found.current.id, content=self.text())

    @rule(number=st.integers(0, 50), subject=st.sampled_from(["Alec", "Eva", "Bob Miller", None]))
    def change_subject(self, number: int, subject: str | None) -> None:
        """A file that is named after a subject is renamed with it."""
        if (found := self.memory(number)) and found.current.forgotten_at is None:
            self.world.change(found.scope, "revise", found.current.id, subject=subject)

    @rule(number=st.integers(0, 50))
    def forget_or_restore(self, number: int) -> None:
        if found := self.memory(number):
            gone = found.current.forgotten_at is not None
            op: Op = "restore" if gone else "forget"
            at = None if gone else 1
            self.world.change(found.scope, op, found.current.id, forgotten_at=at)

    @rule(number=st.integers(0, 50))
    def erase(self, number: int) -> None:
        if found := self.memory(number):
            id = found.current.id
            self.destroyed.update(state.content for state in found.states().values())
            # A person may have edited the file of what is erased.
            for raw, _ in self.world.files.values():
                document = frontmatter.load(raw)
                if id in {document.text("id"), document.text("conflict_of")}:
                    self.destroyed.add(document.content.strip())
            for file in self.world.cache.values():
                if file.name == id and file.path in self.world.files:
                    raw = self.world.files[file.path][0]
                    self.destroyed.add(frontmatter.load(raw).content.strip())
            self.world.erase(found.scope, id)

    # -- people -------------------------------------------------------------------------------

    @rule(scope=SCOPES, name=st.sampled_from("pqrs"), deleted=st.booleans())
    def create(self, scope: Scope, name: str, deleted: bool) -> None:
        path = f"{layout.Folders().owner(scope)}/{'deleted/' if deleted else ''}facts/{name}.md"
        if path not in self.world.files:
            self.world.write(path, f"{self.text()}\n".encode())

    @rule(number=st.integers(0, 50))
    def edit(self, number: int) -> None:
        if (path := self.path(number)) and ".conflict-v" not in path:
            raw = self.world.files[path][0]
            old = frontmatter.load(raw).content.strip()
            if not self.is_kept(old, path):
                self.destroyed.add(old)
            new = self.text()
            if self.is_erased(path):
                # An erasure takes the file with it, whatever a person made of it meanwhile.
                self.destroyed.add(new)
            self.world.write(path, raw.replace(old.encode(), new.encode()))

    def is_erased(self, path: str) -> bool:
        """Whether the memory of a file is erased, and the file not removed yet."""
        known = self.world.cache.get(path)
        place = layout.Folders().parse(path)
        assert place is not None
        id = frontmatter.load(self.world.files[path][0]).text("id") or (known and known.name)
        history = self.world.histories().get((place.scope, id or ""))
        return history is not None and history.erased

    def is_kept(self, text: str, path: str) -> bool:
        """Whether a text stands elsewhere than in one file: else its own author replaces it."""
        return any(text in each for each in self.texts(without=path))

    @rule(number=st.integers(0, 50))
    def strip(self, number: int) -> None:
        if path := self.path(number):
            document = frontmatter.load(self.world.files[path][0])
            if ".conflict-v" not in path:
                self.world.write(path, f"{document.content.strip()}\n".encode())

    @rule(number=st.integers(0, 50), name=st.sampled_from("tuvw"), deleted=st.booleans())
    def move(self, number: int, name: str, deleted: bool) -> None:
        if not (path := self.path(number)):
            return
        place = layout.Folders().parse(path)
        assert place is not None
        folder = layout.Folders().owner(place.scope)
        target = f"{folder}/{'deleted/' if deleted else ''}facts/{name}.md"
        if target not in self.world.files and ".conflict-v" not in path:
            self.world.files[target] = self.world.files.pop(path)

    @rule(number=st.integers(0, 50))
    def delete(self, number: int) -> None:
        if path := self.path(number):
            content = frontmatter.load(self.world.files[path][0]).content.strip()
            if not self.is_kept(content, path):
                self.destroyed.add(content)
            del self.world.files[path]

    # -- one change of a person, and what it means --------------------------------------------

    def settled_file(self, number: int) -> tuple[str, VaultFile] | None:
        """A memory's file, once both sides say the same."""
        self.world.sync("restore")
        self.world.deletions.clear()
        found = [
            (path, file)
            for path, file in sorted(self.world.cache.items())
            if file.what == "memory" and path not in self.world.snapshot("ask").disk.changed
        ]
        chosen: tuple[str, VaultFile] | None = self.pick(found, number)
        return chosen

    def current(self, file: VaultFile) -> Memory:
        return self.world.histories()[file.scope, file.name].current

    @rule(number=st.integers(0, 50))
    def edited_file_revises_its_memory(self, number: int) -> None:
        if found := self.settled_file(number):
            path, file = found
            raw, new = self.world.files[path][0], self.text()
            old = frontmatter.load(raw).content.strip()
            self.world.write(path, raw.replace(old.encode(), new.encode()))
            self.world.sync()
            assert self.current(file).content == new

    @rule(number=st.integers(0, 50))
    def deleted_file_forgets_its_memory(self, number: int) -> None:
        if found := self.settled_file(number):
            del self.world.files[found[0]]
            self.world.sync()
            assert self.current(found[1]).forgotten_at is not None

    @rule(number=st.integers(0, 50))
    def file_moved_between_folders_forgets_or_restores(self, number: int) -> None:
        if found := self.settled_file(number):
            path, file = found
            gone = layout.is_deleted(path)
            target = layout.relocate(path, deleted=not gone)
            if target in self.world.files:
                return
            self.world.files[target] = self.world.files.pop(path)
            self.world.sync()
            assert (self.current(file).forgotten_at is None) == gone
            assert self.world.cache[target].name == file.name

    @rule(scope=SCOPES)
    def new_file_is_remembered(self, scope: Scope) -> None:
        text = self.text()
        path = f"{layout.Folders().owner(scope)}/facts/new-{self.count}.md"
        self.world.write(path, f"{text}\n".encode())
        self.world.sync()
        assert self.current(self.world.cache[path]).content == text

    # -- runs ---------------------------------------------------------------------------------

    @rule(missing=st.sampled_from(["ask", "ask", "forget", "restore"]))
    def sync(self, missing: MissingAction) -> None:
        assert self.world.sync(missing)

    @rule(after=st.integers(0, 12))
    def killed(self, after: int) -> None:
        self.kills += not self.world.sync(kill_after=after)

    def texts(self, without: str | None = None) -> list[str]:
        stored = [
            str((entry.body or {}).get("content", ""))
            for entries in self.world.log.values()
            for entry in entries
        ]
        return stored + [
            raw.decode() for path, (raw, _) in self.world.files.items() if path != without
        ]

    def teardown(self) -> None:
        world = self.world
        world.sync()
        world.sync("restore")
        for path in [path for path in world.files if ".conflict-v" in path]:
            self.destroyed.add(frontmatter.load(world.files[path][0]).content.strip())
            del world.files[path]
        world.sync("restore")
        assert not [
            each for each in plan(world.snapshot("ask")) if not isinstance(each, act.Report)
        ]
        said = self.texts()
        assert not [
            text
            for text in sorted(self.written)
            if not any(text in each for each in said) and text not in self.destroyed
        ]
        self.check_equal()
        figure("sequences of edits", 1)
        figure("kills between actions", self.kills)
        figure("actions executed", world.actions)

    def check_equal(self) -> None:
        """Every memory has one file that says what it says; copies of people may stand beside."""
        world = self.world
        for (_, id), history in world.histories().items():
            own = [f for f in world.cache.values() if f.name == id and f.what == "memory"]
            if history.erased:
                assert not own
                continue
            memory: Memory = history.current
            (file,) = own
            document = frontmatter.load(world.files[file.path][0])
            assert document.text("version") == str(memory.version)
            assert edits.matches_version(memory, document, edits.parse_labels(document))
            assert layout.is_deleted(file.path) == (memory.forgotten_at is not None)


def test_plan_loses_nothing_and_both_sides_converge() -> None:
    stateful.run_state_machine_as_test(
        VaultPlanMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, derandomize=True
        ),
    )
