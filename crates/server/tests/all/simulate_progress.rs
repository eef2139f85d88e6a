//! How far a simulation is, in a real terminal: shown while it lasts, wiped when it is over, and nowhere else. And that
//! what is printed there fits into its lines.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthStr;

use crate::run::Folder;
use crate::simulate::{BOOK, OUTAGE};

/// A terminal of that width: the end that a program has, and the one that a person looks at.
fn terminal(columns: u16) -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a system with terminals");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
    let path = ptsname(&ours, Vec::new()).expect("it has a name");
    let path = path.to_str().expect("a path");
    let theirs = OpenOptions::new().read(true).write(true).open(path).expect("its other end");
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
        .expect("a size");
    (theirs, File::from(ours))
}

/// All that comes until nobody has the other end any more.
fn seen(mut terminal: File) -> String {
    let (mut all, mut some) = (Vec::new(), [0; 4_096]);
    // The last who leaves ends it with an error.
    while let Ok(count @ 1..) = terminal.read(&mut some) {
        all.extend_from_slice(&some[..count]);
    }
    String::from_utf8(all).expect("redrive prints text")
}

fn redrive(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(arguments).current_dir(folder.path("")).env("TERM", "xterm");
    for variable in
        ["CLICOLOR_FORCE", "FORCE_COLOR", "NO_COLOR", "REDRIVE_CA", "REDRIVE_KEY", "REDRIVE_SERVER"]
    {
        command.env_remove(variable);
    }
    command
}

/// Without colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            let _ = letters.find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// What is left in the line when all has been written over what was there.
fn left_over(text: &str) -> String {
    let mut line: Vec<char> = Vec::new();
    for part in text.split('\r') {
        for (place, letter) in part.chars().enumerate() {
            match line.get_mut(place) {
                Some(under) => *under = letter,
                None => line.push(letter),
            }
        }
    }
    line.into_iter().collect()
}

#[test]
fn a_terminal_shows_how_far_it_is_and_is_left_clean() {
    let folder = Folder::with("redrive.yaml", BOOK);
    #[rustfmt::skip]
    let cases = [
        ("one run",         80, "--no-advice", "",  "deliveries"),
        ("many runs",       80, "--runs=3",    "",  "of 3 runs"),
        ("without colours", 80, "--no-advice", "1", "deliveries"),
        ("a narrow one",    24, "--no-advice", "",  "…"),
    ];
    for (name, columns, more, no_color, words) in cases {
        // Whoever is done in a moment shows nothing, and some machines are quicker than others.
        let shown = (0..8).map(|doubled| 5 << doubled).find_map(|minutes: u32| {
            folder.write("long.yaml", OUTAGE.replace("duration: 2m", &format!("duration: {minutes}m")));
            let (theirs, ours) = terminal(columns);
            let mut command = redrive(&folder, &["simulate", "long.yaml", more]);
            command.env("NO_COLOR", no_color);
            command.stderr(theirs).stdout(Stdio::null());
            let mut child = command.spawn().expect("the binary was built for this test");
            // It has the other end too, until it goes.
            drop(command);
            let text = seen(ours);
            assert!(child.wait().expect("it ends").success(), "{name}: {text}");
            (!text.is_empty()).then_some(text)
        });
        let shown = shown.unwrap_or_else(|| panic!("{name}: nothing is shown"));
        assert_eq!(shown.contains('\u{1b}'), no_color.is_empty(), "{name}: {shown:?}");
        let text = plain(&shown);
        let lines: Vec<&str> = text.split('\r').filter(|line| line.contains(['█', '░'])).collect();
        assert!(lines.iter().any(|line| line.contains(words)), "{name}: {lines:#?}");
        assert!(lines.iter().all(|line| line.width() < usize::from(columns)), "{name}: {lines:#?}");
        let full: Vec<usize> = lines.iter().map(|line| line.matches('█').count()).collect();
        assert!(full.is_sorted(), "{name}: it goes on and never back: {full:?}");
        assert_eq!(left_over(&text).trim_end(), "", "{name}: it is wiped: {shown:?}");
        assert!(text.ends_with('\r') && !text.contains('\n'), "{name}: {shown:?}");
    }
}

#[test]
fn where_nobody_looks_nothing_is_shown() {
    let folder = Folder::with("redrive.yaml", BOOK);
    // As long as what a terminal shows something of, above.
    folder.write("long.yaml", OUTAGE.replace("duration: 2m", "duration: 80m"));
    let printed = folder.run(&["simulate", "long.yaml", "--no-advice"]).printed();
    assert!(printed.contains("48,000 deliveries"), "{printed}");
}

#[test]
fn what_is_printed_fits_into_the_lines_of_a_terminal() {
    let folder = Folder::with("redrive.yaml", BOOK);
    folder.write("guarded.yaml", BOOK.replace("breaker: none", "breaker: externalBreaker"));
    folder.write("outage.yaml", OUTAGE);
    #[rustfmt::skip]
    let cases: [(&str, u16, &[&str]); 4] = [
        ("wide",          120, &["--rules", "guarded.yaml"]),
        ("usual",         80,  &["--rules", "guarded.yaml"]),
        ("narrow",        60,  &["--rules", "guarded.yaml"]),
        ("two books",     80,  &["--rules", "redrive.yaml", "--against", "guarded.yaml"]),
    ];
    for (name, columns, more) in cases {
        let (theirs, ours) = terminal(columns);
        let mut command = redrive(&folder, &[&["simulate", "outage.yaml"], more].concat());
        command.stdout(theirs).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary was built for this test");
        drop(command);
        let text = plain(&seen(ours)).replace('\r', "");
        assert!(child.wait().expect("it ends").success(), "{name}: {text}");
        assert!(text.contains("expected amplification < 2"), "{name}: all of it: {text}");
        let long: Vec<&str> = text.lines().filter(|line| line.width() > usize::from(columns)).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
    }
}
