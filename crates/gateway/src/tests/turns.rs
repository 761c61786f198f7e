//! What the commands of one client cost others within a turn, what stays behind of long ones, and
//! how long error texts get.

use timestone_types::ClientId;

use super::world::{World, connected, encode, shown};
use crate::limits::{EXEC_BYTES_AT_ONCE, KEPT_BUFFER_BYTES};

#[test]
fn answers_of_local_commands_count_for_the_commands_that_a_connection_has_in_a_turn() {
    const CLIENTS: usize = 300;
    const ASKED: usize = 80;
    let mut world = World::new();
    let clients: Vec<_> = (0..CLIENTS).map(|_| world.connect()).collect();
    world.settle();
    let (busy, other) = (clients[0], clients[1]);
    world.post(busy, &encode(&["CLIENT", "LIST"]).repeat(ASKED));
    world.post(other, b"PING\r\n");
    world.step();
    assert_eq!(world.sent(other), b"+PONG\r\n", "who asked behind it is answered in the same turn");
    let lines = |bytes: &[u8]| bytes.windows(3).filter(|part| part == b"id=").count();
    let first = lines(&world.sent(busy));
    assert!((CLIENTS..ASKED * CLIENTS).contains(&first), "{first} lines in one turn");
    world.settle();
    assert_eq!(first + lines(&world.sent(busy)), ASKED * CLIENTS, "all are answered in the end");
}

