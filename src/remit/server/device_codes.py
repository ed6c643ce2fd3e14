"""The codes of a device sign-in (RFC 8628, section 3.2), checked without stored state.

A user code has twelve letters: eight random ones, and four of an HMAC over these and the ten
minutes in which the code was issued. A device code is signed and contains the user code. Every
process of a root can therefore check every code.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable

LASTS_S = 600
"""The lifetime of a device code, in seconds; a user code is accepted for up to twice as long."""

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # RFC 8628, 6.1: no vowels, so no code is a word
_RANDOM, _CHECKED = 8, 4  # letters of a user code
_NOT_A_LETTER = re.compile(f"[^{_LETTERS}]")
_MAX_CHARS = 1_000
_KEY_NAME = "device "
_DEVICE_KEY = re.compile(f"{_KEY_NAME}[0-9a-f]{{16}}")
_PURPOSE = b"remit device sign-in v1"


class DeviceCodes:
    """The codes that the processes of a root issue and check.

    Nothing is stored: :meth:`read` and :meth:`user_code_of` check the signature that :meth:`issue`
    made. So a code cannot be revoked by itself.

    Args:
        secret: the root's random secret.
        now_s: returns the time in seconds since 1970, the same in all processes of the root.
    """

    def __init__(self, secret: bytes, now_s: Callable[[], float] = time.time) -> None:
        self._secret = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._now_s = now_s

    def issue(self) -> tuple[str, str]:
        """Return a new device code and its user code, as ``XXXX-XXXX-XXXX``. Nothing is stored.

        The device code expires after ten minutes; the user code is accepted for up to twenty.
        """
        start = "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))
        now = self._now_s()
        user_code = start + self._checked(start, int(now) // LASTS_S)
        claims = {"user_code": user_code, "until": now + LASTS_S,
                  "random": secrets.token_urlsafe(32)}  # fmt: skip
        signed = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
        shown = "-".join(user_code[at : at + 4] for at in range(0, len(user_code), 4))
        return f"{signed}.{self._signature(signed)}", shown

    def read(self, device_code: str) -> tuple[str, float] | None:
        """Return the user code of a device code, without dashes, and the Unix time of its end.

        Args:
            device_code: the code, as a client sent it.

        Returns:
            ``None`` if this root did not issue the code. The time may have passed.
        """
        signed, _, signature = device_code.rpartition(".")
        if not signed or len(device_code) > _MAX_CHARS or not device_code.isascii():
            return None
        if not hmac.compare_digest(self._signature(signed), signature):
            return None
        try:
            claims = json.loads(base64.urlsafe_b64decode(signed))
        except (ValueError, binascii.Error):
            return None
        return claims["user_code"], claims["until"]

    def user_code_of(self, text: str) -> str:
        """Return the user code that a person typed, without dashes; empty if it is not valid now.

        Args:
            text: the code; case does not matter, and characters that no code has are dropped.
        """
        code = _NOT_A_LETTER.sub("", text.upper()) if len(text) <= _MAX_CHARS else ""
        if len(code) != _RANDOM + _CHECKED:
            return ""
        period = int(self._now_s()) // LASTS_S
        start, checked = code[:_RANDOM], code[_RANDOM:]
        valid = [self._checked(start, one) for one in (period, period - 1)]
        return code if checked in valid else ""

    def _checked(self, start: str, period: int) -> str:
        digest = hmac.digest(self._secret, f"{start} {period}".encode(), hashlib.sha256)
        number = int.from_bytes(digest[:8])
        return "".join(_LETTERS[number // 20**at % 20] for at in range(_CHECKED))

    def _signature(self, signed: str) -> str:
        return hmac.new(self._secret, signed.encode(), hashlib.sha256).hexdigest()


def key_name(user_code: str) -> str:
    """Return the name of the virtual key that the approval of a user code makes.

    Args:
        user_code: the code, without dashes.
    """
    return f"{_KEY_NAME}{hashlib.sha256(user_code.encode()).hexdigest()[:16]}"


def is_device_key(name: str) -> bool:
    """Return True if a key with this name belongs to a device that a person signed in.

    Only the form of the name is checked (:func:`key_name`).

    Args:
        name: name of a virtual key.
    """
    return name.startswith(_KEY_NAME) and _DEVICE_KEY.fullmatch(name) is not None
