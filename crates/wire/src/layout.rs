//! How messages become bytes: fixed fields at constant offsets, then lengths, then variable fields.
//!
//! ```text
//!   header 24 │ fixed fields in order │ u32 length of each variable field │ variable fields in order
//! ```
//! [`message!`] declares a message once and derives both directions from the one list of fields.
//! The whole fixed part has a constant size: encoding fills an array on the stack and appends it at
//! once, decoding checks one bound for all of it.

use core::num::NonZeroU32;

use timestone_cluster::{MapVersion, ServerId};
use timestone_types::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use timestone_types::{
    AbortKind, AbortReason, ClientId, ClusterId, Epoch, Expiry, KeyspaceId, Sequence, ShardId,
    Timestamp, TxnId, Version,
};

use crate::WireError;

/// A field of constant size.
pub(crate) trait Fixed: Sized {
    /// Its size.
    const BYTES: usize;

    /// Writes it to exactly [`Fixed::BYTES`] bytes.
    fn store(&self, to: &mut [u8]);

    /// Reads it from exactly [`Fixed::BYTES`] bytes.
    fn load(from: &[u8]) -> Result<Self, WireError>;
}

/// How a variable field is measured, written and read. A type of its own, so that keys and values
/// have their own bounds.
pub(crate) trait Codec<'a> {
    /// What the field holds in memory.
    type Value;

    /// How many bytes `append` appends.
    fn length(value: &Self::Value) -> usize;

    /// Appends the field.
    fn append(value: &Self::Value, out: &mut Vec<u8>);

    /// Reads the field from exactly its bytes.
    fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError>;
}

macro_rules! fixed_number {
    ($($number:ty),+) => {
        $(impl Fixed for $number {
            const BYTES: usize = size_of::<$number>();

            #[inline]
            fn store(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn load(from: &[u8]) -> Result<Self, WireError> {
                from.try_into().map(<$number>::from_le_bytes).map_err(|_| WireError::BadField { field: "a number" })
            }
        })+
    };
}

fixed_number!(u8, u16, u32, u64);

macro_rules! fixed_newtype {
    ($($name:ty: $inner:ty, $wrap:expr, $unwrap:expr;)+) => {
        $(impl Fixed for $name {
            const BYTES: usize = <$inner as Fixed>::BYTES;

            #[inline]
            fn store(&self, to: &mut [u8]) {
                $unwrap(*self).store(to);
            }

            #[inline]
            fn load(from: &[u8]) -> Result<Self, WireError> {
                <$inner as Fixed>::load(from).map($wrap)
            }
        })+
    };
}

fixed_newtype! {
    ClientId: u32, ClientId::new, ClientId::get;
    Sequence: u64, Sequence::new, Sequence::get;
    ShardId: u16, ShardId::new, ShardId::get;
    KeyspaceId: u32, KeyspaceId::new, KeyspaceId::get;
    Epoch: u32, Epoch::new, Epoch::get;
    ClusterId: u64, ClusterId::new, ClusterId::get;
    MapVersion: u32, MapVersion::new, MapVersion::get;
    ServerId: u32, ServerId::new, ServerId::get;
    Timestamp: u64, Timestamp::from_nanos, Timestamp::as_nanos;
    Expiry: Timestamp, Expiry::at, Expiry::timestamp;
}

pub(crate) use fixed_newtype;

impl Fixed for bool {
    const BYTES: usize = 1;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        u8::from(*self).store(to);
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        match u8::load(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::BadField { field: "a flag" }),
        }
    }
}

/// Stores a pair of fields one after the other, and loads it.
macro_rules! fixed_pair {
    ($($name:ty: $first:ident: $first_type:ty, $second:ident: $second_type:ty;)+) => {
        $(impl Fixed for $name {
            const BYTES: usize = <$first_type as Fixed>::BYTES + <$second_type as Fixed>::BYTES;

            #[inline]
            fn store(&self, to: &mut [u8]) {
                let (head, rest) = to.split_at_mut(<$first_type as Fixed>::BYTES);
                self.$first.store(head);
                self.$second.store(rest);
            }

            #[inline]
            fn load(from: &[u8]) -> Result<Self, WireError> {
                let (head, rest) = from.split_at(<$first_type as Fixed>::BYTES);
                Ok(Self { $first: Fixed::load(head)?, $second: Fixed::load(rest)? })
            }
        })+
    };
}

fixed_pair! {
    TxnId: client: ClientId, sequence: Sequence;
    Version: timestamp: Timestamp, client: ClientId;
}

/// No item: the greatest number, which no request reaches.
const NO_ITEM: u32 = u32::MAX;

