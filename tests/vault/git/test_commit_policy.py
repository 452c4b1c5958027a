"""No commit that Reverie makes holds a secret, wherever a person put one."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reverie
from bench import secret_shapes
from reverie import Settings, Store
from reverie.config import SecretPolicy
from reverie.vault import service
from reverie.vault.git.commit_policy import CommitPolicy
from reverie.vault.git.repo import Repository
from reverie.vault.git.worktree import WorkTree
from reverie.write.secret_policy import Redaction
from tests.cli.conftest import CommandLine
from tests.cli.conftest import reverie as command  # noqa: F401 - a fixture
from tests.conftest import PROVE
from tests.text.secrets.test_detect import DOCUMENTED, PEM
from tests.vault.repositories import by_hand
from tests.vault.vaults import Kept

SECRET = DOCUMENTED["github token"]
# By shape, by the words before them, over several lines.
SECRETS = (*DOCUMENTED.values(), PEM, "DB_PASSWORD=correcthorse7", "postgres://ana:hunter22@db/x")


def objects(root: Path) -> bytes:
    """Every byte that git has: contents, names, messages."""
    listed = subprocess.run(
        ["git", "-C", str(root), "cat-file", "--batch-all-objects", "--batch", "--unordered"],
        capture_output=True,
        check=True,
    )
    return listed.stdout


def core_of(secret: str) -> bytes:
    """The part of a secret that a search finds, whatever is around it."""
    for word in ("correcthorse7", "hunter22"):
        if word in secret:
            return word.encode()
    return secret.splitlines()[min(1, secret.count("\n"))][12:40].encode()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path, git=True)
    yield made
    made.close()


# -- where a person puts it -----------------------------------------------------------------------


def in_broken_front_matter(kept: Kept, secret: str) -> str:
    kept.write("ana/facts/broken.md", f"---\nid: [\n{secret}\n---\nsome text\n")
    return "ana/facts/broken.md"


def in_endless_front_matter(kept: Kept, secret: str) -> str:
    kept.write("ana/facts/endless.md", f"---\nsubject: x\n{secret}\n")
    return "ana/facts/endless.md"


def in_other_bytes(kept: Kept, secret: str) -> str:
    kept.write("ana/facts/latin.md", b"caf\xe9 " + secret.encode() + b"\n")
    return "ana/facts/latin.md"


def in_utf_16(kept: Kept, secret: str) -> str:
    kept.write("ana/facts/wide.md", f"{secret}\n".encode("utf-16"))
    return "ana/facts/wide.md"


def in_a_key_of_their_own(kept: Kept, secret: str) -> str:
    path = kept.of(kept.ana.memories()[0])
    lines = "".join(f"# {line}\n" for line in secret.splitlines())
    if secret == PEM:
        lines = "cert: |\n" + "".join(f"  {line}\n" for line in secret.splitlines())
    kept.edit(path, "category: general\n", f"category: general\n{lines}")
    return path


def in_a_record(kept: Kept, secret: str) -> str:
    """What somebody wrote into a record is kept beside it."""
    path = "ana/users/unnamed/sessions/2026-01/chat/turns.md"
    kept.path(path).write_bytes(kept.path(path).read_bytes() + f"\n{secret}\n".encode())
    return "ana/users/unnamed/sessions/2026-01/chat/turns.conflict-v1.md"


def in_an_index(kept: Kept, secret: str) -> str:
    kept.write("ana/MEMORY.md", f"my own\n\n{secret}\n")
    return "ana/MEMORY.conflict-v0.md"


def in_a_file_of_another_kind(kept: Kept, secret: str) -> str:
    kept.write("ana/notes/config.env", f"A=b\n{secret}\n")
    return "ana/notes/config.env"


def in_the_ignore_file(kept: Kept, secret: str) -> str:
    path = kept.path(".gitignore")
    path.write_text(path.read_text("utf-8") + f"# {secret}\n", encoding="utf-8")
    return ".gitignore"


PLACES = [
    in_broken_front_matter,
    in_endless_front_matter,
    in_other_bytes,
    in_utf_16,
    in_a_key_of_their_own,
    in_a_record,
    in_an_index,
    in_a_file_of_another_kind,
    in_the_ignore_file,
]


def begin(kept: Kept) -> None:
    kept.ana.remember("tea is hot")
    kept.ana.session("chat").append({"role": "user", "content": "hi"})
    kept.sync()


@pytest.mark.parametrize("put", PLACES, ids=lambda put: put.__name__)
def test_file_with_a_secret_is_not_committed_and_unchanged(
    kept: Kept, put: Callable[[Kept, str], str]
) -> None:
    begin(kept)
    path = put(kept, SECRET)
    kept.sync()
    service.checkpoint(kept.store, "everything")
    report = kept.sync()
    assert SECRET.encode() not in objects(kept.root)
    raw = kept.path(path).read_bytes().replace(b"\0", b"")
    assert SECRET.encode() in raw
    assert any(
        line.startswith(f"{path}: it holds a secret") and "stays out of git" in line
        for line in report.problems
    )
    assert service.status(kept.store).withheld == (path,)


@pytest.mark.parametrize("kind", ["broken", "latin", "wide", "plain"])
def test_every_kind_of_secret_is_not_committed(kept: Kept, kind: str) -> None:
    begin(kept)
    texts = [*SECRETS, *(case.text for case in secret_shapes.cases()[:: 1 if PROVE else 10])]
    for number, text in enumerate(texts):
        raw = {
            "broken": f"---\nid: [\n{text}\n".encode(),
            "latin": b"caf\xe9\n" + text.encode() + b"\n",
            "wide": f"{text}\n".encode("utf-16"),
            "plain": f"{text}\n".encode(),
        }[kind]
        end = "txt" if kind == "plain" else "md"
        kept.write(f"ana/facts/planted-{number}-.{end}", raw)
    kept.sync()
    service.checkpoint(kept.store, "everything")
    named = by_hand(kept.root, "ls-tree", "-r", "--name-only", "HEAD").decode()
    found = {number for number in range(len(texts)) if f"planted-{number}-" in named}
    # What no rule knows by itself passes everywhere; it is measured by the bench.
    assert {n for n in found if Redaction().refused_kinds(texts[n])} == set()
    held = objects(kept.root)
    assert [text for text in SECRETS if core_of(text) in held] == []


def test_file_is_committed_once_its_secret_is_removed(kept: Kept) -> None:
    begin(kept)
    path = in_a_key_of_their_own(kept, SECRET)
    assert kept.sync().problems
    kept.edit(path, f"# {SECRET}\n", "# taken out\n")
    assert not kept.sync().problems
    assert b"# taken out" in objects(kept.root)
    assert service.status(kept.store).withheld == ()


def test_deleted_withheld_file_is_no_longer_reported(kept: Kept) -> None:
    begin(kept)
    path = in_an_index(kept, SECRET)
    assert kept.sync().problems
    kept.path(path).unlink()
    assert not kept.sync().problems
    assert service.status(kept.store).withheld == ()


def test_commits_of_worker_and_checkpoint_log_withheld_files(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    begin(kept)
    kept.ana.remember("coffee is hotter")
    kept.mirror()
    kept.path(kept.of(kept.ana.memories()[0])).write_text(f"---\nid: [\n{SECRET}", "utf-8")
    kept.write("own.txt", f"{SECRET}\n")
    with caplog.at_level(logging.WARNING, "reverie.vault"):
        kept.clock.step(10_000)
        kept.store.run_pending_jobs()
        service.checkpoint(kept.store, "now")
        service.checkpoint(kept.store, "again")
    logged = [line for line in caplog.messages if "stays out of git" in line]
    assert len(logged) == 2 and logged[1].startswith("own.txt: ")
    assert SECRET.encode() not in objects(kept.root)


def test_last_version_without_a_secret_stays_in_git(kept: Kept) -> None:
    begin(kept)
    path = in_a_key_of_their_own(kept, SECRET)
    kept.sync()
    output = by_hand(kept.root, "show", f"HEAD:{path}")
    assert b"tea is hot" in output and SECRET.encode() not in output


def test_other_files_are_committed_beside_a_withheld_one(kept: Kept) -> None:
    begin(kept)
    in_a_record(kept, SECRET)
    kept.ana.remember("coffee is hotter")
    kept.sync()
    assert b"coffee is hotter" in objects(kept.root)


@pytest.mark.parametrize("after", [1, 2])
def test_secret_saved_between_check_and_commit_is_not_committed(
    after: int, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(kept)
    kept.write("ana/own.txt", "clean\n")
    read, looks = WorkTree.read, list[str]()

    def saving(tree: WorkTree, path: str) -> tuple[bytes, bytes] | None:
        found = read(tree, path)
        if path == "ana/own.txt":
            looks.append(path)
            # Found different, then read for the commit; saved again after one of these.
            if len(looks) == after:
                kept.write(path, f"{SECRET}\n")
        return found

    monkeypatch.setattr(WorkTree, "read", saving)
    service.checkpoint(kept.store, "now")
    assert len(looks) == 2
    assert SECRET.encode() not in objects(kept.root)


def test_commit_messages_authors_and_names_have_no_secret(kept: Kept) -> None:
    begin(kept)
    kept.write("ana/own.txt", "clean\n")
    service.checkpoint(kept.store, f"with {SECRET}", author=f"a {SECRET}")
    kept.write(f"ana/notes/{SECRET}.txt", "its name tells")
    kept.write(f"ana/facts/{SECRET}.md", "---\nid: [\n")
    service.checkpoint(kept.store, "names")
    report, status = kept.sync(), service.status(kept.store)
    # Nor does a line that tells of it.
    assert len(status.withheld) == 2 and SECRET not in str((status.withheld, report.problems[-2:]))
    assert SECRET.encode() not in objects(kept.root)
    assert any("[redacted" in each.subject for each in service.history(kept.ana, limit=5))


def test_log_lines_that_are_no_entries_are_not_committed(kept: Kept) -> None:
    begin(kept)
    path = kept.path(".reverie/log.jsonl")
    path.write_bytes(path.read_bytes() + f'{{"half": "{SECRET}\n'.encode())
    kept.ana.remember("coffee")
    kept.sync()
    service.checkpoint(kept.store, "now")
    assert SECRET.encode() not in objects(kept.root)


def test_vault_log_is_checked_from_where_it_grew(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the log is, a commit costs what is new."""
    for number in range(200):
        kept.ana.remember(f"fact number {number}")
    kept.sync()
    looked = list[object]()
    refused = Redaction.refused_kinds

    def counted(redaction: Redaction, value: object) -> tuple[str, ...]:
        looked.append(value)
        return refused(redaction, value)

    monkeypatch.setattr(Redaction, "refused_kinds", counted)
    kept.ana.remember("one more")
    kept.sync()
    entries = [value for value in looked if isinstance(value, list) and len(value) == 2]
    assert 1 <= len([value for value in entries if isinstance(value[0], dict)]) <= 3


