//! What the fake device is: its ports, its limits, its habits.

use core::ffi::c_int;

use doorbell_core::verbs::Mtu;

/// Type of an entry of the GID table (`enum ibv_gid_type`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum GidType {
    /// InfiniBand.
    Ib = 0,
    /// RoCE version 1: no IP header.
    RoceV1 = 1,
    /// RoCE version 2: over UDP.
    RoceV2 = 2,
}

/// One entry of the GID table of port 1.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct GidConfig {
    /// Index in the table; holes are usual.
    pub index: u32,
    /// Type.
    pub ty: GidType,
    /// The 16 bytes in the order of the wire.
    pub gid: [u8; 16],
    /// Index of the network device behind it; 0 for none.
    pub ndev_ifindex: u32,
}

impl GidConfig {
    /// An entry that is an IPv4 address mapped into IPv6.
    pub const fn ipv4(index: u32, ty: GidType, addr: [u8; 4]) -> Self {
        let [a, b, c, d] = addr;
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d];
        Self { index, ty, gid, ndev_ifindex: 2 }
    }

    /// A link-local entry.
    pub const fn link_local(index: u32, ty: GidType, interface_id: u64) -> Self {
        let mut gid = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let id = interface_id.to_be_bytes();
        let mut i = 0;
        while i < 8 {
            gid[8 + i] = id[i];
            i += 1;
        }
        Self { index, ty, gid, ndev_ifindex: 2 }
    }
}

/// What a port is connected to (`IBV_LINK_LAYER_*`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand = 1,
    /// Ethernet.
    Ethernet = 2,
}

/// Port 1, the only one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// `enum ibv_port_state`: 1 down, 2 init, 3 armed, 4 active.
    pub state: u32,
    /// What it is connected to.
    pub link_layer: LinkLayer,
    /// MTU in use.
    pub active_mtu: Mtu,
    /// Largest MTU.
    pub max_mtu: Mtu,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Code of the link width: 1, 2, 4, 8 for 1x, 4x, 8x, 12x.
    pub active_width: u8,
    /// Code of the lane speed: 32 for EDR, 64 for HDR.
    pub active_speed: u8,
    /// GID table, in the order in which the library tells it.
    pub gids: Vec<GidConfig>,
}

/// What the device grants at most. Fields without a comment are those of `ibv_device_attr`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the field of ibv_device_attr of its name")]
pub struct Limits {
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_mr: u32,
    pub max_mr_size: u64,
    pub max_pd: u32,
    pub max_srq: u32,
    pub max_srq_wr: u32,
    pub max_srq_sge: u32,
    pub max_qp_rd_atom: u32,
    pub max_qp_init_rd_atom: u32,
    /// Largest `max_inline_data`, in bytes. No verb tells it beforehand.
    pub max_inline: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_qp: 1 << 10,
            max_qp_wr: 1 << 15,
            max_sge: 30,
            max_cq: 1 << 10,
            max_cqe: 1 << 22,
            max_mr: 1 << 16,
            max_mr_size: u64::MAX,
            max_pd: 1 << 10,
            max_srq: 1 << 10,
            max_srq_wr: 1 << 15,
            max_srq_sge: 31,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            max_inline: 512,
        }
    }
}

/// One device of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceConfig {
    /// Name, at most 63 bytes.
    pub name: String,
    /// Folder of the device in sysfs, at most 255 bytes; empty for none.
    pub ibdev_path: String,
    /// GUID of the node.
    pub node_guid: u64,
    /// Port 1.
    pub port: PortConfig,
    /// Limits.
    pub limits: Limits,
    /// Whether it has ATOMICs.
    pub atomics: bool,
}

