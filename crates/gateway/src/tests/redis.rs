//! The same commands to this gateway and to a real Redis, answers compared byte for byte.
//!
//! Ignored by default, because it needs `redis-server` (7.0) on the path:
//! `cargo test -p timestone-gateway -- --ignored redis`. It starts one on a free loopback port, and
//! stops it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use timestone_types::random;

use super::world::{Client, World, encode, shown};

struct Redis {
    process: Child,
    stream: Option<TcpStream>,
}

impl Redis {
    fn start() -> Self {
        let port =
            TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let process = Command::new("redis-server")
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--databases",
                "1",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is on the path");
        // Stopped when dropped, whatever happens from here on.
        let mut redis = Self { process, stream: None };
        for _ in 0..100 {
            if let Ok(stream) = TcpStream::connect(format!("127.0.0.1:{port}")) {
                stream.set_read_timeout(Some(Duration::from_millis(2_000))).unwrap();
                redis.stream = Some(stream);
                return redis;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("redis-server did not come up");
    }

    /// Sends bytes, and reads until the answer to an ECHO behind them.
    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        const END: &[u8] = b"$8\r\nthe-end!\r\n";
        let stream = self.stream.as_mut().unwrap();
        stream.write_all(bytes).unwrap();
        stream.write_all(&encode(&["ECHO", "the-end!"])).unwrap();
        let mut answer = Vec::new();
        let mut piece = [0; 65_536];
        while !answer.ends_with(END) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "redis closed the connection: {}", shown(&answer));
            answer.extend_from_slice(&piece[..count]);
        }
        answer.truncate(answer.len() - END.len());
        answer
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn compare(
    redis: &mut Redis,
    world: &mut World,
    client: Client,
    command: &[&str],
    history: &[String],
) {
    let bytes = encode(command);
    let expected = redis.ask(&bytes);
    world.post(client, &bytes);
    let found = world.wait(client);
    assert_eq!(found, shown(&expected), "{command:?} after {history:?}");
}

/// Words to make commands of. Times to live are long, so that no test is slow enough to see one
/// pass.
const KEYS: &[&str] = &["a", "b", "c", "longer-key"];
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "10",
    "abc",
    "3.14",
    "1e3",
    "9223372036854775807",
    "-9223372036854775808",
    "01",
    " 1",
    "+1",
    "0x10",
    "inf",
    "hello world",
    "1.5e-3",
    "100000000000000000000",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "5",
    "-5",
    "100000",
    "x",
    "",
    "1.5",
    "9223372036854775807",
    "-9223372036854775808",
];