@pytest.mark.parametrize(("policy", "committed"), [("off", True), ("warn", True), ("block", False)])
def test_secrets_setting_applies_to_commits(
    tmp_path: Path, policy: SecretPolicy, committed: bool
) -> None:
    with _opened(tmp_path, policy) as store:
        store.space("ana").remember("tea is hot")
        service.init(store, tmp_path / "vault")
        (tmp_path / "vault" / "ana" / "own.txt").write_text(f"{SECRET}\n", encoding="utf-8")
        service.checkpoint(store, "now")
    assert (SECRET.encode() in objects(tmp_path / "vault")) is committed


@pytest.mark.parametrize("policy", ["off", "warn", "redact", "block"])
def test_configured_api_keys_are_never_committed(tmp_path: Path, policy: SecretPolicy) -> None:
    own = "a-key-of-our-own-model"
    settings = Settings(learn="off", secrets=policy, model_api_key=own)
    with reverie.open(tmp_path / "a.db", settings=settings, embedder="none") as store:
        service.init(store, tmp_path / "vault")
        (tmp_path / "vault" / "own.txt").write_text(f"{own}\n", encoding="utf-8")
        service.checkpoint(store, "now")
    assert own.encode() not in objects(tmp_path / "vault")


def test_repository_without_a_policy_redacts(tmp_path: Path) -> None:
    repo = Repository.at(tmp_path / "vault")
    assert repo is not None
    repo.init()
    (tmp_path / "vault" / "a.txt").write_text(SECRET, encoding="utf-8")
    assert repo.commit(["a.txt"], "m", author="ana") is None
    assert list(repo.withheld) == ["a.txt"]


