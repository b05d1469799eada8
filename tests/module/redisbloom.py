#!/usr/bin/env python3
"""RedisBloom's filters between a real engine and the daemon. The engine keeps the recorded values of RedisBloom
(redisbloom_values.c); it does not know what they mean, but all that stands around a value is its own: RESTORE and DUMP with
checksums and compressed strings, MIGRATE, RDB files."""
import json
import os
import subprocess
import sys

from engines import Daemon, Engine, Error, run

GOLDEN = os.environ["BLOOMERY_GOLDEN"]
VALUES = os.environ["BLOOMERY_REDISBLOOM_VALUES"]
TOOL = os.environ["BLOOMERY_TOOL"]


def folders():
    for parent, _, files in os.walk(GOLDEN):
        if "dump.bin" in files:
            yield os.path.relpath(parent, GOLDEN)


FOLDERS = sorted(folders())


def dump_of(folder):
    with open(os.path.join(GOLDEN, folder, "dump.bin"), "rb") as file:
        return file.read()


def rows(folder, table):
    with open(os.path.join(GOLDEN, folder, table), encoding="ascii") as file:
        for line in file:
            if not line.startswith("#"):
                item, answer = line.rstrip("\n").split("\t")
                yield bytes.fromhex(item), answer


def engine_with_values(*settings):
    """RedisBloom's dumps state the RDB version of their engine, and this engine refuses a newer one: they go through the
    daemon, whose dumps state an old version."""
    engine, daemon = Engine("--loadmodule", VALUES, *settings), Daemon()
    for folder in FOLDERS:
        assert daemon("RESTORE", folder, "0", dump_of(folder)) == "OK"
        assert engine("RESTORE", folder, "0", daemon("DUMP", folder)) == "OK"
    return engine


def answers_as_recorded(daemon, folder, name):
    probes = list(rows(folder, "probes.tsv"))
    answers = daemon("BF.MEXISTS", name, *(item for item, _ in probes))
    assert answers == [int(answer) for _, answer in probes], (folder, name)
    for item, answer in rows(folder, "more.tsv"):
        got = daemon.try_call("BF.ADD", name, item)
        assert isinstance(got, Error) if answer.startswith("ERR") else got == int(answer), (folder, item, got, answer)
    with open(os.path.join(GOLDEN, folder, "meta.json"), encoding="ascii") as file:
        after = json.load(file)["info_after_more"]
    assert daemon("BF.CARD", name) == after["Number of items inserted"]


def test_dumps_are_taken_by_an_engine_and_come_back():
    for compression in ("yes", "no"):
        engine, daemon = engine_with_values("--rdbcompression", compression), Daemon()
        for folder in FOLDERS:
            assert daemon("RESTORE", folder, "0", engine("DUMP", folder)) == "OK"
            answers_as_recorded(daemon, folder, folder)


def test_an_engine_migrates_to_the_daemon():
    for password in (None, "secret"):
        engine = engine_with_values()
        daemon = Daemon()
        if password:
            daemon("CONFIG", "SET", "requirepass", password)
            refused = engine.try_call("MIGRATE", "127.0.0.1", daemon.port, FOLDERS[0], "0", "10000")
            assert isinstance(refused, Error) and "NOAUTH" in str(refused), refused
        engine("PEXPIRE", FOLDERS[0], "500000")
        auth = ["AUTH", password] if password else []
        assert engine("MIGRATE", "127.0.0.1", daemon.port, "", "0", "10000", *auth, "KEYS", *FOLDERS) == "OK"
        assert engine("DBSIZE") == 0 and daemon("DBSIZE") == len(FOLDERS)
        assert 0 < daemon("PTTL", FOLDERS[0]) <= 500000 and daemon("PTTL", FOLDERS[1]) == -1
        for folder in FOLDERS:
            answers_as_recorded(daemon, folder, folder)


