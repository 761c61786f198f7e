//! The flash devices that a server can be told to use: in memory, where everything is gone with the
//! process, and zoned ones, of which this machine has none.

use crate::resp::{Reply, Resp};
use crate::server::{NodeSetup, test_folder};

/// The answer to one command.
fn ask(resp: &mut Resp, words: &[&str]) -> Reply {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    resp.call(&words).expect("an answer")
}

fn connect(place: &NodeSetup) -> Resp {
    Resp::connect(place.resp).expect("a connection")
}

fn value(key: u32) -> String {
    format!("{key}-").repeat(40)
}

fn put_and_get(resp: &mut Resp, keys: u32) {
    for key in 0..keys {
        assert!(ask(resp, &["SET", &format!("key-{key}"), &value(key)]).is_ok());
    }
    for key in 0..keys {
        let got = ask(resp, &["GET", &format!("key-{key}")]);
        assert_eq!(got, Reply::Bulk(value(key).into_bytes()));
    }
}

#[test]
fn a_server_with_flash_in_memory_serves_once_and_its_directory_is_refused_from_then_on() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data")
        .with("--device", "emulated")
        .with("--capacity", "256MiB")
        .with("--cache", "1MiB");
    let node = place.start();
    put_and_get(&mut connect(&place), 3000);
    let text = node.text();
    assert!(text.contains("gone when the process ends"), "it warns:\n{text}");
    node.kill();
    for device in ["emulated", "file", "zoned:/dev/null"] {
        let (code, text) = place.with("--device", device).refused();
        assert_ne!(code, 0, "{text}");
        assert!(text.contains("--device emulated") && text.contains("is gone"), "{text}");
    }
    // Another directory begins empty.
    let fresh = place.at(folder.path().join("fresh"));
    let node = fresh.start();
    let mut resp = connect(&fresh);
    assert_eq!(ask(&mut resp, &["GET", "key-1"]), Reply::Nil);
    put_and_get(&mut resp, 100);
    node.stop();
    let (code, text) = fresh.refused();
    assert!(code != 0 && text.contains("is gone"), "also after a graceful stop: {text}");
}

#[test]
fn a_directory_of_files_is_not_opened_as_anything_else() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    put_and_get(&mut connect(&place), 10);
    node.stop();
    for device in ["emulated", "zoned:/dev/null"] {
        let (code, text) = place.with("--device", device).refused();
        assert_ne!(code, 0, "{text}");
        assert!(text.contains("was created with --device file"), "{text}");
    }
    let node = place.start();
    let mut resp = connect(&place);
    assert_eq!(ask(&mut resp, &["GET", "key-3"]), Reply::Bulk(value(3).into_bytes()));
    node.stop();
}

#[test]
fn flash_in_memory_is_for_one_server_alone() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data").with("--device", "emulated");
    for (flag, value) in [("--replication", "3"), ("--master", "timestone://127.0.0.1:9")] {
        let (code, text) = place.with(flag, value).refused();
        assert_ne!(code, 0, "{text}");
        assert!(text.contains("for trials of one server"), "{text}");
        assert!(!place.data.exists(), "nothing was created");
    }
}

#[test]
fn what_is_no_zoned_device_is_refused_and_nothing_is_created() {
    let folder = test_folder();
    let file = folder.path().join("precious");
    std::fs::write(&file, [7; 8192]).expect("a file");
    let place = NodeSetup::new(folder.path(), "data");
    let device = format!("zoned:{}", file.display());
    let (code, text) = place.with("--device", &device).refused();
    assert_ne!(code, 0, "{text}");
    assert!(text.contains("precious") && text.contains("not a block device"), "{text}");
    assert_eq!(std::fs::read(&file).expect("it is there"), [7; 8192]);
    assert!(!place.data.exists(), "nothing was created");
    let two = format!("{device},/dev/null");
    let (code, text) = place.with("--device", &two).with("--shards", "3").refused();
    assert!(code != 0 && text.contains("3 shards need a zoned device each"), "{text}");
}
