"""Everything that a new root needs, as one file: made here, and installed from here (SPEC 10)."""

from remit.packages.bootstrap.bundle import Bundle, bundled
from remit.packages.bootstrap.errors import BootstrapError
from remit.packages.bootstrap.installing import install_bundle
from remit.packages.bootstrap.ordering import Bundled, in_install_order
from remit.packages.bootstrap.report import GateLine, Installer, InstallReport, ReceiptLine

__all__ = [
    "BootstrapError",
    "Bundle",
    "Bundled",
    "GateLine",
    "InstallReport",
    "Installer",
    "ReceiptLine",
    "bundled",
    "in_install_order",
    "install_bundle",
]
