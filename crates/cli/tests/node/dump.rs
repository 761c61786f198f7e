//! `timestone dump` and `timestone load` between real servers.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use timestone::{Expiry, KeyspaceOptions};

use crate::restart::now;
use crate::server::{NodeSetup, binary, outcome, test_folder};

fn run(command: &str, place: &NodeSetup, words: &[&str]) -> (i32, String) {
    let mut process = binary();
    process.arg(command).args(words).args(["--address", &place.url()]);
    outcome(process)
}

fn succeeded(command: &str, place: &NodeSetup, words: &[&str]) -> String {
    let (code, text) = run(command, place, words);
    assert_eq!(code, 0, "{text}");
    text
}

fn text_of(path: &Path) -> String {
    path.to_str().expect("a path that is text").to_owned()
}

#[test]
fn what_was_dumped_is_loaded_elsewhere_with_its_values_and_expiry_and_as_of_one_moment() {
    let folder = test_folder();
    let (from, to) = (
        NodeSetup::new(folder.path(), "from"),
        NodeSetup::new(folder.path(), "to").with("--shards", "2"),
    );
    let (source, target) = (from.start(), to.start());
    let db = from.connect();
    let mut expected = Vec::new();
    for number in 0..2500u32 {
        let (key, value) =
            (format!("key {number}").into_bytes(), vec![number as u8; number as usize % 90]);
        db.put(&key, &value).expect("a put");
        expected.push((key, value));
    }
    let odd = (vec![0, 255, b'\n', b'"'], vec![0xff; 300_000]);
    db.put(&odd.0, &odd.1).expect("a put");
    expected.push(odd);
    let far = Expiry::at(now().saturating_add(Duration::from_secs(3600)));
    let near = now().saturating_add(Duration::from_secs(4));
    db.put_until(b"far", b"still there", far).expect("a put");
    db.put_until(b"near", b"gone", Expiry::at(near)).expect("a put");

    // Somebody moves money while the dump is made: together it is always the same.
    let (a, b) = (b"account a", b"account b");
    db.transact(|tx| tx.put(a, b"500").and_then(|()| tx.put(b, b"500"))).expect("a transaction");
    let stop = Arc::new(AtomicBool::new(false));
    let mover = {
        let (db, stop) = (from.connect(), Arc::clone(&stop));
        std::thread::spawn(move || {
            for number in 0u32.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let left = number % 1000;
                let (one, other) = (left.to_string(), (1000 - left).to_string());
                db.transact(|tx| {
                    tx.put(a, one.as_bytes()).and_then(|()| tx.put(b, other.as_bytes()))
                })
                .expect("a move");
            }
        })
    };
    let file = text_of(&folder.path().join("keys.dump"));
    let said = succeeded("dump", &from, &[&file, "-o", "json"]);
    stop.store(true, Ordering::Relaxed);
    mover.join().expect("the mover ended well");
    assert!(
        said.contains(r#""entries":2505"#) && said.contains(r#""keyspace":"default""#),
        "{said}"
    );
    let left = fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name());
    let unfinished: Vec<_> =
        left.filter(|name| name.to_string_lossy().contains("unfinished")).collect();
    assert!(unfinished.is_empty(), "{unfinished:?}");
    let (code, text) = run("dump", &from, &[&file]);
    assert!(code == 2 && text.contains("exists") && text.contains("--force"), "{code}: {text}");

    while now() < near {
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = succeeded("load", &to, &[&file, "-o", "json"]);
    assert!(said.contains(r#""written":2504"#) && said.contains(r#""expired":1"#), "{said}");
    // Once more is as good as once.
    succeeded("load", &to, &[&file]);
    let loaded = to.connect();
    for (key, value) in &expected {
        assert_eq!(
            loaded.get(key).expect("a read").as_deref(),
            Some(&value[..]),
            "{}",
            key.escape_ascii()
        );
    }
    let kept = loaded.get(b"far").expect("a read").expect("it is there");
    assert_eq!((&kept[..], kept.expires_at()), (&b"still there"[..], far));
    assert!(loaded.get(b"near").expect("a read").is_none());
    let money = |key: &[u8]| -> u32 {
        let value = loaded.get(key).expect("a read").expect("it is there");
        String::from_utf8(value.into_vec()).expect("digits").parse().expect("a number")
    };
    assert_eq!(money(a) + money(b), 1000, "the dump shows one moment");
    source.stop();
    target.stop();
}

#[test]
fn a_dump_goes_through_a_pipe_into_another_keyspace_and_a_damaged_one_is_not_loaded() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "data");
    let node = place.start();
    let db = place.connect();
    for number in 0..1500u32 {
        db.put(format!("key {number}").as_bytes(), b"value").expect("a put");
    }
    db.create_keyspace("copy", KeyspaceOptions::default()).expect("a keyspace");
    let mut dump = binary();
    dump.args(["dump", "-", "--address", &place.url()]);
    let mut dump = dump.spawn().expect("it starts");
    let mut load = binary();
    load.args(["load", "-", "--keyspace", "copy", "--address", &place.url()]);
    load.stdin(Stdio::from(dump.stdout.take().expect("piped")));
    let (code, text) = outcome(load);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1500 keys of standard input are in keyspace copy"), "{text}");
    assert!(dump.wait().expect("it ends").success());
    let copy = db.keyspace("copy").expect("the keyspace");
    assert_eq!(copy.get(b"key 1499").expect("a read").as_deref(), Some(&b"value"[..]));

    let file = folder.path().join("copy.dump");
    succeeded("dump", &place, &[&text_of(&file), "--keyspace", "copy"]);
    let sound = fs::read(&file).expect("readable");
    db.drop_keyspace("copy").expect("dropped");
    // The file says where it belongs, and that is gone.
    let (code, text) = run("load", &place, &[&text_of(&file)]);
    assert!(code == 3 && text.contains("copy"), "{code}: {text}");
    db.create_keyspace("copy", KeyspaceOptions::default()).expect("a keyspace");
    let copy = db.keyspace("copy").expect("the keyspace");
    let mut damaged = sound.clone();
    let at = sound.len() - 3000;
    damaged[at] ^= 1;
    for (bytes, words) in
        [(&damaged[..], "damaged at line"), (&sound[..sound.len() - 20], "cut short")]
    {
        fs::write(&file, bytes).expect("writable");
        let (code, text) = run("load", &place, &[&text_of(&file)]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(words) && text.contains("nothing was written"), "{text}");
        assert!(copy.get(b"key 1").expect("a read").is_none());
    }
    let (code, text) = run("load", &place, &[&text_of(&folder.path().join("nowhere"))]);
    assert_eq!(code, 3, "{text}");
    node.stop();
}
