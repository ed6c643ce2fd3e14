"""The longest duration of a sound file, read from its container.

A provider bills the seconds that its decoder finds. The header's length is the client's claim, so
each reader also adds up the frames that a decoder can find and takes the larger of the two. A frame
counts if any decoder may accept it: the result can be too long, never too short. A file of another
format, or with unknown contents, has no known length.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

_UNKNOWN = "the length is unknown"
_MAX_FRAMES = 500_000  # the work is bounded: three hours of MP3 at 48 kHz
_MAX_SEGMENTS = 2_000_000

_FLAC_FRAME = re.compile(rb"(?=(\xff[\xf8-\xfb][\x10-\xff][\x00-\xff].{12}))", re.DOTALL)
_FLAC_RATES = (0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000,
               96_000)  # fmt: skip
_MP3_FRAME = re.compile(rb"(?=\xff([\xe2-\xff])([\x00-\xff])...(.))", re.DOTALL)
_MP3_RATES = (44_100, 48_000, 32_000)
_MP3_COUNT = re.compile(rb"(?:Xing|Info)....(....)|VBRI.{10}(....)", re.DOTALL)
_AAC_RATES = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000,
              11_025, 8_000, 7_350)  # fmt: skip
_OPUS_PACKET_S = 0.12  # the longest that a packet may last


_CRC8 = []
for _value in range(256):
    for _ in range(8):
        _value = _value << 1 ^ (0x107 if _value & 0x80 else 0)
    _CRC8.append(_value)


def longest_seconds(data: bytes) -> float | None:
    """Return the most seconds that a file can play; ``None`` if they cannot be known.

    The formats are FLAC, MP3, AAC, WAV, Ogg with Opus or Vorbis, MP4 with AAC, and WebM with Opus.
    All frames are counted, so no decoder plays longer. A file of any other form gives ``None``.

    Args:
        data: the whole file.
    """
    try:
        at = 0
        while data[at : at + 3] == b"ID3":
            size = sum(
                (byte & 0x7F) << 7 * (3 - n) for n, byte in enumerate(data[at + 6 : at + 10])
            )
            at += 10 + size + 10 * (data[at + 5] >> 4 & 1)
        data = data[at:]
        if data[:4] == b"fLaC":
            return _flac(data)
        if data[:4] == b"OggS":
            return _ogg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
            return _wav(data)
        if data[4:8] == b"ftyp":
            return _mp4(data)
        if data[:4] == b"\x1aE\xdf\xa3":
            return _webm(data)
        if _MP3_FRAME.match(data):
            return _mp3(data + bytes(8))
    except (struct.error, IndexError, ValueError, ZeroDivisionError):
        pass
    return None


def _flac(data: bytes) -> float:
    """Add up each frame whose header has a true checksum: decoders skip all others."""
    if data[4] & 0x7F != 0:
        raise ValueError(_UNKNOWN)  # STREAMINFO comes first
    packed = int.from_bytes(data[18:26], "big")
    rate, stated = packed >> 44, packed & (1 << 36) - 1
    seconds = 0.0
    for number, found in enumerate(_FLAC_FRAME.finditer(data + bytes(16))):
        if number >= _MAX_FRAMES:
            raise ValueError(_UNKNOWN)
        seconds += _flac_frame(found[1], rate)
    return max(stated / rate, seconds)


def _flac_frame(head: bytes, rate: int) -> float:
    at = 5 + max(0, _leading_ones(head[4]) - 1)  # behind the number of the frame
    block, clock = head[2] >> 4, head[2] & 15
    if block < 2:
        samples = 192
    elif block < 6:
        samples = 576 << block - 2
    elif block == 6:
        samples, at = head[at] + 1, at + 1
    elif block == 7:
        samples, at = int.from_bytes(head[at : at + 2], "big") + 1, at + 2
    else:
        samples = 256 << block - 8
    if 0 < clock < 12:
        rate = _FLAC_RATES[clock]
    elif clock == 12:
        rate, at = head[at] * 1_000, at + 1
    elif clock in (13, 14):
        rate, at = int.from_bytes(head[at : at + 2], "big") * (1 if clock == 13 else 10), at + 2
    if at >= len(head) or _crc8(head[:at]) != head[at]:
        return 0.0
    return samples / rate if rate else 0.0


def _leading_ones(byte: int) -> int:
    return 8 - (byte ^ 0xFF).bit_length()


def _crc8(data: bytes) -> int:
    value = 0
    for byte in data:
        value = _CRC8[value ^ byte]
    return value


def _mp3(data: bytes) -> float:
    """Add up each header of a frame of MPEG audio or of AAC, wherever it is."""
    seconds, first = 0.0, 0
    for number, found in enumerate(_MP3_FRAME.findall(data)):
        if number >= _MAX_FRAMES:
            raise ValueError(_UNKNOWN)
        rate, samples = _mp3_frame(*(byte[0] for byte in found))
        first = first or rate
        if rate:
            seconds += samples / rate
    stated = [int.from_bytes(one or other, "big") for one, other in _MP3_COUNT.findall(data)]
    return max(seconds, max(stated, default=0) * 1_152 / first)


def _mp3_frame(version: int, rates: int, blocks: int) -> tuple[int, int]:
    """Return rate and samples of a frame, from three bytes of its header; zeros of none."""
    kind, layer = version >> 3 & 3, 4 - (version >> 1 & 3)
    if layer == 4:
        clock = rates >> 2 & 15
        known = version >= 0xF0 and clock < len(_AAC_RATES)
        return (_AAC_RATES[clock], 1_024 * ((blocks & 3) + 1)) if known else (0, 0)
    clock = rates >> 2 & 3
    if clock == 3 or kind == 1 or rates >= 0xF0:
        return 0, 0
    rate = _MP3_RATES[clock] >> {3: 0, 2: 1, 0: 2}[kind]
    return rate, 384 if layer == 1 else 576 if layer == 3 and kind != 3 else 1_152


def _wav(data: bytes) -> float:
    """Take all bytes for samples, of the smallest size and rate that the header allows."""
    at = 12
    while data[at : at + 4] != b"fmt ":
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 24 > len(data):
            raise ValueError(_UNKNOWN)
    kind, channels, rate, each_second, block, bits = struct.unpack_from("<HHIIHH", data, at + 8)
    if kind == 0xFFFE:
        (kind,) = struct.unpack_from("<H", data, at + 32)
    # A second chunk could state another rate; of packed kinds bytes say little.
    if kind not in (1, 3, 6, 7) or bits % 8 or not bits or data.count(b"fmt ") != 1:
        raise ValueError(_UNKNOWN)
    each: int = min(each_second, rate * block, rate * channels * bits // 8)
    return len(data) / each


def _ogg(data: bytes) -> float:
    """Add up the packets of each page; a file with pages of another codec has no known length."""
    ident = data[28 + data[26] - 1 :] if data[26] else b""
    opus, rate = ident.startswith(b"OpusHead"), 48_000
    packet_s = _OPUS_PACKET_S
    if not opus:
        if not ident.startswith(b"\x01vorbis"):
            raise ValueError(_UNKNOWN)
        rate = int.from_bytes(ident[12:16], "little")
        packet_s = (1 << (ident[28] >> 4)) / 2 / rate
    heads = (b"OpusHead", b"\x01vorbis", b"\x7fFLAC", b"Speex   ")
    if sum(map(data.count, heads)) != 1:
        raise ValueError(_UNKNOWN)
    seconds, last, segments = 0.0, 0, 0
    at = data.find(b"OggS")
    while at >= 0:  # also those within a packet: a decoder that lost its place takes them
        flags, place = data[at + 5], int.from_bytes(data[at + 6 : at + 14], "little", signed=True)
        lengths = data[at + 27 : at + 27 + data[at + 26]]
        last = max(last, place)
        start, begins = at + 27 + len(lengths), True
        segments += 1 + len(lengths)
        if segments > _MAX_SEGMENTS:
            raise ValueError(_UNKNOWN)
        for length in lengths:
            if begins:
                whole = opus and not (flags & 1 and start == at + 27 + len(lengths)) and length > 1
                seconds += _opus_packet(data[start : start + 2]) if whole else packet_s
            start += length
            begins = length < 255
        at = data.find(b"OggS", at + 4)
    return max(seconds, last / rate)


def _opus_packet(head: bytes) -> float:
    """Return the seconds of one Opus packet, from its first two bytes."""
    kind, code = head[0] >> 3, head[0] & 3
    if kind < 12:
        frame_ms = (10.0, 20.0, 40.0, 60.0)[kind & 3]
    elif kind < 16:
        frame_ms = (10.0, 20.0)[kind & 1]
    else:
        frame_ms = (2.5, 5.0, 10.0, 20.0)[kind & 3]
    frames = (1, 2, 2, head[1] & 63)[code]
    return min(frames * frame_ms / 1_000, _OPUS_PACKET_S)


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start and end of the contents of each box of an MP4 file."""
    while start < end:
        size, name = struct.unpack_from(">I4s", data, start)
        inside = start + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, inside)
            inside += 8
        stop = end if size == 0 else start + size
        if not inside <= stop <= end:
            raise ValueError(_UNKNOWN)
        yield name, inside, stop
        start = stop


