#!/usr/bin/env python3
"""Runs the commands and programs of documentation pages: `pages.py PAGE.md ...`. Each page has a directory and a daemon of
its own; its blocks run in their order, and what is printed must be what the page says.

A fenced block says what it is behind its opening fence; readers do not see that line:

  console   a conversation. `$ ` begins a command of the shell, `127.0.0.1:6379> ` one of redis-cli; below each is what it
            prints. `...` in a line stands for any text, a line `...` for any lines. Nothing below a command: anything.
  sh        commands of the shell; each must succeed.
  python    a program. Where calls of print() have a comment behind them, the comment is what is printed.
  js        the same for Node.js, with console.log(); the libraries are those of tests/clients/node.
  go        the same for Go, with fmt.Println(); the libraries are Debian's.
  text and others  not run. With file=NAME the block becomes that file.

More words behind the language:

  file=NAME     the block becomes this file of the page's directory; it is not run
  run-by=PATH   the block is run by this test of the repository instead, which must exist
  needs=NAME    libcurl, nginx-lua, node-redis, postgresql, redigo: without it the block is skipped, and so are blocks of the page that need it, too
  exit=N        the last command ends with this status

A page's port is another than 6379, and its metrics-port another than 9379: the numbers are replaced in commands and in what
is expected; so is the directory of the installed readers. `examples` is the repository's, and BLOOMERY_URL the page's daemon. `old:6379` and `new:6379` are two more daemons. `bloomeryd` in a page starts a daemon in the background, in
place of the page's own one. Variables: BLOOMERY_DAEMON, BLOOMERY_TOOL, BLOOMERY_SOURCE, BLOOMERY_NODE_MODULES."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports

DAEMON, TOOL, SOURCE = (os.environ.get("BLOOMERY_" + name) for name in ("DAEMON", "TOOL", "SOURCE"))
LIBRARY = os.path.join(os.path.dirname(os.path.dirname(TOOL or "")), "library")  # as it lies in the build
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^\n(?:    (?:\$ |redis-cli |bloomery |bloomeryd |cp -a |dd if=|scripts/))", re.MULTILINE)
PRINTED = re.compile(r"^\s*(?:print|console\.log|fmt\.Println)\(.*\);?\s+(?:#|//) (.*)$", re.MULTILINE)
PROMPT = "127.0.0.1:6379> "
RUN = {"console", "sh", "python", "js", "go"}
PATIENCE_S = 60
PATIENT = "socket_timeout=10&socket_connect_timeout=10"  # examples that do without the daemon after half a second
LIBRARIES = {"redis": "redis-5/dist/index.js", "ioredis": "ioredis-5/built/index.js"}  # of tests/clients/node/package.json


class Wrong(Exception):
    pass


PORTS = free_ports(12000, 20000)


def free_port():
    return next(PORTS)


# ---- what blocks need ----

def nginx_lua():
    modules = glob.glob("/usr/lib/nginx/modules/ngx_http_lua_module.so")
    return None if shutil.which("nginx") and modules and glob.glob("/usr/share/lua/5.1/nginx/redis.lua") \
        else "nginx with libnginx-mod-http-lua and lua-nginx-redis"


def postgresql():
    done = subprocess.run([sys.executable, "-c", "import psycopg2"], stderr=subprocess.DEVNULL)
    return None if glob.glob("/usr/lib/postgresql/*/bin/initdb") and done.returncode == 0 else "postgresql and python3-psycopg2"


def libcurl():
    done = subprocess.run(["pkg-config", "--atleast-version=7.83", "libcurl"], stderr=subprocess.DEVNULL)
    return None if done.returncode == 0 else "libcurl4-openssl-dev"


GO_LIBRARIES = "/usr/share/gocode"


def redigo():
    there = shutil.which("go") and os.path.exists(f"{GO_LIBRARIES}/src/github.com/gomodule/redigo/redis")
    return None if there else "golang-go and golang-github-gomodule-redigo-dev"


NODE_LIBRARIES = "/usr/share/nodejs"


def node_redis():
    return None if shutil.which("node") and os.path.exists(f"{NODE_LIBRARIES}/redis") else "node-redis"


NEEDS = {"libcurl": libcurl, "nginx-lua": nginx_lua, "node-redis": node_redis, "postgresql": postgresql, "redigo": redigo}


class Postgres:
    """A cluster of its own; PostgreSQL refuses to run as root."""

    def __init__(self, directory):
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.data = tempfile.mkdtemp(prefix="bloomery-pg.")
        self.port = free_port()
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self.as_user:
            shutil.chown(self.data, "postgres")
        self.run("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync")
        self.run("pg_ctl", "-D", self.data, "-w", "-t", str(PATIENCE_S), "-l", os.path.join(self.data, "log"),
                 "-o", f"-p {self.port} -k {self.data} -h 127.0.0.1 -F", "start")

    def run(self, program, *arguments):
        done = subprocess.run([*self.as_user, os.path.join(self.bin, program), *arguments], cwd="/",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S)
        if done.returncode:
            raise Wrong(f"{program}: {done.stdout}")

    def environment(self):
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": "postgres", "PGDATABASE": "postgres"}

    def stop(self):
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "stop")
        shutil.rmtree(self.data, ignore_errors=True)


# ---- a page ----

class Page:
    def __init__(self, path):
        self.path = path
        self.name = os.path.relpath(path, SOURCE)
        self.directory = tempfile.mkdtemp(prefix="bloomery-docs.")
        os.chmod(self.directory, 0o755)
        self.bin = os.path.join(self.directory, ".bin")
        self.library = os.path.join(self.directory, ".library")  # the build's may have a space in its path
        os.symlink(LIBRARY, self.library)
        os.symlink(os.path.join(SOURCE, "examples"), os.path.join(self.directory, "examples"))
        os.mkdir(self.bin)
        self.ports = {"6379": free_port(), "9379": free_port(), "6380": free_port(), "8080": free_port()}
        self.hosts, self.more, self.services = {}, [], {}
        self.skipped = set()
        self.ran = 0
        self.wrappers()

    def wrappers(self):
        port = self.ports["6379"]
        redis_cli = shutil.which("redis-cli")
        self.script("redis-cli", f'case " $* " in *" -p "*|*" -u "*|*" -s "*|*" --version "*) exec {redis_cli} "$@" ;; esac\n'
                                 f'exec {redis_cli} -p {port} "$@"')
        self.script("python3", f'exec "{sys.executable}" "$@"')
        self.script("redis-benchmark", f'exec {shutil.which("redis-benchmark")} -p {port} "$@"')
        self.script("bloomery", f'exec "{TOOL}" "$@"')
        self.script("bloomeryd", f'case " $* " in *" --version "*|*" --help "*|*" --print-config "*|*" --check-config "*) exec "{DAEMON}" "$@" ;; esac\n'
                                 f'case "$*" in *--port*|*.conf*|-*" "-) ;; *) set -- "$@" --port {port} ;; esac\n'
                                 f'exec "{sys.executable}" "{os.path.abspath(__file__)}" --start "{self.directory}" "$@"')

    def script(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o755)

    def environment(self):
        env = dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"], NO_COLOR="1", LC_ALL="C.UTF-8", HOME=self.directory,
                   PYTHONDONTWRITEBYTECODE="1", BLOOMERY_SOURCE=SOURCE, PKG_CONFIG_PATH=self.library, LD_LIBRARY_PATH=self.library,
                   BLOOMERY_URL=f"redis://127.0.0.1:{self.ports['6379']}?{PATIENT}", NODE_PATH=NODE_LIBRARIES, CGO_ENABLED="0")
        for service in self.services.values():
            env.update(service.environment())
        return env

    def host(self, name):
        if name not in self.hosts:
            self.hosts[name] = free_port()
            start(self.directory, name, ["--port", str(self.hosts[name]), "--dir", name + ".data"])
        return f"127.0.0.1:{self.hosts[name]}"

    def here(self, text):
        """The text with this page's ports, and what the packages install where the source has it."""
        text = text.replace("/usr/share/bloomery/readers", SOURCE + "/tools/readers")
        text = re.sub(r"\b(old|new):6379\b", lambda match: self.host(match[1]), text)
        for number, port in self.ports.items():
            text = re.sub(rf"\b{number}\b", str(port), text)
        return text

    def execute(self, command, stdin=None, status=0):
        # Go compiles its libraries, on a busy machine for minutes.
        done = subprocess.run(command, cwd=self.directory, env=self.environment(), stdin=stdin or subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5 * PATIENCE_S)
        output = done.stdout.decode(errors="replace")
        if done.returncode != status:
            raise Wrong(f"status {done.returncode} instead of {status}:\n{output}")
        return output

    def shell(self, text, status=0):
        return self.execute(["bash", "-o", "pipefail", "-euc", self.here(text)], status=status)

    def redis(self, lines):
        with tempfile.TemporaryFile() as file:
            file.write("".join(self.here(line) + "\n" for line in lines).encode())
            file.seek(0)
            return self.execute([os.path.join(self.bin, "redis-cli"), "--no-raw"], stdin=file)

    def console(self, text, status):
        steps = []  # [kind, [command lines], [expected lines]]
        for line in text.splitlines():
            kind = "shell" if line.startswith("$ ") else "redis" if line.startswith(PROMPT) else None
            if kind:
                command = line[2:] if kind == "shell" else line[len(PROMPT):]
                if steps and kind == "redis" == steps[-1][0]:
                    steps[-1][1].append(command)
                else:
                    steps.append([kind, [command], []])
            elif steps and steps[-1][0] == "shell" and not steps[-1][2] and steps[-1][1][-1].endswith("\\"):
                steps[-1][1].append(line)
            elif steps:
                steps[-1][2].append(line)
            else:
                raise Wrong(f"'{line}' stands before the first command")
        for i, (kind, command, expected) in enumerate(steps):
            if kind == "shell" and command == ["redis-cli"]:
                continue  # what follows is said to it
            wanted = status if i == len(steps) - 1 else 0
            output = self.redis(command) if kind == "redis" else self.shell("\n".join(command), wanted)
            if expected:
                compare("\n".join(command), self.here("\n".join(expected)).splitlines(), output.rstrip("\n").splitlines())

    def program(self, language, text):
        path = os.path.join(self.directory, "example." + {"python": "py", "js": "mjs", "go": "go"}[language])
        command = {"python": [sys.executable], "js": ["node"], "go": [
            "env", "GO111MODULE=off", f"GOPATH={GO_LIBRARIES}", f"GOCACHE={self.directory}/go-build", "CGO_ENABLED=0",
            "go", "run"]}[language]
        code = self.here(text)
        for library, file in LIBRARIES.items():
            code = code.replace(f"from '{library}'", f"from '{os.environ.get('BLOOMERY_NODE_MODULES', '')}/{file}'")
        with open(path, "w") as file:
            file.write(code)
        output = self.execute([*command, path])
        expected = PRINTED.findall(text)
        if expected:
            compare(text, self.here("\n".join(expected)).splitlines(), output.splitlines())

    def block(self, info, text):
        language, *words = info.split()
        options = dict(word.split("=", 1) for word in words)
        unknown = set(options) - {"file", "run-by", "needs", "exit"}
        if unknown:
            raise Wrong(f"'{unknown.pop()}' is not understood")
        if "run-by" in options:
            if not os.path.exists(os.path.join(SOURCE, options["run-by"])):
                raise Wrong(f"there is no {options['run-by']}")
            return
        need = options.get("needs")
        if need:
            missing = NEEDS[need]()
            if missing:
                if need not in self.skipped:
                    print(f"{self.name}: skipped what needs {missing}")
                self.skipped.add(need)
                return
            if need == "postgresql" and need not in self.services:
                self.services[need] = Postgres(self.directory)
        if "file" in options:
            path = os.path.join(self.directory, options["file"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(self.here(text))
            return
        if language not in RUN:
            return
        if language == "js" and "BLOOMERY_NODE_MODULES" not in os.environ:
            print(f"{self.name}: skipped a program for Node.js: there is no BLOOMERY_NODE_MODULES")
            return
        if not os.path.exists(os.path.join(self.directory, ".main.pid")) and not re.search(r"^(\$ )?bloomeryd\b", text, re.M):
            start(self.directory, "main", ["--port", str(self.ports["6379"]), "--metrics-port", str(self.ports["9379"])])
        self.ran += 1
        status = int(options.get("exit", 0))
        if language == "console":
            self.console(text, status)
        elif language == "sh":
            self.shell(text, status)
        else:
            self.program(language, text)

    def run(self):
        with open(self.path) as file:
            page = file.read()
        wrong = 0
        outside = FENCE.sub("", page)
        if INDENTED.search(outside):
            print(f"{self.name}: a command stands indented, not in a block with its kind: {INDENTED.search(outside)[0].strip()}")
            wrong += 1
        for match in FENCE.finditer(page):
            indent, info, text = match.groups()
            line = page[:match.start()].count("\n") + 1
            if indent:
                text = re.sub(rf"^{indent}", "", text, flags=re.M)
            try:
                if not info.strip():
                    raise Wrong("the block does not say what it is")
                self.block(info, text)
            except (Wrong, subprocess.TimeoutExpired, ValueError, KeyError) as error:
                print(f"{self.name}:{line}: {error}")
                wrong += 1
        return wrong

    def end(self):
        for service in self.services.values():
            service.stop()
        for file in glob.glob(os.path.join(self.directory, ".*.pid")):
            stop(file)
        if os.environ.get("BLOOMERY_KEEP"):
            print(f"{self.name}: kept {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)


def compare(what, expected, got):
    pattern = "\n".join(r"(?:.*\n)*?.*" if line.strip() == "..." else r".*".join(map(re.escape, line.rstrip().split("...")))
                        for line in expected)
    if not re.fullmatch(pattern, "\n".join(line.rstrip() for line in got)):
        raise Wrong("{}\nprints\n  {}\ninstead of\n  {}".format(what, "\n  ".join(got), "\n  ".join(expected)))


# ---- daemons in the background ----

def start(directory, name, arguments):
    """Starts one in place of the one of this name, and waits until it is ready."""
    pid_file = os.path.join(directory, f".{name}.pid")
    if os.path.exists(pid_file):
        stop(pid_file)
    log = os.path.join(directory, f".{name}.log")
    with open(log, "ab") as file:
        before = file.tell()
        process = subprocess.Popen([DAEMON, *arguments, "--logfile", ""], cwd=directory if name != "here" else None, stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=file, start_new_session=True)
    with open(pid_file, "w") as file:
        file.write(str(process.pid))
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with open(log, errors="replace") as file:
            file.seek(before)
            output = file.read()
        if " ready: listening on " in output:
            return
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise Wrong(f"the daemon is not ready:\n{output}")


def stop(pid_file):
    with open(pid_file) as file:
        pid = int(file.read())
    os.unlink(pid_file)
    try:
        os.kill(pid, signal.SIGTERM)
        for _ in range(100 * PATIENCE_S):
            if has_ended(pid):
                return
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def has_ended(pid):
    """Also where nobody has asked for its status yet: it may be a child of this process, or of one that has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if sys.argv[1:2] == ["--start"]:
        try:
            start(sys.argv[2], "main", sys.argv[3:])
        except Wrong as error:
            sys.exit(str(error))
        return
    wrong = 0
    for path in sys.argv[1:]:
        page = Page(os.path.abspath(path))
        try:
            found = page.run()
            print(f"{page.name}: {page.ran} blocks" + (f", {found} wrong" if found else ""))
            wrong += found
        finally:
            page.end()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
