"""The earlier name of ``remit_index`` (distribution ``remit-index``), until 1.0."""

import sys

from remit.kernel.extensions import INDEX, load_extension

sys.modules[__name__] = load_extension(INDEX, "remit.modules", __name__)
