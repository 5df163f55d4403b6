//! Dead letters: found in both directions, and given another round one by one.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

const LIST: &str = "/v1/queues/q/dead-letters";

async fn bury(client: &Client, message: Value, code: &str) -> String {
    client.bury("q", message, code, "no answer").await
}

async fn they_are_listed_oldest_first_with_what_is_known(client: &Client) {
    let first = bury(client, json!(1), "E1").await;
    let second = client.publish("q", json!(2)).await;
    client
        .ok(
            &format!("/v1/messages/{second}/dead-letter"),
            json!({"reason": "bad batch"}),
        )
        .await;
    let (_, page) = client.get(LIST).await;
    assert_eq!(Client::ids(&page), [first.clone(), second.clone()]);
    let dead = &page["messages"][0]["dead_letter"];
    assert_eq!(
        (&dead["reason"], &dead["failure_kind"], &dead["error_code"]),
        (
            &json!("permanent_failure"),
            &json!("permanent"),
            &json!("E1")
        )
    );
    assert!(dead["group"].as_str().unwrap().starts_with("grp_"));
    let (_, page) = client.get(&format!("{LIST}?order=newest")).await;
    assert_eq!(Client::ids(&page), [second, first]);
    assert!(page.get("next_page_token").is_none() && page.get("previous_page_token").is_none());
}

/// The tokens of a page.
fn tokens(page: &Value) -> (Option<&str>, Option<&str>) {
    (
        page["next_page_token"].as_str(),
        page["previous_page_token"].as_str(),
    )
}

async fn pages_lead_in_both_directions(client: &Client) {
    let mut all = Vec::new();
    for n in 0..7 {
        let queue = if n % 2 == 0 { "q" } else { "other" };
        all.push(client.bury(queue, json!(n), "E1", "").await);
    }
    let alone: Vec<String> = all.iter().step_by(2).cloned().collect();
    let other: Vec<String> = all.iter().skip(1).step_by(2).cloned().collect();
    for (path, oldest) in [
        ("/v1/dead-letters", all),
        (LIST, alone),
        ("/v1/queues/other/dead-letters", other),
    ] {
        let mut newest = oldest.clone();
        newest.reverse();
        for (order, whole) in [("oldest", oldest), ("newest", newest)] {
            let path = format!("{path}?order={order}&page_size=2");
            let (_, mut page) = client.get(&path).await;
            let (mut there, mut pages) = (Client::ids(&page), vec![Client::ids(&page)]);
            assert_eq!(tokens(&page).1, None);
            while let (Some(next), _) = tokens(&page) {
                page = client.get(&format!("{path}&page_token={next}")).await.1;
                there.extend(Client::ids(&page));
                pages.push(Client::ids(&page));
            }
            assert_eq!(there, whole, "{path}");
            pages.pop();
            while let (_, Some(previous)) = tokens(&page) {
                page = client.get(&format!("{path}&page_token={previous}")).await.1;
                assert_eq!(Some(Client::ids(&page)), pages.pop(), "{path}");
                assert!(tokens(&page).0.is_some());
            }
            assert!(pages.is_empty(), "{path}");
        }
    }
}

async fn a_token_is_good_for_one_filter_and_one_order(client: &Client) {
    for n in 0..3 {
        bury(client, json!(n), "E1").await;
    }
    client.queue("other", json!({})).await;
    let (_, page) = client
        .get(&format!("{LIST}?error_code=E1&page_size=2"))
        .await;
    let token = tokens(&page).0.unwrap();
    let (_, rest) = client
        .get(&format!(
            "{LIST}?error_code=E1&page_size=500&page_token={token}"
        ))
        .await;
    assert_eq!(Client::ids(&rest).len(), 1);
    for path in [
        LIST.to_owned(),
        format!("{LIST}?error_code=E2"),
        format!("{LIST}?error_code=E1&order=newest"),
        "/v1/queues/other/dead-letters?error_code=E1".to_owned(),
        "/v1/dead-letters?error_code=E1".to_owned(),
    ] {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{mark}page_token={token}");
        client
            .refused("GET", &path, Value::Null, 422, "invalid_page_token")
            .await;
    }
}

/// What was the first of a page is gone, and the way back is still there.
async fn the_way_back_survives_what_leaves_meanwhile(client: &Client) {
    let mut all = Vec::new();
    for n in 0..4 {
        all.push(bury(client, json!(n), "E1").await);
    }
    let list = format!("{LIST}?page_size=2");
    let (_, first) = client.get(&list).await;
    let next = tokens(&first).0.unwrap();
    for id in &all[2..] {
        client
            .ok(&format!("{LIST}/{id}/redrive"), Value::Null)
            .await;
    }
    let (_, page) = client.get(&format!("{list}&page_token={next}")).await;
    assert!(Client::ids(&page).is_empty());
    let back = tokens(&page).1.unwrap();
    let (_, page) = client.get(&format!("{list}&page_token={back}")).await;
    assert_eq!(Client::ids(&page), &all[..2]);
}