impl Fixed for AbortReason {
    /// Kind, item, other transaction, timestamp.
    const BYTES: usize = 1 + 4 + <TxnId as Fixed>::BYTES + 8;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        let (kind, rest) = to.split_at_mut(1);
        let (item, rest) = rest.split_at_mut(4);
        let (other, at) = rest.split_at_mut(<TxnId as Fixed>::BYTES);
        (self.kind as u8).store(kind);
        self.item.unwrap_or(NO_ITEM).store(item);
        self.other.unwrap_or_default().store(other);
        self.at.store(at);
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        let (kind, rest) = from.split_at(1);
        let (item, rest) = rest.split_at(4);
        let (other, at) = rest.split_at(<TxnId as Fixed>::BYTES);
        let item = u32::load(item)?;
        Ok(Self {
            kind: AbortKind::from_u8(u8::load(kind)?)
                .ok_or(WireError::BadField { field: "the kind of an abort" })?,
            item: (item != NO_ITEM).then_some(item),
            other: optional_txn(other)?,
            at: Timestamp::load(at)?,
        })
    }
}

/// A transaction, or none: client 0 is never handed out.
fn optional_txn(from: &[u8]) -> Result<Option<TxnId>, WireError> {
    let txn = TxnId::load(from)?;
    match (NonZeroU32::new(txn.client.get()), txn.sequence) {
        (Some(_), _) => Ok(Some(txn)),
        (None, Sequence::ZERO) => Ok(None),
        (None, _) => Err(WireError::BadField { field: "the other transaction" }),
    }
}

impl Fixed for Option<TxnId> {
    const BYTES: usize = <TxnId as Fixed>::BYTES;

    #[inline]
    fn store(&self, to: &mut [u8]) {
        self.unwrap_or_default().store(to);
    }

    #[inline]
    fn load(from: &[u8]) -> Result<Self, WireError> {
        optional_txn(from)
    }
}

/// Refuses a length above its bound.
#[inline]
pub(crate) fn bounded(what: &'static str, length: usize, limit: usize) -> Result<(), WireError> {
    if length > limit {
        return Err(WireError::TooLong { what, length: length as u64, limit: limit as u64 });
    }
    Ok(())
}

macro_rules! bytes_codec {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $limit:expr;)+) => {
        $($(#[$doc])*
        pub(crate) struct $name;

        impl<'a> Codec<'a> for $name {
            type Value = &'a [u8];

            #[inline]
            fn length(value: &Self::Value) -> usize {
                value.len()
            }

            #[inline]
            fn append(value: &Self::Value, out: &mut Vec<u8>) {
                out.extend_from_slice(value);
            }

            #[inline]
            fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError> {
                bounded($what, bytes.len(), $limit)?;
                Ok(bytes)
            }
        })+
    };
}

bytes_codec! {
    /// A key's bytes.
    KeyBytes: "a key's bytes", MAX_KEY_BYTES;
    /// An end of a range.
    EdgeBytes: "the end of a range", crate::limits::MAX_EDGE_BYTES;
    /// A value's bytes.
    ValueBytes: "a value's bytes", MAX_VALUE_BYTES;
    /// A map, command or answer in the cluster's own encoding.
    ClusterBytes: "the bytes of a map, command or answer of the master", timestone_cluster::limits::MAX_ENCODED_BYTES;
    /// A place in a checkpoint.
    CursorBytes: "a checkpoint's cursor", crate::limits::MAX_CURSOR_BYTES;
    /// A part of a checkpoint.
    PartBytes: "a part of a checkpoint", crate::limits::MAX_CHECKPOINT_PART_BYTES;
}

/// Declares a list of entries inside a message, read by a function that splits the first one off.
/// Whoever makes one has checked its bytes. The iterator is the list: it is copied to iterate again.
macro_rules! entries {
    ($(#[$doc:meta])* $name:ident, $entry:ident, $split:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name<'a> {
            count: u32,
            bytes: &'a [u8],
        }

        impl<'a> Iterator for $name<'a> {
            type Item = $entry<'a>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                if self.count == 0 {
                    return None;
                }
                // The bytes were checked when they came in, so this cannot fail.
                let (entry, rest) = $split(self.bytes).ok()?;
                *self = Self { count: self.count - 1, bytes: rest };
                Some(entry)
            }

            #[inline]
            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.count as usize, Some(self.count as usize))
            }
        }

        impl ExactSizeIterator for $name<'_> {}
    };
}

/// Declares the codec of a variable field that keeps its bytes, which a function checks.
macro_rules! checked_codec {
    ($(#[$doc:meta])* $name:ident, $value:ident, $check:ident) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl<'a> Codec<'a> for $name {
            type Value = $value<'a>;

            #[inline]
            fn length(value: &Self::Value) -> usize {
                value.bytes.len()
            }

            #[inline]
            fn append(value: &Self::Value, out: &mut Vec<u8>) {
                out.extend_from_slice(value.bytes);
            }

            #[inline]
            fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError> {
                $value::$check(bytes)
            }
        }
    };
}

pub(crate) use {checked_codec, entries};

/// The longest beginning of `text` of at most `limit` bytes that ends between two characters.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

macro_rules! text_codec {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $limit:expr;)+) => {
        $($(#[$doc])*
        pub(crate) struct $name;

        impl<'a> Codec<'a> for $name {
            type Value = &'a str;

            fn length(value: &Self::Value) -> usize {
                cut(value, $limit).len()
            }

            fn append(value: &Self::Value, out: &mut Vec<u8>) {
                out.extend_from_slice(cut(value, $limit).as_bytes());
            }

            fn take(bytes: &'a [u8]) -> Result<Self::Value, WireError> {
                bounded($what, bytes.len(), $limit)?;
                core::str::from_utf8(bytes).map_err(|_| WireError::BadField { field: $what })
            }
        })+
    };
}

