/* global RemitProof */
// Checks the entry of this page with the embedded proof, and lists the result of each step.
const outcome = document.getElementById('outcome');
const words = {
  verified: ['good', 'Verified in this browser: this exact record is in the signed ledger.'],
  failed: ['bad', 'Not verified.'],
  unsupported: ['wait', 'Not checked: this browser lacks the required cryptography.'],
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
  say(words.failed, `The check failed: ${error.message}`);
}
