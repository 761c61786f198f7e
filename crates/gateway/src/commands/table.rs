//! The table of commands: names, arity, keys, and what COMMAND tells clients of them.
//!
//! One line a command; everything else (lookup, arity errors, key positions, COMMAND's answers)
//! follows from the table.

use crate::commands::arguments::Args;

/// What a command is, for those who carry it out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cmd {
    Append,
    Auth,
    Client,
    Command,
    Config,
    Dbsize,
    Decr,
    Decrby,
    Del,
    Discard,
    Echo,
    Exec,
    Exists,
    Expire,
    Expireat,
    Expiretime,
    Flushall,
    Flushdb,
    Get,
    Getdel,
    Getex,
    Getrange,
    Getset,
    Hello,
    Incr,
    Incrby,
    Incrbyfloat,
    Info,
    Keys,
    Mget,
    Mset,
    Msetnx,
    Multi,
    Persist,
    Pexpire,
    Pexpireat,
    Pexpiretime,
    Ping,
    Psetex,
    Pttl,
    Quit,
    Randomkey,
    Reset,
    Scan,
    Select,
    Set,
    Setex,
    Setnx,
    Setrange,
    Strlen,
    Substr,
    Time,
    Touch,
    Ttl,
    Type,
    Unlink,
    Unwatch,
    Watch,
}

/// Who carries a command out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// The connection, at once: it touches no key.
    Local,
    /// The connection's transaction state: MULTI and its kin.
    State,
    /// A function over a [`crate::commands::view::KeyView`] of its keys that changes nothing.
    Read,
    /// A function over a view of its keys that may write them.
    Write,
    /// Every shard: it reads or clears the whole keyspace.
    Keyspace,
}

/// Where the keys are among the arguments, as COMMAND INFO gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyPlaces {
    /// The first key's place; 0 when there is none.
    pub(crate) first: i8,
    /// The last key's place; negative: counted from the end.
    pub(crate) last: i8,
    /// The distance from one key to the next.
    pub(crate) step: i8,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Its name, in lower case.
    pub(crate) name: &'static str,
    /// Which it is.
    pub(crate) cmd: Cmd,
    /// How many arguments, its name included; negative: at least so many.
    pub(crate) arity: i8,
    /// Who carries it out.
    pub(crate) class: Class,
    /// Where its keys are.
    pub(crate) keys: KeyPlaces,
    /// Flags as COMMAND INFO gives them.
    pub(crate) flags: &'static [&'static str],
    /// Since which version Redis has it.
    pub(crate) since: &'static str,
    /// What it does, for COMMAND DOCS.
    pub(crate) summary: &'static str,
}

const NO_KEYS: KeyPlaces = KeyPlaces { first: 0, last: 0, step: 0 };
const ONE: KeyPlaces = KeyPlaces { first: 1, last: 1, step: 1 };
const ALL: KeyPlaces = KeyPlaces { first: 1, last: -1, step: 1 };
const PAIRS: KeyPlaces = KeyPlaces { first: 1, last: -1, step: 2 };

const READ: &[&str] = &["readonly", "fast"];
const READ_SLOW: &[&str] = &["readonly"];
const GROW: &[&str] = &["write", "denyoom", "fast"];
const GROW_SLOW: &[&str] = &["write", "denyoom"];
const SHRINK: &[&str] = &["write", "fast"];
const SHRINK_SLOW: &[&str] = &["write"];
const ANYTIME: &[&str] = &["loading", "stale", "fast"];
const ADMIN: &[&str] = &["noscript", "loading", "stale"];

macro_rules! commands {
    ($($name:literal $cmd:ident $arity:literal $class:ident $keys:ident $flags:ident $since:literal $summary:literal;)+) => {
        /// All commands, by name.
        pub(crate) static COMMANDS: &[Spec] = &[$(Spec {
            name: $name,
            cmd: Cmd::$cmd,
            arity: $arity,
            class: Class::$class,
            keys: $keys,
            flags: $flags,
            since: $since,
            summary: $summary,
        }),+];
        const PACKED: &[u128] = &[$(pack($name.as_bytes())),+];
    };
}

