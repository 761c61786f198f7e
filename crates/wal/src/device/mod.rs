//! Where log files live.

use core::fmt;

use timestone_types::Timestamp;

/// The name of a log file: when it was created. Names only rise, so the smallest is the oldest (DTranx §3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileName(Timestamp);

impl FileName {
    /// The file created at this time.
    #[must_use]
    pub const fn new(created: Timestamp) -> Self {
        Self(created)
    }

    /// When the file was created.
    #[must_use]
    pub const fn created(self) -> Timestamp {
        self.0
    }

    /// Reads what `Display` wrote; `None` for names of other files.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_suffix(".log")?;
        let valid = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if valid { digits.parse().ok().map(|nanos| Self(Timestamp::from_nanos(nanos))) } else { None }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}.log", self.0.as_nanos())
    }
}
