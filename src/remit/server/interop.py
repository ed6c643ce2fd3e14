"""The earlier name of ``remit_interop`` (distribution ``remit-interop``), to be removed in 1.0."""

import sys

from remit.kernel.extensions import INTEROP, load_extension

sys.modules[__name__] = load_extension(INTEROP, "remit.modules", __name__)
