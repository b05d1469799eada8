// A session of node-redis: `node node_redis.mjs redis-5|redis-6 [2|3]`, with the library's default protocol or the
// given one. See with_daemon.py.
import { AUTH_PORT, CLUSTER_PORT, HOST, PASSWORD, PORT, SCHEME, TLS, equal, event, holds, library, raises, run, until } from './session.mjs';

const [, , packageName, protocol] = process.argv;
const { createClient, createClientPool, createCluster, RESP_TYPES, WatchError, MultiErrorReply } = library(packageName);
const { version } = library(`${packageName}/package.json`);
const secure = TLS ? { tls: true, ...TLS } : {};
const clients = [];

async function connect(options = {}) {
    const client = createClient({
        socket: { ...secure, host: HOST, port: PORT, reconnectStrategy: 20 },
        ...(protocol ? { RESP: Number(protocol) } : {}),
        ...options,
    });
    client.on('error', () => {}); // a lost connection is reported here, and made again
    clients.push(client);
    await client.connect();
    return client;
}

async function fresh(options) {
    const client = await connect(options);
    await client.flushAll();
    return client;
}

const auth = { socket: { ...secure, host: HOST, port: AUTH_PORT, reconnectStrategy: false } };

async function connectsWithAndWithoutAPassword() {
    equal(await (await connect()).ping(), 'PONG');
    equal(await (await connect({ ...auth, password: PASSWORD })).ping(), 'PONG');
    const named = await connect({ ...auth, username: 'default', password: PASSWORD, name: 'guard', database: 0 });
    equal(await named.clientGetName(), 'guard');
    await raises('WRONGPASS', connect({ ...auth, password: 'no' }));
    await raises('NOAUTH', (async () => (await connect(auth)).bf.add('f', 'a'))());
    const elsewhere = { database: 16, socket: { ...secure, host: HOST, port: PORT, reconnectStrategy: false } };
    await raises('DB index is out of range', connect(elsewhere));
    const url = createClient({ url: `${SCHEME}://:${encodeURIComponent(PASSWORD)}@${HOST}:${AUTH_PORT}`, socket: { ...secure } });
    clients.push(url);
    equal(await (await url.connect()).ping(), 'PONG');
    const mine = await named.sendCommand(['CLIENT', 'INFO']);
    holds(mine.includes('lib-name=node-redis') && mine.includes(`lib-ver=${version}`), mine);
    if (protocol) holds(mine.includes(`resp=${protocol}`), mine);
}

async function theHelpers() {
    const client = await fresh();
    equal(await client.bf.reserve('f', 0.001, 1000, { EXPANSION: 4 }), 'OK');
    equal(await client.bf.add('f', 'a'), true);
    equal(await client.bf.add('f', 'a'), false);
    equal(await client.bf.exists('f', 'a'), true);
    equal(await client.bf.exists('f', 'z'), false);
    equal(await client.bf.mAdd('f', ['a', 'b', 'c']), [false, true, true]);
    equal(await client.bf.mExists('f', ['a', 'b', 'z']), [true, true, false]);
    const info = await client.bf.info('f');
    equal(Object.keys(info), ['Capacity', 'Size', 'Number of filters', 'Number of items inserted', 'Expansion rate']);
    equal([info.Capacity, info['Number of filters']], [1000, 1]);
    equal([info['Number of items inserted'], info['Expansion rate']], [3, 4]);
    equal(await client.bf.card('f'), 3);
    equal(await client.bf.card('missing'), 0);
    equal(await client.bf.reserve('fixed', 0.01, 10, { NONSCALING: true }), 'OK');
    equal((await client.bf.info('fixed'))['Expansion rate'], null);
}

async function insertWithOptions() {
    const client = await fresh();
    const options = { CAPACITY: 5000, ERROR: 0.0001, EXPANSION: 3 };
    equal(await client.bf.insert('i', ['x', 'y', 'x'], options), [true, true, false]);
    const info = await client.bf.info('i');
    equal([info.Capacity, info['Expansion rate']], [5000, 3]);
    equal(await client.bf.insert('i', 'z', { NOCREATE: true }), [true]);
    await raises('not found', client.bf.insert('none', ['x'], { NOCREATE: true }));
    equal(await client.bf.insert('n', ['x'], { NONSCALING: true, CAPACITY: 10 }), [true]);
}

async function errors() {
    const client = await fresh();
    await client.bf.reserve('f', 0.01, 100);
    await raises('item exists', client.bf.reserve('f', 0.01, 100));
    await raises('error rate', client.bf.reserve('g', 7, 100));
    await raises('not found', client.bf.info('missing'));
    await raises('unknown command', client.set('key', 'value'));
    await raises('wrong number of arguments', client.sendCommand(['BF.ADD', 'f']));
    equal(await client.ping(), 'PONG');
}

