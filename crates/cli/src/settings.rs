//! The server's settings: where each value comes from, and what it is.
//!
//! Precedence: flag > environment (`TIMESTONE_…`) > configuration file (TOML) > default. A key of
//! the file that is not known is an error that names the nearest known one; so is a value of the
//! wrong form, with the place where it stands.

mod flags;

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use timestone::server::{DeviceKind, FlashPlace, MasterPlace, ServerConfig, StageLayout, limits};
use timestone_clock::ClockShift;
use timestone_cluster::limits::MIN_DETECTION;
use timestone_cluster::{ClusterError, ReplicationFactor};

use crate::failure::Failure;
use crate::logging::LogFormat;

pub(crate) use flags::{ServeArgs, accepted_loss};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// An environment variable.
    Environment(String),
    /// A key of the configuration file.
    File(PathBuf),
    /// Nobody said anything.
    Default,
    /// Nobody said anything, and this is what it comes to here.
    Derived(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "flag"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Default => write!(f, "default"),
            Self::Derived(from) => write!(f, "default: {from}"),
        }
    }
}

/// One setting as it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Its name: the long flag, and the key in the file.
    pub(crate) name: &'static str,
    /// Its value as text.
    pub(crate) value: String,
    /// Where that came from.
    pub(crate) origin: Origin,
}

impl Setting {
    /// The line of a configuration file that says the same.
    pub(crate) fn line(&self) -> String {
        format!("{} = {}", self.name, toml::Value::from(self.value.as_str()))
    }
}

/// Names and defaults of all settings, in the order in which they are shown.
const DEFAULTS: &[(&str, &str)] = &[
    ("data", "timestone-data"),
    ("listen", "127.0.0.1:7400"),
    ("resp", "127.0.0.1:7401"),
    ("resp-keyspace", "default"),
    ("http", "127.0.0.1:7402"),
    ("advertise", ""),
    ("log", "ssd"),
    ("device", "file"),
    ("capacity", ""),
    ("frugal-capacity", ""),
    ("frugal-keys", "10000000"),
    ("frugal-places", "10"),
    ("cache", "1GiB"),
    ("dram", "256MiB"),
    ("memory", ""),
    ("shards", ""),
    ("threads", ""),
    ("layout", "fused"),
    ("cluster", ""),
    ("cluster-shards", ""),
    ("replication", "1"),
    ("detection", "500ms"),
    ("lease", ""),
    ("replace-after", "1min"),
    ("level-primaries", "true"),
    ("master", "embedded"),
    ("insecure", "false"),
    ("pin", "false"),
    ("clock-shift", ""),
    ("log-filter", ""),
    ("log-format", "auto"),
];

/// What is logged when nobody says otherwise: a start in a handful of lines.
const DEFAULT_FILTER: &str = "info";

