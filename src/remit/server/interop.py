"""The earlier name of ``remit_interop`` (distribution ``remit-interop``); it stays until 1.0."""

import sys

from remit.kernel.extensions import INTEROP, load_extension

sys.modules[__name__] = load_extension(INTEROP, "remit.modules", __name__)
