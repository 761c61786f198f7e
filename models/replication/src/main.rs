//! Replication, leases, epochs, merge, termination, truncation and replicas that come back
//! (docs/protocol/replication.md), explored exhaustively in small worlds.
//!
//! ```text
//!   timestone-replication-model [all]               every world must hold, every mutation must be caught in its world; all: the large ones, too
//!   timestone-replication-model WORLD [MUTATION] [upto MILLIONS]
//!                                                   one of them; the steps to what goes wrong; of so many states at most,
//!                                                   those counted again that are reached again
//! ```

mod closed;
mod ends;
mod failover;
mod model;
mod mutation;
mod participant;
mod properties;
mod rebuild;
mod record;
mod step;
mod termination;
mod truncation;
mod world;
mod worlds;

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::model::Small;
use crate::mutation::Mutation;
use crate::world::World;

struct Found {
    states: usize,
    seconds: f64,
    /// The rule that is broken, and the steps to it.
    broken: Option<(&'static str, Vec<String>)>,
    lacks: Vec<&'static str>,
    /// How deep it went, if it ended at a bound.
    cut_at: Option<usize>,
}

fn explore(world: Small, bound: Option<usize>) -> Found {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(2);
    let mut checker =
        world.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(bound) = bound {
        checker = checker.target_state_count(bound);
    }
    if world.is_symmetric {
        checker = checker.symmetry_fn(World::representative);
    }
    // Breadth first finds the shortest way to what goes wrong, depth first needs less memory.
    if world.is_large {
        judge(&checker.spawn_dfs().join(), started, bound)
    } else {
        judge(&checker.spawn_bfs().join(), started, bound)
    }
}

fn judge(checker: &impl Checker<Small>, started: Instant, bound: Option<usize>) -> Found {
    let is_cut = bound.is_some_and(|bound| checker.state_count() >= bound);
    let mut found = Found {
        states: checker.unique_state_count(),
        seconds: started.elapsed().as_secs_f64(),
        broken: None,
        lacks: Vec::new(),
        cut_at: is_cut.then(|| checker.max_depth()),
    };
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let path = discoveries.get(property.name);
        match (property.expectation, path) {
            (stateright::Expectation::Always, Some(path)) if found.broken.is_none() => {
                let steps = path.clone().into_actions();
                let steps = steps.iter().map(|step| format!("{step:?}")).collect();
                found.broken = Some((property.name, steps));
            }
            (stateright::Expectation::Sometimes, None) => found.lacks.push(property.name),
            _ => {}
        }
    }
    found
}

fn show(name: &str, found: &Found) {
    let verdict = match (&found.broken, found.cut_at) {
        (Some((rule, _)), _) => format!("broken: {rule}"),
        (None, Some(depth)) => format!("holds so far, at most {depth} steps deep"),
        _ if !found.lacks.is_empty() => format!("never: {}", found.lacks.join(", ")),
        _ => "holds".to_owned(),
    };
    println!("{name:44} {:>10} states {:>7.1} s   {verdict}", found.states, found.seconds);
}

/// One world, perhaps with a mutation: what goes wrong, step by step.
fn one(worlds: &[Small], name: &str, arguments: &[String]) -> ExitCode {
    let Some(world) = worlds.iter().find(|world| world.name == name) else {
        eprintln!("no world is called {name}");
        return ExitCode::FAILURE;
    };
    let (wanted, bound) = match arguments {
        [] => (None, None),
        [wanted] => (Some(wanted), None),
        [word, bound] if word == "upto" => (None, Some(bound)),
        [wanted, word, bound] if word == "upto" => (Some(wanted), Some(bound)),
        _ => {
            eprintln!("say: WORLD [MUTATION] [upto MILLIONS]");
            return ExitCode::FAILURE;
        }
    };
    let bound = match bound.map(|bound| bound.parse::<usize>()).transpose() {
        Ok(bound) => bound.map(|millions| millions * 1_000_000),
        Err(error) => {
            eprintln!("no number of millions: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mutation = wanted.map(|wanted| {
        Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == *wanted)
    });
    if mutation == Some(None) {
        eprintln!("no mutation is called {}; there are {:?}", arguments[0], Mutation::ALL);
        return ExitCode::FAILURE;
    }
    let found = explore(Small { mutation: mutation.flatten(), ..world.clone() }, bound);
    println!("{}", world.about);
    show(name, &found);
    if let Some((_, steps)) = &found.broken {
        steps.iter().for_each(|step| println!("  {step}"));
    }
    if found.broken.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let worlds = worlds::all();
    let all = arguments == ["all"];
    if let Some(name) = arguments.first().filter(|_| !all) {
        return one(&worlds, name, &arguments[1..]);
    }
    let mut is_right = true;
    for world in worlds.iter().filter(|world| all || !world.is_large) {
        let found = explore(world.clone(), None);
        is_right &= found.broken.is_none() && found.lacks.is_empty();
        show(world.name, &found);
    }
    for mutation in Mutation::ALL {
        let wanted = mutation.caught_in();
        let Some(world) = worlds.iter().find(|world| world.name == wanted) else {
            is_right = false;
            println!("{mutation:?} is to be caught in {wanted}, which is no world");
            continue;
        };
        let found = explore(Small { mutation: Some(mutation), ..world.clone() }, None);
        is_right &= found.broken.is_some();
        show(&format!("{mutation:?} in {wanted}"), &found);
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
