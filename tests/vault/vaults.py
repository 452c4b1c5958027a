"""A store with a vault, for tests: what a person does with the files, and how both compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reverie
from reverie import Settings, Store
from reverie.model import UNNAMED, Memory, Scope, SessionInfo
from reverie.text import frontmatter
from reverie.vault import (
    disk,
    edits,
    layout,
    render,
    service,
)
from reverie.vault.actions import SyncReport
from reverie.vault.state import MissingAction
from reverie.vault.vault import Vault
from reverie.write import vault_link
from reverie.write.secret_policy import Redaction
from tests.conftest import FakeClock, SeededIds

OUTSIDE = (".git", layout.STATE_FOLDER)
# The ending of an editor's draft. One that was killed leaves it, and the vault ignores it.
DRAFT = ".swp"


class Kept:
    """A store in a folder, and its vault beside it."""

    def __init__(
        self, folder: Path, *, turns: str = "together", git: bool = False, seed: int = 0
    ) -> None:
        self.folder = folder
        self.root = folder / "vault"
        self.clock, self.ids = FakeClock(), SeededIds(seed)
        self.store = self.open()
        self._turns, self._git = turns, git
        self.init(self.root)

    def open(self, name: str = "store.db") -> Store:
        return reverie.open(
            f"sqlite://{self.folder / name}",
            settings=Settings(learn="off"),
            embedder="none",
            clock=self.clock,
            ids=self.ids,
        )

    def init(self, root: Path, spaces: list[str] | None = None) -> None:
        """The same as ``operations.init``; without git it is cheap."""
        if self._git:
            service.init(self.store, root, spaces=spaces, turns=self._turns)
            return
        Vault.init(root, spaces, self._turns).close()
        vault_link.attach(self.store.runtime, str(root))
        vault_link.mark_created(self.store.runtime, str(root))

    def close(self) -> None:
        self.store.close()

    # -- verbs --------------------------------------------------------------------------------

    @property
    def ana(self) -> reverie.Space:
        return self.store.space("ana")

    def sync(self, *paths: str, missing: MissingAction = "ask") -> SyncReport:
        """What ``operations.sync`` does, without git unless it was asked for."""
        if self._git:
            return service.sync(self.store, paths=paths or None, missing=missing)
        commit, service.commit_pending = service.commit_pending, _no_commit  # type: ignore[attr-defined]
        try:
            return service.sync(self.store, paths=paths or None, missing=missing)
        finally:
            service.commit_pending = commit  # type: ignore[attr-defined]

    def mirror(self) -> None:
        """What the worker does."""
        from reverie.vault.sync import Sync

        with Vault.open(self.root) as vault, vault.locked():
            Sync(vault, self.store).store()

    # -- files --------------------------------------------------------------------------------

    def files(self, below: str = "") -> list[str]:
        """Everything a person sees, without the index and the drafts of editors."""
        found = [
            path.relative_to(self.root).as_posix()
            for path in (self.root / below).rglob("*")
            if not path.is_dir() or path.is_symlink()
        ]
        return sorted(
            path
            for path in found
            if path.split("/")[0] not in OUTSIDE
            and not path.endswith(layout.INDEX)
            and not path.startswith(".git")
            and not path.endswith(DRAFT)
        )

    def folders(self) -> layout.Folders:
        with Vault.open(self.root) as vault:
            return vault.folders

    def path(self, relative: str) -> Path:
        return self.root / relative

    def of(self, memory: Memory | str) -> str:
        """The only file of a memory, by what it says itself."""
        id = memory if isinstance(memory, str) else memory.id
        found = [path for path in self.files() if self.document(path).text("id") == id]
        assert len(found) == 1, found
        return found[0]

    def read(self, relative: str) -> str:
        return self.path(relative).read_bytes().decode()

    def write(self, relative: str, text: str | bytes) -> None:
        """As many editors do: a new file in the place of the old one."""
        path = self.path(relative)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}{DRAFT}")
        draft.write_bytes(text if isinstance(text, bytes) else text.encode())
        draft.replace(path)

    def edit(self, relative: str, old: str, new: str) -> None:
        """As others do: into the file itself."""
        raw = self.path(relative).read_bytes()
        assert old.encode() in raw
        self.path(relative).write_bytes(raw.replace(old.encode(), new.encode()))

    def move(self, source: str, target: str) -> None:
        there = self.path(target)
        there.parent.mkdir(parents=True, exist_ok=True)
        self.path(source).rename(there)

    def document(self, relative: str) -> frontmatter.Document:
        try:
            return frontmatter.load(disk.read(self.path(relative)))
        except disk.UnreadableFile:
            return frontmatter.Document({}, "", broken=True)

    def log_lines(self) -> list[dict[str, Any]]:
        with Vault.open(self.root) as vault:
            return list(vault.log.lines())

    def bytes(self) -> dict[str, bytes]:
        """Every byte of the vault but its cache."""
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
            and not path.is_symlink()
            and path.relative_to(self.root).parts[0] != ".git"
            and not path.name.startswith(("files.db", "lock"))
        }


def _no_commit(vault: Vault, redaction: Redaction | None = None) -> list[str]:
    vault.files.committed(vault.files.pending())
    return []


def holding(kept: Kept, needle: bytes) -> list[Path]:
    """The files of a vault in which something is found, once git would have what it needs."""
    with Vault.open(kept.root) as vault:
        _no_commit(vault)
    return [path for path in kept.root.rglob("*") if path.is_file() and needle in path.read_bytes()]


# -- both sides ---------------------------------------------------------------------------------


def states(store: Store, scope: Scope) -> Iterator[Memory]:
    """Every memory of an owner, a session's own and forgotten ones included."""
    from reverie.engine import index, log

    with store.runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, scope)
        if owner is None:
            return
        chosen = index.Filter(include_forgotten=True, sessions=None)
        places = index.list_memories(tx, owner, chosen)
        found = log.find_at_positions(tx, owner, [place.position for place in places])
    for place in places:
        yield found[place.position].state(scope.user)


