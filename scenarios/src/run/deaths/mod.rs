//! Why queue pairs died or stalled, one paragraph each, and the counters of every queue pair and
//! port at the end.
//!
//! | File | What |
//! |---|---|
//! | `facts.rs` | what is known, from both sides and of the packets on the way |
//! | `fates.rs` | of these, the packets that did not arrive |
//! | `verdict.rs` | the cause, by status |
//! | `silence.rs` | of these, why nobody answered |
//! | `notes.rs` | what kills no queue pair and goes wrong all the same |
//! | `settings.rs` | when it would have died under other settings, by the ack timer |
//! | `rnr.rs` | the same for want of a receive |
//! | `unreliable.rs` | what UC and UD lost, of which no queue pair dies |
//! | `words.rs` | the words for it |

mod facts;
mod fates;
mod notes;
mod rnr;
mod settings;
mod silence;
mod small_link;
#[cfg(test)]
mod tests;
mod unreliable;
mod verdict;
mod words;

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::QpState;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;
use serde::Serialize;

use super::port_counters::port_counters;
use super::{ExitKind, Metric, Outcome, Point};
pub(super) use facts::round_trip;
use facts::{Facts, How};
pub use rnr::OtherRnrSetting;
pub use settings::OtherSetting;
pub(super) use silence::trouble_words;
use words::gap;
pub(super) use words::{plural, qp_name};

/// A queue pair at the end of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct QpRow {
    /// Its host.
    pub host: u32,
    /// Its number.
    pub qpn: u32,
    /// Its state.
    pub state: String,
    /// Counters under the names of Linux, those that are not zero.
    pub counters: BTreeMap<&'static str, u64>,
    /// Time in picoseconds for which it stood still in waits of RNR NAKs, of those that had passed
    /// when the run ended or the queue pair died.
    pub rnr_waited_ps: u64,
    /// The same of waits that an expiry of the ack timer ended.
    pub ack_timer_waited_ps: u64,
    /// How it died or stalled, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub death: Option<DeathRow>,
}

/// A port at the end of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortRow {
    /// Its host.
    pub host: u32,
    /// Its NIC, where the host has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<u16>,
    /// Counters, those that are not zero.
    pub counters: BTreeMap<&'static str, u64>,
}

impl PortRow {
    /// `host0`, or `host0.nic1` where the host has several.
    pub fn name(&self) -> String {
        let nic = self.nic.map_or(String::new(), |n| format!(".nic{n}"));
        format!("host{}{nic}", self.host)
    }
}

/// How a queue pair died, or what it waits for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeathRow {
    /// Whether it is in ERR; else it waits at the end of a run that could not go on.
    pub died: bool,
    /// The cause in a word; `docs/status12.md` lists them.
    pub cause: &'static str,
    /// What did not match, the state, the fault or the attribute that it is about.
    pub field: String,
    /// Status of the work request that ended it, as `IBV_WC_…`; empty if none did.
    pub status: &'static str,
    /// The vendor's code of that completion; 0 where none is known, or nothing ended it.
    pub vendor_err: u32,
    /// When it died since the start of the run; the end of the run if it waits.
    pub at_ps: u64,
    /// `wr_id` of the oldest work request that had not ended.
    pub wr_id: Option<u64>,
    /// Expiries of the ack timer since the last progress.
    pub timeouts: u32,
    /// Of `retry_cnt`, used since then.
    pub retries: u32,
    /// Of `rnr_retry`, used since then.
    pub rnr_retries: u32,
    /// Oldest unacknowledged PSN, and the next one.
    pub psns: Option<(u32, u32)>,
    /// When something was last acknowledged.
    pub progress_ps: Option<u64>,
    /// First line: who and how.
    pub headline: String,
    /// The cause in a sentence.
    pub verdict: String,
    /// What this side shows: what a user could see on a cluster.
    pub own_side: Vec<String>,
    /// What the peer and the network saw: what no counter of this side shows.
    pub other_side: Vec<String>,
    /// When it would have died under other settings, if the ack timer decides.
    pub other_settings: Vec<OtherSetting>,
    /// The same for want of a receive, if RNR NAKs decide.
    pub other_rnr_settings: Vec<OtherRnrSetting>,
    /// The smallest settings that would have lasted.
    pub remedy: Vec<String>,
}

