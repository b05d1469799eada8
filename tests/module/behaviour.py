#!/usr/bin/env python3
"""The module as a part of its engine: loading, settings, WATCH, events, access, memory, and the engine's own commands on
filters."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

from engines import ENGINE, MODULE, Engine, Error, free_port, in_sync, items, replica_of, run, wait_until


def output_of_start(*arguments):
    """The output of an engine that ends at once."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([ENGINE, "--port", str(free_port()), "--bind", "127.0.0.1", "--dir", directory, "--save", "",
                               *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240, check=False)
    assert done.returncode != 0
    return done.stdout.decode(errors="replace")


def test_a_taken_name_and_a_wrong_argument_are_explained():
    second = os.path.join(tempfile.mkdtemp(prefix="bloomery-module-"), "other.so")
    shutil.copy(MODULE, second)
    text = output_of_start("--loadmodule", MODULE, "--loadmodule", second)
    assert "bloomery" in text and ("cannot be registered" in text or "already" in text), text
    for words, why in ((("bf-error-rate", "2"), "above 0 and below 1"), (("bf-error-rate",), "has no value"),
                       (("nonsense", "1"), "no such setting"), (("prefix", "a b"), "letters"),
                       (("bf-auto-create", "maybe"), "it must be no, yes")):
        text = output_of_start("--loadmodule", MODULE, *words)
        assert why in text, text
    os.remove(second)
    os.rmdir(os.path.dirname(second))


def test_a_second_load_leaves_the_running_module_as_it_is():
    engine = Engine("--enable-module-command", "yes", "--appendonly", "yes", "--appendfsync", "always",
                    module=("bf-initial-size", "50"))
    other = os.path.join(engine.directory, "other.so")
    shutil.copy(MODULE, other)
    engine("BF.MADD", "f", "a", "b")
    engine("CF.ADD", "c", "a")
    for n, words in enumerate((("LOAD", MODULE), ("LOAD", MODULE, "bf-error-rate", "2"), ("LOAD", MODULE, "prefix", "other"),
                               ("LOAD", MODULE, "take-over", "yes"), ("LOAD", MODULE, "bf-initial-size", "7"), ("LOAD", other),
                               ("LOADEX", MODULE, "CONFIG", "bloomery.bf-initial-size", "7"),
                               ("LOADEX", MODULE, "CONFIG", "bloomery.nonsense", "7"))):
        assert isinstance(engine.try_call("MODULE", *words), Error), words
        assert engine("BF.MEXISTS", "f", "a", "b", "z") == [1, 1, 0] and engine("CF.EXISTS", "c", "a") == 1, words
        assert engine("BF.ADD", f"new{n}", "x") == 1 and engine("TYPE", f"new{n}") == "bloomery1"
        assert engine("BF.INFO", f"new{n}", "CAPACITY") == [50]
        assert engine("CONFIG", "GET", "bloomery.bf-initial-size")[1] == b"50"
        assert engine("BF.ADD", "f", f"x{n}") == 1 and engine("CF.ADD", "c", f"x{n}") == 1
        engine("DUMP", f"new{n}")
        engine("SAVE")
    assert "already loaded" in engine.output()
    engine.kill()
    engine.start()
    assert engine("BF.MEXISTS", "f", *items("x", n + 1)) == [1] * (n + 1)
    assert engine("CF.MEXISTS", "c", *items("x", n + 1)) == [1] * (n + 1)


def test_a_load_that_failed_can_be_repeated():
    engine = Engine("--enable-module-command", "yes", loads=False)
    for words in (("LOAD", MODULE, "bf-error-rate", "2"), ("LOADEX", MODULE, "ARGS", "bf-layout", "x")):
        assert isinstance(engine.try_call("MODULE", *words), Error), words
    engine("MODULE", "LOAD", MODULE, "bf-initial-size", "50")
    assert engine("BF.ADD", "f", "x") == 1 and engine("BF.INFO", "f", "CAPACITY") == [50]
    engine("DEBUG", "RELOAD")
    assert engine("BF.EXISTS", "f", "x") == 1


