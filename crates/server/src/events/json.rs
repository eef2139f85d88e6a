//! JSON of event ingress.
#![expect(dead_code, reason = "describes what the core reads and writes")]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A CloudEvent 1.0 as JSON. Extension attributes are accepted if their names are lower-case letters and
/// digits and their values strings, integers or booleans.
#[derive(Serialize, ToSchema)]
pub(crate) struct CloudEvent {
    #[schema(pattern = "^1\\.0$")]
    specversion: String,
    /// Unique within its source: a repeated id marks a duplicate.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    id: String,
    /// Where the event comes from.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    source: String,
    /// The event type, which the rule book matches.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,31}$")]
    event_type: String,
    /// What the event is about.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    subject: Option<String>,
    /// When it occurred, from 1970 to 2554.
    #[schema(min_length = 20, max_length = 64, format = DateTime)]
    time: Option<String>,
    /// Content type of the data.
    #[schema(min_length = 1, max_length = 256, pattern = "^[ -~]+$")]
    datacontenttype: Option<String>,
    /// The session: its deliveries stay in order.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    partitionkey: Option<String>,
    /// Relates events; default: the request's `X-Correlation-Id`.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    correlationid: Option<String>,
    /// W3C trace context.
    #[schema(min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    traceparent: Option<String>,
    /// Any JSON.
    data: Option<serde_json::Value>,
    /// Base64 of binary data; instead of `data`.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*$")]
    data_base64: Option<String>,
}

/// Events accepted as a whole.
#[derive(Serialize, ToSchema)]
#[schema(min_items = 1, max_items = 1000)]
pub(crate) struct CloudEvents(Vec<CloudEvent>);

/// The accepted event, or those of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum AcceptedResponse {
    One(Accepted),
    Batch(AcceptedBatch),
}

/// A durably stored event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Accepted {
    /// The event's id.
    pub id: String,
    /// Id to look the event up by.
    pub receipt: String,
    /// Whether it was accepted before.
    pub duplicate: bool,
    /// Number of deliveries; 0 means unrouted.
    pub deliveries: u32,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptedBatch {
    /// In the order of the batch.
    pub events: Vec<Accepted>,
}