def _box(data: bytes, start: int, end: int, *path: bytes) -> tuple[int, int]:
    """Return where the contents of the only box of a path are."""
    for wanted in path:
        found = [(at, stop) for name, at, stop in _boxes(data, start, end) if name == wanted]
        if len(found) != 1:
            raise ValueError(_UNKNOWN)
        start, end = found[0]
    return start, end


def _mp4(data: bytes) -> float:
    """Take the larger of each length that is stated and the frames that the tables list."""
    names = [name for name, _, _ in _boxes(data, 0, len(data))]
    if names.count(b"moov") != 1 or b"moof" in names:
        raise ValueError(_UNKNOWN)
    moov = _box(data, 0, len(data), b"moov")
    inside = list(_boxes(data, *moov))
    if any(name == b"mvex" for name, _, _ in inside):
        raise ValueError(_UNKNOWN)  # frames come in fragments
    seconds = _stated(data, _box(data, *moov, b"mvhd")[0])
    for name, start, end in inside:
        if name != b"trak":
            continue
        seconds = max(seconds, _stated(data, _box(data, start, end, b"mdia", b"mdhd")[0]))
        if any(name == b"edts" for name, _, _ in _boxes(data, start, end)):
            first, _ = _box(data, start, end, b"edts", b"elst")
            if int.from_bytes(data[first + 4 : first + 8], "big") > 2:
                raise ValueError(_UNKNOWN)  # an edit may play a part again
        table = _box(data, start, end, b"mdia", b"minf", b"stbl")
        first, last = _box(data, *table, b"stsd")
        ((kind, first, last),) = _boxes(data, first + 8, last)
        if kind != b"mp4a":
            raise ValueError(_UNKNOWN)
        first, last = _box(data, first + 28, last, b"esds")
        rate = _aac_rate(data[first:last])
        first, _ = _box(data, *table, b"stsz")
        frames = int.from_bytes(data[first + 8 : first + 12], "big")
        first, last = _box(data, *table, b"stts")
        ticks = sum(
            count * each for count, each in struct.iter_unpack(">II", data[first + 8 : last])
        )
        clock, _ = _clock(data, _box(data, start, end, b"mdia", b"mdhd")[0])
        seconds = max(seconds, frames * 1_024 / rate, ticks / clock)
    return seconds