def test_another_prefix():
    engine = Engine(module=("prefix", "BLOOM"))
    assert engine("bloom.add", "f", "x") == 1 and engine("BLOOM.EXISTS", "f", "x") == 1
    assert "unknown command" in str(engine.try_call("BF.ADD", "f", "x"))
    engine("DEBUG", "RELOAD")
    assert engine("bloom.exists", "f", "x") == 1


def test_settings_by_arguments_and_config():
    engine = Engine(module=("bf-error-rate", "0.25", "bf-initial-size", "50"))
    engine("BF.ADD", "f", "x")
    assert engine("BF.INFO", "f", "CAPACITY") == [50] and engine("BF.INFO", "f", "ERRORRATE") == [b"0.25"]
    for name, value, shown in (("bf-error-rate", "0.125", b"0.125"), ("bf-initial-size", "7", b"7"),
                               ("bf-expansion-factor", "0", b"0"), ("bf-max-filter-bytes", "1mb", b"1048576")):
        assert engine("CONFIG", "SET", "bloomery." + name, value) == "OK"
        assert engine("CONFIG", "GET", "bloomery." + name)[1] == shown
    engine("BF.ADD", "g", "x")
    assert engine("BF.INFO", "g", "CAPACITY") == [7] and engine("BF.INFO", "g", "EXPANSION") == [None]
    assert "limit for one filter" in str(engine.try_call("BF.RESERVE", "h", "0.01", "10000000"))
    engine("CONFIG", "SET", "bloomery.bf-missing-filter-reply", "error")
    assert "not found" in str(engine.try_call("BF.EXISTS", "none", "x"))
    engine("CONFIG", "SET", "bloomery.bf-missing-filter-reply", "null")
    assert engine("BF.MEXISTS", "none", "x", "y") == [None, None]
    engine("CONFIG", "SET", "bloomery.bf-auto-create", "no")
    assert "not found" in str(engine.try_call("BF.ADD", "none", "x"))
    for name, value in (("bf-error-rate", "1"), ("bf-initial-size", "0"), ("bf-missing-filter-reply", "perhaps")):
        assert isinstance(engine.try_call("CONFIG", "SET", "bloomery." + name, value), Error)


def test_watch_fails_only_when_something_changed():
    engine = Engine()
    engine("BF.MADD", "f", "a", "b")
    engine("BF.RESERVE", "g", "0.01", "100")
    engine("BF.ADD", "h", "x")
    other = engine.connect()
    for words, changes in ((("BF.ADD", "f", "a"), False), (("BF.MADD", "f", "a", "b"), False),
                           (("BF.INSERT", "f", "ITEMS", "b"), False), (("BF.EXISTS", "f", "zz"), False),
                           (("BF.INFO", "f", "FULL"), False), (("BF.RESERVE", "f", "0.1", "10"), False),
                           (("BF.FALSEPOSITIVE", "f"), False), (("BF.SCANDUMP", "f", "0"), False),
                           (("BF.ADD", "f", "new"), True), (("BF.MADD", "f", "a", "new2"), True),
                           (("BF.MERGE", "f", "g"), False), (("BF.MERGE", "f", "f"), False), (("BF.CLEAR", "f"), True),
                           (("BF.CLEAR", "f"), False), (("BF.MERGE", "f", "h"), True), (("DEL", "f"), True),
                           (("BF.ADD", "f", "again"), True)):
        engine("WATCH", "f")
        other.try_call(*words)
        engine("MULTI")
        engine("PING")
        assert (engine("EXEC") is None) == changes, words


def test_clear_of_an_empty_filter_begins_its_counts_anew():
    engine = Engine()
    engine("BF.RESERVE", "f", "0.01", "100")
    engine("BF.EXISTS", "f", "x")
    assert engine("BF.INFO", "f", "MISSES") == [1]
    assert engine("BF.CLEAR", "f") == "OK"
    assert engine("BF.INFO", "f", "MISSES") == [0]


