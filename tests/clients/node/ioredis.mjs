// Drives a server with ioredis: ioredis.mjs HOST PORT.

import { Redis } from "ioredis";
import { between, equal, fails, gone, host, onRedis, port, run } from "./checks.mjs";

const connect = () => new Redis({ host, port, maxRetriesPerRequest: 0 }).on("error", (error) => console.log(`# ${error}`));
const [db, other] = [connect(), connect()];

const checks = {
  async connection() {
    equal(await db.ping(), "PONG");
    equal(await db.echo("hello"), "hello");
    equal(await db.client("SETNAME", "tester"), "OK");
    equal(await db.client("GETNAME"), "tester");
    equal((await db.info("server")).includes("redis_version:7"), true);
    equal(await db.config("GET", "maxmemory-policy"), ["maxmemory-policy", "noeviction"]);
  },
  async strings() {
    equal(await db.get("a"), null);
    equal(await db.set("a", "1"), "OK");
    const binary = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    equal(await db.set(binary, binary), "OK");
    equal(await db.getBuffer(binary), binary);
    equal(await db.append("a", "23"), 3);
    equal(await db.strlen("a"), 3);
    await db.set("text", "Hello World");
    equal(await db.getrange("text", -5, -1), "World");
    equal(await db.setrange("text", 6, "Redis"), 11);
    equal(await db.get("text"), "Hello Redis");
    equal(await db.getdel("a"), "123");
    equal(await db.getset("text", "new"), "Hello Redis");
    equal(await db.type("text"), "string");
    equal(await db.del("text", "none"), 1);
  },
  async set_options() {
    equal(await db.set("a", "1", "XX"), null);
    equal(await db.set("a", "1", "NX"), "OK");
    equal(await db.set("a", "2", "NX"), null);
    equal(await db.set("a", "3", "EX", 100, "XX"), "OK");
    equal(await db.set("a", "4", "KEEPTTL"), "OK");
    between(95, await db.ttl("a"), 100);
    equal(await db.set("a", "5", "GET"), "4");
    equal(await db.ttl("a"), -1);
    equal(await db.setnx("a", "6"), 0);
  },
  async many_keys() {
    equal(await db.mset({ a: "1", b: "2", c: "3" }), "OK");
    equal(await db.mget("a", "none", "c"), ["1", null, "3"]);
    equal(await db.msetnx("d", "4", "a", "5"), 0);
    equal(await db.exists("a", "a", "none"), 2);
    equal(await db.unlink("a", "b", "none"), 2);
  },
  async counters() {
    equal(await db.incr("n"), 1);
    equal(await db.incrby("n", 41), 42);
    equal(await db.decr("n"), 41);
    equal(await db.decrby("n", 50), -9);
    equal(await db.incrbyfloat("f", 2.75), "2.75");
    await db.set("n", "9223372036854775807");
    await fails("ERR increment or decrement would overflow", db.incr("n"));
    await db.set("text", "abc");
    await fails("ERR value is not an integer or out of range", db.incr("text"));
  },
  async expiry() {
    equal(await db.ttl("none"), -2);
    await db.set("a", "1", "PX", 100_000);
    between(95_000, await db.pttl("a"), 100_000);
    equal(await db.persist("a"), 1);
    equal(await db.persist("a"), 0);
    equal(await db.expire("a", 50), 1);
    equal(await db.expire("a", 60, "NX"), 0);
    equal(await db.getex("a", "EX", 70), "1");
    between(65, await db.ttl("a"), 70);
    await db.set("short", "1", "PX", 200);
    equal(await db.get("short"), "1");
    await gone(() => db.exists("short"));
    equal(await db.get("short"), null);
    equal(await db.keys("*"), ["a"]);
  },
  async pipelines() {
    const pipe = db.pipeline();
    for (let n = 0; n < 2000; n += 1) pipe.set(`key:${n}`, n).incr("n").get(`key:${n}`);
    const answers = await pipe.exec();
    equal(answers.length, 6000);
    for (let n = 0; n < 2000; n += 1) {
      equal(answers.slice(3 * n, 3 * n + 3), [[null, "OK"], [null, n + 1], [null, String(n)]]);
    }
    const [good, bad, after] = await db.pipeline().set("text", "abc").incr("text").get("text").exec();
    equal([good, after], [[null, "OK"], [null, "abc"]]);
    equal(bad[0].message, "ERR value is not an integer or out of range");
  },
  async transactions() {
    equal(await db.multi().set("a", "1").incr("a").mget("a", "none").exec(), [[null, "OK"], [null, 2], [null, ["2", null]]]);
    await db.multi({ pipeline: false });
    equal(await db.set("b", "1"), "QUEUED");
    equal(await db.discard(), "OK");
    equal(await db.get("b"), null);
  },
  async watch() {
    await db.set("a", "10");
    await db.watch("a", "b");
    equal(await db.multi().set("a", "20").set("b", "10").exec(), [[null, "OK"], [null, "OK"]]);
    await db.watch("a");
    await other.set("a", "2");
    equal(await db.multi().set("lost", "1").exec(), null);
    await db.set("a", "3", "PX", 1500);
    await db.watch("a");
    await gone(() => other.exists("a"));
    equal(await db.multi().set("lost", "1").exec(), null);
    equal(await db.get("lost"), null);
    await db.watch("a");
    await other.set("a", "4");
    await db.unwatch();
    equal(await db.multi().set("kept", "1").exec(), [[null, "OK"]]);
  },
  async keyspace() {
    const names = Array.from({ length: 500 }, (_, n) => `user:${n}`).sort();
    await db.mset(names.flatMap((name) => [name, "x"]));
    equal(await db.dbsize(), 500);
    equal((await db.keys("user:*")).sort(), names);
    const seen = new Set();
    for await (const page of db.scanStream({ match: "user:*", count: 20 })) page.forEach((name) => seen.add(name));
    equal([...seen].sort(), names);
    equal(await db.flushdb(), "OK");
    equal(await db.dbsize(), 0);
  },
  async errors() {
    await fails("ERR wrong number of arguments for 'get' command", db.call("GET"));
    await fails("ERR unknown command 'NOSUCH', with args beginning with: 'a' ", db.call("NOSUCH", "a"));
    await fails("ERR syntax error", db.set("a", "1", "SIDEWAYS"));
    await fails("EXECABORT Transaction discarded because of previous errors.", db.multi().set("a", "1").call("NOSUCH").exec());
    equal(await db.get("a"), null);
    if (!onRedis) {
      await db.set("text", "abc");
      await fails("command 2 ('incr') failed: ERR value is not an integer", db.multi().set("a", "1").incr("text").exec());
      equal(await db.get("a"), null);
    }
    equal(await db.ping(), "PONG");
  },
};

const code = await run(checks, () => db.flushdb());
await Promise.all([db.quit(), other.quit()]);
process.exitCode = code;
