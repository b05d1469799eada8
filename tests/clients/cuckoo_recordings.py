#!/usr/bin/env python3
"""cuckoo_recordings.py FOLDER: plays recorded commands on RedisBloom's cuckoo filters, and compares the replies.

FOLDER has recordings (tests/golden/README.md names the form). Each filter is made by the recorded commands, and again by
RESTORE of the recorded dump, by the recorded chunks, by COPY and by a restart of the daemon. Every reply, CF.INFO, CF.DEBUG, all
slots, and CF.EXISTS and CF.COUNT of 4,000 items must be RedisBloom's; then each of them goes on with further commands. Dumps that
no careful server takes are refused.
"""
import hashlib
import json
import os
import sys

import redis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "module"))
from recorded_rdb import of_version

PORT = int(os.environ["BLOOMERY_PORT"])
FOLDER = sys.argv[1]
BATCH = 500


def read(name, file, mode="r"):
    with open(f"{FOLDER}/{name}/{file}", mode, encoding=None if "b" in mode else "utf-8") as opened:
        return opened.read()


def plain(reply):
    """A reply as the recordings have it."""
    if isinstance(reply, Exception):
        return "-" + str(reply)
    return reply.decode() if isinstance(reply, bytes) else reply


def play(client, key, steps):
    for step in steps:
        items = [bytes.fromhex(item) for item in step["items"]]
        pipeline = client.pipeline(transaction=False)
        for words in ([[item] for item in items] if step["one_by_one"] else [items]):
            pipeline.execute_command(step["command"], key, *step["args"], *words)
        replies = []
        for reply in pipeline.execute(raise_on_error=False):
            replies += reply if isinstance(reply, list) else [reply]
        expected = [value for n, value in step["replies"] for _ in range(n)]
        got = [plain(reply) for reply in replies]
        assert len(got) == len(expected), (key, step["command"], len(got), len(expected))
        for i, (mine, theirs) in enumerate(zip(got, expected)):
            same = mine == theirs or (isinstance(theirs, str) and isinstance(mine, str) and mine.lstrip("-") == theirs.lstrip("-"))
            assert same, (key, step["command"], i, mine, theirs)


def slots_of(client, key):
    iterator, data = client.execute_command("CF.SCANDUMP", key, 0)
    slots = b""
    while True:
        iterator, data = client.execute_command("CF.SCANDUMP", key, iterator)
        if iterator == 0:
            return slots
        slots += data


def info_of(client, key):
    words = client.execute_command("CF.INFO", key)
    return {plain(words[i]): words[i + 1] for i in range(0, len(words), 2)}


def check(client, key, meta, after=False):
    suffix = "_after_after" if after else ""
    assert info_of(client, key) == meta["info" + suffix], (key, info_of(client, key), meta["info" + suffix])
    if not after:
        assert plain(client.execute_command("CF.DEBUG", key)) == meta["debug"], key
    slots = slots_of(client, key) if meta["info" + suffix]["Number of items inserted"] else b""  # RedisBloom gives no chunk of zeros
    assert hashlib.sha256(slots).hexdigest() == meta["data_sha256" + suffix], key


def check_answers(client, key, name):
    probes = [bytes.fromhex(line) for line in read(name, "probes.hex").split("\n")[:-1]]
    answers = json.loads(read(name, "answers.json"))
    bits = bytes.fromhex(answers["exists"])
    got = []
    for i in range(0, len(probes), BATCH):
        got += client.execute_command("CF.MEXISTS", key, *probes[i:i + BATCH])
    assert got == [bits[i >> 3] >> (i & 7) & 1 for i in range(len(probes))], name
    pipeline = client.pipeline(transaction=False)
    for probe in probes:
        pipeline.execute_command("CF.COUNT", key, probe)
    assert pipeline.execute() == answers["count"], name


