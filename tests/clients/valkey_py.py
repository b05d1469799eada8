#!/usr/bin/env python3
"""The helpers bf() of redis-py, and of valkey-py where it is installed, under `bf-compatibility valkey`. See with_daemon.py."""
import importlib
import os
import sys

import redis

from session import PORT, equal, raises, run, until

LIBRARIES = [redis]
try:
    LIBRARIES.append(importlib.import_module("valkey"))
except ImportError:
    pass  # not in Debian 12


def clients():
    for library in LIBRARIES:
        for protocol in (2, 3):
            try:
                client = library.Redis(port=PORT, protocol=protocol)
            except TypeError:  # an older library knows RESP2 only
                client = library.Redis(port=PORT)
            client.config_set("bf-compatibility", "valkey")
            client.config_set("bf-use-random-seed", "no")  # the same false positives
            client.flushall()
            yield library, client


def test_filters():
    for library, client in clients():
        bf = client.bf()
        equal(bf.create("f", 0.001, 1000), True)
        raises(library.ResponseError, "item exists", bf.create, "f", 0.001, 1000)
        equal([int(reply) for reply in (bf.add("f", "a"), bf.add("f", "a"), *bf.madd("f", "a", "b"))], [1, 0, 0, 1])
        equal([int(reply) for reply in (bf.exists("f", "a"), *bf.mexists("f", "a", "x"))], [1, 1, 0])
        equal([int(reply) for reply in bf.insert("made", list("abcde"), capacity=4, error=0.05, expansion=3)], [1] * 5)
        equal(client.execute_command("BF.CARD", "made"), 5)
        info = bf.info("made")
        equal((info.capacity, info.filterNum, info.insertedNum, info.expansionRate), (16, 2, 5, 3))
        raises(library.ResponseError, "not found", bf.info, "none")
        bf.create("fixed", 0.5, 2, noScale=True)
        equal(bf.info("fixed").expansionRate, None)
        raises(library.ResponseError, "non scaling filter is full", lambda: [bf.add("fixed", i) for i in range(100)])


def test_dumps():
    for _, client in clients():
        client.bf().madd("f", *range(300))
        equal(client.type("f"), b"bloomfltr")
        client.restore("copy", 0, client.dump("f"))
        equal(*(client.execute_command("BF.CARD", name) for name in ("copy", "f")))
        equal([int(reply) for reply in client.bf().mexists("copy", *range(300))], [1] * 300)
        equal(sorted(client.scan_iter(_type="bloomfltr")), [b"copy", b"f"])


def test_the_event_of_a_load():
    """Events have Bloomery's names under both contracts."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "valkeybloom", "06_exp1", "load.bin")
    with open(path, "rb") as file:
        payload = file.read()
    for _, client in clients():
        client.config_set("notify-keyspace-events", "Kd")
        events = client.pubsub(ignore_subscribe_messages=True)
        events.psubscribe("__keyspace@0__:loaded")
        until(lambda: client.pubsub_numpat() > 0, "it has subscribed")
        client.execute_command("BF.LOAD", "loaded", payload)
        got = until(events.get_message, "an event")
        equal(got["data"], b"bloom.load")
        events.close()
        client.config_set("notify-keyspace-events", "")


if __name__ == "__main__":
    versions = ", ".join(f"{library.__name__}-py {library.__version__}" for library in LIBRARIES)
    sys.exit(run(versions, [test_filters, test_dumps, test_the_event_of_a_load]))
