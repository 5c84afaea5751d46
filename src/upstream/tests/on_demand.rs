//! Clusters that nobody watches: when their names are looked up, what their calls find out, and
//! what is left of them.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{names::*, wire::Wire, *};

#[tokio::test]
async fn the_first_calls_look_a_name_up_once_for_all_of_them() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    *names.slow.lock() = Duration::from_millis(50);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), HOUR);
    assert_eq!(names.asked(), 0, "nothing is looked up before it is needed");
    let core = Upstreams::new(transport());
    for answer in join_all((0..64).map(|_| call(&core, &shop))).await {
        answer.unwrap();
    }
    assert_eq!(names.asked(), 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_its_look_up_to_the_next() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    *names.slow.lock() = Duration::from_millis(100);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), HOUR);
    let core = Upstreams::new(transport());
    for _ in 0..5 {
        let given_up = tokio::time::timeout(Duration::from_millis(10), call(&core, &shop)).await;
        assert!(given_up.is_err());
    }
    call(&core, &shop).await.unwrap();
    assert_eq!(names.asked(), 1);
}

#[tokio::test]
async fn an_old_answer_is_asked_for_again_and_stays_where_that_fails() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), SOON);
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    names.lead("shop.example", &[]);
    for asked in 2..5 {
        tokio::time::sleep(SOON * 2).await;
        for answer in join_all((0..16).map(|_| call(&core, &shop))).await {
            answer.unwrap();
        }
        assert!(names.asked() >= asked, "asked {} times", names.asked());
    }
    assert!(shop.healthy());
}

#[tokio::test]
async fn an_answer_that_does_not_come_leaves_the_old_one() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = on_demand("shop.example", wire.address.port(), public(&names), SOON);
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    *names.slow.lock() = HOUR;
    tokio::time::sleep(SOON * 2).await;
    let begun = Instant::now();
    call(&core, &shop).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_name_that_has_no_address_is_not_asked_for_by_each_call() {
    let names = Arc::<Names>::default();
    let shop = on_demand("nowhere.example", 443, public(&names), HOUR);
    let core = Upstreams::new(transport());
    for answer in join_all((0..16).map(|_| call(&core, &shop))).await {
        assert_eq!(answer.unwrap_err().kind(), Some("dns"));
    }
    assert_eq!(names.asked(), 1);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(call(&core, &shop).await.unwrap_err().kind(), Some("dns"));
    assert_eq!(names.asked(), 2, "and is asked for again soon");
}

#[tokio::test]
async fn without_checks_a_dead_address_is_found_by_calls_and_passed_over() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &["127.0.0.3", GOOD]);
    let config =
        EgressConfig { allow: vec!["127.0.0.0/8".parse().unwrap()], ..EgressConfig::default() };
    let guard = Guard::public(&Egress::resolving(config, names.clone()));
    let shop = on_demand("shop.example", wire.address.port(), guard, HOUR);
    let core = Upstreams::new(transport());
    for _ in 0..8 {
        call(&core, &shop).await.unwrap();
    }
    assert!(shop.healthy() && shop.has_choice());
    assert_eq!(wire.requests().len(), 8);
}

#[tokio::test]
async fn without_checks_calls_take_the_addresses_in_turn() {
    let one = Wire::echo().await;
    let port = one.address.port();
    let other = Inside::at("127.0.0.4", port).await;
    let names = Names::new("shop.example", &[GOOD, "127.0.0.4"]);
    let config =
        EgressConfig { allow: vec!["127.0.0.0/8".parse().unwrap()], ..EgressConfig::default() };
    let guard = Guard::public(&Egress::resolving(config, names.clone()));
    let shop = on_demand("shop.example", port, guard, HOUR);
    let core = Upstreams::new(transport());
    // The other takes a connection and hangs up at once.
    let answers = join_all((0..10).map(|_| call(&core, &shop))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    assert_eq!(other.0.load(SeqCst), 5);
}

#[tokio::test]
async fn what_is_dropped_leaves_no_task_no_connection_and_no_pool() {
    const MANY: usize = 1_000;
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let guard = public(&names);
    let core = Upstreams::new(transport());
    let port = wire.address.port();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let shops: Vec<_> =
        (0..MANY).map(|_| on_demand("shop.example", port, guard.clone(), HOUR)).collect();
    assert_eq!(tasks(), before, "there is no task for a cluster that was not called");
    for shop in &shops {
        call(&core, shop).await.unwrap();
    }
    // The server's own task of each connection, and no more.
    until("look-ups have ended", || tasks() == before + MANY).await;
    assert_eq!(core.0.pools(), MANY);
    drop(shops);
    until("the pools are gone", || core.0.pools() == 0).await;
    until("the connections are closed", || tasks() == before).await;
}

#[tokio::test]
async fn an_address_that_a_name_has_no_more_keeps_no_connection() {
    let wire = Wire::echo().await;
    let names = Names::new("shop.example", &[GOOD]);
    let shop = watched("shop.example", wire.address.port(), public(&names));
    let core = Upstreams::new(transport());
    call(&core, &shop).await.unwrap();
    names.lead("shop.example", &[BAD]);
    shop.refresh().await;
    until("the pool is gone", || core.0.pools() == 0).await;
}

#[tokio::test]
async fn slow_public_names_keep_no_look_up_from_the_operators_own() {
    let wire = Wire::echo().await;
    let names = Names::new("own.example", &[GOOD]);
    let egress = Egress::resolving(EgressConfig::default(), names.clone());
    *names.slow.lock() = HOUR;
    let core = Upstreams::new(transport());
    let shops: Vec<_> =
        (0..40).map(|_| on_demand("slow.example", 443, Guard::public(&egress), HOUR)).collect();
    for answer in join_all(shops.iter().map(|shop| call(&core, shop))).await {
        assert_eq!(answer.unwrap_err().kind(), Some("dns"));
    }
    assert_eq!(names.asked(), 32, "each look-up that nobody waits for any more still counts");
    *names.slow.lock() = Duration::ZERO;
    let own = watched("own.example", wire.address.port(), Guard::written(&egress));
    call(&core, &own).await.unwrap();
}
