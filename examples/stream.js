// Processes each event once, although the stream delivers some messages and some events more than once.
//
//   redis-cli BF.RESERVE events 0.0001 2000000 WINDOW 3600
//   kcat -C -b BROKER -t orders -f '%p-%o %s\n' | node stream.js
//
// Debian: nodejs, node-redis; elsewhere `npm install redis`. BLOOMERY_URL is the server. A line of the input is the message's id, a
// space and the event. The owner of an event is its message, not the consumer: whoever gets the message again wins it again.
'use strict';
const readline = require('readline');
const { createClient } = require('redis');

const TRIES = 100, WAIT_MS = 100;
const PASSES = /^(LOADING|MISCONF|TRYAGAIN) /; // errors that pass: the server is starting, its disk refuses writes, it does large work

const client = createClient({
    url: process.env.BLOOMERY_URL || 'redis://127.0.0.1:6379',
    socket: { reconnectStrategy: (tries, cause) => (tries < TRIES ? WAIT_MS : cause || new Error('no server')) },
});
let messages = 0, events = 0, said;
client.on('ready', () => { said = ''; });
client.on('error', (error) => { // it connects again by itself; isNew() asks again
    if (error.message !== said) console.error(said = error.message);
});

function fail(error) {
    console.error(error.message);
    process.exit(1);
}

async function isNew(message, event) {
    for (let attempt = 0; ; attempt++) {
        try {
            const reply = await client.sendCommand(['BF.INSERT', 'events', 'NOCREATE', 'OWNER', message, 'ITEMS', event]);
            if (reply[0] instanceof Error) throw reply[0];
            return Number(reply[0]) === 1;
        } catch (error) { // most replies of the server are final, a broken connection is not
            const reply = error.constructor.name.endsWith('ErrorReply') || error.constructor.name === 'SimpleError';
            if (attempt === TRIES || (reply && !PASSES.test(error.message))) throw error;
            await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
        }
    }
}

async function handle(line) {
    const space = line.indexOf(' ');
    messages++;
    if (await isNew(line.slice(0, space), line.slice(space + 1))) {
        events++;
        console.log(line.slice(space + 1)); // process the event here
    }
    // and acknowledge the message here: a consumer that dies before gets it again, and wins it again
}

async function main() {
    await client.connect();
    const underway = new Set();
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const one = handle(line);
        underway.add(one);
        one.then(() => underway.delete(one), fail);
        if (underway.size === 1000) await Promise.race(underway); // so many in one pipeline
    }
    await Promise.all(underway);
    console.error(`${messages} messages, ${events} events`);
    await client.quit();
}

main().catch(fail);
