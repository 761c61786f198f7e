//! Commands on keys of any type (there is one: strings), as functions over a [`KeyView`]; and which
//! function a command is.

use timestone_types::{Expiry, Timestamp};
use timestone_wire::resp::ReplyWriter;

use crate::commands::arguments::Args;
use crate::commands::expiry::{Millis, Unit};
use crate::commands::strings::{self, copy, integer_of};
use crate::commands::table::Cmd;
use crate::commands::view::KeyView;
use crate::failure::Failure;

/// Carries out a command of class `Read` or `Write`. The number of arguments was checked.
///
/// # Errors
/// What the command answers instead; nothing was written then, or the transaction must be dropped
/// (see [`strings`]).
pub(crate) fn execute(
    cmd: Cmd,
    args: Args<'_>,
    now: Timestamp,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    match cmd {
        Cmd::Get => strings::get(args, view, reply),
        Cmd::Mget => strings::get_many(args, view, reply),
        Cmd::Strlen => strings::length(args, view, reply),
        Cmd::Getrange | Cmd::Substr => strings::get_range(args, view, reply)?,
        Cmd::Set | Cmd::Setex | Cmd::Psetex | Cmd::Setnx | Cmd::Getset => {
            strings::set(cmd, args, now, view, reply)?
        }
        Cmd::Getdel => strings::get_and_delete(args, view, reply)?,
        Cmd::Getex => strings::get_and_expire(args, now, view, scratch, reply)?,
        Cmd::Mset | Cmd::Msetnx => strings::set_many(cmd, args, view, reply)?,
        Cmd::Incr | Cmd::Decr | Cmd::Incrby | Cmd::Decrby => {
            strings::increment(cmd, args, view, reply)?
        }
        Cmd::Incrbyfloat => strings::increment_float(args, view, scratch, reply)?,
        Cmd::Append => strings::append(args, view, scratch, reply)?,
        Cmd::Setrange => strings::set_range(args, view, scratch, reply)?,
        Cmd::Del | Cmd::Unlink => delete(args, view, reply)?,
        Cmd::Exists | Cmd::Touch => {
            let present = args.iter().skip(1).filter(|key| view.get(key).is_some()).count();
            reply.integer(present as i64);
        }
        Cmd::Expire => expire(cmd, Unit::Seconds, args, now, view, scratch, reply)?,
        Cmd::Pexpire => expire(cmd, Unit::Millis, args, now, view, scratch, reply)?,
        Cmd::Expireat => expire(cmd, Unit::SecondsAt, args, now, view, scratch, reply)?,
        Cmd::Pexpireat => expire(cmd, Unit::MillisAt, args, now, view, scratch, reply)?,
        Cmd::Ttl | Cmd::Pttl | Cmd::Expiretime | Cmd::Pexpiretime => {
            reply.integer(time_to_live(cmd, args, now, view))
        }
        Cmd::Persist => persist(args, view, scratch, reply)?,
        Cmd::Type => reply.simple(if view.get(args.get(1)).is_some() { "string" } else { "none" }),
        _ => unreachable!("only commands over keys are carried out here, not {cmd:?}"),
    }
    Ok(())
}

fn delete(
    args: Args<'_>,
    view: &mut dyn KeyView,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    let mut deleted = 0;
    for key in args.iter().skip(1) {
        if view.get(key).is_some() {
            view.delete(key)?;
            deleted += 1;
        }
    }
    reply.integer(deleted);
    Ok(())
}

/// The conditions of EXPIRE and its kin.
#[derive(Clone, Copy, Default)]
struct ExpireOnly {
    without: bool,
    with: bool,
    later: bool,
    earlier: bool,
}

impl ExpireOnly {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let mut only = Self::default();
        for option in args.iter().skip(3) {
            match () {
                () if option.eq_ignore_ascii_case(b"NX") => only.without = true,
                () if option.eq_ignore_ascii_case(b"XX") => only.with = true,
                () if option.eq_ignore_ascii_case(b"GT") => only.later = true,
                () if option.eq_ignore_ascii_case(b"LT") => only.earlier = true,
                () => return Err(Failure::option(option)),
            }
        }
        if only.without && (only.with || only.later || only.earlier) {
            return Err(Failure::NX_AND_OTHERS);
        }
        if only.later && only.earlier { Err(Failure::GT_AND_LT) } else { Ok(only) }
    }

    /// Whether a key that expires at `present` (never, if `None`) may get a new expiry. "Never"
    /// counts as later than anything.
    fn allows(self, new: Millis, present: Option<Millis>) -> bool {
        (!self.without || present.is_none())
            && (!self.with || present.is_some())
            && (!self.later || present.is_some_and(|present| new > present))
            && (!self.earlier || present.is_none_or(|present| new < present))
    }
}

const fn name_of(cmd: Cmd) -> &'static str {
    match cmd {
        Cmd::Expire => "expire",
        Cmd::Pexpire => "pexpire",
        Cmd::Expireat => "expireat",
        _ => "pexpireat",
    }
}

fn expire(
    cmd: Cmd,
    unit: Unit,
    args: Args<'_>,
    now: Timestamp,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(3);
    let only = ExpireOnly::parse(args)?;
    let key = args.get(1);
    let at = unit
        .resolve(integer_of(args.get(2))?, now)
        .ok_or_else(|| Failure::expire_time(name_of(cmd)))?;
    let found = view.get(key).filter(|found| only.allows(at, Millis::of_expiry(found.expires_at)));
    let Some(found) = found else {
        reply.integer(0);
        return Ok(());
    };
    reply.integer(1);
    if at <= Millis::of(now) {
        return view.delete(key);
    }
    copy(scratch, found.value);
    view.put(key, scratch, at.expiry())
}

fn time_to_live(cmd: Cmd, args: Args<'_>, now: Timestamp, view: &dyn KeyView) -> i64 {
    let Some(found) = view.get(args.get(1)) else { return -2 };
    let Some(at) = Millis::of_expiry(found.expires_at) else { return -1 };
    let left = Millis((at.0 - Millis::of(now).0).max(0));
    match cmd {
        Cmd::Ttl => left.to_seconds(),
        Cmd::Pttl => left.0,
        Cmd::Expiretime => at.to_seconds(),
        _ => at.0,
    }
}

fn persist(
    args: Args<'_>,
    view: &mut dyn KeyView,
    scratch: &mut Vec<u8>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Failure> {
    args.assert_at_least(2);
    let key = args.get(1);
    let Some(found) = view.get(key).filter(|found| !found.expires_at.is_never()) else {
        reply.integer(0);
        return Ok(());
    };
    reply.integer(1);
    copy(scratch, found.value);
    view.put(key, scratch, Expiry::NEVER)
}
