"""The settings in force, without secrets, in a form for display and records."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import SecretStr, ValidationError

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.secrets import ConfiguredSecrets, redact_secrets
from remit.kernel.settings.layers import LoadedSettings, flattened
from remit.kernel.settings.schema import Settings


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """Every setting by dotted key, and the defaults of packages; immutable.

    :meth:`of` makes the object from loaded settings, and :meth:`over` adds an agent's own values.

    Attributes:
        values: all settings; a secret that is set appears as ``**********``.
        defaults: the same settings as packages brought them.
        sha256: SHA-256 of the JCS encoding of ``values``, 64 hex digits.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    sha256: str

    @classmethod
    def of(cls, loaded: LoadedSettings) -> Self:
        """Return the settings of a loaded configuration, secrets redacted.

        A secret that is set is ``**********``. A configured secret, and text with the form of one,
        becomes ``[secret]`` inside other texts. The hash covers the values as shown, so another
        secret leaves it unchanged. Defaults that this version cannot validate, because they belong
        to another one, are shown as stated.

        Args:
            loaded: the loaded settings; the object is not changed.

        Raises:
            NotCanonicalError: a number is beyond ±(2**53 - 1), which JSON cannot carry.
        """
        secrets = ConfiguredSecrets(loaded.settings)

        def shown(value: Any) -> Any:
            if isinstance(value, SecretStr):
                return str(value)
            if isinstance(value, str):
                return redact_secrets(secrets.hidden(value))
            if isinstance(value, Mapping):
                return {name: shown(item) for name, item in value.items()}
            return [shown(item) for item in value] if isinstance(value, (list, tuple)) else value

        def shown_all(table: Mapping[str, Any]) -> dict[str, Any]:
            return {key: shown(value) for key, value in flattened(table)}

        values, defaults = shown_all(loaded.settings.model_dump()), shown_all(loaded.defaults)
        with contextlib.suppress(ValidationError):  # Defaults of another version stay as they are.
            defaults = shown_all(Settings.model_validate(loaded.defaults).model_dump())
        return cls(values, defaults, sha256_hex(canonical_json(values)))

    @property
    def changed(self) -> dict[str, Any]:
        """The present values of settings that differ from the packages' defaults, by dotted key."""
        found = self.values.items()
        return {key: value for key, value in found if self.defaults.get(key) != value}

    def over(self, own: Mapping[str, Any]) -> EffectiveSettings:
        """Return the settings with an agent's own values in place of some, and the hash of the
        result.

        The defaults stay the same. If no value differs, these settings themselves are returned.

        Args:
            own: values by dotted key. Keys are not checked, and secrets are not redacted.

        Raises:
            NotCanonicalError: a value is not JSON.
        """
        if all(self.values.get(key) == value for key, value in own.items()):
            return self
        values = {**self.values, **own}
        return EffectiveSettings(values, self.defaults, sha256_hex(canonical_json(values)))
