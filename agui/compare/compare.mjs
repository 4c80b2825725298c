// Folds threads that come in on standard input (main.go writes them) with the official client's own stages, and says how
// many agree with what threadsvc's engine made of them: messages, state, and which event is refused.
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";
import { defaultApplyEvents, enforceEvents, transformChunks, verifyEvents } from "@ag-ui/client";
import { from } from "rxjs";
import { concatMap, tap } from "rxjs/operators";

console.warn = () => {};

// lenient replaces what this client of version 1.0 refuses and 1.1 says to drop with a warning by an event that it drops:
// an encrypted value of an unknown subtype (protocol page basic/processing, unknown members of a closed set that selects).
const lenient = (event) =>
  event?.type === "REASONING_ENCRYPTED_VALUE" && typeof event.subtype === "string" && !["message", "tool-call"].includes(event.subtype)
    ? { type: "OF_THE_FUTURE" }
    : event;

// fold runs one producer stream through the client's pipeline, on top of what the thread holds.
async function fold(thread, stream) {
  const input = stream.input ?? { threadId: "t", runId: "r", messages: [], tools: [], context: [] };
  const known = new Set(thread.messages.map((m) => m.id));
  const messages = [...thread.messages, ...(input.messages ?? []).filter((m) => !known.has(m.id) && known.add(m.id))];
  const state = input.state === undefined ? thread.state : input.state;
  const agent = { messages, state, pendingInterrupts: [] };
  let index = -1;
  // One at a time: the client applies events asynchronously, and an error would overtake those before it.
  const events = from(stream.events.map(lenient)).pipe(
    concatMap((event) => new Promise((resolve) => setImmediate(resolve, event))),
    tap(() => index++),
    enforceEvents(),
    transformChunks(),
    verifyEvents(),
  );
  const next = { messages, state, refused: -1 };
  await new Promise((done) => {
    defaultApplyEvents({ ...input, messages, state }, events, agent, []).subscribe({
      next: (change) => {
        if (change.messages !== undefined) next.messages = change.messages;
        if (change.state !== undefined) next.state = change.state;
      },
      error: (error) => {
        next.refused = index;
        next.reason = `${error.message} ${JSON.stringify(stream.events[index])}`;
        done();
      },
      complete: done,
    });
  });
  return next;
}

// plain drops what JSON does not have: members whose value is undefined.
const plain = (value) => JSON.parse(JSON.stringify(value));

// without1_1 drops what version 1.1 of the protocol added and this client, of 1.0, does not keep: encryptedValueType
// (schema.json, ReasoningEncryptedValueEvent).
const without1_1 = (message) => {
  const strip = ({ encryptedValueType, ...rest }) => rest;
  const stripped = strip(message);
  if (stripped.toolCalls) stripped.toolCalls = stripped.toolCalls.map(strip);
  return stripped;
};

function difference(line, thread, refused) {
  for (const [i, stream] of line.streams.entries()) {
    const theirs = refused[i];
    if (stream.refused !== theirs.index) {
      return `stream ${i}: refused event ${stream.refused}, client ${theirs.index} ${theirs.reason ?? JSON.stringify(stream.events[stream.refused])}`;
    }
  }
  if (!isDeepStrictEqual(line.state, plain(thread.state))) {
    return `state ${JSON.stringify(line.state)}\n      client ${JSON.stringify(thread.state)}`;
  }
  const theirs = plain(thread.messages);
  if (line.messages.length !== theirs.length) return `${line.messages.length} messages, client ${theirs.length}`;
  for (const [i, message] of line.messages.entries()) {
    if (!isDeepStrictEqual(without1_1(message), without1_1(theirs[i]))) {
      return `message ${i}: ${JSON.stringify(message)}\n      client ${JSON.stringify(theirs[i])}`;
    }
  }
  return null;
}

let agree = 0;
let total = 0;
const differing = [];
for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  line.messages ??= [];
  let thread = { messages: [], state: {} };
  const refused = [];
  for (const stream of line.streams) {
    thread = await fold(thread, stream);
    refused.push({ index: thread.refused, reason: thread.reason });
  }
  const found = difference(line, thread, refused);
  total++;
  if (found === null) agree++;
  else differing.push(`  seed ${line.seed}: ${found}`);
}
for (const found of differing.slice(0, Number(process.env.SHOW ?? 10))) console.log(found.slice(0, 600));
console.log(`compared with the official client: ${agree}/${total} threads agree`);