/// All settings in force.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    /// Merges flags, environment, file and defaults. `from_environment` tells whether a flag's
    /// value came from its variable.
    pub(crate) fn merge(
        args: &ServeArgs,
        from_environment: impl Fn(&str) -> bool,
    ) -> Result<Self, Failure> {
        refuse_unknown_variables(
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        )?;
        let file = match &args.config {
            Some(path) => read_file(path)?,
            None => toml::Table::new(),
        };
        Ok(Self::with_table(args, &file, from_environment))
    }

    /// The same, with the configuration file's table at hand.
    pub(crate) fn with_table(
        args: &ServeArgs,
        file: &toml::Table,
        from_environment: impl Fn(&str) -> bool,
    ) -> Self {
        let path = args.config.clone().unwrap_or_default();
        let settings = DEFAULTS.iter().map(|&(name, default)| {
            let (value, origin) = if let Some(value) = args.given(name) {
                let origin = if from_environment(name) {
                    Origin::Environment(variable(name))
                } else {
                    Origin::Flag
                };
                (value.clone(), origin)
            } else if let Some(value) = file.get(name) {
                (text_of(value), Origin::File(path.clone()))
            } else {
                (default.to_owned(), Origin::Default)
            };
            Setting { name, value, origin }
        });
        Self(settings.collect())
    }

    /// The settings in the order in which they are shown.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    fn find(&self, name: &str) -> &Setting {
        self.0
            .iter()
            .find(|setting| setting.name == name)
            .expect("every name asked for is in DEFAULTS")
    }

    fn parse<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let setting = self.find(name);
        parse(&setting.value).map_err(|detail| {
            Failure::usage(format!(
                "--{name} is '{}' ({}): {detail}",
                setting.value, setting.origin
            ))
        })
    }

    fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        if self.find(name).value.is_empty() { Ok(None) } else { self.parse(name, parse).map(Some) }
    }

    /// Which log lines to write: as set, else as `RUST_LOG` says, else the usual ones.
    pub(crate) fn log_filter(&self) -> String {
        let set = &self.find("log-filter").value;
        if !set.is_empty() {
            return set.clone();
        }
        std::env::var("RUST_LOG")
            .ok()
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| DEFAULT_FILTER.to_owned())
    }

    /// How log lines look.
    pub(crate) fn log_format(&self) -> Result<LogFormat, Failure> {
        self.parse("log-format", str::parse)
    }

    /// The settings with what the server would choose where nobody said anything, on this machine
    /// and for this data directory. What is empty even then is not set.
    pub(crate) fn in_force(&self) -> Result<Vec<Setting>, Failure> {
        let config = self.server_config()?;
        let facts = config.in_force().map_err(|error| Failure::usage(error.to_string()))?;
        let filled = self.iter().map(|setting| {
            let derived = |value: String, from| Setting {
                name: setting.name,
                value,
                origin: Origin::Derived(from),
            };
            if !setting.value.is_empty() {
                return setting.clone();
            }
            match setting.name {
                "advertise" => match config.listen.native {
                    Some(address) if address.port() != 0 => {
                        derived(address.to_string(), "the address of listen")
                    }
                    _ => setting.clone(),
                },
                "capacity" => match (facts.capacity_bytes, &config.flash) {
                    (Some(bytes), FlashPlace::Files) => {
                        derived(format!("{}MiB", bytes >> 20), "80 % of the free space")
                    }
                    (Some(bytes), _) => derived(format!("{}MiB", bytes >> 20), "in memory"),
                    // Empty in a configuration file says the same.
                    (None, _) => derived(String::new(), "what the devices have"),
                },
                "frugal-capacity" => match facts.capacity_bytes {
                    Some(bytes) => derived(format!("{}MiB", bytes >> 20), "as capacity"),
                    None => setting.clone(),
                },
                "memory" => match timestone_io::machine_memory() {
                    Some(bytes) => {
                        derived(format!("{}MiB", (bytes / 2) >> 20), "half of the machine's")
                    }
                    None => setting.clone(),
                },
                "shards" => derived(facts.shards.to_string(), "as the data directory has, or gets"),
                "threads" => derived(facts.threads.to_string(), "half the cores"),
                // What a cluster was founded with stays, whatever is said later.
                "cluster-shards" if config.master == MasterPlace::Embedded && facts.is_new => {
                    derived(facts.shards.to_string(), "its own")
                }
                "lease" => {
                    derived(format!("{:?}", config.lease), "twice the detection time, at most 1s")
                }
                "log-filter" => {
                    let set = std::env::var("RUST_LOG").is_ok_and(|text| !text.is_empty());
                    let origin = if set {
                        Origin::Environment("RUST_LOG".to_owned())
                    } else {
                        Origin::Default
                    };
                    Setting { name: setting.name, value: self.log_filter(), origin }
                }
                _ => setting.clone(),
            }
        });
        Ok(filled.collect())
    }

    /// The typed configuration.
    pub(crate) fn server_config(&self) -> Result<ServerConfig, Failure> {
        let master = self.parse("master", master)?;
        let mut config = ServerConfig::new(PathBuf::from(&self.find("data").value));
        config.listen.native = self.parse("listen", listen)?;
        config.listen.resp = self.parse("resp", listen)?;
        let keyspace = |text: &str| text.parse().map_err(|error: ClusterError| error.to_string());
        config.listen.resp_keyspace = Some(self.parse("resp-keyspace", keyspace)?);
        config.listen.http = self.parse("http", listen)?;
        config.listen.advertise = self.optional("advertise", address)?;
        config.log = self.parse("log", log_device)?;
        config.flash = self.parse("device", device)?;
        config.sizes.capacity_bytes = self.optional("capacity", capacity)?;
        config.sizes.frugal_capacity_bytes = self.optional("frugal-capacity", capacity)?;
        config.sizes.frugal_keys = self.parse("frugal-keys", keys)?;
        config.sizes.frugal_places = self.parse("frugal-places", percent)?;
        config.sizes.cache_bytes = self.parse("cache", cache)?;
        config.sizes.dram_bytes = self.parse("dram", |text| size_of_at_least(text, LEAST_DRAM))?;
        config.sizes.memory_bytes = self.optional("memory", memory)?;
        config.shards = self.optional("shards", count)?;
        config.threads = self.optional("threads", |text| count(text).map(usize::from))?;
        config.layout = self.parse("layout", layout)?;
        config.cluster_shards = self.optional("cluster-shards", count)?;
        config.replication = self.parse("replication", replication)?;
        config.controller.detection =
            self.parse("detection", |text| time_of_at_least(text, MIN_DETECTION))?;
        config.lease = self.lease(config.controller.detection)?;
        config.controller.replace_after = self
            .parse("replace-after", |text| time_of_at_least(text, config.controller.detection))?;
        config.controller.levels = self.parse("level-primaries", boolean)?;
        config.cluster = self.optional("cluster", |text| Ok(text.to_owned()))?;
        config.master = master;
        config.listen.insecure = self.parse("insecure", boolean)?;
        config.pin = self.parse("pin", boolean)?;
        let shift = |text: &str| text.parse::<ClockShift>().map_err(|error| error.to_string());
        config.clock_shift = self.optional("clock-shift", shift)?.unwrap_or_default();
        if config.replication != ReplicationFactor::ONE && config.log == DeviceKind::None {
            let found = config.replication;
            return Err(Failure::usage(format!(
                "--replication is {found}, and --log is none: what the other copies count on must \
                 outlive a restart; leave one of them out"
            )));
        }
        Ok(config)
    }
}

