//! Memory bandwidth, shared by DMA, cores and reductions.
//!
//! Two classes of users meet at a memory. *Accesses* are DMA transfers of at most 4 KiB; they
//! come by the million and must not cost an event each. *Bulk jobs* are copies and reductions
//! of a core or a GPU block, up to gigabytes, a few at a time. The rule is fair sharing in the
//! limit of small chunks: the accesses together count as one user, each bulk job as one, and
//! what a user cannot take (a core copies no faster than its own limit) goes to the others.
//! Accesses are served in FIFO order at the rate of their share; a bulk job's progress is
//! computed when something changes and pending completions are corrected lazily. So a huge job
//! blocks nobody, and costs two or three events however long it is.

use doorbell_core::units::{BitRate, PS_PER_S, Span, Time};

use crate::engine::{Class, Out};

/// A memory: a socket's DRAM or a device's memory, by the place in the PCIe tree.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryPlace(pub u16);

/// The timer of a memory's bulk jobs; handed back to [`MemorySystem::on_event`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MemoryEvent {
    place: MemoryPlace,
    /// Tells a timer that was overtaken by a change from the current one.
    generation: u32,
}

/// The end of a bulk job.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BulkDone {
    /// The caller's tag.
    pub tag: u64,
    /// Bytes that crossed the memory.
    pub bytes: u64,
    /// When the job began.
    pub started: Time,
}

/// What a memory has served so far.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// Bytes of DMA accesses.
    pub access_bytes: u64,
    /// DMA accesses.
    pub accesses: u64,
    /// Accesses that found others before them.
    pub access_waits: u64,
    /// Time that accesses waited, together.
    pub access_waited: Span,
    /// Bytes of finished and running bulk jobs, as started.
    pub bulk_bytes: u64,
    /// Bulk jobs started.
    pub bulk_jobs: u64,
}

/// Work is counted in bits · 10⁻¹², so that rate (bit/s) times time (ps) is a whole number.
type Work = i128;

const fn work(bytes: u64) -> Work {
    bytes as Work * 8 * PS_PER_S as Work
}

#[derive(Clone, Debug)]
struct Job {
    tag: u64,
    bytes: u64,
    started: Time,
    /// What its user can take at most, bit/s.
    limit: u64,
    /// Present share while no access is served, bit/s.
    share: u64,
    /// Left to do. Rises when accesses took more than the time since gave back.
    left: Work,
}

#[derive(Clone, Debug)]
struct Memory {
    rate: u64,
    /// End of the last access.
    free_at: Time,
    /// Rate of accesses while they are served: all of it without bulk jobs.
    access_rate: BitRate,
    jobs: Vec<Job>,
    /// Up to when the progress of `jobs` is computed.
    settled: Time,
    /// Work of accesses since then.
    taken: Work,
    generation: u32,
    used: MemoryUse,
}

impl Memory {
    fn new(rate: BitRate) -> Self {
        Self {
            rate: rate.as_bps(),
            free_at: Time::ZERO,
            access_rate: rate,
            jobs: Vec::new(),
            settled: Time::ZERO,
            taken: 0,
            generation: 0,
            used: MemoryUse::default(),
        }
    }

    fn access(&mut self, now: Time, bytes: u32) -> Span {
        let start = now.max(self.free_at);
        self.free_at = start + self.access_rate.time_for(u64::from(bytes));
        if !self.jobs.is_empty() {
            self.taken += work(u64::from(bytes));
        }
        let wait = start.since(now);
        self.used.accesses += 1;
        self.used.access_bytes += u64::from(bytes);
        self.used.access_waits += u64::from(wait > Span::ZERO);
        self.used.access_waited += wait;
        wait
    }

    /// Brings the progress of the jobs up to `now`.
    fn settle(&mut self, now: Time) {
        let elapsed = Work::from(now.since(self.settled).as_ps());
        self.settled = now;
        let granted: u64 = self.jobs.iter().map(|j| j.share).sum();
        if granted == 0 {
            self.taken = 0;
            return;
        }
        // Accesses first use what the jobs cannot take.
        let spare = Work::from(self.rate - granted) * elapsed;
        let from_jobs = (self.taken - spare).max(0);
        self.taken = 0;
        for job in &mut self.jobs {
            let lost = from_jobs * Work::from(job.share) / Work::from(granted);
            job.left += lost - Work::from(job.share) * elapsed;
        }
    }

    /// Shares the rate anew among the jobs, and sets the rate that accesses get beside them.
    fn share(&mut self) {
        let with_accesses = fill(self.rate, &mut self.jobs, true);
        self.access_rate = BitRate::new(with_accesses.max(1)).expect("not zero");
        fill(self.rate, &mut self.jobs, false);
    }

    /// Schedules the first completion to come. Later accesses only delay it.
    fn arm(&mut self, place: MemoryPlace, out: &mut Out<MemoryEvent>) {
        self.generation = self.generation.wrapping_add(1);
        let first = self.jobs.iter().map(|j| {
            let share = Work::from(j.share.max(1));
            (j.left.max(0) + share - 1) / share
        });
        if let Some(ps) = first.min() {
            let at = self.settled + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX));
            out.at(at, Class::Stage, MemoryEvent { place, generation: self.generation });
        }
    }
}

