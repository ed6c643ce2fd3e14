"""Remit's own HTTP API, under ``/api``.

The package owns the routes, the forms of requests and answers, and the OpenAPI document. The
package owns no rule: each route calls the room that does, and the permission of the caller's key is
checked before.

Invariants: an unknown parameter is an error; each failure has the form of :class:`Error`; no answer
contains a secret except the one that creates or rotates a key.

Start reading in :mod:`remit.server.api.application`, then :mod:`remit.server.api.routes`.
"""

from remit.server.api.application import api_application

__all__ = ["api_application"]
