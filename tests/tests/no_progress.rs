//! Scenario files that get stuck, by the command in a process: exit status 3 and the reason's name.

use doorbell_tests::command::{Folder, run};

const COMMAND: &str = env!("CARGO_BIN_EXE_command");

/// The output of a run that ends with status 3.
fn stuck(name: &str, qp: &str, program: &str) -> String {
    let head = "title = 't'\nprofile = 'generic-400g'";
    let text = format!("{head}\n[qp]\n{qp}\n[[program]]\nkind = 'script'\n{program}\n");
    let folder = Folder::new(name);
    let file = folder.file("s.toml", text.as_bytes());
    let ended = run(COMMAND, &["run", &file]);
    assert_eq!(ended.status, 3, "{ended:?}");
    ended.stdout
}

#[test]
fn wqes_that_were_never_rung() {
    let steps = "steps = ['post write 16B', 'ring', 'post write 16B x12', 'wait']";
    let said = stuck("unrung", "", steps);
    assert!(said.contains("QP 16: 12 WQEs are staged and no doorbell announced them"), "{said}");
    assert!(said.contains("last ring at 1"), "{said}");
}

#[test]
fn no_receive_posted() {
    let said = stuck("norecv", "", "receives = 'none'\nsteps = ['post send 16B', 'ring', 'wait']");
    assert!(said.contains("no receive is posted (RNR NAKs sent: 1)"), "{said}");
}

#[test]
fn a_full_queue_in_which_nothing_was_signalled() {
    let steps = "steps = ['post write 16B x8 unsignaled', 'ring', 'wait 1']";
    let said = stuck("full", "sq_depth = 8", steps);
    assert!(said.contains("all 8 slots of the send queue are in use"), "{said}");
    assert!(said.contains("signal at least one WQE per queue depth"), "{said}");
}

#[test]
fn completions_that_will_never_come() {
    let steps = "steps = ['post write 16B', 'ring', 'wait 2']";
    let said = stuck("two", "", steps);
    assert!(said.contains("waits for completion queue"), "{said}");
}

#[test]
fn a_time_limit_that_comes_first() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[run]\nlimit = '10us'\n[[program]]\n\
                kind = 'bandwidth'\nsize = '1MiB'\niterations = 1000\n";
    let folder = Folder::new("limit");
    let file = folder.file("s.toml", text.as_bytes());
    let ended = run(COMMAND, &["run", &file]);
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(ended.stdout.contains("the time limit of the run was reached"), "{}", ended.stdout);
}