/// Water filling: everyone gets the same level, except who is limited below it. `extra` adds
/// one unlimited user, whose share is returned; else what is left is returned.
fn fill(rate: u64, jobs: &mut [Job], extra: bool) -> u64 {
    // Few jobs: selecting the lowest limit again and again beats keeping an order.
    let mut left = rate;
    let mut users = jobs.len() as u64 + u64::from(extra);
    for job in jobs.iter_mut() {
        job.share = 0;
    }
    loop {
        let level = left.checked_div(users).unwrap_or(0);
        let mut found = false;
        for job in jobs.iter_mut() {
            if job.share == 0 && job.limit <= level {
                job.share = job.limit;
                left -= job.limit;
                users -= 1;
                found = true;
            }
        }
        if !found {
            for job in jobs.iter_mut().filter(|j| j.share == 0) {
                job.share = level;
                left -= level;
            }
            return left;
        }
    }
}

/// All memories of a host.
#[derive(Clone, Debug)]
pub struct MemorySystem {
    memories: Vec<Memory>,
}

impl MemorySystem {
    /// One memory per rate; place `i` has `rates[i]`.
    pub fn new(rates: impl IntoIterator<Item = BitRate>) -> Self {
        Self { memories: rates.into_iter().map(Memory::new).collect() }
    }

    fn memory(&mut self, place: MemoryPlace) -> &mut Memory {
        &mut self.memories[usize::from(place.0)]
    }

    /// An access of at most a few KiB that arrives at the memory now. Returns how long it waits
    /// for those before it; its own transfer overlaps the memory's latency and is not in it.
    pub fn access(&mut self, now: Time, place: MemoryPlace, bytes: u32) -> Span {
        self.memory(place).access(now, bytes)
    }

    /// Counts an access that takes no time.
    pub(crate) fn count_access(&mut self, place: MemoryPlace, bytes: u32) {
        let used = &mut self.memory(place).used;
        used.accesses += 1;
        used.access_bytes += u64::from(bytes);
    }

    /// Starts a job that moves `bytes` through the memory at no more than `limit`, the rate of
    /// the core or engine that does it. A copy within one memory counts both the read and the
    /// write.
    pub fn start(
        &mut self,
        now: Time,
        place: MemoryPlace,
        tag: u64,
        bytes: u64,
        limit: BitRate,
        out: &mut Out<MemoryEvent>,
    ) {
        let memory = self.memory(place);
        memory.settle(now);
        let limit = limit.as_bps();
        let left = work(bytes);
        memory.jobs.push(Job { tag, bytes, started: now, limit, share: 0, left });
        memory.used.bulk_bytes += bytes;
        memory.used.bulk_jobs += 1;
        memory.share();
        memory.arm(place, out);
    }

    /// Handles a timer; returns a job that has ended. Of jobs that end together each has its
    /// own event, in the order of their start.
    pub fn on_event(
        &mut self,
        now: Time,
        ev: MemoryEvent,
        out: &mut Out<MemoryEvent>,
    ) -> Option<BulkDone> {
        let memory = self.memory(ev.place);
        if ev.generation != memory.generation {
            return None;
        }
        memory.settle(now);
        let ended = memory.jobs.iter().position(|j| j.left <= 0).map(|i| memory.jobs.remove(i));
        if ended.is_some() {
            memory.share();
        }
        memory.arm(ev.place, out);
        ended.map(|j| BulkDone { tag: j.tag, bytes: j.bytes, started: j.started })
    }

    /// Bulk jobs running.
    pub fn jobs(&self, place: MemoryPlace) -> usize {
        self.memories[usize::from(place.0)].jobs.len()
    }

    /// What the memory has served.
    pub fn used(&self, place: MemoryPlace) -> MemoryUse {
        self.memories[usize::from(place.0)].used
    }

    /// The memory's rate.
    pub fn rate(&self, place: MemoryPlace) -> BitRate {
        BitRate::new(self.memories[usize::from(place.0)].rate).expect("built from a rate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: MemoryPlace = MemoryPlace(0);
    /// 8 Gb/s: one byte per nanosecond.
    fn one_byte_per_ns() -> MemorySystem {
        MemorySystem::new([BitRate::gbps(8)])
    }

    /// Runs the timers until none is left; returns (tag, time) of each end, and the events.
    fn run(m: &mut MemorySystem, out: &mut Out<MemoryEvent>) -> (Vec<(u64, u64)>, usize) {
        let mut pending: Vec<_> = out.drain().map(|(t, _, e)| (t, e)).collect();
        let (mut ended, mut events) = (Vec::new(), 0);
        while let Some(i) = (0..pending.len()).min_by_key(|&i| pending[i].0) {
            let (now, ev) = pending.remove(i);
            events += 1;
            assert!(events < 1000);
            if let Some(done) = m.on_event(now, ev, out) {
                ended.push((done.tag, now.as_ps()));
            }
            pending.extend(out.drain().map(|(t, _, e)| (t, e)));
        }
        (ended, events)
    }

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1000)
    }

