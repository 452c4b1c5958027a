"""Rewrite the whole history of a repository, so that erased content is nowhere in it.

Objects are read with ``cat-file --batch`` and written as one pack that ``index-pack`` checks.
``fast-export`` and ``fast-import`` are not used: they lose what they cannot express (encodings, odd
modes, further headers, tags of trees, older stashes), give every commit a new id, and pass a
content once however many paths it has. Here, an unchanged object keeps its bytes and its id.

Nothing is destroyed before all refs were switched in one transaction. A rewrite that was killed can
be run again, and does what is left to do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from reverie.errors import VaultError
from reverie.vault.git.objects import (
    CommitOrTag,
    PackWriter,
    TreeEntry,
    entries,
    person,
    places,
    tree_of,
)
from reverie.vault.git.process import (
    DEFAULT_AUTHOR,
    DEFAULT_EMAIL,
    LONG_TIMEOUT_SECONDS,
    Git,
    GitPipe,
)
from reverie.vault.git.repo import Repository, hash_name_of

ChangeBlob: TypeAlias = Callable[[str, bytes], bytes | None]
ChangeMessage: TypeAlias = Callable[[str], str]

# So many names are looked for in a tree one by one; for more it is read from end to end.
FEW = 40
_HELD_STASHES = "refs/reverie/stashes"
_SIGNED = (b"gpgsig", b"gpgsig-sha256")
_SIGNATURE = b"\n-----BEGIN "
# What git notes for its next command; none of it is needed once nothing is in progress.
_LEFT_OVER = (
    *("ORIG_HEAD", "FETCH_HEAD", "AUTO_MERGE", "REBASE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("COMMIT_EDITMSG", "MERGE_MSG", "MERGE_RR", "SQUASH_MSG", "TAG_EDITMSG", "NOTES_EDITMSG"),
    *("EDIT_DESCRIPTION", "ADD_EDIT.patch", "addp-hunk-edit.diff", "gc.log", "sharedindex.*"),
    *("fast_import_crash_*", "lost-found", "rr-cache", "next-index-*", "index.stash.*"),
    *("objects/info/commit-graph", "objects/info/commit-graphs", "objects/pack/*.keep"),
    *("objects/pack/multi-pack-index*", "objects/pack/*.bitmap"),
)


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """How much a rewrite changed; ``files`` counts a content once for each of its paths."""

    commits: int
    files: int
    messages: int
    refs: int


class Ref(NamedTuple):
    """A reference to an object; ``place`` is the git folder through which it is updated."""

    place: Path
    name: str
    id: bytes
    kind: bytes


class Staged(NamedTuple):
    """An entry of an index; ``away`` when the file is not in the work tree (skip-worktree)."""

    place: Path
    mode: bytes
    id: bytes
    stage: bytes
    path: bytes
    away: bool


def rewrite(
    repo: Repository, *, change_blob: ChangeBlob, change_message: ChangeMessage
) -> RewriteReport:
    """Every content at every path and every message of every ref goes through the two calls.

    None removes a file from that commit. Contents are passed once for each path, work tree files
    never. Authors, committers and dates stay; commits that become empty stay as well.
    """
    repo.require_quiet()
    git = repo.git
    _require_whole(git)
    try:
        return _rewrite(git, change_blob, change_message)
    except OSError as error:
        raise VaultError(f"history cannot be rewritten ({error}): repeat it later") from error


def _rewrite(git: Git, change_blob: ChangeBlob, change_message: ChangeMessage) -> RewriteReport:
    _restore_stashes(git)
    folders = [git.common(), *sorted(git.common().glob("worktrees/*/"))]
    refs = [ref for place in folders for ref in _refs(git, place)]
    refs = list(
        {(ref.place if _is_local(ref.name) else None, ref.name): ref for ref in refs}.values()
    )
    stashes = _stashes(git)
    staged = [entry for place in folders for entry in _staged(git, place)]
    with tempfile.TemporaryFile(dir=git.common() / "objects", prefix="tmp_reverie_") as file:
        pack = PackWriter(file, hash_name_of(git))
        with git.open_pipe("cat-file", "--batch") as talk:
            history = _HistoryRewriter(git, talk, pack, change_blob, change_message)
            history.look(refs, stashes, staged)
            new_refs = [(ref, history.renamed(ref), history.new(ref.id, ref.kind)) for ref in refs]
            held = history.held(stashes)
            new_staged = history.new_staged(staged)
        if len(pack):
            pack.finish()
            with git.open_pipe("index-pack", "--stdin", given=file):
                pass
    for place in folders:
        own = [(entry, line) for entry, line in new_staged if entry.place == place]
        _restage(git, place, own)
    if held is not None:
        git.run("update-ref", _HELD_STASHES, held.hex())
    switched = _switch(git, folders, new_refs)
    _clean(git, folders)
    return RewriteReport(history.commits, history.files, history.messages, switched)


class _HistoryRewriter:
    """Maps old objects to new ones; an object that stays maps to itself."""

    def __init__(
        self,
        git: Git,
        talk: GitPipe,
        pack: PackWriter,
        change_blob: ChangeBlob,
        change_message: ChangeMessage,
    ) -> None:
        self._git = git
        self._talk = talk
        self._pack = pack
        self._change_blob = change_blob
        self._change_message = change_message
        self._seen: set[bytes] = set()
        self._changed: dict[tuple[bytes, bytes], bytes | None] = {}
        # In each folder the names below which something changed in some version.
        self._names: dict[bytes, set[bytes]] = {}
        self._trees: dict[tuple[bytes, bytes], bytes] = {}
        self._commits: dict[bytes, bytes] = {}
        self._notes: set[bytes] = set()
        self.commits = self.files = self.messages = 0

    def look(self, refs: list[Ref], stashes: list[bytes], staged: list[Staged]) -> None:
        """First all contents: a folder with nothing changed in any version is never read."""
        notes = [ref for ref in refs if ref.name.startswith("refs/notes/")]
        others = [ref for ref in refs if ref not in notes]
        order = self._order([*(ref.id for ref in others), *stashes])
        known = set(order)
        # Notes are named after commits, so they come when those have their new names.
        last = [one for one in self._order([ref.id for ref in notes]) if one not in known]
        self._notes = set(last)
        self._look_through([*order, *last])
        for ref in refs:
            self._look_at(ref.id, ref.kind)
        for entry in staged:
            self._content(entry.path, entry.id)
        for path, _ in self._changed:
            while path:
                path, _, name = path.rpartition(b"/")
                self._names.setdefault(path, set()).add(name)
        for one in (*order, *last):
            self._commit(one)

    def new(self, name: bytes, kind: bytes) -> bytes | None:
        """None for a content that is removed altogether."""
        if kind == b"commit":
            return self._commits[name]
        if kind == b"tree":
            return self._tree(b"", name)
        if kind == b"blob":
            return self._changed.get((b"", name), name)
        return self._tag(name)

    def held(self, stashes: list[bytes]) -> bytes | None:
        """One commit that keeps all stashes: its parents are the new ones, oldest first, its
        message names those that they stand for."""
        if not stashes:
            return None
        nobody = f"{DEFAULT_AUTHOR} <{DEFAULT_EMAIL}> 0 +0000".encode()
        headers = (
            (b"tree", self._pack.add(b"tree", b"").hex().encode()),
            *((b"parent", self._commits[one].hex().encode()) for one in stashes),
            *((b"author", nobody), (b"committer", nobody)),
        )
        names = b"".join(one.hex().encode() + b"\n" for one in stashes)
        return self._pack.add(b"commit", CommitOrTag(headers, names).raw())

    def renamed(self, ref: Ref) -> str:
        """A replacement is named after what it replaces."""
        start, _, name = ref.name.rpartition("/")
        if start != "refs/replace":
            return ref.name
        return f"{start}/{self._commits.get(_bytes(name), _bytes(name)).hex()}"

    def new_staged(self, staged: list[Staged]) -> list[tuple[Staged, bytes]]:
        lines = []
        for entry in staged:
            new = self._changed.get((entry.path, entry.id), entry.id)
            if new is None:
                gone = b"0 " + b"0" * len(entry.id.hex())
                lines.append((entry._replace(away=False), b"%s\t%s\0" % (gone, entry.path)))
            elif new != entry.id:
                about = (entry.mode, new.hex().encode(), entry.stage, entry.path)
                lines.append((entry, b"%s %s %s\t%s\0" % about))
        return lines

    def _order(self, roots: Iterable[bytes]) -> list[bytes]:
        """Commits behind the roots, parents first."""
        asked = b"".join(one.hex().encode() + b"\n" for one in roots)
        if not asked:
            return []
        options = ("--topo-order", "--reverse", "--stdin")
        said = self._git.run("rev-list", *options, given=asked, seconds=LONG_TIMEOUT_SECONDS)
        return [bytes.fromhex(line.decode()) for line in said.split()]

    def _look_through(self, commits: list[bytes]) -> None:
        """What each commit brought against its first parent: the rest was looked at there."""
        with tempfile.TemporaryFile() as asked:
            for one in commits:
                parents = self._read(one).all(b"parent")
                asked.write(b" ".join([one.hex().encode(), *parents[:1]]) + b"\n")
            asked.seek(0)
            options = ("--stdin", "--root", "-r", "-z", "--no-renames", "--no-ext-diff")
            with self._git.open_pipe("diff-tree", *options, given=asked) as talk:
                said = talk.until_nul()
                for about in said:
                    if not about.startswith(b":"):
                        continue
                    _, mode, _, new, _ = about.split(b" ")
                    path = next(said)
                    if mode not in {b"000000", b"160000"}:
                        self._content(path, bytes.fromhex(new.decode()))

    def _look_at(self, name: bytes, kind: bytes) -> None:
        """Tags and refs may keep a tree or a content that no commit has."""
        while kind == b"tag":
            tag = CommitOrTag.parse(self._object(name)[1])
            name, kind = _bytes(tag.one(b"object").decode()), tag.one(b"type")
        if kind == b"blob":
            self._content(b"", name)
        elif kind == b"tree":
            for mode, path, one in _below(self._git, name):
                if mode != b"160000":
                    self._content(path, one)

    def _content(self, path: bytes, name: bytes) -> None:
        if name + path in self._seen:
            return
        self._seen.add(name + path)
        kind, old = self._object(name)
        if kind != b"blob":
            return
        new = self._change_blob(os.fsdecode(path), old)
        if new != old:
            self.files += 1
            self._changed[path, name] = None if new is None else self._pack.add(b"blob", new)

    def _tree(self, folder: bytes, name: bytes) -> bytes:
        """Only folders in which something changed in some version are read."""
        if folder not in self._names:
            return name
        known = self._trees.get((folder, name))
        if known is not None:
            return known
        raw = self._object(name)[1]
        touched = self._names.get(folder, set())
        if len(touched) > FEW:
            found = list(_placed(raw, len(name)))
        else:
            found = sorted(one for each in touched for one in places(raw, each, len(name)))
        pieces = []
        done = 0
        for at, entry in found:
            new = self._entry(folder, entry)
            if new != entry.id:
                pieces.append(raw[done:at])
                done = at + len(entry.raw())
                pieces.append(b"" if new is None else entry._replace(id=new).raw())
        written = name
        if pieces:
            written = self._pack.add(b"tree", b"".join([*pieces, raw[done:]]), like=folder)
        self._trees[folder, name] = written
        return written

    def _entry(self, folder: bytes, entry: TreeEntry) -> bytes | None:
        path = folder + b"/" + entry.name if folder else entry.name
        if not entry.is_tree:
            return self._changed.get((path, entry.id), entry.id)
        new = self._tree(path, entry.id)
        # Git knows no empty folders.
        return None if new != entry.id and new == self._empty() else new

    def _empty(self) -> bytes:
        return self._pack.id_of(b"tree", b"")

    def _notes_tree(self, name: bytes) -> bytes:
        """Notes under the new names of their commits, in one flat folder."""
        found = []
        same = True
        for mode, path, one in _below(self._git, name):
            new = self._changed.get((path, one), one)
            about = _bytes(path.replace(b"/", b"").decode("ascii", "replace"))
            renamed = self._commits.get(about, about)
            same = same and new == one and renamed == about
            if new is not None:
                flat = renamed.hex().encode() if about else path
                if b"/" in flat:
                    return self._tree(b"", name)
                found.append(TreeEntry(mode, flat, new))
        return name if same else self._pack.add(b"tree", tree_of(found))

    def _commit(self, name: bytes) -> None:
        old = self._read(name)
        tree = bytes.fromhex(old.one(b"tree").decode())
        new_tree = self._notes_tree(tree) if name in self._notes else self._tree(b"", tree)
        headers = []
        for key, value in old.headers:
            if key == b"tree":
                value = new_tree.hex().encode()
            elif key == b"parent":
                parent = _bytes(value.decode())
                value = self._commits.get(parent, parent).hex().encode()
            elif key == b"mergetag" and self._is_changed(value):
                continue
            headers.append((key, value))
        new = replace(old, headers=tuple(headers), message=self._message(old))
        if new != old:
            self.commits += 1
            kept = tuple(header for header in headers if header[0] not in _SIGNED)
            self._commits[name] = self._pack.add(b"commit", replace(new, headers=kept).raw())
        else:
            self._commits[name] = name

    def _tag(self, name: bytes) -> bytes | None:
        old = CommitOrTag.parse(self._object(name)[1])
        target = self.new(_bytes(old.one(b"object").decode()), old.one(b"type"))
        if target is None:
            return None
        headers = tuple(
            (key, target.hex().encode() if key == b"object" else value)
            for key, value in old.headers
            if key not in _SIGNED
        )
        message = self._message(old)
        if message == old.message and target.hex().encode() == old.one(b"object"):
            return name
        # A signature of what it no longer is.
        message = (b"\n" + message).partition(_SIGNATURE)[0][1:] or message
        if not message.endswith(b"\n"):
            message += b"\n"
        return self._pack.add(b"tag", replace(old, headers=headers, message=message).raw())

    def _message(self, old: CommitOrTag) -> bytes:
        text = old.text()
        new = self._change_message(text)
        if new == text:
            return old.message
        self.messages += 1
        return old.encoded(new)

    def _is_changed(self, value: bytes) -> bool:
        text = value.decode("utf-8", "surrogateescape")
        return self._change_message(text) != text

    def _object(self, name: bytes) -> tuple[bytes, bytes]:
        return self._talk.object(name.hex().encode())

    def _read(self, name: bytes) -> CommitOrTag:
        return CommitOrTag.parse(self._object(name)[1])


def _require_whole(git: Git) -> None:
    """What would make the erased come back, or be looked for elsewhere."""
    pattern = (
        r"^(gc\.recentobjectshook|extensions\.(refstorage|partialclone|preciousobjects)"
        r"|remote\..*\.promisor)$"
    )
    said = git.run("config", "--includes", "-z", "--get-regexp", pattern, fine=(0, 1))
    bad = [
        entry.partition(b"\n")[0].decode("utf-8", "replace")
        for entry in said.split(b"\0")[:-1]
        if entry != b"extensions.refstorage\nfiles"
    ]
    if bad:
        raise VaultError(f"history with the setting {bad[0]!r} cannot be rewritten: remove it")
    if (git.common() / "shallow").exists():
        raise VaultError("a part of the history is not here: run 'git fetch --unshallow' first")


def _refs(git: Git, place: Path) -> Iterator[Ref]:
    """All but those that only name another one; a HEAD counts when it is on no branch."""
    there = replace(git, folder=place)
    shape = "--format=%(objectname) %(objecttype) %(refname)%00%(symref)"
    for line in there.run("for-each-ref", shape).splitlines():
        about, _, symbolic = line.partition(b"\0")
        name, kind, ref = about.split(b" ", 2)
        if not symbolic:
            yield Ref(place, os.fsdecode(ref), bytes.fromhex(name.decode()), kind)
    if there.query_line("symbolic-ref", "-q", "HEAD") is None:
        found = there.query_line("rev-parse", "-q", "--verify", "HEAD")
        if found is not None:
            yield Ref(place, "HEAD", bytes.fromhex(found), b"commit")


def _is_local(name: str) -> bool:
    """Refs that each work tree has for itself."""
    return name.startswith(("HEAD", "refs/worktree/", "refs/bisect/", "refs/rewritten/"))


def _stashes(git: Git) -> list[bytes]:
    """Oldest first. All but the newest are in the log of their ref only, if it has one."""
    newest = git.query_line("rev-parse", "-q", "--verify", "refs/stash")
    if newest is None:
        return []
    lines = git.run("rev-list", "-g", "refs/stash", "--").decode().split()
    return [bytes.fromhex(line) for line in reversed(lines or [newest])]


def _restore_stashes(git: Git) -> None:
    """From the one ref that holds them while the logs are emptied: it goes when all are back.

    What was stashed since is kept as well; what the held ones stand for is not.
    """
    found = git.query_line("rev-parse", "-q", "--verify", _HELD_STASHES)
    if found is None:
        return
    held = CommitOrTag.parse(git.run("cat-file", "commit", found))
    ids = [bytes.fromhex(one.decode()) for one in held.all(b"parent")]
    replaced = {bytes.fromhex(line) for line in held.text().split()}
    there = _stashes(git)
    ids += [one for one in there if one not in ids and one not in replaced]
    if there:
        git.run("update-ref", "-d", "refs/stash")
    for one in ids:
        commit = CommitOrTag.parse(git.run("cat-file", "commit", one.hex()))
        when = {"GIT_COMMITTER_DATE": f"@{person(commit.one(b'committer'))[1]} +0000"}
        subject = commit.text().partition("\n")[0].encode("utf-8", "replace").decode()
        options = ("--create-reflog", "-m", subject.replace("\0", "") or "stash")
        git.run("update-ref", *options, "refs/stash", one.hex(), more=when)
    git.run("update-ref", "-d", _HELD_STASHES)


def _staged(git: Git, place: Path) -> Iterator[Staged]:
    if not (place / "index").exists():
        return
    for line in replace(git, folder=place).run("ls-files", "-s", "-t", "-z").split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        tag, mode, name, stage = about.split(b" ")
        if mode != b"160000":
            yield Staged(place, mode, bytes.fromhex(name.decode()), stage, path, tag == b"S")


def _restage(git: Git, place: Path, changed: list[tuple[Staged, bytes]]) -> None:
    """Write the git index again, even if nothing changed: it may hold more than what is staged."""
    if not (place / "index").exists():
        return
    there = replace(git, folder=place)
    lines = b"".join(line for _, line in changed)
    options = ("--force-write-index", "--clear-resolve-undo", "-z", "--index-info")
    there.run("update-index", *options, given=lines)
    # What is not in the work tree would else be taken for deleted.
    away = b"".join(entry.path + b"\0" for entry, _ in changed if entry.away)
    if away:
        there.run("update-index", "--skip-worktree", "-z", "--stdin", given=away)


def _switch(git: Git, folders: list[Path], refs: list[tuple[Ref, str, bytes | None]]) -> int:
    """All refs of a work tree in one transaction, which fails if one of them moved meanwhile."""
    count = 0
    for place in folders:
        lines = []
        for ref, name, new in refs:
            if ref.place != place or (new == ref.id and name == ref.name):
                continue
            count += 1
            if new is not None and name == ref.name:
                lines.append(f"update {name}\0{new.hex()}\0{ref.id.hex()}\0")
                continue
            lines.append(f"delete {ref.name}\0{ref.id.hex()}\0")
            if new is not None:
                lines.append(f"update {name}\0{new.hex()}\0\0")
        given = b"".join(b"option no-deref\0" + os.fsencode(line) for line in lines)
        replace(git, folder=place).run(
            "update-ref", "-m", "rewritten", "--stdin", "-z", given=given
        )
    return count


def _clean(git: Git, folders: list[Path]) -> None:
    """Everything that no ref and no index holds goes."""
    git.run("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all")
    _restore_stashes(git)
    for place in folders:
        for pattern in _LEFT_OVER:
            for path in place.glob(pattern):
                _remove(path)
    quiet = ("-c", "repack.writeBitmaps=false", "-c", "repack.updateServerInfo=false")
    git.run(*quiet, "repack", "-a", "-d", "-l", "-q", seconds=LONG_TIMEOUT_SECONDS)
    git.run("prune", "--expire=now", seconds=LONG_TIMEOUT_SECONDS)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise VaultError(f"{path} cannot be removed ({error}): remove it by hand") from error


def _below(git: Git, tree: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, path and id of all files of a tree."""
    for line in git.run("ls-tree", "-r", "-z", tree.hex()).split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, _, name = about.split(b" ")
        yield mode, path, bytes.fromhex(name.decode())


def _placed(raw: bytes, id_size: int) -> Iterator[tuple[int, TreeEntry]]:
    at = 0
    try:
        for entry in entries(raw, id_size):
            yield at, entry
            at += len(entry.raw())
    except ValueError as error:
        raise VaultError("a tree is damaged: run 'git fsck' in the vault") from error


def _bytes(name: str) -> bytes:
    """An id, or nothing for what is none."""
    try:
        found = bytes.fromhex(name)
    except ValueError:
        return b""
    return found if len(found) in {20, 32} else b""
