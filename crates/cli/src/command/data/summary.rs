//! The summary of a data directory: what each shard's device holds, and the logs.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Value, json};
use timestone::server::inspect::{DirectoryView, FileImage, Survey};
use timestone::server::{CheckReport, accepted_losses, check_log};

use super::{Directory, missing, walk};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Format, or_unread, table, write_json, write_line};

/// Damages that the text names; JSON has more.
const NAMED: usize = 20;

/// What a shard came to.
struct Seen {
    name: String,
    file: String,
    /// Sums, and blocks that could not be read; or why nothing can be seen.
    sums: Result<(Survey, Vec<String>), String>,
    figures: Vec<(&'static str, String)>,
    described: Value,
}

impl Seen {
    fn is_damaged(&self) -> bool {
        match &self.sums {
            Err(_) => true,
            // A crash leaves pages that it tore behind the last sound one.
            Ok((survey, other)) => survey.damage_count > survey.torn_tails || !other.is_empty(),
        }
    }
}

/// A log, as `timestone log check` sees it.
struct CheckedLog {
    name: String,
    report: Result<CheckReport, String>,
}

pub(super) fn print(directory: &Directory, format: Format) -> Result<(), Failure> {
    let seen: Vec<Seen> = directory
        .shards
        .iter()
        .map(|shard| {
            let name = format!("shard {}", shard.name());
            let file = shard.path.display().to_string();
            match &shard.image {
                Ok(image) => survey(directory, image, name, file),
                Err(error) => Seen {
                    described: json!({ "shard": shard.id.get(), "file": file, "error": error }),
                    figures: Vec::new(),
                    sums: Err(error.clone()),
                    name,
                    file,
                },
            }
        })
        .collect();
    let logs: Vec<CheckedLog> =
        directory.view.logs.iter().map(|folder| log(directory, folder)).collect();
    or_unread(match format {
        Format::Json => write_json(&described(directory, &seen, &logs)),
        Format::Text => print_text(directory, &seen, &logs),
        Format::Table => print_table(directory, &seen, &logs),
    })?;
    let damaged = seen.iter().filter(|seen| seen.is_damaged()).count();
    let unsound = |log: &&CheckedLog| !log.report.as_ref().is_ok_and(CheckReport::is_sound);
    let logs = logs.iter().filter(unsound).count();
    let small = [directory.view.identity.is_err(), directory.view.manifest.is_err()];
    let small = small.into_iter().filter(|&bad| bad).count();
    let absent = &directory.view.missing;
    if damaged + logs + small + absent.len() == 0 {
        return Ok(());
    }
    let gone =
        if absent.is_empty() { String::new() } else { format!("; {}", missing::count(absent)) };
    Err(Failure::failed(format!(
        "damaged: {damaged} of {} shards, {logs} of {} logs, {small} of FORMAT and MANIFEST{gone}",
        seen.len(),
        directory.view.logs.len()
    )))
}

fn log(directory: &Directory, folder: &Path) -> CheckedLog {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let accepted = accepted_losses(&directory.path).remove(&name).unwrap_or_default();
    CheckedLog { report: check_log(folder, &accepted).map_err(|error| error.to_string()), name }
}

fn survey(directory: &Directory, image: &FileImage, name: String, file: String) -> Seen {
    let (mut survey, mut other) = (Survey::default(), image.damage().to_vec());
    for looked in walk(image) {
        survey.add(&looked.view);
        survey.add_identity(looked.identity);
        if let Some(error) = looked.unreadable {
            other.push(format!("block {} could not be read: {error}", looked.view.block));
        }
    }
    if survey.stores.len() > 1 {
        other.push(format!("its pages are those of {} stores", survey.stores.len()));
    }
    let figures = figures(directory, image, &survey);
    let described = describe(directory, image, &survey, &other, &file);
    Seen { name, file, sums: Ok((survey, other)), figures, described }
}

fn figures(
    directory: &Directory,
    image: &FileImage,
    survey: &Survey,
) -> Vec<(&'static str, String)> {
    let (geometry, keys) = (image.geometry(), survey.keys());
    let mut erases = survey.erases.clone();
    erases.sort_unstable();
    let sum: u64 = erases.iter().map(|&erases| u64::from(erases)).sum();
    let joined = |parts: Vec<String>| match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    };
    let counted = |(name, count): (&dyn Display, &u64)| format!("{count} {name}");
    let blocks = survey.blocks.iter().map(|(state, count)| counted((&state.name(), count)));
    let pages = survey.pages.iter().map(|(name, count)| counted((name, count)));
    let spaces = survey.keyspaces.iter().map(|(&id, count)| {
        let fence = survey.fences.get(&id);
        let fence = fence.map_or_else(String::new, |fence| format!(", fence at {fence}"));
        format!("{} ({count} records{fence})", directory.keyspace_name(id))
    });
    let checkpoints = survey.checkpoints.iter().map(|(number, pages)| {
        let whole = if pages.is_whole() { "whole" } else { "not whole" };
        format!("{number} ({} pages, {whole})", pages.pages())
    });
    let median = erases.get(erases.len() / 2).copied().unwrap_or_default();
    let (least, most) = (erases.first(), erases.last());
    vec![
        ("file bytes", image.bytes().to_string()),
        ("device", image.layout().device_id.to_string()),
        ("blocks", format!("{} of {} pages", geometry.blocks, geometry.pages_per_block)),
        ("room for blocks", geometry.max_blocks.to_string()),
        ("blocks by state", joined(blocks.collect())),
        ("pages", joined(pages.collect())),
        (
            "erases of a block",
            format!(
                "{} to {}, median {median}, {sum} in all",
                least.copied().unwrap_or_default(),
                most.copied().unwrap_or_default()
            ),
        ),
        ("records", survey.records.to_string()),
        ("tombstones", survey.tombstones.to_string()),
        ("with expiry", survey.expiring.to_string()),
        ("keys", format!("{}, {} of them present", keys.keys, keys.present)),
        ("versions per key", ratio(survey.records, keys.keys)),
        ("live bytes", keys.live_bytes.to_string()),
        ("dead bytes", keys.dead_bytes.to_string()),
        (
            "versions",
            survey.versions.map_or("none".to_owned(), |(oldest, youngest)| {
                format!("{} to {}", moment::shown(oldest), moment::shown(youngest))
            }),
        ),
        ("keyspaces", joined(spaces.collect())),
        ("checkpoints", joined(checkpoints.collect())),
        ("damaged", (survey.damage_count - survey.torn_tails).to_string()),
        ("torn by a crash", survey.torn_tails.to_string()),
    ]
}

