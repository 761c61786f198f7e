//! Range reads within transactions (docs/design/ranges.md), explored exhaustively in small worlds: two
//! shards, a few keys, two or three transactions that read ranges and write, by clocks that disagree.
//!
//! ```text
//!   timestone-ranges-model                     every world must hold, every mutation must be caught in some world
//!   timestone-ranges-model WORLD [MUTATION]    one of them; the steps to what goes wrong
//! ```

mod model;
mod mutation;
mod world;
mod worlds;

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::model::Small;
use crate::mutation::Mutation;

/// What goes wrong in a world, with the steps to it; and what never happens in it.
struct Found {
    broken: Option<(&'static str, Vec<String>)>,
    lacks: Vec<&'static str>,
    states: usize,
    seconds: f64,
}

fn explore(world: Small) -> Found {
    let started = Instant::now();
    let checker = world.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let (mut broken, mut lacks) = (None, Vec::new());
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let path = discoveries.get(property.name);
        match (property.expectation, path) {
            (Expectation::Always, Some(path)) => {
                let steps = path.clone().into_actions();
                let steps = steps.iter().map(|step| format!("{step:?}")).collect();
                broken = Some((property.name, steps));
            }
            (Expectation::Sometimes, None) => lacks.push(property.name),
            _ => {}
        }
    }
    let (states, seconds) = (checker.unique_state_count(), started.elapsed().as_secs_f64());
    Found { broken, lacks, states, seconds }
}

fn show(name: &str, found: &Found) {
    let verdict = match &found.broken {
        Some((rule, _)) => format!("broken: {rule}"),
        None if !found.lacks.is_empty() => format!("never: {}", found.lacks.join(", ")),
        None => "holds".to_owned(),
    };
    println!("{name:44} {:>9} states {:>6.1} s   {verdict}", found.states, found.seconds);
}

fn one(worlds: &[Small], name: &str, mutation: Option<&String>) -> ExitCode {
    let Some(world) = worlds.iter().find(|world| world.name == name) else {
        eprintln!("no world is called {name}");
        return ExitCode::FAILURE;
    };
    let planted = mutation.map(|wanted| {
        Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == *wanted)
    });
    if planted == Some(None) {
        eprintln!("there are {:?}", Mutation::ALL);
        return ExitCode::FAILURE;
    }
    let found = explore(Small { mutation: planted.flatten(), ..world.clone() });
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
    if let Some(name) = arguments.first() {
        return one(&worlds, name, arguments.get(1));
    }
    let mut is_right = true;
    for world in &worlds {
        let found = explore(world.clone());
        is_right &= found.broken.is_none() && found.lacks.is_empty();
        show(world.name, &found);
    }
    for mutation in Mutation::ALL {
        let caught = worlds.iter().find_map(|world| {
            let found = explore(Small { mutation: Some(mutation), ..world.clone() });
            found.broken.is_some().then_some((world.name, found))
        });
        is_right &= caught.is_some();
        match caught {
            Some((name, found)) => show(&format!("{mutation:?} in {name}"), &found),
            None => println!("{mutation:?} is caught in no world"),
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
