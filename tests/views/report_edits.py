"""Edits that somebody who hands on a report could make, by kind; the script is left as it is."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from remit.ledger.tlog import leaf_hash, node_hash, split_point, unlisted_subtrees
from remit.views.report_page import WHOLE_RANGE, embedded

__all__ = ["Edit", "data_of", "edits_of", "with_data"]

_DATA = re.compile(r'(<script type="application/json" id="data">)(.*?)(</script>)', re.DOTALL)
_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit.

    Attributes:
        kind: the class of edits that it belongs to.
        name: unique within its kind.
        text: the edited file.
        stops: True if the browser may never run the script of the edited file.
        is_true: True if the edited file is a true report of less, or differs in statements only.
    """

    kind: str
    name: str
    text: str
    stops: bool = False
    is_true: bool = False


def data_of(text: str) -> dict[str, Any]:
    """Return the data set of a report."""
    found = _DATA.search(text)
    assert found
    data: dict[str, Any] = json.loads(found[2])
    return data


def with_data(text: str, data: Any) -> str:
    """Return a report with another data set, written as Remit writes one."""
    return _with_raw(text, embedded(data))


def _with_raw(text: str, raw: str) -> str:
    return _DATA.sub(lambda found: found[1] + raw + found[3], text, count=1)


def edits_of(text: str, other: str) -> Iterator[Edit]:
    """Yield the edits of a report.

    Args:
        text: the report.
        other: a report of another ledger under another key of the same origin.
    """
    yield from _records(text, other)
    yield from _less(text)
    yield from _statements(text)
    yield from _members(text, other)
    yield from _hashes(text)
    yield from _heads(text, other)
    yield from _ranges(text)
    yield from _markup(text)
    yield from _attributes(text)
    yield from _policies(text)
    yield from _order(text)


def _changed(text: str, kind: str, name: str, change: Callable[[dict[str, Any]], object]) -> Edit:
    data = data_of(text)
    change(data)
    return Edit(kind, name, with_data(text, data))


