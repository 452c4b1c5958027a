"""The setting ``secrets``: what is done about secrets in texts that are to be stored."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from reverie.config import Settings
from reverie.errors import InvalidInput
from reverie.text.normalize import require_length
from reverie.text.secrets import detect

log = logging.getLogger("reverie.secrets")

# A shorter value is not a key, and would be redacted within ordinary words.
MIN_HELD_KEY_CHARS = 8

Optional = TypeVar("Optional", str, str | None)


@dataclass(frozen=True, slots=True)
class Redaction:
    """A policy (``redact``, ``block``, ``warn`` or ``off``) and the API keys Reverie itself uses.

    Those in ``own``, and Reverie's tokens, are redacted under every policy.
    """

    policy: str = "redact"
    own: tuple[str, ...] = ()

    def text(self, text: Optional, what: str, most: int) -> Optional:
        """Return a text as it may be stored; raise InvalidInput when the policy blocks it.

        A text of more than ``most`` characters is refused before it is scanned.
        """
        if isinstance(text, str):
            require_length(text, what, most)
        cleaned: Optional = self._apply(text, what, self.policy)
        return cleaned

    def each(self, texts: Any, what: str) -> Any:
        """Apply the policy to every text within JSON values whose size was checked."""
        return self._apply(texts, what, self.policy)

    def quiet(self, text: Optional, what: str) -> Optional:
        """Redact a text that nobody can correct, such as a model's answer: never raises."""
        cleaned: Optional = self.clean_values(text, what)
        return cleaned

    def clean_values(self, texts: Any, what: str) -> Any:
        """Redact every text within JSON values, where ``block`` counts as ``redact``."""
        policy = "redact" if self.policy == "block" else self.policy
        return self._apply(texts, what, policy)

    def refused_kinds(self, value: Any) -> tuple[str, ...]:
        """Return the kinds of secrets within JSON values that the policy does not keep."""
        if self.policy in {"off", "warn"}:
            return () if detect.remove_own_secrets(value, self.own) == value else (detect.OWN_KIND,)
        return detect.redact_values(value, self.own)[1]

    def _apply(self, value: Any, what: str, policy: str) -> Any:
        if policy == "off":
            return detect.remove_own_secrets(value, self.own)
        cleaned, kinds = detect.redact_values(value, self.own)
        if not kinds:
            return value
        if policy == "block":
            raise InvalidInput(
                f"{what} holds a secret ({', '.join(kinds)}): leave it out, "
                "or set secrets to redact, which keeps the rest"
            )
        if policy == "warn":
            log.warning("%s holds a secret (%s), which is kept", what, ", ".join(kinds))
            return detect.remove_own_secrets(value, self.own)
        return cleaned


def redaction_from_settings(
    settings: Settings, environ: Mapping[str, str] = os.environ
) -> Redaction:
    """Build the policy from the settings, with the API keys that they hold or name."""
    held = [
        getattr(settings, each.name)
        for each in fields(settings)
        if each.name.endswith("api_key") or each.name == "token"
    ]
    held.append(environ.get(settings.embedder_api_key_env, ""))
    own = tuple(
        key for key in dict.fromkeys(map(str.strip, held)) if len(key) >= MIN_HELD_KEY_CHARS
    )
    return Redaction(settings.secrets.lower(), own)
