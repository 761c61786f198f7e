//! The calls of etcd's API, version 3, that a master needs, over its JSON gateway.
//!
//! A call goes to one endpoint; the next one is tried when that one cannot have heard it. Source:
//! docs/protocol/membership.md, "The master on etcd".

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use ureq::Agent;

use crate::json;
use crate::limits::{MAX_ANSWER_BYTES, MAX_ENDPOINTS, WATCH_TIMEOUT};

/// Why a call to etcd failed.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// No endpoint was given, or too many.
    #[error("etcd needs 1 to {MAX_ENDPOINTS} endpoints, as in etcd://HOST:2379,HOST:2379")]
    Endpoints,
    /// It does not answer: whether it has done what it was asked is not known.
    #[error("etcd at {endpoint} does not answer: {detail}")]
    Silent {
        /// Where it was asked.
        endpoint: String,
        /// What was in the way.
        detail: String,
    },
    /// It refused.
    #[error("etcd at {endpoint} refused: {detail}")]
    Refused {
        /// Where it was asked.
        endpoint: String,
        /// In its words.
        detail: String,
    },
    /// Its answer is not what its API promises.
    #[error("an answer cannot be read ({what}); is it an etcd of version 3.4 or later?")]
    Answer {
        /// The field that is wrong.
        what: &'static str,
    },
}

/// A revision of etcd's whole store.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub i64);

/// A lease of etcd.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub i64);

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// When it was created.
    pub created: Revision,
    /// When it was changed last.
    pub changed: Revision,
    /// The lease that it ends with; zero for none.
    pub lease: LeaseId,
}

/// What was read at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The etcd cluster that was asked. A restored one has another id, if it was told to.
    pub etcd_cluster: u64,
    /// The moment.
    pub revision: Revision,
    /// What was found, by key.
    pub found: Vec<KeyValue>,
}

/// What must hold of a key for a change to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guard {
    /// It was changed last in this revision.
    Changed(String, Revision),
    /// It was created in this revision; zero means that it does not exist.
    Created(String, Revision),
}

/// An etcd, by its endpoints.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    calls: Agent,
    streams: Agent,
    endpoints: Arc<[String]>,
    /// The endpoint that answered last.
    current: Arc<AtomicUsize>,
}

impl EtcdClient {
    /// An etcd at these `HOST:PORT`s, each call of which may take `timeout`.
    ///
    /// # Errors
    /// [`EtcdError::Endpoints`] for none, or too many.
    pub fn new(endpoints: Vec<String>, timeout: Duration) -> Result<Self, EtcdError> {
        if endpoints.is_empty() || endpoints.len() > MAX_ENDPOINTS {
            return Err(EtcdError::Endpoints);
        }
        Ok(Self {
            calls: agent(timeout),
            streams: agent(WATCH_TIMEOUT),
            endpoints: endpoints.into(),
            current: Arc::default(),
        })
    }

    /// Reads one key, up to date.
    ///
    /// # Errors
    /// etcd does not answer, refuses, or answers something else.
    pub fn get(&self, key: &str) -> Result<Snapshot, EtcdError> {
        let answer =
            self.call("kv/range", &json!({ "key": json::encode(key.as_bytes()) }), true)?;
        snapshot(&answer)
    }

    /// Reads all keys that begin with `prefix`, which must not be empty, up to date.
    ///
    /// # Errors
    /// As [`EtcdClient::get`].
    pub fn list(&self, prefix: &str) -> Result<Snapshot, EtcdError> {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let request =
            json!({ "key": json::encode(prefix.as_bytes()), "range_end": json::encode(&end) });
        snapshot(&self.call("kv/range", &request, true)?)
    }

