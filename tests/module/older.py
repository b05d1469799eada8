#!/usr/bin/env python3
"""An upgrade of the engine: files of its older version, and an older primary. scripts/engines runs this with the older engine
in BLOOMERY_OLDER_ENGINE."""
import shutil
import sys

from engines import OLDER, Engine, in_sync, items, replica_of, rewritten, run

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
TAKE_OVER = ("take-over", "yes")
MODULES = ((), TAKE_OVER, ("bf-layout", "redisbloom"))


def change(engine, round_):
    """Every kind of change that replicas and the log receive."""
    name = f"{round_}-"
    engine("BF.ADD", name + "made", "x")
    engine("BF.MADD", name + "grown", *items("g", 3000))
    engine("BF.RESERVE", name + "large", "0.0001", "300000")
    engine("BF.MADD", name + "large", *items("l", 1000))
    engine("BF.INSERT", name + "kept", "CAPACITY", "50", "TTL", "5000", "ITEMS", *items("k", 300))
    engine("BF.RESERVE", name + "fixed", "0.01", "10", "NONSCALING")
    engine("BF.MADD", name + "fixed", *items("f", 9))
    engine("BF.INSERT", name + "window", "CAPACITY", "100", "LAYOUT", "NA", "WINDOW", "ITEMS", "100", "PARTS", "4", "ITEMS",
           *items("w", 300))
    engine("BF.MERGE", name + "union", name + "grown", name + "made")
    engine("BF.MERGE", name + "union", name + "grown")
    engine("COPY", name + "grown", name + "copy")
    engine("BF.CLEAR", name + "copy")
    engine("RENAME", name + "made", name + "renamed")
    iterator = 0
    while True:
        iterator, chunk = engine("BF.SCANDUMP", name + "large", iterator)
        if iterator == 0:
            break
        engine("BF.LOADCHUNK", name + "loaded", iterator, chunk)
    engine("BF.LOADCHUNK", name + "half", *engine("BF.SCANDUMP", name + "large", 0))


def is_complete(engine, rounds):
    assert engine("DBSIZE") == 10 * rounds, engine("KEYS", "*")
    for round_ in range(rounds):
        name = f"{round_}-"
        assert engine("BF.MEXISTS", name + "grown", *items("g", 3000)) == [1] * 3000
        assert engine("BF.MEXISTS", name + "loaded", *items("l", 1000)) == [1] * 1000
        assert engine("BF.MEXISTS", name + "union", "x", *items("g", 3000)) == [1] * 3001
        assert 0 < engine("TTL", name + "kept") <= 5000 and engine("TTL", name + "grown") == -1
        assert engine("BF.CARD", name + "copy") == 0
        assert "being loaded" in str(engine.try_call("BF.CARD", name + "half"))


def files_of(older):
    def place(engine):
        shutil.copytree(older.directory, engine.directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("log"))
    return place


def test_a_log_of_an_older_engine_is_loaded():
    """A log of commands only, and rewritten logs of both forms."""
    for module in MODULES:
        for preamble in (None, "yes", "no"):
            older = Engine(*ALWAYS, "--aof-use-rdb-preamble", preamble or "yes", module=module, program=OLDER)
            change(older, 0)
            if preamble:
                rewritten(older, "BGREWRITEAOF")
            change(older, 1)
            digest = older.digest()
            older.kill()
            engine = Engine(*ALWAYS, module=module, before=files_of(older))
            assert engine.digest() == digest and engine.info("errorstats", "errorstat_ERR") is None
            is_complete(engine, 2)
            change(engine, 2)
            digest = engine.digest()
            engine.kill()
            engine.start()
            assert engine.digest() == digest


def test_a_saved_file_of_an_older_engine_is_loaded():
    for module in MODULES:
        older = Engine(module=module, program=OLDER)
        change(older, 0)
        older("SAVE")
        digest = older.digest()
        older.kill()
        engine = Engine(module=module, before=files_of(older))
        assert engine.digest() == digest
        is_complete(engine, 1)


def test_a_replica_follows_an_older_primary():
    """From the file of the full synchronisation, from the stream, and after the replica has become the primary."""
    for module in MODULES:
        older = Engine(*ALWAYS, module=module, program=OLDER)
        change(older, 0)
        engine = replica_of(older, *ALWAYS, module=module)
        change(older, 1)
        digest = in_sync(older, engine)
        is_complete(engine, 2)
        older.kill()
        engine("REPLICAOF", "NO", "ONE")
        change(engine, 2)
        is_complete(engine, 3)
        assert engine.digest() != digest


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
