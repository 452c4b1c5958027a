from __future__ import annotations

import json
import os
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.errors import InvalidInput, VaultError
from reverie.model import Scope
from reverie.vault import names
from reverie.vault.folder_names import ensure_names
from reverie.vault.layout import Folders
from reverie.vault.vault import Vault
from reverie.write.secret_policy import Redaction
from tests.tables import cases_in_one_test
from tests.vault.hostile import NAMES, SUBJECTS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
check = settings(deadline=None, max_examples=300, derandomize=True)

ROOT = Path("/vault")
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
WINDOWS_DEVICES = {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"} | {
    f"{device}{number}" for device in ("com", "lpt") for number in "0123456789¹²³"
}


def spellings(component: str) -> set[str]:
    """What disks compare: with and without case, composed and taken apart, in any order."""
    once = {unicodedata.normalize(form, component) for form in FORMS}
    folded = {fold(text) for text in once for fold in (str.casefold, str.upper, str.lower)}
    return {unicodedata.normalize("NFKC", text.upper().casefold()) for text in folded}


def assert_one_component(component: str) -> None:
    """One name, on any system, that is no device, no option, no hidden file and not too long."""
    assert 0 < len(component.encode()) <= 255
    assert PurePosixPath(component).parts == (component,)
    assert PureWindowsPath(component).parts == (component,)
    assert not PureWindowsPath(component).drive and ":" not in component
    assert component not in {".", ".."}
    assert component[0] not in ".- " and component[-1] not in ". "
    assert component.split(".")[0].rstrip(" ").lower() not in WINDOWS_DEVICES
    assert not set(component) & set('<>:"/\\|?*') and component.isprintable()
    assert unicodedata.normalize("NFC", component) == component
    assert names.safe_join(ROOT, component).parent == ROOT


def test_hostile_name_table_is_long_enough() -> None:
    assert len(NAMES) >= 300 and len(set(NAMES)) == len(NAMES)


def hostile(name: str) -> bool:
    """Whether the store refuses the name: half a character, or none."""
    return not name or any("\ud800" <= char <= "\udfff" for char in name)


@cases_in_one_test("name", [name for name in NAMES if not hostile(name)])
def test_folder_of_a_hostile_name_is_one_component(name: str) -> None:
    folder = names.folder_name(name)
    assert_one_component(folder)
    assert len(folder.encode()) <= names.MAX_FOLDER_BYTES + 1


@check
@given(TEXT)
def test_folder_of_any_name_is_one_component_and_its_own_folder(name: str) -> None:
    folder = names.folder_name(name)
    assert_one_component(folder)
    assert names.folder_name(folder) == folder


@cases_in_one_test(
    "name, folder",
    [
        ("ana", "ana"),
        ("Ana", "Ana"),
        ("2026-11-15-chat", "2026-11-15-chat"),
        ("my chat", "my chat"),
        ("größe", "größe"),
        ("日本語", "日本語"),
        ("हिन्दी", "हिन्दी"),
        ("e\u0301", "é"),
        ("..", "unnamed"),
        ("a/b", "a-b"),
        ("a: b?", "a- b-"),
        ("nul.txt", "_nul.txt"),
        ("CON", "_CON"),
        ("The ACME Corp", "The ACME Corp"),
        ("İzmir", "İzmir"),
        ("a=1", "a=1"),
        ("a.b", "a.b"),
        ("a.", "a"),
        ("100%", "100%"),
        (".git", "git"),
        ("-rf", "rf"),
        ("users", "users"),
        ("👩‍👧", "👩-👧"),
        ("x" * 200, "x" * 120),
        ("é" * 100, "é" * 60),
    ],
)
def test_folder_is_called_like_what_it_is_for(name: str, folder: str) -> None:
    assert names.folder_name(name) == folder


def test_name_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidInput):
        names.folder_name("\ud800")


@check
@given(TEXT)
def test_names_that_a_disk_does_not_distinguish_have_one_key(name: str) -> None:
    alike = {name.upper(), name.lower(), name.casefold(), name.title(), name.swapcase()}
    for text in alike:
        for form in FORMS:
            if spellings(unicodedata.normalize(form, text)) & spellings(name):
                assert names.collision_key(text) == names.collision_key(name)


