#!/usr/bin/env python3
"""A session of redis-py (the one Debian ships) with its bf() helpers, as its users write it. See with_daemon.py."""
import functools
import re
import sys
import threading
import time

import redis
import redis.cluster
from redis.exceptions import AuthenticationError, BusyLoadingError, ConnectionError, ResponseError, WatchError
from redis.utils import HIREDIS_AVAILABLE

from session import AUTH_PORT, CLUSTER_PORT, PASSWORD, PORT, SCHEME, TLS, claims_of, equal, holds, raises, run, until


Redis = functools.partial(redis.Redis, **TLS)


def fresh(**kwargs):
    client = Redis(port=PORT, **kwargs)
    client.flushall()
    return client


def dump(client, key):
    """All chunks of a filter, by the loop of the documentation."""
    chunks, position = [], 0
    while True:
        # The helper refuses to run with hiredis's parser; the command itself does not care.
        position, data = (client.execute_command("BF.SCANDUMP", key, position) if HIREDIS_AVAILABLE
                          else client.bf().scandump(key, position))
        if position == 0:
            return chunks
        chunks.append((position, data))


def dict_of(pairs):
    return dict(zip(pairs[0::2], pairs[1::2]))


# ---- connecting ----

def test_connects_with_and_without_a_password():
    equal(Redis(port=PORT).ping(), True)
    raises(AuthenticationError, "Authentication required", Redis(port=AUTH_PORT).ping)
    equal(Redis(port=AUTH_PORT, password=PASSWORD).ping(), True)
    equal(Redis(port=AUTH_PORT, username="default", password=PASSWORD).ping(), True)
    # This redis-py takes WRONGPASS for an ordinary error.
    raises(ResponseError, "WRONGPASS invalid username-password pair", Redis(port=AUTH_PORT, password="no").ping)
    raises(ResponseError, "WRONGPASS invalid username-password pair",
           Redis(port=AUTH_PORT, username="bob", password=PASSWORD).ping)
    client = redis.Redis.from_url(f"{SCHEME}://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{AUTH_PORT}/0",
                                  **{name: value for name, value in TLS.items() if name != "ssl"})
    equal(client.bf().add("f", "a"), 1)
    raises(ResponseError, "DB index is out of range", Redis(port=PORT, db=16).ping)


def test_what_a_connection_says_of_itself():
    client = Redis(port=PORT, client_name="crawler-7", single_connection_client=True)
    equal(client.client_getname(), "crawler-7")
    me = client.client_info()
    equal(me["name"], "crawler-7")
    equal(me["id"], client.client_id())
    holds(str(me["id"]) in [entry["id"] for entry in client.client_list()], "CLIENT LIST has this connection")
    equal(client.client_setname("renamed"), True)
    equal([entry["name"] for entry in client.client_list(client_id=[str(me["id"])])], ["renamed"])
    equal(client.echo("caf\u00e9"), "caf\u00e9".encode())


def test_health_checks_and_many_connections():
    client = Redis(port=PORT, health_check_interval=1, socket_timeout=60, socket_keepalive=True)
    errors = []

    def work(number):
        try:
            for i in range(50):
                client.bf().add("many", f"{number}-{i}")
        except Exception as error:
            errors.append(error)

    client.flushall()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(errors, [])
    holds(all(client.bf().mexists("many", *[f"{n}-{i}" for n in range(8) for i in range(50)])), "every add is found")


# ---- the helpers ----

