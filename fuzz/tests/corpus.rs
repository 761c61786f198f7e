//! Every input of the corpora is handled: the seeds, and what fuzzing has found beyond them.

use std::path::Path;

use timestone_fuzz::TARGETS;

#[test]
fn every_input_of_a_corpus_is_handled() {
    for (name, run) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let entries = std::fs::read_dir(&folder).expect("a corpus for each target");
        let files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
        assert!(
            !files.is_empty(),
            "{name} has no corpus; `cargo run -p timestone-fuzz --bin seeds` writes it"
        );
        for file in files {
            println!("{name}: {}", file.display());
            run(&std::fs::read(&file).expect("it can be read"));
        }
    }
}
