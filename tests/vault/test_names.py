from __future__ import annotations

import itertools
import os
import unicodedata
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reverie.clock import ID_ALPHABET
from reverie.errors import InvalidInput, VaultError
from reverie.vault import names
from tests.tables import cases_in_one_test
from tests.vault.hostile import IDS, NAMES, SUBJECTS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)
IDENTIFIER = st.text(st.sampled_from(ID_ALPHABET), min_size=8, max_size=8)
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


@cases_in_one_test("name", NAMES)
def test_folder_of_a_hostile_name_is_one_component_and_decodes_to_it(name: str) -> None:
    folder = names.encode_folder(name)
    assert_one_component(folder)
    assert len(folder.encode()) <= names.MAX_FOLDER_BYTES
    if not names.is_truncated(folder):
        assert names.decode_folder(folder) == name
        assert names.decode_folder(unicodedata.normalize("NFD", folder)) == name


def test_folders_of_hostile_names_differ_on_every_file_system() -> None:
    taken: dict[str, str] = {}
    for name in NAMES:
        for spelled in spellings(names.encode_folder(name)):
            assert taken.setdefault(spelled, name) == name, (taken[spelled], name)


def test_folder_of_a_hostile_name_is_never_a_reserved_one(tmp_path: Path) -> None:
    ours = {"deleted", "users", "facts", "notes", "sessions", "summaries", "turns", "memory.md"}
    for name in NAMES:
        folder = names.encode_folder(name)
        assert folder.casefold() not in ours
        made = names.safe_join(tmp_path / "root", folder)
        made.mkdir(parents=True, exist_ok=True)
        assert os.path.realpath(made) == str(tmp_path.resolve() / "root" / folder)
    assert list(tmp_path.iterdir()) == [tmp_path / "root"]


@check
@given(TEXT)
def test_folder_of_any_name_is_one_component_and_decodes_to_it(name: str) -> None:
    folder = names.encode_folder(name)
    assert_one_component(folder)
    assert names.is_truncated(folder) or names.decode_folder(folder) == name


@check
@given(TEXT)
def test_folders_of_similar_names_differ(name: str) -> None:
    alike = {name, name.upper(), name.lower(), name.casefold(), name.title(), name.swapcase()}
    alike |= {unicodedata.normalize(form, text) for text in alike for form in FORMS}
    keys = [spellings(names.encode_folder(text)) for text in alike]
    for one, other in itertools.combinations(keys, 2):
        assert not one & other


@check
@given(st.lists(TEXT, max_size=20, unique=True))
def test_folders_of_two_names_differ(some: list[str]) -> None:
    assert len({names.casefold_key(names.encode_folder(name)) for name in some}) == len(some)


@pytest.mark.parametrize("number", [0, 0x10000, 0x20000, 0xE0000])
def test_folders_of_single_characters_differ(number: int) -> None:
    chars = [chr(code) for code in range(number, number + 0x10000) if not 0xD800 <= code < 0xE000]
    assert all(names.decode_folder(names.encode_folder(char)) == char for char in chars)
    # What is kept as it is must be compared by no disk with anything else.
    kept = [folder for char in chars if (folder := names.encode_folder(char)) == char]
    assert all(spellings(folder) == {folder} for folder in kept)


@cases_in_one_test(
    "name, folder",
    [
        ("ana", "ana"),
        ("Ana", "Ana=1"),
        ("2026-11-15-chat", "2026-11-15-chat"),
        ("my chat", "my%20chat"),
        ("größe", "grö%c3%9fe"),
        ("Ökologie", "Ökologie=1"),
        ("日本語", "日本語"),
        ("हिन्दी", "हिन्दी"),
        ("e\u0301", "e%cc%81"),
        ("..", "%2e%2e"),
        ("", "%"),
        ("facts", "%66acts"),
        ("Facts", "%46acts"),
        ("nul.txt", "%6eul.txt"),
        ("The ACME Corp", "The%20ACME%20Corp=2f1"),
        ("İzmir", "%c4%b0zmir"),
        ("a=1", "a%3d1"),
        ("a.b", "a.b"),
        ("a.", "a%2e"),
        ("100%", "100%25"),
    ],
)
def test_folder_names_are_readable(name: str, folder: str) -> None:
    assert names.encode_folder(name) == folder
    assert names.decode_folder(folder) == name


@cases_in_one_test(
    "folder",
    ["My Chat", "100%", "%zz", "%e9", "a%2", "Ana", "%E4x", "x y", "x=5", "Ana=2", "=1", "%ff=1"],
)
def test_folder_made_by_a_person_is_decoded_as_written(folder: str) -> None:
    assert names.decode_folder(folder) == folder


def test_escapes_in_folder_names_ignore_case() -> None:
    assert names.decode_folder("gr%C3%B6%c3%9FE") == "größE"


