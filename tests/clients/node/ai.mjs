// Vercel's AI SDK with its default providers; a line in names a task, a line out is what it got.
import { createInterface } from 'node:readline';

import { createAnthropic } from '@ai-sdk/anthropic';
import { openai } from '@ai-sdk/openai';
import { embedMany, generateText, Output, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const anthropic = createAnthropic({ baseURL: `${process.env.ANTHROPIC_BASE_URL}/v1` });
const models = {
  responses: openai('gpt-5-mini'), chat: openai.chat('gpt-4o-mini'),
  anthropic: anthropic('claude-sonnet-4-5'),
};
const tools = {
  get_weather: tool({
    description: 'Weather of a city.', inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};
const person = Output.object({ schema: z.object({ name: z.string(), age: z.number() }) });
const bern = '[[call get_weather {"city": "Bern"}]]';
const stopWhen = stepCountIs(3);
const told = (done) => [done.text, done.usage.inputTokens, done.usage.outputTokens];

const generate = async (model) => told(
  await generateText({ model, system: 'Be brief.', prompt: 'hello', maxRetries: 0 }));
const call = async (model) => told(
  await generateText({ model, prompt: bern, tools, stopWhen, maxRetries: 0 }));
const form = async (model) => (
  await generateText({ model, prompt: 'Ann is 41.', output: person, maxRetries: 0 })).output;
const stream = async (model) => {
  const done = streamText({ model, prompt: bern, tools, stopWhen, maxRetries: 0 });
  const kinds = [];
  for await (const part of done.fullStream) {
    if (part.type === 'error') throw part.error;
    kinds.push(part.type);
  }
  return [kinds, await done.text];
};

const tasks = {
  async 'generate_responses'() { return generate(models.responses); },
  async 'generate_chat'() { return generate(models.chat); },
  async 'generate_anthropic'() { return generate(models.anthropic); },
  async 'tools_responses'() { return call(models.responses); },
  async 'tools_chat'() { return call(models.chat); },
  async 'tools_anthropic'() { return call(models.anthropic); },
  async 'object_responses'() { return form(models.responses); },
  async 'object_chat'() { return form(models.chat); },
  async 'object_anthropic'() { return form(models.anthropic); },
  async 'stream_responses'() { return stream(models.responses); },
  async 'stream_chat'() { return stream(models.chat); },
  async 'stream_anthropic'() { return stream(models.anthropic); },
  async 'embed'() {
    const model = openai.textEmbedding('text-embedding-3-small');
    return (await embedMany({ model, values: ['one', 'two'], maxRetries: 0 })).embeddings;
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
