#!/usr/bin/env python3
"""`take-over yes`: the module in RedisBloom's place. The engine starts with files of the recorded values of RedisBloom, byte for
byte, continues with them, and saves the same bytes as RedisBloom."""
import json
import os
import random
import re
import sys

from engines import Engine, Error, commands_of, encoded, in_sync, items, replica_of, rewritten, run, wait_until
from recorded_rdb import crc64

GOLDEN = os.environ["BLOOMERY_GOLDEN"]
TAKE_OVER = ("take-over", "yes")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def folders():
    for parent, _, files in os.walk(GOLDEN):
        if "dump.bin" in files:
            yield os.path.relpath(parent, GOLDEN)


FOLDERS = sorted(folders())


def read(folder, name):
    with open(os.path.join(GOLDEN, folder, name), "rb") as file:
        return file.read()


def value(dump):
    """A dump's value with its type, without the version and the checksum."""
    return dump[:-10]


def rows(folder, table):
    for line in read(folder, table).decode().splitlines():
        if not line.startswith("#"):
            item, answer = line.split("\t")
            yield bytes.fromhex(item), answer


def length(n):
    return bytes([n]) if n < 64 else bytes([64 | n >> 8, n & 255])


def rdb(values):
    """An RDB file of these values: pairs of a name and DUMP's result."""
    data = b"REDIS0009\xfe\x00"
    for name, dump in values.items():
        data += dump[:1] + length(len(name)) + name.encode() + value(dump)[1:]
    data += b"\xff"
    return data + crc64(data).to_bytes(8, "little")


def recorded():
    return {folder: read(folder, "dump.bin") for folder in FOLDERS}


def engine_on(file, *arguments):
    """An engine that starts on an RDB file."""
    def place(engine):
        with open(os.path.join(engine.directory, "dump.rdb"), "wb") as out:
            out.write(file)
    return Engine(*arguments, module=TAKE_OVER, before=place)


def answers_as_recorded(engine, folder, name):
    probes = list(rows(folder, "probes.tsv"))
    assert engine("BF.MEXISTS", name, *(item for item, _ in probes)) == [int(answer) for _, answer in probes], name


def adds_as_recorded(engine, folder, name):
    for item, answer in rows(folder, "more.tsv"):
        got = engine.try_call("BF.ADD", name, item)
        assert isinstance(got, Error) if answer.startswith("ERR") else got == int(answer), (folder, item, got, answer)
    after = json.loads(read(folder, "meta.json"))["info_after_more"]
    assert engine("BF.CARD", name) == after["Number of items inserted"]
    assert engine("BF.INFO", name, "CAPACITY") == [after["Capacity"]]


def test_a_file_of_redisbloom_is_served_and_saved_as_it_was():
    engine = engine_on(rdb(recorded()))
    assert engine("DBSIZE") == len(FOLDERS)
    for folder in FOLDERS:
        assert engine("TYPE", folder) == "MBbloom--"
        answers_as_recorded(engine, folder, folder)
        dump = read(folder, "dump.bin")
        assert value(engine("DUMP", folder)) == value(dump), folder
        if folder.startswith("v2.8.20") and engine("INFO", "server").find(b"redis_version:7.0") >= 0:
            assert engine("DUMP", folder) == dump, folder  # of the same engine: to the last byte
    engine("SAVE")
    with open(os.path.join(engine.directory, "dump.rdb"), "rb") as file:
        saved = file.read()
    for folder in FOLDERS:
        assert value(read(folder, "dump.bin"))[1:] in saved, folder
    digest = engine.digest()
    for folder in FOLDERS:
        adds_as_recorded(engine, folder, folder)
    assert engine.digest() != digest
    digest = engine.digest()
    engine("SAVE")
    engine.stop()
    engine.start()
    assert engine.digest() == digest
    for folder in FOLDERS:
        added = [item for item, answer in rows(folder, "more.tsv") if not answer.startswith("ERR")]
        assert not added or engine("BF.MEXISTS", folder, *added) == [1] * len(added)


def test_a_file_that_redisbloom_wrote():
    """The whole file as Redis with RedisBloom saved it, with the adds of more.tsv."""
    with open(os.path.join(GOLDEN, "v2.8.20", "mixed.rdb"), "rb") as file:
        written = file.read()
    engine = engine_on(written)
    assert engine("DBSIZE") == 3 and stops_the_way_back(engine) == []
    for folder in (folder for folder in FOLDERS if folder.startswith("v2.8.20")):
        name = "g:" + os.path.basename(folder)
        added = [item for item, answer in rows(folder, "more.tsv") if not answer.startswith("ERR")]
        assert not added or engine("BF.MEXISTS", name, *added) == [1] * len(added)
        after = json.loads(read(folder, "meta.json"))["info_after_more"]
        assert engine("BF.CARD", name) == after["Number of items inserted"]
        assert value(engine("DUMP", name))[1:] in written


