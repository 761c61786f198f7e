//! What three copies cost beside one: processor time, and the latency of one client alone.

use super::cluster::Cluster;
use super::{Options, median, retwis};
use crate::table::Table;

/// Sessions of the comparison of processor time.
const CLIENTS: [u32; 2] = [256, 1024];
const ZIPF: f64 = 0.5;
/// Values of the transactions whose latency is taken.
const VALUE_BYTES: &str = "256";

/// Both tables. The clusters run at the same time, and are asked in turn.
pub(super) fn measure(options: &Options) -> Result<String, String> {
    let mut cpu =
        Table { header: vec!["binary, clients", "f = 0", "f = 1", "ratio"], rows: vec![] };
    let mut alone = Table {
        header: vec!["binary", "f = 0, p50", "f = 1, p50", "get alone, p50"],
        rows: vec![],
    };
    for (at, (name, binary)) in options.named().into_iter().enumerate() {
        let start = |copies: usize| {
            let folder = options.folder.join(format!("copies-{at}-{copies}"));
            let cluster = Cluster::start(binary, &folder, (copies, 1), &[])?;
            retwis::load(&cluster)?;
            Ok::<_, String>(cluster)
        };
        let (one, three) = (start(1)?, start(3)?);
        for clients in CLIENTS {
            let mut costs = [Vec::new(), Vec::new()];
            for _ in 0..options.rounds {
                for (cluster, costs) in [&one, &three].into_iter().zip(&mut costs) {
                    let run = retwis::once(cluster, (ZIPF, clients, options.seconds))?;
                    costs.push(run.cpu_us());
                }
            }
            let ratios = costs[0].iter().zip(&costs[1]).map(|(one, three)| three / one).collect();
            let [one, three] = costs.map(median);
            cpu.rows.push(vec![
                format!("{name}, {clients}"),
                format!("{one:.1} µs"),
                format!("{three:.1} µs"),
                format!("{:.2}", median(ratios)),
            ]);
        }
        let (mut writes, mut reads) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..options.rounds {
            for (cluster, writes) in [&one, &three].into_iter().zip(&mut writes) {
                writes.push(p50_alone(cluster, "get-put")?);
            }
            reads.push(p50_alone(&three, "ycsb-c")?);
        }
        let [one, three] = writes.map(median);
        alone.rows.push(vec![
            name,
            format!("{one:.0} µs"),
            format!("{three:.0} µs"),
            format!("{:.0} µs", median(reads)),
        ]);
    }
    Ok(format!(
        "Processor time of all processes for a transaction, zipf {ZIPF}:\n\n{}\nOne client alone, a \
         get and a put of {VALUE_BYTES} B; beside it a get, which is one round trip:\n\n{}",
        cpu.markdown(),
        alone.markdown()
    ))
}

fn p50_alone(cluster: &Cluster, workload: &str) -> Result<f64, String> {
    let run = cluster.measure(&[
        workload,
        "--keyspace",
        "alone",
        "--keys",
        "10000",
        "--value-bytes",
        VALUE_BYTES,
        "--clients",
        "1",
        "--warmup",
        "1s",
        "--duration",
        "3s",
    ]);
    run.map(|run| run.p50_us)
}