commands! {
    "append" Append 3 Write ONE GROW "2.0.0" "Appends a string to the value of a key. Creates the \
        key if it doesn't exist.";
    "auth" Auth -2 Local NO_KEYS ANYTIME "1.0.0" "Authenticates the connection.";
    "client" Client -2 Local NO_KEYS ADMIN "2.4.0" "A container for client connection commands.";
    "command" Command -1 Local NO_KEYS ANYTIME "2.8.13" "Returns detailed information about all \
        commands.";
    "config" Config -2 Local NO_KEYS ADMIN "2.0.0" "A container for server configuration commands.";
    "dbsize" Dbsize 1 Keyspace NO_KEYS READ "1.0.0" "Returns the number of keys in the database.";
    "decr" Decr 2 Write ONE GROW "1.0.0" "Decrements the integer value of a key by one. Uses 0 as \
        initial value if the key doesn't exist.";
    "decrby" Decrby 3 Write ONE GROW "1.0.0" "Decrements a number from the integer value of a key. \
        Uses 0 as initial value if the key doesn't exist.";
    "del" Del -2 Write ALL SHRINK_SLOW "1.0.0" "Deletes one or more keys.";
    "discard" Discard 1 State NO_KEYS ANYTIME "2.0.0" "Discards a transaction.";
    "echo" Echo 2 Local NO_KEYS ANYTIME "1.0.0" "Returns the given string.";
    "exec" Exec 1 State NO_KEYS ANYTIME "1.2.0" "Executes all commands in a transaction.";
    "exists" Exists -2 Read ALL READ "1.0.0" "Determines whether one or more keys exist.";
    "expire" Expire -3 Write ONE SHRINK "1.0.0" "Sets the expiration time of a key in seconds.";
    "expireat" Expireat -3 Write ONE SHRINK "1.2.0" "Sets the expiration time of a key to a Unix \
        timestamp.";
    "expiretime" Expiretime 2 Read ONE READ "7.0.0" "Returns the expiration time of a key as a \
        Unix timestamp.";
    "flushall" Flushall -1 Keyspace NO_KEYS SHRINK_SLOW "1.0.0" "Removes all keys from all databases.";
    "flushdb" Flushdb -1 Keyspace NO_KEYS SHRINK_SLOW "1.0.0" "Removes all keys from the current \
        database.";
    "get" Get 2 Read ONE READ "1.0.0" "Returns the string value of a key.";
    "getdel" Getdel 2 Write ONE SHRINK "6.2.0" "Returns the string value of a key after deleting \
        the key.";
    "getex" Getex -2 Write ONE SHRINK "6.2.0" "Returns the string value of a key after setting its \
        expiration time.";
    "getrange" Getrange 4 Read ONE READ_SLOW "2.4.0" "Returns a substring of the string stored at \
        a key.";
    "getset" Getset 3 Write ONE GROW "1.0.0" "Returns the previous string value of a key after \
        setting it to a new value.";
    "hello" Hello -1 Local NO_KEYS ANYTIME "6.0.0" "Handshakes with the server.";
    "incr" Incr 2 Write ONE GROW "1.0.0" "Increments the integer value of a key by one. Uses 0 as \
        initial value if the key doesn't exist.";
    "incrby" Incrby 3 Write ONE GROW "1.0.0" "Increments the integer value of a key by a number. \
        Uses 0 as initial value if the key doesn't exist.";
    "incrbyfloat" Incrbyfloat 3 Write ONE GROW "2.6.0" "Increments the floating point value of a \
        key by a number. Uses 0 as initial value if the key doesn't exist.";
    "info" Info -1 Local NO_KEYS ADMIN "1.0.0" "Returns information and statistics about the \
        server.";
    "keys" Keys 2 Keyspace NO_KEYS READ_SLOW "1.0.0" "Returns all key names that match a pattern.";
    "mget" Mget -2 Read ALL READ "1.0.0" "Atomically returns the string values of one or more keys.";
    "mset" Mset -3 Write PAIRS GROW_SLOW "1.0.1" "Atomically creates or modifies the string values \
        of one or more keys.";
    "msetnx" Msetnx -3 Write PAIRS GROW_SLOW "1.0.1" "Atomically modifies the string values of one \
        or more keys only when all keys don't exist.";
    "multi" Multi 1 State NO_KEYS ANYTIME "1.2.0" "Starts a transaction.";
    "persist" Persist 2 Write ONE SHRINK "2.2.0" "Removes the expiration time of a key.";
    "pexpire" Pexpire -3 Write ONE SHRINK "2.6.0" "Sets the expiration time of a key in \
        milliseconds.";
    "pexpireat" Pexpireat -3 Write ONE SHRINK "2.6.0" "Sets the expiration time of a key to a Unix \
        milliseconds timestamp.";
    "pexpiretime" Pexpiretime 2 Read ONE READ "7.0.0" "Returns the expiration time of a key as a \
        Unix milliseconds timestamp.";
    "ping" Ping -1 Local NO_KEYS ANYTIME "1.0.0" "Returns the server's liveliness response.";
    "psetex" Psetex 4 Write ONE GROW_SLOW "2.6.0" "Sets both string value and expiration time in \
        milliseconds of a key.";
    "pttl" Pttl 2 Read ONE READ "2.6.0" "Returns the expiration time in milliseconds of a key.";
    "quit" Quit -1 State NO_KEYS ANYTIME "1.0.0" "Closes the connection.";
    "randomkey" Randomkey 1 Keyspace NO_KEYS READ_SLOW "1.0.0" "Returns a random key name from the \
        database.";
    "reset" Reset 1 State NO_KEYS ANYTIME "6.2.0" "Resets the connection.";
    "scan" Scan -2 Keyspace NO_KEYS READ_SLOW "2.8.0" "Iterates over the key names in the database.";
    "select" Select 2 Local NO_KEYS ANYTIME "1.0.0" "Changes the selected database.";
    "set" Set -3 Write ONE GROW_SLOW "1.0.0" "Sets the string value of a key, ignoring its type. \
        The key is created if it doesn't exist.";
    "setex" Setex 4 Write ONE GROW_SLOW "2.0.0" "Sets the string value and expiration time of a \
        key. Creates the key if it doesn't exist.";
    "setnx" Setnx 3 Write ONE GROW "1.0.0" "Sets the string value of a key only when the key \
        doesn't exist.";
    "setrange" Setrange 4 Write ONE GROW_SLOW "2.2.0" "Overwrites a part of a string value with \
        another by an offset. Creates the key if it doesn't exist.";
    "strlen" Strlen 2 Read ONE READ "2.2.0" "Returns the length of a string value.";
    "substr" Substr 4 Read ONE READ_SLOW "1.0.0" "Returns a substring from a string value.";
    "time" Time 1 Local NO_KEYS ANYTIME "2.6.0" "Returns the server time.";
    "touch" Touch -2 Read ALL READ "3.2.1" "Returns the number of existing keys out of those \
        specified.";
    "ttl" Ttl 2 Read ONE READ "1.0.0" "Returns the expiration time in seconds of a key.";
    "type" Type 2 Read ONE READ "1.0.0" "Determines the type of value stored at a key.";
    "unlink" Unlink -2 Write ALL SHRINK "4.0.0" "Deletes one or more keys.";
    "unwatch" Unwatch 1 State NO_KEYS ANYTIME "2.2.0" "Forgets about watched keys of a transaction.";
    "watch" Watch -2 State ALL ANYTIME "2.2.0" "Monitors changes to keys to determine the execution \
        of a transaction.";
}

