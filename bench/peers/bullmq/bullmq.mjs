// BullMQ does the work of quita-peers: its library is the client, so it is driven from Node. Prints one JSON line of the same form.
import { Queue, Worker } from 'bullmq';
import IORedis from 'ioredis';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const text = { type: 'string' };
const { values: given } = parseArgs({
  options: { name: text, port: text, work: text, connections: text, batch: text, seconds: text, pid: text },
});
const [connections, batch, seconds] = [given.connections, given.batch, given.seconds].map(Number);
const WARM_UP_MS = 700;
const WINDOW = 128; // messages published and not yet done, at the most
const OPTIONS = { removeOnComplete: true, attempts: 5 };

const now = () => performance.timeOrigin + performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const redis = () => new IORedis(Number(given.port), '127.0.0.1', { maxRetriesPerRequest: null });

// A kilobyte of JSON that no compressor shrinks, made from a few pads so that making it costs nothing.
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const pads = Array.from({ length: 256 }, () =>
  Array.from({ length: 1024 }, () => ALPHABET[Math.floor(Math.random() * 64)]).join(''),
);
let serial = 0;
function message() {
  serial += 1;
  const made = { id: `m${String(serial).padStart(12, '0')}`, sent: now(), subscription: 'sub_0412', customer: 'Padaria Bom Grao', amount: 18990, competence: '2026-10', pad: '' };
  made.pad = pads[serial % pads.length].slice(0, 1024 - JSON.stringify(made).length);
  return made;
}

// CPU seconds of the server: fields 14 and 15 of /proc/PID/stat, counted from behind the name, in ticks of 10 ms.
function serverCpu() {
  const stat = readFileSync(`/proc/${given.pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}
function serverMib() {
  return Math.round(Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${given.pid}/smaps_rollup`, 'utf8'))[1]) / 1024);
}

const empty = redis();
await empty.flushall();
empty.disconnect();
const queue = new Queue('bench', { connection: redis() });
await queue.waitUntilReady();
const publish = () =>
  batch > 1
    ? queue.addBulk(Array.from({ length: batch }, () => ({ name: 'm', data: message(), opts: OPTIONS })))
    : queue.add('m', message(), OPTIONS);

const latencies = [];
let messages = 0;
const start = now() + WARM_UP_MS;
const end = start + seconds * 1000;
function note(count, begun) {
  const done = now();
  if (done >= start && done < end) {
    messages += count;
    latencies.push(done - begun);
  }
}
let before;
setTimeout(() => { before = [serverCpu(), process.cpuUsage()]; }, WARM_UP_MS);

if (given.work === 'publish') {
  await Promise.all(Array.from({ length: connections }, async () => {
    while (now() < end) {
      const begun = now();
      await publish();
      note(batch, begun);
    }
  }));
} else {
  let onTheirWay = 0;
  const worker = new Worker('bench', async () => {}, { connection: redis(), concurrency: connections });
  worker.on('completed', (job) => {
    onTheirWay -= 1;
    note(1, job.data.sent);
  });
  await worker.waitUntilReady();
  await Promise.all(Array.from({ length: connections }, async () => {
    while (now() < end) {
      if (onTheirWay >= WINDOW) {
        await sleep(1);
        continue;
      }
      onTheirWay += 1;
      await publish();
    }
  }));
}

const cpu = (serverCpu() - before[0]) * 1e6;
const own = process.cpuUsage(before[1]);
const round = (value, digits) => Number(value.toFixed(digits));
latencies.sort((a, b) => a - b);
const percentile = (share) => round(latencies[Math.floor((latencies.length - 1) * share)] ?? 0, 2);
const row = given.work === 'lifecycle' ? 'lifecycle' : batch > 1 ? `batch-${batch}` : `publish-${connections}`;
console.log(JSON.stringify({
  peer: given.name,
  row,
  figures: {
    messages_per_second: Math.round(messages / seconds),
    p50_ms: percentile(0.5),
    p99_ms: percentile(0.99),
    server_cpu_us: round(cpu / Math.max(messages, 1), 1),
    client_cpu_us: round((own.user + own.system) / Math.max(messages, 1), 1),
    pss_mib: serverMib(),
  },
}));
process.exit(0);
