//! A sorted list of byte strings without what all of them begin with: the keys of a leaf, and the
//! separators of an inner node.
//!
//! ```text
//!   bytes │ prefix │ suffix 0 │ suffix 1 │ …        ends │ of suffix 0 │ of suffix 1 │ …
//! ```
//! Two allocations for the whole list; a string costs its suffix and its end. The prefix is as long
//! as it can be when a list is made out of another one, and gets shorter when a string comes that
//! does not share it.
//!
//! Invariants: strings ascend, each once; `ends` ascend, and the last one is the end of `bytes`.

/// What a suffix's end is written as: how far behind the prefix.
pub(super) trait End: Copy {
    /// The highest one.
    const MAX: usize;

    /// It, as a number that is at most [`Self::MAX`].
    fn of(end: usize) -> Self;

    /// The number.
    fn get(self) -> usize;
}

macro_rules! end {
    ($type:ty) => {
        impl End for $type {
            const MAX: usize = <$type>::MAX as usize;

            #[inline]
            fn of(end: usize) -> Self {
                debug_assert!(end <= <Self as End>::MAX, "lists are split before");
                end as Self
            }

            #[inline]
            fn get(self) -> usize {
                self as usize
            }
        }
    };
}

end!(u16);
end!(u32);

/// Memory that a list takes more than it needs, so that not every insertion moves it.
const SPARE_BYTES: usize = 128;
/// The same, of ends.
const SPARE_ENDS: usize = 8;
/// What the allocator takes for an allocation beside its bytes, about.
pub(super) const ALLOCATION_BYTES: usize = 16;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Packed<E> {
    prefix: u32,
    bytes: Vec<u8>,
    ends: Vec<E>,
}

