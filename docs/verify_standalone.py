# ruff: noqa: B006, B905, BLE001, D102, D103, E401, E701, E731, I001, T201
# fmt: off
"""Verify an export or extract of a ledger, or a proof, with Python 3.9 or later and nothing else.

    python3 verify_standalone.py EXPORT-OR-EXTRACT --key VKEY [--checkpoint FILE]
    python3 verify_standalone.py REGISTRATION --key VKEY --witness VKEY
    python3 verify_standalone.py --proof FILE.tlog-proof --record FILE --key VKEY
    python3 verify_standalone.py --tenant-proof FILE.json --key VKEY-OF-THE-HOST

VKEY is the verifier key or a file with it, from another source than the export. --checkpoint is one
that you kept, of any size up to the export's; an extract must have the last entry that it covers.
Exit code 1: NOT VERIFIED, with the condition of ledger-format.md, section 12, in parentheses.

Not checked: other signatures of witnesses; "extra" in a proof; the sums in "usage", which the
signer states and ledger import checks; and if the checkpoint has no line "remit-export/1": "usage",
"subjects" before "subjects_before", and that number. The output names those that the export has.
"""
import argparse, base64, functools, hmac, itertools, json, math, os, pathlib, re, sys, time, zlib
from hashlib import sha256, sha512
WHERE = ["line 1"]  # the part that is being read
MAX_LINE, MAX_NOTE, MAX_RECORD = 1 << 28, 1_000_000, 65_535  # bytes
RECORD = {"decision": str, "event_type": str, "id": str, "metadata": dict, "previous_hash": str,
          "prompts_used": list, "reason": str, "seq": int, "submission_id": str, "timestamp": str}
HEAD = {"format": str, "entries": int}, {"checkpoint": str, "verifier_key": str,
                                         "subjects_before": int, "usage": list}
LINE = {"seq": int, "entry_hash": str, "record": str, "contents": list, "steps": list}
STEP = {"step": str, "parent": str, "commitment": str}
STATEMENT, REGISTRATION = "remit-export/1 ", "remit-evaluation/1"
EXTRACT = {"format": str, "of": dict, "checkpoint": str, "verifier_key": str, "records": list,
           "hashes": list}
INDEX = {"of": dict, "entries": list, "actions": list, "part": int, "parts": int}
RUNS, MAX_RANGE, ODD = ("session_id", "work_order_id"), 100_000, re.compile("[\0\ud800-\udfff]")
ACTIONS = ("EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED", "TOOL_CALL")
STARTS = b'{"decision":', b'{"event_type":', b'{"format":'  # of a record, with content, a proof
TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"

def need(holds: object, condition: str, otherwise: str) -> None:
    if not holds: raise ValueError(f"{otherwise} ({condition})")
def members(value: object, condition: str, what: str, needed: dict, more: dict = {}) -> dict:
    """The object, if it has the needed members and of the others none but these, each typed."""
    need(type(value) is dict, condition, f"{what} is not an object")
    for name in needed: need(name in value, condition, f"{what} has no member {name!a}")
    for name, item in value.items():
        kind = needed.get(name, more.get(name))
        need(type(item) is kind, condition, f"{what} has a wrong member {name[:60]!a}")
    return value
def utf8(text: str, condition: str = "json-text") -> bytes:
    need(not re.search("[\ud800-\udfff]", text), condition, "a text holds a lone surrogate")
    return text.encode()
def unbase64(text: str, condition: str, *lengths: int) -> bytes:
    try: data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError: data = b""
    is_strict = base64.b64encode(data).decode() == text and len(data) in (lengths or (len(data),))
    need(is_strict, condition, "malformed base64")
    return data
def is_hash(text: object) -> bool:
    return type(text) is str and re.fullmatch("[0-9a-f]{64}", text) is not None
def refuse(text: str) -> None: need(False, "json-text", f"{text} is not JSON")
def once(pairs: list) -> dict:
    need(len(dict(pairs)) == len(pairs), "json-text", "an object has a key twice")
    return dict(pairs)
def parse(text: str, hook: object = once) -> object:
    number = lambda digits: int(digits) if len(digits) < 18 else math.inf
    try: return json.loads(text, object_pairs_hook=hook, parse_int=number, parse_constant=refuse)
    except json.JSONDecodeError as error: return refuse(f"it ({error})")
def jcs(value: object) -> str:
    """RFC 8785. Raises ValueError if the value has no such encoding in Remit."""
    if value is None or type(value) in (bool, str): return json.dumps(value, ensure_ascii=False)
    if type(value) is list: return f"[{','.join(map(jcs, value))}]"
    if type(value) is dict:
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{jcs(name)}:{jcs(item)}" for name, item in pairs) + "}"
    is_safe = abs(value) < 2**53 or 1e21 <= abs(value) < math.inf
    need(is_safe, "record-text", "a number that JSON readers round")
    if value == int(value) and abs(value) < 2**53: return str(int(value))
    digits, _, power = repr(value).partition("e")
    if not power: return digits
    if not -7 < int(power) < 0: return f"{digits}e{int(power):+d}"
    sign = "-" * (value < 0)
    return f"{sign}0.{'0' * (-int(power) - 1)}{digits.lstrip('-').replace('.', '')}"
def is_canonical(text: str) -> bool:
    try: return jcs(parse(text, dict)) == text
    except RecursionError: return False
    except ValueError:
        parse(text, dict)  # raises if the text is not JSON
        return False
def node(left: bytes, right: bytes) -> bytes:  # of an RFC 6962 tree
    return sha256(b"\1" + left + right).digest()

