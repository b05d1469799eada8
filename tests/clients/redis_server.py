#!/usr/bin/env python3
"""The daemon side by side with redis-server: generated conversations, valid and not, get the same replies from both, on
names that are filters here and strings there. What differs on purpose (tests/golden/corpus/DIFFERENCES.md) or between
versions of Redis is not generated. See with_daemon.py.

BLOOMERY_SIDE_ROUNDS=10000 goes on for longer; BLOOMERY_SIDE_SEED=n starts with conversation n, as a failure names it."""
import os
import random
import socket
import sys
import time

from redis_beside import Connection, RedisServer, encoded
from session import AUTH_PORT, PASSWORD, PORT, claims_of, run

ROUNDS = int(os.environ.get("BLOOMERY_SIDE_ROUNDS", "150"))
SEED = int(os.environ.get("BLOOMERY_SIDE_SEED", "0"))
LINES = 25  # of a conversation
RNG = random.Random()


REDIS = RedisServer([])
REDIS_AUTH = RedisServer(["--requirepass", PASSWORD])
PORTS = (REDIS.port, PORT)
AUTH_PORTS = (REDIS_AUTH.port, AUTH_PORT)

# ---- generated commands ----

NAMES = ["k1", "k2", "k3", "e1", "e2", "none"] * 4 + ["", "none2", "k\0bin", "a b", "*", "[x]"]
NUMBERS = """0 1 2 -1 -2 10 100 1000 100000 9223372036854775807 9223372036854775808 -9223372036854775808
    -9223372036854775809 4611686018427387904 9223372036854775 9223372036854776 18446744073709551615 1.5 1e3 abc +1 -0 01
    0x10 inf nan 2147483647 2147483648 99999999999999999999""".split() + ["", " 1", "1 ", "1\0"]
NO_TIMES = [n for n in NUMBERS if n not in ("1", "2", "10", "100", "1000", "100000", "2147483647", "2147483648",
                                          "4611686018427387904", "9223372036854775", "9223372036854776")]
PATTERNS = """* k* ?1 [ke]1 [^k]1 [a-z]? \\* k\\1 [ [] [^] [a k[1- k[3-1] \\ *1* k1 [\\]x]* [x] *[[]x] ? a?b \\[x\\] K* [a-]*
    [-a]* []-]x]""".split() + ["", "a b", "k\0*"]
CHANNELS = ["c1", "c2", "c3", "", "k*"]
SETTINGS = """timeout tcp-keepalive tcp-backlog slowlog-max-len slowlog-log-slower-than TCP-* *-backlog slowlog-* [st]*-max-len
    protected-mode timeou? *keepalive foo no*such""".split() + [""]


def one(*choices):
    return RNG.choice(choices)


def word(text):
    """One of the words, sometimes in letters of another case."""
    chosen = RNG.choice(text.split(" "))
    return chosen if RNG.random() < 0.8 else "".join(one(c.upper(), c.lower()) for c in chosen)


def some(choices, least, most):
    return [RNG.choice(choices) for _ in range(RNG.randint(least, most))]


def number():
    return RNG.choice(NUMBERS)


def name():
    return RNG.choice(NAMES)


def database():
    return one("0", "1", "2", "15", "16")


def options(*makers, most=3):
    return [w for _ in range(RNG.randint(0, most)) for w in RNG.choice(makers)()]


def time_options():
    return options(lambda: [word("NX XX GT LT FOO")], lambda: [""])


def time_to_live():
    """So long that nothing expires meanwhile, and never the same again: the milliseconds decide which is greater."""
    return str(RNG.randint(50, 5000) * 1000) if RNG.random() < 0.6 else RNG.choice(NO_TIMES)


def hello():
    """Correct, or with one mistake only: Redis 7.0 runs the part before a mistake, later versions nothing."""
    mistake = one(["AUTH", one("bob", ""), one(PASSWORD, "")], ["SETNAME", "a b"], ["FOO"], ["AUTH"], ["AUTH", "default"],
                  ["SETNAME"])
    right = options(lambda: [word("AUTH"), "default", PASSWORD], lambda: [word("SETNAME"), one("n1", "")], most=2)
    return ["HELLO", one("2", "3")] + one(mistake, right)


def password():
    return one(["AUTH", PASSWORD], ["AUTH", "default", PASSWORD], ["AUTH", "wrong"], ["AUTH", "default", "wrong"],
               ["AUTH", "bob", PASSWORD], ["AUTH"], ["PING"], hello(), ["RESET"], ["QUIT"])


