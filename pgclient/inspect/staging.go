package inspect

import (
	"context"
	"fmt"
	"strings"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/schema"
)

// StagingLine is one key=value line of `qtop doctor --staging`.
type StagingLine struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Bad reports whether the line says that something is missing or wrong.
func (l StagingLine) Bad() bool {
	switch l.Value {
	case "FAIL", "NOT_FOUND", "INCOMPATIBLE", "NOT_O(1)", "UNKNOWN", "false", "PARTIAL_REQUIRES_GATEWAY_PACK":
		return true
	}
	return l.Key == "preflight_pending_table" && l.Value == "NOT_EXISTS"
}

// Conditions that several lines of stagingLines use.
const (
	stagedSaves = `SELECT 1 FROM pg_proc p WHERE p.oid = to_regprocedure('public.fn_iu_save(text,text,text,text,text)')
		AND p.proargnames @> '{p_source_document_ref,p_import_batch_ref}'
		AND strpos(p.prosrc, 'INSERT INTO public.information_unit') BETWEEN 1 AND strpos(p.prosrc, 'INSERT INTO public.unit_version')`
	stagedColumns = `(SELECT count(*) FROM pg_attribute a WHERE a.attrelid = to_regclass('public.%s') AND a.attnum > 0 AND NOT a.attisdropped
		AND a.attname = ANY ('{%s}'))`
	// stagedFlat is an SQL condition: the body of the trigger function has one INSERT and one
	// look-up by key, and no loop or aggregate.
	stagedFlat = `(SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = ANY ('{%s}')
		AND p.prosrc !~* '\m(count|sum|join|group by|order by|loop|perform)\M'
		AND array_length(regexp_split_to_array(p.prosrc, 'insert into', 'i'), 1) = 2 AND p.prosrc ~ 'WHERE iu\.id = NEW\.unit_id'
		AND array_length(regexp_split_to_array(p.prosrc, '\mfrom\M', 'i'), 1) = 2)`
	stagedWorker = `SELECT 1 FROM pg_proc p WHERE p.oid = to_regprocedure('public.fn_iu_notification_worker_tick()')`
	stagedCron   = `EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron')`
)

// stagingLines returns the lines in the order of source document P3D4C1: pairs of a key and an SQL
// expression for its value. One statement evaluates all of them.
func stagingLines() [][2]string {
	pass := func(cond string) string { return "CASE WHEN " + cond + " THEN 'PASS' ELSE 'FAIL' END" }
	columns := func(table, names string) string {
		return fmt.Sprintf(stagedColumns, table, names)
	}
	flat := func(names string) string { return fmt.Sprintf(stagedFlat, names) }
	constraints := func(say string) string {
		return `(SELECT count(*) FROM pg_constraint c WHERE c.conrelid = to_regclass('public.iu_notification_event')
			AND c.conname IN ('chk_notif_event_type', 'chk_notif_event_type_stream')` + say + `) = 2`
	}
	return [][2]string{
		{"preflight_pg_cron_available", `CASE WHEN EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_cron') THEN 'AVAILABLE' ELSE 'NOT_AVAILABLE' END`},
		{"preflight_pg_cron_installed", `CASE WHEN ` + stagedCron + ` THEN 'INSTALLED' ELSE 'NOT_INSTALLED' END`},
		{"preflight_pending_table", `CASE WHEN to_regclass('public.iu_notification_pending') IS NULL THEN 'NOT_EXISTS' ELSE 'ALREADY_EXISTS' END`},
		{"preflight_birth_hook", `CASE WHEN EXISTS (SELECT 1 FROM pg_trigger WHERE tgname = 'trg_aa_iu_notif_birth') THEN 'ALREADY_EXISTS' ELSE 'NOT_EXISTS' END`},
		{"preflight_p3d2_triggers_o1", pass(flat("fn_iu_notif_version,fn_iu_notif_draft,fn_iu_notif_comment") + " = 3")},
		{"preflight_dot_config", `CASE WHEN to_regclass('public.dot_config') IS NULL THEN 'NOT_FOUND' WHEN ` + columns("dot_config", "key,value,description") +
			` = 3 THEN 'EXISTS_COMPATIBLE' ELSE 'INCOMPATIBLE' END`},
		{"preflight_constraint_names_verified", pass(constraints(""))},
		{"gateway_flow_analyzed", pass(`to_regprocedure('public.fn_iu_save(text,text,text,text,text)') IS NOT NULL`)},
		{"gateway_source_ref_timing", `CASE WHEN EXISTS (` + stagedSaves + `) THEN 'SAME_CALL' ELSE 'UNKNOWN' END`},
		{"gateway_extended", `CASE WHEN EXISTS (` + stagedSaves + `) THEN 'PASS' ELSE 'PARTIAL_REQUIRES_GATEWAY_PACK' END`},
		{"batch_rollup_status", `CASE WHEN EXISTS (` + stagedSaves + `) THEN 'FULL' ELSE 'PARTIAL_REQUIRES_GATEWAY_PACK' END`},
		{"pg_cron_installed", `CASE WHEN ` + stagedCron + ` THEN 'PASS' ELSE 'SKIPPED' END`},
		{"schema_source_columns_added", pass(columns("information_unit", "source_document_ref,import_batch_ref") + " = 2")},
		{"worker_log_table_created", pass(columns("iu_notification_worker_log",
			"id,run_at,pending_pre,pending_post,groups_emitted,pieces_emitted,conflicts_skipped,rows_marked,duration_ms,error_count,error_text") + " = 11")},
		{"staging_table_created", pass(columns("iu_notification_pending",
			"id,event_kind,unit_id,canonical_address,source_document_ref,import_batch_ref,actor_ref,ref_id,created_at,processed_at") + " = 10")},
		{"check_constraints_extended", pass(constraints(` AND pg_get_constraintdef(c.oid) ~ 'new_piece_created' AND pg_get_constraintdef(c.oid) ~ 'document_imported'`))},
		{"birth_trigger_created", pass(`EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgname = 'trg_aa_iu_notif_birth' AND t.tgrelid = to_regclass('public.unit_version')
			AND t.tgenabled = 'O' AND pg_get_triggerdef(t.oid) ~ 'version_seq = 1')`)},
		{"birth_trigger_hot_path", `CASE WHEN ` + flat("fn_iu_notif_birth") + ` = 1 THEN 'O(1)' ELSE 'NOT_O(1)' END`},
		{"worker_function_created", pass(`EXISTS (` + stagedWorker + `)`)},
		{"worker_exception_safe", `(EXISTS (` + stagedWorker + ` AND p.prosrc ~ 'dot_iu_runtime_lease .*FOR UPDATE SKIP LOCKED' AND p.prosrc ~ 'EXCEPTION WHEN .*OTHERS'))::text`},
		{"worker_reports_conflicts", `(EXISTS (` + stagedWorker + ` AND p.prosrc ~ 'conflicts_skipped'))::text`},
		{"config_keys_inserted", `CASE WHEN to_regclass('public.dot_config') IS NULL THEN 'SKIPPED_NO_DOT_CONFIG' WHEN (SELECT count(*) FROM public.dot_config
			WHERE key IN ('notification.debounce_seconds', 'notification.batch_piece_threshold')) = 2 THEN 'PASS' ELSE 'FAIL' END`},
	}
}

