//! The client against a small server over real sockets: greeting, calls from threads and tasks,
//! retries, losses, errors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "../../../../tests/block_on.rs"]
mod block_on;
mod failover;
mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use timestone_client::{
    ConnectOptions, Db, Error, ErrorCode, KeyspaceOptions, ScanOptions, Timestamp, TransactOptions,
    TransactionOptions, TxnStatus, blocking, connect,
};

use timestone_cluster::IndexKind;
use timestone_types::ClientId;

use block_on::block_on;
use fake::Server;

fn count(value: Option<timestone_client::Value>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

#[test]
fn single_keys_are_written_read_compared_and_deleted() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    assert_eq!(db.get(b"k").unwrap(), None);
    let at = db.put(b"k", b"1").unwrap();
    let value = db.get(b"k").unwrap().unwrap();
    assert_eq!((&value[..], value.version().timestamp), (&b"1"[..], at));
    assert!(!db.put_if_absent(b"k", b"2").unwrap());
    assert!(!db.compare_and_set(b"k", Some(b"9"), b"2").unwrap());
    assert!(db.compare_and_set(b"k", Some(b"1"), b"2").unwrap());
    assert!(!db.put_if_version(b"k", value.version(), b"3").unwrap());
    let taken = db.take(b"k").unwrap();
    assert!(taken.took_place() && taken.found.unwrap() == b"2");
    assert!(!db.take(b"k").unwrap().took_place());
    db.delete(b"k").unwrap();
    assert_eq!(db.get(b"k").unwrap(), None);
    assert!(db.compare_and_set(b"k", None, b"back").unwrap());
}

#[test]
fn transactions_run_from_any_executor_and_span_shards() {
    let server = Server::start();
    block_on(async {
        let db = connect(&server.url()).await.unwrap();
        let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
        let names = keys.clone();
        db.transact(async |tx| {
            for key in &names {
                tx.put(key.as_bytes(), key.as_bytes());
            }
            assert_eq!(tx.get(b"key-3").await?.unwrap(), b"key-3", "its own write");
            Ok(())
        })
        .await
        .unwrap();
        // The application is told before the decisions have reached every shard.
        for key in &keys {
            while db.get(key.as_bytes()).await.unwrap().is_none() {}
        }
        let tx = db.begin(&TransactionOptions::default()).await.unwrap();
        let values = tx.get_many(&keys).await.unwrap();
        assert!(
            values.iter().zip(&keys).all(|(value, key)| value.as_deref() == Some(key.as_bytes()))
        );
        assert!(tx.commit().await.unwrap() >= tx.begin_timestamp());
        let error = tx.get(b"key-1").await.unwrap_err();
        assert!(error.to_string().contains("finished already"), "{error}");
        assert!(db.stats().await.unwrap().committed_locally >= 1);
    });
}

#[test]
fn conflicts_are_retried_until_they_end_and_the_last_one_is_told() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    let raise = |tx: &blocking::Transaction| {
        let next = count(tx.get(b"n")?) + 1;
        tx.put(b"n", &next.to_le_bytes())?;
        Ok(next)
    };
    server.conflicts.store(3, Ordering::SeqCst);
    assert_eq!(db.transact(raise).unwrap(), 1);
    server.conflicts.store(100, Ordering::SeqCst);
    let few = TransactOptions { max_attempts: 4, ..TransactOptions::default() };
    let error = db.transact_with(&few, raise).unwrap_err();
    assert_eq!((error.code(), error.attempts(), error.retryable()), (ErrorCode::Conflict, 4, true));
    assert_eq!(error.key(), Some(&b"n"[..]));
    let text = error.to_string();
    assert!(
        text.starts_with("TS1020 CONFLICT key=n: read version ") && text.contains("by txn 9f-2"),
        "{text}"
    );
    server.conflicts.store(0, Ordering::SeqCst);
    let refused = db.transact(|_| Err::<(), _>(Error::application("not today"))).unwrap_err();
    assert_eq!((refused.code(), refused.attempts()), (ErrorCode::Aborted, 1));
}

