#!/usr/bin/env python3
"""model.py BLOOMERYD [SEED]: clients whose model is sets and multisets, beside a daemon that is killed again and again.

Each client has filters of its own. A Bloom filter is a set of items that were acknowledged, and one of items that may be there,
because the daemon was killed before its reply. A cuckoo filter is a multiset with the same doubt. After each kill all acknowledged
items are there, counts are within the doubt, a transaction is there as a whole or not at all, and what was deleted is gone.
BLOOMERY_STRANGER_S=<n> plays n seconds instead of 50; the seed repeats the choices, not the moments of the kills.
"""
import os
import random
import sys
import threading
import time

from stranger import Connection, Daemon, Gone, Refused

CLIENTS = 3
PLAYS_S = float(os.environ.get("BLOOMERY_STRANGER_S", "50"))
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)


class Bloom:
    make = ("BF.RESERVE", "0.001", "500")

    def __init__(self):
        self.sure, self.doubtful, self.added = set(), set(), 0

    def step(self, client, name, dice):
        items = [f"{dice.randrange(3000)}" for _ in range(dice.choice((1, 1, 1, 5, 40)))]
        single = len(items) == 1
        words = ("BF.ADD", name, *items) if single else ("BF.MADD", name, *items)
        try:
            answers = client.ask(*words)
        except Gone:
            self.doubtful.update(items)
            raise
        for item, answer in zip(items, [answers] if single else answers):
            assert answer in (0, 1), (words, answer)
            assert answer == 0 or item not in self.sure, f"{name}: {item} was new a second time"
            self.added += answer
            self.sure.add(item)
        absent = f"absent {dice.random()}"
        return client.ask("BF.EXISTS", name, absent)  # 1 is allowed, once in 1,000 times

    def check(self, client, name):
        items = sorted(self.sure)
        for at in range(0, len(items), 500):
            part = items[at : at + 500]
            answers = client.ask("BF.MEXISTS", name, *part)
            assert all(answers), f"{name} has lost {[item for item, there in zip(part, answers) if not there][:10]}"
        card = client.ask("BF.CARD", name)
        assert self.added <= card <= self.added + len(self.doubtful), (name, card, self.added, len(self.doubtful))
        self.added = card
        for item in self.doubtful - self.sure:
            if client.ask("BF.EXISTS", name, item):
                self.sure.add(item)
        self.doubtful.clear()


class Cuckoo:
    make = ("CF.RESERVE", "1000", "ERROR", "0.001")

    def __init__(self):
        self.least, self.most = {}, {}

    def step(self, client, name, dice):
        item = f"{dice.randrange(300)}"
        least, most = self.least.get(item, 0), self.most.get(item, 0)
        if least and dice.random() < 0.45:  # only what is there for certain
            self.least[item] = least - 1
            assert client.ask("CF.DEL", name, item) == 1, f"{name}: {item} was not there to be deleted"
            self.most[item] = most - 1
        elif most < 4:
            self.most[item] = most + 1
            assert client.ask("CF.ADD", name, item) == 1, (name, item)
            self.least[item] = least + 1

    def check(self, client, name):
        for item, most in sorted(self.most.items()):
            count, least = client.ask("CF.COUNT", name, item), self.least.get(item, 0)
            assert count >= least, f"{name} has {item} {count} times, at least {least} were added"
            self.most[item] = max(least, min(count, most))  # what is in doubt stays so: it may be another item's fingerprint


class Pair:
    """Two filters that only transactions change: a client finds both changed, or neither."""

    make = ("BF.RESERVE", "0.000000001", "5000")  # what is there is no chance

    def __init__(self):
        self.n, self.doubt = 0, False

    def step(self, client, name, dice):
        self.doubt = True
        client.ask("MULTI")
        for part in dice.sample((name, name + ":twin"), 2):
            client.ask("BF.ADD", part, f"pair {self.n}")
        assert len(client.ask("EXEC")) == 2
        self.n, self.doubt = self.n + 1, False

    def check(self, client, name):
        both = [client.ask("BF.EXISTS", part, f"pair {self.n}") for part in (name, name + ":twin")]
        assert both[0] == both[1] and (self.doubt or not both[0]), f"{name}: half of a transaction, {both}"
        self.n, self.doubt = self.n + both[0], False
        for i in range(self.n):
            assert client.ask("BF.EXISTS", name, f"pair {i}") and client.ask("BF.EXISTS", name + ":twin", f"pair {i}"), (name, i)


