#!/usr/bin/env python3
"""owner_hunt.py BLOOMERYD: each item has one winner, whatever happens to replies (BF.INSERT ... OWNER).

Owners claim the same items at the same time. They close their connections at random moments, before a reply or in its
middle, and ask again. Meanwhile the daemon saves, merges and is killed with SIGKILL; it is started again, and the owners
ask again. At the end each asks for all items: each item is one owner's, and it is an owner to whom nothing else was ever
said; nobody was told 1 for an item of another. In every layout, in filters that grow, have a key, forget, and in EXEC.

Then a daemon that the log has told everything, and again after a save: the same answers. And a copy's marks, by the bytes of
docs/FORMAT.md.

BLOOMERY_KILL_ROUNDS: how many kills (6). BLOOMERY_SEED: of the first round; it is printed.
"""
import os
import random
import sys
import tempfile
import threading
import time

import redis

from with_daemon import REPORTS, Daemon

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "module"))
from engines import Connection, Error

ROUNDS = int(os.environ.get("BLOOMERY_KILL_ROUNDS", "6"))
OWNERS = [f"worker-{i}" for i in range(5)] + ["x" * 64]
FILTERS = {  # the rate is so low that nothing seems to be there that is not; the smallest layers of others' layouts do not keep it
    "na": ["1000000"],
    "grows": ["50"],
    "redisbloom": ["100000", "LAYOUT", "redisbloom"],
    "valkey": ["100000", "LAYOUT", "valkey"],
    "blocked": ["1000", "EXPANSION", "2", "LAYOUT", "blocked"],
    "keyed": ["2000", "KEYED"],
    "fixed": ["1000000", "NONSCALING"],
    "window": ["100000", "WINDOW", "100000"],
    "window_grows": ["400", "WINDOW", "100000", "PARTS", "4", "REFRESH"],
}
ITEMS = 400  # of a round, in each filter


class Answers:
    """What each owner was told about each item of a filter."""

    def __init__(self):
        self.lock, self.told, self.lost = threading.Lock(), {}, 0

    def take(self, name, owner, items, reply):
        with self.lock:
            for item, answer in zip(items, reply):
                before = self.told.setdefault((name, item), {}).setdefault(owner, answer)
                assert before == answer, f"{name}: {owner} was told {before} about {item}, and then {answer}"


def claim(connection, chance, name, owner, items):
    """The reply, or None: it is lost, by the connection's end or because we close it."""
    command = ("BF.INSERT", name, "NOCREATE", "OWNER", owner, "ITEMS", *items)
    in_exec = chance.random() < 0.1
    connection.send(*([("MULTI",), command, ("EXEC",)] if in_exec else [command]))
    fate = chance.random()
    if fate < 0.2:
        if fate < 0.1:
            time.sleep(chance.random() * 0.002)
        elif fate < 0.15:
            connection.socket.recv(3)
        return None
    if in_exec:
        first, queued, replies = connection.reply(), connection.reply(), connection.reply()
        reply = replies[0] if isinstance(replies, list) else first if isinstance(first, Error) else queued
    else:
        reply = connection.reply()
    if isinstance(reply, Error) and str(reply).startswith("LOADING"):
        time.sleep(0.01)
        return None
    assert not isinstance(reply, Error) and len(reply) == len(items), (name, owner, reply)
    return reply


def work(daemon, answers, owner, seed, number, wrong):
    """Claims all items of the round, some at a time, until each has been answered."""
    chance, connection = random.Random(seed), None
    try:
        for name in sorted(FILTERS, key=lambda _: chance.random()):
            items = [f"{number}-{i}" for i in range(ITEMS)]
            if chance.random() < 0.5:
                items.reverse()
            while items:
                some = items[:chance.choice((1, 1, 3, 40, 100))]
                try:
                    connection = connection or Connection(daemon.port)
                    reply = claim(connection, chance, name, owner, some)
                except OSError:
                    reply, connection = None, None
                    time.sleep(0.01)
                if reply is None:
                    answers.lost += 1
                    if connection:
                        connection.close()
                    connection = None
                    continue
                answers.take(name, owner, some, reply)
                items = items[len(some):]
    except Exception as error:
        wrong.append(f"{owner}: {error!r}")


