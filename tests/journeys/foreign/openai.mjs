// The npm `openai` client, unchanged but for URL and key. Prints what it was answered as one JSON object.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const told = {};

told.whole = await client.chat.completions.create({ model: "m", messages });
told.tools = await client.chat.completions.create({ model: "m", messages, tools });
told.format = await client.chat.completions.create({ model: "m", messages, response_format: { type: "json_object" } });
told.stream = [];
for await (const chunk of await client.chat.completions.create({ model: "m", messages, stream: true })) told.stream.push(chunk);
told.toolStream = await client.chat.completions.stream({ model: "m", messages, tools }).finalMessage();
told.packed = (await client.embeddings.create({ model: "m", input: "x" })).data[0].embedding;
told.floats = (await client.embeddings.create({ model: "m", input: ["x"], encoding_format: "float" })).data[0].embedding;

const errors = {
  model: () => client.chat.completions.create({ model: "nobody", messages }),
  body: () => client.chat.completions.create({ model: "m", messages: "hi" }),
  key: () => client.withOptions({ apiKey: "sg-wrong" }).chat.completions.create({ model: "m", messages }),
};
told.errors = {};
if (process.env.ERRORS) {
  for (const [name, ask] of Object.entries(errors)) {
    try {
      await ask();
    } catch (error) {
      told.errors[name] = [error.constructor.name, error.status, error.code, error.type, error.param, Boolean(error.requestID)];
    }
  }
}
console.log(JSON.stringify(told));
