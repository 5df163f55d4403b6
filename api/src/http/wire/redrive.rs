//! Selections, and redrives of many.

use super::dead_letter::DeadLetterFilter;
use super::message::MessageSummary;
use super::values::{QueueName, RedriveId, SelectionId};
use super::{Seconds, Time};
use crate::service::redrives::RedriveView;
use crate::service::selections::SelectionView;
use quita_storage::redrives::{self, BulkAction, RedriveState};
use serde::Serialize;
use utoipa::ToSchema;

/// Ages in the order of the figures.
const AGES: [&str; 4] = [
    "under_1_hour",
    "1_to_24_hours",
    "1_to_7_days",
    "over_7_days",
];

/// Dead letters with one reason.
#[derive(Serialize, ToSchema)]
pub struct CountByReason {
    /// The reason.
    pub reason: &'static str,
    /// How many.
    pub count: i64,
}

/// Dead letters with one error code.
#[derive(Serialize, ToSchema)]
pub struct CountByErrorCode {
    /// The code; null = none.
    pub error_code: Option<String>,
    /// How many.
    pub count: i64,
}

/// Dead letters by time since death.
#[derive(Serialize, ToSchema)]
pub struct CountByAge {
    /// `under_1_hour`, `1_to_24_hours`, `1_to_7_days` or `over_7_days`.
    pub age: &'static str,
    /// How many.
    pub count: i64,
}

/// Dead letters of a queue, frozen and counted. What dies, or is changed, later is not among them.
#[derive(Serialize, ToSchema)]
pub struct Selection {
    /// Its id.
    #[schema(value_type = SelectionId)]
    pub selection_id: String,
    /// Whose dead letters.
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// Which ones.
    pub filter: DeadLetterFilter,
    /// How many.
    pub count: i64,
    /// How many by reason; only those that are there.
    pub by_reason: Vec<CountByReason>,
    /// How many by error code: the 20 most frequent.
    pub by_error_code: Vec<CountByErrorCode>,
    /// How many by age.
    pub by_age: Vec<CountByAge>,
    /// Some of them: the oldest and the youngest. Only when the selection is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Vec<MessageSummary>>,
    /// Changed since they died.
    pub edited: i64,
    /// At or above `max_redrives`: left alone without force.
    pub over_max_redrives: i64,
    /// A worker has reported the work as done: left alone without force.
    pub completion_remembered: i64,
    /// Another message with the same key was acked.
    pub outcome_recorded: i64,
    /// When it was made.
    pub created_at: Time,
    /// Until when a redrive of it can begin.
    pub expires_at: Time,
}

impl Selection {
    /// What was frozen, and the sample where it is shown.
    pub(crate) fn new(view: &SelectionView, with_sample: bool) -> Self {
        let (selection, figures) = (&view.selection, &view.selection.figures);
        let sample = view.sample.iter();
        let sample = sample.map(|listed| MessageSummary::listed(&view.queue, listed));
        Self {
            selection_id: selection.id.to_string(),
            queue: view.queue.name.to_string(),
            filter: DeadLetterFilter::from(&selection.filter),
            count: figures.count,
            by_reason: figures
                .by_reason
                .iter()
                .map(|(reason, count)| CountByReason {
                    reason: reason.as_str(),
                    count: *count,
                })
                .collect(),
            by_error_code: figures
                .by_error_code
                .iter()
                .map(|(code, count)| CountByErrorCode {
                    error_code: code.clone(),
                    count: *count,
                })
                .collect(),
            by_age: AGES
                .into_iter()
                .zip(figures.by_age)
                .map(|(age, count)| CountByAge { age, count })
                .collect(),
            sample: with_sample.then(|| sample.collect()),
            edited: figures.edited,
            over_max_redrives: figures.over_max_redrives,
            completion_remembered: figures.completion_remembered,
            outcome_recorded: figures.outcome_recorded,
            created_at: Time(selection.created_at),
            expires_at: Time(selection.expires_at),
        }
    }
}

/// The first few, before the rest.
#[derive(Serialize, ToSchema)]
pub struct Canary {
    /// How many.
    #[schema(required = false, minimum = 1, maximum = 1_000_000, default = 10)]
    pub count: u32,
    /// How long to see what becomes of them; sooner when all of them were acked.
    #[schema(value_type = f64, required = false, minimum = 0, maximum = 86_400, default = 60)]
    pub wait_seconds: Seconds,
    /// When that time ends, once it has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(read_only)]
    pub until: Option<Time>,
}

/// When to stop by itself.
#[derive(Serialize, ToSchema)]
pub struct AbortIf {
    /// This part of the redriven ones, or more, died again. Above 0, at most 1.
    #[schema(required = false, minimum = 0.000_001, maximum = 1, default = 0.2)]
    pub failed_fraction: f64,
    /// Counted against no smaller number.
    #[schema(required = false, minimum = 1, maximum = 1_000_000, default = 10)]
    pub min_sample: u32,
}

