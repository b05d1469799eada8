"""A Bloom filter where the program runs: reads the Filter.db files of Cassandra, ScyllaDB and Bloomery and the layers of
RedisBloom's filters, and follows a filter of a Bloomery server by HTTP. One file, Python 3.8 and later, no other package; copy it into the program.

    copy = bloomery.Copy("http://127.0.0.1:9379/filters/seen")
    copy.refresh()                      # True: the filter has changed; call it every now and then
    "https://example.org/" in copy      # False: certainly not there at the last refresh

    b"key" in bloomery.Filter(open("nb-1-big-Filter.db", "rb").read(), "na")

An item is bytes or another buffer, whose bytes count, or a str, which is its UTF-8. Threads: any number may ask; a refresh replaces the filter as a whole."""
import base64
import http.client
import math
import struct
import urllib.error
import urllib.parse
import urllib.request

_ALL = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotate(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & _ALL


def _mix(value):
    value = (value ^ (value >> 33)) * 0xFF51AFD7ED558CCD & _ALL
    value = (value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53 & _ALL
    return value ^ (value >> 33)


def murmur3(item):
    """Both halves of MurmurHash3 x64 128 with seed 0, as Cassandra computes it: bytes of the tail are signed."""
    if not isinstance(item, bytes):
        item = memoryview(item).tobytes()  # its length is in items, which may have several bytes
    h1 = h2 = 0
    blocks = len(item) // 16
    for k1, k2 in struct.iter_unpack("<QQ", item[:16 * blocks]):
        h1 ^= _rotate(k1 * _C1 & _ALL, 31) * _C2 & _ALL
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _ALL
        h2 ^= _rotate(k2 * _C2 & _ALL, 33) * _C1 & _ALL
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _ALL
    tail = item[16 * blocks:]
    k1 = k2 = 0
    for place, byte in enumerate(tail):
        signed = (byte if byte < 128 else byte - 256) << 8 * (place % 8)
        if place < 8:
            k1 ^= signed & _ALL
        else:
            k2 ^= signed & _ALL
    if len(tail) > 8:
        h2 ^= _rotate(k2 * _C2 & _ALL, 33) * _C1 & _ALL
    if tail:
        h1 ^= _rotate(k1 * _C1 & _ALL, 31) * _C2 & _ALL
    h1 ^= len(item)
    h2 ^= len(item)
    h1 = (h1 + h2) & _ALL
    h2 = (h2 + h1) & _ALL
    h1, h2 = _mix(h1), _mix(h2)
    h1 = (h1 + h2) & _ALL
    return h1, (h2 + h1) & _ALL


def murmur2(item):
    """MurmurHash64A of the item, and again with the first hash as the seed: the hashes of RedisBloom."""
    if not isinstance(item, bytes):
        item = memoryview(item).tobytes()
    first = _murmur2(item, 0xC6A4A7935BD1E995)
    return first, _murmur2(item, first)


def _murmur2(item, seed):
    h = seed ^ len(item) * 0xC6A4A7935BD1E995 & _ALL
    blocks = len(item) // 8
    for k, in struct.iter_unpack("<Q", item[:8 * blocks]):
        k = k * 0xC6A4A7935BD1E995 & _ALL
        h = (h ^ (k ^ k >> 47) * 0xC6A4A7935BD1E995 & _ALL) * 0xC6A4A7935BD1E995 & _ALL
    if len(item) % 8:
        h = (h ^ int.from_bytes(item[8 * blocks:], "little")) * 0xC6A4A7935BD1E995 & _ALL
    h = (h ^ h >> 47) * 0xC6A4A7935BD1E995 & _ALL
    return h ^ h >> 47


def murmur2_32(item):
    """The same with MurmurHash2 of 32 bits, as very old versions of RedisBloom have it."""
    if not isinstance(item, bytes):
        item = memoryview(item).tobytes()
    first = _murmur2_32(item, 0x9747B28C)
    return first, _murmur2_32(item, first)


def _murmur2_32(item, seed):
    m, all32 = 0x5BD1E995, (1 << 32) - 1
    h = (seed ^ len(item)) & all32
    blocks = len(item) // 4
    for k, in struct.iter_unpack("<I", item[:4 * blocks]):
        k = k * m & all32
        h = (h * m ^ (k ^ k >> 24) * m) & all32
    if len(item) % 4:
        h = (h ^ int.from_bytes(item[4 * blocks:], "little")) * m & all32
    h = (h ^ h >> 13) * m & all32
    return h ^ h >> 15


def siphash(seed, item):
    """SipHash-1-3 of the item's length and the item, under each half of the seed: the hashes of valkey-bloom."""
    if not isinstance(item, bytes):
        item = memoryview(item).tobytes()
    data = struct.pack("<Q", len(item)) + item
    data += bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    return tuple(_siphash(half, data) for half in struct.iter_unpack("<QQ", seed))


def _siphash(key, data):
    v = [key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D, key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573]

    def mix():
        v[0], v[2] = (v[0] + v[1]) & _ALL, (v[2] + v[3]) & _ALL
        v[1], v[3], v[0] = _rotate(v[1], 13) ^ v[0], _rotate(v[3], 16) ^ v[2], _rotate(v[0], 32)
        v[2], v[0] = (v[2] + v[1]) & _ALL, (v[0] + v[3]) & _ALL
        v[1], v[3], v[2] = _rotate(v[1], 17) ^ v[2], _rotate(v[3], 21) ^ v[0], _rotate(v[2], 32)

    for word, in struct.iter_unpack("<Q", data):
        v[3] ^= word
        mix()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _signed(value):
    return value - (1 << 64) if value >> 63 else value


_REDISBLOOM = struct.Struct("<8sIIQQddQQII")  # the header of a layer
_MAX_WORDS = (1 << 31) - 1
_LAYOUTS = ("na", "me", "ka", "redisbloom", "redisbloom32", "blocked", "valkey")
_BLOCKED = 48  # the options of LAYOUT blocked
_VALKEY = 32  # and of LAYOUT valkey, whose header goes on with a ratio and the seed
_SEED = struct.Struct("<d32s")


class Filter:
    """The bytes of one or more files, one behind the other: the layers of a filter. `layout` is "na" (Cassandra 4.0 and later), "me"
    (Cassandra 3.x, ScyllaDB mc to mt) or "ka" (before) for Filter.db files; "redisbloom", "redisbloom32", "blocked" or "valkey" for the
    layers that `bloomery export` writes of a filter in RedisBloom's layout, in blocks, or in valkey-bloom's layout. `layers` is how many there must be, without it one or more.
    ValueError: these are not whole files."""

    def __init__(self, data, layout="na", layers=None):
        if layout not in _LAYOUTS:
            raise ValueError("the layout is one of %s, not %r" % (", ".join(_LAYOUTS), layout))
        self._data = memoryview(bytes(data))
        self._layout = layout
        self._flip = 7 if layout in ("me", "ka") else 0  # of the number of a byte in its word
        self.layers = []  # of (place, bits, hashes)
        at = 0
        while at < len(self._data):
            at += self._take_filterdb(at) if layout in ("na", "me", "ka") else self._take_layer(at)
            if len(self.layers) > 1024:
                raise ValueError("a filter has at most 1024 layers")
        if len(self.layers) != layers if layers is not None else not self.layers:
            raise ValueError("the data have %d layers" % len(self.layers))

    def _take_filterdb(self, at):
        if len(self._data) - at < 8:
            raise ValueError("the data end within a header, at byte %d" % at)
        hashes, words = struct.unpack_from(">ii", self._data, at)
        if not 0 < hashes <= 21 or words <= 0 or 8 * words > len(self._data) - at - 8:
            raise ValueError("this is no whole Filter.db, at byte %d: %d hashes, %d words" % (at, hashes, words))
        self.layers.append((at + 8, 64 * words, hashes))
        return 8 + 8 * words

    def _take_layer(self, at):
        if len(self._data) - at < _REDISBLOOM.size:
            raise ValueError("the data end within a header, at byte %d" % at)
        magic, version, options, growth, entries, error, bpe, bits, count, hashes, n2 = _REDISBLOOM.unpack_from(self._data, at)
        layout = {_BLOCKED: "blocked", _VALKEY: "valkey"}.get(options, "redisbloom" if options & 4 else "redisbloom32")
        if (magic, version, layout) != (b"BLOOMRBL", 1, self._layout) or options > 15 and options not in (_BLOCKED, _VALKEY):
            raise ValueError("this is no layer of a filter in the layout %s, at byte %d" % (self._layout, at))
        header, seed = _REDISBLOOM.size, None
        if layout == "valkey":
            header += _SEED.size
            sizes = len(self._data) - at >= header and 0 < hashes <= 255 and n2 == 0 and entries and bpe == bits / entries
            if sizes:
                ratio, seed = _SEED.unpack_from(self._data, at + _REDISBLOOM.size)
                sizes = 0 < ratio < 1
        elif layout == "blocked":
            sizes = 0 < hashes <= 16 and n2 == 0 and bits % 512 == (448 if bits >= 1 << 24 else 0) and entries and bpe == bits / entries
        else:
            sizes = 0 < hashes <= 255 and 0 < bpe < math.inf and hashes == math.ceil(0.693147180559945 * bpe)
        if not (sizes and 0 < error < 1 and count <= entries and 0 < entries < 1 << 40 and 0 < bits <= 64 * _MAX_WORDS and bits % 8 == 0 and n2 <= 63 and
                (not n2 or bits >> n2) and bits // 8 <= len(self._data) - at - header):
            raise ValueError("this is no whole layer, at byte %d: %d hashes, %d bits, n2 %d, error rate %g, bits per entry %g, "
                             "%d items of %d" % (at, hashes, bits, n2, error, bpe, count, entries))
        if growth > (32768 if layout == "blocked" else 0xFFFFFFFF) if options > 15 else growth != 0 if options & 8 else not 1 <= growth <= 32768:
            raise ValueError("a growth of %d with the options %d, at byte %d" % (growth, options, at))
        if self.layers and (options & 8 or options > 15 and not growth or (options, growth, seed) != self._chain):
            raise ValueError("this is no further layer of the filter, at byte %d: options %d, growth %d" % (at, options, growth))
        self._chain = options, growth, seed
        self.layers.append((at + header, 1 << n2 if n2 else bits, hashes))
        return header + bits // 8

    def __contains__(self, item):
        if isinstance(item, str):
            item = item.encode()
        if self._layout == "blocked":
            return any(self._has_in_block(*murmur3(item), *layer) for layer in self.layers)
        if self._layout == "valkey":
            return any(self._has_prime(*siphash(self._chain[2], item), *layer) for layer in self.layers)
        if self._layout.startswith("redisbloom"):
            base, increment = murmur2(item) if self._layout == "redisbloom" else murmur2_32(item)
            return any(self._has_unsigned(base, increment, *layer) for layer in self.layers)
        h1, h2 = murmur3(item)
        base, increment = (h1, h2) if self._layout == "ka" else (h2, h1)
        return any(self._has(base, increment, *layer) for layer in self.layers)

    def _has(self, base, increment, place, bits, hashes):
        for _ in range(hashes):
            index = abs(_signed(base)) % bits
            if not self._data[place + (index // 8 ^ self._flip)] >> index % 8 & 1:
                return False
            base = (base + increment) & _ALL
        return True

    def _has_in_block(self, h1, h2, place, bits, hashes):
        place += bits // 8 % 64 + 64 * (h1 * (bits // 512) >> 64)
        for _ in range(hashes):
            index = h2 >> 55
            if not self._data[place + index // 8] >> index % 8 & 1:
                return False
            h2 = h2 * 0x9E3779B97F4A7C15 & _ALL
        return True

    def _has_unsigned(self, base, increment, place, bits, hashes):
        for _ in range(hashes):
            index = base % bits
            if not self._data[place + index // 8] >> index % 8 & 1:
                return False
            base = (base + increment) & _ALL
        return True

    def _has_prime(self, first, second, place, bits, hashes):
        for i in range(hashes):
            index = (((first + i * second) & _ALL) % 0xFFFFFFFFFFFFFFC5 if i > 1 else second if i else first) % bits
            if not self._data[place + index // 8] >> index % 8 & 1:
                return False
        return True


class Copy:
    """A copy of a server's filter. `url` is that of GET /filters/NAME; `user` and `password` as for the server. Before the first
    refresh() nothing is known, and every question raises LookupError."""
    Filter = Filter

    def __init__(self, url, user=None, password=None, timeout=60):
        self._request = urllib.request.Request(url)
        self._timeout = timeout
        self._filter = None
        self.etag = None
        self.window = None
        if password is not None:
            both = "%s:%s" % (user or "default", password)
            self._request.add_header("Authorization", "Basic " + base64.b64encode(both.encode()).decode())

    def refresh(self):
        """Fetches the filter if it has changed. Whether it has. OSError: the server did not answer, or not with a filter; the copy
        stays what it was."""
        if self.etag:
            self._request.add_header("If-None-Match", self.etag)
        try:
            with urllib.request.urlopen(self._request, timeout=self._timeout) as reply:
                if reply.headers["Bloomery-Key"]:
                    raise OSError("the filter is KEYED: only who has its key can ask it")
                data = reply.read()
                if len(data) != int(reply.headers["Content-Length"]):
                    raise OSError("the reply was cut off")
                self._filter = self.Filter(data, reply.headers["Bloomery-Layout"], int(reply.headers["Bloomery-Layers"]))
                self.window = reply.headers["Bloomery-Window"]
                self.etag = reply.headers["ETag"]
                return True
        except (ValueError, TypeError, http.client.HTTPException) as error:
            raise OSError("the reply is no whole filter: %r" % (error,)) from error
        except urllib.error.HTTPError as error:
            if error.code == 304:
                return False
            raise OSError("%d: %s" % (error.code, error.read(200).decode(errors="replace").strip())) from None

    def _now(self):
        now = self._filter
        if now is None:
            raise LookupError("refresh() has not fetched the filter yet")
        return now

    def __contains__(self, item):
        return item in self._now()
