//! What was counted, as text, as JSON, and as a table of two trees for a page.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{assertions, types, walks};
use crate::table::Table;

/// Bounds of a type (docs/design/house.md): methods, files with an inherent `impl`, fields.
const MOST_METHODS: usize = 40;
const MOST_FILES: usize = 3;
const MOST_FIELDS: usize = 15;

/// Everything that is counted of one tree.
pub(crate) struct Figures {
    pub(crate) types: Vec<types::Counts>,
    pub(crate) assertions: Vec<assertions::Counts>,
    pub(crate) walks: Vec<walks::Walk>,
    pub(crate) homonyms: BTreeMap<String, Vec<String>>,
    pub(crate) retired: Vec<(String, usize)>,
}

fn methods(of: &types::Counts) -> usize {
    of.inherent + of.of_traits
}

impl Figures {
    /// Types beyond a bound, the largest first.
    fn large(&self) -> Vec<&types::Counts> {
        let is_large = |of: &&types::Counts| {
            methods(of) > MOST_METHODS || of.files > MOST_FILES || of.fields > MOST_FIELDS
        };
        let mut large: Vec<_> = self.types.iter().filter(is_large).collect();
        large.sort_by_key(|of| std::cmp::Reverse((methods(of), of.fields)));
        large
    }

    /// Names and numbers that stand for the whole tree, in the order of the page.
    fn sums(&self) -> Vec<(String, String)> {
        let beyond = |is: &dyn Fn(&types::Counts) -> bool| {
            self.types.iter().filter(|of| is(of)).count().to_string()
        };
        let (functions, assertions) =
            self.assertions.iter().fold((0, 0), |(f, a), of| (f + of.functions, a + of.assertions));
        let mut sums = vec![
            (
                format!("types with more than {MOST_METHODS} methods"),
                beyond(&|of| methods(of) > MOST_METHODS),
            ),
            (
                format!("types with `impl`s in more than {MOST_FILES} files"),
                beyond(&|of| of.files > MOST_FILES),
            ),
            (
                format!("structs with more than {MOST_FIELDS} fields"),
                beyond(&|of| of.fields > MOST_FIELDS),
            ),
            ("names of types in more than 2 modules".to_owned(), self.homonyms.len().to_string()),
            (
                "modules that share such a name".to_owned(),
                self.homonyms.values().map(Vec::len).sum::<usize>().to_string(),
            ),
            (
                "uses of retired words".to_owned(),
                self.retired.iter().map(|(_, uses)| uses).sum::<usize>().to_string(),
            ),
            ("functions of cores that change state".to_owned(), functions.to_string()),
            ("assertions in them".to_owned(), assertions.to_string()),
        ];
        for walk in &self.walks {
            sums.push((format!("rooms of the tour: {}", walk.name), walk.rooms.to_string()));
            sums.push((format!("files of the tour: {}", walk.name), walk.files.to_string()));
        }
        sums
    }

