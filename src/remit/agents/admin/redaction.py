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
_OPTION = re.compile(r"(?i)^--?[\w-]*(?:key|token|secret|password)$")


def redact_assignments(text: str) -> str:
    """The text of a file without the values that are given to keys, tokens and passwords."""
    return _IN_FILE.sub(rf"\1{HIDDEN}", text)


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
        text = _IN_TEXT.sub(rf"\1{HIDDEN}", text)
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


def _is_secret(name: Any, item: Any) -> bool:
    return isinstance(item, str) and isinstance(name, str) and bool(_NAME.search(name))
