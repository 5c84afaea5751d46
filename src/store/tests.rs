//! The contract, store by store; and what only a file or a server can suffer.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use secrecy::ExposeSecret;
use sqlx::{Connection, Executor, PgConnection, Row, SqliteConnection};
use tokio::time::Instant;

use super::{
    Address, OpenError, Store, approval_suite,
    suite::{self, Place, result, settings},
};
use crate::clock::Clock;

#[allow(clippy::disallowed_methods, reason = "a test's thread serves nobody else")]
#[path = "../../tests/gateway/support/postgres.rs"]
mod server;

const NOW: u64 = 1_790_000_000_000;

fn memory() -> Option<Place> {
    Some(Place { address: None, clock: Clock::manual(NOW), _held: None })
}

fn sqlite() -> Option<Place> {
    let folder = tempfile::tempdir().unwrap();
    let address = Some(Address::Sqlite(folder.path().join("new/hangu.db")));
    Some(Place { address, clock: Clock::manual(NOW), _held: Some(folder) })
}

/// A database of its own for each test.
fn postgres() -> Option<Place> {
    let server = server::shared()?;
    let address = Some(Address::Postgres(database(&server).into()));
    Some(Place { address, clock: Clock::manual(NOW), _held: None })
}

fn database(server: &str) -> String {
    let name = format!("hangu_test_{:016x}", rand::random::<u64>());
    block_on(async {
        let mut conn = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        conn.execute(create).await.unwrap();
    });
    format!("{server}/{name}")
}

pub(super) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

macro_rules! contract {
    ($store:ident: $($test:ident),+) => { contract!($store, $store, suite: $($test),+); };
    ($module:ident, $store:ident, $suite:ident: $($test:ident),+) => {
        mod $module {
            $(#[test]
            fn $test() {
                if let Some(place) = super::$store() {
                    super::block_on(super::super::$suite::$test(place));
                }
            })+
        }
    };
}

contract!(memory: a_finished_call_is_answered_again, a_call_that_did_not_take_place_frees_its_key,
    an_unknown_outcome_is_never_run_again, a_record_stays_its_full_time_and_no_longer,
    a_full_store_refuses_new_keys_and_forgets_none, of_many_first_calls_one_runs);

contract!(sqlite: a_finished_call_is_answered_again, a_call_that_did_not_take_place_frees_its_key,
    an_unknown_outcome_is_never_run_again, a_record_stays_its_full_time_and_no_longer,
    a_full_store_refuses_new_keys_and_forgets_none, of_many_first_calls_one_runs,
    a_restart_forgets_nothing, a_lease_that_ran_out_is_an_unknown_outcome,
    a_sweep_takes_nothing_that_was_claimed_anew,
    those_elsewhere_get_the_answer_too);

contract!(postgres: a_finished_call_is_answered_again, a_call_that_did_not_take_place_frees_its_key,
    an_unknown_outcome_is_never_run_again, a_record_stays_its_full_time_and_no_longer,
    a_full_store_refuses_new_keys_and_forgets_none, of_many_first_calls_one_runs,
    a_restart_forgets_nothing, a_lease_that_ran_out_is_an_unknown_outcome,
    a_sweep_takes_nothing_that_was_claimed_anew,
    those_elsewhere_get_the_answer_too);

contract!(credentials_in_sqlite, sqlite, credential_suite: an_owner_has_one_for_a_server,
    nobody_finds_another_s, a_renewal_is_remembered_until_its_owner_sets_another,
    all_of_them_are_looked_through_page_by_page, what_is_sealed_under_which_key_is_counted,
    one_that_changed_meanwhile_is_not_rewrapped, what_was_kept_is_there_after_a_restart,
    nothing_planted_is_in_the_file);

contract!(credentials_in_memory, memory, credential_suite: an_owner_has_one_for_a_server,
    nobody_finds_another_s, one_that_changed_meanwhile_is_not_rewrapped,
    a_renewal_is_remembered_until_its_owner_sets_another,
    all_of_them_are_looked_through_page_by_page);

