#!/usr/bin/env python3
"""Users side by side with redis-server 7.0: the same ACL commands get the same replies, and users have the same rights.

Commands on filters stand for commands on Redis's types that need the same of a key: BF.CARD for GET, BF.ADD for SADD. Rules on
commands are shown in another way than by Redis 7.0, so that in ACL LIST and GETUSER they are left out of the comparison, and what
they allow is compared by ACL DRYRUN instead. See with_daemon.py.

BLOOMERY_SIDE_ROUNDS=1000 goes on for longer; BLOOMERY_SIDE_SEED=n starts with round n, as a failure names it."""
import os
import random
import re
import sys

from redis_beside import Connection, RedisServer, encoded
from session import PORT, claims_of, equal, holds, run, until

ROUNDS = int(os.environ.get("BLOOMERY_SIDE_ROUNDS", "25"))
SEED = int(os.environ.get("BLOOMERY_SIDE_SEED", "0"))
TWINS = [("bf.card", "get"), ("bf.add", "sadd")]  # here, there
REDIS = RedisServer([])


def there(word):
    for ours, theirs in TWINS:
        word = re.sub(re.escape(ours), theirs, word, flags=re.IGNORECASE)
    return word


def plain(reply):
    """A reply with the names of there, as text, in one form for both."""
    kind, value = reply
    if isinstance(value, list):
        return kind, [plain(each) for each in value]
    if isinstance(value, bytes):
        value = there(value.decode("latin1"))
    return kind, value


class Pair:
    """A connection to each server; both get the same commands."""

    def __init__(self, resp=2):
        self.sides = [Connection(REDIS.port), Connection(PORT)]
        if resp == 3:
            for side in self.sides:
                side.socket.sendall(encoded(["HELLO", "3"]))
                side.reply()

    def ask(self, *words):
        """The replies of redis-server and the daemon."""
        replies = []
        for side, translate in zip(self.sides, (there, str)):
            side.socket.sendall(encoded([translate(word) for word in words]))
            replies.append(plain(side.reply()))
        return replies

    def same(self, *words):
        theirs, ours = self.ask(*words)
        if theirs != ours:
            raise AssertionError(f"{words}: redis-server says {theirs}, the daemon {ours}")
        return ours

    def served(self, *words):
        """The same refusal, or none by both; whether there was none."""
        theirs, ours = self.ask(*words)
        refused = [reply[0] == b"-" and reply[1].startswith(("NOPERM", "NOAUTH")) for reply in (theirs, ours)]
        if refused[0] != refused[1] or (refused[0] and theirs != ours):
            raise AssertionError(f"{words}: redis-server says {theirs}, the daemon {ours}")
        return not refused[0]

    def closed(self):
        """Until both servers have closed the connection."""
        for side in self.sides:
            until(lambda: side.reply() == (b"", b"the connection is closed"), "the connection is closed")

    def close(self):
        for side in self.sides:
            side.close()


def begin(resp=2):
    pair = Pair(resp)
    for words in (["ACL", "LOG", "RESET"], ["FLUSHALL"], ["CONFIG", "SET", "acl-pubsub-default", "resetchannels"]):
        pair.same(*words)
    names = [name for name in pair.same("ACL", "USERS")[1] if name[1] != "default"]
    if names:
        pair.same("ACL", "DELUSER", *[name[1] for name in names])
    pair.same("ACL", "SETUSER", "default", "reset", "on", "nopass", "+@all", "~*", "&*")
    return pair


# ---- rules ----