async function pipelinesAndTransactions() {
    const client = await fresh();
    // Commands that are not waited for one by one are one pipeline.
    const adds = await Promise.all(Array.from({ length: 1000 }, (_, i) => client.bf.add('long', String(i))));
    holds(adds.filter(Boolean).length > 985, 'nearly all are new');
    equal(await client.multi().bf.add('m', 'a').bf.mAdd('m', ['a', 'b']).expire('m', 100).bf.card('m').exec(),
        [true, [false, true], 1, 2]);
    equal(await client.multi().bf.add('p', 'a').bf.exists('p', 'z').execAsPipeline(), [true, false]);
    await raises('', client.multi().bf.add('m', 'a').bf.reserve('m', 0.01, 100).bf.exists('m', 'a').exec());
    try {
        await client.multi().bf.add('m', 'a').bf.reserve('m', 0.01, 100).exec();
    } catch (error) {
        holds(error instanceof MultiErrorReply, 'an error of one command is the error of the transaction');
        equal(error.replies[0], false);
        equal(error.errorIndexes, [1]);
    }
    await raises('wrong number of arguments', client.multi().bf.add('m', 'never').addCommand(['BF.ADD', 'm']).exec());
    equal(await client.bf.exists('m', 'never'), false);
}

async function optimisticTransactions() {
    const client = await fresh(), other = await connect();
    await client.watch('w');
    equal(await client.bf.exists('w', 'a'), false);
    await other.bf.add('w', 'b');
    let error;
    await client.multi().bf.add('w', 'a').exec().catch(e => { error = e; });
    holds(error instanceof WatchError, `a WatchError, not ${error}`);
    equal(await client.bf.exists('w', 'a'), false);
    await client.watch('w');
    equal(await client.multi().bf.add('w', 'a').exec(), [true]);
}

async function dumpAndLoad() {
    const client = await fresh();
    const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }); // chunks are bytes, no text
    await client.bf.reserve('f', 0.001, 1000);
    const items = Array.from({ length: 5000 }, (_, i) => `https://example.org/${i}`);
    await client.bf.mAdd('f', items);
    let iterator = 0, chunks = 0;
    for (;;) {
        const step = await binary.bf.scanDump('f', iterator);
        iterator = step.iterator;
        if (iterator === 0) break;
        chunks++;
        equal(String(await client.bf.loadChunk('g', iterator, step.chunk)), 'OK');
    }
    holds(chunks > 0, 'there are chunks');
    equal(await client.bf.mExists('g', items), items.map(() => true));
    equal({ ...await client.bf.info('g') }, { ...await client.bf.info('f') });
    await raises('not found', client.bf.scanDump('missing', 0));
    await raises('bad data', client.bf.loadChunk('bad', 1, 'garbage'));
    const payload = await binary.dump('f');
    equal(await client.restore('r', 0, payload), 'OK');
    equal(await client.copy('f', 'c'), 1);
    equal(await client.bf.mExists('r', items), items.map(() => true));
}

async function keysAndExpiry() {
    const client = await fresh();
    for (let i = 0; i < 100; i++) await client.bf.add(`user:${i}`, 'a');
    const seen = new Set();
    for await (const keys of client.scanIterator({ MATCH: 'user:*', COUNT: 10, TYPE: 'MBbloom--' }))
        for (const key of keys) seen.add(key);
    equal(seen.size, 100);
    equal(await client.type('user:1'), 'MBbloom--');
    equal(await client.exists(['user:1', 'missing']), 1);
    equal(await client.rename('user:1', 'renamed'), 'OK');
    equal(await client.del(['renamed', 'user:2']), 2);
    equal(await client.dbSize(), 98);
    holds(await client.memoryUsage('user:3') > 100, 'MEMORY USAGE');
    equal(await client.expire('user:3', 100), 1);
    equal(await client.expire('user:3', 50, 'GT'), 0);
    const ttl = await client.ttl('user:3');
    holds(ttl > 40 && ttl <= 100, `TTL ${ttl}`);
    equal(await client.persist('user:3'), 1);
    equal(await client.pExpire('user:3', 10), 1);
    await until(async () => await client.exists('user:3') === 0, 'it expires');
    equal(await client.bf.exists('user:3', 'a'), false);
}

async function publishAndSubscribe() {
    const client = await fresh(), subscriber = await connect();
    const seen = new Set();
    await client.configSet('notify-keyspace-events', 'KEA');
    await subscriber.subscribe('news', (message, channel) => seen.add(`${channel} ${message}`));
    await subscriber.pSubscribe('__keyevent@0__:*', (message, channel) => seen.add(`${channel} ${message}`));
    equal(await client.publish('news', 'hello'), 1);
    await client.bf.add('f', 'a');
    await client.del('f');
    await until(() => seen.has('news hello') && seen.has('__keyevent@0__:del f'), 'message and event arrive');
    if (protocol === '3') equal(await subscriber.bf.add('g', 'a'), true); // RESP3: commands beside subscriptions
    await subscriber.unsubscribe('news');
    await subscriber.pUnsubscribe();
    equal(await client.publish('news', 'nobody'), 0);
    await client.configSet('notify-keyspace-events', '');
}