def test_reserve_add_exists():
    bf = fresh().bf()
    equal(bf.create("seen", 0.001, 1000), True)
    equal(bf.add("seen", "a"), 1)
    equal(bf.add("seen", "a"), 0)
    equal(bf.exists("seen", "a"), 1)
    equal(bf.exists("seen", "b"), 0)
    equal(bf.madd("seen", "a", "b", b"\x00\xff\r\n"), [0, 1, 1])
    equal(bf.mexists("seen", "a", "b", b"\x00\xff\r\n", "c"), [1, 1, 1, 0])
    equal(bf.exists("missing", "a"), 0)
    equal(bf.mexists("missing", "a", "b"), [0, 0])
    equal(bf.add("created", 17), 1)
    equal(bf.exists("created", "17"), 1)
    equal(bf.create("fixed", 0.01, 10, noScale=True), True)
    equal(bf.create("four", 0.01, 10, expansion=4), True)
    equal(bf.info("four").expansionRate, 4)


def test_insert_with_options():
    bf = fresh().bf()
    equal(bf.insert("i", ["x", "y"]), [1, 1])
    equal(bf.insert("i", ["x", "z"], noCreate=True), [0, 1])
    raises(ResponseError, "not found", bf.insert, "none", ["x"], noCreate=True)
    equal(bf.insert("sized", ["x"], capacity=5000, error=0.0001, expansion=3), [1])
    info = bf.info("sized")
    equal((info.capacity, info.expansionRate, info.insertedNum), (5000, 3, 1))
    equal(bf.insert("fixed", ["x"], capacity=20, noScale=True), [1])
    equal(bf.info("fixed").expansionRate, None)


def test_info_and_card():
    client = fresh(decode_responses=True)
    client.bf().create("f", 0.01, 100)
    client.bf().madd("f", *range(350))
    info = client.bf().info("f")
    holds(info.capacity > 100 and info.filterNum >= 2, "a filter that grew has more layers and more room")
    holds(340 <= info.insertedNum <= 350 and info.size > 350, "the items are counted, and take space")
    equal(client.execute_command("BF.CARD", "f"), info.insertedNum)
    equal(client.execute_command("BF.CARD", "missing"), 0)
    raises(ResponseError, "not found", client.bf().info, "missing")


def test_errors():
    client = fresh()
    bf = client.bf()
    bf.create("f", 0.01, 100)
    raises(ResponseError, "item exists", bf.create, "f", 0.01, 100)
    raises(ResponseError, "error rate", bf.create, "g", 2, 100)
    raises(ResponseError, "capacity", bf.create, "g", 0.01, 0)
    raises(ResponseError, "wrong number of arguments for 'bf.add' command", client.execute_command, "BF.ADD", "f")
    raises(ResponseError, "unknown command", client.set, "key", "value")
    raises(ResponseError, "unknown command", client.topk().add, "key", "value")
    bf.create("full", 0.01, 3, noScale=True)
    replies = bf.madd("full", *range(5))
    equal(replies[:3], [1, 1, 1])
    equal(len(replies), 4)
    holds(isinstance(replies[3], ResponseError) and "full" in str(replies[3]), f"the end of {replies}")
    raises(ResponseError, "full", bf.add, "full", "more")
    equal(bf.add("full", 0), 0)


# ---- pipelines and transactions ----

def test_pipelines():
    client = fresh()
    for transaction in (False, True):
        key = f"p{transaction}"
        pipeline = client.pipeline(transaction=transaction)
        for item in ("a", "b", "a"):
            pipeline.execute_command("BF.ADD", key, item)
        pipeline.execute_command("BF.MEXISTS", key, "a", "z").exists(key).pexpire(key, 100000).ttl(key)
        equal(pipeline.execute(), [1, 1, 0, [1, 0], 1, True, 100])
        pipeline = client.pipeline(transaction=transaction)
        pipeline.bf().add(key, "c")
        pipeline.bf().madd(key, "c", "d")
        pipeline.bf().insert(key, ["d", "e"])
        pipeline.bf().exists(key, "e")
        equal(pipeline.execute(), [1, [0, 1], [0, 1], 1])
        pipeline = client.pipeline(transaction=transaction)
        for i in range(2000):
            pipeline.execute_command("BF.ADD", key + "long", i)
        equal(len(pipeline.execute()), 2000)