def test_a_union_that_adds_nothing_keeps_the_counts():
    engine = Engine()
    for shape in (("CAPACITY", "100"), ("CAPACITY", "500", "WINDOW", "600", "PARTS", "3"), ("LAYOUT", "redisbloom")):
        engine("BF.INSERT", "f", *shape, "ITEMS", "a", "b", "c")
        engine("BF.INSERT", "g", *shape, "ITEMS", "b")
        engine("BF.MERGE", "f", "g")
        assert engine("BF.MEXISTS", "f", "a", "z") == [1, 0]
        for words in (("f", "f"), ("f", "g"), ("f", "g", "f", "g")):
            assert engine("BF.MERGE", *words) == "OK"
        assert engine("BF.INFO", "f", "HITS") == [1] and engine("BF.INFO", "f", "MISSES") == [1]
        engine("DEL", "f", "g")


def test_events_of_filters():
    engine = Engine("--notify-keyspace-events", "KEA")
    listener = engine.connect()
    listener("PSUBSCRIBE", "__keyevent@0__:bloom.*")
    engine("BF.RESERVE", "f", "0.01", "10", "NONSCALING")
    engine("BF.MADD", "f", *items("x", 9))
    engine("BF.ADD", "f", "last")
    engine("BF.RESERVE", "g", "0.01", "10")
    engine("BF.MADD", "g", *items("x", 12))
    engine("BF.CLEAR", "g")
    engine("COPY", "g", "g2")
    engine("BF.ADD", "g2", "x")
    engine("BF.MERGE", "g", "g2")
    engine("BF.MERGE", "g", "g2")  # once more changes nothing
    iterator = 0
    while True:
        iterator, chunk = engine("BF.SCANDUMP", "g", iterator)
        if iterator == 0:
            break
        engine("BF.LOADCHUNK", "h", iterator, chunk)
    got = []
    for _ in range(7):
        message = listener.reply()
        got.append((message[2].decode().split(":")[1], message[3].decode()))
    assert got == [("bloom.reserve", "f"), ("bloom.full", "f"), ("bloom.reserve", "g"), ("bloom.grow", "g"),
                   ("bloom.clear", "g"), ("bloom.merge", "g"), ("bloom.load", "h")], got


def test_access_by_commands_and_keys():
    engine = Engine()
    engine("BF.ADD", "mine", "x")
    engine("BF.ADD", "other", "x")
    # Engines before 7.2 give the commands of modules no category but @all.
    categories = b"bf.exists" in engine("ACL", "CAT", "read")
    reads = ["+@read", "-@write"] if categories else ["+bf.exists"]
    engine("ACL", "SETUSER", "reader", "on", "nopass", "%R~mine", *reads)
    engine("ACL", "SETUSER", "writer", "on", "nopass", "~mine", "+@all")
    reader, writer = engine.connect(), engine.connect()
    reader("AUTH", "reader", "x")
    writer("AUTH", "writer", "x")
    assert reader("BF.EXISTS", "mine", "x") == 1 and writer("BF.ADD", "mine", "y") == 1
    for client, words in ((reader, ("BF.ADD", "mine", "z")), (reader, ("BF.EXISTS", "other", "x")),
                          (writer, ("BF.ADD", "other", "x")), (writer, ("BF.MERGE", "mine", "other"))):
        assert str(client.try_call(*words)).startswith("NOPERM"), words


def test_a_union_only_reads_its_sources():
    engine = Engine()
    for name in ("mine", "read", "written"):
        engine("BF.ADD", name, "x" + name)
    assert engine("COMMAND", "GETKEYSANDFLAGS", "BF.MERGE", "a", "b", "c") == [
        [b"a", ["RW", "access", "update"]], [b"b", ["RO", "access"]], [b"c", ["RO", "access"]]]
    engine("ACL", "SETUSER", "user", "on", "nopass", "~mine", "%R~read", "%W~written", "+@all")
    user = engine.connect()
    user("AUTH", "user", "x")
    assert user("BF.MERGE", "mine", "read", "mine") == "OK" and user("BF.EXISTS", "mine", "xread") == 1
    for words in (("BF.MERGE", "read", "mine"), ("BF.MERGE", "mine", "written"), ("BF.MERGE", "written", "mine"),
                  ("BF.MERGE", "mine", "read", "other")):
        assert str(user.try_call(*words)).startswith("NOPERM"), words