impl Settings {
    /// The lease: twice the detection time, if nothing else is said. A failover waits for both, so one
    /// that is far longer makes a short detection worth nothing.
    fn lease(&self, detection: Duration) -> Result<Duration, Failure> {
        let usual = (2 * detection).clamp(limits::MIN_LEASE, limits::MAX_LEASE);
        let lease = self.optional("lease", |text| time_of_at_least(text, limits::MIN_LEASE))?;
        let lease = lease.unwrap_or(usual);
        let most = limits::MAX_LEASE.min(limits::MAX_LEASE_OF_DETECTIONS * detection);
        if lease > most {
            return Err(Failure::usage(format!(
                "--lease is {lease:?}, and with --detection {detection:?} it may be {most:?} at most: \
                 whoever takes over waits until it is over"
            )));
        }
        Ok(lease)
    }
}

/// A variable that looks like ours and is none is a setting that somebody believes to be in force.
fn refuse_unknown_variables(names: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut known = Vec::new();
    let mut commands = vec![<crate::Arguments as clap::CommandFactory>::command()];
    while let Some(command) = commands.pop() {
        let variables = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
        known.extend(variables.map(str::to_owned));
        commands.extend(command.get_subcommands().cloned());
    }
    for name in names.filter(|name| name.starts_with(PREFIX)) {
        // What Kubernetes and Docker put into the environment of those who talk to a service called
        // timestone.
        let of_service =
            name.starts_with("TIMESTONE_SERVICE_") || name.starts_with("TIMESTONE_PORT");
        let of_tests = name.starts_with("TIMESTONE_TEST_");
        if !of_service && !of_tests && !known.contains(&name) {
            let likeness = |one: &String| strsim::jaro_winkler(&name, one);
            let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            let hint =
                nearest.map_or(String::new(), |nearest| format!("; did you mean {nearest}?"));
            return Err(Failure::usage(format!("unknown environment variable {name}{hint}")));
        }
    }
    Ok(())
}

