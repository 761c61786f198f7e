//! Commands on strings, as functions over a [`KeyView`].
//!
//! They answer and check in the order in which Redis 7 does. A command that fails has written
//! nothing, except where a limit of the transaction stops it half way; its caller then drops the
//! transaction.

use timestone_types::limits::MAX_VALUE_BYTES;
use timestone_types::{Expiry, Timestamp};
use timestone_wire::resp::ReplyWriter;

use crate::commands::arguments::Args;
use crate::commands::expiry::{Millis, Unit};
use crate::commands::extended::Extended;
use crate::commands::integer;
use crate::commands::table::Cmd;
use crate::commands::view::KeyView;
use crate::failure::Failure;

/// When SET and its kin write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SetCondition {
    /// In any case.
    #[default]
    Always,
    /// When the key is absent.
    Absent,
    /// When the key is present.
    Present,
}

/// What becomes of a key's time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TtlChange {
    /// It has none from now on.
    #[default]
    Clear,
    /// It stays.
    Keep,
    /// It ends then.
    Until(Millis),
}

impl TtlChange {
    pub(crate) fn expiry(self, kept: Expiry) -> Expiry {
        match self {
            Self::Clear => Expiry::NEVER,
            Self::Keep => kept,
            Self::Until(at) => at.expiry(),
        }
    }
}

/// What the options of SET ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SetOptions {
    pub(crate) only: SetCondition,
    pub(crate) ttl: TtlChange,
    /// The answer is the previous value.
    pub(crate) get: bool,
}

/// An integer argument.
pub(crate) fn integer_of(text: &[u8]) -> Result<i64, Failure> {
    integer::parse(text).ok_or(Failure::NOT_AN_INTEGER)
}

/// The time to live of SET, GETEX, SETEX: above zero.
pub(crate) fn ttl_of(
    text: &[u8],
    unit: Unit,
    now: Timestamp,
    command: &str,
) -> Result<Millis, Failure> {
    let value = integer_of(text)?;
    let resolved = unit.resolve(value, now).filter(|at| value > 0 && at.0 > 0);
    resolved.ok_or_else(|| Failure::expire_time(command))
}

/// A time option behind those `before` it: of one unit the last one counts, and the others are not
/// even read.
fn last_time<'a>(
    before: Option<(&[u8], Unit)>,
    text: &'a [u8],
    unit: Unit,
) -> Result<(&'a [u8], Unit), Failure> {
    if before.is_some_and(|(_, before)| before != unit) {
        return Err(Failure::SYNTAX);
    }
    Ok((text, unit))
}

