#!/usr/bin/env python3
"""node_redis.py SOURCE LEFT_OUT [FILES...]: runs files of node-redis' own tests against bloomeryd.

SOURCE is node-redis' source, which scripts/peers has prepared: its library is tested too, and node/test_utils.js is in the place
of its @redis/test-utils. LEFT_OUT has the files, and the tests left out of them with the reasons, as redis.left-out has it, and
behind `at least` how many must pass. A test that Bloomery answers by "unknown command" is about another type, and skipped; so a
command that is lost shows in that number. Tests without a server are skipped, too.

Prints each failed test with its first lines, and the names in LEFT_OUT that no test has. Files with one are run again, at most
twice: some tests take a moment for enough. Exits with 1 if there is one in each run.
"""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from redis_units import PORTS, TRIES, UNIT_S, left_out

TEST_S = 30
LINES = 12
DAEMONS = 8  # more than one run asks for
TYPESCRIPT = {"enableLegacyTypeScriptModuleInterop": True}  # as in node-redis' tsconfig.json


def run(source, names, files, folder):
    """The tests as mocha's reporter has them; what mocha has said if it did not come to its end."""
    results = f"{folder}/results.json"
    command = ["node_modules/.bin/mocha", "-r", "sucrase/register", "-r", "@redis/test-utils", "--extension", "ts", "--timeout",
               str(TEST_S * 1000), "--reporter", "json", "--reporter-option", f"output={results}", f"packages/{files}"]
    environment = dict(os.environ, SUCRASE_OPTIONS=json.dumps(TYPESCRIPT), BLOOMERY_PLACE=folder,
                       BLOOMERY_PORTS=" ".join(str(next(PORTS)) for _ in range(DAEMONS)), BLOOMERY_LEFT_OUT="\n".join(names))
    # A group of its own, with its daemons, which outlive a process that is killed.
    with subprocess.Popen(command, cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            said = process.communicate(timeout=UNIT_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            said = f"not ended after {UNIT_S} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not os.path.exists(results):
        return None, said
    with open(results, encoding="utf-8") as file:
        return json.load(file), ""


def check(source, names, files):
    """Runs files. What there is to say, and whether all is well."""
    names = dict(names)
    least = int(names.pop("at least", 0))
    with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as folder:
        results, said = run(source, names, files, folder)
    if results is None:
        return f"---- node-redis {files}: the tests did not come to their end\n{said}", False
    passed, failed = len(results["passes"]), results["failures"]
    unknown = sorted(set(names) - {test["fullTitle"] for test in results["tests"]})
    lines = [f"node-redis {files}: {passed} passed, {len(names)} left out" + (f", {len(failed)} FAILED" if failed else "")]
    for test in failed:
        lines.append(f"---- node-redis {files}: {test['fullTitle']}")
        text = test["err"].get("stack") or test["err"].get("message") or ""
        lines += ["    " + line[:500] for line in text.splitlines()[:LINES]]
    lines += [f"---- node-redis {files}: left out, but no such test: {name}" for name in unknown]
    if passed < least:
        lines.append(f"---- node-redis {files}: {passed} passed; at least {least} must")
    return "\n".join(lines), not failed and not unknown and passed >= least


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, lists, well = sys.argv[1], left_out(sys.argv[2]), True
    for files in sys.argv[3:] or lists:
        good = False
        for _ in range(TRIES):
            if not good:
                said, good = check(source, lists.get(files, {}), files)
                print(said, flush=True)
        well = well and good
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
