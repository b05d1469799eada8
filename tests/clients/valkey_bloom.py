"""valkey-bloom's filters, read, written and queried in Python without any code of Bloomery's; and a stand-in for a Valkey with
that module, for programs that move filters: it has no chunks, and a limit on the size of a filter."""
import os
import struct

import stand_in

MASK = (1 << 64) - 1
PRIME = MASK - 58
HEAD = struct.Struct("<BIddBQ")
BLOB = struct.Struct("<BQI32s")
FIXED_SEED = bytes.fromhex("590ff522ea7811daa714d8093b3e7bd91d898a733e988887307f97cd28073383")


def siphash13(key, data):
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573]

    def turn(x, by):
        return (x << by | x >> (64 - by)) & MASK

    def mix():
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
        v[0] = (turn(v[0], 32) + v[3]) & MASK
        v[2] = (v[2] + v[1]) & MASK
        v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
        v[2] = turn(v[2], 32)

    end = len(data) // 8 * 8
    words = list(struct.unpack(f"<{end // 8}Q", data[:end]))
    words.append(int.from_bytes(data[end:], "little") | (len(data) & 255) << 56)
    for word in words:
        v[3] ^= word
        mix()
        v[0] ^= word
    v[2] ^= 0xff
    for _ in range(3):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def lzf(data, length):
    out, at = bytearray(), 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at:at + control + 1]
            at += control + 1
            continue
        count = (control >> 5) + 2
        if count == 9:
            count += data[at]
            at += 1
        start = len(out) - ((control & 31) << 8 | data[at]) - 1
        at += 1
        for i in range(count):
            out.append(out[start + i])
    assert len(out) == length
    return bytes(out)


class Reader:
    """The fields of a module's value in RDB."""
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def length(self):
        first = self.take(1)[0]
        if first >> 6 == 0:
            return first
        if first >> 6 == 1:
            return (first & 63) << 8 | self.take(1)[0]
        return int.from_bytes(self.take({0x80: 4, 0x81: 8}[first]), "big")

    def number(self):
        assert self.take(1) == b"\x02"
        return self.length()

    def real(self):
        assert self.take(1) == b"\x04"
        return struct.unpack("<d", self.take(8))[0]

    def string(self):
        assert self.take(1) == b"\x05"
        if self.data[self.at] != 0xc3:
            return self.take(self.length())
        self.take(1)
        packed, length = self.length(), self.length()
        return lzf(self.take(packed), length)


class Filter:
    """`layers`: (hashes, bits, items, capacity) of each."""
    def __init__(self, expansion, rate, tightening, seed, layers, dump=None, ttl=-1):
        self.expansion, self.rate, self.tightening, self.seed, self.layers = expansion, rate, tightening, seed, layers
        self.dump, self.ttl = dump, ttl

    @staticmethod
    def of_dump(dump, ttl=-1):
        reader = Reader(dump)
        assert reader.take(10) == b"\x07\x81nZ(\x99\xf9m\xac\x01", "a dump of the type bloomfltr"
        count, expansion, rate, tightening, flag = (reader.number(), reader.number(), reader.real(), reader.real(),
                                                    reader.number())
        layers, seed = [], None
        for i in range(count):
            blob, capacity = reader.string(), reader.number()
            version, nbytes, hashes, seed = BLOB.unpack_from(blob)
            assert version == 1 and nbytes == len(blob) - BLOB.size
            layers.append((hashes, blob[BLOB.size:], reader.number() if i == count - 1 else capacity, capacity))
        assert flag == (seed != FIXED_SEED) and reader.take(1) == b"\0" and reader.at == len(dump) - 10
        return Filter(expansion, rate, tightening, seed, layers, dump, ttl)

    def payload(self):
        """That of BF.LOAD."""
        out = HEAD.pack(1, self.expansion, self.rate, self.tightening, self.seed != FIXED_SEED, len(self.layers))
        for hashes, bits, items, capacity in self.layers:
            out += struct.pack("<Q", BLOB.size + len(bits)) + BLOB.pack(1, len(bits), hashes, self.seed) + bits
            out += struct.pack("<QQ", items, capacity)
        return out

    def has(self, item):
        data = struct.pack("<Q", len(item)) + item
        first, second = siphash13(self.seed[:16], data), siphash13(self.seed[16:], data)
        return int(any(all(self.bit(bits, first, second, i) for i in range(hashes)) for hashes, bits, _, _ in self.layers))

    @staticmethod
    def bit(bits, first, second, i):
        place = (first if i == 0 else second if i == 1 else (first + i * second & MASK) % PRIME) % (8 * len(bits))
        return bits[place // 8] >> place % 8 & 1

    def size(self):
        slots = 1 if len(self.layers) == 1 else max(4, 1 << (len(self.layers) - 1).bit_length())
        return 48 + 8 * slots + sum(208 + len(layer[1]) for layer in self.layers)

    def info(self):
        return [b"+Capacity", sum(layer[3] for layer in self.layers), b"+Size", self.size(), b"+Number of filters",
                len(self.layers), b"+Number of items inserted", sum(layer[2] for layer in self.layers), b"+Error rate",
                b"%r" % self.rate, b"+Expansion rate", self.expansion or None]


def recorded(folder, name):
    with open(os.path.join(folder, name, "dump.bin"), "rb") as file:
        return Filter.of_dump(file.read())


stand_in.TYPES[Filter] = "bloomfltr"


class ValkeyBloom(stand_in.StandIn):
    def __init__(self, filters=None, limit=134217728, **options):
        self.limit = limit
        super().__init__(filters, **options)

    def run(self, words):
        command = words[0].decode().upper()
        if command in ("BF.SCANDUMP", "BF.LOADCHUNK", "CF.INFO"):
            self.log.append([command] + words[1:])
            return stand_in.encode(b"-ERR unknown command '%s'" % words[0])
        return super().run(words)

    def on_config(self, _, name):
        return [stand_in.Bulk(name), b"%d" % self.limit] if name == b"bf.bloom-memory-usage-limit" else []

    def on_bf_info(self, name, field=None):
        found = self.filter(name, Filter)
        if not isinstance(found, Filter):
            return found
        return b"-ERR invalid information value" if field else found.info()

    def on_bf_mexists(self, name, *items):
        found = self.filter(name, Filter)
        return [found.has(item) for item in items] if isinstance(found, Filter) else found

    def on_restore(self, name, ttl, payload, *options):
        if name in self.keys and b"REPLACE" not in options:
            return b"-BUSYKEY Target key name already exists."
        try:
            value = Filter.of_dump(payload, int(ttl) or -1)
        except (AssertionError, IndexError, KeyError, struct.error):
            return b"-ERR Bad data format"
        if value.size() > self.limit:
            return b"-ERR Bad data format"
        self.keys[name] = value
        return b"+OK"
