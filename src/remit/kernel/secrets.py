"""Secrets: configured keys, tokens and passwords, and secrets recognised by their form."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

if TYPE_CHECKING:
    from remit.kernel.settings import Settings

_REDACTED = "[secret]"
_SHORTEST = 6  # Shorter values (a port, "true") occur in ordinary text.
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_CREDENTIAL = re.compile(r"(?i)(?:bearer|basic|token|api-?key)\s+(\S+)")
_PASSWORD = re.compile(r"://[^/@:]*:([^/@]+)@")
# Each alternative starts with something fixed and holds no nested repetition: time is linear.
_FORMS = (
    r"(?<![a-z0-9])(?:sk-[a-z0-9_-]{6,}|rat1\.[a-z0-9_.=-]+|[rs]k_(?:live|test)_[a-z0-9]{8,}"
    r"|gh[oprsu]_[a-z0-9]{20,}|github_pat_[a-z0-9_]{20,}|glpat-[a-z0-9_-]{16,}"
    r"|xox[abeoprs]-[a-z0-9-]{10,}|(?:hf|npm)_[a-z0-9]{30,}"
    r"|(?-i:(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Z0-9])|AIza[A-Za-z0-9_-]{35}))"
    r"|(?<![a-z0-9_-])eyJ[a-z0-9_-]{8,}\.eyJ[a-z0-9_-]{8,}\.[a-z0-9_-]*"
    r"|\bPRIVATE\+KEY\+[^\s\"'\\]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"']*?(?:-----END [A-Z ]*PRIVATE KEY-----|(?=[\"'])|\Z)"
)
SECRET_FORM = re.compile(_FORMS, re.IGNORECASE)
"""Matches keys, tokens and private keys in their well-known forms: of OpenAI, Anthropic, Stripe,
GitHub, GitLab, Slack, Hugging Face, npm, AWS and Google, JWTs, PEM, and Remit's own."""
_SECRETS = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)\s+)[^\s\"',;]+"
    r"|(?P<header>\bx-api-key['\"]?\s*[:=]\s*['\"]?)[^\s\"',;]+"
    rf"|{_FORMS}"
    r"|(?P<url>\b[a-z][a-z0-9+]*://[^\s/:@]{0,256}:)[^\s/@]+(?=@)",
    re.IGNORECASE,
)


class ConfiguredSecrets:
    """The secret values of a configuration, and of environment variables named there.

    These are the fields of the type SecretStr, the keys of providers, the password in the ledger's
    URL, and credentials after words such as ``Bearer`` in any of them. The environment is read when
    the object is made. :meth:`hidden` removes the secrets from a value.

    Args:
        settings: the configuration.

    Attributes:
        values: the secrets of at least six characters.
    """

    def __init__(self, settings: Settings) -> None:
        providers = settings.providers.values()
        known = {os.environ.get(provider.api_key_env, "") for provider in providers}
        known.update(_PASSWORD.findall(settings.ledger.path))
        for value in _secret_values(settings.model_dump()):
            known |= {value, *(os.environ.get(name, "") for name in _VARIABLE.findall(value))}
        known.update(found[1] for value in [*known] if (found := _CREDENTIAL.fullmatch(value)))
        known.update([value.strip() for value in known])
        self.values = frozenset(value for value in known if len(value) >= _SHORTEST)
        longest_first = sorted(self.values, key=len, reverse=True)
        self._any = re.compile("|".join(map(re.escape, longest_first))) if self.values else None

    def hidden(self, value: Any) -> Any:
        """Return a JSON value with ``[secret]`` in place of each secret in its texts and keys.

        The given value is not changed; tuples become lists. Without any secret the value itself is
        returned. Secrets of under six characters stay. Where two secrets begin at one place, the
        longer is replaced.

        Args:
            value: the value; other types than text, mapping and list are returned unchanged.
        """
        if self._any is None:
            return value
        if isinstance(value, str):
            return self._any.sub(_REDACTED, value)
        if isinstance(value, Mapping):
            return {self.hidden(name): self.hidden(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hidden(item) for item in value]
        return value


def _secret_values(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secret_values(item)


def redact_secrets(text: str) -> str:
    """Return ``text`` with ``[secret]`` in place of each key, token and password that its form
    reveals.

    Recognised are the forms of :data:`SECRET_FORM`, the words after ``Bearer``, ``Basic`` or
    ``x-api-key:``, and passwords in URLs. Configured secrets are not looked for.

    Args:
        text: any text.
    """
    return _SECRETS.sub(_redacted, text)


def _redacted(found: re.Match[str]) -> str:
    kept = found["scheme"] or found["header"] or found["url"] or ""
    return kept + _REDACTED
