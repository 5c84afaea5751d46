//! Runs: started once, moved on, read and stopped.

use super::*;

#[tokio::test]
async fn a_run_is_queued_runs_case_by_case_and_ends() {
    let running = platform().await;
    for (task, cases, status, failed) in [("T-1001", 3, "passed", 0), ("T-1002", 2, "failed", 1)] {
        let args = json!({ "taskId": task, "idempotencyKey": task });
        let started = call(&running, Way::Modern, "E1001", "start_test_run", args).await.unwrap();
        assert_eq!(started["status"], "queued");
        let run = started["runId"].as_str().unwrap();
        let ended = finished(&running, "E1001", run).await;
        assert_eq!(ended["status"], status);
        assert_eq!(ended["progress"], json!({ "done": cases, "total": cases }));
        assert!(ended["startedAt"].is_string() && ended["finishedAt"].is_string());
        let args = json!({ "runId": run });
        let result = call(&running, Way::Modern, "E1001", "get_execution_result", args).await;
        let result = result.unwrap();
        assert_eq!((&result["failed"], &result["status"]), (&json!(failed), &json!(status)));
        assert_eq!(result["passed"], cases - failed);
        assert_eq!(result["cases"].as_array().unwrap().len(), cases);
    }
}

#[tokio::test]
async fn progress_never_goes_back() {
    let running = platform().await;
    let args = json!({ "taskId": "T-1001", "idempotencyKey": "k" });
    let started = call(&running, Way::LiteUser, "E1001", "start_test_run", args).await.unwrap();
    let (mut done, mut statuses) = (0, vec!["queued".to_owned()]);
    while statuses.last().unwrap() != "passed" {
        let args = json!({ "runId": started["runId"] });
        let seen = call(&running, Way::LiteUser, "E1001", "get_test_run", args).await.unwrap();
        let now = seen["progress"]["done"].as_i64().unwrap();
        assert!(now >= done && now <= 3, "{done} then {now}");
        done = now;
        statuses.push(seen["status"].as_str().unwrap().to_owned());
        statuses.dedup();
    }
    let order = ["queued", "running", "passed"];
    let places = statuses.iter().map(|seen| order.iter().position(|status| status == seen));
    assert!(places.clone().all(|place| place.is_some()), "{statuses:?}");
    assert!(places.is_sorted(), "{statuses:?}");
}

#[tokio::test]
async fn there_is_no_result_before_the_end() {
    let running = platform_at_rest().await;
    let args = json!({ "taskId": "T-1001", "idempotencyKey": "k" });
    let started = call(&running, Way::Modern, "E1001", "start_test_run", args).await.unwrap();
    let args = json!({ "runId": started["runId"] });
    for way in WAYS {
        let early = call(&running, way, "E1001", "get_execution_result", args.clone()).await;
        assert_eq!(code(early), "conflict", "{way:?}");
    }
}

#[tokio::test]
async fn twenty_starts_with_one_key_are_one_run() {
    let running = Arc::new(platform().await);
    let mut starts = JoinSet::new();
    for index in 0..20 {
        let running = running.clone();
        starts.spawn(async move {
            let args = json!({ "taskId": "T-1001", "idempotencyKey": "once" });
            let way = WAYS[index % WAYS.len()];
            call(&running, way, "E1001", "start_test_run", args).await.unwrap()["runId"].clone()
        });
    }
    let mut ids = starts.join_all().await;
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(running.journal().count("start_test_run"), 20);
    let keys = running.journal().entries().into_iter().map(|entry| entry.idempotency_key);
    assert!(keys.into_iter().all(|key| key.as_deref() == Some("once")));
    // The next new key gets the next number: no start was hidden.
    let args = json!({ "taskId": "T-1001", "idempotencyKey": "twice" });
    let next = call(&running, Way::Modern, "E1001", "start_test_run", args).await.unwrap();
    assert_eq!((&ids[0], &next["runId"]), (&json!("R-1003"), &json!("R-1004")));
}

#[tokio::test]
async fn a_key_belongs_to_one_employee_and_one_task() {
    let running = platform_at_rest().await;
    let start = async |emp: &'static str, task: &str| {
        let args = json!({ "taskId": task, "idempotencyKey": "mine" });
        call(&running, Way::Handshake, emp, "start_test_run", args).await
    };
    let first = start("E1001", "T-1002").await.unwrap();
    assert_eq!(code(start("E1001", "T-1001").await), "conflict");
    assert_eq!(start("E1001", "T-1002").await.unwrap(), first);
    assert_ne!(start("E1003", "T-1002").await.unwrap(), first);
}

#[tokio::test]
async fn a_run_can_be_stopped_until_it_ends() {
    let running = platform_at_rest().await;
    let args = json!({ "taskId": "T-1001", "idempotencyKey": "k" });
    let started = call(&running, Way::Modern, "E1001", "start_test_run", args).await.unwrap();
    let run = json!({ "runId": started["runId"] });
    for _ in 0..2 {
        let stopped = call(&running, Way::Modern, "E1001", "stop_test_run", run.clone()).await;
        assert_eq!(stopped.unwrap()["status"], "stopped");
    }
    let result = call(&running, Way::Modern, "E1001", "get_execution_result", run).await.unwrap();
    assert_eq!(result["status"], "stopped");
    assert!(result["cases"].as_array().unwrap().iter().all(|case| case["outcome"] == "not_run"));
    let ended = json!({ "runId": "R-1001" });
    let late = call(&running, Way::Modern, "E1001", "stop_test_run", ended.clone()).await;
    assert_eq!(code(late), "conflict");
    let still = call(&running, Way::Modern, "E1001", "get_test_run", ended).await.unwrap();
    assert_eq!(still["status"], "passed");
}

#[tokio::test]
async fn runs_left_in_a_file_go_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = Some(folder.path().join("platform.db"));
    let slow =
        PlatformConfig { database: file.clone(), run_step: Duration::from_secs(3_600), ..config() };
    let running = start(slow).await.unwrap();
    let args = json!({ "taskId": "T-1001", "idempotencyKey": "k" });
    let started = call(&running, Way::Modern, "E1001", "start_test_run", args.clone()).await;
    let started = started.unwrap();
    running.shutdown().await;

    let running = start(PlatformConfig { database: file, ..config() }).await.unwrap();
    let again = call(&running, Way::Modern, "E1001", "start_test_run", args).await.unwrap();
    assert_eq!(again["runId"], started["runId"]);
    let ended = finished(&running, "E1001", again["runId"].as_str().unwrap()).await;
    assert_eq!(ended["status"], "passed");
    let tasks = call(&running, Way::Modern, "E1001", "list_test_tasks", json!({})).await.unwrap();
    assert_eq!(tasks["total"], 3);
}
