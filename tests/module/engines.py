"""Engines with the module for tests: redis-server processes on free ports of 127.0.0.1, each with a directory of its own,
and connections to them. All end with the test.

  BLOOMERY_MODULE     the module
  BLOOMERY_ENGINE     the engine's program; redis-server
  BLOOMERY_OLDER_ENGINE  one of an older version, for older.py
  BLOOMERY_DAEMON     bloomeryd
  BLOOMERY_CLOCK_AHEAD_LIBRARY  clock_ahead.c
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports

MODULE = os.environ.get("BLOOMERY_MODULE", os.path.abspath("build/dev/module/bloomery.so"))
ENGINE = os.environ.get("BLOOMERY_ENGINE", "redis-server")
OLDER = os.environ.get("BLOOMERY_OLDER_ENGINE")
DAEMON = os.environ.get("BLOOMERY_DAEMON", os.path.abspath("build/dev/server/bloomeryd"))
CLOCK_AHEAD = os.environ.get("BLOOMERY_CLOCK_AHEAD_LIBRARY", os.path.abspath("build/dev/tests/module/libclock_ahead.so"))
PATIENCE_S = 240  # for anything that certainly happens, on a busy machine, too
SIGNS = ("AddressSanitizer", "runtime error:", ": bug: !(", "REDIS BUG REPORT", "VALKEY BUG REPORT", "Guru Meditation",
         "ASSERTION FAILED", "crashed by signal", "== CRITICAL ==")
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)
running = []


class Error(Exception):
    """An error reply."""


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


PORTS = free_ports(20100, 22500, distances=(0, 10000))  # the other one is of the cluster bus


def free_port():
    return next(PORTS)


def encoded(words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Connection:
    def __init__(self, port):
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.socket.makefile("rb")

    def send(self, *commands):
        self.socket.sendall(b"".join(map(encoded, commands)))

    def reply(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection is closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return Error(rest.decode())
        if kind in b":(":
            return int(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"_":
            return None
        if kind == b"$":
            return None if rest == b"-1" else self.stream.read(int(rest) + 2)[:-2]
        if kind in b"*%~>":
            n = int(rest) * (2 if kind == b"%" else 1)
            return None if n < 0 else [self.reply() for _ in range(n)]
        return rest.decode()

    def try_call(self, *words):
        self.send(words)
        return self.reply()

    def __call__(self, *words):
        reply = self.try_call(*words)
        if isinstance(reply, Error):
            raise reply
        return reply

    def pipeline(self, commands):
        """In portions, so that neither side waits for the other."""
        replies = []
        for first in range(0, len(commands), 500):
            part = commands[first:first + 500]
            self.send(*part)
            replies += [self.reply() for _ in part]
        return replies

    def close(self):
        self.stream.close()
        self.socket.close()


class Engine:
    def __init__(self, *arguments, module=(), sentinel=None, before=None, clock_ahead_s=0, wait=True, program=ENGINE, loads=True):
        self.program, self.loads = program, loads
        self.directory = tempfile.mkdtemp(prefix="bloomery-module-")
        self.log = os.path.join(self.directory, "log")
        self.clock_ahead_s = clock_ahead_s  # of the time of day
        self.arguments, self.module, self.sentinel = list(map(str, arguments)), list(map(str, module)), sentinel
        self.port, self.process, self.connection = free_port(), None, None
        running.append(self)
        if before:
            before(self)
        self.start(wait)

    def command(self):
        if self.sentinel is not None:
            path = os.path.join(self.directory, "sentinel.conf")
            if not os.path.exists(path):
                with open(path, "w") as file:
                    file.write(self.sentinel)
            return [self.program, path, "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"]
        return ([self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, "--save", "",
                 "--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", *(["--loadmodule", MODULE] if self.loads else []), *self.module, *self.arguments])

    def output(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def start(self, wait=True):
        environment = dict(os.environ)
        if self.clock_ahead_s:
            link = os.path.join(self.directory, "clock_ahead.so")  # LD_PRELOAD takes no path with a space
            if not os.path.lexists(link):
                os.symlink(CLOCK_AHEAD, link)
            environment.update(LD_PRELOAD=link, BLOOMERY_CLOCK_AHEAD=str(self.clock_ahead_s))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                            preexec_fn=die_with_parent)
        if wait:
            self.wait_ready()

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.output()[-4000:]}")
            try:
                self.connection = Connection(self.port)
                if self.connection.try_call("PING") == "PONG" and self.info("server", "process_id") == str(self.process.pid):
                    return
                self.connection.close()
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"the engine is not ready:\n{self.output()[-4000:]}")
            time.sleep(0.01)

    def __call__(self, *words):
        try:
            return self.connection(*words)
        except (ConnectionError, BrokenPipeError):
            if self.process.poll() is not None:
                raise
        self.connection = Connection(self.port)  # Sentinels disconnect the clients of whom they make a replica
        return self.connection(*words)

    def connect(self):
        return Connection(self.port)

    def try_call(self, *words):
        return self.connection.try_call(*words)

    def info(self, section, field):
        for line in self("INFO", section).decode().split("\r\n"):
            if line.startswith(field + ":"):
                return line[len(field) + 1:]
        return None

    def digest(self):
        return self("DEBUG", "DIGEST")

    def kill(self):
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM, which must end the process cleanly."""
        self.connection.close()
        self.process.terminate()
        status = self.process.wait(timeout=PATIENCE_S)
        assert status == 0, f"the engine ended with {status}:\n{self.output()[-4000:]}"

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        text = self.output()
        shutil.rmtree(self.directory, ignore_errors=True)
        return [sign for sign in SIGNS if sign in text]


