#!/usr/bin/env python3
"""Counts what the check of a user's rights costs: instructions of the daemon for each command of a pipeline.

Runs the daemon, of a release build, under callgrind with one worker. For each workload users with different rights send the
same commands; what is counted is what callgrind saw between two moments. Prints the numbers, and for each user the ratio to
a user who may do everything. The numbers do not depend on the machine's load; a run takes a minute.

Usage: users_cost.py BLOOMERYD [--commands N] [--pipeline N]
"""

import argparse
import glob
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

FILTERS = 2000

EVERYTHING = "everything"
USERS = {  # rules beside "on nopass"
    EVERYTHING: "~* &* +@all",
    "all keys": "~* +@read +@write",
    "text*": "~bench:* +@read +@write",
    "%R~text*": "%R~bench:* %W~bench:* +@read +@write",
    "third of three": "~app:* ~other:* ~bench:* +@read +@write",
    "by a selector": "~app:* +@read (~bench:* +@read +@write)",
    "te?t*": "~b?nch:* +@read +@write",
    "[st]ext*": "~[ab]ench:* +@read +@write",
    "*text*": "~*nch:* +@read +@write",
}

WORKLOADS = {  # commands, with the name of a filter and an item
    "BF.EXISTS, one filter": lambda rng: ("BF.EXISTS", "bench:0", item(rng)),
    "BF.EXISTS, many filters": lambda rng: ("BF.EXISTS", name(rng), item(rng)),
    "BF.ADD, many filters": lambda rng: ("BF.ADD", name(rng), item(rng)),
    "BF.MEXISTS, 10 items": lambda rng: ("BF.MEXISTS", name(rng), *[item(rng) for _ in range(10)]),
    "BF.CARD": lambda rng: ("BF.CARD", name(rng)),
}


def name(rng):
    return f"bench:{rng.randrange(FILTERS)}"


def item(rng):
    return f"{rng.getrandbits(64):016x}"


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def lines_of_reply(words):
    return len(words) - 1 if words[0] == "BF.MEXISTS" else 1


class Refused(Exception):
    """The daemon has replied with an error."""


class Client:
    def __init__(self, port, user=None):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if user:
            self.send([("AUTH", user, "any")])

    def send(self, commands):
        """All of them at once; returns when each has its reply, and fails if one is an error."""
        self.sock.sendall(b"".join(encode(command) for command in commands))
        left, got = sum(map(lines_of_reply, commands)), b""
        while left > 0:
            some = self.sock.recv(1 << 20)
            if not some:
                raise SystemExit("the daemon has closed the connection")
            got += some
            *lines, got = got.split(b"\r\n")
            for line in lines:
                if line.startswith(b"-"):
                    raise Refused(line.decode())
            left -= len(lines)


class Daemon:
    def __init__(self, binary):
        self.directory = tempfile.mkdtemp(prefix="users-cost-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.out = os.path.join(self.directory, "callgrind.out")
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file=" + self.out, binary,
             "--port", str(self.port), "--dir", self.directory, "--threads", "1", "--save", "", "--appendonly", "no"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.dumps = 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.admin = Client(self.port)
                self.admin.send([("DBSIZE",)])
                return
            except (OSError, Refused):
                time.sleep(0.1)
        raise SystemExit("the daemon does not start")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory)

    def control(self, option):
        subprocess.run(["callgrind_control", option, str(self.process.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def count(self, client, batches):
        """Instructions of the worker while the client sends its commands."""
        self.control("-z")
        for batch in batches:
            client.send(batch)
        self.control("-d")
        self.dumps += 1
        return max(map(total_of, glob.glob(f"{self.out}.{self.dumps}-*")))


def total_of(path):
    with open(path) as file:
        return next(int(line.split()[1]) for line in file if line.startswith(("summary:", "totals:")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bloomeryd")
    parser.add_argument("--commands", type=int, default=32000)
    parser.add_argument("--pipeline", type=int, default=64)
    options = parser.parse_args()
    daemon = Daemon(options.bloomeryd)
    try:
        daemon.admin.send([("BF.RESERVE", f"bench:{i}", "0.01", "1000") for i in range(FILTERS)])
        clients = {}
        for user, rules in USERS.items():
            words = user.replace(" ", "_")
            daemon.admin.send([("ACL", "SETUSER", words, "on", "nopass", *rules.split())])
            clients[user] = Client(daemon.port, words)
        print(f"{'instructions for each command':32}" + "".join(f"{user:>16}" for user in USERS))
        for workload, make in WORKLOADS.items():
            rng = random.Random(1)
            batches = [[make(rng) for _ in range(options.pipeline)] for _ in range(options.commands // options.pipeline)]
            for batch in batches:  # the filters have all items before anything is counted
                daemon.admin.send(batch)
            n = len(batches) * options.pipeline
            line, base = f"{workload:32}", None
            for user, client in clients.items():
                for batch in batches[:10]:
                    client.send(batch)
                total = daemon.count(client, batches)
                base = base or total
                line += f"{total / n:9.1f} {100 * (total / base - 1):+5.2f}%"
            print(line, flush=True)
    finally:
        daemon.stop()


if __name__ == "__main__":
    sys.exit(main())
