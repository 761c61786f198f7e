//! `timestone master forget`: after etcd was restored from a backup, goes on without a server that
//! is lost for ever.

use clap::{Args, Subcommand};
use serde_json::json;
use timestone::server::MasterPlace;
use timestone_cluster::{DirectoryId, ServerId};
use timestone_etcd::{EtcdOptions, forget_server};

use crate::failure::Failure;
use crate::output::{Format, write_json, write_line};
use crate::settings::master;

/// Flags of `timestone master`.
#[derive(Args, Debug)]
pub(crate) struct MasterArgs {
    #[command(subcommand)]
    command: MasterCommand,
}

#[derive(Subcommand, Debug)]
enum MasterCommand {
    /// Wait no longer for a server that is lost for ever, after etcd was restored from a backup.
    /// What only that server has seen may be handed out again.
    Forget {
        /// The server's number, as its cluster's logs and `timestone status` show it.
        server: u32,
        /// The cluster's etcd: etcd://HOST:PORT,HOST:PORT.
        #[arg(long, env = "TIMESTONE_MASTER", value_name = "URL")]
        master: String,
        /// Name of the cluster.
        #[arg(
            long,
            env = "TIMESTONE_CLUSTER",
            value_name = "NAME",
            default_value = timestone::server::UNNAMED_CLUSTER
        )]
        cluster: String,
    },
}

/// Leaves the server out.
pub(crate) fn run(args: &MasterArgs, format: Format) -> Result<(), Failure> {
    let MasterCommand::Forget { server, master: place, cluster } = &args.command;
    let members = match master(place) {
        Ok(MasterPlace::Etcd(members)) => members,
        Ok(_) => {
            return Err(Failure::usage(format!(
                "--master is '{place}': only a master on etcd can be restored from a backup; give \
                 etcd://HOST:PORT"
            )));
        }
        Err(error) => return Err(Failure::usage(format!("--master is '{place}': {error}"))),
    };
    let endpoints = members.iter().map(ToString::to_string).collect();
    let prefix = timestone::server::etcd_prefix(cluster);
    let options = EtcdOptions::new(endpoints, prefix, DirectoryId(0));
    let forgotten = forget_server(&options, ServerId::new(*server))
        .map_err(|failure| Failure::failed(failure.to_string()))?;
    let awaited: Vec<u32> = forgotten.awaited.iter().map(|server| server.get()).collect();
    if !forgotten.was_awaited {
        return Err(Failure::not_found(format!(
            "nobody waits for server {server} of cluster {cluster}; waited for: {awaited:?}"
        )));
    }
    if format == Format::Json {
        return write_json(&json!({ "forgotten": server, "awaited": awaited }));
    }
    write_line(&format!(
        "server {server} is not waited for any more; still waited for: {awaited:?}"
    ))
}
