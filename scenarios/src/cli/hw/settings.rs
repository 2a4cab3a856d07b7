//! What of a scenario hardware honours, what it refuses, and what only the simulator reads.

use crate::format::expand::Expanded;
use crate::format::{
    Initiator, Memory, Numa, Payload, Program, ProgramKind, RunOptions, Scenario, Step, Topology,
};
use crate::run::{Point, RunError};

fn refused(index: usize, field: &str, what: &str, help: impl Into<String>) -> RunError {
    RunError::BadInput {
        path: format!("program.{index}.{field}"),
        message: format!("`{field} = {what}` on hardware"),
        help: help.into(),
    }
}

/// Refuses what a run on hardware cannot honour.
///
/// # Errors
/// The first field that it cannot honour, with the remedy.
pub(super) fn check(point: &Point) -> Result<(), RunError> {
    point.scenario.program.iter().enumerate().try_for_each(|(i, p)| check_program(i, p))
}

fn check_program(i: usize, p: &Program) -> Result<(), RunError> {
    let no = |field: &str, what: &str, why: &str, remedy: &str| {
        Err(refused(i, field, what, format!("{why}: --set program.{i}.{field}={remedy}")))
    };
    if p.kind == ProgramKind::Flows {
        let help = "two hosts share no clock, so no flow starts on time: write a program for each";
        return Err(refused(i, "kind", "\"flows\"", help));
    }
    if p.kind == ProgramKind::Transfer {
        let help = "its copies and its kernel are models: write `kind = \"latency\"`";
        return Err(refused(i, "kind", "\"transfer\"", help));
    }
    match p.initiator {
        Initiator::Cpu => {}
        Initiator::Gpu => return no("initiator", "\"gpu\"", "only cores post here", "cpu"),
        Initiator::CpuProxy => {
            return no("initiator", "\"cpu-proxy\"", "no GPU produces here", "cpu");
        }
    }
    if !p.kind.is_group() && p.host.value() == p.peer.value() {
        let own = p.host.value().to_string();
        let other = if own == "0" { "1" } else { "0" };
        return no("peer", &own, "a process is one host, and its peer is another", other);
    }
    for (field, memory) in [("memory", p.memory), ("peer_memory", p.peer_memory)] {
        if memory == Memory::Gpu {
            return no(field, "\"gpu\"", "only host memory is registered", "host");
        }
    }
    if p.numa == Numa::Remote {
        return no("numa", "\"remote\"", "start the process by `numactl`", "local");
    }
    if p.share_qp && p.threads.value() > 1 {
        return no("share_qp", "true", "each thread has queue pairs of its own", "false");
    }
    let later = |step: &Step| matches!(step, Step::Dereg { after: Some(_), .. });
    if let Some(step) = p.steps.iter().position(later) {
        let help = "two hosts share no clock: leave `after` out";
        return Err(refused(i, &format!("steps.{step}"), "dereg after=…", help));
    }
    // The answer to a WRITE is seen in its bytes, so ping-pong has contents in any case, and so has
    // what is summed.
    let has_bytes = matches!(p.kind, ProgramKind::PingPong | ProgramKind::Aggregate);
    if p.payload == Payload::Virtual && !has_bytes {
        return no("payload", "\"virtual\"", "memory of hardware has bytes", "data");
    }
    if p.steps.iter().any(|s| matches!(s, Step::State(state) if state.set.gid.is_some())) {
        let help = "only the simulator knows the address of a host by its number: leave it out";
        return Err(refused(i, "steps", "state rtr gid=host…", help));
    }
    Ok(())
}

/// The scenario as it runs: ping-pong has contents, whatever the default of the file is. (So has an
/// aggregation, which knows no such key.)
pub(super) fn as_run(point: &Point) -> Scenario {
    let mut scenario = point.scenario.clone();
    for p in scenario.program.iter_mut().filter(|p| p.kind == ProgramKind::PingPong) {
        p.payload = Payload::Data;
    }
    scenario
}