contract!(credentials_in_postgres, postgres, credential_suite: an_owner_has_one_for_a_server,
    nobody_finds_another_s, a_renewal_is_remembered_until_its_owner_sets_another,
    all_of_them_are_looked_through_page_by_page, what_is_sealed_under_which_key_is_counted,
    one_that_changed_meanwhile_is_not_rewrapped, what_was_kept_is_there_after_a_restart);

contract!(pins_in_memory, memory, pin_suite: every_definition_is_kept_with_a_number,
    the_first_one_kept_is_the_one_that_is_approved, who_approved_what_when_is_kept,
    whoever_asks_for_news_misses_none, what_is_kept_is_bounded,
    what_is_listed_no_more_is_forgotten_unless_somebody_looked,
    what_is_handed_on_keeps_its_numbers_and_approves_nothing);

contract!(pins_in_sqlite, sqlite, pin_suite: every_definition_is_kept_with_a_number,
    the_first_one_kept_is_the_one_that_is_approved, who_approved_what_when_is_kept,
    whoever_asks_for_news_misses_none, what_is_kept_is_bounded,
    what_is_listed_no_more_is_forgotten_unless_somebody_looked, a_restart_keeps_definitions,
    what_is_handed_on_keeps_its_numbers_and_approves_nothing);

contract!(pins_in_postgres, postgres, pin_suite: every_definition_is_kept_with_a_number,
    the_first_one_kept_is_the_one_that_is_approved, who_approved_what_when_is_kept,
    whoever_asks_for_news_misses_none, what_is_kept_is_bounded,
    what_is_listed_no_more_is_forgotten_unless_somebody_looked, a_restart_keeps_definitions,
    what_is_handed_on_keeps_its_numbers_and_approves_nothing);

contract!(servers_in_memory, memory, server_suite: a_write_names_what_it_replaces,
    two_addresses_of_one_key_are_not_merged, an_employee_has_as_many_as_he_may,
    everybody_sees_his_own_and_what_his_team_shares, what_was_listed_is_kept_to_the_byte,
    others_learn_of_every_write);

contract!(servers_in_sqlite, sqlite, server_suite: a_write_names_what_it_replaces,
    two_addresses_of_one_key_are_not_merged, an_employee_has_as_many_as_he_may,
    everybody_sees_his_own_and_what_his_team_shares, what_was_listed_is_kept_to_the_byte,
    others_learn_of_every_write, what_was_kept_is_there_after_a_restart,
    of_many_who_write_at_once_one_wins, ten_thousand_servers_start_at_once,
    what_was_deleted_long_ago_is_forgotten,
    a_killed_process_loses_nothing_that_was_acknowledged);

contract!(servers_in_postgres, postgres, server_suite: a_write_names_what_it_replaces,
    two_addresses_of_one_key_are_not_merged, an_employee_has_as_many_as_he_may,
    everybody_sees_his_own_and_what_his_team_shares, what_was_listed_is_kept_to_the_byte,
    others_learn_of_every_write, what_was_kept_is_there_after_a_restart,
    of_many_who_write_at_once_one_wins, ten_thousand_servers_start_at_once,
    what_was_deleted_long_ago_is_forgotten);

macro_rules! approvals_contract {
    ($module:ident, $store:ident: $($test:ident),+) => {
        mod $module {
            $(#[test]
            fn $test() {
                if let Some(place) = super::$store() {
                    super::block_on(super::approval_suite::$test(place));
                }
            })+
        }
    };
}

approvals_contract!(approvals_in_memory, memory: of_many_who_ask_at_once_one_asks_and_one_runs,
    what_is_kept_is_what_was_said, a_grant_is_used_when_it_is_meant_to_be, a_token_is_good_once,
    what_waits_is_bounded, who_looks_after_them_sees_all_and_says_no,
    what_nobody_decides_expires_once_and_is_forgotten);

approvals_contract!(approvals_in_sqlite, sqlite: of_many_who_ask_at_once_one_asks_and_one_runs,
    what_is_kept_is_what_was_said, a_grant_is_used_when_it_is_meant_to_be, a_token_is_good_once,
    what_waits_is_bounded, who_looks_after_them_sees_all_and_says_no,
    what_nobody_decides_expires_once_and_is_forgotten,
    a_restart_keeps_requests);