/// An application's own error, with the store's inside.
#[derive(Debug)]
enum Own {
    Refused(u64),
    Store(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[test]
fn closures_may_have_an_error_type_of_their_own() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    let mut attempts = 0;
    let mut raise = |most: u64| {
        db.transact_as::<Own, _>(|tx| {
            attempts += 1;
            let next = count(tx.get(b"n")?) + 1;
            if next > most {
                return Err(Own::Refused(next));
            }
            tx.put(b"n", &next.to_le_bytes())?;
            Ok(next)
        })
    };
    server.conflicts.store(3, Ordering::SeqCst);
    assert_eq!(raise(9).unwrap(), 1);
    assert!(matches!(raise(1), Err(Own::Refused(2))));
    assert_eq!(
        attempts, 5,
        "three conflicts, a commit, and a refusal of its own that is not repeated"
    );
    assert_eq!(count(db.get(b"n").unwrap()), 1, "what was refused was not carried out");
    // The last conflict comes as what the store's errors are made into.
    server.conflicts.store(100, Ordering::SeqCst);
    let few = TransactOptions { max_attempts: 4, ..TransactOptions::default() };
    let put = db.transact_as_with::<Own, _>(&few, |tx| Ok(tx.put(b"n", b"x")?));
    let Err(Own::Store(error)) = put else { panic!("{put:?}") };
    assert_eq!((error.code(), error.attempts()), (ErrorCode::Conflict, 4));
    server.conflicts.store(2, Ordering::SeqCst);
    block_on(async {
        let db = connect(&server.url()).await.unwrap();
        let raised: Result<u64, Own> = db
            .transact_as(async |tx| {
                let next = count(tx.get(b"m").await?) + 1;
                tx.put(b"m", &next.to_le_bytes()).await?;
                Ok(next)
            })
            .await;
        assert_eq!(raised.unwrap(), 1);
    });
}

#[test]
fn a_closure_of_a_task_has_errors_of_its_own() {
    let server = Server::start();
    let db = block_on(connect(&server.url())).unwrap();
    server.conflicts.store(3, Ordering::SeqCst);
    let told = db.spawn(|db| async move {
        let attempts = std::cell::Cell::new(0);
        let raise = |most: u64| {
            let attempts = &attempts;
            db.transact_as(move |tx| async move {
                attempts.set(attempts.get() + 1);
                let next = count(tx.get(b"n").await?) + 1;
                if next > most {
                    return Err(Own::Refused(next));
                }
                tx.put(b"n", &next.to_le_bytes())?;
                Ok(next)
            })
        };
        assert_eq!(raise(9).await.unwrap(), 1);
        assert!(matches!(raise(1).await, Err(Own::Refused(2))));
        Ok(attempts.get())
    });
    assert_eq!(
        told.wait().unwrap(),
        5,
        "three conflicts, a commit, and a refusal of its own that is not repeated"
    );
    assert_eq!(count(db.get(b"n").wait().unwrap()), 1, "what was refused was not carried out");
    // The last conflict comes as what the store's errors are made into.
    server.conflicts.store(100, Ordering::SeqCst);
    let told = db.spawn(|db| async move {
        let few = TransactOptions { max_attempts: 4, ..TransactOptions::default() };
        let put = db
            .transact_as_with::<Own, _, _, _>(&few, |tx| async move { Ok(tx.put(b"n", b"x")?) })
            .await;
        let Err(Own::Store(error)) = put else { panic!("{put:?}") };
        Ok((error.code(), error.attempts()))
    });
    assert_eq!(told.wait().unwrap(), (ErrorCode::Conflict, 4));
    server.conflicts.store(0, Ordering::SeqCst);
    // A read without an answer ends an attempt, whatever the closure makes of it.
    server.deaf.store(true, Ordering::SeqCst);
    let told = db.spawn(|db| async move {
        let attempts = std::cell::Cell::new(0);
        let attempts = &attempts;
        let transaction = TransactionOptions {
            deadline: Some(Duration::from_millis(50)),
            ..TransactionOptions::default()
        };
        let few = TransactOptions { transaction, max_attempts: 3 };
        let read = db.transact_as_with::<Own, _, _, _>(&few, |tx| async move {
            attempts.set(attempts.get() + 1);
            tx.get(b"n").await.map_err(|_| Own::Refused(7))
        });
        assert!(matches!(read.await, Err(Own::Refused(7))));
        Ok(attempts.get())
    });
    assert_eq!(told.wait().unwrap(), 3);
}

/// One that has several reads under way may look first at one that began when the transaction was
/// given up already.
#[test]
fn a_closure_is_run_again_whichever_of_its_errors_it_looks_at() {
    let server = Server::start();
    let deadline = Some(Duration::from_millis(50));
    let transaction = TransactionOptions { deadline, ..TransactionOptions::default() };
    let few = TransactOptions { transaction, max_attempts: 3 };
    let db = block_on(connect(&server.url())).unwrap();
    server.deaf.store(true, Ordering::SeqCst);
    let attempts = std::cell::Cell::new(0);
    let read = block_on(db.transact_with(&few, async |tx| {
        attempts.set(attempts.get() + 1);
        tx.get(b"n").await.map_err(|_| Error::application("there is no such transaction"))
    }));
    assert_eq!((read.unwrap_err().code(), attempts.get()), (ErrorCode::Aborted, 3));
    let blocking = blocking::Db::from(db.clone());
    attempts.set(0);
    let read = blocking.transact_with(&few, |tx| {
        attempts.set(attempts.get() + 1);
        tx.get(b"n").map_err(|_| Error::application("there is no such transaction"))
    });
    assert_eq!((read.unwrap_err().code(), attempts.get()), (ErrorCode::Aborted, 3));
    let told = db.spawn(|db| async move {
        let attempts = std::cell::Cell::new(0);
        let attempts = &attempts;
        let read = db.transact_with(&few, |tx| async move {
            attempts.set(attempts.get() + 1);
            tx.get(b"n").await.map_err(|_| Error::application("there is no such transaction"))
        });
        assert_eq!(read.await.unwrap_err().code(), ErrorCode::Aborted);
        Ok(attempts.get())
    });
    assert_eq!(told.wait().unwrap(), 3);
}

#[test]
fn tasks_on_the_loop_share_it_with_calls_from_threads() {
    let server = Server::start();
    let db = block_on(connect(&server.url())).unwrap();
    let raise = |db: timestone_client::LocalDb| async move {
        for _ in 0..20 {
            db.transact(|tx| async move {
                let next = count(tx.get(b"n").await?) + 1;
                tx.put(b"n", &next.to_le_bytes())
            })
            .await?;
        }
        Ok(())
    };
    let running: Vec<_> = (0..8).map(|_| db.spawn(raise)).collect();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let db = blocking::Db::from(db.clone());
            std::thread::spawn(move || {
                for round in 0..50u64 {
                    let key = format!("thread-{n}");
                    db.put(key.as_bytes(), &round.to_le_bytes()).unwrap();
                    assert_eq!(count(db.get(key.as_bytes()).unwrap()), round);
                }
            })
        })
        .collect();
    for one in running {
        one.wait().unwrap();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(count(db.get(b"n").wait().unwrap()), 160);
    let length = db.spawn(|db| async move {
        let tx = db.begin(&TransactionOptions::default())?;
        tx.get_with(b"n", |value| value.map_or(0, <[u8]>::len)).await
    });
    assert_eq!(length.wait().unwrap(), 8);
}

