#!/usr/bin/env python3
"""`bloomery move` with a stand-in for a Valkey that has valkey-bloom on one side or both. `valkey_move.py TOOL RECORDINGS`;
see with_daemon.py, valkey_bloom.py and move.py."""
import os
import random
import subprocess
import sys

import redis

import session
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "module"))
from recorded_rdb import crc64
from move import TOOL, equal, holds, made, moves
from session import PORT
from stand_in import StandIn
from valkey_bloom import Filter, ValkeyBloom, recorded

RECORDINGS = sys.argv[2]
DAEMON = f"redis://127.0.0.1:{PORT}"
NAMES = sorted(name for name in os.listdir(RECORDINGS) if os.path.exists(os.path.join(RECORDINGS, name, "dump.bin")))


def recordings():
    return {name: recorded(RECORDINGS, name) for name in NAMES}


def same(source, target):
    equal(set(target.keys), set(source.keys))
    for name, value in source.keys.items():
        equal(target.keys[name].payload(), value.payload())


def large(nbytes):
    """A full filter with random bits, as a dump."""
    bits = random.Random(1).randbytes(nbytes)
    blob = b"\x01" + nbytes.to_bytes(8, "little") + b"\x06\0\0\0" + bytes(range(32)) + bits
    body = (bytes.fromhex("07816e5a2899f96dac01" "020102000411ea2d819997713f04000000000000e03f0201" "0580") +
            len(blob).to_bytes(4, "big") + blob + b"\x02\x80" + (nbytes // 2).to_bytes(4, "big") + b"\x02\x01\0")
    body += b"\x08\0"
    return Filter.of_dump(body + crc64(body).to_bytes(8, "little"))


def test_filters_of_any_size_go_in_one_piece():
    filters = {**recordings(), "large": large(1200000)}
    filters["06_exp1"].ttl = 123456
    with ValkeyBloom(filters) as source, ValkeyBloom() as target:
        moves(0, f"moved    {len(filters)} filters", source, target, "--verify")
        same(source, target)
        equal(target.keys[b"06_exp1"].ttl, 123456)
        equal((source.count("BF.SCANDUMP"), target.count("BF.LOADCHUNK")), (0, 0))
        moves(0, f"there    {len(filters)}", source, target)


def test_the_limit_of_the_target_is_asked_before_and_named():
    with ValkeyBloom({"large": large(50000), "small": recordings()["01_tiny_cap1"]}) as source, \
            ValkeyBloom(limit=40000) as target:
        moves(3, "skipped large: it has 50264 bytes, and the target's limit of a filter is 40000 "
              "(bf.bloom-memory-usage-limit)", source, target)
        equal((list(target.keys), target.count("RESTORE")), ([b"small"], 1))


def test_a_refusal_names_the_limit():
    """valkey-bloom estimates a size from the numbers, which may be above that of BF.INFO."""
    def hook(_, name, __):
        return b"-ERR Bad data format" if name == "RESTORE" else None

    with ValkeyBloom({"f": large(50000)}) as source, ValkeyBloom(hook=hook) as target:
        moves(3, "skipped f: ERR Bad data format (it has 50264 bytes; bf.bloom-memory-usage-limit of the target is 134217728)",
              source, target)


def test_another_filter_with_the_same_numbers_is_told_by_its_answers():
    """There are no pieces to compare. The bits of both are random, and half of them are set."""
    here, there = large(50000), large(50000)
    there.layers = [(6, bytes(byte ^ 255 for byte in there.layers[0][1]), *there.layers[0][2:])]
    with ValkeyBloom({"f": here}) as source, ValkeyBloom({"f": there}) as target:
        moves(3, "skipped f: the target has another filter of this name, with as many items", source, target)
        moves(0, "moved    1 filter", source, target, "--replace")
        same(source, target)


def test_other_filters_are_refused_one_by_one():
    with StandIn({"theirs": made(800), "large": made(3 << 20)}) as source, ValkeyBloom() as target:
        text = moves(3, "skipped theirs: the target takes filters of LAYOUT valkey only", source, target)
        holds("skipped large: the target takes filters of LAYOUT valkey only" in text, text)
    with ValkeyBloom(recordings()) as source, StandIn() as target:
        moves(3, "skipped 01_tiny_cap1: ERR Bad data format", source, target)


def test_to_bloomery_and_back():
    """With the same bits: the stand-in reads what it gets with code of its own, and answers from it."""
    client = redis.Redis(port=PORT)
    client.flushall()
    filters = {**recordings(), "large": large(1200000)}
    filters["06_exp1"].ttl = 1234567
    with ValkeyBloom(filters) as source, ValkeyBloom() as target:
        moves(0, f"moved    {len(filters)} filters", source, DAEMON, "--verify")
        moves(0, f"there    {len(filters)}", source, DAEMON)
        holds(1000000 < client.pttl("06_exp1") <= 1234567, "the time to live")
        for name in NAMES:
            with open(os.path.join(RECORDINGS, name, "probes.hex"), encoding="ascii") as file:
                probes = [bytes.fromhex(line) for line in file.read().split("\n")[:-1]]
            with open(os.path.join(RECORDINGS, name, "answers.txt"), encoding="ascii") as file:
                equal(client.execute_command("BF.MEXISTS", name, *probes), [int(answer) for answer in file.read().split()])
        moves(0, f"moved    {len(filters)} filters", DAEMON, target, "--verify")
        same(source, target)
        client.execute_command("BF.ADD", "own", "a")
        text = moves(3, "skipped own: the target takes filters of LAYOUT valkey only", DAEMON, target)
        holds(f"there    {len(filters)}" in text, text)
        moves(3, "skipped large: it has", DAEMON, ValkeyBloom(limit=100000))
    client.flushall()


def test_files_of_valkey_8_and_9():
    """Version 11 of RDB, with Redis's magic; and 80, with Valkey's own."""
    for head in (b"REDIS0011", b"VALKEY080"):
        data = head + b"\xfe\0"
        for name in NAMES:
            data += b"\x07" + bytes([len(name)]) + name.encode() + recorded(RECORDINGS, name).dump[1:-10]
        data += b"\xff" + bytes(8)
        path = os.path.join(session.TEST_DIR, "valkey.rdb")
        with open(path, "wb") as file:
            file.write(data)
        done = subprocess.run([TOOL, "import", "--rdb", path, "--list"], capture_output=True, text=True, timeout=240)
        holds(done.returncode == 0 and f"{len(NAMES)} filters with" in done.stdout, done.stdout + done.stderr)


if __name__ == "__main__":
    sys.exit(session.run("bloomery move of valkey-bloom's filters", session.claims_of(sys.modules[__name__])))
