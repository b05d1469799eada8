#!/usr/bin/env python3
"""Filters in the engine's files: RDB files, append-only files with and without a preamble, after an end of the process and
after kill -9; and damaged files."""
import glob
import os
import random
import sys
import threading

from engines import Connection, Engine, Error, items, rewritten, run, wait_until
from recorded_rdb import crc64

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def filled(engine):
    engine("BF.RESERVE", "large", "0.0001", "500000")
    for i in range(20):
        engine("BF.MADD", "large", *items("l", 500, i * 500))
    engine("BF.MADD", "grown", *items("g", 3000))
    engine("BF.RESERVE", "fixed", "0.01", "10", "NONSCALING", "TTL", "10000")
    engine("BF.MADD", "fixed", *items("f", 9))
    engine("BF.RESERVE", "empty", "0.3", "1")
    engine("BF.INSERT", "theirs", "CAPACITY", "5", "EXPANSION", "1", "LAYOUT", "redisbloom", "ITEMS", *items("t", 2000))
    engine("BF.RESERVE", "theirs2", "0.5", "1000000", "LAYOUT", "redisbloom", "NONSCALING")
    engine("BF.MADD", "theirs2", *items("t", 200))
    iterator, chunk = engine("BF.SCANDUMP", "large", "0")
    engine("BF.LOADCHUNK", "half", iterator, chunk)
    return engine.digest()


def aof_of(engine):
    return glob.glob(os.path.join(engine.directory, "appendonlydir", "*"))


def test_a_save_and_a_start_keep_everything():
    engine = Engine()
    digest = filled(engine)
    engine("SAVE")
    engine.stop()
    engine.start()
    assert engine.digest() == digest
    assert engine("BF.MEXISTS", "large", *items("l", 10000)) == [1] * 10000
    assert 0 < engine("TTL", "fixed") <= 10000
    assert "being loaded" in str(engine.try_call("BF.CARD", "half"))
    assert engine("BF.INFO", "grown", "FILTERS")[0] > 3


def test_the_log_alone_keeps_everything():
    engine = Engine(*ALWAYS)
    digest = filled(engine)
    engine.kill()
    engine.start()
    assert engine.digest() == digest
    assert engine.info("errorstats", "errorstat_ERR") is None


def test_a_rewritten_log_keeps_everything():
    for preamble in ("yes", "no"):
        engine = Engine(*ALWAYS, "--aof-use-rdb-preamble", preamble)
        digest = filled(engine)
        rewritten(engine, "BGREWRITEAOF")
        base = [path for path in aof_of(engine) if ".base." in path]
        assert len(base) == 1 and base[0].endswith(".rdb" if preamble == "yes" else ".aof"), base
        with open(base[0], "rb") as file:
            assert (b"bf.loadchunk" in file.read()) == (preamble == "no")
        engine("BF.MADD", "grown", *items("h", 500))
        digest = engine.digest()
        engine.kill()
        engine.start()
        assert engine.digest() == digest
        assert engine("BF.MEXISTS", "grown", *items("h", 500)) == [1] * 500


def adding(port, number, acknowledged):
    """Adds until the engine is gone; `acknowledged` receives the answered items."""
    connection = Connection(port)
    i = 0
    try:
        while True:
            batch = [("BF.ADD", f"k{number}", f"{number}-{j}") for j in range(i, i + 20)]
            connection.send(*batch)
            for j in range(i, i + 20):
                reply = connection.reply()
                if not isinstance(reply, Error):
                    acknowledged.append(j)
            i += 20
    except OSError:
        pass


def test_kill_under_load_loses_no_acknowledged_add():
    """With 'appendfsync always', during a rewrite of the log and during a save."""
    engine = Engine(*ALWAYS, "--aof-use-rdb-preamble", "no")
    rng = random.Random(3)
    acknowledged = [[] for _ in range(3)]
    for round_ in range(4):
        threads = [threading.Thread(target=adding, args=(engine.port, i, acknowledged[i])) for i in range(3)]
        for thread in threads:
            thread.start()
        before = sum(map(len, acknowledged))
        wait_until(lambda: sum(map(len, acknowledged)) > before + 500, "some hundred adds")
        engine("BGREWRITEAOF")
        wait_until(lambda: sum(map(len, acknowledged)) > before + 500 + rng.randrange(2000), "more adds")
        engine.kill()
        for thread in threads:
            thread.join()
        engine.start()
        for i, done in enumerate(acknowledged):
            for first in range(0, len(done), 1000):
                part = done[first:first + 1000]
                replies = engine("BF.MEXISTS", f"k{i}", *[f"{i}-{j}" for j in part])
                assert replies == [1] * len(part), f"{replies.count(0)} acknowledged items of {i} are lost"


def test_damaged_values_are_errors():
    """Flips bits of DUMP's result and corrects its checksum: RESTORE returns an error and does not crash, or the bit has no
    meaning."""
    engine = Engine()
    engine("BF.MADD", "f", *items("x", 300))
    good = engine("DUMP", "f")
    rng = random.Random(1)
    refused = 0
    for i in range(600):
        bad = bytearray(good[:-8])
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(1, len(bad) - 2)] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del bad[rng.randrange(10, len(bad) - 2):-2]
        bad += crc64(bytes(bad)).to_bytes(8, "little")
        reply = engine.try_call("RESTORE", f"b{i}", "0", bytes(bad))
        if isinstance(reply, Error):
            refused += 1
        else:
            assert engine("DUMP", f"b{i}")[10:] == good[10:] or engine("TYPE", f"b{i}") != "bloomery1"
    assert refused > 550, refused
    assert engine("PING") == "PONG"
    assert engine("RESTORE", "g", "0", good) == "OK"
    assert engine("BF.MEXISTS", "g", *items("x", 300)) == [1] * 300


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
