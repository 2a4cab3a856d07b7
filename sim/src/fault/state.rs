//! A plan at work: what has matched, what has fired, which packets are held.

use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::Qpn;

use super::chance::{Chance, Dice};
use super::matcher::{PacketClass, Window};
use super::plan::{
    DoorbellPart, Fault, FaultPlan, Hold, HostAction, HostFault, PacketFault, PacketVerdict,
    PlanError, Reboot, What,
};
use super::rounds::Rounds;
use crate::fabric::{DropCause, End, Fabric};
use crate::wire::{HostId, NodeId, Packet, PacketId, PortId};

/// The input of a node: the end of a link direction.
pub(crate) type Input = (NodeId, PortId);

/// What becomes of a packet that has arrived at the end of a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Lose(DropCause),
    Delay(Span),
    Copy(u32),
    Reorder { behind: u32, within: Span },
    Corrupt,
    Hold,
}

/// A change of a host at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostChange {
    pub at: Time,
    pub fault: u32,
    /// The window opens; else it closes.
    pub begins: bool,
}

/// A packet that waits at the end of a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub fault: u32,
    pub at: Input,
    pub packet: PacketId,
    pub wire_bytes: u32,
    /// Packets that still have to overtake it; 0: it waits for a time or a release.
    pub behind: u32,
}

/// What a fault has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultUse {
    /// Its name.
    pub id: String,
    /// What it does: the word in files.
    pub kind: &'static str,
    /// Packets, steps or doorbells for which its conditions held, chance, number and budget aside.
    /// Faults of a time: as often as they fired.
    pub matched: u64,
    /// How often it fired. Of `cq-not-polled`: polls that missed completions. Of `rnr`: messages
    /// that found no receive in the window. Of `program-stall` and `nic-stall`: steps and stages
    /// that were put off.
    pub fired: u64,
    /// Most times that it may fire.
    pub budget: Option<u64>,
    /// When it fired first; of `cq-not-polled` and `rnr`, when the window opened.
    pub first: Option<Time>,
    /// Packets that it still keeps from arriving.
    pub held: u64,
    /// Copies that it did not make, since too many packets were under way.
    pub left_out: u64,
    /// The fault that decided about the first packet, step or doorbell that this one would have
    /// decided about: of several faults, the first one in the plan decides.
    pub decided_by: Option<String>,
    /// Whether the run is good though it never fired.
    pub maybe: bool,
    /// Whether the model made up what the device does.
    pub synthetic: bool,
}

#[derive(Clone, Debug)]
struct Active {
    fault: Fault,
    matched: u64,
    fired: u64,
    first: Option<Time>,
    last: Option<Time>,
    left_out: u64,
    /// An earlier fault of the plan that decided in its place.
    decided_by: Option<usize>,
    /// Of a hold: whether it holds no more.
    released: bool,
    /// Of a window that is open: the host's count at its begin.
    since: Option<u64>,
}

impl Active {
    fn spent(&self) -> bool {
        self.fault.budget.is_some_and(|b| self.fired >= b)
    }

    fn fire(&mut self, now: Time) {
        self.fired += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Whether it does nothing any more to packets that were sent before.
    fn is_over(&self, p: &PacketFault, now: Time) -> bool {
        let m = &p.matcher;
        let met = m.nth.is_some_and(|n| self.matched >= n) || m.round.is_some() && self.matched > 0;
        met || self.spent() || self.released || now >= m.window.before
    }
}

/// A fault that watches a link direction.
#[derive(Clone, Debug)]
struct Watch {
    fault: usize,
    dice: Option<Dice>,
}

/// A link direction: the port that sends into it, and the one where it ends.
#[derive(Clone, Debug)]
struct Direction {
    from: Input,
    to: Input,
    watches: Vec<Watch>,
    /// Only where a fault asks for the round.
    rounds: Option<Rounds>,
    /// Packets that wait to be overtaken.
    waiting: Vec<u32>,
}

/// A plan at work in one run.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    faults: Vec<Active>,
    directions: BTreeMap<Input, Direction>,
    dead: Vec<bool>,
    /// Of each switch, the faults that keep it down now.
    off: Vec<Vec<u32>>,
    /// Ports of hosts whose links are down now: by how many faults.
    down: BTreeMap<(HostId, PortId), u32>,
    held: BTreeMap<u32, Held>,
    next_key: u32,
}

