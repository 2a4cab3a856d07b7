//! Members of an exchange: who has what for whom, and what each of them is told.

use std::sync::Arc;

use doorbell_core::policy::alltoall::{AllToAll, AllToAllConfig, Exchange, Route, Schedule};
use doorbell_sim::engine::SimRng;

use super::aggregate::places_of;
use super::config::contents;
use super::{Planner, Role, bad};
use crate::format::{self, Element, ExchangeRoute, Program, Tokens};
use crate::run::{Point, RunError};
use crate::workloads::{Combine, Exchanger, ExchangerConfig, Share, Token};

/// An exchange as it runs, and what each member has of it, counted over all its tokens.
struct Plan {
    exchange: Exchange,
    schedule: Arc<Schedule>,
    combine: Option<Arc<Combine>>,
    shares: Vec<Share>,
}

/// The group that each member is in.
fn groups(point: &Point, p: &Program, a: &format::AllToAll) -> Result<Vec<u32>, RunError> {
    let members = 0..p.hosts.value() as u32;
    match a.group {
        Some(size) => Ok(members.map(|m| m / size.value() as u32).collect()),
        None => places_of(point, p),
    }
}

/// Whether an exchange over groups has only one, so that nothing takes two hops.
pub(super) fn is_one_group(point: &Point, p: &Program, a: &format::AllToAll) -> bool {
    let one = |places: Vec<u32>| places.iter().all(|place| *place == places[0]);
    a.route == ExchangeRoute::TwoHop && groups(point, p, a).is_ok_and(one)
}

/// The exchange of program `index`.
fn plan(point: &Point, index: usize, p: &Program, a: &format::AllToAll) -> Result<Plan, RunError> {
    let n = p.hosts.value() as u32;
    let place_of = groups(point, p, a)?;
    let route = match a.route {
        ExchangeRoute::Direct => Route::Direct,
        ExchangeRoute::TwoHop => Route::TwoHop,
    };
    let wrong = |e: doorbell_core::policy::alltoall::ExchangeError| {
        bad(index, "all_to_all", e.to_string(), "change `hosts`")
    };
    let (bytes, chunk) = (p.size.0.0, a.chunk.0.0 as u32);
    let Some(tokens) = &a.tokens else {
        let counts = vec![bytes; (n * n) as usize];
        let exchange = Exchange::by_counts(&place_of, &counts, route).map_err(wrong)?;
        let share = |m| Share { traffic: exchange.traffic_of(m), ..Share::default() };
        let shares = (0..n).map(share).collect();
        let schedule = Arc::new(Schedule::new(&exchange, chunk));
        return Ok(Plan { exchange, schedule, combine: None, shares });
    };
    let mut exchange = Exchange::new(&place_of, route).map_err(wrong)?;
    let (mut shares, mut moving) = (vec![], vec![]);
    let moved = tokens.moved.unwrap_or(tokens.each).value();
    let op = tokens.combine.map(Element::arithmetic);
    for m in 0..n {
        // Those that only count are forgotten member by member: they may be many.
        let mut counted = Exchange::new(&place_of, route).map_err(wrong)?;
        let mut back = counted.clone();
        let mut router = Router::new(point.seed, index, m, (n, tokens), &place_of);
        for token in 0..tokens.each.value() {
            let to = router.draw();
            counted.token(m, to, bytes).map_err(wrong)?;
            if let Some(op) = op {
                back.sum(op, m, to, bytes).map_err(wrong)?;
            }
            if token < moved {
                moving.push(Token { home: m, at: exchange.outbox_bytes(m), to: to.to_vec() });
                exchange.token(m, to, bytes).map_err(wrong)?;
            }
        }
        let (traffic, back) = (counted.traffic_of(m), back.traffic_of(m));
        shares.push(Share { tokens: tokens.each.value(), traffic, back });
    }
    let schedule = Arc::new(Schedule::new(&exchange, chunk));
    let way = (&place_of[..], route);
    let combine = op.map(|op| Combine::new(way, (op, bytes), &moving, &schedule, chunk));
    let combine = combine.transpose().map_err(wrong)?.map(Arc::new);
    Ok(Plan { exchange, schedule, combine, shares })
}

/// Draws the hosts of the experts of a member's tokens: a stream for each member.
struct Router<'a> {
    rng: SimRng,
    /// Hosts, and how tokens are given to experts.
    hosts: u32,
    tokens: &'a Tokens,
    place_of: &'a [u32],
    /// A permutation of the experts, of which a token shuffles as much as it needs.
    experts: Vec<u32>,
    /// Groups and hosts of the token.
    near: Vec<u32>,
    to: Vec<u32>,
}

