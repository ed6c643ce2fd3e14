# ruff: noqa: BLE001, D103, E401, E701, E731, I001, SIM115, T201
# fmt: off
"""Verify the export of a ledger, or a proof, with Python 3.9 or later and nothing else.

    python3 verify_standalone.py EXPORT.jsonl --key VKEY [--checkpoint FILE]
    python3 verify_standalone.py --proof FILE.tlog-proof --record FILE --key VKEY
    python3 verify_standalone.py --tenant-proof FILE.json --key VKEY-OF-THE-HOST

VKEY: the verifier key or a file with it, got elsewhere than from the export. --checkpoint: one
you kept, of any size up to the export's. Exit code 1: NOT VERIFIED, and why. Not checked: whether
JSON is in RFC 8785 form, and members on which nothing rests. Format: ledger-format.md.
"""
import argparse, base64, functools, hmac, itertools, json, os, pathlib, sys, zlib
from hashlib import sha256, sha512
WHERE = ["line 1"]  # what is being looked at

def need(holds: object, otherwise: str) -> None:
    if not holds: raise ValueError(otherwise)
def unbase64(text: str, *lengths: int) -> bytes:
    data = base64.b64decode(text, validate=True)
    need(base64.b64encode(data).decode() == text and len(data) in lengths, "malformed base64")
    return data
def node(left: bytes, right: bytes) -> bytes:  # of an RFC 6962 tree
    return sha256(b"\1" + left + right).digest()