/// The node as names of links have it.
fn end_of(node: NodeId, hosts: usize) -> End {
    match node.index().checked_sub(hosts) {
        None => End::Host(node.0),
        Some(s) => End::Switch(s as u32),
    }
}

/// Every link direction: the sending node with its port, and the input that it ends at.
fn directions(fabric: &Fabric) -> Vec<(Input, Input)> {
    let mut all = Vec::new();
    for h in fabric.hosts() {
        for p in (0..h.ports() as u16).map(PortId) {
            all.push(((h.id(), p), h.egress(p).peer()));
        }
    }
    for s in fabric.switches() {
        for p in (0..s.ports() as u16).map(PortId) {
            all.push(((s.id(), p), s.egress(p).peer()));
        }
    }
    all
}

impl FaultState {
    /// The plan on a network. `seed` is the run's.
    ///
    /// # Errors
    /// [`PlanError`] when the plan contradicts itself or names what the network has not.
    pub fn new(plan: &FaultPlan, fabric: &Fabric, seed: u64) -> Result<Self, PlanError> {
        plan.check()?;
        let hosts = fabric.hosts().len();
        let mut state = Self {
            faults: Vec::with_capacity(plan.faults.len()),
            directions: BTreeMap::new(),
            dead: vec![false; hosts],
            off: vec![Vec::new(); fabric.switches().len()],
            down: BTreeMap::new(),
            held: BTreeMap::new(),
            next_key: 0,
        };
        let all = directions(fabric);
        for (from, to) in &all {
            let direction = Direction {
                from: *from,
                to: *to,
                watches: Vec::new(),
                rounds: None,
                waiting: Vec::new(),
            };
            state.directions.insert(*to, direction);
        }
        for (index, fault) in plan.faults.iter().enumerate() {
            check_hosts(fault, hosts as u32)?;
            check_nodes(fault, fabric)?;
            if let What::Packets(p) = &fault.what {
                state.watch(index, &fault.id, p, &all, seed)?;
            }
            state.faults.push(Active {
                fault: fault.clone(),
                matched: 0,
                fired: 0,
                first: None,
                last: None,
                left_out: 0,
                decided_by: None,
                released: false,
                since: None,
            });
        }
        Ok(state)
    }

    /// Lets a fault watch the link directions that it is about.
    fn watch(
        &mut self,
        index: usize,
        id: &str,
        p: &PacketFault,
        all: &[(Input, Input)],
        seed: u64,
    ) -> Result<(), PlanError> {
        let hosts = self.dead.len();
        let (mut links, mut any) = (0, 0);
        for &(from, to) in all {
            let (a, b) = (end_of(from.0, hosts), end_of(to.0, hosts));
            let m = &p.matcher;
            let meant = m.link.is_none_or(|l| {
                let one_way = l.a.is(a, from.1) && l.b.is(b, to.1);
                one_way || l.b.is(a, from.1) && l.a.is(b, to.1)
            });
            links += u32::from(meant);
            if !meant || !m.from.is_none_or(|f| f.is(a, from.1)) {
                continue;
            }
            any += 1;
            let name = |(node, PortId(p)): Input| format!("node{}.port{p}", node.0);
            let link = format!("{}-{}", name(from), name(to));
            let dice = (p.chance != Chance::Always).then(|| Dice::new(seed, &link, id));
            let direction = self.directions.get_mut(&to).expect("every direction has a state");
            direction.watches.push(Watch { fault: index, dice });
            if m.round.is_some() {
                direction.rounds.get_or_insert_default();
            }
        }
        match (p.matcher.link, p.matcher.from) {
            (Some(link), _) if links == 0 => {
                Err(PlanError::UnknownLink { id: id.to_owned(), link })
            }
            (_, Some(from)) if any == 0 => Err(PlanError::UnknownEnd { id: id.to_owned(), from }),
            _ => Ok(()),
        }
    }

