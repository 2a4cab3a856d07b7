//! Effects: what a step does, at the local clock at which it does it.
//!
//! The effects of a step are a list in order of time. A contended one (a lock, full
//! write-combining buffers, memory bandwidth) ends at an unknown time; everything behind it waits
//! and is then delayed by the wait.

use doorbell_core::units::{Span, Time};

use super::initiator::{Activity, Addition, BufferedStore, Cause, Effect, StoreBytes};
use super::island::{Host, Shared};
use crate::engine::Class;
use crate::event::{Event, HostEvent};
use crate::memory::RegionId;
use crate::nic::{Landing, WQEBB, Wake};

/// What became of an effect.
enum Outcome {
    /// It took place.
    Done,
    /// It waits; who ends the cause will resume the initiator. What passes after the given time is
    /// a delay.
    Waits(Cause, Time),
}

/// Doorbells in a row that holders of a lock leave to the next one; then one rings.
const MOST_LEFT: u32 = 31;

impl Host {
    /// Schedules the next effect of the step, or ends the step.
    pub(super) fn schedule_effect(&mut self, s: &mut Shared, now: Time, initiator: u16) {
        let host = self.id;
        let init = &mut self.initiators[usize::from(initiator)];
        let Some((at, _)) = init.effects.front() else {
            return self.finish_step(s, now, initiator);
        };
        let at = (*at + init.delay).max(now);
        let ev = HostEvent::Effect { initiator };
        s.engine.schedule(init.id, at, Class::Stage, Event::Host(host, ev));
    }

    /// The time of the first effect has come.
    pub(super) fn run_effects(&mut self, s: &mut Shared, now: Time, initiator: u16) {
        let i = usize::from(initiator);
        loop {
            let init = &mut self.initiators[i];
            let Some(&(at, _)) = init.effects.front() else {
                return self.finish_step(s, now, initiator);
            };
            if at + init.delay > now {
                return self.schedule_effect(s, now, initiator);
            }
            let (at, effect) = init.effects.pop_front().expect("just seen");
            if let Outcome::Waits(on, since) = self.perform(s, now, initiator, at, effect) {
                let init = &mut self.initiators[i];
                if let Activity::Acting { next, end } = init.activity {
                    init.activity = Activity::Blocked { next, end, since, on };
                }
                return;
            }
        }
    }

    /// An initiator that is blocked by `cause` goes on at `at`; the rest of its step is that much
    /// later. One that is blocked by something else stays so.
    pub(super) fn resume(&mut self, s: &mut Shared, initiator: u16, cause: Cause, at: Time) {
        let host = self.id;
        let init = &mut self.initiators[usize::from(initiator)];
        let Activity::Blocked { next, end, since, on } = init.activity else { return };
        if on != cause {
            return;
        }
        let wait = at.since(since);
        init.delay += wait;
        init.stats.blocked += wait;
        init.activity = Activity::Acting { next, end };
        let ev = HostEvent::Effect { initiator };
        s.engine.schedule(init.id, at, Class::Stage, Event::Host(host, ev));
    }

    /// Ends a region; of two handles of one the first does. What still names it is counted: it
    /// will end with an error, or reach the peer in part.
    fn deregister(&mut self, region: RegionId) {
        if let Some(known) = self.regions.get(region) {
            for d in &mut self.devices {
                d.nic.stats.regions_in_use += d.nic.uses_of(known);
            }
        }
        let _ = self.regions.deregister(region);
    }

