#!/usr/bin/env python3
"""`bloomery move` with a stand-in for RedisBloom on one side or both: the replies of such servers, and possible
failures. `move.py TOOL RECORDINGS`; see with_daemon.py and stand_in.py."""
import os
import re
import signal
import subprocess
import sys
import time

import redis

import session
from session import AUTH_PORT, PASSWORD, PORT, equal, holds, until
from stand_in import CLOSE, Filter, StandIn, made, recorded

TOOL, RECORDINGS = sys.argv[1:3]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LARGE = 3 << 20  # bytes: goes in chunks
NAMES = ["default_by_add", "empty", "expansion1_9_layers", "expansion4", "full_nonscaling", "n1000_p0.001_nonscaling",
         "n1000_p0.01", "n20000_p0.0001", "one_item", "p0.5", "p1e-9_k30", "scaled_6_layers"]


def recordings():
    return {name: recorded(os.path.join(RECORDINGS, name)) for name in NAMES}


def command(source, target, *options):
    return [TOOL, "move", "--from", source if isinstance(source, str) else source.url,
            "--to", target if isinstance(target, str) else target.url, *options]


def move(source, target, *options):
    """Exit status, and the output on stdout and stderr."""
    done = subprocess.run(command(source, target, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120)
    return done.returncode, done.stdout


def moves(status, text, source, target, *options):
    got, output = move(source, target, *options)
    holds(got == status and text in output, f"exit {status} and '{text}': exit {got}: {output}")
    return output


def restores(filters):
    """The forms that a target's RESTORE understands."""
    return {value.dump: value for value in filters.values() if isinstance(value, Filter)}


def same(source, target):
    equal(set(target.keys), set(source.keys))
    for name, value in source.keys.items():
        equal(target.keys[name].body, value.body)
        equal(target.keys[name].header, value.header)


def test_dumps_and_times_to_live():
    filters = recordings()
    filters["n1000_p0.01"].ttl = 123456
    with StandIn(filters) as source, StandIn(dump_fits=restores(filters)) as target:
        moves(0, f"moved    {len(NAMES)} filters", source, target, "--verify")
        same(source, target)
        equal(target.keys[b"n1000_p0.01"].ttl, 123456)
        equal(source.count("BF.SCANDUMP"), 0)
        moves(0, f"there    {len(NAMES)}", source, target, "--verify")


def test_a_large_filter_appears_whole():
    """RedisBloom shows a filter from its first chunk on: under a name that no client uses, which expires."""
    seen = []

    def watch(stand_in, name, _):
        if b"large" in stand_in.keys:
            seen.append(stand_in.keys[b"large"].body == source.keys[b"large"].body)
        if name == "BF.LOADCHUNK" and stand_in.count("BF.LOADCHUNK") == 3:
            temporary = [value for key, value in stand_in.keys.items() if key.startswith(b"bloomery-move:")]
            seen.append(len(temporary) == 1 and temporary[0].ttl > 0)
        return None

    for ttl in (-1, 5000):
        filters = {"large": made(LARGE, nlayers=2)}
        filters["large"].ttl = ttl
        with StandIn(filters, chunk=400000) as source, StandIn(hook=watch) as target:
            moves(0, "moved    1 filter", source, target, "--verify")
            same(source, target)
            equal(target.keys[b"large"].ttl, ttl)
            holds(seen and all(seen), f"always whole: {seen}")


def test_a_large_filter_is_replaced_at_one_moment():
    seen = []

    def watch(stand_in, *_):
        seen.append(b"large" in stand_in.keys)

    with StandIn({"large": made(LARGE)}) as source, StandIn({"large": made(800)}, hook=watch) as target:
        moves(3, "skipped large: the target has another filter", source, target)
        moves(0, "moved    1 filter", source, target, "--replace", "--verify")
        same(source, target)
        holds(all(seen), "there is always a filter of this name")


def test_an_interrupted_load_expires():
    def stop(stand_in, name, _):
        if name == "BF.LOADCHUNK" and stand_in.count(name) == 3:
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.3)
        return None

    with StandIn({"large": made(LARGE)}, chunk=400000) as source, StandIn(hook=stop) as target:
        process = subprocess.Popen(command(source, target), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output = process.communicate(timeout=240)[0]
        equal(process.returncode, 130)
        holds("interrupted; run the same command to continue" in output, output)
        left = list(target.keys.items())
        holds(len(left) == 1 and left[0][0].startswith(b"bloomery-move:") and left[0][1].ttl > 0, str(left))
        target.hook = None
        moves(0, "moved    1 filter", source, target)
        equal(target.keys[b"large"].body, source.keys[b"large"].body)
        # A target with leftovers can be a source: they are left out.
        with StandIn() as third:
            holds("left     1 out" in moves(0, "moved    1 filter", target, third), "it is told")


def test_what_a_killed_run_leaves_expires():
    """The target has the first chunk, and the run dies before it gets the reply."""
    def stop(_, name, __):
        if name == "BF.LOADCHUNK":
            os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.3)

    with StandIn({"large": made(LARGE)}, chunk=400000) as source, StandIn(hook=stop) as target:
        process = subprocess.Popen(command(source, target), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.wait(timeout=240)
        until(lambda: any(value.ttl > 0 for value in target.keys.values()), "a name that expires")
        equal(len(target.keys), 1)


def test_a_lost_connection_leaves_nothing():
    """The same run deletes what it has begun under another name."""
    def hang_up(stand_in, name, _):
        return CLOSE if name == "BF.LOADCHUNK" and stand_in.count(name) in (3, 7) else None

    with StandIn({"large": made(LARGE)}, chunk=400000) as source, StandIn(hook=hang_up) as target:
        moves(0, "moved    1 filter", source, target)
        equal(list(target.keys), [b"large"])
        same(source, target)


def test_names_that_look_like_the_own():
    """Only names that a run creates are left out, and each is reported."""
    own = "bloomery-move:" + "0123456789abcdef" * 2
    names = ["bloomery-move:", "bloomery-move:mine", own[:-1], own + "0", own.upper(), own]
    filters = {name: made(800 + i) for i, name in enumerate(names)}
    with StandIn(filters) as source, StandIn() as target:
        output = moves(0, "moved    5 filters", source, target)
        holds("skipped bloomery-move%3A" + own[14:] + ": left by an interrupted run of this command" in output, output)
        holds("left     1 out" in output, output)
        equal(set(target.keys), {name.encode() for name in names[:-1]})


def test_a_target_that_does_not_know_the_form_of_a_dump():
    """As an older engine, or the module for filters of RedisBloom's layout: chunks go."""
    filters = recordings()
    for text in (b"-ERR Bad data format", b"-ERR DUMP payload version or checksum are wrong"):
        with StandIn(filters) as source, StandIn(hook=lambda _, n, __, t=text: t if n == "RESTORE" else None) as target:
            moves(0, f"moved    {len(NAMES)} filters", source, target, "--verify")
            same(source, target)


def test_servers_that_cannot_scan_by_type():
    def old(_, name, arguments):
        return b"-ERR syntax error" if name == "SCAN" and b"TYPE" in arguments else None

    filters = recordings()
    with StandIn(filters, hook=old) as source, StandIn(dump_fits=restores(filters)) as target:
        source.keys.update({b"string:%d" % i: "a string" for i in range(2000)})
        moves(0, f"moved    {len(NAMES)} filters", source, target)
        equal(len(target.keys), len(NAMES))


def test_other_types_are_not_asked_for_where_scan_knows_types():
    filters = recordings()
    with StandIn(filters) as source, StandIn(dump_fits=restores(filters)) as target:
        source.keys.update({b"string:%d" % i: "a string" for i in range(2000)})
        moves(0, f"moved    {len(NAMES)} filters", source, target)
        equal(source.count("BF.INFO"), len(NAMES))


def test_a_name_that_is_a_string_in_the_target():
    filters = recordings()
    with StandIn(filters) as source, StandIn(dump_fits=restores(filters)) as target:
        target.keys[b"p0.5"] = "a string"
        moves(3, "skipped p0.5: the target has a value of another type", source, target)
        moves(0, "moved    1 filter", source, target, "--replace")


def test_a_loading_server_is_waited_for():
    def loading(stand_in, name, _):
        return b"-LOADING Redis is loading the dataset in memory" if name == "BF.INFO" and stand_in.count(name) < 4 else None

    filters = recordings()
    with StandIn(filters, hook=loading) as source, StandIn(dump_fits=restores(filters), hook=loading) as target:
        moves(0, f"moved    {len(NAMES)} filters", source, target)


def test_a_server_that_loads_for_ever_is_given_up():
    with StandIn(recordings()) as source, StandIn(hook=lambda *_: b"-LOADING Redis is loading") as target:
        moves(1, "LOADING Redis is loading; given up after 1 s", source, target, "--retry", "1")


def test_lost_connections():
    """Both servers hang up after a fixed number of commands, repeatedly."""
    def hang_up(every):
        return lambda stand_in, *_: CLOSE if len(stand_in.log) % every == 0 else None

    filters = {**recordings(), **{f"f{i}": made(800, items=i + 1) for i in range(300)}, "large": made(LARGE)}
    for i in range(300):
        filters[f"f{i}"].dump += b"%d" % i
    with StandIn(filters, hook=hang_up(97), chunk=400000) as source, \
            StandIn(dump_fits=restores(filters), hook=hang_up(61)) as target:
        moves(0, "313 filters", source, target)
        for name in [name for name in target.keys if name.startswith(b"bloomery-move:")]:
            del target.keys[name]  # a chunk of a lost connection may come after the DEL of the next one; it would expire
        same(source, target)


def test_no_permission():
    def lacks(what, text):
        return lambda _, name, __: text if name == what else None

    no_command = b"-NOPERM User ann has no permissions to run the '%s' command"
    filters = recordings()
    with StandIn(filters, hook=lacks("SCAN", no_command % b"scan")) as source, StandIn() as target:
        moves(1, "the source refuses SCAN: NOPERM User ann has no permissions to run the 'scan' command", source, target)
    with StandIn(filters) as source, StandIn(hook=lacks("BF.INFO", no_command % b"bf.info")) as target:
        moves(1, "the target refuses BF.INFO: NOPERM", source, target)
    with StandIn(filters, hook=lacks("DUMP", no_command % b"dump")) as source, StandIn() as target:
        moves(0, f"moved    {len(NAMES)} filters", source, target, "--verify")  # in chunks
        same(source, target)
    with StandIn(filters) as source, StandIn(hook=lacks("RESTORE", no_command % b"restore")) as target:
        moves(0, f"moved    {len(NAMES)} filters", source, target)
        same(source, target)

    def one_key(_, name, arguments):
        return b"-NOPERM No permissions to access a key" if name == "BF.INFO" and arguments[0] == b"p0.5" else None

    with StandIn(filters, hook=one_key) as source, StandIn(dump_fits=restores(filters)) as target:
        moves(3, "skipped p0.5: NOPERM No permissions to access a key", source, target)
        equal(len(target.keys), len(NAMES) - 1)


def test_targets_that_take_nothing():
    filters = recordings()
    for text in (b"-READONLY You can't write against a read only replica.", b"-MISCONF Errors writing to the AOF file",
                 b"-MOVED 1234 10.0.0.1:6379"):
        with StandIn(filters) as source, StandIn(hook=lambda _, n, __, t=text: t if n == "RESTORE" else None) as target:
            moves(1, "the target refuses RESTORE: " + text[1:].decode(), source, target)
    with StandIn(filters) as source, \
            StandIn(hook=lambda _, n, __: b"-ERR received bad data" if n == "BF.LOADCHUNK" else None) as target:
        output = moves(3, "skipped p0.5: ERR received bad data", source, target)
        holds(f"skipped  {len(NAMES)} that the target refused" in output, output)
    with StandIn(filters) as source, StandIn(hook=lambda _, n, __: b"-ERR unknown command 'BF.INFO'") as target:
        moves(1, "the target refuses BF.INFO: ERR unknown command 'BF.INFO' (does the server support Bloom filters?)", source, target)


def test_full_targets():
    full = b"-OOM command not allowed when used memory > 'maxmemory'."
    filters = {"large": made(LARGE), **recordings()}
    with StandIn(filters) as source, \
            StandIn(hook=lambda _, n, __: full if n == "BF.LOADCHUNK" else None, dump_fits=restores(filters)) as target:
        moves(3, "skipped large: OOM command not allowed", source, target)
        equal(len(target.keys), len(NAMES))
    with StandIn(filters) as source, StandIn(hook=lambda _, n, __: full if n == "RESTORE" else None) as target:
        moves(1, "the target refuses RESTORE: OOM", source, target)


def test_a_filter_that_grows_while_it_is_read():
    def grows(times):
        def hook(stand_in, name, arguments):
            if name == "BF.SCANDUMP" and int(arguments[1]) == 800001 and stand_in.grown < times:
                stand_in.grown += 1
                stand_in.keys[b"large"] = made(LARGE, nlayers=1 + stand_in.grown)
        return hook

    for times, status, text in ((1, 0, "moved    1 filter"), (99, 3, "skipped large: it grew each of the 3 times")):
        with StandIn({"large": made(LARGE)}, hook=grows(times), chunk=400000) as source, StandIn() as target:
            source.grown = 0
            moves(status, text, source, target)
            equal([name for name in target.keys], [b"large"] if status == 0 else [])
            if status == 0:
                same(source, target)


def test_items_that_come_while_it_is_read_are_told():
    def adds(stand_in, name, arguments):
        if name == "BF.SCANDUMP" and int(arguments[1]) == 1:
            stand_in.keys[b"large"] = made(LARGE, items=1001)

    with StandIn({"large": made(LARGE)}, hook=adds, chunk=400000) as source, StandIn() as target:
        moves(0, "changed  1 of the moved filters", source, target)
        source.hook = None
        moves(0, "moved    1 filter", source, target, "--replace")
        same(source, target)


def test_filters_that_vanish():
    def vanish_small(stand_in, name, arguments):
        if name == "PTTL" and arguments[0] == b"p0.5":
            stand_in.keys.pop(b"p0.5", None)

    def vanish_large(stand_in, name, arguments):
        if name == "BF.SCANDUMP" and int(arguments[1]) > 800000:
            stand_in.keys.pop(b"large", None)

    filters = recordings()
    with StandIn(filters, hook=vanish_small) as source, StandIn(dump_fits=restores(filters)) as target:
        moves(0, "gone     1", source, target)
        same(source, target)
    with StandIn({"large": made(LARGE)}, hook=vanish_large, chunk=400000) as source, StandIn() as target:
        moves(0, "gone     1", source, target)
        equal(target.keys, {})


def test_what_is_no_server():
    with StandIn(recordings()) as source:
        for reply in (b"HTTP/1.1 400 Bad Request\r\n", b"\x00\xff\r\n", b"*1000000\r\n" * 20000, b"$2000000000\r\n"):
            with StandIn() as target:
                target.run = lambda words, r=reply: r
                moves(1, "the server does not speak the Redis protocol", source, target)
        with StandIn() as target:
            target.run = lambda words: b"+OK\r\n"
            moves(3, "skipped", source, target)
        with StandIn(hook=lambda *_: time.sleep(3)) as target:
            moves(1, "the server does not answer; given up", source, target, "--timeout", "1", "--retry", "1")


def test_users_and_databases():
    with StandIn(recordings()) as source, StandIn() as target:
        url = source.url.replace("://", "://ann:s%20ecret@") + "/3"
        moves(1, "the password is refused: ERR unknown command 'AUTH'", url, target)
        equal(source.log[-1], ["AUTH", b"ann", b"s ecret"])
        source.hook = lambda _, name, __: b"+OK" if name in ("AUTH", "SELECT") else None
        target.dump_fits = restores(recordings())
        moves(0, f"moved    {len(NAMES)} filters", url, target)
        holds(["SELECT", b"3"] in source.log, "SELECT 3")


def documented(path):
    """The commands of a page that begin with `bloomery move`: those in blocks of code, and those in the text."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return re.findall(r"^ *(bloomery move --from [^#\n]*?) *(?:#.*)?$", text, re.MULTILINE) + \
        re.findall(r"`(bloomery move --from [^`]*)`", text)


def test_the_commands_of_the_documentation():
    filters = recordings()
    with open(os.path.join(session.TEST_DIR, "password"), "w", encoding="ascii") as file:
        file.write("secret\n")
    for page, least in ((os.path.join("docs", "MIGRATION.md"), 6), ("README.md", 1)):
        lines = documented(os.path.join(ROOT, page))
        holds(len(lines) >= least, f"{page} has the commands: {lines}")
        for line in lines:
            if "--pause" in line:
                continue  # tests/e2e/test_move.c
            with StandIn(filters) as source, StandIn(dump_fits=restores(filters)) as target:
                target.hook = lambda _, name, __: b"+OK" if name == "AUTH" else None
                words = line.replace("/etc/bloomery/password", os.path.join(session.TEST_DIR, "password")).split()
                urls = {word for word in words if word.startswith("redis://")}
                equal(len(urls), 2)
                words = [TOOL if word == "bloomery" else
                         source.url if words[i - 1] == "--from" else target.url if words[i - 1] == "--to" else word
                         for i, word in enumerate(words)]
                done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
                holds(done.returncode == 0 and "12 filters" in done.stdout, f"{line}: {done.returncode}: {done.stdout}")


# ---- with the daemon ----

def probes(name):
    with open(os.path.join(RECORDINGS, name, "probes.tsv"), encoding="ascii") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return [bytes.fromhex(line[0]) for line in lines], [int(line[1]) for line in lines]


def expect_recorded(client, name):
    """All recorded probes get RedisBloom's replies, and all items are there."""
    if name == "n20000_p0.0001":  # whose items are not kept here
        equal(client.execute_command("BF.CARD", name), 15000)
        return
    items, answers = probes(name)
    equal(client.execute_command("BF.MEXISTS", name, *items), answers)
    with open(os.path.join(RECORDINGS, name, "items.hex"), encoding="ascii") as file:
        added = [bytes.fromhex(line) for line in file.read().split("\n") if line]
    if added and name != "full_nonscaling":  # some of whose items were refused
        equal(set(client.execute_command("BF.MEXISTS", name, *added)), {1})


def debug_lines(recording):
    """BF.DEBUG's reply as RedisBloom words it."""
    lines = [f"size:{sum(layer[2] for layer in recording.layers())}"]
    for nbytes, bits, count, error, _, hashes, entries, _ in recording.layers():
        lines.append("bytes:%d bits:%d hashes:%d hashwidth:64 capacity:%d size:%d ratio:%g" %
                     (nbytes, bits, hashes, entries, count, error))
    return [line.encode() for line in lines]


def test_redisbloom_to_bloomery_and_back():
    client = redis.Redis(port=PORT)
    filters = recordings()
    filters["p0.5"].ttl = 1000000
    with StandIn(filters) as source:
        moves(0, f"moved    {len(NAMES)} filters", source, f"redis://127.0.0.1:{PORT}")
        for name in NAMES:
            expect_recorded(client, name)
            equal(client.execute_command("BF.DEBUG", name), debug_lines(filters[name]))
        holds(900000 < client.pttl("p0.5") <= 1000000, "the time to live")
        moves(0, f"there    {len(NAMES)}", source, f"redis://127.0.0.1:{PORT}")
        client.flushall()
        # In chunks.
        source.hook = lambda _, name, __: b"-ERR unknown command 'dump'" if name == "DUMP" else None
        moves(0, f"moved    {len(NAMES)} filters", source, f"redis://127.0.0.1:{PORT}")
        for name in NAMES:
            expect_recorded(client, name)
        # And back, in chunks again, as the stand-in does not know other dumps.
        with StandIn() as target:
            target.hook = lambda _, name, __: b"-ERR unknown command 'restore'" if name == "RESTORE" else None
            moves(0, f"moved    {len(NAMES)} filters", f"redis://127.0.0.1:{PORT}", target)
            same(source, target)
    client.flushall()


def test_a_large_filter_of_redisbloom_to_bloomery_and_back():
    """With RedisBloom's chunks of 16 MB."""
    client = redis.Redis(port=PORT)
    with StandIn({"large": made(20 << 20, nlayers=2)}) as source, StandIn() as target:
        moves(0, "moved    1 filter", source, f"redis://127.0.0.1:{PORT}")
        equal(client.execute_command("BF.DEBUG", "large"), debug_lines(source.keys[b"large"]))
        moves(0, "moved    1 filter", f"redis://127.0.0.1:{PORT}", target)
        same(source, target)
        equal(client.keys(), [b"large"])
    client.flushall()


def test_a_daemon_with_a_password():
    client = redis.Redis(port=AUTH_PORT, password=PASSWORD)
    until(client.ping, "the daemon answers")
    client.execute_command("BF.ADD", "auth", "a")
    moves(1, "NOAUTH", f"redis://127.0.0.1:{AUTH_PORT}", f"redis://127.0.0.1:{PORT}")
    moves(0, "moved    1 filter", f"redis://:{PASSWORD}@127.0.0.1:{AUTH_PORT}", f"redis://127.0.0.1:{PORT}", "--match", "auth")
    equal(redis.Redis(port=PORT).execute_command("BF.EXISTS", "auth", "a"), 1)


if __name__ == "__main__":
    sys.exit(session.run("bloomery move", session.claims_of(sys.modules[__name__])))