async function administration() {
    const client = await fresh();
    holds((await client.info()).includes('redis_version:'), 'INFO');
    equal((await client.info('commandstats')).includes('cmdstat_flushall:calls='), true);
    equal((await client.configGet('maxmemory')).maxmemory, '0');
    const id = await client.clientId();
    const mine = (await client.clientList()).filter(entry => entry.id === id);
    equal([mine.length, mine[0].db, mine[0].cmd, mine[0].libName], [1, 0, 'client|list', 'node-redis']);
    equal((await client.clientInfo()).id, id);
    equal(await client.commandCount(), (await client.command()).length);
    const [bfAdd] = await client.commandInfo(['bf.add']);
    equal([bfAdd.name, bfAdd.arity, bfAdd.firstKeyIndex], ['bf.add', 3, 1]);
    equal(await client.commandGetKeys(['BF.MADD', 'f', 'a', 'b']), ['f']);
    holds((await client.moduleList()).some(module => module.name === 'bf'), 'MODULE LIST has bf');
    equal((await client.role()).role, 'master');
    equal(await client.wait(0, 10), 0);
    holds(Math.abs(await client.lastSave() - Date.now() / 1000) < 3600, 'LASTSAVE is a time of this hour');
    equal(await client.configResetStat(), 'OK');
}

async function databases() {
    const client = await fresh(), other = await connect({ database: 7 });
    equal(await client.bf.add('f', 'a'), true);
    equal(await other.exists('f'), 0);
    equal(await client.copy('f', 'f', { DB: 7 }), 1);
    equal(await other.bf.exists('f', 'a'), true);
    equal(await client.swapDb(0, 7), 'OK');
    equal(await client.move('f', 8), 1);
    equal([await client.dbSize(), await other.dbSize()], [0, 1]);
    equal((await other.clientInfo()).db, 7);
}

async function aClusterOfOneNode() {
    const cluster = createCluster({
        rootNodes: [{ socket: { host: HOST, port: CLUSTER_PORT } }], defaults: { socket: { ...secure } },
        ...(protocol ? { RESP: Number(protocol) } : {}) });
    cluster.on('error', () => {});
    await cluster.connect();
    equal(cluster.masters.length, 1);
    await (await cluster.nodeClient(cluster.masters[0])).flushAll();
    const won = await Promise.all(Array.from({ length: 100 }, (_, i) => cluster.bf.add(`f${i % 50}`, 'a')));
    equal(won.filter(Boolean).length, 50);
    equal(await cluster.bf.mExists('f7', ['a', 'b']), [true, false]);
    equal(await cluster.multi().bf.add('{t}1', 'x').bf.exists('{t}2', 'x').exec(), [true, false]);
    await cluster.close();
}

async function aPool() {
    const options = { socket: { ...secure, host: HOST, port: PORT }, ...(protocol ? { RESP: Number(protocol) } : {}) };
    const pool = createClientPool(options, { maximum: 5, acquireTimeout: 240000 }); // its own: 3 s
    pool.on('error', () => {});
    await pool.connect();
    const won = await Promise.all(Array.from({ length: 50 }, () => pool.bf.add('pool', 'one winner')));
    equal(won.filter(Boolean).length, 1);
    await pool.close();
}

// No command is under way when the connection ends: node-redis may lose one that it writes at that moment, whatever the
// server is.
async function connectsAgain() {
    const client = await fresh(), other = await connect();
    await client.bf.add('f', 'a');
    const id = await client.clientId();
    const afterKill = event(client, 'ready');
    equal(await other.clientKill({ filter: 'ID', id }), 1);
    await afterKill;
    holds(await client.clientId() > id, 'it is another connection');
    equal(await client.bf.exists('f', 'a'), true);
    const runId = async () => /run_id:(\w+)/.exec(await client.info('server'))[1];
    const before = await runId();
    const afterShutdown = event(client, 'ready');
    await other.sendCommand(['SHUTDOWN', 'SAVE']).catch(() => {});
    await afterShutdown;
    holds(await runId() !== before, 'it is the next daemon');
    await until(async () => /\r\nloading:0\r\n/.test(await client.info('persistence')), 'the filters are loaded');
    equal(await client.bf.exists('f', 'a'), true);
}

const status = await run(`node-redis ${version}, RESP${protocol ?? ' default'}`, [
    connectsWithAndWithoutAPassword, theHelpers, insertWithOptions, errors, pipelinesAndTransactions,
    optimisticTransactions, dumpAndLoad, keysAndExpiry, publishAndSubscribe, administration, databases, aClusterOfOneNode, aPool, connectsAgain]);
for (const client of clients) if (client.isOpen) client.destroy();
process.exit(status);