    fn perform(
        &mut self,
        s: &mut Shared,
        now: Time,
        initiator: u16,
        at: Time,
        effect: Effect,
    ) -> Outcome {
        let nic = self.initiators[usize::from(initiator)].nic;
        match effect {
            Effect::Lock { qp, count } => return self.lock(now, initiator, (nic, qp), count),
            Effect::Ticket { qp, count } => self.ticket(initiator, (nic, qp), count),
            Effect::Turn { qp } => return self.turn(now, initiator, (nic, qp)),
            Effect::Advance { qp, count } => self.advance(s, now, (nic, qp), count),
            Effect::Unlock { qp } => self.unlock(s, now, (nic, qp)),
            Effect::Choose { qp, cost } => self.choose(initiator, (nic, qp), cost),
            Effect::Ring { local, qp, count, blueflame } => {
                let lines = blueflame.div_ceil(WQEBB).max(1);
                let who = self.initiators[usize::from(initiator)].who;
                let limit = self.costs_of(who).wc_buffers.max(lines);
                let init = &mut self.initiators[usize::from(initiator)];
                let lines = if init.leaves_doorbell { 0 } else { lines };
                if init.mmio_lines + lines > limit {
                    init.effects.push_front((at, effect));
                    return Outcome::Waits(Cause::Mmio, now);
                }
                init.mmio_lines += lines;
                self.ring(s, now, initiator, (local, qp), count, blueflame);
            }
            Effect::PostRecv { qp, srq, wqes } => {
                let (nic, mut env) = self.split(s, now, nic);
                nic.post_recv(&mut env, qp, srq, &wqes);
            }
            Effect::Store { region, addr, bytes } => {
                let store = BufferedStore { region, addr, bytes, visible_at: now };
                self.store(s, now, initiator, store);
            }
            Effect::Add(add) => self.add(&add),
            Effect::Memory { place, bytes, limit, solo } => {
                let (tag, out) = (u64::from(initiator), &mut self.memory_out);
                self.pcie.memory_mut().start(now, place, tag, bytes, limit, out);
                return Outcome::Waits(Cause::Memory, now + solo);
            }
            Effect::EngineCopy(copy) => {
                self.start_copy(now, initiator, copy);
                return Outcome::Waits(Cause::Copy, now);
            }
            Effect::Drain => self.drain_stores(initiator),
            Effect::Modify { qp, attr, mask, peer } => {
                let (nic, mut env) = self.split(s, now, nic);
                nic.modify_qp(&mut env, qp, &attr, mask, peer);
            }
            Effect::Destroy { local, qp } => {
                self.initiators[usize::from(initiator)].handles.qps.remove(local);
                let (nic, mut env) = self.split(s, now, nic);
                nic.destroy_qp(&mut env, qp);
            }
            Effect::DestroyCq { cq } => self.devices[usize::from(nic)].nic.destroy_cq(cq),
            Effect::DestroySrq { srq } => self.devices[usize::from(nic)].nic.destroy_srq(srq),
            Effect::Deregister { region } => self.deregister(region),
            Effect::Publish { to, key, bytes } => {
                self.publish(s, now, initiator, to, (key, bytes));
            }
        }
        Outcome::Done
    }

    // ---- ring --------------------------------------------------------------------------------

    fn ring(
        &mut self,
        s: &mut Shared,
        now: Time,
        initiator: u16,
        (local, qp): (u32, u32),
        count: u32,
        blueflame: u32,
    ) {
        let init = &mut self.initiators[usize::from(initiator)];
        let (from, delay, id, number) = (init.node, init.delay, initiator, init.nic);
        let nic = &mut self.devices[usize::from(number)].nic;
        let Some(l) = init.handles.qps.get_mut(local) else { return };
        for _ in 0..count {
            let Some((wqe, landing)) = l.staged.pop_front() else { break };
            nic.post_send(qp, wqe, landing.delayed(delay));
        }
        l.ringing -= count;
        if std::mem::take(&mut self.initiators[usize::from(initiator)].leaves_doorbell) {
            return;
        }
        let (nic, mut env) = self.split(s, now, number);
        let prod = nic.qp(qp).map_or(0, |q| q.sq.prod());
        nic.ring(&mut env, (from, id), qp, prod, blueflame);
    }

    /// An MMIO write of `lines` lines has arrived at the device.
    pub(super) fn mmio_done(&mut self, s: &mut Shared, now: Time, initiator: u16, lines: u32) {
        let init = &mut self.initiators[usize::from(initiator)];
        init.mmio_lines = init.mmio_lines.saturating_sub(lines);
        self.resume(s, initiator, Cause::Mmio, now);
    }

    // ---- locks -------------------------------------------------------------------------------

    fn lock(&mut self, now: Time, initiator: u16, qp: (u8, u32), count: u32) -> Outcome {
        let transfer = self.transfer(initiator, 0);
        let init = &mut self.initiators[usize::from(initiator)];
        let lock = self.locks.entry(qp).or_default();
        lock.taken += 1;
        // Its slots are taken, and nobody will move the ready index over them: who submits in
        // order behind it waits for ever.
        lock.reserved = lock.reserved.wrapping_add(count);
        if lock.holder.is_some() {
            lock.contended += 1;
            lock.waiting.push_back(initiator);
            return Outcome::Waits(Cause::Lock, now);
        }
        if lock.last.is_some_and(|last| last != initiator) {
            init.delay += transfer;
        }
        lock.holder = Some(initiator);
        lock.last = Some(initiator);
        lock.since = now;
        Outcome::Done
    }

