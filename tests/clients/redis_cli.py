#!/usr/bin/env python3
"""Typical uses of redis-cli and redis-benchmark. See with_daemon.py."""
import csv
import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

from session import AUTH_PORT, PASSWORD, PATIENCE_S, PORT, claims_of, equal, holds, run, until

ENVIRONMENT = {**os.environ, "TERM": "xterm", "HOME": os.environ["BLOOMERY_TEST_DIR"], "LC_ALL": "C.UTF-8"}
ENVIRONMENT.pop("REDISCLI_AUTH", None)


def cli(*arguments, data=None, port=PORT, status=0, text=True):
    """One run of redis-cli; returns the output."""
    done = subprocess.run(["redis-cli", "-p", str(port), *map(str, arguments)], input=data, text=text, env=ENVIRONMENT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S,
                          **({} if data is not None else {"stdin": subprocess.DEVNULL}))
    if done.returncode != status:
        raise AssertionError(f"redis-cli {arguments}: status {done.returncode}: {done.stdout}")
    return done.stdout


PROMPT = r"(127\.0\.0\.1:\d+(\(TX\))?|not connected)> "


class Running:
    """A redis-cli that runs until it is closed, with a terminal on request."""

    def __init__(self, *arguments, terminal=False):
        command = ["redis-cli", "-p", str(PORT), *arguments]
        if terminal:
            self.fd, side = pty.openpty()
            fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
            self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=ENVIRONMENT)
            os.close(side)
        else:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT, env=ENVIRONMENT)
            self.fd = self.process.stdout.fileno()
        self.output = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def type(self, text):
        os.write(self.fd, text.encode())

    def command(self, text, pattern):
        """Types a command; waits for the expected output and for the prompt after it; earlier typing may be lost."""
        self.type(text + "\r")
        return self.wait_for(f"(?s)(?:{pattern}).*?{PROMPT}")

    def wait_for(self, pattern):
        """Waits until the output since the last call matches; returns the match."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            match = re.search(pattern, self.output)
            if match:
                self.output = self.output[match.end():]
                return match
            holds(time.monotonic() < deadline, f"'{pattern}' in {self.output[-500:]!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self.output += os.read(self.fd, 65536).decode(errors="replace")


def fill(n):
    cli("FLUSHALL")
    cli(data="".join(f"BF.RESERVE key:{i} 0.01 {100 * (i + 1)}\n" for i in range(n)))


# ---- redis-cli ----

def test_single_commands():
    cli("FLUSHALL")
    equal(cli("BF.RESERVE", "f", 0.01, 1000), "OK\n")
    equal(cli("BF.ADD", "f", "a"), "1\n")
    equal(cli("-3", "BF.EXISTS", "f", "a"), "(true)\n")
    equal(cli("-3", "--no-raw", "BF.EXISTS", "f", "z"), "(false)\n")
    equal(cli("-2", "BF.MADD", "f", "a", "b"), "0\n1\n")
    equal(cli("-n", 0, "TYPE", "f"), "MBbloom--\n")
    equal(cli("--no-raw", "BF.INFO", "f", "CAPACITY"), "1) (integer) 1000\n")
    equal(cli("-3", "--no-raw", "BF.INFO", "f", "CAPACITY"), "1# Capacity => (integer) 1000\n")
    equal(cli("-r", 3, "BF.CARD", "f"), "2\n2\n2\n")
    equal(cli("-x", "BF.ADD", "f", data="from standard input"), "1\n")
    equal(cli("BF.EXISTS", "f", "from standard input"), "1\n")
    equal(cli("-X", "item", "BF.MADD", "f", "a", "item", data="tagged"), "0\n1\n")
    equal(cli("BF.NOSUCH"), "ERR unknown command 'BF.NOSUCH', with args beginning with: \n\n")
    holds("ERR" in cli("-e", "BF.ADD", "f", status=1), "-e makes errors an exit status")
    equal(cli("-u", f"redis://127.0.0.1:{PORT}/0", "PING"), "PONG\n")
    holds("ERR DB index is out of range" in cli("-n", 16, "PING"), "there are 16 databases")


def test_passwords():
    holds("NOAUTH" in cli("BF.ADD", "f", "a", port=AUTH_PORT), "a password is demanded")
    equal(cli("-a", PASSWORD, "--no-auth-warning", "PING", port=AUTH_PORT), "PONG\n")
    equal(cli("-3", "--user", "default", "--pass", PASSWORD, "--no-auth-warning", "PING", port=AUTH_PORT), "PONG\n")
    equal(cli(data=f'AUTH "{PASSWORD}"\nPING\n', port=AUTH_PORT), "OK\nPONG\n")
    holds("WRONGPASS" in cli("-a", "no", "--no-auth-warning", "PING", port=AUTH_PORT), "a wrong one is refused")


def test_commands_from_standard_input():
    cli("FLUSHALL")
    equal(cli(data="MULTI\nBF.ADD f a\nBF.CARD f\nEXEC\nBF.ADD f b\n"), "OK\nQUEUED\nQUEUED\n1\n1\n1\n")
    adds = "".join(f"BF.ADD f item{i}\n" for i in range(2000))
    replies = cli(data=adds).split()
    equal(len(replies), 2000)
    holds(replies.count("1") > 1950, "nearly all are new")


def test_output_formats():
    cli("FLUSHALL")
    cli("BF.RESERVE", "f", 0.01, 1000)
    row = next(csv.reader(io.StringIO(cli("--csv", "BF.INFO", "f"))))
    equal((row[0], row[1], len(row)), ("Capacity", "1000", 10))
    equal(cli("--csv", "BF.MADD", "f", "a", "b"), "1,1\n")
    equal(cli("--json", "BF.MEXISTS", "f", "a", "z"), "[true,false]\n")
    holds('"Capacity":1000' in cli("--json", "BF.INFO", "f"), "--json speaks RESP3 and gets a map")


def test_pipe():
    cli("FLUSHALL")
    items = [f"item {i}".encode() for i in range(20000)]
    protocol = b"".join(b"*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$%d\r\n%s\r\n" % (len(item), item) for item in items)
    report = cli("--pipe", data=protocol, text=False).decode()
    holds("errors: 0, replies: 20000" in report, report)
    equal(cli("BF.EXISTS", "f", "item 19999"), "1\n")
    report = cli("--pipe", data=b"BF.ADD g a\r\nBF.ADD g\r\nBF.ADD g b\r\n", text=False, status=1).decode()
    holds("errors: 1, replies: 3" in report and "wrong number of arguments" in report, report)


def test_scanning_tools():
    fill(200)
    equal(sorted(cli("--scan").split()), sorted(f"key:{i}" for i in range(200)))
    equal(sorted(cli("--scan", "--pattern", "key:1?").split()), sorted(f"key:{i}" for i in range(10, 20)))
    for tool in ("--bigkeys", "--memkeys"):
        report = cli(tool)
        holds("Sampled 200 keys in the keyspace" in report and "200 MBbloom--s with" in report, report)
    biggest = re.search(r"Biggest\s+MBbloom-- found \S*key:(\d+)\S* has (\d+) bytes", cli("--memkeys"))
    holds(biggest and int(biggest[2]) > 20000, f"{biggest}")
    holds("Sampled 200 keys" in cli("--memkeys-samples", 5), "--memkeys-samples")


def test_watching_tools():
    fill(30)
    with Running("--stat", "-i", "0.05") as stat:
        stat.wait_for(r"keys +mem +clients +blocked +requests +connections")
        for _ in range(2):
            match = stat.wait_for(r"\n(\d+) +(\S+) +(\d+) +(\d+) +(\d+) \(\+(\d+)\) +(\d+)")
            equal((match[1], match[4]), ("30", "0"))
            holds(int(match[3]) >= 1 and int(match[5]) >= 30, match[0])
    low, high, average, samples = cli("--latency", "-i", "0.3", "--raw").split()
    holds(float(low) <= float(average) <= float(high) and int(samples) > 0, "--latency")
    with Running("--latency-history", "-i", "0.2", terminal=True) as history:
        history.wait_for(r"min: \d+, max: \d+, avg: [\d.]+ \(\d+ samples\)")
    with Running("MONITOR") as monitor:
        monitor.wait_for("OK")
        cli("BF.ADD", "f", "a\nb")
        monitor.wait_for(r'\[0 127\.0\.0\.1:\d+\] "BF\.ADD" "f" "a\\nb"')


def test_subscriptions():
    cli("FLUSHALL")
    with Running("SUBSCRIBE", "news") as subscriber, Running("-3", "PSUBSCRIBE", "n*") as pattern:
        subscriber.wait_for("subscribe\nnews\n1\n")
        pattern.wait_for("psubscribe\nn\\*\n1\n")
        equal(cli("PUBLISH", "news", "hello"), "2\n")
        subscriber.wait_for("message\nnews\nhello\n")
        pattern.wait_for("pmessage\nn\\*\nnews\nhello\n")
    until(lambda: cli("PUBSUB", "NUMSUB", "news") == "news\n0\n", "the subscription ends with the connection")


def test_a_dump_goes_through_a_pipe():
    cli("FLUSHALL")
    cli("BF.MADD", "f", *range(1000))
    payload = cli("--raw", "DUMP", "f", text=False)[:-1]
    equal(cli("-x", "RESTORE", "g", "0", data=payload, text=False), b"OK\n")
    equal(cli("BF.MEXISTS", "g", *range(1000)), "1\n" * 1000)


def test_a_terminal():
    cli("FLUSHALL")
    for protocol in ([], ["-3"]):
        with Running(*protocol, terminal=True) as shell:
            shell.wait_for(PROMPT)
            shell.type("BF.RESE\t")  # from COMMAND DOCS, which it requests when it connects
            shell.wait_for("BF.RESERVE")
            shell.type(" f 0.01 100")
            shell.wait_for("EXPANSION")  # the hint
            shell.command("", "OK\r\n")
            shell.command("BF.ADD f item", r"\(true\)\r\n" if protocol else r"\(integer\) 1\r\n")
            shell.command("help BF.ADD", "key item.*group:.*")
            holds(shell.command("multi", r"OK\r\n")[0].endswith("(TX)> "), "the prompt shows the transaction")
            shell.command("BF.CARD f", "QUEUED")
            shell.command("exec", r"1\) \(integer\) 1")
            # Another connection ends this one: it reports this, or connects again and continues.
            cli("CLIENT", "KILL", "TYPE", "normal")
            shell.command("PING", "PONG|Server closed|not connected|Broken pipe|Connection reset")
            shell.command("DEL f", r"\(integer\) 1\r\n")
            shell.type("quit\r")
            until(lambda: shell.process.poll() is not None, "quit ends it")


# ---- redis-benchmark ----

def benchmark(*arguments, port=PORT):
    command = ["redis-benchmark", "-p", str(port), *map(str, arguments)]
    done = subprocess.run(command, text=True, env=ENVIRONMENT, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    holds(done.returncode == 0, f"redis-benchmark {arguments}: {done.stdout}")
    holds("Error" not in done.stdout and "ERR" not in done.stdout and "WARNING" not in done.stdout, done.stdout)
    return done.stdout


def test_benchmark():
    cli("FLUSHALL")
    cli("BF.RESERVE", "bench", 0.001, 100000)
    report = benchmark("-t", "ping", "-n", 5000, "--csv")
    equal(len(report.strip().split("\n")), 3)
    for protocol in ([], ["-3"]):
        cli("BF.CLEAR", "bench")  # two runs may have the same seed: the second, xor the process
        report = benchmark(*protocol, "-n", 5000, "-q", "-r", 100000, "BF.ADD", "bench", "__rand_int__")
        holds("requests per second" in report, report)
        card = int(cli("BF.CARD", "bench"))
        holds(4000 < card <= 5000, f"{card} of 5000 random items")
    benchmark("-n", 20000, "-q", "-P", 16, "-r", 100000, "BF.EXISTS", "bench", "__rand_int__")
    benchmark("-n", 5000, "-q", "--threads", 2, "-c", 20, "PING")
    benchmark("-n", 1000, "-q", "-a", PASSWORD, "-t", "ping", port=AUTH_PORT)


if __name__ == "__main__":
    version = subprocess.run(["redis-cli", "--version"], text=True, stdout=subprocess.PIPE).stdout.split()
    sys.exit(run(f"redis-cli {version[1] if len(version) > 1 else '?'}", claims_of(sys.modules["__main__"])))
