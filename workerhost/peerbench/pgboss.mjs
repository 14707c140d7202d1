// pg-boss. "migrate": installs its schema and the queue. "serve URL": workers whose jobs are a
// request to the URL. "produce": a producer, with the protocol of the other producers.
import http from "node:http";
import readline from "node:readline";
import PgBoss from "pg-boss";

const queue = "bench";
const workers = 16;
const batchSize = 64;

const boss = new PgBoss({
  host: process.env.BENCH_HOST,
  user: process.env.BENCH_USER,
  database: process.env.BENCH_DATABASE,
  max: 16,
  supervise: process.argv[2] === "serve",
  maintenanceIntervalSeconds: 10, // only maintenance gives out the jobs of a killed host again
  schedule: false,
});
boss.on("error", (error) => console.error("pg-boss:", error.message));
process.on("unhandledRejection", (error) => console.error("pg-boss:", error.message));

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

await boss.start();
switch (process.argv[2]) {
  case "migrate":
    await boss.createQueue(queue, { name: queue, expireInSeconds: Number(process.argv[3]) });
    await boss.stop({ graceful: false });
    process.exit(0);
  case "serve": {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
    for (let i = 0; i < workers; i++) {
      await boss.work(queue, { pollingIntervalSeconds: 0.5, batchSize }, (jobs) =>
        Promise.all(jobs.map((job) => post(agent, process.argv[3], job.data))));
    }
    break;
  }
  case "produce": {
    let rate = 0, credit = 0, at = Date.now(), n = 0, inFlight = 0;
    const input = readline.createInterface({ input: process.stdin });
    input.on("line", (line) => { rate = Number(line.split(" ")[1]); });
    input.on("close", () => {
      rate = 0;
      credit = 0;
      setInterval(() => { if (inFlight === 0) process.exit(0); }, 10);
    });
    setInterval(() => {
      const now = Date.now();
      credit = Math.min(credit + rate * (now - at) / 1000, Math.max(1, rate));
      at = now;
      for (; credit >= 1 && inFlight < 16; credit--) {
        const number = n++;
        const sent = `${Date.now()}000000`;
        inFlight++;
        boss.send(queue, { n: number }).then(() => true, () => false).then((ok) => {
          inFlight--;
          process.stdout.write(`${number} ${sent} ${ok}\n`);
        });
      }
    }, 1);
  }
}
