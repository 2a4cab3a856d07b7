//! Why a device could not be opened, and what to do about it.

use std::fmt;
use std::path::PathBuf;

use super::objects::Errno;
use crate::gid::GidError;

/// State of a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PortState(pub u32);

impl PortState {
    /// The only state that takes packets.
    pub const ACTIVE: Self = Self(4);
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("NOP"),
            1 => f.write_str("DOWN"),
            2 => f.write_str("INIT"),
            3 => f.write_str("ARMED"),
            4 => f.write_str("ACTIVE"),
            5 => f.write_str("ACTIVE_DEFER"),
            other => write!(f, "state {other}"),
        }
    }
}

impl serde::Serialize for PortState {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Why there is no open device. Each message names the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel lists no RDMA device.
    #[error(
        "no RDMA device: {}; load the NIC's driver (`modprobe mlx5_ib`, for example); `rdma link` \
         shows what the kernel has",
        if *.supported { "the kernel lists none" } else { "no verbs in the kernel (ib_uverbs)" }
    )]
    NoDevices {
        /// Whether the kernel knows of RDMA at all.
        supported: bool,
    },
    /// The library could not list the devices.
    #[error("ibv_get_device_list: {0}; is /sys there, and readable?")]
    List(Errno),
    /// No device has that name.
    #[error("no RDMA device \"{name}\"; there {}", Names(.there))]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// What there is.
        there: Vec<String>,
    },
    /// None of several devices or ports can be used.
    #[error("no device can be used:{}", Refused(.0))]
    NoneUsable(Vec<Self>),
    /// The device file is there and may not be opened.
    #[error(
        "no permission to open {}; join the group that owns it (often `rdma`), or pass the device \
         into the container", .path.display()
    )]
    Permission {
        /// The file.
        path: PathBuf,
    },
    /// The device file is missing.
    #[error(
        "there is no {}; load ib_uverbs (`modprobe ib_uverbs`), or pass /dev/infiniband into the \
         container", .path.display()
    )]
    NoDeviceFile {
        /// The file.
        path: PathBuf,
    },
    /// The device has no such port.
    #[error("{device} has no port {port}; its ports are 1 to {ports}")]
    NoSuchPort {
        /// The device.
        device: String,
        /// What was asked for.
        port: u8,
        /// How many it has.
        ports: u8,
    },
    /// The port takes no packets.
    #[error(
        "port {port} of {device} is {state}, not ACTIVE; look at the cable and `ip link` (on \
         Ethernet: `ip link set NETDEV up`), on InfiniBand at the subnet manager"
    )]
    PortNotActive {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// Neither InfiniBand nor Ethernet.
    #[error("port {port} of {device} has the unknown link layer {layer}; choose another device")]
    LinkLayer {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The code of `<infiniband/verbs.h>`.
        layer: u8,
    },
    /// The MTU is none that this library knows.
    #[error("port {port} of {device} has an MTU that verbs do not know; choose another device")]
    Mtu {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// The GID table lacks what is needed.
    #[error("port {port} of {device}: {cause}")]
    Gid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// What is missing.
        cause: GidError,
    },
    /// The library or the kernel refused a call.
    #[error("{call} of {device}: {errno}; the kernel's log (`dmesg`) may say why")]
    Os {
        /// The function.
        call: &'static str,
        /// The device.
        device: String,
        /// What it answered.
        errno: Errno,
    },
}

/// What there is instead.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0.len() == 1 { "is" } else { "are" };
        write!(f, "{verb} {}", self.0.join(", "))
    }
}

/// Why each one was refused, a line for each.
struct Refused<'a>(&'a [OpenError]);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_remedy() {
        let device = || "mlx5_0".to_owned();
        let path = || PathBuf::from("/dev/infiniband/uverbs0");
        let down = OpenError::PortNotActive { device: device(), port: 1, state: PortState(1) };
        let there = vec![device(), "mlx5_1".to_owned()];
        let cases = [
            (
                OpenError::NoDevices { supported: false },
                "no verbs in the kernel (ib_uverbs); load the",
            ),
            (
                OpenError::NoDevices { supported: true },
                "the kernel lists none; load the NIC's driver (`modprobe mlx5_ib`",
            ),
            (
                OpenError::NoSuchDevice { name: "x".to_owned(), there },
                "no RDMA device \"x\"; there are mlx5_0, mlx5_1",
            ),
            (
                OpenError::Permission { path: path() },
                "open /dev/infiniband/uverbs0; join the group",
            ),
            (OpenError::NoDeviceFile { path: path() }, "there is no /dev/infiniband/uverbs0; load"),
            (OpenError::NoSuchPort { device: device(), port: 3, ports: 2 }, "its ports are 1 to 2"),
            (down.clone(), "port 1 of mlx5_0 is DOWN, not ACTIVE; look at the cable"),
            (OpenError::NoneUsable(vec![down]), "no device can be used:\n  port 1 of mlx5_0 is"),
            (
                OpenError::Os { call: "ibv_query_port", device: device(), errno: Errno(22) },
                "ibv_query_port of mlx5_0: EINVAL, Invalid argument (os error 22)",
            ),
        ];
        for (error, part) in cases {
            assert!(error.to_string().contains(part), "{part:?} is not in {error}");
        }
    }
}
