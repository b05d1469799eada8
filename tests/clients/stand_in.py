"""A stand-in for a Redis with RedisBloom, for programs that move filters: it answers the commands that such a program sends
with recorded dumps and chunks, and takes dumps and chunks as RedisBloom does, half filters that are visible included. It does
not know the bits: BF.MEXISTS is answered by a checksum of the filter's bytes and the item.

`hook(stand_in, command, arguments)` is called before each command; what it returns other than None is the reply: bytes, or
CLOSE."""
import binascii
import fnmatch
import json
import os
import random
import socketserver
import struct
import threading

CLOSE = object()
HEADER = struct.Struct("<QIII")
LAYER = struct.Struct("<QQQddIQB")
CUCKOO = struct.Struct("<QQQQHHH")


class Filter:
    def __init__(self, header, body, dump=None, ttl=-1):
        self.header, self.body, self.dump, self.ttl = header, body, dump, ttl

    def layers(self):
        return [LAYER.unpack_from(self.header, HEADER.size + i * LAYER.size) for i in range(HEADER.unpack_from(self.header)[1])]

    def info(self):
        items, _, options, growth = HEADER.unpack_from(self.header)
        layers = self.layers()
        size = 104 + sum(layer[0] for layer in layers)
        return [b"+Capacity", sum(layer[6] for layer in layers), b"+Size", size, b"+Number of filters", len(layers),
                b"+Number of items inserted", items, b"+Expansion rate", None if options & 8 else growth]


class Cuckoo:
    def __init__(self, header, body, dump=None, ttl=-1):
        self.header, self.body, self.dump, self.ttl = header, body, dump, ttl

    def layers(self):
        """The bytes of each sub-filter."""
        _, buckets, _, layers, size, _, expansion = CUCKOO.unpack(self.header)
        return [buckets * expansion ** i * size for i in range(layers)]

    def info(self):
        items, buckets, deletes, layers, size, iterations, expansion = CUCKOO.unpack(self.header)
        return [b"+Size", 40 + 16 * layers + len(self.body), b"+Number of buckets", buckets, b"+Number of filters", layers,
                b"+Number of items inserted", items, b"+Number of items deleted", deletes, b"+Bucket size", size,
                b"+Expansion rate", expansion, b"+Max iterations", iterations]


TYPES = {Filter: "MBbloom--", Cuckoo: "MBbloomCF"}


