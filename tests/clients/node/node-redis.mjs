// Drives a server with node-redis: node-redis.mjs HOST PORT PROTOCOL, where the protocol is 2 or 3.

import { createClient, ErrorReply, WatchError } from "redis";
import { between, equal, fails, gone, host, onRedis, port, run } from "./checks.mjs";

const RESP = Number(process.argv[4]);
const connect = () => createClient({ socket: { host, port }, RESP }).on("error", (error) => console.log(`# ${error}`)).connect();
const [db, other] = await Promise.all([connect(), connect()]);

const checks = {
  async connection() {
    equal(await db.ping(), "PONG");
    equal(await db.echo("hello"), "hello");
    await db.clientSetName("tester");
    equal(await db.clientGetName(), "tester");
    equal((await db.clientList()).some((client) => client.name === "tester"), true);
    equal((await db.info("server")).includes("redis_version:7"), true);
    equal((await db.configGet("maxmemory-policy"))["maxmemory-policy"], "noeviction");
  },
  async strings() {
    equal(await db.get("a"), null);
    equal(await db.set("a", "1"), "OK");
    equal(await db.get("a"), "1");
    await db.set("empty", "");
    equal(await db.get("empty"), "");
    equal(await db.append("a", "23"), 3);
    equal(await db.strLen("a"), 3);
    await db.set("text", "Hello World");
    equal(await db.getRange("text", -5, -1), "World");
    equal(await db.setRange("text", 6, "Redis"), 11);
    equal(await db.get("text"), "Hello Redis");
    equal(await db.getDel("a"), "123");
    equal(await db.type("text"), "string");
    equal(await db.del(["text", "none"]), 1);
  },
  async set_options() {
    equal(await db.set("a", "1", { condition: "XX" }), null);
    equal(await db.set("a", "1", { condition: "NX" }), "OK");
    equal(await db.set("a", "2", { condition: "NX" }), null);
    equal(await db.set("a", "3", { condition: "XX", GET: true }), "1");
    await db.set("a", "5", { expiration: { type: "EX", value: 100 } });
    await db.set("a", "6", { expiration: "KEEPTTL" });
    between(95, await db.ttl("a"), 100);
    await db.set("a", "7");
    equal(await db.ttl("a"), -1);
  },
  async many_keys() {
    equal(await db.mSet({ a: "1", b: "2", c: "3" }), "OK");
    equal(await db.mGet(["a", "none", "c"]), ["1", null, "3"]);
    equal(Number(await db.mSetNX({ d: "4", a: "5" })), 0);
    equal(await db.exists(["a", "a", "none"]), 2);
    equal(await db.unlink(["a", "b", "none"]), 2);
  },
  async counters() {
    equal(await db.incr("n"), 1);
    equal(await db.incrBy("n", 41), 42);
    equal(await db.decr("n"), 41);
    equal(await db.decrBy("n", 50), -9);
    equal(Number(await db.incrByFloat("f", 2.75)), 2.75);
    await db.set("n", "9223372036854775807");
    await fails("ERR increment or decrement would overflow", db.incr("n"));
    await db.set("text", "abc");
    await fails("ERR value is not an integer or out of range", db.incr("text"));
  },
  async expiry() {
    equal(await db.ttl("none"), -2);
    await db.set("a", "1", { expiration: { type: "PX", value: 100_000 } });
    between(95_000, await db.pTTL("a"), 100_000);
    equal(await db.persist("a"), 1);
    equal(await db.persist("a"), 0);
    equal(await db.expire("a", 50), 1);
    equal(await db.expire("a", 60, "NX"), 0);
    equal(await db.getEx("a", { type: "EX", value: 70 }), "1");
    between(65, await db.ttl("a"), 70);
    const at = Math.floor(Date.now() / 1000) + 200;
    equal(await db.expireAt("a", at), 1);
    equal(await db.expireTime("a"), at);
  },
  async waiting_for_expiry() {
    const began = performance.now();
    await db.set("short", "1", { expiration: { type: "PX", value: 300 } });
    await db.set("kept", "1", { expiration: { type: "PX", value: 200 } });
    equal(await db.persist("kept"), 1);
    equal(await db.get("short"), "1");
    await gone(() => db.exists("short"));
    between(290, performance.now() - began, 5000);
    equal(await db.get("short"), null);
    equal(await db.keys("*"), ["kept"]);
  },
  async pipelines() {
    const names = Array.from({ length: 2000 }, (_, n) => `key:${n}`);
    equal(new Set(await Promise.all(names.map((name, n) => db.set(name, String(n))))), new Set(["OK"]));
    equal(await Promise.all(names.map((name) => db.get(name))), names.map((_, n) => String(n)));
    equal(await Promise.all(names.map(() => db.incr("n"))), names.map((_, n) => n + 1));
    equal((await db.multi().set("a", "1").get("a").execAsPipeline()), ["OK", "1"]);
  },
  async transactions() {
    equal(await db.multi().set("a", "1").incr("a").mGet(["a", "none"]).expire("a", 100).exec(), ["OK", 2, ["2", null], 1]);
    between(95, await db.ttl("a"), 100);
  },
  async watch_succeeds() {
    await db.set("a", "10");
    await db.watch(["a", "b"]);
    const before = Number(await db.get("a"));
    equal(await db.multi().set("a", String(before * 2)).set("b", String(before)).exec(), ["OK", "OK"]);
    equal(await db.mGet(["a", "b"]), ["20", "10"]);
  },
  async watch_conflicts() {
    for (const change of [
      () => other.set("a", "2"),
      () => other.del("a"),
      () => other.set("a", "3", { expiration: { type: "PX", value: 1500 } }),
      () => gone(() => other.exists("a")),
    ]) {
      await db.watch("a");
      await change();
      const outcome = await db.multi().set("lost", "1").exec().catch((error) => error);
      equal(outcome instanceof WatchError, true);
    }
    equal(await db.get("lost"), null);
    await db.watch("a");
    await other.set("a", "4");
    await db.unwatch();
    equal(await db.multi().set("kept", "1").exec(), ["OK"]);
  },
  async keyspace() {
    const names = Array.from({ length: 500 }, (_, n) => `user:${n}`).sort();
    await Promise.all(names.map((name) => db.set(name, "x")));
    equal(await db.dbSize(), 500);
    equal((await db.keys("user:*")).sort(), names);
    const seen = new Set();
    for await (const page of db.scanIterator({ MATCH: "user:*", COUNT: 20 })) page.forEach((name) => seen.add(name));
    equal([...seen].sort(), names);
    equal(seen.has(await db.randomKey()), true);
    await db.flushDb();
    equal(await db.dbSize(), 0);
    equal(await db.randomKey(), null);
  },
  async errors() {
    await fails("ERR wrong number of arguments for 'get' command", db.sendCommand(["GET"]));
    await fails("ERR unknown command 'NOSUCH', with args beginning with: 'a' ", db.sendCommand(["NOSUCH", "a"]));
    await fails("ERR syntax error", db.sendCommand(["SET", "a", "1", "SIDEWAYS"]));
    await fails("ERR DB index is out of range", other.select(99));
    await fails("unknown command 'NOSUCH'", db.multi().set("a", "1").addCommand(["NOSUCH"]).exec());
    equal(await db.get("a"), null);
    if (!onRedis) {
      await db.set("text", "abc");
      const outcome = await db.multi().set("a", "1").incr("text").exec().catch((error) => error);
      equal(outcome instanceof ErrorReply, true);
      equal(outcome.message.startsWith("EXECABORT Transaction discarded because command 2 ('incr') failed: ERR"), true);
      equal(await db.get("a"), null);
    }
    equal(await db.ping(), "PONG");
  },
  async large_values() {
    const value = "0123456789abcdef".repeat(1 << 16);
    equal(await db.set("big", value), "OK");
    equal((await db.get("big")) === value, true);
    equal(await db.append("big", "tail"), value.length + 4);
    equal(await db.getRange("big", -8, -1), "cdeftail");
  },
};

const code = await run(checks, () => db.flushDb());
await Promise.all([db.close(), other.close()]);
process.exitCode = code;
