//! What experts make of tokens, and what the sums of that have to be.
//!
//! An expert makes of each element of a token a small number that depends on the element's bytes
//! and on the host, so that a part that is missing, doubled, or of another token changes the sum,
//! and sums of floats are exact in every order.

use std::collections::BTreeMap;

use doorbell_core::policy::alltoall::{Exchange, ExchangeError, Route, Schedule};
use doorbell_core::transport::Reduce;

/// A token that moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// The member whose it is.
    pub home: u32,
    /// Where it begins in the outbox of that member.
    pub at: u64,
    /// Members with its experts; who is there twice makes one part.
    pub to: Vec<u32>,
}

/// Where a member has a token.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In its outbox: it is its own.
    Outbox(u64),
    /// In its inbox.
    Inbox(u64),
}

/// The way back of tokens: the sum of what a token's experts make of it is its member's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combine {
    /// What goes where.
    pub schedule: Schedule,
    op: Reduce,
    bytes: u64,
    /// Of which tokens each member makes something, in the order of its outbox.
    made: Vec<Vec<Place>>,
    /// Whose sums each member is to have, in the order of those.
    sums: Vec<Vec<Token>>,
}

impl Combine {
    /// Sums of elements of `op`, `bytes` bytes of each of the tokens, which go `there`.
    ///
    /// # Errors
    /// Tokens that have no whole elements.
    pub fn new(
        (place_of, route): (&[u32], Route),
        (op, bytes): (Reduce, u64),
        tokens: &[Token],
        there: &Schedule,
        chunk: u32,
    ) -> Result<Self, ExchangeError> {
        let mut exchange = Exchange::new(place_of, route)?;
        let members = exchange.members();
        let arrived = |m: u32| {
            let of = |a: &doorbell_core::policy::alltoall::Arrival| ((a.from, a.outbox), a.inbox);
            there.arrivals(m).iter().map(of).collect::<BTreeMap<_, _>>()
        };
        let arrived: Vec<_> = (0..members).map(arrived).collect();
        let (mut made, mut sums) = (vec![vec![]; members as usize], vec![vec![]; members as usize]);
        for token in tokens {
            exchange.sum(op, token.home, &token.to, bytes)?;
            let mut experts = token.to.clone();
            experts.sort_unstable();
            experts.dedup();
            for &expert in &experts {
                made[expert as usize].push(match expert == token.home {
                    true => Place::Outbox(token.at),
                    false => Place::Inbox(arrived[expert as usize][&(token.home, token.at)]),
                });
            }
            // What a member makes of its own token, and nobody else does, needs no sum.
            if experts.iter().any(|expert| *expert != token.home) {
                sums[token.home as usize].push(Token { to: experts, ..token.clone() });
            }
        }
        Ok(Self { schedule: Schedule::new(&exchange, chunk), op, bytes, made, sums })
    }

    /// What a member makes of the tokens in its outbox and in its inbox, as it goes back.
    pub fn make(&self, member: u32, outbox: &[u8], inbox: &[u8]) -> Vec<u8> {
        let each = self.made[member as usize].iter();
        let parts = each.flat_map(|place| {
            let token = match *place {
                Place::Outbox(at) => &outbox[at as usize..],
                Place::Inbox(at) => &inbox[at as usize..],
            };
            self.part(member, &token[..self.bytes as usize])
        });
        parts.flat_map(|number| self.element(number)).collect()
    }

    /// What a member makes of a token, element by element.
    fn part<'a>(&self, member: u32, token: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let elements = token.chunks_exact(self.op.element_bytes() as usize);
        let bytes = |element: &[u8]| element.iter().map(|b| u64::from(*b)).sum::<u64>();
        elements.map(move |e| bytes(e) * u64::from(member % 7 + 1) + u64::from(member))
    }

    fn element(&self, number: u64) -> Vec<u8> {
        match self.op {
            Reduce::SumI64 => number.to_le_bytes().to_vec(),
            Reduce::SumF32 => (number as f32).to_le_bytes().to_vec(),
            Reduce::SumF64 => (number as f64).to_le_bytes().to_vec(),
        }
    }

    /// Sums that a member is to have, and how many of those in its inbox are not right, told from
    /// its own tokens one expert after the other.
    pub fn judge(&self, member: u32, outbox: &[u8], inbox: &[u8]) -> (u64, u64) {
        let totals = self.schedule.sums(member);
        let sums = &self.sums[member as usize];
        assert_eq!(totals.len(), sums.len(), "a sum for each token that others have had");
        let is_wrong = |(total, token): &(&doorbell_core::policy::alltoall::Total, &Token)| {
            let own = &outbox[token.at as usize..][..self.bytes as usize];
            let mut right = vec![0; own.len() / self.op.element_bytes() as usize];
            for &expert in &token.to {
                right.iter_mut().zip(self.part(expert, own)).for_each(|(sum, n)| *sum += n);
            }
            let right = right.into_iter().flat_map(|n| self.element(n));
            !right.eq(inbox[total.inbox as usize..][..self.bytes as usize].iter().copied())
        };
        let wrong = totals.iter().zip(sums).filter(is_wrong).count();
        (sums.len() as u64, wrong as u64)
    }

    /// Bytes of the sums that a member is to have.
    pub fn bytes_of(&self, member: u32) -> u64 {
        self.sums[member as usize].len() as u64 * self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_lacks_a_part_or_has_one_twice_is_wrong() {
        let places = [0, 0, 1];
        let mut there = Exchange::new(&places, Route::Direct).unwrap();
        there.token(0, &[0, 1, 2, 2], 16).unwrap();
        there.token(0, &[0], 16).unwrap();
        let schedule = Schedule::new(&there, 64);
        let tokens = [
            Token { home: 0, at: 0, to: vec![0, 1, 2, 2] },
            Token { home: 0, at: 16, to: vec![0] },
        ];
        let own: Vec<u8> = (0..32).collect();
        for op in [Reduce::SumI64, Reduce::SumF32, Reduce::SumF64] {
            let way = (&places[..], Route::Direct);
            let back = Combine::new(way, (op, 16), &tokens, &schedule, 64).unwrap();
            // What experts 1 and 2 got, who has two of them twice.
            let twice = [&own[..16], &own[..16]].concat();
            let parts = [(0, &own[..], &[][..]), (1, &[], &own), (2, &[], &twice)]
                .map(|(member, outbox, inbox)| back.make(member, outbox, inbox));
            assert_eq!(parts.each_ref().map(Vec::len), [32, 16, 16]);
            let [total] = back.schedule.sums(0) else { panic!("one sum") };
            let judge = |members: &[usize]| {
                let mut inbox = vec![0; back.schedule.inbox_bytes(0) as usize];
                let sum = &mut inbox[total.inbox as usize..][..16];
                members.iter().for_each(|m| op.apply(sum, &parts[*m][..16]));
                back.judge(0, &own, &inbox)
            };
            assert_eq!(judge(&[0, 1, 2]), (1, 0));
            assert_eq!([judge(&[0, 1]), judge(&[0, 1, 2, 2]), judge(&[1, 2])], [(1, 1); 3]);
            assert_eq!((back.bytes_of(0), back.bytes_of(1)), (16, 0));
        }
    }
}
