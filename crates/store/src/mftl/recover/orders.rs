//! The order of a keyspace's keys, as a checkpoint has it.
//!
//! What it must not do: go by an index whose keys have no order. Only a scan finds those.

use timestone_types::KeyspaceId;

use crate::mftl::checkpoint::Content;
use crate::mftl::space::Spaces;

/// A checkpoint has a key in its order.
pub(super) fn restore_key(spaces: &mut Spaces, keyspace: KeyspaceId, key: &[u8]) {
    let space = spaces.ensure(keyspace);
    if let Some(order) = &mut spaces.list[space].order {
        order.restore(key);
    }
}

/// Completes the orders that a checkpoint has; false when an index has keys whose order it has not:
/// only a scan finds those.
pub(super) fn restore_orders(spaces: &mut Spaces, content: &Content) -> bool {
    for (keyspace, shared) in &content.orders {
        let space = spaces.ensure(*keyspace);
        if let Some(order) = &mut spaces.list[space].order {
            shared.iter().for_each(|&id| order.share(id));
        }
    }
    let is_whole = |id| content.orders.iter().any(|&(whole, _)| whole == id);
    let mut spaces = spaces.list.iter();
    spaces.all(|space| space.order.is_none() || space.index.keys() == 0 || is_whole(space.id))
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, HashSeed, Timestamp, Version};

    use super::*;
    use crate::mftl::index::{Location, Spot};
    use crate::mftl::order::id_of;

    #[test]
    fn a_checkpoint_with_an_index_and_without_its_order_is_not_gone_by() {
        let id = KeyspaceId::numbered(1, false).ordered();
        let mut spaces = Spaces::default();
        let place = spaces.ensure(id);
        let none = Content::default();
        assert!(restore_orders(&mut spaces, &none), "an empty index needs no order");
        let key = id_of(HashSeed(0), id, b"key");
        let location = Location::new(1, false, false);
        let version = Version::new(Timestamp::from_nanos(1), ClientId::ZERO);
        let index = &mut spaces.list[place].index;
        index.put(key, Spot::NewKey, version, location, Timestamp::ZERO);
        assert!(!restore_orders(&mut spaces, &none));
        let whole = Content { orders: vec![(id, vec![key])], ..Content::default() };
        assert!(restore_orders(&mut spaces, &whole));
        let order = spaces.list[place].order.as_ref().expect("it has one");
        assert!(order.is_shared(key));
    }
}