    pub(crate) fn json(&self) -> Value {
        let types = self.large().into_iter().map(|of| {
            json!({
                "type": of.name, "inherent_methods": of.inherent, "trait_methods": of.of_traits,
                "files": of.files, "fields": of.fields,
            })
        });
        let assertions = self.assertions.iter().map(|of| {
            json!({
                "core": of.core, "functions": of.functions, "asserting": of.asserting,
                "assertions": of.assertions,
            })
        });
        let walks = self.walks.iter().map(|walk| {
            json!({
                "walk": walk.name, "rooms": walk.rooms, "files": walk.files, "missing": walk.missing,
            })
        });
        json!({
            "types": types.collect::<Vec<_>>(),
            "assertions": assertions.collect::<Vec<_>>(),
            "walks": walks.collect::<Vec<_>>(),
            "homonyms": self.homonyms,
            "retired": self.retired.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    }

    pub(crate) fn text(&self) -> String {
        let row = |cells: &[String]| cells.to_vec();
        let types = self.large().into_iter().map(|of| {
            let Cells { methods, files, fields } = Cells::of(of);
            row(&[of.name.clone(), methods, files, fields])
        });
        let types =
            Table { header: vec!["type", "methods", "files", "fields"], rows: types.collect() };
        let cores = self.assertions.iter().map(|of| {
            row(&[
                of.core.to_owned(),
                of.functions.to_string(),
                of.asserting.to_string(),
                of.assertions.to_string(),
            ])
        });
        let cores = Table {
            header: vec!["core", "functions", "with an assertion", "assertions"],
            rows: cores.collect(),
        };
        let names = self
            .homonyms
            .iter()
            .map(|(name, modules)| row(&[name.clone(), modules.len().to_string()]));
        let names = Table { header: vec!["name", "modules"], rows: names.collect() };
        let words = self.retired.iter().filter(|(_, uses)| *uses > 0);
        let words = words.map(|(word, uses)| row(&[word.clone(), uses.to_string()]));
        let words = Table { header: vec!["retired word", "uses"], rows: words.collect() };
        let sums = self.sums().into_iter().map(|(name, sum)| row(&[name, sum]));
        let sums = Table { header: vec!["all", ""], rows: sums.collect() };
        let missing = self.walks.iter().flat_map(|walk| &walk.missing);
        let missing: String = missing
            .map(|file| format!("docs/tour.md names {file}, which does not exist\n"))
            .collect();
        [types, cores, names, words, sums].map(|table| table.text()).join("\n") + &missing
    }
}

/// Cells of a type's row.
struct Cells {
    methods: String,
    files: String,
    fields: String,
}

impl Cells {
    fn of(of: &types::Counts) -> Self {
        let methods = match of.of_traits {
            0 => of.inherent.to_string(),
            more => format!("{} + {more}", of.inherent),
        };
        Self { methods, files: of.files.to_string(), fields: of.fields.to_string() }
    }
}

/// Tables of two trees side by side.
pub(crate) fn pair(commit: &str, before: &Figures, after: &Figures) -> String {
    let mut text = format!("Before: {commit}. After: this tree.\n\n");
    let sums_after: BTreeMap<_, _> = after.sums().into_iter().collect();
    let mut sums = Vec::new();
    for (name, sum) in before.sums() {
        let then = sums_after.get(&name).cloned().unwrap_or_else(|| "–".to_owned());
        sums.push(vec![name, sum, then]);
    }
    for (name, sum) in after.sums() {
        if !sums.iter().any(|row| row[0] == name) {
            sums.push(vec![name, "–".to_owned(), sum]);
        }
    }
    text.push_str(&Table { header: vec!["all", "before", "after"], rows: sums }.markdown());
    text.push_str("\nTypes that are beyond a bound in either tree; methods are inherent ones + those of traits:\n\n");
    let names: Vec<&str> =
        before.large().iter().chain(&after.large()).map(|of| of.name.as_str()).collect();
    let mut seen = BTreeSet::new();
    let rows = names.into_iter().filter(|name| seen.insert(*name)).map(|name| {
        let cells = |figures: &Figures| {
            let found = figures.types.iter().find(|of| of.name == name).map(Cells::of);
            found.map_or(["–"; 3].map(str::to_owned), |of| [of.methods, of.files, of.fields])
        };
        let [methods, files, fields] = cells(before);
        let [methods_after, files_after, fields_after] = cells(after);
        vec![format!("`{name}`"), methods, methods_after, files, files_after, fields, fields_after]
    });
    let header = vec!["type", "methods", "after", "files", "after", "fields", "after"];
    text.push_str(&Table { header, rows: rows.collect() }.markdown());
    text.push_str("\nFunctions of cores that take something mutable:\n\n");
    let cores: BTreeSet<_> =
        before.assertions.iter().chain(&after.assertions).map(|of| of.core).collect();
    let rows = cores.into_iter().map(|core| {
        let cells = |figures: &Figures| {
            let found = figures.assertions.iter().find(|of| of.core == core);
            found.map_or(["–"; 3].map(str::to_owned), |of| {
                [of.functions, of.asserting, of.assertions].map(|number| number.to_string())
            })
        };
        let [functions, asserting, assertions] = cells(before);
        let [functions_after, asserting_after, assertions_after] = cells(after);
        vec![
            core.to_owned(),
            functions,
            functions_after,
            asserting,
            asserting_after,
            assertions,
            assertions_after,
        ]
    });
    let header =
        vec!["core", "functions", "after", "with an assertion", "after", "assertions", "after"];
    text.push_str(&Table { header, rows: rows.collect() }.markdown());
    text.push_str("\nNames of types that more than two modules define:\n\n");
    let names: BTreeSet<_> = before.homonyms.keys().chain(after.homonyms.keys()).collect();
    let modules = |figures: &Figures, name: &str| {
        figures.homonyms.get(name).map_or_else(|| "≤ 2".to_owned(), |of| of.len().to_string())
    };
    let rows = names
        .into_iter()
        .map(|name| vec![format!("`{name}`"), modules(before, name), modules(after, name)]);
    text.push_str(
        &Table { header: vec!["name", "before", "after"], rows: rows.collect() }.markdown(),
    );
    text.push_str("\nUses of retired words:\n\n");
    let rows = before.retired.iter().zip(&after.retired).map(|((word, uses), (_, then))| {
        vec![format!("`{word}`"), uses.to_string(), then.to_string()]
    });
    text.push_str(
        &Table { header: vec!["word", "before", "after"], rows: rows.collect() }.markdown(),
    );
    text
}
