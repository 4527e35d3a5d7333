/* Asks Perfetto's trace_processor about traces:  node trace_processor.mjs FOLDER QUERIES TRACE...
 *
 * FOLDER has trace_processor.wasm and engine_bundle.js. QUERIES is a JSON list of SQL. For each trace
 * there is a line of JSON: for each query a list of rows. Whole numbers are texts, as they may have 64 bits.
 * The messages are those of protos/perfetto/trace_processor/trace_processor.proto.
 */

import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

// Methods of a request, and kinds of a cell.
const APPEND = 1, FINALIZE = 2, QUERY = 3, RESET = 11;
const PART = 1 << 24; // bytes of a trace in one request
const NULL = 1, INTEGER = 2, DOUBLE = 3, STRING = 4, BLOB = 5;

// ---- Protobuf ---------------------------------------------------------------

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  bytes.push(value);
  return Buffer.from(bytes);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, data) => Buffer.concat([varint(field * 8 + 2), varint(data.length), data]);

/** Varints of up to 64 bits, as signed numbers. */
function* varints(data) {
  let value = 0n, shift = 0n;
  for (const byte of data) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) {
      yield BigInt.asIntN(64, value);
      value = shift = 0n;
    }
  }
}

/** Number and value of each field: a BigInt or the bytes. */
function* fields(data) {
  let at = 0;
  const next = () => {
    const first = at;
    while (data[at++] > 127);
    return varints(data.subarray(first, at)).next().value;
  };
  while (at < data.length) {
    const key = Number(next());
    if (key % 8 === 0) yield [key >> 3, next()];
    else {
      const size = key % 8 === 2 ? Number(next()) : key % 8 === 1 ? 8 : 4;
      yield [key >> 3, data.subarray(at, at + size)];
      at += size;
    }
  }
}

// ---- The engine -------------------------------------------------------------

/** Starts the engine; gives a function that sends a request and returns the answers. */
async function start(folder) {
  const port = { answers: [], postMessage: (data) => port.answers.push(Buffer.from(data)) };
  // The engine is made for a worker of a browser.
  const self = { location: { href: "file:///worker.js" } };
  class XMLHttpRequest {
    open(_, name) {
      this.response = fs.readFileSync(path.join(folder, path.basename(name)));
    }
    send() {}
  }
  // The folder has the engine for 32 bits alone, also where Node can run the other.
  const { Module } = WebAssembly;
  WebAssembly.Module = function (code) {
    if (code.length === 23) throw new Error("no memory64");
    return new Module(code);
  };
  const quiet = { ...console, log() {}, warn() {} };
  const scope = { self, console: quiet, process: undefined, XMLHttpRequest, WorkerGlobalScope: self };
  const code = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
  vm.runInThisContext(`(function (${Object.keys(scope)}) {${code}\n})`)(...Object.values(scope));
  self.onmessage({ data: port });
  await new Promise(setImmediate); // it has set itself up when pending promises have run
  let sequence = 0;
  return (method, ...parts) => {
    const request = Buffer.concat([number(1, ++sequence), number(2, method), ...parts]);
    port.answers = [];
    port.onmessage({ data: new Uint8Array(bytes(1, request)) });
    const answers = [];
    for (const [, answer] of fields(Buffer.concat(port.answers))) {
      const known = [...fields(answer)];
      const fatal = known.find(([field]) => field === 5);
      if (fatal) throw new Error(String(fatal[1]));
      answers.push(known);
    }
    return answers;
  };
}

function query(send, sql) {
  const cells = [];
  let width = 0;
  for (const answer of send(QUERY, bytes(103, bytes(1, Buffer.from(sql)))))
    for (const [field, result] of answer) {
      if (field !== 203) continue;
      for (const [of, value] of fields(result)) {
        if (of === 1) width++;
        if (of === 2 && value.length) throw new Error(String(value));
        if (of === 3) cells.push(...batch(value));
      }
    }
  const rows = [];
  for (let at = 0; at < cells.length; at += width) rows.push(cells.slice(at, at + width));
  return rows;
}

function batch(data) {
  const kinds = [], integers = [], doubles = [], texts = [], blobs = [];
  for (const [field, value] of fields(data)) {
    if (field === 1) kinds.push(...[...varints(value)].map(Number));
    if (field === 2) integers.push(...varints(value));
    if (field === 3)
      for (let at = 0; at < value.length; at += 8) doubles.push(value.readDoubleLE(at));
    if (field === 4) blobs.push(value.toString("hex"));
    if (field === 5) texts.push(...value.toString("utf8").split("\0").slice(0, -1));
  }
  const of = { [INTEGER]: integers, [DOUBLE]: doubles, [STRING]: texts, [BLOB]: blobs };
  const taken = Object.fromEntries(Object.keys(of).map((kind) => [kind, 0]));
  return kinds.map((kind) => (kind === NULL ? null : of[kind][taken[kind]++]));
}

const [folder, queries, ...traces] = process.argv.slice(2);
const send = await start(path.resolve(folder));
for (const trace of traces) {
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += PART)
    send(APPEND, bytes(101, data.subarray(at, at + PART)));
  send(FINALIZE);
  const found = JSON.parse(queries).map((sql) => query(send, sql));
  console.log(JSON.stringify(found, (_, x) => (typeof x === "bigint" ? String(x) : x)));
  send(RESET);
}
