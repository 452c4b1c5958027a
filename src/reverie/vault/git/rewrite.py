"""Rewrite the whole history of a repository, so that erased content is nowhere in it.

The commits that hold erased content, and those after them, are read with ``git fast-export``,
changed through git-filter-repo and written with ``git fast-import``; all others keep their bytes
and their ids. What that stream cannot express is written separately: tags, and headers that git
does not know.

Nothing is destroyed before all refs were switched in one transaction. A rewrite that was killed can
be run again, and does what is left to do.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from reverie.errors import MissingExtra, VaultError
from reverie.vault.disk import write
from reverie.vault.git.objects import CommitOrTag, object_id
from reverie.vault.git.process import LONG_TIMEOUT_SECONDS, Git, GitPipe
from reverie.vault.git.repo import Repository, hash_name_of

ChangeBlob: TypeAlias = Callable[[str, bytes], bytes | None]
ChangeMessage: TypeAlias = Callable[[str], str]

_STREAM_REF = b"refs/reverie/rewritten"
_SIGNED = (b"gpgsig", b"gpgsig-sha256")
_PLAIN_HEADERS = {b"tree", b"parent", b"author", b"committer", b"encoding", *_SIGNED}
_PERSON = re.compile(rb"[^<>\n]* <[^<>\n]*> \d+ [+-]\d{4}")
# Numbers of objects in a stream are smaller than this, ids of 64 digits larger.
_FIRST_ID = 1 << 64
_MODES = {b"100644", b"100755", b"120000", b"160000"}
_SIGNATURE = b"\n-----BEGIN "
# Files that git keeps for its next command; none is needed when nothing is in progress.
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
    id: bytes  # of an object, in hexadecimal, as everywhere here
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
    """Pass every content at every path, and every message of every ref, through the two calls.

    None removes a file from that commit. Contents are passed once for each path, work tree files
    never. Authors, committers and dates stay; commits that become empty stay as well.
    """
    filter_repo = load_filter_repo()
    with _writable(repo) as git:
        sources = _Sources.of(git)
        with git.open_pipe("cat-file", "--batch") as objects:
            history = _History(git, objects, sources)
            rewriter = _Rewriter(history, filter_repo, change_blob, change_message)
            rewriter.run()
            new_refs = [
                (ref, rewriter.renamed(ref), rewriter.new(ref.id, ref.kind)) for ref in sources.refs
            ]
            new_staged = rewriter.new_staged()
        for place in sources.folders:
            _restage(git, place, [pair for pair in new_staged if pair[0].place == place])
        switched = _switch(git, sources.folders, new_refs)
        _write_stash_log(git, rewriter)
        _clean(git, sources.folders)
        return RewriteReport(rewriter.commits, rewriter.files, rewriter.messages, switched)


def read_contents(repo: Repository, visit: Callable[[str, bytes], object]) -> None:
    """Call ``visit`` with each content of the history and the index, once for each of its paths."""
    with _writable(repo) as git, git.open_pipe("cat-file", "--batch") as objects:
        history = _History(git, objects, _Sources.of(git))
        for path, name in history.contents():
            visit(os.fsdecode(path), history.object(name)[1])


def load_filter_repo() -> ModuleType:
    """Load git-filter-repo, once for each rewrite: it numbers objects in global variables."""
    spec = importlib.util.find_spec("git_filter_repo")
    if spec is None or spec.loader is None:
        raise MissingExtra("rewriting the history of a vault", "vault")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _writable(repo: Repository) -> Iterator[Git]:
    repo.require_quiet()
    git = repo.git
    _require_whole(git)
    try:
        yield git
    except OSError as error:
        raise VaultError(f"history cannot be rewritten ({error}): repeat it later") from error


@dataclass(frozen=True, slots=True)
class _Sources:
    """Everything that keeps objects of a repository reachable."""

    folders: list[Path]
    refs: list[Ref]
    stashes: list[bytes]
    staged: list[Staged]

    @classmethod
    def of(cls, git: Git) -> _Sources:
        folders = _folders(git)
        refs = {
            (ref.place if _is_local(ref.name) else None, ref.name): ref
            for place in folders
            for ref in _refs(git, place)
        }
        staged = [entry for place in folders for entry in _staged(git, place)]
        stashes = [name for name, _ in _stashes(git)]
        return cls(folders, list(refs.values()), stashes, staged)


class _History:
    """Reads the commits of a repository, and what each of them changed."""

    def __init__(self, git: Git, objects: GitPipe, sources: _Sources) -> None:
        self.git = git
        self.object = objects.object
        self.sources = sources
        self.parents: dict[bytes, list[bytes]] = {}
        # Temporary commits, by the tree that a ref or a tag names without a commit.
        self.tree_commits: dict[bytes, bytes] = {}
        self._blobs: list[bytes] = []
        for ref in sources.refs:
            self._add_target(ref.id, ref.kind)
        notes = [ref.id for ref in sources.refs if ref.name.startswith("refs/notes/")]
        others = [ref.id for ref in sources.refs if not ref.name.startswith("refs/notes/")]
        self.commits = self._order([*others, *sources.stashes, *self.tree_commits.values()])
        # Notes are named after commits, so they are rewritten after these have their new ids.
        known = set(self.commits)
        self.notes = [one for one in self._order(notes) if one not in known]

    def read(self, name: bytes) -> CommitOrTag:
        return CommitOrTag.parse(self.object(name)[1])

    def contents(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield path and id of each content, once for each of its paths."""
        seen = set[tuple[bytes, bytes]]()
        changes = ((path, name) for _, path, name in self.changes([*self.commits, *self.notes]))
        others = ((b"", name) for name in self._blobs)
        staged = ((entry.path, entry.id) for entry in self.sources.staged)
        for found in chain(changes, others, staged):
            if found[1] and found not in seen:
                seen.add(found)
                yield found

    def changes(self, commits: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield the changes of each commit against its first parent: commit, path and content id.

        The id is empty for a file that was removed.
        """
        with tempfile.TemporaryFile() as asked:
            for one in commits:
                if one not in self.parents:
                    self.parents[one] = self.read(one).all(b"parent")
                asked.write(b" ".join([one, *self.parents[one][:1]]) + b"\n")
            asked.seek(0)
            options = ("--stdin", "--root", "-r", "-z", "--no-renames", "--no-ext-diff")
            with self.git.open_pipe("diff-tree", *options, given=asked) as pipe:
                commit, output = b"", pipe.until_nul()
                for entry in output:
                    if not entry.startswith(b":"):
                        commit = entry
                        continue
                    _, mode, _, new, _ = entry.split(b" ")
                    path = next(output)
                    if mode != b"160000":
                        yield commit, path, b"" if mode == b"000000" else new

    def _add_target(self, name: bytes, kind: bytes) -> None:
        """Add the tree or content that a ref or tag names, since no commit may have it."""
        while kind == b"tag":
            tag = self.read(name)
            name, kind = tag.one(b"object"), tag.one(b"type")
        if kind == b"blob":
            self._blobs.append(name)
        elif kind == b"tree" and name not in self.tree_commits:
            self.tree_commits[name] = self.git.run("commit-tree", name.decode()).strip()

    def _order(self, roots: Iterable[bytes]) -> list[bytes]:
        """Return the commits reachable from the roots, parents first."""
        given = b"".join(one + b"\n" for one in roots)
        if not given:
            return []
        options = ("--topo-order", "--reverse", "--stdin")
        return self.git.run("rev-list", *options, given=given, seconds=LONG_TIMEOUT_SECONDS).split()


class _Rewriter:
    """Maps old objects to new ones; an object that stays maps to itself."""

    def __init__(
        self,
        history: _History,
        filter_repo: ModuleType,
        change_blob: ChangeBlob,
        change_message: ChangeMessage,
    ) -> None:
        self._history = history
        self._git = history.git
        self._filter_repo = filter_repo
        self._change_blob = change_blob
        self._change_message = change_message
        self._hash_name = hash_name_of(history.git)
        self.nothing = b"0" * len(object_id(b"blob", b"", self._hash_name))
        # Contents that change, with their new ids; None where the file is removed.
        self._changed: dict[tuple[bytes, bytes], bytes | None] = {}
        self._messages: dict[bytes, bytes] = {}
        self._commits: dict[bytes, bytes] = {}
        self.files = self.messages = 0

    @property
    def commits(self) -> int:
        return len(self._commits.keys() - self._history.tree_commits.values())

    def run(self) -> None:
        """Write all new contents and commits, without updating any ref."""
        history = self._history
        with self._git.open_pipe("fast-import", "--quiet") as importer:
            for path, name in history.contents():
                self._content(importer, path, name)
        for one in (*history.commits, *history.notes):
            commit = history.read(one)
            message = self._message(commit)
            if message != commit.message or any(map(self._is_changed, commit.all(b"mergetag"))):
                self._messages[one] = message
        self._write_commits(history.commits, lambda path: path)
        self._write_commits(history.notes, self._note_path)

    def new(self, name: bytes, kind: bytes) -> bytes | None:
        """Return the new id of an object; None for a content that is removed altogether."""
        if kind == b"commit":
            return self._commits.get(name, name)
        if kind == b"tree":
            commit = self._history.tree_commits[name]
            return self._history.read(self._commits.get(commit, commit)).one(b"tree")
        if kind == b"blob":
            return self._changed.get((b"", name), name)
        return self._tag(name)

    def renamed(self, ref: Ref) -> str:
        """Return the new name of a ref: a replacement is named after what it replaces."""
        start, _, name = ref.name.rpartition("/")
        if start != "refs/replace":
            return ref.name
        return f"{start}/{self._commits.get(name.encode(), name.encode()).decode()}"

    def new_staged(self) -> list[tuple[Staged, bytes]]:
        """Return the entries of each index that change, with input for ``update-index``."""
        lines = []
        for entry in self._history.sources.staged:
            new = self._changed.get((entry.path, entry.id), entry.id)
            if new is None:
                gone = b"0 " + b"0" * len(entry.id)
                lines.append((entry._replace(away=False), b"%s\t%s\0" % (gone, entry.path)))
            elif new != entry.id:
                about = (entry.mode, new, entry.stage, entry.path)
                lines.append((entry, b"%s %s %s\t%s\0" % about))
        return lines

    def _content(self, importer: GitPipe, path: bytes, name: bytes) -> None:
        kind, old = self._history.object(name)
        if kind != b"blob":
            return
        new = self._change_blob(os.fsdecode(path), old)
        if new == old:
            return
        self.files += 1
        self._changed[path, name] = None
        if new is not None:
            importer.write(b"blob\ndata %d\n" % len(new), new, b"\n")
            self._changed[path, name] = object_id(b"blob", new, self._hash_name).encode()

    def _note_path(self, path: bytes) -> bytes:
        """Return the path of a note under the new name of its commit."""
        return self._commits.get(path.replace(b"/", b""), path)

    def _write_commits(self, commits: list[bytes], path_of: Callable[[bytes], bytes]) -> None:
        """Write the commits that change, and all after them."""
        touched = self._messages.keys() & commits
        for commit, path, name in self._history.changes(commits):
            if (path, name) in self._changed or path_of(path) != path:
                touched.add(commit)
        parents = self._history.parents
        for one in commits:
            if not touched.isdisjoint(parents[one]):
                touched.add(one)
        if not touched:
            return
        before = {parent for one in touched for parent in parents[one]}
        lines = [*(touched - before), *(b"^" + one for one in before - touched)]
        with tempfile.TemporaryDirectory(prefix="reverie-rewrite-") as folder:
            marks = Path(folder) / "marks"
            marked = self._import(b"\n".join(lines), path_of, marks)
            for line in marks.read_bytes().splitlines():
                mark, new = line[1:].split()
                self._commits[marked[int(mark)]] = new
        missing = touched - self._commits.keys()
        if missing:
            raise VaultError("not every commit could be rewritten: run 'git fsck' in the vault")
        self._restore_headers([one for one in commits if one in touched])

    def _import(
        self, revisions: bytes, path_of: Callable[[bytes], bytes], marks: Path
    ) -> dict[int, bytes]:
        """Run commits through git-filter-repo's parser, and return their marks in ``marks``."""
        parts, marked = self._filter_repo, dict[int, bytes]()

        def change_file(change: Any) -> Any:
            path, name = path_of(change.filename), _hex(change.blob_id)
            new = self._changed.get((change.filename, name), name)
            if change.type == b"D" or new is None:
                return parts.FileChange(b"D", path)
            return parts.FileChange(b"M", path, new, change.mode)

        def change_commit(commit: Any, _: object) -> None:
            marked[commit.id] = commit.original_id
            commit.branch = _STREAM_REF
            commit.message = self._messages.get(commit.original_id, commit.message)
            commit.parents = [
                one if isinstance(one, int) and one < _FIRST_ID else _hex(one)
                for one in commit.parents
            ]
            # Removals first: where a file was, a folder may be now.
            changes = map(change_file, commit.file_changes)
            commit.file_changes = sorted(changes, key=lambda change: change.type != b"D")

        parser = parts.FastExportParser(
            commit_callback=change_commit, reset_callback=lambda reset: reset.skip()
        )
        reading = ("--no-data", "--show-original-ids", "--reference-excluded-parents")
        export = ("fast-export", *reading, "--reencode=no", "--use-done-feature", "--stdin")
        writing = ("--quiet", "--force", "--date-format=raw-permissive")
        importing = ("-c", "core.ignoreCase=false", "fast-import", *writing)
        with (
            tempfile.TemporaryFile() as given,
            self._git.open_pipe(*importing, f"--export-marks={marks}") as importer,
        ):
            given.write(revisions)
            given.seek(0)
            importer.write(b"feature done\n")
            with self._git.open_pipe(*export, given=given) as exporter:
                try:
                    parser.run(_ExportReader(exporter), SimpleNamespace(write=importer.write))
                except (SystemExit, AttributeError, AssertionError, ValueError) as error:
                    raise VaultError(f"history cannot be parsed ({error})") from error
            # The stream needs a ref. Reset to no commit at the end, it is never written.
            importer.write(b"reset %s\nfrom %s\n\ndone\n" % (_STREAM_REF, self.nothing))
        return marked

    def _restore_headers(self, commits: list[bytes]) -> None:
        """Write commits again whose headers the stream lost, and their descendants."""
        again = set[bytes]()
        for one in commits:
            old = self._history.read(one)
            if not _has_odd_headers(old) and again.isdisjoint(self._history.parents[one]):
                continue
            again.add(one)
            headers = []
            for key, value in old.headers:
                if key == b"tree":
                    value = self._history.read(self._commits[one]).one(b"tree")
                elif key == b"parent":
                    value = self._commits.get(value, value)
                elif key in _SIGNED or (key == b"mergetag" and self._is_changed(value)):
                    continue
                headers.append((key, value))
            message = self._messages.get(one, old.message)
            raw = replace(old, headers=tuple(headers), message=message).raw()
            self._commits[one] = self._store(b"commit", raw)

    def _tag(self, name: bytes) -> bytes | None:
        old = self._history.read(name)
        target = self.new(old.one(b"object"), old.one(b"type"))
        if target is None:
            return None
        message = self._message(old)
        if message == old.message and target == old.one(b"object"):
            return name
        headers = tuple(
            (key, target if key == b"object" else value)
            for key, value in old.headers
            if key not in _SIGNED
        )
        # The signature is of the old message, so it is dropped.
        message = (b"\n" + message).partition(_SIGNATURE)[0][1:] or message
        if not message.endswith(b"\n"):
            message += b"\n"
        return self._store(b"tag", replace(old, headers=headers, message=message).raw())

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

    def _store(self, kind: bytes, raw: bytes) -> bytes:
        options = ("-w", "--stdin", "--literally", "-t", kind.decode())
        return self._git.run("hash-object", *options, given=raw).strip()


class _ExportReader:
    """The output of ``fast-export``, in lines that git-filter-repo can parse.

    git-filter-repo knows ids of 40 digits only, so a longer one is passed as a number. A malformed
    author is replaced here, and restored by ``_restore_headers``.
    """

    def __init__(self, pipe: GitPipe) -> None:
        self.read = pipe.exactly
        self._pipe = pipe

    def readline(self) -> bytes:
        line = self._pipe.line()
        if line.startswith(b"feature "):
            line = self._pipe.line()
        if line == b"done":
            return b""
        key, _, value = line.partition(b" ")
        if key in {b"author", b"committer"} and not _PERSON.fullmatch(value):
            value = b"x <x> 0 +0000"
        elif key == b"M":
            mode, name, path = value.split(b" ", 2)
            if mode not in _MODES:
                mode = b"100755" if int(mode, 8) & 0o111 else b"100644"
            value = b"%s %s %s" % (mode, _short(name), path)
        elif key in {b"from", b"merge"}:
            value = _short(value)
        return b"%s %s\n" % (key, value) if value else line + b"\n"


def _short(name: bytes) -> bytes:
    return b":%d" % int(name, 16) if len(name) == 64 else name


def _hex(name: bytes | int | None) -> bytes:
    return b"%064x" % name if isinstance(name, int) else name or b""


def _has_odd_headers(commit: CommitOrTag) -> bool:
    """Whether a commit has headers that a stream of ``fast-export`` loses."""
    names = [name for name, _ in commit.headers]
    people = commit.all(b"author") + commit.all(b"committer")
    return (
        not _PLAIN_HEADERS.issuperset(names)
        or b"\0" in commit.message
        or not all(map(_PERSON.fullmatch, people))
    )


def _require_whole(git: Git) -> None:
    """Raise VaultError if erased objects would stay, or if a part of the history is elsewhere."""
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
        raise VaultError(f"the git setting {bad[0]!r} prevents rewriting the history: remove it")
    if (git.common() / "shallow").exists():
        raise VaultError("the repository is a shallow clone: run 'git fetch --unshallow' first")
    for logs in (place / "logs" for place in _folders(git)):
        for path in chain([logs], logs.rglob("*")):
            if path.is_symlink():
                raise VaultError(
                    f"{path} is a symbolic link, but a rewrite empties git's logs: remove the link"
                )


def _folders(git: Git) -> list[Path]:
    """Return the git folder, and those of linked work trees."""
    return [git.common(), *sorted(git.common().glob("worktrees/*/"))]


def _refs(git: Git, place: Path) -> Iterator[Ref]:
    """Yield all refs except symbolic ones, and HEAD if it is detached."""
    there = replace(git, folder=place)
    shape = "--format=%(objectname) %(objecttype) %(refname)%00%(symref)"
    for line in there.run("for-each-ref", shape).splitlines():
        about, _, symbolic = line.partition(b"\0")
        name, kind, ref = about.split(b" ", 2)
        if not symbolic:
            yield Ref(place, os.fsdecode(ref), name, kind)
    if there.query_line("symbolic-ref", "-q", "HEAD") is None:
        found = there.query_line("rev-parse", "-q", "--verify", "HEAD")
        if found is not None:
            yield Ref(place, "HEAD", found.encode(), b"commit")


def _is_local(name: str) -> bool:
    """Whether each work tree has a ref of this name for itself."""
    return name.startswith(("HEAD", "refs/worktree/", "refs/bisect/", "refs/rewritten/"))


def _stash_log(git: Git) -> Path:
    """Return the log of the stashes, the only place that names all but the newest."""
    return git.common() / "logs" / "refs" / "stash"


def _stashes(git: Git) -> list[tuple[bytes, bytes]]:
    """Return the commit of each stash, and who made it when; oldest first."""
    try:
        lines = _stash_log(git).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    entries = (line.partition(b"\t")[0].split(b" ", 2) for line in lines)
    return [(entry[1], entry[2]) for entry in entries if len(entry) == 3]


def _write_stash_log(git: Git, rewriter: _Rewriter) -> None:
    """Write the log of the stashes with their new ids and subjects.

    Updating the ref added a line. After a kill before this, the newest stash is listed twice.
    """
    log, last = b"", rewriter.nothing
    for old, person in _stashes(git):
        new = rewriter.new(old, b"commit") or old
        if new != last:
            subject = CommitOrTag.parse(git.run("cat-file", "commit", new.decode())).message
            log += b"%s %s %s\t%s\n" % (last, new, person, subject.partition(b"\n")[0])
            last = new
    if log:
        write(_stash_log(git), log)


def _staged(git: Git, place: Path) -> Iterator[Staged]:
    if not (place / "index").exists():
        return
    for line in replace(git, folder=place).run("ls-files", "-s", "-t", "-z").split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        tag, mode, name, stage = about.split(b" ")
        if mode != b"160000":
            yield Staged(place, mode, name, stage, path, tag == b"S")


def _restage(git: Git, place: Path, changed: list[tuple[Staged, bytes]]) -> None:
    """Write the git index again, even if nothing changed: its extensions may name old objects."""
    if not (place / "index").exists():
        return
    there = replace(git, folder=place)
    lines = b"".join(line for _, line in changed)
    options = ("--force-write-index", "--clear-resolve-undo", "-z", "--index-info")
    there.run("update-index", *options, given=lines)
    # Without this flag, git takes files that are not in the work tree for deleted.
    away = b"".join(entry.path + b"\0" for entry, _ in changed if entry.away)
    if away:
        there.run("update-index", "--skip-worktree", "-z", "--stdin", given=away)


def _switch(git: Git, folders: list[Path], refs: list[tuple[Ref, str, bytes | None]]) -> int:
    """Update the refs of each work tree in one transaction; it fails if a ref moved meanwhile."""
    count = 0
    for place in folders:
        lines = []
        for ref, name, new in refs:
            if ref.place != place or (new == ref.id and name == ref.name):
                continue
            count += 1
            if new is not None and name == ref.name:
                lines.append(f"update {name}\0{new.decode()}\0{ref.id.decode()}\0")
                continue
            lines.append(f"delete {ref.name}\0{ref.id.decode()}\0")
            if new is not None:
                lines.append(f"update {name}\0{new.decode()}\0\0")
        given = b"".join(b"option no-deref\0" + os.fsencode(line) for line in lines)
        replace(git, folder=place).run(
            "update-ref", "-m", "rewritten", "--stdin", "-z", given=given
        )
    return count


def _clean(git: Git, folders: list[Path]) -> None:
    """Remove all objects and files of git that no ref and no index needs."""
    for place in folders:
        for path in (place / "logs").rglob("*"):
            if path.is_file() and path != _stash_log(git):
                write(path, b"", sync=False)
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
