"""The ledger of a root: its place and its key."""

from __future__ import annotations

from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings
from remit.ledger.client import LedgerClient
from remit.ledger.keyfiles import LedgerKey


def ledger_key(root: Root, settings: LedgerSettings) -> LedgerKey:
    """The key files of a root's ledger."""
    return LedgerKey(root.keys, settings.origin)


def open_root_ledger(
    root: Root, settings: LedgerSettings, *, create: bool = False, signing: bool = True
) -> LedgerClient:
    """Open the ledger of a root.

    Args:
        root: where it belongs.
        settings: ``[ledger]``.
        create: make the ledger when there is none.
        signing: with the private key, where there is one, so that checkpoints are signed.

    Raises:
        LedgerKeyError: the key is damaged, or the ledger belongs to another.
        LedgerError: the ledger cannot be opened.
    """
    key = ledger_key(root, settings)
    target = settings.path if "://" in settings.path else root.path / settings.path
    return LedgerClient(
        target,
        settings=settings,
        create=create,
        signer=key.signer() if signing and key.exists else None,
        verifier_key=key.verifier_key(),
    )
