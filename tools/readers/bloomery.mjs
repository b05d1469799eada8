// A Bloom filter where the program runs: reads the Filter.db files of Cassandra, ScyllaDB and Bloomery and the layers of RedisBloom's
// filters, and follows a filter of a Bloomery server by HTTP. One file without dependencies, for Node.js 18 and later and for browsers; copy it into the program.
//
//   const copy = new Copy("http://127.0.0.1:9379/filters/seen");
//   await copy.refresh();               // true: the filter has changed; call it every now and then
//   copy.has("https://example.org/");   // false: certainly not there at the last refresh
//
//   new Filter(await readFile("nb-1-big-Filter.db"), "na").has("key");
//
// An item is a Uint8Array or another view, whose bytes count, an ArrayBuffer, or a string, which is its UTF-8.

const ALL = (1n << 64n) - 1n;
const C1 = 0x87c37b91114253d5n;
const C2 = 0x4cf5ad432745937fn;
const encoder = new TextEncoder();

const times = (a, b) => (a * b) & ALL;
const rotate = (value, bits) => ((value << bits) | (value >> (64n - bits))) & ALL;

function mix(value) {
    value = times(value ^ (value >> 33n), 0xff51afd7ed558ccdn);
    value = times(value ^ (value >> 33n), 0xc4ceb9fe1a85ec53n);
    return value ^ (value >> 33n);
}

function bytesOf(item) {
    if (typeof item === "string") return encoder.encode(item);
    if (item instanceof ArrayBuffer) return new Uint8Array(item);
    if (ArrayBuffer.isView(item)) return new Uint8Array(item.buffer, item.byteOffset, item.byteLength);
    throw new TypeError("an item is a string, an ArrayBuffer or a view of one");
}

// Both halves of MurmurHash3 x64 128 with seed 0, as Cassandra computes it: bytes of the tail are signed.
export function murmur3(item) {
    const bytes = bytesOf(item), size = bytes.length;
    const view = new DataView(bytes.buffer, bytes.byteOffset, size);
    const blocks = size - size % 16;
    let h1 = 0n, h2 = 0n, k1 = 0n, k2 = 0n;
    for (let at = 0; at < blocks; at += 16) {
        h1 ^= times(rotate(times(view.getBigUint64(at, true), C1), 31n), C2);
        h1 = ((rotate(h1, 27n) + h2) * 5n + 0x52dce729n) & ALL;
        h2 ^= times(rotate(times(view.getBigUint64(at + 8, true), C2), 33n), C1);
        h2 = ((rotate(h2, 31n) + h1) * 5n + 0x38495ab5n) & ALL;
    }
    for (let at = blocks; at < size; at++) {
        const place = at - blocks;
        const signed = BigInt.asUintN(64, BigInt(view.getInt8(at)) << BigInt(8 * (place % 8)));
        if (place < 8) k1 ^= signed;
        else k2 ^= signed;
    }
    h2 ^= times(rotate(times(k2, C2), 33n), C1);
    h1 ^= times(rotate(times(k1, C1), 31n), C2);
    const length = BigInt(size);
    h1 = ((h1 ^ length) + (h2 ^ length)) & ALL;
    h2 = ((h2 ^ length) + h1) & ALL;
    h1 = mix(h1);
    h2 = mix(h2);
    h1 = (h1 + h2) & ALL;
    return [h1, (h2 + h1) & ALL];
}

const M = 0xc6a4a7935bd1e995n;

function murmur64(bytes, view, seed) {
    const whole = bytes.length - bytes.length % 8;
    let h = seed ^ times(BigInt(bytes.length), M), rest = 0n;
    for (let at = 0; at < whole; at += 8) {
        const k = times(view.getBigUint64(at, true), M);
        h = times(h ^ times(k ^ (k >> 47n), M), M);
    }
    for (let at = bytes.length - 1; at >= whole; at--) rest = (rest << 8n) | BigInt(bytes[at]);
    if (whole < bytes.length) h = times(h ^ rest, M);
    h = times(h ^ (h >> 47n), M);
    return h ^ (h >> 47n);
}

