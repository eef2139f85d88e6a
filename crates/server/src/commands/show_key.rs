//! `redrive show`: an event or a delivery, whichever goes by what was typed.

use std::process::ExitCode;

use http::StatusCode;
use redrive_core::time::Timestamp;

use super::{Refused, print, print_json, wait_for};
use crate::api::shape::{DeliveryShown, EventsFound};
use crate::cli::{Format, ShowArgs};
use crate::client::{Ask, Client, Trouble, segment};
use crate::show::{event, plain};

pub(super) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    wait_for(async {
        let mut client = args.server.client()?;
        if let Some((found, now)) = events(&mut client, &args.key).await? {
            match args.format {
                Format::Json => print_json(&found)?,
                Format::Text => {
                    let pages: Vec<String> =
                        found.events.iter().map(|shown| event::page(shown, now)).collect();
                    print(&pages.join("\n"))?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let Some((delivery, now)) = delivery(&mut client, &args.key).await? else {
            let key = plain(&args.key);
            return Err(Refused(format!(
                "nothing goes by `{key}`: it is no event's id or receipt, and no delivery's id begins so\n  \
                 what was delivered is kept for a while only"
            ))
            .into());
        };
        match args.format {
            Format::Json => print_json(&delivery)?,
            Format::Text => print(&event::delivery_page(&delivery, now))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The events of that id or receipt, if there are any.
async fn events(client: &mut Client, key: &str) -> Result<Option<(EventsFound, Timestamp)>, Trouble> {
    let found = client.timed_json::<EventsFound>(&Ask::get(format!("/v1/events/{}", segment(key)))).await;
    Ok(known(found)?.filter(|(found, _)| !found.events.is_empty()))
}

/// The delivery whose id begins so, if there is one.
async fn delivery(client: &mut Client, key: &str) -> Result<Option<(DeliveryShown, Timestamp)>, Trouble> {
    known(client.timed_json(&Ask::get(format!("/v1/deliveries/{}", segment(key)))).await)
}

/// What is not known under a name, and what cannot be one, is simply not there.
fn known<T>(result: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(trouble) => match trouble.refusal().map(|refusal| refusal.status) {
            Some(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) => Ok(None),
            Some(_) | None => Err(trouble),
        },
    }
}
