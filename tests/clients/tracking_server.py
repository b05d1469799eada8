#!/usr/bin/env python3
"""CLIENT TRACKING and the events of keys side by side with redis-server 7.0: the same conversations of several clients get the
same replies and the same messages. BF.ADD stands for SADD, which changes nothing either when the item is there, and BF.CARD for SCARD.

A message is a list of names, and how the changes are spread over messages is a matter of moments: the names of a client are
compared as a set, when a last change, which all clients are told of, has come. See with_daemon.py.

BLOOMERY_SIDE_ROUNDS=1000 goes on for longer; BLOOMERY_SIDE_SEED=n starts with round n, as a failure names it."""
import os
import random
import re
import sys

from redis_beside import Connection, RedisServer, encoded
from session import PORT, claims_of, equal, holds, run

ROUNDS = int(os.environ.get("BLOOMERY_SIDE_ROUNDS", "25"))
SEED = int(os.environ.get("BLOOMERY_SIDE_SEED", "0"))
REDIS = RedisServer([])
SIDES = [REDIS.port, PORT]  # there, here
ALL = "(all)"


def there(words):
    """A command on filters in Redis's words."""
    return [{"BF.ADD": "SADD", "BF.CARD": "SCARD"}.get(words[0].upper(), words[0]), *words[1:]]


def plain(reply):
    """A reply of RESP3 with numbers in the place of truth values: SADD replies with numbers."""
    kind, value = reply
    if kind == b"#":
        return b":", int(value == b"t")
    return kind, [plain(each) for each in value] if isinstance(value, list) else value


class Client:
    """A connection to one side. Messages that come before a reply are kept."""

    def __init__(self, port, resp):
        self.connection, self.redis, self.told = Connection(port), port == REDIS.port, []
        if resp == 3:
            self.ask("HELLO", "3")
        self.id = self.ask("CLIENT", "ID")[1]

    def note(self, reply):
        """Whether it was a message; notes it."""
        kind, value = reply
        if kind not in (b">", b"*") or not isinstance(value, list) or not value or value[0][1] not in (
                b"invalidate", b"message", b"tracking-redir-broken"):
            return False
        names = value[-1]
        if value[0][1] == b"tracking-redir-broken":
            self.told.append("(broken)")
        else:
            self.told += [ALL] if names[1] in (None, b"") else [name[1].decode() for name in names[1]]
        return True

    def reply(self):
        while True:
            kind, value = self.connection.reply()
            if not self.note((kind, value)):
                return plain((kind, value))

    def ask(self, *words):
        words = there(list(words)) if self.redis else list(words)
        self.connection.socket.sendall(encoded(words))
        return self.reply()

    def take(self, last):
        """The names reported up to the message about `last`, and in the messages that came with it."""
        while last not in self.told:
            holds(self.note(self.connection.reply()), "a message comes")
        self.ask("PING")
        told, self.told = set(self.told) - {last}, []
        return sorted(told)


class Clients:
    """Named clients, each a pair of connections, one to each side."""

    def __init__(self, **protocols):
        self.sides = [{name: Client(port, resp) for name, resp in protocols.items()} for port in SIDES]
        for name in ("other", "marker"):
            for side, port in zip(self.sides, SIDES):
                side[name] = Client(port, 2)
        self.ask("other", "FLUSHALL")
        self.last = 0

    def ask(self, name, *words):
        """The reply, the same from both. {x} in a word is the number of the client x."""
        replies = []
        for side in self.sides:
            ids = {each: side[each].id for each in side}
            kind, value = side[name].ask(*[re.sub(r"\{(\w+)\}", lambda found: str(ids[found[1]]), word) for word in words])
            text = repr((kind, value))
            for each, number in ids.items() if words[1:2] in (("GETREDIR",), ("TRACKINGINFO",)) else []:
                text = re.sub(rf"(?<![-\d]){number}\b", each, text)
            replies.append(text)
        if replies[0] != replies[1]:
            raise AssertionError(f"{name}: {words}: redis-server says {replies[0]}, the daemon {replies[1]}")
        return replies[1]

    def say(self, text):
        """Lines "client: command"."""
        for line in text.strip().splitlines():
            name, words = line.strip().split(": ", 1)
            self.ask(name, *words.split())

    def told(self, *names, prefix=""):
        """The names reported to each client since the last call, the same by both. `prefix`: of the name of the last change,
        so that all of them are told of it."""
        self.last += 1
        last = f"{prefix}last:{self.last}"
        self.ask("marker", "BF.ADD", last, "x")
        result = {}
        for name in names:
            theirs, ours = (side[name].take(last) for side in self.sides)
            if theirs != ours:
                raise AssertionError(f"{name}, before {last}: redis-server tells of {theirs}, the daemon of {ours}")
            result[name] = ours
        return result

    def close(self, *names):
        for side in self.sides:
            for name in names or list(side):
                side.pop(name).connection.close()


