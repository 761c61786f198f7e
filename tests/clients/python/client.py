"""Drives a server with redis-py: client.py HOST PORT PROTOCOL, where the protocol is 2 or 3.

Every check starts on an empty database and prints `ok NAME` or `FAILED NAME: why`; `end` comes last. See ../README.md.
"""

import os
import sys
import threading
import time
import traceback

import redis

HOST, PORT, PROTOCOL = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# Redis itself undoes nothing when a command fails inside EXEC; the checks can be run against it too.
ON_REDIS = os.environ.get("CLIENTS_SERVER") == "redis"
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def connect(**options):
    return redis.Redis(host=HOST, port=PORT, protocol=PROTOCOL, socket_timeout=20, **options)


def equal(found, expected):
    if found != expected or type(found) is not type(expected):
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def between(low, found, high):
    if not low <= found <= high:
        raise AssertionError(f"expected {low} to {high}, found {found!r}")


def fails(kind, words, action):
    try:
        found = action()
    except kind as error:
        if words not in str(error):
            raise AssertionError(f"expected an error with {words!r}, found {error!s}") from error
    else:
        raise AssertionError(f"expected an error with {words!r}, found {found!r}")


def gone_within(seconds, db, key):
    """Waits until a key is gone: not at once, and not much later than it should be."""
    deadline = time.monotonic() + seconds
    while db.exists(key):
        if time.monotonic() > deadline:
            raise AssertionError(f"{key} is still there after {seconds} s")
        time.sleep(0.01)


@check
def connection(db):
    equal(db.ping(), True)
    equal(db.echo("hello"), b"hello")
    equal(db.client_setname("tester"), True)
    between(1, int(db.client_id()), 1 << 62)
    equal(str(connect(client_name="named", decode_responses=True).client_getname()), "named")
    equal(any(client["name"] == "tester" for client in db.client_list()), True)
    between(7, int(db.info("server")["redis_version"].split(".")[0]), 99)
    equal(db.select(0), True)
    equal(db.config_get("maxmemory-policy"), {"maxmemory-policy": "noeviction"})
    between(40, db.command_count(), 1000)
    seconds, _ = db.time()
    between(time.time() - 5, seconds, time.time() + 5)


@check
def strings(db):
    equal(db.get("a"), None)
    equal(db.set("a", "1"), True)
    equal(db.get("a"), b"1")
    every_byte = bytes(range(256))
    equal(db.set(every_byte, every_byte * 3), True)
    equal(db.get(every_byte), every_byte * 3)
    equal(db.set("empty", ""), True)
    equal(db.get("empty"), b"")
    equal(db.append("a", "23"), 3)
    equal(db.strlen("a"), 3)
    equal(db.strlen("none"), 0)
    equal(db.set("text", "Hello World"), True)
    equal(db.getrange("text", 0, 4), b"Hello")
    equal(db.getrange("text", -5, -1), b"World")
    equal(db.getrange("text", 20, 30), b"")
    equal(db.setrange("text", 6, "Redis"), 11)
    equal(db.get("text"), b"Hello Redis")
    equal(db.setrange("gap", 3, "x"), 4)
    equal(db.get("gap"), b"\0\0\0x")
    equal(db.getset("a", "new"), b"123")
    equal(db.getdel("a"), b"new")
    equal(db.get("a"), None)
    equal(db.delete("text", "gap", "none"), 2)
    equal(db.type("empty"), b"string")
    equal(db.type("none"), b"none")


@check
def set_options(db):
    equal(db.set("a", "1", xx=True), None)
    equal(db.set("a", "1", nx=True), True)
    equal(db.set("a", "2", nx=True), None)
    equal(db.get("a"), b"1")
    equal(db.set("a", "3", xx=True, get=True), b"1")
    equal(db.set("b", "1", get=True), None)
    equal(db.setnx("a", "4"), False)
    equal(db.setnx("c", "4"), True)
    equal(db.set("a", "5", ex=100), True)
    equal(db.set("a", "6", keepttl=True), True)
    between(95, db.ttl("a"), 100)
    equal(db.set("a", "7"), True)
    equal(db.ttl("a"), -1)


@check
def many_keys(db):
    equal(db.mset({"a": "1", "b": "2", "c": "3"}), True)
    equal(db.mget("a", "none", "c", "b"), [b"1", None, b"3", b"2"])
    equal(db.msetnx({"d": "4", "a": "5"}), False)
    equal(db.exists("a", "a", "d"), 2)
    equal(db.msetnx({"d": "4", "e": "5"}), True)
    equal(db.unlink("d", "e", "f"), 2)
    equal(db.touch("a", "b", "f"), 2)
    wide = {f"wide:{n}": str(n) for n in range(2000)}
    equal(db.mset(wide), True)
    equal(db.mget(list(wide)), [value.encode() for value in wide.values()])


