#!/usr/bin/env python3
"""Random commands on filters of all kinds, alone, in transactions and in scripts, against a model that knows every answer; and
now and then everything is the same in the primary, in a replica with other settings, another clock and a log of its own, in a
synchronisation that takes place meanwhile, and behind reloads, restarts, rewrites and failovers.

  BLOOMERY_MODEL_SECONDS  for each test; 6
  BLOOMERY_MODEL_SEED     of the random numbers
"""
import copy
import json
import os
import random
import sys
import time
from collections import Counter

from engines import Engine, Error, in_sync, replica_of, rewritten, run, wait_until

SECONDS = float(os.environ.get("BLOOMERY_MODEL_SECONDS", "6"))
SEED = os.environ.get("BLOOMERY_MODEL_SEED", "1")
OTHER = ("bf-error-rate", "0.3", "bf-initial-size", "7", "bf-expansion-factor", "0", "bf-auto-create", "no",
         "bf-max-filter-bytes", "1")
NAMES = [f"k{i}" for i in range(14)]
ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
UNIVERSE = [f"i{i}" for i in range(3000)]
RATES = ("1e-8", "3e-9")  # so low that an item that was never added is absent
LAYOUTS = ("NA", "REDISBLOOM")


class Wrong(Exception):
    pass


def check(condition, *what):
    if not condition:
        raise Wrong(*what)


