//! A world of replicas: their logs, the network between them, and the master that hands out epochs.
//!
//! The shard behind a replica is a list of the batches that were carried out. A checkpoint of it
//! becomes durable now and then, and the log lets go of what it has.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_replication::limits::Retention;
use timestone_replication::{
    Entry, Input, Mark, Message, Output, Payload, Replica, ReplicaId, Step, Stored, Ticket, Void,
};
use timestone_types::{Epoch, Timestamp, is_planted};
use timestone_wal::BatchNumber;

use crate::laws::Laws;

/// What a batch holds: a number of its own, and how many bytes it says that it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Content {
    pub(crate) id: u64,
    pub(crate) bytes: usize,
}

impl Payload for Content {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

pub(crate) type Sent = (ReplicaId, ReplicaId, Message<Content>);

/// A server with its replica.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// None while it is down.
    pub(crate) replica: Option<Replica<Content>>,
    /// What was handed to the log, and whether it is durable.
    log: Vec<(Ticket, Entry<Content>)>,
    durable: usize,
    /// What was carried out, by number, from 1.
    applied: Vec<u64>,
    /// As much of that is in a checkpoint.
    checkpoint: BatchNumber,
    /// The epoch that it serves, and the last batch that it has written.
    pub(crate) serves: Option<(Epoch, BatchNumber)>,
    /// Its disk was lost, and nothing is in its log since.
    is_empty: bool,
    /// What is in its log and its store is an older copy of that.
    is_older_copy: bool,
    /// It takes this checkpoint of this primary, in this epoch.
    takes: Option<(ReplicaId, Epoch, u64)>,
}

impl Server {
    /// Whether the log has something that is not durable.
    pub(crate) fn has_unsynced(&self) -> bool {
        self.durable < self.log.len()
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) servers: BTreeMap<ReplicaId, Server>,
    pub(crate) flying: Vec<Sent>,
    pub(crate) laws: Laws,
    /// Who has said that it cannot lead which epoch.
    pub(crate) cannot_lead: Vec<(ReplicaId, Epoch)>,
    epoch: Epoch,
    /// Configurations since the last epoch of which the master knows that it served.
    previous: Vec<(Epoch, Vec<ReplicaId>)>,
    /// Who is primary by the map, and its replicas.
    leader: Option<(ReplicaId, Vec<ReplicaId>)>,
    next_id: u64,
    pub(crate) batch_bytes: usize,
    pub(crate) retention: Retention,
}

/// What a primary has given of a checkpoint.
pub(crate) struct Part {
    epoch: Epoch,
    session: u64,
    lease: Timestamp,
    applied: Vec<u64>,
}

impl World {
    /// So many servers, none of which leads.
    pub(crate) fn new(servers: u32) -> Self {
        let server = |id| {
            let mut out = Vec::new();
            let replica = Replica::recover(ReplicaId(id), Stored::new(), &mut out);
            assert!(out.is_empty());
            let server = Server {
                replica: Some(replica),
                log: Vec::new(),
                durable: 0,
                applied: Vec::new(),
                checkpoint: BatchNumber::ZERO,
                serves: None,
                is_empty: false,
                is_older_copy: false,
                takes: None,
            };
            (ReplicaId(id), server)
        };
        Self {
            now: Timestamp::from_nanos(1_000_000_000),
            servers: (1..=servers).map(server).collect(),
            flying: Vec::new(),
            laws: Laws::default(),
            cannot_lead: Vec::new(),
            epoch: Epoch::ZERO,
            previous: Vec::new(),
            leader: None,
            next_id: 1,
            batch_bytes: 100,
            retention: Retention::default(),
        }
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
    }

    pub(crate) fn is_up(&self, id: ReplicaId) -> bool {
        self.servers[&id].replica.is_some()
    }

    pub(crate) fn replica(&self, id: ReplicaId) -> &Replica<Content> {
        self.servers[&id].replica.as_ref().expect("it is up")
    }

    /// The master makes one primary of a new epoch with these replicas.
    pub(crate) fn lead(&mut self, id: ReplicaId, replicas: &[ReplicaId]) {
        self.epoch = Epoch::new(self.epoch.get() + 1);
        self.leader = Some((id, replicas.to_vec()));
        self.follow_map(id);
    }

