#!/usr/bin/env python3
"""session.py confined UNIT BLOOMERYD      the daemon under the restrictions of its unit (tests/service/confined.py)
session.py booted ROOT                     the installed service of a root with the packages, under its own systemd

What a service is used for, as its user and with its rights: all commands, changes of the settings and of users on the disk, saves,
kills, certificates, files of others, large filters that go, HTTP. Exits with 77 where this machine cannot run it. Python's
standard library alone, so that the packages' own test (debian/tests) can use it."""
import glob
import os
import re
import shutil
import signal
import ssl
import subprocess
import socket
import sys
import tempfile
import time
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "module"), HERE]
from confined import unsupported
from engines import Connection, Error
from hosts import Booted, Confined, Failure, until
from ports import free_ports

PORTS = free_ports(17000, 20000)
GOLDEN = os.path.join(TESTS, "golden", "built", "n100000_p0.01", "Filter.na.db")
IMPORTED = "nb-1-big-Filter.db"
LARGE = ("0.001", "50000000")  # 90 MB: the memory of 60 MB and more goes another way
HEX = "5a1c395e5a1c395e5a1c395e5a1c395e"


def holds(condition, what):
    if not condition:
        raise Failure(what)


class Session:
    def __init__(self, host):
        self.host, self.connection = host, None

    def connect(self):
        def attempt():
            try:
                connection = Connection(self.port)
                if not isinstance(connection.try_call("PING"), Error):
                    return connection
                connection.close()
            except OSError:
                pass
            return None
        self.connection = until(attempt, "the daemon serves")
        self.host.last = self.host.pid()

    def __call__(self, *words):
        reply = self.connection.try_call(*words)
        if isinstance(reply, Error):
            raise Failure(f"{' '.join(map(str, words))[:200]}: {reply}")
        return reply

    def start(self):
        self.host.start()
        self.connect()

    def restart(self):
        self.host.stop()
        self.start()

    def crash(self, number):
        """An end by a signal, from which the service recovers."""
        self.host.send(number)
        self.host.recover()
        self.connect()

    def same_process(self):
        holds(self.host.pid() == self.host.last, f"the daemon has ended meanwhile:\n{self.host.output()[-3000:]}")


def known_commands(session):
    """Of the table: with the subcommands in the place of their container, unless that is a command itself."""
    names = set()
    for row in session("COMMAND"):
        subcommands = [sub[0].decode().replace("|", " ") for sub in row[9]] if len(row) > 9 else []
        names |= set(subcommands) or {row[0].decode()}
    return {name.upper() for name in names} | {"COMMAND"}


def calls(session):
    """Of calls.txt: whether a call fails, and its words."""
    with open(os.path.join(HERE, "calls.txt")) as file:
        lines = [line.split() for line in file.read().splitlines() if not line.startswith("#")]
    session("FLUSHALL")
    session("BF.RESERVE", "for-dump", "0.01", "100")
    values = {"%DUMP%": session("DUMP", "for-dump"), "%PORT%": session.port, "%FILE%": IMPORTED}
    for first, *rest in lines:
        yield first.startswith("-"), first.removeprefix("-"), [values.get(word, word) for word in rest]


def claim_every_command_of_the_table(session):
    done, wrong = set(), []
    names = known_commands(session)
    for fails, first, rest in calls(session):
        done.add(" ".join([first, *rest[:1]]) if " ".join([first, *rest[:1]]) in names else first)
        connection = Connection(session.port)
        reply = connection.try_call(first, *rest)
        connection.close()
        if isinstance(reply, Error) != fails:
            wrong.append(f"{first} {rest}: {reply}")
        session.same_process()
    holds(not wrong, "\n".join(wrong))
    holds(names - {"SHUTDOWN"} <= done, f"calls.txt has no call of {sorted(names - done)}")


def claim_every_command_in_a_transaction(session):
    """It runs while all threads stand, or is refused; the dev build checks the order of its locks."""
    ran = 0
    for _, first, rest in calls(session):
        connection = Connection(session.port)
        try:
            reply = connection.try_call("MULTI")
            holds(reply == "OK", f"MULTI before {first} {rest}: {reply}")
            if connection.try_call(first, *rest) == "QUEUED":
                ran += not isinstance(connection.try_call("EXEC"), Error)
        except (EOFError, OSError):
            holds(first in ("QUIT", "CLIENT"), f"{first} {rest} in a transaction ends the connection")
        connection.close()
        session.same_process()
    holds(ran > 80, f"{ran} commands only ran in transactions")


