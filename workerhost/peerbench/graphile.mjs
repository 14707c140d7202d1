// graphile-worker. "work", with the settings of its performance test: prints "ready", works on the
// queue after a command, and prints how many jobs it ran. "serve URL": a worker as its users start
// it, whose jobs are a request to the URL.
import { once } from "node:events";
import http from "node:http";
import { Logger, run, runMigrations, runOnce } from "graphile-worker";
import pg from "pg";

const concurrency = 24;
const pgPool = new pg.Pool({
  host: process.env.BENCH_HOST,
  user: process.env.BENCH_USER,
  database: process.env.BENCH_DATABASE,
  max: concurrency + 1,
});
pgPool.on("error", () => {});
pgPool.on("connect", (client) => client.on("error", () => {}));
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

function post(agent, url, payload) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { method: "POST", agent }, (response) => {
      response.resume();
      response.on("end", () => (response.statusCode < 300 ? resolve() : reject(new Error(`answer ${response.statusCode}`))));
    });
    request.on("error", reject);
    request.end(JSON.stringify(payload));
  });
}

if (process.argv[2] === "migrate") {
  await runMigrations({ pgPool, logger });
} else if (process.argv[2] === "serve") {
  const agent = new http.Agent({ keepAlive: true, maxSockets: concurrency });
  const runner = await run({
    pgPool, logger, concurrency,
    taskList: { noop: (payload) => post(agent, process.argv[3], payload) },
  });
  await runner.promise;
} else {
  let ran = 0;
  const preset = {
    worker: {
      concurrentJobs: concurrency,
      localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      gracefulShutdownAbortTimeout: 2500,
    },
  };
  await pgPool.query("SELECT 1");
  console.log("ready");
  await once(process.stdin, "data");
  await runOnce({ pgPool, logger, preset, taskList: { noop: () => { ran++; } } });
  console.log(`ran ${ran}`);
}
await pgPool.end();
process.exit(0);