def _clock(data: bytes, at: int) -> tuple[int, int]:
    """Return ticks a second and length of a header box."""
    clock: int
    length: int
    if data[at] == 1:
        clock, length = struct.unpack_from(">IQ", data, at + 20)
    else:
        clock, length = struct.unpack_from(">II", data, at + 12)
    return clock, length


def _stated(data: bytes, at: int) -> float:
    clock, length = _clock(data, at)
    return length / clock


def _aac_rate(esds: bytes) -> int:
    """Return the sampling rate of AAC, from its descriptor."""
    found = re.search(rb"\x04[\x80\xfe\xff]{0,3}[\x00-\x7f][\x40\x67].{12}\x05[\x80\xfe\xff]{0,3}"
                      rb"[\x02-\x7f](..)", esds, re.DOTALL)  # fmt: skip
    if found is None:
        raise ValueError(_UNKNOWN)
    bits = int.from_bytes(found[1], "big")
    if bits >> 11 == 31:
        raise ValueError(_UNKNOWN)
    return _AAC_RATES[bits >> 7 & 15]


_CLUSTER, _CODEC, _SCALE, _DURATION, _TIMESTAMP = 0x1F43B675, 0x86, 0x2AD7B1, 0x4489, 0xE7
_BLOCKS = (0xA1, 0xA3)
_MASTERS = {_CLUSTER, 0x18538067, 0x1549A966, 0x1654AE6B, 0xA0, 0xAE}
"""Cluster, segment, information, tracks, group of blocks, track."""


def _webm(data: bytes) -> float:
    """Add up the Opus packets of each block."""
    at, scale, time, latest, stated, seconds, clusters = 0, 1_000_000, 0, 0, 0.0, 0.0, 0
    codecs: list[bytes] = []
    while at < len(data):
        name, _, at = _varint(data, at)
        _, size, at = _varint(data, at)
        clusters += name == _CLUSTER
        if name in _MASTERS:
            continue  # the contents follow
        content = data[at : at + size]
        at += size
        if len(content) != size:
            raise ValueError(_UNKNOWN)
        if name == _CODEC:
            codecs.append(content)
        elif name == _SCALE:
            scale = int.from_bytes(content, "big")
        elif name == _DURATION:
            (stated,) = struct.unpack(">d" if size == 8 else ">f", content)
        elif name == _TIMESTAMP:
            time = int.from_bytes(content, "big")
            latest = max(latest, time)
        elif name in _BLOCKS:
            latest = max(latest, time + int.from_bytes(content[1:3], "big", signed=True))
            laced = content[0] < 0x80 or content[3] & 0x06
            seconds += (
                (content[4] + 1) * _OPUS_PACKET_S
                if laced
                else _opus_packet(content[4:6].ljust(2, b"\x3f"))
            )
    # A decoder that lost its place continues at any cluster: none may be hidden in an element.
    if codecs != [b"A_OPUS"] or clusters != data.count(b"\x1fC\xb6u"):
        raise ValueError(_UNKNOWN)
    return max(seconds, stated * scale / 1e9, latest * scale / 1e9)


def _varint(data: bytes, at: int) -> tuple[int, int, int]:
    """Return an EBML number with and without its mark, and the place behind it."""
    width = 9 - data[at].bit_length()
    if width > 8:
        raise ValueError(_UNKNOWN)
    marked = int.from_bytes(data[at : at + width], "big")
    return marked, marked & (1 << 7 * width) - 1, at + width
