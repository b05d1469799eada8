// What BF.ADD gives when its reply is lost: `node lost_reply.mjs LIBRARY default|off|owner PORT`, through lost_reply.py's proxy at
// the port; with "owner" what BF.INSERT ... OWNER gives, which is asked again after an error. Prints the reply as a number, or "error".
import { HOST, library } from './session.mjs';

const [, , name, setting, port] = process.argv;
const key = `node:${name}:${setting}`;
const words = setting === 'owner' ? ['BF.INSERT', key, 'OWNER', 'one', 'ITEMS', 'item'] : ['BF.ADD', key, 'item'];

async function byIoredis() {
    const { Redis } = library(name);
    const off = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };
    const client = new Redis({ host: HOST, port: Number(port), retryStrategy: () => 20, ...(setting === 'off' ? off : {}) });
    client.on('error', () => {});
    return client.call(...words).catch(() => 'error');
}

async function byNodeRedis() {
    const client = library(name).createClient({ url: `redis://${HOST}:${port}` });
    client.on('error', () => {});
    await client.connect();
    const ask = () => client.sendCommand(words);
    return ask().catch(() => (setting === 'owner' ? ask() : 'error'));
}

const reply = await (name.startsWith('ioredis') ? byIoredis() : byNodeRedis());
console.log(reply === 'error' ? reply : Number([reply].flat()[0])); // RESP3 has [ true ]
process.exit(0); // a client that is connecting again may keep the process alive