def unix_time(scale):
    seconds = int(time.time()) + RNG.choice([1234567, -1234567, 12345678])
    return str(seconds * scale) if RNG.random() < 0.6 else number()


# Each makes one command line, with mistakes in it or not.
KINDS = [
    lambda: ["PING"] + some(NUMBERS, 0, 2),
    lambda: ["ECHO"] + some(NUMBERS, 0, 2),
    lambda: ["SELECT", number()],
    lambda: ["AUTH"] + some(["default", "pw", "", "bob"], 0, 3),
    lambda: ["HELLO", one("1", "4", "0", "-1", "abc", "3.0", "", "03", "99999999999999999999")],
    lambda: ["HELLO", one("2", "3"), one("FOO", "AUTH", "SETNAME")],
    lambda: hello(),
    lambda: ["CLIENT", "SETNAME"] + some(["n1", "", "a b", "x\ny", "\x7f", "~"], 0, 2),
    lambda: ["CLIENT", "GETNAME"] + some(NUMBERS, 0, 1),
    lambda: ["CLIENT", "NO-EVICT"] + some(["on", "OFF", "FOO"], 0, 2),
    lambda: ["CLIENT", "PAUSE", one("-1", "abc", "1.5", "9223372036854775808")],
    lambda: ["CLIENT", "UNBLOCK"] + some(["99999999", "abc", "TIMEOUT", "ERROR", "FOO"], 0, 4),
    lambda: ["CLIENT", "KILL"] + some("ID ADDR LADDR USER TYPE SKIPME FOO 99999999 abc -1 0 foo bob 1.2.3.4:5".split(), 0, 4),
    lambda: ["CLIENT", one("ID", "INFO", "UNPAUSE")] + some(NO_TIMES, 1, 2),
    lambda: ["CLIENT", "LIST"] + some("TYPE ID master replica foo abc -1".split(), 1, 3),
    lambda: [word("CLIENT CONFIG OBJECT PUBSUB ACL SLOWLOG MEMORY LATENCY COMMAND CLUSTER MODULE"), "foo bar"]
    + some(NUMBERS, 0, 1),
    lambda: [word("DEL UNLINK EXISTS TOUCH")] + some(NAMES, 0, 4),
    lambda: [word("RENAME RENAMENX"), name(), name()],
    lambda: [word("RENAME RENAMENX")] + some(NAMES, 0, 3),
    lambda: ["COPY", name(), name()] + options(lambda: [word("REPLACE DB FOO 0")], lambda: ["DB", number()]),
    lambda: ["MOVE", name(), number()],
    lambda: ["SWAPDB", number(), number()],
    lambda: ["SELECT", database()],
    lambda: ["MOVE", name(), database()],
    lambda: ["SWAPDB", database(), database()],
    lambda: ["COPY", name(), name(), "DB", database()] + options(lambda: ["REPLACE"], most=1),
    lambda: [word("FLUSHDB DBSIZE"), *one([], ["SYNC"], ["ASYNC"])] if RNG.random() < 0.5 else ["DBSIZE"],
    lambda: ["INFO", "keyspace"],
    lambda: ["OBJECT", word("REFCOUNT FREQ IDLETIME FOO"), name()] + some(NAMES, 0, 1),
    lambda: [word("EXPIRE PEXPIRE"), name(), time_to_live()] + time_options(),
    lambda: ["EXPIREAT", name(), unix_time(1)] + time_options(),
    lambda: ["PEXPIREAT", name(), unix_time(1000)] + time_options(),
    lambda: [word("TTL PTTL EXPIRETIME PEXPIRETIME PERSIST"), name()],
    lambda: [word("TTL PTTL EXPIRETIME PEXPIRETIME PERSIST")] + some(NAMES, 0, 3),
    lambda: ["KEYS", RNG.choice(PATTERNS)],
    lambda: ["KEYS"] + some(PATTERNS, 0, 2),
    lambda: ["SCAN", "0", "COUNT", "1000"] + options(lambda: ["MATCH", RNG.choice(PATTERNS)], most=1),
    lambda: ["SCAN", one("0", "00", "000")] + options(
        lambda: ["MATCH", RNG.choice(PATTERNS)], lambda: ["COUNT", one("1000", "100000", "9223372036854775807")],
        lambda: ["TYPE", one("list", "zset", "foo", "")], lambda: [word("TYPE NOVALUES")], most=4) + ["COUNT", "1000"],
    lambda: ["SCAN", one("abc", "1.5", "99999999999999999999")],
    lambda: ["SCAN", "0"] + options(lambda: ["COUNT", one("0", "abc", "-1", "")], lambda: [word("MATCH COUNT FOO")])
    + ["COUNT"],
    lambda: ["DBSIZE"] + some(NUMBERS, 0, 1),
    lambda: [word("MULTI EXEC DISCARD UNWATCH RESET")],
    lambda: ["MULTI"],
    lambda: ["EXEC"],
    lambda: ["QUIT"] + some(NUMBERS, 0, 1) if RNG.random() < 0.2 else ["RESET"],
    lambda: [word("MULTI EXEC DISCARD UNWATCH"), number()],
    lambda: ["WATCH"] + some(NAMES, 0, 3),
    lambda: [word("FLUSHALL FLUSHDB")] + some(["ASYNC", "sync", "FOO"], 0, 2),
    lambda: [word("SUBSCRIBE PSUBSCRIBE SSUBSCRIBE")] + some(CHANNELS, 0, 3),
    lambda: [word("UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE")] + some(CHANNELS, 1, 3),
    lambda: ["PUBSUB", "NUMSUB"] + some(CHANNELS, 0, 3),
    lambda: ["PUBSUB", "CHANNELS"] + some(PATTERNS, 0, 2),
    lambda: ["PUBSUB", word("NUMPAT SHARDNUMSUB SHARDCHANNELS")] + some(CHANNELS, 0, 2),
    lambda: [word("PUBLISH SPUBLISH")] + some(["nobody", "is", "there"], 0, 3),
    lambda: ["CONFIG", "GET"] + some(SETTINGS, 0, 4),
    lambda: ["CONFIG", "SET", "maxmemory", one("0", "00", "1x", "-1", " 1", "1 kb", "x", "9gb", "0100GB", "1e9", "1.5g")],
    lambda: ["CONFIG", "SET", "tcp-keepalive", number()],
    lambda: ["CONFIG", "SET", "timeout", one("abc", "", "1.5", "1 ", "-1", "0")],
    lambda: ["CONFIG", "SET", "notify-keyspace-events", one("KEA", "", "foo", "Kx", "A", "KElg", "!")],
    lambda: ["CONFIG", "SET", one("foo", "timeout"), "0", one("timeout", "foo", "latency-tracking")]
    + some(["0", "yes", "foo"], 0, 1),
    lambda: ["CONFIG", "SET", "save", one("", "3600 1", "1", "a b", "1 2 3", "-1 2", "900 1 300 10")],
    lambda: ["COMMAND", "INFO"] + some(["foo", "config|foo", ""], 1, 2),
    lambda: ["COMMAND", "GETKEYS"] + RNG.choice(KINDS)() + ["x", "y"],
    lambda: ["COMMAND", "LIST"] + some("FILTERBY MODULE ACLCAT PATTERN nosuch foo".split(), 1, 4),
    lambda: ["COMMAND", word("DOCS INFO")] + some(["nosuch", "", "foo|bar"], 1, 3),
    lambda: ["COMMAND", word("COUNT LIST")] + some(NUMBERS, 1, 2),
    lambda: ["DEBUG"] + some(["SLEEP", "0", "OBJECT", "k1", "foo"], 0, 3),
    lambda: ["SLOWLOG", "GET"] + some(["-2", "abc", "1.5", "0"], 1, 2),
    lambda: ["SLOWLOG", word("LEN RESET")] + some(NUMBERS, 1, 2),
    lambda: ["LATENCY", "HISTOGRAM", "nosuch"] + some(["foo"], 0, 1),
    lambda: ["LATENCY", word("LATEST")],
    lambda: ["MEMORY", "USAGE"] + some(NAMES, 0, 2),
    lambda: ["MEMORY", "USAGE", name()] + options(lambda: ["SAMPLES", number()], lambda: [word("SAMPLES FOO")], most=2),
    lambda: ["ACL", one("WHOAMI", "USERS")] + some(NUMBERS, 0, 1),
    lambda: ["ACL", one("GENPASS", "CAT", "LOG")] + some(["abc", "-1", "nosuch"], 1, 2),
    lambda: ["ACL", "GETUSER"] + some(["nosuch", ""], 0, 2),
    lambda: ["ACL", "DRYRUN", one("default", "nosuch"), one("ping", "del", "nosuch", "config", "config|get")]
    + some(NAMES, 0, 2),
    lambda: ["ACL", "LOG", one("RESET", "0", "-1", "abc")] + some(NUMBERS, 0, 1),
    lambda: ["WAIT"] + some(["0", "abc", "-1"], 0, 1) + some(["abc", "-1", "1", "0"], 0, 1),
    lambda: ["WAIT", one("0", "1"), "1"],
    lambda: [word("REPLICAOF SLAVEOF"), word("NO"), word("ONE")],
    lambda: ["FAILOVER"] + some(["ABORT"], 0, 1),
    lambda: [word("ASKING READONLY READWRITE")] + some(NUMBERS, 0, 1),
    lambda: ["CLUSTER", word("INFO NODES SLOTS SHARDS MYID KEYSLOT FOO")] + some(NUMBERS, 0, 1),
    lambda: ["BGSAVE"] + some(["FOO", "SCHEDULE"], 2, 3),
    lambda: ["SHUTDOWN", one("FOO", "ABORT", "")] + some(["FOO", ""], 0, 2),
    lambda: ["RESTORE", name(), one("0", "5", "-1", "abc"), one("garbage", "")] + options(
        lambda: [word("REPLACE ABSTTL FOO")], lambda: [word("IDLETIME FREQ"), number()]),
    lambda: [word("LASTSAVE TIME ROLE SAVE BGREWRITEAOF RANDOMKEY"), number()],
    lambda: ["foo"] + some(["z" * 60, "", "a b", "y" * 200, "\xff'"], 0, 6),
    # No command with a NUL behind it: Redis ends names there when it compares them, so it finds some, by the random hash.
    lambda: [one("", "get\r\nx", "config|get", "FOO'\"\\", "FOO\0", "x" * 200)] + some(["a\r\nb", "1"], 0, 2),
]

