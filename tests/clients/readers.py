#!/usr/bin/env python3
"""The readers of tools/readers, and GET /filters/NAME beneath them, with a real daemon: answers equal the server's
for all layouts, chains and windows, and changes are noticed."""
import array
import base64
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.parse

import redis

TOOL, READERS = sys.argv[1:3]
sys.path.insert(0, READERS)
import bloomery  # noqa: E402

WEB = int(os.environ["BLOOMERY_WEB_PORT"])
AUTH_WEB = int(os.environ["BLOOMERY_AUTH_WEB_PORT"])
DIR = os.environ["BLOOMERY_TEST_DIR"]
server = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]))
rng = random.Random(26)


def items(n):
    """Of all lengths, with bytes of all values: tails are signed in the hash."""
    return [rng.randbytes(rng.choice((0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 40, 100))) + b"%d" % rng.randrange(n * 4)
            for _ in range(n)]


def url(name, end="", port=WEB):
    return "http://127.0.0.1:%d/filters/%s%s" % (port, urllib.parse.quote(name, safe=""), end)


def get(path, method="GET", port=WEB, **fields):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in fields.items()})
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read()


def by_javascript(data, layout, probes):
    """The answers of bloomery.mjs about them."""
    with open(os.path.join(DIR, "filter"), "wb") as file:
        file.write(data)
    with open(os.path.join(DIR, "probes"), "w") as file:
        json.dump([probe.hex() for probe in probes], file)
    program = """
        import { readFileSync } from "node:fs";
        import { Filter } from "%s/bloomery.mjs";
        const filter = new Filter(readFileSync("filter"), "%s");
        const probes = JSON.parse(readFileSync("probes"));
        process.stdout.write(probes.map((probe) => filter.has(Buffer.from(probe, "hex")) ? "1" : "0").join(""));
        """ % (urllib.parse.quote(os.path.realpath(READERS)), layout)
    done = subprocess.run(["node", "--input-type=module", "-e", program], cwd=DIR, stdout=subprocess.PIPE, check=True)
    return [int(answer) for answer in done.stdout.decode()]


def compare(name, probes):
    answers = [answer for at in range(0, len(probes), 1000)
               for answer in server.execute_command("BF.MEXISTS", name, *probes[at:at + 1000])]
    copy = bloomery.Copy(url(name))
    assert copy.refresh() and not copy.refresh()
    assert [int(probe in copy) for probe in probes] == answers, name
    status, headers, data = get("/filters/" + name)
    assert status == 200 and by_javascript(data, headers["Bloomery-Layout"], probes) == answers, name
    assert 0 < sum(answers) < len(answers)
    return headers


def as_of_very_old_versions(empty, name):
    """A filter like this empty one, but with hashes of 32 bits."""
    iterator, chunk = server.execute_command("BF.SCANDUMP", empty, 0)
    options = int.from_bytes(chunk[12:16], "little") & ~4
    server.execute_command("BF.LOADCHUNK", name, iterator, chunk[:12] + options.to_bytes(4, "little") + chunk[16:])
    while True:
        iterator, chunk = server.execute_command("BF.SCANDUMP", empty, iterator)
        if iterator == 0:
            return
        server.execute_command("BF.LOADCHUNK", name, iterator, chunk)


