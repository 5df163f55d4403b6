//! Facts about scopes, and the laws their operations keep.

use super::*;
use proptest::prelude::*;

fn scopes(text: &str) -> Scopes {
    Scopes::parse(text).unwrap()
}

fn fault(text: &str) -> EntryFault {
    match Scopes::parse(text).unwrap_err() {
        ScopeError::Entry { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

#[test]
fn a_right_is_for_every_queue_one_queue_or_a_beginning_of_names() {
    let some = scopes("publish consume:emails read:mail-*");
    assert!(some.may(Right::Publish, "anything"));
    assert!(some.may(Right::Consume, "emails") && !some.may(Right::Consume, "emails2"));
    assert!(some.may(Right::Read, "mail-") && some.may(Right::Read, "mail-eu"));
    assert!(!some.may(Right::Read, "mail") && !some.may(Right::Read, "Mail-eu"));
}

#[test]
fn no_right_implies_another() {
    for right in Right::ALL {
        let one = scopes(right.name());
        for other in Right::ALL {
            assert_eq!(one.may(other, "q"), right == other);
            assert_eq!(one.may_anywhere(other), right == other);
        }
    }
}

#[test]
fn admin_is_everything_and_more_than_all_rights_of_today() {
    let today = Right::ALL.map(Right::name).join(" ");
    let (admin, all) = (scopes("admin"), scopes(&today));
    assert!(Right::ALL.iter().all(|right| admin.may(*right, "q")));
    assert!(admin.covers(&all) && !all.covers(&admin));
    assert_eq!(
        (admin.to_string(), all.to_string()),
        ("admin".into(), today)
    );
    assert_eq!(admin.intersect(&all), all);
    assert_eq!(scopes("publish:a admin"), Scopes::admin());
}

#[test]
fn nothing_allows_nothing() {
    for text in ["", "   "] {
        let none = scopes(text);
        assert!(none.is_empty() && none == Scopes::default() && none.to_string().is_empty());
        assert!(!Right::ALL.iter().any(|right| none.may_anywhere(*right)));
    }
}

#[test]
fn may_elsewhere_is_told_from_may_nowhere() {
    let some = scopes("manage:emails");
    assert!(!some.may(Right::Manage, "other") && some.may_anywhere(Right::Manage));
    assert!(!some.may_anywhere(Right::Discard));
}

#[test]
fn the_text_is_canonical() {
    for (text, canonical) in [
        ("read publish", "publish read"),
        ("publish:b publish:a", "publish:a publish:b"),
        (
            "publish:a* publish:ab publish:abc* publish:b",
            "publish:a* publish:b",
        ),
        ("publish:a publish:a", "publish:a"),
        ("publish:a publish", "publish"),
        ("publish:*", "publish"),
        ("keys:* audit", "audit keys"),
        ("consume:a  publish:a", "publish:a consume:a"),
        ("publish:a publish:a*", "publish:a*"),
    ] {
        assert_eq!(scopes(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn errors_say_which_entry_and_why() {
    for text in [
        "Publish",
        "QUEUE:PUBLISH",
        "queue:.*",
        "",
        "ключ",
        "publish\tread",
        "*",
        "publis",
    ] {
        let Err(error) = Scopes::from_entries(["read", text]) else {
            panic!("{text}");
        };
        assert!(matches!(
            error,
            ScopeError::Entry {
                index: 1,
                fault: EntryFault::UnknownRight(_),
                ..
            }
        ));
    }
    let error = Scopes::from_entries(["read", "publsh:a"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "scope 2 (\"publsh:a\"): no such right; the nearest is publish"
    );
    let long = format!("publish:{}", "a".repeat(81));
    for text in [
        "publish:",
        "publish:a*b",
        "publish:**",
        "publish:-a",
        "publish:a..b",
        "publish:a:b",
        "publish:é",
        "read:a/b",
        &long,
    ] {
        assert_eq!(fault(text), EntryFault::NotAName, "{text}");
    }
    for text in ["keys:a", "audit:a*", "admin:a", "admin:*", "admin:"] {
        assert_eq!(fault(text), EntryFault::TakesNoQueue, "{text}");
    }
}

#[test]
fn messages_never_carry_raw_or_long_text() {
    let text = format!("\u{1b}[31m\n{}", "x".repeat(1_000));
    let message = Scopes::from_entries([&*text]).unwrap_err().to_string();
    assert!(message.len() < 200 && !message.contains(['\u{1b}', '\n']));
}

#[test]
fn texts_and_lists_are_bounded() {
    let full = vec!["publish:a"; MAX_ENTRIES];
    assert!(Scopes::from_entries(full.iter().copied()).is_ok());
    assert_eq!(
        Scopes::from_entries(std::iter::repeat_n("publish:a", 10_000)),
        Err(ScopeError::TooMany)
    );
    assert_eq!(
        Scopes::parse(&" ".repeat(MAX_BYTES + 1)),
        Err(ScopeError::TooLong)
    );
    let long = "x".repeat(MAX_BYTES);
    assert_eq!(
        Scopes::from_foreign(["read", &*long]),
        Err(ScopeError::TooLong)
    );
}

#[test]
fn scopes_of_others_are_passed_over_and_named() {
    let (some, passed) = Scopes::from_foreign(["openid", "publish:a", "read:/etc"]).unwrap();
    assert_eq!((some, passed.len()), (scopes("publish:a"), 2));
}

#[test]
fn a_cut_keeps_what_both_allow() {
    for (one, ceiling, both) in [
        ("admin", "publish:a* read", "publish:a* read"),
        ("publish", "publish:a publish:b*", "publish:a publish:b*"),
        (
            "publish:a*",
            "publish:ab* publish:a publish:b",
            "publish:a publish:ab*",
        ),
        ("publish:a", "consume:a", ""),
        ("publish:a publish:b", "publish:b publish:c", "publish:b"),
        ("keys audit", "audit", "audit"),
    ] {
        assert_eq!(scopes(one).intersect(&scopes(ceiling)).to_string(), both);
        assert_eq!(scopes(ceiling).intersect(&scopes(one)).to_string(), both);
    }
}

/// Names over two letters, so that they often meet.
fn entry() -> impl Strategy<Value = String> {
    let right = (0..Right::ALL.len()).prop_map(|n| Right::ALL[n]);
    let on = prop_oneof![Just(String::new()), ":[ab]{1,3}", ":[ab]{0,3}\\*"];
    let some = (right, on).prop_map(|(right, on)| {
        let on = if right.is_per_queue() {
            on
        } else {
            String::new()
        };
        format!("{}{on}", right.name())
    });
    prop_oneof![40 => some, 1 => Just("admin".to_owned())]
}

prop_compose! {
    fn any_scopes()(entries in prop::collection::vec(entry(), 0..12)) -> Scopes {
        Scopes::from_entries(entries.iter().map(String::as_str)).unwrap()
    }
}

fn queues() -> Vec<String> {
    let mut all = vec![String::new()];
    for n in 0..15 {
        let (a, b) = (format!("{}a", all[n]), format!("{}b", all[n]));
        all.extend([a, b]);
    }
    all.split_off(1)
}

fn agree(one: &Scopes, rule: impl Fn(Right, &str) -> bool) {
    for queue in queues() {
        for right in Right::ALL {
            assert_eq!(
                one.may(right, &queue),
                rule(right, &queue),
                "{right:?} {queue}"
            );
        }
    }
}

proptest! {
    #[test]
    fn the_canonical_text_reads_back(one in any_scopes()) {
        prop_assert_eq!(Scopes::parse(&one.to_string()).unwrap(), one.clone());
        let entries = one.entries();
        prop_assert_eq!(Scopes::from_entries(entries.iter().map(String::as_str)).unwrap(), one);
    }

    #[test]
    fn an_intersection_allows_what_both_allow(one in any_scopes(), other in any_scopes()) {
        let both = one.intersect(&other);
        agree(&both, |right, queue| one.may(right, queue) && other.may(right, queue));
        prop_assert!(one.covers(&both) && other.covers(&both));
        prop_assert_eq!(&both, &other.intersect(&one));
        prop_assert_eq!(one.covers(&other), both == other);
    }

    #[test]
    fn who_covers_may_whatever_the_other_may(one in any_scopes(), other in any_scopes()) {
        if one.covers(&other) {
            agree(&other, |right, queue| other.may(right, queue) && one.may(right, queue));
        }
        prop_assert!(one.covers(&one) && Scopes::admin().covers(&one) && one.covers(&Scopes::default()));
    }

    #[test]
    fn a_list_allows_what_its_entries_allow(entries in prop::collection::vec(entry(), 0..12)) {
        let parse = |text: &String| Scopes::parse(text).unwrap();
        let whole = parse(&entries.join(" "));
        agree(&whole, |right, queue| entries.iter().any(|entry| parse(entry).may(right, queue)));
        for right in Right::ALL {
            prop_assert_eq!(whole.may_anywhere(right), entries.iter().any(|entry| parse(entry).may_anywhere(right)));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}|[a-z:* ]{0,60}") {
        if let Ok(some) = Scopes::parse(&text) {
            prop_assert_eq!(Scopes::parse(&some.to_string()).unwrap(), some);
        }
    }
}
