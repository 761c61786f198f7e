//! The subcommands of CLIENT, CONFIG and COMMAND, and how many arguments each of them has.
//!
//! They are checked with the commands, before anything is queued or carried out: one that is not
//! there spoils a transaction when it comes, and not when EXEC runs it.

use crate::commands::arguments::Args;
use crate::commands::table::{Cmd, Spec, accepts};
use crate::failure::Failure;

/// Whose it is, its name as errors have it, and its arity as in [`Spec`], counted from the
/// command's name.
const SUBCOMMANDS: &[(Cmd, &str, i8)] = &[
    (Cmd::Client, "client|getname", 2),
    (Cmd::Client, "client|help", 2),
    (Cmd::Client, "client|id", 2),
    (Cmd::Client, "client|info", 2),
    (Cmd::Client, "client|list", -2),
    (Cmd::Client, "client|no-evict", 3),
    (Cmd::Client, "client|no-touch", 3),
    (Cmd::Client, "client|setinfo", 4),
    (Cmd::Client, "client|setname", 3),
    (Cmd::Command, "command|count", 2),
    (Cmd::Command, "command|docs", -2),
    (Cmd::Command, "command|getkeys", -4),
    (Cmd::Command, "command|help", 2),
    (Cmd::Command, "command|info", -2),
    (Cmd::Command, "command|list", -2),
    (Cmd::Config, "config|get", -3),
    (Cmd::Config, "config|help", 2),
    (Cmd::Config, "config|resetstat", 2),
];

/// Checks the subcommand of a command that has some.
///
/// # Errors
/// What is answered instead: there is no such subcommand, or it has another number of arguments.
pub(crate) fn check(spec: &Spec, args: Args<'_>) -> Result<(), Failure> {
    let has_some = matches!(spec.cmd, Cmd::Client | Cmd::Command | Cmd::Config);
    if !has_some || args.len() < 2 {
        return Ok(());
    }
    let called = |name: &str| {
        let own = name.split_once('|').map_or(name, |(_, own)| own);
        args.is(1, own.as_bytes())
    };
    let found = SUBCOMMANDS.iter().find(|(of, name, _)| *of == spec.cmd && called(name));
    match found {
        None => Err(Failure::subcommand(&spec.name.to_ascii_uppercase(), args.get(1))),
        Some(&(_, name, arity)) if !accepts(arity, args.len()) => Err(Failure::arity(name)),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::ArgumentBuffer;
    use crate::commands::table::find;

    fn checked(line: &str) -> Result<(), Failure> {
        let mut arguments = ArgumentBuffer::default();
        line.split(' ').for_each(|word| arguments.push(word.as_bytes()));
        check(find(arguments.argument(0)).unwrap(), arguments.all())
    }

    #[test]
    fn subcommands_are_known_by_name_and_number_of_arguments() {
        for line in ["CLIENT id", "client LIST ID 1", "COMMAND", "CONFIG GET a b", "GET nope"] {
            assert_eq!(checked(line), Ok(()), "{line}");
        }
        let unknown = |command, word: &str| Err(Failure::subcommand(command, word.as_bytes()));
        assert_eq!(checked("client Foo x"), unknown("CLIENT", "Foo"));
        assert_eq!(checked("CLIENT resetstat"), unknown("CLIENT", "resetstat"));
        assert_eq!(checked("COMMAND client|id"), unknown("COMMAND", "client|id"));
        assert_eq!(checked("CLIENT ID x"), Err(Failure::arity("client|id")));
        assert_eq!(checked("CONFIG GET"), Err(Failure::arity("config|get")));
        assert_eq!(checked("COMMAND GETKEYS GET"), Err(Failure::arity("command|getkeys")));
    }
}
