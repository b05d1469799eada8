// One filter over many nodes of a cluster, with node-redis' createCluster (docs/CLUSTER.md). parts.py shares it.
import { createHash } from 'node:crypto';

function slot(key) {
    let crc = 0;
    for (const byte of Buffer.from(key)) {
        crc ^= byte << 8;
        for (let i = 0; i < 8; i++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc % 16384;
}

// The smallest number for each of n equal ranges of slots.
export function tags(n) {
    const found = new Map();
    for (let number = 0; found.size < n; number++) {
        const range = Math.floor(slot(String(number)) * n / 16384);
        if (!found.has(range))
            found.set(range, String(number));
    }
    return Array.from({ length: n }, (_, range) => found.get(range));
}

export class Parts {
    constructor(cluster, name, n) {
        this.cluster = cluster;
        this.keys = tags(n).map(tag => `{${tag}}${name}`);
    }

    call(readOnly, command, key, ...words) {
        return this.cluster.sendCommand(key, readOnly, [command, key, ...words.map(word => Buffer.isBuffer(word) ? word : String(word))]);
    }

    async reserve(rate, capacity) {
        const each = capacity / this.keys.length;
        for (const key of this.keys)
            await this.call(false, 'BF.RESERVE', key, rate, Math.ceil(each + 4 * Math.sqrt(each)), 'NONSCALING');
    }

    part(item) {
        return Math.floor(createHash('sha1').update(item).digest().readUInt32BE() * this.keys.length / 2 ** 32);
    }

    // The answers in the order of the items, with one command for each part, to all nodes at a time.
    async batch(readOnly, command, items) {
        const places = this.keys.map(() => []);
        items.forEach((item, i) => places[this.part(item)].push(i));
        const answers = new Array(items.length);
        await Promise.all(this.keys.map(async (key, part) => {
            const where = places[part];
            if (where.length === 0)
                return;
            const replies = await this.call(readOnly, command, key, ...where.map(i => items[i]));
            where.forEach((i, at) => { answers[i] = replies[at]; });
        }));
        return answers;
    }

    add(items) {
        return this.batch(false, 'BF.MADD', items);
    }

    // A cluster with `useReplicas` asks replicas, which may not have the latest adds yet.
    exists(items) {
        return this.batch(true, 'BF.MEXISTS', items);
    }

    // The sums of the parts.
    async info() {
        const sums = {};
        for (const field of ['CAPACITY', 'SIZE', 'ITEMS']) {
            const replies = await Promise.all(this.keys.map(key => this.call(true, 'BF.INFO', key, field)));
            sums[field] = replies.reduce((sum, reply) => sum + Object.values(reply)[0], 0); // an array, or a map
        }
        return sums;
    }
}
