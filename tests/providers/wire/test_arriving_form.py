"""A form that is read while it arrives: as one that is read at once, whatever the pieces."""

from __future__ import annotations

import random

import pytest

from remit.providers.wire import FILES, ArrivingForm, BodyError, FormBody
from tests.support.soak import sample

_KIND = "multipart/form-data; boundary=B"
_PIECES = (
    b"\r\n",
    b"--B",
    b"--",
    b"\r\n--B",
    b"B--",
    b"x",
    b"",
    b"\r",
    b"\n",
    b"\x00\xff",
    b"-" * 9,
)
_ODD = (
    b'Content-Disposition: form-data; name="a"', b'content-disposition:form-data;name=a',
    b'Content-Disposition: form-data; name="f"; filename="n"', b"Content-Type: text/plain",
    b'Content-Disposition: form-data; name="t[]"', b"Content-Disposition: form-data", b"",
    b'Content-Disposition: form-data; name="f"; filename*=utf-8\'\'n',
)  # fmt: skip


def _form(source: random.Random) -> bytes:
    """A form that is sound or nearly so."""
    parts = [source.choice((b"", b"a preamble\r\n", b"\r\n"))]
    for _ in range(source.randrange(4)):
        heads = b"\r\n".join(source.choices(_ODD, k=source.randrange(1, 3)))
        content = b"".join(source.choices(_PIECES, k=source.randrange(6)))
        end = source.choice((b"\r\n", b"\r\n", b"\r\n", b"", b"\n"))
        parts.append(b"--B\r\n" + heads + b"\r\n\r\n" + content + end)
    parts.append(source.choice((b"--B--\r\n", b"--B--", b"--B--\r\nafter it", b"", b"--B")))
    form = b"".join(parts)
    if source.random() < 0.3:
        at = source.randrange(len(form) + 1)
        form = form[:at] + bytes(source.choices(range(256), k=1)) + form[at + 1 :]
    return form


def _whole(form: bytes) -> object:
    try:
        return FormBody.read_form(FILES["openai"], form, _KIND).value
    except BodyError:
        return BodyError


def _arriving(form: bytes, source: random.Random) -> object:
    read = ArrivingForm.of(FILES["openai"], _KIND)
    fields: list[tuple[str, str]] = []
    at = 0
    try:
        while at < len(form):
            size = source.choice((1, 2, 3, 5, 17, 1000))
            fields += read.feed(form[at : at + size])
            at += size
        fields += read.feed(b"")
    except BodyError:
        return BodyError
    texts = [text for value in read.value.values()
             for text in (value if isinstance(value, list) else [value])
             if isinstance(text, str)]  # fmt: skip
    assert sorted(texts) == sorted(text for _, text in fields)
    return read.value


@pytest.mark.soak
def test_pieces_make_no_difference() -> None:
    good = 0
    for seed in sample(range(20_000), 1_500):
        source = random.Random(seed)
        form = _form(source)
        whole, arriving = _whole(form), _arriving(form, source)
        assert whole == arriving, (seed, form)
        good += whole is not BodyError
    assert good > 100


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"x" * (2 << 20), "bytes"),
        (b"--B\r\n" + b"x" * 20_000, "truncated"),
        (b"--B" + b" " * 300, "truncated"),
        (b'--B\r\nContent-Disposition: form-data; name="t[]"\r\n\r\n\r\n' * 300, "too many"),
    ],
)
def test_what_would_take_memory_is_refused(form: bytes, said: str) -> None:
    read = ArrivingForm.of(FILES["openai"], _KIND)
    with pytest.raises(BodyError, match=said):
        for at in range(0, len(form), 65_536):
            read.feed(form[at : at + 65_536])
        read.feed(b"")


_ID = b'Content-Disposition: form-data; name="file_id"'


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (b'--B\r\n%s; filename="x"\r\n%s\r\n\r\nfile-1\r\n--B--\r\n' % (_ID, _ID), _KIND),
        (
            b"--B\r\nContent-Transfer-Encoding: base64\r\n%s\r\n\r\nZmlsZS0x\r\n--B--\r\n" % _ID,
            _KIND,
        ),
        (
            b"--B\r\n%s\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nfile=2D1\r\n--B--"
            % _ID,
            _KIND,
        ),
        (b"--B\r\n%s\r\n\r\nown\r\n--B--x\r\n--B\r\n%s\r\n\r\nfile-1\r\n--B--" % (_ID, _ID), _KIND),
        (b"--B\r\n%s\r\n\r\nown\r\n--B--\r\n" % _ID, f"{_KIND}; boundary=A"),
    ],
    ids=["two dispositions", "base64", "quoted-printable", "after the end", "two boundaries"],
)
def test_an_id_cannot_be_hidden_where_servers_differ(form: bytes, kind: str) -> None:
    with pytest.raises(BodyError):
        FormBody.read_form(FILES["openai"], form, kind)
    with pytest.raises(BodyError):
        read = ArrivingForm.of(FILES["openai"], kind)
        for at in range(len(form)):
            read.feed(form[at : at + 1])
        read.feed(b"")
