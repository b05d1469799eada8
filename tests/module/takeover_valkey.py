#!/usr/bin/env python3
"""`take-over valkey`: the module in valkey-bloom's place. The engine starts on files with the recorded values of valkey-bloom,
continues with them, and saves what valkey-bloom would. valkey-bloom itself is played: its streams by their recorded form, its
reader by tests/clients/valkey_bloom.py."""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
import valkey_bloom
from engines import Engine, Error, commands_of, encoded, in_sync, items, replica_of, rewritten, run, wait_until
from recorded_rdb import crc64

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "valkeybloom")
TAKE_OVER = ("take-over", "valkey")
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
NAMES = sorted(name for name in os.listdir(GOLDEN) if os.path.exists(os.path.join(GOLDEN, name, "dump.bin")))


def read(name, file):
    with open(os.path.join(GOLDEN, name, file), "rb") as opened:
        return opened.read()


def recorded(name):
    return valkey_bloom.recorded(GOLDEN, name)


def hexes(name, file):
    return [bytes.fromhex(line) for line in read(name, file).decode().split("\n")[:-1]]


def payload(engine, name):
    """The filter as valkey-bloom's BF.LOAD takes it, out of the engine's DUMP."""
    return valkey_bloom.Filter.of_dump(engine("DUMP", name)).payload()


def as_recorded(engine, name, key):
    assert engine("TYPE", key) == "bloomfltr"
    assert payload(engine, key) == read(name, "load.bin"), name
    answers = [int(answer) for answer in read(name, "answers.txt").split()]
    assert engine("BF.MEXISTS", key, *hexes(name, "probes.hex")) == answers, name


def rdb():
    data = b"REDIS0009\xfe\x00"
    for name in NAMES:
        data += b"\x07" + bytes([len(name)]) + name.encode() + read(name, "dump.bin")[1:-10]
    data += b"\xff"
    return data + crc64(data).to_bytes(8, "little")


def engine_on(files, *arguments):
    def place(engine):
        for name, content in files.items():
            path = os.path.join(engine.directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(content)
    return Engine(*arguments, module=TAKE_OVER, before=place)


def engine_on_log(base, commands=()):
    name = "appendonly.aof.1.base." + ("rdb" if base[:5] == b"REDIS" else "aof")
    manifest = f"file {name} seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    return engine_on({f"appendonlydir/{name}": base, "appendonlydir/appendonly.aof.1.incr.aof": b"".join(map(encoded, commands)),
                      "appendonlydir/appendonly.aof.manifest": manifest.encode()}, *ALWAYS)


def creation(value, key):
    """The command with which valkey-bloom replicates a new filter."""
    return ("BF.INSERT", key, "CAPACITY", str(value.layers[0][3]), "ERROR", f"{value.rate:.20f}".rstrip("0"), "TIGHTENING",
            f"{value.tightening:.20f}".rstrip("0"), "SEED", value.seed,
            *(("EXPANSION", str(value.expansion)) if value.expansion else ("NONSCALING",)))


def added(name):
    """The recorded items that were added to a filter: all but those behind an error."""
    replies = read(name, "add_replies.txt").decode().splitlines()
    return hexes(name, "items.hex")[:len([reply for reply in replies if reply in ("0", "1")])]


def batches(key, words, command="BF.MADD"):
    return [(command, key, *words[i:i + 100]) for i in range(0, len(words), 100)]


def is_the_recorded_engine(engine):
    return b"\nvalkey_version:9." in engine("INFO", "server")


def test_an_rdb_file_of_valkey_bloom_is_served_and_saved_as_it_was():
    """The engine of the recordings also takes the file that it has written, and gives their dumps to the last byte."""
    engine = engine_on({"dump.rdb": rdb()})
    assert engine("DBSIZE") == len(NAMES)
    if is_the_recorded_engine(engine):
        for name in NAMES:
            assert engine("DUMP", name) == read(name, "dump.bin"), name
        other = engine_on({"dump.rdb": read(".", "small.rdb")})
        assert other("DBSIZE") == 18 and other("PEXPIRETIME", "02_default_add") == 4102444800000
        for name in set(NAMES) - {"17_100k"}:
            as_recorded(other, name, name)
    for name in NAMES:
        as_recorded(engine, name, name)
    engine("SAVE")
    digest = engine.digest()
    engine.stop()
    engine.start()
    assert engine.digest() == digest
    for name in NAMES:
        as_recorded(engine, name, name)


