//! No store: what drawing, timing and counting take by themselves.

use super::blocking::{Blocking, Tuple};
use crate::Fault;
use crate::keys::{KEY_BYTES, VALUE_BYTES};

pub(super) struct Nothing;

impl Nothing {
    pub(super) const fn new() -> Self {
        Self
    }
}

impl Blocking for Nothing {
    fn get(&self, index: u64, key: &[u8; KEY_BYTES]) -> Result<(), Fault> {
        std::hint::black_box((index, key));
        Ok(())
    }

    fn put(&self, key: &[u8; KEY_BYTES], value: &[u8; VALUE_BYTES]) -> Result<(), Fault> {
        std::hint::black_box((key, value));
        Ok(())
    }

    fn put_many(&self, tuples: &[Tuple]) -> Result<(), Fault> {
        std::hint::black_box(tuples);
        Ok(())
    }

    fn settle(&self) -> Result<(), Fault> {
        Ok(())
    }
}
