//! Retwis on an embedded store: sessions as tasks on the event loops of the reactor threads. A
//! smaller sibling of `timestone bench retwis --in-process`, for profiling.
//!
//! Usage: `embedded_retwis DIRECTORY [none|ssd] [threads] [sessions] [seconds] [keys]`

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use timestone::server::DeviceKind;
use timestone::{Db, LocalDb, OpenOptions, TransactionOptions};
use timestone_workload::{Generator, KeyIndex, Op, TxnPlan, WorkloadSpec};

/// Shows the first few errors.
fn note(error: &timestone::Error) {
    static SHOWN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    if SHOWN.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 12 {
        eprintln!("{error}");
    }
}

async fn session(
    db: LocalDb,
    mut generator: Generator,
    spec: Rc<WorkloadSpec>,
    until: Instant,
) -> (u64, u64) {
    let shape = spec.key_shape();
    let (mut plan, mut key, mut value) = (TxnPlan::default(), Vec::new(), Vec::new());
    let (mut committed, mut aborted) = (0, 0);
    while Instant::now() < until {
        generator.next(&mut plan);
        let Ok(tx) = db.begin(&TransactionOptions::default()) else { break };
        let mut failed = false;
        for op in &plan.ops {
            key.clear();
            match *op {
                Op::Get(index) => {
                    shape.write(index, &mut key);
                    if let Err(error) = tx.get(&key).await {
                        note(&error);
                        failed = true;
                    }
                }
                Op::Put(index) => {
                    shape.write(index, &mut key);
                    value.clear();
                    spec.write_value(index, &mut value);
                    failed |= tx.put(&key, &value).is_err();
                }
                _ => {}
            }
        }
        if failed {
            aborted += 1;
        } else if let Err(error) = tx.commit().await {
            note(&error);
            aborted += 1;
        } else {
            committed += 1;
        }
    }
    (committed, aborted)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |index: usize, default: &str| {
        std::env::args().nth(index).unwrap_or_else(|| default.to_owned())
    };
    let directory = argument(1, "/tmp/embedded-retwis");
    let mut options = OpenOptions::new(Path::new(&directory));
    options.server.log =
        if argument(2, "none") == "ssd" { DeviceKind::Ssd } else { DeviceKind::None };
    options.server.threads = Some(argument(3, "2").parse()?);
    let sessions: usize = argument(4, "256").parse()?;
    let seconds: u64 = argument(5, "10").parse()?;
    let store = timestone::open_with(&options)?;
    let mut spec =
        WorkloadSpec::named(&std::env::var("WORKLOAD").unwrap_or_else(|_| "retwis".to_owned()))?;
    spec.keys = argument(6, "1000000").parse()?;
    load(&store.db(), &spec)?;
    let loops = store.loops().len();
    let until = Instant::now() + Duration::from_secs(seconds);
    let begin = Instant::now();
    let mut running = Vec::new();
    for (index, db) in store.loops().iter().enumerate() {
        let (spec, share) = (spec.clone(), sessions / loops);
        running.push(db.spawn(move |db: LocalDb| async move {
            let spec = Rc::new(spec);
            let totals = Rc::new(std::cell::Cell::new((0u64, 0u64, 0usize)));
            for number in 0..share {
                let (session_db, spec, totals) =
                    (db.new_session()?, Rc::clone(&spec), Rc::clone(&totals));
                let generator =
                    Generator::new(&spec, (index * share + number) as u32, (share * loops) as u32);
                let Ok(generator) = generator else { continue };
                db.spawn(async move {
                    let (committed, aborted) = session(session_db, generator, spec, until).await;
                    let (c, a, done) = totals.get();
                    totals.set((c + committed, a + aborted, done + 1));
                });
            }
            while totals.get().2 < share {
                db.sleep(Duration::from_millis(20)).await?;
            }
            Ok(totals.get())
        }));
    }
    let (mut committed, mut aborted) = (0, 0);
    for one in running {
        let (c, a, _) = one.wait()?;
        committed += c;
        aborted += a;
    }
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{:.0} committed/s, {:.0} aborted/s over {took:.1} s",
        committed as f64 / took,
        aborted as f64 / took
    );
    if std::env::var_os("STAGES").is_some() {
        let snapshot = store.server().injector().metrics();
        for thread in snapshot.threads {
            println!("{thread:?}");
        }
        for stage in snapshot.stages {
            println!(
                "{:12} events {:10} batches {:9} turns {:9} service {:?} wait {:?} refused {}",
                stage.name,
                stage.events_total,
                stage.batches_total,
                stage.turns_total,
                stage.service_per_event(),
                stage.wait_mean(),
                stage.refused_total
            );
        }
    }
    store.close()?;
    Ok(())
}

fn load(db: &Db, spec: &WorkloadSpec) -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let spec = spec.clone();
    db.spawn(move |db: LocalDb| async move {
        let shape = spec.key_shape();
        let done = Rc::new(std::cell::Cell::new(0));
        let spec = Rc::new(spec);
        for worker in 0..32u64 {
            let (spec, done, db2) = (Rc::clone(&spec), Rc::clone(&done), db.new_session()?);
            db.spawn(async move {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                let mut index = worker;
                while index < spec.keys {
                    let Ok(tx) = db2.begin(&TransactionOptions::default()) else { break };
                    for _ in 0..50 {
                        if index < spec.keys {
                            key.clear();
                            value.clear();
                            shape.write(KeyIndex(index), &mut key);
                            spec.write_value(KeyIndex(index), &mut value);
                            let _ = tx.put(&key, &value);
                        }
                        index += 32;
                    }
                    if let Err(error) = tx.commit().await {
                        eprintln!("{error}");
                    }
                }
                done.set(done.get() + 1);
            });
        }
        while done.get() < 32 {
            db.sleep(Duration::from_millis(20)).await?;
        }
        Ok(())
    })
    .wait()?;
    eprintln!("loaded in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}