impl DeathRow {
    /// Figures that expectations name: `death.timeouts` and so on.
    const NUMBERS: [&'static str; 5] = ["at", "vendor_err", "timeouts", "retries", "rnr_retries"];
    const WORDS: [&'static str; 3] = ["cause", "field", "status"];

    fn number(&self, name: &str) -> Option<Metric> {
        Some(match name {
            "at" => Metric::time(Span::from_ps(self.at_ps)),
            "vendor_err" => Metric::count(self.vendor_err.into()),
            "timeouts" => Metric::count(self.timeouts.into()),
            "retries" => Metric::count(self.retries.into()),
            "rnr_retries" => Metric::count(self.rnr_retries.into()),
            _ => return None,
        })
    }

    fn word(&self, name: &str) -> Option<&str> {
        Some(match name {
            "cause" => self.cause,
            "field" if self.field.is_empty() => "none",
            "field" => &self.field,
            "status" if self.status.is_empty() => "none",
            "status" => self.status,
            _ => return None,
        })
    }
}

impl QpRow {
    /// How long it stood still, by what it waited for.
    fn waits(&self) -> [(&'static str, Span); 2] {
        let waits =
            [("rnr_waited", self.rnr_waited_ps), ("ack_timer_waited", self.ack_timer_waited_ps)];
        waits.map(|(name, ps)| (name, Span::from_ps(ps)))
    }

    /// Names of its figures and words, behind `qp.HOST.NUMBER.`.
    pub(super) fn names(&self) -> Vec<String> {
        let before = format!("qp.{}.{}", self.host, self.qpn);
        let death = self.death.iter().flat_map(|_| DeathRow::NUMBERS);
        let mut names = vec![format!("{before}.state")];
        names.extend(DeathRow::WORDS.iter().map(|w| format!("{before}.death.{w}")));
        names.extend(death.map(|n| format!("{before}.death.{n}")));
        names.extend(self.counters.keys().map(|c| format!("{before}.counter.{c}")));
        names.extend(self.waits().map(|(wait, _)| format!("{before}.{wait}")));
        names
    }

    /// A word of it: its state, and of its death the cause, the field and the status. Of one that
    /// lives they are "none".
    pub(super) fn word(&self, name: &str) -> Option<String> {
        if name == "state" {
            return Some(self.state.clone());
        }
        let name = name.strip_prefix("death.")?;
        match &self.death {
            Some(death) => death.word(name).map(str::to_owned),
            None => DeathRow::WORDS.contains(&name).then(|| "none".to_owned()),
        }
    }

    /// A figure of it: a counter, 0 if it never moved, a time that it stood still, or one of its
    /// death.
    pub(super) fn number(&self, name: &str) -> Option<Metric> {
        if let Some(counter) = name.strip_prefix("counter.") {
            let known = doorbell_sim::rc::HwCounters::default();
            let known = known.iter().any(|(n, _)| n == counter);
            let n = self.counters.get(counter).copied();
            return n.or(known.then_some(0)).map(Metric::count);
        }
        if let Some((_, waited)) = self.waits().into_iter().find(|(wait, _)| *wait == name) {
            return Some(Metric::time(waited));
        }
        self.death.as_ref()?.number(name.strip_prefix("death.")?)
    }
}

/// Where the row of a queue pair is, by host and number: a run may have tens of thousands.
type Places = BTreeMap<(u32, u32), usize>;

/// Fills in the queue pairs and the ports of a run. `stalled`: it could not go on, so queue pairs
/// that wait are explained too.
pub(super) fn collect(world: &World, point: &Point, stalled: bool, out: &mut Outcome) {
    for (h, host) in world.hosts().iter().enumerate() {
        for (_, q) in host.qps() {
            let counters = q.hw_counters();
            out.qps.push(QpRow {
                host: h as u32,
                qpn: q.qpn.value(),
                state: q.state.to_string(),
                counters: counters.iter().filter(|(_, n)| *n > 0).collect(),
                rnr_waited_ps: q.stats.rnr_waited.as_ps(),
                ack_timer_waited_ps: q.stats.ack_timer_waited.as_ps(),
                death: None,
            });
        }
        let several = host.nics().count() > 1;
        for nic in host.nics() {
            let all = port_counters(world, HostId(h as u32), nic);
            let counters = all.filter(|(_, n)| *n > 0).collect();
            let number = several.then_some(nic.port().0);
            out.ports.push(PortRow { host: h as u32, nic: number, counters });
        }
    }
    waited(out);
    notes::psn_mismatch(world, out);
    unreliable::drops(world, out);
    let ended = !stalled && out.exit.kind == ExitKind::Ok;
    notes::receives_too_few(world, &point.scenario, ended, out);
    notes::naks_too_soon(world, out);
    let places: Places = out.qps.iter().enumerate().map(|(i, r)| ((r.host, r.qpn), i)).collect();
    for f in facts::gather(world, point, stalled) {
        // A queue pair that its program moved to ERR, with nothing under way, has not died.
        let idle = f.work.is_none() && f.counters.req_cqe_flush_error == 0;
        let retired = matches!(f.how, How::Died { .. }) && idle && !failed(&f);
        let place = places.get(&(f.host, f.qpn.value())).filter(|_| !retired);
        if let Some(place) = place {
            out.qps[*place].death = Some(death(&f));
        }
    }
    if stalled {
        notes::explain_exit(world, &places, out);
        unreliable::explain_exit(world, &point.scenario, out);
    }
}

/// Adds up how long queue pairs stood still.
fn waited(out: &mut Outcome) {
    let sum = |of: fn(&QpRow) -> u64| out.qps.iter().map(of).fold(0, u64::saturating_add);
    let all = [
        ("rnr_waited", sum(|r| r.rnr_waited_ps)),
        ("ack_timer_waited", sum(|r| r.ack_timer_waited_ps)),
    ];
    for (name, ps) in all {
        out.metrics.insert(name.to_owned(), Metric::time(Span::from_ps(ps)));
    }
}

/// Whether something else than its program brought it to ERR.
fn failed(f: &Facts) -> bool {
    !matches!(f.how, How::Died { why: doorbell_sim::nic::Why::Modify, .. })
}

fn death(f: &Facts) -> DeathRow {
    let verdict = verdict::judge(f);
    let standing = f.standing;
    let awaited = standing.filter(|s| s.una != s.next);
    DeathRow {
        died: matches!(f.state, QpState::Err | QpState::Sqe),
        cause: verdict.cause.word(),
        field: verdict.field,
        status: f.status().map_or("", |s| s.as_str_name()),
        vendor_err: f.vendor_err,
        at_ps: gap(f.at(), Time::ZERO).as_ps(),
        wr_id: f.work.and_then(|w| w.wr_id),
        timeouts: standing.map_or(0, |s| s.expired),
        retries: standing.map_or(0, |s| s.retries),
        rnr_retries: standing.map_or(0, |s| s.rnr_retries),
        psns: awaited.map(|s| (s.una.value(), s.next.value())),
        progress_ps: f.acknowledged.map(|t| gap(t, Time::ZERO).as_ps()),
        headline: words::headline(f),
        verdict: verdict.text,
        own_side: words::own_side(f),
        other_side: words::other_side(f),
        other_settings: settings::table(f, verdict.need),
        other_rnr_settings: rnr::table(f),
        remedy: settings::remedy(f, verdict.need),
    }
}
