//! What must hold of any bytes. The fuzz target checks it, and so does a test that replays the
//! corpus.

use doorbell_sim::wire::codec::{DecodeError, MIN_FRAME, decode, decode_ib, encode, encode_ib};

/// Decoding ends, an error lies inside the frame, and what is taken is given back byte for byte
/// (padded to Ethernet's minimum).
pub fn check(bytes: &[u8]) {
    check_ib(bytes);
    let taken = match decode(bytes) {
        Ok(taken) => taken,
        Err(error) => return assert!(offset(&error) <= bytes.len(), "{error} of {bytes:02x?}"),
    };
    let mut again = Vec::new();
    let encoded = encode(&taken.outer, &taken.desc, Some(taken.payload), &mut again);
    assert_eq!(encoded, Ok(()), "{taken:?}");
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().max(MIN_FRAME), 0);
    assert_eq!(again, padded, "{taken:?}");
}

/// The same of a packet of native InfiniBand, which has no minimum.
fn check_ib(bytes: &[u8]) {
    let taken = match decode_ib(bytes) {
        Ok(taken) => taken,
        Err(error) => return assert!(offset(&error) <= bytes.len(), "{error} of {bytes:02x?}"),
    };
    let mut again = Vec::new();
    let encoded = encode_ib(&taken.outer, &taken.desc, Some(taken.payload), &mut again);
    assert_eq!(encoded, Ok(()), "{taken:?}");
    assert_eq!(again, bytes, "{taken:?}");
}

fn offset(error: &DecodeError) -> usize {
    match *error {
        DecodeError::Truncated { offset, .. }
        | DecodeError::EtherType { offset, .. }
        | DecodeError::Value { offset, .. }
        | DecodeError::IpChecksum { offset, .. }
        | DecodeError::Opcode { offset, .. }
        | DecodeError::Unsupported { offset, .. }
        | DecodeError::Payload { offset, .. }
        | DecodeError::Trailer { offset, .. }
        | DecodeError::Icrc { offset, .. }
        | DecodeError::Vcrc { offset, .. } => offset,
    }
}