# Commands with which any mistake may be made.
ROBUST = """PING ECHO SELECT DEL UNLINK EXISTS TOUCH RENAME RENAMENX COPY MOVE SWAPDB OBJECT EXPIREAT PEXPIREAT TTL PTTL
    EXPIRETIME PEXPIRETIME PERSIST KEYS DBSIZE MULTI EXEC DISCARD UNWATCH WATCH FLUSHALL FLUSHDB foo""".split()


def command_line():
    words = RNG.choice(KINDS)()
    mistake = RNG.random()
    if words[0] not in ROBUST:
        return words
    if mistake < 0.03 and len(words) > 1:
        del words[RNG.randrange(1, len(words))]
    elif mistake < 0.06:
        words.insert(RNG.randint(1, len(words)), number())
    elif mistake < 0.08 and len(words) > 1:
        words[RNG.randrange(1, len(words))] = number()
    return words


# ---- permitted differences ----

TIME = 10000    # numbers above are times, which both sides got at nearly the same time
NEAR = 30000
UNORDERED = ("KEYS", "SCAN", "PUBSUB", "CONFIG")
VERSIONED = (b"wrong number of arguments for 'command|getkeys' command",  # it takes fewer since Redis 7.2
             b"NOAUTH HELLO must be called with")  # another word in it since Redis 7.2


