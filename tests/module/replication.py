#!/usr/bin/env python3
"""Replication is exact: a replica has the same filters, bit by bit, under any settings, and never refuses a command of its
primary. The replicas here have other settings than their primaries, and panic at any error (see engines.py)."""
import os
import random
import sys
import tempfile

from engines import Engine, Error, calls, chunks_of, in_sync, items, replica_of, run, wait_until

OTHER = ("bf-error-rate", "0.3", "bf-initial-size", "7", "bf-expansion-factor", "0", "bf-auto-create", "no",
         "bf-max-filter-bytes", "1")


def pair(*arguments, module=()):
    primary = Engine(*arguments, module=module)
    return primary, replica_of(primary, module=OTHER)


def commands_since(engine, before):
    """The number of calls of each command since then."""
    return {name: n - before.get(name, 0) for name, n in calls(engine).items() if n > before.get(name, 0)}


def test_every_change_reaches_a_replica_with_other_settings():
    primary, replica = pair(module=("bf-merge-overfull", "yes"))
    primary("BF.ADD", "auto", "x")
    primary("BF.RESERVE", "r", "0.001", "1000", "EXPANSION", "3")
    primary("BF.RESERVE", "fixed", "0.01", "10", "NONSCALING")
    primary("BF.INSERT", "theirs", "CAPACITY", "20", "EXPANSION", "2", "LAYOUT", "redisbloom", "ITEMS", *items("t", 900))
    primary("BF.INSERT", "i", "CAPACITY", "50", "ERROR", "0.2", "TTL", "1000", "ITEMS", *items("i", 500))
    in_sync(primary, replica)
    for i in range(5):
        primary("BF.MADD", "auto", *items("a", 700, 500 * i))
        primary("BF.MADD", "r", *items("r", 1500, 1000 * i))
    for item in items("one", 300):
        primary("BF.ADD", "auto", item)
    in_sync(primary, replica)
    assert len(replica("BF.INFO", "auto", "FILTERS")) == 1 and replica("BF.INFO", "auto", "FILTERS")[0] > 3
    full = primary("BF.MADD", "fixed", *items("f", 30))
    assert isinstance(full[-1], Error) and len(full) < 31 and sum(full[:-1]) == 10
    in_sync(primary, replica)
    primary("BF.RESERVE", "m", "0.001", "1000", "EXPANSION", "3")
    primary("BF.MADD", "m", *items("m", 3000))
    primary("BF.MERGE", "m", "r")
    primary("BF.MERGE", "made", "r", "m")
    primary("COPY", "r", "copy")
    primary("BF.CLEAR", "copy")
    primary("RENAME", "m", "renamed")
    primary("BF.MADD", "renamed", *items("n", 100))
    primary("PEXPIRE", "renamed", "1000000")
    primary("DEL", "auto")
    in_sync(primary, replica)
    assert replica("BF.INFO", "theirs", "LAYOUT") == [b"redisbloom"]
    assert primary("EXISTS", "r", "made", "copy", "renamed", "auto", "fixed", "i", "theirs") == 7
    assert abs(replica("PTTL", "i") - primary("PTTL", "i")) < 60000
    assert replica("BF.MEXISTS", "made", *items("m", 3000)) == [1] * 3000
    for name in ("BF.ADD", "BF.RESERVE"):
        assert str(replica.try_call(name, "x", "0.1", *["9"] * (name == "BF.RESERVE"))).startswith("READONLY")


def test_a_replica_of_a_filter_that_grew_eight_times_in_one_command_has_all_items():
    primary, replica = pair()
    primary("BF.RESERVE", "f", "0.01", "2")
    assert sum(primary("BF.MADD", "f", *items("x", 600))) > 590
    assert primary("BF.INFO", "f", "FILTERS") == [9]
    assert sum(primary("BF.INSERT", "made", "CAPACITY", "2", "ITEMS", *items("x", 600))) > 590
    in_sync(primary, replica)
    for name in ("f", "made"):
        assert replica("BF.INFO", name, "FILTERS") == [9]
        assert replica("BF.MEXISTS", name, *items("x", 600)) == [1] * 600