approvals_contract!(approvals_in_postgres, postgres: of_many_who_ask_at_once_one_asks_and_one_runs,
    what_is_kept_is_what_was_said, a_grant_is_used_when_it_is_meant_to_be, a_token_is_good_once,
    what_waits_is_bounded, who_looks_after_them_sees_all_and_says_no,
    what_nobody_decides_expires_once_and_is_forgotten,
    a_restart_keeps_requests);

macro_rules! quotas {
    ($store:ident in $name:ident: $($test:ident),+) => {
        mod $name {
            $(#[test]
            fn $test() {
                if let Some(place) = super::$store() {
                    super::block_on(super::suite::quotas::$test(place));
                }
            })+
        }
    };
}

quotas!(sqlite in sqlite_quotas: units_are_taken_up_to_the_ceiling_and_no_further,
    a_window_turns_once_and_never_back, what_is_put_right_is_there_for_others,
    a_restart_forgets_no_unit, a_sweep_takes_only_windows_that_are_over);

quotas!(postgres in postgres_quotas: units_are_taken_up_to_the_ceiling_and_no_further,
    a_window_turns_once_and_never_back, what_is_put_right_is_there_for_others,
    a_restart_forgets_no_unit, a_sweep_takes_only_windows_that_are_over);

#[test]
fn every_store_does_what_the_model_does() {
    suite::it_does_what_the_model_does(&memory().unwrap(), 1, 500);
    suite::it_does_what_the_model_does(&sqlite().unwrap(), 2, 60);
    if let Some(place) = postgres() {
        suite::it_does_what_the_model_does(&place, 2, 60);
    }
}

#[test]
fn looking_at_a_key_takes_nothing() {
    for place in [memory(), sqlite(), postgres()].into_iter().flatten() {
        let (process, other) = (place.start(), place.start());
        let asks = if place.address.is_some() { &other } else { &process };
        let look = |arguments| async move {
            let found = asks.replays.look(asks.claim("k1", arguments)).await;
            found.map_or("new".to_owned(), |begin| suite::said(&begin))
        };
        block_on(async {
            assert_eq!(look(1).await, "new");
            let lease = process.run("k1").await;
            assert_eq!((look(1).await, look(2).await), ("in flight".into(), "conflict".into()));
            assert!(lease.finish(&result("{}")).wait().await);
            assert_eq!((look(1).await, look(2).await), ("result {}".into(), "conflict".into()));
            place.clock.advance(settings().keep);
            assert_eq!(look(2).await, "new");
        });
    }
}

fn path(place: &Place) -> &Path {
    match &place.address {
        Some(Address::Sqlite(path)) => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_files_are_this_users_alone() {
    let place = sqlite().unwrap();
    let process = place.start();
    block_on(async { process.run("k1").await.finish(&result("secret words")).wait().await });
    let folder = path(&place).parent().unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        let bytes = fs::read(entry.path()).unwrap();
        assert!(!bytes.windows(12).any(|part| part == b"secret words"), "{entry:?}");
        seen += 1;
    }
    // The database, its log, the log's index, the lock.
    assert_eq!(seen, 4);
    drop(process);
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        1,
        "what is only for the time it runs is gone"
    );
}

#[test]
fn a_file_that_others_lock_is_waited_for_and_then_told() {
    let place = sqlite().unwrap();
    let process = place.start();
    let health = process.store.as_ref().unwrap().health();
    block_on(async {
        let running = process.run("running").await;
        let url = format!("sqlite:{}", path(&place).display());
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        let begun = Instant::now();
        assert_eq!(process.word("k1", 1).await, "down");
        assert!(begun.elapsed() < settings().patience, "{:?}", begun.elapsed());
        assert!(!health.is_available());
        // The answer of a call that ran meanwhile is not lost, nor is the caller kept for long.
        assert!(!running.finish(&result("told")).wait().await);
        assert_eq!(process.word("running", 1).await, "result told");
        other.execute("ROLLBACK").await.unwrap();
        // It comes back by itself, with what was left to be written.
        drop(process.run("k1").await);
        assert!(health.is_available());
        let next = place.start();
        assert_eq!(next.word("running", 1).await, "in flight");
        process.replays.retry();
        while next.word("running", 1).await == "in flight" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(next.word("running", 1).await, "result told");
        assert_eq!(process.word("running", 1).await, "result told");
    });
}

