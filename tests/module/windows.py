#!/usr/bin/env python3
"""Windows in an engine: no item is absent within its window, on a primary, on a replica with another clock and other settings,
after a failover, a restart from either file, a copy or a dump; and the digests are always equal."""
import random
import sys
import time

from engines import Daemon, Engine, Error, in_sync, items, replica_of, rewritten, run, wait_until

OTHER = ("bf-error-rate", "0.3", "bf-initial-size", "7", "bf-auto-create", "no", "bf-max-filter-bytes", "1")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
DAY = 86400


class Clients:
    """Adds to a window, and remembers each item and its time."""

    def __init__(self, window_s, seed):
        self.window_s, self.rng, self.put = window_s, random.Random(seed), {}

    def add(self, server, name, n):
        names = [f"i{self.rng.randrange(100000)}" for _ in range(n)]
        now = time.monotonic()  # the server takes the add later: a window counts from there
        replies = server("BF.MADD", name, *names) if n > 1 else [server("BF.ADD", name, names[0])]
        for item, reply in zip(names, replies):
            if reply == 1:
                self.put[item] = now

    def expect(self, server, name):
        """Items that are certainly within their window are present."""
        names, before = list(self.put), time.monotonic()
        present = server("BF.MEXISTS", name, *names)
        after = time.monotonic()
        lost = [item for item, reply in zip(names, present) if not reply and after < self.put[item] + self.window_s]
        assert not lost, f"{len(lost)} of {len(names)} items were absent within their window"
        for item in [item for item in names if before > self.put[item] + 3 * self.window_s]:
            del self.put[item]


def forgets(server, name, item):
    wait_until(lambda: server("BF.EXISTS", name, item) == 0, f"{item} is forgotten")


def ring(server, name):
    """The present parts without their ages."""
    return [part[:2] + part[4:] for part in server("BF.INFO", name, "RING")[0]]


def test_a_replica_with_another_clock_has_the_same_filters():
    """Turns by time, by items, by growth; refreshed items; large parts, which are dropped and emptied. The replicas' clocks
    are off by a day."""
    primary = Engine()
    primary("BF.RESERVE", "early", "0.001", "500", "WINDOW", "1", "PARTS", "4")
    primary("BF.ADD", "early", "x")
    replicas = [replica_of(primary, module=OTHER, clock_ahead_s=DAY), replica_of(primary, *ALWAYS, clock_ahead_s=-DAY)]
    apart = [int(replica("TIME")[0]) - int(primary("TIME")[0]) for replica in replicas]
    assert all(abs(seconds) > DAY - 100 for seconds in apart), apart
    primary("BF.RESERVE", "t", "0.001", "2000", "WINDOW", "1", "PARTS", "4")
    primary("BF.RESERVE", "r", "0.001", "200", "WINDOW", "1", "PARTS", "3", "REFRESH")
    primary("BF.RESERVE", "n", "0.001", "300", "WINDOW", "ITEMS", "300", "PARTS", "8")
    primary("BF.RESERVE", "large", "0.0001", "400000", "WINDOW", "1", "PARTS", "2")
    primary("BF.INSERT", "fixed", "CAPACITY", "40", "NONSCALING", "WINDOW", "2", "PARTS", "2", "ITEMS", *items("f", 50))
    clients = {name: Clients(1, name) for name in ("early", "t", "r", "large")}
    rng, until = random.Random(7), time.monotonic() + 5
    while time.monotonic() < until:
        for name, client in clients.items():
            client.add(primary, name, rng.choice((1, 1, 40, 300)))
            client.expect(primary, name)
            in_sync(primary, *replicas)
            for replica in replicas:
                client.expect(replica, name)
        primary("BF.MADD", "n", *items("n", rng.randrange(1, 200), rng.randrange(5000)))
        primary("MULTI")
        primary("BF.ADD", "n", f"m{rng.randrange(5000)}")
        primary("BF.MADD", "r", *items("r", 20))
        primary("EXEC")
    assert primary("BF.INFO", "large", "FILTERS")[0] <= 5, "the ring has grown"
    # Without adds all of them forget, also those whose primary says nothing any more.
    primary("BF.ADD", "t", "last")
    for server in (primary, *replicas):
        forgets(server, "t", "last")
        wait_until(lambda server=server: server("BF.CARD", "t") == 0, "it forgets all")
    in_sync(primary, *replicas)
    digest = replicas[1].digest()
    replicas[1].kill()
    replicas[1].start()
    wait_until(lambda: replicas[1].info("replication", "master_link_status") == "up", "the replica is in sync")
    assert replicas[1].digest() == digest
    in_sync(primary, *replicas)


