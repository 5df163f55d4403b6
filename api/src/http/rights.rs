//! Which rights a route needs, declared beside its handler in the table of routes.
//!
//! Who has such a right on no queue is refused here, before the body is read: 403 `insufficient_scope`. Whether the caller
//! has it on the queue that the request is about is decided by the operation, which alone knows the queue; then a forbidden
//! one looks like one that is not there.

use super::problem::Code;
use crate::auth::{Principal, Right};
use serde_json::{Value, json};
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::Operation;

/// Name of the declaration in the OpenAPI document.
const EXTENSION: &str = "x-quita-right";

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// This right.
    One(Right),
    /// All of these, on the same queue.
    All(&'static [Right]),
    /// One of these; the request says which.
    Any(&'static [Right]),
    /// This right on every queue.
    Everywhere(Right),
}

impl Needs {
    /// Refuses who may do this on no queue at all.
    pub(super) fn check(self, caller: &Principal) -> Result<(), Code> {
        let has = |right: &Right| caller.may_anywhere(*right);
        let may = match self {
            Self::One(right) => has(&right),
            Self::All(rights) => rights.iter().all(has),
            Self::Any(rights) => rights.iter().any(has),
            Self::Everywhere(right) => caller.may_everywhere(right),
        };
        may.then_some(()).ok_or(Code::InsufficientScope)
    }

    /// Says so in the description of the route: for programs and for people.
    pub(super) fn describe(self, operation: &mut Operation) {
        let named = ExtensionsBuilder::new().add(EXTENSION, self.to_json());
        operation
            .extensions
            .get_or_insert_default()
            .merge(named.build());
        let sentence = format!("Needs {}.", self.in_words());
        operation.description = Some(match operation.description.take() {
            Some(text) => format!("{text}\n\n{sentence}"),
            None => sentence,
        });
    }

    fn to_json(self) -> Value {
        let names = |rights: &[Right]| rights.iter().map(|right| right.name()).collect::<Vec<_>>();
        match self {
            Self::One(right) => json!(right.name()),
            Self::All(rights) => json!({"all_of": names(rights)}),
            Self::Any(rights) => json!({"any_of": names(rights)}),
            Self::Everywhere(right) => json!({"everywhere": right.name()}),
        }
    }

    fn in_words(self) -> String {
        let joined = |rights: &[Right], word: &str| {
            let names: Vec<_> = rights
                .iter()
                .map(|right| format!("`{}`", right.name()))
                .collect();
            names.join(word)
        };
        match self {
            Self::One(right) => format!("the right `{}`", right.name()),
            Self::All(rights) => format!("the rights {}", joined(rights, " and ")),
            Self::Any(rights) => format!("the right {}", joined(rights, " or ")),
            Self::Everywhere(right) => format!("the right `{}` on every queue", right.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scopes;

    fn who(scopes: &str) -> Principal {
        Principal {
            scopes: Scopes::parse(scopes).unwrap(),
            ..Principal::admin("k")
        }
    }

    #[test]
    fn one_all_and_any_are_what_they_say() {
        let both = &[Right::Redrive, Right::Discard];
        for (needs, scopes, may) in [
            (Needs::One(Right::Read), "read:a", true),
            (Needs::One(Right::Read), "payload:a publish", false),
            (Needs::All(both), "redrive:a discard:b", true),
            (Needs::All(both), "redrive", false),
            (Needs::Any(both), "discard:b", true),
            (Needs::Any(both), "read", false),
            (Needs::Any(both), "admin", true),
            (Needs::Everywhere(Right::Read), "read:a*", false),
            (Needs::Everywhere(Right::Read), "read", true),
        ] {
            let found = needs.check(&who(scopes));
            assert_eq!(found.is_ok(), may, "{needs:?} {scopes}");
            assert!(may || found == Err(Code::InsufficientScope));
        }
    }

    #[test]
    fn a_description_names_the_rights_behind_what_it_says() {
        let mut operation = Operation::new();
        operation.description = Some("Changes it.".to_owned());
        Needs::All(&[Right::Redrive, Right::Payload]).describe(&mut operation);
        let json = serde_json::to_value(&operation).unwrap();
        assert_eq!(json[EXTENSION], json!({"all_of": ["redrive", "payload"]}));
        assert_eq!(
            json["description"],
            "Changes it.\n\nNeeds the rights `redrive` and `payload`."
        );
    }
}
