#!/usr/bin/env python3
"""redis_py.py SOURCE LEFT_OUT [FILE...]: runs files of redis-py's own tests against bloomeryd, two at a time.

SOURCE is redis-py's source, whose library is tested too. LEFT_OUT has the tests left out of each file, with the reasons, as
redis.left-out has it, and behind `at least` how many must pass. A test that Bloomery answers by "unknown command" is about
another type, and skipped; so a command that is lost shows in that number. redis_py_shim.py is loaded.

Prints each failed test with its last lines. Exits with 1 if there is one.
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from redis_units import LAST_LINES, PORTS, daemon, left_out, values_of

TEST_S = 30


def certificates(source):
    """Where redis-py's tests look for them, under the names that they have there."""
    folder = f"{source}/dockers/standalone/tls"
    if not os.path.exists(f"{folder}/redis.key"):
        subprocess.run([f"{HERE}/../support/certificates", folder], check=True)
        for end in ("crt", "key"):
            os.symlink(f"server.{end}", f"{folder}/redis.{end}")
    return folder


def run(source, names, file, folder, port, tls_port):
    with open(f"{folder}/pytest.ini", "w", encoding="ascii") as settings:
        settings.write("[pytest]\nasyncio_mode = auto\naddopts = -W ignore\n")
    with open(f"{folder}/values", "w", encoding="ascii") as lines:
        lines.write("\n".join(values_of(port)))
    command = [sys.executable, "-m", "pytest", "-c", f"{folder}/pytest.ini", "--rootdir", source, "-q", "-p", "no:cacheprovider",
               "-p", "redis_py_shim", "--timeout", str(TEST_S), "--junitxml", f"{folder}/results.xml",
               "--redis-url", f"redis://localhost:{port}/0", "--redis-mod-url", f"redis://localhost:{port}",
               "--redis-ssl-url", f"rediss://localhost:{tls_port}", f"tests/{file}"]
    command += [word for name in names for word in ("--deselect", f"tests/{file}::{name}")]
    environment = dict(os.environ, PYTHONPATH=f"{source}:{HERE}", BLOOMERY_VALUES=f"{folder}/values")
    subprocess.run(command, cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return tree.parse(f"{folder}/results.xml").getroot().iter("testcase")


def check(source, names, file):
    """Runs a file. What there is to say, and whether all is well."""
    names = dict(names)
    least, passed, skipped, failed = int(names.pop("at least", 0)), 0, 0, []
    tls, tls_port = f"{source}/dockers/standalone/tls", next(PORTS)
    with tempfile.TemporaryDirectory(prefix="bloomery-peers-") as folder, \
            daemon("--enable-debug-command", "yes", "--threads", "2", "--tls-port", str(tls_port), "--tls-cert-file",
                   f"{tls}/server.crt", "--tls-key-file", f"{tls}/server.key", "--tls-auth-clients", "no") as port:
        for test in run(source, names, file, folder, port, tls_port):
            wrong = test.find("failure") if test.find("failure") is not None else test.find("error")
            if wrong is not None:
                failed.append((test, wrong))
            elif test.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    said = [f"redis-py {file}: {passed} passed, {skipped} skipped, {len(names)} left out"
            + (f", {len(failed)} FAILED" if failed else "")]
    for test, wrong in failed:
        said.append(f"---- redis-py {file}: {re.sub('.*[.]', '', test.get('classname'))}::{test.get('name')}")
        said += ["    " + line[:500] for line in (wrong.text or "").splitlines()[-LAST_LINES:]]
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