@cases_in_one_test(
    "subject, content, expected",
    [
        ("Sarah", "x", "sarah"),
        (None, "A", "a"),
        (None, "Sarah moved to the Design team.\nMore", "sarah-moved-to-the-design-team"),
        ("", "\n\n## Heiße Übergänge!", "heiße-übergänge"),
        ("🎉", "✨\nsecond", "second"),
        ("\u0301\u0302", "...", "memory"),
        (None, "", "memory"),
        ("../../etc/passwd", "", "etc-passwd"),
        ("e\u0301te\u0301", "", "été"),
        ("हिन्दी में", "", "हिन्दी-में"),
        ("word " * 30, "", "-".join(["word"] * 12)),
        ("w" * 99, "", "w" * 60),
        ("日" * 99, "", "日" * 40),
        ("Con", "", "_con"),
    ],
)
def test_file_names_are_readable(subject: str | None, content: str, expected: str) -> None:
    assert names.file_stem(subject, content) == expected


@cases_in_one_test("subject", SUBJECTS)
def test_file_name_of_a_hostile_subject_is_one_component(subject: str) -> None:
    for stem in (names.file_stem(subject, "x"), names.file_stem(None, subject)):
        assert stem and len(stem) <= 61 and len(stem.encode()) <= 121
        assert "--" not in stem and stem == stem.strip("-")
        assert_one_component(f"{stem}.md")


@check
@given(st.none() | ANY_TEXT, ANY_TEXT)
def test_file_name_of_any_subject_is_one_component(subject: str | None, content: str) -> None:
    assert_one_component(f"{names.file_stem(subject, content)}.md")


# -- folders in a vault ---------------------------------------------------------------------------


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.init(tmp_path / "vault") as made:
        ensure_names(made, Redaction())
        yield made


def assign(vault: Vault, scope: Scope) -> str:
    vault.assign_owner(scope)
    return vault.folders.owner(scope)


def test_no_two_owners_share_a_folder_on_any_disk(vault: Vault) -> None:
    taken: dict[str, str] = {}
    for name in NAMES:
        if hostile(name):
            continue
        folder = assign(vault, Scope(name))
        assert_one_component(folder)
        for spelled in spellings(folder):
            assert taken.setdefault(spelled, name) == name, (taken[spelled], name)
        place = vault.folders.parse(f"{folder}/facts/x.md")
        assert place is not None and place.scope == Scope(name)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(TEXT.filter(bool), max_size=12, unique=True))