    /// A server looks at the map, and leads if that says so.
    pub(crate) fn follow_map(&mut self, id: ReplicaId) {
        let (Some((leader, replicas)), epoch) = (self.leader.clone(), self.epoch) else { return };
        if leader != id {
            return;
        }
        let before = self.previous.iter().filter(|(one, _)| *one < epoch);
        let mut previous: Vec<_> = before.map(|(_, replicas)| replicas.clone()).collect();
        previous.dedup();
        if self.previous.iter().all(|(known, _)| *known < epoch) {
            self.previous.push((epoch, replicas.clone()));
        }
        self.input(id, Input::Lead { epoch, replicas, previous });
    }

    /// Hands a replica an input, and does what it wants done.
    pub(crate) fn input(&mut self, id: ReplicaId, input: Input<Content>) {
        let server = self.servers.get_mut(&id).expect("it is known");
        let Some(replica) = &mut server.replica else { return };
        replica.set_retention(self.retention);
        let mut out = Vec::new();
        replica.step(self.now, input, &mut out);
        self.carry_out(id, out);
    }

    fn carry_out(&mut self, id: ReplicaId, outputs: Vec<Output<Content>>) {
        let mut applied = Vec::new();
        for output in outputs {
            let server = self.servers.get_mut(&id).expect("it is known");
            match output {
                Output::Send { to, message } => {
                    assert_ne!(to, id, "nobody sends to itself: {message:?}");
                    self.flying.push((id, to, message));
                }
                Output::Persist { ticket, entry } => server.log.push((ticket, entry)),
                Output::Apply(batch) => {
                    assert_eq!(
                        batch.number.get(),
                        server.applied.len() as u64 + 1,
                        "batches are carried out in order, each once"
                    );
                    server.applied.push(batch.payload.id);
                    applied.push(batch);
                }
                Output::Serve { epoch, through, floor } => {
                    assert!(server.serves.is_none(), "it serves one epoch at a time");
                    assert_eq!(server.applied.len() as u64, through.get());
                    server.serves = Some((epoch, through));
                    self.laws.serves((epoch, id), &server.applied, floor);
                    self.previous.retain(|(known, _)| *known >= epoch);
                }
                Output::Counted { through } => {
                    let (epoch, _) = server.serves.expect("a primary counts");
                    let known = server.applied.len() as u64;
                    for number in known + 1..=through.get() {
                        let number = BatchNumber::new(number);
                        let payload = self.laws.counted(epoch, number);
                        server.applied.push(payload);
                    }
                }
                Output::Deposed { epoch, by } => {
                    assert!(epoch < by);
                    server.serves = None;
                }
                Output::TakeCheckpoint => {
                    let batches =
                        |(_, entry): &(Ticket, Entry<Content>)| matches!(entry, Entry::Mark(_));
                    server.log.retain(batches);
                    server.durable = server.log.len();
                    (server.applied, server.checkpoint) = (Vec::new(), BatchNumber::ZERO);
                    server.takes = None;
                }
                Output::CannotLead { epoch } => self.cannot_lead.push((id, epoch)),
                Output::Malformed { from } => panic!("{id} does not understand {from}"),
                Output::NeedsEpoch { .. } | Output::Behind { .. } => {}
            }
        }
        for batch in applied {
            self.laws.carried_out(id, batch.number, batch.payload.id);
        }
    }

    /// A primary's shard writes a batch, with a read bound if `lease` says so.
    pub(crate) fn write(&mut self, id: ReplicaId, leases: bool) {
        let (now, content) = (self.now, Content { id: self.next_id, bytes: self.batch_bytes });
        let server = self.servers.get_mut(&id).expect("it is known");
        let Some((epoch, last)) = &mut server.serves else { return };
        let (epoch, number) = (*epoch, last.next());
        *last = number;
        self.next_id += 1;
        let lease =
            if leases { now.saturating_add(Duration::from_secs(1)) } else { Timestamp::ZERO };
        self.laws.written((epoch, number), content.id, lease);
        self.input(id, Input::Append { number, lease, payload: content });
    }

    /// The log makes the next `count` entries durable, and says so.
    pub(crate) fn sync(&mut self, id: ReplicaId, count: usize) {
        let server = self.servers.get_mut(&id).expect("it is known");
        if server.replica.is_none() || server.durable == server.log.len() {
            return;
        }
        server.durable = (server.durable + count).min(server.log.len());
        let through = server.log[server.durable - 1].0;
        self.input(id, Input::Persisted { through });
    }