#[test]
fn a_lost_connection_is_made_again_and_no_call_fails() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    let raised = Arc::new(AtomicU32::new(0));
    let (counting, raising) = (Arc::clone(&raised), db.clone());
    let thread = std::thread::spawn(move || {
        for _ in 0..200 {
            let previous = raising.get(b"n").unwrap();
            let next = (count(previous.clone()) + 1).to_le_bytes();
            assert!(raising.compare_and_set(b"n", previous.as_deref(), &next).unwrap());
            counting.fetch_add(1, Ordering::SeqCst);
        }
    });
    while raised.load(Ordering::SeqCst) < 200 {
        std::thread::sleep(Duration::from_millis(15));
        server.hang_up();
    }
    thread.join().unwrap();
    assert_eq!(count(db.get(b"n").unwrap()), 200);
    assert!(server.hellos.load(Ordering::SeqCst) > 1, "the connection was lost at least once");
}

#[test]
fn a_client_whose_session_was_ended_greets_under_its_next_id() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    db.put(b"before", b"1").unwrap();
    let first = ClientId::new(1);
    server.ended.store(first.get(), Ordering::SeqCst);
    while db.put(b"after", b"1").is_err() {}
    server.hang_up();
    db.put(b"again", b"1").unwrap();
    let greeted = server.greeted.lock().unwrap().clone();
    assert_eq!(greeted, [ClientId::ZERO, ClientId::new(2)]);
}

