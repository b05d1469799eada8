#!/usr/bin/env python3
"""peers_faults.py: what ended or overran RedisBloom's servers is an error here, or a filter that works (docs/THREATS.md).

Each function is a published fault, by its number. Payloads are made from good ones: each number, string and real of a value is
replaced by others, one at a time, and sealed with a right checksum. After each payload the daemon is the same process, has not
taken memory, and serves.
"""
import os
import struct

import redis

DAEMON = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]), socket_timeout=60)
MEMORY_KB = 64 << 10  # more than any payload here may take
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
NUMBERS = (0, 1, 2, 3, 255, 256, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**40, 2**56, 2**63, 2**64 - 1)
REALS = (0.0, -1.0, 1.0, 2.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"))


def ask(*words):
    try:
        return DAEMON.execute_command(*words)
    except redis.ResponseError as error:
        return error


def process():
    return DAEMON.info("server")["process_id"]


def peak_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def refused(*words):
    answer = ask(*words)
    assert isinstance(answer, redis.ResponseError), (words, answer)
    return str(answer)


# ---- values of RDB ----


def crc64(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


def sealed(value):
    value += struct.pack("<H", 11)
    return value + struct.pack("<Q", crc64(value))


def length(number):
    return b"\x80" + struct.pack(">I", number) if number < 2**32 else b"\x81" + struct.pack(">Q", number)


def read_length(data, at):
    kind = data[at] >> 6
    if kind < 2:
        return (data[at], at + 1) if kind == 0 else (struct.unpack_from(">H", data, at)[0] & 0x3FFF, at + 2)
    assert data[at] in (0x80, 0x81), data[at]
    return (struct.unpack_from(">I", data, at + 1)[0], at + 5) if data[at] == 0x80 else (struct.unpack_from(">Q", data, at + 1)[0], at + 9)


def parts_of(dump):
    """A module's value as a list of its head and its fields: (opcode, number, real or bytes)."""
    assert dump[0] == 7 and dump[1] == 0x81, dump[:10]
    parts, at = [dump[:10]], 10
    while dump[at] != 0:
        opcode, at = dump[at], at + 1
        if opcode == 4:
            parts.append((4, struct.unpack_from("<d", dump, at)[0]))
            at += 8
        elif opcode == 2:
            value, at = read_length(dump, at)
            parts.append((2, value))
        else:
            assert opcode == 5 and dump[at] != 0xC3, (opcode, dump[at])
            size, at = read_length(dump, at)
            parts.append((5, dump[at : at + size]))
            at += size
    return parts


def value_of(parts):
    value = parts[0]
    for opcode, content in parts[1:]:
        value += bytes([opcode])
        value += struct.pack("<d", content) if opcode == 4 else length(content) if opcode == 2 else length(len(content)) + content
    return sealed(value + b"\0")


def others(opcode, content):
    if opcode == 2:
        return [number for number in (*NUMBERS, content + 1) if number != content and number < 2**64]
    if opcode == 4:
        return list(REALS)
    return [b"", content[:-1], content + b"\xff", content[: len(content) // 2], b"\xff" * len(content)]


def changed(dump):
    parts = parts_of(dump)
    for i in range(1, len(parts)):
        for other in others(*parts[i]):
            yield value_of(parts[:i] + [(parts[i][0], other)] + parts[i + 1 :])
        yield value_of(parts[:i])  # it ends here
    yield value_of(parts + parts[1:])


def module_value(name, *fields):
    number = 0
    for letter in name:
        number = number << 6 | ALPHABET.index(letter)
    return value_of([b"\x07\x81" + struct.pack(">Q", number << 10), *fields])


# ---- good values ----


def bloom_dumps():
    for name, words in (("one", ("0.01", "10")), ("grown", ("0.1", "4")), ("fixed", ("0.01", "10", "NONSCALING"))):
        ask("BF.RESERVE", name, *words, "LAYOUT", "redisbloom")
        ask("BF.MADD", name, *range(10))
        yield DAEMON.dump(name)
        DAEMON.delete(name)


def cuckoo_dumps():
    for name, words in (("one", ("16",)), ("grown", ("4", "EXPANSION", "2"))):
        ask("CF.RESERVE", name, *words)
        for item in range(10):
            ask("CF.ADD", name, item)
        yield DAEMON.dump(name)
        DAEMON.delete(name)


def restore_all(dumps, family):
    taken = tried = 0
    for dump in dumps:
        for payload in changed(dump):
            answer = ask("RESTORE", "made", 0, payload)
            tried += 1
            if isinstance(answer, redis.ResponseError):
                assert DAEMON.exists("made") == 0, payload
                continue
            taken += 1  # then all commands work on it
            for command in ("ADD", "EXISTS", "INFO"):
                ask(f"{family}.{command}", "made", *(["new item"] if command != "INFO" else []))
            ask("CF.DEL", "made", "new item")
            ask(f"{family}.SCANDUMP", "made", 0)
            DAEMON.delete("made")
    assert taken < tried / 4, (taken, tried)
    return f"{tried} values, {taken} of them filters"


# ---- the faults ----


def cve_2024_25115_chunks_of_a_cuckoo_filter_that_end_behind_it_are_errors():
    ask("CF.RESERVE", "f", 64)
    for item in range(40):
        ask("CF.ADD", "f", item)
    chunks, at = [], 0
    while True:
        at, data = DAEMON.execute_command("CF.SCANDUMP", "f", at)
        if not at:
            break
        chunks.append((at, data))
    for place in (-1, 0, 1, 2, 2**31, 2**32 + 1, 2**63 - 1, len(chunks[-1][1]) * 2):
        for data in (b"", b"x", chunks[-1][1] + b"x" * 4096, b"x" * (1 << 20)):
            DAEMON.delete("g")
            ask("CF.LOADCHUNK", "g", *chunks[0])
            if not 0 < len(data) < place <= chunks[-1][0]:
                refused("CF.LOADCHUNK", "g", place, data)
    for cut in range(len(chunks[0][1])):
        refused("CF.LOADCHUNK", "h", 1, chunks[0][1][:cut])
    DAEMON.delete("g")
    for chunk in chunks:
        assert DAEMON.execute_command("CF.LOADCHUNK", "g", *chunk) in (b"OK", True)
    assert all(DAEMON.execute_command("CF.EXISTS", "g", item) for item in range(40))
    DAEMON.delete("f", "g")


def cve_2024_25116_reservations_of_impossible_cuckoo_filters_are_errors():
    for words in (("67108864", "BUCKETSIZE", "33554432"), ("100", "BUCKETSIZE", "0"), ("100", "BUCKETSIZE", "256"), ("1",),
                  ("100", "MAXITERATIONS", "0"), ("100", "MAXITERATIONS", "65536"), ("100", "EXPANSION", "32769"), ("0",),
                  ("100", "EXPANSION", "-1"), ("100", "BUCKETSIZE"), (str(2**45),), (str(2**63),), (str(2**64 - 1),), ("-1",),
                  (str(2**62), "BUCKETSIZE", "255")):
        refused("CF.RESERVE", "f", *words)
    assert DAEMON.exists("f") == 0


def cve_2024_55656_there_is_no_count_min_sketch():
    for words in (("CMS.INITBYDIM", "f", 2**32, 2**32), ("CMS.INITBYPROB", "f", "0.001", "0.01"), ("CMS.MERGE", "f", "-1", "g"),
                  ("TOPK.RESERVE", "f", 2**32), ("TDIGEST.CREATE", "f", "COMPRESSION", 2**62)):
        assert "unknown command" in refused(*words), words


def cve_2026_62356_values_of_other_types_are_errors():
    for name in ("CMSk-TYPE", "TopK-TYPE", "TDIS-TYPE"):
        for width in (1, 2**32, 2**63):
            refused("RESTORE", "f", 0, module_value(name, (2, width), (2, 2**32), (2, 0), (5, b"\0" * 64)))


def cve_2026_25589_and_pull_1023_1038_values_that_contradict_themselves_are_errors():
    return restore_all(bloom_dumps(), "BF")


def pull_996_to_1003_values_of_cuckoo_filters_that_contradict_themselves_are_errors():
    return restore_all(cuckoo_dumps(), "CF")


def pull_1027_a_number_of_layers_takes_no_memory_before_it_is_checked():
    for dump in bloom_dumps():
        parts = parts_of(dump)
        for number in (2**20, 2**32, 2**60, 2**64 - 1):
            refused("RESTORE", "f", 0, value_of(parts[:2] + [(2, number)] + parts[3:]))


FAULTS = [fault for name, fault in sorted(globals().items()) if name.startswith(("cve_", "pull_"))]
pid = process()
limit = peak_kb(pid) + MEMORY_KB
for fault in FAULTS:
    said = fault()
    assert process() == pid, f"{fault.__name__}: the daemon has ended"
    assert peak_kb(pid) < limit, f"{fault.__name__}: it took {peak_kb(pid)} KB"
    assert DAEMON.dbsize() == 0, f"{fault.__name__}: it left {DAEMON.keys()}"
    print(f"{fault.__name__}: {said or 'ok'}")
