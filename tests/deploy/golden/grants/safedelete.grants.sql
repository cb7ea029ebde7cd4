-- Rendered by safedelete from the job file and safedelete.toml; change those.
-- The safedelete_ tables are in the ledger's database, the others and safedelete_lease in the purged one.

-- Runs the jobs. It cannot write approvals: who runs purges must not be able to approve their own.
GRANT SELECT (at, id) ON logins TO safedelete_runner;
GRANT DELETE ON logins TO safedelete_runner;
GRANT SELECT (upload_id) ON shares TO safedelete_runner;
GRANT SELECT (etag, expires_at, id, legal_hold, s3_key) ON uploads TO safedelete_runner;
GRANT DELETE ON uploads TO safedelete_runner;
GRANT UPDATE (id) ON uploads TO safedelete_runner;
GRANT SELECT ON safedelete_meta TO safedelete_runner;
GRANT SELECT, INSERT, UPDATE ON safedelete_run TO safedelete_runner;
GRANT SELECT, INSERT, UPDATE, DELETE ON safedelete_batch TO safedelete_runner;
GRANT SELECT ON safedelete_approval TO safedelete_runner;
GRANT SELECT ON safedelete_notice TO safedelete_runner;
GRANT SELECT, INSERT, UPDATE ON safedelete_lease TO safedelete_runner;
-- audit_log (may_touch of uploads): a trigger writes to it with the runner's own rights, unless it has its owner's (SECURITY DEFINER; on MySQL always). Grant INSERT, or what it does, there too.

-- Plans and looks, and deletes nothing.
GRANT SELECT (at, id) ON logins TO safedelete_reader;
GRANT SELECT (upload_id) ON shares TO safedelete_reader;
GRANT SELECT (etag, expires_at, id, legal_hold, s3_key) ON uploads TO safedelete_reader;
GRANT SELECT ON safedelete_meta TO safedelete_reader;
GRANT SELECT ON safedelete_run TO safedelete_reader;
GRANT SELECT ON safedelete_batch TO safedelete_reader;
GRANT SELECT ON safedelete_approval TO safedelete_reader;
GRANT SELECT ON safedelete_notice TO safedelete_reader;

-- Approves refused plans.
GRANT SELECT ON safedelete_meta TO safedelete_approver;
GRANT SELECT ON safedelete_run TO safedelete_approver;
GRANT SELECT ON safedelete_batch TO safedelete_approver;
GRANT SELECT, INSERT ON safedelete_approval TO safedelete_approver;
GRANT SELECT ON safedelete_notice TO safedelete_approver;

-- Pauses jobs, and ends runs at work.
GRANT SELECT ON safedelete_meta TO safedelete_operator;
GRANT SELECT ON safedelete_run TO safedelete_operator;
GRANT SELECT, INSERT, UPDATE ON safedelete_notice TO safedelete_operator;
