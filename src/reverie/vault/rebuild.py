"""Either from the other: an empty store from a vault alone, a vault from a store alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from reverie.engine import log, sessions
from reverie.engine.schema import UNTOLD
from reverie.errors import ReverieError, VaultError
from reverie.memory.store import Store
from reverie.model import Scope
from reverie.text import frontmatter
from reverie.text.normalize import one_line
from reverie.transfer import log_replay
from reverie.transfer.log_replay import Told
from reverie.vault import (
    disk,
    layout,
    log_file,
    markdown_log,
)
from reverie.vault.git.commit import commit_pending
from reverie.vault.log_reader import Filled, Logbook, problem
from reverie.vault.markdown_log import Happened, Seen
from reverie.vault.reader import Report, Sync
from reverie.vault.session_edits import ACTOR, MOVED
from reverie.vault.vault import Vault
from reverie.write import session_state, vault_link
from reverie.write.runtime import Resources

Progress = Callable[[int, int], None]
# Names the vault that a store is being made of, until it is done.
_MARK = "rebuilding"
BATCH = 500


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A store made of a vault: how many entries, how many of them from Markdown alone."""

    entries: int
    from_files: int
    summaries: int
    synced: Report
    problems: tuple[str, ...]


def from_vault(store: Store, root: str | Path, progress: Progress | None = None) -> Rebuilt:
    """Make an empty store of a vault, which is its vault from then on.

    Its log tells all of it again; what the log has lost, and people's edits that it does not know
    yet, the Markdown tells. Stopped at any moment it goes on when it is called again.
    """
    path = Path(root).expanduser().absolute()
    with _opened(path) as vault, vault.locked():
        _begin(store._resources, path)
        work = _Work(vault, store, progress)
        try:
            work.tell_log()
        except BaseException:
            _give_up(store._resources)
            raise
        work.tell_memories()
        summaries = work.tell_summaries()
        _end(store._resources, UNTOLD)
        report = work.settle(path)
        _end(store._resources, _MARK)
        return Rebuilt(work.entries, work.from_files, summaries, report, tuple(work.problems))


