//! What a route takes beside its body.

use super::Describe;
use crate::http::problem::Code;
use crate::http::wire::values::{
    KeyId, MessageId, PageSize, PageToken, QueueName, RedriveId, SelectionId,
};
use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{RefOr, Required, Schema};

impl Describe {
    /// A parameter of the path.
    pub(crate) fn path(self, name: &str, description: &str, example: &str) -> Self {
        self.parameter(
            ParameterIn::Path,
            Required::True,
            name,
            description,
            String::schema(),
            &json!(example),
        )
    }

    fn id<T: PartialSchema>(self, name: &str, description: &str, example: &str) -> Self {
        let place = ParameterIn::Path;
        self.parameter(
            place,
            Required::True,
            name,
            description,
            T::schema(),
            &json!(example),
        )
    }

    /// The queue in the path.
    pub(crate) fn queue(self) -> Self {
        self.id::<QueueName>("queue", "The queue's name", "orders")
            .problems(&[Code::InvalidQueueName, Code::QueueNotFound])
    }

    /// The message in the path.
    pub(crate) fn message(self) -> Self {
        self.id::<MessageId>("message_id", "The message's id", "msg_02mx3k8s9qv40")
            .problems(&[Code::NotFound])
    }

    /// The selection in the path.
    pub(crate) fn selection(self) -> Self {
        self.id::<SelectionId>("selection_id", "The selection's id", "sel_0000000000007")
            .problems(&[Code::NotFound])
    }

    /// The redrive in the path.
    pub(crate) fn redrive(self) -> Self {
        self.id::<RedriveId>("redrive_id", "The redrive's id", "rdv_0000000000003")
            .problems(&[Code::NotFound])
    }

    /// The key in the path.
    pub(crate) fn key(self) -> Self {
        self.id::<KeyId>("key_id", "The key's id: its public part", "k7f2mx3q5sv4")
            .problems(&[Code::NotFound])
    }

    /// A parameter of the query.
    pub(crate) fn query(
        self,
        name: &str,
        description: &str,
        schema: RefOr<Schema>,
        example: &Value,
    ) -> Self {
        self.parameter(
            ParameterIn::Query,
            Required::False,
            name,
            description,
            schema,
            example,
        )
    }

    /// A request header.
    pub(crate) fn header(self, name: &str, description: &str, example: &str) -> Self {
        self.header_of(name, description, String::schema(), example)
    }

    /// A request header of which not every text is good.
    pub(crate) fn header_of(
        self,
        name: &str,
        description: &str,
        schema: RefOr<Schema>,
        example: &str,
    ) -> Self {
        let place = ParameterIn::Header;
        self.parameter(
            place,
            Required::False,
            name,
            description,
            schema,
            &json!(example),
        )
    }

    /// The parameters of a paged listing.
    pub(crate) fn paged(self) -> Self {
        self.query(
            "page_size",
            "At most this many, 1 to 500",
            PageSize::schema(),
            &json!(50),
        )
        .query(
            "page_token",
            "`next_page_token` of the page before",
            PageToken::schema(),
            &Value::Null,
        )
        .problems(&[
            Code::InvalidPageToken,
            Code::OutOfRange,
            Code::WrongType,
            Code::InvalidValue,
            Code::InvalidUnicode,
            Code::BodyNotAllowed,
        ])
    }

    fn parameter(
        mut self,
        place: ParameterIn,
        required: Required,
        name: &str,
        description: &str,
        schema: RefOr<Schema>,
        example: &Value,
    ) -> Self {
        let parameter: Parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(place)
            .required(required)
            .description(Some(description))
            .schema(Some(schema))
            .example(Some(example.clone()).filter(|example| !example.is_null()))
            .build();
        self.builder = self.builder.parameter(parameter);
        self
    }
}