def test_a_replica_that_becomes_the_primary_forgets_nothing_early():
    primary = Engine()
    client = Clients(2, 1)
    primary("BF.RESERVE", "w", "0.001", "5000", "WINDOW", "2", "PARTS", "4")
    client.add(primary, "w", 500)
    replica = replica_of(primary, clock_ahead_s=DAY)  # gets a part by the synchronisation, and others by the stream
    until = time.monotonic() + 2
    while time.monotonic() < until:
        client.add(primary, "w", 50)
    in_sync(primary, replica)
    replica("REPLICAOF", "NO", "ONE")
    primary("REPLICAOF", "127.0.0.1", replica.port)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        client.expect(replica, "w")
        client.add(replica, "w", 20)
    wait_until(lambda: primary.info("replication", "master_link_status") == "up", "the old primary follows")
    in_sync(replica, primary)
    replica("BF.ADD", "w", "last")
    forgets(replica, "w", "last")


def test_synchronisations_of_all_kinds_keep_the_ages():
    """From disk and diskless, into an empty database and beside the old one (swapdb), to replicas whose clocks are off."""
    primary = Engine("--repl-diskless-sync", "no")
    primary("BF.RESERVE", "w", "0.001", "1000", "WINDOW", "4", "PARTS", "2")
    primary("BF.RESERVE", "large", "0.0001", "2000000", "WINDOW", "60")
    put = time.monotonic()
    primary("BF.MADD", "w", *items("w", 500))
    primary("BF.MADD", "large", *items("l", 500))
    replicas = []
    for diskless, load in (("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb"), ("yes", "on-empty-db")):
        primary("CONFIG", "SET", "repl-diskless-sync", diskless)
        replicas += [replica_of(primary, "--repl-diskless-load", load, clock_ahead_s=seconds) for seconds in (-DAY, DAY)]
    in_sync(primary, *replicas)
    for replica in replicas:
        present = replica("BF.MEXISTS", "w", *items("w", 500))
        assert present == [1] * 500 or time.monotonic() > put + 4, present.count(0)
    forgets(primary, "w", "w0")
    for replica in replicas:
        forgets(replica, "w", "w0")


def test_restarts_keep_the_promise_and_the_ages():
    for arguments, save in ((ALWAYS, False), ((*ALWAYS, "--aof-use-rdb-preamble", "no"), True), ((), True)):
        engine = Engine(*arguments)
        client = Clients(3, 2)
        engine("BF.RESERVE", "w", "0.001", "5000", "WINDOW", "3", "PARTS", "6")
        engine("BF.RESERVE", "old", "0.001", "100", "WINDOW", "1", "PARTS", "1")
        engine("BF.ADD", "old", "x")
        for _ in range(3):
            for _ in range(30):
                client.add(engine, "w", 10)
                time.sleep(0.02)
            if save:
                rewritten(engine, "BGREWRITEAOF" if arguments else "SAVE")
            digest = engine.digest()
            if arguments:
                engine.kill()
            else:
                engine.stop()
            time.sleep(0.3)
            engine.start()
            assert engine.digest() == digest
            client.expect(engine, "w")
        assert engine("BF.EXISTS", "old", "x") == 0, "ages begin anew at a restart"


