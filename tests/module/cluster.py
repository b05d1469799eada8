#!/usr/bin/env python3
"""Filters in a cluster of six: three primaries with a replica each."""
import os
import random
import subprocess
import sys
import time

from clusters import Adders, Cluster
from engines import Error, in_sync, items, run, wait_until


def keys_of(n):
    return [f"f{i}" for i in range(n)]


def equal_digests(cluster):
    cluster.wait_healthy()
    for primary in cluster.primaries():
        replica = cluster.replica_of(primary)
        if replica:
            in_sync(primary, replica)


def redis_cli(*arguments):
    done = subprocess.run(["redis-cli", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stdout.decode()[-3000:]
    return done.stdout.decode()


def take_over(replica):
    """An attempt may fail, because the others vote only at intervals."""
    def done():
        if replica.info("replication", "role") == "master":
            return True
        if time.monotonic() > done.next:
            replica.try_call("CLUSTER", "FAILOVER")
            done.next = time.monotonic() + 6
        return False
    done.next = 0
    wait_until(done, "the replica has taken over", 180)


def test_reshard_under_adds_loses_nothing():
    cluster = Cluster()
    client = cluster.client()
    keys = keys_of(60)
    for i, key in enumerate(keys):
        window = ("WINDOW", "1000", "PARTS", "4") if i % 5 == 0 else ()
        client.call(key, ("BF.RESERVE", key, "0.0001", 100 + 5000 * (i % 3), *window))
    adders = Adders(cluster, keys)
    adders.wait_more(2000)
    for source, target in ((0, 1), (1, 2)):
        cluster.wait_agreed()
        redis_cli("--cluster", "reshard", f"127.0.0.1:{cluster.nodes[0].port}", "--cluster-from", cluster.ids[source],
                  "--cluster-to", cluster.ids[target], "--cluster-slots", "1500", "--cluster-yes")
        adders.wait_more(500)
    adders.end()
    adders.check(client)
    equal_digests(cluster)
    assert sum(node("DBSIZE") for node in cluster.primaries()) == len(keys)
    print(f"      {adders.count()} adds meanwhile")


def test_atomic_migration_of_slots_under_adds_loses_nothing():
    """Valkey 9: a fork sends slots as commands of the log, with half-loaded filters and filters in RedisBloom's layout."""
    for module in ((), ("take-over", "yes")):
        cluster = Cluster(module=module)
        if "unknown subcommand" in str(cluster.nodes[0].try_call("CLUSTER", "GETSLOTMIGRATIONS")).lower():
            print("      this engine has none")
            return
        client, keys = cluster.client(), keys_of(60)
        for i, key in enumerate(keys):
            layout = ("LAYOUT", "REDISBLOOM") if i % 2 else ("LAYOUT", "NA") if i % 4 else ("WINDOW", "1000", "PARTS", "4")
            client.call(key, ("BF.RESERVE", key, "0.0001", 100 + 5000 * (i % 3), *layout))
        halves = {}
        for key in keys[:6]:
            iterator, header = client.call(key, ("BF.SCANDUMP", key, 0))
            halves["{%s}half" % key] = chunk = ("BF.LOADCHUNK", "{%s}half" % key, iterator, header)
            assert client.call(chunk[1], chunk) == "OK"
        adders = Adders(cluster, keys)
        adders.wait_more(500)
        source, target = cluster.nodes[0], cluster.nodes[1]
        assert source("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 0, 4000, "NODE", cluster.ids[1]) == "OK"

        def jobs():
            found = []
            for job in source("CLUSTER", "GETSLOTMIGRATIONS"):
                found.append(dict(zip(job[::2], job[1::2])))
            return found
        wait_until(lambda: all(job[b"state"] in (b"success", b"failed", b"cancelled") for job in jobs()), "slots have moved")
        assert [job[b"state"] for job in jobs()] == [b"success"], jobs()
        adders.wait_more(500)
        adders.end()
        adders.check(client)
        equal_digests(cluster)
        assert sum(node("DBSIZE") for node in cluster.primaries()) == len(keys) + len(halves) and target("DBSIZE") > 25
        for key in halves:
            assert "being loaded" in str(client.call(key, ("BF.EXISTS", key, "a")))
        print(f"      {adders.count()} adds meanwhile")


def test_manual_failovers_under_adds_lose_nothing():
    cluster = Cluster(timeout_ms=8000)  # the others vote every 16 s
    adders = Adders(cluster, keys_of(12))
    for _ in range(3):
        adders.wait_more(1000)
        for primary in cluster.primaries()[:2]:
            take_over(cluster.replica_of(primary))
        cluster.wait_healthy()
    adders.wait_more(1000)
    adders.end()
    adders.check(cluster.client())
    equal_digests(cluster)
    print(f"      {adders.count()} adds meanwhile")


def test_kills_of_primaries_lose_nothing_that_a_replica_has_confirmed():
    cluster = Cluster("--appendonly", "yes", timeout_ms=3000)
    adders = Adders(cluster, keys_of(12), confirmed=True)
    rng = random.Random(7)
    for _ in range(3):
        adders.wait_more(500)
        victim = rng.choice(cluster.primaries())
        heir = cluster.replica_of(victim)
        victim.kill()
        wait_until(lambda: heir.info("replication", "role") == "master", "the replica has taken over", 180)
        victim.start()
        cluster.wait_healthy()
    adders.wait_more(500)
    adders.end()
    adders.check(cluster.client())
    equal_digests(cluster)
    print(f"      {adders.count()} confirmed adds")


def test_what_cannot_be_moved_is_refused_where_it_would_be_made():
    cluster = Cluster()
    client = cluster.client()
    reply = client.call("huge", ("BF.RESERVE", "huge", "0.0001", "300000000"))
    assert isinstance(reply, Error) and "docs/CLUSTER.md" in str(reply), reply
    assert cluster.nodes[0]("CONFIG", "GET", "bloomery.bf-max-filter-bytes")[1] == str(500 << 20).encode()
    node = cluster.owner_of("a")
    other = next(name for name in items("b", 1000) if cluster.owner_of(name) is not node)
    assert str(node.try_call("BF.MERGE", "a", other)).startswith("CROSSSLOT")
    assert str(node.try_call("BF.ADD", other, "x")).startswith("MOVED")
    assert client.call("{a}1", ("BF.ADD", "{a}1", "x")) == 1 and client.call("{a}1", ("BF.MERGE", "{a}2", "{a}1")) == "OK"


SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.append(os.path.join(SOURCE, "examples"))


class Executing:
    """The only method of redis-py's clients that examples/parts.py needs."""

    def __init__(self, cluster):
        self.client = cluster.client()

    def execute_command(self, *words):
        reply = self.client.call(words[1], words)
        if isinstance(reply, Error):
            raise reply
        return reply


def client_of(cluster):
    try:
        from redis.cluster import RedisCluster
    except ImportError:
        return Executing(cluster)
    return RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port)


def test_one_filter_over_many_nodes():
    """examples/parts.py: each item has one winner, all are found, the rate holds, no part is full
    before the capacity is reached, and the nodes share the parts."""
    import parts as recipe
    with open(os.path.join(SOURCE, "docs", "CLUSTER.md"), encoding="utf-8") as file:
        assert ", ".join(recipe.tags(16)) + "." in file.read()
    cluster = Cluster()
    parts = recipe.Parts(client_of(cluster), "whole", 16)
    n, rate = 100000, 0.001
    parts.reserve(rate, n)
    names = items("item-", n)
    added = sum(sum(parts.add(names[i:i + 5000])) for i in range(0, n, 5000))
    assert n * (1 - 2 * rate) < added <= n, added
    assert sum(parts.add(names[:5000])) == 0 and parts.info()["ITEMS"] == added
    for i in range(0, n, 5000):
        assert parts.exists(names[i:i + 5000]) == [1] * 5000
    wrong = sum(sum(parts.exists(items("other-", 5000, i))) for i in range(0, n, 5000))
    assert wrong / n < rate * 1.3, wrong
    sizes = [node("DBSIZE") for node in cluster.primaries()]
    assert sorted(sizes) in ([5, 5, 6], [4, 6, 6]), sizes
    print(f"      {wrong} false positives of {n}")


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