struct Dice(random::Dice);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.below(sides as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

fn random_command<'a>(dice: &mut Dice) -> Vec<&'a str> {
    const SHAPES: &[&str] = &[
        "GET k",
        "SET k v",
        "SET k v",
        "SET k v o",
        "SET k v o o",
        "SET k v t n",
        "SET k v o t n",
        "SET k v t n t n",
        "SET k v t n o t n",
        "GETDEL k",
        "GETEX k",
        "GETEX k t n",
        "GETEX k t n t n",
        "GETEX k t n PERSIST",
        "GETEX k PERSIST",
        "MGET k k k",
        "MSET k v k v",
        "MSETNX k v k v",
        "DEL k",
        "DEL k k",
        "UNLINK k",
        "EXISTS k k",
        "INCR k",
        "DECR k",
        "INCRBY k n",
        "DECRBY k n",
        "INCRBYFLOAT k v",
        "APPEND k v",
        "STRLEN k",
        "GETRANGE k n n",
        "SETRANGE k m v",
        "TYPE k",
        "PERSIST k",
        "SETNX k v",
        "GETSET k v",
        "SUBSTR k n n",
        "SETEX k n v",
        "TTL k",
        "EXPIRE k l",
        "EXPIRE k l e",
        "EXPIRE k l e e",
        "PERSIST k",
        "TOUCH k",
        "GET",
        "GET k k",
        "SET k",
        "MSET k v k",
        "INCR",
        "NOPE k",
        "SETRANGE k n",
        "EXPIRE k",
        "EXPIRE k n x",
        "PING",
        "PING v",
        "PING v v",
        "ECHO v",
        "ECHO",
        "SELECT 0",
        "SELECT 1",
        "SELECT n",
        "SELECT x",
        "MULTI",
        "EXEC",
        "DISCARD",
        "UNWATCH",
        "WATCH k",
        "WATCH",
        "CLIENT GETNAME",
        "CLIENT SETNAME k",
        "CLIENT NOPE",
        "CLIENT ID x",
        "CONFIG GET",
        "COMMAND NOPE",
        "AUTH x",
        "AUTH x y",
        "AUTH default y",
        "HELLO 9",
        "HELLO x",
        "HELLO 3 NOPE",
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 MATCH",
        "DBSIZE x",
        "FLUSHDB NOPE",
        "KEYS",
        "RESET",
    ];
    let shape = dice.pick(SHAPES);
    let mut arguments: Vec<&str> = shape.split(' ').collect();
    for word in arguments.iter_mut().skip(1) {
        *word = match *word {
            "k" => dice.pick(KEYS),
            "v" => dice.pick(VALUES),
            "n" => dice.pick(NUMBERS),
            "m" => dice.pick(&["0", "1", "3", "20", "-1", "x"]),
            "l" => dice.pick(&["100", "1000", "5000", "-1", "x", "9223372036854775807"]),
            "o" => dice.pick(&["NX", "XX", "GET", "KEEPTTL", "nope"]),
            "e" => dice.pick(&["NX", "XX"]),
            "t" => dice.pick(&["EX", "PX", "EXAT"]),
            other => other,
        };
    }
    // Times that pass while the test runs are left to the tables.
    let is_brief = |word: &&str| matches!(*word, "1" | "5");
    if arguments.iter().any(|word| matches!(*word, "EX" | "PX" | "EXAT" | "SETEX")) {
        for word in arguments.iter_mut().filter(|word| is_brief(word)) {
            *word = "100000000";
        }
    }
    arguments
}

#[test]
#[ignore = "needs redis-server 7.0 on the path"]
fn random_commands_are_answered_as_by_redis() {
    let seed = std::env::var("TIMESTONE_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x9e37_79b9);
    println!("TIMESTONE_TEST_SEED={seed}");
    let mut dice = Dice(random::Seed(seed).dice());
    let mut redis = Redis::start();
    for round in 0..20 {
        let mut world = World::new();
        let client = world.connect();
        redis.ask(&encode(&["RESET"]));
        redis.ask(&encode(&["FLUSHALL"]));
        if round % 2 == 1 {
            // The greeting itself names the server.
            let hello = encode(&["HELLO", "3"]);
            redis.ask(&hello);
            world.post(client, &hello);
            world.wait(client);
        }
        let mut history = Vec::new();
        let mut in_multi = false;
        for _ in 0..400 {
            let command = random_command(&mut dice);
            // Where the gateway differs on purpose: a failing command undoes a transaction, so
            // those hold only commands that do not fail.
            let name = command[0];
            if in_multi
                && !matches!(
                    name,
                    "GET"
                        | "SET"
                        | "MGET"
                        | "STRLEN"
                        | "EXISTS"
                        | "DEL"
                        | "EXEC"
                        | "DISCARD"
                        | "MULTI"
                        | "PING"
                        | "ECHO"
                        | "NOPE"
                        | "TYPE"
                )
                || in_multi && name == "SET" && command.len() != 3
            {
                continue;
            }
            in_multi = match name {
                "MULTI" if command.len() == 1 => true,
                "EXEC" | "DISCARD" | "RESET" => false,
                _ => in_multi,
            };
            // The bytes behind an ECHO inside MULTI are "+QUEUED": end the transaction's commands
            // in one piece.
            if in_multi {
                let mut batch = encode(&["MULTI"]);
                let mut world_batch = batch.clone();
                for _ in 0..dice.roll(5) {
                    let queued = [
                        &["GET", "a"][..],
                        &["SET", "b", "7"],
                        &["MGET", "a", "b"],
                        &["DEL", "c"],
                        &["STRLEN", "a"],
                    ][dice.roll(5)];
                    batch.extend(encode(queued));
                    world_batch.extend(encode(queued));
                }
                let end = if dice.roll(4) == 0 { "DISCARD" } else { "EXEC" };
                batch.extend(encode(&[end]));
                world_batch.extend(encode(&[end]));
                in_multi = false;
                let expected = redis.ask(&batch);
                world.post(client, &world_batch);
                assert_eq!(
                    world.wait(client),
                    shown(&expected),
                    "{} after {history:?}",
                    shown(&batch)
                );
                history.push("MULTI".to_owned());
                continue;
            }
            compare(&mut redis, &mut world, client, &command, &history);
            history.push(command.join(" "));
        }
    }
}

#[test]
#[ignore = "needs redis-server 7.0 on the path"]
fn lines_are_answered_as_by_redis() {
    let mut redis = Redis::start();
    for lines in [
        &b"foo! bar\r\n"[..],
        b"foo@bar\r\nfoo-bar-baz\x01\r\n",
        b"SET a \x01\x02\r\nGET a\r\n",
        b"SET k! \"\\x00\\x01\"\r\nGET k!\r\n",
        b"\r\n \x0bECHO 'a b'\r\n",
    ] {
        let expected = shown(&redis.ask(lines));
        for cut in 0..lines.len() {
            let mut world = World::new();
            let client = world.connect();
            for piece in [&lines[..cut], &lines[cut..]].into_iter().filter(|one| !one.is_empty()) {
                world.post(client, piece);
                world.settle();
            }
            assert_eq!(world.text(client), expected, "{} cut at {cut}", lines.escape_ascii());
        }
    }
}

/// Scripts of commands whose every answer must be Redis's.
const SCRIPTS: &[&[&str]] = &[
    &["MULTI", "MULTI", "SET a 1", "EXEC"],
    &["MULTI", "WATCH a", "SET a 1", "EXEC"],
    &["MULTI", "SET a", "SET a 1", "EXEC", "GET a"],
    &["MULTI", "NOPE x", "EXEC", "EXEC"],
    &["MULTI", "DISCARD", "DISCARD"],
    &["MULTI", "SET a 1", "CLIENT FOO", "EXEC", "GET a"],
    &["MULTI", "CLIENT SETNAME", "CLIENT GETNAME x", "CLIENT NO-EVICT", "CLIENT ID x", "EXEC"],
    &["MULTI", "CONFIG nope", "CONFIG GET", "CONFIG RESETSTAT x", "CONFIG HELP x", "EXEC"],
    &["MULTI", "COMMAND Nope", "COMMAND COUNT x", "COMMAND GETKEYS GET", "COMMAND HELP x", "EXEC"],
    &["MULTI", "CLIENT", "EXEC"],
    &[
        "CLIENT INFO x",
        "CLIENT HELP x",
        "CLIENT NO-EVICT on x",
        "CLIENT SETNAME a b",
        "CLIENT ID x",
    ],
    &[
        "MULTI",
        "UNWATCH",
        "SELECT 0",
        "PING",
        "ECHO x",
        "CLIENT SETNAME y",
        "CLIENT GETNAME",
        "EXEC",
    ],
    &["MULTI", "RESET", "EXEC"],
    &["MULTI", "SET p 1", "EXEC x", "EXEC", "GET p"],
    &["SET w 0", "WATCH w", "SET w 1", "EXEC x", "MULTI", "GET w", "EXEC"],
    &["SET w 0", "WATCH w", "SET w 1", "MULTI", "EXEC x y", "MULTI", "GET w", "EXEC"],
    &["SET w 0", "WATCH w", "SET w 1", "EXEC", "MULTI", "GET w", "EXEC"],
    &["MULTI", "NOPE", "EXEC x", "DISCARD x", "DISCARD"],
    &["WATCH a", "SET a 1", "MULTI", "GET a", "EXEC"],
    &["WATCH a", "MULTI", "EXEC"],
    &["WATCH a", "SET a 1", "MULTI", "EXEC"],
    &["WATCH a", "SET a 1", "MULTI", "NOPE", "EXEC", "MULTI", "GET a", "EXEC"],
    &["SET a 1", "WATCH a", "EXPIRE a 1000", "MULTI", "GET a", "EXEC"],
    &["WATCH missing", "DEL missing", "MULTI", "PING", "EXEC"],
    &["SET a 1", "WATCH a", "APPEND a ", "MULTI", "PING", "EXEC"],
    &["WATCH a", "APPEND a ", "MULTI", "PING", "EXEC", "EXISTS a"],
    &["SET a 1", "WATCH a", "SETRANGE a 0 ", "MULTI", "PING", "EXEC"],
    &[
        "SET a 1 PXAT 9000000000000",
        "WATCH a",
        "GETEX a PXAT 9000000000000",
        "MULTI",
        "PING",
        "EXEC",
    ],
    &["SET a 1 PXAT 9000000000000", "WATCH a", "GETEX a PERSIST", "MULTI", "PING", "EXEC"],
    &["SET a 1 PXAT 9000000000000", "WATCH a", "GETEX a", "MULTI", "PING", "EXEC"],
    &["SET a 1", "WATCH a", "GETEX a PERSIST", "MULTI", "PING", "EXEC"],
    &["WATCH missing", "SET missing 1", "DEL missing", "MULTI", "PING", "EXEC"],
    &["SET a 1", "GETEX a EX 1000", "TTL a", "SET a 2 KEEPTTL", "TTL a", "GETSET a 3", "TTL a"],
    &[
        "SET a 1 EX 10 EX 2000",
        "TTL a",
        "SET a 1 EX 10 PX 2000",
        "SET a 1 PX 10 NX PX 2000000",
        "SET a 1 PX x XX PX 2000000",
        "TTL a",
        "GETEX a PX 5000 PX 90000000",
        "TTL a",
        "GETEX a PX 5000 EX 90",
        "GETEX a PERSIST PERSIST",
        "TTL a",
    ],
    &[
        "SET a 1 EX 1000",
        "INCR a",
        "APPEND a 5",
        "SETRANGE a 0 9",
        "INCRBYFLOAT a 1",
        "TTL a",
        "PERSIST a",
        "TTL a",
    ],
    &[
        "SET a 5",
        "EXPIRE a 100 GT",
        "EXPIRE a 100 LT",
        "EXPIRE a 200 GT",
        "EXPIRE a 50 LT XX",
        "EXPIRE a 9 NX GT",
        "EXPIRE a 9 LT GT",
    ],
    &["SET a 5", "EXPIRE a 0", "GET a", "TTL a", "EXISTS a"],
    &[
        "SET a 5",
        "PEXPIREAT a 253402300799000",
        "PEXPIREAT a 253402300799000 GT",
        "PEXPIREAT a 253402300799000 LT",
        "EXPIREAT a 18446744073 LT",
        "EXPIREAT a 253402300799 GT",
        "EXPIREAT a 253402300799 GT",
    ],
    &["NOPE", "nope a b c", "CLIENT", "CLIENT NOPE", "CONFIG", "CONFIG NOPE", "COMMAND NOPE"],
    &[
        "CLIENT NO-EVICT on",
        "CLIENT NO-EVICT x",
        "CLIENT LIST ID x",
        "CLIENT LIST NOPE x",
        "CLIENT LIST TYPE x",
    ],
    &[
        "SCAN 0",
        "SCAN 0 TYPE string",
        "KEYS *",
        "DBSIZE",
        "RANDOMKEY",
        "SET a 1",
        "KEYS *",
        "DBSIZE",
        "RANDOMKEY",
    ],
    &["SCAN -1", "SCAN +0", "SCAN ", "SCAN -0", "SCAN 00", "SCAN -", "SCAN + COUNT 1", "SCAN --1"],
    &["SCAN 18446744073709551616", "SCAN -18446744073709551616", "SCAN -18446744073709551615"],
    &[
        "COMMAND LIST FILTERBY PATTERN getr*",
        "COMMAND LIST FILTERBY PATTERN GETR*",
        "COMMAND LIST filterby pattern nope*",
        "COMMAND LIST FILTERBY MODULE x",
        "COMMAND LIST FILTERBY MODULE",
        "COMMAND LIST FILTERBY ACLCAT nope",
        "COMMAND LIST FILTERBY ACLCAT @read",
        "COMMAND LIST FILTERBY NOPE x",
        "COMMAND LIST FILTERBY PATTERN a b",
        "COMMAND LIST x",
    ],
    &["CLIENT LIST ID 0", "CLIENT LIST ID -1 0", "CLIENT LIST ID 0 x", "CLIENT LIST ID"],
    &[
        "SELECT 99999999999",
        "SELECT -99999999999",
        "SELECT 2147483648",
        "SELECT 2147483647",
        "SELECT -2147483649",
        "SELECT -2147483648",
        "SELECT -1",
        "SELECT 9223372036854775808",
        "SELECT 0",
    ],
    &["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB SYNC", "FLUSHALL", "FLUSHDB a b"],
    &[
        "COMMAND GETKEYS MSET a 1 b 2",
        "COMMAND GETKEYS PING",
        "COMMAND GETKEYS NOPE",
        "COMMAND INFO nope",
    ],
];

#[test]
#[ignore = "needs redis-server 7.0 on the path"]
fn scripts_are_answered_as_by_redis() {
    let mut redis = Redis::start();
    for dialect in ["2", "3"] {
        for script in SCRIPTS {
            let mut world = World::new();
            let client = world.connect();
            let hello = encode(&["HELLO", dialect]);
            redis.ask(&encode(&["FLUSHALL"]));
            redis.ask(&hello);
            world.post(client, &hello);
            world.wait(client);
            let mut bytes = Vec::new();
            script
                .iter()
                .for_each(|line| bytes.extend(encode(&line.split(' ').collect::<Vec<_>>())));
            let expected = shown(&redis.ask(&bytes));
            world.post(client, &bytes);
            world.pass(Duration::from_millis(10));
            let found = world.text(client);
            // A cursor is a shard's business.
            let found = found.replace("$15|140737488355328|", "$1|0|");
            assert_eq!(found, expected, "{script:?} in RESP{dialect}");
        }
    }
}