fn ratio(of: u64, to: u64) -> String {
    if to == 0 { "–".to_owned() } else { format!("{:.2}", of as f64 / to as f64) }
}

fn describe(
    directory: &Directory,
    image: &FileImage,
    survey: &Survey,
    other: &[String],
    file: &str,
) -> Value {
    let (geometry, keys) = (image.geometry(), survey.keys());
    let blocks =
        survey.blocks.iter().map(|(state, &count)| (state.name().to_owned(), count.into()));
    let checkpoints = survey.checkpoints.iter().map(|(number, pages)| {
        json!({ "number": number, "pages": pages.pages(), "whole": pages.is_whole() })
    });
    let keyspaces = survey.keyspaces.iter().map(|(&id, records)| {
        json!({
            "id": id.get(),
            "name": directory.view.keyspaces.get(&id),
            "records": records,
            "fence": survey.fences.get(&id).map(ToString::to_string),
        })
    });
    let damage = survey.damage.iter().map(|damage| {
        json!({ "block": damage.block.0, "page": damage.page, "slot": damage.slot, "detail": damage.detail })
    });
    json!({
        "file": file,
        "file_bytes": image.bytes(),
        "device": image.layout().device_id.to_string(),
        "pages_per_block": geometry.pages_per_block,
        "blocks": geometry.blocks,
        "most_blocks": geometry.max_blocks,
        "blocks_by_state": blocks.collect::<serde_json::Map<_, _>>(),
        "pages": survey.pages,
        "erases_least": survey.erases.iter().min(),
        "erases_most": survey.erases.iter().max(),
        "erases": survey.erases.iter().map(|&erases| u64::from(erases)).sum::<u64>(),
        "records": survey.records,
        "tombstones": survey.tombstones,
        "expiring": survey.expiring,
        "keys": keys.keys,
        "present_keys": keys.present,
        "live_bytes": keys.live_bytes,
        "dead_bytes": keys.dead_bytes,
        "oldest_ns": survey.versions.map(|(oldest, _)| oldest.to_string()),
        "youngest_ns": survey.versions.map(|(_, youngest)| youngest.to_string()),
        "keyspaces": keyspaces.collect::<Vec<_>>(),
        "checkpoints": checkpoints.collect::<Vec<_>>(),
        "damage": damage.collect::<Vec<_>>(),
        "damage_count": survey.damage_count - survey.torn_tails,
        "torn_tails": survey.torn_tails,
        "other_damage": other,
    })
}

fn described(directory: &Directory, seen: &[Seen], logs: &[CheckedLog]) -> Value {
    let shards = directory.shards.iter().zip(seen).map(|(shard, seen)| {
        let mut described = seen.described.clone();
        described["shard"] = shard.id.get().into();
        described["flash"] = shard.part.file_name().into();
        described
    });
    let logs = logs.iter().map(|log| match &log.report {
        Ok(report) => json!({
            "log": log.name,
            "files": report.files.len(),
            "used_bytes": report.files.iter().map(|file| file.bytes).sum::<u64>(),
            "records": report.files.iter().map(|file| file.records).sum::<u64>(),
            "sound": report.is_sound(),
        }),
        Err(error) => json!({ "log": log.name, "error": error }),
    });
    let view = &directory.view;
    let (identity, manifest) = (view.identity.as_ref(), view.manifest.as_ref());
    json!({
        "directory": directory.path.display().to_string(),
        "format": identity.ok().map(|identity| identity.format),
        "format_error": identity.err(),
        "shards_of_directory": identity.ok().map(|identity| identity.shards),
        "manifest_shards":
            manifest.ok().map(|manifest| manifest.shards.iter().map(|shard| shard.get()).collect::<Vec<_>>()),
        "manifest_error": manifest.err(),
        "missing": missing::paths(&view.missing),
        "run": manifest.ok().map(|manifest| manifest.run),
        "unlogged": manifest.ok().map(|manifest| manifest.unlogged),
        "cluster": view.cluster.map(|cluster| format!("{:016x}", cluster.get())),
        "cluster_name": view.cluster_name,
        "shards": shards.collect::<Vec<_>>(),
        "logs": logs.collect::<Vec<_>>(),
    })
}

