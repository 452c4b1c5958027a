"""The git repository of a vault: commit exactly the changed files, and show log and diffs.

A commit costs three processes: ``git fast-import`` compares and stores content that this module
reads itself, ``update-index`` adds it to the index, and ``update-ref`` to the branch. So git never
reads the work tree: filters, hooks and attributes have no effect, and what somebody else staged
stays staged. If the process is killed in between, a change may be staged and not yet committed.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from reverie.clock import SystemClock
from reverie.errors import VaultError
from reverie.protocols import Clock
from reverie.vault.disk import make_folder
from reverie.vault.git.commit_policy import CommitPolicy, Kinds
from reverie.vault.git.objects import CommitOrTag, object_id, person
from reverie.vault.git.process import (
    DEFAULT_AUTHOR,
    DEFAULT_EMAIL,
    PRIVATE_MODE,
    Git,
    GitPipe,
    MetaStore,
    find_git,
)
from reverie.vault.git.worktree import (
    WorkTree,
    add_missing_lines,
    check_path,
    quote_path,
)
from reverie.write.secret_policy import Redaction

IGNORED = (
    ".reverie/files.db*",
    ".reverie/lock",
    # 'vault init' sets which spaces the vault shows, not a commit that is checked out.
    ".reverie/vault.json",
    "*.tmp",
    "*.swp",
    ".DS_Store",
    ".obsidian/workspace*",
)
# No diffs of files that Reverie rewrites with every change: they would hide the others in
# 'git log -p'.
ATTRIBUTES = ("* -text", ".reverie/** -diff", "MEMORY.md -diff")
SUBJECT = 100
NAME = 80
ATTEMPTS = 3
# Paths that are asked about together; their names fit into a pipe, however long they are.
AT_ONCE = 8
_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisect",
}
_PRIVATE_REF = "refs/worktree/reverie"
_TURNED = {"\u2028", "\u2029", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
_IMPORT = (
    *("-c", "core.ignoreCase=false", "-c", "pack.compression=1"),
    *("fast-import", "--quiet", "--force"),
)
# A line that makes ``fast-import`` end without writing the commit that it has begun.
_ABORT = b"M 0\n"
_ABSENT = (b"", b"")
# The modes of a folder, and of a nested repository, which is not a file of the vault.
_FOLDER, _NESTED = b"040000", b"160000"
# Settings that may name a program, or that a new repository does not have: then git is asked.
_SPECIAL = re.compile(
    rb"hook|include|worktreeconfig|objectformat|filemode(?![ \t]*=[ \t]*true$)", re.I | re.M
)
_FALSE = {"false", "no", "off", "0", ""}
Stored: TypeAlias = dict[str, tuple[bytes, bytes]]
_COMMIT_ID = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One commit: ``at`` in milliseconds, ``paths`` as changed against its first parent."""

    id: str
    author: str
    at: int
    subject: str
    body: str
    paths: tuple[str, ...]


