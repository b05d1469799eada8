// A session of ioredis, which has no helpers for filters: `node ioredis.mjs ioredis-5|ioredis-6 [2|3]`, with the
// library's default protocol or the given one. See with_daemon.py.
import { AUTH_PORT, CLUSTER_PORT, HOST, PASSWORD, PORT, SCHEME, TLS, equal, event, holds, library, raises, run, until } from './session.mjs';

const [, , packageName, protocol] = process.argv;
const { Cluster, Redis } = library(packageName);
const { version } = library(`${packageName}/package.json`);
const resp3 = packageName !== 'ioredis-5' && protocol !== '2';
const yes = 1, no = 0; // version 6 gives booleans as numbers, and maps as flat arrays, unless it is asked otherwise
const secure = TLS ? { tls: TLS } : {};
const clients = [];

function create(options = {}) {
    const asked = protocol ? { protocol: Number(protocol) } : {};
    const client = new Redis({ host: HOST, port: PORT, retryStrategy: () => 20, ...secure, ...asked, ...options });
    client.on('error', () => {}); // a lost connection is reported here, and made again
    clients.push(client);
    return client;
}

async function fresh(options) {
    const client = create(options);
    await client.flushall();
    return client;
}

// A guard before a slow store, as it is written with this library: commands by name, one round trip for many keys.
class Guard {
    constructor(client, key) {
        this.client = client;
        this.key = key;
    }
    async mayHave(ids) {
        const answers = await this.client.call('BF.MEXISTS', this.key, ...ids);
        return ids.filter((_, i) => answers[i]);
    }
    async learn(ids) {
        const options = ['CAPACITY', 100000, 'ERROR', 0.001];
        return (await this.client.call('BF.INSERT', this.key, ...options, 'ITEMS', ...ids)).filter(Boolean).length;
    }
}

async function connectsWithAndWithoutAPassword() {
    const open = create();
    equal(await open.ping(), 'PONG');
    equal(open.status, 'ready');
    equal(await create({ port: AUTH_PORT, password: PASSWORD, connectionName: 'guard' }).client('GETNAME'), 'guard');
    equal(await create({ port: AUTH_PORT, username: 'default', password: PASSWORD, db: 0 }).ping(), 'PONG');
    const url = new Redis(`${SCHEME}://:${encodeURIComponent(PASSWORD)}@${HOST}:${AUTH_PORT}/0`, secure);
    clients.push(url);
    equal(await url.ping(), 'PONG');
    const wrong = new Redis({ host: HOST, port: AUTH_PORT, password: 'no', retryStrategy: null, maxRetriesPerRequest: 0, ...secure });
    clients.push(wrong);
    const reported = new Promise(resolve => wrong.on('error', resolve));
    holds((await reported).message.includes('WRONGPASS'), 'a wrong password is reported');
    const silent = create({ port: AUTH_PORT, enableReadyCheck: false });
    await raises('NOAUTH', silent.call('BF.ADD', 'f', 'a'));
    const mine = await open.client('INFO');
    holds(mine.includes('lib-name=ioredis') && mine.includes(`lib-ver=${version}`), mine);
    holds(mine.includes(`resp=${resp3 ? 3 : 2}`), mine);
}

async function filters() {
    const client = await fresh();
    equal(await client.call('BF.RESERVE', 'f', 0.001, 1000, 'EXPANSION', 4), 'OK');
    equal(await client.call('bf.add', 'f', 'a'), yes);
    equal(await client.call('bf.add', 'f', 'a'), no);
    equal(await client.call('BF.MADD', 'f', 'a', 'b', Buffer.from([0, 255, 13, 10])), [no, yes, yes]);
    equal(await client.call('BF.MEXISTS', 'f', 'b', Buffer.from([0, 255, 13, 10]), 'z'), [yes, yes, no]);
    equal(await client.call('BF.CARD', 'f'), 3);
    const info = await client.call('BF.INFO', 'f');
    equal([info.length, info[0], info[1], info[6], info[7]], [10, 'Capacity', 1000, 'Number of items inserted', 3]);
    if (resp3) {
        const mapped = create({ replyMapping: 'resp3' });
        equal((await mapped.call('BF.INFO', 'f'))['Expansion rate'], 4);
        equal(await mapped.call('BF.MEXISTS', 'f', 'b', 'z'), [true, false]);
    }
    equal(await client.call('BF.INFO', 'f', 'CAPACITY'), resp3 ? ['Capacity', 1000] : [1000]);
}

