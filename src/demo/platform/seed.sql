-- What the demo starts with: the same every time, and no second time in a file kept from before.

INSERT OR IGNORE INTO employee (emp_id, tenant) VALUES
    ('E1001', 'acme'),
    ('E1002', 'acme'),
    ('E1003', 'acme'),
    ('E1009', 'acme'),
    ('E2001', 'globex');

INSERT OR IGNORE INTO task (task_id, owner, name, target, description, created_ms) VALUES
    ('T-1001', 'E1001', 'Checkout smoke test', 'web',
     'The shortest way from a full cart to a paid order.', 1764576000000),
    ('T-1002', 'E1001', 'Login regression', 'android',
     'Every way into the app, and the ways that must stay shut.', 1764662400000),
    ('T-1003', 'E1001', 'Payment callback contract', 'api',
     'What the payment provider sends when money has moved.', 1764748800000);

INSERT OR IGNORE INTO share (task_id, emp_id) VALUES ('T-1002', 'E1003');

INSERT OR IGNORE INTO test_case
    (case_id, task_id, position, name, priority, steps, expected, outcome, duration_ms, message)
VALUES
    ('C-1001', 'T-1001', 1, 'Pays by card', 'P0',
     '["Put one article into the cart","Open the checkout","Pay with the test card"]',
     'The order is shown as paid', 'passed', 4210, NULL),
    ('C-1002', 'T-1001', 2, 'Keeps the cart after a reload', 'P1',
     '["Put two articles into the cart","Reload the page"]',
     'Both articles are still there', 'passed', 1830, NULL),
    ('C-1003', 'T-1001', 3, 'Refuses an expired card', 'P1',
     '["Open the checkout with one article","Pay with the expired test card"]',
     'The page says that the card has expired, and no order is made', 'passed', 3970, NULL),
    ('C-1004', 'T-1002', 1, 'Signs in with a password', 'P0',
     '["Open the app","Sign in with the test account"]',
     'The home screen appears', 'passed', 2640, NULL),
    ('C-1005', 'T-1002', 2, 'Locks after five wrong passwords', 'P0',
     '["Enter a wrong password five times","Enter the right one"]',
     'The account is locked for 15 minutes', 'failed', 9120,
     'the sixth attempt was let in'),
    ('C-1006', 'T-1003', 1, 'Marks an order as paid once', 'P0',
     '["Send the callback","Send the same callback again"]',
     'One payment is booked', 'passed', 310, NULL),
    ('C-1007', 'T-1003', 2, 'Refuses a wrong signature', 'P0',
     '["Send the callback with one byte of the signature changed"]',
     'The answer is 401, and nothing is booked', 'passed', 120, NULL);

INSERT OR IGNORE INTO run
    (run_id, task_id, emp_id, idempotency_key, status, created_ms, started_ms, finished_ms)
VALUES
    (1001, 'T-1001', 'E1001', 'seed-1', 'passed', 1764835200000, 1764835201000, 1764835211010),
    (1002, 'T-1002', 'E1001', 'seed-2', 'failed', 1764921600000, 1764921601000, 1764921612760);

INSERT OR IGNORE INTO case_result (run_id, case_id, outcome, duration_ms, message)
SELECT run.run_id, test_case.case_id, test_case.outcome, test_case.duration_ms, test_case.message
FROM run JOIN test_case ON test_case.task_id = run.task_id
WHERE run.run_id IN (1001, 1002);