def test_dumps_and_chunks_are_taken_and_given_back():
    engine = Engine(module=TAKE_OVER)
    for folder in FOLDERS:
        chunks = json.loads(read(folder, "scandump.json"))
        for name, order in ((f"{folder}-c", chunks), (f"{folder}-shuffled", chunks[:1] + random.Random(1).sample(
                chunks[1:], len(chunks) - 1))):
            for chunk in order:
                data = bytes.fromhex(chunk["hex"])
                if data:
                    assert engine("BF.LOADCHUNK", name, chunk["iterator"], data) == "OK"
                    assert engine("BF.LOADCHUNK", name, chunk["iterator"], data) == "OK"  # once more changes nothing
            answers_as_recorded(engine, folder, name)
            assert engine("TYPE", name) == "MBbloom--"
            assert value(engine("DUMP", name)) == value(read(folder, "dump.bin")), folder
        iterator, again = 0, b""
        while True:
            iterator, data = engine("BF.SCANDUMP", f"{folder}-c", iterator)
            if iterator == 0:
                break
            again += data
        assert again == b"".join(bytes.fromhex(chunk["hex"]) for chunk in chunks)
        if folder.startswith("v2.8.20"):  # dumps of newer engines state a version of RDB that this one may refuse
            assert engine("RESTORE", folder, "0", read(folder, "dump.bin")) == "OK"
            adds_as_recorded(engine, folder, folder)


def rewritten_log(values, header="1"):
    """The commands of RedisBloom's rewritten log for these values; old versions gave the header another iterator."""
    for folder in values:
        for chunk in json.loads(read(folder, "scandump.json")):
            data = bytes.fromhex(chunk["hex"])
            if data:
                yield ("BF.LOADCHUNK", folder, header if chunk["iterator"] == 1 else str(chunk["iterator"]), data)


def engine_on_log(base, commands, *module):
    def place(engine):
        folder = os.path.join(engine.directory, "appendonlydir")
        os.mkdir(folder)
        with open(os.path.join(folder, "appendonly.aof.1.base" + (".rdb" if base[:5] == b"REDIS" else ".aof")), "wb") as out:
            out.write(base)
        with open(os.path.join(folder, "appendonly.aof.1.incr.aof"), "wb") as out:
            out.write(b"".join(map(encoded, commands)))
        with open(os.path.join(folder, "appendonly.aof.manifest"), "w", encoding="ascii") as out:
            for name, kind in ((os.path.basename(name), name.split(".")[-2][0]) for name in sorted(os.listdir(folder))
                               if "manifest" not in name):
                out.write(f"file {name} seq 1 type {kind}\n")
    return Engine(*ALWAYS, module=TAKE_OVER + module, before=place)


def test_a_log_of_redisbloom_is_served():
    """With both forms of the base, and the commands of RedisBloom's clients; under any settings."""
    told = [("BF.ADD", "made", "a"), ("BF.RESERVE", "r", "0.001", "50"), ("BF.MADD", "r", *items("r", 200)),
            ("BF.RESERVE", "fixed", "0.01", "10", "NONSCALING"), ("BF.MADD", "fixed", *items("f", 20)),
            ("BF.INSERT", "i", "CAPACITY", "7", "ERROR", "0.02", "EXPANSION", "3", "ITEMS", *items("i", 100)),
            ("BF.ADD", FOLDERS[0], "new"), ("PEXPIREAT", "r", "99999999999999")]
    for layout in ("redisbloom", "na"):
        for base in (rdb(recorded()), b"".join(map(encoded, rewritten_log(FOLDERS))),
                     b"".join(map(encoded, rewritten_log(FOLDERS, "0")))):
            engine = engine_on_log(base, told, "bf-layout", layout)
            assert engine("DBSIZE") == len(FOLDERS) + 4, engine("KEYS", "*")
            for folder in FOLDERS[1:]:
                answers_as_recorded(engine, folder, folder)
                assert value(engine("DUMP", folder)) == value(read(folder, "dump.bin")), folder
            for key in ("made", "r", "fixed", "i"):
                assert engine("TYPE", key) == "MBbloom--"
            assert engine("BF.MEXISTS", "r", *items("r", 200)) == [1] * 200
            assert engine("BF.INFO", "fixed", "ITEMS") == [10] and engine("BF.INFO", "i", "FILTERS")[0] > 2
            rewritten(engine, "BGREWRITEAOF")
            digest = engine.digest()
            engine.kill()
            engine.start()
            assert engine.digest() == digest


