"""Owners of files, batches, containers and other objects that providers store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from remit.gateway.auth import Identity
from remit.gateway.session_owners import owner_of
from remit.gateway.values import Attempt
from remit.kernel.json_text import JsonTextError, load
from remit.kernel.tenant import tenant_of_origin
from remit.ledger import Content, LedgerClient, Transaction, is_plain_text, parse_entry_id
from remit.providers import Body
from remit.providers.wire import CHAT, OBJECT_NAMES, member_at

_MAX_ID_CHARS = 512
_IDS_PER_QUERY = 500  # ids in one query
PASSED_NAMES = (
    *OBJECT_NAMES, "agent", "agent_id", "assistant_id", "character_id", "consent", "deployment_id",
    "environment", "environment_id", "eval_id", "memory_store_id", "session_id", "session_ids",
    "thread_id", "training_file", "upload_id", "user_profile_id", "validation_file", "vault_id",
    "vault_ids", "video_id", "voice_id",
)  # fmt: skip
"""Members that name an object in requests that call no model."""
STORED_CHAT = "chat_completion"
"""The kind of a chat completion that was sent with ``store``."""
MESSAGE_THREAD = "message_thread"
"""The kind of a conversation that Anthropic stores under the id of its last message."""

_CUSTOM_SKILL = "skill_"  # Ids of the provider's own skills, such as ``pptx``, begin otherwise.
_ID_TEXTS = (re.compile(r"[A-Za-z0-9_.:@~+=-]+"), re.compile(r"[A-Za-z0-9_-]+"))
"""The runs of characters that ids have, and of those that all known providers' ids have."""
_ID_LENGTHS = range(4, 513)
_SEPARATORS = re.compile(r"[\s,;]+")
_USES = ("tool_use", "mcp_tool_use")
_OUTPUTS = ("code_execution_output", "bash_code_execution_output")  # blocks with a file
_KEEP = (
    "INSERT INTO provider_objects (object_id, kind, provider_id, owner, entry_id) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (object_id) DO NOTHING"
)


class KeptObject(NamedTuple):
    """An object that a provider stores for a caller.

    Immutable; a row of ``provider_objects``.

    Attributes:
        object_id: the key of the row (:func:`provider_id_of` returns the provider's id).
        kind: ``file``, ``batch``, ``container``, or the kind of a
            :class:`~remit.providers.wire.PassedPath`.
        provider_id: the provider.
        owner: as :func:`~remit.gateway.session_owners.owner_of` returns it.
        entry_id: the ``EXCHANGE`` that created the object.
    """

    object_id: str
    kind: str
    provider_id: str
    owner: str
    entry_id: str

    @property
    def id_at_provider(self) -> str:
        """The id that the object has at its provider."""
        return provider_id_of(self.object_id)


