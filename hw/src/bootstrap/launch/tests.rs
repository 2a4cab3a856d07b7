//! Environments of launchers, good and bad.

use super::*;

fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
}

fn place_of(pairs: &[(&str, &str)]) -> Result<(u32, u32, String, u16, Launcher), LaunchError> {
    let l = from_env(env(pairs))?.expect("a launcher is there");
    Ok((l.rank, l.size, l.server, l.port, l.launcher))
}

const STEP: [(&str, &str); 5] = [
    ("SLURM_PROCID", "2"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_STEP_NODELIST", "n[07-08]"),
    ("SLURM_JOB_ID", "1000"),
    ("SLURM_STEP_ID", "3"),
];

/// `base` with one variable replaced, or removed.
fn but<'a>(
    base: &[(&'a str, &'a str)],
    name: &'a str,
    value: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<_> = base.iter().copied().filter(|(key, _)| *key != name).collect();
    pairs.extend(value.map(|value| (name, value)));
    pairs
}

#[test]
fn srun_is_understood() {
    let port = 24_000 + (1000 * 61 + 3) % 8_000;
    assert_eq!(place_of(&STEP), Ok((2, 4, "n07".into(), port, Launcher::Slurm)));
    // The step's own size and nodes beat those of the job.
    let step = but(&STEP, "SLURM_STEP_NUM_TASKS", Some("3"));
    let step = but(&step, "SLURM_JOB_NODELIST", Some("other[1-2]"));
    assert_eq!(place_of(&step), Ok((2, 3, "n07".into(), port, Launcher::Slurm)));
    let job = but(&step, "SLURM_STEP_NODELIST", None);
    assert_eq!(place_of(&job), Ok((2, 3, "other1".into(), port, Launcher::Slurm)));
    let one = but(&STEP, "SLURM_STEP_NODELIST", Some("n07"));
    assert_eq!(place_of(&one).unwrap().2, "127.0.0.1", "one machine needs no open port");
}

#[test]
fn ports_of_srun_stay_in_their_range() {
    let max = u32::MAX.to_string();
    for (job, step) in [("0", "0"), ("131", "8"), (max.as_str(), max.as_str())] {
        let pairs = but(&STEP, "SLURM_JOB_ID", Some(job));
        let port = place_of(&but(&pairs, "SLURM_STEP_ID", Some(step))).unwrap().3;
        assert!((DEFAULT_PORT..DEFAULT_PORT + PORT_COUNT).contains(&port), "{port}");
    }
    let ports: std::collections::BTreeSet<u16> = (0..61)
        .map(|step| place_of(&but(&STEP, "SLURM_STEP_ID", Some(&step.to_string()))).unwrap().3)
        .collect();
    assert_eq!(ports.len(), 61, "the steps of a job have their own ports");
    let neither = but(&but(&STEP, "SLURM_STEP_ID", None), "SLURM_JOB_ID", None);
    assert_eq!(place_of(&neither).unwrap().3, DEFAULT_PORT);
}

#[test]
fn mpirun_is_understood_and_beats_the_allocation_around_it() {
    let ompi = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ];
    let here = Ok((1, 2, "127.0.0.1".into(), DEFAULT_PORT, Launcher::OpenMpi));
    assert_eq!(place_of(&ompi), here);
    assert_eq!(place_of(&[&ompi[..], &STEP[..]].concat()), here);
    for local in [None, Some("1")] {
        let spread = but(&ompi, "OMPI_COMM_WORLD_LOCAL_SIZE", local);
        let error = place_of(&spread).unwrap_err();
        assert!(matches!(error, LaunchError::Missing { missing: "DOORBELL_SERVER", .. }));
        assert!(error.to_string().contains("mpirun -x DOORBELL_SERVER=host"), "{error}");
        let named = but(&spread, "DOORBELL_SERVER", Some("n3:9000"));
        assert_eq!(place_of(&named), Ok((1, 2, "n3".into(), 9000, Launcher::OpenMpi)));
    }
}

#[test]
fn variables_by_hand_beat_every_launcher() {
    let hand = [("DOORBELL_RANK", "0"), ("DOORBELL_SIZE", "1"), ("DOORBELL_SERVER", "a.b-c_d")];
    let expected = Ok((0, 1, "a.b-c_d".into(), DEFAULT_PORT, Launcher::ByHand));
    assert_eq!(place_of(&[&STEP[..], &hand[..]].concat()), expected);
    let error = place_of(&hand[..2]).unwrap_err();
    assert!(matches!(error, LaunchError::Missing { missing: "DOORBELL_SERVER", .. }));
}

#[test]
fn no_launcher_is_no_error_and_half_a_launcher_is() {
    assert_eq!(from_env(env(&[])), Ok(None));
    assert_eq!(from_env(env(&[("SLURM_PROCID", " ")])), Ok(None), "empty is not there");
    // The shell of `salloc`.
    assert_eq!(from_env(env(&[("SLURM_NTASKS", "4")])), Ok(None));
    for (found, missing) in [
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        ("DOORBELL_RANK", "DOORBELL_SIZE"),
        ("DOORBELL_SIZE", "DOORBELL_RANK"),
    ] {
        let remedy = ALL_VARIABLES;
        let expected = LaunchError::Missing { found, missing, remedy };
        assert_eq!(from_env(env(&[(found, "1")])), Err(expected));
    }
    let nodes = but(&STEP, "SLURM_STEP_NODELIST", None);
    let error = place_of(&nodes).unwrap_err();
    assert!(error.to_string().contains("SLURM_STEP_NODELIST"), "{error}");
    assert!(error.to_string().contains("DOORBELL_SERVER"), "{error}");
}

