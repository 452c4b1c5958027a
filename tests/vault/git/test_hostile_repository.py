"""A repository that would like to run something: none of its programs is ever started.

Each case puts a program that leaves a canary into one of the places from which git takes programs,
then everything a vault does with git is done. Whether a canary can sing is tested with plain git.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from reverie.errors import VaultError
from reverie.vault.git import pack
from reverie.vault.git.repo import Repository
from reverie.vault.git.rewrite import rewrite
from reverie.vault.git.search import find_bytes
from tests.conftest import PROVE
from tests.vault.repositories import by_hand, made, status, write


def some(cases: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each by itself takes a second: all of them with --prove, else every eighth."""
    return cases if PROVE else cases[::8]


HOOKS = [
    *("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-merge-commit"),
    *("post-index-change", "reference-transaction", "post-checkout", "post-rewrite", "pre-auto-gc"),
    *("fsmonitor-watchman", "applypatch-msg", "post-merge", "pre-push", "update", "pre-receive"),
]

# Settings that name a program; {it} is the program.
SETTINGS = [
    ("core.fsmonitor", "{it}"),
    ("core.hooksPath", "{hooks}"),
    ("core.pager", "{it}"),
    ("core.editor", "{it}"),
    ("core.askPass", "{it}"),
    ("core.sshCommand", "{it}"),
    ("core.gitProxy", "{it}"),
    ("core.alternateRefsCommand", "{it}"),
    ("sequence.editor", "{it}"),
    ("credential.helper", "!{it}"),
    ("diff.external", "{it}"),
    ("diff.evil.command", "{it}"),
    ("diff.evil.textconv", "{it}"),
    ("filter.evil.clean", "{it}"),
    ("filter.evil.smudge", "{it}"),
    ("filter.evil.process", "{it}"),
    ("merge.evil.driver", "{it}"),
    ("gpg.program", "{it}"),
    ("gpg.ssh.program", "{it}"),
    ("gpg.ssh.defaultKeyCommand", "{it}"),
    ("interactive.diffFilter", "{it}"),
    ("pager.log", "{it}"),
    ("pager.diff", "{it}"),
    ("pager.rev-list", "{it}"),
    ("alias.log", "!{it}"),
    ("alias.fast-import", "!{it}"),
    ("alias.update-index", "!{it}"),
    ("trailer.x.command", "{it}"),
    ("uploadpack.packObjectsHook", "{it}"),
    ("tar.evil.command", "{it}"),
    ("man.evil.cmd", "{it}"),
    ("browser.evil.cmd", "{it}"),
    ("sendemail.smtpserver", "{it}"),
    ("submodule.x.update", "!{it}"),
    ("remote.origin.vcs", "evil"),
    ("remote.origin.url", "ext::{it}"),
    ("remote.origin.uploadpack", "{it}"),
    ("init.templateDir", "{templates}"),
    ("include.path", "{included}"),
    ("includeIf.gitdir:/**.path", "{included}"),
    ("includeIf.onbranch:**.path", "{included}"),
]
# Settings that misdirect git without naming a program.
ASTRAY = [
    ("core.worktree", "{elsewhere}"),
    ("core.bare", "true"),
    ("core.excludesFile", "{elsewhere}/x"),
    ("core.attributesFile", "{attributes}"),
    ("core.quotePath", "true"),
    ("core.ignoreCase", "true"),
    ("core.autocrlf", "true"),
    ("core.safecrlf", "true"),
    ("core.splitIndex", "true"),
    ("core.untrackedCache", "true"),
    ("core.logAllRefUpdates", "always"),
    ("commit.gpgSign", "true"),
    ("tag.gpgSign", "true"),
    ("log.showSignature", "true"),
    ("gc.auto", "1"),
    ("gc.autoDetach", "true"),
    ("maintenance.auto", "true"),
    ("color.ui", "always"),
    ("color.diff", "always"),
    ("diff.noprefix", "true"),
    ("diff.mnemonicPrefix", "true"),
    ("diff.renames", "copies"),
    ("diff.orderFile", "/dev/null"),
    ("format.pretty", "oneline"),
    ("log.date", "relative"),
    ("log.follow", "true"),
    ("i18n.commitEncoding", "UTF-16"),
    ("i18n.logOutputEncoding", "UTF-16"),
    ("user.name", "Somebody <x>\\nElse"),
    ("user.useConfigOnly", "true"),
    ("status.showUntrackedFiles", "no"),
    ("index.version", "4"),
    ("fastimport.unpackLimit", "1"),
    ("pack.packSizeLimit", "1"),
    ("transfer.fsckObjects", "true"),
    ("commit.template", "/etc/passwd"),
    ("commit.cleanup", "scissors"),
    ("notes.displayRef", "*"),
    ("push.default", "matching"),
    ("protocol.allow", "always"),
    ("protocol.ext.allow", "always"),
]
EVERYTHING = "* filter=evil diff=evil merge=evil text eol=crlf working-tree-encoding=UTF-16 ident\n"