function murmur32(bytes, view, seed) {
    const m = 0x5bd1e995, whole = bytes.length - bytes.length % 4;
    let h = seed ^ bytes.length, rest = 0;
    for (let at = 0; at < whole; at += 4) {
        const k = Math.imul(view.getUint32(at, true), m);
        h = Math.imul(h, m) ^ Math.imul(k ^ (k >>> 24), m);
    }
    for (let at = bytes.length - 1; at >= whole; at--) rest = (rest << 8) | bytes[at];
    if (whole < bytes.length) h = Math.imul(h ^ rest, m);
    h = Math.imul(h ^ (h >>> 13), m);
    return (h ^ (h >>> 15)) >>> 0;
}

// MurmurHash64A of the item, and again with the first hash as the seed: the hashes of RedisBloom.
export function murmur2(item) {
    const bytes = bytesOf(item), view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const first = murmur64(bytes, view, M);
    return [first, murmur64(bytes, view, first)];
}

// The same with MurmurHash2 of 32 bits, as very old versions of RedisBloom have it.
export function murmur2Of32Bits(item) {
    const bytes = bytesOf(item), view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const first = murmur32(bytes, view, 0x9747b28c);
    return [BigInt(first), BigInt(murmur32(bytes, view, first))];
}

function sipRounds(v, n) {
    for (let i = 0; i < n; i++) {
        v[0] = (v[0] + v[1]) & ALL;
        v[2] = (v[2] + v[3]) & ALL;
        v[1] = rotate(v[1], 13n) ^ v[0];
        v[3] = rotate(v[3], 16n) ^ v[2];
        v[0] = rotate(v[0], 32n);
        v[2] = (v[2] + v[1]) & ALL;
        v[0] = (v[0] + v[3]) & ALL;
        v[1] = rotate(v[1], 17n) ^ v[2];
        v[3] = rotate(v[3], 21n) ^ v[0];
        v[2] = rotate(v[2], 32n);
    }
}

// SipHash-1-3 of the item's length and the item, under each half of the seed (four numbers): the hashes of valkey-bloom.
export function siphash(seed, item) {
    const bytes = bytesOf(item), words = (bytes.length >> 3) + 2;
    const data = new Uint8Array(8 * words), view = new DataView(data.buffer);
    view.setBigUint64(0, BigInt(bytes.length), true);
    data.set(bytes, 8);
    data[data.length - 1] = bytes.length + 8;
    return [0, 2].map((half) => {
        const [k0, k1] = [seed[half], seed[half + 1]];
        const v = [k0 ^ 0x736f6d6570736575n, k1 ^ 0x646f72616e646f6dn, k0 ^ 0x6c7967656e657261n, k1 ^ 0x7465646279746573n];
        for (let i = 0; i < words; i++) {
            const word = view.getBigUint64(8 * i, true);
            v[3] ^= word;
            sipRounds(v, 1);
            v[0] ^= word;
        }
        v[2] ^= 0xffn;
        sipRounds(v, 3);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
    });
}

const MAX_BITS = 64n * 0x7fffffffn;
const LAYOUTS = ["na", "me", "ka", "redisbloom", "redisbloom32", "blocked", "valkey"];
const BLOCKED = 48; // the options of LAYOUT blocked
const VALKEY = 32; // and of LAYOUT valkey, whose header goes on with a ratio and the seed

// The bytes of one or more files, one behind the other: the layers of a filter. `layout` is "na" (Cassandra 4.0 and later), "me"
// (Cassandra 3.x, ScyllaDB mc to mt) or "ka" (before) for Filter.db files; "redisbloom", "redisbloom32", "blocked" or "valkey" for the
// layers that `bloomery export` writes of a filter in RedisBloom's layout, in blocks, or in valkey-bloom's layout. `layers` is how many there must be, without it one or more. Throws a
// RangeError if these are not whole files.
export class Filter {
    #bytes;
    #layout;
    #flip;
    #chain; // what all layers have in common
    #seed;