def test_a_log_and_a_primary_are_refused_by_no_limit():
    """The log has RedisBloom's command for the creation of a filter."""
    engine = Engine(*ALWAYS, module=TAKE_OVER)
    use(engine)
    engine("BF.RESERVE", "megabytes", "0.01", "1500000")
    digest = engine.digest()
    engine.kill()
    engine.module += ["bf-max-filter-bytes", "1"]
    engine.arguments += ["--maxmemory", "1mb"]
    engine.start()
    assert engine.digest() == digest
    replica = replica_of(engine, *ALWAYS, "--maxmemory", "1mb", module=TAKE_OVER + ("bf-max-filter-bytes", "1"))
    for name, value in (("maxmemory", "0"), ("bloomery.bf-max-filter-bytes", "0")):
        engine("CONFIG", "SET", name, value)
    engine("BF.RESERVE", "more", "0.01", "1500000")
    engine("BF.MADD", "scaling", *items("more", 3000))
    digest = in_sync(engine, replica)
    rewritten(replica)  # its log begins anew with what it got from the primary
    replica.kill()
    replica.arguments = replica.arguments[2:]  # from its own log alone
    replica.start()
    assert replica.digest() == digest
    assert str(replica.try_call("BF.RESERVE", "x", "0.01", "1500000")).startswith("OOM")


THEIRS = {b"BF.RESERVE", b"BF.ADD", b"BF.MADD", b"BF.LOADCHUNK", b"BF.INSERT", b"SELECT", b"MULTI", b"EXEC", b"DEL", b"SET",
          b"PEXPIREAT"}


def use(engine):
    """Every change that clients of RedisBloom can make."""
    engine("BF.ADD", "auto", "a")
    engine("BF.RESERVE", "scaling", "0.001", "50")
    for batch in range(20):
        engine("BF.MADD", "scaling", *items("s", 40, 20 * batch))
    engine("BF.RESERVE", "fixed", "0.3", "100", "NONSCALING")
    engine("BF.MADD", "fixed", *items("f", 110))
    engine("BF.INSERT", "inserted", "CAPACITY", "10", "EXPANSION", "4", "ITEMS", *items("i", 300))
    for chunk in json.loads(read(FOLDERS[2], "scandump.json")):
        if chunk["hex"]:
            engine("BF.LOADCHUNK", "loaded", chunk["iterator"], bytes.fromhex(chunk["hex"]))
    engine("BF.ADD", "loaded", "one more")
    engine("EXPIRE", "scaling", "100000")