    fn unlock(&mut self, s: &mut Shared, now: Time, qp: (u8, u32)) {
        let Some(lock) = self.locks.get_mut(&qp) else { return };
        lock.busy += now.since(lock.since);
        lock.since = now;
        lock.holder = lock.waiting.pop_front();
        let Some(next) = lock.holder else { return };
        lock.last = Some(next);
        let waiting = lock.waiting.len();
        let granted = now + self.transfer(next, waiting);
        self.note_wait(next, qp, granted);
        self.resume(s, next, Cause::Lock, granted);
    }

    /// A holder of the lock leaves its doorbell to the next one, but not for ever: a queue that
    /// always has somebody waiting would never be rung.
    fn choose(&mut self, initiator: u16, qp: (u8, u32), cost: Span) {
        let lock = self.locks.entry(qp).or_default();
        let leaves = !lock.waiting.is_empty() && lock.left < MOST_LEFT;
        lock.left = if leaves { lock.left + 1 } else { 0 };
        let init = &mut self.initiators[usize::from(initiator)];
        init.leaves_doorbell = leaves;
        if !leaves {
            init.delay += cost;
            init.stats.post += cost;
        }
    }

    /// What an initiator pays for a lock or a turn that another one had last, while `waiting`
    /// others try for it.
    fn transfer(&self, initiator: u16, waiting: usize) -> Span {
        let costs = self.costs_of(self.initiators[usize::from(initiator)].who);
        costs.lock_transfer + costs.contention * waiting as u64
    }

    /// Counts how long an initiator has waited for what it gets at `granted`.
    fn note_wait(&mut self, initiator: u16, qp: (u8, u32), granted: Time) {
        if let Activity::Blocked { since, .. } = self.initiators[usize::from(initiator)].activity
            && let Some(lock) = self.locks.get_mut(&qp)
        {
            lock.waited += granted.since(since);
        }
    }

    // ---- submitting in order -----------------------------------------------------------------

    /// Takes the next `count` slots of the queue.
    fn ticket(&mut self, initiator: u16, qp: (u8, u32), count: u32) {
        let lock = self.locks.entry(qp).or_default();
        self.initiators[usize::from(initiator)].ticket = lock.reserved;
        lock.reserved = lock.reserved.wrapping_add(count);
    }

    /// Waits until every slot before its own is announced.
    fn turn(&mut self, now: Time, initiator: u16, qp: (u8, u32)) -> Outcome {
        let transfer = self.transfer(initiator, 0);
        let init = &mut self.initiators[usize::from(initiator)];
        let lock = self.locks.entry(qp).or_default();
        lock.taken += 1;
        if lock.ready != init.ticket {
            lock.contended += 1;
            lock.in_order.insert(init.ticket, initiator);
            return Outcome::Waits(Cause::Turn, now);
        }
        if lock.last.is_some_and(|last| last != initiator) {
            init.delay += transfer;
        }
        (lock.last, lock.since) = (Some(initiator), now);
        Outcome::Done
    }

    /// Moves the ready index over the slots that were announced; who has the next ones goes on.
    fn advance(&mut self, s: &mut Shared, now: Time, qp: (u8, u32), count: u32) {
        let Some(lock) = self.locks.get_mut(&qp) else { return };
        lock.busy += now.since(lock.since);
        lock.ready = lock.ready.wrapping_add(count);
        let Some(next) = lock.in_order.remove(&lock.ready) else { return };
        (lock.last, lock.since) = (Some(next), now);
        let waiting = lock.in_order.len();
        let granted = now + self.transfer(next, waiting);
        self.note_wait(next, qp, granted);
        self.resume(s, next, Cause::Turn, granted);
    }

    // ---- stores ------------------------------------------------------------------------------

    fn store(&mut self, s: &mut Shared, now: Time, initiator: u16, mut store: BufferedStore) {
        let host = self.id;
        let delay = self.draw_store_delay(initiator);
        let init = &mut self.initiators[usize::from(initiator)];
        // Stores to one place become visible in their order, however weak the memory model.
        let before = init.store_buffer.behind(&store);
        store.visible_at = before.map_or(now, |t| t.max(now)).max(now + delay);
        let at = store.visible_at;
        if at == now && before.is_none() {
            return self.apply_store(&store);
        }
        let entry = init.store_buffer.push(store);
        self.late_stores += 1;
        let ev = HostEvent::StoreVisible { initiator, entry };
        s.engine.schedule(init.id, at, Class::Stage, Event::Host(host, ev));
    }

    /// What a kernel has added becomes visible. A region that is gone takes its sum along.
    fn add(&mut self, add: &Addition) {
        let mut sum = vec![0; add.bytes as usize];
        let mut more = vec![0; add.bytes as usize];
        let [(region, addr), from] = [add.to, add.from];
        let read = self.regions.read(region, addr, &mut sum);
        if read.and_then(|()| self.regions.read(from.0, from.1, &mut more)).is_ok() {
            add.op.apply(&mut sum, &more);
            self.apply_store(&BufferedStore {
                region,
                addr,
                bytes: StoreBytes::Many(sum.into()),
                visible_at: Time::ZERO,
            });
        }
    }