impl DeviceConfig {
    /// A RoCE device like those of a cluster: link-local and IPv4 entries in both versions, the
    /// routable RoCEv2 one last. `n` tells devices apart: it is in GUID and address.
    pub fn roce(name: &str, n: u8) -> Self {
        let guid = 0x0200_00FF_FE00_0000 | u64::from(n);
        let gids = vec![
            GidConfig::link_local(0, GidType::RoceV1, guid),
            GidConfig::link_local(1, GidType::RoceV2, guid),
            GidConfig::ipv4(2, GidType::RoceV1, [10, 0, 0, n]),
            GidConfig::ipv4(3, GidType::RoceV2, [10, 0, 0, n]),
        ];
        Self {
            name: name.to_owned(),
            ibdev_path: String::new(),
            node_guid: guid,
            port: PortConfig {
                state: 4,
                link_layer: LinkLayer::Ethernet,
                active_mtu: Mtu::B4096,
                max_mtu: Mtu::B4096,
                lid: 0,
                active_width: 2,
                active_speed: 32,
                gids,
            },
            limits: Limits::default(),
            atomics: true,
        }
    }

    /// An InfiniBand device with one GID.
    pub fn infiniband(name: &str, n: u8) -> Self {
        let mut device = Self::roce(name, n);
        device.port.link_layer = LinkLayer::InfiniBand;
        device.port.lid = 0x10 + u16::from(n);
        device.port.gids = vec![GidConfig::link_local(0, GidType::Ib, device.node_guid)];
        device
    }
}

/// How sizes that were asked for become sizes that are granted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Rounding {
    /// Exactly what was asked for.
    #[default]
    Exact,
    /// The next power of two, up to the limit.
    PowerOfTwo,
}

/// How much of extended verbs the context has.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Extended {
    /// All.
    #[default]
    Full,
    /// The context is older than the `query_port` operation, and has `create_qp_ex`.
    NoQueryPort,
    /// The context is older than both.
    NoCreateQp,
    /// A context without extension around it.
    Absent,
}

/// Sign of an `errno` that a function returns.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum ErrnoSign {
    /// As the manual says.
    #[default]
    Positive,
    /// As some providers do.
    Negative,
}

/// What a refused post says about the first work request that was not taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum BadWr {
    /// Points to it.
    #[default]
    Points,
    /// Null: the caller cannot know what was taken.
    Null,
    /// The place is not written.
    Untouched,
}

/// When the work requests of a QP that a modify put into ERR are flushed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum FlushAt {
    /// In the modify.
    #[default]
    Modify,
    /// When [`Fake::flush`](super::Fake::flush) is called.
    Script,
}

/// The whole fake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FakeConfig {
    /// The devices; may be empty.
    pub devices: Vec<DeviceConfig>,
    /// The list is null with this `errno`; `ENOSYS` without RDMA in the kernel.
    pub list_errno: Option<c_int>,
    /// Opening fails with this `errno`, for example `EACCES`.
    pub open_errno: Option<c_int>,
    /// How sizes are granted.
    pub rounding: Rounding,
    /// Extended verbs.
    pub extended: Extended,
    /// Sign of returned `errno` values.
    pub errno_sign: ErrnoSign,
    /// Bytes that may be registered at a time; more is `ENOMEM`. `None` for no limit.
    pub memlock: Option<u64>,
    /// What a receive posted in RESET leaves in `bad_wr`; it is refused anyway.
    pub recv_in_reset: BadWr,
    /// When a modify to ERR flushes.
    pub flush_at: FlushAt,
    /// Completions of a QP leave its queues at RESET and destroy, as with most providers; those of
    /// software devices stay, and a later poll finds them.
    pub purges: bool,
    /// Every send completes while it is posted; only signalled ones give a CQE.
    pub echo: bool,
}

impl Default for FakeConfig {
    /// One RoCE device `fake0` that does everything by the manual.
    fn default() -> Self {
        Self {
            devices: vec![DeviceConfig::roce("fake0", 1)],
            list_errno: None,
            open_errno: None,
            rounding: Rounding::default(),
            extended: Extended::default(),
            errno_sign: ErrnoSign::default(),
            memlock: None,
            recv_in_reset: BadWr::Null,
            flush_at: FlushAt::default(),
            purges: true,
            echo: false,
        }
    }
}