def load(client, key, chunks, slots):
    """By CF.LOADCHUNK, the last chunk first."""
    client.execute_command("CF.LOADCHUNK", key, 1, bytes.fromhex(chunks[0]["hex"]))
    place = sum(chunk["length"] for chunk in chunks[1:])
    for chunk in reversed(chunks[1:]):
        data = slots[place - chunk["length"]:place]
        assert hashlib.sha256(data).hexdigest() == chunk["sha256"]
        client.execute_command("CF.LOADCHUNK", key, chunk["iterator"], data)
        place -= chunk["length"]


def check_filter(client, name):
    """Makes it in each way; returns the names to check after a restart."""
    meta, chunks = json.loads(read(name, "meta.json")), json.loads(read(name, "scandump.json"))
    play(client, name, json.loads(read(name, "commands.json")))
    check(client, name, meta)
    check_answers(client, name, name)
    keys = [name, f"{name}:old", f"{name}:new", f"{name}:copy"]
    client.execute_command("RESTORE", keys[1], 0, read(name, "dump-2.8.20.bin", "rb"))
    dump = read(name, "dump-8.8.0.bin", "rb")
    engine = client.info("server")
    if "bloomery_version" not in engine and engine["redis_version"].startswith("7."):
        dump = of_version(dump, 10)  # the newest that it takes
    client.execute_command("RESTORE", keys[2], 0, dump)
    assert client.execute_command("COPY", name, keys[3]) == 1
    if chunks:
        keys.append(f"{name}:chunks")
        load(client, keys[-1], chunks, slots_of(client, name))
    mine = client.execute_command("DUMP", name)
    client.execute_command("RESTORE", f"{name}:dump", 0, mine)
    keys.append(f"{name}:dump")
    for key in keys[1:]:
        check(client, key, meta)
    return keys, meta


def refuse(client):
    """Each of the malformed inputs gets the reply of a careful server."""
    with open(f"{FOLDER}/malformed.tsv", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines][1:]
    for row in rows:
        name, command, data, should, what = row[0], row[1], bytes.fromhex(row[2]), row[3], row[6]
        words = ["RESTORE", "malformed", 0, data] if command == "RESTORE" else ["CF.LOADCHUNK", "malformed", 1, data]
        try:
            client.execute_command(*words)
            taken = True
        except redis.ResponseError:
            taken = False
        assert taken == (should == "accept"), (name, what, should, taken)
        client.execute_command("CF.ADD" if taken else "PING", *(["malformed", "x"] if taken else []))
        client.delete("malformed")
    promise = b"".join(n.to_bytes(size, "little") for n, size in ((5, 8), (1 << 25, 8), (0, 8), (1000, 8), (255, 2), (20, 2), (1, 2)))
    try:
        client.execute_command("CF.LOADCHUNK", "malformed", 1, promise)
        raise AssertionError("8 TB were taken")
    except redis.ResponseError as error:
        assert "may promise" in str(error), error
    return len(rows)


def main():
    client = redis.Redis(port=PORT, socket_timeout=120)
    client.execute_command("CONFIG", "SET", "appendonly", "yes")
    made = {}
    for name in sorted(os.listdir(FOLDER)):
        if os.path.isfile(f"{FOLDER}/{name}/commands.json"):
            made[name] = check_filter(client, name)
    print(f"{len(made)} filters, {refuse(client)} malformed inputs refused or taken as they should be")
    for save in (False, True):  # by the log alone, and by a save
        restart(client, save)
        for name, (keys, meta) in made.items():
            for key in keys:
                check(client, key, meta)
    for name, (keys, meta) in made.items():
        for key in keys:
            play(client, key, json.loads(read(name, "after.json")))
            check(client, key, meta, after=True)
    return 0


def restart(client, save):
    try:
        client.execute_command("SHUTDOWN", "SAVE" if save else "NOSAVE")
    except redis.ConnectionError:
        pass
    client.connection_pool.disconnect()
    while True:
        try:
            if client.execute_command("PING"):
                return
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
            pass


if __name__ == "__main__":
    sys.exit(main())
