#!/usr/bin/env python3
"""Counts the cost of the check of a user's rights: instructions of the daemon for each command of a pipeline.

Runs the daemon, of a release build, under callgrind with one worker. For each workload users with different rights send the
same commands; callgrind counts between two moments. Prints the numbers, and for each user the ratio to
a user with all rights. The numbers do not depend on the machine's load; a run takes a minute.

Usage: users_cost.py BLOOMERYD [--commands N] [--pipeline N]
"""

import argparse
import random
import sys

from callgrind import Client, Server

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bloomeryd")
    parser.add_argument("--commands", type=int, default=32000)
    parser.add_argument("--pipeline", type=int, default=64)
    options = parser.parse_args()
    daemon = Server([options.bloomeryd, "--threads", "1", "--save", "", "--appendonly", "no"])
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
            for batch in batches:  # the filters have all items before the count begins
                daemon.admin.send(batch)
            n = len(batches) * options.pipeline
            line, base = f"{workload:32}", None
            for user, client in clients.items():
                for batch in batches[:10]:
                    client.send(batch)
                daemon.start()
                for batch in batches:
                    client.send(batch)
                total = daemon.so_far()[0]
                base = base or total
                line += f"{total / n:9.1f} {100 * (total / base - 1):+5.2f}%"
            print(line, flush=True)
    finally:
        daemon.stop()


if __name__ == "__main__":
    sys.exit(main())
