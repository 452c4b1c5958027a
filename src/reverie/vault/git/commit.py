"""Commit the vault's pending changes, one commit for each space, with a readable message."""

from __future__ import annotations

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from reverie.errors import VaultError
from reverie.text.normalize import one_line
from reverie.vault import layout
from reverie.vault.actions import COPY_KEPT
from reverie.vault.file_cache import PendingChange, WithheldFile
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.git.pack import pack_if_many
from reverie.vault.git.repo import SUBJECT, Repository
from reverie.vault.vault import Vault
from reverie.write.secret_policy import Redaction

MAX_LINES = 200
_log = logging.getLogger("reverie.vault")
_OP = re.compile(r"\((remember|import|revise|forget|restore|erase|promote|move) \w+\)$")
_DONE = {
    "remember": "remembered",
    "import": "imported",
    "revise": "revised",
    "forget": "forgotten",
    "restore": "restored",
    "erase": "erased",
    "promote": "promoted",
    "move": "moved",
}


def commit_pending(vault: Vault, redaction: Redaction) -> list[str]:
    """Commit the pending changes, each space by itself, and return the commits made.

    The caller must hold the lock. While another git process holds a lock of the repository, it
    raises GitBusy at once, and the changes stay pending. Without git, they are dropped. A file with
    a secret stays pending until the secret is removed, a deleted file until its deletion is
    confirmed.
    """
    withheld = vault.files.withheld()
    again = [PendingChange(0, each.space, each.path, "") for each in withheld if each.space]
    noted = vault.files.pending()
    if not noted and not again:
        return []
    held = set(vault.files.held())
    pending = [each for each in (*noted, *again) if each.path not in held]
    repository = open_repository(vault, redaction)
    made = []
    if repository is not None:
        repository.init()
        # The vault's own log covers all spaces. It is committed with the last one, so that no
        # commit has log entries whose files are not committed yet.
        logs = {
            each.path: None for each in pending if each.path.startswith(f"{layout.STATE_FOLDER}/")
        }
        # The file of names belongs to no space.
        spaces = list(dict.fromkeys(each.space for each in pending if each.space)) or [""]
        for space in spaces:
            own = [each for each in pending if each.space == space]
            paths = {each.path: None for each in own if each.path not in logs}
            if space == spaces[-1]:
                paths |= logs
            commit = repository.commit(paths, message(space, own), author=space)
            if commit is not None:
                made.append(commit)
        record_withheld(vault, repository, {each.path: each.space for each in pending})
    vault.files.committed(noted)
    if repository is not None and made:
        _pack(repository)
    return made


def _pack(repository: Repository) -> None:
    try:
        pack_if_many(repository)
    except VaultError as error:
        _log.warning("the repository is not packed: %s", error)


def open_repository(vault: Vault, redaction: Redaction) -> Repository | None:
    """Return the vault's repository, with the policy that keeps secrets out; None without git."""
    policy = CommitPolicy(redaction, vault.files)
    return Repository.at(vault.root, policy=policy, facts=vault.files)


def record_withheld(
    vault: Vault, repository: Repository, asked: Mapping[str, str], *, everything: bool = False
) -> None:
    """Record which files a commit left out; ``asked`` has the space of each file to commit.

    With ``everything`` the commit covered all files, so no other file is withheld; otherwise files
    that were withheld before stay so.
    """
    before = vault.files.withheld()
    known = {each.path: each.space for each in before}
    seen = {*asked, *repository.withheld}
    left = [
        each
        for each in before
        if not everything and each.path not in seen and not vault.is_missing(each.path)
    ]
    new = [
        WithheldFile(path, asked.get(path) or known.get(path, ""), ", ".join(kinds))
        for path, kinds in repository.withheld.items()
    ]
    if [*left, *new] != before:
        vault.files.set_withheld([*left, *new])


@contextlib.contextmanager
def log_withheld(vault: Vault, redaction: Redaction) -> Iterator[None]:
    """Log the files that a commit in this block leaves out for the first time."""
    known = set(withheld_lines(vault, redaction))
    yield
    for line in withheld_lines(vault, redaction):
        if line not in known:
            _log.warning("%s", line)


def withheld_lines(vault: Vault, redaction: Redaction) -> list[str]:
    """Return a line for each file that is not committed because of a secret."""
    return [
        f"{one_line(CommitPolicy(redaction).shown(path))}: it holds a secret ({why}) "
        "and stays out of git: take the secret out"
        for path, _, why in vault.files.withheld()
    ]


def _subject(name: str, line: str) -> str:
    """Return the subject line for one change; its end, the id, is how an erase finds it."""
    found = _OP.search(line)
    if found is None or len(name) + len(line) + 2 <= SUBJECT:
        return f"{name}: {line}"
    end = f" {found[0]}"
    start = f"{_cut(name, SUBJECT // 3)}: "
    return start + _cut(line[: found.start()].rstrip(), SUBJECT - len(start) - len(end)) + end


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def message(space: str, changes: Sequence[PendingChange]) -> str:
    """Return the commit message: the change itself, or the number of changes and a line each."""
    lines = list(dict.fromkeys(each.line for each in changes if each.line))
    name = one_line(space)
    # An erased memory has a line without text, which would say nothing.
    if len(lines) == 1 and not lines[0].startswith("("):
        return _subject(name, lines[0])
    if not space:
        return "vault: names of folders"
    if not lines:
        shown = {each.path.rpartition("/")[2] for each in changes}
        return f"{name}: {'index' if shown == {layout.INDEX} else 'files'}"
    counts = Counter(found[1] for line in lines if (found := _OP.search(line)))
    counted = [f"{counts[op]} {done}" for op, done in _DONE.items() if counts[op]]
    others = [line for line in lines if not _OP.search(line)]
    copies = sum(line.startswith(COPY_KEPT) for line in others)
    counted += [f"{copies} {'copy' if copies == 1 else 'copies'} kept"] if copies else []
    counted += [f"{len(others) - copies} in conversations"] if len(others) > copies else []
    more = len(lines) - MAX_LINES
    listed = [*lines[:MAX_LINES], *([f"and {more} more"] if more > 0 else [])]
    return f"{name}: {', '.join(counted)}\n\n" + "\n".join(f"- {line}" for line in listed)
