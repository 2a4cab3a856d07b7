//! Memory that a NIC may write is behind no reference: what holds its bytes is private.

use doorbell_hw::verbs::region::Region;

fn main() {
    let _ = size_of::<Region>();
}
