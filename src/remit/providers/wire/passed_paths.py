"""Paths of the providers' APIs that call no model through Remit's own endpoints, one row for each.

Remit passes these requests on. A row states what a request can cost, and which objects it makes, so
that each object belongs to the caller who made it. The id after a collection's path is an object of
that collection: in ``/vector_stores/{id}/files`` a ``vector_store``. Ids further right name parts
of it, which only its owner reaches.
"""

from __future__ import annotations

import functools
import re
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from remit.providers.wire.endpoint import Endpoint

__all__ = ["PASSED_PATHS", "PassedPath", "find_passed", "is_refused", "kinds_made", "matches"]

_ID = "{id}"
_IDS = re.compile(r"[A-Za-z0-9_.:@~+=-]{1,512}")
"""The form of ids. A slash or a percent sign could lead to another path of the provider."""

_Tree = dict[str, Any]

# One line for a path. After a method: ``$`` = the provider may bill it, and no price is known;
# ``!`` = a GET that changes something; ``+`` = the ``id`` of the answer is a new object of the
# path's own collection; ``+/files:file.id`` = this member of the answer is one of another.
_OPENAI = """
/agents                                             GET POST$+
/agents/{id}                                        GET POST DELETE
/agents/automations                                 GET POST$+
/agents/automations/{id}                            GET POST DELETE
/agents/automations/{id}/invocations                GET POST$
/agents/automations/{id}/invocations/{id}           GET
/agents/automations/{id}/pause                      POST
/agents/automations/{id}/resume                     POST$
/agents/environments                                GET POST$+
/agents/environments/{id}                           GET
/agents/environments/{id}/files                     GET POST$
/agents/environments/templates                      GET POST$+
/agents/environments/templates/{id}                 GET POST DELETE
/agents/sessions                                    GET POST$+
/agents/sessions/{id}                               GET POST DELETE
/agents/sessions/{id}/artifacts                     GET
/agents/sessions/{id}/artifacts/{id}                GET DELETE
/agents/sessions/{id}/artifacts/{id}/content        GET
/agents/sessions/{id}/events                        GET POST$
/agents/sessions/{id}/items                         GET
/agents/sessions/{id}/subagents                     GET
/agents/sessions/{id}/subagents/{id}                GET
/agents/sessions/{id}/subagents/{id}/items          GET
/agents/sessions/{id}/subagents/{id}/turns          GET
/agents/sessions/{id}/subagents/{id}/turns/{id}     GET
/agents/sessions/{id}/subagents/{id}/turns/{id}/items GET
/agents/sessions/{id}/traces                        GET
/agents/sessions/{id}/turns                         GET
/agents/sessions/{id}/turns/{id}                    GET
/agents/sessions/{id}/turns/{id}/items              GET
/assistants                                         GET POST$+
/assistants/{id}                                    GET POST DELETE
/audio/voice_consents                               GET POST$+
/audio/voice_consents/{id}                          GET POST DELETE
/audio/voices                                       POST$+
/audio/voices/{id}                                  DELETE
/containers                                         GET POST$+
/containers/{id}                                    GET DELETE
/containers/{id}/files                              GET POST$
/containers/{id}/files/{id}                         GET DELETE
/containers/{id}/files/{id}/content                 GET
/content_provenance_checks                          POST$
/decisions                                          POST$
/evals                                              GET POST$+
/evals/{id}                                         GET POST DELETE
/evals/{id}/runs                                    GET POST$
/evals/{id}/runs/{id}                               GET DELETE
/evals/{id}/runs/{id}/cancel                        POST
/evals/{id}/runs/{id}/output_items                  GET
/evals/{id}/runs/{id}/output_items/{id}             GET
/fine_tuning/alpha/graders/run                      POST$
/fine_tuning/alpha/graders/validate                 POST$
/fine_tuning/jobs                                   GET POST$+
/fine_tuning/jobs/{id}                              GET
/fine_tuning/jobs/{id}/cancel                       POST
/fine_tuning/jobs/{id}/checkpoints                  GET
/fine_tuning/jobs/{id}/events                       GET
/fine_tuning/jobs/{id}/pause                        POST
/fine_tuning/jobs/{id}/resume                       POST$
/skills                                             GET POST$+
/skills/{id}                                        GET POST DELETE
/skills/{id}/content                                GET
/skills/{id}/versions                               GET POST$
/skills/{id}/versions/{id}                          GET DELETE
/skills/{id}/versions/{id}/content                  GET
/threads                                            POST$+
/threads/{id}                                       GET POST DELETE
/threads/{id}/messages                              GET POST$
/threads/{id}/messages/{id}                         GET POST DELETE
/threads/{id}/runs                                  GET POST$
/threads/{id}/runs/{id}                             GET POST
/threads/{id}/runs/{id}/cancel                      POST
/threads/{id}/runs/{id}/steps                       GET
/threads/{id}/runs/{id}/steps/{id}                  GET
/threads/{id}/runs/{id}/submit_tool_outputs         POST$
/threads/runs                                       POST$+/threads:thread_id
/uploads                                            POST+
/uploads/{id}/cancel                                POST
/uploads/{id}/complete                              POST+/files:file.id
/uploads/{id}/parts                                 POST
/vaults                                             GET POST$+
/vaults/{id}                                        GET POST DELETE
/vaults/{id}/credentials                            GET POST$
/vaults/{id}/credentials/{id}                       GET POST DELETE
/vector_stores                                      GET POST$+
/vector_stores/{id}                                 GET POST DELETE
/vector_stores/{id}/file_batches                    POST$
/vector_stores/{id}/file_batches/{id}               GET
/vector_stores/{id}/file_batches/{id}/cancel        POST
/vector_stores/{id}/file_batches/{id}/files         GET
/vector_stores/{id}/files                           GET POST$
/vector_stores/{id}/files/{id}                      GET POST DELETE
/vector_stores/{id}/files/{id}/content              GET
/vector_stores/{id}/search                          POST$
/videos                                             GET POST$+
/videos/{id}                                        GET DELETE
/videos/{id}/content                                GET
/videos/{id}/remix                                  POST$+
/videos/characters                                  POST$+
/videos/characters/{id}                             GET
/videos/edits                                       POST$+/videos:id
/videos/extensions                                  POST$+/videos:id
"""

