//! Methods, files and fields of each type.
//!
//! A type is known by its crate and name. Where a crate has several types of one name, an `impl`
//! belongs to the one that is defined nearest: in the same file, else in the file with the longest
//! common path.

use std::collections::{BTreeMap, BTreeSet};

use syn::{ImplItem, Item, Type};

use super::{Source, is_for_tests};

/// What was counted of one type.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// `crate::Name`, with the file when the crate has several of that name.
    pub(crate) name: String,
    /// Methods in inherent `impl`s.
    pub(crate) inherent: usize,
    /// Methods in `impl`s of traits.
    pub(crate) of_traits: usize,
    /// Files with an inherent `impl`.
    pub(crate) files: usize,
    /// Fields of a struct.
    pub(crate) fields: usize,
}

#[derive(Default)]
struct Found {
    inherent: usize,
    of_traits: usize,
    files: BTreeSet<String>,
    fields: usize,
}

/// Of every type that production code defines.
pub(crate) fn count(sources: &[Source]) -> Vec<Counts> {
    // By crate and name: the files that define it.
    let mut found: BTreeMap<(String, String), BTreeMap<String, Found>> = BTreeMap::new();
    for source in sources {
        for item in items(&source.file.items) {
            let (name, fields) = match item {
                Item::Struct(item) => (&item.ident, item.fields.len()),
                Item::Enum(item) => (&item.ident, 0),
                Item::Union(item) => (&item.ident, item.fields.named.len()),
                _ => continue,
            };
            let types = found.entry((source.package().to_owned(), name.to_string())).or_default();
            types.entry(source.path.clone()).or_default().fields = fields;
        }
    }
    for source in sources {
        for item in items(&source.file.items) {
            let Item::Impl(item) = item else { continue };
            let Some(name) = name_of(&item.self_ty) else { continue };
            let Some(types) = found.get_mut(&(source.package().to_owned(), name)) else { continue };
            let nearest = types.keys().max_by_key(|path| common(path, &source.path)).cloned();
            let Some(found) = nearest.and_then(|path| types.get_mut(&path)) else { continue };
            let methods = item
                .items
                .iter()
                .filter(|item| matches!(item, ImplItem::Fn(method) if !is_for_tests(&method.attrs)))
                .count();
            if item.trait_.is_some() {
                found.of_traits += methods;
            } else {
                found.inherent += methods;
                found.files.insert(source.path.clone());
            }
        }
    }
    let mut counts = Vec::new();
    for ((package, name), types) in found {
        let is_alone = types.len() == 1;
        for (path, found) in types {
            let short = format!("{package}::{name}");
            let name = if is_alone { short } else { format!("{short} ({path})") };
            let Found { inherent, of_traits, files, fields } = found;
            counts.push(Counts { name, inherent, of_traits, files: files.len(), fields });
        }
    }
    counts
}

/// All items, those of inline modules as well; none for tests.
pub(super) fn items(items: &[Item]) -> Vec<&Item> {
    let mut all = Vec::new();
    for item in items {
        let attributes = match item {
            Item::Struct(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if is_for_tests(attributes) {
            continue;
        }
        match item {
            Item::Mod(module) => {
                let inside = module.content.as_ref().map_or(&[][..], |(_, items)| items);
                all.extend(self::items(inside));
            }
            item => all.push(item),
        }
    }
    all
}

fn name_of(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        Type::Reference(reference) => name_of(&reference.elem),
        _ => None,
    }
}

/// How alike two paths are: the same file most, then as many folders as they share.
fn common(one: &str, other: &str) -> usize {
    if one == other {
        return usize::MAX;
    }
    one.split('/').zip(other.split('/')).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::super::sources;
    use super::*;

    #[test]
    fn methods_files_and_fields_are_counted_and_tests_are_not() {
        let counted = count(&sources([
            (
                "crates/a/src/a.rs",
                "struct A { x: u8, y: u8 } impl A { fn b() {} fn c() {} #[cfg(test)] fn t() {} }
                 impl Default for A { fn default() -> Self { todo() } }
                 #[cfg(test)] impl A { fn u() {} } #[cfg(test)] mod tests { struct B; }",
            ),
            (
                "crates/a/src/b.rs",
                "mod inner { impl<T> super::A { fn d(&self) {} const C: u8 = 1; } }",
            ),
        ]));
        let expected =
            Counts { name: "a::A".into(), inherent: 3, of_traits: 1, files: 2, fields: 2 };
        assert_eq!(counted, [expected]);
    }

    #[test]
    fn of_two_types_of_one_name_each_has_its_own() {
        let counted = count(&sources([
            ("crates/a/src/one/a.rs", "struct A; impl A { fn b() {} }"),
            ("crates/a/src/two/a.rs", "struct A;"),
            ("crates/a/src/two/b.rs", "impl A { fn c() {} fn d() {} }"),
        ]));
        let found: Vec<_> = counted.iter().map(|one| (one.name.as_str(), one.inherent)).collect();
        assert_eq!(
            found,
            [("a::A (crates/a/src/one/a.rs)", 1), ("a::A (crates/a/src/two/a.rs)", 2)]
        );
    }
}