def claim_settings_and_users_are_rewritten(session):
    session("CONFIG", "SET", "maxclients", "77")
    session("CONFIG", "REWRITE")
    session("ACL", "SETUSER", "kept", "on", ">secret", "~app:*", "+bf.exists")
    session("ACL", "SAVE")
    session.same_process()
    session.restart()
    holds(session("CONFIG", "GET", "maxclients")[1] == b"77", "CONFIG REWRITE is lost")
    holds(session("ACL", "GETUSER", "kept"), "ACL SAVE is lost")
    left = [name for place in (session.host.settings, session.users) for name in glob.glob(f"{glob.escape(place)}.tmp")]
    holds(not left, f"left behind: {left}")


def claim_large_filters_go(session):
    """By every way: each of these frees 90 MB."""
    def large(name):
        session("BF.RESERVE", name, *LARGE)
        for start in range(0, 60000, 500):
            session("BF.MADD", name, *(f"item-{i}" for i in range(start, start + 500)))
    large("large")
    time.sleep(1)  # its pages are being replaced by huge ones
    session("DEL", "large")
    large("large")
    session("PEXPIRE", "large", "1")
    until(lambda: session("EXISTS", "large") == 0, "it has expired")
    large("large")
    session("BF.ADD", "small", "item")
    session("RENAME", "small", "large")
    holds(session("BF.EXISTS", "large", "item") == 1, "RENAME over a large filter")
    session("UNLINK", "large")
    large("large")
    session("FLUSHALL", "SYNC")
    until(lambda: session("DBSIZE") == 0, "all are gone")
    large("large")
    session("BF.CLEAR", "large")
    session("FLUSHALL", "ASYNC")
    until(lambda: int(re.search(rb"used_memory:(\d+)", session("INFO", "memory"))[1]) < 80e6, "the memory is given back")
    session.same_process()


def claim_what_is_acknowledged_survives(session):
    session("FLUSHALL")
    session("CONFIG", "SET", "appendfsync", "always")
    session("BF.RESERVE", "kept", "0.001", "1000")
    session("BF.MADD", "kept", *(f"saved-{i}" for i in range(500)))
    session("SAVE")
    session("BF.MADD", "kept", *(f"logged-{i}" for i in range(500)))
    session("BF.ADD", "another", "item")
    session.crash(signal.SIGKILL)
    items = [f"{kind}-{i}" for kind in ("saved", "logged") for i in range(500)]
    holds(session("BF.MEXISTS", "kept", *items) == [1] * 1000, "kill -9 has lost items")
    holds(session("BF.EXISTS", "another", "item") == 1, "kill -9 has lost a filter")
    session("BGREWRITEAOF")
    session.restart()
    holds(session("BF.MEXISTS", "kept", *items) == [1] * 1000, "an end has lost items")


def served_certificate(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=240) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(True)


def claim_certificates_are_replaced(session):
    before = served_certificate(session.tls_port)
    for kind in ("crt", "key"):
        shutil.copy(f"{session.tls}/new.{kind}", f"{session.tls}/server.{kind}")
        session.host.own(f"{session.tls}/server.{kind}")
    session.host.reload()
    until(lambda: served_certificate(session.tls_port) != before, "the new certificate is served")
    session.same_process()


def claim_sstables_are_followed(session):
    table = f"{session.sstables}/shop/users-{HEX}"
    for path in (os.path.dirname(table), table):
        os.makedirs(path, exist_ok=True)
        session.host.own(path)
    with open(GOLDEN, "rb") as golden:
        session.host.write(f"{table}/nb-1-big-Filter.db", golden.read())
    session.host.write(f"{table}/nb-1-big-TOC.txt", "Filter.db\nTOC.txt\n")
    until(lambda: session("EXISTS", "shop.users/1") == 1, "the SSTable is seen")
    with open(os.path.join(os.path.dirname(GOLDEN), "keys.hex")) as keys:
        key = bytes.fromhex(keys.readline().strip())
    holds(session("BF.EXISTS", "shop.users/1", key) == 1, "the SSTable's filter has its key")
    os.unlink(f"{table}/nb-1-big-Filter.db")
    until(lambda: session("EXISTS", "shop.users/1") == 0, "the SSTable is gone")
    session.same_process()


