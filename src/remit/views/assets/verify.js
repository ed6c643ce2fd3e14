/*
 * Checks, in the reader's own browser, that entries are recorded in a Remit ledger, and that none
 * of a range or run is missing.
 *
 * There is no dependency, no build step and no request: all arithmetic is the browser's WebCrypto.
 * It is meant to be read before it is trusted. The formats are those of docs/ledger-format.md:
 * the RFC 6962 tree, and the C2SP signed note and checkpoint with an Ed25519 signature.
 *
 *   RemitProof.verify(bundle)  what remit.ledger.proof_bundle gives:
 *                              {entry_id, seq, entry_hash, record, size, proof, checkpoint,
 *                              vkey}, exactly these
 *     -> {state, entry, step, message, steps}, a promise that is never rejected
 *   RemitProof.extract(extract, vkey)   the same for an extract (remit.ledger.make_extract): all
 *                              entries of a range, a run or an action. vkey, if given, must be the
 *                              file's key. The result also has `records`, parsed
 *   RemitProof.read(text)      the bundle or extract in a JSON text, or a Failure
 *   RemitProof.prove(data, head, progress)   the entries of a data set with `records` and `hashes`
 *   RemitProof.missing()       why this browser cannot check anything; "" where it can
 *   RemitProof.checkpoint(note, vkey)   -> {origin, size, root, key}, or a Failure
 *   RemitProof.bytes                    functions that report.js needs, like the other members
 *
 * state is "verified", "failed" (step and message say what failed) or "unsupported": then nothing
 * was checked. steps lists what was checked, in order: {step, ok, message}.
 *
 * What it proves: this record is entry `seq` of the log that the owner of `vkey` signed. Whose key
 * that is, it cannot know: compare it with one that you were given by another way.
 */
"use strict";

