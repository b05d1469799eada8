// A session with examples/parts.mjs: node parts_session.mjs redis-5|redis-6 parts.mjs PORT
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const [, , packageName, recipe, port] = process.argv;
const { createCluster } = createRequire(path.join(process.env.BLOOMERY_NODE_MODULES, 'x'))(packageName);
const { Parts } = await import(recipe);
const n = 100000, rate = 0.001, batch = 5000;

const cluster = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] });
cluster.on('error', () => {}); // a lost connection is reported here, and made again
await cluster.connect();
const parts = new Parts(cluster, 'whole', 16);
await parts.reserve(rate, n);

const named = (word, from) => Array.from({ length: batch }, (_, i) => word + (from + i));
const count = answers => answers.reduce((sum, answer) => sum + Number(answer), 0);
let added = 0, wrong = 0;
for (let i = 0; i < n; i += batch)
    added += count(await parts.add(named('item-', i)));
assert(added <= n && added > n * (1 - 2 * rate), `${added} winners`);
assert.equal(count(await parts.add(named('item-', 0))), 0);
const info = await parts.info();
assert.equal(info.ITEMS, added);
assert(info.CAPACITY > n && info.CAPACITY < n * 1.1, `capacity ${info.CAPACITY}`);
for (let i = 0; i < n; i += batch)
    assert.equal(count(await parts.exists(named('item-', i))), batch);
for (let i = 0; i < n; i += batch)
    wrong += count(await parts.exists(named('other-', i)));
const binary = Buffer.from([0, 255, 1, 10, 13]);
assert.equal(parts.part(binary), parts.part(Buffer.from(binary)));
assert.equal((await parts.exists([binary])).length, 1);
assert(wrong / n < rate * 1.3, `${wrong} false positives of ${n}`);
console.log(`${wrong} false positives of ${n}`);
await cluster.close();
