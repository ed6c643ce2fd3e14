// Shows new entries as they arrive. Rows are built from text nodes: recorded text never acts as markup.
const state = document.querySelector('[data-live="state"]');
const entries = document.querySelector('[data-live="entries"]');
const tables = new Map([...document.querySelectorAll('tbody[data-live]')].map((one) => [one.dataset.live, one]));
const badgeAt = { call: 3, alarm: 1 };

function element(name, content, className = '') {
  const made = document.createElement(name);
  made.className = className;
  made.append(content);
  return made;
}

function rowOf(row) {
  const made = element('tr', '', 'new');
  row.cells.forEach((text, place) => {
    const time = place === 0 && element('time', text);
    if (time) time.dateTime = row.at;
    const badge = place === badgeAt[row.kind] && element('span', text, `badge ${row.tone}`);
    made.append(element('td', time || badge || text, row.kind === 'call' && place > 3 ? 'num' : ''));
  });
  const link = element('a', row.id, 'id');
  link.href = `/console/journey/${encodeURIComponent(row.id)}`;
  made.append(element('td', link));
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
  source.addEventListener('open', () => { state.textContent = 'Calls and alarms are live; other figures are as of page load.'; next = 2000; });
  source.addEventListener('error', () => {
    state.textContent = 'Not live. Reconnecting; if this persists, reload the page.';
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(() => watch(Math.min(next * 2, 60000)), next);
  });
  source.addEventListener('entries', show);
  source.addEventListener('gap', () => { state.textContent = 'Live, but some entries were skipped. Reload the page to see them.'; });
}

requestAnimationFrame(() => setTimeout(watch, 0, 2000)); // after the first paint
