//! Methods of the interface that a store leaves to another one that it is made of.

/// Look-ups and walks that need no snapshot.
macro_rules! forward_reads {
    ($store:ident) => {
        fn seed(&self) -> timestone_types::HashSeed {
            self.$store.seed()
        }

        fn is_beside_fence(
            &self,
            key: timestone_types::KeyRef<'_>,
            fence: timestone_types::Version,
        ) -> bool {
            self.$store.is_beside_fence(key, fence)
        }

        fn latest(
            &mut self,
            key: timestone_types::KeyRef<'_>,
            token: $crate::api::ReadToken,
        ) -> $crate::api::LatestLookup {
            self.$store.latest(key, token)
        }

        fn latest_in_memory(
            &self,
            key: timestone_types::KeyRef<'_>,
        ) -> Option<$crate::api::Latest> {
            self.$store.latest_in_memory(key)
        }

        fn newest(&self, keyspace: timestone_types::KeyspaceId) -> timestone_types::Timestamp {
            self.$store.newest(keyspace)
        }

        fn lost(&self, keyspace: timestone_types::KeyspaceId) -> timestone_types::Timestamp {
            self.$store.lost(keyspace)
        }

        fn fetch_ahead(&self, keys: $crate::api::KeysAhead<'_>) {
            self.$store.fetch_ahead(keys);
        }

        fn list_keys(
            &mut self,
            keyspace: timestone_types::KeyspaceId,
            cursor: $crate::api::ScanCursor,
            limit: $crate::api::ScanLimit,
            token: $crate::api::ReadToken,
        ) {
            self.$store.list_keys(keyspace, cursor, limit, token);
        }

        fn kept_keyspaces(&self) -> Vec<timestone_types::KeyspaceId> {
            self.$store.kept_keyspaces()
        }

        fn fences(&self, keyspace: timestone_types::KeyspaceId) -> Vec<timestone_types::Version> {
            self.$store.fences(keyspace)
        }

        fn recycle(&mut self, bytes: Vec<u8>) {
            self.$store.recycle(bytes);
        }
    };
}

/// The running of a store, but its watermark and its replay floor.
macro_rules! forward_upkeep {
    ($store:ident) => {
        fn recovered(&mut self, bound: timestone_types::Timestamp) {
            self.$store.recovered(bound);
        }

        fn begin_life(&mut self) {
            self.$store.begin_life();
        }

        fn has_failed(&self) -> bool {
            self.$store.has_failed()
        }

        fn youngest(&self) -> timestone_types::Timestamp {
            self.$store.youngest()
        }

        fn begin_batch(&mut self, batch: u64) {
            self.$store.begin_batch(batch);
        }

        fn stable_batch(&self) -> u64 {
            self.$store.stable_batch()
        }

        fn sync_soon(&mut self) {
            self.$store.sync_soon();
        }

        fn checkpoint_now(&mut self) {
            self.$store.checkpoint_now();
        }

        fn scrub(&mut self) {
            self.$store.scrub();
        }

        fn pump(
            &mut self,
            now: timestone_types::Timestamp,
            events: &mut Vec<$crate::api::StoreEvent>,
        ) {
            self.$store.pump(now, events);
        }

        fn next_deadline(&self) -> Option<timestone_types::Timestamp> {
            self.$store.next_deadline()
        }

        fn wake_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            self.$store.wake_fd()
        }

        fn wait(&mut self, timeout: std::time::Duration) {
            self.$store.wait(timeout);
        }

        fn resize_cache(&mut self, bytes: u64) {
            self.$store.resize_cache(bytes);
        }

        fn charge_cache(&mut self, beside: u64) {
            self.$store.charge_cache(beside);
        }

        fn shutdown(&mut self) {
            self.$store.shutdown();
        }
    };
}

pub(crate) use {forward_reads, forward_upkeep};
