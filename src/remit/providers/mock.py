"""A provider with scripted answers, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from remit.providers.protocol import ProviderRequest, ProviderResponse


class MockProvider:
    """A provider that answers without a model; may be used from several threads.

    Each request takes the next item of the script. After the script each answer is the default
    text.

    Args:
        default_response: text of the answers after the script.
        responses: script of texts, responses, and exceptions to raise, in order.
        delay_s: duration of each answer in seconds.
        input_tokens: input tokens that an answer with a text reports.
        output_tokens: output tokens that an answer with a text reports.

    Attributes:
        requests: all received requests.
    """

    def __init__(
        self,
        default_response: str = "Mock response",
        *,
        responses: Iterable[str | ProviderResponse | Exception] = (),
        delay_s: float = 0.0,
        input_tokens: int = 100,
        output_tokens: int = 50,
    ) -> None:
        self._default = default_response
        self._script = list(responses)
        self._delay_s = delay_s
        self._usage = (input_tokens, output_tokens)
        self._lock = threading.Lock()
        self.requests: list[ProviderRequest] = []

    @property
    def call_count(self) -> int:
        """The number of received requests."""
        return len(self.requests)

    def send(self, request: ProviderRequest) -> ProviderResponse:
        """Note the request, wait ``delay_s``, and return the next answer of the script, or the
        default.

        A text becomes a response of the requested model with the fixed numbers of tokens. A
        scripted response is returned unchanged.

        Raises:
            Exception: the script's next item, if that is an exception; raised after the wait.
        """
        with self._lock:
            self.requests.append(request)
            answer = self._script.pop(0) if self._script else self._default
        if self._delay_s:
            time.sleep(self._delay_s)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ProviderResponse):
            return answer
        return ProviderResponse(answer, request.model_id, *self._usage)
