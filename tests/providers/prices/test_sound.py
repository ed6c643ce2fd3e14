"""What sound costs: by its tokens, its length, or the text that is spoken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.gateway import call_bound
from remit.providers.prices import Price, PriceTable, Usage

_TABLE = PriceTable.shipped()


def _price(model: str) -> Price:
    found = _TABLE.find("openai", model)
    assert found is not None
    return found


def test_prices_of_sound() -> None:
    assert _price("tts-1").sound_nano(characters=1_000_000) == 15_000_000_000
    assert _price("whisper-1").sound_nano(seconds=59.2) == 6_000_000
    spoken = Usage(1_000, 1_000, audio_input_tokens=400, audio_output_tokens=600)
    # 600 x 2.50 + 400 x 40 in, 400 x 10 + 600 x 80 out, in US dollars per million.
    assert _price("gpt-4o-audio-preview").cost_nano(spoken) == 69_500_000
    assert _price("gpt-4o-audio-preview").cost_nano(Usage(1_000, 1_000)) == 12_500_000


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.data())
def test_the_bound_of_sound_holds(tokens_in: int, tokens_out: int, data: st.DataObject) -> None:
    price = _price("gpt-4o-audio-preview")
    heard = data.draw(st.integers(0, tokens_in))
    cached = data.draw(st.integers(0, tokens_in))
    said = data.draw(st.integers(0, tokens_out))
    usage = Usage(tokens_in, tokens_out, cached, audio_input_tokens=heard, audio_output_tokens=said)
    assert 0 <= price.cost_nano(usage) <= price.bound_nano(tokens_in, tokens_out)


@given(st.text(max_size=200))
def test_what_is_spoken_is_bound_by_the_bytes_of_its_body(text: str) -> None:
    body = {"model": "tts-1", "voice": "alloy", "input": text}
    size = len(str(body).encode("utf-8", "surrogatepass"))
    amount = call_bound("openai.speech", body, size, _price("tts-1")).amount
    assert amount.bounded
    assert amount.nano is not None
    assert amount.nano >= _price("tts-1").sound_nano(characters=len(text))


def test_what_is_heard_is_bound_by_the_length_of_its_file() -> None:
    body, price = {"model": "whisper-1"}, _price("whisper-1")
    bound = call_bound("openai.transcriptions", body, 500, price, seconds=1_000.0)
    assert bound.amount.bounded
    assert bound.amount.nano == price.sound_nano(seconds=1_000)
    unread = call_bound("openai.transcriptions", body, 500, price, seconds=None).amount
    assert unread.unbounded == "file (its length is unreadable)"
    far = call_bound("openai.transcriptions", {**body, "url": "https://x"}, 500, price).amount
    assert far.unbounded == "url"


def test_sound_in_a_chat_is_bound_where_it_has_a_price() -> None:
    body = {
        "model": "gpt-4o-audio-preview",
        "modalities": ["text", "audio"],
        "audio": {"voice": "x"},
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert call_bound("openai.chat", body, 200, _price("gpt-4o-audio-preview")).amount.bounded
    other = call_bound("openai.chat", body, 200, _price("gpt-4o-mini")).amount
    assert not other.bounded
    assert other.unbounded == "modalities"
