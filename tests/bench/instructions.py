#!/usr/bin/env python3
"""Counts the instructions of Bloomery's main work, and compares them with the table instructions.tsv beside this file.

Fails if a count is more than 2 % above the table's. Such a change needs a reason in its commit, and an updated table.
Counts depend on the compiler: with another one than the table's they are shown, and the status is 77 (skipped).

Usage: instructions.py BUILD [--write] [--only TEXT]     BUILD: a directory of a release build; two minutes
"""
import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile

from callgrind import Client, Server, encode, free_port, lines_of_reply, trust

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.tsv")
TOLERANCE = 0.02
FILTERS = 10000
QUIET = ("--threads", "1", "--save", "", "--appendonly", "no")
PIPELINE, ROUNDS, REPETITIONS = 64, 15, 24
BATCH, BATCHES = 20, 3  # few enough for one turn of the loop under valgrind: turns are bounded in time


def item(rng):
    return f"https://example.org/{rng.getrandbits(64):016x}"


def single(command, rng):
    return [[(command, "filter", item(rng)) for _ in range(PIPELINE)] for _ in range(ROUNDS)]


def batched(command, rng):
    return [[(command, "filter", *[item(rng) for _ in range(BATCH)]) for _ in range(BATCHES)] for _ in range(ROUNDS)]


WORK = {  # pipelines of requests, and the items that each command of them has
    "BF.EXISTS": (single, 1),
    "BF.ADD": (single, 1),
    "BF.MEXISTS": (batched, BATCH),
    "BF.MADD": (batched, BATCH),
}


def work_of(server, host, client, counts, commands=WORK, options=()):
    """Adds the instructions for each item to the counts: the least of some repetitions with items of their own, as slices of
    work depend on the time that it takes, under valgrind on a machine with other work to do."""
    server.admin.send([("BF.RESERVE", "filter", "0.001", "1000000", *options)])
    for command in commands:
        make, items = WORK[command]
        name = f"{host}: {command}{f' of {items} items' if items > 1 else ''}"
        for repetition in range(REPETITIONS + 1):
            pipelines = make(command, random.Random(f"{command} {repetition}"))
            requests = [(b"".join(map(encode, each)), sum(map(lines_of_reply, each))) for each in pipelines]
            server.start()
            for each in requests:
                client.send_bytes(*each)
            count = server.so_far()[0] / (sum(map(len, pipelines)) * items)
            if repetition > 0:  # the first one warms up
                counts[name] = min(count, counts.get(name, count))


def daemon(build):
    return os.path.join(build, "server", "bloomeryd")


def plain(build, counts):
    server = Server([daemon(build), *QUIET])
    work_of(server, "daemon", server.admin, counts)
    server.stop()


def keyed(build, counts):
    directory = tempfile.mkdtemp(prefix="bloomery-instructions-")
    server = Server([daemon(build), *QUIET, "--bf-keyed", "yes"], directory)
    work_of(server, "daemon, KEYED", server.admin, counts, options=("KEYED",))
    server.stop()
    shutil.rmtree(directory)


def with_a_user(build, counts):
    server = Server([daemon(build), *QUIET])
    server.admin.send([("ACL", "SETUSER", "someone", "on", "nopass", "~app:*", "~filter", "+@read", "+@write")])
    work_of(server, "daemon, a user with rights", Client(server.port, "someone"), counts, ("BF.EXISTS", "BF.ADD"))
    server.stop()


def with_tls(build, counts):
    directory = tempfile.mkdtemp(prefix="bloomery-instructions-")
    support = os.path.join(os.path.dirname(TABLE), "..", "support")
    subprocess.run([os.path.join(support, "certificates"), directory], check=True)
    port = free_port()
    server = Server([daemon(build), *QUIET, "--tls-port", str(port), "--tls-cert-file", os.path.join(directory, "server.crt"),
                     "--tls-key-file", os.path.join(directory, "server.key"), "--tls-auth-clients", "no"])
    work_of(server, "daemon, TLS", Client(port, tls=trust(directory)), counts, ("BF.EXISTS", "BF.ADD"))
    server.stop()
    shutil.rmtree(directory)


def in_the_module(build, counts):
    server = Server(["redis-server", "--save", "", "--hz", "1", "--dynamic-hz", "no", "--loadmodule", os.path.join(build, "module", "bloomery.so")])
    work_of(server, "module", server.admin, counts)
    server.stop()


def created(build, counts):
    server = Server([daemon(build), *QUIET])
    rng = random.Random(1)
    pipelines = [[("BF.RESERVE", item(rng), "0.01", "100", "NONSCALING") for _ in range(PIPELINE)] for _ in range(FILTERS // PIPELINE)]
    requests = [(b"".join(map(encode, each)), sum(map(lines_of_reply, each))) for each in pipelines]
    server.start()
    for each in requests:
        server.admin.send_bytes(*each)
    counts[f"daemon: BF.RESERVE of {FILTERS} filters"] = server.so_far()[0] / sum(map(len, pipelines))
    server.stop()


def saved_and_loaded(build, counts):
    directory = tempfile.mkdtemp(prefix="bloomery-instructions-")
    server = Server([daemon(build), *QUIET], directory)
    rng = random.Random(1)
    server.admin.send([("BF.ADD", f"filter:{number}", item(rng)) for number in range(FILTERS)])
    server.start()
    server.admin.send([("SAVE",)])
    counts[f"save, for each of {FILTERS} filters"] = sum(server.so_far()) / FILTERS
    server.stop()
    server = Server([daemon(build), *QUIET], directory)
    counts[f"start, for each of {FILTERS} filters"] = sum(server.so_far()) / FILTERS
    server.stop()
    shutil.rmtree(directory)


def compiler():
    return subprocess.run(["gcc", "-dumpfullversion", "-dumpmachine"], check=True, stdout=subprocess.PIPE, text=True).stdout.replace("\n", " ").strip()


def table():
    """The compiler and the counts."""
    with open(TABLE, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return lines[0][1], {name: float(count) for name, count in lines[1:]}


def count_parts(build, only, expected):
    """The counts. A part that seems to need more instructions is counted in a second process, as each process has its own state
    (seeds of hash tables, places of its memory), worth some per cent."""
    counts = {}
    for part in (plain, keyed, with_a_user, with_tls, created, in_the_module, saved_and_loaded):
        if only not in part.__name__:
            continue
        first, second = {}, {}
        part(build, first)
        if any(count > expected.get(name, count) * (1 + TOLERANCE) for name, count in first.items()):
            part(build, second)
        counts.update({name: min(count, second.get(name, count)) for name, count in first.items()})
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--only", default="", help="only the functions with this text in their names")
    options = parser.parse_args()
    made_with, expected = table()
    counts = count_parts(options.build, options.only, expected)
    if options.write:
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write(f"compiler\t{compiler()}\n" + "".join(f"{name}\t{count:.1f}\n" for name, count in counts.items()))
    above = []
    for name, count in counts.items():
        change = count / expected.get(name, count) - 1
        print(f"{name:42} {count:12.1f}  {100 * change:+6.2f} %", flush=True)
        if name not in expected or change > TOLERANCE:
            above.append(name)
    if compiler() != made_with:
        print(f"the table was made with another compiler: {made_with}")
        return 77
    if above:
        print(f"more than {TOLERANCE:.0%} above {os.path.basename(TABLE)}: {'; '.join(above)}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