def claim_http_is_served(session):
    for path in ("/metrics", "/healthz", "/readyz", "/"):
        with urllib.request.urlopen(f"http://127.0.0.1:{session.web_port}{path}", timeout=240) as reply:
            holds(reply.status == 200 and reply.read(), f"GET {path}")
    session.same_process()


def claim_a_crash_is_reported(session):
    session.crash(signal.SIGSEGV)
    until(lambda: "crashed by SIGSEGV, sent by process" in session.host.output(), "the log has a report")
    until(lambda: "bloomeryd(+0x" in session.host.output(), "the report has a stack trace")


def claim_a_busy_port_ends_the_restarts(session):
    session.host.stop()
    with socket.create_server(("127.0.0.1", session.port)):
        status = session.host.start_fails()
    holds(status == 78, f"the exit status is {status}")
    session.start()


def claim_further_refusals_are_survived(session):
    """Calls that another kernel, container or unit may refuse. What cannot be done then is said, and nothing is left behind."""
    if not session.host.refuse("fchown,mincore,mremap,madvise,fallocate,inotify_init1,setpriority,sched_setscheduler,"
                               "sched_setaffinity,prctl,fadvise64,copy_file_range,memfd_create,splice,sendfile,clone3,rseq,statx,"
                               "membarrier,preadv,pwritev"):
        return "left out: the unit alone decides there"
    session.restart()
    claim_settings_and_users_are_rewritten(session)
    claim_large_filters_go(session)
    claim_what_is_acknowledged_survives(session)
    claim_sstables_are_followed(session)
    claim_http_is_served(session)


def directory_of_tls(session):
    made = tempfile.mkdtemp()
    subprocess.run([os.path.join(TESTS, "support", "certificates"), made], check=True)
    place = session.host.make_directory("tls")
    for name in ("ca.crt", "server.crt", "server.key", "new.crt", "new.key"):
        with open(f"{made}/{name}", "rb") as file:
            session.host.write(f"{place}/{name}", file.read())
    shutil.rmtree(made)
    return place


def main(kind, *words):
    missing = unsupported() if kind == "confined" else None
    if missing:
        print(f"session: left out: {missing}")
        return 77
    directory = tempfile.mkdtemp(prefix="bloomery service ", dir="/var/tmp")
    os.chmod(directory, 0o755)
    ports = [next(PORTS) for _ in range(3)]
    settings = ["bind 127.0.0.1", f"port {ports[0]}", f"tls-port {ports[1]}", f"metrics-port {ports[2]}", "tls-auth-clients no",
                'save ""']  # else one may be under way when SAVE is asked for
    host = Confined(*words, directory, settings) if kind == "confined" else Booted(*words, settings)
    session = Session(host)
    session.port, session.tls_port, session.web_port = ports
    failed = 0
    try:
        session.tls, session.sstables = directory_of_tls(session), host.make_directory("sstables")
        imports = host.make_directory("imports")
        with open(GOLDEN, "rb") as golden:
            host.write(f"{imports}/{IMPORTED}", golden.read())
        session.users = host.path("users.acl")
        host.write(session.users, "")
        places = {"tls-cert-file": f"{session.tls}/server.crt", "tls-key-file": f"{session.tls}/server.key",
                  "tls-ca-cert-file": f"{session.tls}/ca.crt", "aclfile": session.users, "import-dir": imports,
                  "sstable-dir": session.sstables}
        with open(host.settings) as file:
            text = file.read()
        host.write(host.settings, text + "".join(f'{name} "{host.inside(path)}"\n' for name, path in places.items()))
        try:
            session.start()
        except Failure:
            print(host.output()[-3000:])
            raise
        claims = [value for name, value in globals().items() if name.startswith("claim_")]
        for claim in claims:
            try:
                print(f"{claim(session) or 'ok':5} {host.name} {claim.__name__}", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"FAIL  {host.name} {claim.__name__}\n{host.output()[-3000:]}", flush=True)
                session.connect()
        host.stop()
    finally:
        host.close()
        shutil.rmtree(directory)
    return 1 if failed or not claims else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
