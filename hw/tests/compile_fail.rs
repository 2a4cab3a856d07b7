//! Misuse that must not compile. After a change of wording in the compiler:
//! `TRYBUILD=overwrite cargo test -p doorbell-hw --features fake --test compile_fail`.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
