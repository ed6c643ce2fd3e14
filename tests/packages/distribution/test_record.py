"""RECORD as installers write it, and as nobody should."""

from __future__ import annotations

import csv
import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.packages.distribution.record import Row, parse_record, record_line

_HASH = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"


def test_rows_with_and_without_a_hash_are_read() -> None:
    rows, problems = parse_record(
        f'remit/a.py,{_HASH},0\n"remit/b,c.py",{_HASH},\nx.dist-info/RECORD,,\n\n'
        f"../../../bin/remit,{_HASH},5\n/opt/bin/remit,{_HASH},5\n".encode()
    )
    assert not problems
    assert rows["remit/a.py"] == Row(hashlib.sha256().hexdigest(), 0)
    assert rows["remit/b,c.py"].size is None
    assert rows["x.dist-info/RECORD"] == Row("", None)
    assert set(rows) >= {"../../../bin/remit", "/opt/bin/remit"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("remit/a.py", "1 columns"),
        (f"remit/a.py,{_HASH},0,more", "4 columns"),
        (f"remit/../../etc/passwd,{_HASH},0", "not a path written in one way"),
        (f"remit//a.py,{_HASH},0", "not a path written in one way"),
        (f"./remit/a.py,{_HASH},0", "not a path written in one way"),
        (f"remit\\a.py,{_HASH},0", "not a path written in one way"),
        (f",{_HASH},0", "not a path written in one way"),
        (f"remit/a.py,{_HASH},-1", "the size of"),
        (f"remit/a.py,{_HASH},1e3", "the size of"),
        ("remit/a.py,md5=1B2M2Y8AsgTpgAmY7PhCfg,0", "it has to be sha256="),
        (f"remit/a.py,{_HASH}=,0", "it has to be sha256="),
        (f"remit/a.py,{_HASH[:-1]}V,0", "it has to be sha256="),
        ("remit/a.py,sha256=e3b0c44298fc1c149afbf4c8996fb924,0", "it has to be sha256="),
        ("remit/a.py,sha256=é,0", "it has to be sha256="),
        (f"remit/fine.py,{_HASH},0", "twice"),
    ],
)
def test_a_row_that_cannot_be_meant_is_named_with_its_line(line: str, said: str) -> None:
    rows, problems = parse_record(f"remit/fine.py,{_HASH},0\n{line}\n".encode())
    assert list(rows) == ["remit/fine.py"]
    assert len(problems) == 1
    assert "line 2" in problems[0]
    assert said in problems[0]


@pytest.mark.parametrize("data", [b"remit/a.py,\xff,0", b'remit/"a,"b"c",0\n"', b'"open'])
def test_what_is_no_table_has_no_rows(data: bytes) -> None:
    rows, problems = parse_record(data)
    assert not rows
    assert problems


_part = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="/\\"),
    min_size=1,
).filter(lambda text: text not in (".", ".."))


@given(st.dictionaries(st.lists(_part, min_size=1).map("/".join), st.binary(), min_size=1))
def test_what_is_written_is_what_is_read(files: dict[str, bytes]) -> None:
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    for path, data in files.items():
        table.writerow(record_line(path, hashlib.sha256(data).digest(), len(data)))
    rows, problems = parse_record(stream.getvalue().encode())
    assert not problems
    assert rows == {
        path: Row(hashlib.sha256(data).hexdigest(), len(data)) for path, data in files.items()
    }


@given(st.binary())
def test_no_bytes_break_it(data: bytes) -> None:
    rows, problems = parse_record(data)
    assert rows or problems or not data.strip(b"\r\n\x0b\x0c\x1c\x1d\x1e\x85\xc2\xe2\x80\xa8\xa9")
