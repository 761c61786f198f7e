//! How a table of a file is read whose keys lie in several structs.
//!
//! ```text
//!   [storage]  log-file-bytes = 65536 ──► StoragePart { log: LogPart { file_bytes, … }, … }
//! ```
//! A file has flat tables, for people write them; the structs are grouped by subject. Serde's
//! `flatten` would do that as well, but then an error neither names the line nor the keys that
//! there are.

/// Implements the reading of a table: each key, in the form of a variant, and the field it is for.
/// What is left out is as the part's `Default` has it.
macro_rules! read_grouped {
    ($part:ident, $key:ident { $($name:ident => $($field:ident).+),+ $(,)? }) => {
        /// The keys of the table.
        #[derive(Deserialize)]
        #[serde(field_identifier, rename_all = "kebab-case")]
        enum $key {
            $($name),+
        }

        impl<'de> Deserialize<'de> for $part {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct PartVisitor;

                impl<'de> Visitor<'de> for PartVisitor {
                    type Value = $part;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("struct ", stringify!($part)))
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$part, A::Error> {
                        let mut part = $part::default();
                        while let Some(key) = map.next_key()? {
                            match key {
                                $($key::$name => part.$($field).+ = map.next_value()?),+
                            }
                        }
                        Ok(part)
                    }
                }

                deserializer.deserialize_map(PartVisitor)
            }
        }
    };
}

pub(super) use read_grouped;
