"""stranger.py: a daemon and a connection to it for programs that know docs/ alone. It shares no code with the other tests."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE_S = 240


class Refused(Exception):
    """An error reply."""


class Gone(Exception):
    """The connection has ended; what was asked may have been done."""


class Connection:
    """RESP2 over one socket. Each wait has an end, and says for what it waited."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waiting = self.socket.makefile("rb")

    def send(self, *words):
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        text = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        try:
            self.socket.sendall(text)
        except TimeoutError:
            raise AssertionError(f"{words[0]} was not taken within {PATIENCE_S} s") from None
        except OSError as error:
            raise Gone from error

    def reply(self, asked="a reply"):
        try:
            line = self.waiting.readline()
        except TimeoutError:
            raise AssertionError(f"{asked}: no answer within {PATIENCE_S} s") from None
        except OSError as error:
            raise Gone from error
        if not line.endswith(b"\r\n"):
            raise Gone
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.bulk(int(rest))
        assert kind == b"*", line
        return None if rest == b"-1" else [self.element(asked) for _ in range(int(rest))]

    def bulk(self, size):
        data = self.waiting.read(size + 2)
        if len(data) < size + 2:
            raise Gone
        return data[:-2]

    def element(self, asked):
        try:
            return self.reply(asked)
        except Refused as error:
            return error

    def ask(self, *words):
        self.send(*words)
        return self.reply(words[0])

    def close(self):
        self.socket.close()


claims = []


def free_port():
    """Below the ports that the kernel gives to connections: one of those could take the port while the daemon is down. A name,
    which ends with this program, keeps other tests away."""
    for port in range(30000, 30100):
        claim = socket.socket(socket.AF_UNIX)
        claims.append(claim)
        try:
            claim.bind(f"\0bloomery-test-port-{port}")
            with socket.socket() as free:
                free.bind(("127.0.0.1", port))
            return port
        except OSError:
            continue
    raise AssertionError("no port is free")


class Daemon:
    def __init__(self, program, *settings):
        self.directory = tempfile.mkdtemp(prefix="bloomery-stranger-")
        self.port = free_port()
        self.command = [program, "--port", str(self.port), "--dir", os.path.join(self.directory, "data"), *settings]
        self.log = os.path.join(self.directory, "log")
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error:
            print(self.said())
        self.remove()

    def launch(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def start(self):
        self.launch()
        until = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, "the daemon did not start:\n" + self.said()
            assert time.monotonic() < until, "the daemon did not answer PING:\n" + self.said()
            try:
                connection = Connection(self.port)
                if connection.ask("PING") == "PONG":
                    return connection
            except (OSError, Gone, Refused):
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.said()

    def said(self):
        with open(self.log, errors="replace", encoding="utf-8") as log:
            return log.read()[-4000:]

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        shutil.rmtree(self.directory)