    // ---- packets -----------------------------------------------------------------------------

    /// A packet has come to the end of a link: what becomes of it, and by which fault.
    pub fn judge(&mut self, now: Time, at: Input, p: &Packet) -> Option<(Option<u32>, Decision)> {
        if let Some((fault, cause)) = self.cut(at) {
            return Some((fault, Decision::Lose(cause)));
        }
        let direction = self.directions.get_mut(&at)?;
        let round = direction.rounds.as_mut().map(|r| r.see(p));
        let mut decided = None;
        for watch in &mut direction.watches {
            let active = &mut self.faults[watch.fault];
            let What::Packets(f) = &active.fault.what else { continue };
            let in_round = f.matcher.round.is_none_or(|r| round == Some(r));
            if !in_round || !f.matcher.fits(now, p) {
                continue;
            }
            active.matched += 1;
            let counted = f.matcher.nth.is_none_or(|n| n == active.matched);
            // Drawn for every packet that matches, whatever other faults do with it.
            let hit = watch.dice.as_mut().is_none_or(|d| d.hits(&f.chance));
            let over = match f.verdict {
                PacketVerdict::Hold(Hold::Until(end)) => now >= end,
                _ => active.released,
            };
            // A copy of a copy would make more of each at every link of the way.
            let again = p.copied() && matches!(f.verdict, PacketVerdict::Duplicate(_));
            if counted && hit && !over && !again && !active.spent() {
                match decided {
                    None => decided = Some((watch.fault, decision(&f.verdict))),
                    Some((by, _)) => _ = active.decided_by.get_or_insert(by),
                }
            }
        }
        let (fault, decision) = decided?;
        self.faults[fault].fire(now);
        Some((Some(fault as u32), decision))
    }

    /// By which fault, and why, nothing comes by a link direction: the host at one end is dead, or
    /// the switch is down. `None`: it works.
    pub fn cut(&self, at: Input) -> Option<(Option<u32>, DropCause)> {
        let d = self.directions.get(&at)?;
        let dead = |n: NodeId| self.dead.get(n.index()).copied().unwrap_or(false);
        if dead(d.from.0) || dead(d.to.0) {
            return Some((None, DropCause::PeerDead));
        }
        let off = |n: NodeId| {
            let switch = n.index().checked_sub(self.dead.len())?;
            self.off.get(switch)?.first().copied()
        };
        let fault = off(d.from.0).or(off(d.to.0))?;
        Some((Some(fault), DropCause::SwitchReboot))
    }

    /// Keeps a packet; gives the key to [`take`](Self::take) it back with.
    pub fn keep(&mut self, held: Held) -> u32 {
        let key = self.next_key;
        self.next_key = key.checked_add(1).expect("fewer than 2^32 packets are held in a run");
        self.held.insert(key, held);
        if held.behind > 0 {
            let direction = self.directions.get_mut(&held.at).expect("it was judged there");
            direction.waiting.push(key);
        }
        key
    }

    /// Gives a packet that was kept, unless it has gone on already.
    pub fn take(&mut self, key: u32) -> Option<Held> {
        let held = self.held.remove(&key)?;
        if held.behind > 0
            && let Some(direction) = self.directions.get_mut(&held.at)
        {
            direction.waiting.retain(|k| *k != key);
        }
        Some(held)
    }

