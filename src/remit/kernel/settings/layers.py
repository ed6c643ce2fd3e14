"""Layers of settings: shipped defaults, ``remit.toml``, learned values, environment, flags.

The place of a tenant's ledger is a layer too.
"""

from __future__ import annotations

import copy
import difflib
import functools
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr, ValidationError

from remit.kernel.canonical import NotCanonicalError, canonical_json
from remit.kernel.errors import ConfigError
from remit.kernel.installed_files import InstalledFiles, shipped_file
from remit.kernel.secrets import redact_secrets
from remit.kernel.settings.edit import parse_toml
from remit.kernel.settings.learned_layer import learned_layers
from remit.kernel.settings.schema import Settings
from remit.kernel.tenant import HOST, TenantFile
from remit.kernel.toml_text import MAX_DEPTH, load_toml

_log = logging.getLogger("remit.settings")
_DEFAULTS = "HOT/config/defaults.toml"
_PREFIX = "REMIT_"
_OTHER_VARIABLES = frozenset(
    {"REMIT_ROOT", "REMIT_DATABASE_URL", "REMIT_MODEL_TIMEOUT", "REMIT_LOG"}
)
# Settings of earlier versions that are constants now: a root that still names one opens.
_REMOVED = frozenset(
    f"{section}.{key}"
    for section, keys in {
        "auth": "refused_log_s",
        "budget": "message_overhead_tokens tools_overhead_tokens image_tokens",
        "chat": "history_file",
        "gates": "most_errors",
        "gateway": "half_open_max breaker_poll_s breaker_keep_hours breaker_rows",
        "leases": "poll_s",
        "ledger": "compress_above_bytes max_batch page_size gather_ms erase_quotes_from_chars "
        "retention_every_s",
        "packages": "path_bytes manifest_bytes diff_lines diff_line_chars diff_file_bytes",
        "routing": "reliability_every_s",
        "server": "watch_after_s",
        "supervisor": "degraded_max_tokens",
        "supervisor.attention": "commitment_weight time_weight recency_weight half_life_hours "
        "horizon_hours min_score most_candidates most_told",
        "worker": "small_model",
    }.items()
    for key in keys.split()
)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and the source of each value by dotted key.

    Attributes:
        settings: the settings in force, of all layers.
        sources: the layer that states each value, keyed by dotted key.
        defaults: the defaults of packages, in the form of a settings file.
    """

    settings: Settings
    sources: Mapping[str, str]
    defaults: Mapping[str, Any]

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Yield ``(dotted key, value, source)`` of every setting; secrets that are set appear as
        ``**********``, and passwords in URLs as ``[secret]``.

        The source of a value that no layer states is ``default``. Empty tables give no row.
        """
        for key, value in flattened(self.settings.model_dump()):
            if isinstance(value, SecretStr):
                value = str(value)
            elif isinstance(value, str) and "://" in value:  # A URL may hold a password.
                value = redact_secrets(value)
            yield key, value, self.sources.get(key, "default")


@functools.cache
def default_settings() -> Settings:
    """Return the shipped defaults, without any other layer; always the same object."""
    return Settings.model_validate(_defaults())


def load_settings(
    path: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    installed: bool = True,
    proposed: Mapping[str, bytes] | None = None,
) -> LoadedSettings:
    """Read all layers and return the checked settings, with the source of each value.

    The layers by precedence: the place of a tenant's ledger, flags, environment, learned values,
    ``remit.toml``, installed defaults. Installed defaults of an earlier version get the settings
    added since. A new provider starts with the shipped one of its kind, without address and key.
    Settings that earlier versions had are ignored; a warning is logged once in a process for each
    setting and source. Nothing is written; only parsed defaults are cached.

    Args:
        path: a ``remit.toml``; ``None`` or a missing file adds nothing. A tenant's file next to it
            is read in any case.
        environment: variables ``REMIT_SECTION__KEY`` or ``REMIT_SECTION_KEY``, and, below
            ``REMIT_LEDGER__PATH``, ``REMIT_DATABASE_URL``; ``None`` for the process's own.
        flags: values of a command line by dotted key.
        installed: True to use the defaults and learned values that packages installed next to
            ``path``; else, or if there are none, the defaults that come with Remit.
        proposed: files of a learned package by path, to see its effect on the settings; ignored
            without ``installed``.

    Raises:
        ConfigError: a key is unknown (the message suggests the nearest), a value does not fit, a
            file cannot be read or is not TOML, ``REMIT_DATABASE_URL`` is no PostgreSQL URL, or
            learned values are not a JSON object or may not be learned.
        ChangedFileError: the installed defaults or learned values differ from the installed
            content, or the table of owners cannot be read.
        RemitError: the tenant of the root is being moved or removed, its file is damaged, or its
            ledger is in the host's database and the host names none.
    """
    files = InstalledFiles(path.parent) if installed and path is not None else None
    of_root = _installed_defaults(files) if files is not None else None
    merged = _defaults()
    if of_root:
        merged = _with_new(_without_removed(of_root), merged, Settings)
    defaults = copy.deepcopy(merged)
    sources = {key: "default" for key, _ in flattened(merged)}
    if path is not None and path.exists():
        _merge(merged, _read(path), str(path), sources)
    if files is not None:
        for source, layer in learned_layers(files, merged["routing"]["models"], proposed):
            _merge(merged, layer, source, sources)
            _merge(defaults, _of_known(layer, defaults), source, {})  # a package brought it
    variables = os.environ if environment is None else environment
    for name, layer in _of_environment(variables, list(merged)):
        _merge(merged, layer, f"environment {name}", sources)
    for key, value in (flags or {}).items():
        _merge(merged, _nest(key, value), "flag", sources)
    if path is not None and (tenant := TenantFile.read(path.parent, to_open=True)) is not None:
        _merge(merged, _of_tenant(tenant, path, variables), "tenant.json", sources)
    try:
        loaded = LoadedSettings(Settings.model_validate(merged), sources, defaults)
    except ValidationError as error:
        raise _explain(error, sources, of_root is not None) from error
    for key, value in flattened(merged):
        # A secret is recorded masked.
        if sources.get(key) != "default" and not isinstance(value, SecretStr):
            _require_recordable(key, value, sources.get(key, ""))
    return loaded


