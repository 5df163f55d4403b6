//! HTTP: the routes, and what every request and answer has in common.
//!
//! Reading order: [`routes`] (all of them, with the [`rights`] they need) → [`edge`] (around every handler) with [`browser`] and
//! [`cross_origin`] (what browsers are told), [`own_pages`] (which pages may call where no key is asked for), [`admission`] (who
//! comes in now) and [`bodies`] (what it may hold) → [`extract`], [`fields`] and
//! [`query`] (what a handler is given) → one file per group of routes → [`wire`] (answers) → [`problem`] (the table of
//! everything that is not a success) and [`refusals`] (how an operation's refusal gets there).

pub mod admission;
mod answer;
mod audit;
mod audit_lines;
pub mod bodies;
mod browser;
mod codes;
mod cross_origin;
mod dead_filter;
mod dead_letters;
mod diff;
pub mod docs;
mod edge;
mod edit;
mod extract;
mod faults;
mod fields;
mod json;
mod keys;
mod merge_patch;
mod messages;
mod meta;
mod operator;
mod own_pages;
mod paging;
mod policy;
pub mod problem;
mod problems_page;
mod publish;
mod query;
mod queues;
mod receive;
mod redrive_plan;
mod redrives;
mod refusals;
mod rights;
mod routes;
mod selections;
pub mod server;
mod settle;
mod text_rule;
mod times;
pub mod wire;

