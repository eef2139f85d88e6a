//! Terminal output of API keys.

use redrive_core::time::Timestamp;

use crate::keys::json::{CreateKeyResponse, KeyJson, KeyState};
use crate::terminal::moment::{ago, coming, moment};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{plain, style};

pub(crate) fn made(made: &CreateKeyResponse) -> String {
    let CreateKeyResponse { key, shown } = made;
    let ends = shown.expires_at.map_or_else(String::new, |at| format!(", expires {}", moment(at)));
    format!(
        "{} created key {} for {}{ends}: {}\n\n{}\n\n{}\n",
        style::good("✓"),
        style::bold(plain(&shown.id)),
        plain(&shown.name),
        what(shown),
        plain(key),
        style::dim(
            "The key is shown only once. Commands read it from REDRIVE_KEY or --key-file; other clients \
             send it as `Authorization: Bearer KEY`."
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
    format!("{} revoked {} ({})\n", style::good("✓"), style::bold(plain(&shown.id)), plain(&shown.name))
}

pub(crate) fn list(keys: &[KeyJson], now: Timestamp) -> String {
    if keys.is_empty() {
        let make = style::bold("redrive keys create NAME --role admin");
        return format!(
            "{} no keys: authentication is off; {make} creates the first key\n",
            style::warning("!")
        );
    }
    let mut table = Table::new(&[CellAlign::Left; 6]);
    table.head(&["KEY", "NAME", "ROLE", "CREATED", "STATE", "LAST USED"]);
    for key in keys {
        let state = match key.state {
            KeyState::Good => match key.expires_at {
                Some(at) => Cell::plain(format!("valid, expires {}", coming(at, now))),
                None => Cell::plain("valid".to_owned()),
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
