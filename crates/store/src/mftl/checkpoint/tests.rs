//! What a checkpoint says of keys is read back, whatever they have in common.

use proptest::prelude::*;

use super::*;

const SPACE: KeyspaceId = KeyspaceId::numbered(1, false).ordered();

fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = proptest::collection::vec(any::<u8>(), 0..5);
    let numbered = (0u32..5000).prop_map(|n| format!("user:{n:08}").into_bytes());
    // Longer than what two keys can have in common by a number of two bytes.
    let long = (65_533usize..=MAX_KEY_BYTES, any::<u8>()).prop_map(|(length, last)| {
        let mut key = vec![b'x'; length];
        key[length - 1] = last;
        key
    });
    prop_oneof![3 => short, 30 => numbered, 1 => long]
}

/// The stream of an order, and in how many pieces it was written.
fn stream(order: &Order) -> (Vec<u8>, usize) {
    let (mut out, mut from, mut pieces) = (Vec::new(), Some(Vec::new()), 0);
    while let Some(begin) = from {
        from = write_keys(&mut out, SPACE, order, &begin);
        pieces += 1;
    }
    write_order_end(&mut out, SPACE, order);
    out.push(END);
    out.extend_from_slice(&0u32.to_le_bytes());
    (out, pieces)
}

fn keys_of(stream: &[u8]) -> Option<(Vec<Vec<u8>>, Content)> {
    let mut keys = Vec::new();
    let content = read(stream, |_, item| match item {
        StreamItem::Ordered(id, key) => {
            assert!(id.is_ordered(), "others are refused");
            keys.push(key.to_vec());
        }
        StreamItem::Key(_) => {}
    })?;
    Some((keys, content))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_order_reads_back_as_it_was_written(
        keys in proptest::collection::btree_set(key(), 0..2500),
        shared in proptest::collection::btree_set((0u16..1024, 1u32.., any::<u32>()), 0..4),
    ) {
        let mut order = Order::new();
        for key in &keys {
            order.restore(key);
        }
        let shared = shared.into_iter().map(|(segment, tag, check)| KeyId { segment, tag, check });
        let shared: Vec<KeyId> = shared.collect();
        shared.iter().for_each(|&id| order.share(id));
        let (written, pieces) = stream(&order);
        prop_assert!(pieces > keys.len() / (KEYS_PER_PUMP as usize + 1));
        let (found, content) = keys_of(&written).expect("it makes sense");
        prop_assert!(found.iter().eq(&keys), "each key, in its order");
        prop_assert_eq!(content.orders, vec![(SPACE, shared)]);
    }

    /// Whatever a stream says, reading it does not panic.
    #[test]
    fn a_stream_that_makes_no_sense_is_refused_or_read(
        keys in proptest::collection::btree_set(key(), 1..60),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        end in any::<proptest::sample::Index>(),
    ) {
        let mut order = Order::new();
        keys.iter().for_each(|key| order.restore(key));
        let (mut bytes, _) = stream(&order);
        for (place, byte) in changes {
            let place = place.index(bytes.len().min(200));
            bytes[place] = byte;
        }
        let _ = keys_of(&bytes);
        let _ = keys_of(&bytes[..end.index(bytes.len())]);
    }
}
