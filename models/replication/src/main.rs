//! Replication, leases, epochs, merge, termination and the deposed primary
//! (docs/protocol/replication.md), explored exhaustively in small worlds.
//!
//! ```text
//!   timestone-replication-model [all]               every world must hold, every mutation must be caught in its world; all: the large ones, too
//!   timestone-replication-model WORLD [MUTATION]    one of them; the steps to what goes wrong
//! ```

mod failover;
mod model;
mod mutation;
mod participant;
mod record;
mod termination;
mod world;
mod worlds;

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use crate::model::Small;
use crate::mutation::Mutation;

struct Found {
    states: usize,
    seconds: f64,
    /// The rule that is broken, and the steps to it.
    broken: Option<(&'static str, Vec<String>)>,
    lacks: Vec<&'static str>,
}

fn explore(world: Small) -> Found {
    let started = Instant::now();
    let is_mutated = world.mutation.is_some();
    let mut checker = world.checker().threads(2);
    if is_mutated {
        checker = checker.finish_when(HasDiscoveries::AnyFailures);
    }
    let checker = checker.spawn_bfs().join();
    let mut found = Found {
        states: checker.unique_state_count(),
        seconds: started.elapsed().as_secs_f64(),
        broken: None,
        lacks: Vec::new(),
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
    let verdict = match &found.broken {
        Some((rule, _)) => format!("broken: {rule}"),
        None if !found.lacks.is_empty() => format!("never: {}", found.lacks.join(", ")),
        None => "holds".to_owned(),
    };
    println!("{name:44} {:>10} states {:>7.1} s   {verdict}", found.states, found.seconds);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let worlds = worlds::all();
    let all = arguments == ["all"];
    if let Some(name) = arguments.first().filter(|_| !all) {
        let Some(world) = worlds.iter().find(|world| world.name == name) else {
            eprintln!("no world is called {name}");
            return ExitCode::FAILURE;
        };
        let mutation = arguments.get(1).map(|wanted| {
            Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == *wanted)
        });
        if mutation == Some(None) {
            eprintln!("no mutation is called {}; there are {:?}", arguments[1], Mutation::ALL);
            return ExitCode::FAILURE;
        }
        let found = explore(Small { mutation: mutation.flatten(), ..world.clone() });
        println!("{}", world.about);
        show(name, &found);
        if let Some((_, steps)) = &found.broken {
            steps.iter().for_each(|step| println!("  {step}"));
        }
        return if found.broken.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut is_right = true;
    for world in worlds.iter().filter(|world| all || !world.is_large) {
        let found = explore(world.clone());
        is_right &= found.broken.is_none() && found.lacks.is_empty();
        show(world.name, &found);
    }
    for mutation in Mutation::ALL {
        if mutation.is_slow() && !all {
            println!("{mutation:?} takes more than a minute: models/run replication all");
            continue;
        }
        let wanted = mutation.caught_in();
        let Some(world) = worlds.iter().find(|world| world.name == wanted) else {
            is_right = false;
            println!("{mutation:?} is to be caught in {wanted}, which is no world");
            continue;
        };
        let found = explore(Small { mutation: Some(mutation), ..world.clone() });
        is_right &= found.broken.is_some();
        show(&format!("{mutation:?} in {wanted}"), &found);
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