/// Calls until none of fifty in a row came over a connection that is far from its shard.
fn call_until_all_are_near(server: &Server, db: &blocking::Db) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        server.far.store(0, Ordering::SeqCst);
        for n in 0..50_u32 {
            db.put(&n.to_le_bytes(), b"v").unwrap();
            assert_eq!(db.get(&n.to_le_bytes()).unwrap().unwrap(), b"v");
        }
        if server.far.load(Ordering::SeqCst) == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "some requests are still far from their shards");
    }
}

#[test]
fn each_thread_of_a_server_is_asked_over_a_connection_of_its_own() {
    let server = Server::start();
    server.threads.store(3, Ordering::SeqCst);
    let db = blocking::connect(&server.url()).unwrap();
    call_until_all_are_near(&server, &db);
    assert_eq!(server.hellos.load(Ordering::SeqCst), 3, "and over no more than these");
    std::thread::sleep(Duration::from_millis(200));
    call_until_all_are_near(&server, &db);
    assert_eq!(server.hellos.load(Ordering::SeqCst), 3);
    // Another client has a connection between: the next ones may reach threads that have one
    // already, and are given up.
    drop(blocking::connect(&server.url()).unwrap());
    server.hang_up_newest();
    server.hang_up_newest();
    call_until_all_are_near(&server, &db);
    // Losing all of them is as losing one.
    server.hang_up();
    call_until_all_are_near(&server, &db);
}

#[test]
fn what_was_asked_over_one_of_several_connections_that_is_lost_is_asked_over_another() {
    let server = Server::start();
    server.threads.store(3, Ordering::SeqCst);
    let db = blocking::connect(&server.url()).unwrap();
    call_until_all_are_near(&server, &db);
    // Each thread of the application raises a number of its own, on whatever shard.
    let raisers: Vec<_> = (0..6_u32)
        .map(|thread| {
            let db = db.clone();
            std::thread::spawn(move || {
                let name = (1000 + thread).to_le_bytes();
                for _ in 0..100 {
                    let previous = db.get(&name).unwrap();
                    let next = (count(previous.clone()) + 1).to_le_bytes();
                    assert!(db.compare_and_set(&name, previous.as_deref(), &next).unwrap());
                }
            })
        })
        .collect();
    while raisers.iter().any(|raiser| !raiser.is_finished()) {
        std::thread::sleep(Duration::from_millis(7));
        server.hang_up_newest();
    }
    raisers.into_iter().for_each(|raiser| raiser.join().unwrap());
    for thread in 0..6_u32 {
        assert_eq!(count(db.get(&(1000 + thread).to_le_bytes()).unwrap()), 100);
    }
    call_until_all_are_near(&server, &db);
}

