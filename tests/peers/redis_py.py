#!/usr/bin/env python3
"""redis_py.py SOURCE LEFT_OUT [FILE...]: runs files of redis-py's own tests against bloomeryd, two at a time.

SOURCE is redis-py's source, whose library is tested too. LEFT_OUT has the tests left out of each file, with the reasons, as
redis.left-out has it, and behind `at least` how many must pass. A test that Bloomery answers by "unknown command" is about
another type, and skipped; so a command that is lost shows in that number. redis_py_shim.py is loaded.

A test that fails is run again by itself: redis-py's tests wait 0.2 s for a message, which a busy machine may take. Prints
each test that fails again, with its last lines. Exits with 1 if there is one.
"""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from redis_units import LAST_LINES, PORTS, daemon, left_out, values_of

TEST_S = 30
AGAIN = 3  # tests of a file


def certificates(source):
    """Where redis-py's tests look for them, under the names that they have there."""
    folder = f"{source}/dockers/standalone/tls"
    if not os.path.exists(f"{folder}/redis.key"):
        subprocess.run([f"{HERE}/../support/certificates", folder], check=True)
        for end in ("crt", "key"):
            os.symlink(f"server.{end}", f"{folder}/redis.{end}")
    return folder


def run(source, names, tests, folder, port, tls_port):
    with open(f"{folder}/pytest.ini", "w", encoding="ascii") as settings:
        settings.write("[pytest]\nasyncio_mode = auto\naddopts = -W ignore\n")
    with open(f"{folder}/values", "w", encoding="ascii") as lines:
        lines.write("\n".join(values_of(port)))
    command = [sys.executable, "-m", "pytest", "-c", f"{folder}/pytest.ini", "--rootdir", source, "-q", "-p", "no:cacheprovider",
               "-p", "redis_py_shim", "--timeout", str(TEST_S), "--junitxml", f"{folder}/results.xml",
               "--redis-url", f"redis://localhost:{port}/0", "--redis-mod-url", f"redis://localhost:{port}",
               "--redis-ssl-url", f"rediss://localhost:{tls_port}", *tests]
    command += [word for name in names for word in ("--deselect", f"{tests[0]}::{name}")]
    environment = dict(os.environ, PYTHONPATH=f"{source}:{HERE}", BLOOMERY_VALUES=f"{folder}/values")
    subprocess.run(command, cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return list(tree.parse(f"{folder}/results.xml").getroot().iter("testcase"))


def fault(test):
    return next((found for kind in ("failure", "error") if (found := test.find(kind)) is not None), None)


def name_of(test):
    """Without a class, its file stands in its place."""
    place = test.get("classname").rpartition(".")[2]
    return test.get("name") if place.startswith("test_") else f"{place}::{test.get('name')}"


def check(source, names, file):
    """Runs a file. What there is to say, and whether all is well."""
    names = dict(names)
    least, passed, skipped, failed = int(names.pop("at least", 0)), 0, 0, []
    tls, tls_port = f"{source}/dockers/standalone/tls", next(PORTS)
    with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as folder, \
            daemon("--enable-debug-command", "yes", "--threads", "2", "--tls-port", str(tls_port), "--tls-cert-file",
                   f"{tls}/server.crt", "--tls-key-file", f"{tls}/server.key", "--tls-auth-clients", "no") as port:
        tests = run(source, names, [f"tests/{file}"], folder, port, tls_port)
        wrong = [f"tests/{file}::{name_of(test)}" for test in tests if fault(test) is not None]
        if 0 < len(wrong) <= AGAIN:
            tests = [test for test in tests if fault(test) is None] + run(source, {}, wrong, folder, port, tls_port)
        for test in tests:
            if fault(test) is not None:
                failed.append((test, fault(test)))
            elif test.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    said = [f"redis-py {file}: {passed} passed, {skipped} skipped, {len(names)} left out"
            + (f", {len(wrong)} at the second run" if len(wrong) > len(failed) else "")
            + (f", {len(failed)} FAILED" if failed else "")]
    for test, found in failed:
        said.append(f"---- redis-py {file}: {name_of(test)}")
        said += ["    " + line[:500] for line in (found.text or "").splitlines()[-LAST_LINES:]]
    if passed < least:
        said.append(f"---- redis-py {file}: {passed} passed; at least {least} must")
    return "\n".join(said), not failed and passed >= least


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, lists, well = sys.argv[1], left_out(sys.argv[2]), True
    files = sys.argv[3:] or list(lists)
    certificates(source)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("BLOOMERY_PEERS_JOBS", "2"))) as pool:
        for said, good in pool.map(lambda file: check(source, lists.get(file, {}), file), files):
            print(said, flush=True)
            well = well and good
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