/// What file and command line say and only the simulator reads.
pub(super) fn ignored(Expanded { point, tree }: &Expanded, expects: bool) -> Vec<String> {
    let s = &point.scenario;
    let RunOptions { noise, host, limit, events } = RunOptions::default();
    let mut out = vec![format!("profile {} (but its limits count)", s.profile)];
    let mut add = |present: bool, name: &str| {
        if present {
            out.push(name.to_owned());
        }
    };
    add(!s.settings.is_empty(), "settings");
    let plain = Topology { hosts: s.topology.hosts, ..Topology::default() } == s.topology;
    let by_switch = s.program.iter().any(Program::is_grouped_by_switch);
    add(!plain && !by_switch, "topology");
    add(!plain && by_switch, "topology (but its switches group the members)");
    add(s.run.noise != noise, "run.noise");
    add(s.run.host != host, "run.host");
    add(s.run.limit != limit, "run.limit");
    add(s.run.events != events, "run.events");
    add(s.record.timeline, "record.timeline");
    add(s.program.iter().any(|p| p.start_spread.is_some()), "start_spread");
    add(!s.fault.is_empty(), "fault");
    let draws = s.program.iter().any(|p| p.kind.is_group());
    add(!draws && tree.table().is_ok_and(|t| t.get("seed").is_some()), "seed");
    add(expects, "expect");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Target;
    use crate::cli::common::ready;

    fn point(set: &[&str]) -> Point {
        expanded(set).point
    }

    fn expanded(set: &[&str]) -> Expanded {
        let set = set.iter().map(|s| (*s).to_owned()).collect();
        let target = Target { scenario: "hello".to_owned(), set, seed: None };
        ready(&target).unwrap().points.swap_remove(0)
    }

    #[test]
    fn hosts_without_a_common_clock_agree_on_no_time() {
        let mut changed = point(&["program.0.payload=data"]);
        let p = &mut changed.scenario.program[0];
        p.steps = vec![Step::Dereg { own: false, after: None }];
        check(&changed).unwrap();
        let after = Some(doorbell_core::units::Span::from_us(60));
        changed.scenario.program[0].steps.push(Step::Dereg { own: false, after });
        let RunError::BadInput { path, message, .. } = check(&changed).unwrap_err() else {
            panic!("not a place in the file");
        };
        assert_eq!(path, "program.0.steps.1");
        assert!(message.contains("dereg after=…"), "{message}");
    }

    #[test]
    fn what_hardware_cannot_do_is_refused_by_its_field() {
        check(&point(&["program.0.payload=data"])).unwrap();
        for (set, field) in [
            ("program.0.payload=virtual", "`payload = \"virtual\"`"),
            ("program.0.initiator=gpu", "`initiator = \"gpu\"`"),
            ("program.0.memory=gpu", "`memory = \"gpu\"`"),
            ("program.0.peer_memory=gpu", "`peer_memory = \"gpu\"`"),
            ("program.0.numa=remote", "`numa = \"remote\"`"),
            ("program.0.peer=0", "`peer = 0`"),
        ] {
            let mut changed = point(&["program.0.payload=data"]);
            let p = &mut changed.scenario.program[0];
            match field {
                f if f.contains("payload") => p.payload = Payload::Virtual,
                f if f.contains("initiator") => p.initiator = Initiator::Gpu,
                "`peer = 0`" => p.peer = p.host,
                f if f.contains("peer_memory") => p.peer_memory = Memory::Gpu,
                f if f.contains("memory") => p.memory = Memory::Gpu,
                _ => p.numa = Numa::Remote,
            }
            let RunError::BadInput { path, message, help } = check(&changed).unwrap_err() else {
                panic!("{set}")
            };
            assert!(message.starts_with(field), "{message}");
            assert!(set.starts_with(&path), "{path}");
            // What the help says is a change that helps.
            let (_, remedy) = help.split_once("--set ").unwrap();
            check(&point(&["program.0.payload=data", remedy])).unwrap();
        }
    }

    #[test]
    fn queue_pairs_are_shared_by_nobody() {
        let mut shared = point(&["program.0.payload=data"]);
        shared.scenario.program[0].share_qp = true;
        check(&shared).unwrap();
        shared.scenario.program[0].threads = crate::quantity::Count::of(2);
        assert!(check(&shared).unwrap_err().to_string().contains("`share_qp = true`"));
    }

    #[test]
    fn a_wrong_address_needs_the_hosts_of_the_simulator() {
        let mut changed = point(&["program.0.payload=data"]);
        let with = |step: &str| vec![Step::parse(step).unwrap()];
        changed.scenario.program[0].steps = with("state rtr dest_qp=1");
        check(&changed).unwrap();
        changed.scenario.program[0].steps = with("state rtr gid=host1");
        assert!(check(&changed).unwrap_err().to_string().contains("gid=host"));
    }

    #[test]
    fn what_is_ignored_is_said() {
        let set = ["run.limit=1s", "topology.propagation=1us", "seed=3"];
        let all = ignored(&expanded(&set), true);
        assert_eq!(all[0], "profile generic-400g (but its limits count)");
        for name in ["topology", "run.limit", "seed", "expect"] {
            assert!(all.iter().any(|i| i == name), "{name} is not in {all:?}");
        }
        let few = ignored(&expanded(&["run.noise=on", "record.timeline=false"]), false);
        assert_eq!(few, ["profile generic-400g (but its limits count)"]);
    }
}
