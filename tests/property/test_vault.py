"""Files and memories changed in any order on both sides, with kills between, end equal.

A chance of its own for each seed, so that a failure can be repeated: the seed is in its name.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import reverie
from reverie.engine import log
from reverie.errors import NotFound, ReverieError
from reverie.model import Scope
from reverie.vault import (
    disk,
    file_cache,
    layout,
    log_file,
    service,
)
from reverie.vault.execute import Executor
from reverie.vault.plan_missing import MIN_FOR_SHARE, needs_confirmation
from reverie.vault.vault import Vault
from tests.vault.vaults import Kept, assert_equal, scopes, states

SEEDS = max(int(os.environ.get("REVERIE_PROPERTY_EXAMPLES", "60")) // 2, 10)
# Kills that once left a second file of a memory.
FOUND = (184, 190, 234, 462)
STEPS = 50
OWNERS = (Scope("ana"), Scope("ana", "bob"), Scope("Eve"))


class Killed(BaseException):
    """The process ends here."""


# Where a kill may fall: before and after each of these.
PLACES: tuple[tuple[Any, str], ...] = (
    (disk, "_write_draft"),
    (disk, "sync_folder"),
    (disk, "append"),
    (disk, "remove"),
    (disk, "prune"),
    (Path, "replace"),
    (Path, "rename"),
    (file_cache.FileCache, "put"),
    (file_cache.FileCache, "drop"),
    (file_cache.FileCache, "add_pending"),
    (file_cache.FileCache, "set_cursor"),
    (log_file.VaultLog, "append"),
    (Executor, "_do"),
    (log, "append"),
)


@contextmanager
def killing(chance: random.Random) -> Iterator[None]:
    """Die at one of the next steps, before or after it."""
    left = chance.randrange(1, chance.choice((8, 25, 60)))

    def dying(call: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def step(*values: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise Killed
            result = call(*values, **named)
            if left == 0:
                raise Killed
            return result

        return step

    with pytest.MonkeyPatch.context() as patched:
        after = chance.random() < 0.5
        for holder, name in PLACES:
            patched.setattr(holder, name, dying(getattr(holder, name), after))
        yield


class VaultActions:
    """What programs and people do to a store and its vault."""

    def __init__(self, kept: Kept, seed: int) -> None:
        self.kept = kept
        self.chance = random.Random(seed)
        self.count = 0
        # Every text that somebody wrote, and those that were to be destroyed.
        self.written: set[str] = set()
        self.erased: set[str] = set()

    def text(self) -> str:
        self.count += 1
        more = self.chance.choice(("", "\n\nsecond line\n", " – naïve 👋", "\r\nCRLF", "  "))
        return f"text{self.count}x{more}"

    def wrote(self, text: str) -> str:
        self.written.add(text.split("x")[0] + "x")
        return text

    def destroy(self, texts: set[str]) -> None:
        self.erased |= texts

    def space(self) -> reverie.Space:
        scope = self.chance.choice(OWNERS)
        return self.kept.store.space(scope.space, user=scope.user)

    def memory(self, *, alive: bool | None = None) -> tuple[reverie.Space, reverie.Memory] | None:
        found = [
            (scope, memory)
            for scope in scopes(self.kept.store)
            for memory in states(self.kept.store, scope)
            if alive is None or (memory.forgotten_at is None) == alive
        ]
        if not found:
            return None
        scope, memory = self.chance.choice(sorted(found, key=lambda pair: pair[1].id))
        space = self.kept.store.space(scope.space, user=scope.shown_user)
        return space, memory

    def file(self, what: str = "memory") -> str | None:
        found = [
            path
            for path in self.kept.files()
            if (place := layout.Folders().parse(path)) is not None and place.what == what
        ]
        return self.chance.choice(found) if found else None

    # -- what programs do ---------------------------------------------------------------------

    def remember(self) -> None:
        chance, space = self.chance, self.space()
        text = self.text()
        handle = space if chance.random() < 0.8 else space.session("talk")
        handle.remember(
            text,
            kind=chance.choice(("fact", "note")),
            tags=chance.sample(("a", "b", "c"), 2),
            pinned=chance.random() < 0.2,
        )
        self.wrote(text)

    def revise(self) -> None:
        if found := self.memory(alive=True):
            text = self.text()
            found[0].revise(found[1].id, text, tags=["revised"])
            self.wrote(text)

    def forget(self) -> None:
        if found := self.memory(alive=True):
            found[0].forget(found[1].id)

    def restore(self) -> None:
        if found := self.memory(alive=False):
            found[0].restore(found[1].id)

    def erase(self) -> None:
        if (found := self.memory()) and self.chance.random() < 0.4:
            space, memory = found
            # A person may be editing the file of what is erased.
            texts = {version.content or "" for version in space.history(memory.id)}
            for path in self.kept.files():
                document = self.kept.document(path)
                if memory.id in {document.text("id"), document.text("conflict_of")}:
                    texts.add(document.content)
            self.destroy(texts)
            space.erase(memory.id)

    def append(self) -> None:
        text = self.text()
        session = self.chance.choice(("chat", "talk"))
        self.space().session(session).append({"role": "user", "content": text})
        self.wrote(text)

    def hide(self) -> None:
        try:
            session = self.space().session("chat")
            session.hide() if self.chance.random() < 0.5 else session.restore()
        except NotFound:
            return

    def summarise(self) -> None:
        session = self.space().session("chat")
        try:
            upper = session.info().events
            summary = session.summary()
            session.write_summary(
                f"summary {self.count}",
                upper=max(upper, summary.upper),
                expected_epoch=summary.epoch,
            )
        except ReverieError:
            return

    # -- what people do -----------------------------------------------------------------------

    def create(self) -> None:
        scope = self.chance.choice(OWNERS)
        self.count += 1
        text = f"text{self.count}x of a person"
        folder = self.chance.choice(("facts", "notes", "facts/mine", "deleted/facts"))
        path = f"{layout.Folders().owner(scope)}/{folder}/{self.chance.choice('pqrs')}.md"
        if not self.kept.path(path).exists():
            self.kept.write(path, f"{text}\n")
            self.wrote(text)

    def edit(self) -> None:
        path = self.file()
        if path is None:
            return
        document = self.kept.document(path)
        raw = self.kept.path(path).read_bytes()
        new = self.text()
        self.chance.choice((self.edit_whole, self.edit_in_place))(path, raw, document.content, new)

    def edit_whole(self, path: str, raw: bytes, old: str, new: str) -> None:
        self.kept.write(path, raw.replace(old.encode(), new.encode()) if old else raw)
        self.wrote(new)

    def edit_in_place(self, path: str, raw: bytes, old: str, new: str) -> None:
        self.kept.path(path).write_bytes(raw.replace(old.encode(), new.encode()) if old else raw)
        self.wrote(new)

    def strip(self) -> None:
        """Take the front matter out."""
        if path := self.file():
            self.kept.write(path, self.kept.document(path).content + "\n")

    def label(self) -> None:
        if path := self.file():
            raw = self.kept.path(path).read_bytes()
            self.kept.write(path, raw.replace(b"category: general", b"category: changed"))

    def rename(self) -> None:
        if path := self.file():
            folder = path.rpartition("/")[0]
            target = f"{folder}/renamed-{self.count}.md"
            self.count += 1
            if not self.kept.path(target).exists():
                self.kept.move(path, target)

    def put_away(self) -> None:
        path = self.file()
        place = None if path is None else layout.Folders().parse(path)
        if path is None or place is None:
            return
        target = layout.relocate(path, deleted=not place.deleted)
        if not self.kept.path(target).exists():
            self.kept.move(path, target)

    def delete(self) -> None:
        if path := self.file():
            content = self.kept.document(path).content
            self.kept.path(path).unlink()
            # An edit that nobody saw, deleted by the person who made it, is theirs to lose.
            if not self.known(content):
                self.erased.add(content)

    def delete_record(self) -> None:
        if path := self.file(self.chance.choice(("turns", "summary", "conflict"))):
            if ".conflict-v" in path:
                self.erased.add(self.kept.document(path).content)
            self.kept.path(path).unlink()

    def scribble(self) -> None:
        """Edit what is a record."""
        if path := self.file(self.chance.choice(("turns", "summary"))):
            self.count += 1
            text = f"text{self.count}x scribbled"
            self.kept.path(path).write_bytes(self.kept.path(path).read_bytes() + text.encode())
            self.wrote(text)

    def lose_cache(self) -> None:
        if self.chance.random() < 0.3:
            for path in (self.kept.root / ".reverie").glob("files.db*"):
                path.unlink()

    # -- what happens anyway ------------------------------------------------------------------

    def sync(self) -> None:
        if self.chance.random() < 0.3:
            self.kept.sync(*self.kept.files())
        else:
            self.kept.sync()

    def mirror(self) -> None:
        self.kept.mirror()

    def killed(self) -> None:
        act = self.chance.choice((self.sync, self.sync, self.mirror))
        with killing(self.chance):
            try:
                act()
            except Killed:
                return

    def known(self, content: str) -> bool:
        return any(content in text for text in self.texts())

    def texts(self) -> Iterator[str]:
        """Everything that either side still says."""
        for scope in scopes(self.kept.store):
            space = self.kept.store.space(scope.space, user=scope.shown_user)
            for record in space.export():
                body = record["body"] or {}
                yield body.get("content", "")
                yield str(body.get("message", {}).get("content", ""))
        for path in self.kept.root.rglob("*.md"):
            yield path.read_bytes().decode()


ACTS: tuple[tuple[int, str], ...] = (
    (6, "remember"),
    (5, "revise"),
    (3, "forget"),
    (3, "restore"),
    (2, "erase"),
    (4, "append"),
    (2, "hide"),
    (1, "summarise"),
    (4, "create"),
    (6, "edit"),
    (1, "strip"),
    (2, "label"),
    (3, "rename"),
    (4, "put_away"),
    (3, "delete"),
    (1, "delete_record"),
    (1, "scribble"),
    (1, "lose_cache"),
    (5, "sync"),
    (4, "mirror"),
    (16, "killed"),
)


@pytest.mark.parametrize("seed", (*range(SEEDS), *(each for each in FOUND if each >= SEEDS)))
def test_random_edits_of_store_and_vault_converge_without_loss(tmp_path: Path, seed: int) -> None:
    kept = Kept(tmp_path, turns="apart" if seed % 4 == 3 else "together")
    actions = VaultActions(kept, seed)
    weights = [weight for weight, _ in ACTS]
    for _ in range(STEPS):
        (_, act) = actions.chance.choices(ACTS, weights)[0]
        getattr(actions, act)()
        kept.clock.step(actions.chance.randrange(2000))
    kept.sync()
    # Many files that are gone at once wait for an answer; either one ends equal.
    kept.sync(missing="forget" if seed % 2 else "restore")
    kept.sync()
    take_conflicts_away(actions)
    take_copies_away(actions)
    assert_equal(kept)
    written = list(actions.texts())
    lost = [
        text
        for text in sorted(actions.written)
        if not any(text in each for each in written)
        and not any(text in each for each in actions.erased)
    ]
    assert not lost
    kept.close()


@pytest.mark.parametrize("seed", range(max(SEEDS // 5, 4)))
def test_deletions_in_any_pieces_forget_few_or_ask(tmp_path: Path, seed: int) -> None:
    """Whatever is deleted when: within a minute at most so much is forgotten unasked."""
    chance = random.Random(seed)
    kept = Kept(tmp_path, seed=seed)
    owners = {scope: chance.randrange(1, 40) for scope in OWNERS}
    paths = dict[str, tuple[Scope, str]]()
    for scope, many in owners.items():
        space = kept.store.space(scope.space, user=scope.user)
        for number in range(many):
            space.remember(f"fact {number} of {scope}")
    kept.sync()
    with Vault.open(kept.root) as vault:
        paths = {file.path: (file.scope, file.name) for file in vault.files.below("")
                 if file.what == "memory"}  # fmt: skip
    deleted = set[str]()
    for _ in range(chance.randrange(1, 8)):
        left = sorted(paths.keys() - deleted)
        piece = chance.sample(left, min(len(left), chance.choice((1, 2, 5, 15, 30))))
        for path in piece:
            kept.path(path).unlink()
        deleted.update(piece)
        report = kept.sync(*piece) if chance.random() < 0.5 else kept.sync()
        assert not report.conflicts
    gone = {paths[path] for path in deleted if _is_forgotten(kept, *paths[path])}
    for name in {scope.space for scope in owners}:
        total = sum(many for scope, many in owners.items() if scope.space == name)
        unasked = sum(scope.space == name for scope, _ in gone)
        assert unasked < MIN_FOR_SHARE or not needs_confirmation(unasked, total)
    assert {paths[path] for path in service.status(kept.store).missing} == (
        {paths[path] for path in deleted} - gone
    )
    kept.sync(missing="forget" if seed % 2 else "restore")
    for path in paths:
        wanted = path in deleted if seed % 2 else paths[path] in gone
        assert _is_forgotten(kept, *paths[path]) is wanted
    assert_equal(kept)
    kept.close()


def _is_forgotten(kept: Kept, scope: Scope, id: str) -> bool:
    space = kept.store.space(scope.space, user=scope.user)
    return space.get(id).forgotten_at is not None


def take_copies_away(actions: VaultActions) -> None:
    """After a kill between two names of a file, a person gave one of them a third: it is told."""
    for line in actions.kept.sync().problems:
        path, _, why = line.partition(": ")
        assert why.startswith("a copy of"), line
        actions.kept.path(path).unlink()


def take_conflicts_away(actions: VaultActions) -> None:
    """What was kept beside a file is a person's to remove."""
    for path in actions.kept.root.rglob("*.conflict-v*.md"):
        actions.erased.add(path.read_bytes().decode())
        path.unlink()
    actions.kept.sync()