def alike(words, there, here, queued=()):
    """`queued`: the lines whose replies an EXEC's reply consists of."""
    if there == here or (words and words[0].upper() in UNORDERED and in_order(there) == in_order(here)):
        return True
    if there[0] == b"-" and any(text in there[1] for text in VERSIONED):
        return True
    if there[0] != here[0]:
        return False
    command = words[0].upper() if words else ""
    if command == "HELLO" and there[0] in b"*%":
        return greeting(there) == greeting(here)
    if command == "INFO" and there[0] in b"$=":  # newer versions of Redis have another field behind these
        return keyspace(there[1]) == keyspace(here[1])
    if command in ("MEMORY", "OBJECT") and there[0] == b":":
        return True  # a size, and an idle time that may just have become a second more
    if command == "PUBSUB" and there[0] == b"*" and len(there[1]) < len(here[1]):
        return in_order((b"*", there[1] + [(b"$", b"")])) == in_order(here)  # patterns fit the empty name here
    if command == "TTL" and there[0] == b":":
        return min(there[1], here[1]) > 0 and abs(there[1] - here[1]) < NEAR / 1000
    if there[0] == b":":
        return min(there[1], here[1]) > TIME and abs(there[1] - here[1]) < NEAR
    if not isinstance(there[1], list) or not isinstance(here[1], list) or len(there[1]) != len(here[1]):
        return False
    lines = queued if len(queued) == len(there[1]) else [[]] * len(there[1])
    return all(alike(line, a, b) or in_order(a) == in_order(b) for line, a, b in zip(lines, there[1], here[1]))


