//! Slots that are reused, values and their buffers included, so that a steady state allocates
//! nothing.
//!
//! A freed slot's value stays where it is and is handed out again as it is: whoever takes a slot
//! resets the value. The generation of a slot is odd while it is taken, and rises at every take and
//! release, so an old key never finds a new value.

/// Slots of `T`.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Entry<T>>,
    free: Vec<u32>,
    bound: usize,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: T,
}

/// Where a value lives, and which of the slot's values it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlabKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl<T: Default> Slab<T> {
    /// A slab of at most `bound` values at once.
    pub(crate) const fn new(bound: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), bound }
    }

    /// Takes a slot with whatever value it held last; `None` when the slab is full.
    pub(crate) fn take(&mut self) -> Option<(SlabKey, &mut T)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.bound => {
                self.slots.push(Entry { generation: 0, value: T::default() });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        assert!(slot.generation % 2 == 1, "slot {index} was taken twice");
        Some((SlabKey { index, generation: slot.generation }, &mut slot.value))
    }

    /// Gives a slot back.
    pub(crate) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        assert!(slot.generation % 2 == 1, "slot {index} was released twice");
        slot.generation = slot.generation.wrapping_add(1);
        debug_assert!(self.free.len() < self.slots.len(), "more slots are free than there are");
        self.free.push(index);
    }

    /// The value of this key, unless the slot has moved on.
    #[inline]
    pub(crate) fn get(&self, key: SlabKey) -> Option<&T> {
        self.slots
            .get(key.index as usize)
            .filter(|slot| slot.generation == key.generation)
            .map(|slot| &slot.value)
    }

    /// The value of this key, unless the slot has moved on.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        self.slots
            .get_mut(key.index as usize)
            .filter(|slot| slot.generation == key.generation)
            .map(|slot| &mut slot.value)
    }

    /// The value in a slot that is known to be taken.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        let slot = &self.slots[index as usize];
        assert!(slot.generation % 2 == 1, "slot {index} is free");
        &slot.value
    }

    /// The value in a slot that is known to be taken.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        let slot = &mut self.slots[index as usize];
        assert!(slot.generation % 2 == 1, "slot {index} is free");
        &mut slot.value
    }

    /// The present key of a slot, when it is taken.
    #[inline]
    pub(crate) fn key(&self, index: u32) -> Option<SlabKey> {
        let generation = self.slots.get(index as usize)?.generation;
        (generation % 2 == 1).then_some(SlabKey { index, generation })
    }

    /// How many slots there are, taken or free; indexes are below it.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// The taken slots in the order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.generation % 2 == 1)
            .map(|(index, slot)| (index, &slot.value))
    }
}

impl<T> Slab<T> {
    /// Slots in use and the free list agree. Walks all slots.
    pub(crate) fn assert_sound(&self) {
        let is_taken = |slot: &Entry<T>| slot.generation % 2 == 1;
        let listed = self.free.iter().map(|&index| &self.slots[index as usize]);
        assert!(!listed.clone().any(is_taken), "a slot is taken, and in the free list");
        let taken = self.slots.iter().filter(|slot| is_taken(slot)).count();
        assert_eq!(taken + listed.len(), self.slots.len(), "a free slot is not in the free list");
        assert!(self.slots.len() <= self.bound, "more slots than the slab may have");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_does_not_find_a_new_value() {
        let mut slab = Slab::<Vec<u8>>::new(1);
        let (old, value) = slab.take().unwrap();
        value.extend_from_slice(b"kept buffer");
        assert!(slab.take().is_none(), "the bound holds");
        slab.release(old.index);
        assert!(slab.get(old).is_none());
        let (new, value) = slab.take().unwrap();
        assert_eq!(value.as_slice(), b"kept buffer");
        assert_eq!(new.index, old.index);
        assert!(slab.get(old).is_none() && slab.get(new).is_some());
        assert_eq!(slab.slots(), 1);
        slab.assert_sound();
        assert_eq!(slab.iter().count(), 1);
    }
}
