//! The page of claims is what the built-in scenarios say.

#[test]
fn the_page_is_up_to_date() {
    let page = include_str!("../../docs/claims.md");
    assert!(
        page == doorbell::report::claims_markdown(),
        "docs/claims.md is out of date: cargo run --release -- list --claims > docs/claims.md"
    );
}
