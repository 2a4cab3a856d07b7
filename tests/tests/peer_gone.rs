//! Who looks up what can never come is told, and not a moment too early.

use doorbell::workloads::Failure;
use doorbell::workloads::connect::Card;
use doorbell_core::ideal::{Ideal, run};
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;

const KEY: u64 = 1;
const NEVER: u64 = 2;

/// Publishes one key, works for a while, and ends.
struct Publisher(Span);

impl Program for Publisher {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        t.publish(KEY, &[1]);
        t.compute(self.0);
        Next::Done
    }
}

type Answer = Result<Option<usize>, LookupError>;

/// Looks up both keys, without a deadline, until there is an answer for the second.
#[derive(Default)]
struct Asker(Vec<(Time, Answer, Answer)>);

impl Program for Asker {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let now = t.now();
        let [a, b] = [KEY, NEVER].map(|key| t.lookup(0, key, &mut []));
        self.0.push((now, a, b));
        match b {
            Ok(None) => Next::Wait { on: WaitSet::BOOTSTRAP, until: None },
            _ => Next::Done,
        }
    }
}

const GONE: Answer = Err(LookupError::PeerGone { rank: 0 });

/// What rank 1 saw, on host `host`, of a publisher that works for `work` before its end.
fn asked(host: u32, work: Span) -> Vec<(Time, Answer, Answer)> {
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
    world.add_program(HostId(0), machine::core(0), Time::ZERO, Publisher(work));
    let asker = Asker::default();
    let rank = world.add_program(HostId(host), machine::core(1), Time::ZERO, asker);
    assert_eq!(world.run(Time::ZERO + Span::from_ms(1)), RunEnd::Done);
    let program = world.hosts()[host as usize].program(rank).unwrap();
    program.as_any().downcast_ref::<Asker>().unwrap().0.clone()
}

#[test]
fn the_end_of_a_program_takes_as_long_as_a_publication_and_comes_after_it() {
    for host in [0, 1] {
        let work = Span::from_us(5);
        let [first, published, ended] = asked(host, work)[..] else { panic!("three steps") };
        assert_eq!((first.1, first.2), (Ok(None), Ok(None)));
        assert_eq!((published.1, published.2), (Ok(Some(1)), Ok(None)));
        assert_eq!((ended.1, ended.2), (Ok(Some(1)), GONE));
        // The out-of-band network takes 1 us.
        assert!(published.0 >= Time::ZERO + Span::from_us(1), "{}", published.0);
        assert!(ended.0 >= Time::ZERO + work + Span::from_us(1), "{}", ended.0);
        assert!(ended.0 < Time::ZERO + work + Span::from_us(2), "{}", ended.0);
    }
}

#[test]
fn a_value_in_flight_at_the_end_is_not_gone() {
    for host in [0, 1] {
        let seen = asked(host, Span::ZERO);
        assert!(seen.iter().all(|s| s.1 == Ok(None) || s.1 == Ok(Some(1))), "{seen:?}");
        let last = seen.last().unwrap();
        assert_eq!((last.1, last.2), (Ok(Some(1)), GONE));
    }
}

#[test]
fn the_ideal_back_end_tells_too() {
    let (mut publisher, mut asker) = (Publisher(Span::ZERO), Asker::default());
    run(&mut Ideal::new(2), &mut [&mut publisher, &mut asker]).unwrap();
    let last = asker.0.last().unwrap();
    assert_eq!((last.1, last.2), (Ok(Some(1)), GONE));
}

/// Asks for a card that never comes.
#[derive(Default)]
struct Linker(Option<Failure>);

impl Program for Linker {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        match Card::lookup(t, 0, 1, 0) {
            Ok(_) => Next::Wait { on: WaitSet::BOOTSTRAP, until: None },
            Err(failure) => {
                self.0 = Some(failure);
                Next::Done
            }
        }
    }
}

#[test]
fn the_failure_of_a_workload_names_the_peer() {
    let (mut publisher, mut linker) = (Publisher(Span::ZERO), Linker::default());
    run(&mut Ideal::new(2), &mut [&mut publisher, &mut linker]).unwrap();
    let failure = linker.0.expect("the card can never come").to_string();
    assert_eq!(failure, "bootstrap: rank 0 has ended without publishing that");
}