impl SetOptions {
    /// Reads what follows the value of a SET.
    pub(crate) fn parse(args: Args<'_>, now: Timestamp) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut ttl = None;
        let mut kept = false;
        let mut at = 3;
        while at < args.len() {
            let option = args.get(at);
            if let Some(unit) = Unit::of_option(option) {
                if kept || at + 1 >= args.len() {
                    return Err(Failure::SYNTAX);
                }
                at += 1;
                ttl = Some(last_time(ttl, args.get(at), unit)?);
            } else if option.eq_ignore_ascii_case(b"NX") && options.only != SetCondition::Present {
                options.only = SetCondition::Absent;
            } else if option.eq_ignore_ascii_case(b"XX") && options.only != SetCondition::Absent {
                options.only = SetCondition::Present;
            } else if option.eq_ignore_ascii_case(b"GET") {
                options.get = true;
            } else if option.eq_ignore_ascii_case(b"KEEPTTL") && ttl.is_none() {
                kept = true;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        options.ttl = match ttl {
            Some((text, unit)) => TtlChange::Until(ttl_of(text, unit, now, "set")?),
            None if kept => TtlChange::Keep,
            None => TtlChange::Clear,
        };
        Ok(options)
    }

    /// The options that SETEX, PSETEX, SETNX and GETSET stand for, and where their value is.
    pub(crate) fn of_relatives(
        cmd: Cmd,
        args: Args<'_>,
        now: Timestamp,
    ) -> Result<(Self, usize), Failure> {
        let timed = |unit, name| ttl_of(args.get(2), unit, now, name).map(TtlChange::Until);
        Ok(match cmd {
            Cmd::Setex => (Self { ttl: timed(Unit::Seconds, "setex")?, ..Self::default() }, 3),
            Cmd::Psetex => (Self { ttl: timed(Unit::Millis, "psetex")?, ..Self::default() }, 3),
            Cmd::Setnx => (Self { only: SetCondition::Absent, ..Self::default() }, 2),
            Cmd::Getset => (Self { get: true, ..Self::default() }, 2),
            _ => (Self::parse(args, now)?, 2),
        })
    }
}

/// SET, SETEX, PSETEX, SETNX, GETSET.
pub(crate) fn set(
    cmd: Cmd,
    args: Args<'_>,
    now: Timestamp,
    view: &mut dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(3);
    let (options, value_at) = SetOptions::of_relatives(cmd, args, now)?;
    let (key, value) = (args.get(1), args.get(value_at));
    let blind =
        options.only == SetCondition::Always && !options.get && options.ttl != TtlChange::Keep;
    let found = if blind { None } else { view.get(key) };
    let writes = match options.only {
        SetCondition::Always => true,
        SetCondition::Absent => found.is_none(),
        SetCondition::Present => found.is_some(),
    };
    match found {
        _ if cmd == Cmd::Setnx => reply.integer(i64::from(writes)),
        Some(found) if options.get => reply.bulk(found.value),
        None if options.get => reply.null(),
        _ if writes => reply.ok(),
        _ => reply.null(),
    }
    let kept = found.map_or(Expiry::NEVER, |found| found.expires_at);
    if writes { view.put(key, value, options.ttl.expiry(kept)) } else { Ok(()) }
}

/// GETDEL.
pub(crate) fn get_and_delete(
    args: Args<'_>,
    view: &mut dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    let Some(found) = view.get(args.get(1)) else {
        reply.null();
        return Ok(());
    };
    reply.bulk(found.value);
    view.delete(args.get(1))
}

/// GETEX.
pub(crate) fn get_and_expire(
    args: Args<'_>,
    now: Timestamp,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    let (mut timed, mut persist) = (None, false);
    let mut at = 2;
    while at < args.len() {
        match Unit::of_option(args.get(at)) {
            Some(unit) if !persist && at + 1 < args.len() => {
                at += 1;
                timed = Some(last_time(timed, args.get(at), unit)?);
            }
            None if args.is(at, b"PERSIST") && timed.is_none() => persist = true,
            _ => return Err(Failure::SYNTAX),
        }
        at += 1;
    }
    let key = args.get(1);
    let Some(found) = view.get(key) else {
        reply.null();
        return Ok(());
    };
    let ttl = timed.map(|(text, unit)| ttl_of(text, unit, now, "getex")).transpose()?;
    reply.bulk(found.value);
    if ttl.is_some_and(|at| at <= Millis::of(now)) {
        return view.delete(key);
    }
    let expires_at = match ttl {
        // Also the same time again is a write, which watched keys notice.
        Some(at) => at.expiry(),
        None if persist && !found.expires_at.is_never() => Expiry::NEVER,
        None => return Ok(()),
    };
    copy(scratch, found.value);
    view.put(key, scratch, expires_at)
}

/// GET.
pub(crate) fn get(args: Args<'_>, view: &dyn KeyView, reply: &mut ReplyWriter<'_>) {
    args.assert_at_least(2);
    match view.get(args.get(1)) {
        Some(found) => reply.bulk(found.value),
        None => reply.null(),
    }
}

/// MGET.
pub(crate) fn get_many(args: Args<'_>, view: &dyn KeyView, reply: &mut ReplyWriter<'_>) {
    args.assert_at_least(2);
    reply.array(args.len() - 1);
    for key in args.iter().skip(1) {
        match view.get(key) {
            Some(found) => reply.bulk(found.value),
            None => reply.null(),
        }
    }
}

/// MSET and MSETNX.
pub(crate) fn set_many(
    cmd: Cmd,
    args: Args<'_>,
    view: &mut dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(3);
    let only_absent = cmd == Cmd::Msetnx;
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity(if only_absent { "msetnx" } else { "mset" }));
    }
    let places = (1..args.len()).step_by(2);
    if only_absent && places.clone().any(|at| view.get(args.get(at)).is_some()) {
        reply.integer(0);
        return Ok(());
    }
    for at in places {
        view.put(args.get(at), args.get(at + 1), Expiry::NEVER)?;
    }
    if only_absent {
        reply.integer(1)
    } else {
        reply.ok()
    }
    Ok(())
}

/// INCR, DECR, INCRBY, DECRBY.
pub(crate) fn increment(
    cmd: Cmd,
    args: Args<'_>,
    view: &mut dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    let step = match cmd {
        Cmd::Incr => 1,
        Cmd::Decr => -1,
        Cmd::Incrby => integer_of(args.get(2))?,
        _ => integer_of(args.get(2))?.checked_neg().ok_or(Failure::DECREMENT_OVERFLOW)?,
    };
    let key = args.get(1);
    let (value, expires_at) = match view.get(key) {
        Some(found) => (integer_of(found.value)?, found.expires_at),
        None => (0, Expiry::NEVER),
    };
    let sum = value.checked_add(step).ok_or(Failure::OVERFLOW)?;
    let mut text = [0u8; 20];
    view.put(key, print_integer(sum, &mut text), expires_at)?;
    reply.integer(sum);
    Ok(())
}