def keyspace(text):
    """Its lines without the mean times to live."""
    return [line.split(b",avg_ttl")[0] for line in text.split(b"\r\n") if line.startswith(b"db")]


def greeting(reply):
    """Without a server's data about itself."""
    pairs = dict(zip([name[1] for name in reply[1][::2]], reply[1][1::2]))
    return [(name, value) for name, value in pairs.items() if name not in (b"version", b"id", b"modules")]


def in_order(reply):
    return (reply[0], sorted(map(in_order, reply[1]), key=repr)) if isinstance(reply[1], list) else reply


# ---- conversations ----


def prepare(ports, *first):
    """The same names on both sides, with the same times to live."""
    for port, create in zip(ports, (["SET", "{}", "v"], ["BF.RESERVE", "{}", "0.01", "10"])):
        connection = Connection(port)
        lines = list(first) + [["FLUSHALL"]] + [[w.format(key) for w in create] for key in ("k1", "k2", "k3", "e1", "e2")]
        lines += [["EXPIRE", "e1", "1000000"], ["PEXPIRE", "e2", "2000000000"]]
        lines += [["CONFIG", "SET", "timeout", "0", "notify-keyspace-events", "", "save", "", "appendfsync", "everysec"]]
        connection.socket.sendall(b"".join(map(encoded, lines)))
        for line in lines:
            answer = connection.reply()
            if answer[0] == b"-":
                raise AssertionError(f"port {port}: {line} was answered {answer}")
        connection.close()


# Refused in a transaction, where all clients would wait for them.
DEFERRED = """KEYS SCAN FLUSHALL FLUSHDB INFO DUMP RESTORE COPY SAVE SHUTDOWN PUBSUB|CHANNELS PUBSUB|SHARDCHANNELS
    CLIENT|LIST CLIENT|KILL CONFIG|REWRITE CONFIG|RESETSTAT SLOWLOG|GET LATENCY|HISTOGRAM""".split()


def is_deferred(words):
    return "|".join(words[:1]).upper() in DEFERRED or "|".join(words[:2]).upper() in DEFERRED


def is_alone(words, what):
    return len(words) == 1 and words[0].upper() in what


def talk(seed, ports, command_line):
    """A conversation on one connection with each server, in RESP3 if its number is odd."""
    pair = [Connection(port) for port in ports]
    if seed % 2:
        for connection in pair:
            connection.socket.sendall(encoded(["HELLO", "3"]))
            connection.reply()
    in_multi, queued = False, []
    words = []
    for i in range(LINES):
        words = command_line()
        while in_multi and is_deferred(words):
            words = command_line()
        mark = b"mark %d" % i
        begins = not in_multi and is_alone(words, ("MULTI",))
        in_multi = in_multi and not is_alone(words, ("EXEC", "DISCARD", "RESET"))
        # A command may have many replies, or none; the error for an unknown command ends them. It would taint a
        # transaction, in which each command has one reply.
        one_reply = begins or in_multi
        replies = ([], [])
        for connection, out in zip(pair, replies):
            connection.socket.sendall(encoded(words) + (b"" if one_reply else encoded([mark.decode()])))
        for connection, out in zip(pair, replies):
            while True:
                out.append(connection.reply())
                if one_reply or mark in repr(out[-1]).encode() or out[-1][0] == b"":
                    break
        there, here = replies
        if len(there) != len(here) or not all(alike(words, a, b, queued) for a, b in zip(there, here)):
            raise AssertionError(f"conversation {seed}, line {i}: {words}\nredis-server: {there}\nhere: {here}")
        if there[-1][0] == b"":
            break
        in_multi = in_multi or (begins and there[0][0] == b"+")
        queued = queued + [words] if there[0] == (b"+", b"QUEUED") else queued if in_multi else []
    for connection in pair:
        connection.close()


def test_conversations_are_the_same():
    """Generated command lines, one after the other on one connection, RESP2 and RESP3, get the same replies."""
    for seed in range(SEED, SEED + ROUNDS):
        RNG.seed(seed)
        prepare(PORTS)
        talk(seed, PORTS, command_line)


