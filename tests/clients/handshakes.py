#!/usr/bin/env python3
"""Bytes that libraries not installed here send when they connect, and their demands on the replies:
jedis, lettuce, go-redis, redisson, StackExchange.Redis, redis-py 8. See with_daemon.py."""
import socket
import sys

from session import AUTH_PORT, PASSWORD, PATIENCE_S, PORT, claims_of, equal, holds, run


class Error(str):
    pass


class Connection:
    def __init__(self, port=PORT):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.stream = self.socket.makefile("rb")

    def send(self, *commands):
        """Pipelined; each is a list of arguments."""
        out = b""
        for command in commands:
            arguments = [a if isinstance(a, bytes) else str(a).encode() for a in command]
            out += b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in arguments)
        self.socket.sendall(out)

    def reply(self):
        line = self.stream.readline()
        holds(line.endswith(b"\r\n"), f"a whole line, not {line!r}")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"#":
            return {b"t": True, b"f": False}[rest]
        if kind == b"_":
            return None
        if kind in (b"$", b"="):
            if rest == b"-1":
                return None
            data = self.stream.read(int(rest) + 2)
            return data[:-2] if kind == b"$" else data[4:-2]
        if kind in (b"*", b">", b"~"):
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b"%":
            return {self.reply(): self.reply() for _ in range(int(rest))}
        raise AssertionError(f"not RESP: {line!r}")

    def ask(self, *arguments):
        self.send(arguments)
        return self.reply()

    def ask_all(self, *commands):
        self.send(*commands)
        return [self.reply() for _ in commands]


def is_unknown(reply):
    """The wording by which jedis and lettuce know that a server is too old for something."""
    return isinstance(reply, Error) and "unknown" in reply.lower()


def is_hello(reply, proto):
    holds(isinstance(reply, dict), f"a map: {reply!r}")
    equal((reply[b"proto"], reply[b"mode"], reply[b"role"]), (proto, b"standalone", b"master"))
    equal([type(reply[field]) for field in (b"id", b"version", b"modules")], [int, bytes, list])