    /// What was carried out is durable without the log, which lets go of it; the mark is kept.
    pub(crate) fn checkpoint(&mut self, id: ReplicaId) {
        let server = self.servers.get_mut(&id).expect("it is known");
        let Some(replica) = &server.replica else { return };
        if server.durable < server.log.len() {
            return;
        }
        server.checkpoint = BatchNumber::new(server.applied.len() as u64);
        let (base, mark) = (server.checkpoint, replica.mark());
        server.log.retain(|(_, entry)| matches!(entry, Entry::Batch(batch) if batch.number > base));
        let ticket = server.log.last().map_or(Ticket(0), |(ticket, _)| *ticket);
        // Marks stand before what follows them: those batches are of the installed epoch or before.
        server.log.push((ticket, Entry::Mark(mark)));
        server.durable = server.log.len();
    }

    /// A process dies; of what is not durable, `more` entries happen to be on the device.
    pub(crate) fn kill(&mut self, id: ReplicaId, more: usize) {
        let server = self.servers.get_mut(&id).expect("it is known");
        server.replica = None;
        (server.serves, server.takes) = (None, None);
        server.durable = (server.durable + more).min(server.log.len());
        server.log.truncate(server.durable);
        server.applied.truncate(usize::try_from(server.checkpoint.get()).expect("few"));
    }

    /// What a server may have done that has lost its disk by now.
    fn void_now(&self, id: ReplicaId) -> Void {
        let members = self.leader.as_ref().map(|(_, replicas)| replicas);
        Void::found(self.epoch, members.is_none_or(|replicas| replicas.contains(&id)))
    }

    pub(crate) fn start(&mut self, id: ReplicaId) {
        let void = self.void_now(id);
        let server = self.servers.get_mut(&id).expect("it is known");
        if server.replica.is_some() {
            return;
        }
        let entries: Vec<_> = server.log.drain(..).map(|(_, entry)| entry).collect();
        // What is in the log already has no ticket any more.
        server.log = entries.iter().map(|entry| (Ticket(0), entry.clone())).collect();
        server.durable = server.log.len();
        let base = server.checkpoint;
        // The log tells of a loss once it has anything.
        server.is_empty &= entries.is_empty();
        let is_void = server.is_empty || std::mem::take(&mut server.is_older_copy);
        let void = is_void.then_some(void);
        let stored = Stored { base, entries, void };
        let mut out = Vec::new();
        server.replica = Some(Replica::recover(id, stored, &mut out));
        self.carry_out(id, out);
    }

    /// A server's disk is lost: it comes back with nothing, and knows that.
    pub(crate) fn lose_disk(&mut self, id: ReplicaId) {
        self.kill(id, 0);
        let server = self.servers.get_mut(&id).expect("it is known");
        (server.log, server.durable, server.is_empty) = (Vec::new(), 0, true);
        (server.applied, server.checkpoint) = (Vec::new(), BatchNumber::ZERO);
    }

    /// A server's disk is put back as it was: it comes back with that, and knows that it is older.
    pub(crate) fn put_back(&mut self, id: ReplicaId, older: Server) {
        self.servers.insert(id, older);
        self.kill(id, 0);
        self.servers.get_mut(&id).expect("it is known").is_older_copy = true;
    }

    /// Copies what one server has carried out to another one.
    pub(crate) fn copy_checkpoint(&mut self, from: ReplicaId, to: ReplicaId) {
        if !self.is_up(from) {
            return;
        }
        let applied = self.servers[&from].applied.clone();
        let epoch = self.replica(from).installed();
        let through = BatchNumber::new(applied.len() as u64);
        let server = self.servers.get_mut(&to).expect("it is known");
        let is_emptied = server.replica.as_ref().is_none_or(Replica::is_emptied);
        if is_emptied || server.applied.len() >= applied.len() {
            return;
        }
        (server.applied, server.checkpoint) = (applied, through);
        let lease = self.replica(from).mark().lease;
        self.input(to, Input::Rebased { epoch, through, lease, session: 0 });
    }

    /// The epoch in which a server gives checkpoints, as a primary or a candidate.
    fn gives(&self, from: ReplicaId) -> Option<Epoch> {
        let server = &self.servers[&from];
        let candidate = server.replica.as_ref().and_then(Replica::candidate);
        server.serves.map(|(epoch, _)| epoch).or(candidate)
    }

