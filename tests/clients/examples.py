#!/usr/bin/env python3
"""Runs the programs of a page, Python and Node.js: the output of each line must equal the comment at its end.
The filters that the page reserves exist. `examples.py PAGE`; see with_daemon.py."""
import os
import re
import subprocess
import sys

import redis

from session import PORT, equal, run

LIBRARIES = {"redis": "redis-5", "ioredis": "ioredis-5"}  # as they are called in node/package.json
BLOCK = re.compile(r"^```(python|js)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RESERVE = re.compile(r"^(?:\$ redis-cli|127\.0\.0\.1:6379>) (BF\.RESERVE .*)$", re.MULTILINE)
PRINTED = re.compile(r"^\s*(?:print|console\.log)\(.*\);?\s+(?:#|//) (.*)$", re.MULTILINE)


def program(language, text):
    """The example, for the daemon at hand, as a file and the command that runs it."""
    text = text.replace("6379", str(PORT))
    path = os.path.join(os.environ["BLOOMERY_TEST_DIR"], "example." + {"python": "py", "js": "mjs"}[language])
    for library, folder in LIBRARIES.items():
        folder = os.path.join(os.environ["BLOOMERY_NODE_MODULES"], folder)
        text = text.replace(f"from '{library}'", f"from '{folder}/dist/index.js'" if library == "redis"
                            else f"from '{folder}/built/index.js'")
    with open(path, "w") as file:
        file.write(text)
    return [sys.executable if language == "python" else "node", path]


def claim_of(language, text):
    def claim():
        expected = PRINTED.findall(text)
        done = subprocess.run(program(language, text), stdout=subprocess.PIPE, text=True, timeout=240)
        equal(done.stdout.splitlines(), expected)
        equal(done.returncode, 0)
        equal(bool(expected), True)
    claim.__name__ = f"{language} example"
    claim.__doc__ = text
    return claim


def make_filters(text):
    client = redis.Redis(port=PORT)
    commands = RESERVE.findall(text)
    for command in commands:
        client.execute_command(*command.split())
    return len(commands)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        page = file.read()
    examples = [claim_of(*block) for block in BLOCK.findall(page)]
    if not make_filters(page) or not examples:
        sys.exit(f"{sys.argv[1]} has no program, or reserves no filter")
    sys.exit(run(os.path.basename(sys.argv[1]), examples))
