// OpenAI's client for Node; a line in names a task, a line out is what it got.
import { createInterface } from 'node:readline';

import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';

const client = new OpenAI({ maxRetries: 0 });
const Person = z.object({ name: z.string(), age: z.number() });
const parameters = {
  type: 'object', properties: { city: { type: 'string' } }, required: ['city'],
  additionalProperties: false,
};
const weather = { name: 'get_weather', description: 'Weather of a city.', parameters };
const model = 'gpt-4o-mini';
const user = (content) => [{ role: 'user', content }];
const bern = '[[call get_weather {"city": "Bern"}]]';

const tasks = {
  async 'chat'() {
    return client.chat.completions.create({ model, messages: user('hello') });
  },
  async 'chat_stream'() {
    const found = [];
    const stream = await client.chat.completions.create({ model, messages: user('hi'), stream: true });
    for await (const chunk of stream) found.push(chunk);
    return found;
  },
  async 'chat_run_tools'() {
    const runner = client.chat.completions.runTools({
      model, messages: user(bern),
      tools: [{ type: 'function', function: {
        ...weather, function: ({ city }) => `sunny in ${city}`, parse: JSON.parse } }],
    });
    return runner.finalContent();
  },
  async 'chat_parse'() {
    const answer = await client.chat.completions.parse({
      model, messages: user('Ann is 41.'), response_format: zodResponseFormat(Person, 'person') });
    return answer.choices[0].message.parsed;
  },
  async 'responses'() {
    return client.responses.create({ model, input: 'hello' });
  },
  async 'responses_stream'() {
    const found = [];
    const stream = client.responses.stream({ model, input: bern,
      tools: [{ type: 'function', strict: true, ...weather }] });
    for await (const event of stream) found.push(event.type);
    return [found, (await stream.finalResponse()).output];
  },
  async 'responses_parse'() {
    const answer = await client.responses.parse({
      model, input: 'Ann is 41.', text: { format: zodTextFormat(Person, 'person') } });
    return answer.output_parsed;
  },
  async 'embeddings'() {
    return client.embeddings.create({ model: 'text-embedding-3-small', input: ['one', 'two'] });
  },
  async 'files'() {
    const made = await client.files.create({
      file: await OpenAI.toFile(Buffer.from('words'), 'a.txt'), purpose: 'user_data' });
    const content = await (await client.files.content(made.id)).text();
    return [made, content, await client.files.delete(made.id)];
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
