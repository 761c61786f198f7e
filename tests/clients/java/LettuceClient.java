import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;

/** Drives a server with Lettuce: LettuceClient HOST PORT. */
final class LettuceClient {
    public static void main(String[] args) {
        var client = RedisClient.create(RedisURI.create(args[0], Integer.parseInt(args[1])));
        int code;
        try (var one = client.connect(); var two = client.connect()) {
            code = checks(one.sync(), two.sync()).run(one.sync()::flushdb);
        }
        client.shutdown(0, 1, TimeUnit.SECONDS);
        System.exit(code);
    }

    private static Checks checks(RedisCommands<String, String> db, RedisCommands<String, String> other) {
        var checks = new Checks();
        checks.add("strings", () -> {
            Checks.equal(db.ping(), "PONG");
            Checks.equal(db.get("a"), null);
            Checks.equal(db.set("a", "1"), "OK");
            Checks.equal(db.append("a", "23"), 3L);
            db.set("text", "Hello World");
            Checks.equal(db.getrange("text", -5, -1), "World");
            Checks.equal(db.setrange("text", 6, "Redis"), 11L);
            Checks.equal(db.getdel("a"), "123");
            Checks.equal(db.set("a", "1", SetArgs.Builder.xx()), null);
            Checks.equal(db.set("a", "1", SetArgs.Builder.nx().ex(100)), "OK");
            Checks.equal(db.setGet("a", "2", SetArgs.Builder.keepttl()), "1");
            Checks.between(95, db.ttl("a"), 100);
        });
        checks.add("many_keys_and_counters", () -> {
            Checks.equal(db.mset(Map.of("a", "1", "b", "2")), "OK");
            Checks.equal(db.mget("a", "none"), List.of(KeyValue.just("a", "1"), KeyValue.empty("none")));
            Checks.equal(db.incrby("a", 41), 42L);
            Checks.equal(db.decr("a"), 41L);
            Checks.equal(db.incrbyfloat("f", 2.75), 2.75);
            Checks.equal(db.unlink("a", "b", "none"), 2L);
        });
        checks.add("expiry", () -> {
            db.psetex("short", 1500, "1");
            db.psetex("kept", 1500, "1");
            Checks.equal(db.persist("kept"), true);
            Checks.equal(db.get("short"), "1");
            Checks.gone(() -> db.exists("short") > 0);
            Checks.equal(db.pttl("short"), -2L);
            Checks.equal(db.keys("*"), List.of("kept"));
        });
        checks.add("pipelines", () -> {
            var async = db.getStatefulConnection().async();
            var answers = new ArrayList<io.lettuce.core.RedisFuture<Long>>();
            for (int n = 0; n < 2000; n++) {
                async.set("key:" + n, "x");
                answers.add(async.incr("n"));
            }
            Checks.equal(answers.get(1999).get(20, TimeUnit.SECONDS), 2000L);
        });
        checks.add("transactions", () -> {
            db.watch("a");
            db.multi();
            db.set("a", "1");
            db.incr("a");
            Checks.equal(db.exec().stream().toList(), List.of("OK", 2L));
            db.watch("a");
            other.set("a", "9");
            db.multi();
            db.set("lost", "1");
            Checks.equal(db.exec().wasDiscarded(), true);
            other.psetex("a", 1500, "9");
            db.watch("a");
            Checks.gone(() -> other.exists("a") > 0);
            db.multi();
            db.set("lost", "1");
            Checks.equal(db.exec().wasDiscarded(), true);
            db.multi();
            db.set("lost", "1");
            db.discard();
            Checks.equal(db.get("lost"), null);
        });
        checks.add("keyspace", () -> {
            for (int n = 0; n < 300; n++) {
                db.set("user:" + n, "x");
            }
            Checks.equal(db.dbsize(), 300L);
            var seen = new TreeSet<String>();
            ScanIterator.scan(db, ScanArgs.Builder.matches("user:*").limit(20)).forEachRemaining(seen::add);
            Checks.equal(seen, new TreeSet<>(db.keys("user:*")));
            Checks.equal(seen.size(), 300);
        });
        checks.add("errors", () -> {
            db.set("text", "abc");
            Checks.fails("ERR value is not an integer or out of range", () -> db.incr("text"));
            if (!Checks.ON_REDIS) {
                Checks.fails("ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' ", () -> db.lpush("a", "b"));
                db.multi();
                db.set("a", "1");
                db.incr("text");
                Checks.fails("EXECABORT Transaction discarded because command 2 ('incr') failed", db::exec);
                Checks.equal(db.get("a"), null);
            }
        });
        return checks;
    }
}