async function aCacheGuard() {
    const guard = new Guard(await fresh(), 'users');
    equal(await guard.mayHave(['ann']), []);
    equal(await guard.learn(['ann', 'ben', 'ann']), 2);
    equal(await guard.mayHave(['ann', 'ben', 'zoe']), ['ann', 'ben']);
    // Rebuilt beside the one in use, and swapped in.
    const next = new Guard(guard.client, 'users:next');
    equal(await next.learn(['ann', 'zoe']), 2);
    equal(await guard.client.rename('users:next', 'users'), 'OK');
    equal(await guard.mayHave(['ann', 'ben', 'zoe']), ['ann', 'zoe']);
}

async function ownCommands() {
    const client = await fresh({ enableAutoPipelining: true });
    client.addBuiltinCommand?.('bf.add');
    const adds = await Promise.all(Array.from({ length: 500 }, (_, i) => client.call('BF.ADD', 'auto', i)));
    holds(adds.filter(Boolean).length > 490, 'nearly all are new');
    equal(await client.call('BF.CARD', 'auto'), adds.filter(Boolean).length);
}

async function errors() {
    const client = await fresh();
    await client.call('BF.RESERVE', 'f', 0.01, 100);
    await raises('item exists', client.call('BF.RESERVE', 'f', 0.01, 100));
    await raises('not found', client.call('BF.INFO', 'missing'));
    await raises('wrong number of arguments', client.call('BF.ADD', 'f'));
    await raises('unknown command', client.set('key', 'value'));
    await raises('unknown command', client.eval('return 1', 0));
    equal(await client.ping(), 'PONG');
    const elsewhere = create(); // it would ask for the same database again whenever it connects again
    await raises('DB index is out of range', elsewhere.select(16));
    elsewhere.disconnect();
}

async function databases() {
    const client = await fresh();
    await client.call('BF.ADD', 'theirs', 'a');
    const elsewhere = create({ db: 5 });
    equal(await elsewhere.call('BF.EXISTS', 'theirs', 'a'), no);
    equal(await elsewhere.call('BF.ADD', 'mine', 'b'), yes);
    equal(await client.call('EXISTS', 'mine'), 0);
    equal(await elsewhere.move('mine', 0), 1);
    equal(await client.call('BF.EXISTS', 'mine', 'b'), yes);
    equal(await elsewhere.flushdb(), 'OK');
    equal(await client.dbsize(), 2);
    elsewhere.disconnect();
}

async function aClusterOfOneNode() {
    const redisOptions = { ...secure, ...(protocol ? { protocol: Number(protocol) } : {}) };
    const cluster = new Cluster([{ host: HOST, port: CLUSTER_PORT }], { redisOptions });
    clients.push(cluster);
    equal(await cluster.flushall(), 'OK');
    equal(cluster.nodes('master').length, 1);
    for (let i = 0; i < 50; i++) equal(await cluster.call('BF.ADD', `f${i}`, 'a'), yes);
    equal(await cluster.call('BF.EXISTS', 'f49', 'a'), yes);
    equal(await cluster.dbsize(), 50);
    equal((await cluster.pipeline().call('BF.EXISTS', '{t}1', 'a').call('BF.ADD', '{t}2', 'a').exec()).map(([, r]) => r), [no, yes]);
    equal(await cluster.cluster('KEYSLOT', '{t}1'), await cluster.cluster('KEYSLOT', 't'));
}

