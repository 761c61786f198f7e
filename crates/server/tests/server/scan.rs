//! Scans, over TCP and in process: everything of one snapshot, once.

use std::collections::BTreeMap;

use timestone_client::{KeyspaceOptions, ScanOptions, blocking};

use crate::block_on::block_on;
use crate::running::{Running, config};

fn all(db: &blocking::Db, options: &ScanOptions) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in db.scan(options).unwrap() {
        let (key, value) = entry.unwrap();
        assert!(found.insert(key, value.into_vec()).is_none(), "a key comes once");
    }
    found
}

#[test]
fn a_scan_finds_every_key_of_its_snapshot_once() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&config(folder.path()));
    let native = running.native();
    // More than a page on each of two shards.
    let mut expected = BTreeMap::new();
    for chunk in (0..3000u32).collect::<Vec<_>>().chunks(500) {
        let names: Vec<_> =
            chunk.iter().map(|n| (format!("{}-{n}", n % 3).into_bytes(), n.to_le_bytes().to_vec())).collect();
        native.transact(|tx| names.iter().try_for_each(|(key, value)| tx.put(key, value))).unwrap();
        expected.extend(names);
    }
    native.delete(b"0-0").unwrap();
    expected.remove(&b"0-0"[..]);
    native.create_keyspace("other", KeyspaceOptions::DEFAULT).unwrap();
    let other = native.keyspace("other").unwrap();
    other.put(b"there", b"too").unwrap();

    // Each client has seen its own writes; the other one asks for a point in time that is surely behind them.
    let mut scan = native.scan(&ScanOptions::default()).unwrap();
    let at = scan.timestamp();
    let first = scan.next().unwrap().unwrap();
    native.put(b"later", b"x").unwrap();
    native.put(b"1-1", b"changed").unwrap();
    let rest: BTreeMap<_, _> = scan.map(|entry| entry.map(|(key, value)| (key, value.into_vec())).unwrap()).collect();
    assert_eq!(rest.len() + 1, expected.len());
    assert_eq!(expected.get(&first.0).map(Vec::as_slice), Some(&first.1[..]));
    let then = ScanOptions { at: Some(at), ..ScanOptions::default() };
    for db in [&native, &running.inside] {
        assert_eq!(all(db, &then), expected, "as of the first scan");
        let prefix = ScanOptions { prefix: b"2-".to_vec(), at: Some(at) };
        assert_eq!(all(db, &prefix).len(), 1000);
    }
    let begun = block_on(async {
        let mut scan = running.inside.as_async().scan(&then).await.unwrap();
        let mut keys = 0;
        while scan.next().await.unwrap().is_some() {
            keys += 1;
        }
        (keys, scan.timestamp())
    });
    assert_eq!(begun, (expected.len(), at));
    let now = all(&native, &ScanOptions::default());
    assert_eq!((now.len(), now[&b"1-1"[..]].as_slice()), (expected.len() + 1, &b"changed"[..]));
    assert_eq!(all(&other, &ScanOptions::default()).into_keys().collect::<Vec<_>>(), [b"there"]);
}