class Repository:
    """The repository whose top folder is ``root``. Changes require the lock of the vault."""

    def __init__(
        self,
        root: Path,
        *,
        program: str = "git",
        clock: Clock | None = None,
        policy: CommitPolicy | None = None,
    ) -> None:
        self.root = root.absolute()
        self._program = program
        self._clock = clock or SystemClock()
        self._policy = policy or CommitPolicy(Redaction())
        # Files that commits of this object left out, and the kinds of secrets that they hold.
        self.withheld: dict[str, Kinds] = {}

    @classmethod
    def at(
        cls,
        root: Path,
        *,
        clock: Clock | None = None,
        policy: CommitPolicy | None = None,
        facts: MetaStore | None = None,
    ) -> Repository | None:
        """Open the repository of a folder; None without git 2.30 or newer."""
        program = find_git(root, facts)
        return None if program is None else cls(root, program=program, clock=clock, policy=policy)

    @property
    def git(self) -> Git:
        """Git for this repository, resolved on each use since a ``.git`` file may change."""
        return Git(self._program, self.root, _git_folder(self.root))

    def init(self) -> None:
        """Create the repository, ``.gitignore`` and ``.gitattributes`` if missing; commit these."""
        dot = self.root / ".git"
        if not dot.is_file() and not (dot / "HEAD").is_file():
            self._make()
        wrote = add_missing_lines(self.root / ".gitignore", IGNORED)
        wrote |= self._write_attributes()
        if wrote or self._head(self.git) is None:
            self.commit([".gitignore", ".gitattributes"], "vault init", author="")

    def _write_attributes(self) -> bool:
        """Write our attributes, unless a person changed those of an earlier version."""
        path, ours = self.root / ".gitattributes", f"{ATTRIBUTES[0]}\n".encode()
        try:
            unchanged = not os.path.lexists(path) or path.read_bytes() == ours
        except OSError:
            return False
        return unchanged and add_missing_lines(path, ATTRIBUTES)

    def _make(self) -> None:
        make_folder(self.root)
        git = Git(self._program, self.root, self.root / ".git")
        with tempfile.TemporaryDirectory() as empty:
            git.run("init", "-q", f"--template={empty}", "--initial-branch=main")

    def keep_private(self) -> None:
        """Configure the repository so that git creates files readable by the owner only.

        A setting of the owner's is kept; a repository outside the vault is left alone.
        """
        name, git = "core.sharedRepository", self.git
        dot, config = self.root / ".git", self.root / ".git" / "config"
        if dot.is_symlink() or config.is_symlink() or not config.is_file():
            return
        if git.query_line("config", "--local", "--get", name) is None:
            git.run("config", "--local", name, PRIVATE_MODE)

    def commit(self, paths: Iterable[str], message: str, *, author: str) -> str | None:
        """Commit these files and folders as they are on disk; None when nothing changed.

        Files with a secret are left out, and listed in ``withheld``.
        """
        given = sorted({check_path(path) for path in paths})
        if not given:
            return None
        git = self.git
        git.require_no_lock("index.lock")
        tree = self._ready(git)
        names = self._expand_folders(git, tree, given)
        about = _message(self._policy.message(message)), _person(self._policy.message(author))
        for attempt in range(ATTEMPTS):
            head = self._head(git)
            new, lines = self._write(git, tree, head, names, *about)
            if not new:
                return None
            # The index first: if only it is updated, git shows the changes as staged; if only the
            # branch is, as reverted.
            git.run("update-index", "-z", "--index-info", given=lines, wait=0)
            try:
                old = head or "0" * len(new)
                line = f"update HEAD\0{new}\0{old}\0".encode()
                git.run("update-ref", "-m", "reverie", "--stdin", "-z", given=line, wait=0)
            except VaultError:
                now = self._head(git)
                # Git may have been killed after it had updated the branch.
                if now == new:
                    return new
                if attempt + 1 == ATTEMPTS or now == head:
                    raise
                continue
            return new
        return None

    def _is_clean(self, name: str, found: tuple[bytes, bytes] | None) -> bool:
        """Whether a file has no secret; the removal of a file may always be committed."""
        secrets = () if found is None else self._policy.find_secrets(name, found[1])
        self.withheld.pop(name, None)
        if secrets:
            self.withheld[name] = secrets
        return not secrets

    def checkpoint(self, note: str, author: str, leave: Iterable[str] = ()) -> str | None:
        """Commit everything that changed in the vault except these files."""
        git, left = self.git, set(leave)
        tree = self._ready(git)
        found = _changed(git, tree, self._head(git), None)
        changed = [name for name in found if name not in left]
        return self.commit(changed, f"checkpoint: {note.strip() or 'manual'}", author=author)

    def log(self, *paths: str, limit: int = 10) -> list[CommitInfo]:
        """Return the commits, newest first, of files and folders if given."""
        git = self.git
        below = [check_path(path) for path in paths]
        self._refuse_programs(git)
        if limit < 1 or self._head(git) is None:
            return []
        ids = git.run("rev-list", f"--max-count={limit}", "HEAD", "--", *below).split()
        commits = []
        with git.open_pipe("cat-file", "--batch") as pipe:
            for commit_id in ids:
                commits.append((commit_id, CommitOrTag.parse(pipe.object(commit_id)[1])))
        asked = b"".join(
            commit_id + b"".join(b" " + one for one in commit.all(b"parent")[:1]) + b"\n"
            for commit_id, commit in commits
        )
        names = _paths_of(git, asked)
        return [
            _described(
                commit_id.decode(), commit.one(b"author"), commit.text(), names.get(commit_id, ())
            )
            for commit_id, commit in commits
        ]

    def diff(self, path: str | None = None, *, since: str | None) -> str:
        """Return the difference between a commit, by default the last, and the files on disk."""
        git = self.git
        below = None if path is None else check_path(path)
        tree = self._worktree(git)
        base = self._head(git) if since is None else self._commit_named(git, since)
        try:
            with tempfile.TemporaryDirectory(prefix="reverie-diff-") as folder:
                return _compared(git, tree, base, below, Path(folder))
        except OSError as error:
            raise VaultError(f"a comparison needs a temporary folder ({error})") from error

    def require_quiet(self) -> None:
        """Raise VaultError during a merge or the like, or when settings name a program."""
        self._ready(self.git)

    def _ready(self, git: Git) -> WorkTree:
        """Check before a commit that no merge is in progress and no program would run."""
        for name, what in _UNFINISHED.items():
            if (git.folder / name).exists():
                raise VaultError(
                    f"{what} is in progress in {self.root}, so nothing is committed: "
                    "finish or abort it"
                )
        return self._worktree(git)

    def _worktree(self, git: Git) -> WorkTree:
        settings = self._refuse_programs(git)
        return WorkTree(
            self.root,
            settings.get("core.filemode") not in _FALSE,
            settings.get("extensions.objectformat", "sha1"),
        )

    def _refuse_programs(self, git: Git) -> dict[str, str]:
        """Raise VaultError for hooks in the settings, which cannot be disabled per call."""
        with contextlib.suppress(OSError):
            if not _SPECIAL.search((git.common() / "config").read_bytes()):
                return {}
        pattern = r"^(hook\..*\.command|core\.filemode|extensions\.objectformat)$"
        said = git.run("config", "--includes", "-z", "--get-regexp", pattern, fine=(0, 1))
        settings = {}
        for entry in said.decode("utf-8", "replace").split("\0")[:-1]:
            name, given, value = entry.partition("\n")
            settings[name.lower()] = value.lower() if given else "true"
            if name.lower().startswith("hook."):
                raise VaultError(
                    f"the settings of the repository in {self.root} name a program "
                    f"({name!r}), so git is not used there: remove that setting"
                )
        return settings

    def _head(self, git: Git) -> str | None:
        return _read_head(git) or git.query_line("rev-parse", "-q", "--verify", "HEAD^{commit}")

    def _commit_named(self, git: Git, name: str) -> str:
        found = None
        if name and name.isprintable() and not name.startswith("-"):
            found = git.run(
                *("rev-parse", "-q", "--verify", "--end-of-options", name + "^{commit}"),
                fine=(0, 1, 128),
            ).strip()
        if not found or not _COMMIT_ID.fullmatch(found):
            raise VaultError(
                f"{name!r} is not a commit of {self.root}: use an id from 'reverie vault log'"
            )
        return found.decode()

    def _expand_folders(self, git: Git, tree: WorkTree, given: list[str]) -> list[str]:
        """Replace folders by the changed files below them."""
        names: set[str] = set()
        head: str | None = None
        for path in given:
            if tree.is_folder(path):
                head = head or self._head(git)
                names.update(_changed(git, tree, head, path))
            else:
                names.add(path)
        return sorted(names)

    def _write(
        self,
        git: Git,
        tree: WorkTree,
        head: str | None,
        names: Iterable[str],
        message: bytes,
        author: bytes,
    ) -> tuple[str, bytes]:
        """Write the objects of the new commit, without updating any ref.

        Return its id, empty when nothing changed, and the input for ``update-index``.
        """
        when = b"%d +0000" % (self._clock.now() // 1000)
        lines, new, process, aborted = b"", b"", 0, False
        try:
            with git.open_pipe(*_IMPORT) as pipe:
                process = pipe.process
                pipe.write(b"feature done\n", f"commit {_PRIVATE_REF}\n".encode(), b"mark :1\n")
                pipe.write(b"author %s %s\n" % (author, when))
                pipe.write(f"committer {DEFAULT_AUTHOR} <{DEFAULT_EMAIL}> ".encode(), when, b"\n")
                pipe.write(b"data %d\n" % len(message), message, b"\n")
                if head is not None:
                    pipe.write(b"from %s\n" % head.encode())
                lines = b"".join(self._write_changes(git, pipe, tree, head, names))
                if lines:
                    new = pipe.ask(b"\nget-mark :1\n")
                    # The stream needs a ref. Reset to no commit at the end, it is never written.
                    pipe.write(f"reset {_PRIVATE_REF}\nfrom {'0' * len(new)}\n\ndone\n".encode())
                else:
                    aborted = True
                    pipe.write(_ABORT)
        except VaultError:
            if not aborted:
                raise
            (git.folder / f"fast_import_crash_{process}").unlink(missing_ok=True)
        return new.decode(), lines

    def _write_changes(
        self, git: Git, pipe: GitPipe, tree: WorkTree, head: str | None, names: Iterable[str]
    ) -> Iterator[bytes]:
        """Write the changed files to ``fast-import``, and yield the input for ``update-index``."""
        # Removals first: where a file was, a folder may be now.
        ordered = sorted(names, key=tree.has)
        for start in range(0, len(ordered), AT_ONCE):
            some = ordered[start : start + AT_ONCE]
            stored = {} if head is None else _ask_stored(pipe, some)
            for name in some:
                before, found = stored.get(name, _ABSENT), tree.read(name)
                mode, blob = now = tree.identify(found)
                if now == before or before[0] == _NESTED or not self._is_clean(name, found):
                    continue
                pipe.write(*_modified(name, found))
                removed_folder = found is None and before[0] == _FOLDER
                for each in _listed(git, head, "-r", name) if removed_folder else (name,):
                    id = blob or b"0" * len(before[1])
                    yield b"%s %s\t%s\0" % (mode or b"0", id, os.fsencode(each))


def _compared(git: Git, tree: WorkTree, base: str | None, below: str | None, folder: Path) -> str:
    """Compare with a temporary index and object folder, so that the repository stays unchanged."""
    aside = {
        "GIT_INDEX_FILE": str(folder / "index"),
        "GIT_OBJECT_DIRECTORY": str(folder),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsdecode(
            quote_path(os.fsencode(git.common() / "objects"))
        ),
    }
    kind = tree.hash_name
    changed = _changed(git, tree, base, below)
    base = base or _write_loose(folder, b"tree", b"", kind)
    git.run("read-tree", base, more=aside)
    lines = []
    for name in changed:
        mode, content = tree.read(name) or (b"0", b"")
        one = _write_loose(folder, b"blob", content, kind) if mode != b"0" else "0" * len(base)
        lines.append(b"%s %s\t%s\0" % (mode, one.encode(), os.fsencode(name)))
    git.run("update-index", "-z", "--index-info", given=b"".join(lines), more=aside)
    said = git.run(
        *("diff-index", "--cached", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color"),
        *("--src-prefix=a/", "--dst-prefix=b/", "--ignore-submodules=all"),
        *(base, "--", *([] if below is None else [below])),
        more=aside,
    )
    return said.decode("utf-8", "replace")


def _modified(name: str, found: tuple[bytes, bytes] | None) -> Iterator[bytes]:
    if found is None:
        yield b"D " + quote_path(os.fsencode(name)) + b"\n"
        return
    mode, content = found
    yield b"M %s inline %s\ndata %d\n" % (mode, quote_path(os.fsencode(name)), len(content))
    yield content
    yield b"\n"


def _ask_stored(pipe: GitPipe, names: list[str]) -> Stored:
    """Return mode and id of paths in the commit that ``fast-import`` continues."""
    pipe.write(*(b"ls %s\n" % quote_path(os.fsencode(name)) for name in names))
    pipe.flush()
    found = {}
    for name in names:
        about = pipe.line().partition(b"\t")[0].split(b" ")
        if about[0] != b"missing":
            found[name] = (about[0], about[2])
    return found


def _changed(git: Git, tree: WorkTree, base: str | None, below: str | None) -> list[str]:
    """Return the files that differ between disk and a commit, without ignored ones."""
    where = [] if below is None else [below]
    stored = _listed(git, base, "-r", *where)
    names = set(stored)
    listing = ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    for entry in git.run(*listing, "--", *where).split(b"\0")[:-1]:
        name = os.fsdecode(entry[2:])
        if entry.startswith(b"S"):
            names.discard(name)
        elif not name.endswith("/"):
            names.add(name)
    return _differing(tree, sorted(names), stored)


def _listed(git: Git, commit: str | None, *options: str) -> Stored:
    """Return mode and id of the files in a commit."""
    if commit is None:
        return {}
    how, where = options[:1], options[1:]
    found = {}
    for line in git.run("ls-tree", "-z", *how, commit, "--", *where).split(b"\0")[:-1]:
        about, _, name = line.partition(b"\t")
        mode, _, one = about.split(b" ")
        found[os.fsdecode(name)] = (mode, one)
    return found


def _differing(tree: WorkTree, names: list[str], stored: Stored) -> list[str]:
    before = ((name, stored.get(name, _ABSENT)) for name in names)
    return [
        name
        for name, (mode, id) in before
        if mode != _NESTED and tree.identify(tree.read(name)) != (mode, id)
    ]


def _paths_of(git: Git, commits: bytes) -> dict[bytes, tuple[str, ...]]:
    """Return the changed paths of each commit; a line of ``commits`` is a commit and a parent."""
    said = iter(
        git.run(
            *("diff-tree", "--stdin", "--root", "-r", "-z", "--no-renames", "--no-ext-diff"),
            given=commits,
        ).split(b"\0")[:-1]
    )
    found: dict[bytes, list[str]] = {}
    names: list[str] = []
    for entry in said:
        if entry.startswith(b":"):
            names.append(os.fsdecode(next(said)))
        else:
            names = found.setdefault(entry, [])
    return {commit: tuple(paths) for commit, paths in found.items()}


def _described(commit_id: str, author: bytes, text: str, paths: tuple[str, ...]) -> CommitInfo:
    subject, _, body = text.partition("\n")
    name, seconds = person(author)
    return CommitInfo(commit_id, name, seconds * 1000, subject, body.strip("\n"), paths)


def _git_folder(root: Path) -> Path:
    dot = root / ".git"
    try:
        if not dot.is_file():
            return dot
        text = dot.read_text(encoding="utf-8")[:4096]
    except (OSError, UnicodeError) as error:
        raise VaultError(f"{dot} cannot be read ({error}): repair or remove it") from error
    if not text.startswith("gitdir: "):
        raise VaultError(f"{dot} is a file that names no repository: repair or remove it")
    return Path(os.path.normpath(root / text.removeprefix("gitdir: ").strip("\r\n")))


def _read_head(git: Git) -> str | None:
    """Return the id of the last commit, without a process; None where git has to be asked."""
    try:
        text = (git.folder / "HEAD").read_text(encoding="utf-8").strip()
        if (name := text.removeprefix("ref: ")).startswith("refs/heads/") and ".." not in name:
            ref, packed = git.common() / name, git.common() / "packed-refs"
            if ref.exists():
                text = ref.read_text(encoding="utf-8").strip()
            else:
                lines = packed.read_text(encoding="utf-8").splitlines()
                text = next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
    except (OSError, UnicodeError):
        return None
    return text if _COMMIT_ID.fullmatch(text.encode()) else None


def hash_name_of(git: Git) -> str:
    """Return the hash algorithm of the repository's object ids."""
    return git.query_line("rev-parse", "--show-object-format") or "sha1"


def _write_loose(folder: Path, kind: bytes, content: bytes, name: str) -> str:
    found = object_id(kind, content, name)
    path = folder / found[:2] / found[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(b"%s %d\0" % (kind, len(content)) + content, 1))
    return found


def _message(text: str) -> bytes:
    """Clean a commit message: no control characters, and a subject of limited length."""
    plain = _plain(text.replace("\r\n", "\n"), keep="\n\t").strip()
    subject, _, body = plain.partition("\n")
    if len(subject) > SUBJECT:
        subject = subject[: SUBJECT - 1].rstrip() + "…"
    whole = (subject.rstrip() or "vault change") + ("\n" + body if body else "")
    return whole.encode("utf-8", "replace") + b"\n"


def _person(author: str) -> bytes:
    name = _plain(author, keep="").replace("<", "").replace(">", "").strip(" .,:;\"'\\")[:NAME]
    name = name.strip(" .,:;\"'\\") or DEFAULT_AUTHOR.lower()
    address = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or DEFAULT_AUTHOR.lower()
    return f"{name} <{address}@reverie.invalid>".encode("utf-8", "replace")


def _plain(text: str, *, keep: str) -> str:
    return "".join(
        char
        for char in text
        if char in keep or (unicodedata.category(char) not in {"Cc", "Cs"} and char not in _TURNED)
    )