_ANTHROPIC = """
/agents                                             GET POST$+
/agents/{id}                                        GET POST
/agents/{id}/archive                                POST
/agents/{id}/versions                               GET
/deployment_runs                                    GET
/deployment_runs/{id}                               GET
/deployments                                        GET POST$+
/deployments/{id}                                   GET POST
/deployments/{id}/archive                           POST
/deployments/{id}/pause                             POST
/deployments/{id}/run                               POST$+/deployment_runs:id
/deployments/{id}/unpause                           POST$
/dreams                                             GET POST$+
/dreams/{id}                                        GET
/dreams/{id}/archive                                POST
/dreams/{id}/cancel                                 POST
/environments                                       GET POST$+
/environments/{id}                                  GET POST DELETE
/environments/{id}/archive                          POST
/environments/{id}/work                             GET
/environments/{id}/work/{id}                        GET POST
/environments/{id}/work/{id}/ack                    POST
/environments/{id}/work/{id}/heartbeat              POST
/environments/{id}/work/{id}/stop                   POST
/environments/{id}/work/poll                        GET!
/environments/{id}/work/stats                       GET
/memory_stores                                      GET POST$+
/memory_stores/{id}                                 GET POST DELETE
/memory_stores/{id}/archive                         POST
/memory_stores/{id}/memories                        GET POST$
/memory_stores/{id}/memories/{id}                   GET POST$ DELETE
/memory_stores/{id}/memory_versions                 GET
/memory_stores/{id}/memory_versions/{id}            GET
/memory_stores/{id}/memory_versions/{id}/redact     POST
/sessions                                           GET POST$+
/sessions/{id}                                      GET POST DELETE
/sessions/{id}/archive                              POST
/sessions/{id}/events                               GET POST$
/sessions/{id}/events/stream                        GET
/sessions/{id}/resources                            GET POST$
/sessions/{id}/resources/{id}                       GET POST DELETE
/sessions/{id}/threads                              GET
/sessions/{id}/threads/{id}                         GET
/sessions/{id}/threads/{id}/archive                 POST
/sessions/{id}/threads/{id}/events                  GET
/sessions/{id}/threads/{id}/stream                  GET
/skills                                             GET POST$+
/skills/{id}                                        GET DELETE
/skills/{id}/versions                               GET POST$
/skills/{id}/versions/{id}                          GET DELETE
/skills/{id}/versions/{id}/content                  GET
/user_profiles                                      GET POST$+
/user_profiles/{id}                                 GET POST DELETE
/user_profiles/{id}/action_urls                     POST$
/user_profiles/{id}/enrollment_url                  POST$
/vaults                                             GET POST$+
/vaults/{id}                                        GET POST DELETE
/vaults/{id}/archive                                POST
/vaults/{id}/credentials                            GET POST$
/vaults/{id}/credentials/{id}                       GET POST DELETE
/vaults/{id}/credentials/{id}/archive               POST
/vaults/{id}/credentials/{id}/mcp_oauth_validate    POST$
"""

_REFUSED = (
    "/organization", "/organizations", "/projects", "/api_keys", "/invites", "/usage", "/costs",
    "/realtime", "/live", "/tunnels", "/webhook_endpoints", "/webhook_event_types", "/safety",
    "/chatkit", "/fine_tuning/checkpoints",
)  # fmt: skip
"""Paths of the account itself, paths that give out credentials of the provider, and realtime."""


