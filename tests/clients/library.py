#!/usr/bin/env python3
"""bloomery_native.py, and so libbloomery, with a real daemon: a million answers equal the server's, for all layouts,
chains and windows. BLOOMERY_PROBES: another number."""
import os
import random
import subprocess
import sys
import urllib.parse
import urllib.request

import redis

TOOL, READERS = sys.argv[1:3]
sys.path.insert(0, READERS)
import bloomery  # noqa: E402
import bloomery_native  # noqa: E402

PROBES = int(os.environ.get("BLOOMERY_PROBES", "1000000"))
WEB, DIR = int(os.environ["BLOOMERY_WEB_PORT"]), os.environ["BLOOMERY_TEST_DIR"]
server = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]))
rng = random.Random(int(os.environ.get("BLOOMERY_SEED", "26")))


def url(name):
    return "http://127.0.0.1:%d/filters/%s" % (WEB, urllib.parse.quote(name, safe=""))


def items(n):
    """Of all lengths, with bytes of all values."""
    return [rng.randbytes(rng.choice((0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 40, 100))) + b"%d" % rng.randrange(n * 4)
            for _ in range(n)]


def ask(command, name, probes):
    return [answer == 1 for at in range(0, len(probes), 1000)
            for answer in server.execute_command(command, name, *probes[at:at + 1000])]


def compare(name, probes):
    copy = bloomery_native.Copy(url(name))
    assert copy.refresh() and not copy.refresh()
    answers = ask("BF.MEXISTS", name, probes)
    assert copy.has_many(probes) == answers, name
    assert [probe in copy for probe in probes[:1000]] == answers[:1000], name
    assert 0 < sum(answers) < len(answers), name
    with urllib.request.urlopen(url(name)) as reply:
        data = reply.read()
        layout, layers = reply.headers["Bloomery-Layout"], int(reply.headers["Bloomery-Layers"])
    native = bloomery_native.Filter(data, layout, layers)
    assert bytes(native) == data and native.layout == layout and len(native.layers) == layers, name
    path = os.path.join(DIR, "saved")
    native.save(path)
    with open(path, "rb") as file:
        assert file.read() == data
    assert bytes(bloomery_native.open(path, layout)) == data
    pure = bloomery.Filter(data, layout, layers)
    assert [probe in pure for probe in probes[:200]] == answers[:200], name
    return layers


def import_file(name, layout, added):
    """A file of the tool, which the server imports unchanged."""
    path = os.path.join(DIR, layout + ".db")
    with open(path + ".items", "wb") as file:
        for item in added:
            file.write(len(item).to_bytes(4, "big") + item)
    subprocess.run([TOOL, "build", path, path + ".items", "--error", "0.02", "--variant", layout, "--length-prefixed"], check=True,
                   stdout=subprocess.DEVNULL)
    built = bloomery_native.create(0.02, len(added), layout)
    built.add_many(added)
    with open(path, "rb") as file:
        assert bytes(built) == file.read(), "the library builds the same file"
    server.execute_command("BF.IMPORT", name, layout + ".db", "VARIANT", layout)


def test_answers_are_the_servers():
    added = items(20000)
    made = {"na": (), "me": (), "ka": (),
            "chain": ("0.02", "500", "EXPANSION", "2"),
            "window": ("0.02", "40000", "WINDOW", "3600", "PARTS", "4"),
            "items": ("0.02", "5000", "WINDOW", "ITEMS", "3000", "PARTS", "3"),
            "theirs": ("0.02", "40000", "NONSCALING", "LAYOUT", "redisbloom"),
            "their-chain": ("0.02", "500", "EXPANSION", "2", "LAYOUT", "redisbloom")}
    for name, arguments in made.items():
        if not arguments:
            import_file(name, name, added)
        else:
            server.execute_command("BF.RESERVE", name, *arguments)
            for at in range(0, len(added), 1000):
                server.execute_command("BF.MADD", name, *added[at:at + 1000])
        share = PROBES // len(made) - len(added) // 4
        layers = compare(name, items(share) + added[-(len(added) // 4):])
        assert layers >= (5 if name.endswith("chain") else 1), (name, layers)


def raised(error, function, *arguments):
    try:
        function(*arguments)
    except error as was:
        return was
    raise AssertionError((error, arguments))


def test_what_is_refused():
    server.execute_command("BF.RESERVE", "secret", "0.01", "1000", "KEYED")
    said = raised(OSError, bloomery_native.Copy(url("secret")).refresh)
    assert "KEYED" in str(said) and "key" in str(said)
    said = raised(bloomery_native.Keyed, bloomery_native.open, "na-0-big-Filter.db.keyed-0123456789abcdef")
    assert "0123456789abcdef" in str(said)
    raised(LookupError, bloomery_native.Copy(url("secret")).__contains__, "a")
    raised(ValueError, bloomery_native.Filter, b"x")
    raised(ValueError, bloomery_native.Filter, b"")
    raised(ValueError, bloomery_native.Filter, bytes(16), "nb")
    raised(ValueError, bloomery_native.create, 2, 100)
    raised(OSError, bloomery_native.open, os.path.join(DIR, "none"), "na")
    raised(TypeError, bloomery_native.create(0.01, 10).__contains__, 5)
    assert not bloomery_native.Filter(b"", "na", 0).has_many([b"a", "b"])[0]


def test_layers_that_are_refused():
    """Those that the readers without the library refuse, too (readers.py)."""
    with open(os.path.join(os.path.dirname(__file__), "../golden/malformed/layers.tsv")) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line[0] != "#"]
    for outcome, layout, times, data, what in rows:
        data = bytes.fromhex(data) * int(times)
        if outcome == "whole":
            assert bytes(bloomery_native.Filter(data, layout)) == data, what
        else:
            raised(ValueError, bloomery_native.Filter, data, layout)


def test_a_filter_of_its_own():
    filter = bloomery_native.create(0.01, 1000)
    assert filter.add("a") and not filter.add(b"a") and "a" in filter and bytearray(b"a") in filter
    assert filter.add_many(str(i) for i in range(900)) > 880 and 880 < filter.estimate < 920 and filter.rate < 0.01
    full = raised(bloomery_native.Full, filter.add_many, [str(i) for i in range(900, 2000)])
    assert 90 < full.done < 200
    other = bloomery_native.create(0.01, 1000, "me")
    other.add("b")
    other.merge(filter)
    assert "a" in other and "b" in other and "b" not in filter and other.bits_set >= filter.bits_set
    raised(ValueError, other.merge, bloomery_native.create(0.01, 5))


for test in [value for name, value in sorted(globals().items()) if name.startswith("test_")]:
    test()
    print("ok", test.__name__)