RULES = """on off nopass resetpass >p1 >p2 <p1 #0123 !0123 reset sanitize-payload skip-sanitize-payload allkeys resetkeys ~* ~a* ~b
    ~a?c ~[ab]* %R~a* %W~a* %RW~c* %RW~* %R~* %rw~d %X~a %~a % %RR~a ~ allchannels resetchannels &* &c* &d &[cd]? & clearselectors
    allcommands nocommands +@all -@all +@read -@read +@write -@write +@keyspace -@keyspace +@dangerous -@dangerous +@admin -@admin
    +@slow -@slow +@connection -@connection +@pubsub -@pubsub +@transaction +@nosuch -@nosuch +bf.card -bf.card +bf.add -bf.add
    +BF.ADD +del -del +config -config +config|get -config|set +config|nosuch +config|get|x +config| +select|0 +select|1 -select
    +select| +client|id -client +nosuch + - +@ +acl|whoami +publish +subscribe +psubscribe -publish foo ON NoPass""".split() + [
    "", "(~a* +bf.card)", "(%R~b +@read)", "(%W~b +bf.add +del)", "(&c* +publish)", "(+@all)", "(~q +@all -config)", "(foo)",
    "(~a +nosuch)", "~a b", "&a b", "(~a", "+bf.add)", "(", ")", "()", "( ~e +del )",
    "#" + "0123456789abcdef" * 4, "!" + "0123456789abcdef" * 4, "#" + "0123456789ABCDEF" * 4]
CALLS = [call.split() for call in """BF.CARD a1;BF.CARD b;BF.CARD abc;BF.CARD c;BF.CARD d;BF.CARD q;BF.ADD a1 x;BF.ADD b x;BF.ADD c x;
    BF.ADD d x;DEL a1;DEL a1 b;DEL e;EXISTS a1 b;EXISTS q;RENAME a1 b;RENAME b a1;RENAME c a1;COPY a1 b;COPY b a1;TYPE a1;TTL a1;
    EXPIRE a1 9;KEYS *;FLUSHALL;DBSIZE;PUBLISH c1 x;PUBLISH d x;PUBLISH e x;SUBSCRIBE c1;SUBSCRIBE c1 d;PSUBSCRIBE c*;PSUBSCRIBE c?;
    SSUBSCRIBE c1;SPUBLISH d x;UNSUBSCRIBE z;CONFIG GET a;CONFIG SET a b;CLIENT ID;CLIENT LIST;SELECT 0;SELECT 1;PING;ECHO x;INFO;
    MULTI;EXEC;WATCH a1;UNWATCH;AUTH x;HELLO;RESET;QUIT;ACL WHOAMI;ACL LIST;SAVE;MONITOR;OBJECT ENCODING a1;MEMORY USAGE b;
    CONFIG;CONFIG NOSUCH;NOSUCH;DEL""".replace("\n", "").split(";")]


def without_commands(text):
    return " ".join(word for word in text.replace("(", "( ").replace(")", " )").split(" ") if not re.match(r"[-+]", word))


def compare_user(pair, name):
    theirs, ours = (reply[1] for reply in pair.ask("ACL", "LIST"))
    equal([without_commands(line[1]) for line in ours], [without_commands(line[1]) for line in theirs])
    theirs, ours = (reply for reply in pair.ask("ACL", "GETUSER", name))
    for reply in (theirs, ours):
        if reply[1] is None:
            continue
        fields = reply[1]
        for i in range(0, len(fields), 2):
            if fields[i][1] == "commands":
                fields[i + 1] = None
            if fields[i][1] == "selectors":
                for selector in fields[i + 1][1]:
                    selector[1][selector[1].index((b"$", "commands")) + 1] = None
    equal(ours, theirs)


def test_rules_and_what_they_allow():
    for seed in range(SEED, SEED + ROUNDS):
        rng = random.Random(seed)
        pair = begin(rng.choice([2, 3]))
        try:
            for _ in range(6):
                name = rng.choice(["bob", "bob", "bob", "eve", "default"])
                rules = [rng.choice(RULES) for _ in range(rng.randint(0, 6))]
                if name == "default":
                    rules += ["on", "nopass", "+@all"]
                pair.same("ACL", "SETUSER", name, *rules)
                compare_user(pair, name)
                for call in CALLS:
                    pair.same("ACL", "DRYRUN", name, *call)
                if rng.random() < 0.1:
                    pair.same("ACL", "DELUSER", "bob", "nosuch")
                if rng.random() < 0.1:
                    pair.same("CONFIG", "SET", "acl-pubsub-default", rng.choice(["allchannels", "resetchannels"]))
        except AssertionError as error:
            raise AssertionError(f"BLOOMERY_SIDE_SEED={seed} BLOOMERY_SIDE_ROUNDS=1: {error}") from error
        finally:
            pair.close()