    #[test]
    fn accesses_are_fifo_and_start_at_once_when_idle() {
        let mut m = one_byte_per_ns();
        assert_eq!(m.access(ns(5), HERE, 64), Span::ZERO);
        assert_eq!(m.access(ns(5), HERE, 64), Span::from_ns(64));
        assert_eq!(m.access(ns(132), HERE, 64), Span::from_ns(1));
        assert_eq!(m.access(ns(197), HERE, 64), Span::ZERO);
        assert_eq!(m.used(HERE).access_waits, 2);
        assert_eq!(m.used(HERE).access_bytes, 256);
    }

    #[test]
    fn one_job_takes_its_size_over_the_lower_of_both_rates() {
        for (limit, end) in [(8, 1000), (80, 1000), (4, 2000)] {
            let (mut m, mut out) = (one_byte_per_ns(), Out::new());
            m.start(ns(0), HERE, 7, 1000, BitRate::gbps(limit), &mut out);
            let (ended, events) = run(&mut m, &mut out);
            assert_eq!(ended, [(7, end * 1000)]);
            assert_eq!(events, 1);
        }
    }

    #[test]
    fn equal_jobs_share_and_the_rest_of_a_limited_job_goes_to_the_others() {
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        m.start(ns(0), HERE, 1, 1000, BitRate::gbps(8), &mut out);
        m.start(ns(0), HERE, 2, 2000, BitRate::gbps(8), &mut out);
        // Half each until 2000 ns, then job 2 alone.
        assert_eq!(run(&mut m, &mut out).0, [(1, 2_000_000), (2, 3_000_000)]);
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        m.start(ns(0), HERE, 1, 1000, BitRate::gbps(2), &mut out);
        m.start(ns(0), HERE, 2, 1500, BitRate::gbps(8), &mut out);
        // A quarter and three quarters: job 2 after 2000 ns, job 1 after 4000 ns.
        assert_eq!(run(&mut m, &mut out).0, [(2, 2_000_000), (1, 4_000_000)]);
    }

    #[test]
    fn jobs_that_end_together_end_in_the_order_of_their_start() {
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        for tag in [3, 1, 2, 0] {
            m.start(ns(0), HERE, tag, 100, BitRate::gbps(8), &mut out);
        }
        let together = [3, 1, 2, 0].map(|tag| (tag, 400_000));
        assert_eq!(run(&mut m, &mut out).0, together);
    }

    #[test]
    fn a_huge_job_does_not_block_accesses_and_gives_back_what_they_take() {
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        m.start(ns(0), HERE, 1, 1_000_000, BitRate::gbps(8), &mut out);
        // Backlogged accesses get half; the job loses exactly their bytes.
        let waits: Vec<_> = (0..10).map(|_| m.access(ns(1), HERE, 64).as_ps()).collect();
        assert_eq!(waits, (0..10).map(|i| i * 128_000).collect::<Vec<_>>());
        let (ended, events) = run(&mut m, &mut out);
        assert_eq!(ended, [(1, 1_000_640_000)]);
        assert_eq!(events, 2, "one correction, not one event per access");
    }

    #[test]
    fn accesses_beside_a_limited_job_use_the_spare_rate_first() {
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        m.start(ns(0), HERE, 1, 1000, BitRate::gbps(2), &mut out);
        assert_eq!(m.access(ns(0), HERE, 300), Span::ZERO);
        // Three quarters of the memory are theirs: 400 ns for 300 bytes.
        assert_eq!(m.access(ns(0), HERE, 64), Span::from_ns(400));
        assert_eq!(run(&mut m, &mut out).0, [(1, 4_000_000)]);
    }

    #[test]
    fn bytes_are_conserved_under_a_mix() {
        // Whatever the mix, the last end is no earlier than all bytes over the rate, and the
        // memory is not idle in between.
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        for tag in 0..5 {
            m.start(ns(0), HERE, tag, 10_000 + 777 * tag, BitRate::gbps(8), &mut out);
        }
        for i in 0..50 {
            m.access(ns(i), HERE, 100);
        }
        let bytes: u64 = (0..5).map(|t| 10_000 + 777 * t).sum::<u64>() + 5_000;
        let last = run(&mut m, &mut out).0.last().copied().unwrap().1;
        assert!(last.abs_diff(bytes * 1000) <= 100, "{last} ps for {bytes} bytes");
    }

    #[test]
    fn a_stale_timer_does_nothing() {
        let (mut m, mut out) = (one_byte_per_ns(), Out::new());
        m.start(ns(0), HERE, 1, 100, BitRate::gbps(8), &mut out);
        let (at, _, stale) = out.drain().next().unwrap();
        m.start(ns(50), HERE, 2, 100, BitRate::gbps(8), &mut out);
        assert_eq!(m.on_event(at, stale, &mut out), None);
        assert_eq!(m.jobs(HERE), 2);
    }
}