def check_signature(key: bytes, message: bytes, signature: bytes) -> None:
    """Ed25519 (RFC 8032, 5.1), on the curve -x² + y² = 1 + d·x²·y² over the integers modulo p."""
    p, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d, i = -121665 * pow(121666, -1, p) % p, pow(2, (p - 1) // 4, p)  # i² = -1
    def add(a: tuple, b: tuple) -> tuple:
        cross = d * a[0] * b[0] * a[1] * b[1]
        x, y = a[0] * b[1] + b[0] * a[1], a[1] * b[1] + a[0] * b[0]
        return x * pow(1 + cross, -1, p) % p, y * pow(1 - cross, -1, p) % p
    def times(n: int, point: tuple) -> tuple:
        return add(times(n // 2, add(point, point)), point if n % 2 else (0, 1)) if n else (0, 1)
    def decode(data: bytes) -> tuple:
        odd, y = divmod(int.from_bytes(data, "little"), 2**255)
        square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
        roots = [pow(square, (p + 3) // 8, p) * sign % p for sign in (1, -1, i, -i)]
        xs = [x for x in roots if x * x % p == square and x % 2 == odd]
        need(y < p and xs and times(8, (xs[0], y)) != (0, 1), "no point, or one of small order")
        return xs[0], y
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = int.from_bytes(sha512(r + key + message).digest(), "little") % order
    base = decode((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
    holds = times(s % order, base) == add(decode(r), times(k, decode(key)))
    need(holds and s < order and len(signature) == 64, "the checkpoint's signature does not hold")

def read_checkpoint(note: str, vkey: str) -> tuple:
    """Origin, size, root (C2SP tlog-checkpoint). Where there is a key, it must have signed."""
    text, _, signatures = note.rpartition("\n\n")
    origin, size, root = text.split("\n")[:3]
    need(size.isdecimal() and str(int(size)) == size, "the checkpoint's size is not a number")
    if vkey is not None:
        name, key_id, encoded = vkey.strip().split("+", 2)
        key, start = unbase64(encoded, 33), f"— {name} "  # the key: 1 for Ed25519, then 32 bytes
        need(sha256(f"{name}\n".encode() + key).hexdigest()[:8] == key_id, "a damaged key")
        need(origin == name, f"the checkpoint is of {origin!a}, not of {name!a}")
        lines = [line[len(start):] for line in signatures.split("\n") if line.startswith(start)]
        own = [data for line in lines if (data := unbase64(line, 68, 72))[:4].hex() == key_id]
        need(own and key[0] == 1, "the checkpoint is not signed by the key")
        for data in own: check_signature(key[1:], f"{text}\n".encode(), data[4:])
    return origin, int(size), unbase64(root, 32)

def check_proof(text: str, record: bytes, vkey: str) -> str:
    """C2SP tlog-proof. Its line ``extra``, if any, is opaque, and nothing authenticates it."""
    head, _, note = text.partition("\n\n")
    title, *lines = head.split("\n")
    number, *path = lines[lines[0].startswith("extra "):]
    index, hashes = int(number[6:]), [unbase64(line, 32) for line in path]
    need([title, number] == ["c2sp.org/tlog-proof@v1", f"index {index}"], "not a proof")
    origin, size, root = read_checkpoint(note, vkey)
    place, last, top = index, size - 1, sha256(b"\0" + record).digest()
    while last > 0:
        if place % 2: top = node(hashes.pop(0), top)
        elif place < last: top = node(top, hashes.pop(0))  # else it goes up as it is
        place, last = place // 2, last // 2
    holds = 0 <= index < size and top == root and not hashes
    need(holds and vkey, "the record is not at that place of that tree, or there is no key")
    return f"proved: the record is entry {index} of the {size} of {origin!a}"

def check_tenant_proof(text: str, vkey: str) -> str:
    """An entry of a tenant's log, from a head of the host's: tenants.md."""
    told = json.loads(text)
    taken, vouched = json.loads(told["head"]["record"]), told["head"]["proof"]
    meta = taken["metadata"]
    named, key = meta["tenant"], meta["verifier_key"]
    need(told["format"] == "remit-tenant-proof/1", "not a proof through two logs")
    places = [x for x in (meta, meta.get("provenance"), meta.get("scope")) if type(x) is dict]
    is_kernels = next((x["tier"] for x in places if "tier" in x), "hot") in ("", "hot")
    need(taken["event_type"] == "TENANT_CHECKPOINT" and is_kernels, "no head was taken")
    said = meta["origin"], meta["size"], unbase64(meta["root"], 32)
    for note in (meta["checkpoint"], told["proof"].partition("\n\n")[2]):
        need(read_checkpoint(note, key) == said, "it leads to another head than was taken")
    return "\n".join([check_proof(vouched, told["head"]["record"].encode(), vkey),
                      f"this takes a head of the tenant {named!a}",
                      check_proof(told["proof"], told["record"].encode(), key)])

def check_export(path: str, vkey: str, held: str) -> str:
    values, steps, gone, erasures, peaks, roots = {}, {}, {}, {}, [], {0: sha256(b"").digest()}
    objects, previous, seq, file = [], "", -1, open(path, encoding="utf-8", newline="\n")
    away, left = [], 0  # entries that were archived; which were, a bit for each, by the record
    once = lambda pairs: need(len(dict(pairs)) == len(pairs), "an object has a key twice")
    note = lambda pairs: once(pairs) or objects.append(pairs) or dict(pairs)  # every object
    head = json.loads(file.readline(), object_pairs_hook=note)
    before = head.get("subjects_before", head["entries"])  # where no record names its subject
    need(head["format"] == "remit-ledger-export/1", "not an export of a ledger")
    heads = [read_checkpoint(text, vkey) for text in (head["checkpoint"], held) if text]
    need(heads or vkey is None, "there is no checkpoint to hold against the key")
    for seq, line in enumerate(file):
        WHERE[0] = f"line {seq + 2} (seq {seq})"
        row, objects[:] = json.loads(line, object_pairs_hook=note), []
        if "leaf" in row: leaf = unbase64(row["leaf"], 32)
        else: leaf = sha256(b"\0" + row["record"].encode()).digest()
        peaks, width = [*peaks, leaf], seq
        while width % 2: peaks[-2:], width = [node(*peaks[-2:])], width // 2  # equal subtrees join
        if seq + 1 in [size for _, size, _ in heads]:
            roots[seq + 1] = functools.reduce(lambda right, left: node(left, right), peaks[::-1])
        if "leaf" in row:
            need(row["seq"] == seq, f"it is not entry {seq}")
            previous = away.append(seq)
            continue
        record, data = json.loads(row["record"], object_pairs_hook=note), row["record"].encode()
        need(sha256(data).hexdigest() == row["entry_hash"], "the record does not match entry_hash")
        name, meta = f"LED-{seq:08x}", record["metadata"]
        need([record["seq"], record["id"]] == [seq, name], f"it is not entry {seq}")
        holds = previous in (record["previous_hash"], None)
        need(holds, "previous_hash is not the hash of the one before")
        previous = row["entry_hash"]
        places = [x for x in (meta, meta.get("provenance"), meta.get("scope")) if type(x) is dict]
        tier, session = [next((x[n] for x in places if n in x), 0) for n in ("tier", "session_id")]
        is_kernels = type(tier) is not str or tier in ("", "hot")  # no worker's entry erases
        if record["event_type"] == "ERASURE" and is_kernels: erasures[name] = meta, record["reason"]
        gone.update(dict.fromkeys(row.get("erased", ()), name))  # in an archive, too
        scope = session if session and type(session) is str else seq  # of its content
        for item in row["contents"] + row["steps"]:
            mac, parent, whose = item["commitment"], item.get("parent"), None
            text = None
            if "erased" in item: gone[mac] = item["erased"]
            elif text := item.get("jcs", item.get("json")):  # JSON in RFC 8785's form, or in any
                nonce, value = unbase64(item["nonce"], 32), text.encode()
                values[scope, hmac.new(nonce, value, "sha256").hexdigest()] = len(value)
                named = meta.get("subject_id")  # the value of it says whom the entry speaks of
                is_named = isinstance(named, dict) and named.get("$content") == f"hmac-sha256:{mac}"
                whose = [json.loads(text)] if is_named else None
            is_left = record["event_type"] == "ARCHIVED" and is_kernels and text
            if is_left and meta["left"]["$content"] == f"hmac-sha256:{mac}":
                packed = base64.b64decode(json.loads(text))
                left |= int.from_bytes(zlib.decompress(packed), "little")
            as_recorded = item.get("subjects") == whose if seq >= before else not whose
            need(as_recorded, "a subject is not the record's")
            need((scope, mac) in values or mac in gone, "content is missing, or another was put in")
            if parent:  # it is a step of a message list
                step = sha256(bytes.fromhex(parent) + bytes.fromhex(mac)).hexdigest()
                need(step == item["step"], "a message step does not hold")
                steps[scope, step] = 1 + (0 if parent == "0" * 64 else steps[scope, parent])
        for item in map(dict, objects):
            if "$content" in item:
                kind, mac = item["$content"][:12], item["$content"][12:]
                holds = mac in gone or values.get((scope, mac)) == item["bytes"]
                need(holds and kind == "hmac-sha256:", "content is missing and was not erased")
            holds = "$messages" not in item or steps[scope, item["$messages"]] == item["count"]
            need(holds, "a message list is not the one committed to")
    WHERE[0], found = "the whole", [f"{seq + 1} entries, {len(values)} content values"]
    bits = left.to_bytes(seq // 8 + 1, "little")
    need(all(bits[n // 8] >> n % 8 & 1 for n in away), "an entry is away, and no ARCHIVED says so")
    if away: found.append(f"archived: {len(away)} of the entries, held against the tree alone")
    need(head["entries"] == seq + 1, f"cut off: {seq + 1} of {head['entries']} entries are there")
    for origin, size, root in heads:
        need(size in roots, f"cut off: {seq + 1} entries, and a checkpoint covers {size}")
        need(root == roots[size], f"the first {size} entries do not lead to the checkpoint of them")
        found.append(f"checkpoint of {origin!a}: {size} entries, which lead to it")
    need(not heads or seq + 1 in roots, "the last entries are covered by no checkpoint")
    for name, group in itertools.groupby(sorted(gone, key=lambda x: (gone[x], x)), gone.get):
        macs, (meta, reason) = list(group), erasures.get(name, ({}, ""))
        fits = meta.get("erased_hash") == sha256("".join(macs).encode()).hexdigest()
        need(fits and meta["erased_count"] == len(macs), f"{name} does not account for its erasure")
        found.append(f"erased: {len(macs)} values under {name}: {reason!a}")
    return "\n".join(found)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.split("\n")[2:5]))
    parser.add_argument("export", nargs="?")
    for option in ("--key", "--checkpoint", "--proof", "--record",
                   "--tenant-proof"): parser.add_argument(option)
    given = parser.parse_args()
    read = lambda path: pathlib.Path(path).read_bytes().decode()
    try:
        key = read(given.key) if given.key and os.path.exists(given.key) else given.key
        if given.tenant_proof: print(check_tenant_proof(read(given.tenant_proof), key))
        elif given.proof: print(check_proof(read(given.proof), read(given.record).encode(), key))
        else: print(check_export(given.export, key, given.checkpoint and read(given.checkpoint)))
        print("VERIFIED" if key else "chain and content hold; nobody's signature was checked")
    except Exception as error:  # whatever it is, it does not verify
        sys.exit(f"NOT VERIFIED: {WHERE[0]}: {error if type(error) is ValueError else repr(error)}")
