"""The package that permits an operator's own models, so that gate G3 passes."""

from __future__ import annotations

from collections.abc import Sequence

from remit.kernel.canonical import canonical_json
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings
from remit.ledger import LedgerClient
from remit.packages import (
    Archive,
    InstalledPackage,
    Manifest,
)
from remit.packages.shipped import signed_by_root
from remit.runtime.installation import package_manager

OWN_MODELS = "PKG-OWN-MODELS-001"
"""Id of the package, which holds permissions and no files."""


def permit_models(
    root: Root, ledger: LedgerClient, loaded: LoadedSettings, models: Sequence[str], *, by: str
) -> InstalledPackage:
    """Install a version of :data:`OWN_MODELS` that permits more models, and return the package.

    The root's own key signs the package, and is trusted for this package from the first call on,
    which changes ``trust.json`` and appends ``CONFIG_CHANGED``. Appends ``INSTALLED`` with the
    approval of the person. Earlier permissions of the package stay. The version's first number
    rises by one with each call, also if no model is new.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings.
        models: ``provider/model`` names.
        by: the person who permits the models, for the record.

    Raises:
        PackageError: the root's key or the packages' lock cannot be used, a gate fails, or the
            package cannot be installed. Nothing was changed.
        LedgerError: the ledger cannot be read or written.
    """
    manager = package_manager(root, ledger, loaded, by=by)
    now = manager.registry().packages.get(OWN_MODELS)
    known = () if now is None else now.manifest.permissions.models
    number = 1 if now is None else int(now.version.partition(".")[0]) + 1
    manifest = canonical_json({
        "package_id": OWN_MODELS,
        "version": f"{number}.0.0",
        "schema_version": "1.0",
        "title": "Models of the operator's own that agents and routes may use",
        "package_type": "agent",
        "spec_id": "SPEC-AGENT-001",
        "framework_id": "FMWK-AGENT-001",
        "plane_id": "ho2",
        "layer": 3,
        "dependencies": [{"package_id": "PKG-AGENT-001", "version": ">=1.0.0,<2.0.0"}],
        "permissions": {"models": [*dict.fromkeys((*known, *models))]},
        "assets": [],
    })  # fmt: skip
    archive = Archive(Manifest.parse(manifest), manifest, {})
    incoming, trusting = signed_by_root(root, archive, "remit route learn", OWN_MODELS)
    (installed,) = manager.install(
        [incoming], approve=True, trusting=trusting, reason="The operator permits own models."
    )
    return installed
