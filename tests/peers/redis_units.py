#!/usr/bin/env python3
"""redis_units.py SOURCE LEFT_OUT [UNIT...]: runs units of Redis's own tests against bloomeryd, all of LEFT_OUT by default.

SOURCE is a copy of Redis's source that scripts/peers has prepared; it is not changed. Its tests run with redis_server in the
place of redis-server, and with redis_shim.tcl. LEFT_OUT has the units and the tests left out of each, with the reasons:

  unit NAME
  at least NUMBER of tests that must pass; nothing: any
  because REASON
    the name of a test, or the first line of an error outside of tests

Prints each failed test with its last lines, and the names in LEFT_OUT that no test has. A unit with one is run again by itself, at
most twice: many tests take a tenth of a second for enough. Exits with 1 if there is one in each run.
Variables: BLOOMERY_DAEMON, bloomeryd; BLOOMERY_PEERS_THREADS, its threads (1, because many of the tests take one command of
a client as done before the next one of another client); BLOOMERY_PEERS_JOBS, units at a time (2).
"""
import concurrent.futures
import contextlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
from ports import free_ports

UNIT_S = 240  # no unit takes nearly as long
QUIET_S = 60  # a test that says nothing for this time hangs
LAST_LINES = 12
TRIES = 3
PORTS_OF_UNIT = 60
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ENTRY = re.compile(r"^\[(ok|err|skip|ignore|exception|TIMEOUT)\]:? ?", re.M)


def left_out(path):
    """{unit: {test: reason}}"""
    units, unit, reason = {}, None, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("unit "):
                unit = units.setdefault(line[5:], {})
            elif line.startswith("because "):
                reason = line[8:]
            elif line.startswith("at least "):
                unit["at least"] = line[9:]
            elif line.startswith("  "):
                unit[line[2:]] = reason
            elif line and not line.startswith("#"):
                sys.exit(f"{path}: not understood: {line}")
    return units


class Result:
    """What a unit has said."""

    def __init__(self, unit, output):
        self.unit, self.failed, self.passed, self.skipped = unit, [], 0, set()
        output = COLOURS.sub("", output)
        said = output.split("\n                   The End\n")[0]
        marks = list(ENTRY.finditer(said))
        for mark, following in zip(marks, marks[1:] + [None]):
            text = said[mark.end():following.start() if following else len(said)].strip()
            kind = mark.group(1)
            if kind == "ok":
                self.passed += 1
            elif kind == "skip":
                self.skipped.add(text.split("\n")[0])
            elif kind != "ignore":
                first, _, rest = text.partition("\n")
                self.failed.append((re.sub(r" in tests/unit/\S+\.tcl$", "", first), rest))
        if "All tests passed without errors" not in output and not self.failed:
            self.failed.append(("the unit did not come to its end", said))


def run_unit(source, unit, names, port, environment):
    with tempfile.NamedTemporaryFile("w", suffix=".skip", encoding="utf-8") as skip:
        skip.write("".join(f"{name}\n" for name in names))
        skip.flush()
        command = ["tclsh", "tests/test_helper.tcl", "--single", f"unit/{unit}", "--durable", "--clients", "1", "--no-latency",
                   "--timeout", str(QUIET_S), "--baseport", str(port), "--portcount", str(PORTS_OF_UNIT), "--skipfile",
                   skip.name, *(["--tls"] if unit == "tls" else [])]
        with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as place:
            # A tree of its own: the tests of a unit clean up the servers' directories of all.
            subprocess.run(["cp", "-a", f"{source}/tests", f"{source}/src", place], check=True)
            try:
                done = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, timeout=UNIT_S,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                output = done.stdout
            except subprocess.TimeoutExpired as late:
                output = (late.stdout or b"") + f"\nnot ended after {UNIT_S} s".encode()
    return Result(unit, output.decode(errors="replace"))


def values_of(port):
    """Dumps of filters with one item each, in hexadecimal digits, made by a daemon."""
    import redis
    client, dumps = redis.Redis(port=port), []
    for item in range(1000):
        client.execute_command("BF.INSERT", "filter", "CAPACITY", 100, "ITEMS", item)
        dumps.append(client.dump("filter").hex())
        client.delete("filter")
    return dumps


@contextlib.contextmanager
def daemon(*arguments):
    """A daemon with a directory of its own; gives its port."""
    port = next(PORTS)
    with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as place:
        command = [os.environ["BLOOMERY_DAEMON"], "--port", str(port), "--dir", place, "--appendonly", "no", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            while b" ready: listening on " not in (line := process.stdout.readline()):
                if not line:
                    sys.exit("the daemon ended at once")
            yield port
        finally:
            process.terminate()
            process.communicate()
        if process.returncode != 0:
            sys.exit(f"the daemon's exit status was {process.returncode}")


PORTS = free_ports(26100, 29000)


def prepare(folder):
    environment = dict(os.environ, BLOOMERY_SHIM=f"{HERE}/redis_shim.tcl", BLOOMERY_SETTINGS=f"{folder}/settings",
                       BLOOMERY_VALUES=f"{folder}/values")
    with daemon() as port, open(f"{folder}/values", "w", encoding="ascii") as file:
        file.write("\n".join(values_of(port)))
    settings = subprocess.run([environment["BLOOMERY_DAEMON"], "--print-config"], check=True, stdout=subprocess.PIPE).stdout
    with open(f"{folder}/settings", "w", encoding="utf-8") as file:
        for line in settings.decode().splitlines():
            if line and not line.startswith("#"):
                file.write(line.split()[0] + "\n")
    return environment


def judge(result, reasons):
    """Prints what there is to say. The number of faults."""
    reasons = dict(reasons)
    least = int(reasons.pop("at least", 0))
    failures = [failure for failure in result.failed if failure[0] not in reasons]
    unknown = set(reasons) - result.skipped - {name for name, _ in result.failed}
    print(f"{result.unit}: {result.passed} passed, {len(reasons)} left out"
          + (f", {len(failures)} FAILED" if failures else ""), flush=True)
    for name, said in failures:
        print(f"---- {result.unit}: {name}")
        print("\n".join("    " + line[:2000] for line in said.splitlines()[-LAST_LINES:]))
    for name in sorted(unknown):
        print(f"---- {result.unit}: left out, but no such test: {name}")
    if result.passed < least:
        print(f"---- {result.unit}: {result.passed} passed; at least {least} must")
    return len(failures) + len(unknown) + (result.passed < least)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, lists = sys.argv[1], left_out(sys.argv[2])
    units = sys.argv[3:] or list(lists)
    jobs = int(os.environ.get("BLOOMERY_PEERS_JOBS", "2"))
    faults, passed = {}, {}  # of a unit, in its last run
    with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as folder, \
            concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        environment = prepare(folder)

        def run(unit):
            return run_unit(source, unit, set(lists.get(unit, {})) - {"at least"}, 29000 + PORTS_OF_UNIT * units.index(unit), environment)

        def take(result):
            faults[result.unit], passed[result.unit] = judge(result, lists.get(result.unit, {})), result.passed

        for done in concurrent.futures.as_completed([pool.submit(run, unit) for unit in units]):
            take(done.result())
        for _ in range(TRIES - 1):
            for unit in [unit for unit in units if faults[unit]]:
                print(f"{unit}, again by itself:")
                take(run(unit))
    passed, failed = sum(passed.values()), sum(faults.values())
    print(f"Redis's tests: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
