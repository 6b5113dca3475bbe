// Perfetto's trace processor under Node: what stdin asks, stdout answers, both as its TraceProcessorRpcStream.
// Perfetto's bundle is made for a browser's worker, which gets its port by a message and loads the WebAssembly by a
// synchronous request; here a worker is what has those names.
"use strict";
const { readFileSync, writeSync } = require("node:fs");
const { dirname, join } = require("node:path");
const { runInThisContext } = require("node:vm");

const [, , bundle] = process.argv;

class FileRequest {
  open(_method, name) {
    this.path = join(dirname(bundle), name);
  }

  send() {
    this.response = readFileSync(this.path);
  }
}

const port = {
  postMessage(reply) {
    for (let sent = 0; sent < reply.length; ) sent += writeSync(1, reply, sent);
  },
};

console.log = console.error;
Object.assign(globalThis, {
  process: undefined, // by which the bundle would know Node, and refuse it
  self: globalThis,
  location: {},
  WorkerGlobalScope: Object,
  XMLHttpRequest: FileRequest,
});
runInThisContext(readFileSync(bundle, "utf8"));
self.onmessage({ data: port });
// The bundle is ready when the promises are through that wait for nothing.
setImmediate(() => port.onmessage({ data: new Uint8Array(readFileSync(0)) }));