class Daemon(Engine):
    """Bloomery's daemon, beside engines."""

    def command(self):
        return [DAEMON, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", os.path.join(self.directory, "data"),
                "--save", ""] + self.arguments


def wait_until(condition, what, patience_s=PATIENCE_S):
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not after {patience_s} s: {what}")
        time.sleep(0.02)


def replica_of(primary, *arguments, module=(), clock_ahead_s=0):
    replica = Engine("--replicaof", f"127.0.0.1 {primary.port}", "--propagation-error-behavior", "panic", *arguments,
                     module=module, clock_ahead_s=clock_ahead_s)
    wait_until(lambda: replica.info("replication", "master_link_status") == "up", "the replica is in sync")
    return replica


def in_sync(primary, *replicas):
    """Waits until all replicas have everything that the primary has sent; then the digests of all, again where the primary has sent
    more meanwhile: a key that has expired."""
    while True:
        offset = int(primary.info("replication", "master_repl_offset"))
        for replica in replicas:
            wait_until(lambda: int(replica.info("replication", "slave_repl_offset")) >= offset, "the replica has caught up")
        digest = primary.digest()
        if all([replica.digest() == digest for replica in replicas]):
            return digest
        assert int(primary.info("replication", "master_repl_offset")) != offset, "a replica differs from its primary"


def items(prefix, n, start=0):
    return [f"{prefix}{i}" for i in range(start, start + n)]


def calls(engine, prefix=""):
    """The number of calls of each command whose name begins with the prefix."""
    found = {}
    for line in engine("INFO", "commandstats").decode().split("\r\n"):
        if line.startswith("cmdstat_" + prefix):
            name, rest = line[8:].split(":", 1)
            found[name] = int(rest.split(",")[0].split("=")[1])
    return found


def chunks_of(server, name, command="BF.SCANDUMP"):
    chunks, iterator = [], 0
    while True:
        iterator, data = server(command, name, iterator)
        if iterator == 0:
            return chunks
        chunks.append((iterator, data))


def commands_of(path):
    """The commands in a log."""
    with open(path, "rb") as file:
        while line := file.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(file.readline()[1:])
                words.append(file.read(size + 2)[:-2])
            yield words


def rewritten(engine, *command):
    """Runs the command, if there is one, and waits until the log is rewritten. A replica rewrites its log after a full
    synchronisation: until then the log lacks the replica's data."""
    if command:
        engine(*command)
    wait_until(lambda: engine.info("persistence", "aof_rewrite_in_progress") == "0" and
               engine.info("persistence", "aof_rewrite_scheduled") == "0", "the log is rewritten")
    assert engine.info("persistence", "aof_last_bgrewrite_status") == "ok"


def run(module):
    """Runs the functions test_* of a module of tests, or those named on the command line."""
    failed = 0
    for name, test in list(vars(module).items()):
        if not name.startswith("test_") or (len(sys.argv) > 1 and name not in sys.argv[1:]):
            continue
        started = time.monotonic()
        try:
            test()
            reports = [sign for engine in running for sign in engine.end()]
            assert not reports, f"an engine's log has {reports}"
            print(f"ok    {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:  # the next test has engines of its own
            import traceback
            failed += 1
            traceback.print_exc()
            for engine in running:
                print(f"---- {' '.join(engine.command())}\n{engine.output()[-30000:] if os.path.exists(engine.log) else ''}")
                engine.end()
            print(f"FAIL  {name}: {error}", flush=True)
        running.clear()
    return 1 if failed else 0
