"""Everything that a new root needs, as one file: made here, and installed from here (SPEC 10)."""

from remit.bootstrap.bundle import Bundle, bundled
from remit.bootstrap.errors import BootstrapError
from remit.bootstrap.installing import install_bundle
from remit.bootstrap.ordering import Bundled, in_install_order
from remit.bootstrap.report import GateLine, Installer, InstallReport, ReceiptLine

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
