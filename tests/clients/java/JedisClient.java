import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;

/** Drives a server with Jedis: JedisClient HOST PORT. */
final class JedisClient {
    public static void main(String[] args) {
        var port = Integer.parseInt(args[1]);
        int code;
        try (var db = new Jedis(args[0], port, 20_000); var other = new Jedis(args[0], port, 20_000)) {
            code = checks(db, other).run(db::flushDB);
        }
        System.exit(code);
    }

    private static Checks checks(Jedis db, Jedis other) {
        var checks = new Checks();
        checks.add("strings", () -> {
            Checks.equal(db.ping(), "PONG");
            Checks.equal(db.get("a"), null);
            Checks.equal(db.set("a", "1"), "OK");
            Checks.equal(db.append("a", "23"), 3L);
            Checks.equal(db.strlen("a"), 3L);
            db.set("text", "Hello World");
            Checks.equal(db.getrange("text", -5, -1), "World");
            Checks.equal(db.setrange("text", 6, "Redis"), 11L);
            Checks.equal(db.get("text"), "Hello Redis");
            Checks.equal(db.getDel("a"), "123");
            byte[] binary = {0, 1, -1, 13, 10};
            db.set(binary, binary);
            Checks.equal(db.get(binary), binary);
        });
        checks.add("set_options", () -> {
            Checks.equal(db.set("a", "1", SetParams.setParams().xx()), null);
            Checks.equal(db.set("a", "1", SetParams.setParams().nx().ex(100)), "OK");
            Checks.equal(db.set("a", "2", SetParams.setParams().keepTtl()), "OK");
            Checks.between(95, db.ttl("a"), 100);
            Checks.equal(db.setGet("a", "3"), "2");
            Checks.equal(db.ttl("a"), -1L);
        });
        checks.add("many_keys_and_counters", () -> {
            Checks.equal(db.mset("a", "1", "b", "2"), "OK");
            Checks.equal(db.mget("a", "none", "b"), Arrays.asList("1", null, "2"));
            Checks.equal(db.msetnx("a", "1", "c", "2"), 0L);
            Checks.equal(db.incrBy("a", 41), 42L);
            Checks.equal(db.decr("a"), 41L);
            Checks.equal(db.incrByFloat("f", 2.75), 2.75);
            Checks.equal(db.del("a", "b", "none"), 2L);
        });
        checks.add("expiry", () -> {
            db.set("short", "1", SetParams.setParams().px(1500));
            db.set("kept", "1", SetParams.setParams().px(1500));
            Checks.equal(db.persist("kept"), 1L);
            Checks.equal(db.get("short"), "1");
            Checks.gone(() -> db.exists("short"));
            Checks.equal(db.ttl("short"), -2L);
            Checks.equal(db.keys("*"), Set.of("kept"));
        });
        checks.add("pipelines", () -> {
            var pipe = db.pipelined();
            for (int n = 0; n < 2000; n++) {
                pipe.set("key:" + n, String.valueOf(n));
                pipe.incr("n");
            }
            var answers = pipe.syncAndReturnAll();
            Checks.equal(answers.size(), 4000);
            Checks.equal(answers.get(3999), 2000L);
        });
        checks.add("transactions", () -> {
            db.watch("a");
            var transaction = db.multi();
            transaction.set("a", "1");
            transaction.incr("a");
            Checks.equal(transaction.exec(), List.of("OK", 2L));
            db.watch("a");
            other.set("a", "9");
            transaction = db.multi();
            transaction.set("lost", "1");
            Checks.equal(transaction.exec(), null);
            Checks.equal(db.get("lost"), null);
            other.set("a", "9", SetParams.setParams().px(1500));
            db.watch("a");
            Checks.gone(() -> other.exists("a"));
            transaction = db.multi();
            transaction.set("lost", "1");
            Checks.equal(transaction.exec(), null);
            transaction = db.multi();
            transaction.set("lost", "1");
            transaction.discard();
            Checks.equal(db.get("lost"), null);
        });
        checks.add("keyspace", () -> {
            for (int n = 0; n < 300; n++) {
                db.set("user:" + n, "x");
            }
            Checks.equal(db.dbSize(), 300L);
            var seen = new TreeSet<String>();
            var cursor = ScanParams.SCAN_POINTER_START;
            do {
                var page = db.scan(cursor, new ScanParams().match("user:*").count(20));
                seen.addAll(page.getResult());
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            Checks.equal(seen, new TreeSet<>(db.keys("user:*")));
            Checks.equal(seen.size(), 300);
        });
        checks.add("errors", () -> {
            db.set("text", "abc");
            Checks.fails("ERR value is not an integer or out of range", () -> db.incr("text"));
            Checks.fails("ERR wrong number of arguments for 'get' command", () -> db.sendCommand(Protocol.Command.GET));
            Checks.fails("ERR unknown command 'XNOSUCH'", () -> db.sendCommand(() -> "XNOSUCH".getBytes(), "a"));
            if (!Checks.ON_REDIS) {
                var transaction = db.multi();
                transaction.set("a", "1");
                transaction.incr("text");
                Checks.fails("EXECABORT Transaction discarded because command 2 ('incr') failed", transaction::exec);
                Checks.equal(db.get("a"), null);
            }
        });
        return checks;
    }
}
