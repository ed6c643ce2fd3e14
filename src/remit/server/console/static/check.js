// Checks the entry of this page, from what the page holds, and says what came of each step.
const outcome = document.getElementById('outcome');

function say(tone, text) {
  outcome.className = `state ${tone}`;
  outcome.textContent = text;
}

try {
  const bundle = JSON.parse(document.getElementById('bundle').textContent);
  const found = await globalThis.RemitProof.verify(bundle);
  for (const text of found.steps ?? []) {
    const item = document.createElement('li');
    item.textContent = text;
    document.getElementById('steps').append(item);
  }
  say(found.verified ? 'good' : 'bad', found.message);
} catch (error) {
  say('bad', `It could not be checked: ${error.message}`);
}