def check_signature(key: bytes, message: bytes, signature: bytes) -> None:
    """Ed25519 (RFC 8032, 5.1), on the curve -x² + y² = 1 + d·x²·y² over the integers modulo p."""
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d, i, zero = -121665 * pow(121666, -1, p) % p, pow(2, (p - 1) // 4, p), (0, 1, 1)  # i² = -1
    def add(a: tuple, b: tuple) -> tuple:  # X, Y, Z with x = X/Z and y = Y/Z: without division
        z, cross = a[2] * b[2], d * a[0] * b[0] * a[1] * b[1]
        x, y = a[0] * b[1] + b[0] * a[1], a[1] * b[1] + a[0] * b[0]
        more, less = (z * z + cross) % p, (z * z - cross) % p
        return x * z * less % p, y * z * more % p, more * less % p
    def times(n: int, point: tuple) -> tuple:
        return add(times(n // 2, add(point, point)), point if n % 2 else zero) if n else zero
    same = lambda a, b: (a[0] * b[2] - b[0] * a[2]) % p == (a[1] * b[2] - b[1] * a[2]) % p == 0
    def decode(data: bytes) -> tuple:
        odd, y = divmod(int.from_bytes(data, "little"), 2**255)
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        roots = [pow(square, (p + 3) // 8, p) * sign % p for sign in (1, -1, i, -i)]
        points = [(x, y, 1) for x in roots if x * x % p == square and x % 2 == odd]
        is_point = y < p and points and not same(times(8, points[0]), zero)
        need(is_point, "checkpoint-signature", "no point, or one of small order")
        return points[0]
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(sha512(r + key + message).digest(), "little") % order
    base = decode((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
    holds = same(times(s % order, base), add(decode(r), times(k, decode(key))))
    holds = holds and s < order and len(signature) == 64
    need(holds, "checkpoint-signature", "the checkpoint's signature does not hold")

def read_note(note: str) -> tuple:
    """Text and signatures of a signed note: name, key id and signature of each."""
    text, gap, lines = note.rpartition("\n\n")
    is_note = gap and lines.endswith("\n") and not re.search("[\0-\x09\x0b-\x1f]", note)
    need(is_note and len(utf8(note)) <= MAX_NOTE, "note-text", "not a signed note")
    found = [re.fullmatch(r"\u2014 ([^\s+]+) (\S+)", line) for line in lines[:-1].split("\n")]
    need(all(found) and len(found) <= 100, "note-text", "a signature line is malformed")
    signed = [(line[1], unbase64(line[2], "note-text")) for line in found]
    need(all(len(data) > 4 for _, data in signed), "note-text", "a signature line is malformed")
    keys = {(name, data[:4]) for name, data in signed}
    need(len(keys) == len(signed), "note-text", "a key signed twice")
    return text, [(name, data[:4], data[4:]) for name, data in signed]

def read_key(vkey: str) -> tuple:
    """Name, id and 33 bytes of a verifier key: 1 for Ed25519, 4 for a witness, then the key."""
    name, _, rest = vkey.strip().partition("+")
    key_id, _, encoded = rest.partition("+")
    need(name and encoded, "key-text", "not a verifier key")
    key = unbase64(encoded, "key-text", 33)
    need(sha256(f"{name}\n".encode() + key).hexdigest()[:8] == key_id, "key-text", "a damaged key")
    return name, key_id, key

def read_checkpoint(note: str, vkey: str) -> tuple:
    """Origin, size, root (C2SP tlog-checkpoint). Where there is a key, it must have signed."""
    text, signed = read_note(note)
    lines = text.split("\n")
    need(len(lines) > 2 and all(lines), "note-text", "a checkpoint has origin, size and root")
    origin, size, root = lines[:3]
    is_size = re.fullmatch("0|[1-9][0-9]{0,18}", size) and int(size) < 2**63
    need(is_size, "note-text", "the checkpoint's size is not a number")
    if vkey is not None:
        name, key_id, key = read_key(vkey)
        is_own = origin == name
        need(is_own, "checkpoint-origin", f"the checkpoint is of {origin!a}, not of {name!a}")
        own = [data for who, by, data in signed if (who, by.hex()) == (name, key_id)]
        need(own and key[0] == 1, "checkpoint-signature", "the checkpoint is not signed by the key")
        check_signature(key[1:], f"{text}\n".encode(), own[0])
    return origin, int(size), unbase64(root, "note-text", 32)

def check_proof(text: str, record: bytes, vkey: str) -> str:
    """C2SP tlog-proof. Its line ``extra``, if any, is opaque, and nothing authenticates it."""
    head, gap, note = text.partition("\n\n")
    title, *lines = head.split("\n")
    if lines and lines[0].startswith("extra "): unbase64(lines.pop(0)[6:], "proof-text")
    index = re.fullmatch("index (0|[1-9][0-9]{0,18})", lines.pop(0) if lines else "")
    is_proof = title == "c2sp.org/tlog-proof@v1" and index and gap and len(lines) < 64
    need(is_proof, "proof-text", "not a proof")
    index, hashes = int(index[1]), [unbase64(line, "proof-text", 32) for line in lines]
    origin, size, root = read_checkpoint(note, vkey)
    place, last, top = index, size - 1, sha256(b"\0" + record).digest()
    while last > 0 and hashes:
        if place % 2: top = node(hashes.pop(0), top)
        elif place < last: top = node(top, hashes.pop(0))  # else it goes up as it is
        place, last = place // 2, last // 2
    while last > 0 and place == last and not place % 2: place, last = place // 2, last // 2
    holds = 0 <= index < size and top == root and not hashes and last <= 0
    need(holds, "proof-path", "the record is not at that place of that tree")
    need(vkey, "key-text", "there is no key")
    return f"proved: the record is LED-{index:08x} of {origin!a}, by a checkpoint of {size} entries"

def check_tenant_proof(text: str, vkey: str) -> str:
    """An entry of a tenant's log, from a head of the host's: tenants.md."""
    kinds = {"format": str, "record": str, "proof": str}
    told = members(parse(text), "tenant-members", "the proof", {**kinds, "head": dict})
    is_proof = told.pop("format") == "remit-tenant-proof/1"
    need(is_proof, "tenant-members", "not a proof through two logs")
    head = members(told["head"], "tenant-members", "head", {"record": str, "proof": str})
    said = check_proof(head["proof"], utf8(head["record"]), vkey)
    taken = members(parse(head["record"]), "tenant-head", "the host's record", RECORD)
    meta = taken["metadata"]
    taken_head = taken["event_type"] == "TENANT_CHECKPOINT" and is_kernels(meta)
    need(taken_head, "tenant-head", "no head was taken")
    kinds = {"origin": str, "size": int, "root": str, "checkpoint": str, "verifier_key": str}
    for name, kind in kinds.items():
        need(type(meta.get(name)) is kind, "tenant-head", f"no {name} was taken")
    key = meta["verifier_key"]
    taken_head = meta["origin"], meta["size"], unbase64(meta["root"], "tenant-head", 32)
    for note in (meta["checkpoint"], told["proof"].partition("\n\n")[2]):
        leads = read_checkpoint(note, key) == taken_head
        need(leads, "tenant-head", "it leads to another head than was taken")
    return "\n".join([said, f"this takes a head of the tenant {meta.get('tenant')!a}",
                      check_proof(told["proof"], utf8(told["record"]), key)])

def column(meta: dict, name: str) -> object:
    places = [x for x in (meta, meta.get("provenance"), meta.get("scope")) if type(x) is dict]
    return next((x[name] for x in places if name in x), None)
def is_kernels(meta: dict) -> bool:  # a worker's entry erases, archives and takes nothing
    return type(column(meta, "tier")) is not str or column(meta, "tier") in ("", "hot")

def commitments(value: object) -> list:
    """The commitments in a part of a record, in the order of its text."""
    if type(value) is list: return [found for item in value for found in commitments(item)]
    if type(value) is not dict: return []
    if not any(name[:1] == "$" for name in value):
        return [found for item in value.values() for found in commitments(item)]
    one, number = ("$content", "bytes") if "$content" in value else ("$messages", "count")
    kinds = {one: str, number: int}
    members(value, "record-members", "a commitment", kinds, {"form": str})
    kind, mac = value[one][:-64], value[one][-64:]
    is_one = kind == ("hmac-sha256:" if one == "$content" else "") and is_hash(mac)
    is_one = is_one and value[number] > 0 and value.get("form", "exact") == "exact"
    need(is_one, "record-members", "a commitment is malformed")
    return [value]

def entry_id(seq: int) -> str: return f"LED-{seq:08x}"
def read_record(text: str) -> dict:
    """The canonical record in a text, which names itself."""
    need(len(utf8(text)) <= MAX_RECORD, "record-text", "the record is too long")
    record = parse(text)
    need(type(record) is dict, "record-members", "the record is not an object")
    reason = record.get("reason")
    kinds = {**RECORD, "reason": dict if type(reason) is dict and commitments(reason) else str}
    members(record, "record-members", "the record", kinds)
    commitments(record["metadata"])
    is_list = all(type(item) is str for item in record["prompts_used"])
    is_list = is_list and re.fullmatch(TIME, record["timestamp"])
    need(is_list, "record-members", "a timestamp or a list of prompts is malformed")
    is_own = record["seq"] >= 0 and record["id"] == entry_id(record["seq"])
    need(is_own, "record-place", "its id is not that of its number")
    need(jcs(record) == text, "record-text", "the record is not in canonical form")
    return record

def read_index(record: dict) -> dict:
    """What an INDEXED entry of the kernel says of a run; None for other entries."""
    meta = record["metadata"]
    if record["event_type"] != "INDEXED" or not is_kernels(meta): return None
    members(meta, "index-members", "an index", INDEX)
    first, of, lists = record["seq"] - meta["part"] + 1, meta["of"], meta["actions"]
    is_run = len(of) == 1 and of.keys() <= {*RUNS} and all(type(one) is str for one in of.values())
    need(is_run, "index-members", "an index names no session or work order")
    for one in [meta["entries"], *lists]:
        is_list = type(one) is list and all(type(n) is int and 0 <= n < first for n in one)
        need(is_list, "index-members", "an index lists no sequence numbers before it")
    in_order = all(one and one[0] in meta["entries"] for one in lists)
    in_order = in_order and all(one == sorted({*one})
                                for one in (meta["entries"], *(one[1:] for one in lists)))
    need(in_order and 0 < meta["part"] <= meta["parts"], "index-members", "an index out of order")
    return {**meta, "first": first}

def named(seqs: list) -> str:
    more = f" and {len(seqs) - 10} more" if len(seqs) > 10 else ""
    return f"{', '.join(map(entry_id, seqs[:10]))}{more} {'is' if len(seqs) == 1 else 'are'}"

def check_indexed(of: dict, records: dict) -> tuple:
    """The run, entries, actions and parts of the one index in an extract."""
    found = {seq: index for seq in records if (index := read_index(records[seq]))}
    need(found, "extract-index", "the index of the run is missing")
    parts, last = sorted(found), found[max(found)]
    expected = [*range(last["first"], last["first"] + last["parts"])]
    for seq in expected:
        need(seq in found, "extract-index", f"{entry_id(seq)}, a part of the index, is missing")
    is_one = parts == expected and all(
        (one["of"], one["parts"], one["first"]) == (last["of"], last["parts"], parts[0])
        for one in found.values())
    need(is_one, "extract-index", "the file has more than one index, or parts of several")
    need("entry" in of or last["of"] == of, "extract-index", "the index is of another run")
    listed = [seq for part in parts for seq in found[part]["entries"]]
    actions = [row for part in parts for row in found[part]["actions"]]
    ends = [row[0] for row in actions]
    in_order = listed == sorted({*listed}) and ends == sorted({*ends})
    need(in_order, "extract-index", "the index is not in order")
    return last["of"], listed, actions, parts

def actions_of(records: dict) -> list:
    """The actions of a true index of these records: ledger-format.md, section 13."""
    rows, known, used, asked = [], {}, {}, {}
    def at(kind: str, name: object) -> set:
        return known.setdefault((kind, name), set()) if type(name) is str else set()
    for seq, record in sorted(records.items()):
        event, meta = record["event_type"], record["metadata"]
        order, key = column(meta, "work_order_id"), meta.get("idempotency_key")
        order = order if type(order) is str and order else None
        if event in ACTIONS:
            row = at("SESSION_START", "") | at("WO_EXECUTING", order)
            row |= at("id", meta.get("dispatch_entry_id"))
            if event == "TOOL_CALL": row |= at("LLM_CALL", order) | at("key", key)
            for kind, names in (("id", used), ("request", asked)):
                row |= {more for one in row for more in at(kind, names.get(one))}
            rows.append([seq, *sorted(row)])
        elif event in ("SESSION_START", "WO_EXECUTING", "LLM_CALL"):
            known[event, "" if event == "SESSION_START" else order] = {seq}
        elif event in ("DISPATCH", "TOOL_INTENT", "APPROVAL_REQUESTED"):
            at("id", record["id"]).add(seq)
            if event != "DISPATCH": at("key", key).add(seq)
            if event == "TOOL_INTENT": used[seq] = meta.get("approval")
            if event == "APPROVAL_REQUESTED": asked[seq] = record["id"]
        elif event.startswith("APPROVAL_"): at("request", meta.get("request_id")).add(seq)
    return rows

def root_of(nodes: dict, start: int, end: int) -> bytes:
    """The root of a subtree; None if it does not follow from the nodes."""
    if end - start < 2 or (start, end) in nodes: return nodes.get((start, end))
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    left = root_of(nodes, start, middle)
    right = left and root_of(nodes, middle, end)
    return node(left, right) if right else None

def check_extract(data: dict, vkey: str, held: list = []) -> str:
    """The records of a range, a run or an action: none of them is missing."""
    members(data, "extract-members", "the extract", EXTRACT)
    need(vkey is None or data["verifier_key"] == vkey.strip(), "head-key", "another verifier key")
    origin, size, root = read_checkpoint(data["checkpoint"], data["verifier_key"])
    of, records, nodes, before = data["of"], {}, {(0, 0): sha256(b"").digest()}, None
    is_list = all(type(one) is str for one in data["records"] + data["hashes"])
    need(is_list, "extract-members", "records or hashes are not texts")
    for text in data["records"]:
        record = read_record(text)
        seq, WHERE[0] = record["seq"], record["id"]
        need(not records or seq > max(records), "extract-order", "not in order, or there twice")
        is_next = seq - 1 not in records or record["previous_hash"] == before
        need(is_next, "record-link", "it does not follow the entry before it")
        need(seq < size, "extract-root", "the checkpoint does not cover it")
        records[seq], nodes[seq, seq + 1] = record, sha256(b"\0" + utf8(text)).digest()
        before = sha256(utf8(text)).hexdigest()
    WHERE[0], parts = "the whole", []
    if of.keys() == {"first", "end"}:
        is_range = all(type(one) is int for one in of.values())
        is_range = is_range and 0 <= of["first"] < of["end"] <= of["first"] + MAX_RANGE
        need(is_range, "extract-members", "the range is not one")
        wanted, said = [*range(of["first"], of["end"])], f"{of['first']} to {of['end'] - 1}"
    else:
        is_run = len(of) == 1 and of.keys() <= {*RUNS, "entry"}
        is_run = is_run and all(type(one) is str for one in of.values())
        need(is_run, "extract-members", "the file does not say which entries it has")
        run, wanted, actions, parts = check_indexed(of, records)
        ((name, value),) = run.items()
        said = f"{name} {value!a} before {entry_id(parts[0])}"
        if "entry" in of:
            wanted = [sorted(row) for row in actions if entry_id(row[0]) == of["entry"]]
            need(wanted, "extract-index", f"the index names no action {of['entry']!a}")
            wanted, said = wanted[0], f"the action {of['entry']} of {said}"
    own = {seq: record for seq, record in records.items() if seq not in parts}
    missing = [seq for seq in wanted if seq not in own]
    need(not missing, "extract-missing", f"{named(missing)} missing")
    others = sorted(own.keys() - {*wanted})
    need(not others, "extract-other", f"{named(others)} not part of what the file says it has")
    for seq, record in own.items() if parts else ():
        is_own = column(record["metadata"], name) == value
        need(is_own, "extract-other", f"{entry_id(seq)} is of another run")
    need(not parts or actions_of(own) == [row for row in actions if row[0] in own],
         "index-actions", "the index names other actions than the records are")
    hashes = [unbase64(one, "extract-root", 32) for one in data["hashes"]]
    def climb(start: int, end: int, seqs: list) -> bytes:
        if not seqs and hashes: return nodes.setdefault((start, end), hashes.pop(0))
        need(seqs, "extract-root", "a tree hash is missing")
        if end - start == 1: return nodes[start, end]
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        left = [seq for seq in seqs if seq < middle]
        return node(climb(start, middle, left), climb(middle, end, seqs[len(left):]))
    leads = climb(0, size, sorted(records)) == root and not hashes
    need(leads, "extract-root", "records and hashes do not lead to the checkpoint's root")
    if held:
        _, kept, top = read_checkpoint(held[0], data["verifier_key"])
        found = root_of(nodes, 0, kept) if kept <= size else None
        need(found in (None, top), "tree-root",
             f"the first {kept} entries do not lead to the checkpoint of them")
        if found: held.append(kept)  # the file shows it
    said = f"complete: all {len(own)} entries of {said}, in the {size} that {origin!a} signed"
    if "entry" in of:
        ends = [entry_id(row[0]) for row in actions]
        place = ends.index(of["entry"])
        said += f"\naction {place + 1} of {len(ends)}, after {ends[place - 1] if place else 'none'}"
        for one in own.values(): said += (f"\n{one['id']} {one['timestamp']} {one['event_type']!a} "
                                          f"{json.dumps(one['metadata'])}")
    return said

class Export:
    """The lines of an export, each held to its conditions."""

    def __init__(self, head: dict, stated: bool) -> None:
        self.before = head.get("subjects_before", head["entries"])  # no record names its subject
        self.stated, self.archives = stated, "usage" in head
        self.values, self.steps, self.gone = {}, {}, {}  # by commitment, step, commitment
        self.erasures, self.unvouched = {}, []
        self.left, self.end, self.roots = 0, 0, {}  # archived: a bit for each entry
        self.previous, self.away, self.peaks, self.root_at = "", [], [], {0: sha256(b"").digest()}
        self.runs, self.indexed = {}, {}  # entries by column and value; by first part, an index

    def read(self, seq: int, row: object, sizes: list) -> None:
        is_leaf = type(row) is dict and "leaf" in row
        if is_leaf:
            members(row, "leaf-line", "the line", {"seq": int, "leaf": str})
            need(self.archives, "leaf-archived", "no entry of this export was archived")
            leaf = unbase64(row["leaf"], "leaf-line", 32)
        else:
            members(row, "line-members", "the line", LINE, {"erased": list})
            leaf = sha256(b"\0" + utf8(row["record"])).digest()
        need(row["seq"] == seq, "line-seq", f"it is not entry {seq}")
        if is_leaf: self.previous = self.away.append(seq)
        else: self.read_entry(seq, row)
        self.peaks, width = [*self.peaks, leaf], seq
        while width % 2: self.peaks[-2:], width = [node(*self.peaks[-2:])], width // 2  # join
        if seq + 1 in sizes or (self.archives and seq % 256 == 255):
            root = functools.reduce(lambda right, left: node(left, right), self.peaks[::-1])
            self.root_at[seq + 1] = root

    def read_entry(self, seq: int, row: dict) -> None:
        data, name = utf8(row["record"]), entry_id(seq)
        is_own = sha256(data).hexdigest() == row["entry_hash"]
        need(is_own, "record-hash", "the record does not match entry_hash")
        record = read_record(row["record"])
        meta, reason = record["metadata"], record["reason"]
        need(record["seq"] == seq, "record-place", f"it is not entry {seq}")
        holds = self.previous in (record["previous_hash"], None)
        need(holds, "record-link", "previous_hash is not the hash of the one before")
        self.previous = row["entry_hash"]
        items = commitments(meta) + commitments(reason)
        self.read_content(seq, row, meta, items)
        for run in RUNS:
            if type(value := column(meta, run)) is str and value:
                self.runs.setdefault((run, value), []).append(seq)
        if index := read_index(record):
            self.indexed.setdefault(index["first"], []).append(index)
        if not is_kernels(meta): need("erased" not in row, "line-erased", "it erases nothing")
        elif record["event_type"] == "ARCHIVED": self.note_archived(seq, row, meta)
        else: self.note_erasure(name, row, record)

    def read_content(self, seq: int, row: dict, meta: dict, items: list) -> None:
        session, subject = column(meta, "session_id"), meta.get("subject_id")
        subject = subject if type(subject) is dict and "$content" in subject else None
        need(not subject or seq >= self.before, "item-subjects", "it names a subject too early")
        scope = session if session and type(session) is str else seq
        named = {item["$content"][12:]: seq if item is subject else scope
                 for item in items if "$content" in item}
        exact = {item["$content"][12:] for item in items if "$content" in item and "form" in item}
        for item in row["steps"]:
            members(item, "step-members", "a message step", STEP, {"erased": str})
            is_step = all(is_hash(item[name]) for name in STEP)
            need(is_step, "step-members", "a hash of a message step is malformed")
        messages = {item["commitment"] for item in row["steps"] if "erased" not in item}
        order = []
        for item in row["contents"]:
            text = "json" if type(item) is dict and "json" in item else "jcs"
            kinds = {"commitment": str, "nonce": str, text: str}, {"subjects": list}
            is_gone = type(item) is dict and "erased" in item
            if is_gone: kinds = {"commitment": str, "erased": str}, {}
            mac = members(item, "item-members", "a content item", *kinds)["commitment"]
            need(is_hash(mac), "item-members", "a commitment is malformed")
            is_needed = mac in named or (mac in messages and "erased" not in item)
            need(is_needed, "item-needed", "a content item belongs to no commitment of the line")
            need(mac not in order, "item-once", "a commitment is there twice")
            order.append(mac)
            if "erased" in item: self.note_gone(mac, item["erased"], seq)
            else: self.read_value(seq, item, item[text], named.get(mac, scope), subject)
            if self.stated and "erased" not in item:
                given = mac in exact if mac in named else not self.values[mac][2]
                need(given == (text == "json"), "item-form", "a value of another form")
        need(not self.stated or order == sorted(order), "item-order", "items are not in order")
        for mac, where in named.items():
            is_gone = mac in (order if self.stated else self.gone)
            need(mac in self.values or is_gone, "item-missing",
                 "content is missing and was not erased")
            is_own = mac not in self.values or self.values[mac][0] == where
            need(is_own, "item-scope", "a value is of another session")
        for item in row["steps"]: self.read_step(item, scope)
        self.check_lists(row, items, scope)
        for item in items:
            where, length, canonical = self.values.get(item.get("$content", "")[12:], (0, 0, True))
            is_long = (not where and not length) or length == item.get("bytes")
            need(is_long, "item-length", "a value is of another length than its record says")
            need(canonical or "form" in item, "item-form", "a value is not in canonical form")

    def read_value(self, seq: int, item: dict, text: str, scope: object, subject: object) -> None:
        mac, value, whose = item["commitment"], utf8(text), item.get("subjects")
        is_once = mac not in self.values and mac not in self.gone
        need(is_once, "item-once", "a value is there twice, or was erased")
        nonce = unbase64(item["nonce"], "item-nonce", 32)
        is_own = hmac.new(nonce, value, "sha256").hexdigest() == mac
        need(is_own, "item-commitment", "content is missing, or another was put in")
        canonical = is_canonical(text)
        need(canonical or "json" in item, "item-form", "a value is not in canonical form")
        is_subject = subject is not None and subject["$content"] == f"hmac-sha256:{mac}"
        if seq >= self.before:
            is_own = whose == ([parse(text)] if is_subject else None)
            need(is_own, "item-subjects", "a subject is not the record's")
        elif whose is not None:
            is_list = whose and all(type(one) is str and not ODD.search(one) for one in whose)
            is_list = is_list and len(set(whose)) == len(whose)
            need(is_list, "item-subjects", "subjects are not a list of names, each once")
            self.unvouched.append([mac, *whose])
        self.values[mac] = scope, len(value), canonical

    def note_gone(self, mac: str, name: str, seq: int) -> None:
        is_later = re.fullmatch("LED-[0-9a-f]{8,15}", name) and int(name[4:], 16) > seq
        is_later = is_later and f"LED-{int(name[4:], 16):08x}" == name
        need(is_later, "item-erased", "an erasure names no later entry")
        need(mac not in self.values, "item-once", "a value that is there is said to be erased")
        need(self.gone.setdefault(mac, name) == name, "item-erased", "a value was erased twice")

    def read_step(self, item: dict, scope: object) -> None:
        parent, mac, step = item["parent"], item["commitment"], item["step"]
        before = (scope, 0, True) if parent == "0" * 64 else self.steps.get(parent)
        need(before, "step-order", "a message step comes before its parent")
        need(before[0] == scope, "step-scope", "a message list reaches into another session")
        need(step not in self.steps, "step-once", "a message step is there twice")
        is_own = sha256(bytes.fromhex(parent) + bytes.fromhex(mac)).hexdigest() == step
        need(is_own, "step-hash", "a message step does not hold")
        if "erased" in item: self.note_gone(mac, item["erased"], -1)
        known = (scope, 0, True) if "erased" in item else self.values.get(mac, (None,))
        need(known[0] == scope, "step-message", "content is missing and was not erased")
        self.steps[step] = scope, before[1] + 1, before[2] and known[2]

    def check_lists(self, row: dict, items: list, scope: object) -> None:
        """The lists are those committed to, and the steps theirs, in their order."""
        parents, expected = {item["step"]: item["parent"] for item in row["steps"]}, []
        for item in items:
            if "$messages" not in item: continue
            where, place, canonical = self.steps.get(item["$messages"], (None, 0, True))
            is_own = where == scope and place == item["count"]
            need(is_own, "list-count", "a message list is not the one committed to")
            need(canonical or "form" in item, "list-form", "a message is not in canonical form")
            chain, step, known = [], item["$messages"], set(expected)
            while step in parents and step not in known:
                chain.append(step)
                step = parents[step]
            expected += chain[::-1]
        is_all = set(expected) == set(parents)
        need(is_all, "step-needed", "a message step belongs to no list of the entry")
        in_order = not self.stated or expected == list(parents)
        need(in_order, "step-order", "message steps are not in order")

    def note_erasure(self, name: str, row: dict, record: dict) -> None:
        count = record["metadata"].get("erased_count")
        is_erasure = record["event_type"] == "ERASURE"
        if is_erasure: self.erasures[name] = record["metadata"], record["reason"]
        is_listed = self.archives and is_erasure and type(count) is int and count > 0
        is_fit = ("erased" in row) == is_listed
        need(is_fit, "line-erased", "erased is missing, or is too much")
        if not is_listed: return
        is_list = all(map(is_hash, row["erased"])) and sorted(set(row["erased"])) == row["erased"]
        need(is_list, "line-erased", "erased is not a sorted list of commitments")
        self.check_erasure(name, row["erased"])
        for mac in row["erased"]: self.note_gone(mac, name, -1)

    def check_erasure(self, name: str, macs: list) -> object:
        meta, reason = self.erasures.get(name, ({}, ""))
        fits = meta.get("erased_hash") == sha256("".join(macs).encode()).hexdigest()
        fits = fits and meta.get("erased_count") == len(macs)
        need(fits, "erasure-account", f"{name} does not account for its erasure")
        return reason

    def note_archived(self, seq: int, row: dict, meta: dict) -> None:
        need("erased" not in row, "line-erased", "it erases nothing")
        first, end, count = (meta.get(name) for name in ("first", "end", "entries"))
        if not type(first) is type(end) is type(count) is int: return
        if first != self.end or not first < end <= seq or end % 256: return  # joins no range
        left = meta.get("left")
        mac = left.get("$content") if type(left) is dict else None
        text = [item.get("jcs", '""') for item in row["contents"]
                if mac == f"hmac-sha256:{item['commitment']}"]
        packed = parse(text[0]) if text else None
        need(type(packed) is str, "archived-left", "it does not say which entries were archived")
        stream, length = zlib.decompressobj(), end // 8
        try: bits = stream.decompress(unbase64(packed, "archived-left"), length + 1)
        except zlib.error: bits = b""
        is_map = len(bits) == length and stream.eof and not stream.unused_data
        bits = int.from_bytes(bits, "little")
        is_map = is_map and bin(bits).count("1") == count
        need(is_map, "archived-left", "it names another number of entries than were archived")
        self.left, self.end, self.roots[end] = self.left | bits, end, meta.get("root")

    def finish(self, seq: int) -> None:
        """Check what the record says of archived entries."""
        bits = self.left.to_bytes(seq // 8 + 1, "little")
        is_said = all(bits[n // 8] >> n % 8 & 1 for n in self.away)
        need(is_said, "leaf-archived", "an entry is away, and no ARCHIVED says so")
        away = {*self.away}
        for first, parts in self.indexed.items():
            ((run, name),) = parts[0]["of"].items()
            is_whole = [one["part"] for one in parts] == [*range(1, parts[0]["parts"] + 1)]
            need(is_whole, "index-members", f"parts of the index {entry_id(first)} are missing")
            listed = {n for one in parts for n in one["entries"]}
            own = {n for n in self.runs.get((run, name), ()) if n < first}
            wrong = sorted(own ^ {n for n in listed if n in own or n not in away})
            need(not wrong, "index-entries",
                 f"{named(wrong)} named wrongly by the index of {name!a} at {entry_id(first)}")
        for end, root in self.roots.items() if self.archives else ():
            is_root = self.root_at[end].hex() == root
            need(is_root, "archived-root", f"the first {end} entries have another root")

def read_lines(path: str) -> object:
    with open(path, "rb") as file:
        for number in itertools.count(1):
            WHERE[0] = f"line {number}" + (f" (seq {number - 2})" if number > 1 else "")
            line = file.readline(MAX_LINE + 1)
            need(len(line) <= MAX_LINE, "json-text", f"the line is longer than {MAX_LINE} bytes")
            if not line: return
            yield line

def read_head(text: str) -> dict:
    head = parse(text)
    is_export = type(head) is dict and head.get("format") == "remit-ledger-export/1"
    need(is_export, "head-format", "not an export of a ledger")
    both = ("checkpoint", "verifier_key")
    needed = {**HEAD[0], **{name: type(None) for name in both if head.get(name, 0) is None}}
    for name in both: need(name in head, "head-members", f"the first line has no member {name!a}")
    members(head, "head-members", "the first line", needed, HEAD[1])
    before = head.get("subjects_before", 0)
    need(0 <= before <= head["entries"], "head-subjects", "subjects_before is out of range")
    for row in head.get("usage", ()):
        is_row = type(row) is list and len(row) == 20
        kinds = [int, *[str] * 10, *[int] * 9]
        is_row = is_row and all(type(x) is k and not ODD.search(str(x)) for x, k in zip(row, kinds))
        need(is_row, "head-usage", "a row of usage is malformed")
    keys = [tuple(row[:11]) for row in head.get("usage", ())]
    need(len(set(keys)) == len(keys), "head-usage", "a row of usage is there twice")
    return head

def check_export(path: str, vkey: str, held: str) -> str:
    lines, seq = read_lines(path), -1
    head = read_head(next(lines, b"").decode())
    notes = [note for note in (head["checkpoint"], held) if note is not None]
    heads = [read_checkpoint(note, vkey) for note in notes]
    is_own = None in (vkey, head["checkpoint"]) or head["verifier_key"] == vkey.strip()
    need(is_own, "head-key", "the first line names another verifier key, or none")
    more = read_note(head["checkpoint"])[0].split("\n")[3:] if head["checkpoint"] else []
    stated = [line[len(STATEMENT):] for line in more if line.startswith(STATEMENT)]
    need(len(stated) < 2, "head-statement", "the checkpoint has two statements")
    export = Export(head, bool(stated))
    for seq, line in enumerate(lines):
        export.read(seq, parse(line.decode()), [size for _, size, _ in heads])
    WHERE[0], found = "the whole", [f"{seq + 1} entries, {len(export.values)} content values"]
    export.finish(seq)
    if export.away: found.append(f"archived: {len(export.away)} of the entries, held against the "
                                 "tree alone")
    is_whole = head["entries"] == seq + 1
    need(is_whole, "head-entries", f"cut off: {seq + 1} of {head['entries']} entries are there")
    for origin, size, root in heads:
        need(size in export.root_at, "tree-root",
             f"cut off: {seq + 1} entries, and a checkpoint covers {size}")
        need(root == export.root_at[size], "tree-root",
             f"the first {size} entries do not lead to the checkpoint of them")
        found.append(f"checkpoint of {origin!a}: {size} entries, which lead to it")
    is_signed = vkey is None or head["checkpoint"] is not None
    need(is_signed, "head-checkpoint", "there is no checkpoint to hold against the key")
    is_covered = head["checkpoint"] is None or heads[0][1] == seq + 1
    need(is_covered, "tree-root", "the last entries are covered by no checkpoint")
    for digest in stated:
        told = {name: item for name, item in head.items() if name != "checkpoint"}
        told["subjects"] = sorted(export.unvouched)
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        is_own = unbase64(digest, "head-statement", 32) == sha256(text.encode()).digest()
        need(is_own, "head-statement", "the first line or a subject is not as signed")
    names = [name for name in ("subjects_before", "usage") if name in head]
    names += ["subjects"] * bool(export.unvouched)
    if names and not stated: found.append(f"not signed, and not verified: {', '.join(names)}")
    gone = export.gone
    for name, group in itertools.groupby(sorted(gone, key=lambda x: (gone[x], x)), gone.get):
        macs = list(group)
        reason = export.check_erasure(name, macs)
        found.append(f"erased: {len(macs)} values under {name}: {reason!a}")
    return "\n".join(found)

def read(path: str) -> str:
    need(os.path.getsize(path) <= MAX_NOTE, "proof-text", f"{path} is over {MAX_NOTE} bytes long")
    return pathlib.Path(path).read_bytes().decode()

def read_extract(path: str) -> dict:
    """The extract in a file; None if its first line is that of an export."""
    with open(path, "rb") as file: is_export = b'"remit-ledger-export/1"' in file.readline(4096)
    if is_export: return None
    need(os.path.getsize(path) <= MAX_LINE, "json-text", "the file is too long")
    data = parse(pathlib.Path(path).read_bytes().decode())
    if type(data) is dict and data.get("format") in ("remit-extract/1", REGISTRATION): return data
    need(not re.search("version': '(agentboundary|draft-mih)", str(data)[:9999]), "extract-members",
         "a public format without signature: use the package agentboundary or agent-action-capsule")
    return None

def is_batches(path: str) -> bool:  # an extract has this text in quotes only
    with open(path, "rb") as file: return b'"previous_hash":' in file.readline(MAX_LINE)

def whole_line(text: bytes) -> tuple:
    """The beginnings of lines that a kill cut off before a rotation; a line; and its value."""
    found = (x.start() for x in re.finditer(b"|".join(map(re.escape, STARTS)), text) if x.start())
    for place in itertools.chain([0], itertools.islice(found, 20)):
        try: return [text[:place]] if place else [], text[place:], parse(text[place:].decode())
        except ValueError: pass
    is_start = any(one.startswith(text[:len(one)]) for one in STARTS)
    need(is_start, "json-text", "it is not JSON, and not the beginning of a line")
    return [text], b"", None

def check_batches(path: str, vkey: str, held: list = []) -> str:
    """The lines of an export by cursor: no entry is missing from the first to the last proof."""
    pending, proven, cuts, first, end, last, said = {}, [], [], None, 0, 0, ""
    for number, line in enumerate(read_lines(path), 1):
        WHERE[0] = f"line {number}"
        cut, line, value = whole_line(line.rstrip(b"\n"))
        cuts = [x for x in cuts + cut if not (line.startswith(x) or x.startswith(STARTS[-1]))]
        if not line: continue
        need(type(value) is dict, "extract-members", "it is no object")
        if value.get("format") != "remit-extract/1":
            text = value.get("record", line.decode())
            need(type(text) is str, "extract-members", "its record is no text")
            seq = read_record(text)["seq"]
            is_one = pending.setdefault(seq, text) == text
            is_one = is_one and not (first is not None and first <= seq < end and
                                     proven[seq - first] != sha256(utf8(text)).digest())
            need(is_one, "record-link", f"{entry_id(seq)} is there with two records")
            continue
        need("records" not in value, "extract-members", "a proof has records of its own")
        members({**value, "records": []}, "extract-members", "the proof", EXTRACT)
        of = members(value["of"], "extract-members", "the range", {"first": int, "end": int})
        start, stop = of["first"], of["end"]
        texts = [pending.pop(seq) for seq in sorted(pending) if start <= seq < stop]
        lost = min(pending, default=start)
        need(lost >= start, "extract-missing", f"the proof of {entry_id(lost)} is missing")
        need(not cuts, "record-link", "a line that was cut off does not come again whole")
        (name, _, own), known = read_key(value["verifier_key"]), read_key(vkey) if vkey else None
        need(not known or (known[0] == name) or known[2] != own, "head-key",
             f"the log was forked, and {name!a} signed this batch: verify its lines alone")
        said = check_extract({**value, "records": texts}, vkey, held)
        WHERE[0], last = f"line {number}", start
        if first is None: first, end, vkey = start, start, value["verifier_key"]
        elif start > end:
            need(False, "extract-missing", f"{entry_id(end)} to {entry_id(start - 1)} are missing")
        elif start == end:
            is_next = parse(texts[0])["previous_hash"] == proven[-1].hex()
            need(is_next, "record-link", "the lines before are of another ledger")
        need(start >= first, "extract-order", f"the file begins at {entry_id(first)}")
        proven += [sha256(utf8(text)).digest() for text in texts[max(0, end - start):]]
        end = max(end, stop)
    need(said, "extract-members", "the file has no proof of a batch")
    oldest = min(pending, default=end)
    need(oldest >= last, "extract-order", f"{entry_id(oldest)} comes again without a proof")
    pending, said = [*pending, *cuts], said.split(", in the ")[1]
    more = f"\n{len(pending)} more lines have no proof yet" if pending else ""
    return f"complete: all {end - first} entries of {first} to {end - 1}, in the {said}{more}"

def check_registration(data: dict, vkey: str, witness: str, held: list = []) -> str:
    """The choices of an evaluation, as they were recorded; and when the witness had seen it."""
    rows, seen = data["choices"], "no witness was checked"
    check_extract({name: item for name, item in data.items() if name != "choices"}, vkey, held)
    record, *others = map(parse, data["records"])
    meta = record["metadata"]
    is_own = not others and record["event_type"] == "EVALUATION_REGISTERED"
    is_own = is_own and is_kernels(meta) and meta.get("count") == len(rows)
    is_own = is_own and all(name in meta for name in ("route", "code", "rules", "number"))
    is_own = is_own and sha256(utf8(jcs(rows))).hexdigest() == meta.get("choices")
    need(is_own, "registration-choices", "the choices are not those that were recorded")
    if witness:
        (name, key_id, key), (text, signed) = read_key(witness), read_note(data["checkpoint"])
        own = [item for who, by, item in signed if (who, by.hex()) == (name, key_id)]
        is_one = own and key[0] == 4 and len(own[0]) == 72
        need(is_one, "registration-witness", f"the witness {name!a} did not cosign")
        at = int.from_bytes(own[0][:8], "big")
        message = f"cosignature/v1\ntime {at}\n{text}\n".encode()
        check_signature(key[1:], message, own[0][8:])
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        seen = f"the witness {name!a} had seen it at {when}"
    return (f"fixed: {len(rows)} choice{'s' * (len(rows) != 1)} of the route {meta['route']!a} by "
            f"the code {meta['code']!a}, recorded as {record['id']}, and {seen}; this is "
            f"registration {meta['number']!a} of these prompts")

def sentence(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError): return "it is not UTF-8 (json-text)"
    if isinstance(error, OSError): return f"{error.filename} cannot be read: {error.strerror}"
    if isinstance(error, RecursionError): return "it is nested too deep (json-text)"
    if isinstance(error, MemoryError): return "there is not enough memory to read it"
    return str(error) if isinstance(error, ValueError) else f"it cannot be read: {error!r}"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.split("\n")[2:6]).strip())
    parser.add_argument("export", nargs="?", help="export, extract, receipt or registration")
    for option, text in {
            "key": "verifier key of the log, or a file with it", "checkpoint": "one that you kept",
            "proof": "file of a proof of one record", "record": "file of that record",
            "tenant-proof": "file of a proof through the host's log",
            "witness": "verifier key of a witness that must have cosigned the registration",
            }.items(): parser.add_argument(f"--{option}", metavar="VALUE", help=text)
    given = parser.parse_args()
    if not (given.tenant_proof or (given.proof and given.record) or given.export): parser.error(
        "give an export, --proof with --record, or --tenant-proof")
    if (given.tenant_proof or given.proof) and (given.checkpoint or given.witness): parser.error(
        "a proof needs no --checkpoint or --witness")
    try:
        key = read(given.key) if given.key and os.path.exists(given.key) else given.key
        if given.tenant_proof: print(check_tenant_proof(read(given.tenant_proof), key))
        elif given.proof: print(check_proof(read(given.proof), read(given.record).encode(), key))
        else:
            batches, held = is_batches(given.export), []
            if given.checkpoint: held.append(read(given.checkpoint))
            extract = None if batches else read_extract(given.export)
            is_registration = bool(extract) and extract["format"] == REGISTRATION
            need(is_registration or not given.witness, "extract-members", "no registration")
            is_one = not extract or is_registration == ("choices" in extract)
            need(is_one, "extract-members", "another format")
            if batches: print(check_batches(given.export, key, held))
            elif is_registration: print(check_registration(extract, key, given.witness, held))
            elif extract: print(check_extract(extract, key, held))
            else: print(check_export(given.export, key, held.pop() if held else None))
            need(len(held) != 1, "tree-root", "the file does not show that its log continues the "
                 "checkpoint that you kept: it needs the last entry that this covers")
        print("VERIFIED" if key else "chain and content hold; nobody's signature was checked")
    except Exception as error:  # whatever it is, it does not verify
        sys.exit(f"NOT VERIFIED: {WHERE[0]}: {sentence(error)}")
