/* global RemitProof */
// Checks the entry of this page, from what the page holds, and says what came of each step.
const outcome = document.getElementById('outcome');
const words = {
  verified: ['good', 'Verified here: this record is in the signed ledger, byte for byte.'],
  failed: ['bad', 'Not verified.'],
  unsupported: ['wait', 'Not checked: this browser cannot.'],
};

function say([tone, text], more) {
  outcome.className = `state ${tone}`;
  outcome.textContent = more ? `${text} ${more}` : text;
}

try {
  const bundle = RemitProof.read(document.getElementById('bundle').textContent);
  const found = await RemitProof.verify(bundle);
  for (const step of found.steps) {
    const item = document.createElement('li');
    item.textContent = `${step.ok ? '✓' : '✗'} ${step.message}`;
    document.getElementById('steps').append(item);
  }
  say(words[found.state] ?? words.failed, found.message);
} catch (error) {
  say(words.failed, `It could not be checked: ${error.message}`);
}
