#!/usr/bin/env python3
"""Measures the cost of commands in a transaction: the numbers of the table in server/commands/cost.c.

Runs the daemon, of a release build, with one worker and without a log. Each row is a transaction of many equal calls.
The printed number is the worker's least processor time for EXEC in several runs, per call or item.

Usage: command_costs.py BLOOMERYD [--runs N]
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.file = self.sock.makefile("rb")

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2].decode() if int(rest) >= 0 else None
        if kind == b"*":
            return [self.read() for _ in range(int(rest))] if int(rest) >= 0 else None
        return ("-" if kind == b"-" else "") + rest

    def ask(self, *words):
        return self.many([words])[0]

    def many(self, commands):
        sender = threading.Thread(target=self.sock.sendall, args=(b"".join(encode(c) for c in commands),))
        sender.start()
        replies = [self.read() for _ in commands]
        sender.join()
        return replies

    def time_of(self, commands, worker):
        """Nanoseconds of an EXEC."""
        self.many([("MULTI",), *commands])
        before = processor_time(worker)
        last = self.ask("EXEC")
        if isinstance(last, str):
            sys.exit(f"{commands[0][:3]}: {last}")
        return processor_time(worker) - before


def processor_time(task):
    with open(os.path.join(task, "schedstat"), encoding="ascii") as file:
        return int(file.read().split()[0])


def worker_of(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as file:
            if file.read().startswith("worker"):
                return f"/proc/{pid}/task/{task}"
    sys.exit("there is no worker")


def names(n, prefix="n"):
    return [f"{prefix}{i}" for i in range(n)]


def rows(client):
    """A label, the commands, the number of their calls or items, and the commands before each run."""
    ask, many = client.ask, client.many
    small = lambda: (ask("FLUSHALL"), many([("BF.ADD", name, "x") for name in names(5000)]))
    nothing = lambda: None
    yield "PING", [("PING",)] * 20000, 20000, nothing
    yield "TIME", [("TIME",)] * 10000, 10000, nothing
    yield "HELLO", [("HELLO",)] * 4000, 4000, nothing
    yield "CLIENT HELP", [("CLIENT", "HELP")] * 1000, 1000, nothing
    yield "COMMAND DOCS client", [("COMMAND", "DOCS", "client")] * 30, 30, nothing
    yield "ECHO, 4,000 bytes", [("ECHO", "x" * 4000)] * 1000, 1000, nothing
    yield "CLIENT SETNAME, 1,000 bytes", [("CLIENT", "SETNAME", "x" * 1000)] * 2000, 2000, nothing
    yield "BF.ADD, a new filter", [("BF.ADD", name, "x") for name in names(3000)], 3000, lambda: ask("FLUSHALL")
    yield "BF.EXISTS, one layer, many names", [("BF.EXISTS", name, "y") for name in names(5000)], 5000, small
    for capacity, n in (10000, 200), (100000, 100):  # 36 and 360 KB; only the first run has fresh memory
        fresh = lambda: (ask("FLUSHALL"), time.sleep(0.3), many([("BF.RESERVE", name, 1e-6, capacity) for name in names(n)]))
        yield f"BF.EXISTS, fresh, {capacity} items", [("BF.EXISTS", name, "x") for name in names(n)], n, fresh
        yield f"BF.ADD, fresh, {capacity} items", [("BF.ADD", name, "x") for name in names(n)], n, fresh
    ask("FLUSHALL")
    yield "EXPIRE", [("EXPIRE", name, 1000) for name in names(5000)], 5000, small
    yield "RENAME", [("RENAME", name, "m" + name) for name in names(3000)], 3000, small
    yield "DEL, a name", [("DEL", *names(5000))], 5000, small
    yield "BF.CLEAR, small", [("BF.CLEAR", name) for name in names(2000)], 2000, small
    yield "SCAN 0 COUNT 100", [("SCAN", 0, "COUNT", 100)] * 200, 200, small
    yield "RANDOMKEY", [("RANDOMKEY",)] * 70, 70, small
    yield "CONFIG GET *", [("CONFIG", "GET", "*")] * 70, 70, nothing
    yield "COMMAND DOCS", [("COMMAND", "DOCS")] * 40, 40, nothing
    yield "BF.PLAN", [("BF.PLAN", "1e-9", 100, "ITEMS", 1 << 62)] * 70, 70, nothing
    many([("ACL", "SETUSER", f"u{i}", "on", ">pw", "+@read", *[f"~a{j}*" for j in range(5)]) for i in range(1000)])
    yield "ACL LIST, 1,000 users", [("ACL", "LIST")], 1, nothing
    many([("ACL", "DELUSER", *[f"u{i}" for i in range(1000)])])
    ask("ACL", "SETUSER", "big", "on", *[f"~a{j}*" for j in range(1000)])
    yield "ACL SETUSER, 1,000 rules", [("ACL", "SETUSER", "big", "on")] * 20, 20, nothing
    ask("FLUSHALL")
    yield "BF.RESERVE, small", [("BF.RESERVE", name, 0.01, 100 + i) for i, name in enumerate(names(500))], 500, (
        lambda: ask("FLUSHALL"))
    yield "BF.RESERVE, 1 GB", [("BF.RESERVE", name, 1e-7, 100000000) for name in names(200)], 200, (
        lambda: (ask("FLUSHALL"), time.sleep(0.2)))
    ask("FLUSHALL")
    ask("BF.RESERVE", "huge", "1e-7", 200000000)
    yield "BF.CLEAR, 1 GB", [("BF.CLEAR", "huge")] * 80, 80, lambda: time.sleep(0.2)
    yield "BF.MEXISTS, an item of 1 GB", [("BF.MEXISTS", "huge", *range(10000))], 10000, nothing
    yield "BF.MADD, an item of 1 GB, new pages", [("BF.MADD", "huge", *range(150))], 150, (
        lambda: (ask("BF.CLEAR", "huge"), time.sleep(0.1)))
    ask("BF.RESERVE", "mb", 0.01, 600000)
    yield "BF.CLEAR, empty, 0.8 MB", [("BF.CLEAR", "mb")] * 40, 40, nothing
    ask("BF.RESERVE", "layers", 0.01, 1, "EXPANSION", 1)
    many([("BF.MADD", "layers", *range(1000))])
    layers = int(ask("BF.INFO", "layers", "FILTERS")[0])
    copies = names(60, "copy")
    yield f"BF.CLEAR, {layers} layers", [("BF.CLEAR", name) for name in copies], 60, (
        lambda: [ask("COPY", "layers", name, "REPLACE") for name in copies])
    yield f"BF.DEBUG, {layers} layers", [("BF.DEBUG", "layers")] * 12, 12, nothing
    yield f"BF.INFO, {layers} layers", [("BF.INFO", "layers")] * 40, 40, nothing
    yield f"BF.CARD, {layers} layers", [("BF.CARD", "layers")] * 400, 400, nothing
    yield f"BF.EXISTS, {layers} layers", [("BF.EXISTS", "layers", "y")] * 60, 60, nothing
    yield f"BF.MEXISTS, an item, {layers} layers", [("BF.MEXISTS", "layers", *names(600))], 600, nothing
    yield f"BF.FIND, an item, {layers} layers", [("BF.FIND", "layers", "ITEMS", *names(100))], 100, nothing
    ask("BF.RESERVE", "eight", 0.01, 1000, "EXPANSION", 1)
    many([("BF.MADD", "eight", *range(7500))])
    yield "BF.INFO FULL, 8 layers", [("BF.INFO", "eight", "FULL")] * 15, 15, nothing
    grows = lambda: (ask("DEL", "grows"), ask("BF.RESERVE", "grows", 0.01, 1, "EXPANSION", 1))
    yield "growth to 100 layers, each", [("BF.MADD", "grows", *names(100))], 100, grows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("daemon")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    directory = tempfile.mkdtemp()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = subprocess.Popen(
        [options.daemon, "--port", str(port), "--dir", directory, "--threads", "1", "--appendonly", "no", "--save", ""],
        stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                client = Client(port)
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        worker = worker_of(daemon.pid)
        for label, commands, n, prepare in rows(client):
            best = float("inf")
            for _ in range(options.runs):
                prepare()
                best = min(best, client.time_of(commands, worker))
            print(f"{label:44} {best / n:12,.0f} ns", flush=True)
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
