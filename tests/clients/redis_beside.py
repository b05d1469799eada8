"""A redis-server to compare with (BLOOMERY_REDIS_SERVER is its program), and connections that show unchanged replies."""
import os
import socket
import subprocess
import sys
import tempfile
import time

from session import PATIENCE_S
from with_daemon import die_with_parent, free_port


class Connection:
    """Replies are pairs: the type's first byte, and bytes, a number or a list of replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def reply(self):
        try:
            line = self.stream.readline()
        except ConnectionResetError:  # it was closed before all had been read
            line = b""
        kind, rest = line[:1], line[1:-2]
        if kind in (b"+", b"-", b"#", b"_", b","):
            return kind, rest
        if kind == b":":
            return kind, int(rest)
        if kind in (b"$", b"="):
            return kind, None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
        if kind in (b"*", b">", b"~", b"%"):
            n = int(rest) * (2 if kind == b"%" else 1)
            return kind, None if n < 0 else [self.reply() for _ in range(n)]
        if not line:
            return b"", b"the connection is closed"
        raise AssertionError(f"not RESP: {line!r}")

    def close(self):
        self.stream.close()
        self.socket.close()


def encoded(words):
    words = [word.encode("latin1") for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class RedisServer:
    def __init__(self, arguments):
        self.directory = tempfile.TemporaryDirectory()
        for _ in range(5):  # another process may take the port between the look and the bind
            self.port = free_port()
            self.process = subprocess.Popen(
                [os.environ["BLOOMERY_REDIS_SERVER"], "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                 "--dir", self.directory.name] + arguments, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)
            if self.ready():
                return
        sys.exit("redis-server does not start")

    def ready(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                Connection(self.port).close()
                return True
            except OSError:
                time.sleep(0.01)
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()
