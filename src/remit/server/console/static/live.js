// Shows new entries as they arrive. Rows are built from text nodes: recorded text never acts as markup.
const state = document.querySelector('[data-live="state"]');
const entries = document.querySelector('[data-live="entries"]');
const tables = new Map([...document.querySelectorAll('tbody[data-live]')].map((one) => [one.dataset.live, one]));
const badgeAt = { call: 3, alarm: 1 };

function cell(text, isNumber) {
  const made = document.createElement('td');
  if (isNumber) made.className = 'num';
  made.textContent = text;
  return made;
}

function timeCell(text, at) {
  const made = document.createElement('td');
  const time = document.createElement('time');
  time.dateTime = at;
  time.textContent = text;
  made.append(time);
  return made;
}

function rowOf(row) {
  const made = document.createElement('tr');
  made.className = 'new';
  row.cells.forEach((text, place) => {
    if (place === 0) return made.append(timeCell(text, row.at));
    if (place !== badgeAt[row.kind]) return made.append(cell(text, row.kind === 'call' && place > 3));
    const badge = document.createElement('span');
    badge.className = `badge ${row.tone}`;
    badge.textContent = text;
    const holder = document.createElement('td');
    holder.append(badge);
    made.append(holder);
  });
  const link = document.createElement('a');
  link.className = 'id';
  link.href = `/console/journey/${encodeURIComponent(row.id)}`;
  link.textContent = row.id;
  const holder = document.createElement('td');
  holder.append(link);
  made.append(holder);
  return made;
}

function show(event) {
  const found = JSON.parse(event.data);
  entries.textContent = found.entries.toLocaleString('en-US');
  for (const row of found.rows) {
    const table = tables.get(row.kind);
    if (!table) continue;
    table.querySelector('.none')?.remove();
    table.prepend(rowOf(row));
    while (table.rows.length > Number(table.dataset.most)) table.lastElementChild.remove();
  }
}

// A browser reconnects after a lost connection, but not after a refusal.
function watch(againMs) {
  const source = new EventSource('/console/live');
  let next = againMs;
  source.addEventListener('open', () => { state.textContent = 'Live updates.'; next = 2000; });
  source.addEventListener('error', () => {
    state.textContent = 'Not live. Reconnecting; if this persists, reload the page.';
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(() => watch(Math.min(next * 2, 60000)), next);
  });
  source.addEventListener('entries', show);
  source.addEventListener('gap', () => { state.textContent = 'Live, but some entries were skipped. Reload the page to see them.'; });
}

requestAnimationFrame(() => setTimeout(watch, 0, 2000)); // after the first paint