class _Work:
    """One store in the making."""

    def __init__(self, vault: Vault, store: Store, progress: Progress | None) -> None:
        self._vault = vault
        self._store = store
        self._resources = store._resources
        self._progress = progress
        self.problems: list[str] = []
        self.entries = self.from_files = 0
        markdown_log.learn_names(vault)

    def _retell(self, told: Iterable[Told], whole: int) -> int:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if self._progress is not None:
                self._progress(done, max(whole, done))

        report = log_replay.retell(self._resources, told, advance)
        self.problems += report.skipped
        self.entries += report.added
        return report.added

    def tell_log(self) -> None:
        """All that the vault's own log holds, and the events that it has lost."""
        book = Logbook(self._vault.journal.files(), self.problems.append)
        talks = markdown_log.conversations_in(markdown_log.files_of(self._vault, "turns"))
        now = self._resources.clock.now()
        for line, _ in book.lines():
            self._vault.know_names(Scope(line["space"], line["user"]), line.get("session"))
        if len(book):
            filled = book.filled(talks, now)
        else:
            told = [each for one in talks for each in markdown_log.whole(one, now)]
            told += self._unknown_memories()
            told.sort(key=lambda each: each.at)
            filled = [Filled(0, each) for each in told]
        self._retell(book.told(filled), len(book) + len(filled))
        self.from_files += len(filled)
        self._note_filled([each for each in filled if each.position])
        if self.problems:
            self._put_aside()

    def _note_filled(self, filled: Sequence[Filled]) -> None:
        """What filled a gap stands in the log again, so that it is whole for the next one."""
        lines = []
        known = self._vault.journal.cursors() if filled else {}
        for position, happened in filled:
            with self._resources.engine.read() as tx:
                owner = log.find(tx, happened.scope)
                entry = None if owner is None else log.at_position(tx, owner, position)
            if entry is not None and position <= known.get(happened.scope, 0):
                lines.append(log_file.line_of(happened.scope, entry))
        if lines:
            self._vault.journal.append(lines)

    def _put_aside(self) -> None:
        """Lines that the store does not hold leave the log, which says what was mirrored."""
        for path in self._vault.journal.files():
            with path.open("rb") as file:
                raws = [raw.rstrip(b"\n") + b"\n" for raw in file if raw.strip()]
            others = [raw for raw in raws if not self._is_told(raw)]
            if others:
                aside, left = self._vault.own / log_file.ASIDE, set(others)
                disk.append(aside, b"".join(others))
                disk.write(path, b"".join(raw for raw in raws if raw not in left))
                _note(self._vault, self._store, path, aside)

    def _is_told(self, raw: bytes) -> bool:
        line = log_file.decoded(raw)
        if line is None or problem(line) is not None:
            return False
        with self._resources.engine.read() as tx:
            owner = log.find(tx, Scope(line["space"], line["user"]))
            entry = None if owner is None else log.at_position(tx, owner, line["position"])
        return entry is not None and entry.uuid == line["uuid"]

    def tell_memories(self) -> None:
        """Memories whose every version the log has lost, as their files show them."""
        told = self._unknown_memories()
        told.sort(key=lambda each: each.at)
        each = (Told(one.scope, one.record, one.path) for one in told)
        self.from_files += self._retell(each, len(told))

    def _unknown_memories(self) -> list[Happened]:
        told, seen_ids = list[Happened](), set[tuple[str, str]]()
        now = self._resources.clock.now()
        for seen in markdown_log.files_of(self._vault, "memory"):
            document = frontmatter.load(seen.raw)
            id = markdown_log.memory_id(document)
            name = (seen.place.scope.space, id or "")
            if id is None or name in seen_ids or self._is_taken(seen.place.scope, id):
                continue
            seen_ids.add(name)
            told += markdown_log.memory_of(seen, document, now, self.problems.append)
        return told

    def _is_taken(self, scope: Scope, id: str) -> bool:
        with self._resources.engine.read() as tx:
            owner = log.find(tx, scope) or log.find(tx, Scope(scope.space))
            return owner is not None and log.id_taken(tx, owner, id)

    def tell_summaries(self) -> int:
        """Of summaries the log knows nothing."""
        count = 0
        for seen in markdown_log.files_of(self._vault, "summary"):
            session = seen.place.session
            if session is None or not seen.path.endswith(f"/{layout.SUMMARY}"):
                continue
            try:
                count += self._tell_summary(seen, session)
            except ReverieError as error:
                self.problems.append(f"{seen.path}: {one_line(str(error))}")
        return count

    def _tell_summary(self, seen: Seen, session: str) -> bool:
        told = markdown_log.summary_of(seen)
        with self._resources.engine.write() as tx:
            owner = log.ensure_owner(tx, seen.place.scope.space, seen.place.scope.user)
            known = sessions.find(tx, owner, session)
            if told is None or session_state.read_summary(tx, owner, session).text:
                return False
            last = 0 if known is None else known.last_sequence
            text = self._resources.redaction.text(
                told.text, "the summary", session_state.MOST_SUMMARY_CHARS
            )
            fitting = type(told)(text, told.epoch, min(told.upper, last))
            session_state.put_summary(tx, owner, session, fitting)
            return True

    def settle(self, path: Path) -> Report:
        """The files are ours again, the store has its vault, and people's edits count."""
        vault = self._vault
        vault.files.look_again()
        vault_link.note_made(self._resources, str(path))
        vault_link.attach(self._resources, str(path))
        self._tell_hidden()
        sync = Sync(vault, self._store)
        sync.everything()
        sync.mirror.everyone()
        shown = {(file.scope, file.name) for file in vault.files.below("")}
        sync.mirror.complete()
        for file in vault.files.below(""):
            if file.what in {"memory", "turns"} and (file.scope, file.name) not in shown:
                what = "memory" if file.what == "memory" else "session"
                folder = layout.owner_folder(file.scope)
                self.problems.append(f"{folder}: {what} {file.name} had no file")
        commit_pending(vault, self._resources.redaction)
        return sync.report

    def _tell_hidden(self) -> None:
        """Where a conversation stands says whether it is hidden, and nobody else says more."""
        deleted: dict[tuple[Scope, str], set[bool]] = {}
        for seen in markdown_log.files_of(self._vault):
            place = seen.place
            if place.what == "turns" and place.session is not None:
                deleted.setdefault((place.scope, place.session), set()).add(place.deleted)
        for (scope, session), places in deleted.items():
            with self._resources.engine.read() as tx:
                owner = log.find(tx, scope)
                known = None if owner is None else sessions.find(tx, owner, session)
            if known is None or places != {known.hidden_at is None}:
                continue
            handle = self._store.space(scope.space, user=scope.user, actor=ACTOR).session(session)
            handle.restore() if known.hidden_at is not None else handle.hide(reason=MOVED)