class Objects:
    """Stored objects and their owners, read from the ledger's database.

    Every method blocks.

    Nothing is written; :func:`keep` and :func:`forget` write. Every method raises LedgerError if
    the ledger cannot be read.

    Args:
        ledger: the ledger whose database contains the rows.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._is_shared = False

    def find(self, object_id: str, kind: str, owner: str) -> KeptObject | None:
        """Return an owner's object by its id at the provider; None if there is none.

        Of several objects with the id, the newest is returned.

        Args:
            object_id: the id at the provider.
            kind: the kind of the object.
            owner: the owner, as :func:`~remit.gateway.session_owners.owner_of` returns it.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if not _is_id(object_id):
            return None
        rows = self._ledger.select(
            "SELECT object_id, kind, provider_id, owner, entry_id FROM provider_objects "
            "WHERE owner = ? AND kind = ? AND (object_id = ? OR object_id LIKE ?)",
            (owner, kind, object_id, f"LED-%/{object_id}"),
        )
        found = [KeptObject(*row) for row in rows if provider_id_of(row[0]) == object_id]
        return max(found, key=lambda kept: parse_entry_id(kept.entry_id) or 0, default=None)

    def of_others(self, names: list[str], owner: str) -> str:
        """Return the first of these objects that a caller may not name; empty if it may name all.

        An object of another caller may not be named. An unknown object, such as one that the
        operator created at the provider, may be named unless tenants share the provider's account.

        Args:
            names: the ids at the provider.
            owner: the caller, as :func:`~remit.gateway.session_owners.owner_of` returns it.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        own = self._of(names, owner, "=") if self._account_is_shared() else None
        if own is not None:
            return next((name for name in names if name not in own), "")
        return next(iter(self._of(names, owner, "<>")), "")

    def foreign(self, texts: list[str], owner: str) -> str:
        """Return the first of these texts that is the id of another caller's object; empty if none
        is.

        Args:
            texts: the texts, such as those of :func:`texts_in`.
            owner: the caller, as :func:`~remit.gateway.session_owners.owner_of` returns it.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return next(iter(self._of(texts, owner, "<>")), "")

    def _of(self, names: list[str], owner: str, how: Literal["=", "<>"]) -> set[str]:
        """Return which of the names belong to an owner (``=``) or to others (``<>``)."""
        found: set[str] = set()
        for start in range(0, len(names), _IDS_PER_QUERY):
            group = names[start : start + _IDS_PER_QUERY]
            rows = self._ledger.select(
                f"SELECT object_id FROM provider_objects WHERE owner {how} ? AND object_id IN "
                f"({', '.join('?' * len(group))})",
                (owner, *group),
            )
            found.update(str(name) for (name,) in rows)
        return found

    def _account_is_shared(self) -> bool:
        """Return True if the ledger is a tenant's, or a host's that has tenants."""
        if not self._is_shared:
            origin = self._ledger.checkpoints.owner().partition("+")[0]
            made = self._ledger.query(event_type="TENANT_CREATED", tier=None, limit=1)
            self._is_shared = bool(tenant_of_origin(origin)) or any(made)
        return self._is_shared

    def all_of(self, kind: str, owner: str) -> list[KeptObject]:
        """Return the objects of an owner and kind, the oldest first.

        Args:
            kind: kind of the objects.
            owner: owner of the objects.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        rows = self._ledger.select(
            "SELECT object_id, kind, provider_id, owner, entry_id FROM provider_objects "
            "WHERE owner = ? AND kind = ?",
            (owner, kind),
        )
        return sorted(
            (KeptObject(*row) for row in rows), key=lambda kept: parse_entry_id(kept.entry_id) or 0
        )

    def of_owner(self, kind: str, owner: str) -> dict[str, str]:
        """Return the provider of each object of an owner and kind, keyed by the provider's id."""
        return {one.id_at_provider: one.provider_id for one in self.all_of(kind, owner)}


def objects_named(body: Body, names: tuple[str, ...] = OBJECT_NAMES) -> list[str]:
    """Return the ids of stored objects that a request names, without duplicates, in any dialect.

    A text with several ids is split at white space, commas and semicolons. Ignored are the
    arguments of tool calls, which providers do not interpret, a provider's own skills, and
    ``previous_message_id`` without the type ``continue``. Nothing is looked up.

    Args:
        body: the request.
        names: the members that name objects; :data:`PASSED_NAMES` for a request that calls no
            model.
    """
    if names is OBJECT_NAMES and not body.may_name_objects:
        return []
    found: dict[str, None] = {}
    for value in _mappings(body.value):
        for name in names:
            named = value.get(name)
            if name == "previous_message_id" and value.get("type") != "continue":
                continue  # It names no thread, only a message to compare caches with.
            if type(named) is dict:
                named = named.get("id")
            for each in named if type(named) is list else [named]:
                for text in _SEPARATORS.split(each) if isinstance(each, str) else ():
                    is_custom = name != "skill_id" or text.startswith(_CUSTOM_SKILL)
                    if is_custom and _is_id(text):
                        found[text] = None
    return list(found)


def texts_in(value: Any) -> list[str]:
    """Return all parts of texts in a JSON value that could be an id, without duplicates, sorted.

    Members' names count. An id may stand within a text, since a provider may cut white space off,
    or split a list at commas. Parts of fewer than 4 or more than 512 characters, and words of
    letters alone, are left out.

    Args:
        value: the JSON value.
    """
    found: set[str] = set()
    left = [value]
    while left:
        value = left.pop()
        if type(value) is str:
            for pattern in _ID_TEXTS:
                found.update(one for one in pattern.findall(value) if _may_be_id(one))
        elif type(value) is list:
            left += value
        elif type(value) is dict:
            left += value
            left += value.values()
    return sorted(found)


def _may_be_id(text: str) -> bool:
    """Return True unless a text is a word: every provider's ids have digits or signs."""
    return len(text) in _ID_LENGTHS and not text.isalpha()