def made(nbytes, items=1000, nlayers=1):
    """A filter of RedisBloom's form with made-up bits."""
    layers = [LAYER.pack(nbytes, nbytes * 8, items // nlayers, 0.01, 9.585058, 7, nbytes * 8 // 10, 0) for _ in range(nlayers)]
    body = random.Random(items).randbytes(nbytes * nlayers)
    header = HEADER.pack(items // nlayers * nlayers, nlayers, 5, 2) + b"".join(layers)
    return Filter(header, body, b"made-up dump " + binascii.hexlify(header))


def recorded(folder):
    """A filter out of the recordings of RedisBloom."""
    with open(os.path.join(folder, "scandump.json"), encoding="ascii") as file:
        chunks = [(chunk["iterator"], bytes.fromhex(chunk["hex"])) for chunk in json.load(file)]
    with open(os.path.join(folder, "dump.bin"), "rb") as file:
        dump = file.read()
    return Filter(chunks[0][1], b"".join(data for _, data in chunks[1:]), dump)


class Bulk(bytes):
    """Bytes that may begin with + or -; other bytes that do so are a status or an error."""


def encode(value):
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(encode(item) for item in value)
    if not isinstance(value, Bulk) and value[:1] in (b"+", b"-"):
        return value + b"\r\n"
    return b"$%d\r\n%s\r\n" % (len(value), value)


class Connection(socketserver.StreamRequestHandler):
    def read_command(self):
        line = self.rfile.readline()
        if not line:
            return None
        words = []
        for _ in range(int(line[1:])):
            length = int(self.rfile.readline()[1:])
            words.append(self.rfile.read(length))
            self.rfile.read(2)
        return words

    def handle(self):
        stand_in = self.server.stand_in
        while True:
            try:
                words = self.read_command()
                if words is None:
                    return
                reply = stand_in.run(words)
                if reply is CLOSE:
                    return
                self.wfile.write(reply)
            except (OSError, ValueError):
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


class StandIn:
    def __init__(self, filters=None, hook=None, chunk=16 << 20, dump_fits=None):
        self.keys = {name.encode(): value for name, value in (filters or {}).items()}
        self.hook, self.chunk, self.dump_fits = hook, chunk, dump_fits
        self.log = []
        self.lock = threading.RLock()
        self.server = Server(("127.0.0.1", 0), Connection)
        self.server.stand_in = self
        self.url = f"redis://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def count(self, command):
        return sum(1 for words in self.log if words[0] == command)

    def run(self, words):
        with self.lock:
            command = words[0].decode().upper()
            self.log.append([command] + words[1:])
            reply = self.hook(self, command, words[1:]) if self.hook else None
            if reply is CLOSE:
                return CLOSE
            if reply is None:
                handler = getattr(self, "on_" + command.lower().replace(".", "_"), None)
                reply = handler(*words[1:]) if handler else b"-ERR unknown command '%s'" % words[0]
            return encode(reply)

    def filter(self, name, kind=Filter):
        """The filter, or the error."""
        value = self.keys.get(name)
        if value is None:
            return b"-ERR not found"
        return value if isinstance(value, kind) else b"-WRONGTYPE Operation against a key holding the wrong kind of value"

    # ---- commands ----

    def on_info(self, *_):
        return b"# Server\r\nredis_version:8.6.3\r\nrun_id:%d\r\n" % id(self)

    def on_dbsize(self):
        return len(self.keys)

    def on_scan(self, cursor, *options):
        options = {options[i].upper(): options[i + 1] for i in range(0, len(options), 2)}
        names = sorted(self.keys)
        start, count = int(cursor), int(options.get(b"COUNT", b"10"))
        page = names[start:start + count]
        if b"MATCH" in options:
            page = [name for name in page if fnmatch.fnmatchcase(name.decode("latin1"), options[b"MATCH"].decode("latin1"))]
        if b"TYPE" in options:
            page = [name for name in page
                    if TYPES.get(type(self.keys[name]), "string") == options[b"TYPE"].decode()]
        following = start + count if start + count < len(names) else 0
        return [Bulk(b"%d" % following), [Bulk(name) for name in page]]

    def on_bf_info(self, name, field=None):
        found = self.filter(name)
        if not isinstance(found, Filter):
            return found
        return b"-ERR Invalid information value" if field else found.info()

    def on_bf_mexists(self, name, *items):
        found = self.filter(name)
        if not isinstance(found, Filter):
            return found
        body = binascii.crc32(found.body)
        return [int(binascii.crc32(item, body) % 50 == 0) for item in items]

    def on_pttl(self, name):
        return self.keys[name].ttl if name in self.keys else -2

    def on_dump(self, name):
        return Bulk(self.keys[name].dump) if name in self.keys else None

    def on_restore(self, name, ttl, payload, *options):
        if name in self.keys and b"REPLACE" not in options:
            return b"-BUSYKEY Target key name already exists."
        if not self.dump_fits or payload not in self.dump_fits:
            return b"-ERR Bad data format"
        source = self.dump_fits[payload]
        self.keys[name] = type(source)(source.header, source.body, source.dump, int(ttl) or -1)
        return b"+OK"

    def on_bf_scandump(self, name, iterator):
        found, iterator = self.filter(name), int(iterator)
        if not isinstance(found, Filter):
            return found
        if iterator == 0:
            return [1, Bulk(found.header)]
        at = iterator - 1
        for layer in found.layers():  # a chunk is part of one layer
            if at < layer[0]:
                data = found.body[iterator - 1:iterator - 1 + min(self.chunk, layer[0] - at)]
                return [iterator + len(data), Bulk(data)]
            at -= layer[0]
        return [0, Bulk(b"")]

    def on_bf_loadchunk(self, name, iterator, data):
        iterator = int(iterator)
        if iterator == 1:
            if name in self.keys:
                return b"-ERR received bad data"
            size = sum(layer[0] for layer in Filter(data, b"").layers())
            self.keys[name] = Filter(data, b"\0" * size, b"loaded " + name)
            return b"+OK"
        found, start = self.filter(name), iterator - 1 - len(data)
        if not isinstance(found, Filter) or start < 0 or start + len(data) > len(found.body):
            return b"-ERR received bad data"
        found.body = found.body[:start] + data + found.body[start + len(data):]
        return b"+OK"

    def on_cf_info(self, name):
        found = self.filter(name, Cuckoo)
        return found.info() if isinstance(found, Cuckoo) else found

    def on_cf_mexists(self, name, *items):
        found = self.filter(name, Cuckoo)
        if not isinstance(found, Cuckoo):
            return found
        body = binascii.crc32(found.body)
        return [int(binascii.crc32(item, body) % 50 == 0) for item in items]

    def on_cf_scandump(self, name, iterator):
        found, iterator = self.filter(name, Cuckoo), int(iterator)
        if not isinstance(found, Cuckoo):
            return found
        if CUCKOO.unpack(found.header)[0] == 0:  # as RedisBloom: it has no chunks
            return [0, None]
        if iterator == 0:
            return [1, Bulk(found.header)]
        at = iterator - 1
        for layer in found.layers():
            if at < layer:
                data = found.body[iterator - 1:iterator - 1 + min(self.chunk, layer - at)]
                return [iterator + len(data), Bulk(data)]
            at -= layer
        return [0, None]

    def on_cf_loadchunk(self, name, iterator, data):
        iterator = int(iterator)
        if iterator == 1:
            if name in self.keys:
                return b"-ERR item exists"
            self.keys[name] = Cuckoo(data, b"\0" * sum(Cuckoo(data, b"").layers()), b"loaded " + name)
            return b"+OK"
        found, start = self.filter(name, Cuckoo), iterator - 1 - len(data)
        if not isinstance(found, Cuckoo) or start < 0 or start + len(data) > len(found.body):
            return b"-Couldn't load chunk!"
        found.body = found.body[:start] + data + found.body[start + len(data):]
        return b"+OK"

    def on_pexpire(self, name, ms):
        if name not in self.keys:
            return 0
        self.keys[name].ttl = int(ms)
        return 1

    def on_persist(self, name):
        if name not in self.keys or self.keys[name].ttl == -1:
            return 0
        self.keys[name].ttl = -1
        return 1

    def on_rename(self, name, to):
        if name not in self.keys:
            return b"-ERR no such key"
        self.keys[to] = self.keys.pop(name)
        return b"+OK"

    def on_renamenx(self, name, to):
        if name not in self.keys:
            return b"-ERR no such key"
        if to in self.keys:
            return 0
        self.keys[to] = self.keys.pop(name)
        return 1

    def on_del(self, name):
        return int(self.keys.pop(name, None) is not None)