def owned_sessions(store: Store, scope: Scope) -> list[SessionInfo]:
    """Every session of one owner: a handle without a user lists those of two."""
    from reverie.engine import log, sessions

    with store.runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, scope)
        own = [] if owner is None else sessions.list_sessions(tx, owner, hidden=True)
    names = {row.session for row in own}
    every = store.scoped_space(scope).sessions(include_hidden=True)
    return [info for info in every if info.id in names]


def scopes(store: Store) -> list[Scope]:
    from reverie.engine import log

    with store.runtime.engine.read() as tx:
        tx.enter_all_owners()
        return [log.scope_of(tx, owner) for owner in log.list_owners(tx)]


def assert_equal(kept: Kept) -> None:
    """Files, log and store say the same, and a second sync finds nothing to do."""
    expected = dict[tuple[Scope, str], Memory]()
    for scope in scopes(kept.store):
        expected |= {(scope, memory.id): memory for memory in states(kept.store, scope)}
    found, folders = set[tuple[Scope, str]](), kept.folders()
    for path in kept.files():
        place = folders.parse(path)
        assert place is not None, path
        if place.what != "memory":
            continue
        document = kept.document(path)
        key = (place.scope, document.text("id") or "")
        assert key in expected, f"{path} is no memory"
        assert key not in found, f"{path} is there twice"
        found.add(key)
        memory = expected[key]
        assert document.content == memory.content, path
        assert document.text("version") == str(memory.version), path
        assert place.deleted == (memory.forgotten_at is not None), path
        assert document.items("tags") == list(memory.tags), path
        assert edits.parse_labels(document)["subject"] == memory.subject, path
        assert document.text("category") == memory.category, path
        fields = render.memory_fields(memory)
        assert document.text("trust") == fields["trust"], path
    assert found == expected.keys(), expected.keys() - found
    assert_turns(kept)
    assert_log(kept)
    before = kept.bytes()
    report = kept.sync()
    assert not report, report
    assert kept.bytes() == before


def assert_turns(kept: Kept) -> None:
    """Every event of every session is in its files, once and in order."""
    shown, folders = dict[tuple[Scope, bool, str], list[tuple[int, str]]](), kept.folders()
    for path in kept.files():
        place = folders.parse(path)
        if place is None or place.what != "turns" or place.session is None:
            continue
        raw = disk.read(kept.path(path))
        assert render.strip_seal(raw) is not None, path
        key = (place.scope, place.deleted, place.session)
        listed = shown.setdefault(key, [])
        document = frontmatter.load(raw)
        if document.text("role") == "turns":
            listed += [(turn.sequence, turn.text) for turn in render.parse_events(raw)]
        else:
            number = (document.text("id") or "").rpartition(":")[2]
            listed.append((int(number), document.content))
    summaries = [path for path in kept.files() if path.endswith(f"/{layout.SUMMARY}")]
    for scope in scopes(kept.store):
        space = kept.store.scoped_space(scope)
        for info in owned_sessions(kept.store, scope):
            events = [
                (event.sequence, render.to_utf8_text(event.text))
                for event in space.session(info.id).events()
                if event.session == info.id
            ]
            key = (scope, (info.hidden_at is not None), info.id)
            assert sorted(shown.pop(key, [])) == events, (key, sorted(shown))
            found = [path for path in summaries if _is_summary(folders.parse(path), scope, info)]
            own = own_summary(kept, scope, info.id)
            assert [kept.document(path).content for path in found] == ([own] if own else [])
    assert not shown, shown


def _is_summary(place: layout.ParsedPath | None, scope: Scope, info: SessionInfo) -> bool:
    assert place is not None and place.what == "summary"
    wanted = (scope, info.id, info.hidden_at is not None)
    return (place.scope, place.session, place.deleted) == wanted


def own_summary(kept: Kept, scope: Scope, session: str) -> str:
    from reverie.engine import log
    from reverie.write import session_state as session_states

    with kept.store.runtime.engine.read() as tx:
        owner = log.resolve_owner(tx, scope)
        return "" if owner is None else session_states.read_summary(tx, owner, session).text


def assert_log(kept: Kept) -> None:
    """The vault's own log is what an export of each owner is."""
    logged = dict[Scope, list[dict[str, Any]]]()
    for line in kept.log_lines():
        scope = Scope(line.pop("space"), line.pop("user"))
        logged.setdefault(scope, []).append(line)
    for scope in scopes(kept.store):
        is_unnamed = scope.user == UNNAMED
        space = kept.store.space(scope.space, user=scope.shown_user)
        wanted = [
            {
                name: value
                for name, value in json.loads(json.dumps(record)).items()
                if name != "unnamed"
            }
            for record in space.export()
            if record.get("unnamed", False) == is_unnamed
        ]
        lines = sorted(logged.pop(scope, []), key=lambda line: line["position"])
        for line in lines:
            del line["position"]
        assert lines == wanted, scope
    assert not logged, logged.keys()