    /// A server that gave up what it had begins to take a checkpoint of a primary or a candidate.
    pub(crate) fn begin_checkpoint(&mut self, from: ReplicaId, to: ReplicaId) {
        let Some(epoch) = self.gives(from) else { return };
        let through = BatchNumber::new(self.servers[&from].applied.len() as u64);
        if from == to || !self.waits_for_checkpoint(to) {
            return;
        }
        let session = self.next_id;
        self.next_id += 1;
        self.servers.get_mut(&to).expect("it is known").takes = Some((from, epoch, session));
        self.input(from, Input::TakesCheckpoint { replica: to, session, through });
    }

    /// The checkpoint comes to its end.
    pub(crate) fn end_checkpoint(&mut self, to: ReplicaId) {
        let Some((from, epoch, session)) = self.servers[&to].takes else { return };
        if self.gives(from) != Some(epoch) {
            return;
        }
        let applied = self.servers[&from].applied.clone();
        let through = BatchNumber::new(applied.len() as u64);
        let server = self.servers.get_mut(&to).expect("it is known");
        (server.applied, server.checkpoint, server.takes) = (applied, through, None);
        // The read bound is in every checkpoint.
        let lease = match is_planted!(ForgetsGrants) {
            true => Timestamp::ZERO,
            false => self.replica(from).mark().lease,
        };
        self.input(to, Input::Rebased { epoch, through, lease, session });
    }

    /// All that a primary has given of the checkpoint that a server takes, before it arrives there.
    pub(crate) fn part_under_way(&self, to: ReplicaId) -> Part {
        let (from, epoch, session) = self.servers[&to].takes.expect("it takes one");
        let lease = self.replica(from).mark().lease;
        Part { epoch, session, lease, applied: self.servers[&from].applied.clone() }
    }

    /// Another primary gives the rest of the checkpoint that a server takes.
    pub(crate) fn goes_on_at(&mut self, from: ReplicaId, to: ReplicaId) {
        let (_, _, session) = self.servers[&to].takes.expect("it takes one");
        let epoch = self.gives(from).expect("it gives one");
        let through = BatchNumber::new(self.servers[&from].applied.len() as u64);
        self.servers.get_mut(&to).expect("it is known").takes = Some((from, epoch, session));
        self.input(from, Input::TakesCheckpoint { replica: to, session, through });
    }

    /// What was given of a checkpoint arrives, and is the last of it.
    pub(crate) fn end_with(&mut self, to: ReplicaId, part: Part) {
        let Part { epoch, session, lease, applied } = part;
        let through = BatchNumber::new(applied.len() as u64);
        let server = self.servers.get_mut(&to).expect("it is known");
        (server.applied, server.checkpoint, server.takes) = (applied, through, None);
        self.input(to, Input::Rebased { epoch, through, lease, session });
    }

    /// A server takes a checkpoint of a primary, with nothing in its way.
    pub(crate) fn rebuild(&mut self, from: ReplicaId, to: ReplicaId) {
        self.begin_checkpoint(from, to);
        self.settle();
        self.end_checkpoint(to);
        self.settle();
    }

    /// Whether a server has given up what it had, durably.
    pub(crate) fn waits_for_checkpoint(&self, id: ReplicaId) -> bool {
        let server = &self.servers[&id];
        let marks = server.log[..server.durable].iter().rev();
        let mut marks = marks.filter_map(|(_, entry)| match entry {
            Entry::Mark(mark) => Some(mark.emptied),
            Entry::Batch(_) => None,
        });
        let is_emptied = server.replica.as_ref().is_some_and(Replica::is_emptied);
        is_emptied && (marks.next() == Some(true) || is_planted!(GivesUpInSilence))
    }

    /// Delivers the message at this place.
    pub(crate) fn deliver(&mut self, index: usize) {
        let (from, to, message) = self.flying.swap_remove(index);
        self.input(to, Input::Message { from, message });
    }