def test_what_command_says():
    engine = Engine()
    documents = engine("COMMAND", "DOCS", "bf.reserve", "bf.merge", "bf.plan")
    assert len(documents) == 6
    summary = dict(zip(documents[1][::2], documents[1][1::2]))[b"summary"]
    assert summary == b"Creates a new Bloom Filter"
    info = engine("COMMAND", "INFO", "bf.add", "bf.exists", "bf.loadchunk", "bf.nosuch")
    assert info[3] is None and info[0][1] == 3 and "write" in map(str, info[0][2]) and "denyoom" in map(str, info[0][2])
    assert "readonly" in map(str, info[1][2]) and "denyoom" not in map(str, info[2][2])
    assert engine("COMMAND", "GETKEYS", "BF.MERGE", "a", "b", "c") == [b"a", b"b", b"c"]
    assert engine("COMMAND", "GETKEYSANDFLAGS", "BF.EXISTS", "k", "x") == [[b"k", ["RO", "access"]]]
    assert "wrong number of arguments" in str(engine.try_call("BF.ADD", "f"))


def test_memory_is_the_engines():
    engine = Engine("--maxmemory", "20mb")
    before = int(engine.info("memory", "used_memory"))
    engine("BF.RESERVE", "f", "0.01", "4000000")
    size = engine("BF.INFO", "f", "SIZE")[0]
    grown = int(engine.info("memory", "used_memory")) - before
    assert size > 4 << 20 and size <= grown < size * 1.3, (size, grown)
    assert size <= engine("MEMORY", "USAGE", "f") < size * 1.1
    for words in (("BF.RESERVE", "g", "0.01", "40000000"), ("BF.INSERT", "g", "CAPACITY", "40000000", "ITEMS", "x"),
                  ("BF.RESERVE", "g", "1e-6", "10000000000000"), ("BF.RESERVE", "g", "0.01", "4000000000")):
        reply = str(engine.try_call(*words))
        assert reply.startswith(("OOM", "ERR")), reply
    assert engine("EXISTS", "g") == 0
    chunk = engine("BF.SCANDUMP", "f", "0")
    engine("COPY", "f", "f2")
    engine("COPY", "f", "f3")
    assert isinstance(engine.try_call("BF.LOADCHUNK", "f4", *chunk), Error)
    assert isinstance(engine.try_call("BF.MERGE", "f5", "f"), Error)
    engine("DEL", "f", "f2", "f3")
    wait_until(lambda: int(engine.info("memory", "used_memory")) < before + (1 << 20), "it is free again")  # by UNLINK
    # Growth is refused where maxmemory is, and the filter goes on to answer.
    engine("BF.RESERVE", "small", "0.01", "200000", "EXPANSION", "8")
    engine("CONFIG", "SET", "maxmemory", int(engine.info("memory", "used_memory")) + (1 << 20))
    last = [engine("BF.MADD", "small", *items("x", 10000, i * 10000))[-1] for i in range(21)]
    assert not isinstance(last[-2], Error) and "maxmemory" in str(last[-1]), last
    assert engine("BF.MEXISTS", "small", *items("x", 1000)) == [1] * 1000


def when_freed(engine, *words):
    """An engine frees what it evicts in the background, and refuses writes where a busy machine lets it do so too late."""
    deadline = time.monotonic() + 60
    while True:
        reply = engine.try_call(*words)
        if not (isinstance(reply, Error) and str(reply).startswith("OOM command not allowed")):
            return reply
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


