//! Hosts and NICs that a program names: they are there.

use super::check::{Checked, refuse};
use super::{Fallback, Initiator, Program, Scenario, Topology};
use crate::profile::Profile;
use crate::run::network::nics_of_hosts;

/// What to do about a NIC that is not there.
pub(super) const OTHER_NIC: &str = "name another, or raise `topology.nics`";

/// What is wrong where one of the hosts has no NIC of this number.
pub(super) fn no_such_nic(
    t: &Topology,
    profile: &Profile,
    nic: u64,
    mut hosts: impl Iterator<Item = u64>,
) -> Option<String> {
    let nics = nics_of_hosts(t, profile);
    let host = hosts.find(|host| nic >= nics(*host) as u64)?;
    Some(format!("NIC {nic} of host {host}, which has {}, from 0 on", nics(host)))
}

/// All hosts from `host` on exist.
pub(super) fn check_range(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    let (all, first, n) = (s.topology.hosts.value(), p.host.value(), p.hosts.value());
    if first + n > all {
        let text = format!("`hosts` is {n} from host {first} on, and the last host is {}", all - 1);
        return refuse(path("hosts"), text, "raise `topology.hosts`, or lower it");
    }
    Ok(())
}

/// Hosts that post: all of them exist, and the peer is none of them.
pub(super) fn check_hosts(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    check_range(s, p, &path)?;
    let (first, n, peer) = (p.host.value(), p.hosts.value(), p.peer.value());
    if (first..first + n).contains(&peer) && n > 1 {
        let text = format!("host {peer} is the peer and one of the {n} hosts that post");
        return refuse(path("peer"), text, "name a host outside of them");
    }
    let proxy = p.initiator == Initiator::CpuProxy || p.fallback == Fallback::CpuProxy;
    if n > 1 && proxy {
        let text = "`hosts` with a proxy".to_owned();
        return refuse(path("hosts"), text, "write a program for each host");
    }
    Ok(())
}

/// Hosts that are members of something: there are two or more, and each has the NIC. `alone` says
/// what it would be of one.
pub(super) fn check_members(
    s: &Scenario,
    profile: &Profile,
    p: &Program,
    alone: &str,
    path: impl Fn(&str) -> String,
) -> Checked {
    check_range(s, p, &path)?;
    let (first, n) = (p.host.value(), p.hosts.value());
    if n < 2 {
        return refuse(path("hosts"), alone.to_owned(), "at least 2 hosts");
    }
    match no_such_nic(&s.topology, profile, p.nic.value(), first..first + n) {
        Some(text) => refuse(path("nic"), text, OTHER_NIC),
        None => Ok(()),
    }
}
