#!/usr/bin/env python3
"""Filters between the daemon and an engine with the module: DUMP and RESTORE, MIGRATE, and the chunks of BF.SCANDUMP, in
both directions; dual writes compared by BF.INFO FULL, the way of docs/CLUSTER.md."""
import os
import subprocess
import sys
import tempfile

from engines import Daemon, Engine, Error, chunks_of, free_port, items, run

TOOL = os.environ.get("BLOOMERY_TOOL", os.path.abspath("build/dev/tools/bloomery"))
CERTIFICATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "certificates")

FILTERS = {
    "small": (("BF.RESERVE", "small", "0.01", "100"), 80),
    "grown": (("BF.RESERVE", "grown", "0.001", "50", "EXPANSION", "3"), 3000),
    "fixed": (("BF.RESERVE", "fixed", "0.00001", "500", "NONSCALING"), 400),
    "empty": (("BF.RESERVE", "empty", "0.3", "1000000"), 0),
    "large": (("BF.RESERVE", "large", "0.0001", "1500000"), 8000),
}


def fill(server):
    for name, (reserve, n) in FILTERS.items():
        server(*reserve)
        for first in range(0, n, 500):
            server("BF.MADD", name, *items(name, min(500, n - first), first))


def described(server, name):
    """BF.INFO FULL without the counters of the process."""
    fields = server("BF.INFO", name, "FULL")
    pairs = dict(zip(map(str, fields[::2]), fields[1::2]))
    return {key: value for key, value in pairs.items() if key not in ("Hits", "Misses", "Counted since", "Size")}


def same(one, name, two, other=None):
    assert described(one, name) == described(two, other or name), (name, described(one, name), described(two, other or name))


def test_dump_and_restore_in_both_directions():
    for compression in ("yes", "no"):
        engine, daemon = Engine("--rdbcompression", compression), Daemon()
        fill(engine)
        for name, (_, n) in FILTERS.items():
            value = engine("DUMP", name)
            assert daemon("RESTORE", name, "0", value) == "OK"
            same(engine, name, daemon)
            assert n == 0 or daemon("BF.MEXISTS", name, *items(name, n)) == [1] * n
            again = daemon("DUMP", name)
            assert engine("RESTORE", "back-" + name, "0", again) == "OK"
            same(engine, name, engine, "back-" + name)
            assert engine("DUMP", "back-" + name) == value
            assert engine("DEBUG", "DIGEST-VALUE", name) == engine("DEBUG", "DIGEST-VALUE", "back-" + name)
        assert daemon("RESTORE", "t", "100000", engine("DUMP", "small")) == "OK" and 0 < daemon("PTTL", "t") <= 100000


def test_large_values_in_both_directions():
    """Above 8 MB, which was the limit of the daemon's DUMP."""
    engine, daemon = Engine("--rdbcompression", "no"), Daemon()
    for reserve, add, ask in (
            (("BF.RESERVE", "f", "0.01", "10000000"), ("BF.MADD", "f"), "BF.MEXISTS"),
            (("BF.RESERVE", "f", "0.01", "10000000", "LAYOUT", "redisbloom"), ("BF.MADD", "f"), "BF.MEXISTS"),
            (("CF.RESERVE", "f", "12000000"), ("CF.INSERT", "f", "ITEMS"), "CF.MEXISTS"),
            (("CF.RESERVE", "f", "8000000", "ERROR", "0.001"), ("CF.INSERT", "f", "ITEMS"), "CF.MEXISTS")):
        assert engine(*reserve) == "OK" and engine(*add, *items("x", 100)) == [1] * 100
        value = engine("DUMP", "f")
        assert len(value) > 8 << 20, (reserve, len(value))
        assert engine("RESTORE", "again", "0", value, "REPLACE") == "OK" and engine("DUMP", "again") == value
        assert engine(ask, "again", *items("x", 100), "nobody") == [1] * 100 + [0]
        assert daemon("RESTORE", "f", "0", value, "REPLACE") == "OK"
        assert daemon(ask, "f", *items("x", 100), "nobody") == [1] * 100 + [0]
        if "LAYOUT" not in reserve and reserve[0] != "CF.RESERVE":
            assert engine("RESTORE", "again", "0", daemon("DUMP", "f"), "REPLACE") == "OK"
            assert engine("DUMP", "again") == value
        engine("DEL", "f")


def test_an_engine_migrates_to_the_daemon():
    engine, daemon = Engine(), Daemon()
    fill(engine)
    reference = Engine()
    fill(reference)
    engine("PEXPIRE", "fixed", "500000")
    assert engine("MIGRATE", "127.0.0.1", daemon.port, "", "0", "10000", "KEYS", *FILTERS) == "OK"
    assert engine("DBSIZE") == 0
    assert daemon("DBSIZE") == len(FILTERS) and 0 < daemon("PTTL", "fixed") <= 500000
    for name in FILTERS:
        same(reference, name, daemon)


