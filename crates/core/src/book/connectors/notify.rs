//! Alert receivers by HTTP: ntfy, webhook, Slack and Alertmanager.

use std::sync::Arc;

use super::http::{CallHeaders, HttpAuth, fixed};
use super::reader::NETWORK;
use super::{
    AddressUse, CallProtocol, Connector, ConnectorSettings, Edge, NoticeDetail, Profile, SettingsReader,
};
use crate::book::model::Network;
use crate::book::schema::{KeySchema, NameKind, ValueType, key};
use crate::policy::catalog::DependencyKind;

pub static NTFY: Connector = Connector {
    dependency: Some(DependencyKind::Ntfy),
    address: AddressUse::Secret,
    ..receiver("ntfy", "The address of an ntfy topic.")
};

pub static WEBHOOK: Connector = Connector {
    beside: &[NETWORK, SECRET, fixed::HEADERS, fixed::AUTH],
    address: AddressUse::Secret,
    ..receiver("webhook", "An address that alerts are posted to.")
};

/// The address itself is the secret.
pub static SLACK: Connector = Connector {
    beside: &[NETWORK],
    address: AddressUse::Secret,
    read: |from| read(from, host_alone),
    ..receiver("slack", "A Slack-compatible webhook.")
};

pub static ALERTMANAGER: Connector =
    Connector { detail: NoticeDetail::Each, ..receiver("alertmanager", "The address of an Alertmanager.") };

const fn receiver(name: &'static str, about: &'static str) -> Connector {
    Connector {
        beside: &[NETWORK, SECRET],
        dependency: Some(DependencyKind::Webhook),
        speech: CallProtocol::Http,
        ..Connector::new(Edge::Receiver, name, ValueType::Url, about, |from| read(from, without_user))
    }
}

pub(super) const SECRET: KeySchema = key(
    "secret",
    ValueType::Name(NameKind::Secret),
    "Authenticates Redrive: with `webhook` calls are signed by Standard Webhooks, with `email` it is the password, with `ntfy` and `alertmanager` a bearer token; not with `slack`, whose address is the secret.",
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifySettings {
    pub address: String,
    pub network: Network,
    /// Signing secret, or bearer token.
    pub secret: Option<String>,
    /// Of a webhook.
    pub headers: CallHeaders,
}

fn read(
    from: &mut SettingsReader<'_>,
    show: fn(&str) -> String,
) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let address = from.own_text()?;
    let (network, secret) = (from.network(), from.text("secret"));
    let headers = CallHeaders::read(&address, from);
    let auth = headers.auth.as_ref();
    let profile = Profile {
        shown: show(&address),
        addresses: std::iter::once(&address).chain(auth.and_then(HttpAuth::issuer)).cloned().collect(),
        network: Some(network),
        secrets: secret.iter().cloned().chain(auth.map(|auth| auth.secret().to_owned())).collect(),
        ..Profile::default()
    };
    Some((Arc::new(NotifySettings { address, network, secret, headers }), profile))
}

/// The path of such an address is a credential.
fn host_alone(address: &str) -> String {
    let address = without_user(address);
    let host_ends = address.find("://").map_or(0, |at| at + 3);
    let path = address[host_ends..].find('/').map_or(address.len(), |at| host_ends + at);
    format!("{}/…", &address[..path])
}

pub(super) fn without_user(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let place_ends = rest.find('/').unwrap_or(rest.len());
    let place = &rest[..place_ends];
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    // The query may contain a token.
    let path = rest[place_ends..].split('?').next().unwrap_or_default();
    format!("{scheme}://{place}{path}")
}

#[cfg(test)]
mod tests {
    use crate::book::{connectors, read};

    #[test]
    fn addresses_are_shown_without_credentials() {
        #[rustfmt::skip]
        let cases = [
            ("ntfy",         "https://ann:pw@ntfy.test/ops",              "https://ntfy.test/ops"),
            ("webhook",      "https://a.test/hook?token=hunter2",         "https://a.test/hook"),
            ("alertmanager", "http://127.0.0.1:9093",                     "http://127.0.0.1:9093"),
            ("slack",        "https://hooks.slack.test/services/T0/B0/x", "https://hooks.slack.test/…"),
            ("slack",        "https://hooks.slack.test",                  "https://hooks.slack.test/…"),
        ];
        for (key, address, expected) in cases {
            let text = format!("version: 1\nreceivers: {{ r: {{ {key}: \"{address}\" }} }}\n");
            let book = read(&text, connectors::built_in()).book.expect("a book");
            assert_eq!(book.sections().receivers["r"].value.endpoint.profile.shown, expected);
        }
    }
}
