#!/usr/bin/env python3
"""`bloomery move --cutover` and `--follow` from and to engines with the module, while clients continue: the target has every item
that either server has acknowledged."""
import os
import subprocess
import sys
import threading

from engines import Connection, Daemon, Engine, Error, items, run, wait_until

TOOL = os.environ.get("BLOOMERY_TOOL", os.path.abspath("build/dev/tools/bloomery"))
REFUSALS = ("READONLY", "NOREPLICAS")


class Live(threading.Thread):
    """Adds items one after the other, each until a server has acknowledged it."""

    def __init__(self, source, target, command, name):
        super().__init__()
        self.ports, self.command, self.name_of_filter = [source.port, target.port], command, name
        self.acked, self.wrong, self.stop, self.at_home = [], None, False, 0
        self.start()

    def run(self):
        connection = Connection(self.ports[0])
        while not self.stop and not self.wrong:
            item = f"{self.command}-{len(self.acked)}"
            try:
                reply = connection.try_call(self.command, self.name_of_filter, item)
            except (ConnectionError, OSError):
                connection = Connection(self.ports[0])
                continue
            if isinstance(reply, Error) and str(reply).startswith(REFUSALS):
                del self.ports[0]
                connection = Connection(self.ports[0])
            elif isinstance(reply, Error):
                self.wrong = reply
            else:
                self.acked.append(item)
                self.at_home += len(self.ports) == 2

    def end(self):
        self.stop = True
        self.join()
        assert not self.wrong, self.wrong
        assert len(self.ports) == 1 and self.at_home > 0, (self.name_of_filter, self.ports, self.at_home)


class Churn(threading.Thread):
    """Creates, deletes, renames and expires other filters of the source, and values of other types."""

    def __init__(self, source):
        super().__init__()
        self.port, self.wrong = source.port, None
        self.start()

    def run(self):
        connection, step = Connection(self.port), 0
        while True:
            step += 1
            a, b = f"n:{step * 7 % 10}", f"n:{step * 3 % 10}"
            words = (("DEL", a), ("RENAME", a, b), ("PEXPIRE", a, step % 200 + 1), ("SET", f"text:{step % 50}", step), ("SET", a, "x"),
                     ("CF.ADD", b, step), ("BF.ADD", b, step % 300), ("BF.ADD", a, step % 300), ("BF.ADD", b, step))[step % 9]
            try:
                reply = connection.try_call(*words)
            except (ConnectionError, OSError):
                connection = Connection(self.port)
                continue
            if isinstance(reply, Error) and str(reply).startswith(REFUSALS):
                return


def move(source, target, *options, status=0):
    done = subprocess.run([TOOL, "move", "--from", f"redis://127.0.0.1:{source.port}", "--to",
                           f"redis://127.0.0.1:{target.port}", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300)
    assert done.returncode == status, (done.returncode, done.stdout)
    return done.stdout


def same_names(source, target):
    for i in range(10):
        name = f"n:{i}"
        kinds = [server("TYPE", name) for server in (source, target)]
        if source("PTTL", name) != -1:
            continue  # it expires, or is gone
        command = "CF." if kinds[0] in ("MBbloomCF", "bloomeryC") else "BF."
        if kinds[0] == "string":
            assert kinds[1] == "none", (name, kinds)
            continue
        assert source(command + "MEXISTS", name, *range(300)) == target(command + "MEXISTS", name, *range(300)), name
        assert source(command + "CARD", name) == target(command + "CARD", name) if command == "BF." else True, name
    for i in range(10):
        wait_until(lambda: (source("EXISTS", f"n:{i}") and source("TYPE", f"n:{i}") != "string") == target("EXISTS", f"n:{i}"),
                   f"both have n:{i}, or neither")


def cut_over(source, target, answer):
    source("BF.RESERVE", "bloom", "0.000001", "1000")
    source("BF.RESERVE", "large", "0.000001", "1000000")
    source("CF.RESERVE", "cuckoo", "1000", "EXPANSION", "2")
    live = [Live(source, target, *what) for what in (("BF.ADD", "bloom"), ("BF.ADD", "large"), ("CF.ADD", "cuckoo"))]
    churn = Churn(source)
    wait_until(lambda: min(len(one.acked) for one in live) > 200, "clients add")
    output = move(source, target, "--cutover", "--behind", "60")
    assert f"now it answers them -{answer}" in output, output
    before = [len(one.acked) for one in live]
    wait_until(lambda: all(len(one.acked) > n for one, n in zip(live, before)), "clients have come over")
    for one in live:
        one.end()
    churn.join()
    source.connection, target.connection = Connection(source.port), Connection(target.port)
    for one in live:
        exists = one.command[:3] + "MEXISTS"
        for first in range(0, len(one.acked), 1000):
            part = one.acked[first:first + 1000]
            assert target(exists, one.name_of_filter, *part) == [1] * len(part), (one.name_of_filter, first, one.at_home)
    same_names(source, target)
    assert str(source.try_call("BF.ADD", "bloom", "x")).startswith(answer)


def test_from_an_engine_to_the_daemon():
    engine = Engine("--min-replicas-max-lag", "0")
    cut_over(engine, Daemon(), "NOREPLICAS")
    assert engine("CONFIG", "SET", "min-replicas-to-write", "0") == "OK"
    assert engine("BF.ADD", "bloom", "x") == 1


def test_from_the_daemon_to_an_engine():
    cut_over(Daemon(), Engine(), "READONLY")


def test_from_an_engine_to_an_engine():
    cut_over(Engine(), Engine(), "NOREPLICAS")


def test_two_engines_merge():
    one, two = Engine(), Engine()
    one("BF.MADD", "f", *items("a", 50))
    two("BF.MADD", "f", *items("b", 50))
    one("CF.ADD", "cuckoo", "a")
    assert "moved    2 filters" in move(one, two, "--merge")
    assert "skipped cuckoo" not in move(one, two, "--merge")  # with equal numbers it counts as the same
    two("CF.ADD", "cuckoo", "b")
    assert "cuckoo filters cannot be merged" in move(one, two, "--merge", status=3)
    assert two("BF.MEXISTS", "f", *items("a", 50), *items("b", 50)) == [1] * 100
    assert two("KEYS", "bloomery-move:*") == []


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
