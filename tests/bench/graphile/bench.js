// graphile-worker with the same jobs as the gateway, set up as its page about performance says:
// https://worker.graphile.org/docs/performance
//
//   bench.js add URL     makes a job of every line of its input, a JSON payload
//   bench.js work URL    says `ready`, waits for a line of its input, works until it is killed; says `first` and the time
//                        when its first job begins
import { createInterface } from "node:readline";
import { makeWorkerUtils, run } from "graphile-worker";

const [command, connectionString] = process.argv.slice(2);

const UPSERT = {
  name: "upsert",
  text: `INSERT INTO bench_done (id, amount) VALUES ($1, $2)
         ON CONFLICT (id) DO UPDATE SET amount = excluded.amount`,
};

async function add() {
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  await utils.withPgClient((client) =>
    client.query("CREATE TABLE IF NOT EXISTS bench_done (id TEXT PRIMARY KEY, amount BIGINT NOT NULL)"),
  );
  let batch = [];
  for await (const line of createInterface({ input: process.stdin })) {
    batch.push({ identifier: "bench", payload: JSON.parse(line) });
    if (batch.length === 1000) {
      await utils.addJobs(batch);
      batch = [];
    }
  }
  await utils.addJobs(batch);
  await utils.release();
}

async function work() {
  console.log("ready");
  await new Promise((resolve) => createInterface({ input: process.stdin }).once("line", resolve));
  const concurrentJobs = Number(process.env.GRAPHILE_CONCURRENCY ?? 24);
  await run({
    preset: {
      worker: {
        connectionString,
        concurrentJobs,
        maxPoolSize: concurrentJobs + 1,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    taskList: { bench },
  });
}

let hasBegun = false;

async function bench({ id, data }, { withPgClient }) {
  if (!hasBegun) {
    hasBegun = true;
    console.log(`first ${Date.now()}`);
  }
  await withPgClient(async (client) => {
    await client.query("BEGIN");
    try {
      await client.query({ ...UPSERT, values: [id, data.object.amount_paid] });
      await client.query("COMMIT");
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    }
  });
}

await { add, work }[command]();