def test_errors_and_descriptions_are_the_same():
    clients = Clients(a=3, b=2)
    conversation = """CLIENT TRACKING ON PREFIX a;CLIENT TRACKING ON BCAST PREFIX;CLIENT TRACKING on;CLIENT TRACKING ON BCAST;CLIENT TRACKING OFF;
        CLIENT TRACKING ON BCAST OPTIN;CLIENT TRACKING ON OPTOUT BCAST;CLIENT TRACKING ON OPTIN OPTOUT;CLIENT TRACKINGINFO;CLIENT TRACKING ON FOO;
        CLIENT TRACKING FOO;CLIENT TRACKING FOO BCAST PREFIX a PREFIX ab;CLIENT TRACKING OFF PREFIX a;CLIENT TRACKING ON BCAST PREFIX a PREFIX ab;
        CLIENT TRACKING ON BCAST PREFIX ab PREFIX a;CLIENT TRACKING ON BCAST PREFIX a PREFIX a;CLIENT TRACKINGINFO;
        CLIENT TRACKING ON bcast prefix m prefix c;CLIENT TRACKINGINFO;CLIENT TRACKING ON BCAST PREFIX m;CLIENT TRACKING ON BCAST PREFIX mm;
        CLIENT TRACKING ON BCAST PREFIX b PREFIX cc;CLIENT TRACKING ON BCAST NOLOOP PREFIX b;CLIENT TRACKINGINFO;CLIENT TRACKING ON;
        CLIENT TRACKING ON BCAST;CLIENT TRACKINGINFO;CLIENT TRACKING ON BCAST PREFIX z;CLIENT TRACKING ON BCAST REDIRECT 99999999;
        CLIENT TRACKING ON BCAST REDIRECT x;CLIENT TRACKING ON REDIRECT {b} REDIRECT {b};CLIENT GETREDIR;CLIENT CACHING YES;CLIENT CACHING NO;
        CLIENT TRACKING OFF;CLIENT TRACKINGINFO;CLIENT GETREDIR;CLIENT TRACKING ON BCAST REDIRECT {b} PREFIX q PREFIX r;CLIENT GETREDIR;
        CLIENT TRACKINGINFO;RESET;CLIENT TRACKINGINFO;CLIENT TRACKING ON BCAST PREFIX o;CLIENT TRACKINGINFO;RESET"""
    for name in ("a", "b"):
        for command in conversation.replace("\n", "").split(";"):
            clients.ask(name, *command.split())
    clients.close()


def tracking_fields(client):
    info = client.ask("INFO", "everything")[1].decode()
    return sorted(re.findall(r"(?m)^(tracking_(?:clients|total_\w+):\d+)", info))


def flags(client):
    return re.search(r" flags=(\w+) ", client.ask("CLIENT", "INFO")[1].decode())[1]


def test_lists_and_counts_are_the_same():
    clients = Clients(a=3, b=3, c=3)
    seen = []
    for line in """CLIENT TRACKING ON BCAST PREFIX x PREFIX y;b CLIENT TRACKING ON BCAST PREFIX x;c CLIENT TRACKING ON BCAST;c BF.CARD f;
        b CLIENT TRACKING ON BCAST REDIRECT {a} PREFIX q;b CLIENT TRACKING OFF;c RESET;a CLIENT TRACKING OFF""".replace("\n", "").split(";"):
        name, *words = line.split() if line.split()[0] in "abc" else ["a", *line.split()]
        clients.ask(name, *words)
        theirs, ours = ([tracking_fields(side["other"])] + [flags(side[each]) for each in "abc"] for side in clients.sides)
        equal(ours, theirs)
        seen.append(ours)
    holds(["tracking_clients:3", "tracking_total_items:0", "tracking_total_keys:0", "tracking_total_prefixes:3"] == seen[2][0],
          f"there are three clients with three prefixes: {seen[2]}")
    clients.close()