def test_a_log_of_valkey_bloom_is_served_and_rewritten_as_it_was():
    """With both forms of the base, and what valkey-bloom appends: creations with all numbers, and adds."""
    made = [command for name in NAMES if recorded(name).seed
            for command in [creation(recorded(name), "made:" + name), *batches("made:" + name, added(name))]]
    loads = [("BF.LOAD", name, read(name, "load.bin")) for name in NAMES]
    made += [creation(recorded("06_exp1"), "judged"), ("BF.INSERT", "judged", "VALIDATESCALETO", str(10 ** 12), "ITEMS", "there")]
    for base in (rdb(), b"".join(map(encoded, loads))):
        engine = engine_on_log(base, made)
        for name in NAMES:
            as_recorded(engine, name, name)
            as_recorded(engine, name, "made:" + name)
        assert engine("BF.EXISTS", "judged", "there") == 1
        refused = engine.try_call("BF.INSERT", "judged", "VALIDATESCALETO", str(10 ** 12), "ITEMS", "here")
        assert isinstance(refused, Error) and engine("BF.EXISTS", "judged", "here") == 0, refused
        engine("CONFIG", "SET", "aof-use-rdb-preamble", "no")
        rewritten(engine, "BGREWRITEAOF")
        folder = os.path.join(engine.directory, "appendonlydir")
        log = next(os.path.join(folder, name) for name in os.listdir(folder) if ".base." in name)
        told = {words[1].decode(): words for words in commands_of(log) if words[0] != b"SELECT"}
        for name in NAMES:
            for key in (name, "made:" + name):
                assert told[key][0].upper() == b"BF.LOAD" and told[key][2] == read(name, "load.bin"), key
        digest = engine.digest()
        engine.kill()
        engine.start()
        assert engine.digest() == digest


def test_a_replica_follows_the_stream_of_a_valkey_bloom():
    """Its effects, each creation with all items of its command, as recorded; a replica of this module follows them, too."""
    engine = Engine(module=TAKE_OVER)
    replica = replica_of(engine, module=TAKE_OVER)
    for name in NAMES:
        words = added(name)
        engine(*creation(recorded(name), name), *(("ITEMS", *words[:100]) if words else ()))
        for command in batches(name, words[100:]):
            engine(*command)
        as_recorded(engine, name, name)
    in_sync(engine, replica)
    for name in NAMES:
        as_recorded(replica, name, name)


def stream_of(primary):
    """The connection of a replica: what the primary sends after the full synchronisation."""
    link = socket.create_connection(("127.0.0.1", primary.port), timeout=240)
    stream = link.makefile("rb")
    link.sendall(encoded(("PSYNC", "?", "-1")))
    line = b""
    while not line.startswith(b"$"):
        line = stream.readline().strip(b"\r\n")
    mark = line[1:]
    if mark.startswith(b"EOF:"):
        data = b""
        while not data.endswith(mark[4:]):
            data += stream.read(1)
    else:
        stream.read(int(mark))
    return stream


def next_command(stream):
    line = stream.readline()
    words = []
    for _ in range(int(line[1:])):
        size = int(stream.readline()[1:])
        words.append(stream.read(size + 2)[:-2])
    return words


THEIRS = {b"BF.INSERT", b"BF.ADD", b"BF.MADD", b"BF.LOAD", b"SELECT", b"PING", b"DEL", b"COPY", b"RENAME", b"PEXPIREAT",
          b"RESTORE", b"MULTI", b"EXEC", b"REPLCONF"}


