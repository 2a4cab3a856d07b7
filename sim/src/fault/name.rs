//! Names of links: `host0-switch0`, `host0.port1-host1.port1`.

use core::fmt;
use std::str::FromStr;

use crate::fabric::End;
use crate::wire::PortId;

/// One end of a link: a node, and one of its ports where a node has several links.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkEnd {
    /// The node.
    pub node: End,
    /// Its port; `None`: any.
    pub port: Option<PortId>,
}

impl LinkEnd {
    /// Any port of a node.
    pub const fn of(node: End) -> Self {
        Self { node, port: None }
    }

    /// Whether the port of the node is meant.
    pub fn is(self, node: End, port: PortId) -> bool {
        self.node == node && self.port.is_none_or(|p| p == port)
    }
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            End::Host(i) => write!(f, "host{i}")?,
            End::Switch(i) => write!(f, "switch{i}")?,
        }
        self.port.map_or(Ok(()), |PortId(p)| write!(f, ".port{p}"))
    }
}

/// The text names no link or no end of one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ParseLinkError;

impl fmt::Display for ParseLinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a link is `host0-switch0`, an end of it `host0` or `switch0.port1`")
    }
}

impl std::error::Error for ParseLinkError {}

impl FromStr for LinkEnd {
    type Err = ParseLinkError;

    fn from_str(text: &str) -> Result<Self, ParseLinkError> {
        let (node, port) = match text.split_once('.') {
            Some((node, port)) => (node, Some(number(port.strip_prefix("port"))?)),
            None => (text, None),
        };
        let port = port.map(u16::try_from).transpose().map_err(|_| ParseLinkError)?;
        let node = match node.strip_prefix("switch") {
            Some(n) => End::Switch(number(Some(n))?),
            None => End::Host(number(node.strip_prefix("host"))?),
        };
        Ok(Self { node, port: port.map(PortId) })
    }
}

/// Digits only, and no leading zero: a link has one name.
fn number(text: Option<&str>) -> Result<u32, ParseLinkError> {
    let text = text.ok_or(ParseLinkError)?;
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !plain {
        return Err(ParseLinkError);
    }
    text.parse().map_err(|_| ParseLinkError)
}

/// Both ends of a link, in either order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkName {
    /// One end.
    pub a: LinkEnd,
    /// The other.
    pub b: LinkEnd,
}

impl LinkName {
    /// The links between two nodes.
    pub const fn between(a: End, b: End) -> Self {
        Self { a: LinkEnd::of(a), b: LinkEnd::of(b) }
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.a, self.b)
    }
}

impl FromStr for LinkName {
    type Err = ParseLinkError;

    fn from_str(text: &str) -> Result<Self, ParseLinkError> {
        let (a, b) = text.split_once('-').ok_or(ParseLinkError)?;
        Ok(Self { a: a.parse()?, b: b.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["host0-host1", "host12-switch0", "switch0.port3-host1.port0"] {
            assert_eq!(text.parse::<LinkName>().unwrap().to_string(), text);
        }
        let end: LinkEnd = "switch2.port7".parse().unwrap();
        assert_eq!(end, LinkEnd { node: End::Switch(2), port: Some(PortId(7)) });
        assert!(end.is(End::Switch(2), PortId(7)));
        assert!(!end.is(End::Switch(2), PortId(6)) && !end.is(End::Host(2), PortId(7)));
        assert!(LinkEnd::of(End::Host(1)).is(End::Host(1), PortId(9)));
    }

    #[test]
    fn what_is_no_link() {
        for bad in ["", "host0", "host-host1", "host0-", "hos0-host1", "host0.1-host1"] {
            assert_eq!(bad.parse::<LinkName>(), Err(ParseLinkError), "{bad}");
        }
        for bad in ["host01", "host+1", "host0.port65536", "host4294967296", "host0.portx"] {
            assert_eq!(bad.parse::<LinkEnd>(), Err(ParseLinkError), "{bad}");
        }
    }
}
