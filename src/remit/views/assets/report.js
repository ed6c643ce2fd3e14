/*
 * Builds an auditor's report from proven data, with RemitProof of verify.js and the texts of REPORT.
 *
 *   1. The document that the file came with is replaced at once: its markup is never shown again.
 *   2. The data set is read from the script element with the id `data`. The file may hold no other
 *      markup that could act, such as a script, a style or a frame.
 *   3. RemitProof checks the checkpoint's signature. The tree's root must follow from the records
 *      and hashes of the data set.
 *   4. Every heading, row, sum and figure is made from these records and from REPORT.
 *
 * If a check fails, the page says NOT VERIFIED and shows no entry. The script requests nothing from
 * the network. Numbers that no proof covers stand in one section, which says so.
 */
"use strict";

(() => {
  const PAGE = 200; // rows that a list adds at once
  const OPEN = 12; // the longest list that is open from the start
  const DATA = [
    "format", "checkpoint", "verifier_key", "since", "until", "first", "end", "stated", "records",
    "hashes",
  ];
  const STATED = {
    verification: ["contents", "entries", "erased", "problem_count", "unread", "verified"],
    gates: ["checked", "passed"],
    total: [
      "entries", "calls", "failed", "nano", "unpriced_calls", "input_tokens", "output_tokens",
    ],
  };
  // Entries outside the range that may explain it.
  const CHOSEN = ["KEY_CREATED", "GATE_PASSED", "GATE_FAILED", "ARCHIVED"];
  // All that the document of a report consists of.
  const TAGS = new Set(
    ("HTML HEAD META TITLE STYLE BODY HEADER MAIN SECTION DIV P H1 H2 OL LI STRONG CODE NOSCRIPT " +
      "SCRIPT").split(" "),
  );
  const ATTRIBUTES = new Set("lang charset http-equiv content name class id type".split(" "));

  const { utf8, hex, join, sha256, unbase64 } = RemitProof.bytes;
  const { canonical, isObject, isCount, TIME } = RemitProof;
  const shownOf = new Map(Object.entries(REPORT.shown));
  const writersOf = new Map(Object.entries(REPORT.authentic));

  const need = (holds, message) => {
    if (!holds) throw new Error(message);
  };

  // -- the document -----------------------------------------------------------------------------

  // A name in the markup hides a property of `document`, but not one of Document.prototype.
  const get = (name) => Reflect.get(Document.prototype, name, document);
  const own = get("currentScript");
  const given = get("documentElement");

  function make(name, kind, ...children) {
    const made = Document.prototype.createElement.call(document, name);
    if (kind) made.className = kind;
    made.append(...children);
    return made;
  }

  const root = make("html");
  const banner = make("div", "banner wait");
  const main = make("main");

  function takeOver() {
    const style = make("style", "", REPORT.style);
    const charset = make("meta");
    charset.setAttribute("charset", "utf-8");
    const metas = [
      ["viewport", "width=device-width, initial-scale=1"],
      ["color-scheme", "light dark"],
      ["referrer", "no-referrer"],
    ].map(([name, content]) => Object.assign(make("meta"), { name, content }));
    root.lang = "en";
    root.append(make("head", "", charset, ...metas, make("title"), style), make("body"));
    Node.prototype.replaceChild.call(document, root, given);
    banner.id = "banner";
    banner.setAttribute("role", "status");
    open("Report", "wait", "Checking.");
  }

  /** Show a page without entries: its title and the banner. */
  function open(title, tone, verdict, text = "") {
    document.title = `${verdict.replace(/\.$/, "")}: Remit report`;
    const over = make("p", "over", "Remit \u00b7 report for an auditor");
    const skip = Object.assign(make("a", "skip", "Skip to the report"), { href: "#report" });
    main.id = "report";
    main.replaceChildren();
    banner.className = `banner ${tone}`;
    banner.dataset.state = tone;
    banner.replaceChildren(make("p", "", make("strong", "", verdict), ` ${text}`));
    document.body.replaceChildren(
      skip, make("header", "top", over, make("h1", "", visible(title)), banner), main,
    );
  }

  const progress = (done, all) =>
    open("Report", "wait", "Checking.", `${grouped(done)} of ${grouped(all)} entries.`);

  /** A fixed text of this script as elements. */
  function prose(markup) {
    const holder = make("div");
    holder.innerHTML = markup;
    return [...holder.children];
  }

  /** Raise an error if the file holds markup that Remit does not write and that could act. */
  async function checkMarkup(data) {
    const { compatMode, contentType } = document;
    need(compatMode === "CSS1Compat" && contentType === "text/html", "The file is not an HTML page.");
    need(window === window.top, "The file is shown inside another page. Open it by itself.");
    const script = own.textContent;
    const hashes = await Promise.all(
      [script, REPORT.style].map(async (text) => base64(await sha256(utf8(text)))),
    );
    const policy =
      `default-src 'none'; script-src 'sha256-${hashes[0]}'; style-src 'sha256-${hashes[1]}'; ` +
      "base-uri 'none'; form-action 'none'";
    const counts = { SCRIPT: 0, STYLE: 0, policy: 0 };
    for (const one of [given, ...given.querySelectorAll("*")]) {
      need(TAGS.has(one.tagName) && !one.shadowRoot, `The file has a foreign element <${one.localName}>.`);
      for (const { name } of one.attributes) {
        need(ATTRIBUTES.has(name), `The file has a foreign attribute, ${name} of <${one.localName}>.`);
      }
      if (one.tagName === "SCRIPT") {
        const isOwn = one === own ? !one.attributes.length : one === data;
        need(isOwn, "The file has a foreign script.");
      } else if (one.tagName === "STYLE") {
        need(one.textContent === REPORT.style, "The file has a foreign style sheet.");
      } else if (one.tagName === "META" && one.httpEquiv) {
        const isPolicy = one.httpEquiv === "Content-Security-Policy" && one.content === policy;
        need(isPolicy, "The file has a foreign content security policy or meta element.");
        counts.policy += 1;
      }
      if (one.tagName in counts) counts[one.tagName] += 1;
    }
    const isWhole = counts.SCRIPT === 2 && counts.STYLE === 1 && counts.policy === 1;
    need(isWhole, "The file lacks its style sheet, its policy or its data.");
  }

  // -- values as text, as remit.views.wording does it ---------------------------------------------

  const MOVING =
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;

  const escaped = (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;

  /** Text in which characters that move, colour or turn text are written out. */
  const visible = (text) =>
    text.replace(MOVING, (char) =>
      char < "\u0100" ? `\\x${hex([char.charCodeAt(0)])}` : escaped(char),
    );

  const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

  function words(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "string") return value;
    if (isObject(value) && "$content" in value) {
      return `[content of ${value.bytes} bytes, not included]`;
    }
    if (isObject(value) && "$messages" in value) {
      return `[${value.count} messages, not included]`;
    }
    const text = canonical(value);
    const size = utf8(text).length;
    return size <= 1000 ? text : `[JSON of ${size} bytes]`;
  }

  function at(record, pointer) {
    let value = record;
    for (const name of pointer.split("/").slice(1)) {
      value = isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    }
    return value;
  }

  const isEmpty = (value) => ["", "[]", "{}", "null"].includes(value === "" ? "" : canonical(value ?? null));

  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

  const count = (number, noun, many = `${noun}s`) =>
    `${grouped(number)} ${number === 1 ? noun : many}`;

  function dollars(nano) {
    const sign = nano < 0n ? "-" : "";
    const digits = String(nano < 0n ? -nano : nano).padStart(10, "0");
    const part = digits.slice(-9).replace(/0+$/, "").padEnd(2, "0");
    return `${sign}$${grouped(digits.slice(0, -9))}.${part}`;
  }

  // -- the data set -------------------------------------------------------------------------------

  function readData() {
    const found = [...given.querySelectorAll("script")].filter((one) => one !== own);
    need(found.length === 1, "The file does not have exactly one data set.");
    const [element] = found;
    const names = [...element.attributes].map(({ name, value }) => `${name}=${value}`).sort();
    need(String(names) === "id=data,type=application/json", "The data set is not marked as such.");
    const text = element.textContent;
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      throw new Error("The data set is not JSON.");
    }
    const isData = isObject(data) && String(Object.keys(data)) === String(DATA);
    need(isData && data.format === REPORT.format, "The data set has other members than a report's.");
    // One spelling: no key twice, no white space, no other number or escape.
    const again = JSON.stringify(data).replace(MOVING, escaped).replace(/[<>&']/g, escaped);
    need(again === text, "The data set is not written as Remit writes it.");
    const { checkpoint, verifier_key, since, until, first, end, records, hashes } = data;
    const isKey = typeof verifier_key === "string" && /^\S+$/.test(verifier_key);
    need(typeof checkpoint === "string" && isKey, "The checkpoint or the key is malformed.");
    for (const time of [since, until]) {
      need(time === null || TIME.test(time), "The range of the report is malformed.");
    }
    need(isCount(first) && isCount(end) && first <= end, "The range of the report is malformed.");
    for (const list of [records, hashes]) {
      const isTexts = Array.isArray(list) && list.every((one) => typeof one === "string");
      need(isTexts, "The records or hashes are malformed.");
    }
    checkStated(data.stated);
    return { data, element };
  }

  /** Raise an error if statements without proof are more than numbers and times. */
  function checkStated(stated) {
    const names = isObject(stated) ? String(Object.keys(stated)) : "";
    const isStated = names === "made_at,verification,gates,total" && TIME.test(stated.made_at);
    need(isStated, "What the maker states is malformed.");
    for (const [name, members] of Object.entries(STATED)) {
      const one = stated[name];
      if (one === null) continue;
      const isPlain =
        isObject(one) &&
        String(Object.keys(one)) === String(members) &&
        members.every((member) =>
          member === "verified" ? typeof one[member] === "boolean" : isCount(one[member]),
        );
      need(isPlain, "What the maker states is malformed.");
    }
  }

  /** The range: its entries, how many of them are missing, and the other entries of the file. */
  function readRange({ since, until, first, end }, entries, size) {
    const find = (seq) => entries.find((one) => one.seq === seq)?.record;
    const [before, after] = [find(first - 1), find(end)];
    need(end <= size, "The range is longer than the ledger.");
    need(since !== null || first === 0, "The range does not begin where it says.");
    need(first === 0 || (before && before.timestamp < since),
      "The entry before the range is missing, or belongs to the range.");
    need(until !== null || end === size, "The range does not end where it says.");
    need(since === null || until === null || since < until, "The range ends before it begins.");
    need(end === size || (after && after.timestamp >= until),
      "The entry after the range is missing, or belongs to the range.");
    const isInside = ({ seq }) => seq >= first && seq < end;
    const isInTime = ({ record }) =>
      (since === null || record.timestamp >= since) && (until === null || record.timestamp < until);
    const inside = entries.filter(isInside);
    // A wider range of numbers than the times need would hide the entries at its ends.
    const [start, last] = [inside[0], inside[inside.length - 1]].map((one) => one?.record.timestamp);
    need(!inside.length || ((since === null || start >= since) && (until === null || last < until)),
      "The entries at the ends of the range do not belong to it.");
    const others = entries.filter((one) => !isInside(one));
    for (const { record } of others) {
      const isKnown = record === before || record === after || CHOSEN.includes(record.event_type);
      need(isKnown, `${record.id} is not an entry of the range.`);
    }
    const missing = end - first - inside.length;
    const isShort = end - first <= REPORT.wholeRange;
    const archives = archivesOf(entries);
    if (missing && isShort) {
      const { cut, left } = archives;
      const present = inside.filter(({ seq }) => seq < cut).length;
      const gone = Math.max(0, Math.min(end, cut) - first) - present;
      need(missing === gone && gone <= left,
        `${count(missing, "entry", "entries")} of the range ${missing === 1 ? "is" : "are"} missing.`);
    }
    const listed = inside.filter(isInTime);
    return {
      since, until, first, end, before, after, listed, missing, isShort, archives,
      otherTimes: inside.length - listed.length,
      chosen: others.filter(({ record }) => CHOSEN.includes(record.event_type)),
    };
  }

  /** What ARCHIVED entries say: entries before `cut` may be archived, `left` in all. */
  function archivesOf(entries) {
    const archives = entries
      .map(({ record }) => record)
      .filter((record) => record.event_type === "ARCHIVED" && isAuthentic(record))
      .map(({ metadata }) => metadata);
    return {
      cut: Math.max(0, ...archives.map((one) => whole(one.end))),
      left: archives.reduce((sum, one) => sum + whole(one.entries), 0),
    };
  }

  /** Whether the writer of an entry may write this event, as remit.ledger.is_authentic says. */
  function isAuthentic({ event_type, metadata }) {
    const writers = writersOf.get(event_type);
    if (!writers) return true;
    const known = tierOf(metadata) ?? "hot";
    const tier = ["hot", "ho2", "ho1"].includes(known) ? known : "other";
    const isOperator = at(metadata, "/provenance/agent_class") === "OPERATOR";
    return writers.includes(isOperator ? `${tier} operator` : tier);
  }

  function tierOf(metadata) {
    const places = [metadata, metadata.provenance, metadata.scope];
    const value = places.find((one) => isObject(one) && Object.hasOwn(one, "tier"))?.tier;
    return typeof value === "string" && value ? value : null;
  }

  // -- sums ---------------------------------------------------------------------------------------

  const whole = (value) =>
    Number.isInteger(value) ? Math.max(0, Math.min(value, Number.MAX_SAFE_INTEGER)) : 0;

  /** US dollars in billionths, rounded half to even as Python does. */
  function nano(usd) {
    const value = Math.min(usd * 1e9, Number.MAX_SAFE_INTEGER);
    const rounded = Math.round(value);
    return BigInt(rounded - value === 0.5 && rounded % 2 ? rounded - 1 : rounded);
  }

  /** The virtual key that a call names, or else that among the accounts that paid for it. */
  function keyOf({ key_id, charged_to }) {
    const isNamed = ![undefined, null, "", 0, false].includes(key_id);
    if (isNamed || !Array.isArray(charged_to)) return key_id;
    const found = charged_to.find((one) => typeof one === "string" && one.startsWith("key:"));
    return found?.slice(4);
  }

  /** What an entry adds to usage, as remit.ledger.usage counts it; null if it adds nothing. */
  function usageOf({ event_type, metadata }) {
    const isCall = REPORT.calls.includes(event_type);
    const isOwn = [null, "hot"].includes(tierOf(metadata));
    if (!isCall && (event_type !== "BUDGET_DEBIT" || !isOwn)) return null;
    const used =
      event_type === "EXCHANGE_ORPHANED"
        ? [whole(metadata.settled_tokens), 0]
        : [whole(metadata.input_tokens), whole(metadata.output_tokens)];
    const isPriced = typeof metadata.cost_usd === "number";
    const isUnpriced = !isPriced && used[0] + used[1] > 0;
    const certainty = REPORT.certainties.includes(metadata.cost_certainty)
      ? metadata.cost_certainty
      : isUnpriced ? "unpriced" : "measured";
    const named = {
      ...metadata, cost_certainty: certainty, key_id: keyOf(metadata),
    };
    const of = (pointer) => {
      const value = at({ metadata: named }, pointer);
      return typeof value === "string" ? value : "";
    };
    const sum = {
      calls: BigInt(isCall),
      failed: BigInt(isCall && metadata.outcome !== "success"),
      input_tokens: BigInt(used[0]),
      output_tokens: BigInt(used[1]),
      nano: isPriced && metadata.cost_usd > 0 ? nano(Math.min(metadata.cost_usd, 1e9)) : 0n,
      unpriced_calls: BigInt(isUnpriced),
    };
    return { of, sum };
  }

  /** An entry by itself, as remit.views.report_sums counts it. */
  function countedOf(record) {
    const usd = record.metadata.cost_usd;
    const sum = { entries: 1n, nano: typeof usd === "number" ? nano(usd) : 0n };
    return { of: (pointer) => words(at(record, pointer)), sum };
  }

  /** Lines of a table, the most expensive first: {names, sum}. */
  function linesOf(table, records) {
    const items = table.isUsage
      ? records.map(usageOf).filter(Boolean)
      : records.filter((record) => table.events.includes(record.event_type)).map(countedOf);
    const found = new Map();
    for (const { of, sum } of items) {
      const names = table.by.map(of);
      const key = JSON.stringify(names);
      const known = found.get(key);
      if (!known) found.set(key, { names, sum: { ...sum } });
      else for (const name of Object.keys(sum)) known.sum[name] += sum[name];
    }
    const number = table.isUsage ? "calls" : "entries";
    const order = (one, other) =>
      Number(other.sum.nano - one.sum.nano) ||
      Number(other.sum[number] - one.sum[number]) ||
      (String(one.names) < String(other.names) ? -1 : 1);
    return [...found.values()].sort(order);
  }

  const figure = (sum, name) =>
    name === "nano" ? dollars(sum?.nano ?? 0n) : grouped(sum?.[name] ?? 0n);

  // -- the page -----------------------------------------------------------------------------------

  const cell = (name, scope, kind, text) =>
    Object.assign(make(name, kind, text), scope ? { scope } : {});

  function tableOf(table, lines) {
    const heads = make("tr", "",
      ...table.heads.map((head) => cell("th", "col", "name", head)),
      ...table.columns.map(([, head]) => cell("th", "col", "", head)));
    const body = lines.slice(0, REPORT.mostLines).map(({ names, sum }) =>
      make("tr", "",
        ...names.map((name) => cell("th", "row", name ? "" : "gone", visible(name) || "(none)")),
        ...table.columns.map(([name]) => make("td", "", figure(sum, name)))));
    const made = make("table", "figures", make("thead", "", heads), make("tbody", "", ...body));
    made.id = `sum-${table.name}`;
    const found = [region(made, `Sums by ${table.heads.join(" and ")}`)];
    const rest = lines.length - body.length;
    if (rest) found.push(make("p", "sub", `${count(rest, "more line is", "more lines are")} not shown.`));
    return found;
  }

  /** A part of the page that scrolls by keyboard if it is too wide. */
  function region(content, label) {
    const made = make("div", "wide", content);
    made.tabIndex = 0;
    made.setAttribute("role", "region");
    made.setAttribute("aria-label", label);
    return made;
  }

  function rowOf({ record, hash }, isBrief) {
    const button = make("button", "badge", "record");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", `record of ${record.id}`);
    const line = make("div", "line",
      make("code", "id", record.id),
      make("span", "time", record.timestamp),
      make("strong", "", visible(record.event_type)),
      make("span", "decision", visible(record.decision)),
      button);
    const item = make("li", "entry", line);
    item.id = record.id;
    const known = (isBrief ? [] : shownOf.get(record.event_type) ?? ["/reason"])
      .map((pointer) => [pointer.split("/").pop().replaceAll("_", " "), at(record, pointer)])
      .filter(([, value]) => !isEmpty(value))
      .map(([label, value]) =>
        make("div", "", make("dt", "", label), make("dd", "", visible(words(value)))));
    if (known.length) item.append(make("dl", "known", ...known));
    if (!isAuthentic(record)) {
      const text = "This entry has no effect: the tier that wrote it may not write such entries.";
      item.append(make("p", "state bad", text));
    }
    button.addEventListener("click", () => {
      const shown = item.querySelector("pre");
      button.setAttribute("aria-expanded", String(!shown));
      if (shown) return shown.remove();
      const text = `${JSON.stringify(record, null, 2)}\n\nSHA-256 ${hash}`;
      const made = make("pre", "", visible(text));
      made.tabIndex = 0;
      return item.append(made);
    });
    return item;
  }

  /** A list of entries; long ones are filled when somebody opens them, a page at a time. */
  function listOf({ name, title, about }, entries, isBrief = false) {
    const list = make("ol");
    const more = make("button", "badge", "");
    more.type = "button";
    const facts = make("span", "facts", make("span", "", grouped(entries.length)));
    const made = make("details", "list", make("summary", "", make("h3", "", title), facts));
    made.id = name;
    if (about) made.append(make("p", "sub", about));
    made.append(list, more);
    const fill = () => {
      const start = list.childElementCount;
      const rows = entries.slice(start, start + PAGE);
      list.append(...rows.map((entry) => rowOf(entry, isBrief)));
      const rest = entries.length - start - rows.length;
      more.hidden = !rest;
      more.textContent = `Show ${grouped(Math.min(PAGE, rest))} more of ${grouped(rest)}`;
    };
    more.addEventListener("click", fill);
    window.addEventListener("beforeprint", () => {
      while (list.childElementCount < entries.length) fill();
    });
    const isShort = entries.length <= OPEN;
    made.open = isShort && !isBrief;
    if (made.open) fill();
    else made.addEventListener("toggle", fill, { once: true });
    return made;
  }

  function partOf(part, range, tables) {
    const known = new Set(REPORT.sections.flatMap((one) => one.events));
    const section = make("section", "turn part", make("header", "", make("h2", "", part.title)));
    section.id = part.name;
    if (part.about) section.append(make("p", "sub", part.about));
    const start = section.childElementCount;
    for (const [table, lines] of tables) {
      if (table.part !== part.name || !table.by.length || !lines.length) continue;
      section.append(...tableOf(table, lines));
    }
    for (const one of REPORT.sections.filter((found) => found.part === part.name)) {
      const found = range.listed.filter(({ record }) => one.events.includes(record.event_type));
      if (found.length) section.append(listOf(one, found));
    }
    const rest = range.listed.filter(({ record }) => !known.has(record.event_type));
    if (part.name === "rest" && rest.length) {
      section.append(listOf({ name: "others", title: "Entries of other types" }, rest, true));
    }
    if (section.childElementCount === start) {
      section.append(make("p", "gone", "No such entry in this file."));
    }
    return section;
  }

  const edge = (record) => `${record.id} (${record.timestamp})`;

  function completeness(range) {
    const { first, end, listed, missing, isShort, archives, before, after, otherTimes } = range;
    const many = end - first;
    const span = many
      ? `${RemitProof.entryId(first)} to ${RemitProof.entryId(end - 1)}, ${count(many, "entry", "entries")}`
      : "no entry";
    const lines = [];
    if (!missing) {
      lines.push(["good", "Complete.", `The range is ${span}. All of them are in this file; none is missing.`]);
    } else if (isShort) {
      lines.push(["wait", "Not complete: entries were archived.",
        `The range is ${span}. ${count(missing, "entry is", "entries are")} not in this file. ARCHIVED ` +
          `entries say that ${count(archives.left, "entry", "entries")} before ` +
          `${RemitProof.entryId(archives.cut)} were archived. The file cannot show which: an entry that ` +
          "the maker left out can pass as one of them. The file has only their hashes, and no sum " +
          "below includes them. To see them, check the archive."]);
    } else {
      lines.push(["wait", "Not complete: a selection.",
        `The range is ${span}. This file has ${count(many - missing, "entry", "entries")} of it. ` +
          "Each of them is proven, but the file cannot show that the maker left no other out. Sums " +
          "below are those of the entries in this file."]);
    }
    const edges = [
      before ? `The entry before the range is ${edge(before)}.` : "The range begins with the ledger.",
      after ? `The entry after it is ${edge(after)}.` : "The range ends with the checkpoint.",
    ];
    if (otherTimes) {
      edges.push(`${count(otherTimes, "entry between has", "entries between have")} a time outside the ` +
        "range, because a clock was changed. These are neither listed nor added up.");
    }
    lines.push(["", "", edges.join(" ")]);
    if (!listed.length) lines.push(["", "", "No entry of this file has a time in the range."]);
    return lines.map(([tone, title, text]) =>
      make("p", tone ? `state ${tone}` : "sub", ...(title ? [make("strong", "", title), " "] : []), text));
  }

  function stated({ made_at, verification, gates, total }, chosen) {
    const section = make("section", "turn part stated",
      make("header", "", make("h2", "", "Stated by the maker of this file, not proven")),
      make("p", "sub", "Whoever made or changed this file can write any number here."));
    section.id = "stated";
    const lines = [`This file was made at ${made_at}.`];
    if (!verification) lines.push("The ledger was not verified for this file.");
    else {
      const { verified, entries, contents, erased, problem_count, unread } = verification;
      lines.push(
        (verified ? "The ledger verified" : "The ledger did NOT verify") +
          ` when the file was made: ${count(entries, "entry", "entries")}, ` +
          `${count(contents, "content value")}, ${grouped(erased)} erased, ` +
          `${count(problem_count, "problem")}.` +
          (unread ? ` ${count(unread, "entry was", "entries were")} not read again.` : ""));
    }
    lines.push(gates ? `${grouped(gates.passed)} of ${count(gates.checked, "gate")} passed.`
      : "The gates were not checked for this file.");
    if (total) {
      lines.push(
        `Sums over all ${count(total.entries, "entry", "entries")} of the range: ` +
          `${count(total.calls, "call")}, ${grouped(total.failed)} failed, ` +
          `${dollars(BigInt(total.nano))}, ${grouped(total.unpriced_calls)} unpriced, ` +
          `${grouped(total.input_tokens)} tokens in, ${grouped(total.output_tokens)} tokens out.`);
    }
    section.append(make("ul", "plain", ...lines.map((line) => make("li", "", line))));
    if (chosen.length) {
      section.append(listOf({
        name: "chosen", title: "Entries outside the range",
        about: "Each entry is proven. Which of them are here is the maker's choice: keys that the " +
          "range uses, gates, archives.",
      }, chosen));
    }
    return section;
  }

  async function sources(head, note, key) {
    const print = hex(await sha256(utf8(key))).match(/.{4}/g).join(" ");
    const section = make("section", "turn part",
      make("header", "", make("h2", "", "Checkpoint and key")),
      make("p", "sub", "All records above lead to this checkpoint by RFC 6962 hashes. This key signed it. ",
        make("strong", "", "Compare the key with the one that you were given by another way"),
        ", and keep the checkpoint."),
      make("h3", "", "Verifier key"), make("pre", "", visible(key)),
      make("p", "fingerprint", make("span", "sub", "its SHA-256 "), make("code", "", print)),
      make("h3", "", `Checkpoint of ${count(head.size, "entry", "entries")}`),
      make("pre", "", visible(note)));
    section.id = "log";
    return section;
  }

  /** The signed text of a checkpoint with the signature that was checked, without others. */
  function ownNote(note, { name, id }) {
    const end = note.lastIndexOf("\n\n") + 2;
    const lines = note.slice(end).split("\n").filter((line) => {
      const start = `\u2014 ${name} `;
      const data = line.startsWith(start) && unbase64(line.slice(start.length));
      return data && hex(data.slice(0, 4)) === id;
    });
    need(lines.length === 1, "The checkpoint is not signed exactly once by its key.");
    return `${note.slice(0, end)}${lines[0]}\n`;
  }

  /** When a witness (a C2SP cosigner, type 4) cosigned the checkpoint; null if it did not. */
  async function cosigned(note, vkey) {
    const found = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(vkey);
    const key = found && unbase64(found[3], 33);
    if (!key || key[0] !== 4) return null;
    const end = note.lastIndexOf("\n\n") + 1;
    for (const line of note.slice(end + 1).split("\n")) {
      const start = `\u2014 ${found[1]} `;
      const data = line.startsWith(start) ? unbase64(line.slice(start.length), 76) : null;
      if (!data || hex(data.slice(0, 4)) !== found[2]) continue;
      const time = new DataView(data.buffer).getBigUint64(4);
      const text = utf8(`cosignature/v1\ntime ${time}\n${note.slice(0, end)}`);
      const own = await crypto.subtle.importKey("raw", key.slice(1), "Ed25519", false, ["verify"]);
      if (await crypto.subtle.verify("Ed25519", own, data.slice(12), text)) return Number(time);
    }
    return null;
  }

  function askForKey(key, note) {
    const input = make("input");
    const answer = make("span", "answer badge");
    input.spellcheck = false;
    input.autocomplete = "off";
    answer.hidden = true;
    answer.setAttribute("role", "status");
    input.addEventListener("input", async () => {
      const given = input.value.trim();
      const time = given === key ? null : await cosigned(note, given).catch(() => null);
      if (given !== input.value.trim()) return; // another key was typed meanwhile
      const text = given === key
        ? "This is the key of this file."
        : time === null
          ? "NOT the key of this file, nor of a witness that cosigned it."
          : `This witness cosigned the checkpoint at ${new Date(time * 1000).toISOString()}.`;
      answer.className = `answer badge ${given === key || time !== null ? "good" : "bad"}`;
      answer.textContent = text;
      answer.hidden = !given;
    });
    const label = make("label", "", "The verifier key that you were given (or a witness's): ", input);
    return make("p", "ask", label, answer);
  }

  async function show(data, head, entries) {
    const range = readRange(data, entries, head.size);
    const records = range.listed.map(({ record }) => record);
    const tables = REPORT.tables.map((table) => [table, linesOf(table, records)]);
    const note = ownNote(data.checkpoint, head.key);
    open(head.origin, "good", "Verified in your browser.",
      `Everything on this page follows from entries of the ledger ${visible(head.origin)}, proven under ` +
        `a checkpoint of ${count(head.size, "entry", "entries")}, except the section \u201cStated by the ` +
        "maker\u201d. Only you can tell whether the key is the right one:");
    banner.append(askForKey(data.verifier_key, data.checkpoint));
    const [[total, [line]]] = tables;
    const sums = total.columns.map(([name, label]) =>
      make("div", "", make("dt", "", label), make("dd", "", figure(line?.sum, name))));
    const about = make("p", "about",
      make("span", "", range.since ? `from ${range.since}` : "from the beginning"),
      make("span", "", range.until ? `to before ${range.until}` : "to the end"));
    document.querySelector("h1").after(about);
    document.querySelector(".top").append(
      make("div", "range", ...completeness(range)), make("dl", "sums", ...sums));
    main.append(
      ...REPORT.parts.map((part) => partOf(part, range, tables)),
      await sources(head, note, data.verifier_key),
      stated(data.stated, range.chosen),
      ...prose(REPORT.prose + REPORT.byHand),
      make("footer", "", make("p", "", `Made by the script of Remit ${REPORT.version}. Each id names an ` +
        "entry: remit ledger show ID.")));
  }

  function fail(message) {
    open("Report", "bad", "NOT VERIFIED.", `${message} Nothing of this file is shown.`);
    main.append(...prose(REPORT.byHand));
  }

  async function check() {
    const lacking = await RemitProof.missing();
    if (lacking) {
      fail(`${lacking} Nothing was checked.`);
      return;
    }
    const { data, element } = readData();
    await checkMarkup(element);
    const head = await RemitProof.checkpoint(data.checkpoint, data.verifier_key);
    await show(data, head, await RemitProof.prove(data, head, progress));
  }

  const start = () => check().catch((error) => fail(visible(String(error.message))));

  takeOver();
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
