#!/usr/bin/env python3
"""Looks for commands that delay other clients.

Starts a daemon with one worker. For each command and subcommand that COMMAND LIST names, one client sends many forms of
arguments (a million words, one word of 200 MB, thousands of calls in one write, ...), alone and in a transaction, and
closes its connection; another client sends PING throughout. Prints for each command the form with the slowest PING.
A form that is worse than others of its command belongs into the table of tests/e2e/test_stalls.c.

Usage: find_stalls.py BLOOMERYD [--repeat N] [--above MS] [COMMAND ...]
"""

import argparse
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

MANY = 300_000  # words
LARGE = 200_000_000  # bytes of one word


def connect(port):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def ask(port, *words):
    """The beginning of the reply; enough for short ones."""
    with connect(port) as sock:
        sock.sendall(encode(words))
        return sock.recv(1 << 20)


def ping_for_ever(port, worst):
    """In a separate process: worst.value is the longest PING in seconds since it was set to 0."""
    sock = connect(port)
    while True:
        start = time.perf_counter()
        sock.sendall(b"PING\r\n")
        if not sock.recv(100):
            return
        worst.value = max(worst.value, time.perf_counter() - start)
        time.sleep(0.0002)


# ---- shapes ----

def distinct(n, prefix=b"w"):
    return [prefix + b"%d" % i for i in range(n)]


# Required words before the varied ones: without them a command is refused before it costs anything.
PREFIXES = {
    "acl|dryrun": ["default"], "bf.add": ["big"], "bf.exists": ["big"], "bf.madd": ["big"], "bf.mexists": ["big"],
    "bf.insert": ["big", "ITEMS"], "bf.query": ["big", "ITEMS"], "bf.merge": ["union"], "bf.loadchunk": ["load", "1"],
    "bf.scandump": ["big"], "client|kill": ["ID", "999999"], "client|list": ["ID"], "client|setinfo": ["lib-name"],
    "command|getkeys": ["DEL"], "command|getkeysandflags": ["DEL"], "command|list": ["FILTERBY", "PATTERN"],
    "config|set": ["requirepass"], "copy": ["big"], "debug": ["SLEEP"], "hello": ["3", "AUTH", "default"],
    "memory|usage": ["big"], "publish": ["channel"], "spublish": ["channel"], "restore": ["load", "0"],
    "scan": ["0", "MATCH"], "set": ["big"],
}

# Valid calls with expensive results: each is also sent thousands of times in one write.
CALLS = {
    "bf.plan": [["1e-9", "100", "ITEMS", "9223372036854775807"], ["0.01", "100", "EXPANSION", "1", "ITEMS", "9999999999"]],
    "bf.reserve": [["big", "0.01", "100"], ["x", "1e-9", "9223372036854775807"], ["x", "1e-9", "98765432101"]],
    "bf.info": [["big"], ["big", "FULL"]],
    "bf.falsepositive": [["big"]],
    "config|get": [["*"], ["*"] * 100, ["*%s*" % chr(97 + i % 26) for i in range(1000)]],
    "config|set": [["maxmemory", "0"]],
    "command|docs": [[]], "command": [[]], "command|info": [[]], "command|list": [[], ["FILTERBY", "PATTERN", "*a*b*c*"]],
    "acl|genpass": [["4096"]], "acl|cat": [["slow"]],
    "latency|histogram": [[]], "info": [["everything"]], "memory|stats": [[]],
    "scan": [["0", "COUNT", "100"], ["0", "MATCH", "*a*b*c*", "COUNT", "4096"]],
    "keys": [["*"], ["*a*b*c*"]], "randomkey": [[]], "dbsize": [[]],
    "copy": [["big", "big2", "REPLACE"]], "dump": [["medium"]], "bf.merge": [["big3", "big"]], "bf.clear": [["big2"]],
    "bf.scandump": [["big", "0"]], "rename": [["big2", "big3"]], "flushall": [[]], "debug": [["SLEEP", "1"]],
    "client|list": [[]], "client|info": [[]], "hello": [["3"]], "wait": [["1", "100"]], "client|no-touch": [["on"]],
    "client|pause": [["1"]],
}

NOT_RUN = {"shutdown", "flushdb", "monitor"}  # end the daemon, empty it for the following commands, or grow without end