/// How many bytes two strings have in common at their beginning.
pub(crate) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl<E: End> Packed<E> {
    /// No strings, no memory.
    pub(super) const fn new() -> Self {
        Self { prefix: 0, bytes: Vec::new(), ends: Vec::new() }
    }

    /// A list of one string.
    pub(super) fn of(string: &[u8]) -> Self {
        let mut packed = Self::new();
        packed.insert(0, string);
        packed
    }

    /// How many strings.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// What all of them begin with.
    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        &self.bytes[..self.prefix as usize]
    }

    /// What follows the prefix in one of them.
    #[inline]
    pub(super) fn suffix(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].get());
        let prefix = self.prefix as usize;
        &self.bytes[prefix + start..prefix + self.ends[at].get()]
    }

    /// Bytes of all suffixes.
    #[inline]
    pub(super) fn suffix_bytes(&self) -> usize {
        self.bytes.len() - self.prefix as usize
    }

    /// One of them, whole.
    pub(super) fn get(&self, at: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(at)].concat()
    }

    /// Bytes of memory beside the struct.
    pub(super) fn heap_bytes(&self) -> usize {
        let allocations =
            usize::from(self.bytes.capacity() > 0) + usize::from(!self.ends.is_empty());
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<E>()
            + allocations * ALLOCATION_BYTES
    }

    /// Where a string is, or where it would go.
    #[inline]
    pub(super) fn find(&self, string: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let Some(rest) = string.strip_prefix(prefix) else {
            let is_before = string < prefix;
            return Err(if is_before { 0 } else { self.len() });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix(middle).cmp(rest) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Equal => return Ok(middle),
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Bytes of all suffixes with one string more.
    pub(super) fn suffix_bytes_with(&self, string: &[u8]) -> usize {
        if self.len() == 0 {
            return 0;
        }
        let shared = common(self.prefix(), string);
        let longer = self.prefix as usize - shared;
        self.suffix_bytes() + longer * self.len() + string.len() - shared
    }

    /// Inserts a string where [`Self::find`] said that it would go.
    pub(super) fn insert(&mut self, at: usize, string: &[u8]) {
        debug_assert!(self.find(string) == Err(at), "strings ascend, each once");
        if self.len() == 0 {
            self.prefix = string.len() as u32;
            self.bytes = string.to_vec();
            self.ends.reserve_exact(SPARE_ENDS);
            self.ends.push(E::of(0));
            return;
        }
        let shared = common(self.prefix(), string);
        if shared < self.prefix as usize {
            self.shorten_prefix(shared);
        }
        let suffix = &string[shared..];
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].get());
        let (place, length, end) = (shared + start, suffix.len(), self.bytes.len());
        if self.bytes.capacity() < end + length {
            self.bytes.reserve_exact(length.max(SPARE_BYTES));
        }
        self.bytes.resize(end + length, 0);
        self.bytes.copy_within(place..end, place + length);
        self.bytes[place..place + length].copy_from_slice(suffix);
        if self.ends.capacity() == self.ends.len() {
            self.ends.reserve_exact(SPARE_ENDS);
        }
        self.ends.insert(at, E::of(start + length));
        self.ends[at + 1..].iter_mut().for_each(|end| *end = E::of(end.get() + length));
        debug_assert_eq!(self.ends.last().map(|end| end.get()), Some(self.suffix_bytes()));
    }

    /// Gives suffixes what the prefix loses.
    fn shorten_prefix(&mut self, to: usize) {
        let longer = self.prefix as usize - to;
        let mut bytes = Vec::with_capacity(self.bytes.len() + longer * self.len() + SPARE_BYTES);
        bytes.extend_from_slice(&self.bytes[..to]);
        for at in 0..self.len() {
            bytes.extend_from_slice(&self.bytes[to..self.prefix as usize]);
            bytes.extend_from_slice(self.suffix(at));
        }
        for (at, end) in self.ends.iter_mut().enumerate() {
            *end = E::of(end.get() + longer * (at + 1));
        }
        (self.prefix, self.bytes) = (to as u32, bytes);
        debug_assert_eq!(self.ends.last().map(|end| end.get()), Some(self.suffix_bytes()));
    }

    /// Takes one of them out.
    pub(super) fn remove(&mut self, at: usize) {
        let length = self.suffix(at).len();
        let place = self.prefix as usize + self.ends[at].get();
        self.bytes.copy_within(place.., place - length);
        self.bytes.truncate(self.bytes.len() - length);
        self.ends.remove(at);
        self.ends[at..].iter_mut().for_each(|end| *end = E::of(end.get() - length));
        if self.len() == 0 {
            *self = Self::new();
        } else if self.bytes.capacity() > 2 * (self.bytes.len() + SPARE_BYTES) {
            self.bytes.shrink_to(self.bytes.len() + SPARE_BYTES);
            self.ends.shrink_to(self.ends.len() + SPARE_ENDS);
        }
        debug_assert_eq!(self.ends.last().map_or(0, |end| end.get()), self.suffix_bytes());
    }

    /// A list of some of them, with the longest prefix that those have.
    pub(super) fn part(&self, range: core::ops::Range<usize>) -> Self {
        if range.is_empty() {
            return Self::new();
        }
        let shared = common(self.suffix(range.start), self.suffix(range.end - 1));
        let prefix = self.prefix as usize + shared;
        let strings = range.clone().map(|at| self.suffix(at).len() - shared);
        let total = prefix + strings.sum::<usize>();
        let mut part = Self {
            prefix: prefix as u32,
            bytes: Vec::with_capacity(total + SPARE_BYTES),
            ends: Vec::with_capacity(range.len() + SPARE_ENDS),
        };
        part.bytes.extend_from_slice(self.prefix());
        part.bytes.extend_from_slice(&self.suffix(range.start)[..shared]);
        for at in range {
            part.bytes.extend_from_slice(&self.suffix(at)[shared..]);
            part.ends.push(E::of(part.bytes.len() - prefix));
        }
        debug_assert_eq!(part.bytes.len(), total, "what was counted");
        part
    }

    /// Bytes of all suffixes together with those of a list behind it.
    pub(super) fn suffix_bytes_joined(&self, next: &Self) -> usize {
        let shared = common(self.prefix(), next.prefix());
        let longer = |list: &Self| (list.prefix as usize - shared) * list.len();
        self.suffix_bytes() + longer(self) + next.suffix_bytes() + longer(next)
    }

    /// Adds all strings of a list that lies behind it.
    pub(super) fn append(&mut self, next: &Self) {
        for at in 0..next.len() {
            self.insert(self.len(), &next.get(at));
        }
    }
}