def test_answers_are_the_servers():
    server.execute_command("BF.RESERVE", "plain", "0.01", "10000")
    server.execute_command("BF.RESERVE", "chain", "0.01", "100", "EXPANSION", "2")
    server.execute_command("BF.RESERVE", "window", "0.01", "20000", "WINDOW", "3600", "PARTS", "4")
    server.execute_command("BF.RESERVE", "theirs", "0.01", "10000", "NONSCALING", "LAYOUT", "redisbloom")
    server.execute_command("BF.RESERVE", "their-chain", "0.01", "100", "EXPANSION", "2", "LAYOUT", "redisbloom")
    as_of_very_old_versions("theirs", "their-old")
    server.execute_command("BF.RESERVE", "valkeys", "0.01", "10000", "NONSCALING", "LAYOUT", "valkey")
    server.execute_command("BF.INSERT", "valkeys-chain", "CAPACITY", "100", "SEED", bytes(range(200, 232)))
    server.execute_command("BF.RESERVE", "blocks", "0.01", "10000", "LAYOUT", "blocked")
    server.execute_command("BF.RESERVE", "block-chain", "0.01", "100", "EXPANSION", "2", "LAYOUT", "blocked")
    server.execute_command("BF.RESERVE", "block-large", "0.01", "2000000", "LAYOUT", "blocked")
    for name, layers in (("plain", 1), ("chain", 5), ("window", 1), ("theirs", 1), ("their-chain", 5), ("their-old", 1), ("valkeys", 1),
                         ("valkeys-chain", 5), ("blocks", 1), ("block-chain", 5), ("block-large", 1)):
        added = items(5000)
        for at in range(0, len(added), 1000):
            server.execute_command("BF.MADD", name, *added[at:at + 1000])
        headers = compare(name, added + items(15000))
        assert int(headers["Bloomery-Layers"]) >= layers
        assert headers["Bloomery-Layout"] == (
            "redisbloom32" if name == "their-old" else "redisbloom" if name.startswith("their") else
            "valkey" if name.startswith("valkey") else "blocked" if name.startswith("block") else "na")
        assert (headers["Bloomery-Window"] is not None) == (name == "window")
    assert get("/filters/window")[1]["Bloomery-Window"] == "3600000000 microseconds"


def test_files_of_all_layouts():
    added, probes = items(3000), items(12000)
    with open(os.path.join(DIR, "input"), "wb") as file:
        for item in added:
            file.write(len(item).to_bytes(4, "big") + item)
    for layout in ("na", "me", "ka", "blocked"):
        path = os.path.join(DIR, layout)
        subprocess.run([TOOL, "build", path, os.path.join(DIR, "input"), "--error", "0.01", "--variant", layout,
                        "--length-prefixed"], check=True, stdout=subprocess.DEVNULL)
        with open(path, "rb") as file:
            data = file.read()
        reader = bloomery.Filter(data, layout)
        answers = [int(item in reader) for item in added + probes]
        assert all(answers[:3000]) and sum(answers[3000:]) < 3000
        assert by_javascript(data, layout, added + probes) == answers
        if layout != "blocked":
            other = bloomery.Filter(data, "me" if layout == "na" else "na")
            assert not all(item in other for item in added)


ONE_LAYER = b"\0\0\0\1\0\0\0\1" + bytes(8)


def golden_layers():
    """Whether they are whole, the layout, the bytes: the library takes and refuses the same (library.py)."""
    with open(os.path.join(os.path.dirname(__file__), "../golden/malformed/layers.tsv")) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line[0] != "#"]
    return [(outcome == "whole", layout, bytes.fromhex(data) * int(times)) for outcome, layout, times, data, _ in rows]