#[test]
fn client_list_tells_of_the_clients_that_are_asked_for() {
    let mut world = World::new();
    let clients: Vec<_> = (0..5).map(|_| world.connect()).collect();
    let ids: Vec<String> = clients
        .iter()
        .map(|&client| world.ask(client, "CLIENT ID").replace([':', '|'], ""))
        .collect();
    let listed = |text: &str| -> Vec<String> {
        let lines = text.split("id=").skip(1);
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let asked = format!("CLIENT LIST ID {} {} {} 987654", ids[3], ids[1], ids[3]);
    assert_eq!(listed(&world.ask(clients[0], &asked)), [ids[1].clone(), ids[3].clone()]);
    assert_eq!(listed(&world.ask(clients[0], "CLIENT LIST")), ids);
    assert_eq!(listed(&world.ask(clients[0], "CLIENT LIST TYPE normal")), ids);
    assert_eq!(listed(&world.ask(clients[0], "CLIENT LIST TYPE pubsub")), [""; 0]);
    world.disconnect(clients[3]);
    assert_eq!(
        listed(&world.ask(clients[0], &asked)),
        [ids[1].clone()],
        "who is gone is not told of"
    );
    assert!(world.ask(clients[0], "INFO clients").contains("connected_clients:4|"));
    let last = world.connect();
    assert!(world.ask(last, "INFO clients").contains("connected_clients:5|"));
}

#[test]
fn a_key_that_no_command_may_have_is_named_with_its_command_by_exec() {
    let mut world = World::new();
    let client = world.connect();
    let long = vec![b'k'; 65_537];
    let cases: [(&[&[u8]], &str); 4] = [
        (&[b"GET", b""], "get"),
        (&[b"MGET", b"a", b"", b"b"], "mget"),
        (&[b"STRLEN", &long], "strlen"),
        (&[b"APPEND", b"", b"x"], "append"),
    ];
    for (command, name) in cases {
        world.post(client, b"MULTI\r\nSET a 1\r\n");
        world.post(client, &encode(command));
        world.post(client, b"EXEC\r\n");
        let answer = world.wait(client);
        let head = format!(
            "+OK|+QUEUED|+QUEUED|-EXECABORT Transaction discarded because command 2 ('{name}') \
             failed: ERR "
        );
        assert!(answer.starts_with(&head), "{answer}");
        assert_eq!(world.ask(client, "GET a"), "$-1|", "nothing was written");
    }
}

#[test]
fn error_texts_quote_no_more_than_128_bytes_of_an_argument() {
    let mut world = World::new();
    let client = world.connect();
    let long = vec![b'x'; 100_000];
    let commands: [&[&[u8]]; 7] = [
        &[b"SET", b"k", b"v", &long],
        &[b"EXPIRE", b"k", b"10", &long],
        &[b"HELLO", b"3", &long],
        &[b"CLIENT", b"SETINFO", &long, b"v"],
        &[b"CLIENT", b"LIST", b"TYPE", &long],
        &[b"CLIENT", &long],
        &[&long],
    ];
    for command in commands {
        world.post(client, &encode(command));
        let answer = world.wait(client);
        assert!(
            answer.starts_with("-ERR ") && answer.len() < 260,
            "{} bytes: {}",
            answer.len(),
            &answer[..100]
        );
    }
}

#[test]
fn patterns_of_config_get_are_as_long_as_those_of_keys_at_most() {
    let mut world = World::new();
    let client = world.connect();
    let pattern = [&b"["[..], &vec![b'a'; 1024]].concat();
    for command in [&[&b"CONFIG"[..], b"GET", b"save", &pattern][..], &[b"KEYS", &pattern]] {
        world.post(client, &encode(command));
        assert_eq!(world.wait(client), "-ERR the pattern is longer than 1024 bytes|");
    }
}

fn config_get(patterns: &[&[u8]]) -> Vec<u8> {
    encode(&[&[&b"CONFIG"[..], b"GET"], patterns].concat())
}

/// What comes before a pattern.
const CONFIG_GET: [&[u8]; 2] = [b"CONFIG", b"GET"];
const COMMAND_LIST: [&[u8]; 4] = [b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN"];

/// What CONFIG GET of so many short patterns is answered.
fn many_patterns(count: usize) -> String {
    let mut world = World::new();
    let client = world.connect();
    world.post(client, &config_get(&vec![&b"no"[..]; count]));
    world.wait(client)
}

#[test]
fn patterns_of_config_get_are_bounded_in_all() {
    let refused = "-ERR the patterns have more than 4096 bytes in all, one for each of them \
                   included: ask for fewer at a time|";
    assert_eq!(many_patterns(65_000), refused);
    assert_eq!(many_patterns(4096 / 3), "*0|");
    let mut world = World::new();
    let client = world.connect();
    let long = [b'?'; 1023];
    for (count, expected) in [(1000, refused), (5, refused), (4, "*0|")] {
        world.post(client, &config_get(&vec![&long[..]; count]));
        assert_eq!(world.wait(client), expected, "{count} long patterns");
    }
    world.post(client, &config_get(&vec![&b""[..]; 4097]));
    assert_eq!(world.wait(client), refused, "empty ones count");
    assert_eq!(
        world.ask(client, "CONFIG GET sa?e MAXMEMORY* save nope"),
        "*6|$9|maxmemory|$1|0|$16|maxmemory-policy|$10|noeviction|$4|save|$0||"
    );
}

/// How many of 80 commands (CONFIG GETs, say) with 1000 wildcards each are answered in the turn in
/// which they come; another client is answered as well, and all of them are in the end.
fn patterns_in_a_turn(command: &[&[u8]]) -> usize {
    const ASKED: usize = 80;
    let mut world = World::new();
    let (busy, other) = (world.connect(), world.connect());
    world.settle();
    let wildcards: &[u8] = &[b'?'; 1000];
    world.post(busy, &encode(&[command, &[wildcards]].concat()).repeat(ASKED));
    world.post(other, b"PING\r\n");
    world.step();
    assert_eq!(world.sent(other), b"+PONG\r\n");
    let first = world.sent(busy).len() / b"*0\r\n".len();
    world.settle();
    let rest = world.sent(busy).len() / b"*0\r\n".len();
    assert_eq!(first + rest, ASKED, "all are answered in the end");
    first
}

#[test]
fn what_patterns_cost_counts_for_the_commands_that_a_connection_has_in_a_turn() {
    for command in [&CONFIG_GET[..], &COMMAND_LIST] {
        let first = patterns_in_a_turn(command);
        // Three are more than its share: of when they come, and of when it goes on in the same turn.
        assert!((1..=6).contains(&first), "{first} of {command:?} in one turn");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_takes_any_number_of_patterns_is_found_out() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::BoundlessPatterns, || many_patterns(5_000)), "*0|");
    assert_eq!(with(Bug::BoundlessPatterns, || patterns_in_a_turn(&CONFIG_GET)), 80);
}

#[test]
fn what_a_long_command_needed_is_given_back_after_the_turn() {
    let (mut parts, index, _, now) = connected();
    let long = vec![b'x'; 4 * 1024 * 1024];
    parts.received(now, index, encode(&[&b"ECHO"[..], &long]));
    parts.run(now);
    let answer = parts.connections.get_mut(index).unwrap().replies.take().unwrap();
    assert!(answer.len() > long.len(), "{}", shown(&answer[..20]));
    let kept = parts.kept_bytes();
    assert!(kept <= 2 * KEPT_BUFFER_BYTES, "{kept} bytes are kept");
}

#[test]
fn a_transaction_that_a_new_client_id_has_ended_begins_again() {
    let (mut parts, index, _, now) = connected();
    let long = vec![b'x'; 2 * EXEC_BYTES_AT_ONCE];
    let long = encode(&[&b"ECHO"[..], &long]);
    parts.received(now, index, [b"MULTI\r\n", &long[..], b"EXEC\r\n"].concat());
    parts.received(now, index, b"MULTI\r\nSET a 1\r\nEXEC\r\n".to_vec());
    parts.run(now);
    assert!(parts.goes_on(), "the second one has begun, and waits for the next turn");
    let answers = |parts: &mut crate::parts::Parts| {
        let replies = &mut parts.connections.get_mut(index).unwrap().replies;
        std::iter::from_fn(|| replies.take()).map(|answer| answer.len()).sum::<usize>()
    };
    assert!(answers(&mut parts) > 2 * EXEC_BYTES_AT_ONCE, "the first one is answered");
    // The server has ended the gateway's session.
    parts.backend.engine().renew_client(now, ClientId::new(77));
    parts.tick(now);
    parts.run(now);
    assert_eq!(answers(&mut parts), 0, "it is neither answered nor refused");
    let again = parts.next_deadline().unwrap();
    assert!(again > now && again < now.saturating_add(core::time::Duration::from_secs(1)));
    parts.tick(again);
    parts.run(again);
    assert!(parts.backend.engine_ref().unresolved() > 0, "its write is on its way");
    assert_eq!(answers(&mut parts), 0);
}
