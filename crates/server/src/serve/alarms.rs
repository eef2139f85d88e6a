//! Notifies about unavailable secrets and issuer keys, and checks again whether they are back.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::alerts::Incident;
use redrive_node::activity::Activity;
use redrive_node::runtime::Node;
use redrive_node::secret::{SecretChange, Secrets};
use redrive_node::token::KeysChange;

use crate::access::AccessControl;
use crate::access::tokens::IssuerAlarm;

/// Interval at which unavailable secrets are requested even if unused, to detect recovery.
const ASK_EVERY: Duration = Duration::from_secs(15);

pub(crate) fn of_secrets(node: &Node) -> impl Fn(SecretChange) + Send + Sync + use<> {
    let node = node.clone();
    move |news| {
        match &news {
            SecretChange::Gone { name, why } => node.raise_trouble(Incident::SecretGone, name, why),
            SecretChange::Back { name } => node.clear_trouble(Incident::SecretGone, name),
        }
        node.publish_logged(Activity::alert(news.to_string()));
    }
}

pub(crate) fn of_issuer(node: &Node) -> IssuerAlarm {
    let node = node.clone();
    Arc::new(move |news: Option<KeysChange>| {
        match &news {
            Some(KeysChange::Gone { why }) => node.raise_trouble(Incident::IssuerGone, "", why),
            Some(KeysChange::Back) | None => node.clear_trouble(Incident::IssuerGone, ""),
        }
        if let Some(news) = news {
            node.publish_logged(Activity::alert(news.to_string()));
        }
    })
}

/// Requests unavailable secrets and keys again for as long as the process runs.
pub(crate) fn ask_again(secrets: Secrets, access: AccessControl) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            // The alarm reports changes.
            let _ = secrets.failing().await;
            let _ = access.unavailable_issuer().await;
        }
    });
}