def test_a_batch_replicates_what_it_added_and_nothing_for_what_was_there():
    primary, replica = pair()
    primary("BF.RESERVE", "f", "0.0001", "100000")
    assert sum(primary("BF.MADD", "f", *items("x", 1000))) == 1000
    in_sync(primary, replica)
    before, offset = calls(replica), int(primary.info("replication", "master_repl_offset"))
    assert sum(primary("BF.MADD", "f", *items("x", 1000))) == 0
    assert primary("BF.ADD", "f", "x1") == 0
    assert primary("BF.INSERT", "f", "ITEMS", "x2", "x3") == [0, 0]
    in_sync(primary, replica)
    assert not any("bf" in name for name in commands_since(replica, before)), commands_since(replica, before)
    grown = int(primary.info("replication", "master_repl_offset")) - offset
    assert grown < 500, f"{grown} bytes were sent for nothing"  # pings and offsets
    before, offset = calls(replica), int(primary.info("replication", "master_repl_offset"))
    assert sum(primary("BF.MADD", "f", *items("x", 1000), *items("new", 10))) == 10
    in_sync(primary, replica)
    since = commands_since(replica, before)
    assert since.get("bf.madd") == 1, since
    sent = int(primary.info("replication", "master_repl_offset")) - offset
    assert sent < 10 * (4 + 40), f"{sent} bytes for ten items of four bytes"


def test_the_stream_has_an_item_and_at_most_forty_bytes_for_each_new_one():
    primary, replica = pair()
    primary("BF.RESERVE", "key", "0.0001", "100000")
    in_sync(primary, replica)
    offset = int(primary.info("replication", "master_repl_offset"))
    primary.connection.pipeline([("BF.ADD", "key", f"item-{i:06}") for i in range(2000)])
    sent = int(primary.info("replication", "master_repl_offset")) - offset
    print(f"      {sent / 2000 - 11:.1f} bytes beside each item")
    assert sent / 2000 <= 11 + 40
    in_sync(primary, replica)


def test_a_transaction_and_a_script_replicate_the_same():
    primary, replica = pair()
    primary("MULTI")
    for words in (("BF.ADD", "a", "1"), ("BF.MADD", "a", *items("i", 300)), ("BF.RESERVE", "b", "0.01", "10"),
                  ("BF.CLEAR", "b"), ("BF.ADD", "b", "2")):
        assert primary(*words) == "QUEUED"
    assert not any(isinstance(reply, Error) for reply in primary("EXEC"))
    primary("EVAL", "for i = 1, 500 do redis.call('bf.add', KEYS[1], 'x' .. i) end", "1", "scripted")
    in_sync(primary, replica)
    assert replica("BF.CARD", "scripted") >= 490


def test_random_changes_leave_equal_digests():
    primary, replica = pair("--appendonly", "yes")
    for check in ("KEYSIZES-HIST-ASSERT", "ALLOCSIZE-SLOTS-ASSERT"):  # after each command, where the engine has them
        primary.try_call("DEBUG", check, "1")
        replica.try_call("DEBUG", check, "1")
    rng = random.Random(5)
    names = [f"k{i}" for i in range(12)]
    for round_ in range(6):
        batch = []
        for _ in range(400):
            key, item = rng.choice(names), f"i{rng.randrange(4000)}"
            batch.append(rng.choice([
                ("BF.ADD", key, item), ("BF.ADD", key, item),
                ("BF.MADD", key, *[f"i{rng.randrange(4000)}" for _ in range(rng.randrange(1, 200))]),
                ("BF.INSERT", key, "CAPACITY", rng.randrange(1, 300), "ERROR", rng.choice(["0.1", "0.003"]), "EXPANSION",
                 rng.randrange(0, 4), "ITEMS", item, item + "x"),
                ("BF.RESERVE", key, rng.choice(["0.1", "0.003", "0.0007"]), rng.randrange(1, 300)),
                ("BF.CLEAR", key), ("DEL", key), ("BF.MERGE", key, rng.choice(names)), ("COPY", key, rng.choice(names)),
                ("RENAME", key, rng.choice(names)), ("PEXPIRE", key, rng.randrange(5, 3000)), ("UNLINK", key)]))
        primary.connection.pipeline(batch)
        in_sync(primary, replica)
    in_sync(primary, replica)