    /// A packet has gone on at `at`: those that waited to be overtaken by it and go on now.
    pub fn overtaken(&mut self, at: Input) -> Vec<Held> {
        let Some(direction) = self.directions.get_mut(&at) else { return Vec::new() };
        if direction.waiting.is_empty() {
            return Vec::new();
        }
        let mut ready = Vec::new();
        for key in &direction.waiting {
            let held = self.held.get_mut(key).expect("it waits");
            held.behind -= 1;
            if held.behind == 0 {
                ready.push(*key);
            }
        }
        direction.waiting.retain(|k| !ready.contains(k));
        ready.iter().filter_map(|k| self.held.remove(k)).collect()
    }

    /// The packets that are kept.
    pub fn kept(&self) -> BTreeSet<u32> {
        self.held.values().map(|h| h.packet.0).collect()
    }

    /// A fault has made so many copies less than it is asked for.
    pub fn leave_out(&mut self, fault: u32, copies: u32) {
        self.faults[fault as usize].left_out += u64::from(copies);
    }

    /// Whether packets are kept.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a fault may still keep from its destination, or from being there in time, what is
    /// sent again for want of a receive, or the RNR NAK for it: copies do not, and nothing else is
    /// answered.
    pub fn may_hurt(&self, now: Time) -> bool {
        use PacketClass as C;
        let other = |class| {
            matches!(class, C::Ack | C::ReadResponse | C::AtomicAck | C::ReadRequest | C::Atomic)
        };
        self.faults.iter().any(|a| match &a.fault.what {
            What::Packets(p) => {
                let harmless = matches!(p.verdict, PacketVerdict::Duplicate(_));
                !harmless && !a.is_over(p, now) && !p.matcher.class.is_some_and(other)
            }
            _ => false,
        })
    }

    /// Whether a packet that is sent from now on may pass where faults have taken what was sent
    /// until `since`: not where one takes each packet of a kind for ever.
    pub fn may_spare(&self, since: Time, now: Time) -> bool {
        let ended = |w: &Window| w.before < Time::MAX && w.after <= now && since < w.before;
        self.faults.iter().any(|a| match &a.fault.what {
            What::Packets(p) if a.is_over(p, now) => a.last.is_some_and(|last| last >= since),
            What::Packets(p) => match p.verdict {
                PacketVerdict::Duplicate(_) => false,
                PacketVerdict::Drop | PacketVerdict::LinkDown | PacketVerdict::Corrupt => {
                    let m = &p.matcher;
                    let each = p.chance == Chance::Always && m.nth.is_none() && m.round.is_none();
                    !each || a.fault.budget.is_some() || m.window.before < Time::MAX
                }
                _ => true,
            },
            What::Host(h) => ended(&h.window),
            What::Reboot(r) => ended(&r.window),
        })
    }

    /// Ends a hold: the keys of its packets, in their order.
    pub fn release(&mut self, fault: u32) -> Vec<u32> {
        self.faults[fault as usize].released = true;
        self.held.iter().filter(|(_, h)| h.fault == fault).map(|(k, _)| *k).collect()
    }

    /// Faults whose packets go on when `fault` fires.
    pub fn released_by(&self, fault: u32) -> Vec<u32> {
        let id = &self.faults[fault as usize].fault.id;
        let waits = |a: &Active| {
            let What::Packets(p) = &a.fault.what else { return false };
            !a.released && matches!(&p.verdict, PacketVerdict::Hold(Hold::ReleasedBy(i)) if i == id)
        };
        (0..).zip(&self.faults).filter(|(_, a)| waits(a)).map(|(i, _)| i).collect()
    }

    /// The hold with this id.
    pub fn hold(&self, id: &str) -> Option<u32> {
        let is = |a: &Active| {
            let What::Packets(p) = &a.fault.what else { return false };
            a.fault.id == id && matches!(p.verdict, PacketVerdict::Hold(_))
        };
        self.faults.iter().position(is).map(|i| i as u32)
    }

    // ---- hosts -------------------------------------------------------------------------------

