//! How connections come to be: accepted, handed over by another net stage, or dialled.
//!
//! What it does not do: anything with an open connection; that is its parent's.

use std::io::{self, Write};
use std::net::SocketAddr;

use super::NetStage;
use crate::limits::ACCEPTS_PER_TURN;
use crate::net::connection::{ConnectionPhase, NetConnection};
use crate::net::{
    Break, ConnectionView, DialId, DisconnectReason, FrameBatchEvent, NetCommand, NetEvent,
    Protocol, Stream,
};
use crate::{ConnectionId, Context, Generation, ReplyAddress, StageId};

impl<E: FrameBatchEvent, P: Protocol> NetStage<E, P> {
    pub(super) fn accept(&mut self, ctx: &mut Context<'_, E>) {
        for index in 0..self.acceptor.listeners() {
            for accepted in 0.. {
                let Some(listener) = self.acceptor.ready(index) else {
                    break;
                };
                if accepted == ACCEPTS_PER_TURN {
                    ctx.want_turn();
                    break;
                }
                match listener.socket.accept() {
                    Ok((stream, peer)) => {
                        self.acceptor.has_accepted();
                        self.share(ctx, stream, peer);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        listener.ready = false
                    }
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                        ) => {}
                    Err(error) => {
                        return self.acceptor.rest(self.now, &self.config.name, &error);
                    }
                }
            }
        }
    }

    /// Keeps an accepted connection, or hands it to the net stage whose turn it is.
    fn share(&mut self, ctx: &mut Context<'_, E>, stream: Stream, peer: SocketAddr) {
        let target = self.acceptor.next_share(&self.config.share_with).unwrap_or(ctx.stage());
        if target == ctx.stage() {
            self.adopt(ctx, stream, peer);
            return;
        }
        if let Err(event) = ctx.send(target, E::from_command(NetCommand::Adopt { stream, peer }))
            && let Ok(NetCommand::Adopt { stream, peer }) = event.into_command()
        {
            self.adopt(ctx, stream, peer);
        }
    }

    pub(super) fn adopt(&mut self, ctx: &mut Context<'_, E>, mut stream: Stream, peer: SocketAddr) {
        let refusal = if self.flush_deadline.is_set() {
            Some(Break::ShuttingDown)
        } else if self.connections.count() >= self.config.max_connections {
            Some(Break::TooManyConnections { bound: self.config.max_connections })
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.metrics.refused_total.add(1);
            let reply_to = ReplyAddress {
                stage: ctx.stage(),
                connection: ConnectionId::new(u32::MAX),
                generation: Generation::new(0),
            };
            let view = ConnectionView { reply_to, peer, dial: None, owner: self.config.owner };
            self.answers.clear();
            self.protocol.refuse(&view, reason, &[], &mut self.answers);
            // Its socket's buffer is empty: what does not fit now is not worth waiting for.
            let _ = stream.write(&self.answers);
            self.answers.clear();
            return;
        }
        match self.insert(ctx, stream, peer, None, self.config.owner, ConnectionPhase::Open) {
            Ok(index) => {
                self.metrics.accepted_total.add(1);
                self.announce(ctx, index);
            }
            Err(error) => {
                self.metrics.refused_total.add(1);
                tracing::warn!(%peer, %error, "A connection could not be registered with the \
                    poller and was dropped.");
            }
        }
    }

    pub(super) fn dial(
        &mut self,
        ctx: &mut Context<'_, E>,
        dial: DialId,
        address: SocketAddr,
        owner: StageId,
    ) {
        self.metrics.dialled_total.add(1);
        let opened = if self.connections.count() >= self.config.max_connections {
            Err(io::Error::other(
                "this side has too many connections; close some, or raise the limit",
            ))
        } else {
            self.config.network.connect(address).and_then(|stream| {
                self.insert(
                    ctx,
                    stream,
                    address,
                    Some(dial),
                    Some(owner),
                    ConnectionPhase::Dialling,
                )
            })
        };
        match opened {
            Ok(index) => self.connections.watch_dial(index, self.now),
            Err(error) => {
                self.tell(ctx, Some(owner), NetEvent::DialFailed { dial, address, error }, None)
            }
        }
    }

    fn insert(
        &mut self,
        ctx: &mut Context<'_, E>,
        mut stream: Stream,
        peer: SocketAddr,
        dial: Option<DialId>,
        owner: Option<StageId>,
        phase: ConnectionPhase,
    ) -> io::Result<u32> {
        let Some(io) = ctx.io() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this driver has no sockets"));
        };
        let (connection, generation) = self.connections.next();
        stream.register(&io, connection.index() as u64)?;
        let reply_to = ReplyAddress { stage: ctx.stage(), connection, generation };
        let view = ConnectionView { reply_to, peer, dial, owner };
        let index = self.connections.insert(NetConnection::new(stream, view, phase, self.now));
        if peer.ip().is_loopback() {
            ctx.note_local_peers(1);
        }
        self.metrics.connections.set(self.connections.count() as u64);
        Ok(index)
    }

    /// An open connection is made known, and told not to delay.
    fn announce(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        if let Err(error) = connection.socket.stream.set_nodelay() {
            tracing::debug!(peer = %connection.view.peer, %error, "A connection keeps Nagle's \
                delay.");
        }
        if let Err(error) = connection.socket.stream.keep_alive() {
            tracing::debug!(peer = %connection.view.peer, %error, "A connection whose peer \
                vanishes will not be noticed.");
        }
        let view = connection.view;
        self.tell(ctx, view.owner, NetEvent::Connected(view), None);
    }

    /// The poller says that a dial is answered.
    pub(super) fn dialled(&mut self, ctx: &mut Context<'_, E>, index: u32) {
        let Some(connection) = self.connections.at(index) else { return };
        match connection.socket.stream.connected() {
            Ok(()) => {
                connection.phase = ConnectionPhase::Open;
                let has_output = connection.output.bytes() > 0;
                self.announce(ctx, index);
                if has_output {
                    self.connections.list_to_write(index);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => self.remove(ctx, index, DisconnectReason::Failed(error)),
        }
    }
}
