"""A cluster of three primaries with a replica each, and a client that follows redirections."""
import threading
import time

from engines import Connection, Engine, Error, wait_until

SLOTS = 16384


def slot_of(key):
    """CRC-16 (XMODEM) of the key, or of the text between its first braces."""
    key = key.encode() if isinstance(key, str) else key
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    if end > start + 1:
        key = key[start + 1:end]
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xffff
    return crc % SLOTS


class Cluster:
    """`timeout_ms`: a primary that does not answer for so long is replaced, also one that the machine has held up, and adds that no
    replica has are lost."""

    def __init__(self, *arguments, module=(), timeout_ms=20000):
        self.nodes = [Engine("--cluster-enabled", "yes", "--cluster-node-timeout", timeout_ms, "--cluster-replica-validity-factor",
                             "0", "--repl-backlog-size", "16mb", *arguments, module=module) for _ in range(6)]
        self.ids = [node("CLUSTER", "MYID").decode() for node in self.nodes]
        for i, node in enumerate(self.nodes):  # as redis-cli does: they would find different ones by and by only
            node("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in self.nodes[1:]:
            node("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        for i, node in enumerate(self.nodes[:3]):
            node("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // 3, SLOTS * (i + 1) // 3 - 1)
        wait_until(lambda: all(node("CLUSTER", "NODES").decode().count("connected") == 6 for node in self.nodes),
                   "the nodes know each other")
        for i, node in enumerate(self.nodes[3:]):
            node("CLUSTER", "REPLICATE", self.ids[i])
        self.wait_healthy()

    def up(self):
        return [node for node in self.nodes if node.process.poll() is None]

    def wait_healthy(self, replicas=True):
        def healthy():
            for node in self.up():
                try:
                    if "cluster_state:ok" not in node("CLUSTER", "INFO").decode():
                        return False
                    if replicas and node.info("replication", "role") == "slave" and \
                            node.info("replication", "master_link_status") != "up":
                        return False
                except (OSError, ConnectionError):
                    return False
            return True
        wait_until(healthy, "the cluster is healthy")
        wait_until(self.epochs_agree, "the nodes agree about the epochs of the primaries")

    def epochs_agree(self):
        """A replica that does not know its primary's latest epoch gets no votes after the primary's end."""
        views = set()
        for node in self.up():
            rows = [line.split() for line in node("CLUSTER", "NODES").decode().splitlines()]
            views.add(tuple(sorted((row[0], row[6]) for row in rows if "master" in row[2] and len(row) > 8)))
        return len(views) == 1

    def wait_agreed(self):
        """Until all nodes agree on every slot: before, redis-cli moves none."""
        def view(node):
            return sorted((first, last, nodes[0][1]) for first, last, *nodes in node("CLUSTER", "SLOTS"))
        wait_until(lambda: len({str(view(node)) for node in self.up()}) == 1, "the nodes agree about the slots")

    def primaries(self):
        return [node for node in self.up() if node.info("replication", "role") == "master"]

    def replica_of(self, primary):
        for node in self.up():
            if node.info("replication", "role") == "slave" and int(node.info("replication", "master_port")) == primary.port:
                return node
        return None

    def owner_of(self, key):
        slot = slot_of(key)
        for first, last, *nodes in self.up()[0]("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == nodes[0][1])
        raise AssertionError("nobody has the slot")

    def client(self):
        return Client([node.port for node in self.nodes])


class Client:
    """A client of one thread."""

    def __init__(self, ports):
        self.ports, self.connections, self.slots = ports, {}, {}

    def connection(self, port):
        if port not in self.connections:
            self.connections[port] = Connection(port)
        return self.connections[port]

    def drop(self, port):
        connection = self.connections.pop(port, None)
        if connection:
            connection.close()

    def refresh(self):
        for port in self.ports:
            try:
                for first, last, *nodes in self.connection(port)("CLUSTER", "SLOTS"):
                    for slot in range(first, last + 1):
                        self.slots[slot] = nodes[0][1]
                return
            except (OSError, ConnectionError, Error):
                self.drop(port)

    def call(self, key, words, then=None):
        """The reply of the key's node to a command; with `then` a pair, whose second is the same node's reply to `then`.
        Sends lost commands again until there is a reply."""
        deadline = time.monotonic() + 120
        slot, asked = slot_of(key), None
        while time.monotonic() < deadline:
            port = asked or self.slots.get(slot)
            if port is None:
                self.refresh()
                time.sleep(0.05)
                continue
            try:
                connection = self.connection(port)
                commands = ([("ASKING",)] if asked else []) + [words] + ([then] if then else [])
                connection.send(*commands)
                replies = [connection.reply() for _ in commands]
            except (OSError, ConnectionError):
                self.drop(port)
                self.slots.pop(slot, None)
                asked = None
                time.sleep(0.05)
                continue
            reply, asked = replies[1 if asked else 0], None
            text = str(reply) if isinstance(reply, Error) else ""
            if text.startswith("ASK "):
                asked = int(text.rsplit(":", 1)[1])
            elif text.startswith("MOVED "):
                self.slots[slot] = int(text.rsplit(":", 1)[1])
            elif text.startswith(("CLUSTERDOWN", "TRYAGAIN", "READONLY", "LOADING", "MASTERDOWN")):
                self.slots.pop(slot, None)
                time.sleep(0.05)
            else:
                return (reply, replies[-1]) if then else reply
        raise AssertionError(f"no reply to {words[:2]} within two minutes")


class Adders:
    """Threads that add their own items to filters and remember the acknowledged ones; with `confirmed` those that a
    replica has, too (WAIT)."""

    def __init__(self, cluster, keys, confirmed=False, threads=2):
        self.cluster, self.keys, self.confirmed = cluster, keys, confirmed
        self.added = {key: [] for key in keys}
        self.going, self.failure = True, None
        self.threads = [threading.Thread(target=self.run, args=(i, keys[i::threads]), daemon=True) for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number, keys):
        client, i = self.cluster.client(), 0
        try:
            while self.going:
                key = keys[i % len(keys)]
                batch = [f"{number}-{i}-{j}" for j in range(10)]
                then = ("WAIT", "1", "1000") if self.confirmed else None
                reply = client.call(key, ("BF.MADD", key, *batch), then)
                items, replicas = reply if then else (reply, 1)
                if isinstance(items, list) and not any(isinstance(one, Error) for one in items) and replicas == 1:
                    self.added[key] += batch
                elif isinstance(items, Error):
                    raise AssertionError(f"an add was answered {items}")
                i += 1
                time.sleep(0.002)  # the nodes need their time: what is tested does not get better by millions of adds
        except Exception as error:
            self.failure = error

    def count(self):
        return sum(map(len, self.added.values()))

    def wait_more(self, n):
        goal = self.count() + n
        wait_until(lambda: self.failure or self.count() >= goal, f"{n} adds more", 120)

    def end(self):
        self.going = False
        for thread in self.threads:
            thread.join()
        if self.failure:
            raise self.failure

    def check(self, client):
        """Every acknowledged (or confirmed) item is in its filter."""
        for key, items in self.added.items():
            for first in range(0, len(items), 1000):
                part = items[first:first + 1000]
                replies = client.call(key, ("BF.MEXISTS", key, *part))
                assert replies == [1] * len(part), f"{key}: {replies.count(0)} of {len(part)} acknowledged items are lost"
