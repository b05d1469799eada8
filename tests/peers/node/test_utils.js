// What node-redis' own tests have as @redis/test-utils, for ../node_redis.py: a test gets a client of a bloomeryd with the
// settings that it asks for, started by the first that asks for them. Tests that ask for none are about the library alone, and
// skipped. Commands on strings become commands on filters: SET is a RESTORE of a filter, whatever the value, and GET is DUMP.
// The variables:
//
//   BLOOMERY_DAEMON    bloomeryd
//   BLOOMERY_PORTS     ports for the daemons
//   BLOOMERY_PLACE     a directory for theirs
//   BLOOMERY_LEFT_OUT  full titles of tests that are skipped, one in a line
const { spawn } = require('node:child_process');
const { mkdirSync } = require('node:fs');
const path = require('node:path');
const { createInterface } = require('node:readline');
const RedisClient = require('@redis/client/lib/client').default;
const RedisCluster = require('@redis/client/lib/cluster').default;
const encoder = require('@redis/client/lib/client/RESP2/encoder');

const ports = process.env.BLOOMERY_PORTS.split(' ');
const leftOut = new Set(process.env.BLOOMERY_LEFT_OUT.split('\n'));
const daemons = new Map(); // by their arguments: promises
const served = new Set(); // the tests
let filter; // a dump: what SET sets
let transaction = false; // whether the next command is one of a transaction

async function start(words) {
    const port = ports.shift();
    const place = path.join(process.env.BLOOMERY_PLACE, port);
    mkdirSync(place);
    const child = spawn(process.env.BLOOMERY_DAEMON,
        ['--port', port, '--dir', place, '--appendonly', 'no', '--threads', '2', ...words],
        { stdio: ['ignore', 'ignore', 'pipe'] });
    const lines = createInterface({ input: child.stderr });
    return new Promise((resolve, reject) => {
        lines.on('line', line => {
            if (line.includes(' ready: listening on ')) resolve({ port: Number(port), child });
        });
        child.once('exit', () => reject(new Error(`the daemon has ended: ${words}`)));
    });
}

function daemon(serverArguments, more = []) {
    const words = [...serverArguments.filter(word => !word.startsWith('--loadmodule')), ...more];
    const key = words.join(' ');
    if (!daemons.has(key)) daemons.set(key, start(words));
    return daemons.get(key);
}

// RESTORE is no command for transactions. HGETALL stands for a command that fails when it runs.
const inTransaction = {
    SET: key => ['BF.RESERVE', key, '0.01', '100'],
    DECR: key => ['BF.ADD', key, 'item'],
    HGETALL: key => ['CF.INFO', key]
};

function inOurWords(words) {
    const [, key, , option, time] = words;
    const name = `${words[0]}`.toUpperCase();
    if (transaction && name in inTransaction) return inTransaction[name](key);
    if (name === 'GET') return ['DUMP', ...words.slice(1)];
    if (name === 'ACL' || name === 'COMMAND') return words.map(word => word === 'GET' ? 'DUMP' : word);
    const life = { undefined: 0, EX: time * 1000, PX: time }[option];
    return name === 'SET' && words.length !== 4 && life !== undefined ? ['RESTORE', key, `${life}`, filter, 'REPLACE'] : words;
}

// The commands of a transaction come one after the other, whatever other clients do.
const encode = encoder.default;
encoder.default = words => {
    const ours = inOurWords(words);
    if (words[0] === 'MULTI') transaction = true;
    if (words[0] === 'EXEC') transaction = false;
    return encode(ours);
};

async function makeFilter(client) {
    await client.sendCommand(['BF.ADD', 'filter', 'item']);
    filter = await client.sendCommand(['DUMP', 'filter'], { returnBuffers: true });
}

// A test of a command that Bloomery does not have is about another type, and skipped.
async function unlessUnknown(test, run) {
    try {
        await run();
    } catch (error) {
        const errors = [error, ...(error.replies ?? [])];
        if (errors.some(one => one instanceof Error && one.message.includes("unknown command '"))) test.skip();
        throw error;
    }
}

class TestUtils {
    // As the newest.
    isVersionGreaterThan() {
        return true;
    }

    isVersionGreaterThanHook() {}

    testWithClient(title, run, { serverArguments, clientOptions, disableClientSetup }) {
        const test = it(title, async function () {
            const { port } = await daemon(serverArguments);
            const client = RedisClient.create({ ...clientOptions, socket: { ...clientOptions?.socket, port } });
            if (disableClientSetup) return run(client);
            await client.connect();
            const bare = clientOptions?.legacyMode ? client.v4 : client;
            try {
                await bare.flushAll();
                await makeFilter(bare);
                await bare.flushAll();
                await unlessUnknown(this, () => run(client));
            } finally {
                if (client.isOpen) await client.disconnect();
            }
        });
        served.add(test);
    }

    // Of one node, which is all the cluster that there is.
    testWithCluster(title, run, { serverArguments, clusterConfiguration }) {
        const test = it(title, async function () {
            const { port } = await daemon(serverArguments, ['--cluster-emulation', 'yes']);
            const cluster = RedisCluster.create({
                rootNodes: [{ socket: { port } }], minimizeConnections: true, ...clusterConfiguration
            });
            await cluster.connect();
            try {
                const client = await cluster.nodeClient(cluster.masters[0]);
                await client.flushAll();
                await makeFilter(client);
                await client.flushAll();
                await unlessUnknown(this, () => run(cluster));
            } finally {
                if (cluster.isOpen) await cluster.disconnect();
            }
        });
        served.add(test);
    }
}

exports.default = TestUtils;
exports.mochaHooks = {
    beforeEach() {
        if (!served.has(this.currentTest) || leftOut.has(this.currentTest.fullTitle())) this.skip();
    },
    async afterAll() {
        for (const started of daemons.values()) {
            const { child } = await started;
            const ended = new Promise(resolve => child.once('exit', resolve));
            child.kill();
            if (await ended !== 0) throw new Error('a daemon has failed');
        }
    }
};
