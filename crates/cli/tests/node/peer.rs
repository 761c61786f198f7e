//! A peer of the native protocol by hand: frames as they are, and the first words of a connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use timestone::{ClientId, ErrorCode, KeyspaceId, Timestamp, TxnId, Version};
use timestone_cluster::ShardMap;
use timestone_types::{ClusterId, Epoch, Expiry, Sequence, ShardId};
use timestone_wire::{
    Decide, Envelope, ErrorReply, Frame, Get, Hello, Kind, Message, PrepareHead, PrepareWriter,
    ReadAt, RequestId, Role, Status, StatusIs, TxnState, Value, Verdict, Vote, Welcome, WriteEntry,
    WriteKind, frame_length,
};

/// Why a server said no: its code and its words.
pub(crate) type Refusal = (ErrorCode, String);

/// How long a server may be silent.
const TIMEOUT: Duration = Duration::from_secs(15);

/// One frame, owned.
#[derive(Clone, Debug)]
pub(crate) struct Received(Vec<u8>);

impl Received {
    pub(crate) fn frame(&self) -> Frame<'_> {
        Frame::parse(&self.0).expect("a server sends whole frames")
    }

    /// The code, if it is a refusal.
    pub(crate) fn refusal_code(&self) -> Option<ErrorCode> {
        ErrorReply::decode(&self.frame()).ok().map(|error| error.code)
    }

    /// The refusal that it must be: code and words.
    pub(crate) fn refusal(&self) -> Refusal {
        let frame = self.frame();
        let error = ErrorReply::decode(&frame)
            .unwrap_or_else(|_| panic!("a refusal was expected, got {:?}", frame.kind()));
        (error.code, error.message.to_owned())
    }
}

impl Received {
    /// A shard that has just started asks to come back: it makes a promise durable before it
    /// serves. Any client does.
    fn recovers(&self) -> bool {
        let recovers = self.refusal().0 == ErrorCode::Unavailable;
        if recovers {
            std::thread::sleep(Duration::from_millis(2));
        }
        recovers
    }
}