/// Begins the name of every variable.
const PREFIX: &str = "TIMESTONE_";

/// The environment variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase().replace('-', "_"))
}

/// Whether a setting's flag took its value from its environment variable, as the parser of the
/// command line saw it.
pub(crate) fn came_from_environment(matches: Option<&ArgMatches>, name: &str) -> bool {
    let source = matches.and_then(|matches| matches.value_source(&name.replace('-', "_")));
    source == Some(ValueSource::EnvVariable)
}

fn read_file(path: &Path) -> Result<toml::Table, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("could not read the configuration file {}: {error}", path.display()))
    })?;
    read_text(path, &text)
}

/// Reads a configuration file's text, all of whose keys must be known.
pub(crate) fn read_text(path: &Path, text: &str) -> Result<toml::Table, Failure> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        Failure::usage(format!("the configuration file {} is not TOML: {error}", path.display()))
    })?;
    for key in table.keys() {
        if DEFAULTS.iter().all(|(name, _)| name != key) {
            let nearest = DEFAULTS.iter().max_by(|(a, _), (b, _)| {
                strsim::jaro_winkler(key, a).total_cmp(&strsim::jaro_winkler(key, b))
            });
            let hint =
                nearest.map_or(String::new(), |(name, _)| format!("; did you mean '{name}'?"));
            return Err(Failure::usage(format!(
                "unknown key '{key}' in the configuration file {}{hint}",
                path.display()
            )));
        }
    }
    Ok(table)
}

fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads a size such as `512MiB` or `20GB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    bytesize::ByteSize::from_str(text)
        .map(|size| size.as_u64())
        .map_err(|_| "it must be a size such as 512MiB, 20GB or 1073741824".to_owned())
}

/// Reads the memory of a process, which must suffice for one.
fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < limits::MIN_MEMORY_BYTES => {
            Err(format!("it must be at least {}MiB", limits::MIN_MEMORY_BYTES >> 20))
        }
        bytes => Ok(bytes),
    }
}

/// No shard does with less.
const LEAST_CAPACITY: u64 = limits::MIN_BLOCKS as u64 * limits::BLOCK_BYTES;
/// A cache below this is a size whose unit was forgotten.
const LEAST_CACHE: u64 = 1 << 20;

/// Less than that is a size whose unit was forgotten.
const LEAST_DRAM: u64 = 1 << 20;

/// Reads the space of flash devices.
pub(crate) fn capacity(text: &str) -> Result<u64, String> {
    size_of_at_least(text, LEAST_CAPACITY)
}

fn size_of_at_least(text: &str, least: u64) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < least => Err(format!(
            "that is {bytes} bytes, and {}MiB is the least; write it with its unit, such as 512MiB",
            least >> 20
        )),
        bytes => Ok(bytes),
    }
}

/// Zero switches the cache off.
fn cache(text: &str) -> Result<u64, String> {
    if size(text)? == 0 { Ok(0) } else { size_of_at_least(text, LEAST_CACHE) }
}

/// Reads an address, resolving a host name.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.to_socket_addrs()
        .map_err(|error| format!("it must be HOST:PORT, such as 127.0.0.1:7400 ({error})"))?
        .next()
        .ok_or_else(|| "the host name has no address".to_owned())
}

fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" { Ok(None) } else { address(text).map(Some) }
}

/// Reads a number of keys.
pub(crate) fn keys(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|&keys| keys > 0)
        .ok_or_else(|| "it must be a number of keys, such as 50000000, without a unit".to_owned())
}

fn percent(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|share| (1..=100).contains(share))
        .ok_or_else(|| "it must be a number from 1 to 100".to_owned())
}

fn count(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("it must be a number from 1 to {}", u16::MAX)),
        Ok(number) => Ok(number),
    }
}

/// A time span that is no shorter than this.
fn time_of_at_least(text: &str, least: Duration) -> Result<Duration, String> {
    let wrong = |_| "it must be a time span such as 500ms or 10min".to_owned();
    let span = humantime::parse_duration(text).map_err(wrong)?;
    if span < least {
        return Err(format!("it must be at least {}", humantime::format_duration(least)));
    }
    Ok(span)
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

fn layout(text: &str) -> Result<StageLayout, String> {
    match text {
        "fused" => Ok(StageLayout::Fused),
        "staged" => Ok(StageLayout::Staged),
        _ => Err("the layouts are fused and staged".to_owned()),
    }
}

fn replication(text: &str) -> Result<ReplicationFactor, String> {
    let number = text.parse().map_err(|_| "it must be 1, 3 or 5".to_owned())?;
    ReplicationFactor::new(number).map_err(|_| "it must be 1, 3 or 5".to_owned())
}

fn log_device(text: &str) -> Result<DeviceKind, String> {
    match text {
        "ssd" => Ok(DeviceKind::Ssd),
        "none" => Ok(DeviceKind::None),
        "pmem" => Err("this version has no persistent memory yet; use 'ssd' or 'none'".to_owned()),
        _ => Err("the log devices are ssd, none and pmem".to_owned()),
    }
}

fn device(text: &str) -> Result<FlashPlace, String> {
    match (text, text.strip_prefix("zoned:")) {
        ("file", _) => Ok(FlashPlace::Files),
        ("emulated", _) => Ok(FlashPlace::Emulated),
        (_, Some(devices)) => {
            let devices: Vec<PathBuf> = devices.split(',').map(PathBuf::from).collect();
            let twice = |(at, device): (usize, &PathBuf)| devices[..at].contains(device);
            match devices.iter().any(|device| device.as_os_str().is_empty())
                || devices.iter().enumerate().any(twice)
            {
                true => Err("name each device once: zoned:/dev/nvme0n2,/dev/nvme1n2".to_owned()),
                false => Ok(FlashPlace::Zoned(devices)),
            }
        }
        _ => Err("the flash devices are file, emulated and zoned:DEVICE[,DEVICE…]".to_owned()),
    }
}

/// Reads where the master is.
pub(crate) fn master(text: &str) -> Result<MasterPlace, String> {
    if text == "embedded" {
        return Ok(MasterPlace::Embedded);
    }
    if let Some(members) = text.strip_prefix("etcd://") {
        let members = members.trim_end_matches('/').split(',');
        return members.map(address).collect::<Result<_, _>>().map(MasterPlace::Etcd);
    }
    address(text.strip_prefix("timestone://").unwrap_or(text)).map(MasterPlace::Remote)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn merged(args: &ServeArgs) -> Result<Settings, Failure> {
        Settings::merge(args, |_| false)
    }

    fn with_file(text: &str) -> (tempfile::NamedTempFile, ServeArgs) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let args = ServeArgs { config: Some(file.path().to_owned()), ..ServeArgs::default() };
        (file, args)
    }

    #[test]
    fn flags_beat_the_file_and_the_file_beats_defaults() {
        let (_file, mut args) = with_file("cache = \"64MiB\"\nshards = 2\nlog = \"none\"\n");
        args.storage.log = Some("ssd".to_owned());
        let settings = merged(&args).unwrap();
        assert_eq!(settings.find("log").origin, Origin::Flag);
        assert!(matches!(settings.find("cache").origin, Origin::File(_)));
        assert_eq!(settings.find("data").origin, Origin::Default);
        let config = settings.server_config().unwrap();
        assert_eq!(
            (config.sizes.cache_bytes, config.shards, config.log),
            (64 << 20, Some(2), DeviceKind::Ssd)
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let (_file, args) = with_file("cahce = \"64MiB\"\n");
        let text = merged(&args).unwrap_err().to_string();
        assert!(
            text.contains("unknown key 'cahce'") && text.contains("did you mean 'cache'?"),
            "{text}"
        );
    }

    #[test]
    fn a_bad_value_names_the_setting_and_its_origin() {
        let (_file, args) = with_file("cache = \"plenty\"\n");
        let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
        assert!(text.contains("--cache is 'plenty' (file") && text.contains("512MiB"), "{text}");
        let mut args = ServeArgs::default();
        args.cluster.master = Some("etcd://127.0.0.1:2379,10.0.0.1".to_owned());
        let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
        assert!(text.contains("--master is 'etcd://"), "{text}");
        args.cluster.master = Some("etcd://127.0.0.1:2379,127.0.0.1:2479".to_owned());
        let members = ["127.0.0.1:2379", "127.0.0.1:2479"].map(|text| text.parse().unwrap());
        let config = merged(&args).unwrap().server_config().unwrap();
        assert_eq!(config.master, MasterPlace::Etcd(members.to_vec()));
        let mut args = ServeArgs::default();
        for odd in ["2", "7", "three"] {
            args.cluster.replication = Some(odd.to_owned());
            let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
            assert!(text.contains("--replication is") && text.contains("1, 3 or 5"), "{text}");
        }
        args.cluster.replication = Some("3".to_owned());
        let config = merged(&args).unwrap().server_config().unwrap();
        assert_eq!(config.replication.get(), 3);
        let times = [("20ms", "at least 50ms"), ("soon", "a time span")];
        for (odd, words) in times {
            args.cluster.detection = Some(odd.to_owned());
            let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
            assert!(text.contains("--detection is") && text.contains(words), "{text}");
        }
        for (detection, lease) in [("50ms", 100), ("500ms", 1000), ("20s", 1000)] {
            args.cluster.detection = Some(detection.to_owned());
            let config = merged(&args).unwrap().server_config().unwrap();
            assert_eq!(config.lease, Duration::from_millis(lease));
        }
        let leases = [
            ("50ms", "40ms", "at least 50ms"),
            ("50ms", "500ms", "may be 400ms at most"),
            ("10s", "1500ms", "may be 1s at most"),
        ];
        for (detection, lease, words) in leases {
            args.cluster.detection = Some(detection.to_owned());
            args.cluster.lease = Some(lease.to_owned());
            let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
            assert!(text.contains("--lease is") && text.contains(words), "{text}");
        }
        args.cluster.lease = None;
        args.cluster.detection = Some("2s".to_owned());
        args.cluster.replace_after = Some("1s".to_owned());
        let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
        assert!(text.contains("--replace-after is") && text.contains("at least 2s"), "{text}");
        args.cluster.replace_after = Some("10min".to_owned());
        let config = merged(&args).unwrap().server_config().unwrap();
        assert_eq!(config.controller.replace_after, Duration::from_secs(600));
        args.storage.log = Some("none".to_owned());
        let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
        assert!(text.contains("--replication is 3, and --log is none"), "{text}");
        let args = ServeArgs { layout: Some("spread".to_owned()), ..ServeArgs::default() };
        let text = merged(&args).unwrap().server_config().unwrap_err().to_string();
        assert!(text.contains("fused and staged"), "{text}");
    }

    #[test]
    fn flash_devices_are_read_and_mistakes_are_named() {
        let of = |text: &str| {
            let mut args = ServeArgs::default();
            args.storage.device = Some(text.to_owned());
            merged(&args).unwrap().server_config().map(|config| config.flash)
        };
        assert_eq!(of("file").unwrap(), FlashPlace::Files);
        assert_eq!(of("emulated").unwrap(), FlashPlace::Emulated);
        let devices = ["/dev/nvme0n2", "/dev/nvme1n2"].map(PathBuf::from).to_vec();
        assert_eq!(of("zoned:/dev/nvme0n2,/dev/nvme1n2").unwrap(), FlashPlace::Zoned(devices));
        for bad in ["zoned", "zoned:", "zoned:/dev/a,", "zoned:/dev/a,/dev/a", "ssd"] {
            let text = of(bad).unwrap_err().to_string();
            assert!(text.contains(&format!("--device is '{bad}'")), "{text}");
        }
        let mut args = ServeArgs::default();
        args.storage.device = Some("zoned:/dev/a,/dev/b".to_owned());
        args.data = Some("/nowhere/data".to_owned());
        let settings = merged(&args).unwrap().in_force().unwrap();
        let shown = |name: &str| settings.iter().find(|setting| setting.name == name).unwrap();
        assert_eq!(shown("shards").value, "2");
        let capacity = shown("capacity");
        assert_eq!(
            (capacity.value.as_str(), capacity.origin.to_string().as_str()),
            ("", "default: what the devices have")
        );
    }

    #[test]
    fn what_nobody_chose_is_shown_as_the_server_would_choose_it() {
        let folder = tempfile::tempdir().unwrap();
        let data = Some(folder.path().join("data").display().to_string());
        let settings = merged(&ServeArgs { data: data.clone(), ..ServeArgs::default() })
            .unwrap()
            .in_force()
            .unwrap();
        let of = |name: &str| settings.iter().find(|setting| setting.name == name).unwrap();
        assert_eq!((of("shards").value.as_str(), of("cluster-shards").value.as_str()), ("4", "4"));
        assert_eq!(of("advertise").value, "127.0.0.1:7400");
        assert!(of("threads").value.parse::<usize>().is_ok_and(|threads| threads > 0));
        assert!(size(&of("capacity").value).is_ok_and(|bytes| bytes > 0), "{:?}", of("capacity"));
        assert!(of("capacity").origin.to_string().starts_with("default: 80 %"));
        assert_eq!(of("cluster").value, "", "any");
        for (name, value, words) in [
            ("log", "pmem", "no persistent memory yet"),
            ("cache", "5", "that is 5 bytes, and 1MiB is the least"),
            ("capacity", "1MiB", "16MiB is the least"),
            ("capacity", "20MiB", "4 shards need 67108864"),
        ] {
            let mut args = ServeArgs { data: data.clone(), ..ServeArgs::default() };
            match name {
                "log" => args.storage.log = Some(value.to_owned()),
                "cache" => args.storage.cache = Some(value.to_owned()),
                _ => args.storage.capacity = Some(value.to_owned()),
            }
            let text = merged(&args).unwrap().in_force().unwrap_err().to_string();
            assert!(text.contains(words), "{name}={value}: {text}");
        }
    }

    #[test]
    fn an_unknown_variable_is_refused_with_the_nearest_known_one() {
        let refuse = |name: &str| refuse_unknown_variables([name.to_owned()].into_iter());
        let text = refuse("TIMESTONE_CAHCE").unwrap_err().to_string();
        assert!(
            text.contains("TIMESTONE_CAHCE") && text.contains("did you mean TIMESTONE_CACHE?"),
            "{text}"
        );
        for known in [
            "TIMESTONE_CACHE",
            "TIMESTONE_ADDRESS",
            "TIMESTONE_CONFIG",
            "TIMESTONE_SERVICE_HOST",
            "TIMESTONE_TEST_PYTHON",
            "PATH",
        ] {
            assert!(refuse(known).is_ok(), "{known}");
        }
    }

    #[test]
    fn every_setting_is_a_flag_with_its_variable() {
        let mut command = <crate::Arguments as clap::CommandFactory>::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        for (name, _) in DEFAULTS {
            let flag = serve.get_arguments().find(|arg| arg.get_long() == Some(name)).unwrap();
            assert_eq!(flag.get_env(), Some(variable(name).as_ref()), "--{name}");
            assert!(ServeArgs::default().given(name).is_none());
        }
    }

    #[test]
    fn a_setting_reads_back_from_its_line() {
        let settings =
            merged(&ServeArgs { data: Some("a \"b\" \\c".to_owned()), ..ServeArgs::default() })
                .unwrap();
        let text: String = settings.iter().map(|setting| setting.line() + "\n").collect();
        let (_file, args) = with_file(&text);
        let again = merged(&args).unwrap();
        for (one, other) in settings.iter().zip(again.iter()) {
            assert_eq!((one.name, &one.value), (other.name, &other.value));
        }
        assert!(again.server_config().is_ok());
    }
}
