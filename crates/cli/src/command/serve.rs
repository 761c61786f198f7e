//! `timestone serve`: runs a server until it is told to end.

use clap::ArgMatches;
use serde_json::json;
use timestone::server::{DeviceKind, Server, ServerError};

use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, write_json, write_line};
use crate::settings::{ServeArgs, Settings, came_from_environment};
use crate::signals::Stop;

/// Starts the server, prints its addresses on one line when it is ready, and waits for a signal;
/// then drains and stops.
pub(crate) fn run(
    args: &ServeArgs,
    matches: Option<&ArgMatches>,
    format: Format,
) -> Result<(), Failure> {
    let settings = Settings::merge(args, |name| came_from_environment(matches, name))?;
    logging::start(&settings.log_filter(), settings.log_format()?)?;
    let mut config = settings.server_config()?;
    config.accept_loss = args.accepted_loss()?;
    if config.log == DeviceKind::None {
        tracing::warn!(
            "log = none: commits are acknowledged before they are durable, and a crash loses the \
             last of them; use log = ssd for data \
             that matters"
        );
    }
    raise_descriptor_limit();
    let stop = Stop::register()?;
    let server = Server::start(&config).map_err(|error| match error {
        ServerError::CapacityTooSmall { .. } => Failure::usage(error.to_string()),
        error => Failure::failed(error.to_string()),
    })?;
    let ready = announce(&server, format);
    if let Err(failure) = ready.as_ref()
        && !failure.is_silent()
    {
        tracing::warn!(%failure, "The addresses could not be printed.");
    }
    tracing::info!(addresses = %server.addresses(), data = %config.data.display(), "The server is ready.");
    stop.wait();
    tracing::info!(
        "Stopping: what was begun is finished, then everything is made durable. A second signal \
         ends at once."
    );
    server.shutdown().map_err(|error| Failure::failed(error.to_string()))?;
    tracing::info!("The server has stopped.");
    Ok(())
}

/// Every connection takes a descriptor, and shells give few: the server takes as many as it may
/// have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    if let Err(error) =
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::debug!(%error, ?limit, "The limit on open files stays as it is.");
    }
}

/// One line with all addresses, for people and for scripts that wait for it.
fn announce(server: &Server, format: Format) -> Result<(), Failure> {
    let addresses = server.addresses();
    match format {
        Format::Json => {
            let url = |scheme: &str, address: Option<std::net::SocketAddr>| {
                address.map(|address| format!("{scheme}://{address}"))
            };
            write_json(&json!({
                "ready": true,
                "native": url("timestone", addresses.native),
                "resp": url("redis", addresses.resp),
                "http": url("http", addresses.http),
            }))
        }
        Format::Text | Format::Table => write_line(&format!("timestone ready: {addresses}")),
    }
}