    /// Delivers, syncs and lets time pass until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2_000 {
            while !self.flying.is_empty() {
                let (from, to, message) = self.flying.remove(0);
                self.input(to, Input::Message { from, message });
            }
            let ids: Vec<_> = self.servers.keys().copied().collect();
            for &id in &ids {
                self.sync(id, usize::MAX / 2);
            }
            if self.flying.is_empty() && !ids.iter().any(|id| self.servers[id].has_unsynced()) {
                let due = ids.iter().filter_map(|id| self.servers[id].replica.as_ref());
                let Some(at) = due.filter_map(Replica::next_deadline).min() else { return };
                // Whoever is down is asked for ever.
                if self.servers.values().any(|server| server.replica.is_none())
                    && at > self.now.saturating_add(Duration::from_secs(5))
                {
                    return;
                }
                self.now = self.now.max(at);
                ids.iter().for_each(|&id| self.input(id, Input::Tick));
            }
        }
    }

    /// The mark that a server would find, if it started now: `None` for an empty log.
    fn found_mark(&self, id: ReplicaId) -> Option<Mark> {
        let server = &self.servers[&id];
        let mut marks = server.log[..server.durable].iter().rev().filter_map(|(_, entry)| {
            if let Entry::Mark(mark) = entry { Some(mark.clone()) } else { None }
        });
        server.replica.as_ref().map(Replica::mark).or_else(|| marks.next())
    }

    /// The newest epoch when a server lost its disk, if it is not rebuilt since: it does not know what
    /// it had.
    fn void_since(&self, id: ReplicaId) -> Option<Epoch> {
        let mark = self.found_mark(id).unwrap_or_default();
        let server = &self.servers[&id];
        let is_void = server.is_empty || server.is_older_copy;
        let is_void = is_void.then_some(self.void_now(id).since);
        is_void.or(mark.lost_before.filter(|_| mark.given_up.is_none()))
    }

    /// Whether a server has lost its disk and is not rebuilt.
    pub(crate) fn is_lost(&self, id: ReplicaId) -> bool {
        self.void_since(id).is_some()
    }

    /// The last epoch whose table a server has installed.
    fn installed(&self, id: ReplicaId) -> Epoch {
        let Some(mark) = self.found_mark(id) else { return Epoch::ZERO };
        mark.given_up.map_or(mark.lineage, |given_up| given_up.lineage).installed()
    }

    /// Who serves in the highest epoch.
    pub(crate) fn primary(&self) -> Option<(ReplicaId, Epoch)> {
        let serving = self.servers.iter().filter_map(|(&id, server)| Some((id, server.serves?.0)));
        serving.max_by_key(|(_, epoch)| *epoch)
    }

    /// Whether more than half of each configuration that has to be asked have what they had, or lost
    /// it before the newest table that one of the others has.
    pub(crate) fn may_serve(&self) -> bool {
        self.may_serve_without(None)
    }

    /// The same if this one loses its disk now.
    pub(crate) fn may_lose(&self, id: ReplicaId) -> bool {
        self.may_serve_without(Some(id))
    }

    fn may_serve_without(&self, lost: Option<ReplicaId>) -> bool {
        let asked = || self.previous.iter().flat_map(|(_, replicas)| replicas);
        let knowing = asked().filter(|&&id| Some(id) != lost && !self.is_lost(id));
        let base = knowing.map(|&id| self.installed(id)).max().unwrap_or_default();
        let answers = |&&id: &&ReplicaId| {
            Some(id) != lost && self.void_since(id).is_none_or(|since| since < base)
        };
        let is_enough = |(_, replicas): &(Epoch, Vec<ReplicaId>)| {
            replicas.iter().filter(answers).count() > replicas.len() / 2
        };
        self.previous.iter().all(is_enough)
    }

    /// How everybody is, for people.
    pub(crate) fn told(&self) -> Vec<String> {
        let of = |(id, server): (&ReplicaId, &Server)| match &server.replica {
            None => format!("{id} is down"),
            Some(replica) => format!(
                "{id}: {:?} promised {} installed {} has {:?} holds above {} carried out {} whole {}",
                replica.state(),
                replica.promised(),
                replica.installed(),
                replica.durable(),
                replica.held_above(),
                server.applied.len(),
                replica.is_whole(),
            ),
        };
        self.servers.iter().map(of).collect()
    }

    /// What a server has carried out.
    pub(crate) fn applied(&self, id: ReplicaId) -> &[u64] {
        &self.servers[&id].applied
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn is_serving(&self, id: ReplicaId) -> bool {
        self.is_up(id) && self.replica(id).state() == Step::Serving
    }
}
