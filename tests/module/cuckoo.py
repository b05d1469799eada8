#!/usr/bin/env python3
"""Cuckoo filters in an engine: replicas and the log have the same slots as the primary under any settings; WATCH, events
and access; with `take-over yes` RedisBloom's values, files and commands."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from engines import (Daemon, Engine, Error, calls, chunks_of, commands_of, encoded, in_sync, items, replica_of, rewritten, run,
                     wait_until)
from recorded_rdb import crc64, of_version, without_types

RECORDED = os.environ.get("BLOOMERY_CUCKOO_RECORDINGS")  # unset: they are not here
# Debian's python3-redis is for Debian's Python.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
TOOL = os.environ.get("BLOOMERY_TOOL", os.path.abspath("build/dev/tools/bloomery"))
TAKE_OVER = ("take-over", "yes")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
OTHER = ("cf-initial-size", "7", "cf-bucket-size", "3", "cf-max-iterations", "1", "cf-expansion-factor", "0",
         "cf-max-expansions", "1", "bf-auto-create", "no", "bf-max-filter-bytes", "1")


def cf_chunks(server, key):
    return chunks_of(server, key, "CF.SCANDUMP")


def test_the_recordings_of_redisbloom():
    """Recordings played, restored, copied, loaded in chunks, with restarts from the log and from a save; hostile bytes."""
    if not RECORDED:
        return
    engine = Engine("--appendonly", "yes", "--propagation-error-behavior", "panic", module=TAKE_OVER)
    here = os.path.dirname(os.path.abspath(__file__))
    with subprocess.Popen([PYTHON, os.path.join(here, "..", "clients", "cuckoo_recordings.py"), RECORDED],
                          env=dict(os.environ, BLOOMERY_PORT=str(engine.port)), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as player:
        while player.poll() is None:
            try:
                assert engine.process.wait(timeout=0.1) == 0, engine.output()[-4000:]
            except subprocess.TimeoutExpired:
                continue
            engine.start()
        said = player.stdout.read().decode()
        print("      " + said.strip().split("\n")[-1])
        assert player.returncode == 0, said[-4000:]


def test_a_replica_with_other_settings_has_the_same_slots():
    """Also of names that CF.RESERVE takes for options, and of filters that a limit has refused."""
    primary = Engine(*ALWAYS, module=("cf-initial-size", "16", "cf-max-expansions", "5"))
    replica = replica_of(primary, *ALWAYS, module=OTHER)
    rng = random.Random(11)
    names = [f"k{i}" for i in range(8)] + ["expansion", "BUCKETSIZE", "MaxIterations"]
    for _ in range(5):
        batch = []
        for _ in range(500):
            key, item = rng.choice(names), f"i{rng.randrange(300)}"
            batch.append(rng.choice([
                ("CF.ADD", key, item), ("CF.ADDNX", key, item),
                ("CF.DEL", key, item), ("CF.DEL", key, item), ("CF.DEL", key, item),
                ("CF.INSERT", key, "ITEMS", *items("i", rng.randrange(1, 40), rng.randrange(300))),
                ("CF.INSERT", key, "CAPACITY", rng.randrange(4, 90), "ITEMS", item, item, item + "x"),
                ("CF.INSERTNX", key, "NOCREATE", "ITEMS", *items("i", rng.randrange(1, 40), rng.randrange(300))),
                ("CF.RESERVE", key, rng.randrange(10, 200), "BUCKETSIZE", rng.randrange(1, 6),
                 "MAXITERATIONS", rng.randrange(1, 30), "EXPANSION", rng.randrange(0, 5)),
                ("CF.RESERVE", key, rng.randrange(1, 200), "ERROR", rng.choice(["0.2", "0.02", "0.001"]), "EXPANSION",
                 rng.randrange(0, 5)),
                ("CF.INSERT", key, "CAPACITY", rng.randrange(1, 90), "ERROR", "0.005", "ITEMS", item, item + "x"),
                ("CF.COMPACT", key), ("DEL", key), ("COPY", key, rng.choice(names)),
                ("RENAME", key, rng.choice(names))]))
        replies = primary.connection.pipeline(batch)
        assert any(isinstance(reply, Error) for reply in replies)
        in_sync(primary, replica)
    there = [key for key in names if primary("EXISTS", key)]
    assert len(there) > 6 and max(dict(zip(info[::2], info[1::2]))["Number of filters"]
                                  for info in (primary("CF.INFO", key) for key in there)) > 3
    for key in there:
        assert primary("DUMP", key) == replica("DUMP", key), key
    digest = primary.digest()
    for engine in (primary, replica):
        engine("CONFIG", "SET", "bloomery.cf-max-iterations", "2")
    replica("REPLICAOF", "NO", "ONE")
    replica.arguments = replica.arguments[2:]
    for engine in (primary, replica):
        for preamble in (None, "no", "yes"):
            if preamble:
                engine("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
                rewritten(engine, "BGREWRITEAOF")
            engine.kill()
            engine.start()
            assert engine.digest() == digest, preamble


def test_a_default_that_no_reserve_can_say():
    primary = Engine(module=("cf-initial-size", "4", "cf-bucket-size", "200"))
    replica = replica_of(primary, module=OTHER)
    primary("CF.ADD", "f", "x")
    in_sync(primary, replica)
    assert primary("DUMP", "f") == replica("DUMP", "f")


def test_a_filter_whose_first_add_fails_is_made_on_replicas():
    primary = Engine(module=("cf-max-expansions", "1"))
    replica = replica_of(primary)
    for words in (("CF.ADD", "a", "x"), ("CF.INSERT", "b", "ITEMS", "x")):
        assert isinstance(primary.try_call(*words), Error), words
    in_sync(primary, replica)
    assert primary("EXISTS", "a", "b") == replica("EXISTS", "a", "b") == 2


def test_what_changes_nothing_is_told_to_nobody():
    primary = Engine()
    replica = replica_of(primary)
    primary("CF.INSERT", "f", "CAPACITY", "100", "ITEMS", *items("x", 40))
    primary("CF.RESERVE", "full", "2", "BUCKETSIZE", "1", "EXPANSION", "0", "MAXITERATIONS", "1")
    primary("CF.INSERT", "full", "ITEMS", *items("y", 9))
    primary("SET", "other", "x")
    header, chunk = cf_chunks(primary, "f")[:2]
    in_sync(primary, replica)
    before, other = calls(replica, "cf."), primary.connect()
    for words, changes in ((("CF.ADDNX", "f", "x1"), False), (("CF.INSERTNX", "f", "ITEMS", "x1", "x2"), False),
                           (("CF.DEL", "f", "nothing"), False), (("CF.DEL", "none", "x"), False),
                           (("CF.COMPACT", "f"), False),
                           (("CF.ADD", "full", "z"), False), (("CF.INSERT", "full", "ITEMS", "z", "z"), False),
                           (("CF.RESERVE", "f", "100"), False), (("CF.LOADCHUNK", "f", *header), False),
                           (("CF.LOADCHUNK", "f", *chunk), False), (("CF.EXISTS", "f", "x1"), False),
                           (("CF.COUNT", "f", "x1"), False), (("CF.INFO", "f"), False),
                           (("CF.SCANDUMP", "f", "0"), False), (("CF.ADD", "other", "x"), False),
                           (("CF.ADD", "f", "x1"), True), (("CF.ADDNX", "f", "new"), True),
                           (("CF.DEL", "f", "x1"), True), (("CF.COMPACT", "f"), True),
                           (("CF.INSERTNX", "f", "ITEMS", "x1", "new2"), True), (("CF.LOADCHUNK", "f", *chunk), True)):
        key = words[1]
        primary("WATCH", key)
        other.try_call(*words)
        primary("MULTI")
        primary("PING")
        assert (primary("EXEC") is None) == changes, words
        in_sync(primary, replica)
        since, before = before, calls(replica, "cf.")
        assert (since != before) == changes, (words, since, before)


def test_names_of_another_type():
    engine = Engine()
    engine("CF.ADD", "c", "x")
    engine("BF.ADD", "b", "x")
    engine("SET", "s", "x")
    for key in ("b", "s", "none"):
        assert engine("CF.EXISTS", key, "x") == engine("CF.COUNT", key, "x") == 0
        assert engine("CF.MEXISTS", key, "x", "y") == [0, 0]
        assert str(engine.try_call("CF.DEL", key, "x")) == "Not found"
        assert str(engine.try_call("CF.COMPACT", key)) == "Cuckoo filter was not found"
    for words in (("RESERVE", "9"), ("ADD", "x"), ("ADDNX", "x"), ("INSERT", "ITEMS", "x"),
                  ("INSERTNX", "ITEMS", "x"), ("INFO",), ("DEBUG",), ("SCANDUMP", "0"),
                  ("LOADCHUNK", "1", b"\0" * 38), ("LOADCHUNK", "5", "abcd")):
        for key in ("b", "s"):
            assert str(engine.try_call("CF." + words[0], key, *words[1:])).startswith("WRONGTYPE"), words
    assert engine("BF.EXISTS", "c", "x") == 0 and engine("BF.MEXISTS", "c", "x", "y") == [0, 0]
    for words in (("RESERVE", "0.1", "9"), ("ADD", "x"), ("MADD", "x"), ("INSERT", "ITEMS", "x"), ("INFO",),
                  ("CARD",), ("CLEAR",), ("DEBUG",), ("SCANDUMP", "0"), ("MERGE", "b")):
        assert str(engine.try_call("BF." + words[0], "c", *words[1:])).startswith("WRONGTYPE"), words
    assert str(engine.try_call("BF.MERGE", "b", "c")).startswith("WRONGTYPE")
    for words in (("INFO",), ("DEBUG",), ("SCANDUMP", "0"), ("LOADCHUNK", "5", "abcd"),
                  ("INSERT", "NOCREATE", "ITEMS", "x")):
        assert str(engine.try_call("CF." + words[0], "none", *words[1:])) == "ERR not found", words
    assert str(engine.try_call("CF.RESERVE", "c", "100")) == "ERR item exists"


def test_the_engines_commands():
    engine = Engine("--notify-keyspace-events", "KEA")
    listener = engine.connect()
    listener("PSUBSCRIBE", "__keyevent@0__:*o*.*")
    engine("CF.INSERT", "f", "CAPACITY", "64", "ITEMS", *items("x", 100))
    assert engine("TYPE", "f") == "bloomeryC" and engine("OBJECT", "ENCODING", "f") == b"raw"
    events = [listener.reply()[2].decode().split(":")[1] for _ in range(2)]
    assert events == ["bloom.reserve", "cuckoo.grow"], events
    assert engine("COPY", "f", "g") == 1 and engine("RESTORE", "h", "0", engine("DUMP", "f")) == "OK"
    assert engine("DUMP", "f") == engine("DUMP", "g") == engine("DUMP", "h")
    assert engine("DEBUG", "DIGEST-VALUE", "f") == engine("DEBUG", "DIGEST-VALUE", "h")
    engine("CF.DEL", "h", "x1")
    assert engine("DEBUG", "DIGEST-VALUE", "f") != engine("DEBUG", "DIGEST-VALUE", "h")
    digest = engine.digest()
    engine("DEBUG", "RELOAD")
    assert engine.digest() == digest
    documents = engine("COMMAND", "DOCS", "cf.reserve")
    assert dict(zip(documents[1][::2], documents[1][1::2]))[b"summary"] == b"Creates a new Cuckoo Filter"
    info = engine("COMMAND", "INFO", "cf.add", "cf.exists", "cf.loadchunk", "cf.compact")
    flags = [set(map(str, row[2])) for row in info]
    assert {"write", "denyoom"} <= flags[0] and "readonly" in flags[1]
    assert "denyoom" not in flags[2] and "write" in flags[3]
    assert engine("COMMAND", "GETKEYSANDFLAGS", "CF.EXISTS", "k", "x") == [[b"k", ["RO", "access"]]]
    assert engine("COMMAND", "GETKEYSANDFLAGS", "CF.COMPACT", "k") == [[b"k", ["RW", "access", "update"]]]
    if b"cuckoo" in engine("ACL", "CAT"):
        assert b"cf.add" in engine("ACL", "CAT", "cuckoo") and b"cf.add" not in engine("ACL", "CAT", "bloom")
    engine("ACL", "SETUSER", "reader", "on", "nopass", "%R~f", "+cf.exists", "+cf.add")
    reader = engine.connect()
    reader("AUTH", "reader", "x")
    assert reader("CF.EXISTS", "f", "x1") == 1
    for words in (("CF.ADD", "f", "x"), ("CF.EXISTS", "g", "x"), ("CF.DEL", "f", "x")):
        assert str(reader.try_call(*words)).startswith("NOPERM"), words
    target = Engine()
    assert engine("MIGRATE", "127.0.0.1", target.port, "f", "0", "10000") == "OK"
    assert target("CF.MEXISTS", "f", *items("x", 100)) == [1] * 100 and target("DUMP", "f") == engine("DUMP", "g")


def test_memory_is_the_engines():
    engine = Engine("--maxmemory", "20mb")
    before = int(engine.info("memory", "used_memory"))
    engine("CF.RESERVE", "f", "4194304")
    grown = int(engine.info("memory", "used_memory")) - before
    assert 4 << 20 <= grown < 5 << 20 and 4 << 20 <= engine("MEMORY", "USAGE", "f") < 5 << 20, grown
    headers = [struct.pack("<QQQQHHH", 0, buckets, 0, 1, 2, 20, 1) for buckets in (1 << 30, 1 << 39)]
    for words in (("CF.RESERVE", "g", "1000000000"), ("CF.INSERT", "g", "CAPACITY", "100000000", "ITEMS", "x"),
                  ("CF.LOADCHUNK", "g", "1", headers[0]), ("CF.LOADCHUNK", "g", "1", headers[1])):
        assert str(engine.try_call(*words)).startswith(("OOM", "ERR", "Couldn't create")), words
    assert engine("EXISTS", "g") == 0
    lazy = int(engine.info("memory", "lazyfreed_objects"))
    engine("UNLINK", "f")
    wait_until(lambda: int(engine.info("memory", "lazyfreed_objects")) > lazy, "it is freed in the background")
    # Growth is refused where maxmemory is, or the limit of one filter, and the filter goes on to answer.
    used = int(engine.info("memory", "used_memory"))
    for limit, name in ((used + (1 << 20), "maxmemory"), (1 << 20, "bloomery.bf-max-filter-bytes")):
        engine("CONFIG", "SET", "maxmemory", "0")
        engine("DEL", "small")
        engine("CF.RESERVE", "small", "2000", "BUCKETSIZE", "1", "EXPANSION", "2048")
        engine("CONFIG", "SET", name, limit)
        replies = engine("CF.INSERT", "small", "ITEMS", *items("x", 1500))
        assert -1 in replies and replies.count(1) > 500, name
        added = [f"x{i}" for i, reply in enumerate(replies) if reply == 1]
        assert engine("CF.MEXISTS", "small", *added) == [1] * len(added)
        refused = f"x{replies.index(-1)}"
        assert str(engine.try_call("CF.ADD", "small", refused)).startswith("ERR Insufficient memory"), name


def test_settings_and_another_prefix():
    engine = Engine(module=("prefix", "BLOOM", "cf-bucket-size", "4"))
    assert engine("BLOOM-CF.ADD", "f", "x") == 1 and b"bktsize:4 buckets:256 " in engine("bloom-cf.debug", "f")
    engine("CONFIG", "SET", "bloomery.cf-initial-size", "64")
    engine("CONFIG", "SET", "bloomery.cf-expansion-factor", "3")
    engine("BLOOM-CF.ADD", "g", "x")
    assert engine("BLOOM-CF.DEBUG", "g") == \
        b"bktsize:4 buckets:16 items:1 deletes:0 filters:1 max_iterations:20 expansion:4"
    engine("CONFIG", "SET", "bloomery.bf-auto-create", "no")
    assert str(engine.try_call("BLOOM-CF.ADD", "h", "x")) == "ERR not found"
    engine("CONFIG", "SET", "aof-use-rdb-preamble", "no")
    digest = engine.digest()
    rewritten(engine, "CONFIG", "SET", "appendonly", "yes")
    engine("DEBUG", "LOADAOF")
    assert engine.digest() == digest
    assert isinstance(engine.try_call("CONFIG", "SET", "bloomery.cf-bucket-size", "256"), Error)


# ---- take-over ----


def place(file):
    def write(engine):
        with open(os.path.join(engine.directory, "dump.rdb"), "wb") as out:
            out.write(file)
    return write


def test_files_that_redisbloom_wrote():
    """All values except those of types that the module does not take over."""
    if not RECORDED:
        return
    for version in ("2.8.20", "8.8.0"):
        with open(f"{RECORDED}/mixed-{version}.rdb", "rb") as file:
            written = file.read()
        with open(f"{RECORDED}/mixed-{version}.rdb.json", encoding="utf-8") as file:
            keys = [row for row in json.load(file)["keys"] if row.get("filter")]
        engine = Engine(module=TAKE_OVER, before=place(without_types(written, keep=("MBbloom--", "MBbloomCF"))))
        assert len(keys) > 10
        for row in keys:
            engine("SELECT", row["db"])
            assert engine("TYPE", row["key"]) == "MBbloomCF", row
            if not os.path.isdir(f"{RECORDED}/{row['filter']}"):
                continue
            with open(f"{RECORDED}/{row['filter']}/dump-2.8.20.bin", "rb") as file:
                assert of_version(engine("DUMP", row["key"]), 10) == file.read(), row
        digest = engine.digest()
        engine("SAVE")
        engine.stop()
        engine.start()
        assert engine.digest() == digest
        in_sync(engine, replica_of(engine, module=TAKE_OVER))


def test_a_log_that_redisbloom_can_read():
    """The setting is for CF.* only; commands of the primary run under any settings."""
    engine = Engine(*ALWAYS, module=TAKE_OVER)
    engine("CF.ADD", "auto", "x")
    engine("CF.RESERVE", "expansion", "100")
    engine("CF.INSERT", "f", "CAPACITY", "64", "ITEMS", *items("x", 200))
    engine("CF.INSERTNX", "f", "ITEMS", "x1", "y")
    for item in items("x", 100):
        engine("CF.DEL", "f", item)
    engine("CF.COMPACT", "f")
    for iterator, data in cf_chunks(engine, "f"):
        engine("CF.LOADCHUNK", "copy", iterator, data)
    assert engine("DUMP", "f") == engine("DUMP", "copy") and engine("TYPE", "f") == "MBbloomCF"
    path, told = os.path.join(engine.directory, "appendonlydir"), set()
    for name in os.listdir(path):
        if ".incr." in name:
            told |= {words[0].upper() for words in commands_of(os.path.join(path, name))}
    assert told <= {b"SELECT", b"MULTI", b"EXEC", b"CF.RESERVE", b"CF.ADD", b"CF.INSERT", b"CF.DEL", b"CF.COMPACT",
                    b"CF.LOADCHUNK"}
    digest = engine.digest()
    engine.kill()
    engine.start()
    assert engine.digest() == digest
    # Adds that make filters, with what was refused among them, as RedisBloom tells them.
    latest = sorted(name for name in os.listdir(path) if ".incr." in name)[-1]
    with open(os.path.join(path, latest), "ab") as log:
        for words in (("CF.ADD", "theirs", "x"), ("CF.INSERT", "g", "CAPACITY", "8", "ITEMS", *items("x", 30)),
                      ("CF.ADDNX", "theirs", "x"), ("CF.DEL", "theirs", "none")):
            log.write(encoded(words))
    engine.kill()
    engine.module += ["bf-auto-create", "no", "bf-max-filter-bytes", "1", "cf-max-expansions", "1"]
    engine.start()
    assert engine("CF.EXISTS", "theirs", "x") == 1 and engine("CF.MEXISTS", "g", *items("x", 30)) == [1] * 30


def test_values_of_a_time_without_take_over():
    plain = Engine()
    plain("CF.INSERT", "f", "CAPACITY", "64", "ITEMS", *items("x", 200))
    taken = replica_of(plain, module=TAKE_OVER)
    in_sync(plain, taken)
    taken("REPLICAOF", "NO", "ONE")
    assert taken("TYPE", "f") == "bloomeryC" and taken("CF.ADD", "f", "y") == 1
    for iterator, data in cf_chunks(taken, "f"):
        taken("CF.LOADCHUNK", "g", iterator, data)
    assert taken("TYPE", "g") == "MBbloomCF" and "Bad data format" in str(
        plain.try_call("RESTORE", "h", "0", taken("DUMP", "g")))
    no_rate = b"\2\0" * 4  # the module's own type has the numbers of a rate
    assert taken("DUMP", "f")[10:-10].replace(no_rate, b"", 1) == taken("DUMP", "g")[10:-10]


def test_filters_that_keep_a_rate_move_between_daemon_and_engine():
    """Their type is the module's own, even with `take-over`."""
    daemon, plain, taken = Daemon(), Engine(), Engine("--appendonly", "yes", module=TAKE_OVER)
    for rate, bits in (("0.2", 8), ("0.01", 12), ("0.001", 16)):
        for engine in (daemon, plain, taken):
            assert engine("CF.RESERVE", "f", "100", "ERROR", rate) == "OK"
            engine("CF.INSERT", "f", "ITEMS", *items("x", 400))
            engine("CF.DEL", "f", "x3")
            info = engine("CF.INFO", "f", "FULL")
            assert dict(zip(info[::2], info[1::2]))["Fingerprint bits"] == bits
        for engine in (plain, taken):
            assert engine("DUMP", "f")[:10] == daemon("DUMP", "f")[:10] and engine("TYPE", "f") == "bloomeryC"
            daemon("RESTORE", "g", "0", engine("DUMP", "f"), "REPLACE")
            assert cf_chunks(daemon, "g") == cf_chunks(daemon, "f") == cf_chunks(engine, "f")
            for iterator, data in cf_chunks(daemon, "f"):
                engine("CF.LOADCHUNK", "g", iterator, data)
            assert engine("RESTORE", "h", "0", daemon("DUMP", "f")) == "OK"
            engine("COPY", "f", "i")
            digest = engine.digest()
            for key in ("g", "h", "i"):
                assert engine("DUMP", key) == engine("DUMP", "f"), key
            engine("DEBUG", "RELOAD")
            assert engine.digest() == digest
        rewritten(taken, "BGREWRITEAOF")
        taken.kill()
        taken.start()
        assert taken.digest() == digest
        for engine in (daemon, plain, taken):
            engine("FLUSHALL")