async fn filters_find_what_they_say(client: &Client) {
    let began = bury(client, json!(0), "E0").await;
    let body = json!({"queue": "q", "message": 1, "key": "order-1"});
    let keyed = client.ok("/v1/queue/publish", body).await["message_id"].clone();
    client.nack_for_good("q", "E1", "declined").await;
    let keyed = keyed.as_str().unwrap().to_owned();
    let third = client.publish("q", json!(2)).await;
    client
        .ok(
            &format!("/v1/messages/{third}/dead-letter"),
            json!({"reason": "stop"}),
        )
        .await;
    let edit = json!({"message": 3, "reason": "wrong"});
    let (status, _) = client.call("PATCH", &format!("{LIST}/{third}"), edit).await;
    assert_eq!(status, 200);
    let (_, page) = client.get(LIST).await;
    let (second, last) = (&page["messages"][1], &page["messages"][2]);
    let group = second["dead_letter"]["group"].as_str().unwrap();
    let died = |m: &Value| m["dead_letter"]["died_at"].as_str().unwrap().to_owned();
    let published = last["published_at"].as_str().unwrap();
    let (first, second_only, last_only) = (
        vec![began.clone()],
        vec![keyed.clone()],
        vec![third.clone()],
    );
    let both = vec![began, keyed];
    for (filter, ids) in [
        ("error_code=E1".to_owned(), &second_only),
        ("key=order-1".to_owned(), &second_only),
        ("key_prefix=order".to_owned(), &second_only),
        (format!("group={group}"), &second_only),
        ("reason=operator".to_owned(), &last_only),
        ("failure_kind=permanent".to_owned(), &both),
        ("failure_kind=permanent&error_code=E0".to_owned(), &first),
        ("edited=true".to_owned(), &last_only),
        ("edited=false".to_owned(), &both),
        ("min_attempts=1&max_attempts=1".to_owned(), &both),
        ("max_attempts=0".to_owned(), &last_only),
        ("min_redrive_count=1".to_owned(), &vec![]),
        ("max_redrive_count=0&reason=operator".to_owned(), &last_only),
        (format!("died_before={}&edited=true", died(last)), &vec![]),
        (
            format!("died_after={}&reason=operator", died(last)),
            &last_only,
        ),
        (
            format!("published_after={published}&edited=true"),
            &last_only,
        ),
        (format!("published_before={published}&edited=true"), &vec![]),
    ] {
        for path in [LIST, "/v1/dead-letters"] {
            let (status, page) = client.get(&format!("{path}?{filter}")).await;
            assert_eq!(status, 200, "{page}");
            assert_eq!(&Client::ids(&page), ids, "{path}?{filter}");
        }
    }
}

async fn a_redrive_gives_another_round_once(client: &Client) {
    client.queue("q", json!({"max_redrives": 1})).await;
    let id = bury(client, json!(1), "E1").await;
    let path = format!("{LIST}/{id}/redrive");
    let body = json!({"client_request_id": "d1"});
    let json = client.ok(&path, body.clone()).await;
    assert_eq!(json["state"], "ready");
    assert_eq!(client.ok(&path, body).await, json);
    client
        .refused("POST", &path, json!({}), 409, "not_dead")
        .await;
    let message = client.receive("q").await;
    assert_eq!(
        (&message["attempt"], &message["redrive_count"]),
        (&json!(1), &json!(1))
    );
    client
        .ok(
            "/v1/queue/nack",
            json!({"receipt": message["receipt"], "permanent": true}),
        )
        .await;
    client
        .refused("POST", &path, Value::Null, 409, "redrive_limit")
        .await;
    let force = json!({"force": true});
    client
        .refused("POST", &path, force, 422, "reason_required")
        .await;
    let body = json!({"force": true, "reason": "the gateway is back"});
    assert_eq!(client.ok(&path, body).await["state"], "ready");
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    let decision = detail["decisions"].as_array().unwrap().last().unwrap();
    assert_eq!(decision["reason"], "the gateway is back");
    assert_eq!(decision["after"]["redrive_count"], 2);
    let other = format!("/v1/queues/other/dead-letters/{id}/redrive");
    client.queue("other", json!({})).await;
    client
        .refused("POST", &other, Value::Null, 404, "not_found")
        .await;
}

async fn a_late_completion_is_kept_on_what_an_operator_took(client: &Client) {
    let id = client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    client
        .ok(
            &format!("/v1/messages/{id}/dead-letter"),
            json!({"reason": "stop"}),
        )
        .await;
    let ack = json!({"receipt": receipt, "outcome": {"charged": true}});
    let json = client
        .refused("POST", "/v1/queue/ack", ack, 409, "taken_by_operator")
        .await;
    assert_eq!(json["effect"], "completion_remembered");
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        detail["completion"],
        json!({"delivery": 1, "outcome": {"charged": true}})
    );
    let path = format!("{LIST}/{id}/redrive");
    client
        .refused("POST", &path, Value::Null, 409, "completion_remembered")
        .await;
    let body = json!({"force": true, "reason": "it was not done"});
    client.ok(&path, body).await;
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert!(detail.get("completion").is_none());
}

on_every_store!(
    they_are_listed_oldest_first_with_what_is_known,
    pages_lead_in_both_directions,
    a_token_is_good_for_one_filter_and_one_order,
    the_way_back_survives_what_leaves_meanwhile,
    filters_find_what_they_say,
    a_redrive_gives_another_round_once,
    a_late_completion_is_kept_on_what_an_operator_took,
);
