//! quick
use std::ops::ControlFlow;
use timestone_repro::*;
struct Unwatched;
impl Progress for Unwatched { fn at(&mut self, _: f64, _: &str) -> ControlFlow<()> { ControlFlow::Continue(()) } }
fn main() {
    let mut a = std::env::args().skip(1);
    let id = a.next().unwrap(); let scale: f64 = a.next().unwrap().parse().unwrap();
    let e = Experiment::find(&id).unwrap();
    let t = std::time::Instant::now();
    let (m, s) = e.run(RunOptions{scale, seed: None, in_real_time: a.next().is_some()}, &mut Unwatched).unwrap();
    for p in m.points { println!("{} {} {:?}", p.series, p.x, p.figures); }
    println!("{s} {:?}", t.elapsed());
}
