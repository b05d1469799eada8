#!/usr/bin/env python3
"""`bloomery plan` and BF.PLAN of a real daemon: the same names, numbers and errors for the same words."""
import json
import math
import os
import subprocess
import sys

import redis

TOOL = sys.argv[1]
server = redis.Redis(port=int(os.environ["BLOOMERY_PORT"]), decode_responses=True)


def same(ours, theirs):
    """Whether JSON says what a reply of RESP2 says: maps are lists there, and reals are texts."""
    if isinstance(ours, dict):
        return list(ours) == theirs[::2] and all(map(same, ours.values(), theirs[1::2]))
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, str) or ours is None:
        return ours == theirs
    return math.isclose(ours, float(theirs), rel_tol=1e-8)


right = wrong = 0
for words in ("0.01 1000", "0.001 1000000 ITEMS 20000000", "1e-9 5", "0.5 1", "0.01 100 NONSCALING", "0.01 100 EXPANSION 1 ITEMS 5000",
              "0.01 100 EXPANSION 4 ITEMS 100000", "0.01 1000 WINDOW 60 PARTS 3", "0.01 1000 WINDOW ITEMS 5000 PARTS 10 REFRESH",
              "0.01 1000 LAYOUT redisbloom ITEMS 9000", "0.01 1000 LAYOUT na", "0.01 9000000000",
              "0 5", "1 5", "x 5", "0.01 0", "0.01 x", "0.01 5 EXPANSION", "0.01 5 EXPANSION x", "0.01 5 NONSENSE",
              "0.01 5 NONSCALING EXPANSION 2", "0.01 5 WINDOW 0", "0.01 5 WINDOW 60 PARTS 1", "0.01 5 LAYOUT ka", "1e-300 999999999999",
              "0.01 5 ITEMS 0", "0.01 1 EXPANSION 1 ITEMS 999999"):
    done = subprocess.run([TOOL, "plan", *words.split(), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        theirs = server.execute_command("BF.PLAN", *words.split())
    except redis.ResponseError as error:
        text = str(error).removeprefix("ERR ")
        assert done.returncode in (1, 2) and text in done.stderr.decode(), (words, text, done.stderr)
        wrong += 1
        continue
    ours = json.loads(done.stdout)
    assert done.returncode == 0 and same(ours, theirs), (words, ours, theirs)
    lines = subprocess.run([TOOL, "plan", *words.split()], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    assert len(lines) == len(theirs) // 2 - 1 + len(theirs[-1]), lines
    right += 1
assert right >= 12 and wrong >= 10, (right, wrong)