def is_stored_chat(body: Body | None) -> bool:
    """Return True if a client's body asks for a chat completion that can be read again later."""
    return body is not None and body.endpoint is CHAT and body.value.get("store") is True


def untold_labels(body: Body, wire: object) -> dict[str, Any]:
    """Return the metadata of a translated, stored chat completion as ``labels``; otherwise empty.

    Other dialects have no place for the metadata, so only the record keeps them.

    Args:
        body: the client's body.
        wire: the endpoint in whose form the request was sent.

    Returns:
        Metadata for the ``EXCHANGE``: ``labels`` as content, or nothing.
    """
    labels = body.value.get("metadata")
    is_untold = is_stored_chat(body) and wire != CHAT.name and isinstance(labels, dict)
    return {"labels": Content(labels)} if is_untold else {}


def notes_made(
    identity: Identity | None, attempt: Attempt, answer: bytes
) -> Callable[[Transaction, str], None] | None:
    """Return a function that records the objects that an answer made.

    These are containers, files, and the answer itself if it is a stored chat completion or a
    message of a thread.

    The function takes a transaction and the id of the call's ``EXCHANGE``, and inserts one row for
    each object. Objects that the request named are not recorded.

    Args:
        identity: the caller, who becomes the owner; None if unknown.
        attempt: the attempt that was answered.
        answer: the answer's body.

    Returns:
        The function; None if the caller is unknown, the call had no body, the answer is not JSON,
        or nothing was created.
    """
    to = attempt.to
    if identity is None or to.outgoing is None:
        return None
    asked, owner = to.outgoing.body.raw, owner_of(identity)
    try:
        value = load(answer)
    except JsonTextError:
        return None
    chat: Any = ""
    if is_stored_chat(to.request.body):
        is_own = to.outgoing.body.endpoint is CHAT  # A translated answer has the dispatch's id.
        chat = value.get("id") if is_own and type(value) is dict else attempt.dispatch_entry_id
    found: dict[str, str] = {}
    if "thread" in to.outgoing.body.value and _is_id(name := member_at(value, "id")):
        found[name] = MESSAGE_THREAD
    for part in _mappings(value):
        container = part.get("container")
        made: list[tuple[Any, str]] = [
            (part.get("container_id"), "container"),
            (container.get("id") if type(container) is dict else None, "container"),
            (part.get("file_id") if part.get("type") in _OUTPUTS else None, "file"),
        ]
        for name, kind in made:
            if isinstance(name, str) and _is_id(name) and name.encode() not in asked:
                found[name] = kind
    if not found and not chat:
        return None

    def note(tx: Transaction, entry_id: str) -> None:
        made = [KeptObject(name, kind, to.provider_id, owner, entry_id)
                for name, kind in found.items()]  # fmt: skip
        if isinstance(chat, str) and _is_id(chat):
            made.append(
                KeptObject(f"{entry_id}/{chat}", STORED_CHAT, to.provider_id, owner, entry_id)
            )
        keep(tx, made)

    return note


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    whole, left = value, [value]
    while left:
        value = left.pop()
        if type(value) is list:
            left += value
        elif type(value) is dict:
            # A body may say any type of itself: its input is no tool's.
            is_use = value is not whole and value.get("type") in _USES
            left += (inner for name, inner in value.items() if not (is_use and name == "input"))
            yield value


def provider_id_of(key: str) -> str:
    """Return the id that an object has at its provider.

    Two providers may give two batches one id, and one provider may give it twice. A batch or chat
    completion is therefore kept under the id of the ``EXCHANGE`` that made it, a slash, and this
    id; other objects are kept under this id alone, as batches of earlier versions are.

    Args:
        key: ``object_id`` of the row; returned unchanged if it contains no entry id.
    """
    made, _, object_id = key.partition("/")
    return object_id if object_id and parse_entry_id(made) is not None else key


def keep(tx: Transaction, objects: Iterable[KeptObject]) -> None:
    """Insert the owners of new objects in a transaction.

    An object with a known owner keeps it. An object whose id cannot be stored is left out.

    Args:
        tx: the transaction.
        objects: the objects.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    tx.execute_many(_KEEP, [tuple(kept) for kept in objects if _is_id(kept.object_id)])


def forget(tx: Transaction, object_id: str) -> None:
    """Delete the row of an object that its provider deleted. An unknown id is ignored."""
    tx.execute_many("DELETE FROM provider_objects WHERE object_id = ?", [(object_id,)])


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID_CHARS and is_plain_text(value)