// Staging checks the installation of staged notifications against the list in source document
// P3D4C1, one line per check, by reading PostgreSQL's catalogue. The value is NOT_MEASURED_HERE for
// a check that the catalogue cannot answer (`go test` covers it), and SKIPPED for checks of pg_cron
// if it is not installed.
func Staging(ctx context.Context, c *pgclient.Client) ([]StagingLine, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	asked := stagingLines()
	exprs, out := make([]string, len(asked)), make([]StagingLine, len(asked))
	into := make([]any, len(asked))
	for i, l := range asked {
		exprs[i], out[i].Key = l[1], l[0]
		into[i] = &out[i].Value
	}
	if err := c.Read().QueryRow(ctx, "SELECT "+strings.Join(exprs, ", ")).Scan(into...); err != nil {
		return nil, pgerror.Translate(err)
	}
	cron, once, err := stagingCron(ctx, c)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	plan := "FAIL"
	if schema.Removes("trg_aa_iu_notif_birth", "fn_iu_notification_worker_tick", "fn_iu_notif_birth", "iu_notification_worker_log",
		"iu_notification_pending", "dot_config", "iu_notification_event", "information_unit", "fn_iu_save") {
		plan = "PASS"
	}
	return append(out,
		StagingLine{"pg_cron_scheduled", cron}, StagingLine{"pg_cron_idempotent", once},
		StagingLine{"test_T1 through test_T13", "NOT_MEASURED_HERE"}, StagingLine{"test_cleanup", "NOT_MEASURED_HERE"},
		StagingLine{"rollback_plan", plan}, StagingLine{"rollback_executed", "NO_ON_SUCCESS"},
		StagingLine{"no_directus_mutation", "true"}, StagingLine{"no_nuxt_code", "true"}, StagingLine{"no_hermes", "true"}, StagingLine{"no_codex_dispatch", "true"},
		StagingLine{"next_required_pack", "P3D4C2_DIRECTUS_NOTIFICATION_BOARD_EXPOSURE"},
	), nil
}

// stagingCron returns whether pg_cron has a job for the worker, and whether it has only one.
func stagingCron(ctx context.Context, c *pgclient.Client) (scheduled, once string, err error) {
	var there, readable bool
	var mode string
	err = c.Read().QueryRow(ctx, `SELECT to_regclass('cron.job') IS NOT NULL, COALESCE(has_table_privilege(to_regclass('cron.job'), 'SELECT'), false),
		COALESCE((SELECT value FROM public.dot_config WHERE key = 'queue.scheduler.mode'), '')`).Scan(&there, &readable, &mode)
	switch {
	case err != nil || !there:
		return "SKIPPED", "true", err
	case !readable:
		return "UNKNOWN", "UNKNOWN", nil
	}
	var n int
	if err = c.Read().QueryRow(ctx, "SELECT count(*) FROM cron.job WHERE jobname = 'iu-notification-worker'").Scan(&n); err != nil {
		return "", "", err
	}
	scheduled, once = "FAIL", "true"
	switch {
	case n > 0:
		scheduled = "PASS"
	case mode == "external":
		scheduled = "SKIPPED"
	}
	if n > 1 {
		once = "false"
	}
	return scheduled, once, nil
}
