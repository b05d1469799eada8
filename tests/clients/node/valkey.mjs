// Sessions of Valkey's libraries under `bf-compatibility valkey`: iovalkey and valkey-glide, which have no helpers for filters
// and call commands by name. Both get what valkey-bloom answers. See with_daemon.py.
import { AUTH_PORT, HOST, PASSWORD, PORT, equal, holds, library, raises, run } from './session.mjs';

const { Redis } = library('iovalkey');
const { Batch, Decoder, GlideClient, ProtocolVersion } = library('@valkey/valkey-glide');
const closers = [];

// A client is a function: words in, reply out.
async function byIovalkey() {
    const client = new Redis({ host: HOST, port: PORT });
    closers.push(() => client.disconnect());
    await client.flushall();
    return (command, ...words) => client.call(command, ...words);
}

async function byGlide(protocol) {
    const client = await GlideClient.createClient({ addresses: [{ host: HOST, port: PORT }], protocol });
    closers.push(() => client.close());
    await client.flushall();
    return (...words) => client.customCommand(words.map(word => Buffer.isBuffer(word) ? word : String(word)));
}

function plain(reply) { // numbers may come as bigints, and maps as lists of pairs
    return typeof reply === 'bigint' ? Number(reply) : Array.isArray(reply) ? reply.map(plain) : reply;
}

const fields = ['Capacity', 'Number of filters', 'Number of items inserted', 'Error rate', 'Expansion rate', 'Tightening ratio'];

// What a user of valkey-bloom does.
async function filters(call) {
    const ask = async (...words) => plain(await call(...words));
    equal(await ask('BF.RESERVE', 'f', '0.001', '1000'), 'OK');
    equal(await ask('BF.ADD', 'f', 'a'), 1);
    equal(await ask('BF.ADD', 'f', 'a'), 0);
    equal(await ask('BF.MADD', 'f', 'a', 'b', 'c'), [0, 1, 1]);
    equal(await ask('BF.EXISTS', 'f', 'a'), 1);
    equal(await ask('BF.MEXISTS', 'f', 'a', 'x'), [1, 0]);
    equal(await ask('BF.CARD', 'f'), 3);
    equal(await ask('BF.CARD', 'none'), 0);
    equal(await ask('BF.INSERT', 'empty', 'CAPACITY', '10', 'ERROR', '0.01', 'TIGHTENING', '0.5'), []);
    equal(await ask('BF.INSERT', 'made', 'CAPACITY', '4', 'EXPANSION', '2', 'ITEMS', 'a', 'b', 'c', 'd', 'e'), [1, 1, 1, 1, 1]);
    const info = await ask('BF.INFO', 'made');
    for (const field of fields) holds(info.includes(field), `BF.INFO has ${field}: ${info}`);
    equal(await ask('BF.INFO', 'made', 'CAPACITY'), 12);
    equal(Number(await ask('BF.INFO', 'made', 'ERROR')), 0.01);
    equal(Number(await ask('BF.INFO', 'made', 'TIGHTENING')), 0.5);
    equal(await ask('TYPE', 'made'), 'bloomfltr');
    equal(await ask('BF.RESERVE', 'fixed', '0.5', '2', 'NONSCALING'), 'OK');
    await raises('non scaling filter is full', (async () => {
        for (let i = 0; i < 100; i++) await call('BF.ADD', 'fixed', `i${i}`);
    })());
    await raises('item exists', call('BF.RESERVE', 'f', '0.001', '1000'));
    await raises('not found', call('BF.INFO', 'none'));
    await raises('invalid information value', call('BF.INFO', 'f', 'nonsense'));
    equal(Number(await ask('COPY', 'made', 'copy')), 1); // glide gives a boolean
    equal(await ask('BF.CARD', 'copy'), 5);
}

async function iovalkey() {
    const call = await byIovalkey();
    await filters(call);
    const client = new Redis({ host: HOST, port: PORT });
    closers.push(() => client.disconnect());
    const dump = await client.dumpBuffer('made');
    equal(await client.restore('restored', 0, dump), 'OK');
    equal(await client.call('BF.CARD', 'restored'), 5);
    const replies = await client.multi().call('BF.ADD', 'made', 'z').call('BF.EXISTS', 'made', 'z').exec();
    equal(replies, [[null, 1], [null, 1]]);
    const [, names] = await client.scan(0, 'TYPE', 'bloomfltr', 'COUNT', 1000);
    equal(names.sort(), ['copy', 'empty', 'f', 'fixed', 'made', 'restored']);
}

async function glideWithRESP2() {
    await filters(await byGlide(ProtocolVersion.RESP2));
}

async function glideWithRESP3() {
    await filters(await byGlide(ProtocolVersion.RESP3));
}

async function glideMovesADump() {
    const client = await GlideClient.createClient({ addresses: [{ host: HOST, port: PORT }] });
    closers.push(() => client.close());
    const dump = await client.dump('made');
    equal(await client.restore('glide', 0, dump), 'OK');
    equal(Number(await client.customCommand(['BF.CARD', 'glide'])), 5);
    const batch = new Batch(true).customCommand(['BF.ADD', 'made', 'glide']).customCommand(['BF.EXISTS', 'made', 'glide']);
    equal((await client.exec(batch, true)).map(Number), [1, 1]);
    const bytes = await client.customCommand(['BF.EXISTS', 'made', Buffer.from([0, 255])], { decoder: Decoder.Bytes });
    equal(Number(bytes), 0);
}

async function glideWithAPassword() {
    const client = await GlideClient.createClient({ addresses: [{ host: HOST, port: AUTH_PORT }],
        credentials: { username: 'default', password: PASSWORD }, clientName: 'glide' });
    closers.push(() => client.close());
    equal(await client.ping(), 'PONG');
    equal(await client.clientGetName(), 'glide');
}

const setting = new Redis({ host: HOST, port: PORT });
closers.push(() => setting.disconnect());
equal(await setting.config('SET', 'bf-compatibility', 'valkey', 'bf-use-random-seed', 'no'), 'OK'); // the same false positives
const status = await run('iovalkey and valkey-glide', [
    iovalkey, glideWithRESP2, glideWithRESP3, glideMovesADump, glideWithAPassword]);
for (const close of closers) close();
process.exit(status);