def test_the_tool_takes_them_from_a_file():
    """`bloomery import --rdb`, also of the module's own type."""
    engine, daemon = Engine(), Daemon()
    engine("CF.RESERVE", "rate", "100", "ERROR", "0.001")
    engine("CF.INSERT", "rate", "ITEMS", *items("x", 400))
    engine("CF.INSERT", "plain", "ITEMS", *items("x", 400))
    engine("SAVE")
    daemon.stop()
    done = subprocess.run([TOOL, "import", "--rdb", os.path.join(engine.directory, "dump.rdb"),
                           os.path.join(daemon.directory, "data"), "--json"], stdout=subprocess.PIPE, timeout=240)
    taken = {found["name"]: found for found in json.loads(done.stdout)["filters"]}
    assert taken["rate"]["type"] == taken["plain"]["type"] == "bloomeryC" and taken["rate"]["items"] == 400
    daemon.start()
    for key in taken:
        assert daemon("CF.INFO", key, "FULL") == engine("CF.INFO", key, "FULL"), key
        assert cf_chunks(daemon, key) == cf_chunks(engine, key), key


def test_replicas_and_the_log_need_no_key():
    """They apply hashes; without the key queries return errors, and the log names the missing key."""
    path = os.path.join(tempfile.mkdtemp(prefix="bloomery-module-"), "keys")
    with open(path, "w", encoding="ascii") as file:  # the id of these bytes: tests/unit/persist/key_file.c
        file.write("54b70391b3deeb2f " + bytes(range(32)).hex() + "\n")
    primary = Engine(*ALWAYS, module=("bf-key-file", path))
    replica = replica_of(primary, module=OTHER)
    assert primary("CF.RESERVE", "f", "100", "ERROR", "0.001", "KEYED") == "OK"
    primary("CF.INSERT", "g", "ERROR", "0.001", "KEYED", "ITEMS", *items("x", 300))
    for i in range(5):
        primary("CF.INSERT", "f", "ITEMS", *items("x", 200, 100 * i))
        primary("CF.ADD", "f", f"one{i}")
    for i in range(90):
        assert primary("CF.DEL", "f", f"x{i}") == 1
    in_sync(primary, replica)
    assert primary("DUMP", "f") == replica("DUMP", "f") and primary("DUMP", "g") == replica("DUMP", "g")
    dump = primary("DUMP", "f")
    for words in (("CF.EXISTS", "f", "x"), ("CF.MEXISTS", "f", "x"), ("CF.COUNT", "f", "x")):
        assert "54b70391b3deeb2f" in str(replica.connect().try_call(*words)), words
    later = replica_of(primary, module=OTHER)
    in_sync(primary, later)
    assert "54b70391b3deeb2f" in later.output()
    primary.stop()
    primary.module = []
    primary.start()
    for words in (("CF.ADD", "f", "x"), ("CF.DEL", "f", "x"), ("CF.INSERTNX", "f", "ITEMS", "x")):
        assert "54b70391b3deeb2f" in str(primary.connect().try_call(*words)), words
    assert "no key" in str(primary.connect().try_call("CF.RESERVE", "new", "100", "ERROR", "0.001", "KEYED"))
    assert primary("DUMP", "f") == dump
    for engine in (primary, replica):
        engine("CONFIG", "SET", "bloomery.bf-key-file", path)
        assert engine("CF.MEXISTS", "f", "x89", *items("x", 500, 90)) == [0] + [1] * 500
    info = replica("CF.INFO", "f", "FULL")
    assert dict(zip(info[::2], info[1::2]))["Key"] == b"54b70391b3deeb2f"
    replica("CONFIG", "SET", "bloomery.bf-key-file", "")


