"""What looks like a key and is none: hashes, ids, names, numbers, as they stand in texts."""

from __future__ import annotations

import base64
import random
import re
import uuid

from bench.secret_shapes import LETTERS

_WORDS = """
    alpha account adapter backup batch bridge cache channel client cluster config context
    counter cursor default deploy device domain driver editor engine event export factory
    feature filter folder gateway handler import index journal kernel layout ledger manager
    matrix memory module monitor network object parser policy printer profile queue reader
    record render report request router runner schema server session signal socket source
    stream table target ticket timer trigger update vector viewer widget window worker
"""

# Where a brace stands, something of that kind is put: a letter and a number as for the shapes of
# keys, base64 of so many bytes, or words in one of the ways in which code writes them.
_TEXTS = r"""
commit: fixed in {h40}, see the log
commit: git show {h8}..{h8} -- src
commit: commit: {h40}
commit: https://github.com/acme/{word}/commit/{h40}
uuid: The order {uuid} has shipped
uuid: {"request_id": "{uuid}", "status": 200}
uuid: primary key: {uuid}
digest: sha256:{h64}  {word}.tar.gz
digest: docker pull acme/{word}@sha256:{h64}
digest: MD5 ({word}.iso) = {h32}
digest: "integrity": "sha512-{base64}"
digest: {word}.py,sha256={m43},15626
digest: ETag: "{h32}"
image: ![x](data:image/png;base64,{base300})
image: {base1800}
our id: - [id:{m8}] lives in Ghent
our id: reverie show {m8} --json
session: session {h12} went on
session: X-Reverie-Session: 2026-11-15-{word}-{h12}
answer: {"id": "call_{m24}", "type": "function"}
answer: {"tool_use_id": "toolu_01{m22}"}
answer: chatcmpl-{m29} finished in 3 s
answer: "previous_response_id": "resp_{h48}"
number: ISBN 978-{d1}-{d2}-{d6}-3
number: call me: +32 4{d2} {d6}
number: BE{d2} {d4} {d4} 1234
number: tracking number {d18} at the post
identifier: rename {name} to {name}
identifier: API_{NAME}_KEY is read at start
identifier: token_{name} = get_{name}()
identifier: class {camel}(Abstract{camel}TokenProvider):
identifier: secret{camel} = new {camel}SecretFactory()
path: open {path}/{camel}.py and look at line {d3}
path: token file: {path}/{camel}.ts
path: from {word}.{word}.{word} import {camel}
minified: !function(e,t){{word}.{word}=t.{word}({word},e)}(this,{word})
asset: /static/{word}.{h20}.chunk.js
asset: https://cdn.acme.test/{word}-{h32}.css
url: https://docs.acme.test/{word}/{word}?page={d2}#{h6}
url: https://youtu.be/{m11}?t={d3}
url: https://docs.google.com/document/d/1{m43}/edit
number: he lives at 0x{h40} on the test chain
number: 2026-11-15T10:{d2}:07.{d6}Z
number: python-3.{d2}.{d1}-linux-x86_64-gnu
url: ssh deploy@{word}-{word}-{d2}.eu-west-1.acme.test
prose: the password policy of the {word} team asks for {d2} characters
prose: we spent {d5} tokens on the secret {word} meeting
prose: the key to the {word} is under the {word}
placeholder: export {NAME}_TOKEN=${{NAME}_TOKEN}
placeholder: password: <your {word} password>
placeholder: password = getpass(prompt='{word}')
prose: change the password to Windows11 machine
prose: my password to iCloud2 account
prose: the password to room101 locker
prose: password is SHA256 hashed
prose: password is Base64-encoded
prose: password is md5-hashed
prose: passphrase was 7words long
prose: Passwords: 14-day rotation
prose: Passwort: siehe-1Password-Eintrag
prose: Password: See-wiki/page42
prose: pwd: /Users/ana/Documents/Work2024/q3
prose: Basic Mathematics2ndEdition is my book
prose: token: apple-banana-cherry-2024-05
prose: Key: Ab3/C4-E4-G4/Bb3-D4-F4
name: payments-api-7d9f8b6c5d-x2kqz
name: prod-eu-west-1-payments-api-7d9f8b6c5d-x2kqz
name: {"page_token": "CAUQAA12345678901"}
name: {"next_page_token": "eyJvZmZzZXQiOjEwMH0abc1"}
name: https://api.acme.test/list?page_token=CAUQAA12345678901&size=5
name: {"password_hint": "First pet 1"}
"""
_PART = re.compile(r"\{(base|uuid|word|name|NAME|camel|path|[hdlum])(\d*)\}")


def _part(chance: random.Random, what: str, size: str) -> str:
    words = chance.choices(_WORDS.split(), k=4)
    if what == "base":
        return base64.b64encode(chance.randbytes(int(size))).decode()
    if what in LETTERS:
        return "".join(chance.choices(LETTERS[what], k=int(size)))
    written = {
        "uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "word": words[0],
        "name": "_".join(words),
        "NAME": "_".join(words).upper(),
        "camel": "".join(map(str.title, words)),
        "path": "/" + "/".join(words),
    }
    return written[what]


def texts(count: int = 2_000, seed: int = 0) -> list[tuple[str, str]]:
    """So many, of every kind in turn: what it is, and the text."""
    chance, lines, made = random.Random(seed), _TEXTS.strip().splitlines(), []
    for number in range(count):
        kind, _, text = lines[number % len(lines)].partition(": ")
        made.append((kind, _PART.sub(lambda part: _part(chance, part[1], part[2]), text)))
    return made
