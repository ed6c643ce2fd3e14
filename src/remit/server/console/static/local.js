// Shows times in the reader's time zone, and names the zone in links to pages that count days.
const parts = { year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' };
const words = new Intl.DateTimeFormat('sv-SE', { ...parts, timeZoneName: 'short' });
const { timeZone } = words.resolvedOptions();

function localize(part) {
  for (const one of part.querySelectorAll('time[datetime]:not([title])')) {
    one.title = one.textContent;
    one.textContent = words.format(new Date(one.dateTime));
  }
  for (const link of part.querySelectorAll('a[href^="/console/spend"], a[href^="/console/calls"]')) {
    const address = new URL(link.href);
    if (!address.searchParams.has('zone')) address.searchParams.set('zone', timeZone);
    link.href = address.pathname + address.search;
  }
}

localize(document);
new MutationObserver((changes) => {
  for (const change of changes) change.addedNodes.forEach((node) => node.querySelectorAll && localize(node));
}).observe(document.querySelector('main'), { childList: true, subtree: true });