@pytest.mark.parametrize(
    "raw",
    [
        b"---\nsubject: Database password\n---\nKept in 1Password since 2019\n",
        b"---\nsubject: password\ntags: [important, urgently]\n---\nAsk Alec Seabrook\n",
        b"---\nsubject: secret\nsource: 5b1f0c2e-8a53-4c0e-9a3a-0d7a5a6d2c11\n---\ntea\n",
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 50,
    ],
)
def test_ordinary_files_are_not_withheld(raw: bytes) -> None:
    assert CommitPolicy(Redaction()).find_secrets("ana/facts/a.md", raw) == ()


def test_memories_about_passwords_are_committed(kept: Kept) -> None:
    """Names of files and links in the index are made of words that passed already."""
    begin(kept)
    for content in (
        "My password manager is 1Password",
        "The secret key of Alec is in the safe",
        "The token for the API Gateway2Go is kept by Ana",
        "Passwords were rotated in May2026",
    ):
        for _ in range(20):
            kept.ana.remember_separately(content, key=None)
    kept.ana.session("my-secret-key-of-2026Plan").append({"role": "user", "content": "hi"})
    assert not kept.sync().problems
    assert service.status(kept.store).withheld == ()
    assert all("[redacted" not in each.body for each in service.history(kept.ana, limit=5))
    assert by_hand(kept.root, "status", "--porcelain") == b""


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("ana: tea (remember aB3dE6gH)", "ana: tea (remember aB3dE6gH)"),
        ("ana: my password is (revise aB3dE6gH)", "ana: my password is (revise aB3dE6gH)"),
        ("a: 2\n\n- password=Tr0ub4dor&3 (forget x1)", "a: 2\n\n- password=[redacted: password]"
         " (forget x1)"),
    ],
)  # fmt: skip
def test_commit_message_keeps_the_id_that_purge_looks_for(message: str, left: str) -> None:
    assert CommitPolicy(Redaction()).message(message) == left


def test_status_and_sync_report_withheld_files(command: CommandLine) -> None:  # noqa: F811
    command.remember("tea is hot")
    command.run("vault", "init", "vault")
    path = command.folder / "vault" / "default" / "MEMORY.md"
    path.write_text(f"{SECRET}\n", encoding="utf-8")
    result = command.run("vault", "sync", code=1)
    output = result.stdout
    assert result.stderr == ""
    assert "MEMORY.conflict-v0.md: it holds a secret" in output and SECRET not in output
    assert "MEMORY.conflict-v0.md holds a secret" in command.text("vault", "status")


def _opened(folder: Path, policy: SecretPolicy = "redact") -> Store:
    settings = Settings(learn="off", secrets=policy)
    return reverie.open(folder / "store.db", settings=settings, embedder="none")
