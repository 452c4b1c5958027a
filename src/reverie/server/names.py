"""Names in the path of a request: any name there is, a slash in it spelled ``%2F``."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor


class Name(Convertor[str]):
    """One part of a path as it was sent, read as the name it stands for."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        # What is no UTF-8 is no name: the library says so.
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        return quote(value, safe="")


register_url_convertor("name", Name())
