"""Hostile names, ids, subjects, front matter and planted files: nothing outside the root changes.

Around the root stand files that nobody may read, write or remove: what they say must never come
into the store, and they must be what they were in the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reverie.errors import ReverieError
from reverie.vault import layout, names, service
from reverie.vault.vault import Vault
from tests.figures import figure
from tests.vault.vaults import Kept, scopes, states

CANARY = b"the canary sings outside\n"
NAMES = [
    "..", ".", "../..", "../outside", "/etc/passwd", "/", "//", "a/../../b", "..\\..\\outside",
    "C:\\Windows", "C:", "\\\\server\\share", "con", "CON", "nul.txt", "aux.md", "com1", "LPT9",
    "a\u202eb", "\u200b", "a\u0301", "á", "A", "a", "ａ", "%2e%2e", "%2E%2E%2F", "%", "%%", "~",
    "~root", "$HOME", "${HOME}", "`id`", "$(id)", "; rm -rf /", "| cat", "& del", "a b", " a",
    "a ", "a.", ".a", ".git", ".GIT", "git~1", ".reverie", ".gitignore", ".gitattributes", "-rf",
    "--help", "users", "deleted", "sessions", "facts", "notes", "summaries", "turns", "MEMORY.md",
    "turns.md", "summary.md", "memory.md", "Users", "DELETED", "x" * 200, "é" * 200, "🦓" * 50,
    "日本語", "İ", "ß", "ſ", "ﬁ", "a:b", "a*b", "a?b", 'a"b', "a<b>", "a|b", "'", '"', "\\",
    "a\\..\\b", "...", "....", "a/./b", "./a", "../", "/..", "a//b", "%00", "\u2024\u2024",
    "\uff0e\uff0e", "\u2215etc", "{a}", "[a]", "#a", "@a", "!a", "a=b", "a,b", "null", "true",
    "~1234567890abcdef", "a~1234567890abcdef", "turns-2.md", "x.conflict-v1.md", "log.jsonl",
    "vault.json", "files.db",
]  # fmt: skip
SUBJECTS = [
    *NAMES, "a\tb", "- a", "? a", ": a", "a: b", "a #b", "&a", "*a",
    "!!python/object:os.system x", "!!binary x", "|", ">", "{a: b}", "[a, b", "---", "...",
    "'unclosed", '"unclosed', "@a", "`a", "0x1F", "1e3", "2026-01-01", "12:30:45", "yes", "NO",
    "Null", "<<", "=",
]  # fmt: skip
FRONTS = [
    "id: ../../outside", "id: /etc/passwd", "id: [a, b]", "id: {a: b}", "id: null", "id: ''",
    "id: 12345678", "id: '\\0'", "id: a/b", "id: ..", "id: 'x y'", "id: zzzzzzzz", "id: ÄÖÜäöüßé",
    "version: -1", "version: 99999999999999999999", "version: abc", "version: [1]", "version: ２",
    "conversation_id: ../..", "conversation_id: [a]", "kind: evil", "kind: note", "role: turns",
    "role: user", "role: ../..", "category: ../../x", "category: ''", "category: [a, b]",
    "subject: ../../outside", "subject: |\n  a\n  b", "subject: >-\n  a\n  b", "tags: {a: b}",
    "tags: [[a]]", "tags: [" + ", ".join(["x"] * 500) + "]", "tags: ../..", "tags: '#a'",
    "source: /etc/passwd", "source: file:///etc/passwd", "source: " + "x" * 2000, "pinned: maybe",
    "pinned: [true]", "happened_at: never", "happened_at: 2026-13-45", "expires_at: 0",
    "expires_at: 1970-01-01", "expires_at: 9999999999999", "created_at: 99999-01-01",
    "forgotten_at: yes", "trust: admin", "replaced_by: ../../outside", "conflict_of: aaaaaaaa",
    "seal: s0123456789abcdef", "summary_kind: x", "? a\n: b", "- a\n- b", "a", "a: b: c", "a: 'b",
    "a: &x [*x]", "a: &a b\nb: *a", "<<: {a: b}", "!!python/object/apply:os.system ['id']",
    "a: !!python/object/apply:os.system ['touch /tmp/pwned']", "%YAML 1.1", "...", "--- a",
    "\ta: b", "a:\tb", "a: b\ra: c", "a: b\u2028c: d", "a: b\x85c: d", "a: \x00", "a: \x07",
    "\ufeffa: b", "a: " + "[" * 100, "a: " + "{" * 100, "x: y\n" * 5000, "a: " + "b" * 70_000,
    '"\\ud800": a', 'a: "\\ud800"', 'a: "\\U00110000"', "a: b #c", "#only a comment", "id", ": a",
    "id: a\nid: b\nid: c", "ID: aaaaaaaa", "Id: b", " id: a", "id : a", "'id': a", "? id\n: a",
    "__proto__: a", "constructor: {}", "id: !!str 1", "id: !!int '1'", "id: 0x10", "id: 1_000",
    "id: .inf", "id: 1:30", "id: 2026-01-01", "id: on", "tags: null", "tags: ''", "tags: ,,,",
]  # fmt: skip
PLANTED = [
    "../../up.md", ".hidden.md", "a.md.tmp", ".0123456789abcdef.tmp", "x.MD", "README",
    "x.conflict-v1.md", "x.conflict-v9999999999999999999999.md", "turns.md", "MEMORY.md",
    "memory.md", "facts.md", "--.md", "x--aaaaaaaa.md", "x--AAAAAAAA_ff.md", "%2e%2e.md",
    "%00.md", "a" * 200 + ".md", "é.md", "e\u0301.md", " .md", ".md", "..md", "a\nb.md",
    "a\tb.md", "$(id).md", "`id`.md", "-rf.md", "~.md", "con.md",
]  # fmt: skip
CASES = len(NAMES) * 3 + len(SUBJECTS) + len(FRONTS) + len(PLANTED)


def test_hostile_corpus_is_large_enough() -> None:
    figure("hostile names and files", CASES)
    assert CASES >= 300


@pytest.fixture
def outside(kept: Kept) -> Iterator[dict[Path, bytes]]:
    """The files around the root, which must be unchanged at the end."""
    around = kept.folder / "outside"
    for name in ("secret.md", "facts/x.md", "users/bob/y.md", ".git/config"):
        path = around / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CANARY)
    for name in ("up.md", "outside.md", "passwd"):
        (kept.folder / name).write_bytes(CANARY)
    before = snapshot(kept)
    yield before
    after = snapshot(kept)
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    figure("files changed outside the vault", len(changed))
    assert after == before
    assert not any(CANARY.strip() in text for text in everything_said(kept))
    assert not Path("/tmp/pwned").exists()


def snapshot(kept: Kept) -> dict[Path, bytes]:
    return {
        path: b"" if path.is_dir() else path.read_bytes()
        for path in sorted(kept.folder.rglob("*"))
        if kept.root not in path.parents and not path.name.startswith("store.db")
    }


def everything_said(kept: Kept) -> Iterator[bytes]:
    for info in kept.store.spaces():
        for record in kept.store.space(info.name).export():
            yield str(record).encode()


def in_the_root(kept: Kept) -> None:
    for path in kept.root.rglob("*"):
        assert kept.root in path.resolve().parents or path.is_symlink()


@pytest.mark.usefixtures("outside")
def test_hostile_space_user_and_session_names_stay_below_the_root(kept: Kept) -> None:
    for name in NAMES:
        try:
            kept.store.space(name).remember(f"shared {name!r}")
            kept.store.space("ana", user=name).remember(f"user {name!r}")
            session = kept.store.space("ana").session(name)
            session.append({"role": name[:20], "content": f"said {name!r}"})
            session.remember(f"own {name!r}", private=True)
        except ReverieError:
            continue
    report = kept.sync()
    assert not report.problems
    in_the_root(kept)
    tops = [path.name for path in kept.root.iterdir() if not path.name.startswith(".")]
    assert len(set(map(names.collision_key, tops))) == len(tops)
    assert not kept.sync()
    folders = kept.folders()
    places = [folders.parse(path) for path in kept.files()]
    shown = sum(place is not None and place.what == "memory" for place in places)
    assert shown == sum(len(list(states(kept.store, scope))) for scope in scopes(kept.store))


@pytest.mark.usefixtures("outside")
def test_hostile_subjects_contents_and_roles_stay_in_their_file(kept: Kept) -> None:
    for subject in SUBJECTS:
        try:
            kept.ana.remember_separately(
                f"{subject}\n{subject}", key=None, subject=subject, tags=[subject]
            )
        except ReverieError:
            kept.ana.remember_separately(f"{subject}x", key=None)
    assert not kept.sync().problems
    in_the_root(kept)
    assert len(kept.files()) == len(SUBJECTS)
    assert not kept.sync()


@pytest.mark.usefixtures("outside")
def test_hostile_front_matter_is_read_or_reported(kept: Kept) -> None:
    for number, front in enumerate(FRONTS):
        raw = f"---\n{front}\n---\n\nbody {number}\n".encode("utf-8", "surrogatepass")
        kept.write(f"ana/facts/f{number}.md", raw)
    first = kept.sync()
    in_the_root(kept)
    # Each was remembered, or reported and left as it was.
    reported = {line.partition(": ")[0] for line in first.problems}
    for number, front in enumerate(FRONTS):
        path = f"ana/facts/f{number}.md"
        known = path in first.remembered
        assert known or path in reported, front
        assert f"body {number}" in kept.read(path)
    second = kept.sync()
    assert not second.remembered and not second.revised and not second.forgotten


@pytest.mark.usefixtures("outside")
@pytest.mark.prove
def test_hostile_front_matter_of_a_known_memory_harms_no_other(kept: Kept) -> None:
    ids = [kept.ana.remember(f"memory {number}").id for number in range(len(FRONTS))]
    kept.sync()
    for number, (id, front) in enumerate(zip(ids, FRONTS, strict=True)):
        raw = f"---\nid: {id}\nversion: 1\n{front}\n---\n\nbody {number}\n"
        kept.write(kept.of(id), raw.encode("utf-8", "surrogatepass"))
    kept.sync()
    for id in ids:
        kept.ana.revise(id, "from the store", pinned=True)
    kept.sync()
    in_the_root(kept)
    contents = b"".join(path.read_bytes() for path in kept.root.rglob("*.md"))
    history = [version.content for id in ids for version in kept.ana.history(id)]
    for number in range(len(FRONTS)):
        assert f"body {number}".encode() in contents or f"body {number}" in history


@pytest.mark.usefixtures("outside")
def test_planted_files_are_never_overwritten(kept: Kept) -> None:
    memory = kept.ana.remember("one")
    kept.sync()
    folder = kept.path(kept.of(memory)).parent
    for name in PLANTED:
        if ".." not in name.split("/"):
            (folder / name).write_bytes(f"planted {name}\n".encode())
    kept.sync()
    kept.ana.revise(memory.id, "two")
    kept.sync()
    in_the_root(kept)
    assert kept.ana.get(memory.id).content == "two"


LINKS = [
    "ana", "ana/facts", "ana/notes", "ana/deleted", "ana/deleted/facts", "ana/users",
    "ana/sessions", "ana/sessions/2026-01/chat", "ana/sessions/2026-01/chat/turns.md",
    "ana/sessions/2026-01/chat/summaries", "ana/MEMORY.md", "ana/users/bob", "eve",
    "ana/facts/x.md",
    "ana/link.md", "ana/deleted/sessions", "ana/sessions/2026-01/chat/summaries/summary.md",
    "ana/users/bob/MEMORY.md",
]  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("target", ["outside", "outside/secret.md", "nowhere", ".", "/"])
@pytest.mark.sample(4)
def test_planted_links_are_never_followed(
    kept: Kept, outside: dict[Path, bytes], link: str, target: str
) -> None:
    memory = kept.ana.remember("one")
    kept.store.space("ana", user="bob").remember("bob's")
    session = kept.ana.session("chat")
    session.append({"role": "user", "content": "hi"})
    session.write_summary("greeted", upper=1, expected_epoch=0)
    planted = kept.path(link)
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.symlink_to(kept.folder / target)
    for _ in range(2):
        try:
            kept.sync()
            kept.sync(link, f"{link}/x.md", f"{link}/facts/x.md")
        except ReverieError:
            pass
        kept.ana.revise(memory.id, "two")
        kept.ana.forget(memory.id)
        kept.ana.restore(memory.id)
        session.hide()
        kept.store.run_pending_jobs()
        session.append({"role": "user", "content": "again"})
        kept.store.run_pending_jobs()
    assert kept.ana.get(memory.id).forgotten_at is None
    if os.path.lexists(planted) and planted.is_symlink():
        planted.unlink()
    kept.sync()
    kept.sync()
    assert kept.of(memory)


@pytest.mark.parametrize(
    "name", ["lock", "log.jsonl", "vault.json", "files.db", "files.db-wal", ""]
)
def test_links_in_the_vaults_own_folder_are_never_followed(
    kept: Kept, outside: dict[Path, bytes], name: str
) -> None:
    kept.ana.remember("one")
    kept.sync()
    own = kept.root / ".reverie" / name
    if name:
        own.unlink(missing_ok=True)
        own.symlink_to(kept.folder / "outside" / "secret.md")
    else:
        own.rename(kept.root / "moved")
        own.symlink_to(kept.folder / "outside")
    kept.ana.remember("two")
    with pytest.raises(ReverieError):
        service.sync(kept.store)
    kept.store.run_pending_jobs()


@pytest.mark.usefixtures("outside")
def test_hostile_paths_given_to_a_watcher_are_ignored(kept: Kept) -> None:
    kept.ana.remember("one")
    kept.sync()
    paths = [
        *NAMES,
        *(f"ana/{name}" for name in NAMES),
        *(f"ana/facts/{name}.md" for name in NAMES),
    ]
    assert not kept.sync(*(path for path in paths if "\0" not in path)).remembered
    with Vault.open(kept.root) as vault:
        for path in ("..", "../x", "/etc/passwd", "a/../../b", "", "a//b", "./a", "a\0b"):
            with pytest.raises(ReverieError):
                vault.path(path)


def test_parse_path_never_returns_an_empty_owner() -> None:
    for name in NAMES:
        for path in (f"{name}/facts/x.md", f"ana/users/{name}/x.md", f"ana/sessions/{name}/x.md"):
            place = layout.Folders().parse(path)
            if place is not None:
                assert place.scope.space and place.scope.user != ""