# Commands of another client, without SWAPDB: Redis does not report it, the daemon says that all may have changed.
DOINGS = """BF.ADD f x;BF.ADD f x;BF.ADD f y;BF.CARD f;EXPIRE f 1000;PERSIST f;PERSIST f;EXPIRE nosuch 9;RENAME f g;RENAMENX g f;RENAME f f;
    COPY f user:f;COPY f user:f;COPY f g REPLACE;MOVE g 3;DEL user:f nosuch;UNLINK nosuch;BF.ADD g x;EXPIRE g -1;BF.ADD g x;SELECT 3;DEL g;
    BF.ADD user:1 x;BF.ADD user:2 x;BF.ADD users x;BF.ADD use x;BF.ADD User x;DEL user:1 user:2 users use;SELECT 0;MULTI;BF.ADD user:1 x;
    BF.ADD user:1 y;BF.ADD user:2 x;DEL f;EXEC;MULTI;BF.ADD f z;DISCARD;TOUCH user:1;EXISTS user:1;RENAME user:1 user:1;
    MOVE user:1 4;SELECT 4;MOVE user:1 0;SELECT 0;BF.ADD userx x;FLUSHDB;BF.ADD f x;FLUSHALL""".replace("\n", "").split(";")


def everyone():
    clients = Clients(every=3, users=3, two=3, channel=2, data=2, silent=2)
    clients.say("""channel: SUBSCRIBE __redis__:invalidate
        every: CLIENT TRACKING ON BCAST
        users: CLIENT TRACKING ON BCAST PREFIX user PREFIX last
        two: CLIENT TRACKING ON BCAST PREFIX user: PREFIX f PREFIX last
        data: CLIENT TRACKING ON BCAST REDIRECT {channel} PREFIX us PREFIX last
        silent: CLIENT TRACKING ON BCAST""")
    return clients


TOLD = ["every", "users", "two", "channel"]


def test_every_change_is_told_to_the_same_clients():
    clients = everyone()
    told = []
    for doing in DOINGS:
        clients.ask("other", *doing.split())
        if doing.startswith("FLUSH"):  # the daemon's message comes a moment later
            for side in clients.sides:
                for name in TOLD:
                    equal(side[name].take(ALL), [])
        told.append(clients.told(*TOLD))
    equal(told[0], {"every": ["f"], "users": [], "two": ["f"], "channel": []})
    equal(told[1], {name: [] for name in TOLD})
    equal(told[DOINGS.index("EXEC")], {"every": ["f", "user:1", "user:2"], "users": ["user:1", "user:2"],
                                       "two": ["f", "user:1", "user:2"], "channel": ["user:1", "user:2"]})
    for side in clients.sides:
        side["silent"].ask("PING")
        equal(side["silent"].told, [])
    clients.close()


def test_expiry_is_told():
    clients = everyone()
    ttl_ms = 50
    while True:  # until the reported name is read while it exists: the next message reports its end
        clients.say(f"""other: BF.ADD user:1 x
            other: PEXPIRE user:1 {ttl_ms}""")
        clients.told(*TOLD)
        if all(side["other"].ask("EXISTS", "user:1")[1] for side in clients.sides):
            break
        ttl_ms *= 2
    for side in clients.sides:
        while "user:1" not in side["every"].told:
            side["other"].ask("EXISTS", "user:1")
            side["every"].ask("PING")
    clients.told(*TOLD)
    clients.close()