def _opened(path: Path) -> Vault:
    """The vault there; a clone of it will do, or what Markdown is left of it."""
    if Vault.is_at(path):
        return Vault.open(path)
    parts = [found.relative_to(path).parts for found in sorted(path.glob("*/**/*.md"))]
    ours = {*layout.FOLDERS.values(), layout.SESSIONS}
    log_left = any((path / layout.OWN).glob("log*.jsonl"))
    if not log_left and not any(ours & {*each} for each in parts):
        raise VaultError(f"{path} is no vault: there is nothing to make a store of")
    apart = any(layout.TURNS in each for each in parts)
    return Vault.init(path, None, "apart" if apart else "together")


def _begin(resources: Resources, path: Path) -> None:
    """Nothing but what an attempt before this one told may be here."""
    with resources.engine.write() as tx:
        tx.oversee()
        row = tx.one("SELECT value FROM meta WHERE key = ?", (_MARK,))
        filled = tx.one("SELECT 1 FROM log LIMIT 1") is not None
        if filled and (row is None or row[0] != str(path)):
            if (half := vault_link.untold_in(tx)) is not None:
                raise VaultError(f"the store is not empty, and {half}")
            raise VaultError(
                "the store is not empty: give an empty one (--url), or write the vault anew "
                "from this one with 'reverie vault rebuild --from store'"
            )
        for mark in (_MARK, UNTOLD):
            tx.run("DELETE FROM meta WHERE key = ?", (mark,))
            tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (mark, str(path)))


def _give_up(resources: Resources) -> None:
    """A store that was told nothing is as empty as it was, and anybody's."""
    with resources.engine.write() as tx:
        tx.oversee()
        if tx.one("SELECT 1 FROM log LIMIT 1") is None:
            tx.run("DELETE FROM meta WHERE key IN (?, ?)", (_MARK, UNTOLD))


def _end(resources: Resources, mark: str) -> None:
    with resources.engine.write() as tx:
        tx.oversee()
        tx.run("DELETE FROM meta WHERE key = ?", (mark,))


def _note(vault: Vault, store: Store, *paths: Path) -> None:
    """Git shall hold what became of these, with the first space that there is."""
    for space in store.spaces()[:1]:
        for path in paths:
            vault.files.note(space.name, path.relative_to(vault.root).as_posix())


# -- a vault from the store -----------------------------------------------------------------------


def to_vault(store: Store, root: str | Path, progress: Progress | None = None) -> Report:
    """Write the vault of a store anew, its log included, into an empty folder or where it is.

    What people changed since the last sync is taken in first. Files keep their names and the keys
    that people added.
    """
    path = Path(root).expanduser().absolute()
    resources = store._resources
    if not Vault.is_at(path):
        if path.is_dir() and any(each.name != ".git" for each in path.iterdir()):
            raise VaultError(f"{path} is not empty and no vault: choose another folder")
        Vault.init(path).close()
    with Vault.open(path) as vault, vault.locked():
        require_own(resources, vault)
        sync = Sync(vault, store)
        sync.everything()
        sync.mirror.everyone()
        _write_anew(vault, store, sync, progress)
        commit_pending(vault, resources.redaction)
    vault_link.note_made(resources, str(path))
    vault_link.attach(resources, str(path))
    return sync.report


def _write_anew(vault: Vault, store: Store, sync: Sync, progress: Progress | None) -> None:
    files = vault.files.below("")
    with vault.files.together():
        for file in files:
            # A version that none has: the mirror writes the file again, in its place.
            if file.what == "memory" and vault.as_we_left_it(file):
                vault.files.put(file._replace(version=0))
        _note(vault, store, *vault.journal.files())
        vault.files.forget_cursors()
    vault.journal.clear()
    for scope, session in dict.fromkeys((f.scope, f.name) for f in files if f.what == "turns"):
        with store._resources.engine.read() as tx:
            owner = log.find(tx, scope)
        if owner is not None:
            sync.mirror.conversations.write_anew(owner, scope, session)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, 0)

    sync.mirror.everyone(advance)


def require_own(resources: Resources, vault: Vault) -> None:
    """Nothing stands in the vault's log that the store does not know."""
    lines = vault.journal.lines()
    while part := list(islice(lines, BATCH)):
        for scope in dict.fromkeys(Scope(line["space"], line["user"]) for line in part):
            own = {
                line["position"]: line.get("uuid")
                for line in part
                if (line["space"], line["user"]) == (scope.space, scope.user)
            }
            with resources.engine.read() as tx:
                owner = log.find(tx, scope)
                found = {} if owner is None else log.at_positions(tx, owner, list(own), strict=True)
            known = {position: entry.uuid for position, entry in found.items()}
            if known != own:
                raise VaultError(
                    f"{vault.root} holds what this store does not know: it is another store's "
                    "vault, or make an empty store of it with 'reverie vault rebuild'"
                )
