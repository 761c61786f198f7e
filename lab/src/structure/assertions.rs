//! Assertions in the cores: in functions that change state.
//!
//! A function changes state when it takes `&mut self` or another `&mut`, except when
//! - its only mutable arguments are what it writes results to (`&mut Vec<u8>`, `&mut [u8]`, …),
//! - it reads from a cursor over encoded bytes: what may be wrong there is an error that is told,
//! - it lends a part of what it was given (`-> &mut T`): who borrows it changes it,
//! - it does nothing (the empty method of a trait).
//!
//! An assertion is a macro `assert…` or `debug_assert…`, or a call of a function `assert_…`, which
//! is how a type names the check of its own invariants.

use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprCall, ExprMethodCall, FnArg, ImplItem, Item, Macro, ReturnType, Signature,
    Type,
};

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
        each(sources, folders, |_, signature, block| counts.add(signature, block));
        counts
    };
    CORES.into_iter().map(of_core).filter(|counts| counts.functions > 0).collect()
}

/// `path: function` of each function of a core, or of all, that changes state and asserts nothing.
pub(crate) fn lacking(sources: &[Source], wanted: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (core, folders) in CORES {
        if wanted.is_some_and(|wanted| wanted != core) {
            continue;
        }
        each(sources, folders, |path, signature, block| {
            if changes_state(signature, block) && assertions(block) == 0 {
                found.push(format!("{path}: {}", signature.ident));
            }
        });
    }
    found
}

/// Gives every function in `folders` to `see`, with the path of its file.
fn each(sources: &[Source], folders: &[&str], mut see: impl FnMut(&str, &Signature, &Block)) {
    let is_of = |source: &&Source| folders.iter().any(|folder| source.path.starts_with(folder));
    for source in sources.iter().filter(is_of) {
        for item in items(&source.file.items) {
            match item {
                Item::Fn(function) => see(&source.path, &function.sig, &function.block),
                // What reads encoded bytes tells errors.
                Item::Impl(item) if is_written_to(&item.self_ty) => {}
                Item::Impl(item) => {
                    for item in &item.items {
                        if let ImplItem::Fn(method) = item
                            && !is_for_tests(&method.attrs)
                        {
                            see(&source.path, &method.sig, &method.block);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn changes_state(signature: &Signature, block: &Block) -> bool {
    let is_mutable = |argument: &FnArg| match argument {
        FnArg::Receiver(receiver) => receiver.reference.is_some() && receiver.mutability.is_some(),
        FnArg::Typed(argument) => match &*argument.ty {
            Type::Reference(of) => of.mutability.is_some() && !is_written_to(&of.elem),
            _ => false,
        },
    };
    let lends = match &signature.output {
        ReturnType::Default => false,
        ReturnType::Type(_, of) => {
            let mut found = Lends(false);
            found.visit_type(of);
            found.0
        }
    };
    let does_nothing = matches!(
        block.stmts.as_slice(),
        [] | [syn::Stmt::Expr(Expr::Lit(_) | Expr::Path(_), None)]
    );
    signature.inputs.iter().any(is_mutable) && !lends && !does_nothing
}

/// Whether this is what a function writes its results to, or reads its bytes from: no state.
fn is_written_to(of: &Type) -> bool {
    match of {
        Type::Slice(_) => true,
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            ["Vec", "String", "Formatter", "Cursor"].iter().any(|name| last.ident == name)
        }),
        _ => false,
    }
}

fn assertions(block: &Block) -> usize {
    let mut seen = Assertions(0);
    seen.visit_block(block);
    seen.0
}

impl Counts {
    fn add(&mut self, signature: &Signature, block: &Block) {
        if !changes_state(signature, block) {
            return;
        }
        let seen = assertions(block);
        self.functions += 1;
        self.assertions += seen;
        self.asserting += usize::from(seen > 0);
    }
}

/// Whether a type has a `&mut` in it.
struct Lends(bool);

impl<'ast> Visit<'ast> for Lends {
    fn visit_type_reference(&mut self, found: &'ast syn::TypeReference) {
        self.0 |= found.mutability.is_some();
        visit::visit_type_reference(self, found);
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

    fn visit_expr_method_call(&mut self, found: &'ast ExprMethodCall) {
        self.0 += usize::from(found.method.to_string().starts_with("assert_"));
        visit::visit_expr_method_call(self, found);
    }

    fn visit_expr_call(&mut self, found: &'ast ExprCall) {
        let called = match &*found.func {
            Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.0 += usize::from(called.is_some_and(|called| called.starts_with("assert_")));
        visit::visit_expr_call(self, found);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources;
    use super::*;

    #[test]
    fn functions_that_change_state_and_their_assertions_are_counted() {
        let text = "fn a(x: &mut u8) { assert!(*x > 0); if x { debug_assert_eq!(1, 1); } }
                    struct S; impl S { fn b(&mut self) { self.0 = 1; } fn c(&self) { assert!(true); }
                    fn d(mut self) { assert!(true); }
                    fn e(&mut self) { self.0 += 1; self.assert_sound(); }
                    fn lends(&mut self) -> Option<&mut u8> { self.0.first_mut() }
                    fn nothing(&mut self) -> bool { false } }
                    fn encodes(&self, into: &mut Vec<u8>) { into.push(1); }
                    fn decode(cursor: &mut Cursor<'_>) -> u8 { cursor.u8() }
                    impl Cursor<'_> { fn u8(&mut self) -> u8 { self.0 } }
                    #[cfg(test)] mod tests { fn t(x: &mut u8) { assert!(true); } }";
        let counted = count(&sources([
            ("crates/server/src/shard/a.rs", text),
            ("crates/wal/src/a.rs", text),
        ]));
        let expected = Counts { core: "shard", functions: 3, asserting: 2, assertions: 3 };
        assert_eq!(counted, [expected]);
        let sources = sources([("crates/txn/src/a.rs", text)]);
        assert_eq!(lacking(&sources, None), ["crates/txn/src/a.rs: b"]);
        assert_eq!(lacking(&sources, Some("store")), [""; 0]);
    }
}