class Filter:
    """A filter without a window, or with a window by time that does not end during the test."""

    def __init__(self, rate, capacity, expansion, layout, window=(), parts=8, refresh=False):
        self.alike = (rate, capacity, expansion, layout, window, parts, refresh)
        self.expansion, self.refresh = expansion, refresh
        self.room = -(-capacity // parts) if window else capacity  # of the first layer
        self.windowed = bool(window)
        self.clear()

    def clear(self):
        self.items = set()
        # Whether the number of items is exact, and there are no false positives. In small filters of RedisBloom there are.
        self.counted = self.thin = self.alike[3] == "NA"

    def __repr__(self):
        return f"{self.alike} counted {self.counted} thin {self.thin} with {len(self.items)}"

    def has(self, item):
        return item in self.items

    def query(self, item, reply):
        check(reply == 1 or (reply == 0 and not self.has(item)), item, reply)
        check(reply == 0 or self.has(item) or not self.thin, item, reply)

    def add(self, item, reply):
        """Whether the reply is an answer and not an error."""
        if isinstance(reply, Error):
            check("full" in str(reply) and self.expansion == 0 and not self.has(item), item, reply)
            check(not self.counted or len(self.items) >= self.room, item, reply)
            return False
        check(reply == (0 if self.has(item) else 1) or (reply == 0 and not self.thin), item, reply)
        check(self.expansion or self.has(item) or not self.counted or len(self.items) < self.room, item, "there was room", reply)
        self.items.add(item)
        return True

    def card(self, reply):
        check(reply == len(self.items) or not self.counted, reply, len(self.items))


class ItemWindow(Filter):
    """A filter with WINDOW ITEMS n."""

    def __init__(self, rate, capacity, expansion, n, parts, refresh):
        super().__init__(rate, capacity, expansion, "NA", ("ITEMS", n), parts, refresh)
        self.each, self.nparts = -(-n // parts), parts

    def clear(self):
        super().clear()
        self.parts = []  # the newest last

    def has(self, item):
        return any(item in part for part in self.parts)

    def add(self, item, reply):
        if self.has(item) and not self.refresh:
            check(reply == 0, item, reply)
            return True
        if not self.parts or len(self.parts[-1]) >= self.each:
            self.parts = self.parts[-self.nparts:] + [set()]
        present, newest = self.has(item), self.parts[-1]
        if self.expansion == 0 and item not in newest and len(newest) >= self.room:
            check("full" in str(reply), item, reply)
            return False
        check(reply == (0 if present else 1), item, reply)
        newest.add(item)
        return True

    def card(self, reply):
        check(reply == sum(map(len, self.parts)), reply, list(map(len, self.parts)))


class Half:
    """A half-loaded filter."""


class Text:
    """A key with another type of value."""


class Anything:
    """A filter whose answers depend on the time."""


class Model:
    def __init__(self):
        self.keys = {}
        self.settings = {"rate": "1e-8", "size": 100, "expansion": 2, "layout": "NA", "overfull": False}

    def at(self, name, reply):
        """The filter under that name; None: the reply must be an error."""
        value = self.keys.get(name)
        if isinstance(value, (Half, Text)):
            check(("being loaded" if isinstance(value, Half) else "WRONGTYPE") in str(reply), reply)
            return None
        return value

    def take(self, words, reply):
        try:
            getattr(self, words[0].lower().replace(".", "_"))(reply, *words[1:])
        except Wrong as wrong:
            raise AssertionError(f"{' '.join(words)[:300]}: {wrong.args} {str(reply)[:300]} {self.keys.get(words[1])}") from wrong

    def made(self, words):
        """The options in the words of BF.RESERVE behind the capacity, or of BF.INSERT before ITEMS; and the remaining words."""
        words = list(words)
        rate, capacity, expansion, layout = (self.settings[key] for key in ("rate", "size", "expansion", "layout"))
        window, parts, refresh, at = (), 8, False, 0
        while at < len(words):
            word = words[at]
            if word == "ITEMS":
                break
            if word in ("NONSCALING", "REFRESH"):
                expansion, refresh = (0, refresh) if word == "NONSCALING" else (expansion, True)
                at += 1
                continue
            value = words[at + 1]
            if word == "WINDOW":
                window = ("ITEMS", int(words[at + 2])) if value == "ITEMS" else (int(value),)
                layout = "NA"
                at += value == "ITEMS"
            rate, layout = (value if word == "ERROR" else rate), (value if word == "LAYOUT" else layout)
            capacity, parts = (int(value) if word == "CAPACITY" else capacity), (int(value) if word == "PARTS" else parts)
            expansion = int(value) if word == "EXPANSION" else expansion
            at += 2
        if window and window[0] == "ITEMS":
            return ItemWindow(rate, capacity, expansion, window[1], parts, refresh), words[at + 1:]
        if window and window[0] < 3600:  # seconds
            return Anything(), words[at + 1:]
        return Filter(rate, capacity, expansion, layout, window, parts, refresh), words[at + 1:]

    def bf_reserve(self, reply, name, rate, capacity, *words):
        if isinstance(self.keys.get(name), Text):
            check("WRONGTYPE" in str(reply))
        elif name in self.keys:
            check("exists" in str(reply))
        else:
            check(reply == "OK")
            self.keys[name] = self.made(("ERROR", rate, "CAPACITY", capacity) + words)[0]

    def adds(self, filter_, replies, items):
        if isinstance(filter_, Anything):
            return
        check(isinstance(replies, list), replies)
        for i, item in enumerate(items):
            check(i < len(replies), "too few answers")
            if not filter_.add(item, replies[i]):
                check(i + 1 == len(replies), "answers behind an error")
                return
        check(len(replies) == len(items))

    def bf_madd(self, reply, name, *items):
        filter_ = self.at(name, reply)
        if filter_ is None and name not in self.keys:
            filter_ = self.keys[name] = self.made(())[0]
        if filter_:
            self.adds(filter_, reply, items)

    def bf_add(self, reply, name, item):
        self.bf_madd([reply], name, item)

    def bf_insert(self, reply, name, *words):
        made, items = self.made(words)
        filter_ = self.at(name, reply)
        if filter_ is None and name not in self.keys:
            filter_ = self.keys[name] = made
        if filter_:
            self.adds(filter_, reply, items)

    def bf_mexists(self, reply, name, *items):
        filter_ = self.at(name, reply)
        if isinstance(filter_, Anything):
            return
        if filter_ is None:
            check(name in self.keys or reply == [0] * len(items))
            return
        for item, answer in zip(items, reply):
            filter_.query(item, answer)

    def bf_exists(self, reply, name, item):
        self.bf_mexists([reply], name, item)

    def bf_card(self, reply, name):
        filter_ = self.at(name, reply)
        if isinstance(filter_, Filter):
            filter_.card(reply)
        elif name not in self.keys:
            check(reply == 0)

    def bf_clear(self, reply, name):
        filter_ = self.at(name, reply)
        if name not in self.keys:
            check("not found" in str(reply))
        elif filter_:
            check(reply == "OK")
            if isinstance(filter_, Filter):
                filter_.clear()

    def bf_merge(self, reply, name, *sources):
        for i, one in enumerate((name, *sources)):
            if self.at(one, reply) is None and (i > 0 or one in self.keys):
                return check(one in self.keys or "not found" in str(reply))
        filters = [self.keys[one] for one in (name, *sources) if one in self.keys]
        if any(isinstance(filter_, Anything) for filter_ in filters):
            if not isinstance(reply, Error):
                self.keys[name] = Anything()
            return None
        one = filters[0]
        if any(isinstance(f, ItemWindow) or f.alike != one.alike for f in filters):
            return check("cannot be merged" in str(reply))
        if isinstance(reply, Error):
            return check("too full" in str(reply) and not self.settings["overfull"])
        check(reply == "OK")
        union = copy.deepcopy(one)
        union.items = set().union(*[f.items for f in filters])
        if any(f is not self.keys.get(name) for f in filters):
            union.counted = False
            union.thin = all(f.thin for f in filters) and not self.settings["overfull"]
        self.keys[name] = union
        return None

    def copy(self, reply, source, to, *replace):
        if source == to:
            return check("are the same" in str(reply))
        done = source in self.keys and (replace or to not in self.keys)
        check(reply == (1 if done else 0))
        if done:
            self.keys[to] = copy.deepcopy(self.keys[source])
        return None

    def rename(self, reply, source, to):
        check((reply == "OK") == (source in self.keys))
        if source in self.keys:
            self.keys[to] = self.keys.pop(source)

    def unlink(self, reply, *names):
        check(reply == len({name for name in names if name in self.keys}))
        for name in names:
            self.keys.pop(name, None)

    def set(self, reply, name, _):
        check(reply == "OK")
        self.keys[name] = Text()

    def pexpire(self, reply, name, ms):
        check(reply == (1 if name in self.keys else 0))
        check(int(ms) > 10**9)

    def persist(self, reply, name):
        check(name in self.keys or reply == 0)

    def config(self, reply, _, name, value):
        key = {"bloomery.bf-initial-size": "size", "bloomery.bf-expansion-factor": "expansion", "bloomery.bf-layout": "layout",
               "bloomery.bf-merge-overfull": "overfull"}[name]
        check(reply == "OK")
        self.settings[key] = {"size": int, "expansion": int, "layout": str.upper, "overfull": lambda word: word == "yes"}[key](value)


class Commands:
    """Random items."""

    def __init__(self, rng):
        self.rng = rng

    def items(self):
        n = self.rng.choice((1, 2, 5, 40, 150))
        start = self.rng.randrange(len(UNIVERSE) - n)
        return UNIVERSE[start:start + n] if self.rng.random() < 0.5 else self.rng.choices(UNIVERSE, k=n)

    def shape(self):
        rng, window = self.rng, []
        expansion = rng.choice((["NONSCALING"], ["EXPANSION", "1"], ["EXPANSION", "2"], ["EXPANSION", "3"], []))
        capacity = rng.choice((30, 30, 30, 100, 400)) if expansion == ["EXPANSION", "1"] else rng.choice((7, 30, 30, 300))
        if rng.random() < 0.6:
            window = ["WINDOW"] + rng.choice((["8640000"], ["1"], ["ITEMS", "40"], ["ITEMS", "500"]))
            window += rng.choice(([], ["PARTS", "1"], ["PARTS", "3"])) + rng.choice(([], ["REFRESH"]))
            if rng.random() < 0.1:
                capacity = 60000  # parts large enough to be dropped
        return rng.choice(RATES), str(capacity), expansion + (window or ["LAYOUT", rng.choice(LAYOUTS)])

    def one(self):
        rng, name, other = self.rng, self.rng.choice(NAMES), self.rng.choice(NAMES)
        kind = rng.choices(("add", "madd", "insert", "exists", "mexists", "card", "reserve", "merge", "clear", "copy", "rename",
                            "unlink", "set", "pexpire", "persist", "config"),
                           (10, 20, 6, 3, 6, 3, 12, 14, 1, 4, 2, 4, 1, 1, 1, 2))[0]
        rate, capacity, shape = self.shape()
        if kind == "config":
            return ["CONFIG", "SET"] + rng.choice((["bloomery.bf-initial-size", rng.choice(("10", "100"))],
                                                   ["bloomery.bf-expansion-factor", rng.choice("0123")],
                                                   ["bloomery.bf-layout", rng.choice(("na", "redisbloom"))],
                                                   ["bloomery.bf-merge-overfull", rng.choice(("yes", "no"))]))
        return {"add": lambda: ["BF.ADD", name, rng.choice(UNIVERSE)],
                "madd": lambda: ["BF.MADD", name, *self.items()],
                "insert": lambda: ["BF.INSERT", name, "ERROR", rate, "CAPACITY", capacity, *shape, "ITEMS", *self.items()],
                "exists": lambda: ["BF.EXISTS", name, rng.choice(UNIVERSE)],
                "mexists": lambda: ["BF.MEXISTS", name, *self.items()],
                "card": lambda: ["BF.CARD", name],
                "reserve": lambda: ["BF.RESERVE", name, rate, capacity, *shape],
                "merge": lambda: ["BF.MERGE", name, *rng.choices(NAMES, k=rng.choice((1, 1, 1, 2, 3)))],
                "clear": lambda: ["BF.CLEAR", name],
                "copy": lambda: ["COPY", name, other] + rng.choice(([], ["REPLACE"])),
                "rename": lambda: ["RENAME", name, other],
                "unlink": lambda: ["UNLINK", name, other],
                "set": lambda: ["SET", name, "text"],
                "pexpire": lambda: ["PEXPIRE", name, str(10**10)],
                "persist": lambda: ["PERSIST", name]}[kind]()


# ---- servers ----

SCRIPT = """local replies = {}
for _, words in ipairs(cjson.decode(ARGV[1])) do replies[#replies + 1] = redis.pcall(unpack(words)) end
return replies"""


class Servers:
    """A primary and a replica, both with an append-only file, and their faults."""

    def __init__(self, rng, model, module):
        self.rng, self.model, self.module = rng, model, module
        self.primary = Engine(*ALWAYS, module=("bf-error-rate", "1e-8", *module))
        self.replica = self.follower()

    def follower(self, wait=True):
        arguments = ("--repl-diskless-load", self.rng.choice(("disabled", "swapdb")))
        return (replica_of if wait else replica_at_once)(self.primary, *ALWAYS, *arguments, module=(*OTHER, *self.module),
                                                         clock_ahead_s=self.rng.choice((-86400, 86400)))

    def linked(self):
        wait_until(lambda: self.replica.info("replication", "master_link_status") == "up", "the replica is in sync")

    def same(self):
        """Compares the digests of both, and the filters of both with the model."""
        digest = in_sync(self.primary, self.replica)
        for server in (self.primary, self.replica):
            rewritten(server)
            for name in NAMES:
                words = ["BF.MEXISTS", name, *self.rng.sample(UNIVERSE, 200)]
                self.model.take(words, server.try_call(*words))
                self.model.take(["BF.CARD", name], server.try_call("BF.CARD", name))
        return digest

    def reload(self, _):
        server = self.rng.choice((self.primary, self.replica))
        server("DEBUG", self.rng.choice(("RELOAD", "LOADAOF")))

    def rewrite(self, _):
        for server in (self.primary, self.replica):
            server("CONFIG", "SET", "aof-use-rdb-preamble", self.rng.choice(("yes", "no")))
            server("BGREWRITEAOF")
            rewritten(server)

    def restart(self, _):
        server = self.rng.choice((self.primary, self.replica))
        server.kill()
        server.start()
        self.set_up()

    def synchronise(self, commands):
        """The primary gets another replica while it takes commands."""
        self.replica.kill()
        self.replica = self.follower(wait=False)
        commands()
        self.replica.wait_ready()
        self.linked()

    def fail_over(self, _):
        self.primary, self.replica = self.replica, self.primary
        self.set_up()

    def set_up(self):
        """Gives each its role and its settings, which a restarted engine lacks."""
        settings, server = self.model.settings, self.primary
        server("REPLICAOF", "NO", "ONE")
        self.replica("REPLICAOF", "127.0.0.1", server.port)
        for name, value in (("error-rate", "1e-8"), ("max-filter-bytes", 0), ("auto-create", "yes"), ("initial-size", settings["size"]),
                            ("expansion-factor", settings["expansion"]), ("layout", settings["layout"].lower()),
                            ("merge-overfull", "yes" if settings["overfull"] else "no")):
            server("CONFIG", "SET", "bloomery.bf-" + name, value)
        self.linked()

    def change(self, commands):
        happens = self.rng.choice((self.reload, self.reload, self.rewrite, self.restart, self.synchronise, self.fail_over))
        happens(commands)
        return happens.__name__


def replica_at_once(primary, *arguments, module=(), clock_ahead_s=0):
    return Engine("--replicaof", f"127.0.0.1 {primary.port}", "--propagation-error-behavior", "panic", *arguments, module=module,
                  clock_ahead_s=clock_ahead_s, wait=False)


class Client:
    """Sends random commands to the primary: alone, in transactions, in scripts."""

    def __init__(self, rng, model, servers):
        self.rng, self.model, self.servers, self.commands = rng, model, servers, Commands(rng)
        self.n = 0

    def take(self, batch, replies):
        self.n += len(batch)
        for words, reply in zip(batch, replies):
            self.model.take(words, reply)

    def one_by_one(self):
        batch = [self.commands.one() for _ in range(40)]
        self.take(batch, self.servers.primary.connection.pipeline(batch))

    def transaction(self):
        batch, primary = [self.commands.one() for _ in range(6)], self.servers.primary
        primary("MULTI")
        for words in batch:
            assert primary(*words) == "QUEUED", words
        self.take(batch, primary("EXEC"))

    def script(self):
        batch = [words for words in (self.commands.one() for _ in range(6)) if words[0] != "CONFIG"]
        self.take(batch, self.servers.primary("EVAL", SCRIPT, "0", json.dumps(batch)))

    def dump(self):
        primary, (name, to) = self.servers.primary, self.rng.sample(NAMES, 2)
        value = primary("DUMP", name)
        if value is not None:
            primary("RESTORE", to, "0", value, "REPLACE")
            self.model.copy(1, name, to, "REPLACE")

    def chunks(self):
        """Copies a filter in chunks, sometimes only half of them."""
        primary, (name, to), half = self.servers.primary, self.rng.sample(NAMES, 2), self.rng.random() < 0.3
        if not isinstance(self.model.keys.get(name), (Filter, Anything)):
            return
        self.take([["UNLINK", to]], [primary("UNLINK", to)])
        iterator, data = primary("BF.SCANDUMP", name, 0)
        while iterator != 0:
            assert primary("BF.LOADCHUNK", to, iterator, data) == "OK"
            iterator, data = (0, b"") if half else primary("BF.SCANDUMP", name, iterator)
        self.model.keys[to] = Half() if half else copy.deepcopy(self.model.keys[name])

    def go(self):
        self.rng.choices((self.one_by_one, self.transaction, self.script, self.dump, self.chunks), (6, 2, 2, 2, 2))[0]()

    def some(self):
        for _ in range(12):
            self.go()


def go_on(*module):
    rng, model = random.Random(SEED), Model()
    servers = Servers(rng, model, module)
    client, happened, until = Client(rng, model, servers), Counter(), time.monotonic() + SECONDS
    while time.monotonic() < until or not happened:
        client.some()
        digest = servers.same()
        done = servers.change(client.some)
        happened[done] += 1
        assert servers.same() == digest or done == "synchronise", f"{done} has changed something"
    print(f"      {client.n} commands; {dict(happened)}")


def test_all_answers_and_all_copies_are_right():
    go_on()


def test_so_they_are_in_the_place_of_redisbloom():
    go_on("take-over", "yes", "bf-layout", "na")


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