#[test]
fn nobody_listening_is_told_with_the_address_and_a_living_server_beside_it_is_found() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options =
        ConnectOptions { connect_timeout: Duration::from_millis(300), ..ConnectOptions::default() };
    let error = blocking::connect_with(&format!("timestone://{dead}"), &options).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("TS1012 UNAVAILABLE") && text.contains(&dead.to_string()), "{text}");
    assert!(text.contains("no server answered within 300 ms; last tried"), "{text}");
    assert!(text.contains("check that the server runs"), "{text}");
    let server = Server::start();
    let db = blocking::connect(&format!("timestone://{dead},localhost:{}", server.address.port()))
        .unwrap();
    db.put(b"k", b"v").unwrap();
    assert_eq!(blocking::connect("redis://x").unwrap_err().code(), ErrorCode::BadArgument);
}

#[test]
fn a_server_that_refuses_the_hello_is_quoted() {
    let server = Server::start();
    server.unfriendly.store(true, Ordering::SeqCst);
    let options =
        ConnectOptions { connect_timeout: Duration::from_millis(300), ..ConnectOptions::default() };
    let text = blocking::connect_with(&server.url(), &options).unwrap_err().to_string();
    assert!(text.contains("TS1004 NOT_ALLOWED this server serves nobody"), "{text}");
}

/// An older server takes a range for a broken frame, and ends the connection with everything on it.
#[test]
fn a_server_that_is_too_old_for_ranges_is_not_asked_for_one_and_is_named() {
    let server = Server::start();
    server.protocol.store(4, Ordering::SeqCst);
    let mut db = blocking::connect(&server.url()).unwrap();
    let ordered = KeyspaceOptions { index: IndexKind::Ordered, ..KeyspaceOptions::DEFAULT };
    db.create_keyspace("orders", ordered).unwrap();
    db = db.keyspace("orders").unwrap();
    db.put(b"a", b"1").unwrap();
    let options = TransactionOptions::default();
    let tx = db.begin(&options).unwrap();
    let error = tx.scan(&ScanOptions::default()).unwrap().next().unwrap().unwrap_err();
    assert_eq!((error.code(), error.retryable()), (ErrorCode::VersionMismatch, false));
    let text = error.to_string();
    assert!(text.contains("speaks version 4 of the protocol"), "{text}");
    assert!(text.contains("ranges of keys need version 5: update that server"), "{text}");
    assert!(db.get(b"a").unwrap().is_some(), "everything else goes on");
    drop(tx);
    // One that knows ranges, but not how to read them downwards, reads them upwards.
    server.protocol.store(6, Ordering::SeqCst);
    server.hang_up();
    db.put(b"a", b"1").unwrap();
    let downwards = ScanOptions { descending: true, ..ScanOptions::default() };
    let tx = db.begin(&options).unwrap();
    let error = tx.scan(&downwards).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
    let text = error.to_string();
    assert!(text.contains("ranges that are read downwards need version 7"), "{text}");
    assert!(tx.scan(&ScanOptions::default()).unwrap().next().unwrap().is_ok());
    drop(tx);
    // It is updated while a range is read, and an older one takes its place before the commit.
    server.protocol.store(5, Ordering::SeqCst);
    server.hang_up();
    db.put(b"a", b"1").unwrap();
    let tx = db.begin(&options).unwrap();
    let mut scan = tx.scan(&ScanOptions::default()).unwrap();
    assert_eq!(&scan.next().unwrap().unwrap().0[..], b"a");
    assert!(scan.next().is_none());
    let again = db.begin(&options).unwrap();
    assert!(again.scan(&ScanOptions::default()).unwrap().next().unwrap().is_ok());
    again.put(b"b", b"2").unwrap();
    again.commit().unwrap();
    server.protocol.store(4, Ordering::SeqCst);
    server.hang_up();
    db.put(b"c", b"3").unwrap();
    tx.put(b"d", b"4").unwrap();
    let error = tx.commit().unwrap_err();
    assert_eq!(error.code(), ErrorCode::VersionMismatch, "{error}");
    assert_eq!(db.get(b"d").unwrap(), None);
}

