"""Redaction of keys and passwords."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from remit.kernel.secrets import SECRET_FORM, ConfiguredSecrets
from remit.kernel.settings import LoadedSettings

HIDDEN = "[hidden]"
"""Replaces a secret."""

# The value of a name is a text in quotes, a list of plain values, or a bare word. The quotes are
# escaped if a JSON text contains another. Objects are redacted by the names within them. A value
# never includes quotes that close a JSON text, so that a JSON document remains valid.
_VALUE = r"""( \"{3} [\s\S]*? \"{3} | \'{3} [\s\S]*? \'{3}
    | \\{1,8}" (?: (?! \\{1,8}" ) [^\n] )* \\{1,8}"
    | "(?: [^"\\\n] | \\. )*" | '(?: [^'\\\n] | \\. )*' | ["'] [^\s,}\]"'\\]+ (?! ["'] )
    | \[ (?: [^\[\]{}] | \[ [^\[\]{}]* \] )* \] | \[ (?! true|false|null ) [a-z] [^\s,}\]\["'\\{]*
    | \{ [^{}"'=:]+ \} | (?: [^\s,}\]"'\\\[{] | ["'] (?= [a-z0-9] ) )+ )"""
_IN_FILE = re.compile(
    rf"""(?ix) ( [\w.-]* (?: key | token | secret | password ) ["']? \s* [=:] \s* ) {_VALUE}"""
)
# In messages, "key" is an ordinary word, so this pattern redacts only unmistakable assignments.
_IN_TEXT = re.compile(
    rf"""(?ix) ( (?: api[_-]?key | access[_-]?key | (?<!idempotency)[_-]key | [_-]token
    | (?<=[?&;])token(?==) | secret
    | passw(?:or)?d ) (?: \\{{0,8}}["'] )? \s* [=:] \s* ) {_VALUE}"""
)
_IN_URL = re.compile(r"""(\b[a-z][a-z0-9+.-]*://[^\s:/@"'\\]*:)[^\s/@"'\\]+(?=@)""", re.IGNORECASE)
_QUOTES = re.compile(r"""("{3}|'{3}|\\{1,8}"|"|')""")
_QUOTES_OF_NAME = re.compile(r"""(\\{0,8}["'])\s*[=:]\s*$""")
_NAME = re.compile(
    r"(?i)(?:^|[_.-]|(?-i:(?<=[a-z0-9])(?=[A-Z])))(?:api_?key|access_?key|private_?key|secret"
    r"|password|passwd|authorization|x-api-key|(?:auth|access|refresh|bearer)token"
    r"|(?<!page)(?<!page[_-])(?<!next)(?<!next[_-])token)$"
)
_PLAIN = re.compile(r"(?i)[+-]?[\d_]{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?|true|false|null|none")
_ALWAYS_SECRET = re.compile(r"(?i)secret|passw")
_OPTION = re.compile(r"(?i)^--?[\w-]*(?:key|token|secret|password)$")


def redact_assignments(text: str) -> str:
    """Return the text of a file with ``[hidden]`` for values assigned to keys, tokens, secrets and
    passwords.

    A short number, true, false or null assigned to a key or token is no secret, and remains. A text
    that is a JSON object or array stays one, but may be formatted anew. Names decide; secrets
    elsewhere in the text remain.
    """
    return _in_json(text, _without_assigned) or _IN_FILE.sub(_without_value, text)


class Redactor:
    """A redactor of secrets, which it recognises by their form, their name or their value.

    :meth:`text` redacts a text, :meth:`value` JSON data; a secret becomes ``[hidden]``.

    Args:
        known: values of secrets to redact.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        found = sorted({text for text in known if text}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, found))) if found else None

    @classmethod
    def of(cls, loaded: LoadedSettings) -> Redactor:
        """Return a redactor that knows the keys of a configuration and of the environment.

        Args:
            loaded: settings; secrets in the environment variables that they name are known too.
        """
        return cls(ConfiguredSecrets(loaded.settings).values)

    def text(self, text: str) -> str:
        """Return a text with ``[hidden]`` in place of secrets. JSON remains valid JSON.

        Args:
            text: any text; a text that is JSON is treated value by value.
        """
        return _in_json(text, self._without_named) or self._in_plain(text)

    def _in_plain(self, text: str) -> str:
        text = _IN_URL.sub(rf"\1{HIDDEN}", SECRET_FORM.sub(HIDDEN, text))
        text = _IN_TEXT.sub(_without_value, text)
        return self._known.sub(HIDDEN, text) if self._known else text

    def _without_named(self, value: Any) -> Any:
        return self.value(_hide_named(value, _IN_TEXT))

    def value(self, value: Any) -> Any:
        """Return a copy of a JSON value with each text redacted as by :meth:`text`.

        A text under a secret's name is hidden whole, but not the ``token`` of an object that has a
        ``logprob``. So is a text that follows an option for a secret in a list, such as
        ``--password``. Names of members, numbers and truth values are not redacted. Tuples become
        lists.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                name: HIDDEN if item and _is_secret(name, item, value) else self.value(item)
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


def _in_json(text: str, redacted: Callable[[Any], Any]) -> str:
    """Return a JSON object or array with its values redacted; empty if `text` is neither."""
    if text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        value = json.loads(text)
        shown = redacted(value)
    except (ValueError, RecursionError):
        return ""
    if shown == value:
        return text
    return json.dumps(shown, ensure_ascii=False, indent=2 if "\n" in text.strip() else None)


def _without_assigned(value: Any) -> Any:
    return _hide_named(value, _IN_FILE)


def _hide_named(value: Any, assignment: re.Pattern[str]) -> Any:
    """Return a JSON value without the plain values whose names `assignment` finds secret."""
    if isinstance(value, list):
        return [_hide_named(item, assignment) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {}
    for name, item in value.items():
        plain = item if isinstance(item, list) else [item]
        is_plain = not any(isinstance(one, dict | list) for one in plain)
        # The pattern decides by the name alone; `_PLAIN` decides by the value.
        probe = assignment.search(f'{name}": "x"') if is_plain and item else None
        if probe is not None and not all(_is_harmless(name, one) for one in plain):
            shown[name] = HIDDEN
        else:
            shown[name] = _hide_named(item, assignment)
    return shown


def _is_harmless(name: str, value: Any) -> bool:
    return bool(_PLAIN.fullmatch(json.dumps(value))) and not _ALWAYS_SECRET.search(name)


def _without_value(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if _PLAIN.fullmatch(value) and not _ALWAYS_SECRET.search(name):
        return found[0]
    # JSON has no bare words, so a value without quotes takes the quotes of its name.
    quotes = _QUOTES.match(value) or _QUOTES_OF_NAME.search(name)
    mark = quotes[1] if quotes else ""
    return f"{name}{mark}{HIDDEN}{mark}"


def _is_secret(name: Any, item: Any, members: Mapping[Any, Any]) -> bool:
    if not isinstance(item, str) or not isinstance(name, str) or not _NAME.search(name):
        return False
    return not (name == "token" and "logprob" in members)  # a piece of a model's answer