def test_own_changes_and_noloop():
    clients = Clients(own=3, loop=3, shared=3)
    clients.say("""own: CLIENT TRACKING ON BCAST NOLOOP
        loop: CLIENT TRACKING ON BCAST PREFIX l PREFIX a
        shared: CLIENT TRACKING ON BCAST NOLOOP PREFIX l PREFIX a PREFIX own""")
    seen = []
    for line in """loop BF.CARD a;own DEL a;other BF.ADD a y;own RENAME a own;own EXPIRE own 100;shared DEL own;other BF.ADD a x;own MULTI;
        own DEL a;own DEL b;own EXEC;loop DEL a;other BF.ADD a x;other BF.ADD b x;own COPY a l REPLACE;own UNLINK l a;
        other BF.ADD a x;own CLIENT TRACKING ON BCAST PREFIX own2;own DEL a""".replace("\n", "").split(";"):
        name, *words = line.split()
        clients.ask(name, *words)
        seen.append(clients.told("own", "loop", "shared", prefix="l"))
    holds({"own": [], "loop": ["a"], "shared": ["a"]} in seen, f"own is not told of its own DEL: {seen}")
    clients.close()


def test_a_redirection_that_breaks_and_a_client_that_goes():
    clients = Clients(data=3, target=3, gone=3)
    clients.say("""data: CLIENT TRACKING ON BCAST REDIRECT {target} PREFIX a PREFIX l
        gone: CLIENT TRACKING ON BCAST PREFIX a PREFIX b PREFIX l
        other: BF.ADD a x""")
    clients.told("target", "gone", prefix="l")
    for side in clients.sides:
        target = side["target"].id
        clients_left = side["target"].connection
        clients_left.close()
        side.pop("target")
        while str(target).encode() in b" ".join(re.findall(rb"id=(\d+)", side["other"].ask("CLIENT", "LIST")[1])).split():
            pass
    clients.ask("other", "BF.ADD", "a", "y")
    for side in clients.sides:
        side["data"].take("(broken)")
    for side in clients.sides:
        equal(flags(side["data"]), "tRB")
        side["data"].told.clear()
        side.pop("gone").connection.close()
        while b"tracking_total_prefixes:2\r" not in side["other"].ask("INFO", "stats")[1]:
            pass
    clients.close()


# ---- events of keys ----

EVENTFUL = """BF.ADD f x;BF.ADD f x;BF.ADD f y;EXPIRE f 1000;PEXPIRE f 100000;EXPIREAT f 9999999999;EXPIRE f 5 NX;EXPIRE nosuch 9;PERSIST f;PERSIST f;
    RENAME f g;RENAME g g;RENAMENX g f;BF.ADD g x;RENAMENX f g;RENAME f g;COPY g f;COPY g f;COPY g f REPLACE;COPY g f DB 3;EXPIRE g 100;COPY g e;
    RENAME g d;MOVE d 3;MOVE nosuch 3;SELECT 3;MOVE d 0;BF.ADD d x;MOVE f 0;SELECT 0;TOUCH f;EXISTS f;DEL f e nosuch f;BF.ADD f x;EXPIRE f 100;
    EXPIRE f -1;BF.ADD f x;PEXPIREAT f 1;UNLINK d;UNLINK d;MULTI;BF.ADD a x;BF.ADD b x;RENAME a b;EXPIRE b 100;DEL b;EXEC;BF.ADD a x;
    SELECT 3;FLUSHDB;BF.ADD a x;SELECT 0;SWAPDB 0 3;DEL a;SWAPDB 0 3;FLUSHALL""".replace("\n", "").split(";")


def events_until(client, mark):
    """The events that a client with PSUBSCRIBE gets, up to that of the new name `mark`."""
    events = []
    while True:
        event = b" ".join(part[1] for part in client.connection.reply()[1][2:]).decode()
        if event.endswith(f":new {mark}"):
            return events
        events += [event] if mark not in event else []