def test_an_eviction_policy_makes_room_for_large_filters():
    engine = Engine("--maxmemory", "20mb", "--maxmemory-policy", "volatile-lru")
    engine("BF.RESERVE", "stays", "0.01", "2000000")
    engine("BF.RESERVE", "grows", "0.01", "1000000", "EXPANSION", "1")
    for i in range(20):
        for words in (("BF.RESERVE", f"f{i}", "0.01", "2000000"), ("CF.RESERVE", f"c{i}", "2097152")):
            assert when_freed(engine, *words) == "OK", words
            engine("EXPIRE", words[1], "1000")
    assert int(engine.info("stats", "evicted_keys")) > 20
    for i in range(22):
        assert not any(isinstance(reply, Error) for reply in when_freed(engine, "BF.MADD", "grows", *items("x", 50000, i * 50000)))
    header = engine("BF.SCANDUMP", "stays", "0")
    assert when_freed(engine, "BF.LOADCHUNK", "loading", *header) == "OK"
    assert when_freed(engine, "BF.MERGE", "union", "stays") == "OK" and when_freed(engine, "COPY", "stays", "copy") == 1
    for words in (("BF.RESERVE", "g", "0.01", "40000000"), ("CF.RESERVE", "g", "40000000")):
        assert str(engine.try_call(*words)).startswith("OOM") and "maxmemory" in str(engine.try_call(*words)), words


def half_of(engine, name):
    """The dump of a filter of which only the header has come, and then one piece."""
    chunks = [engine("BF.SCANDUMP", name, "0")]
    chunks.append(engine("BF.SCANDUMP", name, chunks[0][0]))
    for chunk in chunks:
        engine("BF.LOADCHUNK", "half", *chunk)
        yield engine("DUMP", "half")
    engine("DEL", "half")


def test_limits_hold_for_each_way_in():
    source = Engine()
    source("BF.RESERVE", "na", "0.01", "8000000")
    source("BF.RESERVE", "theirs", "0.01", "8000000", "LAYOUT", "REDISBLOOM")
    source("BF.RESERVE", "window", "0.01", "1000000", "WINDOW", "60")
    source("BF.ADD", "window", "x")
    source("CF.RESERVE", "cuckoo", "8000000")
    source("BF.INSERT", "grown", "CAPACITY", "2000", "EXPANSION", "8", "LAYOUT", "REDISBLOOM", "ITEMS", *items("x", 20000))
    values = {name: source("DUMP", name) for name in ("na", "theirs", "window", "cuckoo", "grown")}
    for name in ("na", "theirs"):
        for i, value in enumerate(half_of(source, name)):
            values[f"{name}, {i + 1} of its chunks"] = value
    assert len(values["na, 1 of its chunks"]) < 200 and len(values["theirs, 1 of its chunks"]) < 200
    for arguments, module, reason in (((), ("bf-max-filter-bytes", "50000"), "limit for one filter"),
                                      (("--maxmemory", "16mb"), (), "maxmemory")):
        target = Engine(*arguments, module=module)
        if arguments:
            target("BF.RESERVE", "fills", "0.01", "8000000")
        used = int(target.info("memory", "used_memory"))
        refused = [name for name, value in values.items() if isinstance(target.try_call("RESTORE", name, "0", value), Error)]
        expected = set(values) - (set() if not arguments else {"window", "grown"})
        assert set(refused) >= expected, (arguments, set(refused) ^ expected)
        assert reason in target.output()
        assert int(target.info("memory", "used_memory")) < used + (8 << 20)
    # What exists already is copied within the limit alone.
    target("DEL", "window", "grown")
    assert "failed to copy" in str(target.try_call("COPY", "fills", "copy"))
    target("CONFIG", "SET", "maxmemory", "0")
    assert target("COPY", "fills", "copy") == 1
    target("CONFIG", "SET", "bloomery.bf-max-filter-bytes", "1mb")
    assert "failed to copy" in str(target.try_call("COPY", "fills", "copy2"))
    assert "limit for one filter" in str(target.try_call("BF.MERGE", "union", "fills"))
    # A replica and a file are followed, with a warning.
    digest = source.digest()
    follower = replica_of(source, module=("bf-max-filter-bytes", "50000"))
    assert follower.digest() == digest
    source("COPY", "na", "na2")
    source("RESTORE", "half", "0", values["theirs, 1 of its chunks"])
    source("BF.MERGE", "na3", "na")
    in_sync(source, follower)
    assert follower.output().count("loaded all the same") >= 5


