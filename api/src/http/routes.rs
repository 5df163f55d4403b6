//! Every route, with the rights it needs, its handler and its description.

use super::edge::{Endpoint, open, secured};
use super::rights::Needs;
use super::{
    audit, dead_letters, edit, keys, messages, meta, problems_page, publish, queues, receive,
    redrives, selections, settle,
};
use crate::auth::Right;
use http::Method;

pub(super) const GET: Method = Method::GET;
const POST: Method = Method::POST;
pub(super) const PUT: Method = Method::PUT;
pub(super) const PATCH: Method = Method::PATCH;
pub(super) const DELETE: Method = Method::DELETE;

const PUBLISH: Needs = Needs::One(Right::Publish);
const CONSUME: Needs = Needs::One(Right::Consume);
const READ: Needs = Needs::One(Right::Read);
const READ_ALL: Needs = Needs::Everywhere(Right::Read);
const MANAGE: Needs = Needs::One(Right::Manage);
const REDRIVE: Needs = Needs::One(Right::Redrive);
const DISCARD: Needs = Needs::One(Right::Discard);
const AUDIT: Needs = Needs::One(Right::Audit);
const KEYS: Needs = Needs::One(Right::Keys);
/// Who changes a message must be allowed to see it.
const EDIT: Needs = Needs::All(&[Right::Redrive, Right::Payload]);
/// What is decided says which.
const DECIDE: Needs = Needs::Any(&[Right::Redrive, Right::Discard]);