def refused(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError(arguments)


def test_what_python_refuses():
    for whole, layout, data in golden_layers():
        if whole:
            bloomery.Filter(data, layout)
        else:
            refused(ValueError, bloomery.Filter, data, layout)
    bloomery.Filter(ONE_LAYER, "me", 1)
    refused(ValueError, bloomery.Filter, ONE_LAYER, "nb")
    refused(ValueError, bloomery.Filter, ONE_LAYER, "na", 2)
    for item in (5, None, [1, 2]):
        refused(TypeError, bloomery.Filter(ONE_LAYER).__contains__, item)


def test_what_javascript_refuses():
    program = """
        import { Filter } from "%s/bloomery.mjs";
        const one = Buffer.from("%s", "hex");
        const refusal = (make) => { try { make(); return "taken"; } catch (error) { return error.name; } };
        new Filter(one, "me", 1);
        console.log(JSON.stringify([
            ...%s.map(([layout, hex]) => refusal(() => new Filter(Buffer.from(hex, "hex"), layout))),
            refusal(() => new Filter(one, "nb")), refusal(() => new Filter(one, "na", 2)),
            ...[undefined, "text", [1], new Uint32Array(4)].map((data) => refusal(() => new Filter(data))),
            ...[5, undefined, null, [1, 2], {}].map((item) => refusal(() => new Filter(one).has(item)))]));
        """ % (urllib.parse.quote(os.path.realpath(READERS)), ONE_LAYER.hex(),
               json.dumps([(layout, data.hex()) for _, layout, data in golden_layers()]))
    said = subprocess.run(["node", "--input-type=module", "-"], input=program.encode(), stdout=subprocess.PIPE, check=True).stdout
    expected = ["taken" if whole else "RangeError" for whole, _, _ in golden_layers()] + ["RangeError"] * 2 + ["TypeError"] * 9
    assert json.loads(said) == expected, [pair for pair in zip(json.loads(said), expected) if len(set(pair)) > 1]


def test_bytes_of_items_count():
    """With any elements of the array."""
    words = array.array("I", range(1, 10))
    server.execute_command("BF.RESERVE", "arrays", "0.000001", "1000")
    server.execute_command("BF.ADD", "arrays", words.tobytes())
    copy = bloomery.Copy(url("arrays"))
    assert copy.refresh() and words in copy and memoryview(words) in copy and bytearray(words.tobytes()) in copy
    assert memoryview(words)[1:] not in copy
    with open(os.path.join(DIR, "arrays"), "wb") as file:
        file.write(get("/filters/arrays")[2])
    program = """
        import { readFileSync } from "node:fs";
        import { Filter } from "%s/bloomery.mjs";
        const filter = new Filter(readFileSync("arrays")), words = Uint32Array.from([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        const some = new Uint32Array(Uint32Array.from([0, ...words, 10]).buffer, 4, 9);
        console.log(JSON.stringify([words, words.buffer, new DataView(words.buffer), new Uint8Array(words.buffer), some,
            words.subarray(1)].map((item) => filter.has(item))));
        """ % urllib.parse.quote(os.path.realpath(READERS))
    said = subprocess.run(["node", "--input-type=module", "-e", program], cwd=DIR, stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(said) == [True] * 5 + [False], said


def test_changes_are_noticed():
    server.execute_command("BF.RESERVE", "seen", "0.01", "1000")
    copy = bloomery.Copy(url("seen"))
    try:
        "a" in copy
        raise AssertionError("nothing has been fetched")
    except LookupError:
        pass
    assert copy.refresh() and "a" not in copy
    server.execute_command("BF.ADD", "seen", "a")
    assert "a" not in copy and copy.refresh() and "a" in copy and not copy.refresh()
    server.execute_command("BF.ADD", "seen", "a")
    assert not copy.refresh()
    tags = {copy.etag}
    for words in (("BF.ADD", "seen", "b"), ("BF.CLEAR", "seen"), ("BF.ADD", "seen", "c"), ("BF.ADD", "seen", "d"),
                  ("DEL", "seen"), ("BF.RESERVE", "seen", "0.01", "1000"), ("BF.MADD", "seen", "e", "f")):
        server.execute_command(*words)
        if words[0] == "DEL":
            try:
                copy.refresh()
                raise AssertionError("it is gone")
            except OSError as error:
                assert str(error) == "404: no such filter", error
            continue
        assert copy.refresh() and copy.etag not in tags, words
        tags.add(copy.etag)
    assert "e" in copy and "c" not in copy


def test_a_window_that_has_forgotten_all():
    server.execute_command("BF.RESERVE", "brief", "0.01", "1000", "WINDOW", "10", "PARTS", "2")
    server.execute_command("BF.ADD", "brief", "a")
    copy = bloomery.Copy(url("brief"))
    assert copy.refresh() and "a" in copy
    while server.execute_command("BF.EXISTS", "brief", "a"):
        time.sleep(0.1)
    assert copy.refresh() and "a" not in copy
    status, headers, data = get("/filters/brief")
    assert status == 200 and data == b"" and headers["Bloomery-Layers"] == "0", headers
    server.execute_command("BF.ADD", "brief", "b")
    assert copy.refresh() and "b" in copy and "a" not in copy


def test_two_layers_and_their_tag():
    server.execute_command("BF.RESERVE", "large", "0.001", "1000000", "EXPANSION", "1")
    for at in range(0, 1200000, 20000): # two layers
        server.execute_command("BF.MADD", "large", *range(at, at + 20000))
    _, headers, whole = get("/filters/large")
    size = len(whole)
    assert size > 2 * 1797000 and int(headers["Content-Length"]) == size
    tag = get("/filters/large", "HEAD")[1]["ETag"]
    status, headers, body = get("/filters/large", "HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) == size
    assert get("/filters/large", If_None_Match=tag)[0] == 304 and get("/filters/large", If_None_Match='"x", ' + tag)[0] == 304
    assert get("/filters/large", If_None_Match='"x"')[0] == 200


def test_items_that_are_there_at_the_begin_are_in_the_copy():
    server.execute_command("BF.RESERVE", "busy", "0.01", "100000", "EXPANSION", "2")
    ended, added = threading.Event(), 0

    def fill():
        nonlocal added
        client = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]))
        while not ended.is_set() and added < 3000000:
            client.execute_command("BF.MADD", "busy", *range(added, added + 5000))
            added += 5000

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        for _ in range(20):
            before = added
            copy = bloomery.Copy(url("busy"))
            copy.refresh()
            assert all(str(item) in copy for item in rng.sample(range(before), min(before, 300)))
    finally:
        ended.set()
        thread.join()