def test_single_items_of_filters_that_change():
    """A single add or query guesses that its filter is the one of the previous command. By now the name may have another
    filter, of another size or layout or half loaded, or the database is another one."""
    engine = Engine()
    kinds = [("0.01", "1200000", "LAYOUT", "NA"), ("0.001", "900000", "LAYOUT", "REDISBLOOM"),
             ("0.01", "100", "LAYOUT", "REDISBLOOM"), ("0.0001", "800000", "LAYOUT", "NA", "EXPANSION", "1")]
    for round_ in range(12):
        for database in (0, 1):
            engine("SELECT", database)
            engine("DEL", "f")
            engine("BF.RESERVE", "f", *kinds[(round_ + database) % 4])
        for i in range(60):
            engine("SELECT", i % 2)
            mine, other = f"{round_}-{i}", f"{round_}-{i - 1}"
            assert engine("BF.ADD", "f", mine) == 1 and engine("BF.ADD", "f", mine) == 0
            assert engine("BF.EXISTS", "f", mine) == engine("BF.MEXISTS", "f", mine)[0] == 1
            assert engine("BF.EXISTS", "f", other) == engine("BF.MEXISTS", "f", other)[0]
    engine("BF.RESERVE", "grows", "0.0000001", "200000", "EXPANSION", "1")
    for i in range(6):
        engine("BF.MADD", "grows", *items(f"{i}-", 50000))
        engine("BF.ADD", "grows", f"one-{i}")
        assert [engine("BF.EXISTS", "grows", item) for item in items(f"{i}-", 20) + items("one-", i + 1)] == [1] * (21 + i)
    iterator, header = engine("BF.SCANDUMP", "grows", 0)
    engine("DEL", "grows")
    assert engine("BF.EXISTS", "grows", "one-1") == 0
    engine("BF.LOADCHUNK", "grows", iterator, header)
    assert "being loaded" in str(engine.try_call("BF.EXISTS", "grows", "one-1"))
    engine("SET", "plain", "x")
    assert "WRONGTYPE" in str(engine.try_call("BF.EXISTS", "plain", "one-1"))


def test_unlink_and_flush_free_in_the_background():
    engine = Engine()
    for words in (("UNLINK", "f"), ("FLUSHALL", "ASYNC"), ("PEXPIRE", "f", "1")):
        engine("CONFIG", "SET", "lazyfree-lazy-expire", "yes")
        engine("BF.RESERVE", "f", "0.01", "2000000")
        before = int(engine.info("memory", "lazyfreed_objects"))
        engine(*words)
        wait_until(lambda: int(engine.info("memory", "lazyfreed_objects")) > before, f"{words} frees in the background")


def test_the_engines_commands_on_filters():
    engine = Engine()
    engine("BF.MADD", "f", *items("x", 500))
    assert engine("TYPE", "f") == "bloomery1" and engine("OBJECT", "ENCODING", "f") == b"raw"
    assert engine("SCAN", "0", "TYPE", "bloomery1") == [b"0", [b"f"]]
    assert engine("COPY", "f", "g") == 1 and engine("DUMP", "f") == engine("DUMP", "g")
    assert engine("RESTORE", "h", "0", engine("DUMP", "f")) == "OK"
    assert engine("DEBUG", "DIGEST-VALUE", "f") == engine("DEBUG", "DIGEST-VALUE", "h")
    engine("BF.ADD", "h", "one more")
    assert engine("DEBUG", "DIGEST-VALUE", "f") != engine("DEBUG", "DIGEST-VALUE", "h")
    engine("SET", "s", "text")
    for words in (("BF.ADD", "s", "x"), ("BF.INFO", "s"), ("BF.MERGE", "f", "s"), ("BF.MERGE", "s", "f"),
                  ("BF.LOADCHUNK", "s", "1", "x"), ("BF.CLEAR", "s"), ("BF.QUERY", "s", "ITEMS", "x")):
        assert str(engine.try_call(*words)).startswith("WRONGTYPE"), words
    assert "for replication only" in str(engine.try_call("BF.APPLY", "f", "ITEMS", "1"))
    target = Engine()
    assert engine("MIGRATE", "127.0.0.1", target.port, "f", "0", "10000") == "OK"
    assert engine("EXISTS", "f") == 0 and target("BF.MEXISTS", "f", *items("x", 500)) == [1] * 500
    assert target("DUMP", "f") == engine("DUMP", "g")


