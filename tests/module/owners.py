#!/usr/bin/env python3
"""BF.INSERT with OWNER in engines: a claim is one change for replicas and the log, in every kind of filter; and after kill -9 of
the primary and a failover each item has one winner among the claims that a replica has confirmed (WAIT)."""
import os
import random
import sys
import tempfile
import threading
import time

from engines import Connection, Engine, Error, in_sync, items, replica_of, run, wait_until

KINDS = {"na": ["CAPACITY", "1000"], "grows": ["CAPACITY", "10"], "fixed": ["CAPACITY", "401", "NONSCALING"],
         "redisbloom": ["CAPACITY", "100", "LAYOUT", "redisbloom"], "keyed": ["CAPACITY", "100", "KEYED"],
         "valkey": ["CAPACITY", "2000", "LAYOUT", "valkey"],
         "window": ["CAPACITY", "100", "WINDOW", "100000"], "refresh": ["CAPACITY", "40", "WINDOW", "100000", "PARTS", "4", "REFRESH"],
         "by_items": ["CAPACITY", "4000", "WINDOW", "ITEMS", "4000"]}
OWNERS = ["worker-1", "worker-2", "x" * 64]


def mark(owner, item):
    return b"\x01OWNER\x01" + bytes([len(owner)]) + owner.encode() + item.encode()


def expect_answers(engine, name, told):
    for owner in OWNERS:
        asked = list(told)
        reply = engine("BF.MEXISTS", name, *[mark(owner, item) for item in asked])
        assert reply == [int(told[item] == owner) for item in asked], (name, owner)


def test_claims_are_the_same_on_replicas_and_after_a_restart_from_the_log(*more):
    with tempfile.TemporaryDirectory() as directory:
        keys = os.path.join(directory, "keys")
        with open(keys, "w") as file:
            file.write("54b70391b3deeb2f " + bytes(range(32)).hex() + "\n")  # the id of these bytes: tests/unit/persist/key_file.c
        module = ("bf-key-file", keys, "bf-error-rate", "1e-9", *more)
        primary = Engine("--appendonly", "yes", module=module)
        replica = replica_of(primary, module=module)
        told = {name: {} for name in KINDS}
        chance = random.Random(5)
        for step in range(120):
            name, owner = chance.choice(list(KINDS)), chance.choice(OWNERS)
            some = [f"i{chance.randrange(200)}" for _ in range(chance.choice((1, 1, 5, 70)))]
            command = ["BF.INSERT", name, "ERROR", "1e-9", *KINDS[name], "OWNER", owner, "ITEMS", *some]
            if step % 5 == 0:
                primary("MULTI")
                primary(*command)
                reply = primary("EXEC")[0]
            elif step % 5 == 1:
                reply = primary("EVAL", "return redis.call(unpack(ARGV))", "1", name, *command)
            else:
                reply = primary(*command)
            for item, answer in zip(some, reply):
                assert answer == int(told[name].setdefault(item, owner) == owner), (name, owner, item, answer)
        in_sync(primary, replica)
        for name in KINDS:
            expect_answers(primary, name, told[name])
            expect_answers(replica, name, told[name])
            if name != "refresh":
                assert replica("BF.CARD", name) == primary("BF.CARD", name) == 2 * len(told[name]), name
        primary.kill()
        primary.start()
        for name in KINDS:
            expect_answers(primary, name, told[name])
        primary("BGREWRITEAOF")
        wait_until(lambda: primary.info("persistence", "aof_rewrite_in_progress") == "0", "the log is rewritten")
        primary.kill()
        primary.start()
        for name in KINDS:
            expect_answers(primary, name, told[name])


def test_the_same_in_redisblooms_place():
    test_claims_are_the_same_on_replicas_and_after_a_restart_from_the_log("take-over", "yes")


def test_a_full_filter_refuses_both_and_tells_replicas_nothing():
    primary = Engine()
    replica = replica_of(primary)
    primary("BF.RESERVE", "f", "0.0001", "5", "NONSCALING")
    reply = primary("BF.INSERT", "f", "OWNER", "a", "ITEMS", "1", "2", "3", "4")
    assert reply[:2] == [1, 1] and isinstance(reply[2], Error) and len(reply) == 3, reply
    assert primary("BF.MEXISTS", "f", "3", mark("a", "3")) == [0, 0]
    assert primary("BF.INSERT", "f", "OWNER", "a", "ITEMS", "2") == [1]
    assert primary("BF.INSERT", "f", "OWNER", "b", "ITEMS", "2") == [0]
    for words in (["OWNER", ""], ["OWNER", "x" * 65]):
        assert "1 to 64 bytes" in str(primary.try_call("BF.INSERT", "f", *words, "ITEMS", "x"))
    assert "Bloom filters" in str(primary.try_call("CF.INSERT", "c", "OWNER", "a", "ITEMS", "x"))
    in_sync(primary, replica)
    assert replica("BF.CARD", "f") == 4


class Worker:
    """Fetches the items that it has claimed and a replica has confirmed; asks again whatever is in doubt."""

    def __init__(self, owner, all_items, address):
        self.owner, self.items, self.address, self.fetched = owner, list(all_items), address, []
        random.Random(owner).shuffle(self.items)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        connection = None
        while self.items:
            some = self.items[:5]
            try:
                connection = connection or Connection(self.address[0])
                connection.send(("BF.INSERT", "f", "OWNER", self.owner, "ITEMS", *some), ("WAIT", "1", "300"))
                reply, replicas = connection.reply(), connection.reply()
                if isinstance(reply, Error) or isinstance(replicas, Error) or replicas < 1:
                    raise ConnectionError(str(reply))
            except (OSError, ConnectionError):
                connection = None
                time.sleep(0.01)
                continue
            self.fetched += [item for item, answer in zip(some, reply) if answer == 1]
            self.items = self.items[5:]


def test_a_failover_leaves_one_winner_for_each_item():
    for kind in (["CAPACITY", "100"], ["CAPACITY", "5000", "WINDOW", "100000"]):
        engines = [Engine("--appendonly", "yes")]
        engines += [replica_of(engines[0]) for _ in range(2)]
        engines[0]("BF.INSERT", "f", "ERROR", "1e-9", *kind, "ITEMS", "first")
        in_sync(*engines)
        address, all_items = [engines[0].port], items("page", 12000)
        workers = [Worker(f"worker-{i}", all_items, address) for i in range(4)]
        for _ in range(2):
            goal = sum(len(worker.fetched) for worker in workers) + 1500
            wait_until(lambda: sum(len(worker.fetched) for worker in workers) >= goal, "pages are fetched")
            killed = engines.pop(0)
            killed.kill()
            # the one that has most, as a Sentinel chooses
            engines.sort(key=lambda engine: -int(engine.info("replication", "slave_repl_offset")))
            engines[0]("REPLICAOF", "NO", "ONE")
            for engine in engines[1:]:  # before the killed one is back: nobody is to confirm what it takes
                engine("REPLICAOF", "127.0.0.1", engines[0].port)
            killed.start()
            engines.append(killed)
            killed("REPLICAOF", "127.0.0.1", engines[0].port)
            wait_until(lambda: all(engine.info("replication", "master_link_status") == "up" for engine in engines[1:]), "all follow")
            address[0] = engines[0].port
        wait_until(lambda: not any(worker.items for worker in workers), "all pages are claimed", 300)
        fetched = sorted(item for worker in workers for item in worker.fetched)
        assert fetched == sorted(all_items), (len(fetched), len(set(fetched)), len(all_items))
        in_sync(*engines)


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
