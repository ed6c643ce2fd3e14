// Anthropic's client for Node; a line in names a task, a line out is what it got.
import { createInterface } from 'node:readline';

import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({ maxRetries: 0 });
const tools = [{
  name: 'get_weather', description: 'Weather of a city.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}];
const ask = (content, more = {}) => ({
  model: 'claude-sonnet-4-5', max_tokens: 2000, messages: [{ role: 'user', content }], ...more });
const bern = '[[call get_weather {"city": "Bern"}]]';

const tasks = {
  async 'message'() {
    return client.messages.create(ask('hello'));
  },
  async 'stream'() {
    const found = [];
    const stream = client.messages.stream(ask(bern, {
      tools, thinking: { type: 'enabled', budget_tokens: 1024 } }));
    for await (const event of stream) found.push(event);
    return [found, await stream.finalMessage()];
  },
  async 'tools'() {
    const given = ask(bern, { tools });
    const first = await client.messages.create(given);
    const call = first.content.find((block) => block.type === 'tool_use');
    given.messages.push({ role: 'assistant', content: first.content }, { role: 'user', content: [
      { type: 'tool_result', tool_use_id: call.id, content: 'sunny' }] });
    return [first, await client.messages.create(given)];
  },
  async 'count_tokens'() {
    return client.messages.countTokens({
      model: 'claude-sonnet-4-5', messages: [{ role: 'user', content: 'hello' }] });
  },
};

for await (const name of createInterface({ input: process.stdin })) {
  let told;
  try {
    told = { got: await tasks[name]() };
  } catch (error) {
    told = { error: String(error?.stack ?? error) };
  }
  console.log(JSON.stringify(told));
}
