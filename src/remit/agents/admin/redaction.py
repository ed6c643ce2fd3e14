"""Redaction of keys and passwords, wherever they turn up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import LoadedSettings

HIDDEN = "[hidden]"
"""Replaces a secret."""

_VALUE = r"""( \"{3} [\s\S]*? \"{3} | \'{3} [\s\S]*? \'{3} | "[^"\n]*" | '[^'\n]*' | [^\s,}\]]+ )"""
_IN_FILE = re.compile(
    rf"""(?ix) ( [\w.-]* (?: key | token | secret | password ) ["']? \s* [=:] \s* ) {_VALUE}"""
)
# In what people say, a key is a word like others; only what can be nothing else is taken out.
_IN_TEXT = re.compile(
    rf"""(?ix) ( (?: api[_-]?key | access[_-]?key | (?<!idempotency)[_-]key | [_-]token | secret
    | passw(?:or)?d ) \\?["']? \s* [=:] \s* \\? ) {_VALUE}"""
)
_BY_FORM = re.compile(
    r"""(?x) \bsk-[A-Za-z0-9_-]{16,} | \bPRIVATE\+KEY\+[^\s"'\\]+
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)"""
)
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)", re.IGNORECASE)
_NAME = re.compile(
    r"(?i)(?:^|[_.-])(?:api_?key|access_?key|private_?key|secret|password|passwd|authorization"
    r"|x-api-key|(?:auth|access|refresh|bearer)[_-]?token)$"
)
_PLAIN = re.compile(r"(?i)[+-]?[\d_]{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?|true|false|null|none")
_ALWAYS_SECRET = re.compile(r"(?i)secret|passw")
_OPTION = re.compile(r"(?i)^--?[\w-]*(?:key|token|secret|password)$")


def redact_assignments(text: str) -> str:
    """The text of a file without the values that are given to keys, tokens and passwords.

    A short number given to a key or token is none of these: a price, a limit, a position.
    """
    return _IN_FILE.sub(_without_value, text)


class Redactor:
    """Takes out secrets: by form, by name, and those that are ``known`` here."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        found = sorted({text for text in known if text}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, found))) if found else None

    @classmethod
    def of(cls, loaded: LoadedSettings) -> Redactor:
        """One that knows the keys of a configuration, and of the environment it names."""
        return cls(ConfiguredSecrets(loaded.settings).values)

    def text(self, text: str) -> str:
        """``text`` without what is secret by its form, its name, or because it is known."""
        text = _IN_URL.sub(rf"\1{HIDDEN}", _BY_FORM.sub(HIDDEN, text))
        text = _IN_TEXT.sub(_without_value, text)
        return self._known.sub(HIDDEN, text) if self._known else text

    def value(self, value: Any) -> Any:
        """The same for every text inside a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                name: HIDDEN if item and _is_secret(name, item) else self.value(item)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            options = [
                False,
                *(isinstance(item, str) and bool(_OPTION.match(item)) for item in value),
            ]
            return [
                HIDDEN if after and isinstance(item, str) else self.value(item)
                for after, item in zip(options, value, strict=False)
            ]
        return value


def _without_value(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if _PLAIN.fullmatch(value) and not _ALWAYS_SECRET.search(name):
        return found[0]
    return f"{name}{HIDDEN}"


def _is_secret(name: Any, item: Any) -> bool:
    return isinstance(item, str) and isinstance(name, str) and bool(_NAME.search(name))