class PassedPath(NamedTuple):
    """A request that Remit passes on.

    Attributes:
        dialect: ``openai`` or ``anthropic``.
        method: ``GET``, ``POST`` or ``DELETE``.
        template: the path without ``/v1``, with ``{id}`` in place of ids.
        is_free: True if the provider is known to bill nothing for it; otherwise the request has no
            price.
        changes: True if the request changes something at the provider.
        makes: the objects that the answer reports as new: pairs of kind and path of the member with
            the id.
        kind: kind of the object that the first id names, and of a list's objects.
        endpoint: the endpoint for the record.
    """

    dialect: Literal["openai", "anthropic"]
    method: str
    template: str
    is_free: bool
    changes: bool
    makes: tuple[tuple[str, tuple[str, ...]], ...]
    kind: str
    endpoint: Endpoint

    @property
    def name(self) -> str:
        """Method and template, such as ``POST /vector_stores/{id}/search``."""
        return f"{self.method} {self.template}"

    @property
    def is_list(self) -> bool:
        """True if the request lists a collection, of which the caller sees its own objects."""
        return self.method == "GET" and _ID not in self.template

    def upstream(self, ids: tuple[str, ...]) -> str:
        """Return the path after the provider's base URL for a request with these ids."""
        path = self.template
        for each in ids:
            path = path.replace(_ID, each, 1)
        return f"/v1{path}" if self.dialect == "anthropic" else path


def _kind_of(collection: str) -> str:
    return collection.removeprefix("/").removesuffix("s")


def _rows(dialect: Literal["openai", "anthropic"], table: str) -> list[PassedPath]:
    found: list[PassedPath] = []
    for line in table.strip().splitlines():
        template, *methods = line.split()
        collection = template.partition(f"/{_ID}")[0]
        name = f"{dialect}.{collection.removeprefix('/').replace('/', '.')}"
        path = f"/v1{template}" if dialect == "anthropic" else template
        for text in methods:
            method, _, made = text.partition("+")
            makes: tuple[tuple[str, tuple[str, ...]], ...] = ()
            if "+" in text:
                other, _, member = made.partition(":")
                makes = ((_kind_of(other or collection), tuple((member or "id").split("."))),)
            verb, is_free = method.rstrip("$!"), "$" not in method
            endpoint = Endpoint(
                name, dialect, path, "", free=is_free, has_model=False, streams=True, verbatim=True
            )
            found.append(PassedPath(
                dialect, verb, template, is_free, verb != "GET" or "!" in method, makes,
                _kind_of(collection), endpoint,
            ))  # fmt: skip
    return found


PASSED_PATHS = (*_rows("openai", _OPENAI), *_rows("anthropic", _ANTHROPIC))
"""Every request that Remit passes on."""


def _tree(dialect: str) -> _Tree:
    root: _Tree = {}
    for row in PASSED_PATHS:
        if row.dialect == dialect:
            node = root
            for part in row.template.strip("/").split("/"):
                node = node.setdefault(part, {})
            node.setdefault("", {})[row.method] = row
    return root


_TREES = {dialect: _tree(dialect) for dialect in ("openai", "anthropic")}


def find_passed(dialect: str, path: str) -> tuple[dict[str, PassedPath], tuple[str, ...]]:
    """Return the requests that a path stands for, keyed by method, and the ids in the path.

    A word of the table is preferred to an id: ``/threads/runs`` is never the thread ``runs``.

    Args:
        dialect: ``openai`` or ``anthropic``.
        path: the path without ``/v1``, as the client sent it.

    Returns:
        Empty if the dialect has no such path, or an id in the path has a form that no id has.
    """
    return _find(_TREES[dialect], path.strip("/").split("/"), ())


def _find(
    node: _Tree, parts: list[str], ids: tuple[str, ...]
) -> tuple[dict[str, PassedPath], tuple[str, ...]]:
    if not parts:
        return node.get("", {}), ids
    for name in (parts[0], _ID):
        is_id = name == _ID
        if name not in node or not name or (is_id and not _is_id(parts[0])):
            continue
        found = _find(node[name], parts[1:], (*ids, parts[0]) if is_id else ids)
        if found[0]:
            return found
    return {}, ()


def _is_id(text: str) -> bool:
    return _IDS.fullmatch(text) is not None and text.strip(".") != ""


def is_refused(path: str) -> bool:
    """Return True if a path without ``/v1`` is one that Remit never passes on.

    Such paths manage the provider's account, give out its credentials, or are realtime.
    """
    return any(path == one or path.startswith(f"{one}/") for one in _REFUSED)


@functools.cache
def kinds_made(wire: str) -> frozenset[str]:
    """Return the kinds of objects that requests of an endpoint make; empty for an unknown endpoint.

    Args:
        wire: the endpoint's name in the record, such as ``openai.vector_stores``.
    """
    return frozenset(
        kind for row in PASSED_PATHS if row.endpoint.name == wire for kind, _ in row.makes
    )


def matches(pattern: str, row: PassedPath) -> bool:
    """Return True if a pattern of a key's allow-list covers a request.

    Args:
        pattern: a template such as ``/vector_stores/{id}/search``, in which ``*`` stands for any
            text, optionally after a method and a space: ``POST /vector_stores*``.
        row: the request.
    """
    method, space, path = pattern.rpartition(" ")
    return (not space or method == row.method) and fnmatchcase(row.template, path)
