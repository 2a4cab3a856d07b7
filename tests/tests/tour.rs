//! The tour on the back ends that need nothing.

use doorbell_core::ideal::{Ideal, run};
use doorbell_core::units::Time;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use doorbell_tests::tour::{Tour, TourConfig, TourReport};

/// What both ranks see of the default tour, wherever it runs: 500 WRITEs are 31 batches of 16 and
/// one of 4.
fn expected() -> TourReport {
    TourReport { pings: 50, writes: 500, rings: 32, written: 500, read_bytes: 100_000 }
}

fn check(tour: &Tour) {
    assert_eq!((tour.failure.as_deref(), &tour.report), (None, &expected()));
}

#[test]
fn on_the_ideal_back_end() {
    let [mut a, mut b] = [0, 1].map(|rank| Tour::new(TourConfig::default(), rank));
    run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
    check(&a);
    check(&b);
}

#[test]
fn on_the_simulator() {
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
    for rank in 0..2 {
        let tour = Tour::new(TourConfig::default(), rank);
        world.add_program(HostId(rank), machine::core(0), Time::ZERO, tour);
    }
    assert_eq!(world.run(Time::from_ps(1_000_000_000_000)), RunEnd::Done);
    for rank in 0..2 {
        check(world.program::<Tour>(rank).unwrap());
    }
}
