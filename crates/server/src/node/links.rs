//! Connections to other Timestone processes: dialled when first needed, greeted, and dialled again
//! after a loss.
//!
//! Frames for a process that is not connected yet wait for it, bounded; what is lost is asked again
//! by whoever asked. Every frame that leaves here is answered, so that a link that stays silent is
//! dead: it is given up when the next frame is sent. A process that is not there is dialled now and
//! then; in between nothing waits for it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use timestone_seda::{ConnectionView, DialId, FrameBatch, NetCommand, ReplyAddress, StageId};
use timestone_session::{IdleTimeout, limits::SILENCE_LIMIT};
use timestone_types::{ClientId, ClusterId, Timestamp};
use timestone_wire::{Envelope, Hello, Message, Role};

use crate::event::Event;
use crate::limits::LINK_BACKLOG_BYTES;

/// How long after a process was dialled it is not dialled again, at first; it doubles with each
/// dial that comes to nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause: as late as that it is noticed that a process is back.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct NodeLink {
    reply_to: Option<ReplyAddress>,
    dial: Option<DialId>,
    backlog: Vec<u8>,
    idle: IdleTimeout,
    /// When it may be dialled again.
    dial_at: Timestamp,
    /// How long after the last dial that was; zero before the first, and since it was heard.
    pause: Duration,
}

impl NodeLink {
    /// It is dialled: what the next dial waits for.
    fn dialled(&mut self, now: Timestamp, dial: DialId) {
        self.dial = Some(dial);
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.dial_at = now.saturating_add(self.pause);
    }
}

/// All connections of the process to others.
pub(crate) struct Links {
    net: Option<StageId>,
    links: BTreeMap<SocketAddr, NodeLink>,
    next_dial: u64,
    owner: Option<StageId>,
}

impl Links {
    pub(crate) const fn new(net: Option<StageId>) -> Self {
        Self { net, links: BTreeMap::new(), next_dial: 1, owner: None }
    }

    /// Who hears of connections; the node stage itself.
    pub(crate) const fn set_owner(&mut self, owner: StageId) {
        self.owner = Some(owner);
    }

    /// Whether a connection is being made, for which frames wait.
    pub(crate) fn is_dialling(&self, address: SocketAddr) -> bool {
        let link = self.links.get(&address);
        link.is_some_and(|link| link.reply_to.is_none() && link.dial.is_some())
    }

    /// Whether what is sent now is lost, because it is too early to dial again.
    pub(crate) fn is_pausing(&self, now: Timestamp, address: SocketAddr) -> bool {
        let link = self.links.get(&address);
        link.is_some_and(|link| link.dial.is_none() && now < link.dial_at)
    }

    /// What to tell which net stage so that `bytes` reach `address`. Too early after a dial that
    /// came to nothing they are dropped: whoever needs an answer asks again.
    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        address: SocketAddr,
        bytes: Vec<u8>,
    ) -> (Option<StageId>, Vec<Event>) {
        let Some(owner) = self.owner else { return (None, Vec::new()) };
        let link = self.links.entry(address).or_default();
        let mut events = Vec::new();
        if let Some(reply_to) = link.reply_to {
            if !link.idle.is_over(now, SILENCE_LIMIT) {
                link.idle.asked(now);
                return (self.net, vec![Event::FrameBatch(FrameBatch::new(reply_to, bytes))]);
            }
            tracing::warn!(%address, "a server owes answers and is silent; its connection is given \
                up, and it is dialled anew");
            link.idle.give_up();
            (link.reply_to, link.dial) = (None, None);
            events.push(Event::NetCommand(NetCommand::Abort(reply_to)));
        }
        if link.dial.is_none() && now < link.dial_at {
            return (self.net, events);
        }
        if link.backlog.len() + bytes.len() <= LINK_BACKLOG_BYTES {
            link.backlog.extend_from_slice(&bytes);
        }
        if link.dial.is_some() {
            return (None, Vec::new());
        }
        let dial = DialId::new(self.next_dial);
        self.next_dial += 1;
        link.dialled(now, dial);
        events.push(Event::NetCommand(NetCommand::Dial { dial, address, owner }));
        (self.net, events)
    }

    /// Something arrived on a connection: from whom, if this process has dialled it; `None` if
    /// somebody else has.
    pub(crate) fn heard(&mut self, now: Timestamp, reply_to: ReplyAddress) -> Option<SocketAddr> {
        let mut links = self.links.iter_mut();
        let (&address, link) = links.find(|(_, link)| link.reply_to == Some(reply_to))?;
        link.idle.heard(now);
        link.pause = Duration::ZERO;
        Some(address)
    }

    /// A connection stands: greet, then send what waited.
    pub(crate) fn connected(
        &mut self,
        now: Timestamp,
        view: &ConnectionView,
        cluster: ClusterId,
    ) -> (Option<StageId>, Vec<Event>) {
        let Some(link) =
            self.links.values_mut().find(|link| link.dial.is_some() && link.dial == view.dial)
        else {
            return (None, Vec::new());
        };
        link.reply_to = Some(view.reply_to);
        link.idle.asked(now);
        let mut bytes = Vec::new();
        Hello::new(Role::Server, cluster, ClientId::ZERO, "timestone-server")
            .encode(&Envelope::default(), &mut bytes);
        bytes.append(&mut link.backlog);
        (self.net, vec![Event::FrameBatch(FrameBatch::new(view.reply_to, bytes))])
    }

    /// A connection is gone, or could not be made: to whom; `None` if it was given up before. A
    /// later frame dials again.
    pub(crate) fn disconnected(&mut self, dial: DialId) -> Option<SocketAddr> {
        let mut links = self.links.iter_mut();
        let (&address, link) = links.find(|(_, link)| link.dial == Some(dial))?;
        let (dial_at, pause) = (link.dial_at, link.pause);
        *link = NodeLink { dial_at, pause, ..NodeLink::default() };
        Some(address)
    }
}

