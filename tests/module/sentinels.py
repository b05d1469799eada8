#!/usr/bin/env python3
"""A primary with two replicas under three Sentinels: kill -9 of the primary during adds loses no item that the replicas have
confirmed (WAIT)."""
import sys
import threading
import time

from engines import Connection, Engine, Error, in_sync, replica_of, run, wait_until


class Adder:
    def __init__(self, sentinels):
        self.sentinels, self.confirmed, self.going = sentinels, [], True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def primary(self):
        for sentinel in self.sentinels:
            try:
                connection = Connection(sentinel.port)
                address = connection("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "filters")
                connection.close()
                return Connection(int(address[1]))
            except (OSError, ConnectionError, Error):
                continue
        return None

    def run(self):
        i, connection = 0, None
        while self.going:
            try:
                connection = connection or self.primary()
                batch = [f"{i}-{j}" for j in range(10)]
                connection.send(("BF.MADD", "f", *batch), ("WAIT", "2" if i % 2 else "1", "500"))
                added, replicas = connection.reply(), connection.reply()
                if isinstance(added, Error):
                    raise ConnectionError(str(added))
                if replicas == 2:
                    self.confirmed += batch
                i += 1
            except (OSError, ConnectionError, AttributeError):
                connection = None
                time.sleep(0.05)

    def wait_more(self, n):
        goal = len(self.confirmed) + n
        wait_until(lambda: len(self.confirmed) >= goal, f"{n} adds more", 120)

    def end(self):
        self.going = False
        self.thread.join()


def test_kills_of_the_primary_lose_nothing_that_both_replicas_have_confirmed():
    engines = [Engine("--appendonly", "yes")]
    engines += [replica_of(engines[0], "--appendonly", "yes") for _ in range(2)]
    settings = f"""sentinel monitor filters 127.0.0.1 {engines[0].port} 2
sentinel down-after-milliseconds filters 4000
sentinel failover-timeout filters 5000
sentinel parallel-syncs filters 2
"""
    sentinels = [Engine(sentinel=settings) for _ in range(3)]
    wait_until(lambda: all(b"num-other-sentinels" in one("SENTINEL", "MASTER", "filters") and
                           dict(zip(*[iter(one("SENTINEL", "MASTER", "filters"))] * 2))[b"num-other-sentinels"] == b"2"
                           for one in sentinels), "the Sentinels know each other")
    wait_until(lambda: all(len(one("SENTINEL", "REPLICAS", "filters")) == 2 for one in sentinels), "they know the replicas")
    adder = Adder(sentinels)
    try:
        fail_over(engines, adder)
    finally:
        adder.end()
    primary = next(one for one in engines if one.info("replication", "role") == "master")
    for first in range(0, len(adder.confirmed), 1000):
        part = adder.confirmed[first:first + 1000]
        assert primary("BF.MEXISTS", "f", *part) == [1] * len(part)
    in_sync(primary, *[one for one in engines if one is not primary])
    print(f"      {len(adder.confirmed)} confirmed adds")


def fail_over(engines, adder):
    for _ in range(2):
        adder.wait_more(500)
        primary = next(one for one in engines if one.info("replication", "role") == "master")
        primary.kill()
        others = [one for one in engines if one is not primary]
        wait_until(lambda: any(one.info("replication", "role") == "master" for one in others), "another one takes over")
        primary.start()
        wait_until(lambda: primary.info("replication", "role") == "slave" and
                   primary.info("replication", "master_link_status") == "up", "the old primary follows")
        wait_until(lambda: all(one.info("replication", "role") == "master" or
                               one.info("replication", "master_link_status") == "up" for one in engines), "all follow")
    adder.wait_more(500)


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