/// What the small files say, a line each.
fn head(path: &Path, view: &DirectoryView) -> Vec<String> {
    let mut lines = vec![path.display().to_string()];
    lines.push(match &view.identity {
        Ok(identity) => format!(
            "format {}, {} shards, directory {:016x}",
            identity.format, identity.shards, identity.directory
        ),
        Err(error) => format!("DAMAGED: FORMAT: {error}"),
    });
    lines.push(match &view.manifest {
        Ok(manifest) => {
            let files: usize = manifest.log_files.values().map(Vec::len).sum();
            let unlogged = if manifest.unlogged { ", without a log" } else { "" };
            format!(
                "manifest: {} flash files, {files} log files, run {}{unlogged}",
                manifest.shards.len() + manifest.frugal.len(),
                manifest.run
            )
        }
        Err(error) => format!("DAMAGED: MANIFEST: {error}"),
    });
    lines.extend(view.missing.iter().map(missing::line));
    if let Some(cluster) = view.cluster {
        let name = view.cluster_name.as_deref().unwrap_or("without a name");
        lines.push(format!("cluster {:016x}, {name}", cluster.get()));
    }
    lines
}

/// What is wrong with a shard, a line each.
fn damages(seen: &Seen) -> Vec<String> {
    let (survey, other) = match &seen.sums {
        Err(error) => return vec![format!("DAMAGED: {}: {error}", seen.name)],
        Ok(sums) => sums,
    };
    let named = survey.damage.iter().take(NAMED).map(|damage| {
        let slot = damage.slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
        let (block, page) = (damage.block, damage.page);
        format!("DAMAGED: {}, block {block}, page {page}{slot}: {}", seen.name, damage.detail)
    });
    let whole = other.iter().map(|damage| format!("DAMAGED: {}: {damage}", seen.name));
    let more = survey.damage_count.saturating_sub(NAMED as u64);
    let more = (more > 0).then(|| format!("and {more} more in {}", seen.name));
    whole.chain(named).chain(more).collect()
}

fn log_line(log: &CheckedLog) -> String {
    match &log.report {
        Ok(report) => format!(
            "log {}: {} files, {} records in {} bytes, {}",
            log.name,
            report.files.len(),
            report.files.iter().map(|file| file.records).sum::<u64>(),
            report.files.iter().map(|file| file.bytes).sum::<u64>(),
            if report.is_sound() { "sound" } else { "DAMAGED: see 'timestone log check'" }
        ),
        Err(error) => format!("log {}: could not be checked: {error}", log.name),
    }
}

fn print_text(directory: &Directory, seen: &[Seen], logs: &[CheckedLog]) -> Result<(), Failure> {
    for line in head(&directory.path, &directory.view) {
        write_line(&line)?;
    }
    for seen in seen {
        write_line(&format!("{}: {}", seen.name, seen.file))?;
        for (name, value) in &seen.figures {
            write_line(&format!("  {name:<18} {value}"))?;
        }
    }
    print_rest(seen, logs)
}

fn print_table(directory: &Directory, seen: &[Seen], logs: &[CheckedLog]) -> Result<(), Failure> {
    for line in head(&directory.path, &directory.view) {
        write_line(&line)?;
    }
    let shown: Vec<&Seen> = seen.iter().filter(|seen| !seen.figures.is_empty()).collect();
    let names = core::iter::once("").chain(shown.iter().map(|seen| seen.name.as_str()));
    let mut rows = table(&names.collect::<Vec<_>>());
    for (number, (name, _)) in
        shown.first().map_or(&[][..], |seen| &seen.figures).iter().enumerate()
    {
        let values = shown.iter().map(|seen| seen.figures[number].1.clone());
        rows.add_row(core::iter::once((*name).to_owned()).chain(values));
    }
    if !shown.is_empty() {
        write_line(&rows.to_string())?;
    }
    print_rest(seen, logs)
}

fn print_rest(seen: &[Seen], logs: &[CheckedLog]) -> Result<(), Failure> {
    let lines = logs.iter().map(log_line).chain(seen.iter().flat_map(damages));
    lines.into_iter().try_for_each(|line| write_line(&line))
}
