"""Access tokens: each grants a right, in some spaces or all. A store keeps only their hashes.

A token is ``rv_``, an id and a secret of 256 random bits. One round of SHA-256 is enough for a
secret that cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

from reverie.engine import log_rows, seals
from reverie.errors import InvalidInput, NotFound, StoreDamaged
from reverie.model import RIGHTS, Right, Token
from reverie.protocols import Transaction
from reverie.text.normalize import require_name
from reverie.write.runtime import Runtime

_KEY = "token."
_TOKEN_PATTERN = re.compile(r"rv_([A-Za-z0-9]{8})_([A-Za-z0-9_-]{43})")
MAX_NAME_CHARS = 200


def new_secret(id: str) -> str:
    """Return the text of a new token with this id and a random secret."""
    return f"rv_{id}_{secrets.token_urlsafe(32)}"


def create(
    runtime: Runtime, name: str, right: Right, spaces: Iterable[str] | None, user: str | None
) -> tuple[Token, str]:
    """Create a token; return it with its text, which cannot be read again."""
    require_name(name, "the name of a token", MAX_NAME_CHARS)
    if right not in RIGHTS:
        raise InvalidInput(f"a right must be one of {', '.join(RIGHTS)}, not {right!r}")
    bound = None if spaces is None else tuple(sorted(set(spaces)))
    for space in bound or ():
        require_name(space, "the name of a space", MAX_NAME_CHARS)
    if bound == ():
        raise InvalidInput("a token for no space can do nothing: name one, or leave spaces out")
    if user is not None:
        require_name(user, "the name of a user", MAX_NAME_CHARS)
    if right == "admin" and (bound is not None or user is not None):
        raise InvalidInput("the right admin is for all spaces: leave the spaces and the user out")
    token = Token(runtime.ids.memory(), name, right, bound, user, runtime.clock.now())
    secret = new_secret(token.id)
    value = {
        "name": name,
        "right": right,
        "spaces": bound,
        "user": user,
        "created_at": token.created_at,
        "sha256": _hashed(secret),
    }
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        key = _KEY + token.id
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", (key, seals.seal_json(key, value)))
    return token, secret


def list_tokens(runtime: Runtime) -> list[Token]:
    """List the tokens, the oldest first; damaged ones, which grant nothing, are left out."""
    found = []
    with runtime.engine.read() as tx:
        for key, value in read_rows(tx):
            try:
                found.append(_token(key, value)[0])
            except StoreDamaged as damage:
                log_rows.record_damage(tx, damage)
    return sorted(found, key=lambda token: (token.created_at, token.id))


def revoke(runtime: Runtime, id: str) -> None:
    """Delete a token, or raise NotFound."""
    with runtime.engine.write() as tx:
        tx.enter_all_owners()
        if not tx.run("DELETE FROM meta WHERE key = ?", (_KEY + id,)):
            raise NotFound(
                f"there is no token {id!r}: 'reverie token list' shows the ones there are"
            )


def authenticate(runtime: Runtime, secret: str) -> Token | None:
    """Return the token with this text; None when there is none."""
    shape = _TOKEN_PATTERN.fullmatch(secret)
    if shape is None:
        return None
    key = _KEY + shape[1]
    with runtime.engine.read() as tx:
        row = tx.one("SELECT value FROM meta WHERE key = ?", (key,))
        if row is None:
            return None
        try:
            token, kept = _token(key, str(row[0]))
        except StoreDamaged as damage:
            log_rows.record_damage(tx, damage)
            return None
    return token if hmac.compare_digest(kept, _hashed(secret)) else None


def read_rows(tx: Transaction) -> list[tuple[str, str]]:
    """Read the stored keys and values of all tokens, as ``replace_all`` takes them."""
    found = tx.all("SELECT key, value FROM meta WHERE SUBSTR(key, 1, 6) = ?", (_KEY,))
    return [(str(key), str(value)) for key, value in found]


def replace_all(tx: Transaction, kept: Iterable[tuple[str, str]]) -> None:
    """Replace all tokens of a store with these.

    A restored backup must not bring back tokens that were revoked after it was made.
    """
    tx.run("DELETE FROM meta WHERE SUBSTR(key, 1, 6) = ?", (_KEY,))
    for row in kept:
        tx.run("INSERT INTO meta (key, value) VALUES (?, ?)", row)


def _token(key: str, value: str) -> tuple[Token, str]:
    kept = seals.unseal_json(key, value)
    if kept is None:
        raise StoreDamaged(
            f"token {key.removeprefix(_KEY)!r} is damaged and cannot be used: revoke it, and make "
            "another"
        )
    spaces = kept["spaces"]
    token = Token(
        key.removeprefix(_KEY),
        kept["name"],
        kept["right"],
        None if spaces is None else tuple(spaces),
        kept["user"],
        kept["created_at"],
    )
    return token, kept["sha256"]


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