async function pipelinesAndTransactions() {
    const client = await fresh();
    const replies = await client.pipeline().call('BF.ADD', 'p', 'a').call('BF.RESERVE', 'p', 0.01, 10)
        .call('BF.EXISTS', 'p', 'a').exec();
    equal(replies.map(([error, reply]) => error?.message ?? reply), [yes, 'ERR item exists', yes]);
    equal(await client.multi().call('BF.ADD', 'm', 'a').call('BF.MADD', 'm', 'a', 'b').expire('m', 100).exec(),
        [[null, yes], [null, [no, yes]], [null, 1]]);
    await raises('EXECABORT', client.multi().call('BF.ADD', 'm', 'never').call('BF.ADD', 'm').exec());
    equal(await client.call('BF.EXISTS', 'm', 'never'), no);
    const long = client.pipeline();
    for (let i = 0; i < 3000; i++) long.call('BF.ADD', 'long', i);
    equal((await long.exec()).filter(([error]) => error).length, 0);
    const other = create();
    await client.watch('w');
    await other.call('BF.ADD', 'w', 'a');
    equal(await client.multi().call('BF.ADD', 'w', 'b').exec(), null);
    equal(await client.call('BF.EXISTS', 'w', 'b'), no);
}

async function dumpAndLoad() {
    const client = await fresh();
    await client.call('BF.RESERVE', 'f', 0.001, 1000);
    const items = Array.from({ length: 5000 }, (_, i) => `https://example.org/${i}`);
    await client.call('BF.MADD', 'f', ...items);
    let iterator = 0, data, chunks = 0;
    for (;;) {
        [iterator, data] = await client.callBuffer('BF.SCANDUMP', 'f', iterator);
        if (Number(iterator) === 0) break;
        chunks++;
        equal(await client.call('BF.LOADCHUNK', 'g', iterator, data), 'OK');
    }
    holds(chunks > 0, 'there are chunks');
    equal(await client.call('BF.MEXISTS', 'g', ...items), items.map(() => yes));
    equal(await client.call('BF.INFO', 'g'), await client.call('BF.INFO', 'f'));
    await raises('bad data', client.call('BF.LOADCHUNK', 'bad', 1, 'garbage'));
    equal(await client.restore('r', 0, await client.dumpBuffer('f')), 'OK');
    equal(await client.copy('f', 'c'), 1);
    equal(await client.call('BF.INFO', 'r'), await client.call('BF.INFO', 'f'));
}

async function keysAndExpiry() {
    const client = await fresh();
    for (let i = 0; i < 100; i++) await client.call('BF.ADD', `user:${i}`, 'a');
    const seen = new Set();
    for await (const keys of client.scanStream({ match: 'user:*', count: 10, type: 'MBbloom--' }))
        for (const key of keys) seen.add(key);
    equal(seen.size, 100);
    equal(await client.type('user:1'), 'MBbloom--');
    equal(await client.unlink('user:1', 'missing'), 1);
    equal(await client.dbsize(), 99);
    equal(await client.expire('user:3', 100), 1);
    equal(await client.expire('user:3', 50, 'GT'), 0);
    const ttl = await client.pttl('user:3');
    holds(ttl > 40000 && ttl <= 100000, `PTTL ${ttl}`);
    equal(await client.persist('user:3'), 1);
    equal(await client.pexpire('user:3', 10), 1);
    await until(async () => await client.exists('user:3') === 0, 'it expires');
    holds(await client.memory('USAGE', 'user:4') > 100, 'MEMORY USAGE');
    equal(await client.object('ENCODING', 'user:4'), 'raw');
}