def test_folders_of_two_users_or_sessions_differ(some: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, Vault.init(Path(folder)) as vault:
        users = [assign(vault, Scope("ana", name)) for name in some]
        sessions = [vault.assign_session(Scope("ana"), name, 0) for name in some]
        for folders in (users, sessions):
            assert len(set(map(names.collision_key, folders))) == len(some)
        for name, path in zip(some, users, strict=True):
            place = vault.folders.parse(f"{path}/facts/x.md")
            assert place is not None and place.scope == Scope("ana", name)
        for name, path in zip(some, sessions, strict=True):
            place = vault.folders.parse(f"{path}/turns.md")
            assert place is not None and place.session == name


def test_second_of_two_alike_names_gets_a_number_and_keeps_it(tmp_path: Path) -> None:
    with Vault.init(tmp_path) as vault:
        ensure_names(vault, Redaction())
        assert assign(vault, Scope("Ana")) == "Ana"
        assert assign(vault, Scope("ana")) == "ana-2"
        assert assign(vault, Scope("ANA")) == "ANA-3"
        assert assign(vault, Scope("ana-2")) == "ana-2-2"
        vault.write_names(lambda name: False)
    (tmp_path / ".reverie" / "files.db").unlink()
    with Vault.open(tmp_path) as vault:
        found = [vault.folders.owner(Scope(name)) for name in ("Ana", "ana", "ANA", "ana-2")]
        assert found == ["Ana", "ana-2", "ANA-3", "ana-2-2"]
        assert json.loads(vault.names_file.read_bytes())["folders"] == {
            "ana-2": "ana",
            "ANA-3": "ANA",
            "ana-2-2": "ana-2",
        }


def test_folders_that_differ_by_case_alone_stay_their_owners(vault: Vault) -> None:
    for name in ("Ana", "ana"):
        (vault.root / name).mkdir()
    assert {assign(vault, Scope(name)) for name in ("Ana", "ana")} == {"Ana", "ana"}
    assert assign(vault, Scope("ANA")) == "ANA-2"


def test_folder_of_a_person_is_not_given_to_another_name(vault: Vault) -> None:
    (vault.root / "Projects").mkdir()
    assert assign(vault, Scope("projects")) == "projects-2"
    assert assign(vault, Scope("Projects")) == "Projects"


def test_damaged_file_of_names_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with Vault.init(tmp_path) as vault:
        ensure_names(vault, Redaction())
        assign(vault, Scope("a/b"))
        vault.write_names(lambda name: False)
    (tmp_path / ".reverie" / "files.db").unlink()
    (tmp_path / ".reverie" / "names.json").write_text("{")
    with pytest.raises(VaultError, match=r"names\.json is damaged: restore it"):
        Vault.open(tmp_path)


def test_file_gets_a_folder_of_its_month_once_the_folder_is_full(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reverie.vault.vault.MAX_FOLDER_ENTRIES", 3)
    made = []
    for _ in range(8):
        path = vault.roomy_path("ana/facts/alec.md", 0)
        (vault.root / path).parent.mkdir(parents=True, exist_ok=True)
        (vault.root / path).touch()
        made.append(path)
    assert made == [
        "ana/facts/alec.md",
        "ana/facts/alec-2.md",
        # A folder for the months counts as well.
        "ana/facts/alec-3.md",
        "ana/facts/1970-01/alec.md",
        "ana/facts/1970-01/alec-2.md",
        "ana/facts/1970-01/alec-3.md",
        "ana/facts/1970-01-2/alec.md",
        "ana/facts/1970-01-2/alec-2.md",
    ]
    places = [vault.folders.parse(path) for path in made]
    assert all(place and (place.what, place.kind) == ("memory", "fact") for place in places)
    with Vault.open(vault.root) as again:
        assert again.roomy_path("ana/facts/x.md", 0) == "ana/facts/1970-01-2/x.md"


def test_paths_of_sessions_have_the_month_in_which_they_began() -> None:
    folders, ana = Folders(), Scope("ana")
    assert folders.session(ana, "2026-11", 1_767_225_600_000) == "ana/sessions/2026-01/2026-11"
    for path, session in {
        "ana/sessions/2026-01/2026-11/turns.md": "2026-11",
        "ana/sessions/chat/turns.md": "chat",
        "ana/sessions/2026-01/turns.md": "2026-01",
        "ana/deleted/sessions/2026-01/chat/summaries/summary.md": "chat",
        "ana/users/bob/sessions/2026-01/chat/facts/x.md": "chat",
    }.items():
        place = folders.parse(path)
        assert place is not None and place.session == session, path


UNSAFE = [
    name
    for name in NAMES
    if name in {"", ".", ".."}
    or set(name) & set('/\\:*?"<>|\0\n\r\t')
    or name.endswith((".", " "))
    or name.lower() in {".git", "git~1"}
    or name.split(".")[0].lower() in WINDOWS_DEVICES
]


@cases_in_one_test("part", UNSAFE)
def test_safe_join_refuses_unsafe_components(part: str) -> None:
    for parts in ((part,), ("ana", part), (part, "ana"), ("ana", part, "x.md")):
        with pytest.raises(VaultError, match=r"^[^\n]+$"):
            names.safe_join(ROOT, *parts)


@pytest.mark.parametrize(
    "part", ["\ud800", "x" * 256, ".g\u200cit", "é" * 128, "nul .txt", "x\x9f"]
)
def test_safe_join_refuses_each_unsafe_component(part: str) -> None:
    with pytest.raises(VaultError):
        names.safe_join(ROOT, part)


def test_safe_join_accepts_the_names_a_vault_uses() -> None:
    made = names.safe_join(ROOT, ".reverie", "log-000001.jsonl")
    assert made == Path("/vault/.reverie/log-000001.jsonl")
    assert names.safe_join(ROOT, "ana", "MEMORY.md") == Path("/vault/ana/MEMORY.md")
    assert names.safe_join(ROOT) == ROOT


@check
@given(st.lists(ANY_TEXT, max_size=4))
def test_safe_join_never_leaves_the_root(parts: list[str]) -> None:
    try:
        path = names.safe_join(ROOT, *parts)
    except VaultError:
        return
    assert os.path.normpath(path) == str(path) == "/".join([str(ROOT), *parts])
    windows = PureWindowsPath("C:\\vault").joinpath(*parts)
    assert windows.parts == ("C:\\", "vault", *parts)
