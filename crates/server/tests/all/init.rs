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
          check it
      redrive try orders.placed --rules redrive.yaml --answers '503*3,200'
          run a delivery through it
      redrive timeline standard
          show the delays of its retries
      redrive schema > redrive.schema.json
          completion and validation in your editor
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
        let is_quoted = command.split('\'').nth(1).is_some_and(|quoted| quoted.contains('*'));
        assert!(is_quoted || !command.contains('*'), "a shell would expand it: {command}");
        let words = command.split(' ').map(|word| word.trim_matches('\''));
        folder.run(&words.collect::<Vec<_>>()).printed();
    }
}

#[test]
fn a_folder_is_made_for_it() {
    let folder = Folder::new();
    let steps = folder.run(&["init", "rules/new/orders.yaml"]).printed();
    assert!(steps.contains("redrive schema > rules/new/redrive.schema.json\n"), "{steps}");
    folder.run(&["check", "rules/new/orders.yaml", "--deny", "warnings"]).printed();
}

#[test]
fn a_channel_may_be_added_to_it() {
    let folder = Folder::new();
    folder.run(&["init"]).printed();
    let book = fs::read_to_string(folder.path("redrive.yaml")).expect("it was written");
    let channel =
        "    channels:\n      email: { target: { log: stdout }, events: [orders.placed] }\n    events: ";
    let grown = book.replacen("    events: ", channel, 1);
    assert_ne!(grown, book);
    folder.write("redrive.yaml", grown);
    folder.run(&["check", "redrive.yaml", "--deny", "warnings"]).printed();
}

#[test]
fn a_file_that_is_there_is_left_alone() {
    let folder = Folder::with("redrive.yaml", "mine\n");
    insta::assert_snapshot!(
        folder.run(&["init"]).refused(),
        @"error: redrive.yaml exists: choose another file"
    );
    assert_eq!(fs::read_to_string(folder.path("redrive.yaml")).expect("still there"), "mine\n");
    let nowhere = folder.run(&["init", "redrive.yaml/in/a-file.yaml"]);
    assert_eq!(nowhere.code, 2, "a file that cannot be written is no refusal: {}", nowhere.stderr);
}