def test_keyed_filters_in_the_engines_commands():
    """Saves, copies and RESTORE keep them; without the key they answer errors."""
    path = os.path.join(tempfile.mkdtemp(prefix="bloomery-module-"), "keys")
    with open(path, "w", encoding="ascii") as file:  # the id of these bytes: tests/unit/persist/key_file.c
        file.write("54b70391b3deeb2f " + bytes(range(32)).hex() + "\n")
    os.chmod(path, 0o600)
    engine = Engine(module=("bf-key-file", path))
    assert "has the mode" not in engine.output()
    engine("BF.RESERVE", "plain", "0.000001", "1000")
    engine("BF.RESERVE", "f", "0.000001", "1000", "KEYED")
    engine("BF.RESERVE", "w", "0.000001", "1000", "WINDOW", "1000", "KEYED")
    engine("BF.INSERT", "r", "ERROR", "0.000001", "LAYOUT", "redisbloom", "KEYED", "ITEMS", *items("m", 500))
    for name in ("plain", "f", "w"):
        assert engine("BF.MADD", name, *items("m", 500)) == [1] * 500, name
    assert "key" in str(engine.try_call("BF.MERGE", "plain", "f"))
    assert engine("BF.INFO", "f", "KEY") == [b"54b70391b3deeb2f"]
    engine("RESTORE", "restored", 0, engine("DUMP", "f"))
    engine("COPY", "w", "copied")
    engine("DEBUG", "RELOAD")
    names = ("f", "w", "r", "restored", "copied")
    for name in names:
        assert engine("BF.MEXISTS", name, *items("m", 500), "absent") == [1] * 500 + [0], name
    engine("CONFIG", "SET", "bloomery.bf-key-file", "")
    for name in names:
        assert "54b70391b3deeb2f" in str(engine.try_call("BF.ADD", name, "m0")), name
        assert "54b70391b3deeb2f" in str(engine.try_call("BF.EXISTS", name, "m0")), name
    engine("RESTORE", "f", 0, engine("DUMP", "f"), "REPLACE")
    os.chmod(path, 0o644)
    engine("CONFIG", "SET", "bloomery.bf-key-file", path)
    assert f"the key file {path} has the mode 0644: who reads a key" in engine.output()
    assert engine("BF.MEXISTS", "f", *items("m", 500), "absent") == [1] * 500 + [0]


def test_an_expired_filter_is_gone_and_a_ttl_is_kept():
    engine = Engine()
    engine("BF.RESERVE", "short", "0.01", "100", "TTL", "1")
    engine("BF.RESERVE", "f", "0.01", "100", "TTL", "500")
    engine("BF.ADD", "f", "x")
    engine("BF.CLEAR", "f")
    assert 0 < engine("PTTL", "f") <= 500000
    engine("BF.RESERVE", "g", "0.01", "100", "TTL", "500")
    engine("BF.INSERT", "g2", "CAPACITY", "100", "ITEMS", "x")
    engine("BF.MERGE", "g", "g2")
    assert 490000 < engine("PTTL", "g") <= 500000
    engine("BF.ADD", "f", "x")
    engine("PEXPIRE", "f", "1")
    for name in ("short", "f"):
        wait_until(lambda: engine("EXISTS", name) == 0, "it is gone")
        assert engine("BF.EXISTS", name, "x") == 0


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