def test_a_valkey_bloom_could_follow_this_stream():
    """Nothing in it is Bloomery's own; played to another engine, it gives the same filters, growth included."""
    engine = Engine(*ALWAYS, module=TAKE_OVER)
    engine("CONFIG", "SET", "repl-diskless-sync", "no")
    stream = stream_of(engine)
    engine("BF.RESERVE", "reserved", "0.001", "50")
    engine("BF.RESERVE", "fixed", "0.02", "30", "NONSCALING")
    for batch in range(10):
        engine("BF.MADD", "reserved", *items("r", 40, 20 * batch))
        engine("BF.ADD", "added", f"a{batch}")
    engine("BF.MADD", "fixed", *items("f", 60))
    engine("BF.LOAD", "loaded", read("06_exp1", "load.bin"))
    engine("BF.INSERT", "inserted", "CAPACITY", "10", "EXPANSION", "3", "ITEMS", *items("i", 200))
    engine("COPY", "reserved", "copied")
    engine("RENAME", "copied", "renamed")
    engine("EXPIRE", "added", "100000")
    engine("SET", "end", "1")
    commands = []
    while not commands or commands[-1][0].upper() != b"SET":
        commands.append(next_command(stream))
    told = {words[0].upper() for words in commands[:-1]}
    assert told <= THEIRS, told
    creations = [words for words in commands if words[0].upper() == b"BF.INSERT" and b"SEED" in words]
    assert {words[1] for words in creations} == {b"reserved", b"fixed", b"added", b"inserted"}
    for words in creations:
        assert [word for word in words[2::2] if word.isalpha() and word.isupper()][:4] == [
            b"CAPACITY", b"ERROR", b"TIGHTENING", b"SEED"] and len(words[9]) == 32, words
    other = Engine(module=TAKE_OVER)
    for words in commands:
        if words[0].upper() not in (b"PING", b"REPLCONF", b"SELECT"):
            other(*words)
    names = ("reserved", "fixed", "added", "loaded", "inserted", "renamed")
    for name in names:
        assert payload(other, name) == payload(engine, name), name
        assert engine("TYPE", name) == "bloomfltr"
    assert engine("BF.INFO", "reserved", "FILTERS") != 1
    engine.kill()  # the log has the same commands
    engine.start()
    for name in names:
        assert payload(other, name) == payload(engine, name), name


def test_a_replica_needs_take_over_as_its_primary_has_it():
    primary = Engine(module=TAKE_OVER)
    primary("BF.LOAD", "f", read("06_exp1", "load.bin"))
    replica = Engine("--replicaof", f"127.0.0.1 {primary.port}", wait=False)
    wait_until(lambda: replica.process.poll() is not None, "the replica ends")
    assert "no matching module type 'bloomfltr'" in replica.output(), replica.output()
    plain = Engine()  # without take-over the filters are of the module's own type
    plain("BF.LOAD", "f", read("06_exp1", "load.bin"))
    assert plain("TYPE", "f") == "bloomery1" and isinstance(plain.try_call("RESTORE", "g", "0", read("06_exp1", "dump.bin")), Error)
    in_sync(plain, replica_of(plain, module=TAKE_OVER))


def test_hostile_values_are_refused():
    """Those with which valkey-bloom ends its engine. 01 and 27 are sound, 38 is only slow there."""
    engine = Engine(module=TAKE_OVER)
    folder = os.path.join(GOLDEN, "hostile")
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".bin"):
            continue
        data = read("hostile", file)
        if "_restore_" in file:
            body = data[:-10] + b"\x08\x00"  # a version of RDB that every engine takes
            reply = engine.try_call("RESTORE", "f", "0", body + crc64(body).to_bytes(8, "little"))
        else:
            reply = engine.try_call("BF.LOAD", "f", data)
        sound = file[:2] in ("01", "27", "38")
        assert (reply == "OK") == sound, (file, reply)
        assert engine("DEL", "f") == int(sound)
    assert engine("PING") == "PONG"


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