    constructor(data, layout = "na", layers = undefined) {
        if (!(data instanceof ArrayBuffer) && !(data instanceof Uint8Array)) throw new TypeError("the data are an ArrayBuffer or a Uint8Array");
        if (!LAYOUTS.includes(layout)) throw new RangeError(`the layout is one of ${LAYOUTS.join(", ")}, not ${layout}`);
        const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
        const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        this.#bytes = bytes;
        this.#layout = layout;
        this.#flip = layout === "me" || layout === "ka" ? 7 : 0; // of the number of a byte in its word
        this.layers = [];
        const isFilterDb = ["na", "me", "ka"].includes(layout);
        for (let at = 0; at < bytes.length;) at += isFilterDb ? this.#takeFilterDb(view, at) : this.#takeLayer(view, at);
        if (this.layers.length > 1024) throw new RangeError("a filter has at most 1024 layers");
        if (layers === undefined ? this.layers.length === 0 : this.layers.length !== layers)
            throw new RangeError(`the data have ${this.layers.length} layers`);
    }

    #takeFilterDb(view, at) {
        const left = view.byteLength - at;
        const hashes = left < 8 ? 0 : view.getInt32(at), words = hashes ? view.getInt32(at + 4) : 0;
        if (hashes < 1 || hashes > 21 || words < 1 || 8 * words > left - 8)
            throw new RangeError(`this is no whole Filter.db, at byte ${at}: ${hashes} hashes, ${words} words`);
        this.layers.push({ place: at + 8, bits: BigInt(64 * words), hashes });
        return 8 + 8 * words;
    }

    #takeLayer(view, at) {
        const left = view.byteLength - at;
        if (left < 72) throw new RangeError(`the data end within a header, at byte ${at}`);
        const magic = String.fromCharCode(...this.#bytes.subarray(at, at + 8)), version = view.getUint32(at + 8, true);
        const options = view.getUint32(at + 12, true), blocked = options === BLOCKED;
        const valkey = options === VALKEY, header = valkey ? 112 : 72;
        const layout = blocked ? "blocked" : valkey ? "valkey" : options & 4 ? "redisbloom" : "redisbloom32";
        if (magic !== "BLOOMRBL" || version !== 1 || layout !== this.#layout)
            throw new RangeError(`this is no layer of a filter in the layout ${this.#layout}, at byte ${at}`);
        const growth = view.getBigUint64(at + 16, true), entries = view.getBigUint64(at + 24, true);
        const error = view.getFloat64(at + 32, true), bpe = view.getFloat64(at + 40, true), count = view.getBigUint64(at + 56, true);
        const bits = view.getBigUint64(at + 48, true), hashes = view.getUint32(at + 64, true), n2 = view.getUint32(at + 68, true);
        const sizes = blocked ? hashes <= 16 && n2 === 0 && bits % 512n === (bits >= 1n << 24n ? 448n : 0n) && bpe === Number(bits) / Number(entries)
            : valkey ? left >= header && hashes <= 255 && n2 === 0 && bpe === Number(bits) / Number(entries) && view.getFloat64(at + 72, true) > 0 && view.getFloat64(at + 72, true) < 1
            : hashes <= 255 && bpe > 0 && bpe < Infinity && hashes === Math.ceil(0.693147180559945 * bpe);
        if (!(hashes > 0 && sizes && error > 0 && error < 1
            && count <= entries && entries > 0n && entries < 1n << 40n && bits > 0n && bits <= MAX_BITS && bits % 8n === 0n && n2 <= 63
            && (!n2 || bits >> BigInt(n2)) && bits / 8n <= BigInt(left - header)))
            throw new RangeError(`this is no whole layer, at byte ${at}: ${hashes} hashes, ${bits} bits, n2 ${n2}, error rate ${error}, bits per entry ${bpe}, ${count} items of ${entries}`);
        const seed = valkey ? [0, 8, 16, 24].map((i) => view.getBigUint64(at + 80 + i, true)) : [];
        const chain = `options ${options}, growth ${growth}`;
        if (blocked ? growth > 32768n : valkey ? growth > 0xffffffffn : options > 15 || (options & 8 ? growth !== 0n : growth < 1n || growth > 32768n))
            throw new RangeError(`not possible, at byte ${at}: ${chain}`);
        if (this.layers.length && (options & 8 && !blocked || options > 15 && !growth || chain !== this.#chain || String(seed) !== String(this.#seed)))
            throw new RangeError(`this is no further layer of the filter, at byte ${at}: ${chain}`);
        this.#chain = chain;
        this.#seed = seed;
        this.layers.push({ place: at + header, bits: n2 ? 1n << BigInt(n2) : bits, hashes });
        return header + Number(bits / 8n);
    }

    has(item) {
        if (this.#layout === "blocked") {
            const [h1, h2] = murmur3(item);
            return this.layers.some((layer) => this.#inBlock(h1, h2, layer));
        }
        if (this.#layout === "valkey") {
            const [first, second] = siphash(this.#seed, item);
            return this.layers.some((layer) => this.#inPrimes(first, second, layer));
        }
        const signed = !this.#layout.startsWith("redisbloom");
        const hash = signed ? murmur3 : this.#layout === "redisbloom" ? murmur2 : murmur2Of32Bits;
        let [base, increment] = hash(item);
        if (this.#layout === "na" || this.#layout === "me") [base, increment] = [increment, base];
        return this.layers.some((layer) => this.#inLayer(base, increment, signed, layer));
    }

    #inBlock(h1, h2, { place, bits, hashes }) {
        const block = place + Number(bits / 8n % 64n + 64n * (h1 * (bits / 512n) >> 64n));
        for (let i = 0; i < hashes; i++) {
            const index = Number(h2 >> 55n);
            if (!((this.#bytes[block + (index >> 3)] >> (index & 7)) & 1)) return false;
            h2 = (h2 * 0x9e3779b97f4a7c15n) & ALL;
        }
        return true;
    }

    #inPrimes(first, second, { place, bits, hashes }) {
        for (let i = 0; i < hashes; i++) {
            const sum = i > 1 ? ((first + BigInt(i) * second) & ALL) % 0xffffffffffffffc5n : i ? second : first;
            const index = Number(sum % bits);
            if (!((this.#bytes[place + (index - index % 8) / 8] >> (index % 8)) & 1)) return false;
        }
        return true;
    }

    #inLayer(base, increment, signed, { place, bits, hashes }) {
        for (let i = 0; i < hashes; i++) {
            const number = signed ? BigInt.asIntN(64, base) : base;
            const index = Number((number < 0n ? -number : number) % bits);
            const byte = this.#bytes[place + (index - index % 8) / 8 - this.#shift(index)];
            if (!((byte >> (index % 8)) & 1)) return false;
            base = (base + increment) & ALL;
        }
        return true;
    }

    // In the old layouts the bytes of a word are reversed: how far its byte is before the place in the new one.
    #shift(index) {
        const byte = ((index - index % 8) / 8) % 8;
        return byte - (byte ^ this.#flip);
    }
}

// A copy of a server's filter. `url` is that of GET /filters/NAME; `options` are those of fetch(), as for the password. Before the
// first refresh() nothing is known, and has() throws.
export class Copy {
    #url;
    #options;
    #filter = null;

    constructor(url, options = {}) {
        this.#url = url;
        this.#options = options;
        this.etag = null;
        this.window = null;
    }

    // Fetches the filter if it has changed. Whether it has. Throws if the server did not answer with a filter; the copy stays what it
    // was.
    async refresh() {
        const headers = new Headers(this.#options.headers);
        if (this.etag) headers.set("If-None-Match", this.etag);
        const reply = await fetch(this.#url, { ...this.#options, headers });
        if (reply.status === 304) return false;
        if (!reply.ok) throw new Error(`${reply.status}: ${(await reply.text()).trim()}`);
        if (reply.headers.get("Bloomery-Key")) throw new Error("the filter is KEYED: only who has its key can ask it");
        const data = await reply.arrayBuffer();
        if (data.byteLength !== Number(reply.headers.get("Content-Length"))) throw new Error("the reply was cut off");
        this.#filter = new Filter(data, reply.headers.get("Bloomery-Layout"), Number(reply.headers.get("Bloomery-Layers")));
        this.window = reply.headers.get("Bloomery-Window");
        this.etag = reply.headers.get("ETag");
        return true;
    }

    has(item) {
        if (!this.#filter) throw new Error("refresh() has not fetched the filter yet");
        return this.#filter.has(item);
    }
}