    /// Times at which something changes by itself.
    pub fn changes(&self) -> Vec<HostChange> {
        let mut all = Vec::new();
        for (fault, active) in (0..).zip(&self.faults) {
            let mut at = |at, begins| all.push(HostChange { at, fault, begins });
            match &active.fault.what {
                What::Packets(PacketFault { verdict, matcher, .. }) => match verdict {
                    PacketVerdict::Hold(Hold::Until(end)) => at(*end, false),
                    PacketVerdict::LinkDown => {
                        at(matcher.window.after, true);
                        if matcher.window.before < Time::MAX {
                            at(matcher.window.before, false);
                        }
                    }
                    _ => {}
                },
                What::Reboot(Reboot { window, .. }) => {
                    at(window.after, true);
                    if window.before < Time::MAX {
                        at(window.before, false);
                    }
                }
                What::Host(h) => match h.action {
                    HostAction::PeerDead | HostAction::QpError { .. } => at(h.window.after, true),
                    HostAction::CqNotPolled { .. }
                    | HostAction::Rnr { .. }
                    | HostAction::PauseStorm { .. } => {
                        at(h.window.after, true);
                        at(h.window.before, false);
                    }
                    HostAction::ProgramStall { .. }
                    | HostAction::NicStall
                    | HostAction::BadDoorbell { .. } => {}
                },
            }
        }
        all
    }

    /// A fault takes its links down, or gives them back: the ports of hosts at their ends that are
    /// not usable, or usable, from now on. `None`: it is a fault of another kind.
    pub fn ports_changed(&mut self, fault: u32, begins: bool) -> Option<Vec<(HostId, PortId)>> {
        let hosts = self.dead.len();
        let of = &self.faults[fault as usize].fault.what;
        let reboots = match of {
            What::Packets(PacketFault { verdict: PacketVerdict::LinkDown, .. }) => None,
            What::Reboot(r) => Some(NodeId((hosts + r.switch as usize) as u32)),
            _ => return None,
        };
        let meant = |d: &&Direction| match reboots {
            Some(node) => d.from.0 == node || d.to.0 == node,
            None => d.watches.iter().any(|w| w.fault == fault as usize),
        };
        let ends = self.directions.values().filter(meant).flat_map(|d| [d.from, d.to]);
        let ports: BTreeSet<_> = ends.filter(|(n, _)| n.index() < hosts).collect();
        let mut changed = Vec::new();
        for (NodeId(host), port) in ports {
            let port = (HostId(host), port);
            let down = self.down.entry(port).or_default();
            let before = *down;
            *down = if begins { before + 1 } else { before - 1 };
            if (before == 0) != (*down == 0) && !self.dead[host as usize] {
                changed.push(port);
            }
        }
        Some(changed)
    }

    /// What the fault does to a host, if it is one of a host.
    pub fn host_fault(&self, fault: u32) -> Option<HostFault> {
        match self.faults[fault as usize].fault.what {
            What::Host(h) => Some(h),
            What::Packets(_) | What::Reboot(_) => None,
        }
    }

    /// The switch that reboots, if the fault is that.
    pub fn reboot(&self, fault: u32) -> Option<u32> {
        match self.faults[fault as usize].fault.what {
            What::Reboot(r) => Some(r.switch),
            _ => None,
        }
    }

    /// Switches that reboot later than at `now`.
    pub fn reboots_after(&self, now: Time) -> BTreeSet<u32> {
        let later = |a: &Active| match &a.fault.what {
            What::Reboot(r) => (r.window.after > now).then_some(r.switch),
            What::Packets(_) | What::Host(_) => None,
        };
        self.faults.iter().filter_map(later).collect()
    }

    /// A switch goes down by a fault, or comes up again.
    pub fn switch_changed(&mut self, fault: u32, switch: u32, down: bool) {
        let off = &mut self.off[switch as usize];
        if down {
            off.push(fault);
        } else {
            off.retain(|f| *f != fault);
        }
    }

