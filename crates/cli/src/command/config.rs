//! `timestone config show`: the server's settings as they would be in force.

use clap::{ArgMatches, Args, Subcommand};
use serde_json::json;

use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, table, write_json, write_line};
use crate::settings::{ServeArgs, Setting, Settings, came_from_environment};

/// Flags of `timestone config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Show every setting of `timestone serve` as it would be with these flags, this environment
    /// and this file.
    Show(Box<ShowArgs>),
}

#[derive(Args, Debug)]
struct ShowArgs {
    /// Show where each value comes from.
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    settings: ServeArgs,
}

/// The setting's line of a configuration file; a comment where it is not set.
fn shown(setting: &Setting) -> String {
    if setting.value.is_empty() { format!("# {} is not set", setting.name) } else { setting.line() }
}

/// Prints the settings: as text, a file that `serve --config` takes.
pub(crate) fn run(
    args: &ConfigArgs,
    matches: Option<&ArgMatches>,
    format: Format,
) -> Result<(), Failure> {
    let ConfigCommand::Show(show) = &args.command;
    let matches = matches.and_then(|matches| matches.subcommand_matches("show"));
    let settings = Settings::merge(&show.settings, |name| came_from_environment(matches, name))?;
    // What `serve` refuses is refused here as well.
    logging::filter(&settings.log_filter())?;
    settings.log_format()?;
    show.settings.accepted_loss()?;
    let settings = settings.in_force()?;
    match format {
        Format::Text => {
            let width = settings.iter().map(|setting| shown(setting).len()).max().unwrap_or(0);
            for setting in settings.iter() {
                let line = shown(setting);
                match show.origin {
                    true => write_line(&format!("{line:width$}  # {}", setting.origin))?,
                    false => write_line(&line)?,
                }
            }
            Ok(())
        }
        Format::Json => {
            let one = |setting: &Setting| {
                let value =
                    if setting.value.is_empty() { json!(null) } else { json!(setting.value) };
                let value = match show.origin {
                    true => json!({ "value": value, "origin": setting.origin.to_string() }),
                    false => value,
                };
                (setting.name.to_owned(), value)
            };
            write_json(&settings.iter().map(one).collect::<serde_json::Map<_, _>>())
        }
        Format::Table => {
            let mut table = table(if show.origin {
                &["setting", "value", "origin"]
            } else {
                &["setting", "value"]
            });
            for setting in settings.iter() {
                let mut row = vec![setting.name.to_owned(), setting.value.clone()];
                if show.origin {
                    row.push(setting.origin.to_string());
                }
                table.add_row(row);
            }
            write_line(&table.to_string())
        }
    }
}
