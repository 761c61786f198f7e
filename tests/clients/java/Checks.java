import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.BooleanSupplier;

/**
 * What the two programs of this folder share: every check starts on an empty database and prints {@code ok NAME} or
 * {@code FAILED NAME: why}; {@code end} comes last. See ../README.md.
 */
final class Checks {
    interface Action {
        void run() throws Exception;
    }

    static final boolean ON_REDIS = "redis".equals(System.getenv("CLIENTS_SERVER"));
    private final Map<String, Action> checks = new LinkedHashMap<>();

    void add(String name, Action check) {
        checks.put(name, check);
    }

    static void equal(Object found, Object expected) {
        if (!Objects.deepEquals(found, expected)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void between(long low, long found, long high) {
        if (found < low || found > high) {
            throw new AssertionError("expected " + low + " to " + high + ", found " + found);
        }
    }

    static void fails(String words, Action action) throws Exception {
        try {
            action.run();
        } catch (RuntimeException error) {
            if (!String.valueOf(error.getMessage()).contains(words)) {
                throw new AssertionError("expected an error with '" + words + "', found " + error);
            }
            return;
        }
        throw new AssertionError("expected an error with '" + words + "'");
    }

    static void gone(BooleanSupplier exists) throws InterruptedException {
        long deadline = System.nanoTime() + 5_000_000_000L;
        while (exists.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("the key is still there after 5 s");
            }
            Thread.sleep(10);
        }
    }

    /** Runs all of them and says with which code to exit. */
    int run(Action flush) {
        int failures = 0;
        for (var check : checks.entrySet()) {
            try {
                flush.run();
                check.getValue().run();
                System.out.println("ok " + check.getKey());
            } catch (Exception | AssertionError error) {
                failures++;
                System.out.println("FAILED " + check.getKey() + ": " + error);
            }
        }
        System.out.println("end");
        return failures == 0 ? 0 : 1;
    }
}
