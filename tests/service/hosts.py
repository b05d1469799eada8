"""Who starts the daemon for tests/service/session.py: Confined, which is this program, with the restrictions of a unit that need no
systemd; and Booted, which is systemd itself, in a root where the packages are installed. Both give the daemon a settings file that
it may rewrite, start it again when it ends by a signal, and tell its log."""
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE_S = 240  # for anything that certainly happens, on a busy machine, too
NOBODY = 65534


class Failure(Exception):
    pass


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise Failure(f"not so after {PATIENCE_S} s: {what}")
        time.sleep(0.02)


class Confined:
    """The program as an ordinary user in a directory of its own. Where this program runs as root that user is nobody, otherwise
    it is the same."""
    name = "confined"

    def __init__(self, unit, program, directory, settings):
        self.directory, self.user = directory, NOBODY if os.getuid() == 0 else os.getuid()
        self.program = os.path.join(directory, "bloomeryd")  # where the user may read it
        shutil.copy(program, self.program)
        self.unit = shutil.copy(unit, directory)
        self.confined = shutil.copy(f"{HERE}/confined.py", directory)
        self.settings = self.path("bloomery.conf")
        self.data = self.path("data")
        self.log = open(self.path("log"), "ab")
        self.process, self.options = None, ["--strict"]
        self.own(directory)
        self.write(self.settings, "".join(f"{line}\n" for line in [*settings, f'dir "{self.data}"']))

    def path(self, name):
        return os.path.join(self.directory, name)

    def inside(self, path):
        return path

    def own(self, path):
        if os.getuid() == 0:
            os.chown(path, self.user, self.user)

    def write(self, path, content):
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        self.own(path)

    def make_directory(self, name):
        os.mkdir(self.path(name), 0o750)
        self.own(self.path(name))
        return self.path(name)

    def refuse(self, calls):
        """From the next start on these calls are refused, too."""
        self.options = ["--strict", "--refuse", calls]
        return True

    def start(self):
        user = ["--as", f"{self.user}:{self.user}"] if os.getuid() == 0 else []
        self.process = subprocess.Popen([self.confined, *self.options, *user, self.unit, self.program, self.settings],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=self.directory)

    def start_fails(self):
        """A start that does not succeed. The exit status."""
        self.start()
        return self.wait_end()

    def pid(self):
        return self.process.pid

    def send(self, number):
        self.process.send_signal(number)

    def wait_end(self):
        return self.process.wait(PATIENCE_S)

    def recover(self):
        """After an end by a signal the service starts again."""
        if self.wait_end() >= 0:
            raise Failure(f"the daemon ended with {self.process.returncode}")
        self.start()

    def stop(self):
        self.send(signal.SIGTERM)
        if self.wait_end() != 0:
            raise Failure(f"the daemon ended with {self.process.returncode}")

    def reload(self):
        self.send(signal.SIGHUP)

    def output(self):
        with open(self.path("log"), errors="replace") as log:
            return log.read()

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()


class Booted:
    """The installed service of a root that systemd-nspawn boots. Its network is that of this machine."""
    name = "booted"

    def __init__(self, root, settings):
        self.root, self.settings, self.data = root, f"{root}/etc/bloomery/bloomery.conf", f"{root}/var/lib/bloomery"
        with open(self.settings) as file:
            kept = [line for line in file.read().splitlines() if line and not line.startswith("#")]
        names = {line.split()[0] for line in settings}
        with open(self.settings, "w") as file:  # before the boot, which starts the service; the owner stays
            file.write("".join(f"{line}\n" for line in kept if line.split()[0] not in names) +
                       "".join(f"{line}\n" for line in settings))
        self.log = open(f"{os.path.dirname(root)}/boot.log", "wb")
        self.container = subprocess.Popen(
            ["systemd-nspawn", "--directory", root, "--boot", "--register=no", "--keep-unit", "--quiet", "--link-journal=no"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.init = until(self.find_init, "systemd-nspawn has started an init")
        self.run("sh", "-c", "systemctl is-system-running --wait || true")
        self.run("systemctl", "stop", "bloomery")

    def find_init(self):
        if self.container.poll() is not None:
            raise Failure(f"systemd-nspawn ended with {self.container.returncode}")
        with open(f"/proc/{self.container.pid}/task/{self.container.pid}/children") as children:
            for pid in children.read().split():
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read().strip() == "systemd" and os.path.exists(f"/proc/{pid}/root/run/systemd/private"):
                        return pid
        return None

    def run(self, *words):
        done = subprocess.run(["nsenter", "--target", self.init, "--all", *words], capture_output=True, text=True,
                              timeout=2 * PATIENCE_S)
        if done.returncode != 0:
            raise Failure(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def path(self, name):
        return f"{self.root}/var/lib/bloomery/{name}"

    def inside(self, path):
        return path.removeprefix(self.root)

    def own(self, path):
        self.run("chown", "bloomery:bloomery", self.inside(path))

    def write(self, path, content):
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        self.own(path)

    def make_directory(self, name):
        self.run("install", "-d", "-o", "bloomery", "-g", "bloomery", self.inside(self.path(name)))
        return self.path(name)

    def refuse(self, calls):
        return False  # that is for the other one

    def property(self, name):
        return self.run("systemctl", "show", "--property", name, "--value", "bloomery").strip()

    def start(self):
        self.forget_starts()
        self.run("systemctl", "start", "bloomery")

    def forget_starts(self):
        """The session starts it more often than StartLimitBurst permits. systemctl fails where there is nothing to forget."""
        self.run("sh", "-c", "systemctl reset-failed bloomery || true")

    def start_fails(self):
        """A start that does not succeed, and after which none follows. The exit status."""
        self.forget_starts()
        self.run("sh", "-c", "! systemctl start bloomery")
        time.sleep(3)  # longer than RestartSec
        if (self.property("ActiveState"), self.property("NRestarts")) != ("failed", "0"):
            raise Failure(f"the service is {self.property('ActiveState')} after {self.property('NRestarts')} restarts")
        return int(self.property("ExecMainStatus"))

    def pid(self):
        return int(self.property("MainPID"))

    def send(self, number):
        self.run("systemctl", "kill", "--kill-whom=main", f"--signal={int(number)}", "bloomery")

    def recover(self):
        before = self.last
        self.forget_starts()
        until(lambda: self.pid() not in (0, before) and self.property("ActiveState") == "active", "the service is up again")

    def stop(self):
        self.run("systemctl", "stop", "bloomery")
        if self.property("Result") != "success":
            raise Failure(f"the service ended so: {self.property('Result')}")

    def reload(self):
        self.run("systemctl", "reload", "bloomery")

    def output(self):
        return self.run("journalctl", "--unit", "bloomery", "--output", "cat", "--no-pager")

    def close(self):
        subprocess.run(["nsenter", "--target", self.init, "--all", "systemctl", "poweroff"], check=False, capture_output=True)
        try:
            self.container.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.container.kill()