def test_what_is_refused():
    assert get("/filters/none")[0] == 404 and get("/filters/")[0] == 404 and get("/filters")[0] == 404
    server.execute_command("BF.RESERVE", "secret", "0.01", "1000", "KEYED")
    status, headers, _ = get("/filters/secret")
    assert status == 200 and len(headers["Bloomery-Key"]) == 16
    try:
        bloomery.Copy(url("secret")).refresh()
        raise AssertionError("a KEYED filter has no local answers")
    except OSError as error:
        assert "KEYED" in str(error)
    server.execute_command("CF.RESERVE", "cuckoo", "1000")
    status, _, text = get("/filters/cuckoo")
    assert status == 503 and b"cuckoo filter" in text and b"CF.MEXISTS" in text, text
    server.execute_command("BF.ADD", "a/b", "x")
    assert get("/filters/a/b")[0] == 200
    other = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]), db=3)
    other.execute_command("BF.ADD", "there", "x")
    assert get("/filters/there")[0] == 404 and get("/filters/there?db=3")[0] == 200
    assert get("/filters/there?db=99")[0] == 400 and get("/filters/there?db=x")[0] == 400
    assert get("/filters/there", "DELETE")[0] == 405


def test_rights():
    auth = redis.Redis(port=int(os.environ["BLOOMERY_AUTH_PORT"]), password=os.environ["BLOOMERY_PASSWORD"])
    auth.execute_command("BF.ADD", "f", "x")
    auth.execute_command("BF.ADD", "own", "x")
    auth.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "%R~own", "+bf.scandump", "+bf.mexists", "+info")
    auth.execute_command("ACL", "SETUSER", "asker", "on", ">pw", "~*", "+bf.mexists", "+info")

    def status(path, user):
        return get(path, port=AUTH_WEB, Authorization="Basic " + base64.b64encode(user.encode()).decode())[0]

    assert get("/filters/f", port=AUTH_WEB)[0] == 401 and status("/filters/f", "reader:no") == 401
    assert status("/filters/own", "reader:pw") == 200
    assert status("/filters/f", "reader:pw") == 403
    assert status("/filters/none", "reader:pw") == 403
    assert status("/filters/f", "asker:pw") == 403
    copy = bloomery.Copy(url("f", port=AUTH_WEB), password=os.environ["BLOOMERY_PASSWORD"])
    assert copy.refresh() and "x" in copy
    auth.execute_command("ACL", "DELUSER", "reader", "asker")


def test_javascript_follows():
    server.execute_command("BF.ADD", "followed", "a")
    program = """
        import { Copy } from "%s/bloomery.mjs";
        const copy = new Copy("%s");
        const said = [await copy.refresh(), await copy.refresh(), copy.has("a"), copy.has("b")];
        try { await new Copy("%s").refresh(); } catch (error) { said.push(error.message); }
        console.log(JSON.stringify(said));
        """ % (urllib.parse.quote(os.path.realpath(READERS)), url("followed"), url("nobody"))
    said = subprocess.run(["node", "--input-type=module", "-e", program], stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(said) == [True, False, True, False, "404: no such filter"], said


for test in [value for name, value in sorted(globals().items()) if name.startswith("test_")]:
    test()
    print("ok", test.__name__)
