//! The tests' Redis client, for servers of this process: a test is over where it fails.

pub(crate) use crate::resp::Reply;
use crate::resp::Resp;
use crate::running::Running;

/// A connection.
pub(crate) struct Redis(Resp);

impl Redis {
    pub(crate) fn connect(running: &Running) -> Self {
        Self(Resp::connect(running.server.addresses().resp.unwrap()).unwrap())
    }

    /// Sends words of a command as an array, without waiting.
    pub(crate) fn send(&mut self, words: &[&[u8]]) {
        self.0.queue(words).unwrap();
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.0.send(bytes).unwrap();
    }

    /// Has a thread read answers: see [`Resp::split`].
    pub(crate) fn split(
        &mut self,
        count: usize,
        answer: &'static [u8],
    ) -> std::thread::JoinHandle<()> {
        self.0.split(count, answer)
    }

    /// Asks a command whose words have no spaces.
    pub(crate) fn ask(&mut self, command: &[u8]) -> Reply {
        let words: Vec<&[u8]> = command.split(|&byte| byte == b' ').collect();
        self.0.call(&words).unwrap()
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> Reply {
        self.0.reply().unwrap()
    }
}
