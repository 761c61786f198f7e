//! Connections to other Timestone processes: dialled when first needed, greeted, and dialled again
//! after a loss.
//!
//! Frames for a process that is not connected yet wait for it, bounded; what is lost is asked again
//! by whoever asked. Every frame that leaves here is answered, so that a link that stays silent is
//! dead: it is given up when the next frame is sent.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};

use timestone_seda::{ConnectionView, DialId, FrameBatch, NetCommand, ReplyAddress, StageId};
use timestone_session::{IdleTimeout, limits::SILENCE_LIMIT};
use timestone_types::{ClientId, ClusterId, Timestamp};
use timestone_wire::{Envelope, Hello, Message, Role};

use crate::event::Event;
use crate::limits::LINK_BACKLOG_BYTES;

#[derive(Debug, Default)]
struct NodeLink {
    reply_to: Option<ReplyAddress>,
    dial: Option<DialId>,
    backlog: Vec<u8>,
    idle: IdleTimeout,
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

    /// What to tell which net stage so that `bytes` reach `address`.
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
        if link.backlog.len() + bytes.len() <= LINK_BACKLOG_BYTES {
            link.backlog.extend_from_slice(&bytes);
        }
        if link.dial.is_some() {
            return (None, Vec::new());
        }
        let dial = DialId::new(self.next_dial);
        self.next_dial += 1;
        link.dial = Some(dial);
        events.push(Event::NetCommand(NetCommand::Dial { dial, address, owner }));
        (self.net, events)
    }

    /// Something arrived on a connection: from whom, if this process has dialled it; `None` if
    /// somebody else has.
    pub(crate) fn heard(&mut self, now: Timestamp, reply_to: ReplyAddress) -> Option<SocketAddr> {
        let mut links = self.links.iter_mut();
        let (&address, link) = links.find(|(_, link)| link.reply_to == Some(reply_to))?;
        link.idle.heard(now);
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

    /// A connection is gone, or could not be made; the next frame dials again.
    pub(crate) fn disconnected(&mut self, dial: DialId) {
        for link in self.links.values_mut().filter(|link| link.dial == Some(dial)) {
            *link = NodeLink::default();
        }
    }
}

/// The socket address behind `host:port`.
pub(crate) fn resolve(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| text.to_socket_addrs().ok()?.next())
}
