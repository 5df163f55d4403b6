//! Who calls, and what a call must get, worked out from the declared right alone.

use serde_json::Value;

/// Rights that are about queues.
const PER_QUEUE: [&str; 7] = [
    "publish", "consume", "read", "payload", "manage", "redrive", "discard",
];

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The queue that most keys are for.
    Own,
    /// A queue that is there as well.
    Other,
    /// There is none.
    Absent,
}

impl Object {
    pub(super) const ALL: [Self; 3] = [Self::Own, Self::Other, Self::Absent];

    /// Name of the queue.
    pub(super) fn queue(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Other => "other",
            Self::Absent => "absent",
        }
    }
}

/// One caller.
pub(super) struct Principal {
    pub(super) name: String,
    /// What it sends.
    pub(super) proof: Proof,
}

/// What a caller sends as credentials.
pub(super) enum Proof {
    Nothing,
    /// A key that no store knows.
    Wrong,
    Revoked,
    /// A good key with these scopes.
    Scopes(String),
}

impl Principal {
    /// Everybody who knocks.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::of("nobody", Proof::Nothing),
            Self::of("wrong key", Proof::Wrong),
            Self::of("revoked key", Proof::Revoked),
        ];
        let every_own = PER_QUEUE.map(|right| format!("{right}:ow*")).join(" ");
        let mut scopes: Vec<String> =
            vec!["admin".into(), every_own, "audit".into(), "keys".into()];
        for queue in ["own", "other"] {
            scopes.extend(PER_QUEUE.map(|right| format!("{right}:{queue}")));
        }
        // Rights that an operation needs together, on different queues.
        scopes.push("redrive:own payload:other".into());
        all.extend(
            scopes
                .into_iter()
                .map(|text| Self::of(&text.clone(), Proof::Scopes(text))),
        );
        all
    }

    fn of(name: &str, proof: Proof) -> Self {
        let name = name.to_owned();
        Self { name, proof }
    }

    /// Whether its key has this right on this queue; on any for `None`.
    pub(super) fn may(&self, right: &str, queue: Option<&str>) -> bool {
        let Proof::Scopes(scopes) = &self.proof else {
            return false;
        };
        scopes.split(' ').any(|scope| {
            let (word, on) = scope.split_once(':').unwrap_or((scope, "*"));
            let fits = |queue: &str| match on.strip_suffix('*') {
                Some(start) => queue.starts_with(start),
                None => queue == on,
            };
            (word == right || word == "admin") && queue.is_none_or(fits)
        })
    }
}

/// What an operation says it needs.
pub(super) enum Declared {
    All(Vec<String>),
    Any(Vec<String>),
    Everywhere(String),
}

impl Declared {
    /// As the OpenAPI document says it.
    pub(super) fn read(said: &Value) -> Option<Self> {
        let names = |list: &Value| -> Option<Vec<String>> {
            let names = list.as_array()?.iter();
            names.map(|name| name.as_str().map(str::to_owned)).collect()
        };
        match said {
            Value::String(right) => Some(Self::All(vec![right.clone()])),
            _ if said["everywhere"].is_string() => said["everywhere"]
                .as_str()
                .map(|right| Self::Everywhere(right.to_owned())),
            _ if said.get("all_of").is_some() => names(&said["all_of"]).map(Self::All),
            _ => names(&said["any_of"]).map(Self::Any),
        }
    }
}

/// How the test's own request relates to the right that was declared.
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: Value,
    /// It is about no queue in particular.
    pub(super) global: bool,
    /// What comes for the absent object when the caller may: 404, unless the call makes it or cannot name it.
    pub(super) absent: u16,
    /// Of several rights, the one that this request takes, and whether the request itself says so (else the object does).
    pub(super) takes: Option<(&'static str, bool)>,
    /// The answer is 200 and holds one for each item; the first one counts.
    pub(super) items: bool,
    /// It may change something.
    pub(super) changes: bool,
}

/// The status that a call must get; 200 stands for any success.
pub(super) fn expected(declared: &Declared, row: &Row, who: &Principal, object: Object) -> u16 {
    if !matches!(who.proof, Proof::Scopes(_)) {
        return 401;
    }
    let anywhere = |right: &String| who.may(right, None);
    let somewhere = match declared {
        Declared::All(rights) => rights.iter().all(anywhere),
        Declared::Any(rights) => rights.iter().any(anywhere),
        // No pattern of these tests is so wide but a right without one.
        Declared::Everywhere(right) => who.may(right, Some("what nobody is named for")),
    };
    let said_by_request = |(right, by_request): (&str, bool)| by_request && !who.may(right, None);
    if !somewhere || row.takes.is_some_and(said_by_request) {
        return 403;
    }
    if row.global {
        return 200;
    }
    let here = |right: &str| who.may(right, Some(object.queue()));
    let may = match (declared, row.takes) {
        (_, Some((right, _))) => here(right),
        (Declared::All(rights), None) => rights.iter().all(|right| here(right)),
        (Declared::Any(rights), None) => rights.iter().any(|right| here(right)),
        (Declared::Everywhere(right), None) => here(right),
    };
    match object {
        // What cannot be named is not anybody's: the request is wrong for all.
        Object::Absent if row.absent == 422 => 422,
        Object::Absent if may => row.absent,
        _ if may => 200,
        _ => 404,
    }
}