    /// Writes a key if all guards hold: whether they did. With a lease, the key ends with it.
    ///
    /// # Errors
    /// As [`EtcdClient::get`]; after [`EtcdError::Silent`] it may have been written.
    pub fn put(
        &self,
        guards: &[Guard],
        key: &str,
        value: &[u8],
        lease: LeaseId,
    ) -> Result<bool, EtcdError> {
        let compare: Vec<Value> = guards.iter().map(compare).collect();
        let put = json!({
            "key": json::encode(key.as_bytes()),
            "value": json::encode(value),
            "lease": lease.0.to_string(),
        });
        let request = json!({ "compare": compare, "success": [{ "requestPut": put }] });
        let answer = self.call("kv/txn", &request, false)?;
        Ok(answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false))
    }

    /// Grants a lease of so many seconds.
    ///
    /// # Errors
    /// As [`EtcdClient::get`].
    pub fn grant(&self, seconds: u64) -> Result<LeaseId, EtcdError> {
        let answer = self.call("lease/grant", &json!({ "TTL": seconds.to_string() }), false)?;
        json::number(&answer, "ID").map(LeaseId)
    }

    /// Renews a lease: whether it still lasted.
    ///
    /// # Errors
    /// As [`EtcdClient::get`].
    pub fn keep_alive(&self, lease: LeaseId) -> Result<bool, EtcdError> {
        let answer = self.call("lease/keepalive", &json!({ "ID": lease.0.to_string() }), true)?;
        let result = answer.get("result").ok_or(EtcdError::Answer { what: "result" })?;
        Ok(json::number::<i64>(result, "TTL")? > 0)
    }

    /// Ends a lease, and its keys with it. One that has ended is ended.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn revoke(&self, lease: LeaseId) -> Result<(), EtcdError> {
        match self.call("lease/revoke", &json!({ "ID": lease.0.to_string() }), true) {
            Ok(_) | Err(EtcdError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells the values of a key that are written from a revision on, with the id of the etcd cluster,
    /// until `heard` says that it is enough, or the stream ends.
    pub(crate) fn watch(
        &self,
        key: &str,
        from: Revision,
        mut heard: impl FnMut(Option<(u64, KeyValue)>) -> bool,
    ) -> Result<(), EtcdError> {
        let create = json!({
            "key": json::encode(key.as_bytes()),
            "start_revision": from.0.to_string(),
        });
        let (endpoint, mut response) =
            self.send(&self.streams, "watch", &json!({ "create_request": create }), true)?;
        let silent = |error: std::io::Error| EtcdError::Silent {
            endpoint: endpoint.clone(),
            detail: error.to_string(),
        };
        let reader = response.body_mut().as_reader().take(MAX_ANSWER_BYTES);
        for line in BufReader::new(reader).lines() {
            let line = line.map_err(silent)?;
            let answer: Value = serde_json::from_str(&line)
                .map_err(|_| EtcdError::Answer { what: "a line of a watch" })?;
            let result = answer.get("result").ok_or(EtcdError::Answer { what: "result" })?;
            let header = result.get("header").ok_or(EtcdError::Answer { what: "header" })?;
            let etcd_cluster = json::number(header, "cluster_id")?;
            let events = json::list(result, "events");
            if events.is_empty() && !heard(None) {
                return Ok(());
            }
            for event in events.iter().filter(|event| event.get("type").is_none()) {
                let kv = event.get("kv").ok_or(EtcdError::Answer { what: "kv" })?;
                if !heard(Some((etcd_cluster, key_value(kv)?))) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn call(&self, path: &str, request: &Value, is_safe: bool) -> Result<Value, EtcdError> {
        let (endpoint, mut response) = self.send(&self.calls, path, request, is_safe)?;
        let status = response.status();
        let bytes =
            response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().map_err(
                |error| EtcdError::Silent { endpoint: endpoint.clone(), detail: error.to_string() },
            )?;
        let answer: Value =
            serde_json::from_slice(&bytes).map_err(|_| EtcdError::Answer { what: "JSON" })?;
        if status.is_success() && answer.get("error").is_none() {
            return Ok(answer);
        }
        Err(EtcdError::Refused { endpoint, detail: reason(&answer) })
    }

    /// Sends a request to the endpoint that answered last. Another one is tried if that one cannot
    /// have heard it, or if it does no harm when it is done twice. A member without a leader, or a
    /// proxy without a member, may say so at once: that is no refusal, and no answer. The next call
    /// goes to another one.
    fn send(
        &self,
        agent: &Agent,
        path: &str,
        request: &Value,
        is_safe: bool,
    ) -> Result<(String, ureq::http::Response<ureq::Body>), EtcdError> {
        let body = request.to_string();
        let first = self.current.load(Ordering::Relaxed);
        let mut failed = EtcdError::Endpoints;
        for index in (first..first + self.endpoints.len()).map(|at| at % self.endpoints.len()) {
            let endpoint = &self.endpoints[index];
            let url = format!("http://{endpoint}/v3/{path}");
            match agent.post(&url).content_type("application/json").send(body.as_bytes()) {
                Ok(mut response) if response.status().is_server_error() => {
                    let status = response.status();
                    let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
                    let bytes = body.read_to_vec().unwrap_or_default();
                    let answer = serde_json::from_slice(&bytes).unwrap_or_default();
                    let detail = format!("{status}: {}", reason(&answer));
                    failed = EtcdError::Silent { endpoint: endpoint.clone(), detail };
                    self.current.store((index + 1) % self.endpoints.len(), Ordering::Relaxed);
                    if !is_safe {
                        break;
                    }
                }
                Ok(response) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok((endpoint.clone(), response));
                }
                Err(error) => {
                    let is_unheard = is_unheard(&error);
                    let detail = error.to_string();
                    failed = EtcdError::Silent { endpoint: endpoint.clone(), detail };
                    if !is_safe && !is_unheard {
                        break;
                    }
                }
            }
        }
        Err(failed)
    }
}

/// Why something was not done, in etcd's words.
fn reason(answer: &Value) -> String {
    let words = answer.get("message").or_else(|| answer.get("error"));
    words.and_then(Value::as_str).unwrap_or("no reason was given").to_owned()
}

fn agent(timeout: Duration) -> Agent {
    Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into()
}

/// Whether nobody can have heard a request.
fn is_unheard(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn compare(guard: &Guard) -> Value {
    let (key, target, field, revision) = match guard {
        Guard::Changed(key, revision) => (key, "MOD", "modRevision", revision),
        Guard::Created(key, revision) => (key, "CREATE", "createRevision", revision),
    };
    let mut compare =
        json!({ "key": json::encode(key.as_bytes()), "target": target, "result": "EQUAL" });
    compare[field] = Value::String(revision.0.to_string());
    compare
}

fn snapshot(answer: &Value) -> Result<Snapshot, EtcdError> {
    let header = answer.get("header").ok_or(EtcdError::Answer { what: "header" })?;
    Ok(Snapshot {
        etcd_cluster: json::number(header, "cluster_id")?,
        revision: Revision(json::number(header, "revision")?),
        found: json::list(answer, "kvs").iter().map(key_value).collect::<Result<_, _>>()?,
    })
}

fn key_value(value: &Value) -> Result<KeyValue, EtcdError> {
    Ok(KeyValue {
        key: String::from_utf8(json::bytes(value, "key")?)
            .map_err(|_| EtcdError::Answer { what: "key" })?,
        value: json::bytes(value, "value")?,
        created: Revision(json::number(value, "create_revision")?),
        changed: Revision(json::number(value, "mod_revision")?),
        lease: LeaseId(json::number(value, "lease")?),
    })
}