def test_errors_in_pipelines():
    client = fresh()
    for transaction in (False, True):
        pipeline = client.pipeline(transaction=transaction)
        pipeline.execute_command("BF.ADD", "f", "a")
        pipeline.execute_command("BF.RESERVE", "f", 0.01, 100)
        pipeline.execute_command("BF.EXISTS", "f", "a")
        got = pipeline.execute(raise_on_error=False)
        holds(isinstance(got[1], ResponseError) and "item exists" in str(got[1]), f"{got}")
        equal(got[2], 1)
        raises(ResponseError, "Command # 2", pipeline.execute_command("BF.ADD", "f", "a").execute_command(
            "BF.RESERVE", "f", 0.01, 100).execute)
    # A command that cannot be queued fails the whole transaction, and no part of it runs.
    pipeline = client.pipeline(transaction=True)
    pipeline.execute_command("BF.ADD", "f", "never").execute_command("BF.ADD", "f")
    raises(ResponseError, "wrong number of arguments", pipeline.execute)
    equal(client.bf().exists("f", "never"), 0)
    equal(client.ping(), True)


def test_optimistic_transactions():
    client, other = fresh(), Redis(port=PORT)
    client.bf().add("w", "a")
    with client.pipeline() as pipeline:
        pipeline.watch("w")
        equal(pipeline.execute_command("BF.EXISTS", "w", "b"), 0)
        other.bf().add("w", "b")
        pipeline.multi()
        pipeline.execute_command("BF.ADD", "w", "c")
        raises(WatchError, "Watched variable changed", pipeline.execute)
    equal(client.bf().exists("w", "c"), 0)
    attempts = []

    def add_unless_there(pipeline):
        attempts.append(pipeline.execute_command("BF.EXISTS", "w", "d"))
        if len(attempts) == 1:
            other.bf().add("w", "e")
        pipeline.multi()
        pipeline.execute_command("BF.ADD", "w", "d")

    equal(client.transaction(add_unless_there, "w"), [1])
    equal(attempts, [0, 0])


# ---- dump and load ----

def test_dump_and_load():
    client = fresh()
    bf = client.bf()
    items = [f"https://example.org/{i}" for i in range(3000)]
    bf.create("small", 0.01, 100)
    bf.madd("small", *items)  # several layers
    bf.create("large", 0.0001, 3000000)
    bf.madd("large", *items)
    bf.create("empty", 0.01, 1000)
    for key in ("small", "large", "empty"):
        chunks = dump(client, key)
        holds(chunks and max(len(data) for _, data in chunks) <= 16 << 20, "chunks of at most 16 MiB")
        for position, data in chunks:
            equal(bf.loadchunk("copy", position, data), b"OK")
        equal(vars(bf.info("copy")), vars(bf.info(key)))
        equal(bf.mexists("copy", *items), bf.mexists(key, *items))
        equal(client.execute_command("BF.DEBUG", "copy"), client.execute_command("BF.DEBUG", key))
        if key != "empty":
            equal(bf.add("copy", items[0]), 0)
        client.delete("copy")
    lines = [line.decode() for line in client.execute_command("BF.DEBUG", "small")]
    equal(lines[0], f"size:{bf.info('small').insertedNum}")
    equal(len(lines), bf.info("small").filterNum + 1)
    holds(re.fullmatch(r"bytes:\d+ bits:\d+ hashes:\d+ hashwidth:64 capacity:100 size:100 ratio:0\.005", lines[1]), lines)
    raises(ResponseError, "not found", client.execute_command, "BF.DEBUG", "missing")
    raises(ResponseError, "not found", dump, client, "missing")
    raises(ResponseError, "bad data", bf.loadchunk, "garbage", 1, b"garbage")
    equal(client.exists("garbage"), 0)