#[test]
fn bad_numbers_name_the_variable_its_value_and_the_range() {
    for (name, value) in [
        ("SLURM_PROCID", "-1"),
        ("SLURM_PROCID", "65536"),
        ("SLURM_PROCID", "two"),
        ("SLURM_NTASKS", "0"),
        ("SLURM_NTASKS", "65537"),
        ("SLURM_NTASKS", "1e3"),
        ("SLURM_JOB_ID", "4294967296"),
        ("SLURM_STEP_ID", "x"),
    ] {
        let error = place_of(&but(&STEP, name, Some(value))).unwrap_err();
        assert!(matches!(error, LaunchError::Number { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{name}={value}: ")), "{error}");
    }
    let largest = but(&but(&STEP, "SLURM_NTASKS", Some("65536")), "SLURM_PROCID", Some("65535"));
    assert_eq!(place_of(&largest).map(|p| (p.0, p.1)), Ok((65535, 65536)));
}

#[test]
fn rank_and_size_must_agree() {
    assert_eq!(place_of(&but(&STEP, "SLURM_PROCID", Some("3"))).unwrap().0, 3);
    let error = place_of(&but(&STEP, "SLURM_PROCID", Some("4"))).unwrap_err();
    let (rank_name, size_name) = ("SLURM_PROCID", "SLURM_NTASKS");
    assert_eq!(error, LaunchError::Contradiction { rank_name, rank: 4, size_name, size: 4 });
    assert!(error.to_string().contains("SLURM_PROCID=4 and SLURM_NTASKS=4"), "{error}");
}

#[test]
fn a_bad_node_list_names_the_variable() {
    let error = place_of(&but(&STEP, "SLURM_STEP_NODELIST", Some("n[0-999999999]"))).unwrap_err();
    assert!(matches!(error, LaunchError::Hosts { why: HostListError::TooMany, .. }));
    assert!(error.to_string().starts_with("SLURM_STEP_NODELIST=n[0-999999999]: "), "{error}");
}

#[test]
fn the_server_is_a_host_with_or_without_a_port() {
    let with = |value| place_of(&but(&STEP, "DOORBELL_SERVER", Some(value))).map(|p| (p.2, p.3));
    let slurm_port = place_of(&STEP).unwrap().3;
    for (value, host, port) in [
        ("n1", "n1", slurm_port),
        ("n1:1", "n1", 1),
        (" n1:65535 ", "n1", 65535),
        ("10.0.0.1:80", "10.0.0.1", 80),
        ("[::1]", "::1", slurm_port),
        ("[fe80::1]:80", "fe80::1", 80),
    ] {
        assert_eq!(with(value), Ok((host.to_owned(), port)), "{value}");
    }
    for value in [
        ":80",
        "a:",
        "a:0",
        "a:65536",
        "a:b",
        "::1",
        "[::1",
        "[::1]80",
        "[a]:1",
        "[1.2.3.4]",
        "a b",
    ] {
        assert_eq!(with(value), Err(LaunchError::Server { value: value.to_owned() }), "{value}");
    }
}

#[test]
fn a_list_of_hosts_gives_ranks_in_order() {
    let hosts = parse_list("a:2,b").unwrap();
    let launch = from_hosts(&hosts, 2, env(&[])).unwrap();
    let expected = Launch {
        rank: 2,
        size: 3,
        server: "a".into(),
        port: DEFAULT_PORT,
        launcher: Launcher::ByHand,
    };
    assert_eq!(launch, expected);
    assert_eq!(from_hosts(&hosts, 3, env(&[])), Err(LaunchError::NotInList { rank: 3, size: 3 }));
    assert_eq!(from_hosts(&[], 0, env(&[])), Err(LaunchError::NotInList { rank: 0, size: 0 }));
    let named = from_hosts(&hosts, 0, env(&[("DOORBELL_SERVER", "x:7")])).unwrap();
    assert_eq!((named.server.as_str(), named.port), ("x", 7));
    let one = parse_list("a:2,a").unwrap();
    assert_eq!(from_hosts(&one, 2, env(&[])).unwrap().server, "127.0.0.1");
}

#[test]
fn the_token_is_read_and_never_shown() {
    assert!(token(env(&[])).unwrap().is_none());
    assert!(token(env(&[("DOORBELL_TOKEN", " ")])).unwrap().is_none());
    assert!(token(env(&[("DOORBELL_TOKEN", "0123456789abcdef\n")])).unwrap().is_some());
    let error = token(env(&[("DOORBELL_TOKEN", "hush")])).unwrap_err();
    assert_eq!(error, LaunchError::Token(TokenError { got: 4 }));
    assert!(error.to_string().starts_with("DOORBELL_TOKEN: a token of 4 bytes"), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}