/// Longest name, in bytes: names are compared as numbers.
const MAX_NAME: usize = 16;

/// A lower-case name as a number that is ordered as the name is.
const fn pack(name: &[u8]) -> u128 {
    assert!(name.len() <= MAX_NAME, "names of commands are short");
    let mut packed = 0;
    let mut at = 0;
    while at < MAX_NAME {
        let byte = if at < name.len() { name[at].to_ascii_lowercase() } else { 0 };
        packed = packed << 8 | byte as u128;
        at += 1;
    }
    packed
}

const _: () = {
    let mut at = 1;
    while at < PACKED.len() {
        assert!(PACKED[at - 1] < PACKED[at], "the table is sorted by name");
        at += 1;
    }
};

/// The command with this name, in either case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    if name.len() > MAX_NAME {
        return None;
    }
    let at = PACKED.binary_search(&pack(name)).ok()?;
    Some(&COMMANDS[at]).filter(|spec| spec.name.len() == name.len())
}

/// Whether an arity, as in [`Spec`], allows so many arguments.
pub(crate) fn accepts(arity: i8, arguments: usize) -> bool {
    let least = usize::from(arity.unsigned_abs());
    if arity < 0 { arguments >= least } else { arguments == least }
}

impl Spec {
    /// Whether a command may have so many arguments.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        accepts(self.arity, arguments)
    }

    /// The places of its keys among `arguments` arguments.
    pub(crate) fn key_places(
        &self,
        arguments: usize,
    ) -> impl Iterator<Item = usize> + Clone + use<> {
        let KeyPlaces { first, last, step } = self.keys;
        let first = usize::from(first.unsigned_abs());
        let end = if last < 0 {
            arguments.saturating_sub(usize::from(last.unsigned_abs()) - 1)
        } else {
            last as usize + 1
        };
        let none = self.keys == NO_KEYS;
        (first..end).step_by(usize::from(step.unsigned_abs()).max(1)).take(if none {
            0
        } else {
            usize::MAX
        })
    }

    /// The place of its key number `nth` among `arguments` arguments. [`Spec::key_places`] has the same,
    /// but walks there.
    pub(crate) fn key_place(&self, arguments: usize, nth: usize) -> Option<usize> {
        let KeyPlaces { first, last, step } = self.keys;
        let at = usize::from(first.unsigned_abs()) + nth * usize::from(step.unsigned_abs()).max(1);
        let end = if last < 0 {
            arguments.saturating_sub(usize::from(last.unsigned_abs()) - 1)
        } else {
            last as usize + 1
        };
        (at < end && self.keys != NO_KEYS).then_some(at)
    }

    /// Its keys.
    pub(crate) fn keys<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        self.key_places(args.len()).map(move |at| args.get(at))
    }

    /// Whether it must know what its keys hold.
    pub(crate) fn reads(&self, args: Args<'_>) -> bool {
        match self.cmd {
            Cmd::Mset | Cmd::Setex | Cmd::Psetex => false,
            Cmd::Set => (3..args.len()).any(|at| {
                [&b"NX"[..], b"XX", b"GET", b"KEEPTTL"].iter().any(|option| args.is(at, option))
            }),
            _ => self.keys != NO_KEYS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::ArgumentBuffer;

    fn arguments(text: &str) -> ArgumentBuffer {
        let mut arguments = ArgumentBuffer::default();
        text.split(' ').for_each(|word| arguments.push(word.as_bytes()));
        arguments
    }

    #[test]
    fn commands_are_found_in_either_case() {
        assert_eq!(find(b"GeT").map(|spec| spec.cmd), Some(Cmd::Get));
        for spec in COMMANDS {
            assert_eq!(
                find(spec.name.to_uppercase().as_bytes()).map(|found| found.cmd),
                Some(spec.cmd)
            );
        }
        for name in [&b""[..], b"ge", b"gett", b"lpush", b"averyveryverylongname", b"get\0"] {
            assert!(find(name).is_none(), "{name:?}");
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let keys = |text: &str| {
            let arguments = arguments(text);
            let spec = find(arguments.argument(0)).unwrap();
            spec.keys(arguments.all())
                .map(|key| String::from_utf8(key.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        for (spec, arguments) in
            COMMANDS.iter().flat_map(|spec| (1..12).map(move |arguments| (spec, arguments)))
        {
            let all: Vec<usize> = spec.key_places(arguments).collect();
            let one_by_one: Vec<usize> =
                (0..).map_while(|nth| spec.key_place(arguments, nth)).collect();
            assert_eq!(all, one_by_one, "{} of {arguments} arguments", spec.name);
        }
        assert_eq!(keys("GET a"), ["a"]);
        assert_eq!(keys("MGET a b c"), ["a", "b", "c"]);
        assert_eq!(keys("MSET a 1 b 2"), ["a", "b"]);
        assert_eq!(keys("PING a"), [""; 0]);
        assert_eq!(keys("EXPIRE a 10 NX"), ["a"]);
    }

    #[test]
    fn blind_writes_do_not_read() {
        let reads = |text: &str| {
            let arguments = arguments(text);
            find(arguments.argument(0)).unwrap().reads(arguments.all())
        };
        assert!(!reads("SET a 1") && !reads("SET a 1 EX 5") && !reads("MSET a 1"));
        assert!(
            reads("SET a 1 nx") && reads("SET a 1 EX 5 GET") && reads("INCR a") && reads("GET a")
        );
    }
}