async function publishAndSubscribe() {
    const client = await fresh(), subscriber = create();
    const seen = new Set();
    await client.config('SET', 'notify-keyspace-events', 'KEA');
    // The library sends a SUBSCRIBE ahead of the INFO by which it finds out that the daemon is ready, and then refuses its
    // own INFO if the reply comes first.
    if (subscriber.status !== 'ready') await event(subscriber, 'ready');
    subscriber.on('message', (channel, message) => seen.add(`${channel} ${message}`));
    subscriber.on('pmessage', (pattern, channel, message) => seen.add(`${channel} ${message}`));
    equal(await subscriber.subscribe('news', 'weather'), 2);
    equal(await subscriber.psubscribe('__keyspace@0__:*'), 3);
    equal(await client.publish('news', 'hello'), 1);
    await client.call('BF.ADD', 'f', 'a');
    await client.del('f');
    await until(() => seen.has('news hello') && seen.has('__keyspace@0__:f del'), 'message and event arrive');
    // Its subscriptions are made again when it connects again.
    const id = (await client.client('LIST', 'TYPE', 'pubsub')).match(/^id=(\d+)/)[1];
    equal(await client.client('KILL', 'ID', id), 1);
    await until(async () => {
        await client.publish('news', 'again');
        return seen.has('news again');
    }, 'it is subscribed again');
    equal(await subscriber.unsubscribe('weather'), 2);
    await client.config('SET', 'notify-keyspace-events', '');
}

async function monitor() {
    const client = await fresh();
    const watcher = await client.monitor();
    watcher.on('error', () => {});
    const seen = [];
    watcher.on('monitor', (time, args) => seen.push(args.join(' ')));
    await until(async () => {
        await client.call('BF.ADD', 'f', 'a "b"');
        return seen.includes('BF.ADD f a "b"');
    }, 'the monitor sees the command');
    watcher.disconnect();
}

async function administration() {
    const client = await fresh();
    const info = await client.info();
    for (const field of ['redis_version', 'loading:0', 'role:master', 'connected_clients', 'used_memory', '# Keyspace'])
        holds(info.includes(field), `INFO has ${field}`);
    equal(await client.config('GET', 'maxmemory'), ['maxmemory', '0']);
    holds((await client.client('LIST')).includes(`id=${await client.client('ID')} `), 'CLIENT LIST has this client');
    equal((await client.command('COUNT')), (await client.command()).length);
    equal((await client.role())[0], 'master');
    equal((await client.time()).length, 2);
    equal(await client.slowlog('RESET'), 'OK');
    equal(await client.slowlog('LEN'), 0);
}

async function connectsAgain() {
    const client = await fresh(), other = create();
    await client.call('BF.ADD', 'f', 'a');
    const id = await client.client('ID');
    const afterKill = event(client, 'ready');
    equal(await other.client('KILL', 'ID', id), 1);
    await afterKill;
    holds(await client.client('ID') > id, 'it is another connection');
    equal(await client.call('BF.EXISTS', 'f', 'a'), yes);
    const runId = async () => /run_id:(\w+)/.exec(await client.info('server'))[1];
    const before = await runId();
    const afterShutdown = event(client, 'ready');
    await create({ maxRetriesPerRequest: 0, retryStrategy: null }).call('SHUTDOWN', 'SAVE').catch(() => {});
    await afterShutdown;
    holds(await runId() !== before, 'it is the next daemon');
    await until(async () => /\r\nloading:0\r\n/.test(await client.info('persistence')), 'the filters are loaded');
    equal(await client.call('BF.EXISTS', 'f', 'a'), yes);
}

const status = await run(`ioredis ${version}, RESP${resp3 ? 3 : 2}`, [
    connectsWithAndWithoutAPassword, filters, aCacheGuard, ownCommands, errors, databases, aClusterOfOneNode,
    pipelinesAndTransactions, dumpAndLoad,
    keysAndExpiry, publishAndSubscribe, monitor, administration, connectsAgain]);
for (const client of clients) client.disconnect();
process.exit(status);