def _require_recordable(key: str, value: Any, source: str) -> None:
    """Raise ConfigError if the ledger's record of the settings cannot contain a value."""
    try:
        canonical_json(value)
    except NotCanonicalError as error:
        raise ConfigError(
            f"The setting {key} is not valid ({source}): a number must be finite and within "
            "±(2**53 - 1), and a text must be Unicode.",
            next_step="`remit config show` lists every setting with its meaning.",
        ) from error


def _of_environment(
    variables: Mapping[str, str], sections: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each variable that is a setting, and the setting as a layer."""
    if url := variables.get("REMIT_DATABASE_URL"):
        if not url.startswith(("postgresql://", "postgres://")):
            raise ConfigError(
                "REMIT_DATABASE_URL is not a postgresql:// URL.",
                next_step="Set it to postgresql://user@host/database, or unset it for SQLite.",
            )
        yield "REMIT_DATABASE_URL", {"ledger": {"path": url}}
    for name, text in sorted(variables.items()):
        if name.startswith(_PREFIX) and name not in _OTHER_VARIABLES:
            key = name[len(_PREFIX) :].lower().replace("__", ".")
            section = next((name for name in sections if key.startswith(f"{name}_")), None)
            # REMIT_SECTION_KEY is a common slip for REMIT_SECTION__KEY.
            if "." not in key and section is not None:
                key = f"{section}.{key[len(section) + 1 :]}"
            if "." in key:  # Other variables are some other program's.
                yield name, _nest(key, _parse(key, text))


def _of_tenant(
    tenant: TenantFile, path: Path, variables: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return the layer that places a tenant's ledger, independent of the host's environment."""
    host_path = ""
    if tenant.database == HOST:
        host = path.parent.parent.parent / path.name
        host_path = load_settings(host, environment=variables).settings.ledger.path
    return {"ledger": {"path": tenant.ledger_path(host_path), "origin": tenant.origin}}


def _defaults() -> dict[str, Any]:
    return copy.deepcopy(_parsed(shipped_file("PKG-KERNEL-001", _DEFAULTS)))


@functools.lru_cache(maxsize=2)
def _parsed(content: bytes) -> dict[str, Any]:
    """Return the parsed TOML text; callers copy the result before they change it."""
    return load_toml(content.decode())


def _installed_defaults(files: InstalledFiles) -> dict[str, Any] | None:
    """Return the defaults of the installed kernel package; ``None`` if none is installed."""
    if not files.owner(_DEFAULTS):
        return None
    try:
        return copy.deepcopy(_parsed(files.read(_DEFAULTS)))
    except ValueError as error:
        raise ConfigError(
            f"The installed defaults cannot be read: {error}.",
            next_step="`remit init` installs the packages of this version.",
        ) from error


def _of_known(layer: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer without the models that only ``remit.toml`` defines."""
    found = copy.deepcopy(dict(layer))
    models = found.get("routing", {}).get("models", {})
    for name in models.keys() - defaults["routing"]["models"].keys():
        del models[name]
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text("utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error


def _merge(
    into: dict[str, Any], layer: Mapping[str, Any], source: str, sources: dict[str, str],
    prefix: str = "",
) -> None:  # fmt: skip
    if prefix.count(".") > MAX_DEPTH:
        raise ConfigError(f"{source} is nested too deeply.")
    for key, value in layer.items():
        dotted = f"{prefix}{key}"
        if dotted in _REMOVED:
            _warn_removed(dotted, source)
        elif isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            if prefix == "providers." and key not in into:
                into[key] = _provider_template(value, into)
            sources.setdefault(dotted, source)
            _merge(into.setdefault(key, {}), value, source, sources, f"{dotted}.")
        else:
            into[key] = value
            sources[dotted] = source


def _without_removed(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return defaults installed by an earlier version, without settings removed since."""
    return {
        key: _without_removed(value, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in table.items()
        if f"{prefix}{key}" not in _REMOVED
    }


def _with_new(
    installed: dict[str, Any], shipped: Mapping[str, Any], section: type[BaseModel]
) -> dict[str, Any]:
    """Return defaults that an earlier version installed, with the settings added since then."""
    for name, field in section.model_fields.items():
        inner, is_table = field.annotation, isinstance(installed.get(name), dict)
        if name not in installed and name in shipped:
            installed[name] = copy.deepcopy(shipped[name])
        elif is_table and isinstance(inner, type) and issubclass(inner, BaseModel):
            _with_new(installed[name], shipped.get(name, {}), inner)
    return installed


@functools.cache  # once in a process, however often settings are loaded
def _warn_removed(key: str, source: str) -> None:
    _log.warning("%s (%s) is no longer a setting and is ignored; you can omit it.", key, source)


def _provider_template(given: Mapping[str, Any], providers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a new provider: the shipped ones of its kind, without address, keys
    and default model. The kinds ``converse`` and ``gemini`` are not shipped and get OpenAI's.
    """
    kind = given.get("kind", "")
    base = providers.get("openai" if kind in ("converse", "gemini") else kind)
    if not isinstance(base, dict):
        return {}
    of_provider = ("api_key", "base_url_env", "api_key_env", "base_url", "default_model")
    return {**base, **dict.fromkeys(of_provider, "")}


def _nest(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _parse(key: str, text: str) -> Any:
    """An environment variable's text, read as TOML unless the setting is a text."""
    if _kind_of(key.split(".")) in (str, SecretStr):
        return text
    try:
        return load_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _explain(error: ValidationError, sources: Mapping[str, str], of_root: bool) -> ConfigError:
    errors = error.errors(include_url=False, include_input=False)
    unknown = [item for item in errors if item["type"] == "extra_forbidden"]
    first = (unknown or errors)[0]
    key = ".".join(str(part) for part in first["loc"])
    within = "".join(f"{part}." for part in first["loc"][:-1])
    # An item of a list has the source of the list.
    source = sources.get(key) or sources.get(within.removesuffix("."), "")
    if first["type"] == "missing":  # Only a table that the defaults have can be an older one.
        given = {one for name, one in sources.items() if name.startswith(within)}
        source = "default" if "default" in given else next(iter(given), "")
    if of_root and source == "default":
        return ConfigError(
            f"The installed defaults belong to another version of Remit: {key}: {first['msg']}.",
            next_step="`remit init` installs the packages of this version.",
        )
    where = f" ({source})" if source else ""
    if unknown:
        *table, last = first["loc"]
        known = sorted(_keys_of(table))
        near = difflib.get_close_matches(str(last), known, n=1, cutoff=0.5)
        hint = f"Did you mean {'.'.join(map(str, [*table, near[0]]))}?" if near else ""
        return ConfigError(
            f"Unknown setting {key}{where}.",
            next_step=hint or f"Known settings there: {', '.join(known)}.",
        )
    return ConfigError(
        f"The setting {key} is not valid{where}: {first['msg']}.",
        next_step="`remit config show` lists every setting with its meaning.",
    )


def _keys_of(table: Iterable[int | str]) -> Iterable[str]:
    """The keys that a table of the settings may have."""
    fields: Iterable[str] = _kind_of(table).model_fields
    return fields


def _kind_of(path: Iterable[int | str]) -> Any:
    """Return the type of the setting at ``path``; ``None`` if there is no such setting."""
    kind: Any = Settings
    for part in path:
        if inner := get_args(kind):  # The value type of a table with free keys, or of a list.
            kind = inner[-1]
        else:
            field = getattr(kind, "model_fields", {}).get(part)
            kind = field.annotation if field is not None else None
    return kind


def describe(model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, str]:
    """Return the description of each setting by dotted key; empty if it has none.

    Keys of free tables have a ``*``: ``providers.*.api_key``. A table itself has a row only if it
    has a description.

    Args:
        model: the section to describe; by default all settings.
        prefix: put before every key as it is, such as ``providers.``.
    """
    meanings: dict[str, str] = {}
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        inner = (field.annotation, *get_args(field.annotation))
        nested = [arg for arg in inner if isinstance(arg, type) and issubclass(arg, BaseModel)]
        if nested:
            star = ".*" if nested[0] is not field.annotation else ""
            meanings.update(describe(nested[0], f"{key}{star}."))
        if not nested or field.description:
            meanings[key] = field.description or ""
    return meanings


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of nested tables with its dotted key, in order; empty tables give nothing.

    Lists are values. Names with dots are not quoted.

    Args:
        table: the tables, nested dicts.
        prefix: put before every key as it is, such as ``providers.``.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