class HostileVault:
    """A vault with history, and a program beside it that must never run."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "canary"
        self.root = folder / "vault"
        self.program = folder / "evil.sh"
        self.program.write_text(
            f"#!/bin/sh\necho \"$0 $@\" >> '{self.canary}'\ncat\n", encoding="utf-8"
        )
        self.program.chmod(0o755)
        self.names = {"it": str(self.program)}
        for name in ("hooks", "templates", "elsewhere"):
            (folder / name).mkdir()
            self.names[name] = str(folder / name)
        self.hooks(folder / "hooks")
        self.names["included"] = str(folder / "included")
        (folder / "included").write_text(
            f'[core]\nfsmonitor = {self.program}\n[filter "evil"]\nclean = {self.program}\n',
            encoding="utf-8",
        )
        self.names["attributes"] = str(folder / "attributes")
        (folder / "attributes").write_text(EVERYTHING, encoding="utf-8")
        self.repo = made(self.root)
        for number in range(3):
            self.repo.commit([write(self.root, "a.md", f"secret {number}\n")], "m", author="ana")

    def hooks(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(self.program)

    def setting(self, name: str, value: str) -> None:
        by_hand(self.root, "config", name, value.format(**self.names))

    def use(self) -> None:
        """All that a vault does with git."""
        repo, root = self.repo, self.root
        write(root, "a.md", "changed\r\n")
        write(root, "new file.md", "new\n")
        assert "changed" in repo.diff(since=None)
        assert repo.commit(["a.md", "new file.md"], "m", author="ana") is not None
        write(root, "a.md", "again\n")
        (root / "new file.md").unlink()
        assert "again" in repo.diff("a.md", since="HEAD~1")
        assert repo.checkpoint("x", "ana") is not None
        assert [one.subject for one in repo.log(limit=2)] == ["checkpoint: x", "m"]
        assert {"a.md", "new file.md"} <= set(repo.log("a.md", limit=1)[0].paths)
        repo.init()
        with patch.object(pack, "MAX_PACKS", 0):
            assert pack.pack_if_many(repo)
        rewrite(
            repo,
            change_blob=lambda path, content: content.replace(b"secret", b"______"),
            change_message=lambda text: text.replace("checkpoint", "point"),
        )
        assert find_bytes(repo, b"secret") == []
        assert [one.subject for one in repo.log(limit=1)] == ["point: x"]

    def silent(self) -> bool:
        return not self.canary.exists()


@pytest.fixture
def place(tmp_path: Path) -> HostileVault:
    return HostileVault(tmp_path)


def test_canary_program_is_run_by_plain_git(place: HostileVault) -> None:
    place.setting("filter.evil.clean", "{it}")
    write(place.root, ".gitattributes", "* filter=evil\n")
    write(place.root, "a.md", "new\n")
    by_hand(place.root, "add", "-A")
    assert not place.silent()


def test_git_hooks_are_not_run(place: HostileVault) -> None:
    place.hooks(place.root / ".git" / "hooks")
    place.use()
    assert place.silent()


@pytest.mark.parametrize("attributes", [".gitattributes", ".git/info/attributes"])
def test_git_filters_and_drivers_are_not_run(attributes: str, place: HostileVault) -> None:
    write(place.root, attributes, EVERYTHING)
    for name, value in SETTINGS:
        if name.startswith(("filter", "diff", "merge")):
            place.setting(name, value)
    place.setting("filter.evil.required", "true")
    place.use()
    assert place.silent()


@pytest.mark.parametrize(
    ("name", "value"), some([*SETTINGS, *ASTRAY]), ids=lambda value: value[:40]
)
@pytest.mark.sample(3)
def test_git_setting_that_names_a_program_is_not_obeyed(
    name: str, value: str, place: HostileVault
) -> None:
    write(place.root, ".gitattributes", EVERYTHING)
    place.setting(name, value)
    place.use()
    assert place.silent()


def test_hostile_git_settings_from_every_source_are_not_obeyed(place: HostileVault) -> None:
    write(place.root, ".gitattributes", EVERYTHING)
    for name, value in SETTINGS:
        by_hand(place.root, "config", "-f", "../all", name, value.format(**place.names))
    place.setting("extensions.worktreeConfig", "true")
    text = (place.root.parent / "all").read_bytes()
    (place.root / ".git" / "config.worktree").write_bytes(text)
    place.use()
    assert place.silent()


@pytest.mark.parametrize(
    ("name", "value"),
    some(
        [
            ("GIT_DIR", "{other}/.git"),
            ("GIT_WORK_TREE", "{other}"),
            ("GIT_INDEX_FILE", "{other}/index"),
            ("GIT_OBJECT_DIRECTORY", "{other}/objects"),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", "{other}/objects"),
            ("GIT_COMMON_DIR", "{other}/.git"),
            ("GIT_NAMESPACE", "other"),
            ("GIT_CEILING_DIRECTORIES", "/"),
            ("GIT_CONFIG", "{other}/config"),
            ("GIT_CONFIG_GLOBAL", "{other}/config"),
            ("GIT_CONFIG_SYSTEM", "{other}/config"),
            ("GIT_CONFIG_PARAMETERS", "'core.fsmonitor={it}'"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_EXTERNAL_DIFF", "{it}"),
            ("GIT_PAGER", "{it}"),
            ("PAGER", "{it}"),
            ("GIT_EDITOR", "{it}"),
            ("EDITOR", "{it}"),
            ("VISUAL", "{it}"),
            ("GIT_SEQUENCE_EDITOR", "{it}"),
            ("GIT_ASKPASS", "{it}"),
            ("SSH_ASKPASS", "{it}"),
            ("GIT_SSH", "{it}"),
            ("GIT_SSH_COMMAND", "{it}"),
            ("GIT_PROXY_COMMAND", "{it}"),
            ("GIT_EXEC_PATH", "{other}"),
            ("GIT_TEMPLATE_DIR", "{other}"),
            ("GIT_TRACE", "{canary}"),
            ("GIT_TRACE2_EVENT", "{canary}"),
            ("GIT_TRACE_SETUP", "{canary}"),
            ("GIT_AUTHOR_NAME", "Mallory"),
            ("GIT_COMMITTER_NAME", "Mallory"),
            ("GIT_COMMITTER_DATE", "@1 +0000"),
            ("GIT_DEFAULT_HASH", "sha256"),
            ("GIT_LITERAL_PATHSPECS", "0"),
            ("GIT_ICASE_PATHSPECS", "1"),
            ("GIT_REPLACE_REF_BASE", "refs/heads/"),
            ("GIT_QUARANTINE_PATH", "{other}"),
            ("GIT_SHALLOW_FILE", "{other}/shallow"),
            ("GIT_DIFF_OPTS", "--unified=99"),
            ("GIT_FLUSH", "0"),
            ("HOME", "{other}"),
            ("XDG_CONFIG_HOME", "{other}"),
            ("LANG", "de_DE.UTF-8"),
        ]
    ),
)
def test_git_environment_variables_are_not_obeyed(
    name: str, value: str, place: HostileVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    made(other)
    text = f"[core]\nfsmonitor = {place.program}\nhooksPath = {place.names['hooks']}\n"
    for where in ("config", ".gitconfig", "git/config", "hooks/post-commit"):
        write(other, where, text)
    before = by_hand(other, "for-each-ref")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(place.program))
    canary = str(place.canary)
    monkeypatch.setenv(name, value.format(**place.names, other=other, canary=canary))
    place.use()
    monkeypatch.undo()
    assert place.silent()
    assert by_hand(other, "for-each-ref") == before
    log = by_hand(place.root, "log", "--format=%an %cn").decode()
    assert "Mallory" not in log
    assert status(place.root) == []


@pytest.mark.parametrize("name", ["log", "rev-list", "fast-import", "x"])
def test_programs_named_like_git_commands_are_not_run(
    name: str, place: HostileVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.root / f"git-{name}").symlink_to(place.program)
    monkeypatch.chdir(place.root)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}.")
    place.use()
    assert place.silent()


def lazy(place: HostileVault) -> None:
    """A part of the objects is to be fetched from a program when it is needed."""
    place.setting("core.repositoryFormatVersion", "1")
    place.setting("extensions.partialClone", "origin")
    place.setting("remote.origin.promisor", "true")
    place.setting("remote.origin.url", "ext::{it} %S")
    place.setting("protocol.ext.allow", "always")
    for path in (place.root / ".git" / "objects").glob("??/*"):
        if by_hand(place.root, "cat-file", "-t", path.parent.name + path.name) == b"blob\n":
            path.unlink()


def recent(place: HostileVault) -> None:
    place.setting("gc.recentObjectsHook", "{it}")


def configured_hook(place: HostileVault) -> None:
    place.setting("hook.evil.command", "{it}")
    place.setting("hook.evil.event", "reference-transaction")


@pytest.mark.parametrize("prepare", [lazy, recent, configured_hook])
def test_repository_with_settings_that_cannot_be_disabled_is_refused(
    prepare: Callable[[HostileVault], None], place: HostileVault
) -> None:
    prepare(place)
    with pytest.raises(VaultError):
        place.use()
    with pytest.raises(VaultError):
        rewrite(place.repo, change_blob=lambda _, content: content, change_message=str)
    assert place.silent()


def test_git_replacements_and_grafts_are_ignored(place: HostileVault) -> None:
    head = by_hand(place.root, "rev-parse", "HEAD").decode().strip()
    tree = by_hand(place.root, "mktree").decode().strip()
    other = by_hand(place.root, "commit-tree", "-m", "forged", tree).decode().strip()
    by_hand(place.root, "replace", head, other)
    write(place.root, ".git/info/grafts", f"{head}\n")
    assert place.repo.log(limit=1)[0].subject == "m"
    assert len(place.repo.log()) == 4
    place.use()


def test_repository_owned_by_another_user_can_be_used(place: HostileVault) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    for path in (place.root, place.root / ".git"):
        os.chown(path, 12345, 12345)
    place.use()


def test_names_that_look_like_options_are_never_passed_as_options(place: HostileVault) -> None:
    for name in ("--output=../canary", "-c", "--exec-path=x", "--upload-pack=../evil.sh", "-O../x"):
        write(place.root, name, "x")
        assert place.repo.commit([name], name, author=name) is not None
        write(place.root, name, "y")
        assert "+y" in place.repo.diff(name, since=None)
        assert place.repo.log(name)[0].subject == name
    assert place.silent()


def test_folder_replaced_by_a_link_is_not_followed(place: HostileVault, tmp_path: Path) -> None:
    write(tmp_path, "private/secret.md", "private")
    place.repo.commit([write(place.root, "s/secret.md", "mine")], "m", author="ana")
    (place.root / "s" / "secret.md").unlink()
    (place.root / "s").rmdir()
    (place.root / "s").symlink_to(tmp_path / "private")
    assert "private" not in place.repo.diff("s/secret.md", since=None)
    place.repo.commit(["s/secret.md"], "m", author="ana")
    assert place.repo.checkpoint("", "ana") is not None
    assert find_bytes(place.repo, b"private\n") == []
    assert by_hand(place.root, "ls-tree", "HEAD", "s").startswith(b"120000")


def test_parent_repository_is_not_used_without_a_vault(tmp_path: Path) -> None:
    above = HostileVault(tmp_path)
    repo = Repository.at(above.root / "inner")
    assert repo is not None
    (above.root / "inner").mkdir()
    with pytest.raises(VaultError):
        repo.log()
    with pytest.raises(VaultError):
        repo.checkpoint("", "ana")