impl<'a> Router<'a> {
    fn new(
        seed: u64,
        index: usize,
        member: u32,
        (hosts, tokens): (u32, &'a Tokens),
        place_of: &'a [u32],
    ) -> Self {
        let (component, purpose) = (format!("program {index}"), format!("tokens of {member}"));
        let rng = SimRng::stream(seed, &component, &purpose);
        let experts = (0..tokens.experts.value() as u32).collect();
        Self { rng, hosts, tokens, place_of, experts, near: vec![], to: vec![] }
    }

    /// The hosts of the next token's experts, one for each expert.
    fn draw(&mut self) -> &[u32] {
        self.near.clear();
        self.to.clear();
        let count = self.experts.len();
        let groups = self.tokens.groups.map_or(u64::MAX, |g| g.value());
        for drawn in 0..count {
            let with = drawn + self.rng.below((count - drawn) as u64) as usize;
            self.experts.swap(drawn, with);
            let host =
                (u64::from(self.experts[drawn]) * u64::from(self.hosts) / count as u64) as u32;
            let place = self.place_of[host as usize];
            if !self.near.contains(&place) {
                if self.near.len() as u64 == groups {
                    continue;
                }
                self.near.push(place);
            }
            self.to.push(host);
            if self.to.len() as u64 == self.tokens.top.value() {
                break;
            }
        }
        &self.to
    }
}

impl Planner<'_> {
    /// One program on each host of an exchange.
    pub(super) fn all_to_all(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        let a = p.all_to_all.as_ref().expect("checked when loaded");
        let Plan { exchange, schedule, combine, shares } = plan(self.point, index, p, a)?;
        let (first, n) = (self.next(), p.hosts.value() as u32);
        let all_to_all = self.all_to_all_config(index, p, a, first)?;
        let ways = [Some(&*schedule), combine.as_ref().map(|back| &back.schedule)];
        for way in ways.into_iter().flatten() {
            let needs = (0..n).map(|m| AllToAll::needs(&all_to_all, way, m));
            let keys = "larger chunks, or fewer hosts or tokens";
            self.check_needs(index, "all_to_all", needs, keys)?;
        }
        let fill = (0..n).map(|m| exchange.outbox_bytes(m)).max().unwrap_or(0);
        let epoch = self.clock_of_rounds(fill);
        for (member, share) in (0..).zip(shares) {
            let host = p.host.value() as u32 + member;
            let config = ExchangerConfig {
                all_to_all,
                schedule: schedule.clone(),
                combine: combine.clone(),
                share,
                rounds: p.iterations.value(),
                epoch,
                interval: p.interval.map(|i| i.0),
            };
            let on = self.initiator(index, p, (host, p.nic.value() as u8))?;
            self.add((index, host, Role::Sender), on, Exchanger::new(config).into())?;
        }
        Ok(())
    }

    fn all_to_all_config(
        &self,
        index: usize,
        p: &Program,
        a: &format::AllToAll,
        first_rank: u32,
    ) -> Result<AllToAllConfig, RunError> {
        let (link, base) = (self.link(index, p, 0)?, AllToAllConfig::default());
        Ok(AllToAllConfig {
            gather: a.gather.value() as u32,
            window: a.window.value() as u32,
            hop_deadline: a.hop_deadline.0,
            connect_deadline: self.deadline,
            memory: self.memory(index, "memory", (p.nic.value() as u8, p.memory))?,
            contents: contents(p),
            queue_memory: link.queue_memory,
            attr: link.attr,
            path_mtu: link.path_mtu,
            first_rank,
            ..base
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Count;

    fn draws(groups: Option<u64>) -> Vec<Vec<u32>> {
        let tokens = Tokens {
            each: Count::of(100),
            moved: None,
            experts: Count::of(64),
            top: Count::of(8),
            groups: groups.map(Count::of),
            combine: None,
        };
        let place_of: Vec<u32> = (0..32).map(|m| m / 4).collect();
        let mut router = Router::new(1, 0, 5, (32, &tokens), &place_of);
        (0..100).map(|_| router.draw().to_vec()).collect()
    }

    #[test]
    fn a_token_has_different_experts_in_no_more_groups_than_it_may() {
        let groups = |to: &[u32]| {
            let mut near: Vec<u32> = to.iter().map(|m| m / 4).collect();
            near.sort_unstable();
            near.dedup();
            near.len()
        };
        let free = draws(None);
        assert!(free.iter().all(|to| to.len() == 8));
        assert!(free.iter().any(|to| groups(to) > 4));
        // Two experts on each host: nobody is drawn three times.
        let often = |to: &[u32]| to.iter().any(|m| to.iter().filter(|o| *o == m).count() > 2);
        assert!(!free.iter().any(|to| often(to)));
        let near = draws(Some(4));
        assert!(near.iter().all(|to| to.len() == 8 && groups(to) <= 4));
        // One group has eight experts, and no more are there for a token.
        assert!(draws(Some(1)).iter().all(|to| to.len() == 8 && groups(to) == 1));
        assert_eq!(draws(Some(4)), near, "the seed decides");
    }
}
