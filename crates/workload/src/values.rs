//! How values look as bytes: opaque fillings, decimal integers, lists.
//!
//! Integers are decimal text, as Redis has them, so that INCRBY works on them as well. A list is
//! its elements as 8 bytes each, little-endian, so that an append is a copy and one more word.

use crate::{KeyIndex, WorkloadError};

/// What the values of a workload are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// Bytes nobody looks at.
    Opaque,
    /// A decimal integer.
    Integer,
    /// A list of integers.
    List,
}

const ELEMENT_BYTES: usize = 8;

/// Appends an opaque value of `bytes` bytes: printable, and different for every key.
pub(crate) fn write_opaque(key: KeyIndex, bytes: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + bytes, b'a' + (key.0 % 26) as u8);
}

/// Appends an integer in decimal.
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    if value < 0 {
        out.push(b'-');
    }
    let begin = out.len();
    let mut rest = magnitude;
    loop {
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out[begin..].reverse();
}

/// The integer that a value spells.
///
/// # Errors
/// [`WorkloadError::Value`] when it spells none.
pub fn integer_of(value: &[u8]) -> Result<i64, WorkloadError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or(WorkloadError::Value { expected: "decimal integer", bytes: value.len() })
}

/// Appends one element to a list's bytes.
pub fn write_list_element(element: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&element.to_le_bytes());
}

/// Replaces `out` by the elements of a list's bytes.
///
/// # Errors
/// [`WorkloadError::Value`] when the bytes are not whole elements.
pub fn list_of(value: &[u8], out: &mut Vec<i64>) -> Result<(), WorkloadError> {
    let (elements, rest) = value.as_chunks::<ELEMENT_BYTES>();
    if !rest.is_empty() {
        return Err(WorkloadError::Value {
            expected: "list of 8-byte integers",
            bytes: value.len(),
        });
    }
    out.clear();
    out.extend(elements.iter().map(|element| i64::from_le_bytes(*element)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_read_back_as_written() {
        for value in [0, 7, -7, 1_000, i64::MAX, i64::MIN] {
            let mut bytes = b"x".to_vec();
            write_integer(value, &mut bytes);
            assert_eq!(bytes[1..], *value.to_string().as_bytes());
            assert_eq!(integer_of(&bytes[1..]).unwrap(), value);
        }
        assert!(
            integer_of(b"").is_err() && integer_of(b"1x").is_err() && integer_of(&[0xff]).is_err()
        );
    }

    #[test]
    fn lists_read_back_as_written() {
        let (mut bytes, mut list) = (Vec::new(), vec![9]);
        list_of(&bytes, &mut list).unwrap();
        assert!(list.is_empty());
        for element in [3, -1, i64::MAX] {
            write_list_element(element, &mut bytes);
        }
        list_of(&bytes, &mut list).unwrap();
        assert_eq!(list, [3, -1, i64::MAX]);
        assert!(list_of(&bytes[1..], &mut list).is_err());
    }

    #[test]
    fn opaque_values_have_their_length_and_tell_keys_apart() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        write_opaque(KeyIndex(1), 496, &mut one);
        write_opaque(KeyIndex(2), 496, &mut two);
        assert_eq!((one.len(), two.len()), (496, 496));
        assert_ne!(one, two);
    }
}
