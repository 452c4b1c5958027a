"""The parsers that meet bytes from outside, each with its seeds and what must hold for any input.

A target takes bytes and raises nothing but what it asserts: errors that the parser promises are
part of it. Add a target by adding one entry to ``TARGETS``.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from reverie import config
from reverie.engine.postgres import dsn
from reverie.engine.sqlite import store_file
from reverie.errors import ConfigError, InvalidInput, VaultError
from reverie.recall import query_hints
from reverie.server.mcp import tools
from reverie.server.proxy import json_edit, reply_parser
from reverie.text import (
    analyzer,
    frontmatter,
    json_values,
    messages,
    passages,
    tags,
)
from reverie.text.secrets import detect
from reverie.transfer import agent_cli_files, file_formats, record_schema
from reverie.transfer.export import UnreadableRecord
from reverie.vault import log_file, render

# A parser may add its own marks, never multiply what it was given.
MARGIN = 4_000


@dataclass(frozen=True)
class Target:
    """One parser: what is done with an input, and inputs to begin with."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


# -- files ----------------------------------------------------------------------------------------


def front_matter(raw: bytes) -> None:
    """Any file is read or broken; a readable one can be rewritten and keeps its content."""
    found = frontmatter.load(raw)
    assert all("\n" not in problem for problem in found.problems)
    if found.broken:
        return
    try:
        again = frontmatter.update(raw, {"id": "abc12345", "tags": ("a", "b: c")})
    except VaultError:
        return
    assert len(again) <= len(raw) + MARGIN
    read = frontmatter.load(again)
    assert read.content == found.content
    assert read.text("id") == "abc12345" and read.items("tags") == ["a", "b: c"]
    if found.fields:
        assert frontmatter.update(raw, {}) == raw


def front_matter_written(raw: bytes) -> None:
    """Whatever text is written is read again, to the character."""
    key, _, content = raw.decode("utf-8", "replace").partition("\n")
    fields = {"subject": key, "tags": tuple(key.split(","))[:16]}
    try:
        written = frontmatter.dump(fields, content)
    except (InvalidInput, VaultError):
        return
    read = frontmatter.load(written)
    assert not read.broken and read.content == content
    assert read.fields["subject"] == key


def vault_log(raw: bytes) -> None:
    """A line of the log is an entry or nothing; an entry written again is the same."""
    line = log_file.decode_line(raw)
    log_file.decode_partial_line(raw)
    if line is not None:
        again = log_file.decode_line(log_file.encode_line(line).rstrip(b"\n"))
        # Repr: not-a-number equals nothing, itself included.
        assert repr(again) == repr(line)


def vault_turns(raw: bytes) -> None:
    """A file of turns is read whatever a person made of it."""
    for turn in render.parse_events(raw):
        assert isinstance(turn.sequence, int)
    if (plain_file := render.strip_seal(raw)) is not None:
        assert render.add_seal(plain_file) == raw


def agent_cli(raw: bytes) -> None:
    """A file of another program's memory is read whatever it says."""
    with contextlib.suppress(InvalidInput):
        agent_cli_files.parse_file("entries/facts/2026-01-01-note.md", raw)


# -- imports --------------------------------------------------------------------------------------


def imports(raw: bytes) -> None:
    """Every format: records or what could not be read, no more of them than there are bytes."""
    stream = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8", errors="surrogateescape")
    count = 0
    for found in file_formats.parse(stream):
        count += 1
        if isinstance(found, UnreadableRecord):
            continue
        assert isinstance(found, dict)
        if "reverie" in found:
            try:
                record_schema.parse_record(found)
            except InvalidInput as error:
                assert "\n" not in str(error)
    assert count <= len(raw) + 1


# -- requests and replies -------------------------------------------------------------------------


def chat_body(raw: bytes) -> None:
    """A request is refused, or passes byte for byte; memory goes in without changing the rest."""
    profile, recalled = 'known: "tea"\n', "said: é"
    try:
        body = json_edit.parse_request(raw)
    except json_edit.MalformedBody:
        assert json_edit.add_member(raw, "x", 1) == raw
        return
    if not any(member.name.startswith(json_edit.MEMORY_FIELD_PREFIX) for member in body.members):
        assert body.with_memory() == raw
    with_memory = body.with_memory(profile, recalled)
    assert len(with_memory) <= len(raw) + MARGIN
    again = json_edit.parse_request(with_memory)
    assert len(again.messages) in {len(body.messages), len(body.messages) + 1}
    kept = [name for name in body.fields if not name.startswith(json_edit.MEMORY_FIELD_PREFIX)]
    assert list(again.fields) == kept
    for name in set(kept) - {"messages"}:
        assert repr(again.fields[name]) == repr(body.fields[name])
    assert json_edit.parse_request(json_edit.add_member(raw, "x", 1)).fields["x"] == 1