def test_jedis():
    for port, auth in ((PORT, []), (AUTH_PORT, [["AUTH", PASSWORD]])):
        connection = Connection(port)
        replies = connection.ask_all(*auth, ["SELECT", 0], ["CLIENT", "SETNAME", "jedis-pool"],
                                     ["CLIENT", "SETINFO", "lib-name", "jedis"],
                                     ["CLIENT", "SETINFO", "lib-ver", "6.0.0"])
        equal(replies, ["OK"] * (4 + len(auth)))
        equal(connection.ask("PING"), "PONG")  # testOnBorrow
    connection = Connection(AUTH_PORT)
    is_hello(connection.ask("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "jedis"), 3)
    equal(connection.ask("BF.ADD", "f", "a"), True)


def test_a_client_side_cache_is_refused():
    """redis-py's and jedis' CacheConfig send this; the error says what to use instead."""
    connection = Connection()
    hello = connection.ask("HELLO", 3)
    holds(hello[b"server"] == b"redis", hello)
    holds("not supported" in str(connection.ask("CLIENT", "TRACKING", "ON")), "CLIENT TRACKING ON")
    equal(connection.ask("CLIENT", "TRACKING", "OFF"), "OK")


def test_lettuce():
    connection = Connection()
    is_hello(connection.ask("HELLO", 3), 3)
    equal(connection.ask("CLIENT", "SETINFO", "lib-name", "Lettuce"), "OK")
    equal(connection.ask("CLIENT", "SETINFO", "lib-ver", "6.5.0.RELEASE/4b8d"), "OK")
    maintenance = connection.ask("CLIENT", "MAINT_NOTIFICATIONS", "on", "moving-endpoint-type", "none")
    holds(isinstance(maintenance, Error), "no such notifications")
    connection = Connection(AUTH_PORT)
    holds(connection.ask("HELLO", 3).startswith("NOAUTH"), "HELLO without the password")
    is_hello(connection.ask("HELLO", 3, "AUTH", "default", PASSWORD, "SETNAME", "app"), 3)
    holds(Connection().ask("HELLO", 9).startswith("NOPROTO"), "a version that there is not")


def test_go_redis():
    connection = Connection()
    is_hello(connection.ask("hello", 3), 3)
    replies = connection.ask_all(["client", "maint_notifications", "on", "moving-endpoint-type", "none"],
                                 ["client", "setinfo", "LIB-NAME", "go-redis(,go1.24.1)"],
                                 ["client", "setinfo", "LIB-VER", "9.11.0"])
    holds(isinstance(replies[0], Error), "no such notifications")
    equal(replies[1:], ["OK", "OK"])
    equal(connection.ask("bf.reserve", "go", "0.01", "1000"), "OK")
    equal(connection.ask("bf.insert", "go", "ITEMS", "a", "b"), [True, True])
    equal(connection.ask("bf.info", "go", "capacity"), {"Capacity": 1000})
    equal(connection.ask("del", "go"), 1)


def test_redisson():
    connection = Connection(AUTH_PORT)
    equal(connection.ask_all(["AUTH", PASSWORD], ["SELECT", "0"], ["CLIENT", "SETNAME", "redisson"], ["PING"]),
          ["OK", "OK", "OK", "PONG"])


def test_stackexchange_redis():
    connection = Connection()
    name, library, version, number = connection.ask_all(
        ["CLIENT", "SETNAME", "web-7(SE.Redis-v2.8.0)"], ["CLIENT", "SETINFO", "lib-name", "SE.Redis"],
        ["CLIENT", "SETINFO", "lib-ver", "2.8.0"], ["CLIENT", "ID"])
    equal((name, library, version), ("OK", "OK", "OK"))
    holds(number > 0, "CLIENT ID")
    for setting in ("slave-read-only", "replica-read-only"):
        reply = connection.ask("CONFIG", "GET", setting)
        holds(reply in ([], [setting.encode(), b"no"], [setting.encode(), b"yes"]), f"{reply}")
    equal(connection.ask("CONFIG", "GET", "databases"), [b"databases", b"16"])
    equal(connection.ask("CONFIG", "GET", "timeout"), [b"timeout", b"0"])
    holds(b"role:master" in connection.ask("INFO", "replication"), "INFO replication")
    holds(b"redis_version:" in connection.ask("INFO", "server"), "INFO server")
    holds(isinstance(connection.ask("CLUSTER", "NODES"), Error), "no cluster")
    holds(is_unknown(connection.ask("GET", "__Booksleeve_TieBreak")), "no strings")
    tracer = bytes(range(240, 256))
    equal(connection.ask("ECHO", tracer), tracer)
    subscriber = Connection()
    equal(subscriber.ask("SUBSCRIBE", "__Booksleeve_MasterChanged"), [b"subscribe", b"__Booksleeve_MasterChanged", 1])
    equal(subscriber.ask("PING"), [b"pong", b""])


def test_redis_py_8():
    connection = Connection()
    is_hello(connection.ask("HELLO", 3), 3)
    maintenance = connection.ask("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-fqdn")
    holds(isinstance(maintenance, Error), "no such notifications")
    equal(connection.ask("CLIENT", "SETINFO", "LIB-NAME", "redis-py"), "OK")
    equal(connection.ask("CLIENT", "SETINFO", "LIB-VER", "8.1.0"), "OK")
    equal(connection.ask("BF.RESERVE", "py", 0.01, 1000, "EXPANSION", 2), "OK")
    info = connection.ask("BF.INFO", "py")
    equal(sorted(info), ["Capacity", "Expansion rate", "Number of filters", "Number of items inserted", "Size"])
    equal(connection.ask("DEL", "py"), 1)


if __name__ == "__main__":
    sys.exit(run("handshakes", claims_of(sys.modules["__main__"])))
