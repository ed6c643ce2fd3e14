"""A form with files, sent to a provider while the form arrives, so that no memory is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from remit.kernel.settings import ServerSettings
from remit.providers import Body, ProviderError
from remit.providers.wire import ArrivingForm, BodyError, Endpoint, FormBody
from remit.server.asgi import Receive, next_message
from remit.server.content_encoding import read_decoded
from remit.server.refusals import HttpError
from remit.server.request_context import AuthenticatedRequest

Allow = Callable[[list[tuple[str, str]]], Awaitable[None]]
"""Checks name and text of text fields; raises HttpError to refuse the form that has them."""

_SHORT_FORM_BYTES = 1 << 20
"""Shorter forms are read as a whole, and checked before anything is recorded or sent."""


class FormUpload:
    """A form on its way from a client to a provider.

    The provider gets the last bytes only after the whole form was read and allowed, so it never has
    a form that Remit refuses. Iterate :meth:`pieces` once, which reads the form from the client.

    Args:
        body: reads the form.
        receive: ASGI's function.
        length: number of bytes that the client announced; None if unknown.
        settings: ``max_upload_bytes`` limits the form. The waits for the client may take
            ``body_timeout_s`` in all for each begun ``max_body_bytes`` of the form.
        allow: called with name and text of each text field; raises HttpError to refuse the form.

    Attributes:
        body: as given.
        length: as given.
        refused: the reason for which the form was not sent to its end; None if there is none.
    """

    def __init__(
        self,
        body: ArrivingForm,
        receive: Receive,
        length: int | None,
        settings: ServerSettings,
        allow: Allow,
    ) -> None:
        self.body = body
        self.length = length
        self.refused: HttpError | None = None
        self._receive = receive
        self._settings = settings
        self._allow = allow

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the form in pieces, each after its check. May be iterated once.

        Raises:
            ProviderError: the form is too long, too slow, malformed or not allowed, or the client
                disconnected; :attr:`refused` is set to the reason.
        """
        try:
            async for piece in self._checked():
                yield piece
            return
        except BodyError as error:
            self.refused = HttpError(400, "invalid_request", error.message, param=error.param)
        except HttpError as error:
            self.refused = error
        said = f"the client's form was not sent to its end: {self.refused.message}"
        raise ProviderError("INVALID_REQUEST", said, healthy=True)

    async def _checked(self) -> AsyncIterator[bytes]:
        size, waited_s, more = 0, 0.0, True
        settings, clock = self._settings, asyncio.get_running_loop().time
        while more:
            allowed_s = settings.body_timeout_s * (1 + size // settings.max_body_bytes)
            begun = clock()
            message = await next_message(self._receive, allowed_s - waited_s)
            waited_s += clock() - begun
            piece: bytes = message.get("body", b"")
            more = bool(message.get("more_body"))
            size += len(piece)
            if size > settings.max_upload_bytes:
                raise _too_long(settings.max_upload_bytes)
            fields = self.body.feed(piece) if piece else []
            if not more:
                fields += self.body.feed(b"")
            if fields:
                await self._allow(fields)
            yield piece


async def read_form(
    settings: ServerSettings,
    endpoint: Endpoint,
    caller: AuthenticatedRequest,
    receive: Receive,
    allow: Allow,
) -> tuple[Body, FormUpload | None]:
    """Return the form of a request, and for a long form the upload that reads the rest.

    A form of at most 1 MiB, or with a content coding, is read and checked as a whole; the second
    value is then None. Of any other form nothing is read yet.

    Args:
        settings: limits of bodies.
        endpoint: the endpoint of the request.
        caller: the authenticated request.
        receive: ASGI's function.
        allow: checks text fields, now or while the upload is sent.

    Raises:
        HttpError: 400, the form is malformed or its ``content-type`` invalid; 413, it is too long;
            408, 415, 429, 499 or 503 as :func:`~remit.server.content_encoding.read_decoded`; and
            what ``allow`` raises.
    """
    kind, most = caller.text(b"content-type"), settings.max_upload_bytes
    length = caller.headers.get(b"content-length", b"")
    known = int(length) if length.isdigit() else None
    is_short = known is not None and known <= _SHORT_FORM_BYTES
    try:
        if is_short or b"content-encoding" in caller.headers:
            raw = await read_decoded(
                receive, caller.headers, min(most, settings.max_body_bytes),
                settings.body_timeout_s, caller.share,
            )  # fmt: skip
            body = await asyncio.to_thread(FormBody.read_form, endpoint, raw, kind)
            await allow(_fields_of(body))
            return body, None
        if known is not None and known > most:
            raise _too_long(most)
        form = ArrivingForm.of(endpoint, kind)
    except BodyError as error:
        raise HttpError(400, "invalid_request", error.message, param=error.param) from error
    return form, FormUpload(form, receive, known, settings, allow)


def _fields_of(body: FormBody) -> list[tuple[str, str]]:
    """Return name and text of each text field of a whole form."""
    return [
        (name, text)
        for name, value in body.value.items()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str)
    ]


def _too_long(most: int) -> HttpError:
    said = f"The form is longer than {most:,} bytes; send less, or raise server.max_upload_bytes."
    return HttpError(413, "request_too_large", said, close=True)