def disturb(daemon, seed, stop):
    chance = random.Random(seed)
    while not stop.is_set():
        try:
            client = redis.Redis(port=daemon.port, socket_timeout=60)
            while not stop.is_set():
                name = chance.choice(list(FILTERS))
                client.execute_command(*chance.choice((["BGSAVE"], ["SAVE"], ["BF.MERGE", name, f"other-{name}"],
                                                       ["CONFIG", "SET", "appendfsync", chance.choice(("always", "everysec"))],
                                                       ["BF.INSERT", name, "OWNER", "nobody", "ITEMS", "0"])))
        except redis.RedisError:
            time.sleep(0.02)


def restart(daemon, kill=True):
    if kill:
        daemon.process.kill()
    else:
        daemon.process.terminate()
    daemon.process.wait()
    assert daemon.start(), "its port was taken"


def expect_one_winner(daemon, answers, numbers):
    """Asks for everything again."""
    client = redis.Redis(port=daemon.port, socket_timeout=60)
    for name in FILTERS:
        for number in numbers:
            items = [f"{number}-{i}" for i in range(ITEMS)]
            replies = {owner: client.execute_command("BF.INSERT", name, "OWNER", owner, "ITEMS", *items) for owner in OWNERS}
            for owner, reply in replies.items():
                answers.take(name, owner, items, reply)
            for i, item in enumerate(items):
                winners = [owner for owner in OWNERS if replies[owner][i] == 1]
                assert len(winners) == 1, f"{name}: {item} has the winners {winners}"
            marks = [b"\x01OWNER\x01" + bytes([len(owner)]) + owner.encode() + item.encode() for owner in OWNERS for item in items]
            assert client.execute_command("BF.MEXISTS", name, *marks) == [x for owner in OWNERS for x in replies[owner]], name


def make(daemon):
    client = redis.Redis(port=daemon.port)
    for name, words in FILTERS.items():
        for prefix in ("", "other-"):
            client.execute_command("BF.RESERVE", prefix + name, "1e-9", *words)
        client.execute_command("BF.MADD", f"other-{name}", *[f"other {i}" for i in range(10)])
        assert client.execute_command("BF.INSERT", name, "OWNER", "nobody", "ITEMS", "0") == [1]


def main():
    seed = int(os.environ.get("BLOOMERY_SEED", time.time_ns() % 1000000))
    with tempfile.TemporaryDirectory(prefix="bloomery-owners-") as directory:
        daemon = Daemon(sys.argv[1], directory, "claimed", ["--appendonly", "yes", "--appendfsync", "always", "--threads", "3"])
        make(daemon)
        answers = Answers()
        for number in range(ROUNDS):
            print(f"round {number}: seed {seed + number}", flush=True)
            chance, wrong, stop = random.Random(seed + number), [], threading.Event()
            threads = [threading.Thread(target=work, args=(daemon, answers, owner, chance.random(), number, wrong))
                       for owner in OWNERS]
            disturber = threading.Thread(target=disturb, args=(daemon, chance.random(), stop))
            for thread in [*threads, disturber]:
                thread.start()
            time.sleep(chance.random() * 0.7)
            restart(daemon)
            for thread in threads:
                thread.join()
            stop.set()
            disturber.join()
            assert not wrong, "\n".join(wrong)
            expect_one_winner(daemon, answers, [number])
        for kill in (True, False, True):
            restart(daemon, kill)
            expect_one_winner(daemon, answers, range(ROUNDS))
        wrong = daemon.stop() + [sign for sign in REPORTS if sign in daemon.output()]
        assert not wrong, (wrong, daemon.output()[-3000:])
    print(f"{len(answers.told)} items, {answers.lost} replies lost")


main()
