"""The longest that a sound file can play is read from its frames, never from its header alone."""

from __future__ import annotations

import io
import math
import struct
import time
import wave

import pytest

from remit.providers.wire.audio_duration import longest_seconds


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value << 1 ^ (0x107 if value & 0x80 else 0)
    return value


def flac(frames: int, rate: int = 8_000, stated: int = 0) -> bytes:
    """Silence in frames of 65,535 samples, each of eleven bytes."""
    info = struct.pack(">HHxxxxxx", 16, 65_535) + (rate << 44 | 15 << 36 | stated).to_bytes(
        8, "big"
    )
    made = b"fLaC\x80\x00\x00\x22" + info + bytes(16)
    for number in range(frames):
        name = chr(number).encode()
        head = b"\xff\xf8\x70\x08" + name + struct.pack(">H", 65_534)
        made += head + bytes([_crc8(head)]) + b"\x00\x00\x00"
    return made


def wav(seconds: int, **header: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(8_000)
        made.writeframes(bytes(16_000 * seconds))
    data = bytearray(file.getvalue())
    for at, value in {int(name[1:]): value for name, value in header.items()}.items():
        data[at : at + 4] = value.to_bytes(4, "little")
    return bytes(data)


def _page(packets: list[bytes], place: int, flags: int = 0) -> bytes:
    lengths = bytes(len(packet) for packet in packets)
    head = struct.pack("<4sBBqIIIB", b"OggS", 0, flags, place, 1, 0, 0, len(lengths))
    return head + lengths + b"".join(packets)


def opus(packets: int, place: int = 0) -> bytes:
    """Packets of 60 ms in three bytes each, as of silence."""
    start = _page([b"OpusHead\x01\x01" + bytes(9)], 0, 2) + _page([b"OpusTags" + bytes(8)], 0)
    pages = [_page([b"\x18\xff\xfe"] * 100, place) for _ in range(packets // 100)]
    return start + b"".join(pages)


def vorbis(packets: int, place: int = 0) -> bytes:
    head = b"\x01vorbis" + struct.pack("<IBIIII", 0, 1, 8_000, 0, 0, 0) + b"\xd8\x01"
    return _page([head], 0, 2) + b"".join(
        _page([b"\x00"] * 100, place) for _ in range(packets // 100)
    )


def mp3(frames: int, stated: int = 0) -> bytes:
    """Frames of MPEG-2.5 at 8 kbit/s and 8 kHz: 72 ms in 72 bytes."""
    first = b"\xff\xe3\x18\x00" + bytes(20) + b"Xing\x00\x00\x00\x01" + struct.pack(">I", stated)
    return first.ljust(72, b"\x00") + (b"\xff\xe3\x18\x00" + bytes(68)) * (frames - 1)


def adts(frames: int) -> bytes:
    return (b"\xff\xf1\x6c\x40\x01\x7f\xfc" + bytes(4)) * frames  # 8 kHz, mono


def _box(name: bytes, *inside: bytes) -> bytes:
    content = b"".join(inside)
    return struct.pack(">I4s", len(content) + 8, name) + content


def m4a(frames: int, stated: int = 0, listed: int = 0, more: bytes = b"") -> bytes:
    header = bytes(12) + struct.pack(">II", 8_000, stated) + bytes(80)
    esds = bytes.fromhex("00000000 03 1900 00 00 04 11 40 15 000000 00000000 00000000 05 02 1588")
    sound = _box(b"mp4a", bytes(28), _box(b"esds", esds))
    table = _box(
        b"stbl",
        _box(b"stsd", bytes(7), b"\x01", sound),
        _box(b"stsz", bytes(4), struct.pack(">II", 1, frames)),
        _box(b"stts", bytes(7), b"\x01", struct.pack(">II", 1, listed)),
    )
    media = _box(b"mdia", _box(b"mdhd", header), _box(b"minf", table))
    moov = _box(b"moov", _box(b"mvhd", header), _box(b"trak", media), more)
    return _box(b"ftyp", b"M4A ") + moov + _box(b"mdat", bytes(frames))


def _element(name: str, content: bytes) -> bytes:
    return bytes.fromhex(name) + (len(content) | 1 << 28).to_bytes(4, "big") + content


def webm(blocks: int, stated: float = 0.0, timestamp: int = 0, more: bytes = b"") -> bytes:
    head = _element("1a45dfa3", b"")
    info = _element("1549a966", _element("2ad7b1", b"\x0f\x42\x40")
                    + _element("4489", struct.pack(">d", stated)))  # fmt: skip
    tracks = _element("1654ae6b", _element("ae", _element("86", b"A_OPUS")))
    block = _element("a3", b"\x81\x00\x00\x80\x18\xff\xfe")
    cluster = bytes.fromhex("1f43b675 01ffffffffffffff")  # of unknown length, as browsers write
    time = _element("e7", timestamp.to_bytes(4, "big"))
    return head + bytes.fromhex("18538067 01ffffffffffffff") + info + tracks + cluster + time + (
        block * blocks + more)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        (flac(120), 983.0, 984.0),  # sixteen minutes in 1.5 KB
        (flac(1, stated=8_000_000), 1_000.0, 1_000.1),
        (b"ID3\x04\x00\x00\x00\x00\x00\x02xx" + flac(120), 983.0, 984.0),
        (wav(60), 60.0, 60.1),
        (wav(60, _40=2), 60.0, 60.1),  # the length of the samples is wrong
        (wav(60, _24=8), 60_000.0, 61_000.0),  # a decoder plays them at this rate
        (wav(60, _28=16), 60_000.0, 61_000.0),
        (opus(20_000), 1_200.0, 1_201.0),
        (opus(100, place=48_000 * 900), 900.0, 900.1),
        (vorbis(1_000), 512.0, 530.0),
        (vorbis(100, place=8_000 * 900), 900.0, 900.1),
        (mp3(1_000), 72.0, 72.1),
        (mp3(10, stated=100_000), 14_400.0, 14_401.0),
        (adts(1_000), 64.0, 300.0),
        (m4a(1_000), 128.0, 128.1),
        (m4a(1, stated=8_000 * 700), 700.0, 700.1),
        (m4a(1, listed=8_000 * 600), 600.0, 600.1),
        (webm(10_000), 600.0, 600.1),
        (webm(1, stated=900_000.0), 900.0, 900.1),
        (webm(1, timestamp=800_000), 800.0, 833.0),
    ],
)
def test_a_length_is_the_larger_of_the_header_and_the_frames(
    data: bytes, least: float, most: float
) -> None:
    seconds = longest_seconds(data)
    assert seconds is not None
    assert least - 1e-6 <= seconds <= most


@pytest.mark.parametrize(
    "data",
    [
        b"", b"hello", bytes(1_000), b"fLaC", b"OggS", b"RIFF\0\0\0\0WAVE", b"\x1aE\xdf\xa3",
        b"ID3\x04\x00\x00\x00\x00\x00\x00",
        opus(100) + vorbis(100),
        wav(1)[:20] + b"\x02\x00" + wav(1)[22:],  # packed samples
        wav(1) + b"fmt ",
        m4a(1, more=_box(b"mvex")),
        m4a(1)[:-5],
        webm(1, more=_element("bf", bytes.fromhex("1f43b675 84") + b"hide")),
        webm(1)[:-3],
        webm(1).replace(b"A_OPUS", b"A_FLAC"),
    ],
)  # fmt: skip
def test_a_length_that_cannot_be_known_is_none(data: bytes) -> None:
    assert longest_seconds(data) is None


@pytest.mark.parametrize("unit", [b"\xff\xf8\x70\x08", b"\xff\xe3\x18\x00", b"ID3\4\0\0\0\0\0\0"])
def test_work_on_a_hostile_file_grows_as_the_file_does(unit: bytes) -> None:
    def cost(times: int) -> float:
        data = b"fLaC\0" + unit * times if unit[1] == 0xF8 else unit * times
        started = time.process_time()
        longest_seconds(data)
        return time.process_time() - started

    least = dict.fromkeys((50_000, 400_000), math.inf)
    for _ in range(3):
        for times in least:
            least[times] = min(least[times], cost(times))
    small, large = least.values()
    assert large <= 20 * small + 0.05  # a quadratic reader takes 64 times as long


@pytest.mark.parametrize("made", [flac(3), wav(1), opus(100), vorbis(100), mp3(3), m4a(2), webm(2)])
def test_a_file_with_any_byte_changed_or_cut_has_a_length_or_none(made: bytes) -> None:
    for at in range(0, min(len(made), 400)):
        for changed in (made[:at], made[:at] + b"\xff" + made[at + 1 :]):
            seconds = longest_seconds(changed)
            assert seconds is None or seconds >= 0
