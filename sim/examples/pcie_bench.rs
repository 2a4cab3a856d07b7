//! Published pcie-bench rows against the model: `cargo run -p doorbell-sim --release --example
//! pcie_bench`.

use doorbell_sim::pcie::bench::rows;
use doorbell_sim::pcie::{Generation, TlpFormat};

fn main() {
    println!("{:<17} {:<52} {:>10} {:>10} {:>8}", "row", "", "published", "simulated", "error");
    let mut rows = rows(20_000).expect("the tree of the file");
    let link = [
        ("C-PCIE-037", "gen3 x8 usable, 256-B payload", Generation::Gen3, 8, 56.41),
        ("C-PCIE-038", "gen4 x8", Generation::Gen4, 8, 112.81),
        ("C-PCIE-039", "gen4 x16", Generation::Gen4, 16, 225.62),
        ("C-PCIE-040", "gen5 x16", Generation::Gen5, 16, 451.24),
    ];
    for (id, what, generation, width, published) in link {
        let bps = generation.usable_rate(width, 256, 26, 16, 4).as_bps();
        let (what, unit) = (what.to_string(), "Gb/s");
        let simulated = bps as f64 / 1e9;
        rows.push(doorbell_sim::pcie::bench::Row { id, what, unit, published, simulated });
    }
    let kalia = TlpFormat::KALIA_GEN3;
    let mmio = 10 * kalia.mmio(128).wire;
    let fetch = kalia.mmio(8).wire + kalia.completions(0, 1280).wire;
    for (id, what, published, bytes) in [
        ("C-PCIE-041", "ten 65-B WQEs by MMIO", 1800.0, mmio),
        ("C-PCIE-042", "ten 65-B WQEs by doorbell and fetch", 1534.0, fetch),
    ] {
        let (what, unit) = (what.to_string(), "B");
        let simulated = f64::from(bytes);
        rows.push(doorbell_sim::pcie::bench::Row { id, what, unit, published, simulated });
    }
    for row in &rows {
        println!(
            "{:<17} {:<52} {:>10.2} {:>10.2} {:>+7.1}% {}",
            row.id,
            row.what,
            row.published,
            row.simulated,
            100.0 * row.error(),
            row.unit
        );
    }
    let mut errors: Vec<f64> = rows.iter().map(|r| r.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let worst = errors[errors.len() - 1];
    println!(
        "{} rows, median error {:.1} %, worst {:.1} %",
        errors.len(),
        100.0 * errors[errors.len() / 2],
        100.0 * worst
    );
}