class Player(threading.Thread):
    def __init__(self, daemon, number):
        super().__init__()
        self.daemon_process, self.number = daemon, number
        self.dice = random.Random(SEED * 100 + number)
        self.models, self.renaming, self.deleting = {}, None, None
        self.made = self.steps = 0
        self.wrong = None

    def make(self, client):
        model = self.dice.choice((Bloom, Cuckoo, Bloom, Pair))()
        name = f"{self.number}:{type(model).__name__}:{self.made}"
        self.made += 1
        command, *words = model.make
        for part in (name, name + ":twin") if isinstance(model, Pair) else (name,):
            client.ask(command, part, *words)
        self.models[name] = model

    def change_name(self, client, name):
        if isinstance(self.models[name], Pair):
            return
        if self.dice.random() < 0.3:
            self.deleting = name
            assert client.ask("DEL", name) == 1, name
            del self.models[name]
            self.deleting = None
        else:
            self.renaming = (name, name + "'")
            client.ask("RENAME", *self.renaming)
            self.models[name + "'"] = self.models.pop(name)
            self.renaming = None

    def settle(self, client):
        """What the kill has left in doubt: each change took place as a whole, or not at all."""
        if self.deleting and not client.ask("EXISTS", self.deleting):
            del self.models[self.deleting]
        if self.renaming:
            before, after = (client.ask("EXISTS", name) for name in self.renaming)
            assert before + after == 1, f"{self.renaming}: {before}, {after}"
            if after:
                self.models[self.renaming[1]] = self.models.pop(self.renaming[0])
        self.deleting = self.renaming = None
        for name, model in self.models.items():
            model.check(client, name)

    def run(self):
        client = Connection(self.daemon_process.port)
        try:
            if not self.models:
                self.make(client)
            while True:
                self.steps += 1
                choice, name = self.dice.random(), self.dice.choice(sorted(self.models))
                if choice < 0.01 and len(self.models) < 8:
                    self.make(client)
                elif choice < 0.015 and len(self.models) > 2:
                    self.change_name(client, name)
                elif choice < 0.017:
                    try:
                        client.ask("BGSAVE")
                    except Refused:
                        pass  # one runs
                else:
                    self.models[name].step(client, name, self.dice)
        except Gone:
            pass
        except Exception as error:  # the main thread reports it
            self.wrong = error
        finally:
            client.close()


def again(player, daemon):
    """The same client with the same model, as a new thread."""
    new = Player(daemon, player.number)
    for name in ("dice", "models", "renaming", "deleting", "made", "steps"):
        setattr(new, name, getattr(player, name))
    return new


def main():
    print(f"seed {SEED}", flush=True)
    dice = random.Random(SEED)
    kills, until = 0, time.monotonic() + PLAYS_S
    with Daemon(sys.argv[1], "--appendfsync", dice.choice(("everysec", "always")), "--threads", "2") as daemon:
        players = [Player(daemon, number) for number in range(CLIENTS)]
        client = daemon.start()
        while time.monotonic() < until or kills < 3:
            for player in players:
                player.start()
            time.sleep(dice.choice((0.05, 0.3, 0.3, 1.0, 2.0)))
            daemon.kill()
            kills += 1
            for player in players:
                player.join(120)
                assert not player.is_alive(), "a client did not notice the end of its connection within 120 s"
                assert not player.wrong, repr(player.wrong)
            if dice.random() < 0.2:  # killed in its start
                daemon.launch()
                time.sleep(dice.random() * 0.05)
                daemon.kill()
                kills += 1
            client = daemon.start()
            players = [again(player, daemon) for player in players]
            for player in players:
                player.settle(client)
        client.close()
        daemon.stop()
        steps = sum(player.steps for player in players)
        print(f"{kills} kills, {steps} steps, {sum(len(player.models) for player in players)} filters at the end")


main()