def test_long_names_are_cut_at_a_character() -> None:
    one, other = names.encode_folder("é" * 100 + "1"), names.encode_folder("é" * 100 + "2")
    assert one != other and one[:-17] == other[:-17] == "é" * 51
    assert (
        names.is_truncated(one)
        and not names.is_truncated("é" * 50)
        and not names.is_truncated("x~0123")
    )
    assert not names.is_truncated(names.encode_folder("x~0123456789abcdef"))
    assert names.encode_folder("😀" * 100)[:-17] == "%f0%9f%98%80" * 8


def test_name_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidInput):
        names.encode_folder("\ud800")


@cases_in_one_test(
    "id, subject, content, expected",
    [
        ("a1b2c3d4", "Sarah", "x", "sarah--a1b2c3d4.md"),
        ("a1B2c3D4", "Sarah", "x", "sarah--a1B2c3D4_44.md"),
        ("AAAAAAAA", None, "A", "a--AAAAAAAA_ff.md"),
        (
            "12345678",
            None,
            "Sarah moved to the Design team.\nMore",
            "sarah-moved-to-the-design-team--12345678.md",
        ),
        ("12345678", "", "\n\n## Heiße Übergänge!", "heiße-übergänge--12345678.md"),
        ("12345678", "🎉", "✨\nsecond", "second--12345678.md"),
        ("12345678", "\u0301\u0302", "...", "memory--12345678.md"),
        ("12345678", None, "", "memory--12345678.md"),
        ("12345678", "../../etc/passwd", "", "etc-passwd--12345678.md"),
        ("12345678", "e\u0301te\u0301", "", "été--12345678.md"),
        ("12345678", "हिन्दी में", "", "हिन्दी-में--12345678.md"),
        ("12345678", "word " * 30, "", "-".join(["word"] * 12) + "--12345678.md"),
        ("12345678", "w" * 99, "", "w" * 60 + "--12345678.md"),
        ("12345678", "日" * 99, "", "日" * 40 + "--12345678.md"),
    ],
)
def test_file_names_are_readable(id: str, subject: str | None, content: str, expected: str) -> None:
    assert names.file_name(id, subject, content) == expected
    assert names.parse_id(expected) == id


@cases_in_one_test("subject", SUBJECTS)
def test_file_name_of_a_hostile_subject_is_one_component(subject: str) -> None:
    for made in (
        names.file_name("a1B2c3D4", subject, "x"),
        names.file_name("a1B2c3D4", None, subject),
    ):
        stem = made.removesuffix("--a1B2c3D4_44.md")
        assert stem and len(stem) <= 60 and len(stem.encode()) <= 120 and stem != made
        assert "--" not in stem and stem == stem.strip("-")
        assert_one_component(made)
        assert names.parse_id(made) == "a1B2c3D4"


@cases_in_one_test("id", IDS)
def test_file_name_of_a_hostile_id_is_refused(id: str) -> None:
    with pytest.raises(InvalidInput, match=r"^[^\n]+$"):
        names.file_name(id, "subject", "content")


@check
@given(IDENTIFIER, st.none() | ANY_TEXT, ANY_TEXT)
def test_file_name_of_any_subject_is_one_component_with_its_id(
    id: str, subject: str | None, content: str
) -> None:
    made = names.file_name(id, subject, content)
    assert_one_component(made)
    assert names.parse_id(made) == names.parse_id(made.lower()) == id


@check
@given(IDENTIFIER, IDENTIFIER, TEXT)
def test_file_names_of_two_ids_differ(one: str, other: str, subject: str) -> None:
    cased = {one, other, one.lower(), one.upper(), one.swapcase(), one.title()}
    made = [names.file_name(id, subject, "") for id in cased]
    for first, second in itertools.combinations(map(spellings, made), 2):
        assert not first & second


@cases_in_one_test(
    "name",
    [
        "",
        "x.md",
        "--.md",
        "a1b2c3d4.md",
        "x-a1b2c3d4.md",
        "x--a1b2c3d.md",
        "x--a1b2c3d45.md",
        "x--a1b2c3d4",
        "x--a1b2c3d4.md~",
        "x--a1b2c3d4.md\n",
        "x--a1b2c3d4.conflict-v2.md",
        "x--a1B2c3d4.md",
        "x--a1b2c3d4_00.md",
        "x--a1b2c3d4_02.md",
        "x--a1b2c3d4_4.md",
        "x--a1b2c3d4_100.md",
        "x--a1b2c3d4.txt",
        "x--ä1b2c3d4.md",
        "x--\u212a1b2c3d4_01.md",
        "x--\u017f1b2c3d4_01.md",
    ],
)
def test_file_names_of_other_files_have_no_id(name: str) -> None:
    assert names.parse_id(name) is None


def test_renamed_file_keeps_its_id() -> None:
    assert names.parse_id("my--own--name--a1b2c3d4_44.md") == "a1B2c3D4"


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
