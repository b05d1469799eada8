// What BF.ADD gives when its reply is lost: `node lost_reply.mjs LIBRARY default|off PORT`, through lost_reply.py's proxy at the
// port. Prints the reply as a number, or "error".
import { HOST, library } from './session.mjs';

const [, , name, setting, port] = process.argv;
const key = `node:${name}:${setting}`;

async function byIoredis() {
    const { Redis } = library(name);
    const off = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };
    const client = new Redis({ host: HOST, port: Number(port), retryStrategy: () => 20, ...(setting === 'off' ? off : {}) });
    client.on('error', () => {});
    return client.call('BF.ADD', key, 'item').catch(() => 'error');
}

async function byNodeRedis() {
    const client = library(name).createClient({ url: `redis://${HOST}:${port}` });
    client.on('error', () => {});
    await client.connect();
    return client.bf.add(key, 'item').catch(() => 'error');
}

const reply = await (name.startsWith('ioredis') ? byIoredis() : byNodeRedis());
console.log(reply === 'error' ? reply : Number(reply));
process.exit(0); // a client that is connecting again may keep the process alive
