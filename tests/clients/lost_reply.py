#!/usr/bin/env python3
"""A reply that gets lost, by each client library: a proxy passes BF.ADD to the daemon, swallows the reply, and closes the
connection. A library that sends the command again by itself gets 0, so the item has no winner; with the setting of docs/CLIENTS.md
its caller gets an error instead. With BF.INSERT ... OWNER the item has a winner, whoever sends the command again: the library, or
its caller. Node.js's libraries are asked by node/lost_reply.mjs, if there is Node.js, and Go's redigo by lost_reply.go, if there is
Go. See with_daemon.py."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from ports import free_ports
from session import PATIENCE_S, PORT, claims_of, equal, run

HOST = "127.0.0.1"


class Proxy:
    """Passes connections to the daemon. The first reply to BF.ADD or BF.INSERT is swallowed, and its connection closed."""

    def __init__(self):
        self.port = next(free_ports(22600, 26000))
        self.swallowed = threading.Event()
        self.adds = 0
        self.listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        server = socket.create_connection((HOST, PORT), PATIENCE_S)
        losing = threading.Event()  # the next bytes of the daemon are the reply to swallow: nothing else is awaited then
        threading.Thread(target=self.replies, args=(server, client, losing), daemon=True).start()
        try:
            while data := client.recv(65536):
                if b"BF.ADD" in data.upper() or b"BF.INSERT" in data.upper():
                    self.adds += 1
                    if not self.swallowed.is_set():
                        losing.set()
                server.sendall(data)
        except OSError:
            pass  # the other thread has closed it
        server.close()

    def replies(self, server, client, losing):
        try:
            while data := server.recv(65536):
                if losing.is_set():
                    self.swallowed.set()
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client has gone
        client.close()


def outcome(add, error):
    try:
        reply = add()
        return int(reply[0] if isinstance(reply, list) else reply)
    except error:
        return "error"


def after_lost_reply(name, *words, **settings):
    """What BF.ADD, or these words, give through the proxy, and how often the daemon got it."""
    proxy = Proxy()
    client = redis.Redis(host=HOST, port=proxy.port, socket_timeout=PATIENCE_S, **settings)
    given = outcome(lambda: client.execute_command(*words or ("BF.ADD", name, "item")), redis.ConnectionError)
    equal(proxy.swallowed.is_set(), True)
    return given, proxy.adds


def test_redis_py_with_the_setting_of_the_page_tells_its_caller():
    equal(after_lost_reply("py:off", retry=Retry(NoBackoff(), 0)), ("error", 1))


def test_redis_py_that_retries_has_no_winner():
    retry = Retry(NoBackoff(), 3)
    equal(after_lost_reply("py:on", retry=retry, retry_on_error=[redis.ConnectionError]), (0, 2))


def claim(name, owner):
    return "BF.INSERT", name, "OWNER", owner, "ITEMS", "item"


def test_redis_py_that_retries_has_a_winner_with_owner():
    retry = Retry(NoBackoff(), 3)
    equal(after_lost_reply("", *claim("py:owner", "one"), retry=retry, retry_on_error=[redis.ConnectionError]), (1, 2))
    equal(after_lost_reply("", *claim("py:owner", "two"), retry=retry, retry_on_error=[redis.ConnectionError]), (0, 2))


def test_redigo_asked_again_has_a_winner_with_owner():
    if not shutil.which("go") or not os.path.exists("/usr/share/gocode/src/github.com/gomodule/redigo/redis"):
        return
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(os.environ, GO111MODULE="off", GOPATH="/usr/share/gocode", GOCACHE=directory, CGO_ENABLED="0")
        proxy = Proxy()
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lost_reply.go")
        given = subprocess.run(["go", "run", program, str(proxy.port), *claim("go:owner", "one")], capture_output=True, text=True,
                               env=environment, check=False)
        equal((given.stdout.strip(), proxy.adds, given.stderr), ("1", 2, ""))
        equal(proxy.swallowed.is_set(), True)


def test_an_item_after_an_error_is_in_the_filter():
    after_lost_reply("py:there", retry=Retry(NoBackoff(), 0))
    equal(redis.Redis(host=HOST, port=PORT).execute_command("BF.EXISTS", "py:there", "item"), 1)


def test_libraries_of_node_js_give_what_the_page_says():
    modules = os.environ.get("BLOOMERY_NODE_MODULES")
    if not modules:
        return
    for library, setting, expected in (("ioredis-5", "default", "0 2"), ("ioredis-5", "off", "error 1"),
                                       ("ioredis-6", "default", "0 2"), ("ioredis-6", "off", "error 1"),
                                       ("redis-5", "default", "error 1"), ("redis-6", "default", "error 1"),
                                       ("ioredis-5", "owner", "1 2"), ("ioredis-6", "owner", "1 2"),
                                       ("redis-5", "owner", "1 2"), ("redis-6", "owner", "1 2")):
        if not os.path.isdir(os.path.join(modules, library)):
            continue
        proxy = Proxy()
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node", "lost_reply.mjs")
        given = subprocess.run(["node", program, library, setting, str(proxy.port)], capture_output=True, text=True,
                               timeout=PATIENCE_S, check=False)
        equal((library, setting, f"{given.stdout.strip()} {proxy.adds}", given.stderr), (library, setting, expected, ""))


sys.exit(run("a lost reply", claims_of(sys.modules[__name__])))
