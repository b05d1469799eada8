#!/usr/bin/env python3
"""What earlier versions have written is read. Each folder beside this file is a version:

  data.tar.gz    the data directory of its daemon, which was killed: a save, the log after it, and the newest records, which are in
                 the file of pending records only, where that version has one
  module.rdb     the file of its module in Redis
  filters.gz     JSON: of each filter: the command that made it, its items, BF.INFO, the value of DUMP in daemon and module, and the
                 chunks of BF.SCANDUMP, in base64

  kept.py read                  reads all of them by this build: the directories, each value in daemon and module, the RDB files
  kept.py make FOLDER           makes a folder by the programs of the environment; a released version's is never made again

The environment is that of tests/module/engines.py. Without BLOOMERY_ENGINE the module's part is left out.
"""
import base64
import glob
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("clients", "module", "support")]
import engines
from engines import DAEMON, Connection, Engine
from with_daemon import Daemon

FILTERS = {  # a version makes those that it knows
    "plain": "BF.RESERVE plain 0.001 50",
    "fixed": "BF.RESERVE fixed 0.01 400 NONSCALING",
    "files": "BF.INSERT files CAPACITY 200000 ERROR 0.01 ITEMS saved:0",
    "secret": "BF.RESERVE secret 0.001 100 KEYED",
    "recent": "BF.RESERVE recent 0.001 100 WINDOW 4000000000 PARTS 4",
    "last": "BF.RESERVE last 0.001 100 WINDOW ITEMS 1000",
    "theirs": "BF.RESERVE theirs 0.001 100 LAYOUT redisbloom",
    "valkeys": "BF.RESERVE valkeys 0.001 100 LAYOUT valkey",
    "blocked": "BF.RESERVE blocked 0.001 100 LAYOUT blocked",
    "owned": "BF.RESERVE owned 0.0001 1000",
    "deck": "CF.RESERVE deck 1000",
    "rate": "CF.RESERVE rate 1000 LAYOUT fingerprints",
}
OTHERS = ("theirs", "valkeys", "deck", "rate")  # DUMP of the daemon has a type of RedisBloom or valkey-bloom, which our module leaves to them
STEPS = {"saved": 60, "logged": 60, "pending": 20}  # items of each


def items(step):
    return [f"{step}:{i}" for i in range(STEPS[step])]


def family(name):
    return FILTERS[name.split(":")[0]][:2]


def add(call, name, step):
    for item in items(step):
        call(f"{family(name)}.ADD", name, item)


def text(value):
    return base64.b64encode(value).decode()


def info(call, name):
    """Fields that name no time and no place in memory."""
    reply = call(f"{family(name)}.INFO", name)
    fields = {str(key.decode() if isinstance(key, bytes) else key): value for key, value in zip(reply[::2], reply[1::2])}
    return {key: value for key, value in fields.items() if key in (
        "Capacity", "Number of filters", "Number of items inserted", "Expansion rate", "Number of buckets", "Number of items deleted")}


def chunks(call, name):
    iterator, found = 0, []
    while True:
        iterator, chunk = call(f"{family(name)}.SCANDUMP", name, iterator)
        if iterator == 0:
            return found
        found.append([iterator, text(chunk)])


def made(call):
    """Makes the filters of FILTERS that the server knows."""
    known = {name: {"command": command} for name, command in FILTERS.items()
             if not isinstance(call.try_call(*command.split()), engines.Error)}
    for name in known:
        add(call, name, "saved")
    return known