#[test]
fn deadlines_end_reads_with_an_error_and_writes_as_unknown() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap().with_deadline(Duration::from_millis(200));
    server.deaf.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    let error = db.get(b"k").unwrap_err();
    assert_eq!((error.code(), error.retryable()), (ErrorCode::Timeout, true));
    let error = db.put(b"k", b"v").unwrap_err();
    assert_eq!((error.code(), error.retryable()), (ErrorCode::UnknownOutcome, false));
    let change = db.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap_err();
    assert_eq!(
        (change.code(), change.retryable(), change.had_no_effect()),
        (ErrorCode::Timeout, false, false)
    );
    assert!(begin.elapsed() < Duration::from_secs(2));
    let txn = error.txn().unwrap();
    server.deaf.store(false, Ordering::SeqCst);
    let waiting = db.with_deadline(Duration::from_secs(5));
    let until = Instant::now() + Duration::from_secs(10);
    while !matches!(waiting.status(txn).unwrap(), TxnStatus::Committed(_)) {
        assert!(Instant::now() < until, "the outcome of the write is not learned");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(waiting.get(b"k").unwrap().unwrap(), b"v");
}

/// *Otherwise* it is carried out whenever a server is there again, on what others have made meanwhile.
#[test]
fn a_change_of_the_cluster_that_was_given_up_is_not_asked_for_later() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    db.put(b"k", b"v").unwrap();
    server.die();
    let gone = Instant::now();
    while db.with_deadline(Duration::from_millis(50)).get(b"k").is_ok() {
        assert!(gone.elapsed() < Duration::from_secs(5), "a dead server answers");
    }
    let hasty = db.with_deadline(Duration::from_millis(200));
    let change = hasty.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap_err();
    assert_eq!((change.code(), change.had_no_effect()), (ErrorCode::Timeout, false));
    server.come_back();
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
    let names: Vec<_> =
        db.keyspaces().unwrap().into_iter().map(|one| one.name.to_string()).collect();
    assert_eq!(names, ["default"]);
}

#[test]
fn a_commit_after_its_deadline_is_not_begun() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    let options = TransactionOptions {
        deadline: Some(Duration::from_millis(50)),
        ..TransactionOptions::default()
    };
    let tx = db.begin(&options).unwrap();
    tx.put(b"k", b"v").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let error = tx.commit().unwrap_err();
    assert_eq!((error.code(), error.had_no_effect()), (ErrorCode::TxnTooLong, true), "{error}");
    assert!(!error.retryable(), "a closure that takes so long is not run again");
    assert_eq!(db.get(b"k").unwrap(), None);
}

#[test]
fn limits_are_told_at_put_and_an_unheeded_one_fails_the_commit() {
    let server = Server::start();
    let db = block_on(connect(&server.url())).unwrap();
    let long = vec![0; timestone_types::limits::MAX_VALUE_BYTES + 1];
    let error = db.put(b"k", &long).wait().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ValueTooLong);
    block_on(async {
        let tx = db.begin(&TransactionOptions::default()).await.unwrap();
        tx.put(b"fine", b"v");
        tx.put(b"k", &long);
        assert_eq!(tx.commit().await.unwrap_err().code(), ErrorCode::ValueTooLong);
        assert_eq!(db.get(b"fine").await.unwrap(), None, "the rest of it is not committed either");
        let past = db.snapshot(Timestamp::from_nanos(1)).await.unwrap();
        assert_eq!(past.put(b"k", b"v").await.unwrap_err().code(), ErrorCode::BadArgument);
    });
}

