# ruff: noqa: BLE001, D103, E401, E701, I001, T201
# fmt: off
"""Compute the routing decisions of a ledger again, with Python 3.11 or later and nothing else.

    remit ledger query --event-type THOUGHT_RECORD --json | python3 verify_decisions.py [--json]
    python3 verify_decisions.py EXPORT.json [--json]

Of each decision: its fields, the hashes, the number of attempts, and from prompt, rules and
profiles the scores and the chain, as routing.md says. Of each thought: its hash and its place in
its task's chain. Exit code 1 where anything differs, 2 where the input is no such export. A learned
head is among the thoughts: HEAD-…. Its hash is that which the rules name. What was erased is
counted, and is no failure. That no entry was rewritten is the ledger's to prove: see
verify_standalone.py.
"""
import argparse, json, re, sys
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from math import isqrt
from zlib import crc32
FIELDS = {"type", "routing_mode", "chosen_model_id", "candidates_considered", "scores",
          "fallback_attempts", "rule_version_hash", "decision_hash"}
PROFILE = {"provider_id": str, "abilities": dict, "input_price": int, "output_price": int,
           "context_tokens": int, "tokens_per_s": int, "languages": list, "tools": bool,
           "images": bool, "reliability": int, "served_as": str}
MILLION, UNAVAILABLE = 1_000_000, "rv:sha256:unavailable"

def number(x) -> str:
    """RFC 8785, 3.2.2.3: the shortest digits of the double, as ECMAScript's Number::toString."""
    x = float(x)
    if x == 0: return "0"
    sign, digits, exponent = Decimal(repr(x)).normalize().as_tuple()
    text, n = "".join(map(str, digits)), len(digits) + exponent  # 0.text times ten to the n
    if 0 < n <= 21: text = text.ljust(n, "0")[:n] + ("." + text[n:] if len(text) > n else "")
    elif -6 < n <= 0: text = "0." + "0" * -n + text
    else: text = text[0] + ("." + text[1:] if text[1:] else "") + f"e{n - 1:+d}"
    return "-" * sign + text