def make(folder):
    os.makedirs(folder)
    with tempfile.TemporaryDirectory() as directory:
        daemon = Daemon(DAEMON, directory, "data", [])
        call = Connection(daemon.port)
        filters = made(call)
        call("BF.ADD", "gone", "x")
        call("SAVE")
        call("DEL", "gone")
        for name, kept in filters.items():
            if name != "files":  # too large for a value in a repository
                kept["dump"], kept["chunks"], kept["saved"] = text(call("DUMP", name)), chunks(call, name), info(call, name)
            add(call, name, "logged")
        database = 0 if isinstance(call.try_call("SELECT", "3"), engines.Error) else 3  # 0.2.0 had one database
        call("SELECT", database)
        call("BF.ADD", "other", "x")
        call("SELECT", "0")
        time.sleep(3)  # of appendfsync everysec: what follows is pending
        for name, kept in filters.items():
            add(call, name, "pending")
            kept["last"] = info(call, name)
        daemon.process.kill()
        daemon.process.wait()
        with tarfile.open(os.path.join(folder, "data.tar.gz"), "w:gz", compresslevel=9) as archive:
            archive.add(daemon.data, "data")
    engine = Engine()
    for name in made(engine):
        filters.setdefault(name, {"command": FILTERS[name]})["module"] = {"info": info(engine, name)} | (
            {} if name == "files" else {"dump": text(engine("DUMP", name))})
    engine("SAVE")
    shutil.copy(os.path.join(engine.directory, "dump.rdb"), os.path.join(folder, "module.rdb"))
    engine.stop()
    with gzip.open(os.path.join(folder, "filters.gz"), "wt") as file:
        json.dump({"filters": filters, "database": database}, file)


def expect(call, name, steps, state):
    assert info(call, name) == state, (name, info(call, name), state)
    for step in steps:
        for item in items(step):
            assert call(f"{family(name)}.EXISTS", name, item) == 1, (name, item)


def values(kept):
    """Each value of a filter, with what it answers."""
    if "dump" in kept:
        yield "dump", kept["dump"], kept["saved"]
    if "dump" in kept.get("module", ()):
        yield "module", kept["module"]["dump"], kept["module"]["info"]


def restore(call, filters, others=True):
    for name, kept in filters.items():
        for where, value, state in values(kept):
            if where == "dump" and name in OTHERS and not others:
                continue
            call("RESTORE", f"{name}:{where}", 0, base64.b64decode(value))
            expect(call, f"{name}:{where}", ["saved"], state)
        for iterator, chunk in kept.get("chunks", ()):
            call(f"{family(name)}.LOADCHUNK", f"{name}:chunks", iterator, base64.b64decode(chunk))
        if kept.get("chunks"):
            expect(call, f"{name}:chunks", ["saved"], kept["saved"])


def read_daemon(folder, filters, database):
    with tempfile.TemporaryDirectory() as directory:
        with tarfile.open(os.path.join(folder, "data.tar.gz")) as archive:
            archive.extractall(directory)
        subprocess.run([os.environ["BLOOMERY_TOOL"], "check", os.path.join(directory, "data")], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        daemon = Daemon(DAEMON, directory, "data", [])
        for again in range(2):  # from that version's files, and from a save of this one
            call = Connection(daemon.port)
            for name, kept in filters.items():
                if "last" in kept:
                    expect(call, name, STEPS, kept["last"])
            assert call("EXISTS", "gone") == 0
            call("SELECT", database)
            assert call("BF.EXISTS", "other", "x") == 1
            call("SELECT", "0")
            if again == 0:
                call("SAVE")
                daemon.process.kill()
                daemon.process.wait()
                assert daemon.start()
        restore(call, filters)
        wrong = daemon.stop()
        assert not wrong, wrong


def read_module(folder, filters):
    engine = Engine(before=lambda engine: shutil.copy(os.path.join(folder, "module.rdb"), os.path.join(engine.directory, "dump.rdb")))
    theirs = {name: kept for name, kept in filters.items() if "module" in kept}
    for name, kept in theirs.items():
        expect(engine, name, ["saved"], kept["module"]["info"])
    restore(engine, theirs, others=False)
    engine.stop()


def main():
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 3:
        return make(sys.argv[2])
    if sys.argv[1:] != ["read"]:
        sys.exit(__doc__)
    folders = sorted(glob.glob(os.path.join(HERE, "*", "filters.gz")))
    assert folders, "there is no version"
    for path in folders:
        with gzip.open(path, "rt") as file:
            kept, folder = json.load(file), os.path.dirname(path)
        filters = kept["filters"]
        read_daemon(folder, filters, kept["database"])
        if os.environ.get("BLOOMERY_ENGINE"):
            read_module(folder, filters)
        print(f"{os.path.basename(folder)}: {len(filters)} filters")
    if not os.environ.get("BLOOMERY_ENGINE"):
        print("the module's values are left out: there is no redis-server")


if __name__ == "__main__":
    main()