def test_wrong_commands_get_the_same_errors():
    pair = begin()
    for words in """ACL SETUSER;ACL GETUSER;ACL GETUSER nobody;ACL GETUSER a b;ACL DELUSER;ACL DELUSER default;ACL DELUSER bob default;
        ACL DELUSER nobody;ACL LIST x;ACL USERS x;ACL LOAD;ACL SAVE;ACL LOAD x;ACL LOG x;ACL LOG -1;ACL LOG 0;ACL LOG 1 2;ACL LOG RESET;
        ACL WHOAMI;ACL WHOAMI x;ACL CAT nosuch;ACL CAT a b;ACL NOSUCH;ACL;ACL GENPASS 0;ACL GENPASS 4097;ACL GENPASS x;ACL GENPASS 1 2;
        ACL DRYRUN;ACL DRYRUN default;ACL DRYRUN nobody ping;ACL DRYRUN default nosuch;ACL DRYRUN default config;ACL DRYRUN default del;
        AUTH;AUTH x;AUTH default x;AUTH nobody x;AUTH a b c;HELLO 2 AUTH nobody x;HELLO 2 AUTH x;CLIENT KILL USER nobody;
        CONFIG SET user bob;CONFIG GET user;CONFIG SET aclfile x;CONFIG SET acl-pubsub-default x;CONFIG SET acllog-max-len x;
        CONFIG GET aclf*;ACL HELP x""".split(";"):
        pair.same(*words.split())
    for rules in (["bo b", "on"], ["bob", "(~a"], ["bob", "(", "~a"], ["bob", "on", "(~a", "+get"], ["bob", "(~a (+get))"], ["b\0b"]):
        pair.same("ACL", "SETUSER", *rules)
    pair.close()


def test_categories_have_the_same_commands():
    pair = begin()
    theirs, ours = ([name[1] for name in reply[1]] for reply in pair.ask("ACL", "CAT"))
    equal([name for name in ours if name not in ("bloom", "cuckoo")], theirs)
    lists = [{name[1] for name in reply[1]} for reply in pair.ask("COMMAND", "LIST")]
    both = (lists[0] & lists[1]) - {name for twin in TWINS for name in twin}
    holds(len(both) > 100, f"there are commands in common: {len(both)}")
    for category in theirs:
        theirs_in, ours_in = ({name[1] for name in reply[1]} & both for reply in pair.ask("ACL", "CAT", category))
        equal((category, sorted(ours_in - theirs_in), sorted(theirs_in - ours_in)), (category, [], []))
    pair.close()


# ---- clients ----

def logged(pair):
    """ACL LOG without what depends on the time and the connection."""
    pairs = []
    for reply in pair.ask("ACL", "LOG", "100"):
        entries = []
        for entry in reply[1]:
            fields = {entry[1][i][1]: entry[1][i + 1][1] for i in range(0, len(entry[1]), 2)}
            holds(float(fields.pop("age-seconds")) >= 0, "it has an age")
            for field in "entry-id", "timestamp-created", "timestamp-last-updated":  # since Redis 7.2
                fields.pop(field, None)
            user = re.search(r" user=(\S+) ", fields.pop("client-info"))
            entries.append((fields, user and user.group(1)))
        pairs.append(entries)
    return pairs