@check
def counters(db):
    equal(db.incr("n"), 1)
    equal(db.incrby("n", 41), 42)
    equal(db.decr("n"), 41)
    equal(db.decrby("n", 50), -9)
    equal(db.incrbyfloat("f", 0.5), 0.5)
    equal(db.incrbyfloat("f", 2.25), 2.75)
    equal(db.get("f"), b"2.75")
    db.set("n", 9223372036854775807)
    fails(redis.ResponseError, "would overflow", lambda: db.incr("n"))
    db.set("text", "abc")
    fails(redis.ResponseError, "value is not an integer or out of range", lambda: db.incr("text"))
    fails(redis.ResponseError, "value is not a valid float", lambda: db.incrbyfloat("text", 1))
    equal(db.get("text"), b"abc")


@check
def expiry(db):
    equal(db.ttl("none"), -2)
    db.set("a", "1", ex=100)
    between(95, db.ttl("a"), 100)
    between(95_000, db.pttl("a"), 100_000)
    equal(db.persist("a"), True)
    equal(db.persist("a"), False)
    equal(db.ttl("a"), -1)
    equal(db.expire("a", 50), True)
    equal(db.expire("none", 50), False)
    equal(db.expire("a", 60, nx=True), False)
    equal(db.expire("a", 60, gt=True), True)
    at = int(time.time()) + 200
    equal(db.expireat("a", at), True)
    equal(db.expiretime("a"), at)
    equal(db.getex("a", px=70_000), b"1")
    between(65_000, db.pttl("a"), 70_000)
    equal(db.getex("a", persist=True), b"1")
    equal(db.ttl("a"), -1)
    equal(db.execute_command("SETEX", "b", 100, "2"), True)
    between(95, db.ttl("b"), 100)
    equal(db.incr("n"), 1)
    equal(db.pexpire("n", 100_000), True)
    equal(db.incr("n"), 2)
    between(95_000, db.pttl("n"), 100_000)
    equal(db.expire("n", -1), True)
    equal(db.get("n"), None)
    fails(redis.ResponseError, "invalid expire time in 'set' command", lambda: db.set("a", "1", px=-5))


@check
def waiting_for_expiry(db):
    db.mset({"stays": "1", "kept": "1"})
    began = time.monotonic()
    db.set("short", "1", px=400)
    db.set("shorter", "1")
    db.pexpire("shorter", 250)
    db.set("kept", "1", px=300)
    db.persist("kept")
    equal(db.get("short"), b"1")
    gone_within(5, db, "shorter")
    between(0.24, time.monotonic() - began, 5)
    gone_within(5, db, "short")
    between(0.39, time.monotonic() - began, 5)
    equal(db.get("short"), None)
    equal(db.pttl("short"), -2)
    equal(db.set("short", "again", nx=True), True)
    equal(sorted(db.keys()), [b"kept", b"short", b"stays"])


@check
def pipelines(db):
    pipe = db.pipeline(transaction=False)
    for n in range(3000):
        pipe.set(f"key:{n}", n)
    equal(pipe.execute(), [True] * 3000)
    for n in range(3000):
        pipe.get(f"key:{n}")
    equal(pipe.execute(), [str(n).encode() for n in range(3000)])
    for _ in range(500):
        pipe.incr("n")
    equal(pipe.execute(), list(range(1, 501)))
    pipe.set("text", "abc").incr("text").get("text")
    one, two, three = pipe.execute(raise_on_error=False)
    equal((one, three), (True, b"abc"))
    equal(isinstance(two, redis.ResponseError), True)


@check
def transactions(db):
    pipe = db.pipeline(transaction=True)
    pipe.set("a", "1").incr("a").mget("a", "none").expire("a", 100).delete("none")
    equal(pipe.execute(), [True, 2, [b"2", None], True, 0])
    between(95, db.ttl("a"), 100)
    wide = db.pipeline(transaction=True)
    for n in range(300):
        wide.set(f"wide:{n}", n)
    equal(wide.execute(), [True] * 300)
    equal(db.dbsize(), 301)


@check
def watch_succeeds(db):
    db.set("a", "10")
    with db.pipeline() as pipe:
        pipe.watch("a", "b")
        before = int(pipe.get("a"))
        pipe.multi()
        pipe.set("a", before * 2)
        pipe.set("b", before)
        equal(pipe.execute(), [True, True])
    equal(db.mget("a", "b"), [b"20", b"10"])
    equal(db.transaction(lambda pipe: (pipe.multi(), pipe.incr("a")), "a"), [21])


@check
def watch_conflicts(db):
    db.set("a", "1")
    other = connect()
    for change in (
        lambda: other.set("a", "2"),
        lambda: other.delete("a"),
        lambda: other.set("a", "3"),
        lambda: other.expire("a", 100),
        lambda: other.flushdb(),
    ):
        with db.pipeline() as pipe:
            pipe.watch("a")
            pipe.get("a")
            change()
            pipe.multi()
            pipe.set("lost", "1")
            fails(redis.WatchError, "Watched variable changed", pipe.execute)
    equal(db.get("lost"), None)
    with db.pipeline() as pipe:
        pipe.watch("a")
        other.set("a", "4")
        pipe.unwatch()
        pipe.multi()
        pipe.set("kept", "1")
        equal(pipe.execute(), [True])