def test_events_of_keys():
    clients = Clients(listener=2)
    clients.ask("other", "CONFIG", "SET", "notify-keyspace-events", "KEgxn")
    clients.ask("listener", "PSUBSCRIBE", "__key*__:*")
    seen = []

    def compare(what):
        mark = f"mark:{len(seen)}"
        clients.ask("marker", "BF.ADD", mark, "x")
        theirs, ours = (events_until(side["listener"], mark) for side in clients.sides)
        if theirs != ours:
            raise AssertionError(f"{what}: redis-server has the events {theirs}, the daemon {ours}")
        seen.append(ours)

    for doing in EVENTFUL:
        clients.ask("other", *doing.split())
        compare(doing)
    equal(seen[0], ["__keyspace@0__:f new", "__keyevent@0__:new f"])
    clients.ask("other", "BF.ADD", "f", "x")
    for options in ([], ["REPLACE"]):
        for side in clients.sides:
            dump = side["other"].ask("DUMP", "f")[1].decode("latin1")
            equal(side["other"].ask("RESTORE", "copy", "100000", dump, *options), (b"+", b"OK"))
        compare(f"RESTORE {options}")
    clients.say("other: PEXPIRE f 30")
    for side in clients.sides:
        while side["marker"].ask("EXISTS", "f")[1]:
            pass
    for side in clients.sides:  # the daemon removes it a moment later
        events = []
        while "__keyevent@0__:expired f" not in events:
            events.append(b" ".join(part[1] for part in side["listener"].connection.reply()[1][2:]).decode())
        equal(events, ["__keyspace@0__:f expire", "__keyevent@0__:expire f", "__keyspace@0__:f expired",
                       "__keyevent@0__:expired f"])
    clients.ask("other", "CONFIG", "SET", "notify-keyspace-events", "")
    clients.close()


# ---- random conversations ----

NAMES = ["a", "ab", "abc", "b", "ba", "bab", "c", ""]


def random_doing(rng):
    name, other = rng.choice(NAMES), rng.choice(NAMES)
    return rng.choice([["BF.ADD", name, str(rng.randrange(3))]] * 4 + [
        ["DEL", name], ["DEL", name, other], ["RENAME", name, other], ["RENAMENX", name, other], ["EXPIRE", name, "1000"],
        ["EXPIRE", name, "-1"], ["PERSIST", name], ["BF.CARD", name], ["MOVE", name, str(rng.randrange(3))],
        ["SELECT", str(rng.randrange(3))], ["EXISTS", name]])


def random_doings(rng):
    """One, or a transaction, in which the daemon has no COPY."""
    if rng.random() < 0.2:
        return [["MULTI"], *[random_doing(rng) for _ in range(rng.randrange(5))], rng.choice([["EXEC"], ["EXEC"], ["DISCARD"]])]
    if rng.random() < 0.2:
        return [["COPY", rng.choice(NAMES), rng.choice(NAMES), *rng.choice([[], ["REPLACE"]])]]
    return [random_doing(rng)]


def random_tracking(rng):
    words = ["CLIENT", "TRACKING", rng.choice(["ON", "ON", "ON", "OFF"]), rng.choice(["BCAST", "BCAST", "BCAST", "bcast"])]
    for _ in range(rng.randrange(3)):
        words += ["PREFIX", rng.choice(NAMES)]
    return words + rng.choice([[], [], ["NOLOOP"]])


def test_random_conversations():
    for seed in range(SEED, SEED + ROUNDS):
        rng = random.Random(seed)
        clients = Clients(one=3, two=3, three=3)
        try:
            for name in ("one", "two", "three"):
                clients.say(f"{name}: CLIENT TRACKING ON BCAST PREFIX last")
            for _ in range(30):
                if rng.random() < 0.3:
                    name = rng.choice(["one", "two", "three"])
                    words = random_tracking(rng)
                    clients.ask(name, *words)
                    if words[2] == "OFF":
                        clients.ask(name, "CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "last")
                    clients.ask(name, "CLIENT", "TRACKINGINFO")
                else:
                    name = rng.choice(["other", "other", "one"])
                    for words in random_doings(rng):
                        clients.ask(name, *words)
                    clients.told("one", "two", "three")
        except AssertionError as error:
            raise AssertionError(f"BLOOMERY_SIDE_SEED={seed} BLOOMERY_SIDE_ROUNDS=1: {error}") from error
        finally:
            clients.close()


if __name__ == "__main__":
    try:
        status = run("CLIENT TRACKING and events beside redis-server", claims_of(sys.modules[__name__]))
    finally:
        REDIS.stop()
    sys.exit(status)