text_codec! {
    /// A sentence for people; cut when it is too long.
    ErrorText: "an error's text", crate::limits::MAX_ERROR_TEXT_BYTES;
    /// What a client calls itself; cut when it is too long.
    ClientName: "a client's name", crate::limits::MAX_CLIENT_NAME_BYTES;
}

/// Declares a message: its struct, and its [`crate::Message`] implementation.
macro_rules! message {
    (
        $(#[$doc:meta])*
        $name:ident<$lt:lifetime> {
            fixed { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
            variable { $($(#[$tail_doc:meta])* $tail:ident: $tail_type:ty => $codec:ty,)+ }
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name<$lt> {
            $($(#[$field_doc])* pub $field: $field_type,)*
            $($(#[$tail_doc])* pub $tail: $tail_type,)+
        }

        $crate::layout::message!(@impl $lt, [<$lt>], $name, $name<$lt>, [$($field: $field_type,)*] [$($tail => $codec,)+]);
    };
    (
        $(#[$doc:meta])*
        $name:ident {
            fixed { $($(#[$field_doc:meta])* $field:ident: $field_type:ty,)* }
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $field_type,)*
        }

        $crate::layout::message!(@impl 'f, [], $name, $name, [$($field: $field_type,)*] []);
    };
    (@impl $lt:lifetime, [$($generics:tt)*], $kind:ident, $name:ty, [$($field:ident: $field_type:ty,)*] [$($tail:ident => $codec:ty,)*]) => {
        impl $($generics)* $name {
            /// Bytes before the variable fields: header, fixed fields, lengths.
            pub const FIXED_BYTES: usize = $crate::HEADER_BYTES
                $(+ <$field_type as $crate::layout::Fixed>::BYTES)*
                $(+ { stringify!($tail); 4 })*;
        }

        impl<$lt> $crate::Message<$lt> for $name {
            const KIND: $crate::Kind = $crate::Kind::$kind;
            const FIELDS: &'static [$crate::Field] = &[
                $($crate::Field {
                    name: stringify!($field),
                    bytes: Some(<$field_type as $crate::layout::Fixed>::BYTES),
                },)*
                $($crate::Field { name: stringify!($tail), bytes: None },)*
            ];

            #[inline]
            #[allow(unused_assignments, unused_variables, unused_mut, reason = "the last offset is computed like the others")]
            fn encode(&self, envelope: &$crate::Envelope, out: &mut Vec<u8>) {
                let mut fixed = [0u8; Self::FIXED_BYTES];
                let length = Self::FIXED_BYTES
                    $(+ <$codec as $crate::layout::Codec<'_>>::length(&self.$tail))*;
                envelope.store(<Self as $crate::Message<$lt>>::KIND, length, &mut fixed);
                let mut at = $crate::HEADER_BYTES;
                $(
                    let end = at + <$field_type as $crate::layout::Fixed>::BYTES;
                    $crate::layout::Fixed::store(&self.$field, &mut fixed[at..end]);
                    at = end;
                )*
                $(
                    let bytes = <$codec as $crate::layout::Codec<'_>>::length(&self.$tail) as u32;
                    fixed[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
                    at += 4;
                )*
                out.reserve(length);
                out.extend_from_slice(&fixed);
                $(<$codec as $crate::layout::Codec<'_>>::append(&self.$tail, out);)*
            }

            #[inline]
            #[allow(unused_assignments, unused_variables, unused_mut, reason = "the last offset is computed like the others")]
            fn decode(frame: &$crate::Frame<$lt>) -> Result<Self, $crate::WireError> {
                let kind = <Self as $crate::Message<$lt>>::KIND;
                if frame.kind() != kind {
                    return Err($crate::WireError::WrongKind { expected: kind as u8, found: frame.kind() as u8 });
                }
                let truncated = $crate::WireError::Truncated { kind: kind as u8 };
                let (fixed, mut rest) =
                    frame.bytes().split_at_checked(Self::FIXED_BYTES).ok_or(truncated)?;
                let mut at = $crate::HEADER_BYTES;
                $(
                    let end = at + <$field_type as $crate::layout::Fixed>::BYTES;
                    let $field = <$field_type as $crate::layout::Fixed>::load(&fixed[at..end])?;
                    at = end;
                )*
                $(
                    let length = <u32 as $crate::layout::Fixed>::load(&fixed[at..at + 4])? as usize;
                    let (bytes, after) = rest.split_at_checked(length).ok_or(truncated)?;
                    let $tail = <$codec as $crate::layout::Codec<$lt>>::take(bytes)?;
                    rest = after;
                    at += 4;
                )*
                if !rest.is_empty() {
                    return Err($crate::WireError::Trailing { kind: kind as u8 });
                }
                Ok(Self { $($field,)* $($tail,)* })
            }
        }
    };
}

pub(crate) use message;