def test_copies_and_dumps_between_engine_and_daemon():
    engine, daemon, third = Engine(), Daemon(), Engine(clock_ahead_s=-DAY)
    engine("BF.RESERVE", "w", "0.001", "300", "WINDOW", "3", "PARTS", "4")
    engine("BF.RESERVE", "n", "0.001", "100", "WINDOW", "ITEMS", "100", "PARTS", "5", "REFRESH")
    engine("BF.RESERVE", "none", "0.001", "100", "WINDOW", "60")
    put = time.monotonic()
    engine("BF.MADD", "w", *items("w", 400))
    engine("BF.MADD", "n", *items("n", 250))
    time.sleep(0.6)
    engine("BF.ADD", "w", "later")
    for name in ("w", "n", "none"):
        engine("COPY", name, "copy-" + name)
        value = engine("DUMP", name)
        assert daemon("RESTORE", name, "0", value) == "OK"
        assert engine("RESTORE", "back-" + name, "0", daemon("DUMP", name)) == "OK"
        assert third("RESTORE", name, "0", value) == "OK"
        for source, target, to in ((engine, daemon, "chunks-" + name), (daemon, engine, "chunks-" + name)):
            iterator = 0
            while True:
                iterator, data = source("BF.SCANDUMP", name, iterator)
                if iterator == 0:
                    break
                assert target("BF.LOADCHUNK", to, iterator, data) == "OK"
        digests = {engine("DEBUG", "DIGEST-VALUE", prefix + name)[0] for prefix in ("", "copy-", "back-", "chunks-")}
        digests.add(third("DEBUG", "DIGEST-VALUE", name)[0])
        assert len(digests) == 1, name
        for server, prefix in ((engine, "copy-"), (engine, "back-"), (engine, "chunks-"), (daemon, ""), (daemon, "chunks-")):
            assert server("BF.INFO", prefix + name, "PARTS") == engine("BF.INFO", name, "PARTS")
            assert server("BF.INFO", prefix + name, "WINDOW") == engine("BF.INFO", name, "WINDOW")
            assert ring(server, prefix + name) == ring(engine, name) or time.monotonic() > put + 3, (prefix, name)
    for prefix in ("", "copy-", "back-", "chunks-"):
        present = engine("BF.MEXISTS", prefix + "w", *items("w", 400), "later")
        assert present == [1] * 401 or time.monotonic() > put + 3
    # Together they forget: a copy is as old as its source.
    forgets(engine, "w", "later")
    for prefix in ("copy-", "back-", "chunks-"):
        forgets(engine, prefix + "w", "later")
    for prefix in ("", "chunks-"):
        forgets(daemon, prefix + "w", "later")
    assert engine("BF.MEXISTS", "back-n", *items("n", 100, 150)) == [1] * 100


def test_unions_are_the_same_everywhere():
    """Merges of filters with grown parts, into a new and into an existing filter, on replicas with other clocks, in the
    engine's log, and after a failover."""
    primary = Engine(*ALWAYS)
    replicas = [replica_of(primary, module=OTHER, clock_ahead_s=DAY), replica_of(primary, clock_ahead_s=-DAY)]
    clients = {name: Clients(2, name) for name in ("a", "b", "u", "v")}
    for name in ("a", "b", "u", "empty"):
        primary("BF.RESERVE", name, "0.001", "400", "WINDOW", "2", "PARTS", "4")
    primary("BF.RESERVE", "n", "0.001", "100", "WINDOW", "ITEMS", "100")
    primary("BF.RESERVE", "plain", "0.001", "400")
    primary("CONFIG", "SET", "bloomery.bf-merge-overfull", "yes")
    for i in range(12):
        for name in ("a", "b", "u"):
            clients[name].add(primary, name, (20, 1, 150)[(i + len(name)) % 3])
        primary("BF.MERGE", "u", "a", "b", "empty", "u")
        primary("BF.MERGE", *(("v", "a") if i % 2 else ("v", "v", "b", "a")) if i else ("v", "b", "a"))
        clients["v"].put.update(clients["a"].put)
        for source in ("a", "b"):
            clients["u"].put.update(clients[source].put)
        in_sync(primary, *replicas)
        for server in (primary, *replicas):
            for name, client in clients.items():
                client.expect(server, name)
        time.sleep(0.15)
    for words in (("u", "n"), ("plain", "a"), ("new", "n"), ("a", "plain")):
        assert "cannot be merged" in str(primary.try_call("BF.MERGE", *words)), words
    primary("BF.MERGE", "nothing", "empty")
    in_sync(primary, *replicas)
    digest = primary.digest()
    primary.kill()
    primary.start()
    assert primary.digest() == digest
    for name, client in clients.items():
        client.expect(primary, name)
    heir = replicas[1]
    heir("REPLICAOF", "NO", "ONE")
    heir("CONFIG", "SET", "bloomery.bf-merge-overfull", "yes")
    clients["u"].add(heir, "u", 100)
    clients["u"].expect(heir, "u")
    heir("BF.MERGE", "w", "u", "a")
    heir("BF.ADD", "u", "last")
    for name in ("u", "v", "w"):
        forgets(heir, name, "last")
        wait_until(lambda name=name: heir("BF.CARD", name) == 0, f"{name} forgets all")