def test_a_filter_under_load_is_not_there():
    client = fresh()
    bf = client.bf()
    bf.madd("f", *range(1000))
    chunks = dump(client, "f")
    for position, data in chunks[:-1]:
        equal(client.exists("copy"), 0)
        bf.loadchunk("copy", position, data)
    equal(client.exists("copy"), 0)
    position, data = chunks[-1]
    raises(ResponseError, "", bf.loadchunk, "copy", position, data[:-1] + bytes([data[-1] ^ 1]))
    equal(client.exists("copy"), 0)


def test_dump_restore_copy():
    client = fresh()
    client.bf().madd("f", *range(500))
    payload = client.dump("f")
    equal(client.restore("g", 0, payload), b"OK")
    equal(client.restore("h", 100000, payload), b"OK")
    holds(0 < client.pttl("h") <= 100000, "RESTORE sets the time to live")
    raises(ResponseError, "BUSYKEY", client.restore, "g", 0, payload)
    equal(client.restore("g", 0, payload, replace=True), b"OK")
    raises(ResponseError, "DUMP payload version or checksum are wrong", client.restore, "x", 0,
           payload[:-1] + bytes([payload[-1] ^ 1]))
    equal(client.copy("f", "c"), True)
    equal(client.copy("f", "c"), False)
    equal(client.copy("f", "c", replace=True), True)
    for key in ("g", "h", "c"):
        equal(client.bf().mexists(key, *range(500)), [1] * 500)
        equal(vars(client.bf().info(key)), vars(client.bf().info("f")))
    equal(client.dump("missing"), None)


# ---- keys ----

def test_keys():
    client = fresh(decode_responses=True)
    names = [f"user:{i}" for i in range(300)]
    for name in names:
        client.bf().add(name, "x")
    equal(client.dbsize(), 300)
    equal(sorted(client.scan_iter()), sorted(names))
    equal(sorted(client.scan_iter(match="user:1*", count=20)), sorted(n for n in names if n.startswith("user:1")))
    equal(sorted(client.scan_iter(_type="MBbloom--")), sorted(names))
    equal(list(client.scan_iter(_type="string")), [])
    equal(sorted(client.keys("user:?")), [f"user:{i}" for i in range(10)])
    holds(client.randomkey() in names, "RANDOMKEY is one of the keys")
    equal(client.type("user:1"), "MBbloom--")
    equal(client.type("missing"), "none")
    equal(client.exists("user:1", "user:1", "missing"), 2)
    equal(client.touch("user:1", "missing"), 1)
    equal(client.rename("user:1", "renamed"), True)
    equal(client.renamenx("renamed", "user:2"), False)
    equal(client.bf().exists("renamed", "x"), 1)
    raises(ResponseError, "no such key", client.rename, "missing", "y")
    holds(client.memory_usage("renamed") > 100, "MEMORY USAGE is a number of bytes")
    equal(client.memory_usage("missing"), None)
    equal(client.object("encoding", "renamed"), "raw")
    holds(client.object("idletime", "renamed") >= 0, "OBJECT IDLETIME is a number of seconds")
    equal(client.object("refcount", "renamed"), 1)
    equal(client.delete("renamed", "user:2", "missing"), 2)
    equal(client.unlink("user:3"), 1)
    equal("user:4" in client, True)
    equal("user:3" in client, False)
    equal(client.flushdb(asynchronous=True), True)
    equal(client.dbsize(), 0)