const RemitProof = (() => {
  /** What does not hold. */
  class Failure extends Error {
    constructor(step, message) {
      super(message);
      this.name = "Failure";
      this.step = step; // key, checkpoint, signature, hash, record or inclusion
    }
  }

  const need = (holds, step, message) => {
    if (!holds) throw new Failure(step, message);
  };

  // -- bytes ------------------------------------------------------------------------------

  const utf8 = (text) => new TextEncoder().encode(text);
  const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const unhex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
  const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

  function join(...parts) {
    const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let end = 0;
    for (const part of parts) {
      all.set(part, end);
      end += part.length;
    }
    return all;
  }

  /** Standard base64, with its padding and without stray bits; null where it is not. */
  function unbase64(text, length) {
    let bytes;
    try {
      bytes = typeof text === "string" ? atob(text) : "";
    } catch {
      return null;
    }
    if (btoa(bytes) !== text || (length !== undefined && bytes.length !== length)) return null;
    return Uint8Array.from(bytes, (char) => char.charCodeAt(0));
  }

  // -- what the browser can do --------------------------------------------------------------

  // RFC 8032, 7.1, test 1: a browser that does not give the known answers checks nothing.
  const KNOWN_KEY = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
  const KNOWN_SIGNATURE =
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155" +
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";

  const verifies = async (raw, signature, message) => {
    const key = await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
    return crypto.subtle.verify("Ed25519", key, signature, message);
  };

  async function missing() {
    if (!globalThis.crypto || !crypto.subtle) {
      return globalThis.isSecureContext === false
        ? "This page was not loaded over HTTPS or from a file, so the browser does not offer WebCrypto."
        : "This browser has no WebCrypto.";
    }
    try {
      const signature = unhex(KNOWN_SIGNATURE);
      if (!(await verifies(unhex(KNOWN_KEY), signature, new Uint8Array()))) throw new Error();
      signature[0] ^= 1;
      if (await verifies(unhex(KNOWN_KEY), signature, new Uint8Array())) throw new Error();
    } catch {
      return "This browser's WebCrypto cannot check Ed25519 signatures; a newer one can.";
    }
    return "";
  }

  // -- the signed tree head -----------------------------------------------------------------

  /** A verifier key, `origin+hash+key`: hash is SHA-256(origin || 0x0A || 0x01 || key)[:4]. */
  async function readKey(vkey) {
    const found = isText(vkey) && /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey);
    const data = found && unbase64(found[3], 33);
    need(data && data[0] === 1, "key", "This is not a verifier key of a log (origin+hash+key).");
    const id = (await sha256(join(utf8(`${found[1]}\n`), data))).slice(0, 4);
    need(hex(id) === found[2], "key", `The verifier key is damaged: its hash is not ${found[2]}.`);
    return { name: found[1], id: found[2], bytes: data.slice(1) };
  }

  /** Text and signature lines of a signed note: [name, key id in hex, signature] of each. */
  function readNote(note) {
    const end = typeof note === "string" ? note.lastIndexOf("\n\n") : -1;
    // eslint-disable-next-line no-control-regex
    const isNote = end > 0 && note.endsWith("\n") && !/[\x00-\x09\x0b-\x1f]/.test(note);
    need(isNote, "checkpoint", "This is not a signed checkpoint.");
    const signed = note.slice(end + 2, -1).split("\n").map((line) => {
      const found = /^\u2014 ([^\s+]+) (\S+)$/.exec(line);
      const data = found && unbase64(found[2]);
      need(data && data.length > 4, "signature", "A signature line is malformed.");
      return [found[1], hex(data.slice(0, 4)), data.slice(4)];
    });
    const keys = new Set(signed.map(([name, id]) => `${name}+${id}`));
    need(keys.size === signed.length, "signature", "A key signed the checkpoint twice.");
    return { text: note.slice(0, end + 1), signed }; // the text with its last line's end
  }

  async function checkpoint(note, vkey) {
    const key = await readKey(vkey);
    const { text, signed } = readNote(note);
    const lines = text.split("\n");
    const isWhole = lines.length > 3 && lines.slice(0, -1).every((line) => line);
    need(isWhole, "checkpoint", "This is not a signed checkpoint.");
    const [origin, digits, encoded] = lines;
    const size = /^(0|[1-9][0-9]*)$/.test(digits) ? Number(digits) : NaN;
    const root = unbase64(encoded, 32);
    const isHead = Number.isSafeInteger(size) && root;
    need(isHead, "checkpoint", "The checkpoint's size or root hash is malformed.");
    const isOwn = origin === key.name;
    need(isOwn, "checkpoint", `The checkpoint belongs to the log ${origin}, not to ${key.name}.`);

    const own = signed.find(([name, id]) => name === key.name && id === key.id);
    need(own, "signature", `The checkpoint is not signed by the key ${key.name}+${key.id}.`);
    const holds = own[2].length === 64 && (await verifies(key.bytes, own[2], utf8(text)));
    need(holds, "signature", `The checkpoint's signature by ${key.name} is not valid.`);
    return { origin, size, root, key };
  }

  // -- an entry -----------------------------------------------------------------------------

  const entryId = (seq) => `LED-${Number(seq).toString(16).padStart(8, "0")}`;

  // The members of a bundle, each with its test.
  const isText = (value) => typeof value === "string";
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isTexts = (value) => Array.isArray(value) && value.every(isText);
  const MEMBERS = {
    entry_id: isText, seq: Number.isSafeInteger, entry_hash: isText, record: isText,
    size: Number.isSafeInteger, proof: isTexts, checkpoint: isText, vkey: isText,
  };

  /** A bundle has exactly these members. */
  function needMembers(bundle) {
    need(isObject(bundle), "bundle", "This is not the proof of an entry.");
    for (const [name, holds] of Object.entries(MEMBERS)) {
      const isThere = Object.hasOwn(bundle, name) && holds(bundle[name]);
      need(isThere, "bundle", `The member ${name} of the proof is missing or has the wrong type.`);
    }
    const extra = Object.keys(bundle).find((name) => !Object.hasOwn(MEMBERS, name));
    need(extra === undefined, "bundle", `The proof has an unknown member: ${extra}.`);
    const isNamed = bundle.entry_id === entryId(bundle.seq);
    need(isNamed, "bundle", `The proof names ${bundle.entry_id} but covers ${entryId(bundle.seq)}.`);
  }

  /** The value of a JSON text; null where it is none. */
  function parse(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /** The bundle or extract in a JSON text; an object with a name twice is refused. */
  function read(text) {
    const bundle = JSON.parse(text);
    const bare = text.replace(/"(?:[^"\\]|\\.)*"/g, '""'); // JSON without its texts
    const names = bare.match(/""\s*:/g) ?? [];
    const count = (value) =>
      value === null || typeof value !== "object" ? 0
        : Object.values(value).reduce((sum, one) => sum + count(one),
          Array.isArray(value) ? 0 : Object.keys(value).length);
    const isOnce = bundle !== null && names.length === count(bundle);
    need(isOnce, "bundle", "The proof contains a member twice.");
    need(!/\d[.eE]/.test(bare), "bundle", "The proof contains a number that is not an integer.");
    return bundle;
  }

  /** The record's bytes are those that entry_hash names, and say that they are entry `seq`. */
  async function readRecord({ seq, entry_hash, record }) {
    need(isText(record) && record.isWellFormed(), "record", "The record is not a text.");
    const bytes = utf8(record);
    const sum = hex(await sha256(bytes));
    need(sum === entry_hash, "hash", `The record's SHA-256 is ${sum}, not ${entry_hash}.`);
    const parsed = parse(record);
    const isIt = parsed && parsed.seq === seq && parsed.id === entryId(seq);
    need(isIt, "record", `The record is not entry ${entryId(seq)}.`);
    return { bytes, parsed };
  }

  /** RFC 6962, 2.1: from the leaf up to the root of the tree of head.size leaves. */
  async function climb(leaf, seq, proof, head) {
    const isLeaf = Array.isArray(proof) && Number.isSafeInteger(seq) && seq >= 0 && seq < head.size;
    need(isLeaf, "inclusion", `The checkpoint covers ${head.size} entries; this entry is not one of them.`);
    let [hash, place, last, used] = [leaf, seq, head.size - 1, 0];
    while (last > 0) {
      if (place % 2 || place < last) {
        const beside = proof[used] === undefined ? null : unbase64(proof[used], 32);
        need(beside, "inclusion", "The inclusion proof is too short, or a hash is malformed.");
        used += 1;
        hash = await sha256(place % 2 ? join([1], beside, hash) : join([1], hash, beside));
      } // else it is the last of its level, and goes up as it is
      place = Math.floor(place / 2);
      last = Math.floor(last / 2);
    }
    const leads = hex(hash) === hex(head.root) && used === proof.length;
    need(leads, "inclusion", "The inclusion proof does not lead to the checkpoint's root.");
  }

  // -- records and a tree ---------------------------------------------------------------------

  const CHUNK = 256; // records hashed at once; a browser hashes in threads of its own
  const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
  const RECORD = {
    decision: ["string"], event_type: ["string"], id: ["string"], metadata: ["object"],
    previous_hash: ["string"], prompts_used: ["object"], reason: ["string", "object"],
    seq: ["number"], submission_id: ["string"], timestamp: ["string"],
  };
  const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

  /** RFC 8785. */
  function canonical(value) {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (!isObject(value)) return JSON.stringify(value);
    const members = Object.keys(value).sort();
    return `{${members.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }

  function parseRecord(text) {
    const record = parse(text);
    const names = Object.keys(RECORD);
    const isRecord =
      text.isWellFormed() &&
      isObject(record) &&
      String(Object.keys(record).sort()) === String(names) &&
      names.every((name) => RECORD[name].includes(typeof record[name])) &&
      isObject(record.metadata) &&
      isTexts(record.prompts_used) &&
      isCount(record.seq) &&
      record.id === entryId(record.seq) &&
      TIME.test(record.timestamp) &&
      canonical(record) === text;
    need(isRecord, "record", `This is not the canonical record of an entry: ${text.slice(0, 100)}`);
    return record;
  }

  /** The records of a data set, each after the one before it, below the checkpoint's size. */
  async function readRecords(records, head, progress) {
    const entries = [];
    for (let start = 0; start < records.length; start += CHUNK) {
      progress(start, records.length);
      const part = records.slice(start, start + CHUNK).map(async (text) => {
        const record = parseRecord(text);
        const bytes = utf8(text);
        const [hash, leaf] = await Promise.all([sha256(bytes), sha256(join([0], bytes))]);
        return { record, seq: record.seq, hash: hex(hash), leaf };
      });
      entries.push(...(await Promise.all(part)));
    }
    entries.forEach(({ record, seq }, index) => {
      const before = entries[index - 1];
      need(!before || before.seq < seq, "record", `${record.id} stands at the wrong place, or twice.`);
      const isNext = before && before.seq === seq - 1;
      const isChained = !isNext || before.hash === record.previous_hash;
      need(isChained, "record",
        `The records of ${before?.record.id} and ${record.id} do not follow each other.`);
      need(seq < head.size, "inclusion", `The checkpoint does not cover ${record.id}.`);
    });
    progress(records.length, records.length);
    return entries;
  }

  async function checkRoot(entries, hashes, head) {
    need(hex(await rootOf(entries, hashes, head.size)) === hex(head.root), "inclusion",
      "The records and hashes do not lead to the root of the checkpoint.");
  }

  /** The entries of a data set, once the tree's root follows from them. */
  async function prove({ records, hashes }, head, progress = () => {}) {
    const entries = await readRecords(records, head, progress);
    await checkRoot(entries, hashes, head);
    return entries;
  }

  /** The root of the RFC 6962 tree of `size` leaves, from some leaves and all other subtrees. */
  async function rootOf(entries, hashes, size) {
    let [leaf, used] = [0, 0];
    function node(start, end) {
      if (leaf === entries.length || entries[leaf].seq >= end) {
        const hash = used < hashes.length ? unbase64(hashes[used], 32) : null;
        need(hash, "inclusion", "A tree hash is missing or malformed.");
        used += 1;
        return hash;
      }
      if (end - start === 1) return entries[leaf++].leaf;
      let middle = 1;
      while (middle * 2 < end - start) middle *= 2;
      const halves = [node(start, start + middle), node(start + middle, end)];
      return Promise.all(halves).then(([left, right]) => sha256(join([1], left, right)));
    }
    const top = size ? node(0, size) : sha256(new Uint8Array());
    need(used === hashes.length, "inclusion", "There are more tree hashes than the records need.");
    return top;
  }

  // -- an extract -----------------------------------------------------------------------------

  const RUNS = ["session_id", "work_order_id"];
  const ACTIONS = ["EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED", "TOOL_CALL"];
  const MAX_RANGE = 100_000;
  const EXTRACT = {
    format: (value) => value === "remit-extract/1", of: isObject, checkpoint: isText,
    verifier_key: isText, records: isTexts, hashes: isTexts,
  };
  const INDEX = {
    of: isObject, entries: Array.isArray, actions: Array.isArray, part: isCount, parts: isCount,
  };

  function needExactly(value, members, step, what) {
    const fits =
      isObject(value) &&
      Object.entries(members).every(([name, holds]) => Object.hasOwn(value, name) && holds(value[name])) &&
      Object.keys(value).length === Object.keys(members).length;
    need(fits, step, `${what} does not have exactly its members.`);
  }

  const column = ({ metadata }, name) =>
    [metadata, metadata.provenance, metadata.scope]
      .find((one) => isObject(one) && Object.hasOwn(one, name))?.[name];
  const isKernels = (record) => {
    const tier = column(record, "tier");
    return !isText(tier) || tier === "" || tier === "hot";
  };
  const isRising = (list) => list.every((one, at) => !at || list[at - 1] < one);

  /** What an INDEXED entry of the kernel says of a run; null for other entries. */
  function readIndex(record) {
    if (record.event_type !== "INDEXED" || !isKernels(record)) return null;
    const index = record.metadata;
    needExactly(index, INDEX, "index", "An index");
    const first = record.seq - index.part + 1;
    const [name, ...others] = Object.keys(index.of);
    const lists = [index.entries, ...index.actions];
    const holds =
      RUNS.includes(name) && !others.length && isText(index.of[name]) &&
      lists.every((list) => Array.isArray(list) && list.every((one) => isCount(one) && one < first)) &&
      isRising(index.entries) &&
      index.actions.every((row) => index.entries.includes(row[0]) && isRising(row.slice(1))) &&
      index.part > 0 && index.part <= index.parts;
    need(holds, "index", "The index of the run is malformed.");
    return { ...index, first, seq: record.seq };
  }

  /** The one index of an extract: its run, entries, actions and parts. */
  function readIndexes(of, entries) {
    const found = entries.map(({ record }) => readIndex(record)).filter((one) => one);
    need(found.length, "index", "The index of the run is missing.");
    const last = found.at(-1);
    for (let part = 0; part < last.parts; part += 1) {
      const isThere = found.some(({ seq }) => seq === last.first + part);
      need(isThere, "index", `${entryId(last.first + part)}, a part of the index, is missing.`);
    }
    const run = canonical(last.of);
    const isOne =
      found.length === last.parts &&
      found.every((one) => canonical(one.of) === run && one.parts === last.parts && one.first === last.first);
    need(isOne, "index", "The file has more than one index, or parts of several.");
    need("entry" in of || canonical(of) === run, "index", "The index is of another run.");
    const listed = found.flatMap((one) => one.entries);
    need(isRising(listed), "index", "The index is not in order.");
    const [actions, parts] = [found.flatMap((one) => one.actions), found.map(({ seq }) => seq)];
    return { run: Object.entries(last.of)[0], listed, actions, parts: new Set(parts) };
  }

  /** The actions of a true index of these records: docs/ledger-format.md, section 13. */
  function actionsOf(entries) {
    const [known, used, asked, rows] = [new Map(), new Map(), new Map(), []];
    const at = (kind, name) => (isText(name) && known.get(`${kind} ${name}`)) || [];
    const set = (kind, name, seqs) => isText(name) && known.set(`${kind} ${name}`, seqs);
    const add = (kind, name, seq) => set(kind, name, [...at(kind, name), seq]);
    for (const { record, seq } of entries) {
      const { event_type: event, metadata } = record;
      const [order, key] = [column(record, "work_order_id") || null, metadata.idempotency_key];
      if (ACTIONS.includes(event)) {
        const row = [...at("SESSION_START", ""), ...at("WO_EXECUTING", order),
          ...at("id", metadata.dispatch_entry_id)];
        if (event === "TOOL_CALL") row.push(...at("LLM_CALL", order), ...at("key", key));
        row.push(...row.flatMap((one) => at("id", used.get(one))));
        row.push(...row.flatMap((one) => at("request", asked.get(one))));
        rows.push([seq, ...[...new Set(row)].sort((one, other) => one - other)]);
      } else if (event === "SESSION_START") set(event, "", [seq]);
      else if (["WO_EXECUTING", "LLM_CALL"].includes(event)) set(event, order, [seq]);
      else if (["DISPATCH", "TOOL_INTENT", "APPROVAL_REQUESTED"].includes(event)) {
        add("id", record.id, seq);
        if (event !== "DISPATCH") add("key", key, seq);
        if (event === "TOOL_INTENT") used.set(seq, metadata.approval);
        if (event === "APPROVAL_REQUESTED") asked.set(seq, record.id);
      } else if (event.startsWith("APPROVAL_")) add("request", metadata.request_id, seq);
    }
    return rows;
  }

  const named = (seqs) => {
    const more = seqs.length > 10 ? ` and ${seqs.length - 10} more` : "";
    return `${seqs.slice(0, 10).map(entryId).join(", ")}${more} ${seqs.length === 1 ? "is" : "are"}`;
  };

  /** No entry of the range, run or action is missing; returns a sentence that says which it is. */
  function checkComplete(of, entries) {
    const names = Object.keys(of).sort();
    let [own, wanted, stated, said] = [entries, [], null, ""];
    if (String(names) === "end,first") {
      const isRange =
        isCount(of.first) && isCount(of.end) && of.first < of.end && of.end - of.first <= MAX_RANGE;
      need(isRange, "extract", "The range is not one.");
      wanted = Array.from({ length: of.end - of.first }, (_, at) => of.first + at);
      said = `the range from ${of.first} to ${of.end - 1}`;
    } else {
      const isRun = names.length === 1 && [...RUNS, "entry"].includes(names[0]) && isText(of[names[0]]);
      need(isRun, "extract", "The file does not say which entries it has.");
      const { run, listed, actions, parts } = readIndexes(of, entries);
      own = entries.filter(({ seq }) => !parts.has(seq));
      const chosen = actions.find(([seq]) => entryId(seq) === of.entry);
      need(!("entry" in of) || chosen, "index", `The index names no action ${of.entry}.`);
      wanted = chosen ?? listed;
      said = `${run[0]} ${run[1]} before ${entryId(Math.min(...parts))}`;
      if (chosen) said = `the action ${of.entry} of ${said}`;
      for (const { record } of own) {
        need(column(record, run[0]) === run[1], "other", `${record.id} is of another run.`);
      }
      stated = actions;
    }
    const there = new Set(own.map(({ seq }) => seq));
    const missing = wanted.filter((seq) => !there.has(seq)).sort((one, other) => one - other);
    need(!missing.length, "missing", `${named(missing)} missing.`);
    const expected = new Set(wanted);
    const others = [...there].filter((seq) => !expected.has(seq));
    need(!others.length, "other", `${named(others)} not part of what the file says it has.`);
    const rows = stated?.filter(([seq]) => there.has(seq));
    need(!rows || canonical(rows) === canonical(actionsOf(own)), "index",
      "The index names other actions than the records are.");
    return `All ${own.length} entries of ${said} are there.`;
  }

  async function extract(data, vkey = "") {
    const steps = [];
    const result = (state, step = "", message = "", records = []) =>
      ({ state, entry: "", step, message, steps, records });
    const lacking = await missing();
    if (lacking) return result("unsupported", "browser", `${lacking} Nothing was checked.`);
    try {
      needExactly(data, EXTRACT, "extract", "The extract");
      need(!vkey || vkey.trim() === data.verifier_key, "key", "The file names another verifier key.");
      const head = await checkpoint(data.checkpoint, data.verifier_key);
      steps.push({ step: "signature", ok: true,
        message: `${head.origin} signed a tree of ${head.size} entries.` });
      const entries = await readRecords(data.records, head, () => {});
      steps.push({ step: "complete", ok: true, message: checkComplete(data.of, entries) });
      await checkRoot(entries, data.hashes, head);
      steps.push({ step: "inclusion", ok: true, message: "Their records lead to that tree's root." });
      return result("verified", "", "", entries.map(({ record }) => record));
    } catch (error) {
      const step = error instanceof Failure ? error.step : "extract";
      const message = error instanceof Failure ? error.message : `The extract cannot be read: ${error}`;
      steps.push({ step, ok: false, message });
      return result("failed", step, message);
    }
  }

  // -- all of it ----------------------------------------------------------------------------

  async function verify(bundle) {
    const steps = [];
    const done = (step, message) => steps.push({ step, ok: true, message });
    const result = (state, step = "", message = "") => ({
      state, entry: entryId(bundle?.seq), step, message, steps,
    });
    const lacking = await missing();
    if (lacking) return result("unsupported", "browser", `${lacking} Nothing was checked.`);
    try {
      needMembers(bundle);
      const head = await checkpoint(bundle.checkpoint, bundle.vkey);
      done("signature", `${head.origin} signed a tree of ${head.size} entries.`);
      const isSize = bundle.size === head.size;
      need(isSize, "checkpoint", `The checkpoint covers ${head.size} entries, not ${bundle.size}.`);
      const { bytes } = await readRecord(bundle);
      done("hash", `The record's SHA-256 is ${bundle.entry_hash}.`);
      await climb(await sha256(join([0], bytes)), bundle.seq, bundle.proof, head);
      done("inclusion", `The record is leaf ${bundle.seq} of that tree.`);
      return result("verified");
    } catch (error) {
      const step = error instanceof Failure ? error.step : "bundle";
      const message = error instanceof Failure ? error.message : `The proof cannot be read: ${error}`;
      steps.push({ step, ok: false, message });
      return result("failed", step, message);
    }
  }

  const bytes = Object.freeze({ utf8, hex, join, sha256, unbase64 });
  return Object.freeze({
    Failure, missing, checkpoint, entryId, read, verify, extract, prove, canonical, isObject, isCount,
    TIME, bytes,
  });
})();