    /// When a WQE that this initiator writes at `now` becomes visible, without a fence.
    pub(super) fn draw_landing(&mut self, initiator: u16, now: Time) -> Landing {
        let who = self.initiators[usize::from(initiator)].who;
        let mut landing = Landing::from(now + self.draw_store_delay(initiator));
        for _ in 1..self.costs_of(who).wqe_pieces {
            let at = now + self.draw_store_delay(initiator);
            (landing.first, landing.last) = (landing.first.min(at), landing.last.max(at));
        }
        landing
    }

    /// How late a store of this initiator becomes visible; zero where stores are ordered.
    fn draw_store_delay(&mut self, initiator: u16) -> Span {
        let i = usize::from(initiator);
        let who = self.initiators[i].who;
        let table = match who {
            doorbell_core::transport::Initiator::Cpu { .. } => &self.cfg.cpu.store_delay,
            doorbell_core::transport::Initiator::GpuBlock { .. } => &self.cfg.gpu.store_delay,
        };
        match (table, &mut self.initiators[i].store_rng) {
            (Some(table), Some(rng)) => table.draw(rng),
            _ => Span::ZERO,
        }
    }

    /// A store to a region that is gone by now, or has no bytes, leaves no trace.
    fn apply_store(&mut self, store: &BufferedStore) {
        let BufferedStore { region, addr, bytes, .. } = store;
        let _ = bytes.with(|b| self.regions.write(*region, *addr, b));
        self.wakes.push(Wake::Memory { addr: *addr, len: bytes.len() as u64 });
    }

    pub(super) fn store_visible(&mut self, initiator: u16, entry: u32) {
        let buffer = &mut self.initiators[usize::from(initiator)].store_buffer;
        if let Some(store) = buffer.take(entry) {
            self.late_stores -= 1;
            self.apply_store(&store);
        }
    }

    /// Whether a NIC's read with this tag takes payload whose stores have not landed.
    pub(super) fn find_stale_payload(&mut self, s: &Shared, nic: u8, tag: u64) {
        let mut late = false;
        let stores = || self.initiators.iter().flat_map(|i| i.store_buffer.iter());
        let nic = &mut self.devices[usize::from(nic)].nic;
        let qp = nic.payload_pieces(&s.packets, tag, |addr, len| {
            let hit = |b: &BufferedStore| {
                b.addr < addr + u64::from(len) && addr < b.addr + b.bytes.len() as u64
            };
            late |= stores().any(hit);
        });
        if let (true, Some(q)) = (late, qp.and_then(|qp| nic.qp_mut(qp))) {
            q.stats.stale_payloads += 1;
        }
    }

    fn drain_stores(&mut self, initiator: u16) {
        while let Some(store) = self.initiators[usize::from(initiator)].store_buffer.take_first() {
            self.late_stores -= 1;
            self.apply_store(&store);
        }
    }

    // ---- out-of-band network -----------------------------------------------------------------

    fn publish(
        &mut self,
        s: &mut Shared,
        now: Time,
        initiator: u16,
        to: Option<u32>,
        (key, bytes): (u64, Box<[u8]>),
    ) {
        let rank = self.initiators[usize::from(initiator)].rank;
        let id = self.initiators[usize::from(initiator)].id;
        // A rank that is none gets nothing, and the one who sent it learns so by a look-up.
        let hosts = match to {
            None => 0..s.hosts,
            Some(to) => s.ranks.get(to as usize).map_or(0..0, |host| host.0..host.0 + 1),
        };
        if hosts.is_empty() {
            return;
        }
        let message = s.messages.insert((rank, key, bytes, hosts.len() as u32));
        let at = now + s.bootstrap_latency;
        for host in hosts {
            let ev = Event::Bootstrap { host: crate::wire::HostId(host), message };
            s.engine.schedule(id, at, Class::Arrival, ev);
        }
    }

    /// A program has ended at `end`: every host is told over the out-of-band network, as late as
    /// by a publication and behind all of the program's own.
    pub(super) fn announce_end(&self, s: &mut Shared, end: Time, initiator: u16) {
        let init = &self.initiators[usize::from(initiator)];
        let at = end + s.bootstrap_latency;
        s.engine.schedule(init.id, at, Class::Arrival, Event::Ended { rank: init.rank });
    }
}
