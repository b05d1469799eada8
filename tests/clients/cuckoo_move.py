#!/usr/bin/env python3
"""`bloomery move` of cuckoo filters with a stand-in for RedisBloom on one side or both. `cuckoo_move.py TOOL RECORDINGS`; see
with_daemon.py, stand_in.py and move.py."""
import random
import sys

import redis

import session
from move import equal, holds, made, moves, restores, same
from session import PORT
from stand_in import CLOSE, CUCKOO, Cuckoo, Filter, StandIn

DAEMON = f"redis://127.0.0.1:{PORT}"
LARGE = 1 << 21  # buckets of five: 10 MiB, which go in chunks


def cuckoo(buckets, items, layers=1, size=2, deletes=0, expansion=1):
    """A cuckoo filter with made-up slots."""
    header = CUCKOO.pack(items, buckets, deletes, layers, size, 20, expansion)
    length = sum(Cuckoo(header, b"").layers())
    slots = bytearray(length)
    for place in random.Random(items).sample(range(length), items):
        slots[place] = place % 255 + 1
    return Cuckoo(header, bytes(slots), b"made-up dump " + header)


def filters():
    return {"small": cuckoo(512, 300), "several": cuckoo(512, 3000, layers=4, expansion=2, deletes=3),
            "fixed": cuckoo(64, 100, expansion=0), "empty": cuckoo(512, 0), "large": cuckoo(LARGE, 5000, size=5),
            "large-several": cuckoo(LARGE // 4, 5000, layers=2, size=5, expansion=4),
            "large-empty": cuckoo(LARGE, 0, size=5, deletes=7)}


def without(*commands):
    return lambda _, name, __: b"-ERR unknown command '%s'" % name.encode() if name in commands else None


def test_small_ones_go_as_dumps_and_large_ones_in_chunks():
    kinds = {**filters(), "bloom": made(800)}
    kinds["small"].ttl = kinds["large"].ttl = 123456
    with StandIn(kinds) as source, StandIn(dump_fits={value.dump: value for value in kinds.values()}) as target:
        moves(0, f"moved    {len(kinds)} filters", source, target, "--verify")
        same(source, target)
        equal((target.keys[b"small"].ttl, target.keys[b"large"].ttl), (123456, 123456))
        equal(sorted({words[1] for words in source.log if words[0] == "CF.SCANDUMP"}),
              [b"large", b"large-empty", b"large-several"])
        moves(0, f"there    {len(kinds)}", source, target, "--verify")


def test_a_source_that_cannot_scan_by_type():
    def hook(_, name, arguments):
        return b"-ERR syntax error" if name == "SCAN" and b"TYPE" in [word.upper() for word in arguments] else None

    kinds = {**filters(), "bloom": made(800), "text": "no filter"}
    with StandIn(kinds, hook=hook) as source, StandIn(dump_fits=restores(kinds)) as target:
        target.dump_fits.update({value.dump: value for value in kinds.values() if isinstance(value, Cuckoo)})
        moves(0, f"moved    {len(kinds) - 1} filters", source, target, "--verify")
        equal({name: type(value) for name, value in target.keys.items()},
              {name: type(value) for name, value in source.keys.items() if name != b"text"})


def test_a_target_without_cuckoo_filters_takes_the_others():
    kinds = {"small": cuckoo(512, 300), "bloom": made(800)}
    with StandIn(kinds) as source, StandIn(hook=without("CF.INFO"), dump_fits=restores(kinds)) as target:
        output = moves(3, "skipped small: the target does not support cuckoo filters: ERR unknown command 'CF.INFO'", source, target)
        holds("moved    1 filter" in output, output)
        equal(list(target.keys), [b"bloom"])


def changes(times):
    """The source's filter gets an item while its chunks are read: a copy would be half of one state and half of another."""
    def hook(stand_in, name, arguments):
        if name == "CF.SCANDUMP" and int(arguments[1]) == 4000001 and stand_in.changed < times:
            stand_in.changed += 1
            stand_in.keys[b"large"] = cuckoo(LARGE, 5000 + stand_in.changed, size=5)
    return hook


def test_a_filter_that_changes_while_it_is_read():
    for times, status, text in ((1, 0, "moved    1 filter"), (99, 3, "skipped large: it changed each of the 3 times")):
        with StandIn({"large": cuckoo(LARGE, 5000, size=5)}, hook=changes(times), chunk=4000000) as source, StandIn() as target:
            source.changed = 0
            moves(status, text, source, target)
            equal(list(target.keys), [b"large"] if status == 0 else [])
            if status == 0:
                same(source, target)


def test_lost_connections():
    def hang_up(every):
        return lambda stand_in, *_: CLOSE if len(stand_in.log) % every == 0 else None

    kinds = filters()
    fits = {value.dump: value for value in kinds.values()}
    with StandIn(kinds, hook=hang_up(29), chunk=4000000) as source, \
            StandIn(dump_fits=fits, hook=hang_up(31)) as target:
        moves(0, f"{len(kinds)} filters", source, target)
        same(source, target)


def expect_same_slots(client, name, value):
    iterator, header = client.execute_command("CF.SCANDUMP", name, 0)
    slots = b""
    while iterator:
        iterator, data = client.execute_command("CF.SCANDUMP", name, iterator)
        slots += data or b""
    equal((name, header), (name, value.header))
    holds(slots == value.body, f"the slots of {name}")


def test_redisbloom_to_bloomery_and_back():
    client = redis.Redis(port=PORT)
    client.flushall()
    kinds = filters()
    kinds["several"].ttl = 1000000
    with StandIn(kinds, hook=without("DUMP")) as source:  # made-up dumps are no dumps
        moves(0, f"moved    {len(kinds)} filters", source, DAEMON)
        for name, value in kinds.items():
            expect_same_slots(client, name, value)
            equal(client.type(name), b"MBbloomCF")
        holds(900000 < client.pttl("several") <= 1000000, "the time to live")
        moves(0, f"there    {len(kinds)}", source, DAEMON)
        with StandIn(hook=without("RESTORE")) as target:
            moves(0, f"moved    {len(kinds)} filters", DAEMON, target)
            same(source, target)
        dumps = {client.dump(name): value for name, value in kinds.items() if not name.startswith("large")}
        with StandIn(dump_fits=dumps) as target:
            moves(0, f"moved    {len(kinds)} filters", DAEMON, target)
            same(source, target)
    client.flushall()


def test_a_bloom_filter_is_no_cuckoo_filter():
    with StandIn({"f": cuckoo(512, 300)}) as source, StandIn({"f": made(800)}) as target:
        moves(3, "skipped f: the target has a value of another type under this name", source, target)
        equal(type(target.keys[b"f"]), Filter)


if __name__ == "__main__":
    sys.exit(session.run("bloomery move of cuckoo filters", session.claims_of(sys.modules[__name__])))