def test_migrate_says_what_is_no_filter():
    engine, daemon = Engine("--loadmodule", VALUES), Daemon()
    engine("RPUSH", "list", "a", "b")
    refused = engine.try_call("MIGRATE", "127.0.0.1", daemon.port, "list", "0", "10000")
    assert isinstance(refused, Error) and "the value is a list, not a Bloom filter" in str(refused), refused
    assert engine("LLEN", "list") == 2 and daemon("DBSIZE") == 0


def many_kinds(engine):
    """Values of every type and encoding of this engine, with a filter behind each, which a misread value would lose."""
    number = "12345678901234567890"
    engine("SET", "int8", "-7"), engine("SET", "int16", "30000"), engine("SET", "int32", "-2000000000")
    engine("SET", "int64", number), engine("SET", "long", "ab" * 40000), engine("SET", "text-empty", "")
    engine("SET", "ttl", "x", "PX", "9000000")
    for size in (3, 2000):
        engine("RPUSH", f"list{size}", *range(size)), engine("SADD", f"set{size}", *(f"m{i}" for i in range(size)))
        engine("SADD", f"intset{size}", *range(size))
        engine("HSET", f"hash{size}", *(f"{i}" for i in range(2 * size)))
        engine("ZADD", f"zset{size}", *(word for i in range(size) for word in (i / 7 - 50, f"m{i}")))
    engine("RPUSH", "list-long", "x" * 100000, "y"), engine("ZADD", "zset-inf", "inf", "a", "-inf", "b")
    engine("PFADD", "hll", *range(1000)), engine("GEOADD", "geo", "13.4", "52.5", "berlin")
    for i in range(300):
        engine("XADD", "stream", f"{i + 1}-0", "field", i)
    engine("XADD", "stream-empty", "1-0", "a", "b"), engine("XDEL", "stream-empty", "1-0")
    engine("XGROUP", "CREATE", "stream", "group", "0"), engine("XREADGROUP", "GROUP", "group", "me", "COUNT", "20",
                                                               "STREAMS", "stream", ">")
    engine("XACK", "stream", "group", "1-0"), engine("XGROUP", "CREATECONSUMER", "stream", "group", "idle")
    engine("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function(k, a) return 1 end)")


def imported(engine, *settings):
    """The daemon with the filters that the tool has imported from the engine's RDB file."""
    data, path = os.path.join(engine.directory, "imported"), os.path.join(engine.directory, "dump.rdb")
    engine("SAVE")
    told = subprocess.run([TOOL, "import", "--rdb", path, "--json", *settings, data], check=True, text=True,
                          capture_output=True).stdout
    return Daemon("--dir", data), json.loads(told)


def test_an_rdb_file_with_everything_is_imported():
    for compression in ("yes", "no"):
        for policy in ("noeviction", "allkeys-lfu", "allkeys-lru"):  # these have frequencies and idle times in the file
            engine = engine_with_values("--rdbcompression", compression, "--maxmemory-policy", policy)
            many_kinds(engine)
            engine("PEXPIRE", FOLDERS[0], "500000")
            keys = engine("DBSIZE")
            daemon, told = imported(engine)
            assert told["keys"] == keys and sum(told["others"].values()) == keys - len(FOLDERS), told
            assert daemon("DBSIZE") == len(FOLDERS) and 0 < daemon("PTTL", FOLDERS[0]) <= 500000
            for folder in FOLDERS:
                answers_as_recorded(daemon, folder, folder)


def test_ziplists_and_small_limits():
    """Other encodings of the same types."""
    engine = engine_with_values("--list-max-listpack-size", "-1", "--hash-max-listpack-entries", "0",
                                "--zset-max-listpack-entries", "0", "--set-max-intset-entries", "0",
                                "--stream-node-max-entries", "10", "--rdbchecksum", "no")
    many_kinds(engine)
    keys = engine("DBSIZE")
    daemon, told = imported(engine)
    assert told["keys"] == keys and told["checksum"] is False and daemon("DBSIZE") == len(FOLDERS)


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
