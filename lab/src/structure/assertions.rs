//! Assertions in the cores: in functions that change state, which take `&mut self` or another
//! `&mut`.

use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItem, Item, Macro, Signature, Type};

use super::Source;
use super::is_for_tests;
use super::types::items;

/// Cores, by their folders. The shard's and the gateway's once lay in the server.
const CORES: [(&str, &[&str]); 6] = [
    ("cluster", &["crates/cluster/src/"]),
    ("gateway", &["crates/gateway/src/", "crates/server/src/gateway/"]),
    ("session", &["crates/session/src/"]),
    ("shard", &["crates/shard/src/", "crates/server/src/shard/"]),
    ("store", &["crates/store/src/"]),
    ("txn", &["crates/txn/src/"]),
];

/// What was counted of one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) core: &'static str,
    /// That take something mutable.
    pub(crate) functions: usize,
    /// Of these, with at least one assertion.
    pub(crate) asserting: usize,
    pub(crate) assertions: usize,
}

/// Of each core that the tree has.
pub(crate) fn count(sources: &[Source]) -> Vec<Counts> {
    let of_core = |(core, folders): (&'static str, &[&str])| {
        let mut counts = Counts { core, functions: 0, asserting: 0, assertions: 0 };
        let is_of = |source: &&Source| folders.iter().any(|folder| source.path.starts_with(folder));
        for source in sources.iter().filter(is_of) {
            for item in items(&source.file.items) {
                match item {
                    Item::Fn(function) => counts.add(&function.sig, &function.block),
                    Item::Impl(item) => {
                        for item in &item.items {
                            if let ImplItem::Fn(method) = item
                                && !is_for_tests(&method.attrs)
                            {
                                counts.add(&method.sig, &method.block);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        counts
    };
    CORES.into_iter().map(of_core).filter(|counts| counts.functions > 0).collect()
}

impl Counts {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let is_mutable = |argument: &FnArg| match argument {
            FnArg::Receiver(receiver) => {
                receiver.reference.is_some() && receiver.mutability.is_some()
            }
            FnArg::Typed(argument) => {
                matches!(&*argument.ty, Type::Reference(of) if of.mutability.is_some())
            }
        };
        if !signature.inputs.iter().any(is_mutable) {
            return;
        }
        let mut seen = Assertions(0);
        seen.visit_block(block);
        self.functions += 1;
        self.assertions += seen.0;
        self.asserting += usize::from(seen.0 > 0);
    }
}

struct Assertions(usize);

impl<'ast> Visit<'ast> for Assertions {
    fn visit_macro(&mut self, found: &'ast Macro) {
        let name = found.path.segments.last().map(|last| last.ident.to_string());
        let is_assertion =
            name.is_some_and(|name| name.starts_with("assert") || name.starts_with("debug_assert"));
        self.0 += usize::from(is_assertion);
        visit::visit_macro(self, found);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources;
    use super::*;

    #[test]
    fn functions_that_change_state_and_their_assertions_are_counted() {
        let text = "fn a(x: &mut u8) { assert!(*x > 0); if x { debug_assert_eq!(1, 1); } }
                    struct S; impl S { fn b(&mut self) {} fn c(&self) { assert!(true); }
                    fn d(mut self) { assert!(true); } }
                    #[cfg(test)] mod tests { fn t(x: &mut u8) { assert!(true); } }";
        let counted = count(&sources([
            ("crates/server/src/shard/a.rs", text),
            ("crates/wal/src/a.rs", text),
        ]));
        let expected = Counts { core: "shard", functions: 2, asserting: 1, assertions: 2 };
        assert_eq!(counted, [expected]);
    }
}
