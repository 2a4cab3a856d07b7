//! `doorbell list` and `doorbell schema`

use super::ExitStatus;
use super::args::{ListArgs, SchemaArgs, SchemaKind};
use super::common::print;
use crate::format::keys::keys_markdown;
use crate::format::schema::scenario_schema;
use crate::input::{Node, Source};
use crate::library;
use crate::profile::profile_schema;
use crate::report::claims_markdown;

/// Lists what is built in.
pub(super) fn list(args: &ListArgs) -> ExitStatus {
    if args.claims {
        print(&claims_markdown());
        return ExitStatus::Ok;
    }
    let mut out = String::new();
    for (head, files) in [("scenarios", library::SCENARIOS), ("profiles", library::PROFILES)] {
        if args.quiet {
            files.iter().for_each(|(name, _)| out.extend([name, "\n"]));
            continue;
        }
        out.push_str(&format!("{head}\n"));
        let width = files.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, text) in files {
            let Line { title, claims } = line(text);
            out.push_str(&format!("  {name:width$}  {title}{claims}\n"));
        }
    }
    if !args.quiet {
        out.push_str("run one with `doorbell run NAME`, or give the path of your own file\n");
    }
    print(&out)
}

struct Line {
    title: String,
    claims: String,
}

/// Title and claims, read without the rest: a list must not fail because of one file.
fn line(text: &str) -> Line {
    let root = Node::parse(&Source::new("built-in", text)).ok();
    let of = |key: &str| root.as_ref().and_then(|r| r.table().ok()).and_then(|t| t.get(key));
    let title = of("title").map(Node::text).unwrap_or_default();
    let claims = of("claim").map(Node::text).unwrap_or_default();
    let claims = claims.trim_matches(['[', ']']);
    let claims = if claims.is_empty() { String::new() } else { format!(" [{claims}]") };
    Line { title, claims }
}

/// Prints a JSON schema.
pub(super) fn schema(args: &SchemaArgs) -> ExitStatus {
    let schema = match args.kind {
        SchemaKind::Scenario => scenario_schema(),
        SchemaKind::Profile => profile_schema(),
        SchemaKind::Keys => return print(&keys_markdown()),
    };
    print(&format!("{schema:#}\n"))
}
