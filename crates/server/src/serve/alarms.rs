//! Tells people of secrets and issuers' keys that cannot be had, and asks again whether they can.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::alerts::Trouble;
use redrive_node::activity::Activity;
use redrive_node::runtime::Node;
use redrive_node::secret::{News, Secrets};
use redrive_node::token::KeysNews;

use crate::access::AccessControl;
use crate::access::tokens::IssuerAlarm;

/// How often what cannot be had is asked for though nobody needs it: so that its end shows.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// Whoever hears the news of secrets.
pub(crate) fn of_secrets(node: &Node) -> impl Fn(News) + Send + Sync + use<> {
    let node = node.clone();
    move |news| {
        match &news {
            News::Gone { name, why } => node.raise_trouble(Trouble::SecretGone, name, why),
            News::Back { name } => node.clear_trouble(Trouble::SecretGone, name),
        }
        node.publish_logged(Activity::alert(news.to_string()));
    }
}

/// Whoever hears the news of the issuer's keys.
pub(crate) fn of_issuer(node: &Node) -> IssuerAlarm {
    let node = node.clone();
    Arc::new(move |news: Option<KeysNews>| {
        match &news {
            Some(KeysNews::Gone { why }) => node.raise_trouble(Trouble::IssuerGone, "", why),
            Some(KeysNews::Back) | None => node.clear_trouble(Trouble::IssuerGone, ""),
        }
        if let Some(news) = news {
            node.publish_logged(Activity::alert(news.to_string()));
        }
    })
}

/// Asks for what cannot be had, for as long as the process runs.
pub(crate) fn ask_again(secrets: Secrets, access: AccessControl) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            // What is found is told of in the course of it.
            let _ = secrets.ailing().await;
            let _ = access.unavailable_issuer().await;
        }
    });
}
