//! Negative control: Miri must reject this program, else the Miri run proves nothing.
//!
//! A `&[u8]` over memory that a NIC, here another thread, may write at the same time.
//!
//! Miri says: Data race detected

#![expect(clippy::disallowed_methods, reason = "the thread is the NIC")]

use std::ptr;
use std::slice;

use doorbell_hw::verbs::fake::Fake;
use doorbell_hw::verbs::objects::{Context, Pd};
use doorbell_hw::verbs::provider::Provider;

fn main() {
    let fake = Fake::null_device();
    let (list, _) = fake.get_device_list();
    // SAFETY: the first device of a list that is freed afterwards.
    let context = unsafe { Context::open(fake.provider(), *list) }.expect("the fake opens");
    // SAFETY: made above, freed once.
    unsafe { fake.free_device_list(list) };
    let pd = Pd::alloc(&context).expect("a PD");
    let memory: *mut [u8; 8] = Box::into_raw(Box::new([0; 8]));
    // LOCAL_WRITE and REMOTE_WRITE.
    let access = 3;
    // SAFETY: the memory outlives the region.
    let mr = unsafe { fake.reg_mr(pd.as_ptr(), memory.cast(), 8, access) };
    // SAFETY: the region is alive.
    let rkey = unsafe { (*mr).rkey };
    let (nic, at) = (fake.clone(), memory.addr() as u64);
    let writer = std::thread::spawn(move || nic.remote_write(rkey, at, &[1; 8]));
    // The mistake: a reference promises that the bytes do not change.
    // SAFETY: none; this is what Miri has to find.
    let bytes = unsafe { slice::from_raw_parts(memory.cast::<u8>(), 8) };
    println!("sum: {}", bytes.iter().map(|&b| u32::from(b)).sum::<u32>());
    println!("written: {}", writer.join().expect("the NIC does not panic"));
    // SAFETY: made above, given back once.
    unsafe {
        fake.dereg_mr(mr);
        drop(Box::from_raw(ptr::from_mut(&mut *memory)));
    }
}
