#!/usr/bin/env python3
"""with_daemon.py [--tls] BLOOMERYD COMMAND [ARGUMENT...]: runs a program beside real daemons of its own.

Three daemons are started on free ports of localhost, by IPv4 and, where the machine has it, IPv6: which of them a library
takes for "localhost" depends on its version and on /etc/hosts. Each has its data in a temporary directory; one is open,
one has a password, one is a cluster of one node. The program finds them by its environment:

  BLOOMERY_PORT             the open one; when it ends by itself (SHUTDOWN), it is started again at the same port, as a
                            service manager does
  BLOOMERY_AUTH_PORT        the one with a password
  BLOOMERY_CLUSTER_PORT     the one with cluster-emulation
  BLOOMERY_WEB_PORT         the open one's metrics-port; BLOOMERY_AUTH_WEB_PORT: of the one with a password
  BLOOMERY_PASSWORD         the password
  BLOOMERY_TLS_DIR          with --tls, where both daemons have ports with TLS only and ask for certificates: the
                            directory of ca.crt, client.crt and client.key (tests/support/certificates)
  BLOOMERY_TEST_DIR         a directory for the program's own files, removed at the end; the open one takes files from it
                            (BF.IMPORT)

The exit status is 0 only if the program's is 0, all daemons end with status 0 when they are told to, and none
reported anything that a sanitizer or a broken check reports. What goes wrong is explained on the standard error.
"""
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports

PATIENCE_S = 240  # for certain events; sanitizers are slow on a loaded machine
PROGRAM_S = 1800  # no session takes nearly this long
PASSWORD = "correct horse"
REPORTS = ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:", ": bug: !(")
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


PORTS = free_ports(22600, 26000)


def free_port():
    return next(PORTS)


class Daemon:
    def __init__(self, program, directory, name, arguments):
        self.program, self.arguments = program, arguments
        self.tls = "--tls-cert-file" in arguments
        self.data = os.path.join(directory, name)
        self.log = os.path.join(directory, name + ".log")
        self.process = None
        for _ in range(5):  # another process may take the port between the look and the bind
            self.port, self.web_port = free_port(), free_port()
            if self.start():
                return
        sys.exit(f"no free port in five attempts:\n{self.output()}")

    def output(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def start(self):
        """True when it is ready, False when its port was taken."""
        before = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        ports = ["--port", "0", "--tls-port", str(self.port)] if self.tls else ["--port", str(self.port)]
        command = [self.program, *ports, "--metrics-port", str(self.web_port), "--dir", self.data]
        command += self.arguments
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=die_with_parent)
        deadline = time.monotonic() + PATIENCE_S
        while " ready: listening on " not in self.output()[before:]:
            if self.process.poll() is not None:
                if "address already in use" in self.output()[before:].lower():
                    return False
                sys.exit(f"the daemon ended at once ({self.process.returncode}):\n{self.output()}")
            if time.monotonic() > deadline:
                sys.exit(f"the daemon is not ready after {PATIENCE_S} s:\n{self.output()}")
            time.sleep(0.005)
        return True

    def restart_if_it_ended(self):
        """Starts it again when it has ended with status 0; any other end stays, and is reported by stop()."""
        if self.process.poll() == 0 and not self.start():
            sys.exit(f"the daemon's port was taken while it was down:\n{self.output()}")

    def stop(self):
        """Returns its errors as a list of texts."""
        wrong = []
        if self.process.poll() is None:
            self.process.terminate()
        elif self.process.returncode == 0:
            wrong.append("the daemon had ended")
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            wrong.append(f"the daemon did not end within {PATIENCE_S} s of SIGTERM")
        if self.process.returncode != 0:
            wrong.append(f"the daemon's exit status was {self.process.returncode}")
        wrong += [f"the daemon's output has '{sign}'" for sign in REPORTS if sign in self.output()]
        return wrong


def run_program(environment, daemon):
    """Runs the program to its end, and restarts the daemon meanwhile. Returns the errors as a list of texts."""
    try:
        program = subprocess.Popen(sys.argv[2:], env=environment, preexec_fn=die_with_parent)
    except OSError as error:
        return [f"cannot run {sys.argv[2]}: {error}"]
    deadline = time.monotonic() + PROGRAM_S
    while program.poll() is None:
        if time.monotonic() > deadline:
            program.kill()
            program.wait()
            return [f"{sys.argv[2]} had not ended after {PROGRAM_S} s"]
        daemon.restart_if_it_ended()
        time.sleep(0.005)
    daemon.restart_if_it_ended()
    return [f"{sys.argv[2]} ended with status {program.returncode}"] if program.returncode != 0 else []


def make_certificates(directory):
    """The arguments for a daemon with them."""
    tls = os.path.join(directory, "tls")
    support = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")
    subprocess.run([os.path.join(support, "certificates"), tls], check=True)
    return ["--tls-cert-file", f"{tls}/server.crt", "--tls-key-file", f"{tls}/server.key",
            "--tls-ca-cert-file", f"{tls}/ca.crt", "--tls-handshake-timeout", "600"]  # a slow machine's


def main():
    with_tls = sys.argv[1:2] == ["--tls"]
    if with_tls:
        del sys.argv[1]
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    directory = tempfile.mkdtemp(prefix="bloomery-clients-")
    try:
        tls = make_certificates(directory) if with_tls else []
        files = os.path.join(directory, "files")
        os.mkdir(files)
        open_daemon = Daemon(sys.argv[1], directory, "open", ["--import-dir", files, *tls])
        auth_daemon = Daemon(sys.argv[1], directory, "auth", ["--requirepass", PASSWORD, *tls])
        cluster = Daemon(sys.argv[1], directory, "cluster", ["--cluster-emulation", "yes", *tls])
        environment = dict(os.environ, BLOOMERY_PORT=str(open_daemon.port), BLOOMERY_AUTH_PORT=str(auth_daemon.port),
                           BLOOMERY_WEB_PORT=str(open_daemon.web_port), BLOOMERY_AUTH_WEB_PORT=str(auth_daemon.web_port),
                           BLOOMERY_PASSWORD=PASSWORD, BLOOMERY_CLUSTER_PORT=str(cluster.port), BLOOMERY_TEST_DIR=files)
        if with_tls:
            environment["BLOOMERY_TLS_DIR"] = os.path.join(directory, "tls")
        wrong = run_program(environment, open_daemon)
        for daemon in (open_daemon, auth_daemon, cluster):
            problems = daemon.stop()
            if problems or wrong:
                command = " ".join([daemon.program] + daemon.arguments)
                print(f"---- {command}\n{daemon.output()[-6000:]}", file=sys.stderr)
            wrong += problems
        for text in wrong:
            print(f"with_daemon: {text}", file=sys.stderr)
        return 1 if wrong else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
