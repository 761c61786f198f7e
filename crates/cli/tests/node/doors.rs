//! Doors that are tried rarely: a second signal comes during a shutdown.

use std::time::Instant;

use rustix::process::Signal;

use crate::server::{END_PATIENCE, Place, test_folder};

#[test]
fn a_second_signal_ends_a_shutdown_at_once_and_loses_nothing() {
    for (first, second) in [(Signal::TERM, Signal::INT), (Signal::INT, Signal::TERM)] {
        let folder = test_folder();
        let place = Place::new(folder.path(), "node");
        let mut node = place.start();
        let db = place.connect();
        db.put(b"k", b"v").expect("written");
        // While the process stands still both arrive, so that the second comes before the shutdown is over.
        node.signal(Signal::STOP);
        node.signal(first);
        node.signal(second);
        let begun = Instant::now();
        node.signal(Signal::CONT);
        let status = node.ended(END_PATIENCE);
        assert_eq!(status.code(), Some(130), "{}", node.text());
        assert!(!node.text().contains("stopped"), "it did not wait for its stages:\n{}", node.text());
        println!("ended within {:?}", begun.elapsed());
        drop(db);
        let again = place.start();
        assert_eq!(place.connect().get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
        again.stop();
    }
}
