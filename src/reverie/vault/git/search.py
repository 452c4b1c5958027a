"""Search everything that a git repository keeps on disk for bytes that should be gone."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from reverie.errors import VaultError
from reverie.vault.git.process import Git
from reverie.vault.git.repo import Repository

_PIECE = 1 << 20
_DELTAS = {6, 7}
_STEP = 8
# Up to this many needles are searched for one after the other, which is faster.
FEW = 64


class _Needles:
    """Searches for many needles in one pass.

    Eight bytes are compared at every eighth offset: a needle of 15 bytes or more has eight bytes
    that start at such an offset, wherever it is.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        every = sorted(set(needles))
        if not every or not all(every):
            raise VaultError("nothing to look for: give at least one byte")
        self.longest = max(map(len, every))
        few = len(every) <= FEW
        self._each = [one for one in every if few or len(one) < 2 * _STEP - 1]
        self._by_part: dict[int, list[bytes]] = {}
        for one in () if few else every:
            if len(one) >= 2 * _STEP - 1:
                for start in range(_STEP):
                    part = int.from_bytes(one[start : start + _STEP], sys.byteorder)
                    self._by_part.setdefault(part, []).append(one)

    def are_in(self, data: bytes) -> bool:
        if any(one in data for one in self._each):
            return True
        if not self._by_part:
            return False
        parts = memoryview(data)[: len(data) // _STEP * _STEP].cast("Q")
        alike = self._by_part.keys() & parts
        return any(one in data for part in alike for one in self._by_part[part])

    def are_in_any(self, pieces: Iterable[bytes]) -> bool:
        """Whether the pieces contain a needle, which may cross from one piece to the next."""
        rest = b""
        for piece in pieces:
            whole = rest + piece
            if self.are_in(whole):
                return True
            rest = whole[len(whole) - self.longest + 1 :] if len(whole) >= self.longest else whole
        return False


def find_bytes(repo: Repository, *needles: bytes) -> list[str]:
    """Return the objects, reachable or not, and the files of a repository that contain a needle."""
    wanted = _Needles(needles)
    git = repo.git
    found = [f"{kind} {name}" for name, kind in _objects(git, wanted)]
    if wanted.are_in(git.run("ls-files", "-s", "-z")):
        found.append("index: the name of a file")
    packs = git.common() / "objects" / "pack"
    for place in sorted({git.folder, git.common()}):
        found.extend(_files(place, wanted, place.parent, packs))
    return sorted(set(found))


def find_files_with(root: Path, needles: Iterable[bytes]) -> list[str]:
    """Return the files below a folder, except ``.git``, that contain a needle or have it in their
    name."""
    wanted = _Needles(needles)
    return list(_files(root, wanted, root, None, without=root / ".git"))


def find_in_other_trees(repo: Repository, needles: Iterable[bytes]) -> list[str]:
    """Return the full paths of such files in the other work trees of a repository."""
    common, wanted = repo.git.common(), list(needles)
    trees = {common.parent} if common.name == ".git" else set()
    for link in common.glob("worktrees/*/gitdir"):
        dot = link.parent / link.read_text(encoding="utf-8").strip()
        trees.add(Path(os.path.normpath(dot)).parent)
    others = sorted(tree for tree in trees if tree.is_dir() and not tree.samefile(repo.root))
    return [f"{tree}/{found}" for tree in others for found in find_files_with(tree, wanted)]


def _objects(git: Git, wanted: _Needles) -> Iterator[tuple[str, str]]:
    """Yield the objects that contain a needle, also in packs and in alternate repositories."""
    every = ("--batch-all-objects", "--unordered", "--buffer", "--batch")
    with git.open_pipe("cat-file", *every) as pipe:
        pipe.close_stdin()
        while head := pipe.maybe_line():
            name, kind, *size = head.decode("ascii", "replace").split(" ")
            if not size:
                raise VaultError(
                    f"object {name} of {git.root} cannot be read, so the search is incomplete: "
                    "run 'git fsck' there"
                )
            pieces = pipe.pieces(int(size[0]))
            hit = wanted.are_in_any(pieces)
            for _ in pieces:
                pass
            pipe.exactly(1)
            if hit:
                yield name, kind


def _files(
    place: Path, wanted: _Needles, above: Path, packs: Path | None, without: Path | None = None
) -> Iterator[str]:
    """Yield the files whose name, bytes or decompressed content have a needle.

    ``packs`` is the folder whose packs git itself has read already.
    """

    def unreadable(error: OSError) -> None:
        raise VaultError(
            f"{place} cannot be read ({error}), so the search is incomplete"
        ) from error

    for folder, folders, files in os.walk(place, onerror=unreadable):
        folders[:] = [name for name in folders if Path(folder) / name != without]
        for name in (*folders, *files):
            path = Path(folder) / name
            shown = path.relative_to(above).as_posix()
            if wanted.are_in(os.fsencode(path.relative_to(place))):
                yield f"{shown}: its name"
            if path.is_symlink():
                if wanted.are_in(os.fsencode(os.readlink(path))):  # noqa: PTH115
                    yield shown
            elif name in files and path.is_file() and _file_has(path, wanted, packs):
                yield shown


def _file_has(path: Path, wanted: _Needles, packs: Path | None) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(12)
            file.seek(0)
            if wanted.are_in_any(iter(lambda: file.read(_PIECE), b"")):
                return True
            file.seek(0)
            if start[:4] == b"PACK":
                known = path.parent == packs and path.with_suffix(".idx").exists()
                return not known and _pack_has(file.read(), wanted)
            return start[:1] == b"\x78" and wanted.are_in_any(_inflated(file.read()))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise VaultError(f"{path} cannot be read ({error}), so the search is incomplete") from error


def _inflated(data: bytes) -> Iterator[bytes]:
    """Decompress as much as possible: a killed git may have written only a part."""
    inflate = zlib.decompressobj()
    try:
        while data and not inflate.eof:
            yield inflate.decompress(data, _PIECE)
            data = inflate.unconsumed_tail
    except zlib.error:
        return


def _pack_has(data: bytes, wanted: _Needles) -> bool:
    """Whether an object of a pack has a needle; the pack has no index and may be cut off."""
    place = 12
    while place < len(data) - 20:
        byte = data[place]
        kind = byte >> 4 & 7
        place += 1
        while byte & 128 and place < len(data):
            byte = data[place]
            place += 1
        # A delta is preceded by its base: an offset, or an id of 20 or 32 bytes.
        for skip in _skips(data, place, kind):
            try:
                content, end = _inflated_at(data, place + skip)
            except zlib.error:
                continue
            if wanted.are_in(content):
                return True
            place = end
            break
        else:
            return False
    return False


def _inflated_at(data: bytes, place: int) -> tuple[bytes, int]:
    """Decompress the stream at an offset; return its content and end."""
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
