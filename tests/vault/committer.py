"""Commits one edit after another until it is killed; each line on its output is a commit made."""

from __future__ import annotations

import sys
from pathlib import Path

from reverie.vault.git.repo import Repository


def main() -> None:
    root = Path(sys.argv[1])
    repo = Repository.at(root)
    assert repo is not None
    number = int(sys.argv[2])
    while True:
        number += 1
        names = [f"file {number % 7}.md", f"new/{number}.md"]
        (root / "new").mkdir(exist_ok=True)
        for name in names:
            (root / name).write_text(f"edit {number}\n", encoding="utf-8")
        sys.stdout.write(f"{repo.commit(names, f'edit {number}', author='ana')}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