def test_nobody_gets_past_the_password():
    """With a password, both servers refuse the same commands before AUTH or HELLO has given it."""
    for seed in range(SEED, SEED + ROUNDS // 3):
        RNG.seed(seed)
        prepare(AUTH_PORTS, ["AUTH", PASSWORD])
        talk(seed, AUTH_PORTS, lambda: password() if RNG.random() < 0.15 else command_line())


# ---- bytes ----

INLINE = [b"PING", b"ECHO", b"ping", b"EXISTS k1", b"DEL", b'"a b"', b"'a b'", b'"\\x41\\n"', b'"\\xZZ"', b"'\\''", b"'\\n'",
          b'"abc', b"'abc", b'"a"b', b"'a'b", b'a"b"', b'""', b"''", b" ", b"  ", b"\t", b"\\", b"\xff", b"*", b"$", b"*1",
          b"$4", b'"\\\\"', b'"\\q"', b"\v"]
LENGTHS = [b"0", b"1", b"2", b"3", b"-1", b"-2", b"-0", b"1048576", b"2147483648", b"", b"a", b"1a", b" 1", b"+1",
           b"01", b"4", b"1 ", b"99999999999999999999", b"-9223372036854775808"]


def inline_bytes():
    return b" ".join(some(INLINE, 0, 4)) + one(b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\n", b"\r\r\n", b"\n\r\n")


def command_bytes():
    words = one(["PING"], ["ECHO", "".join(some("ab\r\n*$ ", 0, 6))], ["EXISTS", "k1"], ["NOSUCH"], [],
                ["CLIENT", "REPLY"] + some(["on", "foo"], 0, 2), ["CLIENT", "REPLY", "skip"], ["CLIENT", "REPLY", "OFF"])
    # To Redis an empty line is a command, too, whose reply is skipped, and a protocol error is not sent after OFF.
    after = {"skip": [["PING"]], "OFF": [["ECHO", "x"], ["NOSUCH"], ["CLIENT", "REPLY", "ON"]]}
    return b"".join(map(encoded, [words] + after.get("".join(words[2:]), [])))


def broken_bytes():
    count = RNG.choice(LENGTHS) if RNG.random() < 0.5 else b"1"
    kind = one(b"$", b"$", b"$", b"*", b":", b"x")
    length = RNG.choice(LENGTHS + ([b"536870912", b"536870913"] if kind == b"$" else [])) if RNG.random() < 0.5 else b"4"
    return (one(b"*", b"*", b"*", b"$", b"+", b":", b"~", b"%", b">") + count + one(b"\r\n", b"\r\n", b"\r\n", b"\n", b"\rx")
            + kind + length + one(b"\r\n", b"\r\n", b"\r\n", b"\n", b"\rx")
            + one(b"PING", b"PIN", b"ping") + one(b"\r\n", b"\r\n", b"\n\n", b"xx"))


def all_replies(port, pieces):
    connection = Connection(port)
    try:
        for piece in pieces:
            connection.socket.sendall(piece)
        connection.socket.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # a protocol error closes the connection
    replies = b""
    try:
        while more := connection.socket.recv(65536):
            replies += more
    except ConnectionResetError:
        pass  # it was closed before all had been sent
    connection.close()
    # Errors show control characters here as spaces, and the byte of a protocol error by its number.
    for code in (b"\\x0d", b"\\x0a", b"\\x09", b"\\x0b"):
        replies = replies.replace(b"got '" + code, b"got ' ")
    return replies.replace(b"\v", b" ").replace(b"\t", b" ")


def test_bytes_are_read_the_same():
    """Plain lines, arrays and other bytes, in pieces cut anywhere, get the same replies, and the same end."""
    prepare(PORTS)
    for seed in range(SEED, SEED + ROUNDS * 3):
        RNG.seed(seed)
        data = b"".join(RNG.choices([inline_bytes, command_bytes, broken_bytes], [9, 6, 5])[0]()
                        for _ in range(RNG.randint(1, 4))) + b"\r\nPING the-end\r\n"
        cuts = sorted(RNG.sample(range(len(data)), min(len(data), RNG.randint(0, 5))))
        pieces = [data[a:b] for a, b in zip([0] + cuts, cuts + [len(data)])]
        there, here = (all_replies(port, pieces) for port in PORTS)
        if there != here:
            raise AssertionError(f"bytes {seed}: {pieces}\nredis-server: {there}\nhere: {here}")


if __name__ == "__main__":
    try:
        status = run("redis-server", claims_of(sys.modules[__name__]))
    finally:
        REDIS.stop()
        REDIS_AUTH.stop()
    sys.exit(status)
