#!/usr/bin/env python3
"""start_kills.py BLOOMERYD: the first adds after a start are in the log, although clients ask and change settings while the daemon
loads. It is killed, started again and killed again: each acknowledged item is there.

BLOOMERY_KILL_ROUNDS: how many starts (40)."""
import os
import sys
import tempfile
import threading
import time

from with_daemon import REPORTS, Daemon

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "module"))
from engines import Connection, Error

ROUNDS = int(os.environ.get("BLOOMERY_KILL_ROUNDS", "40"))


def hammer(daemon, stop):
    """Changes a setting to its own value, while the daemon loads, too."""
    connection = None
    while not stop.is_set():
        try:
            connection = connection or Connection(daemon.port)
            connection.try_call("CONFIG", "SET", "appendfsync", "everysec")
        except OSError:
            connection = None
            time.sleep(0.001)


def first_add(daemon, item):
    """As soon as the daemon takes it."""
    connection = None
    while True:
        try:
            connection = connection or Connection(daemon.port)
            reply = connection.try_call("BF.ADD", "f", item)
            if not isinstance(reply, Error):
                assert reply == 1, reply
                return connection
        except OSError:
            connection = None


def killed(daemon):
    daemon.process.kill()
    daemon.process.wait()


def main():
    with tempfile.TemporaryDirectory(prefix="bloomery-starts-") as directory:
        daemon = Daemon(sys.argv[1], directory, "started", ["--appendonly", "yes", "--threads", "3", "--save", ""])
        Connection(daemon.port)("BF.RESERVE", "f", "1e-9", "1000000")
        for number in range(ROUNDS):
            killed(daemon)
            stop = threading.Event()
            threads = [threading.Thread(target=hammer, args=(daemon, stop)) for _ in range(2)]
            for thread in threads:
                thread.start()
            try:
                assert daemon.start(), "its port was taken"
                first_add(daemon, f"item-{number}")
                killed(daemon)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            assert daemon.start(), "its port was taken"
            there = Connection(daemon.port)("BF.EXISTS", "f", f"item-{number}")
            assert there == 1, f"item-{number} is lost:\n{daemon.output()[-3000:]}"
        wrong = daemon.stop() + [sign for sign in REPORTS if sign in daemon.output()]
        assert not wrong, wrong
    print(f"{ROUNDS} starts")


main()