def test_a_copy_has_nothing_of_a_part_that_is_being_emptied():
    """Dropped parts are emptied between commands: a transaction copies a part that is not empty yet."""
    engine = Engine()
    replica = replica_of(engine)
    engine("BF.INSERT", "w", "CAPACITY", "100000", "ERROR", "0.0001", "WINDOW", "ITEMS", "1", "PARTS", "1", "ITEMS", "a", "b")
    engine("MULTI")
    engine("BF.ADD", "w", "c")
    engine("COPY", "w", "copy")
    engine("EXEC")
    for name in ("w", "copy"):
        assert engine("BF.ADD", name, "d") == 1
        assert engine("BF.MEXISTS", name, "a", "b", "c", "d") == [0, 0, 1, 1]
    assert engine("BF.INFO", "copy", "FILTERS") == [3]  # the layer of the part with "a" has another part now
    in_sync(engine, replica)


def oldest(server, name):
    """The age of the filter's oldest layer."""
    fields = server("BF.INFO", name, "FULL")
    return float(fields[fields.index(b"Oldest part" if b"Oldest part" in fields else "Oldest part") + 1])


def test_a_union_is_as_young_as_what_went_into_it():
    """On each node, in any order of the sources, and also if nothing else changes."""
    primary = Engine(*ALWAYS)
    replica = replica_of(primary, clock_ahead_s=DAY)
    for name in "abcd":
        primary("BF.RESERVE", name, "0.001", "10", "WINDOW", 365 * DAY, "PARTS", "1")
    primary("BF.MADD", "a", *items("a", 15))  # a layer that the younger part has not
    primary("BF.ADD", "c", "x")
    time.sleep(0.3)
    primary("BF.ADD", "b", "y")
    primary("BF.ADD", "d", "x")
    in_sync(primary, replica)
    for words in (("u", "a", "b"), ("v", "b", "a"), ("a", "b"), ("c", "d")):
        primary("BF.MERGE", *words)
    in_sync(primary, replica)
    primary.kill()
    primary.start()
    for server in (primary, replica):
        for union, youngest in (("u", "b"), ("v", "b"), ("a", "b"), ("c", "d")):
            assert oldest(server, union) <= oldest(server, youngest), (union, server is primary)

def test_replicas_keep_a_union_to_the_end_of_its_parts():
    """Merges without a pause, so that some come at the end of a part. An item that a replica has forgotten is absent in its
    primary, which is asked after it; in the end all have forgotten every item."""
    primary = Engine()
    replicas = [replica_of(primary, module=OTHER, clock_ahead_s=DAY), replica_of(primary, clock_ahead_s=-DAY)]
    for name in ("a", "b"):
        primary("BF.RESERVE", name, "0.001", "400", "WINDOW", "1", "PARTS", "2")
    primary("CONFIG", "SET", "bloomery.bf-merge-overfull", "yes")
    put, merge, alive = [], [("BF.MERGE", "u", "a", "b")] * 40 + [("BF.MERGE", "u", "b")] * 10, True
    until = time.monotonic() + 4
    while alive:
        if time.monotonic() < until:
            put.append(f"i{len(put)}")
            primary("BF.ADD", "ab"[len(put) % 2], put[-1])
        assert set(primary.connection.pipeline(merge)) == {"OK"}
        in_sync(primary, *replicas)
        for replica in replicas:
            there = replica("BF.MEXISTS", "u", *put)
            lost = [item for item, here, late in zip(put, there, primary("BF.MEXISTS", "u", *put)) if late and not here]
            assert not lost, f"a replica has forgotten {lost} before its primary"
        alive = time.monotonic() < until or primary("BF.CARD", "u") > 0
    for replica in replicas:
        wait_until(lambda replica=replica: replica("BF.CARD", "u") == 0 and ring(replica, "u") == [], "it forgets all")
    assert ring(primary, "u") == []
    in_sync(primary, *replicas)