def message(raw: bytes) -> None:
    """A message of any shape has a text, a role and a digest, and is clipped to its bound."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    try:
        converted = json_values.to_json_object(value)
    except InvalidInput:
        return
    assert isinstance(messages.text_of(converted), str)
    assert messages.digest(converted) == messages.digest(json.loads(json.dumps(converted)))
    assert isinstance(messages.role_of(converted), str)
    messages.speaker_of(converted)
    messages.tool_calls_of(converted)
    messages.tool_result_ids(converted)
    messages.without_blobs(converted)
    assert messages.trim_history([converted, converted], 1) is not None
    messages.truncate_texts(converted, 100)


def completion(raw: bytes) -> None:
    """A reply is a message of the assistant's, or nothing."""
    parsed = reply_parser.parse_completion(raw)
    assert parsed is None or parsed["role"] == "assistant"


def stream(raw: bytes) -> None:
    """A stream says the same however it is cut into pieces, and it is the assistant who speaks."""
    whole = reply_parser.ReplyStream()
    whole.feed(raw)
    whole.end()
    pieces = reply_parser.ReplyStream()
    step = 1 + len(raw) % 7
    for at in range(0, len(raw), step):
        pieces.feed(raw[at : at + step])
    pieces.end()
    assert repr(pieces.message) == repr(whole.message)
    assert whole.message is None or whole.message["role"] == "assistant"
    assert len(repr(whole.message)) <= 10 * len(raw) + MARGIN


