// graphile-worker with the settings of its performance test: prints "ready", works on the queue
// after a command, and prints how many jobs it ran.
import { once } from "node:events";
import { Logger, runMigrations, runOnce } from "graphile-worker";
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

if (process.argv[2] === "migrate") {
  await runMigrations({ pgPool, logger });
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