def test_refusals_are_the_same_and_logged():
    admin, client = begin(), Pair()
    admin.same("ACL", "SETUSER", "bob", "on", ">pw", "~a*", "%R~r*", "&c*", "+bf.card", "+bf.add", "+publish", "+multi", "+exec",
               "+config|get", "+discard", "+subscribe", "+psubscribe", "+del", "+select|0", "+client|list")
    client.same("AUTH", "bob", "wrong")
    client.same("HELLO", "2", "AUTH", "bob", "wrong")
    client.same("AUTH", "bob", "pw")
    client.same("ACL", "WHOAMI")
    outcomes = [client.served(*words.split()) for words in """BF.CARD a1;BF.CARD r1;BF.CARD z;BF.ADD a1 x;BF.ADD r1 x;BF.ADD z x;BF.CARD z;
        DEL a1 z;CONFIG GET port;CONFIG SET port 1;PUBLISH c1 x;PUBLISH d x;PUBLISH d x;SELECT 0;SELECT 1;PING;FLUSHALL;CLIENT LIST;
        CLIENT ID;ECHO x;KEYS *""".split(";")]
    equal(outcomes.count(False), 14)
    client.same("MULTI")
    client.same("BF.CARD", "z")
    client.same("BF.CARD", "a1")
    client.same("EXEC")
    client.same("MULTI")
    client.same("BF.CARD", "r1")
    client.same("PUBLISH", "c1", "x")
    admin.same("ACL", "SETUSER", "bob", "-bf.card", "resetchannels", "&e")
    client.same("EXEC")
    for line in admin.ask("CLIENT", "LIST"):
        equal(len(re.findall(r" user=bob ", line[1])), 1)
    theirs, ours = logged(admin)
    equal(ours, theirs)
    holds(len(ours) >= 12, f"there are entries: {len(ours)}")
    admin.same("CONFIG", "SET", "acllog-max-len", "2")
    client.served("DBSIZE")
    theirs, ours = logged(admin)
    equal(ours, theirs)
    admin.same("CONFIG", "SET", "acllog-max-len", "128")
    admin.same("ACL", "LOG", "RESET")
    admin.same("ACL", "LOG")
    client.close()
    admin.close()


def test_changes_reach_clients():
    admin = begin()
    client, other = Pair(), Pair()
    admin.same("ACL", "SETUSER", "bob", "on", "nopass", "allkeys", "allchannels", "+@all")
    client.same("AUTH", "bob", "anything")
    holds(client.served("BF.ADD", "k", "x"), "it may")
    admin.same("ACL", "SETUSER", "bob", "off", "-bf.add")
    holds(not client.served("BF.ADD", "k", "x"), "it may not any more")
    holds(client.served("BF.CARD", "k2"), "a user that is off stays")
    other.same("AUTH", "bob", "anything")
    client.same("RESET")
    client.same("ACL", "WHOAMI")
    admin.same("ACL", "SETUSER", "bob", "on")
    client.same("AUTH", "bob", "anything")
    client.same("ACL", "SETUSER", "bob", "-ping")
    client.same("PING")
    admin.same("ACL", "DELUSER", "bob")
    client.closed()
    other.close()
    admin.close()


def test_channels_that_are_taken_away_close_subscribers():
    for revoked, closes in (("&other", True), ("&c*", False), ("allchannels", False)):
        admin = begin()
        client = Pair()
        admin.same("ACL", "SETUSER", "sub", "on", "nopass", "+@all", "resetchannels", "&c*")
        client.same("AUTH", "sub", "x")
        client.same("SUBSCRIBE", "c1", "c2")
        client.same("PSUBSCRIBE", "c*")
        client.same("PSUBSCRIBE", "c?")
        admin.same("ACL", "SETUSER", "sub", "resetchannels", revoked)
        if closes:
            client.closed()
        else:
            for side in client.sides:
                side.socket.sendall(encoded(["PING"]))
            equal(*[plain(side.reply()) for side in client.sides])
        client.close()
        admin.close()


def test_the_password_of_the_default_user():
    admin, client = begin(), Pair()
    client.same("PING")  # the connection has been accepted
    admin.same("CONFIG", "SET", "requirepass", "one")
    compare_user(admin, "default")
    fresh = Pair()
    fresh.same("PING")
    fresh.same("AUTH", "wrong")
    fresh.same("AUTH", "one")
    fresh.same("PING")
    admin.same("ACL", "SETUSER", "default", ">two")
    compare_user(admin, "default")
    fresh.same("AUTH", "two")
    fresh.same("AUTH", "default", "one")
    client.same("PING")
    admin.same("CONFIG", "SET", "requirepass", "")
    compare_user(admin, "default")
    last = Pair()
    last.same("PING")
    admin.same("ACL", "SETUSER", "default", "off")
    closed = Pair()
    closed.same("PING")
    closed.same("AUTH", "x")
    admin.same("ACL", "SETUSER", "default", "on")
    for pair in (fresh, last, closed, client, admin):
        pair.close()


if __name__ == "__main__":
    try:
        status = run("users beside redis-server", claims_of(sys.modules[__name__]))
    finally:
        REDIS.stop()
    sys.exit(status)
