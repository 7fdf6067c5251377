// The official TypeScript clients of both generations, each at one real server, as a person's program would use them.
//
//   node clients.mjs http URL
//   node clients.mjs stdio COMMAND ARGUMENT...
import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [carrier, ...address] = process.argv.slice(2);
const INFO = { name: "judge", version: "1.0.0" };
const NEW_TRANSPORT = { http: StreamableHTTPClientTransport, stdio: StdioClientTransport };
const OLD_TRANSPORT = { http: OldHttp, stdio: OldStdio };
const GENERATIONS = [
  ["1.x, by handshake", () => new OldClient(INFO), OLD_TRANSPORT],
  ["2.x, by handshake", () => negotiating("legacy"), NEW_TRANSPORT],
  ["2.x, what it finds", () => negotiating("auto"), NEW_TRANSPORT],
  ["2.x, 2026-07-28 alone", () => negotiating({ pin: "2026-07-28" }), NEW_TRANSPORT],
];

function negotiating(mode) {
  return new Client(INFO, { versionNegotiation: { mode } });
}

function transport(kinds) {
  if (carrier === "http") return new kinds.http(new URL(address[0]));
  const [command, ...args] = address;
  return new kinds.stdio({ command, args });
}

/** What a tool returned: one block of text that is JSON, and whether it is a refusal. */
async function call(client, name, given) {
  const result = await client.callTool({ name, arguments: given });
  assert.equal(result.content.length, 1);
  assert.equal(result.content[0].type, "text");
  return { refused: result.isError === true, body: JSON.parse(result.content[0].text) };
}

async function record(client, name, given) {
  const { refused, body } = await call(client, name, given);
  assert.ok(!refused, `${name}: ${JSON.stringify(body)}`);
  return body;
}

async function refusal(client, name, given) {
  const { refused, body } = await call(client, name, given);
  assert.ok(refused, `${name} was not refused`);
  assert.ok(body.message);
  return body;
}

/** A memory is written, found, edited and read back; what is wrong is refused with its code. */
async function walk(client) {
  const project = "acme/web";
  const { tools } = await client.listTools();
  for (const tool of tools) assert.equal(tool.inputSchema.type, "object");
  const names = tools.map((tool) => tool.name);
  for (const name of ["project_identify", "memory_write", "memory_get", "memory_search", "memory_patch"]) {
    assert.ok(names.includes(name), `no tool ${name}`);
  }

  const identified = await record(client, "project_identify", { project });
  assert.equal(identified.project.key, project);
  const content = "Deploys are frozen on Fridays — 金曜日 🧊.\r\n";
  const { id, version } = await record(client, "memory_write", { content, project, tags: ["deploy"] });
  assert.equal(version, 1);
  const read = await record(client, "memory_get", { id });
  assert.equal(read.content, content);
  const found = await record(client, "memory_search", { query: "frozen deploys", project });
  assert.ok(found.items.some((hit) => hit.memory.id === id));
  const edit = { id, version, old_string: "Fridays", new_string: "Thursdays" };
  assert.equal((await record(client, "memory_patch", edit)).version, 2);
  assert.equal((await record(client, "memory_get", { id })).content, content.replace("Fridays", "Thursdays"));

  const stale = await refusal(client, "memory_patch", { ...edit, old_string: "Thursdays" });
  assert.equal(stale.code, "version_conflict");
  assert.equal((await refusal(client, "memory_patch", { ...edit, version: 2 })).code, "patch_not_found");
  assert.equal((await refusal(client, "memory_get", { id: "nowhere" })).code, "not_found");
  assert.equal((await refusal(client, "memory_get", { id, colour: "red" })).code, "invalid_input");
  const unknown = await refusal(client, "memory_write", { content, project: "acme/wbe" });
  assert.equal(unknown.code, "unknown_project");
  await assert.rejects(client.callTool({ name: "memory_nothing", arguments: {} }), (error) => {
    assert.equal(error.code, -32602);
    assert.equal(error.data.code, "not_found");
    return true;
  });
}

for (const [name, make, kinds] of GENERATIONS) {
  const client = make();
  await client.connect(transport(kinds));
  try {
    assert.equal(client.getServerVersion().name, "muniment");
    await walk(client);
    console.log(`client ${name}: ${client.getNegotiatedProtocolVersion?.() ?? "agreed"}`);
  } finally {
    await client.close();
  }
}