@check
def watch_of_an_expiring_key(db):
    db.set("a", "1", px=1500)
    with db.pipeline() as pipe:
        pipe.watch("a")
        equal(pipe.get("a"), b"1")
        gone_within(5, connect(), "a")
        pipe.multi()
        pipe.set("lost", "1")
        fails(redis.WatchError, "Watched variable changed", pipe.execute)
    equal(db.get("lost"), None)


@check
def no_update_is_lost(db):
    threads, rounds, trouble = 4, 40, []

    def add():
        try:
            own = connect()
            for _ in range(rounds):
                own.transaction(lambda pipe: add_one(pipe), "n")
        except Exception as error:  # shown by the check
            trouble.append(error)

    def add_one(pipe):
        value = int(pipe.get("n") or 0)
        pipe.multi()
        pipe.set("n", value + 1)

    workers = [threading.Thread(target=add) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    equal(trouble, [])
    equal(db.get("n"), str(threads * rounds).encode())


@check
def keyspace(db):
    equal(db.dbsize(), 0)
    equal(db.randomkey(), None)
    names = sorted(f"user:{n}".encode() for n in range(700)) + [b"other"]
    db.mset({name: b"x" for name in names})
    equal(db.dbsize(), 701)
    equal(sorted(db.keys()), sorted(names))
    equal(sorted(db.keys("user:1?")), sorted(f"user:1{n}".encode() for n in range(10)))
    equal(sorted(db.keys("*[er]")), [b"other"])
    equal(sorted(set(db.scan_iter())), sorted(names))
    equal(sorted(set(db.scan_iter(match="user:69*", count=50))), sorted([b"user:69"] + [b"user:69%d" % n for n in range(10)]))
    equal(set(db.scan_iter(match="nothing*")), set())
    equal(db.randomkey() in names, True)
    equal(db.flushdb(), True)
    equal(db.dbsize(), 0)
    equal(list(db.scan_iter()), [])


@check
def errors(db):
    fails(redis.ResponseError, "wrong number of arguments for 'get' command", lambda: db.execute_command("GET"))
    fails(
        redis.ResponseError,
        "unknown command 'NOSUCH', with args beginning with: 'a' 'b' ",
        lambda: db.execute_command("NOSUCH", "a", "b"),
    )
    fails(redis.ResponseError, "syntax error", lambda: db.execute_command("SET", "a", "1", "SIDEWAYS"))
    fails(redis.ResponseError, "value is not an integer or out of range", lambda: db.execute_command("EXPIRE", "a", "x"))
    fails(redis.ResponseError, "DB index is out of range", lambda: db.select(99))
    fails(redis.ResponseError, "offset is out of range", lambda: db.setrange("a", -1, "x"))
    fails(redis.ResponseError, "EXEC without MULTI", lambda: db.execute_command("EXEC"))
    fails(redis.ResponseError, "DISCARD without MULTI", lambda: db.execute_command("DISCARD"))
    fails(redis.ResponseError, "invalid cursor", lambda: db.execute_command("SCAN", "x"))
    fails(redis.AuthenticationError, "", lambda: connect(username="nobody", password="wrong").ping())
    equal(db.ping(), True)


@check
def errors_in_transactions(db):
    pipe = db.pipeline(transaction=True)
    pipe.set("a", "1").execute_command("NOSUCH")
    fails(redis.ResponseError, "unknown command", pipe.execute)
    equal(db.get("a"), None)
    db.set("text", "abc")
    pipe = db.pipeline(transaction=True)
    pipe.set("a", "1").incr("text")
    if ON_REDIS:
        fails(redis.ResponseError, "not an integer", pipe.execute)
        equal(db.get("a"), b"1")
    else:
        fails(redis.exceptions.ExecAbortError, "command 2 ('incrby') failed: ERR value is not an integer", pipe.execute)
        equal(db.get("a"), None)
    equal(db.ping(), True)


@check
def large_values(db):
    value = os.urandom(1 << 20)
    equal(db.set("big", value), True)
    equal(db.get("big"), value)
    equal(db.getrange("big", 1_000_000, 1_000_009), value[1_000_000:1_000_010])
    equal(db.append("big", value[:1000]), (1 << 20) + 1000)
    equal(db.get("big"), value + value[:1000])


def main():
    failures = 0
    db = connect(single_connection_client=True)
    for function in CHECKS:
        try:
            db.flushdb()
            function(db)
            print(f"ok {function.__name__}", flush=True)
        except Exception as error:  # every check is run
            failures += 1
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.name == function.__name__]
            print(f"FAILED {function.__name__}: line {lines}: {type(error).__name__}: {error}", flush=True)
            db = connect(single_connection_client=True)
    print("end", flush=True)
    sys.exit(1 if failures else 0)


main()
