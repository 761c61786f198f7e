//! The workspace's own checks as a library, for `cargo xtask` and for the laboratory.
//!
//! ```text
//!   main ─► check_list ─► tidy ─► floors, headers, lengths, words, …   (findings)
//!              │            └───► tree ─ lexer ─ manifest               (what the checks read)
//!              └─► licences, steps                                     (other programs)
//!   lab  ─► steps, tree, lexer, glossary
//! ```
//!
//! It starts cargo and git and reads the tree. It knows nothing of how the store works, and no
//! crate of the store uses it.

pub mod check_list;
pub mod counts;
pub mod glossary;
pub mod lexer;
mod licences;
mod manifest;
pub mod steps;
mod tidy;
pub mod tree;
