"""Instructions of a server for some work, as callgrind counts them: nearly independent of the machine and its load.
Servers run with one worker under valgrind; callgrind_control marks the begin and the end of the work."""
import glob
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports

PATIENCE_S = 120
PORTS = free_ports(11900, 12000)


class Refused(Exception):
    """The server has replied with an error."""


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def lines_of_reply(words):
    return len(words) - 1 if words[0] in ("BF.MEXISTS", "BF.MADD") else 1


class Client:
    """A connection on which every command has one line as its reply, and a batch of n items n lines after its header."""

    def __init__(self, port, user=None, tls=None):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        if user:
            self.send([("AUTH", user, "any")])

    def send(self, commands):
        """Sends all at once; returns when each has its reply, and fails if one is an error."""
        self.send_bytes(b"".join(map(encode, commands)), sum(map(lines_of_reply, commands)))

    def send_bytes(self, request, lines):
        self.sock.sendall(request)
        got = b""
        while lines > 0:
            some = self.sock.recv(1 << 20)
            if not some:
                raise SystemExit("the server has closed the connection")
            *complete, got = (got + some).split(b"\r\n")
            for line in complete:
                if line.startswith(b"-"):
                    raise Refused(line.decode())
            lines -= len(complete)


def free_port():
    return next(PORTS)


class Server:
    """A server under callgrind, in a directory of its own unless one is given."""

    def __init__(self, arguments, directory=None):
        self.given = directory
        self.directory = directory or tempfile.mkdtemp(prefix="bloomery-instructions-")
        self.port = free_port()
        self.out = tempfile.mkdtemp(prefix="bloomery-callgrind-")
        self.process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={self.out}/out", *arguments,
             "--port", str(self.port), "--dir", self.directory], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.dumps = 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.admin = Client(self.port)
                self.admin.send([("DBSIZE",)])
                return
            except (OSError, Refused):
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.stop()
                    raise SystemExit(f"{arguments[0]} does not start") from None
                time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.out)
        if not self.given:
            shutil.rmtree(self.directory)

    def control(self, option):
        subprocess.run(["callgrind_control", option, str(self.process.pid)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def so_far(self):
        """Instructions of each thread since the last call of start() or so_far(), the most first."""
        self.control("-d")
        self.dumps += 1
        return sorted(map(total_of, glob.glob(f"{self.out}/out.{self.dumps}-*")), reverse=True)

    def start(self):
        self.control("-z")


def total_of(path):
    with open(path, encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(("summary:", "totals:")))


def trust(directory):
    """A TLS context for the certificates that tests/support/certificates makes."""
    return ssl.create_default_context(cafile=os.path.join(directory, "ca.crt"))
