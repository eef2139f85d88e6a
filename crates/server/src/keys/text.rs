//! Terminal output of API keys.

use redrive_core::time::Timestamp;

use crate::keys::json::{CreateKeyResponse, KeyJson, KeyState};
use crate::terminal::moment::{ago, coming, moment};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{plain, style};

pub(crate) fn made(made: &CreateKeyResponse) -> String {
    let CreateKeyResponse { key, shown } = made;
    let ends = shown.expires_at.map_or_else(String::new, |at| format!(" until {}", moment(at)));
    format!(
        "{} {} is a key for {}{ends}: {}\n\n{}\n\n{}\n",
        style::good("✓"),
        style::bold(plain(&shown.id)),
        plain(&shown.name),
        what(shown),
        plain(key),
        style::dim(
            "This is the only time that it is shown. Commands take it from REDRIVE_KEY or --key-file, \
             and others send it as `Authorization: Bearer KEY`."
        ),
    )
}

fn what(shown: &KeyJson) -> String {
    let mut words = vec![shown.role.as_str().to_owned()];
    words.extend(shown.sources.iter().map(|name| format!("source {}", plain(name))));
    words.extend(shown.services.iter().map(|name| format!("service {}", plain(name))));
    words.extend(shown.rate.as_deref().map(plain));
    words.join(", ")
}

pub(crate) fn revoked(shown: &KeyJson) -> String {
    format!(
        "{} {} ({}) is revoked: nobody comes in with it\n",
        style::good("✓"),
        style::bold(plain(&shown.id)),
        plain(&shown.name)
    )
}

pub(crate) fn list(keys: &[KeyJson], now: Timestamp) -> String {
    if keys.is_empty() {
        let make = style::bold("redrive keys create NAME --role admin");
        return format!(
            "{} there are no keys, and nobody is asked for one; {make} makes the first\n",
            style::warning("!")
        );
    }
    let mut table = Table::new(&[CellAlign::Left; 6]);
    table.head(&["KEY", "NAME", "MAY", "MADE", "STATE", "LAST USED"]);
    for key in keys {
        let state = match key.state {
            KeyState::Good => match key.expires_at {
                Some(at) => Cell::plain(format!("good, ends {}", coming(at, now))),
                None => Cell::plain("good".to_owned()),
            },
            KeyState::Expired => Cell::dim("expired".to_owned()),
            KeyState::Revoked => Cell::dim("revoked".to_owned()),
        };
        table.push(vec![
            Cell::bold(plain(&key.id)),
            Cell::plain(plain(&key.name)),
            Cell::plain(what(key)),
            Cell::dim(ago(key.created_at, now)),
            state,
            Cell::dim(key.last_used_at.map_or_else(String::new, |at| ago(at, now))),
        ]);
    }
    table.text()
}
