"""What the record teaches: evidence, signals, proposals, and whether they did what they predicted.

Nothing here is imported on the way of a call, and nothing here changes an agent by itself.
"""

from remit.learning.evidence import Sample

__all__ = ["Sample"]
