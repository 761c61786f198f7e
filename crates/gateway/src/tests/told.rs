//! Commands that touch no key, and lines that are no command: what a client is told.

use super::world::World;

#[test]
fn numbers_out_of_range_are_told_as_redis_tells_them() {
    let mut world = World::new();
    let client = world.connect();
    let range =
        "-ERR value is out of range, value must between -2147483648 and 2147483647|".to_owned();
    assert_eq!(world.ask(client, "SELECT 99999999999; SELECT -2147483649"), range.repeat(2));
    let index = "-ERR DB index is out of range|";
    assert_eq!(world.ask(client, "SELECT 2147483647; SELECT -1"), index.repeat(2));
    let listed = world.ask(client, "CLIENT LIST ID 0; CLIENT LIST ID -1; CLIENT LIST ID x");
    assert_eq!(listed, "$0||$0||-ERR Invalid client ID|");
}

#[test]
fn a_scan_with_a_negative_or_an_empty_cursor_begins_anew() {
    let mut world = World::new();
    let client = world.connect();
    world.ask(client, "SET a 1");
    let from_the_beginning = world.ask(client, "SCAN 0 COUNT 1000");
    for cursor in ["-1", "+0", "''", "-18446744073709551615"] {
        let answer = world.ask(client, &format!("SCAN {cursor} COUNT 1000"));
        assert_eq!(answer, from_the_beginning, "{cursor}");
    }
}