def test_a_half_loaded_filter_answers_errors_everywhere_until_it_is_complete():
    primary, replica = pair()
    primary("BF.RESERVE", "from", "0.001", "500000")
    primary("BF.MADD", "from", *items("x", 5000))
    chunks = chunks_of(primary, "from")
    assert len(chunks) > 3
    for iterator, data in chunks[:2]:
        assert primary("BF.LOADCHUNK", "to", iterator, data) == "OK"
    in_sync(primary, replica)
    for engine in (primary, replica):
        for words in (("BF.EXISTS", "to", "x1"), ("BF.MEXISTS", "to", "x1", "x2"), ("BF.INFO", "to"), ("BF.CARD", "to"),
                      ("BF.QUERY", "to", "ITEMS", "x1"), ("BF.SCANDUMP", "to", "0"), ("BF.DEBUG", "to")):
            assert "being loaded" in str(engine.try_call(*words)), words
    for words in (("BF.ADD", "to", "x"), ("BF.MERGE", "to", "from"), ("BF.MERGE", "other", "to"), ("BF.CLEAR", "to")):
        assert "being loaded" in str(primary.try_call(*words)), words
    # It is saved, copied and dumped as such, and a new replica gets it so.
    primary("DEBUG", "RELOAD")
    primary("COPY", "to", "copied")
    value = primary("DUMP", "to")
    primary("RESTORE", "restored", "0", value)
    second = replica_of(primary)
    in_sync(primary, replica, second)
    for name in ("to", "copied", "restored"):
        for iterator, data in chunks[2:]:
            assert primary("BF.LOADCHUNK", name, iterator, data) == "OK"
        assert primary("BF.MEXISTS", name, *items("x", 5000)) == [1] * 5000
    in_sync(primary, replica, second)
    assert second("BF.MEXISTS", "restored", *items("x", 5000)) == [1] * 5000
    # A chunk that does not fit ends the load, on both sides.
    primary("BF.LOADCHUNK", "spoilt", *chunks[0])
    assert "received bad data" in str(primary.try_call("BF.LOADCHUNK", "spoilt", *chunks[2]))
    assert primary("EXISTS", "spoilt") == 0
    in_sync(primary, replica, second)


def test_a_primary_is_refused_by_no_limit():
    """Limits of the replica's memory, or of one filter."""
    primary = Engine()
    replica = replica_of(primary, "--maxmemory", "1mb", module=OTHER)
    primary("BF.RESERVE", "large", "0.01", "1500000", "EXPANSION", "1")
    primary("BF.RESERVE", "grows", "0.01", "120000", "EXPANSION", "8")
    primary("BF.RESERVE", "window", "0.01", "12000000", "WINDOW", "3600")
    for i in range(13):
        primary("BF.MADD", "grows", *items("g", 10000, 10000 * i))
    primary("BF.MADD", "large", *items("l", 100))
    primary("BF.MADD", "window", *items("w", 100))
    primary("BF.MERGE", "united", "large")
    primary("BF.MERGE", "united window", "window")
    primary("COPY", "large", "copied")
    for iterator, data in chunks_of(primary, "large"):
        primary("BF.LOADCHUNK", "loaded", iterator, data)
    assert primary("BF.INFO", "grows", "FILTERS") == [2]
    in_sync(primary, replica)
    assert replica("BF.MEXISTS", "united window", *items("w", 100)) == [1] * 100