use crate::AppState;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use cross_origin::Grants;
use edge::Endpoint;
use http::{HeaderValue, Method};
use routes::{DELETE, GET, PATCH, PUT, inner_routes, routes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use utoipa::openapi::path::{HttpMethod, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths,
    example::ExampleBuilder, tag::TagBuilder,
};

pub(crate) use edge::problem_at_edge;

/// All routes over one state.
pub fn router(state: Arc<AppState>) -> Router {
    router_of(routes(), state)
}

/// What the inner listener serves: `/healthz`, `/readyz`, `/metrics`.
pub fn inner_router(state: Arc<AppState>) -> Router {
    router_of(inner_routes(), state)
}

fn router_of(endpoints: Vec<Endpoint>, state: Arc<AppState>) -> Router {
    let mut by_path: BTreeMap<&str, (MethodRouter<Arc<AppState>>, Vec<Method>)> = BTreeMap::new();
    for endpoint in endpoints {
        let (handlers, methods) = by_path.entry(endpoint.path).or_default();
        *handlers = std::mem::take(handlers).merge(endpoint.handler);
        methods.push(endpoint.method);
    }
    let mut router = Router::new();
    for (path, (handlers, methods)) in by_path {
        let grants = Grants::new(&state.config.cors.cors_allow_origin, &methods);
        let handlers = edge::with_other_methods(handlers, &allow(&methods), grants);
        router = router.route(path, handlers);
    }
    router = router.fallback(edge::not_found);
    if state.config.dev.dev_no_auth {
        router = router.layer(from_fn_with_state(state.clone(), own_pages::only));
    }
    router.with_state(state)
}

/// Whether a queue's policy has this field.
#[cfg(test)]
pub(crate) fn is_policy_field(name: &str) -> bool {
    policy::FIELDS.contains(&name)
}

fn allow(methods: &[Method]) -> HeaderValue {
    let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if names.contains(&"GET") {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
}

/// The description of all routes: OpenAPI 3.1.
pub fn openapi() -> OpenApi {
    let mut paths = Paths::new();
    let (mut schemas, mut taken) = (BTreeMap::new(), BTreeSet::new());
    let mut components = ComponentsBuilder::new().security_scheme(
        "bearer",
        SecurityScheme::Http(
            HttpBuilder::new()
                .scheme(HttpAuthScheme::Bearer)
                .description(Some(
                    "An API key, or a token (JWT) of an issuer that the server is configured for",
                ))
                .build(),
        ),
    );
    for endpoint in routes() {
        // A wildcard is the router's, not OpenAPI's.
        let path = endpoint.path.replace("{*", "{");
        let method = match endpoint.method {
            GET => HttpMethod::Get,
            PUT => HttpMethod::Put,
            PATCH => HttpMethod::Patch,
            DELETE => HttpMethod::Delete,
            _ => HttpMethod::Post,
        };
        let mut operation = endpoint.docs.operation;
        if let Some(needs) = endpoint.needs {
            needs.describe(&mut operation);
        }
        let item = PathItem::new(method, operation);
        match paths.paths.get_mut(&path) {
            Some(known) => known.merge_operations(item),
            None => drop(paths.paths.insert(path, item)),
        }
        schemas.extend(endpoint.docs.schemas);
        taken.extend(endpoint.docs.taken);
    }
    for (name, mut schema) in schemas {
        if taken.contains(&name) {
            docs::closed::close(&mut schema);
        }
        components = components.schema(name, schema);
    }
    for code in problem::Code::ALL {
        let example = ExampleBuilder::new()
            .summary(code.row().title)
            .value(Some(docs::example(*code)))
            .build();
        components = components.example(code.as_str(), example);
    }
    for (name, header) in docs::answers::shared_headers() {
        components = components.header(name, header);
    }
    let tag = |name: &str, text: &str| TagBuilder::new().name(name).description(Some(text)).build();
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("quita")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("An HTTP REST queue with explicit ack and nack."))
                .license(Some(
                    LicenseBuilder::new()
                        .name("Apache-2.0")
                        .identifier(Some("Apache-2.0"))
                        .build(),
                ))
                .build(),
        )
        .paths(paths)
        .components(Some(components.build()))
        .tags(Some([
            tag("work", "Publish, receive, settle"),
            tag("queues", "Queues and their policies"),
            tag("messages", "Messages as operators see them"),
            tag("dead letters", "What failed, and what is decided about it"),
            tag("redrives", "Decisions about many dead letters at once"),
            tag("keys", "API keys: who may do what"),
            tag("audit", "What was done, by whom and why"),
            tag("server", "The server itself"),
        ]))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");

    fn document() -> String {
        openapi().to_pretty_json().unwrap() + "\n"
    }

    /// `cargo run -- openapi > openapi/openapi.json` writes the file.
    #[test]
    fn the_committed_openapi_document_is_what_the_code_says() {
        let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
        assert!(
            committed == document(),
            "openapi/openapi.json differs: write it again with `quita openapi`"
        );
    }

    #[test]
    fn every_route_is_described_and_no_name_is_there_twice() {
        let json = serde_json::to_value(openapi()).unwrap();
        assert_eq!(json["openapi"], "3.1.0");
        let mut ids = HashSet::new();
        let mut operations = 0;
        for (path, item) in json["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                operations += 1;
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(!operation["responses"].as_object().unwrap().is_empty());
                let secured = path.starts_with("/v1/") || path == "/metrics";
                assert_eq!(operation["security"].is_array(), secured, "{method} {path}");
            }
        }
        assert_eq!(operations, routes().len());
        let mut schemas: std::collections::HashMap<String, String> =
            std::collections::HashMap::new();
        for endpoint in routes() {
            for (name, schema) in endpoint.docs.schemas {
                let text = serde_json::to_string(&schema).unwrap();
                if let Some(other) = schemas.insert(name.clone(), text.clone()) {
                    assert_eq!(other, text, "two schemas are called {name}");
                }
            }
        }
    }

    #[test]
    fn every_secured_route_declares_its_right_and_the_document_says_it() {
        let json = serde_json::to_value(openapi()).unwrap();
        for endpoint in routes() {
            let secured = endpoint.path.starts_with("/v1/") || endpoint.path == "/metrics";
            let (method, path) = (endpoint.method.as_str().to_lowercase(), endpoint.path);
            assert_eq!(endpoint.needs.is_some(), secured, "{method} {path}");
            let said = &json["paths"][path.replace("{*", "{")][method]["x-quita-right"];
            assert_eq!(!said.is_null(), secured, "{path}");
        }
    }

    #[test]
    fn every_answer_from_around_the_handlers_is_in_the_document() {
        let json = serde_json::to_value(openapi()).unwrap();
        let items = json["paths"].as_object().unwrap().values();
        for operation in items.flat_map(|item| item.as_object().unwrap().values()) {
            let (id, answers) = (&operation["operationId"], &operation["responses"]);
            let examples = &answers["414"]["content"]["application/problem+json"]["examples"];
            assert!(examples["uri_too_long"].is_object(), "{id}");
            let secured = operation["security"].is_array();
            for (status, answer) in answers.as_object().unwrap() {
                let told = secured && !["401", "403", "405", "414", "417"].contains(&&**status);
                for name in ["RateLimit", "RateLimit-Policy"] {
                    let header = &answer["headers"][name]["$ref"];
                    let place = format!("#/components/headers/{name}");
                    assert_eq!(*header == *place, told, "{id} {status} {name}");
                }
            }
        }
    }

    #[test]
    fn every_link_leads_to_an_operation_and_names_its_parameters() {
        let json = serde_json::to_value(openapi()).unwrap();
        let items = json["paths"].as_object().unwrap().values();
        let operations: Vec<&serde_json::Value> = items
            .flat_map(|item| item.as_object().unwrap().values())
            .collect();
        let mut links = 0;
        for operation in &operations {
            let responses = operation["responses"].as_object().unwrap();
            let found = responses.values().filter_map(|r| r["links"].as_object());
            for (name, link) in found.flatten() {
                links += 1;
                let target = operations
                    .iter()
                    .find(|o| o["operationId"] == link["operationId"]);
                let target = target.unwrap_or_else(|| panic!("{name} leads nowhere"));
                let parameters = target["parameters"].as_array().cloned().unwrap_or_default();
                for given in link["parameters"].as_object().into_iter().flatten() {
                    assert!(
                        parameters.iter().any(|p| p["name"] == **given.0),
                        "{name}: {}",
                        given.0
                    );
                }
                assert!(
                    link["requestBody"].is_null() || target["requestBody"].is_object(),
                    "{name} gives a body that is not taken"
                );
            }
        }
        assert!(links > 40, "{links}");
    }

    #[test]
    fn requests_are_closed_and_answers_are_open() {
        let json = serde_json::to_value(openapi()).unwrap();
        let schemas = &json["components"]["schemas"];
        for (name, closed) in [
            ("Publish", true),
            ("PolicyInput", true),
            ("NewSelection", true),
            ("Queue", false),
            ("Problem", false),
        ] {
            assert_eq!(
                schemas[name]["additionalProperties"] == false,
                closed,
                "{name}"
            );
        }
    }

    #[test]
    fn every_reference_in_the_document_is_there() {
        fn references(value: &serde_json::Value, found: &mut HashSet<String>) {
            match value {
                serde_json::Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(|r| r.as_str()) {
                        found.insert(reference.to_owned());
                    }
                    members.values().for_each(|v| references(v, found));
                }
                serde_json::Value::Array(items) => items.iter().for_each(|v| references(v, found)),
                _ => {}
            }
        }
        let json = serde_json::to_value(openapi()).unwrap();
        let mut found = HashSet::new();
        references(&json, &mut found);
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(json.pointer(pointer).is_some(), "{reference}");
        }
    }
}
