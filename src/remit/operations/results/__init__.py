"""The forms of results. Times are ISO 8601, UTC; money is in US dollars.

The modules of the forms are imported by :func:`remit.operations.result_form`.
"""

from remit.operations.results.page import Error

__all__ = ["Error"]
