"""The earlier name of :mod:`remit.ledger.tlog`; it stays until 1.0."""

from remit.ledger.tlog import *
from remit.ledger.tlog import __all__ as __all__
