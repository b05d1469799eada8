#!/usr/bin/env python3
"""cuckoo_kills.py BLOOMERYD: cuckoo filters outlive kill -9.

Several clients add, delete, copy and compact while others save; the daemon is killed after a random number of
acknowledged commands, and started again, twice. All acknowledged items are there: the model has the number of items
of each class that shares a fingerprint and buckets, except for the commands in flight at the kill. The second start
gives the first one's bytes. Then without a log: a save beside writers has every item that stayed. And compactions
that take several commands, and headers with extreme numbers, come back from a save.

BLOOMERY_KILL_ROUNDS: how many kills (6). BLOOMERY_SEED: of the first round; it is printed.
"""
import os
import random
import struct
import sys
import tempfile
import threading
import time

import redis

from with_daemon import REPORTS, Daemon

ROUNDS = int(os.environ.get("BLOOMERY_KILL_ROUNDS", "6"))
CLIENTS = 4
M = 0xc6a4a7935bd1e995
MASK = (1 << 64) - 1
# name: slots, bucket size. All sub-filters are of the same size, so the classes of items are the same in all of them.
# The last one keeps a rate: it has a capacity, and slots of 12 bits in buckets of 4.
FILTERS = {"small": (64, 2), "middle": (1024, 2), "wide": (4096, 8), "single": (512, 1), "rate": (600, 4)}
RATE_BUCKETS = (600 + (600 + 18) // 19 + 16 + 3) // 4


def murmur(data):
    """MurmurHash64A, seed 0."""
    result = len(data) * M & MASK
    whole = len(data) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word = word * M & MASK
        word = (word ^ word >> 47) * M & MASK
        result = (result ^ word) * M & MASK
    if data[whole:]:
        result = (result ^ int.from_bytes(data[whole:], "little")) * M & MASK
    result = (result ^ result >> 47) * M & MASK
    return result ^ result >> 47


def class_of(name, item):
    """The class of items that no filter of this name can distinguish; and how often CF.COUNT counts a slot."""
    slots, size = FILTERS[name]
    value = murmur(item)
    if name == "rate":
        fingerprint, first = ((value >> 48) * 4095 >> 16) + 1, value % (1 << 48) % RATE_BUCKETS
        mixed = fingerprint * 0x9e3779b97f4a7c15 & MASK
        mixed = ((mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9 & MASK) >> 16
        buckets = {first, (mixed - first) % RATE_BUCKETS}
        return (fingerprint, frozenset(buckets)), 3 - len(buckets)
    fingerprint = value % 255 + 1
    buckets = {value % (slots // size), (value ^ fingerprint * 0x5bd1e995) % (slots // size)}
    return (fingerprint, frozenset(buckets)), 3 - len(buckets)


def taken_slots(name, chunks):
    """The number of slots that are not empty. Each chunk is a whole sub-filter."""
    if name != "rate":
        return sum(len(chunk) - chunk.count(0) for chunk in chunks)
    taken = 0
    for chunk in chunks:
        bits = int.from_bytes(chunk, "little")
        taken += sum(bits >> at & 4095 != 0 for at in range(0, len(chunk) * 8, 12))
    return taken


class Model:
    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {name: {} for name in FILTERS}
        self.doubt = {name: {} for name in FILTERS}  # class: [fewest, most] more, by commands in flight

    def change(self, name, item, by):
        key, _ = class_of(name, item)
        with self.lock:
            self.counts[name][key] = self.counts[name].get(key, 0) + by

    def in_flight(self, name, item, by):
        key, _ = class_of(name, item)
        with self.lock:
            doubt = self.doubt[name].setdefault(key, [0, 0])
            doubt[by > 0] += by

    def check(self, client, name, items):
        """Takes over the effects of the commands in flight."""
        pipeline = client.pipeline(transaction=False)
        for item in items:
            pipeline.execute_command("CF.COUNT", name, item)
            pipeline.execute_command("CF.EXISTS", name, item)
        replies = pipeline.execute()
        found = {}
        for item, count, exists in zip(items, replies[::2], replies[1::2]):
            key, times = class_of(name, item)
            known, (fewest, most) = self.counts[name].get(key, 0), self.doubt[name].get(key, (0, 0))
            assert known + fewest <= count / times <= known + most, (name, item, count, times, known, fewest, most)
            assert exists == (count > 0), (name, item, count, exists)
            found[key] = count // times
        self.counts[name], self.doubt[name] = found, {}


def connect(daemon):
    return redis.Redis(port=daemon.port, socket_timeout=120, retry_on_timeout=False)


def work(daemon, model, chance, items, goes_on, wrong):
    """One client's commands, until the daemon is gone."""
    client = connect(daemon)
    while True:
        name, kind = chance.choice(list(FILTERS)), chance.random()
        some = [chance.choice(items) for _ in range(chance.randint(1, 30) if kind < 0.15 else 1)]
        if kind < 0.03:
            command = "CF.COMPACT"
        elif kind < 0.15:
            command = chance.choice(["CF.INSERT", "CF.INSERTNX"])
        else:
            command = chance.choice(["CF.ADD", "CF.ADDNX", "CF.DEL"] if kind < 0.6 else ["CF.DEL"])
        words = [] if command == "CF.COMPACT" else ["ITEMS", *some] if len(some) > 1 or "INS" in command else some
        by = {"CF.COMPACT": 0, "CF.DEL": -1}.get(command, 1)
        try:
            reply = client.execute_command(command, name, *words)
        except redis.ResponseError as error:
            if "Maximum expansions" not in str(error) and "full" not in str(error):
                wrong.append((command, name, str(error)))
                return
            continue
        except redis.ConnectionError:
            for item in some if by else []:
                model.in_flight(name, item, by)
            return
        for item, answer in zip(some, reply if isinstance(reply, list) else [reply]):
            if by and answer == 1:
                model.change(name, item, by)
        goes_on()


def disturb(daemon, chance):
    """Saves and copies, until the daemon is gone."""
    client = connect(daemon)
    while True:
        try:
            client.execute_command(*chance.choice([["BGSAVE"], ["SAVE"], ["COPY", "middle", "copy", "REPLACE"],
                                                   ["CF.INFO", "small"], ["CF.SCANDUMP", "single", "1"], ["DUMP", "wide"],
                                                   ["INFO", "ALL"]]))
        except redis.ResponseError:
            pass  # a save is under way
        except redis.ConnectionError:
            return


def slots_of(client, name):
    iterator, data = client.execute_command("CF.SCANDUMP", name, 0)
    chunks = [data]
    while iterator:
        iterator, data = client.execute_command("CF.SCANDUMP", name, iterator)
        chunks.append(data)
    return chunks


def everything(client):
    names = sorted(client.execute_command("KEYS", "*"))
    return {name: (slots_of(client, name), client.execute_command("CF.INFO", name)) for name in names}


def restart(daemon):
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.start(), "its port was taken"


def until_killed(daemon, model, chance, items):
    """All clients at work, until a number of commands has been acknowledged; then the kill."""
    left, enough, wrong = [chance.randint(50, 1500)], threading.Event(), []

    def goes_on():
        left[0] -= 1
        if left[0] <= 0:
            enough.set()

    threads = [threading.Thread(target=work, args=(daemon, model, random.Random(chance.random()), items, goes_on, wrong))
               for _ in range(CLIENTS)]
    threads.append(threading.Thread(target=disturb, args=(daemon, random.Random(chance.random()))))
    for thread in threads:
        thread.start()
    while not enough.wait(0.01) and not wrong:
        assert daemon.process.poll() is None, "the daemon has ended by itself"
    daemon.process.kill()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    restart(daemon)


def kill_rounds(program, directory, seed):
    daemon = Daemon(program, directory, "killed", ["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
    client, model = connect(daemon), Model()
    items = [b"item:%d" % i for i in range(3000)]
    for name, (slots, size) in FILTERS.items():
        how = ["ERROR", "0.1"] if name == "rate" else ["BUCKETSIZE", size]
        client.execute_command("CF.RESERVE", name, slots, *how, "EXPANSION", 1)
    for number in range(ROUNDS):
        print(f"round {number}: seed {seed + number}", flush=True)
        until_killed(daemon, model, random.Random(seed + number), items)
        client = connect(daemon)
        first = everything(client)
        for name in FILTERS:
            model.check(client, name, items)
            words = dict(zip(first[name.encode()][1][::2], first[name.encode()][1][1::2]))
            taken = taken_slots(name, [chunk for chunk in first[name.encode()][0][1:] if chunk])
            assert words[b"Number of items inserted"] == taken == sum(model.counts[name].values()), (name, words, taken)
        restart(daemon)
        assert everything(connect(daemon)) == first, "another start, other bytes"
    return daemon


# ---- saves without a log ----

def write_others(daemon, chance, wrong, stop):
    """Adds items of its own, and deletes them again."""
    client, own = connect(daemon), []
    while not stop.is_set():
        if len(own) < 300 and chance.random() < 0.6:
            item = b"%d" % chance.getrandbits(60)
            try:
                if client.execute_command("CF.ADD", "kept", item) == 1:
                    own.append(item)
            except redis.ResponseError:
                continue  # it is full
        elif own and client.execute_command("CF.DEL", "kept", own.pop(chance.randrange(len(own)))) != 1:
            wrong.append("an item that was added cannot be deleted")
        if chance.random() < 0.02:
            client.execute_command("CF.COMPACT", "kept")


def save_beside_writers(program, directory, seed):
    daemon = Daemon(program, directory, "saved", ["--appendonly", "no", "--save", ""])
    for number, (slots, size, expansion) in enumerate([(1024, 4, 0), (256, 2, 2), (16384, 8, 1), (1024, 1, 1)]):
        client, chance, wrong, stop = connect(daemon), random.Random(seed + number), [], threading.Event()
        client.execute_command("DEL", "kept")
        client.execute_command("CF.RESERVE", "kept", slots, "BUCKETSIZE", size, "EXPANSION", expansion)
        staying = [b"stays:%d" % i for i in range(300)]
        assert all(answer == 1 for answer in client.execute_command("CF.INSERT", "kept", "ITEMS", *staying))
        threads = [threading.Thread(target=write_others, args=(daemon, random.Random(chance.random()), wrong, stop))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            client.execute_command("SAVE")
            assert all(client.execute_command("CF.MEXISTS", "kept", *staying)), "an item that stays is absent"
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
        restart(daemon)
        client = connect(daemon)
        assert all(client.execute_command("CF.MEXISTS", "kept", *staying)), "the save lacks an item that stayed"
        chunks, words = slots_of(client, "kept"), client.execute_command("CF.INFO", "kept")
        assert words[7] == sum(len(chunk) - chunk.count(0) for chunk in chunks[1:] if chunk), "the save's count"
    return daemon


# ---- content of a save ----

def head(**numbers):
    fields = {"items": 0, "buckets": 8, "deletes": 0, "filters": 1, "size": 2, "iterations": 20, "expansion": 1, **numbers}
    return struct.pack("<QQQQHHH", *fields.values())


def long_compaction(daemon):
    """A compaction of several commands: the next save has the steps of CF.DEL of nothing and CF.ADDNX of something."""
    client = connect(daemon)
    for end in ("CF.DEL", "CF.ADDNX", "CF.INSERTNX"):
        client.execute_command("DEL", "long")
        client.execute_command("CF.ADD", "helper", "there")
        client.execute_command("CF.LOADCHUNK", "long", 1, head(buckets=1 << 20, filters=2))
        for part in range(16):  # every 1024th slot of the second sub-filter
            size = 2 << 16
            client.execute_command("CF.LOADCHUNK", "long", 1 + (2 << 20) + size * (part + 1), (b"\x07" + bytes(1023)) * (size >> 10))
        client.execute_command("CF.ADD", "long", "there")
        client.pipeline().execute_command("CF.COMPACT", "long").execute()  # in a transaction, where it has one turn
        assert client.execute_command("CF.INFO", "long")[5] == 2, "this takes several commands"
        client.execute_command("SAVE")
        item = {"CF.DEL": ["absent"], "CF.ADDNX": ["there"], "CF.INSERTNX": ["ITEMS", "there"]}[end]
        for _ in range(20):
            pipeline = client.pipeline(transaction=False)
            for _ in range(1000):
                pipeline.execute_command(end, "long", *item)
            assert all(reply in (0, [0]) for reply in pipeline.execute())
        before = everything(client)
        assert client.execute_command("CF.INFO", "long")[5] == 1, "the compaction has ended"
        client.execute_command("SAVE")
        restart(daemon)
        client = connect(daemon)
        assert everything(client) == before, f"what {end} went on with is not in the save"


def extreme_numbers(daemon):
    """A filter created by a header can be saved and loaded, after any commands."""
    client = connect(daemon)
    for i, deletes in enumerate([(1 << 60) - 1, (1 << 60) - 2, 1 << 59]):
        client.execute_command("CF.LOADCHUNK", f"extreme{i}", 1, head(deletes=deletes))
        for item in ("x", "y", "z"):
            client.execute_command("CF.ADD", f"extreme{i}", item)
            assert client.execute_command("CF.DEL", f"extreme{i}", item) == 1
        client.execute_command("CF.ADD", f"extreme{i}", "stays")
    before = everything(client)
    for save in (False, True):
        if save:
            client.execute_command("SAVE")
        restart(daemon)
        client = connect(daemon)
        assert everything(client) == before, ("save" if save else "log")


def gap(daemon):
    """Deletions whose adds are in no log take no saved item away: the log was off for the adds, and no save came between."""
    client = connect(daemon)
    kept, lost = [f"kept:{i}" for i in range(20000)], [f"lost:{i}" for i in range(20000)]
    client.execute_command("CF.RESERVE", "gap", 32768, "BUCKETSIZE", 4, "EXPANSION", 2)
    client.execute_command("CF.INSERT", "gap", "ITEMS", *kept)
    client.execute_command("BF.RESERVE", "slow", 0.001, 3000000)
    client.execute_command("SAVE")
    client.config_set("appendonly", "no")
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        time.sleep(0.01)
    assert client.execute_command("CF.INSERT", "gap", "ITEMS", *lost).count(1) == len(lost)
    client.execute_command("BF.ADD", "slow", "x")
    client.config_set("save-rate-limit", "50kb")  # the save that appendonly begins takes minutes
    client.config_set("appendonly", "yes")
    pipeline = client.pipeline(transaction=False)
    for item in lost:
        pipeline.execute_command("CF.DEL", "gap", item)
    assert sum(pipeline.execute()) == len(lost)
    client.execute_command("WAITAOF", 1, 0, 1000)
    assert client.info("persistence")["rdb_bgsave_in_progress"], "the save is still running"
    restart(daemon)
    client = connect(daemon)
    assert client.execute_command("CF.MEXISTS", "gap", *kept).count(1) == len(kept)
    assert "left out" in daemon.output(), "the gap is told"


def main():
    seed = int(os.environ.get("BLOOMERY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bloomery-cuckoo-") as directory:
        daemons = [kill_rounds(sys.argv[1], directory, seed)]
        extreme_numbers(daemons[0])
        long_compaction(daemons[0])
        gap(daemons[0])
        daemons.append(save_beside_writers(sys.argv[1], directory, seed))
        for daemon in daemons:
            wrong = daemon.stop() + [sign for sign in REPORTS if sign in daemon.output()]
            assert not wrong, (wrong, daemon.output()[-3000:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