def test_a_half_loaded_window_is_kept_as_it_is():
    engine = Engine()
    engine("BF.RESERVE", "w", "0.0001", "500000", "WINDOW", "60", "PARTS", "1")
    engine("BF.MADD", "w", *items("w", 2000))
    chunks, iterator = [], 0
    while True:
        iterator, data = engine("BF.SCANDUMP", "w", iterator)
        if iterator == 0:
            break
        chunks.append((iterator, data))
    assert len(chunks) > 3
    for iterator, data in chunks[:2]:
        engine("BF.LOADCHUNK", "to", iterator, data)
    replica = replica_of(engine, clock_ahead_s=DAY)
    in_sync(engine, replica)
    engine("COPY", "to", "copied")
    engine("DEBUG", "RELOAD")
    assert "being loaded" in str(engine.try_call("BF.ADD", "to", "x"))
    for iterator, data in chunks[2:]:
        for name in ("to", "copied"):
            assert engine("BF.LOADCHUNK", name, iterator, data) == "OK"
    for name in ("to", "copied"):
        assert engine("BF.MEXISTS", name, *items("w", 2000)) == [1] * 2000
        assert engine("DEBUG", "DIGEST-VALUE", name) == engine("DEBUG", "DIGEST-VALUE", "w")
    in_sync(engine, replica)


def test_watch_limits_and_what_is_refused():
    engine = Engine("--notify-keyspace-events", "KEA")
    other = engine.connect()
    engine("BF.RESERVE", "w", "0.01", "100", "WINDOW", "60")
    engine("BF.RESERVE", "r", "0.01", "100", "WINDOW", "60", "REFRESH")
    engine("BF.RESERVE", "e", "0.01", "100", "WINDOW", "1")
    engine("BF.ADD", "w", "a")
    engine("BF.ADD", "r", "a")
    for words, changes in ((("BF.ADD", "w", "a"), False), (("BF.ADD", "w", "b"), True), (("BF.MADD", "w", "a", "b"), False),
                           (("BF.EXISTS", "w", "b"), False), (("BF.ADD", "r", "a"), False), (("BF.CLEAR", "e"), False),
                           (("BF.INFO", "w", "FULL"), False), (("BF.CARD", "w"), False), (("BF.CLEAR", "w"), True),
                           (("BF.CLEAR", "w"), False), (("BF.ADD", "w", "a"), True)):
        engine("WATCH", words[1])
        assert not isinstance(other.try_call(*words), Error)
        engine("MULTI")
        engine("PING")
        assert (engine("EXEC") is None) == changes, words
    engine("CONFIG", "SET", "bloomery.bf-max-filter-bytes", "1mb")
    refused = str(engine.try_call("BF.RESERVE", "large", "0.001", "400000", "WINDOW", "60"))
    assert refused.startswith("OOM") and "parts of the window" in refused, refused
    assert engine("BF.RESERVE", "small", "0.001", "200000", "WINDOW", "60") == "OK"
    assert "REFRESH" in str(engine.try_call("BF.MERGE", "w", "r"))
    for words in (("TURN", "0", "x", "1", "1"), ("DROP", "1"), ("UNION", "x")):
        assert "replication only" in str(engine.try_call("BF.APPLY", "w", *words))


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