def shapes_of(name):
    """Yields (label, bytes to send)."""
    call = name.split("|")
    prefix = call + PREFIXES.get(name, [])
    for label, words in (
        ("300000 words", distinct(MANY)),
        ("one word of 200 MB", [b"x" * LARGE]),
        ("200 words of 1 MB", [b"y" * 1_000_000] * 200),
    ):
        yield label, encode(prefix + words)
    small = encode(prefix + ["1"])
    yield "64 KB of small calls", small * (65536 // len(small))
    yield "64 KB of refused calls", encode(call) * (65536 // len(encode(call)))
    for words in CALLS.get(name, []):
        text = " ".join(words)[:40]
        one = encode(call + words)
        yield "1 x %s" % text, one
        yield "4000 x %s" % text, one * 4000
        yield "MULTI, 100 x %s" % text, encode(["MULTI"]) + encode(["PING"]) + one * 100 + encode(["EXEC"])
    yield "MULTI, 300000 words", b"".join(
        (encode(["MULTI"]), encode(["PING"]), encode(prefix + distinct(MANY)), encode(["EXEC"])))


def drain(sock, state):
    try:
        while True:
            data = sock.recv(1 << 20)
            if not data:
                break
            state["tail"] = (state["tail"] + data)[-64:]
    except OSError:
        pass
    state["over"] = True


def run_shape(port, payload, worst):
    """The longest PING in ms while the payload is sent, answered, and its connection closed."""
    sock = connect(port)
    state = {"tail": b"", "over": False}
    reader = threading.Thread(target=drain, args=(sock, state), daemon=True)
    reader.start()
    time.sleep(0.01)
    worst.value = 0.0
    try:
        sock.sendall(payload)
        sock.sendall(encode(["PING", "that-was-all"]))
        end = time.monotonic() + 60
        while b"that-was-all" not in state["tail"] and not state["over"] and time.monotonic() < end:
            time.sleep(0.001)
    except OSError:
        pass  # closed by the daemon: a limit
    sock.close()
    time.sleep(0.05)
    return worst.value * 1000


def prepare(port):
    ask(port, "BF.RESERVE", "big", "1e-6", "30000000")
    ask(port, "BF.RESERVE", "medium", "1e-3", "2000000")
    with connect(port) as sock:
        for i in range(100):
            sock.sendall(encode(["BF.MADD", "big"] + distinct(1000, b"%d-" % i)))
            sock.recv(1 << 16)


def names_of(port):
    with connect(port) as sock:
        sock.sendall(encode(["COMMAND", "LIST"]) + encode(["PING"]))
        data = b""
        while not data.endswith(b"+PONG\r\n"):
            data += sock.recv(1 << 20)
    return [line.decode() for line in data.split(b"\r\n")[2::2] if line and line[:1] not in b"+*$"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bloomeryd")
    parser.add_argument("commands", nargs="*")
    parser.add_argument("--repeat", type=int, default=2, help="the least of so many runs counts")
    parser.add_argument("--above", type=float, default=5, help="runs that took less are not repeated")
    args = parser.parse_intermixed_args()

    directory = tempfile.mkdtemp(prefix="bloomery-stalls-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = subprocess.Popen(
        [args.bloomeryd, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory + "/data", "--threads", "1",
         "--save", "", "--enable-debug-command", "yes"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pinger = None
    try:
        for _ in range(500):
            try:
                if ask(port, "PING").startswith(b"+PONG"):
                    break
            except OSError:
                time.sleep(0.02)
        prepare(port)
        worst = multiprocessing.Value("d", 0.0, lock=False)
        pinger = multiprocessing.Process(target=ping_for_ever, args=(port, worst), daemon=True)
        pinger.start()
        found = []
        for name in args.commands or names_of(port):
            if name in NOT_RUN:
                continue
            of_name = []
            for label, payload in shapes_of(name):
                ms = run_shape(port, payload, worst)
                for _ in range(args.repeat - 1):
                    if ms > args.above:
                        ms = min(ms, run_shape(port, payload, worst))
                of_name.append((ms, name, label))
                if name in ("config|set", "client|pause", "flushall", "rename", "copy", "bf.merge", "bf.clear"):
                    ask(port, "CONFIG", "SET", "requirepass", "")
                    prepare(port)
            of_name.sort(reverse=True)
            print("%-28s %s" % (name, "; ".join("%.1f ms: %s" % (ms, label) for ms, _, label in of_name[:3])), flush=True)
            found += of_name
        print("\nThe worst of all:")
        for ms, name, label in sorted(found, reverse=True)[:20]:
            print("%8.1f ms  %-24s %s" % (ms, name, label))
        if daemon.poll() is not None:
            sys.exit("the daemon has ended")
    finally:
        if pinger:
            pinger.kill()
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