/// Messages of a selection that were left alone.
#[derive(Serialize, ToSchema)]
pub struct Skipped {
    /// All of them.
    pub total: i64,
    /// At or above `max_redrives`.
    pub redrive_limit: i64,
    /// A worker has reported the work as done.
    pub completion_remembered: i64,
    /// Past their `expires_at`.
    pub expired: i64,
    /// Changed or decided by somebody else since the selection was made. Known at the end.
    pub changed: i64,
}

/// A bulk decision and how far it is.
#[derive(Serialize, ToSchema)]
pub struct Redrive {
    /// Its id.
    #[schema(value_type = RedriveId)]
    pub redrive_id: String,
    /// Over which messages.
    #[schema(value_type = SelectionId)]
    pub selection_id: String,
    /// Whose dead letters.
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// `redrive` or `discard`.
    pub action: &'static str,
    /// `canary`, `running` or `paused`; at the end `done`, `cancelled` or `aborted`.
    pub state: &'static str,
    /// Why it stopped by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// It counts what would happen and changes nothing.
    pub dry_run: bool,
    /// Messages of the selection.
    pub count: i64,
    /// Messages that it may decide; null = all.
    pub max: Option<i64>,
    /// Messages decided; with `dry_run`, those that would be.
    pub moved: i64,
    /// Messages left alone.
    pub skipped: Skipped,
    /// Redriven ones that died again, other than by an operator. Goes on counting for 24 hours after the end.
    pub failed_again: i64,
    /// Messages to be decided still; of one that was cancelled or aborted, those that were not.
    pub remaining: i64,
    /// How fast; null = no limit.
    pub rate_per_second: Option<f64>,
    /// A few first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,
    /// When it stops by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_if: Option<AbortIf>,
    /// Also above `max_redrives`, or although a completion is remembered.
    pub force: bool,
    /// Why, for a redrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why left undone, for a discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// Why, for a discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
    /// Who asked.
    pub actor: String,
    /// When it was asked for.
    pub created_at: Time,
    /// When it came to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it will come to its end, where a rate says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end_at: Option<Time>,
}

impl From<&RedriveView> for Redrive {
    fn from(view: &RedriveView) -> Self {
        let (redrive, plan) = (&view.redrive, &view.redrive.plan);
        let skipped = &redrive.skipped;
        let (action, code) = match plan.action {
            BulkAction::Redrive => ("redrive", None),
            BulkAction::Discard(code) => ("discard", Some(code.as_str())),
        };
        let (reason, justification) = match code {
            None => (redrive.justification.clone(), None),
            Some(_) => (None, redrive.justification.clone()),
        };
        Self {
            redrive_id: redrive.id.to_string(),
            selection_id: plan.selection.to_string(),
            queue: view.queue.name.to_string(),
            action,
            state: redrive.state.as_str(),
            state_reason: state_reason(redrive),
            dry_run: plan.dry_run,
            count: redrive.count,
            max: plan.max,
            moved: redrive.moved,
            skipped: Skipped {
                total: skipped.total(),
                redrive_limit: skipped.redrive_limit,
                completion_remembered: skipped.completion_remembered,
                expired: skipped.expired,
                changed: skipped.changed,
            },
            failed_again: redrive.failed_again,
            remaining: redrive.remaining(),
            rate_per_second: plan.rate,
            canary: plan.canary.map(|canary| Canary {
                count: canary.count,
                wait_seconds: Seconds(canary.wait_ms),
                until: redrive.canary_until.map(Time),
            }),
            abort_if: plan.abort_if.map(|abort| AbortIf {
                failed_fraction: abort.failed_fraction,
                min_sample: abort.min_sample,
            }),
            force: plan.force,
            reason,
            code,
            justification,
            actor: redrive.actor.clone(),
            created_at: Time(redrive.created_at),
            finished_at: redrive.finished_at.map(Time),
            estimated_end_at: estimated_end(view).map(Time),
        }
    }
}

fn state_reason(redrive: &redrives::Redrive) -> Option<String> {
    (redrive.state == RedriveState::Aborted).then(|| {
        format!(
            "{} of the first {} redriven messages died again.",
            redrive.failed_again, redrive.failed_up_to
        )
    })
}

/// What is left at the present rate, and what is left of the canary's pause at most.
fn estimated_end(view: &RedriveView) -> Option<i64> {
    let redrive = &view.redrive;
    let rate = redrive.plan.rate.filter(|_| !redrive.plan.dry_run)?;
    let pause = match redrive.state {
        RedriveState::Running => 0,
        RedriveState::Canary => redrive.canary_until.map_or_else(
            || redrive.plan.canary.map_or(0, |canary| canary.wait_ms),
            |until| (until - view.now).max(0),
        ),
        _ => return None,
    };
    let left = (redrive.remaining() as f64 * 1_000.0 / rate).ceil();
    // A rate may be so small that the end is in no calendar.
    (left < 1e14).then(|| view.now + pause + left as i64)
}

/// A page of redrives.
#[derive(Serialize, ToSchema)]
pub struct RedrivePage {
    /// The youngest first.
    pub redrives: Vec<Redrive>,
    /// Where the next page begins; missing when that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}
