//! How often the data was moved, and what cores spent their time on.
//!
//! All of it is counted where it happens: copies and reductions by the host, DMA by the PCIe tree,
//! payload that reached its memory by the NICs, calls of the kernel by the programs that model one.

use doorbell_core::transport::Initiator;
use doorbell_core::units::Span;
use doorbell_sim::host::InitiatorStats;
use doorbell_sim::pcie::Cause;
use doorbell_sim::world::World;

use super::programs::Placed;
use super::{Metric, Outcome};
use crate::workloads::{KernelUse, Results};

/// Sums over all initiators, or all cores.
fn sum<T: std::iter::Sum>(
    world: &World,
    which: impl Fn(&Initiator) -> bool,
    of: impl Fn(&InitiatorStats) -> T,
) -> T {
    let all = world.hosts().iter().flat_map(|h| h.initiators());
    all.filter(|(who, ..)| which(who)).map(|(.., stats)| of(stats)).sum()
}

/// Adds how often each byte was moved.
pub(super) fn moves(world: &World, all: &[(&Placed, &Results)], out: &mut Outcome) {
    let any = |_: &Initiator| true;
    let copied = sum(world, any, |s| s.copied_bytes);
    let engine = sum(world, any, |s| s.engine_bytes);
    // Sparse vectors are added as variables of their programs, of which no host knows.
    let sparse = all.iter().filter_map(|(_, r)| r.sums.as_ref()?.kept);
    let sparse: u64 = sparse.map(|kept| kept.sent.added_bytes).sum();
    let reduced = sum(world, any, |s| s.reduced_bytes) + sparse;
    let nics = || world.hosts().iter().flat_map(|h| h.nics());
    let delivered: u64 = nics().map(|n| n.stats.rx_payload).sum();
    let dma = |cause| -> u64 { world.hosts().iter().map(|h| h.pcie().moved(cause)).sum() };
    let (read, written) = (dma(Cause::PayloadRead), dma(Cause::PayloadWrite));
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    put("bytes_delivered", Metric::bytes(delivered));
    put("bytes_copied", Metric::bytes(copied + engine));
    put("bytes_copied_by_engines", Metric::bytes(engine));
    put("bytes_reduced", Metric::bytes(reduced));
    put("gpu_kernels", Metric::count(sum(world, any, |s| s.kernels)));
    put("bytes_by_dma", Metric::bytes(read + written));
    put("copies", Metric::count(sum(world, any, |s| s.copies)));
    put("copies_per_byte", Metric::ratio(copied + engine, delivered));
    put("moves_per_byte", Metric::ratio(copied + engine + read + written, delivered));
}

/// Adds the time of cores by cause, of useful work: polling in vain is in none of them. With that,
/// `hostH.core_time` is what the programs keep cores from doing anything else; `resource.…busy` is
/// of the work alone.
pub(super) fn cpu_time(world: &World, all: &[(&Placed, &Results)], out: &mut Outcome) {
    let core = |who: &Initiator| matches!(who, Initiator::Cpu { .. });
    let of = |f: fn(&InitiatorStats) -> Span| -> Span {
        Span::from_ps(sum(world, core, |s| f(s).as_ps()))
    };
    let mut kernel = KernelUse::default();
    for k in all.iter().filter_map(|(_, r)| r.kernel) {
        kernel.syscalls += k.syscalls;
        kernel.switches += k.switches;
        kernel.segments += k.segments;
        kernel.packets += k.packets;
        kernel.time += k.time;
    }
    let causes = [
        ("post", of(|s| s.post)),
        ("poll", of(|s| s.poll)),
        ("interrupts", of(|s| s.interrupt_work)),
        ("copy", of(|s| s.copy)),
        ("register", of(|s| s.register)),
        ("kernel", kernel.time),
    ];
    let known = causes.iter().fold(Span::ZERO, |sum, (_, t)| sum + *t);
    let work = of(|s| s.work);
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    for (cause, time) in causes {
        put(&format!("cpu_time.{cause}"), Metric::time(time));
    }
    put("cpu_time.other", Metric::time(Span::from_ps(work.as_ps().saturating_sub(known.as_ps()))));
    put("cpu_time", Metric::time(work));
    put("cpu_spin", Metric::time(of(|s| s.spin)));
    for (h, host) in world.hosts().iter().enumerate() {
        let its = host.initiators().filter(|(who, ..)| core(who));
        let kept = its.fold(Span::ZERO, |sum, (.., s)| sum + s.work + s.spin);
        if kept > Span::ZERO {
            put(&format!("host{h}.core_time"), Metric::time(kept));
        }
    }
    put("tcp_syscalls", Metric::count(kernel.syscalls));
    put("tcp_context_switches", Metric::count(kernel.switches));
    let faults = || world.hosts().iter().map(|h| h.page_faults());
    put("page_faults", Metric::count(faults().map(|f| f.faults).sum()));
    put("page_fault_pages", Metric::count(faults().map(|f| f.pages).sum()));
    put("registrations", Metric::count(sum(world, core, |s| s.registrations)));
}