    /// The fault's name.
    pub fn id(&self, fault: u32) -> &str {
        &self.faults[fault as usize].fault.id
    }

    /// Names of all faults, in the plan's order.
    pub fn ids(&self) -> Vec<String> {
        self.faults.iter().map(|f| f.fault.id.clone()).collect()
    }

    /// A fault of a time has come to pass.
    pub fn happened(&mut self, fault: u32, now: Time) {
        let active = &mut self.faults[fault as usize];
        active.matched += 1;
        active.fire(now);
    }

    /// The host is gone from now on.
    pub fn kill(&mut self, host: HostId) {
        self.dead[host.index()] = true;
    }

    /// Whether the host is gone.
    pub fn is_dead(&self, host: HostId) -> bool {
        self.dead[host.index()]
    }

    /// The window of a fault that is measured by a count of its host opens.
    pub fn open(&mut self, fault: u32, now: Time, count: u64) {
        let active = &mut self.faults[fault as usize];
        active.first.get_or_insert(now);
        active.since = Some(count);
    }

    /// It closes.
    pub fn close(&mut self, fault: u32, count: u64) {
        let active = &mut self.faults[fault as usize];
        if let Some(since) = active.since.take() {
            active.fired += count - since;
            active.matched = active.fired;
        }
    }

    /// When a step of the program with `rank` may take place, if it is put off.
    pub fn step_put_off(&mut self, now: Time, host: HostId, rank: u32) -> Option<(u32, Time)> {
        self.put_off(now, host, |h| match h.action {
            HostAction::ProgramStall { rank: only } => only.is_none_or(|r| r == rank),
            _ => false,
        })
    }

    /// Hosts whose NICs a fault of the plan stalls at some time.
    pub fn nic_stalls(&self) -> impl Iterator<Item = HostId> + '_ {
        self.faults.iter().filter_map(|active| match &active.fault.what {
            What::Host(h) if matches!(h.action, HostAction::NicStall) => Some(h.host),
            _ => None,
        })
    }

    /// When a stage of a NIC may end, if it is put off.
    pub fn nic_put_off(&mut self, now: Time, (host, nic): (HostId, u16)) -> Option<(u32, Time)> {
        self.put_off(now, host, |h| matches!(h.action, HostAction::NicStall) && h.is_of(nic))
    }

    fn put_off(
        &mut self,
        now: Time,
        host: HostId,
        about: impl Fn(&HostFault) -> bool,
    ) -> Option<(u32, Time)> {
        let mut decided = None;
        for (i, active) in self.faults.iter_mut().enumerate() {
            let What::Host(h) = &active.fault.what else { continue };
            if h.host != host || !h.window.holds(now) || !about(h) {
                continue;
            }
            let until = h.window.before;
            active.matched += 1;
            match decided {
                _ if active.spent() => {}
                None => {
                    active.fire(now);
                    decided = Some((i, until));
                }
                Some((by, _)) => _ = active.decided_by.get_or_insert(by),
            }
        }
        decided.map(|(i, until)| (i as u32, until))
    }

    /// A doorbell is at the NIC: whether it is damaged, by which fault, and after how many errors
    /// the NIC stops.
    pub fn doorbell(
        &mut self,
        now: Time,
        (host, nic): (HostId, u16),
        qpn: Qpn,
        blueflame: bool,
    ) -> Option<(u32, Option<u32>)> {
        let mut decided = None;
        for (i, active) in (0..).zip(&mut self.faults) {
            let What::Host(h) = &active.fault.what else { continue };
            let HostAction::BadDoorbell { qp, part, nth, stop_after } = &h.action else {
                continue;
            };
            let its = qp.is_none_or(|q| q == qpn) && h.is_of(nic);
            let fits = blueflame || *part == DoorbellPart::Record;
            if h.host != host || !h.window.holds(now) || !its || !fits {
                continue;
            }
            active.matched += 1;
            if nth.is_none_or(|n| n == active.matched) && !active.spent() {
                match decided {
                    None => decided = Some((i, *stop_after)),
                    Some((by, _)) => _ = active.decided_by.get_or_insert(by as usize),
                }
            }
        }
        let (fault, _) = decided?;
        self.faults[fault as usize].fire(now);
        decided
    }

    // ---- reports -----------------------------------------------------------------------------

    /// What every fault has done; `count` gives the present count of a host fault whose window is
    /// open.
    pub fn uses(&self, count: impl Fn(&HostFault) -> u64) -> Vec<FaultUse> {
        let of = |(i, a): (u32, &Active)| {
            let open = match (&a.fault.what, a.since) {
                (What::Host(h), Some(since)) => count(h) - since,
                _ => 0,
            };
            FaultUse {
                id: a.fault.id.clone(),
                kind: a.fault.what.word(),
                matched: a.matched + open,
                fired: a.fired + open,
                budget: a.fault.budget,
                first: a.first.filter(|_| a.fired + open > 0),
                held: self.held.values().filter(|h| h.fault == i).count() as u64,
                left_out: a.left_out,
                decided_by: a.decided_by.map(|by| self.faults[by].fault.id.clone()),
                maybe: a.fault.maybe,
                synthetic: a.fault.what.synthetic(),
            }
        };
        (0..).zip(&self.faults).map(of).collect()
    }
}