def test_an_engine_migrates_to_the_daemon_with_tls():
    reference = Engine()
    fill(reference)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([CERTIFICATES, folder], check=True)
        tls = ["--tls-cert-file", f"{folder}/server.crt", "--tls-key-file", f"{folder}/server.key",
               "--tls-ca-cert-file", f"{folder}/ca.crt", "--tls-port"]
        ports = free_port(), free_port()
        engine, daemon = Engine(*tls, ports[0], "--tls-cluster", "yes"), Daemon(*tls, ports[1])
        fill(engine)
        # By the address: of a name Redis tries the first one only, which may be ::1.
        assert engine("MIGRATE", "127.0.0.1", ports[1], "", "2", "10000", "KEYS", *FILTERS) == "OK"
        daemon("SELECT", "2")
        assert engine("DBSIZE") == 0 and daemon("DBSIZE") == len(FILTERS)
        for name in FILTERS:
            same(reference, name, daemon)


def test_chunks_in_both_directions():
    engine, daemon = Engine(), Daemon()
    fill(engine)
    for name in FILTERS:
        for source, target, to in ((engine, daemon, name), (daemon, engine, "back-" + name)):
            for iterator, data in chunks_of(source, name):
                assert target("BF.LOADCHUNK", to, iterator, data) == "OK"
        same(engine, name, daemon)
        same(engine, name, engine, "back-" + name)


def test_the_tool_moves_both_layouts_to_a_module_without_take_over():
    """The daemon dumps filters of RedisBloom's layout in RedisBloom's form, which such a module does not know."""
    engine, daemon = Engine(), Daemon()
    fill(daemon)
    daemon("BF.INSERT", "theirs", "CAPACITY", "20", "LAYOUT", "redisbloom", "ITEMS", *items("t", 900))
    daemon("BF.RESERVE", "theirs-large", "0.001", "1500000", "LAYOUT", "redisbloom", "NONSCALING")
    daemon("BF.MADD", "theirs-large", *items("l", 900))
    daemon("PEXPIRE", "theirs", "5000000")
    daemon("BF.ADD", "bloomery-move:mine", "x")
    done = subprocess.run([TOOL, "move", "--from", f"redis://127.0.0.1:{daemon.port}", "--to",
                           f"redis://127.0.0.1:{engine.port}", "--verify"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    assert done.returncode == 0 and f"moved    {len(FILTERS) + 3} filters" in done.stdout, done.stdout
    assert engine("DBSIZE") == len(FILTERS) + 3
    for name in FILTERS:
        same(daemon, name, engine)
    assert engine("BF.MEXISTS", "theirs", *items("t", 900)) == [1] * 900 and 0 < engine("PTTL", "theirs") <= 5000000
    assert engine("BF.MEXISTS", "theirs-large", *items("l", 900)) == [1] * 900 and engine("PTTL", "theirs-large") == -1
    assert engine("BF.INFO", "theirs", "LAYOUT") == [b"redisbloom"]


def test_what_is_half_loaded_or_strange_is_refused():
    engine, daemon = Engine(), Daemon()
    fill(engine)
    engine("BF.LOADCHUNK", "half", *chunks_of(engine, "large")[0])
    assert isinstance(daemon.try_call("RESTORE", "half", "0", engine("DUMP", "half")), Error)
    engine("SET", "text", "x" * 100)
    assert isinstance(daemon.try_call("RESTORE", "text", "0", engine("DUMP", "text")), Error)
    assert daemon("DBSIZE") == 0


def test_move_takes_cuckoo_filters_of_the_module_along():
    engine, daemon = Engine(), Daemon()
    assert engine("CF.ADD", "cuckoo", "a") == 1 and engine("BF.ADD", "bloom", "a") == 1
    done = subprocess.run([TOOL, "move", "--from", f"redis://127.0.0.1:{engine.port}", "--to", f"redis://127.0.0.1:{daemon.port}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert done.returncode == 0 and "moved    2 filters" in done.stdout, done.stdout
    assert daemon("CF.EXISTS", "cuckoo", "a") == 1


def test_the_way_from_the_daemon_to_the_module_under_adds():
    """Dual writes, then the copy, then a comparison: no add is lost."""
    engine, daemon = Engine(), Daemon()
    daemon("BF.RESERVE", "f", "0.001", "2000")
    daemon("BF.MADD", "f", *items("old", 1500))
    engine("BF.RESERVE", "f", "0.001", "2000")
    for server in (daemon, engine):  # from now on clients add to both
        server("BF.MADD", "f", *items("new", 300))
    for iterator, data in chunks_of(daemon, "f"):
        engine("BF.LOADCHUNK", "f.copy", iterator, data)
    for server in (daemon, engine):
        server("BF.MADD", "f", *items("late", 150))
    assert engine("BF.MERGE", "f", "f.copy") == "OK"
    engine("DEL", "f.copy")
    assert engine("BF.MEXISTS", "f", *items("old", 1500), *items("new", 300), *items("late", 150)) == [1] * 1950
    there, here = described(daemon, "f"), described(engine, "f")
    for field in ("Capacity", "Bits", "Bits set", "Hashes", "Layout"):
        assert there[field] == here[field], (field, there[field], here[field])


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