def test_expiry():
    client = fresh()
    client.bf().add("f", "a")
    equal(client.ttl("f"), -1)
    equal(client.ttl("missing"), -2)
    equal(client.expire("f", 100), True)
    equal(client.expire("f", 200, nx=True), False)
    equal(client.expire("f", 200, gt=True), True)
    holds(140 <= client.ttl("f") <= 200 and client.pttl("f") <= 200000, "TTL and PTTL count down")
    now = int(client.time()[0])
    equal(client.expireat("f", now + 1000), True)
    equal(client.expiretime("f"), now + 1000)
    equal(client.pexpireat("f", (now + 2000) * 1000), True)
    equal(client.pexpiretime("f"), (now + 2000) * 1000)
    equal(client.persist("f"), True)
    equal(client.persist("f"), False)
    equal(client.ttl("f"), -1)
    equal(client.bf().exists("f", "a"), 1)
    equal(client.pexpire("f", 20), True)
    until(lambda: client.exists("f") == 0, "the filter expires")
    equal(client.bf().exists("f", "a"), 0)
    equal(client.bf().add("f", "a"), 1)
    equal(client.ttl("f"), -1)
    equal(client.expire("f", -1), True)
    equal(client.exists("f"), 0)
    equal(client.expire("f", 10), False)


# ---- publish, subscribe, events, monitor ----

def messages(pubsub, n):
    got = []
    until(lambda: got.extend(filter(None, [pubsub.get_message(timeout=0.1)])) or len(got) >= n, f"{n} messages")
    return got


def test_publish_and_subscribe():
    client = fresh(decode_responses=True)
    pubsub = client.pubsub()
    pubsub.subscribe("news")
    pubsub.psubscribe("n*s")
    equal([message["type"] for message in messages(pubsub, 2)], ["subscribe", "psubscribe"])
    equal(client.publish("news", "hello"), 2)
    equal(sorted((m["type"], m["channel"], m["data"]) for m in messages(pubsub, 2)),
          [("message", "news", "hello"), ("pmessage", "news", "hello")])
    equal(client.pubsub_channels(), ["news"])
    equal(client.pubsub_numsub("news", "other"), [("news", 1), ("other", 0)])
    equal(client.pubsub_numpat(), 1)
    pubsub.ping()
    equal(messages(pubsub, 1)[0]["type"], "pong")
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    equal([message["type"] for message in messages(pubsub, 2)], ["unsubscribe", "punsubscribe"])
    equal(client.publish("news", "nobody"), 0)
    pubsub.close()


def test_events_of_keys():
    client = fresh(decode_responses=True)
    before = client.config_get("notify-keyspace-events")["notify-keyspace-events"]
    client.config_set("notify-keyspace-events", "KEA")
    pubsub = client.pubsub()
    pubsub.psubscribe("__keyevent@0__:*")
    messages(pubsub, 1)
    client.bf().add("f", "a")
    client.rename("f", "g")
    client.pexpire("g", 1)
    client.bf().add("h", "a")
    client.delete("h")
    seen = []

    def all_there():
        message = pubsub.get_message(timeout=0.1)
        if message:
            seen.append((message["channel"].split(":", 1)[1], message["data"]))
        return {("rename_from", "f"), ("rename_to", "g"), ("expired", "g"), ("del", "h")} <= set(seen)

    until(all_there, "the events of renaming, expiry and deletion are published")
    pubsub.close()
    client.config_set("notify-keyspace-events", before)


def test_monitor():
    client = fresh(decode_responses=True)
    with client.monitor() as monitor:
        Redis(port=PORT).bf().add("f", 'a "quoted" item')
        for seen in monitor.listen():
            if seen["command"].startswith("BF.ADD"):
                equal(seen["command"], 'BF.ADD f a "quoted" item')
                break


# ---- administration ----

