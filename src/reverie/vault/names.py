from __future__ import annotations

import re
import urllib.parse
from pathlib import Path


def folder(name: str, plain_case: bool = False) -> str:
    return urllib.parse.quote(name, safe=" ")[:100]


def name_of(folder: str) -> str:
    return urllib.parse.unquote(folder)


def is_cut(folder: str) -> bool:
    return "~" in folder


def file_name(id: str, subject: str | None, content: str) -> str:
    words = re.findall(r"\w+", (subject or content).lower())[:8]
    return f"{'-'.join(words) or 'memory'}--{id}.md"


def within(root: Path, *parts: str) -> Path:
    return root.joinpath(*parts)