def test_a_log_that_redisbloom_can_read():
    """The log has RedisBloom's commands only, also on a replica, and gives the same bits."""
    primary = Engine(*ALWAYS, module=TAKE_OVER)
    replica = replica_of(primary, *ALWAYS, module=TAKE_OVER + ("bf-layout", "na", "bf-error-rate", "0.2"))
    rewritten(replica)  # of what the full synchronisation has brought
    use(primary)
    digest = in_sync(primary, replica)
    assert primary("SCAN", 0, "COUNT", 1000, "TYPE", "bloomery1")[1] == []
    for engine in (primary, replica):
        path, told = os.path.join(engine.directory, "appendonlydir"), set()
        for name in os.listdir(path):
            if ".incr." in name:
                told |= {words[0].upper() for words in commands_of(os.path.join(path, name))}
        assert told <= THEIRS and b"BF.RESERVE" in told and b"BF.MADD" in told, told
    replica("REPLICAOF", "NO", "ONE")
    del replica.arguments[:2]  # from its own log alone
    for engine in (primary, replica):
        engine.kill()
        engine.start()
        assert engine.digest() == digest
        for preamble in ("no", "yes"):
            engine("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
            rewritten(engine, "BGREWRITEAOF")
            engine.kill()
            engine.start()
            assert engine.digest() == digest


def stops_the_way_back(engine):
    """The list of docs/CLUSTER.md."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "docs", "CLUSTER.md"), encoding="utf-8") as file:
        script = re.search(r"redis-cli EVAL '(.*?)' 0", file.read(), re.S).group(1)
    return engine("EVAL", script, "0")


def test_replicas_are_exact():
    """From a file of RedisBloom, by full synchronisation and from the stream, with growth and with Bloomery's own commands."""
    engine = engine_on(rdb(recorded()))
    replicas = [replica_of(engine, "--repl-diskless-load", load, module=TAKE_OVER + ("bf-initial-size", "7"))
                for load in ("disabled", "swapdb")]
    use(engine)
    for folder in FOLDERS:
        adds_as_recorded(engine, folder, folder)
        engine.try_call("BF.MADD", folder, *items("grow", 3000))
    engine("BF.RESERVE", "own", "0.01", "100", "LAYOUT", "NA")
    engine("BF.MERGE", "union", "inserted", "inserted")
    engine("BF.CLEAR", "loaded")
    engine("COPY", "scaling", "copied")
    in_sync(engine, *replicas)
    assert engine("TYPE", "union") == engine("TYPE", "copied") == engine("TYPE", "loaded") == "MBbloom--"
    assert stops_the_way_back(engine) == [b"own"]


def test_a_replica_needs_take_over_as_its_primary_has_it():
    """Without take-over a replica names the type and ends; the other way round it follows (docs/CLUSTER.md)."""
    primary = Engine(module=TAKE_OVER)
    use(primary)
    replica = Engine("--replicaof", f"127.0.0.1 {primary.port}", wait=False)
    wait_until(lambda: replica.process.poll() is not None, "the replica ends")
    assert "no matching module type 'MBbloom--'" in replica.output(), replica.output()
    replica.module = list(TAKE_OVER)
    replica.start()
    wait_until(lambda: replica.info("replication", "master_link_status") == "up", "the replica is in sync")
    in_sync(primary, replica)
    plain = Engine()
    plain("BF.INSERT", "f", "LAYOUT", "redisbloom", "ITEMS", *items("f", 300))
    in_sync(plain, replica_of(plain, module=TAKE_OVER))


def test_half_of_a_filter():
    """It answers errors, also after a copy or a move; the rest of its chunks may follow, and its time to live stays."""
    for module in (TAKE_OVER, ()):
        engine = Engine(*ALWAYS, module=module)
        replica = replica_of(engine, module=module)
        folder = "scaled_6_layers"
        chunks = [(chunk["iterator"], bytes.fromhex(chunk["hex"])) for chunk in json.loads(read(folder, "scandump.json"))]
        chunks = [chunk for chunk in chunks if chunk[1]]
        assert len(chunks) > 3
        for iterator, data in [chunks[0]] + chunks[2::2]:
            assert engine("BF.LOADCHUNK", "half", iterator, data) == "OK"
        engine("PEXPIRE", "half", "500000")
        engine("COPY", "half", "copied")

        def check():
            assert "being loaded" in str(engine.try_call("BF.EXISTS", "half", "a"))
            assert "being loaded" in str(engine.try_call("BF.ADD", "copied", "a"))
            assert 0 < engine("PTTL", "half") <= 500000
            assert engine("TYPE", "half") == "bloomery1"
        check()
        digest = in_sync(engine, replica)
        for preamble in ("yes", "no", None):
            if preamble:
                engine("CONFIG", "SET", "aof-use-rdb-preamble", preamble)
                rewritten(engine, "BGREWRITEAOF")
            engine.kill()
            engine.start()
            assert engine.digest() == digest
            check()
        engine("RESTORE", "moved", "0", engine("DUMP", "half"))
        engine("PEXPIRE", "moved", "500000")
        for key in ("half", "copied", "moved"):
            for iterator, data in chunks[1::2]:
                assert engine("BF.LOADCHUNK", key, iterator, data) == "OK"
            answers_as_recorded(engine, folder, key)
            assert engine("TYPE", key) == ("MBbloom--" if module else "bloomery1")
        assert 0 < engine("PTTL", "half") <= 500000
        wait_until(lambda: replica.info("replication", "master_link_status") == "up", "the replica is in sync")
        in_sync(engine, replica)


def test_what_is_not_taken_over():
    engine = Engine()
    assert isinstance(engine.try_call("RESTORE", "f", "0", read("v2.8.20/n1000_p0.01", "dump.bin")), Error)
    engine("BF.RESERVE", "f", "0.01", "100", "LAYOUT", "REDISBLOOM")
    assert engine("TYPE", "f") == "bloomery1"
    engine("CONFIG", "SET", "bloomery.bf-layout", "redisbloom")
    engine("BF.ADD", "g", "a")
    assert b"redisbloom" in engine("BF.INFO", "g", "FULL")
    dumps = engine("DUMP", "f"), engine("DUMP", "g")
    other = Engine(module=TAKE_OVER)  # values that were saved before stay of the type that they have
    for name, dump in zip("fg", dumps):
        other("RESTORE", name, "0", dump)
        other("PEXPIRE", name, "500000")
        other("BF.ADD", name, "b")
        assert other("TYPE", name) == "bloomery1"
    other("BF.CLEAR", "f")
    assert other("TYPE", "f") == "MBbloom--" and 0 < other("PTTL", "f") <= 500000
    other("CONFIG", "SET", "bloomery.bf-layout", "na")
    other("BF.ADD", "own", "a")
    assert other("TYPE", "own") == "bloomery1"


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
