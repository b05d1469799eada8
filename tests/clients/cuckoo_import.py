#!/usr/bin/env python3
"""cuckoo_import.py FOLDER TOOL DAEMON: `bloomery import --rdb` takes over the cuckoo filters of an RDB file of RedisBloom.

FOLDER has recordings as for cuckoo_recordings.py, and RDB files with them. A daemon on the directory that the tool has
filled gives RedisBloom's replies for each filter, and later changes have the same results; after a restart, too.
"""
import json
import os
import subprocess
import sys

import redis

import cuckoo_recordings as recordings
from with_daemon import Daemon

FOLDER, TOOL, DAEMON = sys.argv[1:4]
TEST_DIR = os.environ["BLOOMERY_TEST_DIR"]


def imported(file, data):
    done = subprocess.run([TOOL, "import", "--rdb", f"{FOLDER}/{file}", data, "--json"], stdout=subprocess.PIPE, text=True,
                          timeout=120)
    assert done.returncode == 0, (file, done.returncode)
    return {(filter_["db"], filter_["name"]): filter_ for filter_ in json.loads(done.stdout)["filters"]}


def check_all(clients, keys, after):
    for key in keys:
        client = clients[key["db"]]
        assert client.execute_command("TYPE", key["key"]) == b"MBbloomCF", key
        recordings.check(client, key["key"], meta_of(key), after)
        if not after:
            recordings.check_answers(client, key["key"], key["filter"])


def meta_of(key):
    return json.loads(recordings.read(key["filter"], "meta.json"))


def check_file(file):
    with open(f"{FOLDER}/{file}.json", encoding="utf-8") as opened:
        keys = [key for key in json.load(opened)["keys"] if key["type"] == "MBbloomCF"]
    taken = imported(file, os.path.join(TEST_DIR, file))
    for key in keys:
        found = taken[key["db"], key["key"]]
        assert found["type"] == "MBbloomCF" and found["imported"], found
        assert found["items"] == meta_of(key)["info"]["Number of items inserted"], found
        assert found["expires_ms"] == key.get("pexpireat", 0), found
    daemon = Daemon(DAEMON, TEST_DIR, file, ["--appendonly", "yes"])
    clients = {key["db"]: redis.Redis(port=daemon.port, db=key["db"], socket_timeout=120) for key in keys}
    check_all(clients, keys, False)
    for key in keys:
        recordings.play(clients[key["db"]], key["key"], json.loads(recordings.read(key["filter"], "after.json")))
    wrong = daemon.stop()
    assert not wrong, wrong
    assert daemon.start()
    for client in clients.values():
        client.connection_pool.disconnect()
    check_all(clients, keys, True)
    wrong = daemon.stop()
    assert not wrong, wrong
    return len(keys)


def main():
    counts = [check_file(file) for file in sorted(os.listdir(FOLDER)) if file.endswith(".rdb")]
    assert len(counts) >= 2, counts
    print(f"cuckoo filters of {len(counts)} files: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
