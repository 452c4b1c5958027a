"""Looks through everything a git repository keeps on disk for bytes that should be gone."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from reverie.errors import VaultError
from reverie.vault.git import Repository
from reverie.vault.program import Git

_PIECE = 1 << 20
_DELTAS = {6, 7}


def holds(repo: Repository, needle: bytes) -> list[str]:
    """Where the needle still is: objects, reachable or not, and every file of the repository."""
    if not needle:
        raise VaultError("nothing to look for: give at least one byte")
    git = repo.git
    found = [f"{kind} {name}" for name, kind in _objects(git, needle)]
    if needle in git.run("ls-files", "-s", "-z"):
        found.append("index: the name of a file")
    for place in sorted({git.folder, git.common()}):
        found.extend(_files(place, needle))
    return sorted(set(found))


def _objects(git: Git, needle: bytes) -> Iterator[tuple[str, str]]:
    """Every object that git can name, those of packs and of other places it borrows from too."""
    every = ("--batch-all-objects", "--unordered", "--buffer", "--batch")
    with git.talk("cat-file", *every) as talk:
        talk.no_more()
        while head := talk.maybe_line():
            name, kind, *size = head.decode("ascii", "replace").split(" ")
            if not size:
                raise VaultError(
                    f"object {name} of {git.root} cannot be read, so nothing is proved: "
                    "run 'git fsck' there"
                )
            pieces = talk.pieces(int(size[0]))
            hit = _is_in(pieces, needle)
            for _ in pieces:
                pass
            talk.exactly(1)
            if hit:
                yield name, kind


def _files(place: Path, needle: bytes) -> Iterator[str]:
    """Names and bytes of files as they are, and what git wrote compressed and then forgot."""

    def unreadable(error: OSError) -> None:
        raise VaultError(f"{place} cannot be read ({error}), so nothing is proved") from error

    for folder, folders, files in os.walk(place, onerror=unreadable):
        for name in (*folders, *files):
            path = Path(folder) / name
            shown = str(path.relative_to(place.parent))
            if needle in os.fsencode(path.relative_to(place)):
                yield f"{shown}: its name"
        for name in files:
            path = Path(folder) / name
            shown = str(path.relative_to(place.parent))
            if path.is_symlink():
                if needle in os.fsencode(os.readlink(path)):  # noqa: PTH115
                    yield shown
            elif path.is_file() and _file_has(path, needle):
                yield shown


def _file_has(path: Path, needle: bytes) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(12)
            file.seek(0)
            if _is_in(iter(lambda: file.read(_PIECE), b""), needle):
                return True
            file.seek(0)
            if start[:4] == b"PACK":
                return not path.with_suffix(".idx").exists() and _pack_has(file.read(), needle)
            return start[:1] == b"\x78" and _is_in(_inflated(file.read()), needle)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise VaultError(f"{path} cannot be read ({error}), so nothing is proved") from error


def _inflated(data: bytes) -> Iterator[bytes]:
    """As much as there is: a killed git may have written half of it."""
    inflate = zlib.decompressobj()
    try:
        while data and not inflate.eof:
            yield inflate.decompress(data, _PIECE)
            data = inflate.unconsumed_tail
    except zlib.error:
        return


def _pack_has(data: bytes, needle: bytes) -> bool:
    """A pack without its index, maybe cut: object by object, as far as it goes."""
    place = 12
    while place < len(data) - 20:
        byte = data[place]
        kind = byte >> 4 & 7
        place += 1
        while byte & 128 and place < len(data):
            byte = data[place]
            place += 1
        # What a difference refers to stands before it: a number, or an id of 20 or 32 bytes.
        for skip in _skips(data, place, kind):
            try:
                content, end = _inflated_at(data, place + skip)
            except zlib.error:
                continue
            if needle in content:
                return True
            place = end
            break
        else:
            return False
    return False


def _inflated_at(data: bytes, place: int) -> tuple[bytes, int]:
    """One compressed stretch, and where it ends."""
    inflate = zlib.decompressobj()
    content = []
    while place < len(data) and not inflate.eof:
        piece = data[place : place + 4096]
        content.append(inflate.decompress(piece))
        place += len(piece) - len(inflate.unused_data)
    return b"".join(content), place


def _skips(data: bytes, place: int, kind: int) -> tuple[int, ...]:
    if kind not in _DELTAS:
        return (0,)
    if kind == 7:
        return (20, 32)
    end = place
    while end < len(data) and data[end] & 128:
        end += 1
    return (end + 1 - place,)


def _is_in(pieces: Iterable[bytes], needle: bytes) -> bool:
    """Also where the needle lies across two pieces."""
    rest = b""
    for piece in pieces:
        if needle in rest + piece:
            return True
        rest = (rest + piece)[-(len(needle) - 1) :] if len(needle) > 1 else b""
    return False