/// Every route, with the rights it needs, its handler and its description.
pub(super) fn routes() -> Vec<Endpoint> {
    vec![
        secured(
            POST,
            "/v1/queue/publish",
            PUBLISH,
            publish::publish,
            publish::describe_publish(),
        ),
        secured(
            POST,
            "/v1/queue/publish-batch",
            PUBLISH,
            publish::publish_batch,
            publish::describe_batch(),
        ),
        secured(
            POST,
            "/v1/queue/receive",
            CONSUME,
            receive::receive,
            receive::describe(),
        ),
        secured(
            POST,
            "/v1/queue/ack",
            CONSUME,
            settle::ack,
            settle::describe_ack(),
        ),
        secured(
            POST,
            "/v1/queue/nack",
            CONSUME,
            settle::nack,
            settle::describe_nack(),
        ),
        secured(
            POST,
            "/v1/queue/release",
            CONSUME,
            settle::release,
            settle::describe_release(),
        ),
        secured(
            POST,
            "/v1/queue/extend",
            CONSUME,
            settle::extend,
            settle::describe_extend(),
        ),
        secured(
            POST,
            "/v1/queue/settle",
            CONSUME,
            settle::settle,
            settle::describe_settle(),
        ),
        secured(
            GET,
            "/v1/queues",
            READ,
            queues::list,
            queues::describe_list(),
        ),
        secured(
            GET,
            "/v1/queues/{queue}",
            READ,
            queues::read,
            queues::describe_read(),
        ),
        secured(
            PUT,
            "/v1/queues/{queue}",
            MANAGE,
            queues::put,
            queues::describe_put(),
        ),
        secured(
            PATCH,
            "/v1/queues/{queue}",
            MANAGE,
            queues::patch,
            queues::describe_patch(),
        ),
        secured(
            DELETE,
            "/v1/queues/{queue}",
            MANAGE,
            queues::delete,
            queues::describe_delete(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/pause",
            MANAGE,
            queues::pause,
            queues::describe_pause(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/resume",
            MANAGE,
            queues::resume,
            queues::describe_resume(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/purge",
            MANAGE,
            queues::purge,
            queues::describe_purge(),
        ),
        secured(
            GET,
            "/v1/queues/{queue}/messages",
            READ,
            messages::browse,
            messages::describe_browse(),
        ),
        secured(
            GET,
            "/v1/messages/{message_id}",
            READ,
            messages::read,
            messages::describe_read(),
        ),
        secured(
            POST,
            "/v1/messages/{message_id}/cancel",
            DISCARD,
            messages::cancel,
            messages::describe_cancel(),
        ),
        secured(
            POST,
            "/v1/messages/{message_id}/promote",
            MANAGE,
            messages::promote,
            messages::describe_promote(),
        ),
        secured(
            POST,
            "/v1/messages/{message_id}/dead-letter",
            MANAGE,
            messages::dead_letter,
            messages::describe_dead_letter(),
        ),
        secured(
            GET,
            "/v1/queues/{queue}/dead-letters",
            READ,
            dead_letters::list,
            dead_letters::describe_list(),
        ),
        secured(
            GET,
            "/v1/dead-letters",
            READ,
            dead_letters::list_all,
            dead_letters::describe_list_all(),
        ),
        secured(
            GET,
            "/v1/queues/{queue}/dead-letters/groups",
            READ,
            dead_letters::groups,
            dead_letters::describe_groups(),
        ),
        secured(
            GET,
            "/v1/dead-letters/groups",
            READ,
            dead_letters::all_groups,
            dead_letters::describe_all_groups(),
        ),
        secured(
            PATCH,
            "/v1/queues/{queue}/dead-letters/{message_id}",
            EDIT,
            edit::edit,
            edit::describe_edit(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/dead-letters/{message_id}/undo-edit",
            EDIT,
            edit::undo,
            edit::describe_undo(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/dead-letters/{message_id}/redrive",
            REDRIVE,
            dead_letters::redrive,
            dead_letters::describe_redrive(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/dead-letters/{message_id}/discard",
            DISCARD,
            dead_letters::discard,
            dead_letters::describe_discard(),
        ),
        secured(
            POST,
            "/v1/queues/{queue}/dead-letters/{message_id}/reopen",
            REDRIVE,
            dead_letters::reopen,
            dead_letters::describe_reopen(),
        ),
        secured(
            POST,
            "/v1/dead-letters/selections",
            READ,
            selections::select,
            selections::describe_select(),
        ),
        secured(
            GET,
            "/v1/dead-letters/selections/{selection_id}",
            READ,
            selections::read,
            selections::describe_read(),
        ),
        secured(
            POST,
            "/v1/redrives",
            DECIDE,
            redrives::start,
            redrives::describe_start(),
        ),
        secured(
            GET,
            "/v1/redrives",
            READ,
            redrives::list,
            redrives::describe_list(),
        ),
        secured(
            GET,
            "/v1/redrives/{redrive_id}",
            READ,
            redrives::read,
            redrives::describe_read(),
        ),
        secured(
            PATCH,
            "/v1/redrives/{redrive_id}",
            DECIDE,
            redrives::change,
            redrives::describe_change(),
        ),
        secured(
            POST,
            "/v1/redrives/{redrive_id}/pause",
            DECIDE,
            redrives::pause,
            redrives::describe_pause(),
        ),
        secured(
            POST,
            "/v1/redrives/{redrive_id}/resume",
            DECIDE,
            redrives::resume,
            redrives::describe_resume(),
        ),
        secured(
            POST,
            "/v1/redrives/{redrive_id}/cancel",
            DECIDE,
            redrives::cancel,
            redrives::describe_cancel(),
        ),
        secured(GET, "/v1/audit", AUDIT, audit::list, audit::describe()),
        secured(POST, "/v1/keys", KEYS, keys::make, keys::describe_make()),
        secured(GET, "/v1/keys", KEYS, keys::list, keys::describe_list()),
        secured(
            GET,
            "/v1/keys/{key_id}",
            KEYS,
            keys::read,
            keys::describe_read(),
        ),
        secured(
            POST,
            "/v1/keys/{key_id}/rotate",
            KEYS,
            keys::rotate,
            keys::describe_rotate(),
        ),
        secured(
            POST,
            "/v1/keys/{key_id}/revoke",
            KEYS,
            keys::revoke,
            keys::describe_revoke(),
        ),
        secured(
            GET,
            "/metrics",
            READ_ALL,
            meta::metrics,
            meta::describe_metrics(),
        ),
        open(GET, "/healthz", meta::healthz, meta::describe_healthz()),
        open(GET, "/readyz", meta::readyz, meta::describe_readyz()),
        open(
            GET,
            "/openapi.json",
            meta::openapi_json,
            meta::describe_openapi(),
        ),
        open(GET, "/docs", meta::docs, meta::describe_docs()),
        open(GET, "/docs/{*file}", meta::docs, meta::describe_docs_file()),
        open(
            GET,
            "/problems",
            problems_page::index,
            problems_page::describe_index(),
        ),
        open(
            GET,
            "/problems/{code}",
            problems_page::page,
            problems_page::describe_page(),
        ),
    ]
}

/// What the inner listener has: nobody is asked for a key there.
pub(super) fn inner_routes() -> Vec<Endpoint> {
    vec![
        open(GET, "/healthz", meta::healthz, meta::describe_healthz()),
        open(GET, "/readyz", meta::readyz, meta::describe_readyz()),
        open(
            GET,
            "/metrics",
            meta::inner_metrics,
            meta::describe_metrics(),
        ),
    ]
}