fn print_integer(value: i64, text: &mut [u8; 20]) -> &[u8] {
    let mut magnitude = value.unsigned_abs();
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (magnitude % 10) as u8;
        magnitude /= 10;
        if magnitude == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        text[at] = b'-';
    }
    debug_assert_eq!(integer::parse(&text[at..]), Some(value), "it reads back as it was");
    &text[at..]
}

/// INCRBYFLOAT.
pub(crate) fn increment_float(
    args: Args<'_>,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(3);
    let key = args.get(1);
    let (value, expires_at) = match view.get(key) {
        Some(found) => {
            (Extended::parse(found.value).ok_or(Failure::NOT_A_FLOAT)?, found.expires_at)
        }
        None => (Extended::ZERO, Expiry::NEVER),
    };
    let step = Extended::parse(args.get(2)).ok_or(Failure::NOT_A_FLOAT)?;
    let sum = value.add(step).ok_or(Failure::NAN_OR_INFINITY)?;
    scratch.clear();
    sum.print(scratch);
    view.put(key, scratch, expires_at)?;
    reply.bulk(scratch);
    Ok(())
}

/// APPEND.
pub(crate) fn append(
    args: Args<'_>,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(3);
    let (key, tail) = (args.get(1), args.get(2));
    let found = view.get(key);
    let expires_at = found.map_or(Expiry::NEVER, |found| found.expires_at);
    copy(scratch, found.map_or(&[], |found| found.value));
    if scratch.len() + tail.len() > MAX_VALUE_BYTES {
        return Err(Failure::TOO_LONG);
    }
    scratch.extend_from_slice(tail);
    // Also an empty tail is a write, which watched keys notice.
    view.put(key, scratch, expires_at)?;
    reply.integer(scratch.len() as i64);
    Ok(())
}

/// SETRANGE.
pub(crate) fn set_range(
    args: Args<'_>,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(4);
    let (key, part) = (args.get(1), args.get(3));
    let offset = usize::try_from(integer_of(args.get(2))?).map_err(|_| Failure::OFFSET)?;
    let found = view.get(key);
    let expires_at = found.map_or(Expiry::NEVER, |found| found.expires_at);
    copy(scratch, found.map_or(&[], |found| found.value));
    if part.is_empty() {
        reply.integer(scratch.len() as i64);
        return Ok(());
    }
    let end = offset
        .checked_add(part.len())
        .filter(|&end| end <= MAX_VALUE_BYTES)
        .ok_or(Failure::TOO_LONG)?;
    if scratch.len() < end {
        scratch.resize(end, 0);
    }
    scratch[offset..end].copy_from_slice(part);
    view.put(key, scratch, expires_at)?;
    reply.integer(scratch.len() as i64);
    Ok(())
}

/// GETRANGE and SUBSTR.
pub(crate) fn get_range(
    args: Args<'_>,
    view: &dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(4);
    let (start, end) = (integer_of(args.get(2))?, integer_of(args.get(3))?);
    let value = view.get(args.get(1)).map_or(&[][..], |found| found.value);
    let length = value.len() as i64;
    if value.is_empty() || (start < 0 && end < 0 && start > end) {
        reply.bulk(b"");
        return Ok(());
    }
    let from_end = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    reply.bulk(if start > end { &[] } else { &value[start as usize..=end as usize] });
    Ok(())
}

/// STRLEN.
pub(crate) fn length(args: Args<'_>, view: &dyn KeyView, reply: &mut ReplyWriter<'_>) {
    args.assert_at_least(2);
    reply.integer(view.get(args.get(1)).map_or(0, |found| found.value.len() as i64));
}

/// Whether a command may write more than it brings.
pub(crate) const fn makes(cmd: Cmd) -> bool {
    use Cmd::{Append, Expire, Expireat, Getex, Persist, Pexpire, Pexpireat, Setrange};
    matches!(cmd, Append | Setrange | Getex | Expire | Pexpire | Expireat | Pexpireat | Persist)
}

/// The bytes that such a command writes at most beside those that it brings, over a value of this
/// length.
pub(crate) fn bytes_made(cmd: Cmd, args: Args<'_>, found: usize) -> usize {
    match cmd {
        Cmd::Setrange => {
            let part = args.get(3).len();
            let offset =
                integer::parse(args.get(2)).and_then(|offset| usize::try_from(offset).ok());
            let end = offset
                .and_then(|offset| offset.checked_add(part))
                .filter(|&end| end <= MAX_VALUE_BYTES);
            // Where nothing is written, nothing is made.
            end.filter(|_| part > 0).map_or(0, |end| found.max(end) - part)
        }
        Cmd::Getex if args.len() == 2 => 0,
        cmd if makes(cmd) => found,
        _ => 0,
    }
}

/// Copies a value out of a view that is about to be written.
pub(crate) fn copy(scratch: &mut Vec<u8>, value: &[u8]) {
    scratch.clear();
    scratch.extend_from_slice(value);
}