def test_info():
    client = fresh()
    everything = client.info("everything")
    for field in ("redis_version", "tcp_port", "uptime_in_seconds", "connected_clients", "used_memory",
                  "used_memory_human", "maxmemory", "loading", "rdb_last_save_time", "rdb_last_bgsave_status",
                  "aof_enabled",
                  "total_connections_received", "total_commands_processed", "instantaneous_ops_per_sec", "expired_keys",
                  "keyspace_hits", "keyspace_misses", "role", "connected_slaves", "used_cpu_sys", "used_cpu_user",
                  "cluster_enabled"):
        holds(field in everything, f"INFO has {field}")
    equal(everything["redis_mode"], "standalone")
    equal(everything["tcp_port"], PORT)
    client.bf().add("f", "a")
    client.bf().add("g", "a")
    client.expire("g", 1000)
    keyspace = client.info("keyspace")["db0"]
    equal((keyspace["keys"], keyspace["expires"]), (2, 1))
    client.config_resetstat()
    client.bf().add("f", "b")
    stats = client.info("commandstats")
    equal(stats["cmdstat_bf.add"]["calls"], 1)
    holds(stats["cmdstat_bf.add"]["usec"] >= 0, "the times of commands are counted")
    raises(ResponseError, "not found", client.bf().info, "missing")
    equal(client.info("errorstats"), {"errorstat_ERR": "count=1"})
    equal([module[b"name"] for module in client.module_list()], [b"bf"])


def test_administration():
    client = fresh(decode_responses=True)
    equal(client.config_get("max*")["maxmemory"], "0")
    equal(client.config_set("slowlog-log-slower-than", 0), True)
    client.bf().add("f", "a")
    holds(any(b"BF.ADD" in entry["command"] for entry in client.slowlog_get()), "the slow log has it")
    holds(client.slowlog_len() >= 1, "SLOWLOG LEN")
    equal(client.slowlog_reset(), True)
    client.config_set("slowlog-log-slower-than", 10000)
    equal(client.command_count(), len(client.command()))
    holds("bf.add" in [name.lower() for name in client.command_list()], "COMMAND LIST")
    equal(client.command_getkeys("BF.MADD", "f", "x", "y"), ["f"])
    equal(client.role()[0], "master")
    equal(client.wait(0, 10), 0)
    before = client.lastsave()
    equal(client.save(), True)
    holds(client.lastsave() >= before, "LASTSAVE")
    holds(client.bgsave(), "BGSAVE begins")
    until(lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 0, "it ends")
    equal(client.acl_whoami(), "default")
    equal(client.swapdb(0, 1), True)
    equal(client.swapdb(1, 0), True)


def test_databases():
    one, other = fresh(), Redis(port=PORT, db=3)
    equal(one.bf().add("f", "a"), 1)
    equal(other.exists("f"), 0)
    equal(one.move("f", 3), True)
    equal(other.bf().exists("f", "a"), 1)
    equal(one.swapdb(0, 3), True)
    equal([one.dbsize(), other.dbsize()], [1, 0])
    equal(list(one.info("keyspace")), ["db0"])
    equal(one.flushdb(), True)


def test_a_cluster_of_one_node():
    cluster = redis.cluster.RedisCluster(host="127.0.0.1", port=CLUSTER_PORT, **TLS)
    equal(cluster.flushall(), True)
    equal([node.port for node in cluster.get_primaries()], [CLUSTER_PORT])
    equal(cluster.keyslot("{a}b"), cluster.execute_command("CLUSTER KEYSLOT", "{a}b", target_nodes="random"))
    for i in range(100):
        equal(cluster.execute_command("BF.ADD", f"f{i}", "a"), 1)
    equal([cluster.execute_command("BF.EXISTS", f"f{i}", "a") for i in range(100)], [1] * 100)
    equal(cluster.dbsize(), 100)
    equal(cluster.delete("f1", "f2", "f3"), 3)
    pipeline = cluster.pipeline()
    for i in range(10):
        pipeline.execute_command("BF.ADD", f"p{i}", "x")
    equal(pipeline.execute(), [1] * 10)
    equal(cluster.cluster_info()["cluster_state"], "ok")
    raises(ResponseError, "SELECT is not allowed in cluster mode", Redis(port=CLUSTER_PORT, db=1).ping)


