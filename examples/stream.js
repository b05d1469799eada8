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

const client = createClient({ url: process.env.BLOOMERY_URL || 'redis://127.0.0.1:6379' });
client.on('error', () => {}); // it connects again by itself; isNew() asks again
let messages = 0, events = 0;

async function isNew(message, event) {
    for (let attempt = 0; ; attempt++) {
        try {
            const reply = await client.sendCommand(['BF.INSERT', 'events', 'NOCREATE', 'OWNER', message, 'ITEMS', event]);
            if (reply[0] instanceof Error) throw reply[0];
            return Number(reply[0]) === 1;
        } catch (error) { // a reply of the server is final, a broken connection is not
            if (attempt === 100 || error.constructor.name.endsWith('ErrorReply') || error.constructor.name === 'SimpleError') throw error;
            await new Promise((resolve) => setTimeout(resolve, 100));
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
        one.then(() => underway.delete(one), () => {});
        if (underway.size === 1000) await Promise.race(underway); // so many in one pipeline
    }
    await Promise.all(underway);
    console.error(`${messages} messages, ${events} events`);
    await client.quit();
}

main().catch((error) => {
    console.error(error.message);
    process.exit(1);
});