/// The socket address behind `host:port`.
pub(super) fn resolve(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| text.to_socket_addrs().ok()?.next())
}

#[cfg(test)]
mod tests {
    use timestone_seda::{ConnectionId, Generation};

    use super::*;

    const OWNER: StageId = StageId::new(1);
    const NET: StageId = StageId::new(9);

    fn address() -> SocketAddr {
        "127.0.0.1:7400".parse().unwrap()
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + millis * 1_000_000)
    }

    /// The dial that sending comes to, if any.
    fn send(links: &mut Links, millis: u64) -> Option<DialId> {
        let (_, events) = links.send(at(millis), address(), vec![1]);
        events.into_iter().find_map(|event| match event {
            Event::NetCommand(NetCommand::Dial { dial, .. }) => Some(dial),
            _ => None,
        })
    }

    /// When a dead process is dialled that is sent something every millisecond.
    fn dials(links: &mut Links, millis: std::ops::Range<u64>) -> Vec<u64> {
        let mut dials = Vec::new();
        for now in millis {
            if let Some(dial) = send(links, now) {
                dials.push(now);
                assert!(links.is_dialling(address()));
                assert_eq!(links.disconnected(dial), Some(address()));
                assert!(links.is_pausing(at(now), address()));
            }
        }
        dials
    }

    fn links() -> Links {
        let mut links = Links::new(Some(NET));
        links.set_owner(OWNER);
        links
    }

    #[test]
    fn a_process_that_is_not_there_is_dialled_now_and_then() {
        assert_eq!(dials(&mut links(), 0..2000), [0, 50, 150, 350, 750, 1250, 1750]);
    }

    #[test]
    fn a_process_that_was_heard_is_dialled_at_once_when_it_is_lost() {
        let mut links = links();
        dials(&mut links, 0..1000);
        let dial = send(&mut links, 2000).expect("the pause is over");
        let reply_to = ReplyAddress {
            stage: NET,
            connection: ConnectionId::new(1),
            generation: Generation::new(1),
        };
        let view = ConnectionView { reply_to, peer: address(), dial: Some(dial), owner: None };
        let (_, events) = links.connected(at(2001), &view, ClusterId::new(4));
        assert_eq!(events.len(), 1, "what waited is sent");
        assert_eq!(links.heard(at(2002), reply_to), Some(address()));
        assert_eq!(links.disconnected(dial), Some(address()));
        assert_eq!(links.disconnected(dial), None);
        assert_eq!(dials(&mut links, 2600..2800), [2600, 2650, 2750]);
    }

    /// It may be one that greets everybody with a refusal.
    #[test]
    fn a_process_that_closes_what_it_accepts_is_not_dialled_all_the_time() {
        let mut links = links();
        let mut dials = 0;
        for now in 0..1000 {
            let Some(dial) = send(&mut links, now) else { continue };
            dials += 1;
            let reply_to = ReplyAddress {
                stage: NET,
                connection: ConnectionId::new(1),
                generation: Generation::new(1),
            };
            let view = ConnectionView { reply_to, peer: address(), dial: Some(dial), owner: None };
            links.connected(at(now), &view, ClusterId::new(4));
            links.heard(at(now), reply_to);
            links.disconnected(dial);
        }
        assert_eq!(dials, 20, "every 50 ms");
    }
}
