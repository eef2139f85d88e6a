//! The OpenAPI schemas of types that are written as one text or number.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::ids::Attempt;
use crate::letters::envelope::LetterId;
use crate::letters::fingerprint::Fingerprint;
use crate::policy::category::FailureCode;
use crate::time::Timestamp;

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).into()
    }
}

impl PartialSchema for Attempt {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Int32);
        ObjectBuilder::new().schema_type(Type::Integer).format(Some(format)).minimum(Some(1)).into()
    }
}

impl PartialSchema for Fingerprint {
    fn schema() -> RefOr<Schema> {
        text().pattern(Some("^[0-9a-f]{16}$")).into()
    }
}

impl PartialSchema for FailureCode {
    fn schema() -> RefOr<Schema> {
        text().into()
    }
}

impl PartialSchema for LetterId {
    fn schema() -> RefOr<Schema> {
        text().into()
    }
}

impl ToSchema for Timestamp {}
impl ToSchema for Attempt {}
impl ToSchema for Fingerprint {}
impl ToSchema for FailureCode {}
impl ToSchema for LetterId {}
