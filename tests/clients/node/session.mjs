// What the Node.js sessions have in common: where the daemons are, and checks that say what they saw. The libraries are
// those that `npm ci` put into the directory of the environment's BLOOMERY_NODE_MODULES.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

export const HOST = '127.0.0.1'; // not localhost, which may mean ::1, too: on a machine without it that is refused
export const PORT = Number(process.env.BLOOMERY_PORT);
export const AUTH_PORT = Number(process.env.BLOOMERY_AUTH_PORT);
export const CLUSTER_PORT = Number(process.env.BLOOMERY_CLUSTER_PORT);
export const PASSWORD = process.env.BLOOMERY_PASSWORD;
const tlsDirectory = process.env.BLOOMERY_TLS_DIR;
const tlsFile = name => readFileSync(path.join(tlsDirectory, name));
// Of a session with TLS: what Node.js's tls.connect() takes. null: without.
export const TLS = tlsDirectory
    ? { ca: tlsFile('ca.crt'), cert: tlsFile('client.crt'), key: tlsFile('client.key') }
    : null;
export const SCHEME = TLS ? 'rediss' : 'redis';
const PATIENCE_MS = 60000; // for what certainly happens

export const library = createRequire(path.join(process.env.BLOOMERY_NODE_MODULES, 'x.js'));

export function holds(condition, what) {
    assert.ok(condition, what);
}

export function equal(got, expected) {
    // Replies that are maps come as objects without a prototype from some versions.
    const bare = got && typeof got === 'object' && Object.getPrototypeOf(got) === null;
    assert.deepStrictEqual(bare ? { ...got } : got, expected);
}

export async function raises(text, promise) {
    await assert.rejects(promise, error => {
        assert.ok(error.message.includes(text), `'${text}' in '${error.message}'`);
        return true;
    });
}

// The next event of this name. Unlike events.once(), 'error' events in between do not matter.
export function event(emitter, name) {
    return new Promise((resolve, reject) => {
        const patience = setTimeout(() => reject(new Error(`no '${name}' after ${PATIENCE_MS} ms`)), PATIENCE_MS);
        emitter.once(name, value => {
            clearTimeout(patience);
            resolve(value);
        });
    });
}

// Polls until the condition returns something true, which is returned.
export async function until(condition, what) {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
        const got = await condition();
        if (got) return got;
        holds(Date.now() < deadline, `still not so after ${PATIENCE_MS} ms: ${what}`);
        await pause(10);
    }
}

// Runs the claims in order, all of them whatever happens, and ends the process.
export async function run(title, claims) {
    let failed = 0;
    for (const claim of claims) {
        try {
            await claim();
        } catch (error) {
            failed++;
            console.log(`FAILED ${claim.name}`);
            console.log(error);
        }
    }
    console.log(`${title}: ${claims.length - failed} of ${claims.length} claims hold`);
    return failed === 0 && claims.length > 0 ? 0 : 1;
}
