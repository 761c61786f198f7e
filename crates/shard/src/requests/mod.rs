//! Who asked, what is needed to go on, and the answers.

pub(crate) mod pending;
pub(crate) mod replies;
