//! `redrive init`: a book to start from, which is sound, and which never takes another's place.

use std::fs;

use crate::run::Folder;

#[test]
fn a_new_book_is_written_and_passes_check() {
    let folder = Folder::new();
    insta::assert_snapshot!(folder.run(&["init"]).printed(), @r#"
    ✓ wrote redrive.yaml

    Next:
      redrive check redrive.yaml
          finds what is wrong with it
      redrive try orders.placed --rules redrive.yaml --answers 503*3,200
          walks a delivery through it
      redrive timeline standard
          shows how long its retries wait
      redrive schema > redrive.schema.json
          lets your editor complete and check it
    "#);
    folder.run(&["check", "redrive.yaml", "--deny", "warnings"]).printed();
    let book = fs::read_to_string(folder.path("redrive.yaml")).expect("it was written");
    let first = book.lines().next();
    assert_eq!(first, Some("# yaml-language-server: $schema=./redrive.schema.json"));
    assert!(book.contains("redrive schema > redrive.schema.json"));
    assert!(book.lines().count() <= 45, "short enough to be read");
}

#[test]
fn the_next_steps_work_as_they_are_printed() {
    let folder = Folder::new();
    let steps = folder.run(&["init", "mine.yaml"]).printed();
    let commands = steps.lines().filter_map(|line| line.trim().strip_prefix("redrive "));
    let commands: Vec<&str> = commands.filter(|line| !line.contains('>')).collect();
    assert_eq!(commands.len(), 3, "{steps}");
    for command in commands {
        folder.run(&command.split(' ').collect::<Vec<_>>()).printed();
    }
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let folder = Folder::with("redrive.yaml", "mine\n");
    insta::assert_snapshot!(
        folder.run(&["init"]).refused(),
        @"error: redrive.yaml is there already and stays as it is: name another file"
    );
    assert_eq!(fs::read_to_string(folder.path("redrive.yaml")).expect("still there"), "mine\n");
    let nowhere = folder.run(&["init", "no/such/folder.yaml"]);
    assert_eq!(nowhere.code, 2, "a file that cannot be written is no refusal: {}", nowhere.stderr);
}