def canonical(x) -> str:
    """RFC 8785."""
    if x is None or isinstance(x, (bool, str)): return json.dumps(x, ensure_ascii=False)
    if isinstance(x, (int, float)): return number(x)
    if isinstance(x, list): return "[" + ",".join(map(canonical, x)) + "]"
    keys = sorted(x, key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(f"{canonical(key)}:{canonical(x[key])}" for key in keys) + "}"

def is_great(x) -> bool:
    """Whether a value has a whole number that RFC 8785 cannot carry unchanged."""
    if isinstance(x, dict): x = [*x.values()]
    if isinstance(x, list): return any(map(is_great, x))
    return isinstance(x, (int, float)) and abs(x) >= 2**53 and (isinstance(x, int) or abs(x) < 1e21)

def exact(x) -> str:
    """RFC 8785; of messages, one with a great number as Python writes it, with sorted keys."""
    if not is_great(x): return canonical(x)
    if isinstance(x, list): return "[" + ",".join(map(exact, x)) + "]"
    return json.dumps(x, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

def digest(*texts: str) -> str:
    return sha256("".join(texts).encode()).hexdigest()
def m(x) -> int:  # in millionths
    return int(Decimal(number(x)) * MILLION)

SCRIPTS = [("ja", 0x3040, 0x30FF), ("ko", 0xAC00, 0xD7AF), ("zh", 0x4E00, 0x9FFF),
           ("ru", 0x0400, 0x04FF), ("el", 0x0370, 0x03FF), ("ar", 0x0600, 0x06FF),
           ("he", 0x0590, 0x05FF), ("hi", 0x0900, 0x097F), ("th", 0x0E00, 0x0E7F)]

def text_of(content) -> str:  # of a message
    if isinstance(content, str): return content
    return "".join(block["text"] for block in content if block["type"] == "text")

def length_of(content) -> int:
    if isinstance(content, str): return len(content.encode())
    calls = [dict(block) for block in content if block["type"] in ("tool_use", "tool_result")]
    for call in calls:
        if isinstance(call.get("content"), list):
            call["content"] = [x for x in call["content"] if x.get("type") != "image"]
    return len(text_of(content).encode()) + sum(len(exact(x).encode()) for x in calls)

def messages_of(prompt) -> list:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt

def text_read(prompt, rules: dict) -> str:
    asked = [text_of(turn["content"]) for turn in messages_of(prompt) if turn["role"] == "user"]
    text, most = next(filter(None, reversed(asked)), ""), int(rules["characters_read"])
    return text if len(text) <= most else text[:most // 2] + "\n" + text[-(most - most // 2):]

def read_prompt(prompt, rules: dict) -> tuple:
    """The task it is taken for, which of code and mathematics are in play, language, length."""
    messages, text = messages_of(prompt), text_read(prompt, rules)
    data = re.sub(rb"[A-Z]", lambda letter: letter[0].lower(), text.encode())
    words, signs = {word.decode() for word in re.findall(rb"[a-z0-9_\x80-\xff]+", data)}, {}
    for task, rule in rules["tasks"].items():
        marks = sum(mark.encode() in data for mark in set(rule["marks"]))
        signs[task] = len(words & set(rule["words"])) + 2 * marks
        if task == "mathematics" and re.search(rb"[0-9][0-9., ]{0,20}[-+*/^=%] {0,4}[0-9(]", data):
            signs[task] += 2
    best = min(signs, key=lambda task: (-signs[task], task), default="")
    least, language = rules["least_signs"], ""
    for code, first, last in SCRIPTS:
        if not language and sum(first <= ord(letter) <= last for letter in text) >= 4:
            language = code
    if not language:
        shared = {code: len(words & set(known)) for code, known in rules["languages"].items()}
        found = min(shared, key=lambda code: (-shared[code], code), default="")
        language = found if found and shared[found] else ""
    in_play = [task for task in ("code", "mathematics") if signs.get(task, 0) >= least]
    length = -(-sum(length_of(turn["content"]) for turn in messages) // rules["bytes_per_token"])
    return best if best and signs[best] >= least else "chat", in_play, language, int(length)

def score(profile: dict, prompt: tuple, task: str, weights: dict, given: str) -> int:
    """By what is stated of a model, in millionths."""
    seen, in_play, language, _ = prompt
    first = seen if task == "any" else task
    tasks, percents = [first, *(x for x in in_play if x != first)], profile["abilities"]
    scales = weights["scales"]
    features = dict.fromkeys(("ability", "reliability", "cost", "speed", "language"), 0)
    able = sum(percents.get(x, percents.get("general", 0)) for x in tasks)
    features["ability"] = able * 10_000 // len(tasks)
    features["reliability"] = profile["reliability"] * 10_000
    if None not in (prices := (profile["input_price"], profile["output_price"])):
        output, half = m(scales["output_share"]), m(scales["usd_per_million_tokens"]) * 1000
        price = (prices[0] * (MILLION - output) + prices[1] * output) // MILLION
        features["cost"] = MILLION * half // (half + price)
    speed = profile["tokens_per_s"] * MILLION
    features["speed"] = MILLION * speed // (speed + m(scales["tokens_per_s"])) if speed else 0
    fits = not language or not profile["languages"] or language in profile["languages"]
    features["language"] = MILLION * fits
    factors, total = weights["preferences"][given] if given else {}, 0
    for name, value in features.items():
        weight = m(weights["features"][name])
        if given: weight = weight * m(factors.get(name, 1)) // MILLION
        total += weight * value
    total //= MILLION
    return total

def expected_cost(model: dict, seen: set, tokens: int) -> int:
    """Of a call, in nano-dollars."""
    if not model.get("cost_weights"): return model["cost_nano"]
    size = log2(max(1, tokens))
    total = sum(model["cost_weights"][bucket] for bucket in seen) * MILLION
    total = total // (isqrt(len(seen) * MILLION ** 2) or 1)
    total += model["cost_bias"] + model["cost_length"] * size // MILLION
    return power2(min(50 * MILLION, max(0, total)))

def log2(value: int) -> int:
    """In millionths, linear between powers of 2."""
    power = value.bit_length() - 1
    return power * MILLION + (value - (1 << power)) * MILLION // (1 << power)

def power2(log: int) -> int:
    """The number with that logarithm."""
    power, rest = divmod(log, MILLION)
    return (MILLION + rest) * 2 ** power // MILLION

def learned_scores(text: str, tokens: int, context: dict, head: dict, rules: dict, factors: dict):
    """Of each model that a learned head knows, in millionths."""
    data = re.sub(rb"[A-Z]", lambda letter: letter[0].lower(), text.encode())
    words = re.findall(rb"[a-z0-9_\x80-\xff]+|[^\x00-\x20a-z0-9_\x80-\xff]", data)
    hashed = [crc32(word) for word in words] + [crc32(b" ".join(two)) for two in pairwise(words)]
    seen, found = {value % head["buckets"] for value in hashed}, {}
    weight, floor = m(rules["price_weight"]), m(rules.get("quality_floor", 0))
    if cap := rules.get("cap_nano"):
        least = 1 + 1000 * 10 ** 9 // cap
        weight = log2(max(least, weight)) - context.get("balance_nano", 0) * MILLION // (25 * cap)
        weight = min(MILLION ** 2, power2(max(0, weight)))
    for name, model in head["models"].items():
        total = sum(model["weights"][bucket] for bucket in seen) * MILLION
        quality = model["bias"] + total // (isqrt(len(seen) * MILLION ** 2) or 1)
        quality, cost = min(MILLION, max(0, quality)), expected_cost(model, seen, tokens)
        cost = max(0, cost - context.get("warm_nano", {}).get(name, 0))
        price = m(factors.get("cost", 1)) * (weight * cost // 10 ** 9)
        if not floor: found[name] = (m(factors.get("ability", 1)) * quality - price) // MILLION
        elif quality < floor: found[name] = quality
        else: found[name] = 2 * MILLION - min(MILLION - 1, cost // 1000)
    return found

def erased(x) -> bool:
    return isinstance(x, dict) and list(x) == ["$erased"]

def is_profile(profile: dict) -> bool:
    """Whether a profile has known keys, and values of the kinds that scores are computed from."""
    kinds = {name: type(value) for name, value in profile.items()}
    unknown = {name for name in ("input_price", "output_price") if profile.get(name, 0) is None}
    numbers = [value for value in profile.values() if type(value) is int]
    able = profile.get("abilities", {})
    return (all(PROFILE.get(name) is kind for name, kind in kinds.items() if name not in unknown)
            and all(type(value) is int and 0 <= value <= 100 for value in able.values())
            and all(type(name) is str and re.fullmatch("[a-z]{2,3}", name)
                    for name in profile.get("languages", ()))
            and bool(profile.get("provider_id"))
            and min(numbers, default=0) >= 0 and profile.get("reliability", 0) <= 100)

def check_hashes(record: dict, meta: dict) -> list:
    """What differs in a decision's record, but for the scores."""
    context, chosen, mode = meta["context"], record["chosen_model_id"], record["routing_mode"]
    chain, version = record["candidates_considered"], record["rule_version_hash"]
    inputs = {"prompt": meta["prompt"], "context": context, "rule_version_hash": version,
              "candidates_considered": chain}
    hashed = "{" + ",".join(f'"{name}":{exact(inputs[name])}' for name in sorted(inputs)) + "}"
    of_rules = "rv:sha256:" + digest(canonical(context["weights"]))
    return [name for name, holds in {
        "fields": record.keys() == FIELDS and record["type"] == "routing_decision",
        "decision_id": meta["thought_id"] == meta["decision_id"],
        "content": meta["content"] == canonical(record),
        "rule_version_hash": version in (of_rules, UNAVAILABLE),
        "decision_hash": record["decision_hash"] == digest(hashed, chosen),
        "routing_mode": mode in ("single", "ensemble", "pipeline", "fail"),
        "chosen_model_id": chosen in chain if mode != "fail" else chosen == "",
        "model_id": meta["model_id"] == chosen,
        "scores": all(type(record["scores"][model]) in (int, float) for model in chain),
        "profiles": all(map(is_profile, meta["profiles"].values())),
        "candidates": context["candidates"] == sorted(chain) == sorted(record["scores"]),
    }.items() if not holds]

def check_scores(record: dict, meta: dict, heads: dict) -> list:
    """The models whose scores differ, and the chain where it is not theirs."""
    context, scores, profiles = meta["context"], record["scores"], meta["profiles"]
    weights, (task, *needs) = context["weights"], context["task"].split("+")
    prompt, given = read_prompt(meta["prompt"], weights["intent"]), context["operator_preference"]
    own, learned, penalties = {}, {}, weights["penalties"]
    if rules := weights.get("learned"):
        text = text_read(meta["prompt"], weights["intent"])
        factors = weights["preferences"].get(given, {})
        learned = learned_scores(text, prompt[3], context, heads[rules["head"]], rules, factors)
    for model, profile in profiles.items():
        total = score(profile, prompt, task, weights, given)
        lacks = sum(m(penalties[need]) for need in needs if not profile[need])
        if rules: total = learned.get(model, total - 10 * MILLION)
        if 0 < profile["context_tokens"] < prompt[3]: lacks += m(penalties["context_window"])
        own[model] = (total - lacks) / MILLION
    differ = [f"score of {model!a} ({scores.get(model)}, computed {own.get(model)})"
              for model in sorted(own.keys() | scores) if own.get(model) != scores.get(model)]
    chain = sorted(own, key=lambda model: (-own[model], model))
    return differ + ["candidates_considered"] * (chain != record["candidates_considered"])

def check_attempts(record: dict, meta: dict) -> list:
    """Whether the chosen model answered, and the number of attempts is that of the calls."""
    attempts, skipped = meta.get("attempts"), meta.get("skipped")
    if not (isinstance(attempts, list) and isinstance(skipped, list)): return []
    rows = [row for row in attempts if isinstance(row, dict)]
    answered = {str(row["model_id"]) for row in rows if row.get("outcome") == "success"}
    count, chosen = len({str(row["model_id"]) for row in rows}) - 1, record["chosen_model_id"]
    if record["routing_mode"] == "fail":
        count, answered = len(skipped) + sum(row.get("outcome") != "success" for row in rows), {""}
    agree = chosen in answered and record["fallback_attempts"] == max(0, count)
    return [] if agree else ["fallback_attempts"]

def check_draw(record: dict, meta: dict, name: str) -> list:
    """Whether the decision's id draws its propensity, and who is asked first."""
    if "propensity" not in meta: return []
    if tried := meta.get("canary"):
        u = int(sha256(f"remit-canary:{name}".encode()).hexdigest()[:16], 16) / 2 ** 64
        arm, share = ("new" if u < tried["share"] else "old"), tried["share"]
        same = record["candidates_considered"][0] == tried["other"]
        chance = 1 if same else round(share if arm == "new" else 1 - share, 6)
        return [] if (arm, chance) == (tried["arm"], meta["propensity"]) else ["canary"]
    chain, share = record["candidates_considered"], meta.get("exploration", 0)
    chain = [model for model in chain if model not in meta.get("not_drawn", ())] or chain
    u = int(sha256(f"remit-exploration:{name}".encode()).hexdigest()[:16], 16) / 2 ** 64
    first = min(int(u / share * len(chain)), len(chain) - 1) if u < share else 0
    chance = share / len(chain) + (0 if first else 1 - share)
    lists = [meta.get("skipped"), meta.get("attempts")]
    asked = [one["model_id"] for some in lists if isinstance(some, list) for one in some]
    drawn = round(chance, 6) == meta["propensity"] and (not asked or chain[first] in asked)
    return [] if drawn else ["propensity"]

def check(entries: list) -> dict:
    """All thoughts, in the order of the ledger."""
    found = {"decisions": 0, "hashes_equal": 0, "scores_equal": 0, "thoughts": 0, "chains": 0,
             "other_scoring": [], "rules_unavailable": [], "erased": [], "bad": []}
    last, places, heads, lost = {}, {}, {}, set()
    for meta in [entry["metadata"] for entry in entries]:
        if not meta["thought_id"].startswith("HEAD-"): continue
        if erased(meta["content"]): lost.add(meta["thought_id"].removeprefix("HEAD-"))
        else: heads[digest(canonical(json.loads(meta["content"])))] = json.loads(meta["content"])
    for entry in entries:
        meta, wrong = entry["metadata"], []
        name, task, content = meta["thought_id"], meta["task_id"], meta["content"]
        before, place = last.get(task, "0" * 64), places.get(task, 0)
        places[task], last[task] = place + 1, meta["hash"]
        found["thoughts"] += 1
        unknown = erased(content) or erased(meta["hash"]) or erased(before)
        if meta["position"] != place or entry["submission_id"] != task: wrong.append("position")
        if not unknown:
            fields = {"id": name, "type": meta["type"], "task_id": task, "content": content,
                      "timestamp": meta["thought_timestamp"], "prev_hash": before}
            if meta["hash"] != digest(canonical(fields)): wrong.append("hash of the thought")
        if meta["type"] == "decision" and "decision_id" in meta:
            found["decisions"] += 1
            prompt = meta["prompt"] if isinstance(meta["prompt"], list) else [meta["prompt"]]
            gone = any(map(erased, [content, meta["context"], meta["profiles"], *prompt]))
            unknown = unknown or gone
            if not gone:
                try:
                    record = json.loads(content)
                    hashes = check_hashes(record, meta)
                    found["hashes_equal"] += not hashes
                    wrong += hashes
                    if record["rule_version_hash"] == UNAVAILABLE:
                        found["rules_unavailable"].append(name)
                    rules = meta["context"]["weights"].get("learned") or {}
                    if meta["scoring"] == "remit" and rules.get("head") in lost: unknown = True
                    elif meta["scoring"] == "remit":
                        scores = check_scores(record, meta, heads)
                        found["scores_equal"] += not scores
                        wrong += scores
                    else: found["other_scoring"].append(name)
                    wrong += check_attempts(record, meta)
                    if not wrong: wrong += check_draw(record, meta, name)
                except Exception as error: wrong.append(f"form ({error!r})")
        if unknown: found["erased"].append(name)
        if wrong: found["bad"].append({"id": name, "entry_id": entry["id"], "differs": wrong})
    return {**found, "chains": len(places)}

def tell(found: dict) -> None:
    for bad in found["bad"]: print(f"{bad['id']} ({bad['entry_id']}): {', '.join(bad['differs'])}")
    for name in found["erased"]: print(f"{name}: erased, or next to what is: not wholly checked")
    for name, meaning in (("other_scoring", "by another function: hashes only"),
                          ("rules_unavailable", "by the shipped rules: its own could not be read")):
        if found[name]: print(f"{len(found[name])} scored {meaning}")
    print("{decisions} decisions: hashes {hashes_equal} equal, scores {scores_equal} equal; "
          "{thoughts} thoughts in {chains} chains".format(**found))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.split("\n")[2:4]))
    parser.add_argument("export", nargs="?")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        with open(given.export or 0, encoding="utf-8") as file:
            report = check(json.load(file)["entries"])
    except Exception as error:
        print(f"This is no such export: {error!r}", file=sys.stderr)
        sys.exit(2)
    if given.json: print(json.dumps(report))
    else: tell(report)
    sys.exit(1 if report["bad"] else 0)
