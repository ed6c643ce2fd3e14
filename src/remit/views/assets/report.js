/*
 * What an auditor's report checks of itself, with RemitProof of verify.js: the checkpoint's
 * signature; of each entry the record, its proof, and that each value shown is the record's own;
 * that sums follow from the entries, where all of these are in the file.
 *
 * Whatever does not hold is named in the banner, with its entry. Nothing is asked of the network.
 */
"use strict";

(() => {
  const AT_ONCE = 64; // entries; a browser computes hashes in threads of its own
  const MOST_NAMED = 50;
  const MOST_LINES = 200; // of a table
  const CALLS = ["EXCHANGE", "EXCHANGE_ORPHANED"];

  const $ = (id) => document.getElementById(id);
  const banner = $("banner");

  function element(name, text, kind) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function say(tone, title, text) {
    const line = element("p");
    line.append(element("strong", title), ` ${text}`);
    banner.className = `banner ${tone}`;
    banner.replaceChildren(line);
    banner.dataset.state = tone;
  }

  // -- values in words, as remit.views.wording has them ---------------------------------------

  const MOVING =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;

  /** Text as this page shows it: what moves or turns text is written out. */
  const visible = (text) =>
    text.replace(MOVING, (char) => {
      const code = char.charCodeAt(0);
      return code < 256
        ? `\\x${code.toString(16).padStart(2, "0")}`
        : `\\u${code.toString(16).padStart(4, "0")}`;
    });

  function canonical(value) {
    if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
    if (value === null || typeof value !== "object") return JSON.stringify(value);
    const members = Object.keys(value).sort();
    return `{${members.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }

  function words(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "string") return value;
    if (typeof value === "object" && "$content" in value) {
      return `[content of ${value.bytes} bytes, not included]`;
    }
    if (typeof value === "object" && "$messages" in value) {
      return `[${value.count} messages, not included]`;
    }
    const text = canonical(value);
    const size = new TextEncoder().encode(text).length;
    return size <= 1000 ? text : `[JSON of ${size} bytes]`;
  }

  function at(record, pointer) {
    let value = record;
    for (const name of pointer.split("/").slice(1)) {
      const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
      value = isObject && Object.hasOwn(value, name) ? value[name] : undefined;
    }
    return value;
  }

  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

  function dollars(nano) {
    const sign = nano < 0n ? "-" : "";
    const digits = String(nano < 0n ? -nano : nano).padStart(10, "0");
    const part = digits.slice(-9).replace(/0+$/, "").padEnd(2, "0");
    return `${sign}$${grouped(digits.slice(0, -9))}.${part}`;
  }

  // -- entries ------------------------------------------------------------------------------

  /** Why a row does not show what its record says; "" where it does. */
  function difference(item, record) {
    const shown = item.cloneNode(true);
    for (const apart of shown.querySelectorAll("script, .proof")) apart.remove();
    for (const cell of shown.querySelectorAll("[data-p]")) {
      const pointer = cell.dataset.p;
      const label = cell.tagName === "DD" ? cell.previousElementSibling : null;
      const name = pointer.split("/").pop().replaceAll("_", " ");
      if (cell.tagName === "DD" && (!label || label.textContent !== name)) {
        return `The label of ${pointer} is another one.`;
      }
      const own = visible(words(at(record, pointer)));
      if (cell.textContent !== own) {
        return `It shows ${pointer} as "${cell.textContent}", and its record says "${own}".`;
      }
    }
    for (const known of shown.querySelectorAll("[data-p], dt")) known.remove();
    const rest = shown.textContent.trim();
    return rest ? `It shows "${rest}", which is not of its record.` : "";
  }

  const need = (holds, message) => {
    if (!holds) throw new Error(message);
  };

  /** The record of a row, once all that the row shows is seen to hold. */
  async function checked(item, place, head, nodes) {
    let data;
    try {
      data = JSON.parse(item.querySelector("script").textContent);
      data.proof = data.path.map((index) => nodes[index]);
    } catch {
      throw new Error("Its record in this file cannot be read.");
    }
    const id = RemitProof.entryId(data.seq);
    need(id === item.id, `Its record is that of ${id}.`);
    const record = await RemitProof.entry(data, head);
    const problem = difference(item, record);
    need(!problem, problem);
    need(place.events.includes(record.event_type), `It is no entry for ${place.title}.`);
    if (place.range) {
      const isIn =
        (!head.since || record.timestamp >= head.since) &&
        (!head.until || record.timestamp < head.until);
      need(isIn, "It is not of the range of this report.");
    }
    return { record, data };
  }

  function mark(item, problem, found) {
    const proof = item.querySelector(".proof");
    item.classList.toggle("wrong", Boolean(problem));
    if (problem) {
      proof.replaceWith(element("span", "NOT VERIFIED", "proof badge bad"));
      item.append(element("p", problem, "problem state bad"));
      return;
    }
    const button = element("button", "verified", "proof badge good");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.title = "Show the record";
    button.addEventListener("click", () => {
      const open = item.querySelector("pre");
      button.setAttribute("aria-expanded", String(!open));
      if (open) return open.remove();
      const { record, data } = found;
      const text = `${JSON.stringify(record, null, 2)}\n\nSHA-256 ${data.entry_hash}`;
      return item.append(element("pre", visible(`${text}\nproof of ${data.path.length} hashes`)));
    });
    proof.replaceWith(button);
  }

  // -- sums -----------------------------------------------------------------------------------

  const CERTAINTIES = ["measured", "estimated", "upper_bound", "unpriced"];

  const whole = (value) =>
    Number.isInteger(value) ? Math.max(0, Math.min(value, Number.MAX_SAFE_INTEGER)) : 0;

  const nano = (usd) => BigInt(Math.round(Math.min(usd * 1e9, Number.MAX_SAFE_INTEGER)));

  /** A name as remit.ledger.usage keeps it: of a very long one its beginning and a hash. */
  async function kept(value) {
    const text = typeof value === "string" ? value.replaceAll("\0", "\ufffd") : "";
    const bytes = new TextEncoder().encode(text);
    if (bytes.length <= 200) return text;
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const hash = Array.from(digest.slice(0, 8), (byte) => byte.toString(16).padStart(2, "0"));
    // A stream leaves out a character of which a part is missing.
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return `${decoder.decode(bytes.slice(0, 160), { stream: true })}\u2026${hash.join("")}`;
  }

  /** What an entry adds to usage, as remit.ledger.usage has it; null where that is nothing. */
  async function usageOf({ event_type, metadata }) {
    const isCall = CALLS.includes(event_type);
    const places = [metadata, metadata.provenance, metadata.scope];
    const place = places.find((one) => at({ one }, "/one/tier") !== undefined);
    const isOwn = typeof place?.tier !== "string" || ["", "hot"].includes(place.tier);
    if (!isCall && (event_type !== "BUDGET_DEBIT" || !isOwn)) return null;
    const isOrphan = event_type === "EXCHANGE_ORPHANED";
    const used = isOrphan
      ? [whole(metadata.settled_tokens), 0]
      : [whole(metadata.input_tokens), whole(metadata.output_tokens)];
    const isPriced = typeof metadata.cost_usd === "number";
    const isUnpriced = !isPriced && used[0] + used[1] > 0;
    const certainty = CERTAINTIES.includes(metadata.cost_certainty)
      ? metadata.cost_certainty
      : isUnpriced ? "unpriced" : "measured";
    const names = { "/metadata/cost_certainty": certainty };
    for (const name of ["agent_id", "contract_id", "model_id", "key_id", "user_id"]) {
      names[`/metadata/${name}`] = await kept(metadata[name]);
    }
    const sum = {
      calls: Number(isCall),
      failed: Number(isCall && metadata.outcome !== "success"),
      input_tokens: used[0],
      output_tokens: used[1],
      nano: isPriced && metadata.cost_usd > 0 ? nano(metadata.cost_usd) : 0n,
      unpriced_calls: Number(isUnpriced),
    };
    return { of: (pointer) => names[pointer], sum };
  }

  /** An entry by itself, as remit.views.report_sums counts it. */
  function counted(record) {
    const usd = record.metadata.cost_usd;
    const sum = { entries: 1, nano: typeof usd === "number" ? nano(usd) : 0n };
    return { of: (pointer) => words(at(record, pointer)), sum };
  }

  const figure = (sum, name) =>
    name === "nano" ? dollars(sum?.nano ?? 0n) : grouped(String(sum?.[name] ?? 0));

  function groups(items, pointers) {
    const found = new Map();
    for (const { of, sum } of items) {
      const key = JSON.stringify(pointers.map(of));
      const known = found.get(key);
      if (!known) found.set(key, { ...sum });
      else for (const name of Object.keys(sum)) known[name] += sum[name];
    }
    return found;
  }

  /** What a table says that the entries do not. */
  function* wrongSums(table, items) {
    const found = groups(items, table.dataset.by.split(" ").filter(Boolean));
    for (const row of table.tBodies[0].rows) {
      const of = row.dataset.of || "";
      const names = [...row.querySelectorAll("th")].map((cell) => cell.textContent);
      let own = null;
      try {
        own = JSON.parse(of).map((name) => visible(name) || "(none)");
      } catch {
        // said below
      }
      if (!own || canonical(own.length ? own : ["in all"]) !== canonical(names)) {
        yield `The line "${names.join(", ")}" is not named as what it adds up.`;
        continue;
      }
      const sum = found.get(canonical(JSON.parse(of)));
      for (const cell of row.querySelectorAll("[data-sum]")) {
        const right = figure(sum, cell.dataset.sum);
        if (cell.textContent !== right) {
          yield `${names.join(", ")}: "${cell.textContent}" stands there, the entries give ${right}.`;
        }
      }
      found.delete(canonical(JSON.parse(of)));
    }
    if (found.size && table.tBodies[0].rows.length < MOST_LINES) {
      yield `Lines are missing: ${[...found.keys()].slice(0, 3).join(" ")}.`;
    }
  }

  /** Tables and headline figures; gives how many tables were added up again. */
  async function checkSums(records, problems) {
    const usage = (await Promise.all(records.map(usageOf))).filter(Boolean);
    let tables = 0;
    for (const table of document.querySelectorAll("table[data-by]")) {
      if (table.dataset.whole !== "yes") continue;
      const before = problems.length;
      const events = table.dataset.events.split(" ");
      const items =
        table.dataset.usage === "yes"
          ? usage
          : records.filter((record) => events.includes(record.event_type)).map(counted);
      for (const text of wrongSums(table, items)) problems.push({ where: table.id, text });
      const basis = $(table.id.replace("sum", "basis"));
      if (basis && problems.length === before) {
        basis.textContent = "Added up again in your browser from the entries in this file: it agrees.";
      }
      tables += 1;
    }
    const [total] = groups(usage, []).values();
    for (const cell of document.querySelectorAll("[data-total]")) {
      const right = figure(total, cell.dataset.total);
      if (document.querySelector('table[data-whole="no"]#sum-agents')) break;
      if (cell.textContent !== right) {
        const text = `"${cell.textContent}" stands there, the entries give ${right}.`;
        problems.push({ where: "the figures at the top", text });
      }
    }
    return tables;
  }

  // -- the whole ------------------------------------------------------------------------------

  async function readHead() {
    const parsed = JSON.parse($("head").textContent);
    const head = await RemitProof.checkpoint(parsed.checkpoint, parsed.verifier_key);
    const print = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(parsed.verifier_key));
    const digits = Array.from(new Uint8Array(print), (byte) => byte.toString(16).padStart(2, "0"));
    const shown = {
      note: visible(parsed.checkpoint),
      vkey: visible(parsed.verifier_key),
      fingerprint: digits.join("").match(/.{4}/g).join(" "),
    };
    for (const [id, text] of Object.entries(shown)) {
      need($(id).textContent === text, `The ${id} that is shown is not the one that was checked.`);
    }
    return { ...head, since: parsed.since, until: parsed.until, vkey: parsed.verifier_key };
  }

  function askForKey(head) {
    const label = element("label", "The verifier key that you were given: ");
    const input = element("input");
    const answer = element("span", "", "answer");
    input.spellcheck = false;
    input.autocomplete = "off";
    label.append(input);
    input.addEventListener("input", () => {
      const given = input.value.trim();
      const isIt = given === head.vkey;
      answer.className = `answer badge ${isIt ? "good" : "bad"}`;
      answer.textContent = isIt ? "It is the key of this file." : "It is NOT the key of this file.";
      answer.hidden = !given;
    });
    const line = element("p", undefined, "ask");
    answer.hidden = true;
    line.append(label, answer);
    banner.append(line);
  }

  function conclude(entries, tables, problems, head) {
    if (!problems.length) {
      const others = document.querySelectorAll('table[data-whole="no"]').length;
      const sums =
        (tables ? ` ${tables} tables follow from them.` : "") +
        (others ? ` ${others} tables are sums that cannot be checked here.` : "");
      say(
        "good",
        "Verified in your browser.",
        `All ${grouped(String(entries))} entries listed are on record under a checkpoint of ` +
          `${grouped(String(head.size))} entries, and each shows what its record says.${sums} ` +
          `That the key is the one of ${head.origin} only you can know:`,
      );
      askForKey(head);
      return;
    }
    const many = problems.length === 1 ? "1 thing does" : `${problems.length} things do`;
    say("bad", "NOT VERIFIED.", `${many} not hold in this file:`);
    const list = element("ul");
    for (const { where, text } of problems.slice(0, MOST_NAMED)) {
      const line = element("li");
      const link = element($(where) ? "a" : "span", where);
      if ($(where)) link.href = `#${where}`;
      line.append(link, `: ${text}`);
      list.append(line);
    }
    banner.append(list);
  }

  /** Rows with the list that they stand in; a row that stands nowhere is a problem. */
  function* rows(problems) {
    const seen = new Set();
    for (const list of document.querySelectorAll("ol[data-events]")) {
      const place = {
        events: list.dataset.events.split(" "),
        title: list.parentElement.querySelector("h3").textContent,
        range: list.dataset.range === "yes",
      };
      const items = [...list.children];
      if (items.length !== Number(list.dataset.listed)) {
        const text = `${items.length} entries are listed, and it says ${list.dataset.listed}.`;
        problems.push({ where: list.parentElement.id, text });
      }
      for (const item of items) {
        if (seen.has(item.id)) problems.push({ where: item.id, text: "It is listed twice." });
        seen.add(item.id);
        yield [item, place];
      }
    }
  }

  async function check() {
    const lacking = await RemitProof.missing();
    if (lacking) {
      say("wait", "Nothing was checked.", `${lacking} See below how to check it by hand.`);
      return;
    }
    const problems = [];
    const all = [...rows(problems)];
    let head;
    let nodes;
    try {
      nodes = JSON.parse($("nodes").textContent);
      head = await readHead();
    } catch (error) {
      for (const [item] of all) mark(item, "No entry can be proven without the checkpoint.");
      problems.unshift({ where: "log", text: `The checkpoint does not hold. ${error.message}` });
      conclude(0, 0, problems, null);
      return;
    }
    const records = [];
    for (let start = 0; start < all.length; start += AT_ONCE) {
      say("wait", "Checking.", `${start} of ${all.length} entries.`);
      const part = all.slice(start, start + AT_ONCE).map(async ([item, place]) => {
        try {
          const found = await checked(item, place, head, nodes);
          mark(item, "", found);
          if (place.range) records.push(found.record);
        } catch (error) {
          mark(item, error.message);
          problems.push({ where: item.id, text: error.message });
        }
      });
      await Promise.all(part);
    }
    // Of entries that do not hold no sum follows.
    const tables = problems.length ? 0 : await checkSums(records, problems);
    conclude(all.length, tables, problems, head);
  }

  check().catch((error) => {
    say("bad", "NOT VERIFIED.", `The check itself failed, and says nothing: ${error.message}`);
  });
})();
