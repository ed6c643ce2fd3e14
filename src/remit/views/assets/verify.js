/*
 * Checks, in the reader's own browser, that an entry is on record in a Remit ledger.
 *
 * There is no dependency, no build step and no request: all arithmetic is the browser's WebCrypto.
 * It is meant to be read before it is trusted. The formats are those of docs/ledger-format.md:
 * the RFC 6962 tree, and the C2SP signed note and checkpoint with an Ed25519 signature.
 *
 *   RemitProof.verify(bundle)  what remit.ledger.proof_bundle gives:
 *                              {entry_id, seq, entry_hash, record, size, proof, checkpoint,
 *                              vkey}, exactly these
 *     -> {state, entry, step, message, steps}, a promise that is never rejected
 *   RemitProof.read(text)      the bundle in a JSON text, or a Failure
 *   RemitProof.missing()       why this browser cannot check anything; "" where it can
 *   RemitProof.checkpoint(note, vkey)   -> {origin, size, root, key}, or a Failure
 *   RemitProof.bytes                    what report.js needs: utf8, hex, join, sha256, unbase64
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

  const verifies = async (key, signature, message) =>
    crypto.subtle.verify(
      "Ed25519",
      await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]),
      signature,
      message,
    );

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
  const MEMBERS = {
    entry_id: isText,
    seq: Number.isSafeInteger,
    entry_hash: isText,
    record: isText,
    size: Number.isSafeInteger,
    proof: (value) => Array.isArray(value) && value.every(isText),
    checkpoint: isText,
    vkey: isText,
  };

  /** A bundle has exactly these members. */
  function needMembers(bundle) {
    const isObject = bundle !== null && typeof bundle === "object" && !Array.isArray(bundle);
    need(isObject, "bundle", "This is not the proof of an entry.");
    for (const [name, holds] of Object.entries(MEMBERS)) {
      const isThere = Object.hasOwn(bundle, name) && holds(bundle[name]);
      need(isThere, "bundle", `The member ${name} of the proof is missing or has the wrong type.`);
    }
    const extra = Object.keys(bundle).find((name) => !Object.hasOwn(MEMBERS, name));
    need(extra === undefined, "bundle", `The proof has an unknown member: ${extra}.`);
    const isNamed = bundle.entry_id === entryId(bundle.seq);
    need(isNamed, "bundle", `The proof names ${bundle.entry_id} but covers ${entryId(bundle.seq)}.`);
  }

  /** The bundle in a JSON text; an object with a name twice is refused. */
  function read(text) {
    const bundle = JSON.parse(text);
    const bare = text.replace(/"(?:[^"\\]|\\.)*"/g, '""'); // JSON without its texts
    const names = bare.match(/""\s*:/g) ?? [];
    const isOnce = bundle !== null && names.length === Object.keys(bundle).length;
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
    let parsed = null;
    try {
      parsed = JSON.parse(record);
    } catch {
      // said below
    }
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
  return Object.freeze({ Failure, missing, checkpoint, entryId, read, verify, bytes });
})();
