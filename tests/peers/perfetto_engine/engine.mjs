// Perfetto's trace processor, built for browsers, run in node: its bundle believes that it is a web worker.
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import { doubles, field, fields, headOf, joined, readVarint, signedVarints, text } from './protobuf.mjs';

const BUNDLES = ['engine_bundle.js', 'engine_bundle.node.js'];
const CHUNK = 32 << 20;
// Fields of TraceProcessorRpcStream, TraceProcessorRpc, QueryArgs, QueryResult and CellsBatch.
const MESSAGE = 1;
const RPC = { request: 2, fatal: 5, appendData: 101, queryArgs: 103, appendResult: 201, queryResult: 203, finalizeResult: 212 };
const REQUEST = { append: 1, finalize: 2, query: 3 };
const ERROR_OF = { [RPC.appendResult]: 2, [RPC.finalizeResult]: 1 };
const RESULT = { column: 1, error: 2, batch: 3 };
const BATCH = { cells: 1, integers: 2, doubles: 3, blobs: 4, texts: 5 };
const CELL = { null: 1n, integer: 2n, double: 3n, text: 4n };

// A file reader in place of the browser's; the engine asks for its own wasm only.
function requestClass(folder) {
  return class {
    open(method, url) {
      this.file = path.join(folder, path.basename(url));
    }
    send() {
      this.response = Uint8Array.from(fs.readFileSync(this.file)).buffer;
      this.status = 200;
    }
  };
}

function workerContext(folder) {
  const silent = () => {};
  const location = { href: 'http://localhost/engine_bundle.js' };
  const context = {
    self: { location },
    location,
    WorkerGlobalScope: class {},
    XMLHttpRequest: requestClass(folder),
    importScripts: silent,
    console: { log: silent, info: silent, warn: silent, error: silent, debug: silent },
    crypto: globalThis.crypto,
    performance, setTimeout, clearTimeout, queueMicrotask, TextDecoder, TextEncoder, URL,
  };
  return vm.createContext(context);
}

// Keeps the memories of all modules that a context instantiates.
function memoriesOf(context) {
  const assembly = vm.runInContext('WebAssembly', context);
  const memories = [];
  assembly.Instance = new Proxy(assembly.Instance, {
    construct(Instance, parts) {
      const instance = new Instance(...parts);
      memories.push(...Object.values(instance.exports).filter((part) => part instanceof assembly.Memory));
      return instance;
    },
  });
  return memories;
}

export class Engine {
  static async start(folder) {
    const bundle = BUNDLES.map((name) => path.join(folder, name)).find((file) => fs.existsSync(file));
    if (!bundle) throw new Error(`there is no engine in ${folder}`);
    const engine = new Engine();
    const context = workerContext(folder);
    engine.memories = memoriesOf(context);
    vm.runInContext(fs.readFileSync(bundle, 'utf8'), context, { filename: bundle });
    // The bundle checks for the array class of its own context.
    const Bytes = vm.runInContext('Uint8Array', context);
    engine.foreign = (bytes) => new Bytes(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    engine.port = { postMessage: (bytes) => engine.receive(bytes) };
    await later();
    context.self.onmessage({ data: engine.port });
    for (let tries = 0; !engine.port.onmessage && tries < 1000; tries++) await later(10);
    await later();
    return engine;
  }

  unread = new Uint8Array(0);
  answer = null;

  load(file) {
    const trace = fs.openSync(file, 'r');
    try {
      for (let chunk = new Uint8Array(CHUNK), size; (size = fs.readSync(trace, chunk)); )
        this.request(REQUEST.append, headOf(RPC.appendData, size), chunk.subarray(0, size));
    } finally {
      fs.closeSync(trace);
    }
    this.request(REQUEST.finalize);
  }

  // What the engine itself has allocated at its most: a memory never shrinks.
  get heapBytes() {
    return this.memories.reduce((size, memory) => size + memory.buffer.byteLength, 0);
  }

  query(sql) {
    const { columns, cells } = this.request(REQUEST.query, field(RPC.queryArgs, field(1, sql)));
    const rows = [];
    for (let at = 0; columns.length && at < cells.length; at += columns.length)
      rows.push(cells.slice(at, at + columns.length));
    return { columns, rows };
  }

  // The engine answers before the call returns. The argument is in parts, for a part of a trace is copied only once.
  request(method, ...argument) {
    this.answer = { columns: [], cells: [], error: '' };
    const parts = [field(RPC.request, method), ...argument];
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    this.port.onmessage({ data: this.foreign(joined(headOf(MESSAGE, size), ...parts)) });
    if (this.answer.error) throw new Error(this.answer.error);
    return this.answer;
  }

  receive(bytes) {
    this.unread = this.unread.length ? joined(this.unread, bytes) : bytes;
    for (;;) {
      const size = readVarint(this.unread, 1);
      const end = size.end + Number(size.value);
      if (!(end <= this.unread.length)) return;
      this.understand(this.unread.subarray(size.end, end));
      this.unread = this.unread.subarray(end);
    }
  }

  understand(message) {
    for (const [tag, value] of fields(message)) {
      if (tag === RPC.fatal) this.answer.error = text(value);
      else if (tag === RPC.queryResult) this.collect(value);
      else if (tag in ERROR_OF)
        for (const [inner, content] of fields(value)) if (inner === ERROR_OF[tag]) this.answer.error = text(content);
    }
  }

  collect(result) {
    for (const [tag, value] of fields(result)) {
      if (tag === RESULT.column) this.answer.columns.push(text(value));
      else if (tag === RESULT.error) this.answer.error = text(value);
      else if (tag === RESULT.batch) this.answer.cells.push(...cellsOf(value));
    }
  }
}

// The cells of a batch, in order; values are stored by type.
function* cellsOf(batch) {
  const stored = { [BATCH.cells]: [], [BATCH.integers]: [], [BATCH.doubles]: [], [BATCH.blobs]: [], [BATCH.texts]: [] };
  for (const [tag, value] of fields(batch)) {
    if (tag === BATCH.cells || tag === BATCH.integers) stored[tag].push(...signedVarints(value));
    else if (tag === BATCH.doubles) stored[tag].push(...doubles(value));
    else if (tag === BATCH.blobs) stored[tag].push(`${value.length} bytes`);
    else if (tag === BATCH.texts) stored[tag] = text(value).split('\0');
  }
  const [integers, reals, blobs, texts] = [BATCH.integers, BATCH.doubles, BATCH.blobs, BATCH.texts].map((tag) => stored[tag].values());
  for (const kind of stored[BATCH.cells]) {
    if (kind === CELL.null) yield null;
    else if (kind === CELL.integer) yield integers.next().value;
    else if (kind === CELL.double) yield reals.next().value;
    else if (kind === CELL.text) yield texts.next().value;
    else yield blobs.next().value;
  }
}

function later(milliseconds = 0) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