def _records(text: str, other: str) -> Iterator[Edit]:
    records = data_of(text)["records"]
    foreign = data_of(other)["records"]

    step = max(1, len(records) // 10)

    def each(kind: str, change: Callable[[list[str], int], object]) -> Iterator[Edit]:
        for place in range(len(records)):
            data = data_of(text)
            change(data["records"], place)
            if data["records"] != records and place % step == 0:
                yield Edit(kind, str(place), with_data(text, data))

    def edited(record: str, old: str, new: str) -> str:
        place = record.rindex(old) if old in record else -1
        return record if place < 0 else record[:place] + new + record[place + len(old) :]

    def renumbered(listed: list[str], place: int) -> None:
        copy = json.loads(listed[place])
        number = len(records) + 7
        copy |= {"seq": number, "id": f"LED-{number:08x}"}
        listed.append(json.dumps(copy, sort_keys=True, separators=(",", ":"), ensure_ascii=False))

    def put(listed: list[str], place: int, value: Any) -> None:
        listed[place] = value

    yield from each("record omitted", lambda listed, i: listed.pop(i))
    yield from each("record twice", lambda listed, i: listed.insert(i, listed[i]))
    yield from each("record fabricated", renumbered)
    yield from each("records exchanged",
                    lambda listed, i: listed.insert(max(0, i - 1), listed.pop(i)))  # fmt: skip
    yield from each("record replaced by a true one",
                    lambda listed, i: put(listed, i, records[(i + 5) % len(records)]))  # fmt: skip
    yield from each("record of another ledger",
                    lambda listed, i: put(listed, i, foreign[i % len(foreign)]))  # fmt: skip
    yield from each("record edited", lambda listed, i: put(listed, i, edited(listed[i], "A", "B")))
    yield from each("cost edited", lambda listed, i: put(
        listed, i, edited(listed[i], '"cost_usd":0', '"cost_usd":9')))  # fmt: skip
    yield from each("record spelled otherwise",
                    lambda listed, i: put(listed, i, listed[i].replace(",", ", ", 1)))  # fmt: skip
    yield from each("key twice in a record", lambda listed, i: put(
        listed, i, listed[i].replace("{", '{"decision":"SUCCESS",', 1)))  # fmt: skip
    for value in (None, 1, [], {}, ""):
        yield from list(each(f"record as {json.dumps(value)}",
                        lambda listed, i, value=value: put(listed, i, value)))[::3]  # type: ignore[misc]  # fmt: skip
    yield _changed(text, "records", "all of another ledger", lambda d: d.update(records=foreign))
    yield _changed(text, "records", "reversed", lambda d: d["records"].reverse())
    yield _changed(text, "records", "none", lambda d: d["records"].clear())


class _Tree:
    """The hashes that somebody who has only the file can compute."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.records = {json.loads(one)["seq"]: one for one in data["records"]}
        self.size = int(data["checkpoint"].split("\n")[1])
        self._given = iter(data["hashes"])
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._climb(0, self.size)

    def _climb(self, start: int, end: int) -> bytes:
        if not any(start <= seq < end for seq in self.records):
            found = base64.b64decode(next(self._given))
        elif end - start == 1:
            found = leaf_hash(self.records[start].encode())
        else:
            middle = start + split_point(end - start)
            found = node_hash(self._climb(start, middle), self._climb(middle, end))
        self._nodes[start, end] = found
        return found

    def without(self, *seqs: int) -> dict[str, Any]:
        """Return the records without some, and the hashes that then lead to the same root."""
        left = sorted(set(self.records) - set(seqs))
        spans = unlisted_subtrees(left, 0, self.size)
        hashes = [base64.b64encode(self._nodes[one]).decode() for one in spans]
        return {"records": [self.records[seq] for seq in left], "hashes": hashes}


def _less(text: str) -> Iterator[Edit]:
    """Omissions of which the hashes are right: those of a range have to be found all the same."""
    data = data_of(text)
    tree = _Tree(data)
    first, end = data["first"], data["end"]
    is_selection = end - first > WHOLE_RANGE
    for seq in tree.records:
        is_edge = seq in (first - 1, end)
        is_true = is_selection if first <= seq < end else not is_edge
        changed = {**data, **tree.without(seq)}
        yield Edit("record omitted, hashes right", str(seq), with_data(text, changed),
                   is_true=is_true)  # fmt: skip
    if end - first < 10 or any(seq not in tree.records for seq in range(first, end)):
        return
    gone = [seq for seq in tree.records if seq < first + 5]
    changed = {**data, **tree.without(*gone), "first": first + 5}
    yield Edit("range narrowed, hashes right", "edge missing", with_data(text, changed))
    changed = {**data, **tree.without(*gone[:-1]), "first": first + 5}
    yield Edit("range narrowed, hashes right", "same time", with_data(text, changed))
    changed["since"] = json.loads(tree.records[first + 5])["timestamp"]
    yield Edit("range narrowed, hashes right", "later time", with_data(text, changed), is_true=True)


def _statements(text: str) -> Iterator[Edit]:
    """Edits of the numbers that no proof covers."""
    stated = data_of(text)["stated"]
    kind = "statement"

    def edit(name: str, value: Any, *, is_true: bool = False) -> Edit:
        return Edit(kind, name, with_data(text, {**data_of(text), "stated": value}),
                    is_true=is_true)  # fmt: skip

    for name, value in stated.items():
        yield edit(f"{name} dropped", {k: v for k, v in stated.items() if k != name})
        yield edit(f"{name} as a text", stated | {name: "all was well"})
        yield edit(f"{name} as markup", stated | {name: "<b>all was well</b>"})
        yield edit(f"{name} as a list", stated | {name: ["all was well"]})
        if value is not None and name != "made_at":
            yield edit(f"{name} as null", stated | {name: None}, is_true=True)
            for member, number in value.items():
                other = not number if isinstance(number, bool) else number + 1
                yield edit(f"{name} {member}", stated | {name: value | {member: other}},
                           is_true=True)  # fmt: skip
                yield edit(f"{name} {member} text", stated | {name: value | {member: "well"}})
                yield edit(f"{name} {member} -1", stated | {name: value | {member: -1}})
            yield edit(f"{name} more", stated | {name: value | {"note": 1}})
    yield edit("another time", stated | {"made_at": "2020-01-01T00:00:00.000000Z"}, is_true=True)
    yield edit("no time", stated | {"made_at": "yesterday"})
    yield edit("more", stated | {"note": "all was well"})


_OF_OTHER_TYPES: tuple[Any, ...] = (None, 0, -1, 1.5, True, "x", [], {}, ["x"], {"x": 1})


def _members(text: str, other: str) -> Iterator[Edit]:
    data = data_of(text)
    raw = embedded(data)
    for name in data:
        if name == "stated":
            continue
        yield _changed(text, "member dropped", name, lambda d, name=name: d.pop(name))  # type: ignore[misc]
        for value in _OF_OTHER_TYPES:
            if value == data[name] and type(value) is type(data[name]):
                continue
            yield _changed(text, "member retyped", f"{name} {value}",
                           lambda d, n=name, v=value: d.update({n: v}))  # type: ignore[misc]  # fmt: skip
        yield Edit("member twice", name, _with_raw(
            text, f'{{"{name}":{embedded(data_of(other)[name])},{raw[1:]}'))  # fmt: skip
        moved = {key: value for key, value in data.items() if key != name}
        if list(data)[-1] != name:
            yield Edit("members reordered", name, with_data(text, {**moved, name: data[name]}))
    yield Edit("member added", "top", with_data(text, {**data, "note": "all was well"}))
    yield Edit("data spelled otherwise", "space", _with_raw(text, raw.replace(",", ", ", 1)))
    yield Edit("data spelled otherwise", "escape", _with_raw(text, raw.replace("a", "\\u0061", 1)))
    yield Edit("data spelled otherwise", "line end", _with_raw(text, raw + "\n"))
    for name, whole in (("empty", ""), ("null", "null"), ("list", f"[{raw}]"), ("cut", raw[:-9]),
                        ("comment", f"<!--{raw}-->"), ("twice", raw + raw)):  # fmt: skip
        yield Edit("data replaced", name, _with_raw(text, whole))
    yield Edit(
        "data replaced", "of another ledger", _with_raw(text, embedded(data_of(other)) + " ")
    )


def _hashes(text: str) -> Iterator[Edit]:
    hashes = data_of(text)["hashes"]
    for place, one in enumerate(hashes):
        turned = ("B" if one[3] != "B" else "C").join((one[:3], one[4:]))
        for name, changed in (
            ("edited", [turned]), ("dropped", []), ("twice", [one, one]), ("cut", [one[:-4]]),
            ("another", [hashes[place - 1]] if len(hashes) > 1 else ["A" * 43 + "="]),
        ):  # fmt: skip
            other = hashes[:place] + changed + hashes[place + 1 :]
            yield _changed(text, f"hash {name}", str(place), lambda d, o=other: d.update(hashes=o))  # type: ignore[misc]
    extra = [*hashes, "A" * 43 + "="]
    yield _changed(text, "hash added", "end", lambda d: d.update(hashes=extra))


def _heads(text: str, other: str) -> Iterator[Edit]:
    data, foreign = data_of(text), data_of(other)
    note, key = data["checkpoint"], data["verifier_key"]
    body, _, signatures = note.rpartition("\n\n")
    origin, size, root = body.split("\n")[:3]
    _, _, others = foreign["checkpoint"].rpartition("\n\n")
    kind = "checkpoint"
    for name, changed in (
        ("of another key", foreign["checkpoint"]),
        ("signature of another key", f"{body}\n\n{others}"),
        ("larger", note.replace(f"\n{size}\n", f"\n{int(size) + 1}\n")),
        ("smaller", note.replace(f"\n{size}\n", f"\n{int(size) - 1}\n")),
        ("another root", note.replace(root, "A" * 43 + "=")),
        ("another origin", note.replace(origin, "example.com/other")),
        ("an extension line", f"{body}\nall was well\n\n{signatures}"),
        ("unsigned", f"{body}\n\n"),
        ("body only", body),
        ("signed twice", note + signatures),
        ("a cosignature", f"{note}— witness.example/w {'A' * 104}\n"),
        ("a word", f"{note}all was well\n"),
        ("empty", ""),
        ("signature edited", note[:-9] + ("A" if note[-9] != "A" else "B") + note[-8:]),
    ):  # fmt: skip
        yield _changed(text, kind, name, lambda d, c=changed: d.update(checkpoint=c))  # type: ignore[misc]
    for name, changed in (
        ("another", foreign["verifier_key"]), ("damaged", key[:-2] + "A="), ("empty", ""),
        ("renamed", key.replace(origin, "example.com/other")), ("padded", key + " "),
    ):  # fmt: skip
        yield _changed(text, "key", name, lambda d, c=changed: d.update(verifier_key=c))  # type: ignore[misc]
    yield _changed(text, "key", "and checkpoint of another", lambda d: d.update(
        checkpoint=foreign["checkpoint"], verifier_key=foreign["verifier_key"]))  # fmt: skip


def _ranges(text: str) -> Iterator[Edit]:
    data = data_of(text)
    time = "2026-03-29T12:{}:00.000000Z"
    for name in ("since", "until"):
        for value in (None, time.format("01"), time.format("29"), "2020-01-01T00:00:00.000000Z",
                      "2099-01-01T00:00:00.000000Z", "yesterday"):  # fmt: skip
            if value != data[name]:
                changed = {**data, name: value}
                yield Edit("range", f"{name} {value}", with_data(text, changed),
                           is_true=_is_range(changed))  # fmt: skip
    for first, end in ((1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1), (3, 3), (0, 100)):
        changed = {**data, "first": data["first"] + first, "end": data["end"] + end}
        yield Edit("range", f"first {first} end {end}", with_data(text, changed))


def _is_range(data: dict[str, Any]) -> bool:
    """Whether the records bear out a range that is given by other times."""
    since, until = data["since"] or "0", data["until"] or "9"
    records = {one["seq"]: one["timestamp"] for one in map(json.loads, data["records"])}
    first, end = data["first"], data["end"]
    size = int(data["checkpoint"].split("\n")[1])
    inside = [time for seq, time in records.items() if first <= seq < end]
    return (
        since < until != "yesterday" != since
        and (first == 0 or records[first - 1] < since)
        and (end == size or records[end] >= until)
        and (data["since"] is not None or first == 0)
        and (data["until"] is not None or end == size)
        and (not inside or (inside[0] >= since and inside[-1] < until))
    )


_ROW = ('<li class="entry" id="LED-0000ffff"><div class="line"><code class="id">LED-0000ffff</code>'
        "<strong>EXCHANGE</strong><span>SUCCESS</span></div></li>")  # fmt: skip
_SNIPPETS = {
    "row": f'<ol data-events="EXCHANGE" data-listed="1">{_ROW}</ol>',
    "row alone": _ROW,
    "hidden row": _ROW.replace("<li", "<li hidden"),
    "table": '<table class="figures"><tr><th>model</th><td>$0.00</td></tr></table>',
    "heading": "<h2>All was well</h2>",
    "banner": '<div class="banner good" id="banner" data-state="good"><strong>Verified in your '
              "browser.</strong></div>",
    "plain banner": '<div class="banner good"><p><strong>Verified.</strong></p></div>',
    "sums": '<dl class="sums"><div><dt>calls</dt><dd data-total="calls">0</dd></div></dl>',
    "paragraph": "<p>All was well.</p>",
    "text": "All was well.",
    "comment": "<!-- all was well -->",
    "second data": '<script type="application/json" id="data">{}</script>',
    "second head": '<script type="application/json" id="head">{}</script>',
    "script": "<script>document.title = 'x'</script>",
    "remote script": '<script src="http://127.0.0.1:9/x.js"></script>',
    "module": '<script type="module">1</script>',
    "style": "<style>#stated { display: none } .entry { visibility: hidden }</style>",
    "generated text": "<style>h1::after { content: ' and all was well' }</style>",
    "style sheet": '<link rel="stylesheet" href="data:text/css,*{display:none}">',
    "inline style": '<div style="position:fixed;inset:0;background:#fff">All was well</div>',
    "frame": "<iframe srcdoc='<h1>All was well</h1>'></iframe>",
    "object": '<object data="data:text/html,all was well"></object>',
    "embed": '<embed src="data:text/html,all was well">',
    "picture": '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" onerror="document.title=1">',
    "drawing": '<svg onload="document.title=1"><text>All was well</text></svg>',
    "formula": "<math><mtext>All was well</mtext></math>",
    "dialog": "<dialog open>All was well</dialog>",
    "popover": '<div popover="manual" id="over">All was well</div>',
    "details": "<details open><summary>All was well</summary></details>",
    "shadow": '<div><template shadowrootmode="open"><h1>All was well</h1></template></div>',
    "closed shadow": '<section><template shadowrootmode="closed">All was well</template></section>',
    "shadow of its parent": '<template shadowrootmode="closed"><h1>All was well</h1></template>',
    "template": "<template><h1>All was well</h1></template>",
    "base": '<base href="https://example.com/">',
    "refresh": '<meta http-equiv="refresh" content="900;url=about:blank">',
    "another policy": "<meta http-equiv=\"Content-Security-Policy\" content=\"img-src *\">",
    "trusted types": '<meta http-equiv="Content-Security-Policy" '
                     "content=\"require-trusted-types-for 'script'\">",
    "title": "<title>Verified</title>",
    "noscript": "<noscript><h1>All was well</h1></noscript>",
    "form": '<form name="body"><input name="children"></form>',
    "clobbered body": '<img name="body"><form name="head"></form>',
    "clobbered creation": '<img name="createElement"><img name="importNode">',
    "clobbered search": '<img name="querySelectorAll"><img name="querySelector">',
    "clobbered script": '<img name="currentScript"><embed name="documentElement">',
    "clobbered state": '<img name="readyState"><img name="addEventListener">',
    "clobbered names": '<a id="REPORT"></a><a id="RemitProof"></a><form id="crypto"></form>',
    "same ids": '<p id="banner"></p><p id="report"></p><p id="calls"></p>',
    "editable": '<div contenteditable autofocus>All was well</div>',
    "link": '<a href="javascript:document.title=1" autofocus>All was well</a>',
    "marquee": "<marquee>All was well</marquee>",
    "own element": "<x-report>All was well</x-report>",
    "turned text": '<bdo dir="rtl">All was well</bdo>\u202e',
    "end of the body": "</main></body></html><p>All was well</p>",
    "second document": "<!doctype html><html hidden><head></head><body class='good'>",
}  # fmt: skip
_SWALLOWING = {
    "open comment": "<!--", "text area": "<textarea>", "select": "<select>",
    "raw text": "<xmp>", "plain text": "<plaintext>", "open script": "<script>",
    "open style": "<style>", "open title": "<title>", "open template": "<template>",
    "open frame": "<iframe>", "frames": "<frameset>", "open drawing": "<svg>",
    "open attribute": '<p title="',
}  # fmt: skip
_PLACES: dict[str, tuple[str, bool]] = {
    "before the document": ("<!doctype html>", True),
    "in the head": ("<title>", True),
    "at the end of the head": ("</head>", True),
    "at the start of the body": ("<body>", False),
    "in the banner": ('id="banner">', False),
    "in the main part": ("<main>", False),
    "in the list without scripts": ("<noscript>", False),
    "before the data": ('<script type="application/json"', True),
    "before the script": ("<script>", True),
    "at the end of the body": ("</body>", True),
    "after the document": ("</html>", False),
}


def _placed(text: str, place: str, snippet: str) -> str:
    mark, is_before = _PLACES[place]
    at = text.rindex(mark) if mark in ("</body>", "</html>", "<script>") else text.index(mark)
    at += 0 if is_before else len(mark)
    return text[:at] + snippet + text[at:]


def _markup(text: str) -> Iterator[Edit]:
    for place in _PLACES:
        for name, snippet in _SNIPPETS.items():
            yield Edit(f"markup {place}", name, _placed(text, place, snippet))
        for name, snippet in _SWALLOWING.items():
            stops = place != "after the document"
            yield Edit("markup that swallows the rest", f"{place}: {name}",
                       _placed(text, place, snippet), stops)  # fmt: skip


def _attributes(text: str) -> Iterator[Edit]:
    attributes = (
        "hidden", 'style="display:none"', 'onload="document.title=1"', 'dir="rtl"',
        'class="unseen"', 'id="report"', "inert", 'data-state="good"', "contenteditable",
        'lang="xx"', 'is="x-y"', 'popover="auto"', 'translate="no"', 'title="all was well"',
        'slot="x"',
    )  # fmt: skip
    for tag in ("<html ", "<body", "<main", '<header class="top"', "<title", "<style", "<h1",
                '<div class="banner bad"', '<script type="application/json"'):  # fmt: skip
        for one in attributes:
            if f"{tag.strip()} ".startswith("<header") and one.startswith("class"):
                continue
            changed = text.replace(tag, f"{tag.rstrip()} {one} ", 1)
            yield Edit("attribute", f"{tag} {one}", changed)
    for name, old, new in (
        ("another type", 'type="application/json"', 'type="text/plain"'),
        ("no type", 'type="application/json" ', ""),
        ("another id", 'id="data"', 'id="head"'),
        ("no id", ' id="data"', ""),
    ):
        yield Edit("data element", name, text.replace(old, new, 1))
    last = text.rindex("<script>")
    for one in ('type="module"', "defer", 'async=""', 'id="x"', "nomodule", 'type="text/plain"',
                'nonce="x"', 'type="text/javascript"', 'crossorigin="anonymous"'):  # fmt: skip
        yield Edit("script element", one, text[:last] + f"<script {one}>" + text[last + 8 :],
                   stops=one in ("nomodule", 'type="text/plain"'))  # fmt: skip


def _policies(text: str) -> Iterator[Edit]:
    policy = _POLICY.search(text)
    assert policy
    kind = "policy"
    yield Edit(kind, "removed", text.replace(policy[0], ""))
    yield Edit(kind, "twice", text.replace(policy[0], policy[0] * 2))
    yield Edit(
        kind, "report only", text.replace("Security-Policy", "Security-Policy-Report-Only", 1)
    )
    yield Edit(
        kind, "inline allowed", text.replace("script-src ", "script-src 'unsafe-inline' ", 1)
    )
    yield Edit(kind, "styles allowed", text.replace("style-src ", "style-src 'unsafe-inline' ", 1))
    yield Edit(
        kind, "style refused", re.sub("style-src '[^']*'", "style-src 'none'", text, count=1)
    )
    yield Edit(kind, "pictures allowed", text.replace("base-uri", "img-src data:; base-uri", 1))
    refused = re.sub("script-src '[^']*'", "script-src 'none'", text, count=1)
    yield Edit(kind, "script refused", refused, stops=True)
    kind = "static markup"
    for name, old, new in (
        ("banner says verified", "<strong>NOT VERIFIED.</strong>", "<strong>Verified.</strong>"),
        ("title says verified", "<title>Not verified", "<title>Verified"),
        ("another origin", "<h1>example.com/log", "<h1>example.com/other"),
        ("encoding", '<meta charset="utf-8">', '<meta charset="windows-1252">'),
        ("no encoding", '<meta charset="utf-8">', ""),
        ("colour scheme", 'content="light dark"', 'content="dark"'),
        ("quirks", "<!doctype html>", ""),
        (
            "old document type",
            "<!doctype html>",
            '<!doctype html public "-//W3C//DTD HTML 4.01 Transitional//EN">',
        ),
        ("style edited", "<style>", "<style>#stated { display: none }"),
        ("style emptied", "<style>", "<style media='none'>"),
        ("list of other entries", "EXCHANGE</strong>", "ALL WELL</strong>"),
        ("no list", "<noscript>", "<noscript hidden>"),
    ):
        yield Edit(kind, name, text.replace(old, new, 1))
    without = re.sub("<style>.*?</style>", "", text, count=1, flags=re.DOTALL)
    yield Edit(kind, "no style", without)
    yield Edit(kind, "no body", re.sub("<body>.*?(?=<script type)", "", text, flags=re.DOTALL))
    yield Edit(kind, "byte order mark", "\ufeff" + text)


def _order(text: str) -> Iterator[Edit]:
    data = _DATA.search(text)
    script = _SCRIPT.findall(text)[-1]
    assert data
    kind = "order"
    bare = text.replace(data[0], "")
    yield Edit(kind, "script before data", text.replace(script, "").replace(
        data[0], script + data[0]))  # fmt: skip
    yield Edit(kind, "data in the head", bare.replace("</head>", data[0] + "</head>", 1))
    yield Edit(kind, "data after the document", bare + data[0])
    yield Edit(kind, "script in the head", text.replace(script, "").replace(
        "</head>", script + "</head>", 1))  # fmt: skip
    yield Edit(kind, "script after the document", text.replace(script, "") + script)
    yield Edit(kind, "script twice", text + script)
    yield Edit(kind, "no data", bare)
    yield Edit(
        kind, "data without scripts", text.replace(data[0], f"<noscript>{data[0]}</noscript>")
    )
    yield Edit(kind, "data in a template", text.replace(data[0], f"<template>{data[0]}</template>"))
    yield Edit(kind, "script in a template", text.replace(script, f"<template>{script}</template>"),
               stops=True)  # fmt: skip
    yield Edit(kind, "script in a shadow", text.replace(
        script, f'<div><template shadowrootmode="open">{script}</template></div>'),
        stops=True)  # fmt: skip
    yield Edit(kind, "no script", text.replace(script, ""), stops=True)