def test_replicas_and_the_log_need_no_key():
    """They apply hashes; without the key queries return errors, and the log names the missing key."""
    path = os.path.join(tempfile.mkdtemp(prefix="bloomery-module-"), "keys")
    with open(path, "w", encoding="ascii") as file:  # the id of these bytes: tests/unit/persist/key_file.c
        file.write("54b70391b3deeb2f " + bytes(range(32)).hex() + "\n")
    primary, replica = pair("--appendonly", "yes", module=("bf-key-file", path))
    primary("BF.RESERVE", "f", "0.000001", "100", "KEYED")
    primary("BF.RESERVE", "w", "0.000001", "1000", "WINDOW", "1000", "KEYED")
    primary("BF.RESERVE", "theirs", "0.000001", "100", "LAYOUT", "redisbloom", "KEYED")
    for name in ("f", "w", "theirs"):
        for i in range(3):
            primary("BF.MADD", name, *items("m", 300, 200 * i))
        for item in items("one", 40):
            primary("BF.ADD", name, item)
    primary("COPY", "f", "copy")
    primary("BF.MERGE", "union", "f", "copy")
    assert primary("BF.INFO", "f", "FILTERS")[0] > 1
    in_sync(primary, replica)
    names = ("f", "w", "theirs", "copy", "union")
    for name in names:
        assert "54b70391b3deeb2f" in str(replica.connect().try_call("BF.EXISTS", name, "one0")), name
    replica("CONFIG", "SET", "bloomery.bf-key-file", path)
    for name in names:
        assert replica("BF.MEXISTS", name, *items("m", 700), *items("one", 40), "absent") == [1] * 740 + [0], name
    later = replica_of(primary, module=OTHER)
    in_sync(primary, later)
    assert "54b70391b3deeb2f" in later.output()
    primary.stop()
    primary.module = []
    primary.start()
    assert "54b70391b3deeb2f" in str(primary.connect().try_call("BF.ADD", "f", "one0")) and "54b70391b3deeb2f" in primary.output()
    primary("CONFIG", "SET", "bloomery.bf-key-file", path)
    for name in names:
        assert primary("BF.MEXISTS", name, *items("m", 700), "absent") == [1] * 700 + [0], name


def test_a_full_sync_under_adds_loses_nothing():
    """From disk and diskless, into an empty database and beside the old one (swapdb)."""
    for save, load in (("no", "disabled"), ("yes", "disabled"), ("yes", "swapdb"), ("yes", "on-empty-db")):
        primary = Engine("--repl-diskless-sync", save, "--repl-diskless-sync-delay", "0")
        primary("BF.RESERVE", "large", "0.0001", "2000000")
        adder = primary.connect()
        adder.pipeline([("BF.MADD", "large", *items(f"a{i}-", 100)) for i in range(300)])
        replica = Engine("--replicaof", f"127.0.0.1 {primary.port}", "--repl-diskless-load", load,
                         "--propagation-error-behavior", "panic", module=OTHER)
        for i in range(20):
            adder.pipeline([("BF.MADD", f"k{i}", *items(f"{i}-{j}-", 40)) for j in range(20)])
        wait_until(lambda: replica.info("replication", "master_link_status") == "up", "the replica is in sync")
        in_sync(primary, replica)
        assert replica("BF.EXISTS", "large", "a299-99") == 1


def test_a_replica_that_becomes_the_primary_goes_on():
    primary, replica = pair()
    primary("BF.MADD", "f", *items("x", 150))
    in_sync(primary, replica)
    replica("REPLICAOF", "NO", "ONE")
    primary("REPLICAOF", "127.0.0.1", replica.port)
    wait_until(lambda: primary.info("replication", "master_link_status") == "up", "the old primary follows")
    assert "limit" in str(replica("BF.MADD", "f", *items("y", 3000))[-1])  # its own settings hold for its clients
    replica("CONFIG", "SET", "bloomery.bf-max-filter-bytes", "0")
    assert not isinstance(replica("BF.MADD", "f", *items("y", 3000))[-1], Error)
    assert replica("BF.MEXISTS", "f", *items("x", 150)) == [1] * 150
    in_sync(replica, primary)


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
