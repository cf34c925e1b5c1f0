// Loads a trace into Perfetto's trace processor and answers SQL.
//   node query.mjs ENGINE_FOLDER TRACE
// Prints {"took":{"cpu_s":...,"wall_s":...,"peak_mb":...,"heap_mb":...}}, what loading it took, or {"error":...}; then,
// for each JSON text (a query) on a line of standard input, one line: {"columns":[...],"rows":[[...]]} or {"error":...}.
// Integers are printed in full.
import readline from 'node:readline';
import { costOf } from './cost.mjs';
import { Engine } from './engine.mjs';

function json(value) {
  if (typeof value === 'bigint') return value.toString();
  if (Array.isArray(value)) return `[${value.map(json).join(',')}]`;
  if (value && typeof value === 'object')
    return `{${Object.entries(value).map(([key, part]) => `${JSON.stringify(key)}:${json(part)}`).join(',')}}`;
  return JSON.stringify(value);
}

function answered(question) {
  try {
    return question();
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
}

const print = (value) => process.stdout.write(json(value) + '\n');
const [folder, trace] = process.argv.slice(2);
const engine = await Engine.start(folder);
const loaded = answered(() => {
  const cost = costOf(() => engine.load(trace));
  return { took: { ...cost, heap_mb: engine.heapBytes / 1e6 } };
});
print(loaded);
if (!loaded.error)
  for await (const line of readline.createInterface({ input: process.stdin })) print(answered(() => engine.query(JSON.parse(line))));