fn decision(verdict: &PacketVerdict) -> Decision {
    match verdict {
        PacketVerdict::Drop => Decision::Lose(DropCause::Fault),
        PacketVerdict::LinkDown => Decision::Lose(DropCause::LinkDown),
        PacketVerdict::Delay(by) => Decision::Delay(*by),
        PacketVerdict::Duplicate(copies) => Decision::Copy(*copies),
        PacketVerdict::Reorder { behind, within } => {
            Decision::Reorder { behind: *behind, within: *within }
        }
        PacketVerdict::Corrupt => Decision::Corrupt,
        PacketVerdict::Hold(_) => Decision::Hold,
    }
}

fn check_hosts(fault: &Fault, hosts: u32) -> Result<(), PlanError> {
    let named = match &fault.what {
        What::Packets(p) => [p.matcher.source, p.matcher.dest],
        What::Host(h) => [Some(h.host), None],
        What::Reboot(_) => [None, None],
    };
    match named.into_iter().flatten().find(|h| h.0 >= hosts) {
        Some(host) => Err(PlanError::UnknownHost { id: fault.id.clone(), host, hosts }),
        None => Ok(()),
    }
}

/// Whether the switch of a reboot and the NIC of a host are there, and whether a host that storms
/// can.
fn check_nodes(fault: &Fault, fabric: &Fabric) -> Result<(), PlanError> {
    let id = || fault.id.clone();
    let switches = fabric.switches().len();
    match &fault.what {
        What::Reboot(r) if r.switch as usize >= switches => {
            Err(PlanError::UnknownSwitch { id: id(), switch: r.switch, switches })
        }
        What::Host(h) => {
            let node = &fabric.hosts()[h.host.index()];
            let nics = node.nics();
            if let Some(nic) = h.nic.filter(|nic| usize::from(*nic) >= nics) {
                return Err(PlanError::UnknownNic { id: id(), host: h.host, nic, nics });
            }
            let HostAction::PauseStorm { sl } = h.action else { return Ok(()) };
            let classes = sl.map_or(u8::MAX, |sl| 1 << node.class_of(sl));
            let mut ports = (0..nics as u16).filter(|nic| h.is_of(*nic)).map(PortId);
            match ports.any(|port| node.may_pause(port) & classes != 0) {
                true => Ok(()),
                false => Err(PlanError::NoPauses { id: id(), host: h.host }),
            }
        }
        _ => Ok(()),
    }
}
