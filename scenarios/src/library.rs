//! Scenarios and profiles that are part of the binary, so that it works in any folder.
//!
//! The lists are made by the build script from the files in `library/`, `profiles/`,
//! `calibration/`, `sizes/` and `workloads/`: a new scenario is one new file and nothing else.

include!(concat!(env!("OUT_DIR"), "/library.rs"));

fn find(files: &'static [(&str, &str)], name: &str) -> Option<&'static str> {
    let index = files.binary_search_by_key(&name, |(n, _)| n).ok()?;
    Some(files[index].1)
}

/// The text of a built-in scenario.
pub fn scenario(name: &str) -> Option<&'static str> {
    find(SCENARIOS, name)
}

/// The text of a built-in profile.
pub fn profile(name: &str) -> Option<&'static str> {
    find(PROFILES, name)
}

/// The text of a built-in calibration.
pub fn calibration(name: &str) -> Option<&'static str> {
    find(CALIBRATIONS, name)
}

/// The text of a built-in distribution of flow sizes.
pub fn sizes(name: &str) -> Option<&'static str> {
    find(SIZES, name)
}

/// The text of a built-in list of flows, by the path that built-in scenarios have for it.
pub fn flow_list(path: &str) -> Option<&'static str> {
    find(FLOW_LISTS, path.strip_prefix("../workloads/")?.strip_suffix(".csv")?)
}