def test_filters_move_between_daemon_and_engine():
    """With DUMP, MIGRATE and chunks; the daemon's values need `take-over`."""
    daemon, plain, taken = Daemon(), Engine(), Engine(module=TAKE_OVER)
    for engine in (daemon, plain, taken):
        engine("CF.INSERT", "f", "CAPACITY", "64", "ITEMS", *items("x", 200))
        engine("CF.DEL", "f", "x3")
    for engine in (plain, taken):
        engine("CF.ADD", "moves", "x")
        assert engine("MIGRATE", "127.0.0.1", daemon.port, "moves", "0", "10000") == "OK"
        daemon("RESTORE", "g", "0", engine("DUMP", "f"), "REPLACE")
        for key in ("g", "moves"):
            assert daemon("TYPE", key) == "MBbloomCF"
        daemon("DEL", "moves")
        assert daemon("CF.DEBUG", "g") == daemon("CF.DEBUG", "f") == engine("CF.DEBUG", "f")
        assert cf_chunks(daemon, "g") == cf_chunks(daemon, "f") == cf_chunks(engine, "f")
        for iterator, data in cf_chunks(daemon, "f"):
            engine("CF.LOADCHUNK", "g", iterator, data)
        assert engine("DUMP", "g") == engine("DUMP", "f")
    assert taken("RESTORE", "h", "0", daemon("DUMP", "f")) == "OK" and taken("DUMP", "h") == taken("DUMP", "f")


if __name__ == "__main__":
    assert crc64(b"123456789") == 0xe9c6d914c4b8d9ca
    sys.exit(run(sys.modules[__name__]))