def mcp_frame(raw: bytes) -> None:
    """A line is a message of the protocol or not; arguments fit their tool or are refused."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    params = value.get("params")
    given = params.get("arguments") if isinstance(params, dict) else value
    if not isinstance(given, dict):
        return
    for tool in tools.TOOLS:
        try:
            tool.arguments.validate(given)
        except InvalidInput as error:
            assert len(str(error)) < 400


# -- settings -------------------------------------------------------------------------------------


def address(raw: bytes) -> None:
    """An address is one or a ConfigError; what is shown of it has no password."""
    url = "postgresql://" + raw.decode("utf-8", "replace")
    try:
        found = dsn.parse(url)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    password = str(conninfo_to_dict(found.conninfo).get("password", ""))
    if len(password) > 5 and url.count(password) == 1:
        assert password not in found.shown


def file_address(raw: bytes) -> None:
    """An address of a file is one or an InvalidInput."""
    text = raw.decode("utf-8", "replace")
    for url in (text, f"sqlite://{text}"):
        try:
            path, options = store_file.parse_url(url)
        except InvalidInput as error:
            assert "\n" not in str(error)
            continue
        assert isinstance(path, Path) and isinstance(options, dict)


_SETTINGS = Path(tempfile.mkdtemp(prefix="fuzz"))


def settings(raw: bytes) -> None:
    """A file of settings is one or a ConfigError."""
    (_SETTINGS / config.FILE_NAME).write_bytes(raw)
    try:
        config.load({}, folder=_SETTINGS)
    except ConfigError:
        return


# -- text -----------------------------------------------------------------------------------------


def query(raw: bytes) -> None:
    """Any text is a query: terms, passages and tags within their bounds."""
    text = raw.decode("utf-8", "replace")
    assert len(analyzer.query_terms(text)) <= 64
    analyzer.analyse(text)
    query_hints.parse_query(text)
    assert len(tags.concept_tags(text)) <= 8
    end = 0
    for start, stop in passages.split(text):
        assert start <= end < stop or (start, end) == (0, 0)
        end = stop
    assert not text.strip() or end <= len(text)


def redaction(raw: bytes) -> None:
    """What is redacted stays so."""
    text = raw.decode("utf-8", "replace")
    once, _ = detect.redact_text(text)
    assert detect.redact_text(once)[0] == once
    assert len(once) <= 20 * len(text) + MARGIN


# -- the table ------------------------------------------------------------------------------------


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


_USER = {"role": "user", "content": "hello"}
_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
_LINE = {"reverie": 1, "space": "ana", "user": None, "position": 3, "op": "remember"}
_DELTA = {"choices": [{"index": 0, "delta": {"content": "Hi", "tool_calls": [{"index": 0}]}}]}
_TOOL = {"name": "remember", "arguments": {"content": "x", "tags": ["a"], "pinned": True}}

TARGETS: dict[str, Target] = {
    "front-matter": Target(
        front_matter,
        (
            b"---\nid: abc12345\ntags: [a, b]\n# note\nsubject: 'x: y'\n---\n\nbody\n",
            b"\xef\xbb\xbf---\r\nid: x\r\nversion: 2\r\n---\r\ntext\r\n",
            b"---\na: &x [*x]\n---\n",
            b"---\nkey: |\n  block\n  text\nother: >-\n  folded\n---\nbody",
            b"no front matter\n",
        ),
    ),
    "front-matter-written": Target(
        front_matter_written,
        (b"a: b, 'c', \"d\"\ncontent\n---\n", b"- #x\n\r\n\x85\xe2\x80\xa8", b"null\n"),
    ),
    "vault-log": Target(
        vault_log,
        (
            _json({**_LINE, "memory": "abc12345", "version": 1, "uuid": "u", "body": {"a": 1}}),
            _json({**_LINE, "op": "append", "session": "s", "sequence": 1, "origin": ["s", 1]}),
            b'{"position": 1, "space": "\\ud800", "user": null',
        ),
    ),
    "vault-turns": Target(
        vault_turns,
        (
            b"---\nrole: turns\n---\n\n## 1 \xc2\xb7 user \xc2\xb7 2026-01-01 00:00:00\n\nhi\n",
            render.add_seal(b"---\nid: s:1\nrole: user\n---\n\nhello\n"),
        ),
    ),
    "agent-cli": Target(
        agent_cli,
        (
            b"---\nid: 1b4e28ba-2fa1-11d2-883f-0016d3cca427\nrole: memory\n"
            b"created_at: 2026-01-01T00:00:00Z\ntags: [a]\n---\n\ntext\n",
        ),
    ),
    "imports": Target(
        imports,
        (
            _json({"reverie": 1, "op": "remember", "memory": "abc12345", "version": 1, "body": {}}),
            _json({"results": [{"id": "1", "memory": "I like tea", "created_at": "2026-01-01"}]}),
            b'{"type":"entity","name":"Ana","entityType":"person","observations":["tea"]}\n'
            b'{"type":"relation","from":"Ana","to":"Bo","relationType":"knows"}\n',
            b'["one", {"content": "two", "tags": ["a"]}, 3]',
            b"- first\n2) second\n\n* third \xff\n",
            _json({"entities": [], "relations": []}),
        ),
    ),
    "chat-body": Target(
        chat_body,
        (
            _json({"model": "m", "messages": [{"role": "system", "content": "Be brief."}, _USER]}),
            _json({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
            b'{"memory_id" : "k", "x":1,"x":2,\n"messages":[{"role":"user","content":"\\u00e9"}]}',
            b'{"messages": [], "memory_a": 1, "memory_b": [], "temperature": 1.0E+0}',
        ),
    ),
    "message": Target(
        message,
        (
            _json({"role": "assistant", "content": None, "tool_calls": [_CALL]}),
            _json({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "d"}}]}),
            _json({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}),
            _json({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "x"}]}),
            _json({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}),
        ),
    ),
    "reply": Target(
        completion,
        (_json({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}]}),),
    ),
    "stream": Target(
        stream,
        (
            b"data: " + _json(_DELTA) + b"\n\ndata: [DONE]\n\n",
            b": ping\r\ndata:" + _json(_DELTA) + b"\r\n\r\nevent: error\ndata: {}\n\n",
        ),
    ),
    "mcp-frame": Target(
        mcp_frame,
        (
            _json({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": _TOOL}),
            _json({"query": "x", "limit": 5, "as_of": "2026-01-01", "kinds": ["fact"]}),
        ),
    ),
    "database-address": Target(
        address,
        (b"user:secret-word@host:5432/db?sslmode=require&mode=ro", b"/db?host=/tmp", b"a@b,c/d"),
    ),
    "file-address": Target(file_address, (b"/tmp/a%20b.db?mode=ro", b"a.db?vfs=x&mode=ro", b"~")),
    "settings": Target(
        settings,
        (b'url = "a.db"\nembedder = "none"\n', b"port = 7424\nhost = '127.0.0.1'\n", b"[a]\nb=1\n"),
    ),
    "query": Target(
        query,
        (
            b"who said what last Tuesday?",
            "NEAR(a b) \u65e5\u672c\u8a9e caf\u00e9 multi-agent 20.04".encode(),
        ),
    ),
    "redaction": Target(
        redaction,
        (
            b"password=hunter2hunter2 token: ghp_0123456789abcdefghijABCDEFGHIJ012345",
            b"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        ),
    ),
}
