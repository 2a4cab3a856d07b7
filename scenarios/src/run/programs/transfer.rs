//! Transfers: a sender and its peer, the same program on both sides.

use doorbell_core::transport::MemKind;
use doorbell_core::verbs::Mtu;
use doorbell_sim::host::PollMode;

use super::{Planner, Role, peer_poll_mode, poll_mode};
use crate::format::{self, Program};
use crate::run::{RunError, hardware};
use crate::workloads::{LocalConfig, TcpCosts, Transfer, TransferConfig, TransferPath};

impl Planner<'_> {
    /// Senders first, then the peer of each.
    pub(super) fn transfer(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        let (threads, hosts) = (p.threads.value() as u32, p.hosts.value() as u32);
        let (first, all) = (self.next(), threads * hosts);
        // A kernel has its threads sleep, whatever the program says.
        let tcp = p.transfer.as_ref().is_some_and(|x| x.path == format::TransferPath::Tcp);
        let poll = |asked| if tcp { PollMode::Event } else { asked };
        for n in 0..all {
            let at = (p.host.value() as u32 + n / threads, p.nic.value() as u8);
            let on = self.core(at, Some(self.numa(index, p)?), poll(poll_mode(p)));
            let config = self.transfer_config(index, p, first + all + n, true)?;
            self.add((index, at.0, Role::Sender), on, Transfer::new(config).into())?;
        }
        let at = (p.peer.value() as u32, p.nic_of_peer());
        for n in 0..all {
            let on = self.core(at, None, poll(peer_poll_mode(p)));
            let config = self.transfer_config(index, p, first + n, false)?;
            self.add((index, at.0, Role::Peer), on, Transfer::new(config).into())?;
        }
        Ok(())
    }

    fn transfer_config(
        &self,
        index: usize,
        p: &Program,
        to: u32,
        starts: bool,
    ) -> Result<TransferConfig, RunError> {
        let x = p.transfer.as_ref().expect("checked when loaded");
        let (link, nic) = match starts {
            true => (self.link(index, p, to)?, p.nic.value() as u8),
            false => (self.peer_link(index, p, to)?, p.nic_of_peer()),
        };
        let local = self.local(index, p, !starts)?;
        let config = TransferConfig {
            local,
            link,
            starts,
            size: p.size.0.0 as u32,
            segment: x.segment_of(p.size.0) as u32,
            window: p.window.map_or(1, |w| w.value()) as u32,
            iterations: p.iterations.value(),
            warm_up: p.warmup.value(),
            path: self.transfer_path(x.path),
            near: MemKind::Host { numa: self.near(nic) },
        };
        let region_bytes = config.region_bytes().max(4096);
        Ok(TransferConfig { local: LocalConfig { region_bytes, ..local }, ..config })
    }

    fn transfer_path(&self, path: format::TransferPath) -> TransferPath {
        match path {
            format::TransferPath::Registered => TransferPath::Registered,
            format::TransferPath::Pool => TransferPath::Pool,
            format::TransferPath::Copy => TransferPath::Copy,
            format::TransferPath::PerMessage => TransferPath::PerMessage,
            format::TransferPath::Staged => TransferPath::Staged,
            format::TransferPath::Tcp => {
                let (profile, qp) = (&self.point.profile, &self.point.scenario.qp);
                let (k, mtu) = (&profile.kernel, Mtu::from_bytes(qp.mtu.0.0 as u32));
                TransferPath::Tcp(TcpCosts {
                    syscall: k.syscall,
                    context_switch: k.context_switch,
                    tx_segment: k.tx_segment,
                    rx_segment: k.rx_segment,
                    rx_packet: k.rx_packet,
                    packet_bytes: hardware::packet_payload(profile, mtu.expect("checked")),
                })
            }
        }
    }
}