/// A connection that has not said anything yet.
#[derive(Debug)]
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// The next frame that answers something: readings of the server's clock are left out.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        loop {
            let received = self.receive_any()?;
            if received.frame().kind() != Kind::ClockIs {
                return Ok(received);
            }
        }
    }

    /// The next frame, whatever it is.
    pub(crate) fn receive_any(&mut self) -> io::Result<Received> {
        let mut bytes = vec![0; 4];
        self.0.read_exact(&mut bytes)?;
        let length = frame_length(&bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a frame without a length")
            })?;
        bytes.resize(length, 0);
        self.0.read_exact(&mut bytes[4..])?;
        Ok(Received(bytes))
    }

    /// Everything until the server closes the connection, as frames.
    pub(crate) fn until_closed(&mut self) -> io::Result<Vec<Received>> {
        let mut frames = Vec::new();
        loop {
            match self.receive() {
                Ok(frame) => frames.push(frame),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(frames);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A client that said hello, and does the rest by hand. One connection per server of the cluster.
#[derive(Debug)]
pub(crate) struct Peer {
    raw: Raw,
    pub(crate) client: ClientId,
    pub(crate) map: ShardMap,
    next: u64,
}

impl Peer {
    /// Connects as a new client.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_as(address, ClientId::ZERO)
    }

    /// Connects with a client id that was handed out before.
    pub(crate) fn connect_as(address: SocketAddr, client: ClientId) -> Self {
        Self::try_connect_as(address, client, TIMEOUT).expect("the server answers the hello")
    }

    /// The same with a server that may be gone, or silent for so long.
    pub(crate) fn try_connect_as(
        address: SocketAddr,
        client: ClientId,
        timeout: Duration,
    ) -> io::Result<Self> {
        let mut raw = Raw::connect(address)?;
        raw.0.set_read_timeout(Some(timeout))?;
        let mut bytes = Vec::new();
        Hello::new(Role::Client, ClusterId::ZERO, client, "node test")
            .encode(&Envelope::default(), &mut bytes);
        raw.send(&bytes)?;
        let received = raw.receive()?;
        let frame = received.frame();
        let welcome = Welcome::decode(&frame).expect("a welcome");
        let map = welcome.shard_map().expect("a readable map");
        Ok(Self { raw, client: welcome.client, map, next: 1 })
    }

    /// Where the primary of a shard is, as the map has it.
    pub(crate) fn address_of(&self, shard: ShardId) -> SocketAddr {
        let server = self.map.primary(shard).expect("the shard is in the map and has a primary");
        let address = server.addresses.native.as_ref().expect("it can be reached");
        address.as_str().parse().expect("tests use literal addresses")
    }

    /// A key of the default keyspace that a shard owns.
    pub(crate) fn key_of(&self, shard: ShardId, stem: &str) -> Vec<u8> {
        (0u32..)
            .map(|number| format!("{stem}-{number}").into_bytes())
            .find(|key| self.map.shard_of_key(key) == shard)
            .expect("some key has a slot of the shard")
    }

    /// The shard that owns a key of the default keyspace.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardId {
        self.map.shard_of_key(key)
    }

    fn envelope(&mut self, shard: ShardId) -> Envelope {
        self.next += 1;
        let epoch = self.map.epoch(shard).unwrap_or(Epoch::ZERO);
        Envelope {
            shard,
            epoch,
            request: RequestId::new(self.next),
            map_version: self.map.version(),
        }
    }

    /// Sends one frame.
    pub(crate) fn send(&mut self, shard: ShardId, write: impl FnOnce(&Envelope, &mut Vec<u8>)) {
        let envelope = self.envelope(shard);
        let mut bytes = Vec::new();
        write(&envelope, &mut bytes);
        self.raw.send(&bytes).expect("the server takes frames");
    }

    /// The answer to the frame that was sent last.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            let received = self.raw.receive().expect("the server answers");
            if received.frame().envelope().request.get() == self.next {
                return received;
            }
        }
    }

    pub(crate) fn ask(
        &mut self,
        shard: ShardId,
        write: impl FnOnce(&Envelope, &mut Vec<u8>),
    ) -> Received {
        self.send(shard, write);
        self.receive()
    }

    pub(crate) fn txn(&self, sequence: u64) -> TxnId {
        TxnId::new(self.client, Sequence::new(sequence))
    }

    /// Reads a key: the version, and the value when there is one.
    pub(crate) fn get(
        &mut self,
        shard: ShardId,
        at: ReadAt,
        key: &[u8],
    ) -> Result<(Version, Option<Vec<u8>>), Refusal> {
        let client = self.client;
        let get = Get { keyspace: KeyspaceId::DEFAULT, at, client, wait: true, key };

        loop {
            let received = self.ask(shard, |envelope, out| get.encode(envelope, out));
            let frame = received.frame();
            match Value::decode(&frame) {
                Ok(value) => {
                    return Ok((value.version, value.present.then(|| value.value.to_vec())));
                }
                Err(_) if received.recovers() => {}
                Err(_) => return Err(received.refusal()),
            }
        }
    }

    /// The latest value of a key at a server that may be gone, silent, or no primary any more; `Err`
    /// when it says nothing of it.
    pub(crate) fn try_latest(
        &mut self,
        shard: ShardId,
        now: Timestamp,
        key: &[u8],
    ) -> io::Result<Result<Option<Vec<u8>>, Refusal>> {
        let (client, envelope) = (self.client, self.envelope(shard));
        let at = ReadAt::Latest(now);
        let get = Get { keyspace: KeyspaceId::DEFAULT, at, client, wait: false, key };
        let mut bytes = Vec::new();
        get.encode(&envelope, &mut bytes);
        self.raw.send(&bytes)?;
        loop {
            let received = self.raw.receive()?;
            let frame = received.frame();
            if frame.envelope().request.get() != self.next {
                continue;
            }
            return Ok(match Value::decode(&frame) {
                Ok(value) => Ok(value.present.then(|| value.value.to_vec())),
                Err(_) => Err(received.refusal()),
            });
        }
    }

    /// Prepares a put of one key at one shard.
    pub(crate) fn prepare(
        &mut self,
        shard: ShardId,
        head: &PrepareHead<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<Verdict, Refusal> {
        loop {
            let received = self.prepare_once(shard, head, key, value);
            let frame = received.frame();
            match Vote::decode(&frame) {
                Ok(vote) => return Ok(vote.verdict),
                Err(_) if received.recovers() => {}
                Err(_) => return Err(received.refusal()),
            }
        }
    }

    /// The same, once, whatever is answered.
    pub(crate) fn prepare_once(
        &mut self,
        shard: ShardId,
        head: &PrepareHead<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Received {
        let entry = WriteEntry {
            keyspace: KeyspaceId::DEFAULT,
            kind: WriteKind::Put,
            expires_at: Expiry::NEVER,
            key,
            value,
        };
        self.ask(shard, |envelope, out| {
            let mut writer = PrepareWriter::begin(envelope, head, out);
            writer.write(&entry);
            writer.finish();
        })
    }

    /// Tells a shard a decision and waits until it is durable there.
    pub(crate) fn decide(&mut self, shard: ShardId, txn: TxnId, commit: Option<Timestamp>) -> Kind {
        self.ask(shard, |envelope, out| Decide::new(txn, commit).encode(envelope, out))
            .frame()
            .kind()
    }

    /// What a shard knows of a transaction.
    pub(crate) fn status(&mut self, shard: ShardId, txn: TxnId) -> TxnState {
        let received = self.ask(shard, |envelope, out| Status { txn }.encode(envelope, out));
        let frame = received.frame();
        StatusIs::decode(&frame).map_or_else(
            |_| panic!("a status was expected: {:?}", received.refusal()),
            |status| status.state,
        )
    }
}