#[test]
fn keyspaces_are_created_listed_used_and_dropped() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    let made = db.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap();
    assert_eq!(
        db.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap_err().code(),
        ErrorCode::KeyspaceExists
    );
    assert_eq!(db.keyspaces().unwrap().len(), 2);
    let orders = db.keyspace("orders").unwrap();
    orders.put(b"k", b"in orders").unwrap();
    assert_eq!(db.get(b"k").unwrap(), None);
    orders.transact(|tx| tx.put(b"l", b"too")).unwrap();
    assert_eq!(db.in_keyspace(made.id).get(b"l").unwrap().unwrap(), b"too");
    db.drop_keyspace("orders").unwrap();
    assert_eq!(db.keyspace("orders").unwrap_err().code(), ErrorCode::KeyspaceUnknown);
    assert_eq!(
        db.create_keyspace("no spaces", KeyspaceOptions::DEFAULT).unwrap_err().code(),
        ErrorCode::BadArgument
    );
}

/// The keyspace that every cluster has keeps its keys when somebody tries to drop it.
#[test]
fn a_keyspace_that_cannot_be_dropped_is_not_emptied_either() {
    let server = Server::start();
    let db = blocking::connect(&server.url()).unwrap();
    db.put(b"k", b"v").unwrap();
    let error = db.drop_keyspace("default").unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadArgument);
    assert!(error.to_string().contains("default always exists"), "{error}");
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
}

/// A name may be another keyspace's than before, whoever has changed that.
#[test]
fn a_name_is_that_of_the_keyspace_that_has_it_now() {
    let server = Server::start();
    let (a, b) =
        (blocking::connect(&server.url()).unwrap(), blocking::connect(&server.url()).unwrap());
    a.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap();
    a.keyspace("orders").unwrap().put(b"k", b"old").unwrap();
    b.drop_keyspace("orders").unwrap();
    assert_eq!(a.keyspace("orders").unwrap_err().code(), ErrorCode::KeyspaceUnknown);
    let made = b.create_keyspace("orders", KeyspaceOptions::DEFAULT).unwrap();
    a.keyspace("orders").unwrap().put(b"k", b"new").unwrap();
    assert_eq!(b.in_keyspace(made.id).get(b"k").unwrap().unwrap(), b"new");
    a.drop_keyspace("orders").unwrap();
    assert_eq!(b.in_keyspace(made.id).get(b"k").unwrap(), None);
}

#[test]
fn the_last_handle_may_be_a_tasks() {
    let server = Server::start();
    let db: Db = block_on(connect(&server.url())).unwrap();
    let last = db.clone();
    let (told, hears) = std::sync::mpsc::channel();
    let done = db.spawn(move |local| async move {
        hears.recv().unwrap();
        local.put(b"k", b"v").await?;
        drop(last);
        Ok(())
    });
    drop(db);
    told.send(()).unwrap();
    // Its loop ends meanwhile: it may be over before this is told.
    let told = done.wait();
    assert!(told.is_ok() || told.is_err_and(|error| error.code() == ErrorCode::UnknownOutcome));
    // The process lives, and so do other loops.
    let other: Db = block_on(connect(&server.url())).unwrap();
    assert!(block_on(other.get(b"k")).unwrap().is_some());
}

#[test]
fn dropping_the_last_handle_ends_the_loop_and_later_calls_say_so() {
    let server = Server::start();
    let db: Db = block_on(connect(&server.url())).unwrap();
    let waiting = db.spawn(|db| async move {
        db.sleep(Duration::from_secs(600)).await?;
        Ok(())
    });
    let tx = block_on(db.begin(&TransactionOptions::default())).unwrap();
    tx.put(b"k", b"v");
    let begin = Instant::now();
    drop((db, tx));
    assert!(begin.elapsed() < Duration::from_secs(3));
    let error = waiting.wait().unwrap_err();
    assert!(error.to_string().contains("the client is closed"), "{error}");
}
