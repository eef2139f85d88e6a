//! The JSON of event ingress.
#![expect(dead_code, reason = "they describe what the core reads and writes")]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A CloudEvent 1.0 as JSON. Further attributes are taken as they are, if their names are lower-case letters
/// and digits and their values texts, whole numbers or truths.
#[derive(Serialize, ToSchema)]
pub(crate) struct CloudEvent {
    #[schema(pattern = "^1\\.0$")]
    specversion: String,
    /// No other event of its source has it: one that comes again is known by it.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    id: String,
    /// Where it happened.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    source: String,
    /// What kind of event it is: what the rule book goes by.
    #[serde(rename = "type")]
    #[schema(max_length = 256, pattern = "^[A-Za-z0-9_:/-]+(\\.[A-Za-z0-9_:/-]+){0,31}$")]
    event_type: String,
    /// What it is about.
    #[schema(min_length = 1, max_length = 2048, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    subject: Option<String>,
    /// When it happened, from 1970 to 2554.
    #[schema(min_length = 20, max_length = 64, format = DateTime)]
    time: Option<String>,
    /// What the data are.
    #[schema(min_length = 1, max_length = 256, pattern = "^[ -~]+$")]
    datacontenttype: Option<String>,
    /// The session: deliveries of one keep their order.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    partitionkey: Option<String>,
    /// What ties it to other events; the request's `X-Correlation-Id` unless it is said.
    #[schema(min_length = 1, max_length = 512, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    correlationid: Option<String>,
    /// The trace that it belongs to, as W3C writes it.
    #[schema(min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$")]
    traceparent: Option<String>,
    /// Any JSON.
    data: Option<serde_json::Value>,
    /// Bytes, where the data are no JSON; one of the two.
    #[schema(pattern = "^([A-Za-z0-9+/]{4})*$")]
    data_base64: Option<String>,
}

/// Events that are taken whole or not at all.
#[derive(Serialize, ToSchema)]
#[schema(min_items = 1, max_items = 1000)]
pub(crate) struct CloudEvents(Vec<CloudEvent>);

/// What was taken: one event, or those of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum AcceptedResponse {
    One(Accepted),
    Batch(AcceptedBatch),
}

/// One event that is safe, as the sender is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Accepted {
    /// The event's id.
    pub id: String,
    /// To find it again by.
    pub receipt: String,
    /// Whether it came before.
    pub duplicate: bool,
    /// How many services get it; 0 is recorded as unrouted.
    pub deliveries: u32,
}

/// The answer to a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AcceptedBatch {
    /// In the order of the batch.
    pub events: Vec<Accepted>,
}
