//! The fields of etcd's JSON: numbers of 64 bits are strings, bytes are base64, and what is zero or
//! empty is left out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::EtcdError;

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes; none if the field is not there.
pub(crate) fn bytes(value: &Value, field: &'static str) -> Result<Vec<u8>, EtcdError> {
    match value.get(field) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => {
            STANDARD.decode(text).map_err(|_| EtcdError::Answer { what: field })
        }
        Some(_) => Err(EtcdError::Answer { what: field }),
    }
}

/// A number; zero if the field is not there.
pub(crate) fn number<T: core::str::FromStr + Default>(
    value: &Value,
    field: &'static str,
) -> Result<T, EtcdError> {
    match value.get(field) {
        None => Ok(T::default()),
        Some(Value::String(text)) => text.parse().map_err(|_| EtcdError::Answer { what: field }),
        Some(Value::Number(number)) => {
            number.to_string().parse().map_err(|_| EtcdError::Answer { what: field })
        }
        Some(_) => Err(EtcdError::Answer { what: field }),
    }
}

/// The items of a list; none if the field is not there.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_zero_and_what_is_odd_is_refused() {
        let value = json!({ "a": "18446744073709551615", "b": 7, "c": "x", "d": "AQI=", "e": [1] });
        assert_eq!(number::<u64>(&value, "a").unwrap(), u64::MAX);
        assert_eq!(number::<i64>(&value, "b").unwrap(), 7);
        assert_eq!(number::<i64>(&value, "none").unwrap(), 0);
        assert!(number::<i64>(&value, "a").is_err() && number::<u64>(&value, "c").is_err());
        assert_eq!(bytes(&value, "d").unwrap(), [1, 2]);
        assert!(bytes(&value, "none").unwrap().is_empty());
        assert!(bytes(&value, "c").is_err() && bytes(&value, "b").is_err());
        assert_eq!((list(&value, "e").len(), list(&value, "a").len()), (1, 0));
    }
}
