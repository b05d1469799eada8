#!/usr/bin/env python3
"""A session of redis-py's asyncio client with its bf() helpers. See with_daemon.py."""
import asyncio
import functools
import sys
import time

import redis
import redis.asyncio
from redis.exceptions import AuthenticationError, BusyLoadingError, ConnectionError, ResponseError, WatchError
from redis.utils import HIREDIS_AVAILABLE

from session import AUTH_PORT, PASSWORD, PATIENCE_S, PORT, TLS, claims_of, equal, holds, run


Redis = functools.partial(redis.asyncio.Redis, **TLS)


def in_a_loop(claim):
    @functools.wraps(claim)
    def plain():
        asyncio.run(claim())
    return plain


async def fresh(**kwargs):
    client = Redis(port=PORT, **kwargs)
    await client.flushall()
    return client


async def raises(kind, text, awaitable):
    try:
        got = await awaitable
    except kind as error:
        holds(text in str(error), f"'{text}' in {error!r}")
        return
    raise AssertionError(f"got {got!r} instead of {kind.__name__} with '{text}'")


async def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        holds(time.monotonic() < deadline, what)
        await asyncio.sleep(0.01)


@in_a_loop
async def test_connects_with_and_without_a_password():
    async with Redis(port=PORT) as client:
        equal(await client.ping(), True)
    async with Redis(port=AUTH_PORT, password=PASSWORD, client_name="asynchronous") as client:
        equal(await client.client_getname(), "asynchronous")
    async with Redis(port=AUTH_PORT) as client:
        await raises(AuthenticationError, "Authentication required", client.ping())


@in_a_loop
async def test_the_helpers():
    client = await fresh()
    bf = client.bf()
    equal(await bf.create("f", 0.001, 1000, expansion=4), True)
    equal(await bf.add("f", "a"), 1)
    equal(await bf.madd("f", "a", "b"), [0, 1])
    equal(await bf.mexists("f", "a", "z"), [1, 0])
    equal(await bf.insert("i", ["x"], capacity=50, error=0.01, noScale=True), [1])
    info = await bf.info("f")
    equal((info.capacity, info.insertedNum, info.expansionRate), (1000, 2, 4))
    await raises(ResponseError, "item exists", bf.create("f", 0.01, 10))
    await raises(ResponseError, "not found", bf.insert("none", ["x"], noCreate=True))
    await client.close()


@in_a_loop
async def test_exactly_one_of_many_wins():
    client = await fresh(max_connections=20)
    bf = client.bf()

    async def crawl():
        return [i for i in range(200) if await bf.add("urls", i)]

    won = await asyncio.gather(*(crawl() for _ in range(10)))
    equal(sorted(i for list in won for i in list), list(range(200)))
    await client.close()


@in_a_loop
async def test_pipelines():
    client = await fresh()
    for transaction in (False, True):
        async with client.pipeline(transaction=transaction) as pipeline:
            pipeline.execute_command("BF.ADD", f"p{transaction}", "a")
            pipeline.execute_command("BF.MADD", f"p{transaction}", "a", "b")
            pipeline.expire(f"p{transaction}", 100)
            equal(await pipeline.execute(), [1, [0, 1], True])
    async with client.pipeline() as pipeline:
        await pipeline.watch("w")
        equal(await pipeline.execute_command("BF.EXISTS", "w", "a"), 0)
        await client.bf().add("w", "a")
        pipeline.multi()
        pipeline.execute_command("BF.ADD", "w", "b")
        await raises(WatchError, "Watched variable changed", pipeline.execute())
    await client.close()


@in_a_loop
async def test_dump_and_load():
    client = await fresh()
    bf = client.bf()
    await bf.create("f", 0.001, 2000)
    await bf.madd("f", *range(5000))
    position, chunks = 0, []
    while True:
        position, data = await (client.execute_command("BF.SCANDUMP", "f", position) if HIREDIS_AVAILABLE
                                else bf.scandump("f", position))
        if position == 0:
            break
        chunks.append((position, data))
    for position, data in chunks:
        equal(await bf.loadchunk("g", position, data), b"OK")
    equal(await bf.mexists("g", *range(5000)), [1] * 5000)
    equal(vars(await bf.info("g")), vars(await bf.info("f")))
    await client.close()


@in_a_loop
async def test_keys_and_expiry():
    client = await fresh(decode_responses=True)
    for i in range(50):
        await client.bf().add(f"k{i}", "a")
    equal(sorted([key async for key in client.scan_iter(match="k*", count=7)]), sorted(f"k{i}" for i in range(50)))
    equal(await client.expire("k1", 100), True)
    holds(40 <= await client.ttl("k1") <= 100, "TTL")
    equal(await client.pexpire("k1", 1), True)

    async def gone():
        return not await client.exists("k1")

    await until(gone, "the filter expires")
    equal(await client.dbsize(), 49)
    await client.close()


@in_a_loop
async def test_publish_and_subscribe():
    client = await fresh(decode_responses=True)
    pubsub = client.pubsub()
    await pubsub.subscribe("news")
    await pubsub.psubscribe("__keyevent@0__:*")
    await client.config_set("notify-keyspace-events", "EA")
    confirmed = set()

    async def subscribed():  # subscribe() sends the command and does not wait for its reply
        message = await pubsub.get_message(timeout=0.1)
        if message:
            confirmed.add(message["type"])
        return {"subscribe", "psubscribe"} <= confirmed

    await until(subscribed, "both subscriptions are confirmed")
    equal(await client.publish("news", "hello"), 1)
    await client.bf().add("f", "a")
    await client.delete("f")
    seen = set()

    async def all_there():
        message = await pubsub.get_message(timeout=0.1)
        if message:
            seen.add((message["type"], message["channel"], message["data"]))
        return {("message", "news", "hello"), ("pmessage", "__keyevent@0__:del", "f")} <= seen

    await until(all_there, "the message and the event arrive")
    await client.config_set("notify-keyspace-events", "")
    await pubsub.close()
    await client.close()


@in_a_loop
async def test_connects_again():
    client = await fresh()
    await client.bf().add("f", "a")
    other = Redis(port=PORT)
    await other.client_kill_filter(_type="normal", skipme=True)

    async def answers():
        try:
            return await client.ping()
        except (ConnectionError, BusyLoadingError):
            return False

    await until(answers, "the client connects again")
    before = (await client.info("server"))["run_id"]
    try:
        await other.shutdown(save=True)
    except ConnectionError:
        pass  # the connection may be refused before the next daemon listens

    async def is_the_next():
        try:
            return (await client.info("server"))["run_id"] != before
        except (ConnectionError, BusyLoadingError):
            return False

    await until(is_the_next, "the client connects to the next daemon")
    await until(answers, "the next daemon has loaded")
    equal(await client.bf().exists("f", "a"), 1)
    await other.close()
    await client.close()


if __name__ == "__main__":
    sys.exit(run(f"redis-py {redis.__version__}, asyncio", claims_of(sys.modules["__main__"])))