#[test]
fn a_server_that_is_away_is_told_and_comes_back() {
    let Some(mut server) = server::Postgres::start() else { return };
    let address = Some(Address::Postgres(database(&server.url()).into()));
    let place = Place { address, clock: Clock::manual(NOW), _held: None };
    let process = place.start();
    block_on(async {
        let running = process.run("running").await;
        server.stop();
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(process.word("k1", 1).await, "down");
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        }
        assert!(!running.finish(&result("told")).wait().await);
        assert_eq!(process.word("running", 1).await, "result told");
        server.serve();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let lease = process.run("k1").await;
        assert!(lease.finish(&result("{}")).wait().await);
        process.replays.retry();
        let next = place.start();
        while next.word("running", 1).await == "in flight" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(next.word("running", 1).await, "result told");
    });
}

#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    for place in [sqlite(), postgres()].into_iter().flatten() {
        drop(place.start());
        // Opened again it is what it was.
        drop(place.start());
        let more = "INSERT INTO hangu_migration VALUES (99, 'later', 0)";
        block_on(async {
            match place.address.as_ref().unwrap() {
                Address::Sqlite(path) => {
                    let url = format!("sqlite:{}", path.display());
                    let mut conn = SqliteConnection::connect(&url).await.unwrap();
                    conn.execute(more).await.unwrap();
                    conn.close().await.unwrap();
                }
                Address::Postgres(url) => {
                    let mut conn = PgConnection::connect(url.expose_secret()).await.unwrap();
                    conn.execute(more).await.unwrap();
                }
            }
        });
        let error = Store::open(place.address.as_ref().unwrap(), &place.clock).err().unwrap();
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }
}

#[test]
fn what_cannot_be_opened_says_why_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text.db"), "this is no database, whatever its name is").unwrap();
    let nowhere = "postgres://u:hunter2@127.0.0.1:1/db";
    for (address, word) in [
        (Address::Sqlite(folder.path().join("text.db")), "not a database"),
        (Address::Sqlite(folder.path().to_owned()), "directory"),
        (Address::Postgres(nowhere.into()), "refused"),
        (Address::Postgres("postgres://u:hunter2@h/db?sslmode=hunter2".into()), "PostgreSQL"),
    ] {
        let error = Store::open(&address, &Clock::system()).err().unwrap().to_string();
        assert!(error.contains(word), "{address:?}: {error}");
        assert!(!error.contains("u:hunter2") && !format!("{address:?}").contains("hunter2"));
    }
}

#[test]
fn two_hundred_thousand_records_start_at_once() {
    let place = sqlite().unwrap();
    drop(place.start());
    block_on(async {
        let url = format!("sqlite:{}", path(&place).display());
        let mut conn = SqliteConnection::connect(&url).await.unwrap();
        let fill =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
             INSERT INTO replay SELECT randomblob(32), randomblob(16), randomblob(16), 1,
             randomblob(32), 1, 0, 1790000000001, 500, randomblob(180) FROM n";
        conn.execute(fill).await.unwrap();
        let row = conn.fetch_one("SELECT count(*) FROM replay").await.unwrap();
        assert_eq!(row.get::<i64, _>(0), 200_000);
        conn.close().await.unwrap();
    });
    let begun = Instant::now();
    let process =
        place.process(crate::idempotency::Settings { max_keys: 1_000_000, ..settings() }, 1);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(process.replays.usage().keys, 200_000);
    // Forgetting them all keeps nobody waiting for long.
    place.clock.advance(Duration::from_millis(2));
    process.replays.sweep();
    let mut slowest = Duration::ZERO;
    let mut n = 0;
    while process.replays.usage().keys > 100 {
        let begun = Instant::now();
        n += 1;
        let lease = block_on(process.run(&format!("k{n}")));
        assert!(block_on(lease.free().wait()));
        slowest = slowest.max(begun.elapsed());
        process.replays.sweep();
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
