"""Models on Amazon Bedrock and Google Vertex AI: the paths of calls, and the clouds' credentials.

The clouds' own libraries find and renew the credentials: botocore (the extra ``bedrock``) and
google-auth (the extra ``vertex``). They are imported at the first call.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from remit.kernel.errors import ConfigError
from remit.kernel.json_splice import remove_member, set_member
from remit.kernel.json_text import dump
from remit.providers.protocol import ProviderError
from remit.providers.wire.body import Body
from remit.providers.wire.endpoint_table import CONVERSE, MESSAGES

Signer = Callable[[str, str, bytes], "tuple[Mapping[str, str], str]"]
"""Returns headers for a request's method, URL and body, and the secret in them. May block."""

_VERSIONS = {"aws": "bedrock-2023-05-31", "google": "vertex-2023-10-16"}
NEW_MESSAGES_VERSION = "2026-10-21"
"""The version of the Messages API that refuses older fields, and that the clouds name alike."""
_LIBRARIES = {"aws": ("botocore", "bedrock"), "google": ("google.auth", "vertex")}
_REGION = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def in_path(body: Body, cloud: str, headers: dict[str, str]) -> tuple[Body, str]:
    """Return a body without the members that the path states, and this path.

    The path begins with ``/`` and depends on the model and on streaming; it may have a query. A
    Messages body on Vertex AI keeps ``stream``. ``body`` itself is not changed.

    Args:
        body: a body of Gemini or Converse, or of the Messages API for a cloud.
        cloud: ``aws``, ``google``, or empty for Google's own API.
        headers: headers to be sent. With a Messages body, ``anthropic-version`` is removed from
            them and set in the body as ``anthropic_version``: the cloud's own version if it is
            missing or before 2026-10-21. On AWS ``anthropic-beta`` is moved likewise, as a list.
    """
    added: dict[str, Any] = {}
    if body.endpoint is MESSAGES:
        version = headers.pop("anthropic-version", "")
        is_new = version >= NEW_MESSAGES_VERSION
        added["anthropic_version"] = version if is_new else _VERSIONS[cloud]
        if cloud == "aws" and (names := headers.pop("anthropic-beta", "")):
            added["anthropic_beta"] = [name.strip() for name in names.split(",")]
    # Vertex AI answers ``streamRawPredict`` with a stream only if the body asks for one, too.
    in_body = cloud == "google" and body.endpoint is MESSAGES
    removed = ("model",) if in_body else ("stream", "model")
    raw = body.raw
    for name in removed:
        raw = remove_member(raw, (name,))
    for name, each in added.items():
        raw = set_member(raw, (name,), dump(each))
    value = {name: each for name, each in body.value.items() if name not in removed}
    sent = Body(body.endpoint, raw, value | added, body.changed)
    if body.endpoint is CONVERSE or cloud == "aws":
        verb = ("invoke", "invoke-with-response-stream")
        if body.endpoint is CONVERSE:
            verb = ("converse", "converse-stream")
        return sent, f"/model/{quote(body.model, safe='')}/{verb[body.stream]}"
    model = quote(body.model.removeprefix("models/"), safe="@")
    if body.endpoint is MESSAGES:
        verb = ("rawPredict", "streamRawPredict")
        return sent, f"/publishers/anthropic/models/{model}:{verb[body.stream]}"
    verb = (body.endpoint.path.partition(":")[2], "streamGenerateContent?alt=sse")
    publisher = "/publishers/google" if cloud == "google" else ""
    return sent, f"{publisher}/models/{model}:{verb[body.stream]}"


def signer(cloud: str, base_url: str) -> Signer:
    """Return the function that signs requests with the credentials of this machine.

    The credentials are looked up at the function's first call, and held by the function, which
    raises ProviderError (``LOCAL_ERROR``) if they are missing or cannot be renewed, or if nothing
    names an AWS region.

    Args:
        cloud: ``aws`` or ``google``.
        base_url: URL of the provider. On AWS its host names the region; if it does not, the region
            of the environment or the profile is used.

    Raises:
        ConfigError: the cloud's library is not installed.
    """
    library, extra = _LIBRARIES[cloud]
    try:
        is_there = importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise ConfigError(
            f"The credentials of a provider with cloud = {cloud!r} need {library}, which is not "
            "installed.",
            next_step=f"Run `pip install 'remit[{extra}]'`, or set the provider's api_key.",
        )
    if cloud == "google":
        return functools.partial(_google_headers, [])
    found = _REGION.search(f"{urlsplit(base_url).hostname}.")
    return functools.partial(_aws_headers, [], found[1] if found else None)


async def signed(sign: Signer, method: str, url: str, body: bytes) -> tuple[Mapping[str, str], str]:
    """Return the headers that ``sign`` returns for a request, and the secret in them.

    The credentials are found at the first call, and may be renewed over the network, in a thread.

    Args:
        sign: the result of :func:`signer`.
        method: the HTTP method.
        url: the whole URL.
        body: the body to be sent.

    Raises:
        ProviderError: ``LOCAL_ERROR``: this machine has no valid credentials.
    """
    return await asyncio.to_thread(sign, method, url, body)


def _aws_headers(
    known: list[Any], region: str | None, method: str, url: str, body: bytes
) -> tuple[Mapping[str, str], str]:
    """Return the headers of Signature Version 4.

    Args:
        known: the credentials and the region once they are found.
        region: the region; None for that of the environment or the profile.
        method: HTTP method.
        url: the whole URL.
        body: the body.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        if not known:
            session = Session()
            credentials = session.get_credentials()
            if credentials is None:
                raise ProviderError("LOCAL_ERROR", "AWS credentials not found; set AWS_PROFILE")
            region = region or session.get_config_variable("region")
            if region is None:
                raise ProviderError("LOCAL_ERROR", "AWS region not found; set AWS_DEFAULT_REGION")
            known[:] = [credentials, region]
        frozen = known[0].get_frozen_credentials()
    except BotoCoreError as error:
        raise _unusable(error) from None
    request = AWSRequest(method, url, data=body)
    SigV4Auth(frozen, "bedrock", known[1]).add_auth(request)
    return dict(request.headers), frozen.token or ""


def _google_headers(
    known: list[Any], method: str, url: str, body: bytes
) -> tuple[Mapping[str, str], str]:
    """Return the header with an access token; see :func:`_aws_headers` for ``known``."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.auth.transport.requests import Request

    try:
        if not known:
            known.append(google.auth.default(scopes=[_SCOPE])[0])
        if not known[0].valid:
            known[0].refresh(Request())
    except DefaultCredentialsError:
        said = "Google's default credentials not found; set GOOGLE_APPLICATION_CREDENTIALS"
        raise ProviderError("LOCAL_ERROR", said) from None
    except GoogleAuthError as error:
        raise _unusable(error) from None
    return {"authorization": f"Bearer {known[0].token}"}, str(known[0].token)


def _unusable(error: Exception) -> ProviderError:
    said = f"the cloud's credentials cannot be read or renewed ({type(error).__name__})"
    return ProviderError("LOCAL_ERROR", said, True)