def test_what_a_metrics_exporter_polls():
    client = fresh(client_name="redis_exporter", decode_responses=True)
    client.bf().add("f", "a")
    settings = client.execute_command("CONFIG GET", "*")
    holds({"maxmemory", "maxclients", "appendonly", "save"} <= set(settings), "CONFIG GET * has what dashboards show")
    for section in ("ALL", "everything", "default"):
        holds("db0" in client.info(section), f"INFO {section} has the keyspace")
    equal(client.execute_command("LATENCY LATEST"), [])
    holds("bf.add" in dict_of(client.execute_command("LATENCY HISTOGRAM")), "LATENCY HISTOGRAM has what ran")
    equal(type(client.execute_command("SLOWLOG LEN")), int)
    equal(type(client.slowlog_get(1)), list)
    for entry in client.client_list():
        wanted = {"id", "addr", "name", "age", "idle", "flags", "db", "sub", "omem", "cmd", "user", "resp"}
        holds(wanted <= set(entry), f"{entry}")
    raises(ResponseError, "", client.execute_command, "CLUSTER INFO")


def test_what_a_browser_of_keys_asks():
    client = fresh(client_name="redisinsight-browser", decode_responses=True)
    for i in range(60):
        client.bf().add(f"users:{i}", "a")
    client.expire("users:1", 1000)
    equal(client.dbsize(), 60)
    position, keys = 0, []
    while True:
        position, some = client.scan(position, match="users:*", count=25, _type="MBbloom--")
        keys += some
        if position == 0:
            break
    equal(sorted(keys), sorted(f"users:{i}" for i in range(60)))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key).ttl(key).memory_usage(key, samples=0)
    replies = pipeline.execute()
    for key, kind, ttl, used in zip(keys, replies[0::3], replies[1::3], replies[2::3]):
        equal(kind, "MBbloom--")
        holds(990 < ttl <= 1000 if key == "users:1" else ttl == -1, f"TTL {key}: {ttl}")
        holds(0 < used < 1000, f"MEMORY USAGE {key}: {used}")
    holds("bf" in [module["name"] for module in client.module_list()], "MODULE LIST")
    equal(client.bf().info("users:1").insertedNum, 1)
    equal(client.object("encoding", "users:1"), "raw")


# ---- connections that end or pause ----

def test_a_connection_that_was_killed_is_replaced():
    client = fresh(single_connection_client=True)
    number = client.client_id()
    equal(Redis(port=PORT).client_kill_filter(_id=str(number)), 1)
    until(lambda: survives(client.ping), "the client connects again")
    holds(client.client_id() > number, "as another one")


def test_clients_can_be_held():
    client = fresh()
    Redis(port=PORT).client_pause(100, all=False)
    equal(client.bf().exists("f", "a"), 0)  # reads continue
    equal(client.bf().add("f", "a"), 1)  # writes wait
    equal(client.client_unpause(), b"OK")


def survives(function):
    try:
        return function()
    except (ConnectionError, BusyLoadingError):
        return False


def test_a_restart_is_survived():
    client = fresh()
    client.bf().madd("f", *range(1000))
    client.bf().add("g", "a")
    client.expire("g", 1000)
    client.bf().add("short", "a")
    client.pexpire("short", 500)
    started = client.info("server")["run_id"]
    client.shutdown(save=True)
    until(lambda: survives(lambda: client.info("server")["run_id"] != started), "the client connects to the next daemon")
    until(lambda: survives(client.ping), "it has loaded")
    equal(client.bf().mexists("f", *range(1000)), [1] * 1000)
    equal(client.bf().info("f").insertedNum + client.execute_command("BF.CARD", "g"),
          client.execute_command("BF.CARD", "f") + 1)
    holds(900 < client.ttl("g") <= 1000, "expiry survives")
    until(lambda: client.exists("short") == 0, "what was to expire does")


if __name__ == "__main__":
    started_at = time.monotonic()
    status = run(f"redis-py {redis.__version__}", claims_of(sys.modules["__main__"]))
    print(f"{time.monotonic() - started_at:.1f} s")
    sys.exit(status)
