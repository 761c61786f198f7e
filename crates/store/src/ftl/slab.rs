//! Things under way, by small numbers that tokens carry.

/// A table whose places are used again.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps something: its number.
    pub(super) fn add(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            debug_assert!(self.places[number as usize].is_none(), "a free place is empty");
            self.places[number as usize] = Some(thing);
            return number;
        }
        self.places.push(Some(thing));
        self.places.len() as u32 - 1
    }

    /// What has this number.
    pub(super) fn get(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// Takes what has this number.
    pub(super) fn take(&mut self, number: u32) -> Option<T> {
        let thing = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        debug_assert!(self.free.len() <= self.places.len(), "a place is free once");
        self.places.len() - self.free.len()
    }
}
