"""One filter over many nodes of a cluster, with redis-py's RedisCluster (docs/CLUSTER.md). parts.mjs shares it."""
import hashlib
import math


def slot(key):
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xffff
    return crc % 16384


def tags(n):
    """The smallest number for each of n equal ranges of slots."""
    found, number = {}, 0
    while len(found) < n:
        found.setdefault(slot(str(number)) * n // 16384, str(number))
        number += 1
    return [found[i] for i in range(n)]


class Parts:
    def __init__(self, client, name, n):
        self.call = client.execute_command
        self.keys = [f"{{{tag}}}{name}" for tag in tags(n)]

    def reserve(self, rate, capacity):
        each = capacity / len(self.keys)
        for key in self.keys:
            self.call("BF.RESERVE", key, rate, math.ceil(each + 4 * math.sqrt(each)), "NONSCALING")

    def part(self, item):
        data = item if isinstance(item, bytes) else item.encode()
        return int.from_bytes(hashlib.sha1(data).digest()[:4], "big") * len(self.keys) >> 32

    def batch(self, command, items):
        """The answers in the order of the items, with one command for each part."""
        places = [[] for _ in self.keys]
        for i, item in enumerate(items):
            places[self.part(item)].append(i)
        answers = [None] * len(items)
        for key, where in zip(self.keys, places):
            if where:
                for i, answer in zip(where, self.call(command, key, *[items[i] for i in where])):
                    answers[i] = answer
        return answers

    def add(self, items):
        return self.batch("BF.MADD", items)

    def exists(self, items):
        return self.batch("BF.MEXISTS", items)

    def info(self):
        """The sums of the parts."""
        def value(key, field):
            reply = self.call("BF.INFO", key, field)  # a list, with RESP3 a dict
            return list(reply.values() if isinstance(reply, dict) else reply)[0]
        return {field: sum(value(key, field) for key in self.keys) for field in ("CAPACITY", "SIZE", "ITEMS")}
