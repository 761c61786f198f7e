//! Commands that are carried out by calls: what they answer, and in which order, is what it is
//! without calls.

use timestone_types::random;

use super::world::{SHARDS, World, encode, shown};

/// A pipeline of GETs, SETs and others on few keys, and its answers one after the other.
fn pipeline(dice: &mut random::Dice, length: u32) -> (Vec<u8>, String) {
    let (mut bytes, mut answers) = (Vec::new(), String::new());
    let mut keys: [Option<String>; 5] = Default::default();
    for n in 0..length {
        let key = dice.roll() as usize % keys.len();
        let (name, value) = (format!("key{key}"), format!("{}", dice.roll() % 1000));
        let arguments = match dice.roll() % 8 {
            0..3 => {
                keys[key] = Some(value.clone());
                answers.push_str("+OK|");
                vec!["SET".to_owned(), name, value]
            }
            3..6 => {
                answers.push_str(&bulk(keys[key].as_deref()));
                vec!["get".to_owned(), name]
            }
            6 => {
                let sum = keys[key].as_ref().map_or(0, |old| old.parse::<u64>().unwrap()) + 7;
                keys[key] = Some(sum.to_string());
                answers.push_str(&format!(":{sum}|"));
                vec!["INCRBY".to_owned(), name, "7".to_owned()]
            }
            _ => {
                answers.push_str(&bulk(Some(&n.to_string())));
                vec!["ECHO".to_owned(), n.to_string()]
            }
        };
        bytes.extend_from_slice(&encode(&arguments));
    }
    (bytes, answers)
}

fn bulk(value: Option<&str>) -> String {
    value.map_or("$-1|".to_owned(), |value| format!("${}|{value}|", value.len()))
}

#[test]
fn pipelines_are_answered_in_order_whatever_is_called_and_whatever_is_not() {
    let worlds = [(0, 1), (SHARDS, 1), (SHARDS, 2), (2, 3), (SHARDS, 1_000_000)];
    for ((called, hesitation), seed) in
        worlds.into_iter().flat_map(|one| (0..40).map(move |n| (one, n)))
    {
        let mut dice = random::Seed(seed).dice();
        let mut world = World::calling(called, hesitation);
        let client = world.connect();
        // Longer than what is collected for one call, and than what may be under way.
        let (bytes, expected) = pipeline(&mut dice, 300);
        let cut = dice.roll() as usize % bytes.len();
        world.post(client, &bytes[..cut]);
        world.settle();
        world.post(client, &bytes[cut..]);
        let mut answers = shown(&world.output(client));
        while answers.len() < expected.len() {
            answers.push_str(&world.wait(client));
        }
        let same = answers.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other);
        let same = same.count();
        assert!(
            answers == expected,
            "{called} called, 1 of {hesitation}, seed {seed}: {:.60} instead of {:.60}",
            &answers[same..],
            &expected[same..]
        );
        let calls = world.wishes.lock().unwrap().called;
        assert_eq!(calls > 0, called > 0 && hesitation < 1_000, "{calls} calls");
    }
}

#[test]
fn what_is_called_needs_no_frame() {
    let mut world = World::calling(SHARDS, 1);
    let client = world.connect();
    world.post(client, &encode(&["SET", "k", "v"]));
    world.post(client, &encode(&["GET", "k"]));
    assert_eq!(world.text(client), "+OK|$1|v|");
    let seen = world.wishes.lock().unwrap().seen.clone();
    assert!(!seen.contains_key("get") && !seen.contains_key("write"), "{seen:?}");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn a_client_that_leaves_takes_no_command_of_others_along() {
    let mut world = World::calling(SHARDS, 2);
    let (one, other) = (world.connect(), world.connect());
    let bytes = [encode(&["SET", "k", "v"]), encode(&["GET", "k"])].concat().repeat(20);
    world.post(one, &bytes);
    world.post(other, &bytes);
    world.disconnect(one);
    let third = world.connect();
    world.post(third, &encode(&["GET", "k"]));
    assert_eq!(world.wait(third), "$1|v|");
    world.pass(core::time::Duration::from_millis(100));
    assert_eq!(world.text(other), "+OK|$1|v|".repeat(20));
    assert_eq!(world.admitted(), [(0, 0); 2]);
}
