// Shows times in the reader's time zone, and names the zone in links to pages that count days.
const parts = { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' };

function localize(part, words) {
  for (const one of part.querySelectorAll('time[datetime]:not([title])')) {
    one.title = one.textContent;
    one.textContent = words.format(new Date(one.dateTime));
  }
  // A narrow screen shows a row as lines, each with the name of its column.
  const around = part.closest?.('table.rows-of');
  for (const table of around ? [around] : part.querySelectorAll('table.rows-of')) {
    table.classList.add('labelled');
    const names = [...table.tHead.rows[0].cells].map((one) => one.textContent);
    for (const row of table.tBodies[0].rows) {
      if (row.cells.length === names.length) [...row.cells].forEach((one, place) => { one.dataset.label = names[place]; });
    }
  }
  for (const link of part.querySelectorAll('a[href^="/console/spend"], a[href^="/console/calls"]')) {
    const address = new URL(link.href);
    if (!address.searchParams.has('zone')) address.searchParams.set('zone', words.resolvedOptions().timeZone);
    link.href = address.pathname + address.search;
  }
}

function begin() {
  const words = new Intl.DateTimeFormat('sv-SE', { ...parts, timeZoneName: 'short' });
  localize(document, words);
  new MutationObserver((changes) => {
    for (const change of changes) change.addedNodes.forEach((node) => node.querySelectorAll && localize(node, words));
  }).observe(document.querySelector('main'), { childList: true, subtree: true });
}

// Formats of times would delay the first paint. On a narrow screen the rows would change their layout after it.
const reportsPaint = PerformanceObserver.supportedEntryTypes?.includes('paint');
if (!reportsPaint || matchMedia('(max-width: 52rem)').matches) begin();
else new PerformanceObserver((_, observer) => { observer.disconnect(); begin(); }).observe({ type: 'paint', buffered: true });
document.addEventListener('mouseover', ({ target }) => {
  const cell = target.closest('.rows-of td');
  if (cell && cell.scrollWidth > cell.clientWidth) cell.title = cell.textContent.trim();
});
